//! Rows copied past the caches, four at a time.
//!
//! Measured on two cores of a Sapphire Rapids machine, 256 x 256 float32 blocks from a mapped file into rows of 64 KiB
//! (GB/s, one thread / two): library copy a row 3.2 / 4.7, 64-byte non-temporal stores 6.8 / 12.0, the same with four rows
//! of the block in turn 7.9 / 14.3. Four rows keep four pages of the mapping in flight, which hides the start of each: the
//! hardware's prefetching stops at the end of a page.
//!
//! Only for x86-64 with AVX-512 (64-byte stores fill a cache line, so that no line is written in parts); elsewhere
//! [`available`] says no and the library's copy serves.

/// Runs shorter than this are copied as they are: their ends, which are not whole lines, would be most of them.
pub const RUN_BYTES_MIN: usize = 256;

/// A single run at least this long is taken as four.
const SPLIT_BYTES: usize = 16 << 10;

/// The most loops around a joined row.
pub const MAX_OUTER: usize = 8;

/// A loop around a row: steps and byte strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Affine {
    /// Steps.
    pub n: usize,
    /// Stride of the source.
    pub from: isize,
    /// Stride of the destination.
    pub to: isize,
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{__m512i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm512_loadu_si512, _mm512_stream_si512};

    use super::{Affine, MAX_OUTER};

    const LINE: usize = 64;

    /// One row on its way: the part between the first and the last whole line of the destination.
    #[derive(Clone, Copy)]
    struct Body {
        from: *const u8,
        to: *mut u8,
        lines: usize,
    }

    /// # Safety
    /// `run` bytes at both addresses, as for `copy`.
    unsafe fn ends(run: usize, from: *const u8, to: *mut u8) -> Body {
        let head = to.align_offset(LINE).min(run);
        let lines = (run - head) / LINE;
        let tail = head + lines * LINE;
        // SAFETY: all within the row's `run` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), run - tail);
            Body { from: from.add(head), to: to.add(head), lines }
        }
    }

    /// # Safety
    /// AVX-512F must be available, and the lines within the bodies.
    #[target_feature(enable = "avx512f")]
    unsafe fn lines<const ROWS: usize>(bodies: [Body; ROWS], first: usize, end: usize) {
        for line in first..end {
            for body in &bodies {
                // SAFETY: `line` is below the body's count; its destination is aligned to a line.
                unsafe {
                    let value = _mm512_loadu_si512(body.from.add(line * LINE).cast::<__m512i>());
                    _mm512_stream_si512(body.to.add(line * LINE).cast::<__m512i>(), value);
                }
            }
        }
    }

    /// A row that is put together before it is streamed; as large as a page or two stay in the innermost cache.
    #[repr(align(64))]
    struct Stage([u8; STAGE_BYTES + LINE]);

    const STAGE_BYTES: usize = 8 << 10;
    /// How far ahead narrow rows are asked for.
    const AHEAD_BYTES: usize = 8 << 10;

    /// # Safety
    /// Each piece must be readable for its length plus every offset of `outer`, `to` writable likewise for their sum, and
    /// AVX-512F available.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn joined(outer: &[Affine], pieces: &[(*const u8, usize)], to: *mut u8) {
        let mut stage = Stage([0; STAGE_BYTES + LINE]);
        let mut at = [0usize; MAX_OUTER];
        let row: usize = pieces.iter().map(|p| p.1).sum();
        let ahead = AHEAD_BYTES / row.max(1);
        loop {
            let (mut from_offset, mut to_offset) = (0isize, 0isize);
            for (i, l) in at.iter().zip(outer) {
                from_offset += *i as isize * l.from;
                to_offset += *i as isize * l.to;
            }
            if let Some(inner) = outer.last().filter(|_| ahead > 0) {
                for &(from, len) in pieces {
                    let next = from.wrapping_offset(from_offset + ahead as isize * inner.from);
                    for line in (0..len).step_by(LINE) {
                        // Asking ahead for any address is harmless.
                        _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(line).cast());
                    }
                }
            }
            // SAFETY: the caller's promise.
            unsafe { joined_row(&mut stage, pieces, from_offset, to.offset(to_offset)) };
            let Some(d) = (0..outer.len()).rev().find(|&d| at[d] + 1 < outer[d].n) else { break };
            at[d] += 1;
            at[d + 1..outer.len()].fill(0);
        }
        _mm_sfence();
    }

    /// # Safety
    /// As for [`joined`].
    #[target_feature(enable = "avx512f")]
    unsafe fn joined_row(stage: &mut Stage, pieces: &[(*const u8, usize)], offset: isize, to: *mut u8) {
        // Bytes of the stage lie as far behind a line's start as those of the destination.
        let lead = to as usize % LINE;
        // SAFETY: `lead` bytes before `to` are only reckoned with, never touched.
        let line0 = to.wrapping_sub(lead);
        let (mut filled, mut done) = (lead, 0);
        let mut skip = lead;
        for &(from, len) in pieces {
            let mut taken = 0;
            while taken < len {
                let n = (STAGE_BYTES - filled).min(len - taken);
                // SAFETY: within the piece, and within the stage.
                unsafe {
                    let source = from.offset(offset + taken as isize);
                    std::ptr::copy_nonoverlapping(source, stage.0.as_mut_ptr().add(filled), n);
                }
                filled += n;
                taken += n;
                if filled == STAGE_BYTES {
                    // SAFETY: the stage's first `filled` bytes are the destination's from `done` on.
                    unsafe { empty(stage, skip, filled, line0.wrapping_add(done)) };
                    done += filled;
                    (filled, skip) = (0, 0);
                }
            }
        }
        // SAFETY: as above.
        unsafe { empty(stage, skip, filled, line0.wrapping_add(done)) };
    }

    /// Streams bytes `skip..filled` of the stage to the same offsets from `line0`, which is aligned to a line; parts of lines
    /// at either end are stored as usual.
    ///
    /// # Safety
    /// These bytes of the destination must be writable.
    #[target_feature(enable = "avx512f")]
    unsafe fn empty(stage: &Stage, skip: usize, filled: usize, line0: *mut u8) {
        if skip >= filled {
            return;
        }
        let first = skip.next_multiple_of(LINE).min(filled);
        let last = (filled / LINE * LINE).max(first);
        let base = stage.0.as_ptr();
        // SAFETY: within the stage and the destination; lines are aligned on both sides.
        unsafe {
            std::ptr::copy_nonoverlapping(base.add(skip), line0.wrapping_add(skip), first - skip);
            let mut at = first;
            while at < last {
                let value = _mm512_loadu_si512(base.add(at).cast::<__m512i>());
                _mm512_stream_si512(line0.wrapping_add(at).cast::<__m512i>(), value);
                at += LINE;
            }
            std::ptr::copy_nonoverlapping(base.add(last), line0.wrapping_add(last), filled - last);
        }
    }

    /// # Safety
    /// As for `copy`, and AVX-512F must be available.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn rows(n: usize, fs: isize, ts: isize, run: usize, from: *const u8, to: *mut u8) {
        // Rows far apart in turn: neighbours of a block lie in the same page.
        let quarter = n / 4;
        // SAFETY: the caller's promise covers every row.
        unsafe {
            let row = |i: usize| ends(run, from.offset(i as isize * fs), to.offset(i as isize * ts));
            for i in 0..quarter {
                let four = [row(i), row(i + quarter), row(i + 2 * quarter), row(i + 3 * quarter)];
                let common = four.iter().map(|b| b.lines).min().expect("four rows");
                lines(four, 0, common);
                for body in four {
                    lines([body], common, body.lines);
                }
            }
            for i in 4 * quarter..n {
                let body = row(i);
                lines([body], 0, body.lines);
            }
        }
        // Streamed stores are not ordered with others: before anybody is told that the data is there, they must be.
        _mm_sfence();
    }
}

