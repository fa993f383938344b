//! Floating-point instructions on vectors: single and double precision, conversions between them, to and from integers.
//!
//! Each element is computed as the scalar instruction does; flags accumulate in `fflags`. `estimate` has the
//! reciprocals with seven bits of precision.

mod convert;
mod estimate;

use super::{VectorOp, VectorResult, VectorTrap, VectorUnit, legal};
use crate::float::{self, Double, FloatFormat, NV, Relation, Rounding, Single};
use crate::isa::Code;

/// Executes `$body` with `$format` as the floating-point format of `$sew` bits; illegal for other widths.
macro_rules! by_format {
    ($sew:expr, $format:ident => $body:expr) => {
        match $sew {
            32 => {
                type $format = Single;
                $body
            }
            64 => {
                type $format = Double;
                $body
            }
            _ => Err(VectorTrap::Illegal),
        }
    };
}
use by_format;

/// Executes a floating-point instruction on vectors.
pub(crate) fn float(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    u.ready()?;
    let Some(rounding) = Rounding::from_number(u.frm) else { return Err(VectorTrap::Illegal) };
    let sew = u.sew;
    match o.code {
        VfwaddVv | VfwaddVf | VfwsubVv | VfwsubVf | VfwmulVv | VfwmulVf | VfwaddWv | VfwaddWf | VfwsubWv | VfwsubWf
        | VfwmaccVv | VfwmaccVf | VfwnmaccVv | VfwnmaccVf | VfwmsacVv | VfwmsacVf | VfwnmsacVv | VfwnmsacVf => {
            widening(u, o, rounding)
        }
        VfredusumVs | VfredosumVs | VfredminVs | VfredmaxVs | VfwredusumVs | VfwredosumVs => reduce(u, o, rounding),
        VfmvVF | VfmergeVfm => {
            legal(u.has_float(sew))?;
            u.check_same(o)?;
            let value = u.float_scalar(o, sew);
            let all = VectorOp { masked: false, ..*o };
            u.each(&all, |u, i| {
                if !o.masked || u.bit(0, i) {
                    u.set(o.vd, i, sew, value);
                } else {
                    let kept = u.get(o.vs2, i, sew);
                    u.set(o.vd, i, sew, kept);
                }
            })
        }
        VmfeqVv | VmfeqVf | VmfleVv | VmfleVf | VmfltVv | VmfltVf | VmfneVv | VmfneVf | VmfgtVf | VmfgeVf => {
            legal(u.has_float(sew))?;
            u.check_mask_out(o)?;
            by_format!(sew, F => u.each(o, |u, i| {
                let (a, b) = (u.get(o.vs2, i, sew), u.float_first::<F>(o, i));
                let flags = &mut u.fflags;
                let holds = match o.code {
                    VmfeqVv | VmfeqVf => float::compare::<F>(Relation::Equal, a, b, flags),
                    VmfneVv | VmfneVf => !float::compare::<F>(Relation::Equal, a, b, flags),
                    VmfleVv | VmfleVf => float::compare::<F>(Relation::LessOrEqual, a, b, flags),
                    VmfltVv | VmfltVf => float::compare::<F>(Relation::Less, a, b, flags),
                    VmfgtVf => float::compare::<F>(Relation::Less, b, a, flags),
                    _ => float::compare::<F>(Relation::LessOrEqual, b, a, flags),
                };
                u.set_bit(o.vd, i, holds);
            }))
        }
        VfsqrtV | Vfrsqrt7V | Vfrec7V | VfclassV => {
            legal(u.has_float(sew))?;
            let one_source = VectorOp { is_scalar: true, ..*o };
            u.check_same(&one_source)?;
            by_format!(sew, F => u.each(o, |u, i| {
                let a = u.get(o.vs2, i, sew);
                let flags = &mut u.fflags;
                let value = match o.code {
                    VfsqrtV => sqrt::<F>(a, rounding, flags),
                    Vfrsqrt7V => estimate::root::<F>(a, flags),
                    Vfrec7V => estimate::reciprocal::<F>(a, rounding, flags),
                    _ => float::classify::<F>(a),
                };
                u.set(o.vd, i, sew, value);
            }))
        }
        code if convert::is_conversion(code) => convert::convert(u, o, rounding),
        _ => same(u, o, rounding),
    }
}

impl VectorUnit {
    /// Returns element `i` of the operand `vs1`, or the floating-point register that replaces it.
    fn float_first<F: FloatFormat>(&self, o: &VectorOp, i: usize) -> u64 {
        if o.is_scalar { F::from_register(o.scalar) } else { self.get(o.vs1, i, F::BITS) }
    }
}

macro_rules! arithmetic {
    ($($name:ident ($($operand:ident),*);)*) => {$(
        fn $name<F: FloatFormat>($($operand: u64,)* rounding: Rounding, flags: &mut u8) -> u64 {
            let nearest = rounding == Rounding::Nearest;
            let fast = if nearest { <F as float::FastFloat>::$name($($operand,)* flags) } else { None };
            fast.unwrap_or_else(|| float::$name::<F>($($operand,)* rounding, flags))
        }
    )*};
}

arithmetic! {
    add(a, b);
    sub(a, b);
    mul(a, b);
    div(a, b);
    sqrt(a);
    fused(a, b, c);
}

