//! Waits of tests, with a limit: a thread that never ends fails its test, and does not hold up all others.
//!
//! A thread that borrows cannot be left alone, so the process of the test is ended. Not here: waits of
//! other kinds, which have a limit of their own (`recv_timeout`).

use std::thread::{JoinHandle, Result, ScopedJoinHandle};
use std::time::Duration;

/// Time for which a test waits for a thread.
const LIMIT: Duration = Duration::from_secs(300);
/// Time between two looks at the thread.
const LOOK: Duration = Duration::from_millis(1);

/// A thread that can be waited for.
pub trait TestThread<T> {
    /// Whether the thread has ended.
    fn is_over(&self) -> bool;
    /// Takes its result.
    fn result(self) -> Result<T>;
}

impl<T> TestThread<T> for JoinHandle<T> {
    fn is_over(&self) -> bool {
        self.is_finished()
    }

    fn result(self) -> Result<T> {
        self.join()
    }
}

impl<T> TestThread<T> for ScopedJoinHandle<'_, T> {
    fn is_over(&self) -> bool {
        self.is_finished()
    }

    fn result(self) -> Result<T> {
        self.join()
    }
}

/// Returns the result of a thread that has to end; ends the process if it does not.
///
/// # Panics
/// If the thread has.
#[track_caller]
pub fn joined<T>(thread: impl TestThread<T>) -> T {
    for _ in 0..LIMIT.as_millis() / LOOK.as_millis() {
        if thread.is_over() {
            return thread.result().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        std::thread::sleep(LOOK);
    }
    eprintln!("{}: a thread has not ended within {LIMIT:?}", std::panic::Location::caller());
    std::process::abort()
}
