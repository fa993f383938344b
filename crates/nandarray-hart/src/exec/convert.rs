//! Conversions and moves between the register files and the precisions.

use super::float::{get, nearest, put, rounding};
use super::{handlers, next, operands, otherwise};
use crate::float::{self, Double, FloatFormat, NX, Rounding, Single};
use crate::trap::Cause;
use crate::xlen::Xlen;

/// Defines conversions of floating-point numbers to integers. The fast path truncates a number that certainly fits.
macro_rules! to_integers {
    ($($name:ident $exact:ident $int:ident ($value:ident) $register:expr;)*) => { handlers! {$(
        fn $name<F: FloatFormat>(step, s, e) {
            let o = operands!(step);
            if o.imm == 1 {
                let number = F::to_f64(get::<X, F>(s, o.rs1));
                // The largest integers have no exact neighbour in double precision, so the fast path only accepts half
                // of the range.
                let (low, high) = (($int::MIN / 2) as f64, ($int::MAX / 2) as f64);
                if number >= low && number < high {
                    let $value = number as $int;
                    if $value as f64 != number {
                        s.fflags |= NX;
                    }
                    s.x[o.rd as usize] = X::word($register);
                    next!(step, s, e)
                }
            }
            otherwise!($exact::<X, F>, step, s, e)
        }
        #[inline(never)]
        fn $exact<F: FloatFormat>(step, s, e) {
            let o = operands!(step);
            let Some(mode) = rounding(s, o.imm) else { return s.trap(step, Cause::IllegalInstruction, 0) };
            let (low, high) = (i128::from($int::MIN), i128::from($int::MAX));
            let $value = float::to_int::<F>(get::<X, F>(s, o.rs1), low, high, mode, &mut s.fflags) as $int;
            s.x[o.rd as usize] = X::word($register);
            next!(step, s, e)
        }
    )*}};
}

to_integers! {
    to_w to_w_exact i32 (value) value as u64;
    to_wu to_wu_exact u32 (value) value as i32 as u64;
    to_l to_l_exact i64 (value) value as u64;
    to_lu to_lu_exact u64 (value) value;
}

/// Defines conversions of integers to floating-point numbers.
macro_rules! from_integers {
    ($($name:ident $exact:ident $int:ident;)*) => { handlers! {$(
        fn $name<F: FloatFormat>(step, s, e) {
            let o = operands!(step);
            let value = X::unsigned(s.x[o.rs1 as usize]) as $int;
            // Integers that fit in the significand are exact in any rounding mode.
            if i128::from(value).unsigned_abs() < 1 << F::FRACTION {
                put::<X, F>(s, o.rd, F::of_small(value as i64));
                next!(step, s, e)
            }
            otherwise!($exact::<X, F>, step, s, e)
        }
        #[inline(never)]
        fn $exact<F: FloatFormat>(step, s, e) {
            let o = operands!(step);
            let Some(mode) = rounding(s, o.imm) else { return s.trap(step, Cause::IllegalInstruction, 0) };
            let value = X::unsigned(s.x[o.rs1 as usize]) as $int;
            let bits = float::from_int::<F>(i128::from(value), mode, &mut s.fflags);
            put::<X, F>(s, o.rd, bits);
            next!(step, s, e)
        }
    )*}};
}

from_integers! {
    from_w from_w_exact i32;
    from_wu from_wu_exact u32;
    from_l from_l_exact i64;
    from_lu from_lu_exact u64;
}

handlers! {
    fn single_from_double(step, s, e) {
        let o = operands!(step);
        let Some(mode) = rounding(s, o.imm) else { return s.trap(step, Cause::IllegalInstruction, 0) };
        let bits = get::<X, Double>(s, o.rs1);
        let (wide, narrow) = (f64::from_bits(bits), f64::from_bits(bits) as f32);
        if nearest(s, o.imm) && narrow.is_finite() && narrow.abs() > f32::MIN_POSITIVE {
            if f64::from(narrow) != wide {
                s.fflags |= NX;
            }
            put::<X, Single>(s, o.rd, u64::from(narrow.to_bits()));
        } else {
            let bits = float::widen::<Double, Single>(bits, mode, &mut s.fflags);
            put::<X, Single>(s, o.rd, bits);
        }
        next!(step, s, e)
    }
    fn double_from_single(step, s, e) {
        let o = operands!(step);
        let bits = get::<X, Single>(s, o.rs1);
        let number = f32::from_bits(bits as u32);
        if rounding(s, o.imm).is_none() {
            return s.trap(step, Cause::IllegalInstruction, 0);
        }
        let wide = if number.is_nan() {
            float::widen::<Single, Double>(bits, Rounding::Nearest, &mut s.fflags)
        } else {
            f64::from(number).to_bits()
        };
        put::<X, Double>(s, o.rd, wide);
        next!(step, s, e)
    }
    // Moves copy all bits: they do not check whether a single-precision value is boxed.
    fn move_x_w(step, s, e) {
        let o = operands!(step);
        s.x[o.rd as usize] = X::word(s.f[o.rs1 as usize & 31] as i32 as u64);
        next!(step, s, e)
    }
    fn move_w_x(step, s, e) {
        let o = operands!(step);
        put::<X, Single>(s, o.rd, X::unsigned(s.x[o.rs1 as usize]) & 0xffff_ffff);
        next!(step, s, e)
    }
    fn move_x_d(step, s, e) {
        let o = operands!(step);
        s.x[o.rd as usize] = X::word(s.f[o.rs1 as usize & 31]);
        next!(step, s, e)
    }
    fn move_d_x(step, s, e) {
        let o = operands!(step);
        s.f[o.rd as usize & 31] = X::unsigned(s.x[o.rs1 as usize]);
        next!(step, s, e)
    }
    fn classify<F: FloatFormat>(step, s, e) {
        let o = operands!(step);
        s.x[o.rd as usize] = X::word(float::classify::<F>(get::<X, F>(s, o.rs1)));
        next!(step, s, e)
    }
}
