//! Any bytes as an ELF file. Start it with the tests' programs as corpus.
#![no_main]

#[path = "../../crates/nandarray-hart/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::elf(data));
