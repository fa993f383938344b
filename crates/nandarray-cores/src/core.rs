//! A core: a processor with the memory of one worker, and the calls of a program's entry points.
//!
//! A core runs one task after another. Windows are lent for one call; all other memory that a program can access
//! belongs to the core. A core is either a hart with its memory and a [`Processor`], or functions of this process
//! ([`NativeCore`]): the two differ in addresses and in how a function is called. Calls of this file run to their end,
//! on complete inputs; a [`Call`](crate::Call) can be interrupted and resumed.

use std::sync::atomic::AtomicBool;

use nandarray_hart::{
    Cause, Hart, HartMode, InputStream, Limits, Memory, OutputStream, Room, Rv32, Rv64, Stop, Streams,
};

use crate::abi::{self, Arguments, Port};
use crate::error::{LoadError, RunError, Site};
use crate::metadata::{Metadata, OutputPhase, ProgramKind, states};
use crate::native::{Native, NativeCore};
use crate::processor::Processor;
use crate::program::{EntryPoint, Program};
use crate::task::{BorrowedTask, TaskPlace};

/// Stands for the length of a stream whose end is not known when a call begins.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// Returns the shape of `records` records: `extents` if they hold as many elements as there are records, otherwise one
/// dimension.
fn shape(records: u64, extents: &[u64]) -> Vec<u64> {
    if !extents.is_empty() && extents.iter().product::<u64>() == records { extents.to_vec() } else { vec![records] }
}

/// Limits of a call, at which it is ended although the program has not returned.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'l> {
    /// Most instructions that a call may execute; `None` is no limit.
    pub instructions: Option<u64>,
    /// Set by another thread to end the call.
    pub stop: &'l AtomicBool,
}

/// The two kinds of cores, each with its memory.
pub(crate) enum CoreBackend {
    /// A hart, with an address space of its own.
    Hart { processor: Box<dyn Processor>, memory: Memory<'static>, stack: u64 },
    /// Functions of this process, with its addresses.
    Host(NativeCore),
}

/// A core: executes the entry points of one program, on memory of its own.
pub struct Core<'p> {
    pub(crate) program: &'p Program,
    pub(crate) place: CoreBackend,
}

impl<'p> Core<'p> {
    /// Creates a core on which the interpreter runs.
    ///
    /// # Errors
    /// [`LoadError`]: the program cannot be loaded.
    pub fn interpreter(program: &'p Program) -> Result<Self, LoadError> {
        let processor: Box<dyn Processor> = match program.bits() {
            32 => Box::new(Hart::<Rv32>::new(HartMode::Program, program.extensions())),
            _ => Box::new(Hart::<Rv64>::new(HartMode::Program, program.extensions())),
        };
        Self::new(program, processor)
    }

    /// Creates a core with the caller's processor.
    ///
    /// # Errors
    /// [`LoadError`]: the program cannot be loaded.
    pub fn new(program: &'p Program, processor: Box<dyn Processor>) -> Result<Self, LoadError> {
        let loaded = program.load()?;
        Ok(Self { program, place: CoreBackend::Hart { processor, memory: loaded.memory, stack: loaded.stack } })
    }

    /// Returns the bytes of memory that the core holds for its program; 0 if the program runs as functions of this
    /// process.
    pub fn memory_bytes(&self) -> u64 {
        match &self.place {
            CoreBackend::Hart { memory, .. } => memory.owned_bytes(),
            CoreBackend::Host(_) => 0,
        }
    }

    /// Creates a core that calls functions of this process in place of the program's instructions.
    ///
    /// # Errors
    /// [`LoadError::Entry`]: the functions are not those that the program defines.
    pub fn native(program: &'p Program, entries: Native) -> Result<Self, LoadError> {
        let differs = [EntryPoint::Begin, EntryPoint::Task, EntryPoint::Merge, EntryPoint::End]
            .into_iter()
            .find(|entry| program.entry(*entry).is_some() != entries.get(*entry).is_some());
        if let Some(entry) = differs {
            return Err(LoadError::Entry(program.entry_name(entry)));
        }
        Ok(Self { program, place: CoreBackend::Host(NativeCore::new(entries, program.metadata().scratchpad())) })
    }

