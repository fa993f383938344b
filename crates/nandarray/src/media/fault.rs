//! A medium in memory that injects faults: lost power at any write, torn sectors, failing regions, a full disk.
//!
//! The fault model. Writes and changes of length since the last sync are *pending*. When the power fails, each pending
//! write is independently kept, lost, or torn; a torn one keeps a seeded random choice of its sectors. The write during
//! which the power fails is itself torn. From then on every operation fails, as for a program whose machine is gone;
//! [`FaultMedia::after_crash`] returns the surviving bytes, which can be opened as another medium. A process that is
//! killed loses nothing that it wrote: [`FaultMedia::after_kill`].
//!
//! Used to verify: recovery, whole-or-absent commands, durability after a flush, retirement of bad segments, full
//! disks.
//! Not modelled: writes that reach another offset than the caller's, and reads that return stale data after a sync.

use std::io;

use parking_lot::Mutex;

use super::memory::beyond;
use super::{Media, SECTOR_BYTES};
use crate::error::{Error, Result};
use crate::sim::Chance;

#[derive(Debug)]
enum Pending {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Debug, Default)]
struct FaultState {
    /// Content of the medium as the program sees it.
    live: Vec<u8>,
    /// Content that certainly survives a loss of power.
    durable: Vec<u8>,
    pending: Vec<Pending>,
    writes: u64,
    syncs: u64,
    crash_at_write: Option<u64>,
    crashed: bool,
    bad: Vec<std::ops::Range<u64>>,
    max_bytes: Option<u64>,
}

/// A medium in memory that fails on demand, deterministically.
#[derive(Debug, Default)]
pub struct FaultMedia {
    state: Mutex<FaultState>,
}

impl FaultMedia {
    /// Creates a medium with this content, which is durable.
    pub fn with_bytes(bytes: Vec<u8>) -> Self {
        Self { state: Mutex::new(FaultState { live: bytes.clone(), durable: bytes, ..FaultState::default() }) }
    }

    /// Makes the power fail during the `n`-th write or change of length from now, counted from 1.
    pub fn crash_at_write(&self, n: u64) {
        let mut s = self.state.lock();
        s.crash_at_write = Some(s.writes + n);
    }

    /// Makes all writes that touch these bytes fail from now on (EIO), as in a worn-out block.
    pub fn make_bad(&self, bytes: std::ops::Range<u64>) {
        self.state.lock().bad.push(bytes);
    }

    /// Limits the size of the medium, in bytes: growing beyond it fails as on a full disk; `None` is no limit.
    pub fn limit(&self, max_bytes: Option<u64>) {
        self.state.lock().max_bytes = max_bytes;
    }

    /// Whether the power has failed.
    pub fn crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// Returns the number of writes and changes of length so far.
    pub fn writes(&self) -> u64 {
        self.state.lock().writes
    }

    /// Returns the bytes that remain if the process is killed now: everything that it wrote.
    pub fn after_kill(&self) -> Vec<u8> {
        self.state.lock().live.clone()
    }

    /// Returns the bytes that remain if the power fails now: all that was synced, and a random choice of the pending
    /// writes, which `seed` determines.
    pub fn after_crash(&self, seed: u64) -> Vec<u8> {
        let s = self.state.lock();
        let mut chance = Chance::seeded(seed);
        let mut bytes = s.durable.clone();
        for pending in &s.pending {
            match pending {
                Pending::SetLen(len) => {
                    if chance.below(2) == 0 {
                        bytes.resize(*len, 0);
                    }
                }
                Pending::Write { offset, bytes: new } => match chance.below(4) {
                    0 => {}
                    1 | 2 => land(&mut bytes, *offset, new),
                    _ => {
                        let mut at = 0;
                        while at < new.len() {
                            // Sectors end at multiples of their size on the medium, not within the write.
                            let to = (SECTOR_BYTES - (offset + at) % SECTOR_BYTES + at).min(new.len());
                            if chance.below(2) == 0 {
                                land(&mut bytes, offset + at, &new[at..to]);
                            }
                            at = to;
                        }
                    }
                },
            }
        }
        bytes
    }
}

