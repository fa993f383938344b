//! Subsystem Local Memory: command set 3, modelled on the memory commands of the specification.
//!
//! The memory belongs to the subsystem, is volatile, and is zero at first. A command is atomic: it locks the memory,
//! shared for reads. A running program works on a copy of its inputs, and its outputs appear all at once when it ends.

use nandarray::nvme::{Status, SubmissionEntry};
use parking_lot::RwLock;

use crate::payload::Payload;
use nandarray_nvme_spec::SlmOpcode;

#[cfg(test)]
mod tests;

/// Addresses and lengths must be multiples of this number of bytes.
const ALIGN: u64 = 4;

/// The Subsystem Local Memory of a subsystem.
#[derive(Debug)]
pub(crate) struct LocalMemory {
    bytes: RwLock<Vec<u8>>,
}

impl LocalMemory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes: RwLock::new(vec![0; bytes]) }
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    fn range(&self, first: u64, len: u64) -> Result<std::ops::Range<usize>, Status> {
        let end = first.checked_add(len).filter(|&end| end <= self.len()).ok_or(Status::LBA_OUT_OF_RANGE)?;
        Ok(first as usize..end as usize)
    }

    /// Returns a copy of `len` bytes from byte `first` on.
    pub(crate) fn read(&self, first: u64, len: u64) -> Result<Vec<u8>, Status> {
        let range = self.range(first, len)?;
        Ok(self.bytes.read()[range].to_vec())
    }

    /// Writes several parts atomically; each is an address and its bytes.
    pub(crate) fn write_all(&self, parts: &[(u64, &[u8])]) -> Result<(), Status> {
        let ranges: Vec<_> =
            parts.iter().map(|(first, part)| self.range(*first, part.len() as u64)).collect::<Result<_, _>>()?;
        let mut bytes = self.bytes.write();
        for (range, (_, part)) in ranges.into_iter().zip(parts) {
            bytes[range].copy_from_slice(part);
        }
        Ok(())
    }

    /// Executes a command of this command set.
    pub(crate) fn execute(&self, entry: &SubmissionEntry, mut payload: Payload<'_>) -> Result<(), Status> {
        let (first, len) = (entry.cdw_pair(10), u64::from(entry.cdw(12)));
        let has_range = matches!(entry.opcode, SlmOpcode::READ | SlmOpcode::FILL | SlmOpcode::WRITE);
        if has_range && (!first.is_multiple_of(ALIGN) || !len.is_multiple_of(ALIGN)) {
            return Err(Status::INVALID_FIELD);
        }
        match entry.opcode {
            SlmOpcode::READ => {
                let range = self.range(first, len)?;
                let room = payload.room()?;
                if room.len() as u64 != len {
                    return Err(Status::DATA_LENGTH_INVALID);
                }
                room.copy_from_slice(&self.bytes.read()[range]);
                Ok(())
            }
            SlmOpcode::WRITE => {
                let source = payload.source()?;
                if source.len() as u64 != len {
                    return Err(Status::DATA_LENGTH_INVALID);
                }
                self.write_all(&[(first, source)])
            }
            SlmOpcode::FILL => {
                let range = self.range(first, len)?;
                self.bytes.write()[range].fill(entry.cdw(13) as u8);
                Ok(())
            }
            SlmOpcode::COPY => self.copy(entry, &payload),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Copies ranges within the memory (descriptor format 4); they are written one after the other from the
    /// destination on, as they were when the command began.
    fn copy(&self, entry: &SubmissionEntry, payload: &Payload<'_>) -> Result<(), Status> {
        let word = entry.cdw(12);
        if word >> 8 & 0xf != 4 {
            return Err(Status::INVALID_FIELD);
        }
        let ranges = (word & 0xff) as usize + 1;
        let list = payload.source()?.get(..ranges * 32).ok_or(Status::DATA_LENGTH_INVALID)?;
        let number = |at: &[u8]| u64::from_le_bytes(at.try_into().expect("eight bytes"));
        let from = list.chunks_exact(32).map(|range| self.range(number(&range[8..16]), number(&range[16..24])));
        let from: Vec<_> = from.collect::<Result<_, _>>()?;
        // The destination is checked before the ranges are read: together they are no larger than the memory then.
        let total = from.iter().try_fold(0u64, |total, range| total.checked_add(range.len() as u64));
        let to = self.range(entry.cdw_pair(10), total.ok_or(Status::LBA_OUT_OF_RANGE)?)?;
        let mut bytes = self.bytes.write();
        let moved: Vec<u8> = from.into_iter().flat_map(|range| bytes[range].iter().copied()).collect();
        bytes[to].copy_from_slice(&moved);
        Ok(())
    }
}
