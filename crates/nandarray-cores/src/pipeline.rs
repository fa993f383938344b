//! Running stages: threads that take jobs from the board, and do them.
//!
//! A stage's outputs are given on in the order of tasks, its states are folded in that order, and tasks are cut by bytes
//! alone, so that a pipeline gives what its programs give one after the other, on any number of cores. Of what one stage gives
//! another only as much is in memory as its readers need to go on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};

use crate::board::{Board, Job, Pick, Plan};
use crate::core::{Bounds, Core};
use crate::error::{RunError, StageError};
use crate::held::joined;
use crate::metadata::Phase;
use crate::program::Entry;
use crate::run::{Account, Progress, Sink, Source};
use crate::stage::{Done, Due, Failed, Feed, From, Own, Part, Stage, When, call, lent};
use crate::tasks::{Tasks, check};

/// How to run a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Resources {
    /// Threads; at least 1.
    pub threads: usize,
    /// The most bytes held between stages where one cannot go on without another having more.
    pub hold_bytes: u64,
}

/// What a stage came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Its state, folded.
    pub state: Vec<u8>,
    /// What it took: bytes from outside and from other stages, to outside and to other stages.
    pub account: Account,
}

/// What a pipeline came to, beside what the sink got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// Its stages.
    pub stages: Vec<Ended>,
    /// What it took: bytes from outside, and to the sink.
    pub account: Account,
}

/// Run stages, each over all of its inputs.
///
/// # Errors
/// [`StageError`]: which stage failed, and how its first task that failed did. If several stages fail, it is the same one each time:
/// the one whose task needs the fewest tasks on the way from outside, and of several such the first stage.
pub fn pipeline<'p>(
    stages: &[Stage<'_, 'p>],
    source: &dyn Source,
    sink: &mut dyn Sink,
    resources: Resources,
    progress: &Progress,
) -> Result<Completed, StageError> {
    let named = |stage: usize, error| {
        let program = stages[stage].program.metadata().name.clone();
        StageError { stage, program, error }
    };
    for (number, stage) in stages.iter().enumerate() {
        fits(stages, number, stage).map_err(|what| named(number, RunError::Inputs(what)))?;
    }
    progress.begin(stages.len());
    let threads = resources.threads.max(1) as u64;
    let hold_bytes = resources.hold_bytes;
    let mut plan = Plan { stages, source, progress, threads, hold_bytes, readers: Vec::new() };
    let board = Board::new(&mut plan);
    let mut runs = 0u64;
    for (number, stage) in stages.iter().enumerate() {
        let metadata = stage.program.metadata();
        let supplies = board.supplies(&plan, number);
        check(metadata, &supplies).map_err(|e| named(number, e))?;
        let expected = board.stages[number].tasks.expected(metadata, &supplies);
        progress.expect(number, expected);
        runs = runs.saturating_add(expected.map_or(u64::MAX, |tasks| tasks.div_ceil(stage.tasks_a_run())));
    }
    let crew = Crew { plan, board: Mutex::new(board), moved: Condvar::new(), sink: Mutex::new((sink, 0)) };
    std::thread::scope(|scope| {
        // The caller's thread is one of them.
        for _ in 1..threads.min(runs.max(1)) {
            scope.spawn(|| crew.work());
        }
        crew.work();
    });
    let (board, (_, given)) = (crew.board.into_inner(), crew.sink.into_inner());
    if let Some((when, error)) = board.error {
        return Err(named(when.stage, error));
    }
    let mut completed = Completed::default();
    for work in board.stages {
        assert!(work.finished && work.waiting.is_empty(), "every run of tasks was delivered");
        completed.account.tasks += work.account.tasks;
        completed.account.instructions += work.account.instructions;
        completed.stages.push(Ended { state: work.state, account: work.account });
    }
    completed.account.bytes_in = progress.bytes_in.load(Ordering::Relaxed);
    completed.account.bytes_out = given;
    Ok(completed)
}

/// Whether what a stage is given is what its program takes.
fn fits(stages: &[Stage<'_, '_>], number: usize, stage: &Stage<'_, '_>) -> Result<(), String> {
    let metadata = stage.program.metadata();
    for (given, wanted, what) in [
        (stage.scalars.len(), metadata.scalars.len(), "scalars"),
        (stage.inputs.len(), metadata.inputs.len(), "inputs"),
        (stage.outputs.len(), metadata.outputs.len(), "outputs"),
    ] {
        if given != wanted {
            return Err(format!("{given} {what} for a program that takes {wanted}"));
        }
    }
    for feed in &stage.inputs {
        if let Feed::Output { stage, output } = *feed {
            if stage >= number || output >= stages[stage].outputs.len() {
                return Err(format!("there is no output {output} of a stage {stage} before stage {number}"));
            }
        }
    }
    Ok(())
}

