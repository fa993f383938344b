//! Plans: a selection of elements cut at the edges of building blocks, the second half of the space translator.
//!
//! A [`Selection`] has, for each dimension of the space, a range with a step or a list of coordinates, and the byte
//! stride of the elements in the caller's buffer. A [`Plan`] cuts each dimension at the edges of building blocks into
//! [`AxisGroup`]s. The touched blocks are all combinations of the dimensions' groups, numbered so that the last
//! dimension varies fastest. Groups of a range are computed on demand, so a plan of ranges takes a few words per
//! dimension and allocates nothing; groups of a list are sorted once. For each block the groups give the loops of a
//! copy.
//!
//! Bounds are checked here, once, for all lower parts that trust pointers.

use smallvec::SmallVec;

use super::copy::{Loop, merge};
use crate::error::{Error, Result, Shape};

/// A building block's coordinate, in blocks.
pub type BlockAt = SmallVec<[u64; 4]>;

/// The loops of a copy, one for each dimension.
pub type Loops<'a> = SmallVec<[Loop<'a>; 6]>;

/// A box of elements, of a space or of a view, and the places of its elements in the caller's buffer.
#[derive(Clone, Copy, Debug)]
pub struct StridedBox<'a> {
    /// First coordinate along each dimension.
    pub start: &'a [u64],
    /// Distance between elements along each dimension, at least 1.
    pub step: &'a [u64],
    /// Number of elements along each dimension.
    pub count: &'a [u64],
    /// Byte strides in the buffer, one for each dimension.
    pub strides: &'a [isize],
}

/// The selected coordinates along one dimension.
#[derive(Clone, Debug)]
pub enum Axis {
    /// `count` coordinates from `start` on, `step` apart.
    Range {
        /// First selected coordinate.
        start: u64,
        /// Distance between selected coordinates, at least 1.
        step: u64,
        /// Number of selected coordinates.
        count: u64,
    },
    /// These coordinates in this order. A coordinate may occur several times; in a write its last occurrence counts.
    List(Vec<u64>),
}

impl Axis {
    /// Returns the number of selected coordinates.
    pub fn count(&self) -> u64 {
        match self {
            Self::Range { count, .. } => *count,
            Self::List(list) => list.len() as u64,
        }
    }
}

/// Selected elements of a space, and their places in a buffer.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The selected coordinates along each dimension of the space.
    pub axes: Vec<Axis>,
    /// Byte strides in the buffer, one for each dimension.
    pub strides: Vec<isize>,
    /// Byte offset of the first element in the buffer.
    pub offset: isize,
}

impl Selection {
    /// Selects the box of `count` elements from `start` on, with the byte strides of a C-contiguous buffer.
    pub fn contiguous(start: &[u64], count: &[u64], item_bytes: u64) -> Self {
        let mut strides = vec![0; count.len()];
        let mut stride = item_bytes;
        for (s, &n) in strides.iter_mut().zip(count).rev() {
            *s = stride as isize;
            stride = stride.saturating_mul(n);
        }
        let axes = start.iter().zip(count).map(|(&start, &count)| Axis::Range { start, step: 1, count }).collect();
        Self { axes, strides, offset: 0 }
    }

    /// Returns the number of selected elements.
    pub fn elements(&self) -> u64 {
        self.axes.iter().map(Axis::count).fold(1, u64::saturating_mul)
    }

    /// Checks that the selection fits a space of this shape.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a wrong number of dimensions or a step of 0, [`Error::OutOfRange`] for a coordinate
    /// outside.
    pub fn check(&self, shape: &[u64]) -> Result<()> {
        if self.axes.len() != shape.len() {
            return Err(Error::invalid(format!(
                "the selection has {} dimensions; the array has shape {}",
                self.axes.len(),
                Shape(shape)
            )));
        }
        for (axis, (wanted, &size)) in self.axes.iter().zip(shape).enumerate() {
            let last = match wanted {
                Axis::Range { step: 0, .. } => return Err(Error::invalid(format!("step 0 on axis {axis}"))),
                Axis::Range { count: 0, .. } => None,
                Axis::Range { start, step, count } => {
                    Some(u128::from(*start) + u128::from(*step) * u128::from(count - 1))
                }
                Axis::List(list) => list.iter().max().map(|&m| u128::from(m)),
            };
            if let Some(index) = last.filter(|&l| l >= u128::from(size)) {
                return Err(Error::OutOfRange { axis, index, size });
            }
        }
        Ok(())
    }

