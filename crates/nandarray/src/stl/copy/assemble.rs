//! Assembly of large reads: rows of the destination are composed from neighbouring building blocks.
//!
//! A block of three or four dimensions has short rows (64 to 256 bytes); the destination's rows are longer and lie one
//! after the other. So tasks whose blocks are neighbours along the destination's rows form a [`RowGroup`], which has
//! one *piece* for each block; all pieces are moved by the same loops. For every step of the outer loops all rows of
//! the innermost loop are composed piece by piece ([`rows`]), while the rows of the next step, or of the next group,
//! are prefetched. The row's dimension is the last one along which more than one element is selected: a piece may be
//! single elements at a stride.
//!
//! Rows are composed in their places, by ordinary stores, whatever the size of the destination (design note 5). Block
//! by block instead, the rows `3d slabs-1` and `4d blocks-4d` of `bench run` take 1.40 and 1.44 times as long.

use smallvec::SmallVec;

use super::rows::{self, RowPiece, Rows};
use super::{Loop, copy_streaming, merge, stream};

/// Largest number of loops around a row; a task with more is copied by itself.
const MAX_OUTER: usize = 8;
/// Largest number of pieces of a row.
pub const MAX_PIECES: usize = 64;
/// Length in bytes of a row that gets no further piece: each piece keeps one page in flight, and more of them gain
/// nothing.
pub const ROW_BYTES: usize = 8 << 10;
/// Shortest length, in bytes, of rows of a single block that are copied four at a time ([`stream`]): the unaligned ends
/// of shorter rows would cost too much. Serves arrays of one dimension, which `bench run` has not: a whole one of 144
/// MiB takes 1.12 times as long without it.
const ALONE_BYTES: usize = 4 << 10;

/// A loop around a row: its number of steps, and its byte strides on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLoop {
    /// Number of steps.
    pub n: usize,
    /// Stride in the block, in bytes.
    pub from: isize,
    /// Stride in the destination, in bytes.
    pub to: isize,
}

/// Pieces of neighbouring blocks that form rows of the destination, moved by the same loops.
#[derive(Debug, Default)]
struct RowGroup {
    outer: SmallVec<[RowLoop; MAX_OUTER]>,
    pieces: SmallVec<[RowPiece; 16]>,
    to: Option<*mut u8>,
    row_bytes: usize,
}

/// Collects one thread's copy tasks in groups and copies them.
pub struct Assembler {
    item_bytes: usize,
    /// The complete group. It is copied when the next group is complete, so that lines of that group can be prefetched
    /// meanwhile.
    ready: RowGroup,
    building: RowGroup,
}

impl Assembler {
    /// Creates an assembler for elements of `item_bytes` bytes.
    pub fn new(item_bytes: usize) -> Self {
        Self { item_bytes, ready: RowGroup::default(), building: RowGroup::default() }
    }

