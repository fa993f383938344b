//! Memory without page tables and protection, in builds without bare machines (feature `bare`): what `guarded` does
//! where there is no guard.

/// A guard that cannot exist.
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

    /// Whether bytes may be read and written: the access itself tells.
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as in builds with bare machines")]
    pub(crate) fn may_store(&mut self, _address: u64, _bytes: usize) -> Result<(), Fault> {
        Ok(())
    }

    /// Two or four bytes of code at `address`.
    pub(crate) fn fetch(&mut self, address: u64) -> Result<u32, Fault> {
        self.executable(address).ok_or(Fault::at(address))
    }

    /// The address at which a block at `pc` ends at the latest: none.
    #[expect(clippy::unused_self, reason = "as in builds with bare machines")]
    pub(crate) fn block_end(&self, _pc: u64) -> u64 {
        u64::MAX
    }

    /// Take note that the instructions of a block of `bytes` bytes at `pc` were decoded.
    pub(crate) fn note_decoded(&mut self, pc: u64, bytes: u64) {
        self.decoded(pc..pc.saturating_add(bytes));
    }
}
