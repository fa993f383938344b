//! Unpacking of values of a fixed width: spreads a stream of bits over integers of 1, 2, 4 or 8 bytes and adds the
//! frame's reference.
//!
//! Eight values of `width` bits are `width` bytes, so that each group of eight starts at a whole byte. With AVX2 a lane
//! of a vector gets the bytes that have bits of its value (`pshufb`), moves them down by the value's place in the first
//! of these bytes, and masks them. The tables for that depend on the width alone, and are made once a frame. A lane
//! has the size that holds a value and the seven bits before it:
//!
//! | elements | widths | lanes | a step |
//! | --- | --- | --- | --- |
//! | 1 byte | all | 16 bits, moved by a multiplication (there is no shift by lane) | 32 values |
//! | 2 bytes | all | 32 bits, narrowed by saturation | 16 values |
//! | 4 bytes | to 25 | 32 bits | 8 values |
//! | 4 bytes | from 26 | 64 bits, narrowed by a permutation | 8 values |
//! | 8 bytes | to 57 | 64 bits | 8 values |
//! | 8 bytes | from 58 | no vectors: nine bytes a value | 1 value |
//!
//! Loads of 16 bytes must end within the data, so the last values are unpacked one by one, as are all without AVX2.
//! Measured by `cargo run --release -p nandarray --example codecs` (docs/benchmarks.md).
//!
//! It trusts its caller with the lengths, asserts them, and does not know a frame's head.

use super::bits;

/// Writes the elements of `values`, each the sum (modulo its range) of `reference` and the next `width` bits of `data`.
///
/// # Panics
/// If `data` is not exactly as long as the values' bits, or a width exceeds an element.
pub(super) fn spread(element_bytes: usize, width: u32, reference: u64, data: &[u8], values: &mut [u8]) {
    let count = values.len() / element_bytes;
    assert!(width as usize <= 8 * element_bytes, "{width} bits in elements of {element_bytes} bytes");
    assert_eq!(data.len(), (count * width as usize).div_ceil(8), "{count} values of {width} bits");
    match element_bytes {
        1 => spread_of::<1>(width, reference, data, values),
        2 => spread_of::<2>(width, reference, data, values),
        4 => spread_of::<4>(width, reference, data, values),
        8 => spread_of::<8>(width, reference, data, values),
        _ => unreachable!("elements of {element_bytes} bytes are refused by the spec"),
    }
}

fn spread_of<const BYTES: usize>(width: u32, reference: u64, data: &[u8], values: &mut [u8]) {
    let values = values.as_chunks_mut::<BYTES>().0;
    if width == 0 {
        return values.fill(narrow(reference));
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: AVX2 was just detected.
        let done = unsafe { avx2::spread_groups(width, reference, data, values) };
        debug_assert_eq!(done % 8, 0, "groups of eight values");
        return one_by_one(width, reference, &data[done / 8 * width as usize..], &mut values[done..]);
    }
    one_by_one(width, reference, data, values);
}

/// Returns the lowest `BYTES` bytes of a number.
#[inline(always)]
fn narrow<const BYTES: usize>(number: u64) -> [u8; BYTES] {
    *number.to_le_bytes().first_chunk().expect("an element has at most eight bytes")
}

/// Unpacks values without vector instructions; the last bytes of the data are copied to a padded buffer first, since
/// each value is taken from nine bytes.
fn one_by_one<const BYTES: usize>(width: u32, reference: u64, data: &[u8], values: &mut [[u8; BYTES]]) {
    let mask = bits::low(width);
    let mut at = 0;
    let mut take = |data: &[u8], value: &mut [u8; BYTES], base: usize| {
        let nine = data[at / 8 - base..][..9].try_into().expect("nine bytes");
        *value = narrow((bits::of_nine(nine, at as u32 % 8) & mask).wrapping_add(reference));
        at += width as usize;
    };
    // Values whose bits lie in nine bytes of `data`.
    let fast = data.len().checked_sub(9).map_or(0, |last| values.len().min((last * 8 + 7) / width as usize + 1));
    let (inside, across) = values.split_at_mut(fast);
    for value in inside {
        take(data, value, 0);
    }
    // The first of the others starts in the last eight bytes.
    let base = fast * width as usize / 8;
    let mut end = [0; 17];
    let rest = &data[base.min(data.len())..];
    end[..rest.len()].copy_from_slice(rest);
    for value in across {
        take(&end, value, base);
    }
}

