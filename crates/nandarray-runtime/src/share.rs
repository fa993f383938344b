//! Shares of a run: where several executions, maybe of several machines, divide the tasks of one program.
//!
//! Each of them has inputs of full length and executes some of the tasks, with the numbers and the places that these
//! have in the whole run. It gives back their outputs, and the state of each run of consecutive tasks. One further
//! execution merges all states in their order, and calls the program's end. So together they produce what one
//! execution of all tasks does, to the bit. Who has which share is the caller's business.

use nandarray_cores::{Metadata, Records, Tasks};

use crate::cut::TaskCutter;
use crate::error::{Error, Result};
use crate::io::InputSource;

/// The share of a run that one execution has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share<'a> {
    /// All tasks, and the program's end.
    #[default]
    All,
    /// The tasks with numbers from `first` on and below `end`, without the program's end.
    Tasks {
        /// Number of the first task: a multiple of [`TaskCuts::tasks_a_run`].
        first: u64,
        /// Number behind the last task: the same, or how many tasks there are.
        end: u64,
    },
    /// The program's end, without tasks.
    End {
        /// Number of tasks that the other executions have executed.
        tasks: u64,
        /// The states of all runs of tasks, in order; none if the program has no state.
        states: &'a [Vec<u8>],
    },
}

/// The places where a program's inputs are cut into tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskCuts {
    /// Number of the first record of each task, and the end of the last one.
    pub edges: Vec<u64>,
    /// Number of consecutive tasks that have one state: shares begin at multiples of it.
    pub tasks_a_run: u64,
}

/// Whether the tasks of a program can be divided: not if they run one after the other, take their inputs at paces of
/// their own, or begin where a record of no common size does.
pub(crate) fn is_divisible(metadata: &Metadata) -> bool {
    let ordered = metadata.is_paced() || metadata.tasks == Tasks::Ordered;
    !ordered && metadata.inputs[0].records == Records::Fixed
}

/// Checks that a share begins and ends where states do, and that an end has all states.
pub(crate) fn check_share(metadata: &Metadata, share: Share<'_>, cuts: &TaskCuts) -> Result<()> {
    let (all, each) = (cuts.edges.len() as u64 - 1, cuts.tasks_a_run);
    match share {
        Share::All => Ok(()),
        Share::Tasks { first, end } => {
            let is_edge = |task: u64| task.is_multiple_of(each) || task == all;
            if first > end || end > all || !is_edge(first) || !is_edge(end) {
                return Err(Error::invalid(format!(
                    "a share must begin and end at multiples of {each} of {all} tasks, not at {first} and {end}"
                )));
            }
            Ok(())
        }
        Share::End { tasks, states } => {
            let wanted = if metadata.state_bytes > 0 { tasks.div_ceil(each) } else { 0 };
            if tasks != all || states.len() as u64 != wanted {
                return Err(Error::invalid(format!(
                    "the end of {all} tasks must have {wanted} states of that many, not {} of {tasks}",
                    states.len()
                )));
            }
            if let Some(state) = states.iter().find(|state| state.len() as u64 != metadata.state_bytes) {
                let (bytes, found) = (metadata.state_bytes, state.len());
                return Err(Error::invalid(format!("a state must have {bytes} bytes, not {found}")));
            }
            Ok(())
        }
    }
}

/// Returns the cutter of a program's first input, if that comes from outside.
pub(crate) fn external_cutter(
    metadata: &Metadata,
    source: &dyn InputSource,
    external: usize,
    task_bytes: u64,
) -> TaskCutter {
    let mut cutter = TaskCutter::new(metadata, source.grain(external), task_bytes);
    if let Some(edges) = source.edges(external) {
        cutter.cut_at(crate::cut::Edges::of_records(&edges, metadata));
    }
    cutter
}
