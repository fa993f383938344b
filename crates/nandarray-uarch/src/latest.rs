//! The lines of a cache that were accessed last in their sets, as far as a small table knows them: an access to such a
//! line is a hit that changes nothing in the cache, so that it has only to be counted.
//!
//! An entry is exact: an access by any other way is noted here, which replaces what was known about the sets of its
//! lines. The table knows nothing of replacement.

use crate::cache::CacheTags;

const ENTRIES: usize = 64;
/// Stands in an entry for no line: differs from the entry of every line.
const NO_LINE: u64 = u64::MAX;

/// A table of the lines accessed last, with the number of hits that it counted in place of the cache.
#[derive(Debug)]
pub(crate) struct LatestLines {
    shift: u32,
    /// Bits of a line's number that choose its entry: no more than those that choose its set, so that all lines of a
    /// set have the same entry.
    mask: u64,
    /// Twice a line's number, plus 1 if the line is dirty; or [`NO_LINE`].
    entries: [u64; ENTRIES],
    reads: u64,
    writes: u64,
}

impl LatestLines {
    /// Creates an empty table for a cache; without a cache it stays empty.
    pub(crate) fn new(cache: Option<&CacheTags>) -> Self {
        let sets = cache.map_or(1, CacheTags::sets);
        let shift = cache.map_or(0, |cache| cache.line_bytes().trailing_zeros());
        assert!(sets.is_power_of_two(), "{sets} sets have no mask");
        Self { shift, mask: (sets - 1).min(ENTRIES as u64 - 1), entries: [NO_LINE; ENTRIES], reads: 0, writes: 0 }
    }

    fn entry(&mut self, line: u64) -> &mut u64 {
        &mut self.entries[(line & self.mask) as usize % ENTRIES]
    }

    /// Counts an access and returns true if its line is in the table, and is dirty already if the access writes;
    /// otherwise returns false. The access must lie within one line.
    #[inline(always)]
    pub(crate) fn hits(&mut self, address: u64, write: bool) -> bool {
        let line = address >> self.shift;
        let known = self.entries[(line & self.mask) as usize % ENTRIES];
        if known | u64::from(!write) != line << 1 | 1 {
            return false;
        }
        self.writes += u64::from(write);
        self.reads += u64::from(!write);
        true
    }

    /// Returns whether a line is in the table; counts nothing.
    #[inline(always)]
    pub(crate) fn knows(&self, address: u64) -> bool {
        let line = address >> self.shift;
        self.entries[(line & self.mask) as usize % ENTRIES] | 1 == line << 1 | 1
    }

    /// Notes an access to `bytes` bytes that the cache has performed.
    #[inline]
    pub(crate) fn note(&mut self, address: u64, bytes: u64, write: bool) {
        debug_assert!(bytes > 0, "an access to no byte at {address:#x}");
        let (first, last) = (address >> self.shift, address.wrapping_add(bytes - 1) >> self.shift);
        *self.entry(first) = first << 1 | u64::from(write);
        if first != last {
            *self.entry(first) = NO_LINE;
            *self.entry(last) = NO_LINE;
        }
    }

    /// Forgets what was known about the set of an address: the cache has filled one of its lines without an access.
    pub(crate) fn forget(&mut self, address: u64) {
        *self.entry(address >> self.shift) = NO_LINE;
    }

    /// Returns the numbers of reads and of writes that this table counted.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.reads, self.writes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{CacheAccess, LineCounts};
    use crate::describe::{CacheDescription, Replacement};

    #[test]
    fn a_line_is_known_until_its_set_changes_without_an_access() {
        let mut latest = LatestLines { shift: 6, mask: 3, entries: [NO_LINE; ENTRIES], reads: 0, writes: 0 };
        assert!(!latest.hits(0x40, false));
        latest.note(0x40, 4, true);
        assert!(latest.hits(0x44, false) && latest.hits(0x40, true));
        // Line 5 has line 1's set: filling it may evict line 1.
        latest.forget(5 << 6);
        assert!(!latest.hits(0x40, false) && !latest.knows(0x40));
        assert_eq!(latest.counts(), (1, 1));
    }
    /// A cache behind the table is in the state of a cache without one: the same lines, dirty and in the same order,
    /// and together they have counted the same accesses.
    #[test]
    fn a_cache_behind_the_table_is_what_it_would_be_without() {
        for seed in 0..80 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let (ways, line_bytes, sets) = (chance.u32(1..5), 8 << chance.u32(0..4), 1u64 << chance.u32(0..9));
            let size_bytes = u64::from(ways * line_bytes) * sets;
            let replacement = if chance.bool() { Replacement::Lru } else { Replacement::Lfsr };
            let d = CacheDescription { size_bytes, ways, line_bytes, t_hit: 0, replacement };
            let (mut alone, mut behind) = (CacheTags::new(&d), CacheTags::new(&d));
            let mut latest = LatestLines::new(Some(&behind));
            let mut counted = 0;
            let mut address = 0u64;
            for step in 0..3_000 {
                address = if chance.u8(..4) == 0 { chance.u64(0..4 * size_bytes) } else { address ^ chance.u64(0..16) };
                if chance.u8(..16) == 0 {
                    // A line is brought ahead of its use.
                    assert_eq!(alone.prefetch(address), behind.prefetch(address), "seed {seed}, step {step}");
                    latest.forget(address);
                    continue;
                }
                let write = chance.u8(..3) == 0;
                let found = alone.access(address, write);
                if latest.hits(address, write) {
                    counted += 1;
                    assert!(latest.knows(address));
                    assert_eq!(found, CacheAccess::Hit, "seed {seed}, step {step}, {d:?}");
                } else {
                    assert_eq!(found, behind.access(address, write), "seed {seed}, step {step}, {d:?}");
                    latest.note(address, 1, write);
                }
            }
            let (both, (reads, writes)) = (behind.counts(), latest.counts());
            assert!(counted > 500 && reads + writes == counted, "seed {seed}: the table counted {counted}");
            let sum = LineCounts { reads: both.reads + reads, writes: both.writes + writes, ..both };
            assert_eq!(alone.counts(), sum, "seed {seed}, {d:?}");
        }
    }
}
