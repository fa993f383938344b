//! A session on the wall clock: worker threads of this host that do the work of a [`SessionBoard`].
//!
//! Any thread may submit, wait and cancel. A worker that panics in a step fails the kernel of that step and goes on.
//! Dropping a session closes it: kernels that were submitted run to their end first. A native kernel that never ends
//! cannot be stopped; its owner may leave its worker behind ([`Session::abandon`]). A forked process has a session, but
//! none of its workers: it closes and drops it without waiting.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nandarray::Home;
use nandarray::panics::caught;
use nandarray_cores::kernel::KernelCore;
use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::execute::Runtime;
use crate::schedule::{KernelScheduler, by_name};
use crate::session::board::{BoardError, BoardWork, KernelEnd, KernelState, ScreenJob, SessionBoard};
use crate::session::job::SessionJob;
use crate::session::kernels::{KernelForm, KernelRequest, LoadedKernel};

/// Number of cores that a worker thread keeps for reuse; a core executes one kernel.
const CORES_KEPT: usize = 4;

/// Maximum number of worker threads of a session.
pub const WORKERS_MAX: usize = 1024;

/// Time after which a dropped session says which kernel it waits for.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Name of the scheduler, one of [`crate::schedule::names`].
    pub scheduler: String,
    /// Number of worker threads of this host, at most [`WORKERS_MAX`]; 0 stands for 1.
    pub workers: usize,
    /// Limit of the memory that all mapped kernels need together, in bytes.
    pub memory_bytes: u64,
    /// Limit of a screen's window of a section that stays in the store, in bytes.
    pub window_bytes: u64,
}

struct SessionState {
    board: SessionBoard,
    jobs: BTreeMap<u64, Arc<SessionJob>>,
    closed: bool,
    /// The message of a panic of the scheduler or the board, after which no worker asks them again.
    broken: Option<String>,
    /// Number of workers that run a step of a kernel.
    at_work: usize,
    /// The workers that were given nothing since a kernel's state changed last.
    refused: Vec<bool>,
    /// Number of worker threads that have not ended; the last one fails the kernels of a broken session.
    workers_left: usize,
}

impl SessionState {
    /// Whether the kernels of a closed session wait for a scheduler that gives none of them to any worker: nothing that
    /// is left to happen would have it asked again.
    fn is_stuck(&self) -> bool {
        self.closed && self.at_work == 0 && !self.board.is_empty() && self.refused.iter().all(|&refused| refused)
    }
}

struct SessionShared {
    runtime: Arc<Runtime>,
    state: Mutex<SessionState>,
    moved: Condvar,
    ended: Condvar,
    window_bytes: u64,
}

/// A session on the wall clock: worker threads that run many kernels at once beside one device.
pub struct Session {
    shared: Arc<SessionShared>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    /// The process that opened the session, which may be a fork of the one that opened the store.
    home: Home,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels = self.shared.state.try_lock().map(|state| state.board.len());
        f.debug_struct("Session").field("kernels", &kernels).finish_non_exhaustive()
    }
}

/// A kernel that a closed session waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnendedKernel {
    /// Number of the kernel in the session.
    pub number: u64,
    /// Name of the kernel in its description table.
    pub kernel: String,
    /// Whether the kernel runs in native form, which cannot be stopped.
    pub is_native: bool,
}

/// Returns the kernel that is named as what a session waits for: a native one, which cannot be stopped, before others,
/// which may end by themselves.
fn named(left: &[UnendedKernel]) -> Option<&UnendedKernel> {
    left.iter().find(|kernel| kernel.is_native).or(left.first())
}

impl From<BoardError> for Error {
    fn from(error: BoardError) -> Self {
        match error {
            BoardError::Circle { names } => Self::Circle { names },
            other => Self::invalid(other.to_string()),
        }
    }
}

/// Returns the number of workers of a session: one on a device under a modelled clock.
fn workers_of(runtime: &Runtime, options: &SessionOptions) -> Result<usize> {
    match options.workers {
        _ if runtime.device().is_watched() => Ok(1),
        workers @ 0..=WORKERS_MAX => Ok(workers.max(1)),
        workers => Err(Error::invalid(format!("workers = {workers}: a session has at most {WORKERS_MAX}"))),
    }
}

