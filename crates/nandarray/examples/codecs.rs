//! Speed of the integer codecs, `bitpack` and `varwidth`, on one core: GB of integers per second of CPU time, encoded
//! and decoded, beside crate `bitpacking`, which packs blocks of 128 (SSE3) or 256 (AVX2) integers of 4 bytes in an
//! order of its own (interleaved streams).
//!
//! ```text
//! cargo run --release -p nandarray --example codecs -- [WIDTH...]
//! ```
//!
//! Blocks have 256 KiB, frames 8 KiB, and everything is in the second level cache. Values are random, of WIDTH bits (3,
//! 7, 12, 20 and 28 if left out), in elements of 1, 2, 4 and 8 bytes. Each figure is the best of nine rounds, which
//! take turns; the ratio is the rate of `bitpack` over the peer's. The last rows are whole reads of a stored array, one
//! thread, values of 12 bits in 4 bytes, from the page cache, after its pages were verified.

#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::hint::black_box;

use bitpacking::{BitPacker, BitPacker4x, BitPacker8x};
use nandarray::internals::{BlockContext, Codec, CodecSpec, Framing};
use nandarray::{BufferMut, Device, Mode, NewSpace, Options, Source, Target, command};

const BYTES: usize = 256 << 10;
const ROUNDS: usize = 9;

/// Returns the CPU time of this process in seconds.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) }, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A measured function, with its best rate so far: GB of decoded integers per CPU second.
struct Work<'a> {
    name: String,
    call: Box<dyn FnMut() + 'a>,
    best: f64,
}

fn measure(works: &mut [Work<'_>]) {
    let calls = (8 << 20) / BYTES;
    for _ in 0..ROUNDS {
        for work in &mut *works {
            let start = cpu_seconds();
            (0..calls).for_each(|_| (work.call)());
            let rate = (BYTES * calls) as f64 / 1e9 / (cpu_seconds() - start);
            work.best = work.best.max(rate);
        }
    }
}

/// One of our codecs, with a block that it has encoded and the buffers of its calls.
struct Ours {
    name: &'static str,
    codec: Codec,
    payload: Vec<u8>,
    encoded: Vec<u8>,
    out: Vec<u8>,
}

const CONTEXT: BlockContext<'_> = BlockContext { space_id: 1, block_key: &[0; 12] };

impl Ours {
    fn new(name: &'static str, element_bytes: u32, raw: &[u8]) -> Self {
        let (compression, block_bytes) = (name.parse().ok(), BYTES as u64);
        let spec = CodecSpec { compression, encrypted: false, element_bytes, block_bytes, framing: Framing::V3 };
        let codec = Codec::new(spec, None).expect("a good spec");
        let mut payload = Vec::new();
        codec.encode(raw, CONTEXT, 1, &mut payload).expect("a good block");
        let mut out = vec![0; BYTES];
        codec.decode(&payload, 0..BYTES, CONTEXT, &mut out).expect("a good payload");
        assert!(out == raw, "{name} decodes what it encoded");
        Self { name, codec, payload, encoded: Vec::new(), out }
    }

    fn works<'a>(&'a mut self, raw: &'a [u8]) -> [Work<'a>; 2] {
        let Self { name, codec, payload, encoded, out } = self;
        let (codec, payload) = (&*codec, &*payload);
        let decode = move || {
            codec.decode(black_box(payload), 0..BYTES, CONTEXT, out).expect("a good payload");
        };
        let encode = move || codec.encode(black_box(raw), CONTEXT, 1, encoded).expect("a good block");
        [
            Work { name: format!("{name} decode"), call: Box::new(decode), best: 0.0 },
            Work { name: format!("{name} encode"), call: Box::new(encode), best: 0.0 },
        ]
    }
}

