//! Promise: a disk that is full, or that fails operations, costs nothing that was accepted.
//!
//! On a full disk nothing is lost and nothing is worn out: checking, flushing what has room, deleting, compacting and
//! closing work, and what was deleted makes room. A command that raises an error was not applied, whichever operation
//! of the disk failed. A disk that fails is not a full store. Compaction never makes a file longer, nor take more of
//! the disk, and a second one changes nothing.
//!
//! All tests use [`Disk`]. Blocks that wear out are tested in damage.rs, losses of power in power_loss.rs, real disks
//! in tests/python/test_disk.py.

mod common;

use std::sync::Arc;

use common::disk::{Disk, EIO, ENOSPC, Kind};
use common::*;
use fastrand::Rng;
use nandarray::{Device, Error, Geometry, Media, Mode, Options, Result, command};

const SEGMENT: u64 = 16 << 10;

fn tiny() -> Options {
    options(Geometry::TINY, 3)
}

fn made(disk: &Arc<Disk>) -> Device {
    open(disk.clone(), Mode::Append, &tiny()).unwrap()
}

fn array(name: &str, shape: &[u64]) -> Op {
    let (block, compression, key, fill) = (None, None, false, 0);
    Op::Create { name: name.to_owned(), shape: shape.to_vec(), item: 1, block, compression, key, fill }
}

fn fill(name: &str, shape: &[u64], salt: u64) -> Op {
    Op::Write { name: name.to_owned(), part: Part::all(shape), salt }
}

fn run(device: &Device, model: &mut Model, op: Op) {
    op.run(device).unwrap_or_else(|e| panic!("{op:?}: {e}"));
    op.tell(model);
}

/// Creates two arrays of this many bytes each and flushes them; returns the model.
fn two_arrays(device: &Device, bytes: u64) -> Model {
    let mut model = Model::new();
    for (name, salt) in [("a", 10), ("b", 11)] {
        run(device, &mut model, array(name, &[bytes]));
        run(device, &mut model, fill(name, &[bytes], salt));
    }
    device.execute(command::Flush).unwrap();
    model
}

fn delete(device: &Device, model: &mut Model, name: &str) {
    run(device, model, Op::Delete { name: name.to_owned() });
}

#[test]
fn deleting_and_compacting_give_a_full_disk_its_room_back() {
    let bytes = 9 * SEGMENT + 700;
    for spare in [SEGMENT / 2, SEGMENT, 2 * SEGMENT, 5 * SEGMENT] {
        let context = || format!("{spare} bytes to spare");
        let disk = Arc::new(Disk::default());
        let device = made(&disk);
        let mut model = two_arrays(&device, bytes);
        let full = disk.used();
        disk.limit(Some(full + spare));
        run(&device, &mut model, array("c", &[bytes]));
        let mut length = 0;
        for turn in 0..20 {
            let e = fill("c", &[bytes], 12).run(&device).unwrap_err();
            assert!(is_full(&e), "{e}; {}", context());
            assert!(disk.used() < full + spare, "pages of a command that failed take no room; {}", context());
            assert!(turn == 0 || disk.len() == length, "failing tries let the file grow; {}", context());
            length = disk.len();
        }
        assert_eq!(number(&device, "segments_bad"), 0, "{}", context());
        assert_sound(&device, &context);
        device.execute(command::Flush).unwrap();
        assert_holds(&device, &model, &context);
        delete(&device, &mut model, "b");
        device.execute(command::Flush).unwrap();
        device.execute(command::Compact).unwrap();
        assert!(disk.used() + bytes * 3 / 4 < full, "{} of {full} bytes are in use; {}", disk.used(), context());
        assert!(disk.len() < length, "{}", context());
        run(&device, &mut model, fill("c", &[bytes], 13));
        device.close().unwrap();
        drop(device);
        let device = open(disk, Mode::Read, &tiny()).unwrap();
        assert_holds(&device, &model, &context);
        assert_sound(&device, &context);
    }
}

