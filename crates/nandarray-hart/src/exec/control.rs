//! Jumps, branches, and the steps that end a block.

use super::{Exit, HartState, JUMP, NEXT, RECENT, Step, TAKEN, enter, follow, handlers, operands};
use crate::trap::Cause;
use crate::xlen::Xlen;

/// The condition of a branch instruction, separate from its target.
pub(super) trait Condition {
    /// Whether the branch is taken.
    fn holds<X: Xlen>(o: &Step<X>, s: &HartState<X>) -> bool;
}

/// Defines branch instructions: each is taken if its comparison of two registers holds.
macro_rules! branches {
    ($($name:ident ($a:ident, $b:ident) $holds:expr;)*) => {
        $(
            #[allow(non_camel_case_types, reason = "named as the instruction is")]
            #[derive(Debug)]
            pub(super) enum $name {}

            impl Condition for $name {
                #[inline(always)]
                fn holds<X: Xlen>(o: &Step<X>, s: &HartState<X>) -> bool {
                    let ($a, $b) = (s.x[o.rs1 as usize], s.x[o.rs2 as usize]);
                    $holds
                }
            }
        )*
        handlers! {$(
            fn $name(step, s, e) {
                if $name::holds(operands!(step), s) { follow!(TAKEN, step, s, e) } else { follow!(NEXT, step, s, e) }
            }
        )*}
    };
}

/// Executes an indirect jump: continues with the block at the computed address if the table of recent targets has it,
/// and otherwise returns to the loop that finds blocks.
macro_rules! indirect {
    ($target:expr, $step:expr, $s:expr, $e:expr) => {{
        let target = $target;
        $s.target = target;
        let first = $s.recent[(target >> 1) as usize % RECENT];
        // SAFETY: entries of this table are existing blocks, or the block that stands for unknown ones; all have a
        // header.
        if unsafe { super::header(first) }.pc != target {
            return $s.end($step, JUMP);
        }
        enter!(first, JUMP, $step, $s, $e)
    }};
}

branches! {
    beq(a, b) a == b;
    bne(a, b) a != b;
    blt(a, b) X::signed(a) < X::signed(b);
    bge(a, b) X::signed(a) >= X::signed(b);
    bltu(a, b) X::unsigned(a) < X::unsigned(b);
    bgeu(a, b) X::unsigned(a) >= X::unsigned(b);
}

handlers! {
    // Follows the last instruction of a block that ends without a jump.
    fn end(step, s, e) {
        follow!(NEXT, step, s, e)
    }
    // The immediate of both instructions that jump and write a register is the offset of the next instruction in the
    // block; `jal` finds its target by the block's link.
    fn jal(step, s, e) {
        let o = operands!(step);
        s.x[o.rd as usize] = X::word(s.pc().wrapping_add(o.imm as u64));
        follow!(TAKEN, step, s, e)
    }
    // Replaces the first step of a block that is marked.
    fn marked(step, s, e) {
        s.leave(step, Exit::Marked)
    }
    fn jump(step, s, e) {
        follow!(TAKEN, step, s, e)
    }
    fn jalr(step, s, e) {
        let o = operands!(step);
        let target = X::unsigned(s.x[o.rs1 as usize]).wrapping_add(o.imm as u64) & !1;
        let link = u64::from(u16::from_le_bytes([o.rs2, o.rs3]));
        s.x[o.rd as usize] = X::word(s.pc().wrapping_add(link));
        indirect!(X::unsigned(X::word(target)), step, s, e)
    }
    fn jump_register(step, s, e) {
        let o = operands!(step);
        let target = X::unsigned(X::word(X::unsigned(s.x[o.rs1 as usize]).wrapping_add(o.imm as u64))) & !1;
        indirect!(target, step, s, e)
    }
    fn system(step, s, e) {
        s.leave(step, Exit::System)
    }
    fn illegal(step, s, e) {
        let o = operands!(step);
        s.trap(step, Cause::IllegalInstruction, u64::from(o.imm as u32))
    }
}
