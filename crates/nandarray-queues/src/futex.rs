//! The futex system calls: a thread sleeps on a word of shared memory, and another process wakes it.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::sleep::rouse;

/// Sleeps while the word is 1, for at most this number of milliseconds, or until [`wake`]; then sets the word to 0.
pub(crate) fn wait(asleep: &AtomicU32, milliseconds: u32) {
    let limit = libc::timespec { tv_sec: 0, tv_nsec: libc::c_long::from(milliseconds as i32) * 1_000_000 };
    // SAFETY: the word lives for the call; a spurious return is fine.
    unsafe { libc::syscall(libc::SYS_futex, asleep.as_ptr(), libc::FUTEX_WAIT, 1, &raw const limit) };
    asleep.store(0, Ordering::SeqCst);
}

/// Wakes the server if it sleeps; to be called after ringing a doorbell.
pub(crate) fn wake(asleep: &AtomicU32) {
    if rouse(asleep) {
        // SAFETY: the word lives for the call.
        unsafe { libc::syscall(libc::SYS_futex, asleep.as_ptr(), libc::FUTEX_WAKE, 1) };
    }
}
