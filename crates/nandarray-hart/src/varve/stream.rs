//! Streams of packed values, read into vectors or written from them: values of one width, of a width each, or Huffman
//! codes.
//!
//! Bits are counted from the lowest of the first byte. A variable-width stream has its widths in a separate array, one
//! byte for each value; a Huffman code begins with its highest bit. A table of codes begins with the number of codes (8
//! bytes), followed by a value (8 bytes), a code (4 bytes) and its length in bits (4 bytes) for each. Values are signed
//! if the description says so.

use std::ops::Range;
use std::sync::Arc;

use super::{PackedBits, VarveResult, VarveTrap, VarveUnit, wrap};
use crate::access::AccessKind;
use crate::trap::Cause;
use crate::vector::VectorUnit;

/// Most codes in a table of Huffman codes: a description reads and sorts all of them.
const CODES_MAX: u64 = 1 << 12;
/// The bit of a description that says that values are signed.
const SIGNED: u64 = 1 << 7;

/// The encoding of a stream's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Describe {
    /// All values have the same width.
    Fixed,
    /// Each value has a width of its own.
    Variable,
    /// Values are Huffman codes from a table.
    Huffman,
}

#[derive(Clone, Debug)]
pub(super) enum Encoding {
    Fixed { bits: u32, signed: bool },
    Variable { widths: u64, signed: bool },
    Huffman(Arc<CodeTable>),
}

/// A table of Huffman codes, which descriptions of streams share.
#[derive(Debug)]
pub(super) struct CodeTable {
    /// Codes as (length, code, value), in order of length, then of code.
    codes: Vec<(u32, u32, i64)>,
    /// For each length that codes have, in ascending order: the length, and the codes that have it.
    lengths: Vec<(u32, Range<usize>)>,
    /// Indexes of the codes in order of their values, then of length and code.
    by_value: Vec<u32>,
}

impl CodeTable {
    fn new(codes: Vec<(u32, u32, i64)>) -> Self {
        assert!(codes.is_sorted(), "codes are searched by their length, then by their bits");
        let mut lengths: Vec<(u32, Range<usize>)> = Vec::new();
        for (i, (length, ..)) in codes.iter().enumerate() {
            match lengths.last_mut() {
                Some((last, range)) if last == length => range.end = i + 1,
                _ => lengths.push((*length, i..i + 1)),
            }
        }
        debug_assert_eq!(lengths.last().map_or(0, |(_, range)| range.end), codes.len());
        let mut by_value: Vec<u32> = (0..codes.len() as u32).collect();
        by_value.sort_by_key(|&i| codes[i as usize].2);
        Self { codes, lengths, by_value }
    }

    /// Returns the shortest code of a value, as (length, code).
    fn code_of(&self, value: i64) -> Option<(u32, u32)> {
        let at = self.by_value.partition_point(|&i| self.codes[i as usize].2 < value);
        let (length, code, found) = self.codes[*self.by_value.get(at)? as usize];
        (found == value).then_some((length, code))
    }
}

/// A stream that an instruction has described, with its position.
#[derive(Clone, Debug)]
pub(super) struct PackedStream {
    pub(super) encoding: Encoding,
    output: bool,
    pub(super) base: u64,
    /// Number of the next bit to read or write.
    pub(super) at: u64,
    /// Number of the next value.
    pub(super) next: u64,
    /// Number of values of an input, or most values of an output.
    pub(super) count: u64,
}

