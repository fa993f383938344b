//! Entrances for hostile bytes: shared by the fuzz targets (`fuzz/`, coverage-guided, nightly) and
//! `tests/hostile_bytes.rs` (seeded, stable). Each function takes any bytes and must return: no panic, no hang, no
//! memory beyond what the bytes justify.
//!
//! [`image`] opens any bytes as a file. [`patched_image`] changes the golden image and then corrects checksums, so that
//! the code after these checks runs on numbers that no writer writes. [`nvme::entries`] submits any bytes as a host's
//! entries. [`patched_superblock`] replaces numbers in superblocks; `directory.rs`, which only the seeded tests use, in
//! checkpoints.

#![allow(dead_code, reason = "every target takes what it needs of this one")]

pub(crate) mod nvme;

use std::sync::Arc;

use nandarray::file_format::{Chain, ChainStart, Layout, crc32c, journal, read_slots};
use nandarray::internals::{BlockContext, CipherKey, Codec, CodecSpec, Compression, Framing};
use nandarray::{BufferMut, Device, Geometry, Media, MemoryMedia, Mode, Options, Source, Space, Target, command};

pub(crate) const KEY: [u8; 32] = *b"the key of all encrypted arrays.";
/// Largest number of bytes that are read of an array, or written to it, at a time.
const BYTES_READ_MAX: u64 = 1 << 12;

/// Returns the golden image of a format version from 1 to 4; higher numbers begin again at 1.
pub(crate) fn golden(version: usize) -> &'static [u8] {
    let all: [&[u8]; 4] = [
        include_bytes!("../golden/v1.nand"),
        include_bytes!("../golden/v2.nand"),
        include_bytes!("../golden/v3.nand"),
        include_bytes!("../golden/v4.nand"),
    ];
    all[(version + 3) % 4]
}

/// The fields of a superblock after the magic number: name, offset in bytes, size in bytes.
pub(crate) const SUPERBLOCK_FIELDS: &[(&str, usize, usize)] = &[
    ("version", 8, 4),
    ("generation", 32, 8),
    ("page_bytes", 40, 4),
    ("channels", 44, 4),
    ("banks", 48, 4),
    ("pages_per_block", 52, 4),
    ("capacity_bytes", 56, 8),
    ("checkpoint_nonce", 64, 8),
    ("checkpoint_first", 72, 4),
    ("directory_crc", 76, 4),
    ("directory_at[0]", 80, 8),
    ("directory_at[1]", 88, 8),
    ("directory_bytes", 96, 8),
    ("checkpoint_bytes", 104, 8),
    ("journal_nonce", 112, 8),
    ("journal_first", 120, 4),
    ("clean", 124, 4),
    ("journal_lsn", 128, 8),
    ("clean_lsn", 136, 8),
    ("open_segment", 144, 4),
    ("placement", 148, 8),
    ("victim", 160, 8),
    ("open_crc", 176, 4),
];