fn land(bytes: &mut Vec<u8>, offset: usize, new: &[u8]) {
    // A write that survives implies the length that it needs: file systems keep no blocks after the end of a file.
    if bytes.len() < offset + new.len() {
        bytes.resize(offset + new.len(), 0);
    }
    bytes[offset..offset + new.len()].copy_from_slice(new);
}

impl FaultState {
    fn alive(&self, op: &'static str, offset: u64, len: usize) -> Result<()> {
        if self.crashed {
            return Err(failed(op, offset, len, io::Error::other("the power has failed")));
        }
        Ok(())
    }

    fn begin_write(&mut self, op: &'static str, offset: u64, len: usize) -> Result<bool> {
        self.alive(op, offset, len)?;
        self.writes += 1;
        self.crashed = self.crash_at_write == Some(self.writes);
        Ok(self.crashed)
    }
}

fn failed(op: &'static str, offset: u64, len: usize, source: io::Error) -> Error {
    Error::Media { op, offset, len: len as u64, source }
}

impl Media for FaultMedia {
    fn len(&self) -> u64 {
        self.state.lock().live.len() as u64
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let mut s = self.state.lock();
        if s.max_bytes.is_some_and(|max| bytes > max) {
            return Err(failed("growing", bytes, 0, io::Error::from_raw_os_error(libc::ENOSPC)));
        }
        let crash = s.begin_write("growing", bytes, 0)?;
        s.pending.push(Pending::SetLen(bytes as usize));
        if crash {
            return s.alive("growing", bytes, 0);
        }
        s.live.resize(bytes as usize, 0);
        Ok(())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let s = self.state.lock();
        s.alive("read", offset, out.len())?;
        let from = s.live.get(offset as usize..).and_then(|b| b.get(..out.len()));
        out.copy_from_slice(from.ok_or_else(|| beyond("read", offset, out.len()))?);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<()> {
        let mut s = self.state.lock();
        let (start, end) = (offset as usize, offset as usize + from.len());
        if end > s.live.len() {
            return Err(beyond("write", offset, from.len()));
        }
        if s.bad.iter().any(|bad| bad.start < end as u64 && (start as u64) < bad.end) {
            s.alive("write", offset, from.len())?;
            return Err(failed("write", offset, from.len(), io::Error::from_raw_os_error(libc::EIO)));
        }
        let crash = s.begin_write("write", offset, from.len())?;
        s.pending.push(Pending::Write { offset: start, bytes: from.to_vec() });
        if crash {
            return s.alive("write", offset, from.len());
        }
        s.live[start..end].copy_from_slice(from);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut s = self.state.lock();
        s.alive("sync", 0, 0)?;
        s.syncs += 1;
        s.durable = s.live.clone();
        s.pending.clear();
        Ok(())
    }

    fn slice(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_bytes_survive_and_pending_ones_may_not() {
        let m = FaultMedia::with_bytes(vec![0; 4096]);
        m.write_at(0, &[1; 1024]).unwrap();
        m.sync().unwrap();
        m.write_at(1024, &[2; 1024]).unwrap();
        let outcomes: std::collections::BTreeSet<Vec<u8>> = (0..64).map(|seed| m.after_crash(seed)).collect();
        assert!(outcomes.iter().all(|b| b[..1024] == [1; 1024]));
        assert!(outcomes.len() >= 4, "kept, lost and torn all occur");
        assert_eq!(m.after_kill()[1024..2048], [2; 1024]);
    }

    #[test]
    fn the_nth_write_is_the_last() {
        let m = FaultMedia::with_bytes(vec![0; 4096]);
        m.crash_at_write(2);
        m.write_at(0, &[1; 512]).unwrap();
        assert!(m.write_at(512, &[1; 512]).is_err());
        assert!(m.crashed() && m.sync().is_err());
    }
}
