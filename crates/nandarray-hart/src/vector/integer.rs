//! Integer instructions whose operands have one width: arithmetic, logic, shifts, comparison, products, moves.

use super::{VectorOp, VectorResult, VectorUnit, by_sew, legal, low};
use crate::isa::Code;

/// Executes an integer instruction whose operands have one width.
pub(crate) fn integer(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    // In each operation, `a` is an element of `vs2`; `b` is one of `vs1`, an integer register or the immediate.
    macro_rules! two {
        ($f:expr) => {
            by_sew!(u, U S => {
                let f = $f;
                u.lanes::<U>(o, |_, a, b| f(a, b))
            })
        };
    }
    macro_rules! three {
        ($f:expr) => {
            by_sew!(u, U S => u.lanes::<U>(o, $f))
        };
    }
    macro_rules! test {
        ($f:expr) => {
            by_sew!(u, U S => u.compare::<U>(o, $f))
        };
    }
    #[allow(clippy::unnecessary_cast, reason = "U is u32 in one of four expansions")]
    match o.code {
        VaddVv | VaddVx | VaddVi => two!(|a: U, b: U| a.wrapping_add(b)),
        VsubVv | VsubVx => two!(|a: U, b: U| a.wrapping_sub(b)),
        VrsubVx | VrsubVi => two!(|a: U, b: U| b.wrapping_sub(a)),
        VminuVv | VminuVx => two!(|a: U, b: U| a.min(b)),
        VminVv | VminVx => two!(|a: U, b: U| (a as S).min(b as S) as U),
        VmaxuVv | VmaxuVx => two!(|a: U, b: U| a.max(b)),
        VmaxVv | VmaxVx => two!(|a: U, b: U| (a as S).max(b as S) as U),
        VandVv | VandVx | VandVi => two!(|a: U, b: U| a & b),
        VorVv | VorVx | VorVi => two!(|a: U, b: U| a | b),
        VxorVv | VxorVx | VxorVi => two!(|a: U, b: U| a ^ b),
        VsllVv | VsllVx | VsllVi => two!(|a: U, b: U| a.wrapping_shl(b as u32)),
        VsrlVv | VsrlVx | VsrlVi => two!(|a: U, b: U| a.wrapping_shr(b as u32)),
        VsraVv | VsraVx | VsraVi => two!(|a: U, b: U| (a as S).wrapping_shr(b as u32) as U),
        VmvVV | VmvVX | VmvVI => two!(|_: U, b: U| b),
        VmseqVv | VmseqVx | VmseqVi => test!(|a: U, b: U| a == b),
        VmsneVv | VmsneVx | VmsneVi => test!(|a: U, b: U| a != b),
        VmsltuVv | VmsltuVx => test!(|a: U, b: U| a < b),
        VmsltVv | VmsltVx => test!(|a: U, b: U| (a as S) < b as S),
        VmsleuVv | VmsleuVx | VmsleuVi => test!(|a: U, b: U| a <= b),
        VmsleVv | VmsleVx | VmsleVi => test!(|a: U, b: U| a as S <= b as S),
        VmsgtuVx | VmsgtuVi => test!(|a: U, b: U| a > b),
        VmsgtVx | VmsgtVi => test!(|a: U, b: U| a as S > b as S),
        VmulVv | VmulVx => two!(|a: U, b: U| a.wrapping_mul(b)),
        VmaccVv | VmaccVx => three!(|d: U, a: U, b: U| a.wrapping_mul(b).wrapping_add(d)),
        VnmsacVv | VnmsacVx => three!(|d: U, a: U, b: U| d.wrapping_sub(a.wrapping_mul(b))),
        VmaddVv | VmaddVx => three!(|d: U, a: U, b: U| d.wrapping_mul(b).wrapping_add(a)),
        VnmsubVv | VnmsubVx => three!(|d: U, a: U, b: U| a.wrapping_sub(d.wrapping_mul(b))),
        VmulhVv | VmulhVx | VmulhuVv | VmulhuVx | VmulhsuVv | VmulhsuVx => high(u, o),
        VmergeVvm | VmergeVxm | VmergeVim => merge(u, o),
        VadcVvm | VadcVxm | VadcVim | VsbcVvm | VsbcVxm => carries(u, o),
        VmadcVv | VmadcVx | VmadcVi | VmadcVvm | VmadcVxm | VmadcVim | VmsbcVv | VmsbcVx | VmsbcVvm | VmsbcVxm => {
            carries_out(u, o)
        }
        _ => divide(u, o),
    }
}

