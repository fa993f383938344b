//! Compression and encryption of one building block.
//!
//! The unit of both is the building block, before pages are allocated for it (NDS paper, sections 5.3.3 and 5.3.4), so
//! a compressed block takes fewer access units. Within a block there are *frames* of 8 or 32 KiB of decoded bytes, each
//! filtered, compressed and encrypted separately (in this order), so that reading a part of a block decodes only the
//! frames that it touches. The encoded block, its *payload*, begins with a head that lists the frames; `head.rs`
//! describes the format.
//!
//! | file | one idea |
//! | --- | --- |
//! | `spec` | the description of a space's codec, and its text form |
//! | `head` | payload format: head, frame table |
//! | `frame` | one frame: filter, compress |
//! | `bitpack`, `varwidth` | integers packed by bits, of one width or of a width each |
//! | `spread`, `bits` | unpacking of values of one width; streams of bits |
//! | `packed` | packed frames as programs read them |
//! | `shuffle`, `bitshuffle`, `isa` | the filters, compiled per instruction set |
//! | `crypt`, `aead` | keys, key check, sealing of frames and head; the cipher's library |
//!
//! Reading: take the first [`Codec::head_bytes`] of the payload, parse them into a [`FrameTable`], ask it which payload
//! bytes a range needs, fetch and verify the pages of these, and decode. [`Codec::decode`] does all of this for a
//! payload in memory.
//!
//! Encoding is deterministic: the same block, context and sequence number give the same payload (for one version of the
//! LZ4 and zstd libraries). Threads may share a `Codec`; a caller can encode one block on each thread.
//!
//! The codec computes no checksums (pages have CRC-32C), does not pad to access units or leave out blocks of zeroes,
//! and reads no clock and no random source.

mod aead;
mod bitpack;
mod bits;
mod bitshuffle;
mod crypt;
mod error;
mod frame;
mod head;
mod isa;
mod packed;
mod shuffle;
mod spec;
mod spread;
mod varwidth;

#[cfg(test)]
mod measure;
#[cfg(test)]
mod tests;

use std::ops::Range;

#[cfg(test)]
use crypt::KEY_BYTES;
pub use crypt::{BlockContext, CipherKey, KeyCheck, SALT_BYTES};
pub use error::CodecError;
pub use head::FrameTable;
pub use packed::Packing;
#[cfg(test)]
use spec::ELEMENT_BYTES_MAX;
pub use spec::{CodecSpec, Compression, Framing, SpecError};

use crypt::{FrameCipher, FrameId};
use frame::Scratch;
use head::{FrameLayout, HeadWriter};

/// Authentication tag of encrypted bytes that wait to be written.
pub type WaitingTag = [u8; crypt::TAG_BYTES];

/// Encoder and decoder of the building blocks of one space.
#[derive(Debug)]
pub struct Codec {
    spec: CodecSpec,
    layout: FrameLayout,
    /// Cipher of an encrypted space; `None` if and only if `spec.encrypted` is false.
    cipher: Option<FrameCipher>,
}

impl Codec {
    /// Creates the codec of a space. `key` must be set if and only if `spec.encrypted` is.
    ///
    /// # Errors
    /// `SpecError` for sizes or levels out of bounds, a missing key, or a key that is not needed.
    pub fn new(spec: CodecSpec, key: Option<&CipherKey>) -> Result<Self, SpecError> {
        spec.validate()?;
        let cipher = match (spec.encrypted, key) {
            (true, Some(key)) => Some(FrameCipher::new(key)),
            (false, None) => None,
            (true, None) => return Err(SpecError::KeyMissing),
            (false, Some(_)) => return Err(SpecError::KeyUnexpected),
        };
        Ok(Self { spec, layout: FrameLayout::new(&spec), cipher })
    }

    /// Returns the description from which the codec was created.
    #[must_use]
    pub fn spec(&self) -> &CodecSpec {
        &self.spec
    }

    /// Returns the length of a payload's head in bytes, which [`Self::frame_table`] needs; it is the same for every
    /// block of the space.
    #[must_use]
    pub fn head_bytes(&self) -> usize {
        self.layout.head_bytes()
    }

