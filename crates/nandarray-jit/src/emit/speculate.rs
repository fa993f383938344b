//! Doubts about floating-point results: resolved one by one, or for a run of instructions at once.
//!
//! The host's result is right if some conditions hold ([`FloatCondition`]). Consecutive instructions that can all be
//! executed again (no stores, no streams) are emitted twice. The first copy uses the host's results unchecked, and
//! tests at its end whether all conditions hold; most conditions follow from others, since results of operands that are
//! not finite are not finite either. If one fails, or the flag "inexact" is not set although it may be needed, the
//! second copy, a cold one, executes the same instructions from the first on, each with its own conditions. The
//! operations themselves are in `float`.

use std::collections::{HashMap, HashSet};

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{Block, InstBuilder, MemFlagsData, Value, types};
use cranelift_frontend::Variable;
use nandarray_hart::isa::{Code, Format, Instruction};

use super::Emit;
use crate::registers::{self, writes_single};

/// Cost of translating a speculative instruction, in ordinary instructions.
const SPECULATIVE_WEIGHT: u64 = 8;
/// Fewest instructions with conditions for which two copies are worth their cost.
const WORTH: usize = 2;

/// A condition under which the host's result of an instruction is right, except that it may be inexact.
#[derive(Clone, Copy, Debug)]
pub(super) enum FloatCondition {
    /// The value is neither infinite nor a NaN.
    Finite(Value),
    /// The value is finite, and its magnitude is above the smallest normal number.
    Normal(Value),
    /// Neither value is a NaN.
    Numbers(Value, Value),
    /// The first value is no NaN; the second is the same number in double precision.
    Widened(Value, Value),
    /// Not a condition but a fact: the second value is the first one's integral part, or an end of the integers' range.
    Cut(Value, Value),
    /// The value is a number whose magnitude is below this limit.
    Below(Value, f64),
    /// This truth value is true.
    Holds(Value),
    /// Not a condition but a fact: these operands are finite if all other conditions of the instruction hold.
    From([Value; 3]),
}

/// The kind of conditions that an instruction has; it decides whether two copies are worth it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speculation {
    /// The instruction has no conditions.
    None,
    /// The instruction has conditions, and an exact result if they hold.
    Exact,
    /// The instruction has conditions, and a result that may be inexact.
    Inexact,
    /// The instruction cannot be executed again, or always calls the hart's function.
    Never,
}

fn speculation(op: &Instruction, fma: bool) -> Speculation {
    use Code::*;
    let nearest = |yes| if yes && matches!(op.rm, 0 | 7) { Speculation::Inexact } else { Speculation::Never };
    match op.row().format {
        Format::Store | Format::FloatStore | Format::StreamLoad | Format::StreamStore | Format::StreamRead => {
            return Speculation::Never;
        }
        Format::Csr | Format::CsrImmediate => return Speculation::Never,
        Format::FloatLoad => return Speculation::None,
        format if !format.float() => return Speculation::None,
        _ => {}
    }
    match op.code {
        FaddS | FaddD | FsubS | FsubD | FmulS | FmulD | FdivS | FdivD | FsqrtS | FsqrtD | FcvtSD => nearest(true),
        FmaddS | FmsubS | FnmsubS | FnmaddS | FmaddD | FmsubD | FnmsubD | FnmaddD => nearest(fma),
        FsgnjS | FsgnjnS | FsgnjxS | FsgnjD | FsgnjnD | FsgnjxD | FmvXW | FmvXD | FmvWX | FmvDX => Speculation::None,
        FminS | FmaxS | FminD | FmaxD | FeqS | FltS | FleS | FeqD | FltD | FleD | FcvtDS => Speculation::Exact,
        FcvtDW | FcvtDWu if !writes_single(op) => Speculation::None,
        FcvtSW | FcvtSWu | FcvtDL | FcvtDLu | FcvtSL | FcvtSLu => Speculation::Exact,
        FcvtWS | FcvtWuS | FcvtLS | FcvtLuS | FcvtWD | FcvtWuD | FcvtLD | FcvtLuD if op.rm == 1 => Speculation::Inexact,
        _ => Speculation::Never,
    }
}

/// Returns the cost of translating an instruction, as a multiple of that of an ordinary one.
pub(crate) fn weight(op: &Instruction) -> u64 {
    if matches!(speculation(op, true), Speculation::Exact | Speculation::Inexact) { SPECULATIVE_WEIGHT } else { 1 }
}

