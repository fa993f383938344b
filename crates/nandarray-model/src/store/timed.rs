//! Programs on the timed cores of a modelled device.
//!
//! ```text
//! pick a job -> its pages are requested, by credits    (the job waits in its core's second slot while another runs)
//!            -> the core runs on its own up to its next need of something shared, and has it at that time:
//!               lines of DRAM, a page of an input, room for an output
//!            -> deliver: results over the link, or into the flash
//! ```
//!
//! All of a task's bytes are in the call from its beginning; the core's meter pauses it before an access to those that
//! have not arrived ([`nandarray_uarch::TaskFeed`]). The work of a core between two needs touches nothing else, so
//! needs are served in order of time, and contention is exact. A core has two slots: a job that runs, and one whose
//! inputs are on their way. Entry points other than the task's, a few instructions each, wait a fixed time for lines.

mod entry;

use std::collections::{BTreeMap, VecDeque};

use nandarray_cores::{Advance, Call, RunError, abi};
use nandarray_runtime::{Agenda, Delivery, InputLocation, Job, JobKind, JobStep, Next, OutputSink};
use nandarray_uarch::{CoreNeed, CoreReport, InputGate, TaskFeed, TimedCore};

use super::Clock;
use super::feeds::{FeedRules, InputFeed, Leg};
use super::timed_cores::TimedCores;
use crate::describe::InputFrom;
use crate::flash_trace::{BlockOps, FlashTrace};
use crate::machine::{Notification, SpaceJobId, SpaceJobKind};
use nandarray_sim::Ps;

/// Instructions after which a program that needs nothing is looked at.
const SLICE: u64 = 1 << 20;
/// Alignment of a task's windows in DRAM.
const PAGE: u64 = 4096;
/// First address in DRAM of tasks' windows.
const WINDOWS: u64 = 1 << 33;

/// The state of a core's firmware: Zou (dissertation, 2023), Figure 7.7, has the firmware manage cores by such states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoreState {
    /// It has no program, or none whose first page is there.
    Idle,
    /// The firmware sets it up.
    Assigned,
    /// It executes, up to a time that is known.
    Running,
    /// It waits for a page of an input.
    WaitsForInput,
    /// It waits for room for an output.
    WaitsForRoom,
}

impl CoreState {
    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Assigned => "assigned",
            Self::Running => "run",
            Self::WaitsForInput => "wait for input",
            Self::WaitsForRoom => "wait for room",
        }
    }
}

/// The work to do when the time comes up to which a core has run.
#[derive(Debug)]
enum AtEnd {
    /// The core needs something.
    Need(CoreNeed),
    /// Its budget of instructions is used up.
    Slice,
    /// Its call is over.
    Over(Result<Vec<u64>, RunError>),
    /// It has waited for room, or was set up.
    Resume,
    /// An entry point that ran to its end.
    Settled,
    /// Entry points of jobs that are over.
    Leftover,
}

/// A call on its core.
struct TimedCall<'p> {
    call: Call<'p>,
    /// A time, and the tick of it.
    origin: (Ps, u64),
    /// Figures of the core when the call began.
    before: CoreReport,
    /// Ends of the drains of each output that are under way.
    drains: Vec<VecDeque<Ps>>,
    /// Bytes of each output drained.
    drained: Vec<u64>,
}

/// A job in one of a core's slots.
struct SlotJob<'s, 'p> {
    job: Job<'s, 'p>,
    call: Option<TimedCall<'p>>,
    feeds: Vec<InputFeed>,
    /// Whether the inputs of its task were requested.
    fetched: bool,
    /// Its number among all: older jobs have their pages first.
    age: u64,
    /// Its call is over and takes no more pages.
    is_fed: bool,
    /// Jobs of the machine in flight for it.
    pending: u32,
    /// The job's outcome, while data for it is in flight.
    ended: Option<Result<(), RunError>>,
}

