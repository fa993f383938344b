//! Loads and stores: the address is compared with the memory regions that the instruction is expected to access.
//!
//! Addresses that consecutive instructions form from the same register are compared once, as one range. If the range is
//! not inside a region, the function returns before the first of these instructions, and the interpreter executes them
//! one at a time, up to the one that fails.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Type, Value, types};
use nandarray_hart::isa::{Code, Instruction};

use super::{Emit, Pc, argument, guest, own};
use crate::context::{CodeExit, Context, RegionSlot, SLOTS};
use crate::registers;
use crate::sites::MAIN;

/// Addresses that have been checked: from `base + low` to `base + high` all bytes lie in the memory region of `slot`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    base: Value,
    slot: u8,
    low: i32,
    high: i32,
    /// Whether the bytes are also known to be writable.
    store: bool,
}

impl Range {
    fn bytes(&self) -> i64 {
        i64::from(self.high) - i64::from(self.low)
    }
}

/// Returns the base-two logarithm of the number of bytes that an instruction accesses, and whether it is a store;
/// `None` if it accesses no memory.
fn extent(op: &Instruction) -> Option<(usize, bool)> {
    use Code::*;
    Some(match op.code {
        Lb | Lbu => (0, false),
        Lh | Lhu => (1, false),
        Lw | Lwu | Flw => (2, false),
        Ld | Fld => (3, false),
        Sb => (0, true),
        Sh => (1, true),
        Sw | Fsw => (2, true),
        Sd | Fsd => (3, true),
        _ => return None,
    })
}

impl Emit<'_, '_> {
    /// Emits the check of an instruction's address; returns the host's pointer to the `1 << log` bytes that it
    /// accesses, and an offset to add to the pointer.
    fn reach(&mut self, op: &Instruction, log: usize, store: bool) -> (Value, i32) {
        let base = self.get(op.rs1);
        if let Some(slot) = self.only(op, self.pc) {
            self.check(base, slot, op, log, store);
            let biased = self.biased(slot);
            if self.target.bits == 64 {
                return (self.b.ins().iadd(biased, base), op.imm);
            }
            let address = self.address(base, op.imm);
            return (self.b.ins().iadd(biased, address), 0);
        }
        let address = self.address(base, op.imm);
        let expected = self.target.sites.expected(self.pc).to_vec();
        assert!(!expected.is_empty(), "an access at {:#x} to no memory", self.pc);
        let (found, pointer) = self.join(types::I64);
        for (i, slot) in expected.iter().enumerate() {
            let inside = self.inside(*slot, address, log, store);
            let biased = self.biased(*slot);
            if i + 1 == expected.len() {
                self.unless_here(inside, CodeExit::Memory);
                self.b.ins().jump(found, &argument(biased));
            } else {
                let other = self.block();
                self.b.ins().brif(inside, found, &argument(biased), other, &[]);
                self.b.seal_block(other);
                self.b.switch_to_block(other);
            }
        }
        self.b.seal_block(found);
        self.b.switch_to_block(found);
        (self.b.ins().iadd(pointer, address), 0)
    }

    /// Returns the slot of the memory region that the instruction at `pc` is expected to access; `None` if several are
    /// expected.
    fn only(&self, op: &Instruction, pc: u64) -> Option<u8> {
        // The stack is in the main region.
        let expected = if op.rs1 == 2 { &[MAIN] } else { self.target.sites.expected(pc) };
        if let [slot] = expected { Some(*slot) } else { None }
    }

    fn address(&mut self, base: Value, offset: i32) -> Value {
        let address = self.b.ins().iadd_imm_s(base, i64::from(offset));
        self.wide(address)
    }

    /// Emits the check that the accessed bytes lie in a memory region, and leaves the function if not. The bytes that
    /// this and following instructions access by the same register are checked as one range; a range that was checked
    /// before is not checked again.
    fn check(&mut self, base: Value, slot: u8, op: &Instruction, log: usize, store: bool) {
        debug_assert!(log <= 3, "an access of {} bytes", 1u64 << log);
        let (low, high) = (op.imm, op.imm + (1 << log));
        let covers =
            |r: &Range| r.base == base && r.slot == slot && r.low <= low && high <= r.high && (r.store || !store);
        if self.ranges.iter().any(covers) {
            return;
        }
        if let Some(range) = self.together(base, slot, op) {
            self.check_range(&range);
            self.ranges.push(range);
            return;
        }
        let address = self.address(base, low);
        let inside = self.inside(slot, address, log, store);
        self.unless_here(inside, CodeExit::Memory);
        self.ranges.push(Range { base, slot, low, high, store });
    }

