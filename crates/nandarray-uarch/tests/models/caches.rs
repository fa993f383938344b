//! Caches, prefetchers and a memory's port of one core compared, access by access, with lists of lines: what each
//! access waits for, and all counts.

use nandarray_uarch::cache::LineCounts;
use nandarray_uarch::prefetch::{CachePrefetcher, Suggestions, prefetcher};
use nandarray_uarch::{
    CacheDescription, CacheSide, CoreDescription, Hierarchy, MemoryCounts, MemoryDescription, PrefetchKind,
    Replacement, Stall,
};

use super::common::bare;

/// A cache as lists of lines, the most recently used first.
struct ListedCache {
    sets: Vec<Vec<(u64, bool)>>,
    ways: usize,
    line: u64,
    t_hit: u64,
    counts: LineCounts,
}

/// The outcome of an access: a hit, or a miss with the dirty line that left.
type Found = Result<(), Option<u64>>;

impl ListedCache {
    fn new(d: &CacheDescription) -> Self {
        let line = u64::from(d.line_bytes);
        let sets = d.size_bytes / line / u64::from(d.ways);
        let (ways, t_hit) = (d.ways as usize, u64::from(d.t_hit));
        Self { sets: vec![Vec::new(); sets as usize], ways, line, t_hit, counts: LineCounts::default() }
    }

    fn start(&self, address: u64) -> u64 {
        address - address % self.line
    }

    fn set(&mut self, address: u64) -> &mut Vec<(u64, bool)> {
        let at = address / self.line % self.sets.len() as u64;
        &mut self.sets[at as usize]
    }

    fn bring(&mut self, address: u64, write: bool) -> Option<u64> {
        let (start, ways) = (self.start(address), self.ways);
        let set = self.set(address);
        let leaves = if set.len() == ways { set.pop() } else { None };
        set.insert(0, (start, write));
        let dirty = leaves.filter(|&(_, dirty)| dirty).map(|(line, _)| line);
        self.counts.write_backs += u64::from(dirty.is_some());
        dirty
    }

    fn access(&mut self, address: u64, write: bool) -> Found {
        let start = self.start(address);
        let counts = if write {
            (&mut self.counts.writes, &mut self.counts.write_misses)
        } else {
            (&mut self.counts.reads, &mut self.counts.read_misses)
        };
        *counts.0 += 1;
        let at = address / self.line % self.sets.len() as u64;
        let set = &mut self.sets[at as usize];
        if let Some(at) = set.iter().position(|&(line, _)| line == start) {
            let (line, dirty) = set.remove(at);
            set.insert(0, (line, dirty | write));
            return Ok(());
        }
        *counts.1 += 1;
        Err(self.bring(address, write))
    }

    /// Brings a line ahead of its use; returns `Ok` if the cache had it.
    fn prefetch(&mut self, address: u64) -> Found {
        let start = self.start(address);
        if self.set(address).iter().any(|&(line, _)| line == start) {
            return Ok(());
        }
        self.counts.prefetches += 1;
        Err(self.bring(address, false))
    }
}

/// Caches of a core with a memory's port, in the plainest form: lines on their way to a cache are a list.
struct Listed {
    first: [ListedCache; 2],
    second: Option<ListedCache>,
    memory: Option<MemoryDescription>,
    ahead: [Option<Box<dyn CachePrefetcher>>; 2],
    free: u64,
    /// Lines on their way to the data cache and to the second level.
    coming: [Vec<(u64, u64)>; 2],
    counts: MemoryCounts,
}

impl Listed {
    fn new(d: &CoreDescription) -> Self {
        let [l1i, l1d] = [d.l1i, d.l1d].map(|cache| cache.expect("both first levels"));
        let line = |cache: &CacheDescription| u64::from(cache.line_bytes);
        Self {
            first: [ListedCache::new(&l1i), ListedCache::new(&l1d)],
            second: d.l2.as_ref().map(ListedCache::new),
            memory: d.memory,
            ahead: [
                prefetcher(d.prefetch_l1d, line(&l1d)),
                d.l2.as_ref().and_then(|l2| prefetcher(d.prefetch_l2, line(l2))),
            ],
            free: 0,
            coming: [Vec::new(), Vec::new()],
            counts: MemoryCounts::default(),
        }
    }

