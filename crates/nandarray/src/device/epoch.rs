//! The epoch: held shared while a command changes what the journal will say, exclusively while the journal takes a cut
//! of it.
//!
//! A command that panics in between leaves the indexes half changed. Its guard notes that before it lets go, so that no
//! cut that waits for it writes such a state ([`Epoch::is_torn`]). Reading does not take the epoch.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The lock, and whether a holder panicked.
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
    /// Waits for no cut to be taken.
    pub(super) fn read(&self) -> EpochGuard<'_, RwLockReadGuard<'_, ()>> {
        EpochGuard { _guard: self.lock.read(), torn: &self.torn }
    }

    /// Waits for no command to be applied.
    pub(super) fn write(&self) -> EpochGuard<'_, RwLockWriteGuard<'_, ()>> {
        EpochGuard { _guard: self.lock.write(), torn: &self.torn }
    }

    /// Whether a holder panicked. The answer is final while the epoch is held exclusively.
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
