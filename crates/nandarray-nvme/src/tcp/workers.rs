//! Threads for long commands, which tenants share. The thread that became idle last gets the next command.
//!
//! Its stack, its memory and the caches of its processor are warm then. When threads took turns, the first command of
//! each of the 128 threads of a paced server ended 75 to 110 us late. Commands for which no thread is idle wait in the
//! queue of their tenant (`turns`). If commands may take very long, a tenant that has none running never waits: a
//! thread is made for it.
//!
//! A command that waits for another one, e.g. a deletion for a run of programs, keeps neither its place nor its
//! thread's: another thread goes on in place of the one that waits. Once its wait is over it queues for a place, and
//! the worker whose turn that is gives up its own. Not here: what a command does, and its panics, which it has to
//! catch.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use nandarray::waits::{self, WaitObserver};
use parking_lot::{Condvar, Mutex};

use super::turns::{CommandTurns, LaneName, WorkerShare};

/// A command that a worker executes.
pub(super) struct WorkerCommand {
    /// Identifier of the controller whose host has sent it.
    pub(super) cntlid: u16,
    pub(super) run: Box<dyn FnOnce() + Send>,
}

/// An entry of the queue for a worker.
enum Queued {
    Command(WorkerCommand),
    /// A command that has stepped aside, and goes on in a thread of its own.
    Returning(Arc<Returning>),
}

/// A command that waits for a place to go on.
#[derive(Default)]
struct Returning {
    seat: Mutex<Option<Seat>>,
    given: Condvar,
}

/// The seat of a thread among the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    /// One of those that there always are, by its number.
    Pool(usize),
    /// One that was made for a command, and ends when no further one waits.
    Extra,
}

#[derive(Default)]
struct CommandWorkersState {
    turns: CommandTurns<Queued>,
    /// Numbers of idle threads, the one that became idle last at the end.
    idle: Vec<usize>,
    /// For each seat of the pool the command that it was given while its thread was idle.
    given: Vec<Option<(LaneName, Queued)>>,
    /// Number of threads that have not ended.
    threads: usize,
    /// Whether one of them has ended by a panic.
    panicked: bool,
    closed: bool,
}

/// Numbers of commands that wait for a worker, and of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Number of commands that wait.
    pub waiting: usize,
    /// Number of commands that wait for another command, without a worker.
    pub blocked: usize,
    /// Number of workers that execute a command.
    pub busy: usize,
    /// Number of workers.
    pub workers: usize,
}

/// The workers' commands, which connections add to.
pub(super) struct CommandWorkers {
    state: Mutex<CommandWorkersState>,
    /// By which each idle thread is woken.
    wake: Vec<Condvar>,
    /// Notified when a thread ends.
    ended: Condvar,
    /// Whether a tenant without a running command gets a thread at once.
    first_at_once: bool,
}

/// A thread that is counted until this is dropped, also by a panic.
struct CountedThread(Arc<CommandWorkers>);

impl Drop for CountedThread {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.threads -= 1;
        state.panicked |= thread::panicking();
        self.0.ended.notify_all();
    }
}

/// The place of a command while a thread executes it.
struct WorkerPlace {
    workers: Arc<CommandWorkers>,
    lane: LaneName,
    /// The seat of the thread, and the time at which the command got its place.
    now: Cell<(Seat, Instant)>,
}

impl WaitObserver for WorkerPlace {
    fn begin(&self) -> Result<(), String> {
        let (seat, begun) = self.now.get();
        let mut state = self.workers.state.lock();
        if !state.turns.may_step_aside(&self.lane) {
            return Err("too many commands of its host's place wait so".to_owned());
        }
        if let Seat::Pool(_) = seat {
            let made = self.workers.make_thread(&mut state, seat, None);
            made.map_err(|error| format!("no thread is left for others meanwhile: {error}"))?;
        }
        state.turns.step_aside(&self.lane, begun.elapsed());
        self.workers.distribute(&mut state, &self.lane);
        Ok(())
    }

    fn end(&self, granted: bool) {
        let mut state = self.workers.state.lock();
        let seat = if granted && !state.closed {
            let returning = Arc::new(Returning::default());
            state.turns.return_by(&self.lane, Queued::Returning(returning.clone()));
            self.workers.distribute(&mut state, &self.lane);
            drop(state);
            let mut seat = returning.seat.lock();
            returning.given.wait_while(&mut seat, |seat| seat.is_none());
            seat.expect("a seat was given")
        } else {
            state.turns.return_now(&self.lane);
            Seat::Extra
        };
        self.now.set((seat, Instant::now()));
    }
}

