//! Small cold reads all over a space: when to read along what lies around them.
//!
//! A small read of what is not in memory costs a disk a request for each of its parts. Whoever makes many of them would
//! have done better to read everything in order; whoever makes few, not. How many will come nobody knows, so it is as
//! with skis that are rented or bought (Karlin, Manasse, Rudolph, Sleator 1988): once the requests have cost what
//! reading the whole medium in order costs, each further one brings the extents that it lies in, until as much was
//! brought as there is. That costs at most about twice what knowing would have cost, and lists of random boxes, as
//! training makes them, soon run from memory.
//!
//! Costs are counted in bytes that a disk brings in order meanwhile ([`REQUEST_BYTES`]), not measured: the engine has
//! no clock. Media that do not fit in memory are never read along ([`crate::media::Media::fits_in_memory`]).

use std::sync::atomic::{AtomicU64, Ordering};

/// A request of a small read, whose next one waits for it, takes as long as so many bytes in order: 130 µs at 2 GB/s.
const REQUEST_BYTES: u64 = 256 << 10;
/// Pages that come one by one take twice as long as extents (design note 7).
const PAGES_FACTOR: u64 = 2;
/// Commands of more tasks keep a disk busy by themselves.
pub(super) const TASKS_MOST: u64 = 16;

/// What the small cold reads of a space have cost so far.
#[derive(Debug, Default)]
pub struct Rent {
    /// Paid in requests, as bytes in order.
    paid: AtomicU64,
    /// Brought in extents since that was enough.
    bought: AtomicU64,
}

impl Rent {
    /// Whether reading along is worth it by now, where everything has `all` bytes.
    pub(super) fn is_paid(&self, all: u64) -> bool {
        self.paid.load(Ordering::Relaxed) >= all
    }

    /// The same at the beginning of a command: each brings the end nearer, also those that want what is here already.
    pub(super) fn goes_on(&self, all: u64) -> bool {
        let paid = self.is_paid(all);
        if paid {
            self.buy(REQUEST_BYTES, all);
        }
        paid
    }

    /// A command asked for so many ranges of pages.
    pub(super) fn pay(&self, ranges: u64, bytes: u64) {
        self.paid.fetch_add(ranges * REQUEST_BYTES + bytes * PAGES_FACTOR, Ordering::Relaxed);
    }

    /// A command brought so many bytes of extents; when it was everything, what is still missing was taken out again.
    pub(super) fn buy(&self, bytes: u64, all: u64) {
        if self.bought.fetch_add(bytes, Ordering::Relaxed) + bytes >= all {
            self.paid.store(0, Ordering::Relaxed);
            self.bought.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = 200 << 20;

    #[test]
    fn reading_along_begins_when_it_would_have_been_paid_and_ends_when_all_was_brought() {
        let rent = Rent::default();
        for round in 0..3 {
            let pays = (0..)
                .take_while(|_| {
                    !rent.is_paid(ALL) && {
                        rent.pay(2, 98 << 10);
                        true
                    }
                })
                .count();
            assert_eq!(pays, 290, "round {round}");
            let buys = (0..)
                .take_while(|_| {
                    rent.is_paid(ALL) && {
                        rent.buy(4 << 20, ALL);
                        true
                    }
                })
                .count();
            assert_eq!(buys, 50, "round {round}");
        }
        rent.pay(1000, 0);
        assert_eq!((0..).take_while(|_| rent.goes_on(ALL)).count(), 800, "nothing was missing");
    }
}
