//! Which building blocks a command touches, and which elements of each: the space translator's second half.
//!
//! A [`Selection`] says, per dimension of the space, a range with a step or a list of coordinates, and where the
//! elements lie in the caller's buffer (byte strides). [`Plan::new`] cuts every dimension at the building blocks' edges
//! into [`Group`]s; the blocks touched are the product of the groups, numbered so that the last dimension runs fastest.
//! For one block the groups give the loops of a copy; nothing is materialised per block, so a plan costs what its
//! dimensions cost.
//!
//! Bounds are checked here, once, for everything below that trusts pointers.

use smallvec::SmallVec;

use super::copy::{Loop, merge};
use crate::error::{Error, Result, Shape};

/// A building block's coordinate, in blocks.
pub type BlockAt = SmallVec<[u64; 4]>;

/// The elements wanted along one dimension.
#[derive(Clone, Debug)]
pub enum Axis {
    /// `count` coordinates from `start`, `step` >= 1 apart.
    Range {
        /// First coordinate.
        start: u64,
        /// Distance, at least 1.
        step: u64,
        /// How many.
        count: u64,
    },
    /// These coordinates in this order; repeats are allowed, and of repeats that are written the last wins.
    List(Vec<u64>),
}

impl Axis {
    /// How many elements are wanted.
    pub fn count(&self) -> u64 {
        match self {
            Self::Range { count, .. } => *count,
            Self::List(list) => list.len() as u64,
        }
    }
}

/// Elements of a space and where they lie in a buffer.
#[derive(Clone, Debug)]
pub struct Selection {
    /// One axis a dimension of the space.
    pub axes: Vec<Axis>,
    /// Byte stride in the buffer, one a dimension.
    pub strides: Vec<isize>,
    /// Byte offset of the first element in the buffer.
    pub offset: isize,
}

impl Selection {
    /// The whole box `start + [0, count)` with the strides of a C-contiguous buffer.
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

    /// Elements selected.
    pub fn elements(&self) -> u64 {
        self.axes.iter().map(Axis::count).fold(1, u64::saturating_mul)
    }

    /// Checks the selection against a shape.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a wrong number of dimensions or a step of 0, [`Error::OutOfRange`] with the coordinate.
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

    /// Checks that a plan of it fits in memory: along each dimension it is a list of the blocks touched.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the number of blocks.
    pub fn check_blocks(&self, block: &[u64]) -> Result<()> {
        for (axis, (wanted, side)) in self.axes.iter().zip(block).enumerate() {
            let blocks = match wanted {
                Axis::Range { step, count, .. } => {
                    (count.saturating_sub(1).saturating_mul(*step) / side + 1).min(*count)
                }
                Axis::List(list) => list.len() as u64,
            };
            if blocks > BLOCKS_MOST {
                return Err(Error::invalid(format!(
                    "the selection touches {blocks} building blocks along axis {axis}; one command takes {BLOCKS_MOST} at most"
                )));
            }
        }
        Ok(())
    }
}

/// Building blocks that a selection may touch along one dimension: of the usual size they are 16 TiB.
const BLOCKS_MOST: u64 = 1 << 26;

/// The part of a dimension's elements that lies in one building block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// The block's coordinate along the dimension.
    pub(super) block: u64,
    /// The first entry of the dimension's table (lists only).
    first: usize,
    /// Elements.
    pub(super) count: usize,
    /// What it adds to the task's offset in the block, and to that in the buffer: 0 of a list, whose table has them.
    pub(super) in_block: usize,
    pub(super) in_buffer: isize,
    /// From there, the least and the largest offset in the block.
    pub(super) reach: (usize, usize),
}

/// One dimension of a plan.
#[derive(Debug)]
pub(super) struct AxisPlan {
    pub(super) groups: Vec<Group>,
    /// The step of a range; 0 for a list.
    step: u64,
    /// (offset in the block, offset in the buffer) in bytes, of a list.
    table: Vec<(isize, isize)>,
    stride_block: isize,
    stride_buffer: isize,
}

