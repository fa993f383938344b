//! The board of a session: a state machine that hands out work and takes back its results.
//!
//! The board knows no clock and no bytes and runs nothing, so that host threads and a modelled machine use it alike. A
//! kernel waits for the kernels that it depends on, then for its range locks, then for memory; then it is mapped (its
//! sections are read), runs microblock by microblock, and is drained (its outputs are written). A kernel that fails or
//! is cancelled releases its ranges when the last of its screens has come back; kernels that depend on it fail, other
//! kernels go on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use nandarray::RangeTable;

use crate::schedule::KernelScheduler;
pub use crate::session::board_kernel::{BoardError, BoardKernel};

/// The state of a kernel that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelState {
    /// The kernel waits for kernels that it depends on.
    Submitted,
    /// The kernel waits for its range locks.
    Blocked,
    /// The kernel has its range locks, and waits for memory or to be mapped.
    Admitted,
    /// The kernel's sections are being read.
    Mapping,
    /// Screens of one microblock are running, or are ready to run.
    Running {
        /// Number of that microblock.
        microblock: usize,
    },
    /// All microblocks are done; the kernel's outputs are being written, or are about to be.
    Draining,
    /// The kernel failed or was cancelled; some of its work is still with a worker.
    Stopping,
}

/// The way in which a kernel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEnd {
    /// The kernel's outputs were written.
    Done,
    /// A step of the kernel failed.
    Failed,
    /// The kernel was cancelled.
    Cancelled,
    /// The kernel with this number, on which this kernel depends, was not done. `None` for a dependency by name whose
    /// kernel ended earlier without being done, or was never submitted.
    Dependency(Option<u64>),
}

/// One screen of a kernel, to be run by a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScreenJob {
    /// Number of the kernel.
    pub kernel: u64,
    /// Number of the microblock in the kernel.
    pub microblock: usize,
    /// Number of the screen in the microblock, from 0.
    pub screen: u64,
    /// Number of screens that the microblock is divided into.
    pub screens: u64,
}

/// One piece of work that a board hands out to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardWork {
    /// Read the sections of the kernel with this number; the worker reports by [`SessionBoard::mapped`].
    Map(u64),
    /// Run a screen; the worker reports by [`SessionBoard::screened`].
    Screen(ScreenJob),
    /// Write the outputs of the kernel with this number; the worker reports by [`SessionBoard::drained`].
    Drain(u64),
}

#[derive(Debug)]
struct BoardEntry {
    kernel: BoardKernel,
    state: KernelState,
    /// Kernels that this kernel waits for; one that it awaits by name and that is not submitted yet is in `names`.
    waits: BTreeSet<u64>,
    names: BTreeSet<String>,
    /// Numbers of the kernels that wait for this kernel.
    behind: Vec<u64>,
    request: Option<u64>,
    /// Whether the kernel's memory is reserved.
    resident: bool,
    /// Number of screens of the current microblock: in all, handed out, and returned by workers.
    screens: (u64, u64, u64),
    /// Screens of the current microblock that must be run again.
    again: Vec<u64>,
    end: Option<KernelEnd>,
    /// Whether the scheduler knows the kernel.
    arrived: bool,
}

impl BoardEntry {
    /// Panics unless a screen is one that was handed out: of the running microblock, or of a kernel that stops.
    fn assert_out(&self, job: ScreenJob) {
        let runs = match self.state {
            KernelState::Running { microblock } => microblock == job.microblock,
            state => state == KernelState::Stopping,
        };
        assert!(runs && job.screen < self.screens.1, "{job:?} came back in state {:?}", self.state);
    }
}

