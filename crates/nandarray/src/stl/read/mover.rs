//! Third stage of a read: located pieces of blocks are copied while cache lines of later pieces are prefetched.
//!
//! A read below 4 MiB moves a kilobyte or less from each of many blocks, so that finding the blocks costs as much as
//! copying. Its pieces wait in a ring of [`PIECES_MAX`]: the lines of later pieces are prefetched before each is
//! copied, and loops are merged only if they differ from those of the piece before. A larger read is assembled row by
//! row from pieces of neighbouring blocks ([`Assembler`]).
//!
//! Without lines that are prefetched, the row `4d planes-01` of `bench run` takes 1.26 times as long; if a large read
//! goes through the ring, `3d slabs-1` takes 1.40 and `4d blocks-4d` 1.44 times as long.
//!
//! All pages were located and verified before their pieces are passed to a mover.

use smallvec::SmallVec;

use crate::stl::copy::assemble::Assembler;
use crate::stl::copy::stream::{LINE, prefetch_line};
use crate::stl::copy::{Loop, copy, merge};
use crate::stl::plan::Loops;

/// Largest number of pieces in the ring.
const PIECES_MAX: usize = 32;

/// Number of pieces by which the prefetching of lines is ahead of the copying.
const DISTANCE: usize = 3;

/// Largest number of cache lines of a piece that are prefetched: about as many as a core can have in flight.
const LINES_MAX: usize = 32;

/// Largest number of distinct copy loops of the waiting pieces; this many need no memory of the heap.
const SHAPES_MAX: usize = 8;

/// A piece to copy: its addresses in block and buffer, and the index of its [`CopyShape`].
#[derive(Clone, Copy, Debug)]
struct Piece {
    shape: u32,
    from: *const u8,
    to: *mut u8,
}

/// The copy loops that several pieces share, and the lines to prefetch for each piece.
#[derive(Debug)]
struct CopyShape<'p> {
    /// Loops around runs of `run` bytes; after merging only the first `left` are used.
    loops: Loops<'p>,
    /// Number of loops that are left after merging.
    left: usize,
    /// Length of a contiguous run in bytes.
    run: usize,
    /// Number of bytes to prefetch of each of `rows` nearly contiguous rows, which are `step` bytes apart.
    bytes: usize,
    rows: usize,
    step: isize,
}

impl<'p> CopyShape<'p> {
    fn new(mut loops: Loops<'p>, item_bytes: usize) -> Self {
        let (left, run) = merge(&mut loops, item_bytes);
        let (mut bytes, mut rows, mut step) = (run, 1, 0);
        for l in loops[..left].iter().rev() {
            match *l {
                Loop::Affine { n, from, .. } if rows == 1 && from as usize <= bytes + LINE => {
                    bytes += (n - 1) * from as usize
                }
                Loop::Affine { n, from, .. } if rows == 1 => (rows, step) = (n, from),
                _ => break,
            }
        }
        // Single elements at strides: the processor itself keeps as many loads in flight. If prefetched, the lines
        // would evict each other from a few sets of the first-level cache.
        if bytes <= LINE && rows > LINES_MAX {
            rows = 0;
        }
        bytes = bytes.min(LINES_MAX * LINE);
        rows = rows.min((LINES_MAX * LINE / bytes).max(1));
        Self { loops, left, run, bytes, rows, step }
    }

    /// Prefetches the first lines of a piece that begins at `from`.
    #[inline]
    fn prefetch(&self, from: *const u8) {
        if let [Loop::Table(pairs), ..] = self.loops[..self.left] {
            pairs.iter().take(LINES_MAX).for_each(|&(at, _)| prefetch_line(from.wrapping_offset(at)));
            return;
        }
        for row in 0..self.rows as isize {
            let first = from.wrapping_offset(row * self.step);
            (0..self.bytes).step_by(LINE).for_each(|at| prefetch_line(first.wrapping_add(at)));
            if !self.bytes.is_multiple_of(LINE) {
                // A row may begin in the middle of a line, and so touch one line more.
                prefetch_line(first.wrapping_add(self.bytes - 1));
            }
        }
    }

