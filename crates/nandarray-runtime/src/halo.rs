//! Halos: tiles of a box with the elements around them, and what stands for those beyond the box.
//!
//! An input with a halo is passed as one sequence: tile after tile, each with its halo, so that elements near an edge
//! of a tile come several times. Beyond the box a [`Boundary`] says what an element is. Axes are filled one after the
//! other, so that the last axis decides the corners. Nothing here accesses the store: the caller reads boxes.

use std::ops::Range;

use nandarray::{Error, Result};
use nandarray_cores::TaskPlace;

use crate::tiles::{Tiles, packed};

/// Maximum number of tiles with a halo: the place of each is kept, and a host may ask for them.
const HALO_TILES_MAX: u64 = 1 << 22;

/// The elements beyond an end of a box, along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// Nothing: tiles at the end have no halo there.
    Cut,
    /// The box mirrored: the element at the end comes twice.
    Reflect,
    /// The box again.
    Periodic,
    /// The element at the end.
    Nearest,
    /// These bytes, of one element.
    Constant(Vec<u8>),
}

impl Boundary {
    /// Returns the boundary of a name: `none`, `reflect`, `periodic`, `nearest`, or `constant` with its bytes.
    pub fn named(word: &str, constant: &[u8]) -> Option<Self> {
        match word {
            "none" => Some(Self::Cut),
            "reflect" => Some(Self::Reflect),
            "periodic" => Some(Self::Periodic),
            "nearest" => Some(Self::Nearest),
            "constant" => Some(Self::Constant(constant.to_vec())),
            _ => None,
        }
    }
}

/// The halo of an input's tiles.
#[derive(Clone, Copy, Debug)]
pub struct Halo<'a> {
    /// Number of elements before and behind a tile, along each dimension of the box.
    pub depth: &'a [u64],
    /// Elements beyond the box, along each dimension.
    pub boundary: &'a [Boundary],
}

/// Consecutive elements along an axis: place in the tile with its halo, coordinate in the box, number.
type HaloRun = (u64, u64, u64);

/// A tile with its halo, along one axis.
#[derive(Debug)]
struct HaloSide {
    /// First coordinate and extent of the tile itself.
    own: (u64, u64),
    /// Extent with both halos.
    all: u64,
    /// Elements that are read.
    runs: Vec<HaloRun>,
}

/// The tiles of a box with their halos, in order.
#[derive(Debug)]
pub(crate) struct HaloTiles<'a> {
    tiles: Tiles<'a>,
    halo: Halo<'a>,
    count: &'a [u64],
    /// Number of elements before each tile, then of all.
    edges: Vec<u64>,
}

impl<'a> HaloTiles<'a> {
    /// Makes the tiles of a box of `count` elements along each dimension, of `item` bytes each.
    ///
    /// # Errors
    /// The halo has other dimensions than the box, is deeper than the box, or a constant has another size.
    pub(crate) fn new(tiles: Tiles<'a>, halo: Halo<'a>, count: &'a [u64], item: u64) -> Result<Self> {
        let n = count.len();
        if [halo.depth.len(), halo.boundary.len()] != [n; 2] {
            return Err(Error::invalid(format!("a halo of {} dimensions of a box of {n}", halo.depth.len())));
        }
        for axis in 0..n {
            let (depth, count) = (halo.depth[axis], count[axis]);
            if depth > count {
                return Err(Error::invalid(format!(
                    "a halo of {depth} elements along axis {axis} must be at most the box's {count}"
                )));
            }
            if let Boundary::Constant(bytes) = &halo.boundary[axis] {
                if bytes.len() as u64 != item {
                    let got = bytes.len();
                    return Err(Error::invalid(format!("a constant beyond the box of {got} bytes must have {item}")));
                }
            }
        }
        let number = tiles.number(count);
        if number > HALO_TILES_MAX {
            return Err(Error::invalid(format!("{number} tiles with a halo, at most {HALO_TILES_MAX} are possible")));
        }
        let mut this = Self { tiles, halo, count, edges: vec![0] };
        let mut end = 0u64;
        for tile in 0..tiles.number(count) {
            let all = this.sides(tile).iter().try_fold(1u64, |all, side| all.checked_mul(side.all));
            end = (all.and_then(|all| end.checked_add(all)).filter(|end| end.checked_mul(item).is_some()))
                .ok_or_else(|| Error::invalid("the tiles of an input with their halos are too large"))?;
            this.edges.push(end);
        }
        Ok(this)
    }

    /// Returns the number of elements of all tiles with their halos.
    pub(crate) fn elements(&self) -> u64 {
        self.edges[self.edges.len() - 1]
    }

    /// Returns 0, then the number of elements before the end of each tile.
    pub(crate) fn edges(&self) -> &[u64] {
        &self.edges
    }

    /// Returns the place of the tile that holds an element of the sequence.
    pub(crate) fn place(&self, element: u64) -> TaskPlace {
        let sides = self.sides(self.holding(element));
        let told = |of: &dyn Fn(usize) -> u64| self.tiles.extent_axes.iter().map(|&axis| of(axis)).collect();
        TaskPlace {
            extents: told(&|axis| sides[axis].all),
            inner: told(&|axis| sides[axis].own.1),
            first: told(&|axis| sides[axis].own.0),
            total: told(&|axis| self.count[axis]),
            paces: Vec::new(),
        }
    }