/// The board of a session: the state machine of its kernels.
#[derive(Debug)]
pub struct SessionBoard {
    scheduler: Box<dyn KernelScheduler>,
    workers: u64,
    memory: u64,
    used: u64,
    next: u64,
    ranges: RangeTable,
    by_request: BTreeMap<u64, u64>,
    kernels: BTreeMap<u64, BoardEntry>,
    /// Kernels that are ready to be mapped, in the order of priority and number.
    admitted: BTreeSet<(Reverse<i64>, u64)>,
    draining: BTreeSet<u64>,
    named: HashMap<String, u64>,
    /// Names of kernels that have ended, each with whether its kernel was done.
    ended_names: HashMap<String, bool>,
    /// Names that no kernel has had yet, each with the kernels that wait for it.
    awaited: BTreeMap<String, BTreeSet<u64>>,
    /// Kernels that ended without being done; they are kept, since kernels that depend on them may be submitted later.
    failed: BTreeSet<u64>,
    /// Kernels that ended since the last call of [`Self::take_ended`].
    ends: Vec<(u64, KernelEnd)>,
}

impl SessionBoard {
    /// Makes a board for `workers` workers, whose mapped kernels together need at most `memory` bytes.
    pub fn new(scheduler: Box<dyn KernelScheduler>, workers: usize, memory: u64) -> Self {
        Self {
            scheduler,
            workers: workers.max(1) as u64,
            memory,
            used: 0,
            next: 0,
            ranges: RangeTable::default(),
            by_request: BTreeMap::new(),
            kernels: BTreeMap::new(),
            admitted: BTreeSet::new(),
            draining: BTreeSet::new(),
            named: HashMap::new(),
            ended_names: HashMap::new(),
            awaited: BTreeMap::new(),
            failed: BTreeSet::new(),
            ends: Vec::new(),
        }
    }

    /// Submits a kernel; returns its number. A kernel that depends on one that failed ends at once.
    ///
    /// # Errors
    /// [`BoardError`]: the reason why the kernel is refused.
    pub fn submit(&mut self, mut kernel: BoardKernel) -> Result<u64, BoardError> {
        let name = kernel.name.clone();
        if !name.is_empty() && (self.named.contains_key(&name) || self.ended_names.contains_key(&name)) {
            return Err(BoardError::Name(name));
        }
        if kernel.bytes > self.memory {
            return Err(BoardError::Memory { name, needed: kernel.bytes, bound: self.memory });
        }
        if kernel.microblocks.is_empty() || kernel.microblocks.iter().any(|(least, most)| *least == 0 || most < least) {
            return Err(BoardError::Empty(name));
        }
        if let Some(later) = kernel.after.iter().find(|before| **before >= self.next) {
            return Err(BoardError::Number(*later));
        }
        self.circle(&kernel)?;
        let number = self.next;
        self.next += 1;
        kernel.facts.number = number;
        if kernel.facts.application == u64::MAX {
            kernel.facts.application = number;
        }
        let mut waits: BTreeSet<u64> = kernel.after.iter().copied().filter(|k| self.kernels.contains_key(k)).collect();
        let mut names = BTreeSet::new();
        let failed = kernel.after.iter().copied().find(|before| self.failed.contains(before));
        let mut lost = failed.is_some();
        for after in &kernel.after_names {
            match (self.named.get(after), self.ended_names.get(after)) {
                (Some(k), _) => {
                    waits.insert(*k);
                }
                (None, Some(done)) => lost |= !done,
                (None, None) => {
                    names.insert(after.clone());
                    self.awaited.entry(after.clone()).or_default().insert(number);
                }
            }
        }
        for before in &waits {
            self.kernels.get_mut(before).expect("it was there").behind.push(number);
        }
        if !name.is_empty() {
            self.named.insert(name.clone(), number);
        }
        let behind: Vec<u64> = self.awaited.remove(&name).filter(|_| !name.is_empty()).into_iter().flatten().collect();
        for later in &behind {
            let entry = self.kernels.get_mut(later).expect("it waits for the name");
            entry.names.remove(&name);
            entry.waits.insert(number);
        }
        let (state, screens) = (KernelState::Submitted, (0, 0, 0));
        let (request, resident, end, arrived) = (None, false, None, false);
        let again = Vec::new();
        let entry = BoardEntry { kernel, state, waits, names, behind, request, resident, screens, again, end, arrived };
        self.kernels.insert(number, entry);
        if lost {
            self.stop(number, KernelEnd::Dependency(failed));
        } else {
            self.advance(number);
        }
        Ok(number)
    }

