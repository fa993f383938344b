//! Any bytes as a store's file: opened, read, written, checked, repaired. Start it with the golden image as corpus.
#![no_main]

#[path = "../../crates/nandarray/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::image(data));