/// Copies rows that are put together from pieces (neighbouring blocks), all moved by the same loops: where rows of single
/// blocks begin and end within cache lines, whole lines are written all the same.
///
/// # Safety
/// Each piece must be readable for its length at every offset that `outer` gives, and `to` writable for the sum of the
/// lengths; [`available`] must have said yes, and `outer` have at most [`MAX_OUTER`] loops.
pub unsafe fn joined(outer: &[Affine], pieces: &[(*const u8, usize)], to: *mut u8) {
    assert!(outer.len() <= MAX_OUTER);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        x86::joined(outer, pieces, to);
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (pieces, to);
        unreachable!("`available` says no");
    }
}

/// Asks the processor to bring a line into its caches; any address will do.
#[inline]
pub fn ask(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which never faults; SSE is part of every x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Whether the processor can.
pub fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Copies `n` rows of `run` bytes.
///
/// # Safety
/// As for `copy::copy`; [`available`] must have said yes.
pub unsafe fn rows(n: usize, fs: isize, ts: isize, run: usize, from: *const u8, to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; a long run taken as four and the rest covers the same bytes.
    unsafe {
        if n == 1 && run >= SPLIT_BYTES {
            let part = (run / 4) & !63;
            x86::rows(4, part as isize, part as isize, part, from, to);
            x86::rows(1, 0, 0, run - 4 * part, from.add(4 * part), to.add(4 * part));
        } else {
            x86::rows(n, fs, ts, run, from, to);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (n, fs, ts, run, from, to);
        unreachable!("`available` says no");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn joined_rows_arrive(lens in prop::collection::vec(1usize..3000, 1..7), n in 1usize..4, m in 1usize..3, at in 0usize..64, gap in 0usize..70) {
            prop_assume!(available());
            let row: usize = lens.iter().sum();
            let (fs, ts) = (lens.iter().max().unwrap() + 5, row + gap);
            let from: Vec<Vec<u8>> = lens.iter().enumerate().map(|(k, _)| (0..n * m * fs).map(|i| (i * 31 + k * 7) as u8).collect()).collect();
            let mut to = vec![0xeeu8; n * m * ts + at + 64];
            let pieces: Vec<(*const u8, usize)> = from.iter().zip(&lens).map(|(f, &l)| (f.as_ptr(), l)).collect();
            let outer = [Affine { n, from: (m * fs) as isize, to: (m * ts) as isize }, Affine { n: m, from: fs as isize, to: ts as isize }];
            // SAFETY: n x m rows lie within every piece and the destination.
            unsafe { joined(&outer, &pieces, to[at..].as_mut_ptr()) };
            prop_assert!(to[..at].iter().all(|&b| b == 0xee));
            for r in 0..n * m {
                let mut here = at + r * ts;
                for (f, &l) in from.iter().zip(&lens) {
                    prop_assert_eq!(&to[here..here + l], &f[r * fs..][..l]);
                    here += l;
                }
                prop_assert!(to[here..][..gap].iter().all(|&b| b == 0xee));
            }
        }

        #[test]
        fn rows_arrive_wherever_they_lie(n in 1usize..11, run in 1usize..700, from_gap in 0usize..70, to_gap in 0usize..70, at in 0usize..64, long in any::<bool>()) {
            prop_assume!(available());
            let (n, run) = if long { (1, run + SPLIT_BYTES) } else { (n, run) };
            let (fs, ts) = (run + from_gap, run + to_gap);
            let from: Vec<u8> = (0..n * fs + at).map(|i| (i * 31 % 251) as u8).collect();
            let mut to = vec![0xffu8; n * ts + at];
            // SAFETY: `n` rows of `run` bytes lie within both buffers.
            unsafe { rows(n, fs as isize, ts as isize, run, from[at..].as_ptr(), to[at..].as_mut_ptr()) };
            for i in 0..n {
                prop_assert_eq!(&to[at + i * ts..][..run], &from[at + i * fs..][..run]);
                prop_assert!(to[at + i * ts + run..][..to_gap].iter().all(|&b| b == 0xff));
            }
        }
    }
}
