//! Errors of encoding a building block and of decoding its payload.
//!
//! A payload is not trusted: for any bytes, decoding returns a [`CodecError`] or data, never panics, and allocates no
//! more than the sizes in the spec. Without encryption a damaged frame may decode to wrong bytes of the right length;
//! the store's page checksum (CRC-32C) detects that.

use thiserror::Error;

/// An error of [`super::Codec`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The block to encode, or the buffer to decode into, does not have the size in the spec.
    #[error("buffer of {found} bytes: expected {expected}")]
    BufferLength {
        /// Size in bytes of the buffer that was passed.
        found: usize,
        /// Size in bytes that the spec demands of the buffer.
        expected: usize,
    },
    /// The requested range is not within the block.
    #[error("range {start}..{end} of a block of {block_bytes} bytes")]
    Range {
        /// First requested byte of the block.
        start: usize,
        /// End of the requested range of the block (exclusive).
        end: usize,
        /// Decoded size of the block in bytes.
        block_bytes: usize,
    },
    /// The payload, or the part of it that was passed, lacks needed bytes.
    #[error("payload bytes {needed_start}..{needed_end} needed, {given_start}..{given_end} given")]
    Truncated {
        /// First payload byte that is needed.
        needed_start: usize,
        /// End of the needed payload bytes (exclusive).
        needed_end: usize,
        /// First payload byte that was passed.
        given_start: usize,
        /// End of the passed payload bytes (exclusive).
        given_end: usize,
    },
    /// A field of the payload's head does not have the value that the space's spec demands.
    #[error("payload head: {field} is {found}, expected {expected}")]
    Head {
        /// Name of the wrong field of the head.
        field: &'static str,
        /// Value of the field in the payload's head.
        found: u64,
        /// Value of the field that the space's spec demands.
        expected: u64,
    },
    /// The frame table makes a frame empty, longer than its decoded bytes, or stored with a wrong size.
    #[error("payload head: frame {frame} has {found} bytes for {raw} raw bytes (stored raw: {stored})")]
    FrameLength {
        /// Number of the frame whose length is wrong.
        frame: usize,
        /// Length of the frame by the frame table, in bytes; negative if it ends before it starts.
        found: i64,
        /// Decoded length of the frame in bytes.
        raw: usize,
        /// Whether the frame is marked as stored raw.
        stored: bool,
    },
    /// The head was not sealed with this key for this block, or was changed since.
    #[error("payload head fails authentication: wrong key, wrong block or changed bytes")]
    HeadForged,
    /// The frame was not sealed with this key for this place, or was changed since.
    #[error("frame {frame} fails authentication: changed bytes")]
    FrameForged {
        /// Number of the frame that failed authentication.
        frame: usize,
    },
    /// The frame does not decompress to its decoded length.
    #[error("frame {frame} does not decompress to {raw} bytes")]
    Decompress {
        /// Number of the frame that does not decompress.
        frame: usize,
        /// Decoded length of the frame in bytes.
        raw: usize,
    },
}
