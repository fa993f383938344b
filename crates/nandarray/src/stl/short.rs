//! Reads below 4 MiB: block by block, while the lines of the next few blocks are on their way.
//!
//! Such a read is a kilobyte or less of each of many blocks, so that finding the blocks costs as much as copying. Tasks
//! come from a [`Walk`], the way through the index is kept between neighbours, and loops are merged only where they
//! differ from those of the task before. What was not compared with its checksum before, or does not lie in one run of
//! pages, is left to the tasks of `read`.
//!
//! `small` comes first and takes what needs no plan; here is what it does not take: lists of indices, what it has no
//! trust in at the moment, and boxes that move more than 256 KiB. Without it (task by task as large reads are; the two
//! ways by turns in one process) took 1.26 to 1.29 times as long: lists along two axes; 1.12 to 1.16: planes `[i, :, :,
//! j]`, steps of a 3-D plane, 128 x 128 elements half a block apart, boxes of views; 1.04 to 1.08: lists along one
//! axis. Nothing is gained in single columns, 1000 x 1000 and 300 x 300 elements, and planes along the last axes.

use std::ops::Range;

use smallvec::SmallVec;

use super::ahead::Ahead;
use super::copy::{Loop, copy, merge};
use super::fragments::Pieces;
use super::index::BlockMap;
use super::plan::Plan;
use super::read::{BufferMut, Kept, Reader};
use super::stream::{self, LINE};
use super::walk::Walk;
use crate::error::Result;

/// Tasks whose lines are asked for before the first of them is copied.
const ASKED_TASKS: usize = 3;

/// The most lines of a task that are asked for at once: about as many as a core can have on their way.
const ASKED_LINES: usize = 32;

/// What tasks of equal loops have in common.
#[derive(Clone, Debug, Default)]
struct Shape<'p> {
    /// Merged: `loops[..left]` around `run` bytes.
    loops: SmallVec<[Loop<'p>; 6]>,
    left: usize,
    run: usize,
    /// What is asked for: bytes that lie side by side, or nearly; how many of these, and from one to the next.
    bytes: usize,
    rows: usize,
    step: isize,
}

impl<'p> Shape<'p> {
    fn new(mut loops: SmallVec<[Loop<'p>; 6]>, item_bytes: usize) -> Self {
        let (mut bytes, mut rows, mut step) = (item_bytes, 1, 0);
        for l in loops.iter().rev() {
            match *l {
                Loop::Affine { n: 1, .. } => {}
                Loop::Affine { n, from, .. } if rows == 1 && from as usize <= bytes + LINE => {
                    bytes += (n - 1) * from as usize
                }
                Loop::Affine { n, from, .. } if rows == 1 => (rows, step) = (n, from),
                _ => break,
            }
        }
        // Single elements at strides: the processor itself has as many on their way. Asked for, they would meet in a
        // few sets of its first cache.
        if bytes <= LINE && rows > ASKED_LINES {
            rows = 0;
        }
        bytes = bytes.min(ASKED_LINES * LINE);
        rows = rows.min((ASKED_LINES * LINE / bytes).max(1));
        let (left, run) = merge(&mut loops, item_bytes);
        Self { loops, left, run, bytes, rows, step }
    }

    /// Asks the processor for the first lines.
    #[inline]
    fn ask(&self, from: *const u8) {
        if let [Loop::Table(pairs), ..] = self.loops[..self.left] {
            pairs.iter().take(ASKED_LINES).for_each(|&(at, _)| stream::ask(from.wrapping_offset(at)));
            return;
        }
        for row in 0..self.rows as isize {
            let first = from.wrapping_offset(row * self.step);
            (0..self.bytes).step_by(LINE).for_each(|at| stream::ask(first.wrapping_add(at)));
            if !self.bytes.is_multiple_of(LINE) {
                // It may begin in the middle of a line.
                stream::ask(first.wrapping_add(self.bytes - 1));
            }
        }
    }
}

/// Tasks whose lines are on their way from memory while others are copied: a row of a block lies in a page of its own,
/// where the processor's own guess begins anew.
pub(super) struct Asked<'p> {
    item_bytes: usize,
    /// One more than tasks wait: the shape at hand is none of a task that waits, unless it is its own.
    shapes: [Shape<'p>; ASKED_TASKS + 1],
    shape: usize,
    tasks: [(usize, *const u8, *mut u8); ASKED_TASKS],
    seen: usize,
}

impl<'p> Asked<'p> {
    pub(super) fn new(item_bytes: usize) -> Self {
        let nothing = (0, std::ptr::null(), std::ptr::null_mut());
        Self { item_bytes, shapes: Default::default(), shape: 0, tasks: [nothing; ASKED_TASKS], seen: 0 }
    }