    /// Checks that the selection touches at most [`BLOCKS_MAX`] building blocks along each dimension, and at most
    /// [`BLOCKS_TOTAL_MAX`] together.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the number of blocks.
    pub fn check_blocks(&self, block: &[u64]) -> Result<()> {
        let mut total = 1u128;
        for (axis, (wanted, side)) in self.axes.iter().zip(block).enumerate() {
            let blocks = match wanted {
                Axis::Range { step, count, .. } => {
                    (count.saturating_sub(1).saturating_mul(*step) / side + 1).min(*count)
                }
                Axis::List(list) => list.len() as u64,
            };
            if blocks > BLOCKS_MAX {
                return Err(Error::invalid(format!(
                    "the selection touches {blocks} building blocks along axis {axis}; one command takes \
                     {BLOCKS_MAX} at most"
                )));
            }
            total = total.saturating_mul(blocks.into());
        }
        if total > BLOCKS_TOTAL_MAX {
            return Err(Error::invalid(format!(
                "the selection touches {total} building blocks; one command takes {BLOCKS_TOTAL_MAX} at most"
            )));
        }
        Ok(())
    }
}

/// Largest number of building blocks that a selection may touch along one dimension; with the default size these are 16
/// TiB.
const BLOCKS_MAX: u64 = 1 << 26;

/// Largest number of building blocks that a selection may touch, so that numbers of tasks and pages fit into 64 bits.
const BLOCKS_TOTAL_MAX: u128 = 1 << 44;

/// Side of a building block along one dimension, in elements. Coordinates are divided by a side that is a power of two
/// with a shift, since a division takes as long as an access to a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    length: u64,
    shift: Option<u32>,
}

impl Side {
    #[inline]
    pub(super) fn new(length: u64) -> Self {
        debug_assert!(length > 0, "a block has elements");
        Self { length, shift: length.is_power_of_two().then(|| length.trailing_zeros()) }
    }

    /// Returns the block of a coordinate, and the coordinate within the block.
    #[inline]
    pub(super) fn split(self, coordinate: u64) -> (u64, u64) {
        let block = match self.shift {
            Some(shift) => coordinate >> shift,
            None => coordinate / self.length,
        };
        (block, coordinate - block * self.length)
    }
}

/// The selected coordinates of one dimension that lie in one building block.
#[derive(Clone, Copy, Debug)]
pub(super) struct AxisGroup {
    /// Coordinate of the block along the dimension, in blocks.
    pub(super) block: u64,
    /// Index of the group's first entry in the table of offsets (lists only).
    first: usize,
    /// Number of selected coordinates.
    pub(super) count: usize,
    /// Offset of the first element in the block, in bytes; 0 for a list, whose table has the offsets.
    pub(super) in_block: usize,
    /// Offset of the first element in the buffer, in bytes; 0 for a list.
    pub(super) in_buffer: isize,
    /// Smallest and largest offset in the block, in bytes, relative to `in_block`.
    pub(super) reach: (usize, usize),
}

/// The selected coordinates of one dimension, cut into groups by building block.
#[derive(Debug)]
pub(super) enum AxisPlan {
    /// Coordinates at a constant step; groups are computed on demand.
    Range {
        start: u64,
        step: u64,
        count: u64,
        side: Side,
        /// Coordinate of the first block with a selected coordinate, in blocks.
        first_block: u64,
        /// Number of groups, which is the number of blocks along the dimension that have a selected coordinate.
        groups: u64,
        stride_block: usize,
        stride_buffer: isize,
    },
    /// Any coordinates; the groups refer to ranges of `table`, which has byte offsets (in the block, in the buffer).
    List { groups: Vec<AxisGroup>, table: Vec<(isize, isize)> },
}

