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

use std::collections::VecDeque;

use nandarray_cores::{Advance, RunError, abi};
use nandarray_runtime::{Delivery, InputLocation, Job, JobKind, JobStep, Next};
use nandarray_uarch::{CoreNeed, InputGate, InputPath, TaskFeed};

use super::Clock;
use super::connections::Connections;
use super::crew::{CrewEvent, RunCrew};
use super::feeds::{FeedRules, InputFeed, Leg};
use super::timed_cores::TimedCores;
use crate::flash_trace::FlashTrace;
use crate::machine::{SpaceJobId, SpaceJobKind};
use nandarray_describe::words;
use nandarray_sim::Ps;

mod call;
mod pipes;

use call::{TimedCall, meter, too_far};

/// Number of instructions after which a core that needs nothing shared returns to the event loop.
const SLICE: u64 = 1 << 20;
/// Alignment in DRAM of windows, the ranges of memory that hold a task's inputs and outputs.
const PAGE: u64 = 4096;
/// First address in DRAM of windows.
const WINDOWS: u64 = 1 << 33;

words! {
    /// State of a core as its firmware sees and manages it (Zou, dissertation, 2023, Figure 7.7).
    enum CoreState {
        /// The core has no program, or the first page of its input has not arrived.
        Idle = "idle",
        /// The firmware is setting up the core.
        Assigned = "assigned",
        /// The core executes, up to a known time.
        Running = "run",
        /// The core waits for a page of an input.
        WaitsForInput = "wait for input",
        /// The core waits for room for an output.
        WaitsForRoom = "wait for room",
    }
}

/// Action to take when modelled time reaches the moment up to which a core has run, or was made to wait.
#[derive(Debug)]
enum AtEnd {
    /// Serve the core's need of something that it shares with other cores.
    Need(CoreNeed),
    /// Run the core on: it has executed the most instructions that it may at a time.
    Slice,
    /// End the core's call, which has this result.
    Over(Result<Vec<u64>, RunError>),
    /// Run the core on: it has waited for room, or was set up.
    Resume,
    /// Store again this number of bytes of an output that another core reads: the core has waited for room for them.
    Retry(usize, u64),
    /// Continue the job whose entry point has ended; entry points run without interruption.
    Settled,
    /// Return the core: at the end of the run it has spent the ticks of entry points of jobs that were over.
    Leftover,
}

/// A job of the run in one of a core's two slots.
struct SlotJob<'s, 'p> {
    job: Job<'s, 'p>,
    call: Option<TimedCall<'p>>,
    feeds: Vec<InputFeed>,
    /// Whether the inputs of the job's task were requested.
    fetched: bool,
    /// Number of the job in order of assignment; pages of older jobs go first.
    age: u64,
    /// Whether the job's call has ended, so that it needs no more pages.
    is_fed: bool,
    /// Number of jobs of the machine in flight that move data for this job.
    pending: u32,
    /// The outcome of the job, kept while data for the job is still in flight; `None` while the job goes on.
    ended: Option<Result<(), RunError>>,
}

struct CoreSlots<'s, 'p> {
    slots: [Option<SlotJob<'s, 'p>>; 2],
    /// The slot whose job runs; `None` if neither does.
    active: Option<usize>,
    state: CoreState,
    since: Ps,
    at_end: Option<AtEnd>,
    /// The input, and the number of its first bytes, for whose arrival the core waits; `None` if it waits for no input.
    parked: Option<(usize, u64)>,
    /// Ticks of entry points whose bytes were computed at once, and for which the core has not been booked yet.
    debt: u64,
}

/// The purpose of a job of the machine: it brings an input of a slot's job.
#[derive(Clone, Copy, Debug)]
pub(super) struct BringsInput {
    core: usize,
    slot: usize,
    input: usize,
}

pub(super) struct TimedRun<'r, 's, 'p> {
    crew: RunCrew<'r, 's, 'p, BringsInput>,
    clock: &'r Clock,
    cores: &'r TimedCores,
    slots: Vec<CoreSlots<'s, 'p>>,
    /// First address in the modelled DRAM that no window (a task's input or output) has yet.
    next_window: u64,
    /// Number of jobs that were assigned so far.
    jobs: u64,
    /// Whether there may be a job to assign: anything but a core's own execution has happened since the last search.
    may_assign: bool,
    /// Outputs whose pages go from core to core.
    connections: Connections,
}