struct CoreSlots<'s, 'p> {
    slots: [Option<SlotJob<'s, 'p>>; 2],
    /// The slot whose job runs.
    active: Option<usize>,
    state: CoreState,
    since: Ps,
    at_end: Option<AtEnd>,
    /// The input, and the byte of it, that it waits for.
    parked: Option<(usize, u64)>,
    /// Ticks of entry points that are still to be spent.
    debt: u64,
}

/// The purpose of a job of the machine.
#[derive(Clone, Copy, Debug)]
enum MoveFor {
    /// It brings an input of a slot's job: core, slot, input.
    Input(usize, usize, usize),
    /// Only the end of the run waits for it.
    Out,
}

pub(super) struct TimedRun<'r, 's, 'p> {
    clock: &'r Clock,
    cores: &'r TimedCores,
    agenda: &'r mut Agenda<'s, 'p>,
    sink: &'r mut dyn OutputSink,
    slots: Vec<CoreSlots<'s, 'p>>,
    moving: BTreeMap<SpaceJobId, MoveFor>,
    /// The next address in DRAM for windows.
    next_window: u64,
    /// Number of jobs so far.
    jobs: u64,
}

impl Drop for TimedRun<'_, '_, '_> {
    /// A run that ended by a panic leaves the machine at rest.
    fn drop(&mut self) {
        for &job in self.moving.keys() {
            self.clock.with(|state| state.machine.give_up(job));
        }
        while !self.moving.is_empty() || self.slots.iter().any(|core| core.at_end.is_some()) {
            match self.clock.next_notification() {
                Some(Notification::Done(done)) => drop(self.moving.remove(&done.id)),
                Some(Notification::CoreFree(core)) => self.slots[core as usize].at_end = None,
                Some(Notification::Arrived(..)) => {}
                None => return,
            }
        }
        for (number, core) in self.slots.iter().enumerate() {
            if core.slots.iter().any(Option::is_some) {
                self.clock.with(|state| state.machine.occupy(number as u32, false));
            }
        }
    }
}

impl<'r, 's, 'p> TimedRun<'r, 's, 'p> {
    pub(super) fn new(
        clock: &'r Clock,
        cores: &'r TimedCores,
        agenda: &'r mut Agenda<'s, 'p>,
        sink: &'r mut dyn OutputSink,
    ) -> Self {
        let idle = || CoreSlots {
            slots: [None, None],
            active: None,
            state: CoreState::Idle,
            since: clock.with(|state| state.machine.now()),
            at_end: None,
            parked: None,
            debt: 0,
        };
        let slots = (0..cores.compute.cores).map(|_| idle()).collect();
        Self { clock, cores, agenda, sink, slots, moving: BTreeMap::new(), next_window: WINDOWS, jobs: 0 }
    }

    fn now(&self) -> Ps {
        self.clock.with(|state| state.machine.now())
    }

    fn submit(&mut self, kind: SpaceJobKind, trace: FlashTrace, why: MoveFor) -> SpaceJobId {
        let id = self.clock.with(|state| {
            let at = state.host.max(state.machine.now());
            state.machine.submit_job(at, kind, 0, trace)
        });
        self.moving.insert(id, why);
        id
    }

    /// Executes all jobs; `before` are the flash operations of the command itself.
    pub(super) fn all(&mut self, before: FlashTrace) {
        self.submit(SpaceJobKind::Other, before, MoveFor::Out);
        loop {
            let over = self.fill();
            let is_free = |core: &CoreSlots<'_, '_>| core.slots.iter().all(Option::is_none);
            if over && self.moving.is_empty() && self.slots.iter().all(is_free) {
                self.spend_leftovers();
                if self.slots.iter().all(|core| core.at_end.is_none()) {
                    return;
                }
            }
            match self.clock.next_notification() {
                Some(Notification::CoreFree(core)) => self.core_free(core as usize),
                Some(Notification::Arrived(id, page)) => self.arrived(id, Some(page)),
                Some(Notification::Done(done)) => self.arrived(done.id, None),
                None => {
                    self.agenda.abort(RunError::Worker("the modelled device stands still".to_owned()));
                    return;
                }
            }
        }
    }

