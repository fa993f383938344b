//! Commands of Subsystem Local Memory (command set 3), modelled on the command set specification 1.0, section 3.

use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::entry::SubmissionEntry;
use crate::fields::{DwordBits, Wide, numbers};
use crate::sets::NSID_MEMORY;
use crate::status::Status;

numbers! {
    /// Opcodes of Subsystem Local Memory.
    MemoryOpcode {
        /// Memory Copy.
        Copy = 0x01,
        /// Memory Read.
        Read = 0x02,
        /// Memory Fill.
        Fill = 0x04,
        /// Memory Write.
        Write = 0x05,
    }
}

/// First byte in the memory (SB), dwords 10 and 11; of a copy, the destination (SDADDR).
type FirstByte = Wide<10>;
/// Length in bytes (LEN), dword 12.
type Length = DwordBits<12, 31, 0>;
/// Byte to fill with, dword 13.
type FillByte = DwordBits<13, 7, 0>;
/// Number of source ranges of a copy, minus one (NR).
type CopyRanges = DwordBits<12, 7, 0>;
/// Format of the source ranges of a copy.
type CopyFormat = DwordBits<12, 11, 8>;

/// The one format of source ranges: ranges of the same memory.
const WITHIN_MEMORY: u32 = 4;

/// A source range of Memory Copy, 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct MemoryCopyRange {
    reserved0: [u8; 8],
    /// First byte.
    pub first: U64,
    /// Length in bytes.
    pub bytes: U64,
    reserved24: [u8; 8],
}

const _: () = assert!(size_of::<MemoryCopyRange>() == 32);

impl MemoryCopyRange {
    /// Creates a range.
    pub fn new(first: u64, bytes: u64) -> Self {
        Self { first: first.into(), bytes: bytes.into(), ..Self::default() }
    }
}

/// A command of Subsystem Local Memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCommand {
    /// Copies ranges within the memory, one after the other, to a destination.
    Copy {
        /// First byte of the destination.
        to: u64,
        /// Number of source ranges in the command's data ([`MemoryCopyRange`]), minus one.
        ranges_z: u8,
    },
    /// Reads bytes.
    Read {
        /// First byte.
        first: u64,
        /// Length in bytes.
        bytes: u32,
    },
    /// Fills bytes with one value.
    Fill {
        /// First byte.
        first: u64,
        /// Length in bytes.
        bytes: u32,
        /// The value.
        value: u8,
    },
    /// Writes bytes.
    Write {
        /// First byte.
        first: u64,
        /// Length in bytes.
        bytes: u32,
    },
}

impl MemoryCommand {
    /// Returns the command's opcode.
    pub fn opcode(&self) -> MemoryOpcode {
        match self {
            Self::Copy { .. } => MemoryOpcode::Copy,
            Self::Read { .. } => MemoryOpcode::Read,
            Self::Fill { .. } => MemoryOpcode::Fill,
            Self::Write { .. } => MemoryOpcode::Write,
        }
    }

    /// Decodes an entry.
    ///
    /// # Errors
    /// Invalid opcode; invalid field for a copy from ranges in another format.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        let (first, bytes) = (FirstByte::get(entry), Length::get(entry));
        Ok(match MemoryOpcode::of(entry.opcode).ok_or(Status::INVALID_OPCODE)? {
            MemoryOpcode::Copy if CopyFormat::get(entry) != WITHIN_MEMORY => return Err(Status::INVALID_FIELD),
            MemoryOpcode::Copy => Self::Copy { to: first, ranges_z: CopyRanges::u8(entry) },
            MemoryOpcode::Read => Self::Read { first, bytes },
            MemoryOpcode::Fill => Self::Fill { first, bytes, value: FillByte::u8(entry) },
            MemoryOpcode::Write => Self::Write { first, bytes },
        })
    }

    /// Encodes the command as the submission entry of a host, without pointers to data.
    pub fn encode(&self, cid: u16) -> SubmissionEntry {
        let mut entry = SubmissionEntry::new(self.opcode() as u8, NSID_MEMORY, cid);
        let (Self::Copy { to: first, .. }
        | Self::Read { first, .. }
        | Self::Fill { first, .. }
        | Self::Write { first, .. }) = *self;
        FirstByte::put(&mut entry, first);
        match *self {
            Self::Copy { ranges_z, .. } => {
                CopyFormat::put(&mut entry, WITHIN_MEMORY);
                CopyRanges::put(&mut entry, ranges_z);
            }
            Self::Read { bytes, .. } | Self::Write { bytes, .. } => Length::put(&mut entry, bytes),
            Self::Fill { bytes, value, .. } => {
                Length::put(&mut entry, bytes);
                FillByte::put(&mut entry, value);
            }
        }
        entry
    }
}
