//! Default size of a building block: equations 1 to 4 of the NDS paper (section 4.1), and two cases that they leave
//! open.
//!
//! The equations give equal power-of-two sides along one, two or three dimensions, so that a block covers every channel
//! (and, in three dimensions, every bank). They leave two cases open.
//!
//! * A space that is narrower than a side: here a side never exceeds the next power of two of its dimension. The volume
//!   that this frees enlarges the shortest of the other sides, and if none may grow the slowest-varying one, along
//!   which arrays grow.
//! * Four and more dimensions: the equations' volume is split among all of them, so that no axis has sides of 1 while
//!   others are long ([`balanced`]; docs/design/004-building-blocks-of-many-dimensions.md).
//!
//! The paper's "first" dimension is the fastest-varying one, the last in NumPy's order.
//!
//! This file only computes; the caller that creates a space decides whether to override the result.

use crate::error::{Error, Result, Shape};
use crate::flash::Geometry;

/// Largest number of access units of a building block (the index stores unit numbers in 16 bits).
pub const UNITS_MAX: u64 = 1 << 16;
/// Largest number of bytes of a building block.
pub const BLOCK_BYTES_MAX: u64 = 256 << 20;
/// Largest number of dimensions of a space (NDS paper, section 5.3.1).
pub const DIMENSIONS_MAX: usize = 32;

/// Largest ratio of a page's size to a block's in arrays of more than [`SMALL_BLOCKS_MAX`] blocks: each block takes at
/// least one page, so smaller blocks would waste too much.
const SMALL_BLOCK_COST_MAX: u64 = 64;
/// Largest number of blocks of an array whose blocks may have any size; this many take 64 MiB with pages of 4 KiB.
const SMALL_BLOCKS_MAX: u64 = 1 << 14;

/// Shortest last side, in bytes, of a block of four or more dimensions, unless the array or the block is smaller: a
/// cache line of the processor. A shorter side costs as much to fetch and more to copy.
const RUN_BYTES_MIN: u64 = 64;

/// Returns the default shape of the building block, in elements, for a space of this shape and element size in bytes.
pub fn building_block(geometry: &Geometry, shape: &[u64], item_bytes: u64) -> Vec<u64> {
    assert!(!shape.is_empty() && item_bytes > 0);
    let k = shape.len();
    let min_bytes = match k {
        1 | 2 => geometry.building_block_min_bytes(),
        _ => geometry.building_block_min_bytes() * u64::from(geometry.banks),
    };
    let elements = (min_bytes / item_bytes).max(1).next_power_of_two();
    let cap = |d: u64| if d == 0 { u64::MAX } else { d.checked_next_power_of_two().unwrap_or(u64::MAX) };
    let caps: Vec<u64> = shape.iter().map(|&d| cap(d)).collect();
    if k > 3 { balanced(elements, &caps, item_bytes) } else { equal(elements, &caps) }
}

/// Returns the sides of a block of `elements` elements by equations 2 and 4 of the NDS paper: 2^ceil(log2(elements) /
/// k) along each of k dimensions, but no side longer than its entry in `caps`. For sides that are cut to their cap,
/// others grow until the block has as many elements as without caps.
fn equal(elements: u64, caps: &[u64]) -> Vec<u64> {
    let k = caps.len();
    let side = 1u64 << elements.trailing_zeros().div_ceil(k as u32);
    let volume = (0..k).fold(1u64, |v, _| v.saturating_mul(side));
    let mut sides: Vec<u64> = caps.iter().map(|&c| side.min(c)).collect();
    while sides.iter().product::<u64>() < volume {
        // The shortest side that may still grow; among equal ones the slowest-varying.
        match (0..k).filter(|&i| sides[i] < caps[i]).min_by_key(|&i| sides[i]) {
            Some(i) => sides[i] *= 2,
            None => sides[0] *= 2,
        }
    }
    debug_assert!(sides.iter().all(|side| side.is_power_of_two()), "{sides:?}");
    sides
}

/// Returns the sides of a block of four or more dimensions by equation 4 of the NDS paper, but without rounding up
/// every side, which would make blocks of five dimensions sixteen times as large as necessary. The product of the sides
/// is `elements`. The sides are as equal as powers of two within the caps can be, and otherwise the faster-varying ones
/// are longer; the last one has at least [`RUN_BYTES_MIN`] bytes.
fn balanced(elements: u64, caps: &[u64], item_bytes: u64) -> Vec<u64> {
    let mut sides = vec![1; caps.len()];
    let (last, last_cap) = (sides.len() - 1, caps[caps.len() - 1]);
    sides[last] = RUN_BYTES_MIN.div_ceil(item_bytes).next_power_of_two().min(last_cap).min(elements);
    while sides.iter().product::<u64>() < elements {
        // The shortest side that may still grow; among equal ones the fastest-varying.
        match (0..sides.len()).rev().filter(|&i| sides[i] < caps[i]).min_by_key(|&i| sides[i]) {
            Some(i) => sides[i] *= 2,
            None => sides[0] *= 2,
        }
    }
    debug_assert_eq!(sides.iter().product::<u64>(), elements, "{sides:?}");
    sides
}

