//! Threads for long commands, which tenants share. The thread that became idle last gets the next command.
//!
//! Its stack, its memory and the caches of its processor are warm then. When threads took turns, the first command of
//! each of the 128 threads of a paced server ended 75 to 110 us late. Commands for which no thread is idle wait in a
//! queue of their tenant. Tenants take turns (deficit round robin, M. Shreedhar and G. Varghese, SIGCOMM 1995): each
//! turn gives a tenant time by its share, and a command costs the time that it took. If commands may take very long, a
//! tenant that has none running never waits: a thread is made for it. Tenants of one owner, which may be names that one
//! host made up, have the turns of one tenant together, and few threads. Not here: what a command does, and its panics,
//! which it has to catch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Time that one turn gives to a tenant with a share of 1.
const TURN: Duration = Duration::from_millis(5);

/// Number of tenants beyond which those that wait for nothing are forgotten, with the time that they owe.
const LANES_MAX: usize = 1024;

/// Maximum number of commands of several tenants of one owner that run at once.
const OWNER_RUNNING_MAX: u32 = 16;

/// A command that a worker executes.
pub(super) type WorkerCommand = Box<dyn FnOnce() + Send>;

/// The part that a tenant has of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkerShare {
    /// Weight of the tenant's turns, at least 1.
    pub(super) share: u32,
    /// Maximum number of the tenant's commands that run at once, at least 1.
    pub(super) running_max: u32,
}

/// The commands of one tenant.
struct TenantLane {
    of: WorkerShare,
    /// Name of all that share the tenant's turns: the tenant's own if it is alone.
    owner: Arc<str>,
    waiting: VecDeque<WorkerCommand>,
    running: u32,
    /// Time that the tenant has left; negative if its commands took longer than its turns.
    left_ns: i64,
}

impl TenantLane {
    fn may_run(&self) -> bool {
        !self.waiting.is_empty() && self.running < self.of.running_max
    }
}

#[derive(Default)]
struct CommandWorkersState {
    /// The tenants that have a command here, by their names.
    lanes: BTreeMap<Arc<str>, TenantLane>,
    /// The tenants whose commands wait, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    /// Numbers of idle threads, the one that became idle last at the end.
    idle: Vec<usize>,
    /// For each thread the command that it was given while it was idle.
    given: Vec<Option<(Arc<str>, WorkerCommand)>>,
    /// Number of threads that were made for single tenants and have not ended.
    extra: usize,
    closed: bool,
}

/// Numbers of commands that wait for a worker, and of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Number of commands that wait.
    pub waiting: usize,
    /// Number of workers that execute a command.
    pub busy: usize,
    /// Number of workers.
    pub workers: usize,
}

impl CommandWorkersState {
    /// Takes the next command, of the tenant whose turn it is; `None` if none may run.
    fn take(&mut self) -> Option<(Arc<str>, WorkerCommand)> {
        let runnable = |state: &Self, name: &Arc<str>| state.lanes[name].may_run() && state.owner_may_run(name);
        // Rounds until a tenant that may run has time left.
        let rounds = |name: &Arc<str>| {
            let left_ns = self.lanes[name].left_ns;
            if left_ns > 0 { 0 } else { 1 - left_ns / self.turn_ns(name) }
        };
        let rounds = self.turns.iter().filter(|name| runnable(self, name)).map(rounds).min()?;
        if rounds > 0 {
            let turns: Vec<i64> = self.lanes.keys().map(|name| self.turn_ns(name)).collect();
            for (lane, most) in self.lanes.values_mut().zip(turns) {
                lane.left_ns = lane.left_ns.saturating_add(rounds.saturating_mul(most)).min(most);
            }
        }
        self.lanes.retain(|_, lane| lane.running > 0 || !lane.waiting.is_empty() || lane.left_ns < 0);
        let is_next = |name: &Arc<str>| runnable(self, name) && self.lanes[name].left_ns > 0;
        let at = self.turns.iter().position(is_next).expect("a tenant has time left");
        // Tenants before it may not run; they keep their places.
        let name = self.turns.remove(at).expect("a place among the turns");
        let lane = self.lanes.get_mut(&name).expect("a waiting tenant has a lane");
        let command = lane.waiting.pop_front().expect("a command waits");
        lane.running += 1;
        if !lane.waiting.is_empty() {
            self.turns.push_back(name.clone());
        }
        Some((name, command))
    }

    /// Returns the lanes of a tenant's owner.
    fn of_owner(&self, name: &Arc<str>) -> impl Iterator<Item = &TenantLane> {
        let owner = self.lanes[name].owner.clone();
        self.lanes.values().filter(move |lane| lane.owner == owner)
    }

