//! Processor time of a run's threads, while they run: read from the clocks of the threads by any other thread.
//!
//! A thread that begins notes its clock, a thread that ends adds what it has used. An executor without threads of this
//! host, as that of a modelled device, uses none here.

use std::collections::BTreeMap;
use std::time::Duration;

use nandarray_runtime::ThreadObserver;
use parking_lot::Mutex;

/// The clock of a thread's processor time, and its value at the beginning.
type ThreadClock = (libc::clockid_t, Duration);

#[derive(Debug, Default)]
struct CpuTimeState {
    /// Time of the threads that have ended.
    ended: Duration,
    /// Clocks of the threads that run, each with its number.
    threads: BTreeMap<libc::pthread_t, ThreadClock>,
}

/// Processor time of the threads of one run.
#[derive(Debug, Default)]
pub(crate) struct CpuTime {
    state: Mutex<CpuTimeState>,
}

/// Returns the value of a clock; zero if there is no such clock (any more).
fn value(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing; an unknown clock is an error, which leaves it alone.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Duration::ZERO;
    }
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the number and the clock of the calling thread; `None` if the system gives it no clock.
fn own_clock() -> Option<(libc::pthread_t, libc::clockid_t)> {
    // SAFETY: it takes nothing, and does not fail.
    let thread = unsafe { libc::pthread_self() };
    let mut clock: libc::clockid_t = 0;
    // SAFETY: `thread` is the calling thread, which exists, and `clock` is valid for writing.
    (unsafe { libc::pthread_getcpuclockid(thread, &raw mut clock) } == 0).then_some((thread, clock))
}

impl CpuTime {
    /// Returns the time of all threads so far.
    pub(crate) fn total(&self) -> Duration {
        // A thread whose clock is here has not ended: it would wait for this lock before.
        let state = self.state.lock();
        let running = state.threads.values().map(|&(clock, begin)| value(clock).saturating_sub(begin));
        state.ended + running.sum::<Duration>()
    }
}

impl ThreadObserver for CpuTime {
    fn begin(&self) {
        if let Some((thread, clock)) = own_clock() {
            self.state.lock().threads.insert(thread, (clock, value(clock)));
        }
    }

    fn end(&self) {
        let Some((thread, _)) = own_clock() else { return };
        let mut state = self.state.lock();
        if let Some((clock, begin)) = state.threads.remove(&thread) {
            state.ended += value(clock).saturating_sub(begin);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn time_is_that_of_the_threads_while_they_run_and_after() {
        let (time, over) = (Arc::new(CpuTime::default()), Arc::new(AtomicBool::new(false)));
        assert_eq!(time.total(), Duration::ZERO);
        let thread = {
            let (time, over) = (time.clone(), over.clone());
            std::thread::spawn(move || {
                time.begin();
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                time.end();
            })
        };
        while time.total() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
        nandarray::internals::joined(thread);
        let total = time.total();
        assert!(total >= Duration::from_millis(20), "{total:?}");
        assert_eq!(time.total(), total, "a thread that has ended uses no more");
    }
}
