//! Programs beside the data: running them over boxes of spaces.
//!
//! The commands are cut as NVMe's Computational Programs command set has them: load, execute on ranges of memory, unload. An
//! execution may name several programs, what one gives being an input of another: an execute each, joined by ranges that
//! nobody else sees. A program sees the elements of a box one after the other, the last dimension fastest, or tile by tile (`order`),
//! whatever the building blocks; they are fetched task by task into a core's windows, so that an array is never in memory whole. Each task's
//! fetch is a read of its own: a write that comes in between is seen by the tasks behind it.
//!
//! What tasks write is put one behind the other, in the order of tasks: into memory, or into a box of a space (`offload_io`). It
//! does not know what a program does.

use std::sync::Arc;

use nandarray_cores::{Account, Feed as Fed, Form, Progress, Resources, RunError, Stage as Step, StageError, pipeline};

use super::Device;
use super::offload_io::{Drain, Feed, spaces_of};
use super::order::Tiles;
use super::programs::Ready;
use crate::error::{Error, Result};
use crate::stl::space::SpaceId;

/// Names a loaded program.
pub type ProgramId = u32;

/// What an input of a program is.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The caller's bytes.
    Bytes(&'a [u8]),
    /// `start + step * [0, count)` of a space, or of the view of it with this shape.
    Box {
        /// The space.
        space: SpaceId,
        /// First coordinate.
        start: &'a [u64],
        /// Distances, at least 1.
        step: &'a [u64],
        /// Elements.
        count: &'a [u64],
        /// Shape of the view; `None` is the space itself.
        view: Option<&'a [u64]>,
        /// Tiles, each of which is a task; `None` has elements in the order of rows, and tasks of `task_bytes`.
        tiles: Option<Tiles<'a>>,
    },
    /// What another program gives.
    Output {
        /// Its place among the stages; before this one's.
        stage: usize,
        /// The output.
        output: usize,
    },
}

/// Where an output of a program goes.
#[derive(Clone, Debug)]
pub enum Output<'a> {
    /// Into memory.
    Collect,
    /// Into a box of a space, or of the view of it with this shape: the first elements of it, as many as there are. It is
    /// there when the command is done; until then, and if the command fails, the space is as it was.
    Box {
        /// The space.
        space: SpaceId,
        /// First coordinate.
        start: &'a [u64],
        /// Elements.
        count: &'a [u64],
        /// Shape of the view; `None` is the space itself.
        view: Option<&'a [u64]>,
        /// Tiles in whose order elements come; `None` is the order of rows.
        tiles: Option<Tiles<'a>>,
    },
}

/// What an output of a program became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many elements of its box.
    Elements(u64),
}

/// What one program of a run gave.
#[derive(Clone, Debug)]
pub struct ExecutedStage {
    /// Its outputs, in order; `None` for those that were asked for by other programs at the most.
    pub outputs: Vec<Option<Given>>,
    /// The state, folded.
    pub state: Vec<u8>,
    /// What it took: bytes of its inputs and outputs, wherever they come from and go to.
    pub account: Account,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Executed {
    /// Its programs, in order.
    pub stages: Vec<ExecutedStage>,
    /// What it took: bytes from spaces and the caller, and to them.
    pub account: Account,
}

/// A program to be run.
#[derive(Debug)]
pub struct Stage<'a> {
    /// Which.
    pub program: ProgramId,
    /// How it is executed.
    pub form: Form,
    /// Its inputs.
    pub inputs: &'a [Input<'a>],
    /// Bit patterns of its scalars.
    pub scalars: &'a [u64],
    /// Where its outputs go, those of its end besides; `None` for those that go to other programs alone.
    pub outputs: &'a [Option<Output<'a>>],
    /// Bytes of the first input that a task should have.
    pub task_bytes: u64,
    /// The most instructions of one call; `None` is no limit.
    pub instructions: Option<u64>,
}

