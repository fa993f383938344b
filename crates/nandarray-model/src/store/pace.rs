//! Modelled time that keeps pace with a wall clock: a command's caller gets its result when its modelled time is over.
//!
//! A command is submitted at the time of its arrival, or at that of the latest command before it, if that is later. The
//! machine never runs ahead of the present, so that commands of several threads
//! meet in the device as they met on the wall clock. The threads that wait share the work: one of them, the leader,
//! lets the machine handle what is due and sleeps until the next event; the others sleep until their commands are over.
//! Commands that let time pass while they begin (programs) run ahead, and their callers wait for the end. The time
//! itself comes from a [`WallTime`]: the model reads no clock.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use nandarray::probe::{FlightId, Halves};
use nandarray::{Error, Result};
use nandarray_sim::Ps;
use parking_lot::Mutex;

use super::{Clock, EndedCommands, FlightHalves};
use crate::report::PaceReport;

/// A wall clock.
pub trait WallTime: Send + Sync + Debug {
    /// Returns the time since a fixed moment.
    fn elapsed(&self) -> Duration;

    /// Returns the time at which the command that the calling thread begins arrived, as time since the same moment: its
    /// modelled latency begins then. The present, unless a thread hands commands to others.
    fn arrived(&self) -> Duration {
        self.elapsed()
    }
}

#[derive(Debug, Default)]
struct PaceState {
    /// The thread that lets modelled time pass; `None` if no thread waits.
    leader: Option<Thread>,
    /// Threads that wait for their commands, which are in flight.
    waiting: BTreeMap<FlightId, Thread>,
    completions: u64,
    late: u64,
    behind: Duration,
    behind_max: Duration,
}

/// The wall clock with which modelled time keeps pace, and the threads that wait for commands.
#[derive(Debug)]
pub(super) struct Pace {
    wall: Box<dyn WallTime>,
    /// The modelled time at the wall clock's time 0.
    origin: Ps,
    /// Whether new commands keep pace; the counts remain available when they no longer do.
    pub(super) active: AtomicBool,
    state: Mutex<PaceState>,
}

/// Time before an event during which a thread polls instead of sleeping, since a system timer may be late by this much:
/// Linux' timer slack of 50 us, and the wake-up of a processor, which a hypervisor may delay.
const LOOK: Duration = Duration::from_micros(300);

/// Sleeps for at most `time`, less the possible delay of a timer; if no time is left to sleep, yields to other threads.
fn rest(time: Duration) {
    match time.checked_sub(LOOK) {
        Some(time) if !time.is_zero() => thread::park_timeout(time),
        _ => thread::yield_now(),
    }
}

fn duration(time: Ps) -> Duration {
    Duration::from_nanos(time.0 / 1000)
}

impl Pace {
    pub(super) fn new(wall: Box<dyn WallTime>, modelled: Ps) -> Self {
        let origin = Ps(modelled.0.saturating_sub(wall.elapsed().as_nanos() as u64 * 1000));
        Self { wall, origin, active: AtomicBool::new(true), state: Mutex::default() }
    }

    fn modelled(&self, wall: Duration) -> Ps {
        Ps(self.origin.0 + wall.as_nanos() as u64 * 1000)
    }

    fn now(&self) -> Ps {
        self.modelled(self.wall.elapsed())
    }

    pub(super) fn report(&self) -> PaceReport {
        let state = self.state.lock();
        PaceReport {
            completions: state.completions,
            late: state.late,
            behind_mean_s: state.behind.as_secs_f64() / state.completions.max(1) as f64,
            behind_max_s: state.behind_max.as_secs_f64(),
        }
    }

    /// Counts a completion that its caller receives now, and its delay.
    fn left(&self, submitted: Ps, done: Ps) {
        let behind = duration(self.now().since(done));
        let mut state = self.state.lock();
        state.completions += 1;
        state.late += u64::from(behind > duration(done.since(submitted)) / 10);
        state.behind += behind;
        state.behind_max = state.behind_max.max(behind);
    }

    /// Waits until the wall clock has reached a modelled time.
    fn wait_until(&self, time: Ps) {
        loop {
            let now = self.now();
            if now >= time {
                return;
            }
            rest(duration(time.since(now)));
        }
    }

    /// Wakes the leading thread, so that it looks for due events again.
    fn wake(&self) {
        if let Some(leader) = &self.state.lock().leader {
            leader.unpark();
        }
    }
}

/// The role of the thread that lets modelled time pass. If a panic drops it, it wakes all waiting threads, which find
/// the clock stopped.
struct Leader<'p>(&'p Pace);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.leader = None;
        state.waiting.values().for_each(Thread::unpark);
    }
}

