//! The work of each kind of job, step by step: loading, a task, delivering the outputs of a run, a program's end.
//!
//! [`crate::job`] decides which step of a job is next. Nothing here changes the state of a stage: the agenda applies
//! the results of a job when the job is done.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nandarray::panics::caught;
use nandarray_cores::{BorrowedTask, Call, Core, EntryPoint, Inflow, RunError};

use crate::context::StageContext;
use crate::cut::{Edges, TaskCutter, check_taken};
use crate::io::{Delivery, InputLocation, OutputSink};
use crate::progress::Account;
use crate::queue::joined;
use crate::share::Share;
use crate::stage::{Origin, PendingTask, RunOutput, Stage, TaskInput, tasks_a_run};

/// Memory that is reused from task to task: the bytes of inputs, and space for outputs.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    windows: Vec<Vec<u8>>,
    rooms: Vec<Vec<u8>>,
}

/// The outputs of one job, delivered or to be delivered.
#[derive(Default)]
pub(crate) struct Deliveries {
    /// Outputs to be delivered: task (`None` for the program's end), output number, bytes.
    pub(crate) queue: VecDeque<(Option<u64>, usize, Vec<u8>)>,
    /// Delivered outputs that other stages read: output number and bytes.
    pub(crate) on: Vec<(usize, Vec<u8>)>,
    /// Bytes of all outputs of the job, delivered or not.
    pub(crate) bytes: u64,
    /// Bytes that were delivered to the sink.
    pub(crate) to_sink: u64,
}

impl Deliveries {
    fn push(&mut self, task: Option<u64>, output: usize, bytes: Vec<u8>) {
        self.bytes += bytes.len() as u64;
        self.queue.push_back((task, output, bytes));
    }

    /// Delivers the next output to the sink if it has a number there, and keeps it for other stages that read it.
    pub(crate) fn next(
        &mut self,
        context: &StageContext<'_, '_>,
        sink: &mut dyn OutputSink,
    ) -> Result<Delivery, RunError> {
        let (task, output, bytes) = self.queue.pop_front().expect("a step that is to deliver");
        let is_read = !context.readers[output].is_empty();
        let number = context.stage.outputs[output];
        let is_stored = number.is_some_and(|number| sink.is_stored(number));
        let done = Delivery { task, output, sink: number, is_stored, is_read, bytes: bytes.len() as u64 };
        let Some(number) = number else {
            if is_read {
                self.on.push((output, bytes));
            }
            return Ok(done);
        };
        if is_read {
            self.on.push((output, bytes.clone()));
        }
        self.to_sink += done.bytes;
        match task {
            Some(task) => sink.take(number, task, bytes),
            None => sink.end(number, bytes),
        }
        .map_err(RunError::Transfer)?;
        Ok(done)
    }
}

/// A load job: reads whole inputs, and searches an external input for the ends of records.
pub(crate) struct Load {
    pub(crate) inputs: BTreeMap<usize, TaskInput>,
    /// Number of the external input that is searched for the ends of records; `None` if none is.
    pub(crate) search: Option<usize>,
    pub(crate) loaded: Option<LoadResult>,
}

/// The result of a load job: the bytes of whole inputs, the edges of tasks if they were searched for, bytes loaded.
pub(crate) struct LoadResult {
    pub(crate) wholes: BTreeMap<usize, Vec<u8>>,
    pub(crate) edges: Option<Edges>,
    pub(crate) bytes: u64,
}

/// The next step of a task's job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskStep {
    Begin,
    Fetch,
    Call,
    Done,
}

/// A job that calls the program for one task on a core.
pub(crate) struct TaskJob<'p> {
    pub(crate) run: u64,
    /// Number of the first task of the run of tasks that this task belongs to.
    pub(crate) first: u64,
    pub(crate) task: PendingTask,
    pub(crate) core: Option<Core<'p>>,
    pub(crate) buffers: Buffers,
    pub(crate) outputs: Vec<Vec<u8>>,
    /// Bytes that the call took of each input, if the inputs have paces of their own; else empty.
    pub(crate) taken: Vec<u64>,
    pub(crate) account: Account,
    pub(crate) at: TaskStep,
}

