//! The accelerator compared with plain references: its schedulers with a list of workers and kernels, the busy time of
//! its backbone picosecond by picosecond, its activity with an integral over all intervals, blocks counted one by one.

use nandarray_runtime::schedule::{SCHEDULERS, by_name};
use nandarray_sim::Ps;

use super::platform::AcceleratorPlatform;
use super::results::{Activity, ActivityKind};
use super::run::{PhantomBlock, PhantomKernel, run_accelerator};
use super::run_host;
use super::storage::AcceleratorStorage;

/// A platform on which only computing takes time, in cycles of a nanosecond.
fn computing(workers: usize) -> AcceleratorPlatform {
    let none = AcceleratorPlatform { t_message_ns: 0, t_schedule_ns: 0, t_translate_ns: 0, ..Default::default() };
    AcceleratorPlatform { workers, ..none }
}

/// Kernels that read and write nothing, with a number of cycles that any number of workers up to 6 divides.
fn kernels(chance: &mut fastrand::Rng) -> Vec<PhantomKernel> {
    let block = |chance: &mut fastrand::Rng| PhantomBlock {
        screens: [1, 2, 3, 4, 6, 9][chance.usize(0..6)],
        cycles: (60 * chance.u64(1..5_000)) as f64,
        bytes_in: 0,
        bytes_dram: 0,
    };
    let mut all: Vec<PhantomKernel> = (0..chance.u64(1..16))
        .map(|n| PhantomKernel {
            name: format!("k{n}"),
            application: chance.u64(0..5),
            priority: chance.i64(-1..2),
            deadline: None,
            work: 0,
            arrives_ns: chance.u64(0..2) * chance.u64(0..400_000),
            bytes: 0,
            bytes_out: 0,
            microblocks: (0..chance.usize(1..4)).map(|_| block(chance)).collect(),
        })
        .collect();
    all.sort_by_key(|kernel| kernel.arrives_ns);
    all
}

/// A kernel in the list of the reference.
struct ListedKernel<'a> {
    kernel: &'a PhantomKernel,
    here: bool,
    microblock: usize,
    /// Screens of the microblock: in total, handed out, ended.
    screens: (u64, u64, u64),
    owner: Option<usize>,
}

impl ListedKernel<'_> {
    fn open(&mut self, splits: bool, workers: usize) {
        let most = self.kernel.microblocks[self.microblock].screens;
        self.screens = (if splits { most.min(workers as u64) } else { 1 }, 0, 0);
    }

    fn has_ended(&self) -> bool {
        self.microblock == self.kernel.microblocks.len()
    }
}

/// A screen that ran: kernel, microblock, screen, worker, begin and end in nanoseconds.
type Ran = (u64, usize, u64, usize, u64, u64);

