//! Promise: results are the same bytes on every executor, with any number of workers and in any order of completion,
//! and the same failure is reported each time. The panic of a worker is a typed error of the worker's run, and no
//! thread waits for that worker.
//!
//! The reference is one thread. [`Scrambled`] does the steps of many jobs in a random order; the seed of each case is
//! in its failure message.

#[path = "../../nandarray-cores/tests/common/mod.rs"]
mod common;
mod support;

use std::sync::atomic::{AtomicI64, Ordering};

use nandarray_cores::{Core, Program, RunError};
use nandarray_runtime::{Completed, Executor, HOLD_BYTES, Origin, Progress, Stage, StageError, Threads, pipeline};
use proptest::prelude::*;
use support::{Dying, Gathered, Items, Noting, Scrambled, bytes};

/// A program that keeps even items, and fails in the task that its first scalar names.
const FILTER: &[&str] = &[
    "ld t0, 32(a0)",
    "ld t1, 1112(a0)",
    "bne t0, t1, . + 12",
    "addi a0, zero, -7",
    "jalr zero, 0(ra)",
    "ld t1, 88(a0)",
    "ld t2, 96(a0)",
    "ld t3, 600(a0)",
    "addi t4, zero, 0",
    "add t2, t1, t2",
    "beq t1, t2, . + 36",
    "ld t5, 0(t1)",
    "addi t1, t1, 8",
    "andi t6, t5, 1",
    "bne t6, zero, . - 16",
    "sd t5, 0(t3)",
    "addi t3, t3, 8",
    "addi t4, t4, 8",
    "jal zero, . - 32",
    "sd t4, 616(a0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// A program that adds the only item of a whole input to each item, and fails in the task that its first scalar names.
const PLUS: &[&str] = &[
    "ld t0, 32(a0)",
    "ld t1, 1112(a0)",
    "bne t0, t1, . + 12",
    "addi a0, zero, -7",
    "jalr zero, 0(ra)",
    "ld t1, 88(a0)",
    "ld t2, 96(a0)",
    "ld t3, 600(a0)",
    "ld t4, 152(a0)",
    "ld t4, 0(t4)",
    "sd t2, 616(a0)",
    "add t2, t1, t2",
    "beq t1, t2, . + 28",
    "ld t5, 0(t1)",
    "add t5, t5, t4",
    "sd t5, 0(t3)",
    "addi t1, t1, 8",
    "addi t3, t3, 8",
    "jal zero, . - 24",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

const X: &str = r#"{"name": "x", "dtype": "int64"}"#;
const Z: &str = r#"{"name": "z", "dtype": "int64"}"#;
const SCALARS: &str = r#""scalars": [{"name": "fails", "dtype": "int64"}, {"name": "traps", "dtype": "int64"},
    {"name": "hangs", "dtype": "int64"}]"#;

/// Returns three programs: one copies items and hashes them (a state, and an output of its end), one is [`FILTER`], one
/// is [`PLUS`].
fn programs() -> [Program; 3] {
    let metadata = |name: &str, inputs: &str| {
        format!(r#"{{"abi": 1, "name": "{name}", "kind": "block", "inputs": [{inputs}], "outputs": [{Z}], {SCALARS}}}"#)
    };
    let filter = common::elf(&[("nd_block", FILTER)], Some(&metadata("filter", X)));
    let whole = format!(r#"{X}, {{"name": "y", "dtype": "int64", "whole": true}}"#);
    let plus = common::elf(&[("nd_block", PLUS)], Some(&metadata("plus", &whole)));
    [common::by_hand(), filter, plus].map(|elf| Program::from_elf(&elf, None).unwrap())
}

/// A stage of a test: number of its program, origins of its inputs, items of each task, number of the task that fails.
#[derive(Clone, Debug)]
struct Given {
    program: usize,
    inputs: Vec<Origin>,
    each: usize,
    fails: u64,
}

fn run(
    programs: &[Program; 3],
    given: &[Given],
    source: &Items,
    sink: &mut Gathered,
    executor: &dyn Executor,
) -> Result<Completed, StageError> {
    let core = |p| Core::interpreter(p);
    let scalars: Vec<[u64; 3]> = given.iter().map(|one| [one.fails, u64::MAX, u64::MAX]).collect();
    let mut stages = Vec::new();
    for (i, one) in given.iter().enumerate() {
        let program = &programs[one.program];
        let outputs = (0..program.metadata().outputs.len()).map(|output| Some(2 * i + output)).collect();
        stages.push(Stage {
            program,
            core: &core,
            scalars: &scalars[i],
            inputs: one.inputs.clone(),
            outputs,
            task_bytes: 8 * one.each as u64,
            instructions: Some(1_000_000),
            cores: &[],
        });
    }
    let done = pipeline(&stages, source, sink, executor, HOLD_BYTES, &Progress::default());
    sink.outputs.resize(2 * given.len(), Vec::new());
    done
}

/// Makes stages from random shapes: each reads the source, or an earlier stage.
fn stages(shape: &[(prop::sample::Index, usize, usize, Option<u64>)]) -> Vec<Given> {
    let mut given: Vec<Given> = Vec::new();
    for (i, &(of, kind, each, fails)) in shape.iter().enumerate() {
        let origin = match kind % 4 {
            0 => Origin::External(0),
            _ if i == 0 => Origin::External(0),
            _ => Origin::Stage { stage: of.index(i), output: 0 },
        };
        let hashes: Vec<usize> = (0..i).filter(|stage| given[*stage].program == 0).collect();
        let (mut program, mut inputs) = (kind % 3, vec![origin]);
        if program == 2 && hashes.is_empty() {
            program = 0;
        }
        if program == 2 {
            inputs.push(Origin::Stage { stage: hashes[of.index(hashes.len())], output: 1 });
        }
        given.push(Given { program, inputs, each, fails: fails.unwrap_or(u64::MAX) });
    }
    given
}

fn failure(done: &Result<Completed, StageError>) -> Option<(usize, String)> {
    done.as_ref().err().map(|failed| (failed.stage, failed.to_string()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn every_executor_gives_the_same_bytes_or_the_same_failure(
        items in prop::collection::vec(any::<u64>(), 0..900),
        shape in prop::collection::vec(
            (any::<prop::sample::Index>(), 0usize..12, 1usize..40, prop::option::weighted(0.15, 0u64..40)),
            1..8,
        ),
        seed: u64,
        jobs in 1usize..12,
    ) {
        let (programs, given, source) = (programs(), stages(&shape), Items::new(&items));
        let mut expected = Gathered::default();
        let reference = run(&programs, &given, &source, &mut expected, &Threads(1));
        let others: [&dyn Executor; 3] = [&Threads(4), &Scrambled { seed, jobs }, &Scrambled { seed: !seed, jobs: 64 }];
        for executor in others {
            let mut sink = Gathered::default();
            let done = run(&programs, &given, &source, &mut sink, executor);
            prop_assert_eq!(failure(&done), failure(&reference), "{:?}, {:?}", executor, given);
            if let (Ok(done), Ok(reference)) = (&done, &reference) {
                prop_assert_eq!(done, reference, "{:?}, {:?}", executor, given);
                prop_assert_eq!(&sink, &expected, "{:?}, {:?}", executor, given);
            }
        }
        if reference.is_ok() && given.len() == 1 && given[0].program == 1 {
            let even: Vec<u64> = items.iter().copied().filter(|item| item % 2 == 0).collect();
            prop_assert_eq!(&expected.outputs[0], &bytes(&even));
        }
    }
}

#[test]
fn pipelines_of_one_run_share_the_executor_evenly() {
    let (programs, items) = (programs(), (0..3200).collect::<Vec<u64>>());
    let copy = |origin| Given { program: 0, inputs: vec![origin], each: 10, fails: u64::MAX };
    // Two pipelines, of one stage and of two, over the same items.
    let given = [copy(Origin::External(0)), copy(Origin::External(0)), copy(Origin::Stage { stage: 1, output: 0 })];
    for jobs in [1, 2, 6] {
        let noting = Noting { jobs, in_flight: std::sync::Mutex::default() };
        let mut sink = Gathered::default();
        run(&programs, &given, &Items::new(&items), &mut sink, &noting).unwrap();
        assert_eq!(sink.outputs[4], bytes(&items));
        let noted = noting.in_flight.into_inner().unwrap();
        // Both have work left in the first half of the run; at its end, one of them may have the executor to itself.
        let first_half = &noted[..noted.len() / 2];
        let share = first_half.iter().flatten().filter(|&&stage| stage == 0).count() as f64;
        let all = first_half.iter().map(Vec::len).sum::<usize>() as f64;
        assert!((0.45..0.55).contains(&(share / all)), "{jobs} jobs: {share} of {all}");
    }
}

/// Returns two stages: the first copies the source, the second copies the output of the first.
fn chain() -> Vec<Given> {
    let second = Origin::Stage { stage: 0, output: 0 };
    [Origin::External(0), second]
        .into_iter()
        .map(|origin| Given { program: 0, inputs: vec![origin], each: 10, fails: u64::MAX })
        .collect()
}

fn is_dead(done: Result<Completed, StageError>, stage: usize) {
    let failed = done.expect_err("a worker died");
    assert!(matches!(&failed.error, RunError::Worker(what) if what.contains("dying on purpose")), "{failed}");
    assert_eq!(failed.stage, stage);
}

#[test]
fn a_worker_that_dies_fails_its_run_and_nobody_waits() {
    let (programs, items) = (programs(), (0..2000).collect::<Vec<u64>>());
    for threads in [1, 4] {
        for reads in [0, 1, 17, 150] {
            let source = Items { panics_in: AtomicI64::new(reads), ..Items::new(&items) };
            is_dead(run(&programs, &chain(), &source, &mut Gathered::default(), &Threads(threads)), 0);
            // The same stages run again without a failure.
            source.panics_in.store(i64::MAX, Ordering::Relaxed);
            run(&programs, &chain(), &source, &mut Gathered::default(), &Threads(threads)).unwrap();
        }
        // The sink panics on an output of the second stage.
        let mut sink = Gathered { panics_at: Some(2), ..Gathered::default() };
        is_dead(run(&programs, &chain(), &Items::new(&items), &mut sink, &Threads(threads)), 1);
    }
}

#[test]
fn an_executor_that_dies_or_gives_up_fails_its_run() {
    let (programs, source) = (programs(), Items::new(&(0..2000).collect::<Vec<u64>>()));
    for after in [0, 1, 40] {
        is_dead(run(&programs, &chain(), &source, &mut Gathered::default(), &Dying { after }), 0);
    }
    #[derive(Debug)]
    struct Idle;
    impl Executor for Idle {
        fn workers(&self) -> usize {
            1
        }
        fn run(&self, _: &mut nandarray_runtime::Agenda<'_, '_>, _: &mut dyn nandarray_runtime::OutputSink) {}
    }
    let failed = run(&programs, &chain(), &source, &mut Gathered::default(), &Idle).unwrap_err();
    assert_eq!(failed.to_string(), "by hand: a worker died: the executor ended before the run did");
}

/// Three stages of which the last can begin only when the first has ended: the whole output of the first is queued.
#[test]
fn a_queue_that_would_grow_beyond_its_limit_ends_the_run_and_below_it_changes_nothing() {
    let (programs, items) = (programs(), (0..2000).collect::<Vec<u64>>());
    let (source, core) = (Items::new(&items), |p| Core::interpreter(p));
    let scalars = [u64::MAX; 3];
    let stage = |program: usize, inputs, outputs| Stage {
        program: &programs[program],
        core: &core,
        scalars: &scalars,
        inputs,
        outputs,
        task_bytes: 80,
        instructions: Some(1_000_000),
        cores: &[],
    };
    let of = |stage, output| Origin::Stage { stage, output };
    let go = |hold_bytes, executor: &dyn Executor| {
        let stages = [
            stage(0, vec![Origin::External(0)], vec![None, None]),
            stage(0, vec![of(0, 0)], vec![None, None]),
            stage(2, vec![of(0, 0), of(1, 1)], vec![Some(0)]),
        ];
        let mut sink = Gathered::default();
        let done = pipeline(&stages, &source, &mut sink, executor, hold_bytes, &Progress::default());
        done.map(|_| sink.outputs.concat())
    };
    let executors: [&dyn Executor; 3] = [&Threads(1), &Threads(4), &Scrambled { seed: 3, jobs: 3 }];
    for executor in executors {
        let right = go(HOLD_BYTES, executor).unwrap();
        assert_eq!(right.len(), 16_000);
        let (mut failed, mut fits) = (0, 0);
        for hold_bytes in [0, 1, 800, 4000, 8000, 12_000, 15_999, 16_000, 32_000] {
            match go(hold_bytes, executor) {
                Ok(found) => {
                    assert!(found == right, "{hold_bytes} bytes, {executor:?}");
                    fits += 1;
                }
                Err(error) => {
                    // On one thread, a run that fits a limit fits every larger one.
                    assert!(
                        (fits == 0 || executor.workers() > 1) && error.stage == 0,
                        "{hold_bytes} bytes, {executor:?}: {error}"
                    );
                    let RunError::QueueLimit { ref output, queued, most } = error.error else { panic!("{error}") };
                    assert!((output.as_str(), most) == ("y", hold_bytes) && queued >= most, "{error}");
                    failed += 1;
                }
            }
        }
        // With more workers, the tasks that are begun before an output is delivered may be all there are.
        assert!(fits >= 2 && (failed >= 3 || executor.workers() > 1), "{failed} and {fits}, {executor:?}");
    }
}
