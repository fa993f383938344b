//! Promise: an append becomes visible with all of its rows, or not at all: to concurrent readers, to a process that
//! opens the store after a kill or a loss of power at any moment, and when the append fails.
//!
//! Rows are never written as the fill value, so a row that reads as fill within the shape is half an append. Appends
//! here are smaller and larger than access units and building blocks, into plain, compressed and encrypted arrays whose
//! last blocks are partly written. power_loss.rs crashes at every write of a workload with one command of each kind.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::*;
use fastrand::Rng;
use nandarray::{Device, Error, FaultMedia, Geometry, Mode, Options, command};

const COLUMNS: u64 = 37;
const KINDS: [(&str, Option<&str>, bool); 4] = [
    ("plain", None, false),
    ("compressed", Some("lz4+shuffle"), false),
    ("secret", None, true),
    ("both", Some("zstd:1"), true),
];

fn make(device: &Device, block: Option<Vec<u64>>) {
    for (name, compression, key) in KINDS {
        Op::Create {
            name: name.to_owned(),
            shape: vec![0, COLUMNS],
            item: 4,
            block: block.clone(),
            compression,
            key,
            fill: 0,
        }
        .run(device)
        .unwrap();
    }
}

fn tiny(write_buffer_bytes: usize) -> Options {
    Options { write_buffer_bytes, ..options(Geometry::TINY, 5) }
}

fn append_rows(device: &Device, name: &str, rows: u64, value: u32) -> Result<Vec<u64>, Error> {
    let bytes = value.to_le_bytes().repeat((rows * COLUMNS) as usize);
    append(device, name, 0, &[rows, COLUMNS], &strides(&[rows, COLUMNS], 4), &bytes)
}

/// Returns the value of each row; `None` if a row has several values, or the fill value.
fn rows_of(bytes: &[u8]) -> Option<Vec<u32>> {
    let row = |r: &[u8]| {
        let first: [u8; 4] = r[..4].try_into().expect("four bytes");
        (first != [0; 4] && r.chunks_exact(4).all(|c| c == first)).then(|| u32::from_le_bytes(first))
    };
    bytes.chunks_exact(COLUMNS as usize * 4).map(row).collect()
}

/// Opens a medium's surviving bytes and panics unless every row of every array is whole; returns the rows' values by
/// array.
fn judge(bytes: Vec<u8>, context: &dyn Fn() -> String) -> Vec<Vec<u32>> {
    let media = Arc::new(FaultMedia::with_bytes(bytes));
    let device = open(media, Mode::ReadWrite, &tiny(0)).unwrap_or_else(|e| panic!("{e}; {}", context()));
    let rows = names(&device).into_iter().map(|name| {
        let array = read_array(&device, &name).unwrap_or_else(|e| panic!("{name}: {e}; {}", context()));
        rows_of(&array.data)
            .unwrap_or_else(|| panic!("{name} of shape {:?} has half an append; {}", array.shape, context()))
    });
    let rows = rows.collect();
    assert_sound(&device, context);
    rows
}

#[test]
fn lost_power_at_every_write_leaves_whole_appends() {
    for (block, write_buffer_bytes) in [(None, 64 << 20), (Some(vec![5, 16]), 3_000), (Some(vec![16, 40]), 0)] {
        for n in 1.. {
            let media = Arc::new(FaultMedia::default());
            let device = open(media.clone(), Mode::Append, &tiny(write_buffer_bytes)).unwrap();
            make(&device, block.clone());
            device.execute(command::Flush).unwrap();
            media.crash_at_write(media.writes() + n);
            let (mut sizes, mut flushed) = (vec![vec![0u64]; KINDS.len()], [0; KINDS.len()]);
            let story = (|| -> Result<(), Error> {
                for (turn, rows) in [1, 3, 1, 40, 2, 7, 1, 19].into_iter().enumerate() {
                    for (i, (name, ..)) in KINDS.iter().enumerate() {
                        let to = sizes[i][turn] + rows;
                        sizes[i].push(to);
                        append_rows(&device, name, rows, turn as u32 + 1)?;
                    }
                    if turn % 3 == 2 {
                        device.execute(command::Flush)?;
                        flushed = [turn + 1; KINDS.len()];
                    }
                }
                Ok(())
            })();
            if story.is_ok() && !media.crashed() {
                assert!(n > 60, "the appends write");
                break;
            }
            for (how, bytes) in
                [("killed", media.after_kill()), ("power", media.after_crash(n)), ("power", media.after_crash(n ^ 77))]
            {
                let context = || format!("{how} at write {n}, blocks {block:?}, buffer {write_buffer_bytes}");
                let mut found = judge(bytes, &context);
                found.sort_by_key(Vec::len);
                // Names in order of the listing: both, compressed, plain, secret.
                for rows in &found {
                    let known = sizes.iter().zip(flushed).any(|(s, f)| s[f..].contains(&(rows.len() as u64)));
                    assert!(known, "{} rows; {}", rows.len(), context());
                    assert!(rows.is_sorted(), "{rows:?}; {}", context());
                }
            }
        }
    }
}

/// Overwrites some of the last rows, or only the last one, which lies in the block that the next append extends.
fn overwrite_last_rows(device: &Device, name: &str, rows: u64, rng: &mut Rng) {
    if rows > 0 {
        let start = if rng.bool() { rows - 1 } else { rng.u64(..rows) };
        let part = Part::boxed(&[start, 0], &[rows - start, COLUMNS]);
        let bytes = 7777u32.to_le_bytes().repeat(((rows - start) * COLUMNS) as usize);
        write(device, name, &part, &bytes).expect("an append makes no write fail");
    }
}

