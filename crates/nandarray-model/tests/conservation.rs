//! Promise: time, bytes, operations and energy of a modelled device add up, whatever the preset and the requests.
//!
//! The references use nothing of the model's accounts: busy times are the sums of the spans that parts report, energies
//! are products of counts and the description's values, latencies come from a sorted list, and a page-mapped device is
//! a set of the logical pages that were written. Seeds are printed with each failure.

use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use nandarray_model::describe::{self, Description};
use nandarray_model::{
    DeviceSpan, FlashAccount, IoRequest, Latencies, Latency, Machine, OpCause, OpKind, Ps, Report, ReportImbalance,
    RequestEnded, RequestList, RequestOp, RequestStatus, Track,
};
use nandarray_sim::SpanSink;

/// Spans by track, as a machine reports them.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<BTreeMap<Track, Vec<(Ps, Ps, &'static str)>>>>);

impl SpanSink<DeviceSpan> for Recorder {
    fn span(&mut self, span: DeviceSpan) {
        assert!(span.start <= span.end, "{span:?}");
        self.0.lock().unwrap().entry(span.track).or_default().push((span.start, span.end, span.what));
    }
}

impl Recorder {
    /// Returns the time of a track's spans until `now`; panics if two of them overlap although `apart` forbids it.
    fn busy(&self, track: Track, apart: bool, now: Ps) -> Ps {
        let mut spans = self.0.lock().unwrap().get(&track).cloned().unwrap_or_default();
        spans.sort_unstable();
        for pair in spans.windows(2).filter(|_| apart) {
            assert!(pair[0].1 <= pair[1].0, "{track:?} is busy twice at once: {pair:?}");
        }
        for (_, end, what) in &spans {
            assert!(*end <= now, "{track:?} is busy with {what} until {end}, after the rest at {now}");
        }
        spans.iter().map(|(start, end, _)| end.since(*start)).sum()
    }
}

/// A run of requests on a machine: what ended, and the machine at rest.
struct Run {
    machine: Machine,
    spans: Recorder,
    ended: Vec<RequestEnded>,
    latencies: Latencies,
}

impl Run {
    fn new(description: &Description, requests: &[IoRequest], depth: Option<u32>, filled: bool) -> Self {
        let spans = Recorder::default();
        let mut machine = Machine::new(description, 1, Some(Box::new(spans.clone())));
        machine.attach_blocks(1).unwrap();
        if filled {
            machine.ftl().fill_sequential().unwrap();
        }
        let (mut ended, mut latencies) = (Vec::new(), Latencies::default());
        let mut each = |e: &RequestEnded| {
            let done = e.status == RequestStatus::Success;
            latencies.record(e.request.op, e.request.bytes, e.arrived, e.done, done);
            ended.push(*e);
        };
        machine.drive(&mut RequestList::new(requests.iter().copied(), depth), &mut each, &mut |_| true).unwrap();
        machine.settle();
        machine.ftl().audit();
        Self { machine, spans, ended, latencies }
    }

    fn report(&self) -> Report {
        let report = self.machine.report(&self.latencies);
        report.check().unwrap_or_else(|imbalance| panic!("{imbalance}"));
        report
    }
}

/// Returns a preset with so few blocks that reclaim has work, and with the changes of `more`.
fn small(preset: &str, more: &[(&str, &str)]) -> Description {
    let overrides = [
        ("geometry.blocks", "24"),
        ("geometry.pages", "24"),
        ("ftl.gc_urgent_blocks", "2"),
        ("ftl.over_provisioning", "30 %"),
    ];
    let overrides: Vec<_> = overrides.iter().chain(more).copied().collect();
    describe::preset_with(preset, &overrides).unwrap_or_else(|e| panic!("{preset}: {e}"))
}

fn capacity(description: &Description) -> u64 {
    let mut machine = Machine::new(description, 1, None);
    machine.attach_blocks(1).unwrap();
    machine.capacity_bytes()
}