#[test]
fn compacting_without_a_free_byte_gives_back_what_is_dead_between_live_pages() {
    let bytes = 12 * SEGMENT;
    let disk = Arc::new(Disk::default());
    let device = made(&disk);
    let mut model = Model::new();
    for name in ["a", "b"] {
        run(&device, &mut model, array(name, &[bytes]));
    }
    // Both arrays are written alternately, so that each segment is half dead when `b` is deleted.
    for at in (0..bytes).step_by(1024) {
        for name in ["a", "b"] {
            let part = Part::boxed(&[at], &[1024]);
            run(&device, &mut model, Op::Write { name: name.to_owned(), part, salt: at });
        }
    }
    device.execute(command::Flush).unwrap();
    disk.limit(Some(disk.used() + SEGMENT));
    run(&device, &mut model, array("c", &[4 * bytes]));
    assert!(is_full(&fill("c", &[4 * bytes], 1).run(&device).unwrap_err()));
    disk.limit(Some(disk.used()));
    let full = disk.used();
    delete(&device, &mut model, "b");
    compact(&device).unwrap();
    let context = || format!("{} of {full} bytes are in use", disk.used());
    assert!(disk.used() + bytes * 7 / 8 < full, "{}", context());
    assert_sound(&device, &context);
    drop(device);
    let device = open(disk.clone(), Mode::Read, &tiny()).unwrap();
    assert_holds(&device, &model, &context);
}

/// Fills a disk with a store's arrays, deletes one of them and compacts; panics unless the room can be used again.
/// `seed` varies the journal's length, and `spare` is the room left on the disk, in bytes.
fn fill_and_give_back(geometry: Geometry, spare: u64, seed: u64) {
    let context = || format!("{spare} bytes to spare, seed {seed}");
    let segment = geometry.segment_data_bytes();
    let bytes = 3 * segment;
    let disk = Arc::new(Disk::default());
    let device = open(disk.clone(), Mode::Append, &options(geometry, seed)).unwrap();
    let mut rng = Rng::with_seed(seed);
    let mut model = two_arrays(&device, bytes);
    for _ in 0..rng.u64(..40) {
        let attrs = format!("{{\"x\": \"{}\"}}", "y".repeat(rng.usize(..(segment / 20) as usize)));
        run(&device, &mut model, Op::Attrs { name: "a".to_owned(), attrs });
    }
    // Garbage between live pages: every other page of a segment has two.
    for at in 0..segment / 1024 {
        run(
            &device,
            &mut model,
            Op::Write { name: "a".to_owned(), part: Part::boxed(&[at * 1024], &[512]), salt: seed + at },
        );
    }
    device.execute(command::Flush).unwrap();
    disk.limit(Some(disk.used() + spare));
    let mut refused = 0;
    for turn in 0..200 {
        let name = format!("c{turn}");
        for op in [array(&name, &[segment]), fill(&name, &[segment], turn)] {
            match op.run(&device) {
                Ok(()) => op.tell(&mut model),
                Err(e) => {
                    assert!(is_full(&e), "{op:?}: {e}; {}", context());
                    refused += 1;
                    break;
                }
            }
        }
        if refused > 3 {
            break;
        }
    }
    assert!(refused > 3, "{}", context());
    device.execute(command::Flush).unwrap_or_else(|e| panic!("flush: {e}; {}", context()));
    disk.limit(Some(disk.used()));
    let full = disk.used();
    assert_sound(&device, &context);
    let op = Op::Delete { name: "b".to_owned() };
    op.run(&device).unwrap_or_else(|e| panic!("delete: {e}; {}", context()));
    op.tell(&mut model);
    device.execute(command::Flush).unwrap_or_else(|e| panic!("flush after delete: {e}; {}", context()));
    let survivor = open(Arc::new(Disk::with_bytes(disk.to_bytes())), Mode::Read, &options(geometry, seed)).unwrap();
    assert_holds(&survivor, &model, &context);
    compact(&device).unwrap_or_else(|e| panic!("compact: {e}; {}", context()));
    assert!(disk.used() + bytes * 3 / 4 < full, "{} of {full} bytes are in use; {}", disk.used(), context());
    assert_sound(&device, &context);
    // As large as what was deleted, but for what metadata of a full disk takes.
    run(&device, &mut model, array("d", &[bytes * 3 / 4]));
    run(&device, &mut model, fill("d", &[bytes * 3 / 4], 77));
    device.close().unwrap_or_else(|e| panic!("close: {e}; {}", context()));
    drop(device);
    let device = open(disk, Mode::ReadWrite, &options(geometry, seed)).unwrap();
    assert_holds(&device, &model, &context);
    assert_sound(&device, &context);
}

