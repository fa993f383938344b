//! The event loop of the accelerator: workers take screens from a board and process a screen's input window by window.
//!
//! A screen requests its first windows, computes on one while later ones are fetched, and ends when its last window is
//! computed. A kernel's outputs are accepted into DDR3L before the kernel ends, and written to flash afterwards. The
//! kernels (phantom calls, or programs on real bytes) are an [`AcceleratorWork`]. If a core fails, its screen returns
//! to the board and runs again.

use std::collections::{BTreeMap, VecDeque};

use nandarray_cores::kernel::share;
use nandarray_runtime::schedule::KernelScheduler;
use nandarray_runtime::{BoardError, BoardKernel, BoardWork, KernelEnd, KernelState, ScreenJob, SessionBoard};
use nandarray_sim::{Events, Ps};

use super::platform::AcceleratorPlatform;
use super::results::{AcceleratorReport, AcceleratorSums, ActivityKind, KernelTimes, ScreenSpan};
use super::storage::{AcceleratorStorage, BackgroundWork};

/// Returns the bytes of one of `count` parts of some bytes: as even as can be, and all of them together.
pub(super) fn part(bytes: u64, number: u64, count: u64) -> u64 {
    let range = share(bytes, number, count);
    range.end - range.start
}

/// Cost of a screen: cycles and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScreenLoad {
    /// Number of cycles on the worker's core.
    pub cycles: f64,
    /// Bytes read from flash.
    pub bytes_in: u64,
    /// Bytes moved between caches and DDR3L.
    pub bytes_dram: u64,
}

/// Bytes that move at the beginning or at the end of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelMoves {
    /// Bytes moved from the host or to the host.
    pub bytes_host: u64,
    /// Bytes written to flash.
    pub bytes_out: u64,
}

/// An executor of kernels' steps for the machine, which returns their costs. `Err` means that the step failed; the
/// implementation keeps the reason.
#[allow(clippy::result_unit_err)]
pub trait AcceleratorWork {
    /// Prepares a kernel's sections before its first screen.
    fn map(&mut self, kernel: u64) -> Result<KernelMoves, ()>;
    /// Runs a screen. With `again`, the screen may have to run a second time, because a core or die may fail before its
    /// end; the implementation keeps what [`Self::undo`] needs.
    fn screen(&mut self, job: ScreenJob, again: bool) -> Result<ScreenLoad, ()>;
    /// Restores what a screen changed: its core failed before the screen's end, and the screen will run again.
    fn undo(&mut self, job: ScreenJob);
    /// Writes a kernel's outputs, after its last screen.
    fn drain(&mut self, kernel: u64) -> Result<KernelMoves, ()>;
}

/// A screen that a worker is executing.
#[derive(Clone, Copy, Debug)]
struct WorkingScreen {
    job: ScreenJob,
    began: Ps,
    /// Numbers of the screen's windows (parts of its data sections): in total, requested, and computed.
    windows: (u64, u64, u64),
    /// Arrival in DDR3L of each window that was requested and is not computed; window `n` has entry `n % 8`.
    arrives: [Ps; 8],
    compute: Ps,
    bytes: u64,
    dram: u64,
    computed: Ps,
    /// Interval in which the screen waits for its current window, and the one in which it computes the window.
    waits: (Ps, Ps),
    computes: (Ps, Ps),
    failed: bool,
}

#[derive(Clone, Copy, Debug)]
enum AcceleratorEvent {
    /// The worker of this number is free, or has computed a window. The event is stale if the second number is not the
    /// worker's `turns`.
    Worker(usize, u64),
    /// The sections of this kernel are ready; the flag is false if preparing them failed.
    Mapped(u64, bool),
    /// The outputs of this kernel are accepted into DDR3L; the flag is false if they could not be written.
    Drained(u64, bool),
    /// A write or an erase of this row of dies ends.
    Row(usize),
    /// Storengine writes its journal of mappings.
    Journal,
    /// Storengine looks for blocks to free.
    Reclaim,
    /// The core of this worker fails.
    CoreFails(usize),
    /// This row of dies fails.
    RowFails(usize),
    /// The time of an arrival: the machine's owner submits kernels.
    Arrival,
}

/// A kernel that waits until DDR3L has room for its outputs.
#[derive(Clone, Copy, Debug)]
struct WaitingOutput {
    kernel: u64,
    groups: u64,
    host: Ps,
}

/// A modelled accelerator that runs kernels.
pub struct AcceleratorMachine {
    storage: AcceleratorStorage,
    board: SessionBoard,
    events: Events<AcceleratorEvent>,
    at: Vec<Option<WorkingScreen>>,
    turns: Vec<u64>,
    idle: Vec<bool>,
    dead: Vec<bool>,
    outputs: VecDeque<WaitingOutput>,
    /// Number of page groups of each kernel's outputs that are not in flash yet.
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
    /// Makes a machine whose mapped kernels need at most `memory` bytes together.
    ///
    /// # Errors
    /// A message: the platform is invalid.
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

    /// Returns the machine's modelled time.
    pub fn now(&self) -> Ps {
        self.now
    }

    /// Submits a kernel at the current time, with `bytes` of inputs; returns its number.
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

    /// Schedules an event at which the machine's owner submits kernels.
    pub(super) fn arrive_at(&mut self, at: Ps) {
        self.events.push(at, AcceleratorEvent::Arrival);
    }

    /// Cancels a kernel, unless its outputs are being written. Returns whether it was cancelled.
    pub fn cancel(&mut self, kernel: u64) -> bool {
        self.board.cancel(kernel)
    }

