//! Caches of one core, their prefetchers, and the memory behind them.
//!
//! A miss stalls the core until its line is there; write-backs and prefetches occupy the memory's port and stall no
//! access. A line that a prefetch is still bringing stalls an access for the rest of its way. Memory is either the
//! description's own, a port of a given latency and rate, or shared: then a request is left in
//! [`Hierarchy::take_request`], the core pauses, and its owner says when the line is there.

use crate::cache::{CacheAccess, CacheTags, LineCounts};
use crate::describe::{CoreDescription, MemoryDescription};
use crate::prefetch::{CachePrefetcher, Suggestions, prefetcher};

/// Lines that a core needs from memory that it shares, or gives back to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineRequest {
    /// The core's time at which it pauses, in ticks: behind the lookups of its own access. Lookups of prefetches go on
    /// beside the core, and delay neither it nor the request.
    pub at: u64,
    /// The lines that the core waits for: two, if an access crosses from one into the next.
    pub wanted: Vec<u64>,
    /// Lines written back, by address.
    pub write_backs: Vec<u64>,
    /// Lines prefetched, by address; [`Hierarchy::arrives`] is the answer.
    pub prefetches: Vec<u64>,
    /// Lines of code, by address, for which the core has waited as long as its description says.
    pub code: Vec<u64>,
}

impl LineRequest {
    /// Whether nothing is requested.
    pub fn is_empty(&self) -> bool {
        [&self.wanted, &self.write_backs, &self.prefetches, &self.code].into_iter().all(Vec::is_empty)
    }
}

/// Stalls of an access, in ticks, by the level that answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stall {
    /// First level, beyond the unit's latency.
    pub l1: u64,
    /// Second level.
    pub l2: u64,
    /// Memory.
    pub memory: u64,
}

impl Stall {
    /// All ticks.
    pub fn total(&self) -> u64 {
        self.l1 + self.l2 + self.memory
    }

    /// Adds another stall.
    pub fn add(&mut self, other: Self) {
        self.l1 += other.l1;
        self.l2 += other.l2;
        self.memory += other.memory;
    }
}

/// Bytes that crossed the memory's port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Lines read for accesses.
    pub lines_read: u64,
    /// Lines written back.
    pub lines_written: u64,
    /// Lines read for prefetches.
    pub lines_prefetched: u64,
}

#[derive(Debug)]
enum LineSource {
    /// Misses cost nothing further.
    Nothing,
    /// A port of its own.
    Own { memory: MemoryDescription, free_at: u64 },
    /// Memory of a device that others use, too.
    Shared(LineRequest),
}

/// The first-level cache that an access goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheSide {
    /// Instructions.
    Instruction,
    /// Data.
    Data,
}

/// The reason for which a line is read from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LinePurpose {
    /// An access waits for it.
    Demand,
    /// No access waits for it yet.
    Prefetch,
    /// Code of shared memory: the core waits for a fixed time.
    Code,
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
    /// Ticks of a line of code from shared memory.
    t_code: u64,
    prefetch_l1d: Option<Box<dyn CachePrefetcher>>,
    prefetch_l2: Option<Box<dyn CachePrefetcher>>,
    backing: LineSource,
    /// Prefetched lines on their way: line address and the tick at which each arrives.
    coming: Vec<(u64, u64)>,
    counts: MemoryCounts,
    /// Shared memory has something to answer or to book.
    owes: bool,
}

