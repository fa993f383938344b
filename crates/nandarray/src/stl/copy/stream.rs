//! Copies rows with stores that bypass the caches, four rows at a time.
//!
//! Measured on two cores of a Sapphire Rapids machine, 256 x 256 float32 blocks from a mapped file into rows of 64 KiB
//! (GB/s, one thread / two): a library copy for each row 3.2 / 4.7, 64-byte non-temporal stores 6.8 / 12.0, the same
//! with four rows of the block in turn 7.9 / 14.3. Four rows keep four pages of the mapping in flight, which hides the
//! latency of the first access to each: the hardware's prefetching stops at the end of a page.
//!
//! On two cores of a Zen 5 machine, the rows `2d-lz4 column-bands` and `blocks-unaligned` of `bench run` take 1.07 and
//! 1.06 times as long without it; no other row differs.
//!
//! Only for x86-64 with AVX-512, whose 64-byte stores fill a whole cache line; elsewhere [`available`] is false and the
//! library's copy is used.

/// Size of a cache line of the processor, in bytes.
pub const LINE: usize = 64;

/// Shortest run, in bytes, that is streamed: in shorter ones the ends, which are not whole lines, would be the larger
/// part.
pub const RUN_BYTES_MIN: usize = 256;

/// Shortest length, in bytes, of a single run that is cut into four parts, which are copied in turn.
const SPLIT_BYTES: usize = 16 << 10;

const _: () = assert!(RUN_BYTES_MIN >= LINE && SPLIT_BYTES >= 4 * LINE, "parts of runs are lines");

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{__m512i, _mm_sfence, _mm512_loadu_si512, _mm512_stream_si512};

    use super::LINE;

    /// The middle of a row that is being copied: the whole cache lines of the destination.
    #[derive(Clone, Copy)]
    struct Body {
        from: *const u8,
        to: *mut u8,
        lines: usize,
    }

    /// Copies the bytes of a row before and after the whole cache lines of the destination; returns these lines.
    ///
    /// # Safety
    /// `run` bytes must be readable at `from` and writable at `to`, as for `copy`.
    unsafe fn ends(run: usize, from: *const u8, to: *mut u8) -> Body {
        let head = to.align_offset(LINE).min(run);
        let lines = (run - head) / LINE;
        let tail = head + lines * LINE;
        debug_assert!(run - tail < LINE || lines == 0, "{run} bytes: {head}, {lines} lines");
        // SAFETY: all within the row's `run` bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), run - tail);
            Body { from: from.add(head), to: to.add(head), lines }
        }
    }

    /// Copies the cache lines `first..end` of several rows past the caches: one line of every row, then the next line
    /// of every row.
    ///
    /// # Safety
    /// AVX-512F must be available, and lines from `first` to `end` must lie within the bodies.
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

    /// Copies `n` rows of `run` bytes past the caches, four rows at a time.
    ///
    /// # Safety
    /// As for `copy`, and AVX-512F must be available.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn rows(n: usize, fs: isize, ts: isize, run: usize, from: *const u8, to: *mut u8) {
        // Rows far apart are copied in turn, since neighbouring rows of a block lie in the same page.
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
        _mm_sfence();
    }

    /// Copies one run past the caches; [`super::fence`] must follow.
    ///
    /// # Safety
    /// As for [`super::run`]; AVX-512F must be available.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn run(run: usize, from: *const u8, to: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            let body = ends(run, from, to);
            lines([body], 0, body.lines);
        }
    }
}

/// Copies one run of bytes past the caches, with the library's copy if it is short or the instructions are not
/// [`available`]. [`fence`] must follow.
///
/// # Safety
/// `run` bytes must be readable at `from` and writable at `to`, and not overlap.
pub unsafe fn run(run: usize, from: *const u8, to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if run >= RUN_BYTES_MIN && available() {
        // SAFETY: the caller's promise; the instructions are available.
        return unsafe { x86::run(run, from, to) };
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, run) };
}

/// Orders streamed stores before later ones. Must be called before another thread learns that the data is complete.
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of every x86-64.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Prefetches a line into the processor's caches; any address is allowed.
#[inline]
pub fn prefetch_line(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which never faults; SSE is part of every x86-64.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Whether the processor has the AVX-512 instructions that streaming needs.
pub fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512f");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Smallest size, in bytes, of a destination that is written past the caches: more than one core's share of a shared
/// cache.
const PAST_BYTES: u64 = 24 << 20;

/// Whether short pieces of a destination of this many bytes are faster written past the caches than in place. Not on
/// AMD's processors (design note 5).
pub fn gains(bytes: u64) -> bool {
    static GAINS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    bytes >= PAST_BYTES && *GAINS.get_or_init(|| available() && !is_amd())
}

/// Whether the processor is made by AMD.
#[cfg(target_arch = "x86_64")]
fn is_amd() -> bool {
    // The call is safe in newer compilers, but not in the oldest one that is supported.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 processor has leaf 0 of this instruction.
    let maker = unsafe { std::arch::x86_64::__cpuid(0) };
    // "Auth", "enti", "cAMD".
    [maker.ebx, maker.edx, maker.ecx] == [0x6874_7541, 0x6974_6e65, 0x444d_4163]
}

#[cfg(not(target_arch = "x86_64"))]
fn is_amd() -> bool {
    false
}

/// Copies `n` rows of `run` bytes, `fs` bytes apart in the source and `ts` in the destination, past the caches.
///
/// # Safety
/// As for `copy::copy`; [`available`] must have returned true.
pub unsafe fn rows(n: usize, fs: isize, ts: isize, run: usize, from: *const u8, to: *mut u8) {
    debug_assert!(available(), "the instructions are not available");
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the four parts of a long run and its rest cover the same bytes.
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

    #[test]
    fn whether_this_machine_has_the_instructions_is_said() {
        if !available() {
            eprintln!("skipped: rows past the caches need AVX-512, which this processor lacks");
        }
    }

    #[test]
    fn a_run_arrives_whole_and_touches_nothing_else() {
        let source: Vec<u8> = (0..5000).map(|i| (i * 31 % 251) as u8).collect();
        for bytes in [0, 1, 63, 64, RUN_BYTES_MIN - 1, RUN_BYTES_MIN, 512, 4096, 4200] {
            for at in [0, 1, 16, 63] {
                let mut got = vec![0xee; 4400];
                // SAFETY: both vectors have room.
                unsafe { run(bytes, source[at..].as_ptr(), got[at..].as_mut_ptr()) };
                fence();
                assert!(got[at..at + bytes] == source[at..at + bytes], "{bytes} bytes at {at}");
                assert!(got[..at].iter().chain(&got[at + bytes..]).all(|&b| b == 0xee), "{bytes} bytes at {at}");
            }
        }
    }

    proptest! {
        #[test]
        fn rows_arrive_wherever_they_lie(
            n in 1usize..11,
            run in 1usize..700,
            (from_gap, to_gap) in (0usize..70, 0usize..70),
            at in 0usize..64,
            long in any::<bool>(),
        ) {
            if !available() {
                return Ok(()); // said once, below
            }
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