    /// Returns the length in bytes of the longest payload of a block: the head, and every frame stored raw.
    #[must_use]
    pub fn payload_bytes_max(&self) -> usize {
        self.layout.head_bytes() + self.layout.block_bytes
    }

    /// Encodes a block; replaces the content of `out` by the payload.
    ///
    /// `sequence` is the first part of the nonces (see `crypt`). It should be new for each encoding of a block; a
    /// repetition only reveals whether two frames are equal. It is stored in the head of an encrypted payload, and
    /// otherwise ignored.
    ///
    /// # Errors
    /// `CodecError::BufferLength` if `block` does not have the size in the spec.
    pub fn encode(
        &self,
        block: &[u8],
        context: BlockContext<'_>,
        sequence: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        self.check_block_length(block.len())?;
        let fixed = head::fixed_head(&self.spec, &self.layout, sequence);
        let sealing = self.cipher.as_ref().map(|cipher| (cipher, cipher.payload_aad(context, &fixed)));
        out.clear();
        out.extend_from_slice(&fixed);
        out.resize(self.layout.head_bytes(), 0);
        frame::with_scratch(|scratch| {
            for number in 0..self.layout.frame_count {
                let raw = &block[self.layout.raw_range(number)];
                let start = out.len();
                let stored = frame::encode(self.spec.compression, self.spec.element_bytes as usize, raw, scratch, out);
                let end = out.len();
                let (head, frames) = out.split_at_mut(self.layout.head_bytes());
                let mut head = HeadWriter::new(&self.layout, head);
                head.set_end(number, end, stored);
                if let Some((cipher, payload_aad)) = &sealing {
                    let id = frame_id(payload_aad, sequence, number, raw.len(), stored);
                    let text = &mut frames[start - self.layout.head_bytes()..];
                    head.set_tag(number, cipher.seal_frame(id, text));
                }
            }
        });
        if let Some((cipher, payload_aad)) = &sealing {
            let head = &mut out[..self.layout.head_bytes()];
            HeadWriter::new(&self.layout, head).seal(|table| cipher.seal_head(payload_aad, sequence, table));
        }
        Ok(())
    }

    /// Parses a payload's head, checks it against the spec and authenticates it. `head` is the first
    /// [`Self::head_bytes`] of the payload, or more.
    ///
    /// # Errors
    /// `CodecError` if the head is too short, has another spec, is inconsistent, or was not sealed for `context`.
    pub fn frame_table(&self, head: &[u8], context: BlockContext<'_>) -> Result<FrameTable, CodecError> {
        let mut table = FrameTable::parse(&self.spec, self.layout, head)?;
        if let Some(cipher) = &self.cipher {
            let (fixed, rest) = head[..self.layout.head_bytes()].split_at(head::FIXED_BYTES);
            let (sealed, tag) = rest.split_last_chunk().expect("a sealed head ends with a tag");
            table.payload_aad = cipher.payload_aad(context, fixed);
            if !cipher.verify_head(&table.payload_aad, table.sequence, sealed, *tag) {
                return Err(CodecError::HeadForged);
            }
        }
        Ok(table)
    }

    /// Decodes the frames that have bytes of `raw`, a range of the block's decoded bytes. `out` has the size of the
    /// block, and each frame is written to its own place in it. Returns the range that was written: whole frames that
    /// include `raw`. Other bytes of `out` are not changed.
    ///
    /// `piece` is the part of the payload from offset `piece_start` on, which must include these frames
    /// (`FrameTable::payload_range`); the whole payload and 0 are allowed.
    ///
    /// # Errors
    /// `CodecError` for a range or buffer of a wrong size, a piece that lacks a frame, or a frame that is damaged or
    /// forged; the range of `out` then has arbitrary bytes, but none of a forged frame.
    ///
    /// # Panics
    /// If `table` comes from a codec with another spec.
    pub fn decode_frames(
        &self,
        table: &FrameTable,
        piece: &[u8],
        piece_start: usize,
        raw: Range<usize>,
        out: &mut [u8],
    ) -> Result<Range<usize>, CodecError> {
        self.check_block_length(out.len())?;
        let frames = table.frames(raw)?;
        frame::with_scratch(|scratch| {
            for number in frames.clone() {
                let out = &mut out[table.layout.raw_range(number)];
                self.decode_with(scratch, table, piece, piece_start, number, out)?;
            }
            Ok(table.raw_range(frames))
        })
    }