    /// Gives jobs to free slots, cores without a job first; returns whether there are no more.
    fn fill(&mut self) -> bool {
        loop {
            let free = |slots: usize| move |core: &CoreSlots<'_, '_>| core.slots.iter().flatten().count() == slots;
            let Some(core) = [0, 1].into_iter().find_map(|jobs| self.slots.iter().position(free(jobs))) else {
                return false;
            };
            match self.agenda.pick() {
                Next::Over => return true,
                Next::Wait => return false,
                Next::Job(job) => {
                    let slot = usize::from(self.slots[core].slots[0].is_some());
                    let is_first = self.slots[core].slots.iter().all(Option::is_none);
                    self.clock.with(|state| {
                        state.programs.tasks += u64::from(matches!(job.kind(), JobKind::Task { .. }));
                        if is_first {
                            state.machine.occupy(core as u32, true);
                        }
                    });
                    self.jobs += 1;
                    self.slots[core].slots[slot] = Some(SlotJob {
                        job,
                        call: None,
                        feeds: Vec::new(),
                        fetched: false,
                        age: self.jobs,
                        is_fed: false,
                        pending: 0,
                        ended: None,
                    });
                    self.steps(core, slot);
                }
            }
        }
    }

    /// Does the steps of a slot's job that are possible now.
    fn steps(&mut self, core: usize, slot: usize) {
        loop {
            let Some(on) = self.slots[core].slots[slot].as_mut() else { return };
            if on.ended.is_some() {
                return self.end_slot(core, slot);
            }
            if on.call.is_some() {
                return;
            }
            let done = match on.job.step() {
                JobStep::Done => Ok(true),
                JobStep::Fetch => self.fetch(core, slot).map(|()| false),
                JobStep::Deliver => self.deliver(core, slot).map(|()| false),
                JobStep::Call if !on.fetched => match self.entry_point(core, slot) {
                    Ok(true) => return,
                    other => other,
                },
                JobStep::Call => {
                    // The core runs one job; the others wait.
                    if self.slots[core].active.is_some() || self.slots[core].at_end.is_some() {
                        return;
                    }
                    // Ticks of entry points that ran beside another job are spent first: they are work, too.
                    if self.spend(core, slot) {
                        return;
                    }
                    match self.begin(core, slot) {
                        Ok(()) => return,
                        Err(error) => Err(error),
                    }
                }
            };
            match done {
                Ok(false) => {}
                Ok(true) => self.on(core, slot).ended = Some(Ok(())),
                Err(error) => self.on(core, slot).ended = Some(Err(error)),
            }
        }
    }

    fn on(&mut self, core: usize, slot: usize) -> &mut SlotJob<'s, 'p> {
        self.slots[core].slots[slot].as_mut().expect("a slot with a job")
    }

    /// A job is over: once nothing is in flight for it, it goes back to the agenda.
    fn end_slot(&mut self, core: usize, slot: usize) {
        if self.slots[core].active == Some(slot) {
            self.slots[core].active = None;
            self.set_state(core, CoreState::Idle);
        }
        let on = self.on(core, slot);
        if on.pending == 0 {
            let on = self.slots[core].slots[slot].take().expect("a slot with a job");
            match on.ended.expect("an outcome") {
                Ok(()) => self.agenda.done(on.job),
                Err(error) => self.agenda.fail(on.job, error),
            }
            if self.slots[core].slots.iter().all(Option::is_none) {
                self.clock.with(|state| state.machine.occupy(core as u32, false));
            }
        } else {
            let jobs: Vec<SpaceJobId> = on.feeds.iter().filter_map(InputFeed::core_job).collect();
            for job in jobs.into_iter().filter(|job| self.moving.contains_key(job)) {
                self.clock.with(|state| state.machine.give_up(job));
            }
        }
        let other = 1 - slot;
        let waits = self.slots[core].slots[other].as_ref().is_some_and(|on| on.ended.is_none());
        for input in 0..if waits { abi::PORTS_MAX } else { 0 } {
            self.give_credits_of(core, other, input);
        }
        if self.slots[core].active.is_none() && self.slots[core].at_end.is_none() && waits {
            self.steps(core, other);
        }
    }

