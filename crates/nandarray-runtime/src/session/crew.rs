//! A session on the wall clock: threads of this machine that do a board's work.
//!
//! Any thread may submit, wait and cancel. A worker that panics in a step fails that kernel and goes on. Dropping a
//! session ends it: kernels that were submitted run to their end first.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nandarray::Device;
use nandarray::panics::caught;
use nandarray_cores::kernel::KernelCore;
use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};
use crate::execute::Runtime;
use crate::schedule::{KernelScheduler, by_name, names};
use crate::session::board::{BoardError, BoardWork, KernelEnd, KernelState, ScreenJob, SessionBoard};
use crate::session::kernels::{KernelRequest, LoadedKernel};
use crate::session::mapping::MappedSections;

/// Kernels whose cores a worker keeps.
const CORES_KEPT: usize = 4;

/// The settings of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// The scheduler's name.
    pub scheduler: String,
    /// Number of workers.
    pub workers: usize,
    /// The most bytes that mapped kernels need together.
    pub memory_bytes: u64,
    /// The most bytes of a screen's window of a section that stays in the store.
    pub window_bytes: u64,
}

/// The bytes of a kernel that is done: each section that is collected.
pub type Collected = Vec<Option<Vec<u8>>>;

/// A kernel of a session.
#[derive(Debug)]
pub struct SessionJob {
    /// Its number in the session.
    pub number: u64,
    request: KernelRequest,
    stop: AtomicBool,
    sections: Mutex<Option<Arc<MappedSections>>>,
    /// Screens that are done.
    done: AtomicU64,
    failure: Mutex<Option<Error>>,
    end: Mutex<Option<Result<Collected>>>,
    ended: AtomicBool,
}

impl SessionJob {
    /// A submission with the number that its board gave it. The owner of the board does its steps.
    pub fn new(number: u64, request: KernelRequest) -> Self {
        Self {
            number,
            request,
            stop: AtomicBool::new(false),
            sections: Mutex::new(None),
            done: AtomicU64::new(0),
            failure: Mutex::new(None),
            end: Mutex::new(None),
            ended: AtomicBool::new(false),
        }
    }

    /// The submission.
    pub fn request(&self) -> &KernelRequest {
        &self.request
    }

    /// Reads and makes its sections.
    ///
    /// # Errors
    /// [`Error`] of a read.
    pub fn map(&self, device: &Device) -> Result<()> {
        *self.sections.lock() = Some(Arc::new(MappedSections::map(device, &self.request)?));
        Ok(())
    }

    /// Runs a screen on a core.
    ///
    /// # Errors
    /// [`Error::Kernel`], or that of a read.
    pub fn screen(&self, device: &Device, core: &mut KernelCore, screen: ScreenJob) -> Result<()> {
        let sections = self.sections.lock().clone().expect("a mapped kernel");
        let done = sections.run(device, &self.request, core, screen, &self.stop);
        self.done.fetch_add(1, Ordering::Relaxed);
        done
    }

    /// Copies what a screen may change; [`SessionJob::restore`] puts it back.
    pub fn save(&self, screen: ScreenJob) -> SavedRows {
        let sections = self.sections.lock().clone().expect("a mapped kernel");
        SavedRows(sections.save(&self.request, screen))
    }

    /// A screen is as if it had not run.
    pub fn restore(&self, saved: SavedRows) {
        self.done.fetch_sub(1, Ordering::Relaxed);
        self.sections.lock().clone().expect("a mapped kernel").restore(saved.0);
    }

    /// Writes its outputs.
    ///
    /// # Errors
    /// [`Error`] of a write; nothing was written then.
    pub fn drain(&self, device: &Device) -> Result<()> {
        let sections = self.sections.lock().take().expect("a mapped kernel");
        let sections = Arc::into_inner(sections).expect("no screen runs any more");
        let given = sections.drain(device, &self.request)?;
        *self.end.lock() = Some(Ok(given));
        Ok(())
    }

