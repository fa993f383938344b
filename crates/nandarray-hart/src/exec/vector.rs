//! Vector instructions: passes the operands of a step to the vector unit's functions, by group of instructions.
//!
//! A step's `imm` holds the instruction's code above its immediate, and `rs3` whether it is masked, its fields and its
//! kind of operand. The module `vector` executes; scalar registers, traps and memory are connected here.

use super::{Exit, Flow, HartState, Step, StepSlot, handlers, next, operands};
use crate::isa::{Code, Format, Instruction, TABLE};
use crate::trap::Cause;
use crate::vector::{self, Addresses, VectorOp, VectorResult, VectorTrap, VectorUnit};
use crate::work::VectorWork;
use crate::xlen::Xlen;

/// Bit of a step's `rs3` that is set for a masked instruction. The next two constants are the positions of other fields
/// in `rs3`.
const MASKED: u8 = 1;
const FIELDS: u32 = 1;
const KIND: u32 = 4;
/// Kind of the operand that replaces `vs1`: 1 is an integer register. The next two constants are the other kinds, an
/// immediate and a floating-point register.
const REGISTER: u8 = 1;
const IMMEDIATE: u8 = 2;
const FLOAT: u8 = 3;

/// Writes the operands of a vector instruction to its step.
pub(super) fn pack<X: Xlen>(op: &Instruction, step: &mut Step<X>) {
    use Format::*;
    let row = op.row();
    let kind = match row.format {
        VectorVx | VectorMulX | VectorMoveX => REGISTER,
        VectorVi | VectorVu | VectorMoveI | VectorUnary => IMMEDIATE,
        VectorVf | VectorMulF | VectorMoveF => FLOAT,
        _ => 0,
    };
    let masked = if row.mask >> 25 & 1 != 0 { row.bits >> 25 & 1 == 0 } else { op.rm == 0 };
    debug_assert!((-0x8000..0x1_0000).contains(&op.imm), "an immediate of more than 16 bits: {}", op.imm);
    step.imm = (op.code as i32) << 16 | op.imm & 0xffff;
    if row.format == VarveOpen {
        return;
    }
    debug_assert!(op.rs3 < 8, "{} fields", op.rs3);
    step.rs3 = (u8::from(masked) * MASKED) | (op.rs3 << FIELDS) | (kind << KIND);
}

#[inline(always)]
fn operation<X: Xlen>(o: &Step<X>, s: &HartState<X>) -> VectorOp {
    let kind = o.rs3 >> KIND & 3;
    // All are read: a branch on the kind would often be predicted wrongly.
    let mut scalars = [0; 4];
    scalars[REGISTER as usize] = X::signed(s.x[o.rs1 as usize]) as u64;
    scalars[IMMEDIATE as usize] = (o.imm << 16 >> 16) as u64;
    scalars[FLOAT as usize] = s.f[o.rs1 as usize & 31];
    let scalar = scalars[kind as usize];
    VectorOp {
        code: TABLE[(o.imm >> 16) as usize].code,
        vd: o.rd,
        vs1: o.rs1,
        vs2: o.rs2,
        masked: o.rs3 & MASKED != 0,
        more_fields: o.rs3 >> FIELDS & 7,
        is_scalar: kind != 0,
        scalar,
    }
}

/// Returns the addresses of a load or store.
fn addresses<X: Xlen>(o: &Step<X>, s: &HartState<X>) -> Addresses {
    let mask = if X::BITS == 32 { u64::from(u32::MAX) } else { u64::MAX };
    Addresses { base: X::unsigned(s.x[o.rs1 as usize]), stride: X::signed(s.x[o.rs2 as usize]) as u64, mask }
}

/// Executes a step by one of the vector unit's functions; the error is the trap with which the step ends. It is a
/// function of its own so that its caller has no stack frame, and jumps to the next step's handler.
#[inline(never)]
fn execute<X: Xlen>(
    step: *const StepSlot<X>,
    s: &mut HartState<X>,
    run: impl FnOnce(&mut VectorUnit, &VectorOp) -> VectorResult,
) -> Result<(), Flow> {
    let op = operation(operands!(step), s);
    let done = match s.vector.as_deref_mut() {
        Some(unit) => run(unit, &op),
        None => Err(VectorTrap::Illegal),
    };
    done.map_err(|trap| trapped(step, s, trap))
}

#[cold]
fn trapped<X: Xlen>(step: *const StepSlot<X>, s: &mut HartState<X>, trap: VectorTrap) -> Flow {
    match trap {
        VectorTrap::Illegal => s.trap(step, Cause::IllegalInstruction, 0),
        VectorTrap::Fault(fault, kind) => s.trap(step, fault.cause(kind), fault.address),
    }
}

/// Defines handlers that execute a step by the vector unit's function of the same name, and continue.
macro_rules! groups {
    ($($name:ident)*) => {
        handlers! {$(
            fn $name(step, s, e) {
                if let Err(flow) = execute(step, s, vector::$name) {
                    return flow;
                }
                next!(step, s, e)
            }
        )*}
    };
}

groups! { integer fixed widen reduce mask permute }

