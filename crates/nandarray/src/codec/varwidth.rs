//! Packing of integers of 1, 2, 4 or 8 bytes with variable widths: each value has as many bits as it needs.
//!
//! ```text
//! packed frame := widths, 1 byte a value
//!                 values, each with as many bits as its width   the first in the lowest bits of the first byte
//!                 bytes after the last whole element
//! ```
//! These are the two streams of variable-width values of Zou's dissertation (section 8.2): a packed stream of bits, and
//! a stream of widths. The width of a value is the number of its bits without leading zeroes: 0 takes no bits, a
//! negative number takes all.
//!
//! It does not know whether elements are signed.

use super::bits::{self, BitWriter};

/// Writes the packed form of `raw` to the front of `packed` and returns its length in bytes; `None` if it does not fit.
pub(super) fn pack(element_bytes: usize, raw: &[u8], packed: &mut [u8]) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("lzcnt") && is_x86_feature_detected!("bmi2") {
        // The same code; counting zeroes and shifting are one instruction each.
        #[target_feature(enable = "lzcnt,bmi2")]
        fn with_lzcnt(element_bytes: usize, raw: &[u8], packed: &mut [u8]) -> Option<usize> {
            pack_any(element_bytes, raw, packed)
        }
        // SAFETY: both features were just detected.
        return unsafe { with_lzcnt(element_bytes, raw, packed) };
    }
    pack_any(element_bytes, raw, packed)
}

#[inline(always)]
fn pack_any(element_bytes: usize, raw: &[u8], packed: &mut [u8]) -> Option<usize> {
    match element_bytes {
        1 => pack_of::<1>(raw, packed),
        2 => pack_of::<2>(raw, packed),
        4 => pack_of::<4>(raw, packed),
        8 => pack_of::<8>(raw, packed),
        _ => unreachable!("elements of {element_bytes} bytes are refused by the spec"),
    }
}

#[inline(always)]
fn pack_of<const BYTES: usize>(raw: &[u8], packed: &mut [u8]) -> Option<usize> {
    let (values, rest) = raw.as_chunks::<BYTES>();
    let count = values.len();
    let widths = packed.get_mut(..count)?;
    let mut total = 0;
    for (width, value) in widths.iter_mut().zip(values) {
        *width = bits::width_of(bits::little(value)) as u8;
        total += usize::from(*width);
    }
    let length = count + total.div_ceil(8) + rest.len();
    let (widths, data) = packed.get_mut(..length)?.split_at_mut(count);
    let (data, last) = data.split_at_mut(total.div_ceil(8));
    let mut writer = BitWriter::new(data);
    for (width, value) in widths.iter().zip(values) {
        writer.put(bits::little(value), u32::from(*width));
    }
    writer.finish();
    last.copy_from_slice(rest);
    Some(length)
}

/// Returns the widths, the bits and the bytes after the last whole element of a packed frame; `None` if `packed` is not
/// the packed form of a frame of `raw_bytes` bytes.
pub(super) fn parse(element_bytes: usize, packed: &[u8], raw_bytes: usize) -> Option<(&[u8], &[u8], &[u8])> {
    let (widths, body) = packed.split_at_checked(raw_bytes / element_bytes)?;
    let total = total_bits(widths, 8 * element_bytes as u8)?;
    let (data, rest) = body.split_at_checked(total.div_ceil(8))?;
    (rest.len() == raw_bytes % element_bytes).then_some((widths, data, rest))
}

/// Unpacks a frame into `raw`; `false` if `packed` is not the packed form of a frame with this length.
pub(super) fn unpack(element_bytes: usize, packed: &[u8], raw: &mut [u8]) -> bool {
    let whole = raw.len() / element_bytes * element_bytes;
    let Some((widths, data, last)) = parse(element_bytes, packed, raw.len()) else { return false };
    let (values, rest) = raw.split_at_mut(whole);
    match element_bytes {
        1 => unpack_of::<1>(widths, data, values),
        2 => unpack_of::<2>(widths, data, values),
        4 => unpack_of::<4>(widths, data, values),
        8 => unpack_of::<8>(widths, data, values),
        _ => unreachable!("elements of {element_bytes} bytes are refused by the spec"),
    }
    rest.copy_from_slice(last);
    true
}

/// Returns the sum of widths; `None` if one of them is above `most`.
fn total_bits(widths: &[u8], most: u8) -> Option<usize> {
    let (mut total, mut good) = (0, true);
    for run in widths.chunks(512) {
        // A run's sum fits 16 bits: 512 widths of at most 64.
        total += usize::from(run.iter().fold(0u16, |sum, &width| sum.wrapping_add(width.into())));
        good &= run.iter().fold(0, |widest: u8, &width| widest.max(width)) <= most;
    }
    good.then_some(total)
}

