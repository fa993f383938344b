//! Plain vectors: the instructions of V on integers, masks and positions as loops over single elements.
//!
//! Elements are numbers without a width, read from and written to bytes one by one; operations are chosen by their
//! mnemonics. Register groups are assumed to be legal.

use crate::isa::{Format, Instruction};

/// Registers and state of plain vectors.
#[derive(Clone, PartialEq)]
pub(super) struct PlainVectors {
    pub(super) bytes: Vec<u8>,
    pub(super) vlenb: usize,
    pub(super) sew: u32,
    pub(super) lmul: i32,
    pub(super) vl: usize,
    pub(super) vstart: usize,
    pub(super) vxrm: u8,
    pub(super) vxsat: bool,
}

/// Returns the number that the low `bits` bits of `value` mean in two's complement.
pub(super) fn signed(value: i128, bits: u32) -> i128 {
    let low = value & ((1 << bits) - 1);
    if low >> (bits - 1) == 1 { low - (1 << bits) } else { low }
}

/// Shifts a number right by `by` bits, and rounds by the bits that are lost, as section 3.8 of the specification does.
fn rounded(value: i128, by: u32, vxrm: u8) -> i128 {
    let bit = |n: u32| value >> n & 1;
    let below = |n: u32| value & ((1 << n) - 1) != 0;
    let more = match vxrm {
        _ if by == 0 => 0,
        0 => bit(by - 1),
        1 => bit(by - 1) & i128::from(below(by - 1) || bit(by) == 1),
        2 => 0,
        _ => i128::from(bit(by) == 0 && below(by)),
    };
    (value >> by) + more
}

impl std::fmt::Debug for PlainVectors {
    /// Shows the state without the registers, which the seed gives again.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { vlenb, sew, lmul, vl, vstart, vxrm, vxsat, .. } = self;
        write!(f, "VLEN {}, SEW {sew}, LMUL 2^{lmul}, vl {vl}, vstart {vstart}, {vxrm} {vxsat}", 8 * vlenb)
    }
}

impl PlainVectors {
    pub(super) fn vlmax(&self) -> usize {
        let bits = self.vlenb as i64 * 8 / i64::from(self.sew);
        (if self.lmul < 0 { bits >> -self.lmul } else { bits << self.lmul }) as usize
    }

    pub(super) fn get(&self, register: u8, i: usize, bits: u32) -> i128 {
        let each = bits as usize / 8;
        let at = register as usize * self.vlenb + i * each;
        self.bytes[at..at + each].iter().rev().fold(0, |all, byte| all << 8 | i128::from(*byte))
    }

    pub(super) fn set(&mut self, register: u8, i: usize, bits: u32, value: i128) {
        let each = bits as usize / 8;
        let at = register as usize * self.vlenb + i * each;
        for n in 0..each {
            self.bytes[at + n] = (value >> (8 * n)) as u8;
        }
    }

    pub(super) fn bit(&self, register: u8, i: usize) -> bool {
        self.bytes[register as usize * self.vlenb + i / 8] >> (i % 8) & 1 == 1
    }

    fn set_bit(&mut self, register: u8, i: usize, on: bool) {
        let byte = &mut self.bytes[register as usize * self.vlenb + i / 8];
        *byte = *byte & !(1 << (i % 8)) | u8::from(on) << (i % 8);
    }

