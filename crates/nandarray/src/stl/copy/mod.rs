//! Copying of elements between a building block and the caller's buffer, in as few and long runs as the strides allow.
//!
//! A copy is a nest of [`Loop`]s, outermost first, around a run of contiguous bytes. Adjacent loops that are contiguous
//! on both sides are merged first, so that a whole block row, or a whole block, becomes one run. Loops are affine (a
//! stride on either side) or tables of offsets (outer selections by index lists).
//!
//! Large reads bypass the caches ([`copy_streaming`], [`stream`]): the destination does not fit into them, and reading
//! each line before it is overwritten would cost a third of the memory bandwidth.
//!
//! The functions are unsafe, because they do not check their loops: `plan`, which makes the loops, checks the bounds.

pub mod assemble;
pub mod rows;
pub mod stream;

use self::rows::{RowPiece, Rows};

/// One of the nested loops of a copy: its byte offsets in the source and in the destination.
#[derive(Clone, Copy, Debug)]
pub enum Loop<'a> {
    /// A loop of `n` steps with these byte strides.
    Affine {
        /// Number of steps of the loop.
        n: usize,
        /// Distance between steps in the source, in bytes.
        from: isize,
        /// Distance between steps in the destination, in bytes.
        to: isize,
    },
    /// A loop with one step for each pair of byte offsets (source, destination).
    Table(&'a [(isize, isize)]),
}

