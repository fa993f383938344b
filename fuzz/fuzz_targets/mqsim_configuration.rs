//! Any text as a configuration of MQSim.
#![no_main]

#[path = "../../crates/nandarray-model/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::configuration(data));
