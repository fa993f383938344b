//! Arguments that no command takes: the kind of the error, its text, and a store that is as before.
//!
//! Every refusal is tried on a store whose arrays are plain, compressed, encrypted, scalar, empty, and far larger than
//! any disk. Tables have the arguments; the text is compared as a whole, so that each of its numbers is the right one.

use std::sync::Arc;

use fastrand::Rng;
use nandarray::{
    Axis, BufferMut, Change, Device, Error, Geometry, MemoryMedia, Mode, NewSpace, Options, Result, Source, SpaceId,
    Target, command,
};

use crate::common::*;

/// Creates the store of these tests: its arrays have one block side that is not a power of two.
fn make() -> (Device, Model) {
    let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &options(Geometry::TINY, 3)).unwrap();
    let mut model = Model::new();
    let arrays: [(&str, &[u64], Option<&[u64]>, Option<&'static str>, bool); 5] = [
        ("plain", &[6, 10], Some(&[4, 3]), None, false),
        ("coded", &[6, 10], None, Some("lz4+shuffle"), false),
        ("sealed", &[6, 10], None, None, true),
        ("scalar", &[], None, None, false),
        ("none", &[0, 10], None, None, false),
    ];
    for (name, shape, block, compression, key) in arrays {
        let (name, shape, block) = (name.to_owned(), shape.to_vec(), block.map(<[u64]>::to_vec));
        let op = Op::Create { name: name.clone(), shape: shape.clone(), item: 2, block, compression, key, fill: 0 };
        op.run(&device).unwrap();
        op.tell(&mut model);
        if !shape.contains(&0) {
            let op = Op::Write { name, part: Part::all(&shape), salt: 7 };
            op.run(&device).unwrap();
            op.tell(&mut model);
        }
    }
    (device, model)
}

/// The number of an array of the store.
fn id(device: &Device, name: &str) -> SpaceId {
    open_space(device, name).unwrap().id
}

/// Panics unless the command failed with an error of this kind and text.
fn assert_refused<T>(done: Result<T>, kind: &str, text: &str, what: &dyn std::fmt::Debug) {
    let error = done.err().unwrap_or_else(|| panic!("{what:?} was accepted; it should say {text:?}"));
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, text), "{what:?}");
}

/// Reads and writes a target that is refused; the buffer is as large as any of the tables' targets needs.
fn assert_no_target(device: &Device, name: &str, target: &Target<'_>, kind: &str, text: &str) {
    let mut buffer = vec![0u8; 4096];
    let space = id(device, name);
    // SAFETY: the command is refused, or moves fewer elements than the buffer has.
    let out = unsafe { BufferMut::from_raw(buffer.as_mut_ptr()) };
    let done = device.execute(command::Read { space, target: target.clone(), out });
    assert_refused(done, kind, text, &("read", name, target));
    // SAFETY: as above.
    let source = unsafe { Source::from_raw(buffer.as_ptr()) };
    let done = device.execute(command::Write { space, target: target.clone(), source });
    assert_refused(done, kind, text, &("write", name, target));
    assert!(buffer.iter().all(|&b| b == 0), "{target:?} of {name} moved bytes");
}

type BoxRow = (&'static [u64], &'static [u64], &'static [u64], Option<&'static [u64]>, &'static str, &'static str);

