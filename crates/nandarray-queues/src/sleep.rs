//! Sleeping without losing a doorbell.
//!
//! A server that finds nothing to do sets `asleep`, then looks at its doorbells once more, then sleeps on that word. A
//! client rings, then looks at `asleep`. A sequentially consistent fence stands between the two steps of each: of a
//! doorbell and a sleeper that cross, one sees the other. `tests/loom.rs` tries every order of the steps, with this
//! file. Not here: the system's call (`futex`).

use crate::atomic::{AtomicU32, Ordering, fence};

/// Announces sleep; true if nothing came in meanwhile, so that the caller may sleep on the word.
pub(crate) fn announce(asleep: &AtomicU32, anything: impl Fn() -> bool) -> bool {
    asleep.store(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if anything() {
        asleep.store(0, Ordering::SeqCst);
        return false;
    }
    true
}

/// Whether the server sleeps, so that the caller, who has rung, wakes it.
pub(crate) fn rouse(asleep: &AtomicU32) -> bool {
    fence(Ordering::SeqCst);
    if asleep.load(Ordering::SeqCst) == 0 {
        return false;
    }
    asleep.store(0, Ordering::SeqCst);
    true
}
