//! Repairs that end in the middle: by a loss of power, a kill, or a disk that fails.
//!
//! A store with damaged pages, of some of which older copies are left, is repaired while the n-th write fails. The
//! surviving store has no wrong content and names its damage as before, and a second repair reaches what an undisturbed
//! one does.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;
use nandarray::{Device, Error, FaultMedia, Geometry, MemoryMedia, Mode, Options, command};

use crate::common::disk::{Disk, EIO, ENOSPC, Kind};
use crate::common::*;

fn tiny(entropy: u64) -> Options {
    options(Geometry::TINY, entropy)
}

/// Makes a store by random commands, some of which move pages, closes it, and flips a bit in each of some pages.
fn damaged(seed: u64) -> (Vec<u8>, Model) {
    let media = Arc::new(MemoryMedia::default());
    let device = open(media.clone(), Mode::Append, &tiny(seed)).unwrap();
    let (mut rng, mut model) = (Rng::with_seed(seed), Model::new());
    for _ in 0..30 {
        let op = draw(rng.u64(..), &model, &Taste { reopen: false, arrays: 5, ..Taste::SNAPSHOTS });
        op.run(&device).unwrap();
        op.tell(&mut model);
    }
    let name = "last".to_owned();
    let last = Op::bytes(name, &[70, 50]);
    last.run(&device).unwrap();
    last.tell(&mut model);
    // Blocks that are written again and then moved leave older and equal copies behind.
    for name in snapshots::split(&model).0.into_keys() {
        let op = Op::Write { part: Part::all(&model[&name].shape), name, salt: seed * 4 + 2 };
        op.run(&device).unwrap();
        op.tell(&mut model);
        Op::Flush.run(&device).unwrap();
    }
    let pages = mapped_pages(&device);
    device.close().unwrap();
    let mut bytes = media.to_bytes();
    for _ in 0..rng.usize(1..4) {
        let (at, length) = pages[rng.usize(..pages.len())];
        bytes[at as usize + rng.usize(..length)] ^= 1 << rng.u8(..8);
    }
    (bytes, model)
}

/// Offset and length in the file of every page that an array maps.
fn mapped_pages(device: &Device) -> Vec<(u64, usize)> {
    let (geometry, mut pages) = (device.geometry(), Vec::new());
    for name in names(device).into_iter().chain(snapshots::names(device)) {
        open_space(device, &name).unwrap().read().unwrap().index().for_each(&mut |_, map| {
            for run in map.runs() {
                let page = |unit| (geometry.page_offset(run.page_of(unit)), geometry.page_bytes as usize);
                pages.extend((run.unit..run.end()).map(page));
            }
        });
    }
    pages
}

/// Returns the arrays that cannot be read; panics if one has wrong content, or an error that is no checksum's.
fn lost(device: &Device, model: &Model, context: &dyn Fn() -> String) -> BTreeSet<String> {
    let (live, _) = snapshots::split(model);
    assert_eq!(names(device), live.into_keys().collect::<Vec<_>>(), "{}", context());
    let mut lost = BTreeSet::new();
    let marks = |name: &&String| snapshots::parts(name).is_none_or(|(_, name)| !name.is_empty());
    for (name, array) in model.iter().filter(|(name, _)| marks(name)) {
        match read_array(device, name) {
            Ok(found) => assert!(found == *array, "array {name:?} has wrong content; {}", context()),
            // That of a snapshot has the name of an array, which may be lost, too.
            Err(Error::Checksum { array, .. }) => drop(lost.insert(array)),
            Err(e) => panic!("{name:?}: {e:?}; {}", context()),
        }
    }
    lost
}

/// Repairs a store, and returns the arrays that are lost for good.
fn repaired(device: &Device, model: &Model, context: &dyn Fn() -> String) -> BTreeSet<String> {
    check(device, true).unwrap_or_else(|e| panic!("{e:?}; {}", context()));
    let left = lost(device, model, context);
    let named: BTreeSet<String> =
        check(device, false).unwrap().findings.into_iter().map(|f| f.array.expect("of an array")).collect();
    assert_eq!(named, left, "what a check names after a repair; {}", context());
    left
}

