//! Writes of a client: whole blocks, and runs of elements; and the catalog that its server wrote.
//!
//! The way of commands through the rings is in [`super`].

use super::{ByteRun, ClientTransfer, NamespaceInfo, QueueClient, slot_bytes};
use crate::error::QueueError;
use crate::layout::LBA_BYTES;

impl QueueClient {
    /// Writes whole blocks of 512 bytes: `first_byte` is the beginning of a block, and the bytes end at the end of a
    /// block or of the namespace.
    ///
    /// # Safety
    /// `from` points to `bytes` bytes that can be read.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] if the bytes begin or end within a block; otherwise as [`Self::gather`].
    pub unsafe fn write(&self, nsid: u32, first_byte: u64, bytes: u64, from: *const u8) -> Result<(), QueueError> {
        if !first_byte.is_multiple_of(LBA_BYTES) {
            return Err(QueueError::Invalid(format!("byte {first_byte} begins no block of {LBA_BYTES}")));
        }
        // The rest of a block would be written with what an earlier command left in this pair's memory.
        let end = first_byte.saturating_add(bytes);
        let ends = |array: NamespaceInfo| array.nsid == nsid && array.bytes == end;
        if !end.is_multiple_of(LBA_BYTES) && !self.arrays().into_iter().any(ends) {
            return Err(QueueError::Invalid(format!("byte {end} ends neither a block of {LBA_BYTES} nor the array")));
        }
        let run = ByteRun { direction: ClientTransfer::Out, first_byte, bytes, memory: from.cast_mut() };
        self.transfer(nsid, bytes, std::iter::once(run), &mut || ())
    }

    /// Writes runs of `bytes` bytes from byte `firsts[i]` on, from `from + i * bytes`: whole elements of `item_bytes`.
    /// Each run that fits a command is whole or absent; elements between runs stay as they are.
    ///
    /// # Safety
    /// `from` points to the bytes of all runs, which can be read.
    ///
    /// # Errors
    /// [`QueueError::Invalid`] if an element does not fit a command; otherwise as [`Self::gather`].
    pub unsafe fn write_runs(
        &self,
        nsid: u32,
        item_bytes: u64,
        firsts: &[u64],
        bytes: u64,
        from: *const u8,
    ) -> Result<(), QueueError> {
        // An element may begin at the last byte of a block.
        let room = slot_bytes(bytes, self.header.data_stride) - (LBA_BYTES - 1);
        if item_bytes == 0 || item_bytes > room {
            return Err(QueueError::Invalid(format!("elements of {item_bytes} bytes; a command has room for {room}")));
        }
        let run = |(i, &first_byte): (usize, &u64)| ByteRun {
            direction: ClientTransfer::Elements { item_bytes },
            first_byte,
            bytes,
            // SAFETY: the caller's promise.
            memory: unsafe { from.add(i * bytes as usize) }.cast_mut(),
        };
        self.transfer(nsid, bytes, firsts.iter().enumerate().map(run), &mut || ())
    }

    /// Returns the catalog: text that describes the arrays, as the server's caller wrote it.
    pub fn catalog(&self) -> Vec<u8> {
        let mut text = vec![0; self.header.catalog_bytes as usize];
        self.region.copy_out(self.header.catalog_offset, &mut text);
        text
    }
}
