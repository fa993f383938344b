//! Schedules of a VLIW core: each is checked against dependences and units found by a search of the instructions, and a
//! loop's interval against the longest cycle through a full matrix of paths.

use nandarray_hart::BasicBlock;
use nandarray_hart::isa::{Instruction, assemble};
use nandarray_uarch::issue::{AT_REST, BlockTimer, TimedOp};
use nandarray_uarch::{CoreDescription, FunctionalUnit, VliwUnits};
use proptest::prelude::*;

use super::common::bare;

/// The pair of instructions of a dependence, the cycles between them, and the number of iterations.
type Edge = (usize, usize, i64, i64);

fn cycles(d: &CoreDescription, op: &TimedOp) -> i64 {
    i64::from(d.latency_of(op.unit).div_ceil(d.cycle))
}

/// Finds the instruction that wrote a register last before instruction `at`.
fn writer(ops: &[TimedOp], at: usize, register: u8) -> Option<usize> {
    (0..at).rev().find(|&i| ops[i].operands.destination == Some(register))
}

/// Lists the dependences of a loop's body by a search for each source and each pair of accesses.
fn edges(d: &CoreDescription, ops: &[TimedOp]) -> Vec<Edge> {
    let mut all = Vec::new();
    for (to, op) in ops.iter().enumerate() {
        for &source in op.operands.sources() {
            if let Some(from) = writer(ops, to, source) {
                all.push((from, to, cycles(d, &ops[from]), 0));
            } else if let Some(from) = writer(ops, ops.len(), source) {
                all.push((from, to, cycles(d, &ops[from]), 1));
            }
        }
        let Some((base, offset)) = op.address else { continue };
        for (from, before) in ops[..to].iter().enumerate() {
            let Some((other, place)) = before.address else { continue };
            let stores = [before, op].map(|op| op.unit == FunctionalUnit::Store);
            let unchanged = writer(ops, from, base) == writer(ops, to, base);
            if other == base && unchanged && stores.contains(&true) && place.abs_diff(offset) < 8 {
                all.push((from, to, i64::from(stores[0]), 0));
            }
        }
    }
    all
}

/// The places of each kind: multipliers, memory, general.
fn kind(op: &TimedOp) -> usize {
    match op.unit {
        FunctionalUnit::Multiply | FunctionalUnit::FloatMultiply | FunctionalUnit::DoubleMultiply => 0,
        FunctionalUnit::Load | FunctionalUnit::Store => 1,
        _ => 2,
    }
}

/// Returns the least interval at which the units suffice.
fn resources(d: &CoreDescription, units: VliwUnits, ops: &[TimedOp]) -> i64 {
    let of_kind = |k: usize| ops.iter().filter(|op| kind(op) == k).count() as u32;
    let places = [units.multiply, units.memory, units.general];
    let kinds = (0..3).map(|k| of_kind(k).div_ceil(places[k]));
    let whole = kinds.chain([(ops.len() as u32).div_ceil(units.width)]).max().unwrap();
    let of_unit = |unit: FunctionalUnit| ops.iter().filter(|op| op.unit == unit).map(|op| cycles(d, op)).sum::<i64>();
    d.unpipelined.iter().map(|&unit| of_unit(unit)).max().unwrap_or(0).max(i64::from(whole))
}

/// Whether some cycle of dependences takes longer than an interval allows: the longest way between any two
/// instructions, by Floyd and Warshall.
fn recurs(n: usize, edges: &[Edge], interval: i64) -> bool {
    const NONE: i64 = i64::MIN / 4;
    let mut way = vec![vec![NONE; n]; n];
    for &(from, to, cycles, iterations) in edges {
        way[from][to] = way[from][to].max(cycles - interval * iterations);
    }
    for over in 0..n {
        for from in 0..n {
            for to in 0..n {
                if way[from][over] > NONE && way[over][to] > NONE {
                    way[from][to] = way[from][to].max((way[from][over] + way[over][to]).min(1 << 20));
                }
            }
        }
    }
    (0..n).any(|i| way[i][i] > 0)
}

fn instruction() -> impl Strategy<Value = String> {
    let register = || prop::sample::select(vec!["t1", "t2", "t3", "s2"]);
    let float = || prop::sample::select(vec!["ft0", "ft1", "fa2"]);
    let base = || prop::sample::select(vec!["a0", "t1"]);
    prop_oneof![
        4 => (register(), register(), register()).prop_map(|(d, a, b)| format!("add {d}, {a}, {b}")),
        2 => (register(), register(), register()).prop_map(|(d, a, b)| format!("mul {d}, {a}, {b}")),
        1 => (register(), register(), register()).prop_map(|(d, a, b)| format!("div {d}, {a}, {b}")),
        2 => (register(), base(), 0..6u32).prop_map(|(d, a, i)| format!("ld {d}, {}({a})", 4 * i)),
        2 => (register(), base(), 0..6u32).prop_map(|(s, a, i)| format!("sd {s}, {}({a})", 4 * i)),
        2 => (float(), float(), float()).prop_map(|(d, a, b)| format!("fmul.d {d}, {a}, {b}, rne")),
        2 => (float(), float(), float()).prop_map(|(d, a, b)| format!("fadd.s {d}, {a}, {b}, rne")),
        1 => (float(), float(), float()).prop_map(|(d, a, b)| format!("fdiv.d {d}, {a}, {b}, rne")),
    ]
}

