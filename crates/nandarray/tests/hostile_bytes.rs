//! Promise: no file, and no NVMe host, makes the engine panic, hang or ask for memory that its bytes do not justify.
//!
//! The same entrances as the fuzz targets of `fuzz/`, with seeded mutations, so that the stable toolchain runs them
//! with every test; and inputs that once caused a failure. `NANDARRAY_DEEP=1` runs many more.

mod common;
#[path = "hostile/directory.rs"]
mod directory;
mod hostile;

use common::{rounds, within};
use fastrand::Rng;

/// Runs a target on `count` inputs, one for each seed; panics with the seeds of the inputs on which the target
/// panicked.
fn run(what: &'static str, count: u64, input: impl Fn(&mut Rng) -> Vec<u8> + Send + 'static, target: fn(&[u8])) {
    within(if rounds(0, 1) == 1 { 3600 } else { 100 }, what, move || {
        let first = rounds(0, 1 << 32);
        let mut failed = Vec::new();
        for seed in first..first + count {
            let data = input(&mut Rng::with_seed(seed));
            if std::panic::catch_unwind(|| target(&data)).is_err() {
                eprintln!("{what}, seed {seed}: {} bytes {:02x?}", data.len(), &data[..data.len().min(64)]);
                failed.push(seed);
            }
        }
        assert!(failed.is_empty(), "{what}: seeds {failed:?} of {first}..{}", first + count);
    });
}

fn noise(rng: &mut Rng, most: usize) -> Vec<u8> {
    let n = rng.usize(..most);
    let sparse = rng.bool();
    (0..n).map(|_| if sparse && rng.u8(..4) > 0 { 0 } else { rng.u8(..) }).collect()
}

#[test]
fn mutated_images() {
    run("a mutated image", rounds(1000, 60_000), |rng| noise(rng, 40), hostile::patched_image);
}

#[test]
fn arbitrary_images() {
    let input = |rng: &mut Rng| match rng.u8(..3) {
        0 => noise(rng, 100_000),
        1 => {
            // A real head, and random bytes after it.
            let mut bytes = hostile::golden(rng.usize(..8).max(4)).to_vec();
            let from = rng.usize(8192..bytes.len());
            rng.fill(&mut bytes[from..]);
            bytes
        }
        _ => {
            // Pieces in a wrong order.
            let mut bytes = hostile::golden(rng.usize(..8).max(4)).to_vec();
            for _ in 0..rng.usize(1..6) {
                let n = [512, 4096, 8192][rng.usize(..3)];
                let [from, to] = [0, 1].map(|_| rng.usize(..(bytes.len() - n) / 512) * 512);
                bytes.copy_within(from..from + n, to);
            }
            bytes
        }
    };
    run("an arbitrary image", rounds(200, 20_000), input, hostile::image);
}

/// Returns numbers at and beside the bounds with which fields are compared, and beside the field's present value
/// `there`.
fn extremes(there: u64) -> Vec<u64> {
    let ends = [12, 16, 20, 24, 31, 32, 60, 63].map(|bits| 1u64 << bits);
    let mut all: Vec<u64> =
        ends.iter().chain(&[1, there]).flat_map(|&end| [end.wrapping_sub(1), end, end.wrapping_add(1)]).collect();
    all.extend([u64::MAX, u64::MAX - 1, there.wrapping_mul(2), 3 << 30]);
    all.sort_unstable();
    all.dedup();
    all
}

/// Values to store in fields, each with the field's index in [`hostile::SUPERBLOCK_FIELDS`].
type Patches = Vec<(usize, u64)>;

/// Opens many patched superblocks, each a format version, whether both slots are patched, and the patches; panics if
/// one of them made the store panic.
fn run_patches(what: &'static str, seconds: u64, all: impl Iterator<Item = (usize, bool, Patches)> + Send + 'static) {
    within(seconds, what, move || {
        let mut failed = 0;
        for (version, both, patches) in all {
            if std::panic::catch_unwind(|| hostile::patched_superblock(version, both, &patches)).is_err() {
                let named: Vec<_> = patches.iter().map(|&(f, v)| (hostile::SUPERBLOCK_FIELDS[f].0, v)).collect();
                eprintln!("{what}: version {version}, {} slots, {named:x?}", 1 + usize::from(both));
                failed += 1;
            }
        }
        assert_eq!(failed, 0, "{what}");
    });
}

