//! Floating-point arithmetic: the host's where its result and flags are certain to be right, the hart's function
//! otherwise.
//!
//! Translated code is entered only while the dynamic rounding mode is "to nearest", and a result in the normal range
//! raises no flag but "inexact". If that flag is set already, no further test is needed; otherwise the rounding error
//! is computed: by an error-free transformation for sums, by a fused multiply-add or in double precision for products,
//! quotients and roots. Doubtful cases call the function that the interpreter uses too, with the registers' contents.
//! So a program's first inexact operation makes one such call, which sets the flag.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::immediates::{Ieee32, Ieee64};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value, types};
use nandarray_hart::float_function;
use nandarray_hart::isa::{Code, Format, Instruction};

use super::speculate::FloatCondition;
use super::{Emit, argument, own};
use crate::registers::{reads_single, writes_single};

impl Emit<'_, '_> {
    /// Emits the reading of register `r` as a number of single precision.
    fn single_of(&mut self, r: u8) -> Value {
        if self.single >> r & 1 != 0 {
            return self.b.use_var(self.s[r as usize]);
        }
        // A value whose upper half is not all ones (boxed) reads as the canonical NaN.
        let bits = self.bits(r);
        let upper = self.b.ins().ushr_imm_u(bits, 32);
        let boxed = self.b.ins().icmp_imm_u(IntCC::Equal, upper, 0xffff_ffff);
        let low = self.b.ins().ireduce(types::I32, bits);
        let nan = self.b.ins().iconst(types::I32, 0x7fc0_0000);
        let low = self.b.ins().select(boxed, low, nan);
        self.b.ins().bitcast(types::F32, MemFlagsData::new(), low)
    }

    /// Emits the reading of all 64 bits of register `r`, as a number of double precision.
    pub(super) fn double(&mut self, r: i32) -> Value {
        if self.single >> r & 1 == 0 {
            return self.b.use_var(self.d[r as usize]);
        }
        let bits = self.bits(r as u8);
        self.b.ins().bitcast(types::F64, MemFlagsData::new(), bits)
    }

    /// Emits the reading of all 64 bits of register `r`, as an integer.
    pub(super) fn bits(&mut self, r: u8) -> Value {
        if self.single >> r & 1 == 0 {
            let value = self.b.use_var(self.d[r as usize]);
            return self.b.ins().bitcast(types::I64, MemFlagsData::new(), value);
        }
        let value = self.b.use_var(self.s[r as usize]);
        let low = self.b.ins().bitcast(types::I32, MemFlagsData::new(), value);
        let low = self.b.ins().uextend(types::I64, low);
        self.b.ins().bor_imm_s(low, 0xffff_ffff_0000_0000_u64 as i64)
    }

    pub(super) fn set_single(&mut self, r: u8, value: Value) {
        self.b.def_var(self.s[r as usize], value);
        self.single |= 1 << r;
    }

    pub(super) fn set_double(&mut self, r: u8, value: Value) {
        self.b.def_var(self.d[r as usize], value);
        self.single &= !(1 << r);
    }

    /// Emits the reading of a source register in the instruction's precision.
    fn source(&mut self, single: bool, r: u8) -> Value {
        if single { self.single_of(r) } else { self.double(i32::from(r)) }
    }

    pub(super) fn number(&mut self, single: bool, value: f64) -> Value {
        if single {
            self.b.ins().f32const(Ieee32::with_float(value as f32))
        } else {
            self.b.ins().f64const(Ieee64::with_float(value))
        }
    }

    fn flags_address(&mut self) -> Value {
        self.b.ins().iadd_imm_s(self.registers, i64::from(self.target.layout.fflags))
    }

    /// Emits a call of the hart's function for an instruction; returns the destination register's bits, or the integer
    /// result.
    fn call(&mut self, op: &Instruction) -> Value {
        let format = op.row().format;
        let zero = self.b.ins().iconst(types::I64, 0);
        let from_x = matches!(format, Format::IntToFloatRounded | Format::IntToFloat);
        let a = if from_x {
            let value = self.get(op.rs1);
            self.wide(value)
        } else {
            self.bits(op.rs1)
        };
        let two =
            matches!(format, Format::FloatFused | Format::FloatRounded | Format::FloatRegister | Format::FloatCompare);
        let b = if two { self.bits(op.rs2) } else { zero };
        let c = if format == Format::FloatFused { self.bits(op.rs3) } else { zero };
        let rm = if op.rm == 7 { 0 } else { op.rm };
        let rm = self.b.ins().iconst(types::I64, i64::from(rm));
        let flags = self.flags_address();
        let Some(function) = float_function(op.code) else { unreachable!("{:?} computes nothing", op.code) };
        let function = self.b.ins().iconst(types::I64, function as usize as i64);
        let call = self.b.ins().call_indirect(self.float_signature, function, &[a, b, c, rm, flags]);
        self.b.inst_results(call)[0]
    }

