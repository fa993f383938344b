//! Figures of reports beside lists and sums: latencies of all operations, the host as the bound, energy of parts,
//! promises of data sheets, components of timed cores.

use fastrand::Rng;

use crate::describe::{Compute, ComputeParts, Description, Spec, preset};
use crate::flash::{BusTime, DieTime, FlashAccount, FlashEnergy};
use crate::host::{DevicePort, Direction, HostCpu, HostLink};
use crate::report::promise::promises;
use crate::report::*;
use crate::spans::Track;
use nandarray_sim::Ps;

const OPS: [RequestOp; 4] = [RequestOp::Read, RequestOp::Write, RequestOp::Trim, RequestOp::Flush];

/// Operation, bytes, arrival, completion and success of a request.
type Ended = (RequestOp, u64, Ps, Ps, bool);

fn check_latency(got: &Latency, took: &mut [u64], what: &str) {
    took.sort_unstable();
    let us = |ps: u64| ps as f64 / 1e6;
    let mean = took.iter().map(|&ps| us(ps)).sum::<f64>() / took.len() as f64;
    assert!((got.mean_us - mean).abs() <= 1e-9 * mean + 1e-12, "{what}: mean {} instead of {mean}", got.mean_us);
    assert_eq!((got.min_us, got.max_us), (us(took[0]), us(took[took.len() - 1])), "{what}");
    for (share, got) in [(0.5, got.p50_us), (0.9, got.p90_us), (0.95, got.p95_us), (0.99, got.p99_us)] {
        let want = us(took[((share * took.len() as f64).ceil() as usize).max(1) - 1]);
        assert!(got >= want * (1.0 - 1e-9) && got <= want * 1.001 + 1e-6, "{what}: {share} is {got}, not {want}");
    }
    let drawn = &got.distribution;
    assert!((2..=65).contains(&drawn.len()) || took[0] == took[took.len() - 1], "{what}: {} points", drawn.len());
    for &(us_drawn, share) in drawn {
        // At most the share is faster than a point, and at least the share is no slower, to the histogram's precision.
        let no_slower = took.iter().filter(|&&ps| us(ps) <= us_drawn * (1.0 + 1e-9)).count() as f64;
        let faster = took.iter().filter(|&&ps| us(ps) < us_drawn * 0.999 - 1e-6).count() as f64;
        let n = took.len() as f64;
        assert!(no_slower + 1e-9 >= share * n, "{what}: {no_slower} of {n} within {us_drawn} us, said {share}");
        assert!(
            share == 0.0 || faster <= (share * n).ceil(),
            "{what}: {faster} of {n} below {us_drawn} us, said {share}"
        );
    }
}

#[test]
fn latencies_are_those_of_lists() {
    for seed in 0..60 {
        let mut chance = Rng::with_seed(seed);
        let mut latencies = Latencies::default();
        let ended: Vec<Ended> = (0..chance.usize(1..600))
            .map(|_| {
                let op = OPS[chance.usize(0..4).min(chance.usize(0..4))];
                let arrived = chance.u64(0..1 << 40);
                let bits = chance.u32(1..44);
                let took = chance.u64(0..1 << bits);
                (op, chance.u64(0..1 << 20), Ps(arrived), Ps(arrived + took), chance.u32(0..8) > 0)
            })
            .collect();
        ended.iter().for_each(|&(op, bytes, arrived, done, good)| latencies.record(op, bytes, arrived, done, good));
        let first = ended.iter().map(|e| e.2).min().unwrap();
        let elapsed = ended.iter().map(|e| e.3).max().unwrap() - first;
        assert_eq!(latencies.elapsed(), elapsed, "seed {seed}");
        let every = OPS.map(|op| (format!("{op:?}"), latencies.of(op), vec![op]));
        for (name, got, ops) in every.into_iter().chain([("all".to_owned(), latencies.all(), OPS.to_vec())]) {
            let what = format!("seed {seed}, {name}");
            let of: Vec<&Ended> = ended.iter().filter(|e| ops.contains(&e.0)).collect();
            let good: Vec<&&Ended> = of.iter().filter(|e| e.4).collect();
            let bytes: u64 = good.iter().map(|e| e.1).sum();
            let counts = (good.len() as u64, (of.len() - good.len()) as u64, bytes);
            assert_eq!((got.requests, got.failed, got.bytes), counts, "{what}");
            let seconds = elapsed.seconds();
            if elapsed > Ps::ZERO {
                assert!((got.iops * seconds - counts.0 as f64).abs() < 1e-6, "{what}: {} a second", got.iops);
                assert!((got.bytes_per_s * seconds - bytes as f64).abs() < 1e-3, "{what}: {} B/s", got.bytes_per_s);
            }
            let mut took: Vec<u64> = good.iter().map(|e| (e.3 - e.2).0).collect();
            assert_eq!(got.latency.is_some(), !took.is_empty(), "{what}");
            if let Some(latency) = &got.latency {
                check_latency(latency, &mut took, &what);
            }
        }
    }
    // Requests that take no time at all have no rate.
    let mut latencies = Latencies::default();
    latencies.record(RequestOp::Flush, 0, Ps(7), Ps(7), true);
    let flush = latencies.of(RequestOp::Flush);
    assert_eq!((flush.requests, flush.iops, flush.bytes_per_s), (1, 0.0, 0.0));
    assert_eq!(flush.latency.unwrap().max_us, 0.0);
}