/// A selection cut at the edges of building blocks.
#[derive(Debug)]
pub struct Plan {
    pub(super) axes: SmallVec<[AxisPlan; 4]>,
    /// The dimension of the buffer's rows: the last one along which more than one coordinate is selected.
    pub(super) row: usize,
    tasks: u64,
    pub(super) offset: isize,
}

/// Returns the byte strides of a building block in C order.
pub fn block_strides(block: &[u64], item_bytes: u64) -> SmallVec<[u64; 4]> {
    let mut strides: SmallVec<[u64; 4]> = SmallVec::from_elem(item_bytes, block.len());
    for i in (0..block.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * block[i + 1];
    }
    strides
}

impl Plan {
    /// Cuts a selection, which was checked against the space's shape, at the edges of blocks of this shape.
    pub fn new(selection: &Selection, block: &[u64], item_bytes: u64) -> Self {
        let strides = block_strides(block, item_bytes);
        let cut = |(i, axis): (usize, &Axis)| match axis {
            &Axis::Range { start, step, count } => {
                AxisPlan::range((start, step, count), block[i], strides[i] as usize, selection.strides[i])
            }
            Axis::List(list) => AxisPlan::list(list, block[i], strides[i] as usize, selection.strides[i]),
        };
        Self::of_axes(selection.axes.iter().enumerate().map(cut).collect(), selection.offset)
    }

    /// Cuts a box, which lies within the space, at the edges of blocks of this shape and these byte strides; its first
    /// element is `offset` bytes further on in the buffer.
    #[inline]
    pub(super) fn of_box(wanted: &StridedBox<'_>, block: &[u64], strides: &[u64], offset: isize) -> Self {
        let &StridedBox { start, step, count, strides: in_buffer } = wanted;
        let cut = |i| AxisPlan::range((start[i], step[i], count[i]), block[i], strides[i] as usize, in_buffer[i]);
        Self::of_axes((0..start.len()).map(cut).collect(), offset)
    }

    #[inline]
    fn of_axes(axes: SmallVec<[AxisPlan; 4]>, offset: isize) -> Self {
        let tasks = axes.iter().map(AxisPlan::groups).product();
        let row = (0..axes.len()).rev().find(|&i| axes[i].count() > 1).unwrap_or(0);
        Self { axes, row, tasks, offset }
    }

    /// Returns the number of touched building blocks.
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// Returns the number of successive tasks that are neighbours along the buffer's rows, and the elements in a row.
    pub fn row(&self) -> (u64, u64) {
        self.axes.get(self.row).map_or((1, 1), |axis| (axis.groups(), axis.count()))
    }

    /// Returns the smallest box that contains all touched blocks: first and last block coordinate along each dimension.
    pub fn bounds(&self) -> Vec<(u64, u64)> {
        let of = |axis: &AxisPlan| match axis.groups() {
            0 => (0, 0),
            n => (axis.group(0).block, axis.group(n - 1).block),
        };
        self.axes.iter().map(of).collect()
    }

    /// Returns the part of the selection in the touched block with this number.
    pub fn task(&self, mut index: u64) -> Task<'_> {
        assert!(index < self.tasks, "task {index} of {}", self.tasks);
        let mut at: BlockAt = SmallVec::from_elem(0, self.axes.len());
        let mut loops = Loops::from_elem(Loop::Table(&[]), self.axes.len());
        let (mut in_block, mut in_buffer) = (0, self.offset);
        for (i, axis) in self.axes.iter().enumerate().rev() {
            let group = axis.group(index % axis.groups());
            index /= axis.groups();
            at[i] = group.block;
            loops[i] = axis.steps(&group);
            in_block += group.in_block;
            in_buffer += group.in_buffer;
        }
        Task { at, loops, row: self.row, in_block, in_buffer }
    }
}

