//! Tests of whole replays on small devices: results that follow from the parts together, and are the same in each run.

use super::*;
use crate::describe::{preset, preset_with};
use crate::workload::ArrayBox;
use crate::workload::{Arrival, Pattern, Size};
use std::io::Write;

fn run(device: &str, workload: Workload, precondition: Precondition) -> Result<Report, ReplayError> {
    let settings = ReplaySettings { workload, precondition, seed: 1, timeline: None };
    replay(&preset(device).unwrap(), &settings, &mut |_| true)
}

fn synthetic(requests: u64, change: impl FnOnce(&mut Synthetic)) -> Workload {
    let mut synthetic = Synthetic { requests: Some(requests), ..Synthetic::default() };
    change(&mut synthetic);
    Workload::Synthetic(synthetic)
}

#[test]
fn one_read_at_a_time_takes_what_the_parts_take() {
    let alone = synthetic(200, |s| s.arrival = Arrival::Closed { depth: 1 });
    let report = run("mqsim-ideal", alone, Precondition::Full).unwrap();
    let latency = report.read.latency.as_ref().unwrap();
    assert_eq!((report.read.requests, report.all.failed), (200, 0));
    assert!((88.0..90.0).contains(&latency.p50_us), "MQSim: 88.9 us; here {}", latency.p50_us);
    assert!((report.read.iops * latency.mean_us / 1e6 - 1.0).abs() < 0.01, "one at a time");
    assert!(report.flash.senses.host == 200 && report.energy.device_j > 0.0);
}

#[test]
fn reads_of_an_empty_device_touch_no_flash() {
    let report = run("tiny", synthetic(100, |_| {}), Precondition::Empty).unwrap();
    assert_eq!((report.read.requests, report.flash.senses.host), (100, 0));
    assert!(report.notes.contains(&"the device was empty".to_owned()));
}

#[test]
fn steady_writes_are_amplified_and_repeat_bit_for_bit() {
    let writes = || synthetic(5_000, |s| s.read_share = 0.3);
    let steady = Precondition::Steady { overwrites: 1.0 };
    let first = run("tiny", writes(), steady).unwrap();
    let management = first.management.as_ref().unwrap();
    assert!(management.write_amplification.unwrap() > 1.05, "{management:?}");
    assert!(first.flash.erases.gc > 0 && management.wear.max > 0);
    assert_eq!(first.all.requests + first.all.failed, 5_000);
    assert_eq!(first, run("tiny", writes(), steady).unwrap());
    let other = synthetic(5_000, |s| (s.read_share, s.seed) = (0.3, 2));
    assert_ne!(first.hash, run("tiny", other, steady).unwrap().hash);
}

#[test]
fn sequential_streams_and_flushes_and_trims() {
    let mixed = synthetic(2_000, |s| {
        s.read_share = 0.4;
        s.trim_share = 0.1;
        s.flush_every = 50;
        s.pattern = Pattern::Sequential;
        s.sizes = vec![Size { bytes: 16_384, weight: 1.0 }, Size { bytes: 4_096, weight: 1.0 }];
        s.streams = 3;
    });
    let report = run("tiny", mixed, Precondition::Full).unwrap();
    assert_eq!(report.all.requests, 2_000);
    assert!(report.flush.requests > 10 && report.trim.requests > 100);
}

#[test]
fn an_open_loop_keeps_its_rate_while_it_can() {
    let slow = synthetic(1_000, |s| s.arrival = Arrival::Poisson { per_s: 1_000.0 });
    let report = run("mqsim-ideal", slow, Precondition::Full).unwrap();
    assert!((report.read.iops / 1_000.0 - 1.0).abs() < 0.1, "{}", report.read.iops);
    assert!(report.read.latency.unwrap().p50_us < 95.0);
}

#[test]
fn a_trace_with_pauses_and_a_malformed_one() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(file, "fio version 2 iolog\na add\na open\na read 0 4096\na wait 1000 0\na read 8192 4096\na close")
        .unwrap();
    let trace = |file: &tempfile::NamedTempFile| Workload::Trace {
        path: file.path().to_owned(),
        settings: TraceSettings::default(),
    };
    let report = run("mqsim-ideal", trace(&file), Precondition::Full).unwrap();
    assert_eq!(report.read.requests, 2);
    assert!((report.elapsed_s - 0.001_089).abs() < 2e-6, "the second waited until 1 ms: {}", report.elapsed_s);
    assert!(report.read.latency.unwrap().max_us < 90.0, "and its latency begins there");
    writeln!(file, "a read 0").unwrap();
    let error = run("mqsim-ideal", trace(&file), Precondition::Full).unwrap_err().to_string();
    assert!(error.starts_with("line 8 of an fio iolog: expected a length in bytes"), "{error}");
}

