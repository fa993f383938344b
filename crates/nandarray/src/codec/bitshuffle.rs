//! Bit shuffle: groups equal bits of all elements, that is bit `k` of byte `b` of every element, for each `b` and `k`.
//!
//! The largest multiple of eight elements is split into byte planes (see [`super::shuffle`]), and each plane of `n`
//! bytes into eight rows of `n / 8` bytes: bit `i` of byte `j` of row `k` is bit `k` of element `8 j + i`. Elements
//! after the last group of eight, and bytes after the last element, remain at the end unchanged. This is the order of
//! the `bitshuffle` library (Masui et al. 2015), applied to one frame.
//!
//! The kernel moves an 8 x 8 x 8 cube of bits (64 bytes of a plane) at a time: it transposes the bits within each
//! 64-bit word (Warren, "Hacker's Delight", 7-3) and the bytes between the eight words. Both are their own inverse, so
//! the inverse uses the same cube with rows and plane exchanged. Measured with data in cache on one Sapphire Rapids
//! core, shuffle / unshuffle in GB/s: 1 byte 8 / 4.3, 4 bytes 4.9 / 3.6, 8 bytes 4.3 / 2.6, 16 bytes 2.3 / 1.4 (see
//! `measure.rs`).
//!
//! It does not work in place, and does not change a frame's length.

use super::isa::per_instruction_set;
use super::shuffle::{CUBE, shuffle, transpose_bytes, unshuffle};

/// Number of elements in a group: the bits of one output byte.
const GROUP: usize = 8;

const _: () = assert!(CUBE == GROUP * 8, "a cube is eight groups");

/// Splits `raw` into bit rows. `scratch` is working memory of any content. Panics unless `raw` and `rows` have the same
/// length.
pub(super) fn bit_shuffle(element_bytes: usize, raw: &[u8], rows: &mut [u8], scratch: &mut Vec<u8>) {
    assert_eq!(raw.len(), rows.len());
    let whole = whole_groups_bytes(element_bytes, raw.len());
    rows[whole..].copy_from_slice(&raw[whole..]);
    if element_bytes == 1 {
        return planes_to_rows(1, &raw[..whole], &mut rows[..whole]);
    }
    scratch.resize(whole, 0);
    shuffle(element_bytes, &raw[..whole], scratch);
    planes_to_rows(element_bytes, scratch, &mut rows[..whole]);
}

/// Reverses [`bit_shuffle`]. `scratch` is working memory of any content. Panics unless `rows` and `raw` have the same
/// length.
pub(super) fn bit_unshuffle(element_bytes: usize, rows: &[u8], raw: &mut [u8], scratch: &mut Vec<u8>) {
    assert_eq!(raw.len(), rows.len());
    let whole = whole_groups_bytes(element_bytes, raw.len());
    raw[whole..].copy_from_slice(&rows[whole..]);
    if element_bytes == 1 {
        return rows_to_planes(1, &rows[..whole], &mut raw[..whole]);
    }
    scratch.resize(whole, 0);
    rows_to_planes(element_bytes, &rows[..whole], scratch);
    unshuffle(element_bytes, scratch, &mut raw[..whole]);
}

fn whole_groups_bytes(element_bytes: usize, bytes: usize) -> usize {
    let group_bytes = GROUP * element_bytes;
    bytes / group_bytes * group_bytes
}

per_instruction_set! {
    /// Splits each of `plane_count` byte planes, which consist of whole groups, into eight bit rows.
    fn planes_to_rows(plane_count: usize, planes: &[u8], rows: &mut [u8]) => planes_to_rows_kernel
}

per_instruction_set! {
    /// Reverses [`planes_to_rows`].
    fn rows_to_planes(plane_count: usize, rows: &[u8], planes: &mut [u8]) => rows_to_planes_kernel
}

