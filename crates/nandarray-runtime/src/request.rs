//! Requests to a runtime and their results: programs with their inputs and outputs, in terms of spaces and memory.

use nandarray::SpaceId;
use nandarray_cores::Form;

use crate::executor::Executor;
use crate::programs::ProgramId;
use crate::progress::{Account, Progress};
use crate::tiles::Tiles;

/// An input of a program.
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
        /// Tiles, each of which is a task; with `None` elements come in the order of rows, in tasks of `task_bytes`.
        tiles: Option<Tiles<'a>>,
    },
    /// An output of another program.
    Output {
        /// Its place among the stages; before this one's.
        stage: usize,
        /// The output.
        output: usize,
    },
}

/// The destination of an output of a program.
#[derive(Clone, Debug)]
pub enum Output<'a> {
    /// Into memory.
    Collect,
    /// Into the first elements of a box of a space, or of the view of it with this shape. The output becomes visible
    /// when the command completes; until then, and if the command fails, the space is unchanged.
    Box {
        /// The space.
        space: SpaceId,
        /// First coordinate.
        start: &'a [u64],
        /// Elements.
        count: &'a [u64],
        /// Shape of the view; `None` is the space itself.
        view: Option<&'a [u64]>,
        /// Tiles in whose order elements are produced; `None` is the order of rows.
        tiles: Option<Tiles<'a>>,
    },
}

/// The value of an output of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputValue {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A number of elements of its box.
    Elements(u64),
}

/// The result of one program of a run.
#[derive(Clone, Debug)]
pub struct ExecutedStage {
    /// Its outputs, in order; `None` for those without a destination of their own.
    pub outputs: Vec<Option<OutputValue>>,
    /// The state, folded.
    pub state: Vec<u8>,
    /// Its costs: bytes of all of its inputs and outputs.
    pub account: Account,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Executed {
    /// Its programs, in order.
    pub stages: Vec<ExecutedStage>,
    /// Its costs: bytes from spaces and the caller, and to them.
    pub account: Account,
}

/// A program to be run.
#[derive(Debug)]
pub struct StageRequest<'a> {
    /// The program's handle.
    pub program: ProgramId,
    /// The way in which it is executed.
    pub form: Form,
    /// Its inputs.
    pub inputs: &'a [Input<'a>],
    /// Bit patterns of its scalars.
    pub scalars: &'a [u64],
    /// Destination of each output, including those of `nd_end`; `None` if only other stages read it.
    pub outputs: &'a [Option<Output<'a>>],
    /// Target size of a task, in bytes of the first input; a task is whole records, at least one.
    pub task_bytes: u64,
    /// The most instructions of one call; `None` is no limit.
    pub instructions: Option<u64>,
}

/// Programs to be run.
#[derive(Debug)]
pub struct Execution<'a> {
    /// The stages, at least one; each reads outputs of earlier ones only.
    pub stages: &'a [StageRequest<'a>],
    /// The executor that does the work.
    pub executor: &'a dyn Executor,
    /// The most bytes queued between programs where one needs more input before it can go on.
    pub hold_bytes: u64,
    /// The run's progress; stops it.
    pub progress: &'a Progress,
}

impl Execution<'_> {
    /// Whether it changes the store.
    pub(crate) fn writes(&self) -> bool {
        let mut outputs = self.stages.iter().flat_map(|stage| stage.outputs);
        outputs.any(|output| matches!(output, Some(Output::Box { .. })))
    }
}
