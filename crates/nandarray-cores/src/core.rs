//! A core: a processor, the memory of one worker, and the calls of a program's entry points.
//!
//! A core runs one task after another. Windows are lent for one call; what else it may reach is its own.

use std::sync::atomic::AtomicBool;

use nandarray_hart::{Extensions, Hart, Input, Limits, Memory, Mode, Output, Room, Rv32, Rv64, Stop, Streams, Xlen};

use crate::abi::{self, Arguments, Port};
use crate::error::{LoadError, RunError};
use crate::metadata::{Kind, Metadata, Phase, states};
use crate::program::{Entry, Program};

/// What executes a program's instructions.
pub trait Processor: Send {
    /// Call the function at `entry` with one argument, and run until something stops it.
    fn call(
        &mut self,
        entry: u64,
        stack: u64,
        argument: u64,
        memory: &mut Memory<'_>,
        streams: &mut Streams<'_>,
        limits: Limits<'_>,
    ) -> Stop;
    /// Where it stopped.
    fn pc(&self) -> u64;
    /// What a function of 64 bits returned.
    fn result(&self) -> i64;
    /// Instructions executed so far.
    fn instructions(&self) -> u64;
}

impl<X: Xlen> Processor for Hart<X>
where
    Self: Send,
{
    fn call(
        &mut self,
        entry: u64,
        stack: u64,
        argument: u64,
        memory: &mut Memory<'_>,
        streams: &mut Streams<'_>,
        limits: Limits<'_>,
    ) -> Stop {
        Hart::call(self, entry, stack, &[argument]);
        self.run(memory, streams, limits)
    }

    fn pc(&self) -> u64 {
        Hart::pc(self)
    }

    fn result(&self) -> i64 {
        let low = self.x(10);
        if X::BITS == 32 { (low & 0xffff_ffff | self.x(11) << 32) as i64 } else { low as i64 }
    }

    fn instructions(&self) -> u64 {
        Hart::instructions(self)
    }
}

/// One call's inputs, as they lie in windows or come by streams.
pub(crate) struct Task<'t> {
    /// Its number.
    pub(crate) number: u64,
    /// Where its first record is.
    pub(crate) first_record: u64,
    /// Records of the first input.
    pub(crate) records: u64,
    /// Bytes of each input.
    pub(crate) inputs: &'t [&'t [u8]],
}

/// What bounds a call.
#[derive(Clone, Copy)]
pub(crate) struct Bounds<'l> {
    pub(crate) instructions: Option<u64>,
    pub(crate) stop: &'l AtomicBool,
}

/// A core.
pub struct Core<'p> {
    program: &'p Program,
    processor: Box<dyn Processor>,
    memory: Memory<'static>,
    stack: u64,
}

