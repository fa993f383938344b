//! Any bytes as the PDUs of an NVMe/TCP host.
#![no_main]

#[path = "../../crates/nandarray-nvme/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::stream(data));
