//! Fast paths: the cases in which the host's arithmetic certainly gives the right result and flags.
//!
//! The rounding mode is "to nearest" here, which is the host's. A result in the normal range raises no flag but
//! "inexact", so it remains to decide whether the result is exact. That is unnecessary if the flag is set already (`NX`
//! is never cleared by arithmetic); otherwise an error-free transformation (sums) or the numbers of significant bits of
//! the factors (products, quotients, roots) decide it. Undecided cases return `None`, and the caller takes the exact
//! path.

use super::{Double, NX, Single};

/// Host arithmetic on bit patterns; a function returns `None` if the host's result or flags are not certain.
pub(crate) trait FastFloat: Copy + 'static {
    fn add(a: u64, b: u64, flags: &mut u8) -> Option<u64>;
    fn sub(a: u64, b: u64, flags: &mut u8) -> Option<u64>;
    fn mul(a: u64, b: u64, flags: &mut u8) -> Option<u64>;
    fn div(a: u64, b: u64, flags: &mut u8) -> Option<u64>;
    fn sqrt(a: u64, flags: &mut u8) -> Option<u64>;
    /// Computes `a * b + c`, rounded once.
    fn fused(a: u64, b: u64, c: u64, flags: &mut u8) -> Option<u64>;
    /// Returns the value of a number as double precision, which can represent all of them.
    fn to_f64(bits: u64) -> f64;
    /// Returns the bits of an integer that fits in the significand.
    fn of_small(value: i64) -> u64;
}

/// Returns the number of bits from the highest to the lowest set bit in the significand of a normal number.
#[inline(always)]
fn significant(bits: u64) -> u32 {
    53 - (bits | 1 << 52).trailing_zeros()
}

fn normal(value: f64) -> bool {
    value.is_normal()
}

/// Whether the product of `a` and `b` is exact without rounding, if both and the product are normal; `None` if their
/// significant bits do not decide it.
#[inline(always)]
fn product_exact(a: u64, b: u64) -> Option<bool> {
    // The product of two odd integers of p and q bits has p + q - 1 or p + q bits.
    match significant(a) + significant(b) {
        0..=53 => Some(true),
        54 => None,
        _ => Some(false),
    }
}

/// Whether `whole` is exactly `part * other`, if all are normal; `None` if their significant bits do not decide it.
#[inline(always)]
fn is_product(whole: f64, part: f64, other: f64) -> Option<bool> {
    match significant(part.to_bits()) + significant(other.to_bits()) {
        0..=53 => Some(part * other == whole),
        54 => None,
        _ => Some(false),
    }
}

#[inline(always)]
fn note(flags: &mut u8, exact: Option<bool>) -> Option<()> {
    if !exact? {
        *flags |= NX;
    }
    Some(())
}

impl FastFloat for Double {
    #[inline(always)]
    fn to_f64(bits: u64) -> f64 {
        f64::from_bits(bits)
    }

    #[inline(always)]
    fn of_small(value: i64) -> u64 {
        (value as f64).to_bits()
    }

    #[inline(always)]
    fn add(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let (a, b) = (f64::from_bits(a), f64::from_bits(b));
        let sum = a + b;
        if !sum.is_finite() {
            return None;
        }
        if *flags & NX == 0 {
            // The rounding error of the sum is itself a number, and the transformation computes it unless something
            // overflows.
            if a.abs() > f64::MAX / 4.0 || b.abs() > f64::MAX / 4.0 {
                return None;
            }
            let part = sum - a;
            if (a - (sum - part)) + (b - part) != 0.0 {
                *flags |= NX;
            }
        }
        Some(sum.to_bits())
    }

    #[inline(always)]
    fn sub(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        Self::add(a, b ^ 1 << 63, flags)
    }

    #[inline(always)]
    fn mul(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let (left, right) = (f64::from_bits(a), f64::from_bits(b));
        let result = left * right;
        // The smallest normal number may be the result of rounding a smaller one up.
        if !result.is_finite() || result.abs() <= f64::MIN_POSITIVE {
            let zero = result == 0.0 && (left == 0.0 || right == 0.0);
            return zero.then_some(result.to_bits());
        }
        if *flags & NX == 0 {
            if !normal(left) || !normal(right) {
                return None;
            }
            note(flags, product_exact(a, b))?;
        }
        Some(result.to_bits())
    }