#[test]
fn whatever_a_full_disk_has_left_what_is_deleted_comes_back() {
    for seed in 0..rounds(60, 2000) {
        fill_and_give_back(Geometry::TINY, seed * 1024 % (20 << 10), seed);
    }
    // The journal of larger segments does not end while the disk is full, but records are larger.
    let larger = Geometry { channels: 16, pages_per_block: 16, ..Geometry::TINY };
    for seed in 0..rounds(6, 200) {
        fill_and_give_back(larger, seed * (17 << 10), seed);
    }
}

#[test]
fn a_disk_that_others_fill_takes_deletes_and_what_they_make_room_for() {
    let bytes = 6 * SEGMENT;
    for compact_first in [false, true] {
        let disk = Arc::new(Disk::default());
        let device = made(&disk);
        let mut model = two_arrays(&device, bytes);
        disk.limit(Some(disk.used()));
        let before = disk.used();
        let e = fill("a", &[bytes], 20).run(&device).unwrap_err();
        assert!(is_full(&e), "{e}");
        assert_sound(&device, &String::new);
        delete(&device, &mut model, "b");
        device.execute(command::Flush).unwrap();
        if compact_first {
            device.execute(command::Compact).unwrap();
            assert!(disk.used() + bytes * 9 / 10 < before);
        }
        // A partly written page, then half of the array, again and again: `b` took as much room.
        for salt in 21..60 {
            let part = Part::boxed(&[salt * 100], &[3]);
            run(&device, &mut model, Op::Write { name: "a".to_owned(), part, salt });
            device.execute(command::Flush).unwrap_or_else(|e| panic!("{e}; {compact_first}, {salt}"));
            let half = Op::Write { name: "a".to_owned(), part: Part::boxed(&[0], &[bytes / 2]), salt };
            run(&device, &mut model, half);
        }
        assert_holds(&device, &model, &String::new);
        assert_sound(&device, &String::new);
        device.close().unwrap();
        drop(device);
        let device = open(disk, Mode::ReadWrite, &tiny()).unwrap();
        assert_holds(&device, &model, &String::new);
    }
}

#[test]
fn what_was_accepted_before_the_disk_filled_is_flushed_when_it_has_room() {
    let disk = Arc::new(Disk::default());
    let device = made(&disk);
    let mut model = two_arrays(&device, 4 * SEGMENT);
    disk.limit(Some(0));
    // The pages stay in the write buffer, so the disk does not notice yet. On a disk that is known to be full the
    // writes would be refused.
    for at in 0..20 {
        let part = Part::boxed(&[at * 512 + 7], &[3]);
        run(&device, &mut model, Op::Write { name: "a".to_owned(), part, salt: 30 + at });
    }
    let (length, used) = (disk.len(), disk.used());
    for _ in 0..10 {
        assert!(is_full(&device.execute(command::Flush).unwrap_err()));
        assert!(is_full(&device.close().unwrap_err()));
        assert_sound(&device, &String::new);
        assert_holds(&device, &model, &String::new);
    }
    assert_eq!((disk.len(), number(&device, "segments_bad")), (length, 0));
    assert!(disk.used() <= used);
    disk.limit(None);
    device.execute(command::Flush).unwrap();
    device.close().unwrap();
    drop(device);
    assert_holds(&open(disk, Mode::Read, &tiny()).unwrap(), &model, &String::new);
}

#[test]
fn small_writes_do_not_gather_for_ever_on_a_full_disk() {
    let disk = Arc::new(Disk::default());
    let options = Options { write_buffer_bytes: 4096, ..tiny() };
    let device = open(disk.clone(), Mode::Append, &options).unwrap();
    let mut model = two_arrays(&device, 8 * SEGMENT);
    disk.limit(Some(0));
    let mut refused = 0;
    for at in 0..200 {
        let op = Op::Write { name: "a".to_owned(), part: Part::boxed(&[at * 512 + 7], &[3]), salt: 30 + at };
        match op.run(&device) {
            Ok(()) => op.tell(&mut model),
            Err(e) => {
                assert!(is_full(&e), "{e}");
                refused += 1;
            }
        }
    }
    assert!(refused > 150 && device.buffered_bytes() < 3 * 4096, "{refused}, {}", device.buffered_bytes());
    assert_holds(&device, &model, &String::new);
}

