//! Jobs: units of work that the scheduler hands out to workers, cut into steps.
//!
//! An executor asks a job for its next [`JobStep`], does the step by the method of the same name, and brings the job
//! back to its [`crate::Agenda`] when no step is left. Between two steps the executor may do anything else: steps of
//! other jobs, or let modelled time pass. A job's result depends neither on the workers that do its steps nor on the
//! time at which they do them.
//!
//! | job | steps |
//! | --- | --- |
//! | load: whole inputs, and the ends of records | fetch |
//! | a task | call (of `nd_begin`, for the first of its run), fetch, call |
//! | deliver: outputs of one run of tasks, and its state | deliver, one an output of a task; call (of `nd_merge`) |
//! | finish: the program's end | call (of `nd_end`), deliver, one an output |

use std::sync::atomic::AtomicBool;

use nandarray_cores::{Call, ProgramKind, RunError};

use crate::context::StageContext;
use crate::io::{Delivery, InputLocation, OutputSink};
use crate::stage::{Rank, TaskInput};
use crate::work::{JobWork, TaskStep};

/// The next step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStep {
    /// Read bytes of the job's inputs: [`Job::fetch`].
    Fetch,
    /// Call the program on a core: [`Job::call`].
    Call,
    /// Deliver one output: [`Job::deliver`].
    Deliver,
    /// No step is left: the job goes back to its agenda.
    Done,
}

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Reads the inputs that every task gets as a whole, and finds the ends of records.
    Load,
    /// Calls the program for a task.
    Task {
        /// Number of the task in its stage.
        number: u64,
        /// Bytes of the task's inputs that come from the run's source.
        external_bytes: u64,
        /// Bytes of the task's inputs that other stages produced.
        queued_bytes: u64,
    },
    /// Delivers the outputs of a run of tasks, and merges the run's state into the stage's.
    Deliver,
    /// Calls `nd_end` after the last task of a program.
    Finish,
}

/// A unit of work for one worker.
#[must_use = "a job goes back to its agenda, done or failed"]
pub struct Job<'s, 'p> {
    pub(crate) context: StageContext<'s, 'p>,
    pub(crate) rank: Rank,
    pub(crate) work: JobWork<'p>,
}

impl std::fmt::Debug for Job<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job")
            .field("stage", &self.stage())
            .field("kind", &self.kind())
            .field("step", &self.step())
            .finish()
    }
}

impl<'s, 'p> Job<'s, 'p> {
    /// Returns the number of the job's stage.
    pub fn stage(&self) -> usize {
        self.context.number
    }

    /// Returns the kind of the job.
    pub fn kind(&self) -> JobKind {
        match &self.work {
            JobWork::Load(_) => JobKind::Load,
            JobWork::Task(job) => {
                let external_bytes =
                    |input: &TaskInput| if let TaskInput::External(_, bytes) = input { *bytes } else { 0 };
                let queued_bytes = |input: &TaskInput| match input {
                    TaskInput::Chunks(chunks) => chunks.iter().map(|(_, range)| range.len() as u64).sum(),
                    _ => 0,
                };
                let inputs = &job.task.inputs;
                JobKind::Task {
                    number: job.task.number,
                    external_bytes: inputs.iter().map(external_bytes).sum(),
                    queued_bytes: inputs.iter().map(queued_bytes).sum(),
                }
            }
            JobWork::Deliver(_) => JobKind::Deliver,
            JobWork::Finish(_) => JobKind::Finish,
        }
    }

    /// Whether the job's program reads and writes streams instead of windows.
    pub fn is_streamed(&self) -> bool {
        self.context.stage.program.metadata().kind == ProgramKind::Stream
    }

    /// Returns the next step of the job.
    pub fn step(&self) -> JobStep {
        match &self.work {
            JobWork::Load(load) => {
                if load.loaded.is_none() {
                    JobStep::Fetch
                } else {
                    JobStep::Done
                }
            }
            JobWork::Task(job) => match job.at {
                TaskStep::Begin | TaskStep::Call => JobStep::Call,
                TaskStep::Fetch => JobStep::Fetch,
                TaskStep::Done => JobStep::Done,
            },
            JobWork::Deliver(job) if !job.deliveries.queue.is_empty() => JobStep::Deliver,
            JobWork::Deliver(job) => {
                if job.state.is_empty() {
                    JobStep::Done
                } else {
                    JobStep::Call
                }
            }
            JobWork::Finish(job) if !job.is_called => JobStep::Call,
            JobWork::Finish(job) => {
                if job.deliveries.queue.is_empty() {
                    JobStep::Done
                } else {
                    JobStep::Deliver
                }
            }
        }
    }

