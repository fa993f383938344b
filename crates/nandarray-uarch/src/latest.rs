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
}
