//! Errors of encoding a building block and of decoding its payload.
//!
//! A payload is untrusted: for any bytes, decoding returns a [`CodecError`] or bytes, never panics, and allocates no
//! more than the spec's own sizes. Without encryption a damaged frame may decode to wrong bytes of the right length;
//! the store's page checksum (CRC-32C) detects that.

use thiserror::Error;

/// Failure of [`super::Codec`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The block to encode, or the buffer to decode into, is not of the spec's size.
    #[error("buffer of {found} bytes: expected {expected}")]
    BufferLength {
        /// Bytes given.
        found: usize,
        /// Bytes that the spec asks for.
        expected: usize,
    },
    /// The range is not within the block.
    #[error("range {start}..{end} of a block of {block_bytes} bytes")]
    Range {
        /// First byte requested.
        start: usize,
        /// One past the last byte requested.
        end: usize,
        /// Raw size of the block.
        block_bytes: usize,
    },
    /// The payload, or the piece of it given, does not hold the bytes needed.
    #[error("payload bytes {needed_start}..{needed_end} needed, {given_start}..{given_end} given")]
    Truncated {
        /// First payload byte needed.
        needed_start: usize,
        /// One past the last payload byte needed.
        needed_end: usize,
        /// First payload byte given.
        given_start: usize,
        /// One past the last payload byte given.
        given_end: usize,
    },
    /// A field of the payload's head is not what the space's spec says.
    #[error("payload head: {field} is {found}, expected {expected}")]
    Head {
        /// The field's name.
        field: &'static str,
        /// The payload's value.
        found: u64,
        /// The spec's value.
        expected: u64,
    },
    /// A frame's end makes the frame empty, longer than its raw bytes, or of a wrong stored size.
    #[error("payload head: frame {frame} has {found} bytes for {raw} raw bytes (stored raw: {stored})")]
    FrameLength {
        /// The frame's number.
        frame: usize,
        /// Its length by the frame table; negative when it ends before it starts.
        found: i64,
        /// Its decoded length.
        raw: usize,
        /// Whether it is marked as stored raw.
        stored: bool,
    },
    /// The head was not sealed with this key for this block, or was changed since.
    #[error("payload head fails authentication: wrong key, wrong block or changed bytes")]
    HeadForged,
    /// The frame was not sealed with this key for this place, or was changed since.
    #[error("frame {frame} fails authentication: changed bytes")]
    FrameForged {
        /// The frame's number.
        frame: usize,
    },
    /// The frame does not decompress to its raw length.
    #[error("frame {frame} does not decompress to {raw} bytes")]
    Decompress {
        /// The frame's number.
        frame: usize,
        /// Its decoded length.
        raw: usize,
    },
}
