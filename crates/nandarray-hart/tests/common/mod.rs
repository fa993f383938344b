//! Runs a Linux program on a hart; only the system calls `write` and `exit` are supported.
#![allow(dead_code, unreachable_pub, reason = "each test and example is a crate of its own, and takes what it needs")]

use nandarray_hart::{ElfProgram, Extensions, Hart, HartMode, Limits, Stop, Streams, Xlen};

/// Number of the system call `write`.
const WRITE: u64 = 64;
const EXIT: u64 = 93;
const STACK_BYTES: u64 = 1 << 20;

/// The result of running a program.
#[derive(Debug, PartialEq, Eq)]
pub struct ProgramOutcome {
    /// The bytes that the program wrote.
    pub output: Vec<u8>,
    /// Exit status of the program, or the reason why it stopped before it could exit.
    pub status: Result<u64, Stop>,
    /// Number of instructions executed.
    pub instructions: u64,
}

/// Runs a static ELF file of register width `X`, with at most `limit` instructions.
pub fn run<X: Xlen>(elf: &[u8], limit: Option<u64>) -> ProgramOutcome {
    let program = ElfProgram::from_elf(elf, Extensions::PROGRAM).expect("a program");
    assert_eq!(program.bits, X::BITS);
    let mut loaded = program.load(STACK_BYTES, None).expect("memory");
    let mut hart = Hart::<X>::new(HartMode::Program, Extensions::PROGRAM);
    hart.call(program.entry, loaded.stack, &[]);
    let mut output = Vec::new();
    let status = loop {
        let left = limit.map(|limit| limit.saturating_sub(hart.instructions()));
        let limits = Limits { instructions: left, stop: None };
        match hart.run(&mut loaded.memory, &mut Streams::none(), limits) {
            Stop::EnvironmentCall if hart.x(17) == WRITE => {
                let (from, length) = (hart.x(11), hart.x(12));
                output.extend_from_slice(loaded.memory.get(from..from + length).expect("bytes to write"));
                hart.set_x(10, length);
            }
            Stop::EnvironmentCall if hart.x(17) == EXIT => break Ok(hart.x(10)),
            other => break Err(other),
        }
    };
    ProgramOutcome { output, status, instructions: hart.instructions() }
}
