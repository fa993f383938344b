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
    /// Bytes of the caller.
    Bytes(&'a [u8]),
    /// The elements at `start + step * i` with `0 <= i < count` along each dimension, of a space or of a view of it.
    Box {
        /// Handle of the space.
        space: SpaceId,
        /// First coordinate along each dimension.
        start: &'a [u64],
        /// Distance between elements along each dimension, at least 1.
        step: &'a [u64],
        /// Number of elements along each dimension.
        count: &'a [u64],
        /// Shape of the view; `None` if the elements are those of the space itself.
        view: Option<&'a [u64]>,
        /// Tiles, each of which is a task; with `None`, elements come in row-major order, in tasks of `task_bytes`.
        tiles: Option<Tiles<'a>>,
    },
    /// An output of an earlier program of the same run.
    Output {
        /// Number of the stage that produces the output; it is smaller than this stage's.
        stage: usize,
        /// Number of the output in that stage.
        output: usize,
    },
}

/// The destination of an output of a program.
#[derive(Clone, Debug)]
pub enum Output<'a> {
    /// The output is collected in memory.
    Collect,
    /// The output is written to the first elements of a box of a space, or of a view of a space. It becomes visible
    /// when the command completes; until then, and if the command fails, the space is unchanged.
    Box {
        /// Handle of the space.
        space: SpaceId,
        /// First coordinate along each dimension.
        start: &'a [u64],
        /// Number of elements along each dimension.
        count: &'a [u64],
        /// Shape of the view; `None` if the box lies in the space itself.
        view: Option<&'a [u64]>,
        /// Tiles in whose order the program produces elements; `None` is row-major order.
        tiles: Option<Tiles<'a>>,
    },
}

/// The value of an output when its program has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputValue {
    /// The bytes of an output that is collected in memory.
    Bytes(Vec<u8>),
    /// Number of elements that were written to the output's box.
    Elements(u64),
}

/// The result of one program of a run.
#[derive(Clone, Debug)]
pub struct ExecutedStage {
    /// Outputs of the program, in order; `None` for outputs that only other stages read.
    pub outputs: Vec<Option<OutputValue>>,
    /// State of the program after its last task, merged from the states of its runs of consecutive tasks.
    pub state: Vec<u8>,
    /// State of each run of consecutive tasks, in order, if the execution had tasks without the program's end.
    pub states: Vec<Vec<u8>>,
    /// The costs of the program; its bytes are those of all its inputs and outputs.
    pub account: Account,
}

/// The result of a run of one or more programs.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The results of the programs, in order.
    pub stages: Vec<ExecutedStage>,
    /// The costs of the run; its bytes are those that come from spaces and the caller, and those that go to them.
    pub account: Account,
}

/// A program to be run, with its inputs and the destinations of its outputs.
#[derive(Debug)]
pub struct StageRequest<'a> {
    /// Handle of the loaded program.
    pub program: ProgramId,
    /// The way in which the program is executed.
    pub form: Form,
    /// Inputs of the program, in order.
    pub inputs: &'a [Input<'a>],
    /// Bit patterns of the program's scalar arguments; those at the end that are left out have their defaults.
    pub scalars: &'a [u64],
    /// Destination of each output, including the outputs of `nd_end`; `None` if only other stages read the output.
    pub outputs: &'a [Option<Output<'a>>],
    /// Target size of a task, in bytes of the first input; a task is whole records, at least one. If a caller gives
    /// none, it is [`nandarray_cores::Metadata::task_bytes`]; [`nandarray_cores::ALL_BYTES`] is one task of all inputs.
    pub task_bytes: u64,
    /// Limit of the instructions of one call; `None` is no limit.
    pub instructions: Option<u64>,
    /// Cores of a modelled device that execute the program; empty stands for all. The wall clock ignores them.
    pub cores: &'a [u32],
}

/// A run of one or more programs that feed each other.
#[derive(Debug)]
pub struct Execution<'a> {
    /// Programs of the run, at least one; each reads outputs of earlier ones only.
    pub stages: &'a [StageRequest<'a>],
    /// The executor that does the jobs of the run.
    pub executor: &'a dyn Executor,
    /// Limit of the bytes queued between programs when one of them needs more input before it can go on.
    pub hold_bytes: u64,
    /// Limit of the bytes of all outputs that are collected in memory, and of all states; `u64::MAX` is no limit.
    pub collect_bytes: u64,
    /// Whether the blocks of outputs are locked against other writes only when the programs have ended, not while they
    /// compute. Such outputs are written twice, and take room in the store for both.
    pub locks_at_end: bool,
    /// The progress of the run, by which the caller can also stop it.
    pub progress: &'a Progress,
}

impl Execution<'_> {
    /// Whether the execution changes the store.
    pub(crate) fn writes(&self) -> bool {
        let mut outputs = self.stages.iter().flat_map(|stage| stage.outputs);
        outputs.any(|output| matches!(output, Some(Output::Box { .. })))
    }
}
