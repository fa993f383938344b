//! Estimates of reciprocals and reciprocal square roots with seven bits of precision, by the specification's tables.

use crate::float::{DZ, FloatFormat, NV, NX, OF, Rounding};

/// The first 7 fraction bits of `2 / x`, for the middle x of each of 128 parts of the interval from 1 to 2.
const RECIPROCAL: [u8; 128] = [
    127, 125, 123, 121, 119, 117, 116, 114, 112, 110, 109, 107, 105, 104, 102, 100, 99, 97, 96, 94, 93, 91, 90, 88, 87,
    85, 84, 83, 81, 80, 79, 77, 76, 75, 74, 72, 71, 70, 69, 68, 66, 65, 64, 63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53,
    52, 51, 50, 49, 48, 47, 46, 45, 44, 43, 42, 41, 40, 40, 39, 38, 37, 36, 35, 35, 34, 33, 32, 31, 31, 30, 29, 28, 28,
    27, 26, 25, 25, 24, 23, 23, 22, 21, 21, 20, 19, 19, 18, 17, 17, 16, 15, 15, 14, 14, 13, 12, 12, 11, 11, 10, 9, 9,
    8, 8, 7, 7, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0,
];
/// The first 7 fraction bits of `2 / sqrt(x)`, for x in 64 parts of the interval from 2 to 4, then in 64 parts of 1 to
/// 2.
const ROOT: [u8; 128] = [
    52, 51, 50, 48, 47, 46, 44, 43, 42, 41, 40, 39, 38, 36, 35, 34, 33, 32, 31, 30, 30, 29, 28, 27, 26, 25, 24, 23, 23,
    22, 21, 20, 19, 19, 18, 17, 16, 16, 15, 14, 14, 13, 12, 12, 11, 10, 10, 9, 9, 8, 7, 7, 6, 6, 5, 4, 4, 3, 3, 2, 2,
    1, 1, 0, 127, 125, 123, 121, 119, 118, 116, 114, 113, 111, 109, 108, 106, 105, 103, 102, 100, 99, 97, 96, 95, 93,
    92, 91, 90, 88, 87, 86, 85, 84, 83, 82, 80, 79, 78, 77, 76, 75, 74, 73, 72, 71, 70, 70, 69, 68, 67, 66, 65, 64, 63,
    63, 62, 61, 60, 59, 59, 58, 57, 56, 56, 55, 54, 53,
];

/// Exponent and fraction of a finite number other than zero; a subnormal number is normalised, and its leading bit
/// removed.
fn parts<F: FloatFormat>(a: u64) -> (i64, u64) {
    debug_assert!((1..F::INFINITY).contains(&(a & !F::SIGN)), "{a:#x} is zero, infinite or no number");
    let fraction_mask = (1 << F::FRACTION) - 1;
    let (mut exponent, mut fraction) = (((a & !F::SIGN) >> F::FRACTION) as i64, a & fraction_mask);
    if exponent == 0 {
        let by = fraction.leading_zeros() - (64 - F::FRACTION);
        exponent = -i64::from(by);
        fraction = fraction << (by + 1) & fraction_mask;
    }
    (exponent, fraction)
}

fn nan<F: FloatFormat>(invalid: bool, flags: &mut u8) -> u64 {
    if invalid {
        *flags |= NV;
    }
    F::NAN
}

/// Estimates `1 / a`.
pub(super) fn reciprocal<F: FloatFormat>(a: u64, rounding: Rounding, flags: &mut u8) -> u64 {
    let (sign, magnitude) = (a & F::SIGN, a & !F::SIGN);
    if F::is_nan(a) {
        return nan::<F>(F::is_signaling(a), flags);
    }
    if magnitude == F::INFINITY {
        return sign;
    }
    if magnitude == 0 {
        *flags |= DZ;
        return sign | F::INFINITY;
    }
    let (exponent, fraction) = parts::<F>(a);
    if exponent < -1 {
        *flags |= OF | NX;
        let down = match rounding {
            Rounding::Zero => true,
            Rounding::Down => sign == 0,
            Rounding::Up => sign != 0,
            Rounding::Nearest | Rounding::Away => false,
        };
        return sign | (F::INFINITY - u64::from(down));
    }
    let mut out = u64::from(RECIPROCAL[(fraction >> (F::FRACTION - 7)) as usize]) << (F::FRACTION - 7);
    let mut out_exponent = i64::from(2 * F::EXPONENT_MAX) - 1 - exponent;
    if out_exponent <= 0 {
        out = out >> 1 | 1 << (F::FRACTION - 1);
        out >>= -out_exponent;
        out_exponent = 0;
    }
    sign | (out_exponent as u64) << F::FRACTION | out
}

/// Estimates `1 / sqrt(a)`.
pub(super) fn root<F: FloatFormat>(a: u64, flags: &mut u8) -> u64 {
    let (sign, magnitude) = (a & F::SIGN, a & !F::SIGN);
    if F::is_nan(a) {
        return nan::<F>(F::is_signaling(a), flags);
    }
    if magnitude == 0 {
        *flags |= DZ;
        return sign | F::INFINITY;
    }
    if sign != 0 {
        return nan::<F>(true, flags);
    }
    if magnitude == F::INFINITY {
        return 0;
    }
    let (exponent, fraction) = parts::<F>(a);
    let index = ((exponent & 1) as usize) << 6 | (fraction >> (F::FRACTION - 6)) as usize;
    let out_exponent = (i64::from(3 * F::EXPONENT_MAX) - 1 - exponent) / 2;
    (out_exponent as u64) << F::FRACTION | u64::from(ROOT[index]) << (F::FRACTION - 7)
}
