//! Fusion: frequent pairs of instructions are executed by one function.
//!
//! The first step of the pair does the work of both and continues after the second. The second step stays in its place,
//! so that steps and instructions correspond, and an access outside of the main memory region is executed by its own
//! step. The pairs are those that made up one percent or more of the instructions of the tests' programs, and similar
//! ones.

use super::control::{self, Condition};
use super::int::{self, Effect};
use super::mem::{self, MemoryInstruction};
use super::{
    Env, Flow, Handler, HartState, NEXT, Step, StepSlot, TAKEN, bits, enter, follow, next, operands, otherwise,
};
use crate::isa::{Code, Instruction};
use crate::xlen::Xlen;

/// Fuses pairs of successive instructions of a block: the first one's step then executes both. Begins at the block's
/// end, so that a final branch is fused first. Instructions for which `alone` returns true are not fused.
pub(super) fn fuse<X: Xlen>(ops: &[Instruction], steps: &mut [Step<X>], alone: impl Fn(&Instruction) -> bool) {
    let mut behind = ops.len();
    while behind >= 2 {
        let (first, second) = (&ops[behind - 2], &ops[behind - 1]);
        let joined = if alone(first) || alone(second) { None } else { pair::<X>(first.code, second.code) };
        if let Some(run) = joined {
            steps[behind - 2].run = run;
            behind -= 1;
        }
        behind -= 1;
    }
}

/// Defines functions that execute two instructions, generic over both: the first is at `$step`, the second at
/// `$second`.
macro_rules! joined {
    ($(
        fn $name:ident<$a:ident: $first:ident, $b:ident: $then:ident>(
            $step:ident, $second:ident, $s:ident, $e:ident
        ) $body:block
    )*) => {$(
        unsafe fn $name<X: Xlen, $a: $first, $b: $then>(
            $step: *const StepSlot<X>,
            $s: &mut HartState<X>,
            $e: &mut Env<'_, '_>,
        ) -> Flow {
            // SAFETY: the step was chosen for a pair, so another step follows it.
            let $second = unsafe { $step.add(1) };
            $body
        }
    )*};
}

joined! {
    fn effects<A: Effect, B: Effect>(step, second, s, e) {
        A::apply(operands!(step), s);
        B::apply(operands!(second), s);
        next!(2, step, s, e)
    }
    fn effect_access<A: Effect, B: MemoryInstruction>(step, second, s, e) {
        A::apply(operands!(step), s);
        if !B::fast(operands!(second), s, e) {
            otherwise!(B::near, second, s, e)
        }
        next!(2, step, s, e)
    }
    fn effect_branch<A: Effect, B: Condition>(step, second, s, e) {
        A::apply(operands!(step), s);
        if B::holds(operands!(second), s) { follow!(TAKEN, second, s, e) } else { follow!(NEXT, second, s, e) }
    }
    fn access_effect<A: MemoryInstruction, B: Effect>(step, second, s, e) {
        if !A::fast(operands!(step), s, e) {
            otherwise!(A::near, step, s, e)
        }
        B::apply(operands!(second), s);
        next!(2, step, s, e)
    }
    fn accesses<A: MemoryInstruction, B: MemoryInstruction>(step, second, s, e) {
        if !A::fast(operands!(step), s, e) {
            otherwise!(A::near, step, s, e)
        }
        if !B::fast(operands!(second), s, e) {
            otherwise!(B::near, second, s, e)
        }
        next!(2, step, s, e)
    }
    fn access_branch<A: MemoryInstruction, B: Condition>(step, second, s, e) {
        if !A::fast(operands!(step), s, e) {
            otherwise!(A::near, step, s, e)
        }
        if B::holds(operands!(second), s) { follow!(TAKEN, second, s, e) } else { follow!(NEXT, second, s, e) }
    }
}

/// Selects the function of a fused pair by the code of the second instruction, given the type of the first.
macro_rules! behind {
    ($second:expr, $first:ty, $effects:ident, $accesses:ident, $branches:ident) => {
        match $second {
            Code::Addi => Some($effects::<X, $first, int::addi>),
            Code::Addiw => Some($effects::<X, $first, int::addiw>),
            Code::Add => Some($effects::<X, $first, int::add>),
            Code::Xor => Some($effects::<X, $first, int::xor>),
            Code::And => Some($effects::<X, $first, int::and>),
            Code::Andi => Some($effects::<X, $first, int::andi>),
            Code::Slli => Some($effects::<X, $first, int::slli>),
            Code::Srli => Some($effects::<X, $first, int::srli>),
            Code::Mul => Some($effects::<X, $first, int::mul>),
            Code::Roriw => Some($effects::<X, $first, bits::roriw>),
            Code::Lbu => Some($accesses::<X, $first, mem::lbu>),
            Code::Lh => Some($accesses::<X, $first, mem::lh>),
            Code::Lw => Some($accesses::<X, $first, mem::lw>),
            Code::Ld => Some($accesses::<X, $first, mem::ld>),
            Code::Sb => Some($accesses::<X, $first, mem::sb>),
            Code::Sw => Some($accesses::<X, $first, mem::sw>),
            Code::Sd => Some($accesses::<X, $first, mem::sd>),
            Code::Beq => Some($branches::<X, $first, control::beq>),
            Code::Bne => Some($branches::<X, $first, control::bne>),
            Code::Blt => Some($branches::<X, $first, control::blt>),
            Code::Bge => Some($branches::<X, $first, control::bge>),
            Code::Bltu => Some($branches::<X, $first, control::bltu>),
            Code::Bgeu => Some($branches::<X, $first, control::bgeu>),
            _ => None,
        }
    };
}

/// Returns the function that executes these two instructions; `None` if the pair is not fused.
fn pair<X: Xlen>(first: Code, second: Code) -> Option<Handler<X>> {
    macro_rules! effect {
        ($first:ty) => {
            behind!(second, $first, effects, effect_access, effect_branch)
        };
    }
    macro_rules! access {
        ($first:ty) => {
            behind!(second, $first, access_effect, accesses, access_branch)
        };
    }
    match first {
        Code::Lui => effect!(int::lui),
        Code::Auipc => effect!(int::auipc),
        Code::Addi => effect!(int::addi),
        Code::Addiw => effect!(int::addiw),
        Code::Andi => effect!(int::andi),
        Code::Slli => effect!(int::slli),
        Code::Srli => effect!(int::srli),
        Code::Add => effect!(int::add),
        Code::Xor => effect!(int::xor),
        Code::And => effect!(int::and),
        Code::Mul => effect!(int::mul),
        Code::Sh1add => effect!(bits::sh1add),
        Code::Sh2add => effect!(bits::sh2add),
        Code::Sh3add => effect!(bits::sh3add),
        Code::Roriw => effect!(bits::roriw),
        Code::Lbu => access!(mem::lbu),
        Code::Lh => access!(mem::lh),
        Code::Lw => access!(mem::lw),
        Code::Ld => access!(mem::ld),
        Code::Sw => access!(mem::sw),
        Code::Sd => access!(mem::sd),
        _ => None,
    }
}
