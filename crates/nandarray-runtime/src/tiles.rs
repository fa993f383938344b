//! The order in which a box's elements are passed to programs: with the last dimension fastest, or tile by tile.
//!
//! A range of elements in either order is converted to boxes. Nothing here accesses the store.

use std::ops::Range;

use nandarray::{Error, Result};
use nandarray_cores::TaskPlace;

use crate::halo::Halo;

/// A division of a box into tiles, each of which is a task. Tiles follow each other with the last dimension fastest,
/// and so do the elements of each tile.
#[derive(Clone, Copy, Debug)]
pub struct Tiles<'a> {
    /// End of the first tile along each dimension of the box, in elements.
    pub first: &'a [u64],
    /// Extent of every other tile along each dimension, in elements; the last tile ends with the box.
    pub size: &'a [u64],
    /// The dimensions along which a tile's extent is passed to the program.
    pub extent_axes: &'a [usize],
    /// Halo of an input's tiles; `None` for outputs.
    pub halo: Option<Halo<'a>>,
}

/// Limit of the number of tiles of a box, since the end of each tile is kept in memory.
const TILES_MAX: u64 = 1 << 27;

impl Tiles<'_> {
    /// Checks that these are tiles of a box with `count` elements along each dimension.
    ///
    /// # Errors
    /// The box has another number of dimensions, the first tile is empty or larger than the others, or the tiles
    /// are too many.
    pub(crate) fn check(&self, count: &[u64]) -> Result<()> {
        let n = count.len();
        if [self.first.len(), self.size.len()] != [n; 2] || self.extent_axes.iter().any(|&axis| axis >= n) {
            return Err(Error::invalid(format!("tiles of {} dimensions of a box of {n}", self.size.len())));
        }
        if (0..n).any(|d| self.first[d] == 0 || self.first[d] > self.size[d]) {
            return Err(Error::invalid(format!("tiles of {:?} elements, the first of {:?}", self.size, self.first)));
        }
        let all = (0..n).try_fold(1u64, |all, axis| all.checked_mul(self.along(axis, count[axis])));
        match all {
            Some(tiles) if tiles <= TILES_MAX => Ok(()),
            _ => Err(Error::invalid(format!("more than {TILES_MAX} tiles"))),
        }
    }

    /// Returns the number of tiles of a box with `count` elements along each dimension.
    pub(crate) fn number(&self, count: &[u64]) -> u64 {
        (0..count.len()).map(|axis| self.along(axis, count[axis])).product()
    }

    /// Returns the first coordinate and the extent of tile `number` along each axis of a box.
    pub(crate) fn spans(&self, count: &[u64], mut number: u64) -> Vec<(u64, u64)> {
        let mut found = vec![(0, 0); count.len()];
        for axis in (0..count.len()).rev() {
            let along = self.along(axis, count[axis]);
            found[axis] = self.span(axis, number % along, count[axis]);
            number /= along;
        }
        found
    }

    /// Returns the number of tiles along an axis of `count` elements.
    fn along(&self, axis: usize, count: u64) -> u64 {
        match count.saturating_sub(self.first[axis]) {
            _ if count == 0 => 0,
            rest => 1 + rest.div_ceil(self.size[axis]),
        }
    }

    /// Returns the number of the tile that holds coordinate `at` of an axis.
    fn holding(&self, axis: usize, at: u64) -> u64 {
        at.checked_sub(self.first[axis]).map_or(0, |rest| 1 + rest / self.size[axis])
    }

    /// Returns the first coordinate and the extent of a tile along an axis of `count` elements.
    fn span(&self, axis: usize, tile: u64, count: u64) -> (u64, u64) {
        let end = |tile: u64| self.first[axis].saturating_add(tile.saturating_mul(self.size[axis])).min(count);
        let low = tile.checked_sub(1).map_or(0, end);
        (low, end(tile) - low)
    }

    /// Whether coordinate `row` of the first axis lies between two rows of tiles, or at an end of the box.
    pub(crate) fn ends_row(&self, row: u64, count: &[u64]) -> bool {
        let Some(&rows) = count.first() else { return true };
        row == 0 || row == rows || self.span(0, self.holding(0, row), rows).0 == row
    }

    /// Returns the last coordinate at or before `row` of the first axis that lies between two rows of tiles, or at an
    /// end.
    pub(crate) fn row_edge(&self, row: u64, count: &[u64]) -> u64 {
        match count.first() {
            Some(&rows) if row < rows => self.span(0, self.holding(0, row), rows).0,
            _ => row,
        }
    }

    /// Returns 0, then the number of elements before the end of each tile.
    pub(crate) fn edges(&self, count: &[u64]) -> Vec<u64> {
        let mut edges = vec![0];
        let all = count.iter().product();
        let mut end = 0;
        let each = &mut |_: &[u64], size: &[u64]| {
            end += size.iter().product::<u64>();
            edges.push(end);
            Ok(())
        };
        self.boxes(count, 0..all, each).expect("what is called gives no error");
        edges
    }

    /// Returns the place that is passed to a program of the tile that holds an element; `element` is the element's
    /// position in the order of tiles.
    pub(crate) fn place(&self, count: &[u64], element: u64) -> TaskPlace {
        let mut found = TaskPlace::default();
        let each = &mut |spans: &[(u64, u64)], _: Range<u64>| {
            let told = |of: &dyn Fn(usize) -> u64| self.extent_axes.iter().map(|&axis| of(axis)).collect();
            found.extents = told(&|axis| spans[axis].1);
            found.first = told(&|axis| spans[axis].0);
            found.total = told(&|axis| count[axis]);
            Ok(())
        };
        self.descend(count, 1, element..element + 1, &mut Vec::new(), each).expect("what is called gives no error");
        found
    }

    /// Calls `each` with the first coordinates and the size of every box in a range of elements in the order of tiles.
    fn boxes(
        &self,
        count: &[u64],
        range: Range<u64>,
        each: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
    ) -> Result<()> {
        self.descend(count, 1, range, &mut Vec::new(), &mut |spans, within| {
            let sizes: Vec<u64> = spans.iter().map(|(_, size)| *size).collect();
            rows(&sizes, within, &mut |first, size| {
                let from: Vec<u64> = spans.iter().zip(first).map(|((low, _), f)| low + f).collect();
                each(&from, size)
            })
        })
    }

    /// Calls `each` for every tile that has elements in `range`, with the tile's start and extent along each axis and
    /// the part of its elements in the range. The leading axes are fixed: `spans` has start and extent along each of
    /// them, `before` is the product of these extents. Element 0 of `range` is the first of what `spans` selects;
    /// `count` is the number of elements of the box along each dimension.
    fn descend(
        &self,
        count: &[u64],
        before: u64,
        range: Range<u64>,
        spans: &mut Vec<(u64, u64)>,
        each: &mut dyn FnMut(&[(u64, u64)], Range<u64>) -> Result<()>,
    ) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let axis = spans.len();
        if axis == count.len() {
            return each(spans, range);
        }
        let unit = before * count[axis + 1..].iter().product::<u64>();
        let mut tile = self.holding(axis, range.start / unit);
        loop {
            let (low, size) = self.span(axis, tile, count[axis]);
            let (from, to) = (range.start.max(low * unit), range.end.min((low + size) * unit));
            if from >= to {
                return Ok(());
            }
            spans.push((low, size));
            self.descend(count, before * size, from - low * unit..to - low * unit, spans, each)?;
            spans.pop();
            tile += 1;
        }
    }

    /// Returns the bytes of whole rows of tiles in row-major order; `range` numbers their elements.
    pub(crate) fn in_rows(&self, count: &[u64], range: Range<u64>, item: u64, bytes: &[u8]) -> Vec<u8> {
        let mut found = vec![0; bytes.len()];
        let begin = range.start;
        let mut taken = 0usize;
        let each = &mut |first: &[u64], size: &[u64]| {
            let n = size.len();
            let run = size.last().map_or(1, |last| *last) * item;
            let mut at = first.to_vec();
            for _ in 0..size[..n.max(1) - 1].iter().product::<u64>() {
                let element = at.iter().zip(count).fold(0, |all, (place, extent)| all * extent + place);
                let to = ((element - begin) * item) as usize;
                found[to..to + run as usize].copy_from_slice(&bytes[taken..taken + run as usize]);
                taken += run as usize;
                for d in (0..n.saturating_sub(1)).rev() {
                    at[d] += 1;
                    if at[d] < first[d] + size[d] {
                        break;
                    }
                    at[d] = first[d];
                }
            }
            Ok(())
        };
        self.boxes(count, range, each).expect("what is called gives no error");
        found
    }
}