    /// Copies a piece that has this shape from `from` to `to`.
    ///
    /// # Safety
    /// All bytes of the shape must be readable from `from` on, and writable from `to` on, with its strides.
    #[inline]
    unsafe fn copy(&self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { copy(&self.loops[..self.left], self.run, from, to) };
    }
}

/// The mover of a read below 4 MiB: a buffer of pieces that wait to be copied.
#[derive(Debug)]
pub(super) struct PieceRing<'p> {
    item_bytes: usize,
    /// The shapes of the waiting pieces; the last one is for the pieces to come.
    shapes: SmallVec<[CopyShape<'p>; SHAPES_MAX]>,
    pieces: SmallVec<[Piece; PIECES_MAX]>,
}

impl<'p> PieceRing<'p> {
    pub(super) fn new(item_bytes: usize) -> Self {
        Self { item_bytes, shapes: SmallVec::new(), pieces: SmallVec::new() }
    }

    /// Sets the loops of the pieces to come; if the table of shapes is full, first copies all waiting pieces.
    ///
    /// # Safety
    /// The promises of [`Self::push`].
    #[inline]
    pub(super) unsafe fn set_loops(&mut self, loops: Loops<'p>) {
        debug_assert!(self.pieces.len() < PIECES_MAX, "the ring is full");
        if self.shapes.len() == SHAPES_MAX {
            // SAFETY: the caller's promise.
            unsafe { self.finish() };
            self.shapes.clear();
        }
        self.shapes.push(CopyShape::new(loops, self.item_bytes));
    }

    /// Adds a piece; if the ring is full then, copies all waiting pieces.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable along the loops until [`Self::finish`].
    #[inline]
    pub(super) unsafe fn push(&mut self, from: *const u8, to: *mut u8) {
        debug_assert!(!self.shapes.is_empty(), "a piece has loops");
        self.pieces.push(Piece { shape: self.shapes.len() as u32 - 1, from, to });
        if self.pieces.len() == PIECES_MAX {
            // SAFETY: the promises of the calls that added them.
            unsafe { self.finish() };
        }
    }

    /// Copies all waiting pieces, in order.
    ///
    /// # Safety
    /// The promises of [`Self::push`].
    pub(super) unsafe fn finish(&mut self) {
        let shape = |piece: &Piece| &self.shapes[piece.shape as usize];
        if self.pieces.len() > 1 {
            self.pieces.iter().take(DISTANCE).for_each(|piece| shape(piece).prefetch(piece.from));
        }
        for (i, piece) in self.pieces.iter().enumerate() {
            if let Some(later) = self.pieces.get(i + DISTANCE) {
                shape(later).prefetch(later.from);
            }
            // SAFETY: the promise of the call that added it.
            unsafe { shape(piece).copy(piece.from, piece.to) };
        }
        self.pieces.clear();
        let used = self.shapes.len().saturating_sub(1);
        self.shapes.drain(..used);
    }
}

/// The mover of a read of 4 MiB or more.
pub(super) struct RowMover<'p> {
    assembler: Assembler,
    /// The loops of the pieces to come, and the number of the loop that runs along the rows; `None` before any are set.
    loops: Option<(Loops<'p>, usize)>,
}