/// Runs random commands on a disk that is full most of the time.
#[test]
fn a_disk_that_is_full_now_and_then_loses_nothing() {
    for seed in 0..rounds(20, 1000) {
        let mut rng = Rng::with_seed(seed);
        let disk = Arc::new(Disk::default());
        let mut device = made(&disk);
        let mut model = Model::new();
        let mut full = 0;
        for step in 0..150 {
            let context = || format!("seed {seed}, step {step}");
            match rng.u8(..8) {
                0 => disk.limit(Some(disk.used() + rng.u64(..4 * SEGMENT))),
                1 => disk.limit(None),
                _ => {}
            }
            let op = draw(rng.u64(..), &model, &Taste { array_bytes: 30_000, ..Taste::SNAPSHOTS });
            let done = match op {
                Op::Reopen => device.close().and_then(|()| {
                    drop(std::mem::replace(&mut device, open(disk.clone(), Mode::ReadWrite, &tiny())?));
                    Ok(())
                }),
                _ => op.run(&device),
            };
            match done {
                Ok(()) if !matches!(op, Op::Reopen) => op.tell(&mut model),
                Ok(()) => {}
                Err(e) => {
                    assert!(is_full(&e), "{op:?}: {e}; {}", context());
                    full += 1;
                    if device.closed() {
                        disk.limit(None);
                        device = open(disk.clone(), Mode::ReadWrite, &tiny()).unwrap();
                    }
                    assert_holds(&device, &model, &context);
                    assert_sound(&device, &context);
                }
            }
            assert_eq!(number(&device, "segments_bad"), 0, "{}", context());
        }
        let context = || format!("seed {seed}, {full} times full");
        disk.limit(None);
        assert_holds(&device, &model, &context);
        device.close().unwrap();
        drop(device);
        let device = open(disk, Mode::Read, &tiny()).unwrap();
        assert_holds(&device, &model, &context);
        assert_sound(&device, &context);
    }
}

/// Runs random commands while `count` operations of one kind fail, from number `after` on; panics if a command that
/// returned an error was applied. Returns whether an operation has failed.
fn fail_at(seed: u64, kind: Kind, after: u64, count: u64) -> bool {
    let context = || format!("seed {seed}: {count} of {kind:?} fail from number {after}");
    let disk = Arc::new(Disk::default());
    let options = Options { write_buffer_bytes: [0, 3000, 64 << 20][seed as usize % 3], ..tiny() };
    let device = open(disk.clone(), Mode::Append, &options).unwrap();
    let mut rng = Rng::with_seed(seed);
    let mut states = vec![Model::new()];
    let mut flushed = 0;
    disk.fail(kind, after, count, EIO);
    let before = disk.done(kind);
    for _ in 0..14 {
        let mut model = states.last().unwrap().clone();
        let taste = Taste { array_bytes: 20_000, reopen: false, ..Taste::SNAPSHOTS };
        let op = if rng.u8(..4) == 0 { Op::Flush } else { draw(rng.u64(..), &model, &taste) };
        match op.run(&device) {
            Ok(()) => {
                op.tell(&mut model);
                states.push(model);
                if op.flushes() {
                    flushed = states.len() - 1;
                }
            }
            Err(e) => {
                assert!(matches!(e, Error::Media { .. } | Error::Closed(_)), "{op:?}: {e:?}; {}", context());
                let found = read_all(&device).unwrap_or_else(|e| panic!("{e}; {}", context()));
                if let Some(what) = difference(&found, &model) {
                    panic!("{op:?} raised {e}, and {what}; {}", context());
                }
            }
        }
    }
    let reached = disk.done(kind) > before + after;
    disk.heal();
    let closed = device.close();
    if closed.is_ok() {
        flushed = states.len() - 1;
    }
    // Closed, or at least no longer of use: the barrier was refused.
    assert!(device.closed(), "{:?}; {}", closed, context());
    drop(device);
    let again = open(disk, Mode::ReadWrite, &tiny()).unwrap_or_else(|e| panic!("{e}; {}", context()));
    let found = read_all(&again).unwrap();
    assert!(states[flushed..].contains(&found), "none of the states since the last flush; {}", context());
    assert_sound(&again, &context);
    reached
}

#[test]
fn a_command_that_raises_was_not_applied_whichever_operation_fails() {
    for seed in 0..rounds(6, 200) {
        for kind in [Kind::Write, Kind::Length, Kind::Sync] {
            for count in [1, 7] {
                let mut after = 0;
                while fail_at(seed, kind, after, count) {
                    after += if kind == Kind::Write { 1 + after / 12 } else { 1 };
                }
            }
        }
    }
}