    /// Returns the time that one turn gives to a tenant.
    fn turn_ns(&self, name: &Arc<str>) -> i64 {
        let lane = &self.lanes[name];
        let sharing = if lane.owner == *name { 1 } else { self.of_owner(name).count() as i64 };
        (TURN.as_nanos() as i64 * i64::from(lane.of.share) / sharing).max(1)
    }

    /// Whether one more command of a tenant's owner may run.
    fn owner_may_run(&self, name: &Arc<str>) -> bool {
        let running = || self.of_owner(name).map(|lane| lane.running).sum::<u32>();
        self.lanes[name].owner == *name || running() < OWNER_RUNNING_MAX
    }

    /// Takes the command of a tenant that has none running, out of turn.
    fn take_first_of(&mut self, name: &Arc<str>) -> Option<(Arc<str>, WorkerCommand)> {
        if !self.lanes.contains_key(name) || !self.owner_may_run(name) {
            return None;
        }
        let lane = self.lanes.get_mut(name).filter(|lane| lane.running == 0)?;
        let command = lane.waiting.pop_front()?;
        lane.running += 1;
        if lane.waiting.is_empty() {
            self.turns.retain(|other| other != name);
        }
        Some((name.clone(), command))
    }

    /// Counts the time that a tenant's command took.
    fn ended(&mut self, name: &Arc<str>, took: Duration) {
        let lane = self.lanes.get_mut(name).expect("the lane of a running command");
        assert!(lane.running > 0, "a command of {name} ended that had not begun");
        lane.running -= 1;
        lane.left_ns = lane.left_ns.saturating_sub(i64::try_from(took.as_nanos()).unwrap_or(i64::MAX));
        if lane.running == 0 && lane.waiting.is_empty() && (lane.left_ns >= 0 || self.lanes.len() > LANES_MAX) {
            self.lanes.remove(name);
        }
    }
}

/// The workers' commands, which connections add to.
pub(super) struct CommandWorkers {
    state: Mutex<CommandWorkersState>,
    /// By which each idle thread is woken.
    wake: Vec<Condvar>,
    /// Notified when a thread that was made for a tenant ends.
    ended: Condvar,
    /// Whether a tenant without a running command gets a thread at once.
    first_at_once: bool,
}

