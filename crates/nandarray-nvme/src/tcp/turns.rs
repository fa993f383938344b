//! The order in which commands of tenants get a worker: turns by shares and time, a bound for owners of many names.
//!
//! Tenants take turns (deficit round robin, M. Shreedhar and G. Varghese, SIGCOMM 1995): each round gives a tenant time
//! by its share, and a command costs the time that it took. Tenants of one owner, which may be names that one host made
//! up, have the rounds of one tenant together, and a bound on their commands that run at once. A command that waits for
//! another one steps aside: it has no place, costs no time, and returns in front of its tenant's queue.
//!
//! The rounds are counted, and a tenant has the number of the round in which it has time again, so each step takes time
//! by the logarithm of the number of tenants, however many commands wait. Not here: threads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::tenants::TenantOwner;

/// Time that one round gives to a tenant with a share of 1.
const TURN: Duration = Duration::from_millis(5);

/// Number of tenants beyond which those that wait for nothing are forgotten, with the time that they owe.
const LANES_MAX: usize = 1024;

/// Maximum number of commands of an owner of several tenants that run at once.
pub(super) const OWNER_RUNNING_MAX: usize = 16;

/// Maximum number of commands that have stepped aside. An owner has no more than it leaves to others.
pub(super) const ASIDE_MAX: usize = 512;

/// The part that a tenant has of the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkerShare {
    /// Weight of the tenant's turns, at least 1.
    pub(super) share: u32,
    /// Maximum number of the tenant's commands that run at once, at least 1.
    pub(super) running_max: u32,
}

/// A tenant as workers know it. Names of two owners are two tenants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LaneName {
    pub(super) owner: TenantOwner,
    pub(super) tenant: Arc<str>,
}

/// The place of a tenant in the order of turns: the round in which it has time, and a number that no other place has.
type Turn = (u64, u64);

/// The commands of one tenant.
struct TenantLane<C> {
    of: WorkerShare,
    waiting: VecDeque<C>,
    running: usize,
    aside: usize,
    /// Time that the tenant has left in round `round`; negative if its commands took longer than its turns.
    left_ns: i64,
    round: u64,
    /// Its place among those of its owner, while it may run; or among those that owe time and wait for nothing.
    turn: Option<Turn>,
}

impl<C> TenantLane<C> {
    fn may_run(&self) -> bool {
        !self.waiting.is_empty() && self.running < self.of.running_max as usize
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running == 0 && self.aside == 0
    }
}

/// The tenants of one owner.
#[derive(Default)]
struct OwnerLanes {
    lanes: usize,
    running: usize,
    aside: usize,
    /// Tenants that may run, in the order of their turns.
    turns: BTreeMap<Turn, LaneName>,
    /// The first of them, while one more command of the owner may run.
    head: Option<Turn>,
}

/// The commands of all tenants.
pub(super) struct CommandTurns<C> {
    lanes: BTreeMap<LaneName, TenantLane<C>>,
    owners: BTreeMap<TenantOwner, OwnerLanes>,
    /// The first tenant of each owner that may run a command.
    heads: BTreeMap<Turn, TenantOwner>,
    /// Tenants that owe time, and wait for nothing.
    debts: BTreeSet<(Turn, LaneName)>,
    round: u64,
    /// Number of the next turn.
    next: u64,
    waiting: usize,
    running: usize,
    aside: usize,
}

impl<C> Default for CommandTurns<C> {
    fn default() -> Self {
        let (lanes, owners, heads, debts) = Default::default();
        Self { lanes, owners, heads, debts, round: 0, next: 0, waiting: 0, running: 0, aside: 0 }
    }
}

