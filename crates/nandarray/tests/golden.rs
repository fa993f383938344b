//! Promise: a store of any format version so far is read by every later version, byte for byte.
//!
//! `golden/v1.nand` to `golden/v4.nand` were written once and are never written again; their expected content is
//! computed here. A new format version gets another image, written by [`write_golden`] (`cargo test -p nandarray --test
//! golden -- --ignored`).

mod common;

use std::path::Path;
use std::sync::Arc;

use common::*;
use nandarray::file_format::{FORMAT_VERSION, Layout, read_slots};
use nandarray::{Axis, Device, Geometry, Media, MemoryMedia, Mode, NewSpace, command};

/// A geometry of small segments, so that the image is small.
const GEOMETRY: Geometry =
    Geometry { page_bytes: 512, channels: 2, banks: 2, pages_per_block: 3, layout: Layout::NEWEST };

/// All format versions; a store has the last one while it has a snapshot.
const VERSIONS: [u32; 4] = [1, 2, 3, FORMAT_VERSION];

fn path(version: u32) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}.nand"))
}

fn golden(version: u32) -> Vec<u8> {
    std::fs::read(path(version)).expect("the golden images are part of the repository")
}

/// Returns the format version in the newer of a store's superblocks.
fn version_of(media: &MemoryMedia) -> u32 {
    read_slots(media, "golden").expect("a store")[0].1.version
}

struct New {
    name: &'static str,
    shape: &'static [u64],
    item: u32,
    dtype: &'static str,
    block: Option<&'static [u64]>,
    compression: Option<&'static str>,
    key: bool,
    fill: u8,
}

const ARRAYS: &[New] = &[
    New { name: "bytes", shape: &[1000], item: 1, dtype: "|u1", block: None, compression: None, key: false, fill: 0 },
    New {
        name: "matrix",
        shape: &[40, 50],
        item: 4,
        dtype: "<f4",
        block: None,
        compression: None,
        key: false,
        fill: 0,
    },
    New {
        name: "cube",
        shape: &[9, 10, 11],
        item: 2,
        dtype: "<i2",
        block: Some(&[4, 4, 4]),
        compression: None,
        key: false,
        fill: 7,
    },
    New {
        name: "group/lz4",
        shape: &[30, 40],
        item: 8,
        dtype: "<f8",
        block: None,
        compression: Some("lz4+shuffle"),
        key: false,
        fill: 0,
    },
    New {
        name: "group/zstd",
        shape: &[17, 33],
        item: 4,
        dtype: "<u4",
        block: None,
        compression: Some("zstd:3+bitshuffle"),
        key: false,
        fill: 0,
    },
    New {
        name: "group/secret",
        shape: &[20, 30],
        item: 4,
        dtype: "<i4",
        block: None,
        compression: None,
        key: true,
        fill: 1,
    },
    New {
        name: "group/small secret",
        shape: &[500],
        item: 2,
        dtype: "<u2",
        block: None,
        compression: Some("lz4"),
        key: true,
        fill: 0,
    },
    New {
        name: "odd",
        shape: &[13, 17],
        item: 17,
        dtype: "|V17",
        block: None,
        compression: None,
        key: false,
        fill: 0x41,
    },
    New { name: "point", shape: &[], item: 8, dtype: "<i8", block: None, compression: None, key: false, fill: 0 },
    New {
        name: "never written",
        shape: &[1 << 40, 1 << 40],
        item: 1,
        dtype: "|i1",
        block: None,
        compression: None,
        key: false,
        fill: 9,
    },
    New { name: "empty", shape: &[0, 5], item: 4, dtype: "<f4", block: None, compression: None, key: false, fill: 0 },
];

fn salt(name: &str) -> u64 {
    // Never 0; of two odd ones one compresses: see `content`.
    name.bytes().fold(5u64, |s, b| s.wrapping_mul(31) + u64::from(b)) | 1
}

/// Returns the changes that follow the first write of all arrays; some are made before and some after the last
/// checkpoint.
fn changes() -> Vec<Op> {
    let name = str::to_owned;
    vec![
        Op::Write { name: name("matrix"), part: Part::boxed(&[3, 4], &[20, 30]), salt: 100 },
        Op::Resize { name: name("cube"), shape: vec![7, 13, 11] },
        Op::Write { name: name("group/lz4"), part: Part::boxed(&[10, 10], &[5, 5]), salt: 102 },
        Op::Clear { name: name("bytes"), start: vec![512], count: vec![488] },
        Op::Rename { from: name("odd"), to: name("very odd") },
        Op::Compact,
        Op::Write {
            name: name("matrix"),
            part: Part::Box { start: vec![1, 1], step: vec![2, 3], count: vec![9, 30], view: Some(vec![20, 100]) },
            salt: 104,
        },
        Op::Write {
            name: name("cube"),
            part: Part::Outer(vec![
                Axis::List(vec![6, 0]),
                Axis::Range { start: 1, step: 4, count: 3 },
                Axis::Range { start: 0, step: 1, count: 11 },
            ]),
            salt: 106,
        },
        Op::Attrs { name: name("matrix"), attrs: "{\"unit\":\"K\",\"of\":[1,2.5,null,\"é\"]}".to_owned() },
        Op::Write { name: name("group/secret"), part: Part::boxed(&[0, 0], &[3, 30]), salt: 108 },
        Op::Write { name: name("point"), part: Part::all(&[]), salt: 110 },
    ]
}

