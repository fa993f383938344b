//! Promise: blocks whose timing is computed once take as many ticks as their instructions one by one, however a run is
//! divided, and no program's results depend on its timing.

mod common;

use common::{bare, run};
use nandarray_hart::isa::Instruction;
use nandarray_hart::{BasicBlock, Meter};
use nandarray_uarch::{CoreDescription, FunctionalUnit, Issue, Operands, TimedCore};
use proptest::prelude::*;

/// All instructions that were executed, and whether a branch was taken.
#[derive(Debug, Default)]
struct Trace(Vec<(Instruction, bool)>);

impl Meter for Trace {
    const BLOCKS: bool = true;
    const BRANCHES: bool = true;

    fn decoded(&mut self, unit: u32, block: &BasicBlock) {
        let _ = (unit, block);
    }
    fn part(&mut self, block: &BasicBlock) {
        self.0.extend(block.ops.iter().map(|&op| (op, false)));
    }
    fn enter(&mut self, _unit: u32) {
        panic!("one instruction a run is never a block with a number");
    }
    fn left(&mut self, block: &BasicBlock, index: usize) {
        self.0.truncate(self.0.len() - (block.ops.len() - index));
    }
    fn single(&mut self, _pc: u64, op: &Instruction) {
        self.0.push((*op, false));
    }
    fn branch(&mut self, taken: bool) {
        self.0.last_mut().expect("a branch was executed").1 = taken;
    }
}

/// Computes the ticks of a trace from absolute times: a second, slow implementation without pipeline states or blocks.
fn slowly(trace: &[(Instruction, bool)], d: &CoreDescription) -> u64 {
    let cycle = u64::from(d.cycle);
    if d.issue == Issue::Blocking {
        let ticks = |&(op, taken): &(Instruction, bool)| {
            let unit = FunctionalUnit::of(&op);
            let more = match (unit, taken) {
                (FunctionalUnit::Branch, true) => d.t_taken.max(d.t_not_taken),
                (FunctionalUnit::Branch, false) => d.t_not_taken,
                _ => 0,
            };
            u64::from(d.latency.of(unit) + more)
        };
        return trace.iter().map(ticks).sum();
    }
    let (mut ready, mut free) = ([0u64; 129], [0u64; FunctionalUnit::COUNT]);
    let (mut at, mut in_cycle, mut memory) = (0u64, 0u32, false);
    for &(op, taken) in trace {
        let (unit, operands) = (FunctionalUnit::of(&op), Operands::of(&op));
        let latency = u64::from(d.latency.of(unit));
        let access = matches!(unit, FunctionalUnit::Load | FunctionalUnit::Store | FunctionalUnit::Atomic);
        loop {
            let full = in_cycle == d.width || access && memory && in_cycle > 0;
            let waits = operands.sources().iter().any(|&r| ready[r as usize] > at)
                || operands.destination.is_some_and(|r| at + latency <= ready[r as usize])
                || free[unit as usize] > at;
            if !full && !waits {
                break;
            }
            at += cycle;
            (in_cycle, memory) = (0, false);
        }
        if let Some(register) = operands.destination {
            ready[register as usize] = at + latency;
        }
        if d.unpipelined.contains(&unit) {
            free[unit as usize] = at + latency;
        }
        in_cycle += 1;
        memory |= access;
        let ends = match unit {
            FunctionalUnit::Jump => Some(latency.max(cycle)),
            FunctionalUnit::Branch if taken => Some(cycle + u64::from(d.t_taken.max(d.t_not_taken))),
            FunctionalUnit::Branch if d.t_not_taken > 0 => Some(cycle + u64::from(d.t_not_taken)),
            _ => None,
        };
        if let Some(ticks) = ends {
            at += ticks;
            (in_cycle, memory) = (0, false);
        }
    }
    at
}

fn instruction() -> impl Strategy<Value = String> {
    let register = || prop::sample::select(vec!["t1", "t2", "t3", "t4", "s2", "s3"]);
    let float = || prop::sample::select(vec!["ft0", "ft1", "fa2"]);
    prop_oneof![
        4 => (register(), register(), register()).prop_map(|(d, a, b)| format!("add {d}, {a}, {b}")),
        2 => (register(), register(), register()).prop_map(|(d, a, b)| format!("mul {d}, {a}, {b}")),
        1 => (register(), register(), register()).prop_map(|(d, a, b)| format!("div {d}, {a}, {b}")),
        2 => (register(), 0..64u32).prop_map(|(d, i)| format!("ld {d}, {}(a0)", 8 * i)),
        2 => (register(), 0..64u32).prop_map(|(s, i)| format!("sd {s}, {}(a0)", 8 * i)),
        1 => (float(), float(), float()).prop_map(|(d, a, b)| format!("fmul.d {d}, {a}, {b}, rne")),
        1 => (float(), float(), float()).prop_map(|(d, a, b)| format!("fdiv.s {d}, {a}, {b}, rne")),
        // A branch that may jump over the next instruction.
        1 => (register(), register()).prop_map(|(a, b)| format!("bltu {a}, {b}, . + 8")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn blocks_take_what_their_instructions_take(
        body in prop::collection::vec(instruction(), 1..40),
        loops in 1..12u32,
        chunk in 1..200u64,
        preset in prop::sample::select(vec!["zou-2023", "ibex", "five-stage", "ex5"]),
    ) {
        let mut lines = vec![format!("addi t0, zero, {loops}")];
        lines.extend(body.iter().cloned());
        // If the body ends with a branch, one more instruction is inserted after it, for the branch to jump over.
        lines.push("addi t0, t0, -1".into());
        lines.push(format!("bne t0, zero, . - {}", 4 * (body.len() + 1)));
        lines.push("jalr zero, 0(ra)".into());
        if body.last().is_some_and(|line| line.starts_with("bltu")) {
            lines.insert(lines.len() - 3, "addi t6, zero, 1".into());
            let at = lines.len() - 2;
            lines[at] = format!("bne t0, zero, . - {}", 4 * (body.len() + 2));
        }
        let d = bare(preset);
        let trace = run(&lines, Trace::default(), Some(1));
        let expected = slowly(&trace.meter().0, &d);
        let whole = run(&lines, TimedCore::new(&d), None);
        let report = whole.meter().report();
        prop_assert_eq!(report.instructions(), trace.meter().0.len() as u64);
        prop_assert_eq!(report.ticks, expected, "{} in blocks", preset);
        let cut = run(&lines, TimedCore::new(&d), Some(chunk));
        prop_assert_eq!(cut.meter().ticks(), expected, "{} in runs of {}", preset, chunk);
        for x in 0..32 {
            prop_assert_eq!(whole.x(x), trace.x(x));
        }
        // Caches change only times.
        let cached = run(&lines, TimedCore::preset(preset).unwrap(), Some(chunk));
        prop_assert!(cached.meter().ticks() >= expected);
        prop_assert_eq!(cached.meter().report().instructions(), report.instructions());
        for hart in [&whole, &cut, &cached] {
            let (by_address, meter) = (hart.meter().addresses(), hart.meter());
            prop_assert_eq!(by_address.values().map(|found| found.total()).sum::<u64>(), meter.ticks());
            prop_assert_eq!(by_address.values().map(|found| found.times).sum::<u64>(), report.instructions());
        }
        for x in 0..32 {
            prop_assert_eq!(cached.x(x), trace.x(x));
        }
    }
}
