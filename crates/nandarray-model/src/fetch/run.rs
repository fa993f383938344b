//! The event loop: tasks on warps, groups of accesses, and fetches for which several tasks wait.
//!
//! Devices have event loops of their own; the earliest event of all is always handled next, so that no event lies in
//! the past. A task executes one group at a time: the group's atomics are booked on their slices, its fetches are
//! started or waited for, and the next group begins when the last of them has arrived. A phase begins when all tasks of
//! the previous phase have ended.

use nandarray_sim::{Events, Ps, Resource};

use super::drives::{BankRequest, DriveBank};
use super::platform::FetchPlatform;
use super::recording::{AccessRecord, FetchRecording, TouchKind};
use super::results::FetchReport;
use crate::describe::Description;

/// State of a fetch.
#[derive(Clone, Debug, PartialEq)]
enum FetchState {
    /// No task has needed the fetch yet.
    Recorded,
    /// The fetch is in progress; the warps of this list wait for it.
    UnderWay(Vec<u32>),
    /// The fetch has ended: its bytes are in memory, or on the device.
    Ready,
}

#[derive(Clone, Copy, Debug)]
enum FetchEvent {
    /// The next phase is launched.
    Launch,
    /// The next group of this warp's task begins.
    Group(u32),
    /// One of the parts for which this warp's group waits has ended.
    Part(u32),
    /// This fetch's request is submitted.
    Start(u32),
    /// The doorbell is rung for this request.
    Ring(u32),
    /// The entry of this request has arrived at its device, at the end of the shared link.
    Arrive(u32),
    /// The data of this write request has arrived at its device, after the request's entry.
    Data(u32),
    /// The completion of this request has been found by polling.
    Land(u32),
}

/// A warp, which executes one task at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Warp {
    /// Index of the next access of the warp's task.
    next: u32,
    /// Index after the last access of the warp's task.
    end: u32,
    /// Number of parts (its instructions and its fetches) for which the warp's group still waits.
    parts: u32,
}

struct FetchRun<'a> {
    platform: &'a FetchPlatform,
    recording: &'a FetchRecording,
    phases: Vec<Vec<(u32, u32)>>,
    phase: usize,
    /// Number of the phase's tasks that have been assigned to warps.
    given: usize,
    /// Number of the phase's tasks that are assigned and have not ended.
    busy: usize,
    warps: Vec<Warp>,
    fetches: Vec<FetchState>,
    requests: Vec<Option<BankRequest>>,
    bank: DriveBank,
    events: Events<FetchEvent>,
    slices: Resource<()>,
    queues: Resource<()>,
    cpu: Option<Resource<()>>,
    report: FetchReport,
    in_flight: u64,
    flight_ps: u128,
    flight_at: Ps,
    latency_ps: u128,
}

fn ns(t: f64) -> Ps {
    Ps((t * 1e3).round() as u64)
}

/// Replays a recording on a platform with these devices.
///
/// # Errors
/// A message: the platform or a device is invalid, or a fetch does not fit on a device.
///
/// # Panics
/// If the run is inconsistent, which is a defect of the model.
pub fn run_fetches(
    devices: &[Description],
    platform: &FetchPlatform,
    recording: &FetchRecording,
    seed: u64,
) -> Result<FetchReport, String> {
    if let Some(problem) = platform.problem() {
        return Err(problem);
    }
    let bank = DriveBank::new(devices, platform, seed)?;
    bank.check_sizes(&recording.bytes)?;
    let pairs = platform.queue_pairs * bank.devices() as u32;
    let run = FetchRun {
        platform,
        recording,
        phases: recording.phases(),
        phase: 0,
        given: 0,
        busy: 0,
        warps: vec![Warp::default(); platform.resident_tasks],
        fetches: vec![FetchState::Recorded; recording.addresses.len()],
        requests: vec![None; recording.addresses.len()],
        bank,
        events: Events::default(),
        slices: Resource::new(platform.atomic_slices, |_| ()),
        queues: Resource::new(pairs, |_| ()),
        cpu: (platform.cpu_threads > 0).then(|| Resource::new(platform.cpu_threads, |_| ())),
        report: FetchReport::default(),
        in_flight: 0,
        flight_ps: 0,
        flight_at: Ps::ZERO,
        latency_ps: 0,
    };
    Ok(run.run())
}

