//! A call of an entry point that can be interrupted and resumed: its inputs are filled, and its outputs drained,
//! between runs.
//!
//! A [`Call`] owns its core, its inputs and its outputs until it ends. [`Call::run`] executes the program until the
//! program waits for an input or output, the instruction budget is used up, a meter pauses it, or the call is over. The
//! result depends neither on how often a call was interrupted nor on the sizes in which its bytes arrived. A stream
//! program begins with the bytes that have arrived; a program of windows, and a native one, begins once its inputs are
//! complete. The caller decides who fills, drains and runs, and when.

use std::sync::atomic::AtomicBool;

use nandarray_hart::{InputStream, Limits, OutputStream, REACH, Room, Stop, Streams};

use crate::abi::{self, Arguments};
use crate::core::{Bounds, Core, CoreBackend, UNKNOWN};
use crate::error::{RunError, Site};
use crate::inflow::{Inflow, InflowBytes};
use crate::program::EntryPoint;
use crate::task::{BorrowedTask, TaskPlace};

/// The reason why one run of a call ended.
#[derive(Debug)]
pub enum Advance {
    /// The program waits for bytes of an input, or for the notice that no more will come.
    WaitInput {
        /// Number of the input.
        input: usize,
    },
    /// The program waits for room in an output: the caller has to drain it.
    WaitOutput {
        /// Number of the output.
        output: usize,
    },
    /// The instruction budget of this run is used up.
    OutOfBudget,
    /// The processor's meter paused the program.
    Paused,
    /// The call is over: with the number of bytes of each output, or with an error.
    Done(Result<Vec<u64>, RunError>),
}

/// An output of a call, with the bytes that the program has written and the caller has not drained.
#[derive(Debug)]
struct Outflow {
    bytes: Vec<u8>,
    head: u64,
    drained: u64,
    /// Most bytes that the program may write to the output.
    room: u64,
}

/// A task for a [`Call`], which owns the task's inputs.
#[derive(Debug)]
pub struct OwnedTask {
    /// Number of the task.
    pub number: u64,
    /// Number of the task's first record, counted from the beginning of the first input.
    pub first_record: u64,
    /// Number of records as in [`BorrowedTask`]; `None` if they are to be counted from the first input's bytes (in a
    /// program of windows), or if the end of the input is not known yet.
    pub records: Option<u64>,
    /// Place of the task in its first input.
    pub place: TaskPlace,
    /// Inputs of the task, as many as the program has.
    pub inputs: Vec<Inflow>,
    /// Size of the buffer of each output stream, which the caller drains, in bytes; with `None` the buffer has room for
    /// the whole output. Required if the end of an input is not known, since outputs then have no bound.
    pub buffer_bytes: Option<usize>,
}

/// The arguments of a call; those of a task are computed when it starts.
#[derive(Debug)]
enum CallArguments {
    Task { first_record: u64, records: Option<u64>, place: TaskPlace, buffer_bytes: Option<usize> },
    Fixed(Arguments),
}

/// The progress of a call: not started, started, or over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    Ready,
    Inside,
    Over,
}

/// A call of one of a program's entry points, which can be interrupted and resumed.
pub struct Call<'p> {
    core: Core<'p>,
    entry: EntryPoint,
    number: u64,
    scalars: Vec<u64>,
    what: CallArguments,
    inputs: Vec<Inflow>,
    outputs: Vec<Outflow>,
    /// Most instructions that the call may execute; `None` is no limit.
    limit: Option<u64>,
    /// Number of instructions that the core had executed before this call.
    before: u64,
    at: CallState,
}