    /// Computes the range that this and following instructions access by the same register before it changes; `None` if
    /// this instruction is the only one, or the range cannot lie in the region.
    fn together(&self, base: Value, slot: u8, first: &Instruction) -> Option<Range> {
        if first.rs1 == 0 {
            return None;
        }
        let mut range = Range { base, slot, low: i32::MAX, high: i32::MIN, store: false };
        let (mut pc, mut members) = (self.pc, 0);
        for op in self.ahead {
            if let Some((log, store)) = extent(op).filter(|_| op.rs1 == first.rs1 && self.only(op, pc) == Some(slot)) {
                range.low = range.low.min(op.imm);
                range.high = range.high.max(op.imm + (1 << log));
                range.store |= store;
                members += 1;
            }
            if registers::writes(op) >> first.rs1 & 1 != 0 {
                break;
            }
            pc = self.wrap(pc.wrapping_add(u64::from(op.len)));
        }
        let layout = self.target.layout;
        let main = if range.store { &layout.writable } else { &layout.main };
        let fits = slot != MAIN
            || (range.bytes() <= (main.end - main.start) as i64
                && (self.target.bits == 64 || layout.main.end <= 1 << 32));
        (members > 1 && fits).then_some(range)
    }

    fn check_range(&mut self, range: &Range) {
        debug_assert!(range.low < range.high, "{range:?} has no bytes");
        let address = self.address(range.base, range.low);
        let layout = self.target.layout;
        if range.slot == MAIN {
            let main = if range.store { &layout.writable } else { &layout.main };
            debug_assert!(range.bytes() as u64 <= main.end - main.start, "{range:?} in {main:x?}");
            let room = main.end - main.start - range.bytes() as u64 + 1;
            let offset = self.b.ins().iadd_imm_s(address, (main.start as i64).wrapping_neg());
            let inside = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, offset, room as i64);
            return self.unless_here(inside, CodeExit::Together);
        }
        let room = self.room(range.slot, 0, range.store);
        let base = self.target.bases[range.slot as usize];
        let offset = self.b.ins().iadd_imm_s(address, (base as i64).wrapping_neg());
        let inside = self.b.ins().icmp(IntCC::UnsignedLessThan, offset, room);
        let left = self.b.ins().isub(room, offset);
        let enough = self.b.ins().icmp_imm_u(IntCC::UnsignedGreaterThanOrEqual, left, range.bytes());
        let out = self.escape.unwrap_or_else(|| self.cold_block());
        self.or_else(inside, out);
        self.or_else(enough, out);
        if self.escape.is_none() {
            let on = self.b.current_block();
            self.b.seal_block(out);
            self.b.switch_to_block(out);
            self.leave(Pc::Known(self.pc), self.count - self.index, CodeExit::Together);
            on.into_iter().for_each(|on| self.b.switch_to_block(on));
        }
    }

    /// Emits the host's pointer to a memory region minus the region's first address.
    fn biased(&mut self, slot: u8) -> Value {
        if slot == MAIN {
            return self.main;
        }
        let at = offset_of!(Context, slots) + slot as usize * size_of::<RegionSlot>() + offset_of!(RegionSlot, biased);
        self.b.ins().load(types::I64, own().with_readonly(), self.context, at as i32)
    }

    /// Emits the least offset in a memory region at which `1 << log` bytes no longer fit.
    fn room(&mut self, slot: u8, log: usize, store: bool) -> Value {
        debug_assert!((slot as usize) < SLOTS && log <= 3, "slot {slot}, {} bytes", 1u64 << log);
        let at = offset_of!(Context, slots) + slot as usize * size_of::<RegionSlot>();
        let reach = if store { offset_of!(RegionSlot, store) } else { offset_of!(RegionSlot, load) };
        self.b.ins().load(types::I64, own().with_readonly(), self.context, (at + reach + 8 * log) as i32)
    }

    /// Emits a test whether `1 << log` bytes at an address lie in a memory region.
    fn inside(&mut self, slot: u8, address: Value, log: usize, store: bool) -> Value {
        let layout = self.target.layout;
        if slot == MAIN {
            let range = if store { &layout.writable } else { &layout.main };
            let room = (range.end - range.start).saturating_sub((1 << log) - 1);
            let offset = self.b.ins().iadd_imm_s(address, (range.start as i64).wrapping_neg());
            return self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, offset, room as i64);
        }
        debug_assert!((slot as usize) < self.target.bases.len(), "slot {slot} of {}", self.target.bases.len());
        let base = self.target.bases[slot as usize];
        let offset = self.b.ins().iadd_imm_s(address, (base as i64).wrapping_neg());
        let room = self.room(slot, log, store);
        self.b.ins().icmp(IntCC::UnsignedLessThan, offset, room)
    }

    pub(super) fn load(&mut self, op: &Instruction) {
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

    /// Emits the extension of a value from memory to the width of an integer register.
    pub(super) fn extend(&mut self, value: Value, signed: bool) -> Value {
        match (self.b.func.dfg.value_type(value) == self.ty, signed) {
            (true, _) => value,
            (false, true) => self.b.ins().sextend(self.ty, value),
            (false, false) => self.b.ins().uextend(self.ty, value),
        }
    }

    /// Emits the low bits of an integer, of type `ty`.
    pub(super) fn cut(&mut self, value: Value, ty: Type) -> Value {
        if self.b.func.dfg.value_type(value) == ty { value } else { self.b.ins().ireduce(ty, value) }
    }

    pub(super) fn store(&mut self, op: &Instruction) {
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

    pub(super) fn float_load(&mut self, op: &Instruction) {
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

    pub(super) fn float_store(&mut self, op: &Instruction) {
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
