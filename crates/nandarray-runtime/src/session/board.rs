//! The board of a session: a state machine that hands out work and takes back its results.
//!
//! It knows no clock and no bytes and runs nothing, so that threads and a modelled machine use it alike. A kernel waits
//! for the kernels that it depends on, then for its ranges, then for memory; it is mapped, runs microblock by
//! microblock, and is drained: its outputs are written. A kernel that fails or is cancelled releases its ranges when
//! the last of its screens has come back; kernels that depend on it fail, others go on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use nandarray::{RangeTable, SharedRange};

use crate::schedule::{KernelFacts, KernelScheduler};

/// A kernel as a board sees it.
#[derive(Clone, Debug, Default)]
pub struct BoardKernel {
    /// Its name, by which others may depend on it; empty if it has none.
    pub name: String,
    /// The properties by which it is scheduled; its number is the board's. Application `u64::MAX` is one of its own.
    pub facts: KernelFacts,
    /// Numbers of kernels that end before it begins.
    pub after: Vec<u64>,
    /// The same by name; a name may be submitted later.
    pub after_names: Vec<String>,
    /// For each microblock the fewest and the most screens that it can be divided into; (1, 1) is a serial one.
    pub microblocks: Vec<(u64, u64)>,
    /// Ranges of data that it reads and writes.
    pub ranges: Vec<SharedRange>,
    /// Bytes of memory that it needs while it runs.
    pub bytes: u64,
}

/// The reason why a kernel was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoardError {
    /// Kernels would wait for each other.
    #[error("these kernels would wait for each other: {}", names.join(" -> "))]
    Circle {
        /// Their names, the first again at the end.
        names: Vec<String>,
    },
    /// A kernel with this name exists.
    #[error("there is a kernel named {0:?} in this session")]
    Name(String),
    /// It needs more memory than the session has.
    #[error("kernel {name:?} needs {needed} bytes of memory; the session has {bound}")]
    Memory {
        /// Its name.
        name: String,
        /// Bytes that it needs.
        needed: u64,
        /// The session's bound.
        bound: u64,
    },
    /// It has no microblock, or one without a screen.
    #[error("kernel {0:?} has a microblock without a screen, or no microblock")]
    Empty(String),
}

/// The state of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelState {
    /// It waits for kernels that it depends on.
    Submitted,
    /// It waits for its ranges.
    Blocked,
    /// It waits for memory, or to be mapped.
    Admitted,
    /// Its sections are being read.
    Mapping,
    /// Screens of this microblock run, or are ready.
    Running {
        /// Number of the microblock.
        microblock: usize,
    },
    /// Its outputs are being written.
    Draining,
    /// It failed or was cancelled; its last screens are still running.
    Stopping,
}

/// The end of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelEnd {
    /// Its outputs are written.
    Done,
    /// A step of it failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// A kernel that it depends on, by number, is not done; or none with a name that it waits for was submitted.
    Dependency(Option<u64>),
}

/// One screen for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScreenJob {
    /// The kernel.
    pub kernel: u64,
    /// Number of the microblock.
    pub microblock: usize,
    /// The screen.
    pub screen: u64,
    /// Number of screens.
    pub screens: u64,
}

/// Work for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoardWork {
    /// Read a kernel's sections; comes back by [`SessionBoard::mapped`].
    Map(u64),
    /// Run a screen; comes back by [`SessionBoard::screened`].
    Screen(ScreenJob),
    /// Write a kernel's outputs; comes back by [`SessionBoard::drained`].
    Drain(u64),
}

#[derive(Debug)]
struct BoardEntry {
    kernel: BoardKernel,
    state: KernelState,
    /// Kernels that it waits for; those without a number are names in `awaited`.
    waits: BTreeSet<u64>,
    names: BTreeSet<String>,
    /// Kernels that wait for it.
    behind: Vec<u64>,
    request: Option<u64>,
    /// It has its memory.
    resident: bool,
    /// Screens of the microblock: all, handed out, come back.
    screens: (u64, u64, u64),
    /// Screens of it that are to run again.
    again: Vec<u64>,
    end: Option<KernelEnd>,
    /// The scheduler knows it.
    arrived: bool,
}

/// The kernels of a session.
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
    /// Kernels to be mapped, by priority and number.
    admitted: BTreeSet<(Reverse<i64>, u64)>,
    draining: BTreeSet<u64>,
    named: HashMap<String, u64>,
    /// Named kernels that have ended: whether they are done.
    ended_names: HashMap<String, bool>,
    /// Kernels that wait for a name.
    awaited: BTreeMap<String, BTreeSet<u64>>,
    /// Kernels that ended without being done, since kernels behind them may come.
    failed: BTreeSet<u64>,
    /// Kernels that ended, until they are taken.
    ends: Vec<(u64, KernelEnd)>,
}

