//! Tags of a set-associative cache: which lines it holds, which are dirty, and which line leaves a full set.
//!
//! The caches are write-back, and a write miss allocates a line. Lines hold no bytes: those are in the hart's memory. A
//! set with least-recently-used replacement lists its lines from the most recent one on, so that the usual hit is one
//! comparison.

use crate::describe::{CacheDescription, Replacement};

/// Accesses and misses of one cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Number of reads.
    pub reads: u64,
    /// Number of reads that missed.
    pub read_misses: u64,
    /// Number of writes.
    pub writes: u64,
    /// Number of writes that missed.
    pub write_misses: u64,
    /// Number of dirty lines that were replaced, and so written back.
    pub write_backs: u64,
    /// Number of lines that a prefetcher brought.
    pub prefetches: u64,
}

impl LineCounts {
    /// Returns the number of reads and writes that missed.
    pub fn misses(&self) -> u64 {
        self.read_misses + self.write_misses
    }
}

/// The result of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheAccess {
    /// The cache held the line.
    Hit,
    /// The cache did not hold the line, and holds it now.
    Miss {
        /// Address of the dirty line that was replaced, to be written back; `None` if no dirty line was.
        dirty: Option<u64>,
    },
}

const VALID: u64 = 1 << 63;
const DIRTY: u64 = 1 << 62;
const LINE: u64 = DIRTY - 1;

/// The tags of a cache.
#[derive(Clone, Debug)]
pub struct CacheTags {
    tags: Vec<u64>,
    ways: usize,
    line_shift: u32,
    set_mask: u64,
    replacement: Replacement,
    lfsr: u32,
    counts: LineCounts,
}

impl CacheTags {
    /// Creates an empty cache.
    pub fn new(d: &CacheDescription) -> Self {
        let sets = d.sets();
        assert!(sets.is_power_of_two() && d.line_bytes.is_power_of_two(), "a checked description");
        assert!(d.ways > 0 && sets > 0, "a checked description");
        Self {
            tags: vec![0; (sets * u64::from(d.ways)) as usize],
            ways: d.ways as usize,
            line_shift: d.line_bytes.trailing_zeros(),
            set_mask: sets - 1,
            replacement: d.replacement,
            lfsr: 1,
            counts: LineCounts::default(),
        }
    }

    /// Returns the accesses and misses so far.
    pub fn counts(&self) -> LineCounts {
        self.counts
    }

    /// Returns the number of sets.
    pub(crate) fn sets(&self) -> u64 {
        self.set_mask + 1
    }

    /// Returns the size of a line, in bytes.
    pub fn line_bytes(&self) -> u64 {
        1 << self.line_shift
    }

    fn set(&mut self, line: u64) -> &mut [u64] {
        debug_assert!(line <= LINE, "line {line:#x} has no room for a tag");
        let first = (line & self.set_mask) as usize * self.ways;
        &mut self.tags[first..first + self.ways]
    }

    /// Returns whether the cache holds the line of an address; changes nothing.
    pub fn contains(&self, address: u64) -> bool {
        let line = address >> self.line_shift;
        let first = (line & self.set_mask) as usize * self.ways;
        self.tags[first..first + self.ways].iter().any(|tag| tag & !DIRTY == VALID | line)
    }

    /// Performs an access if the cache holds its line and the access lies within this line; returns whether it did. If
    /// it returns false, nothing has changed.
    #[inline]
    pub(crate) fn hits(&mut self, address: u64, bytes: u64, write: bool) -> bool {
        let line = address >> self.line_shift;
        if address.wrapping_add(bytes).wrapping_sub(1) >> self.line_shift != line {
            return false;
        }
        let (wanted, dirty) = (VALID | line, if write { DIRTY } else { 0 });
        let lru = self.replacement == Replacement::Lru;
        let set = self.set(line);
        if set[0] & !DIRTY == wanted {
            set[0] |= dirty;
        } else {
            let Some(way) = set[1..].iter().position(|tag| tag & !DIRTY == wanted) else { return false };
            if lru {
                // The accessed line moves to the front; those before it move back by one.
                let mut moves = set[way + 1] | dirty;
                for tag in &mut set[..way + 2] {
                    std::mem::swap(tag, &mut moves);
                }
            } else {
                set[way + 1] |= dirty;
            }
        }
        self.counts.writes += u64::from(write);
        self.counts.reads += u64::from(!write);
        true
    }

    /// Performs an access to the line of an address, which is brought into the cache on a miss.
    #[inline]
    pub fn access(&mut self, address: u64, write: bool) -> CacheAccess {
        let line = address >> self.line_shift;
        debug_assert!(line <= LINE, "address {address:#x} has no room for a tag");
        let (wanted, dirty) = (VALID | line, if write { DIRTY } else { 0 });
        if write {
            self.counts.writes += 1;
        } else {
            self.counts.reads += 1;
        }
        let lru = self.replacement == Replacement::Lru;
        let set = self.set(line);
        if set[0] & !DIRTY == wanted {
            set[0] |= dirty;
            return CacheAccess::Hit;
        }
        if let Some(way) = set[1..].iter().position(|tag| tag & !DIRTY == wanted) {
            set[way + 1] |= dirty;
            if lru {
                set[..=way + 1].rotate_right(1);
            }
            return CacheAccess::Hit;
        }
        if write {
            self.counts.write_misses += 1;
        } else {
            self.counts.read_misses += 1;
        }
        CacheAccess::Miss { dirty: self.fill(line, dirty) }
    }