#[test]
fn a_repair_that_a_loss_of_power_ends_is_completed_by_the_next() {
    let mut interrupted = 0;
    for seed in 0..rounds(8, 200) {
        let (bytes, model) = damaged(seed);
        let undisturbed = Arc::new(FaultMedia::with_bytes(bytes.clone()));
        let device = open(undisturbed.clone(), Mode::ReadWrite, &tiny(50)).unwrap();
        let context = || format!("seed {seed}, undisturbed");
        let before = lost(&device, &model, &context);
        let opened = undisturbed.writes();
        let wanted = repaired(&device, &model, &context);
        assert!(wanted.is_subset(&before), "{wanted:?} of {before:?}; {}", context());
        let writes = undisturbed.writes() - opened;
        for n in 1..=writes {
            let media = Arc::new(FaultMedia::with_bytes(bytes.clone()));
            let device = open(media.clone(), Mode::ReadWrite, &tiny(50)).unwrap();
            media.crash_at_write(n);
            let done = check(&device, true);
            assert!(media.crashed(), "seed {seed}: write {n} of {writes}, {done:?}");
            drop(device);
            interrupted += 1;
            for (bytes, how) in [(media.after_kill(), "a kill"), (media.after_crash(n), "a loss of power")] {
                let context = || format!("seed {seed}, {how} at write {n} of {writes} of a repair");
                let media = Arc::new(MemoryMedia::with_bytes(bytes));
                let reader =
                    open(media.clone(), Mode::Read, &tiny(51)).unwrap_or_else(|e| panic!("{e}; {}", context()));
                assert!(lost(&reader, &model, &context).is_subset(&before), "{}", context());
                drop(reader);
                let device = open(media, Mode::ReadWrite, &tiny(52)).unwrap_or_else(|e| panic!("{e}; {}", context()));
                assert_eq!(repaired(&device, &model, &context), wanted, "{}", context());
            }
        }
    }
    assert!(interrupted > 60, "{interrupted} repairs were interrupted");
}

/// Repairs a store in whose write buffer data wait, while writes fail from number `after` on; panics unless the data
/// are there after the next flush. Returns whether a write has failed.
fn repair_beside_a_write(seed: u64, after: u64, errno: i32) -> bool {
    let context = || format!("seed {seed}: writes of a repair fail by {errno} from number {after} on");
    let (bytes, mut model) = damaged(seed);
    let disk = Arc::new(Disk::with_bytes(bytes));
    let device = open(disk.clone(), Mode::ReadWrite, &tiny(70)).unwrap();
    let name = "waits".to_owned();
    let part = Part::boxed(&[3], &[5]);
    for op in [Op::bytes(name.clone(), &[90]), Op::Write { name, part, salt: 5 }] {
        op.run(&device).unwrap();
        op.tell(&mut model);
    }
    assert!(device.buffered_bytes() > 0, "{}", context());
    let before = disk.done(Kind::Write);
    disk.fail(Kind::Write, after, u64::MAX, errno);
    let done = check(&device, true);
    let reached = disk.done(Kind::Write) > before + after;
    assert!(reached || done.is_ok(), "{done:?}; {}", context());
    disk.heal();
    device.execute(command::Flush).unwrap_or_else(|e| panic!("{e}; {}", context()));
    // Not closed: the bytes are those that a kill leaves.
    let again = open(Arc::new(Disk::with_bytes(disk.to_bytes())), Mode::ReadWrite, &tiny(71));
    let again = again.unwrap_or_else(|e| panic!("{e}; {}", context()));
    assert!(!lost(&again, &model, &context).contains("waits"), "{}", context());
    reached
}

#[test]
fn a_repair_that_fails_keeps_writes_that_no_record_has_yet() {
    for seed in 40..40 + rounds(4, 60) {
        for errno in [EIO, ENOSPC] {
            let mut after = 0;
            while repair_beside_a_write(seed, after, errno) {
                after += 1;
            }
        }
    }
}

#[test]
fn a_repair_whose_write_or_barrier_fails_raises_and_loses_nothing() {
    for seed in 20..20 + rounds(6, 100) {
        let (bytes, model) = damaged(seed);
        for kind in [Kind::Write, Kind::Length, Kind::Sync] {
            for after in 0.. {
                let context = || format!("seed {seed}: {kind:?} number {after} of a repair fails");
                let disk = Arc::new(Disk::with_bytes(bytes.clone()));
                let device = open(disk.clone(), Mode::ReadWrite, &tiny(60)).unwrap();
                let before = lost(&device, &model, &context);
                let done = disk.done(kind);
                disk.fail(kind, after, 1, EIO);
                let report = check(&device, true);
                let reached = disk.done(kind) > done + after;
                disk.heal();
                match &report {
                    Ok(_) => {}
                    Err(Error::Media { .. } | Error::Closed(_)) => assert!(reached, "{}", context()),
                    Err(e) => panic!("{e:?}; {}", context()),
                }
                if kind != Kind::Sync {
                    assert!(lost(&device, &model, &context).is_subset(&before), "{}", context());
                }
                let _ = device.close();
                drop(device);
                let again = open(disk, Mode::ReadWrite, &tiny(61)).unwrap_or_else(|e| panic!("{e}; {}", context()));
                let left = repaired(&again, &model, &context);
                assert!(left.is_subset(&before), "{left:?} of {before:?}; {}", context());
                again.execute(command::Flush).unwrap_or_else(|e| panic!("{e}; {}", context()));
                if !reached {
                    break;
                }
            }
        }
    }
}
