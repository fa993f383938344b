//! Promise: an array that is written in slabs, which end anywhere within building blocks and access units, is read back
//! whole; each access unit is written about once; and compaction brings the pages of every block together.
//!
//! On a mapped file, whose fragmented blocks are read directly from their pages, with elements that straddle pages,
//! below and above the size from which reads are assembled by rows; and on memory, where pages are first copied to a
//! scratch block. Random commands are in stl_model.rs, losses of power in power_loss.rs.

mod common;

use std::sync::Arc;

use common::*;
use fastrand::Rng;
use nandarray::{Device, FileAccess, FileMedia, Geometry, Media, MemoryMedia, Mode, Options};

const SHAPE: [u64; 3] = [96, 130, 112];

fn store(media: Arc<dyn Media>) -> Device {
    open(media, Mode::Append, &Options { threads: Some(2), ..options(Geometry::FILE, 3) }).unwrap()
}

/// Creates an array, compressed if `codec`, and writes it in slabs of `slab` elements along `axis`; slabs of even size
/// are appended.
fn write_slabs(device: &Device, model: &mut Model, name: &str, (item, axis, slab): (usize, usize, u64), codec: bool) {
    let appends = slab % 2 == 0;
    let mut shape = SHAPE.to_vec();
    if appends {
        shape[axis] = 0;
    }
    let compression = codec.then_some("lz4+shuffle");
    let name = name.to_owned();
    let mut ops = vec![Op::Create { name: name.clone(), shape, item, block: None, compression, key: false, fill: 7 }];
    for (salt, first) in (0..SHAPE[axis]).step_by(slab as usize).enumerate() {
        let more = slab.min(SHAPE[axis] - first);
        let (name, salt) = (name.clone(), 4 * salt as u64 + 2);
        ops.push(if appends {
            Op::Append { name, axis, more, salt }
        } else {
            let (mut start, mut count) = (vec![0; 3], SHAPE.to_vec());
            (start[axis], count[axis]) = (first, more);
            Op::Write { name, part: Part::boxed(&start, &count), salt }
        });
    }
    for op in ops {
        op.run(device).unwrap();
        op.tell(model);
    }
}

/// Whether the pages of every block of the array form few extents: at most four, or extents of 128 KiB or more on
/// average.
fn lies_together(device: &Device, name: &str) -> bool {
    let space = open_space(device, name).unwrap();
    let inner = space.read().unwrap();
    let mut together = true;
    inner.index().for_each(&mut |_, map| {
        let runs: Vec<_> = map.runs().collect();
        let gaps = runs.windows(2).filter(|w| w[0].ppa.0 + u64::from(w[0].count) != w[1].ppa.0).count() as u64;
        together &= gaps <= 3 || map.pages() * 4096 / (gaps + 1) >= 128 << 10;
    });
    together
}

fn compare(device: &Device, model: &Model, rng: &mut Rng, context: &str) {
    assert_holds(device, model, &|| context.to_owned());
    for (name, a) in model {
        let mut parts: Vec<Part> = (0..30).map(|_| draw_part(rng, &a.shape, false)).collect();
        for axis in 0..3 {
            let (mut start, mut count) = (vec![0; 3], a.shape.clone());
            (start[axis], count[axis]) = (rng.u64(..a.shape[axis]), 1);
            parts.push(Part::boxed(&start, &count));
        }
        for part in parts {
            let elements = part.elements(&a.shape);
            let expected: Vec<u8> = elements.iter().flat_map(|&e| &a.data[e * a.item..][..a.item]).copied().collect();
            assert!(read(device, name, &part).unwrap() == expected, "{name:?} {part:?} {context}");
        }
    }
}

/// Writes arrays in slabs of several sizes along an axis, plain and compressed, with elements of 4 and of 12 bytes
/// (which straddle pages), and compares what is read.
fn slabs_across(axis: usize, mut make: impl FnMut() -> Arc<dyn Media>) {
    let rng = &mut Rng::with_seed(axis as u64);
    let device = store(make());
    let mut model = Model::new();
    for (name, kind, codec) in [
        ("one", (4, axis, 1), false),
        ("five", (12, axis, 5), false),
        ("sixteen", (4, axis, 16), false),
        ("packed", (4, axis, 30), true),
    ] {
        write_slabs(&device, &mut model, name, kind, codec);
    }
    compare(&device, &model, rng, "as written");
    Op::Flush.run(&device).unwrap();
    compare(&device, &model, rng, "flushed");
    assert!(!lies_together(&device, "one") || axis > 0, "slabs of one across axis 0 lie apart");
    Op::Compact.run(&device).unwrap();
    compare(&device, &model, rng, "compacted");
    assert_sound(&device, &|| "compacted".to_owned());
    for name in model.keys() {
        assert!(lies_together(&device, name), "{name}");
    }
    device.close().unwrap();
    drop(device);
    compare(&store(make()), &model, rng, "opened again");
}

#[test]
fn slabs_are_read_from_where_they_lie() {
    for axis in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.nand");
        slabs_across(axis, || Arc::new(FileMedia::open(&path, FileAccess::Create, true).unwrap()));
    }
}

#[test]
fn slabs_are_brought_together_where_pages_cannot_be_seen() {
    let media: Arc<MemoryMedia> = Arc::default();
    slabs_across(1, || media.clone());
}

#[test]
fn slabs_that_end_within_pages_write_each_page_once() {
    for axis in [1, 2] {
        let device = store(Arc::new(MemoryMedia::default()));
        write_slabs(&device, &mut Model::new(), "a", (4, axis, 5), false);
        Op::Flush.run(&device).unwrap();
        let pages = SHAPE.iter().product::<u64>() * 4 / 4096;
        let appended = number(&device, "pages_appended");
        // The first slab is followed by nothing yet; blocks at the edges are padded.
        assert!(appended < pages * 3 / 2, "{appended} pages for an array of {pages}, slabs across axis {axis}");
    }
}

#[test]
fn what_waits_to_be_told_is_bounded() {
    let device = store(Arc::new(MemoryMedia::default()));
    let create = |name: &str, shape: Vec<u64>, block: Vec<u64>| Op::Create {
        name: name.to_owned(),
        shape,
        item: 4096,
        block: Some(block),
        compression: None,
        key: false,
        fill: 0,
    };
    create("small", vec![4], vec![4]).run(&device).unwrap();
    create("large", vec![70_000], vec![1]).run(&device).unwrap();
    Op::Clear { name: "small".to_owned(), start: vec![0], count: vec![4] }.run(&device).unwrap();
    let before = number(&device, "journal_bytes");
    // Small writes stay in the write buffer all the time, and many blocks change.
    let piece = Op::Create {
        name: "bytes".to_owned(),
        shape: vec![9],
        item: 1,
        block: None,
        compression: None,
        key: false,
        fill: 0,
    };
    piece.run(&device).unwrap();
    write(&device, "bytes", &Part::boxed(&[0], &[3]), &[1; 3]).unwrap();
    assert!(device.buffered_bytes() > 0);
    for first in (0..70_000).step_by(10_000) {
        let bytes = vec![1; 10_000 * 4096];
        write(&device, "large", &Part::boxed(&[first], &[10_000]), &bytes).unwrap();
    }
    assert!(number(&device, "journal_bytes") > before + 70_000, "they were told without being asked for");
}
