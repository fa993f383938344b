//! Bit packing: integers of 1, 2, 4 or 8 bytes, each stored with the number of bits that a frame's range of values
//! needs.
//!
//! ```text
//! packed frame := width in bits, 1 byte
//!                 reference, as long as an element   added to each value, modulo the element's range
//!                 values, `width` bits each          the first in the lowest bits of the first byte
//!                 bytes after the last whole element
//! ```
//! The reference is 0, the smallest value, or the smallest value as a signed integer, whichever gives the smallest
//! width; with 0 the values are a plain bit stream. `spread` unpacks it. Packing collects the bits of several elements
//! in a 64-bit word at once, by one `pext` instruction where the processor has a fast one.
//!
//! It does not look for patterns between values (compressors do), and does not know whether elements are signed.

use super::bits::{self, BitWriter};
use super::isa::per_instruction_set;
use super::spread::spread;

/// Whether elements of this size can be packed.
pub(super) fn can_pack(element_bytes: u32) -> bool {
    matches!(element_bytes, 1 | 2 | 4 | 8)
}

/// Writes the packed form of `raw` to the front of `packed` and returns its length in bytes; `None` if it does not fit.
/// `shifted` is working memory.
pub(super) fn pack(element_bytes: usize, raw: &[u8], shifted: &mut Vec<u8>, packed: &mut [u8]) -> Option<usize> {
    let whole = raw.len() / element_bytes * element_bytes;
    let (values, rest) = raw.split_at(whole);
    let (reference, width) = choose(element_bytes, values);
    let data = (values.len() / element_bytes * width as usize).div_ceil(8);
    let length = 1 + element_bytes + data + rest.len();
    let packed = packed.get_mut(..length)?;
    packed[0] = width as u8;
    packed[1..=element_bytes].copy_from_slice(&reference.to_le_bytes()[..element_bytes]);
    shifted.clear();
    shifted.extend_from_slice(values);
    add(element_bytes, reference.wrapping_neg(), shifted);
    squeeze(element_bytes, width, shifted, &mut packed[1 + element_bytes..][..data]);
    packed[length - rest.len()..].copy_from_slice(rest);
    Some(length)
}

/// The parts of a packed frame.
pub(super) struct PackedFrame<'a> {
    /// Width of the values, in bits.
    pub(super) width: u32,
    /// The number that is added to each value, as long as an element.
    pub(super) reference: &'a [u8],
    /// The bits of the values, `width` each, one after the other.
    pub(super) data: &'a [u8],
    /// The bytes after the last whole element.
    pub(super) rest: &'a [u8],
}

/// Takes a packed frame apart; `None` if `packed` is not the packed form of a frame of `raw_bytes` bytes.
pub(super) fn parse(element_bytes: usize, packed: &[u8], raw_bytes: usize) -> Option<PackedFrame<'_>> {
    let (&width, body) = packed.split_first()?;
    let (reference, body) = body.split_at_checked(element_bytes)?;
    if usize::from(width) > 8 * element_bytes {
        return None;
    }
    let data = (raw_bytes / element_bytes * usize::from(width)).div_ceil(8);
    let (data, rest) = body.split_at_checked(data)?;
    let good = rest.len() == raw_bytes % element_bytes;
    good.then_some(PackedFrame { width: width.into(), reference, data, rest })
}

/// Unpacks a frame into `raw`; `false` if `packed` is not the packed form of a frame with this length.
pub(super) fn unpack(element_bytes: usize, packed: &[u8], raw: &mut [u8]) -> bool {
    let whole = raw.len() / element_bytes * element_bytes;
    let Some(frame) = parse(element_bytes, packed, raw.len()) else { return false };
    let (values, rest) = raw.split_at_mut(whole);
    spread(element_bytes, frame.width, bits::little(frame.reference), frame.data, values);
    rest.copy_from_slice(frame.rest);
    true
}

/// Chooses the reference (the value to subtract from all values) that gives the smallest width; returns both, the width
/// in bits.
fn choose(element_bytes: usize, values: &[u8]) -> (u64, u32) {
    if values.is_empty() {
        return (0, 0);
    }
    let mut extremes = Extremes::default();
    find_extremes(element_bytes, values, &mut extremes);
    let Extremes { least, most, least_signed, most_signed } = extremes;
    let candidates = [
        (0, bits::width_of(most)),
        (least, bits::width_of(most - least)),
        (least_signed as u64 & bits::low(8 * element_bytes as u32), bits::width_of(most_signed.abs_diff(least_signed))),
    ];
    candidates.into_iter().min_by_key(|&(_, width)| width).expect("three candidates")
}

/// The smallest and the largest of a frame's values, read as unsigned and as signed integers.
#[derive(Default)]
pub(super) struct Extremes {
    least: u64,
    most: u64,
    least_signed: i64,
    most_signed: i64,
}

per_instruction_set! {
    /// Sets `extremes` to those of `values`, of which there must be at least one.
    fn find_extremes(element_bytes: usize, values: &[u8], extremes: &mut Extremes) => find_extremes_kernel
}

#[inline(always)]
fn find_extremes_kernel(element_bytes: usize, values: &[u8], extremes: &mut Extremes) {
    macro_rules! find_in {
        ($int:ty, $signed:ty) => {{
            let (mut least, mut most) = (<$int>::MAX, <$int>::MIN);
            let (mut least_signed, mut most_signed) = (<$signed>::MAX, <$signed>::MIN);
            for value in values.as_chunks::<{ size_of::<$int>() }>().0 {
                let value = <$int>::from_le_bytes(*value);
                (least, most) = (least.min(value), most.max(value));
                let value = value as $signed;
                (least_signed, most_signed) = (least_signed.min(value), most_signed.max(value));
            }
            (extremes.least, extremes.most) = (least.into(), most.into());
            (extremes.least_signed, extremes.most_signed) = (least_signed.into(), most_signed.into());
        }};
    }
    match element_bytes {
        1 => find_in!(u8, i8),
        2 => find_in!(u16, i16),
        4 => find_in!(u32, i32),
        8 => find_in!(u64, i64),
        _ => unreachable!("elements of {element_bytes} bytes are refused by the spec"),
    }
}

