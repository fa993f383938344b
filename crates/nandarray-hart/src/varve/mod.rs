//! VarVE: vectors whose elements have a width each, and streams of packed values (dissertation, chapter 8).
//!
//! [`VarveUnit`] holds the state of the instructions of Table 8.1: stream descriptors, a variable-width vector for each
//! vector register with the widths in its metadata register, and `NumE`. `stream` reads and writes packed bits,
//! `operation` computes. Fixed-width vectors and masks are those of the vector unit. A vector is kept as a list of
//! values. Its bits count where the specification counts them: they never exceed a register, and an operation yields as
//! many elements as fit in the datapath, each rounded up to the alignment of the unit. Nothing here models time.

mod operation;
mod stream;
mod work;

use crate::access::AccessKind;
use crate::access::Fault;
use crate::memory::RegionTable;
use crate::trap::Cause;

pub(crate) use operation::{VarveOp, operate, operation_work};
pub(crate) use stream::{Describe, describe, pack, unpack, vunpack};
pub(crate) use work::{description_work, pack_work, unpack_work, vunpack_work};

/// Number of streams of a VarVE unit.
pub(crate) const VARVE_STREAMS: usize = 32;
/// Least bits of a vector register per element: the metadata register has room for that many elements, so a vector has
/// at most a quarter as many elements as a register has bits.
const ELEMENT_BITS_LEAST: usize = 4;

/// The reason why a VarVE instruction was not executed; its destination and stream are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VarveTrap {
    /// An operand is not allowed, or a stream was not described before.
    Illegal,
    /// An access to memory failed.
    Fault(Fault, AccessKind),
    /// A stream cannot continue; the cause, and the stream's number.
    Stream(Cause, u64),
}

pub(crate) type VarveResult<T = ()> = Result<T, VarveTrap>;

/// Returns the number of bits of a value in two's complement; 0 for the value zero.
pub(crate) fn width(value: i64) -> u32 {
    if value == 0 { 0 } else { 65 - if value < 0 { (!value).leading_zeros() } else { value.leading_zeros() } }
}

/// Returns the low `bits` bits of a value, sign-extended; the whole value if `bits` is 0 or above 64.
pub(crate) fn wrap(value: i64, bits: u32) -> i64 {
    if bits == 0 || bits > 64 { value } else { value << (64 - bits) >> (64 - bits) }
}

/// A vector of values with a width each, and the most bits that each may grow to.
#[derive(Clone, Debug)]
pub(crate) struct VariableVector {
    pub(crate) values: Vec<i64>,
    /// The most bits of an element: the argument `mb` of the `vunpack` that read the values.
    pub(crate) most_bits: u32,
}

impl Default for VariableVector {
    fn default() -> Self {
        Self { values: Vec::new(), most_bits: 64 }
    }
}

/// The state of a hart's VarVE unit.
#[derive(Clone, Debug)]
pub(crate) struct VarveUnit {
    streams: Vec<Option<stream::PackedStream>>,
    vectors: Vec<VariableVector>,
    /// The fewest elements that an instruction has yielded since `NumE` was last read.
    pub(crate) num_e: u64,
    /// Bits of a vector register, and of the datapath.
    vlen: u32,
    /// Bits to which the width of each element is rounded up in the datapath (w in the dissertation).
    align: u32,
}

impl VarveUnit {
    /// Creates a unit with registers of `vlen` bits that aligns elements to `align` bits.
    ///
    /// # Panics
    /// If the alignment is not a power of two up to 64.
    pub(crate) fn new(vlen: u32, align: u32) -> Box<Self> {
        assert!(align.is_power_of_two() && align <= 64, "elements are not aligned to {align} bits");
        Box::new(Self {
            streams: vec![None; VARVE_STREAMS],
            vectors: vec![VariableVector::default(); 32],
            num_e: u64::MAX,
            vlen,
            align,
        })
    }

    /// Returns the largest number of elements of a vector.
    pub(crate) fn elements_max(&self) -> usize {
        self.vlen as usize / ELEMENT_BITS_LEAST
    }

    /// Returns the variable-width vector in register `number`.
    pub(crate) fn vector(&self, number: u8) -> &VariableVector {
        &self.vectors[number as usize & 31]
    }

    /// Returns `NumE`, the fewest elements that an instruction has yielded since the last call, and resets it.
    pub(crate) fn take_num_e(&mut self) -> u64 {
        std::mem::replace(&mut self.num_e, u64::MAX)
    }

