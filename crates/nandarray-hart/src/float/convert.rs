//! Floating-point conversions: between single and double precision, and to and from integers.

use super::{Finite, FloatFormat, NV, NX, Number, Rounding, nan, round, shift_rounded, signed, unpack};

/// Converts a number of format `From` to format `To`.
pub(crate) fn widen<From: FloatFormat, To: FloatFormat>(a: u64, rounding: Rounding, flags: &mut u8) -> u64 {
    match unpack::<From>(a) {
        Number::Nan => {
            nan::<From>(&[a], false, flags);
            To::NAN
        }
        Number::Infinity(negative) => signed::<To>(negative, To::INFINITY),
        Number::Zero(negative) => signed::<To>(negative, 0),
        Number::Finite(value) => round::<To>(value, rounding, flags),
    }
}

/// Converts an integer to a number.
pub(crate) fn from_int<F: FloatFormat>(value: i128, rounding: Rounding, flags: &mut u8) -> u64 {
    if value == 0 {
        return 0;
    }
    let value = Finite { negative: value < 0, exponent: 0, significand: value.unsigned_abs() };
    round::<F>(value, rounding, flags)
}

/// Converts a number to an integer between `low` and `high`. Values outside become the nearer bound, a NaN becomes
/// `high`; both set the flag "invalid".
pub(crate) fn to_int<F: FloatFormat>(a: u64, low: i128, high: i128, rounding: Rounding, flags: &mut u8) -> i128 {
    debug_assert!(low <= 0 && 0 < high, "integers from {low} to {high}");
    let (value, exact) = match unpack::<F>(a) {
        Number::Nan | Number::Infinity(false) => (i128::MAX, true),
        Number::Infinity(true) => (i128::MIN, true),
        Number::Zero(_) => (0, true),
        // With such an exponent, the value needs more than 64 bits.
        Number::Finite(value) if value.exponent > 64 => (if value.negative { i128::MIN } else { i128::MAX }, true),
        Number::Finite(Finite { negative, exponent, significand }) => {
            let (magnitude, exact) = if exponent >= 0 {
                (significand << exponent, true)
            } else {
                shift_rounded(significand, exponent.unsigned_abs(), negative, rounding)
            };
            (if negative { -(magnitude as i128) } else { magnitude as i128 }, exact)
        }
    };
    if value < low || value > high {
        *flags |= NV;
        return value.clamp(low, high);
    }
    if !exact {
        *flags |= NX;
    }
    value
}
