//! Changes to the golden image with checksums made right again: what lies behind the checksums.
#![no_main]

#[path = "../../crates/nandarray/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::patched_image(data));