/// Programs to be run.
#[derive(Debug)]
pub struct Execution<'a> {
    /// At least one; those that give inputs to others come before them.
    pub stages: &'a [Stage<'a>],
    /// Threads; at least 1.
    pub threads: usize,
    /// The most bytes held between programs where one cannot go on without another having more.
    pub hold_bytes: u64,
    /// What happened so far; stops it.
    pub progress: &'a Progress,
}

impl Execution<'_> {
    /// Whether it changes the store.
    pub(super) fn writes(&self) -> bool {
        let mut outputs = self.stages.iter().flat_map(|stage| stage.outputs);
        outputs.any(|output| matches!(output, Some(Output::Box { .. })))
    }
}

impl Device {
    pub(super) fn execute_program(&self, execution: &Execution<'_>) -> Result<Executed> {
        let Execution { stages, threads, hold_bytes, progress } = *execution;
        if stages.is_empty() {
            return Err(Error::invalid("an execution without a program"));
        }
        let programs: Vec<Arc<Ready>> =
            stages.iter().map(|stage| self.ready_program(stage.program)).collect::<Result<_>>()?;
        // Under the modelled clock commands come one after the other.
        let threads = if self.ftl.probe().is_some() { 1 } else { threads };
        let mut feed = Feed::new(self);
        let profiler = progress.profiler.as_ref();
        let makers = programs.iter().zip(stages).map(|(ready, stage)| ready.cores(stage.form, profiler));
        let makers: Vec<_> = makers.collect();
        let (mut steps, mut wanted) = (Vec::new(), Vec::new());
        for ((stage, ready), core) in stages.iter().zip(&programs).zip(&makers) {
            let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
            for input in stage.inputs {
                inputs.push(match *input {
                    Input::Output { stage, output } => Fed::Output { stage, output },
                    Input::Bytes(_) | Input::Box { .. } => Fed::Outside(feed.add(input)?),
                });
            }
            for output in stage.outputs {
                outputs.push(output.as_ref().map(|output| {
                    wanted.push(output);
                    wanted.len() - 1
                }));
            }
            let (scalars, task_bytes, instructions) = (stage.scalars, stage.task_bytes, stage.instructions);
            let program = &ready.program;
            steps.push(Step { program, core, scalars, inputs, outputs, task_bytes, instructions });
        }
        let spaces = spaces_of(self, &wanted)?;
        if let Some(probe) = self.ftl.probe() {
            probe.executed(stages.len() as u64);
        }
        let mut drain = Drain::begin(self, &spaces, &wanted)?;
        let resources = Resources { threads, hold_bytes };
        let done = pipeline(&steps, &feed, &mut drain, resources, progress).map_err(|e| error_of(e, stages.len()))?;
        let mut given: Vec<Option<Given>> = drain.finish()?.into_iter().map(Some).collect();
        let stage = |(step, ended): (&Step<'_, '_>, nandarray_cores::Ended)| ExecutedStage {
            outputs: step.outputs.iter().map(|number| number.and_then(|n| given[n].take())).collect(),
            state: ended.state,
            account: ended.account,
        };
        Ok(Executed { stages: steps.iter().zip(done.stages).map(stage).collect(), account: done.account })
    }
}

/// A stage's error as the engine's; of several stages it says which.
fn error_of(failed: StageError, stages: usize) -> Error {
    let StageError { stage, program, error } = failed;
    match error {
        // The store's own errors come out as they went in.
        RunError::Transfer(inner) => match inner.downcast::<Error>() {
            Ok(own) => *own,
            Err(inner) => Error::Execution(Box::new(StageError { stage, program, error: RunError::Transfer(inner) })),
        },
        RunError::Inputs(what) if stages == 1 => Error::Invalid(what),
        RunError::Inputs(what) => Error::Invalid(format!("{program}: {what}")),
        error => Error::Execution(Box::new(StageError { stage, program, error })),
    }
}
