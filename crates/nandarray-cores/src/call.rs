//! A call of an entry point that can be left and taken up again: its inputs are filled, and its outputs drained,
//! between runs.
//!
//! A [`Call`] owns its core, its inputs and its outputs for its length. [`Call::run`] goes on until the program waits,
//! a budget is used up, a meter pauses it, or it is over. Its result does not depend on how often it was left, nor on
//! how its bytes arrived: a program cannot tell. A stream program begins with the bytes that have arrived; a program of
//! windows, and a native one, begins once its inputs are complete. The caller decides who fills, drains and runs, and
//! when.

use std::sync::atomic::AtomicBool;

use nandarray_hart::{InputStream, Limits, OutputStream, REACH, Room, Stop, Streams};

use crate::abi::{self, Arguments};
use crate::core::{BorrowedTask, Bounds, Core, CoreBackend, UNKNOWN};
use crate::error::{RunError, Site};
use crate::inflow::{Inflow, InflowBytes};
use crate::program::EntryPoint;

/// The end of one run of a call.
#[derive(Debug)]
pub enum Advance {
    /// It waits for bytes of an input, or to know that there are no more.
    WaitInput {
        /// The input.
        input: usize,
    },
    /// It waits for room: an output has to be drained.
    WaitOutput {
        /// The output.
        output: usize,
    },
    /// The instruction budget of this run is used up.
    OutOfBudget,
    /// The processor's meter paused it.
    Paused,
    /// It is over, with the bytes of each output or its error.
    Done(Result<Vec<u64>, RunError>),
}

/// An output of a call.
#[derive(Debug)]
struct Outflow {
    bytes: Vec<u8>,
    head: u64,
    drained: u64,
    /// The most bytes that it may have.
    room: u64,
}

/// A task for a call.
#[derive(Debug)]
pub struct OwnedTask {
    /// Its number.
    pub number: u64,
    /// Number of its first record.
    pub first_record: u64,
    /// Records of the first input; `None` if its end is not known yet, or, for a program of windows, if they follow
    /// from its bytes.
    pub records: Option<u64>,
    /// Its extents as a part of an array, in elements; empty if it is just records.
    pub extents: Vec<u64>,
    /// Its inputs.
    pub inputs: Vec<Inflow>,
    /// Bytes of each output stream that are buffered until they are drained; with `None` all of its room. Required if
    /// the end of an input is not known, since the room is not bounded then.
    pub buffer_bytes: Option<usize>,
}

/// The entry point of a call, with its arguments.
#[derive(Debug)]
enum CallArguments {
    Task { first_record: u64, records: Option<u64>, extents: Vec<u64>, buffer_bytes: Option<usize> },
    Fixed(Arguments),
}

/// State of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallState {
    Ready,
    Inside,
    Over,
}

/// A call of one of a program's entry points.
pub struct Call<'p> {
    core: Core<'p>,
    entry: EntryPoint,
    number: u64,
    scalars: Vec<u64>,
    what: CallArguments,
    inputs: Vec<Inflow>,
    outputs: Vec<Outflow>,
    /// The most instructions.
    limit: Option<u64>,
    /// Instructions of the core before.
    before: u64,
    at: CallState,
}

impl<'p> Call<'p> {
    /// A task.
    ///
    /// # Errors
    /// [`RunError::Inputs`]: there are not as many inputs as the program has, or what bounds its outputs is missing.
    pub fn task(core: Core<'p>, scalars: &[u64], job: OwnedTask, limit: Option<u64>) -> Result<Self, RunError> {
        let OwnedTask { number, first_record, records, extents, inputs, buffer_bytes } = job;
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
        let what = CallArguments::Task { first_record, records, extents, buffer_bytes };
        Ok(Self::new(core, EntryPoint::Task, number, scalars, what, inputs, limit))
    }