    #[inline(always)]
    fn div(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let (left, right) = (f64::from_bits(a), f64::from_bits(b));
        let result = left / right;
        if !result.is_finite() || result.abs() <= f64::MIN_POSITIVE || !right.is_finite() {
            return None;
        }
        if *flags & NX == 0 {
            // The check multiplies, so it stays far from products that leave the normal range.
            if !normal(left) || !normal(right) || left.abs() < 1e-290 {
                return None;
            }
            note(flags, is_product(left, result, right))?;
        }
        Some(result.to_bits())
    }

    #[inline(always)]
    fn sqrt(a: u64, flags: &mut u8) -> Option<u64> {
        let value = f64::from_bits(a);
        if !normal(value) || value < 0.0 {
            return None;
        }
        let root = value.sqrt();
        if *flags & NX == 0 {
            if value < 1e-290 {
                return None;
            }
            note(flags, is_product(value, root, root))?;
        }
        Some(root.to_bits())
    }

    #[inline(always)]
    fn fused(a: u64, b: u64, c: u64, flags: &mut u8) -> Option<u64> {
        if *flags & NX == 0 {
            return None;
        }
        let result = f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c));
        (result.is_finite() && result.abs() > f64::MIN_POSITIVE).then_some(result.to_bits())
    }
}

/// Returns a single-precision result and sets the flag "inexact" unless it is `exact`; `None` if the result is not in
/// the normal range.
#[inline(always)]
fn single(result: f32, exact: bool, flags: &mut u8) -> Option<u64> {
    if !result.is_finite() || result.abs() <= f32::MIN_POSITIVE {
        return None;
    }
    if !exact {
        *flags |= NX;
    }
    Some(u64::from(result.to_bits()))
}

impl FastFloat for Single {
    #[inline(always)]
    fn to_f64(bits: u64) -> f64 {
        f64::from(f32::from_bits(bits as u32))
    }

    #[inline(always)]
    fn of_small(value: i64) -> u64 {
        u64::from((value as f32).to_bits())
    }

    #[inline(always)]
    fn add(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        let sum = a + b;
        if !sum.is_finite() {
            return None;
        }
        if *flags & NX == 0 {
            if a.abs() > f32::MAX / 4.0 || b.abs() > f32::MAX / 4.0 {
                return None;
            }
            let part = sum - a;
            if (a - (sum - part)) + (b - part) != 0.0 {
                *flags |= NX;
            }
        }
        Some(u64::from(sum.to_bits()))
    }

    #[inline(always)]
    fn sub(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        Self::add(a, b ^ 1 << 31, flags)
    }

    #[inline(always)]
    fn mul(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        let result = a * b;
        if result == 0.0 && (a == 0.0 || b == 0.0) {
            return Some(u64::from(result.to_bits()));
        }
        // A product of two numbers of 24 bits is exact in double precision.
        single(result, f64::from(a) * f64::from(b) == f64::from(result), flags)
    }

    #[inline(always)]
    fn div(a: u64, b: u64, flags: &mut u8) -> Option<u64> {
        let (a, b) = (f32::from_bits(a as u32), f32::from_bits(b as u32));
        let result = a / b;
        if !b.is_finite() {
            return None;
        }
        single(result, f64::from(result) * f64::from(b) == f64::from(a), flags)
    }

    #[inline(always)]
    fn sqrt(a: u64, flags: &mut u8) -> Option<u64> {
        let value = f32::from_bits(a as u32);
        if !value.is_normal() || value < 0.0 {
            return None;
        }
        let root = value.sqrt();
        single(root, f64::from(root) * f64::from(root) == f64::from(value), flags)
    }

    #[inline(always)]
    fn fused(a: u64, b: u64, c: u64, flags: &mut u8) -> Option<u64> {
        if *flags & NX == 0 {
            return None;
        }
        let result = f32::from_bits(a as u32).mul_add(f32::from_bits(b as u32), f32::from_bits(c as u32));
        (result.is_finite() && result.abs() > f32::MIN_POSITIVE).then_some(u64::from(result.to_bits()))
    }
}