    /// Emits a call of the hart's function; returns its result with the type that the host's own operation gives.
    fn called(&mut self, op: &Instruction) -> Value {
        let bits = self.call(op);
        match op.row().format {
            Format::FloatCompare | Format::FloatToIntRounded | Format::FloatToInt => self.cut(bits, self.ty),
            _ if writes_single(op) => {
                let low = self.b.ins().ireduce(types::I32, bits);
                self.b.ins().bitcast(types::F32, MemFlagsData::new(), low)
            }
            _ => self.b.ins().bitcast(types::F64, MemFlagsData::new(), bits),
        }
    }

    fn set_result(&mut self, op: &Instruction, value: Value) {
        match op.row().format {
            Format::FloatCompare | Format::FloatToIntRounded | Format::FloatToInt => self.set(op.rd, value),
            _ if writes_single(op) => self.set_single(op.rd, value),
            _ => self.set_double(op.rd, value),
        }
    }

    /// Emits the choice of an instruction's result: `fast` if all conditions hold, the result of the hart's function
    /// otherwise.
    fn or_call(&mut self, op: &Instruction, fast: Value, conditions: &[FloatCondition]) {
        if self.collects(conditions) {
            return self.set_result(op, fast);
        }
        let ty = self.b.func.dfg.value_type(fast);
        let (done, result) = self.join(ty);
        let slow = self.cold_block();
        let certain = self.certain(conditions);
        self.b.ins().brif(certain, done, &argument(fast), slow, &[]);
        self.b.seal_block(slow);
        self.b.switch_to_block(slow);
        let value = self.called(op);
        self.b.ins().jump(done, &argument(value));
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        self.set_result(op, result);
    }

    /// As [`Self::or_call`], for results that may be inexact: `fast` is used only if the flag "inexact" is set already,
    /// or if `exact`, which emits a test for exactness, holds. Without `exact`, it is used only if the flag is set.
    fn or_inexact(
        &mut self,
        op: &Instruction,
        fast: Value,
        conditions: &[FloatCondition],
        exact: Option<&mut dyn FnMut(&mut Self) -> Value>,
    ) {
        // Conditions are collected only in code that runs with the flag set.
        if self.collects(conditions) {
            return self.set_result(op, fast);
        }
        let ty = self.b.func.dfg.value_type(fast);
        let (done, result) = self.join(ty);
        let (ask, slow) = (self.block(), self.cold_block());
        let certain = self.certain(conditions);
        self.b.ins().brif(certain, ask, &[], slow, &[]);
        self.b.seal_block(ask);
        self.b.switch_to_block(ask);
        let inexact = self.inexact_stands();
        if let Some(exact) = exact {
            let look = self.block();
            self.b.ins().brif(inexact, done, &argument(fast), look, &[]);
            self.b.seal_block(look);
            self.b.switch_to_block(look);
            let exact = exact(self);
            self.b.ins().brif(exact, done, &argument(fast), slow, &[]);
        } else {
            self.b.ins().brif(inexact, done, &argument(fast), slow, &[]);
        }
        self.b.seal_block(slow);
        self.b.switch_to_block(slow);
        let value = self.called(op);
        self.b.ins().jump(done, &argument(value));
        self.b.seal_block(done);
        self.b.switch_to_block(done);
        self.set_result(op, result);
    }

    /// Emits a test whether the flag "inexact" is set.
    pub(super) fn inexact_stands(&mut self) -> Value {
        let flags = self.b.ins().load(types::I8, own(), self.registers, self.target.layout.fflags);
        self.b.ins().band_imm_u(flags, 1)
    }