impl Session {
    /// Opens a session beside a runtime's device, and starts its worker threads. There is one worker if the device is
    /// under a modelled clock.
    ///
    /// # Errors
    /// [`Error::Engine`]: there is no scheduler with this name, it could not be made, there are more than
    /// [`WORKERS_MAX`] workers, or a thread could not be started.
    pub fn new(runtime: &Arc<Runtime>, options: &SessionOptions) -> Result<Self> {
        let scheduler = by_name(&options.scheduler, workers_of(runtime, options)?).map_err(Error::invalid)?;
        Self::with_scheduler(runtime, options, scheduler)
    }

    /// Opens a session like [`Self::new`], but with the caller's scheduler, which was made for the session's number of
    /// workers; the name in `options` is not read.
    ///
    /// # Errors
    /// [`Error::Engine`]: there are more than [`WORKERS_MAX`] workers, or a thread could not be started.
    pub fn with_scheduler(
        runtime: &Arc<Runtime>,
        options: &SessionOptions,
        scheduler: Box<dyn KernelScheduler>,
    ) -> Result<Self> {
        runtime.device().usable()?;
        let workers = workers_of(runtime, options)?;
        let board = SessionBoard::new(scheduler, workers, options.memory_bytes);
        let (jobs, refused) = (BTreeMap::new(), vec![false; workers]);
        let (at_work, workers_left) = (0, workers);
        let state = SessionState { board, jobs, closed: false, broken: None, at_work, refused, workers_left };
        let shared = Arc::new(SessionShared {
            runtime: runtime.clone(),
            state: Mutex::new(state),
            moved: Condvar::new(),
            ended: Condvar::new(),
            window_bytes: options.window_bytes.max(1),
        });
        let session = Self { shared, threads: Mutex::new(Vec::new()), home: Home::here() };
        for worker in 0..workers {
            let theirs = session.shared.clone();
            let name = format!("nandarray-session-{worker}");
            let made = std::thread::Builder::new().name(name).spawn(move || theirs.work(worker));
            let thread = made.map_err(|e| {
                // Dropping the session ends those that were started.
                session.shared.state.lock().workers_left -= workers - worker;
                Error::invalid(format!("no thread for a session: {e}"))
            })?;
            session.threads.lock().push(thread);
        }
        Ok(session)
    }

    /// Submits a kernel; returns its job, by which the caller waits for the kernel or cancels it.
    ///
    /// # Errors
    /// [`Error::Circle`]: kernels would wait for each other. [`Error::Engine`]: the bindings do not fit the kernel, or
    /// the session is closed.
    pub fn submit(&self, request: KernelRequest) -> Result<Arc<SessionJob>> {
        let kernel = request.board(self.shared.window_bytes, self.shared.runtime.device())?;
        let mut state = self.shared.state.lock();
        if let Some(what) = &state.broken {
            return Err(Error::Worker(what.clone()));
        }
        if state.closed {
            return Err(Error::invalid("the session is closed"));
        }
        let number = state.board.submit(kernel)?;
        let job = Arc::new(SessionJob::new(number, request));
        state.jobs.insert(number, job.clone());
        self.shared.settle(&mut state);
        Ok(job)
    }

    /// Waits until a kernel has ended, or until `timeout` has passed if there is one. Returns whether the kernel has
    /// ended.
    pub fn wait(&self, job: &SessionJob, timeout: Option<Duration>) -> bool {
        let mut state = self.shared.state.lock();
        // The end of any kernel wakes all waiting threads.
        match timeout {
            None => self.shared.ended.wait_while(&mut state, |_| !job.has_ended()),
            Some(time) => {
                self.shared.ended.wait_while_for(&mut state, |_| !job.has_ended(), time);
            }
        }
        job.has_ended()
    }

