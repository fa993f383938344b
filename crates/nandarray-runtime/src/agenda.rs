//! The agenda of a run: a state machine that hands out jobs and takes back their results.
//!
//! The agenda executes nothing and owns no thread: an [`crate::Executor`] picks jobs, does their steps wherever and
//! whenever it likes, and brings them back by [`Agenda::done`] or [`Agenda::fail`]. The jobs of a run, their bytes, and
//! the failure that is reported do not depend on the executor, on the number of its workers, or on the order in which
//! jobs come back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nandarray_cores::RunError;

use crate::cut::check;
use crate::error::StageError;
use crate::io::InputSource;
use crate::job::{Job, JobStep};
use crate::progress::{Account, Progress, TASK_INSTRUCTIONS_MIN, ThreadObserver};
use crate::scheduler::{Next, RunPlan, Scheduler};
use crate::share::Share;
use crate::stage::{Failed, Origin, Rank, Stage};
use crate::work::{DeliverJob, FinishJob, JobWork, Load, LoadResult, TaskJob};

/// The result of a stage that has finished.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageDone {
    /// State of the stage after its last task, merged from the states of its runs of consecutive tasks.
    pub state: Vec<u8>,
    /// State of each run of consecutive tasks, in order, if the stage was run in a share without its end.
    pub states: Vec<Vec<u8>>,
    /// The costs of the stage; its bytes come from the source and other stages, and go to the sink and other stages.
    pub account: Account,
}

/// The result of a pipeline, without the bytes that went to the sink.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Completed {
    /// The results of the stages, in order.
    pub stages: Vec<StageDone>,
    /// The costs of the pipeline; its bytes are those read from the source and those written to the sink.
    pub account: Account,
}

/// The jobs of a run: those to be done, in flight, and done.
pub struct Agenda<'s, 'p> {
    plan: RunPlan<'s, 'p>,
    scheduler: Scheduler<'p>,
    /// Bytes that were delivered to the sink.
    to_sink: u64,
    /// Instructions that count against the limit of the run.
    spent: u64,
    /// Number of runs of consecutive tasks in all stages, if it is known at the beginning; otherwise `u64::MAX`.
    runs: u64,
}

impl fmt::Debug for Agenda<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scheduler { running, error, .. } = &self.scheduler;
        f.debug_struct("Agenda").field("running", running).field("error", error).finish_non_exhaustive()
    }
}

impl<'s, 'p> Agenda<'s, 'p> {
    /// Makes an agenda that runs stages, each over all of its inputs. `workers` is the number of jobs that are usually
    /// in flight at once: it bounds the queues between stages and does not change results. `hold_bytes` limits the
    /// bytes in these queues when a stage needs more input before it can go on.
    ///
    /// # Errors
    /// [`StageError`]: inputs, outputs or scalars do not fit a program.
    pub fn new(
        stages: &'s [Stage<'s, 'p>],
        source: &'s dyn InputSource,
        progress: &'s Progress,
        workers: usize,
        hold_bytes: u64,
    ) -> Result<Self, StageError> {
        Self::of_share(stages, source, progress, workers, hold_bytes, Share::All, &[])
    }

    /// Makes an agenda that runs a share of the tasks of a stage, or stages whole. `edges` are the first records of
    /// all tasks, and the end of the last one, if the share has tasks.
    pub(crate) fn of_share(
        stages: &'s [Stage<'s, 'p>],
        source: &'s dyn InputSource,
        progress: &'s Progress,
        workers: usize,
        hold_bytes: u64,
        share: Share<'s>,
        edges: &[u64],
    ) -> Result<Self, StageError> {
        assert!(share == Share::All || stages.len() == 1, "{} stages have a share", stages.len());
        for (number, stage) in stages.iter().enumerate() {
            fits(stages, number, stage).map_err(|what| named(stages, number, RunError::Inputs(what)))?;
        }
        progress.begin(stages.len());
        let workers = workers.max(1) as u64;
        let mut plan = RunPlan { stages, source, progress, share, workers, hold_bytes, readers: Vec::new() };
        let mut scheduler = Scheduler::new(&mut plan);
        match share {
            Share::All => {}
            Share::Tasks { first, end } => scheduler.stages[0].cutter.cut_only(first, end, edges[first as usize]),
            Share::End { .. } => scheduler.stages[0].cutter.cut_only(0, 0, 0),
        }
        let mut runs = 0u64;
        for (number, stage) in stages.iter().enumerate() {
            let metadata = stage.program.metadata();
            let supplies = scheduler.supplies(&plan, number);
            check(metadata, &supplies).map_err(|e| named(stages, number, e))?;
            let expected = scheduler.stages[number].cutter.expected(metadata, &supplies);
            progress.expect(number, expected);
            runs = runs.saturating_add(expected.map_or(u64::MAX, |tasks| tasks.div_ceil(stage.tasks_a_run())));
        }
        Ok(Self { plan, scheduler, to_sink: 0, spent: 0, runs })
    }

