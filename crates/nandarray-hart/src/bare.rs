//! Bare-metal tests by the community's conventions: `tohost` ends a test, a signature is what it leaves in memory.
//!
//! The file is loaded at its addresses into memory that can be read, written and executed; the hart begins at its entry in
//! machine mode. A store of 1 to the 64 bits at the symbol `tohost` means passed, of an odd number above that failed in test
//! number / 2. The signature is the memory from `begin_signature` to `end_signature` in lines of hexadecimal digits.

use std::fmt::Write;

use crate::hart::{Hart, Limits, Mode, Stop};
use crate::isa::Extensions;
use crate::memory::Memory;
use crate::program::{Program, ProgramError};
use crate::streams::Streams;
use crate::xlen::{Rv32, Rv64, Xlen};

/// Memory behind the file's lowest address, at least.
const MEMORY_BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;

/// What a test came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BareStatus {
    /// It passed.
    Passed,
    /// It failed in this test.
    Failed {
        /// Its number.
        test: u64,
    },
    /// It did not come to an end.
    Stopped(Stop),
}

impl BareStatus {
    /// The exit status of a command that runs the test: 0 if it passed, its number (at most 254) if it failed, else 255.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed { test } => test.clamp(1, 254) as u8,
            Self::Stopped(_) => 255,
        }
    }
}

/// A bare-metal test that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BareOutcome {
    /// What it came to.
    pub status: BareStatus,
    /// Its signature, if it has one: a line for each 4 or 8 bytes.
    pub signature: Option<String>,
    /// Instructions executed.
    pub instructions: u64,
    /// Where it ended.
    pub pc: u64,
}

/// Run a bare-metal test from an ELF file. `granularity` is the bytes of a line of the signature: 4 or 8.
///
/// # Errors
/// [`ProgramError`] if it is no program for a hart.
///
/// # Panics
/// If `granularity` is neither 4 nor 8.
pub fn run(elf: &[u8], granularity: usize, limits: Limits<'_>) -> Result<BareOutcome, ProgramError> {
    assert!(matches!(granularity, 4 | 8), "a line of a signature is 4 or 8 bytes, not {granularity}");
    let program = Program::from_elf(elf, Extensions::ALL)?;
    if program.bits == 32 {
        run_at::<Rv32>(&program, granularity, limits)
    } else {
        run_at::<Rv64>(&program, granularity, limits)
    }
}

fn run_at<X: Xlen>(program: &Program, granularity: usize, limits: Limits<'_>) -> Result<BareOutcome, ProgramError> {
    let (first, last) = (&program.segments[0], &program.segments[program.segments.len() - 1]);
    let base = first.address & !(PAGE - 1);
    let end = (last.address + last.length).next_multiple_of(PAGE).max(base.saturating_add(MEMORY_BYTES));
    let end = if X::BITS == 32 { end.min(1 << 32) } else { end };
    let mut memory = Memory::new();
    memory.add_program(base, end - base, base..end, base..end)?;
    for segment in &program.segments {
        let to = segment.address..segment.address + segment.bytes.len() as u64;
        memory.get_mut(to)?.copy_from_slice(&segment.bytes);
    }
    if let Some(tohost) = program.symbol("tohost") {
        memory.watch(tohost);
    }
    let mut hart = Hart::<X>::new(Mode::Bare, Extensions::ALL);
    hart.set_pc(program.entry);
    let status = match hart.run(&mut memory, &mut Streams::none(), limits) {
        Stop::ToHost(1) => BareStatus::Passed,
        Stop::ToHost(value) if value & 1 != 0 => BareStatus::Failed { test: value >> 1 },
        stop => BareStatus::Stopped(stop),
    };
    let marks = program.symbol("begin_signature").zip(program.symbol("end_signature"));
    let signature = marks.map(|(from, to)| memory.get(from..to.max(from)).map(|bytes| lines(bytes, granularity)));
    Ok(BareOutcome { status, signature: signature.transpose()?, instructions: hart.instructions(), pc: hart.pc() })
}

/// Bytes as lines of hexadecimal digits, each a little-endian number.
fn lines(bytes: &[u8], granularity: usize) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(granularity) {
        (chunk.len()..granularity).for_each(|_| text.push_str("00"));
        chunk.iter().rev().for_each(|byte| {
            let _ = write!(text, "{byte:02x}");
        });
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    //! Tests of signatures; whole tests are in `tests/bare.rs`.

    use super::*;

    #[test]
    fn signatures_are_lines_of_numbers() {
        assert_eq!(lines(&[1, 2, 3, 4, 5, 6, 7, 8], 4), "04030201\n08070605\n");
        assert_eq!(lines(&[1, 2, 3, 4, 5, 6, 7, 8], 8), "0807060504030201\n");
        assert_eq!(lines(&[1, 2, 3, 4, 5], 4), "04030201\n00000005\n");
    }

    #[test]
    fn statuses() {
        assert_eq!(BareStatus::Passed.exit_status(), 0);
        assert_eq!(BareStatus::Failed { test: 7 }.exit_status(), 7);
        assert_eq!(BareStatus::Failed { test: 1000 }.exit_status(), 254);
        assert_eq!(BareStatus::Stopped(Stop::InstructionLimit).exit_status(), 255);
    }
}