    /// Cancels a kernel, unless its outputs are being written. Returns whether the kernel ends as cancelled.
    pub fn cancel(&self, job: &SessionJob) -> bool {
        let mut state = self.shared.state.lock();
        if state.broken.is_some() {
            return false;
        }
        let cancelled = state.board.cancel(job.number);
        if cancelled {
            job.stop();
        }
        self.shared.settle(&mut state);
        cancelled
    }

    /// Returns the state of a kernel; `None` once the kernel has ended.
    pub fn state(&self, job: &SessionJob) -> Option<KernelState> {
        self.shared.state.lock().board.state(job.number)
    }

    /// Returns the process that opened the session; one forked from it lacks its workers.
    pub fn home(&self) -> Home {
        self.home
    }

    /// Closes the session to new kernels; with `cancel`, cancels all kernels. Waits until every kernel has ended.
    pub fn close(&self, cancel: bool) {
        self.begin_close(cancel);
        self.wait_closed(None);
    }

    /// Closes the session to new kernels; with `cancel`, cancels all kernels. Waits for nothing.
    pub fn begin_close(&self, cancel: bool) {
        if !self.home.is_here() {
            return;
        }
        let mut state = self.shared.state.lock();
        state.closed = true;
        if state.broken.is_some() {
            return;
        }
        state.board.close();
        if cancel {
            let jobs: Vec<Arc<SessionJob>> = state.jobs.values().cloned().collect();
            for job in jobs {
                if state.board.cancel(job.number) {
                    job.stop();
                }
            }
        }
        self.shared.settle(&mut state);
    }

    /// Waits until every kernel of a closed session has ended, or until `timeout` has passed if there is one. Returns
    /// the kernels that have not ended: none once the session is at its end.
    pub fn wait_closed(&self, timeout: Option<Duration>) -> Vec<UnendedKernel> {
        if !self.home.is_here() || self.threads.lock().is_empty() {
            return Vec::new();
        }
        let mut state = self.shared.state.lock();
        let works = |state: &mut SessionState| state.workers_left > 0;
        match timeout {
            None => self.shared.ended.wait_while(&mut state, works),
            Some(time) => {
                self.shared.ended.wait_while_for(&mut state, works, time);
            }
        }
        if state.workers_left > 0 {
            let told = |job: &Arc<SessionJob>| UnendedKernel {
                number: job.number,
                kernel: job.request().kernel.program().table.name.clone(),
                is_native: matches!(job.request().form, KernelForm::Native(_)),
            };
            return state.jobs.values().map(told).collect();
        }
        drop(state);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // Workers catch panics, of kernels' steps and of the scheduler.
            let _ = thread.join();
        }
        Vec::new()
    }

    /// Closes the session and waits until every kernel has ended; says which kernel it waits for, if that takes long.
    pub fn end(&self) {
        self.begin_close(false);
        let left = self.wait_closed(Some(PATIENCE));
        if let Some(first) = named(&left) {
            eprintln!("nandarray: a session that ends waits for job {} ({})", first.number, first.kernel);
        }
        self.wait_closed(None);
    }

    /// Leaves the workers of a closed session to themselves: no thread waits for the kernels that have not ended.
    pub fn abandon(&self) {
        self.threads.lock().clear();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.home.is_here() {
            // The handles are of threads that do not exist here; they must not even be dropped.
            self.threads.get_mut().drain(..).for_each(std::mem::forget);
        } else {
            self.end();
        }
    }
}

impl SessionShared {
    /// Sets the results of the kernels that have ended, and wakes the threads that wait.
    fn settle(&self, state: &mut SessionState) {
        for (number, end) in state.board.take_ended() {
            let Some(job) = state.jobs.remove(&number) else { panic!("kernel {number} ended, and was not submitted") };
            job.finish(end);
            self.ended.notify_all();
        }
        state.refused.fill(false);
        self.moved.notify_all();
    }

