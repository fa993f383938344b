//! Entries of the write buffer: content of a building block that waits in memory until a whole access unit or block is
//! complete, or a flush writes it.
//!
//! Buffered content replaces the pages that the index maps. Each space owns its buffer; the device counts the bytes of
//! all spaces.

use std::collections::BTreeMap;

/// An access unit in the write buffer.
#[derive(Debug)]
pub struct BufferedUnit {
    /// Bytes of the whole unit, including old content.
    pub bytes: Box<[u8]>,
    /// Number of bytes that were written to the unit since it is buffered; a byte that was written twice counts twice.
    pub written: u64,
}

/// The part of one building block that is in the write buffer.
#[derive(Debug)]
pub enum BufferedBlock {
    /// Access units of a plain block, by their number.
    Units(BTreeMap<u32, BufferedUnit>),
    /// The whole decoded block of a compressed or encrypted space.
    Block(Box<[u8]>),
}

impl BufferedBlock {
    /// Returns the number of bytes that the entry takes in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Units(units) => units.values().map(|u| u.bytes.len()).sum(),
            Self::Block(bytes) => bytes.len(),
        }
    }
}
