//! Frames of packed integers as programs read them: the stored bits, behind a head that describes them.
//!
//! ```text
//! part := length of the part in bytes, a multiple of 8      u32
//!         number of values that are wanted                  u32
//!         number of values of the frame before these        u32
//!         width in bits, 1 to 64; of bitpack                u32
//!         reference, added to each value; of bitpack        u64
//!         offset of the bits from the part's beginning      u32
//!         offset of the widths, a byte a value; else 0      u32
//!         the frame's bytes, zeroes
//! ```
//! A frame that is stored raw is described as values that need all bits, one of width 0 gets a zero bit for each value,
//! as streams of values have no width 0. A frame that is not stored at all (it is in the
//! write buffer, or was never written) is packed here, so that a reader need not tell them apart.
//!
//! Values are not unpacked, and not looked at.

use std::ops::Range;

use super::error::CodecError;
use super::head::FrameTable;
use super::spec::Algorithm;
use super::{Codec, CodecSpec, Compression, bitpack, bits, cut, frame_id, varwidth};

/// Length in bytes of the head of a part, as programs read it: a part is packed values of one frame behind such a head.
const HEAD_BYTES: usize = 32;

/// The way in which the integers of a space are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// One width and one reference for all values of a frame (`bitpack`).
    BitPack,
    /// A width for each value of its own (`varwidth`).
    VarWidth,
}

/// The fields of a part's head that describe how its values are packed.
struct PackedPart {
    width: u32,
    reference: u64,
    /// Offset of the values' bits within the frame's bytes.
    bits_at: usize,
    widths_at: Option<usize>,
}

impl CodecSpec {
    /// Returns the way in which integers are packed; `None` if the space does not pack integers.
    #[must_use]
    pub fn packing(&self) -> Option<Packing> {
        match self.compression?.algorithm {
            Algorithm::BitPack => Some(Packing::BitPack),
            Algorithm::VarWidth => Some(Packing::VarWidth),
            Algorithm::Lz4 | Algorithm::Zstd { .. } => None,
        }
    }
}

impl Codec {
    /// Splits a range of value numbers of a block by frames: returns for each frame touched its number and the range of
    /// its values that are wanted, counted from the frame's first.
    pub fn packed_frames(&self, values: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let item = self.spec.element_bytes as usize;
        let each = self.layout.frame_bytes / item;
        let frames = values.start / each..values.end.div_ceil(each);
        frames.map(move |frame| {
            let first = frame * each;
            (frame, values.start.max(first) - first..values.end.min(first + each) - first)
        })
    }

    /// Appends values of one frame to `out` as they are stored, packed, behind a head that describes them. The other
    /// arguments are those of [`Self::decode_frames`].
    ///
    /// # Errors
    /// As [`Self::decode_frames`].
    ///
    /// # Panics
    /// If the codec packs no integers ([`CodecSpec::packing`]), the frame has no such values, or `table` comes from a
    /// codec with another spec.
    pub fn append_packed(
        &self,
        table: &FrameTable,
        piece: &[u8],
        piece_start: usize,
        (number, values): (usize, Range<usize>),
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        assert!(table.layout == self.layout, "the frame table is of another spec");
        let source = cut(piece, piece_start, table.payload_range(number..number + 1))?;
        let (stored, raw_bytes) = (table.stored(number), self.layout.raw_range(number).len());
        let Some(cipher) = &self.cipher else { return self.append(number, stored, source, raw_bytes, values, out) };
        let mut opened = vec![0; source.len()];
        let id = frame_id(&table.payload_aad, table.sequence, number, raw_bytes, stored);
        if !cipher.open_frame(id, table.tag(number), source, &mut opened) {
            return Err(CodecError::FrameForged { frame: number });
        }
        self.append(number, stored, &opened, raw_bytes, values, out)
    }

