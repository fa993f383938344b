//! Measurement of the codec's throughput on this machine, to be run by hand; it does not test correctness.
//!
//! `cargo test --release -p nandarray codec::measure -- --ignored --nocapture --test-threads 1`. Buffers have the size
//! of one frame, and are in the first or second level cache; each figure is the best of several rounds on one core.

#![expect(clippy::disallowed_methods, reason = "these tests measure time")]

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use super::bitshuffle::{bit_shuffle, bit_unshuffle};
use super::shuffle::{shuffle, unshuffle};
use super::{BlockContext, CipherKey, Codec, CodecSpec};

fn report(name: &str, bytes: usize, mut work: impl FnMut()) {
    let rounds = (4 << 20) / bytes.max(1) + 1;
    let best = (0..9).map(|_| {
        let start = Instant::now();
        for _ in 0..rounds {
            work();
        }
        start.elapsed().as_secs_f64()
    });
    let best = best.fold(f64::INFINITY, f64::min);
    let rate = (bytes * rounds) as f64 / best / 1e9;
    writeln!(std::io::stdout(), "{name:40} {rate:6.2} GB/s").expect("stdout takes a line");
}

#[test]
#[ignore = "a measurement"]
fn filters() {
    let raw: Vec<u8> = (0..32768u32).map(|i| (i * 31 + i / 7) as u8).collect();
    let (mut planes, mut scratch) = (vec![0; raw.len()], Vec::new());
    for element_bytes in [1, 2, 3, 4, 6, 8, 12, 16, 24, 64] {
        report(&format!("shuffle {element_bytes}"), raw.len(), || shuffle(element_bytes, black_box(&raw), &mut planes));
        report(&format!("unshuffle {element_bytes}"), raw.len(), || {
            unshuffle(element_bytes, black_box(&raw), &mut planes)
        });
        report(&format!("bit shuffle {element_bytes}"), raw.len(), || {
            bit_shuffle(element_bytes, black_box(&raw), &mut planes, &mut scratch);
        });
        report(&format!("bit unshuffle {element_bytes}"), raw.len(), || {
            bit_unshuffle(element_bytes, black_box(&raw), &mut planes, &mut scratch);
        });
    }
}

/// Measures packing of integers in frames of 8 KiB, compared with a copy and with crate `bitpacking`, which packs
/// blocks of 128 integers of 4 bytes in an order of its own (four interleaved streams).
#[test]
#[ignore = "a measurement"]
fn integers() {
    use bitpacking::BitPacker;
    let context = BlockContext { space_id: 1, block_key: &[0; 12] };
    let bytes = 256 << 10;
    let mut out = vec![0; bytes];
    let other = vec![1u8; bytes];
    report("copy", bytes, || out.copy_from_slice(black_box(&other)));
    for element_bytes in [1u32, 2, 4, 8] {
        for width in [3, 5, 11, 15, 23] {
            if width > 8 * element_bytes {
                continue;
            }
            let value = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) & ((1 << width) - 1);
            let count = bytes as u64 / u64::from(element_bytes);
            let raw: Vec<u8> =
                (0..count).flat_map(|i| value(i).to_le_bytes()[..element_bytes as usize].to_vec()).collect();
            for name in ["bitpack", "varwidth"] {
                let compression = name.parse().ok();
                let framing = super::Framing::V3;
                let spec =
                    CodecSpec { compression, encrypted: false, element_bytes, block_bytes: bytes as u64, framing };
                let codec = Codec::new(spec, None).expect("a good spec");
                let mut payload = Vec::new();
                codec.encode(&raw, context, 1, &mut payload).expect("a good block");
                let name = format!("{name} u{} of {width} bits", 8 * element_bytes);
                report(&format!("{name} encode"), bytes, || {
                    codec.encode(black_box(&raw), context, 1, &mut payload).expect("a good block");
                });
                report(&format!("{name} decode"), bytes, || {
                    codec.decode(black_box(&payload), 0..bytes, context, &mut out).expect("a good payload");
                });
            }
            if element_bytes == 4 {
                let packer = bitpacking::BitPacker4x::new();
                let values: Vec<u32> = (0..count).map(|i| value(i) as u32).collect();
                let mut packed = vec![0; bytes];
                let mut unpacked = vec![0u32; values.len()];
                let mut at = 0;
                let block = bitpacking::BitPacker4x::BLOCK_LEN;
                for chunk in values.chunks_exact(block) {
                    at += packer.compress(chunk, &mut packed[at..], width as u8);
                }
                let one = block * width as usize / 8;
                report(&format!("crate bitpacking u32 of {width} bits decode"), bytes, || {
                    for (chunk, packed) in unpacked.chunks_exact_mut(block).zip(black_box(&packed).chunks_exact(one)) {
                        packer.decompress(packed, chunk, width as u8);
                    }
                });
                assert_eq!(unpacked, values);
            }
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn blocks() {
    let context = BlockContext { space_id: 1, block_key: &[0; 12] };
    let bytes = 1 << 20;
    let smooth: Vec<u8> = (0..bytes / 4).flat_map(|i| ((i as f32 * 0.001).sin() * 100.0).to_le_bytes()).collect();
    for compression in
        ["none", "lz4", "lz4+shuffle", "lz4+bitshuffle", "zstd:1+shuffle", "zstd:3+shuffle", "zstd:3+bitshuffle"]
    {
        for encrypted in [false, true] {
            let compression = compression.parse().ok();
            let (block_bytes, framing) = (bytes as u64, super::Framing::V3);
            let spec = CodecSpec { compression, encrypted, element_bytes: 4, block_bytes, framing };
            let key = CipherKey::new(&[1; 32], [2; 16]).expect("32 bytes");
            let codec = Codec::new(spec, encrypted.then_some(&key)).expect("a good spec");
            let (mut payload, mut out) = (Vec::new(), vec![0; bytes]);
            codec.encode(&smooth, context, 1, &mut payload).expect("a good block");
            let ratio = bytes as f64 / payload.len() as f64;
            let name = format!(
                "{} {}",
                spec.compression.map_or("none".into(), |c| c.to_string()),
                if encrypted { "sealed" } else { "" }
            );
            report(&format!("{name} ({ratio:.2}x) encode"), bytes, || {
                codec.encode(black_box(&smooth), context, 1, &mut payload).expect("a good block");
            });
            report(&format!("{name} decode"), bytes, || {
                codec.decode(black_box(&payload), 0..bytes, context, &mut out).expect("a good payload");
            });
        }
    }
}