/// Sets fields of a golden image's superblocks (the newer one, or both), corrects their checksums, and runs all kinds
/// of commands on the store. A patch is an index in [`SUPERBLOCK_FIELDS`] and a value.
pub(crate) fn patched_superblock(version: usize, both: bool, patches: &[(usize, u64)]) {
    let mut bytes = golden(version).to_vec();
    let newer = usize::from(u64_at(&bytes, 4096 + 32) > u64_at(&bytes, 32));
    for slot in (0..2).filter(|&slot| both || slot == newer) {
        for &(field, value) in patches {
            let (_, at, len) = SUPERBLOCK_FIELDS[field];
            bytes[slot * 4096 + at..][..len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        correct_superblock(&mut bytes, slot * 4096);
    }
    image(&bytes);
}

fn correct_superblock(bytes: &mut [u8], slot: usize) {
    bytes[slot + 12..slot + 16].fill(0);
    let crc = crc32c(&bytes[slot + 8..slot + 4096]);
    bytes[slot + 12..slot + 16].copy_from_slice(&crc.to_le_bytes());
}

fn names(device: &Device) -> Vec<String> {
    device.execute(command::List { prefix: "" }).unwrap_or_default()
}

/// Reads the first and the last elements of an array, and writes them if `write`; errors are ignored.
fn touch(device: &Device, name: &str, write: bool) {
    let Ok(space) = device.describe(name) else { return };
    let key = space.encrypted().then_some(&KEY[..]);
    let _ = device.execute(command::Open { name, key });
    touch_space(device, &space, write);
}

/// Reads the arrays of all snapshots; returns the snapshots' names.
fn touch_snapshots(device: &Device) -> Vec<String> {
    let all = device.execute(command::Snapshots).unwrap_or_default();
    let taken: Vec<String> = all.into_iter().map(|snapshot| snapshot.name).collect();
    for snapshot in &taken {
        for name in device.execute(command::ListAt { snapshot, prefix: "" }).unwrap_or_default() {
            let Ok(space) = device.describe_at(snapshot, &name) else { continue };
            let key = space.encrypted().then_some(&KEY[..]);
            let _ = device.execute(command::OpenAt { snapshot, name: &name, key });
            touch_space(device, &space, false);
        }
    }
    taken
}

fn touch_space(device: &Device, space: &Space, write: bool) {
    let record = space.peek().record.clone();
    let shape = record.shape().to_vec();
    let mut left = (BYTES_READ_MAX / u64::from(record.item_bytes).max(1)).max(1);
    let count: Vec<u64> = shape
        .iter()
        .map(|&n| {
            let here = n.min(left);
            left /= here.max(1);
            here
        })
        .collect();
    let item = record.item_bytes as usize;
    let mut strides = vec![0isize; count.len()];
    let mut stride = item as isize;
    for (s, &n) in strides.iter_mut().zip(&count).rev() {
        *s = stride;
        stride *= n.max(1) as isize;
    }
    let mut buffer = vec![0u8; count.iter().product::<u64>() as usize * item];
    // From the beginning and from the end.
    for at_end in [false, true] {
        let start: Vec<u64> = shape.iter().zip(&count).map(|(&n, &c)| if at_end { n - c } else { 0 }).collect();
        let step = vec![1; count.len()];
        let target = || Target::Box { start: &start, step: &step, count: &count, strides: &strides, view: None };
        // SAFETY: the buffer has room for every element of the box.
        let out = unsafe { BufferMut::from_raw(buffer.as_mut_ptr()) };
        let _ = device.execute(command::Read { space: space.id, target: target(), out });
        if write {
            buffer.fill(0x77);
            // SAFETY: as above.
            let source = unsafe { Source::from_raw(buffer.as_ptr()) };
            let _ = device.execute(command::Write { space: space.id, target: target(), source });
        }
    }
    let _ = device.execute(command::StatSpace { space: space.id });
}

/// Opens a file with these bytes and runs all kinds of commands on it.
pub(crate) fn image(bytes: &[u8]) {
    let options = Options { threads: Some(1), ..Options::default() };
    if let Ok(device) = open(bytes, Mode::Read, &options) {
        names(&device).iter().for_each(|name| touch(&device, name, false));
        touch_snapshots(&device);
        let _ = device.execute(command::Check { repair: false, accept_older: false });
        let _ = device.execute(command::Stat);
    }
    if let Ok(device) = open(bytes, Mode::ReadWrite, &options) {
        let names = names(&device);
        names.iter().for_each(|name| touch(&device, name, true));
        if let Some(first) = names.first() {
            let _ = device.execute(command::Rename { from: first, to: "another name" });
            let _ = device.execute(command::Delete { name: "another name" });
        }
        if let Some(Ok(space)) = names.get(1).map(|n| device.describe(n)) {
            let smaller: Vec<u64> = space.peek().record.shape().iter().map(|n| n / 2).collect();
            let _ = device.execute(command::Resize { space: space.id, shape: &smaller });
            let mut count = space.peek().record.shape().to_vec();
            let elements = count.iter().try_fold(1u64, |n, c| n.checked_mul(*c));
            if elements.is_some_and(|n| n < 1 << 16) && !count.is_empty() {
                count[0] = 3;
                let (strides, source) = (vec![0; count.len()], Source::FILL);
                let append = command::Append { space: space.id, axis: 0, count: &count, strides: &strides, source };
                let _ = device.execute(append);
            }
        }
        let _ = device.execute(command::TakeSnapshot { name: "another", time: 1 });
        let _ = device.execute(command::Flush);
        names.iter().for_each(|name| touch(&device, name, true));
        for name in touch_snapshots(&device).iter().step_by(2) {
            let _ = device.execute(command::DeleteSnapshot { name });
        }
        let _ = device.execute(command::Compact);
        touch_snapshots(&device);
        let _ = device.execute(command::Check { repair: true, accept_older: true });
        let _ = device.close();
    }
    if let Ok(device) = open(bytes, Mode::ReadWrite, &Options { salvage: true, ..options }) {
        let _ = device.execute(command::Check { repair: true, accept_older: false });
        let _ = device.close();
    }
}

fn open(bytes: &[u8], mode: Mode, options: &Options) -> nandarray::Result<Device> {
    Device::open(Arc::new(MemoryMedia::with_bytes(bytes.to_vec())), "hostile", mode, options)
}

/// A source of choices: bytes that are consumed from the front.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes([self.byte()?, self.byte()?, self.byte()?, self.byte()?]))
    }
}

