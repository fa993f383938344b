//! The board: what is to be done next in a run of one or more stages, and by whom.
//!
//! Threads come to the board for a [`Job`] and bring back what came of it. Stages near the end come first, so that what is
//! held on the way stays little; a stage whose readers are too far behind gets no new tasks. Where that would make everything
//! wait (a reader needs more before it can begin), the reader that is least behind is let fall behind further, up to a limit.
//! The board decides; it reads, runs and writes nothing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::error::RunError;
use crate::held::Held;
use crate::run::{Progress, Source};
use crate::stage::{Due, From, Part, Stage, Work};
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
    /// The first stage that failed, the first of its runs, and why.
    pub(crate) error: Option<(usize, u64, RunError)>,
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

    /// Somebody failed; what counts is the first stage, and of it the first run.
    pub(crate) fn fail(&mut self, stage: usize, run: u64, error: RunError) {
        if self.error.as_ref().is_none_or(|(s, r, _)| (stage, run) < (*s, *r)) {
            self.error = Some((stage, run, error));
        }
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
            if self.error.is_none() && plan.progress.stop.load(Ordering::Relaxed) {
                self.fail(0, 0, RunError::Cancelled);
            }
            if let Some((stage, run, _)) = self.error {
                // Runs before the one that failed still have their say.
                return match self.stages[stage].ready(run) {
                    Some(earlier) => Pick::Job(self.tasks(stage, earlier)),
                    None if self.running == 0 => Pick::Over,
                    None => Pick::Wait,
                };
            }
            if self.stages.iter().all(|work| work.finished) {
                return Pick::Over;
            }
            let mut full = Vec::new();
            for stage in (0..self.stages.len()).rev() {
                match self.look(plan, stage, &mut full) {
                    Ok(Some(job)) => return Pick::Job(job),
                    Ok(None) => {}
                    Err((run, error)) => {
                        self.fail(stage, run, error);
                        break;
                    }
                }
            }
            if self.error.is_none() {
                if self.running > 0 {
                    return Pick::Wait;
                }
                self.ease(plan, &full);
            }
        }
    }

    /// What there is to do for a stage; notes which reader of it is too far behind.
    fn look(
        &mut self,
        plan: &Plan<'_, 'p>,
        stage: usize,
        full: &mut Vec<(u64, usize, usize, usize)>,
    ) -> Result<Option<Job<'p>>, (u64, RunError)> {
        let each = plan.stages[stage].tasks_a_run();
        let work = &mut self.stages[stage];
        if work.finished {
            return Ok(None);
        }
        if !work.loaded {
            let there = |supply: &Supply| supply.closed;
            let metadata = plan.stages[stage].program.metadata();
            let supplies = self.supplies(plan, stage);
            crate::tasks::check(metadata, &supplies).map_err(|e| (0, e))?;
            let ready = metadata.inputs.iter().zip(&supplies).filter(|(port, _)| port.whole).all(|(_, s)| there(s));
            let work = &mut self.stages[stage];
            if ready && !work.loading {
                work.loading = true;
                return Ok(Some(Job::Load { stage }));
            }
            return Ok(None);
        }
        if work.ready(u64::MAX).is_none() && !work.ended {
            self.hand_out(plan, stage, each, full)?;
        }
        let work = &mut self.stages[stage];
        if !work.delivering && work.waiting.contains_key(&work.next) {
            work.delivering = true;
            return Ok(Some(Job::Deliver { stage, folder: work.folder.take() }));
        }
        if work.is_over() {
            work.delivering = true;
            return Ok(Some(Job::Finish { stage, folder: work.folder.take(), tasks: work.tasks.count() }));
        }
        Ok(work.ready(u64::MAX).map(|run| self.tasks(stage, run)))
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
    ) -> Result<(), (u64, RunError)> {
        loop {
            let work = &self.stages[stage];
            let open = work.is_open(each);
            let (begun, ready) = (work.begun, work.ready(u64::MAX).is_some());
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
            match next.map_err(|e| (begun, e))? {
                Next::Wait => return Ok(()),
                Next::End => {
                    self.stages[stage].ended = true;
                    return self.stages[stage].settle(each);
                }
                Next::Task(cut) => {
                    if let Some(behind) = self.behind(plan, stage) {
                        full.push(behind);
                        return Ok(());
                    }
                    let due = self.due(plan, stage, cut);
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

    /// Everything waits: let a reader fall behind further, or give up.
    fn ease(&mut self, plan: &Plan<'_, 'p>, full: &[(u64, usize, usize, usize)]) {
        let &(_, stage, output, reader) =
            full.iter().min().expect("stages that wait for each other wait for one whose readers are behind");
        let held: u64 = self.stages.iter().flat_map(|work| &work.outputs).map(Held::held).sum();
        if held >= plan.hold_bytes {
            let name = plan.stages[stage].program.metadata().outputs[output].name.clone();
            self.fail(stage, 0, RunError::Held { output: name, held, most: plan.hold_bytes });
            return;
        }
        *self.stages[stage].eased.entry((output, reader)).or_default() += 1;
    }

    /// Take a task's inputs.
    fn due(&mut self, plan: &Plan<'_, 'p>, stage: usize, cut: Cut) -> Due {
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
        Due { number, cut, parts }
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
