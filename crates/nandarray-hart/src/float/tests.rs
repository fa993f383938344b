//! Tests of the exact arithmetic, compared with `rustc_apfloat`, and of the host's arithmetic, compared with the exact
//! one.
//!
//! `rustc_apfloat` differs in two flags, which are compared with QEMU's in `tests/`: it detects tininess before the
//! rounding to the smallest normal number, and does not report an overflow that is rounded to the largest number.

use super::*;
use proptest::prelude::*;
use rustc_apfloat::ieee;
use rustc_apfloat::{Float, Round, Status, StatusAnd};

/// Generates numbers of all kinds: random bits, and exponents and significands near the limits of the format.
fn number<F: FloatFormat>() -> impl Strategy<Value = u64> {
    let all = (F::INFINITY | F::SIGN) | ((1 << F::FRACTION) - 1);
    let near =
        (any::<bool>(), 0..1u64 << F::EXPONENT, 0..4u8, any::<u64>()).prop_map(move |(sign, exponent, kind, bits)| {
            let ones = (1u64 << F::FRACTION) - 1;
            let fraction = match kind {
                0 => bits & 3,
                1 => ones - (bits & 3),
                2 => ones & (u64::MAX << (bits % 53)),
                _ => bits & ones,
            };
            (if sign { F::SIGN } else { 0 }) | exponent << F::FRACTION | fraction
        });
    let bias = F::EXPONENT_MAX as u64;
    let moderate = (any::<u64>(), bias - 30..bias + 30)
        .prop_map(move |(bits, exponent)| bits & F::SIGN | exponent << F::FRACTION | bits & ((1 << F::FRACTION) - 1));
    let special = prop::sample::select(vec![
        0,
        F::SIGN,
        F::INFINITY,
        F::INFINITY | F::SIGN,
        F::NAN,
        F::INFINITY + 1,
        1,
        F::SIGN | 1,
    ]);
    prop_oneof![any::<u64>().prop_map(move |b| b & all), near, moderate, special]
}

const MODES: [(Rounding, Round); 5] = [
    (Rounding::Nearest, Round::NearestTiesToEven),
    (Rounding::Zero, Round::TowardZero),
    (Rounding::Down, Round::TowardNegative),
    (Rounding::Up, Round::TowardPositive),
    (Rounding::Away, Round::NearestTiesToAway),
];

fn flags_of(status: Status) -> u8 {
    [
        (Status::INVALID_OP, NV),
        (Status::DIV_BY_ZERO, DZ),
        (Status::OVERFLOW, OF),
        (Status::UNDERFLOW, UF),
        (Status::INEXACT, NX),
    ]
    .into_iter()
    .filter(|(status_bit, _)| status.contains(*status_bit))
    .fold(0, |flags, (_, bit)| flags | bit)
}

/// Compares a result with that of `rustc_apfloat`: canonical NaNs, and flags except for the two differences.
fn agree<F: FloatFormat, A: Float>(ours: u64, flags: u8, theirs: StatusAnd<A>) -> Result<(), TestCaseError> {
    let expected = if theirs.value.is_nan() { F::NAN } else { theirs.value.to_bits() as u64 };
    prop_assert_eq!(ours, expected, "{:#x} {:#x}", ours, expected);
    let smallest_normal = ours & !F::SIGN == 1 << F::FRACTION;
    let largest = ours & !F::SIGN == F::INFINITY - 1;
    let mask = !(if smallest_normal { UF } else { 0 } | if largest { OF } else { 0 });
    prop_assert_eq!(flags & mask, flags_of(theirs.status) & mask);
    Ok(())
}

