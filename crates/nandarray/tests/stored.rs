//! Promise: a copy of stored blocks has the elements of its source, is whole or absent whenever the power fails, and
//! takes no payload that is not one of the same codec, whole and undamaged.

mod common;

use std::sync::Arc;

use common::*;
use fastrand::Rng;
use nandarray::{Device, Error, FaultMedia, Geometry, MemoryMedia, Mode, Result, command};

const SHAPE: [u64; 2] = [37, 29];
const BLOCK: [u64; 2] = [16, 8];

fn create(device: &Device, name: &str, compression: Option<&'static str>, key: bool) {
    let (name, shape, block) = (name.to_owned(), SHAPE.to_vec(), Some(BLOCK.to_vec()));
    Op::Create { name, shape, item: 4, block, compression, key, fill: 3 }.run(device).unwrap();
}

fn store(geometry: Geometry) -> Device {
    open(Arc::new(MemoryMedia::default()), Mode::Append, &options(geometry, 1)).unwrap()
}

/// Writes all of an array but a corner: runs of equal values, and noise that no codec shortens.
fn fill(device: &Device, name: &str) {
    let mut rng = Rng::with_seed(5);
    let bytes: Vec<u8> =
        (0..30 * 29).flat_map(|i| (if i / 200 % 2 == 0 { 7 } else { rng.u32(..) }).to_le_bytes()).collect();
    write(device, name, &Part::boxed(&[0, 0], &[30, 29]), &bytes).unwrap();
    device.execute(command::Flush).unwrap();
}

fn blocks(device: &Device, name: &str) -> Vec<u64> {
    device.execute(command::ListBlocks { space: open_space(device, name).unwrap().id }).unwrap()
}

fn payloads(device: &Device, name: &str, blocks: &[u64]) -> Result<Vec<Option<Vec<u8>>>> {
    device.execute(command::ReadStored { space: open_space(device, name)?.id, blocks })
}

fn put(device: &Device, name: &str, blocks: &[u64], payloads: &[&[u8]]) -> Result<()> {
    device.execute(command::WriteStored { space: open_space(device, name)?.id, blocks, payloads })
}

fn copy(from: &Device, to: &Device) -> Result<()> {
    let blocks = blocks(from, "a");
    let found = payloads(from, "a", &blocks)?;
    let found: Vec<&[u8]> = found.iter().map(|payload| payload.as_deref().expect("a flushed block")).collect();
    put(to, "b", &blocks, &found)
}

#[test]
fn a_copy_has_the_elements_of_its_source() {
    for compression in ["lz4", "zstd:3+shuffle", "lz4+bitshuffle", "bitpack", "varwidth"] {
        let (from, to) = (store(Geometry::TINY), store(Geometry { page_bytes: 1024, ..Geometry::TINY }));
        create(&from, "a", Some(compression), false);
        create(&to, "b", Some(compression), false);
        fill(&from, "a");
        // Content that the copy replaces: on the medium, and in the write buffer.
        fill(&to, "b");
        write(&to, "b", &Part::boxed(&[1, 1], &[2, 2]), &[9; 16]).unwrap();
        copy(&from, &to).unwrap();
        assert_eq!(read_array(&to, "b").unwrap().data, read_array(&from, "a").unwrap().data, "{compression}");
        assert_sound(&to, &|| compression.to_owned());
    }
}

#[test]
fn blocks_without_a_payload_have_none() {
    let device = store(Geometry::TINY);
    create(&device, "a", Some("lz4"), false);
    fill(&device, "a");
    write(&device, "a", &Part::boxed(&[0, 0], &[1, 1]), &[1; 4]).unwrap();
    let found = payloads(&device, "a", &[0, 0, 0, 1, 2, 0]).unwrap();
    let there: Vec<bool> = found.iter().map(Option::is_some).collect();
    assert_eq!(there, [false, true, false], "in the write buffer; on the medium; never written");
}

#[test]
fn payloads_are_bad_until_proven() {
    let device = store(Geometry::TINY);
    for (name, compression, key) in [
        ("a", Some("lz4"), false),
        ("other", Some("zstd"), false),
        ("plain", None, false),
        ("sealed", Some("lz4"), true),
    ] {
        create(&device, name, compression, key);
    }
    fill(&device, "a");
    let good = payloads(&device, "a", &[0, 0]).unwrap()[0].clone().expect("a flushed block");
    let before = read_all(&device).unwrap();
    let refused = |name: &str, blocks: &[u64], payload: &[u8]| {
        let e = put(&device, name, blocks, &[payload]).expect_err("a refusal");
        assert!(matches!(e, Error::Invalid(_)), "{e}");
        assert_eq!(read_all(&device).unwrap(), before, "a refusal changes nothing");
    };
    refused("other", &[0, 0], &good);
    refused("plain", &[0, 0], &good);
    refused("sealed", &[0, 0], &good);
    refused("a", &[3, 0], &good);
    refused("a", &[u64::MAX, 0], &good);
    refused("a", &[0], &good);
    refused("a", &[0, 0, 0, 1], &good);
    for end in 0..good.len() {
        refused("a", &[0, 0], &good[..end]);
    }
    assert!(payloads(&device, "plain", &[0, 0]).is_err());
    // A flipped bit is refused, or gives a payload that still decodes: never a later error of reading.
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        if put(&device, "a", &[0, 0], &[&bad]).is_ok() {
            read_array(&device, "a").unwrap_or_else(|e| panic!("byte {at}: {e}"));
        }
    }
}

#[test]
fn a_copy_is_whole_or_absent_when_the_power_fails() {
    let from = store(Geometry::TINY);
    create(&from, "a", Some("lz4"), false);
    fill(&from, "a");
    let whole = read_array(&from, "a").unwrap().data;
    let options = options(Geometry::TINY, 2);
    for limit in 1.. {
        let media = Arc::new(FaultMedia::default());
        let device = open(media.clone(), Mode::Append, &options).unwrap();
        create(&device, "b", Some("lz4"), false);
        device.execute(command::Flush).unwrap();
        let none = read_array(&device, "b").unwrap().data;
        media.crash_at_write(limit);
        let done = copy(&from, &device).and_then(|()| device.execute(command::Flush));
        let survived = Arc::new(FaultMedia::with_bytes(media.after_crash(limit)));
        let again = open(survived, Mode::ReadWrite, &options).unwrap();
        let found = read_array(&again, "b").unwrap().data;
        assert!(found == whole || found == none && done.is_err(), "write {limit}");
        assert_sound(&again, &|| format!("write {limit}"));
        if done.is_ok() {
            assert!(limit > 1, "the copy writes to the medium");
            break;
        }
    }
}