    /// Emits a test whether the magnitude of `value` lies between `low` and `high`, both excluded; false for a NaN.
    pub(super) fn between(&mut self, single: bool, value: Value, low: f64, high: f64) -> Value {
        let magnitude = self.b.ins().fabs(value);
        let (low, high) = (self.number(single, low), self.number(single, high));
        let above = self.b.ins().fcmp(FloatCC::GreaterThan, magnitude, low);
        let below = self.b.ins().fcmp(FloatCC::LessThan, magnitude, high);
        self.b.ins().band(above, below)
    }

    pub(super) fn below(&mut self, single: bool, value: Value, high: f64) -> Value {
        let magnitude = self.b.ins().fabs(value);
        let high = self.number(single, high);
        self.b.ins().fcmp(FloatCC::LessThan, magnitude, high)
    }

    pub(super) fn float(&mut self, op: &Instruction) {
        use Code::*;
        let single = reads_single(op);
        let nearest = matches!(op.rm, 0 | 7);
        match op.code {
            FaddS | FaddD | FsubS | FsubD if nearest => self.sum(op, single),
            FmulS | FmulD | FdivS | FdivD if nearest => self.product(op, single),
            FsqrtS | FsqrtD if nearest => self.root(op, single),
            FmaddS | FmsubS | FnmsubS | FnmaddS | FmaddD | FmsubD | FnmsubD | FnmaddD if nearest && self.target.fma => {
                self.fused(op, single);
            }
            FsgnjS | FsgnjnS | FsgnjxS | FsgnjD | FsgnjnD | FsgnjxD => self.sign(op, single),
            FminS | FmaxS | FminD | FmaxD | FeqS | FltS | FleS | FeqD | FltD | FleD => self.ordered(op, single),
            FmvXW => {
                let bits = self.bits(op.rs1);
                let low = self.b.ins().ireduce(types::I32, bits);
                let value = self.word(low);
                self.set(op.rd, value);
            }
            FmvXD => {
                let bits = self.bits(op.rs1);
                self.set(op.rd, bits);
            }
            FmvWX => {
                let value = self.get(op.rs1);
                let low = self.low(value);
                let value = self.b.ins().bitcast(types::F32, MemFlagsData::new(), low);
                self.set_single(op.rd, value);
            }
            FmvDX => {
                let value = self.get(op.rs1);
                let value = self.b.ins().bitcast(types::F64, MemFlagsData::new(), value);
                self.set_double(op.rd, value);
            }
            FcvtDS => {
                let value = self.single_of(op.rs1);
                let wide = self.b.ins().fpromote(types::F64, value);
                self.or_call(op, wide, &[FloatCondition::Widened(value, wide)]);
            }
            FcvtSD if nearest => {
                let value = self.double(i32::from(op.rs1));
                let narrow = self.b.ins().fdemote(types::F32, value);
                self.or_inexact(
                    op,
                    narrow,
                    &[FloatCondition::From([value; 3]), FloatCondition::Normal(narrow)],
                    Some(&mut |e| {
                        let back = e.b.ins().fpromote(types::F64, narrow);
                        e.b.ins().fcmp(FloatCC::Equal, back, value)
                    }),
                );
            }
            FcvtDW | FcvtDWu | FcvtSW | FcvtSWu | FcvtDL | FcvtDLu | FcvtSL | FcvtSLu => self.integer_to_float(op),
            FcvtWS | FcvtWuS | FcvtLS | FcvtLuS | FcvtWD | FcvtWuD | FcvtLD | FcvtLuD if op.rm == 1 => {
                self.float_to_integer(op, single);
            }
            _ => {
                let value = self.called(op);
                self.set_result(op, value);
            }
        }
    }

    fn sum(&mut self, op: &Instruction, single: bool) {
        let (a, mut b) = (self.source(single, op.rs1), self.source(single, op.rs2));
        let from = [a, b, b];
        let fast = if matches!(op.code, Code::FsubS | Code::FsubD) {
            let fast = self.b.ins().fsub(a, b);
            b = self.b.ins().fneg(b);
            fast
        } else {
            self.b.ins().fadd(a, b)
        };
        let most = if single { f64::from(f32::MAX / 4.0) } else { f64::MAX / 4.0 };
        self.or_inexact(
            op,
            fast,
            &[FloatCondition::From(from), FloatCondition::Finite(fast)],
            Some(&mut |e| {
                // The rounding error of the sum is itself a number, and these operations compute it unless something
                // overflows.
                let part = e.b.ins().fsub(fast, a);
                let rest = e.b.ins().fsub(fast, part);
                let rest = e.b.ins().fsub(a, rest);
                let other = e.b.ins().fsub(b, part);
                let lacks = e.b.ins().fadd(rest, other);
                let nothing = e.number(single, 0.0);
                let exact = e.b.ins().fcmp(FloatCC::Equal, lacks, nothing);
                let (a, b) = (e.below(single, a, most), e.below(single, b, most));
                let both = e.b.ins().band(a, b);
                e.b.ins().band(exact, both)
            }),
        );
    }

