//! Running a pipeline: an agenda and an executor together, from the first task to the results.
//!
//! A stage's outputs are delivered in the order of tasks, its states are folded in that order, and tasks are cut by
//! bytes alone, so that a pipeline produces what its programs produce one after the other, on any executor. The queue
//! between two stages holds only as much as the readers need to go on.

use nandarray::panics::caught;
use nandarray_cores::RunError;

use crate::agenda::{Agenda, Completed};
use crate::error::StageError;
use crate::executor::Executor;
use crate::io::{InputSource, OutputSink};
use crate::progress::Progress;
use crate::stage::Stage;

/// Default of the most bytes that are queued between stages: 1 GiB.
pub const HOLD_BYTES: u64 = 1 << 30;

/// Runs stages, each over all of its inputs. At most `hold_bytes` are queued between them where a stage needs more
/// input before it can go on.
///
/// # Errors
/// [`StageError`]: the stage that failed, with the error of its first failed task. If several stages fail, it is the
/// same one each time: the one whose task needs the fewest external records, and of several such the first stage.
pub fn pipeline<'p>(
    stages: &[Stage<'_, 'p>],
    source: &dyn InputSource,
    sink: &mut dyn OutputSink,
    executor: &dyn Executor,
    hold_bytes: u64,
    progress: &Progress,
) -> Result<Completed, StageError> {
    let mut agenda = Agenda::new(stages, source, progress, executor.workers(), hold_bytes)?;
    if let Err(what) = caught(|| executor.run(&mut agenda, sink)) {
        agenda.abort(RunError::Worker(what));
    }
    agenda.finish()
}
