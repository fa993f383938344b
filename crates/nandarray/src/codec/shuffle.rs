//! Byte shuffle: groups equal bytes of all elements, that is byte `b` of every element, for each `b`.
//!
//! `n` elements of `e` bytes become `e` planes of `n` bytes; bytes after the last whole element remain at the end
//! unchanged. Sizes 2, 3, 4, 6, 8, 12 and 16 have their own kernels, which LLVM turns into vector permutes; for any
//! other size a loop copies bytes at a stride, one plane at a time.
//!
//! The result is the same as that of HDF5's and Blosc's shuffle. No crate offers this filter by itself (Blosc's is a
//! part of its container format), so it is implemented here. Measured with data in cache on one Sapphire Rapids core,
//! split / join in GB/s: 2 bytes 15 / 15, 4 bytes 12 / 18, 8 bytes 10 / 16, 16 bytes 4 / 2.4, sizes without a kernel 2
//! / 2 (see `measure.rs`).
//!
//! It does not work in place, and does not change a frame's length.

use super::isa::per_instruction_set;

/// Number of elements in one step of splitting; 16 was the fastest. A step copies its elements to or from the planes as
/// a whole and transposes them by constant indices only, so that LLVM can translate it to permutations of vectors.
const SPLIT_STEP: usize = 16;
/// Number of elements in one step of joining; 64 was the fastest.
const JOIN_STEP: usize = 64;

/// Size in bytes of the square that is transposed at once: eight words of eight bytes.
pub(super) const CUBE: usize = 64;

per_instruction_set! {
    /// Splits `raw` into byte planes. Panics unless both slices have the same length.
    fn shuffle(element_bytes: usize, raw: &[u8], planes: &mut [u8]) => shuffle_kernel
}

per_instruction_set! {
    /// Reverses [`shuffle`]. Panics unless both slices have the same length.
    fn unshuffle(element_bytes: usize, planes: &[u8], raw: &mut [u8]) => unshuffle_kernel
}

#[inline(always)]
fn shuffle_kernel(element_bytes: usize, raw: &[u8], planes: &mut [u8]) {
    assert_eq!(raw.len(), planes.len());
    let whole = raw.len() / element_bytes * element_bytes;
    let (raw, raw_tail) = raw.split_at(whole);
    let (planes, planes_tail) = planes.split_at_mut(whole);
    planes_tail.copy_from_slice(raw_tail);
    match element_bytes {
        1 => planes.copy_from_slice(raw),
        2 => split::<2>(raw, planes),
        3 => split::<3>(raw, planes),
        4 => split::<4>(raw, planes),
        6 => split::<6>(raw, planes),
        8 => split::<8>(raw, planes),
        12 => split::<12>(raw, planes),
        16 => split::<16>(raw, planes),
        _ => split_any(element_bytes, raw, planes),
    }
}

#[inline(always)]
fn unshuffle_kernel(element_bytes: usize, planes: &[u8], raw: &mut [u8]) {
    assert_eq!(raw.len(), planes.len());
    let whole = raw.len() / element_bytes * element_bytes;
    let (planes, planes_tail) = planes.split_at(whole);
    let (raw, raw_tail) = raw.split_at_mut(whole);
    raw_tail.copy_from_slice(planes_tail);
    match element_bytes {
        1 => raw.copy_from_slice(planes),
        2 => join::<2>(planes, raw),
        3 => join::<3>(planes, raw),
        4 => join::<4>(planes, raw),
        6 => join::<6>(planes, raw),
        8 => join::<8>(planes, raw),
        12 => join::<12>(planes, raw),
        16 => join::<16>(planes, raw),
        _ => join_any(element_bytes, planes, raw),
    }
}

