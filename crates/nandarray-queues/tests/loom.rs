//! Every order of steps, by loom: sleep and wake-up with the source of `sleep`, the hand-over of a pair with its
//! orders.
//!
//! The sleeper's word is a futex: checked and slept on as one step against a waker. Not here: the death of processes
//! (`tests/python/test_queues.py`), and a timed sleep, which hides a lost wake-up in the real server.

mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering, fence};
}

#[path = "../src/sleep.rs"]
mod sleep;

use atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// The words of shared memory by which a client wakes a sleeping server, with a condition variable in place of the
/// futex.
struct Sleeper {
    asleep: AtomicU32,
    doorbell: AtomicU32,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Sleeper {
    fn new() -> Arc<Self> {
        let (asleep, doorbell) = (AtomicU32::new(0), AtomicU32::new(0));
        Arc::new(Self { asleep, doorbell, queue: Mutex::new(()), woken: Condvar::new() })
    }

    /// Waits as the futex does, but without a time limit: a lost wake-up blocks for ever, which loom reports.
    fn wait(&self) {
        let mut held = self.queue.lock().unwrap();
        while self.asleep.load(Ordering::SeqCst) == 1 {
            held = self.woken.wait(held).unwrap();
        }
    }

    fn ring(&self, tail: u32, rouse: impl Fn(&AtomicU32) -> bool) {
        self.doorbell.store(tail, Ordering::Release);
        if rouse(&self.asleep) {
            let _held = self.queue.lock().unwrap();
            self.woken.notify_all();
        }
    }

    /// Runs the server's thread until the doorbell has this tail.
    fn serve(&self, tail: u32) {
        while self.doorbell.load(Ordering::Acquire) != tail {
            if sleep::announce(&self.asleep, || self.doorbell.load(Ordering::SeqCst) == tail) {
                self.wait();
            }
        }
    }
}

#[test]
fn no_doorbell_is_lost() {
    loom::model(|| {
        let sleeper = Sleeper::new();
        let client = {
            let sleeper = sleeper.clone();
            thread::spawn(move || sleeper.ring(1, sleep::rouse))
        };
        sleeper.serve(1);
        client.join().unwrap();
    });
}

#[test]
fn doorbells_of_two_clients_wake_their_server() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let sleeper = Sleeper::new();
        let other = Arc::new(AtomicU32::new(0));
        let clients: Vec<_> = (0..2)
            .map(|i| {
                let (sleeper, other) = (sleeper.clone(), other.clone());
                thread::spawn(move || {
                    if i == 0 {
                        return sleeper.ring(1, sleep::rouse);
                    }
                    other.store(1, Ordering::Release);
                    if sleep::rouse(&sleeper.asleep) {
                        let _held = sleeper.queue.lock().unwrap();
                        sleeper.woken.notify_all();
                    }
                })
            })
            .collect();
        let rung = |order| sleeper.doorbell.load(order) == 1 && other.load(order) == 1;
        while !rung(Ordering::Acquire) {
            if sleep::announce(&sleeper.asleep, || rung(Ordering::SeqCst)) {
                sleeper.wait();
            }
        }
        clients.into_iter().for_each(|c| c.join().unwrap());
    });
}

/// A common mistake, as a mutant: the client looks at the word `asleep` before it rings. Loom finds the order of steps
/// in which the server then sleeps for ever, and aborts.
#[test]
fn a_client_that_looks_before_it_rings_loses_one() {
    let program = std::env::current_exe().unwrap();
    let words = ["--ignored", "--exact", "--nocapture", "looks_before_it_rings"];
    let done = std::process::Command::new(program).args(words).output().unwrap();
    assert!(!done.status.success());
    assert!(String::from_utf8_lossy(&done.stderr).contains("deadlock"), "{done:?}");
}

#[test]
#[ignore = "a mutant, which `a_client_that_looks_before_it_rings_loses_one` runs"]
fn looks_before_it_rings() {
    loom::model(|| {
        let sleeper = Sleeper::new();
        let client = {
            let sleeper = sleeper.clone();
            thread::spawn(move || {
                let sleeps = sleep::rouse(&sleeper.asleep);
                sleeper.ring(1, |_| sleeps);
            })
        };
        sleeper.serve(1);
        client.join().unwrap();
    });
}

/// A client ends after it rang a tail; the next client claims the pair, and is served from an empty ring. The memory
/// orders are those of `client` (`open_with`) and `ring` (`begin`, `serve`).
#[test]
fn a_pair_of_a_dead_client_is_handed_over_empty() {
    loom::model(|| {
        let (claim, ready, tail) = (AtomicU32::new(1), AtomicU32::new(1), AtomicU32::new(3));
        let words = Arc::new((claim, ready, tail));
        let client = {
            let words = words.clone();
            thread::spawn(move || {
                let (claim, ready, tail) = &*words;
                tail.store(0, Ordering::Relaxed);
                claim.swap(3, Ordering::SeqCst);
                while ready.load(Ordering::Acquire) != 3 {
                    thread::yield_now();
                }
                tail.swap(1, Ordering::SeqCst);
            })
        };
        let (claim, ready, tail) = &*words;
        let (mut seen, mut fetched) = (1, 3);
        while seen != 3 || fetched != 1 {
            let now = claim.load(Ordering::Acquire);
            if now != seen {
                (seen, fetched) = (now, 0);
                ready.store(now, Ordering::Release);
            }
            let rung = tail.load(Ordering::Acquire);
            if seen == 3 {
                assert!(rung <= 1, "the dead client's tail {rung} in the new one's ring");
                fetched = rung;
            }
            thread::yield_now();
        }
        client.join().unwrap();
    });
}
