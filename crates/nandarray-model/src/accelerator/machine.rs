//! The event loop of the accelerator: workers take screens from a board and go through their windows.
//!
//! A screen requests its first windows, computes on one while later ones come, and ends when its last window is done.
//! A kernel's outputs are accepted into DDR3L before it ends, and written behind it. The kernels (phantom calls,
//! or programs on real bytes) are an [`AcceleratorWork`]. A core that fails gives its screen back to the board.

use std::collections::{BTreeMap, VecDeque};

use nandarray_runtime::schedule::KernelScheduler;
use nandarray_runtime::{BoardError, BoardKernel, BoardWork, KernelEnd, KernelState, ScreenJob, SessionBoard};
use nandarray_sim::{Events, Ps};

use super::platform::AcceleratorPlatform;
use super::results::{AcceleratorReport, AcceleratorSums, ActivityKind, KernelTimes, ScreenSpan};
use super::storage::{AcceleratorStorage, BackgroundWork};

/// The cost of a screen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScreenLoad {
    /// Cycles on its core.
    pub cycles: f64,
    /// Bytes from flash.
    pub bytes_in: u64,
    /// Bytes between caches and DDR3L.
    pub bytes_dram: u64,
}

/// Bytes that move at the begin or the end of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelMoves {
    /// Bytes from or to the host.
    pub bytes_host: u64,
    /// Bytes to flash.
    pub bytes_out: u64,
}

/// The kernels of a machine: what their steps do and cost. A step that fails is an `Err`; its reason is the owner's.
#[allow(clippy::result_unit_err)]
pub trait AcceleratorWork {
    /// A kernel's sections are made.
    fn map(&mut self, kernel: u64) -> Result<KernelMoves, ()>;
    /// A screen runs; `again` if its core may fail before its end, so that it may have to run a second time.
    fn screen(&mut self, job: ScreenJob, again: bool) -> Result<ScreenLoad, ()>;
    /// The core of a screen that ran has failed: what it changed is as it was.
    fn undo(&mut self, job: ScreenJob);
    /// A kernel's outputs are written.
    fn drain(&mut self, kernel: u64) -> Result<KernelMoves, ()>;
}

/// A screen that a worker is at.
#[derive(Clone, Copy, Debug)]
struct WorkingScreen {
    job: ScreenJob,
    began: Ps,
    /// Windows: all, requested, computed.
    windows: (u64, u64, u64),
    /// Times at which requested windows that were not computed are there.
    arrives: [Ps; 8],
    compute: Ps,
    bytes: u64,
    dram: u64,
    computed: Ps,
    failed: bool,
}

#[derive(Clone, Copy, Debug)]
enum AcceleratorEvent {
    /// A worker is free, or its window is computed; stale if the worker has another turn.
    Worker(usize, u64),
    /// A kernel's sections are there.
    Mapped(u64, bool),
    /// A kernel's outputs are accepted.
    Drained(u64, bool),
    /// A write or an erase of a row of dies ends.
    Row(usize),
    /// Storengine writes its journal.
    Journal,
    /// Storengine looks for blocks to free.
    Reclaim,
    /// A core fails.
    CoreFails(usize),
    /// A row of dies fails.
    RowFails(usize),
    /// Kernels arrive.
    Arrival,
}

/// A kernel that waits for room for its outputs.
#[derive(Clone, Copy, Debug)]
struct WaitingOutput {
    kernel: u64,
    groups: u64,
    host: Ps,
}

/// An accelerator that runs kernels.
pub struct AcceleratorMachine {
    storage: AcceleratorStorage,
    board: SessionBoard,
    events: Events<AcceleratorEvent>,
    at: Vec<Option<WorkingScreen>>,
    turns: Vec<u64>,
    idle: Vec<bool>,
    dead: Vec<bool>,
    outputs: VecDeque<WaitingOutput>,
    /// Groups of each kernel's outputs that are not in flash yet.
    unwritten: BTreeMap<u64, u64>,
    journal: bool,
    reclaiming: bool,
    sums: AcceleratorSums,
    report: AcceleratorReport,
    arrived: Vec<Ps>,
    last_end: Ps,
    now: Ps,
}

impl std::fmt::Debug for AcceleratorMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcceleratorMachine").field("now", &self.now).finish_non_exhaustive()
    }
}

