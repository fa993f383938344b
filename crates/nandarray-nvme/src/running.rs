//! The executions of one host, which end with its association.
//!
//! An execution may take long, and its host may go away, be reset, or lose its server meanwhile: no process waits for
//! its outputs then. It is stopped between two instructions, and writes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nandarray_runtime::Progress;
use parking_lot::Mutex;

/// Maximum number of instructions of all tasks of one execution: about two hours of one thread.
pub(crate) const RUN_INSTRUCTIONS_MAX: u64 = 20_000_000_000_000;

#[derive(Debug)]
struct Begun {
    progress: Arc<Progress>,
    /// When the transport looked at the execution first; it has the clock.
    seen: Option<Instant>,
}

#[derive(Debug, Default)]
struct BegunExecutions {
    last: u64,
    all: BTreeMap<u64, Begun>,
}

/// The executions of one host that have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct RunningExecutions {
    begun: Mutex<BegunExecutions>,
}

/// One of the executions, until it is dropped.
#[derive(Debug)]
pub(crate) struct RunningExecution<'a> {
    of: &'a RunningExecutions,
    number: u64,
    progress: Arc<Progress>,
}

impl RunningExecutions {
    /// Adds an execution that is about to begin.
    pub(crate) fn begin(&self, instructions_max: u64) -> RunningExecution<'_> {
        let progress = Arc::new(Progress::limited_to(instructions_max.min(RUN_INSTRUCTIONS_MAX)));
        let mut begun = self.begun.lock();
        begun.last += 1;
        let number = begun.last;
        begun.all.insert(number, Begun { progress: progress.clone(), seen: None });
        RunningExecution { of: self, number, progress }
    }

    /// Stops those that the transport has seen for longer than `limit`, and sees the others.
    pub(crate) fn stop_older(&self, now: Instant, limit: Duration) {
        for begun in self.begun.lock().all.values_mut() {
            if now.duration_since(*begun.seen.get_or_insert(now)) > limit {
                begun.progress.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Stops all of them.
    pub(crate) fn stop(&self) {
        for begun in self.begun.lock().all.values() {
            begun.progress.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl RunningExecution<'_> {
    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }
}

impl Drop for RunningExecution<'_> {
    fn drop(&mut self) {
        self.of.begun.lock().all.remove(&self.number);
    }
}
