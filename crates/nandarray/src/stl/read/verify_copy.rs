//! Large reads of pages that were never verified: a few pages at a time are verified just before they are copied.
//!
//! A large read assembles rows of neighbouring blocks ([`crate::stl::copy::assemble`]), for example eight blocks of 256
//! KiB. Verifying all of them before copying would load every byte twice from a cache that is not the core's own, and
//! would leave the memory's write bandwidth idle during verification. So a task with unverified pages is cut along its
//! outermost loop into parts of a few pages, block by block. While one part is copied, the lines of the next are
//! prefetched, which is then verified: two parts stay in the core's first-level cache. Without it, rows of `bench run`
//! from a store that was just opened take longer: `2d row-bands` 1.29 times, `column-bands` 1.23, `3d slabs-0` 1.10.
//!
//! Every page that the task touches is still verified before anything of it is copied. Lists, single elements, small
//! reads and blocks with scattered pages are not cut.

use std::ops::Range;

use super::locate::Mapped;
use super::{BufferMut, Reader, WorkerState};
use crate::error::Result;
use crate::stl::copy::assemble::{RowLoop, split_row};
use crate::stl::copy::rows::{self, RowPiece, Rows};
use crate::stl::plan::Task;
use crate::stl::units::UnitSet;

/// Number of bytes of pages that are verified and copied at a time.
const PART_BYTES: usize = 16 << 10;
/// Length in bytes above which a row is copied and prefetched in steps of this length.
const STEP_BYTES: usize = 1 << 10;

impl<'a> Reader<'a> {
    /// Verifies and copies a task of a large read, part by part. Does nothing and returns `false` if the pages that it
    /// touches were verified before, or if its elements do not form contiguous rows of the destination.
    ///
    /// # Safety
    /// Every element of the task must be writable memory of `out`.
    pub(super) unsafe fn verify_copy(
        &self,
        task: &Task<'_>,
        mapped: &Mapped<'a>,
        units: &mut UnitSet,
        out: BufferMut,
    ) -> Result<bool> {
        let page = self.space.shape.page;
        let first = mapped.at(task.in_block, page);
        let Some((mut outer, mut piece)) = split_row(&task.loops, task.row, self.space.shape.item_bytes, first) else {
            return Ok(false);
        };
        self.fault_in(task, mapped, units);
        let is_new = |units: Range<u32>| !self.is_verified(mapped.part(units).run);
        if !units.ranges().any(is_new) {
            return Ok(false);
        }
        // SAFETY: the task's first element is one of the buffer's.
        let to = unsafe { out.at(task.in_buffer) };
        // The task, or its single row, is `n` steps that are `apart` bytes apart in the block and take `reach` bytes
        // each.
        let (n, apart, apart_to, reach) = match outer.first() {
            Some(l) => (l.n, l.from, l.to, reach(&outer[1..]) + piece.reach()),
            None if piece.items == 1 => (piece.bytes, 1, 1, 1),
            None => (1, 0, 0, piece.reach()),
        };
        let together = (PART_BYTES / (apart as usize).min(reach.next_multiple_of(page)).max(1)).max(1);
        // Pages before this one were verified.
        let mut next = mapped.run.unit;
        for start in (0..n).step_by(together) {
            let steps = together.min(n - start);
            let end = (task.in_block + (start + steps - 1) * apart as usize + reach).div_ceil(page) as u32;
            while let Some(units) = units.range(next..end) {
                next = units.end;
                self.verify(&task.at, &mapped.part(units))?;
            }
            match outer.first_mut() {
                Some(l) => l.n = steps,
                None if piece.items == 1 => piece.bytes = steps,
                None => {}
            }
            let (from, to) =
                (piece.from.wrapping_offset(start as isize * apart), to.wrapping_offset(start as isize * apart_to));
            // SAFETY: the part's elements are the task's; its pages were verified.
            unsafe { copy(&outer, &piece, from, to, together as isize * apart) };
        }
        debug_assert!(units.range(next..mapped.run.end()).is_none(), "pages from {next} on were not compared");
        Ok(true)
    }

    /// Makes the kernel map the pages of the next task into memory if these are still to be verified.
    pub(super) fn fault_in_next(&self, task: &Task<'_>, state: &mut WorkerState<'a>) {
        let content = self.content(&task.at, &mut state.cursor);
        let mapped = self.mapped(&content, &self.span(task));
        if let Some(mapped) = mapped.filter(|mapped| !self.is_verified(mapped.run)) {
            self.fault_in(task, &mapped, &mut state.units);
        }
    }

    /// Sets `units` to the units that a task touches, and makes the kernel map their pages into memory.
    fn fault_in(&self, task: &Task<'_>, mapped: &Mapped<'_>, units: &mut UnitSet) {
        self.touched(task, units);
        units.ranges().for_each(|units| crate::ftl::map_in(mapped.part(units).bytes));
    }
}

/// Returns the number of bytes from the first to the last offset along these loops in the block.
fn reach(loops: &[RowLoop]) -> usize {
    loops.iter().map(|l| (l.n - 1) * l.from as usize).sum()
}

/// Copies rows along the loops around them, and prefetches the lines of rows `ahead` bytes further in the block.
///
/// # Safety
/// Every row must be readable in the block and writable at its place.
unsafe fn copy(outer: &[RowLoop], piece: &RowPiece, from: *const u8, to: *mut u8, ahead: isize) {
    let next = from.wrapping_offset(ahead);
    let long = piece.items == 1 && piece.bytes > STEP_BYTES;
    // SAFETY: the caller's promise.
    unsafe {
        match outer {
            [] if long => {
                let (n, step) = (piece.bytes / STEP_BYTES, STEP_BYTES as isize);
                let rows = Rows { n, from, from_step: step, to, to_step: step, next, next_step: step };
                rows::copy(&rows, &RowPiece { bytes: STEP_BYTES, ..*piece });
                let done = n * STEP_BYTES;
                let rows = Rows { n: 1, from: from.wrapping_add(done), to: to.wrapping_add(done), ..rows };
                rows::copy(&rows, &RowPiece { bytes: piece.bytes - done, ..*piece });
            }
            [] => {
                rows::copy(&Rows { n: 1, from, from_step: 0, to, to_step: 0, next, next_step: 0 }, piece);
            }
            &[RowLoop { n, from: from_step, to: to_step }] if !long => {
                rows::copy(&Rows { n, from, from_step, to, to_step, next, next_step: from_step }, piece);
            }
            [step, rest @ ..] => {
                for i in 0..step.n as isize {
                    copy(rest, piece, from.wrapping_offset(i * step.from), to.wrapping_offset(i * step.to), ahead);
                }
            }
        }
    }
}
