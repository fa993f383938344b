//! Executors: machines that do the jobs of a run. [`Threads`] does them on threads of this host.
//!
//! An executor decides where and when the steps of a job are done; the [`Agenda`] decides everything else. So results
//! do not depend on the executor, and a modelled machine can be an executor.

use std::fmt::Debug;

use nandarray::panics::caught;
use nandarray_cores::{Core, LoadError, Program, RunError};
use parking_lot::{Condvar, Mutex};

use crate::agenda::Agenda;
use crate::io::OutputSink;
use crate::job::{Job, JobStep};
use crate::scheduler::Next;

/// A machine that does the jobs of a run.
pub trait Executor: Debug + Send + Sync {
    /// Returns the number of jobs that the executor usually has in flight, at least 1. No result depends on this
    /// number.
    fn workers(&self) -> usize;

    /// Whether the executor needs the number of instructions that a program executes. If so, programs in native form
    /// are refused, since their instructions are not counted.
    fn counts_instructions(&self) -> bool {
        false
    }

    /// Checks that the executor's cores can run a program.
    ///
    /// # Errors
    /// [`nandarray::Error::Invalid`]: the program needs something that the cores lack; the message names both.
    fn accepts(&self, program: &Program) -> nandarray::Result<()> {
        let _ = program;
        Ok(())
    }

    /// Checks that the executor has the cores that a stage is to run on; an empty list stands for all cores. An
    /// executor without cores of its own ignores the list.
    ///
    /// # Errors
    /// [`nandarray::Error::Invalid`]: there is no such core; the message names it.
    fn accepts_cores(&self, program: &str, cores: &[u32]) -> nandarray::Result<()> {
        let _ = (program, cores);
        Ok(())
    }

    /// Makes one of the executor's own cores for a program; `None` if the program's form decides which core is made.
    fn core<'p>(&self, program: &'p Program) -> Option<Result<Core<'p>, LoadError>> {
        let _ = program;
        None
    }

    /// Does jobs until [`Agenda::pick`] returns [`Next::Over`]; every job that was picked has come back to the agenda
    /// then. The executor may end the run sooner, by [`Agenda::abort`].
    ///
    /// Each call does one run; several runs may be in progress on one executor at once, from several threads.
    fn run(&self, agenda: &mut Agenda<'_, '_>, sink: &mut dyn OutputSink);
}

/// An executor on this number of host threads, the caller's included.
///
/// A thread that panics in a job fails that job, and continues with other jobs.
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

/// The state that the threads of a run share.
struct Crew<'c, 's, 'p> {
    agenda: Mutex<&'c mut Agenda<'s, 'p>>,
    /// Notified when a job has come back to the agenda.
    moved: Condvar,
    sink: Mutex<&'c mut dyn OutputSink>,
}

impl<'s, 'p> Crew<'_, 's, 'p> {
    /// Does jobs on one thread until the run is over. A panic here is a fault of the agenda: it ends the run, and wakes
    /// the threads that wait.
    fn work(&self) {
        let observer = self.agenda.lock().observer();
        observer.iter().for_each(|observer| observer.begin());
        if let Err(what) = caught(|| self.jobs()) {
            self.agenda.lock().abort(RunError::Worker(what));
        }
        observer.iter().for_each(|observer| observer.end());
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