    fn read_memory(&mut self, now: u64) -> u64 {
        let Some(memory) = self.memory else { return 0 };
        let start = now.max(self.free);
        self.free = start + u64::from(memory.t_line);
        start + u64::from(memory.t_access) - now
    }

    fn write_memory(&mut self, now: u64) {
        self.counts.lines_written += 1;
        if let Some(memory) = self.memory {
            self.free = now.max(self.free) + u64::from(memory.t_line);
        }
    }

    /// The ticks until a line that is on its way to a level has arrived.
    fn rest(&self, level: usize, now: u64, start: u64) -> u64 {
        let arrivals = self.coming[level].iter().filter(|&&(line, _)| line == start);
        arrivals.map(|&(_, at)| at.saturating_sub(now)).max().unwrap_or(0)
    }

    fn suggested(&mut self, level: usize, pc: u64, address: u64, missed: bool) -> Vec<u64> {
        let mut found = Suggestions::default();
        if let Some(ahead) = &mut self.ahead[level] {
            ahead.access(pc, address, missed, &mut found);
        }
        found.as_slice().to_vec()
    }

    /// Fills a line of the first level; `demand` says whether an access waits for it.
    fn fill(&mut self, now: u64, pc: u64, address: u64, dirty: Option<u64>, demand: bool) -> Stall {
        if self.second.is_none() {
            dirty.into_iter().for_each(|_| self.write_memory(now));
            *(if demand { &mut self.counts.lines_read } else { &mut self.counts.lines_prefetched }) += 1;
            return Stall { memory: self.read_memory(now), ..Stall::default() };
        }
        if let Some(dirty) = dirty {
            if let Err(Some(_)) = self.second.as_mut().unwrap().access(dirty, true) {
                self.write_memory(now);
            }
        }
        let second = self.second.as_mut().unwrap();
        let (found, t_hit, start) = (second.access(address, false), second.t_hit, second.start(address));
        let memory = match found {
            Ok(()) => self.rest(1, now + t_hit, start),
            Err(dirty) => {
                dirty.into_iter().for_each(|_| self.write_memory(now + t_hit));
                *(if demand { &mut self.counts.lines_read } else { &mut self.counts.lines_prefetched }) += 1;
                let takes = self.read_memory(now + t_hit);
                if !demand {
                    self.coming[1].push((start, now + t_hit + takes));
                }
                takes
            }
        };
        let then = now + t_hit + memory;
        for wanted in self.suggested(1, pc, address, found.is_err()) {
            let second = self.second.as_mut().unwrap();
            let start = second.start(wanted);
            if let Err(dirty) = second.prefetch(start) {
                dirty.into_iter().for_each(|_| self.write_memory(then));
                self.counts.lines_prefetched += 1;
                let takes = self.read_memory(then);
                self.coming[1].push((start, then + takes));
            }
        }
        Stall { l1: 0, l2: t_hit, memory }
    }

    fn line(&mut self, now: u64, side: usize, pc: u64, address: u64, write: bool) -> Stall {
        let cache = &mut self.first[side];
        let (found, t_hit, start) = (cache.access(address, write), cache.t_hit, cache.start(address));
        let mut stall = Stall { l1: t_hit, ..Stall::default() };
        match found {
            // Code is never prefetched into its cache.
            Ok(()) if side == 0 => {}
            Ok(()) => stall.memory = self.rest(0, now + t_hit, start),
            Err(dirty) => stall.add(self.fill(now + t_hit, pc, address, dirty, true)),
        }
        if side == 1 {
            for wanted in self.suggested(0, pc, address, found.is_err()) {
                let start = self.first[1].start(wanted);
                if let Err(dirty) = self.first[1].prefetch(start) {
                    let takes = self.fill(now + stall.total(), pc, start, dirty, false).total();
                    self.coming[0].push((start, now + stall.total() + takes));
                }
            }
        }
        stall
    }