/// Cuts instructions into runs; returns the length of each, and whether it is worth two copies.
pub(super) fn runs(ops: &[Instruction], fma: bool) -> Vec<(usize, bool)> {
    let kinds: Vec<Speculation> = ops.iter().map(|op| speculation(op, fma)).collect();
    let mut runs = Vec::new();
    let mut plain = 0;
    let mut at = 0;
    while at < ops.len() {
        let end = (at..ops.len()).find(|i| kinds[*i] == Speculation::Never).unwrap_or(ops.len());
        let speculative = |i: &usize| matches!(kinds[*i], Speculation::Exact | Speculation::Inexact);
        let (first, last) = ((at..end).find(speculative), (at..end).rev().find(speculative));
        if let (Some(first), Some(last), true) = (first, last, (at..end).filter(speculative).count() >= WORTH) {
            plain += first - at;
            if plain > 0 {
                runs.push((plain, false));
            }
            runs.push((last + 1 - first, true));
            plain = end - (last + 1);
        } else {
            plain += end - at;
        }
        plain += usize::from(end < ops.len());
        at = end + 1;
    }
    if plain > 0 {
        runs.push((plain, false));
    }
    debug_assert_eq!(runs.iter().map(|(count, _)| count).sum::<usize>(), ops.len(), "runs of all instructions");
    runs
}