/// The parts of a machine that rests at 10 ms: work of the host's cores, busy time of a die, programs' cores.
#[derive(Default)]
struct Parts {
    host: Vec<Ps>,
    die: Ps,
    channel: Ps,
    compute: Option<CoreTimes>,
    slept: Vec<Slept>,
    requests: u64,
}

fn report_of(d: &Description, parts: &Parts) -> Report {
    let now = Ps::from_ms(10);
    let mut link = HostLink::new(&d.link, &d.energy);
    link.send(Ps::ZERO, Direction::Down, 1 << 20);
    let mut dram = DevicePort::new(|_| Track::Dram, 8_000_000_000, Ps::ZERO, d.energy.dram_pj_per_byte);
    dram.transfer(Ps::ZERO, 1 << 20);
    let mut cpu = HostCpu::new(&d.host, &d.energy);
    for (core, &work) in (0..).zip(&parts.host) {
        cpu.work(Ps::ZERO, core, work);
    }
    let mut latencies = Latencies::default();
    for n in 0..parts.requests {
        let done = if n == 0 { now } else { Ps::from_us(5) };
        latencies.record(RequestOp::Read, 4_096, Ps::ZERO, done, true);
    }
    let flash = FlashAccount {
        elapsed: now,
        counts: Default::default(),
        in_flight: 0,
        channels: vec![BusTime { command: parts.channel, ..BusTime::default() }],
        dies: vec![DieTime::default(), DieTime { sense: parts.die, ..DieTime::default() }],
        energy: FlashEnergy {
            sense_pj: 3e9,
            program_pj: 5e9,
            erase_pj: 7e9,
            bus_pj: 11e9,
            ecc_pj: 13e9,
            idle_pj: 17e9,
            ..FlashEnergy::default()
        },
    };
    let report = Report::new(
        &MachineParts {
            device: &d.name,
            energy: &d.energy,
            seed: 1,
            hash: 2,
            now,
            flash: &flash,
            ftl: None,
            link: &link,
            cpu: &cpu,
            dram: &dram,
            cores: vec![Ps::from_ms(2)],
            cores_pj: (19e9, 23e9),
            compute: parts.compute.clone(),
            slept: parts.slept.clone(),
        },
        &latencies,
    );
    report.check().unwrap_or_else(|e| panic!("{e}"));
    report
}

#[test]
fn a_host_core_is_the_bound_only_if_it_is_always_busy_and_the_device_is_not() {
    let d = preset("tiny").unwrap();
    let us = Ps::from_us;
    let note = |host: &[Ps], die: Ps, channel: Ps, requests: u64| {
        let host = host.to_vec();
        report_of(&d, &Parts { host, die, channel, requests, ..Parts::default() }).notes
    };
    let half = us(5_000);
    assert_eq!(
        note(&[us(9_500)], half, us(1_000), 1_000),
        ["host core 0, which works for one stream's queue, was the bound: 95.0 % busy at 9.50 us a request \
          (host.t_submit, host.t_complete), while no part of the device was busy for more than 50.0 % of the time \
          (die); more streams use more host cores"]
    );
    let of = note(&[us(400), us(9_600), us(9_990), us(10)], half, us(6_000), 4_000);
    assert_eq!(
        of,
        ["2 host cores were the bound: 99.9 % busy at 5.00 us a request (host.t_submit, host.t_complete), while no \
             part of the device was busy for more than 60.0 % of the time (channel); more streams use more host cores"]
    );
    for (host, die, channel, requests) in [
        (us(9_499), half, half, 1_000),
        (us(10_000), us(9_500), half, 1_000),
        (us(10_000), half, us(9_999), 1_000),
        (us(10_000), half, half, 0),
        (Ps::ZERO, half, half, 5),
    ] {
        assert!(
            note(&[host], die, channel, requests).is_empty(),
            "{host} of host core 0, die {die}, channel {channel}"
        );
    }
}