    /// Runs a worker thread. A panic of the scheduler or the board ends the session: every kernel that has not ended
    /// fails with the panic's message, once no worker is at work for it.
    fn work(&self, worker: usize) {
        let panicked = caught(|| self.work_until_closed(worker)).err();
        let mut state = self.state.lock();
        if let Some(what) = panicked {
            state.closed = true;
            state.broken.get_or_insert(format!("the session's scheduler failed: {what}"));
        }
        state.workers_left -= 1;
        if let (0, Some(what)) = (state.workers_left, state.broken.clone()) {
            for job in std::mem::take(&mut state.jobs).into_values() {
                job.fail(Error::Worker(what.clone()));
                job.finish(KernelEnd::Failed);
            }
        }
        drop(state);
        self.moved.notify_all();
        self.ended.notify_all();
    }

    fn work_until_closed(&self, worker: usize) {
        let mut cores: VecDeque<(Arc<LoadedKernel>, usize, KernelCore)> = VecDeque::new();
        let mut state = self.state.lock();
        while state.broken.is_none() {
            match state.board.take(worker) {
                Some(work) => {
                    let number = match work {
                        BoardWork::Map(kernel) | BoardWork::Drain(kernel) => kernel,
                        BoardWork::Screen(job) => job.kernel,
                    };
                    let job = state.jobs[&number].clone();
                    state.at_work += 1;
                    drop(state);
                    let done = caught(|| self.step(work, &job, &mut cores));
                    let done = done.unwrap_or_else(|what| Err(Error::Worker(what)));
                    let fine = done.is_ok();
                    if let Err(error) = done {
                        job.fail(error);
                    }
                    state = self.state.lock();
                    state.at_work -= 1;
                    if state.broken.is_some() {
                        return;
                    }
                    match work {
                        BoardWork::Map(kernel) => state.board.mapped(kernel, fine),
                        BoardWork::Screen(screen) => state.board.screened(screen, fine),
                        BoardWork::Drain(kernel) => state.board.drained(kernel, fine),
                    }
                    self.settle(&mut state);
                }
                None if state.closed && state.board.is_empty() => break,
                None => {
                    state.refused[worker] = true;
                    if state.is_stuck() {
                        let kernels = state.board.len();
                        let what =
                            format!("the session's scheduler gives no worker anything, and {kernels} kernels wait");
                        state.broken = Some(what);
                        break;
                    }
                    self.moved.wait(&mut state);
                }
            }
        }
    }

    fn step(
        &self,
        work: BoardWork,
        job: &SessionJob,
        cores: &mut VecDeque<(Arc<LoadedKernel>, usize, KernelCore)>,
    ) -> Result<()> {
        let device = self.runtime.device();
        match work {
            BoardWork::Map(_) => job.map(device),
            BoardWork::Screen(screen) => self.screen(screen, job, cores),
            BoardWork::Drain(_) => job.drain(device),
        }
    }

    fn screen(
        &self,
        screen: ScreenJob,
        job: &SessionJob,
        cores: &mut VecDeque<(Arc<LoadedKernel>, usize, KernelCore)>,
    ) -> Result<()> {
        let request = job.request();
        let form = std::mem::discriminant(&request.form);
        let mark = match form {
            f if f == std::mem::discriminant(&crate::session::kernels::KernelForm::Translated) => 0,
            f if f == std::mem::discriminant(&crate::session::kernels::KernelForm::Interpreted) => 1,
            _ => 2,
        };
        let known = cores.iter().position(|(k, m, _)| Arc::ptr_eq(k, &request.kernel) && *m == mark);
        let (kernel, mark, mut core) = match known.and_then(|at| cores.remove(at)) {
            Some(found) => found,
            None => {
                let made = request.kernel.core(&request.form).map_err(|e| Error::Program(Box::new(e)))?;
                (request.kernel.clone(), mark, made)
            }
        };
        let done = job.screen(self.runtime.device(), &mut core, screen);
        cores.push_front((kernel, mark, core));
        cores.truncate(CORES_KEPT);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_names_a_kernel_of_any_form_that_it_waits_for() {
        let kernel = |number, is_native| UnendedKernel { number, kernel: "k".to_owned(), is_native };
        let named = |left: &[UnendedKernel]| super::named(left).map(|kernel| kernel.number);
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[kernel(4, false), kernel(5, false)]), Some(4));
        assert_eq!(named(&[kernel(4, false), kernel(5, true)]), Some(5));
    }
}
