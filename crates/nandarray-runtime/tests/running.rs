//! Promise: a run produces what one core would produce, whatever the number of cores; of several failures the one of
//! the first task is reported; outputs of a failed run do not count; a run can be cancelled.

#[path = "../../nandarray-cores/tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicUsize, Ordering};

use nandarray_cores::{Core, LoadError, Profiler, Program, RunError};
use nandarray_runtime::{
    Account, Executor, HOLD_BYTES, InputSource, Origin, OutputSink, Progress, Stage, Threads, TransferError, pipeline,
};
use proptest::prelude::*;

const NEVER: u64 = u64::MAX;

struct Items {
    bytes: Vec<u8>,
    /// Number of the read that fails; `None` if no read fails.
    fails: Option<usize>,
    reads: AtomicUsize,
}

impl Items {
    fn new(items: impl IntoIterator<Item = u64>) -> Self {
        Self { bytes: items.into_iter().flat_map(u64::to_le_bytes).collect(), fails: None, reads: AtomicUsize::new(0) }
    }
}

impl InputSource for Items {
    fn bytes(&self, _input: usize) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&self, _input: usize, offset: u64, into: &mut [u8]) -> Result<(), TransferError> {
        if Some(self.reads.fetch_add(1, Ordering::Relaxed)) == self.fails {
            return Err("a bad block".into());
        }
        into.copy_from_slice(&self.bytes[offset as usize..][..into.len()]);
        Ok(())
    }
}

#[derive(Default)]
struct Gathered {
    tasks: Vec<u64>,
    bytes: Vec<u8>,
    /// Outputs of `nd_end`, as (output, bytes).
    ends: Vec<(usize, Vec<u8>)>,
    /// Number of the task whose output the sink refuses; `None` if it accepts all.
    refuses: Option<u64>,
}

impl OutputSink for Gathered {
    fn take(&mut self, output: usize, task: u64, bytes: Vec<u8>) -> Result<(), TransferError> {
        assert_eq!(output, 0);
        if self.refuses == Some(task) {
            return Err("a full disk".into());
        }
        self.tasks.push(task);
        self.bytes.extend(bytes);
        Ok(())
    }

    fn end(&mut self, output: usize, bytes: Vec<u8>) -> Result<(), TransferError> {
        self.ends.push((output, bytes));
        Ok(())
    }
}

/// The settings of a run of a program that copies items and hashes them.
#[derive(Clone, Copy)]
struct Options {
    threads: usize,
    task_bytes: u64,
    instructions: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 1, task_bytes: 1 << 20, instructions: None }
    }
}

/// The results of a run, without the bytes that went to the sink.
#[derive(Debug)]
struct Outcome {
    state: Vec<u8>,
    account: Account,
}

fn go_with<'p>(
    program: &'p Program,
    core: &(dyn Fn(&'p Program) -> Result<Core<'p>, LoadError> + Sync),
    scalars: &[u64],
    source: &Items,
    options: Options,
    sink: &mut Gathered,
    progress: &Progress,
) -> Result<Outcome, RunError> {
    let outputs = (0..program.metadata().outputs.len()).map(Some).collect();
    let Options { threads, task_bytes, instructions } = options;
    let (inputs, cores) = (vec![Origin::External(0)], &[][..]);
    let stage = Stage { program, core, scalars, inputs, outputs, task_bytes, instructions, cores };
    let executor: &dyn Executor = &Threads(threads);
    let done = pipeline(&[stage], source, sink, executor, HOLD_BYTES, progress).map_err(|failed| failed.error)?;
    Ok(Outcome { state: done.stages[0].state.clone(), account: done.account })
}

fn go(
    source: &Items,
    scalars: [u64; 3],
    options: Options,
    sink: &mut Gathered,
    progress: &Progress,
) -> Result<Outcome, RunError> {
    let program = Program::from_elf(&common::by_hand(), None).unwrap();
    let core = |p| match &progress.profiler {
        Some(profiler) => profiler.core(p),
        None => Core::interpreter(p),
    };
    go_with(&program, &core, &scalars, source, options, sink, progress)
}