/// Random requests: all operations, any alignment, with times of arrival in order.
fn random_requests(chance: &mut Rng, capacity: u64, count: usize) -> Vec<IoRequest> {
    let mut at = Ps::ZERO;
    let request = |_| {
        let op = [RequestOp::Read, RequestOp::Read, RequestOp::Write, RequestOp::Write, RequestOp::Trim]
            [chance.u64(..5) as usize];
        let op = if chance.u64(..60) == 0 { RequestOp::Flush } else { op };
        let bytes = match op {
            RequestOp::Flush => 0,
            _ => [512, 4096, 16384, 1 + chance.u64(..40_000)][chance.u64(..4) as usize],
        };
        at += Ps::from_us(chance.u64(..60));
        IoRequest {
            at: Some(at),
            op,
            stream: chance.u64(..4) as u32,
            offset_bytes: chance.u64(..capacity - bytes),
            bytes,
        }
    };
    (0..count).map(request).collect()
}

fn near(what: &str, got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-6 * want.abs() + 1e-15, "{what}: {got} instead of {want}");
}

/// Checks busy times against the spans that parts reported.
fn check_busy(run: &Run, report: &Report, description: &Description) {
    let (now, flash) = (run.machine.now(), run.machine.flash());
    for (number, busy) in flash.channels.iter().enumerate() {
        let spans = run.spans.busy(Track::Channel(number as u32), true, now);
        assert_eq!(spans, busy.total(), "channel {number}");
    }
    for (number, busy) in flash.dies.iter().enumerate() {
        assert_eq!(run.spans.busy(Track::Die(number as u32), true, now), busy.total(), "die {number}");
    }
    for (number, busy) in run.machine.cores().0.into_iter().enumerate() {
        assert_eq!(run.spans.busy(Track::Core(number as u32), true, now), busy, "core {number}");
    }
    let share = |track, apart| run.spans.busy(track, apart, now).0 as f64 / now.0.max(1) as f64;
    let in_order = !description.link.entries_ahead;
    near("the link to the device", share(Track::LinkDown, in_order), report.utilisation.link_down);
    near("the link to the host", share(Track::LinkUp, in_order), report.utilisation.link_up);
    near("DRAM", share(Track::Dram, true), report.utilisation.dram);
}

/// Checks energies against counts, busy times and the description's values.
fn check_energy(run: &Run, report: &Report, description: &Description) {
    let (of, flash, energy) = (&description.energy, run.machine.flash(), &report.energy);
    let j = |pj: f64| pj * 1e-12;
    let all = |n: [u64; 4]| n.iter().sum::<u64>() as f64;
    let counts = &flash.counts;
    let sense = all(counts.senses) * of.read_pj + all(counts.sense_commands) * of.read_command_pj;
    near("sensing", energy.sense_j, j(sense));
    let program = all(counts.programs) * of.program_pj + all(counts.program_commands) * of.program_command_pj;
    near("programming", energy.program_j, j(program));
    let erase = all(counts.erases) * of.erase_pj + all(counts.erase_commands) * of.erase_command_pj;
    near("erasing", energy.erase_j, j(erase));
    let crossed = all(counts.out_bus_bytes) + all(counts.in_bus_bytes);
    near("channels", energy.bus_j, j(crossed * of.bus_pj_per_byte));
    near("DRAM", energy.dram_j, j(run.machine.dram_bytes() as f64 * of.dram_pj_per_byte));
    let asleep: f64 = report.idle_states.iter().map(|s| s.asleep_s).sum();
    let awake_s = run.machine.now().seconds() - asleep;
    near("the controller", energy.controller_idle_j, of.controller_idle_uw * 1e-6 * awake_s);
    near("DRAM at rest", energy.dram_idle_j, of.dram_idle_uw * 1e-6 * awake_s);
    near("the link at rest", energy.link_idle_j, of.link_idle_uw * 1e-6 * awake_s);
    let busy: f64 = flash.dies.iter().map(|d| d.total().seconds()).sum();
    let idle = (flash.dies.len() as f64 * awake_s - busy).max(0.0);
    assert!((energy.die_idle_j - of.die_idle_uw * 1e-6 * idle).abs() <= 1e-6 * energy.die_idle_j + 1e-12, "dies");
    near("the device", energy.device_j, energy.parts().iter().map(|(_, part)| part).sum());
}