/// Computes the upper halves of products; for elements of 64 bits this needs all of V.
fn high(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    let (sew, full) = (u.sew, u.full);
    legal(sew < 64 || full)?;
    let signed = matches!(o.code, VmulhVv | VmulhVx);
    let mixed = matches!(o.code, VmulhsuVv | VmulhsuVx);
    u.check_same(o)?;
    u.each(o, |u, i| {
        let (a, b) = (u.get(o.vs2, i, sew), u.first(o, i));
        let wide = |value: u64, is_signed: bool| {
            if is_signed { i128::from(super::signed(value, sew)) } else { i128::from(value) }
        };
        let product = wide(a, signed || mixed).wrapping_mul(wide(b, signed));
        u.set(o.vd, i, sew, (product >> sew) as u64);
    })
}

fn divide(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    let sew = u.sew;
    u.check_same(o)?;
    u.each(o, |u, i| {
        let (a, b) = (u.get(o.vs2, i, sew), u.first(o, i));
        let (left, right) = (super::signed(a, sew), super::signed(b, sew));
        let value = match o.code {
            VdivuVv | VdivuVx => a.checked_div(b).unwrap_or(u64::MAX),
            VremuVv | VremuVx => a.checked_rem(b).unwrap_or(a),
            VdivVv | VdivVx if right == 0 => u64::MAX,
            VdivVv | VdivVx => left.wrapping_div(right) as u64,
            VremVv | VremVx if right == 0 => a,
            VremVv | VremVx => left.wrapping_rem(right) as u64,
            code => unreachable!("{code:?} is none of the integer instructions"),
        };
        u.set(o.vd, i, sew, value);
    })
}

/// Computes `vd[i] = if v0[i] { vs1[i] } else { vs2[i] }`; all elements are active.
fn merge(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    u.check_same(o)?;
    let all = VectorOp { masked: false, ..*o };
    let sew = u.sew;
    u.each(&all, |u, i| {
        let value = if u.bit(0, i) { u.first(o, i) } else { u.get(o.vs2, i, sew) };
        u.set(o.vd, i, sew, value);
    })
}

fn carries(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    u.check_same(o)?;
    let adds = matches!(o.code, Code::VadcVvm | Code::VadcVxm | Code::VadcVim);
    let all = VectorOp { masked: false, ..*o };
    let sew = u.sew;
    u.each(&all, |u, i| {
        let (a, b, carry) = (u.get(o.vs2, i, sew), u.first(o, i), u64::from(u.bit(0, i)));
        let value = if adds { a.wrapping_add(b).wrapping_add(carry) } else { a.wrapping_sub(b).wrapping_sub(carry) };
        u.set(o.vd, i, sew, value);
    })
}

fn carries_out(u: &mut VectorUnit, o: &VectorOp) -> VectorResult {
    use Code::*;
    u.check_mask_out(o)?;
    let adds = matches!(o.code, VmadcVv | VmadcVx | VmadcVi | VmadcVvm | VmadcVxm | VmadcVim);
    let all = VectorOp { masked: false, ..*o };
    let sew = u.sew;
    u.each(&all, |u, i| {
        let carry = u128::from(o.masked && u.bit(0, i));
        let (a, b) = (u128::from(u.get(o.vs2, i, sew)), u128::from(low(u.first(o, i), sew)));
        let out = if adds { (a + b + carry) >> sew != 0 } else { a < b + carry };
        u.set_bit(o.vd, i, out);
    })
}
