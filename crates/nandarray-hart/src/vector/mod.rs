//! The vector unit of a hart: V 1.0 with registers of 32 to 1024 bits.
//!
//! [`VectorUnit`] holds the registers, the vector type and length, and operations that all instructions share: on
//! elements, masks, and the rules for register groups. `integer`, `fixed`, `widen`, `float`, `reduce`, `mask` and
//! `permute` execute one group of instructions each, `access` loads and stores. Elements after the vector length and
//! masked-off elements keep their values, whatever the vector type says ("agnostic" allows that). Instructions begin at
//! the element `vstart`; those for which the specification permits it are illegal if `vstart` is not 0. Nothing here
//! depends on integer registers, blocks or privilege; the hart gives the width at which addresses wrap.

mod access;
mod fixed;
mod float;
mod integer;
mod lanes;
mod mask;
mod permute;
mod reduce;
mod widen;
mod work;

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
pub(crate) use work::{access_work, work};

/// The most bits of a vector register.
pub const VLEN_MAX: u32 = 1024;
const REGISTER_BYTES_MAX: usize = VLEN_MAX as usize / 8;

/// The reason why a vector instruction was not executed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VectorTrap {
    /// The vector type is invalid, or does not allow a register group or an operand.
    Illegal,
    /// An access to memory failed; `vstart` is the number of its element.
    Fault(Fault, AccessKind),
}

pub(crate) type VectorResult = Result<(), VectorTrap>;

/// The operands of one vector instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VectorOp {
    pub(crate) code: Code,
    pub(crate) vd: u8,
    pub(crate) vs1: u8,
    pub(crate) vs2: u8,
    /// Whether `v0` masks the instruction.
    pub(crate) masked: bool,
    /// Number of fields of a segment, less one.
    pub(crate) more_fields: u8,
    /// Whether `scalar` replaces `vs1`.
    pub(crate) is_scalar: bool,
    /// The sign-extended value of an integer register or immediate, or the bits of a floating-point register.
    pub(crate) scalar: u64,
}

/// The registers and the state of a hart's vector unit.
#[derive(Clone, Debug)]
pub(crate) struct VectorUnit {
    /// The registers, one after the other, and room for an access of 16 bytes that begins in the last one.
    registers: [u8; 32 * REGISTER_BYTES_MAX + 16],
    /// Bytes of each register.
    pub(crate) vlenb: usize,
    pub(crate) vl: usize,
    pub(crate) vstart: usize,
    /// The low 8 bits of `vtype`; meaningless while `sew` is 0.
    vtype: u8,
    /// Bits of each element; 0 while `vtype` is invalid.
    sew: u32,
    /// Base-two logarithm of the number of registers in a group; negative for a part of one.
    lmul: i32,
    vlmax: usize,
    pub(crate) vxrm: u8,
    pub(crate) vxsat: bool,
    /// The most bits of an element.
    elen: u32,
    single: bool,
    double: bool,
    full: bool,
    /// Rounding mode for the floating-point instruction that is being executed; `fflags` collects its flags.
    pub(crate) frm: u8,
    pub(crate) fflags: u8,
    /// The result of an instruction that writes an integer or floating-point register.
    pub(crate) result: u64,
}

/// Executes `$body` with `$unsigned` and `$signed` as the integer types of the current element width; illegal without
/// one.
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

/// Whether two ranges of registers have a register in common.
fn overlap(a: u8, a_count: u8, b: u8, b_count: u8) -> bool {
    a < b + b_count && b < a + a_count
}

/// Returns the number of registers that a group touches, at least one.
fn group(lmul: i32) -> u8 {
    1 << lmul.max(0)
}

fn legal(condition: bool) -> VectorResult {
    if condition { Ok(()) } else { Err(VectorTrap::Illegal) }
}

/// Returns the low `bits` bits of a value, sign-extended.
fn signed(value: u64, bits: u32) -> i64 {
    debug_assert!((1..=64).contains(&bits), "an integer of {bits} bits");
    (value as i64) << (64 - bits) >> (64 - bits)
}

/// Returns the low `bits` bits of a value.
fn low(value: u64, bits: u32) -> u64 {
    debug_assert!(bits <= 64, "an integer of {bits} bits");
    if bits == 64 { value } else { value & ((1 << bits) - 1) }
}