    /// Begins the call of a slot's task.
    fn begin(&mut self, core: usize, slot: usize) -> Result<(), RunError> {
        let on = self.slots[core].slots[slot].as_mut().expect("a slot with a job");
        let mut call = on.job.begin_call()?.expect("a task that was fetched is called");
        let sizes: Vec<u64> = on.feeds.iter().map(|feed| feed.bytes).collect();
        let available: Vec<u64> = on.feeds.iter().map(InputFeed::available).collect();
        let half_bytes = self.cores.compute.half_bytes;
        if self.cores.compute.input == InputFrom::PingPong && sizes.iter().sum::<u64>() > half_bytes {
            let all = sizes.iter().sum::<u64>();
            return Err(RunError::Inputs(format!(
                "compute.half_size = \"{half_bytes} B\": a task of {all} B does not fit; give a smaller task_bytes"
            )));
        }
        for (number, &bytes) in sizes.iter().enumerate() {
            if call.input_mut(number).room() > 0 {
                let all = &on.job.input(number)[..bytes as usize];
                call.input_mut(number).push(all);
            }
        }
        let feed = self.feed(&sizes, &available);
        let meter = meter(&mut call);
        meter.set_feed(feed);
        let (before, tick) = (meter.report(), meter.ticks());
        let ports = abi::PORTS_MAX;
        let (drains, drained) = (vec![VecDeque::new(); ports], vec![0; ports]);
        let (now, t_manage) = (self.now(), self.cores.compute.t_manage);
        let at = self.clock.with(|state| state.machine.manage(t_manage));
        self.on(core, slot).call = Some(TimedCall { call, origin: (at, tick), before, drains, drained });
        self.slots[core].active = Some(slot);
        for input in 0..sizes.len() {
            self.give_credits(core, slot, input);
        }
        self.set_state(core, CoreState::Assigned);
        if at > now {
            self.hold(core, at, AtEnd::Resume);
        } else {
            self.run(core);
        }
        Ok(())
    }

    /// The feed of a task whose inputs have these sizes, of which so much is there, with places for its windows.
    fn feed(&mut self, sizes: &[u64], available: &[u64]) -> TaskFeed {
        let compute = &self.cores.compute;
        let unit = if compute.input == InputFrom::PingPong { 0 } else { self.cores.page_bytes };
        let mut feed = TaskFeed::default();
        feed.output_unit = unit;
        for (number, (&bytes, &there)) in sizes.iter().zip(available).enumerate() {
            let mut gate = InputGate::new(bytes, unit);
            gate.arrived = there;
            feed.inputs.push(gate);
            feed.place(abi::input_window(number), Some(number), self.next_window);
            self.next_window += bytes.next_multiple_of(PAGE) + PAGE;
        }
        for number in 0..abi::PORTS_MAX {
            feed.place(abi::output_window(number), None, self.next_window);
            self.next_window += abi::WINDOW_BYTES + PAGE;
        }
        feed
    }

    fn set_state(&mut self, core: usize, state: CoreState) {
        let now = self.now();
        let slots = &mut self.slots[core];
        let (before, since) = (slots.state, slots.since);
        if before == state {
            return;
        }
        (slots.state, slots.since) = (state, now);
        if before != CoreState::Idle {
            self.clock.with(|clock| clock.machine.core_state(core as u32, since, now, before.name()));
        }
    }

    fn hold(&mut self, core: usize, until: Ps, then: AtEnd) {
        self.slots[core].at_end = Some(then);
        self.clock.with(|state| state.machine.hold(core as u32, until));
    }

    fn active(&mut self, core: usize) -> (usize, &mut SlotJob<'s, 'p>) {
        let slot = self.slots[core].active.expect("a core with a call");
        (slot, self.on(core, slot))
    }