#[test]
fn a_replay_can_be_watched_and_ended() {
    let settings = ReplaySettings {
        workload: synthetic(100_000, |_| {}),
        precondition: Precondition::Steady { overwrites: 0.5 },
        seed: 1,
        timeline: None,
    };
    let mut heard = Vec::new();
    let error = replay(&preset("tiny").unwrap(), &settings, &mut |phase| {
        heard.push(phase);
        heard.len() < 3
    });
    assert!(matches!(error, Err(ReplayError::Interrupted)));
    assert_eq!(heard[0], ReplayPhase::Preconditioning(0.0));
    let ReplayPhase::Replaying { share: Some(share), requests, .. } = heard[2] else { panic!("{heard:?}") };
    assert!(share > 0.0 && share < 1.0 && requests > 0);
}

#[test]
fn a_timeline_has_the_request_and_all_that_it_needed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.pftrace");
    let timeline = |spans_max| Some(TimelineSettings { path: path.clone(), spans_max, from_s: 0.0, until_s: None });
    let settings = |spans_max| ReplaySettings {
        workload: synthetic(10, |s| s.arrival = Arrival::Closed { depth: 1 }),
        precondition: Precondition::Full,
        seed: 1,
        timeline: timeline(spans_max),
    };
    let description = preset("mqsim-ideal").unwrap();
    let report = replay(&description, &settings(1_000), &mut |_| true).unwrap();
    assert!(!report.notes.iter().any(|n| n.contains("timeline")), "{:?}", report.notes);
    let bytes = std::fs::read(&path).unwrap();
    let has = |word: &str| bytes.windows(word.len()).any(|w| w == word.as_bytes());
    for word in ["mqsim-ideal", "channel ", "bus", "way ", "to the host", "sense"] {
        assert!(has(word), "{word} is not in the timeline");
    }
    let report = replay(&description, &settings(5), &mut |_| true).unwrap();
    assert!(report.notes.iter().any(|n| n.contains("first 5 spans")), "{:?}", report.notes);
    let nowhere = ReplaySettings {
        timeline: Some(TimelineSettings { path: folder.path().join("no/such"), ..timeline(1).unwrap() }),
        ..settings(1)
    };
    assert!(matches!(replay(&description, &nowhere, &mut |_| true), Err(ReplayError::Timeline(_))));
}

#[test]
fn settings_are_json_and_out_of_range_is_refused() {
    let text =
        r#"{"workload": {"synthetic": {"requests": 5}}, "precondition": {"kind": "steady", "overwrites": 1000}}"#;
    let settings: ReplaySettings = serde_json::from_str(text).unwrap();
    let error = replay(&preset("tiny").unwrap(), &settings, &mut |_| true).unwrap_err().to_string();
    assert!(error.contains("overwrites of the device must be above 0 and at most 100, not 1000"), "{error}");
    let text =
        r#"{"workload": {"trace": {"path": "x", "settings": {"depth": 4}}}, "timeline": {"path": "y", "from_s": -1}}"#;
    let settings: ReplaySettings = serde_json::from_str(text).unwrap();
    let error = replay(&preset("tiny").unwrap(), &settings, &mut |_| true).unwrap_err().to_string();
    assert!(error.contains("begins at second -1"), "{error}");
}

#[test]
fn a_column_of_rows_is_bound_by_the_channels_it_lies_in() {
    // mqsim-ideal has 8 channels of 333 MB/s and pages of 8 KiB, striped over channels first. A row of 64 KiB lies on
    // all channels, an eighth of a row on one.
    let read = |start: u64, count: u64| {
        let boxes = Boxes {
            write: false,
            shape: vec![2048, 8192],
            item_bytes: 8,
            offset_bytes: 0,
            boxes: vec![ArrayBox { start: vec![0, start], count: vec![2048, count] }],
            request_bytes_max: 2 << 20,
            depth: 64,
        };
        run("mqsim-ideal", Workload::Boxes(boxes), Precondition::Full).unwrap().read
    };
    let (all, one) = (read(0, 8192), read(1024, 1024));
    assert_eq!((all.requests, one.requests), (64, 2048));
    assert!((one.bytes_per_s / 333e6 - 1.0).abs() < 0.1, "{} B/s of one channel", one.bytes_per_s);
    assert!(all.bytes_per_s > 7.0 * one.bytes_per_s, "{} and {} B/s", all.bytes_per_s, one.bytes_per_s);
}

