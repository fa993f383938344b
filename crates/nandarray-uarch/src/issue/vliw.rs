//! Schedules blocks onto the units of a VLIW core, and loops of one block at their initiation interval.
//!
//! Programs are compiled for RISC-V, one instruction after the other; a compiler for the VLIW core would have packed
//! independent instructions together. A block is therefore list-scheduled: by operands, units of each kind, and packets
//! of at most `width` instructions. A branch is issued as early as its operands allow, since later packets fill its
//! delay slots. A block that branches to itself takes, from its second iteration on, max(ResMII, RecMII) cycles (the
//! bounds of resources and of recurrences; Rau, MICRO 1994), as a software-pipelined loop does; its first iteration
//! pays for prologue and epilogue. A loop whose instructions are too many for a block is several, none of which but the
//! last one branches: they divide the interval among them.
//!
//! A core without fused operations multiplies and adds: a fused operation occupies a multiplier, and a general unit
//! when the product is there, which is also when the addend is read.
//!
//! Two memory accesses are assumed to depend on each other only if they overlap and use the same base register, not
//! written in between. Renaming is free: only true dependences count, within a block and from one iteration to the
//! next.

use std::collections::BTreeMap;

use nandarray_hart::BasicBlock;

use super::{
    AT_REST, BlockExit, BlockSummary, BlockTimer, Breakdown, PipelineState, PipelinedIteration, StraightLoop, TimedOp,
};
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

/// Returns the cycles from an instruction's issue to the addition that a general unit executes for it; `None` if one
/// unit executes the whole instruction.
fn addition(d: &CoreDescription, units: &VliwUnits, unit: FunctionalUnit) -> Option<u64> {
    match unit {
        FunctionalUnit::FloatFused if !units.fused => Some(cycles(d, FunctionalUnit::FloatMultiply)),
        FunctionalUnit::DoubleFused if !units.fused => Some(cycles(d, FunctionalUnit::DoubleMultiply)),
        _ => None,
    }
}

/// Returns the units that an instruction occupies for a cycle each: kind, and cycles from its issue on.
fn occupied(
    d: &CoreDescription,
    units: &VliwUnits,
    unit: FunctionalUnit,
) -> impl Iterator<Item = (VliwUnitKind, u64)> + Clone {
    let addition = addition(d, units, unit).map(|later| (VliwUnitKind::General, later));
    std::iter::once((kind(unit), 0)).chain(addition)
}