    /// Runs a core to its next need; the machine says when that time has come.
    fn run(&mut self, core: usize) {
        let (now, tick_time) = (self.now(), self.cores.tick());
        // A core that runs has waited for nothing since it stopped: a grant has counted its wait for lines, and if its
        // own ticks are behind the time of its request, it still has to issue the access, hazards included.
        let waited = self.slots[core].state != CoreState::Running;
        self.set_state(core, CoreState::Running);
        let (_, on) = self.active(core);
        let stop = on.job.stop();
        let timed = on.call.as_mut().expect("a call that is under way");
        let here = timed.tick_of(now, tick_time);
        let meter_now = meter(&mut timed.call);
        if waited && here > meter_now.ticks() {
            meter_now.wait_until(here);
        }
        let before = timed.call.instructions();
        let advance = timed.call.run(Some(SLICE), stop);
        let executed = timed.call.instructions() - before;
        let (tick, then) = match advance {
            Advance::Done(result) => (meter(&mut timed.call).ticks(), AtEnd::Over(result)),
            Advance::OutOfBudget => (meter(&mut timed.call).ticks(), AtEnd::Slice),
            Advance::Paused => {
                let (tick, need) = meter(&mut timed.call).need();
                (tick, AtEnd::Need(need))
            }
            Advance::WaitInput { input } => {
                (meter(&mut timed.call).ticks(), AtEnd::Over(Err(timed.call.starved(input))))
            }
            Advance::WaitOutput { output } => {
                let error = RunError::Worker(format!("output {output} waits for room, and has got all of it"));
                (meter(&mut timed.call).ticks(), AtEnd::Over(Err(error)))
            }
        };
        let until = timed.time_of(tick, tick_time).max(now);
        self.slots[core].at_end = Some(then);
        self.clock.with(|state| {
            state.programs.instructions += executed;
            state.machine.work(core as u32, until.since(now));
        });
    }

    /// The time has come up to which a core has run, or was held.
    fn core_free(&mut self, core: usize) {
        match self.slots[core].at_end.take().expect("a core that worked has something to do next") {
            AtEnd::Slice | AtEnd::Resume => self.run(core),
            AtEnd::Over(result) => self.call_over(core, result),
            AtEnd::Leftover => {
                self.set_state(core, CoreState::Idle);
                self.clock.with(|state| state.machine.occupy(core as u32, false));
            }
            AtEnd::Settled => {
                let slot = self.slots[core].active.take().expect("an entry point has a job");
                self.set_state(core, CoreState::Idle);
                self.steps(core, slot);
                let other = 1 - slot;
                let waits = self.slots[core].slots[other].as_ref().is_some_and(|on| on.ended.is_none());
                if self.slots[core].active.is_none() && self.slots[core].at_end.is_none() && waits {
                    self.steps(core, other);
                }
            }
            AtEnd::Need(CoreNeed::Lines(lines)) => {
                let tick_time = self.cores.tick();
                let line = u64::from(self.cores.core.l2.or(self.cores.core.l1d).map_or(64, |cache| cache.line_bytes));
                let book = |clock: &Clock| clock.with(|state| state.machine.line(line));
                let there = lines.wanted.iter().map(|_| book(self.clock)).max();
                let coming: Vec<(u64, Ps)> = lines.prefetches.iter().map(|&at| (at, book(self.clock))).collect();
                for _ in lines.write_backs.iter().chain(&lines.code) {
                    book(self.clock);
                }
                let (_, on) = self.active(core);
                let timed = on.call.as_mut().expect("a call that needs lines");
                let tick = |time: Ps| timed.tick_of(time, tick_time).max(lines.at);
                let (granted, coming) = (
                    there.map_or(lines.at, tick),
                    coming.into_iter().map(|(at, time)| (at, tick(time))).collect::<Vec<_>>(),
                );
                let meter = meter(&mut timed.call);
                coming.into_iter().for_each(|(at, tick)| meter.prefetched(at, tick));
                meter.grant(granted);
                self.run(core);
            }
            AtEnd::Need(CoreNeed::Input { input, until }) => self.needs_input(core, input, until),
            AtEnd::Need(CoreNeed::Taken { input, bytes }) => {
                let (slot, on) = self.active(core);
                on.feeds[input].taken(bytes);
                self.give_credits(core, slot, input);
                self.run(core);
            }
            AtEnd::Need(CoreNeed::Stored { output, bytes }) => self.stored(core, output, bytes),
        }
    }

