//! The head of a payload, and the format of payloads. A payload is the encoded form of a building block in its access
//! units.
//!
//! ```text
//! payload := fixed head, 32 bytes
//!            frame ends, 4 bytes a frame     offset in the payload one past the frame; bit 31 set = stored raw
//!            frame tags, 16 bytes a frame    only when encrypted
//!            head tag, 16 bytes              only when encrypted; seals all of the above
//!            frames, back to back
//! ```
//! Numbers are little-endian. All lengths except those of the frames follow from the spec, so a reader knows the length
//! of the head before it reads anything ([`FrameLayout::head_bytes`]). Bytes after the last frame (the rest of the last
//! page) are ignored.
//!
//! Parsing follows smoltcp's rule: bytes are checked once, into a [`FrameTable`] in which every offset is valid.
//!
//! A payload has no checksum of its own: pages have one, and an encrypted payload has tags.

use std::ops::Range;

use super::crypt::TAG_BYTES;
use super::error::CodecError;
use super::spec::{Algorithm, CodecSpec, Filter};

/// Length of the fixed head in bytes; the frame ends follow it.
pub(super) const FIXED_BYTES: usize = 32;

const MAGIC: [u8; 4] = *b"nafr";

/// Flag in a frame end: the frame is stored raw.
const STORED: u32 = 1 << 31;

/// Offsets of the fixed head's fields, in bytes.
mod field {
    use std::ops::Range;
    pub(super) const MAGIC: Range<usize> = 0..4;
    pub(super) const VERSION: usize = 4;
    /// Compressor: 0 none, 1 LZ4 block, 2 zstd frame, 3 packed integers, 4 integers of varying widths.
    pub(super) const COMPRESSION: usize = 5;
    /// Filter: 0 none, 1 byte shuffle, 2 bit shuffle.
    pub(super) const FILTER: usize = 6;
    /// Encryption: 0 none, 1 AES-256-GCM-SIV.
    pub(super) const ENCRYPTION: usize = 7;
    pub(super) const ELEMENT_BYTES: Range<usize> = 8..12;
    pub(super) const FRAME_BYTES: Range<usize> = 12..16;
    pub(super) const FRAME_COUNT: Range<usize> = 16..20;
    pub(super) const BLOCK_BYTES: Range<usize> = 20..24;
    /// Sequence number, the first part of the nonces; zero if the payload is not encrypted.
    pub(super) const SEQUENCE: Range<usize> = 24..32;
}

const _: () = assert!(field::SEQUENCE.end == FIXED_BYTES, "the last field ends the fixed head");
const _: () = assert!(
    super::spec::BLOCK_BYTES_MAX * 2 < STORED as u64,
    "a frame end fits 31 bits: frames take no more than the block, and the head of a large block far less than that"
);

/// Sizes of a block and its frames, as they follow from a spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameLayout {
    pub(super) block_bytes: usize,
    pub(super) frame_bytes: usize,
    pub(super) frame_count: usize,
    pub(super) encrypted: bool,
}

impl FrameLayout {
    /// Computes the sizes from a validated spec.
    pub(super) fn new(spec: &CodecSpec) -> Self {
        let block_bytes = usize::try_from(spec.block_bytes).expect("a block of at most 256 MiB");
        let frame_bytes = spec.frame_bytes().min(block_bytes);
        let frame_count = block_bytes.div_ceil(frame_bytes);
        Self { block_bytes, frame_bytes, frame_count, encrypted: spec.encrypted }
    }

    /// Returns the length of the head in bytes: everything before the first frame.
    pub(super) fn head_bytes(&self) -> usize {
        let sealed = if self.encrypted { (self.frame_count + 1) * TAG_BYTES } else { 0 };
        self.tags_start() + sealed
    }

    /// Returns the payload offset of the first frame tag.
    fn tags_start(&self) -> usize {
        FIXED_BYTES + 4 * self.frame_count
    }

    /// Returns the range of the block's decoded bytes that one frame encodes.
    pub(super) fn raw_range(&self, frame: usize) -> Range<usize> {
        let start = frame * self.frame_bytes;
        start..(start + self.frame_bytes).min(self.block_bytes)
    }

    /// Returns the numbers of the frames that encode bytes of `raw`, a range of the block's decoded bytes.
    pub(super) fn frames(&self, raw: &Range<usize>) -> Result<Range<usize>, CodecError> {
        let Range { start, end } = *raw;
        if start > end || end > self.block_bytes {
            return Err(CodecError::Range { start, end, block_bytes: self.block_bytes });
        }
        let first = start / self.frame_bytes;
        Ok(if start == end { first..first } else { first..end.div_ceil(self.frame_bytes) })
    }
}