/// Cuts a range of a box's elements into boxes, and calls `each` with the first coordinates and the size of every one,
/// in order. Elements are numbered in the order of tiles if there are any, else with the last dimension fastest.
pub(crate) fn pieces(
    count: &[u64],
    tiles: Option<&Tiles<'_>>,
    range: Range<u64>,
    each: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
) -> Result<()> {
    match tiles {
        Some(tiles) => tiles.boxes(count, range, each),
        None => rows(count, range, each),
    }
}

/// Cuts a range of a box's elements into boxes like [`pieces`], with the last dimension fastest.
fn rows(count: &[u64], range: Range<u64>, each: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>) -> Result<()> {
    let (mut first, mut size) = (vec![0; count.len()], vec![1; count.len()]);
    rows_from(count, 0, range, &mut first, &mut size, each)
}

fn rows_from(
    count: &[u64],
    axis: usize,
    range: Range<u64>,
    first: &mut Vec<u64>,
    size: &mut Vec<u64>,
    each: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
) -> Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    if axis == count.len() {
        return each(first, size);
    }
    let inner: u64 = count[axis + 1..].iter().product();
    let mut at = range.start;
    while at < range.end {
        let row = at / inner;
        let rows = (range.end / inner).saturating_sub(row);
        first[axis] = row;
        if at.is_multiple_of(inner) && rows > 0 {
            size[axis] = rows;
            for d in axis + 1..count.len() {
                (first[d], size[d]) = (0, count[d]);
            }
            each(first, size)?;
            at += rows * inner;
        } else {
            size[axis] = 1;
            let end = range.end.min((row + 1) * inner);
            rows_from(count, axis + 1, at - row * inner..end - row * inner, first, size, each)?;
            at = end;
        }
    }
    size[axis] = 1;
    Ok(())
}