fn value_there(version: usize, field: usize) -> u64 {
    let (_, at, len) = hostile::SUPERBLOCK_FIELDS[field];
    let mut value = [0; 8];
    value[..len].copy_from_slice(&hostile::golden(version)[at..at + len]);
    u64::from_le_bytes(value)
}

#[test]
fn superblocks_with_a_field_at_its_extremes() {
    let all = (1..=4).flat_map(|version| {
        (0..hostile::SUPERBLOCK_FIELDS.len()).flat_map(move |field| {
            let values = extremes(value_there(version, field));
            values.into_iter().map(move |v| (version, v % 2 == 0, vec![(field, v)]))
        })
    });
    run_patches("a superblock's field", 300, all);
}

#[test]
fn superblocks_with_fields_at_their_extremes() {
    // The largest segments that there may be, of many shapes, and the smallest; and other fields beside them.
    let shapes: [[u64; 4]; 6] = [
        [1 << 20, 4096, 1, 64],
        [1 << 20, 1, 4, 1 << 16],
        [1 << 15, 4096, 1024, 2],
        [1 << 16, 128, 1, 1 << 15],
        [512, 4, 2, 1],
        [1 << 12, 1, 1, 4],
    ];
    let rng = &mut Rng::with_seed(rounds(0, 1 << 32));
    let drawn: Vec<_> = (0..rounds(1500, 100_000))
        .map(|i| {
            let version = i as usize % 4 + 1;
            let mut patches = vec![];
            if rng.u8(..3) > 0 {
                let shape = shapes[rng.usize(..shapes.len())];
                patches.extend((2..6).zip(shape));
            }
            for _ in 0..rng.usize(1..4) {
                let field = rng.usize(..hostile::SUPERBLOCK_FIELDS.len());
                let values = extremes(value_there(version, field));
                patches.push((field, values[rng.usize(..values.len())]));
            }
            (version, rng.bool(), patches)
        })
        .collect();
    run_patches("a superblock's fields", 300, drawn.into_iter());
}

#[test]
fn checkpoints_with_other_numbers() {
    run(
        "a checkpoint",
        rounds(1500, 200_000),
        |rng| rng.u64(..).to_le_bytes().to_vec(),
        |data| {
            directory::odd_checkpoint(u64::from_le_bytes(data.try_into().expect("eight bytes")));
        },
    );
}

#[test]
fn a_number_that_a_space_has_is_not_given_to_another() {
    // The directory names a number that a space of it has, or the last number of all.
    for next in 0..4 {
        let (numbers, made) = directory::create_with_next_number(next);
        let made = made.unwrap();
        assert!(numbers.iter().all(|&taken| taken < made), "{made} behind {numbers:?}, from {next}");
    }
    for next in [1 << 31, u32::MAX] {
        let error = directory::create_with_next_number(next).1.unwrap_err();
        assert!(matches!(&error, nandarray::Error::Corrupt(what) if what.contains("no number is left")), "{error}");
    }
}

#[test]
fn journals() {
    run("a journal", rounds(3000, 300_000), |rng| noise(rng, 600), hostile::journal_record);
    let valid = |rng: &mut Rng| {
        let mut bytes = vec![rng.u8(..)];
        let mut before = 0;
        for lsn in 1..rng.u64(2..9) {
            let payload = noise(rng, 200);
            let (record, crc) = nandarray::file_format::journal::encode(lsn, 7, lsn / 2, before, &payload);
            bytes.extend(record);
            before = crc;
        }
        for _ in 0..rng.usize(..4) {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        bytes
    };
    run("a damaged journal", rounds(3000, 300_000), valid, hostile::journal_record);
}

#[test]
fn payloads() {
    run("a payload", rounds(5000, 500_000), |rng| noise(rng, 3000), hostile::codec_payload);
}

#[test]
fn submission_entries() {
    run("NVMe entries", rounds(200, 20_000), |rng| noise(rng, 65 * 40), hostile::nvme::entries);
    let nearly_right = |rng: &mut Rng| {
        let mut data = vec![0; 65 * 40];
        rng.fill(&mut data);
        data.chunks_mut(65).for_each(|entry| entry[0] |= 1 | 2 | 4 | 16);
        data
    };
    run("NVMe entries that are nearly right", rounds(200, 20_000), nearly_right, hostile::nvme::entries);
}