    /// Adds the loops of a task, or of a part of it; loop number `row` runs along the destination's rows. A task that
    /// does not continue the rows of the present group begins another one.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable along the loops until [`Self::finish`].
    pub unsafe fn add(&mut self, loops: &[Loop<'_>], row: usize, from: *const u8, to: *mut u8) {
        let Some((outer, piece)) = split_row(loops, row, self.item_bytes, from) else {
            let mut loops: SmallVec<[Loop<'_>; 6]> = SmallVec::from_slice(loops);
            let (left, run) = merge(&mut loops, self.item_bytes);
            // SAFETY: the caller's promise.
            return unsafe { copy_streaming(&loops[..left], run, from, to) };
        };
        let group = &self.building;
        let joins = group.to.is_some_and(|first| first.wrapping_add(group.row_bytes) == to)
            && group.row_bytes < ROW_BYTES
            && group.pieces.len() < MAX_PIECES
            && group.outer == outer;
        if !joins {
            // SAFETY: the promise of the earlier calls.
            unsafe { self.advance() };
            self.building = RowGroup { outer, to: Some(to), ..RowGroup::default() };
        }
        debug_assert!(piece.len() > 0, "a piece has bytes");
        self.building.row_bytes += piece.len();
        self.building.pieces.push(piece);
    }

    /// Copies the complete group, and makes the group under construction the complete one.
    ///
    /// # Safety
    /// The promises of [`Self::add`].
    unsafe fn advance(&mut self) {
        debug_assert!(self.building.pieces.len() <= MAX_PIECES, "{} pieces", self.building.pieces.len());
        let next = std::mem::take(&mut self.building);
        let group = std::mem::replace(&mut self.ready, next);
        // SAFETY: the promises of the additions.
        unsafe { copy(&group, &self.ready) };
    }

    /// Copies everything that was added; afterwards all threads see the data.
    ///
    /// # Safety
    /// The promises of [`Self::add`].
    pub unsafe fn finish(&mut self) {
        // SAFETY: as above.
        unsafe {
            self.advance();
            self.advance();
        }
        debug_assert!(self.ready.to.is_none() && self.building.to.is_none(), "a group was left");
        stream::fence();
    }
}

/// Splits a task's loops into the loops around its rows and the piece of each row; loop number `row` runs along the
/// rows. `None` if the elements of a row are not contiguous in the destination, or there are too many or irregular
/// loops.
pub fn split_row(
    loops: &[Loop<'_>],
    row: usize,
    item_bytes: usize,
    from: *const u8,
) -> Option<(SmallVec<[RowLoop; MAX_OUTER]>, RowPiece)> {
    let mut outer = SmallVec::new();
    let mut piece = None;
    for (i, l) in loops.iter().enumerate() {
        match *l {
            Loop::Affine { n, from: step, to } if i == row => {
                let item = item_bytes as isize;
                if n > 1 && to != item {
                    return None;
                }
                let (items, bytes) = if n == 1 || step == item { (1, n * item_bytes) } else { (n, item_bytes) };
                piece = Some(RowPiece { from, items, step, bytes });
            }
            Loop::Affine { n: 1, .. } => {}
            Loop::Affine { n, from, to } => outer.push(RowLoop { n, from, to }),
            Loop::Table(_) => return None,
        }
    }
    debug_assert!(piece.is_some() || loops.len() <= row, "loop {row} of {} goes along the rows", loops.len());
    piece.filter(|_| outer.len() <= MAX_OUTER).map(|piece| (outer, piece))
}

/// Copies a group; near the end prefetches lines of the next group.
///
/// # Safety
/// The promises of [`Assembler::add`] for the group.
unsafe fn copy(group: &RowGroup, next: &RowGroup) {
    let Some(to) = group.to else { return };
    if let [RowPiece { from, items: 1, bytes, .. }] = group.pieces[..] {
        let affine = |l: &RowLoop| Loop::Affine { n: l.n, from: l.from, to: l.to };
        let mut loops: SmallVec<[Loop<'_>; MAX_OUTER]> = group.outer.iter().map(affine).collect();
        let (left, run) = merge(&mut loops, bytes);
        if run >= ALONE_BYTES {
            // SAFETY: the caller's promise.
            return unsafe { copy_streaming(&loops[..left], run, from, to) };
        }
    }
    let (inner, outer) =
        group.outer.split_last().map_or((RowLoop { n: 1, from: 0, to: 0 }, &[][..]), |(l, outer)| (*l, outer));
    let next_step = next.outer.last().map_or(0, |l| l.from);
    let mut walk = LoopWalk::default();
    loop {
        let here = walk;
        let more = walk.step(outer);
        let mut into = to.wrapping_offset(here.to);
        for (i, piece) in group.pieces.iter().enumerate() {
            let from = piece.from.wrapping_offset(here.from);
            let (ahead, ahead_step) = match next.pieces.get(i) {
                _ if more => (piece.from.wrapping_offset(walk.from), inner.from),
                Some(next) => (next.from, next_step),
                None => (from, inner.from),
            };
            let rows = Rows {
                n: inner.n,
                from,
                from_step: inner.from,
                to: into,
                to_step: inner.to,
                next: ahead,
                next_step: ahead_step,
            };
            // SAFETY: the caller's promise.
            unsafe { rows::copy(&rows, piece) };
            into = into.wrapping_add(piece.len());
        }
        if !more {
            return;
        }
    }
}

/// A position in nested loops: the step of each loop, and the byte offsets in source and destination.
#[derive(Clone, Copy, Default)]
struct LoopWalk {
    at: [usize; MAX_OUTER],
    from: isize,
    to: isize,
}

impl LoopWalk {
    /// Advances to the next step; after the last one returns `false`, and the position is at the first step again.
    fn step(&mut self, outer: &[RowLoop]) -> bool {
        for (at, l) in self.at.iter_mut().zip(outer).rev() {
            *at += 1;
            self.from += l.from;
            self.to += l.to;
            if *at < l.n {
                return true;
            }
            *at = 0;
            self.from -= l.n as isize * l.from;
            self.to -= l.n as isize * l.to;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stl::plan::{Plan, Selection};

    const UNTOUCHED: u8 = 0xa5;

    /// Reads the box `start + [0, count)` of an array in blocks into a buffer with `gap` bytes between the rows of
    /// every dimension but the last, `at` bytes after the start of a cache line; checks every byte of the buffer.
    fn check(shape: &[u64], block: &[u64], start: &[u64], count: &[u64], item: usize, (gap, at): (usize, usize)) {
        let sides: Vec<u64> = shape.iter().zip(block).map(|(s, b)| s.div_ceil(*b)).collect();
        let block_elements: u64 = block.iter().product();
        let value = |element: u64, byte: usize| (element * 7 + byte as u64 * 3 + (element >> 8)) as u8;
        // The blocks, one after the other.
        let source: Vec<u8> = (0..sides.iter().product::<u64>() * block_elements)
            .flat_map(|e| (0..item).map(move |b| value(e, b)))
            .collect();
        let mut strides = vec![0isize; count.len()];
        let mut stride = item;
        for i in (0..count.len()).rev() {
            strides[i] = stride as isize;
            stride = stride * count[i] as usize + gap;
        }
        // Beginning at the start of a line, so that `at` is the distance from it.
        let mut buffer = vec![UNTOUCHED; stride + 3 * stream::LINE];
        let first = buffer.as_ptr().align_offset(stream::LINE) + at;
        let mut expected = buffer.clone();
        for i in 0..count.iter().product::<u64>() {
            let (mut rest, mut number, mut inside, mut place) = (i, 0, 0, first);
            let mut coordinate = vec![0; count.len()];
            for d in (0..count.len()).rev() {
                coordinate[d] = start[d] + rest % count[d];
                place += (rest % count[d]) as usize * strides[d] as usize;
                rest /= count[d];
            }
            for d in 0..count.len() {
                number = number * sides[d] + coordinate[d] / block[d];
                inside = inside * block[d] + coordinate[d] % block[d];
            }
            (0..item).for_each(|b| expected[place + b] = value(number * block_elements + inside, b));
        }
        let selection = Selection { strides, ..Selection::contiguous(start, count, item as u64) };
        let plan = Plan::new(&selection, block, item as u64);
        let mut assembler = Assembler::new(item);
        let to = buffer[first..].as_mut_ptr();
        for task in (0..plan.tasks()).map(|i| plan.task(i)) {
            let number = task.at.iter().zip(&sides).fold(0, |number, (at, side)| number * side + at);
            let from = (number * block_elements) as usize * item + task.in_block;
            // SAFETY: the elements lie within both vectors, which live until `finish`.
            unsafe { assembler.add(&task.loops, task.row, source[from..].as_ptr(), to.offset(task.in_buffer)) };
        }
        // SAFETY: as above.
        unsafe { assembler.finish() };
        let wrong = buffer.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "{start:?} + {count:?} of {shape:?} in {block:?}, {item} bytes, gap {gap}, at {at}");
    }

    #[test]
    fn a_row_is_one_item_if_it_is_contiguous_in_the_block() {
        let split = |n, from, to| {
            let loops = [Loop::Affine { n: 3, from: 64, to: 100 }, Loop::Affine { n, from, to }];
            split_row(&loops, 1, 4, std::ptr::null()).map(|(outer, piece)| (outer.len(), piece.items, piece.bytes))
        };
        assert_eq!(split(5, 4, 4), Some((1, 1, 20)));
        assert_eq!(split(5, 8, 4), Some((1, 5, 4)));
        assert_eq!(split(1, 8, 40), Some((1, 1, 4)));
        assert_eq!(split(5, 4, 8), None, "not contiguous in the destination");
    }

    proptest! {
        #[test]
        fn any_box_arrives_and_nothing_beside_it_is_touched(
            axes in prop::collection::vec((1u64..9, 1u64..5, 0.0f64..1.0, 0.0f64..1.0), 1..5),
            item in prop::sample::select(vec![1usize, 2, 3, 4, 8, 12, 16, 24]),
            gap in prop::sample::select(vec![0usize, 1, 48, 64]),
            at in 0usize..64,
        ) {
            let block: Vec<u64> = axes.iter().map(|a| a.0).collect();
            let shape: Vec<u64> = axes.iter().map(|a| a.0 * a.1).collect();
            let start: Vec<u64> = axes.iter().zip(&shape).map(|(a, &s)| ((s as f64 * a.2) as u64).min(s - 1)).collect();
            let count: Vec<u64> =
                (0..axes.len()).map(|i| (((shape[i] - start[i]) as f64 * axes[i].3) as u64).max(1)).collect();
            check(&shape, &block, &start, &count, item, (gap, at));
        }
    }

    #[test]
    fn the_shapes_of_the_benchmark_arrive() {
        for at in [0, 16] {
            let shape = [48; 3];
            check(&shape, &[16; 3], &[5, 0, 0], &[7, 48, 48], 4, (0, at));
            check(&shape, &[16; 3], &[0, 5, 0], &[48, 7, 48], 4, (0, at));
            check(&shape, &[16; 3], &[0, 0, 11], &[48, 48, 7], 4, (0, at));
            check(&shape, &[16; 3], &[3; 3], &[40; 3], 4, (0, at));
            // Single elements at a stride, of a dimension further out.
            check(&[32; 4], &[16; 4], &[0, 0, 0, 9], &[32, 32, 32, 1], 4, (0, at));
        }
    }

    #[test]
    fn rows_arrive_on_both_sides_of_every_limit() {
        // A row of one block that is copied alone, and one byte less.
        for row in [ALONE_BYTES as u64 - 1, ALONE_BYTES as u64, ALONE_BYTES as u64 + 1] {
            check(&[6, 5000], &[3, 5000], &[1, 7], &[5, row], 1, (3, 9));
        }
        // Pieces as many as are joined, and more; the last one short.
        for pieces in [MAX_PIECES as u64 - 1, MAX_PIECES as u64, MAX_PIECES as u64 + 1] {
            check(&[4, 400], &[2, 5], &[0, 2], &[4, pieces * 5], 1, (0, 17));
        }
        // As long as is joined, and longer.
        for row in [ROW_BYTES as u64, ROW_BYTES as u64 + 1, 2 * ROW_BYTES as u64 + 1] {
            check(&[4, 20_000], &[2, 3_000], &[0, 5], &[4, row], 1, (0, 63));
        }
        // Two pieces that are longer than a row that is joined.
        check(&[4, 40_000], &[2, 20_000], &[0, 1], &[4, 39_000], 1, (0, 1));
    }
}