/// Commands on snapshots in the image of the newest version, before and after the changes.
fn snapshots_before() -> Vec<Op> {
    vec![Op::Snapshot("first".to_owned()), Op::Snapshot("no-more".to_owned()), Op::Compact]
}

fn snapshots_after() -> Vec<Op> {
    let delete = Op::Delete { name: "group/zstd".to_owned() };
    vec![Op::Snapshot("Last_1.0".to_owned()), Op::DeleteSnapshot("no-more".to_owned()), delete]
}

fn expected(version: u32) -> Model {
    let mut model = Model::new();
    for new in ARRAYS.iter().filter(|n| n.name != "never written") {
        let op = Op::Create {
            name: new.name.to_owned(),
            shape: new.shape.to_vec(),
            item: new.item as usize,
            block: None,
            compression: None,
            key: false,
            fill: new.fill,
        };
        op.tell(&mut model);
        Op::Write { name: new.name.to_owned(), part: Part::all(new.shape), salt: salt(new.name) }.tell(&mut model);
    }
    let (before, after) = if version < 4 { (vec![], vec![]) } else { (snapshots_before(), snapshots_after()) };
    before.iter().chain(&changes()).chain(&after).for_each(|op| op.tell(&mut model));
    model
}

fn make(media: Arc<dyn Media>) {
    let device = open(media, Mode::Exclusive, &options(GEOMETRY, 20)).unwrap();
    for new in ARRAYS {
        let fill = vec![new.fill; new.item as usize];
        device
            .execute(command::Create(NewSpace {
                name: new.name,
                shape: new.shape,
                item_bytes: new.item,
                dtype: new.dtype,
                block: new.block,
                compression: new.compression,
                key: new.key.then_some(&KEY[..]),
                fill: Some(&fill),
                attrs: "{}",
            }))
            .unwrap();
        if new.name != "never written" {
            Op::Write { name: new.name.to_owned(), part: Part::all(new.shape), salt: salt(new.name) }
                .run(&device)
                .unwrap();
        }
    }
    snapshots_before().iter().chain(&changes()).chain(&snapshots_after()).for_each(|op| op.run(&device).unwrap());
    device.close().unwrap();
}

fn judge(device: &Device, version: u32) {
    let expected = expected(version);
    let mut all: Vec<String> = names(device).into_iter().chain(snapshots::names(device)).collect();
    all.retain(|n| !n.ends_with("never written"));
    all.sort_unstable();
    let marks = |name: &&String| snapshots::parts(name).is_none_or(|(_, name)| !name.is_empty());
    assert_eq!(all, expected.keys().filter(marks).cloned().collect::<Vec<_>>());
    for (name, array) in expected.iter().filter(|(name, _)| marks(name)) {
        let found = Model::from([(name.clone(), read_array(device, name).unwrap())]);
        assert_eq!(difference(&found, &Model::from([(name.clone(), array.clone())])), None);
    }
    let far = Part::boxed(&[1 << 39, (1 << 40) - 3], &[2, 3]);
    assert_eq!(read(device, "never written", &far).unwrap(), [9; 6]);
    let taken = device.execute(command::Snapshots).unwrap();
    let taken: Vec<(&str, u64, u64)> = taken.iter().map(|s| (s.name.as_str(), s.time, s.spaces)).collect();
    let count = ARRAYS.len() as u64;
    assert_eq!(taken, if version < 4 { vec![] } else { vec![("first", 1, count), ("Last_1.0", 1, count)] });
    for new in ARRAYS.iter().filter(|new| version < 4 || new.name != "group/zstd") {
        let name = if new.name == "odd" { "very odd" } else { new.name };
        let record = device.describe(name).unwrap().peek().record.clone();
        assert_eq!((record.dtype.as_str(), record.compression.as_deref()), (new.dtype, new.compression));
        assert_eq!((record.encryption.is_some(), record.scalar), (new.key, new.shape.is_empty()));
    }
    assert_sound(device, &|| "golden".to_owned());
}