impl<'p> Call<'p> {
    /// Prepares a call of the program on one task; [`run`](Self::run) executes it. `limit` is the most instructions.
    ///
    /// # Errors
    /// [`RunError::Inputs`]: the number of inputs is wrong, a program of windows has a ring for an input, or the output
    /// buffers are missing or too small.
    pub fn task(core: Core<'p>, scalars: &[u64], job: OwnedTask, limit: Option<u64>) -> Result<Self, RunError> {
        let OwnedTask { number, first_record, records, place, inputs, buffer_bytes } = job;
        let wanted = core.metadata().inputs.len();
        if inputs.len() != wanted {
            return Err(RunError::Inputs(format!("{} inputs for a program that takes {wanted}", inputs.len())));
        }
        let streamed = !core.windows(EntryPoint::Task);
        if !streamed && inputs.iter().any(|input| matches!(input.bytes, InflowBytes::Ring(_))) {
            return Err(RunError::Inputs("a program of windows cannot have a ring for an input".into()));
        }
        if streamed && buffer_bytes.is_none() && inputs.iter().any(|input| !input.end_known) {
            return Err(RunError::Inputs("an input whose end is not known needs outputs that are drained".into()));
        }
        if let Some(bytes) = buffer_bytes.filter(|bytes| (*bytes as u64) < REACH) {
            return Err(RunError::Inputs(format!(
                "a buffer of {bytes} bytes for an output; programs look back {REACH}"
            )));
        }
        let what = CallArguments::Task { first_record, records, place, buffer_bytes };
        Ok(Self::new(core, EntryPoint::Task, number, scalars, what, inputs, limit))
    }

    /// Prepares a call of `nd_begin`, on a state filled with zeros.
    ///
    /// # Errors
    /// [`RunError`]: the arguments could not be prepared.
    pub fn begin(mut core: Core<'p>, scalars: &[u64], task: u64, limit: Option<u64>) -> Result<Self, RunError> {
        let what = CallArguments::Fixed(core.prepare_begin(scalars, task)?);
        Ok(Self::new(core, EntryPoint::Begin, task, scalars, what, Vec::new(), limit))
    }

    /// Prepares a call of `nd_merge`, which folds the state `other` into the core's state.
    ///
    /// # Errors
    /// [`RunError`]: the arguments could not be prepared.
    pub fn merge(
        mut core: Core<'p>,
        scalars: &[u64],
        other: &[u8],
        task: u64,
        limit: Option<u64>,
    ) -> Result<Self, RunError> {
        let what = CallArguments::Fixed(core.prepare_merge(scalars, other, task)?);
        Ok(Self::new(core, EntryPoint::Merge, task, scalars, what, Vec::new(), limit))
    }

    /// Prepares a call of `nd_end`, which follows `tasks` tasks.
    ///
    /// # Errors
    /// [`RunError`]: the arguments could not be prepared.
    pub fn end(core: Core<'p>, scalars: &[u64], tasks: u64, limit: Option<u64>) -> Result<Self, RunError> {
        let what = CallArguments::Fixed(core.end_arguments(scalars, tasks)?);
        Ok(Self::new(core, EntryPoint::End, tasks, scalars, what, Vec::new(), limit))
    }

    fn new(
        core: Core<'p>,
        entry: EntryPoint,
        number: u64,
        scalars: &[u64],
        what: CallArguments,
        inputs: Vec<Inflow>,
        limit: Option<u64>,
    ) -> Self {
        let (scalars, before) = (scalars.to_vec(), core.instructions());
        Self { core, entry, number, scalars, what, inputs, outputs: Vec::new(), limit, before, at: CallState::Ready }
    }