/// Checks operations and bytes of the flash at rest.
fn check_flash(flash: &FlashAccount) {
    assert_eq!((flash.in_flight, flash.check()), (0, Ok(())));
    let counts = &flash.counts;
    assert_eq!(counts.sensed_bus_bytes, counts.out_bus_bytes, "what was sensed crossed a channel");
    for cause in 0..4 {
        let ended = |kind: OpKind| counts.ended[kind as usize][cause];
        assert!(counts.senses[cause] >= ended(OpKind::Read), "each page read was sensed at least once");
        assert_eq!(counts.programs[cause], ended(OpKind::Program), "pages programmed");
        assert_eq!(counts.erases[cause], ended(OpKind::Erase), "blocks erased");
        assert!(counts.sense_commands[cause] <= counts.senses[cause]);
        assert!(counts.program_commands[cause] <= counts.programs[cause]);
        assert!(counts.read_bytes[cause] <= counts.out_bus_bytes[cause], "bytes read crossed a channel");
        assert!(counts.program_bytes[cause] <= counts.in_bus_bytes[cause], "bytes programmed crossed a channel");
    }
    assert!(counts.resumes <= counts.program_suspends + counts.erase_suspends);
}

#[test]
fn every_preset_adds_up_under_random_requests() {
    for (number, preset) in describe::presets().iter().enumerate() {
        for (seed, depth) in [(1, Some(1)), (2, Some(24)), (3, None)] {
            eprintln!("{preset}, seed {seed}, depth {depth:?}");
            let mut chance = Rng::with_seed(seed + 100 * number as u64);
            let description = small(preset, &[]);
            let requests = random_requests(&mut chance, capacity(&description), 250);
            let run = Run::new(&description, &requests, depth, seed != 2);
            assert_eq!(run.ended.len(), requests.len(), "every request ends once");
            let report = run.report();
            check_busy(&run, &report, &description);
            check_energy(&run, &report, &description);
            check_flash(&run.machine.flash());
            check_requests(&run, &report, &requests, depth);
        }
    }
}

/// Checks the requests that ended, and the report's figures of them, against lists.
fn check_requests(run: &Run, report: &Report, requests: &[IoRequest], depth: Option<u32>) {
    let key = |r: &IoRequest| (r.op as u8, r.stream, r.offset_bytes, r.bytes);
    let mut submitted: Vec<_> = requests.iter().map(key).collect();
    let mut ended: Vec<_> = run.ended.iter().map(|e| key(&e.request)).collect();
    submitted.sort_unstable();
    ended.sort_unstable();
    assert_eq!(submitted, ended, "the requests that end are those that were submitted");
    if let Some(depth) = depth {
        // A request that arrives when another ends takes its place.
        let mut moments: Vec<(Ps, i32)> = run.ended.iter().flat_map(|e| [(e.arrived, 1), (e.done, -1)]).collect();
        moments.sort_unstable();
        let (mut open, mut most) = (0, 0);
        for (_, change) in moments {
            open += change;
            most = most.max(open);
        }
        assert!(most <= depth as i32, "{most} requests were in flight, {depth} are allowed");
        assert_eq!(most, (depth as i32).min(requests.len() as i32));
    } else {
        let mut arrived: Vec<Ps> = run.ended.iter().map(|e| e.arrived).collect();
        arrived.sort_unstable();
        assert_eq!(arrived, requests.iter().map(|r| r.at.unwrap()).collect::<Vec<_>>());
    }
    for (op, of) in [RequestOp::Read, RequestOp::Write, RequestOp::Trim, RequestOp::Flush].into_iter().zip([
        &report.read,
        &report.write,
        &report.trim,
        &report.flush,
    ]) {
        let done = |e: &&RequestEnded| e.request.op == op && e.status == RequestStatus::Success;
        let mut took: Vec<Ps> = run.ended.iter().filter(done).map(|e| e.done - e.arrived).collect();
        took.sort_unstable();
        assert_eq!(of.requests, took.len() as u64);
        assert_eq!(of.bytes, run.ended.iter().filter(done).map(|e| e.request.bytes).sum::<u64>());
        if let Some(latency) = &of.latency {
            check_latency(latency, &took);
        } else {
            assert!(took.is_empty());
        }
    }
    near("elapsed", report.elapsed_s * report.all.iops, report.all.requests as f64);
}

