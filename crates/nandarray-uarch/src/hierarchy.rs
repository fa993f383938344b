//! The caches of one core, their prefetchers, and the memory that the caches are filled from.
//!
//! A miss stalls the core until the line has arrived. Write-backs and prefetches occupy the memory's port and stall no
//! access; but an access to a line that a prefetch has not brought yet stalls until the line arrives. Each cache has
//! lines of its own on their way ([`ComingLines`]): a hit of one waits for none of the other's. Memory is either
//! the core's own, a port with the latency and rate of the description, or shared: then the requests are collected for
//! [`Hierarchy::take_request`], the core pauses, and its owner decides when the line has arrived.

use crate::cache::{CacheAccess, CacheTags, LineCounts};
use crate::describe::{CoreDescription, MemoryDescription};
use crate::latest::LatestLines;
use crate::prefetch::{CachePrefetcher, Suggestions, prefetcher};

/// Lines that a core needs from shared memory, or writes back to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineRequest {
    /// Tick of the core at which it pauses: after the cache lookups of its own access. Lookups of prefetches happen
    /// beside the core, and delay neither the core nor the request.
    pub at: u64,
    /// Addresses of the lines that the core waits for: two if an access crosses from one line into the next.
    pub wanted: Vec<u64>,
    /// Addresses of the lines written back.
    pub write_backs: Vec<u64>,
    /// Addresses of the lines prefetched; the owner reports their arrival by [`Hierarchy::arrives`].
    pub prefetches: Vec<u64>,
    /// Addresses of lines of code, for which the core has already waited as long as its description says.
    pub code: Vec<u64>,
}

impl LineRequest {
    /// Returns whether the request has no lines.
    pub fn is_empty(&self) -> bool {
        [&self.wanted, &self.write_backs, &self.prefetches, &self.code].into_iter().all(Vec::is_empty)
    }
}

/// Stalls of an access, in ticks, by the level of the hierarchy that caused them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// Ticks of the first-level cache, beyond the latency of the load or store unit.
    pub l1: u64,
    /// Ticks of the second-level cache.
    pub l2: u64,
    /// Ticks of the memory.
    pub memory: u64,
}

impl Stall {
    /// Returns the sum of all ticks.
    pub fn total(&self) -> u64 {
        self.l1 + self.l2 + self.memory
    }

    /// Adds the ticks of another stall.
    pub fn add(&mut self, other: Self) {
        self.l1 += other.l1;
        self.l2 += other.l2;
        self.memory += other.memory;
    }
}

/// Numbers of lines that were transferred over the memory's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Number of lines read for accesses.
    pub lines_read: u64,
    /// Number of lines written back.
    pub lines_written: u64,
    /// Number of lines read for prefetches.
    pub lines_prefetched: u64,
}

#[derive(Debug)]
enum LineSource {
    /// No memory is modelled: misses cost nothing further.
    Nothing,
    /// A memory port of the core's own; it is free from tick `free_at` on.
    Own { memory: MemoryDescription, free_at: u64 },
    /// Memory of a device, which other parts of the device use too.
    Shared(LineRequest),
}

/// The first-level cache that an access goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSide {
    /// The instruction cache.
    Instruction,
    /// The data cache.
    Data,
}

/// The reason for which a line is read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePurpose {
    /// An access waits for the line.
    Demand,
    /// The line is prefetched: no access waits for it yet.
    Prefetch,
    /// The line holds code, in shared memory: the core waits for a fixed time.
    Code,
}

/// The lines that a prefetch has put into a cache and that have not arrived there yet.
#[derive(Debug, Default)]
struct ComingLines(Vec<(u64, u64)>);

impl ComingLines {
    /// Notes that a line arrives at tick `at`.
    fn add(&mut self, line: u64, at: u64) {
        self.0.push((line, at));
    }

    /// Forgets the lines that have arrived at tick `now`. Only the core's own time may tell: a prefetch looks into the
    /// second level at a later one, and the core may come to a line before that.
    fn forget_arrived(&mut self, now: u64) {
        self.0.retain(|&(_, at)| at > now);
    }