/// Replays random writes of whole pages on a small device, after this preconditioning; returns the report.
fn random_writes(gc: &str, precondition: Precondition) -> Report {
    let overrides = [
        ("geometry.channels", "2"),
        ("geometry.ways", "1"),
        ("geometry.blocks", "128"),
        ("geometry.pages", "64"),
        ("ftl.over_provisioning", "20 %"),
        ("ftl.gc_threshold", "4 %"),
        ("ftl.gc_urgent_blocks", "3"),
        ("ftl.gc", gc),
    ];
    let workload = synthetic(60_000, |s| {
        s.read_share = 0.0;
        s.sizes = vec![Size { bytes: 8_192, weight: 1.0 }];
    });
    let settings = ReplaySettings { workload, precondition, seed: 1, timeline: None };
    replay(&preset_with("mqsim-ideal", &overrides).unwrap(), &settings, &mut |_| true).unwrap()
}

#[test]
fn a_laid_out_device_runs_as_one_that_was_overwritten_twice() {
    for gc in ["greedy", "d-choices", "cost-benefit", "round-robin"] {
        let [laid, written] =
            [Precondition::LaidOut, Precondition::Steady { overwrites: 2.0 }].map(|state| random_writes(gc, state));
        let amplification = |r: &Report| r.management.as_ref().unwrap().write_amplification.unwrap();
        let (more, faster) = (amplification(&laid) / amplification(&written), laid.write.iops / written.write.iops);
        eprintln!(
            "{gc}: write amplification {:.3}, {more:.3}; IOPS {:.0}, {faster:.3}",
            amplification(&laid),
            laid.write.iops
        );
        assert!((more - 1.0).abs() < 0.05, "{gc}: write amplification {more:.3} of the overwritten device's");
        assert!((faster - 1.0).abs() < 0.05, "{gc}: IOPS {faster:.3} of the overwritten device's");
        assert_eq!((laid.all.requests, laid.all.failed), (60_000, 0));
    }
}

#[test]
fn a_drive_of_full_size_is_laid_out() {
    let writes = synthetic(2_000, |s| s.read_share = 0.5);
    let report = run("samsung-970-pro", writes, Precondition::LaidOut).unwrap();
    let management = report.management.unwrap();
    assert_eq!((management.live_pages * 4096, management.wear.max), (management.capacity_bytes, 0));
    assert!(
        report.flash.senses.host > 900 && report.notes.iter().any(|n| n.contains("laid out")),
        "{:?}",
        report.notes
    );
    let cached = run("mqsim-default", synthetic(1, |_| {}), Precondition::LaidOut).unwrap_err().to_string();
    assert!(cached.contains("map is cached") && cached.contains("a number of overwrites"), "{cached}");
}

#[test]
fn a_host_core_that_is_the_bound_is_told() {
    let reads = |streams| {
        synthetic(20_000, |s| {
            s.arrival = Arrival::Closed { depth: 512 };
            s.streams = streams;
        })
    };
    // One core submits and completes a request in 1.5 us.
    let one = run("tlc-enterprise", reads(1), Precondition::Full).unwrap();
    assert!((one.read.iops / 666_667.0 - 1.0).abs() < 0.02, "{} IOPS", one.read.iops);
    let note = one.notes.iter().find(|n| n.contains("the bound")).unwrap_or_else(|| panic!("{:?}", one.notes));
    assert!(note.contains("host core 0") && note.contains("1.50 us a request"), "{note}");
    let many = run("tlc-enterprise", reads(8), Precondition::Full).unwrap();
    assert!(many.read.iops > 1.5 * one.read.iops);
    assert!(!many.notes.iter().any(|n| n.contains("the bound")), "{:?}", many.notes);
    // Polling does not count as work, and a single request in flight waits for the flash.
    let alone = synthetic(200, |s| s.arrival = Arrival::Closed { depth: 1 });
    let alone = run("tlc-enterprise", alone, Precondition::Full).unwrap();
    assert!(!alone.notes.iter().any(|n| n.contains("the bound")), "{:?}", alone.notes);
}