    /// Hands out the next piece of work to a worker; `None` if there is none now.
    pub fn take(&mut self, worker: usize) -> Option<BoardWork> {
        if let Some(kernel) = self.draining.pop_first() {
            return Some(BoardWork::Drain(kernel));
        }
        if let Some(&(order, kernel)) = self.admitted.first() {
            let bytes = self.kernels[&kernel].kernel.bytes;
            if bytes <= self.memory - self.used {
                self.admitted.remove(&(order, kernel));
                self.used += bytes;
                let entry = self.kernels.get_mut(&kernel).expect("an admitted kernel");
                (entry.resident, entry.state) = (true, KernelState::Mapping);
                return Some(BoardWork::Map(kernel));
            }
        }
        // Without kernels there is nothing to choose: the scheduler is not asked.
        let kernel = if self.is_empty() { None } else { self.scheduler.next(worker) }?;
        let entry = self.kernels.get_mut(&kernel).expect("a scheduler names kernels that arrived");
        let KernelState::Running { microblock } = entry.state else {
            panic!("kernel {kernel} is scheduled in state {:?}", entry.state)
        };
        let (screens, out, back) = &mut entry.screens;
        if let Some(screen) = entry.again.pop() {
            *back -= 1;
            return Some(BoardWork::Screen(ScreenJob { kernel, microblock, screen, screens: *screens }));
        }
        assert!(*out < *screens, "kernel {kernel} has {screens} screens, and all of them were handed out");
        *out += 1;
        Some(BoardWork::Screen(ScreenJob { kernel, microblock, screen: *out - 1, screens: *screens }))
    }

    /// Takes back a screen that did not run to its end and changed nothing, since its core failed. The screen is ready
    /// again.
    pub fn again(&mut self, job: ScreenJob) {
        let entry = self.kernels.get_mut(&job.kernel).expect("a kernel with a screen");
        entry.assert_out(job);
        let (_, out, back) = &mut entry.screens;
        *back += 1;
        assert!(*back <= *out, "{back} of {out} screens of kernel {} came back", job.kernel);
        match entry.state {
            KernelState::Stopping if *back == *out => self.remove(job.kernel),
            KernelState::Stopping => {}
            _ => {
                entry.again.push(job.screen);
                self.scheduler.ready(job.kernel, 1);
            }
        }
    }

    /// Notes that a worker has failed and takes no more work; its screen came back by [`SessionBoard::again`].
    pub fn lost(&mut self, worker: usize) {
        self.scheduler.lost(worker);
    }

    /// Notes that the mapping of a kernel has ended; `done` says whether the kernel's sections were read.
    pub fn mapped(&mut self, kernel: u64, done: bool) {
        let entry = self.kernels.get_mut(&kernel).expect("a kernel that was mapped");
        let maps = matches!(entry.state, KernelState::Mapping | KernelState::Stopping);
        assert!(maps && !entry.arrived, "the mapping of kernel {kernel} ended in state {:?}", entry.state);
        match (entry.state, done) {
            (KernelState::Stopping, _) => self.remove(kernel),
            (_, false) => self.stop(kernel, KernelEnd::Failed),
            (_, true) => {
                self.scheduler.arrived(&entry.kernel.facts);
                entry.arrived = true;
                self.open(kernel, 0);
            }
        }
    }