/// Builds the fixed head of a payload with this spec and sequence number.
pub(super) fn fixed_head(spec: &CodecSpec, layout: &FrameLayout, sequence: u64) -> [u8; FIXED_BYTES] {
    let number = |value: usize| u32::try_from(value).expect("sizes of a validated spec fit 32 bits").to_le_bytes();
    let mut head = [0; FIXED_BYTES];
    head[field::MAGIC].copy_from_slice(&MAGIC);
    head[field::VERSION] = spec.framing.number();
    head[field::COMPRESSION] = match spec.compression.map(|compression| compression.algorithm) {
        None => 0,
        Some(Algorithm::Lz4) => 1,
        Some(Algorithm::Zstd { .. }) => 2,
        Some(Algorithm::BitPack) => 3,
        Some(Algorithm::VarWidth) => 4,
    };
    head[field::FILTER] = match spec.compression.map_or(Filter::None, |compression| compression.filter) {
        Filter::None => 0,
        Filter::Shuffle => 1,
        Filter::BitShuffle => 2,
    };
    head[field::ENCRYPTION] = u8::from(spec.encrypted);
    head[field::ELEMENT_BYTES].copy_from_slice(&spec.element_bytes.to_le_bytes());
    head[field::FRAME_BYTES].copy_from_slice(&number(layout.frame_bytes));
    head[field::FRAME_COUNT].copy_from_slice(&number(layout.frame_count));
    head[field::BLOCK_BYTES].copy_from_slice(&number(layout.block_bytes));
    head[field::SEQUENCE].copy_from_slice(&(if spec.encrypted { sequence } else { 0 }).to_le_bytes());
    head
}

/// Writes the variable part of a payload's head while its frames are encoded.
pub(super) struct HeadWriter<'a> {
    layout: &'a FrameLayout,
    head: &'a mut [u8],
}

impl<'a> HeadWriter<'a> {
    /// Creates a writer to `head`, the first [`FrameLayout::head_bytes`] of a payload, in which the fixed head is
    /// already written.
    pub(super) fn new(layout: &'a FrameLayout, head: &'a mut [u8]) -> Self {
        assert_eq!(head.len(), layout.head_bytes());
        Self { layout, head }
    }

    pub(super) fn set_end(&mut self, frame: usize, end: usize, stored: bool) {
        let end = u32::try_from(end).expect("a payload is far below 2 GiB");
        assert!(end & STORED == 0, "a payload is far below 2 GiB");
        let entry = if stored { end | STORED } else { end };
        self.head[FIXED_BYTES + 4 * frame..][..4].copy_from_slice(&entry.to_le_bytes());
    }

    pub(super) fn set_tag(&mut self, frame: usize, tag: [u8; TAG_BYTES]) {
        assert!(self.layout.encrypted && frame < self.layout.frame_count);
        self.head[self.layout.tags_start() + TAG_BYTES * frame..][..TAG_BYTES].copy_from_slice(&tag);
    }

    /// Writes the head tag, which `seal` computes from the frame ends and frame tags.
    pub(super) fn seal(&mut self, seal: impl FnOnce(&[u8]) -> [u8; TAG_BYTES]) {
        assert!(self.layout.encrypted);
        let at = self.head.len() - TAG_BYTES;
        let tag = seal(&self.head[FIXED_BYTES..at]);
        self.head[at..].copy_from_slice(&tag);
    }
}

/// The end of one frame in a payload, and how it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FrameEntry {
    /// Payload offset after the frame's last byte.
    end: u32,
    stored: bool,
}

/// The checked frame table of one payload: the payload bytes of each frame. It is small and does not refer to the
/// payload's buffer, so a caller may keep it in order to read more of the block later.
#[derive(Debug, Clone)]
pub struct FrameTable {
    pub(super) layout: FrameLayout,
    pub(super) sequence: u64,
    /// Associated data that names the payload ([`super::crypt::FrameCipher::payload_aad`]); empty if not encrypted.
    pub(super) payload_aad: Vec<u8>,
    entries: Vec<FrameEntry>,
    /// Tags of all frames; empty if not encrypted.
    tags: Vec<[u8; TAG_BYTES]>,
}

impl FrameTable {
    /// Parses a head: checks the fixed head against the spec, and then all frame ends.
    pub(super) fn parse(spec: &CodecSpec, layout: FrameLayout, head: &[u8]) -> Result<Self, CodecError> {
        let needed = layout.head_bytes();
        let Some(head) = head.get(..needed) else {
            return Err(CodecError::Truncated {
                needed_start: 0,
                needed_end: needed,
                given_start: 0,
                given_end: head.len(),
            });
        };
        check_fixed(head, &fixed_head(spec, &layout, 0))?;
        let sequence = u64::from_le_bytes(head[field::SEQUENCE].try_into().expect("8 bytes"));
        if !layout.encrypted && sequence != 0 {
            return Err(CodecError::Head { field: "sequence", found: sequence, expected: 0 });
        }
        let entries = parse_entries(&layout, &head[FIXED_BYTES..layout.tags_start()])?;
        let (tags, _) = head[layout.tags_start()..].as_chunks::<TAG_BYTES>();
        let tags = tags[..if layout.encrypted { layout.frame_count } else { 0 }].to_vec();
        Ok(Self { layout, sequence, payload_aad: Vec::new(), entries, tags })
    }

