//! Schedules blocks onto the units of a VLIW core, and loops of one block at their initiation interval.
//!
//! Programs are compiled for RISC-V, one instruction after the other; a compiler for the VLIW core would have packed
//! independent instructions together. A block is therefore list-scheduled: by operands, units of each kind, and packets
//! of at most `width` instructions. A branch is issued as early as its operands allow, since later packets fill its
//! delay slots. A block that branches to itself takes, from its second iteration on, max(ResMII, RecMII) cycles (the
//! bounds of resources and of recurrences; Rau, MICRO 1994), as a software-pipelined loop does; its first iteration
//! pays for prologue and epilogue.
//!
//! Two memory accesses are assumed to depend on each other only if they overlap and use the same base register, not
//! written in between. Renaming is free: only true dependences count, within a block and from one iteration to the
//! next.

use std::collections::BTreeMap;

use nandarray_hart::BasicBlock;

use super::{AT_REST, BlockExit, BlockSummary, BlockTimer, Breakdown, PipelineState, TimedOp};
use crate::describe::{CoreDescription, VliwUnits};
use crate::unit::{FunctionalUnit, REGISTERS};

/// Kinds of units of a VLIW core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VliwUnitKind {
    Multiply,
    Memory,
    General,
}

fn kind(unit: FunctionalUnit) -> VliwUnitKind {
    match unit {
        FunctionalUnit::Multiply
        | FunctionalUnit::FloatMultiply
        | FunctionalUnit::DoubleMultiply
        | FunctionalUnit::FloatFused
        | FunctionalUnit::DoubleFused => VliwUnitKind::Multiply,
        FunctionalUnit::Load | FunctionalUnit::Store | FunctionalUnit::Atomic | FunctionalUnit::Stream => {
            VliwUnitKind::Memory
        }
        _ => VliwUnitKind::General,
    }
}

/// Returns whether two instructions of this kind may share a unit for a cycle.
fn pairs(unit: FunctionalUnit) -> bool {
    matches!(unit, FunctionalUnit::FloatAdd | FunctionalUnit::FloatMultiply | FunctionalUnit::FloatFused)
}

fn count(units: &VliwUnits, kind: VliwUnitKind) -> u32 {
    match kind {
        VliwUnitKind::Multiply => units.multiply,
        VliwUnitKind::Memory => units.memory,
        VliwUnitKind::General => units.general,
    }
}

/// A dependence of one instruction on another: the later instruction is issued at least `cycles` cycles after the
/// earlier one, which belongs to an iteration that is `iterations` iterations before.
#[derive(Clone, Copy, Debug)]
struct Dependence {
    from: usize,
    to: usize,
    cycles: u64,
    iterations: u64,
}

fn cycles(d: &CoreDescription, unit: FunctionalUnit) -> u64 {
    u64::from(d.latency_of(unit)).div_ceil(u64::from(d.cycle))
}

/// Address of a memory access, to be compared with later accesses.
#[derive(Clone, Copy)]
struct SeenAccess {
    op: usize,
    base: u8,
    /// Index of the instruction that wrote the base register last, before the access; `None` if it was written before
    /// the block.
    version: Option<usize>,
    offset: i32,
    store: bool,
}