    /// Notes that a screen has ended; `done` says whether the screen succeeded.
    pub fn screened(&mut self, job: ScreenJob, done: bool) {
        let entry = self.kernels.get_mut(&job.kernel).expect("a kernel with a screen");
        entry.assert_out(job);
        let (screens, out, back) = &mut entry.screens;
        *back += 1;
        assert!(*back <= *out, "{back} of {out} screens of kernel {} came back", job.kernel);
        let (all, none) = (*back == *screens && entry.again.is_empty(), *back == *out);
        match entry.state {
            KernelState::Stopping if none => self.remove(job.kernel),
            KernelState::Stopping => {}
            _ if !done => self.stop(job.kernel, KernelEnd::Failed),
            _ if all && job.microblock + 1 < entry.kernel.microblocks.len() => {
                self.open(job.kernel, job.microblock + 1)
            }
            _ if all => {
                entry.state = KernelState::Draining;
                self.unschedule(job.kernel);
                self.draining.insert(job.kernel);
            }
            _ => {}
        }
    }

    /// Notes that the draining of a kernel has ended, and so the kernel; `done` says whether its outputs were written.
    pub fn drained(&mut self, kernel: u64, done: bool) {
        let entry = self.kernels.get_mut(&kernel).expect("a kernel that was drained");
        let drains = entry.state == KernelState::Draining && !self.draining.contains(&kernel);
        assert!(drains, "the draining of kernel {kernel} ended in state {:?}", entry.state);
        entry.end = Some(if done { KernelEnd::Done } else { KernelEnd::Failed });
        self.remove(kernel);
    }

    /// Cancels a kernel, unless its outputs are being written. Returns whether the kernel will end as cancelled.
    pub fn cancel(&mut self, kernel: u64) -> bool {
        match self.kernels.get(&kernel).map(|entry| (entry.state, entry.end)) {
            Some((KernelState::Draining, _)) | None => false,
            Some((KernelState::Stopping, end)) => end == Some(KernelEnd::Cancelled),
            Some(_) => {
                self.stop(kernel, KernelEnd::Cancelled);
                true
            }
        }
    }

    /// Fails all kernels that wait for names which no kernel has, since no further kernel will be submitted.
    pub fn close(&mut self) {
        let lost: BTreeSet<u64> = std::mem::take(&mut self.awaited).into_values().flatten().collect();
        for kernel in lost {
            if self.kernels.contains_key(&kernel) {
                self.stop(kernel, KernelEnd::Dependency(None));
            }
        }
    }

    /// Returns the kernels that ended since the last call, with the way in which each ended.
    pub fn take_ended(&mut self) -> Vec<(u64, KernelEnd)> {
        std::mem::take(&mut self.ends)
    }

    /// Returns the state of a kernel; `None` once the kernel has ended.
    pub fn state(&self, kernel: u64) -> Option<KernelState> {
        self.kernels.get(&kernel).map(|entry| entry.state)
    }

    /// Returns the number of kernels that have not ended.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether all kernels have ended.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// Returns the bytes of memory that mapped kernels need.
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// Advances a kernel through the states that need no work of a worker, as far as possible.
    fn advance(&mut self, kernel: u64) {
        let entry = self.kernels.get_mut(&kernel).expect("a kernel that has not ended");
        if entry.state == KernelState::Submitted && entry.waits.is_empty() && entry.names.is_empty() {
            let request = self.ranges.request(kernel, &entry.kernel.ranges).expect("a kernel requests once");
            (entry.request, entry.state) = (Some(request), KernelState::Blocked);
            self.by_request.insert(request, kernel);
        }
        if entry.state == KernelState::Blocked && self.ranges.is_granted(entry.request.expect("it was requested")) {
            entry.state = KernelState::Admitted;
            self.admitted.insert((Reverse(entry.kernel.facts.priority), kernel));
        }
    }

    fn open(&mut self, kernel: u64, microblock: usize) {
        let entry = self.kernels.get_mut(&kernel).expect("a mapped kernel");
        let (least, most) = entry.kernel.microblocks[microblock];
        let screens = if self.scheduler.splits() { self.workers.clamp(least, most) } else { least };
        entry.state = KernelState::Running { microblock };
        entry.screens = (screens, 0, 0);
        self.scheduler.ready(kernel, screens);
    }

