//! Running a program over its inputs: on several cores at once, with results as if on one.
//!
//! Where inputs come from and outputs go to, what a run is told and what it tells. A program on its own is a pipeline of
//! one stage; how that is run is [`crate::pipeline`]'s business.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::core::Core;
use crate::error::{LoadError, RunError};
use crate::pipeline::{Resources, pipeline};
use crate::profile::Profiler;
use crate::program::Program;
use crate::stage::{Feed, Stage};

/// Where a transfer went wrong.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Bytes held between stages at most, if nothing else is said: 1 GiB.
pub const HOLD_BYTES: u64 = 1 << 30;

/// Where inputs come from: bytes one after the other.
pub trait Source: Sync {
    /// Bytes of an input.
    fn bytes(&self, input: usize) -> u64;
    /// Fill `into` with the bytes of an input from `offset` on.
    ///
    /// # Errors
    /// Whatever keeps it from that.
    fn read(&self, input: usize, offset: u64, into: &mut [u8]) -> Result<(), Failure>;
    /// Call `f` with the bytes of an input where they lie, if they are there together and in order; else do nothing. `f` comes
    /// to its end, and asks for nothing of this source: a source may hold locks meanwhile.
    ///
    /// # Errors
    /// Whatever keeps it from that; `f` was not called then.
    fn lend(&self, input: usize, offset: u64, bytes: u64, f: &mut dyn FnMut(&[u8])) -> Result<(), Failure> {
        let _ = (input, offset, bytes, f);
        Ok(())
    }
    /// Bytes of an input that are best read in multiples; 0 if any are. Asked of what a program's first input is.
    fn grain(&self, _input: usize) -> u64 {
        0
    }
    /// Bytes before the end of each task, from 0 on, where tasks of records of one size cannot end wherever it suits. Asked of
    /// what a program's first input is.
    fn edges(&self, _input: usize) -> Option<Vec<u64>> {
        None
    }
    /// Extents of the task that begins there, in elements, the last dimension fastest; none if it is just elements.
    fn extents(&self, _input: usize, _offset: u64) -> Vec<u64> {
        Vec::new()
    }
}

/// Where outputs go to.
pub trait Sink: Send {
    /// Take the bytes that a task wrote to an output. Called in the order of tasks.
    ///
    /// # Errors
    /// Whatever keeps it from that.
    fn take(&mut self, output: usize, task: u64, bytes: Vec<u8>) -> Result<(), Failure>;
    /// Take the bytes that a program wrote to an output at its end.
    ///
    /// # Errors
    /// Whatever keeps it from that.
    fn end(&mut self, output: usize, bytes: Vec<u8>) -> Result<(), Failure> {
        self.take(output, u64::MAX, bytes)
    }
}

/// What has happened so far; may be looked at from elsewhere while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Tasks there are, as far as is known yet.
    pub tasks: AtomicU64,
    /// Tasks that are done.
    pub done: AtomicU64,
    /// Bytes read.
    pub bytes_in: AtomicU64,
    /// Set to stop.
    pub stop: AtomicBool,
    /// Counts instructions, for whoever makes cores to use.
    pub profiler: Option<Profiler>,
    stages: OnceLock<Vec<StageProgress>>,
}

/// The same of one stage.
#[derive(Debug, Default)]
struct StageProgress {
    known: AtomicBool,
    tasks: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// Nothing yet; with somebody who counts instructions.
    pub fn counted_by(profiler: Profiler) -> Self {
        Self { profiler: Some(profiler), ..Self::default() }
    }

    /// For each stage tasks done, and tasks there are as far as is known yet; empty before it begins.
    pub fn stages(&self) -> Vec<(u64, u64)> {
        let one = |s: &StageProgress| (s.done.load(Ordering::Relaxed), s.tasks.load(Ordering::Relaxed));
        self.stages.get().map_or_else(Vec::new, |stages| stages.iter().map(one).collect())
    }

    pub(crate) fn begin(&self, stages: usize) {
        self.stages.get_or_init(|| (0..stages).map(|_| StageProgress::default()).collect());
    }

    fn stage(&self, stage: usize) -> &StageProgress {
        &self.stages.get().expect("the run has begun")[stage]
    }

    /// A stage will have so many tasks, if that is known.
    pub(crate) fn expect(&self, stage: usize, tasks: Option<u64>) {
        if let Some(tasks) = tasks {
            self.more(stage, tasks);
            self.stage(stage).known.store(true, Ordering::Relaxed);
        }
    }

    /// A stage has more tasks than were known of.
    pub(crate) fn more(&self, stage: usize, tasks: u64) {
        let this = self.stage(stage);
        if !this.known.load(Ordering::Relaxed) {
            this.tasks.fetch_add(tasks, Ordering::Relaxed);
            self.tasks.fetch_add(tasks, Ordering::Relaxed);
        }
    }

    /// A task of a stage is done.
    pub(crate) fn advance(&self, stage: usize) {
        self.stage(stage).done.fetch_add(1, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads; at least 1.
    pub threads: usize,
    /// Bytes of the first input that a task should have.
    pub task_bytes: u64,
    /// The most instructions of one call; `None` is no limit.
    pub instructions: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 1, task_bytes: 1 << 20, instructions: None }
    }
}

/// What a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Tasks.
    pub tasks: u64,
    /// Bytes read, whole inputs once.
    pub bytes_in: u64,
    /// Bytes given out.
    pub bytes_out: u64,
    /// Instructions executed.
    pub instructions: u64,
}

impl Account {
    pub(crate) fn add(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.instructions += other.instructions;
    }
}

/// What a run gave, beside what the sink got.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Outputs of phase end, by their numbers.
    pub ends: Vec<(usize, Vec<u8>)>,
    /// The state, folded.
    pub state: Vec<u8>,
    /// What it took.
    pub account: Account,
}

/// Keeps what a program gives at its end apart from what its tasks give.
struct Apart<'s> {
    sink: &'s mut dyn Sink,
    ends: Vec<(usize, Vec<u8>)>,
}

impl Sink for Apart<'_> {
    fn take(&mut self, output: usize, task: u64, bytes: Vec<u8>) -> Result<(), Failure> {
        self.sink.take(output, task, bytes)
    }

    fn end(&mut self, output: usize, bytes: Vec<u8>) -> Result<(), Failure> {
        self.ends.push((output, bytes));
        Ok(())
    }
}

/// Run a program over all of its inputs.
///
/// `core` makes a core for a thread: [`Core::interpreter`] or one with another processor.
///
/// # Errors
/// [`RunError`]: of the first task that failed.
pub fn run<'p>(
    program: &'p Program,
    core: &(dyn Fn(&'p Program) -> Result<Core<'p>, LoadError> + Sync),
    scalars: &[u64],
    source: &dyn Source,
    sink: &mut dyn Sink,
    options: Options,
    progress: &Progress,
) -> Result<Outcome, RunError> {
    let metadata = program.metadata();
    let stage = Stage {
        program,
        core,
        scalars,
        inputs: (0..metadata.inputs.len()).map(Feed::Outside).collect(),
        outputs: (0..metadata.outputs.len()).map(Some).collect(),
        task_bytes: options.task_bytes,
        instructions: options.instructions,
    };
    let mut apart = Apart { sink, ends: Vec::new() };
    let resources = Resources { threads: options.threads, hold_bytes: HOLD_BYTES };
    let done = pipeline(&[stage], source, &mut apart, resources, progress).map_err(|failed| failed.error)?;
    let state = done.stages.into_iter().next().map(|one| one.state).unwrap_or_default();
    Ok(Outcome { ends: apart.ends, state, account: done.account })
}
