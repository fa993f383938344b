//! Promise: the hart behaves as a bare machine as far as bare-metal tests need it.
//!
//! The tests are in `bare/`, assembled by `bare/build.py`, and report their result in `tohost`. They cover traps,
//! delegation, modes, interrupts, floating-point state, code that changes, and signatures.

use std::path::Path;

use nandarray_hart::bare::{self, BareOptions, BareOutcome, BareStatus};
use nandarray_hart::{Extension, Extensions, Limits, ProgramError, Stop};

fn run(name: &str, granularity: usize) -> BareOutcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bare/built").join(name);
    let limits = Limits { instructions: Some(100_000), stop: None };
    bare::run(&std::fs::read(path).unwrap(), BareOptions { granularity, limits, ..BareOptions::default() }).unwrap()
}

#[test]
fn tests_pass() {
    for test in ["traps", "modes", "interrupts", "state", "host"] {
        for bits in [32, 64] {
            let outcome = run(&format!("{test}-{bits}.elf"), 4);
            assert_eq!(outcome.status, BareStatus::Passed, "{test} {bits}: at {:#x}", outcome.pc);
        }
    }
}

/// Tests files whose segments have no rights, since the community's linker scripts pass `FLAGS` the flag numbers of
/// sections instead of those of segments: such files must be loaded all the same.
#[test]
fn tests_pass_whatever_rights_their_segments_have() {
    for (bits, headers, size, flags) in [(32, 52, 32, 24), (64, 64, 56, 4)] {
        for test in ["traps", "modes"] {
            let name = format!("{test}-{bits}.elf");
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bare/built").join(&name);
            let mut elf = std::fs::read(path).unwrap();
            let count = usize::from(elf[if bits == 32 { 44 } else { 56 }]);
            (0..count).for_each(|n| elf[headers + n * size + flags] = 0);
            let limits = Limits { instructions: Some(100_000), stop: None };
            let outcome = bare::run(&elf, BareOptions { limits, ..BareOptions::default() }).unwrap();
            assert_eq!(outcome.status, BareStatus::Passed, "{name}");
        }
    }
}

#[test]
fn a_test_that_fails_says_where() {
    for bits in [32, 64] {
        let outcome = run(&format!("fails-{bits}.elf"), 4);
        assert_eq!(outcome.status, BareStatus::Failed { test: 3 });
        assert_eq!((outcome.status.exit_status(), outcome.signature), (3, None));
    }
}

#[test]
fn signatures_come_in_lines_of_four_or_eight_bytes() {
    for bits in [32, 64] {
        let name = format!("state-{bits}.elf");
        assert_eq!(run(&name, 4).signature.unwrap(), "01020304\n00000005\n00000000\n40080000\n");
        assert_eq!(run(&name, 8).signature.unwrap(), "0000000501020304\n4008000000000000\n");
    }
}

#[test]
fn a_machine_without_end_is_stopped() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bare/built/modes-64.elf");
    let limits = Limits { instructions: Some(20), stop: None };
    let options = BareOptions { limits, ..BareOptions::default() };
    let outcome = bare::run(&std::fs::read(path).unwrap(), options).unwrap();
    assert_eq!(outcome.status, BareStatus::Stopped(Stop::InstructionLimit));
    assert_eq!((outcome.instructions, outcome.status.exit_status()), (20, 255));
}

#[test]
fn what_is_no_program_is_refused() {
    assert!(matches!(bare::run(b"\x7fELF", BareOptions::default()), Err(ProgramError::NotElf(_))));
}

#[test]
fn a_program_may_write_and_leave_through_its_host() {
    for bits in [32, 64] {
        let outcome = run(&format!("host-{bits}.elf"), 4);
        assert_eq!(String::from_utf8(outcome.output).unwrap(), "console, write\n");
        assert_eq!(outcome.symbol.map(|(name, _)| name).as_deref(), Some("main"));
    }
}

#[test]
fn a_machine_has_what_it_is_given() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bare/built/traps-64.elf");
    let elf = std::fs::read(path).unwrap();
    let with = |extensions, bits| {
        let limits = Limits { instructions: Some(100_000), stop: None };
        bare::run(&elf, BareOptions { extensions, bits, limits, ..BareOptions::default() }).map(|o| o.status)
    };
    let (_, all) = Extensions::parse("rv64imafd_zicsr_zifencei").unwrap();
    assert_eq!(with(all, Some(64)), Ok(BareStatus::Passed));
    assert_eq!(with(all, Some(32)), Err(ProgramError::Extension("rv64i".into())));
    assert_eq!(with(all.without(Extension::A), None), Err(ProgramError::Extension("a".into())));
}