    /// The tasks that come have these loops. Every shape must be some task's.
    fn turn(&mut self, loops: SmallVec<[Loop<'p>; 6]>) {
        self.shape = (self.shape + 1) % self.shapes.len();
        self.shapes[self.shape] = Shape::new(loops, self.item_bytes);
    }

    /// Asks for a task's lines, and copies the task that was asked for a few tasks ago.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable along the task's loops until [`Self::finish`].
    #[inline]
    unsafe fn add(&mut self, from: *const u8, to: *mut u8) {
        self.shapes[self.shape].ask(from);
        let place = self.seen % ASKED_TASKS;
        if self.seen >= ASKED_TASKS {
            // SAFETY: the promise of the call that added it.
            unsafe { self.copy(place) };
        }
        self.tasks[place] = (self.shape, from, to);
        self.seen += 1;
    }

    /// # Safety
    /// The promises of [`Self::add`]; the place must have a task.
    unsafe fn copy(&self, place: usize) {
        let (shape, from, to) = self.tasks[place];
        let Shape { loops, left, run, .. } = &self.shapes[shape];
        // SAFETY: the promise of the call that added it.
        unsafe { copy(&loops[..*left], *run, from, to) };
    }

    /// Copies what is left, in order.
    ///
    /// # Safety
    /// The promises of [`Self::add`].
    pub(super) unsafe fn finish(&mut self) {
        for i in self.seen.saturating_sub(ASKED_TASKS)..self.seen {
            // SAFETY: the promise of the call that added it.
            unsafe { self.copy(i % ASKED_TASKS) };
        }
        self.seen = 0;
    }
}

impl<'a> Reader<'a> {
    /// Reads tasks of a plan; `before` is how many tasks of the command come before the plan's.
    ///
    /// # Safety
    /// The tasks' elements in the buffer must be writable until [`Asked::finish`].
    pub(super) unsafe fn read_short<'p>(
        &self,
        (plan, before): (&'p Plan, u64),
        tasks: Range<u64>,
        ahead: &Ahead<'a, '_>,
        kept: &mut Kept<'a>,
        out: BufferMut,
        asked: &mut Asked<'p>,
    ) -> Result<()> {
        let mut walk = Walk::new(plan, tasks.start);
        // Whether the shape at hand is not the walk's.
        let mut turned = true;
        for index in tasks {
            ahead.advance(before + index, kept);
            turned |= walk.turned;
            let map = self.map(&walk.at, kept);
            // SAFETY: the caller's promise about the buffer covers the task's elements.
            unsafe {
                let to = out.at(walk.in_buffer);
                if let Some(from) = map.and_then(|map| self.seen(&walk, map)) {
                    if turned {
                        asked.turn(walk.loops());
                        turned = false;
                    }
                    asked.add(from, to);
                } else {
                    let task = plan.task(index);
                    if let Some(from) = self.place(&task, map, kept)? {
                        asked.turn(task.loops);
                        turned = true;
                        asked.add(from, to);
                    } else {
                        self.read_block(&task, map, kept, to, &mut Pieces::default())?;
                    }
                }
            }
            walk.step();
        }
        Ok(())
    }

    /// Where a task's first element lies, if the medium shows all that the task touches in one run of pages, every one
    /// of which was verified before.
    #[inline]
    fn seen(&self, walk: &Walk<'_>, map: &BlockMap) -> Option<*const u8> {
        if self.space.coded() || self.gathered(&walk.at).is_some() {
            return None;
        }
        let (page, item) = (self.space.shape.page, self.space.shape.item_bytes);
        // Offsets of a table count from the block's start, which must lie within the slice then.
        let first = (walk.in_block / page) as u32;
        let end = (walk.in_block + walk.reach.1 + item).div_ceil(page) as u32;
        let ppa = map.covering(first..end)?.page_of(first);
        if !self.ftl.is_verified(ppa, end - first) {
            return None;
        }
        let bytes = self.ftl.view(ppa, end - first)?;
        Some(bytes[walk.in_block - first as usize * page..].as_ptr())
    }
}