macro_rules! against_oracle {
    ($name:ident, $format:ident, $oracle:ty) => {
        mod $name {
            use super::*;

            fn of(bits: u64) -> $oracle {
                <$oracle>::from_bits(u128::from(bits))
            }

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(20_000))]

                #[test]
                fn arithmetic(
                    a in number::<$format>(), b in number::<$format>(), c in number::<$format>(), mode in 0..5usize,
                ) {
                    let (ours, theirs) = MODES[mode];
                    let mut flags = 0;
                    let bits = add::<$format>(a, b, ours, &mut flags);
                    agree::<$format, _>(bits, flags, of(a).add_r(of(b), theirs))?;
                    flags = 0;
                    let bits = sub::<$format>(a, b, ours, &mut flags);
                    agree::<$format, _>(bits, flags, of(a).sub_r(of(b), theirs))?;
                    flags = 0;
                    let bits = mul::<$format>(a, b, ours, &mut flags);
                    agree::<$format, _>(bits, flags, of(a).mul_r(of(b), theirs))?;
                    flags = 0;
                    let bits = div::<$format>(a, b, ours, &mut flags);
                    agree::<$format, _>(bits, flags, of(a).div_r(of(b), theirs))?;
                    // `rustc_apfloat` does not report infinity times zero plus a quiet NaN as invalid.
                    if !$format::is_nan(c) {
                        flags = 0;
                        let bits = fused::<$format>(a, b, c, ours, &mut flags);
                        agree::<$format, _>(bits, flags, of(a).mul_add_r(of(b), of(c), theirs))?;
                    }
                }

                #[test]
                fn integers(a in number::<$format>(), value: i64, mode in 0..5usize) {
                    let (ours, theirs) = MODES[mode];
                    let mut flags = 0;
                    let bits = from_int::<$format>(i128::from(value), ours, &mut flags);
                    agree::<$format, _>(bits, flags, <$oracle>::from_i128_r(i128::from(value), theirs))?;
                    flags = 0;
                    let integer = to_int::<$format>(a, i128::from(i32::MIN), i128::from(i32::MAX), ours, &mut flags);
                    let mut exact = false;
                    let expected = of(a).to_i128_r(32, theirs, &mut exact);
                    if !$format::is_nan(a) {
                        prop_assert_eq!(integer, expected.value);
                    }
                    prop_assert_eq!(flags, flags_of(expected.status));
                }

                #[test]
                fn the_host_agrees_where_it_answers(
                    a in number::<$format>(), b in number::<$format>(), c in number::<$format>(), stands: bool,
                ) {
                    let before = if stands { NX } else { 0 };
                    let check = |fast: Option<u64>, fast_flags: u8, exact: u64, exact_flags: u8| {
                        if let Some(bits) = fast {
                            prop_assert_eq!(bits, exact);
                            prop_assert_eq!(fast_flags, exact_flags);
                        }
                        Ok(())
                    };
                    let mode = Rounding::Nearest;
                    for operation in 0..6 {
                        let (mut one, mut other) = (before, before);
                        let (fast, exact) = match operation {
                            0 => ($format::add(a, b, &mut one), add::<$format>(a, b, mode, &mut other)),
                            1 => ($format::sub(a, b, &mut one), sub::<$format>(a, b, mode, &mut other)),
                            2 => ($format::mul(a, b, &mut one), mul::<$format>(a, b, mode, &mut other)),
                            3 => ($format::div(a, b, &mut one), div::<$format>(a, b, mode, &mut other)),
                            4 => ($format::sqrt(a, &mut one), sqrt::<$format>(a, mode, &mut other)),
                            _ => ($format::fused(a, b, c, &mut one), fused::<$format>(a, b, c, mode, &mut other)),
                        };
                        check(fast, one, exact, other)?;
                    }
                }
            }
        }
    };
}

against_oracle!(single, Single, ieee::Single);
against_oracle!(double, Double, ieee::Double);

#[test]
fn roots_of_all_modes_bound_the_value() {
    // r is the root rounded down if r * r <= a < next(r) * next(r), in exact integers.
    for bits in (0..2000u64)
        .map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) & (Double::SIGN - 1))
        .filter(|b| *b < Double::INFINITY)
    {
        let mut flags = 0;
        let down = sqrt::<Double>(bits, Rounding::Down, &mut flags);
        let up = sqrt::<Double>(bits, Rounding::Up, &mut 0);
        assert_eq!(up - down, u64::from(flags & NX != 0));
        let square = |r: u64, mode| mul::<Double>(r, r, mode, &mut 0);
        assert!(square(down, Rounding::Down) <= bits && bits <= square(up, Rounding::Up), "{bits:#x}");
    }
}

#[test]
fn tiny_is_what_is_tiny_with_an_unbounded_exponent() {
    // The result is just below the smallest normal number and rounded up to it: it is tiny only if rounding to 53 bits
    // does not reach that number either.
    let (smallest, largest_below_one) = (0x0010_0000_0000_0000u64, 0x3fef_ffff_ffff_ffff);
    let mut flags = 0;
    assert_eq!(mul::<Double>(smallest, largest_below_one, Rounding::Nearest, &mut flags), smallest);
    assert_eq!(flags, NX | UF);
    // (1 + 2^-52) * (1 - 2^-52 + 2^-53...) needs more than 53 bits and rounds to one: not tiny.
    let (above, below) = (0x0010_0000_0000_0001u64, 0x3fef_ffff_ffff_fffe);
    flags = 0;
    assert_eq!(mul::<Double>(above, below, Rounding::Nearest, &mut flags), smallest);
    assert_eq!(flags, NX);
}

#[test]
fn classes() {
    let classes = [0xfff0_0000_0000_0000u64, 0xbff0_0000_0000_0000, 0x8000_0000_0000_0001, 0x8000_0000_0000_0000];
    for (i, bits) in classes.into_iter().enumerate() {
        assert_eq!(classify::<Double>(bits), 1 << i);
        assert_eq!(classify::<Double>(bits ^ Double::SIGN), 1 << (7 - i));
    }
    assert_eq!(classify::<Double>(Double::INFINITY + 1), 1 << 8);
    assert_eq!(classify::<Double>(Double::NAN), 1 << 9);
}