    fn unschedule(&mut self, kernel: u64) {
        let entry = self.kernels.get_mut(&kernel).expect("a kernel that has not ended");
        if std::mem::take(&mut entry.arrived) {
            self.scheduler.ended(kernel);
        }
    }

    /// Ends a kernel early; forgets the kernel at once if no worker is working for it.
    fn stop(&mut self, kernel: u64, end: KernelEnd) {
        self.unschedule(kernel);
        let entry = self.kernels.get_mut(&kernel).expect("a kernel that has not ended");
        self.admitted.remove(&(Reverse(entry.kernel.facts.priority), kernel));
        let (_, out, back) = entry.screens;
        let mapping = entry.state == KernelState::Mapping && end == KernelEnd::Cancelled;
        entry.end = Some(end);
        entry.state = KernelState::Stopping;
        if !mapping && out == back {
            self.remove(kernel);
        }
    }

    /// Forgets a kernel that has ended: releases its ranges and memory, and advances or fails the kernels that wait for
    /// it.
    fn remove(&mut self, kernel: u64) {
        let entry = self.kernels.remove(&kernel).expect("a kernel that has not ended");
        let end = entry.end.expect("an end");
        if entry.resident {
            assert!(entry.kernel.bytes <= self.used, "kernel {kernel} frees more memory than is used");
            self.used -= entry.kernel.bytes;
        }
        for before in &entry.waits {
            if let Some(other) = self.kernels.get_mut(before) {
                other.behind.retain(|k| *k != kernel);
            }
        }
        for name in &entry.names {
            if let Some(waiting) = self.awaited.get_mut(name) {
                waiting.remove(&kernel);
            }
        }
        if !entry.kernel.name.is_empty() {
            self.named.remove(&entry.kernel.name);
            self.ended_names.insert(entry.kernel.name, end == KernelEnd::Done);
        }
        if end != KernelEnd::Done {
            self.failed.insert(kernel);
        }
        self.ends.push((kernel, end));
        let granted = entry.request.map(|request| {
            self.by_request.remove(&request);
            self.ranges.release(request)
        });
        for later in granted.into_iter().flatten() {
            let owner = self.by_request[&later];
            self.advance(owner);
        }
        for later in entry.behind {
            let Some(waiting) = self.kernels.get_mut(&later) else { continue };
            waiting.waits.remove(&kernel);
            if end == KernelEnd::Done {
                self.advance(later);
            } else {
                self.stop(later, KernelEnd::Dependency(Some(kernel)));
            }
        }
    }

    /// Refuses a kernel that would, through other kernels, wait for itself.
    fn circle(&self, kernel: &BoardKernel) -> Result<(), BoardError> {
        let name = &kernel.name;
        let closes = |names: Vec<String>| Err(BoardError::Circle { names });
        if !name.is_empty() && kernel.after_names.contains(name) {
            return closes(vec![name.clone(), name.clone()]);
        }
        let Some(waiting) = self.awaited.get(name).filter(|_| !name.is_empty()) else { return Ok(()) };
        // Follow the waits from the new kernel; a kernel that waits for the new kernel's name closes the circle.
        let named = kernel.after_names.iter().filter_map(|after| self.named.get(after));
        let mut left: Vec<(u64, Vec<u64>)> = kernel.after.iter().chain(named).map(|k| (*k, vec![*k])).collect();
        let mut seen = BTreeSet::new();
        while let Some((at, way)) = left.pop() {
            if waiting.contains(&at) {
                let of = |k: &u64| match self.kernels[k].kernel.name.as_str() {
                    "" => format!("kernel {k}"),
                    name => name.to_owned(),
                };
                let inner = way.iter().map(of);
                return closes([name.clone()].into_iter().chain(inner).chain([name.clone()]).collect());
            }
            if seen.insert(at) {
                for next in self.kernels.get(&at).into_iter().flat_map(|entry| &entry.waits) {
                    left.push((*next, [way.clone(), vec![*next]].concat()));
                }
            }
        }
        Ok(())
    }
}
