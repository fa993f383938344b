//! Promise: a change of the model's inner cut changes no run. Replays and commands of the store on every preset, made
//! small, against the hashes and latencies in `same_runs/golden.txt`.
//!
//! A change that is meant to change runs (another time in a preset, another order of events) replaces the lines that
//! the failed test prints, and says in its commit why they changed.

use std::fmt::Write as _;
use std::sync::Arc;

use nandarray::{BufferMut, Device, Mode, NewSpace, Options, Source, SpaceId, Target, command};
use nandarray_model::describe::{self, Description};
use nandarray_model::store::{self, Backing, Clock};
use nandarray_model::{Arrival, Generator, Machine, Pattern, Size, Synthetic};

const GOLDEN: &str = include_str!("same_runs/golden.txt");

/// Returns a preset with so few blocks that reclaim has work, and with the changes of `more`.
fn small(preset: &str, more: &[(&str, &str)]) -> Description {
    let overrides = [
        ("geometry.blocks", "24"),
        ("geometry.pages", "24"),
        ("ftl.gc_urgent_blocks", "2"),
        ("ftl.over_provisioning", "30 %"),
    ];
    let overrides: Vec<_> = overrides.iter().chain(more).copied().collect();
    describe::preset_with(preset, &overrides).unwrap_or_else(|e| panic!("{preset}: {e}"))
}

