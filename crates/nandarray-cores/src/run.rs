//! Running a program over its inputs: on several cores at once, with results as if on one.
//!
//! Threads take runs of consecutive tasks. A task's outputs are given to the sink in the order of tasks; a run's state is
//! folded into those before it in that order. Both wait in memory for those before them, and a thread that is too far ahead
//! waits with its next run, so that what waits is bounded. The first error by task ends everything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::core::{Bounds, Core, Task};
use crate::error::{LoadError, RunError};
use crate::metadata::Phase;
use crate::profile::Profiler;
use crate::program::{Entry, Program};
use crate::tasks::Tasks;

/// Consecutive tasks whose states are one, where there is a state to fold.
const TASKS_A_RUN: u64 = 16;
/// Runs that may wait for those before them, for each thread.
const RUNS_AHEAD: u64 = 4;

/// Where a transfer went wrong.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where inputs come from: bytes one after the other.
pub trait Source: Sync {
    /// Bytes of an input.
    fn bytes(&self, input: usize) -> u64;
    /// Fill `into` with the bytes of an input from `offset` on.
    ///
    /// # Errors
    /// Whatever keeps it from that.
    fn read(&self, input: usize, offset: u64, into: &mut [u8]) -> Result<(), Failure>;
    /// Bytes of the first input that are best read in multiples; 0 if any are.
    fn grain(&self) -> u64 {
        0
    }
}

/// Where outputs go to.
pub trait Sink: Send {
    /// Take the bytes that a task wrote to an output. Called in the order of tasks.
    ///
    /// # Errors
    /// Whatever keeps it from that.
    fn take(&mut self, output: usize, task: u64, bytes: Vec<u8>) -> Result<(), Failure>;
}

/// What has happened so far; may be looked at from elsewhere while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Tasks there are.
    pub tasks: AtomicU64,
    /// Tasks that are done.
    pub done: AtomicU64,
    /// Bytes read.
    pub bytes_in: AtomicU64,
    /// Set to stop.
    pub stop: AtomicBool,
    /// Counts instructions, for whoever makes cores to use.
    pub profiler: Option<Profiler>,
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

/// What a run of tasks gave.
struct Done {
    tasks: Vec<(u64, Vec<Vec<u8>>)>,
    state: Vec<u8>,
}

/// What the threads share.
struct Shared<'a> {
    sink: &'a mut dyn Sink,
    /// The next run that may go to the sink.
    next: u64,
    waiting: BTreeMap<u64, Done>,
    /// States of the runs before `next`, in order.
    states: Vec<Vec<u8>>,
    error: Option<(u64, RunError)>,
    bytes_out: u64,
    instructions: u64,
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
    if scalars.len() != metadata.scalars.len() {
        let (given, wanted) = (scalars.len(), metadata.scalars.len());
        return Err(RunError::Inputs(format!("{given} scalars for a program that takes {wanted}")));
    }
    let tasks = Tasks::new(metadata, source, options.task_bytes.max(1))?;
    let count = tasks.count();
    progress.tasks.store(count, Ordering::Relaxed);
    let mut whole: Vec<Vec<u8>> = Vec::new();
    for (i, port) in metadata.inputs.iter().enumerate() {
        let mut bytes = vec![0; if port.whole { source.bytes(i) as usize } else { 0 }];
        if port.whole {
            source.read(i, 0, &mut bytes).map_err(RunError::Transfer)?;
            progress.bytes_in.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        whole.push(bytes);
    }
    let each = if metadata.state_bytes > 0 { TASKS_A_RUN } else { 1 };
    let runs = count.div_ceil(each);
    let threads = options.threads.clamp(1, usize::try_from(runs.max(1)).unwrap_or(usize::MAX));
    let shared = Mutex::new(Shared {
        sink,
        next: 0,
        waiting: BTreeMap::new(),
        states: Vec::new(),
        error: None,
        bytes_out: 0,
        instructions: 0,
    });
    let (moved, claimed) = (Condvar::new(), AtomicU64::new(0));
    let worker = Worker { program, core, scalars, source, options, progress, tasks: &tasks, whole: &whole, each };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| worker.work(&shared, &moved, &claimed, runs, threads as u64));
        }
    });
    let shared = shared.into_inner();
    if let Some((_, error)) = shared.error {
        return Err(error);
    }
    assert!(shared.next == runs && shared.waiting.is_empty(), "every run of tasks went to the sink");
    let mut outcome = Outcome::default();
    let mut core = core(program).map_err(|e| RunError::Inputs(e.to_string()))?;
    let bounds = Bounds { instructions: options.instructions, stop: &progress.stop };
    core.begin(scalars, count, bounds)?;
    if metadata.state_bytes > 0 {
        let mut states = shared.states.iter();
        if let Some(first) = states.next() {
            core.set_state(first)?;
        }
        if program.entry(Entry::Merge).is_some() {
            states.try_for_each(|state| core.merge(scalars, state, count, bounds))?;
        }
        outcome.state = core.state()?;
    }
    let mut bytes_out = shared.bytes_out;
    if program.entry(Entry::End).is_some() {
        let mut outputs = vec![Vec::new(); metadata.outputs.len()];
        let used = core.end(scalars, count, &mut outputs, bounds)?;
        for (i, mut bytes) in outputs.into_iter().enumerate() {
            if metadata.outputs[i].phase == Phase::End {
                bytes.truncate(used[i] as usize);
                bytes_out += used[i];
                outcome.ends.push((i, bytes));
            }
        }
    }
    outcome.account = Account {
        tasks: count,
        bytes_in: progress.bytes_in.load(Ordering::Relaxed),
        bytes_out,
        instructions: shared.instructions + core.instructions(),
    };
    Ok(outcome)
}

