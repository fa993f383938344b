//! The board: what is to be done next in a run of one or more stages, and by whom.
//!
//! Threads come to the board for a [`Job`] and bring back what came of it. Stages near the end come first, so that what is
//! held on the way stays little; a stage whose readers are too far behind gets no new tasks. Where that would make everything
//! wait (a reader needs more before it can begin), the reader that is least behind is let fall behind further, up to a limit.
//! When something has failed, only what comes before it in the order of [`When`] is still done, so that the failure that counts
//! is the same each time. The board decides; it reads, runs and writes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi;
use crate::core::Core;
use crate::error::RunError;
use crate::held::Held;
use crate::run::{Progress, Source};
use crate::stage::{Due, Failed, From, Part, Stage, When, Work};
use crate::tasks::{Cut, Next, Supply};

/// Runs that may wait for those before them, for each thread.
const RUNS_AHEAD: u64 = 4;

/// Something for one thread to do.
pub(crate) enum Job<'p> {
    /// Tasks of a run. Without a core it is to be made, without `begun` its state is to begin.
    Tasks { stage: usize, run: u64, queue: VecDeque<Due>, core: Option<Core<'p>>, begun: bool, first: u64 },
    /// Read whole inputs, and look for where records end.
    Load { stage: usize },
    /// Give what runs gave to others, in order.
    Deliver { stage: usize, folder: Option<Core<'p>> },
    /// All was delivered: the program's end.
    Finish { stage: usize, folder: Option<Core<'p>>, tasks: u64 },
}

/// What a thread is told.
pub(crate) enum Pick<'p> {
    Job(Job<'p>),
    /// Come again when something has moved.
    Wait,
    /// There is nothing to do any more.
    Over,
}

/// What never changes in a run.
pub(crate) struct Plan<'s, 'p> {
    pub(crate) stages: &'s [Stage<'s, 'p>],
    pub(crate) source: &'s dyn Source,
    pub(crate) progress: &'s Progress,
    pub(crate) threads: u64,
    pub(crate) hold_bytes: u64,
    /// For each output of each stage who reads it: stage and input, in the order of its readers.
    pub(crate) readers: Vec<Vec<Vec<(usize, usize)>>>,
}

/// The state of a run.
pub(crate) struct Board<'p> {
    pub(crate) stages: Vec<Work<'p>>,
    /// Jobs that threads are at.
    pub(crate) running: usize,
    /// The earliest failure so far.
    pub(crate) error: Option<Failed>,
    /// A thread is gone that others would wait for.
    pub(crate) broken: bool,
}

impl<'p> Board<'p> {
    pub(crate) fn new(plan: &mut Plan<'_, 'p>) -> Self {
        let mut stages: Vec<Work<'p>> = Vec::new();
        plan.readers = Vec::new();
        for (number, stage) in plan.stages.iter().enumerate() {
            let mut from = Vec::new();
            for (input, feed) in stage.inputs.iter().enumerate() {
                from.push(match *feed {
                    crate::stage::Feed::Outside(outside) => From::Outside(outside),
                    crate::stage::Feed::Output { stage, output } => {
                        plan.readers[stage][output].push((number, input));
                        From::Held { stage, output, reader: stages[stage].outputs[output].reader() }
                    }
                });
            }
            stages.push(Work::new(stage, from, plan.source));
            plan.readers.push(vec![Vec::new(); stage.outputs.len()]);
        }
        Self { stages, running: 0, error: None, broken: false }
    }

    /// Somebody failed; what counts is the earliest. Of a run that is ended from outside it is a task that says where it was.
    pub(crate) fn fail(&mut self, (when, error): Failed) {
        match (&self.error, &error) {
            (Some((_, RunError::Cancelled(Some(_)))), RunError::Cancelled(_)) => {}
            (&Some((first, RunError::Cancelled(None))), RunError::Cancelled(Some(_))) => {
                self.error = Some((first, error));
            }
            _ if self.is_due(when) => self.error = Some((when, error)),
            _ => {}
        }
    }

    /// Whether it comes before whatever has failed.
    pub(crate) fn is_due(&self, when: When) -> bool {
        self.error.as_ref().is_none_or(|(failed, _)| when < *failed)
    }

    /// Whether the next run of a stage may be given on.
    pub(crate) fn is_to_deliver(&self, stage: usize) -> bool {
        let work = &self.stages[stage];
        let next = work.waiting.get(&work.next);
        next.is_some_and(|done| self.is_due(When { turn: done.turn, stage, run: work.next }))
    }

    /// What there is of each input of a stage.
    pub(crate) fn supplies(&self, plan: &Plan<'_, 'p>, stage: usize) -> Vec<Supply> {
        let one = |from: &From| match *from {
            From::Outside(input) => Supply { bytes: plan.source.bytes(input), closed: true },
            From::Held { stage, output, .. } => {
                let held = &self.stages[stage].outputs[output];
                Supply { bytes: held.end(), closed: held.is_closed() }
            }
        };
        self.stages[stage].from.iter().map(one).collect()
    }

    /// What to do next.
    pub(crate) fn pick(&mut self, plan: &Plan<'_, 'p>) -> Pick<'p> {
        if self.broken {
            return Pick::Over;
        }
        loop {
            if plan.progress.stop.load(Ordering::Relaxed) {
                self.fail((When { turn: 0, stage: 0, run: 0 }, RunError::Cancelled(None)));
            }
            if self.stages.iter().all(|work| work.finished) {
                return Pick::Over;
            }
            let mut full = Vec::new();
            for stage in (0..self.stages.len()).rev() {
                match self.look(plan, stage, &mut full) {
                    Ok(Some(job)) => return Pick::Job(job),
                    Ok(None) => {}
                    Err(failed) => self.fail(failed),
                }
            }
            if self.running > 0 {
                return Pick::Wait;
            }
            if !self.ease(plan, &full) {
                return Pick::Over;
            }
        }
    }

    /// What there is to do for a stage; notes which reader of it is too far behind.
    fn look(
        &mut self,
        plan: &Plan<'_, 'p>,
        stage: usize,
        full: &mut Vec<(u64, usize, usize, usize)>,
    ) -> Result<Option<Job<'p>>, Failed> {
        let each = plan.stages[stage].tasks_a_run();
        let work = &mut self.stages[stage];
        if work.finished {
            return Ok(None);
        }
        if !work.loaded {
            let there = |supply: &Supply| supply.closed;
            let metadata = plan.stages[stage].program.metadata();
            let supplies = self.supplies(plan, stage);
            crate::tasks::check(metadata, &supplies).map_err(|e| (self.misfit(plan, stage), e))?;
            let ready = metadata.inputs.iter().zip(&supplies).filter(|(port, _)| port.whole).all(|(_, s)| there(s));
            let due = self.is_due(self.loads(plan, stage));
            let work = &mut self.stages[stage];
            if ready && due && !work.loading {
                work.loading = true;
                return Ok(Some(Job::Load { stage }));
            }
            return Ok(None);
        }
        if work.ready().is_none() && !work.ended {
            self.hand_out(plan, stage, each, full)?;
        }
        let deliver = self.is_to_deliver(stage);
        let finish = self.is_due(self.end(stage));
        let work = &mut self.stages[stage];
        if deliver && !work.delivering {
            work.delivering = true;
            return Ok(Some(Job::Deliver { stage, folder: work.folder.take() }));
        }
        if finish && work.is_over() {
            work.delivering = true;
            return Ok(Some(Job::Finish { stage, folder: work.folder.take(), tasks: work.tasks.count() }));
        }
        let ready = work.ready();
        Ok(ready.filter(|&(run, turn)| self.is_due(When { turn, stage, run })).map(|(run, _)| self.tasks(stage, run)))
    }

    /// The job of a run that is ready.
    fn tasks(&mut self, stage: usize, number: u64) -> Job<'p> {
        let work = &mut self.stages[stage];
        let run = work.runs.get_mut(&number).expect("a run that is ready");
        run.busy = true;
        let begun = run.core.is_some();
        let core = run.core.take().or_else(|| work.cores.pop());
        let (queue, first) = (std::mem::take(&mut run.queue), run.done.first);
        Job::Tasks { stage, run: number, queue, core, begun, first }
    }

    /// Cut inputs that are there into tasks, until there is a run to work on.
    fn hand_out(
        &mut self,
        plan: &Plan<'_, 'p>,
        stage: usize,
        each: u64,
        full: &mut Vec<(u64, usize, usize, usize)>,
    ) -> Result<(), Failed> {
        loop {
            let work = &self.stages[stage];
            let open = work.is_open(each);
            let (begun, ready) = (work.begun, work.ready().is_some());
            if !open && (ready || begun >= work.next + RUNS_AHEAD * plan.threads) {
                return Ok(());
            }
            let supplies = self.supplies(plan, stage);
            // What the first input holds is looked into while the stage is changed: it is another stage's.
            let held = match self.stages[stage].from[0] {
                From::Held { stage, output, .. } => Some(std::mem::take(&mut self.stages[stage].outputs[output])),
                From::Outside(_) => None,
            };
            let next = self.stages[stage].look(&plan.stages[stage], &supplies, held.as_ref());
            if let (From::Held { stage, output, .. }, Some(held)) = (self.stages[stage].from[0], held) {
                self.stages[stage].outputs[output] = held;
            }
            match next.map_err(|e| (self.misfit(plan, stage), e))? {
                Next::Wait => return Ok(()),
                Next::End => {
                    let turn = self.ended(stage);
                    self.stages[stage].end(each, turn);
                    return self.stages[stage].settle(stage, each);
                }
                Next::Task(cut, told) => {
                    let turn = self.turn(plan, stage, cut, told);
                    let run = if open { begun - 1 } else { begun };
                    if !self.is_due(When { turn, stage, run }) {
                        return Ok(());
                    }
                    if let Some(behind) = self.behind(plan, stage) {
                        full.push(behind);
                        return Ok(());
                    }
                    let due = self.due(plan, stage, cut, turn);
                    self.stages[stage].assign(each, due);
                    plan.progress.more(stage, 1);
                }
            }
        }
    }

    /// The reader that a stage has to wait for, with what it may have before it: bytes, stage, output, reader.
    fn behind(&self, plan: &Plan<'_, 'p>, stage: usize) -> Option<(u64, usize, usize, usize)> {
        let work = &self.stages[stage];
        for (output, held) in work.outputs.iter().enumerate() {
            for (reader, &(whose, input)) in plan.readers[stage][output].iter().enumerate() {
                let theirs = &plan.stages[whose];
                if theirs.program.metadata().inputs[input].whole {
                    continue;
                }
                let tasks = theirs.tasks_a_run() * (plan.threads + 1);
                let need = self.stages[whose].tasks.need(theirs.program.metadata(), input).saturating_mul(tasks);
                let eased = work.eased.get(&(output, reader)).copied().unwrap_or(0);
                let room = need.saturating_mul(1 << eased.min(62));
                if held.ahead(reader) >= room {
                    return Some((room, stage, output, reader));
                }
            }
        }
        None
    }

    /// Everything waits: let a reader fall behind further; tells if nothing goes on.
    fn ease(&mut self, plan: &Plan<'_, 'p>, full: &[(u64, usize, usize, usize)]) -> bool {
        let Some(&(_, stage, output, reader)) = full.iter().min() else {
            assert!(self.error.is_some(), "stages that wait for each other wait for one whose readers are behind");
            return false;
        };
        let held: u64 = self.stages.iter().flat_map(|work| &work.outputs).map(Held::held).sum();
        if held >= plan.hold_bytes {
            let name = plan.stages[stage].program.metadata().outputs[output].name.clone();
            let error = RunError::Held { output: name, held, most: plan.hold_bytes };
            self.fail((When { turn: u64::MAX, stage, run: 0 }, error));
            return false;
        }
        *self.stages[stage].eased.entry((output, reader)).or_default() += 1;
        true
    }

    /// Take a task's inputs.
    fn due(&mut self, plan: &Plan<'_, 'p>, stage: usize, cut: Cut, turn: u64) -> Due {
        let number = self.stages[stage].tasks.count();
        self.stages[stage].tasks.take(cut);
        let mut parts = Vec::new();
        for (input, port) in plan.stages[stage].program.metadata().inputs.iter().enumerate() {
            if port.whole {
                parts.push(Part::Whole(self.stages[stage].whole[input].clone()));
                continue;
            }
            let (from, to) = (cut.first * port.record_bytes, (cut.first + cut.records) * port.record_bytes);
            parts.push(match self.stages[stage].from[input] {
                From::Outside(outside) => Part::Outside(from, to.min(plan.source.bytes(outside)) - from),
                From::Held { stage, output, reader } => {
                    let held = &mut self.stages[stage].outputs[output];
                    Part::Pieces(held.take(reader, to.min(held.end())))
                }
            });
        }
        let extents = match (&self.stages[stage].from[0], parts.first()) {
            (From::Outside(outside), Some(Part::Outside(from, _))) => plan.source.extents(*outside, *from),
            _ => Vec::new(),
        };
        Due { number, cut, turn, extents, parts }
    }

    /// The turn of a task; what told that it is one is as in [`Next::Task`].
    fn turn(&self, plan: &Plan<'_, 'p>, stage: usize, cut: Cut, told: Option<u64>) -> u64 {
        let (work, ports) = (&self.stages[stage], &plan.stages[stage].program.metadata().inputs);
        let mut turn = self.loads(plan, stage).turn.max(work.turn);
        for (input, port) in ports.iter().enumerate().filter(|(_, port)| !port.whole) {
            let behind = told.map(|bytes| if input == 0 { bytes } else { 0 });
            let to = behind.map_or(u64::MAX, |bytes| (cut.first + cut.records) * port.record_bytes + bytes);
            turn = turn.max(match work.from[input] {
                From::Outside(_) => work.tasks.count(),
                From::Held { stage, output, .. } => self.stages[stage].outputs[output].turn(to),
            });
        }
        turn
    }

    /// When a stage's whole inputs are there.
    pub(crate) fn loads(&self, plan: &Plan<'_, 'p>, stage: usize) -> When {
        let ports = &plan.stages[stage].program.metadata().inputs;
        let ends = self.stages[stage].from.iter().zip(ports).filter(|(_, port)| port.whole);
        let turn = ends.map(|(from, _)| self.closed(from)).max().unwrap_or(0);
        When { turn, stage, run: 0 }
    }

    /// When a stage, all of whose inputs were cut, comes to its end.
    pub(crate) fn end(&self, stage: usize) -> When {
        When { turn: self.stages[stage].turn, stage, run: u64::MAX }
    }

    /// The turn of the end of all inputs of a stage.
    fn ended(&self, stage: usize) -> u64 {
        self.stages[stage].from.iter().map(|from| self.closed(from)).max().unwrap_or(0)
    }

    /// The turn of an input's end; 0 if it is not there, or comes from outside.
    fn closed(&self, from: &From) -> u64 {
        match *from {
            From::Outside(_) => 0,
            From::Held { stage, output, .. } => self.stages[stage].outputs[output].turn(u64::MAX),
        }
    }

    /// When it is known that a stage's inputs do not fit: one has ended before another, or a task would be too large.
    fn misfit(&self, plan: &Plan<'_, 'p>, stage: usize) -> When {
        let (work, ports) = (&self.stages[stage], &plan.stages[stage].program.metadata().inputs);
        let supplies = self.supplies(plan, stage);
        let cut = || ports.iter().zip(&supplies).filter(|(port, _)| !port.whole);
        let records = cut().filter(|(_, s)| s.closed).map(|(port, s)| s.bytes.div_ceil(port.record_bytes)).min();
        let mut turn = work.turn;
        for ((port, supply), from) in ports.iter().zip(&supplies).zip(&work.from) {
            let From::Held { stage, output, .. } = *from else { continue };
            // The first byte that is too many; where it never comes, the end.
            let most = match records {
                _ if port.whole => abi::WINDOW_BYTES,
                Some(records) if cut().count() > 1 => records.saturating_mul(port.record_bytes),
                _ => work.tasks.first().saturating_add(abi::WINDOW_BYTES),
            };
            let to = if supply.bytes > most { most + 1 } else { u64::MAX };
            turn = turn.max(self.stages[stage].outputs[output].turn(to));
        }
        When { turn, stage, run: work.begun }
    }

    /// What is there of a stage's whole inputs that other stages gave.
    pub(crate) fn wholes(&mut self, plan: &Plan<'_, 'p>, stage: usize) -> BTreeMap<usize, Part> {
        let mut found = BTreeMap::new();
        for (input, _) in plan.stages[stage].program.metadata().inputs.iter().enumerate().filter(|(_, p)| p.whole) {
            let part = match self.stages[stage].from[input] {
                From::Outside(outside) => Part::Outside(0, plan.source.bytes(outside)),
                From::Held { stage, output, reader } => {
                    let held = &mut self.stages[stage].outputs[output];
                    let end = held.end();
                    Part::Pieces(held.take(reader, end))
                }
            };
            found.insert(input, part);
        }
        found
    }

    /// Whole inputs are there.
    pub(crate) fn loaded(&mut self, stage: usize, wholes: BTreeMap<usize, Vec<u8>>) {
        let work = &mut self.stages[stage];
        for (input, bytes) in wholes {
            work.whole[input] = Arc::new(bytes);
        }
        (work.loaded, work.loading) = (true, false);
    }
}
