//! Encoding of one frame, without its encryption: filter, then compress; and the reverse.
//!
//! A frame that does not shrink by at least 1/64 is stored as its raw bytes, unfiltered, so that reading it is a copy.
//! Each thread keeps its compressor contexts and working buffers and reuses them for all frames ([`with_scratch`]). The
//! buffers contain the last frame's plaintext until the thread's next frame or its end.
//!
//! Choice of the LZ4 library (Sapphire Rapids VM, one core, 32 KiB frames; decoding in GB/s on smooth f32 and noisy
//! u32, byte- and bit-shuffled): liblz4 1.10 through crate `lz4` 12, 4.8, 7.1; lz4_flex 0.14 unsafe 2.7, 0.8, 1.4, safe
//! 3.9, 3.8, 0.9. Without a filter they are equally fast (1.1), and so in encoding (0.4 to 8). Ratios agree to 2 %.
//!
//! It does not trust a compressed frame: the size that a frame claims never decides an allocation.

use std::cell::RefCell;

use lz4::block::CompressionMode;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::ResetDirective;

use super::bitshuffle::{bit_shuffle, bit_unshuffle};
use super::shuffle::{shuffle, unshuffle};
use super::spec::{Algorithm, Compression, Filter};
use super::{bitpack, varwidth};

/// LZ4's acceleration: a higher value searches less for matches. Blosc uses this value at its default level. Half a
/// gigabyte of shuffled float32 in frames of 8 KiB takes a quarter less time to compress than with 1, and 3 % more
/// space.
const LZ4_ACCELERATION: i32 = 5;

/// A thread's compressor contexts and working buffers.
#[derive(Default)]
pub(super) struct Scratch {
    /// Working buffer: the bytes of a frame after its filter.
    filtered: Vec<u8>,
    /// Byte planes between the two steps of a bit shuffle.
    planes: Vec<u8>,
    /// Integers from which the reference was subtracted.
    shifted: Vec<u8>,
    /// Working buffer: the output of a compressor.
    packed: Vec<u8>,
    /// A compressed frame after its decryption.
    opened: Vec<u8>,
    /// Context of zstd, with the compression level that it is set to; `None` before its first use.
    compressor: Option<(i32, Compressor<'static>)>,
    decompressor: Option<Decompressor<'static>>,
}

impl Scratch {
    /// Takes a buffer of `bytes` bytes of any content, to be returned by [`Self::put_opened`].
    pub(super) fn take_opened(&mut self, bytes: usize) -> Vec<u8> {
        let mut opened = std::mem::take(&mut self.opened);
        opened.resize(bytes, 0);
        opened
    }

