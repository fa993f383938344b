//! Loads and stores of integer and floating-point registers.
//!
//! Each has three functions: one for the main memory region, one for regions that were found recently, and a cold one
//! that looks up any other region, or faults. The first two need no stack.

use super::{Env, Exit, Flow, HartState, Step, StepSlot, handlers, next, operands, otherwise};
use crate::access::AccessKind;
use crate::xlen::Xlen;

/// The upper half of a floating-point register that holds single precision: all ones.
const BOX: u64 = 0xffff_ffff_0000_0000;

/// A load or store, separate from how execution continues after it.
pub(super) trait MemoryInstruction {
    /// Executes the access if its address lies in the main memory region; returns whether it does.
    fn fast<X: Xlen>(o: &Step<X>, s: &mut HartState<X>, e: &mut Env<'_, '_>) -> bool;

    /// Executes the access in any memory region and continues, or faults.
    ///
    /// # Safety
    /// As for [`Handler`](super::Handler).
    unsafe fn near<X: Xlen>(step: *const StepSlot<X>, s: &mut HartState<X>, e: &mut Env<'_, '_>) -> Flow;
}

/// Defines an access from its [`MemoryInstruction::fast`] and a function for other regions.
macro_rules! access {
    ($name:ident $near:ident ($o:ident, $s:ident, $e:ident) $fast:block) => {
        #[allow(non_camel_case_types, reason = "named as the instruction is")]
        #[derive(Debug)]
        pub(super) enum $name {}

        impl MemoryInstruction for $name {
            #[inline(always)]
            fn fast<X: Xlen>($o: &Step<X>, $s: &mut HartState<X>, $e: &mut Env<'_, '_>) -> bool $fast

            unsafe fn near<X: Xlen>(step: *const StepSlot<X>, s: &mut HartState<X>, e: &mut Env<'_, '_>) -> Flow {
                // SAFETY: the caller's promise is the same.
                unsafe { $near(step, s, e) }
            }
        }

        handlers! {
            fn $name(step, s, e) {
                if !$name::fast(operands!(step), s, e) {
                    otherwise!($near, step, s, e)
                }
                next!(step, s, e)
            }
        }
    };
}

/// Defines loads of `$n` bytes: the register file that is written, and the register's value as a function of the bytes.
macro_rules! loads {
    ($($name:ident $near:ident $slow:ident $n:literal $file:ident ($o:ident, $bytes:ident) $value:expr;)*) => {$(
        access! {
            $name $near ($o, s, e) {
                let Some($bytes) = e.spans.load_fast::<$n>(address($o, s)) else { return false };
                s.$file[register!($file, $o.rd)] = $value;
                true
            }
        }
        handlers! {
            #[inline(never)]
            fn $near(step, s, e) {
                let $o = operands!(step);
                let Some($bytes) = e.spans.load_near::<$n>(address($o, s)) else { otherwise!($slow, step, s, e) };
                s.$file[register!($file, $o.rd)] = $value;
                next!(step, s, e)
            }
            #[cold]
            #[inline(never)]
            fn $slow(step, s, e) {
                let $o = operands!(step);
                let address = address($o, s);
                let $bytes = match e.spans.load::<$n>(address) {
                    Ok(bytes) => bytes,
                    Err(fault) => return s.trap(step, fault.cause(AccessKind::Load), fault.address),
                };
                s.$file[register!($file, $o.rd)] = $value;
                next!(step, s, e)
            }
        }
    )*};
}

/// Defines stores of `$n` bytes.
macro_rules! stores {
    ($($name:ident $near:ident $slow:ident $n:literal $value:ident;)*) => {$(
        access! {
            $name $near (o, s, e) {
                e.spans.store_fast(address(o, s), $value::<X, $n>(s, o.rs2))
            }
        }
        handlers! {
            #[inline(never)]
            fn $near(step, s, e) {
                let o = operands!(step);
                if !e.spans.store_near(address(o, s), $value::<X, $n>(s, o.rs2)) {
                    otherwise!($slow, step, s, e)
                }
                next!(step, s, e)
            }
            #[cold]
            #[inline(never)]
            fn $slow(step, s, e) {
                let o = operands!(step);
                let address = address(o, s);
                if let Err(fault) = e.spans.store(address, $value::<X, $n>(s, o.rs2)) {
                    return s.trap(step, fault.cause(AccessKind::Store), fault.address);
                }
                if e.spans.code_written || e.spans.watch_hit {
                    return s.leave(step, Exit::Stored);
                }
                next!(step, s, e)
            }
        }
    )*};
}

macro_rules! register {
    (x, $number:expr) => {
        $number as usize
    };
    (f, $number:expr) => {
        $number as usize & 31
    };
}

#[inline(always)]
pub(super) fn address<X: Xlen>(o: &Step<X>, s: &HartState<X>) -> u64 {
    X::unsigned(X::word(X::unsigned(s.x[o.rs1 as usize]).wrapping_add(o.imm as u64)))
}

#[inline(always)]
fn low<X: Xlen, const N: usize>(s: &HartState<X>, register: u8) -> [u8; N] {
    let bytes = X::unsigned(s.x[register as usize]).to_le_bytes();
    std::array::from_fn(|i| bytes[i])
}

#[inline(always)]
fn low_float<X: Xlen, const N: usize>(s: &HartState<X>, register: u8) -> [u8; N] {
    let bytes = s.f[register as usize & 31].to_le_bytes();
    std::array::from_fn(|i| bytes[i])
}

loads! {
    lb lb_near lb_slow 1 x (o, bytes) X::word(i8::from_le_bytes(bytes) as u64);
    lh lh_near lh_slow 2 x (o, bytes) X::word(i16::from_le_bytes(bytes) as u64);
    lw lw_near lw_slow 4 x (o, bytes) X::word(i32::from_le_bytes(bytes) as u64);
    ld ld_near ld_slow 8 x (o, bytes) X::word(u64::from_le_bytes(bytes));
    lbu lbu_near lbu_slow 1 x (o, bytes) X::word(u64::from(u8::from_le_bytes(bytes)));
    lhu lhu_near lhu_slow 2 x (o, bytes) X::word(u64::from(u16::from_le_bytes(bytes)));
    lwu lwu_near lwu_slow 4 x (o, bytes) X::word(u64::from(u32::from_le_bytes(bytes)));
    flw flw_near flw_slow 4 f (o, bytes) BOX | u64::from(u32::from_le_bytes(bytes));
    fld fld_near fld_slow 8 f (o, bytes) u64::from_le_bytes(bytes);
}

stores! {
    sb sb_near sb_slow 1 low;
    sh sh_near sh_slow 2 low;
    sw sw_near sw_slow 4 low;
    sd sd_near sd_slow 8 low;
    fsw fsw_near fsw_slow 4 low_float;
    fsd fsd_near fsd_slow 8 low_float;
}