/// Describes stream `number`: an input of `count` values, or an output of at most as many. `detail` is the width of
/// fixed-width values (with bit 7 set if they are signed), the address of the widths (bit 63 of `count` says that
/// values are signed), or the address of a table of codes.
pub(crate) fn describe(
    unit: &mut VarveUnit,
    number: u8,
    kind: Describe,
    output: bool,
    [base, count, detail]: [u64; 3],
    memory: &mut PackedBits<'_>,
) -> VarveResult {
    let signed = count >> 63 != 0;
    let count = count & !(1 << 63);
    let encoding = match kind {
        Describe::Fixed => {
            let bits = (detail & 0x7f) as u32;
            if detail >> 8 != 0 || !(1..=64).contains(&bits) {
                return Err(VarveTrap::Stream(Cause::StreamWidth, u64::from(number)));
            }
            Encoding::Fixed { bits, signed: detail & SIGNED != 0 }
        }
        Describe::Variable => Encoding::Variable { widths: detail, signed },
        Describe::Huffman => Encoding::Huffman(Arc::new(CodeTable::new(table(number, detail, memory)?))),
    };
    unit.streams[number as usize & 31] = Some(PackedStream { encoding, output, base, at: 0, next: 0, count });
    Ok(())
}

/// Reads a table of codes; fails if one code is the beginning of another.
fn table(number: u8, address: u64, memory: &mut PackedBits<'_>) -> VarveResult<Vec<(u32, u32, i64)>> {
    let wrong = VarveTrap::Stream(Cause::HuffmanTable, u64::from(number));
    let count = memory.word(address)?;
    if count == 0 || count > CODES_MAX {
        return Err(wrong);
    }
    let mut codes = Vec::new();
    for entry in 0..count {
        let at = address.wrapping_add(8 + 16 * entry);
        let (value, code) = (memory.word(at)? as i64, memory.word(at.wrapping_add(8))?);
        let (code, length) = (code as u32, (code >> 32) as u32);
        if !(1..=32).contains(&length) || u64::from(code) >> length != 0 {
            return Err(wrong);
        }
        codes.push((length, code, value));
    }
    // Aligned to the left and sorted, a code is followed by the codes that begin with it.
    codes.sort_by_key(|(length, code, _)| (u64::from(*code) << (32 - length), *length));
    let begins = |(a, b): (&(u32, u32, i64), &(u32, u32, i64))| a.0 <= b.0 && b.1 >> (b.0 - a.0) == a.1;
    if codes.iter().zip(&codes[1..]).any(begins) {
        return Err(wrong);
    }
    codes.sort_unstable();
    Ok(codes)
}

