//! Promise: writes of programs to spaces are visible when their run is done, or not at all. A program that fails and a
//! worker that panics leave the spaces unchanged and hold no block, and the store stays usable.

#[path = "store/boxes.rs"]
mod boxes;
#[path = "../../nandarray-cores/tests/common/mod.rs"]
mod common;
#[path = "store/faults.rs"]
mod faults;
#[path = "store/refusals.rs"]
mod refusals;
#[path = "store/shares.rs"]
mod shares;
mod support;

use std::sync::Arc;

use nandarray::{
    BufferMut, Device, Geometry, Media, MemoryMedia, Mode, NewSpace, Options, Source, SpaceId, Target, command,
};
use nandarray_cores::{Form, RunError};
use nandarray_runtime::{
    Error, Executed, Execution, Executor, HOLD_BYTES, Input, Output, OutputValue, Progress, Runtime, StageRequest,
    Threads,
};
use support::{Dying, Scrambled};

const ITEMS: u64 = 3000;

fn make(device: &Device, name: &str, values: &[u64]) -> SpaceId {
    let new = NewSpace {
        name,
        shape: &[values.len() as u64],
        item_bytes: 8,
        dtype: "<i8",
        block: Some(&[64]),
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let space = device.execute(command::Create(new)).unwrap().id;
    fill(device, space, values);
    space
}

fn fill(device: &Device, space: SpaceId, values: &[u64]) {
    let count = [values.len() as u64];
    let target = Target::Box { start: &[0], step: &[1], count: &count, strides: &[8], view: None };
    // SAFETY: the buffer has the elements of the box.
    let source = unsafe { Source::from_raw(values.as_ptr().cast()) };
    device.execute(command::Write { space, target, source }).unwrap();
}

fn content(device: &Device, space: SpaceId) -> Vec<u64> {
    let mut all = vec![0u64; ITEMS as usize];
    let target = Target::Box { start: &[0], step: &[1], count: &[ITEMS], strides: &[8], view: None };
    // SAFETY: the buffer has the elements of the space.
    let out = unsafe { BufferMut::from_raw(all.as_mut_ptr().cast()) };
    device.execute(command::Read { space, target, out }).unwrap();
    all
}

fn options(write_buffer_bytes: Option<usize>) -> Options {
    let usual = Options { geometry: Geometry::TINY, threads: Some(1), ..Options::default() };
    Options { write_buffer_bytes: write_buffer_bytes.unwrap_or(usual.write_buffer_bytes), ..usual }
}

struct Store {
    runtime: Runtime,
    from: SpaceId,
    to: SpaceId,
    values: Vec<u64>,
    /// Whether outputs are locked only when the programs have ended.
    at_end: bool,
}

impl Store {
    fn new() -> Self {
        Self::on(Arc::new(MemoryMedia::with_bytes(vec![])), None)
    }

    /// Makes a store on a medium, with a write buffer of this number of bytes if one is given.
    fn on(media: Arc<dyn Media>, write_buffer_bytes: Option<usize>) -> Self {
        let device = Device::open(media, "memory", Mode::Exclusive, &options(write_buffer_bytes)).unwrap();
        let values: Vec<u64> = (0..ITEMS).map(|i| i * i + 7).collect();
        let (from, to) = (make(&device, "from", &values), make(&device, "to", &vec![1; ITEMS as usize]));
        Self { runtime: Runtime::new(Arc::new(device)), from, to, values, at_end: false }
    }

    /// Copies one space to the other with two stages; the second stage fails in the task of number `fails`, if there is
    /// one.
    fn copy(&self, executor: &dyn Executor, fails: u64) -> Result<Executed, Error> {
        self.copy_seen(executor, fails, &Progress::default())
    }

    fn copy_seen(&self, executor: &dyn Executor, fails: u64, progress: &Progress) -> Result<Executed, Error> {
        let program = self.runtime.load(&common::by_hand(), None)?;
        let (start, step, count, view, tiles) = (&[0][..], &[1][..], &[ITEMS][..], None, None);
        let first = [Input::Box { space: self.from, start, step, count, view, tiles }];
        let second = [Input::Output { stage: 0, output: 0 }];
        let to = [Some(Output::Box { space: self.to, start, count, view, tiles }), Some(Output::Collect)];
        let stage = |inputs, scalars, outputs| StageRequest {
            program,
            form: Form::Translated,
            inputs,
            scalars,
            outputs,
            task_bytes: 400,
            instructions: None,
            cores: &[],
        };
        let scalars = [fails, u64::MAX, u64::MAX];
        let stages = [stage(&first, &[u64::MAX; 3], &[None, None]), stage(&second, &scalars, &to)];
        let done = self.runtime.execute(&Execution {
            stages: &stages,
            executor,
            hold_bytes: HOLD_BYTES,
            collect_bytes: u64::MAX,
            locks_at_end: self.at_end,
            progress,
        });
        // A store that is closed, or lost its medium, takes no further command.
        drop(self.runtime.unload(program));
        done
    }

    fn is_sound(&self) {
        let device = self.runtime.device();
        device.execute(command::Flush).unwrap();
        let report = device.execute(command::Check { repair: false, accept_older: false }).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

#[test]
fn a_run_writes_all_of_its_output_on_every_executor() {
    let executors: [&dyn Executor; 4] =
        [&Threads(1), &Threads(4), &Scrambled { seed: 11, jobs: 5 }, &Scrambled { seed: 12, jobs: 40 }];
    let mut given = Vec::new();
    for (number, executor) in executors.iter().chain(&executors).enumerate() {
        let store = Store { at_end: number >= 4, ..Store::new() };
        let done = store.copy(*executor, u64::MAX).unwrap();
        assert_eq!(content(store.runtime.device(), store.to), store.values, "{executor:?}");
        assert_eq!(done.stages[1].outputs[0], Some(OutputValue::Elements(ITEMS)));
        given.push((done.stages[1].outputs[1].clone(), done.stages[1].state.clone(), done.account));
        store.is_sound();
    }
    assert!(given.iter().all(|one| *one == given[0]), "{given:?}");
}

#[test]
fn a_failed_run_leaves_everything_as_it_was_and_holds_nothing() {
    [false, true].into_iter().for_each(failed_runs_leave_nothing);
}

fn failed_runs_leave_nothing(at_end: bool) {
    let store = Store { at_end, ..Store::new() };
    let device = store.runtime.device();
    let mut before = content(device, store.to);
    let executors: [(&dyn Executor, u64); 5] = [
        (&Threads(4), 20),
        (&Scrambled { seed: 5, jobs: 8 }, 20),
        (&Dying { after: 0 }, u64::MAX),
        (&Dying { after: 3 }, u64::MAX),
        (&Dying { after: 60 }, u64::MAX),
    ];
    for (round, (executor, fails)) in executors.into_iter().enumerate() {
        match store.copy(executor, fails) {
            Err(Error::Execution(failed)) if fails == 20 => assert_eq!(failed.error.task(), Some(20), "{failed}"),
            Err(Error::Execution(failed)) => {
                assert!(matches!(&failed.error, RunError::Worker(what) if what.contains("dying")), "{failed}");
            }
            done => panic!("{executor:?}: {done:?}"),
        }
        assert_eq!(content(device, store.to), before, "{executor:?}");
        // The blocks that the run wrote to can be written: their range locks were released.
        before = vec![round as u64; ITEMS as usize];
        fill(device, store.to, &before);
        assert_eq!(content(device, store.to), before, "{executor:?}");
        store.is_sound();
    }
    store.copy(&Threads(2), u64::MAX).unwrap();
    assert_eq!(content(device, store.to), store.values);
    store.is_sound();
    device.close().unwrap();
    assert!(matches!(store.runtime.load(&common::by_hand(), None), Err(Error::Engine(nandarray::Error::Closed(_)))));
}