    /// A core needs bytes of an input: they are there by now, or it waits.
    fn needs_input(&mut self, core: usize, input: usize, until: u64) {
        let rules = self.rules(core);
        let (slot, on) = self.active(core);
        if on.feeds[input].available() >= until {
            return self.run(core);
        }
        if on.feeds[input].available() < until && on.pending == 0 {
            let timed = on.call.as_ref().expect("a call that needs bytes");
            let starved = timed.call.starved(input);
            return self.call_over(core, Err(starved));
        }
        if !on.feeds[input].reaches(until, &rules) {
            let at = on.feeds[input].taken_bytes();
            let starved = on.call.as_ref().expect("a call that needs bytes").call.starved(input);
            return self.call_over(core, Err(too_far(&starved, (at, until), &rules)));
        }
        self.give_credits(core, slot, input);
        self.slots[core].parked = Some((input, until));
        self.set_state(core, CoreState::WaitsForInput);
    }

    /// A core has stored whole pages of an output: they are drained, and it goes on if there is room for the next.
    fn stored(&mut self, core: usize, output: usize, bytes: u64) {
        let now = self.now();
        let (pages, t_request) = (self.cores.compute.pages as usize, self.cores.compute.t_request);
        let (_, on) = self.active(core);
        let timed = on.call.as_mut().expect("a call that stores");
        let more = bytes - timed.drained[output];
        timed.drained[output] = bytes;
        let end = self.clock.with(|state| {
            state.machine.manage(t_request);
            state.machine.drain_output(core as u32, more)
        });
        let (_, on) = self.active(core);
        let timed = on.call.as_mut().expect("a call that stores");
        let drains = &mut timed.drains[output];
        drains.push_back(end);
        while drains.front().is_some_and(|&end| end <= now) {
            drains.pop_front();
        }
        if drains.len() < pages.max(2) {
            return self.run(core);
        }
        let first = drains.pop_front().expect("drains that are under way");
        self.set_state(core, CoreState::WaitsForRoom);
        self.hold(core, first, AtEnd::Resume);
    }

    fn rules(&self, core: usize) -> FeedRules {
        let slot = self.slots[core].active.expect("a core with a call");
        self.rules_of(core, slot)
    }

    fn rules_of(&self, core: usize, slot: usize) -> FeedRules {
        let compute = &self.cores.compute;
        let on = self.slots[core].slots[slot].as_ref().expect("a slot with a job");
        let streams = on.job.is_streamed();
        let (page_bytes, read_ahead) = (self.cores.page_bytes, compute.read_ahead as usize);
        FeedRules { from: compute.input, streams, page_bytes, read_ahead }
    }

    /// Gives the last leg of an input the credits that it may have; the firmware requests the pages. A core's buffers
    /// are one job's, and what they have left the next one's: its pages come behind all pages of the first, unless it
    /// runs before it.
    fn give_credits(&mut self, core: usize, slot: usize, input: usize) {
        let (age, runs) = (self.on(core, slot).age, self.slots[core].active == Some(slot));
        let other = self.slots[core].slots[1 - slot].as_ref();
        let (older, younger) = other.map_or((None, false), |on| {
            let before = on.age < age && !runs && !on.is_fed && on.ended.is_none();
            (before.then(|| on.feeds.get(input).map_or((0, true), InputFeed::holds)), on.age > age)
        });
        match older {
            None => self.give(core, slot, input, 0),
            Some((held, true)) => self.give(core, slot, input, held),
            Some((_, false)) => {}
        }
        let on = self.on(core, slot);
        if younger && (on.is_fed || on.feeds.get(input).is_none_or(|feed| feed.holds().1)) {
            self.give_credits_of(core, 1 - slot, input);
        }
    }