    fn access(&mut self, now: u64, side: usize, pc: u64, address: u64, bytes: u64, write: bool) -> Stall {
        let line = self.first[side].line;
        let mut stall = self.line(now, side, pc, address, write);
        for next in address / line + 1..=(address + bytes - 1) / line {
            stall.add(self.line(now + stall.total(), side, pc, next * line, write));
        }
        stall
    }
}

/// Makes a core with random caches, prefetchers and memory.
fn random_core(chance: &mut fastrand::Rng) -> CoreDescription {
    let mut d = bare("five-stage");
    let cache = |chance: &mut fastrand::Rng, line_bytes: u32, sets: u64| {
        let ways = chance.u32(1..6);
        let size_bytes = sets * u64::from(ways) * u64::from(line_bytes);
        CacheDescription { size_bytes, ways, line_bytes, t_hit: chance.u32(0..4), replacement: Replacement::Lru }
    };
    let lines = [8, 16, 32, 64];
    let (a, b) = (lines[chance.usize(0..4)], lines[chance.usize(0..4)]);
    let sets = [1 << chance.u32(0..4), 1 << chance.u32(0..4), 1 << chance.u32(0..6)];
    d.l1i = Some(cache(chance, a, sets[0]));
    d.l1d = Some(cache(chance, b, sets[1]));
    let wider = a.max(b) << chance.u32(0..2);
    d.l2 = chance.bool().then(|| cache(chance, wider, sets[2]));
    d.memory = chance.bool().then(|| MemoryDescription { t_access: chance.u32(0..90), t_line: chance.u32(0..12) });
    let kinds = [PrefetchKind::None, PrefetchKind::NextLine, PrefetchKind::Stride, PrefetchKind::Dcpt];
    d.prefetch_l1d = kinds[chance.usize(0..4)];
    d.prefetch_l2 = if d.l2.is_some() { kinds[chance.usize(0..4)] } else { PrefetchKind::None };
    d.check().unwrap();
    d
}

#[test]
fn every_access_waits_as_long_as_lists_of_lines_say() {
    let cases = if std::env::var_os("NANDARRAY_DEEP").is_some() { 4_000 } else { 120 };
    for seed in 0..cases {
        let mut chance = fastrand::Rng::with_seed(seed);
        let d = random_core(&mut chance);
        let (mut caches, mut lists) = (Hierarchy::new(&d, false), Listed::new(&d));
        let mut now = 0;
        // Walks by a few instructions with strides of their own, mixed with random places.
        let mut walks: Vec<(u64, u64)> = (0..4).map(|_| (chance.u64(0..4_096), chance.u64(0..200))).collect();
        for step in 0..1_500 {
            now += chance.u64(0..6);
            let side = usize::from(chance.u8(..4) > 0);
            let who = chance.usize(0..walks.len());
            let address = if chance.u8(..8) == 0 { chance.u64(0..8_192) } else { walks[who].0 };
            walks[who].0 = (walks[who].0 + walks[who].1) % 16_384;
            let (bytes, write) = (1 << chance.u32(0..4), side == 1 && chance.bool());
            let pc = 0x1000 + 4 * who as u64;
            let sides = [CacheSide::Instruction, CacheSide::Data];
            let found = caches.access(now, sides[side], pc, address, bytes, write);
            let wanted = lists.access(now, side, pc, address, bytes, write);
            assert_eq!(found, wanted, "seed {seed}, step {step}: {bytes} bytes at {address:#x}, tick {now}, {d:?}");
            now += found.total();
        }
        let counts = [Some(&lists.first[0]), Some(&lists.first[1]), lists.second.as_ref()];
        assert_eq!(caches.counts(), counts.map(|cache| cache.map(|cache| cache.counts)), "seed {seed}: {d:?}");
        assert_eq!(caches.memory_counts(), lists.counts, "seed {seed}: {d:?}");
    }
}

