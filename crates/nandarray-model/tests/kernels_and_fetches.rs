//! Promise: whatever the kernels, the accesses and the platform, an accelerator runs every screen once, on one worker
//! at a time, and its report adds up; a bank of devices makes each fetch once, and its report adds up.
//!
//! References count what was submitted and know no event: sums, sets, intervals that must not overlap, Little's law.
//! Settings that make no sense are refused by name. Seeds are printed with each failure.

use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};

use nandarray_model::describe::{Description, Sheet};
use nandarray_model::{
    AcceleratorPlatform, AcceleratorReport, FetchPlatform, FetchRecording, FetchReport, PhantomBlock, PhantomKernel,
    ScreenSpan, TouchKind, run_accelerator, run_fetches, run_host,
};
use nandarray_runtime::schedule::{SCHEDULERS, by_name};

/// Times are whole picoseconds, and reports have them in seconds.
const ROUNDING_S: f64 = 1e-12;

fn near(what: &str, got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-6 * want.abs() + 1e-11, "{what}: {got} instead of {want}");
}

fn random_kernels(chance: &mut Rng) -> Vec<PhantomKernel> {
    let block = |chance: &mut Rng| PhantomBlock {
        screens: 1 + chance.u64(..9),
        cycles: chance.u64(..400_000) as f64,
        bytes_in: chance.u64(..3) * chance.u64(..3 << 20),
        bytes_dram: chance.u64(..2) * chance.u64(..1 << 20),
    };
    let kernel = |number: u64| PhantomKernel {
        name: format!("k{number}"),
        application: chance.u64(..3),
        priority: chance.u64(..3) as i64,
        deadline: (chance.u64(..2) == 0).then(|| chance.u64(..100)),
        work: chance.u64(..10),
        arrives_ns: chance.u64(..2) * chance.u64(..2_000_000),
        bytes: chance.u64(..8 << 20),
        bytes_out: chance.u64(..2) * chance.u64(..4 << 20),
        microblocks: (0..=chance.u64(..3)).map(|_| block(chance)).collect(),
    };
    let mut kernel = kernel;
    let mut kernels: Vec<PhantomKernel> = (0..10).map(&mut kernel).collect();
    kernels.sort_by_key(|k| k.arrives_ns);
    kernels
}

/// Checks that no worker has two screens at once, and that occupancy and utilisation are the sums of its spans.
fn check_workers(report: &AcceleratorReport, platform: &AcceleratorPlatform) {
    let mut of: BTreeMap<usize, Vec<&ScreenSpan>> = BTreeMap::new();
    for span in &report.spans {
        assert!(span.start <= span.end && span.computed <= span.end - span.start + 1e-12, "{span:?}");
        of.entry(span.worker).or_default().push(span);
    }
    for (worker, spans) in &mut of {
        spans.sort_by(|a, b| a.start.total_cmp(&b.start));
        for pair in spans.windows(2) {
            assert!(pair[0].end <= pair[1].start + ROUNDING_S, "worker {worker} has two screens at once: {pair:?}");
        }
        let failed = platform.core_failures.iter().filter(|(core, _)| core == worker).map(|(_, ns)| *ns).min();
        if let Some(ns) = failed {
            assert!(spans.iter().all(|s| s.start <= ns as f64 * 1e-9), "worker {worker} works after its failure");
        }
        near("occupancy", report.occupancy[*worker] * report.seconds, spans.iter().map(|s| s.end - s.start).sum());
        near("utilisation", report.utilisation[*worker] * report.seconds, spans.iter().map(|s| s.computed).sum());
    }
    let computed: f64 = report.spans.iter().map(|s| s.computed).sum();
    near("activity", report.activity.compute.iter().sum(), computed);
    near("compute of kernels", report.kernels.iter().map(|k| k.compute).sum(), computed);
}

