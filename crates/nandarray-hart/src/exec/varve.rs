//! VarVE instructions: passes the operands of a step to the module `varve`, and handles integer registers and traps.

use super::{Exit, Flow, HartState, Step, StepSlot, handlers, next, operands};
use crate::isa::{Code, Format, TABLE};
use crate::memory::RegionTable;
use crate::trap::Cause;
use crate::varve::{self, Describe, PackedBits, VarveOp, VarveTrap, VarveUnit};
use crate::vector::VectorUnit;
use crate::work::VectorWork;
use crate::xlen::Xlen;

handlers! {
    fn varve(step, s, e) {
        let o = *operands!(step);
        let mask = if X::BITS == 32 { u64::from(u32::MAX) } else { u64::MAX };
        let mut memory = PackedBits { spans: &mut e.spans, mask };
        match execute(&o, s, &mut memory) {
            Ok(Some(value)) => s.x[o.rd as usize] = X::word(value),
            Ok(None) => {}
            Err(trap) => return trapped(step, s, trap),
        }
        if e.spans.code_written || e.spans.watch_hit {
            return s.leave(step, Exit::Stored);
        }
        next!(step, s, e)
    }
}

#[cold]
fn trapped<X: Xlen>(step: *const StepSlot<X>, s: &mut HartState<X>, trap: VarveTrap) -> Flow {
    match trap {
        VarveTrap::Illegal => s.trap(step, Cause::IllegalInstruction, 0),
        VarveTrap::Fault(fault, kind) => s.trap(step, fault.cause(kind), fault.address),
        VarveTrap::Stream(cause, stream) => s.trap(step, cause, stream),
    }
}

/// The operands of an instruction, by its kind.
enum VarveDecoded {
    /// An instruction that describes a stream: the stream's number, its encoding, whether it is an output, and the
    /// values of the three registers with its address, count and detail.
    Describe(u8, Describe, bool, [u64; 3]),
    /// An operation on vectors.
    Operate(VarveOp),
    /// An instruction that moves values between streams and vectors, or reads a state: its code, and the value of
    /// `x[rs1]`.
    Stream(Code, u64),
}

fn decoded<X: Xlen>(o: &Step<X>, s: &HartState<X>) -> VarveDecoded {
    let x = |number: u8| X::unsigned(s.x[number as usize]);
    let row = &TABLE[(o.imm >> 16) as usize];
    // The operands of a stream's description are in three registers; other formats use no third one.
    let registers = || [x(o.rs1), x(o.rs2), x(o.rs3)];
    let scalar = match row.format {
        Format::VectorVi | Format::VectorMoveI => Some(i64::from(o.imm << 16 >> 16)),
        Format::VectorMoveX | Format::VarveIndex => Some(X::signed(s.x[o.rs1 as usize])),
        _ => None,
    };
    let described = match row.code {
        Code::FrStream => Some((Describe::Fixed, false)),
        Code::VrStream => Some((Describe::Variable, false)),
        Code::HrStream => Some((Describe::Huffman, false)),
        Code::FwStream => Some((Describe::Fixed, true)),
        Code::VwStream => Some((Describe::Variable, true)),
        Code::HwStream => Some((Describe::Huffman, true)),
        _ => None,
    };
    if let Some((kind, output)) = described {
        return VarveDecoded::Describe(o.rd, kind, output, registers());
    }
    if row.format == Format::VectorVv || scalar.is_some() || row.format == Format::VectorUnary {
        let masked = row.mask >> 25 & 1 == 0 && o.rs3 & 1 != 0;
        let (vd, vs1, vs2, second) = (o.rd, o.rs1, o.rs2, X::signed(s.x[o.rs2 as usize]));
        return VarveDecoded::Operate(VarveOp { code: row.code, vd, vs1, vs2, scalar, second, masked });
    }
    VarveDecoded::Stream(row.code, x(o.rs1))
}