/// Returns the kernel whose screen a worker runs next, by the scheduler's rule; `None` if the worker has to wait.
fn chosen(scheduler: &str, worker: usize, workers: usize, all: &mut [ListedKernel<'_>]) -> Option<usize> {
    let mut open: Vec<usize> = (0..all.len()).filter(|&n| all[n].here && !all[n].has_ended()).collect();
    open.sort_by_key(|&n| (-all[n].kernel.priority, n));
    let first = match scheduler {
        "inter-static" => open.into_iter().find(|&n| all[n].kernel.application as usize % workers == worker),
        "inter-dynamic" => {
            let own = open.iter().copied().find(|&n| all[n].owner == Some(worker));
            let found = own.or_else(|| open.into_iter().find(|&n| all[n].owner.is_none()));
            found.inspect(|&n| all[n].owner = Some(worker))
        }
        // The kernel that runs is marked by an owner.
        "intra-in-order" => open.iter().copied().find(|&n| all[n].owner.is_some()).or(open.first().copied()),
        _ => open.into_iter().find(|&n| all[n].screens.1 < all[n].screens.0),
    }?;
    let ready = all[first].screens.1 < all[first].screens.0;
    ready.then(|| {
        all[first].owner.get_or_insert(worker);
        first
    })
}

/// Runs kernels by a list of events in order of time and booking.
fn listed(scheduler: &str, splits: bool, workers: usize, kernels: &[PhantomKernel]) -> Vec<Ran> {
    let listed = |kernel| ListedKernel { kernel, here: false, microblock: 0, screens: (0, 0, 0), owner: None };
    let mut all: Vec<ListedKernel<'_>> = kernels.iter().map(listed).collect();
    // Arrivals, then ends of screens: time, number of the event, the screen that ends.
    let mut events: Vec<(u64, usize, Option<Ran>)> =
        kernels.iter().enumerate().map(|(n, kernel)| (kernel.arrives_ns, n, None)).collect();
    let (mut number, mut idle, mut ran, mut now) = (events.len(), vec![true; workers], Vec::new(), 0);
    loop {
        for one in all.iter_mut().filter(|one| !one.here && one.kernel.arrives_ns <= now) {
            one.here = true;
            one.open(splits, workers);
        }
        for worker in 0..workers {
            while idle[worker] {
                let Some(n) = chosen(scheduler, worker, workers, &mut all) else { break };
                let one = &mut all[n];
                let screen = one.screens.1;
                one.screens.1 += 1;
                let lasts = one.kernel.microblocks[one.microblock].cycles as u64 / one.screens.0;
                events.push((now + lasts, number, Some((n as u64, one.microblock, screen, worker, now, now + lasts))));
                (number, idle[worker]) = (number + 1, false);
            }
        }
        events.sort_unstable_by_key(|&(at, number, _)| (at, number));
        if events.is_empty() {
            return ran;
        }
        let (at, _, screen) = events.remove(0);
        now = at;
        let Some(screen) = screen else { continue };
        ran.push(screen);
        idle[screen.3] = true;
        let one = &mut all[screen.0 as usize];
        one.screens.2 += 1;
        if one.screens.2 == one.screens.0 {
            one.microblock += 1;
            if !one.has_ended() {
                one.open(splits, workers);
            }
        }
    }
}

#[test]
fn schedulers_run_screens_as_a_list_of_workers_does() {
    for scheduler in SCHEDULERS {
        for seed in 0..150 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let (workers, kernels) = (chance.usize(1..7), kernels(&mut chance));
            let made = by_name(scheduler, workers).unwrap();
            let splits = made.splits();
            let report = run_accelerator(&computing(workers), made, &kernels).unwrap();
            let ns = |seconds: f64| (seconds * 1e9).round() as u64;
            let found: Vec<Ran> = report
                .spans
                .iter()
                .map(|s| (s.kernel, s.microblock, s.screen, s.worker, ns(s.start), ns(s.end)))
                .collect();
            let wanted = listed(scheduler, splits, workers, &kernels);
            assert_eq!(found, wanted, "{scheduler}, seed {seed}, {workers} workers");
            let last = wanted.iter().map(|ran| ran.5).max().unwrap();
            assert_eq!(ns(report.seconds), last, "{scheduler}, seed {seed}");
        }
    }
}

/// A host runs kernels one after the other: each takes the sum of its ways and its microblocks.
#[test]
fn a_host_takes_the_sum_of_its_steps() {
    for seed in 0..60 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut kernels = kernels(&mut chance);
        for kernel in &mut kernels {
            (kernel.bytes, kernel.bytes_out) = (chance.u64(0..1 << 24), chance.u64(0..2) * chance.u64(0..1 << 22));
        }
        let p = AcceleratorPlatform { workers: chance.usize(1..7), ..AcceleratorPlatform::default() };
        let report = run_host(&p, &kernels).unwrap();
        let mut now = 0.0f64;
        for (n, kernel) in kernels.iter().enumerate() {
            let arrives = kernel.arrives_ns as f64 * 1e-9;
            let began = now.max(arrives);
            let way = |bytes: u64, rate: u64| {
                let requests = bytes.div_ceil(p.request_bytes) as f64;
                let stack = bytes as f64 / 1024.0 * p.host_stack_ns_per_kib * 1e-9;
                bytes as f64 / rate as f64
                    + requests * p.t_ssd_ns as f64 * 1e-9
                    + stack
                    + bytes as f64 / p.pcie_rate as f64
            };
            let computes = |block: &PhantomBlock| block.cycles / block.screens.min(p.workers as u64) as f64 * 1e-9;
            let inside = kernel.microblocks.iter().map(computes).sum::<f64>();
            now = began + way(kernel.bytes, p.ssd_rate) + inside + way(kernel.bytes_out, p.ssd_write_rate);
            let times = &report.kernels[n];
            for (what, found, wanted) in [
                ("end", times.end, now),
                ("waiting", times.waiting, began - arrives),
                ("latency", times.latency, now - arrives),
                ("all parts", times.storage + times.transfer, now - began - inside),
            ] {
                assert!((found - wanted).abs() < 1e-10, "seed {seed}, kernel {n}: {what} {found} s, not {wanted} s");
            }
        }
        assert!((report.seconds - now).abs() < 1e-10, "seed {seed}: {} s, not {now} s", report.seconds);
    }
}

