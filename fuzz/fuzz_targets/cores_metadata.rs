//! Any text as the metadata of a program that is fine.
#![no_main]

#[path = "../../crates/nandarray-cores/tests/common/mod.rs"]
mod common;
#[path = "../../crates/nandarray-runtime/tests/hostile/mod.rs"]
mod hostile;

use std::sync::LazyLock;

static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(common::by_hand);

libfuzzer_sys::fuzz_target!(|data: &[u8]| hostile::described(&PROGRAM, data));
