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
//! width; with 0 the values are a plain bit stream. Unpacking spreads the bits of several elements over a 64-bit word
//! at once, by one `pdep` instruction if the processor has it.
//!
//! It does not look for patterns between values (compressors do), and does not know whether elements are signed.

use super::bits::{self, BitWriter};

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

/// Unpacks a frame into `raw`; `false` if `packed` is not the packed form of a frame with this length.
pub(super) fn unpack(element_bytes: usize, packed: &[u8], raw: &mut [u8]) -> bool {
    let whole = raw.len() / element_bytes * element_bytes;
    let (values, rest) = raw.split_at_mut(whole);
    let Some((&width, body)) = packed.split_first() else { return false };
    let Some((reference, body)) = body.split_at_checked(element_bytes) else { return false };
    if usize::from(width) > 8 * element_bytes {
        return false;
    }
    let data = (values.len() / element_bytes * usize::from(width)).div_ceil(8);
    if body.len() != data + rest.len() {
        return false;
    }
    spread(element_bytes, u32::from(width), &body[..data], values);
    add(element_bytes, bits::little(reference), values);
    rest.copy_from_slice(&body[data..]);
    true
}

/// Chooses the reference (the value to subtract from all values) that gives the smallest width; returns both, the width
/// in bits.
fn choose(element_bytes: usize, values: &[u8]) -> (u64, u32) {
    match element_bytes {
        1 => choose_of::<1>(values),
        2 => choose_of::<2>(values),
        4 => choose_of::<4>(values),
        8 => choose_of::<8>(values),
        _ => unreachable!("elements of {element_bytes} bytes are refused by the spec"),
    }
}

fn choose_of<const BYTES: usize>(values: &[u8]) -> (u64, u32) {
    let sign = 1u64 << (8 * BYTES - 1);
    let (mut least, mut most, mut least_signed, mut most_signed) = (u64::MAX, 0, u64::MAX, 0);
    for value in values.as_chunks::<BYTES>().0 {
        let value = bits::little(value);
        (least, most) = (least.min(value), most.max(value));
        (least_signed, most_signed) = (least_signed.min(value ^ sign), most_signed.max(value ^ sign));
    }
    if values.is_empty() {
        return (0, 0);
    }
    let candidates = [
        (0, bits::width_of(most)),
        (least, bits::width_of(most - least)),
        (least_signed ^ sign, bits::width_of(most_signed - least_signed)),
    ];
    candidates.into_iter().min_by_key(|&(_, width)| width).expect("three candidates")
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
    let (words, rest) = values.as_chunks::<8>();
    let (mask, step) = (lanes(element_bytes, width), 8 / element_bytes as u32 * width);
    for word in words {
        writer.put(bits::extract(u64::from_le_bytes(*word), mask), step);
    }
    for value in rest.chunks_exact(element_bytes) {
        writer.put(bits::little(value), width);
    }
    writer.finish();
}

/// Reads elements of `width` bits each from `data`, the inverse of [`squeeze`].
fn spread(element_bytes: usize, width: u32, data: &[u8], values: &mut [u8]) {
    if width == 0 {
        values.fill(0);
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("bmi2") {
        #[target_feature(enable = "bmi2")]
        fn with_pdep(element_bytes: usize, width: u32, data: &[u8], values: &mut [u8]) {
            spread_by(element_bytes, width, data, values, |word, mask| core::arch::x86_64::_pdep_u64(word, mask));
        }
        // SAFETY: BMI2 was just detected.
        return unsafe { with_pdep(element_bytes, width, data, values) };
    }
    spread_by(element_bytes, width, data, values, bits::deposit);
}

#[inline(always)]
fn spread_by(element_bytes: usize, width: u32, data: &[u8], values: &mut [u8], deposit: impl Fn(u64, u64) -> u64) {
    let (words, rest) = values.as_chunks_mut::<8>();
    let (mask, step) = (lanes(element_bytes, width), 8 / element_bytes * width as usize);
    // Words whose bits lie in nine bytes of `data`.
    let fast = if data.len() < 9 { 0 } else { words.len().min((data.len() - 9) * 8 / step + 1) };
    let (inside, across) = words.split_at_mut(fast);
    let mut at = 0;
    for word in inside {
        let bytes: &[u8; 9] = data[at / 8..][..9].try_into().expect("nine bytes");
        *word = deposit(bits::of_nine(bytes, at as u32 % 8), mask).to_le_bytes();
        at += step;
    }
    for word in across {
        *word = deposit(bits::near_end(data, at), mask).to_le_bytes();
        at += step;
    }
    for value in rest.chunks_exact_mut(element_bytes) {
        value.copy_from_slice(&(bits::near_end(data, at) & bits::low(width)).to_le_bytes()[..element_bytes]);
        at += width as usize;
    }
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

        #[test]
        fn the_portable_form_reads_the_same(
            size in 0usize..4, width in 1u32..=64, data in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            let bytes = 1usize << size;
            let width = width.min(8 * bytes as u32);
            let count = data.len() * 8 / width as usize;
            let data = &data[..(count * width as usize).div_ceil(8)];
            let (mut one, mut other) = (vec![0; count * bytes], vec![0; count * bytes]);
            spread(bytes, width, data, &mut one);
            spread_by(bytes, width, data, &mut other, bits::deposit);
            prop_assert_eq!(&one, &other);
            // The slowest form: bit by bit.
            for (n, value) in one.chunks_exact(bytes).enumerate() {
                let at = n * width as usize;
                let bit = |k: usize| u64::from(data[(at + k) / 8] >> ((at + k) % 8) & 1);
                let want = (0..width as usize).fold(0u64, |v, k| v | bit(k) << k);
                prop_assert_eq!(bits::little(value), want);
            }
        }
    }
}
