//! Measures the CPU time that conventional flash management takes for a read, and for a write with its share of
//! reclaim, and the memory of a large device. Run with `cargo bench -p nandarray-model --bench ftl_speed`.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark reads the clock and prints")]

use nandarray_model::describe::{self, GcPolicy};
use nandarray_model::internals::{FtlError, MapOp, PageMapped, Urgency};
use std::time::Instant;

const READS: u64 = 10_000_000;

/// Returns the resident memory of this process in MiB; NaN where the operating system does not report it.
fn resident_mib() -> f64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|s| s.split_whitespace().nth(1)?.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * 4096.0 / f64::from(1 << 20)
}

/// A clock of this process's CPU time; of wall time where the operating system does not report CPU time.
struct Clock {
    cpu_ns: Option<u64>,
    wall: Instant,
}

impl Clock {
    fn start() -> Self {
        Self { cpu_ns: Self::cpu_ns(), wall: Instant::now() }
    }

    fn cpu_ns() -> Option<u64> {
        std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
    }

    fn ns(&self) -> f64 {
        match (self.cpu_ns, Self::cpu_ns()) {
            (Some(from), Some(to)) => (to - from) as f64,
            _ => self.wall.elapsed().as_secs_f64() * 1e9,
        }
    }
}

fn ns_each(start: &Clock, count: u64) -> f64 {
    start.ns() / count as f64
}

fn reads(ftl: &mut PageMapped, what: &str) {
    let mut chance = fastrand::Rng::with_seed(1);
    let pages = ftl.capacity_pages();
    let mut ops: Vec<MapOp> = Vec::new();
    let mut sum = 0;
    let start = Clock::start();
    for _ in 0..READS {
        let place = ftl.read(chance.u64(0..pages), 0, &mut ops).expect("within the device");
        sum += place.map_or(0, |p| u64::from(p.block));
    }
    println!("read, {what}: {:.1} ns ({sum})", ns_each(&start, READS));
}

fn write(ftl: &mut PageMapped, lpa: u64, ops: &mut Vec<MapOp>) {
    loop {
        match ftl.write(lpa, true, 0, |_| 0, ops) {
            Ok(to) if to.reclaim == Urgency::None => return,
            Ok(to) => {
                ftl.reclaim_at_once(to.plane).expect("room");
                return;
            }
            Err(FtlError::NotNow { plane }) => {
                ftl.reclaim_at_once(plane).expect("room");
            }
            Err(e) => panic!("{e}"),
        }
    }
}

fn writes(ftl: &mut PageMapped, count: u64, what: &str) {
    let mut chance = fastrand::Rng::with_seed(2);
    let pages = ftl.capacity_pages();
    let mut ops = Vec::new();
    ftl.forget_counts();
    let start = Clock::start();
    for _ in 0..count {
        write(ftl, chance.u64(0..pages), &mut ops);
    }
    let ns = ns_each(&start, count);
    println!("write, {what}: {ns:.1} ns, write amplification {:.3}", ftl.report().write_amplification);
}

fn main() {
    let before = resident_mib();
    let start = Clock::start();
    let d = describe::preset("mqsim-ideal").expect("a preset");
    let mut ftl = PageMapped::new(&d, 1, &|_, _, _| false).expect("a device");
    ftl.fill_sequential().expect("room");
    let took = start.ns() / 1e6;
    println!("512 GiB, sequentially full: set up in {took:.1} ms, {:.1} MiB", resident_mib() - before);
    reads(&mut ftl, "sequentially full, 512 GiB");
    writes(&mut ftl, 3_000_000, "first 3 million at random, 512 GiB");
    reads(&mut ftl, "partly overwritten, 512 GiB");
    println!("then {:.1} MiB", resident_mib() - before);
    drop(ftl);
    for gc in [
        GcPolicy::Greedy,
        GcPolicy::DChoices(11),
        GcPolicy::CostBenefit,
        GcPolicy::RoundRobin,
        GcPolicy::WindowedGreedy(8),
    ] {
        for blocks in [64, 512] {
            let mut d = d.clone();
            d.geometry.blocks = blocks;
            d.ftl.over_provisioning = 0.2;
            d.ftl.gc = gc;
            d.ftl.gc_threshold = 0.02;
            d.ftl.gc_urgent_blocks = 0;
            d.ftl.wear_static_threshold = None;
            let mut ftl = PageMapped::new(&d, 1, &|_, _, _| false).expect("a device");
            ftl.fill_sequential().expect("room");
            let pages = ftl.capacity_pages();
            ftl.steady_state(3, pages, pages).expect("room");
            writes(&mut ftl, 2_000_000, &format!("steady state, {gc:?}, over-provisioning 20 %, {} GiB", blocks / 4));
        }
    }
}
