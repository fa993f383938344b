//! Exact IEEE 754 arithmetic on bit patterns, as RISC-V defines it: all rounding modes, all flags.
//!
//! One implementation serves both precisions: a number is unpacked into sign, exponent and an integer significand of up
//! to 128 bits, the result is computed exactly (a remainder too small to keep becomes the lowest bit), and rounded once
//! by [`round`]. Tininess is detected after rounding, as with an unbounded exponent; a result that is not a number is
//! the canonical NaN. This implementation is authoritative; `exec/float.rs` uses the host's arithmetic where that
//! certainly agrees. No library is used: `rustc_apfloat` detects tininess differently, and checks the rest in the
//! tests.

mod compare;
mod convert;
mod evaluate;
mod fast;

pub(crate) use compare::{Relation, classify, compare, max, min};
pub(crate) use convert::{from_int, to_int, widen};
pub use evaluate::{FloatFunction, float_function};
pub(crate) use fast::FastFloat;

/// Rounding modes, in the order of their numbers in instructions and in `frm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To nearest, ties to even.
    Nearest,
    /// Towards zero.
    Zero,
    /// Towards minus infinity.
    Down,
    /// Towards plus infinity.
    Up,
    /// To nearest, ties away from zero.
    Away,
}

impl Rounding {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::Nearest, Self::Zero, Self::Down, Self::Up, Self::Away].get(number as usize).copied()
    }

    /// Whether rounding increases a magnitude by one unit. `odd`: the lowest bit kept is 1; `half` compares the bits
    /// cut off with half a unit, and `exact` says that these bits are zero.
    fn up(self, sign: bool, odd: bool, half: std::cmp::Ordering, exact: bool) -> bool {
        match self {
            Self::Nearest => half.is_gt() || half.is_eq() && odd,
            Self::Zero => false,
            Self::Down => sign && !exact,
            Self::Up => !sign && !exact,
            Self::Away => half.is_ge(),
        }
    }
}

/// Flag "invalid operation".
pub(crate) const NV: u8 = 16;
/// Flag "division by zero".
pub(crate) const DZ: u8 = 8;
/// Flag "overflow".
pub(crate) const OF: u8 = 4;
/// Flag "underflow".
pub(crate) const UF: u8 = 2;
/// Flag "inexact".
pub(crate) const NX: u8 = 1;

/// A floating-point format: single or double precision.
pub(crate) trait FloatFormat: FastFloat {
    /// Number of stored bits of the significand.
    const FRACTION: u32;
    /// Number of bits of the exponent.
    const EXPONENT: u32;

    const BITS: u32 = 1 + Self::EXPONENT + Self::FRACTION;
    const SIGN: u64 = 1 << (Self::BITS - 1);
    const INFINITY: u64 = ((1 << Self::EXPONENT) - 1) << Self::FRACTION;
    const NAN: u64 = Self::INFINITY | Self::QUIET;
    const QUIET: u64 = 1 << (Self::FRACTION - 1);
    const EXPONENT_MAX: i32 = (1 << (Self::EXPONENT - 1)) - 1;
    const EXPONENT_MIN: i32 = 1 - Self::EXPONENT_MAX;

    /// Returns the bits of the number that a register holds.
    fn from_register(register: u64) -> u64;

    /// Returns the register's contents that hold the number with these bits.
    fn to_register(bits: u64) -> u64;

    fn is_nan(bits: u64) -> bool {
        bits & !Self::SIGN > Self::INFINITY
    }

    fn is_signaling(bits: u64) -> bool {
        Self::is_nan(bits) && bits & Self::QUIET == 0
    }
}

/// Single precision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single;

/// Double precision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Double;

impl FloatFormat for Single {
    const FRACTION: u32 = 23;
    const EXPONENT: u32 = 8;

    /// Returns the canonical NaN if the register's upper half is not all ones (boxed).
    #[inline(always)]
    fn from_register(register: u64) -> u64 {
        if register >> 32 == 0xffff_ffff { register & 0xffff_ffff } else { Self::NAN }
    }

    #[inline(always)]
    fn to_register(bits: u64) -> u64 {
        bits | 0xffff_ffff << 32
    }
}

impl FloatFormat for Double {
    const FRACTION: u32 = 52;
    const EXPONENT: u32 = 11;

    #[inline(always)]
    fn from_register(register: u64) -> u64 {
        register
    }

    #[inline(always)]
    fn to_register(bits: u64) -> u64 {
        bits
    }
}

