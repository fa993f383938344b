//! The scheduler of a run: it decides which task is ready, in which order tasks run, and when a producer must wait.
//!
//! Stages that feed each other form a pipeline; a run may have several. The pipeline with the fewest jobs in flight
//! comes first, so that pipelines share the executor evenly. Within a pipeline stages near the end come first, which
//! keeps queues short; a stage gets no new tasks while one of its readers has too many unread bytes (back-pressure). If
//! all stages would wait for that reason, since a reader needs more bytes before it can begin, the smallest bound of a
//! reader is doubled, up to a limit. After a failure only jobs before the failed one in the order of [`Rank`] are still
//! done, so that the same failure is reported each time. The scheduler only decides: it reads, runs and writes nothing,
//! and owns no thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nandarray_cores::{RunError, abi};

use crate::context::StageContext;
use crate::cut::{Cut, NextCut, Supply, check};
use crate::io::InputSource;
use crate::job::Job;
use crate::progress::Progress;
use crate::queue::StreamQueue;
use crate::share::Share;
use crate::shares::Pipeline;
use crate::stage::{Failed, Origin, Rank, Stage, StageState};
use crate::work::{Buffers, DeliverJob, FinishJob, JobWork, Load, TaskJob};

mod consume;

/// Most runs of tasks, per worker, that one stage may have begun without having delivered their outputs.
const RUNS_AHEAD: u64 = 4;

/// The scheduler's answer to a worker that picks a job.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all that are made are jobs, and they are moved once")]
pub enum Next<'s, 'p> {
    /// A job to do.
    Job(Job<'s, 'p>),
    /// No job is ready: pick again when a job in flight has come back.
    Wait,
    /// No job is left: the run is over.
    Over,
}

/// The part of a run's state that never changes.
pub(crate) struct RunPlan<'s, 'p> {
    pub(crate) stages: &'s [Stage<'s, 'p>],
    pub(crate) source: &'s dyn InputSource,
    pub(crate) progress: &'s Progress,
    /// The share of the only stage that this run has; of all stages [`Share::All`], if there are several.
    pub(crate) share: Share<'s>,
    pub(crate) workers: u64,
    pub(crate) hold_bytes: u64,
    /// For each stage and output its readers as (stage, input), in the order of their reader numbers in the output's
    /// queue.
    pub(crate) readers: Vec<Arc<Vec<Vec<(usize, usize)>>>>,
}

/// A reader whose backlog is at its bound: (bound in bytes, producing stage, output of that stage, reader number).
type BlockedReader = (u64, usize, usize, usize);

/// The part of a run's state that changes.
pub(crate) struct Scheduler<'p> {
    pub(crate) stages: Vec<StageState<'p>>,
    /// The pipelines of the run.
    pipelines: Vec<Pipeline>,
    /// Number of jobs in flight.
    pub(crate) running: usize,
    /// The failure with the smallest rank so far, with that rank.
    pub(crate) error: Option<Failed>,
    /// Whether the executor failed: no further job is handed out.
    pub(crate) aborted: bool,
    /// Buffers that no job is using.
    pub(crate) buffers: Vec<Buffers>,
}

impl<'s, 'p> RunPlan<'s, 'p> {
    /// Makes a job of a stage.
    fn job(&self, stage: usize, rank: Rank, work: JobWork<'p>) -> Job<'s, 'p> {
        let readers = self.readers[stage].clone();
        let (source, progress, share) = (self.source, self.progress, self.share);
        Job {
            context: StageContext { number: stage, stage: &self.stages[stage], readers, source, progress, share },
            rank,
            work,
        }
    }
}

impl<'p> Scheduler<'p> {
    pub(crate) fn new(plan: &mut RunPlan<'_, 'p>) -> Self {
        let mut stages: Vec<StageState<'p>> = Vec::new();
        let mut read: Vec<Vec<Vec<(usize, usize)>>> = Vec::new();
        for (number, stage) in plan.stages.iter().enumerate() {
            let mut readers = vec![0; stage.inputs.len()];
            for (input, origin) in stage.inputs.iter().enumerate() {
                if let Origin::Stage { stage, output } = *origin {
                    read[stage][output].push((number, input));
                    readers[input] = stages[stage].queues[output].add_reader();
                }
            }
            stages.push(StageState::new(stage, readers, plan.source));
            read.push(vec![Vec::new(); stage.outputs.len()]);
        }
        plan.readers = read.into_iter().map(Arc::new).collect();
        let pipelines = Pipeline::all_of(plan.stages);
        Self { stages, pipelines, running: 0, error: None, aborted: false, buffers: Vec::new() }
    }

