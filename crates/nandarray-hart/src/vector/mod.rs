//! The vector unit of a hart: V 1.0 with registers of 32 to 1024 bits.
//!
//! [`VectorUnit`] holds the registers, the vector type and length, and what is common to all instructions: elements,
//! masks, and the rules for register groups. `integer`, `fixed`, `widen`, `float`, `reduce`, `mask` and `permute`
//! execute one group of instructions each, `access` loads and stores. Elements behind the vector length and masked ones
//! keep their values, whatever the vector type says ("agnostic" allows that). Instructions of all groups begin at
//! `vstart`, but for those that the specification allows to refuse one that is not 0. Nothing here knows integer
//! registers, blocks or privilege; addresses wrap as the hart says.

mod access;
mod fixed;
mod float;
mod integer;
mod lanes;
mod mask;
mod permute;
mod reduce;
mod widen;

use crate::access::{AccessKind, Fault};
use crate::isa::{Code, Extension, Extensions};

pub(crate) use access::{Addresses, access};
pub(crate) use fixed::fixed;
pub(crate) use float::float;
pub(crate) use integer::integer;
pub(crate) use mask::mask;
pub(crate) use permute::permute;
pub(crate) use reduce::reduce;
pub(crate) use widen::widen;

/// The most bits of a vector register.
pub const VLEN_MAX: u32 = 1024;
const REGISTER_BYTES_MAX: usize = VLEN_MAX as usize / 8;

/// Why an instruction was not executed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VectorTrap {
    /// The vector type, a register group or an operand that it does not allow.
    Illegal,
    /// An access; `vstart` is the element's number.
    Fault(Fault, AccessKind),
}

pub(crate) type VectorResult = Result<(), VectorTrap>;

/// The operands of one instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VectorOp {
    pub(crate) code: Code,
    pub(crate) vd: u8,
    pub(crate) vs1: u8,
    pub(crate) vs2: u8,
    /// Whether `v0` masks it.
    pub(crate) masked: bool,
    /// One less than the fields of a segment.
    pub(crate) more_fields: u8,
    /// Whether `scalar` stands in place of `vs1`.
    pub(crate) is_scalar: bool,
    /// An integer register's value, sign-extended, an immediate, or a floating-point register's bits.
    pub(crate) scalar: u64,
}

/// The registers and the state of a hart's vector unit.
#[derive(Clone, Debug)]
pub(crate) struct VectorUnit {
    registers: [u8; 32 * REGISTER_BYTES_MAX],
    /// Bytes of a register.
    pub(crate) vlenb: usize,
    pub(crate) vl: usize,
    pub(crate) vstart: usize,
    /// The low 8 bits of `vtype`; `sew` is 0 if it is illegal.
    vtype: u8,
    /// Bits of an element; 0 where `vtype` is illegal.
    sew: u32,
    /// Logarithm of the group's registers.
    lmul: i32,
    vlmax: usize,
    pub(crate) vxrm: u8,
    pub(crate) vxsat: bool,
    /// The most bits of an element.
    elen: u32,
    single: bool,
    double: bool,
    full: bool,
    /// The rounding mode and the flags of floating-point instructions while one is executed.
    pub(crate) frm: u8,
    pub(crate) fflags: u8,
    /// The result that goes to an integer or floating-point register.
    pub(crate) result: u64,
}

/// Run `$body` with `$unsigned` and `$signed` as the integers of the current element width.
macro_rules! by_sew {
    (@of $unsigned:ident = $u:ty, $signed:ident = $s:ty => $body:expr) => {{
        #[allow(dead_code, reason = "not every operation needs it")]
        type $signed = $s;
        type $unsigned = $u;
        $body
    }};
    ($unit:expr, $unsigned:ident $signed:ident => $body:expr) => {
        match $unit.sew {
            8 => by_sew!(@of $unsigned = u8, $signed = i8 => $body),
            16 => by_sew!(@of $unsigned = u16, $signed = i16 => $body),
            32 => by_sew!(@of $unsigned = u32, $signed = i32 => $body),
            64 => by_sew!(@of $unsigned = u64, $signed = i64 => $body),
            _ => Err(crate::vector::VectorTrap::Illegal),
        }
    };
}
use by_sew;

/// Whether two ranges of registers have one in common.
fn overlap(a: u8, a_count: u8, b: u8, b_count: u8) -> bool {
    a < b + b_count && b < a + a_count
}

/// Registers of a group.
fn group(lmul: i32) -> u8 {
    1 << lmul.max(0)
}

fn legal(condition: bool) -> VectorResult {
    if condition { Ok(()) } else { Err(VectorTrap::Illegal) }
}

/// The low `bits` of a value, sign-extended.
fn signed(value: u64, bits: u32) -> i64 {
    (value as i64) << (64 - bits) >> (64 - bits)
}