/// A callback that ends the replay at its n-th call ends it there, whatever the replay was doing.
#[test]
fn a_replay_can_be_ended_at_any_report() {
    let settings = |timeline| ReplaySettings {
        workload: synthetic(70_000, |_| {}),
        precondition: Precondition::Steady { overwrites: 0.3 },
        seed: 1,
        timeline,
    };
    let description = preset("tiny").unwrap();
    let mut all = Vec::new();
    let whole = replay(&description, &settings(None), &mut |phase| {
        all.push(phase);
        true
    })
    .unwrap();
    assert!(all.len() >= 5, "{all:?}");
    let mut last = (0, 0, Ps::ZERO);
    for phase in all.iter().filter_map(|phase| match *phase {
        ReplayPhase::Replaying { share, requests, bytes, now } => Some((share, requests, bytes, now)),
        ReplayPhase::Preconditioning(_) => None,
    }) {
        let (share, requests, bytes, now) = phase;
        assert!(requests > last.0 && bytes > last.1 && now > last.2, "{phase:?} after {last:?}");
        assert_eq!((bytes, requests % (1 << 14)), (4096 * requests, 0), "{phase:?}");
        assert!(share.is_some_and(|share| share * 70_000.0 >= requests as f64), "{phase:?}");
        last = (requests, bytes, now);
    }
    for stop in 1..=all.len() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.pftrace");
        let timeline = TimelineSettings { path, spans_max: 1_000, from_s: 0.0, until_s: None };
        let mut heard = Vec::new();
        let ended = replay(&description, &settings(Some(timeline)), &mut |phase| {
            heard.push(phase);
            heard.len() < stop
        });
        assert!(matches!(ended, Err(ReplayError::Interrupted)), "stopped at report {stop}");
        assert_eq!(heard, all[..stop], "stopped at report {stop}: nothing is reported afterwards");
    }
    assert_eq!(whole.all.requests, 70_000);
}

/// Requests of a trace are submitted in order at their times, scaled; in a closed loop as soon as there is room.
#[test]
fn a_trace_keeps_its_order_and_its_pace() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut chance = fastrand::Rng::with_seed(12);
    let mut times = vec![0u64];
    (1..400).for_each(|n| times.push(times[n - 1] + chance.u64(0..200_000)));
    for (n, ns) in times.iter().enumerate() {
        let (s, ns) = (ns / 1_000_000_000, ns % 1_000_000_000);
        let op = ["R", "W"][n % 2];
        writeln!(file, "8,0 {} {n} {s}.{ns:09} 1 Q {op} {} + 8 [x]", n % 3, 8 * n).unwrap();
    }
    let device = preset("tiny").unwrap();
    let run = |settings: TraceSettings| {
        let mut machine = Machine::new(&device, 1, None);
        machine.attach_blocks(1).unwrap();
        machine.ftl().fill_sequential().unwrap();
        let mut source = Trace::open(file.path(), settings, machine.capacity_bytes()).unwrap();
        let mut ended = Vec::new();
        machine.drive(&mut source, &mut |one| ended.push(*one), &mut |_| true).unwrap();
        ended.sort_by_key(|one| (one.arrived, one.request.offset_bytes));
        (ended, machine.now())
    };
    for scale in [1.0, 0.25, 3.0] {
        let (ended, _) = run(TraceSettings { time_scale: scale, ..TraceSettings::default() });
        assert_eq!(ended.len(), 400);
        for (n, one) in ended.iter().enumerate() {
            let wanted = (times[n] as f64 * 1e3 * scale) as u64;
            assert_eq!((one.arrived, one.request.offset_bytes), (Ps(wanted), 4096 * n as u64), "scale {scale}");
        }
    }
    let closed = |depth| run(TraceSettings { depth: Some(depth), ..TraceSettings::default() });
    let (one_by_one, slow) = closed(1);
    for two in one_by_one.windows(2) {
        assert_eq!(two[1].arrived, two[0].done, "the next one is submitted when one has ended");
    }
    let (_, fast) = closed(16);
    assert!(fast < slow, "{fast} with 16 in flight, {slow} with one");
    let (some, _) = run(TraceSettings { requests: Some(7), ..TraceSettings::default() });
    assert_eq!(some.len(), 7);
}

/// An error in the middle of a trace ends the replay with the line, after the requests before it have ended.
#[test]
fn a_trace_that_fails_in_the_middle_is_replayed_up_to_there() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for n in 0..50 {
        writeln!(file, "{n},h,0,Write,{},4096,0", n * 4096).unwrap();
    }
    writeln!(file, "50,h,0,Erase,0,4096,0").unwrap();
    for depth in [None, Some(4)] {
        let mut machine = Machine::new(&preset("tiny").unwrap(), 1, None);
        machine.attach_blocks(1).unwrap();
        let settings = TraceSettings { depth, ..TraceSettings::default() };
        let mut source = Trace::open(file.path(), settings, machine.capacity_bytes()).unwrap();
        let mut ended = 0;
        let error = machine.drive(&mut source, &mut |_| ended += 1, &mut |_| true).unwrap_err().to_string();
        assert!(error.starts_with("line 51 of an MSR Cambridge CSV: expected Read or Write"), "{error}");
        assert_eq!((ended, machine.flash().counts.programs.iter().sum::<u64>()), (50, 50), "depth {depth:?}");
    }
}
