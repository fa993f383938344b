//! Checkpoints with right checksums and content that no writer wrote: directories and indexes in which numbers were
//! replaced.

use std::sync::{Arc, OnceLock};

use fastrand::Rng;
use nandarray::file_format::{Layout, Superblock, crc32c, read_slots};
use nandarray::{Device, Geometry, Media, MemoryMedia, Mode, NewSpace, Options, Source, SpaceRecord, command};

use crate::hostile::{KEY, image};

/// Place of an index in the checkpoint's stream: offset, number of bytes, CRC, number of blocks.
type Blob = (u64, u64, u32, u64);
/// A directory: sequence number, number of the next space, segments (live pages, erase count, whether retired), spaces.
type Directory = (u64, u32, Vec<(u32, u32, bool)>, Vec<(SpaceRecord, Blob)>);

/// The snapshots of a directory: name, time, number of the command, versions of spaces.
type Snapshots = Vec<(String, u64, u64, Vec<(SpaceRecord, Blob)>)>;

/// A geometry of segments so large that the checkpoint can grow within its first one.
const GEOMETRY: Geometry =
    Geometry { page_bytes: 512, channels: 4, banks: 1, pages_per_block: 32, layout: Layout::NEWEST };

/// A store with some arrays in a checkpoint: its bytes, its superblock with slot, its directory, its snapshots and the
/// indexes of both.
struct Base {
    bytes: Vec<u8>,
    slot: usize,
    superblock: Superblock,
    directory: Directory,
    snapshots: Snapshots,
    indexes: Vec<Vec<u8>>,
}

fn base() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let media = Arc::new(MemoryMedia::default());
        let options = Options { geometry: GEOMETRY, threads: Some(1), ..Options::default() };
        let device = Device::open(media.clone(), "base", Mode::Exclusive, &options).unwrap();
        for (name, compression, key) in [("a", None, None), ("b", Some("lz4"), None), ("c", None, Some(&KEY[..]))] {
            let new = NewSpace {
                name,
                shape: &[60, 70],
                item_bytes: 4,
                dtype: "<i4",
                block: Some(&[20, 20]),
                compression,
                key,
                fill: None,
                attrs: "{}",
            };
            let space = device.execute(command::Create(new)).unwrap();
            for part in [60, 33, 47] {
                if (name, part) == ("b", 47) {
                    device.execute(command::TakeSnapshot { name: "s", time: 5 }).unwrap();
                }
                let content: Vec<u8> = (0..60 * 70 * 4u32).map(|i| (i / 7 * part) as u8).collect();
                let (start, step, count, strides) = ([0, 0], [1, 1], [u64::from(part), 70], [280, 4]);
                let target =
                    nandarray::Target::Box { start: &start, step: &step, count: &count, strides: &strides, view: None };
                // SAFETY: the content has every element of the box.
                let source = unsafe { Source::from_raw(content.as_ptr()) };
                device.execute(command::Write { space: space.id, target, source }).unwrap();
            }
        }
        device.execute(command::Compact).unwrap();
        device.close().unwrap();
        drop(device);
        let bytes = media.to_bytes();
        let (slot, superblock) = read_slots(media.as_ref(), "base").unwrap().remove(0);
        let stream = &bytes[GEOMETRY.pages_offset(superblock.checkpoint.first) as usize..];
        let at = superblock.directory_at[0] as usize;
        let directory = &stream[at..at + superblock.directory_bytes as usize];
        let (directory, rest): (Directory, &[u8]) = postcard::take_from_bytes(directory).unwrap();
        let snapshots: Snapshots = postcard::from_bytes(rest).unwrap();
        let index = |blob: &Blob| stream[blob.0 as usize..(blob.0 + blob.1) as usize].to_vec();
        let kept = snapshots.iter().flat_map(|snapshot| &snapshot.3);
        let indexes = directory.3.iter().chain(kept).map(|(_, blob)| index(blob)).collect();
        Base { bytes, slot, superblock, directory, snapshots, indexes }
    })
}

/// Decodes a stored index, which is a list of numbers, without interpreting these.
fn numbers(mut bytes: &[u8]) -> Vec<u64> {
    let mut all = vec![];
    while !bytes.is_empty() {
        let (number, rest) = postcard::take_from_bytes::<u64>(bytes).unwrap();
        all.push(number);
        bytes = rest;
    }
    all
}

fn odd(rng: &mut Rng, there: u64) -> u64 {
    match rng.u8(..6) {
        0 => rng.u64(..4),
        1 => there.wrapping_add(rng.u64(..9)).wrapping_sub(4),
        2 => (1u64 << rng.u32(..64)).wrapping_sub(rng.u64(..2)),
        3 => u64::MAX - rng.u64(..2),
        4 => rng.u64(..1000),
        _ => rng.u64(..) >> rng.u32(..64),
    }
}

fn odd_index(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut numbers = numbers(bytes);
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..numbers.len());
        numbers[at] = odd(rng, numbers[at]);
    }
    numbers.iter().flat_map(|n| postcard::to_stdvec(n).unwrap()).collect()
}

