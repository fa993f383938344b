//! The protocol by which a server sleeps and clients wake it, without losing a doorbell.
//!
//! A server that finds nothing to do sets the word `asleep`, checks its doorbells once more, then sleeps on the word. A
//! client rings a doorbell, then checks `asleep`. Each has a sequentially consistent fence between its two steps, so
//! that when both happen at once, at least one side sees the other. `tests/loom.rs` includes this file and tries every
//! order of the steps. The system calls are in `futex`.

use crate::atomic::{AtomicU32, Ordering, fence};

/// Announces that the server is about to sleep. Returns true if there is still no work, so that the caller may sleep on
/// the word; otherwise withdraws the announcement.
pub(crate) fn announce(asleep: &AtomicU32, anything: impl Fn() -> bool) -> bool {
    asleep.store(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if anything() {
        asleep.store(0, Ordering::SeqCst);
        return false;
    }
    true
}

/// Clears the server's announcement that it sleeps. Returns whether there was one, so that the caller, who has rung a
/// doorbell, has to wake the server.
pub(crate) fn rouse(asleep: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    if asleep.load(Ordering::SeqCst) == 0 {
        return false;
    }
    asleep.store(0, Ordering::SeqCst);
    true
}