/// Returns the expected state for tasks of `each` items: the hashes of every 16 tasks (one run of tasks), folded in
/// order.
fn expected(items: &[u64], each: usize) -> u64 {
    let hash = |items: &[u64]| items.iter().fold(0u64, |h, x| h.wrapping_mul(31).wrapping_add(*x));
    let mut runs = items.chunks(16 * each).map(hash);
    let first = runs.next().unwrap_or(0);
    runs.fold(first, |all, one| all.wrapping_mul(31).wrapping_add(one))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_number_of_cores_gives_what_one_does(
        items in prop::collection::vec(any::<u64>(), 0..1500), each in 1usize..40, threads in 1usize..6,
    ) {
        let source = Items::new(items.iter().copied());
        let options = Options { threads, task_bytes: 8 * each as u64, ..Options::default() };
        let (mut sink, progress) = (Gathered::default(), Progress::default());
        let outcome = go(&source, [NEVER; 3], options, &mut sink, &progress).unwrap();
        let tasks = items.len().div_ceil(each) as u64;
        prop_assert_eq!(&sink.bytes, &source.bytes);
        prop_assert_eq!(sink.tasks, (0..tasks).collect::<Vec<_>>());
        let all = expected(&items, each).to_le_bytes().to_vec();
        prop_assert_eq!(&outcome.state, &all);
        prop_assert_eq!(sink.ends, [(1, all)]);
        let account = outcome.account;
        prop_assert_eq!((account.tasks, account.bytes_in), (tasks, source.bytes(0)));
        prop_assert_eq!(account.bytes_out, source.bytes(0) + 8);
        prop_assert_eq!(progress.done.load(Ordering::Relaxed), tasks);
    }

    #[test]
    fn the_first_failure_by_task_is_told(fails in 0u64..100, traps in 0u64..100, threads in 1usize..6) {
        prop_assume!(fails != traps);
        let source = Items::new(0..1000);
        let options = Options { threads, task_bytes: 80, ..Options::default() };
        let mut sink = Gathered::default();
        let error = go(&source, [fails, traps, NEVER], options, &mut sink, &Progress::default()).unwrap_err();
        prop_assert_eq!(error.task(), Some(fails.min(traps)));
        if fails < traps {
            prop_assert!(matches!(error, RunError::Status { code: -7, entry: "nd_block", .. }), "{}", error);
            prop_assert_eq!(error.pc(), None);
        } else {
            prop_assert_eq!(error.pc(), Some(0x1_0000 + 8 * 4));
            let says = format!("task {traps}: load access fault at pc 0x10020 (value 0x42) in nd_block+0x20");
            prop_assert_eq!(error.to_string(), says);
        }
        // No output of the failed task's run of tasks, or of a later one, reached the sink.
        prop_assert!(sink.tasks.iter().all(|task| *task < fails.min(traps)), "{:?}", sink.tasks);
    }
}

#[test]
fn a_task_without_end_is_ended_by_its_limit() {
    let (source, mut sink) = (Items::new(0..100), Gathered::default());
    let options = Options { threads: 2, task_bytes: 80, instructions: Some(10_000) };
    let error = go(&source, [NEVER, NEVER, 3], options, &mut sink, &Progress::default()).unwrap_err();
    assert_eq!(error.to_string(), "task 3: more than 10000 instructions, at pc 0x10028 in nd_block+0x28");
    assert_eq!((error.task(), error.pc()), (Some(3), Some(0x1_0028)));
    // The same program runs again without a failure.
    go(&source, [NEVER; 3], options, &mut sink, &Progress::default()).unwrap();
}