/// Returns the true dependences of a block; with `around`, also those on the iteration before.
fn dependences(d: &CoreDescription, ops: &[TimedOp], around: bool) -> Vec<Dependence> {
    let mut found = Vec::new();
    let mut writer: [Option<usize>; REGISTERS] = [None; REGISTERS];
    let mut last: [Option<usize>; REGISTERS] = [None; REGISTERS];
    for (i, op) in ops.iter().enumerate() {
        if let Some(register) = op.operands.destination {
            last[register as usize] = Some(i);
        }
    }
    let mut seen: Vec<SeenAccess> = Vec::new();
    let mut streams: Option<usize> = None;
    for (to, op) in ops.iter().enumerate() {
        for &register in op.operands.sources() {
            match (writer[register as usize], last[register as usize]) {
                (Some(from), _) => {
                    found.push(Dependence { from, to, cycles: cycles(d, ops[from].unit), iterations: 0 })
                }
                (None, Some(from)) if around => {
                    found.push(Dependence { from, to, cycles: cycles(d, ops[from].unit), iterations: 1 });
                }
                _ => {}
            }
        }
        if let Some((base, offset)) = op.address {
            let store = op.unit == FunctionalUnit::Store;
            let version = writer[base as usize];
            for one in &seen {
                let same = one.base == base && one.version == version;
                // The widest access is 8 bytes.
                if same && (one.store || store) && (one.offset - offset).abs() < 8 {
                    found.push(Dependence { from: one.op, to, cycles: u64::from(one.store), iterations: 0 });
                }
            }
            seen.push(SeenAccess { op: to, base, version, offset, store });
        }
        if op.unit == FunctionalUnit::Stream {
            // Stream accesses stay in order.
            if let Some(from) = streams {
                found.push(Dependence { from, to, cycles: 0, iterations: 0 });
            }
            streams = Some(to);
        }
        if let Some(register) = op.operands.destination {
            writer[register as usize] = Some(to);
        }
    }
    found
}

/// The slots and units that are taken in each cycle.
#[derive(Default)]
struct ExecutePackets(BTreeMap<u64, (u32, [u32; 3], [u32; FunctionalUnit::COUNT])>);

impl ExecutePackets {
    /// Takes a slot and a unit in a cycle; returns false, and takes nothing, if none is free.
    fn take(&mut self, units: &VliwUnits, cycle: u64, unit: FunctionalUnit) -> bool {
        let (slots, kinds, ops) = self.0.entry(cycle).or_insert((0, [0; 3], [0; FunctionalUnit::COUNT]));
        let kind = kind(unit);
        if units.simd_pairs && pairs(unit) && ops[unit as usize] % 2 == 1 {
            ops[unit as usize] += 1;
            return true;
        }
        if *slots == units.width || kinds[kind as usize] == count(units, kind) {
            return false;
        }
        *slots += 1;
        kinds[kind as usize] += 1;
        ops[unit as usize] += 1;
        true
    }
}

/// Schedules a block: returns the cycle of each instruction, and the number of cycles of the block. `ready` is the
/// cycle in which each register is ready.
fn schedule(d: &CoreDescription, units: &VliwUnits, ops: &[TimedOp], ready: &[u64; REGISTERS]) -> (Vec<u64>, u64) {
    let needs = dependences(d, ops, false);
    let mut at = vec![0u64; ops.len()];
    let mut packets = ExecutePackets::default();
    let mut free = [0u64; FunctionalUnit::COUNT];
    let mut written = [false; REGISTERS];
    for (i, op) in ops.iter().enumerate() {
        let outside = op.operands.sources().iter().filter(|&&r| !written[r as usize]).map(|&r| ready[r as usize]).max();
        let inside = needs.iter().filter(|n| n.to == i).map(|n| at[n.from] + n.cycles).max();
        let mut cycle = outside.unwrap_or(0).max(inside.unwrap_or(0)).max(free[op.unit as usize]);
        while !packets.take(units, cycle, op.unit) {
            cycle += 1;
        }
        if d.unpipelined.contains(&op.unit) {
            free[op.unit as usize] = cycle + cycles(d, op.unit);
        }
        at[i] = cycle;
        if let Some(register) = op.operands.destination {
            written[register as usize] = true;
        }
    }
    let last = at.iter().max().map_or(0, |last| last + 1);
    let branch = ops.last().filter(|op| matches!(op.unit, FunctionalUnit::Branch | FunctionalUnit::Jump));
    let end = branch.map_or(last, |op| last.max(at[ops.len() - 1] + cycles(d, op.unit)));
    (at, end)
}

