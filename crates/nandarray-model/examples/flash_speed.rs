//! Flash operations simulated a CPU second, by the back end and the event queue alone: random 4 KiB reads.
//!
//! `cargo run --release -p nandarray-model --example flash_speed [OPERATIONS [PRESET]]`
//!
//! Prints how the cost grows with queue depth and channels. CPU time is the process's own, so that a busy machine
//! changes it little.
#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::fs;

use nandarray_model::describe::{Description, Scheduling, preset, preset_with};
use nandarray_model::internals::{Backend, FlashEvent, FlashOp};
use nandarray_model::{OpCause, OpKind, PageAddress, Ps};
use nandarray_sim::Events;

/// Returns the CPU seconds of this process so far, from its scheduler statistics.
fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/self/schedstat").expect("Linux tells a process's run time");
    let ns: f64 = text.split_whitespace().next().and_then(|s| s.parse().ok()).expect("nanoseconds come first");
    ns / 1e9
}

/// Keeps `depth` reads in flight until `operations` have ended; returns operations per CPU second, and operations per
/// second of modelled time.
fn random_reads(description: &Description, depth: u64, operations: u64) -> (f64, f64) {
    let g = description.geometry;
    let mut flash = Backend::new(description, 1, None);
    let mut events: Events<FlashEvent> = Events::default();
    let mut ended = Vec::new();
    let mut chance = fastrand::Rng::with_seed(7);
    let mut place = || {
        let draw = chance.u64(..);
        PageAddress {
            die: ((draw as u32 & 0xFFFF) * g.dies_total()) >> 16,
            plane: (((draw >> 16 & 0xFF) as u32 * g.planes) >> 8) as u16,
            block: ((draw >> 24 & 0xFFFF) as u32 * g.blocks) >> 16,
            page: (((draw >> 40 & 0xFFFF) as u32 * g.pages) >> 16) as u16,
        }
    };
    let read = |place, token| FlashOp { op: OpKind::Read, cause: OpCause::Host, place, bytes: 4_096, token };
    let begin = cpu_seconds();
    for token in 0..depth {
        flash.submit(Ps::ZERO, read(place(), token), &mut events);
    }
    let mut submitted = depth;
    while let Some((now, event)) = events.pop() {
        flash.handle(now, event, &mut events, &mut ended);
        for e in ended.drain(..) {
            if submitted < operations {
                submitted += 1;
                flash.submit(now, read(place(), e.token), &mut events);
            }
        }
    }
    let spent = cpu_seconds() - begin;
    flash.check(events.now()).expect("it adds up");
    (submitted as f64 / spent, submitted as f64 / events.now().seconds())
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let operations: u64 = arguments.next().map_or(2_000_000, |s| s.parse().expect("a number of operations"));
    let name = arguments.next().unwrap_or_else(|| "mqsim-ideal".to_owned());
    let base = preset(&name).expect("a preset");
    let _ = random_reads(&base, 256, operations / 4);
    println!("{name}, {operations} random 4 KiB reads, one CPU");
    println!("{:>12} {:>9} {:>6} {:>14} {:>16}", "scheduling", "channels", "depth", "ops/CPU s", "simulated IOPS");
    let print = |description: &Description, depth| {
        let (speed, iops) = random_reads(description, depth, operations);
        let scheduling = format!("{:?}", description.controller.scheduling);
        println!("{scheduling:>12} {:>9} {depth:>6} {speed:>14.0} {iops:>16.0}", description.geometry.channels);
    };
    for depth in [1, 8, 32, 256, 2_048] {
        print(&base, depth);
    }
    for channels in ["2", "32", "128"] {
        let d = preset_with(&name, &[("geometry.channels", channels)]).expect("a preset with other channels");
        print(&d, u64::from(d.geometry.channels) * 32);
    }
    for scheduling in [Scheduling::Fifo, Scheduling::MqsimCompat] {
        let mut d = base.clone();
        d.controller.scheduling = scheduling;
        print(&d, 256);
    }
}
