//! Stages: programs of a run, alone or as parts of a pipeline.
//!
//! A [`Stage`] is the caller's description of a program to be run; a [`StageState`] is its progress: inputs are cut
//! into tasks as they arrive, runs of consecutive tasks are handed out to workers, and their outputs are delivered in
//! order. Nothing here waits, decides or executes.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use nandarray_cores::{Core, LoadError, Metadata, Program, RunError, TaskPlace, Tasks};

use crate::cut::{Cut, NextCut, Supply, TaskCutter};
use crate::io::InputSource;
use crate::progress::Account;
use crate::queue::{ChunkSlice, StreamQueue};
use crate::share::external_cutter;

/// Number of consecutive tasks that form a run and share one state, if the program has a state.
const TASKS_A_RUN: u64 = 16;

/// A function that makes a core for a program: [`Core::interpreter`], or a core with another processor.
pub type CoreFactory<'s, 'p> = &'s (dyn Fn(&'p Program) -> Result<Core<'p>, LoadError> + Sync);

/// The origin of an input of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An external input: its number in the run's [`InputSource`].
    External(usize),
    /// An output of an earlier stage of the pipeline.
    Stage {
        /// Number of the earlier stage.
        stage: usize,
        /// Number of the output in that stage.
        output: usize,
    },
}

/// A program of a run, with its inputs and outputs.
pub struct Stage<'s, 'p> {
    /// The program that the stage executes.
    pub program: &'p Program,
    /// Makes the cores that execute the program.
    pub core: CoreFactory<'s, 'p>,
    /// Bit patterns of the program's scalar arguments.
    pub scalars: &'s [u64],
    /// Origin of each input of the program.
    pub inputs: Vec<Origin>,
    /// Number of each output in the run's [`crate::OutputSink`]; `None` if only other stages read the output.
    pub outputs: Vec<Option<usize>>,
    /// Target size of a task, in bytes of the first input.
    pub task_bytes: u64,
    /// Limit of the instructions of one call; `None` is no limit.
    pub instructions: Option<u64>,
    /// Cores of a modelled device that execute the stage; empty stands for all. Results do not depend on them.
    pub cores: &'s [u32],
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

/// Returns the number of consecutive tasks of a program that form one run.
pub(crate) fn tasks_a_run(metadata: &Metadata) -> u64 {
    if metadata.state_bytes > 0 && metadata.tasks != Tasks::Ordered { TASKS_A_RUN } else { 1 }
}

impl Stage<'_, '_> {
    /// Returns the number of consecutive tasks that form one run.
    pub(crate) fn tasks_a_run(&self) -> u64 {
        tasks_a_run(self.program.metadata())
    }

    /// Whether each task finds the state that the task before it left. Then a run has one task, and begins when the run
    /// before it has come back, on that one's core, which executes the end, too: nothing is merged.
    pub(crate) fn is_ordered(&self) -> bool {
        self.program.metadata().tasks == Tasks::Ordered
    }
}

/// The place of a job in the order of failures: if several jobs fail, a pipeline reports the failure with the smallest
/// rank, whichever worker was first.
///
/// The turn of a task is its number if its inputs are external; otherwise it is the turn of the latest run whose
/// outputs the task needs. The turn of a run is that of its last task. So turns follow from the data alone, and every
/// job ranks after the jobs that it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub(crate) turn: u64,
    pub(crate) stage: usize,
    pub(crate) run: u64,
}

/// The rank and the error of a failed job.
pub(crate) type Failed = (Rank, RunError);

/// The bytes of one input of one task.
#[derive(Debug)]
pub(crate) enum TaskInput {
    /// Bytes of the run's source: offset and number of bytes.
    External(u64, u64),
    /// Bytes that another stage produced, as slices of its chunks.
    Chunks(Vec<ChunkSlice>),
    /// All bytes of an input that every task gets as a whole.
    Whole(Arc<Vec<u8>>),
}

/// A task that was cut, and not called yet.
#[derive(Debug)]
pub(crate) struct PendingTask {
    pub(crate) number: u64,
    pub(crate) cut: Cut,
    pub(crate) turn: u64,
    /// Place of the task in the first input; unknown if another stage produces that.
    pub(crate) place: TaskPlace,
    pub(crate) inputs: Vec<TaskInput>,
    /// For each input that another stage produces, the position of its first byte in that output.
    pub(crate) positions: Vec<u64>,
}

/// The outputs that a run of tasks has produced so far, and the state of the run.
#[derive(Debug, Default)]
pub(crate) struct RunOutput {
    pub(crate) first: u64,
    pub(crate) tasks: Vec<(u64, Vec<Vec<u8>>)>,
    pub(crate) state: Vec<u8>,
    pub(crate) turn: u64,
}

/// A run of consecutive tasks, which one core executes in order.
pub(crate) struct TaskRun<'p> {
    pub(crate) queue: VecDeque<PendingTask>,
    /// Number of tasks that were added to the run so far.
    assigned: u64,
    /// Whether a worker is calling a task of the run.
    pub(crate) busy: bool,
    /// The core of the run; `None` before the first task, and while a worker uses the core.
    pub(crate) core: Option<Core<'p>>,
    pub(crate) output: RunOutput,
}