impl CommandWorkers {
    /// Starts a number of threads. With `first_at_once`, a further thread is made for the command of a tenant that has
    /// none running, if all are busy.
    ///
    /// # Errors
    /// The system makes no thread.
    pub(super) fn start(count: usize, first_at_once: bool) -> io::Result<Arc<Self>> {
        let given = std::iter::repeat_with(|| None).take(count).collect();
        let state = Mutex::new(CommandWorkersState { given, ..CommandWorkersState::default() });
        let wake = std::iter::repeat_with(Condvar::new).take(count).collect();
        let workers = Arc::new(Self { state, wake, ended: Condvar::new(), first_at_once });
        let mut state = workers.state.lock();
        let made = (0..count).try_for_each(|number| workers.make_thread(&mut state, Seat::Pool(number), None));
        state.closed = made.is_err();
        drop(state);
        made.map(|()| workers)
    }

    /// Makes a thread with a seat, for a command that it was given, and further ones.
    fn make_thread(
        self: &Arc<Self>,
        state: &mut CommandWorkersState,
        seat: Seat,
        given: Option<(LaneName, Queued)>,
    ) -> io::Result<()> {
        // A thread that cannot be made leaves what it was given here.
        let given = Arc::new(Mutex::new(given));
        let (workers, first) = (self.clone(), given.clone());
        let work = move || {
            let counted = CountedThread(workers);
            let first = first.lock().take();
            counted.0.work(seat, first);
        };
        match thread::Builder::new().name("nvme-worker".to_owned()).spawn(work) {
            Ok(_) => state.threads += 1,
            Err(error) => {
                if let Some((lane, queued)) = given.lock().take() {
                    state.turns.give_back(&lane, queued);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Executes commands until none is left for the seat.
    fn work(self: &Arc<Self>, mut seat: Seat, first: Option<(LaneName, Queued)>) {
        let mut next = first.or_else(|| self.next(seat));
        while let Some((lane, queued)) = next {
            match queued {
                Queued::Command(command) => seat = self.run(seat, lane, command),
                Queued::Returning(returning) => {
                    // Its thread goes on in this one's place.
                    *returning.seat.lock() = Some(seat);
                    returning.given.notify_one();
                    return;
                }
            }
            next = self.next(seat);
        }
    }

    /// Executes a command; returns the seat that the thread has then.
    fn run(self: &Arc<Self>, seat: Seat, lane: LaneName, command: WorkerCommand) -> Seat {
        let place = Rc::new(WorkerPlace { workers: self.clone(), lane, now: Cell::new((seat, Instant::now())) });
        waits::observed(place.clone(), command.run);
        let (seat, begun) = place.now.get();
        self.state.lock().turns.end(&place.lane, begun.elapsed());
        seat
    }

    /// Has a command of a tenant executed; drops it if the workers are closed: no host is there.
    pub(super) fn execute(self: &Arc<Self>, lane: &LaneName, of: WorkerShare, command: WorkerCommand) {
        let mut state = self.state.lock();
        if !state.closed {
            state.turns.push(lane, of, Queued::Command(command));
            self.distribute(&mut state, lane);
        }
    }

    /// Gives commands to idle threads; makes a thread for a command of this tenant if it has none running. After
    /// [`Self::close`] threads that were idle have ended, and one is made for each command that may run.
    fn distribute(self: &Arc<Self>, state: &mut CommandWorkersState, lane: &LaneName) {
        // Several may begin: a tenant's share may have grown.
        while let Some(&number) = state.idle.last()
            && let Some(taken) = state.turns.take()
        {
            state.idle.pop();
            state.given[number] = Some(taken);
            self.wake[number].notify_one();
        }
        let first = match () {
            () if state.closed => state.turns.take(),
            () if self.first_at_once => state.turns.take_first_of(lane),
            () => None,
        };
        // Without another thread the command waits for one of those that there are.
        first.map(|first| self.make_thread(state, Seat::Extra, Some(first)));
    }

    /// Drops the waiting commands of a controller's host, which has gone.
    pub(super) fn forget(&self, cntlid: u16) {
        let keep = |queued: &Queued| !matches!(queued, Queued::Command(command) if command.cntlid == cntlid);
        let gone = self.state.lock().turns.retain(keep);
        // Outside of the lock: their memory and their connections are given back.
        drop(gone);
    }

    /// Returns how many commands and workers there are now.
    pub(super) fn counts(&self) -> WorkerCounts {
        let (waiting, blocked, busy) = self.state.lock().turns.counts();
        WorkerCounts { waiting, blocked, busy, workers: self.wake.len() }
    }

    /// Waits for the end of the threads, after [`Self::close`].
    ///
    /// # Panics
    /// If one of them has.
    pub(super) fn join(&self) {
        let mut state = self.state.lock();
        assert!(state.closed, "workers that go on have no end");
        self.ended.wait_while(&mut state, |state| state.threads > 0);
        assert!(!state.panicked, "a worker does not panic");
    }

    /// Ends the threads once they have executed all commands that are there.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        for wake in &self.wake {
            wake.notify_one();
        }
    }

    /// Waits for the next command of a seat; `None` if the workers are closed and no command is left, and at once for a
    /// thread that was made for a command.
    fn next(&self, seat: Seat) -> Option<(LaneName, Queued)> {
        let mut state = self.state.lock();
        if let Some(taken) = state.turns.take() {
            return Some(taken);
        }
        match seat {
            Seat::Pool(number) if !state.closed => {
                state.idle.push(number);
                self.wake[number].wait_while(&mut state, |state| state.given[number].is_none() && !state.closed);
                state.given[number].take()
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver};
    use std::thread::ThreadId;
    use std::time::Duration;

    use nandarray::{RangeTicket, Share, TicketEnd};

    use super::*;
    use crate::tcp::turns::{ASIDE_MAX, OWNER_RUNNING_MAX};
    use crate::tenants::TenantOwner;
    use crate::tests::within;

    const ANY: WorkerShare = WorkerShare { share: 1, running_max: u32::MAX };
    const LONG: Duration = Duration::from_secs(60);

    fn named(tenant: &str) -> LaneName {
        LaneName { owner: TenantOwner::Tenant(tenant.into()), tenant: tenant.into() }
    }

    fn at(place: &str, tenant: usize) -> LaneName {
        LaneName { owner: TenantOwner::Place(place.into()), tenant: format!("nqn.{tenant}").into() }
    }

    fn execute(workers: &Arc<CommandWorkers>, lane: &LaneName, of: WorkerShare, run: impl FnOnce() + Send + 'static) {
        workers.execute(lane, of, WorkerCommand { cntlid: 1, run: Box::new(run) });
    }

    fn end(workers: &Arc<CommandWorkers>) {
        workers.close();
        let workers = workers.clone();
        within("workers that are closed end", move || workers.join());
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < LONG, "{what}");
            thread::yield_now();
        }
    }

    fn idle(workers: &CommandWorkers, count: usize) {
        until("threads are idle", || workers.state.lock().idle.len() == count);
    }

    /// Executes a command that tells its thread, and waits until that thread is idle again.
    fn one(workers: &Arc<CommandWorkers>, count: usize) -> ThreadId {
        let (tell, told) = mpsc::channel();
        execute(workers, &named("one"), ANY, move || tell.send(thread::current().id()).unwrap());
        let id = told.recv_timeout(LONG).unwrap();
        idle(workers, count);
        id
    }

    #[test]
    fn one_command_after_another_stays_on_one_thread() {
        let workers = CommandWorkers::start(8, false).unwrap();
        idle(&workers, 8);
        let first = one(&workers, 8);
        assert!((0..50).all(|_| one(&workers, 8) == first));
        end(&workers);
    }

    #[test]
    fn commands_run_at_once_up_to_the_number_of_threads_and_all_of_them_once() {
        let workers = CommandWorkers::start(3, false).unwrap();
        let barrier = Arc::new(std::sync::Barrier::new(3));
        let (tell, told) = mpsc::channel();
        for number in 0..300 {
            let (tell, barrier) = (tell.clone(), barrier.clone());
            execute(&workers, &named("one"), ANY, move || {
                barrier.wait();
                tell.send(number).unwrap();
            });
        }
        end(&workers);
        drop(tell);
        let mut ended: Vec<u32> = told.iter().collect();
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..300));
        execute(&workers, &named("one"), ANY, || panic!("a command of closed workers"));
    }

