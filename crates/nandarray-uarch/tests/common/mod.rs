//! Runs programs in assembly on a timed core.

#![allow(dead_code, reason = "every test takes what it needs")]

use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Meter, Rv64, Stop, Streams, isa};
use nandarray_uarch::{CoreDescription, CoreReport, TimedCore};

/// Address of the code; the next constants are the address and the size of the data, at whose end the stack begins.
pub(crate) const CODE: u64 = 0x1_0000;
pub(crate) const DATA: u64 = 0x10_0000;
pub(crate) const DATA_BYTES: u64 = 1 << 20;

/// Encodes lines of assembly.
pub(crate) fn assemble(lines: &[String]) -> Vec<u8> {
    let word = |line: &String| isa::encode(&isa::assemble(line, 64).unwrap_or_else(|e| panic!("{line}: {e}")));
    lines.iter().flat_map(|line| word(line).to_le_bytes()).collect()
}

/// Returns a memory that holds a program's code, with room for data.
pub(crate) fn memory(code: &[u8]) -> Memory<'static> {
    let mut memory = Memory::new();
    let end = CODE + code.len() as u64;
    let bytes = DATA + DATA_BYTES - CODE;
    memory.add_program(CODE, bytes, DATA..DATA + DATA_BYTES, CODE..end).expect("one region");
    memory.get_mut(CODE..end).expect("the code's region").copy_from_slice(code);
    memory
}

/// Runs lines of assembly on a hart with a meter, at most `chunk` instructions at a time; returns the hart at the end.
pub(crate) fn run<M: Meter>(lines: &[String], meter: M, chunk: Option<u64>) -> Hart<Rv64, M> {
    let code = assemble(lines);
    let mut memory = memory(&code);
    let mut hart = Hart::<Rv64, M>::with_meter(HartMode::Program, Extensions::PROGRAM, meter);
    hart.call(CODE, DATA + DATA_BYTES, &[DATA]);
    loop {
        match hart.run(&mut memory, &mut Streams::none(), Limits { instructions: chunk, stop: None }) {
            Stop::InstructionLimit => {}
            Stop::Returned { .. } => return hart,
            other => panic!("{other}"),
        }
    }
}

/// Runs lines of assembly, with a return at their end, on a described core; returns the core's report.
pub(crate) fn timed(lines: &[&str], description: &CoreDescription) -> CoreReport {
    let lines: Vec<String> = lines.iter().map(|&line| line.to_owned()).chain(["jalr zero, 0(ra)".to_owned()]).collect();
    let hart = run(&lines, TimedCore::new(description), None);
    let (report, addresses) = (hart.meter().report(), hart.meter().addresses());
    assert_eq!(addresses.values().map(|found| found.total()).sum::<u64>(), report.ticks, "every tick has an address");
    assert_eq!(addresses.values().map(|found| found.times).sum::<u64>(), report.instructions());
    report
}

/// Returns the description of a preset without caches and memory.
pub(crate) fn bare(preset: &str) -> CoreDescription {
    let mut d = CoreDescription::preset(preset).unwrap();
    (d.l1i, d.l1d, d.l2, d.memory) = (None, None, None, None);
    d
}
