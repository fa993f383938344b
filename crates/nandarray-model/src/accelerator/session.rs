//! A session on the modelled accelerator: kernels of a store run on its real bytes, and take modelled time.
//!
//! Each screen runs on a timed core of its own, with empty caches; its cycles and cache misses give its modelled time.
//! The store performs the reads and writes; [`AcceleratorMachine`] models their way through flash, independently of any
//! clock that the store has. Modelled time advances only in calls: a thread that waits for a kernel handles event after
//! event, and a submission happens at the time that the machine has reached. With one thread, results and times are the
//! same in every run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nandarray::Home;
use nandarray::panics::caught;
use nandarray_runtime::schedule::KernelScheduler;
use nandarray_runtime::{
    Error, KernelEnd, KernelRequest, KernelState, Result, Runtime, SavedRows, ScreenJob, SessionJob,
};
use nandarray_uarch::CoreDescription;

use super::cost::{described_core, timed_work};
use super::machine::{AcceleratorMachine, AcceleratorWork, KernelMoves, ScreenLoad};
use super::platform::AcceleratorPlatform;
use super::results::AcceleratorReport;

/// The settings of a session on an accelerator.
#[derive(Clone, Debug)]
pub struct AcceleratorOptions {
    /// The accelerator's platform.
    pub platform: AcceleratorPlatform,
    /// The workers' core: the name of a preset, or the TOML text of a description.
    pub core: String,
    /// Maximum number of bytes that mapped kernels need together.
    pub memory_bytes: u64,
    /// Maximum number of bytes of a screen's window of a section that stays in the store.
    pub window_bytes: u64,
}

/// An executor of a store's kernels for the machine.
struct StoreWork {
    runtime: Arc<Runtime>,
    core: CoreDescription,
    jobs: BTreeMap<u64, Arc<SessionJob>>,
    /// Bytes before the execution of each screen that may have to run again, by kernel, microblock and screen.
    saved: BTreeMap<(u64, usize, u64), SavedRows>,
}

impl StoreWork {
    fn told<T>(&self, kernel: u64, done: Result<T>) -> std::result::Result<T, ()> {
        done.map_err(|error| self.jobs[&kernel].fail(error))
    }
}

impl AcceleratorWork for StoreWork {
    fn map(&mut self, kernel: u64) -> std::result::Result<KernelMoves, ()> {
        let job = self.jobs[&kernel].clone();
        self.told(kernel, job.map(self.runtime.device()))?;
        Ok(KernelMoves { bytes_host: job.request().bytes_in().0, bytes_out: 0 })
    }

    fn screen(&mut self, screen: ScreenJob, again: bool) -> std::result::Result<ScreenLoad, ()> {
        let ScreenJob { kernel, microblock, screen: number, screens } = screen;
        let job = self.jobs[&kernel].clone();
        if again {
            self.saved.insert((kernel, microblock, number), job.save(screen));
        }
        let loaded = job.request().kernel.clone();
        let device = self.runtime.device();
        let done = timed_work(loaded.program(), &self.core, |core| job.screen(device, core, screen));
        let done = done.map_err(Error::invalid).and_then(|(done, cost)| done.map(|()| cost));
        let cost = self.told(kernel, done)?;
        let bytes_in = job.request().screen_bytes(microblock, number, screens);
        Ok(ScreenLoad { cycles: cost.cycles, bytes_in, bytes_dram: cost.bytes_dram })
    }

    fn undo(&mut self, job: ScreenJob) {
        let saved = self.saved.remove(&(job.kernel, job.microblock, job.screen)).expect("a core that may fail");
        self.jobs[&job.kernel].restore(saved);
    }

    fn drain(&mut self, kernel: u64) -> std::result::Result<KernelMoves, ()> {
        let job = self.jobs[&kernel].clone();
        self.saved.retain(|(of, ..), _| *of != kernel);
        self.told(kernel, job.drain(self.runtime.device()))?;
        let (bytes_host, bytes_out) = job.request().bytes_out();
        Ok(KernelMoves { bytes_host, bytes_out })
    }
}

struct AcceleratorState {
    machine: AcceleratorMachine,
    work: StoreWork,
    closed: bool,
    /// The message of a panic of the scheduler or the machine, after which neither is asked again.
    broken: Option<String>,
}

impl AcceleratorState {
    /// Does a step of the machine. A panic in it, of a scheduler above all, fails all kernels with the panic's message.
    ///
    /// # Errors
    /// [`Error::Worker`]: this step panicked, or an earlier one did.
    fn guarded<T>(&mut self, step: impl FnOnce(&mut Self) -> T) -> Result<T> {
        if let Some(what) = &self.broken {
            return Err(Error::Worker(what.clone()));
        }
        caught(|| step(self)).map_err(|what| {
            let what = format!("the session's scheduler or its machine failed: {what}");
            for job in std::mem::take(&mut self.work.jobs).into_values() {
                job.fail(Error::Worker(what.clone()));
                job.finish(KernelEnd::Failed);
            }
            self.broken = Some(what.clone());
            Error::Worker(what)
        })
    }

    fn settle(&mut self) {
        for (number, end) in self.machine.take_ended() {
            let job = self.work.jobs.remove(&number).expect("a kernel that was submitted");
            job.finish(end);
        }
    }

    /// Handles the next event. If there is no event, fails the kernels that wait for room in flash. Returns false if
    /// there is no event and no such kernel.
    fn step(&mut self) -> bool {
        let mut moved = self.machine.step(&mut self.work);
        if !moved {
            for kernel in self.machine.refuse_outputs() {
                self.work.jobs[&kernel].fail(Error::invalid("flash is full: its outputs have no place"));
                moved = true;
            }
        }
        self.settle();
        moved
    }
}

