//! Promise: many threads may use one store at once. Every read sees every write whole or not at all, no command waits
//! for ever, and the order in the journal is one that happened.
//!
//! Writers fill boxes, each write with one value; a reader of a box that is only ever written whole must see one value.
//! At the same time pages are moved, checkpoints written, and arrays created, renamed and deleted under the same few
//! names. A watchdog ends a test that hangs; afterwards the store must open again and be sound. Interleavings are the
//! machine's, so a failure may not repeat; seeds only vary the load.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use common::*;
use fastrand::Rng;
use nandarray::{Device, Error, Geometry, Mode, Options, command};

const SIDE: u64 = 64;

/// Runs `f` in `count` threads, with the thread's number and a random generator of its own, until all have returned.
fn threads(count: u64, f: impl Fn(u64, &mut Rng) + Sync) {
    std::thread::scope(|s| {
        for i in 0..count {
            let f = &f;
            s.spawn(move || f(i, &mut Rng::with_seed(i)));
        }
    });
}

fn one_value(bytes: &[u8]) -> Option<u32> {
    let first = bytes[..4].try_into().ok().map(u32::from_le_bytes)?;
    bytes.chunks_exact(4).all(|c| c == first.to_le_bytes()).then_some(first)
}

fn fill_box(device: &Device, name: &str, part: &Part, value: u32) -> Result<(), Error> {
    let n = volume(&part.count(2));
    write(device, name, part, &value.to_le_bytes().repeat(n))
}

fn make(device: &Device, name: &str, compression: Option<&str>) {
    let compression = compression.map(|_| "lz4");
    let op = Op::Create {
        name: name.to_owned(),
        shape: vec![SIDE, SIDE],
        item: 4,
        block: Some(vec![16, 32]),
        compression,
        key: false,
        fill: 0,
    };
    op.run(device).unwrap();
}

fn store(path: &Path, capacity_segments: Option<u32>, map: bool) -> Device {
    let options = Options {
        capacity_bytes: capacity_segments.map(|n| Geometry::TINY.medium_bytes(n.into())),
        threads: Some(2),
        map,
        write_buffer_bytes: 20_000,
        ..options(Geometry::TINY, 1)
    };
    Device::open_file(path, Mode::Append, &options).unwrap()
}

fn reopen_and_check(path: &Path) {
    let device = Device::open_file(path, Mode::Read, &options(Geometry::TINY, 2)).unwrap();
    read_all(&device).unwrap();
    assert_sound(&device, &|| "opened again".to_owned());
}

/// Threads write overlapping boxes, each write covering a box whole, and others read where the boxes overlap; one more
/// thread uses an array of its own.
fn readers_and_writers(capacity_segments: Option<u32>, map: bool, turns: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.nand");
    let device = store(&path, capacity_segments, map);
    make(&device, "plain", None);
    make(&device, "coded", Some("lz4"));
    let whole = Part::all(&[SIDE, SIDE]);
    let boxes = [Part::boxed(&[0, 0], &[40, SIDE]), Part::boxed(&[20, 5], &[44, 50]), whole.clone()];
    let shared = Part::boxed(&[21, 7], &[19, 40]); // within all of them
    let stop = AtomicBool::new(false);
    let (value, reads) = (AtomicU32::new(1), AtomicU64::new(0));
    threads(7, |i, rng| match i {
        0..=2 => {
            let mut turn = 0;
            while turn < turns || reads.load(Ordering::Relaxed) == 0 {
                turn += 1;
                let name = ["plain", "coded"][rng.usize(..2)];
                let part = &boxes[rng.usize(..3)];
                let value = value.fetch_add(1, Ordering::Relaxed);
                match fill_box(&device, name, part, value) {
                    Ok(()) => {}
                    Err(e) => assert!(is_full(&e) && capacity_segments.is_some(), "{e}"),
                }
            }
            stop.store(true, Ordering::Release);
        }
        3..=4 => {
            while !stop.load(Ordering::Acquire) {
                let name = ["plain", "coded"][rng.usize(..2)];
                let bytes = read(&device, name, &shared).unwrap();
                assert!(one_value(&bytes).is_some(), "a read of {name:?} saw parts of two writes");
                reads.fetch_add(1, Ordering::Relaxed);
            }
        }
        5 => {
            while !stop.load(Ordering::Acquire) {
                let compact = rng.u8(..8) == 0;
                let done =
                    if compact { device.execute(command::Compact).map(drop) } else { device.execute(command::Flush) };
                if let Err(e) = done {
                    assert!(is_full(&e) && capacity_segments.is_some(), "{e}");
                }
                std::thread::yield_now();
            }
        }
        _ => {
            // An array of its own: writes of other threads must not touch it.
            make(&device, "own", None);
            let mut last = 0;
            while !stop.load(Ordering::Acquire) {
                let next = rng.u32(1..);
                match fill_box(&device, "own", &whole, next) {
                    Ok(()) => last = next,
                    Err(e) => assert!(is_full(&e) && capacity_segments.is_some(), "{e}"),
                }
                assert_eq!(one_value(&read(&device, "own", &whole).unwrap()), Some(last));
            }
        }
    });
    assert!(reads.into_inner() > 0);
    assert_sound(&device, &|| "at rest".to_owned());
    device.close().unwrap();
    drop(device);
    reopen_and_check(&path);
}

