//! The rounds of a client's wait: its deadline, and how often it looks whether the server is gone.

use std::time::{Duration, Instant};

/// Number of rounds after which a wait reads the clock and yields its core.
const CLOCK_ROUNDS: u32 = 64;
/// Number of rounds after which a wait asks the system whether the server's lock is held.
const LOCK_ROUNDS: u32 = 4096;

/// Reason for which a wait failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// The server has ended.
    Gone,
    /// The deadline has passed.
    TimedOut,
}

/// A wait in progress: its deadline, and the rounds so far.
#[derive(Debug, Default)]
pub(crate) struct Wait {
    /// Set when the wait has taken some rounds: most waits end before, and need no clock.
    until: Option<Instant>,
    rounds: u32,
}

impl Wait {
    /// Counts one round, and returns why the wait ends, if it does. Calls `ended` every
    /// [`CLOCK_ROUNDS`] rounds, and `released` every [`LOCK_ROUNDS`].
    pub(crate) fn round(
        &mut self,
        deadline: Duration,
        ended: impl Fn() -> bool,
        released: impl Fn() -> bool,
    ) -> Option<WaitEnd> {
        self.rounds += 1;
        if self.rounds.is_multiple_of(CLOCK_ROUNDS) {
            if ended() || (self.rounds.is_multiple_of(LOCK_ROUNDS) && released()) {
                return Some(WaitEnd::Gone);
            }
            let now = now();
            if now > *self.until.get_or_insert(now + deadline) {
                return Some(WaitEnd::TimedOut);
            }
            std::thread::yield_now();
        }
        std::hint::spin_loop();
        None
    }
}

/// Reads the machine's clock, which is used only for deadlines.
#[expect(clippy::disallowed_methods, reason = "a client waits for another process, which may be gone")]
fn now() -> Instant {
    Instant::now()
}