    /// Announces that no further kernels will be submitted: kernels that wait for names which no kernel has then fail.
    pub fn close(&mut self) {
        self.board.close();
    }

    /// Returns the state of a kernel; `None` once it has ended.
    pub fn state(&self, kernel: u64) -> Option<KernelState> {
        self.board.state(kernel)
    }

    /// Returns the kernels that have ended since the last call, each with its end.
    pub fn take_ended(&mut self) -> Vec<(u64, KernelEnd)> {
        self.board.take_ended()
    }

    /// Returns the number of kernels that have not ended.
    pub fn kernels(&self) -> usize {
        self.board.len()
    }

    /// Hands work to idle workers, then handles the next event. Returns false if there is no event.
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

    /// Handles events until everything that is on its way to flash has arrived.
    ///
    /// # Errors
    /// A message: flash is full.
    pub fn settle(&mut self, work: &mut dyn AcceleratorWork) -> Result<(), String> {
        while !self.storage.is_settled() {
            if !self.step(work) {
                let left = self.storage.unsettled();
                return Err(format!("flash is full: {left} page groups of outputs and mappings have no place"));
            }
        }
        Ok(())
    }

    /// Fails the kernels that wait for DDR3L to have room for their outputs, and returns their numbers. To be called
    /// when no event is left that could make room.
    pub fn refuse_outputs(&mut self) -> Vec<u64> {
        let refused: Vec<u64> = self.outputs.drain(..).map(|waiting| waiting.kernel).collect();
        for kernel in &refused {
            self.events.push(self.now, AcceleratorEvent::Drained(*kernel, false));
        }
        refused
    }

    /// Returns the report from the beginning to the current time.
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
                    // Neither occupies a worker: windows of sections are fetched as screens need them, and
                    // Flashvisor's core writes outputs.
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

    /// Accepts waiting outputs into DDR3L as far as there is room, and begins writes, journalling and reclaim that are
    /// due.
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
        // Flashvisor's core chooses the screen and sends a message to the worker.
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
            dram: load.bytes_dram,
            computed: Ps::ZERO,
            waits: (now, now),
            computes: (now, now),
            failed: done.is_err(),
        });
        self.events.push(start, AcceleratorEvent::Worker(worker, self.turns[worker]));
    }

    /// Continues a worker's screen after its beginning or after a computed window: requests windows and computes the
    /// next one, or ends the screen.
    fn worker(&mut self, worker: usize) {
        let now = self.now;
        let mut screen = self.at[worker].expect("a worker with a screen");
        let (all, requested, computed) = &mut screen.windows;
        if *computed == *all || screen.failed {
            return self.end(worker, screen);
        }
        let ahead = self.storage.platform.ahead.clamp(1, 7);
        let kernel = screen.job.kernel as usize;
        while *requested < *all && *requested <= *computed + ahead {
            let (there, moved) = self.storage.window(now, part(screen.bytes, *requested, *all));
            self.report.kernels[kernel].transfer += moved.seconds();
            self.report.kernels[kernel].link += moved.seconds();
            self.report.activity.add(ActivityKind::Storage, Ps(there.0.saturating_sub(moved.0)).max(now), there);
            screen.arrives[(*requested % 8) as usize] = there;
            *requested += 1;
        }
        let there = screen.arrives[(*computed % 8) as usize].max(now);
        self.report.kernels[kernel].storage += (there - now).seconds();
        let mut done = there + screen.compute;
        let moved = part(screen.dram, *computed, *all);
        if moved > 0 {
            done = done.max(self.storage.memory(there, moved));
        }
        self.report.kernels[kernel].compute += (done - there).seconds();
        self.report.activity.add(ActivityKind::Compute, there, done);
        self.sums.computed[worker] += done - there;
        screen.computed += done - there;
        (screen.waits, screen.computes) = ((now, there), (there, done));
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

    /// Removes a worker's screen and returns it to the board, so that a worker runs it again.
    fn give_back(&mut self, worker: usize, work: &mut dyn AcceleratorWork) {
        let Some(mut screen) = self.at[worker].take() else { return };
        self.cut_short(worker, &mut screen);
        self.turns[worker] += 1;
        self.idle[worker] = true;
        self.span(worker, &screen, false);
        self.report.reruns += 1;
        work.undo(screen.job);
        self.board.again(screen.job);
    }

    /// Takes back what was accounted in advance for the screen's current window and does not happen any more.
    fn cut_short(&mut self, worker: usize, screen: &mut WorkingScreen) {
        let now = self.now;
        let rest = |(start, end): (Ps, Ps)| (start.max(now).min(end), end);
        let ((waits, arrives), (computes, done)) = (rest(screen.waits), rest(screen.computes));
        let kernel = &mut self.report.kernels[screen.job.kernel as usize];
        kernel.storage -= (arrives - waits).seconds();
        kernel.compute -= (done - computes).seconds();
        self.report.activity.remove(ActivityKind::Compute, computes, done);
        self.sums.computed[worker] = self.sums.computed[worker] - (done - computes);
        screen.computed = screen.computed - (done - computes);
    }

    fn core_fails(&mut self, worker: usize, work: &mut dyn AcceleratorWork) {
        self.dead[worker] = true;
        self.give_back(worker, work);
        self.board.lost(worker);
    }

    /// Fails a row of dies. Screens that wait for windows from flash run again, since a part of each window was to come
    /// from these dies.
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
