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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_wait_looks_at_the_server_after_so_many_rounds_and_ends_when_it_is_gone() {
        // The round in which the server says that it ends, and that in which its lock is released.
        for (ends, frees, wanted) in [(1, u32::MAX, 64), (64, u32::MAX, 64), (65, u32::MAX, 128), (u32::MAX, 1, 4096)] {
            let (mut wait, round, asked) = (Wait::default(), Cell::new(0), Cell::new(0));
            let end = loop {
                round.set(round.get() + 1);
                let released = || {
                    asked.set(asked.get() + 1);
                    round.get() >= frees
                };
                if let Some(end) = wait.round(LONG, || round.get() >= ends, released) {
                    break end;
                }
            };
            assert_eq!((end, round.get()), (WaitEnd::Gone, wanted), "ends in {ends}, released in {frees}");
            // The system is asked once in 4096 rounds.
            assert_eq!(asked.get(), wanted / 4096, "ends in {ends}, released in {frees}");
        }
    }

    #[test]
    fn a_deadline_of_no_time_passes_when_the_clock_is_read_for_the_second_time() {
        let mut wait = Wait::default();
        let rounds = (1..).find(|_| wait.round(Duration::ZERO, || false, || false).is_some()).unwrap();
        assert!(rounds >= 128 && u32::is_multiple_of(rounds, 64), "after {rounds} rounds");
        let again = (0..64).find_map(|_| wait.round(Duration::ZERO, || false, || false));
        assert_eq!(again, Some(WaitEnd::TimedOut));
    }
}
