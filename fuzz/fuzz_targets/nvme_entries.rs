//! Any bytes as NVMe submission entries and the buffers lent with them.
#![no_main]

#[path = "../../crates/nandarray/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::nvme::entries(data));
