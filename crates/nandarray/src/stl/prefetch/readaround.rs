//! Readaround: decides when small cold reads all over a space should fetch the extents around them as well.
//!
//! A small read of pages that are not in memory costs a disk one request for each of its parts. A program that makes
//! many such reads would have been faster by reading everything in order first; a program that makes few would not.
//! Their number is not known in advance, which is the ski-rental problem (Karlin, Manasse, Rudolph, Sleator 1988). Once
//! the requests have cost as much as reading the whole medium in order, each further one fetches the extents that it
//! lies in, until as many bytes were fetched as the medium has. That costs at most about twice the optimum, and reads
//! of random boxes, as training makes them, soon find everything in memory.
//!
//! Costs are counted as bytes that a disk could read in order in the same time ([`REQUEST_BYTES`]), and not measured:
//! the engine has no clock. Media that do not fit in memory are never read around
//! ([`crate::media::Media::fits_in_memory`]).

use std::sync::atomic::{AtomicU64, Ordering};

/// Cost of a request of a small read, as a number of bytes read in order in the same time: 130 µs at 2 GB/s.
const REQUEST_BYTES: u64 = 256 << 10;
/// Ratio of the time to read single pages to that of reading extents, per byte (design note 7).
const PAGES_FACTOR: u64 = 2;
/// Largest number of tasks of a command that is charged; a command with more keeps a disk busy by itself.
pub(super) const TASKS_MAX: u64 = 16;

/// Accumulated cost of a space's small cold reads, and number of bytes that were read in whole extents to end such
/// reads.
#[derive(Debug, Default)]
pub struct SkiRental {
    /// Cost of requests so far, as the number of bytes that a disk reads in order in the same time.
    charged: AtomicU64,
    /// Number of bytes that were fetched in whole extents since the cost became high enough.
    fetched: AtomicU64,
}

impl SkiRental {
    /// Whether the accumulated cost justifies reading whole extents; `all` is the size of the medium in bytes.
    pub(super) fn is_due(&self, all: u64) -> bool {
        self.charged.load(Ordering::Relaxed) >= all
    }

    /// Returns, at the beginning of a command, whether whole extents are to be read ([`Self::is_due`]). If so, also
    /// credits one request, so that reading around ends even if commands find all pages in memory.
    pub(super) fn begin_command(&self, all: u64) -> bool {
        let due = self.is_due(all);
        if due {
            self.credit(REQUEST_BYTES, all);
        }
        due
    }

    /// Charges a command for its requests: `ranges` ranges of pages with `bytes` bytes in all.
    pub(super) fn charge(&self, ranges: u64, bytes: u64) {
        debug_assert!(ranges > 0, "a request has ranges");
        self.charged.fetch_add(ranges * REQUEST_BYTES + bytes * PAGES_FACTOR, Ordering::Relaxed);
    }

    /// Counts bytes of extents that a command fetched. When they reach the size of the medium, pages that are still
    /// missing must have been evicted, and both counts begin again at 0.
    pub(super) fn credit(&self, bytes: u64, all: u64) {
        if self.fetched.fetch_add(bytes, Ordering::Relaxed) + bytes >= all {
            self.charged.store(0, Ordering::Relaxed);
            self.fetched.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = 200 << 20;

    #[test]
    fn reading_around_begins_when_it_would_have_paid_and_ends_when_all_was_fetched() {
        let rental = SkiRental::default();
        for round in 0..3 {
            let mut charges = 0;
            while !rental.is_due(ALL) {
                rental.charge(2, 98 << 10);
                charges += 1;
            }
            assert_eq!(charges, 290, "round {round}");
            let mut credits = 0;
            while rental.is_due(ALL) {
                rental.credit(4 << 20, ALL);
                credits += 1;
            }
            assert_eq!(credits, 50, "round {round}");
        }
        rental.charge(1000, 0);
        assert_eq!((0..).take_while(|_| rental.begin_command(ALL)).count(), 800, "nothing was missing");
    }
}
