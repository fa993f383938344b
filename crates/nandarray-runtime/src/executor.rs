//! Executors: machines that do the jobs of a run. [`Threads`] does them on threads of this machine.
//!
//! An executor decides where a job's steps are done and when; the [`Agenda`] decides everything else. So results do not
//! depend on the executor, and a modelled machine can be one.

use std::fmt::Debug;

use nandarray::panics::caught;
use nandarray_cores::{Core, LoadError, Program, RunError};
use parking_lot::{Condvar, Mutex};

use crate::agenda::Agenda;
use crate::io::OutputSink;
use crate::job::{Job, JobStep};
use crate::scheduler::Next;

/// Does the jobs of a run.
pub trait Executor: Debug + Send + Sync {
    /// Number of jobs that it usually has in flight; at least 1. No result depends on it.
    fn workers(&self) -> usize;

    /// Whether it needs to know the number of instructions that a program executes: a native form, whose instructions
    /// are not counted, is refused then.
    fn counts_instructions(&self) -> bool {
        false
    }

    /// Checks that its cores can run a program.
    ///
    /// # Errors
    /// [`nandarray::Error::Invalid`]: what the program needs, and what its cores have.
    fn accepts(&self, program: &Program) -> nandarray::Result<()> {
        let _ = program;
        Ok(())
    }

    /// Makes one of its own cores for a program; `None` leaves it to the program's form.
    fn core<'p>(&self, program: &'p Program) -> Option<Result<Core<'p>, LoadError>> {
        let _ = program;
        None
    }

    /// Does jobs until [`Agenda::pick`] says [`Next::Over`]; every job that it picked has come back to the agenda then.
    /// It may end sooner, by [`Agenda::abort`].
    ///
    /// Each call is one run; several may be under way on one executor at once, from several threads.
    fn run(&self, agenda: &mut Agenda<'_, '_>, sink: &mut dyn OutputSink);
}

/// A number of threads of this machine, the caller's included.
///
/// A thread that panics in a job fails that job, and goes on with others.
#[derive(Clone, Copy, Debug)]
pub struct Threads(pub usize);

impl Executor for Threads {
    fn workers(&self) -> usize {
        self.0.max(1)
    }

    fn run(&self, agenda: &mut Agenda<'_, '_>, sink: &mut dyn OutputSink) {
        let threads = (self.workers() as u64).min(agenda.jobs_at_once());
        let crew = Crew { agenda: Mutex::new(agenda), moved: Condvar::new(), sink: Mutex::new(sink) };
        std::thread::scope(|scope| {
            for number in 1..threads {
                let name = format!("nandarray-worker-{number}");
                // If the system has no more threads, those that were started do all jobs.
                if std::thread::Builder::new().name(name).spawn_scoped(scope, || crew.work()).is_err() {
                    break;
                }
            }
            crew.work();
        });
    }
}

/// The state that the threads share.
struct Crew<'c, 's, 'p> {
    agenda: Mutex<&'c mut Agenda<'s, 'p>>,
    /// Notified when a job is done.
    moved: Condvar,
    sink: Mutex<&'c mut dyn OutputSink>,
}

impl<'s, 'p> Crew<'_, 's, 'p> {
    /// The work of one thread. A panic here is the agenda's own: it ends all threads, and wakes those that wait.
    fn work(&self) {
        if let Err(what) = caught(|| self.jobs()) {
            self.agenda.lock().abort(RunError::Worker(what));
        }
        self.moved.notify_all();
    }

    fn jobs(&self) {
        let mut agenda = self.agenda.lock();
        loop {
            match agenda.pick() {
                Next::Over => break,
                Next::Wait => self.moved.wait(&mut agenda),
                Next::Job(mut job) => {
                    drop(agenda);
                    let done = caught(|| self.steps(&mut job)).unwrap_or_else(|what| Err(RunError::Worker(what)));
                    agenda = self.agenda.lock();
                    match done {
                        Ok(()) => agenda.done(job),
                        Err(error) => agenda.fail(job, error),
                    }
                    self.moved.notify_all();
                }
            }
        }
    }

    fn steps(&self, job: &mut Job<'s, 'p>) -> Result<(), RunError> {
        loop {
            match job.step() {
                JobStep::Done => return Ok(()),
                JobStep::Fetch if job.call_where_it_lies()? => {}
                JobStep::Fetch => drop(job.fetch()?),
                JobStep::Call => job.call()?,
                JobStep::Deliver => drop(job.deliver(&mut **self.sink.lock())?),
            }
        }
    }
}
