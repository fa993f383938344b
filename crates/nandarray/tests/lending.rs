//! Promise: bytes that are lent in place are the elements in the buffer's order; elements that do not lie so on the
//! medium are not lent.
//!
//! On a mapped file, which alone shows bytes in place: arrays of one dimension that were written in order, boxes within
//! blocks of two dimensions, and everything that stands in the way. That pages are prefetched first is in cold.rs.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::*;
use fastrand::Rng;
use nandarray::{Axis, Device, FileAccess, FileMedia, Geometry, Mode};

const ELEMENTS: u64 = 10_000;
const BLOCK: u64 = 2048;

fn store(folder: &Path) -> Device {
    let media = FileMedia::open(&folder.join("a"), FileAccess::Create, true).unwrap();
    open(Arc::new(media), Mode::Append, &options(Geometry::FILE, 1)).unwrap()
}

fn create(device: &Device, name: &str, shape: &[u64], block: &[u64], compression: Option<&'static str>) {
    let (name, shape, block) = (name.to_owned(), shape.to_vec(), Some(block.to_vec()));
    Op::Create { name, shape, item: 4, block, compression, key: false, fill: 0 }.run(device).unwrap();
}

fn write_noise(device: &Device, name: &str, part: Part, salt: u64) {
    Op::Write { name: name.to_owned(), part, salt }.run(device).unwrap();
}

/// Borrows a part for a buffer with these strides; returns the bytes, `None` if they are not lent.
fn lent_at(device: &Device, name: &str, part: &Part, strides: &[isize]) -> Option<Vec<u8>> {
    let space = open_space(device, name).unwrap();
    let dimensions = space.peek().record.shape().len();
    let mut found = None;
    device
        .compound(false, |compound| {
            part.target(dimensions, strides, |target| {
                compound.lend(space.id, target, &mut |bytes| assert!(found.replace(bytes.to_vec()).is_none()))
            })
        })
        .unwrap()
        .unwrap();
    found
}

/// Whether a part is lent, in row-major order; panics if other bytes are lent than a read returns.
fn is_lent(device: &Device, name: &str, part: &Part) -> bool {
    let dimensions = open_space(device, name).unwrap().peek().record.shape().len();
    let found = lent_at(device, name, part, &strides(&part.count(dimensions), 4));
    let Some(bytes) = found else { return false };
    assert!(bytes == read(device, name, part).unwrap(), "{part:?} of {name:?}");
    true
}

#[test]
fn an_array_that_was_written_in_order_is_lent_across_its_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let device = store(folder.path());
    create(&device, "a", &[ELEMENTS], &[BLOCK], None);
    write_noise(&device, "a", Part::all(&[ELEMENTS]), 2);
    device.execute(nandarray::command::Flush).unwrap();
    let rng = &mut Rng::with_seed(1);
    for (start, count) in (0..40)
        .map(|_| rng.u64(..ELEMENTS))
        .map(|start| (start, 1 + start % (ELEMENTS - start)))
        .chain([(0, ELEMENTS), (0, 1), (1025, 3), (BLOCK - 1, BLOCK + 2), (9999, 1)])
    {
        assert!(is_lent(&device, "a", &Part::boxed(&[start], &[count])), "{count} elements from {start}");
    }
    let counted = number(&device, "bytes_read");
    is_lent(&device, "a", &Part::boxed(&[5], &[100]));
    assert_eq!(number(&device, "bytes_read"), counted + 2 * 400, "a read and a lending");
}

#[test]
fn elements_in_another_order_are_not_lent() {
    let folder = tempfile::tempdir().unwrap();
    let device = store(folder.path());
    create(&device, "a", &[ELEMENTS], &[BLOCK], None);
    write_noise(&device, "a", Part::all(&[ELEMENTS]), 2);
    device.execute(nandarray::command::Flush).unwrap();
    let stepped = Part::Box { start: vec![0], step: vec![2], count: vec![50], view: None };
    assert!(!is_lent(&device, "a", &stepped));
    assert!(!is_lent(&device, "a", &Part::Outer(vec![Axis::List(vec![3, 4, 9])])));
    assert!(!is_lent(&device, "a", &Part::boxed(&[5], &[0])), "nothing");
    for count in [10, 3 * BLOCK] {
        let part = Part::boxed(&[5], &[count]);
        assert!(lent_at(&device, "a", &part, &[4]).is_some());
        assert!(lent_at(&device, "a", &part, &[-4]).is_none(), "backwards");
        assert!(lent_at(&device, "a", &part, &[8]).is_none(), "with gaps");
    }
    // The second block moves behind the others.
    write_noise(&device, "a", Part::boxed(&[BLOCK], &[BLOCK]), 3);
    device.execute(nandarray::command::Flush).unwrap();
    assert!(is_lent(&device, "a", &Part::boxed(&[BLOCK + 9], &[BLOCK - 9])));
    for (start, count) in [(0, BLOCK + 1), (BLOCK, BLOCK + 1), (BLOCK + 100, 3 * BLOCK), (0, ELEMENTS)] {
        assert!(!is_lent(&device, "a", &Part::boxed(&[start], &[count])), "{count} elements from {start}");
    }
}

