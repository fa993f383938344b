//! Any text as a device description. Start it with the presets as corpus.
#![no_main]

#[path = "../../crates/nandarray-model/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::description(data));