/// Changes a golden image as `data` says, corrects checksums, and runs all kinds of commands on the store.
pub(crate) fn patched_image(data: &[u8]) {
    let mut choices = Choices(data);
    let first = choices.byte().unwrap_or(0);
    let correct = first % 4 != 0;
    let mut bytes = golden(if first < 0xc0 { 4 } else { usize::from(first) }).to_vec();
    let places = places(&bytes);
    while let (Some(place), Some(at), Some(how), Some(value)) =
        (choices.byte(), choices.number(), choices.byte(), choices.byte())
    {
        let range = &places[place as usize % places.len()];
        let at = range.start + at as usize % range.len();
        match how % 6 {
            0 => bytes[at] = value,
            1 => bytes[at] = bytes[at].wrapping_add(value % 7).wrapping_sub(3),
            2 => bytes[at] ^= 1 << (value % 8),
            3 => {
                // The bytes of a varint of the largest numbers.
                let n = (value as usize % 9).min(range.end - at);
                bytes[at..at + n].fill(0xff);
            }
            4 => {
                let n = (value as usize).min(range.end - at);
                bytes[at..at + n].fill(0);
            }
            _ => {
                let n = (value as usize).min(range.end - at);
                let from = range.start + (at - range.start + value as usize * 13) % (range.len() - n + 1);
                bytes.copy_within(from..from + n, at);
            }
        }
    }
    if correct {
        correct_checksums(&mut bytes);
    }
    image(&bytes);
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")) as usize
}

/// Returns the ranges of the golden image to be changed: both superblocks, the whole file, checkpoints, journals,
/// out-of-band areas.
fn places(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let media = MemoryMedia::with_bytes(bytes.to_vec());
    let slots = read_slots(&media, "golden").expect("the golden image is right");
    let geometry = slots[0].1.geometry;
    let mut places = vec![8..170, 4104..4266, 0..bytes.len()];
    for (_, s) in &slots {
        let start = geometry.pages_offset(s.checkpoint.first) as usize;
        places.push(start..start + s.checkpoint_bytes as usize);
        let mut chain = Chain::begin(geometry, s.journal);
        let end = journal::read_all(&media, &mut chain, s.journal_lsn, s.clean.map(|c| c.0)).map_or(0, |r| r.1);
        let start = geometry.pages_offset(s.journal.first) as usize;
        places.push(start..start + (end as usize).max(64));
    }
    for segment in 0..geometry.segments_within(bytes.len() as u64) as u32 {
        let start = geometry.header_offset(segment) as usize;
        places.push(start..start + 64 + 32 * geometry.pages_per_segment() as usize);
    }
    places
}