impl AcceleratorMachine {
    /// A machine whose kernels need `memory` bytes at most at a time.
    ///
    /// # Errors
    /// Text: the platform cannot be.
    pub fn new(
        platform: &AcceleratorPlatform,
        scheduler: Box<dyn KernelScheduler>,
        memory: u64,
    ) -> Result<Self, String> {
        if let Some(problem) = platform.problem() {
            return Err(problem);
        }
        let n = platform.workers;
        let mut events = Events::default();
        for (worker, at) in &platform.core_failures {
            events.push(Ps(at * 1_000), AcceleratorEvent::CoreFails(*worker));
        }
        for (row, at) in &platform.die_failures {
            events.push(Ps(at * 1_000), AcceleratorEvent::RowFails(*row));
        }
        Ok(Self {
            storage: AcceleratorStorage::new(platform),
            board: SessionBoard::new(scheduler, n, memory),
            events,
            at: vec![None; n],
            turns: vec![0; n],
            idle: vec![true; n],
            dead: vec![false; n],
            outputs: VecDeque::new(),
            unwritten: BTreeMap::new(),
            journal: false,
            reclaiming: false,
            sums: AcceleratorSums::new(n),
            report: AcceleratorReport::default(),
            arrived: Vec::new(),
            last_end: Ps::ZERO,
            now: Ps::ZERO,
        })
    }

    /// The time of the machine.
    pub fn now(&self) -> Ps {
        self.now
    }

    /// Submits a kernel now; returns its number.
    ///
    /// # Errors
    /// [`BoardError`].
    pub fn submit(&mut self, name: &str, bytes: u64, kernel: BoardKernel) -> Result<u64, BoardError> {
        let application = kernel.facts.application;
        let number = self.board.submit(kernel)?;
        assert_eq!(number as usize, self.report.kernels.len(), "a board counts its kernels");
        let application = if application == u64::MAX { number } else { application };
        let times = KernelTimes { name: name.to_owned(), application, waiting: -1.0, ..KernelTimes::default() };
        self.report.kernels.push(times);
        self.report.bytes += bytes;
        self.arrived.push(self.now);
        Ok(number)
    }

    /// An event at a time, at which the loop's owner submits kernels.
    pub(super) fn arrive_at(&mut self, at: Ps) {
        self.events.push(at, AcceleratorEvent::Arrival);
    }

    /// Cancels a kernel, unless its outputs are being written.
    pub fn cancel(&mut self, kernel: u64) -> bool {
        self.board.cancel(kernel)
    }

    /// Fails kernels that wait for names which no kernel has.
    pub fn close(&mut self) {
        self.board.close();
    }

    /// The state of a kernel; none once it has ended.
    pub fn state(&self, kernel: u64) -> Option<KernelState> {
        self.board.state(kernel)
    }

    /// Kernels that ended since this was asked last.
    pub fn take_ended(&mut self) -> Vec<(u64, KernelEnd)> {
        self.board.take_ended()
    }

    /// Number of kernels that have not ended.
    pub fn kernels(&self) -> usize {
        self.board.len()
    }

    /// Hands out work, and goes to the next event. False if there is none.
    pub fn step(&mut self, work: &mut dyn AcceleratorWork) -> bool {
        self.hand_out(work);
        let Some((now, event)) = self.events.pop() else { return false };
        self.now = now;
        match event {
            AcceleratorEvent::Arrival => {}
            AcceleratorEvent::Worker(worker, turn) if self.turns[worker] == turn => self.worker(worker),
            AcceleratorEvent::Worker(..) => {}
            AcceleratorEvent::Mapped(kernel, fine) => self.board.mapped(kernel, fine),
            AcceleratorEvent::Drained(kernel, fine) => {
                let times = &mut self.report.kernels[kernel as usize];
                times.latency = (now - self.arrived[kernel as usize]).seconds();
                times.end = now.seconds();
                self.last_end = now;
                self.board.drained(kernel, fine);
            }
            AcceleratorEvent::Row(row) => self.row(row),
            AcceleratorEvent::Journal => {
                self.journal = false;
                self.storage.journal(now);
            }
            AcceleratorEvent::Reclaim => self.reclaiming = false,
            AcceleratorEvent::CoreFails(worker) => self.core_fails(worker, work),
            AcceleratorEvent::RowFails(row) => self.row_fails(row, work),
        }
        self.behind();
        true
    }

    /// Lets everything that is on its way to flash arrive there.
    ///
    /// # Errors
    /// Text: flash is full.
    pub fn settle(&mut self, work: &mut dyn AcceleratorWork) -> Result<(), String> {
        while !self.storage.is_settled() {
            if !self.step(work) {
                let left = self.storage.unsettled();
                return Err(format!("flash is full: {left} page groups of outputs and mappings have no place"));
            }
        }
        Ok(())
    }

    /// Fails kernels that wait for room for their outputs, for an owner that found no event left; returns their
    /// numbers.
    pub fn refuse_outputs(&mut self) -> Vec<u64> {
        let refused: Vec<u64> = self.outputs.drain(..).map(|waiting| waiting.kernel).collect();
        for kernel in &refused {
            self.events.push(self.now, AcceleratorEvent::Drained(*kernel, false));
        }
        refused
    }