    /// A step has failed; its other screens are not needed.
    pub fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.stop();
    }

    /// Its screens stop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// The board says that it has ended.
    pub fn finish(&self, end: KernelEnd) {
        let number = self.number;
        self.sections.lock().take();
        let mut slot = self.end.lock();
        let failure = self.failure.lock().take();
        match (end, failure) {
            (KernelEnd::Done, _) => assert!(slot.is_some(), "the outputs of kernel {number} are there"),
            (KernelEnd::Failed, Some(error)) => *slot = Some(Err(error)),
            (KernelEnd::Failed, None) => panic!("kernel {number} failed without an error"),
            (KernelEnd::Cancelled, _) => *slot = Some(Err(Error::Cancelled)),
            (KernelEnd::Dependency(on), _) => {
                let name = self.request.kernel.program().table.name.clone();
                *slot = Some(Err(Error::Dependency { kernel: name, on }));
            }
        }
        drop(slot);
        self.ended.store(true, Ordering::Release);
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Screens that are done.
    pub fn screens_done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Number of microblocks.
    pub fn microblocks(&self) -> usize {
        self.request.kernel.program().table.microblocks.len()
    }

    /// Takes its result; none if it has not ended, or was taken.
    pub fn take(&self) -> Option<Result<Collected>> {
        self.end.lock().take()
    }
}

struct SessionState {
    board: SessionBoard,
    jobs: BTreeMap<u64, Arc<SessionJob>>,
    closed: bool,
}

struct SessionShared {
    runtime: Arc<Runtime>,
    state: Mutex<SessionState>,
    moved: Condvar,
    ended: Condvar,
    window_bytes: u64,
}

/// A session.
pub struct Session {
    shared: Arc<SessionShared>,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kernels = self.shared.state.lock().board.len();
        f.debug_struct("Session").field("kernels", &kernels).finish_non_exhaustive()
    }
}

/// Bytes that a screen may change, as they were.
#[derive(Debug)]
pub struct SavedRows(Vec<(usize, Range<u64>, Vec<u8>)>);

impl From<BoardError> for Error {
    fn from(error: BoardError) -> Self {
        match error {
            BoardError::Circle { names } => Self::Circle { names },
            other => Self::invalid(other.to_string()),
        }
    }
}

impl Session {
    /// A session beside a runtime's device. On a device under a modelled clock it has one worker.
    ///
    /// # Errors
    /// [`Error::Engine`]: there is no such scheduler, or no thread.
    pub fn new(runtime: &Arc<Runtime>, options: &SessionOptions) -> Result<Self> {
        let workers = if runtime.device().is_watched() { 1 } else { options.workers.max(1) };
        let scheduler = by_name(&options.scheduler, workers).ok_or_else(|| {
            let (name, all) = (&options.scheduler, names().join(", "));
            Error::invalid(format!("there is no scheduler {name:?}; there are {all}"))
        })?;
        Self::with_scheduler(runtime, options, scheduler)
    }