    /// Brings a number into the range of `bits` bits, and notes if that changed it.
    fn clip(&mut self, value: i128, bits: u32, sign: bool) -> i128 {
        let (low, high) =
            if sign { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
        self.vxsat |= value < low || value > high;
        value.max(low).min(high)
    }

    /// Executes an instruction with the scalar `x`, the value of `x[rs1]` in two's complement; returns the value of
    /// `x[rd]`, if the instruction has one.
    pub(super) fn execute(&mut self, op: &Instruction, x: i64) -> Option<i64> {
        let name = op.row().name;
        let (base, kind) = name.split_once('.').expect("a name with a suffix");
        let scalar = match op.row().format {
            Format::VectorVx | Format::VectorMulX | Format::VectorMoveX => Some(i128::from(x)),
            Format::VectorVi | Format::VectorVu | Format::VectorMoveI => Some(i128::from(op.imm)),
            _ => None,
        };
        let result = match base {
            _ if kind == "mm" => self.masks(op, base),
            "vcpop" | "vfirst" | "vmsbf" | "vmsif" | "vmsof" | "viota" | "vid" => self.masks(op, base),
            "vmv" if kind == "x.s" => Some(signed(self.get(op.rs2, 0, self.sew), self.sew) as i64),
            _ if base.contains("red") => self.reduce(op, base),
            "vmv1r" | "vmv2r" | "vmv4r" | "vmv8r" => self.whole(op, base),
            "vcompress" => self.compress(op),
            _ if base.starts_with("vslide") || base.starts_with("vrgather") => self.moves(op, base, scalar),
            "vmv" if kind == "s.x" => {
                if self.vstart < self.vl {
                    self.set(op.rd, 0, self.sew, scalar.expect("a scalar"));
                }
                None
            }
            _ => self.elements(op, base, kind, scalar),
        };
        self.vstart = 0;
        result
    }

    fn active(&self, op: &Instruction, i: usize) -> bool {
        op.row().mask >> 25 & 1 == 1 || op.rm == 1 || self.bit(0, i)
    }

    /// Computes element by element; sources are read before anything is written.
    fn elements(&mut self, op: &Instruction, base: &str, kind: &str, scalar: Option<i128>) -> Option<i64> {
        let (sew, before) = (self.sew, self.clone());
        let by_mask = kind.ends_with('m') || base == "vmerge" || base == "vadc" || base == "vsbc";
        let narrows = base.starts_with("vns") || base.starts_with("vnc");
        let widens = base.starts_with("vw");
        let to = if widens { 2 * sew } else { sew };
        let first = match kind {
            "vf2" | "vf4" | "vf8" => sew / u32::from(kind.as_bytes()[2] - b'0'),
            _ if narrows || widens && kind.starts_with('w') => 2 * sew,
            _ => sew,
        };
        for i in self.vstart..self.vl {
            if !by_mask && !before.active(op, i) {
                continue;
            }
            let a = before.get(op.rs2, i, first);
            let b = scalar.map_or_else(|| before.get(op.rs1, i, sew), |x| x & ((1 << sew) - 1));
            let d = before.get(op.rd, i, to);
            // Carries come in from `v0`, unless the instruction only makes them.
            let carry = by_mask && before.bit(0, i);
            if base == "vmadc" || base == "vmsbc" {
                let carry = i128::from(carry);
                self.set_bit(op.rd, i, if base == "vmadc" { (a + b + carry) >> sew == 1 } else { a < b + carry });
            } else if base.starts_with("vms") {
                let (sa, sb) = (signed(a, sew), signed(b, sew));
                let order = if base.ends_with('u') { a.cmp(&b) } else { sa.cmp(&sb) };
                let holds = match base.trim_end_matches('u') {
                    "vmseq" => order.is_eq(),
                    "vmsne" => order.is_ne(),
                    "vmslt" => order.is_lt(),
                    "vmsle" => order.is_le(),
                    _ => order.is_gt(),
                };
                self.set_bit(op.rd, i, holds);
            } else {
                let value = if widens {
                    wide(base, [(a, first), (b, sew), (d, to)])
                } else if narrows || first != sew {
                    self.narrow(base, a, b, first)
                } else {
                    self.same(base, [a, b, d], carry)
                };
                self.set(op.rd, i, to, value);
            }
        }
        None
    }

    /// An element of an instruction whose operands have one width.
    fn same(&mut self, base: &str, [a, b, d]: [i128; 3], carry: bool) -> i128 {
        let (sew, vxrm) = (self.sew, self.vxrm);
        let (sa, sb, sd) = (signed(a, sew), signed(b, sew), signed(d, sew));
        let amount = (b % i128::from(sew)) as u32;
        match base {
            "vadd" => a + b,
            "vsub" => a - b,
            "vrsub" => b - a,
            "vadc" => a + b + i128::from(carry),
            "vsbc" => a - b - i128::from(carry),
            "vminu" => a.min(b),
            "vmin" => sa.min(sb),
            "vmaxu" => a.max(b),
            "vmax" => sa.max(sb),
            "vand" => a & b,
            "vor" => a | b,
            "vxor" => a ^ b,
            "vsll" => a << amount,
            "vsrl" => a >> amount,
            "vsra" => sa >> amount,
            "vmv" => b,
            "vmerge" => {
                if carry {
                    b
                } else {
                    a
                }
            }
            "vmul" => sa * sb,
            "vmulh" => (sa * sb) >> sew,
            "vmulhu" => ((a as u128 * b as u128) >> sew) as i128,
            "vmulhsu" => (sa * b) >> sew,
            "vdivu" | "vdiv" if b == 0 => -1,
            "vremu" | "vrem" if b == 0 => a,
            "vdivu" => a / b,
            "vdiv" => sa / sb,
            "vremu" => a % b,
            "vrem" => sa % sb,
            "vmacc" => sd + sa * sb,
            "vnmsac" => sd - sa * sb,
            "vmadd" => sd * sb + sa,
            "vnmsub" => sa - sd * sb,
            "vsaddu" => self.clip(a + b, sew, false),
            "vsadd" => self.clip(sa + sb, sew, true),
            "vssubu" => self.clip(a - b, sew, false),
            "vssub" => self.clip(sa - sb, sew, true),
            "vaaddu" => rounded(a + b, 1, vxrm),
            "vaadd" => rounded(sa + sb, 1, vxrm),
            "vasubu" => rounded(a - b, 1, vxrm),
            "vasub" => rounded(sa - sb, 1, vxrm),
            "vsmul" => self.clip(rounded(sa * sb, sew - 1, vxrm), sew, true),
            "vssrl" => rounded(a, amount, vxrm),
            "vssra" => rounded(sa, amount, vxrm),
            other => panic!("{other} is none of the plain operations"),
        }
    }

    /// An element of an instruction whose source has `from` bits, and whose result has the width of an element.
    fn narrow(&mut self, base: &str, a: i128, b: i128, from: u32) -> i128 {
        let (sa, by) = (signed(a, from), (b % i128::from(from)) as u32);
        match base {
            "vzext" => a,
            "vsext" => sa,
            "vnsrl" => a >> by,
            "vnsra" => sa >> by,
            "vnclipu" => self.clip(rounded(a, by, self.vxrm), self.sew, false),
            _ => self.clip(rounded(sa, by, self.vxrm), self.sew, true),
        }
    }

    fn masks(&mut self, op: &Instruction, base: &str) -> Option<i64> {
        let before = self.clone();
        let on: Vec<usize> = (0..self.vl).filter(|i| before.active(op, *i) && before.bit(op.rs2, *i)).collect();
        match base {
            "vcpop" => return Some(on.len() as i64),
            "vfirst" => return Some(on.first().map_or(-1, |i| *i as i64)),
            _ => {}
        }
        for i in self.vstart..self.vl {
            let (a, b) = (before.bit(op.rs2, i), before.bit(op.rs1, i));
            if op.row().name.ends_with(".mm") {
                let plain = [("and", a && b), ("or", a || b), ("xor", a != b), ("andn", a && !b), ("orn", a || !b)];
                let negated = [("nand", !(a && b)), ("nor", !(a || b)), ("xnor", a == b)];
                let all: Vec<_> = plain.into_iter().chain(negated).collect();
                let (_, holds) = all.iter().find(|(name, _)| base[2..] == **name).expect("a logic");
                self.set_bit(op.rd, i, *holds);
            } else if before.active(op, i) {
                // `None` for positions before every set bit.
                let last = on.iter().take_while(|at| **at <= i).count();
                match base {
                    "vid" => self.set(op.rd, i, self.sew, i as i128),
                    "viota" => self.set(op.rd, i, self.sew, on.iter().filter(|at| **at < i).count() as i128),
                    "vmsbf" => self.set_bit(op.rd, i, last == 0),
                    "vmsif" => self.set_bit(op.rd, i, last == 0 || on[0] == i),
                    _ => self.set_bit(op.rd, i, last == 1 && on[0] == i),
                }
            }
        }
        None
    }

    fn reduce(&mut self, op: &Instruction, base: &str) -> Option<i64> {
        let sew = self.sew;
        let to = if base.starts_with("vw") { 2 * sew } else { sew };
        let sign = !base.ends_with('u');
        let meant = |value: i128, bits: u32| if sign { signed(value, bits) } else { value };
        let values = (0..self.vl).filter(|i| self.active(op, *i)).map(|i| meant(self.get(op.rs2, i, sew), sew));
        let first = meant(self.get(op.rs1, 0, to), to);
        let all = values.fold(first, |all, value| match base.trim_start_matches("vw").trim_start_matches('v') {
            "redsum" | "redsumu" => all + value,
            "redand" => all & value,
            "redor" => all | value,
            "redxor" => all ^ value,
            "redmin" | "redminu" => all.min(value),
            _ => all.max(value),
        });
        if self.vl > 0 {
            self.set(op.rd, 0, to, all);
        }
        None
    }

    fn whole(&mut self, op: &Instruction, base: &str) -> Option<i64> {
        let count = usize::from(base.as_bytes()[3] - b'0') * self.vlenb;
        let [to, from] = [op.rd, op.rs2].map(|register| register as usize * self.vlenb);
        for at in self.vstart * self.sew as usize / 8..count {
            self.bytes[to + at] = self.bytes[from + at];
        }
        None
    }

    fn compress(&mut self, op: &Instruction) -> Option<i64> {
        let kept: Vec<usize> = (0..self.vl).filter(|i| self.bit(op.rs1, *i)).collect();
        for (to, from) in kept.into_iter().enumerate() {
            let value = self.get(op.rs2, from, self.sew);
            self.set(op.rd, to, self.sew, value);
        }
        None
    }

    fn moves(&mut self, op: &Instruction, base: &str, scalar: Option<i128>) -> Option<i64> {
        let (sew, before, most) = (self.sew, self.clone(), self.vlmax() as i128);
        // Negative numbers of an integer register are large unsigned ones.
        let by = scalar.map(|x| if x < 0 { i128::MAX / 4 } else { x });
        for i in self.vstart..self.vl {
            if !before.active(op, i) {
                continue;
            }
            let at = i as i128;
            let from = match base {
                "vslideup" if at < by? => continue,
                "vslideup" => at - by?,
                "vslidedown" => at + by?,
                "vslide1up" => at - 1,
                "vslide1down" if i + 1 == self.vl => -1,
                "vslide1down" => at + 1,
                "vrgatherei16" => before.get(op.rs1, i, 16),
                _ => by.unwrap_or_else(|| before.get(op.rs1, i, sew)),
            };
            let value = match from {
                -1 => scalar?,
                _ if from < most => before.get(op.rs2, from as usize, sew),
                _ => 0,
            };
            self.set(op.rd, i, sew, value);
        }
        None
    }
}

/// An element of an instruction whose result has twice the width; operands come with their widths.
fn wide(base: &str, [(a, of_a), (b, of_b), (d, of_d)]: [(i128, u32); 3]) -> i128 {
    let (sa, sb, sd) = (signed(a, of_a), signed(b, of_b), signed(d, of_d));
    match base {
        "vwaddu" => a + b,
        "vwadd" => sa + sb,
        "vwsubu" => a - b,
        "vwsub" => sa - sb,
        "vwmulu" => a * b,
        "vwmul" => sa * sb,
        "vwmulsu" => sa * b,
        "vwmaccu" => d + a * b,
        "vwmacc" => sd + sa * sb,
        "vwmaccsu" => sd + a * sb,
        "vwmaccus" => sd + sa * b,
        other => panic!("{other} is none of the widening operations"),
    }
}
