//! Copies the part of one building block in rows of the destination, by a loop specialised for the part's length.
//!
//! Rows of blocks of many dimensions are so short that calling the library's copy function for each costs as much as
//! the copy. Here the choice by length is made once for many rows; a row is then one or two moves of a fixed width (the
//! second overlaps the first if the length is not a power of two). A masked vector move would need only one
//! instruction, but on the measured processor (Zen 5) it takes 35 ns for rows of odd lengths, ten times as long as two
//! overlapping moves.
//!
//! With each row, lines of a later row are prefetched, because the processor's own prefetching begins anew with every
//! row that lies in another page.
//!
//! The functions are unsafe, because they do not check addresses: `plan`, which makes the loops, checks the bounds.

use super::stream::{LINE, prefetch_line};

/// The part of one block in a row: `items` items of `bytes` bytes, `step` bytes apart in the block, adjacent in the
/// row.
#[derive(Clone, Copy, Debug)]
pub struct RowPiece {
    /// Address in the block of the first item of the first row.
    pub from: *const u8,
    /// Number of items.
    pub items: usize,
    /// Distance between items in the block, in bytes.
    pub step: isize,
    /// Size of an item in bytes: one element, or all elements of the row if these are contiguous in the block.
    pub bytes: usize,
}

impl RowPiece {
    /// Returns the number of bytes that the piece takes in the row.
    pub fn len(&self) -> usize {
        self.items * self.bytes
    }

    /// Returns the number of bytes from the piece's first to its last byte in the block.
    pub fn reach(&self) -> usize {
        (self.items - 1) * self.step as usize + self.bytes
    }
}

/// Addresses of one piece in several rows: in the block, in the destination, and of rows to prefetch.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Number of rows.
    pub n: usize,
    /// Address of the first row in the block.
    pub from: *const u8,
    /// Distance between rows in the block, in bytes.
    pub from_step: isize,
    /// Address of the piece in the first row of the destination.
    pub to: *mut u8,
    /// Distance between rows in the destination, in bytes.
    pub to_step: isize,
    /// Address in a block of the first of `n` later rows, which are prefetched; any address is allowed.
    pub next: *const u8,
    /// Distance between the rows to prefetch, in bytes.
    pub next_step: isize,
}

/// Copies a piece's part of several rows (`piece.from` is ignored).
///
/// # Safety
/// Every row's items must be readable and the row's part writable, and the two must not overlap.
pub unsafe fn copy(rows: &Rows, piece: &RowPiece) {
    debug_assert!(piece.items > 0, "a piece has items");
    #[cfg(target_arch = "x86_64")]
    if super::stream::available() {
        // SAFETY: the caller's promise; the instructions are available.
        return unsafe { copy_wide(rows, piece) };
    }
    // SAFETY: the caller's promise.
    unsafe { rows.copy(piece) }
}

/// Does the same as [`copy`], compiled for wide vectors.
///
/// # Safety
/// As for [`copy`], and AVX-512F must be available.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn copy_wide(rows: &Rows, piece: &RowPiece) {
    // SAFETY: the caller's promise.
    unsafe { rows.copy(piece) }
}

impl Rows {
    /// Copies a piece's part of all rows, by a method chosen by its number of items and their length.
    ///
    /// # Safety
    /// As for [`copy`].
    #[inline(always)]
    unsafe fn copy(&self, piece: &RowPiece) {
        // SAFETY: the caller's promise; widths are those of the pieces, which `two` and `lines` may overlap.
        unsafe {
            match (piece.items, piece.bytes) {
                (_, 0) => {}
                (1, 1) => self.one::<1>(),
                (1, 2) => self.one::<2>(),
                (1, 4) => self.one::<4>(),
                (1, 8) => self.one::<8>(),
                (1, 16) => self.one::<16>(),
                (1, 32) => self.one::<32>(),
                (1, 64) => self.one::<64>(),
                (1, 128) => self.one::<128>(),
                (1, 256) => self.one::<256>(),
                (1, len @ 65..) => self.lines(len),
                (1, len @ 33..) => self.two::<32>(len),
                (1, len @ 17..) => self.two::<16>(len),
                (1, len @ 9..) => self.two::<8>(len),
                (1, len @ 5..) => self.two::<4>(len),
                (1, len) => self.two::<2>(len),
                (n, 1) => self.items::<1>(n, piece.step),
                (n, 2) => self.items::<2>(n, piece.step),
                (n, 4) => self.items::<4>(n, piece.step),
                (n, 8) => self.items::<8>(n, piece.step),
                (n, 16) => self.items::<16>(n, piece.step),
                (n, len) => self.each(0, |from, to| {
                    for i in 0..n {
                        let from = from.offset(i as isize * piece.step);
                        std::ptr::copy_nonoverlapping(from, to.add(i * len), len);
                    }
                }),
            }
        }
    }

    /// Calls `each` with the addresses of every row in block and destination, and prefetches `prefetched` bytes of a
    /// later row each time.
    #[inline(always)]
    fn each(&self, prefetched: usize, each: impl Fn(*const u8, *mut u8)) {
        for i in 0..self.n as isize {
            if prefetched > 0 {
                let later = self.next.wrapping_offset(i * self.next_step);
                for at in (0..prefetched).step_by(LINE) {
                    prefetch_line(later.wrapping_add(at));
                }
                // Such a row may begin in the middle of a line, and so touch one line more.
                prefetch_line(later.wrapping_add(prefetched - 1));
            }
            each(self.from.wrapping_offset(i * self.from_step), self.to.wrapping_offset(i * self.to_step));
        }
    }