fn odd_record(rng: &mut Rng, record: &mut SpaceRecord) {
    let axis = rng.usize(..2);
    match rng.u8(..8) {
        0 => record.id = odd(rng, record.id.into()) as u32,
        1 => record.shape[axis] = odd(rng, record.shape[axis]),
        2 => record.block[axis] = odd(rng, record.block[axis]),
        3 => record.item_bytes = odd(rng, record.item_bytes.into()) as u32,
        4 => record.scalar = !record.scalar,
        5 => {
            let some = ["lz4", "zstd:3+bitshuffle", "lz4+shuffle", "none", ""];
            record.compression = rng.bool().then(|| some[rng.usize(..some.len())].to_owned());
        }
        6 => record.fill = vec![7; rng.usize(..9)],
        _ => record.shape = vec![odd(rng, 1); rng.usize(..40)],
    }
}

/// Replaces random numbers in indexes and the directory, corrects the checksums, and runs all kinds of commands on the
/// store.
pub(crate) fn odd_checkpoint(seed: u64) {
    let base = base();
    let rng = &mut Rng::with_seed(seed);
    let (mut directory, mut snapshots) = (base.directory.clone(), base.snapshots.clone());
    let mut indexes = base.indexes.clone();
    let live = directory.3.len();
    for _ in 0..rng.usize(1..3) {
        let space = rng.usize(..indexes.len());
        match rng.u8(..9) {
            0 if space < live => odd_record(rng, &mut directory.3[space].0),
            0 => odd_record(rng, &mut snapshots[0].3[space - live].0),
            8 => match rng.u8(..4) {
                0 => snapshots[0].0 = ["", "a/b", "x"][rng.usize(..3)].to_owned(),
                1 => snapshots[0].2 = odd(rng, snapshots[0].2),
                2 => snapshots.push(snapshots[0].clone()),
                _ => snapshots.extend([("t".to_owned(), 0, odd(rng, snapshots[0].2), snapshots[0].3.clone())]),
            },
            1 if !directory.2.is_empty() => {
                let segment = rng.usize(..directory.2.len());
                let (live, erases, bad) = &mut directory.2[segment];
                *live = odd(rng, (*live).into()) as u32 % 129;
                *erases = odd(rng, (*erases).into()) as u32;
                *bad = rng.u8(..4) == 0;
            }
            2 => directory.2.resize(rng.usize(..60), (rng.u32(..2), 5, false)),
            3 => (directory.0, directory.1) = (odd(rng, directory.0), odd(rng, directory.1.into()) as u32),
            _ => indexes[space] = odd_index(rng, &indexes[space].clone()),
        }
    }
    let mut stream = vec![];
    let kept = snapshots.iter_mut().take(1).flat_map(|snapshot| &mut snapshot.3);
    for ((_, blob), index) in directory.3.iter_mut().chain(kept).zip(&indexes) {
        *blob = (stream.len() as u64, index.len() as u64, crc32c(index), blob.3);
        stream.extend(index);
    }
    for later in 1..snapshots.len() {
        snapshots[later].3 = snapshots[0].3.clone();
    }
    if rng.u8(..8) == 0 {
        let blob = &mut directory.3[rng.usize(..live)].1;
        *blob = (odd(rng, blob.0), odd(rng, blob.1), blob.2, odd(rng, blob.3));
    }
    image(&with_directory((&directory, &snapshots), &stream));
}

/// Returns the store's bytes with these indexes and this directory behind them as its checkpoint.
fn with_directory(directory: (&Directory, &Snapshots), indexes: &[u8]) -> Vec<u8> {
    let base = base();
    let written = postcard::to_stdvec(&directory).unwrap();
    let (mut stream, at) = (indexes.to_vec(), indexes.len() as u64);
    stream.extend(&written);
    let superblock = Superblock {
        checkpoint_bytes: stream.len() as u64,
        directory_at: [at; 2],
        directory_bytes: written.len() as u64,
        directory_crc: crc32c(&written),
        ..base.superblock.clone()
    };
    assert!(stream.len() < GEOMETRY.segment_data_bytes() as usize - 32, "the stream fits its first segment");
    let media = MemoryMedia::with_bytes(base.bytes.clone());
    media.write_at(GEOMETRY.pages_offset(superblock.checkpoint.first), &stream).unwrap();
    superblock.write(&media, base.slot).unwrap();
    media.to_bytes()
}

/// Returns the numbers of the store's spaces, and the result of creating another one if the directory says that `next`
/// is the number of the next space.
pub(crate) fn create_with_next_number(next: u32) -> (Vec<u32>, nandarray::Result<u32>) {
    let base = base();
    let mut directory = base.directory.clone();
    directory.1 = next;
    let mut stream = vec![];
    for ((_, blob), index) in directory.3.iter_mut().zip(&base.indexes) {
        blob.0 = stream.len() as u64;
        stream.extend(index);
    }
    let media = Arc::new(MemoryMedia::with_bytes(with_directory((&directory, &vec![]), &stream)));
    let options = Options { geometry: GEOMETRY, threads: Some(1), ..Options::default() };
    let device = Device::open(media, "numbers", Mode::ReadWrite, &options).unwrap();
    let new = NewSpace {
        name: "new",
        shape: &[3],
        item_bytes: 4,
        dtype: "<i4",
        block: None,
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let made = device.execute(command::Create(new)).map(|space| space.id);
    (directory.3.iter().map(|(record, _)| record.id).collect(), made)
}
