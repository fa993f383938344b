//! Memory without page tables and protection, in builds without bare machines (feature `bare`): the functions of
//! `guarded` for the case without a guard.

/// The type of a guard; no value of it can exist in this build.
pub(crate) use std::convert::Infallible as Guard;

use super::RegionTable;
use crate::access::Fault;

impl RegionTable {
    pub(super) fn load_guarded<const N: usize>(&mut self, _address: u64) -> Result<[u8; N], Fault> {
        unreachable!("without bare machines no memory is guarded")
    }

    pub(super) fn store_guarded<const N: usize>(&mut self, _address: u64, _bytes: [u8; N]) -> Result<(), Fault> {
        unreachable!("without bare machines no memory is guarded")
    }

    /// Checks that bytes may be stored to. Always succeeds in this build: the store itself fails if no writable region
    /// contains the bytes.
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in builds with bare machines")]
    pub(crate) fn may_store(&mut self, _address: u64, _bytes: usize) -> Result<(), Fault> {
        Ok(())
    }

    /// Returns the two or four bytes of the instruction at `address`.
    pub(crate) fn fetch(&mut self, address: u64) -> Result<u32, Fault> {
        self.executable(address).ok_or(Fault::at(address))
    }

    /// Returns the end of the addresses from which a block at `pc` may be decoded; unlimited in this build.
    #[expect(clippy::unused_self, reason = "as in builds with bare machines")]
    pub(crate) fn block_end(&self, _pc: u64) -> u64 {
        u64::MAX
    }

    /// Records that a block of `bytes` bytes at `pc` was decoded, so that stores to it are noticed.
    pub(crate) fn note_decoded(&mut self, pc: u64, bytes: u64) {
        self.decoded(pc..pc.saturating_add(bytes));
    }
}