impl<'e> Emit<'e, '_> {
    /// Adds conditions to those that are tested at the end of a run. Returns false, and adds none, if conditions are
    /// not being collected.
    pub(super) fn collects(&mut self, conditions: &[FloatCondition]) -> bool {
        let Some(collected) = &mut self.conditions else { return false };
        collected.extend_from_slice(conditions);
        true
    }

    fn is_single(&self, value: Value) -> bool {
        self.b.func.dfg.value_type(value) == types::F32
    }

    fn least(&self, value: Value) -> f64 {
        if self.is_single(value) { f64::from(f32::MIN_POSITIVE) } else { f64::MIN_POSITIVE }
    }

    /// Emits the test of a condition; `None` if it is a fact that needs no test.
    fn holds(&mut self, condition: FloatCondition) -> Option<Value> {
        Some(match condition {
            FloatCondition::Finite(value) => self.below(self.is_single(value), value, f64::INFINITY),
            FloatCondition::Normal(value) => {
                let least = self.least(value);
                self.between(self.is_single(value), value, least, f64::INFINITY)
            }
            FloatCondition::Numbers(a, b) => self.b.ins().fcmp(FloatCC::Ordered, a, b),
            FloatCondition::Widened(from, _) => self.b.ins().fcmp(FloatCC::Ordered, from, from),
            FloatCondition::Below(value, high) => self.below(self.is_single(value), value, high),
            FloatCondition::Holds(value) => value,
            FloatCondition::From(..) | FloatCondition::Cut(..) => return None,
        })
    }

    /// Emits the test whether all conditions hold.
    pub(super) fn certain(&mut self, conditions: &[FloatCondition]) -> Value {
        let mut all = None;
        for one in conditions {
            if let Some(holds) = self.holds(*one) {
                all = Some(all.map_or(holds, |all| self.b.ins().band(all, holds)));
            }
        }
        all.unwrap_or_else(|| self.b.ins().iconst(types::I8, 1))
    }

    /// Emits the tests of all collected conditions, with a jump to the second copy if one fails.
    fn settle(&mut self, conditions: &[FloatCondition], slow: Block) {
        // Values that are finite if all other conditions hold, and values whose magnitude must be below a limit.
        let mut finite = HashSet::new();
        let mut bounds = HashMap::new();
        let mut cuts = HashMap::new();
        for one in conditions {
            match one {
                FloatCondition::From(these) => finite.extend(these),
                FloatCondition::Normal(value) => drop(finite.insert(*value)),
                FloatCondition::Cut(value, cut) => drop(cuts.insert(*value, *cut)),
                FloatCondition::Below(value, high) => {
                    finite.insert(*value);
                    bounds.entry(*value).and_modify(|b: &mut f64| *b = b.min(*high)).or_insert(*high);
                }
                _ => {}
            }
        }
        // A sum of finite numbers is finite, or overflows and costs the second copy; a sum of others is not finite.
        let mut sums: [Option<Value>; 2] = [None, None];
        for one in conditions {
            if let FloatCondition::Finite(value) = *one {
                if finite.insert(value) {
                    let sum = &mut sums[usize::from(self.is_single(value))];
                    *sum = Some(sum.map_or(value, |sum| self.b.ins().fadd(sum, value)));
                }
            }
        }
        for sum in sums.into_iter().flatten() {
            let holds = self.below(self.is_single(sum), sum, f64::INFINITY);
            self.or_else(holds, slow);
        }
        let mut asked = HashSet::new();
        for one in conditions {
            let holds = match *one {
                FloatCondition::Normal(value) | FloatCondition::Below(value, _) => {
                    if !asked.insert((value, value)) {
                        continue;
                    }
                    let normal = conditions.iter().any(|d| matches!(d, FloatCondition::Normal(v) if *v == value));
                    let high = bounds.get(&value).copied().unwrap_or(f64::INFINITY);
                    if let Some(cut) = cuts.get(&value) {
                        self.small(*cut, slow, |e| e.exponent(value, normal, high));
                        continue;
                    }
                    self.exponent(value, normal, high)
                }
                FloatCondition::Widened(from, to) => {
                    if finite.contains(&from) || finite.contains(&to) || !asked.insert((from, from)) {
                        continue;
                    }
                    self.b.ins().fcmp(FloatCC::Ordered, from, from)
                }
                FloatCondition::Numbers(a, b) => {
                    let pair = match (finite.contains(&a), finite.contains(&b)) {
                        (true, true) => continue,
                        (true, false) => (b, b),
                        (false, true) => (a, a),
                        _ => (a, b),
                    };
                    if !asked.insert(pair) {
                        continue;
                    }
                    self.b.ins().fcmp(FloatCC::Ordered, pair.0, pair.1)
                }
                FloatCondition::Holds(value) => value,
                FloatCondition::Finite(_) | FloatCondition::From(_) | FloatCondition::Cut(..) => continue,
            };
            self.or_else(holds, slow);
        }
    }

    /// Emits a test whether a number's magnitude is below a power of two (or finite), and at least twice the smallest
    /// normal number if it is to be `normal`. It looks at the exponent, which needs no constants in registers.
    fn exponent(&mut self, value: Value, normal: bool, high: f64) -> Value {
        let (int, fraction, ones) =
            if self.is_single(value) { (types::I32, 23, 0xff) } else { (types::I64, 52, 0x7ff) };
        let end = if high.is_finite() { (high.to_bits() >> 52) as i64 - 1023 + (ones >> 1) } else { ones };
        let bits = self.b.ins().bitcast(int, MemFlagsData::new(), value);
        let bits = self.b.ins().ushr_imm_u(bits, fraction);
        let exponent = self.b.ins().band_imm_u(bits, ones);
        let least = if normal { 2 } else { 0 };
        let exponent = self.b.ins().iadd_imm_s(exponent, -least);
        self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, exponent, end - least)
    }

    /// Emits a test whether `cut`, the integral part of a number, is from 1 to 2^30: the number is then normal, and
    /// fits any integer type. Otherwise the code that `holds` emits tests the number's own conditions, and execution
    /// continues at `slow` if these fail, too.
    fn small(&mut self, cut: Value, slow: Block, holds: impl FnOnce(&mut Self) -> Value) {
        let less = self.b.ins().iadd_imm_s(cut, -1);
        let small = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, less, (1 << 30) - 1);
        let (on, ask) = (self.block(), self.cold_block());
        self.b.ins().brif(small, on, &[], ask, &[]);
        self.b.seal_block(ask);
        self.b.switch_to_block(ask);
        let holds = holds(self);
        self.b.ins().brif(holds, on, &[], slow, &[]);
        self.b.seal_block(on);
        self.b.switch_to_block(on);
    }

    /// Emits a jump to `other` unless a condition holds; the code that follows is executed if it does.
    pub(super) fn or_else(&mut self, holds: Value, other: Block) {
        let on = self.block();
        self.b.ins().brif(holds, on, &[], other, &[]);
        self.b.seal_block(on);
        self.b.switch_to_block(on);
    }

    /// Emits instructions in two copies, with a jump from the first to the second if a condition fails.
    pub(super) fn twice(&mut self, ops: &'e [Instruction]) {
        debug_assert!(self.escape.is_none() && !self.cold, "a second copy within another");
        let (slow, join) = (self.cold_block(), self.block());
        let before = (self.index, self.pc, self.dirty, self.single, self.ranges.len());
        let written = ops.iter().fold(0, |set, op| set | registers::writes(op));
        let mut registers: Vec<Variable> = Vec::new();
        for r in 0..32 {
            if written >> r & 1 != 0 {
                registers.push(self.x[r]);
            }
            if written >> (32 + r) & 1 != 0 {
                registers.extend([self.d[r], self.s[r]]);
            }
        }
        let values: Vec<Value> = registers.iter().map(|r| self.b.use_var(*r)).collect();
        if ops.iter().any(|op| speculation(op, self.target.fma) == Speculation::Inexact) {
            let stands = self.inexact_stands();
            self.or_else(stands, slow);
        }
        (self.conditions, self.escape) = (Some(Vec::new()), Some(slow));
        self.once(ops);
        let conditions = self.conditions.take().unwrap_or_default();
        self.settle(&conditions, slow);
        self.escape = None;
        self.b.ins().jump(join, &[]);
        let after = (self.index, self.pc, self.dirty, self.single);
        self.b.seal_block(slow);
        self.b.switch_to_block(slow);
        for (register, value) in registers.iter().zip(values) {
            self.b.def_var(*register, value);
        }
        (self.index, self.pc, self.dirty, self.single) = (before.0, before.1, before.2, before.3);
        self.ranges.truncate(before.4);
        self.cold = true;
        self.once(ops);
        self.cold = false;
        debug_assert_eq!(after, (self.index, self.pc, self.dirty, self.single));
        self.b.ins().jump(join, &[]);
        self.ranges.truncate(before.4);
        self.b.seal_block(join);
        self.b.switch_to_block(join);
    }
}
