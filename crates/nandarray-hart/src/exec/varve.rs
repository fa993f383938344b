//! VarVE instructions: passes the operands of a step to the module `varve`, and handles integer registers and traps.

use super::{Exit, Flow, HartState, Step, StepSlot, handlers, next, operands};
use crate::isa::{Code, Format, TABLE};
use crate::trap::Cause;
use crate::varve::{self, Describe, PackedBits, VarveOp, VarveTrap, VarveUnit};
use crate::vector::VectorUnit;
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

/// Executes an instruction; returns the value for `x[rd]`, or `None` if the instruction does not write it.
fn execute<X: Xlen>(o: &Step<X>, s: &mut HartState<X>, memory: &mut PackedBits<'_>) -> Result<Option<u64>, VarveTrap> {
    let x = |number: u8| X::unsigned(s.x[number as usize]);
    let row = &TABLE[(o.imm >> 16) as usize];
    let (first, second) = (x(o.rs1), x(o.rs2));
    // The operands of a stream's description are in three registers; other formats use no third one.
    let third = x(o.rs3);
    let scalar = match row.format {
        Format::VectorVi | Format::VectorMoveI => Some(i64::from(o.imm << 16 >> 16)),
        Format::VectorMoveX | Format::VarveIndex => Some(X::signed(s.x[o.rs1 as usize])),
        _ => None,
    };
    let second_signed = X::signed(s.x[o.rs2 as usize]);
    let (Some(unit), Some(vectors)) = (s.varve.as_deref_mut(), s.vector.as_deref_mut()) else {
        return Err(VarveTrap::Illegal);
    };
    let addresses = [first, second, third];
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
        varve::describe(unit, o.rd, kind, output, addresses, memory)?;
        return Ok(None);
    }
    if row.format == Format::VectorVv || scalar.is_some() || row.format == Format::VectorUnary {
        let masked = row.mask >> 25 & 1 == 0 && o.rs3 & 1 != 0;
        let (vd, vs1, vs2) = (o.rd, o.rs1, o.rs2);
        let operation = VarveOp { code: row.code, vd, vs1, vs2, scalar, second: second_signed, masked };
        varve::operate(unit, vectors, &operation)?;
        return Ok(None);
    }
    streams(o, row.code, first, unit, vectors, memory)
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