/// A bit pattern, unpacked; the booleans are signs, true for negative.
#[derive(Clone, Copy, Debug)]
enum Number {
    Nan,
    Infinity(bool),
    Zero(bool),
    Finite(Finite),
}

/// The value `significand * 2^exponent` with a sign; never zero.
#[derive(Clone, Copy, Debug)]
struct Finite {
    negative: bool,
    exponent: i32,
    significand: u128,
}

impl Finite {
    /// Returns the same value with the highest bit of its significand moved up to position `bit`.
    fn shifted_to(self, bit: u32) -> Self {
        debug_assert!(self.significand != 0 && self.significand >> bit <= 1, "{self:?} has bits above {bit}");
        let by = bit - (127 - self.significand.leading_zeros());
        Self { significand: self.significand << by, exponent: self.exponent - by as i32, ..self }
    }
}

fn unpack<F: FloatFormat>(bits: u64) -> Number {
    let negative = bits & F::SIGN != 0;
    let magnitude = bits & !F::SIGN;
    if magnitude > F::INFINITY {
        return Number::Nan;
    }
    if magnitude == F::INFINITY {
        return Number::Infinity(negative);
    }
    if magnitude == 0 {
        return Number::Zero(negative);
    }
    let biased = (magnitude >> F::FRACTION) as i32;
    let fraction = magnitude & ((1 << F::FRACTION) - 1);
    let hidden = u64::from(biased != 0) << F::FRACTION;
    let exponent = biased.max(1) - F::EXPONENT_MAX - F::FRACTION as i32;
    Number::Finite(Finite { negative, exponent, significand: u128::from(fraction | hidden) })
}

fn signed<F: FloatFormat>(negative: bool, magnitude: u64) -> u64 {
    if negative { magnitude | F::SIGN } else { magnitude }
}

/// Divides `value` by `2^shift` and rounds to an integer; returns the integer, and whether the division was exact.
fn shift_rounded(value: u128, shift: u32, negative: bool, rounding: Rounding) -> (u128, bool) {
    if shift == 0 {
        return (value, true);
    }
    if shift > 127 {
        // The value is below half a unit, or zero.
        let up = rounding.up(negative, false, std::cmp::Ordering::Less, value == 0);
        return (u128::from(up), value == 0);
    }
    let (whole, rest, half) = (value >> shift, value & ((1 << shift) - 1), 1 << (shift - 1));
    let up = rounding.up(negative, whole & 1 != 0, rest.cmp(&half), rest == 0);
    (whole + u128::from(up), rest == 0)
}

/// Rounds a value once to a number of format `F`, and sets flags.
fn round<F: FloatFormat>(value: Finite, rounding: Rounding, flags: &mut u8) -> u64 {
    let Finite { negative, exponent, significand } = value;
    debug_assert!(significand != 0, "a zero has a sign of its own");
    let top = 127 - significand.leading_zeros() as i32;
    // The value is at least 2^scale and below 2^(scale + 1).
    let scale = exponent + top;
    let keep = F::FRACTION as i32;
    let subnormal_by = (F::EXPONENT_MIN - scale).max(0);
    let shift = top - keep + subnormal_by;
    let (rounded, exact) = if shift <= 0 {
        (significand << -shift, true)
    } else {
        shift_rounded(significand, shift as u32, negative, rounding)
    };
    if !exact {
        *flags |= NX;
        // The result is tiny if it would be below the smallest normal number even with all bits of a normal number's
        // significand.
        let tiny = subnormal_by > 1
            || subnormal_by == 1 && {
                let unbounded = (top - keep).max(0) as u32;
                shift_rounded(significand, unbounded, negative, rounding).0 >> (F::FRACTION + 1) == 0
            };
        if tiny {
            *flags |= UF;
        }
    }
    if subnormal_by > 0 {
        debug_assert!(rounded >> (F::FRACTION + 1) == 0, "{rounded:#x} is no subnormal number");
        // A carry into the hidden bit gives the smallest normal number, as its encoding does.
        return signed::<F>(negative, rounded as u64);
    }
    debug_assert!(rounded >> F::FRACTION != 0 && rounded >> (F::FRACTION + 2) == 0, "{rounded:#x} is not normal");
    let carried = rounded >> (F::FRACTION + 1) != 0;
    let scale = scale + i32::from(carried);
    if scale > F::EXPONENT_MAX {
        *flags |= OF | NX;
        let infinite = match rounding {
            Rounding::Nearest | Rounding::Away => true,
            Rounding::Zero => false,
            Rounding::Down => negative,
            Rounding::Up => !negative,
        };
        return signed::<F>(negative, F::INFINITY - u64::from(!infinite));
    }
    let fraction = (if carried { rounded >> 1 } else { rounded }) as u64 & ((1 << F::FRACTION) - 1);
    signed::<F>(negative, ((scale + F::EXPONENT_MAX) as u64) << F::FRACTION | fraction)
}

