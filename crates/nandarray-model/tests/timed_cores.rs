//! Promise: programs on a modelled device's timed cores take the time that closed forms give, bound by flash, channel,
//! DRAM or issue; what they move and how long they were busy adds up; results are those of any executor.

#[path = "../../nandarray-cores/tests/common/mod.rs"]
mod common;

use std::sync::Arc;

use nandarray::{BufferMut, Device, Mode, NewSpace, Options, Source, SpaceId, Target, command};
use nandarray_cores::Form;
use nandarray_model::Ps;
use nandarray_model::describe::{self, Description};
use nandarray_model::report::{Report, TimedCoresReport};
use nandarray_model::store::executor::Modelled;
use nandarray_model::store::{self, Backing, Clock};
use nandarray_runtime::{Error, Execution, Executor, Input, Output, OutputValue, Progress, Runtime, StageRequest};

/// Sums 32-bit elements, eight at a time, into the state: the loop of Zou's Stat, over windows.
const STAT: &[&str] = &[
    "ld t1, 88(a0)",
    "ld t2, 96(a0)",
    "add t2, t1, t2",
    "addi t4, zero, 0",
    "lw t3, 0(t1)",
    "add t4, t4, t3",
    "lw t3, 4(t1)",
    "add t4, t4, t3",
    "lw t3, 8(t1)",
    "add t4, t4, t3",
    "lw t3, 12(t1)",
    "add t4, t4, t3",
    "lw t3, 16(t1)",
    "add t4, t4, t3",
    "lw t3, 20(t1)",
    "add t4, t4, t3",
    "lw t3, 24(t1)",
    "add t4, t4, t3",
    "lw t3, 28(t1)",
    "add t4, t4, t3",
    "addi t1, t1, 32",
    "bltu t1, t2, . - 68",
    "ld t0, 48(a0)",
    "ld t1, 0(t0)",
    "add t1, t1, t4",
    "sd t1, 0(t0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// The same over a stream, without a test of its end: the state is updated after each eight elements.
const STAT_STREAM: &[&str] = &[
    "ld t0, 48(a0)",
    "ld t4, 0(t0)",
    "streamload.w t3, s0",
    "add t4, t4, t3",
    "streamload.w t3, s0",
    "add t4, t4, t3",
    "streamload.w t3, s0",
    "add t4, t4, t3",
    "streamload.w t3, s0",
    "add t4, t4, t3",
    "streamload.w t3, s0",
    "add t4, t4, t3",
    "streamload.w t3, s0",
    "add t4, t4, t3",
    "streamload.w t3, s0",
    "add t4, t4, t3",
    "streamload.w t3, s0",
    "add t4, t4, t3",
    "sd t4, 0(t0)",
    "jal zero, . - 68",
];

/// Adds two states.
const ADD: &[&str] = &[
    "ld t0, 48(a0)",
    "ld t1, 64(a0)",
    "ld t2, 0(t0)",
    "ld t1, 0(t1)",
    "add t2, t2, t1",
    "sd t2, 0(t0)",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

fn stat(stream: bool) -> Vec<u8> {
    let kind = if stream { "stream" } else { "block" };
    let metadata = format!(
        r#"{{"abi": 1, "name": "stat", "kind": "{kind}", "state_bytes": 8,
            "inputs": [{{"name": "x", "dtype": "int32"}}], "outputs": [], "scalars": []}}"#
    );
    let task = if stream { ("nd_stream", STAT_STREAM) } else { ("nd_block", STAT) };
    common::elf(&[task, ("nd_merge", ADD)], Some(&metadata))
}

struct Store {
    runtime: Runtime,
    device: Arc<Device>,
    clock: Arc<Clock>,
    space: SpaceId,
    elements: u64,
}