/// Checks a block shape that the user chose instead of the default.
///
/// # Errors
/// [`Error::Invalid`] with the numbers, e.g. if the block is too large, or so small that it wastes most of a page.
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
    let page = u64::from(geometry.page_bytes);
    let blocks = shape.iter().zip(block).fold(1u64, |n, (&d, &b)| n.saturating_mul(d.div_ceil(b)));
    if blocks > SMALL_BLOCKS_MAX && bytes.saturating_mul(SMALL_BLOCK_COST_MAX) < page {
        return Err(Error::invalid(format!(
            "building block {} has {bytes} bytes, and takes a page of {page} bytes on its own: the {blocks} of this \
             array would take {} times what they hold; give larger sides, or none for {}",
            Shape(block),
            page / bytes,
            Shape(&building_block(geometry, shape, item_bytes))
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Layout;

    const PAPER: Geometry =
        Geometry { page_bytes: 4096, channels: 8, banks: 2, pages_per_block: 64, layout: Layout::NEWEST };

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
        assert_eq!(building_block(&Geometry::FILE, &[1000, 1000], 12), [256, 256]);
    }

    #[test]
    fn four_and_more_dimensions_share_the_volume() {
        let block = |shape: &[u64], item_bytes| building_block(&Geometry::FILE, shape, item_bytes);
        assert_eq!(block(&[128; 4], 4), [16; 4]);
        assert_eq!(block(&[128; 4], 1), [16, 16, 16, 64]);
        assert_eq!(block(&[128; 4], 8), [8, 16, 16, 16]);
        assert_eq!(block(&[128; 5], 4), [8, 8, 8, 8, 16]);
        // Six: 2^16 elements would give a last side of 8, half a cache line.
        assert_eq!(block(&[128; 6], 4), [4, 4, 4, 8, 8, 16]);
        // Time, colour, height, width; three colours leave their volume to the others.
        assert_eq!(block(&[1000, 3, 512, 512], 4), [16, 4, 32, 32]);
        // A last dimension that is short cannot be a cache line; an array that begins empty may grow anywhere.
        assert_eq!(block(&[500, 500, 500, 2], 4), [32, 32, 32, 2]);
        assert_eq!(block(&[0, 64, 64, 64], 4), [16; 4]);
        assert_eq!(block(&[1, 1, 1, 1], 4), [1 << 16, 1, 1, 1]);
        assert_eq!(block(&[128; 4], 1 << 20), [1; 4]);
    }

    #[test]
    fn blocks_of_many_dimensions_keep_their_promises() {
        for geometry in [PAPER, Geometry::FILE, Geometry::TINY] {
            for (k, item_bytes, dim) in (4..=DIMENSIONS_MAX)
                .flat_map(|k| [1u64, 2, 4, 8, 12, 16, 100].map(|item| (k, item)))
                .flat_map(|(k, item)| [2, 3, 17, 128, 1 << 40, u64::MAX].map(|dim| (k, item, dim)))
            {
                let b = building_block(&geometry, &vec![dim; k], item_bytes);
                let min_bytes = geometry.building_block_min_bytes() * u64::from(geometry.banks);
                let elements: u64 = b.iter().product();
                assert_eq!(
                    elements,
                    (min_bytes / item_bytes).next_power_of_two(),
                    "{b:?} of {dim}, {item_bytes} bytes"
                );
                assert!(
                    b[k - 1] * item_bytes >= RUN_BYTES_MIN.min(item_bytes.saturating_mul(dim)),
                    "{b:?} of {dim}, {item_bytes} bytes"
                );
                // All sides but the last, where it is lengthened, are within a factor of two.
                let (low, high) = (b[..k - 1].iter().min().unwrap(), b[..k - 1].iter().max().unwrap());
                assert!(dim < 128 || high <= &(2 * low), "{b:?} of {dim}, {item_bytes} bytes");
                assert!(b.is_sorted() || dim < 128, "{b:?} of {dim}, {item_bytes} bytes");
            }
        }
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
        // Small blocks are for small arrays.
        check_override(&Geometry::FILE, &[128, 128], 1, &[1, 1]).unwrap();
        check_override(&Geometry::FILE, &[1 << 40, 1 << 40], 1, &[8, 8]).unwrap();
        let e = check_override(&Geometry::FILE, &[300, 300], 1, &[1, 1]).unwrap_err();
        assert!(e.to_string().contains("the 90000 of this array would take 4096 times what they hold"), "{e}");
    }
}
