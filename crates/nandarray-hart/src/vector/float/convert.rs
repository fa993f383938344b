//! Conversions between numbers and integers, and between precisions: to the same width, a wider or a narrower one.

use super::super::{VectorOp, VectorResult, VectorTrap, VectorUnit, legal, signed};
use super::by_format;
use crate::float::{self, Double, FloatFormat, NX, Rounding, Single};
use crate::isa::Code;

/// Whether an instruction is a conversion of vector elements.
pub(super) fn is_conversion(code: Code) -> bool {
    code >= Code::VfcvtXuFV && code <= Code::VfncvtRtzXFW
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unsigned,
    Signed,
    Float,
}

/// Returns the kinds of the source and of the destination, and the base-two logarithm of the destination's width
/// divided by the source's: -1, 0 or 1.
fn kinds(code: Code) -> (Kind, Kind, i32) {
    use Code::*;
    use Kind::*;
    match code {
        VfcvtXuFV | VfcvtRtzXuFV => (Float, Unsigned, 0),
        VfcvtXFV | VfcvtRtzXFV => (Float, Signed, 0),
        VfcvtFXuV => (Unsigned, Float, 0),
        VfcvtFXV => (Signed, Float, 0),
        VfwcvtXuFV | VfwcvtRtzXuFV => (Float, Unsigned, 1),
        VfwcvtXFV | VfwcvtRtzXFV => (Float, Signed, 1),
        VfwcvtFXuV => (Unsigned, Float, 1),
        VfwcvtFXV => (Signed, Float, 1),
        VfwcvtFFV => (Float, Float, 1),
        VfncvtXuFW | VfncvtRtzXuFW => (Float, Unsigned, -1),
        VfncvtXFW | VfncvtRtzXFW => (Float, Signed, -1),
        VfncvtFXuW => (Unsigned, Float, -1),
        VfncvtFXW => (Signed, Float, -1),
        _ => (Float, Float, -1),
    }
}

/// Executes a conversion of vector elements.
pub(super) fn convert(u: &mut VectorUnit, o: &VectorOp, rounding: Rounding) -> VectorResult {
    use Code::*;
    let (from, to, by) = kinds(o.code);
    let sew = u.sew;
    let (from_bits, to_bits) = match by {
        -1 => (2 * sew, sew),
        0 => (sew, sew),
        _ => (sew, 2 * sew),
    };
    legal((from != Kind::Float || u.has_float(from_bits)) && (to != Kind::Float || u.has_float(to_bits)))?;
    let one_source = VectorOp { is_scalar: true, ..*o };
    match by {
        -1 => u.check_narrowing(&one_source)?,
        0 => u.check_same(&one_source)?,
        _ => u.check_widening(&one_source, false)?,
    }
    let to_zero =
        matches!(o.code, VfcvtRtzXuFV | VfcvtRtzXFV | VfwcvtRtzXuFV | VfwcvtRtzXFV | VfncvtRtzXuFW | VfncvtRtzXFW);
    let rounding = if to_zero { Rounding::Zero } else { rounding };
    match (from, to) {
        (Kind::Float, Kind::Float) => u.each(o, |u, i| {
            let a = u.get(o.vs2, i, from_bits);
            let flags = &mut u.fflags;
            let value = match o.code {
                VfwcvtFFV => super::wide(a, flags),
                VfncvtRodFFW => to_odd(a, flags),
                _ => float::widen::<Double, Single>(a, rounding, flags),
            };
            u.set(o.vd, i, to_bits, value);
        }),
        (Kind::Float, _) => by_format!(from_bits, F => {
            let is_signed = to == Kind::Signed;
            let low = if is_signed { -(1i128 << (to_bits - 1)) } else { 0 };
            let high = if is_signed { (1i128 << (to_bits - 1)) - 1 } else { (1i128 << to_bits) - 1 };
            u.each(o, |u, i| {
                let a = u.get(o.vs2, i, from_bits);
                let value = float::to_int::<F>(a, low, high, rounding, &mut u.fflags);
                u.set(o.vd, i, to_bits, value as u64);
            })
        }),
        _ => by_format!(to_bits, F => u.each(o, |u, i| {
            let a = u.get(o.vs2, i, from_bits);
            let value = if from == Kind::Signed { i128::from(signed(a, from_bits)) } else { i128::from(a) };
            let value = float::from_int::<F>(value, rounding, &mut u.fflags);
            u.set(o.vd, i, to_bits, value);
        })),
    }
}

/// Converts double to single precision; if that is inexact, the lowest bit is set (round to odd).
fn to_odd(bits: u64, flags: &mut u8) -> u64 {
    let mut raised = 0;
    let value = float::widen::<Double, Single>(bits, Rounding::Zero, &mut raised);
    *flags |= raised;
    if raised & NX != 0 && !Single::is_nan(value) { value | 1 } else { value }
}