    /// Reads the job's inputs from the run's source; returns the number of bytes read.
    ///
    /// # Errors
    /// [`RunError::Transfer`] if the source fails, [`RunError::Cancelled`], [`RunError::Inputs`] if a record does not
    /// end within its input.
    pub fn fetch(&mut self) -> Result<u64, RunError> {
        let Self { context, work, .. } = self;
        match work {
            JobWork::Load(load) => load.fetch(context),
            JobWork::Task(job) => job.fetch(context),
            JobWork::Deliver(_) | JobWork::Finish(_) => unreachable!("a job that fetches nothing"),
        }
    }

    /// Fetches the task's input and calls the program at once, on the input in place, if the core accepts that and the
    /// source can lend the input. Returns whether it did so; if not, the job is unchanged. This is an optimization that
    /// an executor may leave out.
    ///
    /// # Errors
    /// As [`Self::fetch`] and [`Self::call`].
    pub fn call_where_it_lies(&mut self) -> Result<bool, RunError> {
        let Self { context, work, .. } = self;
        match work {
            JobWork::Task(job) if job.at == TaskStep::Fetch => job.call_where_it_lies(context),
            _ => Ok(false),
        }
    }

    /// Calls the program on a core, and returns when the call has ended.
    ///
    /// # Errors
    /// [`RunError`]: the program failed.
    pub fn call(&mut self) -> Result<(), RunError> {
        let Self { context, work, .. } = self;
        match work {
            JobWork::Load(_) => unreachable!("a job that calls nothing"),
            JobWork::Task(job) => job.call(context),
            JobWork::Deliver(job) => job.fold(context),
            JobWork::Finish(job) => job.call(context),
        }
    }

    /// Returns the number of instructions that the job's calls have executed, without a call that [`Self::begin_call`]
    /// began and that has not ended.
    pub fn instructions(&self) -> u64 {
        match &self.work {
            JobWork::Load(_) => 0,
            JobWork::Task(job) => job.account.instructions,
            JobWork::Deliver(job) => job.instructions,
            JobWork::Finish(job) => job.instructions,
        }
    }

    /// Returns the location of each input of a task, in the order in which [`Self::fetch`] reads them; empty for other
    /// jobs.
    pub fn inputs(&self) -> Vec<InputLocation> {
        match &self.work {
            JobWork::Task(job) => job.fetched(&self.context),
            JobWork::Load(_) | JobWork::Deliver(_) | JobWork::Finish(_) => Vec::new(),
        }
    }

    /// Returns the bytes of a task's input that was fetched.
    ///
    /// # Panics
    /// If the job is not a task, or has no input with this number.
    pub fn input(&self, input: usize) -> &[u8] {
        match &self.work {
            JobWork::Task(job) => job.input(input),
            JobWork::Load(_) | JobWork::Deliver(_) | JobWork::Finish(_) => unreachable!("a job without inputs"),
        }
    }

    /// Begins the call of a task whose inputs were fetched. The caller fills the inputs of the call as they arrive, and
    /// brings the call back by [`Self::end_call`]. `None` if the next step is not the call of a task: [`Self::call`]
    /// does it.
    ///
    /// # Errors
    /// [`RunError`]: inputs or outputs do not fit the program.
    pub fn begin_call(&mut self) -> Result<Option<Call<'p>>, RunError> {
        let Self { context, work, .. } = self;
        match work {
            JobWork::Task(job) if job.at == TaskStep::Call => job.begin_call(context).map(Some),
            _ => Ok(None),
        }
    }

    /// Takes back a call that has ended, with its result.
    ///
    /// # Errors
    /// The error in `result`.
    ///
    /// # Panics
    /// If the job is not a task.
    pub fn end_call(&mut self, call: Call<'p>, result: Result<Vec<u64>, RunError>) -> Result<(), RunError> {
        let Self { context, work, .. } = self;
        match work {
            JobWork::Task(job) => job.end_call(context, call, result),
            JobWork::Load(_) | JobWork::Deliver(_) | JobWork::Finish(_) => unreachable!("a job that begins no call"),
        }
    }

    /// Returns the flag that is set when the run is to stop soon.
    pub fn stop(&self) -> &'s AtomicBool {
        &self.context.progress.stop
    }

    /// Delivers one output of the job, to the sink and to other stages.
    ///
    /// # Errors
    /// [`RunError::Transfer`] if the sink fails.
    pub fn deliver(&mut self, sink: &mut dyn OutputSink) -> Result<Delivery, RunError> {
        let Self { context, work, .. } = self;
        match work {
            JobWork::Deliver(job) => job.deliveries.next(context, sink),
            JobWork::Finish(job) => job.deliveries.next(context, sink),
            JobWork::Load(_) | JobWork::Task(_) => unreachable!("a job that delivers nothing"),
        }
    }
}
