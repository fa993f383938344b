//! Small reads in place: the three stages of a read without a list of work, on the calling thread.
//!
//! A read of a few elements takes about a microsecond, most of which would be spent on allocating lists, on testing
//! whether pages are in memory and on distributing work. This short path handles only the common case: a box of a plain
//! space, or of a view of it, where each block lies in one run of memory-mapped and verified pages, and nothing is
//! buffered. Otherwise the general path ([`Reader::read`]) reads everything from the beginning.
//!
//! The general path also prefetches pages that are not in memory. Testing for them takes system calls, as long as a
//! small read; so verified pages are assumed to be in memory for a number of commands after each such test
//! ([`ResidencyBackoff`](crate::stl::prefetch::residency::ResidencyBackoff)).
//!
//! Without this path, rows of `bench run` take longer: `2d element` 1.25 times, `2d rows` 1.43, `2d small-blocks` 1.34,
//! `4d planes-01` 1.53; of `bench micro`, boxes of views 1.45 to 1.9. Without the exception for short reads of one
//! block ([`PROBED_BYTES_MIN`]), `2d element` takes 1.26 times. Above its limit nothing is gained.

use smallvec::SmallVec;

use super::mover::PieceRing;
use super::walk::BlockWalk;
use super::{BufferMut, Reader};
use crate::stl::copy::stream::LINE;
use crate::stl::index::Cursor;
use crate::stl::plan::{Plan, StridedBox};
use crate::stl::translate::translate;

/// Largest cost of a small read, in bytes as estimated by `Reader::cost`: too little to wake a second thread for.
pub(super) const COST_MAX: u64 = 256 << 10;

/// Number of bytes below which a read of a single block is not tested for residency, as its first access shows whether
/// the page is resident.
const PROBED_BYTES_MIN: u64 = 4096;

/// Estimates the bytes that a box moves through a core: an element without neighbours costs a cache line.
fn cost(wanted: &StridedBox<'_>, item_bytes: u64) -> u64 {
    let (Some(&step), Some(&count)) = (wanted.step.last(), wanted.count.last()) else { return item_bytes };
    let apart = if step == 1 { item_bytes } else { step.saturating_mul(item_bytes).min(item_bytes.max(LINE as u64)) };
    let rows = wanted.count.iter().rev().skip(1).fold(1u64, |n, c| n.saturating_mul(*c));
    rows.saturating_mul(count.saturating_mul(apart).max(LINE as u64))
}

impl<'a> Reader<'a> {
    /// Reads boxes of one size of a view, or of the space itself if `view` is its shape, if they are small and lie in
    /// mapped and verified pages. `starts` has their first coordinates, and successive boxes lie `stride` bytes apart
    /// in the buffer; all lie within the view. Returns `false` otherwise, also if the shape is not a view of the space;
    /// some elements may have been read then.
    ///
    /// # Safety
    /// Every element that the boxes reach in the buffer must be writable memory that nothing else uses meanwhile.
    pub unsafe fn small(
        &self,
        view: &[u64],
        one: &StridedBox<'_>,
        starts: &[u64],
        stride: isize,
        out: BufferMut,
    ) -> bool {
        let (shape, item_bytes) = (&self.space.shape, self.space.shape.item_bytes as u64);
        let boxes = (starts.len() / view.len()) as u64;
        if !self.is_plain() || cost(one, item_bytes).saturating_mul(boxes) > COST_MAX {
            return false;
        }
        let own = view == self.inner.record.shape.as_slice();
        let mut plans: SmallVec<[Plan; 1]> = SmallVec::new();
        for (i, start) in starts.chunks_exact(view.len()).enumerate() {
            let (wanted, offset) = (StridedBox { start, ..*one }, i as isize * stride);
            if own {
                plans.push(Plan::of_box(&wanted, &shape.block, &shape.strides, offset));
                continue;
            }
            let translated = translate(&self.inner.record.shape, view, &wanted, &mut |mut selection| {
                selection.offset += offset;
                plans.push(Plan::new(&selection, &shape.block, item_bytes));
                Ok(())
            });
            if translated.is_err() {
                return false;
            }
        }
        let one_block = matches!(&plans[..], [plan] if plan.tasks() == 1);
        let unprobed = one_block && boxes * one.count.iter().product::<u64>() * item_bytes < PROBED_BYTES_MIN;
        if !unprobed && !self.space.access.residency.skip_probe() {
            return false;
        }
        let (mut cursor, mut ring) = (Cursor::default(), PieceRing::new(shape.item_bytes));
        // SAFETY: the caller's promise.
        let all = plans.iter().all(|plan| unsafe { self.push_in_place(plan, &mut cursor, &mut ring, out) });
        if all {
            // SAFETY: as above; the blocks' pages stay mapped while the space is locked.
            unsafe { ring.finish() };
        }
        all
    }

    /// Whether the space's blocks are stored as they are, without a codec, and there is no probe that has to learn of
    /// each move.
    pub(super) fn is_plain(&self) -> bool {
        !self.space.coded() && self.ftl.probe().is_none()
    }

    /// Adds the pieces of a plan to the ring, which copies them when it is full or finished; `false` if a block is not
    /// in place and verified.
    ///
    /// # Safety
    /// As for [`Self::small`], until the ring has finished.
    #[inline]
    unsafe fn push_in_place<'p>(
        &self,
        plan: &'p Plan,
        cursor: &mut Cursor<'a>,
        ring: &mut PieceRing<'p>,
        out: BufferMut,
    ) -> bool {
        if plan.tasks() == 0 {
            return true;
        }
        let (item, page) = (self.space.shape.item_bytes, self.space.shape.page);
        let mut walk = BlockWalk::new(plan, 0);
        for _ in 0..plan.tasks() {
            let content = self.content(&walk.at, cursor);
            let mapped = self.mapped(&content, &walk.span(item));
            let Some(mapped) = mapped.filter(|mapped| self.is_verified(mapped.run)) else { return false };
            let from = mapped.at(walk.in_block, page);
            // SAFETY: the block's pages stay mapped while the space is locked; its elements are the plan's.
            unsafe {
                let to = out.at(walk.in_buffer);
                if walk.loops_changed {
                    ring.set_loops(walk.loops());
                }
                ring.push(from, to);
            }
            walk.step();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_element_alone_costs_a_line() {
        let cost =
            |count: &[u64], step| cost(&StridedBox { start: &[0; 2], step: &[1, step], count, strides: &[0; 2] }, 4);
        assert_eq!(cost(&[1, 1], 1), 64);
        assert_eq!(cost(&[1, 16_384], 1), 65_536);
        assert_eq!(cost(&[1, 16_384], 2), 131_072);
        assert_eq!(cost(&[1, 16_384], 1000), 1 << 20);
        assert_eq!(cost(&[16_384, 1], 1), 1 << 20);
        assert_eq!(cost(&[u64::MAX, 2], 1), u64::MAX);
    }
}
