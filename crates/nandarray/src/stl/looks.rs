//! Looks: a few pages that stand for all that a work wants, for the question whether they are in memory. A look is a
//! system call.
//!
//! Boxes that are read one after the other overlap, so that a part of what a box wants was read with another: of a
//! building block its first planes, say, or its last ones. Of opposite corners of a box one lies outside every other
//! box that does not hold all of it; two others together may have both. So these are looked at: the first page of the
//! first task, the last one of the last task, and of the task in the middle its first page, or all of its pages where
//! the command is large.
//!
//! Nothing is decided here: who asks (`ahead`) says what a look is.

use super::index::BlockMap;
use super::plan::Task;
use super::read::{Kept, Reader};
use super::work::Work;
use crate::flash::Run;

impl<'a> Reader<'a> {
    /// Whether something holds for some of the pages that stand for a work; `closely` looks at all of the task in the
    /// middle.
    pub(super) fn holds_somewhere(
        &self,
        work: &Work,
        closely: bool,
        kept: &mut Kept<'a>,
        holds: &mut dyn FnMut(Run) -> bool,
    ) -> bool {
        let Some(end) = work.len().checked_sub(1) else { return false };
        // A single task is asked for both of its ends; its first page comes once where that is its last.
        let first = self.page(work, 0, false, kept);
        if first.is_some_and(&mut *holds) {
            return true;
        }
        let last = self.page(work, end, true, kept).filter(|last| first.is_none_or(|first| first.ppa != last.ppa));
        if last.is_some_and(&mut *holds) {
            return true;
        }
        let middle = work.len() / 2;
        if closely {
            let task = work.task(middle);
            return self.map(&task.at, kept).is_some_and(|map| self.runs(&task, map, kept, holds));
        }
        middle != 0 && middle != end && self.page(work, middle, false, kept).is_some_and(holds)
    }

    /// The first or the last page that a task wants, if its block has any.
    fn page(&self, work: &Work, index: u64, last: bool, kept: &mut Kept<'a>) -> Option<Run> {
        let task = work.task(index);
        let map = self.map(&task.at, kept)?;
        let span = task.span(self.space.shape.item_bytes);
        let unit = ((if last { span.end - 1 } else { span.start }) / self.space.shape.page) as u32;
        // Coded blocks have fewer pages, others holes.
        let run = map.next_run(unit).or_else(|| map.runs().last())?;
        let unit = unit.clamp(run.unit, run.end() - 1);
        Some(Run { unit, count: 1, ppa: run.page_of(unit) })
    }

    /// Whether it holds for some run of the pages that a task wants.
    fn runs(&self, task: &Task<'_>, map: &BlockMap, kept: &mut Kept<'a>, holds: &mut dyn FnMut(Run) -> bool) -> bool {
        if self.space.coded() {
            return map.runs().any(holds);
        }
        self.touched(task, &mut kept.units);
        kept.units.ranges().any(|wanted| {
            let of = |run: Run| {
                let (start, end) = (run.unit.max(wanted.start), run.end().min(wanted.end));
                (start < end).then(|| Run { unit: start, count: end - start, ppa: run.page_of(start) })
            };
            map.runs().filter_map(of).any(&mut *holds)
        })
    }
}
