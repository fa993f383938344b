//! Promise: the first read of data compares every page that it touches, and no other, before anything of the page is
//! copied.
//!
//! Large reads of a mapped file then take a path of their own (`stl/read/verify_copy.rs`), which small stores in memory
//! do not take. So the tests compare random large boxes, with steps, of arrays of one to four dimensions in a store
//! that was just opened with the bytes written; and damage a page, which the error must name exactly, while all others
//! can be read.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use nandarray::file_format::{HEAD_BYTES, OOB_BYTES, Owner, Ppa, Run};
use nandarray::internals::{FetchError, Ftl, placement};
use nandarray::policy::GcPolicy;
use nandarray::probe::Counters;
use nandarray::{
    BufferMut, Device, Error, Geometry, Media, MemoryMedia, Mode, NewSpace, Options, Result, Source, Target, Verify,
    command,
};

/// Number of bytes from which on a read takes the path for large reads.
const LARGE_BYTES: u64 = 4 << 20;

fn strides(count: &[u64], item: usize) -> Vec<isize> {
    let mut strides = vec![item as isize; count.len()];
    for i in (0..count.len() - 1).rev() {
        strides[i] = strides[i + 1] * count[i + 1] as isize;
    }
    strides
}

/// Creates a store with one array of random bytes and closes it; returns these bytes.
fn store(path: &Path, shape: &[u64], item: usize, block: Option<&[u64]>) -> Vec<u8> {
    let mut rng = Rng::with_seed(shape.iter().sum());
    let data: Vec<u8> = (0..shape.iter().product::<u64>() as usize * item).map(|_| rng.u8(..)).collect();
    let device = Device::open_file(path, Mode::Truncate, &Options::default()).unwrap();
    let new = NewSpace {
        name: "a",
        shape,
        item_bytes: item as u32,
        dtype: "|V",
        block,
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let space = device.execute(command::Create(new)).unwrap().id;
    let (start, step) = (vec![0; shape.len()], vec![1; shape.len()]);
    let strides = strides(shape, item);
    let target = Target::Box { start: &start, step: &step, count: shape, strides: &strides, view: None };
    // SAFETY: the target is all of the array, whose bytes the vector has.
    let source = unsafe { Source::from_raw(data.as_ptr()) };
    device.execute(command::Write { space, target, source }).unwrap();
    device.close().unwrap();
    data
}

fn open(path: &Path, verify: Verify) -> Device {
    Device::open_file(path, Mode::Read, &Options { verify, threads: Some(2), ..Options::default() }).unwrap()
}

fn read(device: &Device, start: &[u64], step: &[u64], count: &[u64], item: usize) -> Result<Vec<u8>> {
    let space = device.execute(command::Open { name: "a", key: None })?.id;
    let mut out = vec![0; count.iter().product::<u64>() as usize * item];
    let strides = strides(count, item);
    let target = Target::Box { start, step, count, strides: &strides, view: None };
    // SAFETY: the vector has room for the target's elements.
    let buffer = unsafe { BufferMut::from_raw(out.as_mut_ptr()) };
    device.execute(command::Read { space, target, out: buffer })?;
    Ok(out)
}

fn expected(data: &[u8], shape: &[u64], start: &[u64], step: &[u64], count: &[u64], item: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for i in 0..count.iter().product::<u64>() {
        let (mut rest, mut at, mut stride) = (i, 0, 1);
        for d in (0..shape.len()).rev() {
            at += (start[d] + rest % count[d] * step[d]) * stride;
            rest /= count[d];
            stride *= shape[d];
        }
        out.extend_from_slice(&data[at as usize * item..][..item]);
    }
    out
}

#[test]
fn large_boxes_arrive_at_the_first_look() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.nand");
    let arrays: [(&[u64], usize, Option<&[u64]>); 6] = [
        (&[9_000_001], 1, None),
        (&[1900, 1700], 4, None),
        (&[3000, 4100], 1, Some(&[70, 900])),
        (&[170, 190, 150], 4, None),
        (&[40, 44, 36, 40], 4, None),
        (&[5, 1_100_000], 2, Some(&[1, 200_000])),
    ];
    for (shape, item, block) in arrays {
        let data = store(&path, shape, item, block);
        let mut device = open(&path, Verify::Once);
        for seed in 0..6 {
            let mut rng = Rng::with_seed(seed);
            let (mut start, mut step, mut count) = (vec![], vec![], vec![]);
            for &side in shape {
                step.push(if rng.u8(..5) == 0 { rng.u64(2..4) } else { 1 });
                start.push(rng.u64(..side / 8 + 1));
                let most = (side - start.last().unwrap()).div_ceil(*step.last().unwrap());
                count.push(most - rng.u64(..most / 8 + 1));
            }
            let bytes = count.iter().product::<u64>() * item as u64;
            eprintln!("{shape:?} in {block:?}, seed {seed}: {start:?} + {step:?} x {count:?}, {bytes} bytes");
            // Every other time pages were partly compared before.
            if seed % 2 == 0 {
                device = open(&path, if seed == 0 { Verify::Always } else { Verify::Once });
            }
            let got = read(&device, &start, &step, &count, item).unwrap();
            assert!(got == expected(&data, shape, &start, &step, &count, item));
        }
        let all: u64 = shape.iter().product::<u64>() * item as u64;
        assert!(all > LARGE_BYTES, "large reads are what is meant");
    }
}