impl PackedStream {
    /// Reads the next value without consuming it; returns the value and its number of bits.
    fn read(&self, number: u8, memory: &mut PackedBits<'_>) -> VarveResult<(i64, u64)> {
        let at = self.at;
        let sized = |memory: &mut PackedBits<'_>, bits: u32, signed: bool| {
            let value = memory.get(self.base, at, bits)?;
            Ok((if signed { wrap(value as i64, bits) } else { value as i64 }, u64::from(bits)))
        };
        match &self.encoding {
            Encoding::Fixed { bits, signed } => sized(memory, *bits, *signed),
            Encoding::Variable { widths, signed } => {
                let bits = u32::from(memory.byte(widths.wrapping_add(self.next))?);
                if bits > 64 {
                    return Err(VarveTrap::Stream(Cause::StreamWidth, u64::from(number)));
                }
                if bits == 0 { Ok((0, 0)) } else { sized(memory, bits, *signed) }
            }
            Encoding::Huffman(table) => {
                let (mut code, mut length) = (0u32, 0);
                for (bits, range) in &table.lengths {
                    while length < *bits {
                        code = code << 1 | memory.get(self.base, at.wrapping_add(u64::from(length)), 1)? as u32;
                        length += 1;
                    }
                    let codes = &table.codes[range.clone()];
                    if let Ok(found) = codes.binary_search_by_key(&code, |&(_, code, _)| code) {
                        return Ok((codes[found].2, u64::from(length)));
                    }
                }
                Err(VarveTrap::Stream(Cause::StreamEnd, u64::from(number)))
            }
        }
    }

    /// Returns the number of bits that a value takes in this stream; fails if the stream cannot hold the value.
    pub(super) fn bits_of(&self, number: u8, value: i64) -> VarveResult<u32> {
        let wrong = VarveTrap::Stream(Cause::StreamWidth, u64::from(number));
        match &self.encoding {
            Encoding::Fixed { bits, signed } => {
                let fits = if *signed { wrap(value, *bits) == value } else { *bits == 64 || value as u64 >> bits == 0 };
                if fits { Ok(*bits) } else { Err(wrong) }
            }
            Encoding::Variable { signed: true, .. } => Ok(super::width(value)),
            Encoding::Variable { .. } => Ok(64 - value.leading_zeros()),
            Encoding::Huffman(table) => table.code_of(value).map(|(length, _)| length).ok_or(wrong),
        }
    }

    fn write(&mut self, number: u8, value: i64, memory: &mut PackedBits<'_>) -> VarveResult {
        if self.next == self.count {
            return Err(VarveTrap::Stream(Cause::StreamFull, u64::from(number)));
        }
        let bits = self.bits_of(number, value)?;
        match &self.encoding {
            Encoding::Fixed { .. } => memory.put(self.base, self.at, bits, value as u64)?,
            Encoding::Variable { widths, .. } => {
                memory.put(self.base, self.at, bits, value as u64)?;
                let address = widths.wrapping_add(self.next) & memory.mask;
                let stored = memory.spans.store::<1>(address, [bits as u8]);
                stored.map_err(|fault| VarveTrap::Fault(fault, AccessKind::Store))?;
            }
            Encoding::Huffman(table) => {
                // The highest bit of a code is written first.
                let (length, code) = table.code_of(value).expect("a value that has bits has a code");
                memory.put(self.base, self.at, length, u64::from(code.reverse_bits() >> (32 - length)))?;
            }
        }
        (self.at, self.next) = (self.at.wrapping_add(u64::from(bits)), self.next + 1);
        debug_assert!(self.next <= self.count, "{} values of {}", self.next, self.count);
        Ok(())
    }

    /// Reads the next value and moves to the one after it.
    pub(super) fn advance(&mut self, number: u8, memory: &mut PackedBits<'_>) -> VarveResult<i64> {
        debug_assert!(self.next < self.count, "value {} of {}", self.next, self.count);
        let (value, bits) = self.read(number, memory)?;
        (self.at, self.next) = (self.at.wrapping_add(bits), self.next + 1);
        Ok(value)
    }
}

impl VarveUnit {
    pub(super) fn stream(&self, number: u8, output: bool) -> VarveResult<PackedStream> {
        self.streams[number as usize & 31].clone().filter(|s| s.output == output).ok_or(VarveTrap::Illegal)
    }

    /// Consumes `count` values of an input without using them.
    pub(crate) fn consume(&mut self, number: u8, count: u64, memory: &mut PackedBits<'_>) -> VarveResult {
        let mut stream = self.stream(number, false)?;
        if count > stream.count - stream.next {
            return Err(VarveTrap::Stream(Cause::StreamEnd, u64::from(number)));
        }
        match stream.encoding {
            Encoding::Fixed { bits, .. } => {
                let passed = count.wrapping_mul(u64::from(bits));
                (stream.at, stream.next) = (stream.at.wrapping_add(passed), stream.next + count);
            }
            _ => {
                for _ in 0..count {
                    stream.advance(number, memory)?;
                }
            }
        }
        debug_assert!(stream.next <= stream.count, "{} values of {}", stream.next, stream.count);
        self.streams[number as usize & 31] = Some(stream);
        Ok(())
    }

    /// Ends a stream; returns the number of values left in an input, or of bits written to an output.
    pub(crate) fn end(&mut self, number: u8, output: bool) -> VarveResult<u64> {
        let stream = self.stream(number, output)?;
        debug_assert!(stream.next <= stream.count, "{} values of {}", stream.next, stream.count);
        self.streams[number as usize & 31] = None;
        Ok(if output { stream.at } else { stream.count - stream.next })
    }
}