#[test]
fn energy_is_the_sum_of_parts_and_idle_power_counts_while_awake() {
    let mut d = preset("tiny").unwrap();
    (d.energy.dram_idle_uw, d.energy.link_idle_uw, d.energy.controller_idle_uw) = (1e6, 2e6, 4e6);
    (d.energy.dram_pj_per_byte, d.energy.link_pj_per_byte) = (100.0, 1_000.0);
    d.energy.host_core_active_uw = 8e6;
    let slept = vec![
        Slept { power_uw: 5e5, lasted: Ps::from_ms(2), entered: 3 },
        Slept { power_uw: 1e5, lasted: Ps::from_ms(3), entered: 1 },
    ];
    let times = CoreTimes { worked: vec![Ps::from_ms(1), Ps::from_ms(4)], waited: vec![], energy_pj: (29e9, 31e9) };
    let parts = Parts { host: vec![Ps::from_ms(3)], compute: Some(times), slept, requests: 10, ..Parts::default() };
    let report = report_of(&d, &parts);
    let energy = &report.energy;
    let near = |what: &str, got: f64, want: f64| assert!((got - want).abs() <= 1e-9 * want, "{what}: {got} of {want}");
    // Of 10 ms the device was awake for 5.
    for (what, got, want) in [
        ("DRAM at rest", energy.dram_idle_j, 5e-3),
        ("the link at rest", energy.link_idle_j, 10e-3),
        ("the controller", energy.controller_idle_j, 20e-3),
        ("asleep", energy.asleep_j, 0.5 * 2e-3 + 0.1 * 3e-3),
        ("host cores", energy.host_cores_j, 8.0 * 3e-3),
        ("DRAM", energy.dram_j, f64::from(1 << 20) * 100e-12),
    ] {
        near(what, got, want);
    }
    // Flash, cores and programs' cores: prime numbers of mJ, so that none is counted twice.
    let primes = [energy.sense_j, energy.program_j, energy.erase_j, energy.bus_j, energy.ecc_j, energy.die_idle_j];
    assert_eq!(primes.map(|j| (j * 1e3).round() as u32), [3, 5, 7, 11, 13, 17]);
    let cores = [energy.cores_j, energy.cores_idle_j, energy.compute_j, energy.compute_idle_j];
    assert_eq!(cores.map(|j| (j * 1e3).round() as u32), [19, 23, 29, 31]);
    let of_parts: f64 = energy.parts().iter().map(|(_, j)| j).sum();
    near("the device", energy.device_j, of_parts);
    near("power", energy.device_w, of_parts / 10e-3);
    near("a byte", energy.device_j_per_byte.unwrap(), of_parts / 40_960.0);
    let mut names: Vec<&str> = energy.parts().iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 16, "each part has a name of its own");
    assert_eq!(report.utilisation.compute, [0.1, 0.4]);
    let deepest = &report.idle_states[1];
    near("power of the deepest state", deepest.power_w, 0.1);
    assert_eq!((deepest.asleep_s, deepest.entered), (3e-3, 1));
    let none = report_of(&d, &Parts::default());
    assert_eq!((none.energy.device_j_per_byte, none.elapsed_s, none.until_rest_s), (None, 0.0, 10e-3));
}

#[test]
fn each_profile_has_its_own_promises() {
    let d = preset("tiny").unwrap();
    let report = report_of(&d, &Parts { requests: 4, ..Parts::default() });
    let spec = Spec {
        seq_read_bytes_per_s: Some(2_000_000),
        seq_write_bytes_per_s: Some(3_000_000),
        rand_read_iops: Some(800),
        rand_write_iops: Some(900),
        queue_depth: 16,
        read_latency: Some(Ps::from_us(80)),
        power_uw: Some(4_000_000),
        ..Spec::default()
    };
    use WorkloadProfile::{Other, RandomRead, RandomWrite, SequentialRead, SequentialWrite};
    let found = |spec: &Spec, profile| {
        promises(spec, profile, &report)
            .into_iter()
            .map(|p| (p.what, p.unit, p.promised, p.measured))
            .collect::<Vec<_>>()
    };
    let watts = ("power while busy", "W", 4.0, report.energy.device_w);
    let read = report.read.bytes_per_s;
    assert_eq!(found(&spec, SequentialRead), [("sequential read", "B/s", 2e6, read), watts]);
    assert_eq!(found(&spec, SequentialWrite), [("sequential write", "B/s", 3e6, 0.0), watts]);
    let iops = ("random 4 KiB read", "IOPS", 800.0, report.read.iops);
    assert_eq!(found(&spec, RandomRead { depth: 16 }), [iops]);
    assert!(found(&spec, RandomRead { depth: 15 }).is_empty(), "fewer in flight than the data sheet says");
    let alone = ("4 KiB read alone", "us", 80.0, report.read.latency.as_ref().unwrap().mean_us);
    assert_eq!(found(&spec, RandomRead { depth: 1 }), [alone]);
    assert_eq!(found(&Spec { queue_depth: 1, ..spec.clone() }, RandomRead { depth: 1 }), [iops, alone]);
    assert_eq!(found(&spec, RandomWrite { depth: 99 }), [("random 4 KiB write", "IOPS", 900.0, 0.0)]);
    assert!(found(&spec, Other).is_empty());
    let zero = Spec { seq_read_bytes_per_s: Some(0), power_uw: None, ..spec.clone() };
    assert!(found(&zero, SequentialRead).is_empty(), "nothing is promised");
    let claimed = promises(&Spec { claims_match: true, ..spec }, SequentialRead, &report);
    assert!(claimed.iter().all(|p| p.claimed && (p.ratio - p.measured / p.promised).abs() < 1e-12));
}

