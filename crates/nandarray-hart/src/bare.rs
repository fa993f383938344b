//! Bare-metal tests by the RISC-V community's conventions: `tohost` ends a test, and its signature is a range of its
//! memory.
//!
//! The file is loaded at its addresses into memory that can be read, written and executed; the hart begins at its entry
//! in machine mode. A store to the 64 bits at the symbol `tohost` ends the test: 1 means passed, a larger odd number
//! failed in test number / 2. Other values are requests to the host: a byte for the console (device 1), or the address
//! of a system call's number and arguments (device 0), of which `write` and `exit` are carried out; the answer is
//! written to `fromhost`. The signature is the memory from `begin_signature` to `end_signature` in lines of hexadecimal
//! digits.

use std::fmt::Write;

use crate::hart::{Hart, HartMode, Limits, Stop};
use crate::isa::{Extension, Extensions};
use crate::memory::Memory;
use crate::program::{ElfProgram, ProgramError};
use crate::streams::Streams;
use crate::xlen::{Rv32, Rv64, Xlen};

/// Least memory of a test, in bytes, counted from the lowest address in its ELF file.
const MEMORY_BYTES: u64 = 16 << 20;
const PAGE: u64 = 4096;
/// Most bytes that are kept of a program's console output.
const OUTPUT_MAX: usize = 16 << 20;
/// Number of the system call `write`.
const WRITE: u64 = 64;
const EXIT: u64 = 93;
const NO_SUCH_CALL: u64 = (-38i64) as u64;

/// The result of a bare-metal test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BareStatus {
    /// The test passed.
    Passed,
    /// The test failed in one of its numbered parts.
    Failed {
        /// The number of the failed part.
        test: u64,
    },
    /// The test did not end by itself.
    Stopped(Stop),
}

impl BareStatus {
    /// Returns the exit status of a command that runs the test: 0 if it passed, the failed part's number (1 to 254) if
    /// it failed, 255 if it was stopped.
    pub fn exit_status(self) -> u8 {
        match self {
            Self::Passed => 0,
            Self::Failed { test } => test.clamp(1, 254) as u8,
            Self::Stopped(_) => 255,
        }
    }
}

/// Options of a run of a bare-metal test.
#[derive(Clone, Copy, Debug)]
pub struct BareOptions<'l> {
    /// Bytes in each line of the signature: 4 or 8.
    pub granularity: usize,
    /// The register width in bits that the file must have; `None` allows both.
    pub bits: Option<u32>,
    /// The hart's extensions, to which machine and supervisor mode, control and status registers and `fence.i` are
    /// always added.
    pub extensions: Extensions,
    /// Limits of the run.
    pub limits: Limits<'l>,
}

impl Default for BareOptions<'_> {
    fn default() -> Self {
        Self { granularity: 4, bits: None, extensions: Extensions::ALL, limits: Limits::default() }
    }
}

/// A bare-metal test that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BareOutcome {
    /// Result of the test.
    pub status: BareStatus,
    /// The signature, one line for each 4 or 8 bytes; `None` if the file does not define one.
    pub signature: Option<String>,
    /// The bytes that the test wrote to its console.
    pub output: Vec<u8>,
    /// Number of instructions executed.
    pub instructions: u64,
    /// Program counter at the end of the run.
    pub pc: u64,
    /// The function in which the run ended, and the distance in bytes from its beginning; `None` without a symbol.
    pub symbol: Option<(String, u64)>,
}

/// Runs a bare-metal test from an ELF file.
///
/// # Errors
/// [`ProgramError`] if the file is no program for this hart.
///
/// # Panics
/// If the granularity is neither 4 nor 8, or the length of vector registers is not allowed.
pub fn run(elf: &[u8], options: BareOptions<'_>) -> Result<BareOutcome, ProgramError> {
    let granularity = options.granularity;
    assert!(matches!(granularity, 4 | 8), "a line of a signature is 4 or 8 bytes, not {granularity}");
    let always = [Extension::Privileged, Extension::Zicsr, Extension::Zifencei];
    let extensions = always.into_iter().fold(options.extensions, Extensions::with);
    let program = ElfProgram::from_elf_bare(elf, extensions)?;
    if options.bits.is_some_and(|bits| bits != program.bits) {
        return Err(ProgramError::Extension(format!("rv{}i", program.bits)));
    }
    if program.bits == 32 {
        run_at::<Rv32>(&program, extensions, options)
    } else {
        run_at::<Rv64>(&program, extensions, options)
    }
}