impl AxisPlan {
    #[inline]
    fn range((start, step, count): (u64, u64, u64), side: u64, stride_block: usize, stride_buffer: isize) -> Self {
        let side = Side::new(side);
        let (first_block, inside) = side.split(start);
        let groups = match count {
            0 => 0,
            // A step longer than a block skips blocks; each block that is not skipped has one element.
            _ if step > side.length => count,
            _ => side.split(inside + (count - 1) * step).0 + 1,
        };
        Self::Range { start, step, count, side, first_block, groups, stride_block, stride_buffer }
    }

    fn list(list: &[u64], side: u64, stride_block: usize, stride_buffer: isize) -> Self {
        let mut order: Vec<usize> = (0..list.len()).collect();
        order.sort_by_key(|&i| list[i] / side); // a stable sort: of repeated coordinates the last stays last
        let mut groups: Vec<AxisGroup> = Vec::new();
        let mut table = Vec::with_capacity(list.len());
        for &i in &order {
            let (block, offset) = (list[i] / side, (list[i] % side) as usize * stride_block);
            match groups.last_mut() {
                Some(g) if g.block == block => {
                    g.count += 1;
                    g.reach = (g.reach.0.min(offset), g.reach.1.max(offset));
                }
                _ => {
                    let (first, reach) = (table.len(), (offset, offset));
                    groups.push(AxisGroup { block, first, count: 1, in_block: 0, in_buffer: 0, reach });
                }
            }
            table.push((offset as isize, i as isize * stride_buffer));
        }
        debug_assert!(groups.is_sorted_by(|a, b| a.block < b.block), "each block has one group");
        Self::List { groups, table }
    }

    /// Returns the number of groups, which is the number of blocks along the dimension that have a selected coordinate.
    #[inline]
    pub(super) fn groups(&self) -> u64 {
        match self {
            Self::Range { groups, .. } => *groups,
            Self::List { groups, .. } => groups.len() as u64,
        }
    }

    fn count(&self) -> u64 {
        match self {
            Self::Range { count, .. } => *count,
            Self::List { table, .. } => table.len() as u64,
        }
    }

    /// Returns the group with this number.
    #[inline]
    pub(super) fn group(&self, i: u64) -> AxisGroup {
        let (start, step, count, side, first_block, stride_block, stride_buffer) = match *self {
            Self::List { ref groups, .. } => return groups[i as usize],
            Self::Range { start, step, count, side, first_block, stride_block, stride_buffer, .. } => {
                (start, step, count, side, first_block, stride_block, stride_buffer)
            }
        };
        // The number of the group's first element, its block, and its coordinate within the block.
        let (first, block, inside) = if i == 0 {
            (0, first_block, start - first_block * side.length)
        } else if step > side.length {
            let (block, inside) = side.split(start + i * step);
            (i, block, inside)
        } else {
            let block = first_block + i;
            let before = block * side.length - start;
            let first = if step == 1 { before } else { before.div_ceil(step) };
            (first, block, first * step - before)
        };
        debug_assert!(first < count && inside < side.length, "element {first} of {count} at {inside} of a block");
        // The number of elements from here on that lie in this block.
        let room = side.length - inside;
        let fit = if step == 1 { room } else { (room - 1) / step + 1 };
        let n = fit.min(count - first);
        AxisGroup {
            block,
            first: 0,
            count: n as usize,
            in_block: inside as usize * stride_block,
            in_buffer: first as isize * stride_buffer,
            // A step may exceed the range of addresses if only one element lies in a block.
            reach: (0, if n == 1 { 0 } else { (n - 1) as usize * step as usize * stride_block }),
        }
    }

    /// Returns the loop over a group's elements, from the block to the buffer.
    #[inline]
    pub(super) fn steps(&self, group: &AxisGroup) -> Loop<'_> {
        match self {
            Self::List { table, .. } => Loop::Table(&table[group.first..group.first + group.count]),
            Self::Range { step, stride_block, stride_buffer, .. } => {
                let from = (*step as isize).wrapping_mul(*stride_block as isize);
                Loop::Affine { n: group.count, from, to: *stride_buffer }
            }
        }
    }

    /// Whether the loops over two groups are equal.
    pub(super) fn alike(&self, a: &AxisGroup, b: &AxisGroup) -> bool {
        matches!(self, Self::Range { .. }) && a.count == b.count
    }
}

