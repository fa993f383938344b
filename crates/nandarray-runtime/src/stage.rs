//! Stages: programs of a run, alone or as parts of a pipeline.
//!
//! A [`Stage`] is the caller's description; a [`StageState`] is its progress: tasks are cut as inputs arrive, runs of
//! consecutive tasks are handed out, and their outputs are delivered in order. Nothing here waits, decides or executes.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use nandarray_cores::{Core, LoadError, Program, RunError};

use crate::cut::{Cut, Edges, NextCut, Supply, TaskCutter};
use crate::io::InputSource;
use crate::progress::Account;
use crate::queue::{ChunkSlice, StreamQueue};

/// Number of consecutive tasks that share a core's state, if the program has one to fold.
const TASKS_A_RUN: u64 = 16;

/// Makes a core for a program: [`Core::interpreter`], or one with another processor.
pub type CoreFactory<'s, 'p> = &'s (dyn Fn(&'p Program) -> Result<Core<'p>, LoadError> + Sync);

/// The origin of an input of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The input of the run's [`InputSource`] with this number.
    External(usize),
    /// An output of a stage before this one.
    Stage {
        /// The stage's number.
        stage: usize,
        /// The output's.
        output: usize,
    },
}

/// A program of a run, with its inputs and outputs.
pub struct Stage<'s, 'p> {
    /// The program.
    pub program: &'p Program,
    /// Makes its cores.
    pub core: CoreFactory<'s, 'p>,
    /// Bit patterns of its scalars.
    pub scalars: &'s [u64],
    /// Origin of each input.
    pub inputs: Vec<Origin>,
    /// For each output its number in the run's [`crate::OutputSink`], if it goes there.
    pub outputs: Vec<Option<usize>>,
    /// Bytes of the first input that a task should have.
    pub task_bytes: u64,
    /// The most instructions of one call; `None` is no limit.
    pub instructions: Option<u64>,
}

impl fmt::Debug for Stage<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage")
            .field("program", &self.program.metadata().name)
            .field("inputs", &self.inputs)
            .field("outputs", &self.outputs)
            .finish_non_exhaustive()
    }
}

impl Stage<'_, '_> {
    /// Number of consecutive tasks of one run.
    pub(crate) fn tasks_a_run(&self) -> u64 {
        if self.program.metadata().state_bytes > 0 { TASKS_A_RUN } else { 1 }
    }
}

/// The place of a job in the order of failures: a pipeline reports the failure with the smallest rank, whichever worker
/// was first.
///
/// A task's turn is its number if its inputs are external, else that of the latest run whose outputs it needs; a run's
/// is that of its last task. So turns follow from the data alone, and every job comes after those that it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) turn: u64,
    pub(crate) stage: usize,
    pub(crate) run: u64,
}

/// A failure and its rank.
pub(crate) type Failed = (Rank, RunError);

/// An input of one task.
#[derive(Debug)]
pub(crate) enum TaskInput {
    /// Bytes of the source: offset and count.
    External(u64, u64),
    /// An output of another stage.
    Chunks(Vec<ChunkSlice>),
    /// All of a whole input.
    Whole(Arc<Vec<u8>>),
}

/// A task that was cut, and not called yet.
#[derive(Debug)]
pub(crate) struct PendingTask {
    pub(crate) number: u64,
    pub(crate) cut: Cut,
    pub(crate) turn: u64,
    /// Its extents as a part of an array; empty without tiles.
    pub(crate) extents: Vec<u64>,
    pub(crate) inputs: Vec<TaskInput>,
}

/// The outputs of a run of tasks so far.
#[derive(Debug, Default)]
pub(crate) struct RunOutput {
    pub(crate) first: u64,
    pub(crate) tasks: Vec<(u64, Vec<Vec<u8>>)>,
    pub(crate) state: Vec<u8>,
    pub(crate) turn: u64,
}

/// A run of consecutive tasks, on one core.
pub(crate) struct TaskRun<'p> {
    pub(crate) queue: VecDeque<PendingTask>,
    /// Number of tasks that were assigned to it.
    assigned: u64,
    /// Whether a worker is calling one of its tasks.
    pub(crate) busy: bool,
    /// Its core, from the first task on.
    pub(crate) core: Option<Core<'p>>,
    pub(crate) output: RunOutput,
}

/// The progress of a stage.
pub(crate) struct StageState<'p> {
    pub(crate) cutter: TaskCutter,
    /// For each input that another stage produces, its number among that queue's readers.
    pub(crate) readers: Vec<usize>,
    /// Whole inputs, once they are there.
    pub(crate) whole: Vec<Arc<Vec<u8>>>,
    /// Whether whole inputs are there, and ends of records were found if they have to be searched for.
    pub(crate) loaded: bool,
    pub(crate) loading: bool,
    pub(crate) runs: BTreeMap<u64, TaskRun<'p>>,
    /// Runs begun.
    pub(crate) begun: u64,
    /// Whether all inputs were cut.
    pub(crate) ended: bool,
    /// The turn of the last task, and, once all inputs were cut, of the end.
    pub(crate) turn: u64,
    /// The next run that is delivered.
    pub(crate) next: u64,
    /// Runs that are done and not delivered.
    pub(crate) undelivered: BTreeMap<u64, RunOutput>,
    pub(crate) delivering: bool,
    /// The core with the states of the runs delivered.
    pub(crate) folder: Option<Core<'p>>,
    /// Cores that are free.
    pub(crate) cores: Vec<Core<'p>>,
    /// The stages that read each output.
    pub(crate) queues: Vec<StreamQueue>,
    /// For each reader of each output the number of times that its bound was doubled because all stages waited.
    pub(crate) relaxed: BTreeMap<(usize, usize), u32>,
    pub(crate) finished: bool,
    pub(crate) state: Vec<u8>,
    pub(crate) account: Account,
}