    /// Brings the line of an address into the cache without an access. Returns `None` if the cache holds the line
    /// already, otherwise a miss with the line that it replaced.
    pub fn prefetch(&mut self, address: u64) -> Option<CacheAccess> {
        if self.contains(address) {
            return None;
        }
        self.counts.prefetches += 1;
        Some(CacheAccess::Miss { dirty: self.fill(address >> self.line_shift, 0) })
    }

    fn fill(&mut self, line: u64, dirty: u64) -> Option<u64> {
        let (ways, shift) = (self.ways, self.line_shift);
        let way = match self.replacement {
            Replacement::Lru => ways - 1,
            Replacement::Lfsr => self.by_chance(line),
        };
        let lru = self.replacement == Replacement::Lru;
        let set = self.set(line);
        debug_assert!(set.iter().all(|tag| tag & !DIRTY != VALID | line), "two copies of line {line:#x}");
        let victim = std::mem::replace(&mut set[way], VALID | dirty | line);
        if lru {
            set.rotate_right(1);
        }
        let leaves = victim & (VALID | DIRTY) == VALID | DIRTY;
        self.counts.write_backs += u64::from(leaves);
        leaves.then_some((victim & LINE) << shift)
    }
}

impl CacheTags {
    /// Returns the way that Spike's cache simulator would choose for a line: pseudo-random, except that a single set of
    /// more than four ways first fills all of its ways.
    fn by_chance(&mut self, line: u64) -> usize {
        let ways = self.ways;
        let few = self.set_mask > 0 || ways <= 4;
        if let Some(free) = self.set(line).iter().position(|tag| tag & VALID == 0).filter(|_| !few) {
            return free;
        }
        // The polynomial of the shift register.
        let bit = self.lfsr & 1;
        self.lfsr = (self.lfsr >> 1) ^ (bit.wrapping_neg() & 0xd000_0001);
        debug_assert_ne!(self.lfsr, 0, "a shift register of zeroes stays as it is");
        let chosen = self.lfsr as usize % ways;
        if few {
            return chosen;
        }
        let set = self.set(line);
        let mut by_address: Vec<usize> = (0..ways).collect();
        by_address.sort_unstable_by_key(|&way| set[way] & LINE);
        by_address[chosen]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    fn cache(size_bytes: u64, ways: u32, line_bytes: u32) -> CacheTags {
        CacheTags::new(&CacheDescription { size_bytes, ways, line_bytes, t_hit: 0, replacement: Replacement::Lru })
    }

    /// A slow and simple model of a cache: each set is a queue of lines, the most recently used first.
    struct Model {
        sets: Vec<VecDeque<(u64, bool)>>,
        ways: usize,
    }

    impl Model {
        fn access(&mut self, line: u64, write: bool) -> CacheAccess {
            let at = line as usize % self.sets.len();
            let set = &mut self.sets[at];
            if let Some(i) = set.iter().position(|&(l, _)| l == line) {
                let (l, d) = set.remove(i).unwrap();
                set.push_front((l, d | write));
                return CacheAccess::Hit;
            }
            let gone = if set.len() == self.ways { set.pop_back() } else { None };
            set.push_front((line, write));
            CacheAccess::Miss { dirty: gone.filter(|&(_, d)| d).map(|(l, _)| l * 64) }
        }
    }

    #[test]
    fn it_holds_the_lines_that_a_plain_model_holds() {
        for (seed, (size, ways)) in [(1, (4_096, 1)), (2, (4_096, 4)), (3, (4_096, 64)), (4, (16_384, 8))] {
            let mut cache = cache(size, ways, 64);
            let sets = size / 64 / u64::from(ways);
            let mut model = Model { sets: vec![VecDeque::new(); sets as usize], ways: ways as usize };
            let mut rng = fastrand::Rng::with_seed(seed);
            for step in 0..40_000 {
                let (address, write) = (rng.u64(0..3 * size), rng.bool());
                let expected = model.access(address / 64, write);
                assert_eq!(cache.access(address, write), expected, "seed {seed}, step {step}, {address:#x}");
            }
            let counts = cache.counts();
            assert_eq!(counts.reads + counts.writes, 40_000);
        }
    }

    /// Compares with closed forms: a walk over twice the cache misses each line; one over half of it misses each line
    /// once.
    #[test]
    fn walks_miss_what_closed_forms_say() {
        let mut cache = cache(32_768, 8, 64);
        for round in 0..4 {
            for address in (0..65_536).step_by(4) {
                cache.access(address, false);
            }
            assert_eq!(cache.counts().read_misses, (round + 1) * 1_024);
        }
        let mut small = self::cache(32_768, 8, 64);
        for _ in 0..4 {
            for address in (0..16_384).step_by(8) {
                small.access(address, true);
            }
        }
        assert_eq!((small.counts().write_misses, small.counts().write_backs), (256, 0));
    }

    #[test]
    fn a_prefetched_line_is_hit() {
        let mut cache = cache(4_096, 4, 64);
        assert!(cache.prefetch(640).is_some() && cache.prefetch(641).is_none());
        assert_eq!(cache.access(700, false), CacheAccess::Hit);
        assert_eq!(cache.counts().prefetches, 1);
    }
}
