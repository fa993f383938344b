//! Verified pages: the set of pages that were compared with their checksum since the store was opened.
//!
//! A page is immutable from its mapping until its segment is opened again, so one comparison is enough. The set has one
//! bit for each page, in tables that are created when a segment is first read; reading and setting bits takes no lock.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::flash::geometry::SEGMENTS_MAX;
use crate::flash::{Geometry, Ppa, Segment};

const FAN: usize = 4096;
const _: () = assert!((FAN * FAN) as u64 >= SEGMENTS_MAX);

type Bits = Box<[AtomicU64]>;

/// The set of verified pages: a bit for each page of every segment.
pub struct Verified {
    geometry: Geometry,
    tables: Box<[OnceLock<Box<[OnceLock<Bits>]>>]>,
}

impl std::fmt::Debug for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verified").finish_non_exhaustive()
    }
}

/// Returns the first bit in `from..end` with the value `set`; `None` if there is none.
fn next(bits: &[AtomicU64], from: u32, end: u32, set: bool) -> Option<u32> {
    let mut at = from;
    while at < end {
        let word = bits[at as usize / 64].load(Relaxed);
        let rest = (if set { word } else { !word }) >> (at % 64);
        if rest != 0 {
            at += rest.trailing_zeros();
            return (at < end).then_some(at);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

fn cells<T>(n: usize) -> Box<[OnceLock<T>]> {
    (0..n).map(|_| OnceLock::new()).collect()
}

impl Verified {
    /// Creates an empty set.
    pub fn new(geometry: Geometry) -> Self {
        Self { geometry, tables: cells(FAN) }
    }

    fn bits(&self, segment: Segment) -> &Bits {
        let (high, low) = (segment as usize / FAN, segment as usize % FAN);
        let words = self.geometry.pages_per_segment().div_ceil(64) as usize;
        self.tables[high].get_or_init(|| cells(FAN))[low]
            .get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns the first range of consecutive pages among `pages` that are not verified yet; `None` if all are. Pages
    /// are numbered from `ppa` on, and must be in one segment.
    pub fn unverified(&self, ppa: Ppa, pages: Range<u32>) -> Option<Range<u32>> {
        let bits = self.bits(self.geometry.segment_of(ppa));
        let first = self.geometry.page_in_segment(ppa);
        let start = next(bits, first + pages.start, first + pages.end, false)?;
        let end = next(bits, start, first + pages.end, true).unwrap_or(first + pages.end);
        Some(start - first..end - first)
    }

    /// Adds `pages`, numbered from `ppa` on, to the set; they must be in one segment.
    pub fn set(&self, ppa: Ppa, pages: Range<u32>) {
        let bits = self.bits(self.geometry.segment_of(ppa));
        let first = self.geometry.page_in_segment(ppa);
        let (mut at, end) = (first + pages.start, first + pages.end);
        debug_assert!(end <= self.geometry.pages_per_segment(), "{pages:?} from page {first} on leave the segment");
        while at < end {
            let n = (64 - at % 64).min(end - at);
            // Relaxed: the bits order nothing; a thread that does not see one yet verifies the page again.
            bits[at as usize / 64].fetch_or((u64::MAX >> (64 - n)) << (at % 64), Relaxed);
            at += n;
        }
    }

    /// Removes all pages of a segment, because it is opened again.
    pub fn clear(&self, segment: Segment) {
        for word in self.bits(segment) {
            word.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_segment_is_forgotten() {
        let v = Verified::new(Geometry::FILE);
        let (here, other) = (Geometry::FILE.ppa(5, 10), Geometry::FILE.ppa(6, 10));
        assert_eq!(v.unverified(here, 0..100), Some(0..100));
        v.set(here, 0..90);
        v.set(other, 0..90);
        assert_eq!(v.unverified(here, 0..91), Some(90..91));
        v.clear(5);
        assert_eq!((v.unverified(here, 40..50), v.unverified(other, 40..50)), (Some(40..50), None));
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(
            marks in prop::collection::vec((0u32..300, 0u32..140), 0..8),
            asked in prop::collection::vec((0u32..300, 0u32..200), 1..8),
            first in 0u32..130,
        ) {
            let v = Verified::new(Geometry::FILE);
            let ppa = Geometry::FILE.ppa(3, first);
            let mut model = BTreeSet::new();
            for (start, n) in marks {
                v.set(ppa, start..start + n);
                model.extend(start..start + n);
            }
            for (start, n) in asked {
                let end = start + n;
                let expected = (start..end).find(|p| !model.contains(p)).map(|from| {
                    from..(from..end).find(|p| model.contains(p)).unwrap_or(end)
                });
                prop_assert_eq!(v.unverified(ppa, start..end), expected);
            }
            // Nothing beside the run is marked.
            prop_assert!(first == 0 || v.unverified(Geometry::FILE.ppa(3, 0), 0..first) == Some(0..first));
            prop_assert_eq!(v.unverified(Geometry::FILE.ppa(3, first + 440), 0..64), Some(0..64));
        }
    }
}
