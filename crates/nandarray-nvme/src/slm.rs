//! Subsystem Local Memory: command set 3, modelled on the memory commands of the specification.
//!
//! The memory belongs to a tenant, is volatile, and is zero at first; it takes none of the tenant's budget until it is
//! written. A command is atomic: it locks the memory,
//! shared for reads. A running program works on a copy of its inputs, and its outputs appear all at once when it ends.

use std::ops::Range;
use std::sync::Arc;

use nandarray_nvme_spec::{MemoryCommand, MemoryCopyRange, Status, SubmissionEntry};
use parking_lot::{RwLock, RwLockWriteGuard};
use zerocopy::FromBytes;

use crate::budget::{Budget, ReservedMemory};
use crate::payload::Payload;

#[cfg(test)]
mod tests;

/// Addresses and lengths must be multiples of this number of bytes.
const ALIGN: u64 = 4;

/// The Subsystem Local Memory of a tenant.
#[derive(Debug)]
pub(crate) struct LocalMemory {
    size: usize,
    budget: Arc<Budget>,
    written: RwLock<WrittenMemory>,
}

/// The memory once it was written; no bytes before.
#[derive(Debug, Default)]
struct WrittenMemory {
    bytes: Vec<u8>,
    reserved: Option<ReservedMemory>,
}

impl LocalMemory {
    pub(crate) fn new(size: usize, budget: Arc<Budget>) -> Self {
        Self { size, budget, written: RwLock::default() }
    }

    pub(crate) fn len(&self) -> u64 {
        self.size as u64
    }

    /// Returns the memory to write to.
    ///
    /// # Errors
    /// Out of resources: it was not written yet, and the budget has no room for it.
    fn to_write(&self) -> Result<RwLockWriteGuard<'_, WrittenMemory>, Status> {
        let mut written = self.written.write();
        if written.reserved.is_none() {
            written.reserved = Some(self.budget.reserve(self.size as u64)?);
            written.bytes = vec![0; self.size];
        }
        Ok(written)
    }

    /// Copies a range, which must be in the memory.
    fn copy_to(&self, range: Range<usize>, to: &mut [u8]) {
        match self.written.read().bytes.get(range) {
            Some(bytes) => to.copy_from_slice(bytes),
            None => to.fill(0),
        }
    }

    fn range(&self, first: u64, len: u64) -> Result<Range<usize>, Status> {
        let end = first.checked_add(len).filter(|&end| end <= self.len()).ok_or(Status::LBA_OUT_OF_RANGE)?;
        assert!(first <= end, "a range from {first} to {end}");
        Ok(first as usize..end as usize)
    }

    /// Returns a copy of `len` bytes from byte `first` on.
    pub(crate) fn read(&self, first: u64, len: u64) -> Result<Vec<u8>, Status> {
        let range = self.range(first, len)?;
        let mut found = vec![0; range.len()];
        self.copy_to(range, &mut found);
        Ok(found)
    }

    /// Writes several parts atomically; each is an address and its bytes.
    pub(crate) fn write_all(&self, parts: &[(u64, &[u8])]) -> Result<(), Status> {
        let ranges: Vec<_> =
            parts.iter().map(|(first, part)| self.range(*first, part.len() as u64)).collect::<Result<_, _>>()?;
        let mut written = self.to_write()?;
        for (range, (_, part)) in ranges.into_iter().zip(parts) {
            written.bytes[range].copy_from_slice(part);
        }
        Ok(())
    }

    /// Executes a command of this command set.
    pub(crate) fn execute(&self, entry: &SubmissionEntry, mut payload: Payload<'_>) -> Result<(), Status> {
        let command = MemoryCommand::decode(entry)?;
        let aligned = |first: u64, bytes: u32| {
            let is_aligned = first.is_multiple_of(ALIGN) && u64::from(bytes).is_multiple_of(ALIGN);
            if is_aligned { Ok(u64::from(bytes)) } else { Err(Status::INVALID_FIELD) }
        };
        match command {
            MemoryCommand::Read { first, bytes } => {
                let len = aligned(first, bytes)?;
                let range = self.range(first, len)?;
                let room = payload.room()?;
                if room.len() as u64 != len {
                    return Err(Status::DATA_LENGTH_INVALID);
                }
                self.copy_to(range, room);
                Ok(())
            }
            MemoryCommand::Write { first, bytes } => {
                let len = aligned(first, bytes)?;
                let source = payload.source()?;
                if source.len() as u64 != len {
                    return Err(Status::DATA_LENGTH_INVALID);
                }
                self.write_all(&[(first, source)])
            }
            MemoryCommand::Fill { first, bytes, value } => {
                let range = self.range(first, aligned(first, bytes)?)?;
                self.to_write()?.bytes[range].fill(value);
                Ok(())
            }
            MemoryCommand::Copy { to, ranges_z } => self.copy(to, ranges_z, &payload),
        }
    }

    /// Copies ranges within the memory; they are written one after the other from the destination on, as they were when
    /// the command began.
    fn copy(&self, to: u64, ranges_z: u8, payload: &Payload<'_>) -> Result<(), Status> {
        let bytes = (usize::from(ranges_z) + 1) * size_of::<MemoryCopyRange>();
        let list = payload.source()?.get(..bytes).ok_or(Status::DATA_LENGTH_INVALID)?;
        let list = <[MemoryCopyRange]>::ref_from_bytes(list).expect("ranges have no alignment");
        let from = list.iter().map(|range| self.range(range.first.get(), range.bytes.get()));
        let from: Vec<_> = from.collect::<Result<_, _>>()?;
        // The destination is checked before the ranges are read: together they are no larger than the memory then.
        let total = from.iter().try_fold(0u64, |total, range| total.checked_add(range.len() as u64));
        let to = self.range(to, total.ok_or(Status::LBA_OUT_OF_RANGE)?)?;
        let mut written = self.to_write()?;
        let moved: Vec<u8> = from.into_iter().flat_map(|range| written.bytes[range].iter().copied()).collect();
        assert_eq!(moved.len(), to.len(), "bytes of the ranges of a copy");
        written.bytes[to].copy_from_slice(&moved);
        Ok(())
    }
}
