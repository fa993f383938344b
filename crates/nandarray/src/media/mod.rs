//! Media, which store the bytes: a file, memory, memory with injected faults, or an object far away.
//!
//! A medium is a growable array of bytes with three promises: a write is seen by every later read; [`Media::sync`]
//! makes every earlier write durable; after a loss of power each write that was not synced is, independently of the
//! others, complete, missing, or torn at sectors ([`SECTOR_BYTES`]). The layers above rely on nothing else.
//!
//! A medium knows no pages, segments or records; locks between processes belong to `file`.

mod extents;
pub mod fault;
pub mod file;
pub mod memory;
mod presence;
pub mod remote;
pub mod sparse;

use crate::error::Result;

/// The state of a medium's file, as the system knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    /// Number that names this file, and not a copy of it: it stays when the file is renamed, and when the machine is
    /// started again (`file::file_key`).
    pub key: [u8; 16],
    /// User to whom the file belongs.
    pub uid: u32,
    /// Group of the file.
    pub gid: u32,
    /// Permission bits of the file, 12 of them.
    pub mode: u32,
    /// Number of names of the file; with 0, what is written is lost when the file is closed.
    pub names: u64,
    /// Whether the path by which the file was opened names it still.
    pub at_path: bool,
}

/// Unit in bytes at which a write may be torn: the smallest that a disk writes atomically.
pub const SECTOR_BYTES: usize = 512;

/// Size in bytes of the head of a medium, which has no segments: superblocks, marks, and the bytes that are locked.
pub const HEAD_BYTES: u64 = 65_536;

/// Size in bytes of an extent, aligned in the medium, that is best read from a disk as a whole: a large page of the
/// processor.
pub const EXTENT_BYTES: u64 = 2 << 20;

/// A medium, which stores bytes. All methods may be called by several threads at the same time.
pub trait Media: Send + Sync + std::fmt::Debug {
    /// Returns the present size of the medium in bytes.
    fn len(&self) -> u64;

    /// Whether the medium has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Grows the medium with zeroes, or truncates it, to this number of bytes.
    fn set_len(&self, bytes: u64) -> Result<()>;

    /// Updates the length, as another process may have enlarged the medium.
    fn refresh(&self) -> Result<()> {
        Ok(())
    }

    /// Reads bytes from `offset` on until `out` is full; an error if these are not all within the medium.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Writes `bytes` at `offset`; an error if these are not all within the medium.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Waits until all earlier writes are durable.
    fn sync(&self) -> Result<()>;

    /// Returns bytes of the medium in place, without copying; `None` if the medium can only be read by
    /// [`Self::read_at`].
    ///
    /// The caller promises that the range is not written while the slice exists: pages are immutable from their mapping
    /// by an index until their segment is reused.
    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]>;

    /// Hints that these ranges will be read soon, and returns at once. Ranges are (first byte, end), ascending and
    /// disjoint; those of one extent (`EXTENT_BYTES`) should be passed in one call. Resident pages cost little more
    /// than the call.
    fn prefetch(&self, _ranges: &[(u64, u64)]) {}

    /// Announces that a command in flight will read these bytes, for media under a modelled clock. The command itself
    /// reads them later, when the modelled time of the read has passed, and without another announcement.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// Whether absent bytes come from another machine, so that each wait for some takes a round trip, and
    /// [`Self::slice`] returns `None` until they have come.
    fn is_far(&self) -> bool {
        false
    }

    /// Waits until these bytes are resident, where bytes come from another machine; elsewhere a read waits for itself.
    fn bring(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    /// Learns that these bytes do not match their checksums. Returns whether other bytes may be there when they are
    /// read again.
    fn distrust(&self, _offset: u64, _len: u64) -> bool {
        false
    }

    /// Whether these bytes can probably be read without waiting for a disk.
    fn is_resident(&self, _offset: u64, _len: u64) -> bool {
        true
    }

    /// Returns the state of the medium's file; `None` of a medium in no file.
    fn file_state(&self) -> Option<FileState> {
        None
    }

    /// Whether all bytes would probably stay in memory after they were read.
    fn fits_in_memory(&self) -> bool {
        true
    }

    /// Hints that the range will not be read before it is written again, so that its disk blocks can be deallocated.
    fn discard(&self, _offset: u64, _len: u64) {}

    /// Allocates disk blocks for a range, so that a later write to it does not fail on a full disk; its content stays.
    /// `false` if the disk is full. A medium that cannot tell returns `true`, which then promises nothing.
    fn allocate(&self, _offset: u64, _len: u64) -> bool {
        true
    }

    /// Runs `reuse`, which may overwrite or discard content, unless another process is reading this medium; no reader
    /// can begin during the call. Returns whether it ran.
    fn if_no_readers(&self, reuse: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        reuse().map(|()| true)
    }
}
