//! The floating-point instructions as plain functions, which a translator calls where it has no faster code.
//!
//! Each takes the contents of the source registers, boxed or not, computes what the interpreter does, and returns the
//! new contents of the destination register. Loads, stores and moves of bits are not included.

use super::{Double, FastFloat, FloatFormat, NX, Relation, Rounding, Single};
use crate::isa::Code;

/// A function of (rs1, rs2, rs3, rounding mode 0 to 4, accrued exceptions) that returns the destination register's
/// bits; an integer result is sign-extended to 64 bits.
pub type FloatFunction = extern "C" fn(u64, u64, u64, u64, &mut u8) -> u64;

fn mode(number: u64) -> Rounding {
    Rounding::from_number(number as u8).unwrap_or(Rounding::Nearest)
}

macro_rules! rounded {
    ($($name:ident ($a:ident, $b:ident) ($($source:ident),*);)*) => {$(
        extern "C" fn $name<F: FloatFormat>($a: u64, $b: u64, _c: u64, rm: u64, flags: &mut u8) -> u64 {
            $(let $source = F::from_register($source);)*
            let fast = if rm == 0 { <F as FastFloat>::$name($($source,)* flags) } else { None };
            F::to_register(fast.unwrap_or_else(|| super::$name::<F>($($source,)* mode(rm), flags)))
        }
    )*};
}

rounded! {
    add(a, b) (a, b);
    sub(a, b) (a, b);
    mul(a, b) (a, b);
    div(a, b) (a, b);
    sqrt(a, _b) (a);
}

/// Computes a fused multiply-add, with the product negated if `PRODUCT`, and the addend if `ADDEND`.
extern "C" fn fused<F: FloatFormat, const PRODUCT: bool, const ADDEND: bool>(
    a: u64,
    b: u64,
    c: u64,
    rm: u64,
    flags: &mut u8,
) -> u64 {
    let a = F::from_register(a) ^ if PRODUCT { F::SIGN } else { 0 };
    let c = F::from_register(c) ^ if ADDEND { F::SIGN } else { 0 };
    let b = F::from_register(b);
    let fast = if rm == 0 { <F as FastFloat>::fused(a, b, c, flags) } else { None };
    F::to_register(fast.unwrap_or_else(|| super::fused::<F>(a, b, c, mode(rm), flags)))
}

extern "C" fn min<F: FloatFormat>(a: u64, b: u64, _c: u64, _rm: u64, flags: &mut u8) -> u64 {
    F::to_register(super::min::<F>(F::from_register(a), F::from_register(b), flags))
}

extern "C" fn max<F: FloatFormat>(a: u64, b: u64, _c: u64, _rm: u64, flags: &mut u8) -> u64 {
    F::to_register(super::max::<F>(F::from_register(a), F::from_register(b), flags))
}

macro_rules! compares {
    ($($name:ident $relation:ident;)*) => {$(
        extern "C" fn $name<F: FloatFormat>(a: u64, b: u64, _c: u64, _rm: u64, flags: &mut u8) -> u64 {
            u64::from(super::compare::<F>(Relation::$relation, F::from_register(a), F::from_register(b), flags))
        }
    )*};
}

compares! {
    feq Equal;
    flt Less;
    fle LessOrEqual;
}

extern "C" fn classify<F: FloatFormat>(a: u64, _b: u64, _c: u64, _rm: u64, _flags: &mut u8) -> u64 {
    super::classify::<F>(F::from_register(a))
}

macro_rules! conversions {
    ($($to:ident $from:ident $int:ident ($value:ident) $register:expr;)*) => {$(
        extern "C" fn $to<F: FloatFormat>(a: u64, _b: u64, _c: u64, rm: u64, flags: &mut u8) -> u64 {
            let (low, high) = (i128::from($int::MIN), i128::from($int::MAX));
            let $value = super::to_int::<F>(F::from_register(a), low, high, mode(rm), flags) as $int;
            $register
        }
        extern "C" fn $from<F: FloatFormat>(a: u64, _b: u64, _c: u64, rm: u64, flags: &mut u8) -> u64 {
            F::to_register(super::from_int::<F>(i128::from(a as $int), mode(rm), flags))
        }
    )*};
}

conversions! {
    to_w from_w i32 (value) value as u64;
    to_wu from_wu u32 (value) value as i32 as u64;
    to_l from_l i64 (value) value as u64;
    to_lu from_lu u64 (value) value;
}