impl CommandWorkers {
    /// Starts a number of threads; the handles are for their end after [`Self::close`]. With `first_at_once`, a further
    /// thread is made for the command of a tenant that has none running, if all are busy.
    pub(super) fn start(count: usize, first_at_once: bool) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let given = std::iter::repeat_with(|| None).take(count).collect();
        let state = Mutex::new(CommandWorkersState { given, ..CommandWorkersState::default() });
        let wake = std::iter::repeat_with(Condvar::new).take(count).collect();
        let workers = Arc::new(Self { state, wake, ended: Condvar::new(), first_at_once });
        let start = |number| {
            let workers = workers.clone();
            thread::spawn(move || {
                while let Some((tenant, command)) = workers.next(number) {
                    workers.run(&tenant, command);
                }
            })
        };
        let threads = (0..count).map(start).collect();
        (workers, threads)
    }

    fn run(&self, tenant: &Arc<str>, command: WorkerCommand) {
        let begun = Instant::now();
        command();
        self.state.lock().ended(tenant, begun.elapsed());
    }

    /// Has a command of a tenant of `owner` executed; drops it if the workers are closed: no host is there.
    pub(super) fn execute(self: &Arc<Self>, tenant: &str, owner: &Arc<str>, of: WorkerShare, command: WorkerCommand) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        let name: Arc<str> = tenant.into();
        let lane = state.lanes.entry(name.clone()).or_insert_with(|| TenantLane {
            of,
            owner: owner.clone(),
            waiting: VecDeque::new(),
            running: 0,
            left_ns: 0,
        });
        lane.of = of;
        let is_first = lane.running == 0 && lane.waiting.is_empty();
        lane.waiting.push_back(command);
        if !state.turns.contains(&name) {
            state.turns.push_back(name);
        }
        if state.idle.is_empty() {
            if is_first && self.first_at_once && state.owner_may_run(&tenant.into()) {
                state.extra += 1;
                drop(state);
                self.make_thread(tenant.into());
            }
            return;
        }
        // Several may begin: a tenant's share may have grown.
        while let Some(&number) = state.idle.last()
            && let Some(taken) = state.take()
        {
            state.idle.pop();
            state.given[number] = Some(taken);
            self.wake[number].notify_one();
        }
    }

    /// Makes a thread for the waiting command of a tenant that has none running; it takes further ones while there are
    /// any.
    fn make_thread(self: &Arc<Self>, tenant: Arc<str>) {
        let workers = self.clone();
        let run = move || {
            let mut next = workers.state.lock().take_first_of(&tenant);
            while let Some((tenant, command)) = next {
                workers.run(&tenant, command);
                next = workers.state.lock().take();
            }
            workers.extra_ended();
        };
        // Without another thread the command waits for one of those that there are.
        if thread::Builder::new().name("nvme-run".to_owned()).spawn(run).is_err() {
            self.extra_ended();
        }
    }

    /// Returns how many commands and workers there are now.
    pub(super) fn counts(&self) -> WorkerCounts {
        let state = self.state.lock();
        let workers = self.wake.len();
        let waiting = state.lanes.values().map(|lane| lane.waiting.len()).sum();
        let busy = state.lanes.values().map(|lane| lane.running as usize).sum();
        WorkerCounts { waiting, busy, workers }
    }

    fn extra_ended(&self) {
        self.state.lock().extra -= 1;
        self.ended.notify_all();
    }

    /// Waits for the end of the threads that were made for single tenants, after [`Self::close`]: their commands end as
    /// those of the other threads do.
    pub(super) fn join(&self) {
        let mut state = self.state.lock();
        assert!(state.closed, "workers that go on have no end");
        self.ended.wait_while(&mut state, |state| state.extra > 0);
    }

    /// Ends the threads once they have executed all commands that are there.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        for wake in &self.wake {
            wake.notify_one();
        }
    }

    /// Waits for the next command of a thread; `None` if the workers are closed and no command is left.
    fn next(&self, number: usize) -> Option<(Arc<str>, WorkerCommand)> {
        let mut state = self.state.lock();
        if let Some(taken) = state.take() {
            return Some(taken);
        }
        if state.closed {
            return None;
        }
        state.idle.push(number);
        self.wake[number].wait_while(&mut state, |state| state.given[number].is_none() && !state.closed);
        state.given[number].take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    const ANY: WorkerShare = WorkerShare { share: 1, running_max: u32::MAX };

    fn execute(workers: &Arc<CommandWorkers>, tenant: &str, command: WorkerCommand) {
        workers.execute(tenant, &tenant.into(), ANY, command);
    }

    fn idle(workers: &CommandWorkers, count: usize) {
        while workers.state.lock().idle.len() < count {
            thread::yield_now();
        }
    }

    /// Executes a command that tells its thread, and waits until that thread is idle again.
    fn one(workers: &Arc<CommandWorkers>, count: usize) -> ThreadId {
        let (tell, told) = mpsc::channel();
        execute(workers, "one", Box::new(move || tell.send(thread::current().id()).unwrap()));
        let id = told.recv().unwrap();
        idle(workers, count);
        id
    }

    #[test]
    fn one_command_after_another_stays_on_one_thread() {
        let (workers, threads) = CommandWorkers::start(8, false);
        idle(&workers, 8);
        let first = one(&workers, 8);
        assert!((0..50).all(|_| one(&workers, 8) == first));
        workers.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn commands_run_at_once_up_to_the_number_of_threads_and_all_of_them_once() {
        let (workers, threads) = CommandWorkers::start(3, false);
        let barrier = Arc::new(std::sync::Barrier::new(3));
        let (tell, told) = mpsc::channel();
        for number in 0..300 {
            let (tell, barrier) = (tell.clone(), barrier.clone());
            execute(
                &workers,
                "one",
                Box::new(move || {
                    barrier.wait();
                    tell.send(number).unwrap();
                }),
            );
        }
        workers.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(tell);
        let mut ended: Vec<u32> = told.iter().collect();
        ended.sort_unstable();
        assert!(ended.into_iter().eq(0..300));
        execute(&workers, "one", Box::new(|| panic!("a command of closed workers")));
    }

    /// Has two tenants send commands that take some time each; returns how much time each has had when all of the first
    /// one's are done.
    fn shared(shares: [u32; 2], costs_ms: [u64; 2], count: usize) -> [u64; 2] {
        let (workers, threads) = CommandWorkers::start(1, false);
        let had = Arc::new(Mutex::new([0; 2]));
        let (hold, held) = mpsc::channel::<()>();
        execute(&workers, "before", Box::new(move || held.recv().unwrap()));
        let (tell, told) = mpsc::channel();
        for round in 0..count {
            for (which, name) in ["a", "b"].into_iter().enumerate() {
                let (had, tell) = (had.clone(), tell.clone());
                let command = move || {
                    thread::sleep(Duration::from_millis(costs_ms[which]));
                    had.lock()[which] += costs_ms[which];
                    if which == 0 && round + 1 == count {
                        tell.send(*had.lock()).unwrap();
                    }
                };
                let of = WorkerShare { share: shares[which], running_max: 4 };
                workers.execute(name, &name.into(), of, Box::new(command));
            }
        }
        hold.send(()).unwrap();
        let found = told.recv().unwrap();
        workers.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        found
    }

    #[test]
    fn tenants_have_time_by_their_shares_whatever_their_commands_cost() {
        let [a, b] = shared([1, 1], [4, 16], 12);
        assert!(b >= a / 2 && b <= 2 * a + 32, "equal shares: {a} and {b} ms");
        let [a, b] = shared([4, 1], [8, 8], 16);
        assert!(b <= a / 2, "four times the share: {a} and {b} ms");
    }

    #[test]
    fn a_tenant_that_sends_one_command_at_a_time_pays_for_it() {
        let (workers, threads) = CommandWorkers::start(1, false);
        let (over, had) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new([0u64; 2])));
        thread::scope(|scope| {
            // Long commands one after the other, beside short ones of which some always wait.
            for (which, depth, cost_ms) in [(0, 1, 40), (1, 4, 2)] {
                let (workers, over, had) = (workers.clone(), over.clone(), had.clone());
                scope.spawn(move || {
                    let (tell, told) = mpsc::channel();
                    let mut in_flight = 0;
                    while !*over.lock() {
                        while in_flight < depth {
                            let (tell, had) = (tell.clone(), had.clone());
                            let command = move || {
                                thread::sleep(Duration::from_millis(cost_ms));
                                had.lock()[which] += cost_ms;
                                tell.send(()).unwrap();
                            };
                            execute(&workers, ["long", "short"][which], Box::new(command));
                            in_flight += 1;
                        }
                        told.recv().unwrap();
                        in_flight -= 1;
                    }
                    (0..in_flight).for_each(|_| told.recv().unwrap());
                });
            }
            thread::sleep(Duration::from_millis(1500));
            *over.lock() = true;
        });
        let [long, short] = *had.lock();
        assert!(long <= 2 * short + 80 && short <= 2 * long + 80, "{long} and {short} ms");
        workers.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn a_tenant_without_a_running_command_never_waits_for_others_and_none_has_more_than_it_may() {
        let (workers, threads) = CommandWorkers::start(2, true);
        idle(&workers, 2);
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let (began, begun) = mpsc::channel();
        let send = |name: &'static str, running_max| {
            let (ended, began) = (ended.clone(), began.clone());
            let command = move || {
                began.send(name).unwrap();
                // The lock is held while it waits: one message ends one command.
                ended.lock().recv().unwrap();
            };
            workers.execute(name, &name.into(), WorkerShare { share: 1, running_max }, Box::new(command));
        };
        (0..6).for_each(|_| send("a", 3));
        ["b", "c", "d"].iter().for_each(|name| send(name, 3));
        let mut first: Vec<&str> = (0..5).map(|_| begun.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        first.sort_unstable();
        assert_eq!(first, ["a", "a", "b", "c", "d"], "all tenants run, the first by both threads of the pool");
        assert!(begun.recv_timeout(Duration::from_millis(50)).is_err(), "the rest waits");
        (0..9).for_each(|_| end.send(()).unwrap());
        assert_eq!((0..4).map(|_| begun.recv_timeout(Duration::from_secs(10)).unwrap()).collect::<Vec<_>>(), ["a"; 4]);
        workers.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(began);
    }

    /// An honest tenant and 20 of one owner send commands of 2 ms each: until those of the honest one are done, the
    /// owner has no more time than a tenant.
    #[test]
    fn twenty_names_of_one_owner_have_the_turns_of_one() {
        let (workers, threads) = CommandWorkers::start(1, false);
        let had = Arc::new(Mutex::new([0u64; 2]));
        let (hold, held) = mpsc::channel::<()>();
        execute(&workers, "before", Box::new(move || held.recv().unwrap()));
        let (tell, told) = mpsc::channel();
        for number in 0..40 {
            for name in 0..=20 {
                let (had, tell, which) = (had.clone(), tell.clone(), usize::from(name > 0));
                let command = move || {
                    thread::sleep(Duration::from_millis(2));
                    had.lock()[which] += 2;
                    if which == 0 && number == 39 {
                        tell.send(*had.lock()).unwrap();
                    }
                };
                let name: Arc<str> = format!("nqn.{name}").into();
                let owner = if which == 0 { name.clone() } else { "hosts at one place".into() };
                workers.execute(&name, &owner, ANY, Box::new(command));
            }
        }
        hold.send(()).unwrap();
        let [honest, made_up] = told.recv().unwrap();
        workers.close();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // Each name may have one command beyond what its turn gives.
        assert!(made_up <= 2 * honest + 20 * 2, "{honest} ms beside {made_up} ms of 20 names");
    }
}
