//! Requests that cannot be: each is refused with a text that says why, changes nothing, and holds nothing.

use nandarray_runtime::Tiles;

use super::*;

/// Parts of a request of one program, all of which are right at first.
struct Request<'a> {
    inputs: Vec<Input<'a>>,
    outputs: Vec<Option<Output<'a>>>,
    scalars: Vec<u64>,
}

fn run(store: &Store, request: &Request<'_>) -> Result<Executed, Error> {
    let program = store.runtime.load(&common::by_hand(), None).unwrap();
    let Request { inputs, outputs, scalars } = request;
    let (form, task_bytes) = (Form::Interpreted, 400);
    let stages = [StageRequest { program, form, inputs, scalars, outputs, task_bytes, instructions: None, cores: &[] }];
    let (executor, progress) = (Threads(2), Progress::default());
    let execution = Execution {
        stages: &stages,
        executor: &executor,
        hold_bytes: HOLD_BYTES,
        collect_bytes: u64::MAX,
        locks_at_end: false,
        progress: &progress,
    };
    let done = store.runtime.execute(&execution);
    store.runtime.unload(program).unwrap();
    done
}

static ONES: [u64; 2] = [1; 2];

fn from<'a>(space: SpaceId, start: &'a [u64], count: &'a [u64], view: Option<&'a [u64]>) -> Input<'a> {
    Input::Box { space, start, step: &ONES[..count.len()], count, view, tiles: None }
}

fn to<'a>(space: SpaceId, start: &'a [u64], count: &'a [u64], view: Option<&'a [u64]>) -> Output<'a> {
    Output::Box { space, start, count, view, tiles: None }
}

const FAR: u64 = u64::MAX - 4;

/// Requests, each with a part of the text of its refusal: `f` is the space that is read, `t` the one that is written.
fn requests<'a>(f: SpaceId, t: SpaceId, odd: SpaceId) -> Vec<(&'static str, Request<'a>)> {
    let scalars = vec![u64::MAX; 3];
    let right = || from(f, &[0], &[10], None);
    let with = |first: Option<Output<'a>>, second: Option<Output<'a>>| Request {
        inputs: vec![right()],
        outputs: vec![first, second],
        scalars: vec![u64::MAX; 3],
    };
    let one = |output: Output<'a>| with(Some(output), Some(Output::Collect));
    let reads = |input: Input<'a>| Request {
        inputs: vec![input],
        outputs: vec![Some(Output::Collect), Some(Output::Collect)],
        scalars: vec![u64::MAX; 3],
    };
    let tiles = |first: &'a [u64], size: &'a [u64]| Tiles { first, size, extent_axes: &[], halo: None };
    let tiled = |first, size| Input::Box {
        space: f,
        start: &[0],
        step: &[1],
        count: &[10],
        view: None,
        tiles: Some(tiles(first, size)),
    };
    vec![
        ("an input of 2 dimensions of an array of shape (3000,)", reads(from(f, &[0, 0], &[1, 1], None))),
        ("index 3000 is out of bounds for axis 0 with size 3000", reads(from(f, &[2991], &[10], None))),
        ("is out of bounds for axis 0", reads(from(f, &[FAR], &[10], None))),
        ("is out of bounds for axis 1 with size 60", reads(from(f, &[0, 51], &[50, 10], Some(&[50, 60])))),
        ("2999", reads(from(f, &[0], &[10], Some(&[2999])))),
        ("tiles of 2 dimensions of a box of 1", reads(tiled(&[1, 1], &[1, 1]))),
        ("tiles of [2] elements, the first of [3]", reads(tiled(&[3], &[2]))),
        ("input x of 79 bytes is not whole elements of 8", reads(Input::Bytes(&[0; 79]))),
        ("there is no output 0 of a stage 0 before stage 0", reads(Input::Output { stage: 0, output: 0 })),
        ("scalar hangs is missing", Request { scalars: vec![0; 2], ..reads(right()) }),
        ("2 inputs for a program that takes 1", Request { inputs: vec![right(), right()], ..reads(right()) }),
        ("1 outputs for a program that takes 2", Request { outputs: vec![None], scalars, ..reads(right()) }),
        ("an output of 2 dimensions to an array of shape (3000,)", one(to(t, &[0, 0], &[2, 5], None))),
        ("index 3000 is out of bounds for axis 0 with size 3000", one(to(t, &[2991], &[10], None))),
        ("output 0 has more than the 9 elements of (9,)", one(to(t, &[0], &[9], None))),
        ("output 0 of 80 bytes is no whole elements of 12 bytes", one(to(odd, &[0], &[50], None))),
        ("two outputs go to the same elements", with(Some(to(t, &[0], &[11], None)), Some(to(t, &[10], &[2], None)))),
        (
            "or to two views of it",
            with(Some(to(t, &[0], &[10], None)), Some(to(t, &[40, 0], &[1, 1], Some(&[50, 60])))),
        ),
        ("is out of bounds for axis 0", with(Some(to(t, &[FAR], &[10], None)), Some(to(t, &[0], &[1], None)))),
        (
            "two outputs go to the same elements",
            with(Some(to(t, &[FAR], &[10], None)), Some(to(t, &[FAR], &[8], None))),
        ),
    ]
}

