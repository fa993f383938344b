//! A medium in memory, for tests and for modelled devices.
//!
//! It cannot show bytes in place ([`Media::slice`] returns `None`), so the layers above copy by `read_at`, as with a
//! file that is not mapped.

use std::io;

use parking_lot::RwLock;

use super::Media;
use crate::error::{Error, Result};

/// A growable array of bytes in memory, as a medium.
#[derive(Debug, Default)]
pub struct MemoryMedia {
    bytes: RwLock<Vec<u8>>,
}

impl MemoryMedia {
    /// Creates a medium with this content.
    pub fn with_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes: RwLock::new(bytes) }
    }

    /// Returns a copy of the content.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

pub(super) fn beyond(op: &'static str, offset: u64, len: usize) -> Error {
    Error::Media { op, offset, len: len as u64, source: io::Error::from(io::ErrorKind::UnexpectedEof) }
}

impl Media for MemoryMedia {
    fn len(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.bytes.write().resize(bytes as usize, 0);
        Ok(())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = self.bytes.read();
        let from = bytes.get(offset as usize..).and_then(|b| b.get(..out.len()));
        out.copy_from_slice(from.ok_or_else(|| beyond("read", offset, out.len()))?);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        let mut bytes = self.bytes.write();
        let to = bytes.get_mut(offset as usize..).and_then(|b| b.get_mut(..from.len()));
        to.ok_or_else(|| beyond("write", offset, from.len()))?.copy_from_slice(from);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn slice(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }
}
