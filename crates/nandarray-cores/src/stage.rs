//! A stage: a program at work within a run, alone or as part of a pipeline.
//!
//! What a stage is asked for is a [`Stage`]; what it has come to is a [`Work`]: its tasks are cut as inputs come, runs of
//! consecutive tasks are handed out, and what they gave is delivered in order. Nothing here waits or runs anything.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::core::{Bounds, Core, Task};
use crate::error::{LoadError, RunError};
use crate::held::{Held, Piece};
use crate::program::Program;
use crate::run::{Account, Source};
use crate::tasks::{Cut, Edges, Next, Supply, Tasks};

/// Consecutive tasks whose states are one, where there is a state to fold.
const TASKS_A_RUN: u64 = 16;

/// Makes a core for a program, one of a thread: [`Core::interpreter`], or one that executes otherwise.
pub type Maker<'s, 'p> = &'s (dyn Fn(&'p Program) -> Result<Core<'p>, LoadError> + Sync);

/// Where an input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// The input of the run's [`Source`] with this number.
    Outside(usize),
    /// An output of a stage before this one.
    Output {
        /// The stage's number.
        stage: usize,
        /// The output's.
        output: usize,
    },
}

/// A program to be run, with what goes in and out.
pub struct Stage<'s, 'p> {
    /// The program.
    pub program: &'p Program,
    /// Makes its cores.
    pub core: Maker<'s, 'p>,
    /// Bit patterns of its scalars.
    pub scalars: &'s [u64],
    /// Where each input comes from.
    pub inputs: Vec<Feed>,
    /// For each output its number for the run's [`crate::Sink`], if it goes there.
    pub outputs: Vec<Option<usize>>,
    /// Bytes of the first input that a task should have.
    pub task_bytes: u64,
    /// The most instructions of one call; `None` is no limit.
    pub instructions: Option<u64>,
}

impl Stage<'_, '_> {
    /// Consecutive tasks that are one run.
    pub(crate) fn tasks_a_run(&self) -> u64 {
        if self.program.metadata().state_bytes > 0 { TASKS_A_RUN } else { 1 }
    }
}

/// Where something is in the order in which failures count: the earliest is a pipeline's, whichever thread was first.
///
/// A task's turn is its number where its inputs come from outside, else that of the latest run whose outputs it needs; a run's
/// is that of its last task. So turns follow from the data alone, and whatever something needs comes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct When {
    pub(crate) turn: u64,
    pub(crate) stage: usize,
    pub(crate) run: u64,
}

/// What failed, and when in that order.
pub(crate) type Failed = (When, RunError);

/// An input of one task.
pub(crate) enum Part {
    /// Bytes of the source, from here on.
    Outside(u64, u64),
    /// What another stage gave.
    Pieces(Vec<Piece>),
    /// All of a whole input.
    Whole(Arc<Vec<u8>>),
}

/// A task that is handed out.
pub(crate) struct Due {
    pub(crate) number: u64,
    pub(crate) cut: Cut,
    pub(crate) turn: u64,
    /// Its extents as a part of an array; none if it is just elements.
    pub(crate) extents: Vec<u64>,
    pub(crate) parts: Vec<Part>,
}

/// What a thread keeps from task to task: bytes of inputs, room for outputs.
#[derive(Default)]
pub(crate) struct Own {
    pub(crate) windows: Vec<Vec<u8>>,
    pub(crate) rooms: Vec<Vec<u8>>,
}

/// Run a task on its inputs; gives its outputs.
pub(crate) fn call<'p>(
    stage: &Stage<'_, 'p>,
    core: &mut Core<'p>,
    due: &Due,
    inputs: &[&[u8]],
    rooms: &mut Vec<Vec<u8>>,
    bounds: Bounds<'_>,
) -> Result<Vec<Vec<u8>>, RunError> {
    if rooms.len() < stage.outputs.len() {
        rooms.resize_with(stage.outputs.len(), Vec::new);
    }
    let rooms = &mut rooms[..stage.outputs.len()];
    let (first_record, records) = (due.cut.first, due.cut.records);
    let task = Task { number: due.number, first_record, records, extents: &due.extents, inputs };
    let used = core.task(stage.scalars, task, rooms, bounds)?;
    let given = rooms.iter_mut().zip(used).map(|(room, used)| {
        // A room that is full goes as it is; another stays, so that memory is asked for once a thread.
        if used as usize > room.capacity() / 2 {
            room.truncate(used as usize);
            return std::mem::take(room);
        }
        room[..used as usize].to_vec()
    });
    Ok(given.collect())
}

/// The bytes of a single piece, where they can be lent as they are: aligned for any element.
pub(crate) fn lent(pieces: &[(Arc<Vec<u8>>, Range<usize>)]) -> Option<&[u8]> {
    match pieces {
        [(bytes, range)] => Some(&bytes[range.clone()]).filter(|b| (b.as_ptr() as usize).is_multiple_of(16)),
        _ => None,
    }
}

/// What a run of tasks gave so far.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) first: u64,
    pub(crate) tasks: Vec<(u64, Vec<Vec<u8>>)>,
    pub(crate) state: Vec<u8>,
    pub(crate) turn: u64,
}

/// A run of consecutive tasks, on one core.
pub(crate) struct Run<'p> {
    pub(crate) queue: VecDeque<Due>,
    /// Tasks that were handed to it.
    assigned: u64,
    /// Whether somebody is at it.
    pub(crate) busy: bool,
    /// Its core, from the first task on.
    pub(crate) core: Option<Core<'p>>,
    pub(crate) done: Done,
}