#[test]
fn shared_memory_is_asked_for_the_lines_that_ones_own_would_read() {
    for seed in 0..60 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let d = random_core(&mut chance);
        let (mut own, mut shared) = (Hierarchy::new(&d, false), Hierarchy::new(&d, true));
        let line_bytes = u64::from(d.l2.or(d.l1d).unwrap().line_bytes);
        let mut asked = MemoryCounts::default();
        for step in 0..600 {
            let (address, write) = (chance.u64(0..4_096) / 8 * 8, chance.bool());
            let side = if chance.u8(..4) == 0 { CacheSide::Instruction } else { CacheSide::Data };
            let write = write && side == CacheSide::Data;
            own.access(0, side, 0x40, address, 8, write);
            let stall = shared.access(0, side, 0x40, address, 8, write);
            let code = if side == CacheSide::Instruction { d.memory.map_or(0, |m| u64::from(m.t_access)) } else { 0 };
            // Prefetched lines, which arrive when their owner says so, are waited for.
            let waits = d.prefetch_l1d != PrefetchKind::None;
            assert!(waits || [0, code].contains(&stall.memory), "seed {seed}, step {step}: {stall:?}");
            let pauses = shared.pauses(7);
            let request = shared.take_request();
            assert!(!shared.pauses(8), "seed {seed}, step {step}: what was asked is not asked again");
            let waits = !(request.wanted.is_empty() && request.prefetches.is_empty() && request.write_backs.is_empty());
            assert_eq!(pauses, waits, "seed {seed}, step {step}: {request:x?}");
            if pauses {
                assert_eq!(request.at, 7, "seed {seed}, step {step}");
            }
            let has = |lines: &[u64]| lines.iter().any(|line| (*line..line + line_bytes).contains(&address));
            assert!(request.wanted.len() <= 1 && request.wanted.iter().all(|&line| has(&[line])), "{request:x?}");
            asked.lines_read += (request.wanted.len() + request.code.len()) as u64;
            asked.lines_prefetched += request.prefetches.len() as u64;
            asked.lines_written += request.write_backs.len() as u64;
        }
        assert_eq!(asked, own.memory_counts(), "seed {seed}: {d:?}");
        assert_eq!(shared.counts(), own.counts(), "seed {seed}: {d:?}");
    }
}

/// Lines of the data cache are smaller than those that shared memory sends: one that was prefetched is there when the
/// line around it is.
#[test]
fn a_prefetched_line_comes_with_the_line_of_shared_memory_around_it() {
    let mut d = bare("five-stage");
    let cache = |line_bytes, size_bytes| CacheDescription {
        size_bytes,
        ways: 4,
        line_bytes,
        t_hit: 0,
        replacement: Replacement::Lru,
    };
    (d.l1d, d.l2) = (Some(cache(16, 4_096)), Some(cache(64, 1 << 16)));
    (d.prefetch_l1d, d.prefetch_l2) = (PrefetchKind::Stride, PrefetchKind::None);
    let mut caches = Hierarchy::new(&d, true);
    let (mut there, mut ahead) = (std::collections::HashMap::new(), 0);
    for n in 0..40u64 {
        let (now, address) = (10 * n, 0x90 * n);
        let stall = caches.access(now, CacheSide::Data, 0x40, address, 8, false);
        let request = caches.take_request();
        if let (Some(&at), true) = (there.get(&(address / 64)), request.wanted.is_empty()) {
            assert_eq!(stall.memory, at - now, "access {n} to {address:#x}");
            ahead += 1;
        }
        for &line in &request.prefetches {
            there.insert(line / 64, now + 1_000);
            caches.arrives(line, now + 1_000);
        }
    }
    assert!(ahead > 30, "{ahead} lines were prefetched");
}