    /// The same with a scheduler of the caller's, made for that number of workers; the options' name is not read.
    ///
    /// # Errors
    /// [`Error::Engine`]: no thread.
    pub fn with_scheduler(
        runtime: &Arc<Runtime>,
        options: &SessionOptions,
        scheduler: Box<dyn KernelScheduler>,
    ) -> Result<Self> {
        runtime.device().usable()?;
        let workers = if runtime.device().is_watched() { 1 } else { options.workers.max(1) };
        let board = SessionBoard::new(scheduler, workers, options.memory_bytes);
        let state = SessionState { board, jobs: BTreeMap::new(), closed: false };
        let shared = Arc::new(SessionShared {
            runtime: runtime.clone(),
            state: Mutex::new(state),
            moved: Condvar::new(),
            ended: Condvar::new(),
            window_bytes: options.window_bytes.max(1),
        });
        let mut threads = Vec::new();
        for worker in 0..workers {
            let theirs = shared.clone();
            let name = format!("nandarray-session-{worker}");
            let made = std::thread::Builder::new().name(name).spawn(move || theirs.work(worker));
            threads.push(made.map_err(|e| Error::invalid(format!("no thread for a session: {e}")))?);
        }
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    /// Submits a kernel.
    ///
    /// # Errors
    /// [`Error::Circle`]: kernels would wait for each other. [`Error::Engine`]: bindings do not fit the kernel, or the
    /// session is closed.
    pub fn submit(&self, request: KernelRequest) -> Result<Arc<SessionJob>> {
        let device = self.shared.runtime.device().clone();
        let shape = |space| device.by_id(space).ok().map(|s| s.peek().record.shape.clone());
        let kernel = request.board(self.shared.window_bytes, shape)?;
        let mut state = self.shared.state.lock();
        if state.closed {
            return Err(Error::invalid("the session is closed"));
        }
        let number = state.board.submit(kernel)?;
        let job = Arc::new(SessionJob::new(number, request));
        state.jobs.insert(number, job.clone());
        self.shared.settle(&mut state);
        Ok(job)
    }

    /// Waits until a kernel has ended, or a time has passed. Returns whether it has ended.
    pub fn wait(&self, job: &SessionJob, timeout: Option<Duration>) -> bool {
        let mut state = self.shared.state.lock();
        // The end of any kernel wakes all that wait.
        match timeout {
            None => self.shared.ended.wait_while(&mut state, |_| !job.has_ended()),
            Some(time) => {
                self.shared.ended.wait_while_for(&mut state, |_| !job.has_ended(), time);
            }
        }
        job.has_ended()
    }

    /// Cancels a kernel, unless its outputs are being written. Returns whether it ends as cancelled.
    pub fn cancel(&self, job: &SessionJob) -> bool {
        let mut state = self.shared.state.lock();
        let cancelled = state.board.cancel(job.number);
        if cancelled {
            job.stop();
        }
        self.shared.settle(&mut state);
        cancelled
    }

    /// The state of a kernel; none once it has ended.
    pub fn state(&self, job: &SessionJob) -> Option<KernelState> {
        self.shared.state.lock().board.state(job.number)
    }

    /// Takes no more kernels; with `cancel`, ends those that have not ended. Waits for all of them.
    pub fn close(&self, cancel: bool) {
        {
            let mut state = self.shared.state.lock();
            state.closed = true;
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
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A worker's panics are caught; one in the board itself is a bug, and was printed.
            let _ = thread.join();
        }
        self.shared.ended.notify_all();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.close(false);
    }
}

impl SessionShared {
    /// Reports kernels that ended, and wakes workers.
    fn settle(&self, state: &mut SessionState) {
        for (number, end) in state.board.take_ended() {
            let Some(job) = state.jobs.remove(&number) else { panic!("kernel {number} ended, and was not submitted") };
            job.finish(end);
            self.ended.notify_all();
        }
        self.moved.notify_all();
    }

    fn work(&self, worker: usize) {
        let mut cores: VecDeque<(Arc<LoadedKernel>, usize, KernelCore)> = VecDeque::new();
        let mut state = self.state.lock();
        loop {
            match state.board.take(worker) {
                Some(work) => {
                    let number = match work {
                        BoardWork::Map(kernel) | BoardWork::Drain(kernel) => kernel,
                        BoardWork::Screen(job) => job.kernel,
                    };
                    let job = state.jobs[&number].clone();
                    drop(state);
                    let done = caught(|| self.step(work, &job, &mut cores));
                    let done = done.unwrap_or_else(|what| Err(Error::Worker(what)));
                    let fine = done.is_ok();
                    if let Err(error) = done {
                        job.fail(error);
                    }
                    state = self.state.lock();
                    match work {
                        BoardWork::Map(kernel) => state.board.mapped(kernel, fine),
                        BoardWork::Screen(screen) => state.board.screened(screen, fine),
                        BoardWork::Drain(kernel) => state.board.drained(kernel, fine),
                    }
                    self.settle(&mut state);
                }
                None if state.closed && state.board.is_empty() => break,
                None => self.moved.wait(&mut state),
            }
        }
        self.ended.notify_all();
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
        let request = &job.request;
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