/// Returns the work of an instruction; empty if it will trap.
pub(super) fn work<X: Xlen>(o: &Step<X>, s: &HartState<X>, spans: &mut RegionTable) -> VectorWork {
    let mask = if X::BITS == 32 { u64::from(u32::MAX) } else { u64::MAX };
    let (Some(unit), Some(vectors)) = (s.varve.as_deref(), s.vector.as_deref()) else {
        return VectorWork::default();
    };
    let mut memory = PackedBits { spans, mask };
    match decoded(o, s) {
        VarveDecoded::Describe(number, kind, output, registers) => {
            varve::description_work(number, kind, output, registers, &mut memory)
        }
        VarveDecoded::Operate(operation) => varve::operation_work(unit, vectors, &operation),
        VarveDecoded::Stream(code, first) => {
            let masked = matches!(code, Code::PackM | Code::VpackM | Code::VunpackM).then_some(vectors);
            match code {
                Code::Unpack => varve::unpack_work(unit, vectors, o.rd, o.rs2, &mut memory),
                Code::Vunpack | Code::VunpackM => varve::vunpack_work(unit, o.rs2, first, masked, &mut memory),
                Code::Pack | Code::PackM => {
                    let bits = vectors.group_at(o.rs1).unwrap_or(0);
                    let values = vectors.elements(o.rs1).unwrap_or_default();
                    varve::pack_work(unit, &values, o.rs2, masked, bits, mask)
                }
                Code::Vpack | Code::VpackM => {
                    varve::pack_work(unit, &unit.vector(o.rs1).values, o.rs2, masked, 0, mask)
                }
                _ => VectorWork::default(),
            }
        }
    }
}

/// Executes an instruction; returns the value for `x[rd]`, or `None` if the instruction does not write it.
fn execute<X: Xlen>(o: &Step<X>, s: &mut HartState<X>, memory: &mut PackedBits<'_>) -> Result<Option<u64>, VarveTrap> {
    let instruction = decoded(o, s);
    let (Some(unit), Some(vectors)) = (s.varve.as_deref_mut(), s.vector.as_deref_mut()) else {
        return Err(VarveTrap::Illegal);
    };
    match instruction {
        VarveDecoded::Describe(number, kind, output, registers) => {
            varve::describe(unit, number, kind, output, registers, memory)?;
            Ok(None)
        }
        VarveDecoded::Operate(operation) => {
            varve::operate(unit, vectors, &operation)?;
            Ok(None)
        }
        VarveDecoded::Stream(code, first) => streams(o, code, first, unit, vectors, memory),
    }
}

/// Executes an instruction that moves values between streams and vectors, or reads the state of a stream or a vector;
/// returns the value for `x[rd]`, or `None` if the instruction does not write it.
fn streams<X: Xlen>(
    o: &Step<X>,
    code: Code,
    first: u64,
    unit: &mut VarveUnit,
    vectors: &mut VectorUnit,
    memory: &mut PackedBits<'_>,
) -> Result<Option<u64>, VarveTrap> {
    let number = o.rs2;
    let masked = matches!(code, Code::PackM | Code::VpackM | Code::VunpackM);
    Ok(match code {
        Code::CrStream => {
            unit.consume(number, first, memory)?;
            None
        }
        Code::ErStream => Some(unit.end(number, false)?),
        Code::EwStream => Some(unit.end(number, true)?),
        Code::VrcNum => Some(unit.take_num_e()),
        Code::VvNum => Some(unit.vector(o.rs1).values.len() as u64),
        Code::Unpack => {
            varve::unpack(unit, vectors, o.rd, number, memory)?;
            None
        }
        Code::Vunpack | Code::VunpackM => {
            varve::vunpack(unit, o.rd, number, first, masked.then_some(&*vectors), memory)?;
            None
        }
        Code::Pack | Code::PackM => {
            let values = vectors.elements(o.rs1).ok_or(VarveTrap::Illegal)?;
            Some(varve::pack(unit, &values, number, masked.then_some(&*vectors), memory)?)
        }
        _ => {
            let values = unit.vector(o.rs1).values.clone();
            Some(varve::pack(unit, &values, number, masked.then_some(&*vectors), memory)?)
        }
    })
}