#[test]
fn what_cannot_be_is_refused_in_words_and_changes_nothing() {
    let store = Store::new();
    let device = store.runtime.device();
    let new = NewSpace {
        name: "odd",
        shape: &[50],
        item_bytes: 12,
        dtype: "|V12",
        block: None,
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let odd = device.execute(command::Create(new)).unwrap().id;
    let mut before = content(device, store.to);
    for (number, (says, request)) in requests(store.from, store.to, odd).into_iter().enumerate() {
        let error = run(&store, &request).unwrap_err();
        assert!(error.to_string().contains(says), "request {number}: {error:?} does not say {says:?}");
        assert!(matches!(error, Error::Engine(_)), "request {number}: {error:?}");
        assert_eq!(content(device, store.to), before, "request {number}: {says}");
        // No lock of the outputs' blocks is left.
        before = vec![number as u64; ITEMS as usize];
        fill(device, store.to, &before);
    }
    store.is_sound();
}

/// Boxes that only touch, or are empty, do not overlap.
#[test]
fn outputs_that_lie_apart_are_written_together() {
    let store = Store::new();
    let device = store.runtime.device();
    // The second output, of the program's end, has one element.
    let places: [(&[u64], &[u64], &[u64], &[u64]); 4] = [
        (&[0], &[10], &[10], &[1]),
        (&[11], &[10], &[10], &[1]),
        (&[2000], &[10], &[2999], &[1]),
        (&[5], &[10], &[4], &[1]),
    ];
    for (first, count, second, one) in places {
        let request = Request {
            inputs: vec![from(store.from, &[100], &[10], None)],
            outputs: vec![Some(to(store.to, first, count, None)), Some(to(store.to, second, one, None))],
            scalars: vec![u64::MAX; 3],
        };
        let mut expected = content(device, store.to);
        expected[first[0] as usize..][..10].copy_from_slice(&store.values[100..110]);
        let hash = store.values[100..110].iter().fold(0u64, |h, x| h.wrapping_mul(31).wrapping_add(*x));
        expected[second[0] as usize] = hash;
        let done = run(&store, &request).unwrap();
        assert_eq!(done.stages[0].outputs, [Some(OutputValue::Elements(10)), Some(OutputValue::Elements(1))]);
        assert_eq!(content(device, store.to), expected, "{first:?} and {second:?}");
    }
    let empty: &[u64] = &[0];
    let request = Request {
        inputs: vec![from(store.from, &[0], empty, None)],
        outputs: vec![Some(to(store.to, &[105], empty, None)), Some(to(store.to, &[100], &[10], None))],
        scalars: vec![u64::MAX; 3],
    };
    let done = run(&store, &request).unwrap();
    assert_eq!(done.stages[0].outputs[0], Some(OutputValue::Elements(0)), "an empty box within another");
}

#[test]
fn runs_without_programs_or_with_unknown_ones_are_refused() {
    let store = Store::new();
    let (executor, progress) = (Threads(1), Progress::default());
    let none = Execution {
        stages: &[],
        executor: &executor,
        hold_bytes: HOLD_BYTES,
        collect_bytes: u64::MAX,
        locks_at_end: false,
        progress: &progress,
    };
    assert_eq!(store.runtime.execute(&none).unwrap_err().to_string(), "an execution without a program");
    let (form, scalars, instructions) = (Form::Interpreted, &[][..], None);
    let (inputs, outputs) = (&[][..], &[][..]);
    let unknown = StageRequest { program: 9, form, inputs, scalars, outputs, task_bytes: 1, instructions, cores: &[] };
    let execution = Execution { stages: &[unknown], ..none };
    let error = store.runtime.execute(&execution).unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("program 9")), ("not-found", true), "{error}");
    let program = store.runtime.load(&common::by_hand(), None).unwrap();
    store.runtime.unload(program).unwrap();
    assert_eq!(store.runtime.unload(program).unwrap_err().kind(), "not-found");
}
