//! Integer arithmetic: RV32I, RV64I and M.

use super::{HartState, Step, handlers, next, operands};
use crate::xlen::Xlen;

/// An instruction that reads and writes integer registers and nothing else.
pub(super) trait Effect {
    /// Executes the instruction.
    fn apply<X: Xlen>(o: &Step<X>, s: &mut HartState<X>);
}

/// Defines instructions, each as a type with the [`Effect`], and as a function that applies it and continues.
macro_rules! effects {
    ($($name:ident ($o:ident, $s:ident) $value:expr;)*) => {
        $(
            #[allow(non_camel_case_types, reason = "named as the instruction is")]
            #[derive(Debug)]
            pub(super) enum $name {}

            impl crate::exec::int::Effect for $name {
                #[inline(always)]
                #[allow(unused_variables, reason = "not every instruction looks at everything")]
                fn apply<X: Xlen>($o: &crate::exec::Step<X>, $s: &mut crate::exec::HartState<X>) {
                    $s.x[$o.rd as usize] = X::word($value);
                }
            }
        )*
        handlers! {$(
            fn $name(step, s, e) {
                <$name as crate::exec::int::Effect>::apply(operands!(step), s);
                next!(step, s, e)
            }
        )*}
    };
}

/// Defines instructions of the form `x[rd] = f(x[rs1], x[rs2])`.
macro_rules! registers {
    ($($name:ident ($a:ident, $b:ident) $value:expr;)*) => { effects! {$(
        $name(o, s) {
            let ($a, $b) = (s.x[o.rs1 as usize], s.x[o.rs2 as usize]);
            $value
        };
    )*}};
}

/// Defines instructions of the form `x[rd] = f(x[rs1], imm)`.
macro_rules! immediates {
    ($($name:ident ($a:ident, $i:ident) $value:expr;)*) => { effects! {$(
        $name(o, s) {
            let ($a, $i) = (s.x[o.rs1 as usize], o.imm);
            $value
        };
    )*}};
}

pub(super) use {effects, immediates, registers};

/// Returns the low 32 bits of a value, sign-extended to 64 bits.
pub(super) fn word(value: u64) -> u64 {
    value as i32 as u64
}

/// Returns an immediate, sign-extended to 64 bits.
fn wide(value: i32) -> u64 {
    i64::from(value) as u64
}

effects! {
    lui(o, s) wide(o.imm);
    // The fields of the source registers hold the offset of the instruction in its block.
    auipc(o, s) s.pc().wrapping_add(u64::from(u16::from_le_bytes([o.rs1, o.rs2]))).wrapping_add(wide(o.imm));
}

handlers! {
    fn nop(step, s, e) {
        next!(step, s, e)
    }
}

immediates! {
    addi(a, i) X::unsigned(a).wrapping_add(wide(i));
    mv(a, i) X::unsigned(a);
    slti(a, i) u64::from(X::signed(a) < i64::from(i));
    sltiu(a, i) u64::from(X::unsigned(a) < X::unsigned(X::word(wide(i))));
    xori(a, i) X::unsigned(a) ^ wide(i);
    ori(a, i) X::unsigned(a) | wide(i);
    andi(a, i) X::unsigned(a) & wide(i);
    slli(a, i) X::unsigned(a) << (i as u32 & (X::BITS - 1));
    srli(a, i) X::unsigned(a) >> (i as u32 & (X::BITS - 1));
    srai(a, i) (X::signed(a) >> (i as u32 & (X::BITS - 1))) as u64;
    addiw(a, i) word(X::unsigned(a).wrapping_add(wide(i)));
    slliw(a, i) word(X::unsigned(a) << (i & 31));
    srliw(a, i) word(u64::from(X::unsigned(a) as u32 >> (i & 31)));
    sraiw(a, i) (X::unsigned(a) as i32 >> (i & 31)) as u64;
}

registers! {
    add(a, b) X::unsigned(a).wrapping_add(X::unsigned(b));
    sub(a, b) X::unsigned(a).wrapping_sub(X::unsigned(b));
    sll(a, b) X::unsigned(a) << (X::unsigned(b) as u32 & (X::BITS - 1));
    slt(a, b) u64::from(X::signed(a) < X::signed(b));
    sltu(a, b) u64::from(X::unsigned(a) < X::unsigned(b));
    xor(a, b) X::unsigned(a) ^ X::unsigned(b);
    srl(a, b) X::unsigned(a) >> (X::unsigned(b) as u32 & (X::BITS - 1));
    sra(a, b) (X::signed(a) >> (X::unsigned(b) as u32 & (X::BITS - 1))) as u64;
    or(a, b) X::unsigned(a) | X::unsigned(b);
    and(a, b) X::unsigned(a) & X::unsigned(b);
    addw(a, b) word(X::unsigned(a).wrapping_add(X::unsigned(b)));
    subw(a, b) word(X::unsigned(a).wrapping_sub(X::unsigned(b)));
    sllw(a, b) word(X::unsigned(a) << (X::unsigned(b) & 31));
    srlw(a, b) word(u64::from(X::unsigned(a) as u32 >> (X::unsigned(b) & 31)));
    sraw(a, b) (X::unsigned(a) as i32 >> (X::unsigned(b) & 31)) as u64;

    mul(a, b) X::unsigned(a).wrapping_mul(X::unsigned(b));
    mulh(a, b) ((i128::from(X::signed(a)) * i128::from(X::signed(b))) >> X::BITS) as u64;
    mulhsu(a, b) ((i128::from(X::signed(a)) * i128::from(X::unsigned(b))) >> X::BITS) as u64;
    mulhu(a, b) ((u128::from(X::unsigned(a)) * u128::from(X::unsigned(b))) >> X::BITS) as u64;
    mulw(a, b) word(X::unsigned(a).wrapping_mul(X::unsigned(b)));
    // Division by zero gives all ones as quotient and the dividend as remainder. The one overflow wraps, since
    // registers are cut to their width.
    div(a, b) if X::signed(b) == 0 { u64::MAX } else { X::signed(a).wrapping_div(X::signed(b)) as u64 };
    divu(a, b) X::unsigned(a).checked_div(X::unsigned(b)).unwrap_or(u64::MAX);
    rem(a, b) if X::signed(b) == 0 { X::unsigned(a) } else { X::signed(a).wrapping_rem(X::signed(b)) as u64 };
    remu(a, b) X::unsigned(a).checked_rem(X::unsigned(b)).unwrap_or(X::unsigned(a));
    divw(a, b) {
        let (a, b) = (X::unsigned(a) as i32, X::unsigned(b) as i32);
        if b == 0 { u64::MAX } else { a.wrapping_div(b) as u64 }
    };
    divuw(a, b) {
        let (a, b) = (X::unsigned(a) as u32, X::unsigned(b) as u32);
        a.checked_div(b).unwrap_or(u32::MAX) as i32 as u64
    };
    remw(a, b) {
        let (a, b) = (X::unsigned(a) as i32, X::unsigned(b) as i32);
        (if b == 0 { a } else { a.wrapping_rem(b) }) as u64
    };
    remuw(a, b) {
        let (a, b) = (X::unsigned(a) as u32, X::unsigned(b) as u32);
        a.checked_rem(b).unwrap_or(a) as i32 as u64
    };
}
