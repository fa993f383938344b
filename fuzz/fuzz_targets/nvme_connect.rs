//! Changes to an NVMe/TCP Connect command and its data.
#![no_main]

#[path = "../../crates/nandarray-nvme/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::connect(data));