/// Corrects all checksums that can be found: those of the records of both journals, of directories and of superblocks.
fn correct_checksums(bytes: &mut [u8]) {
    for slot in [0, 4096] {
        let geometry = Geometry {
            page_bytes: u32_at(bytes, slot + 40) as u32,
            channels: u32_at(bytes, slot + 44) as u32,
            banks: u32_at(bytes, slot + 48) as u32,
            pages_per_block: u32_at(bytes, slot + 52) as u32,
            layout: Layout::of_format(u32_at(bytes, slot + 8) as u32),
        };
        if geometry.validate().is_ok() {
            let journal = geometry.pages_offset(u32_at(bytes, slot + 120) as u32) as usize;
            correct_journal(bytes, journal, u64_at(bytes, slot + 112));
            let checkpoint = geometry.pages_offset(u32_at(bytes, slot + 72) as u32) as usize;
            let start = checkpoint.saturating_add(u64_at(bytes, slot + 80));
            let end = start.saturating_add(u64_at(bytes, slot + 96));
            if let Some(directory) = bytes.get(start..end) {
                let crc = crc32c(directory);
                bytes[slot + 76..slot + 80].copy_from_slice(&crc.to_le_bytes());
            }
        }
        correct_superblock(bytes, slot);
    }
}

fn correct_journal(bytes: &mut [u8], mut at: usize, nonce: usize) {
    let mut before = 0u32;
    while bytes.get(at + 4..at + 8) == Some(b"NREC") && at + 40 <= bytes.len() && u64_at(bytes, at + 16) == nonce {
        let end = at.saturating_add(40).saturating_add(u32_at(bytes, at + 32));
        if end > bytes.len() {
            return;
        }
        bytes[at + 36..at + 40].copy_from_slice(&before.to_le_bytes());
        before = crc32c(&bytes[at + 4..end]);
        bytes[at..at + 4].copy_from_slice(&before.to_le_bytes());
        at = end.next_multiple_of(8);
    }
}

/// Reads the records of a journal whose bytes are `data`.
pub(crate) fn journal_record(data: &[u8]) {
    let g = Geometry::TINY;
    let Some((&head, rest)) = data.split_first() else { return };
    let mut bytes = vec![0; g.medium_bytes(2) as usize];
    let start = g.pages_offset(0) as usize;
    let n = rest.len().min(bytes.len() - start);
    bytes[start..start + n].copy_from_slice(&rest[..n]);
    if head % 2 == 0 && n >= 24 {
        let nonce = u64_at(&bytes, start + 16);
        correct_journal(&mut bytes, start, nonce);
    }
    let nonce = if n >= 24 { u64_at(&bytes, start + 16) as u64 } else { 0 };
    let media = MemoryMedia::with_bytes(bytes);
    let mut chain = Chain::begin(g, ChainStart { first: 0, nonce });
    let _ = journal::read_all(&media, &mut chain, 1, None);
    assert!(!media.is_empty());
}

/// Decodes bytes as the payload of a coded building block.
pub(crate) fn codec_payload(data: &[u8]) {
    let Some((&head, payload)) = data.split_first() else { return };
    let compressions = [
        None,
        Some("lz4"),
        Some("zstd:1"),
        Some("lz4+shuffle"),
        Some("zstd:3+bitshuffle"),
        Some("bitpack"),
        Some("varwidth"),
    ];
    let compression = compressions[head as usize % 7];
    let spec = CodecSpec {
        compression: compression.map(|c| c.parse::<Compression>().expect("a known compression")),
        encrypted: head & 0x40 != 0,
        element_bytes: [1, 3, 4, 8][head as usize / 7 % 4],
        block_bytes: 40_008,
        framing: if head & 0x80 != 0 { Framing::V1 } else { Framing::V3 },
    };
    if spec.is_identity() || spec.validate().is_err() {
        return;
    }
    let key = spec.encrypted.then(|| CipherKey::new(&KEY, [1; 16]).expect("a key of 32 bytes"));
    let codec = Codec::new(spec, key.as_ref()).expect("a valid spec");
    let mut out = vec![0; 40_008];
    let context = BlockContext { space_id: 1, block_key: b"block" };
    let _ = codec.decode(payload, 0..40_008, context, &mut out);
    if let (Some(_), Ok(table)) = (codec.spec().packing(), codec.frame_table(payload, context)) {
        for part in codec.packed_frames(0..40_008 / spec.element_bytes as usize) {
            let _ = codec.append_packed(&table, payload, 0, part, &mut out);
        }
    }
}