    #[test]
    fn a_tenant_without_a_running_command_never_waits_for_others_and_none_has_more_than_it_may() {
        let workers = CommandWorkers::start(2, true).unwrap();
        idle(&workers, 2);
        let (end_one, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let (began, begun) = mpsc::channel();
        let send = |name: &'static str, running_max| {
            let (ended, began) = (ended.clone(), began.clone());
            execute(&workers, &named(name), WorkerShare { share: 1, running_max }, move || {
                began.send(name).unwrap();
                // The lock is held while it waits: one message ends one command.
                ended.lock().recv_timeout(LONG).unwrap();
            });
        };
        (0..6).for_each(|_| send("a", 3));
        ["b", "c", "d"].iter().for_each(|name| send(name, 3));
        let mut first: Vec<&str> = (0..5).map(|_| begun.recv_timeout(LONG).unwrap()).collect();
        first.sort_unstable();
        assert_eq!(first, ["a", "a", "b", "c", "d"], "all tenants run, the first by both threads of the pool");
        assert!(begun.recv_timeout(Duration::from_millis(50)).is_err(), "the rest waits");
        (0..9).for_each(|_| end_one.send(()).unwrap());
        assert_eq!((0..4).map(|_| begun.recv_timeout(LONG).unwrap()).collect::<Vec<_>>(), ["a"; 4]);
        end(&workers);
    }

