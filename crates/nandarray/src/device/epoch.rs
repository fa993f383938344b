//! The epoch: a lock that a command holds shared while it applies its changes, and a cut of the journal holds
//! exclusively.
//!
//! A command that panics while it holds the epoch leaves the indexes half changed. Its guard records this before it
//! releases the lock, so that a cut that waits for the lock does not write such a state ([`Epoch::is_torn`]). Reads do
//! not take the epoch.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The epoch: its lock, and whether a holder of the lock panicked.
#[derive(Debug, Default)]
pub(super) struct Epoch {
    lock: RwLock<()>,
    torn: AtomicBool,
}

/// Holds the epoch, shared or exclusively, until it is dropped.
pub(super) struct EpochGuard<'a, G> {
    torn: &'a AtomicBool,
    _guard: G,
}

impl Epoch {
    /// Takes the lock shared: waits until no cut is being taken.
    pub(super) fn read(&self) -> EpochGuard<'_, RwLockReadGuard<'_, ()>> {
        EpochGuard { _guard: self.lock.read(), torn: &self.torn }
    }

    /// Takes the lock exclusively: waits until no command is being applied.
    pub(super) fn write(&self) -> EpochGuard<'_, RwLockWriteGuard<'_, ()>> {
        EpochGuard { _guard: self.lock.write(), torn: &self.torn }
    }

    /// Whether a holder has panicked. While the caller holds the epoch exclusively the answer does not change.
    pub(super) fn is_torn(&self) -> bool {
        self.torn.load(Ordering::Acquire)
    }
}

impl<G> Drop for EpochGuard<'_, G> {
    fn drop(&mut self) {
        // Fields are dropped after this, so the flag is set before another thread gets the lock.
        if std::thread::panicking() {
            self.torn.store(true, Ordering::Release);
        }
    }
}
