//! Commands of one controller that are being executed, and the wait for those that have begun.
//!
//! A reservation that preempts a host and aborts its commands must not complete while one of them may still change the
//! store. Commands are counted in one of two halves; a wait lets later ones count in the other half, so that it ends
//! with those that had begun, however many follow.
//!
//! Commands wait for nothing here; a wait is as long as the longest command that had begun, and has a limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The commands of one controller that are being executed.
#[derive(Debug, Default)]
pub(crate) struct ExecutingCommands {
    /// Index of the half in which commands that begin are counted.
    half: AtomicUsize,
    counts: [AtomicUsize; 2],
    waiting: Mutex<()>,
    ended: Condvar,
}

/// One of the commands, until it is dropped.
#[derive(Debug)]
pub(crate) struct ExecutingCommand<'a> {
    of: &'a ExecutingCommands,
    half: usize,
}

impl ExecutingCommands {
    /// Counts a command that begins.
    pub(crate) fn begin(&self) -> ExecutingCommand<'_> {
        loop {
            let half = self.half.load(Ordering::SeqCst);
            let begun = ExecutingCommand { of: self, half };
            self.counts[half].fetch_add(1, Ordering::SeqCst);
            // A wait may have begun in between, and not have seen this command: then it is one of those that follow.
            if self.half.load(Ordering::SeqCst) == half {
                return begun;
            }
        }
    }

    /// Waits until the commands that have begun have ended: at most `limit` for those that an earlier wait has given
    /// up, and as long for the others; returns whether all have ended.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let mut one = self.waiting.lock();
        let half = self.half.load(Ordering::SeqCst);
        assert!(half < 2, "half {half}");
        let mut end = |half: usize| {
            let is_busy = |_: &mut ()| self.counts[half].load(Ordering::SeqCst) > 0;
            !self.ended.wait_while_for(&mut one, is_busy, limit).timed_out()
        };
        if !end(1 - half) {
            return false;
        }
        self.half.store(1 - half, Ordering::SeqCst);
        end(half)
    }
}

impl Drop for ExecutingCommand<'_> {
    fn drop(&mut self) {
        let before = self.of.counts[self.half].fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "a command that ended was not counted");
        if before == 1 && self.of.half.load(Ordering::SeqCst) != self.half {
            // The lock keeps this from happening between the look of a wait at the count and its sleep.
            drop(self.of.waiting.lock());
            self.of.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_wait_ends_with_the_commands_that_had_begun() {
        let executing = ExecutingCommands::default();
        assert!(executing.wait(LONG));
        let (first, is_over) = (executing.begin(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(executing.wait(LONG));
                assert!(is_over.load(Ordering::SeqCst), "the wait did not wait");
            });
            while executing.half.load(Ordering::SeqCst) == first.half {
                thread::yield_now();
            }
            let later = executing.begin();
            is_over.store(true, Ordering::SeqCst);
            drop(first);
            // This one is in flight while the wait ends, and after it.
            drop(later);
        });
    }

    #[test]
    fn a_command_that_a_wait_has_given_up_is_waited_for_by_the_next_one() {
        let executing = ExecutingCommands::default();
        let first = executing.begin();
        assert!(!executing.wait(Duration::from_millis(1)));
        let second = executing.begin();
        assert!(!executing.wait(Duration::from_millis(1)), "the first one is there");
        drop(second);
        assert!(!executing.wait(Duration::from_millis(1)), "the first one is there still");
        drop(first);
        assert!(executing.wait(LONG));
    }

    #[test]
    fn waits_see_every_command_of_many_threads() {
        let (executing, fenced) = (ExecutingCommands::default(), AtomicBool::new(false));
        let late = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let _one = executing.begin();
                        let may = !fenced.load(Ordering::SeqCst);
                        thread::yield_now();
                        if may {
                            late.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            for _ in 0..50 {
                fenced.store(true, Ordering::SeqCst);
                assert!(executing.wait(LONG));
                let before = late.load(Ordering::SeqCst);
                thread::yield_now();
                assert_eq!(late.load(Ordering::SeqCst), before, "a command that was let through ended after the wait");
                fenced.store(false, Ordering::SeqCst);
            }
        });
    }
}
