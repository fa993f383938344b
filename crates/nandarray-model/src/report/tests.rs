//! Tests of reports: their numbers are consistent, their JSON has the documented keys, and data sheets' figures are
//! compared only with matching workloads.

mod figures;

use super::*;
use crate::describe::{Energy, Spec, preset};
use crate::flash::{BusTime, DieTime, FlashEnergy};
use crate::spans::Track;
use crate::workload::{Arrival, Pattern, Size, Skew, Synthetic};

fn report() -> Report {
    let description = preset("mqsim-default").unwrap();
    let energy = Energy { dram_idle_uw: 1e6, controller_idle_uw: 2e6, link_idle_uw: 1e6, ..description.energy };
    let now = Ps::from_ms(10);
    let mut link = HostLink::new(&description.link, &energy);
    link.send(Ps::ZERO, Direction::Up, 4 << 20);
    let mut dram = DevicePort::new(|_| Track::Dram, 8_000_000_000, description.dram.t_access, energy.dram_pj_per_byte);
    dram.transfer(Ps::ZERO, 4 << 20);
    let mut cpu = HostCpu::new(&description.host, &energy);
    cpu.submit(Ps::ZERO, 0);
    cpu.complete(Ps::from_us(200), 0);
    let mut latencies = Latencies::default();
    for n in 0..1000 {
        latencies.record(RequestOp::Read, 4096, Ps::from_us(n), Ps::from_us(n + 90), true);
        latencies.record(RequestOp::Write, 4096, Ps::from_us(n), Ps::from_us(n + 20), n != 7);
    }
    let flash = FlashAccount {
        elapsed: now,
        counts: Default::default(),
        in_flight: 0,
        channels: vec![BusTime { command: Ps::from_ms(1), data_in: Ps::from_ms(2), data_out: Ps::from_ms(3) }; 8],
        dies: vec![DieTime { sense: Ps::from_ms(5), ..Default::default() }; 64],
        energy: FlashEnergy { sense_pj: 1e9, idle_pj: 2e9, ..Default::default() },
    };
    let parts = MachineParts {
        device: &description.name,
        energy: &energy,
        seed: 1,
        hash: 0xabc,
        now,
        flash: &flash,
        ftl: None,
        link: &link,
        cpu: &cpu,
        dram: &dram,
        cores: vec![Ps::from_ms(4), Ps::ZERO],
        cores_pj: (3e9, 1e9),
        compute: None,
        slept: vec![Slept { power_uw: 5e3, lasted: Ps::from_ms(1), entered: 2 }],
    };
    Report::new(&parts, &latencies)
}

#[test]
fn parts_add_up() {
    let report = report();
    report.check().unwrap();
    assert_eq!((report.all.requests, report.all.failed), (1999, 1));
    assert_eq!(report.elapsed_s, 1.089e-3);
    assert_eq!((report.utilisation.channels.len(), report.utilisation.channels[0]), (8, 0.6));
    assert_eq!((report.utilisation.dies[63], report.utilisation.cores[0]), (0.5, 0.4));
    // Of 10 ms, the device was awake for 9.
    assert_eq!((report.energy.dram_idle_j, report.energy.controller_idle_j), (0.009, 0.018));
    assert!((report.energy.asleep_j - 5e-6).abs() < 1e-15, "{}", report.energy.asleep_j);
    assert_eq!(report.idle_states, [IdleReport { power_w: 5e-3, asleep_s: 1e-3, entered: 2 }]);
    assert!((report.energy.device_w - report.energy.device_j / 0.01).abs() < 1e-12);
    let lost = Report { all: OpReport::default(), ..report.clone() };
    assert_eq!(lost.check(), Err(ReportImbalance::Requests { by_op: 2000, all: 0 }));
    let mut hot = report.clone();
    hot.utilisation.dies[3] = 1.5;
    assert_eq!(hot.check(), Err(ReportImbalance::Busy { what: "die", share: 1.5 }));
    let mut free = report;
    free.energy.cores_j = 0.0;
    assert!(matches!(free.check(), Err(ReportImbalance::Energy { .. })));
}

