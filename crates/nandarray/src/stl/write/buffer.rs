//! The write buffer's parts: content of a building block that waits in memory until a whole unit or block is complete,
//! or a flush writes it.
//!
//! Buffered content hides the pages that the index maps. A space owns its buffer; the device counts the bytes of all.

use std::collections::BTreeMap;

/// A unit in the write buffer.
#[derive(Debug)]
pub struct BufferedUnit {
    /// The whole unit's bytes.
    pub bytes: Box<[u8]>,
    /// Bytes written to it since it is buffered; bytes that were written twice count twice.
    pub written: u64,
}

/// The part of one building block that is in the write buffer.
#[derive(Debug)]
pub enum BufferedBlock {
    /// Units of a plain block.
    Units(BTreeMap<u32, BufferedUnit>),
    /// A whole block, decoded, of a coded space.
    Block(Box<[u8]>),
}

impl BufferedBlock {
    /// Number of its bytes in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Units(units) => units.values().map(|u| u.bytes.len()).sum(),
            Self::Block(bytes) => bytes.len(),
        }
    }
}
