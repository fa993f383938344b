//! The stream instructions of Table 7.2 (of the ASSASIN dissertation), and reads of the stream registers.
//!
//! `StreamLoad` takes the bytes at an input's head and moves the head; `StreamStore` puts bytes at an output's head and
//! moves it. `ReadIStream`, `PeekIStream` and `ReadOStream` read the bytes at a distance before an input's end, after
//! its head, or before an output's head, and move nothing. `StreamWait` waits for bytes of an input. The instruction
//! names its stream by a field, not by a register. Where the specification prescribes a hang, execution leaves the
//! step, and repeats it when the caller resumes. A stream that does not exist, or bytes that are out of reach, are
//! access faults whose value is the stream's number or the distance. A program never learns how far its bytes have
//! arrived: it waits, or reads values that never change.

use super::{Env, Exit, Flow, HartState, StepSlot, handlers, next, operands};
use crate::streams::Look;
use crate::trap::Cause;
use crate::xlen::Xlen;

/// Leaves a step that needs more bytes than an input has now; `ended` if no more will arrive.
#[cold]
fn wait_input<X: Xlen>(step: *const StepSlot<X>, s: &mut HartState<X>, stream: u8, ended: bool) -> Flow {
    s.leave(step, if ended { Exit::Exhausted(stream) } else { Exit::WaitInput(stream) })
}

/// Leaves a step that needs more room than an output has now; `full` if it will never have more.
#[cold]
fn wait_output<X: Xlen>(step: *const StepSlot<X>, s: &mut HartState<X>, stream: u8, full: bool) -> Flow {
    s.leave(step, if full { Exit::Full(stream) } else { Exit::WaitOutput(stream) })
}

macro_rules! stream_loads {
    ($($name:ident $n:literal ($bytes:ident) $value:expr;)*) => { handlers! {$(
        fn $name(step, s, e) {
            let o = operands!(step);
            let Some(input) = e.streams().inputs.get_mut(o.rs1 as usize) else {
                return s.trap(step, Cause::LoadAccess, u64::from(o.rs1));
            };
            let Some($bytes) = input.load::<$n>() else {
                let ended = input.falls_short($n);
                return wait_input(step, s, o.rs1, ended);
            };
            s.x[o.rd as usize] = X::word($value);
            next!(step, s, e)
        }
    )*}};
}

stream_loads! {
    load_b 1 (bytes) i8::from_le_bytes(bytes) as u64;
    load_h 2 (bytes) i16::from_le_bytes(bytes) as u64;
    load_w 4 (bytes) i32::from_le_bytes(bytes) as u64;
    load_d 8 (bytes) u64::from_le_bytes(bytes);
    load_bu 1 (bytes) u64::from(u8::from_le_bytes(bytes));
    load_hu 2 (bytes) u64::from(u16::from_le_bytes(bytes));
    load_wu 4 (bytes) u64::from(u32::from_le_bytes(bytes));
}

macro_rules! stream_reads {
    ($($name:ident $side:ident $look:ident $sign:ident $n:literal ($bytes:ident) $value:expr;)*) => { handlers! {$(
        fn $name(step, s, e) {
            let o = operands!(step);
            let distance = s.x[o.rs2 as usize];
            let Some(stream) = e.streams().$side.get(o.rs1 as usize) else {
                return s.trap(step, Cause::LoadAccess, u64::from(o.rs1));
            };
            let $bytes = match stream.$look::<$n>(X::$sign(distance)) {
                Look::There(bytes) => bytes,
                Look::Wait => return wait_input(step, s, o.rs1, false),
                Look::Never => return s.trap(step, Cause::LoadAccess, X::unsigned(distance)),
            };
            s.x[o.rd as usize] = X::word($value);
            next!(step, s, e)
        }
    )*}};
}