/// Boxes of an array of shape (6, 10): start, step, count, view, kind and text of the error.
const BOXES: [BoxRow; 13] = [
    (&[0], &[1], &[6], None, "invalid", "the selection has 1 dimensions; 2 are needed for shape (6, 10)"),
    (&[], &[], &[], None, "invalid", "the selection has 0 dimensions; 2 are needed for shape (6, 10)"),
    (&[0, 0], &[1], &[6, 1], None, "invalid", "the selection has 2 dimensions; 2 are needed for shape (6, 10)"),
    (&[0, 0], &[1, 0], &[6, 2], None, "invalid", "step 0 on axis 1"),
    (&[0, 3], &[1, 1], &[6, 8], None, "out-of-range", "index 10 is out of bounds for axis 1 with size 10"),
    (&[4, 0], &[2, 1], &[2, 10], None, "out-of-range", "index 6 is out of bounds for axis 0 with size 6"),
    (
        &[u64::MAX, 0],
        &[1, 1],
        &[1, 1],
        None,
        "out-of-range",
        "index 18446744073709551615 is out of bounds for axis 0 with size 6",
    ),
    (
        &[1, 0],
        &[u64::MAX, 1],
        &[2, 1],
        None,
        "out-of-range",
        "index 18446744073709551616 is out of bounds for axis 0 with size 6",
    ),
    (
        &[u64::MAX, 0],
        &[u64::MAX, 1],
        &[u64::MAX, 1],
        None,
        "out-of-range",
        "index 340282366920938463426481119284349108225 is out of bounds for axis 0 with size 6",
    ),
    (
        &[0],
        &[1],
        &[61],
        Some(&[61]),
        "volume-mismatch",
        "a view of shape (61,) cannot be taken of an array of shape (6, 10): the number of elements differs",
    ),
    (
        &[0, 0],
        &[1, 1],
        &[1, 1],
        Some(&[7, 9]),
        "volume-mismatch",
        "a view of shape (7, 9) cannot be taken of an array of shape (6, 10): the number of elements differs",
    ),
    (
        &[],
        &[],
        &[],
        Some(&[]),
        "volume-mismatch",
        "a view of shape () cannot be taken of an array of shape (6, 10): the number of elements differs",
    ),
    (&[], &[], &[], Some(&[60]), "invalid", "the selection has 0 dimensions; 1 are needed for shape (60,)"),
];

#[test]
fn boxes_that_do_not_fit_are_refused_with_their_numbers() {
    let (device, model) = make();
    for name in ["plain", "coded", "sealed"] {
        for (start, step, count, view, kind, text) in BOXES {
            let strides = vec![0; count.len()];
            let target = Target::Box { start, step, count, strides: &strides, view };
            assert_no_target(&device, name, &target, kind, text);
        }
        let target = Target::Box { start: &[0, 0], step: &[1, 1], count: &[1, 1], strides: &[2], view: None };
        let text = "the selection has 2 dimensions; 2 are needed for shape (6, 10)";
        assert_no_target(&device, name, &target, "invalid", text);
    }
    let target = Target::Box { start: &[0], step: &[1], count: &[2], strides: &[2], view: None };
    assert_no_target(&device, "scalar", &target, "out-of-range", "index 1 is out of bounds for axis 0 with size 1");
    let target = Target::Box { start: &[0, 0], step: &[1, 1], count: &[1, 1], strides: &[2, 2], view: None };
    assert_no_target(&device, "none", &target, "out-of-range", "index 0 is out of bounds for axis 0 with size 0");
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
}