#[test]
fn a_disk_that_fails_is_no_full_store() {
    let disk = Arc::new(Disk::default());
    let capacity = Geometry::TINY.medium_bytes(60);
    let device = open(disk.clone(), Mode::Append, &Options { capacity_bytes: Some(capacity), ..tiny() }).unwrap();
    let mut model = Model::new();
    run(&device, &mut model, array("a", &[3 * SEGMENT]));
    run(&device, &mut model, fill("a", &[3 * SEGMENT], 10));
    device.execute(command::Flush).unwrap();
    disk.fail(Kind::Write, 0, u64::MAX, EIO);
    for turn in 0..200 {
        match fill("a", &[3 * SEGMENT], 11 + turn).run(&device) {
            Err(Error::Media { .. }) => {}
            other => panic!("turn {turn}: {other:?}"),
        }
        assert!(matches!(device.execute(command::Compact), Ok(_) | Err(Error::Media { .. })));
    }
    assert_eq!(number(&device, "segments_bad"), 0);
    assert_holds(&device, &model, &String::new);
    disk.heal();
    run(&device, &mut model, fill("a", &[3 * SEGMENT], 300));
    device.close().unwrap();
    drop(device);
    let device = open(disk, Mode::ReadWrite, &tiny()).unwrap();
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
}

#[test]
fn closing_after_a_refused_barrier_closes() {
    for (kind, errno) in [(Kind::Sync, EIO), (Kind::Sync, ENOSPC)] {
        let disk = Arc::new(Disk::default());
        let device = made(&disk);
        let mut model = two_arrays(&device, 1000);
        run(&device, &mut model, fill("a", &[1000], 5));
        disk.fail(kind, 0, 1, errno);
        assert!(matches!(device.execute(command::Flush), Err(Error::Media { .. })));
        assert_holds(&device, &model, &String::new);
        assert!(fill("a", &[1000], 6).run(&device).is_err());
        assert!(matches!(device.close(), Err(Error::Media { .. })));
        assert!(device.closed());
        device.close().expect("it is closed");
        drop(device);
        assert_sound(&open(disk, Mode::ReadWrite, &tiny()).unwrap(), &String::new);
    }
}

/// Compacts stores that random commands left, twice each.
#[test]
fn compacting_never_makes_a_file_longer_and_twice_changes_nothing() {
    let mut shorter = 0;
    for seed in 0..rounds(60, 3000) {
        let mut rng = Rng::with_seed(seed);
        let disk = Arc::new(Disk::default());
        let options = Options { write_buffer_bytes: [0, 64 << 20][seed as usize % 2], ..tiny() };
        let mut device = open(disk.clone(), Mode::Append, &options).unwrap();
        let mut model = Model::new();
        for round in 0..4 {
            for _ in 0..rng.usize(..25) {
                let taste = Taste { array_bytes: 40_000, reopen: false, ..Taste::SMALL };
                let op = match draw(rng.u64(..), &model, &taste) {
                    Op::Compact => continue,
                    op => op,
                };
                op.run(&device).unwrap();
                op.tell(&mut model);
            }
            if rng.bool() {
                device.close().unwrap();
                drop(device);
                device = open(disk.clone(), Mode::ReadWrite, &options).unwrap();
            } else {
                device.execute(command::Flush).unwrap();
            }
            let context = || format!("seed {seed}, round {round}");
            let before = (disk.len(), disk.used());
            compact(&device).unwrap();
            let after = (disk.len(), disk.used());
            assert!(after.0 <= before.0, "{before:?} -> {after:?}; {}", context());
            // Metadata may be up to eight disk blocks longer than the metadata that it replaces.
            assert!(after.1 <= before.1 + 4096, "{before:?} -> {after:?}; {}", context());
            shorter += u64::from(after.0 < before.0);
            let bytes = disk.to_bytes();
            compact(&device).unwrap();
            assert!((disk.len(), disk.used()) == after && disk.to_bytes() == bytes, "twice; {}", context());
            assert!(number(&device, "segments_free") < 4, "{}", context());
            assert_holds(&device, &model, &context);
            assert_sound(&device, &context);
        }
    }
    assert!(shorter > 50, "{shorter}");
}

fn compact(device: &Device) -> Result<()> {
    device.execute(command::Compact).map(drop)
}