/// Returns the canonical NaN, and sets the flag "invalid" if an operand is a signalling NaN, or if `invalid`.
fn nan<F: FloatFormat>(operands: &[u64], invalid: bool, flags: &mut u8) -> u64 {
    if invalid || operands.iter().any(|bits| F::is_signaling(*bits)) {
        *flags |= NV;
    }
    F::NAN
}

/// Returns the sum of two values; `None` if it is exactly zero. Each significand has at most 106 bits.
fn sum(a: Finite, b: Finite) -> Option<Finite> {
    const TOP: u32 = 125;
    let (a, b) = (a.shifted_to(TOP), b.shifted_to(TOP));
    let (large, small) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
    let by = (large.exponent - small.exponent) as u32;
    // Bits that are shifted out become the lowest bit, 20 bits below the result's lowest. Cancellation does not reach
    // it, since more than one bit cancels only if almost nothing is shifted out.
    let lost = by > 127 || small.significand & ((1u128 << by.min(127)) - 1) != 0;
    let aligned = (if by > 127 { 0 } else { small.significand >> by }) | u128::from(lost);
    let Finite { negative, exponent, significand } = large;
    if large.negative == small.negative {
        return Some(Finite { negative, exponent, significand: significand + aligned });
    }
    match significand.cmp(&aligned) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(Finite { negative, exponent, significand: significand - aligned }),
        std::cmp::Ordering::Less => Some(Finite { negative: !negative, exponent, significand: aligned - significand }),
    }
}

fn product(a: Finite, b: Finite) -> Finite {
    debug_assert!(a.significand >> 64 == 0 && b.significand >> 64 == 0, "{a:?} * {b:?}");
    Finite {
        negative: a.negative != b.negative,
        exponent: a.exponent + b.exponent,
        significand: a.significand * b.significand,
    }
}

/// Returns the zero that results from adding opposite values: negative only when rounding down.
fn cancelled<F: FloatFormat>(rounding: Rounding) -> u64 {
    signed::<F>(rounding == Rounding::Down, 0)
}

/// Computes `a + b`.
pub(crate) fn add<F: FloatFormat>(a: u64, b: u64, rounding: Rounding, flags: &mut u8) -> u64 {
    match (unpack::<F>(a), unpack::<F>(b)) {
        (Number::Nan, _) | (_, Number::Nan) => nan::<F>(&[a, b], false, flags),
        (Number::Infinity(left), Number::Infinity(right)) if left != right => nan::<F>(&[], true, flags),
        (Number::Infinity(_), _) => a,
        (_, Number::Infinity(_)) => b,
        (Number::Zero(left), Number::Zero(right)) if left == right => a,
        (Number::Zero(_), Number::Zero(_)) => cancelled::<F>(rounding),
        (Number::Zero(_), _) => b,
        (_, Number::Zero(_)) => a,
        (Number::Finite(left), Number::Finite(right)) => match sum(left, right) {
            Some(value) => round::<F>(value, rounding, flags),
            None => cancelled::<F>(rounding),
        },
    }
}

/// Computes `a - b`.
pub(crate) fn sub<F: FloatFormat>(a: u64, b: u64, rounding: Rounding, flags: &mut u8) -> u64 {
    add::<F>(a, if F::is_nan(b) { b } else { b ^ F::SIGN }, rounding, flags)
}

/// Computes `a * b`.
pub(crate) fn mul<F: FloatFormat>(a: u64, b: u64, rounding: Rounding, flags: &mut u8) -> u64 {
    let negative = (a ^ b) & F::SIGN != 0;
    match (unpack::<F>(a), unpack::<F>(b)) {
        (Number::Nan, _) | (_, Number::Nan) => nan::<F>(&[a, b], false, flags),
        (Number::Infinity(_), Number::Zero(_)) | (Number::Zero(_), Number::Infinity(_)) => nan::<F>(&[], true, flags),
        (Number::Infinity(_), _) | (_, Number::Infinity(_)) => signed::<F>(negative, F::INFINITY),
        (Number::Zero(_), _) | (_, Number::Zero(_)) => signed::<F>(negative, 0),
        (Number::Finite(left), Number::Finite(right)) => round::<F>(product(left, right), rounding, flags),
    }
}

