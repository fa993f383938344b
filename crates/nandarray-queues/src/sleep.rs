//! Sleeping without losing a doorbell.
//!
//! A server that finds nothing to do sets `asleep`, then looks at its doorbells once more, then sleeps on that word. A
//! client rings, then looks at `asleep`. Both are sequentially consistent: of a doorbell and a sleeper that cross, one
//! sees the other.

use std::sync::atomic::{AtomicU32, Ordering};

/// Announces sleep; true if nothing came in meanwhile, so that the caller may [`wait`].
pub(crate) fn announce(asleep: &AtomicU32, anything: impl Fn() -> bool) -> bool {
    asleep.store(1, Ordering::SeqCst);
    std::sync::atomic::fence(Ordering::SeqCst);
    if anything() {
        asleep.store(0, Ordering::SeqCst);
        return false;
    }
    true
}

/// Sleeps while the word is 1, at most this number of milliseconds.
pub(crate) fn wait(asleep: &AtomicU32, milliseconds: u32) {
    let limit = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(milliseconds as i32) * 1_000_000 };
    // SAFETY: the word lives for the call; a spurious return is fine.
    unsafe { libc::syscall(libc::SYS_futex, asleep.as_ptr(), libc::FUTEX_WAIT, 1, &raw const limit) };
    asleep.store(0, Ordering::SeqCst);
}

/// Wakes the server if it sleeps; called after ringing with a sequentially consistent exchange.
pub(crate) fn wake(asleep: &AtomicU32) {
    if asleep.load(Ordering::SeqCst) != 0 {
        asleep.store(0, Ordering::SeqCst);
        // SAFETY: the word lives for the call.
        unsafe { libc::syscall(libc::SYS_futex, asleep.as_ptr(), libc::FUTEX_WAKE, 1) };
    }
}