/// Where an input of a stage comes from, and how far it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    Outside(usize),
    Held { stage: usize, output: usize, reader: usize },
}

/// What a stage has come to.
pub(crate) struct Work<'p> {
    pub(crate) tasks: Tasks,
    pub(crate) from: Vec<From>,
    /// Whole inputs, once they are there.
    pub(crate) whole: Vec<Arc<Vec<u8>>>,
    /// Whether whole inputs are there, and what has to be looked for was found.
    pub(crate) loaded: bool,
    pub(crate) loading: bool,
    pub(crate) runs: BTreeMap<u64, Run<'p>>,
    /// Runs begun.
    pub(crate) begun: u64,
    /// Whether all inputs were cut.
    pub(crate) ended: bool,
    /// The turn of the last task, and, once all inputs were cut, of the end.
    pub(crate) turn: u64,
    /// The next run that is delivered.
    pub(crate) next: u64,
    pub(crate) waiting: BTreeMap<u64, Done>,
    pub(crate) delivering: bool,
    /// The core with the states of the runs delivered.
    pub(crate) folder: Option<Core<'p>>,
    /// Cores that are free.
    pub(crate) cores: Vec<Core<'p>>,
    /// Outputs that other stages read.
    pub(crate) outputs: Vec<Held>,
    /// How often more was let ahead because everything waited, as a power of two, for each reader of each output.
    pub(crate) eased: BTreeMap<(usize, usize), u32>,
    pub(crate) finished: bool,
    pub(crate) state: Vec<u8>,
    pub(crate) account: Account,
}

impl<'p> Work<'p> {
    pub(crate) fn new(stage: &Stage<'_, 'p>, from: Vec<From>, source: &dyn Source) -> Self {
        let metadata = stage.program.metadata();
        let grain = match from[0] {
            From::Outside(input) => source.grain(input),
            From::Held { .. } => 0,
        };
        let mut tasks = Tasks::new(metadata, grain, stage.task_bytes);
        if let From::Outside(input) = from[0]
            && let Some(edges) = source.edges(input)
        {
            tasks.at(Edges::of_records(&edges, metadata));
        }
        let looks = tasks.is_to_look() && matches!(from[0], From::Outside(_));
        let loaded = !looks && !metadata.inputs.iter().any(|i| i.whole);
        Self {
            tasks,
            from,
            whole: vec![Arc::default(); metadata.inputs.len()],
            loaded,
            loading: false,
            runs: BTreeMap::new(),
            begun: 0,
            ended: false,
            turn: 0,
            next: 0,
            waiting: BTreeMap::new(),
            delivering: false,
            folder: None,
            cores: Vec::new(),
            outputs: metadata.outputs.iter().map(|_| Held::default()).collect(),
            eased: BTreeMap::new(),
            finished: false,
            state: Vec::new(),
            account: Account::default(),
        }
    }

    /// A run whose tasks somebody could work on now, and the turn of the first of them.
    pub(crate) fn ready(&self) -> Option<(u64, u64)> {
        let first = |(number, run): (&u64, &Run<'_>)| run.queue.front().map(|due| (*number, due.turn));
        self.runs.iter().filter(|(_, run)| !run.busy).find_map(first)
    }

    /// Whether the last run takes more tasks.
    pub(crate) fn is_open(&self, each: u64) -> bool {
        self.begun > 0 && self.runs.get(&(self.begun - 1)).is_some_and(|run| run.assigned < each)
    }

    /// Hand a task to the last run, or to a new one.
    pub(crate) fn assign(&mut self, each: u64, due: Due) {
        if !self.is_open(each) {
            let done = Done { first: due.number, ..Done::default() };
            let run = Run { queue: VecDeque::new(), assigned: 0, busy: false, core: None, done };
            self.runs.insert(self.begun, run);
            self.begun += 1;
        }
        let run = self.runs.get_mut(&(self.begun - 1)).expect("the last run");
        run.assigned += 1;
        run.done.turn = due.turn;
        self.turn = due.turn;
        run.queue.push_back(due);
    }

    /// All inputs were cut, which is known since this turn.
    pub(crate) fn end(&mut self, each: u64, turn: u64) {
        (self.ended, self.turn) = (true, self.turn.max(turn));
        if self.is_open(each) {
            self.runs.get_mut(&(self.begun - 1)).expect("the last run").done.turn = self.turn;
        }
    }

    /// Runs that are done wait for delivery; their cores are free.
    pub(crate) fn settle(&mut self, stage: usize, each: u64) -> Result<(), Failed> {
        let over = |run: &Run<'_>, ended: bool| {
            !run.busy && run.queue.is_empty() && run.core.is_some() && (ended || run.assigned == each)
        };
        let done: Vec<u64> = self.runs.iter().filter(|(_, run)| over(run, self.ended)).map(|(n, _)| *n).collect();
        for number in done {
            let mut run = self.runs.remove(&number).expect("a run that is done");
            let mut core = run.core.take().expect("its core");
            let turn = run.done.turn;
            run.done.state = core.state().map_err(|e| (When { turn, stage, run: number }, e))?;
            self.cores.push(core);
            self.waiting.insert(number, run.done);
        }
        Ok(())
    }

    /// Whether all was delivered.
    pub(crate) fn is_over(&self) -> bool {
        self.ended && self.next == self.begun && !self.delivering
    }

    /// What comes next, by what there is.
    pub(crate) fn look(
        &mut self,
        stage: &Stage<'_, 'p>,
        supplies: &[Supply],
        held: Option<&Held>,
    ) -> Result<Next, RunError> {
        self.tasks.next(stage.program.metadata(), supplies, held)
    }
}