    /// Decodes `raw`, a range of the block's decoded bytes, from a payload in memory: [`Self::frame_table`], then
    /// [`Self::decode_frames`].
    ///
    /// # Errors
    /// The errors of both functions.
    pub fn decode(
        &self,
        payload: &[u8],
        raw: Range<usize>,
        context: BlockContext<'_>,
        out: &mut [u8],
    ) -> Result<Range<usize>, CodecError> {
        let table = self.frame_table(payload, context)?;
        self.decode_frames(&table, payload, 0, raw, out)
    }

    /// Encrypts bytes that wait to be written to the space, under a sequence number of their own; returns their
    /// authentication tag. `None`, and the bytes as they are, without a cipher.
    pub fn seal_waiting(&self, sequence: u64, text: &mut [u8]) -> Option<WaitingTag> {
        self.cipher.as_ref().map(|cipher| cipher.seal_waiting(sequence, text))
    }

    /// Decrypts bytes that [`Self::seal_waiting`] encrypted; returns `None` if they are others.
    pub fn open_waiting(&self, sequence: u64, tag: WaitingTag, sealed: &[u8]) -> Option<Vec<u8>> {
        let mut text = vec![0; sealed.len()];
        self.cipher.as_ref()?.open_waiting(sequence, tag, sealed, &mut text).then_some(text)
    }

    fn decode_with(
        &self,
        scratch: &mut Scratch,
        table: &FrameTable,
        piece: &[u8],
        piece_start: usize,
        number: usize,
        out: &mut [u8],
    ) -> Result<(), CodecError> {
        assert!(table.layout == self.layout, "the frame table is of another spec");
        let source = cut(piece, piece_start, table.payload_range(number..number + 1))?;
        let stored = table.stored(number);
        let damaged = CodecError::Decompress { frame: number, raw: out.len() };
        let unpack = |source: &[u8], scratch: &mut Scratch, out: &mut [u8]| {
            // If the spec has no compression, every frame must be stored.
            let Some(compression) = self.spec.compression else { return Err(damaged) };
            let good = frame::decode(compression, self.spec.element_bytes as usize, source, scratch, out);
            if good { Ok(()) } else { Err(damaged) }
        };
        let Some(cipher) = &self.cipher else {
            if stored {
                out.copy_from_slice(source);
                return Ok(());
            }
            return unpack(source, scratch, out);
        };
        let id = frame_id(&table.payload_aad, table.sequence, number, out.len(), stored);
        let open = |text: &mut [u8]| {
            let genuine = cipher.open_frame(id, table.tag(number), source, text);
            if genuine { Ok(()) } else { Err(CodecError::FrameForged { frame: number }) }
        };
        if stored {
            return open(out);
        }
        let mut opened = scratch.take_opened(source.len());
        let result = open(&mut opened).and_then(|()| unpack(&opened, scratch, out));
        scratch.put_opened(opened);
        result
    }

    fn check_block_length(&self, found: usize) -> Result<(), CodecError> {
        let expected = self.layout.block_bytes;
        if found == expected { Ok(()) } else { Err(CodecError::BufferLength { found, expected }) }
    }
}

fn frame_id(payload_aad: &[u8], sequence: u64, number: usize, raw_bytes: usize, stored: bool) -> FrameId<'_> {
    let narrow = |value: usize| u32::try_from(value).expect("frame numbers and lengths fit 32 bits");
    FrameId { payload_aad, sequence, number: narrow(number), raw_bytes: narrow(raw_bytes), stored }
}

/// Returns the payload bytes `needed` from a piece of the payload that begins at offset `piece_start`.
fn cut(piece: &[u8], piece_start: usize, needed: Range<usize>) -> Result<&[u8], CodecError> {
    let inside = needed.start.checked_sub(piece_start).zip(needed.end.checked_sub(piece_start));
    inside.and_then(|(start, end)| piece.get(start..end)).ok_or(CodecError::Truncated {
        needed_start: needed.start,
        needed_end: needed.end,
        given_start: piece_start,
        given_end: piece_start.saturating_add(piece.len()),
    })
}