fn run_at<X: Xlen>(
    program: &ElfProgram,
    extensions: Extensions,
    options: BareOptions<'_>,
) -> Result<BareOutcome, ProgramError> {
    let (first, last) = (&program.segments[0], &program.segments[program.segments.len() - 1]);
    let base = first.address & !(PAGE - 1);
    let behind = last.address + last.length;
    let end = behind.checked_next_multiple_of(PAGE).unwrap_or(behind).max(base.saturating_add(MEMORY_BYTES));
    let end = if X::BITS == 32 { end.min(1 << 32) } else { end };
    let mut memory = Memory::new();
    memory.add_program(base, end - base, base..end, base..end)?;
    for segment in &program.segments {
        let to = segment.address..segment.address + segment.bytes.len() as u64;
        memory.get_mut(to)?.copy_from_slice(&segment.bytes);
    }
    let tohost = program.symbol("tohost");
    if let Some(tohost) = tohost {
        memory.watch(tohost);
    }
    let mut hart = Hart::<X>::new(HartMode::Bare, extensions);
    hart.set_pc(program.entry);
    let mut host = TestHost { memory, tohost, fromhost: program.symbol("fromhost"), output: Vec::new() };
    let most = options.limits.instructions;
    let status = loop {
        let left = most.map(|most| most - hart.instructions().min(most));
        let limits = Limits { instructions: left, stop: options.limits.stop };
        match hart.run(&mut host.memory, &mut Streams::none(), limits) {
            Stop::ToHost(1) => break BareStatus::Passed,
            Stop::ToHost(value) if value >> 48 == 0 && value & 1 != 0 => break BareStatus::Failed { test: value >> 1 },
            Stop::ToHost(value) => {
                if let Some(status) = host.serve(value) {
                    break status;
                }
            }
            stop => break BareStatus::Stopped(stop),
        }
    };
    let marks = program.symbol("begin_signature").zip(program.symbol("end_signature"));
    let memory = &host.memory;
    let signature =
        marks.map(|(from, to)| memory.get(from..to.max(from)).map(|bytes| lines(bytes, options.granularity)));
    Ok(BareOutcome {
        status,
        signature: signature.transpose()?,
        instructions: hart.instructions(),
        pc: hart.pc(),
        symbol: program.symbol_at(hart.pc()).map(|(name, by)| (name.to_owned(), by)),
        output: host.output,
    })
}

/// The host's side of a test: it serves requests in `tohost` and answers in `fromhost`.
struct TestHost {
    memory: Memory<'static>,
    tohost: Option<u64>,
    fromhost: Option<u64>,
    output: Vec<u8>,
}

impl TestHost {
    /// Carries out a request; returns the test's result if the request ends the test, otherwise `None`.
    fn serve(&mut self, value: u64) -> Option<BareStatus> {
        let (device, command, payload) = (value >> 56, value >> 48 & 0xff, value & 0xffff_ffff_ffff);
        let answer = match (device, command) {
            (0, 0) => {
                let (answer, status) = self.system_call(payload);
                if status.is_some() {
                    return status;
                }
                self.put(payload, answer);
                1
            }
            (1, 1) => {
                self.print(&[payload as u8]);
                value & !0xffff_ffff_ffff
            }
            // Requests for console input, of which there is none, and for unknown devices: no answer.
            _ => 0,
        };
        if let Some(at) = self.tohost {
            self.put(at, 0);
        }
        if let Some(at) = self.fromhost {
            self.put(at, answer);
        }
        None
    }

    fn system_call(&mut self, at: u64) -> (u64, Option<BareStatus>) {
        let [number, first, second, third] = [0, 8, 16, 24].map(|by| self.word(at.wrapping_add(by)));
        match number {
            WRITE => {
                let bytes = second.checked_add(third).and_then(|end| self.memory.get(second..end).ok());
                let Some(bytes) = bytes.map(<[u8]>::to_vec) else { return ((-14i64) as u64, None) };
                self.print(&bytes);
                (third, None)
            }
            EXIT if first == 0 => (0, Some(BareStatus::Passed)),
            EXIT => (0, Some(BareStatus::Failed { test: first })),
            _ => (NO_SUCH_CALL, None),
        }
    }