/// A device with an array of 32-bit numbers, in building blocks of whole pages.
fn store(d: &Description, elements: u64) -> Store {
    let (device, clock) = store::open(&Backing::Memory, Mode::Append, &Options::default(), d, None).unwrap();
    let device = Arc::new(device);
    let new = NewSpace {
        name: "x",
        shape: &[elements],
        item_bytes: 4,
        dtype: "<i4",
        block: Some(&[65_536]),
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let space = device.execute(command::Create(new)).unwrap().id;
    let from: Vec<i32> = (0..elements).map(|n| (n * 7919 % 1009) as i32).collect();
    let target = Target::Box { start: &[0], step: &[1], count: &[elements], strides: &[4], view: None };
    // SAFETY: the target reaches exactly the elements of `from`.
    let source = unsafe { Source::from_raw(from.as_ptr().cast()) };
    device.execute(command::Write { space, target, source }).unwrap();
    device.execute(command::Flush).unwrap();
    clock.settle();
    Store { runtime: Runtime::new(device.clone()), device, clock, space, elements }
}

struct Ran {
    took: Ps,
    report: Report,
    before: Report,
}

impl Ran {
    fn cores(&self) -> &TimedCoresReport {
        self.report.programs.as_ref().unwrap().timed_cores.as_ref().unwrap()
    }

    fn rate(&self, bytes: u64) -> f64 {
        bytes as f64 / self.took.seconds() / 1e9
    }
}

impl Store {
    fn expected(&self) -> i64 {
        (0..self.elements).map(|n| (n * 7919 % 1009) as i64).sum()
    }

    fn execute(&self, elf: &[u8], executor: &dyn Executor, task_bytes: u64) -> Result<Vec<u8>, Error> {
        self.execute_limited(elf, executor, task_bytes, None)
    }

    fn execute_limited(
        &self,
        elf: &[u8],
        executor: &dyn Executor,
        task_bytes: u64,
        instructions: Option<u64>,
    ) -> Result<Vec<u8>, Error> {
        let program = self.runtime.load(elf, None)?;
        let count = [self.elements];
        let input = Input::Box { space: self.space, start: &[0], step: &[1], count: &count, view: None, tiles: None };
        let inputs = [input];
        let stage = StageRequest {
            program,
            form: Form::Interpreted,
            inputs: &inputs,
            scalars: &[],
            outputs: &[],
            task_bytes,
            instructions,
        };
        let (stages, progress) = ([stage], Progress::default());
        let execution = Execution { stages: &stages, executor, hold_bytes: 1 << 24, progress: &progress };
        Ok(self.runtime.execute(&execution)?.stages.remove(0).state)
    }

    fn run(&self, elf: &[u8], task_bytes: u64) -> Ran {
        let modelled = Modelled::new(&self.clock).unwrap();
        let (before, began) = (self.clock.report(&[]), self.clock.now());
        let state = self.execute(elf, &modelled, task_bytes).unwrap();
        assert_eq!(i64::from_le_bytes(state.try_into().unwrap()), self.expected());
        let took = self.clock.now().since(began);
        self.clock.settle();
        Ran { took, report: self.clock.report(&[]), before }
    }
}

/// ASSASIN's device, small, with one core of its own and these changes.
fn device(core: &str, more: &[(&str, &str)]) -> Description {
    let base = [("geometry.blocks", "24"), ("geometry.pages", "64"), ("ftl.over_provisioning", "60 %")];
    let all: Vec<_> = base.iter().chain(&[("compute.core", core), ("compute.cores", "1")]).chain(more).copied().collect();
    describe::preset_with("assasin", &all).unwrap_or_else(|e| panic!("{e}"))
}

const STREAM: (&str, &str) = ("compute.input", "stream");

fn near(got: f64, wanted: f64, by: f64) {
    assert!((got / wanted - 1.0).abs() < by, "{got} is not {wanted} within {by}");
}

#[test]
fn stat_takes_what_the_sanity_values_say() {
    let elements = 1 << 20;
    let bytes = elements * 4;
    let baseline = store(&device("zou-2023", &[]), elements).run(&stat(false), 1 << 19);
    near(baseline.rate(bytes), 0.52, 0.1);
    let more = [STREAM, ("compute.read_ahead", "32"), ("compute.scratchpad", "64 KiB")];
    let stream = store(&device("zou-2023-stream", &more), elements).run(&stat(true), 1 << 19);
    near(stream.rate(bytes), 1.45, 0.1);
}