    /// Returns the core that executes the call.
    pub fn core(&self) -> &Core<'p> {
        &self.core
    }

    /// Returns the meter of the core's processor; `None` if the processor has no meter of type `M`.
    pub fn meter<M: 'static>(&mut self) -> Option<&mut M> {
        self.core.meter()
    }

    /// Returns an input of the call, read-only.
    ///
    /// # Panics
    /// If the call has no input of that number.
    pub fn input(&self, input: usize) -> &Inflow {
        &self.inputs[input]
    }

    /// Returns an input of the call, to be filled by the caller.
    ///
    /// # Panics
    /// If the call has no input of that number.
    pub fn input_mut(&mut self, input: usize) -> &mut Inflow {
        &mut self.inputs[input]
    }

    /// Returns the bytes of an output that were written and not drained yet, in order, as two parts: the second is
    /// empty unless the bytes wrap around the end of the buffer.
    pub fn waiting(&self, output: usize) -> [&[u8]; 2] {
        let Some(Outflow { bytes, head, drained, .. }) = self.outputs.get(output) else { return [&[], &[]] };
        let count = (head - drained) as usize;
        let from = if bytes.is_empty() { 0 } else { (drained % bytes.len() as u64) as usize };
        let first = count.min(bytes.len() - from);
        [&bytes[from..from + first], &bytes[..count - first]]
    }

    /// Notes that the caller drained `bytes` bytes of an output, which makes room for as many.
    ///
    /// # Panics
    /// If fewer bytes were waiting.
    pub fn drained(&mut self, output: usize, bytes: u64) {
        let outflow = &mut self.outputs[output];
        assert!(bytes <= outflow.head - outflow.drained, "{bytes} bytes were not waiting");
        outflow.drained += bytes;
    }

    /// Returns the number of instructions executed so far; 0 for functions of this process.
    pub fn instructions(&self) -> u64 {
        self.core.instructions() - self.before
    }

    /// Returns whether the call has ended, with a result or an error.
    pub fn is_over(&self) -> bool {
        self.at == CallState::Over
    }

    /// Returns the core, and the bytes of each output, whether or not the call is over. The bytes of an output whose
    /// buffer the caller drains are left out (an empty vector): read them by [`waiting`](Self::waiting) before.
    pub fn finish(mut self) -> (Core<'p>, Vec<Vec<u8>>) {
        self.put_back();
        let given = self.outputs.into_iter().map(|Outflow { mut bytes, head, room, .. }| {
            bytes.truncate(if bytes.len() as u64 == room { head as usize } else { 0 });
            bytes
        });
        (self.core, given.collect())
    }

    /// Returns the error of a call that waits for an input of which no more bytes will come.
    pub fn starved(&self, input: usize) -> RunError {
        let pc = match &self.core.place {
            CoreBackend::Hart { processor, .. } if self.at == CallState::Inside => Some(processor.pc()),
            _ => None,
        };
        let site = pc.map(|pc| Site { pc, symbol: self.core.program.place(pc) });
        RunError::Starved { task: self.number, input, site }
    }

    /// Executes the call for at most `budget` more instructions, or until `stop` is set; returns why the run ended.
    ///
    /// # Panics
    /// If the call is over.
    pub fn run(&mut self, budget: Option<u64>, stop: &AtomicBool) -> Advance {
        assert!(self.at != CallState::Over, "the call is over");
        let over = match self.advance(budget, stop) {
            Ok(None) => return Advance::OutOfBudget,
            Ok(Some(Advance::Done(done))) => done,
            Ok(Some(advance)) => return advance,
            Err(error) => Err(error),
        };
        self.at = CallState::Over;
        self.put_back();
        Advance::Done(over)
    }

    fn advance(&mut self, budget: Option<u64>, stop: &AtomicBool) -> Result<Option<Advance>, RunError> {
        if self.at == CallState::Ready {
            let missing = self.inputs.iter().position(|input| !input.is_complete());
            if let Some(input) = missing.filter(|_| self.core.windows(self.entry)) {
                return Ok(Some(Advance::WaitInput { input }));
            }
            if let Some(used) = self.start(stop)? {
                return Ok(Some(Advance::Done(Ok(used))));
            }
            self.at = CallState::Inside;
        }
        let room: Vec<u64> = self.outputs.iter().map(|output| output.room).collect();
        let left = self.limit.map(|limit| limit - self.instructions());
        let instructions = match (budget, left) {
            (Some(budget), Some(left)) => Some(budget.min(left)),
            (budget, left) => budget.or(left),
        };
        let why = self.go_on(Limits { instructions, stop: Some(stop) });
        match why {
            Stop::WaitInput { stream } => return Ok(Some(Advance::WaitInput { input: usize::from(stream) })),
            Stop::WaitOutput { stream } => return Ok(Some(Advance::WaitOutput { output: usize::from(stream) })),
            Stop::Paused => return Ok(Some(Advance::Paused)),
            Stop::InstructionLimit if self.limit != Some(self.instructions()) => return Ok(None),
            _ => {}
        }
        let CoreBackend::Hart { processor, memory, .. } = &self.core.place else { unreachable!("it runs on a hart") };
        let at = (processor.pc(), processor.result(), processor.link());
        let block = memory.get(abi::ARGS_ADDRESS..abi::ARGS_ADDRESS + abi::ARGS_BYTES)?;
        let streamed = !self.core.windows(self.entry);
        let outputs = self.outputs.iter().enumerate();
        let used: Vec<u64> =
            outputs.map(|(i, output)| if streamed { output.head } else { Arguments::used(block, i) }).collect();
        self.core.ended(why, at, self.entry, self.number, self.limit, &room)?;
        self.core.fits(&used, &room, self.number)?;
        self.outputs.iter_mut().zip(&used).for_each(|(output, used)| output.head = *used);
        Ok(Some(Advance::Done(Ok(used))))
    }

    /// Allocates the outputs and starts the function on the hart. Returns the number of bytes of each output if the
    /// call is already over: a native function has returned, or the program has no such entry point.
    fn start(&mut self, stop: &AtomicBool) -> Result<Option<Vec<u64>>, RunError> {
        let bytes = |input: &Inflow| {
            if input.end_known || input.is_complete() && self.core.windows(self.entry) {
                input.tail.max(input.end.unwrap_or(0))
            } else {
                UNKNOWN
            }
        };
        let lengths: Vec<u64> = self.inputs.iter().map(bytes).collect();
        let mut buffer_bytes = None;
        let mut arguments = match &self.what {
            CallArguments::Fixed(arguments) => arguments.clone(),
            CallArguments::Task { first_record, records, place, buffer_bytes: wanted } => {
                buffer_bytes = wanted.filter(|_| !self.core.windows(EntryPoint::Task));
                let port = &self.core.metadata().inputs[0];
                let counted = if lengths[0] == UNKNOWN { UNKNOWN } else { lengths[0].div_ceil(port.record_bytes) };
                let (number, first_record, records) = (self.number, *first_record, records.unwrap_or(counted));
                let task = BorrowedTask { number, first_record, records, place, inputs: &[] };
                self.core.task_arguments(&self.scalars, &task, &lengths)?
            }
        };
        // Entry points without inputs write outputs only at the end of a program.
        let takes = matches!(self.entry, EntryPoint::Task | EntryPoint::End);
        let rooms: Vec<u64> = arguments.outputs.iter().filter(|_| takes).map(|port| port.bytes).collect();
        let mut buffers = vec![Vec::new(); rooms.len()];
        match buffer_bytes {
            Some(most) => {
                buffers.iter_mut().zip(&rooms).for_each(|(b, room)| b.resize((*room).min(most as u64) as usize, 0));
            }
            None => self.core.make_room(&mut arguments, &mut buffers),
        }
        let Some(address) = self.core.program.entry(self.entry) else {
            return Ok(Some(vec![0; rooms.len()]));
        };
        let all: Vec<&[u8]> =
            if self.core.lends() { self.inputs.iter().map(Inflow::all).collect() } else { Vec::new() };
        self.core.lend(&mut arguments, &all);
        if self.core.lends() {
            let task = BorrowedTask { inputs: &all, ..BorrowedTask::nothing(self.number) };
            let bounds = Bounds { instructions: None, stop };
            let used = self.core.call(self.entry, &arguments, task, &mut buffers, bounds)?;
            let outputs = buffers.into_iter().zip(rooms).zip(&used);
            self.outputs =
                outputs.map(|((bytes, room), used)| Outflow { bytes, head: *used, drained: 0, room }).collect();
            return Ok(Some(used));
        }
        let windows = self.core.windows(self.entry);
        let CoreBackend::Hart { processor, memory, stack } = &mut self.core.place else { unreachable!("others lend") };
        arguments.write(memory.get_mut(abi::ARGS_ADDRESS..abi::ARGS_ADDRESS + abi::ARGS_BYTES)?);
        for (i, input) in self.inputs.iter_mut().enumerate().filter(|(_, input)| windows && input.tail > 0) {
            match &mut input.bytes {
                InflowBytes::Shared(bytes, range) => {
                    memory.share(abi::input_window(i), bytes.clone(), range.clone())?
                }
                InflowBytes::Window(bytes) => memory.put(abi::input_window(i), std::mem::take(bytes), false)?,
                InflowBytes::Ring(_) => unreachable!("rings are streams"),
            }
        }
        let outputs = buffers.into_iter().zip(rooms);
        self.outputs = outputs.map(|(bytes, room)| Outflow { bytes, head: 0, drained: 0, room }).collect();
        for (i, output) in self.outputs.iter_mut().enumerate().filter(|(_, output)| windows && output.room > 0) {
            memory.put(abi::output_window(i), std::mem::take(&mut output.bytes), true)?;
        }
        processor.start(address, *stack, abi::ARGS_ADDRESS);
        Ok(None)
    }

    /// Runs the hart until it stops, with the call's inputs and outputs as its streams; notes how far these moved.
    fn go_on(&mut self, limits: Limits<'_>) -> Stop {
        let windows = self.core.windows(self.entry);
        let CoreBackend::Hart { processor, memory, .. } = &mut self.core.place else {
            unreachable!("it runs on a hart")
        };
        let mut streams = Streams::none();
        if !windows {
            streams.inputs.extend(self.inputs.iter().map(Inflow::stream));
            streams.outputs.extend(self.outputs.iter_mut().map(|Outflow { bytes, head, drained, room }| {
                // An output whose buffer has all of its room is never overwritten: it need not be drained.
                let drained = if bytes.len() as u64 == *room { 0 } else { *drained };
                OutputStream::resume(bytes, *head, drained, Room::Width).limited(*room)
            }));
        }
        let stop = processor.run(memory, &mut streams, limits);
        let taken: Vec<u64> = streams.inputs.iter().map(InputStream::head).collect();
        let stored: Vec<u64> = streams.outputs.iter().map(OutputStream::head).collect();
        for (input, head) in self.inputs.iter_mut().zip(taken) {
            let range = input.head..=input.tail;
            assert!(range.contains(&head), "an input's head moves to {head}, outside {range:?}");
            input.head = head;
        }
        for (output, head) in self.outputs.iter_mut().zip(stored) {
            let range = output.head..=output.room;
            assert!(range.contains(&head), "an output's head moves to {head}, outside {range:?}");
            output.head = head;
        }
        stop
    }

    /// Moves the windows' bytes from the core's memory back to the inputs and outputs.
    fn put_back(&mut self) {
        if !self.core.windows(self.entry) {
            return;
        }
        let CoreBackend::Hart { memory, .. } = &mut self.core.place else { return };
        for (i, input) in self.inputs.iter_mut().enumerate() {
            if let (InflowBytes::Window(bytes), Some(own)) = (&mut input.bytes, memory.take(abi::input_window(i))) {
                *bytes = own;
            }
        }
        for (i, output) in self.outputs.iter_mut().enumerate() {
            if let Some(own) = memory.take(abi::output_window(i)) {
                output.bytes = own;
            }
        }
    }
}

impl std::fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.core.program.entry_name(self.entry);
        f.debug_struct("Call")
            .field("entry", &name)
            .field("task", &self.number)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}