impl SessionBoard {
    /// A board for `workers` workers, whose kernels together need `memory` bytes at most.
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

    /// Submits a kernel; returns its number. A kernel behind one that failed ends at once.
    ///
    /// # Errors
    /// [`BoardError`].
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

    /// The next work of a worker.
    pub fn take(&mut self, worker: usize) -> Option<BoardWork> {
        if let Some(kernel) = self.draining.pop_first() {
            return Some(BoardWork::Drain(kernel));
        }
        if let Some(&(order, kernel)) = self.admitted.first() {
            let bytes = self.kernels[&kernel].kernel.bytes;
            if self.used + bytes <= self.memory {
                self.admitted.remove(&(order, kernel));
                self.used += bytes;
                let entry = self.kernels.get_mut(&kernel).expect("an admitted kernel");
                (entry.resident, entry.state) = (true, KernelState::Mapping);
                return Some(BoardWork::Map(kernel));
            }
        }
        let kernel = self.scheduler.next(worker)?;
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

    /// A screen did not run to its end, and changed nothing: its core failed. It is ready again.
    pub fn again(&mut self, job: ScreenJob) {
        let entry = self.kernels.get_mut(&job.kernel).expect("a kernel with a screen");
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

    /// A worker has failed, and takes nothing any more; its screen came back by [`SessionBoard::again`].
    pub fn lost(&mut self, worker: usize) {
        self.scheduler.lost(worker);
    }

    /// A kernel's sections were read, or this failed.
    pub fn mapped(&mut self, kernel: u64, done: bool) {
        let entry = self.kernels.get_mut(&kernel).expect("a kernel that was mapped");
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

    /// A screen ended, well or not.
    pub fn screened(&mut self, job: ScreenJob, done: bool) {
        let entry = self.kernels.get_mut(&job.kernel).expect("a kernel with a screen");
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

    /// A kernel's outputs were written, or this failed.
    pub fn drained(&mut self, kernel: u64, done: bool) {
        let entry = self.kernels.get_mut(&kernel).expect("a kernel that was drained");
        entry.end = Some(if done { KernelEnd::Done } else { KernelEnd::Failed });
        self.remove(kernel);
    }

    /// Cancels a kernel, unless its outputs are being written. Returns whether it will end as cancelled.
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

    /// Fails all kernels that wait for names which no kernel has: the session takes no more.
    pub fn close(&mut self) {
        let lost: BTreeSet<u64> = std::mem::take(&mut self.awaited).into_values().flatten().collect();
        for kernel in lost {
            if self.kernels.contains_key(&kernel) {
                self.stop(kernel, KernelEnd::Dependency(None));
            }
        }
    }

    /// Kernels that ended since this was asked last.
    pub fn take_ended(&mut self) -> Vec<(u64, KernelEnd)> {
        std::mem::take(&mut self.ends)
    }

    /// The state of a kernel; none once it has ended.
    pub fn state(&self, kernel: u64) -> Option<KernelState> {
        self.kernels.get(&kernel).map(|entry| entry.state)
    }

    /// Number of kernels that have not ended.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether all kernels have ended.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// Bytes of memory that mapped kernels need.
    pub fn used_bytes(&self) -> u64 {
        self.used
    }

    /// A kernel that can go on goes on as far as it can without work.
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

    /// Ends a kernel before its time; at once, if none of its work is out.
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

    /// Forgets a kernel: its ranges and memory are free, and kernels behind it go on, or fail.
    fn remove(&mut self, kernel: u64) {
        let entry = self.kernels.remove(&kernel).expect("a kernel that has not ended");
        let end = entry.end.expect("an end");
        if entry.resident {
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

    /// Refuses a kernel that would wait for itself.
    fn circle(&self, kernel: &BoardKernel) -> Result<(), BoardError> {
        let name = &kernel.name;
        let closes = |names: Vec<String>| Err(BoardError::Circle { names });
        if !name.is_empty() && kernel.after_names.contains(name) {
            return closes(vec![name.clone(), name.clone()]);
        }
        let Some(waiting) = self.awaited.get(name).filter(|_| !name.is_empty()) else { return Ok(()) };
        // From the new kernel to those it waits for; a kernel that waits for the new one's name closes the circle.
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
