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
//! caller passes the property to test.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

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
}
