//! Submission and completion entries, byte for byte (NVMe base 2.0, sections 3.3.3.1 and 3.3.3.2).
//!
//! An entry is memory that a host wrote: any bytes form an entry, and decoding checks the values.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::status::Status;

/// A submission queue entry: 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct SubmissionEntry {
    /// Opcode (CDW0 bits 7:0).
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6 (CDW0 bits 15:8).
    pub flags: u8,
    /// Command identifier (CDW0 bits 31:16).
    pub cid: U16,
    /// Namespace identifier.
    pub nsid: U32,
    /// Command dwords 2 and 3 (CDW2, CDW3).
    pub cdw2: [U32; 2],
    /// Metadata pointer.
    pub mptr: U64,
    /// Data pointer: two PRP entries or one SGL descriptor, which the transport interprets.
    pub dptr: [U64; 2],
    /// Command dwords 10 to 15 (CDW10 to CDW15).
    pub cdw10: [U32; 6],
}

impl SubmissionEntry {
    /// Creates an entry whose other fields are zero.
    pub fn new(opcode: u8, nsid: u32, cid: u16) -> Self {
        Self { opcode, cid: cid.into(), nsid: nsid.into(), ..Self::default() }
    }

    /// Whether the command is one of a fused pair (FUSE in CDW0), which no controller of this project has.
    pub fn is_fused(&self) -> bool {
        self.flags & 3 != 0
    }

    /// Returns a command dword by its number in the specification: 2, 3, or 10 to 15.
    ///
    /// # Panics
    /// For any other number.
    #[inline]
    pub fn cdw(&self, number: usize) -> u32 {
        match number {
            2 | 3 => self.cdw2[number - 2].get(),
            _ => self.cdw10[number - 10].get(),
        }
    }

    /// Sets a command dword by its number in the specification.
    ///
    /// # Panics
    /// As [`Self::cdw`].
    #[inline]
    pub fn set_cdw(&mut self, number: usize, value: u32) {
        match number {
            2 | 3 => self.cdw2[number - 2].set(value),
            _ => self.cdw10[number - 10].set(value),
        }
    }

    /// Returns two successive dwords as one number; dword `first` is the lower half.
    #[inline]
    pub fn cdw_pair(&self, first: usize) -> u64 {
        u64::from(self.cdw(first)) | u64::from(self.cdw(first + 1)) << 32
    }

    /// Sets two successive dwords to one number; dword `first` is the lower half.
    #[inline]
    pub fn set_cdw_pair(&mut self, first: usize, value: u64) {
        self.set_cdw(first, value as u32);
        self.set_cdw(first + 1, (value >> 32) as u32);
    }
}

/// A completion queue entry: 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct CompletionEntry {
    /// Dword 0 of the command's result.
    pub dw0: U32,
    /// Dword 1 of the command's result.
    pub dw1: U32,
    /// Submission queue head pointer; a transport fills it in.
    pub sqhd: U16,
    /// Submission queue identifier; a transport fills it in.
    pub sqid: U16,
    /// Command identifier.
    pub cid: U16,
    /// Phase tag in bit 0, which a transport fills in; the status in bits 15:1.
    pub status_phase: U16,
}

impl CompletionEntry {
    /// Creates the entry of a command that succeeded with these dwords, or failed; the transport fills in the rest.
    pub fn new(cid: u16, done: Result<(u32, u32), Status>) -> Self {
        let mut entry = Self { cid: cid.into(), ..Self::default() };
        match done {
            Ok((dw0, dw1)) => (entry.dw0, entry.dw1) = (dw0.into(), dw1.into()),
            Err(status) => entry.set_status(status),
        }
        entry
    }

    /// Returns the command's status.
    pub fn status(&self) -> Status {
        Status::from_bits(self.status_phase.get() >> 1)
    }

    /// Sets the status, with phase tag 0.
    pub fn set_status(&mut self, status: Status) {
        self.status_phase.set(status.bits() << 1);
    }
}

const _: () = assert!(size_of::<SubmissionEntry>() == 64 && size_of::<CompletionEntry>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dwords_lie_where_the_specification_has_them() {
        let mut bytes = [0u8; 64];
        for n in [2usize, 3, 10, 11, 12, 13, 14, 15] {
            bytes[4 * n..4 * n + 4].copy_from_slice(&(n as u32 * 0x0101_0101).to_le_bytes());
        }
        let mut entry = SubmissionEntry::read_from_bytes(&bytes).unwrap();
        for n in [2usize, 3, 10, 11, 12, 13, 14, 15] {
            assert_eq!(entry.cdw(n), n as u32 * 0x0101_0101);
        }
        entry.set_cdw_pair(10, 0x1122_3344_5566_7788);
        assert_eq!(entry.as_bytes()[40..48], [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]);
    }

    #[test]
    fn a_completion_byte_for_byte() {
        let mut entry = CompletionEntry { dw0: 7.into(), cid: 0x1234.into(), ..CompletionEntry::default() };
        entry.set_status(Status::LBA_OUT_OF_RANGE);
        // SC 80h, SCT 0, DNR: bits 15:1 are 100 0000 1000 0000b.
        assert_eq!(entry.as_bytes(), [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x34, 0x12, 0x00, 0x81]);
        assert_eq!(entry.status(), Status::LBA_OUT_OF_RANGE);
    }
}
