//! Promise: a packed read of any range of elements gives parts that hold exactly its values, in order.
//!
//! The parts are unpacked here bit by bit, as docs/reference/program-abi.md ("Packed inputs") describes them, and
//! compared with a plain read: ranges that begin and end within blocks, blocks on the medium, in the write buffer and
//! never written, frames that are stored raw. Programs that read them are tested in Python.

mod common;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use fastrand::Rng;
use nandarray::probe::{Probe, Purpose};
use nandarray::{Device, Error, Geometry, MemoryMedia, Mode, Options, Result};

const ELEMENTS: u64 = 20_000;
const BLOCK: u64 = 3000;

#[derive(Debug, Default)]
struct Moved {
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Probe for Moved {
    fn moved(&self, runs: u64, bytes: u64) {
        self.calls.fetch_add(runs, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn freed(&self, _segment: u32) {}

    fn purpose(&self, _purpose: Purpose) -> Purpose {
        Purpose::Command
    }
}

fn create(device: &Device, compression: Option<&'static str>, item: usize, key: bool, shape: &[u64], fill: u8) {
    let block = shape.iter().map(|&n| n.min(BLOCK)).collect();
    let (name, shape) = ("a".to_owned(), shape.to_vec());
    Op::Create { name, shape, item, block: Some(block), compression, key, fill }.run(device).unwrap();
}

/// Returns values of `item` bytes: runs of a narrow range, and runs of noise, which packing would make longer.
fn values(count: usize, item: usize) -> Vec<u8> {
    let mut rng = Rng::with_seed(item as u64);
    let one = |i: usize| {
        let value = if i / 1700 % 3 == 1 { rng.u64(..) } else { 5 + rng.u64(..40) + (i as u64 / 5000) % 2 * 60 };
        value.to_le_bytes().into_iter().take(item)
    };
    (0..count).flat_map(one).collect()
}

/// Writes four blocks to the medium, leaves a piece of the next one in the write buffer, and writes no more.
fn fill(device: &Device, item: usize) {
    let bytes = values(ELEMENTS as usize, item);
    write(device, "a", &Part::boxed(&[0], &[4 * BLOCK]), &bytes[..4 * BLOCK as usize * item]).unwrap();
    device.execute(nandarray::command::Flush).unwrap();
    write(device, "a", &Part::boxed(&[4 * BLOCK + 7], &[900]), &bytes[..900 * item]).unwrap();
}

fn read_packed(device: &Device, elements: Range<u64>) -> Result<Vec<u8>> {
    let space = open_space(device, "a")?.id;
    device.compound(false, |compound| {
        let mut out = Vec::new();
        compound.read_packed(space, elements, &mut out).map(|()| out)
    })?
}

/// Returns `width` bits of `bytes` from bit number `at` on.
fn bits(bytes: &[u8], at: usize, width: usize) -> u64 {
    (0..width).map(|i| u64::from(bytes[(at + i) / 8] >> ((at + i) % 8) & 1) << i).sum()
}

/// Unpacks the values of all parts; returns them with the number of parts.
fn unpacked(parts: &[u8], item: usize) -> (Vec<u8>, usize) {
    let (mut out, mut rest, mut number) = (Vec::new(), parts, 0);
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        let [length, count, skip, width, bits_at, widths_at] = [0, 4, 8, 12, 24, 28].map(word);
        let reference = u64::from_le_bytes(rest[16..24].try_into().unwrap());
        assert!(length % 8 == 0 && count > 0, "a part of {length} bytes with {count} values");
        let part = &rest[..length];
        let width_of = |i: usize| if width > 0 { width } else { part[widths_at + i].into() };
        let mut at = 8 * bits_at;
        for i in 0..skip + count {
            let value = bits(part, at, width_of(i)).wrapping_add(reference);
            at += width_of(i);
            if i >= skip {
                out.extend_from_slice(&value.to_le_bytes()[..item]);
            }
        }
        rest = &rest[length..];
        number += 1;
    }
    (out, number)
}

fn compare(device: &Device, item: usize, context: &str) {
    let all = read(device, "a", &Part::all(&[ELEMENTS])).unwrap();
    let rng = &mut Rng::with_seed(3);
    let drawn = (0..40).map(|_| {
        let start = rng.u64(..ELEMENTS);
        start..start + rng.u64(1..=(ELEMENTS - start).min(2 * BLOCK))
    });
    let edges = [0..ELEMENTS, 0..1, 2999..3001, 3000..6000, 12_000..12_010, 12_500..18_500, 19_999..20_000, 7..7];
    for range in edges.into_iter().chain(drawn) {
        let parts = read_packed(device, range.clone()).unwrap();
        let (found, number) = unpacked(&parts, item);
        let expected = &all[range.start as usize * item..range.end as usize * item];
        assert!(found == expected, "elements {range:?} in {number} parts, {context}");
        let blocks = range.end.div_ceil(BLOCK) - range.start / BLOCK;
        assert!(range.is_empty() || number >= blocks as usize, "{number} parts of {blocks} blocks");
    }
}

#[test]
fn packed_reads_hold_the_values_of_plain_reads() {
    for compression in ["bitpack", "varwidth"] {
        for (item, key, byte) in [(1, false, 0), (2, false, 3), (4, true, 0), (8, false, 1)] {
            let context = format!("{compression}, {item} bytes, key {key}, fill {byte}");
            let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &options(Geometry::TINY, 1)).unwrap();
            create(&device, Some(compression), item, key, &[ELEMENTS], byte);
            compare(&device, item, &format!("never written, {context}"));
            fill(&device, item);
            assert!(number(&device, "bytes_gathered") > 0, "the last block is in the write buffer, {context}");
            compare(&device, item, &context);
            device.execute(nandarray::command::Flush).unwrap();
            compare(&device, item, &format!("flushed, {context}"));
        }
    }
}

#[test]
fn packed_reads_are_counted_and_reported_by_block() {
    let seen = Arc::new(Moved::default());
    let options = Options { probe: Some(seen.clone()), ..options(Geometry::TINY, 1) };
    let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &options).unwrap();
    create(&device, Some("bitpack"), 4, false, &[ELEMENTS], 0);
    fill(&device, 4);
    let before = number(&device, "bytes_read");
    seen.calls.store(0, Ordering::Relaxed);
    seen.bytes.store(0, Ordering::Relaxed);
    let parts = read_packed(&device, 2999..9001).unwrap().len() as u64;
    assert_eq!((seen.calls.load(Ordering::Relaxed), seen.bytes.load(Ordering::Relaxed)), (4, parts));
    assert_eq!(number(&device, "bytes_read") - before, parts);
}

#[test]
fn packed_reads_of_other_arrays_or_beyond_the_end_are_refused() {
    for (compression, shape, end) in [
        (Some("bitpack"), vec![ELEMENTS], ELEMENTS + 1),
        (Some("lz4"), vec![ELEMENTS], 10),
        (None, vec![ELEMENTS], 10),
        (Some("bitpack"), vec![100, 200], 10),
    ] {
        let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &options(Geometry::TINY, 1)).unwrap();
        create(&device, compression, 4, false, &shape, 0);
        let refused = read_packed(&device, 0..end).unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
        assert!(refused.to_string().contains(&format!("element {end}")), "{refused}");
    }
}