stream_reads! {
    input_b inputs before_end unsigned 1 (bytes) i8::from_le_bytes(bytes) as u64;
    input_h inputs before_end unsigned 2 (bytes) i16::from_le_bytes(bytes) as u64;
    input_w inputs before_end unsigned 4 (bytes) i32::from_le_bytes(bytes) as u64;
    input_d inputs before_end unsigned 8 (bytes) u64::from_le_bytes(bytes);
    input_bu inputs before_end unsigned 1 (bytes) u64::from(u8::from_le_bytes(bytes));
    input_hu inputs before_end unsigned 2 (bytes) u64::from(u16::from_le_bytes(bytes));
    input_wu inputs before_end unsigned 4 (bytes) u64::from(u32::from_le_bytes(bytes));
    peek_b inputs peek signed 1 (bytes) i8::from_le_bytes(bytes) as u64;
    peek_h inputs peek signed 2 (bytes) i16::from_le_bytes(bytes) as u64;
    peek_w inputs peek signed 4 (bytes) i32::from_le_bytes(bytes) as u64;
    peek_d inputs peek signed 8 (bytes) u64::from_le_bytes(bytes);
    peek_bu inputs peek signed 1 (bytes) u64::from(u8::from_le_bytes(bytes));
    peek_hu inputs peek signed 2 (bytes) u64::from(u16::from_le_bytes(bytes));
    peek_wu inputs peek signed 4 (bytes) u64::from(u32::from_le_bytes(bytes));
    output_b outputs behind_head unsigned 1 (bytes) i8::from_le_bytes(bytes) as u64;
    output_h outputs behind_head unsigned 2 (bytes) i16::from_le_bytes(bytes) as u64;
    output_w outputs behind_head unsigned 4 (bytes) i32::from_le_bytes(bytes) as u64;
    output_d outputs behind_head unsigned 8 (bytes) u64::from_le_bytes(bytes);
    output_bu outputs behind_head unsigned 1 (bytes) u64::from(u8::from_le_bytes(bytes));
    output_hu outputs behind_head unsigned 2 (bytes) u64::from(u16::from_le_bytes(bytes));
    output_wu outputs behind_head unsigned 4 (bytes) u64::from(u32::from_le_bytes(bytes));
}

macro_rules! stream_stores {
    ($($name:ident $n:literal;)*) => { handlers! {$(
        fn $name(step, s, e) {
            let o = operands!(step);
            let Some(output) = e.streams().outputs.get_mut(o.rs1 as usize) else {
                return s.trap(step, Cause::StoreAccess, u64::from(o.rs1));
            };
            let bytes = X::unsigned(s.x[o.rs2 as usize]).to_le_bytes();
            let low: [u8; $n] = std::array::from_fn(|i| bytes[i]);
            if !output.store(low) {
                let full = output.is_full($n);
                return wait_output(step, s, o.rs1, full);
            }
            next!(step, s, e)
        }
    )*}};
}

stream_stores! {
    store_b 1;
    store_h 2;
    store_w 4;
    store_d 8;
}

/// Numbers of the stream registers: 32 of each of five kinds.
pub(crate) const REGISTERS: std::ops::Range<i32> = 0x800..0x8a0;

/// Returns the value of stream register `number`; `None` if the stream does not exist, `Err` if the read must wait. No
/// register shows how many bytes have arrived or were drained.
pub(crate) fn register(env: &mut Env<'_, '_>, number: i32) -> Option<Result<u64, Exit>> {
    let stream = (number & 31) as usize;
    let streams = env.streams();
    let input = || streams.inputs.get(stream);
    let output = || streams.outputs.get(stream);
    match (number - REGISTERS.start) >> 5 {
        0 => input().map(|i| Ok(i.head())),
        1 => input().map(|i| i.end().ok_or(Exit::WaitInput(stream as u8))),
        2 => output().map(|o| Ok(o.head())),
        3 => output().map(|o| Ok(o.limit())),
        4 => input().map(|i| match (i.available(), i.left()) {
            (0, None) => Err(Exit::WaitInput(stream as u8)),
            (available, left) => Ok(u64::from(available == 0 && left == Some(0))),
        }),
        _ => None,
    }
}

handlers! {
    fn wait(step, s, e) {
        let o = operands!(step);
        let Some(input) = e.streams().inputs.get(o.rs1 as usize) else {
            return s.trap(step, Cause::LoadAccess, u64::from(o.rs1));
        };
        let Look::There(bytes) = input.wait(X::unsigned(s.x[o.rs2 as usize])) else {
            return wait_input(step, s, o.rs1, false);
        };
        s.x[o.rd as usize] = X::word(bytes);
        next!(step, s, e)
    }
    fn read_register(step, s, e) {
        let o = operands!(step);
        match register(e, o.imm) {
            Some(Ok(value)) => s.x[o.rd as usize] = X::word(value),
            Some(Err(exit)) => return s.leave(step, exit),
            // The hart treats it as any register that does not exist.
            None => return s.leave(step, Exit::System),
        }
        next!(step, s, e)
    }
}
