//! The system's calls of sleeping: a word of shared memory is slept on, and its sleepers are woken.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sleep::rouse;

/// Sleeps while the word is 1, at most this number of milliseconds.
pub(crate) fn wait(asleep: &AtomicU32, milliseconds: u32) {
    let limit = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(milliseconds as i32) * 1_000_000 };
    // SAFETY: the word lives for the call; a spurious return is fine.
    unsafe { libc::syscall(libc::SYS_futex, asleep.as_ptr(), libc::FUTEX_WAIT, 1, &raw const limit) };
    asleep.store(0, Ordering::SeqCst);
}

/// Wakes the server if it sleeps; called after ringing.
pub(crate) fn wake(asleep: &AtomicU32) {
    if rouse(asleep) {
        // SAFETY: the word lives for the call.
        unsafe { libc::syscall(libc::SYS_futex, asleep.as_ptr(), libc::FUTEX_WAKE, 1) };
    }
}
