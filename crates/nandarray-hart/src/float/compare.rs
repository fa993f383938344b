//! Floating-point comparison, minimum and maximum, and classification.

use super::{FloatFormat, NV};

/// The relation that a comparison tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    Less,
    LessOrEqual,
}

/// Returns an integer that orders as the numbers do; both zeros have the same integer.
fn key<F: FloatFormat>(bits: u64) -> i64 {
    debug_assert!(!F::is_nan(bits), "{bits:#x} has no order");
    let magnitude = (bits & !F::SIGN) as i64;
    if bits & F::SIGN != 0 { -magnitude } else { magnitude }
}

/// Whether `a` stands in the relation to `b`; never, if one of them is a NaN. A test of their order then sets the flag
/// "invalid", a test of equality only for a signalling NaN.
pub(crate) fn compare<F: FloatFormat>(relation: Relation, a: u64, b: u64, flags: &mut u8) -> bool {
    if F::is_nan(a) || F::is_nan(b) {
        if relation != Relation::Equal || F::is_signaling(a) || F::is_signaling(b) {
            *flags |= NV;
        }
        return false;
    }
    match relation {
        Relation::Equal => key::<F>(a) == key::<F>(b),
        Relation::Less => key::<F>(a) < key::<F>(b),
        Relation::LessOrEqual => key::<F>(a) <= key::<F>(b),
    }
}

fn choose<F: FloatFormat>(a: u64, b: u64, flags: &mut u8, least: bool) -> u64 {
    if F::is_signaling(a) || F::is_signaling(b) {
        *flags |= NV;
    }
    match (F::is_nan(a), F::is_nan(b)) {
        (true, true) => F::NAN,
        (true, false) => b,
        (false, true) => a,
        // Minus zero counts as smaller than plus zero.
        (false, false) => {
            let smaller = key::<F>(a) < key::<F>(b) || key::<F>(a) == key::<F>(b) && a & F::SIGN != 0;
            if smaller == least { a } else { b }
        }
    }
}

/// Returns the smaller of two numbers; if one is a NaN, the other.
pub(crate) fn min<F: FloatFormat>(a: u64, b: u64, flags: &mut u8) -> u64 {
    choose::<F>(a, b, flags, true)
}

/// Returns the larger of two numbers; if one is a NaN, the other.
pub(crate) fn max<F: FloatFormat>(a: u64, b: u64, flags: &mut u8) -> u64 {
    choose::<F>(a, b, flags, false)
}

/// Returns the class of a number as `fclass` returns it: one of ten bits.
pub(crate) fn classify<F: FloatFormat>(bits: u64) -> u64 {
    let magnitude = bits & !F::SIGN;
    let class = if magnitude > F::INFINITY {
        return if F::is_signaling(bits) { 1 << 8 } else { 1 << 9 };
    } else if magnitude == F::INFINITY {
        0
    } else if magnitude >> F::FRACTION != 0 {
        1
    } else if magnitude != 0 {
        2
    } else {
        3
    };
    // Negative classes count up from 0, positive ones down from 7.
    1 << if bits & F::SIGN != 0 { class } else { 7 - class }
}