    /// The report of all that happened so far.
    pub fn report(&mut self) -> AcceleratorReport {
        let mut report = self.report.clone();
        let mut sums = self.sums.clone();
        sums.active = self.storage.active(self.now);
        let storage = &self.storage;
        sums.flashvisor = storage.flashvisor_busy;
        sums.storengine = storage.storengine_busy;
        sums.pcie = storage.pcie_busy;
        report.storengine_work = storage.counts;
        let end = if self.board.is_empty() { self.last_end } else { self.now };
        report.flushed_seconds = end.max(self.now).seconds();
        report.finish(&storage.platform, end, &sums, false);
        report
    }

    /// Hands work to idle workers.
    fn hand_out(&mut self, work: &mut dyn AcceleratorWork) {
        for worker in 0..self.at.len() {
            while self.idle[worker] && !self.dead[worker] {
                match self.board.take(worker) {
                    // Neither occupies a worker: sections come window by window, outputs go by Flashvisor.
                    Some(BoardWork::Map(kernel)) => self.map(kernel, work),
                    Some(BoardWork::Drain(kernel)) => self.drain(kernel, work),
                    Some(BoardWork::Screen(job)) => self.begin(worker, job, work),
                    None => break,
                }
            }
        }
    }

    fn map(&mut self, kernel: u64, work: &mut dyn AcceleratorWork) {
        match work.map(kernel) {
            Ok(KernelMoves { bytes_host: 0, .. }) => self.board.mapped(kernel, true),
            Ok(moves) => {
                let there = self.storage.host_link(self.now, moves.bytes_host);
                self.pcie(kernel, moves.bytes_host);
                self.events.push(there, AcceleratorEvent::Mapped(kernel, true));
            }
            Err(()) => self.events.push(self.now, AcceleratorEvent::Mapped(kernel, false)),
        }
    }

    fn pcie(&mut self, kernel: u64, bytes: u64) {
        let lasts = Ps::of_bytes(bytes, self.storage.platform.pcie_rate).seconds();
        let times = &mut self.report.kernels[kernel as usize];
        times.pcie += lasts;
        times.transfer += lasts;
    }

    fn drain(&mut self, kernel: u64, work: &mut dyn AcceleratorWork) {
        match work.drain(kernel) {
            Err(()) => self.events.push(self.now, AcceleratorEvent::Drained(kernel, false)),
            Ok(moves) => {
                let host = self.storage.host_link(self.now, moves.bytes_host).max(self.now);
                let host = if moves.bytes_host == 0 { self.now } else { host };
                self.pcie(kernel, moves.bytes_host);
                let groups = moves.bytes_out.div_ceil(self.storage.platform.group_bytes);
                self.report.bytes_out += moves.bytes_out;
                if groups == 0 {
                    return self.events.push(host, AcceleratorEvent::Drained(kernel, true));
                }
                self.unwritten.insert(kernel, groups);
                self.outputs.push_back(WaitingOutput { kernel, groups, host });
                self.behind();
            }
        }
    }

    /// Accepts outputs for which there is room; lets dies and Storengine go on.
    fn behind(&mut self) {
        while let Some(first) = self.outputs.front_mut() {
            let groups = first.groups.min(self.storage.room());
            if groups == 0 {
                break;
            }
            first.groups -= groups;
            let WaitingOutput { kernel, groups: left, host } = *first;
            let mapped = self.storage.accept(self.now, kernel, groups);
            if left == 0 {
                self.outputs.pop_front();
                self.events.push(mapped.max(host), AcceleratorEvent::Drained(kernel, true));
            }
        }
        for (row, end) in self.storage.begin(self.now) {
            self.events.push(end, AcceleratorEvent::Row(row));
        }
        if !self.journal && self.storage.is_dirty() {
            self.journal = true;
            let period = Ps(self.storage.platform.journal_period_ns * 1_000);
            self.events.push(self.now + period, AcceleratorEvent::Journal);
        }
        if !self.reclaiming {
            if let Some(again) = self.storage.reclaim(self.now) {
                self.reclaiming = true;
                self.events.push(again, AcceleratorEvent::Reclaim);
            }
        }
    }

    fn row(&mut self, row: usize) {
        match self.storage.ended(row, self.now) {
            Ok(BackgroundWork::Output(kernel)) => {
                let left = self.unwritten.get_mut(&kernel).expect("a kernel with outputs");
                *left -= 1;
                if *left == 0 {
                    self.unwritten.remove(&kernel);
                    self.report.kernels[kernel as usize].flushed = self.now.seconds();
                }
            }
            Ok(_) | Err(None) => {}
            Err(Some(end)) => self.events.push(end, AcceleratorEvent::Row(row)),
        }
    }