    /// The lock of a space in whose runs a command waits, and what waits for it.
    fn waiting(ticket: RangeTicket, ends: &mpsc::Sender<TicketEnd>) -> impl FnOnce() + Send + 'static {
        let ends = ends.clone();
        move || ends.send(ticket.wait()).unwrap()
    }

    /// Twenty names at one place wait for another command, each with all that it may run, and more than there are
    /// threads: a neighbour at the same place runs its commands. When the wait is over all go on, no more at once than
    /// may.
    #[test]
    fn commands_that_wait_hold_no_place_and_no_thread() {
        let workers = CommandWorkers::start(2, true).unwrap();
        let lock = nandarray::internals::RangeLock::default();
        let held = lock.request(vec![], Share::Exclusive);
        let (ends, ended): (_, Receiver<TicketEnd>) = mpsc::channel();
        let of = WorkerShare { share: 1, running_max: 1 };
        for name in 0..20 {
            (0..5).for_each(|_| {
                execute(&workers, &at("::", name), of, waiting(lock.request(vec![], Share::Shared), &ends))
            });
        }
        until("all wait aside", || workers.counts() == WorkerCounts { waiting: 0, blocked: 100, busy: 0, workers: 2 });
        for _ in 0..50 {
            let (tell, told) = mpsc::channel();
            execute(&workers, &at("::", 77), of, move || tell.send(()).unwrap());
            told.recv_timeout(LONG).unwrap();
        }
        drop(held);
        assert!((0..100).all(|_| ended.recv_timeout(LONG).unwrap() == TicketEnd::Granted));
        end(&workers);
    }

    #[test]
    fn as_many_wait_as_leave_room_for_others_and_all_end_with_their_workers() {
        let workers = CommandWorkers::start(2, true).unwrap();
        let lock = nandarray::internals::RangeLock::default();
        let held = lock.request(vec![], Share::Exclusive);
        let (ends, ended): (_, Receiver<TicketEnd>) = mpsc::channel();
        let most = ASIDE_MAX / 2;
        for _ in 0..most + 10 {
            execute(&workers, &at("::", 1), ANY, waiting(lock.request(vec![], Share::Shared), &ends));
        }
        for _ in 0..10 {
            assert!(matches!(ended.recv_timeout(LONG).unwrap(), TicketEnd::Refused(_)));
        }
        execute(&workers, &named("other"), ANY, waiting(lock.request(vec![], Share::Shared), &ends));
        until("all wait aside", || workers.counts().blocked == most + 1);
        workers.close();
        lock.close();
        assert!((0..=most).all(|_| ended.recv_timeout(LONG).unwrap() == TicketEnd::Closed));
        end(&workers);
        drop(held);
    }

    #[test]
    fn what_a_host_that_has_gone_left_in_the_queue_is_dropped() {
        let workers = CommandWorkers::start(1, false).unwrap();
        idle(&workers, 1);
        let (go_on, goes_on) = mpsc::channel::<()>();
        execute(&workers, &named("before"), ANY, move || goes_on.recv_timeout(LONG).unwrap());
        let (tell, told) = mpsc::channel();
        for cntlid in [7, 8, 7] {
            let tell = tell.clone();
            let run = Box::new(move || tell.send(cntlid).unwrap());
            workers.execute(&at("::", 1), ANY, WorkerCommand { cntlid, run });
        }
        workers.forget(7);
        assert_eq!(workers.counts().waiting, 1);
        go_on.send(()).unwrap();
        end(&workers);
        drop(tell);
        assert_eq!(told.iter().collect::<Vec<_>>(), [8]);
    }

    #[test]
    fn names_at_one_place_run_no_more_than_the_place_may() {
        let workers = CommandWorkers::start(40, true).unwrap();
        idle(&workers, 40);
        let (go_on, goes_on) = mpsc::channel::<()>();
        let goes_on = Arc::new(Mutex::new(goes_on));
        for name in 0..40 {
            let goes_on = goes_on.clone();
            execute(&workers, &at("::", name), ANY, move || goes_on.lock().recv_timeout(LONG).unwrap());
        }
        assert_eq!(workers.counts().busy, OWNER_RUNNING_MAX);
        (0..40).for_each(|_| go_on.send(()).unwrap());
        end(&workers);
    }
}