#[test]
fn boxes_are_lent_where_they_are_contiguous_in_a_block() {
    let folder = tempfile::tempdir().unwrap();
    let device = store(folder.path());
    create(&device, "a", &[128, 128], &[64, 64], None);
    write_noise(&device, "a", Part::all(&[128, 128]), 2);
    device.execute(nandarray::command::Flush).unwrap();
    for (start, count) in [([70, 3], [1, 50]), ([70, 64], [20, 64]), ([0, 0], [64, 64]), ([5, 5], [1, 1])] {
        assert!(is_lent(&device, "a", &Part::boxed(&start, &count)), "{count:?} from {start:?}");
    }
    for (start, count) in [([70, 3], [2, 50]), ([70, 30], [1, 64]), ([60, 0], [8, 64]), ([0, 0], [128, 128])] {
        assert!(!is_lent(&device, "a", &Part::boxed(&start, &count)), "{count:?} from {start:?}");
    }
}

#[test]
fn elements_that_are_not_plain_bytes_on_the_medium_are_not_lent() {
    let folder = tempfile::tempdir().unwrap();
    let device = store(folder.path());
    for (name, compression) in [("a", None), ("coded", Some("lz4"))] {
        create(&device, name, &[ELEMENTS], &[BLOCK], compression);
        write_noise(&device, name, Part::boxed(&[0], &[2 * BLOCK]), 1);
        device.execute(nandarray::command::Flush).unwrap();
        assert_eq!(is_lent(&device, name, &Part::boxed(&[0], &[2 * BLOCK])), compression.is_none());
        assert!(!is_lent(&device, name, &Part::boxed(&[0], &[2 * BLOCK + 1])), "never written");
        assert!(!is_lent(&device, name, &Part::boxed(&[3 * BLOCK], &[9])), "never written");
    }
    write_noise(&device, "a", Part::boxed(&[100], &[20]), 2);
    assert!(number(&device, "bytes_gathered") > 0);
    assert!(!is_lent(&device, "a", &Part::boxed(&[110], &[5])), "in the write buffer");
}

/// A program may read an array in place for long: snapshots wait for it, and those who read other arrays do not.
#[test]
fn a_snapshot_that_waits_for_a_lent_array_keeps_nobody_from_reading() {
    let folder = tempfile::tempdir().unwrap();
    let device = &store(folder.path());
    for name in ["a", "b"] {
        create(device, name, &[ELEMENTS], &[BLOCK], None);
        write_noise(device, name, Part::all(&[ELEMENTS]), 2);
    }
    let snapshots = [Op::Snapshot("s".into()), Op::DeleteSnapshot("s".into())];
    device.execute(nandarray::command::Flush).unwrap();
    let space = open_space(device, "a").unwrap();
    for op in &snapshots {
        std::thread::scope(|s| {
            let mut waits = |_: &[u8]| {
                s.spawn(|| op.run(device).unwrap());
                std::thread::sleep(std::time::Duration::from_millis(50));
                let (done, wait) = std::sync::mpsc::channel();
                s.spawn(move || done.send(read(device, "b", &Part::all(&[ELEMENTS])).unwrap().len()).unwrap());
                let found = wait.recv_timeout(std::time::Duration::from_secs(20));
                assert!(found.is_ok(), "{op:?} keeps others from reading");
            };
            let lends = |compound: &nandarray::Compound<'_>| {
                Part::all(&[ELEMENTS]).target(1, &[4], |target| compound.lend(space.id, target, &mut waits))
            };
            device.compound(false, lends).unwrap().unwrap();
        });
    }
}
