//! Floating-point arithmetic: the host's where it certainly gives the same result, the exact software implementation
//! otherwise.

use super::{HartState, handlers, next, operands, otherwise};
use crate::float::{self, FloatFormat, Relation, Rounding};
use crate::trap::Cause;
use crate::xlen::Xlen;

/// Returns the rounding mode of an instruction with this `rm` field; `None` if the field refers to `frm`, and that is
/// invalid.
pub(super) fn rounding<X: Xlen>(s: &HartState<X>, field: i32) -> Option<Rounding> {
    Rounding::from_number(if field == 7 { s.frm } else { field as u8 })
}

/// Whether the rounding mode of an instruction with this `rm` field is "to nearest, ties to even".
#[inline(always)]
pub(super) fn nearest<X: Xlen>(s: &HartState<X>, field: i32) -> bool {
    s.nearest >> (field & 7) & 1 != 0
}

#[inline(always)]
pub(super) fn get<X: Xlen, F: FloatFormat>(s: &HartState<X>, register: u8) -> u64 {
    F::from_register(s.f[register as usize & 31])
}

#[inline(always)]
pub(super) fn put<X: Xlen, F: FloatFormat>(s: &mut HartState<X>, register: u8, bits: u64) {
    s.f[register as usize & 31] = F::to_register(bits);
}

/// Defines rounded operations: each tries the host's arithmetic, and falls back to the exact implementation.
macro_rules! rounded {
    ($($name:ident $exact:ident $operation:ident ($($source:ident),*);)*) => { handlers! {$(
        fn $name<F: FloatFormat>(step, s, e) {
            let o = operands!(step);
            if nearest(s, o.imm) {
                if let Some(bits) = F::$operation($(get::<X, F>(s, o.$source),)* &mut s.fflags) {
                    put::<X, F>(s, o.rd, bits);
                    next!(step, s, e)
                }
            }
            otherwise!($exact::<X, F>, step, s, e)
        }
        #[inline(never)]
        fn $exact<F: FloatFormat>(step, s, e) {
            let o = operands!(step);
            let Some(mode) = rounding(s, o.imm) else { return s.trap(step, Cause::IllegalInstruction, 0) };
            let bits = float::$operation::<F>($(get::<X, F>(s, o.$source),)* mode, &mut s.fflags);
            put::<X, F>(s, o.rd, bits);
            next!(step, s, e)
        }
    )*}};
}

rounded! {
    add add_exact add (rs1, rs2);
    sub sub_exact sub (rs1, rs2);
    mul mul_exact mul (rs1, rs2);
    div div_exact div (rs1, rs2);
    sqrt sqrt_exact sqrt (rs1);
}

/// Defines fused multiply-adds, which first negate the product or the addend as the instruction requires.
macro_rules! fused {
    ($($name:ident $exact:ident $product:literal $addend:literal;)*) => { handlers! {$(
        fn $name<F: FloatFormat>(step, s, e) {
            let o = operands!(step);
            if nearest(s, o.imm) {
                let a = get::<X, F>(s, o.rs1) ^ if $product { F::SIGN } else { 0 };
                let c = get::<X, F>(s, o.rs3) ^ if $addend { F::SIGN } else { 0 };
                if let Some(bits) = F::fused(a, get::<X, F>(s, o.rs2), c, &mut s.fflags) {
                    put::<X, F>(s, o.rd, bits);
                    next!(step, s, e)
                }
            }
            otherwise!($exact::<X, F>, step, s, e)
        }
        #[inline(never)]
        fn $exact<F: FloatFormat>(step, s, e) {
            let o = operands!(step);
            let Some(mode) = rounding(s, o.imm) else { return s.trap(step, Cause::IllegalInstruction, 0) };
            let a = get::<X, F>(s, o.rs1) ^ if $product { F::SIGN } else { 0 };
            let c = get::<X, F>(s, o.rs3) ^ if $addend { F::SIGN } else { 0 };
            let bits = float::fused::<F>(a, get::<X, F>(s, o.rs2), c, mode, &mut s.fflags);
            put::<X, F>(s, o.rd, bits);
            next!(step, s, e)
        }
    )*}};
}

fused! {
    fmadd fmadd_exact false false;
    fmsub fmsub_exact false true;
    fnmsub fnmsub_exact true false;
    fnmadd fnmadd_exact true true;
}

/// Defines operations that do not round, and raise no flag but "invalid".
macro_rules! plain {
    ($($name:ident ($a:ident, $b:ident, $flags:ident) $value:expr;)*) => { handlers! {$(
        fn $name<F: FloatFormat>(step, s, e) {
            let o = operands!(step);
            let ($a, $b) = (get::<X, F>(s, o.rs1), get::<X, F>(s, o.rs2));
            let $flags = &mut s.fflags;
            let value = $value;
            put::<X, F>(s, o.rd, value);
            next!(step, s, e)
        }
    )*}};
}

plain! {
    sgnj(a, b, flags) a & !F::SIGN | b & F::SIGN;
    sgnjn(a, b, flags) a & !F::SIGN | !b & F::SIGN;
    sgnjx(a, b, flags) a ^ b & F::SIGN;
    min(a, b, flags) float::min::<F>(a, b, flags);
    max(a, b, flags) float::max::<F>(a, b, flags);
}

macro_rules! compares {
    ($($name:ident $relation:ident;)*) => { handlers! {$(
        fn $name<F: FloatFormat>(step, s, e) {
            let o = operands!(step);
            let (a, b) = (get::<X, F>(s, o.rs1), get::<X, F>(s, o.rs2));
            let holds = float::compare::<F>(Relation::$relation, a, b, &mut s.fflags);
            s.x[o.rd as usize] = X::word(u64::from(holds));
            next!(step, s, e)
        }
    )*}};
}

compares! {
    feq Equal;
    flt Less;
    fle LessOrEqual;
}
