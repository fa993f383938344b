//! Promise: stages that feed each other produce what they produce one after the other, whatever the number of cores and
//! the size of tasks; of several failures the same one is reported each time; the bytes between stages are bounded.

#[path = "../../nandarray-cores/tests/common/mod.rs"]
mod common;

use std::sync::atomic::Ordering;

use nandarray_cores::{Core, Program, RunError};
use nandarray_runtime::{
    Completed, HOLD_BYTES, InputSource, Origin, OutputSink, Progress, Stage, StageError, TASK_INSTRUCTIONS_MIN,
    Threads, TransferError, pipeline,
};
use proptest::prelude::*;

const NEVER: [u64; 3] = [u64::MAX; 3];

struct Items(Vec<u8>);

impl Items {
    fn new(items: &[u64]) -> Self {
        Self(bytes(items))
    }
}

fn bytes(items: &[u64]) -> Vec<u8> {
    items.iter().flat_map(|item| item.to_le_bytes()).collect()
}

impl InputSource for Items {
    fn bytes(&self, _input: usize) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, _input: usize, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
        Ok(())
    }
}

/// A sink that collects the bytes of each output in memory.
#[derive(Default)]
struct Gathered(Vec<Vec<u8>>);

impl OutputSink for Gathered {
    fn take(&mut self, output: usize, _task: u64, bytes: Vec<u8>) -> Result<(), TransferError> {
        if self.0.len() <= output {
            self.0.resize(output + 1, Vec::new());
        }
        self.0[output].extend(bytes);
        Ok(())
    }
}

/// A stage of a test: origin of its input, items of each task, scalars.
type Given = (Origin, usize, [u64; 3]);

/// Runs stages that copy items and hash them; all outputs go to the sink, two of each stage.
fn go(
    source: &Items,
    given: &[Given],
    executor: Threads,
    sink: &mut Gathered,
    progress: &Progress,
) -> Result<Completed, StageError> {
    let program = Program::from_elf(&common::by_hand(), None).unwrap();
    let core = |p| Core::interpreter(p);
    let mut stages = Vec::new();
    for (i, (origin, each, scalars)) in given.iter().enumerate() {
        stages.push(Stage {
            program: &program,
            core: &core,
            scalars,
            inputs: vec![*origin],
            outputs: vec![Some(2 * i), Some(2 * i + 1)],
            task_bytes: 8 * *each as u64,
            instructions: Some(1_000_000),
            cores: &[],
        });
    }
    pipeline(&stages, source, sink, &executor, HOLD_BYTES, progress)
}