    /// Notes a failure; the one with the smallest rank is reported. If the run was cancelled, the first error that
    /// names a task is kept, since it says where the program was.
    pub(crate) fn fail(&mut self, (rank, error): Failed) {
        match (&self.error, &error) {
            (Some((_, RunError::Cancelled(Some(_)))), RunError::Cancelled(_)) => {}
            (&Some((first, RunError::Cancelled(None))), RunError::Cancelled(Some(_))) => {
                self.error = Some((first, error));
            }
            _ if self.is_due(rank) => self.error = Some((rank, error)),
            _ => {}
        }
    }

    /// Notes that a job of a stage has come back, done or failed.
    pub(crate) fn come_back(&mut self, stage: usize) {
        assert!(self.running > 0, "a job comes back that was not handed out");
        self.running -= 1;
        let mut all = self.pipelines.iter_mut();
        let pipeline = all.find(|pipeline| pipeline.stages.contains(&stage)).expect("every stage has a pipeline");
        assert!(pipeline.running > 0, "a job of stage {stage} comes back that was not handed out");
        pipeline.running -= 1;
    }

    /// Whether a job of this rank comes before the failed job that would be reported; true if no job has failed.
    fn is_due(&self, rank: Rank) -> bool {
        self.error.as_ref().is_none_or(|(failed, _)| rank < *failed)
    }

    /// Whether the run of tasks that a stage delivers next is done and can be delivered.
    fn is_to_deliver(&self, stage: usize) -> bool {
        let work = &self.stages[stage];
        let next = work.undelivered.get(&work.next);
        next.is_some_and(|done| self.is_due(Rank { turn: done.turn, stage, run: work.next }))
    }

    /// Returns the bytes that have arrived of each input of a stage.
    pub(crate) fn supplies(&self, plan: &RunPlan<'_, 'p>, stage: usize) -> Vec<Supply> {
        let one = |origin: &Origin| match *origin {
            Origin::External(input) => Supply { bytes: plan.source.bytes(input), closed: true },
            Origin::Stage { stage, output } => {
                let queue = &self.stages[stage].queues[output];
                Supply { bytes: queue.end(), closed: queue.is_closed() }
            }
        };
        plan.stages[stage].inputs.iter().map(one).collect()
    }