/// A session of a store on a modelled accelerator.
pub struct AcceleratorSession {
    state: Mutex<AcceleratorState>,
    runtime: Arc<Runtime>,
    window_bytes: u64,
    /// The process that opened the session, which may be a fork of the one that opened the store.
    home: Home,
}

impl fmt::Debug for AcceleratorSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceleratorSession").finish_non_exhaustive()
    }
}

impl AcceleratorSession {
    /// Opens a session for the store of a runtime.
    ///
    /// # Errors
    /// [`Error::Engine`]: the platform or its core is invalid.
    pub fn new(
        runtime: &Arc<Runtime>,
        options: &AcceleratorOptions,
        scheduler: Box<dyn KernelScheduler>,
    ) -> Result<Self> {
        runtime.device().usable()?;
        let core = described_core(&options.core).map_err(Error::invalid)?;
        let machine = AcceleratorMachine::new(&options.platform, scheduler, options.memory_bytes);
        let machine = machine.map_err(Error::invalid)?;
        let (jobs, saved) = (BTreeMap::new(), BTreeMap::new());
        let work = StoreWork { runtime: runtime.clone(), core, jobs, saved };
        let state = Mutex::new(AcceleratorState { machine, work, closed: false, broken: None });
        let window_bytes = options.window_bytes.max(1);
        Ok(Self { state, runtime: runtime.clone(), window_bytes, home: Home::here() })
    }

    fn lock(&self) -> MutexGuard<'_, AcceleratorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the process that opened the session.
    pub fn home(&self) -> Home {
        self.home
    }

    /// Submits a kernel, at the time that the machine has reached.
    ///
    /// # Errors
    /// The errors of `nandarray_runtime::Session::submit`.
    pub fn submit(&self, request: KernelRequest) -> Result<Arc<SessionJob>> {
        let kernel = request.board(self.window_bytes, self.runtime.device())?;
        let mut state = self.lock();
        if state.closed {
            return Err(Error::invalid("the session is closed"));
        }
        let name = match request.name.as_str() {
            "" => request.kernel.program().table.name.clone(),
            name => name.to_owned(),
        };
        let (given, stored) = request.bytes_in();
        state.guarded(|state| {
            let number = state.machine.submit(&name, given + stored, kernel)?;
            let job = Arc::new(SessionJob::new(number, request));
            state.work.jobs.insert(number, job.clone());
            state.settle();
            Ok(job)
        })?
    }

    /// Handles events until the kernel has ended, or until `enough`, which is called between events, returns true.
    /// Returns whether the kernel has ended.
    ///
    /// # Errors
    /// [`Error::Engine`]: no event is left that could end the kernel, because it waits for a name that no kernel has,
    /// or for a scheduler that gives it to no worker. [`Error::Worker`]: a step panicked, and the kernel has no result.
    pub fn wait(&self, job: &SessionJob, enough: &mut dyn FnMut() -> bool) -> Result<bool> {
        while !job.has_ended() {
            if enough() {
                return Ok(false);
            }
            let moved = match self.lock().guarded(AcceleratorState::step) {
                Ok(moved) => moved,
                // The failure is the kernel's result.
                Err(_) if job.has_ended() => true,
                Err(error) => return Err(error),
            };
            if !moved && !job.has_ended() {
                let number = job.number;
                let cause = match self.state(job) {
                    Some(KernelState::Submitted) => "waits for a name that no kernel has",
                    _ => "is given to no worker by the scheduler, and nothing else is left to happen",
                };
                return Err(Error::invalid(format!("kernel {number} {cause}")));
            }
        }
        Ok(true)
    }

    /// Cancels a kernel, unless its outputs are being written. Returns whether it was cancelled.
    pub fn cancel(&self, job: &SessionJob) -> bool {
        let cancelled = self.lock().guarded(|state| {
            let cancelled = state.machine.cancel(job.number);
            if cancelled {
                job.stop();
            }
            state.settle();
            cancelled
        });
        cancelled.unwrap_or(false)
    }

    /// Returns the state of a kernel; `None` once it has ended.
    pub fn state(&self, job: &SessionJob) -> Option<KernelState> {
        self.lock().machine.state(job.number)
    }

    /// Closes the session for new kernels and handles events until all kernels have ended and their outputs are in
    /// flash. With `cancel`, it cancels the kernels that have not ended.
    ///
    /// # Errors
    /// [`Error::Engine`]: flash is full; all kernels have ended nevertheless.
    pub fn close(&self, cancel: bool) -> Result<()> {
        if !self.home.is_here() {
            return Ok(());
        }
        let mut guard = self.lock();
        guard.closed = true;
        let closed = guard.guarded(|state| {
            state.machine.close();
            if cancel {
                let jobs: Vec<Arc<SessionJob>> = state.work.jobs.values().cloned().collect();
                for job in jobs {
                    if state.machine.cancel(job.number) {
                        job.stop();
                    }
                }
            }
            state.settle();
            while state.machine.kernels() > 0 && state.step() {}
            let settled = state.machine.settle(&mut state.work);
            state.settle();
            settled
        });
        // A scheduler's failure is the kernels' result.
        closed.unwrap_or(Ok(())).map_err(Error::invalid)
    }

    /// Returns the report from the beginning to the machine's current time.
    pub fn report(&self) -> AcceleratorReport {
        self.lock().machine.report()
    }
}
