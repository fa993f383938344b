//! Messages of DH-HMAC-CHAP from a host without the secret.
#![no_main]

#[path = "../../crates/nandarray-nvme/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::authentication(data));