handlers! {
    fn float(step, s, e) {
        let frm = s.frm;
        let run = |unit: &mut VectorUnit, op: &VectorOp| {
            (unit.frm, unit.fflags) = (frm, 0);
            vector::float(unit, op)
        };
        if let Err(flow) = execute(step, s, run) {
            return flow;
        }
        s.fflags |= s.vector.as_ref().map_or(0, |unit| unit.fflags);
        next!(step, s, e)
    }
    // Moves single elements to and from floating-point registers, and slides vectors by such an element.
    fn permute_float(step, s, e) {
        let frm = s.frm;
        let run = |unit: &mut VectorUnit, op: &VectorOp| {
            unit.frm = frm;
            vector::permute(unit, op)
        };
        if let Err(flow) = execute(step, s, run) {
            return flow;
        }
        let o = operands!(step);
        if Code::VfmvFS as i32 == o.imm >> 16 {
            s.f[o.rd as usize & 31] = s.vector.as_ref().map_or(0, |unit| unit.result);
        }
        next!(step, s, e)
    }
    // Writes an element or a count to an integer register.
    fn to_register(step, s, e) {
        let run = |unit: &mut VectorUnit, op: &VectorOp| {
            if op.code == Code::VmvXS { vector::permute(unit, op) } else { vector::mask(unit, op) }
        };
        if let Err(flow) = execute(step, s, run) {
            return flow;
        }
        s.x[operands!(step).rd as usize] = X::word(s.vector.as_ref().map_or(0, |unit| unit.result));
        next!(step, s, e)
    }
    fn access(step, s, e) {
        let o = operands!(step);
        let at = addresses(o, s);
        if let Err(flow) = execute(step, s, |unit, op| vector::access(unit, op, at, &mut e.spans)) {
            return flow;
        }
        if e.spans.code_written || e.spans.watch_hit {
            return s.leave(step, Exit::Stored);
        }
        next!(step, s, e)
    }
    fn set_type(step, s, e) {
        let o = operands!(step);
        let x = |register: u8| X::unsigned(s.x[register as usize]);
        let code = TABLE[(o.imm >> 16) as usize].code;
        let vtype = if code == Code::Vsetvl { x(o.rs2) } else { o.imm as u64 & 0xffff };
        let wanted = match code {
            Code::Vsetivli => Some(u64::from(o.rs1)),
            _ if o.rs1 != 0 => Some(x(o.rs1)),
            _ if o.rd == super::SINK => None,
            _ => Some(u64::MAX),
        };
        let Some(unit) = s.vector.as_deref_mut() else { return s.trap(step, Cause::IllegalInstruction, 0) };
        unit.configure(vtype, wanted);
        s.x[o.rd as usize] = X::word(unit.vl as u64);
        next!(step, s, e)
    }
}

/// A group of vector instructions that one function executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VectorGroup {
    /// Sets the vector type and length.
    SetType,
    /// Loads and stores.
    Access,
    /// Writes an element or a count to an integer register.
    ToRegister,
    /// Moves elements to and from floating-point registers.
    PermuteFloat,
    /// Floating-point arithmetic.
    Float,
    /// Operations on masks.
    Mask,
    /// Moves elements within vectors.
    Permute,
    /// Reductions.
    Reduce,
    /// Fixed-point arithmetic.
    Fixed,
    /// Integer arithmetic whose operands differ in width.
    Widen,
    /// Other integer arithmetic.
    Integer,
    /// Instructions of the VarVE extension.
    Varve,
}

/// Returns the group that a vector instruction belongs to.
pub(super) fn group(op: &Instruction) -> VectorGroup {
    use Code::*;
    let name = op.row().name;
    let begins = |names: &[&str]| names.iter().any(|start| name.starts_with(start));
    match op.code {
        _ if op.row().extension == crate::isa::Extension::Varve => VectorGroup::Varve,
        Vsetvl | Vsetvli | Vsetivli => VectorGroup::SetType,
        _ if op.row().format.vector_memory() => VectorGroup::Access,
        VmvXS | VcpopM | VfirstM => VectorGroup::ToRegister,
        VfmvFS | VfmvSF | Vfslide1upVf | Vfslide1downVf => VectorGroup::PermuteFloat,
        _ if op.row().extension == crate::isa::Extension::Zve32f => VectorGroup::Float,
        VidV | ViotaM | VmsbfM | VmsifM | VmsofM => VectorGroup::Mask,
        _ if name.ends_with(".mm") => VectorGroup::Mask,
        VcompressVm | VmvSX | Vmv1rV | Vmv2rV | Vmv4rV | Vmv8rV => VectorGroup::Permute,
        _ if begins(&["vrgather", "vslide"]) => VectorGroup::Permute,
        _ if begins(&["vred", "vwred"]) => VectorGroup::Reduce,
        _ if begins(&["vsadd", "vssub", "vaadd", "vasub", "vsmul", "vssr", "vnclip"]) => VectorGroup::Fixed,
        _ if begins(&["vw", "vns", "vzext", "vsext"]) => VectorGroup::Widen,
        _ => VectorGroup::Integer,
    }
}

/// Returns the function that executes a vector instruction.
pub(super) fn handler<X: Xlen>(op: &Instruction) -> super::Handler<X> {
    match group(op) {
        VectorGroup::SetType => set_type,
        VectorGroup::Access => access,
        VectorGroup::ToRegister => to_register,
        VectorGroup::PermuteFloat => permute_float,
        VectorGroup::Float => float,
        VectorGroup::Mask => mask,
        VectorGroup::Permute => permute,
        VectorGroup::Reduce => reduce,
        VectorGroup::Fixed => fixed,
        VectorGroup::Widen => widen,
        VectorGroup::Integer => integer,
        VectorGroup::Varve => super::varve::varve,
    }
}

/// Returns the work of the instruction of a step; empty if it will trap.
pub(super) fn work<X: Xlen>(step: *const StepSlot<X>, s: &HartState<X>) -> VectorWork {
    let o = operands!(step);
    let op = operation(o, s);
    let Some(unit) = s.vector.as_deref() else { return VectorWork::default() };
    if TABLE[op.code as usize].format.vector_memory() {
        vector::access_work(unit, &op, &addresses(o, s))
    } else {
        vector::work(unit, &op)
    }
}