    fn product(&mut self, op: &Instruction, single: bool) {
        let (a, b) = (self.source(single, op.rs1), self.source(single, op.rs2));
        let divides = matches!(op.code, Code::FdivS | Code::FdivD);
        let fast = if divides { self.b.ins().fdiv(a, b) } else { self.b.ins().fmul(a, b) };
        let normal = [FloatCondition::From([a, b, b]), FloatCondition::Normal(fast)];
        let quotient = [FloatCondition::From([a; 3]), FloatCondition::Normal(fast), FloatCondition::Finite(b)];
        let conditions: &[FloatCondition] = if divides { &quotient } else { &normal };
        // Test whether the first two of these, multiplied exactly, are the third.
        let (left, right, whole) = if divides { (fast, b, a) } else { (a, b, fast) };
        let mut exact = |e: &mut Self| e.is_product(single, left, right, whole);
        let known = single || self.target.fma;
        self.or_inexact(op, fast, conditions, if known { Some(&mut exact) } else { None });
    }

    /// Emits a test whether `whole` is exactly the product of `left` and `right`.
    fn is_product(&mut self, single: bool, left: Value, right: Value, whole: Value) -> Value {
        if single {
            let left = self.b.ins().fpromote(types::F64, left);
            let right = self.b.ins().fpromote(types::F64, right);
            let whole = self.b.ins().fpromote(types::F64, whole);
            let product = self.b.ins().fmul(left, right);
            return self.b.ins().fcmp(FloatCC::Equal, product, whole);
        }
        // The rounding error of the product must itself be a number: products too small for that count as inexact.
        let large = self.between(false, whole, 1e-290, f64::INFINITY);
        let negative = self.b.ins().fneg(whole);
        let lacks = self.b.ins().fma(left, right, negative);
        let nothing = self.number(false, 0.0);
        let exact = self.b.ins().fcmp(FloatCC::Equal, lacks, nothing);
        self.b.ins().band(exact, large)
    }

    fn root(&mut self, op: &Instruction, single: bool) {
        let a = self.source(single, op.rs1);
        let fast = self.b.ins().sqrt(a);
        // A root above zero is the root of a number above zero; roots of subnormal numbers are left to the function.
        let conditions = [FloatCondition::Normal(a), FloatCondition::Numbers(fast, fast)];
        let mut exact = |e: &mut Self| e.is_product(single, fast, fast, a);
        let known = single || self.target.fma;
        self.or_inexact(op, fast, &conditions, if known { Some(&mut exact) } else { None });
    }

    fn fused(&mut self, op: &Instruction, single: bool) {
        use Code::*;
        let (mut a, b) = (self.source(single, op.rs1), self.source(single, op.rs2));
        let mut c = self.source(single, op.rs3);
        let from = [a, b, c];
        if matches!(op.code, FnmsubS | FnmsubD | FnmaddS | FnmaddD) {
            a = self.b.ins().fneg(a);
        }
        if matches!(op.code, FmsubS | FmsubD | FnmaddS | FnmaddD) {
            c = self.b.ins().fneg(c);
        }
        let fast = self.b.ins().fma(a, b, c);
        self.or_inexact(op, fast, &[FloatCondition::From(from), FloatCondition::Normal(fast)], None);
    }

