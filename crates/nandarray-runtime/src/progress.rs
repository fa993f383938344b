//! The progress of a run, and its costs in the end.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nandarray_cores::{CoreTimer, Profiler};

/// The progress of a run; other threads may look at it while it runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Number of tasks, as far as is known yet.
    pub tasks: AtomicU64,
    /// Tasks that are done.
    pub done: AtomicU64,
    /// Bytes read.
    pub bytes_in: AtomicU64,
    /// Set to stop.
    pub stop: AtomicBool,
    /// Makes cores that count instructions, if the caller wants a profile.
    pub profiler: Option<Profiler>,
    /// Makes cores of a description, which count ticks, if the caller wants them. The run has one thread then: one
    /// core then executes all tasks, so its ticks do not depend on chance.
    pub timer: Option<CoreTimer>,
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
    /// No progress yet, with a profiler.
    pub fn counted_by(profiler: Profiler) -> Self {
        Self { profiler: Some(profiler), ..Self::default() }
    }

    /// No progress yet, with a timer.
    pub fn timed_by(timer: CoreTimer) -> Self {
        Self { timer: Some(timer), ..Self::default() }
    }

    /// For each stage the tasks done, and the number of its tasks as far as is known yet; empty before the run begins.
    pub fn stages(&self) -> Vec<(u64, u64)> {
        let one = |s: &StageProgress| (s.done.load(Ordering::Relaxed), s.tasks.load(Ordering::Relaxed));
        self.stages.get().map_or_else(Vec::new, |stages| stages.iter().map(one).collect())
    }

    /// Begins a run of `stages` stages.
    pub(crate) fn begin(&self, stages: usize) {
        self.stages.get_or_init(|| (0..stages).map(|_| StageProgress::default()).collect());
    }

    fn stage(&self, stage: usize) -> &StageProgress {
        &self.stages.get().expect("the run has begun")[stage]
    }

    /// Notes the number of a stage's tasks, if it is known.
    pub(crate) fn expect(&self, stage: usize, tasks: Option<u64>) {
        if let Some(tasks) = tasks {
            self.more(stage, tasks);
            self.stage(stage).known.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a stage has `tasks` more tasks than were known.
    pub(crate) fn more(&self, stage: usize, tasks: u64) {
        let this = self.stage(stage);
        if !this.known.load(Ordering::Relaxed) {
            this.tasks.fetch_add(tasks, Ordering::Relaxed);
            self.tasks.fetch_add(tasks, Ordering::Relaxed);
        }
    }

    /// Notes that a task of a stage is done.
    pub(crate) fn advance(&self, stage: usize) {
        self.stage(stage).done.fetch_add(1, Ordering::Relaxed);
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The costs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Tasks.
    pub tasks: u64,
    /// Bytes read, whole inputs once.
    pub bytes_in: u64,
    /// Bytes written.
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