    /// The same of a slot's job if it has such an input.
    fn give_credits_of(&mut self, core: usize, slot: usize, input: usize) {
        if self.slots[core].slots[slot].as_ref().is_some_and(|on| input < on.feeds.len() && on.ended.is_none()) {
            self.give_credits(core, slot, input);
        }
    }

    fn give(&mut self, core: usize, slot: usize, input: usize, held: usize) {
        let (rules, t_request) = (self.rules_of(core, slot), self.cores.compute.t_request);
        let feed = &mut self.on(core, slot).feeds[input];
        let Some(job) = feed.core_job() else { return };
        let pages = feed.credits(&rules, held);
        if pages > 0 {
            self.clock.with(|state| {
                let at = state.machine.manage(t_request * pages);
                state.machine.credit(at, job, pages);
            });
        }
    }

    /// A page of a job has arrived, or all of it.
    fn arrived(&mut self, id: SpaceJobId, page: Option<usize>) {
        let Some(&why) = self.moving.get(&id) else { return };
        if page.is_none() {
            self.moving.remove(&id);
        }
        let MoveFor::Input(core, slot, input) = why else { return };
        let on = self.on(core, slot);
        match page {
            Some(page) => on.feeds[input].arrives(id, page),
            None => {
                on.pending -= 1;
                on.feeds[input].ends(id);
            }
        }
        if on.ended.is_some() {
            if on.pending == 0 {
                self.end_slot(core, slot);
            }
            return;
        }
        self.give_credits(core, slot, input);
        let on = self.on(core, slot);
        let available = on.feeds[input].available();
        if let Some(timed) = &mut on.call {
            meter(&mut timed.call).feed_mut().inputs[input].arrived = available;
        }
        let parked = self.slots[core].parked;
        if self.slots[core].active == Some(slot) && parked.is_some_and(|(at, until)| at == input && available >= until)
        {
            self.slots[core].parked = None;
            self.run(core);
        }
    }

    /// A call is over: its figures are counted, what is left in its buffers is drained, and its job goes on.
    fn call_over(&mut self, core: usize, result: Result<Vec<u64>, RunError>) {
        let (slot, on) = self.active(core);
        let mut timed = on.call.take().expect("a call that is over");
        let after = meter(&mut timed.call).report();
        let direct = self.cores.core.l1d.is_none() || timed.drained.iter().any(|&bytes| bytes > 0);
        let mut left = 0;
        if let Ok(used) = &result {
            left = used.iter().zip(&timed.drained).map(|(used, drained)| used.saturating_sub(*drained)).sum::<u64>();
        }
        let t_manage = self.cores.compute.t_manage;
        self.clock.with(|state| {
            state.programs.timed(&timed.before, &after);
            state.machine.manage(t_manage);
            if direct && left > 0 {
                state.machine.drain_output(core as u32, left);
            }
        });
        self.on(core, slot).is_fed = true;
        for input in 0..abi::PORTS_MAX {
            self.give_credits_of(core, 1 - slot, input);
        }
        let done = self.on(core, slot).job.end_call(timed.call, result);
        self.slots[core].active = None;
        self.set_state(core, CoreState::Idle);
        if let Err(error) = done {
            self.on(core, slot).ended = Some(Err(error));
        }
        self.steps(core, slot);
    }