/// The progress of a stage: its cuts, runs, queues and costs.
pub(crate) struct StageState<'p> {
    pub(crate) cutter: TaskCutter,
    /// For each input that another stage produces, this stage's reader number in the queue of that output.
    pub(crate) readers: Vec<usize>,
    /// Bytes of each whole input, once they are loaded.
    pub(crate) whole: Vec<Arc<Vec<u8>>>,
    /// Whether whole inputs were loaded, and ends of records were found if they have to be searched for.
    pub(crate) loaded: bool,
    pub(crate) loading: bool,
    pub(crate) runs: BTreeMap<u64, TaskRun<'p>>,
    /// Number of runs of tasks that were begun.
    pub(crate) begun: u64,
    /// Whether all inputs were cut into tasks.
    pub(crate) ended: bool,
    /// The turn (see [`Rank`]) of the last task; once all inputs were cut, the turn of their end.
    pub(crate) turn: u64,
    /// Number of the run of tasks whose outputs are delivered next.
    pub(crate) next: u64,
    /// Runs whose tasks are done and whose outputs were not delivered yet, by number.
    pub(crate) undelivered: BTreeMap<u64, RunOutput>,
    pub(crate) delivering: bool,
    /// The core that holds the state merged from all delivered runs; `None` before the first.
    pub(crate) folder: Option<Core<'p>>,
    /// Cores that no run of tasks uses, kept for later ones. An ordered program has one, which keeps its state.
    pub(crate) cores: Vec<Core<'p>>,
    is_ordered: bool,
    /// The queue of each output, from which other stages read.
    pub(crate) queues: Vec<StreamQueue>,
    /// For each output and reader, the number of times that the reader's bound was doubled since all stages waited.
    pub(crate) relaxed: BTreeMap<(usize, usize), u32>,
    pub(crate) finished: bool,
    pub(crate) state: Vec<u8>,
    /// The states of all runs of tasks, in order, if another execution merges them.
    pub(crate) states: Vec<Vec<u8>>,
    pub(crate) account: Account,
}

impl<'p> StageState<'p> {
    pub(crate) fn new(stage: &Stage<'_, 'p>, readers: Vec<usize>, source: &dyn InputSource) -> Self {
        let metadata = stage.program.metadata();
        let external = match stage.inputs[0] {
            Origin::External(input) => Some(input),
            Origin::Stage { .. } => None,
        };
        let cutter = match external {
            Some(input) => external_cutter(metadata, source, input, stage.task_bytes),
            None => TaskCutter::new(metadata, 0, stage.task_bytes),
        };
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
            is_ordered: stage.is_ordered(),
            queues: metadata.outputs.iter().map(|_| StreamQueue::default()).collect(),
            relaxed: BTreeMap::new(),
            finished: false,
            state: Vec::new(),
            states: Vec::new(),
            account: Account::default(),
        }
    }

    /// Returns the number of a run whose next task can be called now, and the turn of that task (see [`Rank`]); `None`
    /// if there is none.
    pub(crate) fn ready(&self) -> Option<(u64, u64)> {
        let first = |(number, run): (&u64, &TaskRun<'_>)| run.queue.front().map(|task| (*number, task.turn));
        self.runs.iter().filter(|(_, run)| !run.busy).find_map(first)
    }

    /// Whether the last run has fewer than `each` tasks, so that it takes further ones.
    pub(crate) fn is_open(&self, each: u64) -> bool {
        self.begun > 0 && self.runs.get(&(self.begun - 1)).is_some_and(|run| run.assigned < each)
    }

    /// Adds a task to the last run, or to a new run if the last one has `each` tasks.
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

    /// Notes that all inputs were cut; `turn` (see [`Rank`]) is the turn of their end.
    pub(crate) fn end(&mut self, each: u64, turn: u64) {
        assert!(!self.ended, "all inputs were cut before");
        (self.ended, self.turn) = (true, self.turn.max(turn));
        if self.is_open(each) {
            self.runs.get_mut(&(self.begun - 1)).expect("the last run").output.turn = self.turn;
        }
    }

    /// Moves runs whose tasks are done to those that wait for delivery, and frees their cores.
    pub(crate) fn settle(&mut self, stage: usize, each: u64) -> Result<(), Failed> {
        let over = |run: &TaskRun<'_>, ended: bool| {
            !run.busy && run.queue.is_empty() && run.core.is_some() && (ended || run.assigned == each)
        };
        let done: Vec<u64> = self.runs.iter().filter(|(_, run)| over(run, self.ended)).map(|(n, _)| *n).collect();
        for number in done {
            let mut run = self.runs.remove(&number).expect("a run that is done");
            let mut core = run.core.take().expect("its core");
            let turn = run.output.turn;
            if !self.is_ordered {
                run.output.state = core.state().map_err(|e| (Rank { turn, stage, run: number }, e))?;
            }
            self.cores.push(core);
            let known = self.undelivered.insert(number, run.output);
            assert!(number >= self.next && known.is_none(), "run {number} ends behind run {}", self.next);
        }
        Ok(())
    }

    /// Takes the core whose state is that of all runs; `None` if there was no task. It is the one that executed the
    /// tasks of an ordered program, and has all of its memory.
    pub(crate) fn last_core(&mut self) -> Option<Core<'p>> {
        if self.is_ordered { self.cores.pop() } else { self.folder.take() }
    }

    /// Whether all inputs were cut and every run was delivered.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.next == self.begun && !self.delivering
    }

    /// Returns the next cut, if the bytes that have arrived of each input allow one.
    pub(crate) fn next_cut(
        &mut self,
        stage: &Stage<'_, 'p>,
        supplies: &[Supply],
        queue: Option<&StreamQueue>,
    ) -> Result<NextCut, RunError> {
        self.cutter.next(stage.program.metadata(), supplies, queue)
    }
}
