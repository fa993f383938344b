//! Commands of an NVMe host: program loads, range sets, executions, boxes, blocks.
#![no_main]

#[path = "../../crates/nandarray-nvme/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::commands(data));