/// Returns the cycles from an instruction's issue to its use of a source register.
fn used_after(d: &CoreDescription, units: &VliwUnits, op: &TimedOp, register: u8) -> u64 {
    if op.addend == Some(register) { addition(d, units, op.unit).unwrap_or(0) } else { 0 }
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
fn dependences(d: &CoreDescription, units: &VliwUnits, ops: &[TimedOp], around: bool) -> Vec<Dependence> {
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
            let (from, iterations) = match (writer[register as usize], last[register as usize]) {
                (Some(from), _) => (from, 0),
                (None, Some(from)) if around => (from, 1),
                _ => continue,
            };
            let cycles = cycles(d, ops[from].unit).saturating_sub(used_after(d, units, op, register));
            found.push(Dependence { from, to, cycles, iterations });
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

/// The resources of a cycle that are taken: slots, units by kind, and units with one operation of a pair.
#[derive(Clone, Copy)]
struct ExecutePacket {
    slots: u32,
    kinds: [u32; 3],
    halves: [bool; FunctionalUnit::COUNT],
}

/// The slots and units that are taken in each cycle.
#[derive(Default)]
struct ExecutePackets(BTreeMap<u64, ExecutePacket>);

impl ExecutePackets {
    fn packet(&mut self, cycle: u64) -> &mut ExecutePacket {
        let empty = ExecutePacket { slots: 0, kinds: [0; 3], halves: [false; FunctionalUnit::COUNT] };
        self.0.entry(cycle).or_insert(empty)
    }

    /// Takes slots and units for an instruction that is issued in a cycle; returns false, and takes nothing, if none is
    /// free.
    fn take(&mut self, d: &CoreDescription, units: &VliwUnits, cycle: u64, op: &TimedOp) -> bool {
        let pairs = units.simd_pairs && op.single;
        let half = &mut self.packet(cycle).halves[op.unit as usize];
        if pairs && std::mem::replace(half, false) {
            return true;
        }
        let places = occupied(d, units, op.unit);
        let is_free = |packet: &ExecutePacket, kind: VliwUnitKind| {
            packet.slots < units.width && packet.kinds[kind as usize] < count(units, kind)
        };
        if !places.clone().all(|(kind, later)| is_free(self.packet(cycle + later), kind)) {
            return false;
        }
        for (kind, later) in places {
            let packet = self.packet(cycle + later);
            packet.slots += 1;
            packet.kinds[kind as usize] += 1;
        }
        self.packet(cycle).halves[op.unit as usize] = pairs;
        true
    }
}

/// Schedules a block: returns the cycle of each instruction, and the number of cycles of the block. `ready` is the
/// cycle in which each register is ready.
fn schedule(d: &CoreDescription, units: &VliwUnits, ops: &[TimedOp], ready: &[u64; REGISTERS]) -> (Vec<u64>, u64) {
    let needs = dependences(d, units, ops, false);
    let mut at = vec![0u64; ops.len()];
    let mut packets = ExecutePackets::default();
    let mut free = [0u64; FunctionalUnit::COUNT];
    let mut written = [false; REGISTERS];
    for (i, op) in ops.iter().enumerate() {
        let before = op.operands.sources().iter().filter(|&&r| !written[r as usize]);
        let outside = before.map(|&r| ready[r as usize].saturating_sub(used_after(d, units, op, r))).max();
        let inside = needs.iter().filter(|n| n.to == i).map(|n| at[n.from] + n.cycles).max();
        let mut cycle = outside.unwrap_or(0).max(inside.unwrap_or(0)).max(free[op.unit as usize]);
        while !packets.take(d, units, cycle, op) {
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
    debug_assert!(needs.iter().all(|n| at[n.from] + n.cycles <= at[n.to]), "an instruction before its operands");
    let last = at.iter().max().map_or(0, |last| last + 1);
    let branch = ops.last().filter(|op| matches!(op.unit, FunctionalUnit::Branch | FunctionalUnit::Jump));
    let end = branch.map_or(last, |op| last.max(at[ops.len() - 1] + cycles(d, op.unit)));
    (at, end)
}

/// Returns the initiation interval of a block that repeats, in cycles: max(ResMII, RecMII).
pub(super) fn interval(d: &CoreDescription, units: &VliwUnits, ops: &[TimedOp]) -> u64 {
    let mut used = [0u32; 3];
    let mut slots = 0u32;
    let (mut by_unit, mut paired) = ([0u32; FunctionalUnit::COUNT], [0u32; FunctionalUnit::COUNT]);
    for op in ops {
        by_unit[op.unit as usize] += 1;
        paired[op.unit as usize] += u32::from(units.simd_pairs && op.single);
    }
    for unit in FunctionalUnit::ALL {
        let n = by_unit[unit as usize] - paired[unit as usize] / 2;
        for (kind, _) in occupied(d, units, unit) {
            used[kind as usize] += n;
            slots += n;
        }
    }
    let resources = [VliwUnitKind::Multiply, VliwUnitKind::Memory, VliwUnitKind::General]
        .map(|k| used[k as usize].div_ceil(count(units, k)));
    let mut least = u64::from(resources.into_iter().max().unwrap_or(0).max(slots.div_ceil(units.width)).max(1));
    for unit in &d.unpipelined {
        least = least.max(u64::from(by_unit[*unit as usize]) * cycles(d, *unit));
    }
    let needs = dependences(d, units, ops, true);
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

/// Divides a block's ticks: full packets count as issue; the rest of the time is waiting for operands, or delay slots
/// that nothing fills.
fn divided(units: &VliwUnits, ops: usize, cycle: u64, ticks: u64) -> Breakdown {
    debug_assert!(units.width > 0, "a core without slots");
    let issue = ((ops as u64).div_ceil(u64::from(units.width)) * cycle).min(ticks);
    Breakdown { issue, hazard: ticks - issue, ..Breakdown::default() }
}

/// Returns the pipeline state behind a taken branch to the first block of a loop of several, and so between iterations.
fn around(d: &CoreDescription, units: &VliwUnits, ends: &StraightLoop) -> PipelineState {
    let ticks = interval(d, units, &ends.ops) * u64::from(d.cycle);
    let iteration = PipelinedIteration { pc: ends.pc, ticks, ops: ends.ops.len() as u64 };
    PipelineState { iteration: Some(iteration), ..PipelineState::default() }
}

/// Returns the registers that are not ready at the end of a schedule, with the ticks until they are.
fn left_behind(d: &CoreDescription, ops: &[TimedOp], at: &[u64], end: u64) -> Vec<(u8, u32)> {
    let mut left = BTreeMap::new();
    for (op, &at) in ops.iter().zip(at) {
        if let Some(register) = op.operands.destination {
            let ready = (at + cycles(d, op.unit)).saturating_sub(end);
            left.insert(register, (ready * u64::from(d.cycle)) as u32);
        }
    }
    left.into_iter().filter(|&(_, ticks)| ticks > 0).collect()
}

/// Computes the timing of a block in an iteration of a software-pipelined loop of several blocks: its share of the
/// interval.
fn share(
    timing: &mut BlockTimer,
    (block, ops): (&BasicBlock, &[TimedOp]),
    (state, iteration): (u32, PipelinedIteration),
    ends: Option<&StraightLoop>,
) -> BlockSummary {
    let d = timing.description.clone();
    let units = d.vliw.expect("a checked description of a VLIW core has units");
    let own = ops.len() as u64;
    debug_assert!(own <= iteration.ops, "a block of {own} instructions, {} left in its loop", iteration.ops);
    let ticks = iteration.ticks * own / iteration.ops;
    debug_assert!(ticks <= iteration.ticks, "{ticks} of {} ticks", iteration.ticks);
    let (left, pc) = (iteration.ops - own, block.address(ops.len()));
    let next = PipelinedIteration { pc, ticks: iteration.ticks - ticks, ops: left };
    // The first iteration paid for the loop's epilogue: all results are there behind the last one.
    let through = PipelineState { iteration: (left > 0).then_some(next), ..PipelineState::default() };
    let divided = divided(&units, ops.len(), u64::from(d.cycle), ticks);
    let through = BlockExit { ticks: divided, state: timing.number(through) };
    let taken = ends.map(|ends| around(&d, &units, ends));
    let taken = taken.map_or(through.state, |state| timing.number(state));
    let issue_at = (0..own).map(|op| (ticks * op / own) as u32).collect();
    BlockSummary { state, through, taken: BlockExit { ticks: divided, state: taken }, issue_at }
}

/// Computes the timing of a block from a pipeline state. `ends` is the loop of several blocks that the block ends.
pub(super) fn summary(
    timing: &mut BlockTimer,
    block: &BasicBlock,
    ops: &[TimedOp],
    state: u32,
    ends: Option<&StraightLoop>,
) -> BlockSummary {
    let before = timing.states[state as usize].clone();
    let own = ops.len() as u64;
    if let Some(iteration) = before.iteration.filter(|left| left.pc == block.pc && left.ops >= own) {
        return share(timing, (block, ops), (state, iteration), ends);
    }
    let d = timing.description.clone();
    let units = d.vliw.expect("a checked description of a VLIW core has units");
    let cycle = u64::from(d.cycle);
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
    let out = divided(&units, ops.len(), cycle, length * cycle);
    let through = PipelineState { registers: left_behind(&d, ops, &at, length), ..PipelineState::default() };
    let through = BlockExit { ticks: out, state: timing.number(through) };
    let taken = if loops {
        // Iterations overlap: at the initiation interval, the operands of the next iteration are ready.
        let ticks = interval(&d, &units, ops).min(length) * cycle;
        BlockExit { ticks: divided(&units, ops.len(), cycle, ticks), state: AT_REST }
    } else {
        let state = ends.map(|ends| around(&d, &units, ends));
        BlockExit { ticks: out, state: state.map_or(through.state, |state| timing.number(state)) }
    };
    BlockSummary { state, through, taken, issue_at: at.iter().map(|at| (at * cycle) as u32).collect() }
}
