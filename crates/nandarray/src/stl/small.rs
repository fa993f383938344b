//! Small reads whose building blocks lie in place: from the box to the buffer without a plan, and without allocating.
//!
//! A read of a few elements is a matter of a microsecond, most of which would go into lists of blocks, loops and units.
//! Here the blocks of a box are walked in order; each is looked up, and copied when those after it are asked for. This
//! way is taken only where nothing is unusual: a box of a plain space, or of a view of it, every block in one run of
//! pages that the medium shows and that were verified before, nothing gathering. Whatever else there is, the general
//! way (`read`) reads from the start.
//!
//! The general way also asks for what is not in memory. To ask whether it is costs system calls, as much as a small
//! read; so pages that were compared once are trusted to be in memory for a number of commands after each look
//! ([`Trust`]).
//!
//! It stands beside `short`, which reads block by block, too, because it needs no plan. Without it (reads of one block
//! still by it, the two ways by turns in one process) took 1.9 times as long: 100 x 100 elements; 1.5 to 2: single
//! rows; 3.6 to 4: rows within a few blocks; 1.7 to 2.4: steps; 1.7 to 2.7: sub-blocks of views. Above its limit
//! nothing is gained.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use smallvec::SmallVec;

use super::copy::{Loop, copy, merge};
use super::index::Cursor;
use super::plan::{Axis, BlockAt};
use super::read::{BufferMut, Reader};
use super::stream::{self, LINE};
use super::translate::{ViewBox, translate};

/// The most dimensions.
const DIMENSIONS: usize = 6;

/// The most bytes that a core moves here, by the measure of `Reader::cost`: less than a second thread is woken for.
pub(super) const MOST_BYTES: u64 = 256 << 10;

/// A single block of fewer bytes meets its own page soon enough, and is not looked for in memory.
const LOOKED_FOR_BYTES: u64 = 4096;

/// Blocks whose pages are asked for before the first of them is copied: the processor walks page tables for many at
/// once if they are asked for one right after the other.
const TOGETHER: usize = 32;

/// What the processor's address cache knows together.
const PAGE: usize = 4096;

/// Pages of a block that are asked for at most.
const PAGES_ASKED: usize = 32;

/// How many blocks before its turn the lines of a block's row are asked for, and how many bytes of them.
const AHEAD: usize = 2;
const ROW_ASKED: usize = 2048;

/// The most commands after a look that found everything in memory, before the next look.
const TRUSTED_MOST: u32 = 31;

/// For how many more commands a space's verified pages are taken to be in memory.
///
/// A look that finds all it looks at trusts twice as many commands as the one before; one that misses something trusts
/// none. Two threads may count one command as one: what is counted is a guess anyway.
#[derive(Debug, Default)]
pub struct Trust {
    left: AtomicU32,
    given: AtomicU32,
}

impl Trust {
    /// Whether this command may do without a look.
    pub fn take(&self) -> bool {
        let left = self.left.load(Relaxed);
        if left > 0 {
            self.left.store(left - 1, Relaxed);
        }
        left > 0
    }

    /// For how many commands it lasts.
    pub fn left(&self) -> u32 {
        self.left.load(Relaxed)
    }

    /// Takes note of a look.
    pub fn looked(&self, all_in_memory: bool) {
        let given = if all_in_memory { (self.given.load(Relaxed) * 2 + 1).min(TRUSTED_MOST) } else { 0 };
        self.given.store(given, Relaxed);
        self.left.store(given, Relaxed);
    }
}

/// A box: along each dimension the first coordinate, the distance between elements, their number, and the bytes between
/// them in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct SmallBox<'a> {
    /// First coordinate.
    pub start: &'a [u64],
    /// Distances, at least 1.
    pub step: &'a [u64],
    /// Elements, at least 1.
    pub count: &'a [u64],
    /// Byte strides in the buffer.
    pub strides: &'a [isize],
}

impl SmallBox<'_> {
    /// Bytes that the box moves through a core: an element that lies alone costs a cache line.
    fn cost(&self, item_bytes: u64) -> u64 {
        let (Some(&step), Some(&count)) = (self.step.last(), self.count.last()) else { return item_bytes };
        let apart =
            if step == 1 { item_bytes } else { step.saturating_mul(item_bytes).min(item_bytes.max(LINE as u64)) };
        let rows = self.count.iter().rev().skip(1).fold(1u64, |n, c| n.saturating_mul(*c));
        rows.saturating_mul(count.saturating_mul(apart).max(LINE as u64))
    }

    /// What of dimension `i` lies in the block that has its element number `done`, which is `next` if that is known.
    #[inline(always)]
    fn along(&self, i: usize, (done, next): (u64, Option<u64>), side: u64, stride: usize) -> (u64, Along) {
        let (step, left) = (self.step[i], self.count[i] - done);
        let first = self.start[i] + done * step;
        // Divisions are felt, here where every block is a few of the processor's steps.
        let block = match next {
            Some(block) => block,
            None if side.is_power_of_two() => first >> side.trailing_zeros(),
            None => first / side,
        };
        let inside = first - block * side;
        let room = match side - inside {
            room if step == 1 => room,
            room if step >= room => 1,
            room => (room - 1) / step + 1,
        };
        let count = room.min(left);
        let along = Along {
            done,
            count: count as usize,
            in_block: inside as usize * stride,
            in_buffer: done as isize * self.strides[i],
            high: ((count - 1) * step) as usize * stride,
        };
        (block, along)
    }
}

