//! Compound commands: several spaces are read and staged by one closure, and applied together or not at all.
//!
//! A random closure stages parts of up to three arrays, reads between them what was there before, and then applies all,
//! some, or none of its staged writes, while an operation of the disk may fail. A staged write that was not applied
//! has left nothing: no byte, no page that stays live, no lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use nandarray::{
    BufferMut, Change, Compound, Device, Error, Geometry, Mode, Options, Result, Source, StagedWrite, command,
};

use crate::common::disk::{Disk, EIO, ENOSPC, Kind};
use crate::common::*;

const SHAPES: [(&str, &[u64], Option<&str>); 4] =
    [("a", &[30, 20], None), ("b", &[500], Some("lz4")), ("c", &[7, 8, 9], None), ("d", &[], None)];

fn store_options(seed: u64) -> Options {
    Options { write_buffer_bytes: [0, 1500, 64 << 20][seed as usize % 3], ..options(Geometry::TINY, seed) }
}

/// Creates the arrays of [`SHAPES`] with content.
fn make(disk: &Arc<Disk>, seed: u64) -> (Device, Model) {
    let device = open(disk.clone(), Mode::Append, &store_options(seed)).unwrap();
    let mut model = Model::new();
    for (name, shape, compression) in SHAPES {
        let (name, shape) = (name.to_owned(), shape.to_vec());
        let part = Part::all(&shape);
        let create = Op::Create { name: name.clone(), shape, item: 3, block: None, compression, key: false, fill: 0 };
        for op in [create, Op::Write { name, part, salt: seed * 4 + 2 }] {
            op.run(&device).unwrap();
            op.tell(&mut model);
        }
    }
    Op::Flush.run(&device).unwrap();
    (device, model)
}

/// Reads a whole array inside of a compound command.
fn read_inside(inside: &Compound<'_>, device: &Device, name: &str, array: &Array) -> Result<Vec<u8>> {
    let mut out = vec![0; array.data.len()];
    // SAFETY: the buffer has room for the array.
    let buffer = unsafe { BufferMut::from_raw(out.as_mut_ptr()) };
    let space = device.describe(name)?.id;
    Part::all(&array.shape)
        .target(array.shape.len(), &strides(&array.shape, array.item), |target| inside.read(space, target, buffer))?;
    Ok(out)
}

/// Stages random parts of an array; returns the staged write, and what the array will hold once it is applied.
fn stage<'d>(
    inside: &Compound<'d>,
    device: &Device,
    name: &str,
    array: &Array,
    rng: &mut Rng,
) -> Result<(StagedWrite<'d>, Array)> {
    let mut draft = inside.stage(device.describe(name)?, vec![])?;
    let mut after = array.clone();
    for _ in 0..rng.u8(1..4) {
        let part = draw_part(rng, &array.shape, true);
        let elements = part.elements(&array.shape);
        let bytes = content(rng.u64(1..), elements.len(), &array.fill);
        // SAFETY: the buffer has the part's elements.
        let source = unsafe { Source::from_raw(bytes.as_ptr()) };
        let count = part.count(array.shape.len());
        part.target(array.shape.len(), &strides(&count, array.item), |target| draft.put(&target, source))?;
        put(&mut after, &elements, &bytes);
        let before = read_inside(inside, device, name, array)?;
        assert!(before == array.data, "what is staged in {name:?} is seen before it is applied");
    }
    Ok((draft, after))
}

/// One compound command over some of the arrays; returns what the store holds after it, if it does not fail.
fn run(device: &Device, model: &Model, rng: &mut Rng) -> Result<Model> {
    let mut after = model.clone();
    let names: Vec<&String> = model.keys().filter(|_| rng.bool()).collect();
    let how = rng.u8(..4);
    let done = device.compound(true, |inside| {
        let mut drafts = Vec::new();
        for name in names {
            let (draft, array) = stage(inside, device, name, &model[name], rng)?;
            // Some of the staged writes are dropped, and are as if they had never been.
            if how < 2 || rng.bool() {
                after.insert(name.clone(), array);
                drafts.push(draft);
            }
        }
        if how == 3 { Ok(false) } else { inside.apply(drafts).map(|()| true) }
    })??;
    Ok(if done { after } else { model.clone() })
}

/// Runs compound commands while one kind of the disk's operations fails once; returns whether that was reached.
fn fail_at(seed: u64, (kind, after, errno): (Kind, u64, i32)) -> bool {
    let context = || format!("seed {seed}: {kind:?} number {after} fails by {errno}");
    let disk = Arc::new(Disk::default());
    let (device, mut model) = make(&disk, seed);
    let mut rng = Rng::with_seed(seed);
    disk.fail(kind, after, 1, errno);
    let before = disk.done(kind);
    for _ in 0..8 {
        match run(&device, &model, &mut rng) {
            Ok(after) => model = after,
            Err(e) => assert!(matches!(e, Error::Media { .. } | Error::Full { .. }), "{e:?}; {}", context()),
        }
        assert_holds(&device, &model, &context);
    }
    let reached = disk.done(kind) > before + after;
    disk.heal();
    // No lock is left: every array can be written by an ordinary command.
    for name in model.keys().cloned().collect::<Vec<_>>() {
        let op = Op::Write { part: Part::all(&model[&name].shape), name, salt: 8 * seed + 3 };
        op.run(&device).unwrap_or_else(|e| panic!("{e}; {}", context()));
        op.tell(&mut model);
    }
    device.close().unwrap_or_else(|e| panic!("{e}; {}", context()));
    drop(device);
    let again = open(disk, Mode::ReadWrite, &store_options(seed + 1)).unwrap();
    assert_holds(&again, &model, &context);
    assert_sound(&again, &context);
    reached
}

