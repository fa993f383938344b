//! Which pages were compared with their checksum since the store was opened.
//!
//! A page is immutable from when it is mapped until its segment is opened again, so once is enough. One bit a page, in
//! tables made when a segment is first looked at; reading and setting take no lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::flash::{Geometry, Ppa, Segment};

const FAN: usize = 2048;

type Bits = Box<[AtomicU64]>;

/// The bits of all segments.
pub struct Verified {
    geometry: Geometry,
    tables: Box<[OnceLock<Box<[OnceLock<Bits>]>>]>,
}

impl std::fmt::Debug for Verified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verified").finish_non_exhaustive()
    }
}

fn cells<T>(n: usize) -> Box<[OnceLock<T>]> {
    (0..n).map(|_| OnceLock::new()).collect()
}

impl Verified {
    /// No page is verified.
    pub fn new(geometry: Geometry) -> Self {
        Self { geometry, tables: cells(FAN) }
    }

    fn bits(&self, segment: Segment) -> &Bits {
        let (high, low) = (segment as usize / FAN, segment as usize % FAN);
        let words = self.geometry.pages_per_segment().div_ceil(64) as usize;
        self.tables[high].get_or_init(|| cells(FAN))[low]
            .get_or_init(|| (0..words).map(|_| AtomicU64::new(0)).collect())
    }

    /// The first page of a run, within one segment, that is not verified yet.
    pub fn first_unverified(&self, ppa: Ppa, count: u32) -> Option<u32> {
        let bits = self.bits(self.geometry.segment_of(ppa));
        let (start, end) = (self.geometry.page_in_segment(ppa), self.geometry.page_in_segment(ppa) + count);
        let mut page = start;
        while page < end {
            let (word, bit) = (page / 64, page % 64);
            let missing = !bits[word as usize].load(Relaxed) >> bit;
            if missing == 0 {
                page = (word + 1) * 64;
                continue;
            }
            page += missing.trailing_zeros();
            return (page < end).then(|| page - start);
        }
        None
    }

    /// Marks a page.
    pub fn set(&self, ppa: Ppa) {
        let page = self.geometry.page_in_segment(ppa);
        // Relaxed: the bit orders nothing; whoever does not see it compares once more.
        self.bits(self.geometry.segment_of(ppa))[page as usize / 64].fetch_or(1 << (page % 64), Relaxed);
    }

    /// Forgets a segment, which is opened again.
    pub fn clear(&self, segment: Segment) {
        for word in self.bits(segment) {
            word.store(0, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_missing_page() {
        let v = Verified::new(Geometry::FILE);
        let p = |n| Geometry::FILE.ppa(5, n);
        assert_eq!(v.first_unverified(p(10), 100), Some(0));
        for n in 10..100 {
            v.set(p(n));
        }
        assert_eq!(v.first_unverified(p(10), 90), None);
        assert_eq!(v.first_unverified(p(10), 91), Some(90));
        assert_eq!(v.first_unverified(p(50), 50), None);
        v.clear(5);
        assert_eq!(v.first_unverified(p(50), 50), Some(0));
    }
}
