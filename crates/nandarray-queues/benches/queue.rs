//! Queue pairs beside a bare one, on one thread that plays both sides: `python -m bench queue`, or
//! `cargo bench -p nandarray-queues --bench queue -- [--short]`.
//!
//! The bare pair is the floor: 64-byte entries and 16-byte completions in plain memory, 32 in flight, without checks,
//! and a copy from random places of memory as large as the array. Ours is a server of a store in a file, and its
//! client.
#![allow(
    missing_docs,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program of its own, that measures"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nandarray::{Device, Mode, NewSpace, Options, Source, Target, command};
use nandarray_queues::{QueueClient, QueueServer, RegionGeometry, ServeOptions};

const DEPTH: usize = 32;
const ROWS: u64 = 16 << 10;
const ROW_BYTES: u64 = 4096;

/// Returns the time of a command in nanoseconds: the best of seven rounds, each of `commands` commands.
fn best(commands: usize, mut round: impl FnMut()) -> f64 {
    let time = |round: &mut dyn FnMut()| {
        let began = Instant::now();
        round();
        began.elapsed().as_secs_f64() * 1e9 / commands as f64
    };
    (0..7).map(|_| time(&mut round)).fold(f64::INFINITY, f64::min)
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct BareEntry([u64; 8]);

/// Gathers records by a bare queue pair, both of whose sides run on this thread; each command copies `bytes` bytes.
fn bare(records: &[u64], bytes: usize, memory: &[u8], out: &mut [u8]) {
    let (tail, mut sq) = (AtomicU32::new(0), [BareEntry([0; 8]); DEPTH]);
    let cq: Vec<AtomicU64> = (0..DEPTH).map(|_| AtomicU64::new(0)).collect();
    for (batch, some) in records.chunks(DEPTH).enumerate() {
        for (slot, &record) in some.iter().enumerate() {
            sq[slot] = BareEntry([2, record, slot as u64, 0, 0, 0, 0, 0]);
        }
        tail.store((batch * DEPTH + some.len()) as u32, Ordering::Release);
        black_box(tail.load(Ordering::Acquire));
        for (slot, done) in cq.iter().enumerate().take(some.len()) {
            let entry = black_box(sq[slot]);
            let to = (batch * DEPTH + slot) * bytes;
            let from = entry.0[1] as usize * ROW_BYTES as usize;
            out[to..to + bytes].copy_from_slice(&memory[from..from + bytes]);
            done.store(entry.0[2] << 1 | 1, Ordering::Release);
        }
        for done in cq.iter().take(some.len()) {
            while done.load(Ordering::Acquire) & 1 == 0 {}
            done.store(0, Ordering::Relaxed);
        }
    }
}

fn store(folder: &std::path::Path, block: Option<Vec<u64>>) -> Arc<Device> {
    let device = Device::open_file(&folder.join("a.nand"), Mode::Append, &Options::default()).unwrap();
    let shape = [ROWS, ROW_BYTES / 4];
    let new = NewSpace {
        name: "x",
        shape: &shape,
        item_bytes: 4,
        dtype: "<f4",
        block: block.as_deref(),
        compression: None,
        key: None,
        fill: None,
        attrs: "{}",
    };
    let space = device.execute(command::Create(new)).unwrap().id;
    let bytes: Vec<u8> = (0..ROWS * ROW_BYTES).map(|i| ((i * 7) >> 3) as u8).collect();
    let (start, step, strides) = ([0, 0], [1, 1], [ROW_BYTES as isize, 4]);
    let target = Target::Box { start: &start, step: &step, count: &shape, strides: &strides, view: None };
    // SAFETY: `bytes` are those of the whole array.
    let source = unsafe { Source::from_raw(bytes.as_ptr()) };
    device.execute(command::Write { space, target, source }).unwrap();
    Arc::new(device)
}

fn main() {
    let short = std::env::args().any(|a| a == "--short");
    // One kind of command alone, for a profile: `--only "4 KiB"`.
    let only = std::env::args().skip_while(|a| a != "--only").nth(1);
    // Blocks of whole rows, where the store's own choice cuts each row in four: `--rows`.
    let block = std::env::args().any(|a| a == "--rows").then(|| vec![64, ROW_BYTES / 4]);
    let commands = if short { 1 << 13 } else { 1 << 16 };
    let dir = tempfile::tempdir().unwrap();
    let device = store(dir.path(), block);
    let geometry = RegionGeometry {
        queues: 1,
        depth: DEPTH as u32,
        data_bytes: (1 << 20) + commands as u64 * ROW_BYTES,
        threads: 1,
    };
    // In `/dev/shm`, as every server's.
    let name = format!("bench-{}", std::process::id());
    let mut server = QueueServer::stepped(
        &device,
        &name,
        ServeOptions { geometry, writable: false, group: None, catalog: Vec::new() },
    )
    .unwrap();
    let mut step = || {
        server.step();
    };
    let client = QueueClient::open_with(&name, Duration::from_secs(10), &mut step).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let records: Vec<u64> = (0..commands).map(|_| random.u64(..ROWS)).collect();
    let memory = vec![1u8; (ROWS * ROW_BYTES) as usize];
    let mut out = vec![0u8; commands * ROW_BYTES as usize];
    let nsid = client.arrays()[0].nsid;
    let cases = [("no payload", 0u64, nsid + 9), ("512 B", 512, nsid), ("4 KiB", ROW_BYTES, nsid)];
    for (what, bytes, nsid) in cases {
        if only.as_ref().is_some_and(|only| only != what) {
            continue;
        }
        let floor = best(commands, || bare(&records, bytes as usize, &memory, &mut out));
        let size = bytes.max(512);
        let spread: Vec<u64> = records.iter().map(|r| r * (ROW_BYTES / size)).collect();
        let ours = best(commands, || {
            // SAFETY: `out` has room for all records. Commands without payload are refused for their namespace.
            let done = unsafe { client.gather_with(nsid, size, &spread, out.as_mut_ptr(), &mut step) };
            assert_eq!(done.is_ok(), bytes > 0, "{done:?}");
        });
        println!("{{\"what\": \"{what}\", \"bare_ns\": {floor:.1}, \"ours_ns\": {ours:.1}}}");
    }
}