/// A job that delivers the outputs of a run of tasks and merges the run's state into the stage's.
pub(crate) struct DeliverJob<'p> {
    first: u64,
    /// The state to be merged; empty if there is none, or no longer.
    pub(crate) state: Vec<u8>,
    /// The state that another execution merges.
    pub(crate) kept: Option<Vec<u8>>,
    pub(crate) folder: Option<Core<'p>>,
    pub(crate) deliveries: Deliveries,
    pub(crate) instructions: u64,
}

/// A job that calls `nd_end` after the last task, and delivers the outputs of that call.
pub(crate) struct FinishJob<'p> {
    folder: Option<Core<'p>>,
    tasks: u64,
    pub(crate) is_called: bool,
    pub(crate) state: Vec<u8>,
    pub(crate) deliveries: Deliveries,
    pub(crate) instructions: u64,
}

pub(crate) enum JobWork<'p> {
    Load(Load),
    Task(Box<TaskJob<'p>>),
    Deliver(DeliverJob<'p>),
    Finish(FinishJob<'p>),
}

impl Load {
    pub(crate) fn fetch(&mut self, context: &StageContext<'_, '_>) -> Result<u64, RunError> {
        let (mut wholes, mut bytes, mut external) = (BTreeMap::new(), 0, 0);
        for (&input, from) in &self.inputs {
            let mut whole = Vec::new();
            match from {
                TaskInput::External(from, count) => {
                    whole.resize(*count as usize, 0);
                    context.read(input, *from, &mut whole)?;
                    external += count;
                }
                TaskInput::Chunks(chunks) => joined(chunks, &mut whole),
                TaskInput::Whole(_) => unreachable!("it is made here"),
            }
            bytes += whole.len() as u64;
            wholes.insert(input, whole);
        }
        let search = |external| {
            let stage = context.stage;
            TaskCutter::search(stage.program.metadata(), context.source, external, stage.task_bytes)
        };
        let edges = self.search.map(search).transpose()?;
        self.loaded = Some(LoadResult { wholes, edges, bytes });
        Ok(external)
    }
}

impl<'p> TaskJob<'p> {
    pub(crate) fn new(
        run: u64,
        first: u64,
        task: PendingTask,
        core: Option<Core<'p>>,
        begun: bool,
        buffers: Buffers,
    ) -> Self {
        let at = if begun { TaskStep::Fetch } else { TaskStep::Begin };
        let (outputs, taken, account) = (Vec::new(), Vec::new(), Account::default());
        Self { run, first, task, core, buffers, outputs, taken, account, at }
    }

    pub(crate) fn call(&mut self, context: &StageContext<'_, 'p>) -> Result<(), RunError> {
        match self.at {
            TaskStep::Begin => self.begin(context),
            TaskStep::Call => {
                let mut buffers = std::mem::take(&mut self.buffers);
                let Buffers { windows, rooms } = &mut buffers;
                let inputs: Vec<&[u8]> =
                    self.task.inputs.iter().zip(&*windows).map(|(input, w)| input.bytes(w)).collect();
                let done = call(context, self.core.as_mut(), &self.task, &inputs, rooms);
                self.buffers = buffers;
                self.called(context, done)
            }
            TaskStep::Fetch | TaskStep::Done => unreachable!("a task that calls nothing now"),
        }
    }

    /// Calls `nd_begin`, which initializes the state that the tasks of a run share.
    fn begin(&mut self, context: &StageContext<'_, 'p>) -> Result<(), RunError> {
        let core = match self.core.take() {
            Some(core) => core,
            None => context.core()?,
        };
        let core = self.core.insert(core);
        let before = core.instructions();
        let done = core.begin(context.stage.scalars, self.first, context.bounds());
        self.account.instructions += core.instructions() - before;
        self.at = TaskStep::Fetch;
        done
    }

    fn called(&mut self, context: &StageContext<'_, 'p>, (outputs, instructions): Called) -> Result<(), RunError> {
        self.account.instructions += instructions;
        self.outputs = outputs?;
        let metadata = context.stage.program.metadata();
        if metadata.is_paced() {
            self.taken = self.core.as_ref().expect("a run that has begun has a core").taken();
            let seen: Vec<u64> = self.task.inputs.iter().map(TaskInput::length).collect();
            check_taken(metadata, self.task.number, &seen, &self.taken, &self.outputs)?;
        }
        self.account.tasks += 1;
        context.progress.advance(context.number);
        self.at = TaskStep::Done;
        Ok(())
    }

    pub(crate) fn fetch(&mut self, context: &StageContext<'_, 'p>) -> Result<u64, RunError> {
        if context.progress.stop.load(Ordering::Relaxed) {
            return Err(RunError::Cancelled(None));
        }
        let windows = &mut self.buffers.windows;
        if windows.len() < self.task.inputs.len() {
            windows.resize_with(self.task.inputs.len(), Vec::new);
        }
        let mut external = 0;
        for (input, from) in self.task.inputs.iter().enumerate() {
            match from {
                TaskInput::External(from, bytes) => {
                    let window = &mut windows[input];
                    if context.is_packed(input) {
                        context.read_packed(input, *from, *bytes, window)?;
                    } else {
                        window.resize(*bytes as usize, 0);
                        context.read(input, *from, window)?;
                    }
                    self.account.bytes_in += window.len() as u64;
                    external += window.len() as u64;
                }
                TaskInput::Chunks(chunks) => {
                    if lent(chunks).is_none() {
                        joined(chunks, &mut windows[input]);
                    }
                    self.account.bytes_in += chunks.iter().map(|(_, range)| range.len() as u64).sum::<u64>();
                }
                TaskInput::Whole(_) => {}
            }
        }
        self.at = TaskStep::Call;
        Ok(external)
    }

    pub(crate) fn fetched(&self, context: &StageContext<'_, 'p>) -> Vec<InputLocation> {
        let inputs = self.task.inputs.iter().zip(&context.stage.inputs).zip(&self.task.positions);
        let from = |(i, ((input, origin), &from)): (usize, ((&TaskInput, &Origin), &u64))| match (input, origin) {
            (TaskInput::External(..), _) if context.is_packed(i) => InputLocation::Stored(self.input(i).len() as u64),
            (TaskInput::External(_, bytes), Origin::External(number)) if context.source.is_stored(*number) => {
                InputLocation::Stored(*bytes)
            }
            (TaskInput::External(_, bytes), _) => InputLocation::Host(*bytes),
            (TaskInput::Chunks(chunks), &Origin::Stage { stage, output }) => {
                let bytes = chunks.iter().map(|(_, range)| range.len() as u64).sum();
                InputLocation::Queued { stage, output, from, bytes }
            }
            (TaskInput::Chunks(_), Origin::External(_)) => unreachable!("chunks are what another stage produced"),
            (TaskInput::Whole(bytes), _) => InputLocation::Here(bytes.len() as u64),
        };
        inputs.enumerate().map(from).collect()
    }

    pub(crate) fn input(&self, input: usize) -> &[u8] {
        let window = self.buffers.windows.get(input).map_or(&[][..], Vec::as_slice);
        self.task.inputs[input].bytes(window)
    }

    pub(crate) fn begin_call(&mut self, context: &StageContext<'_, 'p>) -> Result<Call<'p>, RunError> {
        let core = self.core.take().expect("a run that has begun has a core");
        let inflow = |(i, input): (usize, &TaskInput)| match input {
            TaskInput::Whole(bytes) => Inflow::shared(bytes.clone(), 0..bytes.len()),
            TaskInput::External(..) | TaskInput::Chunks(_) => Inflow::window(Some(self.input(i).len() as u64)),
        };
        let task = &self.task;
        let job = nandarray_cores::OwnedTask {
            number: task.number,
            first_record: task.cut.first,
            records: Some(task.cut.records),
            place: task.place.clone(),
            inputs: task.inputs.iter().enumerate().map(inflow).collect(),
            buffer_bytes: None,
        };
        Call::task(core, context.stage.scalars, job, context.stage.instructions)
    }

    pub(crate) fn end_call(
        &mut self,
        context: &StageContext<'_, 'p>,
        call: Call<'p>,
        result: Result<Vec<u64>, RunError>,
    ) -> Result<(), RunError> {
        let instructions = call.instructions();
        let (core, outputs) = call.finish();
        self.core = Some(core);
        self.called(context, (result.map(|_| outputs), instructions))
    }

    pub(crate) fn call_where_it_lies(&mut self, context: &StageContext<'_, 'p>) -> Result<bool, RunError> {
        if context.progress.stop.load(Ordering::Relaxed) {
            return Err(RunError::Cancelled(None));
        }
        // At most one input may be lent: a source that holds a lock for it must not be called for another input.
        let mut external =
            self.task.inputs.iter().zip(&context.stage.inputs).enumerate().filter_map(|(i, one)| match one {
                (TaskInput::External(from, bytes), Origin::External(number)) => Some((i, *number, *from, *bytes)),
                _ => None,
            });
        let lends = self.core.as_ref().is_some_and(Core::lends);
        let (Some((input, number, from, bytes)), None, true) = (external.next(), external.next(), lends) else {
            return Ok(false);
        };
        if context.is_packed(input) {
            return Ok(false);
        }
        if self.task.inputs.iter().any(|one| matches!(one, TaskInput::Chunks(_))) {
            return Ok(false);
        }
        let (task, core, rooms) = (&self.task, &mut self.core, &mut self.buffers.rooms);
        let mut ran = None;
        let mut lent = |lent: &[u8]| {
            let bytes = |(i, one): (usize, &'_ TaskInput)| match one {
                TaskInput::Whole(bytes) if i != input => bytes.clone(),
                _ => Arc::default(),
            };
            let wholes: Vec<Arc<Vec<u8>>> = task.inputs.iter().enumerate().map(bytes).collect();
            let inputs: Vec<&[u8]> =
                wholes.iter().enumerate().map(|(i, w)| if i == input { lent } else { &w[..] }).collect();
            // The source may hold locks of the engine; a panic while they are held would count as the engine's own.
            ran = Some(caught(|| call(context, core.as_mut(), task, &inputs, rooms)));
        };
        context.source.lend(number, from, bytes, &mut lent).map_err(RunError::Transfer)?;
        let Some(done) = ran else { return Ok(false) };
        context.progress.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        self.account.bytes_in += bytes;
        self.called(context, done.map_err(RunError::Worker)?).map(|()| true)
    }
}

/// The result of a call: the outputs or the error, and the number of instructions executed.
type Called = (Result<Vec<Vec<u8>>, RunError>, u64);

/// Calls the program for one task with these inputs.
fn call<'p>(
    context: &StageContext<'_, 'p>,
    core: Option<&mut Core<'p>>,
    pending: &PendingTask,
    inputs: &[&[u8]],
    rooms: &mut Vec<Vec<u8>>,
) -> Called {
    let core = core.expect("a run that has begun has a core");
    let stage = context.stage;
    if rooms.len() < stage.outputs.len() {
        rooms.resize_with(stage.outputs.len(), Vec::new);
    }
    let rooms = &mut rooms[..stage.outputs.len()];
    let (first_record, records) = (pending.cut.first, pending.cut.records);
    let task = BorrowedTask { number: pending.number, first_record, records, place: &pending.place, inputs };
    let before = core.instructions();
    let used = core.task(stage.scalars, task, rooms, context.bounds());
    let given = used.map(|used| {
        let given = rooms.iter_mut().zip(used).map(|(room, used)| {
            // A buffer that is more than half full becomes the output; a smaller output is copied out of it.
            if used as usize > room.capacity() / 2 {
                room.truncate(used as usize);
                return std::mem::take(room);
            }
            room[..used as usize].to_vec()
        });
        given.collect()
    });
    (given, core.instructions() - before)
}