/// Adds `number` to each element, modulo the range of an element.
fn add(element_bytes: usize, number: u64, values: &mut [u8]) {
    macro_rules! add_as {
        ($int:ty) => {
            for value in values.as_chunks_mut::<{ size_of::<$int>() }>().0 {
                *value = <$int>::from_le_bytes(*value).wrapping_add(number as $int).to_le_bytes();
            }
        };
    }
    if number == 0 {
        return;
    }
    match element_bytes {
        1 => add_as!(u8),
        2 => add_as!(u16),
        4 => add_as!(u32),
        8 => add_as!(u64),
        _ => unreachable!("elements of {element_bytes} bytes are refused by the spec"),
    }
}

/// Returns a mask of the lowest `width` bits of each element in a 64-bit word.
#[cfg(target_arch = "x86_64")]
fn lanes(element_bytes: usize, width: u32) -> u64 {
    let lane = bits::low(width);
    (0..8 / element_bytes).fold(0, |mask, n| mask | lane << (8 * element_bytes * n))
}

/// Writes the lowest `width` bits of each element to `data`, one after the other.
fn squeeze(element_bytes: usize, width: u32, values: &[u8], data: &mut [u8]) {
    if width == 0 {
        return;
    }
    let mut writer = BitWriter::new(data);
    let mut rest = values;
    #[cfg(target_arch = "x86_64")]
    if bits::has_fast_pdep() {
        #[target_feature(enable = "bmi2")]
        fn with_pext<'a>(mask: u64, step: u32, words: &[[u8; 8]], mut writer: BitWriter<'a>) -> BitWriter<'a> {
            for word in words {
                writer.put(core::arch::x86_64::_pext_u64(u64::from_le_bytes(*word), mask), step);
            }
            writer
        }
        let words;
        (words, rest) = values.as_chunks::<8>();
        // SAFETY: BMI2 was just detected.
        writer = unsafe { with_pext(lanes(element_bytes, width), 8 / element_bytes as u32 * width, words, writer) };
    }
    match element_bytes {
        1 => writer.put_all(rest.as_chunks::<1>().0, width),
        2 => writer.put_all(rest.as_chunks::<2>().0, width),
        4 => writer.put_all(rest.as_chunks::<4>().0, width),
        _ => writer.put_all(rest.as_chunks::<8>().0, width),
    }
    writer.finish();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(element_bytes: usize, raw: &[u8]) -> usize {
        let mut packed = vec![0xa5; raw.len() + 64];
        let length = pack(element_bytes, raw, &mut Vec::new(), &mut packed).expect("room");
        let mut out = vec![0x5a; raw.len()];
        assert!(unpack(element_bytes, &packed[..length], &mut out));
        assert_eq!(out, raw, "elements of {element_bytes} bytes");
        length
    }

    #[test]
    fn widths_follow_from_the_range() {
        let bytes = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        // Head 5 bytes; 100 values of 3, 0, 4 and 32 bits.
        assert_eq!(round_trip(4, &bytes(&(0..100).map(|i| i % 8).collect::<Vec<_>>())), 5 + 38);
        assert_eq!(round_trip(4, &bytes(&[-7; 100])), 5);
        assert_eq!(round_trip(4, &bytes(&(0..100).map(|i| i % 16 - 8).collect::<Vec<_>>())), 5 + 50);
        assert_eq!(round_trip(4, &bytes(&[i32::MIN, i32::MAX, 0, -1].repeat(25))), 5 + 400);
        assert_eq!(round_trip(8, &[]), 9);
    }

    #[test]
    fn a_reference_is_used_only_where_it_saves_bits() {
        let mut packed = [0; 64];
        pack(2, &[9, 0, 12, 0, 15, 0], &mut Vec::new(), &mut packed).unwrap();
        assert_eq!(packed[..3], [3, 9, 0]);
        pack(2, &[1, 0, 12, 0, 15, 0], &mut Vec::new(), &mut packed).unwrap();
        assert_eq!(packed[..5], [4, 0, 0, 0xc1, 0x0f]);
    }

    #[test]
    fn lengths_and_widths_that_cannot_be_are_refused() {
        let mut raw = [0; 16];
        for packed in [
            &[][..],
            &[3],
            &[3, 0, 0, 0],
            &[33, 0, 0, 0, 0, 1, 2],
            &[8, 0, 0, 0, 0, 1, 2, 3],
            &[8, 0, 0, 0, 0, 1, 2, 3, 4, 5],
        ] {
            assert!(!unpack(4, packed, &mut raw), "{packed:?}");
        }
        assert!(unpack(4, &[8, 0, 0, 0, 0, 1, 2, 3, 4], &mut raw));
        assert_eq!(raw, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn any_integers_come_back(
            size in 0usize..4, width in 0u32..=64, offset in any::<u64>(), rest in 0usize..8,
            values in prop::collection::vec(any::<u64>(), 0..200),
        ) {
            let bytes = 1 << size;
            let mut raw: Vec<u8> = values
                .iter()
                .flat_map(|v| (v & bits::low(width)).wrapping_add(offset).to_le_bytes()[..bytes].to_vec())
                .collect();
            raw.extend((0..rest % bytes).map(|i| i as u8));
            round_trip(bytes, &raw);
        }
    }
}