/// Unpacks values none of whose widths exceeds an element, and whose bits fill `data`.
fn unpack_of<const BYTES: usize>(widths: &[u8], data: &[u8], values: &mut [u8]) {
    let values = values.as_chunks_mut::<BYTES>().0;
    let (done, at) = unpack_groups(widths, data, 0, values);
    let (widths, values) = (&widths[done..], &mut values[done..]);
    // The end, which loads of a whole group would exceed, lies in front of zeroes; at most `MARGIN` bytes are left, or
    // fewer than eight values.
    let mut end = [0; 2 * MARGIN];
    let rest = &data[at / 8..];
    let rest = &rest[..rest.len().min(MARGIN)];
    end[..rest.len()].copy_from_slice(rest);
    let (done, mut at) = unpack_groups(widths, &end, at % 8, values);
    for (width, value) in widths[done..].iter().zip(&mut values[done..]) {
        let nine = end[at / 8..][..9].try_into().expect("nine bytes");
        let bits = bits::of_nine(nine, at as u32 % 8) & bits::low(u32::from(*width));
        value.copy_from_slice(&bits.to_le_bytes()[..BYTES]);
        at += usize::from(*width);
    }
}

/// Number of bytes that must be readable from the first byte of a group of eight values: up to 64 bytes of bits, which
/// may start within the first byte, and a load of nine bytes for the last value.
const MARGIN: usize = 80;

/// Unpacks groups of eight values, the first of which starts at bit `at`, as long as [`MARGIN`] bytes of data are left
/// for each; returns the number of values unpacked and the bit after them.
fn unpack_groups<const BYTES: usize>(
    widths: &[u8],
    data: &[u8],
    at: usize,
    values: &mut [[u8; BYTES]],
) -> (usize, usize) {
    #[cfg(target_arch = "x86_64")]
    if BYTES < 8 && bits::has_fast_pdep() && is_x86_feature_detected!("avx2") {
        // SAFETY: both features were just detected.
        return unsafe { groups_by_pdep(widths, data, at, values) };
    }
    groups_of(widths, data, at, values, one_by_one)
}

/// Calls `unpack` for each group of eight values that has [`MARGIN`] bytes of data: with the group's widths, its bytes,
/// and the bit of the first byte at which it begins. `unpack` returns the number of the group's bits.
#[inline(always)]
fn groups_of<const BYTES: usize>(
    widths: &[u8],
    data: &[u8],
    mut at: usize,
    values: &mut [[u8; BYTES]],
    unpack: impl Fn(&[u8; 8], &[u8; MARGIN], usize, &mut [[u8; BYTES]; 8]) -> usize,
) -> (usize, usize) {
    let mut done = 0;
    for (widths, group) in widths.as_chunks::<8>().0.iter().zip(values.as_chunks_mut::<8>().0) {
        let Some(data) = data.get(at / 8..).and_then(|data| data.first_chunk()) else { break };
        at += unpack(widths, data, at % 8, group);
        done += 8;
    }
    (done, at)
}

/// Unpacks a group of eight values one after the other, on any processor; returns the number of its bits.
#[inline(always)]
fn one_by_one<const BYTES: usize>(
    widths: &[u8; 8],
    data: &[u8; MARGIN],
    start: usize,
    group: &mut [[u8; BYTES]; 8],
) -> usize {
    let mut at = start;
    for (width, value) in widths.iter().zip(group) {
        let nine = data[at / 8..][..9].try_into().expect("nine bytes");
        let bits = bits::of_nine(nine, at as u32 % 8) & bits::low(u32::from(*width));
        value.copy_from_slice(&bits.to_le_bytes()[..BYTES]);
        at += usize::from(*width);
    }
    at - start
}

