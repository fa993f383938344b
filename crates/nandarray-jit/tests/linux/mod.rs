//! Runs a Linux program by interpreter or translator; only the system calls `write` and `exit` are supported.
#![allow(dead_code, unreachable_pub, reason = "each test and example is a crate of its own, and takes what it needs")]

use nandarray_hart::{ElfProgram, Extensions, Hart, HartMode, Limits, Stop, Streams, Xlen};
use nandarray_jit::{Costs, Settings, Statistics, Translated, TranslationTrigger};

/// Number of the system call `write`.
const WRITE: u64 = 64;
const EXIT: u64 = 93;
const STACK_BYTES: u64 = 1 << 20;

/// The engine that runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecutionEngine {
    /// The interpreter of the hart.
    Interpreter,
    /// The translator with default costs.
    Translator,
    /// The translator with costs of zero, which translates as soon as it can.
    Eager,
}

/// The result of running a program.
#[derive(Debug)]
pub struct Outcome {
    /// The bytes that the program wrote.
    pub output: Vec<u8>,
    /// Exit status of the program, or the reason why it stopped before it could exit.
    pub status: Result<u64, Stop>,
    /// Number of instructions executed.
    pub instructions: u64,
    /// Registers at the end: integer registers, floating-point registers, flags.
    pub registers: Vec<u64>,
    /// Counts of the translator's work.
    pub statistics: Statistics,
}

/// Runs a static ELF file of register width `X`.
pub fn run<X: Xlen>(elf: &[u8], kind: ExecutionEngine) -> Outcome {
    let program = ElfProgram::from_elf(elf, Extensions::PROGRAM).expect("a program");
    assert_eq!(program.bits, X::BITS);
    let mut loaded = program.load(STACK_BYTES, None).expect("memory");
    let eager = Settings { when: TranslationTrigger::Pays(Costs::NONE), ..Settings::default() };
    let settings = if kind == ExecutionEngine::Eager { eager } else { Settings::default() };
    let mut translated = Translated::<X>::with_settings(Extensions::PROGRAM, settings);
    let mut interpreter = Hart::<X>::new(HartMode::Program, Extensions::PROGRAM);
    let mut output = Vec::new();
    let memory = &mut loaded.memory;
    interpreter.call(program.entry, loaded.stack, &[]);
    translated.hart_mut().call(program.entry, loaded.stack, &[]);
    let status = loop {
        let stop = match kind {
            ExecutionEngine::Interpreter => interpreter.run(memory, &mut Streams::none(), Limits::default()),
            ExecutionEngine::Translator | ExecutionEngine::Eager => {
                translated.run(memory, &mut Streams::none(), Limits::default())
            }
        };
        let hart = if kind == ExecutionEngine::Interpreter { &mut interpreter } else { translated.hart_mut() };
        match stop {
            Stop::EnvironmentCall if hart.x(17) == WRITE => {
                let (from, length) = (hart.x(11), hart.x(12));
                output.extend_from_slice(memory.get(from..from + length).expect("bytes to write"));
                hart.set_x(10, length);
            }
            Stop::EnvironmentCall if hart.x(17) == EXIT => break Ok(hart.x(10)),
            other => break Err(other),
        }
    };
    let statistics = translated.statistics();
    let hart = if kind == ExecutionEngine::Interpreter { &interpreter } else { translated.hart() };
    let registers = (0..32).map(|r| hart.x(r)).chain((0..32).map(|r| hart.f(r))).chain([u64::from(hart.fcsr())]);
    Outcome { output, status, instructions: hart.instructions(), registers: registers.collect(), statistics }
}
