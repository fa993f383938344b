//! Memory of commands that a connection has passed on: to workers, and to the socket of a host that may not read.
//!
//! It counts against the connection's limit, for which its thread waits, and against the tenant's budget, which has an
//! end.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nandarray_nvme_spec::{ADMIN_IN_CAPSULE_BYTES, Status};
use parking_lot::{Condvar, Mutex};

use crate::budget::{Budget, ReservedMemory};

/// Maximum number of bytes of transfers from the host in progress at once, and of the data and results of commands that
/// a connection has passed to workers.
pub(super) const TRANSFER_BYTES: usize = 16 << 20;

/// Time for which a transfer waits for memory of the budget before its command is refused.
const MEMORY_TIME: Duration = Duration::from_secs(1);
/// Time between two looks at the budget.
const PAUSE: Duration = Duration::from_millis(20);

/// Bytes that were passed on for a connection.
#[derive(Debug, Default)]
pub(super) struct PassedBytes {
    held: Mutex<usize>,
    freed: Condvar,
}

impl PassedBytes {
    /// Waits until `bytes` more bytes may be passed on; any number may be if there are none. `before` is called before
    /// a wait.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize, before: impl FnOnce()) -> HeldBytes {
        let mut held = self.held.lock();
        let is_full = |held: &mut usize| *held > 0 && *held + bytes > TRANSFER_BYTES;
        if is_full(&mut held) {
            drop(held);
            before();
            held = self.held.lock();
            self.freed.wait_while(&mut held, is_full);
        }
        *held += bytes;
        HeldBytes { of: self.clone(), bytes }
    }
}

/// The bytes of one command, which are free again when this is dropped.
#[derive(Debug)]
pub(super) struct HeldBytes {
    of: Arc<PassedBytes>,
    bytes: usize,
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        *self.of.held.lock() -= self.bytes;
        self.of.freed.notify_all();
    }
}

/// The memory of one command until its answer is sent.
#[derive(Debug, Default)]
pub(super) struct CommandMemory {
    _passed: Option<HeldBytes>,
    _reserved: Vec<ReservedMemory>,
}

impl CommandMemory {
    pub(super) fn new(passed: Option<HeldBytes>, reserved: Vec<ReservedMemory>) -> Self {
        Self { _passed: passed, _reserved: reserved }
    }
}

/// Reserves memory for a transfer from the host; without a budget, or for few bytes, none. The call waits for it if no
/// transfer of the connection would free any (`is_first`).
///
/// # Errors
/// Out of resources.
pub(super) fn reserve_transfer(
    budget: Option<&Arc<Budget>>,
    bytes: usize,
    is_first: bool,
) -> Result<Option<ReservedMemory>, Status> {
    let Some(budget) = budget.filter(|_| bytes > ADMIN_IN_CAPSULE_BYTES) else { return Ok(None) };
    let mut waited = Duration::ZERO;
    loop {
        match budget.reserve(bytes as u64) {
            Err(_) if is_first && waited < MEMORY_TIME => {
                thread::sleep(PAUSE);
                waited += PAUSE;
            }
            done => return done.map(Some),
        }
    }
}