impl Hierarchy {
    /// Empty caches; memory is the description's own, or shared.
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
            coming: Vec::new(),
            counts: MemoryCounts::default(),
            owes: false,
        }
    }

    /// Whether data accesses go through a cache.
    pub fn caches_data(&self) -> bool {
        self.l1d.is_some()
    }

    /// Bytes of a line of the instruction cache, if there is one.
    pub fn instruction_line_bytes(&self) -> Option<u64> {
        self.l1i.as_ref().map(CacheTags::line_bytes)
    }

    /// Accesses and misses: instruction cache, data cache, second level.
    pub fn counts(&self) -> [Option<LineCounts>; 3] {
        [&self.l1i, &self.l1d, &self.l2].map(|cache| cache.as_ref().map(CacheTags::counts))
    }

    /// Lines that crossed the memory's port.
    pub fn memory_counts(&self) -> MemoryCounts {
        self.counts
    }

    /// Whether shared memory has something to answer or to book; then the request is made at this time of the core.
    pub fn pauses(&mut self, at: u64) -> bool {
        if let LineSource::Shared(request) = &mut self.backing {
            if self.owes {
                request.at = at;
            }
        }
        self.owes
    }

    /// A prefetched line of shared memory arrives at this tick; an access that comes sooner waits for it.
    pub fn arrives(&mut self, line: u64, at: u64) {
        self.coming.push((line, at));
    }

    /// The request that shared memory has to answer.
    pub fn take_request(&mut self) -> LineRequest {
        self.owes = false;
        match &mut self.backing {
            LineSource::Shared(request) => std::mem::take(request),
            LineSource::Nothing | LineSource::Own { .. } => LineRequest::default(),
        }
    }

    /// Whether an access of data hits the first level, with no prefetcher to be notified and no line on its way: then
    /// it is done, and takes [`t_data_hit`](Self::t_data_hit). Otherwise nothing has changed.
    #[inline]
    pub(crate) fn data_hits(&mut self, address: u64, bytes: u64, write: bool) -> bool {
        match &mut self.l1d {
            Some(cache) if self.prefetch_l1d.is_none() && self.coming.is_empty() && !self.owes => {
                cache.hits(address, bytes, write)
            }
            _ => false,
        }
    }

    /// The same of a line of code.
    #[inline]
    pub(crate) fn code_hits(&mut self, address: u64) -> bool {
        match &mut self.l1i {
            Some(cache) if self.coming.is_empty() => cache.hits(address, 1, false),
            _ => false,
        }
    }

    /// Ticks of a hit of data, beyond the unit's latency.
    #[inline]
    pub(crate) fn t_data_hit(&self) -> u64 {
        self.t_l1d
    }

    /// Ticks of a hit of code.
    #[inline]
    pub(crate) fn t_code_hit(&self) -> u64 {
        self.t_l1i
    }

    /// Whether a prefetcher looks at the addresses of instructions.
    pub(crate) fn notes_addresses(&self) -> bool {
        self.prefetch_l1d.is_some() || self.prefetch_l2.is_some()
    }

    /// Accesses `bytes` bytes at an address at a time; the stall. An access that crosses lines waits for both.
    #[inline]
    pub fn access(&mut self, now: u64, side: CacheSide, pc: u64, address: u64, bytes: u64, write: bool) -> Stall {
        let first = match side {
            CacheSide::Instruction => &self.l1i,
            CacheSide::Data => &self.l1d,
        };
        let Some(cache) = first else { return Stall::default() };
        let line = cache.line_bytes();
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
            // Code is fetched without a pause: of shared memory its lines take what the description says.
            let purpose = match side {
                CacheSide::Instruction if matches!(self.backing, LineSource::Shared(_)) => LinePurpose::Code,
                CacheSide::Instruction | CacheSide::Data => LinePurpose::Demand,
            };
            stall.add(self.fill(now + t_hit, pc, address, dirty, purpose));
        } else if !self.coming.is_empty() {
            stall.memory += self.rest_of_the_way(now + t_hit, address, line_bytes);
        }
        if side == CacheSide::Data && self.prefetch_l1d.is_some() {
            self.prefetch_data(now + stall.total(), pc, address, outcome != CacheAccess::Hit);
        }
        stall
    }

    /// A first-level cache has a line brought: a dirty line leaves, the second level or memory answers.
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
        let line_bytes = l2.line_bytes();
        let mut stall = Stall { l2: t_l2, ..Stall::default() };
        match outcome {
            CacheAccess::Hit if self.coming.is_empty() => {}
            CacheAccess::Hit => stall.memory = self.rest_of_the_way(now + t_l2, address, line_bytes),
            CacheAccess::Miss { dirty } => {
                if let Some(dirty) = dirty {
                    self.write_back(now + t_l2, dirty);
                }
                stall.memory = self.fetch(now + t_l2, address & !(line_bytes - 1), purpose);
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
                let stall = self.fill(now, pc, line, dirty, LinePurpose::Prefetch);
                if stall.total() > 0 {
                    self.coming.push((line, now + stall.total()));
                }
            }
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
                if takes > 0 {
                    self.coming.push((line, now + takes));
                }
            }
        }
    }

    /// Ticks for which a line that a prefetch brings is still on its way.
    fn rest_of_the_way(&mut self, now: u64, address: u64, line_bytes: u64) -> u64 {
        let line = address & !(line_bytes - 1);
        self.coming.retain(|&(_, arrives)| arrives > now);
        self.coming.iter().filter(|&&(coming, _)| coming == line).map(|&(_, arrives)| arrives - now).max().unwrap_or(0)
    }

    /// Reads a line from memory; ticks until it is there. Of shared memory, the answer comes later.
    fn fetch(&mut self, now: u64, line: u64, purpose: LinePurpose) -> u64 {
        match purpose {
            LinePurpose::Demand | LinePurpose::Code => self.counts.lines_read += 1,
            LinePurpose::Prefetch => self.counts.lines_prefetched += 1,
        }
        match &mut self.backing {
            LineSource::Nothing => 0,
            LineSource::Own { memory, free_at } => {
                let start = now.max(*free_at);
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