#[test]
fn every_version_is_read_byte_for_byte() {
    for version in VERSIONS {
        let media = Arc::new(MemoryMedia::with_bytes(golden(version)));
        assert_eq!(version_of(&media), version);
        judge(&open(media.clone(), Mode::Read, &options(Geometry::FILE, 1)).unwrap(), version);
        assert!(media.to_bytes() == golden(version), "reading changes nothing");
    }
}

#[test]
fn every_version_is_written_on_and_keeps_its_version() {
    let whole = |name: &str, shape: &[u64]| Op::Write { name: name.to_owned(), part: Part::all(shape), salt: 9 };
    let writes = || {
        // Every compressed array, old frames beside new ones; and an array that is new.
        let part = Op::Write { name: "group/lz4".to_owned(), part: Part::boxed(&[2, 3], &[20, 5]), salt: 7 };
        let new = Op::Create {
            name: "new".to_owned(),
            shape: vec![60, 70],
            item: 4,
            block: None,
            compression: Some("lz4+shuffle"),
            key: false,
            fill: 0,
        };
        vec![whole("matrix", &[40, 50]), part, new, whole("new", &[60, 70]), Op::Compact]
    };
    let of_version = |version| {
        let zstd = whole("group/zstd", &[17, 33]);
        writes().into_iter().chain((version < 4).then_some(zstd)).collect::<Vec<_>>()
    };
    for version in VERSIONS {
        let writes = || of_version(version);
        let media = Arc::new(MemoryMedia::with_bytes(golden(version)));
        for entropy in 0..3 {
            let device = open(media.clone(), Mode::ReadWrite, &options(Geometry::FILE, entropy)).unwrap();
            let geometry = Geometry { layout: Layout::of_format(version), ..GEOMETRY };
            assert_eq!(device.geometry(), geometry, "a store keeps the geometry that it was made with");
            let again = |op: &Op| entropy == 0 || !matches!(op, Op::Create { .. });
            writes().iter().filter(|op| again(op)).for_each(|op| op.run(&device).unwrap());
            device.close().unwrap();
            drop(device);
            assert_eq!(version_of(&media), version, "a store keeps the version that it was made with");
            let device = open(media.clone(), Mode::Read, &options(Geometry::FILE, 9)).unwrap();
            let mut model = expected(version);
            writes().iter().for_each(|op| op.tell(&mut model));
            let marks = |name: &str| snapshots::parts(name).is_some_and(|(_, name)| name.is_empty());
            for (name, array) in model.iter().filter(|(name, _)| !marks(name)) {
                assert!(read_array(&device, name).unwrap() == *array, "{name}");
            }
        }
    }
}

#[test]
fn one_seed_gives_one_file() {
    let [a, b] = [0, 1].map(|_| {
        let media = Arc::new(MemoryMedia::default());
        make(media.clone());
        media.to_bytes()
    });
    assert!(a == b, "the same commands with the same seed give the same bytes");
    judge(&open(Arc::new(MemoryMedia::with_bytes(a)), Mode::Read, &options(GEOMETRY, 1)).unwrap(), FORMAT_VERSION);
}

/// Writes the image of the newest format version. To be run only before that version is released.
#[test]
#[ignore = "writes the golden image"]
fn write_golden() {
    let media = Arc::new(MemoryMedia::default());
    make(media.clone());
    let bytes = media.to_bytes();
    assert!(bytes.len() < 200_000, "{} bytes", bytes.len());
    std::fs::write(path(FORMAT_VERSION), bytes).unwrap();
}

/// A store is of the version without snapshots again when it has none, so that earlier versions of the engine read it.
#[test]
fn a_store_has_the_newest_version_while_it_has_a_snapshot() {
    let media = Arc::new(MemoryMedia::with_bytes(golden(3)));
    let device = open(media.clone(), Mode::ReadWrite, &options(Geometry::FILE, 1)).unwrap();
    Op::Snapshot("a".to_owned()).run(&device).unwrap();
    assert_eq!(version_of(&media), 4);
    // Both superblocks have it then, and no page dies with the snapshot: the format alone is reason to compact.
    Op::Compact.run(&device).unwrap();
    Op::DeleteSnapshot("a".to_owned()).run(&device).unwrap();
    Op::Compact.run(&device).unwrap();
    device.close().unwrap();
    let versions: Vec<u32> = read_slots(media.as_ref(), "golden").unwrap().iter().map(|slot| slot.1.version).collect();
    assert_eq!(versions, [3, 3]);
    drop(device);
    judge(&open(media, Mode::Read, &options(Geometry::FILE, 1)).unwrap(), 3);
    let device = open(Arc::new(MemoryMedia::with_bytes(golden(2))), Mode::ReadWrite, &options(GEOMETRY, 1)).unwrap();
    let refused = Op::Snapshot("a".to_owned()).run(&device).unwrap_err().to_string();
    assert!(refused.contains("version 3 or later"), "{refused}");
}
