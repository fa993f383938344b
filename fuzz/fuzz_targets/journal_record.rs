//! Any bytes as a journal.
#![no_main]

#[path = "../../crates/nandarray/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::journal_record(data));