    /// Reads a job's inputs from the engine, and submits the jobs that bring them.
    fn fetch(&mut self, core: usize, slot: usize) -> Result<(), RunError> {
        let on = self.on(core, slot);
        let read = on.job.fetch();
        let trace = self.clock.recorder.take();
        let external = read?;
        let rules = self.rules_of(core, slot);
        let on = self.on(core, slot);
        let inputs = on.job.inputs();
        let host: u64 =
            inputs.iter().map(|input| if let InputLocation::Host(bytes) = input { *bytes } else { 0 }).sum();
        self.clock.with(|state| {
            state.programs.stored_bytes += external - host;
            state.programs.host_bytes += host;
        });
        let feeds = InputFeed::of(&rules, &inputs, &trace);
        self.on(core, slot).fetched = !inputs.is_empty();
        if inputs.is_empty() && trace != FlashTrace::default() {
            // Whole inputs and the search for records: they stay in DRAM, and the run waits for them at its end.
            self.submit(SpaceJobKind::Input, trace, MoveFor::Out);
        }
        for (input, (feed, legs)) in feeds.into_iter().enumerate() {
            self.on(core, slot).feeds.push(feed);
            for leg in legs {
                let why = MoveFor::Input(core, slot, input);
                let target = core as u32;
                let (id, is_last) = match leg {
                    Leg::IntoDram(trace) => (self.submit(SpaceJobKind::Input, trace, why), false),
                    Leg::OverLink(bytes) => {
                        let blocks = vec![BlockOps { ops_end: 0, runs: 1, bytes }];
                        let trace = FlashTrace { blocks, ..FlashTrace::default() };
                        (self.submit(SpaceJobKind::Write, trace, why), false)
                    }
                    Leg::FlashToCore(trace) => (self.submit(SpaceJobKind::Stream { core: target }, trace, why), true),
                    Leg::DramToCore(trace) => (self.submit(SpaceJobKind::Feed { core: target }, trace, why), true),
                };
                let on = self.on(core, slot);
                on.pending += 1;
                if is_last { on.feeds[input].set_core_job(id) } else { on.feeds[input].set_dram_job(id) }
            }
            self.give_credits(core, slot, input);
        }
        Ok(())
    }

    /// Delivers an output: over the link, or into the flash.
    fn deliver(&mut self, core: usize, slot: usize) -> Result<(), RunError> {
        let on = self.slots[core].slots[slot].as_mut().expect("a slot with a job");
        let delivered = on.job.deliver(self.sink);
        let trace = self.clock.recorder.take();
        let Delivery { sink, is_stored, bytes, .. } = delivered?;
        if sink.is_some() && !is_stored && bytes > 0 {
            self.clock.with(|state| state.programs.result_bytes += bytes);
            let blocks = vec![BlockOps { ops_end: 0, runs: 1, bytes }];
            self.submit(SpaceJobKind::Read, FlashTrace { blocks, ..FlashTrace::default() }, MoveFor::Out);
        }
        if is_stored {
            self.clock.with(|state| state.programs.written_bytes += bytes);
        }
        if trace != FlashTrace::default() {
            self.submit(SpaceJobKind::Output, trace, MoveFor::Out);
        }
        Ok(())
    }
}

impl TimedCall<'_> {
    /// The time of a tick.
    fn time_of(&self, tick: u64, tick_time: Ps) -> Ps {
        let (time, origin) = self.origin;
        time + tick_time * tick.checked_sub(origin).expect("a call is behind its beginning")
    }

    /// The first tick that begins at a time or behind it.
    fn tick_of(&self, time: Ps, tick_time: Ps) -> u64 {
        let (began, origin) = self.origin;
        origin + time.since(began).0.div_ceil(tick_time.0)
    }
}

/// A program that looks farther ahead than its stream buffer reaches: its core would wait for ever.
fn too_far(starved: &RunError, (at, until): (u64, u64), rules: &FeedRules) -> RunError {
    let (pages, page) = (rules.read_ahead, rules.page_bytes);
    RunError::Inputs(format!(
        "{starved}: compute.read_ahead = {pages}: byte {until} is needed while the core is in the page of byte {at}; \
         its stream buffer holds {pages} pages of {page} B. Look less far ahead, or give it more pages"
    ))
}

/// The meter of a call on a timed core.
fn meter<'c>(call: &'c mut Call<'_>) -> &'c mut TimedCore {
    call.meter().expect("a call on a timed core has its meter")
}