/// Returns the hashes of every 16 tasks (one run of tasks), folded in order.
fn hash(items: &[u64], each: usize) -> u64 {
    let hash = |items: &[u64]| items.iter().fold(0u64, |h, x| h.wrapping_mul(31).wrapping_add(*x));
    let mut runs = items.chunks(16 * each).map(hash);
    let first = runs.next().unwrap_or(0);
    runs.fold(first, |all, one| all.wrapping_mul(31).wrapping_add(one))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn any_tree_gives_what_its_programs_give_one_after_the_other(
        items in prop::collection::vec(any::<u64>(), 0..900),
        shape in prop::collection::vec((any::<prop::sample::Index>(), 0usize..5, 1usize..60), 1..12),
        threads in 1usize..9,
    ) {
        // Each stage reads the source, the copies of an earlier stage, or the output of that stage's end.
        let mut given: Vec<Given> = Vec::new();
        let mut values: Vec<Vec<u64>> = Vec::new();
        for (i, (of, kind, each)) in shape.into_iter().enumerate() {
            let (origin, input) = match (i, kind) {
                (0, _) | (_, 0) => (Origin::External(0), items.clone()),
                _ => {
                    let (stage, output) = (of.index(i), usize::from(kind == 1));
                    (Origin::Stage { stage, output }, values[2 * stage + output].clone())
                }
            };
            given.push((origin, each, NEVER));
            values.push(input.clone());
            values.push(vec![hash(&input, each)]);
        }
        let (source, progress) = (Items::new(&items), Progress::default());
        let mut sink = Gathered::default();
        let done = go(&source, &given, Threads(threads), &mut sink, &progress).unwrap();
        sink.0.resize(values.len(), Vec::new());
        for (output, items) in values.iter().enumerate() {
            prop_assert_eq!(&sink.0[output], &bytes(items), "output {} of {:?}", output, given);
        }
        let tasks = |i: usize| values[2 * i].len().div_ceil(given[i].1) as u64;
        for (i, stage) in done.stages.iter().enumerate() {
            let bytes = 8 * values[2 * i].len() as u64;
            prop_assert_eq!(&stage.state, &values[2 * i + 1][0].to_le_bytes().to_vec());
            let account = stage.account;
            prop_assert_eq!((account.tasks, account.bytes_in, account.bytes_out), (tasks(i), bytes, bytes + 8));
            prop_assert_eq!(progress.stages()[i], (tasks(i), tasks(i)));
        }
        prop_assert_eq!(progress.tasks.load(Ordering::Relaxed), (0..given.len()).map(tasks).sum::<u64>());
    }

    #[test]
    fn the_stage_that_fails_is_named(
        length in 1usize..6, at in any::<prop::sample::Index>(), task in 0u64..100, threads in 1usize..6,
        kind in 0usize..3,
    ) {
        let at = at.index(length);
        let items: Vec<u64> = (0..1000).collect();
        let given: Vec<Given> = (0..length)
            .map(|i| {
                let origin = if i == 0 { Origin::External(0) } else { Origin::Stage { stage: i - 1, output: 0 } };
                let mut scalars = NEVER;
                scalars[kind] = if i == at { task } else { u64::MAX };
                (origin, 10, scalars)
            })
            .collect();
        let mut sink = Gathered::default();
        let error = go(&Items::new(&items), &given, Threads(threads), &mut sink, &Progress::default()).unwrap_err();
        prop_assert_eq!((error.stage, error.error.task()), (at, Some(task)));
        let says = error.to_string();
        prop_assert!(says.starts_with(&format!("by hand: task {task}: ")), "{}", says);
        // Outputs of stages after the failed one are prefixes of their full outputs.
        for output in sink.0.iter().step_by(2) {
            prop_assert_eq!(&bytes(&items)[..output.len()], &output[..]);
        }
    }
}

/// The turns (see `Rank` of the crate) of a stage's output, computed from their definition: items and turn of each run
/// of tasks, and the turn of the output's end if it is reached.
#[derive(Clone, Default)]
struct Turns {
    runs: Vec<(usize, u64)>,
    end: Option<u64>,
}

impl Turns {
    /// Returns the turn in which the first `count` items have been produced, or that of the end if there are fewer
    /// items; `None` if neither is reached.
    fn of(&self, count: usize) -> Option<u64> {
        let mut there = 0;
        self.runs
            .iter()
            .find(|(items, _)| {
                there += items;
                there >= count
            })
            .map_or(self.end, |(_, turn)| Some(*turn))
    }
}