    /// `nd_begin`, on a state of zeros.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn begin(mut core: Core<'p>, scalars: &[u64], task: u64, limit: Option<u64>) -> Result<Self, RunError> {
        let what = CallArguments::Fixed(core.prepare_begin(scalars, task)?);
        Ok(Self::new(core, EntryPoint::Begin, task, scalars, what, Vec::new(), limit))
    }

    /// `nd_merge`: fold another state into the core's.
    ///
    /// # Errors
    /// [`RunError`].
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

    /// `nd_end`, after `tasks` tasks.
    ///
    /// # Errors
    /// [`RunError`].
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

    /// The core.
    pub fn core(&self) -> &Core<'p> {
        &self.core
    }

    /// The meter of its core's processor, if it has one of this type.
    pub fn meter<M: 'static>(&mut self) -> Option<&mut M> {
        self.core.meter()
    }

    /// An input, to look at.
    ///
    /// # Panics
    /// If there is none of that number; so do the others.
    pub fn input(&self, input: usize) -> &Inflow {
        &self.inputs[input]
    }

    /// An input, to be filled.
    pub fn input_mut(&mut self, input: usize) -> &mut Inflow {
        &mut self.inputs[input]
    }

    /// The bytes of an output that were written and not drained: a part, and a second one where they wrap.
    pub fn waiting(&self, output: usize) -> [&[u8]; 2] {
        let Some(Outflow { bytes, head, drained, .. }) = self.outputs.get(output) else { return [&[], &[]] };
        let count = (head - drained) as usize;
        let from = if bytes.is_empty() { 0 } else { (drained % bytes.len() as u64) as usize };
        let first = count.min(bytes.len() - from);
        [&bytes[from..from + first], &bytes[..count - first]]
    }

    /// Notes that `bytes` of them were drained.
    ///
    /// # Panics
    /// If not that many were waiting.
    pub fn drained(&mut self, output: usize, bytes: u64) {
        let outflow = &mut self.outputs[output];
        assert!(bytes <= outflow.head - outflow.drained, "{bytes} bytes were not waiting");
        outflow.drained += bytes;
    }

    /// Instructions executed so far; 0 for functions of this process.
    pub fn instructions(&self) -> u64 {
        self.core.instructions() - self.before
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.at == CallState::Over
    }

    /// The core, when it is over or not wanted any more, and each output: its bytes if it has no buffer that is
    /// drained, otherwise nothing: those that wait are in [`waiting`](Self::waiting).
    pub fn finish(mut self) -> (Core<'p>, Vec<Vec<u8>>) {
        self.put_back();
        let given = self.outputs.into_iter().map(|Outflow { mut bytes, head, room, .. }| {
            bytes.truncate(if bytes.len() as u64 == room { head as usize } else { 0 });
            bytes
        });
        (self.core, given.collect())
    }

    /// The error of a call that waits for an input, if there will be nothing more of it.
    pub fn starved(&self, input: usize) -> RunError {
        let pc = match &self.core.place {
            CoreBackend::Hart { processor, .. } if self.at == CallState::Inside => Some(processor.pc()),
            _ => None,
        };
        let site = pc.map(|pc| Site { pc, symbol: self.core.program.place(pc) });
        RunError::Starved { task: self.number, input, site }
    }

    /// Go on, for at most `budget` instructions, or until `stop` is set.
    ///
    /// # Panics
    /// If it is over.
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

    /// Allocates outputs, and begins on a hart; returns the bytes of outputs if the call is over with that.
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
            CallArguments::Task { first_record, records, extents, buffer_bytes: wanted } => {
                buffer_bytes = wanted.filter(|_| !self.core.windows(EntryPoint::Task));
                let port = &self.core.metadata().inputs[0];
                let counted = if lengths[0] == UNKNOWN { UNKNOWN } else { lengths[0].div_ceil(port.record_bytes) };
                let (number, first_record, records) = (self.number, *first_record, records.unwrap_or(counted));
                let task = BorrowedTask { number, first_record, records, extents, inputs: &[] };
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

    /// Run the hart.
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

    /// Take windows out of the core's memory.
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