/// Returns a block of these lines, at address 0x1000, with a branch to its beginning.
fn looped(lines: &[String]) -> BasicBlock {
    let back = format!("bne t0, zero, . - {}", 4 * lines.len());
    let assembled = |line: &String| assemble(line, 64).unwrap_or_else(|e| panic!("{line}: {e}"));
    let ops: Vec<Instruction> = lines.iter().chain([&back]).map(assembled).collect();
    BasicBlock { pc: 0x1000, ops }
}

/// Checks that no cycle of a schedule has more instructions of a kind, or together, than there are places.
fn places_suffice(units: VliwUnits, ops: &[TimedOp], at: &[i64]) -> Result<(), TestCaseError> {
    let places = [units.multiply, units.memory, units.general];
    for cycle in 0..=at.iter().copied().max().unwrap() {
        let now: Vec<usize> = (0..ops.len()).filter(|&i| at[i] == cycle).collect();
        prop_assert!(now.len() <= units.width as usize, "cycle {}: {} instructions", cycle, now.len());
        for (k, most) in places.into_iter().enumerate() {
            let of_kind = now.iter().filter(|&&i| kind(&ops[i]) == k).count();
            prop_assert!(of_kind <= most as usize, "cycle {}: {} of kind {}", cycle, of_kind, k);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_schedule_keeps_dependences_and_places_and_a_loop_its_interval(
        lines in prop::collection::vec(instruction(), 1..24),
        places in (1u32..4, 1u32..3, 1u32..5, 1u32..9),
        cycle in 1u32..3,
    ) {
        let mut d = bare("c66x");
        d.cycle = cycle;
        let units = VliwUnits {
            multiply: places.0, memory: places.1, general: places.2, width: places.3, simd_pairs: false, fused: true,
        };
        d.vliw = Some(units);
        d.check().unwrap();
        let block = looped(&lines);
        let ops: Vec<TimedOp> = block.ops.iter().map(TimedOp::from).collect();
        let summary = BlockTimer::new(&d).summary(&block, &ops, AT_REST, None);
        let at: Vec<i64> = summary.issue_at.iter().map(|&tick| i64::from(tick)).collect();
        prop_assert!(at.iter().all(|tick| tick % i64::from(cycle) == 0), "instructions are issued in whole cycles");
        let at: Vec<i64> = at.iter().map(|tick| tick / i64::from(cycle)).collect();
        let edges = edges(&d, &ops);
        for &(from, to, after, _) in edges.iter().filter(|edge| edge.3 == 0) {
            prop_assert!(at[to] >= at[from] + after, "{} is issued {} cycles behind {}", to, at[to] - at[from], from);
        }
        places_suffice(units, &ops, &at)?;
        for unit in &d.unpipelined {
            let mut own: Vec<i64> = (0..ops.len()).filter(|&i| ops[i].unit == *unit).map(|i| at[i]).collect();
            own.sort_unstable();
            let busy = i64::from(d.latency_of(*unit).div_ceil(cycle));
            prop_assert!(own.windows(2).all(|two| two[1] - two[0] >= busy), "{:?} of {} cycles: {:?}", unit, busy, own);
        }
        let last = at.iter().copied().max().unwrap() + 1;
        let length = last.max(at[ops.len() - 1] + cycles(&d, &ops[ops.len() - 1]));
        prop_assert_eq!(summary.through.ticks.total() as i64, length * i64::from(cycle));
        // No worse than one instruction after the other.
        prop_assert!(length <= ops.iter().map(|op| cycles(&d, op)).sum::<i64>());
        let least = (resources(&d, units, &ops)..).find(|&interval| !recurs(ops.len(), &edges, interval)).unwrap();
        let wanted = least.min(length) * i64::from(cycle);
        prop_assert_eq!(summary.taken.ticks.total() as i64, wanted, "{} of {} cycles", least, length);
        prop_assert_eq!(summary.taken.state, AT_REST, "the next iteration finds its operands");
    }

    /// A result that is late at a block's end delays the next block by just what is left of it.
    #[test]
    fn a_late_result_delays_the_block_behind(before in 0usize..50, unit in 0usize..3) {
        let d = bare("c66x");
        let (late, unit) = [
            ("div t1, t2, t3", FunctionalUnit::Divide),
            ("fdiv.d fa1, fa2, fa3, rne", FunctionalUnit::DoubleDivide),
            ("mul t1, t2, t3", FunctionalUnit::Multiply),
        ][unit];
        let user = if unit == FunctionalUnit::DoubleDivide { "fadd.d fa4, fa1, fa1, rne" } else { "add t4, t1, t1" };
        // A chain of additions, after which the block ends.
        let chain = std::iter::repeat_n("add s2, s2, s2", before.max(1));
        let block = |lines: Vec<&str>| {
            let ops: Vec<Instruction> = lines.iter().map(|line| assemble(line, 64).unwrap()).collect();
            let timed: Vec<TimedOp> = ops.iter().map(TimedOp::from).collect();
            (BasicBlock { pc: 0x1000, ops }, timed)
        };
        let (first, first_ops) = block(std::iter::once(late).chain(chain).collect());
        let (second, second_ops) = block(vec![user]);
        let mut timer = BlockTimer::new(&d);
        let behind = timer.summary(&first, &first_ops, AT_REST, None).through;
        let then = timer.summary(&second, &second_ops, behind.state, None);
        let (passed, latency) = (before.max(1) as u64, u64::from(d.latency.of(unit)));
        prop_assert_eq!(behind.ticks.total(), passed);
        prop_assert_eq!(u64::from(then.issue_at[0]), latency.saturating_sub(passed));
    }
}
