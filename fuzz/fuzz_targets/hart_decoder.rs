//! Any bits as instructions.
#![no_main]

#[path = "../../crates/nandarray-hart/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::decoder(data));
