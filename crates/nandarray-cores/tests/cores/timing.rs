//! Cores that count: a described core and a profiled one give the interpreter's results, and their figures add up; a
//! core that cannot run a program says what it lacks.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use nandarray_cores::{BorrowedTask, Bounds, Core, CoreTimer, Profiler, Program, TaskPlace, check, timed_core};
use nandarray_uarch::{CoreDescription, TimedCore};
use serde_json::json;

use crate::common::{by_hand, elf};

fn described(name: &str, changes: &[(&str, &str)]) -> CoreDescription {
    CoreDescription::parse_with(CoreDescription::preset_text(name).unwrap(), changes)
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Runs tasks of random lengths on a core; returns what they left, and the instructions of all calls.
fn play(core: &mut Core<'_>, seed: u64) -> (Vec<Vec<u8>>, Vec<u8>, u64) {
    let stop = AtomicBool::new(false);
    let bounds = Bounds { instructions: Some(1 << 20), stop: &stop };
    let mut chance = fastrand::Rng::with_seed(seed);
    let scalars = [99, 99, 99];
    core.begin(&scalars, 0, bounds).unwrap();
    let mut all = Vec::new();
    for number in 0..chance.u64(1..6) {
        let input: Vec<u8> = (0..8 * chance.usize(..50)).map(|_| chance.u8(..)).collect();
        let records = input.len() as u64 / 8;
        let task = BorrowedTask { number, first_record: 0, records, place: &TaskPlace::default(), inputs: &[&input] };
        let mut outputs = vec![Vec::new(), Vec::new()];
        core.task(&scalars, task, &mut outputs, bounds).unwrap();
        all.append(&mut outputs);
    }
    let mut outputs = vec![Vec::new(), Vec::new()];
    core.end(&scalars, 9, &mut outputs, bounds).unwrap();
    all.append(&mut outputs);
    (all, core.state().unwrap(), core.instructions())
}

#[test]
fn a_timed_core_computes_what_the_interpreter_does_and_its_ticks_add_up() {
    let program = Program::from_elf(&by_hand(), None).unwrap();
    for (name, isa) in [("lwp", "rv64gc"), ("c66x", "rv64gc"), ("five-stage", "rv64im")] {
        let timer = CoreTimer::new(described(name, &[("isa", isa)]));
        let mut wanted = Vec::new();
        for seed in 0..4 {
            let mut plain = Core::interpreter(&program).unwrap();
            let mut timed = timer.core(&program).unwrap();
            let (ours, theirs) = (play(&mut timed, seed), play(&mut plain, seed));
            assert_eq!(ours, theirs, "{name}, seed {seed}");
            wanted.push(theirs.2);
        }
        let found = timer.take();
        assert_eq!(found.reports.len(), wanted.len(), "{name}");
        let (mut ticks, mut executed) = (0, 0);
        for ((report, calls), instructions) in found.reports.iter().zip(&found.calls).zip(&wanted) {
            assert_eq!(report.instructions(), *instructions, "{name}");
            let reasons: u64 = report.reasons().iter().map(|(_, ticks)| ticks).sum();
            assert_eq!(reasons, report.ticks, "{name}: ticks by reason");
            let marks: Vec<u64> = calls.iter().map(|mark| mark.iter().map(|(_, ticks)| ticks).sum()).collect();
            assert!(marks.is_sorted() && marks.len() >= 2, "{name}: {marks:?}");
            assert_eq!((marks[0], marks.last()), (0, Some(&report.ticks)), "{name}");
            (ticks, executed) = (ticks + report.ticks, executed + instructions);
        }
        let by_address = found.addresses.values().fold((0, 0), |(t, n), a| (t + a.total(), n + a.times));
        assert_eq!(by_address, (ticks, executed), "{name}: ticks and executions by address");
        assert!(timer.take().reports.is_empty(), "figures are taken once");
    }
    // A core that ran nothing has no figures.
    let timer = CoreTimer::new(described("lwp", &[]));
    drop(timer.core(&program).unwrap());
    assert!(timer.take().reports.is_empty());
    let mut meter = timed_core(&program, TimedCore::new(timer.description())).unwrap();
    play(&mut meter, 1);
    assert!(meter.meter::<TimedCore>().is_some_and(|meter| meter.ticks() > 0));
    assert!(meter.meter::<nandarray_hart::Counter>().is_none());
}

#[test]
fn a_profile_is_the_sum_of_its_cores() {
    let program = Program::from_elf(&by_hand(), None).unwrap();
    let profiler = Profiler::default();
    let (mut total, mut each) = (0, BTreeMap::<u64, u64>::new());
    for seed in 0..5 {
        let own = Profiler::default();
        for profiler in [&profiler, &own] {
            let mut core = profiler.core(&program).unwrap();
            let (_, _, instructions) = play(&mut core, seed);
            total += instructions;
        }
        for (pc, _, times) in own.take().instructions() {
            *each.entry(pc).or_default() += times;
        }
    }
    let profile = profiler.take();
    assert_eq!(2 * profile.total(), total);
    assert_eq!(profile.instructions().map(|(pc, _, times)| (pc, times)).collect::<BTreeMap<_, _>>(), each);
    assert!(profile.instructions().all(|(pc, _, _)| program.place(pc).starts_with("nd_")));
    assert_eq!(profiler.take().total(), 0);
}

#[test]
fn a_core_refuses_what_it_cannot_run_by_its_keys() {
    let metadata = |kind: &str, ports: usize, scratchpad: u64| {
        let port = |n: usize| json!({"name": format!("p{n}"), "dtype": "u1"});
        json!({"abi": 1, "kind": kind, "scratchpad_bytes": scratchpad,
            "inputs": (0..ports).map(port).collect::<Vec<_>>()})
    };
    let program = |kind: &str, ports: usize, scratchpad: u64| {
        let name = format!("nd_{kind}");
        let image = elf(
            &[(&name, &["addi a0, zero, 0", "jalr zero, 0(ra)"])],
            Some(&metadata(kind, ports, scratchpad).to_string()),
        );
        Program::from_elf(&image, None).unwrap()
    };
    let said = |program: &Program, core: &CoreDescription| check(program, core).err().map(|e| e.to_string());
    let stream = |changes: &[(&str, &str)]| described("five-stage-stream", &[&[("isa", "rv64im")], changes].concat());
    let narrow = "the program is of 64 bits; the core ibex has isa = rv32imc";
    assert_eq!(said(&program("block", 1, 0), &described("ibex", &[])).as_deref(), Some(narrow));
    for (bytes, fits) in [(0, true), (65536, true), (65537, false)] {
        let error = format!(
            "the program needs {bytes} bytes of scratchpad; the core five-stage-stream has scratchpad_bytes = 65536"
        );
        assert_eq!(said(&program("block", 1, bytes), &stream(&[])), (!fits).then_some(error));
    }
    for (streams, ports) in [("8", 8), ("2", 2), ("2", 3), ("1", 2)] {
        let core = stream(&[("streams", streams)]);
        let fits = ports <= streams.parse().unwrap();
        let error =
            format!("the program has {ports} streams on one side; the core five-stage-stream has streams = {streams}");
        assert_eq!(said(&program("stream", ports, 0), &core), (!fits).then_some(error.clone()));
        assert_eq!(said(&program("block", ports, 0), &core), None, "programs of windows have no streams");
        assert_eq!(CoreTimer::new(core).core(&program("stream", ports, 0)).is_ok(), fits);
    }
}