/// Checks that each screen ended well once, after the microblock before it, and computed its part.
fn check_screens(report: &AcceleratorReport, kernels: &[PhantomKernel], platform: &AcceleratorPlatform, splits: bool) {
    let fine = |s: &&ScreenSpan| s.fine;
    assert_eq!(report.spans.iter().filter(|s| !s.fine).count() as u64, report.reruns);
    for (number, kernel) in kernels.iter().enumerate() {
        let mut ready = kernel.arrives_ns as f64 * 1e-9;
        for (m, block) in kernel.microblocks.iter().enumerate() {
            let own = |s: &&ScreenSpan| (s.kernel, s.microblock) == (number as u64, m);
            let spans: Vec<&ScreenSpan> = report.spans.iter().filter(own).collect();
            let screens: BTreeSet<u64> = spans.iter().copied().filter(fine).map(|s| s.screen).collect();
            let divided = if splits { block.screens.min(platform.workers as u64) } else { 1 };
            assert_eq!(screens, (0..divided).collect(), "screens of microblock {m} of kernel {number}");
            assert_eq!(spans.iter().copied().filter(fine).count() as u64, divided, "a screen ended twice");
            assert!(
                spans.iter().all(|s| s.start >= ready - ROUNDING_S),
                "microblock {m} of kernel {number} began before {ready}"
            );
            let each = block.cycles / divided as f64 / platform.core_hz as f64;
            // A screen that moves bytes of DDR3L computes for as long as these take, and may wait for other screens.
            let moves = (block.bytes_dram / divided) as f64 / platform.dram_rate as f64;
            for span in spans.iter().copied().filter(fine) {
                let exact = block.bytes_dram == 0;
                assert!(span.computed >= each.max(moves) - 1e-11, "{span:?} of {each} and {moves}");
                assert!(!exact || span.computed <= each + 1e-11, "{span:?} instead of {each}");
            }
            ready = spans.iter().copied().filter(fine).map(|s| s.end).fold(ready, f64::max);
        }
        let times = &report.kernels[number];
        assert!(times.end >= ready - ROUNDING_S && times.end <= report.seconds + ROUNDING_S, "{times:?} after {ready}");
        near("latency", times.latency, times.end - kernel.arrives_ns as f64 * 1e-9);
        assert!(times.waiting >= 0.0 && times.waiting <= times.latency + ROUNDING_S);
        assert_eq!((times.name.as_str(), times.application), (kernel.name.as_str(), kernel.application));
    }
}

#[test]
fn every_screen_runs_once_and_reports_add_up() {
    for scheduler in SCHEDULERS {
        for seed in 0..120 {
            eprintln!("{scheduler}, seed {seed}");
            let mut chance = Rng::with_seed(seed);
            let kernels = random_kernels(&mut chance);
            let failures = if seed % 3 == 0 { 1 + chance.u64(..2) } else { 0 };
            let workers = 3 + chance.u64(..4) as usize;
            let fails = |_| (chance.u64(..workers as u64) as usize, 1_000 + chance.u64(..3_000_000));
            let mut core_failures: Vec<(usize, u64)> = (0..failures).map(fails).collect();
            core_failures.sort_unstable();
            core_failures.dedup_by_key(|one| one.0);
            let platform = AcceleratorPlatform { workers, core_failures, ..AcceleratorPlatform::default() };
            let made = by_name(scheduler, workers).unwrap();
            let splits = made.splits();
            let report = run_accelerator(&platform, made, &kernels).unwrap();
            check_workers(&report, &platform);
            check_screens(&report, &kernels, &platform, splits);
            assert_eq!(report.bytes, kernels.iter().map(|k| k.bytes).sum::<u64>());
            assert_eq!(report.bytes_out, kernels.iter().map(|k| k.bytes_out).sum::<u64>());
            let groups = |k: &PhantomKernel| k.bytes_out.div_ceil(platform.group_bytes);
            assert_eq!(report.storengine_work.written, kernels.iter().map(groups).sum::<u64>());
            assert!(report.fairness > 0.0 && report.fairness <= 1.0 + 1e-12, "{}", report.fairness);
            assert!(report.flushed_seconds >= report.kernels.iter().map(|k| k.flushed).fold(0.0, f64::max) - 1e-12);
            // No machine is faster than all of its workers together.
            let work: f64 = kernels.iter().flat_map(|k| &k.microblocks).map(|m| m.cycles).sum();
            assert!(report.seconds >= work / platform.core_hz as f64 / workers as f64);
        }
    }
}

