//! First looks of large reads: pages are compared with their checksums a few at a time, just before they are copied.
//!
//! A large read puts together rows of neighbouring blocks ([`super::assemble`]): eight blocks of 256 KiB, say.
//! Comparing all of them first and copying them then moved every byte twice from a cache that is not the core's own,
//! with nothing written while pages were compared. So a task with pages that were not compared yet is cut along its
//! outermost loop into parts of a few pages, block by block. While one part is copied the lines of the next are asked
//! for, which is compared after that: two parts stay in the core's first cache (measured in docs/benchmarks.md, "First
//! looks").
//!
//! Nothing is compared less: every page that the task touches is, before anything of it is copied. Lists, single
//! elements, small reads and blocks in pieces are not cut.

use std::ops::Range;

use super::assemble::{Affine, parts};
use super::pieces::{self, Piece, Rows};
use super::plan::Task;
use super::read::{BufferMut, Kept, Reader};
use crate::error::Result;
use crate::flash::{Owner, Run};

/// Bytes of pages that are compared, and copied, at a time.
const PART_BYTES: usize = 16 << 10;
/// Longer rows are copied, and asked for, so many bytes at a time.
const STEP_BYTES: usize = 1 << 10;

/// The pages of a task, of which those before `next` were compared.
struct Pages<'a> {
    run: Run,
    bytes: &'a [u8],
    owner: Owner,
    next: u32,
}

impl<'a> Reader<'a> {
    /// Compares and copies a task of a large read, given its pages and where in them its first element is. `false`, and
    /// nothing is done, if its pages were compared before, lie apart or cannot be seen, or if its elements do not make
    /// rows.
    ///
    /// # Safety
    /// Every element of the task must be writable memory of `out`.
    pub(super) unsafe fn first_look(
        &self,
        task: &Task<'_>,
        part: Option<(Run, usize)>,
        kept: &mut Kept<'a>,
        out: BufferMut,
    ) -> Result<bool> {
        let new = part.filter(|(run, _)| !self.ftl.is_verified(run.ppa, run.count));
        let Some((run, skip)) = new else { return Ok(false) };
        let Some(bytes) = self.ftl.view(run.ppa, run.count) else { return Ok(false) };
        let rows = parts(&task.loops, task.row, self.space.shape.item_bytes, bytes[skip..].as_ptr());
        let Some((mut outer, mut piece)) = rows else { return Ok(false) };
        self.map_in(task, run, bytes, kept);
        let is_new = |units: Range<u32>| !self.ftl.is_verified(run.page_of(units.start), units.end - units.start);
        if !kept.units.ranges().any(is_new) {
            return Ok(false);
        }
        let mut pages = Pages { run, bytes, owner: self.space.owner(&task.at), next: run.unit };
        let page = self.space.shape.page;
        // SAFETY: the task's first element is one of the buffer's.
        let to = unsafe { out.at(task.in_buffer) };
        // The task, or a row that is all of it, in steps that reach so far and lie so far apart.
        let (n, apart, apart_to, reach) = match outer.first() {
            Some(l) => (l.n, l.from, l.to, reach(&outer[1..]) + piece.reach()),
            None if piece.items == 1 => (piece.bytes, 1, 1, 1),
            None => (1, 0, 0, piece.reach()),
        };
        let together = (PART_BYTES / (apart as usize).min(reach.next_multiple_of(page)).max(1)).max(1);
        for start in (0..n).step_by(together) {
            let steps = together.min(n - start);
            self.compare(task, &mut pages, task.in_block + (start + steps - 1) * apart as usize + reach, kept)?;
            match outer.first_mut() {
                Some(l) => l.n = steps,
                None if piece.items == 1 => piece.bytes = steps,
                None => {}
            }
            let (from, to) =
                (piece.from.wrapping_offset(start as isize * apart), to.wrapping_offset(start as isize * apart_to));
            // SAFETY: the part's elements are the task's; its pages were compared.
            unsafe { copy(&outer, &piece, from, to, together as isize * apart) };
        }
        Ok(true)
    }

    /// Maps the pages of a task that will be compared soon, if they were not yet.
    pub(super) fn coming_look(&self, task: &Task<'_>, kept: &mut Kept<'a>) {
        let map = self.map(&task.at, kept);
        if let Some((run, _)) = self.part(task, map).filter(|(run, _)| !self.ftl.is_verified(run.ppa, run.count)) {
            if let Some(bytes) = self.ftl.view(run.ppa, run.count) {
                self.map_in(task, run, bytes, kept);
            }
        }
    }

    /// Maps the pages that a task touches; they are in `kept.units` then.
    fn map_in(&self, task: &Task<'_>, run: Run, bytes: &[u8], kept: &mut Kept<'a>) {
        let page = self.space.shape.page;
        self.touched(task, &mut kept.units);
        for units in kept.units.ranges() {
            let place = |unit: u32| (unit - run.unit) as usize * page;
            crate::ftl::map_in(&bytes[place(units.start)..place(units.end)]);
        }
    }

    /// Compares the pages that the task touches before the byte `end` of the block.
    fn compare(&self, task: &Task<'_>, pages: &mut Pages<'a>, end: usize, kept: &Kept<'a>) -> Result<()> {
        let page = self.space.shape.page;
        let end = end.div_ceil(page) as u32;
        while let Some(units) = kept.units.range(pages.next..end) {
            let some = Run { unit: units.start, count: units.end - units.start, ppa: pages.run.page_of(units.start) };
            let bytes = &pages.bytes[(units.start - pages.run.unit) as usize * page..][..some.count as usize * page];
            let owner = Owner { unit: units.start as u16, ..pages.owner };
            self.ftl.verify(some, owner, bytes).map_err(|e| self.bad(&task.at, e))?;
            pages.next = units.end;
        }
        Ok(())
    }
}

/// From the first to the last offset along these loops.
fn reach(loops: &[Affine]) -> usize {
    loops.iter().map(|l| (l.n - 1) * l.from as usize).sum()
}

/// Copies rows along the loops around them, and asks for the lines of rows `ahead` bytes further on.
///
/// # Safety
/// Every row must be readable in the block and writable at its place.
unsafe fn copy(outer: &[Affine], piece: &Piece, from: *const u8, to: *mut u8, ahead: isize) {
    let ask = from.wrapping_offset(ahead);
    let long = piece.items == 1 && piece.bytes > STEP_BYTES;
    // SAFETY: the caller's promise.
    unsafe {
        match outer {
            [] if long => {
                let (n, step) = (piece.bytes / STEP_BYTES, STEP_BYTES as isize);
                let rows = Rows { n, from, from_step: step, to, to_step: step, ask, ask_step: step };
                pieces::copy(&rows, &Piece { bytes: STEP_BYTES, ..*piece });
                let done = n * STEP_BYTES;
                let rows = Rows { n: 1, from: from.wrapping_add(done), to: to.wrapping_add(done), ..rows };
                pieces::copy(&rows, &Piece { bytes: piece.bytes - done, ..*piece });
            }
            [] => {
                pieces::copy(&Rows { n: 1, from, from_step: 0, to, to_step: 0, ask, ask_step: 0 }, piece);
            }
            &[Affine { n, from: from_step, to: to_step }] if !long => {
                pieces::copy(&Rows { n, from, from_step, to, to_step, ask, ask_step: from_step }, piece);
            }
            [step, rest @ ..] => {
                for i in 0..step.n as isize {
                    copy(rest, piece, from.wrapping_offset(i * step.from), to.wrapping_offset(i * step.to), ahead);
                }
            }
        }
    }
}