    /// Returns the ticks from `now` until a line has arrived; 0 if it is not on its way.
    fn rest(&self, line: u64, now: u64) -> u64 {
        let of_line = self.0.iter().filter(|&&(coming, _)| coming == line);
        of_line.map(|&(_, at)| at.saturating_sub(now)).max().unwrap_or(0)
    }
}

/// Caches and memory of one core.
#[derive(Debug)]
pub struct Hierarchy {
    l1i: Option<CacheTags>,
    l1d: Option<CacheTags>,
    l2: Option<CacheTags>,
    t_l1i: u64,
    t_l1d: u64,
    t_l2: u64,
    /// Ticks that a line of code takes to arrive from shared memory.
    t_code: u64,
    prefetch_l1d: Option<Box<dyn CachePrefetcher>>,
    prefetch_l2: Option<Box<dyn CachePrefetcher>>,
    backing: LineSource,
    /// Prefetched lines on their way into the data cache.
    coming_l1d: ComingLines,
    /// Prefetched lines on their way into the second level.
    coming_l2: ComingLines,
    /// Lines of the data cache that come with a line which was requested from shared memory ahead of its use: the
    /// requested line and the cache's.
    awaited: Vec<(u64, u64)>,
    counts: MemoryCounts,
    /// Whether there is a request that shared memory has not seen yet.
    owes: bool,
}

impl Hierarchy {
    /// Creates empty caches. `shared` says whether their memory is shared; otherwise it is the description's own.
    pub fn new(d: &CoreDescription, shared: bool) -> Self {
        let backing = match (shared, d.memory) {
            (true, _) => LineSource::Shared(LineRequest::default()),
            (false, Some(memory)) => LineSource::Own { memory, free_at: 0 },
            (false, None) => LineSource::Nothing,
        };
        let t_hit = |cache: &Option<crate::describe::CacheDescription>| cache.map_or(0, |c| u64::from(c.t_hit));
        Self {
            l1i: d.l1i.as_ref().map(CacheTags::new),
            l1d: d.l1d.as_ref().map(CacheTags::new),
            l2: d.l2.as_ref().map(CacheTags::new),
            t_l1i: t_hit(&d.l1i),
            t_l1d: t_hit(&d.l1d),
            t_l2: t_hit(&d.l2),
            t_code: d.memory.map_or(0, |memory| u64::from(memory.t_access)),
            prefetch_l1d: d.l1d.and_then(|c| prefetcher(d.prefetch_l1d, u64::from(c.line_bytes))),
            prefetch_l2: d.l2.and_then(|c| prefetcher(d.prefetch_l2, u64::from(c.line_bytes))),
            backing,
            coming_l1d: ComingLines::default(),
            coming_l2: ComingLines::default(),
            awaited: Vec::new(),
            counts: MemoryCounts::default(),
            owes: false,
        }
    }

    /// Whether data accesses go through a cache.
    pub fn caches_data(&self) -> bool {
        self.l1d.is_some()
    }

    /// Returns the size of a line of the instruction cache, in bytes; `None` if there is no instruction cache.
    pub fn instruction_line_bytes(&self) -> Option<u64> {
        self.l1i.as_ref().map(CacheTags::line_bytes)
    }

    /// Returns the counts of the instruction cache, the data cache and the second-level cache; `None` for a missing
    /// cache.
    pub fn counts(&self) -> [Option<LineCounts>; 3] {
        [&self.l1i, &self.l1d, &self.l2].map(|cache| cache.as_ref().map(CacheTags::counts))
    }

    /// Lines that crossed the memory's port.
    pub fn memory_counts(&self) -> MemoryCounts {
        self.counts
    }

    /// Returns whether the core has to pause because shared memory has a request to handle; if so, sets the request's
    /// time to tick `at`.
    pub fn pauses(&mut self, at: u64) -> bool {
        if let LineSource::Shared(request) = &mut self.backing {
            if self.owes {
                request.at = at;
            }
        }
        self.owes
    }

