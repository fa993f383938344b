//! Any bytes as a program's file, loaded and run. Start it with the file that the tests write by hand as corpus.
#![no_main]

#[path = "../../crates/nandarray-runtime/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::program(data));