/// The part of a selection that lies in one building block, as the loops of a copy.
#[derive(Debug)]
pub struct Task<'a> {
    /// Coordinate of the block, in blocks.
    pub at: BlockAt,
    /// Loops from the block (source) to the buffer (destination), one for each dimension, not merged.
    pub loops: Loops<'a>,
    /// Number of the loop that runs along the buffer's rows.
    pub row: usize,
    /// Byte offset of the first element in the block.
    pub in_block: usize,
    /// Byte offset of the first element in the buffer.
    pub in_buffer: isize,
}

impl Task<'_> {
    /// Returns the range of bytes in the block from the first to the last touched byte.
    pub fn span(&self, item_bytes: usize) -> std::ops::Range<usize> {
        let (low, high) = span(&self.loops);
        self.in_block + low..self.in_block + high + item_bytes
    }

    /// Returns the same loops in the other direction, from the buffer (source) to the block; `tables` keeps the
    /// reversed tables.
    pub fn reversed<'t>(&self, tables: &'t mut Vec<Vec<(isize, isize)>>) -> Loops<'t> {
        tables.clear();
        for l in &self.loops {
            if let Loop::Table(pairs) = l {
                tables.push(pairs.iter().map(|&(f, t)| (t, f)).collect());
            }
        }
        let mut tables = tables.iter();
        self.loops
            .iter()
            .map(|l| match *l {
                Loop::Affine { n, from, to } => Loop::Affine { n, from: to, to: from },
                Loop::Table(_) => Loop::Table(tables.next().expect("one table a table loop")),
            })
            .collect()
    }

    /// Returns the number of contiguous runs that the task moves, and the number of their bytes.
    pub fn moves(&self, item_bytes: usize) -> (u64, u64) {
        let mut loops = self.loops.clone();
        let (left, run) = merge(&mut loops, item_bytes);
        let times = |l: &Loop<'_>| match l {
            Loop::Affine { n, .. } => *n as u64,
            Loop::Table(pairs) => pairs.len() as u64,
        };
        let runs: u64 = loops[..left].iter().map(times).product();
        (runs, runs * run as u64)
    }

    /// Calls `touch` with byte ranges of the block that cover every element of the task, and skip all gaps of at least
    /// about `grain` bytes.
    pub fn touch(&self, item_bytes: usize, grain: usize, touch: &mut dyn FnMut(std::ops::Range<usize>)) {
        touch_loops(&self.loops, self.in_block, item_bytes, grain, touch);
    }
}