#[test]
fn time_in_which_link_or_dies_work_is_a_union_of_intervals() {
    for seed in 0..120 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut storage = AcceleratorStorage::new(&AcceleratorPlatform::default());
        let (mut link, mut dies) = (vec![false; 20_000], vec![false; 20_000]);
        let (mut now, mut free, mut programs) = (0usize, 0usize, 0u32);
        for step in 0..150 {
            let next = now + chance.usize(0..25);
            dies[now..next].fill(programs > 0);
            now = next;
            match chance.u8(0..5) {
                0 | 1 => {
                    let (from, lasts) = (now + chance.usize(0..30), chance.usize(0..40));
                    storage.link(Ps(from as u64), Ps(lasts as u64));
                    let begin = free.max(from);
                    link[begin..begin + lasts].fill(true);
                    free = begin + lasts;
                }
                2 => {
                    storage.program_begins(Ps(now as u64));
                    programs += 1;
                }
                3 if programs > 0 => {
                    storage.program_ends(Ps(now as u64));
                    programs -= 1;
                }
                _ => {}
            }
            let wanted = (0..now).filter(|&at| link[at] || dies[at]).count() as u64;
            assert_eq!(storage.active(Ps(now as u64)), Ps(wanted), "seed {seed}, step {step}, at {now} ps");
        }
    }
}

#[test]
fn activity_is_the_integral_of_its_intervals() {
    for seed in 0..40 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut activity = Activity::default();
        let mut kept: Vec<(f64, f64, f64)> = Vec::new();
        for _ in 0..chance.usize(1..120) {
            let bits = chance.u32(20..38);
            let start = chance.u64(0..1 << bits);
            let end = start + chance.u64(0..1 << 36);
            activity.add(ActivityKind::Compute, Ps(start), Ps(end));
            kept.push((Ps(start).seconds(), Ps(end).seconds(), 1.0));
            if chance.bool() {
                // The work is cut short.
                let cut = start + chance.u64(0..=end - start);
                activity.remove(ActivityKind::Compute, Ps(cut), Ps(end));
                kept.push((Ps(cut).seconds(), Ps(end).seconds(), -1.0));
            }
        }
        assert!(activity.compute.len() <= 512 && activity.storage.is_empty(), "{} slots", activity.compute.len());
        for (slot, &found) in activity.compute.iter().enumerate() {
            let (from, to) = (slot as f64 * activity.slot_s, (slot + 1) as f64 * activity.slot_s);
            let part = |&(start, end, times): &(f64, f64, f64)| times * (end.min(to) - start.max(from)).max(0.0);
            let wanted: f64 = kept.iter().map(part).sum();
            assert!(
                (found - wanted).abs() < 1e-9,
                "seed {seed}, slot {slot} of {} s: {found}, {wanted}",
                activity.slot_s
            );
        }
        let (sum, whole) =
            (activity.compute.iter().sum::<f64>(), kept.iter().map(|(s, e, t)| t * (e - s)).sum::<f64>());
        assert!((sum - whole).abs() < 1e-9, "seed {seed}: {sum} s in slots, {whole} s in intervals");
    }
}

