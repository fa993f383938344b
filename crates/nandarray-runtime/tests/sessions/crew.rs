//! Sessions on threads: random graphs of kernels over the arrays of a store, some of which fail or are cancelled,
//! beside the same kernels one after the other.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use nandarray::{BufferMut, Device, Geometry, MemoryMedia, Mode, NewSpace, Options, Source, SpaceId, Target, command};
use nandarray_runtime::{
    Collected, Error, KernelForm, KernelRequest, LoadedKernel, Runtime, SectionBinding, SectionBox, SectionSource,
    SectionTarget, Session, SessionJob, SessionOptions,
};

use super::*;

const SPACES: usize = 3;
const ITEMS: u64 = 240;
/// Time after which a kernel that has not ended never will.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// `y = 3 y + x` for the rows of a screen: what it gives depends on the order of kernels. Fails if the scalar is not 0.
const MIX: &[&str] = &[
    "ld t0, 1112(a0)",
    "beq t0, zero, . + 12",
    "addi a0, zero, -3",
    "jalr zero, 0(ra)",
    "ld t0, 600(a0)",
    "ld t1, 608(a0)",
    "ld t3, 88(a0)",
    "add t1, t0, t1",
    "beq t0, t1, . + 40",
    "ld t2, 0(t0)",
    "ld t4, 0(t3)",
    "slli t5, t2, 1",
    "add t2, t2, t5",
    "add t2, t2, t4",
    "sd t2, 0(t0)",
    "addi t0, t0, 8",
    "addi t3, t3, 8",
    "jal zero, . - 36",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

/// Adds one to all of `y`, in one screen.
const ADD: &[&str] = &[
    "ld t0, 600(a0)",
    "ld t1, 608(a0)",
    "add t1, t0, t1",
    "beq t0, t1, . + 24",
    "ld t2, 0(t0)",
    "addi t2, t2, 1",
    "sd t2, 0(t0)",
    "addi t0, t0, 8",
    "jal zero, . - 20",
    "addi a0, zero, 0",
    "jalr zero, 0(ra)",
];

const TABLE: &str = r#"{"abi": 1, "name": "mix", "kind": "kernel", "scalars": [{"name": "fails", "dtype": "int64"}],
    "inputs": [{"name": "x", "item_bytes": 8}], "outputs": [{"name": "y", "item_bytes": 8, "update": true}],
    "microblocks": [{"entry": "mix", "screens": "y", "reads": {"x": "rows"}, "writes": {"y": "rows"}},
                    {"entry": "add", "screens": 1, "reads": {}, "writes": {"y": "all"}}]}"#;

/// A kernel of a test: which elements of which arrays it reads and writes, and what it waits for.
#[derive(Clone, Debug)]
struct Given {
    from: (usize, u64),
    to: (usize, u64),
    count: u64,
    fails: bool,
    /// Whether the result goes to the caller in place of the array.
    collects: bool,
    after: Vec<u64>,
}

impl Given {
    fn writes(&self, place: (usize, u64), count: u64) -> bool {
        !self.collects && self.to.0 == place.0 && self.to.1 < place.1 + count && place.1 < self.to.1 + self.count
    }

    /// Whether two kernels must keep their order: one writes what the other reads or writes.
    fn meets(&self, other: &Self) -> bool {
        self.writes(other.from, other.count)
            || self.writes(other.to, other.count)
            || other.writes(self.from, self.count)
            || other.writes(self.to, self.count)
    }

    fn apply(&self, arrays: &[Vec<u64>]) -> Vec<u64> {
        let part = |(space, first): (usize, u64)| &arrays[space][first as usize..(first + self.count) as usize];
        let mixed = part(self.to).iter().zip(part(self.from));
        mixed.map(|(y, x)| y.wrapping_mul(3).wrapping_add(*x).wrapping_add(1)).collect()
    }
}

fn draw(rng: &mut Rng, before: &[Given]) -> Given {
    let count = rng.u64(1..=60);
    let place = |rng: &mut Rng| (rng.usize(..SPACES), rng.u64(..=ITEMS - count));
    let (from, to) = (place(rng), place(rng));
    let mut given = Given { from, to, count, fails: rng.u8(..9) == 0, collects: rng.u8(..4) == 0, after: vec![] };
    // Kernels that conflict are ordered, and some of the others.
    let waits = |(number, other): (usize, &Given)| (other.meets(&given) || rng.u8(..12) == 0).then_some(number as u64);
    given.after = before.iter().enumerate().filter_map(waits).collect();
    given
}