    /// Returns an upper bound of the number of jobs in flight at once: further workers would have nothing to do.
    pub fn jobs_at_once(&self) -> u64 {
        self.runs.max(1)
    }

    /// Picks the next job. The caller brings the job back by [`Self::done`] or [`Self::fail`].
    pub fn pick(&mut self) -> Next<'s, 'p> {
        self.scheduler.pick(&self.plan, None)
    }

    /// Picks the next job among the stages for which `accepts` returns true. Returns [`Next::Wait`] if none of these
    /// has one, even if no job is in flight; only [`Self::pick`] can go on then.
    pub fn pick_among(&mut self, accepts: &dyn Fn(usize) -> bool) -> Next<'s, 'p> {
        self.scheduler.pick(&self.plan, Some(accepts))
    }

    /// Whether no job is in flight.
    pub fn is_idle(&self) -> bool {
        self.scheduler.running == 0
    }

    /// Returns the observer of the run's threads.
    pub(crate) fn observer(&self) -> Option<Arc<dyn ThreadObserver>> {
        self.plan.progress.observer.clone()
    }

    /// Returns the stages of the run.
    pub fn stages(&self) -> &'s [Stage<'s, 'p>] {
        self.plan.stages
    }

    /// Takes back a job whose steps are all done, and applies its result.
    pub fn done(&mut self, job: Job<'s, 'p>) {
        assert_eq!(job.step(), JobStep::Done, "a job is done when its steps are");
        let Job { context, rank, work } = job;
        let stage = context.number;
        self.scheduler.come_back(stage);
        let done = match work {
            JobWork::Load(load) => self.loaded(stage, load),
            JobWork::Task(task) => self.called(stage, *task),
            JobWork::Deliver(job) => {
                self.delivered(stage, rank, job);
                Ok(())
            }
            JobWork::Finish(job) => {
                self.finished(stage, job);
                Ok(())
            }
        };
        if let Err(failed) = done {
            self.scheduler.fail(failed);
        }
    }

    /// Takes back a job that failed. The run reports the failure that is first in the order of `Rank`.
    pub fn fail(&mut self, job: Job<'s, 'p>, error: RunError) {
        self.scheduler.come_back(job.context.number);
        if let JobWork::Task(task) = &job.work {
            let run = self.scheduler.stages[job.context.number].runs.get_mut(&task.run);
            run.expect("a run that a worker was at").busy = false;
        }
        self.scheduler.fail((job.rank, error));
    }

    /// Ends the run since its executor failed with `error`. No further job is handed out.
    pub fn abort(&mut self, error: RunError) {
        self.scheduler.aborted = true;
        self.scheduler.fail((Rank { turn: 0, stage: 0, run: 0 }, error));
    }

    /// Returns the result of the run.
    ///
    /// # Errors
    /// [`StageError`]: the first failure in the order of `Rank`, and its stage.
    pub fn finish(self) -> Result<Completed, StageError> {
        let stages = self.plan.stages;
        if let Some((rank, error)) = self.scheduler.error {
            return Err(named(stages, rank.stage, error));
        }
        let mut completed = Completed::default();
        for (number, state) in self.scheduler.stages.into_iter().enumerate() {
            if !state.finished {
                let what = "the executor ended before the run did".to_owned();
                return Err(named(stages, number, RunError::Worker(what)));
            }
            assert!(state.undelivered.is_empty(), "every run of tasks was delivered");
            completed.account.tasks += state.account.tasks;
            completed.account.instructions += state.account.instructions;
            let (states, account) = (state.states, state.account);
            completed.stages.push(StageDone { state: state.state, states, account });
        }
        completed.account.bytes_in = self.plan.progress.bytes_in.load(Ordering::Relaxed);
        completed.account.bytes_out = self.to_sink;
        Ok(completed)
    }

    fn loaded(&mut self, stage: usize, load: Load) -> Result<(), Failed> {
        let LoadResult { wholes, edges, bytes } = load.loaded.expect("a load that is done");
        if let Some(edges) = edges {
            self.scheduler.stages[stage].cutter.cut_at(edges);
            let metadata = self.plan.stages[stage].program.metadata();
            let supplies = self.scheduler.supplies(&self.plan, stage);
            let expected = self.scheduler.stages[stage].cutter.expected(metadata, &supplies);
            self.plan.progress.expect(stage, expected);
        }
        self.scheduler.stages[stage].account.bytes_in += bytes;
        self.scheduler.loaded(stage, wholes);
        Ok(())
    }

    fn called(&mut self, stage: usize, job: TaskJob<'p>) -> Result<(), Failed> {
        let TaskJob { run, task, core, buffers, outputs, taken, account, .. } = job;
        self.scheduler.buffers.push(buffers);
        let state = &mut self.scheduler.stages[stage];
        state.account.add(account);
        let slot = state.runs.get_mut(&run).expect("a run that a worker was at");
        let before = slot.output.tasks.last().map(|(number, _)| *number);
        assert!(slot.busy && before < Some(task.number), "task {} comes back behind task {before:?}", task.number);
        slot.busy = false;
        slot.core = core;
        slot.output.tasks.push((task.number, outputs));
        state.settle(stage, self.plan.stages[stage].tasks_a_run())?;
        if !taken.is_empty() {
            self.scheduler.advance(&self.plan, stage, &taken);
        }
        self.spend(account.instructions)
    }

    /// Counts the instructions of a task against the limit of the run.
    fn spend(&mut self, instructions: u64) -> Result<(), Failed> {
        self.spent = self.spent.saturating_add(instructions.max(TASK_INSTRUCTIONS_MIN));
        self.plan.progress.instructions.fetch_add(instructions, Ordering::Relaxed);
        match self.plan.progress.instructions_max {
            Some(limit) if self.spent > limit => {
                Err((Rank { turn: 0, stage: 0, run: 0 }, RunError::RunLimit { limit }))
            }
            _ => Ok(()),
        }
    }

    fn delivered(&mut self, stage: usize, rank: Rank, job: DeliverJob<'p>) {
        let DeliverJob { kept, folder, deliveries, instructions, .. } = job;
        let state = &mut self.scheduler.stages[stage];
        assert!(state.delivering && rank.run == state.next, "run {} is delivered in place of {}", rank.run, state.next);
        let bytes_out = deliveries.bytes;
        deliveries.on.into_iter().for_each(|(output, bytes)| state.queues[output].push(bytes, rank.turn));
        state.account.add(Account { bytes_out, instructions, ..Account::default() });
        self.to_sink += deliveries.to_sink;
        state.next += 1;
        state.states.extend(kept.filter(|kept| !kept.is_empty()));
        (state.folder, state.delivering) = (folder, false);
    }

    fn finished(&mut self, stage: usize, job: FinishJob<'p>) {
        let FinishJob { state: folded, deliveries, instructions, .. } = job;
        let state = &mut self.scheduler.stages[stage];
        let left = (state.begun - state.next, state.runs.len(), state.undelivered.len());
        assert!(state.ended && !state.finished && left == (0, 0, 0), "stage {stage} ends before its runs: {left:?}");
        let (turn, bytes_out) = (state.turn, deliveries.bytes);
        deliveries.on.into_iter().for_each(|(output, bytes)| state.queues[output].push(bytes, turn));
        state.queues.iter_mut().for_each(|queue| queue.close(turn));
        state.account.add(Account { bytes_out, instructions, ..Account::default() });
        self.to_sink += deliveries.to_sink;
        state.cores.clear();
        (state.state, state.finished) = (folded, true);
    }
}

fn named(stages: &[Stage<'_, '_>], stage: usize, error: RunError) -> StageError {
    StageError { stage, program: stages[stage].program.metadata().name.clone(), error }
}

/// Checks that a stage has as many scalars, inputs and outputs as its program, and reads outputs of earlier stages
/// only.
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
    for origin in &stage.inputs {
        if let Origin::Stage { stage, output } = *origin {
            if stage >= number || output >= stages[stage].outputs.len() {
                return Err(format!("there is no output {output} of a stage {stage} before stage {number}"));
            }
        }
    }
    Ok(())
}