#[test]
fn settings_of_kernels_that_make_no_sense_are_refused_by_name() {
    let fine = random_kernels(&mut Rng::with_seed(1)).remove(0);
    let changed = |change: &dyn Fn(&mut PhantomKernel)| {
        let mut kernel = fine.clone();
        change(&mut kernel);
        kernel
    };
    let platform = AcceleratorPlatform::default();
    for (word, kernel) in [
        ("arrives_ns", changed(&|k| k.arrives_ns = u64::MAX)),
        ("cycles", changed(&|k| k.microblocks[0].cycles = -1.0)),
        ("cycles", changed(&|k| k.microblocks[0].cycles = f64::NAN)),
        ("cycles", changed(&|k| k.microblocks[0].cycles = f64::INFINITY)),
        ("cycles", changed(&|k| k.microblocks[0].cycles = 1e300)),
        ("screen", changed(&|k| k.microblocks[0].screens = 0)),
        ("microblock", changed(&|k| k.microblocks.clear())),
    ] {
        let kernels = [fine.clone(), kernel];
        let direct = run_accelerator(&platform, by_name("inter-dynamic", platform.workers).unwrap(), &kernels);
        let hosted = run_host(&platform, &kernels);
        for refused in [direct, hosted] {
            let error = refused.expect_err(word);
            assert!(error.contains(word), "{error:?} does not name {word}");
        }
    }
}

const DEVICE: &str = include_str!("../../../papers/nandarray_papers/bam/devices/optane-p5800x.toml");

fn devices(n: usize) -> Vec<Description> {
    vec![Sheet::parse(DEVICE).and_then(|sheet| sheet.description()).expect("a description"); n]
}

fn platform(chance: &mut Rng) -> FetchPlatform {
    FetchPlatform {
        resident_tasks: 1 + chance.u64(..40) as usize,
        t_group_ns: chance.u64(..300) as f64,
        atomic_slices: 1 + chance.u64(..8) as u32,
        t_atomic_ns: chance.u64(..20) as f64 + 1.0,
        t_phase_ns: chance.u64(..20_000) as f64,
        queue_pairs: 1 + chance.u64(..4) as u32,
        queue_depth: 1 + chance.u64(..16) as u32,
        t_enqueue_ns: chance.u64(..100) as f64,
        t_poll_ns: chance.u64(..2_000) as f64,
        cpu_threads: chance.u64(..3) as u32,
        t_cpu_ns: chance.u64(..2_000) as f64,
        t_cpu_kib_ns: chance.u64(..100) as f64,
        link_rate: 1_000_000_000 * (1 + chance.u64(..20)),
        link_payload: 256,
        link_overhead: 28,
        t_link_ns: 100.0,
        stripe_bytes: 4096 << chance.u64(..3),
    }
}

/// A random recording; each fetch is either read or written, by one access or by many.
fn recording(chance: &mut Rng) -> FetchRecording {
    let fetches = 1 + chance.u64(..200);
    let kinds: Vec<u32> = (0..fetches).map(|_| [0, 0, 0, 1, 2][chance.u64(..5) as usize]).collect();
    let mut rows: Vec<[u32; 6]> = (0..chance.u64(..600))
        .map(|_| {
            let fetch = chance.u64(..fetches) as u32;
            let (phase, task, group) = (chance.u64(..3) as u32, chance.u64(..20) as u32, chance.u64(..5) as u32);
            [phase, task, group, kinds[fetch as usize], fetch, chance.u64(..4) as u32]
        })
        .collect();
    rows.sort_unstable();
    let addresses = (0..fetches).map(|_| chance.u64(..1 << 24) * 512).collect();
    let bytes = (0..fetches).map(|_| 512 * (1 + chance.u64(..16)) as u32).collect();
    FetchRecording::new(&rows.concat(), addresses, bytes).unwrap()
}