impl<'r, 's, 'p> TimedRun<'r, 's, 'p> {
    pub(super) fn new(cores: &'r TimedCores, crew: RunCrew<'r, 's, 'p, BringsInput>) -> Self {
        let clock = crew.clock;
        let since = clock.with(|state| state.machine.now());
        let idle = || CoreSlots {
            slots: [None, None],
            active: None,
            state: CoreState::Idle,
            since,
            at_end: None,
            parked: None,
            debt: 0,
        };
        let slots = (0..cores.compute.cores).map(|_| idle()).collect();
        let connections = Connections::of(crew.agenda.stages(), cores);
        Self { crew, clock, cores, slots, next_window: WINDOWS, jobs: 0, may_assign: true, connections }
    }

    fn now(&self) -> Ps {
        self.clock.with(|state| state.machine.now())
    }

    /// Executes all jobs of the run.
    pub(super) fn all(&mut self) {
        let mut over = false;
        loop {
            if std::mem::replace(&mut self.may_assign, false) {
                over = self.fill();
            }
            let is_free = |core: &CoreSlots<'_, '_>| core.slots.iter().all(Option::is_none);
            if over && self.crew.has_arrived() && self.slots.iter().all(is_free) {
                self.spend_leftovers();
                if self.slots.iter().all(|core| core.at_end.is_none()) {
                    return;
                }
            }
            let event = self.crew.next_event();
            // Lines of memory are all that the core gets, and the agenda knows nothing of them.
            let is_line = |core: usize| matches!(self.slots[core].at_end, Some(AtEnd::Need(CoreNeed::Lines(_))));
            self.may_assign = !matches!(event, Some(CrewEvent::CoreFree(core)) if is_line(core));
            match event {
                Some(CrewEvent::CoreFree(core)) => self.core_free(core),
                Some(CrewEvent::Arrived(id, page, to)) => self.arrived(id, page, to),
                Some(CrewEvent::Other) => {}
                None if self.spill() => {}
                None => return self.crew.stands_still(),
            }
        }
    }