/// The low `bits` of a value.
fn low(value: u64, bits: u32) -> u64 {
    if bits == 64 { value } else { value & ((1 << bits) - 1) }
}

impl VectorUnit {
    /// A unit for harts with `extensions`; none if they have no vectors.
    ///
    /// # Panics
    /// If the length of its registers is not a power of two from 32 to 1024, or less than an element.
    pub(crate) fn new(extensions: Extensions) -> Option<Box<Self>> {
        let has = |extension| extensions.has(extension);
        if !has(Extension::Zve32x) {
            return None;
        }
        let vlen = extensions.vlen();
        let elen = if has(Extension::Zve64x) { 64 } else { 32 };
        let fits = vlen.is_power_of_two() && (elen..=VLEN_MAX).contains(&vlen);
        assert!(fits, "a vector register of {vlen} bits is no power of two from {elen} to {VLEN_MAX}");
        Some(Box::new(Self {
            registers: [0; 32 * REGISTER_BYTES_MAX],
            vlenb: vlen as usize / 8,
            vl: 0,
            vstart: 0,
            vtype: 0,
            sew: 0,
            lmul: 0,
            vlmax: 0,
            vxrm: 0,
            vxsat: false,
            elen,
            single: has(Extension::Zve32f),
            double: has(Extension::Zve64d),
            full: has(Extension::V),
            frm: 0,
            fflags: 0,
            result: 0,
        }))
    }

    /// `vtype` as it is read, for registers of `bits` bits.
    pub(crate) fn vtype(&self, bits: u32) -> u64 {
        if self.sew == 0 { 1 << (bits - 1) } else { u64::from(self.vtype) }
    }

    /// Set the vector type, and the length: at most `wanted`, or as it was if none is given.
    pub(crate) fn configure(&mut self, vtype: u64, wanted: Option<u64>) {
        let (sew, lmul) = (8 << (vtype >> 3 & 7), ((vtype & 7) as i32) << 29 >> 29);
        // The element has to fit into its part of a register, if the group is less than one.
        let widest = if lmul < 0 { self.elen >> -lmul } else { self.elen };
        self.vstart = 0;
        if vtype >> 8 != 0 || lmul == -4 || sew > widest {
            (self.sew, self.vl, self.vlmax, self.vtype) = (0, 0, 0, 0);
            return;
        }
        (self.sew, self.lmul, self.vtype) = (sew, lmul, vtype as u8);
        let in_one = self.vlenb * 8 / sew as usize;
        self.vlmax = if lmul < 0 { in_one >> -lmul } else { in_one << lmul };
        self.vl = wanted.unwrap_or(self.vl as u64).min(self.vlmax as u64) as usize;
    }

    /// A register's bytes.
    pub(crate) fn register(&self, number: usize) -> &[u8] {
        &self.registers[number * self.vlenb..][..self.vlenb]
    }

    /// A register's bytes, to be changed.
    pub(crate) fn register_mut(&mut self, number: usize) -> &mut [u8] {
        &mut self.registers[number * self.vlenb..][..self.vlenb]
    }

    /// The bits of an element, if a group of the current type may begin at a register.
    pub(crate) fn group_at(&self, register: u8) -> Option<u32> {
        (self.sew != 0 && Self::aligned(register, self.lmul)).then_some(self.sew)
    }

    /// The elements of the group at a register, sign-extended; none if there is no such group.
    pub(crate) fn elements(&self, register: u8) -> Option<Vec<i64>> {
        let sew = self.group_at(register)?;
        Some((0..self.vl).map(|i| self.get_signed(register, i, sew)).collect())
    }

    /// Set the first elements of the group at a register, and the length to their number.
    pub(crate) fn put_elements(&mut self, register: u8, values: &[i64]) {
        for (i, value) in values.iter().enumerate() {
            self.set(register, i, self.sew, *value as u64);
        }
        (self.vl, self.vstart) = (values.len(), 0);
    }

    /// Whether element `i` is one that `v0` lets through; none behind a register's bits.
    pub(crate) fn mask_bit(&self, i: usize) -> bool {
        i < 8 * self.vlenb && self.bit(0, i)
    }

    /// Set a register to a mask, zero behind it.
    pub(crate) fn put_mask(&mut self, register: u8, bits: &[bool]) {
        self.register_mut(register as usize).fill(0);
        bits.iter().enumerate().for_each(|(i, bit)| self.set_bit(register, i, *bit));
    }

    /// Element `i` of `sew` bits of the group that begins at a register, zero-extended.
    fn get(&self, register: u8, i: usize, sew: u32) -> u64 {
        let bytes = sew as usize / 8;
        let at = register as usize * self.vlenb + i * bytes;
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(&self.registers[at..at + bytes]);
        u64::from_le_bytes(value)
    }