fn transfer(device: &Device, space: SpaceId, values: &mut [u64], writes: bool) {
    let count = [values.len() as u64];
    let target = Target::Box { start: &[0], step: &[1], count: &count, strides: &[8], view: None };
    let memory: *mut u8 = values.as_mut_ptr().cast();
    if writes {
        // SAFETY: the buffer has the elements of the space.
        device.execute(command::Write { space, target, source: unsafe { Source::from_raw(memory) } }).unwrap();
    } else {
        // SAFETY: as above.
        device.execute(command::Read { space, target, out: unsafe { BufferMut::from_raw(memory) } }).unwrap();
    }
}

fn store(rng: &mut Rng) -> (Arc<Runtime>, Vec<SpaceId>, Vec<Vec<u64>>) {
    let options = Options { geometry: Geometry::TINY, threads: Some(1), ..Options::default() };
    let device = Device::open(Arc::new(MemoryMedia::default()), "memory", Mode::Truncate, &options).unwrap();
    let (mut spaces, mut arrays) = (Vec::new(), Vec::new());
    for number in 0..SPACES {
        let name = format!("array {number}");
        let (block, compression) = (Some(&[16][..]), (number == 1).then_some("lz4"));
        let new = NewSpace {
            name: &name,
            shape: &[ITEMS],
            item_bytes: 8,
            dtype: "<u8",
            block,
            compression,
            key: None,
            fill: None,
            attrs: "{}",
        };
        let space = device.execute(command::Create(new)).unwrap().id;
        let mut values: Vec<u64> = (0..ITEMS).map(|_| rng.u64(..)).collect();
        transfer(&device, space, &mut values, true);
        spaces.push(space);
        arrays.push(values);
    }
    (Arc::new(Runtime::new(Arc::new(device))), spaces, arrays)
}

fn request(kernel: &Arc<LoadedKernel>, given: &Given, spaces: &[SpaceId], form: KernelForm) -> KernelRequest {
    let part = |(space, first): (usize, u64)| SectionBox {
        space: spaces[space],
        start: vec![first],
        step: vec![1],
        count: vec![given.count],
        view: None,
    };
    let bind = |source, target| SectionBinding { shape: vec![given.count], source, target };
    let (x, y) = (SectionSource::Box(part(given.from)), SectionSource::Box(part(given.to)));
    let target = if given.collects { SectionTarget::Collect } else { SectionTarget::Box(part(given.to)) };
    KernelRequest {
        kernel: kernel.clone(),
        form,
        sections: vec![bind(x, SectionTarget::Nowhere), bind(y, target)],
        scalars: vec![given.fails.into()],
        name: String::new(),
        facts: KernelFacts::default(),
        after: given.after.clone(),
        after_names: Vec::new(),
        instructions: Some(1 << 20),
    }
}

/// Checks the ends of all kernels, one after the other, and executes those that are done in the reference.
fn judge(
    all: &[Given],
    ends: Vec<nandarray_runtime::Result<Collected>>,
    cancelled: &[bool],
    arrays: &mut [Vec<u64>],
    seed: u64,
) {
    let mut done: Vec<bool> = Vec::new();
    for (number, (given, end)) in all.iter().zip(ends).enumerate() {
        let context = format!("seed {seed}, kernel {number}: {given:?}");
        let failed: Vec<u64> = given.after.iter().copied().filter(|k| !done[*k as usize]).collect();
        let is_done = end.is_ok();
        match end {
            Err(Error::Cancelled) => assert!(cancelled[number], "{context}"),
            _ if cancelled[number] => panic!("it was cancelled, and ends as {end:?}, {context}"),
            Err(Error::Dependency { on, .. }) => {
                assert!(on.is_some_and(|on| failed.contains(&on)), "{on:?}, {context}")
            }
            Err(Error::Kernel { kernel, error }) => {
                assert!(given.fails && failed.is_empty() && kernel == "mix", "{error}, {context}");
                assert!(error.to_string().contains("-3"), "{error}");
            }
            Ok(sections) => {
                assert!(failed.is_empty() && !given.fails, "{failed:?}, {context}");
                let wanted = given.apply(arrays);
                if given.collects {
                    let bytes: Vec<u8> = wanted.iter().flat_map(|value| value.to_le_bytes()).collect();
                    assert!(sections == [None, Some(bytes)], "{context}");
                } else {
                    assert!(sections.iter().all(Option::is_none), "{context}");
                    arrays[given.to.0][given.to.1 as usize..][..given.count as usize].copy_from_slice(&wanted);
                }
            }
            Err(other) => panic!("{other}, {context}"),
        }
        done.push(is_done);
    }
}