/// Checks a latency's figures against the sorted list of all; percentiles to the histogram's precision.
fn check_latency(latency: &Latency, took: &[Ps]) {
    let us: Vec<f64> = took.iter().map(|t| t.us()).collect();
    near("least", latency.min_us, us[0]);
    near("most", latency.max_us, us[us.len() - 1]);
    assert!((latency.mean_us - us.iter().sum::<f64>() / us.len() as f64).abs() < 1e-3);
    for (share, got) in [(0.5, latency.p50_us), (0.99, latency.p99_us)] {
        let rank = ((share * us.len() as f64).ceil() as usize).clamp(1, us.len());
        let want = us[rank - 1];
        assert!((got - want).abs() <= 0.01 * want, "{share} of {}: {got} us instead of {want} us", us.len());
    }
    assert!(latency.distribution.windows(2).all(|p| p[0].0 <= p[1].0 && p[0].1 <= p[1].1));
}

/// Without caches every page of a request is a flash operation: the counts follow from the requests alone.
#[test]
fn operations_of_a_device_without_caches_follow_from_its_requests() {
    for preset in ["tiny", "mqsim-ideal"] {
        let bare = [("ftl.write_cache", "none"), ("ftl.map_cache", "ideal"), ("ftl.early_completion", "false")];
        let description = small(preset, &bare);
        let page = u64::from(description.geometry.page_bytes);
        for seed in 0..12 {
            eprintln!("{preset}, seed {seed}");
            let mut chance = Rng::with_seed(seed);
            let pages = capacity(&description) / page;
            let (mut live, mut trimmed) = (BTreeSet::new(), 0u64);
            let (mut reads, mut writes) = (0u64, 0u64);
            let mut requests = Vec::new();
            for _ in 0..300 {
                let first = chance.u64(..pages - 4);
                let lpas = first..first + 1 + chance.u64(..3);
                let op = [RequestOp::Read, RequestOp::Write, RequestOp::Trim][chance.u64(..3) as usize];
                match op {
                    RequestOp::Read => reads += lpas.clone().filter(|p| live.contains(p)).count() as u64,
                    RequestOp::Write => {
                        writes += lpas.end - lpas.start;
                        live.extend(lpas.clone());
                    }
                    _ => trimmed += lpas.clone().filter(|p| live.remove(p)).count() as u64,
                }
                let (offset_bytes, bytes) = (lpas.start * page, (lpas.end - lpas.start) * page);
                requests.push(IoRequest { at: None, op, stream: 0, offset_bytes, bytes });
            }
            // One at a time, so that a request finds what all requests before it left.
            let mut run = Run::new(&description, &requests, Some(1), false);
            assert!(run.ended.iter().all(|e| e.status == RequestStatus::Success));
            let counts = run.machine.flash().counts;
            let host = OpCause::Host as usize;
            assert_eq!(counts.ended[OpKind::Read as usize][host], reads, "pages that the host read");
            assert_eq!(counts.programs[host], writes, "pages that the host wrote");
            let ftl = run.machine.ftl().report();
            assert_eq!((ftl.live_pages, ftl.trimmed), (live.len() as u64, trimmed));
            assert_eq!(ftl.programs, counts.programs, "what management ordered is what dies did");
            assert_eq!(ftl.erases, counts.erases);
            let all: u64 = ftl.programs.iter().sum();
            near("write amplification", ftl.write_amplification, all as f64 / writes.max(1) as f64);
        }
    }
}