/// Checks a report against sums over the recording.
fn check_fetches(report: &FetchReport, recording: &FetchRecording, platform: &FetchPlatform, devices: usize) {
    let named = |write: bool| {
        let fetches = recording.accesses.iter().filter(|a| (a.kind != TouchKind::Touch) == write);
        fetches.map(|a| a.fetch).collect::<BTreeSet<u32>>()
    };
    let (read, written) = (named(false), named(true));
    let bytes = |of: &BTreeSet<u32>| of.iter().map(|f| u64::from(recording.bytes[*f as usize])).sum::<u64>();
    assert_eq!((report.reads, report.bytes_read), (read.len() as u64, bytes(&read)));
    assert_eq!((report.writes, report.bytes_written), (written.len() as u64, bytes(&written)));
    let touches = recording.accesses.iter().filter(|a| a.kind == TouchKind::Touch).count();
    assert_eq!(report.touches, touches as u64);
    assert_eq!(report.atomics, recording.accesses.iter().map(|a| u64::from(a.atomics)).sum::<u64>());
    let groups: BTreeSet<_> = recording.accesses.iter().map(|a| (a.phase, a.task, a.group)).collect();
    assert_eq!(report.groups, groups.len() as u64);
    let phases: BTreeSet<u32> = recording.accesses.iter().map(|a| a.phase).collect();
    assert_eq!(report.phase_ends_s.len(), phases.len());
    assert!(report.phase_ends_s.windows(2).all(|pair| pair[0] <= pair[1]));
    assert_eq!((report.by_device.len(), report.by_device.iter().sum()), (devices, report.reads + report.writes));
    let most = u64::from(platform.queue_pairs * platform.queue_depth) * devices as u64;
    assert!(report.in_flight_max <= most, "{} in flight of {most}", report.in_flight_max);
    // Little's law; requests that wait for room in a queue are not in flight yet, but their latency has begun.
    let requests = (report.reads + report.writes) as f64;
    let (flight, latency) = (report.in_flight_mean * report.seconds, report.latency_mean_us * 1e-6 * requests);
    assert!(flight <= latency * (1.0 + 1e-9) + 1e-12, "{flight} {latency}");
    if report.in_flight_max < u64::from(platform.queue_pairs * platform.queue_depth) {
        near("Little's law", flight, latency);
    }
    // Bounds of the parts: bytes over the link, atomics on slices, groups on warps.
    let link = (report.bytes_read as f64 / platform.link_rate as f64).max(0.0);
    let atomics = report.atomics as f64 * platform.t_atomic_ns * 1e-9 / f64::from(platform.atomic_slices);
    let warps = report.groups as f64 * platform.t_group_ns * 1e-9 / platform.resident_tasks as f64;
    for (what, bound) in [("link", link), ("atomics", atomics), ("warps", warps)] {
        assert!(report.seconds >= bound * (1.0 - 1e-9), "{what}: {} s, at least {bound} s", report.seconds);
    }
    near("atomics", report.atomics_busy * report.seconds, atomics);
}

#[test]
fn every_fetch_is_made_once_and_reports_add_up() {
    for seed in 0..300 {
        eprintln!("seed {seed}");
        let mut chance = Rng::with_seed(seed);
        let (platform, recording) = (platform(&mut chance), recording(&mut chance));
        let n = 1 + chance.u64(..3) as usize;
        let report = run_fetches(&devices(n), &platform, &recording, seed).unwrap();
        check_fetches(&report, &recording, &platform, n);
        let again = run_fetches(&devices(n), &platform, &recording, seed).unwrap();
        assert_eq!((report.hash, report.events), (again.hash, again.events));
    }
}

#[test]
fn recordings_and_platforms_that_make_no_sense_are_refused() {
    let mut chance = Rng::with_seed(3);
    let fine = platform(&mut chance);
    let one = FetchRecording::new(&[0, 0, 0, 0, 0, 1], vec![0], vec![512]).unwrap();
    for (word, platform) in [
        ("resident_tasks", FetchPlatform { resident_tasks: usize::MAX, ..fine.clone() }),
        ("queue_pairs", FetchPlatform { queue_pairs: u32::MAX, ..fine.clone() }),
        ("atomic_slices", FetchPlatform { atomic_slices: u32::MAX, ..fine.clone() }),
        ("cpu_threads", FetchPlatform { cpu_threads: u32::MAX, ..fine.clone() }),
        ("t_group_ns", FetchPlatform { t_group_ns: f64::NAN, ..fine.clone() }),
        ("t_link_ns", FetchPlatform { t_link_ns: -1.0, ..fine.clone() }),
    ] {
        let error = run_fetches(&devices(2), &platform, &one, 1).expect_err(word);
        assert!(error.contains(word), "{error:?} does not name {word}");
    }
    // One fetch that is both read and written would be made once only, as whichever access comes first.
    let both = FetchRecording::new(&[0, 0, 0, 0, 0, 1, 0, 0, 1, 2, 0, 1], vec![0], vec![512]);
    assert!(both.unwrap_err().contains("fetch 0 is read and written"));
}
