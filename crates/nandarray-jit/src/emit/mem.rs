//! Loads and stores: the address is compared with the regions that the instruction is expected to reach.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};
use nandarray_hart::isa::{Code, Op};

use super::{Emit, argument, guest, own};
use crate::context::{Context, Left, Slot};
use crate::sites::MAIN;

impl Emit<'_, '_> {
    /// Pointer (and what is to be added to it) to the `1 << log` bytes that an instruction reaches.
    fn reach(&mut self, op: &Op, log: usize, store: bool) -> (Value, i32) {
        let base = self.get(op.rs1);
        let address = self.b.ins().iadd_imm_s(base, i64::from(op.imm));
        let address = self.wide(address);
        // The stack is in the main region.
        let expected = if op.rs1 == 2 { vec![MAIN] } else { self.target.sites.expected(self.pc).to_vec() };
        if let [slot] = expected[..] {
            let (inside, biased) = self.inside(slot, address, log, store);
            self.unless_here(inside, Left::Memory);
            if self.target.bits == 64 {
                return (self.b.ins().iadd(biased, base), op.imm);
            }
            return (self.b.ins().iadd(biased, address), 0);
        }
        let (found, pointer) = self.join(types::I64);
        for (i, slot) in expected.iter().enumerate() {
            let (inside, biased) = self.inside(*slot, address, log, store);
            if i + 1 == expected.len() {
                self.unless_here(inside, Left::Memory);
                self.b.ins().jump(found, &argument(biased));
            } else {
                let other = self.b.create_block();
                self.b.ins().brif(inside, found, &argument(biased), other, &[]);
                self.b.seal_block(other);
                self.b.switch_to_block(other);
            }
        }
        self.b.seal_block(found);
        self.b.switch_to_block(found);
        (self.b.ins().iadd(pointer, address), 0)
    }

    /// Whether an address lies in a region, and that region's pointer less its first address.
    fn inside(&mut self, slot: u8, address: Value, log: usize, store: bool) -> (Value, Value) {
        let layout = self.target.layout;
        if slot == MAIN {
            let range = if store { &layout.writable } else { &layout.main };
            let room = (range.end - range.start).saturating_sub((1 << log) - 1);
            let offset = self.b.ins().iadd_imm_s(address, (range.start as i64).wrapping_neg());
            let inside = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, offset, room as i64);
            return (inside, self.main);
        }
        let base = self.target.bases[slot as usize];
        let at = offset_of!(Context, slots) + slot as usize * size_of::<Slot>();
        let reach = if store { offset_of!(Slot, store) } else { offset_of!(Slot, load) };
        let offset = self.b.ins().iadd_imm_s(address, (base as i64).wrapping_neg());
        let unchanged = own().with_readonly();
        let room = self.b.ins().load(types::I64, unchanged, self.context, (at + reach + 8 * log) as i32);
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, offset, room);
        let biased = self.b.ins().load(types::I64, unchanged, self.context, (at + offset_of!(Slot, biased)) as i32);
        (inside, biased)
    }

    pub(super) fn load(&mut self, op: &Op) {
        let (log, ty, signed) = match op.code {
            Code::Lb => (0, types::I8, true),
            Code::Lbu => (0, types::I8, false),
            Code::Lh => (1, types::I16, true),
            Code::Lhu => (1, types::I16, false),
            Code::Lw => (2, types::I32, true),
            Code::Lwu => (2, types::I32, false),
            _ => (3, types::I64, true),
        };
        let (pointer, offset) = self.reach(op, log, false);
        let value = self.b.ins().load(ty, guest(), pointer, offset);
        let value = self.extend(value, signed);
        self.set(op.rd, value);
    }

    /// A value of memory as an integer register's.
    pub(super) fn extend(&mut self, value: Value, signed: bool) -> Value {
        match (self.b.func.dfg.value_type(value) == self.ty, signed) {
            (true, _) => value,
            (false, true) => self.b.ins().sextend(self.ty, value),
            (false, false) => self.b.ins().uextend(self.ty, value),
        }
    }

    /// The low bits of an integer.
    pub(super) fn cut(&mut self, value: Value, ty: Type) -> Value {
        if self.b.func.dfg.value_type(value) == ty { value } else { self.b.ins().ireduce(ty, value) }
    }

    pub(super) fn store(&mut self, op: &Op) {
        let (log, ty) = match op.code {
            Code::Sb => (0, types::I8),
            Code::Sh => (1, types::I16),
            Code::Sw => (2, types::I32),
            _ => (3, types::I64),
        };
        let (pointer, offset) = self.reach(op, log, true);
        let value = self.get(op.rs2);
        let value = self.cut(value, ty);
        self.b.ins().store(guest(), value, pointer, offset);
    }

    pub(super) fn float_load(&mut self, op: &Op) {
        if op.code == Code::Flw {
            let (pointer, offset) = self.reach(op, 2, false);
            let value = self.b.ins().load(types::F32, guest(), pointer, offset);
            self.set_single(op.rd, value);
        } else {
            let (pointer, offset) = self.reach(op, 3, false);
            let value = self.b.ins().load(types::F64, guest(), pointer, offset);
            self.set_double(op.rd, value);
        }
    }

    pub(super) fn float_store(&mut self, op: &Op) {
        if op.code == Code::Fsw {
            let (pointer, offset) = self.reach(op, 2, true);
            if self.single >> op.rs2 & 1 != 0 {
                let value = self.b.use_var(self.s[op.rs2 as usize]);
                self.b.ins().store(guest(), value, pointer, offset);
            } else {
                let bits = self.bits(op.rs2);
                let low = self.b.ins().ireduce(types::I32, bits);
                self.b.ins().store(guest(), low, pointer, offset);
            }
        } else {
            let (pointer, offset) = self.reach(op, 3, true);
            let value = self.double(i32::from(op.rs2));
            self.b.ins().store(guest(), value, pointer, offset);
        }
    }
}
