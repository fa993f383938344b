//! Measurement of the codec's throughput on this machine, to be run by hand; it does not test correctness.
//!
//! `cargo test --release -p nandarray codec::measure -- --ignored --nocapture --test-threads 1`. Buffers have the size
//! of one frame, and are in the first or second level cache; each figure is the best of several rounds on one core.
//! `examples/codecs.rs` measures packing of integers.

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
