//! Counts of logins that failed, and the limit on how fast they may fail.
//!
//! A secret cannot be guessed; the limit keeps hosts that try from taking the server's time. The first refusals of a
//! minute are answered at once, so that a typing error costs no time, and each further one a second later. A login that
//! succeeds never waits. As a limited number of connections can be without a proven host at once, the limit holds for
//! all of them together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Number of refused logins in a window that are answered at once.
const PROMPT_REFUSALS: u32 = 16;
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(60);
/// Delay of the answer to a refused login beyond the limit.
const DELAY: Duration = Duration::from_secs(1);

/// The window in progress.
#[derive(Debug)]
struct RefusalWindow {
    begun: Instant,
    refusals: u32,
}

/// Logins of a server that failed.
#[derive(Debug)]
pub(super) struct FailedLogins {
    refused: AtomicU64,
    unfinished: AtomicU64,
    window: Mutex<RefusalWindow>,
}

impl FailedLogins {
    pub(super) fn new(now: Instant) -> Self {
        let window = Mutex::new(RefusalWindow { begun: now, refusals: 0 });
        Self { refused: AtomicU64::new(0), unfinished: AtomicU64::new(0), window }
    }

    /// Counts a login that was refused; returns the time by which its answer has to be delayed.
    pub(super) fn refuse(&self, now: Instant) -> Option<Duration> {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut window = self.window.lock();
        if now.saturating_duration_since(window.begun) >= WINDOW {
            *window = RefusalWindow { begun: now, refusals: 0 };
        }
        window.refusals = window.refusals.saturating_add(1);
        (window.refusals > PROMPT_REFUSALS).then_some(DELAY)
    }

    /// Counts a login whose connection ended before the host had proved anything.
    pub(super) fn abandon(&self) {
        self.unfinished.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the numbers of refused and of unfinished logins since the server was started.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.refused.load(Ordering::Relaxed), self.unfinished.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a point in time to count from; the test does not wait")]
mod tests {
    use super::*;

    #[test]
    fn refusals_beyond_the_limit_are_answered_later() {
        let start = Instant::now();
        let logins = FailedLogins::new(start);
        for second in 0..40u32 {
            let delay = logins.refuse(start + Duration::from_secs(second.into()));
            assert_eq!(delay, (second >= PROMPT_REFUSALS).then_some(DELAY), "second {second}");
        }
        assert_eq!(logins.refuse(start + WINDOW), None, "the next window");
        logins.abandon();
        assert_eq!(logins.counts(), (41, 1));
    }
}