#[test]
fn kernels_of_a_session_give_what_they_give_one_after_the_other() {
    let elf = common::elf(&[("nd_kernel_mix", MIX), ("nd_kernel_add", ADD)], Some(TABLE));
    let kernel = Arc::new(LoadedKernel::new(&elf, TABLE.as_bytes()).unwrap());
    for seed in 0..32 {
        let mut rng = Rng::with_seed(seed);
        let (runtime, spaces, mut arrays) = store(&mut rng);
        let scheduler = SCHEDULERS[seed as usize % SCHEDULERS.len()].to_owned();
        let workers = 1 + seed as usize / SCHEDULERS.len() % 4;
        let options = SessionOptions { scheduler, workers, memory_bytes: 2000, window_bytes: 100 };
        let session = Session::new(&runtime, &options).unwrap();
        let (mut all, mut jobs, mut cancelled) = (Vec::new(), Vec::<Arc<SessionJob>>::new(), Vec::new());
        for number in 0..30 {
            let given = draw(&mut rng, &all);
            let form = if rng.bool() { KernelForm::Interpreted } else { KernelForm::Translated };
            let job = session.submit(request(&kernel, &given, &spaces, form)).unwrap();
            assert_eq!(job.number, number);
            all.push(given);
            jobs.push(job);
            cancelled.push(false);
            if rng.u8(..10) == 0 {
                let which = rng.usize(..jobs.len());
                cancelled[which] |= session.cancel(&jobs[which]);
            }
        }
        if seed.is_multiple_of(3) {
            session.close(false);
        }
        let end = |job: &Arc<SessionJob>| {
            assert!(session.wait(job, LONG) && job.has_ended());
            let end = job.take().expect("its result");
            assert!(job.take().is_none() && session.state(job).is_none(), "it is taken once, and forgotten");
            end
        };
        let ends = jobs.iter().map(end).collect();
        judge(&all, ends, &cancelled, &mut arrays, seed);
        for (space, values) in spaces.iter().zip(&arrays) {
            let mut found = vec![0; ITEMS as usize];
            transfer(runtime.device(), *space, &mut found, false);
            assert!(found == *values, "array {space}, seed {seed}, {options:?}");
        }
    }
}

#[test]
fn submissions_that_do_not_fit_are_refused_by_the_name_of_their_section() {
    let elf = common::elf(&[("nd_kernel_mix", MIX), ("nd_kernel_add", ADD)], Some(TABLE));
    let kernel = Arc::new(LoadedKernel::new(&elf, TABLE.as_bytes()).unwrap());
    let (runtime, spaces, arrays) = store(&mut Rng::with_seed(1));
    let options =
        SessionOptions { scheduler: SCHEDULERS[0].to_owned(), workers: 2, memory_bytes: 2000, window_bytes: 1 };
    let session = Session::new(&runtime, &options).unwrap();
    let right = Given { from: (0, 0), to: (1, 0), count: 10, fails: false, collects: false, after: vec![] };
    let made = |change: &dyn Fn(&mut KernelRequest)| {
        let mut made = request(&kernel, &right, &spaces, KernelForm::Translated);
        change(&mut made);
        session.submit(made)
    };
    let source = |request: &mut KernelRequest, change: &dyn Fn(&mut SectionBox)| {
        let SectionSource::Box(from) = &mut request.sections[0].source else { panic!("a box") };
        change(from);
    };
    // At its submission, or when its sections are read or written; a request of any numbers ends with an error.
    let changes: [(&str, &dyn Fn(&mut KernelRequest)); 10] = [
        ("there must be 2 sections and 1 scalars, not 1 and 1", &|r| drop(r.sections.pop())),
        ("not 2 and 2", &|r| r.scalars.push(1)),
        ("section x has another number of elements", &|r| source(r, &|from| from.count[0] = 11)),
        ("section x has another number of elements", &|r| source(r, &|from| from.count = vec![1 << 33, 1 << 33])),
        ("an input of 0 dimensions", &|r| {
            r.sections[0].shape = vec![];
            source(r, &|from| from.count = vec![]);
        }),
        ("an input of 1 dimensions", &|r| source(r, &|from| from.step = vec![])),
        ("out of bounds", &|r| source(r, &|from| from.start[0] = u64::MAX)),
        ("out of bounds", &|r| source(r, &|from| from.step[0] = u64::MAX)),
        ("9 bytes for section y of 80", &|r| r.sections[1].source = SectionSource::Bytes(Arc::new(vec![0; 9]))),
        ("1000", &|r| r.after = vec![1000]),
    ];
    for (says, change) in changes {
        let error = match made(change) {
            Err(error) => error,
            Ok(job) => {
                assert!(session.wait(&job, LONG));
                job.take().unwrap().unwrap_err()
            }
        };
        assert!(error.to_string().contains(says), "{error} does not say {says}");
        let mut found = vec![0; ITEMS as usize];
        transfer(runtime.device(), spaces[1], &mut found, false);
        assert!(found == arrays[1], "{says}: the array changed");
    }
    let job = made(&|_| {}).unwrap();
    assert!(session.wait(&job, LONG));
    job.take().unwrap().unwrap();
    session.close(true);
    assert!(made(&|_| {}).unwrap_err().to_string().contains("the session is closed"));
}
