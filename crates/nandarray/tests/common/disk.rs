//! A simulated disk: a medium in memory that has a bounded number of blocks, and whose operations fail on demand.
//!
//! A block is allocated when it is first written or requested, and deallocated when all of it is discarded or
//! truncated, as a sparse file's is. A write that finds no free block writes the bytes before that block, and fails
//! with ENOSPC. Faults are injected by kind of operation and by number; a write that fails so writes nothing.
//!
//! Losses of power are not simulated here; `FaultMedia` does that.

use std::collections::BTreeSet;
use std::io;

use nandarray::{Error, Media, Result};
use parking_lot::Mutex;

/// Size of a disk block in bytes; it is also the page size of `Geometry::TINY`.
const BLOCK_BYTES: u64 = 512;

/// Kind of a disk's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Length,
    Sync,
}

#[derive(Debug, Default)]
struct State {
    bytes: Vec<u8>,
    taken: BTreeSet<u64>,
    blocks: Option<u64>,
    /// Operations that fail: their kind, the range of their numbers among all of this kind, and the system's error
    /// number; `None` if none fails.
    fault: Option<(Kind, std::ops::Range<u64>, i32)>,
    done: [u64; 3],
}

/// A simulated disk with one file.
#[derive(Debug, Default)]
pub(crate) struct Disk(Mutex<State>);

fn failed(op: &'static str, offset: u64, len: u64, errno: i32) -> Error {
    Error::Media { op, offset, len, source: io::Error::from_raw_os_error(errno) }
}

impl State {
    /// Counts an operation; returns an error if the test has arranged that it fails.
    fn begin(&mut self, kind: Kind, op: &'static str, offset: u64, len: u64) -> Result<()> {
        let number = self.done[kind as usize];
        self.done[kind as usize] += 1;
        match &self.fault {
            Some((of, which, errno)) if *of == kind && which.contains(&number) => Err(failed(op, offset, len, *errno)),
            _ => Ok(()),
        }
    }

    /// Allocates blocks for a range, as far as there are free ones; returns the number of the range's bytes that have
    /// blocks.
    fn take(&mut self, offset: u64, len: u64) -> u64 {
        for block in offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES) {
            let full = self.blocks.is_some_and(|most| self.taken.len() as u64 >= most);
            if full && !self.taken.contains(&block) {
                return (block * BLOCK_BYTES).saturating_sub(offset);
            }
            self.taken.insert(block);
        }
        len
    }
}

impl Disk {
    /// Creates a disk that holds a file with these bytes.
    pub(crate) fn with_bytes(bytes: Vec<u8>) -> Self {
        let taken = (0..(bytes.len() as u64).div_ceil(BLOCK_BYTES)).collect();
        Self(Mutex::new(State { bytes, taken, ..State::default() }))
    }

    /// Limits the disk's size to this number of bytes; `None` removes the limit.
    pub(crate) fn limit(&self, bytes: Option<u64>) {
        self.0.lock().blocks = bytes.map(|b| b / BLOCK_BYTES);
    }

    /// Returns the size of all allocated blocks in bytes.
    pub(crate) fn used(&self) -> u64 {
        self.0.lock().taken.len() as u64 * BLOCK_BYTES
    }

    /// Returns the number of operations of a kind so far.
    pub(crate) fn done(&self, kind: Kind) -> u64 {
        self.0.lock().done[kind as usize]
    }

    /// Makes `count` operations of a kind fail with `errno`, after the next `after` operations of that kind, which
    /// succeed.
    pub(crate) fn fail(&self, kind: Kind, after: u64, count: u64, errno: i32) {
        let s = &mut *self.0.lock();
        let first = s.done[kind as usize] + after;
        s.fault = Some((kind, first..first.saturating_add(count), errno));
    }

    /// Removes the faults that [`Self::fail`] arranged.
    pub(crate) fn heal(&self) {
        self.0.lock().fault = None;
    }

    /// Returns the file's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.0.lock().bytes.clone()
    }
}

impl Media for Disk {
    fn len(&self) -> u64 {
        self.0.lock().bytes.len() as u64
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let s = &mut *self.0.lock();
        s.begin(Kind::Length, "growing", bytes, 0)?;
        s.bytes.resize(bytes as usize, 0);
        s.taken.split_off(&bytes.div_ceil(BLOCK_BYTES));
        Ok(())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let s = self.0.lock();
        let from = s.bytes.get(offset as usize..).and_then(|b| b.get(..out.len()));
        out.copy_from_slice(from.ok_or_else(|| failed("read", offset, out.len() as u64, EIO))?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let s = &mut *self.0.lock();
        let len = bytes.len() as u64;
        assert!(offset + len <= s.bytes.len() as u64, "writes stay within the length");
        s.begin(Kind::Write, "write", offset, len)?;
        let fits = s.take(offset, len);
        s.bytes[offset as usize..][..fits as usize].copy_from_slice(&bytes[..fits as usize]);
        if fits < len { Err(failed("write", offset, len, ENOSPC)) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        self.0.lock().begin(Kind::Sync, "sync", 0, 0)
    }

    fn slice(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn discard(&self, offset: u64, len: u64) {
        let s = &mut *self.0.lock();
        let end = (offset + len).min(s.bytes.len() as u64);
        s.bytes[offset as usize..end as usize].fill(0);
        for block in offset.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES {
            s.taken.remove(&block);
        }
    }

    fn allocate(&self, offset: u64, len: u64) -> bool {
        let s = &mut *self.0.lock();
        let blocks = offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES);
        let more = blocks.clone().filter(|block| !s.taken.contains(block)).count() as u64;
        // All or nothing, as file systems do.
        let fits = s.blocks.is_none_or(|most| s.taken.len() as u64 + more <= most);
        if fits {
            s.taken.extend(blocks);
        }
        fits
    }
}

pub(crate) const EIO: i32 = 5;
pub(crate) const ENOSPC: i32 = 28;