    /// Picks the next job: of the pipelines that have one ready, that with the fewest jobs in flight, and there the
    /// last stage. With `among`, only stages that it accepts are considered; the answer is to wait if none of these has
    /// a job.
    pub(crate) fn pick<'s>(&mut self, plan: &RunPlan<'s, 'p>, among: Option<&dyn Fn(usize) -> bool>) -> Next<'s, 'p> {
        if self.aborted {
            return Next::Over;
        }
        loop {
            if plan.progress.stop.load(Ordering::Relaxed) {
                self.fail((Rank { turn: 0, stage: 0, run: 0 }, RunError::Cancelled(None)));
            }
            if self.stages.iter().all(|work| work.finished) {
                assert_eq!(self.running, 0, "all stages have ended with jobs in flight");
                return Next::Over;
            }
            let mut full = Vec::new();
            if let Some(job) = self.next_job(plan, among, &mut full) {
                return Next::Job(job);
            }
            if self.running > 0 || among.is_some() {
                return Next::Wait;
            }
            if !self.relax_backpressure(plan, &full) {
                return Next::Over;
            }
        }
    }

    /// Returns the next job of the run, or of the stages that `among` accepts, if one is ready, and counts it as in
    /// flight; adds readers that block stages to `full`.
    fn next_job<'s>(
        &mut self,
        plan: &RunPlan<'s, 'p>,
        among: Option<&dyn Fn(usize) -> bool>,
        full: &mut Vec<BlockedReader>,
    ) -> Option<Job<'s, 'p>> {
        let mut order: Vec<usize> = (0..self.pipelines.len()).collect();
        order.sort_by_key(|&number| (self.pipelines[number].running, self.pipelines[number].jobs));
        for number in order {
            for place in 0..self.pipelines[number].stages.len() {
                let stage = self.pipelines[number].stages[place];
                if among.is_some_and(|accepts| !accepts(stage)) {
                    continue;
                }
                match self.look(plan, stage, full) {
                    Ok(Some(job)) => {
                        self.running += 1;
                        let pipeline = &mut self.pipelines[number];
                        (pipeline.running, pipeline.jobs) = (pipeline.running + 1, pipeline.jobs + 1);
                        return Some(job);
                    }
                    Ok(None) => {}
                    Err(failed) => self.fail(failed),
                }
            }
        }
        None
    }

    /// Returns the next job of a stage, if one is ready; adds the reader that blocks the stage to `full`.
    fn look<'s>(
        &mut self,
        plan: &RunPlan<'s, 'p>,
        stage: usize,
        full: &mut Vec<BlockedReader>,
    ) -> Result<Option<Job<'s, 'p>>, Failed> {
        let each = plan.stages[stage].tasks_a_run();
        let work = &mut self.stages[stage];
        if work.finished {
            return Ok(None);
        }
        if !work.loaded {
            let there = |supply: &Supply| supply.closed;
            let metadata = plan.stages[stage].program.metadata();
            let supplies = self.supplies(plan, stage);
            check(metadata, &supplies).map_err(|e| (self.misfit(plan, stage), e))?;
            let ready = metadata.inputs.iter().zip(&supplies).filter(|(port, _)| port.whole).all(|(_, s)| there(s));
            let due = self.is_due(self.loads(plan, stage));
            let work = &mut self.stages[stage];
            if !ready || !due || work.loading {
                return Ok(None);
            }
            work.loading = true;
            return Ok(Some(self.load(plan, stage)));
        }
        if work.ready().is_none() && !work.ended {
            self.hand_out(plan, stage, each, full)?;
        }
        let deliver = self.is_to_deliver(stage);
        let finish = self.is_due(self.end(stage));
        let work = &mut self.stages[stage];
        if deliver && !work.delivering {
            work.delivering = true;
            let run = work.next;
            let output = work.undelivered.remove(&run).expect("a run that is to be delivered");
            let rank = Rank { turn: output.turn, stage, run };
            let keeps = matches!(plan.share, Share::Tasks { .. });
            let job = DeliverJob::new(&plan.stages[stage], output, work.folder.take(), keeps);
            return Ok(Some(plan.job(stage, rank, JobWork::Deliver(job))));
        }
        if finish && work.is_over() {
            work.delivering = true;
            let job = FinishJob::new(&plan.stages[stage], work.last_core(), work.cutter.count(), plan.share);
            let rank = self.end(stage);
            return Ok(Some(plan.job(stage, rank, JobWork::Finish(job))));
        }
        let ready = work.ready();
        let due = |&(run, turn): &(u64, u64)| self.is_due(Rank { turn, stage, run });
        Ok(ready.filter(due).map(|(run, _)| self.task(plan, stage, run)))
    }

    /// Makes the job that reads a stage's whole inputs, and finds the ends of records.
    fn load<'s>(&mut self, plan: &RunPlan<'s, 'p>, stage: usize) -> Job<'s, 'p> {
        let rank = self.loads(plan, stage);
        let inputs = self.wholes(plan, stage);
        let searches = self.stages[stage].cutter.is_to_search();
        let search = match plan.stages[stage].inputs[0] {
            Origin::External(input) if searches => Some(input),
            _ => None,
        };
        plan.job(stage, rank, JobWork::Load(Load { inputs, search, loaded: None }))
    }

    /// Makes the job for the next task of the stage's run of tasks `number`, which is ready.
    fn task<'s>(&mut self, plan: &RunPlan<'s, 'p>, stage: usize, number: u64) -> Job<'s, 'p> {
        let work = &mut self.stages[stage];
        let run = work.runs.get_mut(&number).expect("a run that is ready");
        assert!(!run.busy, "run {number} of stage {stage} has a worker already");
        run.busy = true;
        // The first task's core goes from task to task of an ordered program: it begins once.
        let begun = run.core.is_some() || plan.stages[stage].is_ordered() && number > 0;
        let core = run.core.take().or_else(|| work.cores.pop());
        let task = run.queue.pop_front().expect("a task that is ready");
        let rank = Rank { turn: task.turn, stage, run: number };
        let buffers = self.buffers.pop().unwrap_or_default();
        let job = TaskJob::new(number, run.output.first, task, core, begun, buffers);
        plan.job(stage, rank, JobWork::Task(Box::new(job)))
    }

    /// Cuts inputs that have arrived into tasks, `each` to a run of tasks, until one can be called; adds the reader
    /// that blocks the stage to `full`.
    fn hand_out(
        &mut self,
        plan: &RunPlan<'_, 'p>,
        stage: usize,
        each: u64,
        full: &mut Vec<BlockedReader>,
    ) -> Result<(), Failed> {
        loop {
            let work = &self.stages[stage];
            let open = work.is_open(each);
            let (begun, ready) = (work.begun, work.ready().is_some());
            if plan.stages[stage].is_ordered() && !work.runs.is_empty() {
                return Ok(());
            }
            if !open && (ready || begun >= work.next + RUNS_AHEAD * plan.workers) {
                return Ok(());
            }
            let supplies = self.supplies(plan, stage);
            // The queue of the first input belongs to another stage: take it out, so that this stage can be changed
            // meanwhile.
            let origin = plan.stages[stage].inputs[0];
            let queue = match origin {
                Origin::Stage { stage, output } => Some(std::mem::take(&mut self.stages[stage].queues[output])),
                Origin::External(_) => None,
            };
            let next = self.stages[stage].next_cut(&plan.stages[stage], &supplies, queue.as_ref());
            if let (Origin::Stage { stage, output }, Some(queue)) = (origin, queue) {
                self.stages[stage].queues[output] = queue;
            }
            match next.map_err(|e| (self.misfit(plan, stage), e))? {
                NextCut::Wait => return Ok(()),
                NextCut::End => {
                    let turn = self.ended(plan, stage);
                    self.stages[stage].end(each, turn);
                    return self.stages[stage].settle(stage, each);
                }
                NextCut::Task(cut, lookahead) => {
                    let turn = self.turn(plan, stage, cut, lookahead);
                    let run = if open { begun - 1 } else { begun };
                    if !self.is_due(Rank { turn, stage, run }) {
                        return Ok(());
                    }
                    if let Some(behind) = self.blocked_reader(plan, stage) {
                        full.push(behind);
                        return Ok(());
                    }
                    let due = self.pending(plan, stage, cut, turn);
                    self.stages[stage].assign(each, due);
                    plan.progress.more(stage, 1);
                }
            }
        }
    }

    /// Returns a reader of this stage whose backlog is at its bound, so that the stage has to wait; `None` if there is
    /// none.
    fn blocked_reader(&self, plan: &RunPlan<'_, 'p>, stage: usize) -> Option<BlockedReader> {
        let work = &self.stages[stage];
        for (output, queue) in work.queues.iter().enumerate() {
            for (reader, &(whose, input)) in plan.readers[stage][output].iter().enumerate() {
                let theirs = &plan.stages[whose];
                if theirs.program.metadata().inputs[input].whole {
                    continue;
                }
                let tasks = theirs.tasks_a_run() * (plan.workers + 1);
                let need = self.stages[whose].cutter.need(theirs.program.metadata(), input).saturating_mul(tasks);
                let relaxed = work.relaxed.get(&(output, reader)).copied().unwrap_or(0);
                let room = need.saturating_mul(1 << relaxed.min(62));
                if queue.backlog(reader) >= room {
                    return Some((room, stage, output, reader));
                }
            }
        }
        None
    }

    /// Doubles the smallest bound of the blocked readers, since all stages wait; returns whether the run can go on.
    fn relax_backpressure(&mut self, plan: &RunPlan<'_, 'p>, full: &[BlockedReader]) -> bool {
        let Some(&(_, stage, output, reader)) = full.iter().min() else {
            assert!(self.error.is_some(), "stages that wait for each other wait for one whose readers are behind");
            return false;
        };
        let queued: u64 = self.stages.iter().flat_map(|work| &work.queues).map(StreamQueue::queued).sum();
        if queued >= plan.hold_bytes {
            let name = plan.stages[stage].program.metadata().outputs[output].name.clone();
            let error = RunError::QueueLimit { output: name, queued, most: plan.hold_bytes };
            self.fail((Rank { turn: u64::MAX, stage, run: 0 }, error));
            return false;
        }
        *self.stages[stage].relaxed.entry((output, reader)).or_default() += 1;
        true
    }

    /// Returns the turn of a task (see [`Rank`]); `lookahead` is the number of bytes in [`NextCut::Task`].
    fn turn(&self, plan: &RunPlan<'_, 'p>, stage: usize, cut: Cut, lookahead: Option<u64>) -> u64 {
        let (work, ports) = (&self.stages[stage], &plan.stages[stage].program.metadata().inputs);
        let mut turn = self.loads(plan, stage).turn.max(work.turn);
        for (input, port) in ports.iter().enumerate().filter(|(_, port)| !port.whole) {
            let behind = lookahead.map(|bytes| if input == 0 { bytes } else { 0 });
            let to = match work.cutter.paced().map(|paced| &paced.seen()[input]) {
                Some(seen) if seen.ended => u64::MAX,
                Some(seen) => seen.range.end,
                None => behind.map_or(u64::MAX, |bytes| (cut.first + cut.records) * port.record_bytes + bytes),
            };
            turn = turn.max(match plan.stages[stage].inputs[input] {
                Origin::External(_) => work.cutter.count(),
                Origin::Stage { stage, output } => self.stages[stage].queues[output].turn(to),
            });
        }
        turn
    }

    /// Returns the rank of the job that loads a stage's whole inputs.
    fn loads(&self, plan: &RunPlan<'_, 'p>, stage: usize) -> Rank {
        let ports = &plan.stages[stage].program.metadata().inputs;
        let ends = plan.stages[stage].inputs.iter().zip(ports).filter(|(_, port)| port.whole);
        let turn = ends.map(|(origin, _)| self.closed(origin)).max().unwrap_or(0);
        Rank { turn, stage, run: 0 }
    }

    /// Returns the rank of the job that finishes a stage, all of whose inputs were cut.
    fn end(&self, stage: usize) -> Rank {
        Rank { turn: self.stages[stage].turn, stage, run: u64::MAX }
    }

    /// Returns the turn (see [`Rank`]) in which the last of a stage's inputs ended.
    fn ended(&self, plan: &RunPlan<'_, 'p>, stage: usize) -> u64 {
        plan.stages[stage].inputs.iter().map(|origin| self.closed(origin)).max().unwrap_or(0)
    }

    /// Returns the turn (see [`Rank`]) in which an input ended; 0 if it has not ended, or is external.
    fn closed(&self, origin: &Origin) -> u64 {
        match *origin {
            Origin::External(_) => 0,
            Origin::Stage { stage, output } => self.stages[stage].queues[output].turn(u64::MAX),
        }
    }

    /// Returns the rank of the error that a stage's inputs do not fit: one has ended before another, or a task would be
    /// too large.
    fn misfit(&self, plan: &RunPlan<'_, 'p>, stage: usize) -> Rank {
        let (work, ports) = (&self.stages[stage], &plan.stages[stage].program.metadata().inputs);
        let supplies = self.supplies(plan, stage);
        let cut = || ports.iter().zip(&supplies).filter(|(port, _)| !port.whole);
        let records = cut().filter(|(_, s)| s.closed).map(|(port, s)| s.bytes.div_ceil(port.record_bytes)).min();
        let mut turn = work.turn;
        for ((port, supply), origin) in ports.iter().zip(&supplies).zip(&plan.stages[stage].inputs) {
            let Origin::Stage { stage, output } = *origin else { continue };
            // Position after the first surplus byte; that of the input's end if no byte is surplus.
            let most = match records {
                _ if port.whole => abi::WINDOW_BYTES,
                _ if work.cutter.paced().is_some() => u64::MAX - 1,
                Some(records) if cut().count() > 1 => records.saturating_mul(port.record_bytes),
                _ => work.cutter.first().saturating_add(work.cutter.most(plan.stages[stage].program.metadata())),
            };
            let to = if supply.bytes > most { most + 1 } else { u64::MAX };
            turn = turn.max(self.stages[stage].queues[output].turn(to));
        }
        Rank { turn, stage, run: work.begun }
    }

    /// Stores a stage's whole inputs, which a load job has read.
    pub(crate) fn loaded(&mut self, stage: usize, wholes: BTreeMap<usize, Vec<u8>>) {
        let work = &mut self.stages[stage];
        assert!(work.loading && !work.loaded, "stage {stage} is loaded twice");
        for (input, bytes) in wholes {
            work.whole[input] = Arc::new(bytes);
        }
        (work.loaded, work.loading) = (true, false);
    }
}