extern "C" fn narrow(a: u64, _b: u64, _c: u64, rm: u64, flags: &mut u8) -> u64 {
    let (wide, narrow) = (f64::from_bits(a), f64::from_bits(a) as f32);
    if rm == 0 && narrow.is_finite() && narrow.abs() > f32::MIN_POSITIVE {
        if f64::from(narrow) != wide {
            *flags |= NX;
        }
        return Single::to_register(u64::from(narrow.to_bits()));
    }
    Single::to_register(super::widen::<Double, Single>(a, mode(rm), flags))
}

extern "C" fn widened(a: u64, _b: u64, _c: u64, _rm: u64, flags: &mut u8) -> u64 {
    super::widen::<Single, Double>(Single::from_register(a), Rounding::Nearest, flags)
}

fn of<F: FloatFormat>(operation: FloatOperation) -> FloatFunction {
    use FloatOperation::*;
    match operation {
        Add => add::<F>,
        Sub => sub::<F>,
        Mul => mul::<F>,
        Div => div::<F>,
        Sqrt => sqrt::<F>,
        Madd => fused::<F, false, false>,
        Msub => fused::<F, false, true>,
        Nmsub => fused::<F, true, false>,
        Nmadd => fused::<F, true, true>,
        Min => min::<F>,
        Max => max::<F>,
        Feq => feq::<F>,
        Flt => flt::<F>,
        Fle => fle::<F>,
        Class => classify::<F>,
        ToW => to_w::<F>,
        ToWu => to_wu::<F>,
        ToL => to_l::<F>,
        ToLu => to_lu::<F>,
        FromW => from_w::<F>,
        FromWu => from_wu::<F>,
        FromL => from_l::<F>,
        FromLu => from_lu::<F>,
    }
}

#[derive(Clone, Copy)]
enum FloatOperation {
    Add,
    Sub,
    Mul,
    Div,
    Sqrt,
    Madd,
    Msub,
    Nmsub,
    Nmadd,
    Min,
    Max,
    Feq,
    Flt,
    Fle,
    Class,
    ToW,
    ToWu,
    ToL,
    ToLu,
    FromW,
    FromWu,
    FromL,
    FromLu,
}

/// Returns the function that computes an instruction; `None` if it is not one of floating-point arithmetic.
pub fn float_function(code: Code) -> Option<FloatFunction> {
    use FloatOperation::*;
    let (single, operation) = match code {
        Code::FcvtSD => return Some(narrow),
        Code::FcvtDS => return Some(widened),
        Code::FaddS => (true, Add),
        Code::FsubS => (true, Sub),
        Code::FmulS => (true, Mul),
        Code::FdivS => (true, Div),
        Code::FsqrtS => (true, Sqrt),
        Code::FmaddS => (true, Madd),
        Code::FmsubS => (true, Msub),
        Code::FnmsubS => (true, Nmsub),
        Code::FnmaddS => (true, Nmadd),
        Code::FminS => (true, Min),
        Code::FmaxS => (true, Max),
        Code::FeqS => (true, Feq),
        Code::FltS => (true, Flt),
        Code::FleS => (true, Fle),
        Code::FclassS => (true, Class),
        Code::FcvtWS => (true, ToW),
        Code::FcvtWuS => (true, ToWu),
        Code::FcvtLS => (true, ToL),
        Code::FcvtLuS => (true, ToLu),
        Code::FcvtSW => (true, FromW),
        Code::FcvtSWu => (true, FromWu),
        Code::FcvtSL => (true, FromL),
        Code::FcvtSLu => (true, FromLu),
        Code::FaddD => (false, Add),
        Code::FsubD => (false, Sub),
        Code::FmulD => (false, Mul),
        Code::FdivD => (false, Div),
        Code::FsqrtD => (false, Sqrt),
        Code::FmaddD => (false, Madd),
        Code::FmsubD => (false, Msub),
        Code::FnmsubD => (false, Nmsub),
        Code::FnmaddD => (false, Nmadd),
        Code::FminD => (false, Min),
        Code::FmaxD => (false, Max),
        Code::FeqD => (false, Feq),
        Code::FltD => (false, Flt),
        Code::FleD => (false, Fle),
        Code::FclassD => (false, Class),
        Code::FcvtWD => (false, ToW),
        Code::FcvtWuD => (false, ToWu),
        Code::FcvtLD => (false, ToL),
        Code::FcvtLuD => (false, ToLu),
        Code::FcvtDW => (false, FromW),
        Code::FcvtDWu => (false, FromWu),
        Code::FcvtDL => (false, FromL),
        Code::FcvtDLu => (false, FromLu),
        _ => return None,
    };
    Some(if single { of::<Single>(operation) } else { of::<Double>(operation) })
}