#[test]
fn a_damaged_page_is_named_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.nand");
    let shape = [1536, 2048];
    let data = store(&path, &shape, 4, None);
    // Row 700 of block (2, 1), which has rows of 1 KiB, is in its access unit 47.
    let (row, column) = (700usize, 300usize);
    let bytes = std::fs::read(&path).unwrap();
    let wanted = &data[(row * 2048 + column) * 4..][..64];
    let place = bytes.windows(64).position(|w| w == wanted).expect("plain bytes lie in the file");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[bytes[place] ^ 0x10], place as u64).unwrap();
    let page = Geometry::FILE.page_bytes as usize;

    let device = open(&path, Verify::Once);
    for _ in 0..2 {
        match read(&device, &[0, 0], &[1, 1], &shape, 4).unwrap_err() {
            Error::Checksum { block, unit, offset, .. } => {
                assert_eq!((block, unit), (vec![2, 1], 47));
                assert_eq!(offset as usize % page, HEAD_BYTES as usize % page);
                assert!((offset as usize..offset as usize + page).contains(&place));
            }
            e => panic!("{e}"),
        }
    }
    // The page has rows 700 to 703 of the block's columns; all around can be read.
    let parts: [([u64; 2], [u64; 2]); 4] =
        [([0, 0], [700, 2048]), ([704, 0], [832, 2048]), ([0, 0], [1536, 256]), ([0, 512], [1536, 1536])];
    for (start, count) in parts {
        let got = read(&device, &start, &[1, 1], &count, 4).unwrap();
        assert!(got == expected(&data, &shape, &start, &[1, 1], &count, 4), "{start:?} + {count:?}");
    }
    assert!(matches!(read(&device, &[703, 511], &[1, 1], &[1, 1], 4), Err(Error::Checksum { .. })));
}

#[test]
fn pages_before_a_damaged_one_are_marked_and_those_behind_it_are_not() {
    const COUNT: u32 = 200;
    let geometry = Geometry::FILE;
    let media = Arc::new(MemoryMedia::with_bytes(vec![0; HEAD_BYTES as usize]));
    let policies = || (placement::by_name("log").unwrap(), GcPolicy::Greedy);
    let ftl = |verify| Ftl::new(media.clone(), geometry, Arc::new(Counters::default()), verify, policies(), 0, 5);
    let owner = Owner { space: 1, unit: 0, key: [7; 10] };
    let mut rng = Rng::with_seed(9);
    let bytes: Vec<u8> = (0..COUNT as usize * geometry.page_bytes as usize).map(|_| rng.u8(..)).collect();
    let units: Vec<(u32, Option<Ppa>)> = (0..COUNT).map(|unit| (unit, None)).collect();
    let runs = ftl(Verify::Once).append(owner, 1, &bytes, &units, &mut std::iter::empty()).unwrap();
    let [run @ Run { unit: 0, count: COUNT, .. }] = runs[..] else { panic!("{runs:?}") };
    let page_of = |unit: u32| Ppa(run.ppa.0 + u64::from(unit));
    for bad in [0, 1, 63, 64, 65, 127, 130, COUNT - 1] {
        for in_record in [false, true] {
            let at = match in_record {
                true => geometry.oob_offset(page_of(bad)) + OOB_BYTES - 1,
                false => geometry.page_offset(page_of(bad)) + 77,
            };
            let flip = || {
                let mut byte = [0];
                media.read_at(at, &mut byte).unwrap();
                media.write_at(at, &[byte[0] ^ 1]).unwrap();
            };
            flip();
            let ftl = ftl(Verify::Once);
            let mut out = bytes.clone();
            match ftl.fetch(run, owner, &mut out).unwrap_err() {
                FetchError::Bad(page) => {
                    assert_eq!((page.unit, page.offset), (bad, geometry.page_offset(page_of(bad))));
                }
                FetchError::Media(e) => panic!("{e}"),
            }
            for unit in 0..COUNT {
                assert_eq!(ftl.is_verified(page_of(unit), 1), unit < bad, "unit {unit} where {bad} is damaged");
            }
            // Those behind it are compared by themselves; it stays bad.
            if bad + 1 < COUNT {
                let rest = Run { unit: bad + 1, count: COUNT - bad - 1, ppa: page_of(bad + 1) };
                let behind = Owner { unit: bad as u16 + 1, ..owner };
                ftl.fetch(rest, behind, &mut out[..rest.count as usize * geometry.page_bytes as usize]).unwrap();
                assert!(ftl.is_verified(rest.ppa, rest.count));
            }
            assert!(!ftl.is_verified(page_of(bad), 1));
            assert!(matches!(ftl.fetch(run, owner, &mut out), Err(FetchError::Bad(page)) if page.unit == bad));
            flip();
            ftl.fetch(run, owner, &mut out).unwrap();
            assert!(ftl.is_verified(run.ppa, COUNT) && out == bytes);
        }
    }
}