/// Executes an instruction whose operands and result have one width.
fn same(u: &mut VectorUnit, o: &VectorOp, rounding: Rounding) -> VectorResult {
    use Code::*;
    let sew = u.sew;
    legal(u.has_float(sew))?;
    u.check_same(o)?;
    by_format!(sew, F => {
        let minus = F::SIGN;
        u.each(o, |u, i| {
            let (a, b, d) = (u.get(o.vs2, i, sew), u.float_first::<F>(o, i), u.get(o.vd, i, sew));
            let flags = &mut u.fflags;
            let value = match o.code {
                VfaddVv | VfaddVf => add::<F>(a, b, rounding, flags),
                VfsubVv | VfsubVf => sub::<F>(a, b, rounding, flags),
                VfrsubVf => sub::<F>(b, a, rounding, flags),
                VfmulVv | VfmulVf => mul::<F>(a, b, rounding, flags),
                VfdivVv | VfdivVf => div::<F>(a, b, rounding, flags),
                VfrdivVf => div::<F>(b, a, rounding, flags),
                VfminVv | VfminVf => float::min::<F>(a, b, flags),
                VfmaxVv | VfmaxVf => float::max::<F>(a, b, flags),
                VfsgnjVv | VfsgnjVf => a & !minus | b & minus,
                VfsgnjnVv | VfsgnjnVf => a & !minus | !b & minus,
                VfsgnjxVv | VfsgnjxVf => a ^ b & minus,
                VfmaccVv | VfmaccVf => fused::<F>(a, b, d, rounding, flags),
                VfnmaccVv | VfnmaccVf => fused::<F>(a ^ minus, b, d ^ minus, rounding, flags),
                VfmsacVv | VfmsacVf => fused::<F>(a, b, d ^ minus, rounding, flags),
                VfnmsacVv | VfnmsacVf => fused::<F>(a ^ minus, b, d, rounding, flags),
                VfmaddVv | VfmaddVf => fused::<F>(d, b, a, rounding, flags),
                VfnmaddVv | VfnmaddVf => fused::<F>(d ^ minus, b, a ^ minus, rounding, flags),
                VfmsubVv | VfmsubVf => fused::<F>(d, b, a ^ minus, rounding, flags),
                VfnmsubVv | VfnmsubVf => fused::<F>(d ^ minus, b, a, rounding, flags),
                code => unreachable!("{code:?} is none of the floating-point instructions"),
            };
            u.set(o.vd, i, sew, value);
        })
    })
}

/// Converts a single-precision number to double precision.
fn wide(bits: u64, flags: &mut u8) -> u64 {
    float::widen::<Single, Double>(bits, Rounding::Nearest, flags)
}

/// Executes an instruction with single-precision operands and a double-precision result.
fn widening(u: &mut VectorUnit, o: &VectorOp, rounding: Rounding) -> VectorResult {
    use Code::*;
    type D = Double;
    let wide_source = matches!(o.code, VfwaddWv | VfwaddWf | VfwsubWv | VfwsubWf);
    legal(u.sew == 32 && u.double)?;
    u.check_widening(o, wide_source)?;
    let minus = D::SIGN;
    u.each(o, |u, i| {
        let (b, d) = (u.float_first::<Single>(o, i), u.get(o.vd, i, 64));
        let a = u.get(o.vs2, i, if wide_source { 64 } else { 32 });
        let flags = &mut u.fflags;
        let a = if wide_source { a } else { wide(a, flags) };
        let b = wide(b, flags);
        let value = match o.code {
            VfwaddVv | VfwaddVf | VfwaddWv | VfwaddWf => add::<D>(a, b, rounding, flags),
            VfwsubVv | VfwsubVf | VfwsubWv | VfwsubWf => sub::<D>(a, b, rounding, flags),
            VfwmulVv | VfwmulVf => mul::<D>(a, b, rounding, flags),
            VfwmaccVv | VfwmaccVf => fused::<D>(a, b, d, rounding, flags),
            VfwnmaccVv | VfwnmaccVf => fused::<D>(a ^ minus, b, d ^ minus, rounding, flags),
            VfwmsacVv | VfwmsacVf => fused::<D>(a, b, d ^ minus, rounding, flags),
            _ => fused::<D>(a ^ minus, b, d, rounding, flags),
        };
        u.set(o.vd, i, 64, value);
    })
}

/// Executes a reduction, in the order of the elements.
fn reduce(u: &mut VectorUnit, o: &VectorOp, rounding: Rounding) -> VectorResult {
    use Code::*;
    let widens = matches!(o.code, VfwredusumVs | VfwredosumVs);
    legal(u.vstart == 0 && VectorUnit::aligned(o.vs2, u.lmul) && u.has_float(u.sew))?;
    legal(!widens || u.sew == 32 && u.double)?;
    if u.vl == 0 {
        return Ok(());
    }
    let sew = u.sew;
    let to = if widens { 64 } else { sew };
    by_format!(to, F => {
        let (mut all, mut any) = (u.get(o.vs1, 0, to), false);
        u.each(o, |u, i| {
            let value = u.get(o.vs2, i, sew);
            let flags = &mut u.fflags;
            any = true;
            all = match o.code {
                VfredminVs => float::min::<F>(all, value, flags),
                VfredmaxVs => float::max::<F>(all, value, flags),
                VfwredusumVs | VfwredosumVs => add::<F>(all, wide(value, flags), rounding, flags),
                _ => add::<F>(all, value, rounding, flags),
            };
        })?;
        // An unordered sum of no elements makes a NaN that it starts with canonical.
        if !any && matches!(o.code, VfredusumVs | VfwredusumVs) && F::is_nan(all) {
            if F::is_signaling(all) {
                u.fflags |= NV;
            }
            all = F::NAN;
        }
        u.set(o.vd, 0, to, all);
        Ok(())
    })
}