impl Clock {
    /// Lets modelled time keep pace with a wall clock from now on, for commands whose callers wait for them.
    ///
    /// # Errors
    /// [`Error::Busy`]: modelled time keeps pace with a wall clock already.
    pub fn pace(&self, wall: Box<dyn WallTime>) -> Result<()> {
        let modelled = self.with(|state| state.host.max(state.machine.now()));
        let mut pace = self.pace.write();
        if pace.as_ref().is_some_and(|pace| pace.active.load(Ordering::Relaxed)) {
            return Err(Error::Busy("the store is served at the pace of the wall clock already".to_owned()));
        }
        *pace = Some(Arc::new(Pace::new(wall, modelled)));
        self.with(|state| state.paced = true);
        Ok(())
    }

    /// Lets modelled time pass at full speed again, for commands that begin from now on.
    pub fn end_pace(&self) {
        if let Some(pace) = &*self.pace.read() {
            pace.active.store(false, Ordering::Relaxed);
            self.with(|state| state.paced = false);
        }
    }

    /// Returns the counts of completions since [`Self::pace`]; `None` if modelled time never kept pace.
    pub fn pace_report(&self) -> Option<PaceReport> {
        self.pace.read().as_ref().map(|pace| pace.report())
    }

    /// Executes a command, and returns when its modelled time is over on the wall clock.
    pub(super) fn run_paced(&self, pace: &Pace, command: &mut dyn Halves) {
        let guard = self.state.lock();
        self.assert_alive();
        self.with(|state| state.host = state.host.max(pace.modelled(pace.wall.arrived())));
        let submitted = self.with(|state| state.host.max(state.machine.now()));
        // SAFETY: this call goes on until the command was taken out of the table, or panics with the clock stopped.
        let held = unsafe { FlightHalves::borrowed(command) };
        let id = self.with(|state| state.submit(held));
        let mut ended = EndedCommands::new();
        self.begin_all(&mut ended);
        self.announce(&ended);
        let over = self.with(|state| !state.flights.contains(id));
        let present = self.with(|state| state.machine.now());
        if !over {
            pace.state.lock().waiting.insert(id, thread::current());
        }
        drop(guard);
        self.deliver(ended);
        pace.wake();
        if over {
            pace.wait_until(present);
            if present > submitted {
                // The command was a program: it let time pass while it began.
                pace.left(submitted, present);
            }
            return;
        }
        self.lead_or_wait(pace, id);
        let done = self.with(|state| state.done_at.remove(&id)).expect("a command that is over has ended");
        pace.wait_until(done);
        pace.left(submitted, done);
    }

    /// Waits until a command has ended; meanwhile lets modelled time pass if no other thread does.
    fn lead_or_wait(&self, pace: &Pace, id: FlightId) {
        loop {
            let leads = {
                let mut state = pace.state.lock();
                let own = thread::current();
                if !state.waiting.contains_key(&id) {
                    // The role of the leader passes to another thread.
                    if state.leader.as_ref().is_some_and(|leader| leader.id() == own.id()) {
                        state.leader = None;
                        if let Some(next) = state.waiting.values().next() {
                            next.unpark();
                        }
                    }
                    return;
                }
                state.leader.get_or_insert_with(|| own.clone()).id() == own.id()
            };
            if leads {
                let leader = Leader(pace);
                self.pass_time(pace);
                std::mem::forget(leader);
            } else {
                thread::park();
                self.assert_alive();
            }
        }
    }

    /// Handles the events that are due, or sleeps until the next one is.
    fn pass_time(&self, pace: &Pace) {
        let guard = self.state.lock();
        self.assert_alive();
        let now = pace.now();
        let mut ended = EndedCommands::new();
        let moved = self.with(|state| state.run(|state| state.advance_until(now, &self.recorder, &mut ended)));
        self.begin_all(&mut ended);
        let next = self.with(|state| state.machine.next_event());
        if !moved && next.is_none() {
            // No event is left, and threads wait: the command of the first is refused.
            let first = pace.state.lock().waiting.keys().next().copied();
            if let Some(id) = first.filter(|&id| self.with(|state| state.flights.contains(id))) {
                self.with(|state| state.refuse_stuck(id, &mut ended));
                self.begin_all(&mut ended);
            }
        }
        self.announce(&ended);
        let mut over = Vec::new();
        let mut state = pace.state.lock();
        self.with(|clock| {
            state.waiting.retain(|id, thread| {
                let stays = clock.flights.contains(*id);
                if !stays {
                    clock.done_at.entry(*id).or_insert(now);
                    over.push(thread.clone());
                }
                stays
            });
        });
        drop(state);
        drop(guard);
        self.deliver(ended);
        let idle = !moved && over.is_empty();
        over.iter().for_each(Thread::unpark);
        if let (true, Some(next)) = (idle, next) {
            rest(duration(next.since(pace.now().min(next))));
        }
    }
}
