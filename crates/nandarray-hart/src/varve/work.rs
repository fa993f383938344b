//! The work of instructions that describe, read or write packed streams, computed before they are executed.
//!
//! A stream's values are read as the instruction will read them, and its place stays. An instruction that will trap has
//! the work up to the value that traps. Memory of an array of widths has the number of its stream plus 32.

use super::stream::{Describe, Encoding, PackedStream, strip};
use super::{PackedBits, VARVE_STREAMS, VarveUnit};
use crate::vector::VectorUnit;
use crate::work::{VectorWork, VectorWorkKind};

/// Work of a description of stream `number`, with the operands of [`describe`](super::describe).
pub(crate) fn description_work(
    number: u8,
    kind: Describe,
    output: bool,
    [base, _, detail]: [u64; 3],
    memory: &mut PackedBits<'_>,
) -> VectorWork {
    let mut work = VectorWork { kind: VectorWorkKind::Describe, ..VectorWork::default() };
    let number = number & 31;
    work.touch(base & memory.mask, 0, output, Some(number));
    match kind {
        Describe::Fixed => {}
        Describe::Variable => work.touch(detail & memory.mask, 0, output, Some(number + VARVE_STREAMS as u8)),
        Describe::Huffman => {
            let codes = memory.word(detail).unwrap_or(0).min(1 << 12);
            work.touch(detail & memory.mask, 8 + 16 * codes, false, None);
        }
    }
    work
}

/// Adds to `work` the bits of a stream, and the memory that holds them, between its positions `from` and `to`.
fn between(work: &mut VectorWork, number: u8, from: &PackedStream, to: &PackedStream, store: bool, mask: u64) {
    debug_assert!(from.next <= to.next, "from value {} back to {}", from.next, to.next);
    work.packed_bits = to.at.wrapping_sub(from.at);
    if work.packed_bits > 0 {
        let first = from.at / 8;
        let bytes = (from.at % 8 + work.packed_bits).div_ceil(8);
        work.touch(from.base.wrapping_add(first) & mask, bytes, store, Some(number & 31));
    }
    if let (Encoding::Variable { widths, .. }, true) = (&from.encoding, to.next > from.next) {
        let address = widths.wrapping_add(from.next) & mask;
        work.touch(address, to.next - from.next, store, Some((number & 31) + VARVE_STREAMS as u8));
    }
}

/// Work of an `unpack`: `vl` elements of the current width.
pub(crate) fn unpack_work(
    unit: &VarveUnit,
    vectors: &VectorUnit,
    vd: u8,
    number: u8,
    memory: &mut PackedBits<'_>,
) -> VectorWork {
    let mut work = VectorWork { kind: VectorWorkKind::Unpack, ..VectorWork::default() };
    let (Ok(stream), Some(sew)) = (unit.stream(number, false), vectors.group_at(vd)) else { return work };
    let mut after = stream.clone();
    let count = (vectors.vl as u64).min(stream.count - stream.next);
    while work.elements < count {
        let Ok(value) = after.advance(number, memory) else { break };
        work.elements += 1;
        work.value_bits += u64::from(super::width(value));
    }
    work.datapath_bits = work.elements * u64::from(sew);
    between(&mut work, number, &stream, &after, false, memory.mask);
    work
}

/// Work of a `vunpack`: as many elements as fit in a register.
pub(crate) fn vunpack_work(
    unit: &VarveUnit,
    number: u8,
    most_bits: u64,
    mask: Option<&VectorUnit>,
    memory: &mut PackedBits<'_>,
) -> VectorWork {
    let mut work = VectorWork { kind: VectorWorkKind::Unpack, ..VectorWork::default() };
    let most_bits = if most_bits == 0 { 64 } else { most_bits };
    let Ok(stream) = unit.stream(number, false) else { return work };
    let Ok(strip) = strip(unit, number, most_bits, mask, memory) else { return work };
    work.elements = strip.values.len() as u64;
    (work.value_bits, work.datapath_bits) = (strip.bits, strip.bits);
    between(&mut work, number, &stream, &strip.after, false, memory.mask);
    work
}

/// Work of a `pack`, of elements that have `element_bits` each in the register, or their own widths if that is 0.
pub(crate) fn pack_work(
    unit: &VarveUnit,
    values: &[i64],
    number: u8,
    mask: Option<&VectorUnit>,
    element_bits: u32,
    bits_mask: u64,
) -> VectorWork {
    let mut work = VectorWork { kind: VectorWorkKind::Pack, ..VectorWork::default() };
    let Ok(stream) = unit.stream(number, true) else { return work };
    let mut after = stream.clone();
    for (i, value) in values.iter().enumerate() {
        let own = super::width(*value);
        work.value_bits += u64::from(own);
        work.datapath_bits += u64::from(if element_bits > 0 { element_bits } else { own });
        if mask.is_some_and(|mask| !mask.mask_bit(i)) {
            continue;
        }
        let Ok(bits) = stream.bits_of(number, *value) else { break };
        work.elements += 1;
        (after.at, after.next) = (after.at.wrapping_add(u64::from(bits)), after.next + 1);
    }
    between(&mut work, number, &stream, &after, true, bits_mask);
    work
}