#[test]
fn a_compound_command_is_applied_whole_or_leaves_nothing_whichever_write_fails() {
    for seed in 0..rounds(8, 150) {
        for (kind, errno) in [(Kind::Write, EIO), (Kind::Write, ENOSPC), (Kind::Length, ENOSPC)] {
            let mut after = 0;
            while fail_at(seed, (kind, after, errno)) {
                after += 1 + after / 6;
            }
        }
    }
}

#[test]
fn staged_writes_whose_array_was_deleted_meanwhile_take_the_others_with_them() {
    let disk = Arc::new(Disk::default());
    let (device, mut model) = make(&disk, 1);
    let mut rng = Rng::with_seed(1);
    let pages = number(&device, "pages_live");
    let done = device.compound(true, |inside| {
        let drafts = ["a", "c"].map(|name| stage(inside, &device, name, &model[name], &mut rng).unwrap().0);
        // A batch waits for runs, and for no other range lock.
        device.execute(command::Batch { changes: &[Change::Delete { name: "c" }] }).unwrap();
        let late = inside.stage(device.describe("b")?, vec![]);
        assert!(late.is_ok(), "the others can still be staged: {late:?}");
        inside.apply(drafts.into_iter().chain(late).collect())
    });
    let error = done.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), ("closed", "array \"c\" was deleted"));
    model.remove("c");
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
    assert!(number(&device, "pages_live") < pages, "the pages of the deleted array and of all staged writes are dead");
    let read_only = device.compound(false, |inside| read_inside(inside, &device, "a", &model["a"]));
    assert!(read_only.unwrap().unwrap() == model["a"].data);
    let space = device.describe("b").unwrap().id;
    device.execute(command::Delete { name: "b" }).unwrap();
    let gone = device.compound(false, |inside| inside.space(space).map(drop)).unwrap();
    assert!(matches!(gone, Err(Error::Closed(_))), "{gone:?}");
}

#[test]
fn deletions_wait_for_a_run_that_has_not_staged_yet_and_writes_do_not() {
    let (device, mut model) = make(&Arc::new(Disk::default()), 2);
    let changes = [Change::Rename { from: "c", to: "z" }, Change::Delete { name: "z" }, Change::Delete { name: "a" }];
    let (begun, stop) = (Barrier::new(2), AtomicBool::new(false));
    let write = |name: &str, model: &mut Model, salt| {
        let op = Op::Write { name: name.to_owned(), part: Part::all(&model[name].shape), salt };
        op.run(&device).unwrap();
        op.tell(model);
    };
    thread::scope(|scope| {
        let deletes = scope.spawn(|| {
            begun.wait();
            device.execute(command::Batch { changes: &changes })
        });
        let done = device.compound(true, |inside| {
            let of = |name: &str| device.describe(name).unwrap();
            let _runs = ["a", "c"].map(|name| inside.hold_run(&of(name), vec![], &stop).unwrap());
            begun.wait();
            for salt in 0..20 {
                write("c", &mut model, salt);
                thread::sleep(Duration::from_millis(5));
            }
            assert!(!deletes.is_finished(), "the deletion did not wait");
            // Another run of these blocks waits, too, until it is stopped.
            thread::scope(|others| {
                let waits = others.spawn(|| inside.hold_run(&of("a"), vec![], &stop).map(drop));
                stop.store(true, Ordering::Relaxed);
                assert!(matches!(nandarray::internals::joined(waits), Err(Error::Cancelled)));
            });
            inside.apply(vec![inside.stage(of("a"), vec![])?])
        });
        done.unwrap().unwrap();
        nandarray::internals::joined(deletes).unwrap();
    });
    model.retain(|name, _| name != "a" && name != "c");
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
}

/// A run that writes to all of an array by a view (it holds all blocks) keeps its shape; one that writes to a part of
/// it lets it grow, and keeps it from shrinking.
#[test]
fn shapes_change_when_no_run_would_see_it() {
    let (device, mut model) = make(&Arc::new(Disk::default()), 2);
    let (id, stop) = (device.describe("b").unwrap().id, AtomicBool::new(false));
    let resize = |to: u64| device.execute(command::Resize { space: id, shape: &[to] });
    for (blocks, waits, goes_on) in [(vec![(0, 0)], 400, Some(600)), (vec![], 700, None)] {
        thread::scope(|scope| {
            let done = device.compound(true, |inside| {
                let space = device.describe("b").unwrap();
                let _runs = inside.hold_run(&space, blocks, &stop).unwrap();
                if let Some(to) = goes_on {
                    resize(to).unwrap();
                }
                let resizes = scope.spawn(move || resize(waits));
                thread::sleep(Duration::from_millis(50));
                assert!(!resizes.is_finished(), "shape {waits} beside a run");
                resizes
            });
            nandarray::internals::joined(done.unwrap()).unwrap();
        });
        assert_eq!(device.describe("b").unwrap().peek().record.shape, [waits]);
    }
    device.execute(command::Delete { name: "b" }).unwrap();
    model.remove("b");
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
}