/// Returns the initiation interval of a block that repeats, in cycles: max(ResMII, RecMII).
pub(super) fn interval(d: &CoreDescription, units: &VliwUnits, ops: &[TimedOp]) -> u64 {
    let mut used = [0u32; 3];
    let mut slots = 0u32;
    let mut by_unit = [0u32; FunctionalUnit::COUNT];
    for op in ops {
        by_unit[op.unit as usize] += 1;
    }
    for unit in FunctionalUnit::ALL {
        let n = by_unit[unit as usize];
        let n = if units.simd_pairs && pairs(unit) { n.div_ceil(2) } else { n };
        used[kind(unit) as usize] += n;
        slots += n;
    }
    let resources = [VliwUnitKind::Multiply, VliwUnitKind::Memory, VliwUnitKind::General]
        .map(|k| used[k as usize].div_ceil(count(units, k)));
    let mut least = u64::from(resources.into_iter().max().unwrap_or(0).max(slots.div_ceil(units.width)).max(1));
    for unit in &d.unpipelined {
        least = least.max(u64::from(by_unit[*unit as usize]) * cycles(d, *unit));
    }
    let needs = dependences(d, ops, true);
    // The smallest interval for which no cycle of dependences takes longer than the interval allows (Bellman and Ford).
    let fits = |interval: u64| {
        let mut start = vec![0i64; ops.len()];
        for round in 0..=ops.len() {
            let mut moved = false;
            for n in &needs {
                let earliest = start[n.from] + n.cycles as i64 - (interval * n.iterations) as i64;
                if start[n.to] < earliest {
                    start[n.to] = earliest;
                    moved = true;
                }
            }
            if !moved {
                return true;
            }
            if round == ops.len() {
                return false;
            }
        }
        true
    };
    while !fits(least) {
        least += 1;
    }
    least
}

/// Computes the timing of a block from a pipeline state.
pub(super) fn summary(timing: &mut BlockTimer, block: &BasicBlock, ops: &[TimedOp], state: u32) -> BlockSummary {
    let d = timing.description.clone();
    let units = d.vliw.expect("a checked description of a VLIW core has units");
    let cycle = u64::from(d.cycle);
    let before = timing.states[state as usize].clone();
    let mut ready = [0u64; REGISTERS];
    for &(register, ticks) in &before.registers {
        ready[register as usize] = u64::from(ticks).div_ceil(cycle);
    }
    let (at, length) = schedule(&d, &units, ops, &ready);
    let loops = ops.last().is_some_and(|op| op.conditional)
        && block.ops.last().is_some_and(|op| {
            // The target of the branch is the block's first instruction.
            block.address(block.ops.len() - 1).wrapping_add(op.imm as u64) == block.pc
        });
    let own = |at: &[u64], end: u64| -> Vec<(u8, u32)> {
        let mut left = BTreeMap::new();
        for (op, &at) in ops.iter().zip(at) {
            if let Some(register) = op.operands.destination {
                let ready = (at + cycles(&d, op.unit)).saturating_sub(end);
                left.insert(register, (ready * cycle) as u32);
            }
        }
        left.into_iter().filter(|&(_, ticks)| ticks > 0).collect()
    };
    let split = |ticks: u64| {
        // Full packets count as issue; the rest of the time is waiting for operands, or delay slots that nothing fills.
        let packets = (ops.len() as u64).div_ceil(u64::from(units.width)) * cycle;
        let issue = packets.min(ticks);
        Breakdown { issue, hazard: ticks - issue, ..Breakdown::default() }
    };
    let through = PipelineState { registers: own(&at, length), ..PipelineState::default() };
    let out = split(length * cycle);
    let taken = if loops {
        // Iterations overlap: at the initiation interval, the operands of the next iteration are ready.
        BlockExit { ticks: split(interval(&d, &units, ops).min(length) * cycle), state: AT_REST }
    } else {
        BlockExit { ticks: out, state: timing.number(through.clone()) }
    };
    let through = BlockExit { ticks: out, state: timing.number(through) };
    BlockSummary { state, through, taken, issue_at: at.iter().map(|at| (at * cycle) as u32).collect() }
}
