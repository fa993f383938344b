//! Any bytes as code, scalar and vector, in one go and in parts, with meters that pause: all results are the same.
#![no_main]

#[path = "../../crates/nandarray-hart/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((head, code)) = data.split_at_checked(12) {
        let arguments: Vec<u16> = head.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
        hostile::stepwise(code, &arguments);
    }
});