/// Returns the smallest and the largest offset that the loops reach in the block, in bytes.
pub(super) fn span(loops: &[Loop<'_>]) -> (usize, usize) {
    loops.iter().fold((0, 0), |(low, high), l| match *l {
        Loop::Affine { n, from, .. } => (low, high + (n - 1) * from as usize),
        Loop::Table(pairs) => {
            let least = pairs.iter().map(|p| p.0).min().unwrap_or(0) as usize;
            (low + least, high + pairs.iter().map(|p| p.0).max().unwrap_or(0) as usize)
        }
    })
}

/// Does the work of [`Task::touch`], for loops whose first element is at byte `base` of the block.
pub(super) fn touch_loops(
    loops: &[Loop<'_>],
    base: usize,
    item_bytes: usize,
    grain: usize,
    touch: &mut dyn FnMut(std::ops::Range<usize>),
) {
    let (low, high) = span(loops);
    let whole = base + low..base + high + item_bytes;
    match loops.split_first() {
        // The rest is so dense that skipping its gaps would not save a page.
        None => touch(whole),
        Some((Loop::Affine { n, from, .. }, rest)) => {
            let (l, h) = span(rest);
            let gap = (*from as usize).saturating_sub(h - l + item_bytes);
            if *n == 1 {
                touch_loops(rest, base, item_bytes, grain, touch);
            } else if gap < grain && (whole.len() <= 2 * grain || rest_is_dense(rest, item_bytes, grain)) {
                touch(whole);
            } else {
                for i in 0..*n {
                    touch_loops(rest, base + i * *from as usize, item_bytes, grain, touch);
                }
            }
        }
        Some((Loop::Table(pairs), rest)) => {
            for &(f, _) in *pairs {
                touch_loops(rest, base + f as usize, item_bytes, grain, touch);
            }
        }
    }
}

/// Whether loops leave no gap of `grain` bytes or more between elements.
fn rest_is_dense(loops: &[Loop<'_>], item_bytes: usize, grain: usize) -> bool {
    match loops.split_first() {
        None => true,
        Some((Loop::Affine { n, from, .. }, rest)) => {
            let (l, h) = span(rest);
            (*n == 1 || (*from as usize).saturating_sub(h - l + item_bytes) < grain)
                && rest_is_dense(rest, item_bytes, grain)
        }
        Some((Loop::Table(_), _)) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn elements(plan: &Plan, block: &[u64]) -> Vec<(Vec<u64>, isize)> {
        let strides = block_strides(block, 1);
        let mut all = Vec::new();
        for t in 0..plan.tasks() {
            let task = plan.task(t);
            let mut at = vec![(task.in_block as isize, task.in_buffer)];
            for l in &task.loops {
                at = at
                    .iter()
                    .flat_map(|&(b, d)| match *l {
                        Loop::Affine { n, from, to } => {
                            (0..n as isize).map(|i| (b + i * from, d + i * to)).collect::<Vec<_>>()
                        }
                        Loop::Table(pairs) => pairs.iter().map(|&(f, t)| (b + f, d + t)).collect(),
                    })
                    .collect();
            }
            let mut touched = std::collections::BTreeSet::new();
            task.touch(1, 4, &mut |r| touched.extend(r));
            for (b, d) in at {
                assert!(touched.contains(&(b as usize)), "element {b} was not touched");
                assert!(task.span(1).contains(&(b as usize)));
                let mut rest = b as u64;
                let coordinate = (0..block.len())
                    .map(|i| {
                        let c = rest / strides[i];
                        rest %= strides[i];
                        assert!(c < block[i]);
                        task.at[i] * block[i] + c
                    })
                    .collect();
                all.push((coordinate, d));
            }
        }
        all.sort();
        all
    }

    fn axis() -> impl Strategy<Value = Axis> {
        prop_oneof![
            (0u64..20, 1u64..8, 1u64..6).prop_map(|(start, step, count)| Axis::Range { start, step, count }),
            prop::collection::vec(0u64..60, 1..6).prop_map(Axis::List),
        ]
    }

    proptest! {
        #[test]
        fn every_element_once_at_its_place(
            axes in prop::collection::vec(axis(), 1..4),
            sides in prop::collection::vec(1u64..9, 3),
        ) {
            let block = &sides[..axes.len()];
            let strides: Vec<isize> = (0..axes.len()).map(|i| [10_000, 100, 1][i]).collect();
            let selection = Selection { axes: axes.clone(), strides: strides.clone(), offset: 5 };
            let mut expected = vec![(Vec::new(), 5isize)];
            for (axis, stride) in axes.iter().zip(&strides) {
                let list: Vec<u64> = match axis {
                    Axis::Range { start, step, count } => (0..*count).map(|i| start + i * step).collect(),
                    Axis::List(l) => l.clone(),
                };
                expected = expected.iter().flat_map(|(c, d)| {
                    list.iter().enumerate().map(|(i, &x)| {
                        let mut c = c.clone();
                        c.push(x);
                        (c, d + i as isize * stride)
                    }).collect::<Vec<_>>()
                }).collect();
            }
            expected.sort();
            prop_assert_eq!(elements(&Plan::new(&selection, block, 1), block), expected);
        }
    }

    #[test]
    fn bounds_are_checked_without_overflow() {
        let s = Selection {
            axes: vec![Axis::Range { start: u64::MAX - 1, step: u64::MAX, count: 2 }],
            strides: vec![1],
            offset: 0,
        };
        assert!(matches!(s.check(&[u64::MAX]), Err(Error::OutOfRange { axis: 0, .. })));
    }
}