/// A selection cut at the edges of building blocks.
#[derive(Debug)]
pub struct Plan {
    pub(super) axes: Vec<AxisPlan>,
    /// The dimension of the buffer's rows: the last one along which more than one element is wanted.
    row: usize,
    tasks: u64,
    pub(super) offset: isize,
}

/// Byte strides of a building block, C order.
pub fn block_strides(block: &[u64], item_bytes: u64) -> SmallVec<[u64; 4]> {
    let mut strides: SmallVec<[u64; 4]> = SmallVec::from_elem(item_bytes, block.len());
    for i in (0..block.len().saturating_sub(1)).rev() {
        strides[i] = strides[i + 1] * block[i + 1];
    }
    strides
}

impl Plan {
    /// Cuts a selection, which was checked against the space's shape, at blocks of this shape.
    pub fn new(selection: &Selection, block: &[u64], item_bytes: u64) -> Self {
        let strides = block_strides(block, item_bytes);
        let axes: Vec<AxisPlan> = selection
            .axes
            .iter()
            .enumerate()
            .map(|(i, axis)| AxisPlan::new(axis, block[i], strides[i] as isize, selection.strides[i]))
            .collect();
        let tasks = axes.iter().map(|a| a.groups.len() as u64).product();
        let row = (0..axes.len()).rev().find(|&i| selection.axes[i].count() > 1).unwrap_or(0);
        Self { axes, row, tasks, offset: selection.offset }
    }

    /// How many building blocks are touched.
    pub fn tasks(&self) -> u64 {
        self.tasks
    }

    /// How many tasks in order are neighbours along the buffer's rows, and the elements of a row.
    pub fn row(&self) -> (u64, u64) {
        let Some(AxisPlan { groups, .. }) = self.axes.get(self.row) else { return (1, 1) };
        (groups.len() as u64, groups.iter().map(|g| g.count as u64).sum())
    }

    /// The first and last block coordinate along each dimension: a box around every block touched.
    pub fn bounds(&self) -> Vec<(u64, u64)> {
        let of = |a: &AxisPlan| {
            let low = a.groups.iter().map(|g| g.block).min().unwrap_or(0);
            (low, a.groups.iter().map(|g| g.block).max().unwrap_or(0))
        };
        self.axes.iter().map(of).collect()
    }

    /// The part of the selection in the `index`-th block.
    pub fn task(&self, mut index: u64) -> Task<'_> {
        debug_assert!(index < self.tasks);
        let mut at: BlockAt = SmallVec::from_elem(0, self.axes.len());
        let mut loops: SmallVec<[Loop<'_>; 6]> = SmallVec::from_elem(Loop::Table(&[]), self.axes.len());
        let (mut in_block, mut in_buffer) = (0, self.offset);
        for (i, axis) in self.axes.iter().enumerate().rev() {
            let group = &axis.groups[(index % axis.groups.len() as u64) as usize];
            index /= axis.groups.len() as u64;
            at[i] = group.block;
            loops[i] = axis.steps(group);
            in_block += group.in_block;
            in_buffer += group.in_buffer;
        }
        Task { at, loops, row: self.row, in_block, in_buffer }
    }
}