    /// Copies all rows, each by one move of `BYTES` bytes.
    ///
    /// # Safety
    /// As for [`copy`], with `BYTES` bytes a row.
    #[inline(always)]
    unsafe fn one<const BYTES: usize>(&self) {
        // SAFETY: the caller's promise.
        self.each(BYTES, |from, to| unsafe { shift::<BYTES>(from, to) });
    }

    /// Copies all rows, each by two moves of `HALF` bytes, which may overlap.
    ///
    /// # Safety
    /// As for [`copy`], with `len` bytes a row, from `HALF` to twice `HALF`.
    #[inline(always)]
    unsafe fn two<const HALF: usize>(&self, len: usize) {
        debug_assert!((HALF..=2 * HALF).contains(&len), "{len} bytes in two moves of {HALF}");
        let back = len - HALF;
        // Both parts are loaded before one is stored, so the compiler need not assume that they overlap.
        // SAFETY: the caller's promise.
        self.each(len, |from, to| unsafe {
            let first = from.cast::<[u8; HALF]>().read_unaligned();
            let last = from.add(back).cast::<[u8; HALF]>().read_unaligned();
            to.cast::<[u8; HALF]>().write_unaligned(first);
            to.add(back).cast::<[u8; HALF]>().write_unaligned(last);
        });
    }

    /// Copies all rows, each by moves of a cache line, the last of which may overlap the one before.
    ///
    /// # Safety
    /// As for [`copy`], with `len` bytes a row, at least a line.
    #[inline(always)]
    unsafe fn lines(&self, len: usize) {
        debug_assert!(len >= LINE, "{len} bytes in whole lines");
        // SAFETY: the caller's promise.
        self.each(len, |from, to| unsafe {
            let mut at = 0;
            while at + LINE < len {
                shift::<LINE>(from.add(at), to.add(at));
                at += LINE;
            }
            shift::<LINE>(from.add(len - LINE), to.add(len - LINE));
        });
    }

    /// Copies all rows of several items each, `step` bytes apart in the block.
    ///
    /// # Safety
    /// As for [`copy`], with `n` items of `BYTES` bytes a row.
    #[inline(always)]
    unsafe fn items<const BYTES: usize>(&self, n: usize, step: isize) {
        for row in 0..self.n as isize {
            let later = self.next.wrapping_offset(row * self.next_step);
            let from = self.from.wrapping_offset(row * self.from_step);
            let to = self.to.wrapping_offset(row * self.to_step);
            for i in 0..n {
                prefetch_line(later.wrapping_offset(i as isize * step));
                // SAFETY: the caller's promise.
                unsafe { shift::<BYTES>(from.offset(i as isize * step), to.add(i * BYTES)) };
            }
        }
    }
}

/// Copies `BYTES` bytes by one move.
///
/// # Safety
/// `BYTES` bytes must be readable at `from` and writable at `to`.
#[inline(always)]
unsafe fn shift<const BYTES: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: arrays of bytes have no alignment; the caller's promise.
    unsafe { to.cast::<[u8; BYTES]>().write_unaligned(from.cast::<[u8; BYTES]>().read_unaligned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTOUCHED: u8 = 0xa5;

    /// Copies rows both with and without wide vectors, and checks every byte of the destination.
    fn check(n: usize, items: usize, bytes: usize, step_gap: usize, at: usize, to_gap: usize) {
        let step = bytes + step_gap;
        let len = items * bytes;
        let (from_step, to_step) = (items * step + 3, len + to_gap);
        let source: Vec<u8> = (0..at + n * from_step).map(|i| (i * 31 % 251) as u8).collect();
        let mut expected = vec![UNTOUCHED; at + n * to_step + 64];
        for row in 0..n {
            for i in 0..items {
                let from = &source[at + row * from_step + i * step..][..bytes];
                expected[at + row * to_step + i * bytes..][..bytes].copy_from_slice(from);
            }
        }
        for wide in [false, true] {
            let mut got = vec![UNTOUCHED; expected.len()];
            let from = source[at..].as_ptr();
            let to = got[at..].as_mut_ptr();
            let (from_step, to_step) = (from_step as isize, to_step as isize);
            let rows = Rows { n, from, from_step, to, to_step, next: from, next_step: from_step };
            let piece = RowPiece { from, items, step: step as isize, bytes };
            // SAFETY: `n` rows lie within both vectors.
            unsafe { if wide { copy(&rows, &piece) } else { rows.copy(&piece) } };
            assert_eq!(got, expected, "{n} rows of {items} x {bytes} bytes, {step_gap} and {to_gap} between, at {at}");
        }
    }

    #[test]
    fn every_length_arrives_and_nothing_beside_it_is_touched() {
        for len in (1..=330).chain([511, 512, 513, 4095, 4097]) {
            for (at, to_gap) in [(0, 0), (1, 0), (16, 7), (63, 64)] {
                check(3, 1, len, 0, at, to_gap);
            }
        }
    }

    #[test]
    fn items_at_strides_arrive() {
        for bytes in [1, 2, 3, 4, 8, 12, 16, 24, 100] {
            for (items, gap) in [(2, 0), (2, 1), (16, 60), (17, 5)] {
                check(2, items, bytes, gap, 5, 9);
            }
        }
    }

    #[test]
    fn a_piece_reaches_to_its_last_byte_in_the_block() {
        let piece = |items, step, bytes| RowPiece { from: std::ptr::null(), items, step, bytes };
        assert_eq!((piece(5, 12, 4).len(), piece(5, 12, 4).reach()), (20, 4 * 12 + 4));
        assert_eq!((piece(1, 1000, 32).len(), piece(1, 1000, 32).reach()), (32, 32));
    }

    #[test]
    fn no_rows_and_no_bytes_are_nothing() {
        check(0, 1, 64, 0, 0, 0);
        check(2, 1, 0, 4, 0, 4);
    }
}