    /// Fills `into` with a range of the sequence. `read` reads a box, by its first coordinates and its size, into
    /// memory with the strides given in bytes.
    pub(crate) fn read(
        &self,
        elements: Range<u64>,
        item: u64,
        into: &mut [u8],
        read: &mut dyn FnMut(&[u64], &[u64], &[isize], &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut at = elements.start;
        while at < elements.end {
            let tile = self.holding(at);
            let (low, high) = (self.edges[tile as usize], self.edges[tile as usize + 1]);
            let end = high.min(elements.end);
            let place = |element: u64| ((element - elements.start) * item) as usize;
            if (at, end) == (low, high) {
                self.fill(tile, item, &mut into[place(at)..place(end)], read)?;
            } else {
                let mut whole = vec![0; ((high - low) * item) as usize];
                self.fill(tile, item, &mut whole, read)?;
                let skip = ((at - low) * item) as usize;
                let part = &mut into[place(at)..place(end)];
                part.copy_from_slice(&whole[skip..skip + part.len()]);
            }
            at = end;
        }
        Ok(())
    }

    /// Returns the number of the tile that holds an element of the sequence.
    fn holding(&self, element: u64) -> u64 {
        self.edges.partition_point(|edge| *edge <= element) as u64 - 1
    }

    /// Returns a tile with its halo, along each axis.
    fn sides(&self, tile: u64) -> Vec<HaloSide> {
        let spans = self.tiles.spans(self.count, tile);
        let side = |(axis, own): (usize, (u64, u64))| {
            let (low, size) = own;
            let (depth, count) = (self.halo.depth[axis], self.count[axis]);
            let end = low + size;
            // Elements of the halo within the box, and those beyond it.
            let (inside, behind) = (depth.min(low), depth.min(count - end));
            let (missing, beyond) = match self.halo.boundary[axis] {
                Boundary::Cut => (0, 0),
                _ => (depth - inside, depth - behind),
            };
            let mut runs = vec![(missing, low - inside, inside + size + behind)];
            if self.halo.boundary[axis] == Boundary::Periodic {
                runs.push((0, count - missing, missing));
                runs.push((missing + inside + size + behind, 0, beyond));
            }
            runs.retain(|run| run.2 > 0);
            HaloSide { own, all: missing + inside + size + behind + beyond, runs }
        };
        spans.into_iter().enumerate().map(side).collect()
    }

    /// Fills the memory of a tile with its halo.
    fn fill(
        &self,
        tile: u64,
        item: u64,
        into: &mut [u8],
        read: &mut dyn FnMut(&[u64], &[u64], &[isize], &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let sides = self.sides(tile);
        let sizes: Vec<u64> = sides.iter().map(|side| side.all).collect();
        let strides = packed(&sizes, item);
        each_choice(&sides, &mut |runs| {
            let first: Vec<u64> = runs.iter().map(|run| run.1).collect();
            let size: Vec<u64> = runs.iter().map(|run| run.2).collect();
            let at: usize = runs.iter().zip(&strides).map(|(run, stride)| run.0 as usize * *stride as usize).sum();
            read(&first, &size, &strides, &mut into[at..])
        })?;
        for (axis, side) in sides.iter().enumerate() {
            let inner = strides[axis] as usize;
            let outer: u64 = sizes[..axis].iter().product();
            let (from, to) = (side.runs[0].0, side.runs[0].0 + side.runs[0].2);
            if self.halo.boundary[axis] == Boundary::Periodic {
                continue;
            }
            for row in (0..from).chain(to..side.all) {
                let source = match self.halo.boundary[axis] {
                    Boundary::Nearest => row.clamp(from, to - 1),
                    Boundary::Reflect if row < from => 2 * from - 1 - row,
                    Boundary::Reflect => 2 * to - 1 - row,
                    _ => row,
                };
                for block in 0..outer {
                    let place = |row: u64| ((block * side.all + row) as usize) * inner;
                    match &self.halo.boundary[axis] {
                        Boundary::Constant(bytes) => into[place(row)..place(row) + inner]
                            .chunks_exact_mut(item as usize)
                            .for_each(|one| one.copy_from_slice(bytes)),
                        _ => into.copy_within(place(source)..place(source) + inner, place(row)),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Calls `each` with every choice of one run along each axis.
fn each_choice(sides: &[HaloSide], each: &mut dyn FnMut(&[HaloRun]) -> Result<()>) -> Result<()> {
    let all: usize = sides.iter().map(|side| side.runs.len()).product();
    for mut choice in 0..all {
        let chosen = sides.iter().map(|side| {
            let run = side.runs[choice % side.runs.len()];
            choice /= side.runs.len();
            run
        });
        each(&chosen.collect::<Vec<_>>())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_with_a_halo_are_limited_in_number_depth_and_constant() {
        let made = |count: u64, depth: u64, boundary: Boundary| {
            let tiles = Tiles { first: &[1], size: &[1], extent_axes: &[], halo: None };
            let (depth, boundary, count) = ([depth], [boundary], [count]);
            HaloTiles::new(tiles, Halo { depth: &depth, boundary: &boundary }, &count, 8).map(|halo| halo.elements())
        };
        assert_eq!(made(5, 1, Boundary::Cut).unwrap(), 13);
        assert_eq!(made(5, 1, Boundary::Constant(vec![0; 8])).unwrap(), 15);
        for (count, depth, boundary) in
            [(HALO_TILES_MAX + 2, 1, Boundary::Cut), (5, 6, Boundary::Cut), (5, 1, Boundary::Constant(vec![0; 4]))]
        {
            made(count, depth, boundary).unwrap_err();
        }
    }
}
