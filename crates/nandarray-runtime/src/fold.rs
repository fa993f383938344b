//! Folds states: a core takes the states of runs of tasks, one after the other, and merges them by the program.
//!
//! Jobs that deliver outputs fold the states of one execution; the end of a run that several executions divide folds
//! those that all of them brought. Nothing here decides on the order.

use nandarray_cores::{Core, EntryPoint, RunError};

use crate::context::StageContext;

/// Merges the state of the run of tasks that begins with task `first` into that of `folder`, or makes it the first one
/// there; returns the number of instructions that it took.
pub(crate) fn fold<'p>(
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
