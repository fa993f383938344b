//! Promise: what many threads do at once is what some order of their commands does, and a loss of power keeps a
//! beginning of that order, which has all that was flushed.
//!
//! Threads append rows that carry their number and turn, move amounts between accounts by transactions, and pass names
//! on; reclaim, compaction and flushes run beside them. The conditions do not depend on the order: each
//! thread's rows are there in turn without gap or repetition, the sum of all accounts stays, each name has one owner.
//! The store's own numbers must add up as well. Interleavings are the machine's; seeds vary the load.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use common::*;
use fastrand::Rng;
use nandarray::{Change, Device, Error, FaultMedia, Geometry, Mode, Options, Source, Target, command};

const THREADS: usize = 4;
const COLUMNS: u64 = 4;

fn store_options(entropy: u64, write_buffer_bytes: usize) -> Options {
    Options { threads: Some(2), write_buffer_bytes, ..options(Geometry::TINY, entropy) }
}

fn create(device: &Device, name: &str, shape: &[u64], compression: Option<&'static str>) {
    let (name, shape, block) = (name.to_owned(), shape.to_vec(), Some(vec![8; shape.len()]));
    Op::Create { name, shape, item: 4, block, compression, key: false, fill: 0 }.run(device).unwrap();
}

/// Errors that end a history early: the medium has crashed, or the store was closed because of that.
fn ends_it(error: &Error) -> bool {
    matches!(error, Error::Media { .. } | Error::Closed(_))
}