fn fold(digest: u64, value: u64) -> u64 {
    (digest ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// Replays a workload; returns the run's hash, the modelled end, the number of requests, and a digest of each request's
/// latency and status.
fn replayed(description: &Description, synthetic: Synthetic) -> String {
    let mut machine = Machine::new(description, 1, None);
    machine.attach_blocks(1).unwrap();
    machine.ftl().fill_sequential().unwrap();
    let mut source = Generator::new(synthetic, machine.capacity_bytes()).unwrap();
    let (mut requests, mut digest) = (0u64, 0u64);
    let mut each = |e: &nandarray_model::RequestEnded| {
        requests += 1;
        digest = fold(fold(fold(digest, e.arrived.0), e.done.0), e.status as u64);
    };
    machine.drive(&mut source, &mut each, &mut |_| true).unwrap();
    machine.ftl().audit();
    format!("{:016x} {} ps, {requests} requests {digest:016x}", machine.hash(), machine.now().0)
}

fn mixed(requests: u64) -> Synthetic {
    Synthetic {
        read_share: 0.4,
        trim_share: 0.05,
        flush_every: 150,
        sizes: vec![
            Size { bytes: 4096, weight: 3.0 },
            Size { bytes: 512, weight: 1.0 },
            Size { bytes: 65536, weight: 1.0 },
        ],
        align_bytes: Some(512),
        streams: 3,
        requests: Some(requests),
        ..Synthetic::default()
    }
}

fn workloads() -> Vec<(&'static str, Synthetic)> {
    let reads = Synthetic {
        arrival: Arrival::Closed { depth: 256 },
        streams: 5,
        requests: Some(2_000),
        ..Synthetic::default()
    };
    let alone = Synthetic { arrival: Arrival::Closed { depth: 1 }, requests: Some(50), ..Synthetic::default() };
    let open = Synthetic { arrival: Arrival::Poisson { per_s: 50_000.0 }, pattern: Pattern::Sequential, ..mixed(500) };
    vec![("reads at depth 256", reads), ("reads at depth 1", alone), ("mixed", mixed(1_500)), ("open loop", open)]
}

struct Modelled {
    device: Device,
    clock: Arc<Clock>,
}

impl Modelled {
    fn array(&self, name: &str, block: &[u64]) -> SpaceId {
        let new = NewSpace {
            name,
            shape: &[192, 256],
            item_bytes: 4,
            dtype: "<u4",
            block: Some(block),
            compression: None,
            key: None,
            fill: None,
            attrs: "{}",
        };
        self.device.execute(command::Create(new)).unwrap().id
    }

    fn moved(&self, space: SpaceId, start: [u64; 2], count: [u64; 2], write: bool) {
        let mut bytes = vec![7u8; (count[0] * count[1] * 4) as usize];
        let strides = [count[1] as isize * 4, 4];
        let target = Target::Box { start: &start, step: &[1, 1], count: &count, strides: &strides, view: None };
        if write {
            // SAFETY: the target reaches exactly the bytes of the vector.
            let source = unsafe { Source::from_raw(bytes.as_ptr()) };
            self.device.execute(command::Write { space, target, source }).unwrap();
        } else {
            // SAFETY: the same.
            let out = unsafe { BufferMut::from_raw(bytes.as_mut_ptr()) };
            self.device.execute(command::Read { space, target, out }).unwrap();
        }
    }
}

/// Executes commands of a store and returns the run's hash: whole and partial writes, reads along both axes, overwrites
/// until reclaim moves blocks, batches, flushes.
fn stored(description: &Description) -> String {
    let options = Options::default();
    let (device, clock) = store::open(&Backing::Memory, Mode::Append, &options, description, None).unwrap();
    let store = Modelled { device, clock };
    let (wide, square) = (store.array("wide", &[8, 256]), store.array("square", &[64, 64]));
    for space in [wide, square] {
        store.moved(space, [0, 0], [192, 256], true);
        store.moved(space, [3, 5], [70, 90], false);
        store.moved(space, [10, 7], [9, 200], true);
    }
    store.device.execute(command::Flush).unwrap();
    for depth in [1, 4, 32] {
        store.clock.batch();
        for i in 0..24u64 {
            store.moved(square, [i * 7 % 128, 0], [64, 256], false);
            store.moved(wide, [0, i * 9], [192, 8], false);
            if i % 5 == 0 {
                store.moved(square, [64 * (i % 3), 0], [64, 256], true);
            }
        }
        store.clock.end_batch(depth);
    }
    for round in 0..12u64 {
        store.moved(if round % 2 == 0 { wide } else { square }, [0, 0], [192, 256], true);
        store.device.execute(command::Flush).unwrap();
    }
    store.clock.settle();
    let report = store.clock.report(&[]);
    let latency = |of: &nandarray_model::OpReport| of.latency.as_ref().map_or(0.0, |l| l.mean_us);
    let (read, write, flush) = (latency(&report.read), latency(&report.write), latency(&report.flush));
    let now = store.clock.now().0;
    let hash = store.clock.machine(|m| m.hash());
    format!("{hash:016x} {now} ps, read {read:.6} us, write {write:.6} us, flush {flush:.6} us")
}

fn table() -> String {
    let mut table = String::new();
    let mut line = |name: &str, what: &str, result: String| writeln!(table, "{name}: {what}: {result}").unwrap();
    for name in describe::presets() {
        for (what, synthetic) in workloads() {
            line(name, what, replayed(&small(name, &[]), synthetic));
        }
        line(name, "store", stored(&small(name, &[("geometry.blocks", "64")])));
    }
    let variants: [(&str, &[(&str, &str)]); 5] = [
        ("write cache", &[("ftl.write_cache", "128 KiB"), ("ftl.early_completion", "true")]),
        ("write cache, late", &[("ftl.write_cache", "32 KiB"), ("ftl.early_completion", "false")]),
        ("cached map", &[("ftl.map_cache", "4 KiB"), ("ftl.gc_preemptible", "true")]),
        ("grown bad blocks", &[("reliability.grown_bad_ppm", "3000"), ("ftl.gc_preemptible", "false")]),
        (
            "firmware",
            &[
                ("controller.t_command", "1 us"),
                ("controller.t_complete", "300 ns"),
                ("controller.t_channel", "100 ns"),
            ],
        ),
    ];
    for (what, overrides) in variants {
        line("tiny", what, replayed(&small("tiny", overrides), mixed(3_000)));
    }
    let full = [("geometry.pages", "8"), ("geometry.blocks", "20")];
    line("tiny", "store, nearly full", stored(&small("tiny", &full)));
    line(
        "tiny",
        "software NDS",
        stored(&small("tiny", &[("controller.spaces_in_device", "false"), ("geometry.blocks", "64")])),
    );
    line(
        "samsung-970-pro",
        "software NDS",
        stored(&small("samsung-970-pro", &[("controller.spaces_in_device", "false"), ("geometry.blocks", "64")])),
    );
    table
}

#[test]
fn every_run_is_the_one_it_was() {
    let (now, mut changed) = (table(), String::new());
    for line in now.lines() {
        if !GOLDEN.lines().any(|golden| golden == line) {
            writeln!(changed, "{line}").unwrap();
        }
    }
    let (lines, golden) = (now.lines().count(), GOLDEN.lines().count());
    assert!(changed.is_empty() && lines == golden, "{golden} lines were kept, {lines} came out; changed:\n{changed}");
}

/// The machine runs on the thread that drives it: other threads and other machines do not change its results.
#[test]
fn a_run_is_the_same_beside_any_number_of_threads() {
    let description = small("tiny", &[]);
    let alone = replayed(&description, mixed(500));
    for threads in [2, 4] {
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(|| replayed(&description, mixed(500)))).collect();
            for one in all {
                assert_eq!(nandarray::internals::joined(one), alone, "one of {threads} threads");
            }
        });
    }
}
