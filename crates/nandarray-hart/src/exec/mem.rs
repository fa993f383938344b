//! Loads and stores of both register files.
//!
//! Each has a function for the memory region that is used most, and a cold one that finds any other, or faults.

use super::{Env, Exit, Flow, Slot, State, Step, handlers, next, operands, otherwise};
use crate::protect::Access as Done;
use crate::xlen::Xlen;

/// Ones in the upper half of a floating-point register that holds single precision.
const BOX: u64 = 0xffff_ffff_0000_0000;

/// A load or store, apart from how it goes on.
pub(super) trait Access {
    /// Execute it if the region that is used most has the address.
    fn fast<X: Xlen>(o: &Step<X>, s: &mut State<X>, e: &mut Env<'_, '_>) -> bool;

    /// Execute it wherever its address is, and go on, or fault.
    ///
    /// # Safety
    /// As for [`Handler`](super::Handler).
    unsafe fn slow<X: Xlen>(step: *const Slot<X>, s: &mut State<X>, e: &mut Env<'_, '_>) -> Flow;
}

/// The functions of an access that [`Access::fast`] and a cold function describe.
macro_rules! access {
    ($name:ident $slow:ident ($o:ident, $s:ident, $e:ident) $fast:block) => {
        #[allow(non_camel_case_types, reason = "named as the instruction is")]
        #[derive(Debug)]
        pub(super) enum $name {}

        impl Access for $name {
            #[inline(always)]
            fn fast<X: Xlen>($o: &Step<X>, $s: &mut State<X>, $e: &mut Env<'_, '_>) -> bool $fast

            unsafe fn slow<X: Xlen>(step: *const Slot<X>, s: &mut State<X>, e: &mut Env<'_, '_>) -> Flow {
                // SAFETY: the caller's promise.
                unsafe { $slow(step, s, e) }
            }
        }

        handlers! {
            fn $name(step, s, e) {
                if !$name::fast(operands!(step), s, e) {
                    otherwise!($slow, step, s, e)
                }
                next!(step, s, e)
            }
        }
    };
}

/// Loads of `$n` bytes: how they become a register's value, and which register.
macro_rules! loads {
    ($($name:ident $slow:ident $n:literal $file:ident ($o:ident, $bytes:ident) $value:expr;)*) => {$(
        access! {
            $name $slow ($o, s, e) {
                let Some($bytes) = e.spans.load_fast::<$n>(address($o, s)) else { return false };
                s.$file[register!($file, $o.rd)] = $value;
                true
            }
        }
        handlers! {
            #[inline(never)]
            fn $slow(step, s, e) {
                let $o = operands!(step);
                let address = address($o, s);
                let $bytes = match e.spans.load::<$n>(address) {
                    Ok(bytes) => bytes,
                    Err(fault) => return s.trap(step, fault.cause(Done::Load), fault.address),
                };
                s.$file[register!($file, $o.rd)] = $value;
                next!(step, s, e)
            }
        }
    )*};
}

/// Stores of `$n` bytes.
macro_rules! stores {
    ($($name:ident $slow:ident $n:literal $value:ident;)*) => {$(
        access! {
            $name $slow (o, s, e) {
                e.spans.store_fast(address(o, s), $value::<X, $n>(s, o.rs2))
            }
        }
        handlers! {
            #[inline(never)]
            fn $slow(step, s, e) {
                let o = operands!(step);
                let address = address(o, s);
                if let Err(fault) = e.spans.store(address, $value::<X, $n>(s, o.rs2)) {
                    return s.trap(step, fault.cause(Done::Store), fault.address);
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
fn address<X: Xlen>(o: &Step<X>, s: &State<X>) -> u64 {
    X::unsigned(X::word(X::unsigned(s.x[o.rs1 as usize]).wrapping_add(o.imm as u64)))
}

#[inline(always)]
fn low<X: Xlen, const N: usize>(s: &State<X>, register: u8) -> [u8; N] {
    let bytes = X::unsigned(s.x[register as usize]).to_le_bytes();
    std::array::from_fn(|i| bytes[i])
}

#[inline(always)]
fn low_float<X: Xlen, const N: usize>(s: &State<X>, register: u8) -> [u8; N] {
    let bytes = s.f[register as usize & 31].to_le_bytes();
    std::array::from_fn(|i| bytes[i])
}

loads! {
    lb lb_slow 1 x (o, bytes) X::word(i8::from_le_bytes(bytes) as u64);
    lh lh_slow 2 x (o, bytes) X::word(i16::from_le_bytes(bytes) as u64);
    lw lw_slow 4 x (o, bytes) X::word(i32::from_le_bytes(bytes) as u64);
    ld ld_slow 8 x (o, bytes) X::word(u64::from_le_bytes(bytes));
    lbu lbu_slow 1 x (o, bytes) X::word(u64::from(u8::from_le_bytes(bytes)));
    lhu lhu_slow 2 x (o, bytes) X::word(u64::from(u16::from_le_bytes(bytes)));
    lwu lwu_slow 4 x (o, bytes) X::word(u64::from(u32::from_le_bytes(bytes)));
    flw flw_slow 4 f (o, bytes) BOX | u64::from(u32::from_le_bytes(bytes));
    fld fld_slow 8 f (o, bytes) u64::from_le_bytes(bytes);
}

stores! {
    sb sb_slow 1 low;
    sh sh_slow 2 low;
    sw sw_slow 4 low;
    sd sd_slow 8 low;
    fsw fsw_slow 4 low_float;
    fsd fsd_slow 8 low_float;
}