    /// Stores the result of an instruction in register `number`, and includes its number of elements in `NumE`.
    fn yield_vector(&mut self, number: u8, values: Vec<i64>, most_bits: u32) {
        debug_assert!(values.len() <= self.elements_max(), "{} elements in {} bits", values.len(), self.vlen);
        debug_assert!(values.iter().map(|value| width(*value)).sum::<u32>() <= self.vlen, "{values:?}");
        debug_assert!((1..=64).contains(&most_bits), "elements of up to {most_bits} bits");
        self.num_e = self.num_e.min(values.len() as u64);
        self.vectors[number as usize & 31] = VariableVector { values, most_bits };
    }

    /// Returns the number of elements with these widths, from the first on, that fit in the datapath when each is
    /// aligned.
    fn fitting(&self, widths: impl Iterator<Item = u32>) -> usize {
        let mut bits = 0;
        let fits = |width: u32| {
            bits += width.next_multiple_of(self.align);
            bits <= self.vlen
        };
        widths.take(self.elements_max()).scan(fits, |fits, w| Some(fits(w))).take_while(|f| *f).count()
    }
}

/// Access to single bits of memory.
#[derive(Debug)]
pub(crate) struct PackedBits<'a> {
    pub(crate) spans: &'a mut RegionTable,
    pub(crate) mask: u64,
}

impl PackedBits<'_> {
    fn load<const N: usize>(&mut self, address: u64) -> VarveResult<[u8; N]> {
        self.spans.load::<N>(address & self.mask).map_err(|fault| VarveTrap::Fault(fault, AccessKind::Load))
    }

    /// Reads `bits` bits (at most 64), from bit `at` after an address on; the lowest bit of a byte comes first.
    pub(crate) fn get(&mut self, base: u64, at: u64, bits: u32) -> VarveResult<u64> {
        debug_assert!(bits <= 64, "a value of {bits} bits");
        let (mut value, mut got) = (0u128, 0);
        while got < bits + (at & 7) as u32 {
            let byte = self.load::<1>(base.wrapping_add(at / 8 + u64::from(got) / 8))?[0];
            value |= u128::from(byte) << got;
            got += 8;
        }
        let value = (value >> (at & 7)) as u64;
        Ok(if bits == 64 { value } else { value & ((1 << bits) - 1) })
    }

    /// Writes `bits` bits from bit `at` after an address on; the bits that follow in the last byte become zero.
    pub(crate) fn put(&mut self, base: u64, at: u64, bits: u32, value: u64) -> VarveResult {
        debug_assert!(bits <= 64, "a value of {bits} bits");
        if bits == 0 {
            return Ok(());
        }
        let shift = (at & 7) as u32;
        let first = base.wrapping_add(at / 8);
        let kept = if shift > 0 { self.load::<1>(first)?[0] & ((1 << shift) - 1) } else { 0 };
        let value = if bits == 64 { value } else { value & ((1 << bits) - 1) };
        let all = u128::from(value) << shift | u128::from(kept);
        for byte in 0..u64::from((bits + shift).div_ceil(8)) {
            let address = first.wrapping_add(byte) & self.mask;
            let stored = self.spans.store::<1>(address, [(all >> (8 * byte)) as u8]);
            stored.map_err(|fault| VarveTrap::Fault(fault, AccessKind::Store))?;
        }
        Ok(())
    }

    /// Reads the 8 bytes at an address as a little-endian number.
    pub(crate) fn word(&mut self, address: u64) -> VarveResult<u64> {
        Ok(u64::from_le_bytes(self.load::<8>(address)?))
    }

    /// Reads the byte at an address.
    pub(crate) fn byte(&mut self, address: u64) -> VarveResult<u8> {
        Ok(self.load::<1>(address)?[0])
    }
}

#[cfg(test)]
mod packed_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_twos_complement() {
        for (value, bits) in [(0, 0), (1, 2), (-1, 1), (127, 8), (-128, 8), (128, 9), (i64::MAX, 64), (i64::MIN, 64)] {
            assert_eq!(width(value), bits, "{value}");
            assert_eq!(wrap(value, bits), value, "{value}");
        }
        assert_eq!([wrap(5, 3), wrap(4, 3), wrap(8, 3)], [-3, -4, 0]);
    }

    #[test]
    fn elements_are_aligned_as_the_unit_says() {
        // Elements of 3, then of 9 bits, that 256 bits hold.
        for (align, of_three, of_nine) in [(1, 64, 28), (2, 64, 25), (4, 64, 21), (8, 32, 16), (16, 16, 16), (64, 4, 4)]
        {
            let unit = VarveUnit::new(256, align);
            let fitting = |bits| unit.fitting(std::iter::repeat_n(bits, 100));
            assert_eq!((fitting(3), fitting(9)), (of_three, of_nine), "aligned to {align} bits");
        }
    }

    #[test]
    #[should_panic(expected = "elements are not aligned to 6 bits")]
    fn an_alignment_is_a_power_of_two() {
        VarveUnit::new(256, 6);
    }
}