#[inline(always)]
fn split<const E: usize>(raw: &[u8], planes: &mut [u8]) {
    let (elements, _) = raw.as_chunks::<E>();
    let count = elements.len();
    let (steps, rest) = elements.as_chunks::<SPLIT_STEP>();
    let done = steps.len() * SPLIT_STEP;
    for (index, step) in steps.iter().enumerate() {
        for byte in 0..E {
            let start = byte * count + index * SPLIT_STEP;
            for (out, element) in planes[start..start + SPLIT_STEP].iter_mut().zip(step) {
                *out = element[byte];
            }
        }
    }
    for (index, element) in rest.iter().enumerate() {
        for byte in 0..E {
            planes[byte * count + done + index] = element[byte];
        }
    }
}

#[inline(always)]
fn join<const E: usize>(planes: &[u8], raw: &mut [u8]) {
    let (elements, _) = raw.as_chunks_mut::<E>();
    let count = elements.len();
    let (steps, rest) = elements.as_chunks_mut::<JOIN_STEP>();
    let done = steps.len() * JOIN_STEP;
    for (index, step) in steps.iter_mut().enumerate() {
        let mut rows = [[0; JOIN_STEP]; E];
        for (byte, row) in rows.iter_mut().enumerate() {
            row.copy_from_slice(&planes[byte * count + index * JOIN_STEP..][..JOIN_STEP]);
        }
        for lane in 0..JOIN_STEP {
            for byte in 0..E {
                step[lane][byte] = rows[byte][lane];
            }
        }
    }
    for (index, element) in rest.iter_mut().enumerate() {
        for byte in 0..E {
            element[byte] = planes[byte * count + done + index];
        }
    }
}

/// Moves byte `k` of word `j` to byte `j` of word `k`, for eight words.
#[inline(always)]
pub(super) fn transpose_bytes(cube: &[u8; CUBE]) -> [u8; CUBE] {
    let mut out = [0; CUBE];
    for word in 0..8 {
        for byte in 0..8 {
            out[word * 8 + byte] = cube[byte * 8 + word];
        }
    }
    out
}

#[inline(always)]
fn split_any(element_bytes: usize, raw: &[u8], planes: &mut [u8]) {
    let count = raw.len() / element_bytes;
    if count == 0 {
        return;
    }
    for (byte, plane) in planes.chunks_exact_mut(count).enumerate() {
        for (out, element) in plane.iter_mut().zip(raw.chunks_exact(element_bytes)) {
            *out = element[byte];
        }
    }
}

#[inline(always)]
fn join_any(element_bytes: usize, planes: &[u8], raw: &mut [u8]) {
    let count = raw.len() / element_bytes;
    if count == 0 {
        return;
    }
    for (byte, plane) in planes.chunks_exact(count).enumerate() {
        for (value, element) in plane.iter().zip(raw.chunks_exact_mut(element_bytes)) {
            element[byte] = *value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shuffles by the definition, one byte at a time, for comparison.
    fn by_definition(element_bytes: usize, raw: &[u8]) -> Vec<u8> {
        let count = raw.len() / element_bytes;
        let mut planes = raw.to_vec();
        for element in 0..count {
            for byte in 0..element_bytes {
                planes[byte * count + element] = raw[element * element_bytes + byte];
            }
        }
        planes
    }

    #[test]
    fn agrees_with_the_definition_and_inverts() {
        for element_bytes in (1..=17).chain([24, 31, 32, 64, 65, 1000]) {
            for length in [0, 1, 7, 63, 64, 65, 511, 512, 1024, 4096, 5003] {
                let raw: Vec<u8> = (0..length).map(|i| (i * 131 + i / 251) as u8).collect();
                let mut planes = vec![0; length];
                let mut back = vec![0; length];
                type Kernel = fn(usize, &[u8], &mut [u8]);
                for (split, join) in [(shuffle as Kernel, unshuffle as Kernel), (shuffle_kernel, unshuffle_kernel)] {
                    split(element_bytes, &raw, &mut planes);
                    assert_eq!(planes, by_definition(element_bytes, &raw), "{element_bytes} x {length}");
                    join(element_bytes, &planes, &mut back);
                    assert_eq!(back, raw, "{element_bytes} x {length}");
                }
            }
        }
    }
}