impl VectorUnit {
    /// Creates the unit of a hart with `extensions`; `None` if they include no vectors.
    ///
    /// # Panics
    /// If the length of a register is not a power of two up to 1024 bits, or less than the widest element.
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
            registers: [0; 32 * REGISTER_BYTES_MAX + 16],
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

    /// Returns the value of the register `vtype` as a program reads it, for integer registers of `bits` bits.
    pub(crate) fn vtype(&self, bits: u32) -> u64 {
        if self.sew == 0 { 1 << (bits - 1) } else { u64::from(self.vtype) }
    }

    /// Sets the vector type, and the vector length to at most `wanted`; without `wanted` the length stays, as far as it
    /// is allowed.
    pub(crate) fn configure(&mut self, vtype: u64, wanted: Option<u64>) {
        let (sew, lmul) = (8 << (vtype >> 3 & 7), ((vtype & 7) as i32) << 29 >> 29);
        // If a group is only a part of a register, an element must fit in that part.
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
        debug_assert!(self.vlmax * sew as usize <= 64 * self.vlenb, "{} elements of {sew} bits in a group", self.vlmax);
    }

    /// Returns the bytes of a register.
    pub(crate) fn register(&self, number: usize) -> &[u8] {
        debug_assert!(number < 32, "vector register {number}");
        &self.registers[number * self.vlenb..][..self.vlenb]
    }

    /// Returns the bytes of a register, for writing.
    pub(crate) fn register_mut(&mut self, number: usize) -> &mut [u8] {
        debug_assert!(number < 32, "vector register {number}");
        &mut self.registers[number * self.vlenb..][..self.vlenb]
    }

    /// Returns the number of bits of each element in the register group that begins at `register`; `None` if no group
    /// of the current type may begin there.
    pub(crate) fn group_at(&self, register: u8) -> Option<u32> {
        (self.sew != 0 && Self::aligned(register, self.lmul)).then_some(self.sew)
    }

    /// Returns the elements of the group that begins at `register`, sign-extended; `None` if no group may begin there.
    pub(crate) fn elements(&self, register: u8) -> Option<Vec<i64>> {
        let sew = self.group_at(register)?;
        Some((0..self.vl).map(|i| self.get_signed(register, i, sew)).collect())
    }

    /// Sets the first elements of the group that begins at `register`, and the vector length to their number.
    pub(crate) fn put_elements(&mut self, register: u8, values: &[i64]) {
        debug_assert!(values.len() <= self.vl, "{} elements for a vector of {}", values.len(), self.vl);
        for (i, value) in values.iter().enumerate() {
            self.set(register, i, self.sew, *value as u64);
        }
        (self.vl, self.vstart) = (values.len(), 0);
    }

    /// Whether the mask `v0` has bit `i` set; false for bits that the register does not have.
    pub(crate) fn mask_bit(&self, i: usize) -> bool {
        i < 8 * self.vlenb && self.bit(0, i)
    }

    /// Sets a register to a mask; the bits after it become zero.
    pub(crate) fn put_mask(&mut self, register: u8, bits: &[bool]) {
        self.register_mut(register as usize).fill(0);
        bits.iter().enumerate().for_each(|(i, bit)| self.set_bit(register, i, *bit));
    }

    /// Returns element `i` of the group that begins at `register`, whose elements have `sew` bits, zero-extended.
    #[inline(always)]
    fn get(&self, register: u8, i: usize, sew: u32) -> u64 {
        let bytes = sew as usize / 8;
        debug_assert!(register as usize * self.vlenb + (i + 1) * bytes <= 32 * self.vlenb, "v{register}, element {i}");
        let from = &self.registers[register as usize * self.vlenb + i * bytes..];
        // Loads of known sizes; a copy of `bytes` bytes is a call.
        match from {
            [byte, ..] if sew == 8 => u64::from(*byte),
            [a, b, ..] if sew == 16 => u64::from(u16::from_le_bytes([*a, *b])),
            [a, b, c, d, ..] if sew == 32 => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
            [a, b, c, d, e, f, g, h, ..] if sew == 64 => u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
            _ => unreachable!("an element of {sew} bits within the registers"),
        }
    }