/// Copies the located pieces of a thread.
#[expect(clippy::large_enum_variant, reason = "the ring lives on the stack: small reads allocate nothing")]
pub(super) enum Mover<'p> {
    /// Copies block by block, for reads below 4 MiB.
    Ring(PieceRing<'p>),
    /// Copies row by row, for larger reads.
    Rows(Box<RowMover<'p>>),
}

impl<'p> Mover<'p> {
    /// Creates the mover for a read below 4 MiB of elements of this size.
    pub(super) fn ring(item_bytes: usize) -> Self {
        Self::Ring(PieceRing::new(item_bytes))
    }

    /// Creates the mover for a larger read.
    pub(super) fn rows(item_bytes: usize) -> Self {
        Self::Rows(Box::new(RowMover { assembler: Assembler::new(item_bytes), loops: None }))
    }

    /// Whether rows are assembled, so that pages may be verified and copied a few at a time.
    pub(super) fn verifies_while_copying(&self) -> bool {
        matches!(self, Self::Rows(_))
    }

    /// Sets the loops of the pieces to come; loop number `row` runs along the buffer's rows.
    ///
    /// # Safety
    /// The promises of [`Self::push`].
    #[inline]
    pub(super) unsafe fn set_loops(&mut self, loops: Loops<'p>, row: usize) {
        match self {
            // SAFETY: the caller's promise.
            Self::Ring(ring) => unsafe { ring.set_loops(loops) },
            Self::Rows(rows) => rows.loops = Some((loops, row)),
        }
    }

    /// Adds a piece with the loops that were set last.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable along the loops until [`Self::finish`].
    #[inline]
    pub(super) unsafe fn push(&mut self, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Ring(ring) => ring.push(from, to),
                Self::Rows(rows) => {
                    let (loops, row) = rows.loops.as_ref().expect("a piece has loops");
                    rows.assembler.add(loops, *row, from, to);
                }
            }
        }
    }

    /// Copies all pieces that were added; afterwards all threads see the data.
    ///
    /// # Safety
    /// The promises of [`Self::push`].
    pub(super) unsafe fn finish(&mut self) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::Ring(ring) => ring.finish(),
                Self::Rows(rows) => rows.assembler.finish(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moves `n` pieces by a ring, with other loops every `every` pieces; checks every byte of the destination.
    fn check(n: usize, every: usize) {
        let source: Vec<u8> = (0..n * 64).map(|i| (i * 31 % 251) as u8).collect();
        let (mut got, mut expected) = (vec![0u8; n * 32], vec![0u8; n * 32]);
        let pairs = [(5isize, 0isize), (1, 4), (60, 8)];
        let mut ring = PieceRing::new(4);
        for i in 0..n {
            if i % every == 0 {
                let loops: Loops<'_> = match i / every % 3 {
                    0 => SmallVec::from_slice(&[Loop::Affine { n: 8, from: 4, to: 4 }]),
                    1 => SmallVec::from_slice(&[
                        Loop::Affine { n: 2, from: 32, to: 16 },
                        Loop::Affine { n: 3, from: 8, to: 4 },
                    ]),
                    _ => SmallVec::from_slice(&[Loop::Table(&pairs)]),
                };
                // SAFETY: the pieces before lie in the two vectors.
                unsafe { ring.set_loops(loops) };
            }
            let offsets: Vec<(usize, usize)> = match i / every % 3 {
                0 => (0..8).map(|k| (k * 4, k * 4)).collect(),
                1 => (0..6).map(|k| (k / 3 * 32 + k % 3 * 8, k / 3 * 16 + k % 3 * 4)).collect(),
                _ => pairs.iter().map(|&(from, to)| (from as usize, to as usize)).collect(),
            };
            for (from, to) in offsets {
                expected[i * 32 + to..][..4].copy_from_slice(&source[i * 64 + from..][..4]);
            }
            // SAFETY: the loops reach 64 bytes of the source and 32 of the destination.
            unsafe { ring.push(source[i * 64..].as_ptr(), got[i * 32..].as_mut_ptr()) };
        }
        // SAFETY: as above.
        unsafe { ring.finish() };
        assert!(got == expected, "{n} pieces, other loops after {every}");
        assert!(ring.pieces.is_empty() && ring.shapes.len() <= 1);
    }

    #[test]
    fn pieces_arrive_on_both_sides_of_the_rings_size_and_with_changing_loops() {
        for n in [1, 2, DISTANCE, PIECES_MAX - 1, PIECES_MAX, PIECES_MAX + 1, 3 * PIECES_MAX + 5] {
            for every in [1, 2, 7, 1000] {
                check(n, every);
            }
        }
    }

    #[test]
    fn single_elements_at_strides_are_left_to_the_processor() {
        let shape = |n, from| CopyShape::new(SmallVec::from_slice(&[Loop::Affine { n, from, to: 4 }]), 4);
        assert_eq!(shape(LINES_MAX + 1, 1024).rows, 0);
        assert_eq!(shape(LINES_MAX, 1024).rows, LINES_MAX);
        assert_eq!((shape(100, 8).rows, shape(100, 8).bytes), (1, 4 + 99 * 8));
    }
}
