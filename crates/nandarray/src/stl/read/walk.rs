//! First stage of a read: a walk through the building blocks of a plan in order, each computed from the one before.
//!
//! [`Plan::task`] divides by every dimension and copies all loops, although for neighbouring blocks most of this is the
//! same. Here a step updates only the dimensions that differ, and records whether the loops do. The walk neither looks
//! up pages nor moves bytes.

use std::ops::Range;

use smallvec::SmallVec;

use crate::stl::plan::{AxisGroup, BlockAt, Loops, Plan, Task};

/// An iterator over the blocks of a plan, with the present block's part of the selection.
#[derive(Debug)]
pub(super) struct BlockWalk<'p> {
    plan: &'p Plan,
    /// For each dimension, the number of the present group, and the group.
    groups: SmallVec<[(u64, AxisGroup); 4]>,
    /// Coordinate of the present block, in blocks.
    pub(super) at: BlockAt,
    /// Byte offset of the first element in the block; for a list, the offset that its table counts from.
    pub(super) in_block: usize,
    /// Byte offset of the first element in the buffer.
    pub(super) in_buffer: isize,
    /// Largest offset of an element in the block, in bytes beyond `in_block`.
    reach: usize,
    /// Whether the loops differ from those of the block before.
    pub(super) loops_changed: bool,
}

impl<'p> BlockWalk<'p> {
    /// Creates a walk that begins at block number `index` of the plan.
    #[inline]
    pub(super) fn new(plan: &'p Plan, mut index: u64) -> Self {
        assert!(index < plan.tasks(), "block {index} of {}", plan.tasks());
        let dimensions = plan.axes.len();
        let mut walk = Self {
            plan,
            groups: SmallVec::with_capacity(dimensions),
            at: SmallVec::with_capacity(dimensions),
            in_block: 0,
            in_buffer: plan.offset,
            reach: 0,
            loops_changed: true,
        };
        let mut left = plan.tasks();
        for axis in &plan.axes {
            let mut number = 0;
            // Divisions would slow small reads, which begin at the first block.
            if index > 0 {
                left /= axis.groups();
                (number, index) = (index / left, index % left);
            }
            let group = axis.group(number);
            walk.groups.push((number, group));
            walk.at.push(group.block);
            walk.add(&group);
        }
        walk
    }

    #[inline]
    fn add(&mut self, group: &AxisGroup) {
        self.in_block += group.in_block;
        self.in_buffer += group.in_buffer;
        self.reach += group.reach.1;
    }

    /// Advances to the next block, from the last one to the first.
    #[inline]
    pub(super) fn step(&mut self) {
        self.loops_changed = false;
        for (i, axis) in self.plan.axes.iter().enumerate().rev() {
            if axis.groups() == 1 {
                continue;
            }
            let (number, gone) = self.groups[i];
            let is_last = number + 1 == axis.groups();
            let number = if is_last { 0 } else { number + 1 };
            let next = axis.group(number);
            self.loops_changed |= !axis.alike(&gone, &next);
            self.in_block -= gone.in_block;
            self.in_buffer -= gone.in_buffer;
            self.reach -= gone.reach.1;
            self.groups[i] = (number, next);
            self.at[i] = next.block;
            self.add(&next);
            if !is_last {
                return;
            }
        }
    }

    /// Returns the range of bytes of the block from the first element (for lists, from the block's start) to the end of
    /// the last one.
    #[inline]
    pub(super) fn span(&self, item_bytes: usize) -> Range<usize> {
        self.in_block..self.in_block + self.reach + item_bytes
    }

    /// Returns the loops over the block's elements, from the block to the buffer, one for each dimension.
    pub(super) fn loops(&self) -> Loops<'p> {
        let plan = self.plan;
        plan.axes.iter().zip(&self.groups).map(|(axis, (_, group))| axis.steps(group)).collect()
    }

    /// Returns the selection's part in the present block as a task.
    pub(super) fn task(&self) -> Task<'p> {
        let Self { in_block, in_buffer, .. } = *self;
        Task { at: self.at.clone(), loops: self.loops(), row: self.plan.row, in_block, in_buffer }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::stl::plan::{Axis, Selection, StridedBox, block_strides};

    fn axis() -> impl Strategy<Value = Axis> {
        prop_oneof![
            (0u64..20, 1u64..16, 1u64..9).prop_map(|(start, step, count)| Axis::Range { start, step, count }),
            prop::collection::vec(0u64..60, 1..6).prop_map(Axis::List),
        ]
    }

    proptest! {
        #[test]
        fn every_step_is_the_task_made_anew(
            axes in prop::collection::vec(axis(), 1..5),
            sides in prop::collection::vec(1u64..9, 4),
            from in 0.0f64..1.0,
        ) {
            let block = &sides[..axes.len()];
            let strides = (0..axes.len()).map(|i| [1_000_000, 10_000, 100, 1][i]).collect();
            let plan = Plan::new(&Selection { axes, strides, offset: 5 }, block, 4);
            let first = (plan.tasks() as f64 * from) as u64;
            let mut walk = BlockWalk::new(&plan, first);
            let mut before = String::new();
            for index in first..plan.tasks() {
                let task = plan.task(index);
                prop_assert_eq!(format!("{:?}", walk.task()), format!("{task:?}"));
                let span = task.span(4);
                prop_assert_eq!(walk.span(4), span.start.min(task.in_block)..span.end);
                let loops = format!("{:?}", walk.loops());
                prop_assert!(walk.loops_changed || loops == before, "loops changed unsaid");
                before = loops;
                walk.step();
            }
            let (behind, first) = (format!("{:?}", walk.task()), format!("{:?}", plan.task(0)));
            prop_assert_eq!(behind, first, "behind the last is the first");
        }

        #[test]
        fn a_box_is_cut_like_its_selection(
            ranges in prop::collection::vec((0u64..20, 1u64..16, 1u64..9), 1..5),
            sides in prop::collection::vec(1u64..9, 4),
        ) {
            let of = |f: fn(&(u64, u64, u64)) -> u64| ranges.iter().map(f).collect::<Vec<_>>();
            let (start, step, count) = (of(|r| r.0), of(|r| r.1), of(|r| r.2));
            let (block, strides) = (&sides[..ranges.len()], vec![7isize; ranges.len()]);
            let axes = ranges.iter().map(|&(start, step, count)| Axis::Range { start, step, count }).collect();
            let plan = Plan::new(&Selection { axes, strides: strides.clone(), offset: 0 }, block, 4);
            let wanted = StridedBox { start: &start, step: &step, count: &count, strides: &strides };
            let of_box = Plan::of_box(&wanted, block, &block_strides(block, 4), 0);
            prop_assert_eq!(format!("{plan:?}"), format!("{of_box:?}"));
        }
    }
}