#[test]
fn components_share_the_energy_of_the_cores() {
    let mut chance = Rng::with_seed(5);
    let compute: Compute = preset("assasin").unwrap().compute.unwrap();
    for _ in 0..200 {
        let mut parts = ComputeParts::default();
        for n in 0..9 {
            parts.power_uw[n] = if chance.bool() { 0.0 } else { f64::from(chance.u32(1..9_000)) };
            parts.area_mm2[n] = if chance.bool() { 0.0 } else { chance.f64() };
        }
        let compute = Compute { cores: chance.u32(1..20), parts, ..compute.clone() };
        let times = CoreTimes { energy_pj: (chance.f64() * 1e12, chance.f64() * 1e11), ..CoreTimes::default() };
        let programs = ProgramsReport {
            instructions: chance.u64(0..3) * 500,
            ticks_by_reason: vec![("issue", 3_000), ("memory", 500)],
            entry_ticks: 700,
            cache_counts: [[5, 1, 0, 0], [0; 4], [0, 0, 2, 1]],
            line_counts: [1, 2, 3],
            ..ProgramsReport::default()
        };
        let timed =
            TimedParts { compute: &compute, tick: (500, 2), times: &times, dram_bytes: 9, traffic: (4, 5, 6, 7) };
        let report = TimedCoresReport::new(&timed, &programs);
        let counts = |n: usize| if ComputeParts::NAMES[n] == "crossbar" { 1 } else { compute.cores };
        let there = (0..9).filter(|&n| parts.power_uw[n] > 0.0 || parts.area_mm2[n] > 0.0);
        let want: Vec<(&str, u32)> = there.map(|n| (ComputeParts::NAMES[n], counts(n))).collect();
        assert_eq!(report.components.iter().map(|c| (c.name, c.count)).collect::<Vec<_>>(), want);
        let power: f64 = (0..9).map(|n| parts.power_uw[n] * f64::from(counts(n)) * 1e-6).sum();
        let sum = |of: fn(&ComponentReport) -> f64| report.components.iter().map(of).sum::<f64>();
        let near =
            |what: &str, got: f64, want: f64| assert!((got - want).abs() <= 1e-9 * want, "{what}: {got} of {want}");
        near("power", sum(|c| c.power_w), power);
        let energy = (times.energy_pj.0 + times.energy_pj.1) * 1e-12;
        near("energy", sum(|c| c.energy_j), if power > 0.0 { energy } else { 0.0 });
        near("area", report.area_mm2, (0..9).map(|n| parts.area_mm2[n] * f64::from(counts(n))).sum());
        // Two ticks of 500 ps are a cycle.
        assert_eq!(report.cycles, 2_100.0);
        assert_eq!(report.cpi, if programs.instructions == 0 { 0.0 } else { 2_100.0 / programs.instructions as f64 });
        let seconds = [("issue", 1.5e-6), ("memory", 0.25e-6), ("entry_points", 0.35e-6)];
        for ((name, got), (wanted, want)) in report.seconds_by_reason.iter().zip(seconds) {
            assert_eq!(*name, wanted);
            near(name, *got, want);
        }
        let caches: Vec<_> = report.caches.iter().map(|c| (c.name, c.reads, c.write_misses)).collect();
        assert_eq!(caches, [("l1i", 5, 0), ("l2", 0, 1)], "a cache that was not used is none");
        let lines = (report.lines_read, report.lines_written, report.lines_prefetched);
        assert_eq!((lines, report.crossbar_bytes, report.pages_between_cores), ((1, 2, 3), 4, 7));
    }
}
