//! Runs a pipeline: an executor does the jobs of an agenda, from the first task to the results.
//!
//! The outputs of a stage are delivered and its states folded in the order of tasks, and tasks are cut by bytes alone.
//! So a pipeline produces on every executor what its programs produce when they run one after the other. The queue
//! between two stages holds only as many bytes as its readers need to go on.

use nandarray::panics::caught;
use nandarray_cores::RunError;

use crate::agenda::{Agenda, Completed};
use crate::error::StageError;
use crate::executor::Executor;
use crate::io::{InputSource, OutputSink};
use crate::progress::Progress;
use crate::share::Share;
use crate::stage::Stage;

/// Default limit of the bytes that are queued between stages: 1 GiB.
pub const HOLD_BYTES: u64 = 1 << 30;

/// Runs stages, each over all of its inputs, on an executor. `hold_bytes` limits the bytes that are queued between
/// stages when a stage needs more input before it can go on.
///
/// # Errors
/// [`StageError`]: the stage that failed, with the error of its first failed task. If several stages fail, the same one
/// is reported each time: the one whose failed task needs the fewest external records, and of equal ones the first
/// stage.
pub fn pipeline<'p>(
    stages: &[Stage<'_, 'p>],
    source: &dyn InputSource,
    sink: &mut dyn OutputSink,
    executor: &dyn Executor,
    hold_bytes: u64,
    progress: &Progress,
) -> Result<Completed, StageError> {
    pipeline_share(stages, source, sink, executor, hold_bytes, progress, (Share::All, &[]))
}

/// Runs a share of the only stage, or all stages whole; `edges` as for [`Agenda::of_share`].
pub(crate) fn pipeline_share<'p>(
    stages: &[Stage<'_, 'p>],
    source: &dyn InputSource,
    sink: &mut dyn OutputSink,
    executor: &dyn Executor,
    hold_bytes: u64,
    progress: &Progress,
    (share, edges): (Share<'_>, &[u64]),
) -> Result<Completed, StageError> {
    let workers = executor.workers();
    let mut agenda = Agenda::of_share(stages, source, progress, workers, hold_bytes, share, edges)?;
    if let Err(what) = caught(|| executor.run(&mut agenda, sink)) {
        agenda.abort(RunError::Worker(what));
    }
    agenda.finish()
}
