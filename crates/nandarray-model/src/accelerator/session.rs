//! A session on the modelled accelerator: kernels of a store run on its real bytes, and take modelled time.
//!
//! Each screen runs on a timed core of its own, with empty caches; its cycles and misses are its time. The store does
//! the reads and writes; their way through flash is the machine's ([`AcceleratorMachine`]), beside any clock that the
//! store has. Nothing moves on by itself: a thread that waits for a kernel goes from event to event, and submissions
//! are made at the time that the machine has reached. Of one thread, results and times are the same in each run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nandarray_runtime::schedule::KernelScheduler;
use nandarray_runtime::{Error, KernelRequest, KernelState, Result, Runtime, SavedRows, ScreenJob, SessionJob};
use nandarray_uarch::CoreDescription;

use super::cost::{described_core, timed_work};
use super::machine::{AcceleratorMachine, AcceleratorWork, KernelMoves, ScreenLoad};
use super::platform::AcceleratorPlatform;
use super::results::AcceleratorReport;

/// The settings of a session on an accelerator.
#[derive(Clone, Debug)]
pub struct AcceleratorOptions {
    /// The platform.
    pub platform: AcceleratorPlatform,
    /// The preset of its workers, or the text of a description.
    pub core: String,
    /// The most bytes that mapped kernels need together.
    pub memory_bytes: u64,
    /// The most bytes of a screen's window of a section that stays in the store.
    pub window_bytes: u64,
}

/// Kernels of a store, for a machine.
struct StoreWork {
    runtime: Arc<Runtime>,
    core: CoreDescription,
    jobs: BTreeMap<u64, Arc<SessionJob>>,
    /// Bytes as they were before screens whose cores may fail: kernel, microblock, screen.
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
}

impl AcceleratorState {
    fn settle(&mut self) {
        for (number, end) in self.machine.take_ended() {
            let job = self.work.jobs.remove(&number).expect("a kernel that was submitted");
            job.finish(end);
        }
    }

    /// Goes to the next event. If there is none, kernels that wait for room in flash fail. False if there are none.
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
}

impl fmt::Debug for AcceleratorSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceleratorSession").finish_non_exhaustive()
    }
}

impl AcceleratorSession {
    /// A session beside a runtime's device.
    ///
    /// # Errors
    /// [`Error::Engine`]: the platform or its core cannot be.
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
        let state = Mutex::new(AcceleratorState { machine, work, closed: false });
        Ok(Self { state, runtime: runtime.clone(), window_bytes: options.window_bytes.max(1) })
    }

    fn lock(&self) -> MutexGuard<'_, AcceleratorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits a kernel, at the time that the machine has reached.
    ///
    /// # Errors
    /// The errors of [`nandarray_runtime::session::Session::submit`].
    pub fn submit(&self, request: KernelRequest) -> Result<Arc<SessionJob>> {
        let device = self.runtime.device().clone();
        let shape = |space| device.by_id(space).ok().map(|s| s.peek().record.shape.clone());
        let kernel = request.board(self.window_bytes, shape)?;
        let mut state = self.lock();
        if state.closed {
            return Err(Error::invalid("the session is closed"));
        }
        let name = match request.name.as_str() {
            "" => request.kernel.program().table.name.clone(),
            name => name.to_owned(),
        };
        let (given, stored) = request.bytes_in();
        let number = state.machine.submit(&name, given + stored, kernel)?;
        let job = Arc::new(SessionJob::new(number, request));
        state.work.jobs.insert(number, job.clone());
        state.settle();
        Ok(job)
    }

    /// Goes on until a kernel has ended, or until `enough`, which is asked between events. Returns whether it has
    /// ended.
    ///
    /// # Errors
    /// [`Error::Engine`]: nothing is left that could end it, as it waits for a name.
    pub fn wait(&self, job: &SessionJob, enough: &mut dyn FnMut() -> bool) -> Result<bool> {
        while !job.has_ended() {
            if enough() {
                return Ok(false);
            }
            if !self.lock().step() && !job.has_ended() {
                let number = job.number;
                return Err(Error::invalid(format!("kernel {number} waits for a name that no kernel has")));
            }
        }
        Ok(true)
    }

    /// Cancels a kernel, unless its outputs are being written. Returns whether it ends as cancelled.
    pub fn cancel(&self, job: &SessionJob) -> bool {
        job.stop();
        let mut state = self.lock();
        let cancelled = state.machine.cancel(job.number);
        state.settle();
        cancelled
    }

    /// The state of a kernel; none once it has ended.
    pub fn state(&self, job: &SessionJob) -> Option<KernelState> {
        self.lock().machine.state(job.number)
    }

    /// Takes no more kernels; with `cancel`, ends those that have not ended. Goes on until all have ended and their
    /// outputs are in flash.
    ///
    /// # Errors
    /// [`Error::Engine`]: flash is full; all kernels have ended.
    pub fn close(&self, cancel: bool) -> Result<()> {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.closed = true;
        state.machine.close();
        if cancel {
            let jobs: Vec<Arc<SessionJob>> = state.work.jobs.values().cloned().collect();
            for job in jobs {
                job.stop();
                state.machine.cancel(job.number);
            }
        }
        state.settle();
        while state.machine.kernels() > 0 && state.step() {}
        let settled = state.machine.settle(&mut state.work);
        state.settle();
        settled.map_err(Error::invalid)
    }

    /// The report of all that happened so far.
    pub fn report(&self) -> AcceleratorReport {
        self.lock().machine.report()
    }
}