    /// Packs a frame whose decoded bytes are `raw`, and appends values of it as [`Self::append_packed`] does.
    ///
    /// # Panics
    /// As [`Self::append_packed`].
    pub fn append_unpacked(&self, raw: &[u8], values: Range<usize>, out: &mut Vec<u8>) {
        let item = self.spec.element_bytes as usize;
        // Wide enough for a width a value, and for the head of a packed frame.
        let mut packed = vec![0; raw.len() + raw.len() / item + 16];
        let length = match self.spec.packing().expect("a codec that packs integers") {
            Packing::BitPack => bitpack::pack(item, raw, &mut Vec::new(), &mut packed),
            Packing::VarWidth => varwidth::pack(item, raw, &mut packed),
        };
        let packed = &packed[..length.expect("the buffer is wide enough")];
        self.append(0, false, packed, raw.len(), values, out).expect("what was just packed is a frame");
    }

    fn append(
        &self,
        number: usize,
        stored: bool,
        frame: &[u8],
        raw_bytes: usize,
        values: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), CodecError> {
        let packing = self.spec.packing().expect("a codec that packs integers");
        let item = self.spec.element_bytes as usize;
        assert!(values.end <= raw_bytes / item, "values {values:?} of a frame of {raw_bytes} bytes");
        let part = if stored { raw_part(packing, item) } else { packed_part(packing, item, frame, raw_bytes) };
        let part = part.ok_or(CodecError::Decompress { frame: number, raw: raw_bytes })?;
        let start = out.len();
        out.resize(start + HEAD_BYTES, 0);
        out.extend_from_slice(frame);
        // Widths of values that are stored raw are not in the frame.
        let widths_at = part.widths_at.map(|at| at + HEAD_BYTES).or_else(|| {
            (packing == Packing::VarWidth).then(|| {
                out.resize(out.len() + raw_bytes / item, 8 * item as u8);
                out.len() - start - raw_bytes / item
            })
        });
        let mut width = part.width as usize;
        if packing == Packing::BitPack && width == 0 {
            width = 1;
            out.resize(start + HEAD_BYTES + part.bits_at + (raw_bytes / item).div_ceil(8), 0);
        }
        out.resize(start + (out.len() - start).next_multiple_of(8), 0);
        let length = out.len() - start;
        let words = [length, values.len(), values.start, width];
        let offsets = [HEAD_BYTES + part.bits_at, widths_at.unwrap_or(0)];
        let word = |number: usize| u32::try_from(number).expect("a frame is far below 4 GiB").to_le_bytes();
        let head = &mut out[start..][..HEAD_BYTES];
        for (place, number) in head.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word(number);
        }
        head[16..24].copy_from_slice(&part.reference.to_le_bytes());
        head[24..28].copy_from_slice(&word(offsets[0]));
        head[28..].copy_from_slice(&word(offsets[1]));
        Ok(())
    }
}

/// Describes the values of a frame that is stored raw.
fn raw_part(packing: Packing, item: usize) -> Option<PackedPart> {
    let width = if packing == Packing::BitPack { 8 * item as u32 } else { 0 };
    Some(PackedPart { width, reference: 0, bits_at: 0, widths_at: None })
}

/// Describes the values of a packed frame; `None` if the frame is damaged.
fn packed_part(packing: Packing, item: usize, frame: &[u8], raw_bytes: usize) -> Option<PackedPart> {
    match packing {
        Packing::BitPack => {
            let found = bitpack::parse(item, frame, raw_bytes)?;
            let reference = bits::little(found.reference);
            Some(PackedPart { width: found.width, reference, bits_at: 1 + item, widths_at: None })
        }
        Packing::VarWidth => {
            let (widths, ..) = varwidth::parse(item, frame, raw_bytes)?;
            Some(PackedPart { width: 0, reference: 0, bits_at: widths.len(), widths_at: Some(0) })
        }
    }
}

impl std::fmt::Display for Packing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let algorithm = match self {
            Self::BitPack => Algorithm::BitPack,
            Self::VarWidth => Algorithm::VarWidth,
        };
        Compression { algorithm, filter: super::spec::Filter::None }.fmt(f)
    }
}
