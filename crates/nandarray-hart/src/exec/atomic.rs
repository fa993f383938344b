//! Atomic memory operations. There is one hart, so each is a load and a store; the ordering bits `aq` and `rl` have no
//! effect.
//!
//! A reservation is an address and its value: `sc` succeeds if the value is unchanged. Addresses must be aligned.

use super::{Env, Exit, Flow, HartState, StepSlot, handlers, next, operands};
use crate::access::AccessKind;
use crate::trap::Cause;
use crate::xlen::Xlen;

/// Loads `N` bytes at `address`, sign-extended; the error is the trap with which the step ends. With `loads` this is a
/// load-reserved, which traps as a load; without it the read half of a read-modify-write, which traps as a store.
fn load<X: Xlen, const N: usize>(
    step: *const StepSlot<X>,
    s: &mut HartState<X>,
    e: &mut Env<'_, '_>,
    address: u64,
    loads: bool,
) -> Result<u64, Flow> {
    if !address.is_multiple_of(N as u64) {
        return Err(s.trap(step, if loads { Cause::LoadMisaligned } else { Cause::StoreMisaligned }, address));
    }
    let access = if loads { AccessKind::Load } else { AccessKind::Store };
    let allowed = if loads { Ok(()) } else { e.spans.may_store(address, N) };
    let bytes = match allowed.and_then(|()| e.spans.load::<N>(address)) {
        Ok(bytes) => bytes,
        Err(fault) => return Err(s.trap(step, fault.cause(access), fault.address)),
    };
    let mut all = [0; 8];
    all[..N].copy_from_slice(&bytes);
    let value = u64::from_le_bytes(all);
    Ok(if N == 4 { value as i32 as u64 } else { value })
}

/// Stores the low `N` bytes of `value`; the error is the trap with which the step ends.
fn store<X: Xlen, const N: usize>(
    step: *const StepSlot<X>,
    s: &mut HartState<X>,
    e: &mut Env<'_, '_>,
    address: u64,
    value: u64,
) -> Result<(), Flow> {
    let bytes = value.to_le_bytes();
    let low: [u8; N] = std::array::from_fn(|i| bytes[i]);
    e.spans.store(address, low).map_err(|fault| s.trap(step, fault.cause(AccessKind::Store), fault.address))
}

macro_rules! amos {
    ($($name:ident ($n:literal) ($old:ident, $by:ident) $new:expr;)*) => { handlers! {$(
        #[inline(never)]
        fn $name(step, s, e) {
            let o = operands!(step);
            let address = X::unsigned(s.x[o.rs1 as usize]);
            let $by = X::unsigned(s.x[o.rs2 as usize]);
            let $old = match load::<X, $n>(step, s, e, address, false) {
                Ok(value) => value,
                Err(flow) => return flow,
            };
            if let Err(flow) = store::<X, $n>(step, s, e, address, $new) {
                return flow;
            }
            s.x[o.rd as usize] = X::word($old);
            if e.spans.code_written || e.spans.watch_hit {
                return s.leave(step, Exit::Stored);
            }
            next!(step, s, e)
        }
    )*}};
}

amos! {
    amoswap_w(4) (old, by) by;
    amoadd_w(4) (old, by) old.wrapping_add(by);
    amoxor_w(4) (old, by) old ^ by;
    amoand_w(4) (old, by) old & by;
    amoor_w(4) (old, by) old | by;
    amomin_w(4) (old, by) (old as i32).min(by as i32) as u64;
    amomax_w(4) (old, by) (old as i32).max(by as i32) as u64;
    amominu_w(4) (old, by) u64::from((old as u32).min(by as u32));
    amomaxu_w(4) (old, by) u64::from((old as u32).max(by as u32));
    amoswap_d(8) (old, by) by;
    amoadd_d(8) (old, by) old.wrapping_add(by);
    amoxor_d(8) (old, by) old ^ by;
    amoand_d(8) (old, by) old & by;
    amoor_d(8) (old, by) old | by;
    amomin_d(8) (old, by) (old as i64).min(by as i64) as u64;
    amomax_d(8) (old, by) (old as i64).max(by as i64) as u64;
    amominu_d(8) (old, by) old.min(by);
    amomaxu_d(8) (old, by) old.max(by);
}

macro_rules! reservations {
    ($($lr:ident $sc:ident $n:literal;)*) => { handlers! {$(
        #[inline(never)]
        fn $lr(step, s, e) {
            let o = operands!(step);
            let address = X::unsigned(s.x[o.rs1 as usize]);
            match load::<X, $n>(step, s, e, address, true) {
                Ok(value) => {
                    s.reserved = Some((address, value));
                    s.x[o.rd as usize] = X::word(value);
                }
                Err(flow) => return flow,
            }
            next!(step, s, e)
        }
        #[inline(never)]
        fn $sc(step, s, e) {
            let o = operands!(step);
            let address = X::unsigned(s.x[o.rs1 as usize]);
            let reserved = s.reserved.take();
            let now = match load::<X, $n>(step, s, e, address, false) {
                Ok(value) => value,
                Err(flow) => return flow,
            };
            let holds = reserved == Some((address, now));
            if holds {
                let value = X::unsigned(s.x[o.rs2 as usize]);
                if let Err(flow) = store::<X, $n>(step, s, e, address, value) {
                    return flow;
                }
            }
            s.x[o.rd as usize] = X::word(u64::from(!holds));
            if e.spans.code_written || e.spans.watch_hit {
                return s.leave(step, Exit::Stored);
            }
            next!(step, s, e)
        }
    )*}};
}

reservations! {
    lr_w sc_w 4;
    lr_d sc_d 8;
}