#[test]
fn reads_see_whole_writes() {
    within(120, "readers and writers", || readers_and_writers(None, true, rounds(150, 5000)));
}

#[test]
fn reads_see_whole_writes_while_pages_are_moved() {
    within(120, "readers and writers", || readers_and_writers(Some(40), true, rounds(150, 5000)));
}

#[test]
fn reads_see_whole_writes_without_a_mapping() {
    within(120, "readers and writers", || readers_and_writers(Some(36), false, rounds(80, 5000)));
}

#[test]
fn a_check_beside_writers_finds_nothing() {
    within(120, "checking", || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.nand");
        let device = store(&path, Some(40), true);
        make(&device, "plain", None);
        make(&device, "coded", Some("lz4"));
        let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
        threads(3, |i, rng| match i {
            0 => {
                for checked in 0..rounds(60, 1000) {
                    while writes.load(Ordering::Relaxed) < checked {
                        std::thread::yield_now();
                    }
                    assert_sound(&device, &|| "beside writers".to_owned());
                }
                stop.store(true, Ordering::Release);
            }
            _ => {
                while !stop.load(Ordering::Acquire) {
                    let part = draw_part(rng, &[SIDE, SIDE], true);
                    let n = volume(&part.count(2)) * 4;
                    let bytes: Vec<u8> = (0..n).map(|_| rng.u8(..)).collect();
                    match write(&device, ["plain", "coded"][rng.usize(..2)], &part, &bytes) {
                        Ok(()) => drop(writes.fetch_add(1, Ordering::Relaxed)),
                        Err(e) => assert!(is_full(&e), "{e}"),
                    }
                }
            }
        });
    });
}

/// Many threads create, open, write, rename, resize and delete arrays under a few names; the journal's order of these
/// commands must be possible.
#[test]
fn arrays_come_and_go_under_the_same_names() {
    for seed in 0..rounds(6, 200) {
        within(120, "arrays that come and go", move || {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.nand");
            let device = Arc::new(store(&path, None, true));
            threads(6, |i, rng| {
                let mut rng = Rng::with_seed(rng.u64(..) ^ seed ^ i << 40);
                for turn in 0..150u32 {
                    let name = format!("a{}", rng.u8(..3));
                    let other = format!("a{}", rng.u8(..3));
                    let whole = Part::boxed(&[0, 0], &[8, 8]);
                    let done = match rng.u8(..8) {
                        0..=1 => Op::Create {
                            name,
                            shape: vec![32, 32],
                            item: 4,
                            block: None,
                            compression: None,
                            key: false,
                            fill: 0,
                        }
                        .run(&device),
                        2 => Op::Delete { name }.run(&device),
                        3 => Op::Rename { from: name, to: other }.run(&device),
                        4 => Op::Attrs { name, attrs: format!("{{\"n\":{turn}}}") }.run(&device),
                        5 => Op::Resize { name, shape: vec![rng.u64(8..40), 32] }.run(&device),
                        6 => fill_box(&device, &name, &whole, turn),
                        _ => read(&device, &name, &whole).map(drop),
                    };
                    match done {
                        Ok(())
                        | Err(Error::NotFound { .. } | Error::Exists { .. } | Error::Closed(_) | Error::Invalid(_)) => {
                        }
                        Err(e) => panic!("seed {seed}: {e:?}"),
                    }
                }
            });
            let held = read_all(&device).unwrap();
            assert_sound(&device, &|| format!("seed {seed}"));
            // As a process that is killed after a flush leaves it: the journal has to tell all of it.
            device.execute(command::Flush).unwrap();
            let copy = dir.path().join("copy.nand");
            std::fs::copy(&path, &copy).unwrap();
            for path in [&copy, &path] {
                if path == &copy {
                    let again = Device::open_file(path, Mode::ReadWrite, &options(Geometry::TINY, 2)).unwrap();
                    assert_holds(&again, &held, &|| format!("seed {seed}, the copy"));
                    assert_sound(&again, &|| format!("seed {seed}, the copy"));
                } else {
                    device.close().unwrap();
                }
            }
        });
    }
}