/// What the threads share.
struct Crew<'c, 's, 'p> {
    plan: Plan<'c, 'p>,
    board: Mutex<Board<'p>>,
    moved: Condvar,
    /// Where outputs go to, and bytes given there.
    sink: Mutex<(&'s mut dyn Sink, u64)>,
}

/// Tells the others if a thread is gone in the middle of a job.
struct Alarm<'a, 'c, 's, 'p>(&'a Crew<'c, 's, 'p>);

impl Drop for Alarm<'_, '_, '_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.board.lock().broken = true;
            self.0.moved.notify_all();
        }
    }
}

impl<'p> Crew<'_, '_, 'p> {
    fn work(&self) {
        let _alarm = Alarm(self);
        let mut own = Own::default();
        let mut board = self.board.lock();
        loop {
            match board.pick(&self.plan) {
                Pick::Over => break,
                Pick::Wait => self.moved.wait(&mut board),
                Pick::Job(job) => {
                    board.running += 1;
                    drop(board);
                    let done = self.one(job, &mut own);
                    board = self.board.lock();
                    board.running -= 1;
                    if let Err(failed) = done {
                        board.fail(failed);
                    }
                    self.moved.notify_all();
                }
            }
        }
        self.moved.notify_all();
    }

    fn one(&self, job: Job<'p>, own: &mut Own) -> Result<(), Failed> {
        match job {
            Job::Load { stage } => self.load(stage).map_err(|e| (self.board.lock().loads(&self.plan, stage), e)),
            Job::Tasks { stage, run, queue, core, begun, first } => {
                self.tasks(stage, run, queue, core, begun, first, own)
            }
            Job::Deliver { stage, folder } => self.deliver(stage, folder),
            Job::Finish { stage, folder, tasks } => {
                self.finish(stage, folder, tasks).map_err(|e| (self.board.lock().end(stage), e))
            }
        }
    }

