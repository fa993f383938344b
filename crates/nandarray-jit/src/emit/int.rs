//! Integer arithmetic, bit manipulation, and the conditions and targets of jumps.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use nandarray_hart::isa::{Code, Instruction};

use super::Emit;

impl Emit<'_, '_> {
    /// Emits the condition of a branch; the value is whether the branch is taken.
    pub(super) fn branch(&mut self, op: &Instruction) -> Value {
        let (a, b) = (self.get(op.rs1), self.get(op.rs2));
        let condition = match op.code {
            Code::Beq => IntCC::Equal,
            Code::Bne => IntCC::NotEqual,
            Code::Blt => IntCC::SignedLessThan,
            Code::Bge => IntCC::SignedGreaterThanOrEqual,
            Code::Bltu => IntCC::UnsignedLessThan,
            _ => IntCC::UnsignedGreaterThanOrEqual,
        };
        self.b.ins().icmp(condition, a, b)
    }

    /// Emits a `jalr`: sets the link register, and returns the target address.
    pub(super) fn jump_register(&mut self, op: &Instruction) -> Value {
        let base = self.get(op.rs1);
        let target = self.b.ins().iadd_imm_s(base, i64::from(op.imm));
        let target = self.b.ins().band_imm_s(target, -2);
        let link = self.constant(self.pc.wrapping_add(u64::from(op.len)));
        self.set(op.rd, link);
        target
    }

    pub(super) fn integer(&mut self, op: &Instruction) {
        let a = self.get(op.rs1);
        let value = match op.row().format {
            nandarray_hart::isa::Format::Register => {
                let b = self.get(op.rs2);
                self.registers(op.code, a, b)
            }
            _ => self.immediate(op.code, a, op.imm),
        };
        self.set(op.rd, value);
    }

    fn compare(&mut self, condition: IntCC, a: Value, b: Value) -> Value {
        let holds = self.b.ins().icmp(condition, a, b);
        self.flag(holds)
    }

    /// Emits the low 32 bits of a register, zero-extended.
    fn zero_upper(&mut self, a: Value) -> Value {
        let low = self.low(a);
        self.b.ins().uextend(self.ty, low)
    }

    fn registers(&mut self, code: Code, a: Value, b: Value) -> Value {
        use Code::*;
        match code {
            Add => self.b.ins().iadd(a, b),
            Sub => self.b.ins().isub(a, b),
            Sll => self.b.ins().ishl(a, b),
            Slt => self.compare(IntCC::SignedLessThan, a, b),
            Sltu => self.compare(IntCC::UnsignedLessThan, a, b),
            Xor => self.b.ins().bxor(a, b),
            Srl => self.b.ins().ushr(a, b),
            Sra => self.b.ins().sshr(a, b),
            Or => self.b.ins().bor(a, b),
            And => self.b.ins().band(a, b),
            Addw | Subw | Sllw | Srlw | Sraw | Mulw | Divw | Divuw | Remw | Remuw | Rolw | Rorw => {
                self.words(code, a, b)
            }
            Mul => self.b.ins().imul(a, b),
            Mulh => self.b.ins().smulhi(a, b),
            Mulhu => self.b.ins().umulhi(a, b),
            Mulhsu => {
                let high = self.b.ins().umulhi(a, b);
                let sign = self.b.ins().sshr_imm_u(a, i64::from(self.ty.bits()) - 1);
                let less = self.b.ins().band(sign, b);
                self.b.ins().isub(high, less)
            }
            Div => self.divide(true, false, a, b),
            Divu => self.divide(false, false, a, b),
            Rem => self.divide(true, true, a, b),
            Remu => self.divide(false, true, a, b),
            _ => self.bit_registers(code, a, b),
        }
    }

