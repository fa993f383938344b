//! A medium in memory that stores only what is not zero, for modelled devices far larger than the machine.
//!
//! The medium is divided into chunks; a chunk that was never written, or only with zeroes, takes no memory. Like
//! [`super::memory`] it cannot show bytes in place.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::RwLock;

use super::Media;
use super::memory::beyond;
use crate::error::Result;

/// Size of a chunk in bytes.
const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug, Default)]
struct SparseState {
    len: u64,
    chunks: BTreeMap<u64, Box<[u8]>>,
}

/// A growable array of bytes, mostly zeroes, as a medium.
#[derive(Debug, Default)]
pub struct SparseMedia {
    state: RwLock<SparseState>,
}

/// Cuts a range of the medium at chunks: returns for each touched chunk its number, the touched bytes within the chunk,
/// and the position of these bytes within the range.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let here = offset + done as u64;
            let within = (here % CHUNK_BYTES as u64) as usize;
            let n = (CHUNK_BYTES - within).min(len - done);
            let piece = (here / CHUNK_BYTES as u64, within..within + n, done..done + n);
            done += n;
            piece
        })
    })
}

impl SparseMedia {
    /// Returns the number of bytes of memory that the content takes.
    pub fn resident_bytes(&self) -> u64 {
        self.state.read().chunks.len() as u64 * CHUNK_BYTES as u64
    }
}

impl Media for SparseMedia {
    fn len(&self) -> u64 {
        self.state.read().len
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let state = &mut *self.state.write();
        if bytes < state.len {
            // Bytes that are cut off must be zero if the medium grows again.
            let (chunk, within) = (bytes / CHUNK_BYTES as u64, (bytes % CHUNK_BYTES as u64) as usize);
            state.chunks.split_off(&(chunk + u64::from(within > 0)));
            if let Some(last) = state.chunks.get_mut(&chunk) {
                last[within..].fill(0);
            }
        }
        state.len = bytes;
        Ok(())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let state = self.state.read();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > state.len) {
            return Err(beyond("read", offset, out.len()));
        }
        for (chunk, within, part) in pieces(offset, out.len()) {
            match state.chunks.get(&chunk) {
                Some(bytes) => out[part].copy_from_slice(&bytes[within]),
                None => out[part].fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let state = &mut *self.state.write();
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > state.len) {
            return Err(beyond("write", offset, bytes.len()));
        }
        for (chunk, within, part) in pieces(offset, bytes.len()) {
            let from = &bytes[part];
            if let Some(to) = state.chunks.get_mut(&chunk) {
                to[within].copy_from_slice(from);
            } else if from.iter().any(|&b| b != 0) {
                let mut fresh = vec![0; CHUNK_BYTES].into_boxed_slice();
                fresh[within].copy_from_slice(from);
                state.chunks.insert(chunk, fresh);
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn slice(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::memory::MemoryMedia;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn holds_what_memory_holds(
            steps in prop::collection::vec((0u8..3, 0u64..400_000, 0usize..150_000, any::<u8>()), 1..40),
        ) {
            let (sparse, memory) = (SparseMedia::default(), MemoryMedia::default());
            for (what, at, len, byte) in steps {
                match what {
                    0 => {
                        sparse.set_len(at).unwrap();
                        memory.set_len(at).unwrap();
                    }
                    1 => {
                        let bytes = vec![byte & 1; len];
                        prop_assert_eq!(sparse.write_at(at, &bytes).is_ok(), memory.write_at(at, &bytes).is_ok());
                    }
                    _ => {
                        let (mut a, mut b) = (vec![9; len], vec![9; len]);
                        prop_assert_eq!(sparse.read_at(at, &mut a).is_ok(), memory.read_at(at, &mut b).is_ok());
                        prop_assert!(a == b);
                    }
                }
            }
            let mut all = vec![0; sparse.len() as usize];
            sparse.read_at(0, &mut all).unwrap();
            prop_assert!(all == memory.to_bytes());
        }
    }

    #[test]
    fn a_terabyte_of_nothing_takes_nothing() {
        let medium = SparseMedia::default();
        medium.set_len(1 << 40).unwrap();
        medium.write_at(1 << 39, &[0; 100_000]).unwrap();
        assert_eq!(medium.resident_bytes(), 0);
        medium.write_at((1 << 40) - 1, &[1]).unwrap();
        assert_eq!(medium.resident_bytes(), CHUNK_BYTES as u64);
    }
}