/// Runs threads that write, beside one that flushes and one that compacts; the latter two until all others have ended.
/// A thread returns whether it goes on.
fn beside(device: &Device, writer: impl Fn(usize, u32, &mut Rng) -> bool + Sync, flushed: impl Fn(bool) + Sync) {
    let running = AtomicU32::new(THREADS as u32);
    std::thread::scope(|s| {
        for i in 0..THREADS {
            let (writer, running) = (&writer, &running);
            s.spawn(move || {
                let mut rng = Rng::with_seed(i as u64);
                for turn in 1.. {
                    if !writer(i, turn, &mut rng) {
                        break;
                    }
                }
                running.fetch_sub(1, Ordering::AcqRel);
            });
        }
        s.spawn(|| {
            while running.load(Ordering::Acquire) > 0 {
                flushed(false);
                if device.execute(command::Flush).is_ok() {
                    flushed(true);
                }
                std::thread::yield_now();
            }
        });
        s.spawn(|| {
            while running.load(Ordering::Acquire) > 0 {
                if let Err(e) = device.execute(command::Compact) {
                    assert!(ends_it(&e), "{e}");
                }
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
    });
}

fn tag(thread: usize, turn: u32) -> u32 {
    (thread as u32 + 1) << 24 | turn
}

/// Returns the number of rows of each thread, which must be there in turn, each whole.
fn rows_of(device: &Device, context: &str) -> [u32; THREADS] {
    rows_in(device, "rows", context)
}

fn rows_in(device: &Device, name: &str, context: &str) -> [u32; THREADS] {
    let data = read_array(device, name).unwrap_or_else(|e| panic!("{e}, {context}")).data;
    let mut last = [0; THREADS];
    for (number, row) in data.chunks_exact(COLUMNS as usize * 4).enumerate() {
        let word = u32::from_le_bytes(row[..4].try_into().unwrap());
        assert!(row.chunks_exact(4).all(|w| w == word.to_le_bytes()), "row {number} is in parts, {context}");
        let (thread, turn) = ((word >> 24) as usize, word & 0xff_ffff);
        assert!((1..=THREADS).contains(&thread), "row {number} is nobody's: {word:#x}, {context}");
        assert_eq!(turn, last[thread - 1] + 1, "row {number} of thread {thread}, {context}");
        last[thread - 1] = turn;
    }
    last
}

fn append_row(device: &Device, thread: usize, turn: u32) -> Result<(), Error> {
    let row = tag(thread, turn).to_le_bytes().repeat(COLUMNS as usize);
    append(device, "rows", 0, &[1, COLUMNS], &[4 * COLUMNS as isize, 4], &row).map(drop)
}

/// One history of appends; with `crash`, the medium fails at that write. Returns whether it did.
fn appends(seed: u64, compression: Option<&'static str>, crash: Option<u64>, turns: u32) -> bool {
    let context = format!("seed {seed}, {compression:?}, crash {crash:?}");
    let media = Arc::new(FaultMedia::default());
    let buffer = [0, 4_000, 64 << 20][seed as usize % 3];
    let device = open(media.clone(), Mode::Append, &store_options(seed, buffer)).unwrap();
    create(&device, "rows", &[0, COLUMNS], compression);
    device.execute(command::Flush).unwrap();
    if let Some(n) = crash {
        media.crash_at_write(media.writes() + n);
    }
    let done: [AtomicU32; THREADS] = Default::default();
    let (before, durable): ([AtomicU32; THREADS], [AtomicU32; THREADS]) = Default::default();
    let writer = |i: usize, turn: u32, _: &mut Rng| match append_row(&device, i, turn) {
        Ok(()) => {
            done[i].store(turn, Ordering::Release);
            turn < turns
        }
        Err(e) => {
            assert!(crash.is_some() && ends_it(&e), "{e}, {context}");
            false
        }
    };
    // Rows that were appended before a flush began are durable when it has ended.
    let flushed = |over: bool| {
        let (from, to) = if over { (&before, &durable) } else { (&done, &before) };
        from.iter().zip(to).for_each(|(from, to)| to.store(from.load(Ordering::Acquire), Ordering::Release));
    };
    beside(&device, writer, flushed);
    let counts = |of: &[AtomicU32; THREADS]| std::array::from_fn::<u32, THREADS, _>(|i| of[i].load(Ordering::Acquire));
    let bytes = if media.crashed() {
        drop(device);
        media.after_crash(seed)
    } else {
        assert_eq!(rows_of(&device, &context), counts(&done), "{context}");
        assert_sound(&device, &|| context.clone());
        device.close().unwrap();
        media.after_kill()
    };
    let again = open(Arc::new(FaultMedia::with_bytes(bytes)), Mode::ReadWrite, &store_options(seed + 1, 0)).unwrap();
    let found = rows_of(&again, &context);
    let (done, durable) = (counts(&done), counts(&durable));
    for i in 0..THREADS {
        // A row whose command failed may be there all the same.
        let most = done[i] + u32::from(media.crashed());
        assert!((durable[i]..=most).contains(&found[i]), "{found:?} of {done:?}, durable {durable:?}, {context}");
        assert!(media.crashed() || found[i] == done[i], "{context}");
    }
    assert_sound(&again, &|| context.clone());
    media.crashed()
}

#[test]
fn rows_of_many_threads_are_there_once_and_in_turn() {
    within(120, "appends", || {
        for seed in 0..rounds(30, 300) {
            appends(seed, [None, Some("lz4")][seed as usize % 2], None, 60);
        }
    });
}

#[test]
fn a_crash_keeps_a_beginning_of_every_threads_rows() {
    within(120, "crashes", || {
        let (all, mut crashes) = (rounds(150, 3_000), 0);
        for seed in 0..all {
            let crash = 1 + Rng::with_seed(seed).u64(..100 + 4 * seed);
            crashes += u64::from(appends(seed, [None, Some("lz4")][seed as usize % 2], Some(crash), 200));
        }
        assert!(crashes > all / 2, "{crashes} of {all} histories crashed");
    });
}

/// A snapshot has a beginning of every thread's rows, and keeps it while others are taken and deleted and pages are
/// moved.
#[test]
fn snapshots_beside_writers_have_whole_rows_and_keep_them() {
    within(120, "snapshots", || {
        for seed in 0..rounds(10, 200) {
            let context = format!("seed {seed}");
            let media = Arc::new(FaultMedia::default());
            let device = open(media.clone(), Mode::Append, &store_options(seed, 4_000)).unwrap();
            create(&device, "rows", &[0, COLUMNS], [None, Some("lz4")][seed as usize % 2]);
            let kept: Mutex<Vec<(String, [u32; THREADS])>> = Mutex::default();
            let writer = |i: usize, turn: u32, _: &mut Rng| {
                append_row(&device, i, turn).unwrap_or_else(|e| panic!("{e}, {context}"));
                if turn.is_multiple_of(10) {
                    let name = format!("s{i}.{turn}");
                    device.execute(command::TakeSnapshot { name: &name, time: turn.into() }).unwrap();
                    let rows = rows_in(&device, &snapshots::name_of(&name, "rows"), &context);
                    assert!(rows[i] == turn, "{rows:?} in {name}, {context}");
                    kept.lock().unwrap().push((name, rows));
                }
                if turn.is_multiple_of(25) {
                    let (name, rows) = kept.lock().unwrap().remove(0);
                    assert_eq!(rows_in(&device, &snapshots::name_of(&name, "rows"), &context), rows, "{context}");
                    device.execute(command::DeleteSnapshot { name: &name }).unwrap();
                }
                turn < 60
            };
            beside(&device, writer, |_| ());
            let kept = kept.into_inner().unwrap();
            assert!(kept.len() > 4, "{kept:?}");
            let judge = |device: &Device| {
                for (name, rows) in &kept {
                    assert_eq!(rows_in(device, &snapshots::name_of(name, "rows"), &context), *rows, "{context}");
                }
                assert_eq!(rows_of(device, &context), [60; THREADS], "{context}");
                assert_sound(device, &|| context.clone());
            };
            judge(&device);
            device.close().unwrap();
            let again = Arc::new(FaultMedia::with_bytes(media.after_kill()));
            judge(&open(again, Mode::ReadWrite, &store_options(seed + 1, 0)).unwrap());
        }
    });
}

/// Versions of spaces are compared while others of them end.
#[test]
fn snapshots_end_while_others_are_listed() {
    within(60, "the end of snapshots", || {
        let device = open(Arc::new(FaultMedia::default()), Mode::Append, &store_options(1, 4_000)).unwrap();
        for name in ["a", "b", "c"] {
            create(&device, name, &[64, 64], None);
            Op::Write { name: name.into(), part: Part::all(&[64, 64]), salt: 1 }.run(&device).unwrap();
        }
        let take = |name: &str| device.execute(command::TakeSnapshot { name, time: 0 }).unwrap();
        let delete = |name: &str| device.execute(command::DeleteSnapshot { name }).unwrap();
        take("base");
        let running = AtomicBool::new(true);
        std::thread::scope(|s| {
            s.spawn(|| {
                while running.load(Ordering::Relaxed) {
                    assert!(!device.execute(command::Snapshots).unwrap().is_empty());
                }
            });
            for _ in 0..rounds(5_000, 50_000) {
                take("t");
                delete("t");
            }
            running.store(false, Ordering::Relaxed);
        });
    });
}

const ACCOUNTS: u64 = 24;
const BOOKS: [&str; 3] = ["x", "y", "z"];
const AMOUNT: u32 = 1_000;

fn account(device: &Device, book: &str, at: u64) -> Result<u32, Error> {
    let bytes = read(device, book, &Part::boxed(&[at], &[1]))?;
    Ok(u32::from_le_bytes(bytes.try_into().unwrap()))
}

/// Moves an amount between two accounts of two books by a transaction, or gives the transaction up.
fn transfer(device: &Device, rng: &mut Rng) -> Result<(), Error> {
    let (from, to) = (rng.usize(..3), rng.usize(..3));
    let (from, to) = (BOOKS[from], BOOKS[if from == to { (to + 1) % 3 } else { to }]);
    let ids = [open_space(device, from)?.id, open_space(device, to)?.id];
    let shape = [ACCOUNTS];
    let id = device.execute(command::Begin { spaces: &[(ids[0], &shape), (ids[1], &shape)] })?;
    let places = [rng.u64(..ACCOUNTS), rng.u64(..ACCOUNTS)];
    // The spaces are this transaction's now, so what is read here stays until it ends.
    let moved = (|| {
        let (one, other) = (account(device, from, places[0])?, account(device, to, places[1])?);
        let amount = rng.u32(..=one);
        for (space, at, value) in [(ids[0], places[0], one - amount), (ids[1], places[1], other + amount)] {
            let bytes = value.to_le_bytes();
            let target = Target::Box { start: &[at], step: &[1], count: &[1], strides: &[4], view: None };
            // SAFETY: the buffer has the one element of the target.
            let source = unsafe { Source::from_raw(bytes.as_ptr()) };
            device.execute(command::StageWrite { transaction: id, space, target, source })?;
        }
        Ok(())
    })();
    if moved.is_err() || rng.u8(..6) == 0 {
        device.execute(command::Abort { transaction: id })?;
        return moved;
    }
    let attrs = format!("{{\"n\":{}}}", rng.u32(..));
    let changes = [Change::SetAttrs { name: from, attrs: &attrs }, Change::SetAttrs { name: to, attrs: &attrs }];
    device.execute(command::Apply { transaction: id, changes: &changes })
}

fn sum(device: &Device) -> u64 {
    let all = BOOKS.iter().flat_map(|book| read_array(device, book).unwrap().data);
    let bytes: Vec<u8> = all.collect();
    bytes.chunks_exact(4).map(|c| u64::from(u32::from_le_bytes(c.try_into().unwrap()))).sum()
}

#[test]
fn transactions_of_many_threads_keep_the_sum_of_all_accounts() {
    within(120, "transfers", || {
        let whole = 3 * ACCOUNTS * u64::from(AMOUNT);
        for seed in 0..rounds(80, 1_000) {
            let media = Arc::new(FaultMedia::default());
            let device = open(media.clone(), Mode::Append, &store_options(seed, 1 << 20)).unwrap();
            for (i, book) in BOOKS.into_iter().enumerate() {
                create(&device, book, &[ACCOUNTS], [None, Some("lz4")][i % 2]);
                let bytes = AMOUNT.to_le_bytes().repeat(ACCOUNTS as usize);
                write(&device, book, &Part::all(&[ACCOUNTS]), &bytes).unwrap();
            }
            device.execute(command::Flush).unwrap();
            let crashes = seed % 2 == 1;
            if crashes {
                media.crash_at_write(media.writes() + 1 + Rng::with_seed(seed).u64(..150));
            }
            let writer = |_, turn: u32, rng: &mut Rng| match transfer(&device, rng) {
                Ok(()) => turn < 60,
                Err(e) => {
                    assert!(crashes && ends_it(&e), "seed {seed}: {e}");
                    false
                }
            };
            beside(&device, writer, |_| ());
            let bytes = if media.crashed() {
                drop(device);
                media.after_crash(seed)
            } else {
                assert_eq!(sum(&device), whole, "seed {seed}");
                device.close().unwrap();
                media.after_kill()
            };
            let survived = Arc::new(FaultMedia::with_bytes(bytes));
            let again = open(survived, Mode::ReadWrite, &store_options(seed + 1, 0)).unwrap();
            assert_eq!(sum(&again), whole, "seed {seed}, crashed: {}", media.crashed());
            assert_sound(&again, &|| format!("seed {seed}"));
        }
    });
}

/// Threads take names from each other: whatever the order, each array has one name and each name one array.
#[test]
fn names_that_threads_pass_on_have_one_owner_each() {
    within(120, "names", || {
        for seed in 0..rounds(40, 400) {
            let media = Arc::new(FaultMedia::default());
            let device = open(media.clone(), Mode::Append, &store_options(seed, 1 << 20)).unwrap();
            for i in 0..3 {
                create(&device, &format!("n{i}"), &[4], None);
                write(&device, &format!("n{i}"), &Part::all(&[4]), &[i as u8 + 1; 16]).unwrap();
            }
            let stop = AtomicBool::new(false);
            let writer = |i: usize, turn: u32, rng: &mut Rng| {
                let (from, to) = (format!("n{}", rng.u8(..6)), format!("n{}", rng.u8(..6)));
                let done = if i == 0 {
                    let changes = [Change::Rename { from: &from, to: "t" }, Change::Rename { from: "t", to: &to }];
                    device.execute(command::Batch { changes: &changes })
                } else {
                    device.execute(command::Rename { from: &from, to: &to })
                };
                match done {
                    Ok(()) | Err(Error::NotFound { .. } | Error::Exists { .. }) => {}
                    Err(e) => panic!("seed {seed}: {e}"),
                }
                turn < 150 && !stop.load(Ordering::Acquire)
            };
            beside(&device, writer, |_| ());
            let held = |device: &Device| {
                let all = names(device);
                let mut found: Vec<u8> = all.iter().map(|n| read_array(device, n).unwrap().data[0]).collect();
                found.sort_unstable();
                (all, found)
            };
            let (all, found) = held(&device);
            assert_eq!(found, [1, 2, 3], "seed {seed}: {all:?}");
            device.close().unwrap();
            let survived = Arc::new(FaultMedia::with_bytes(media.after_kill()));
            let again = open(survived, Mode::Read, &store_options(seed + 1, 0)).unwrap();
            assert_eq!(held(&again), (all, found), "seed {seed}");
        }
    });
}

/// Checks that the store's numbers add up over its arrays and segments.
fn check_numbers(device: &Device, context: &dyn Fn() -> String) {
    let stat: BTreeMap<&str, u64> = device.execute(command::Stat).unwrap().into_iter().collect();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let all = names(device);
    for name in &all {
        let space = open_space(device, name).unwrap().id;
        let own: BTreeMap<&str, u64> = device.execute(command::StatSpace { space }).unwrap().into_iter().collect();
        assert_eq!(own["bytes_stored"], own["pages_live"] * stat["page_bytes"], "{name}, {}", context());
        assert!(own["runs"] <= own["pages_live"], "{name}, {}", context());
        own.into_iter().for_each(|(key, n)| *sums.entry(key).or_default() += n);
    }
    let sum = |key: &str| sums.get(key).copied().unwrap_or(0);
    assert_eq!(stat["arrays"], all.len() as u64, "{}", context());
    assert_eq!(stat["pages_live"], sum("pages_live"), "{}", context());
    assert_eq!(stat["bytes_live"], sum("bytes_stored"), "{}", context());
    assert_eq!(stat["bytes_gathered"], sum("bytes_gathered"), "{}", context());
    let parts = ["segments_free", "segments_waiting", "segments_metadata", "segments_bad"];
    let parts: u64 = parts.iter().map(|key| stat[key]).sum();
    assert!(parts <= stat["segments"], "{stat:?}, {}", context());
    let pages_a_segment = stat["segment_bytes"] / stat["page_bytes"];
    let room = (stat["segments"] - parts) * pages_a_segment;
    assert!(stat["pages_live"] + stat["pages_garbage"] <= room, "{stat:?}, {}", context());
    assert!(stat["erases_min"] <= stat["erases_max"] && stat["erases_max"] <= stat["erases_total"], "{stat:?}");
}

#[test]
fn numbers_of_a_store_add_up_after_every_command() {
    for seed in 0..rounds(40, 400) {
        let rng = &mut Rng::with_seed(seed);
        let taste = Taste { array_bytes: 20_000, ..Taste::SMALL };
        let media = Arc::new(FaultMedia::default());
        let buffer = [0, 3_000, 64 << 20][seed as usize % 3];
        let mut device = open(media.clone(), Mode::Append, &store_options(seed, buffer)).unwrap();
        let mut model = Model::new();
        let mut written = 0;
        for step in 0..80u64 {
            let op = draw(rng.u64(..), &model, &taste);
            let context = || format!("seed {seed}, step {step}, {op:?}");
            if let Op::Reopen = op {
                device.close().unwrap();
                device = open(media.clone(), Mode::ReadWrite, &store_options(seed + step, buffer)).unwrap();
                written = 0;
            } else {
                op.run(&device).unwrap_or_else(|e| panic!("{e}, {}", context()));
                op.tell(&mut model);
            }
            check_numbers(&device, &context);
            let now = number(&device, "bytes_written");
            assert!(now >= written, "{}", context());
            written = now;
        }
        assert_holds(&device, &model, &|| format!("seed {seed}"));
    }
}

/// Writers of one row each, beside one thread that resizes and clears the array: cleared elements never come back.
#[test]
fn rows_beside_resizes_never_go_back_in_time() {
    const ROWS: u64 = THREADS as u64;
    within(120, "resizes", || {
        for seed in 0..rounds(30, 300) {
            let media = Arc::new(FaultMedia::default());
            let buffer = [0, 2_000, 64 << 20][seed as usize % 3];
            let device = open(media.clone(), Mode::Append, &store_options(seed, buffer)).unwrap();
            create(&device, "rows", &[ROWS, 20], [None, Some("lz4")][seed as usize % 2]);
            let space = open_space(&device, "rows").unwrap().id;
            let seen: Vec<AtomicU32> = (0..THREADS).map(|_| AtomicU32::new(0)).collect();
            let resized = |to: &[u64]| device.execute(command::Resize { space, shape: to }).unwrap();
            let writer = |i: usize, turn: u32, rng: &mut Rng| {
                let row = Part::boxed(&[i as u64, 0], &[1, 20]);
                if i == 0 {
                    // This one changes shapes and clears boxes instead.
                    match rng.u8(..3) {
                        0 => resized(&[rng.u64(1..=ROWS), 20]),
                        1 => resized(&[ROWS + rng.u64(..9), 20]),
                        _ => {
                            let clear = command::Deallocate { space, start: &[0, 0], count: &[1, 20] };
                            device.execute(clear).unwrap();
                        }
                    }
                    return turn < 150;
                }
                match write(&device, "rows", &row, &turn.to_le_bytes().repeat(20)) {
                    Ok(()) | Err(Error::OutOfRange { .. } | Error::Invalid(_)) => {}
                    Err(e) => panic!("seed {seed}: {e}"),
                }
                match read(&device, "rows", &row) {
                    Ok(bytes) => {
                        let value = u32::from_le_bytes(bytes[..4].try_into().unwrap());
                        assert!(bytes.chunks_exact(4).all(|w| w == value.to_le_bytes()), "seed {seed}: in parts");
                        let last = seen[i].load(Ordering::Acquire);
                        assert!(value == 0 || value >= last && value <= turn, "seed {seed}: {value} after {last}");
                        seen[i].store(last.max(value), Ordering::Release);
                    }
                    Err(Error::OutOfRange { .. } | Error::Invalid(_)) => {}
                    Err(e) => panic!("seed {seed}: {e}"),
                }
                turn < 150
            };
            beside(&device, writer, |_| ());
            resized(&[ROWS, 20]);
            for i in 1..THREADS {
                let row = Part::boxed(&[i as u64, 0], &[1, 20]);
                let value = read(&device, "rows", &row).unwrap()[..4].try_into().map(u32::from_le_bytes).unwrap();
                assert!(value == 0 || value >= seen[i].load(Ordering::Acquire), "seed {seed}: row {i} is {value}");
            }
            assert_sound(&device, &|| format!("seed {seed}"));
            let before = read_array(&device, "rows").unwrap().data;
            device.close().unwrap();
            let survived = Arc::new(FaultMedia::with_bytes(media.after_kill()));
            let again = open(survived, Mode::Read, &store_options(seed + 1, 0)).unwrap();
            assert_eq!(read_array(&again, "rows").unwrap().data, before, "seed {seed}");
        }
    });
}