    /// Notes that a prefetched line of shared memory arrives at tick `at`; an earlier access to the line waits for it.
    pub fn arrives(&mut self, line: u64, at: u64) {
        debug_assert!(
            matches!(self.backing, LineSource::Shared(_)),
            "line {line:#x} comes to a core with its own memory"
        );
        if self.l2.is_some() {
            self.coming_l2.add(line, at);
        }
        let of_data = self.awaited.extract_if(.., |&mut (requested, _)| requested == line);
        of_data.for_each(|(_, line)| self.coming_l1d.add(line, at));
    }

    /// Returns the request that shared memory has to handle, and clears it.
    pub fn take_request(&mut self) -> LineRequest {
        self.owes = false;
        match &mut self.backing {
            LineSource::Shared(request) => std::mem::take(request),
            LineSource::Nothing | LineSource::Own { .. } => LineRequest::default(),
        }
    }

    /// Performs a data access if it hits the first level, no prefetcher observes accesses, and no line is on its way
    /// there; returns whether it did. Such an access takes [`t_data_hit`](Self::t_data_hit). If it returns false,
    /// nothing has changed.
    #[inline]
    pub(crate) fn data_hits(&mut self, address: u64, bytes: u64, write: bool) -> bool {
        match &mut self.l1d {
            Some(cache) if self.prefetch_l1d.is_none() && self.coming_l1d.0.is_empty() && !self.owes => {
                cache.hits(address, bytes, write)
            }
            _ => false,
        }
    }

    /// Whether a hit in the data cache takes no ticks, no prefetcher observes it, and no request waits for shared
    /// memory.
    pub(crate) fn hits_are_free(&self) -> bool {
        let prefetches = self.prefetch_l1d.is_some() || self.prefetch_l2.is_some();
        self.l1d.is_some() && self.t_l1d == 0 && !prefetches && !self.owes
    }

    /// Whether a hit in the instruction cache takes no ticks.
    pub(crate) fn code_hits_are_free(&self) -> bool {
        self.l1i.is_some() && self.t_l1i == 0
    }

    /// Returns an empty table of the lines accessed last in the instruction cache, or in the data cache.
    pub(crate) fn latest(&self, side: CacheSide) -> LatestLines {
        LatestLines::new(if side == CacheSide::Instruction { &self.l1i } else { &self.l1d }.as_ref())
    }

    /// Performs the fetch of a line of code if it hits the instruction cache; returns whether it did. If it returns
    /// false, nothing has changed.
    #[inline]
    pub(crate) fn code_hits(&mut self, address: u64) -> bool {
        self.l1i.as_mut().is_some_and(|cache| cache.hits(address, 1, false))
    }

    /// Returns the ticks of a hit in the data cache, beyond the latency of the load or store unit.
    #[inline]
    pub(crate) fn t_data_hit(&self) -> u64 {
        self.t_l1d
    }

    /// Returns the ticks of a hit in the instruction cache.
    #[inline]
    pub(crate) fn t_code_hit(&self) -> u64 {
        self.t_l1i
    }

    /// Returns whether a prefetcher needs the addresses of instructions.
    pub(crate) fn notes_addresses(&self) -> bool {
        self.prefetch_l1d.is_some() || self.prefetch_l2.is_some()
    }

    /// Performs an access to `bytes` bytes at tick `now`, by the instruction at `pc`; returns the stall. An access that
    /// crosses into another line waits for both lines.
    #[inline]
    pub fn access(&mut self, now: u64, side: CacheSide, pc: u64, address: u64, bytes: u64, write: bool) -> Stall {
        debug_assert!(bytes > 0, "an access to no byte at {address:#x}");
        debug_assert!(side == CacheSide::Data || !write, "a write to code at {address:#x}");
        let first = match side {
            CacheSide::Instruction => &self.l1i,
            CacheSide::Data => &self.l1d,
        };
        let Some(cache) = first else { return Stall::default() };
        let line = cache.line_bytes();
        self.coming_l1d.forget_arrived(now);
        self.coming_l2.forget_arrived(now);
        let mut stall = self.line(now, side, pc, address, write);
        let mut next = (address & !(line - 1)) + line;
        while next < address + bytes {
            let more = self.line(now + stall.total(), side, pc, next, write);
            stall.add(more);
            next += line;
        }
        stall
    }