    /// Returns the sequence number with which the payload was encoded; 0 if it is not encrypted.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the number of frames in the payload.
    #[must_use]
    pub fn frame_count(&self) -> usize {
        self.layout.frame_count
    }

    /// Returns the length of the payload in bytes: head and frames, without padding.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload_start(self.layout.frame_count)
    }

    /// Returns the numbers of the frames that encode bytes of `raw`, a range of the block's decoded bytes; none for an
    /// empty range.
    ///
    /// # Errors
    /// [`CodecError::Range`] if `raw` is not within the block.
    pub fn frames(&self, raw: Range<usize>) -> Result<Range<usize>, CodecError> {
        self.layout.frames(&raw)
    }

    /// Returns the range of the block's decoded bytes that these frames encode.
    ///
    /// # Panics
    /// If `frames` is not within [`Self::frame_count`].
    #[must_use]
    pub fn raw_range(&self, frames: Range<usize>) -> Range<usize> {
        assert!(frames.start <= frames.end && frames.end <= self.layout.frame_count);
        let at = |frame: usize| (frame * self.layout.frame_bytes).min(self.layout.block_bytes);
        at(frames.start)..at(frames.end)
    }

    /// Returns the range of payload bytes that these frames take.
    ///
    /// # Panics
    /// If `frames` is not within [`Self::frame_count`].
    #[must_use]
    pub fn payload_range(&self, frames: Range<usize>) -> Range<usize> {
        assert!(frames.start <= frames.end && frames.end <= self.layout.frame_count);
        self.payload_start(frames.start)..self.payload_start(frames.end)
    }

    /// Whether a frame is stored raw: neither filtered nor compressed.
    pub(super) fn stored(&self, frame: usize) -> bool {
        self.entries[frame].stored
    }

    /// Returns the authentication tag of a frame. Panics if the payload is not encrypted.
    pub(super) fn tag(&self, frame: usize) -> [u8; TAG_BYTES] {
        self.tags[frame]
    }

    /// Returns the payload offset of a frame's first byte; for the number of frames, the offset after the last frame.
    fn payload_start(&self, frame: usize) -> usize {
        match frame.checked_sub(1) {
            None => self.layout.head_bytes(),
            Some(before) => self.entries[before].end as usize,
        }
    }
}

fn check_fixed(head: &[u8], expected: &[u8; FIXED_BYTES]) -> Result<(), CodecError> {
    let fields = [
        ("magic", field::MAGIC),
        ("version", field::VERSION..field::VERSION + 1),
        ("compression", field::COMPRESSION..field::COMPRESSION + 1),
        ("filter", field::FILTER..field::FILTER + 1),
        ("encryption", field::ENCRYPTION..field::ENCRYPTION + 1),
        ("element bytes", field::ELEMENT_BYTES),
        ("frame bytes", field::FRAME_BYTES),
        ("frame count", field::FRAME_COUNT),
        ("block bytes", field::BLOCK_BYTES),
    ];
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
    for (field, range) in fields {
        let (found, expected) = (number(&head[range.clone()]), number(&expected[range]));
        if found != expected {
            return Err(CodecError::Head { field, found, expected });
        }
    }
    Ok(())
}

fn parse_entries(layout: &FrameLayout, bytes: &[u8]) -> Result<Vec<FrameEntry>, CodecError> {
    let mut start = layout.head_bytes();
    let (words, rest) = bytes.as_chunks::<4>();
    assert!(words.len() == layout.frame_count && rest.is_empty());
    let mut entries = Vec::with_capacity(layout.frame_count);
    for (frame, word) in words.iter().enumerate() {
        let word = u32::from_le_bytes(*word);
        let entry = FrameEntry { end: word & !STORED, stored: word & STORED != 0 };
        let end = entry.end as usize;
        let raw = layout.raw_range(frame).len();
        let good = match end.checked_sub(start) {
            Some(length) if entry.stored => length == raw,
            Some(length) => 0 < length && length < raw,
            None => false,
        };
        if !good {
            let found = end as i64 - start as i64;
            return Err(CodecError::FrameLength { frame, found, raw, stored: entry.stored });
        }
        entries.push(entry);
        start = end;
    }
    Ok(entries)
}
