//! Residency sampling: tests a few pages of a request in order to guess whether all of them are in memory. Each test of
//! a page is a system call.
//!
//! Boxes that are read one after the other often overlap, so that a part of a box was read with another one, e.g. the
//! first or last planes of a building block. Of two opposite corners of a box at least one lies outside any other box
//! that does not contain all of it, though two other boxes together may contain both. So the sample is the first page
//! of the first task, the last page of the last task, and of the task in the middle its first page, or all its pages if
//! the command is large.
//!
//! A test costs as much as a small read, so small reads skip it for a number of commands ([`ResidencyBackoff`]). The
//! caller passes the property to test. If every command prefetched its pages instead, whether or not they are missing,
//! warm rows of `bench run` would take longer: `2d small-blocks` 4.5 times, `3d+slabs planes-1` 8.1, `3d slabs-1` 1.13.
//!
//! Small cold reads all over a space may fetch the extents around them as well ([`SkiRental`]). A small read of pages
//! that are not in memory costs a disk one request for each of its parts. A program that makes many such reads would
//! have been faster by reading everything in order first; a program that makes few would not. Their number is not known
//! in advance, which is the ski-rental problem (Karlin, Manasse, Rudolph, Sleator 1988). Once the requests have cost as
//! much as reading the whole medium in order, each further one fetches the extents that it lies in, until as many bytes
//! were fetched as the medium has. That costs at most about twice the optimum, and reads of random boxes, as training
//! makes them, soon find everything in memory.
//!
//! Costs are counted as bytes that a disk could read in order in the same time ([`REQUEST_BYTES`]), and not measured:
//! the engine has no clock. Media that do not fit in memory are never read around
//! ([`crate::media::Media::fits_in_memory`]).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::flash::Run;
use crate::stl::index::BlockMap;
use crate::stl::plan::Task;
use crate::stl::read::{Reader, WorkerState};
use crate::stl::work::Work;

/// Largest number of commands that may skip the test of residency after a test that found its whole sample in memory.
const SKIPPED_MAX: u32 = 31;

/// Decides how many further commands may assume that a space's verified pages are in memory.
///
/// A test that finds its whole sample in memory lets commands skip the next tests, about twice as many as the test
/// before it; a test that misses a page lets none skip. Two threads may count two commands as one: the number is only a
/// guess.
#[derive(Debug, Default)]
pub struct ResidencyBackoff {
    left: AtomicU32,
    granted: AtomicU32,
}

impl ResidencyBackoff {
    /// Counts down the commands that may skip the test; returns whether this command is one of them.
    pub fn skip_probe(&self) -> bool {
        let left = self.left.load(Relaxed);
        if left > 0 {
            self.left.store(left - 1, Relaxed);
        }
        left > 0
    }

    /// Returns the number of commands that may still skip the test.
    pub fn left(&self) -> u32 {
        self.left.load(Relaxed)
    }

    /// Records the result of a test, `all_resident` if every sampled page was in memory, and sets the number of
    /// commands that may skip the next tests.
    pub fn probed(&self, all_resident: bool) {
        let granted = if all_resident { (self.granted.load(Relaxed) * 2 + 1).min(SKIPPED_MAX) } else { 0 };
        debug_assert!(granted <= SKIPPED_MAX, "{granted} commands");
        self.granted.store(granted, Relaxed);
        self.left.store(granted, Relaxed);
    }
}

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
        self.charged.load(Relaxed) >= all
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
        self.charged.fetch_add(ranges * REQUEST_BYTES + bytes * PAGES_FACTOR, Relaxed);
    }

    /// Counts bytes of extents that a command fetched. When they reach the size of the medium, pages that are still
    /// missing must have been evicted, and both counts begin again at 0.
    pub(super) fn credit(&self, bytes: u64, all: u64) {
        if self.fetched.fetch_add(bytes, Relaxed) + bytes >= all {
            self.charged.store(0, Relaxed);
            self.fetched.store(0, Relaxed);
        }
    }
}

impl<'a> Reader<'a> {
    /// Whether `holds` is true for at least one sampled page of a work; `closely` samples all pages of the task in the
    /// middle.
    pub(super) fn any_sampled_page(
        &self,
        work: &Work,
        closely: bool,
        state: &mut WorkerState<'a>,
        holds: &mut dyn FnMut(Run) -> bool,
    ) -> bool {
        let Some(end) = work.len().checked_sub(1) else { return false };
        // Both ends of a single task are sampled; if its first page is also its last, it is tested once.
        let first = self.page(work, 0, false, state);
        if first.is_some_and(&mut *holds) {
            return true;
        }
        let last = self.page(work, end, true, state).filter(|last| first.is_none_or(|first| first.ppa != last.ppa));
        if last.is_some_and(&mut *holds) {
            return true;
        }
        let middle = work.len() / 2;
        if closely {
            let task = work.task(middle);
            let map = state.cursor.get(self.inner.index(), &task.at);
            return map.is_some_and(|map| self.any_run(&task, map, state, holds));
        }
        middle != 0 && middle != end && self.page(work, middle, false, state).is_some_and(holds)
    }

    /// Returns the first (or, with `last`, the last) page that a task needs; `None` if its block has no pages.
    fn page(&self, work: &Work, index: u64, last: bool, state: &mut WorkerState<'a>) -> Option<Run> {
        let task = work.task(index);
        let map = state.cursor.get(self.inner.index(), &task.at)?;
        let span = task.span(self.space.shape.item_bytes);
        let unit = ((if last { span.end - 1 } else { span.start }) / self.space.shape.page) as u32;
        // Coded blocks have fewer pages than units; other blocks may have units without a page.
        let run = map.next_run(unit).or_else(|| map.runs().last())?;
        let unit = unit.clamp(run.unit, run.end() - 1);
        Some(Run { unit, count: 1, ppa: run.page_of(unit) })
    }

    /// Whether `holds` is true for at least one run of the pages that a task needs.
    fn any_run(
        &self,
        task: &Task<'_>,
        map: &BlockMap,
        state: &mut WorkerState<'a>,
        holds: &mut dyn FnMut(Run) -> bool,
    ) -> bool {
        if self.space.coded() {
            return map.runs().any(holds);
        }
        self.touched(task, &mut state.units);
        state.units.ranges().any(|wanted| {
            let of = |run: Run| {
                let (start, end) = (run.unit.max(wanted.start), run.end().min(wanted.end));
                (start < end).then(|| Run { unit: start, count: end - start, ppa: run.page_of(start) })
            };
            map.runs().filter_map(of).any(&mut *holds)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_skip_twice_as_many_probes_after_each_that_found_all_and_none_after_one_that_missed() {
        let backoff = ResidencyBackoff::default();
        let skipped = || std::iter::from_fn(|| backoff.skip_probe().then_some(())).count();
        assert_eq!(skipped(), 0, "nothing was probed yet");
        for expected in [1, 3, 7, 15, 31, 31] {
            backoff.probed(true);
            assert_eq!(skipped(), expected);
        }
        backoff.probed(true);
        backoff.probed(false);
        assert_eq!(skipped(), 0);
        backoff.probed(true);
        assert_eq!(skipped(), 1);
    }

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
