//! Registers that an instruction reads and writes, and facts about floating-point registers at each node of a region.

use nandarray_hart::isa::{Code, Extension, Format, Instruction};

use crate::region::Region;

/// A set of registers: bit `n` is integer register `n`, bit `32 + n` floating-point register `n`; integer register 0 is
/// never in it.
pub(crate) type Set = u64;

fn x(number: u8) -> Set {
    (1 << (number & 31)) & !1
}

fn f(number: u8) -> Set {
    1 << (32 + (number & 31))
}

/// Returns the registers that an instruction reads.
pub(crate) fn reads(op: &Instruction) -> Set {
    use Format::*;
    match op.row().format {
        Register | Branch | Store => x(op.rs1) | x(op.rs2),
        Immediate | Shift | ShiftWord | Unary | Load | JumpRegister | FloatLoad => x(op.rs1),
        FloatStore => x(op.rs1) | f(op.rs2),
        FloatFused => f(op.rs1) | f(op.rs2) | f(op.rs3),
        FloatRounded | FloatRegister | FloatCompare => f(op.rs1) | f(op.rs2),
        FloatUnaryRounded | FloatToIntRounded | FloatToInt => f(op.rs1),
        IntToFloatRounded | IntToFloat => x(op.rs1),
        StreamStore | StreamRead => x(op.rs2),
        _ => 0,
    }
}

/// Returns the registers that an instruction writes.
pub(crate) fn writes(op: &Instruction) -> Set {
    use Format::*;
    match op.row().format {
        Register | Immediate | Shift | ShiftWord | Unary | Load | Jump | JumpRegister | Upper | Csr | CsrImmediate
        | FloatCompare | FloatToIntRounded | FloatToInt | StreamLoad | StreamRead => x(op.rd),
        FloatLoad | FloatFused | FloatRounded | FloatUnaryRounded | FloatRegister | IntToFloatRounded | IntToFloat => {
            f(op.rd)
        }
        _ => 0,
    }
}

/// Whether an instruction's floating-point sources are numbers of single precision; false if it uses their bits
/// unchanged.
pub(crate) fn reads_single(op: &Instruction) -> bool {
    match op.code {
        Code::FcvtDS => true,
        Code::Fsw | Code::FmvXW => false,
        _ => op.row().extension == Extension::F,
    }
}

/// Whether an instruction's floating-point result is a number of single precision.
pub(crate) fn writes_single(op: &Instruction) -> bool {
    match op.code {
        Code::FcvtSD => true,
        Code::FcvtDS => false,
        _ => op.row().extension == Extension::F,
    }
}

/// Facts about the registers of a region, whatever path execution takes through it.
#[derive(Debug)]
pub(crate) struct Knowledge {
    /// Registers that some instruction of the region reads or writes.
    pub(crate) used: Set,
    /// For each node, registers that are written on some path from the entry to it.
    pub(crate) dirty: Vec<Set>,
    /// For each node, floating-point registers (bits 0 to 31) that hold a boxed number of single precision whenever it
    /// is reached.
    pub(crate) single: Vec<u32>,
    /// Floating-point registers that must hold a boxed number of single precision when the region is entered.
    pub(crate) wanted: u32,
}

fn floats(set: Set) -> u32 {
    (set >> 32) as u32
}

/// Effect of a node's instructions on floating-point registers; one bit each.
#[derive(Clone, Copy, Default)]
struct FloatEffect {
    /// Registers that the node reads as single precision before it writes them.
    exposed_single: u32,
    exposed_other: u32,
    written: u32,
    /// Registers written by the node that hold single precision at its end.
    made_single: u32,
    all: Set,
}

fn effect(ops: &[Instruction]) -> FloatEffect {
    let mut e = FloatEffect::default();
    for op in ops {
        let fresh = floats(reads(op)) & !e.written;
        if reads_single(op) {
            e.exposed_single |= fresh;
        } else {
            e.exposed_other |= fresh;
        }
        let target = writes(op);
        e.all |= target;
        let target = floats(target);
        e.written |= target;
        e.made_single = if writes_single(op) { e.made_single | target } else { e.made_single & !target };
    }
    e
}

impl Knowledge {
    pub(crate) fn of(region: &Region) -> Self {
        let nodes = &region.nodes;
        let effects: Vec<FloatEffect> = nodes.iter().map(|n| effect(&n.ops)).collect();
        let successors: Vec<Vec<usize>> = nodes.iter().map(|n| n.successors()).collect();
        let used = nodes.iter().flat_map(|n| &n.ops).fold(0, |set, op| set | reads(op) | writes(op));
        // Backwards from the ends: registers that are read before they are written, from each node on.
        let mut exposed = vec![(0u32, 0u32); nodes.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for n in (0..nodes.len()).rev() {
                let (mut single, mut other) = (0, 0);
                for s in &successors[n] {
                    single |= exposed[*s].0;
                    other |= exposed[*s].1;
                }
                let e = &effects[n];
                let new = (e.exposed_single | single & !e.written, e.exposed_other | other & !e.written);
                changed |= new != exposed[n];
                exposed[n] = new;
            }
        }
        let wanted = exposed[0].0 & !exposed[0].1;
        // Forwards from the entry: registers that were written on some path, and that are single on all paths.
        let mut dirty = vec![0; nodes.len()];
        let mut single = vec![u32::MAX; nodes.len()];
        single[0] = wanted;
        changed = true;
        while changed {
            changed = false;
            for n in 0..nodes.len() {
                let e = &effects[n];
                let (written, kept) = (dirty[n] | e.all, single[n] & !e.written | e.made_single);
                for s in &successors[n] {
                    let new = (dirty[*s] | written, single[*s] & kept);
                    changed |= new != (dirty[*s], single[*s]);
                    (dirty[*s], single[*s]) = new;
                }
            }
        }
        debug_assert!(dirty.iter().all(|set| set & !used == 0), "a register that no instruction uses was written");
        Self { used, dirty, single, wanted }
    }
}

#[cfg(test)]
#[path = "registers_tests.rs"]
mod tests;