impl<C> CommandTurns<C> {
    /// Returns the numbers of commands that wait for a worker, that have stepped aside, and that have a worker.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.waiting, self.aside, self.running)
    }

    /// Adds a command behind the others of its tenant.
    pub(super) fn push(&mut self, name: &LaneName, of: WorkerShare, command: C) {
        if !self.lanes.contains_key(name) {
            let (waiting, round) = (VecDeque::new(), self.round);
            let lane = TenantLane { of, waiting, running: 0, aside: 0, left_ns: 0, round, turn: None };
            self.lanes.insert(name.clone(), lane);
            self.owners.entry(name.owner.clone()).or_default().lanes += 1;
        }
        let lane = self.lanes.get_mut(name).expect("a lane that is there");
        lane.of = of;
        lane.waiting.push_back(command);
        self.waiting += 1;
        self.place(name);
    }

    /// Takes the next command, of the tenant whose turn it is; `None` if none may run.
    pub(super) fn take(&mut self) -> Option<(LaneName, C)> {
        loop {
            let (turn, owner) = self.heads.first_key_value()?;
            let (turn, owner) = (*turn, &self.owners[owner]);
            let name = owner.turns[&turn].clone();
            if turn.0 > self.round {
                self.round = turn.0;
                self.forgive();
            }
            self.displace(&name);
            if self.settle(&name) > 0 {
                return self.begin(name);
            }
            // Its owner has got more tenants since its round was found: it has less of each.
            self.place(&name);
        }
    }

    /// Takes the command of a tenant that has none running, out of turn.
    pub(super) fn take_first_of(&mut self, name: &LaneName) -> Option<(LaneName, C)> {
        let lane = self.lanes.get(name)?;
        if lane.running > 0 || lane.waiting.is_empty() || !self.owner_may_run(&name.owner) {
            return None;
        }
        self.displace(name);
        self.begin(name.clone())
    }

    /// Gives back a command that was taken and has not begun.
    pub(super) fn give_back(&mut self, name: &LaneName, command: C) {
        self.ended(name, Duration::ZERO, |lane| lane.waiting.push_front(command));
        self.waiting += 1;
        self.place(name);
    }

    /// Notes the end of a tenant's command, and the time that it took.
    pub(super) fn end(&mut self, name: &LaneName, took: Duration) {
        self.ended(name, took, |_| {});
        self.place(name);
    }

    /// Whether one more command of a tenant's owner may step aside.
    pub(super) fn may_step_aside(&self, name: &LaneName) -> bool {
        self.owners[&name.owner].aside < ASIDE_MAX.saturating_sub(self.aside)
    }

    /// Takes a running command's place: it waits for another one, and has taken this time so far.
    pub(super) fn step_aside(&mut self, name: &LaneName, took: Duration) {
        self.ended(name, took, |lane| lane.aside += 1);
        self.aside += 1;
        self.owner(name).aside += 1;
        self.place(name);
    }

    /// Lets a command that has stepped aside wait for a place, before others of its tenant; `command` stands for it.
    pub(super) fn return_by(&mut self, name: &LaneName, command: C) {
        self.no_longer_aside(name).waiting.push_front(command);
        self.waiting += 1;
        self.place(name);
    }

    /// Gives a place to a command that has stepped aside, and is about to end, at once.
    pub(super) fn return_now(&mut self, name: &LaneName) {
        self.no_longer_aside(name).running += 1;
        self.running += 1;
        self.owner(name).running += 1;
        self.place(name);
    }

    /// Removes the waiting commands that are not to be kept.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&C) -> bool) -> Vec<C> {
        let mut removed = Vec::new();
        let mut names = Vec::new();
        for (name, lane) in &mut self.lanes {
            let before = lane.waiting.len();
            let (kept, gone): (VecDeque<C>, VecDeque<C>) = lane.waiting.drain(..).partition(&mut keep);
            lane.waiting = kept;
            if !gone.is_empty() {
                assert_eq!(lane.waiting.len() + gone.len(), before, "each command is kept or removed");
                names.push(name.clone());
                removed.extend(gone);
            }
        }
        self.waiting -= removed.len();
        for name in names {
            self.place(&name);
        }
        removed
    }

    fn owner(&mut self, name: &LaneName) -> &mut OwnerLanes {
        self.owners.get_mut(&name.owner).expect("the owner of a lane")
    }

    fn owner_may_run(&self, owner: &TenantOwner) -> bool {
        match owner {
            TenantOwner::Tenant(_) => true,
            TenantOwner::Place(_) => self.owners[owner].running < OWNER_RUNNING_MAX,
        }
    }

    /// Returns the time that one round gives to a tenant.
    fn turn_ns(&self, name: &LaneName) -> i64 {
        let sharing = match name.owner {
            TenantOwner::Tenant(_) => 1,
            TenantOwner::Place(_) => self.owners[&name.owner].lanes as i64,
        };
        (TURN.as_nanos() as i64 * i64::from(self.lanes[name].of.share) / sharing).max(1)
    }

    /// Gives a tenant the time of the rounds since it was looked at; returns what it has left.
    fn settle(&mut self, name: &LaneName) -> i64 {
        let (most, round) = (self.turn_ns(name), self.round);
        let lane = self.lanes.get_mut(name).expect("a lane that is there");
        let rounds = i64::try_from(round - lane.round).unwrap_or(i64::MAX);
        if rounds > 0 {
            lane.left_ns = lane.left_ns.saturating_add(rounds.saturating_mul(most)).min(most);
            lane.round = round;
        }
        lane.left_ns
    }

    /// Begins the first waiting command of a tenant that has no turn.
    fn begin(&mut self, name: LaneName) -> Option<(LaneName, C)> {
        let lane = self.lanes.get_mut(&name)?;
        let command = lane.waiting.pop_front().expect("a command waits");
        lane.running += 1;
        self.waiting -= 1;
        self.running += 1;
        self.owner(&name).running += 1;
        self.place(&name);
        Some((name, command))
    }

    /// Counts a running command out, whose tenant has still to be placed.
    fn ended(&mut self, name: &LaneName, took: Duration, change: impl FnOnce(&mut TenantLane<C>)) {
        let lane = self.lanes.get_mut(name).expect("the lane of a running command");
        assert!(lane.running > 0, "a command of {} ended that had not begun", name.tenant);
        lane.running -= 1;
        lane.left_ns = lane.left_ns.saturating_sub(i64::try_from(took.as_nanos()).unwrap_or(i64::MAX));
        change(lane);
        self.running -= 1;
        self.owner(name).running -= 1;
    }

    fn no_longer_aside(&mut self, name: &LaneName) -> &mut TenantLane<C> {
        self.aside -= 1;
        self.owner(name).aside -= 1;
        let lane = self.lanes.get_mut(name).expect("the lane of a command that has stepped aside");
        lane.aside -= 1;
        lane
    }

    /// Takes a tenant's place among those that may run, or that owe time.
    fn displace(&mut self, name: &LaneName) {
        let Some(turn) = self.lanes.get_mut(name).and_then(|lane| lane.turn.take()) else { return };
        if self.owner(name).turns.remove(&turn).is_none() {
            self.debts.remove(&(turn, name.clone()));
        }
        self.lead(&name.owner.clone());
    }

    /// Gives a tenant the place that it is to have; forgets one that waits for nothing and owes nothing.
    fn place(&mut self, name: &LaneName) {
        let (may_run, is_idle) = (self.lanes[name].may_run(), self.lanes[name].is_idle());
        let has_turn = self.lanes[name].turn.is_some_and(|turn| self.owners[&name.owner].turns.contains_key(&turn));
        if may_run && has_turn {
            return self.lead(&name.owner.clone());
        }
        self.displace(name);
        let left = self.settle(name);
        if is_idle && (left >= 0 || self.lanes.len() > LANES_MAX) {
            self.forget(name);
            return;
        }
        if may_run || is_idle {
            let rounds = if left > 0 { 0 } else { 1 + left.unsigned_abs() / self.turn_ns(name).unsigned_abs() };
            let turn = (self.round.saturating_add(rounds), self.next);
            self.next += 1;
            self.lanes.get_mut(name).expect("a lane that is there").turn = Some(turn);
            if may_run {
                self.owner(name).turns.insert(turn, name.clone());
            } else {
                self.debts.insert((turn, name.clone()));
            }
        }
        self.lead(&name.owner.clone());
    }

    fn forget(&mut self, name: &LaneName) {
        self.lanes.remove(name);
        let owner = self.owner(name);
        owner.lanes -= 1;
        if owner.lanes == 0 {
            assert!(owner.running == 0 && owner.head.is_none(), "an owner without tenants runs something");
            self.owners.remove(&name.owner);
        }
    }

    /// Forgets tenants that wait for nothing, and whose debt is paid by now.
    fn forgive(&mut self) {
        while let Some(((round, _), name)) = self.debts.first()
            && *round <= self.round
        {
            let name = name.clone();
            self.displace(&name);
            self.forget(&name);
        }
    }

    /// Has the first tenant of an owner stand for it, if one more of the owner's commands may run.
    fn lead(&mut self, owner: &TenantOwner) {
        let may_run = self.owner_may_run(owner);
        let lanes = self.owners.get_mut(owner).expect("an owner of lanes");
        let head = lanes.turns.first_key_value().map(|(turn, _)| *turn).filter(|_| may_run);
        let before = std::mem::replace(&mut lanes.head, head);
        if before != head {
            before.map(|turn| self.heads.remove(&turn));
            head.map(|turn| self.heads.insert(turn, owner.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const ANY: WorkerShare = WorkerShare { share: 1, running_max: u32::MAX };

    fn named(tenant: &str) -> LaneName {
        LaneName { owner: TenantOwner::Tenant(tenant.into()), tenant: tenant.into() }
    }

    fn at(place: &str, tenant: usize) -> LaneName {
        LaneName { owner: TenantOwner::Place(place.into()), tenant: format!("nqn.{tenant}").into() }
    }

    /// Runs commands one after the other, each for the time that it costs; returns the time that each tenant had until
    /// `last` had none left.
    fn run(turns: &mut CommandTurns<Duration>, last: &LaneName) -> BTreeMap<LaneName, Duration> {
        let mut had: BTreeMap<LaneName, Duration> = BTreeMap::new();
        while let Some((name, cost)) = turns.take() {
            turns.end(&name, cost);
            *had.entry(name.clone()).or_default() += cost;
            if name == *last && turns.lanes.get(last).is_none_or(|lane| lane.waiting.is_empty()) {
                break;
            }
        }
        had
    }

    #[test]
    fn tenants_have_time_by_their_shares_and_names_of_one_owner_that_of_one() {
        let ms = Duration::from_millis;
        for (shares, costs, made_up, most) in
            [([1, 1], [4, 16], 1, 120..=216), ([4, 1], [8, 8], 1, 40..=110), ([1, 1], [2, 2], 20, 40..=440)]
        {
            let mut turns = CommandTurns::default();
            for _ in 0..100 {
                turns.push(&named("a"), WorkerShare { share: shares[0], ..ANY }, ms(costs[0]));
                for other in 0..made_up {
                    let name = if made_up == 1 { named("b") } else { at("192.0.2.7", other) };
                    turns.push(&name, WorkerShare { share: shares[1], ..ANY }, ms(costs[1]));
                }
            }
            let mut had = run(&mut turns, &named("a"));
            let own = had.remove(&named("a")).unwrap();
            let others: Duration = had.into_values().sum();
            let scaled = others.as_millis() * 200 / own.as_millis();
            assert!(most.contains(&scaled), "{own:?} and {others:?} of {shares:?}, {costs:?}, {made_up} names");
        }
    }

    /// One that sends a long command when the one before has ended pays for it, beside one whose short commands wait.
    #[test]
    fn a_tenant_that_sends_one_command_at_a_time_pays_for_it() {
        let mut turns = CommandTurns::default();
        let (long, short, mut had) = (named("long"), named("short"), [Duration::ZERO; 2]);
        (0..4).for_each(|_| turns.push(&short, ANY, Duration::from_millis(2)));
        turns.push(&long, ANY, Duration::from_millis(40));
        for _ in 0..2000 {
            let (name, cost) = turns.take().unwrap();
            had[usize::from(name == short)] += cost;
            turns.end(&name, cost);
            turns.push(&name, ANY, cost);
        }
        let [long, short] = had.map(|had| had.as_millis());
        assert!(long.abs_diff(short) <= 80, "{long} and {short} ms");
    }

    /// Commands that run, step aside, return and end, of tenants alone and of made-up names, in any order (fixed
    /// seeds): counts and bounds hold, nothing is lost, and nothing stays at the end but debts.
    #[test]
    fn whatever_happens_bounds_hold_and_no_command_is_lost() {
        for seed in 0..8 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut turns = CommandTurns::default();
            let (mut running, mut aside, mut pushed, mut done): (Vec<LaneName>, Vec<LaneName>, u32, u32) =
                (vec![], vec![], 0, 0);
            for step in 0..4000 {
                let drains = step >= 3000;
                match rng.u8(if drains { 3 } else { 0 }..10) {
                    0..3 => {
                        let who = rng.usize(..6);
                        let name = if rng.bool() { at("::", who) } else { named(&format!("nqn.{who}")) };
                        turns.push(&name, WorkerShare { share: 1 + rng.u32(..3), running_max: 1 + rng.u32(..9) }, ());
                        pushed += 1;
                    }
                    3..6 => running.extend(turns.take().map(|(name, ())| name)),
                    6 if !running.is_empty() => {
                        let name = running.swap_remove(rng.usize(..running.len()));
                        assert!(turns.may_step_aside(&name));
                        turns.step_aside(&name, Duration::from_micros(rng.u64(..9000)));
                        aside.push(name);
                    }
                    7 if !aside.is_empty() => {
                        let name = aside.swap_remove(rng.usize(..aside.len()));
                        if rng.bool() {
                            turns.return_by(&name, ());
                        } else {
                            turns.return_now(&name);
                            running.push(name);
                        }
                    }
                    8 if !running.is_empty() => {
                        let name = running.swap_remove(rng.usize(..running.len()));
                        turns.end(&name, Duration::from_micros(rng.u64(..9000)));
                        done += 1;
                    }
                    9 if rng.u8(..40) == 0 => done += turns.retain(|()| false).len() as u32,
                    _ => {}
                }
                assert_eq!(turns.running, running.len());
                assert_eq!(turns.waiting + running.len() + aside.len(), (pushed - done) as usize, "seed {seed}");
                let told: usize = turns.lanes.values().map(|lane| lane.waiting.len()).sum();
                assert_eq!((turns.waiting, turns.aside), (told, aside.len()));
                let some_may = turns.lanes.iter().any(|(n, lane)| lane.may_run() && turns.owner_may_run(&n.owner));
                assert_eq!(some_may, !turns.heads.is_empty(), "seed {seed}, step {step}");
            }
            for name in aside {
                turns.return_by(&name, ());
            }
            while !running.is_empty() || turns.waiting > 0 {
                while let Some((name, ())) = turns.take() {
                    running.push(name);
                }
                turns.end(&running.pop().expect("something runs"), Duration::ZERO);
            }
            assert!(turns.heads.is_empty() && turns.lanes.len() == turns.debts.len(), "seed {seed}");
        }
    }

    /// A hundred thousand commands of ten thousand owners, whose turns once took a minute to find.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "the time that turns take is what is tested")]
    fn turns_are_found_in_little_time_however_many_wait() {
        let begun = Instant::now();
        let mut turns = CommandTurns::default();
        for command in 0..100_000 {
            turns.push(&at(&format!("2001:db8:0:{:x}::/64", command % 10_000), command % 7), ANY, ());
        }
        let mut taken = 0;
        while let Some((name, ())) = turns.take() {
            turns.end(&name, Duration::from_millis(7));
            taken += 1;
        }
        assert_eq!(taken, 100_000);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