/// Returns the strides in bytes of an array without gaps.
pub(crate) fn packed(size: &[u64], item: u64) -> Vec<isize> {
    let mut strides = vec![item as isize; size.len()];
    for d in (1..size.len()).rev() {
        strides[d - 1] = strides[d] * size[d] as isize;
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_range_in_order() {
        for count in [vec![7], vec![3, 4], vec![2, 3, 4], vec![1, 5, 1, 2], vec![]] {
            let all: u64 = count.iter().product();
            for start in 0..=all {
                for end in start..=all {
                    let mut found = Vec::new();
                    let mut calls = 0;
                    rows(&count, start..end, &mut |first, size| {
                        calls += 1;
                        let volume: u64 = size.iter().product();
                        let linear = |c: &[u64]| c.iter().zip(&count).fold(0, |all, (c, n)| all * n + c);
                        let from = linear(first);
                        found.extend(from..from + volume);
                        assert!(first.iter().zip(size).zip(&count).all(|((f, s), n)| f + s <= *n));
                        Ok(())
                    })
                    .unwrap();
                    assert_eq!(found, (start..end).collect::<Vec<_>>(), "{count:?} {start}..{end}");
                    assert!(calls <= 2 * count.len().max(1), "{calls} pieces");
                }
            }
        }
    }

    /// Returns the coordinates of each tile's elements, tile by tile, by the definition of [`Tiles`].
    fn tile_by_tile(count: &[u64], tiles: &Tiles<'_>) -> Vec<Vec<Vec<u64>>> {
        let axes = (0..count.len()).map(|d| {
            let cuts = (0..).map(|i| tiles.first[d] + i * tiles.size[d]).take_while(|&end| end < count[d]);
            let edges: Vec<u64> = [0].into_iter().chain(cuts).chain([count[d]]).collect();
            edges.windows(2).filter(|w| w[0] < w[1]).map(|w| (w[0]..w[1]).collect::<Vec<_>>()).collect::<Vec<_>>()
        });
        let mut found: Vec<Vec<Vec<u64>>> = vec![vec![vec![]]];
        for axis in axes {
            let longer = |tile: &Vec<Vec<u64>>, span: &Vec<u64>| {
                let more = |at: &Vec<u64>| span.iter().map(|c| [at.as_slice(), &[*c]].concat()).collect::<Vec<_>>();
                tile.iter().flat_map(more).collect::<Vec<_>>()
            };
            found =
                found.iter().flat_map(|tile| axis.iter().map(|span| longer(tile, span)).collect::<Vec<_>>()).collect();
        }
        found
    }

    /// Sides of the boxes that are tested. Each entry: the box's extent, the end of its first tile, the extent of other
    /// tiles.
    const SIDES: [(u64, u64, u64); 8] =
        [(0, 1, 1), (1, 1, 1), (1, 2, 3), (3, 1, 1), (4, 3, 3), (5, 1, 2), (5, 2, 3), (6, 4, 7)];

    #[test]
    fn tiles_come_one_after_the_other() {
        let mut boxes: Vec<Vec<(u64, u64, u64)>> = vec![vec![]];
        for from in 0.. {
            let Some(sides) = boxes.get(from).cloned() else { break };
            they_come_in_order(&sides);
            if sides.len() < 3 {
                boxes.extend(SIDES.iter().map(|side| [sides.as_slice(), &[*side]].concat()));
            }
        }
    }

    fn they_come_in_order(sides: &[(u64, u64, u64)]) {
        let (count, first): (Vec<u64>, Vec<u64>) = sides.iter().map(|s| (s.0, s.1)).unzip();
        let size: Vec<u64> = sides.iter().map(|s| s.2).collect();
        let extent_axes: Vec<usize> = (0..count.len()).collect();
        let tiles = Tiles { first: &first, size: &size, extent_axes: &extent_axes, halo: None };
        tiles.check(&count).unwrap();
        let wanted = tile_by_tile(&count, &tiles);
        let all: Vec<Vec<u64>> = wanted.concat();
        let ends = wanted.iter().scan(0, |end, tile| {
            *end += tile.len() as u64;
            Some(*end)
        });
        let edges: Vec<u64> = [0].into_iter().chain(ends).collect();
        assert_eq!(tiles.edges(&count), edges, "{sides:?}");
        let n = all.len() as u64;
        for start in (0..=n).step_by(1 + all.len() / 9) {
            for end in (start..=n).rev().step_by(1 + all.len() / 7) {
                let mut found: Vec<Vec<u64>> = Vec::new();
                pieces(&count, Some(&tiles), start..end, &mut |first, size| {
                    let whole = Tiles { first: size, size, extent_axes: &extent_axes, halo: None };
                    let within = tile_by_tile(size, &whole).concat();
                    found.extend(within.iter().map(|at| at.iter().zip(first).map(|(c, f)| c + f).collect()));
                    Ok(())
                })
                .unwrap();
                assert_eq!(found, all[start as usize..end as usize], "{sides:?} {start}..{end}");
            }
        }
        for (tile, edge) in wanted.iter().zip(&edges) {
            let sides: Vec<u64> = tile[0].iter().zip(&tile[tile.len() - 1]).map(|(low, high)| high - low + 1).collect();
            let place = tiles.place(&count, *edge);
            assert_eq!((&place.extents, &place.first, &place.total), (&sides, &tile[0], &count));
        }
        // Elements that are numbered in the order of rows and passed tile by tile come back in the order of rows; so do
        // those of some rows of tiles alone.
        let number = |at: &Vec<u64>| at.iter().zip(&count).fold(0, |n, (c, extent)| n * extent + c) as u8;
        let bytes: Vec<u8> = all.iter().map(number).collect();
        let inner: u64 = count.iter().skip(1).product();
        let rows: Vec<u64> =
            (0..=count.first().copied().unwrap_or(1)).filter(|row| tiles.ends_row(*row, &count)).collect();
        for (i, low) in rows.iter().enumerate() {
            for high in &rows[i..] {
                assert_eq!(tiles.row_edge(*high, &count), *high, "{sides:?}");
                let range = low * inner..high * inner;
                let sorted: Vec<u8> = range.clone().map(|n| n as u8).collect();
                let given = &bytes[range.start as usize..range.end as usize];
                assert_eq!(tiles.in_rows(&count, range, 1, given), sorted, "{sides:?}");
            }
        }
    }

    #[test]
    fn what_can_be_no_tiles_is_refused() {
        let tiles = |first: &'static [u64], size: &'static [u64], extent_axes: &'static [usize]| Tiles {
            first,
            size,
            extent_axes,
            halo: None,
        };
        assert!(tiles(&[2], &[2], &[0]).check(&[9]).is_ok());
        for wrong in
            [tiles(&[0], &[2], &[]), tiles(&[3], &[2], &[]), tiles(&[1, 1], &[1, 1], &[]), tiles(&[1], &[1], &[1])]
        {
            assert!(wrong.check(&[9]).is_err(), "{wrong:?}");
        }
        assert!(tiles(&[1], &[1], &[0]).check(&[u64::MAX]).is_err());
        assert!(tiles(&[1, 1], &[1, 1], &[0]).check(&[1 << 40, 1 << 40]).is_err());
    }
}