    /// Emits an operation on the low 32 bits of two registers.
    fn words(&mut self, code: Code, a: Value, b: Value) -> Value {
        use Code::*;
        let (a, b) = (self.low(a), self.low(b));
        let value = match code {
            Addw => self.b.ins().iadd(a, b),
            Subw => self.b.ins().isub(a, b),
            Sllw => self.b.ins().ishl(a, b),
            Srlw => self.b.ins().ushr(a, b),
            Sraw => self.b.ins().sshr(a, b),
            Mulw => self.b.ins().imul(a, b),
            Rolw => self.b.ins().rotl(a, b),
            Rorw => self.b.ins().rotr(a, b),
            Divw => self.divide(true, false, a, b),
            Divuw => self.divide(false, false, a, b),
            Remw => self.divide(true, true, a, b),
            _ => self.divide(false, true, a, b),
        };
        self.word(value)
    }

    /// Emits an operation of Zba, Zbb or Zbs on two registers.
    fn bit_registers(&mut self, code: Code, a: Value, b: Value) -> Value {
        use Code::*;
        match code {
            Sh1add | Sh2add | Sh3add => {
                let by = code as i64 - Sh1add as i64 + 1;
                let a = self.b.ins().ishl_imm_u(a, by);
                self.b.ins().iadd(a, b)
            }
            AddUw => {
                let a = self.zero_upper(a);
                self.b.ins().iadd(a, b)
            }
            Sh1addUw | Sh2addUw | Sh3addUw => {
                let by = match code {
                    Sh1addUw => 1,
                    Sh2addUw => 2,
                    _ => 3,
                };
                let a = self.zero_upper(a);
                let a = self.b.ins().ishl_imm_u(a, by);
                self.b.ins().iadd(a, b)
            }
            Andn => self.b.ins().band_not(a, b),
            Orn => self.b.ins().bor_not(a, b),
            Xnor => self.b.ins().bxor_not(a, b),
            Min => self.b.ins().smin(a, b),
            Minu => self.b.ins().umin(a, b),
            Max => self.b.ins().smax(a, b),
            Maxu => self.b.ins().umax(a, b),
            Rol => self.b.ins().rotl(a, b),
            Ror => self.b.ins().rotr(a, b),
            Bext => {
                let low = self.b.ins().ushr(a, b);
                self.b.ins().band_imm_s(low, 1)
            }
            Bclr | Binv | Bset => {
                let one = self.constant(1);
                let bit = self.b.ins().ishl(one, b);
                match code {
                    Bclr => self.b.ins().band_not(a, bit),
                    Binv => self.b.ins().bxor(a, bit),
                    _ => self.b.ins().bor(a, bit),
                }
            }
            other => unreachable!("{other:?} has no two integer sources"),
        }
    }