/// The kernels that unpack values by AVX2. Each returns the number of values that it wrote, a multiple of eight.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::*;

    use super::super::bits;

    /// Vector constants for one width. For each lane: the bytes that hold its value, the distance to shift them by, and
    /// the mask of the value's bits.
    struct Lanes {
        bytes: __m256i,
        shifts: __m256i,
        mask: __m256i,
    }

    /// Computes the constants for a vector with one half loaded from each of two places: the lower half's values begin
    /// `low_bits` bits after the first byte loaded, the upper half's `high_bits` bits after it.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn lanes<const LANE_BYTES: usize>(width: u32, low_bits: u32, high_bits: u32) -> Lanes {
        let (mut bytes, mut shifts, mut mask) = ([0u8; 32], [0u8; 32], [0u8; 32]);
        for (lane, n) in (0..32).step_by(LANE_BYTES).zip(0u32..) {
            let half = 16 / LANE_BYTES as u32;
            let bit = if n < half { low_bits } else { high_bits } + n % half * width;
            let place = match LANE_BYTES {
                // 16 bits are moved up to the upper byte by a multiplication.
                2 => 1 << (8 - bit % 8),
                _ => u64::from(bit % 8),
            };
            for byte in 0..LANE_BYTES {
                bytes[lane + byte] = (bit / 8) as u8 + byte as u8;
            }
            shifts[lane..][..LANE_BYTES].copy_from_slice(&place.to_le_bytes()[..LANE_BYTES]);
            mask[lane..][..LANE_BYTES].copy_from_slice(&bits::low(width).to_le_bytes()[..LANE_BYTES]);
        }
        Lanes { bytes: vector(&bytes), shifts: vector(&shifts), mask: vector(&mask) }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn vector(bytes: &[u8; 32]) -> __m256i {
        // SAFETY: the array has 32 bytes.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    /// Loads 16 bytes at `low` into a vector's lower half and 16 at `high` into its upper half.
    ///
    /// # Safety
    /// Both ranges must be readable.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn halves(low: *const u8, high: *const u8) -> __m256i {
        // SAFETY: as the caller.
        unsafe { _mm256_loadu2_m128i(high.cast(), low.cast()) }
    }

    /// Returns the number of steps for which every load ends within the data: a step takes `step_bytes`, and its last
    /// load begins `last_load` bytes after its first.
    fn steps(data: &[u8], step_bytes: usize, last_load: usize, count: usize, step_values: usize) -> usize {
        let by_data = data.len().checked_sub(last_load + 16).map_or(0, |spare| spare / step_bytes + 1);
        by_data.min(count / step_values)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn spread_groups<const BYTES: usize>(
        width: u32,
        reference: u64,
        data: &[u8],
        values: &mut [[u8; BYTES]],
    ) -> usize {
        let out = values.as_flattened_mut();
        match (BYTES, width) {
            (1, _) => bytes(width, reference, data, out),
            (2, _) => halfwords(width, reference, data, out),
            (4, ..=25) => words(width, reference, data, out),
            (4, _) => wide_words(width, reference, data, out),
            (8, ..=57) => doublewords(width, reference, data, out),
            _ => 0,
        }
    }

    #[target_feature(enable = "avx2")]
    fn bytes(width: u32, reference: u64, data: &[u8], out: &mut [u8]) -> usize {
        let lanes = lanes::<2>(width, 0, 0);
        let reference = _mm256_set1_epi8(reference as i8);
        let group = width as usize;
        let steps = steps(data, 4 * group, 3 * group, out.len(), 32);
        let out = &mut out.as_chunks_mut::<32>().0[..steps];
        for (step, out) in out.iter_mut().enumerate() {
            // SAFETY: `steps` holds the loads within `data`; `out` has 32 bytes.
            unsafe {
                let at = data.as_ptr().add(step * 4 * group);
                let first = halfwords_of(halves(at, at.add(2 * group)), &lanes);
                let second = halfwords_of(halves(at.add(group), at.add(3 * group)), &lanes);
                let all = _mm256_add_epi8(_mm256_packus_epi16(first, second), reference);
                _mm256_storeu_si256(out.as_mut_ptr().cast(), all);
            }
        }
        steps * 32
    }

    #[target_feature(enable = "avx2")]
    fn halfwords(width: u32, reference: u64, data: &[u8], out: &mut [u8]) -> usize {
        let half_bits = 4 * width % 8;
        let (first, second) = (lanes::<4>(width, 0, 0), lanes::<4>(width, half_bits, half_bits));
        let reference = _mm256_set1_epi16(reference as i16);
        let (group, half) = (width as usize, width as usize / 2);
        let steps = steps(data, 2 * group, group + half, out.len() / 2, 16);
        let out = &mut out.as_chunks_mut::<32>().0[..steps];
        for (step, out) in out.iter_mut().enumerate() {
            // SAFETY: `steps` holds the loads within `data`; `out` has 32 bytes.
            unsafe {
                let at = data.as_ptr().add(step * 2 * group);
                let first = words_of(halves(at, at.add(group)), &first);
                let second = words_of(halves(at.add(half), at.add(group + half)), &second);
                let all = _mm256_add_epi16(_mm256_packus_epi32(first, second), reference);
                _mm256_storeu_si256(out.as_mut_ptr().cast(), all);
            }
        }
        steps * 16
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn halfwords_of(packed: __m256i, lanes: &Lanes) -> __m256i {
        let there = _mm256_mullo_epi16(_mm256_shuffle_epi8(packed, lanes.bytes), lanes.shifts);
        _mm256_and_si256(_mm256_srli_epi16(there, 8), lanes.mask)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn words_of(packed: __m256i, lanes: &Lanes) -> __m256i {
        let there = _mm256_srlv_epi32(_mm256_shuffle_epi8(packed, lanes.bytes), lanes.shifts);
        _mm256_and_si256(there, lanes.mask)
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn doublewords_of(packed: __m256i, lanes: &Lanes) -> __m256i {
        let there = _mm256_srlv_epi64(_mm256_shuffle_epi8(packed, lanes.bytes), lanes.shifts);
        _mm256_and_si256(there, lanes.mask)
    }

    #[target_feature(enable = "avx2")]
    fn words(width: u32, reference: u64, data: &[u8], out: &mut [u8]) -> usize {
        let lanes = lanes::<4>(width, 0, 4 * width % 8);
        let reference = _mm256_set1_epi32(reference as i32);
        let (group, half) = (width as usize, width as usize / 2);
        let steps = steps(data, group, half, out.len() / 4, 8);
        let out = &mut out.as_chunks_mut::<32>().0[..steps];
        for (step, out) in out.iter_mut().enumerate() {
            // SAFETY: `steps` holds the loads within `data`; `out` has 32 bytes.
            unsafe {
                let at = data.as_ptr().add(step * group);
                let all = _mm256_add_epi32(words_of(halves(at, at.add(half)), &lanes), reference);
                _mm256_storeu_si256(out.as_mut_ptr().cast(), all);
            }
        }
        steps * 8
    }

    /// Returns the constants to unpack a group of eight values into lanes of 64 bits: a vector has two pairs of values,
    /// each loaded by itself; and the offset of each of the four loads in bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pairs(width: u32) -> ([Lanes; 2], [usize; 4]) {
        let bit = |pair: u32| 2 * pair * width % 8;
        let lanes = [lanes::<8>(width, 0, bit(1)), lanes::<8>(width, bit(2), bit(3))];
        (lanes, [0, 1, 2, 3].map(|pair| 2 * pair * width as usize / 8))
    }

    #[target_feature(enable = "avx2")]
    fn wide_words(width: u32, reference: u64, data: &[u8], out: &mut [u8]) -> usize {
        let ([first, second], loads) = pairs(width);
        let reference = _mm256_set1_epi32(reference as i32);
        let steps = steps(data, width as usize, loads[3], out.len() / 4, 8);
        let out = &mut out.as_chunks_mut::<32>().0[..steps];
        for (step, out) in out.iter_mut().enumerate() {
            // SAFETY: `steps` holds the loads within `data`; `out` has 32 bytes.
            unsafe {
                let at = data.as_ptr().add(step * width as usize);
                let first = doublewords_of(halves(at.add(loads[0]), at.add(loads[1])), &first);
                let second = doublewords_of(halves(at.add(loads[2]), at.add(loads[3])), &second);
                // The even words of both: 0, 1 and 4, 5 in the lower half, 2, 3 and 6, 7 in the upper.
                let even = _mm256_shuffle_ps(_mm256_castsi256_ps(first), _mm256_castsi256_ps(second), 0b10_00_10_00);
                let sorted = _mm256_permute4x64_epi64(_mm256_castps_si256(even), 0b11_01_10_00);
                _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_add_epi32(sorted, reference));
            }
        }
        steps * 8
    }

    #[target_feature(enable = "avx2")]
    fn doublewords(width: u32, reference: u64, data: &[u8], out: &mut [u8]) -> usize {
        let ([first, second], loads) = pairs(width);
        let reference = _mm256_set1_epi64x(reference as i64);
        let steps = steps(data, width as usize, loads[3], out.len() / 8, 8);
        let out = &mut out.as_chunks_mut::<64>().0[..steps];
        for (step, out) in out.iter_mut().enumerate() {
            // SAFETY: `steps` holds the loads within `data`; `out` has 64 bytes.
            unsafe {
                let at = data.as_ptr().add(step * width as usize);
                let first = doublewords_of(halves(at.add(loads[0]), at.add(loads[1])), &first);
                let second = doublewords_of(halves(at.add(loads[2]), at.add(loads[3])), &second);
                let out: *mut __m256i = out.as_mut_ptr().cast();
                _mm256_storeu_si256(out, _mm256_add_epi64(first, reference));
                _mm256_storeu_si256(out.add(1), _mm256_add_epi64(second, reference));
            }
        }
        steps * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Unpacks values bit by bit, for comparison.
    fn by_bits(element_bytes: usize, width: usize, reference: u64, data: &[u8], values: &mut [u8]) {
        for (n, value) in values.chunks_exact_mut(element_bytes).enumerate() {
            let bit = |k: usize| u64::from(data[(n * width + k) / 8] >> ((n * width + k) % 8) & 1);
            let number = (0..width).fold(0u64, |v, k| v | bit(k) << k).wrapping_add(reference);
            value.copy_from_slice(&number.to_le_bytes()[..element_bytes]);
        }
    }

    fn compare(element_bytes: usize, width: u32, reference: u64, count: usize, seed: u8) {
        let bytes = (count * width as usize).div_ceil(8);
        let data: Vec<u8> = (0..bytes).map(|i| (i * 97 + i / 5) as u8 ^ seed).collect();
        let mut found: [Vec<u8>; 3] = std::array::from_fn(|_| vec![0xa5; count * element_bytes]);
        let [fast, portable, slow] = &mut found;
        spread(element_bytes, width, reference, &data, fast);
        by_bits(element_bytes, width as usize, reference, &data, slow);
        assert!(fast == slow, "{count} values of {width} bits in {element_bytes} bytes");
        if width > 0 {
            match element_bytes {
                1 => one_by_one::<1>(width, reference, &data, portable.as_chunks_mut().0),
                2 => one_by_one::<2>(width, reference, &data, portable.as_chunks_mut().0),
                4 => one_by_one::<4>(width, reference, &data, portable.as_chunks_mut().0),
                _ => one_by_one::<8>(width, reference, &data, portable.as_chunks_mut().0),
            }
            assert!(portable == slow, "{count} values of {width} bits in {element_bytes} bytes, without vectors");
        }
    }

    #[test]
    fn every_width_of_every_size_agrees_with_the_slow_form() {
        for element_bytes in [1, 2, 4, 8] {
            for width in 0..=8 * element_bytes as u32 {
                for count in [0, 1, 7, 8, 31, 32, 33, 64, 100, 333] {
                    compare(element_bytes, width, 0xfedc_ba98_7654_3210, count, width as u8);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_data_agrees_with_the_slow_form(
            size in 0usize..4, width in 0u32..=64, count in 0usize..600, reference in any::<u64>(), seed in any::<u8>(),
        ) {
            compare(1 << size, width.min(8 << size), reference, count, seed);
        }
    }
}
