//! Blocks re-scheduled onto the units of a VLIW core, and loops of one block at their initiation interval.
//!
//! Programs are compiled for RISC-V, one instruction after the other; a compiler for the core would have packed what
//! does not depend on each other. A block is therefore scheduled by lists: by operands, units of each kind, and packets
//! of at most `width` instructions. A branch goes as early as its operands allow, since packets behind it fill its
//! delay slots. A block that branches to itself runs, from its second iteration on, at max(ResMII, RecMII) (Rau, MICRO
//! 1994), as a software-pipelined loop does; its first iteration pays the way in and out.
//!
//! Accesses of memory are taken to depend on each other only if both use one base register that is not written between
//! them, and overlap. Renaming is free: only true dependences count, within a block and from one iteration to the next.

use std::collections::BTreeMap;

use nandarray_hart::BasicBlock;

use super::{AT_REST, BlockExit, BlockSummary, BlockTimer, Breakdown, PipelineState, TimedOp};
use crate::describe::{CoreDescription, VliwUnits};
use crate::unit::{FunctionalUnit, REGISTERS};

/// Kinds of units.
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

/// Whether two instructions of this unit may share it for a cycle.
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

/// A dependence of one instruction on another: the later one is issued at least `cycles` behind the earlier one, of the
/// iteration that lies `iterations` back.
#[derive(Clone, Copy, Debug)]
struct Dependence {
    from: usize,
    to: usize,
    cycles: u64,
    iterations: u64,
}

fn cycles(d: &CoreDescription, unit: FunctionalUnit) -> u64 {
    u64::from(d.latency.of(unit)).div_ceil(u64::from(d.cycle))
}

/// Where an access of memory was, to compare with later ones.
#[derive(Clone, Copy)]
struct SeenAccess {
    op: usize,
    base: u8,
    /// The write of the base register that it saw, by instruction.
    version: Option<usize>,
    offset: i32,
    store: bool,
}

/// True dependences of a block; with `around`, those on the iteration before as well.
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
            // Stream accesses keep their order.
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

/// Units and slots taken, by cycle.
#[derive(Default)]
struct ExecutePackets(BTreeMap<u64, (u32, [u32; 3], [u32; FunctionalUnit::COUNT])>);

impl ExecutePackets {
    /// Whether a unit is free in a cycle; takes it if so.
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

/// A block's schedule: the cycle of each instruction, and the number of cycles of the block.
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

/// The initiation interval of a block that repeats: max(ResMII, RecMII).
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
    // The smallest interval for which no circle of dependences is longer than the interval allows (Bellman and Ford).
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

/// Works out a block from a state.
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
        // Full packets are issue; the rest waits for operands, or for delay slots that nothing fills.
        let packets = (ops.len() as u64).div_ceil(u64::from(units.width)) * cycle;
        let issue = packets.min(ticks);
        Breakdown { issue, hazard: ticks - issue, ..Breakdown::default() }
    };
    let through = PipelineState { registers: own(&at, length), ..PipelineState::default() };
    let out = split(length * cycle);
    let taken = if loops {
        // Iterations overlap: the next one finds its operands as the interval says.
        BlockExit { ticks: split(interval(&d, &units, ops).min(length) * cycle), state: AT_REST }
    } else {
        BlockExit { ticks: out, state: timing.number(through.clone()) }
    };
    let through = BlockExit { ticks: out, state: timing.number(through) };
    BlockSummary { state, through, taken, issue_at: at.iter().map(|at| (at * cycle) as u32).collect() }
}
