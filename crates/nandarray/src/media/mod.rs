//! Media, which hold the bytes: a file, memory, or either behind a fault wrapper.
//!
//! A medium is a growable array of bytes with three promises: a write is seen by every later read; [`Media::sync`]
//! makes every write before it durable; a write that was not synced may, after a loss of power, be there, be missing or
//! be torn at the sector ([`SECTOR_BYTES`]), each independently of the others. Nothing else is promised, so nothing
//! else is relied on.
//!
//! A medium does not know pages, segments or records; locks between processes belong to [`file`].

mod extents;
pub mod fault;
pub mod file;
pub mod memory;
mod presence;
pub mod sparse;

use crate::error::Result;

/// Unit at which a write may be torn: the least that any disk writes as one.
pub const SECTOR_BYTES: usize = 512;

/// Bytes at the start of a medium that no segment uses: superblocks, and the bytes that advisory locks are taken on.
pub const HEAD_BYTES: u64 = 65_536;

/// Bytes that are best read from a disk as one, where they are wanted: a large page of the processor, aligned in the
/// medium.
pub const EXTENT_BYTES: u64 = 2 << 20;

/// A place where bytes live. All methods may be called from many threads.
pub trait Media: Send + Sync + std::fmt::Debug {
    /// Bytes that the medium has at present.
    fn len(&self) -> u64;

    /// Whether the medium has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Grows (with zeroes) or cuts the medium.
    fn set_len(&self, bytes: u64) -> Result<()>;

    /// Asks again for the length: another process may have made the medium grow since.
    fn refresh(&self) -> Result<()> {
        Ok(())
    }

    /// Fills `out` from `offset`; an error if that reaches beyond the end.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Writes `bytes` at `offset`; an error if that reaches beyond the end.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Returns once every earlier write is durable.
    fn sync(&self) -> Result<()>;

    /// The bytes in place, where the medium can show them; `None` where it can only be read.
    ///
    /// The caller promises that the range is not written while the slice lives: pages are immutable from when they are
    /// mapped by an index until their segment is erased.
    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]>;

    /// A hint that these ranges (first byte, and the one behind the last; in order, apart) will be read soon; returns
    /// at once. Ranges of one extent ([`EXTENT_BYTES`]) are best passed together. Resident pages cost little more than
    /// the call.
    fn prefetch(&self, _ranges: &[(u64, u64)]) {}

    /// Says that a command in flight will read these bytes, once the time has passed that this takes: for media with a
    /// modelled clock. The command reads them itself, later and silently.
    fn will_read(&self, _offset: u64, _len: u64) {}

    /// Whether reading these bytes would not wait for a disk; a guess is enough.
    fn is_resident(&self, _offset: u64, _len: u64) -> bool {
        true
    }

    /// Whether all bytes would stay in memory once they were read; a guess is enough.
    fn fits_in_memory(&self) -> bool {
        true
    }

    /// A hint that the range's content will never be read again before it is written: it needs no room on the disk.
    fn discard(&self, _offset: u64, _len: u64) {}

    /// Takes room on the disk for a range, so that a later write finds it there whatever else fills the disk; the
    /// content stays. `false` if the disk is full. A medium that cannot tell says `true`: then nothing is promised.
    fn allocate(&self, _offset: u64, _len: u64) -> bool {
        true
    }

    /// Whether other processes read this medium at present, so that nothing they may look at may be reused.
    /// Runs `reuse` while no reader can come in; returns whether it ran.
    fn if_no_readers(&self, reuse: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        reuse().map(|()| true)
    }
}