/// One single-page read at a time: no part of a device that becomes faster makes any request slower.
#[test]
fn a_faster_part_makes_no_lonely_read_slower() {
    let slow = [
        ("nand.t_read", "90 us", "40 us"),
        ("link.rate", "1 GB/s", "4 GB/s"),
        ("bus.rate", "200 MB/s", "800 MB/s"),
        ("bus.t_read_command", "2 us", "100 ns"),
        ("dram.rate", "200 MB/s", "4 GB/s"),
    ];
    for (key, before, after) in slow {
        let run = |value: &str| {
            let Ok(description) = describe::preset_with("tiny", &[(key, value), ("geometry.blocks", "24")]) else {
                panic!("{key} = {value}");
            };
            let page = u64::from(description.geometry.page_bytes);
            let pages = capacity(&description).min(64 * page) / page;
            let mut chance = Rng::with_seed(5);
            let read = |_| {
                let offset_bytes = chance.u64(..pages) * page;
                IoRequest { at: None, op: RequestOp::Read, stream: 0, offset_bytes, bytes: page }
            };
            let requests: Vec<IoRequest> = (0..100).map(read).collect();
            let run = Run::new(&description, &requests, Some(1), true);
            run.ended.iter().map(|e| e.done - e.arrived).collect::<Vec<_>>()
        };
        let (slower, faster) = (run(before), run(after));
        let mut worse = slower.iter().zip(&faster).enumerate().filter(|(_, (slow, fast))| fast > slow);
        assert_eq!(worse.next(), None, "{key}: {before} to {after}");
    }
}

/// The same requests and seed give the same run; a description that only names its device otherwise does, too.
#[test]
fn a_run_depends_on_its_description_and_seed_alone() {
    let description = small("tiny", &[("reliability.grown_bad_ppm", "2000")]);
    let requests = random_requests(&mut Rng::with_seed(9), capacity(&description), 400);
    let run = |description: &Description| {
        let run = Run::new(description, &requests, Some(16), true);
        (run.machine.hash(), run.machine.now(), run.machine.events())
    };
    let mut renamed = description.clone();
    renamed.name = "another".to_owned();
    assert_eq!(run(&description), run(&description));
    assert_eq!(run(&description), run(&renamed));
}

/// Each inconsistency that a report can have is found when it is put there.
#[test]
fn reports_that_do_not_add_up_are_refused() {
    let description = small("tiny", &[]);
    let requests = random_requests(&mut Rng::with_seed(4), capacity(&description), 100);
    let run = Run::new(&description, &requests, Some(8), true);
    let whole = run.report();
    let broken = |change: &dyn Fn(&mut Report)| {
        let mut report = whole.clone();
        change(&mut report);
        report.check()
    };
    assert_eq!(broken(&|_| {}), Ok(()));
    let busy = [
        broken(&|r| r.utilisation.channels[0] = 1.01),
        broken(&|r| r.utilisation.dies[0] = -0.01),
        broken(&|r| r.utilisation.link_up = f64::NAN),
        broken(&|r| r.utilisation.dram = f64::INFINITY),
        broken(&|r| r.utilisation.host_cores = vec![2.0]),
    ];
    assert!(busy.iter().all(|b| matches!(b, Err(ReportImbalance::Busy { .. }))), "{busy:?}");
    let energy = [
        broken(&|r| r.energy.sense_j += 1.0),
        broken(&|r| r.energy.device_j *= 1.000_001),
        broken(&|r| r.energy.device_j = f64::NAN),
        broken(&|r| r.energy.bus_j = f64::NAN),
    ];
    assert!(energy.iter().all(|b| matches!(b, Err(ReportImbalance::Energy { .. }))), "{energy:?}");
    let counts = [broken(&|r| r.read.requests += 1), broken(&|r| r.all.failed += 1)];
    assert!(counts.iter().all(|b| matches!(b, Err(ReportImbalance::Requests { .. }))), "{counts:?}");
}