struct Worker<'w, 'p> {
    program: &'p Program,
    core: &'w (dyn Fn(&'p Program) -> Result<Core<'p>, LoadError> + Sync),
    scalars: &'w [u64],
    source: &'w dyn Source,
    options: Options,
    progress: &'w Progress,
    tasks: &'w Tasks,
    whole: &'w [Vec<u8>],
    each: u64,
}

impl<'p> Worker<'_, 'p> {
    /// Take runs of tasks until there are none left, or one failed.
    fn work(&self, shared: &Mutex<Shared<'_>>, moved: &Condvar, claimed: &AtomicU64, runs: u64, threads: u64) {
        let mut core = match (self.core)(self.program) {
            Ok(core) => core,
            Err(e) => return self.fail(shared, moved, 0, RunError::Inputs(e.to_string())),
        };
        let mut windows = vec![Vec::new(); self.whole.len()];
        loop {
            let run = claimed.fetch_add(1, Ordering::Relaxed);
            if run >= runs {
                break;
            }
            {
                let mut shared = shared.lock();
                while shared.error.is_none() && run >= shared.next + RUNS_AHEAD * threads {
                    moved.wait(&mut shared);
                }
                // A run before this one failed; one behind it may have, and then this one still has its say.
                if shared.error.as_ref().is_some_and(|(failed, _)| *failed <= run) {
                    break;
                }
            }
            match self.one(&mut core, &mut windows, run) {
                Ok(done) => {
                    let mut shared = shared.lock();
                    shared.waiting.insert(run, done);
                    self.deliver(&mut shared);
                    moved.notify_all();
                }
                Err(error) => self.fail(shared, moved, run, error),
            }
        }
        shared.lock().instructions += core.instructions();
    }

    fn fail(&self, shared: &Mutex<Shared<'_>>, moved: &Condvar, run: u64, error: RunError) {
        let mut shared = shared.lock();
        if shared.error.as_ref().is_none_or(|(first, _)| run < *first) {
            shared.error = Some((run, error));
        }
        moved.notify_all();
    }

    /// Give the sink what is next in order.
    fn deliver(&self, shared: &mut Shared<'_>) {
        while shared.error.is_none() {
            let next = shared.next;
            let Some(done) = shared.waiting.remove(&next) else { break };
            for (task, outputs) in done.tasks {
                for (output, bytes) in outputs.into_iter().enumerate() {
                    if self.program.metadata().outputs[output].phase == Phase::End {
                        continue;
                    }
                    shared.bytes_out += bytes.len() as u64;
                    if let Err(e) = shared.sink.take(output, task, bytes) {
                        shared.error = Some((next, RunError::Transfer(e)));
                        return;
                    }
                }
            }
            shared.states.push(done.state);
            shared.next += 1;
        }
    }

    /// One run of tasks on one core.
    fn one(&self, core: &mut Core<'p>, windows: &mut [Vec<u8>], run: u64) -> Result<Done, RunError> {
        let metadata = self.program.metadata();
        let bounds = Bounds { instructions: self.options.instructions, stop: &self.progress.stop };
        let tasks = run * self.each..((run + 1) * self.each).min(self.tasks.count());
        core.begin(self.scalars, tasks.start, bounds)?;
        let mut done = Done { tasks: Vec::new(), state: Vec::new() };
        for number in tasks {
            if self.progress.stop.load(Ordering::Relaxed) {
                return Err(RunError::Cancelled);
            }
            let cut = self.tasks.cut(number);
            for (i, port) in metadata.inputs.iter().enumerate().filter(|(_, port)| !port.whole) {
                let from = cut.first * port.record_bytes;
                let bytes = (cut.records * port.record_bytes).min(self.source.bytes(i) - from);
                windows[i].resize(bytes as usize, 0);
                self.source.read(i, from, &mut windows[i]).map_err(RunError::Transfer)?;
                self.progress.bytes_in.fetch_add(bytes, Ordering::Relaxed);
            }
            let inputs: Vec<&[u8]> = metadata
                .inputs
                .iter()
                .enumerate()
                .map(|(i, p)| if p.whole { &self.whole[i] } else { &windows[i] }[..].as_ref())
                .collect();
            let mut outputs = vec![Vec::new(); metadata.outputs.len()];
            let task = Task { number, first_record: cut.first, records: cut.records, inputs: &inputs };
            let used = core.task(self.scalars, task, &mut outputs, bounds)?;
            for (output, used) in outputs.iter_mut().zip(used) {
                output.truncate(used as usize);
            }
            done.tasks.push((number, outputs));
            self.progress.done.fetch_add(1, Ordering::Relaxed);
        }
        done.state = core.state()?;
        Ok(done)
    }
}
