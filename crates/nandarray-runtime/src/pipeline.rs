//! Running a pipeline: an agenda and an executor together, from the first task to what came of it.
//!
//! A stage's outputs are given on in the order of tasks, its states are folded in that order, and tasks are cut by
//! bytes alone, so that a pipeline gives what its programs give one after the other, on any executor. Of what one stage
//! gives another only as much is in memory as its readers need to go on.

use nandarray::panics::caught;
use nandarray_cores::RunError;

use crate::agenda::{Agenda, Completed};
use crate::error::StageError;
use crate::executor::Executor;
use crate::io::{Sink, Source};
use crate::progress::Progress;
use crate::stage::Stage;

/// Bytes held between stages at most, if nothing else is said: 1 GiB.
pub const HOLD_BYTES: u64 = 1 << 30;

/// Run stages, each over all of its inputs. `hold_bytes` are held between them at most where one cannot go on without
/// another having more.
///
/// # Errors
/// [`StageError`]: which stage failed, and how its first task that failed did. If several stages fail, it is the same
/// one each time: the one whose task needs the fewest tasks on the way from outside, and of several such the first
/// stage.
pub fn pipeline<'p>(
    stages: &[Stage<'_, 'p>],
    source: &dyn Source,
    sink: &mut dyn Sink,
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
