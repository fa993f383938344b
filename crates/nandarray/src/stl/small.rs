//! Small reads whose building blocks lie in place: from the box to the buffer without a plan, and without allocating.
//!
//! A read of a few elements is a matter of a microsecond, most of which would go into lists of blocks, loops and units. Here
//! the blocks of a box are walked in order; each is looked up, and copied when those after it are asked for. This way is taken
//! only where nothing is unusual: a box without steps of a plain space, every block in one run of pages that the medium shows
//! and that were verified before, nothing gathering. Whatever else there is, the general way (`read`) reads from the start.
//!
//! The general way also asks for what is not in memory. To ask whether it is costs system calls, as much as a small read; so
//! pages that were compared once are trusted to be in memory for a number of commands after each look ([`Trust`]).

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use smallvec::SmallVec;

use super::copy::{Loop, copy, merge};
use super::index::Cursor;
use super::plan::BlockAt;
use super::read::{BufferMut, Reader};
use super::stream;

/// The most dimensions.
const DIMENSIONS: usize = 6;

/// The most bytes that a core moves here, by the measure of `Reader::cost`: less than a second thread is woken for.
pub(super) const MOST_BYTES: u64 = 256 << 10;

/// A single block of fewer bytes meets its own page soon enough, and is not looked for in memory.
const LOOKED_FOR_BYTES: u64 = 4096;

/// Blocks whose pages are asked for before the first of them is copied: the processor walks page tables for many at once if they
/// are asked for one right after the other.
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
/// A look that finds all it looks at trusts twice as many commands as the one before; one that misses something trusts none.
/// Two threads may count one command as one: what is counted is a guess anyway.
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

/// A box without steps: along each dimension the first coordinate, elements, and bytes between them in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct SmallBox<'a> {
    /// First coordinate.
    pub start: &'a [u64],
    /// Elements, at least 1.
    pub count: &'a [u64],
    /// Byte strides in the buffer.
    pub strides: &'a [isize],
}

impl SmallBox<'_> {
    /// Bytes that the box moves through a core: an element that lies alone costs a cache line.
    fn cost(&self, item_bytes: u64) -> u64 {
        let row = self.count.last().map_or(1, |n| n.saturating_mul(item_bytes));
        let rows = self.count.iter().rev().skip(1).fold(1u64, |n, c| n.saturating_mul(*c));
        rows.saturating_mul(row.max(64))
    }
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
    /// Every element that the box reaches in the buffer must be writable memory that nobody else uses meanwhile; the box lies
    /// within the space.
    pub unsafe fn small(&self, wanted: &SmallBox<'_>, out: BufferMut) -> bool {
        let shape = &self.space.shape;
        let (n, item) = (wanted.start.len(), shape.item_bytes);
        if n == 0 || n > DIMENSIONS || wanted.cost(item as u64) > MOST_BYTES || !self.plain() {
            return false;
        }
        let mut first: BlockAt = BlockAt::new();
        let mut blocks = 1;
        for i in 0..n {
            let side = shape.block[i];
            first.push(wanted.start[i] / side);
            blocks *= (wanted.start[i] + wanted.count[i] - 1) / side - first[i] + 1;
        }
        let bytes = wanted.count.iter().product::<u64>() * item as u64;
        if (blocks > 1 || bytes >= LOOKED_FOR_BYTES) && !self.space.trust.take() {
            return false;
        }
        let mut at = first.clone();
        let mut cursor = Cursor::default();
        let mut parts: SmallVec<[Part; TOGETHER]> = SmallVec::new();
        loop {
            let (mut in_block, mut in_buffer, mut high) = (0, 0, 0);
            let mut count = [1; DIMENSIONS];
            for i in 0..n {
                let side = shape.block[i];
                let low = (at[i] * side).max(wanted.start[i]);
                let elements = (at[i] + 1).saturating_mul(side).min(wanted.start[i] + wanted.count[i]) - low;
                in_block += (low - at[i] * side) * shape.strides[i];
                high += (elements - 1) * shape.strides[i];
                in_buffer += (low - wanted.start[i]) as isize * wanted.strides[i];
                count[i] = elements as usize;
            }
            let from = cursor.get(self.inner.index(), &at).filter(|_| self.gathered(&at).is_none());
            let Some(from) = from.and_then(|map| self.in_place(map, in_block as usize, high as usize + item)) else {
                return false;
            };
            // SAFETY: the offset is one of the box's.
            parts.push(Part { from, to: unsafe { out.at(in_buffer) }, count, high: high as usize });
            if parts.len() == TOGETHER {
                // SAFETY: each part lies in a run of pages that the medium shows, and in the buffer by the caller's promise.
                unsafe { self.copy_parts(&mut parts, wanted) };
            }
            // The next block: the last dimension runs fastest.
            let Some(axis) =
                (0..n).rev().find(|&i| (at[i] + 1).saturating_mul(shape.block[i]) < wanted.start[i] + wanted.count[i])
            else {
                break;
            };
            at[axis] += 1;
            at[axis + 1..n].copy_from_slice(&first[axis + 1..n]);
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
            let from = self.space.shape.strides[i] as isize;
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
        let contiguous = wanted.strides[n - 1] == item as isize;
        let is_row = |part: &Part| contiguous && part.count[..n - 1].iter().all(|&rows| rows == 1);
        for (i, part) in parts.iter().enumerate() {
            if let Some(coming) = parts.get(i + AHEAD) {
                let lines = if is_row(coming) { coming.high + item } else { 0 };
                (0..lines.min(ROW_ASKED)).step_by(64).for_each(|at| stream::ask(coming.from.wrapping_add(at)));
            }
            // SAFETY: the caller's promise.
            unsafe {
                if is_row(part) {
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
        let cost = |count: &[u64]| SmallBox { start: &[0; 2], count, strides: &[0; 2] }.cost(4);
        assert_eq!(cost(&[1, 1]), 64);
        assert_eq!(cost(&[1, 16_384]), 65_536);
        assert_eq!(cost(&[16_384, 1]), 1 << 20);
        assert_eq!(cost(&[u64::MAX, 2]), u64::MAX);
    }
}