/// Unpacks groups by `pdep`, which deposits the bits of all values of a 64-bit word (eight, four or two) at once. The
/// masks are computed from the widths of the whole group, and the bit at which each word begins is a prefix sum of
/// them.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2")]
fn groups_by_pdep<const BYTES: usize>(
    widths: &[u8],
    data: &[u8],
    at: usize,
    values: &mut [[u8; BYTES]],
) -> (usize, usize) {
    groups_of(widths, data, at, values, |widths, data, at, group| {
        let sums = word_sums::<BYTES>(u64::from_le_bytes(*widths));
        // A lane's highest bit is set if the sum is above 57: such a word may need nine bytes.
        if (sums + (0x8000 - 58) * ONES) & (0x8000 * ONES) != 0 {
            return one_by_one(widths, data, at, group);
        }
        let mut ends = sums.wrapping_mul(ONES);
        let mut bit = at;
        for (word, mask) in group.as_flattened_mut().as_chunks_mut::<8>().0.iter_mut().zip(masks::<BYTES>(widths)) {
            // SAFETY: a group has at most 256 bits, `at` is below 8, and `data` has eight bytes behind the last one.
            let bits = u64::from_le_bytes(unsafe { *data.as_ptr().add(bit / 8).cast() }) >> (bit % 8);
            *word = core::arch::x86_64::_pdep_u64(bits, mask).to_le_bytes();
            bit = at + (ends & 0xffff) as usize;
            ends >>= 16;
        }
        bit - at
    })
}

/// A word with 1 in each 16-bit lane. Multiplying by it turns each lane into the sum of itself and all lower lanes.
#[cfg(target_arch = "x86_64")]
const ONES: u64 = 0x0001_0001_0001_0001;

/// Returns, in 16 bits for each 64-bit word of a group's values, the sum of the word's widths; 0 for words that the
/// group does not have.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn word_sums<const BYTES: usize>(widths: u64) -> u64 {
    let low = 0xff * ONES;
    let pairs = (widths & low) + (widths >> 8 & low);
    let lane = |n: u32| pairs >> (16 * n) & 0xffff;
    match BYTES {
        4 => pairs,
        2 => (lane(0) + lane(1)) | (lane(2) + lane(3)) << 16,
        _ => pairs.wrapping_mul(ONES) >> 48,
    }
}

/// Returns a mask for each 64-bit word of a group's values, with as many of the lowest bits of each value set as its
/// width; 0 for words that the group does not have.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn masks<const BYTES: usize>(widths: &[u8; 8]) -> [u64; 4] {
    use core::arch::x86_64::*;
    let widths = _mm_cvtsi64_si128(i64::from_le_bytes(*widths));
    let masks = if BYTES == 4 {
        // A shift by 32 leaves nothing of a lane.
        let all = _mm256_set1_epi32(-1);
        _mm256_andnot_si256(_mm256_sllv_epi32(all, _mm256_cvtepu8_epi32(widths)), all)
    } else {
        // Tables of 16 widths, from 1 on; width 0 becomes an index above 127, which gives 0.
        let from_1 = _mm_sub_epi8(widths, _mm_set1_epi8(1));
        let low = _mm_setr_epi8(1, 3, 7, 15, 31, 63, 127, -1, -1, -1, -1, -1, -1, -1, -1, -1);
        let high = _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 7, 15, 31, 63, 127, -1);
        let low = _mm_shuffle_epi8(low, from_1);
        let masks = if BYTES == 2 { _mm_unpacklo_epi8(low, _mm_shuffle_epi8(high, from_1)) } else { low };
        _mm256_zextsi128_si256(masks)
    };
    let mut words = [0; 4];
    // SAFETY: the array has 32 bytes.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), masks) };
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_two_streams_lie_one_behind_the_other() {
        let raw: Vec<u8> = [5u32, 0, 1, 300].iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut packed = [0; 32];
        // 101, nothing, 1, 100101100: 0b100101100_1_101.
        assert_eq!(pack(4, &raw, &mut packed), Some(6));
        assert_eq!(packed[..6], [3, 0, 1, 9, 0b1100_1101, 0b1_0010]);
        let mut out = [9; 16];
        assert!(unpack(4, &packed[..6], &mut out));
        assert_eq!(out[..], raw);
        for bad in [&packed[..5], &packed[..7], &[33, 0, 0, 0, 1, 2, 3, 4, 5][..], &[]] {
            assert!(!unpack(4, bad, &mut out), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_integers_come_back(
            size in 0usize..4, rest in 0usize..8, values in prop::collection::vec((any::<u64>(), 0u32..=64), 0..200),
        ) {
            let bytes = 1 << size;
            let mut raw: Vec<u8> =
                values.iter().flat_map(|(v, width)| (v & bits::low(*width)).to_le_bytes()[..bytes].to_vec()).collect();
            raw.extend((0..rest % bytes).map(|i| i as u8));
            let mut packed = vec![0xa5; 2 * raw.len() + 64];
            let length = pack(bytes, &raw, &mut packed).expect("room");
            let mut out = vec![0x5a; raw.len()];
            prop_assert!(unpack(bytes, &packed[..length], &mut out));
            prop_assert_eq!(out, raw);
        }
    }
}