    /// Assigns jobs to free slots; returns whether there are no more jobs.
    fn fill(&mut self) -> bool {
        loop {
            match self.pick() {
                (Next::Over, _) => return true,
                (Next::Wait, _) => return false,
                (Next::Job(job), core) => {
                    let slot = usize::from(self.slots[core].slots[0].is_some());
                    let is_first = self.slots[core].slots.iter().all(Option::is_none);
                    self.crew.assigned(&job);
                    if is_first {
                        self.crew.occupy(core, true);
                    }
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

    /// Executes the steps of a slot's job that are possible now.
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
                    // The core runs one job at a time; jobs in other slots wait.
                    if self.slots[core].active.is_some() || self.slots[core].at_end.is_some() {
                        return;
                    }
                    // Ticks of entry points that ran beside another job are booked first: they are work, too.
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

    /// Ends a slot's job: returns it to the agenda once no data is in flight for it. The other slot's job may continue.
    fn end_slot(&mut self, core: usize, slot: usize) {
        if self.slots[core].active == Some(slot) {
            self.slots[core].active = None;
            self.set_state(core, CoreState::Idle);
        }
        let on = self.on(core, slot);
        if on.pending == 0 {
            let on = self.slots[core].slots[slot].take().expect("a slot with a job");
            self.crew.ended(on.job, on.ended.expect("an outcome"));
            if self.slots[core].slots.iter().all(Option::is_none) {
                self.crew.occupy(core, false);
            }
        } else {
            let jobs: Vec<SpaceJobId> = on.feeds.iter().filter_map(InputFeed::core_job).collect();
            jobs.into_iter().for_each(|job| self.crew.give_up(job));
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
        let both_bytes = self.cores.core.pingpong_bytes;
        if self.cores.core.input_source == InputPath::PingPong && sizes.iter().sum::<u64>() > both_bytes / 2 {
            let all = sizes.iter().sum::<u64>();
            return Err(RunError::Inputs(format!(
                "compute.core.pingpong_bytes = {both_bytes}: a task of {all} B does not fit a half; give a smaller \
                 task_bytes"
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
        self.connections.begin(core);
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

    /// Makes the feed of a task: `sizes` and `available` are the sizes of its inputs and the bytes that have arrived,
    /// and each window gets a place in DRAM.
    fn feed(&mut self, sizes: &[u64], available: &[u64]) -> TaskFeed {
        let unit = if self.cores.core.input_source == InputPath::PingPong { 0 } else { self.cores.page_bytes };
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
        let (before, since) = (self.slots[core].state, self.slots[core].since);
        if before == state {
            return;
        }
        let now = self.now();
        (self.slots[core].state, self.slots[core].since) = (state, now);
        if before != CoreState::Idle {
            self.clock.with(|clock| clock.machine.core_state(core as u32, since, now, before.word()));
        }
    }

    fn hold(&mut self, core: usize, until: Ps, then: AtEnd) {
        self.slots[core].at_end = Some(then);
        self.crew.hold(core, until);
    }

    fn active(&mut self, core: usize) -> (usize, &mut SlotJob<'s, 'p>) {
        let slot = self.slots[core].active.expect("a core with a call");
        (slot, self.on(core, slot))
    }

    /// Runs a core until it needs something shared, and books the time; the machine reports when modelled time has
    /// reached it.
    fn run(&mut self, core: usize) {
        let (now, tick_time) = (self.now(), self.cores.tick());
        // A core in this state has not waited since it stopped: the grant of its lines has counted that wait. If the
        // core's own ticks are before the time of its request, it must still issue the access, hazards included.
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
        self.crew.work(core, executed, until.since(now));
    }

    /// Handles the moment up to which a core has run or was made to wait: takes the action of [`AtEnd`].
    fn core_free(&mut self, core: usize) {
        match self.slots[core].at_end.take().expect("a core that worked has something to do next") {
            AtEnd::Slice | AtEnd::Resume => self.run(core),
            AtEnd::Retry(output, bytes) => self.stored_in_buffers(core, output, bytes),
            AtEnd::Over(result) => self.call_over(core, result),
            AtEnd::Leftover => {
                self.set_state(core, CoreState::Idle);
                self.crew.occupy(core, false);
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
                let (there, coming) = self.clock.with(|state| {
                    let machine = &mut state.machine;
                    let there = lines.wanted.iter().map(|_| machine.line(line)).max();
                    let coming: Vec<(u64, Ps)> = lines.prefetches.iter().map(|&at| (at, machine.line(line))).collect();
                    for _ in lines.write_backs.iter().chain(&lines.code) {
                        machine.line(line);
                    }
                    (there, coming)
                });
                let (_, on) = self.active(core);
                let timed = on.call.as_mut().expect("a call that needs lines");
                let tick = |time: Ps| timed.tick_of(time, tick_time).max(lines.at);
                let granted = there.map_or(lines.at, tick);
                let coming: Vec<(u64, u64)> = coming.into_iter().map(|(at, time)| (at, tick(time))).collect();
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

    /// Continues a core that needs the first `until` bytes of an input; if they have not arrived, the core waits.
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

    /// Transfers the whole pages that a core stored in an output to DRAM; the core waits unless its buffer has room for
    /// more.
    fn stored(&mut self, core: usize, output: usize, bytes: u64) {
        let (_, on) = self.active(core);
        let of = (on.job.stage(), output);
        if self.connections.is_connected(of) {
            return self.stored_in_buffers(core, output, bytes);
        }
        let now = self.now();
        let (pages, t_request) = (self.cores.core.stream_pages as usize, self.cores.compute.t_request);
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
        FeedRules { from: self.cores.core.input_source, streams, page_bytes, read_ahead }
    }

    /// Grants the credits that an input's pages may have now; the firmware requests these pages. A core's two jobs
    /// share its buffers: the pages of the younger job come after all pages of the older one, unless the younger runs
    /// first.
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

    /// Grants credits as [`Self::give_credits`], if the slot has a job with such an input.
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
        if let Some((of, ranges)) = feed.connected(pages) {
            return self.send(job, of, &ranges);
        }
        if pages > 0 {
            self.clock.with(|state| {
                let at = state.machine.manage(t_request * pages);
                state.machine.credit(at, job, pages);
            });
        }
    }

    /// Handles the arrival of a page of a machine's job; `None` stands for the job's end, when all of it has arrived.
    fn arrived(&mut self, id: SpaceJobId, page: Option<usize>, to: BringsInput) {
        let BringsInput { core, slot, input } = to;
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

    /// Handles the end of a call: counts its figures, transfers the rest of its output buffers, and continues its job.
    fn call_over(&mut self, core: usize, result: Result<Vec<u64>, RunError>) {
        let (slot, on) = self.active(core);
        let mut timed = on.call.take().expect("a call that is over");
        let after = meter(&mut timed.call).report();
        let stage = on.job.stage();
        let JobKind::Task { number, .. } = on.job.kind() else { unreachable!("a call of a task") };
        self.connections.end(core, (stage, number), result.as_deref().ok());
        let direct = self.cores.core.l1d.is_none() || timed.drained.iter().any(|&bytes| bytes > 0);
        let mut left = 0;
        if let Ok(used) = &result {
            let through_dram = |output: &usize| !self.connections.is_held((stage, *output), number, core);
            let left_of = |output: usize| used[output].saturating_sub(timed.drained[output]);
            left = (0..used.len()).filter(through_dram).map(left_of).sum::<u64>();
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

    /// Reads a job's inputs from the engine, and submits the machine's jobs that bring them to the core.
    fn fetch(&mut self, core: usize, slot: usize) -> Result<(), RunError> {
        let on = self.slots[core].slots[slot].as_mut().expect("a slot with a job");
        let (mut inputs, trace, _) = self.crew.fetch(&mut on.job)?;
        let rules = self.rules_of(core, slot);
        for input in &mut inputs {
            match *input {
                InputLocation::Queued { stage, output, bytes, .. }
                    if !self.connections.is_connected((stage, output)) =>
                {
                    *input = InputLocation::Here(bytes);
                }
                _ => {}
            }
        }
        let feeds = InputFeed::of(&rules, &inputs, &trace);
        self.on(core, slot).fetched = !inputs.is_empty();
        if inputs.is_empty() && trace != FlashTrace::default() {
            // Whole inputs, and those searched for records, stay in DRAM; the run waits for them at its end.
            self.crew.submit(SpaceJobKind::Input, trace, None);
        }
        for (input, (feed, legs)) in feeds.into_iter().enumerate() {
            self.on(core, slot).feeds.push(feed);
            for leg in legs {
                let (crew, to) = (&mut self.crew, Some(BringsInput { core, slot, input }));
                let target = core as u32;
                let (id, is_last) = match leg {
                    Leg::IntoDram(trace) => (crew.submit(SpaceJobKind::Input, trace, to), false),
                    Leg::OverLink(bytes) => (crew.submit_bytes(SpaceJobKind::Write, bytes, to), false),
                    Leg::FlashToCore(trace) => (crew.submit(SpaceJobKind::Stream { core: target }, trace, to), true),
                    Leg::CoreToCore(trace) => (crew.submit(SpaceJobKind::Pass { core: target }, trace, to), true),
                    Leg::DramToCore(trace) => (crew.submit(SpaceJobKind::Feed { core: target }, trace, to), true),
                };
                let on = self.on(core, slot);
                on.pending += 1;
                if is_last { on.feeds[input].set_core_job(id) } else { on.feeds[input].set_dram_job(id) }
            }
            self.give_credits(core, slot, input);
        }
        Ok(())
    }

    /// Delivers an output of a job over the link, or into the flash.
    fn deliver(&mut self, core: usize, slot: usize) -> Result<(), RunError> {
        let on = self.slots[core].slots[slot].as_mut().expect("a slot with a job");
        let Delivery { task, output, bytes, .. } = self.crew.deliver(&mut on.job)?;
        let stage = on.job.stage();
        self.connections.delivered((stage, output), task, bytes);
        Ok(())
    }
}