impl FetchRun<'_> {
    fn run(mut self) -> FetchReport {
        if !self.phases.is_empty() {
            self.events.push(Ps::ZERO, FetchEvent::Launch);
        }
        let mut ended = Vec::new();
        let mut last = Ps::ZERO;
        loop {
            let device = self.bank.next();
            match (self.events.next_at(), device) {
                (Some(at), device) if device.is_none_or(|(_, d)| at <= d) => {
                    let (now, event) = self.events.pop().expect("an event is next");
                    last = now;
                    self.handle(now, event);
                }
                (_, Some((device, at))) => {
                    self.bank.step(device, &mut ended);
                    for io in ended.drain(..) {
                        self.returned(at, io);
                    }
                }
                (_, None) => break,
            }
        }
        self.finish(last)
    }

    fn handle(&mut self, now: Ps, event: FetchEvent) {
        match event {
            FetchEvent::Launch => self.launch(now),
            FetchEvent::Group(warp) => self.group(now, warp),
            FetchEvent::Part(warp) => self.part(now, warp),
            FetchEvent::Start(fetch) => self.start(now, fetch),
            FetchEvent::Ring(io) => {
                let arrives = self.bank.entry(now);
                self.events.push(arrives, FetchEvent::Arrive(io));
            }
            FetchEvent::Arrive(io) | FetchEvent::Data(io) => {
                let request = self.requests[io as usize].expect("a request that was submitted");
                if request.write && matches!(event, FetchEvent::Arrive(_)) {
                    let at = self.bank.data(now, &request);
                    self.events.push(at, FetchEvent::Data(io));
                } else {
                    self.bank.submit(now, io, &request);
                }
            }
            FetchEvent::Land(io) => self.land(now, io),
        }
    }

    fn launch(&mut self, now: Ps) {
        (self.given, self.busy) = (0, 0);
        for warp in 0..self.warps.len() as u32 {
            self.take(now, warp);
        }
    }

    /// Assigns the phase's next task to a warp. If no task is left and this warp was the last to end, launches the next
    /// phase.
    fn take(&mut self, now: Ps, warp: u32) {
        let tasks = &self.phases[self.phase];
        if let Some(&(next, end)) = tasks.get(self.given) {
            self.given += 1;
            self.busy += 1;
            self.warps[warp as usize] = Warp { next, end, parts: 0 };
            self.events.push(now, FetchEvent::Group(warp));
        } else if self.busy == 0 && self.given == tasks.len() {
            // Happens once per phase: afterwards `given` exceeds the number of tasks.
            self.given += 1;
            self.report.phase_ends_s.push(now.seconds());
            self.phase += 1;
            if self.phase < self.phases.len() {
                self.events.push(now + ns(self.platform.t_phase_ns), FetchEvent::Launch);
            }
        }
    }

    /// Books the atomics of a warp's next group, and starts or waits for its fetches.
    fn group(&mut self, now: Ps, warp: u32) {
        let Warp { next, end, .. } = self.warps[warp as usize];
        let group = self.recording.accesses[next as usize].group;
        let mut at = next;
        let mut done = now + ns(self.platform.t_group_ns);
        let mut parts = 1;
        self.report.groups += 1;
        while at < end && self.recording.accesses[at as usize].group == group {
            let access = self.recording.accesses[at as usize];
            let ready = self.atomics(now + ns(self.platform.t_group_ns), &access);
            done = done.max(ready);
            parts += u32::from(self.access(ready, warp, &access));
            at += 1;
        }
        self.warps[warp as usize] = Warp { next: at, end, parts };
        self.events.push(done, FetchEvent::Part(warp));
    }

    fn atomics(&mut self, now: Ps, access: &AccessRecord) -> Ps {
        if access.atomics == 0 {
            return now;
        }
        self.report.atomics += u64::from(access.atomics);
        let line = self.recording.addresses[access.fetch as usize].wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let slice = (line % u64::from(self.platform.atomic_slices)) as u32;
        self.slices.book_on(slice, now, ns(self.platform.t_atomic_ns) * u64::from(access.atomics)).end
    }

    /// Starts the access's fetch unless a task has started it; returns whether the warp must wait for the fetch.
    fn access(&mut self, at: Ps, warp: u32, access: &AccessRecord) -> bool {
        self.report.touches += u64::from(access.kind == TouchKind::Touch);
        let state = &mut self.fetches[access.fetch as usize];
        match (access.kind, state) {
            (_, FetchState::Ready) => false,
            (TouchKind::WriteBehind, FetchState::UnderWay(_)) => false,
            (_, FetchState::UnderWay(sleepers)) => {
                sleepers.push(warp);
                true
            }
            (kind, state) => {
                let waits = kind != TouchKind::WriteBehind;
                *state = FetchState::UnderWay(if waits { vec![warp] } else { Vec::new() });
                let address = self.recording.addresses[access.fetch as usize];
                let bytes = self.recording.bytes[access.fetch as usize];
                let (device, offset) = self.bank.place(address, bytes);
                let write = kind != TouchKind::Touch;
                let request = BankRequest { device, write, offset, bytes, submitted: at };
                self.requests[access.fetch as usize] = Some(request);
                self.events.push(at, FetchEvent::Start(access.fetch));
                waits
            }
        }
    }

    fn part(&mut self, now: Ps, warp: u32) {
        let w = &mut self.warps[warp as usize];
        assert!(w.parts > 0, "warp {warp} waits for nothing");
        w.parts -= 1;
        if w.parts > 0 {
            return;
        }
        if w.next < w.end {
            self.events.push(now, FetchEvent::Group(warp));
            return;
        }
        self.busy -= 1;
        self.take(now, warp);
    }

    /// Submits a request: books the CPU's thread, if a CPU submits, and the queue pair's critical section, then rings
    /// the doorbell. If the device's queues are full, the request waits.
    fn start(&mut self, now: Ps, io: u32) {
        let request = self.requests[io as usize].expect("a request that was submitted");
        if !self.bank.admit(request.device, io) {
            return;
        }
        self.flight(now, 1);
        let (count, bytes) = if request.write {
            (&mut self.report.writes, &mut self.report.bytes_written)
        } else {
            (&mut self.report.reads, &mut self.report.bytes_read)
        };
        *count += 1;
        *bytes += u64::from(request.bytes);
        let p = self.platform;
        let mut at = now;
        if let Some(cpu) = &mut self.cpu {
            at = cpu.book(at, ns(p.t_cpu_ns + p.t_cpu_kib_ns * f64::from(request.bytes) / 1024.0)).end;
        }
        let pair = request.device * p.queue_pairs + io % p.queue_pairs;
        at = self.queues.book_on(pair, at, ns(p.t_enqueue_ns)).end;
        self.events.push(at, FetchEvent::Ring(io));
    }

    fn returned(&mut self, now: Ps, io: u32) {
        let request = self.requests[io as usize].expect("a request that was submitted");
        let landed = self.bank.ascend(now, &request) + ns(self.platform.t_poll_ns);
        self.events.push(landed, FetchEvent::Land(io));
    }

    fn land(&mut self, now: Ps, io: u32) {
        let request = self.requests[io as usize].expect("a request that was submitted");
        self.flight(now, -1);
        self.latency_ps += u128::from(now.since(request.submitted).0);
        if let Some(next) = self.bank.leave(request.device) {
            self.events.push(now, FetchEvent::Start(next));
        }
        let state = std::mem::replace(&mut self.fetches[io as usize], FetchState::Ready);
        let FetchState::UnderWay(sleepers) = state else { panic!("fetch {io} landed in state {state:?}") };
        for warp in sleepers {
            self.events.push(now, FetchEvent::Part(warp));
        }
    }

    fn flight(&mut self, now: Ps, by: i64) {
        self.flight_ps += u128::from(now.since(self.flight_at).0) * u128::from(self.in_flight);
        self.flight_at = now;
        self.in_flight = self.in_flight.checked_add_signed(by).expect("requests in flight are counted");
        self.report.in_flight_max = self.report.in_flight_max.max(self.in_flight);
    }

    fn finish(mut self, last: Ps) -> FetchReport {
        use crate::host::Direction;
        assert_eq!(self.phase, self.phases.len(), "a phase never ended");
        assert_eq!(self.in_flight, 0, "requests are in flight at the end");
        let left = self.fetches.iter().filter(|state| matches!(state, FetchState::UnderWay(_))).count();
        assert_eq!(left, 0, "fetches never landed");
        let requests = self.report.reads + self.report.writes;
        let share = |busy: Ps| if last == Ps::ZERO { 0.0 } else { busy.0 as f64 / last.0 as f64 };
        let busy: Vec<f64> = self.slices.busy_until(last).map(share).collect();
        let r = &mut self.report;
        r.seconds = last.seconds();
        r.in_flight_mean = if last == Ps::ZERO { 0.0 } else { self.flight_ps as f64 / last.0 as f64 };
        r.latency_mean_us = self.latency_ps as f64 / requests.max(1) as f64 * 1e-6;
        r.link_up = share(self.bank.link.busy_until(Direction::Up, last));
        r.link_down = share(self.bank.link.busy_until(Direction::Down, last));
        r.atomics_busy = busy.iter().sum::<f64>() / busy.len() as f64;
        r.atomics_busy_max = busy.iter().copied().fold(0.0, f64::max);
        r.enqueue_wait_us = self.queues.waited().us() / requests.max(1) as f64;
        r.cpu_busy = self
            .cpu
            .as_ref()
            .map_or(0.0, |cpu| cpu.busy_until(last).map(share).sum::<f64>() / f64::from(cpu.servers()));
        r.by_device.clone_from(&self.bank.by_device);
        let (events, hash) = self.bank.finish();
        r.events = events + self.events.pushed();
        r.hash = hash;
        let shares = [r.link_up, r.link_down, r.atomics_busy_max, r.cpu_busy];
        assert!(shares.iter().all(|&s| s <= 1.0 + 1e-9), "a part is busy for longer than the run: {shares:?}");
        assert_eq!(r.by_device.iter().sum::<u64>(), requests, "requests of devices");
        self.report
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
