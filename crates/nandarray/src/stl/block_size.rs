//! How large a building block is: equations 1 to 4 of the NDS paper (section 4.1), and what they leave open.
//!
//! The equations give equal power-of-two sides over one, two or three dimensions so that a block covers every channel
//! (and, in three dimensions, every bank). They leave open what happens in a space that is narrower than a side; here a side
//! never exceeds the next power of two of its dimension, and the volume that frees goes to the narrowest other side, at last
//! to the slowest-varying one, along which arrays grow. The paper's "first" dimension is the fastest-varying one, the last in
//! NumPy's order; blocks span the last dimensions and have size 1 in all before them.
//!
//! This file does arithmetic only; who overrides the result is decided where spaces are made.

use crate::error::{Error, Result, Shape};
use crate::flash::Geometry;

/// The most access units that a building block may have (the index counts them in 16 bits).
pub const UNITS_MAX: u64 = 1 << 16;
/// The most bytes that a building block may have.
pub const BLOCK_BYTES_MAX: u64 = 256 << 20;
/// The most dimensions of a space (NDS paper, section 5.3.1).
pub const DIMENSIONS_MAX: usize = 32;

/// The shape of the building block for a space of this shape and element size (bytes).
pub fn building_block(geometry: &Geometry, shape: &[u64], item_bytes: u64) -> Vec<u64> {
    assert!(!shape.is_empty() && item_bytes > 0);
    let k = shape.len().min(3);
    let min_bytes = match k {
        3 => geometry.building_block_min_bytes() * u64::from(geometry.banks),
        _ => geometry.building_block_min_bytes(),
    };
    let elements = (min_bytes / item_bytes).max(1);
    // Equations 2 and 4: side = 2^ceil(log2(elements) / k), in integers.
    let log2 = elements.next_power_of_two().trailing_zeros();
    let side = 1u64 << log2.div_ceil(k as u32);
    let volume = (0..k).fold(1u64, |v, _| v.saturating_mul(side));

    let outer = shape.len() - k;
    let cap = |d: u64| if d == 0 { u64::MAX } else { d.checked_next_power_of_two().unwrap_or(u64::MAX) };
    let caps: Vec<u64> = shape[outer..].iter().map(|&d| cap(d)).collect();
    let mut sides: Vec<u64> = caps.iter().map(|&c| side.min(c)).collect();
    while sides.iter().product::<u64>() < volume {
        // The narrowest side that may still grow; among equals the slowest-varying.
        match (0..k).filter(|&i| sides[i] < caps[i]).min_by_key(|&i| sides[i]) {
            Some(i) => sides[i] *= 2,
            None => sides[0] *= 2,
        }
    }
    let mut block = vec![1; outer];
    block.extend(sides);
    block
}

/// Checks a block shape given by the user.
///
/// # Errors
/// [`Error::Invalid`] with the numbers.
pub fn check_override(geometry: &Geometry, shape: &[u64], item_bytes: u64, block: &[u64]) -> Result<()> {
    if block.len() != shape.len() {
        return Err(Error::invalid(format!(
            "building block {} has {} dimensions; the array has {}",
            Shape(block),
            block.len(),
            shape.len()
        )));
    }
    if block.contains(&0) {
        return Err(Error::invalid(format!("building block {} has a side of 0", Shape(block))));
    }
    let bytes = block.iter().try_fold(item_bytes, |v, &b| v.checked_mul(b)).unwrap_or(u64::MAX);
    let max = BLOCK_BYTES_MAX.min(UNITS_MAX * u64::from(geometry.page_bytes));
    if bytes > max {
        return Err(Error::invalid(format!("building block {} takes {bytes} bytes; the most is {max}", Shape(block))));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Geometry = Geometry { page_bytes: 4096, channels: 8, banks: 2, pages_per_block: 64 };

    #[test]
    fn the_papers_example() {
        // Section 4.1: 8 channels of 4 KB pages, 4-byte elements, two dimensions: 128 x 128, 64 KB.
        assert_eq!(building_block(&PAPER, &[8192, 8192], 4), [128, 128]);
        // Section 4.2: the same block in a three-dimensional space only 4 deep comes out as large.
        let b = building_block(&PAPER, &[4, 8192, 8192], 4);
        assert!(b.iter().product::<u64>() * 4 >= 8 * 4096 * 2);
        assert_eq!(b[0], 4);
    }

    #[test]
    fn sides_are_equal_powers_of_two_where_the_space_is_wide() {
        assert_eq!(building_block(&Geometry::FILE, &[16384, 16384], 4), [256, 256]);
        assert_eq!(building_block(&Geometry::FILE, &[1 << 40], 1), [1 << 18]);
        assert_eq!(building_block(&Geometry::FILE, &[640, 640, 640], 4), [64, 64, 64]);
        assert_eq!(building_block(&Geometry::FILE, &[64, 64, 256, 256], 4), [1, 64, 64, 64]);
        assert_eq!(building_block(&Geometry::FILE, &[1000, 1000], 12), [256, 256]);
    }

    #[test]
    fn narrow_spaces_give_their_volume_to_other_sides() {
        let b = building_block(&Geometry::FILE, &[1000, 1000, 3], 1);
        assert_eq!(b[2], 4);
        assert_eq!(b.iter().product::<u64>(), 1 << 18);
        assert_eq!(building_block(&Geometry::FILE, &[0, 1000], 4), [256, 256]);
        assert_eq!(building_block(&Geometry::FILE, &[1, 1000], 4), [64, 1024]);
    }

    #[test]
    fn overrides_are_checked_with_numbers() {
        let e = check_override(&Geometry::FILE, &[10, 10], 4, &[1 << 20, 1 << 20]).unwrap_err();
        assert!(e.to_string().contains("4398046511104"), "{e}");
        assert!(check_override(&Geometry::FILE, &[10, 10], 4, &[1]).is_err());
        assert!(check_override(&Geometry::FILE, &[10, 10], 4, &[0, 1]).is_err());
        check_override(&Geometry::FILE, &[10, 10], 4, &[3, 7]).unwrap();
    }
}