#[inline(always)]
fn planes_to_rows_kernel(plane_count: usize, planes: &[u8], rows: &mut [u8]) {
    let plane_bytes = planes.len() / plane_count;
    if plane_bytes == 0 {
        return;
    }
    let row_bytes = plane_bytes / GROUP;
    for (plane, rows) in planes.chunks_exact(plane_bytes).zip(rows.chunks_exact_mut(plane_bytes)) {
        let (cubes, rest) = plane.as_chunks::<CUBE>();
        for (index, cube) in cubes.iter().enumerate() {
            let cube = transpose_bytes(&transpose_bits(cube));
            for (row, bytes) in cube.as_chunks::<8>().0.iter().enumerate() {
                rows[row * row_bytes + index * 8..][..8].copy_from_slice(bytes);
            }
        }
        for (index, group) in rest.as_chunks::<GROUP>().0.iter().enumerate() {
            for (row, byte) in transpose_word(*group).into_iter().enumerate() {
                rows[row * row_bytes + cubes.len() * 8 + index] = byte;
            }
        }
    }
}

#[inline(always)]
fn rows_to_planes_kernel(plane_count: usize, rows: &[u8], planes: &mut [u8]) {
    let plane_bytes = planes.len() / plane_count;
    if plane_bytes == 0 {
        return;
    }
    let row_bytes = plane_bytes / GROUP;
    for (rows, plane) in rows.chunks_exact(plane_bytes).zip(planes.chunks_exact_mut(plane_bytes)) {
        let (cubes, rest) = plane.as_chunks_mut::<CUBE>();
        let done = cubes.len() * 8;
        for (index, cube) in cubes.iter_mut().enumerate() {
            let mut bits = [0; CUBE];
            for (row, bytes) in bits.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                bytes.copy_from_slice(&rows[row * row_bytes + index * 8..][..8]);
            }
            *cube = transpose_bits(&transpose_bytes(&bits));
        }
        for (index, group) in rest.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            *group = transpose_word(std::array::from_fn(|row| rows[row * row_bytes + done + index]));
        }
    }
}

/// Moves bit `k` of byte `i` to bit `i` of byte `k`, in each of the eight words.
#[inline(always)]
fn transpose_bits(cube: &[u8; CUBE]) -> [u8; CUBE] {
    let mut out = [0; CUBE];
    for (out, word) in out.as_chunks_mut::<8>().0.iter_mut().zip(cube.as_chunks::<8>().0) {
        *out = transpose_word(*word);
    }
    out
}

#[inline(always)]
fn transpose_word(word: [u8; 8]) -> [u8; 8] {
    let mut x = u64::from_le_bytes(word);
    for (shift, mask) in [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0)] {
        let swapped = (x ^ (x >> shift)) & mask;
        x ^= swapped ^ (swapped << shift);
    }
    x.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shuffles by the definition, one bit at a time, for comparison.
    fn by_definition(element_bytes: usize, raw: &[u8]) -> Vec<u8> {
        let count = raw.len() / element_bytes / 8 * 8;
        let mut rows = raw.to_vec();
        rows[..count * element_bytes].fill(0);
        for element in 0..count {
            for bit in 0..element_bytes * 8 {
                let value = raw[element * element_bytes + bit / 8] >> (bit % 8) & 1;
                rows[bit * (count / 8) + element / 8] |= value << (element % 8);
            }
        }
        rows
    }

    #[test]
    fn agrees_with_the_definition_and_inverts() {
        let mut scratch = vec![9; 3];
        for element_bytes in (1..=9).chain([12, 16, 33, 64]) {
            for length in [0, 1, 7, 8, 63, 64, 65, 511, 512, 1024, 4096, 5003] {
                let raw: Vec<u8> = (0..length).map(|i| (i * 131 + i / 251) as u8).collect();
                let mut rows = vec![0; length];
                bit_shuffle(element_bytes, &raw, &mut rows, &mut scratch);
                assert_eq!(rows, by_definition(element_bytes, &raw), "{element_bytes} x {length}");
                let mut back = vec![0; length];
                bit_unshuffle(element_bytes, &rows, &mut back, &mut scratch);
                assert_eq!(back, raw, "{element_bytes} x {length}");
            }
        }
    }

    #[test]
    fn every_instruction_set_computes_the_same_rows() {
        let planes: Vec<u8> = (0..4 * 1096).map(|i| (i * 37 + i / 201) as u8).collect();
        let (mut fast, mut portable, mut back) = (vec![0; planes.len()], vec![0; planes.len()], vec![0; planes.len()]);
        planes_to_rows(4, &planes, &mut fast);
        planes_to_rows_kernel(4, &planes, &mut portable);
        assert_eq!(fast, portable);
        rows_to_planes_kernel(4, &portable, &mut back);
        assert_eq!(back, planes);
    }
}
