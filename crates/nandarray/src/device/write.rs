//! A write's work on a space, or fill in place of a block's elements: staged first, which may fail.

use super::Device;
use crate::error::Result;
use crate::stl::plan::{BlockAt, Plan, Selection};
use crate::stl::space::Space;
use crate::stl::work::Work;
use crate::stl::write::{Source, Staged, Successor, Writer};

/// Returns an upper bound of the number of pages that staging this work appends.
pub(super) fn pages_needed(space: &Space, work: &Work) -> u64 {
    let shape = &space.shape;
    // Several tasks may touch one block, which is composed once.
    let around = work.bounds(shape.block.len());
    let blocks = around.iter().fold(1u64, |n, (first, last)| n.saturating_mul(last - first + 1)).min(work.len());
    if space.coded() {
        return blocks * space.coded_pages_max();
    }
    let most = blocks * u64::from(shape.units);
    if work.len() > 1 << 16 {
        return most;
    }
    let of = |i| {
        let span = work.task(i).span(shape.item_bytes);
        (span.end.div_ceil(shape.page) - span.start / shape.page) as u64
    };
    (0..work.len()).map(of).sum::<u64>().min(most)
}

impl Device {
    /// Stages and applies work of `bytes` bytes on a space of this shape; the caller holds the range lock. `successive`
    /// is set if the write continues a series of adjacent writes; `grow` is a new shape that is applied with the work.
    pub(super) fn write_work(
        &self,
        space: &Space,
        shape: &[u64],
        work: &Work,
        (bytes, successive): (u64, Option<Successor>),
        source: Source,
        grow: Option<&[u64]>,
    ) -> Result<()> {
        if space.coded() {
            space.codec()?;
        }
        let pages = pages_needed(space, work);
        // Access units that the write buffer has no room for would be written out before they are complete.
        let fits = pages.saturating_mul(space.shape.page as u64) <= self.write_buffer_bytes as u64;
        let successive = successive.filter(|_| fits);
        let writer =
            Writer { ftl: &self.ftl, space, seq: self.next_seq(), extent: shape, bytes, over: None, successive };
        // SAFETY: a `Source` buffer is made by the promise that it covers its command's target.
        let staged = self.stage_in(pages, &mut || unsafe { writer.stage(&self.workers, work, source) })?;
        self.apply(space, staged, grow)
    }

    /// Stages the fill value over the part of a block that lies in the box from `start` to `ends` (exclusive).
    pub(super) fn stage_fill(
        &self,
        space: &Space,
        shape: &[u64],
        (start, ends): (&[u64], &[u64]),
        at: &BlockAt,
        seq: u64,
    ) -> Result<Vec<Staged>> {
        let item = space.shape.item_bytes as u64;
        let valid = space.valid(shape, at);
        let (mut from, mut count) = (Vec::new(), Vec::new());
        for i in 0..shape.len() {
            let first = at[i] * space.shape.block[i];
            let (low, end) = (first.max(start[i]), (first + valid[i]).min(ends[i]));
            assert!(low < end, "block {at:?} meets the box {start:?} to {ends:?}");
            from.push(low);
            count.push(end - low);
        }
        let work = Work::plans(vec![Plan::new(&Selection::contiguous(&from, &count, item), &space.shape.block, item)]);
        let bytes = count.iter().product::<u64>() * item;
        let writer = Writer { ftl: &self.ftl, space, seq, extent: shape, bytes, over: None, successive: None };
        // A block that becomes fill as a whole frees pages, so it needs no reservation even in a full store.
        let whole = count.as_slice() == valid.as_slice();
        // SAFETY: a source of fill has no buffer to read.
        let mut stage = || unsafe { writer.stage(&self.workers, &work, Source::FILL) };
        if whole { stage() } else { self.stage_in(pages_needed(space, &work), &mut stage) }
    }
}