/// Threads append, overwrite existing rows and read; another thread checks what a crash at that moment would leave.
#[test]
fn appends_beside_readers_writers_and_crashes_are_whole() {
    within(150, "appends", || {
        for round in 0..rounds(3, 40) {
            let media = Arc::new(FaultMedia::default());
            let options = Options { threads: Some(2), ..tiny([0, 4_000, 64 << 20][round as usize % 3]) };
            let device = open(media.clone(), Mode::Append, &options).unwrap();
            make(&device, Some(vec![7, 16]));
            let (stop, reads) = (AtomicBool::new(false), AtomicU64::new(0));
            let appended = [const { AtomicU64::new(0) }; KINDS.len()];
            let rows_now = |name: &str| device.describe(name).unwrap().peek().record.shape[0];
            std::thread::scope(|s| {
                let (device, stop, reads, appended, media) = (&device, &stop, &reads, &appended, &media);
                let some = |rng: &mut Rng| rng.usize(..KINDS.len());
                let mut appenders = Vec::new();
                for i in 0..2u64 {
                    appenders.push(s.spawn(move || {
                        let mut rng = Rng::with_seed(round << 8 | i);
                        let mut turn = 0;
                        while turn < 60 || (reads.load(Ordering::Relaxed) < 3 && turn < 2000) {
                            turn += 1;
                            let (kind, rows) = (some(&mut rng), rng.u64(1..12));
                            let shape = append_rows(device, KINDS[kind].0, rows, turn).unwrap();
                            let before = appended[kind].fetch_add(rows, Ordering::SeqCst);
                            assert!(shape[0] >= before.min(rows) && shape[1] == COLUMNS);
                        }
                    }));
                }
                s.spawn(move || {
                    let mut rng = Rng::with_seed(round << 8 | 3);
                    while !stop.load(Ordering::Acquire) {
                        let name = KINDS[some(&mut rng)].0;
                        overwrite_last_rows(device, name, rows_now(name), &mut rng);
                    }
                });
                s.spawn(move || {
                    let mut rng = Rng::with_seed(round << 8 | 4);
                    while !stop.load(Ordering::Acquire) {
                        let name = KINDS[some(&mut rng)].0;
                        let rows = rows_now(name);
                        let bytes = read(device, name, &Part::boxed(&[0, 0], &[rows, COLUMNS])).unwrap();
                        assert!(rows_of(&bytes).is_some(), "a reader saw half an append to {name:?}");
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                });
                s.spawn(move || {
                    let mut seed = round << 20;
                    while !stop.load(Ordering::Acquire) {
                        seed += 1;
                        judge(media.after_kill(), &|| format!("killed, round {round}"));
                        judge(media.after_crash(seed), &|| format!("power lost, seed {seed}"));
                        device.execute(command::Flush).unwrap();
                        if seed % 4 == 0 {
                            device.execute(command::Compact).unwrap();
                        }
                    }
                });
                let done: Vec<_> = appenders.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
                stop.store(true, Ordering::Release);
                done.into_iter().for_each(|d| d.unwrap());
            });
            for (kind, (name, ..)) in KINDS.iter().enumerate() {
                assert_eq!(rows_now(name), appended[kind].load(Ordering::SeqCst), "{name}: every append counts once");
            }
            device.close().unwrap();
            drop(device);
            judge(media.after_crash(1), &|| format!("closed, round {round}"));
        }
    });
}

#[test]
fn an_append_that_fails_leaves_the_shape() {
    let media = Arc::new(FaultMedia::default());
    let capacity_bytes = Some(Geometry::TINY.medium_bytes(24));
    let device = open(media.clone(), Mode::Append, &Options { capacity_bytes, ..tiny(0) }).unwrap();
    make(&device, None);
    let mut rows = 0;
    let e = loop {
        match append_rows(&device, "plain", 50, 3) {
            Ok(shape) => {
                rows += 50;
                assert_eq!(shape, [rows, COLUMNS]);
            }
            Err(e) => break e,
        }
    };
    assert!(is_full(&e), "{e}");
    let array = read_array(&device, "plain").unwrap();
    assert_eq!((array.shape, rows_of(&array.data).map(|r| r.len() as u64)), (vec![rows, COLUMNS], Some(rows)));
    // Parts whose shape does not fit.
    let bytes = [1; 8];
    for (name, axis, count) in [
        ("plain", 0, vec![1, COLUMNS - 1]),
        ("plain", 2, vec![1, COLUMNS]),
        ("plain", 0, vec![1]),
        ("secret", 1, vec![1, 1]),
    ] {
        let e = append(&device, name, axis, &count, &vec![0; count.len()], &bytes).unwrap_err();
        assert!(matches!(e, Error::Invalid(_)), "{e}");
    }
    let e = append(&device, "plain", 0, &[u64::MAX, COLUMNS], &[0, 0], &bytes).unwrap_err();
    assert!(matches!(e, Error::OutOfRange { axis: 0, .. }), "{e}");
    assert_eq!(read_array(&device, "secret").unwrap().shape, [0, COLUMNS]);
    // An axis may grow while another is empty.
    assert_eq!(append(&device, "secret", 1, &[0, 5], &[4, 4], &[]).unwrap(), [0, COLUMNS + 5]);
}