#[test]
fn outputs_reach_flash_once_whatever_storengine_does_and_whichever_dies_fail() {
    let mut settled = 0;
    for seed in 0..150 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let platform = AcceleratorPlatform {
            dies: chance.u64(1..6),
            blocks: chance.u64(6..40),
            groups_per_block: chance.u64(2..12),
            filled_share: [0.0, 0.3, 0.6][chance.usize(0..3)],
            reclaim_blocks: chance.u64(0..6),
            ..AcceleratorPlatform::default()
        };
        let blocks = platform.blocks;
        let fails = if platform.dies > 1 { chance.usize(0..platform.dies as usize) } else { 0 };
        let mut storage = AcceleratorStorage::new(&platform);
        let (mut now, mut accepted, mut failed) = (Ps::ZERO, 0, 0);
        for round in 0..400 {
            if chance.u8(0..3) == 0 && accepted < 150 {
                let groups = chance.u64(1..12);
                storage.accept(now, 0, groups);
                accepted += groups;
            }
            if storage.is_dirty() && chance.u8(0..9) == 0 {
                storage.journal(now);
            }
            if failed < fails && chance.u8(0..40) == 0 {
                storage.fail(failed, now);
                failed += 1;
            }
            storage.begin(now);
            while storage.reclaim(now).is_some() {
                storage.begin(now);
            }
            let held = storage.blocks_of_all_kinds();
            assert_eq!(held, blocks, "seed {seed}, round {round}: each block is free, used or being freed");
            assert!(storage.valid_of_fullest() <= platform.groups_per_block, "seed {seed}, round {round}");
            let Some(next) = storage.next_end() else { continue };
            now = next.max(now);
            for row in 0..platform.dies as usize {
                let _ = storage.ended(row, now);
            }
            assert!(storage.counts.written <= accepted, "seed {seed}: {:?} of {accepted}", storage.counts);
        }
        if storage.is_settled() {
            assert_eq!((storage.counts.written, storage.room()), (accepted, full_room(&platform)), "seed {seed}");
            settled += 1;
        }
    }
    assert!(settled > 30, "{settled} of 150 runs settled");
}

fn full_room(platform: &AcceleratorPlatform) -> u64 {
    platform.write_buffer_bytes / platform.group_bytes
}

#[test]
fn a_core_that_fails_twice_fails_once() {
    for scheduler in SCHEDULERS {
        let mut chance = fastrand::Rng::with_seed(3);
        let kernels = kernels(&mut chance);
        let run = |core_failures: Vec<(usize, u64)>| {
            let platform = AcceleratorPlatform { core_failures, ..computing(4) };
            run_accelerator(&platform, by_name(scheduler, 4).unwrap(), &kernels).unwrap()
        };
        let (once, twice) = (run(vec![(1, 1_000)]), run(vec![(1, 1_000), (1, 50_000)]));
        assert_eq!(once.spans, twice.spans, "{scheduler}");
    }
}

#[test]
fn platforms_beyond_the_clock_or_without_sense_are_refused_by_name() {
    const MONTH: u64 = 31 * 86_400 * 1_000_000_000;
    let with = |change: &dyn Fn(&mut AcceleratorPlatform)| {
        let mut platform = AcceleratorPlatform::default();
        change(&mut platform);
        platform.problem()
    };
    assert_eq!(with(&|p| (p.t_read_ns, p.core_failures) = (MONTH, vec![(1, MONTH)])), None, "a month fits");
    // A scheduler has room for each worker: it is made only if the platform is valid.
    let crowded = AcceleratorPlatform { workers: usize::MAX, ..AcceleratorPlatform::default() };
    assert!(crowded.scheduler("inter-static").unwrap_err().starts_with("workers is 18446744073709551615"));
    assert!(AcceleratorPlatform::default().scheduler("inter-static").is_ok());
    let cases: [(&str, &dyn Fn(&mut AcceleratorPlatform)); 14] = [
        ("t_read_ns has 2678400000000001 ns", &|p| p.t_read_ns = MONTH + 1),
        ("t_program_ns", &|p| p.t_program_ns = u64::MAX),
        ("t_schedule_ns", &|p| p.t_schedule_ns = u64::MAX),
        ("journal_period_ns has", &|p| p.journal_period_ns = u64::MAX),
        ("t_ssd_ns", &|p| p.t_ssd_ns = u64::MAX),
        ("core_failures has 18446744073709551615 ns", &|p| p.core_failures = vec![(0, u64::MAX)]),
        ("die_failures has 18446744073709551615 ns", &|p| p.die_failures = vec![(0, 5), (1, u64::MAX)]),
        ("core_failures are [(6, 1)]; one of 6 workers stays", &|p| p.core_failures = vec![(6, 1)]),
        ("workers is 1048577; at most 1048576", &|p| p.workers = (1 << 20) + 1),
        ("dies is", &|p| p.dies = u64::MAX),
        ("blocks is", &|p| p.blocks = u64::MAX),
        ("worker_w must be from 0 to 1e9, not NaN", &|p| p.worker_w = f64::NAN),
        ("host_w must be from 0 to 1e9, not -1", &|p| p.host_w = -1.0),
        ("filled_share must be at least 0 and below 0.95, not 0.95", &|p| p.filled_share = 0.95),
    ];
    for (says, change) in cases {
        let found = with(change).unwrap_or_else(|| panic!("{says} is accepted"));
        assert!(found.contains(says), "{found}\nlacks {says}");
    }
}