    fn line(&mut self, now: u64, side: CacheSide, pc: u64, address: u64, write: bool) -> Stall {
        let (cache, t_hit) = match side {
            CacheSide::Instruction => (&mut self.l1i, self.t_l1i),
            CacheSide::Data => (&mut self.l1d, self.t_l1d),
        };
        let cache = cache.as_mut().expect("the side has a cache");
        let outcome = cache.access(address, write);
        let line_bytes = cache.line_bytes();
        let mut stall = Stall { l1: t_hit, ..Stall::default() };
        if let CacheAccess::Miss { dirty } = outcome {
            // Fetching code never pauses the core: from shared memory, a line takes the time that the description says.
            let purpose = match side {
                CacheSide::Instruction if matches!(self.backing, LineSource::Shared(_)) => LinePurpose::Code,
                CacheSide::Instruction | CacheSide::Data => LinePurpose::Demand,
            };
            stall.add(self.fill(now + t_hit, pc, address, dirty, purpose));
        } else if side == CacheSide::Data {
            stall.memory += self.coming_l1d.rest(address & !(line_bytes - 1), now + t_hit);
        }
        if side == CacheSide::Data && self.prefetch_l1d.is_some() {
            self.prefetch_data(now + stall.total(), pc, address, outcome != CacheAccess::Hit);
        }
        stall
    }

    /// Fills a line of a first-level cache from the second level or memory, and writes back the `dirty` line that it
    /// replaces; returns the stall.
    fn fill(&mut self, now: u64, pc: u64, address: u64, dirty: Option<u64>, purpose: LinePurpose) -> Stall {
        let Some(l2) = &mut self.l2 else {
            if let Some(dirty) = dirty {
                self.write_back(now, dirty);
            }
            return Stall { memory: self.fetch(now, address, purpose), ..Stall::default() };
        };
        let t_l2 = self.t_l2;
        if let Some(dirty) = dirty {
            if let CacheAccess::Miss { dirty: Some(further) } = l2.access(dirty, true) {
                self.write_back(now, further);
            }
        }
        let l2 = self.l2.as_mut().expect("there is a second level");
        let outcome = l2.access(address, false);
        let line = address & !(l2.line_bytes() - 1);
        let mut stall = Stall { l2: t_l2, ..Stall::default() };
        match outcome {
            CacheAccess::Hit => stall.memory = self.coming_l2.rest(line, now + t_l2),
            CacheAccess::Miss { dirty } => {
                if let Some(dirty) = dirty {
                    self.write_back(now + t_l2, dirty);
                }
                stall.memory = self.fetch(now + t_l2, line, purpose);
                if purpose == LinePurpose::Prefetch {
                    self.comes_to_l2(line, now + t_l2 + stall.memory);
                }
            }
        }
        if self.prefetch_l2.is_some() {
            self.prefetch_l2(now + stall.total(), pc, address, outcome != CacheAccess::Hit);
        }
        stall
    }

    fn prefetch_data(&mut self, now: u64, pc: u64, address: u64, missed: bool) {
        let mut suggestions = Suggestions::default();
        self.prefetch_l1d.as_mut().expect("a prefetcher").access(pc, address, missed, &mut suggestions);
        for &wanted in suggestions.as_slice() {
            let cache = self.l1d.as_mut().expect("a prefetcher has a cache");
            let line = wanted & !(cache.line_bytes() - 1);
            if let Some(CacheAccess::Miss { dirty }) = cache.prefetch(line) {
                self.fill_ahead(now, pc, line, dirty);
            }
        }
    }