/// Packs `raw`, integers of 4 bytes, with the library we compare with, and returns a function that unpacks them.
fn peer<'a, P: BitPacker + 'a>(packer: P, width: u8, raw: &[u8]) -> Box<dyn FnMut() + 'a> {
    let values: Vec<u32> = raw.as_chunks::<4>().0.iter().map(|v| u32::from_le_bytes(*v)).collect();
    let one = P::BLOCK_LEN * usize::from(width) / 8;
    let mut packed = vec![0; values.len() / P::BLOCK_LEN * one];
    for (block, packed) in values.chunks_exact(P::BLOCK_LEN).zip(packed.chunks_exact_mut(one)) {
        packer.compress(block, packed, width);
    }
    let mut out = vec![0u32; values.len()];
    let mut unpack = move || {
        for (block, packed) in out.chunks_exact_mut(P::BLOCK_LEN).zip(black_box(&packed).chunks_exact(one)) {
            packer.decompress(packed, block, width);
        }
        black_box(&out);
    };
    unpack();
    Box::new(unpack)
}

/// Measures whole reads of an array of 64 MiB, for each compression.
fn whole_reads() -> nandarray::Result<()> {
    let count = 16usize << 20;
    let values: Vec<u32> = (0..count as u32).map(|i| i.wrapping_mul(0x9e37_79b9) >> 20).collect();
    let mut out = vec![1u32; count];
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options { threads: Some(1), ..Options::default() };
    let store = Device::open_file(&folder.path().join("codecs.nand"), Mode::Append, &options)?;
    for name in ["plain", "bitpack", "varwidth"] {
        let shape = [count as u64];
        let compression = (name != "plain").then_some(name);
        let new = NewSpace {
            name,
            shape: &shape,
            item_bytes: 4,
            dtype: "<u4",
            block: None,
            compression,
            key: None,
            fill: None,
            attrs: "{}",
        };
        let space = store.execute(command::Create(new))?.id;
        let target = Target::Box { start: &[0], step: &[1], count: &shape, strides: &[4], view: None };
        // SAFETY: the buffer has all elements of the array.
        let source = unsafe { Source::from_raw(values.as_ptr().cast()) };
        store.execute(command::Write { space, target: target.clone(), source })?;
        store.execute(command::Flush)?;
        let mut best = f64::MAX;
        for _ in 0..ROUNDS {
            // SAFETY: as above.
            let out = unsafe { BufferMut::from_raw(out.as_mut_ptr().cast()) };
            let start = cpu_seconds();
            store.execute(command::Read { space, target: target.clone(), out })?;
            best = best.min(cpu_seconds() - start);
        }
        assert!(out == values, "{name} reads what was written");
        println!("u32        12  {:22} {:7.2}", format!("{name} whole read"), (count * 4) as f64 / 1e9 / best);
    }
    store.close()
}

fn main() -> nandarray::Result<()> {
    let mut widths: Vec<u8> = std::env::args().skip(1).map(|w| w.parse().expect("a width in bits")).collect();
    if widths.is_empty() {
        widths = vec![3, 7, 12, 20, 28];
    }
    println!("{:8} {:>4}  {:22} {:>7}  ratio", "element", "bits", "", "GB/s");
    for element_bytes in [1u32, 2, 4, 8] {
        for &width in widths.iter().filter(|&&width| u32::from(width) < 8 * element_bytes) {
            let value = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17).wrapping_mul(i | 1) & ((1 << width) - 1);
            let count = BYTES as u64 / u64::from(element_bytes);
            let raw: Vec<u8> =
                (0..count).flat_map(|i| value(i).to_le_bytes()[..element_bytes as usize].to_vec()).collect();
            let mut ours = ["bitpack", "varwidth"].map(|name| Ours::new(name, element_bytes, &raw));
            let mut works: Vec<Work<'_>> = ours.iter_mut().flat_map(|one| one.works(&raw)).collect();
            if element_bytes == 4 {
                let (four, eight) = (BitPacker4x::new(), BitPacker8x::new());
                for (name, call) in [("4x", peer(four, width, &raw)), ("8x", peer(eight, width, &raw))] {
                    works.push(Work { name: format!("bitpacking {name} decode"), call, best: 0.0 });
                }
            }
            measure(&mut works);
            for work in &works {
                let ratio = match work.name.starts_with("bitpacking") {
                    true => format!("{:5.2}", works[0].best / work.best),
                    false => String::new(),
                };
                println!("u{:<7} {width:4}  {:22} {:7.2}  {ratio}", 8 * element_bytes, work.name, work.best);
            }
        }
    }
    whole_reads()
}