impl TaskInput {
    /// Returns the length of the input, in bytes of its source.
    fn length(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Chunks(chunks) => chunks.iter().map(|(_, range)| range.len() as u64).sum(),
            Self::External(_, bytes) => *bytes,
        }
    }

    /// Returns the bytes of the input: those in memory already, or those that were fetched into `window`.
    fn bytes<'w>(&'w self, window: &'w [u8]) -> &'w [u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Chunks(chunks) => lent(chunks).unwrap_or(window),
            Self::External(..) => window,
        }
    }
}

/// Returns the bytes in place if there is one chunk only, aligned to 16 bytes; else `None`.
fn lent(chunks: &[(Arc<Vec<u8>>, Range<usize>)]) -> Option<&[u8]> {
    match chunks {
        [(bytes, range)] => Some(&bytes[range.clone()]).filter(|b| (b.as_ptr() as usize).is_multiple_of(16)),
        _ => None,
    }
}

impl<'p> DeliverJob<'p> {
    /// Makes the job; with `keeps`, another execution merges the run's state.
    pub(crate) fn new(stage: &Stage<'_, 'p>, output: RunOutput, folder: Option<Core<'p>>, keeps: bool) -> Self {
        let RunOutput { first, tasks, state, .. } = output;
        let (state, kept) = if keeps { (Vec::new(), Some(state)) } else { (state, None) };
        let mut deliveries = Deliveries::default();
        for (task, outputs) in tasks {
            for (output, bytes) in outputs.into_iter().enumerate() {
                if stage.program.metadata().outputs[output].phase.is_of_tasks() {
                    deliveries.push(Some(task), output, bytes);
                }
            }
        }
        Self { first, state, kept, folder, deliveries, instructions: 0 }
    }