#[test]
fn a_run_can_be_ended_from_outside() {
    let (source, progress) = (Items::new(0..100), Progress::default());
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let options = Options { threads: 2, task_bytes: 80, ..Options::default() };
            go(&source, [NEVER, NEVER, 3], options, &mut Gathered::default(), &progress)
        });
        while progress.done.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        progress.stop.store(true, Ordering::Relaxed);
        assert!(matches!(nandarray::internals::joined(running), Err(RunError::Cancelled(_))));
    });
}

#[test]
fn what_source_and_sink_say_comes_out() {
    let options = Options { threads: 3, task_bytes: 80, ..Options::default() };
    let mut source = Items::new(0..1000);
    source.fails = Some(17);
    let error = go(&source, [NEVER; 3], options, &mut Gathered::default(), &Progress::default()).unwrap_err();
    assert!(matches!(&error, RunError::Transfer(_)), "{error}");
    assert_eq!(error.to_string(), "a bad block");
    let mut sink = Gathered { refuses: Some(40), ..Gathered::default() };
    let error = go(&Items::new(0..1000), [NEVER; 3], options, &mut sink, &Progress::default()).unwrap_err();
    assert_eq!(error.to_string(), "a full disk");
    assert_eq!(sink.tasks, (0..40).collect::<Vec<_>>());
}

#[test]
fn what_does_not_fit_is_refused_before_anything_runs() {
    let program = Program::from_elf(&common::by_hand(), None).unwrap();
    let core = |p| Core::interpreter(p);
    let mut items = Items::new(0..10);
    let (mut sink, options, progress) = (Gathered::default(), Options::default(), Progress::default());
    let error = go_with(&program, &core, &[], &items, options, &mut sink, &progress).unwrap_err();
    assert!(matches!(error, RunError::Inputs(_)), "{error}");
    items.bytes.pop();
    let error = go_with(&program, &core, &[0; 3], &items, options, &mut sink, &Progress::default()).unwrap_err();
    assert_eq!(error.to_string(), "input x of 79 bytes is not whole elements of 8");
    assert_eq!(items.reads.load(Ordering::Relaxed), 0);
}

#[test]
fn cores_that_count_count_all() {
    let items = Items::new(0..1000);
    let mut totals = Vec::new();
    for threads in [1, 4] {
        let progress = Progress::counted_by(Profiler::default());
        let options = Options { threads, task_bytes: 80, ..Options::default() };
        let outcome = go(&items, [NEVER; 3], options, &mut Gathered::default(), &progress).unwrap();
        let profile = progress.profiler.as_ref().unwrap().take();
        assert_eq!(profile.total(), outcome.account.instructions);
        let times: Vec<_> = profile.instructions().map(|(pc, _, times)| (pc, times)).collect();
        // The load in the loop is executed once an item, the entry once a task.
        assert!(times.contains(&(0x1_0000 + 19 * 4, 1000)) && times.contains(&(0x1_0000, 100)));
        totals.push(times);
    }
    assert_eq!(totals[0], totals[1]);
}

#[test]
fn a_jump_out_of_the_code_names_where_it_came_from() {
    let lines =
        ["addi sp, sp, -16", "sd ra, 8(sp)", "addi t0, zero, 64", "jalr ra, 0(t0)", "ld ra, 8(sp)", "jalr zero, 0(ra)"];
    let metadata = common::METADATA.replace(", {\"name\": \"all\", \"dtype\": \"int64\", \"phase\": \"end\"}", "");
    let program = Program::from_elf(&common::elf(&[("nd_block", &lines)], Some(&metadata)), None).unwrap();
    let core = |p| Core::interpreter(p);
    let (items, mut sink) = (Items::new(0..10), Gathered::default());
    let error =
        go_with(&program, &core, &[0; 3], &items, Options::default(), &mut sink, &Progress::default()).unwrap_err();
    assert_eq!((error.pc(), error.caller()), (Some(64), Some(0x1_000f)));
    let says = "task 0: fetch access fault at pc 0x40 (value 0x40) in 0x40, called at pc 0x1000f in nd_block+0xf";
    assert_eq!(error.to_string(), says);
}