    fn print(&mut self, bytes: &[u8]) {
        let room = OUTPUT_MAX - self.output.len();
        self.output.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Reads 64 bits of memory; 0 if they do not lie in memory.
    fn word(&self, at: u64) -> u64 {
        let bytes = at.checked_add(8).and_then(|end| self.memory.get(at..end).ok());
        bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn put(&mut self, at: u64, value: u64) {
        if let Some(bytes) = at.checked_add(8).and_then(|end| self.memory.get_mut(at..end).ok()) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }
}

/// Formats bytes as lines of hexadecimal digits, each a little-endian number of `granularity` bytes.
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
    //! Tests of signatures; whole tests are in `tests/bare_metal.rs`.

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

    const AT: u64 = 0x1000;

    /// Creates a host with 256 bytes of memory, `tohost` at their beginning and `fromhost` behind it.
    fn host(words: &[(u64, u64)]) -> TestHost {
        let mut memory = Memory::new();
        memory.add(AT, 256).unwrap();
        let mut host = TestHost { memory, tohost: Some(AT), fromhost: Some(AT + 8), output: Vec::new() };
        words.iter().for_each(|(at, value)| host.put(*at, *value));
        host
    }

    #[test]
    fn requests_are_carried_out_and_answered() {
        // Number and arguments of a system call lie at 0x1040; the text is at 0x1080.
        let call = |number: u64, arguments: [u64; 3]| {
            let words = [number, arguments[0], arguments[1], arguments[2]];
            let places: Vec<(u64, u64)> =
                words.into_iter().enumerate().map(|(n, w)| (AT + 0x40 + 8 * n as u64, w)).collect();
            let mut host = host(&places);
            host.put(AT + 0x80, u64::from_le_bytes(*b"a text.\n"));
            let status = host.serve(AT + 0x40);
            (status, host.word(AT + 0x40), host.word(AT + 8), host.output)
        };
        let fault = (-14i64) as u64;
        assert_eq!(call(WRITE, [1, AT + 0x80, 6]), (None, 6, 1, b"a text".to_vec()));
        assert_eq!(call(WRITE, [1, AT + 0x80, 0]), (None, 0, 1, Vec::new()));
        for (from, length) in [(AT + 0xfa, 7), (AT - 1, 1), (u64::MAX, 2), (AT, u64::MAX), (0, 0)] {
            assert_eq!(call(WRITE, [1, from, length]), (None, fault, 1, Vec::new()), "{length} bytes at {from:#x}");
        }
        assert_eq!(call(EXIT, [0, 0, 0]).0, Some(BareStatus::Passed));
        assert_eq!(call(EXIT, [9, 0, 0]).0, Some(BareStatus::Failed { test: 9 }));
        assert_eq!(call(1234, [0, 0, 0]), (None, NO_SUCH_CALL, 1, Vec::new()));
        // A call whose arguments are nowhere has the number 0, and nothing is written.
        let mut lost = host(&[(AT + 8, 77)]);
        assert_eq!((lost.serve(0x9000), lost.word(AT + 8)), (None, 1));
    }

    #[test]
    fn a_console_takes_bytes_up_to_its_limit_and_unknown_devices_are_silent() {
        let mut host = host(&[(AT, 5), (AT + 8, 77)]);
        assert_eq!(host.serve(1 << 56 | 1 << 48 | 0x1_0041), None);
        assert_eq!((host.output.as_slice(), host.word(AT), host.word(AT + 8)), (b"A".as_slice(), 0, 1 << 56 | 1 << 48));
        for unknown in [1 << 56, 2 << 56 | 1 << 48 | 65, 1 << 48, u64::MAX] {
            host.put(AT, unknown);
            assert_eq!(host.serve(unknown), None);
            assert_eq!((host.output.len(), host.word(AT), host.word(AT + 8)), (1, 0, 0), "{unknown:#x}");
        }
        host.output = vec![0; OUTPUT_MAX - 1];
        (0..3).for_each(|_| assert_eq!(host.serve(1 << 56 | 1 << 48 | 66), None));
        assert_eq!((host.output.len(), host.output[OUTPUT_MAX - 1]), (OUTPUT_MAX, 66));
    }
}