    /// Merges the run's state into that of the runs before it (`nd_merge`); the state of the first run is copied. An
    /// ordered program's runs bring none.
    pub(crate) fn fold(&mut self, context: &StageContext<'_, 'p>) -> Result<(), RunError> {
        let state = std::mem::take(&mut self.state);
        self.instructions = fold(context, &mut self.folder, &state, self.first)?;
        Ok(())
    }
}

/// Merges the state of the run of tasks that begins with task `first` into that of `folder`, or makes it the first one
/// there; returns the number of instructions that it took.
fn fold<'p>(
    context: &StageContext<'_, 'p>,
    folder: &mut Option<Core<'p>>,
    state: &[u8],
    first: u64,
) -> Result<u64, RunError> {
    let stage = context.stage;
    match folder {
        Some(core) if stage.program.entry(EntryPoint::Merge).is_some() => {
            let before = core.instructions();
            core.merge(stage.scalars, state, first, context.bounds())?;
            Ok(core.instructions() - before)
        }
        Some(_) => Ok(0),
        None => {
            let mut core = context.core()?;
            core.begin(stage.scalars, 0, context.bounds())?;
            core.set_state(state)?;
            let instructions = core.instructions();
            *folder = Some(core);
            Ok(instructions)
        }
    }
}

impl<'p> FinishJob<'p> {
    /// Makes the job; the program's end is not called if another execution does so.
    pub(crate) fn new(stage: &Stage<'_, 'p>, folder: Option<Core<'p>>, tasks: u64, share: Share<'_>) -> Self {
        let called = stage.program.entry(EntryPoint::End).is_some() || stage.program.metadata().state_bytes > 0;
        let (called, tasks) = match share {
            Share::All => (called, tasks),
            Share::Tasks { .. } => (false, tasks),
            Share::End { tasks, .. } => (called, tasks),
        };
        let (state, deliveries) = (Vec::new(), Deliveries::default());
        Self { folder, tasks, is_called: !called, state, deliveries, instructions: 0 }
    }