impl<'p> Core<'p> {
    /// A core on which the interpreter runs.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn interpreter(program: &'p Program) -> Result<Self, LoadError> {
        let processor: Box<dyn Processor> = match program.bits() {
            32 => Box::new(Hart::<Rv32>::new(Mode::Program, Extensions::PROGRAM)),
            _ => Box::new(Hart::<Rv64>::new(Mode::Program, Extensions::PROGRAM)),
        };
        Self::new(program, processor)
    }

    /// A core with a processor of the caller's.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn new(program: &'p Program, processor: Box<dyn Processor>) -> Result<Self, LoadError> {
        let loaded = program.load()?;
        Ok(Self { program, processor, memory: loaded.memory, stack: loaded.stack })
    }

    /// Instructions executed so far.
    pub fn instructions(&self) -> u64 {
        self.processor.instructions()
    }

    fn metadata(&self) -> &'p Metadata {
        self.program.metadata()
    }

    fn arguments(&self, scalars: &[u64]) -> Arguments {
        let metadata = self.metadata();
        let both = states(metadata.state_bytes);
        Arguments {
            inputs: vec![Port::default(); metadata.inputs.len()],
            outputs: vec![Port::default(); metadata.outputs.len()],
            scalars: scalars.to_vec(),
            state: abi::SCRATCHPAD_ADDRESS,
            state_bytes: metadata.state_bytes,
            scratchpad: abi::SCRATCHPAD_ADDRESS + both,
            scratchpad_bytes: metadata.scratchpad() - both,
            ..Arguments::default()
        }
    }

    /// A state of zeros, and what `nd_begin` makes of it.
    pub(crate) fn begin(&mut self, scalars: &[u64], task: u64, bounds: Bounds<'_>) -> Result<(), RunError> {
        self.state_mut(0)?.fill(0);
        let mut arguments = self.arguments(scalars);
        arguments.task = task;
        self.call(
            Entry::Begin,
            &arguments,
            Task { number: task, first_record: 0, records: 0, inputs: &[] },
            &mut [],
            bounds,
        )
        .map(drop)
    }

    /// One task: fills `outputs`, of the room that their bounds give, and tells how many bytes of each.
    pub(crate) fn task(
        &mut self,
        scalars: &[u64],
        task: Task<'_>,
        outputs: &mut [Vec<u8>],
        bounds: Bounds<'_>,
    ) -> Result<Vec<u64>, RunError> {
        let metadata = self.metadata();
        let bytes =
            task.inputs.iter().zip(&metadata.inputs).filter(|(_, p)| !p.whole).map(|(b, _)| b.len() as u64).sum();
        let mut arguments = self.arguments(scalars);
        (arguments.task, arguments.first_record) = (task.number, task.first_record);
        for (i, (input, port)) in task.inputs.iter().zip(&metadata.inputs).enumerate() {
            let address = if metadata.kind == Kind::Block { abi::input_window(i) } else { 0 };
            let records = (input.len() as u64).div_ceil(port.record_bytes);
            arguments.inputs[i] = Port { address, bytes: input.len() as u64, shape: vec![records] };
        }
        for (i, port) in metadata.outputs.iter().enumerate() {
            let room = if port.phase == Phase::Task { port.bound.room(task.records, bytes) } else { 0 };
            self.make_room(&mut arguments, outputs, i, room, metadata.kind == Kind::Block, task.number)?;
        }
        self.call(Entry::Task, &arguments, task, outputs, bounds)
    }

    /// The end: fills the outputs of that phase.
    pub(crate) fn end(
        &mut self,
        scalars: &[u64],
        tasks: u64,
        outputs: &mut [Vec<u8>],
        bounds: Bounds<'_>,
    ) -> Result<Vec<u64>, RunError> {
        let mut arguments = self.arguments(scalars);
        arguments.task = tasks;
        for (i, port) in self.metadata().outputs.iter().enumerate() {
            let room = if port.phase == Phase::End { port.bound.room(0, 0) } else { 0 };
            self.make_room(&mut arguments, outputs, i, room, true, tasks)?;
        }
        let task = Task { number: tasks, first_record: 0, records: 0, inputs: &[] };
        self.call(Entry::End, &arguments, task, outputs, bounds)
    }

    fn make_room(
        &self,
        arguments: &mut Arguments,
        outputs: &mut [Vec<u8>],
        output: usize,
        room: u64,
        window: bool,
        task: u64,
    ) -> Result<(), RunError> {
        if room > abi::WINDOW_BYTES {
            return Err(RunError::Overflow { task, output, used: room, room: abi::WINDOW_BYTES });
        }
        // Zeros: nothing of one task is seen by another.
        outputs[output].clear();
        outputs[output].resize(room as usize, 0);
        let address = if room > 0 && window { abi::output_window(output) } else { 0 };
        let records = room / self.metadata().outputs[output].record_bytes;
        arguments.outputs[output] = Port { address, bytes: room, shape: vec![records] };
        Ok(())
    }

    /// Fold a state into this core's.
    pub(crate) fn merge(
        &mut self,
        scalars: &[u64],
        other: &[u8],
        task: u64,
        bounds: Bounds<'_>,
    ) -> Result<(), RunError> {
        let mut arguments = self.arguments(scalars);
        let half = states(self.metadata().state_bytes) / 2;
        arguments.task = task;
        arguments.other_state = abi::SCRATCHPAD_ADDRESS + half;
        self.state_mut(half)?.copy_from_slice(other);
        let none = Task { number: task, first_record: 0, records: 0, inputs: &[] };
        self.call(Entry::Merge, &arguments, none, &mut [], bounds).map(drop)
    }

    /// The state.
    pub(crate) fn state(&mut self) -> Result<Vec<u8>, RunError> {
        Ok(self.state_mut(0)?.to_vec())
    }

    /// Set the state.
    pub(crate) fn set_state(&mut self, state: &[u8]) -> Result<(), RunError> {
        self.state_mut(0)?.copy_from_slice(state);
        Ok(())
    }

    fn state_mut(&mut self, at: u64) -> Result<&mut [u8], RunError> {
        let from = abi::SCRATCHPAD_ADDRESS + at;
        Ok(self.memory.get_mut(from..from + self.program.metadata().state_bytes)?)
    }

    /// Call an entry point; nothing if the program does not have it. Gives the bytes of each output.
    fn call(
        &mut self,
        entry: Entry,
        arguments: &Arguments,
        task: Task<'_>,
        outputs: &mut [Vec<u8>],
        bounds: Bounds<'_>,
    ) -> Result<Vec<u64>, RunError> {
        let Some(address) = self.program.entry(entry) else { return Ok(vec![0; outputs.len()]) };
        let block = abi::ARGS_ADDRESS..abi::ARGS_ADDRESS + abi::ARGS_BYTES;
        arguments.write(self.memory.get_mut(block.clone())?);
        let streamed = entry == Entry::Task && self.metadata().kind == Kind::Stream;
        let room: Vec<u64> = outputs.iter().map(|o| o.len() as u64).collect();
        let mut memory = self.memory.for_call();
        let mut streams = Streams::none();
        for (i, input) in task.inputs.iter().enumerate() {
            if streamed {
                streams.inputs.push(Input::whole(input));
            } else if !input.is_empty() {
                memory.lend(abi::input_window(i), input)?;
            }
        }
        for (i, output) in outputs.iter_mut().enumerate() {
            if streamed {
                // A ring cannot be empty; what goes into this one is more than there is room for.
                if output.is_empty() {
                    output.resize(8, 0);
                }
                streams.outputs.push(Output::new(output, Room::Width));
            } else if !output.is_empty() {
                memory.lend_mut(abi::output_window(i), output)?;
            }
        }
        let limits = Limits { instructions: bounds.instructions, stop: Some(bounds.stop) };
        let stop = self.processor.call(address, self.stack, abi::ARGS_ADDRESS, &mut memory, &mut streams, limits);
        let stored: Vec<u64> = streams.outputs.iter().map(Output::head).collect();
        drop((memory, streams));
        self.ended(stop, entry, task.number, bounds, &room)?;
        let block = self.memory.get(block)?;
        let used = |i: usize| if streamed { stored[i] } else { Arguments::used(block, i) };
        let used: Vec<u64> = (0..outputs.len()).map(used).collect();
        for (output, port) in self.metadata().outputs.iter().enumerate().take(outputs.len()) {
            let (used, room, task) = (used[output], room[output], task.number);
            if used > room {
                return Err(RunError::Overflow { task, output, used, room });
            }
            if !used.is_multiple_of(port.item_bytes) {
                return Err(RunError::Ragged { task, output, used, item: port.item_bytes });
            }
        }
        Ok(used)
    }

    /// What a stop means.
    fn ended(&self, stop: Stop, entry: Entry, task: u64, bounds: Bounds<'_>, room: &[u64]) -> Result<(), RunError> {
        let pc = self.processor.pc();
        match stop {
            Stop::Returned { .. } => match self.processor.result() {
                code if code < 0 => Err(RunError::Status { task, entry: self.program.entry_name(entry), code }),
                _ => Ok(()),
            },
            Stop::InputExhausted { left: 0, .. } => Ok(()),
            Stop::InputExhausted { stream, left } => Err(RunError::Torn { task, stream, left }),
            Stop::WaitOutput { stream } => {
                let output = usize::from(stream);
                let room = room.get(output).copied().unwrap_or(0);
                Err(RunError::Overflow { task, output, used: room.saturating_add(1), room })
            }
            Stop::Trap(trap) => Err(RunError::Trap { task, trap, symbol: self.program.place(trap.pc) }),
            Stop::InstructionLimit => {
                let limit = bounds.instructions.unwrap_or(u64::MAX);
                Err(RunError::Limit { task, limit, pc, symbol: self.program.place(pc) })
            }
            Stop::Interrupted => Err(RunError::Cancelled),
            // A program has nobody to call, no tohost, and its inputs are closed.
            Stop::EnvironmentCall | Stop::WaitInput { .. } | Stop::ToHost(_) => {
                let trap = nandarray_hart::Trap { cause: nandarray_hart::Cause::UserCall, pc, value: 0 };
                Err(RunError::Trap { task, trap, symbol: self.program.place(pc) })
            }
        }
    }
}