    fn begin(&mut self, worker: usize, job: ScreenJob, work: &mut dyn AcceleratorWork) {
        let p = self.storage.platform.clone();
        let now = self.now;
        // Flashvisor decides, and tells the worker.
        let (_, decided) = self.storage.flashvisor(now, Ps(p.t_schedule_ns * 1_000));
        let start = decided + Ps(p.t_message_ns * 1_000);
        let may_fail = p.core_failures.iter().any(|(one, at)| *one == worker && Ps(at * 1_000) >= now)
            || p.die_failures.iter().any(|(_, at)| Ps(at * 1_000) >= now);
        let done = work.screen(job, may_fail);
        let load = done.unwrap_or_default();
        let count = load.bytes_in.div_ceil(p.window_bytes).max(1);
        let kernel = &mut self.report.kernels[job.kernel as usize];
        if kernel.waiting < 0.0 {
            kernel.waiting = (start - self.arrived[job.kernel as usize]).seconds();
        }
        self.idle[worker] = false;
        self.at[worker] = Some(WorkingScreen {
            job,
            began: now,
            windows: (count, 0, 0),
            arrives: [Ps::ZERO; 8],
            compute: p.cycles(load.cycles / count as f64),
            bytes: load.bytes_in,
            dram: load.bytes_dram / count,
            computed: Ps::ZERO,
            failed: done.is_err(),
        });
        self.events.push(start, AcceleratorEvent::Worker(worker, self.turns[worker]));
    }

    /// A worker has begun a screen, or has computed a window.
    fn worker(&mut self, worker: usize) {
        let now = self.now;
        let mut screen = self.at[worker].expect("a worker with a screen");
        let (all, requested, computed) = &mut screen.windows;
        if *computed == *all || screen.failed {
            return self.end(worker, screen);
        }
        let ahead = self.storage.platform.ahead.clamp(1, 7);
        let per = screen.bytes / *all;
        let kernel = screen.job.kernel as usize;
        while *requested < *all && *requested <= *computed + ahead {
            let (there, moved) = self.storage.window(now, per);
            self.report.kernels[kernel].transfer += moved.seconds();
            self.report.kernels[kernel].link += moved.seconds();
            self.report.activity.add(ActivityKind::Storage, Ps(there.0.saturating_sub(moved.0)).max(now), there);
            screen.arrives[(*requested % 8) as usize] = there;
            *requested += 1;
        }
        let there = screen.arrives[(*computed % 8) as usize].max(now);
        self.report.kernels[kernel].storage += (there - now).seconds();
        let mut done = there + screen.compute;
        if screen.dram > 0 {
            done = done.max(self.storage.memory(there, screen.dram));
        }
        self.report.kernels[kernel].compute += (done - there).seconds();
        self.report.activity.add(ActivityKind::Compute, there, done);
        self.sums.computed[worker] += done - there;
        screen.computed += done - there;
        *computed += 1;
        self.at[worker] = Some(screen);
        self.events.push(done, AcceleratorEvent::Worker(worker, self.turns[worker]));
    }

    fn span(&mut self, worker: usize, screen: &WorkingScreen, fine: bool) {
        let ScreenJob { kernel, microblock, screen: number, .. } = screen.job;
        let (start, end) = (screen.began.seconds(), self.now.seconds());
        let computed = screen.computed.seconds();
        self.report.spans.push(ScreenSpan { kernel, microblock, screen: number, worker, start, end, computed, fine });
        self.sums.occupied[worker] += self.now - screen.began;
    }

    fn end(&mut self, worker: usize, screen: WorkingScreen) {
        self.span(worker, &screen, !screen.failed);
        self.at[worker] = None;
        self.idle[worker] = true;
        self.board.screened(screen.job, !screen.failed);
    }

    /// Takes a screen from a worker; another worker runs it again.
    fn give_back(&mut self, worker: usize, work: &mut dyn AcceleratorWork) {
        let Some(screen) = self.at[worker].take() else { return };
        self.turns[worker] += 1;
        self.idle[worker] = true;
        self.span(worker, &screen, false);
        self.report.reruns += 1;
        work.undo(screen.job);
        self.board.again(screen.job);
    }

    fn core_fails(&mut self, worker: usize, work: &mut dyn AcceleratorWork) {
        self.dead[worker] = true;
        self.give_back(worker, work);
        self.board.lost(worker);
    }

    /// Screens that wait for flash run again: a part of their windows was on its way from these dies.
    fn row_fails(&mut self, row: usize, work: &mut dyn AcceleratorWork) {
        self.storage.fail(row, self.now);
        for worker in 0..self.at.len() {
            let now = self.now;
            let waits = self.at[worker].is_some_and(|screen| {
                screen.bytes > 0 && !screen.failed && screen.arrives.iter().any(|there| *there > now)
            });
            if waits {
                self.give_back(worker, work);
            }
        }
    }
}