impl<'p> StageState<'p> {
    pub(crate) fn new(stage: &Stage<'_, 'p>, readers: Vec<usize>, source: &dyn InputSource) -> Self {
        let metadata = stage.program.metadata();
        let external = match stage.inputs[0] {
            Origin::External(input) => Some(input),
            Origin::Stage { .. } => None,
        };
        let grain = external.map_or(0, |input| source.grain(input));
        let mut cutter = TaskCutter::new(metadata, grain, stage.task_bytes);
        if let Some(edges) = external.and_then(|input| source.edges(input)) {
            cutter.cut_at(Edges::of_records(&edges, metadata));
        }
        let searches = cutter.is_to_search() && external.is_some();
        let loaded = !searches && !metadata.inputs.iter().any(|i| i.whole);
        Self {
            cutter,
            readers,
            whole: vec![Arc::default(); metadata.inputs.len()],
            loaded,
            loading: false,
            runs: BTreeMap::new(),
            begun: 0,
            ended: false,
            turn: 0,
            next: 0,
            undelivered: BTreeMap::new(),
            delivering: false,
            folder: None,
            cores: Vec::new(),
            queues: metadata.outputs.iter().map(|_| StreamQueue::default()).collect(),
            relaxed: BTreeMap::new(),
            finished: false,
            state: Vec::new(),
            account: Account::default(),
        }
    }

    /// A run whose next task can be called now, and that task's turn.
    pub(crate) fn ready(&self) -> Option<(u64, u64)> {
        let first = |(number, run): (&u64, &TaskRun<'_>)| run.queue.front().map(|task| (*number, task.turn));
        self.runs.iter().filter(|(_, run)| !run.busy).find_map(first)
    }

    /// Whether the last run takes more tasks.
    pub(crate) fn is_open(&self, each: u64) -> bool {
        self.begun > 0 && self.runs.get(&(self.begun - 1)).is_some_and(|run| run.assigned < each)
    }

    /// Hand a task to the last run, or to a new one.
    pub(crate) fn assign(&mut self, each: u64, task: PendingTask) {
        let (turn, last) = (task.turn, self.turn);
        assert!(!self.ended && turn >= last, "task {} of turn {turn} is assigned after turn {last}", task.number);
        if !self.is_open(each) {
            let output = RunOutput { first: task.number, ..RunOutput::default() };
            let run = TaskRun { queue: VecDeque::new(), assigned: 0, busy: false, core: None, output };
            self.runs.insert(self.begun, run);
            self.begun += 1;
        }
        let run = self.runs.get_mut(&(self.begun - 1)).expect("the last run");
        run.assigned += 1;
        run.output.turn = task.turn;
        self.turn = task.turn;
        run.queue.push_back(task);
    }

    /// Notes that all inputs were cut, which is known since this turn.
    pub(crate) fn end(&mut self, each: u64, turn: u64) {
        assert!(!self.ended, "all inputs were cut before");
        (self.ended, self.turn) = (true, self.turn.max(turn));
        if self.is_open(each) {
            self.runs.get_mut(&(self.begun - 1)).expect("the last run").output.turn = self.turn;
        }
    }

    /// Moves runs that are done to those that wait for delivery; their cores are free.
    pub(crate) fn settle(&mut self, stage: usize, each: u64) -> Result<(), Failed> {
        let over = |run: &TaskRun<'_>, ended: bool| {
            !run.busy && run.queue.is_empty() && run.core.is_some() && (ended || run.assigned == each)
        };
        let done: Vec<u64> = self.runs.iter().filter(|(_, run)| over(run, self.ended)).map(|(n, _)| *n).collect();
        for number in done {
            let mut run = self.runs.remove(&number).expect("a run that is done");
            let mut core = run.core.take().expect("its core");
            let turn = run.output.turn;
            run.output.state = core.state().map_err(|e| (Rank { turn, stage, run: number }, e))?;
            self.cores.push(core);
            let known = self.undelivered.insert(number, run.output);
            assert!(number >= self.next && known.is_none(), "run {number} ends behind run {}", self.next);
        }
        Ok(())
    }

    /// Whether every run was delivered.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.next == self.begun && !self.delivering
    }

    /// The next task, from the bytes that are there of each input.
    pub(crate) fn next_cut(
        &mut self,
        stage: &Stage<'_, 'p>,
        supplies: &[Supply],
        queue: Option<&StreamQueue>,
    ) -> Result<NextCut, RunError> {
        self.cutter.next(stage.program.metadata(), supplies, queue)
    }
}
