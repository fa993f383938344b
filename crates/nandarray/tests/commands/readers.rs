//! Readers beside a writer: each sees the store as it was when the reader opened it, however the writer goes on.
//!
//! Readers open the file at any moment between two commands of the writer, who overwrites, deletes, reclaims under a
//! small capacity and compacts. A store that is full because its dead pages cannot be reused while a reader may read
//! them refuses data and loses nothing; when the readers have gone, the room comes back.

use std::path::Path;

use fastrand::Rng;
use nandarray::{Device, Geometry, Mode, Options, command};

use crate::common::*;

/// A reader, and the state in which it found the store.
struct Reader {
    device: Device,
    state: usize,
}

fn store_options(seed: u64, turn: u64) -> Options {
    Options {
        capacity_bytes: seed.is_multiple_of(2).then(|| Geometry::TINY.medium_bytes(18)),
        exact_geometry: true,
        write_buffer_bytes: [0, 2000, 64 << 20][seed as usize % 3],
        map: seed % 4 < 2,
        ..options(Geometry::TINY, seed * 1000 + turn)
    }
}

/// Opens a reader; panics unless it sees one of the states from `committed` on.
fn look(path: &Path, states: &[Model], committed: usize, options: &Options, context: &dyn Fn() -> String) -> Reader {
    let device = Device::open_file(path, Mode::Read, options).unwrap_or_else(|e| panic!("{e}; {}", context()));
    let found = read_all(&device).unwrap_or_else(|e| panic!("{e}; {}", context()));
    let state = (committed..states.len()).rev().find(|&i| states[i] == found);
    let state = state.unwrap_or_else(|| {
        let first = difference(&found, &states[committed]);
        panic!("none of the states {committed} to {}; from the first: {first:?}; {}", states.len() - 1, context())
    });
    assert_sound(&device, context);
    Reader { device, state }
}

/// Lets a writer and up to three readers go on side by side; returns the number of commands that found no room.
fn side_by_side(seed: u64, steps: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.nand");
    let writer = Device::open_file(&path, Mode::Append, &store_options(seed, 0)).unwrap();
    let mut rng = Rng::with_seed(seed);
    let (mut states, mut committed, mut full) = (vec![Model::new()], 0, 0);
    let mut readers: Vec<Reader> = Vec::new();
    let taste = Taste { array_bytes: 24_000, reopen: false, ..Taste::SNAPSHOTS };
    for step in 0..steps {
        let mut model = states.last().unwrap().clone();
        let op = draw(rng.u64(..), &model, &taste);
        let context = || format!("seed {seed}, step {step}, {} readers, after {op:?}", readers.len());
        let done = op.run(&writer);
        match &done {
            Ok(()) => op.tell(&mut model),
            Err(e) if is_full(e) => full += 1,
            Err(e) => panic!("{e:?}; {}", context()),
        }
        states.push(model);
        if done.is_ok() && (writer.buffered_bytes() == 0 || op.flushes()) {
            committed = states.len() - 1;
        }
        assert_holds(&writer, &states[states.len() - 1], &context);
        for reader in &readers {
            assert_holds(&reader.device, &states[reader.state], &|| format!("a reader's; {}", context()));
        }
        match rng.u8(..6) {
            0 if readers.len() < 3 => {
                let reader = look(&path, &states, committed, &store_options(seed, step + 1), &context);
                readers.push(reader);
            }
            1 if !readers.is_empty() => drop(readers.swap_remove(rng.usize(..readers.len()))),
            _ => {}
        }
    }
    readers.clear();
    let last = states.pop().unwrap();
    let context = || format!("seed {seed}: the readers have gone");
    writer.execute(command::Flush).unwrap_or_else(|e| panic!("{e}; {}", context()));
    let compacted = writer.execute(command::Compact);
    assert!(compacted.as_ref().map_or_else(is_full, |_| true), "{compacted:?}; {}", context());
    assert_holds(&writer, &last, &context);
    writer.close().unwrap();
    drop(writer);
    look(&path, &[last], 0, &store_options(seed, steps + 1), &context);
    full
}

#[test]
fn a_reader_keeps_the_state_that_it_opened_whatever_the_writer_does() {
    let full: u64 = (0..rounds(12, 300)).map(|seed| side_by_side(seed, 60)).sum();
    assert!(full > 0, "no reader has ever been in the way");
}

#[test]
fn room_that_readers_hold_back_comes_back_when_they_have_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.nand");
    let tiny = |entropy| Options {
        capacity_bytes: Some(Geometry::TINY.medium_bytes(40)),
        exact_geometry: true,
        ..options(Geometry::TINY, entropy)
    };
    let writer = Device::open_file(&path, Mode::Append, &tiny(1)).unwrap();
    let (shape, name) = (vec![150_000], "a".to_owned());
    let create = Op::bytes(name, &shape);
    let mut model = Model::new();
    let fill = |salt| Op::Write { name: "a".into(), part: Part::all(&shape), salt };
    for op in [create, fill(2), Op::Flush] {
        op.run(&writer).unwrap();
        op.tell(&mut model);
    }
    let seen = model.clone();
    let reader = Device::open_file(&path, Mode::Read, &tiny(2)).unwrap();
    // Each overwrites everything: without a reader there is always room for one more.
    let refused = (3..40).find(|&salt| match fill(salt * 4 + 2).run(&writer) {
        Ok(()) => {
            fill(salt * 4 + 2).tell(&mut model);
            false
        }
        Err(e) => {
            assert!(is_full(&e), "{e:?}");
            true
        }
    });
    assert!(refused.is_some_and(|salt| salt > 3), "the reader is in the way at {refused:?}");
    assert_holds(&writer, &model, &String::new);
    assert_holds(&reader, &seen, &|| "the reader's".to_owned());
    drop(reader);
    for salt in 40..60 {
        let op = fill(salt * 4 + 2);
        op.run(&writer).unwrap_or_else(|e| panic!("{e} without readers, salt {salt}"));
        op.tell(&mut model);
    }
    assert_holds(&writer, &model, &String::new);
    assert_sound(&writer, &String::new);
}