/// The part of a box's dimension that lies in one block.
#[derive(Clone, Copy, Default)]
struct Along {
    /// Elements before it.
    done: u64,
    /// Elements in it.
    count: usize,
    /// Bytes to its first element, in the block and in the buffer.
    in_block: usize,
    in_buffer: isize,
    /// From the first to the last element, in bytes.
    high: usize,
}

/// The part of a box in one block, on its way.
#[derive(Clone, Copy)]
struct Part {
    from: *const u8,
    to: *mut u8,
    count: [usize; DIMENSIONS],
    /// From the first to the last element, in bytes.
    high: usize,
}

impl Reader<'_> {
    /// Reads a box if it is small and lies in place. `false`: it does not; some of it may have been read.
    ///
    /// # Safety
    /// Every element that the box reaches in the buffer must be writable memory that nobody else uses meanwhile; the
    /// box lies within the space.
    pub unsafe fn small(&self, wanted: &SmallBox<'_>, out: BufferMut) -> bool {
        if !self.may_be_small(wanted, wanted.start.len()) {
            return false;
        }
        let bytes = wanted.count.iter().product::<u64>() * self.space.shape.item_bytes as u64;
        let trusted = |single| single && bytes < LOOKED_FOR_BYTES || self.space.trust.take();
        // SAFETY: the caller's promise.
        unsafe { self.parts(wanted, out, trusted) }
    }

    /// The same of a box of a view with this shape: `false` as well if the box is none of the view's, or the view none
    /// of the space's.
    ///
    /// # Safety
    /// As for [`Self::small`], but for where the box lies.
    pub unsafe fn small_of_view(&self, view: &[u64], wanted: &SmallBox<'_>, out: BufferMut) -> bool {
        let dimensions = self.inner.record.shape.len();
        if !self.may_be_small(wanted, dimensions) || !self.space.trust.take() {
            return false;
        }
        let &SmallBox { start, step, count, strides } = wanted;
        let mut all = true;
        let translated =
            translate(&self.inner.record.shape, view, &ViewBox { start, step, count, strides }, &mut |s| {
                let (mut start, mut step, mut count) = ([0; DIMENSIONS], [1; DIMENSIONS], [1; DIMENSIONS]);
                for (i, axis) in s.axes.iter().enumerate() {
                    let Axis::Range { start: first, step: apart, count: n } = *axis else {
                        unreachable!("a box of ranges")
                    };
                    (start[i], step[i], count[i]) = (first, apart, n);
                }
                let n = dimensions;
                let part = SmallBox { start: &start[..n], step: &step[..n], count: &count[..n], strides: &s.strides };
                // SAFETY: the caller's promise; a selection of the translator lies within the space, its elements where
                // the box has them.
                all = all && unsafe { self.parts(&part, BufferMut::from_raw(out.at(s.offset)), |_| true) };
                Ok(())
            });
        all && translated.is_ok()
    }

    fn may_be_small(&self, wanted: &SmallBox<'_>, dimensions: usize) -> bool {
        let fits = |n: usize| n > 0 && n <= DIMENSIONS;
        fits(wanted.start.len())
            && fits(dimensions)
            && wanted.cost(self.space.shape.item_bytes as u64) <= MOST_BYTES
            && self.plain()
    }

    /// Reads a box block by block, if `trusted`, told whether it is a single one, says that it is in memory.
    ///
    /// # Safety
    /// As for [`Self::small`].
    unsafe fn parts(&self, wanted: &SmallBox<'_>, out: BufferMut, trusted: impl FnOnce(bool) -> bool) -> bool {
        let shape = &self.space.shape;
        let (n, item) = (wanted.start.len(), shape.item_bytes);
        let mut at = BlockAt::from_elem(0, n);
        let mut here = [Along::default(); DIMENSIONS];
        let mut single = true;
        for i in 0..n {
            (at[i], here[i]) = wanted.along(i, (0, None), shape.block[i], shape.strides[i] as usize);
            single &= here[i].count as u64 == wanted.count[i];
        }
        if !trusted(single) {
            return false;
        }
        let (first, first_at) = (here, at.clone());
        let mut cursor = Cursor::default();
        let mut parts: SmallVec<[Part; TOGETHER]> = SmallVec::new();
        loop {
            let (mut in_block, mut in_buffer, mut high) = (0, 0, 0);
            let mut count = [1; DIMENSIONS];
            for (along, count) in here[..n].iter().zip(&mut count) {
                in_block += along.in_block;
                in_buffer += along.in_buffer;
                high += along.high;
                *count = along.count;
            }
            let from = cursor.get(self.inner.index(), &at).filter(|_| self.gathered(&at).is_none());
            let Some(from) = from.and_then(|map| self.in_place(map, in_block, high + item)) else {
                return false;
            };
            // SAFETY: the offset is one of the box's.
            parts.push(Part { from, to: unsafe { out.at(in_buffer) }, count, high });
            if parts.len() == TOGETHER {
                // SAFETY: each part lies in a run of pages that the medium shows, and in the buffer by the caller's
                // promise.
                unsafe { self.copy_parts(&mut parts, wanted) };
            }
            // The next block with elements: the last dimension runs fastest.
            let more = |i: &usize| here[*i].done + (here[*i].count as u64) < wanted.count[*i];
            let Some(axis) = (0..n).rev().find(more) else { break };
            let done = here[axis].done + here[axis].count as u64;
            let next = (wanted.step[axis] == 1).then(|| at[axis] + 1);
            (at[axis], here[axis]) = wanted.along(axis, (done, next), shape.block[axis], shape.strides[axis] as usize);
            for i in axis + 1..n {
                (at[i], here[i]) = (first_at[i], first[i]);
            }
        }
        // SAFETY: as above.
        unsafe { self.copy_parts(&mut parts, wanted) };
        true
    }

    /// Whether blocks of the space are as they are in memory, and nobody looks on.
    pub(super) fn plain(&self) -> bool {
        !self.space.coded() && self.ftl.probe().is_none()
    }

    fn loops(&self, part: &Part, wanted: &SmallBox<'_>) -> [Loop<'static>; DIMENSIONS] {
        let mut loops = [Loop::Affine { n: 1, from: 0, to: 0 }; DIMENSIONS];
        for i in 0..wanted.start.len() {
            let from = (self.space.shape.strides[i] * wanted.step[i]) as isize;
            loops[i] = Loop::Affine { n: part.count[i], from, to: wanted.strides[i] };
        }
        loops
    }

    /// # Safety
    /// The parts must lie in readable memory, and in the buffer.
    unsafe fn copy_parts(&self, parts: &mut SmallVec<[Part; TOGETHER]>, wanted: &SmallBox<'_>) {
        let (n, item) = (wanted.start.len(), self.space.shape.item_bytes);
        if parts.len() > 1 || parts.iter().any(|part| part.high >= 2 * PAGE) {
            for part in parts.iter() {
                let rows: usize = part.count[..n - 1].iter().product();
                let pages = (part.high / PAGE + 1).min(rows).min(PAGES_ASKED);
                (0..pages).for_each(|page| stream::ask(part.from.wrapping_add(page * PAGE)));
            }
        }
        let contiguous = wanted.strides[n - 1] == item as isize && wanted.step[n - 1] == 1;
        let is_row = |part: &Part| contiguous && part.count[..n - 1].iter().all(|&rows| rows == 1);
        for (i, part) in parts.iter().enumerate() {
            if let Some(coming) = parts.get(i + AHEAD) {
                let lines = if is_row(coming) { coming.high + item } else { 0 };
                (0..lines.min(ROW_ASKED)).step_by(64).for_each(|at| stream::ask(coming.from.wrapping_add(at)));
            }
            // SAFETY: the caller's promise.
            unsafe {
                if part.high == 0 || is_row(part) {
                    std::ptr::copy_nonoverlapping(part.from, part.to, part.high + item);
                    continue;
                }
                let mut loops = self.loops(part, wanted);
                let (left, run) = merge(&mut loops[..n], item);
                copy(&loops[..left], run, part.from, part.to);
            }
        }
        parts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_grows_with_every_good_look_and_is_gone_with_a_bad_one() {
        let trust = Trust::default();
        let taken = || std::iter::from_fn(|| trust.take().then_some(())).count();
        assert_eq!(taken(), 0, "nobody has looked yet");
        for expected in [1, 3, 7, 15, 31, 31] {
            trust.looked(true);
            assert_eq!(taken(), expected);
        }
        trust.looked(true);
        trust.looked(false);
        assert_eq!(taken(), 0);
        trust.looked(true);
        assert_eq!(taken(), 1);
    }

    #[test]
    fn an_element_alone_costs_a_line() {
        let cost = |count: &[u64], step| SmallBox { start: &[0; 2], step: &[1, step], count, strides: &[0; 2] }.cost(4);
        assert_eq!(cost(&[1, 1], 1), 64);
        assert_eq!(cost(&[1, 16_384], 1), 65_536);
        assert_eq!(cost(&[1, 16_384], 2), 131_072);
        assert_eq!(cost(&[1, 16_384], 1000), 1 << 20);
        assert_eq!(cost(&[16_384, 1], 1), 1 << 20);
        assert_eq!(cost(&[u64::MAX, 2], 1), u64::MAX);
    }
}