    /// Emits a division of two values of one width: the remainder or else the quotient. As RISC-V defines it, dividing
    /// by zero gives the quotient -1 (all ones) and the dividend as remainder, and the one overflow wraps.
    fn divide(&mut self, signed: bool, remainder: bool, a: Value, b: Value) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        let zero = self.b.ins().icmp_imm_s(IntCC::Equal, b, 0);
        let one = self.b.ins().iconst(ty, 1);
        let mut safe = self.b.ins().select(zero, one, b);
        let minus = signed.then(|| self.b.ins().icmp_imm_s(IntCC::Equal, b, -1));
        if let Some(minus) = minus {
            safe = self.b.ins().select(minus, one, safe);
        }
        let value = match (signed, remainder) {
            (true, false) => self.b.ins().sdiv(a, safe),
            (false, false) => self.b.ins().udiv(a, safe),
            (true, true) => self.b.ins().srem(a, safe),
            (false, true) => self.b.ins().urem(a, safe),
        };
        if remainder {
            return self.b.ins().select(zero, a, value);
        }
        let value = minus.map_or(value, |minus| {
            let negative = self.b.ins().ineg(a);
            self.b.ins().select(minus, negative, value)
        });
        let nothing = self.b.ins().iconst(ty, 0);
        let ones = self.b.ins().bnot(nothing);
        self.b.ins().select(zero, ones, value)
    }

    fn immediate(&mut self, code: Code, a: Value, imm: i32) -> Value {
        use Code::*;
        let i = i64::from(imm);
        let shift = i & (i64::from(self.ty.bits()) - 1);
        match code {
            Addi => self.b.ins().iadd_imm_s(a, i),
            Slti => {
                let holds = self.b.ins().icmp_imm_s(IntCC::SignedLessThan, a, i);
                self.flag(holds)
            }
            Sltiu => {
                let holds = self.b.ins().icmp_imm_s(IntCC::UnsignedLessThan, a, i);
                self.flag(holds)
            }
            Xori => self.b.ins().bxor_imm_s(a, i),
            Ori => self.b.ins().bor_imm_s(a, i),
            Andi => self.b.ins().band_imm_s(a, i),
            Slli => self.b.ins().ishl_imm_u(a, shift),
            Srli => self.b.ins().ushr_imm_u(a, shift),
            Srai => self.b.ins().sshr_imm_u(a, shift),
            Addiw | Slliw | Srliw | Sraiw | Roriw => {
                let a = self.low(a);
                let value = match code {
                    Addiw => self.b.ins().iadd_imm_s(a, i),
                    Slliw => self.b.ins().ishl_imm_u(a, i & 31),
                    Srliw => self.b.ins().ushr_imm_u(a, i & 31),
                    Sraiw => self.b.ins().sshr_imm_u(a, i & 31),
                    _ => self.b.ins().rotr_imm_u(a, i & 31),
                };
                self.word(value)
            }
            SlliUw => {
                let a = self.zero_upper(a);
                self.b.ins().ishl_imm_u(a, i & 63)
            }
            Rori => self.b.ins().rotr_imm_u(a, shift),
            Bclri | Binvi | Bseti => {
                let bit = self.constant(1 << shift);
                match code {
                    Bclri => self.b.ins().band_not(a, bit),
                    Binvi => self.b.ins().bxor(a, bit),
                    _ => self.b.ins().bor(a, bit),
                }
            }
            Bexti => {
                let low = self.b.ins().ushr_imm_u(a, shift);
                self.b.ins().band_imm_s(low, 1)
            }
            _ => self.unary(code, a),
        }
    }

    /// Emits an operation on one register.
    fn unary(&mut self, code: Code, a: Value) -> Value {
        use Code::*;
        match code {
            Clz => self.b.ins().clz(a),
            Ctz => self.b.ins().ctz(a),
            Cpop => self.b.ins().popcnt(a),
            Clzw | Ctzw | Cpopw => {
                let a = self.low(a);
                let value = match code {
                    Clzw => self.b.ins().clz(a),
                    Ctzw => self.b.ins().ctz(a),
                    _ => self.b.ins().popcnt(a),
                };
                self.word(value)
            }
            SextB => {
                let low = self.b.ins().ireduce(types::I8, a);
                self.b.ins().sextend(self.ty, low)
            }
            SextH => {
                let low = self.b.ins().ireduce(types::I16, a);
                self.b.ins().sextend(self.ty, low)
            }
            ZextH32 | ZextH64 => self.b.ins().band_imm_s(a, 0xffff),
            Rev8In32 | Rev8In64 => self.b.ins().bswap(a),
            OrcB => {
                // Sets 0x80 in every byte that is not zero, then spreads it over the byte.
                let low = self.constant(0x7f7f_7f7f_7f7f_7f7f);
                let rest = self.b.ins().band(a, low);
                let carried = self.b.ins().iadd(rest, low);
                let any = self.b.ins().bor(carried, a);
                let high = self.b.ins().band_not(any, low);
                let ones = self.b.ins().ushr_imm_u(high, 7);
                self.b.ins().imul_imm_s(ones, 0xff)
            }
            other => unreachable!("{other:?} has no immediate or single source"),
        }
    }
}
