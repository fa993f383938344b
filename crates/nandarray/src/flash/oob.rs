//! Records that accompany the data: the out-of-band record of a page and the header of a segment.
//!
//! A page's record names its owner, so that reclaim can move the page and recovery can rebuild every index by a scan
//! (NDS paper, section 4.2: the reverse look-up table in the spare area). It also has the CRC-32C of the page
//! (Castagnoli, RFC 3720 appendix B.4), and a CRC of its own, so that a damaged record is never trusted. The owner's
//! `key` is not interpreted here: the layer above packs a building block's coordinate into it.
//!
//! Each layout is declared as a struct of little-endian fields whose size is asserted; no field is extracted by hand.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::geometry::{OOB_BYTES, SEGMENT_HEADER_BYTES};

/// Computes the CRC-32C of `bytes`, with the fastest instructions that the machine has.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Owner of a page: a tag that flash and FTL store and compare, but do not interpret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Number of the space, with flags of the layer above.
    pub space: u32,
    /// Number of the access unit within its building block.
    pub unit: u16,
    /// Coordinate of the building block, packed by the layer above.
    pub key: [u8; 10],
}

/// The out-of-band record of one page, in its stored form of 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct OobRecord {
    crc_record: U32,
    crc_page: U32,
    seq: U64,
    space: U32,
    unit: U16,
    key: [u8; 10],
}

const _: () = assert!(size_of::<OobRecord>() as u64 == OOB_BYTES, "the record is what the geometry makes room for");

impl OobRecord {
    /// Creates the record for a page with this content, owner and command sequence number.
    pub fn new(page: &[u8], owner: Owner, seq: u64) -> Self {
        let mut record = Self {
            crc_record: U32::new(0),
            crc_page: U32::new(crc32c(page)),
            seq: U64::new(seq),
            space: U32::new(owner.space),
            unit: U16::new(owner.unit),
            key: owner.key,
        };
        record.crc_record = U32::new(record.crc_of_rest());
        record
    }

    fn crc_of_rest(&self) -> u32 {
        // The constant keeps an erased (all-zero) record from being a valid one, whatever the CRC of zeroes is.
        crc32c(&self.as_bytes()[4..]) ^ 0x6e61_6e64
    }

    /// Parses a record from its stored bytes; `None` if no record was written there, or it is damaged.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let record = Self::read_from_bytes(bytes).ok()?;
        (record.crc_record.get() == record.crc_of_rest()).then_some(record)
    }

    /// Whether a page's content matches the checksum in this record.
    pub fn matches(&self, page: &[u8]) -> bool {
        self.crc_page.get() == crc32c(page)
    }

    /// Returns the owner that the record names.
    pub fn owner(&self) -> Owner {
        Owner { space: self.space.get(), unit: self.unit.get(), key: self.key }
    }

    /// Returns the sequence number of the command that wrote the content; a move by reclaim keeps it.
    pub fn seq(&self) -> u64 {
        self.seq.get()
    }
}

/// Use of a segment, as recorded in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentKind {
    /// Pages of building blocks.
    Data = 1,
    /// A part of the journal's chain.
    Journal = 2,
    /// A part of a checkpoint's chain.
    Checkpoint = 3,
}

/// The header of a segment: 64 bytes in its out-of-band area, written when the segment is opened.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct SegmentHeader {
    magic: [u8; 8],
    crc: U32,
    kind: u8,
    _pad: [u8; 3],
    segment: U32,
    erases: U32,
    opened: U64,
    next: U32,
    _reserved: [u8; 28],
}

const _: () = assert!(size_of::<SegmentHeader>() as u64 == SEGMENT_HEADER_BYTES);
const SEGMENT_MAGIC: [u8; 8] = *b"NANDSEG1";

impl SegmentHeader {
    /// Creates a header. `erases` is the segment's erase count, and `opened` the number of segments opened before it.
    pub fn new(segment: u32, kind: SegmentKind, erases: u32, opened: u64) -> Self {
        let mut header = Self {
            magic: SEGMENT_MAGIC,
            crc: U32::new(0),
            kind: kind as u8,
            _pad: [0; 3],
            segment: U32::new(segment),
            erases: U32::new(erases),
            opened: U64::new(opened),
            next: U32::new(u32::MAX),
            _reserved: [0; 28],
        };
        header.crc = U32::new(crc32c(&header.as_bytes()[12..]));
        header
    }

    /// Parses a header from its stored bytes; `None` if no header was written there, or it is damaged.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let header = Self::read_from_bytes(bytes).ok()?;
        (header.magic == SEGMENT_MAGIC && header.crc.get() == crc32c(&header.as_bytes()[12..])).then_some(header)
    }

    /// Returns the use of the segment; `None` for a kind that only a later version knows.
    pub fn kind(&self) -> Option<SegmentKind> {
        match self.kind {
            1 => Some(SegmentKind::Data),
            2 => Some(SegmentKind::Journal),
            3 => Some(SegmentKind::Checkpoint),
            _ => None,
        }
    }

    /// Returns the number of the segment for which the header was written.
    pub fn segment(&self) -> u32 {
        self.segment.get()
    }

    /// Returns the segment's erase count, this opening included.
    pub fn erases(&self) -> u32 {
        self.erases.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner { space: 7, unit: 3, key: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] }
    }

    #[test]
    fn a_record_round_trips_and_knows_its_page() {
        let page = [42u8; 512];
        let record = OobRecord::new(&page, owner(), 99);
        let back = OobRecord::parse(record.as_bytes()).unwrap();
        assert_eq!((back.owner(), back.seq()), (owner(), 99));
        assert!(back.matches(&page));
        assert!(!back.matches(&[43u8; 512]));
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_seen() {
        let record = OobRecord::new(&[1u8; 512], owner(), 5);
        for bit in 0..OOB_BYTES * 8 {
            let mut bytes = record.as_bytes().to_vec();
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
            assert!(OobRecord::parse(&bytes).is_none(), "bit {bit}");
        }
        assert!(OobRecord::parse(&[0; 32]).is_none(), "an erased record is no record");
    }

    #[test]
    fn crc_is_castagnoli() {
        // RFC 3720, appendix B.4: 32 bytes of zeroes.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn headers_round_trip() {
        let header = SegmentHeader::new(9, SegmentKind::Journal, 4, 77);
        let back = SegmentHeader::parse(header.as_bytes()).unwrap();
        assert_eq!((back.segment(), back.erases(), back.kind()), (9, 4, Some(SegmentKind::Journal)));
        assert!(SegmentHeader::parse(&[0; 64]).is_none());
    }
}