    fn get_signed(&self, register: u8, i: usize, sew: u32) -> i64 {
        signed(self.get(register, i, sew), sew)
    }

    #[inline(always)]
    fn set(&mut self, register: u8, i: usize, sew: u32, value: u64) {
        let bytes = sew as usize / 8;
        debug_assert!(register as usize * self.vlenb + (i + 1) * bytes <= 32 * self.vlenb, "v{register}, element {i}");
        let to = &mut self.registers[register as usize * self.vlenb + i * bytes..];
        let value = value.to_le_bytes();
        match sew {
            8 => to[0] = value[0],
            16 => to[..2].copy_from_slice(&value[..2]),
            32 => to[..4].copy_from_slice(&value[..4]),
            64 => to[..8].copy_from_slice(&value),
            _ => unreachable!("an element of {sew} bits"),
        }
    }

    fn bit(&self, register: u8, i: usize) -> bool {
        debug_assert!(i < 8 * self.vlenb, "bit {i} of a mask of {} bytes", self.vlenb);
        self.registers[register as usize * self.vlenb + i / 8] >> (i % 8) & 1 != 0
    }

    fn set_bit(&mut self, register: u8, i: usize, value: bool) {
        debug_assert!(i < 8 * self.vlenb, "bit {i} of a mask of {} bytes", self.vlenb);
        let byte = &mut self.registers[register as usize * self.vlenb + i / 8];
        *byte = *byte & !(1 << (i % 8)) | u8::from(value) << (i % 8);
    }

    fn active(&self, o: &VectorOp, i: usize) -> bool {
        !o.masked || self.bit(0, i)
    }

    /// Returns element `i` of the operand `vs1`, or the scalar that replaces it, zero-extended from the current element
    /// width.
    fn first(&self, o: &VectorOp, i: usize) -> u64 {
        if o.is_scalar { low(o.scalar, self.sew) } else { self.get(o.vs1, i, self.sew) }
    }

    /// Calls `body` for each active element, from `vstart` on.
    fn each(&mut self, o: &VectorOp, mut body: impl FnMut(&mut Self, usize)) -> VectorResult {
        debug_assert!(self.vl <= self.vlmax, "{} elements of at most {}", self.vl, self.vlmax);
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

    /// Whether the instruction leaves the mask that it uses unchanged.
    fn unmasks(o: &VectorOp) -> bool {
        !(o.masked && o.vd == 0)
    }

    fn sources_aligned(&self, o: &VectorOp) -> bool {
        Self::aligned(o.vs2, self.lmul) && (o.is_scalar || Self::aligned(o.vs1, self.lmul))
    }

    /// Checks the register groups of an instruction whose sources and destination have one width.
    #[inline(always)]
    fn check_same(&self, o: &VectorOp) -> VectorResult {
        let group = group(self.lmul) - 1;
        let all = o.vd | o.vs2 | if o.is_scalar { 0 } else { o.vs1 };
        legal(self.sew != 0 && all & group == 0 && Self::unmasks(o))
    }

    /// Checks the register groups of an instruction whose destination is a mask.
    fn check_mask_out(&self, o: &VectorOp) -> VectorResult {
        let count = group(self.lmul);
        let apart = |source: u8| source == o.vd || !overlap(o.vd, 1, source, count);
        legal(self.sew != 0 && self.sources_aligned(o) && apart(o.vs2) && (o.is_scalar || apart(o.vs1)))
    }

    /// Whether a destination group of `2^wide` registers at `vd` and a source group of `2^narrow` with smaller elements
    /// are allowed together: they must not overlap, or the source must be the last part of the destination.
    fn widens_apart(vd: u8, wide: i32, source: u8, narrow: i32) -> bool {
        let (large, small) = (group(wide), group(narrow));
        !overlap(vd, large, source, small) || narrow >= 0 && source == vd + large - small
    }

    /// Checks the register groups of an instruction whose destination, and also `vs2` if `wide_source`, has elements of
    /// twice the width.
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

    /// Checks the register groups of an instruction whose source `vs2` has elements of twice the width.
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