    fn get_signed(&self, register: u8, i: usize, sew: u32) -> i64 {
        signed(self.get(register, i, sew), sew)
    }

    fn set(&mut self, register: u8, i: usize, sew: u32, value: u64) {
        let bytes = sew as usize / 8;
        let at = register as usize * self.vlenb + i * bytes;
        self.registers[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
    }

    fn bit(&self, register: u8, i: usize) -> bool {
        self.registers[register as usize * self.vlenb + i / 8] >> (i % 8) & 1 != 0
    }

    fn set_bit(&mut self, register: u8, i: usize, value: bool) {
        let byte = &mut self.registers[register as usize * self.vlenb + i / 8];
        *byte = *byte & !(1 << (i % 8)) | u8::from(value) << (i % 8);
    }

    fn active(&self, o: &VectorOp, i: usize) -> bool {
        !o.masked || self.bit(0, i)
    }

    /// The operand `vs1` of an element, or what stands in its place, in `sew` bits.
    fn first(&self, o: &VectorOp, i: usize) -> u64 {
        if o.is_scalar { low(o.scalar, self.sew) } else { self.get(o.vs1, i, self.sew) }
    }

    /// Run `body` for each active element from `vstart` on.
    fn each(&mut self, o: &VectorOp, mut body: impl FnMut(&mut Self, usize)) -> VectorResult {
        for i in self.vstart..self.vl {
            if self.active(o, i) {
                body(self, i);
            }
        }
        self.vstart = 0;
        Ok(())
    }

    fn ready(&self) -> VectorResult {
        legal(self.sew != 0)
    }

    /// Whether a group of `2^lmul` registers may begin at `register`.
    fn aligned(register: u8, lmul: i32) -> bool {
        register & (group(lmul) - 1) == 0
    }

    /// The mask is not overwritten by what it masks.
    fn unmasks(o: &VectorOp) -> bool {
        !(o.masked && o.vd == 0)
    }

    fn sources_aligned(&self, o: &VectorOp) -> bool {
        Self::aligned(o.vs2, self.lmul) && (o.is_scalar || Self::aligned(o.vs1, self.lmul))
    }

    /// Rules for sources and a destination of one width.
    fn check_same(&self, o: &VectorOp) -> VectorResult {
        let group = group(self.lmul) - 1;
        let all = o.vd | o.vs2 | if o.is_scalar { 0 } else { o.vs1 };
        legal(self.sew != 0 && all & group == 0 && Self::unmasks(o))
    }

    /// Rules for a destination that is a mask.
    fn check_mask_out(&self, o: &VectorOp) -> VectorResult {
        let count = group(self.lmul);
        let apart = |source: u8| source == o.vd || !overlap(o.vd, 1, source, count);
        legal(self.sew != 0 && self.sources_aligned(o) && apart(o.vs2) && (o.is_scalar || apart(o.vs1)))
    }

    /// Whether a group of `2^wide` registers at `vd` and a source of `2^narrow` with smaller elements may be together:
    /// apart, or the source is the last part of the destination.
    fn widens_apart(vd: u8, wide: i32, source: u8, narrow: i32) -> bool {
        let (large, small) = (group(wide), group(narrow));
        !overlap(vd, large, source, small) || narrow >= 0 && source == vd + large - small
    }

    /// Rules for a destination of twice the width; `vs2` has that, too, if `wide_source`.
    fn check_widening(&self, o: &VectorOp, wide_source: bool) -> VectorResult {
        let wide = self.lmul + 1;
        legal(self.sew != 0 && self.lmul < 3 && self.sew * 2 <= self.elen && Self::unmasks(o))?;
        let second = if wide_source {
            Self::aligned(o.vs2, wide)
        } else {
            Self::aligned(o.vs2, self.lmul) && Self::widens_apart(o.vd, wide, o.vs2, self.lmul)
        };
        let first = o.is_scalar || Self::aligned(o.vs1, self.lmul) && Self::widens_apart(o.vd, wide, o.vs1, self.lmul);
        legal(Self::aligned(o.vd, wide) && first && second)
    }

    /// Rules for a source `vs2` of twice the width.
    fn check_narrowing(&self, o: &VectorOp) -> VectorResult {
        let wide = self.lmul + 1;
        legal(self.sew != 0 && self.lmul < 3 && self.sew * 2 <= self.elen && Self::unmasks(o))?;
        let apart = o.vd == o.vs2 || !overlap(o.vd, group(self.lmul), o.vs2, group(wide));
        let first = o.is_scalar || Self::aligned(o.vs1, self.lmul);
        legal(Self::aligned(o.vd, self.lmul) && Self::aligned(o.vs2, wide) && apart && first)
    }
}

#[cfg(test)]
mod tests;