#[test]
fn other_targets_that_do_not_fit_are_refused_with_their_numbers() {
    let (device, model) = make();
    let (range, list) =
        (|start, step, count| Axis::Range { start, step, count }, |list: &[u64]| Axis::List(list.to_vec()));
    let outer: [(Vec<Axis>, &str, &str); 5] = [
        (vec![range(0, 1, 6)], "invalid", "the selection has 1 dimensions; the array has shape (6, 10)"),
        (vec![range(0, 0, 6), list(&[1])], "invalid", "step 0 on axis 0"),
        (vec![range(5, 1, 2), list(&[1])], "out-of-range", "index 6 is out of bounds for axis 0 with size 6"),
        (vec![list(&[]), list(&[3, 10, 2])], "out-of-range", "index 10 is out of bounds for axis 1 with size 10"),
        (vec![list(&[5, 6]), list(&[10])], "out-of-range", "index 6 is out of bounds for axis 0 with size 6"),
    ];
    for (axes, kind, text) in &outer {
        let strides = vec![0; axes.len()];
        assert_no_target(&device, "plain", &Target::Outer { axes, strides: &strides }, kind, text);
    }
    let target = Target::Outer { axes: &[range(0, 1, 1), range(0, 1, 1)], strides: &[2] };
    assert_no_target(&device, "plain", &target, "invalid", "as many strides as axes are needed");
    let points: [(&[u64], &str, &str); 3] = [
        (&[1, 2, 3], "invalid", "3 coordinates are no points of 2 dimensions"),
        (&[5, 9, 2, 10], "out-of-range", "index 10 is out of bounds for axis 1 with size 10"),
        (&[5, 9, 6, 10], "out-of-range", "index 6 is out of bounds for axis 0 with size 6"),
    ];
    for (coordinates, kind, text) in points {
        for name in ["plain", "coded"] {
            assert_no_target(&device, name, &Target::Points { coordinates, stride: 2 }, kind, text);
        }
    }
    let boxes = |starts, step, count, view| Target::Boxes { starts, step, count, strides: &[20, 2], stride: 40, view };
    let rows: [(Target<'_>, &str, &str); 4] = [
        (
            boxes(&[0, 0, 1], &[1, 1], &[1, 1], None),
            "invalid",
            "3 coordinates are no boxes of 2 dimensions; the shape is (6, 10)",
        ),
        (
            boxes(&[0, 0], &[1], &[1, 1], None),
            "invalid",
            "2 coordinates are no boxes of 2 dimensions; the shape is (6, 10)",
        ),
        (
            boxes(&[0, 0, 5, 9], &[1, 1], &[1, 2], Some(&[6, 10])),
            "out-of-range",
            "index 10 is out of bounds for axis 1 with size 10",
        ),
        (
            boxes(&[0, 0], &[1, 1], &[1, 2], Some(&[10, 7])),
            "volume-mismatch",
            "a view of shape (10, 7) cannot be taken of an array of shape (6, 10): the number of elements differs",
        ),
    ];
    let mut buffer = vec![0u8; 4096];
    let space = id(&device, "plain");
    for (target, kind, text) in rows {
        // SAFETY: the command is refused.
        let out = unsafe { BufferMut::from_raw(buffer.as_mut_ptr()) };
        assert_refused(device.execute(command::Read { space, target: target.clone(), out }), kind, text, &target);
    }
    // Read, these boxes are two overlapping ones; written, the result would depend on their order.
    let target = boxes(&[0, 0, 0, 1], &[1, 1], &[1, 2], None);
    // SAFETY: the command is refused.
    let source = unsafe { Source::from_raw(buffer.as_ptr()) };
    let text = "boxes of 2 elements along axis 1 begin at 0 and at 1; all must begin at the same";
    assert_refused(device.execute(command::Write { space, target: target.clone(), source }), "invalid", text, &target);
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
}

/// An array of 2^93 elements in blocks of 2^15, which has more blocks than 64 bits can number.
const VAST: NewSpace<'_> = NewSpace {
    name: "vast",
    shape: &[1 << 31, 1 << 31, 1 << 31],
    item_bytes: 1,
    dtype: "|V1",
    block: Some(&[32, 32, 32]),
    compression: None,
    key: None,
    fill: None,
    attrs: "{}",
};

#[test]
fn more_blocks_than_a_command_can_count_are_refused_and_not_skipped() {
    let (device, mut model) = make();
    let space = device.execute(command::Create(VAST)).unwrap().id;
    let one = [1u8; 1];
    // SAFETY: all strides are 0, so that every element is the buffer's only byte.
    let source = unsafe { Source::from_raw(one.as_ptr()) };
    let write = |start: &[u64], count: &[u64], view: Option<&[u64]>| {
        let (step, strides) = (vec![1; count.len()], vec![0; count.len()]);
        let target = Target::Box { start, step: &step, count, strides: &strides, view };
        device.execute(command::Write { space, target, source })
    };
    let (whole, half) = (1 << 31, 1 << 30);
    let per_axis =
        |n: u128| format!("the selection touches {n} building blocks; one command takes {} at most", 1u128 << 44);
    assert_refused(write(&[0; 3], &[whole; 3], None), "invalid", &per_axis(1 << 78), &"the whole");
    assert_refused(write(&[half, 0, 0], &[half; 3], None), "invalid", &per_axis(1 << 75), &"an eighth");
    let view = [1 << 30, 1 << 32, 1 << 31];
    let seen = write(&[0; 3], &view, Some(&view));
    assert_eq!(seen.unwrap_err().kind(), "invalid", "the same elements, seen in another shape");
    let long = "the selection touches 67108865 building blocks along axis 2; one command takes 67108864 at most";
    let resized = device.execute(command::Resize { space, shape: &[whole, whole, (1 << 31) + 32] });
    resized.unwrap();
    assert_refused(write(&[0; 3], &[1, 1, (1 << 31) + 32], None), "invalid", long, &"one row");
    let strides = [0; 3];
    let append = command::Append { space, axis: 0, count: &[whole, whole, (1 << 31) + 32], strides: &strides, source };
    assert_refused(device.execute(append), "invalid", long, &"an append");
    // A write that can be counted but not stored is refused for lack of room.
    let counted = write(&[0; 3], &[1 << 15, 1 << 15, 1 << 15], None);
    assert!(matches!(counted, Err(Error::Full { .. })), "{counted:?}");
    let stat = device.execute(command::StatSpace { space }).unwrap();
    assert!(stat.contains(&("blocks_allocated", 0)) && stat.contains(&("bytes_gathered", 0)), "{stat:?}");
    device.execute(command::Delete { name: "vast" }).unwrap();
    model.remove("vast");
    assert_holds(&device, &model, &String::new);
}