/// A command that waited for the close either comes before it, and is in the file, or fails.
#[test]
fn what_succeeded_beside_a_close_is_in_the_store() {
    const WRITERS: u64 = 3;
    within(120, "closing beside writers", || {
        for round in 0..rounds(30, 600) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.nand");
            let device = store(&path, None, true);
            make(&device, "plain", None);
            let last: Vec<AtomicU32> = (0..=WRITERS).map(|_| AtomicU32::new(0)).collect();
            threads(WRITERS + 2, |i, _| {
                if i > WRITERS {
                    while last.iter().any(|turns| u64::from(turns.load(Ordering::Acquire)) < 1 + round % 8) {
                        std::thread::yield_now();
                    }
                    return device.close().unwrap();
                }
                for turn in 1.. {
                    let done = if i < WRITERS {
                        fill_box(&device, "plain", &Part::boxed(&[i, 0], &[1, SIDE]), turn)
                    } else {
                        let (name, to) = (format!("n{}", turn - 1), format!("n{turn}"));
                        let made =
                            if turn == 1 { device.execute(command::Create(scalar("n1"))).map(drop) } else { Ok(()) };
                        let rename = command::Rename { from: &name, to: &to };
                        made.and_then(|()| if turn == 1 { Ok(()) } else { device.execute(rename) })
                    };
                    match done {
                        Ok(()) => last[i as usize].store(turn, Ordering::Release),
                        Err(e) => return assert!(matches!(e, Error::Closed(_)), "{e:?}"),
                    }
                }
            });
            drop(device);
            let device = Device::open_file(&path, Mode::Read, &options(Geometry::TINY, 2)).unwrap();
            for i in 0..WRITERS {
                let row = read(&device, "plain", &Part::boxed(&[i, 0], &[1, SIDE])).unwrap();
                let wanted = last[i as usize].load(Ordering::Acquire);
                assert_eq!(one_value(&row), Some(wanted), "writer {i}, round {round}");
            }
            let name = format!("n{}", last[WRITERS as usize].load(Ordering::Acquire));
            assert_eq!(names(&device), [name, "plain".to_owned()], "round {round}");
        }
    });
}

fn scalar(name: &str) -> nandarray::NewSpace<'_> {
    nandarray::NewSpace {
        name,
        shape: &[],
        item_bytes: 4,
        dtype: "<u4",
        block: None,
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    }
}

#[test]
fn a_closed_store_refuses_and_never_hangs() {
    within(60, "closing", || {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.nand");
        let device = store(&path, None, true);
        make(&device, "plain", None);
        let done = AtomicU32::new(0);
        threads(4, |i, rng| {
            for turn in 0..200 {
                if i == 0 && turn == 50 {
                    device.close().unwrap();
                }
                match fill_box(&device, "plain", &Part::boxed(&[rng.u64(..32), 0], &[8, SIDE]), turn) {
                    Ok(()) => drop(done.fetch_add(1, Ordering::Relaxed)),
                    Err(e) => assert!(matches!(e, Error::Closed(_)), "{e:?}"),
                }
            }
        });
        assert!(done.into_inner() >= 50);
        drop(device);
        reopen_and_check(&path);
    });
}