    fn sign(&mut self, op: &Instruction, single: bool) {
        use Code::*;
        let (a, b) = (self.source(single, op.rs1), self.source(single, op.rs2));
        let same = op.rs1 == op.rs2;
        let value = match op.code {
            FsgnjS | FsgnjD if same => a,
            FsgnjS | FsgnjD => self.b.ins().fcopysign(a, b),
            FsgnjnS | FsgnjnD if same => self.b.ins().fneg(a),
            FsgnjnS | FsgnjnD => {
                let b = self.b.ins().fneg(b);
                self.b.ins().fcopysign(a, b)
            }
            _ if same => self.b.ins().fabs(a),
            _ => {
                let (int, float) = if single { (types::I32, types::F32) } else { (types::I64, types::F64) };
                let a = self.b.ins().bitcast(int, MemFlagsData::new(), a);
                let b = self.b.ins().bitcast(int, MemFlagsData::new(), b);
                let top = self.b.ins().iconst(int, (1u64 << (int.bits() - 1)) as i64);
                let sign = self.b.ins().band(b, top);
                let bits = self.b.ins().bxor(a, sign);
                self.b.ins().bitcast(float, MemFlagsData::new(), bits)
            }
        };
        self.set_result(op, value);
    }

    /// Emits a comparison, minimum or maximum; the host's is right as long as no operand is a NaN.
    fn ordered(&mut self, op: &Instruction, single: bool) {
        use Code::*;
        let (a, b) = (self.source(single, op.rs1), self.source(single, op.rs2));
        let relation = match op.code {
            FeqS | FeqD => FloatCC::Equal,
            FltS | FltD => FloatCC::LessThan,
            _ => FloatCC::LessThanOrEqual,
        };
        let fast = match op.code {
            FminS | FminD => self.b.ins().fmin(a, b),
            FmaxS | FmaxD => self.b.ins().fmax(a, b),
            _ => {
                let holds = self.b.ins().fcmp(relation, a, b);
                self.flag(holds)
            }
        };
        self.or_call(op, fast, &[FloatCondition::Numbers(a, b)]);
    }

    /// Emits a conversion from an integer; the host's is exact in any rounding mode if the significand can hold the
    /// integer.
    fn integer_to_float(&mut self, op: &Instruction) {
        use Code::*;
        let single = writes_single(op);
        let ty = if single { types::F32 } else { types::F64 };
        let value = self.get(op.rs1);
        let word = matches!(op.code, FcvtDW | FcvtDWu | FcvtSW | FcvtSWu);
        let unsigned = matches!(op.code, FcvtDWu | FcvtSWu | FcvtDLu | FcvtSLu);
        let value = if word { self.low(value) } else { value };
        let value = match (word, unsigned) {
            (true, true) => self.b.ins().uextend(types::I64, value),
            (true, false) => self.b.ins().sextend(types::I64, value),
            _ => value,
        };
        let fast = self.b.ins().fcvt_from_sint(ty, value);
        if word && !single {
            self.set_result(op, fast);
            return;
        }
        let bits = if single { 24 } else { 53 };
        let small = if unsigned {
            self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, value, 1 << bits)
        } else {
            let shifted = self.b.ins().iadd_imm_s(value, 1 << bits);
            self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, shifted, 2 << bits)
        };
        self.or_call(op, fast, &[FloatCondition::Holds(small)]);
    }

    /// Emits a conversion to an integer, rounding towards zero. The host's is right for magnitudes below half of the
    /// range.
    fn float_to_integer(&mut self, op: &Instruction, single: bool) {
        use Code::*;
        let value = self.source(single, op.rs1);
        let word = matches!(op.code, FcvtWS | FcvtWuS | FcvtWD | FcvtWuD);
        let unsigned = matches!(op.code, FcvtWuS | FcvtLuS | FcvtWuD | FcvtLuD);
        let ty = if word { types::I32 } else { types::I64 };
        let most = if word { (1u64 << 30) as f64 } else { (1u64 << 62) as f64 };
        let mut conditions = vec![FloatCondition::Below(value, most)];
        if unsigned {
            let nothing = self.number(single, 0.0);
            let positive = self.b.ins().fcmp(FloatCC::GreaterThanOrEqual, value, nothing);
            conditions.push(FloatCondition::Holds(positive));
        }
        let cut = self.b.ins().fcvt_to_sint_sat(ty, value);
        conditions.push(FloatCondition::Cut(value, cut));
        let fast = if word { self.word(cut) } else { cut };
        let float = if single { types::F32 } else { types::F64 };
        self.or_inexact(
            op,
            fast,
            &conditions,
            Some(&mut |e| {
                let back = e.b.ins().fcvt_from_sint(float, cut);
                e.b.ins().fcmp(FloatCC::Equal, back, value)
            }),
        );
    }
}
