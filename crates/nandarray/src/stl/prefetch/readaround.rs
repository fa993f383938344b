//! Readaround: when small cold reads all over a space should fetch the extents around them, too.
//!
//! A small read of pages that are not in memory costs a disk a request for each of its parts. A program that makes many
//! of them would have done better to read everything in order; one that makes few, not. Their number is not known in
//! advance: the ski-rental problem (Karlin, Manasse, Rudolph, Sleator 1988). Once the requests have cost as much as
//! reading the whole medium in order, each further one fetches the extents that it lies in, until as much was fetched
//! as there is. That costs at most about twice the optimum, and lists of random boxes, as training makes them, soon run
//! from memory.
//!
//! Costs are counted in bytes that a disk reads in order meanwhile ([`REQUEST_BYTES`]), not measured: the engine has no
//! clock. Media that do not fit in memory are never read around ([`crate::media::Media::fits_in_memory`]).

use std::sync::atomic::{AtomicU64, Ordering};

/// A request of a small read, whose next one waits for it, takes as long as this many bytes in order: 130 µs at 2 GB/s.
const REQUEST_BYTES: u64 = 256 << 10;
/// Pages that come one by one take twice as long as extents (design note 7).
const PAGES_FACTOR: u64 = 2;
/// Commands of more tasks keep a disk busy by themselves.
pub(super) const TASKS_MAX: u64 = 16;

/// The cost of a space's small cold reads so far.
#[derive(Debug, Default)]
pub struct SkiRental {
    /// Charged for requests, as bytes in order.
    charged: AtomicU64,
    /// Fetched in extents since that was enough.
    fetched: AtomicU64,
}

impl SkiRental {
    /// Whether reading around is worth it by now, where everything has `all` bytes.
    pub(super) fn is_due(&self, all: u64) -> bool {
        self.charged.load(Ordering::Relaxed) >= all
    }

    /// The same at the beginning of a command: each brings the end nearer, also those whose pages are in memory.
    pub(super) fn begin_command(&self, all: u64) -> bool {
        let due = self.is_due(all);
        if due {
            self.credit(REQUEST_BYTES, all);
        }
        due
    }

    /// Charges a command for its requests of ranges of pages.
    pub(super) fn charge(&self, ranges: u64, bytes: u64) {
        debug_assert!(ranges > 0, "a request has ranges");
        self.charged.fetch_add(ranges * REQUEST_BYTES + bytes * PAGES_FACTOR, Ordering::Relaxed);
    }

    /// Credits a command with the bytes of extents that it fetched. When they are everything, pages that are still
    /// missing were evicted again, and counting begins anew.
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