/// Appends every key of a JSON value to `found`, with dots between levels; a list of numbers is one key.
fn keys(value: &serde_json::Value, path: &str, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, value) in map {
                keys(value, &format!("{path}{}{key}", if path.is_empty() { "" } else { "." }), found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

#[test]
fn the_json_is_the_documented_one() {
    let mut report = report();
    report.management = Some(ManagementReport::default());
    let value: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!(value["read"]["latency"]["p99_99_us"], 90.0);
    assert_eq!(value["hash"], "0000000000000abc");
    let mut found = Vec::new();
    keys(&value, "", &mut found);
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/replay-report.md")).unwrap();
    let documented: std::collections::BTreeSet<&str> =
        page.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`').map(|(key, _)| key)).collect();
    // Reports of operations and of causes have the same fields each, which the documentation lists once.
    let mut seen = std::collections::BTreeSet::new();
    for key in &found {
        let mut parts: Vec<&str> = key.split('.').collect();
        if ["all", "read", "write", "trim", "flush"].contains(&parts[0]) && parts.len() > 1 {
            parts[0] = "OP";
        }
        if ["host", "map", "gc", "wear"].contains(parts.last().unwrap()) && parts[0] == "flash" {
            *parts.last_mut().unwrap() = "CAUSE";
        }
        seen.insert(parts.join("."));
    }
    let missing: Vec<_> = seen.iter().filter(|k| !documented.contains(k.as_str())).collect();
    assert!(missing.is_empty(), "not in docs/reference/replay-report.md: {missing:#?}");
    let listed = |k: &str| ["promises.", "idle_states.", "programs.", "pace."].iter().any(|part| k.starts_with(part));
    let gone: Vec<_> = documented.iter().filter(|k| !seen.contains(**k) && !listed(k)).collect();
    assert!(gone.is_empty(), "documented, but not there: {gone:#?}");
}

#[test]
fn only_promises_of_such_a_workload_are_compared() {
    let report = report();
    let spec = Spec {
        seq_read_bytes_per_s: Some(3_500_000_000),
        rand_read_iops: Some(1_000_000),
        read_latency: Some(Ps::from_us(100)),
        power_uw: Some(5_000_000),
        queue_depth: 32,
        claims_match: true,
        ..Spec::default()
    };
    let whats = |synthetic: &Synthetic| -> Vec<&str> {
        promise::promises(&spec, WorkloadProfile::of(synthetic), &report).iter().map(|p| p.what).collect()
    };
    let random = Synthetic::default();
    assert_eq!(whats(&random), ["random 4 KiB read"]);
    assert_eq!(whats(&Synthetic { arrival: Arrival::Closed { depth: 1 }, ..random.clone() }), ["4 KiB read alone"]);
    let sequential =
        Synthetic { pattern: Pattern::Sequential, sizes: vec![Size { bytes: 131_072, weight: 1.0 }], ..random.clone() };
    assert_eq!(whats(&sequential), ["sequential read", "power while busy"]);
    assert_eq!(whats(&Synthetic { read_share: 0.0, ..sequential }), ["power while busy"], "no promise of writes here");
    assert!(whats(&Synthetic { skew: Skew::Zipf { theta: 1.0 }, ..random.clone() }).is_empty());
    assert!(whats(&Synthetic { arrival: Arrival::Constant { per_s: 1.0 }, ..random.clone() }).is_empty());
    let alone = &promise::promises(&spec, WorkloadProfile::RandomRead { depth: 1 }, &report)[0];
    assert_eq!((alone.measured, alone.ratio, alone.claimed), (90.0, 0.9, true));
}

#[test]
fn the_text_has_what_one_looks_for() {
    let mut report = report();
    report.notes.push("3 requests lay beyond the device".into());
    let text = report.to_string();
    for part in [
        "mqsim-default: 1999 requests in 0.001089 s, 1 failed",
        "p99.99",
        "read",
        "90.0",
        "channels 60.0 %",
        "cores 20.0 % (0.0 % to 40.0 %)",
        "energy",
        "note: 3 requests",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
}