/// Reads values of a stream into the fixed-width vector `vd`, as many as its length, and consumes them. At the end of
/// the stream there may be fewer; the vector length becomes their number.
pub(crate) fn unpack(
    unit: &mut VarveUnit,
    vectors: &mut VectorUnit,
    vd: u8,
    number: u8,
    memory: &mut PackedBits<'_>,
) -> VarveResult {
    let mut stream = unit.stream(number, false)?;
    let sew = vectors.group_at(vd).ok_or(VarveTrap::Illegal)?;
    let count = (vectors.vl as u64).min(stream.count - stream.next);
    let mut values = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let value = stream.advance(number, memory)?;
        let fits = sew == 64 || wrap(value, sew) == value || value as u64 >> sew == 0;
        if !fits {
            return Err(VarveTrap::Stream(Cause::StreamWidth, u64::from(number)));
        }
        values.push(value);
    }
    vectors.put_elements(vd, &values);
    unit.streams[number as usize & 31] = Some(stream);
    Ok(())
}

/// Values that a `vunpack` reads, with the stream's place after them.
pub(super) struct StreamStrip {
    pub(super) values: Vec<i64>,
    pub(super) bits: u64,
    pub(super) after: PackedStream,
}

/// Reads the values of a stream that fit in a register, without consuming them. Only the first value can fail: a later
/// one that cannot be read, or is too wide, ends the strip before it, and is the first of a following strip.
pub(super) fn strip(
    unit: &VarveUnit,
    number: u8,
    most_bits: u64,
    mask: Option<&VectorUnit>,
    memory: &mut PackedBits<'_>,
) -> VarveResult<StreamStrip> {
    let mut stream = unit.stream(number, false)?;
    let wrong = VarveTrap::Stream(Cause::StreamWidth, u64::from(number));
    if most_bits > 64 {
        return Err(wrong);
    }
    let (mut values, mut bits) = (Vec::new(), 0);
    while values.len() < unit.elements_max() && stream.next < stream.count {
        let mut next = stream.clone();
        let read = next.advance(number, memory).and_then(|value| {
            let value = if mask.is_some_and(|mask| !mask.mask_bit(values.len())) { 0 } else { value };
            let width = u64::from(super::width(value));
            if width > most_bits { Err(wrong) } else { Ok((value, width)) }
        });
        let (value, width) = match read {
            Err(_) if !values.is_empty() => break,
            read => read?,
        };
        if bits + width > u64::from(unit.vlen) {
            break;
        }
        bits += width;
        values.push(value);
        stream = next;
    }
    debug_assert!(bits <= u64::from(unit.vlen), "{bits} bits in a register of {}", unit.vlen);
    Ok(StreamStrip { values, bits, after: stream })
}

/// Reads values of a stream into the variable-width vector `vd` without consuming them, as many as fit in a register; a
/// value whose bit in `mask` is not set is replaced by zero.
pub(crate) fn vunpack(
    unit: &mut VarveUnit,
    vd: u8,
    number: u8,
    most_bits: u64,
    mask: Option<&VectorUnit>,
    memory: &mut PackedBits<'_>,
) -> VarveResult {
    let most_bits = if most_bits == 0 { 64 } else { most_bits };
    let strip = strip(unit, number, most_bits, mask, memory)?;
    unit.yield_vector(vd, strip.values, most_bits as u32);
    Ok(())
}

/// Appends to an output those values whose bit in the mask is set, or all without a mask; returns their number.
pub(crate) fn pack(
    unit: &mut VarveUnit,
    values: &[i64],
    number: u8,
    mask: Option<&VectorUnit>,
    memory: &mut PackedBits<'_>,
) -> VarveResult<u64> {
    let mut stream = unit.stream(number, true)?;
    let before = stream.next;
    for (i, value) in values.iter().enumerate() {
        if mask.is_none_or(|mask| mask.mask_bit(i)) {
            stream.write(number, *value, memory)?;
        }
    }
    let written = stream.next - before;
    debug_assert!(written <= values.len() as u64, "{written} values were written of {}", values.len());
    unit.streams[number as usize & 31] = Some(stream);
    Ok(written)
}