/// Computes the turns of a stage's output from those of its input; returns them, and the turn and number of the failed
/// task if one fails.
fn in_turn(input: &Turns, each: usize, fails: u64) -> (Turns, Option<(u64, u64)>) {
    let all: usize = input.runs.iter().map(|(items, _)| items).sum();
    let (mut given, mut run, mut last) = (Turns::default(), (0, 0), 0);
    for task in 0.. {
        let left = all - (task * each).min(all);
        let turn = if left >= each { input.of((task + 1) * each) } else { input.end };
        let Some(turn) = turn else { return (given, None) };
        last = turn.max(last);
        if left == 0 {
            break;
        }
        if task as u64 == fails {
            return (given, Some((last, fails)));
        }
        run = (run.0 + left.min(each), last);
        if task % 16 == 15 {
            given.runs.push(std::mem::take(&mut run));
        }
    }
    if run.0 > 0 {
        given.runs.push((run.0, last));
    }
    given.end = Some(last);
    (given, None)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn of_several_stages_that_fail_the_same_one_is_named_each_time(
        count in 0usize..3000,
        shape in prop::collection::vec((any::<prop::sample::Index>(), 0usize..5, 1usize..30, 0u64..60), 2..10),
        threads in 2usize..9,
    ) {
        let items: Vec<u64> = (0..count as u64).collect();
        let mut given: Vec<Given> = Vec::new();
        let mut turns: Vec<Turns> = Vec::new();
        let mut first = None;
        for (i, (of, kind, each, fails)) in shape.into_iter().enumerate() {
            let outside = || {
                let cut = (0..count.div_ceil(each)).map(|task| ((count - task * each).min(each), task as u64));
                Turns { runs: cut.collect(), end: Some((count.div_ceil(each) as u64).saturating_sub(1)) }
            };
            let (origin, input) = match (i, kind) {
                (0, _) | (_, 0) => (Origin::External(0), outside()),
                _ => {
                    let (stage, output) = (of.index(i), usize::from(kind == 1));
                    let end = turns[stage].end;
                    let ends = Turns { runs: end.iter().map(|turn| (1, *turn)).collect(), end };
                    (Origin::Stage { stage, output }, if kind == 1 { ends } else { turns[stage].clone() })
                }
            };
            let (gives, failed) = in_turn(&input, each, fails);
            turns.push(gives);
            if let Some((turn, task)) = failed {
                first = [first, Some((turn, i, task))].into_iter().flatten().min();
            }
            given.push((origin, each, [fails, u64::MAX, u64::MAX]));
        }
        for threads in [1, threads, threads] {
            let (items, mut sink) = (Items::new(&items), Gathered::default());
            let done = go(&items, &given, Threads(threads), &mut sink, &Progress::default());
            let found = done.err().map(|error| (error.stage, error.error.task().unwrap()));
            prop_assert_eq!(found, first.map(|(_, stage, task)| (stage, task)), "{} threads, {:?}", threads, given);
        }
    }
}

#[test]
fn all_stages_end_when_told_to() {
    let items: Vec<u64> = (0..1000).collect();
    let chain: Vec<Given> = (0..4)
        .map(|i| {
            let origin = if i == 0 { Origin::External(0) } else { Origin::Stage { stage: i - 1, output: 0 } };
            (origin, 10, NEVER)
        })
        .collect();
    let progress = Progress::default();
    progress.stop.store(true, Ordering::Relaxed);
    let error = go(&Items::new(&items), &chain, Threads(3), &mut Gathered::default(), &progress).unwrap_err();
    assert!(matches!(error.error, RunError::Cancelled(_)), "{error}");
}

#[test]
fn a_run_has_a_limit_over_all_of_its_tasks() {
    let items: Vec<u64> = (0..1000).collect();
    let chain = [(Origin::External(0), 10, NEVER), (Origin::Stage { stage: 0, output: 0 }, 10, NEVER)];
    for threads in [1, 3] {
        let go_to = |limit| {
            let progress = Progress::limited_to(limit);
            go(&Items::new(&items), &chain, Threads(threads), &mut Gathered::default(), &progress)
        };
        let free = go(&Items::new(&items), &chain, Threads(threads), &mut Gathered::default(), &Progress::default());
        let least = free.unwrap().account.tasks * TASK_INSTRUCTIONS_MIN;
        // Tasks of few instructions: each counts as the minimum.
        assert!(go_to(least).is_ok());
        let error = go_to(least - 1).unwrap_err();
        assert!(matches!(error.error, RunError::RunLimit { limit } if limit == least - 1), "{error}");
        assert_eq!(error.error.task(), None);
    }
}

#[test]
fn stages_name_those_before_them() {
    let items = Items::new(&[1, 2, 3]);
    for origin in [Origin::Stage { stage: 0, output: 0 }, Origin::Stage { stage: 1, output: 0 }] {
        let given = [(origin, 10, NEVER)];
        let error = go(&items, &given, Threads(1), &mut Gathered::default(), &Progress::default()).unwrap_err();
        assert!(matches!(error.error, RunError::Inputs(_)), "{error}");
    }
    let given = [(Origin::External(0), 10, NEVER), (Origin::Stage { stage: 0, output: 2 }, 10, NEVER)];
    let error = go(&items, &given, Threads(1), &mut Gathered::default(), &Progress::default()).unwrap_err();
    assert_eq!(error.to_string(), "by hand: there is no output 2 of a stage 0 before stage 1");
}