/// Merges loops whose steps are contiguous in both source and destination; the innermost ones become part of the
/// contiguous run. Returns the number of loops left at the front of `loops`, and the run's length in bytes.
pub fn merge(loops: &mut [Loop<'_>], item_bytes: usize) -> (usize, usize) {
    debug_assert!(item_bytes > 0, "elements have bytes");
    let mut run = item_bytes;
    let mut left = loops.len();
    while let Some(&Loop::Affine { n, from, to }) = left.checked_sub(1).map(|i| &loops[i]) {
        if n != 1 && (from != run as isize || to != run as isize) {
            break;
        }
        run *= n;
        left -= 1;
    }
    // Affine neighbours further out are merged as well, for fewer and longer loops.
    let mut kept = 0usize;
    for i in 0..left {
        let this = loops[i];
        if let (Some(j), Loop::Affine { n, from, to }) = (kept.checked_sub(1), this) {
            if n == 1 {
                continue;
            }
            if let Loop::Affine { n: n_out, from: from_out, to: to_out } = loops[j] {
                if from_out == from * n as isize && to_out == to * n as isize {
                    loops[j] = Loop::Affine { n: n_out * n, from, to };
                    continue;
                }
            }
        }
        loops[kept] = this;
        kept += 1;
    }
    debug_assert!(kept <= left && run >= item_bytes, "{kept} loops around {run} bytes");
    (kept, run)
}

/// Rows shorter than this, in bytes, are moved by loops specialised for their length.
const ROW_BYTES: usize = 1024;

/// Distance, in rows, from the row that is copied to the row that is prefetched.
const PREFETCH_ROWS: isize = 8;

/// Copies along merged loops, with stores that bypass the caches if the processor has them and runs are long enough;
/// for destinations that do not fit into the caches.
///
/// # Safety
/// As for [`copy`].
pub unsafe fn copy_streaming(loops: &[Loop<'_>], run: usize, from: *const u8, to: *mut u8) {
    if run < stream::RUN_BYTES_MIN || !stream::available() {
        // SAFETY: the caller's promise.
        return unsafe { copy(loops, run, from, to) };
    }
    // SAFETY: the caller's promise covers every address of the loops; the instructions are available.
    nest(loops, from, to, &|n, fs, ts, from, to| unsafe { stream::rows(n, fs, ts, run, from, to) });
}

/// Copies runs of `run` bytes along merged loops.
///
/// # Safety
/// Every address that the loops reach, `run` bytes each, must lie within readable memory on the source side and
/// writable memory on the destination side, and the two must not overlap.
pub unsafe fn copy(loops: &[Loop<'_>], run: usize, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise covers every address of the loops.
    nest(loops, from, to, &|n, fs, ts, from, to| unsafe { innermost(n, fs, ts, run, from, to) });
}

/// Calls `each` with the innermost loop, number of steps and both strides, and with both addresses of its first step,
/// for every step of the loops around it. A loop of one step takes its place if there is none, or if it is a table.
fn nest<F>(loops: &[Loop<'_>], from: *const u8, to: *mut u8, each: &F)
where
    F: Fn(usize, isize, isize, *const u8, *mut u8),
{
    match *loops {
        [] => each(1, 0, 0, from, to),
        [Loop::Affine { n, from: fs, to: ts }] => each(n, fs, ts, from, to),
        [Loop::Affine { n, from: fs, to: ts }, ref rest @ ..] => {
            for i in 0..n as isize {
                nest(rest, from.wrapping_offset(i * fs), to.wrapping_offset(i * ts), each);
            }
        }
        [Loop::Table(pairs), ref rest @ ..] => {
            for &(f, t) in pairs {
                nest(rest, from.wrapping_offset(f), to.wrapping_offset(t), each);
            }
        }
    }
}

/// Copies `n` runs of `run` bytes, `fs` bytes apart in the source and `ts` in the destination: the innermost loop of
/// [`copy`].
///
/// # Safety
/// As for [`copy`].
unsafe fn innermost(n: usize, fs: isize, ts: isize, run: usize, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's promise covers every address that these offsets reach; sizes are those of `run`.
    unsafe {
        match run {
            1 => fixed::<1>(n, fs, ts, from, to),
            2 => fixed::<2>(n, fs, ts, from, to),
            4 => fixed::<4>(n, fs, ts, from, to),
            8 => fixed::<8>(n, fs, ts, from, to),
            16 => fixed::<16>(n, fs, ts, from, to),
            32 => fixed::<32>(n, fs, ts, from, to),
            64 => fixed::<64>(n, fs, ts, from, to),
            ..ROW_BYTES if n > 1 => {
                let piece = RowPiece { from, items: 1, step: 0, bytes: run };
                // Successive rows of a block often lie in different pages, and the processor's own prefetching stops at
                // each page. The last rows prefetch themselves, which costs nothing.
                let ahead = (n as isize - PREFETCH_ROWS).max(0);
                for (first, n, ahead_rows) in [(0, ahead, PREFETCH_ROWS), (ahead, n as isize - ahead, 0)] {
                    let (from, to) = (from.offset(first * fs), to.offset(first * ts));
                    let next = from.wrapping_offset(ahead_rows * fs);
                    let rows = Rows { n: n as usize, from, from_step: fs, to, to_step: ts, next, next_step: fs };
                    rows::copy(&rows, &piece);
                }
            }
            _ => {
                for i in 0..n as isize {
                    std::ptr::copy_nonoverlapping(from.offset(i * fs), to.offset(i * ts), run);
                }
            }
        }
    }
}

/// Copies `n` runs of `BYTES` bytes, `fs` bytes apart in the source and `ts` in the destination.
///
/// # Safety
/// As for [`copy`].
unsafe fn fixed<const BYTES: usize>(n: usize, fs: isize, ts: isize, from: *const u8, to: *mut u8) {
    // SAFETY: arrays of bytes have no alignment; the caller's promise covers every address.
    unsafe {
        if ts == BYTES as isize {
            // The usual case, a gather into a contiguous row: the destination's stride is a constant.
            let to = to.cast::<[u8; BYTES]>();
            for i in 0..n {
                to.add(i).write_unaligned(from.offset(i as isize * fs).cast::<[u8; BYTES]>().read_unaligned());
            }
        } else {
            for i in 0..n as isize {
                let element = from.offset(i * fs).cast::<[u8; BYTES]>().read_unaligned();
                to.offset(i * ts).cast::<[u8; BYTES]>().write_unaligned(element);
            }
        }
    }
}

/// Writes `pattern` (one element) to every element that the loops reach on the destination side.
///
/// # Safety
/// As for [`copy`], on the destination side; the loops must not be merged yet.
pub unsafe fn fill(loops: &[Loop<'_>], pattern: &[u8], to: *mut u8) {
    debug_assert!(!pattern.is_empty(), "the fill value is an element");
    let mut run = pattern.len();
    let mut left = loops.len();
    while let Some(&Loop::Affine { n, to: ts, .. }) = left.checked_sub(1).map(|i| &loops[i]) {
        if n != 1 && ts != run as isize {
            break;
        }
        run *= n;
        left -= 1;
    }
    nest(&loops[..left], to, to, &|n, _, ts, _, to| {
        for i in 0..n as isize {
            // SAFETY: the runs found above are contiguous on the destination side, which the caller promises to be
            // writable.
            fill_bytes(unsafe { std::slice::from_raw_parts_mut(to.offset(i * ts), run) }, pattern);
        }
    });
}

/// Repeats `pattern` over `bytes`; the last repetition may be incomplete.
pub fn fill_bytes(bytes: &mut [u8], pattern: &[u8]) {
    debug_assert!(!pattern.is_empty(), "the fill value is an element");
    if pattern.iter().all(|&b| b == pattern[0]) {
        bytes.fill(pattern[0]);
        return;
    }
    let first = pattern.len().min(bytes.len());
    bytes[..first].copy_from_slice(&pattern[..first]);
    let mut done = first;
    while done < bytes.len() {
        let n = done.min(bytes.len() - done);
        bytes.copy_within(..n, done);
        done += n;
    }
}

/// Whether `bytes` consist of repetitions of `pattern`, beginning `phase` bytes into the pattern.
pub fn is_fill(bytes: &[u8], pattern: &[u8], phase: usize) -> bool {
    debug_assert!(!pattern.is_empty(), "the fill value is an element");
    if pattern.iter().all(|&b| b == pattern[0]) {
        let want = u64::from_ne_bytes([pattern[0]; 8]);
        let (head, words) = bytes.as_rchunks::<8>();
        return words.iter().all(|w| u64::from_ne_bytes(*w) == want) && head.iter().all(|&b| b == pattern[0]);
    }
    let phase = phase % pattern.len();
    bytes.iter().zip(pattern.iter().cycle().skip(phase)).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contiguous_box_is_one_run() {
        let mut loops = [Loop::Affine { n: 3, from: 8, to: 8 }, Loop::Affine { n: 2, from: 4, to: 4 }];
        assert_eq!(merge(&mut loops, 4), (0, 24));
        let mut loops = [Loop::Affine { n: 3, from: 16, to: 8 }, Loop::Affine { n: 2, from: 4, to: 4 }];
        assert_eq!(merge(&mut loops, 4), (1, 8));
    }

    #[test]
    fn transposes_through_strides() {
        let from: Vec<u8> = (0..12).collect();
        let mut to = vec![0u8; 12];
        let mut loops = [Loop::Affine { n: 3, from: 4, to: 1 }, Loop::Affine { n: 4, from: 1, to: 3 }];
        let (left, run) = merge(&mut loops, 1);
        // SAFETY: 3 x 4 elements of one byte on either side.
        unsafe { copy(&loops[..left], run, from.as_ptr(), to.as_mut_ptr()) };
        assert_eq!(to, [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
    }

    #[test]
    fn fills_and_knows_fill() {
        let mut bytes = vec![9u8; 24];
        let loops = [Loop::Affine { n: 2, from: 0, to: 12 }, Loop::Affine { n: 2, from: 0, to: 3 }];
        // SAFETY: the loops reach bytes 0..6 and 12..18.
        unsafe { fill(&loops, &[1, 2, 3], bytes.as_mut_ptr()) };
        assert_eq!(bytes[..6], [1, 2, 3, 1, 2, 3]);
        assert_eq!(bytes[6..12], [9; 6]);
        assert_eq!(bytes[12..18], [1, 2, 3, 1, 2, 3]);
        assert!(is_fill(&[2, 3, 1, 2], &[1, 2, 3], 1));
        assert!(!is_fill(&[2, 3, 1, 3], &[1, 2, 3], 1));
        assert!(is_fill(&[0; 1001], &[0, 0], 0));
        let mut odd = vec![0u8; 1001];
        odd[1000] = 1;
        assert!(!is_fill(&odd, &[0, 0], 0));
    }
}
