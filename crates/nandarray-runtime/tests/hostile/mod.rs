//! Hostile bytes as programs and as metadata: functions for fuzzing, and for tests with seeded inputs.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test and fuzz target is a crate of its own, and takes what it needs"
)]

use nandarray_cores::{Core, Metadata, OutputPhase, Program};
use nandarray_runtime::{
    HOLD_BYTES, InputSource, Origin, OutputSink, Progress, Stage, Threads, TransferError, pipeline,
};

/// Limit of the instructions of one call.
const LIMIT: u64 = 2000;
/// Limit of the memory of programs that are run; larger ones are only loaded, since they would take long.
const MEMORY_MAX: u64 = 8 << 20;

struct Bytes<'b>(&'b [u8]);

impl InputSource for Bytes<'_> {
    fn bytes(&self, _input: usize) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, _input: usize, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
        Ok(())
    }
}

struct Nowhere;

impl OutputSink for Nowhere {
    fn take(&mut self, _output: usize, _task: u64, _bytes: Vec<u8>) -> Result<(), TransferError> {
        Ok(())
    }
}

/// Parses any text as metadata: metadata that is accepted keeps its documented bounds.
pub fn metadata(data: &[u8]) {
    let Ok(found) = Metadata::parse(data) else { return };
    assert!((1..=8).contains(&found.inputs.len()) && found.outputs.len() <= 8 && found.scalars.len() <= 16);
    assert!(!found.inputs[0].whole);
    assert!(found.inputs.iter().all(|port| (1..=64 << 20).contains(&port.record_bytes) && port.element.bytes() > 0));
    assert!(found.outputs.iter().all(|port| (1..=64 << 20).contains(&port.record_bytes) && port.element.bytes() > 0));
    // The scratchpad has room for two copies of the state.
    assert!(
        found.scratchpad() <= 256 << 20 && found.state_bytes.checked_mul(2).is_some_and(|b| b <= found.scratchpad())
    );
    for port in &found.outputs {
        let (task, end) = (port.bound.room(1 << 20, 1 << 20), port.bound.room(0, 0));
        assert!(end <= task, "{:?} at {:?}", port.bound, port.phase == OutputPhase::End);
    }
}

/// Loads any bytes as a program's file: it is refused, or is loaded and run over the bytes of the file itself.
pub fn program(data: &[u8]) {
    execute(data, None);
}

/// Loads a valid program with any text as its metadata.
pub fn described(elf: &[u8], data: &[u8]) {
    metadata(data);
    execute(elf, Some(data));
}

fn execute(elf: &[u8], metadata: Option<&[u8]>) {
    let Ok(program) = Program::from_elf(elf, metadata) else { return };
    let found = program.metadata();
    let room: u64 = found.outputs.iter().map(|port| port.bound.room(elf.len() as u64, 8 * elf.len() as u64)).sum();
    if found.scratchpad() + found.memory_bytes > MEMORY_MAX || room > MEMORY_MAX {
        return;
    }
    let core = |p| Core::interpreter(p);
    let scalars: Vec<u64> = (0..found.scalars.len() as u64).collect();
    let inputs = (0..found.inputs.len()).map(Origin::External).collect();
    let outputs = (0..found.outputs.len()).map(Some).collect();
    let task_bytes = (elf.len() as u64 / 4).max(1);
    let (program, core, scalars) = (&program, &core, &scalars[..]);
    let instructions = Some(LIMIT);
    let stage = Stage { program, core, scalars, inputs, outputs, task_bytes, instructions, cores: &[] };
    let done = pipeline(&[stage], &Bytes(elf), &mut Nowhere, &Threads(1), HOLD_BYTES, &Progress::default());
    if let Ok(done) = done {
        assert_eq!(done.stages[0].state.len() as u64, found.state_bytes);
    }
}