    /// Fills a line of the data cache ahead of its use, and notes when it arrives.
    fn fill_ahead(&mut self, now: u64, pc: u64, line: u64, dirty: Option<u64>) {
        debug_assert!(
            self.l1d.as_ref().is_some_and(|cache| line.is_multiple_of(cache.line_bytes())),
            "{line:#x} is no line"
        );
        let stall = self.fill(now, pc, line, dirty, LinePurpose::Prefetch);
        if stall.total() > 0 {
            self.coming_l1d.add(line, now + stall.total());
        }
        // From shared memory the line may arrive later, when the owner says so.
        let requested = line & !(self.l2.as_ref().map_or(1, CacheTags::line_bytes) - 1);
        if matches!(&self.backing, LineSource::Shared(request) if request.prefetches.contains(&requested)) {
            self.awaited.push((requested, line));
        }
    }

    /// Brings the line of an address into the data cache ahead of its use by a packed stream. Prefetchers do not
    /// observe it: a stream fetches all that it needs.
    pub(crate) fn fetch_ahead(&mut self, now: u64, address: u64) {
        let Some(cache) = &mut self.l1d else { return };
        let line = address & !(cache.line_bytes() - 1);
        if let Some(CacheAccess::Miss { dirty }) = cache.prefetch(line) {
            let observer = self.prefetch_l2.take();
            self.fill_ahead(now, 0, line, dirty);
            self.prefetch_l2 = observer;
        }
    }

    fn prefetch_l2(&mut self, now: u64, pc: u64, address: u64, missed: bool) {
        let mut suggestions = Suggestions::default();
        self.prefetch_l2.as_mut().expect("a prefetcher").access(pc, address, missed, &mut suggestions);
        for &wanted in suggestions.as_slice() {
            let l2 = self.l2.as_mut().expect("a prefetcher has a cache");
            let line = wanted & !(l2.line_bytes() - 1);
            if let Some(CacheAccess::Miss { dirty }) = l2.prefetch(line) {
                if let Some(dirty) = dirty {
                    self.write_back(now, dirty);
                }
                let takes = self.fetch(now, line, LinePurpose::Prefetch);
                self.comes_to_l2(line, now + takes);
            }
        }
    }

    /// Notes when a prefetched line arrives in the second level; the owner of shared memory says so later.
    fn comes_to_l2(&mut self, line: u64, at: u64) {
        if !matches!(self.backing, LineSource::Shared(_)) {
            self.coming_l2.add(line, at);
        }
    }

    /// Reads a line from memory; returns the ticks until it arrives. For shared memory it adds the line to the request
    /// and returns 0: the owner decides on the wait (lines of code take a fixed time).
    fn fetch(&mut self, now: u64, line: u64, purpose: LinePurpose) -> u64 {
        match purpose {
            LinePurpose::Demand | LinePurpose::Code => self.counts.lines_read += 1,
            LinePurpose::Prefetch => self.counts.lines_prefetched += 1,
        }
        match &mut self.backing {
            LineSource::Nothing => 0,
            LineSource::Own { memory, free_at } => {
                let start = now.max(*free_at);
                debug_assert!(start >= now, "a line at tick {start}, requested at {now}");
                *free_at = start + u64::from(memory.t_line);
                start + u64::from(memory.t_access) - now
            }
            LineSource::Shared(request) => {
                match purpose {
                    LinePurpose::Demand => {
                        assert!(request.wanted.len() < 2, "an access reaches two lines, {:x?}", request.wanted);
                        request.wanted.push(line);
                    }
                    LinePurpose::Prefetch => request.prefetches.push(line),
                    LinePurpose::Code => {
                        request.code.push(line);
                        return self.t_code;
                    }
                }
                self.owes = true;
                0
            }
        }
    }

    fn write_back(&mut self, now: u64, line: u64) {
        self.counts.lines_written += 1;
        match &mut self.backing {
            LineSource::Nothing => {}
            LineSource::Own { memory, free_at } => *free_at = now.max(*free_at) + u64::from(memory.t_line),
            LineSource::Shared(request) => {
                request.write_backs.push(line);
                self.owes = true;
            }
        }
    }
}
