//! The progress of a run, and its costs when it is done.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nandarray_cores::{CoreTimer, Profiler};

use crate::io::TransferError;

/// Minimum number of instructions that a task counts as, against the limit of a run: about what a task costs beside its
/// own instructions.
pub const TASK_INSTRUCTIONS_MIN: u64 = 10_000;

/// A budget of the memory in which a run collects outputs, and of the disk on which they wait.
pub trait CollectBudget: std::fmt::Debug + Send + Sync {
    /// Takes `bytes` more bytes for an output; returns false, and takes none, if fewer are left.
    fn take(&self, output: usize, bytes: u64) -> bool;

    /// Reserves `bytes` bytes of other memory of the run until its end; returns false, and reserves none, if fewer are
    /// left.
    fn reserve(&self, bytes: u64) -> bool {
        let _ = bytes;
        true
    }

    /// Takes `bytes` more bytes of the disk, until the run's end, for outputs that wait there for it.
    ///
    /// # Errors
    /// Fewer are left; the run ends.
    fn keep(&self, bytes: u64) -> Result<(), TransferError> {
        let _ = bytes;
        Ok(())
    }

    /// Hands the next bytes of an output over to its reader while the run goes on; the call may wait for the reader
    /// until `stop` is set. Returns false if there is no reader: the run collects the bytes.
    ///
    /// # Errors
    /// The reader is gone, or has taken too long; the run ends.
    fn hand_over(&self, output: usize, bytes: &[u8], stop: &AtomicBool) -> Result<bool, TransferError> {
        let _ = (output, bytes, stop);
        Ok(false)
    }
}

/// An observer of the threads that do the jobs of a run, each of which calls it at its beginning and at its end.
pub trait ThreadObserver: Debug + Send + Sync {
    /// The calling thread begins to do jobs of the run.
    fn begin(&self);
    /// The calling thread does no further jobs of the run.
    fn end(&self);
}

/// The progress of a run, which other threads may read while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Number of tasks that are known so far.
    pub tasks: AtomicU64,
    /// Number of tasks that are done.
    pub done: AtomicU64,
    /// Bytes read from the run's source so far.
    pub bytes_in: AtomicU64,
    /// Number of instructions of the tasks that are done.
    pub instructions: AtomicU64,
    /// Bytes of memory that the cores of the run have for their programs.
    pub memory_bytes: AtomicU64,
    /// Observer of the run's threads, if an executor has any; `None` if the caller wants none.
    pub observer: Option<Arc<dyn ThreadObserver>>,
    /// The budget of the memory in which outputs are collected; `None` if there is none.
    pub collected: Option<Arc<dyn CollectBudget>>,
    /// Set by the caller to stop the run.
    pub stop: AtomicBool,
    /// Maximum number of instructions of the whole run; `None` if there is none. A task counts as
    /// [`TASK_INSTRUCTIONS_MIN`] at least, so that a run of many small tasks ends, too.
    pub instructions_max: Option<u64>,
    /// Makes cores that count instructions; `None` if the caller wants no profile.
    pub profiler: Option<Profiler>,
    /// Makes cores from a description, which count clock ticks; `None` if the caller wants no timing. A run with a
    /// timer has one thread: one core executes all tasks, so that its ticks do not depend on chance.
    pub timer: Option<CoreTimer>,
    stages: OnceLock<Vec<StageProgress>>,
}

/// The progress of one stage.
#[derive(Debug, Default)]
struct StageProgress {
    known: AtomicBool,
    tasks: AtomicU64,
    done: AtomicU64,
}

impl Progress {
    /// Makes the progress of a run that has not begun, with a limit of its instructions.
    pub fn limited_to(instructions: u64) -> Self {
        Self { instructions_max: Some(instructions), ..Self::default() }
    }

    /// Makes the progress of a run that has not begun, with a profiler.
    pub fn counted_by(profiler: Profiler) -> Self {
        Self { profiler: Some(profiler), ..Self::default() }
    }

    /// Makes the progress of a run that has not begun, with a timer.
    pub fn timed_by(timer: CoreTimer) -> Self {
        Self { timer: Some(timer), ..Self::default() }
    }

    /// Returns for each stage its number of tasks done and its number of tasks known so far; empty before the run
    /// begins.
    pub fn stages(&self) -> Vec<(u64, u64)> {
        let one = |s: &StageProgress| (s.done.load(Ordering::Relaxed), s.tasks.load(Ordering::Relaxed));
        self.stages.get().map_or_else(Vec::new, |stages| stages.iter().map(one).collect())
    }

    /// Prepares the progress of a run of `stages` stages.
    pub(crate) fn begin(&self, stages: usize) {
        self.stages.get_or_init(|| (0..stages).map(|_| StageProgress::default()).collect());
    }

    fn stage(&self, stage: usize) -> &StageProgress {
        &self.stages.get().expect("the run has begun")[stage]
    }

    /// Notes the final number of a stage's tasks; `None` means that it is not known yet.
    pub(crate) fn expect(&self, stage: usize, tasks: Option<u64>) {
        if let Some(tasks) = tasks {
            self.more(stage, tasks);
            self.stage(stage).known.store(true, Ordering::Relaxed);
        }
    }

    /// Adds `tasks` to the known number of a stage's tasks, unless the final number is known.
    pub(crate) fn more(&self, stage: usize, tasks: u64) {
        let this = self.stage(stage);
        if !this.known.load(Ordering::Relaxed) {
            this.tasks.fetch_add(tasks, Ordering::Relaxed);
            self.tasks.fetch_add(tasks, Ordering::Relaxed);
        }
    }

    /// Counts one more task of a stage as done.
    pub(crate) fn advance(&self, stage: usize) {
        self.stage(stage).done.fetch_add(1, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The costs of a run, or of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Number of tasks executed.
    pub tasks: u64,
    /// Bytes read; a whole input counts once.
    pub bytes_in: u64,
    /// Bytes of the outputs.
    pub bytes_out: u64,
    /// Number of instructions executed.
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