#[test]
fn shapes_names_and_numbers_that_no_array_has_are_refused() {
    let (device, model) = make();
    let good = NewSpace { name: "new", shape: &[4, 4], block: None, item_bytes: 2, ..VAST };
    let long = "n".repeat(4097);
    let many = [1; 33];
    let named = |name| NewSpace { name, ..good.clone() };
    let rows: [(NewSpace<'_>, &str, String); 14] = [
        (named(""), "invalid", "a name must have 1 to 4096 bytes; this one has 0".into()),
        (named(&long), "invalid", "a name must have 1 to 4096 bytes; this one has 4097".into()),
        (named("a\0b"), "invalid", "\"a\\0b\" is not a name: the character U+0000 cannot be in one".into()),
        (named("a//b"), "invalid", "\"a//b\" is not a name: it has an empty part between slashes".into()),
        (named("plain"), "exists", "an array named \"plain\" exists already".into()),
        (
            NewSpace { item_bytes: 0, ..good.clone() },
            "invalid",
            "elements must have from 1 to 65536 bytes, not 0".into(),
        ),
        (
            NewSpace { item_bytes: 65_537, ..good.clone() },
            "invalid",
            "elements must have from 1 to 65536 bytes, not 65537".into(),
        ),
        (
            NewSpace { fill: Some(&[1, 2, 3]), ..good.clone() },
            "invalid",
            "a fill value of 3 bytes for elements of 2".into(),
        ),
        (NewSpace { shape: &many, ..good.clone() }, "invalid", "33 dimensions; an array has at most 32".into()),
        (
            NewSpace { block: Some(&[4]), ..good.clone() },
            "invalid",
            "building block (4,) has 1 dimensions; the array has 2".into(),
        ),
        (NewSpace { block: Some(&[4, 0]), ..good.clone() }, "invalid", "building block (4, 0) has a side of 0".into()),
        (
            NewSpace { block: Some(&[1 << 40, 1 << 40]), ..good.clone() },
            "invalid",
            format!("building block ({0}, {0}) takes {1} bytes; the most is 33554432", 1u64 << 40, u64::MAX),
        ),
        (NewSpace { key: Some(&KEY[..31]), ..good.clone() }, "invalid", "key of 31 bytes: expected 32".into()),
        (NewSpace { compression: Some("gzip"), ..good.clone() }, "invalid", String::new()),
    ];
    for (new, kind, text) in rows {
        let done = device.execute(command::Create(new.clone()));
        let error = done.err().unwrap_or_else(|| panic!("{new:?} was made"));
        assert_eq!(error.kind(), kind, "{new:?}: {error}");
        assert!(text.is_empty() || error.to_string() == text, "{new:?}: {error}");
    }
    let mut last = 0;
    for turn in 0..3u32 {
        let space = device.execute(command::Create(good.clone())).unwrap();
        assert!(turn == 0 || space.id == last + 1, "what was refused has taken no number: {} after {last}", space.id);
        last = space.id;
        device.execute(command::Delete { name: "new" }).unwrap();
    }
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
}

#[test]
fn changes_of_shape_that_make_no_sense_are_refused() {
    let (device, model) = make();
    let bytes = vec![9u8; 4096];
    let grow = |name: &str, axis: usize, count: &[u64]| {
        let strides = strides(count, 2);
        append(&device, name, axis, count, &strides, &bytes)
    };
    let refused = "elements of shape (1, 10) cannot be appended to shape";
    assert_refused(grow("plain", 2, &[1, 10]), "invalid", &format!("{refused} (6, 10) along axis 2"), &2);
    assert_refused(grow("plain", 1, &[1, 10]), "invalid", &format!("{refused} (6, 10) along axis 1"), &1);
    assert_refused(grow("scalar", 0, &[1, 10]), "invalid", &format!("{refused} () along axis 0"), &"scalar");
    let text = "elements of shape (10,) cannot be appended to shape (6, 10) along axis 0";
    assert_refused(grow("plain", 0, &[10]), "invalid", text, &"one dimension");
    assert_eq!(grow("plain", 0, &[0, 10]).unwrap(), [6, 10], "nothing is appended");
    let resize = |name, shape: &[u64]| device.execute(command::Resize { space: id(&device, name), shape });
    for (name, shape, text) in [
        ("plain", &[6][..], "shape (6,) has 1 dimensions; the array has shape (6, 10)"),
        ("plain", &[], "shape () has 0 dimensions; the array has shape (6, 10)"),
        ("scalar", &[1], "shape (1,) has 1 dimensions; the array has shape ()"),
    ] {
        assert_refused(resize(name, shape), "invalid", text, &(name, shape));
    }
    resize("scalar", &[]).unwrap();
    let clear = |name, start: &[u64], count: &[u64]| {
        device.execute(command::Deallocate { space: id(&device, name), start, count })
    };
    let rows: [(&[u64], &[u64], &str, &str); 4] = [
        (&[0], &[1, 1], "invalid", "as many counts as coordinates are needed"),
        (&[0], &[1], "invalid", "the selection has 1 dimensions; the array has shape (6, 10)"),
        (&[0, 1], &[6, 10], "out-of-range", "index 10 is out of bounds for axis 1 with size 10"),
        (
            &[u64::MAX, 0],
            &[u64::MAX, 1],
            "out-of-range",
            "index 36893488147419103229 is out of bounds for axis 0 with size 6",
        ),
    ];
    for (start, count, kind, text) in rows {
        assert_refused(clear("plain", start, count), kind, text, &(start, count));
    }
    // The longest axis: an append to it has no place, and a resize to it takes none.
    resize("none", &[u64::MAX, 10]).unwrap();
    let text = "index 18446744073709551615 is out of bounds for axis 0 with size 18446744073709551615";
    assert_refused(grow("none", 0, &[1, 10]), "out-of-range", text, &"beyond the longest axis");
    resize("none", &[0, 10]).unwrap();
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
}

#[test]
fn a_batch_is_refused_as_a_whole_by_its_first_wrong_change() {
    let (device, model) = make();
    let (delete, rename) = (|name| Change::Delete { name }, |from, to| Change::Rename { from, to });
    let attrs = |name, attrs| Change::SetAttrs { name, attrs };
    let rows: [(Vec<Change<'_>>, &str, &str); 9] = [
        (vec![delete("plain"), delete("plain")], "not-found", "no array named \"plain\" in this store"),
        (vec![delete("plain"), attrs("plain", "{}")], "not-found", "no array named \"plain\" in this store"),
        (vec![rename("plain", "other"), delete("plain")], "not-found", "no array named \"plain\" in this store"),
        (vec![rename("plain", "coded")], "exists", "an array named \"coded\" exists already"),
        (
            vec![attrs("plain", "{\"lost\":1}"), rename("plain", "a"), rename("coded", "a")],
            "exists",
            "an array named \"a\" exists already",
        ),
        (
            vec![attrs("plain", "{\"lost\":1}"), rename("plain", "a/")],
            "invalid",
            "\"a/\" is not a name: it has an empty part between slashes",
        ),
        (vec![rename("plain", "coded/x")], "exists", "an array named \"coded\" exists already"),
        (vec![rename("plain", "g/x/y"), rename("coded", "g")], "exists", "an array named \"g\" exists already"),
        (vec![delete("coded"), rename("plain", "")], "invalid", "a name must have 1 to 4096 bytes; this one has 0"),
    ];
    for (changes, kind, text) in &rows {
        assert_refused(device.execute(command::Batch { changes }), kind, text, changes);
        let transaction = device.execute(command::Begin { spaces: &[] }).unwrap();
        assert_refused(device.execute(command::Apply { transaction, changes }), kind, text, changes);
        assert_holds(&device, &model, &|| format!("{changes:?}"));
    }
    // Names that a change before has set free, or given, can be used again.
    let swap = [rename("plain", "x"), rename("coded", "plain"), rename("x", "coded"), rename("coded", "coded")];
    device.execute(command::Batch { changes: &swap }).unwrap();
    device.execute(command::Batch { changes: &swap }).unwrap();
    assert_holds(&device, &model, &|| "the names were exchanged twice".to_owned());
    // An array and a group may exchange their places: what counts is how all changes leave them.
    let (there, back) = (rename("plain", "coded/x"), rename("coded/x", "plain"));
    device.execute(command::Batch { changes: &[there, rename("coded", "plain")] }).unwrap();
    let into_group = device.execute(command::Rename { from: "plain", to: "coded" });
    assert_refused(into_group, "exists", "a group named \"coded\" exists already", &"a name that a group has");
    device.execute(command::Batch { changes: &[rename("plain", "coded"), back] }).unwrap();
    assert_holds(&device, &model, &|| "an array and a group exchanged their places".to_owned());
    assert_sound(&device, &String::new);
}

#[test]
fn handles_of_deleted_arrays_and_ended_transactions_say_so_ever_after() {
    let (device, mut model) = make();
    let space = id(&device, "plain");
    let transaction = device.execute(command::Begin { spaces: &[(space, &[6, 10])] }).unwrap();
    let bytes = [1u8; 200];
    // SAFETY: the buffer has the elements of the target.
    let source = unsafe { Source::from_raw(bytes.as_ptr()) };
    let target = Target::Box { start: &[0, 0], step: &[1, 1], count: &[6, 10], strides: &[20, 2], view: None };
    device.execute(command::StageWrite { transaction, space, target: target.clone(), source }).unwrap();
    // A batch does not wait for the transaction, which then finds its array gone.
    device.execute(command::Batch { changes: &[Change::Delete { name: "plain" }] }).unwrap();
    model.remove("plain");
    let gone = device.execute(command::Apply { transaction, changes: &[] });
    assert_refused(gone, "closed", "array \"plain\" was deleted", &"apply");
    let over = format!("transaction {transaction} is over");
    assert_refused(device.execute(command::Apply { transaction, changes: &[] }), "closed", &over, &"apply again");
    device.execute(command::Abort { transaction }).unwrap();
    let stage = command::StageWrite { transaction, space, target: target.clone(), source };
    assert_refused(device.execute(stage), "closed", &over, &"stage");
    // The name may be taken again; the number is not.
    let op = Op::bytes("plain", &[2]);
    op.run(&device).unwrap();
    op.tell(&mut model);
    let mut out = vec![0u8; 200];
    // SAFETY: the buffer has room for the target.
    let buffer = unsafe { BufferMut::from_raw(out.as_mut_ptr()) };
    let deleted = "the array was deleted";
    assert_refused(
        device.execute(command::Read { space, target: target.clone(), out: buffer }),
        "closed",
        deleted,
        &"read",
    );
    assert_refused(device.execute(command::Write { space, target, source }), "closed", deleted, &"write");
    assert_refused(device.execute(command::Resize { space, shape: &[1, 1] }), "closed", deleted, &"resize");
    assert_refused(device.execute(command::SetAttrs { space, attrs: "{}" }), "closed", deleted, &"attrs");
    assert_refused(device.execute(command::StatSpace { space }), "closed", deleted, &"stat");
    assert_refused(device.execute(command::ListBlocks { space }), "closed", deleted, &"blocks");
    assert_refused(device.execute(command::Begin { spaces: &[(space, &[6, 10])] }), "closed", deleted, &"begin");
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
}

#[test]
fn transactions_that_cannot_begin_hold_nothing() {
    let (device, model) = make();
    let [plain, coded, scalar] = ["plain", "coded", "scalar"].map(|name| id(&device, name));
    let rows: [(&[(SpaceId, &[u64])], &str, String); 5] = [
        (&[(plain, &[6, 10]), (plain, &[7, 10])], "invalid", format!("a transaction names space {plain} twice")),
        (
            &[(coded, &[6, 10]), (plain, &[6, 9])],
            "invalid",
            "array \"plain\" of shape (6, 10) cannot grow to (6, 9)".into(),
        ),
        (&[(coded, &[6, 10]), (plain, &[6])], "invalid", "array \"plain\" of shape (6, 10) cannot grow to (6,)".into()),
        (&[(scalar, &[2])], "invalid", "array \"scalar\" of shape () cannot grow to (2,)".into()),
        (&[(coded, &[6, 10]), (4711, &[6])], "closed", "the array was deleted".into()),
    ];
    for (spaces, kind, text) in rows {
        assert_refused(device.execute(command::Begin { spaces }), kind, &text, &spaces);
    }
    // Had one of them kept its arrays, this thread would wait for itself.
    let transaction = device.execute(command::Begin { spaces: &[(plain, &[7, 10]), (scalar, &[])] }).unwrap();
    let bytes = [1u8; 40];
    // SAFETY: the buffer has the elements of the targets.
    let source = unsafe { Source::from_raw(bytes.as_ptr()) };
    let target = Target::Box { start: &[6, 0], step: &[1, 1], count: &[2, 10], strides: &[20, 2], view: None };
    let stage = |space, target| device.execute(command::StageWrite { transaction, space, target, source });
    let text = "index 7 is out of bounds for axis 0 with size 7";
    assert_refused(stage(plain, target.clone()), "out-of-range", text, &"beyond the new shape");
    let text = format!("space {coded} is none of transaction {transaction}");
    assert_refused(stage(coded, target), "invalid", &text, &"another array");
    device.execute(command::Abort { transaction }).unwrap();
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
}

#[test]
fn a_store_that_is_read_refuses_every_command_that_writes() {
    let media = Arc::new(MemoryMedia::default());
    let mut model = Model::new();
    {
        let device = open(media.clone(), Mode::Append, &options(Geometry::TINY, 3)).unwrap();
        let mut rng = Rng::with_seed(8);
        for _ in 0..20 {
            let op = draw(rng.u64(..), &model, &Taste { reopen: false, ..Taste::SMALL });
            op.run(&device).unwrap();
            op.tell(&mut model);
        }
        device.close().unwrap();
    }
    let before = media.to_bytes();
    let options = Options { entropy: 99, ..options(Geometry::TINY, 4) };
    let device = open(media.clone(), Mode::Read, &options).unwrap();
    let (name, array) = model.iter().next().unwrap();
    let space = id(&device, name);
    let nothing = [0u8; 64];
    // SAFETY: the commands are refused.
    let source = unsafe { Source::from_raw(nothing.as_ptr()) };
    let target = Target::Box { start: &[], step: &[], count: &[], strides: &[], view: None };
    let changes = [Change::Delete { name }];
    let shape = &array.shape[..];
    let refused = [
        device.execute(command::Create(VAST)).map(drop),
        device.execute(command::Delete { name }),
        device.execute(command::Rename { from: name, to: "b" }),
        device.execute(command::Batch { changes: &changes }),
        device.execute(command::Write { space, target: target.clone(), source }),
        device.execute(command::Append { space, axis: 0, count: &[1], strides: &[1], source }).map(drop),
        device.execute(command::Resize { space, shape }),
        device.execute(command::SetAttrs { space, attrs: "{}" }),
        device.execute(command::Deallocate { space, start: &[], count: &[] }),
        device.execute(command::Begin { spaces: &[(space, shape)] }).map(drop),
        device.execute(command::StageWrite { transaction: 1, space, target, source }),
        device.execute(command::Apply { transaction: 1, changes: &[] }),
        device.execute(command::Abort { transaction: 1 }),
        device.execute(command::Check { repair: true, accept_older: false }).map(drop),
        device.execute(command::Compact).map(drop),
        device.execute(command::Flush),
        device.execute(command::Settle),
        device.compound(true, |_| ()),
    ];
    for (i, done) in refused.into_iter().enumerate() {
        assert_refused(done, "read-only", "the store is open for reading only", &i);
    }
    assert_holds(&device, &model, &String::new);
    device.close().unwrap();
    assert!(media.to_bytes() == before, "a store that was read is the same, byte for byte");
    let closed = device.execute(command::List { prefix: "" });
    assert_refused(closed, "closed", "the store is closed", &"list");
}
