//! Stream instructions: contiguous bytes of a ring buffer are read or written here; the interpreter executes all other
//! cases.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, types};
use nandarray_hart::isa::{Code, Instruction};

use super::{Emit, guest, own};
use crate::context::{CodeExit, Context, Ring, STREAMS};

/// Bytes of room that the ring of an output must have: those of the largest store.
const ROOM: i64 = 8;

impl Emit<'_, '_> {
    fn ring(&self, inputs: bool, stream: u8, field: usize) -> i32 {
        debug_assert!((stream as usize) < STREAMS && field < size_of::<Ring>(), "stream {stream}");
        let all = if inputs { offset_of!(Context, inputs) } else { offset_of!(Context, outputs) };
        (all + stream as usize * size_of::<Ring>() + field) as i32
    }

    pub(super) fn stream_load(&mut self, op: &Instruction) {
        let (bytes, ty, signed) = match op.code {
            Code::StreamLoadB => (1, types::I8, true),
            Code::StreamLoadBu => (1, types::I8, false),
            Code::StreamLoadH => (2, types::I16, true),
            Code::StreamLoadHu => (2, types::I16, false),
            Code::StreamLoadW => (4, types::I32, true),
            Code::StreamLoadWu => (4, types::I32, false),
            _ => (8, types::I64, true),
        };
        let (at, end) = (self.ring(true, op.rs1, offset_of!(Ring, at)), self.ring(true, op.rs1, offset_of!(Ring, end)));
        let from = self.b.ins().load(types::I64, own(), self.context, at);
        let behind = self.b.ins().iadd_imm_s(from, bytes);
        let end = self.b.ins().load(types::I64, own(), self.context, end);
        let there = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, behind, end);
        self.unless_here(there, CodeExit::Handover);
        let value = self.b.ins().load(ty, guest(), from, 0);
        self.b.ins().store(own(), behind, self.context, at);
        let value = self.extend(value, signed);
        self.set(op.rd, value);
    }

    pub(super) fn stream_store(&mut self, op: &Instruction) {
        let (bytes, ty) = match op.code {
            Code::StreamStoreB => (1, types::I8),
            Code::StreamStoreH => (2, types::I16),
            Code::StreamStoreW => (4, types::I32),
            _ => (8, types::I64),
        };
        let (at, end) =
            (self.ring(false, op.rs1, offset_of!(Ring, at)), self.ring(false, op.rs1, offset_of!(Ring, end)));
        let to = self.b.ins().load(types::I64, own(), self.context, at);
        let wanted = self.b.ins().iadd_imm_s(to, ROOM);
        let end = self.b.ins().load(types::I64, own(), self.context, end);
        let room = self.b.ins().icmp(IntCC::UnsignedLessThanOrEqual, wanted, end);
        self.unless_here(room, CodeExit::Handover);
        let value = self.get(op.rs2);
        let value = self.cut(value, ty);
        self.b.ins().store(guest(), value, to, 0);
        let behind = self.b.ins().iadd_imm_s(to, bytes);
        self.b.ins().store(own(), behind, self.context, at);
    }

    /// Emits a wait for bytes of an input. The code applies only if all of them are in the ring; otherwise the
    /// interpreter executes it.
    pub(super) fn stream_wait(&mut self, op: &Instruction) {
        let [at, end, ahead] = [offset_of!(Ring, at), offset_of!(Ring, end), offset_of!(Ring, ahead)].map(|field| {
            let field = self.ring(true, op.rs1, field);
            self.b.ins().load(types::I64, own(), self.context, field)
        });
        let there = self.b.ins().isub(end, at);
        let most = self.b.ins().umin(there, ahead);
        let value = self.get(op.rs2);
        let wanted = self.wide(value);
        // A wait for zero bytes is left to the interpreter, which knows whether the stream exists.
        let less = self.b.ins().iadd_imm_s(wanted, -1);
        let enough = self.b.ins().icmp(IntCC::UnsignedLessThan, less, most);
        self.unless_here(enough, CodeExit::Handover);
        self.set(op.rd, value);
    }

    /// Emits a read of a stream register: a head, or whether an input has ended. The code applies only if the ring has
    /// bytes left, so that the input has not ended; otherwise the interpreter executes it.
    pub(super) fn stream_register(&mut self, op: &Instruction) {
        let (kind, stream) = ((op.imm - 0x800) >> 5, (op.imm & 31) as u8);
        let inputs = kind != 2;
        let at = self.ring(inputs, stream, offset_of!(Ring, at));
        let end = self.ring(inputs, stream, offset_of!(Ring, end));
        let at = self.b.ins().load(types::I64, own(), self.context, at);
        let end = self.b.ins().load(types::I64, own(), self.context, end);
        let some = self.b.ins().icmp(IntCC::UnsignedLessThan, at, end);
        self.unless_here(some, CodeExit::Handover);
        let value = if kind == 4 {
            self.b.ins().iconst(types::I64, 0)
        } else {
            let head = self.ring(inputs, stream, offset_of!(Ring, head));
            let head = self.b.ins().load(types::I64, own(), self.context, head);
            self.b.ins().iadd(at, head)
        };
        let value = self.cut(value, self.ty);
        self.set(op.rd, value);
    }
}