    pub(crate) fn call(&mut self, context: &StageContext<'_, 'p>) -> Result<(), RunError> {
        let (stage, bounds) = (context.stage, context.bounds());
        let metadata = stage.program.metadata();
        let mut merged = 0;
        if let Share::End { states, .. } = context.share {
            let each = tasks_a_run(metadata);
            for (run, state) in (0..).zip(states) {
                merged += fold(context, &mut self.folder, state, run * each)?;
            }
        }
        let (mut core, before) = match self.folder.take() {
            Some(core) => {
                let before = core.instructions();
                (core, before)
            }
            None => {
                let mut core = context.core()?;
                core.begin(stage.scalars, self.tasks, bounds)?;
                (core, 0)
            }
        };
        self.state = core.state()?;
        if stage.program.entry(EntryPoint::End).is_some() {
            let mut outputs = vec![Vec::new(); metadata.outputs.len()];
            let used = core.end(stage.scalars, self.tasks, &mut outputs, bounds)?;
            for (output, (mut bytes, used)) in outputs.into_iter().zip(used).enumerate() {
                if metadata.outputs[output].phase.is_of_end() {
                    bytes.truncate(used as usize);
                    self.deliveries.push(None, output, bytes);
                }
            }
        }
        self.instructions = merged + core.instructions() - before;
        self.is_called = true;
        Ok(())
    }
}
