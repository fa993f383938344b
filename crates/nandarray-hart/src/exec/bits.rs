//! Bit manipulation: Zba, Zbb and Zbs.

use super::int::{effects, immediates, registers, word};
use super::{handlers, next, operands};
use crate::xlen::Xlen;

/// Returns a word with only the bit `index` set; the index is taken modulo the register width.
fn bit<X: Xlen>(index: u64) -> u64 {
    1 << (index & u64::from(X::BITS - 1))
}

/// Rotates the low `X::BITS` bits of a value to the right.
fn rotate<X: Xlen>(value: u64, by: u64) -> u64 {
    if X::BITS == 32 {
        u64::from((value as u32).rotate_right(by as u32 & 31))
    } else {
        value.rotate_right(by as u32 & 63)
    }
}

fn rotate_word(value: u64, by: u64) -> u64 {
    word(u64::from((value as u32).rotate_right(by as u32 & 31)))
}

registers! {
    sh1add(a, b) (X::unsigned(a) << 1).wrapping_add(X::unsigned(b));
    sh2add(a, b) (X::unsigned(a) << 2).wrapping_add(X::unsigned(b));
    sh3add(a, b) (X::unsigned(a) << 3).wrapping_add(X::unsigned(b));
    add_uw(a, b) (X::unsigned(a) & 0xffff_ffff).wrapping_add(X::unsigned(b));
    sh1add_uw(a, b) ((X::unsigned(a) & 0xffff_ffff) << 1).wrapping_add(X::unsigned(b));
    sh2add_uw(a, b) ((X::unsigned(a) & 0xffff_ffff) << 2).wrapping_add(X::unsigned(b));
    sh3add_uw(a, b) ((X::unsigned(a) & 0xffff_ffff) << 3).wrapping_add(X::unsigned(b));
    andn(a, b) X::unsigned(a) & !X::unsigned(b);
    orn(a, b) X::unsigned(a) | !X::unsigned(b);
    xnor(a, b) !(X::unsigned(a) ^ X::unsigned(b));
    min(a, b) X::signed(a).min(X::signed(b)) as u64;
    minu(a, b) X::unsigned(a).min(X::unsigned(b));
    max(a, b) X::signed(a).max(X::signed(b)) as u64;
    maxu(a, b) X::unsigned(a).max(X::unsigned(b));
    rol(a, b) rotate::<X>(X::unsigned(a), X::unsigned(b).wrapping_neg());
    ror(a, b) rotate::<X>(X::unsigned(a), X::unsigned(b));
    rolw(a, b) rotate_word(X::unsigned(a), X::unsigned(b).wrapping_neg());
    rorw(a, b) rotate_word(X::unsigned(a), X::unsigned(b));
    bclr(a, b) X::unsigned(a) & !bit::<X>(X::unsigned(b));
    bext(a, b) X::unsigned(a) >> (X::unsigned(b) & u64::from(X::BITS - 1)) & 1;
    binv(a, b) X::unsigned(a) ^ bit::<X>(X::unsigned(b));
    bset(a, b) X::unsigned(a) | bit::<X>(X::unsigned(b));
}

immediates! {
    slli_uw(a, i) (X::unsigned(a) & 0xffff_ffff) << (i & 63);
    rori(a, i) rotate::<X>(X::unsigned(a), i as u64);
    roriw(a, i) rotate_word(X::unsigned(a), i as u64);
    bclri(a, i) X::unsigned(a) & !bit::<X>(i as u64);
    bexti(a, i) X::unsigned(a) >> (i as u32 & (X::BITS - 1)) & 1;
    binvi(a, i) X::unsigned(a) ^ bit::<X>(i as u64);
    bseti(a, i) X::unsigned(a) | bit::<X>(i as u64);
    clz(a, i) u64::from(X::unsigned(a).leading_zeros() - (64 - X::BITS));
    ctz(a, i) u64::from(X::unsigned(a).trailing_zeros().min(X::BITS));
    cpop(a, i) u64::from(X::unsigned(a).count_ones());
    clzw(a, i) u64::from((X::unsigned(a) as u32).leading_zeros());
    ctzw(a, i) u64::from((X::unsigned(a) as u32).trailing_zeros());
    cpopw(a, i) u64::from((X::unsigned(a) as u32).count_ones());
    sext_b(a, i) X::unsigned(a) as i8 as u64;
    sext_h(a, i) X::unsigned(a) as i16 as u64;
    zext_h(a, i) X::unsigned(a) & 0xffff;
    rev8(a, i) X::unsigned(a).swap_bytes() >> (64 - X::BITS);
    orc_b(a, i) {
        // Sets 0x80 in every byte that is not zero, then spreads it over the byte.
        let a = X::unsigned(a);
        let low = 0x7f7f_7f7f_7f7f_7f7f;
        let high = (((a & low) + low) | a) & !low;
        (high >> 7).wrapping_mul(0xff)
    };
}