    fn bounds(&self, stage: usize) -> Bounds<'_> {
        Bounds { instructions: self.plan.stages[stage].instructions, stop: &self.plan.progress.stop }
    }

    fn core(&self, stage: usize) -> Result<Core<'p>, RunError> {
        let stage = &self.plan.stages[stage];
        (stage.core)(stage.program).map_err(|e| RunError::Inputs(e.to_string()))
    }

    /// Read bytes of an input from outside.
    fn read(&self, stage: usize, input: usize, from: u64, into: &mut [u8]) -> Result<(), RunError> {
        let Feed::Outside(outside) = self.plan.stages[stage].inputs[input] else {
            unreachable!("what other stages give is in memory");
        };
        self.plan.source.read(outside, from, into).map_err(RunError::Transfer)?;
        self.plan.progress.bytes_in.fetch_add(into.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn load(&self, stage: usize) -> Result<(), RunError> {
        let this = &self.plan.stages[stage];
        let (parts, from) = {
            let mut board = self.board.lock();
            (board.wholes(&self.plan, stage), board.stages[stage].from[0])
        };
        let mut wholes = BTreeMap::new();
        let mut read = 0;
        for (input, part) in parts {
            let mut bytes = Vec::new();
            match part {
                Part::Outside(from, count) => {
                    bytes.resize(count as usize, 0);
                    self.read(stage, input, from, &mut bytes)?;
                }
                Part::Pieces(pieces) => joined(&pieces, &mut bytes),
                Part::Whole(_) => unreachable!("it is made here"),
            }
            read += bytes.len() as u64;
            wholes.insert(input, bytes);
        }
        let looks = self.board.lock().stages[stage].tasks.is_to_look();
        let edges = match from {
            From::Outside(outside) if looks => {
                Some(Tasks::look(this.program.metadata(), self.plan.source, outside, this.task_bytes)?)
            }
            _ => None,
        };
        let mut board = self.board.lock();
        if let Some(edges) = edges {
            board.stages[stage].tasks.at(edges);
            let supplies = board.supplies(&self.plan, stage);
            let expected = board.stages[stage].tasks.expected(this.program.metadata(), &supplies);
            self.plan.progress.expect(stage, expected);
        }
        board.stages[stage].account.bytes_in += read;
        board.loaded(stage, wholes);
        Ok(())
    }

    /// Work on tasks of a run.
    #[expect(clippy::too_many_arguments, reason = "they are what a job holds")]
    fn tasks(
        &self,
        stage: usize,
        run: u64,
        queue: VecDeque<Due>,
        core: Option<Core<'p>>,
        begun: bool,
        first: u64,
        own: &mut Own,
    ) -> Result<(), Failed> {
        let this = &self.plan.stages[stage];
        let mut at = When { turn: queue.front().map_or(0, |due| due.turn), stage, run };
        let mut core = core.map_or_else(|| self.core(stage), Ok).map_err(|e| (at, e))?;
        let before = core.instructions();
        let mut account = Account::default();
        let mut given = Vec::new();
        let mut done = if begun { Ok(()) } else { core.begin(this.scalars, first, self.bounds(stage)) };
        for due in queue {
            if done.is_ok() {
                at.turn = due.turn;
                done = self.task(stage, &mut core, due, own, &mut account).map(|one| given.push(one));
            }
        }
        let mut board = self.board.lock();
        let work = &mut board.stages[stage];
        account.instructions = core.instructions() - before;
        work.account.add(account);
        let slot = work.runs.get_mut(&run).expect("a run that somebody is at");
        slot.busy = false;
        done.map_err(|e| (at, e))?;
        slot.core = Some(core);
        slot.done.tasks.extend(given);
        work.settle(stage, this.tasks_a_run())
    }

    /// One task: its number and its outputs.
    fn task(
        &self,
        stage: usize,
        core: &mut Core<'p>,
        due: Due,
        own: &mut Own,
        account: &mut Account,
    ) -> Result<(u64, Vec<Vec<u8>>), RunError> {
        if self.plan.progress.stop.load(Ordering::Relaxed) {
            return Err(RunError::Cancelled(None));
        }
        let outputs = match self.lend(stage, core, &due, own, account)? {
            Some(outputs) => outputs,
            None => self.fetch(stage, core, &due, own, account)?,
        };
        account.tasks += 1;
        self.plan.progress.advance(stage);
        Ok((due.number, outputs))
    }

    /// A task with its input where it lies: if the core takes it so, and the source lends it.
    fn lend(
        &self,
        stage: usize,
        core: &mut Core<'p>,
        due: &Due,
        own: &mut Own,
        account: &mut Account,
    ) -> Result<Option<Vec<Vec<u8>>>, RunError> {
        // Of one input at most: a source that holds a lock for it must not be asked for another.
        let mut outside =
            due.parts.iter().enumerate().filter_map(|(i, part)| match (part, self.plan.stages[stage].inputs[i]) {
                (Part::Outside(from, bytes), Feed::Outside(number)) => Some((i, number, *from, *bytes)),
                _ => None,
            });
        let (Some((input, number, from, bytes)), None, true) = (outside.next(), outside.next(), core.lends()) else {
            return Ok(None);
        };
        if due.parts.iter().any(|part| matches!(part, Part::Pieces(_))) {
            return Ok(None);
        }
        let mut ran = None;
        let mut call = |lent: &[u8]| {
            let bytes = |(i, part): (usize, &'_ Part)| match part {
                Part::Whole(bytes) if i != input => bytes.clone(),
                _ => Arc::default(),
            };
            let wholes: Vec<Arc<Vec<u8>>> = due.parts.iter().enumerate().map(bytes).collect();
            let inputs: Vec<&[u8]> =
                wholes.iter().enumerate().map(|(i, w)| if i == input { lent } else { &w[..] }).collect();
            ran = Some(call(&self.plan.stages[stage], core, due, &inputs, &mut own.rooms, self.bounds(stage)));
        };
        self.plan.source.lend(number, from, bytes, &mut call).map_err(RunError::Transfer)?;
        if ran.is_some() {
            self.plan.progress.bytes_in.fetch_add(bytes, Ordering::Relaxed);
            account.bytes_in += bytes;
        }
        ran.transpose()
    }

    /// A task with its inputs in windows.
    fn fetch(
        &self,
        stage: usize,
        core: &mut Core<'p>,
        due: &Due,
        own: &mut Own,
        account: &mut Account,
    ) -> Result<Vec<Vec<u8>>, RunError> {
        let Own { windows, rooms } = own;
        if windows.len() < due.parts.len() {
            windows.resize_with(due.parts.len(), Vec::new);
        }
        for (input, part) in due.parts.iter().enumerate() {
            match part {
                Part::Outside(from, bytes) => {
                    windows[input].resize(*bytes as usize, 0);
                    self.read(stage, input, *from, &mut windows[input])?;
                    account.bytes_in += bytes;
                }
                Part::Pieces(pieces) => {
                    if lent(pieces).is_none() {
                        joined(pieces, &mut windows[input]);
                    }
                    account.bytes_in += pieces.iter().map(|(_, range)| range.len() as u64).sum::<u64>();
                }
                Part::Whole(_) => {}
            }
        }
        let inputs: Vec<&[u8]> = due
            .parts
            .iter()
            .zip(windows.iter())
            .map(|(part, window)| match part {
                Part::Whole(bytes) => &bytes[..],
                Part::Pieces(pieces) => lent(pieces).unwrap_or(window),
                Part::Outside(..) => &window[..],
            })
            .collect();
        call(&self.plan.stages[stage], core, due, &inputs, rooms, self.bounds(stage))
    }

    /// Give on what runs gave, in order, as far as they are there.
    fn deliver(&self, stage: usize, mut folder: Option<Core<'p>>) -> Result<(), Failed> {
        loop {
            let (run, done) = {
                let mut board = self.board.lock();
                let due = board.is_to_deliver(stage);
                let work = &mut board.stages[stage];
                let next = work.next;
                let Some(done) = work.waiting.remove(&next).filter(|_| due) else {
                    (work.folder, work.delivering) = (folder, false);
                    return Ok(());
                };
                (next, done)
            };
            let Done { first, tasks, state, turn } = done;
            let at = |e| (When { turn, stage, run }, e);
            let mut on = Vec::new();
            let (mut bytes_out, mut instructions) = (0, 0);
            for (task, outputs) in tasks {
                for (output, bytes) in outputs.into_iter().enumerate() {
                    if self.plan.stages[stage].program.metadata().outputs[output].phase == Phase::Task {
                        bytes_out += bytes.len() as u64;
                        self.give(stage, output, Some(task), bytes, &mut on).map_err(at)?;
                    }
                }
            }
            if !state.is_empty() {
                instructions = self.fold(stage, &mut folder, first, &state).map_err(at)?;
            }
            let mut board = self.board.lock();
            let work = &mut board.stages[stage];
            on.into_iter().for_each(|(output, bytes)| work.outputs[output].push(bytes, turn));
            work.account.add(Account { bytes_out, instructions, ..Account::default() });
            work.next += 1;
            self.moved.notify_all();
        }
    }

    /// Give an output to the sink and, by `on`, to other stages.
    fn give(
        &self,
        stage: usize,
        output: usize,
        task: Option<u64>,
        bytes: Vec<u8>,
        on: &mut Vec<(usize, Vec<u8>)>,
    ) -> Result<(), RunError> {
        let read = !self.plan.readers[stage][output].is_empty();
        let Some(number) = self.plan.stages[stage].outputs[output] else {
            if read {
                on.push((output, bytes));
            }
            return Ok(());
        };
        if read {
            on.push((output, bytes.clone()));
        }
        let (sink, given) = &mut *self.sink.lock();
        *given += bytes.len() as u64;
        match task {
            Some(task) => sink.take(number, task, bytes),
            None => sink.end(number, bytes),
        }
        .map_err(RunError::Transfer)
    }

    /// Fold the state of the run that begins with a task into those before; tells the instructions of it.
    fn fold(&self, stage: usize, folder: &mut Option<Core<'p>>, first: u64, state: &[u8]) -> Result<u64, RunError> {
        let this = &self.plan.stages[stage];
        match folder {
            Some(core) if this.program.entry(Entry::Merge).is_some() => {
                let before = core.instructions();
                core.merge(this.scalars, state, first, self.bounds(stage))?;
                Ok(core.instructions() - before)
            }
            Some(_) => Ok(0),
            None => {
                let mut core = self.core(stage)?;
                core.begin(this.scalars, 0, self.bounds(stage))?;
                core.set_state(state)?;
                let instructions = core.instructions();
                *folder = Some(core);
                Ok(instructions)
            }
        }
    }

    /// The program's end: outputs of that phase, and nothing comes any more.
    fn finish(&self, stage: usize, folder: Option<Core<'p>>, tasks: u64) -> Result<(), RunError> {
        let this = &self.plan.stages[stage];
        let metadata = this.program.metadata();
        let (mut on, mut state, mut account) = (Vec::new(), Vec::new(), Account::default());
        let ends = this.program.entry(Entry::End).is_some();
        if ends || metadata.state_bytes > 0 {
            let (mut core, before) = match folder {
                Some(core) => {
                    let before = core.instructions();
                    (core, before)
                }
                None => {
                    let mut core = self.core(stage)?;
                    core.begin(this.scalars, tasks, self.bounds(stage))?;
                    (core, 0)
                }
            };
            state = core.state()?;
            if ends {
                let mut outputs = vec![Vec::new(); metadata.outputs.len()];
                let used = core.end(this.scalars, tasks, &mut outputs, self.bounds(stage))?;
                for (output, (mut bytes, used)) in outputs.into_iter().zip(used).enumerate() {
                    if metadata.outputs[output].phase == Phase::End {
                        bytes.truncate(used as usize);
                        account.bytes_out += used;
                        self.give(stage, output, None, bytes, &mut on)?;
                    }
                }
            }
            account.instructions = core.instructions() - before;
        }
        let mut board = self.board.lock();
        let work = &mut board.stages[stage];
        let turn = work.turn;
        on.into_iter().for_each(|(output, bytes)| work.outputs[output].push(bytes, turn));
        work.outputs.iter_mut().for_each(|output| output.close(turn));
        work.account.add(account);
        work.cores.clear();
        (work.state, work.finished) = (state, true);
        Ok(())
    }
}