/// Computes `a / b`.
pub(crate) fn div<F: FloatFormat>(a: u64, b: u64, rounding: Rounding, flags: &mut u8) -> u64 {
    let negative = (a ^ b) & F::SIGN != 0;
    match (unpack::<F>(a), unpack::<F>(b)) {
        (Number::Nan, _) | (_, Number::Nan) => nan::<F>(&[a, b], false, flags),
        (Number::Infinity(_), Number::Infinity(_)) | (Number::Zero(_), Number::Zero(_)) => nan::<F>(&[], true, flags),
        (Number::Infinity(_), _) => signed::<F>(negative, F::INFINITY),
        (_, Number::Infinity(_)) | (Number::Zero(_), _) => signed::<F>(negative, 0),
        (_, Number::Zero(_)) => {
            *flags |= DZ;
            signed::<F>(negative, F::INFINITY)
        }
        (Number::Finite(left), Number::Finite(right)) => {
            // Compute a quotient of at least 64 bits, and whether there is a remainder.
            let (left, right) = (left.shifted_to(126), right.shifted_to(62));
            let (quotient, rest) = (left.significand / right.significand, left.significand % right.significand);
            let significand = quotient << 1 | u128::from(rest != 0);
            let exponent = left.exponent - right.exponent - 1;
            round::<F>(Finite { negative, exponent, significand }, rounding, flags)
        }
    }
}

/// Computes the square root of a number.
pub(crate) fn sqrt<F: FloatFormat>(a: u64, rounding: Rounding, flags: &mut u8) -> u64 {
    match unpack::<F>(a) {
        Number::Nan => nan::<F>(&[a], false, flags),
        Number::Zero(_) | Number::Infinity(false) => a,
        Number::Infinity(true) | Number::Finite(Finite { negative: true, .. }) => nan::<F>(&[], true, flags),
        Number::Finite(value) => {
            // Compute a root of 62 or 63 bits of the value scaled to an even exponent, and whether there is a
            // remainder.
            let value = value.shifted_to(124);
            let odd = value.exponent & 1 != 0;
            let square = if odd { value.significand << 1 } else { value.significand };
            let root = square.isqrt();
            let significand = root << 1 | u128::from(root * root != square);
            let exponent = (value.exponent - i32::from(odd)) / 2 - 1;
            round::<F>(Finite { negative: false, exponent, significand }, rounding, flags)
        }
    }
}

/// Computes `a * b + c`, rounded once.
pub(crate) fn fused<F: FloatFormat>(a: u64, b: u64, c: u64, rounding: Rounding, flags: &mut u8) -> u64 {
    let negative = (a ^ b) & F::SIGN != 0;
    let (left, right, third) = (unpack::<F>(a), unpack::<F>(b), unpack::<F>(c));
    let invalid =
        matches!((left, right), (Number::Infinity(_), Number::Zero(_)) | (Number::Zero(_), Number::Infinity(_)));
    match (left, right, third) {
        _ if invalid => nan::<F>(&[], true, flags),
        (Number::Nan, ..) | (_, Number::Nan, _) | (.., Number::Nan) => nan::<F>(&[a, b, c], false, flags),
        (Number::Infinity(_), _, third) | (_, Number::Infinity(_), third) => match third {
            Number::Infinity(sign) if sign != negative => nan::<F>(&[], true, flags),
            _ => signed::<F>(negative, F::INFINITY),
        },
        (.., Number::Infinity(_)) => c,
        (Number::Zero(_), _, third) | (_, Number::Zero(_), third) => match third {
            Number::Zero(sign) if sign != negative => cancelled::<F>(rounding),
            _ => c,
        },
        (Number::Finite(left), Number::Finite(right), Number::Zero(_)) => {
            round::<F>(product(left, right), rounding, flags)
        }
        (Number::Finite(left), Number::Finite(right), Number::Finite(third)) => {
            match sum(product(left, right), third) {
                Some(value) => round::<F>(value, rounding, flags),
                None => cancelled::<F>(rounding),
            }
        }
    }
}

#[cfg(test)]
mod tests;