    /// Takes back a buffer that [`Self::take_opened`] handed out, for the next frame.
    pub(super) fn put_opened(&mut self, opened: Vec<u8>) {
        self.opened = opened;
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Calls `work` with this thread's scratch; `work` must not call this function again.
pub(super) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(work)
}

/// Returns the largest size in bytes of a compressed frame; a frame that needs more is stored raw.
fn packed_bytes_max(raw_bytes: usize) -> usize {
    raw_bytes - (raw_bytes / 64).max(1)
}

/// Appends one encoded frame to `out`; returns whether it is stored raw.
pub(super) fn encode(
    compression: Option<Compression>,
    element_bytes: usize,
    raw: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> bool {
    if let Some(Compression { algorithm, filter }) = compression {
        let Scratch { filtered, planes, packed, shifted, compressor, .. } = scratch;
        packed.resize(packed_bytes_max(raw.len()), 0);
        let source = match filter {
            Filter::None => raw,
            Filter::Shuffle => {
                filtered.resize(raw.len(), 0);
                shuffle(element_bytes, raw, filtered);
                filtered
            }
            Filter::BitShuffle => {
                filtered.resize(raw.len(), 0);
                bit_shuffle(element_bytes, raw, filtered, planes);
                filtered
            }
        };
        let bytes = match algorithm {
            Algorithm::Lz4 => compress_lz4(source, packed),
            Algorithm::Zstd { level } => compress_zstd(level, source, compressor, packed),
            Algorithm::BitPack => bitpack::pack(element_bytes, source, shifted, packed),
            Algorithm::VarWidth => varwidth::pack(element_bytes, source, packed),
        };
        if let Some(bytes) = bytes {
            out.extend_from_slice(&packed[..bytes]);
            return false;
        }
    }
    out.extend_from_slice(raw);
    true
}

/// Decodes a compressed (not stored) frame into `raw`. Returns `false`, and leaves arbitrary bytes in `raw`, if
/// `packed` is not a frame with this decoded length.
pub(super) fn decode(
    Compression { algorithm, filter }: Compression,
    element_bytes: usize,
    packed: &[u8],
    scratch: &mut Scratch,
    raw: &mut [u8],
) -> bool {
    let Scratch { filtered, planes, decompressor, .. } = scratch;
    if filter == Filter::None {
        return decompress(algorithm, element_bytes, packed, decompressor, raw);
    }
    filtered.resize(raw.len(), 0);
    if !decompress(algorithm, element_bytes, packed, decompressor, filtered) {
        return false;
    }
    match filter {
        Filter::None => unreachable!("returned above"),
        Filter::Shuffle => unshuffle(element_bytes, filtered, raw),
        Filter::BitShuffle => bit_unshuffle(element_bytes, filtered, raw, planes),
    }
    true
}

/// Compresses by LZ4 into `packed`; returns the compressed length, `None` if it does not fit.
fn compress_lz4(source: &[u8], packed: &mut [u8]) -> Option<usize> {
    let mode = Some(CompressionMode::FAST(LZ4_ACCELERATION));
    lz4::block::compress_to_buffer(source, mode, false, packed).ok()
}

/// Compresses by zstd into `packed`; returns the compressed length, `None` if it does not fit.
fn compress_zstd(
    level: i32,
    source: &[u8],
    compressor: &mut Option<(i32, Compressor<'static>)>,
    packed: &mut [u8],
) -> Option<usize> {
    let (set, compressor) =
        compressor.get_or_insert_with(|| (level, Compressor::new(level).expect("a zstd context and level")));
    if *set != level {
        // A frame that did not fit leaves its session open, and zstd accepts parameters only between sessions.
        compressor.context_mut().reset(ResetDirective::SessionOnly).expect("ending a zstd session cannot fail");
        compressor.set_compression_level(level).expect("a validated zstd level");
        *set = level;
    }
    compressor.compress_to_buffer(source, packed).ok()
}

/// Decompresses `packed` into `out`; returns whether that gave exactly `out.len()` bytes.
fn decompress(
    algorithm: Algorithm,
    element_bytes: usize,
    packed: &[u8],
    decompressor: &mut Option<Decompressor<'static>>,
    out: &mut [u8],
) -> bool {
    let written = match algorithm {
        Algorithm::Lz4 => {
            let size = i32::try_from(out.len()).expect("a frame is far below 2 GiB");
            lz4::block::decompress_to_buffer(packed, Some(size), out)
        }
        // One call with the whole destination: zstd then decodes in place and allocates no window, whatever size the
        // frame claims.
        Algorithm::Zstd { .. } => decompressor
            .get_or_insert_with(|| Decompressor::new().expect("a zstd context"))
            .decompress_to_buffer(packed, out),
        Algorithm::BitPack => return bitpack::unpack(element_bytes, packed, out),
        Algorithm::VarWidth => return varwidth::unpack(element_bytes, packed, out),
    };
    written.is_ok_and(|written| written == out.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LZ4: Compression = Compression { algorithm: Algorithm::Lz4, filter: Filter::None };

    #[test]
    fn an_incompressible_frame_is_stored_unfiltered() {
        let mut state = 1_u32;
        let noise: Vec<u8> = (0..1000)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_le_bytes()[3]
            })
            .collect();
        for text in ["lz4", "zstd:19", "lz4+shuffle", "zstd+bitshuffle"] {
            let mut out = vec![7];
            let stored = with_scratch(|scratch| encode(text.parse().ok(), 4, &noise, scratch, &mut out));
            assert!(stored, "{text}");
            assert_eq!(out[1..], noise, "{text}");
        }
    }

    #[test]
    fn tiny_frames_are_stored() {
        for length in 1..10 {
            let mut out = Vec::new();
            assert!(with_scratch(|scratch| encode(Some(LZ4), 1, &vec![0; length], scratch, &mut out)));
            assert_eq!(out, vec![0; length]);
        }
    }

    #[test]
    fn levels_change_between_frames_of_a_thread() {
        let raw: Vec<u8> = (0..30_000_u32).map(|i| (i / 7 % 50 * (i % 3)) as u8).collect();
        let encoded = |level| {
            let zstd = Compression { algorithm: Algorithm::Zstd { level }, filter: Filter::None };
            let mut out = Vec::new();
            assert!(!with_scratch(|scratch| encode(Some(zstd), 1, &raw, scratch, &mut out)));
            out
        };
        let (fast, dense) = (encoded(1), encoded(19));
        assert!(dense.len() < fast.len());
        assert_eq!(fast, encoded(1), "the output must not depend on what the thread encoded before");
        assert_eq!(dense, encoded(19));
    }
}
