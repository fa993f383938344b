//! The stream of bytes of a checkpoint, and indexes that are read from it when their space is first used.

use std::sync::Arc;

use parking_lot::Mutex;

use super::super::wire::{IndexPlace, decode_index};
use crate::error::{Error, Result};
use crate::flash::crc32c;
use crate::ftl::chain::Chain;
use crate::ftl::superblock::Superblock;
use crate::media::Media;
use crate::stl::index::Index;
use crate::stl::space::StoredIndex;

/// The stream of bytes of a checkpoint, from which indexes are read when they are first used.
#[derive(Debug)]
pub(in crate::device) struct CheckpointStream {
    pub(in crate::device) media: Arc<dyn Media>,
    pub(in crate::device) chain: Mutex<Chain>,
}

impl CheckpointStream {
    /// Returns the stream of the checkpoint that a superblock names.
    pub(in crate::device) fn of(media: &Arc<dyn Media>, superblock: &Superblock) -> Self {
        let chain = Chain::begin(superblock.geometry, superblock.checkpoint);
        Self { media: media.clone(), chain: Mutex::new(chain) }
    }

    pub(in crate::device) fn read(&self, at: u64, bytes: u64) -> Result<Vec<u8>> {
        if bytes > self.media.len() {
            return Err(Error::corrupt(format!("a checkpoint piece of {bytes} bytes is larger than the store")));
        }
        let mut out = vec![0; bytes as usize];
        if self.media.is_far() {
            let parts: Vec<_> = self.chain.lock().next_bytes(at, bytes).map(|(from, len)| (from, from + len)).collect();
            self.media.prefetch(&parts);
        }
        if self.chain.lock().read(self.media.as_ref(), at, &mut out)? {
            return Ok(out);
        }
        Err(Error::corrupt(format!("the checkpoint ends before its byte {}", at + bytes)))
    }
}

impl CheckpointStream {
    /// Tells the medium that these bytes of the stream do not match their checksum; whether others may be there now.
    fn distrust(&self, at: u64, bytes: u64) -> bool {
        let parts: Vec<_> = self.chain.lock().next_bytes(at, bytes).collect();
        parts.into_iter().fold(false, |other, (from, len)| self.media.distrust(from, len) | other)
    }
}

/// An index that has not been read from its checkpoint yet.
#[derive(Debug)]
pub(in crate::device) struct CheckpointIndex {
    pub(in crate::device) stream: Arc<CheckpointStream>,
    pub(in crate::device) place: IndexPlace,
    pub(in crate::device) dimensions: usize,
    pub(in crate::device) name: String,
}

impl StoredIndex for CheckpointIndex {
    fn load(&self) -> Result<Index> {
        let geometry = self.stream.chain.lock().geometry();
        decode_index(&self.bytes()?, self.dimensions, &geometry)
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = self.stream.read(self.place.at, self.place.bytes)?;
        if crc32c(&bytes) != self.place.crc && self.stream.distrust(self.place.at, self.place.bytes) {
            bytes = self.stream.read(self.place.at, self.place.bytes)?;
        }
        if crc32c(&bytes) != self.place.crc {
            return Err(Error::corrupt(format!(
                "the index of array {:?} does not match its checksum; `nandarray check --repair` can rebuild it",
                self.name
            )));
        }
        Ok(bytes)
    }

    fn blocks(&self) -> u64 {
        self.place.blocks
    }

    fn is_far(&self) -> bool {
        self.stream.media.is_far()
    }
}
