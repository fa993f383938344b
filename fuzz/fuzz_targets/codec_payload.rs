//! Any bytes as the payload of a compressed or encrypted building block.
#![no_main]

#[path = "../../crates/nandarray/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::codec_payload(data));