    /// Returns the number of instructions executed so far; 0 for functions of this process, whose instructions are not
    /// counted.
    pub fn instructions(&self) -> u64 {
        match &self.place {
            CoreBackend::Hart { processor, .. } => processor.instructions(),
            CoreBackend::Host(_) => 0,
        }
    }

    /// Returns the meter of the core's processor; `None` if the processor has no meter of type `M`.
    pub fn meter<M: 'static>(&mut self) -> Option<&mut M> {
        match &mut self.place {
            CoreBackend::Hart { processor, .. } => processor.meter()?.downcast_mut(),
            CoreBackend::Host(_) => None,
        }
    }

    /// Returns whether calls read their inputs in the caller's memory, without a copy: true for native functions, which
    /// are trusted to terminate.
    pub fn lends(&self) -> bool {
        matches!(self.place, CoreBackend::Host(_))
    }

    pub(crate) fn metadata(&self) -> &'p Metadata {
        self.program.metadata()
    }

    fn arguments(&self, scalars: &[u64]) -> Arguments {
        let metadata = self.metadata();
        let both = states(metadata.state_bytes);
        let scratchpad = self.scratchpad();
        Arguments {
            inputs: vec![Port::default(); metadata.inputs.len()],
            outputs: vec![Port::default(); metadata.outputs.len()],
            scalars: scalars.to_vec(),
            state: scratchpad,
            state_bytes: metadata.state_bytes,
            scratchpad: scratchpad + both,
            scratchpad_bytes: metadata.scratchpad() - both,
            ..Arguments::default()
        }
    }

    fn scratchpad(&self) -> u64 {
        match &self.place {
            CoreBackend::Hart { .. } => abi::SCRATCHPAD_ADDRESS,
            CoreBackend::Host(host) => host.scratchpad(),
        }
    }

    /// Returns whether an entry point accesses its inputs and outputs in windows; on a hart, the task of a stream
    /// program has streams instead.
    pub(crate) fn windows(&self, entry: EntryPoint) -> bool {
        let host = matches!(self.place, CoreBackend::Host(_));
        host || entry != EntryPoint::Task || self.metadata().kind == ProgramKind::Block
    }

    /// Sets the state to zeros and calls `nd_begin`.
    ///
    /// # Errors
    /// [`RunError`]: the call failed.
    pub fn begin(&mut self, scalars: &[u64], task: u64, bounds: Bounds<'_>) -> Result<(), RunError> {
        let arguments = self.prepare_begin(scalars, task)?;
        self.call(EntryPoint::Begin, &arguments, BorrowedTask::nothing(task), &mut [], bounds).map(drop)
    }

    /// Sets the state to zeros; returns the arguments of `nd_begin`.
    pub(crate) fn prepare_begin(&mut self, scalars: &[u64], task: u64) -> Result<Arguments, RunError> {
        self.state_mut(0)?.fill(0);
        Ok(Arguments { task, ..self.arguments(scalars) })
    }

    /// Executes one task. Resizes `outputs` to the room that the program's metadata gives them, fills them, and returns
    /// the number of bytes written to each.
    ///
    /// # Errors
    /// [`RunError`]: the call failed.
    pub fn task(
        &mut self,
        scalars: &[u64],
        task: BorrowedTask<'_>,
        outputs: &mut [Vec<u8>],
        bounds: Bounds<'_>,
    ) -> Result<Vec<u64>, RunError> {
        let bytes: Vec<u64> = task.inputs.iter().map(|input| input.len() as u64).collect();
        let mut arguments = self.task_arguments(scalars, &task, &bytes)?;
        self.make_room(&mut arguments, outputs);
        self.lend(&mut arguments, task.inputs);
        self.call(EntryPoint::Task, &arguments, task, outputs, bounds)
    }

    /// Returns the arguments of a task whose inputs have the lengths `bytes`. Addresses in this process are left 0;
    /// [`lend`](Self::lend) and [`make_room`](Self::make_room) enter them.
    pub(crate) fn task_arguments(
        &self,
        scalars: &[u64],
        task: &BorrowedTask<'_>,
        bytes: &[u64],
    ) -> Result<Arguments, RunError> {
        let metadata = self.metadata();
        let mut arguments = self.arguments(scalars);
        (arguments.task, arguments.first_record) = (task.number, task.first_record);
        let TaskPlace { extents, inner, first, total, paces } = task.place;
        arguments.paces = paces.clone();
        arguments.first = if first.is_empty() { vec![task.first_record] } else { first.clone() };
        arguments.total = if total.is_empty() { vec![UNKNOWN] } else { total.clone() };
        let hart = matches!(self.place, CoreBackend::Hart { .. });
        for (i, (bytes, port)) in bytes.iter().zip(&metadata.inputs).enumerate() {
            let address = if hart && self.windows(EntryPoint::Task) { abi::input_window(i) } else { 0 };
            let records = match port.packed {
                Some(_) => task.records,
                None if *bytes == UNKNOWN => UNKNOWN,
                None => bytes.div_ceil(port.record_bytes),
            };
            let whole = if port.whole { &[] } else { &extents[..] };
            arguments.inputs[i] = Port { address, bytes: *bytes, offset: 0, shape: shape(records, whole) };
        }
        let cut = bytes.iter().zip(&metadata.inputs).filter(|(_, port)| !port.whole);
        let all = cut.fold(0u64, |all, (bytes, _)| all.saturating_add(*bytes));
        for (i, port) in metadata.outputs.iter().enumerate() {
            let room = match port.phase {
                OutputPhase::End => 0,
                // The length of such an input is unknown, so that its output has no bound.
                _ if all == UNKNOWN && !self.windows(EntryPoint::Task) => UNKNOWN,
                OutputPhase::Task | OutputPhase::Both => port.bound.room(task.records, all),
            };
            self.room(&mut arguments, i, room, EntryPoint::Task)?;
            let records = room / port.record_bytes;
            let fits = !inner.is_empty() && inner.iter().product::<u64>() <= records;
            arguments.outputs[i].shape = if fits { inner.clone() } else { shape(records, extents) };
        }
        Ok(arguments)
    }

    /// Enters the addresses of inputs into the arguments of a native function; does nothing on a hart.
    pub(crate) fn lend(&self, arguments: &mut Arguments, inputs: &[&[u8]]) {
        if matches!(self.place, CoreBackend::Host(_)) {
            arguments.inputs.iter_mut().zip(inputs).for_each(|(port, input)| port.address = input.as_ptr() as u64);
        }
    }

    /// Calls `nd_end`, which fills the outputs of [`OutputPhase::End`] and [`OutputPhase::Both`]. `tasks` is the number
    /// of tasks before it; returns the number of bytes written to each output.
    ///
    /// # Errors
    /// [`RunError`]: the call failed.
    pub fn end(
        &mut self,
        scalars: &[u64],
        tasks: u64,
        outputs: &mut [Vec<u8>],
        bounds: Bounds<'_>,
    ) -> Result<Vec<u64>, RunError> {
        let mut arguments = self.end_arguments(scalars, tasks)?;
        self.make_room(&mut arguments, outputs);
        self.call(EntryPoint::End, &arguments, BorrowedTask::nothing(tasks), outputs, bounds)
    }

    /// Returns the arguments of `nd_end`; addresses in this process are left 0.
    pub(crate) fn end_arguments(&self, scalars: &[u64], tasks: u64) -> Result<Arguments, RunError> {
        let mut arguments = Arguments { task: tasks, ..self.arguments(scalars) };
        for (i, port) in self.metadata().outputs.iter().enumerate() {
            let room = if port.phase.is_of_end() { port.bound.room(0, 0) } else { 0 };
            self.room(&mut arguments, i, room, EntryPoint::End)?;
        }
        Ok(arguments)
    }

    /// Enters the room for an output, in bytes, into the arguments, with its window's address and its shape.
    fn room(&self, arguments: &mut Arguments, output: usize, room: u64, entry: EntryPoint) -> Result<(), RunError> {
        let most = if entry == EntryPoint::Task { self.metadata().most_bytes() } else { abi::WINDOW_BYTES };
        if room > most && room != UNKNOWN {
            return Err(RunError::Overflow { task: arguments.task, output, used: room, room: most });
        }
        let window = room > 0 && self.windows(entry) && matches!(self.place, CoreBackend::Hart { .. });
        let address = if window { abi::output_window(output) } else { 0 };
        let records = room / self.metadata().outputs[output].record_bytes;
        arguments.outputs[output] = Port { address, bytes: room, offset: 0, shape: vec![records] };
        Ok(())
    }

    /// Resizes `outputs` to the room that the arguments state, filled with zeros.
    pub(crate) fn make_room(&self, arguments: &mut Arguments, outputs: &mut [Vec<u8>]) {
        for (port, output) in arguments.outputs.iter_mut().zip(outputs) {
            // Zeros: no task sees bytes of another one.
            output.clear();
            output.resize(port.bytes as usize, 0);
            if matches!(self.place, CoreBackend::Host(_)) && port.bytes > 0 {
                port.address = output.as_mut_ptr() as u64;
            }
        }
    }

    /// Calls `nd_merge`, which folds the state `other` into the core's state.
    ///
    /// # Errors
    /// [`RunError`]: the call failed.
    pub fn merge(&mut self, scalars: &[u64], other: &[u8], task: u64, bounds: Bounds<'_>) -> Result<(), RunError> {
        let arguments = self.prepare_merge(scalars, other, task)?;
        self.call(EntryPoint::Merge, &arguments, BorrowedTask::nothing(task), &mut [], bounds).map(drop)
    }

    /// Copies the state `other` into the scratchpad after the core's state; returns the arguments of `nd_merge`.
    pub(crate) fn prepare_merge(&mut self, scalars: &[u64], other: &[u8], task: u64) -> Result<Arguments, RunError> {
        let half = states(self.metadata().state_bytes) / 2;
        self.state_mut(half)?.copy_from_slice(other);
        Ok(Arguments { task, other_state: self.scratchpad() + half, ..self.arguments(scalars) })
    }

    /// Returns a copy of the program's state.
    ///
    /// # Errors
    /// [`RunError`]: the core has no such memory.
    pub fn state(&mut self) -> Result<Vec<u8>, RunError> {
        Ok(self.state_mut(0)?.to_vec())
    }

    /// Replaces the program's state.
    ///
    /// # Errors
    /// [`RunError`]: the core has no such memory.
    pub fn set_state(&mut self, state: &[u8]) -> Result<(), RunError> {
        self.state_mut(0)?.copy_from_slice(state);
        Ok(())
    }

    fn state_mut(&mut self, at: u64) -> Result<&mut [u8], RunError> {
        let bytes = self.program.metadata().state_bytes;
        match &mut self.place {
            CoreBackend::Hart { memory, .. } => {
                let from = abi::SCRATCHPAD_ADDRESS + at;
                Ok(memory.get_mut(from..from + bytes)?)
            }
            CoreBackend::Host(host) => Ok(host.scratchpad_mut(at..at + bytes)),
        }
    }

    /// Calls an entry point, if the program has it. Returns the number of bytes written to each output.
    pub(crate) fn call(
        &mut self,
        entry: EntryPoint,
        arguments: &Arguments,
        task: BorrowedTask<'_>,
        outputs: &mut [Vec<u8>],
        bounds: Bounds<'_>,
    ) -> Result<Vec<u64>, RunError> {
        let room: Vec<u64> = outputs.iter().map(|o| o.len() as u64).collect();
        let used = match &mut self.place {
            _ if self.program.entry(entry).is_none() => return Ok(vec![0; outputs.len()]),
            CoreBackend::Host(host) => {
                // Inputs with paces of their own report what was taken of them, in the field of torn streams.
                let streams = if self.program.metadata().is_paced() { 0 } else { task.inputs.len() };
                // SAFETY: the arguments name the task's inputs, `outputs` and the host's scratchpad, all of which live
                // longer.
                let given = unsafe { host.call(entry, arguments, streams, outputs.len()) };
                self.given(given, entry, task.number)?
            }
            CoreBackend::Hart { .. } => self.execute(entry, arguments, &task, outputs, bounds, &room)?,
        };
        self.fits(&used, &room, task.number)?;
        Ok(used)
    }

    /// Checks that the `used` bytes of each output are whole elements and do not exceed its `room`.
    pub(crate) fn fits(&self, used: &[u64], room: &[u64], task: u64) -> Result<(), RunError> {
        for (output, (port, (used, room))) in self.metadata().outputs.iter().zip(used.iter().zip(room)).enumerate() {
            let (used, room) = (*used, *room);
            if used > room {
                return Err(RunError::Overflow { task, output, used, room });
            }
            if !used.is_multiple_of(port.element.bytes()) {
                return Err(RunError::Ragged { task, output, used, item: port.element.bytes() });
            }
        }
        Ok(())
    }

    /// Converts what a native function returned to the number of bytes of each output, or to its error.
    fn given(&self, given: crate::native::Given, entry: EntryPoint, task: u64) -> Result<Vec<u64>, RunError> {
        if given.code < 0 {
            return Err(RunError::Status {
                task,
                entry: self.program.entry_name(entry),
                code: given.code,
                noted: given.noted,
            });
        }
        match given.torn {
            Some((stream, left)) => Err(RunError::Torn { task, stream, left, site: None }),
            None => Ok(given.used),
        }
    }

    /// Calls an entry point, which the program must have, on the hart.
    fn execute(
        &mut self,
        entry: EntryPoint,
        arguments: &Arguments,
        task: &BorrowedTask<'_>,
        outputs: &mut [Vec<u8>],
        bounds: Bounds<'_>,
        room: &[u64],
    ) -> Result<Vec<u64>, RunError> {
        let address = self.program.entry(entry).expect("an entry point that there is");
        let streamed = !self.windows(entry);
        let CoreBackend::Hart { processor, memory: own, stack } = &mut self.place else {
            unreachable!("the caller looked");
        };
        let block = abi::ARGS_ADDRESS..abi::ARGS_ADDRESS + abi::ARGS_BYTES;
        arguments.write(own.get_mut(block.clone())?);
        let mut memory = own.for_call();
        let mut streams = Streams::none();
        for (i, input) in task.inputs.iter().enumerate() {
            if streamed {
                streams.inputs.push(InputStream::whole(input));
            } else if !input.is_empty() {
                memory.lend(abi::input_window(i), input)?;
            }
        }
        for (i, output) in outputs.iter_mut().enumerate() {
            if streamed {
                let room = output.len() as u64;
                streams.outputs.push(OutputStream::resume(output, 0, 0, Room::Width).limited(room));
            } else if !output.is_empty() {
                memory.lend_mut(abi::output_window(i), output)?;
            }
        }
        let limits = Limits { instructions: bounds.instructions, stop: Some(bounds.stop) };
        let stop = processor.call(address, *stack, abi::ARGS_ADDRESS, &mut memory, &mut streams, limits);
        let at = (processor.pc(), processor.result(), processor.link());
        let stored: Vec<u64> = streams.outputs.iter().map(OutputStream::head).collect();
        drop((memory, streams));
        let block = own.get(block)?;
        let used = |i: usize| if streamed { stored[i] } else { Arguments::used(block, i) };
        let used: Vec<u64> = (0..outputs.len()).map(used).collect();
        self.ended(stop, at, entry, task.number, bounds.instructions, room)?;
        Ok(used)
    }

    /// Returns the number of bytes that the last task took of each input, by what the program reported.
    pub fn taken(&self) -> Vec<u64> {
        let block = match &self.place {
            CoreBackend::Hart { memory, .. } => memory.get(abi::ARGS_ADDRESS..abi::ARGS_ADDRESS + abi::ARGS_BYTES).ok(),
            CoreBackend::Host(host) => Some(host.block()),
        };
        let inputs = 0..self.metadata().inputs.len();
        inputs.map(|i| block.map_or(0, |block| Arguments::taken(block, i))).collect()
    }

    /// Returns what the last call on the hart noted beside its status.
    fn noted(&self) -> [i64; 2] {
        let CoreBackend::Hart { memory, .. } = &self.place else { unreachable!("others return theirs") };
        memory.get(abi::ARGS_ADDRESS..abi::ARGS_ADDRESS + abi::ARGS_BYTES).map_or([0; 2], Arguments::noted)
    }

    /// Returns the place of the call, found by the return address, if a program jumped outside of its code and failed
    /// there; `None` for other causes, or if the return address is outside of the code too.
    fn caller(&self, cause: Cause, link: Option<u64>) -> Option<Site> {
        let pc = link.filter(|_| cause == Cause::FetchAccess)?.checked_sub(1)?;
        let code = self.program.image().segments.iter().find(|s| s.executable && s.address <= pc)?;
        (pc < code.address + code.length).then(|| Site { pc, symbol: self.program.place(pc) })
    }

    /// Converts the reason why the hart stopped to the result of the call.
    pub(crate) fn ended(
        &self,
        stop: Stop,
        (pc, result, link): (u64, i64, Option<u64>),
        entry: EntryPoint,
        task: u64,
        limit: Option<u64>,
        room: &[u64],
    ) -> Result<(), RunError> {
        let site = || Site { pc, symbol: self.program.place(pc) };
        match stop {
            Stop::Returned { .. } => match result {
                code if code < 0 => {
                    Err(RunError::Status { task, entry: self.program.entry_name(entry), code, noted: self.noted() })
                }
                _ => Ok(()),
            },
            Stop::InputExhausted { left: 0, .. } => Ok(()),
            Stop::InputExhausted { stream, left } => Err(RunError::Torn { task, stream, left, site: Some(site()) }),
            Stop::OutputFull { stream } => {
                let output = usize::from(stream);
                let room = room.get(output).copied().unwrap_or(0);
                Err(RunError::Full { task, output, room, site: site() })
            }
            Stop::Trap(trap) => Err(RunError::Trap {
                task,
                trap,
                symbol: self.program.place(trap.pc),
                caller: self.caller(trap.cause, link),
            }),
            Stop::InstructionLimit => {
                let limit = limit.unwrap_or(u64::MAX);
                Err(RunError::Limit { task, limit, pc, symbol: self.program.place(pc) })
            }
            Stop::Interrupted => Err(RunError::Cancelled(Some((task, site())))),
            // Programs have no environment to call and no tohost. A call that can wait handles waits and pauses itself;
            // other calls have all bytes from the beginning, and no meter pauses them.
            Stop::EnvironmentCall
            | Stop::WaitInput { .. }
            | Stop::WaitOutput { .. }
            | Stop::Paused
            | Stop::ToHost(_) => {
                // The environment call was executed: its instruction precedes the program counter.
                let pc = if stop == Stop::EnvironmentCall { pc.wrapping_sub(4) } else { pc };
                let trap = nandarray_hart::Trap { cause: Cause::UserCall, pc, value: 0 };
                Err(RunError::Trap { task, trap, symbol: self.program.place(pc), caller: None })
            }
        }
    }
}