impl AxisPlan {
    /// The loop over a group's elements.
    pub(super) fn steps(&self, group: &Group) -> Loop<'_> {
        if self.step == 0 {
            return Loop::Table(&self.table[group.first..group.first + group.count]);
        }
        // A step may be longer than what addresses reach, where only one element lies in a block.
        let from = (self.step as isize).wrapping_mul(self.stride_block);
        Loop::Affine { n: group.count, from, to: self.stride_buffer }
    }

    /// Whether the loops over two groups are the same.
    pub(super) fn alike(&self, a: &Group, b: &Group) -> bool {
        self.step > 0 && a.count == b.count
    }

    fn new(axis: &Axis, side: u64, stride_block: isize, stride_buffer: isize) -> Self {
        match axis {
            &Axis::Range { start, step, count } => {
                let blocks = count.saturating_sub(1).saturating_mul(step) / side + 2;
                let mut groups = Vec::with_capacity(blocks.min(count).min(BLOCKS_MOST) as usize);
                let (mut wanted, mut block, mut first) = (0, start / side, start % side);
                while wanted < count {
                    // Elements from `first` on that lie in this block: the last one is below the block's end.
                    let fit = if step == 1 { side - first } else { (side - first - 1) / step + 1 };
                    let n = fit.min(count - wanted);
                    let reach = (n - 1) as usize * step as usize * stride_block as usize;
                    groups.push(Group {
                        block,
                        first: 0,
                        count: n as usize,
                        in_block: first as usize * stride_block as usize,
                        in_buffer: wanted as isize * stride_buffer,
                        reach: (0, reach),
                    });
                    wanted += n;
                    if step == 1 {
                        (block, first) = (block + 1, 0);
                    } else if wanted < count {
                        let at = start + wanted * step;
                        (block, first) = (at / side, at % side);
                    }
                }
                Self { groups, step, table: Vec::new(), stride_block, stride_buffer }
            }
            Axis::List(list) => {
                let mut order: Vec<usize> = (0..list.len()).collect();
                order.sort_by_key(|&i| list[i] / side); // stable: of repeats the last stays last
                let mut groups: Vec<Group> = Vec::new();
                let mut table = Vec::with_capacity(list.len());
                for &i in &order {
                    let (block, offset) = (list[i] / side, (list[i] % side) as usize * stride_block as usize);
                    match groups.last_mut() {
                        Some(g) if g.block == block => {
                            g.count += 1;
                            g.reach = (g.reach.0.min(offset), g.reach.1.max(offset));
                        }
                        _ => {
                            let (first, reach) = (table.len(), (offset, offset));
                            groups.push(Group { block, first, count: 1, in_block: 0, in_buffer: 0, reach });
                        }
                    }
                    table.push((offset as isize, i as isize * stride_buffer));
                }
                Self { groups, step: 0, table, stride_block, stride_buffer }
            }
        }
    }
}

/// The part of a selection in one building block. Loops run from the block to the buffer.
#[derive(Debug)]
pub struct Task<'a> {
    /// The block.
    pub at: BlockAt,
    /// Loops from block (source side) to buffer (destination side), one a dimension, not merged.
    pub loops: SmallVec<[Loop<'a>; 6]>,
    /// Which of the loops goes along the buffer's rows.
    pub row: usize,
    /// Byte offset of the first element in the block.
    pub in_block: usize,
    /// Byte offset of the first element in the buffer.
    pub in_buffer: isize,
}

impl Task<'_> {
    /// The first and the last byte touched in the block (inclusive, exclusive).
    pub fn span(&self, item_bytes: usize) -> std::ops::Range<usize> {
        let (low, high) = span(&self.loops);
        self.in_block + low..self.in_block + high + item_bytes
    }

    /// The same loops seen from the buffer (source side) to the block.
    pub fn reversed<'t>(&self, tables: &'t mut Vec<Vec<(isize, isize)>>) -> SmallVec<[Loop<'t>; 6]> {
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

    /// In how many contiguous pieces the task moves how many bytes.
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

    /// Calls `touch` with byte ranges of the block that cover every element of the task, no wider than `grain` beyond
    /// it.
    pub fn touch(&self, item_bytes: usize, grain: usize, touch: &mut dyn FnMut(std::ops::Range<usize>)) {
        touch_loops(&self.loops, self.in_block, item_bytes, grain, touch);
    }
}

/// The least and the largest offset that the loops reach in the block.
pub(super) fn span(loops: &[Loop<'_>]) -> (usize, usize) {
    loops.iter().fold((0, 0), |(low, high), l| match *l {
        Loop::Affine { n, from, .. } => (low, high + (n - 1) * from as usize),
        Loop::Table(pairs) => {
            let least = pairs.iter().map(|p| p.0).min().unwrap_or(0) as usize;
            (low + least, high + pairs.iter().map(|p| p.0).max().unwrap_or(0) as usize)
        }
    })
}

/// [`Task::touch`] of loops whose first element lies at `base`.
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
        // Dense enough that skipping within would not skip a page.
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

/// Whether loops leave no gap of a whole grain between elements.
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
        fn every_element_once_at_its_place(axes in prop::collection::vec(axis(), 1..4), sides in prop::collection::vec(1u64..9, 3)) {
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
