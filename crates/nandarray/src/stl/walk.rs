//! The tasks of a plan in order, each found from the one before: a walk over the product of the dimensions' groups.
//!
//! A task made anew ([`Plan::task`]) divides by every dimension and copies its loops; of neighbouring blocks most of
//! that is the same. Here a step changes what differs, and says whether the loops do.

use smallvec::SmallVec;

use super::copy::Loop;
use super::plan::{AxisPlan, BlockAt, Group, Plan};

/// One task of a plan after the other.
#[derive(Debug)]
pub(super) struct Walk<'p> {
    plan: &'p Plan,
    /// Along each dimension, which group.
    groups: SmallVec<[usize; 4]>,
    /// The block.
    pub(super) at: BlockAt,
    /// Of the first element in the block: of a list, where its table counts from.
    pub(super) in_block: usize,
    /// Of the first element in the buffer.
    pub(super) in_buffer: isize,
    /// The least and the largest offset of an element in the block, beyond `in_block`.
    pub(super) reach: (usize, usize),
    /// Whether the loops are others than those of the task before.
    pub(super) turned: bool,
}

impl<'p> Walk<'p> {
    /// At the plan's `index`-th task.
    pub(super) fn new(plan: &'p Plan, mut index: u64) -> Self {
        let mut walk = Self {
            plan,
            groups: SmallVec::from_elem(0, plan.axes.len()),
            at: SmallVec::from_elem(0, plan.axes.len()),
            in_block: 0,
            in_buffer: plan.offset,
            reach: (0, 0),
            turned: true,
        };
        for (i, axis) in plan.axes.iter().enumerate().rev() {
            let n = axis.groups.len() as u64;
            walk.groups[i] = (index % n) as usize;
            index /= n;
            walk.add(i, &axis.groups[walk.groups[i]]);
        }
        walk
    }

    fn add(&mut self, dimension: usize, group: &Group) {
        self.at[dimension] = group.block;
        self.in_block += group.in_block;
        self.in_buffer += group.in_buffer;
        self.reach.0 += group.reach.0;
        self.reach.1 += group.reach.1;
    }

    /// Goes on to the next task; behind the last one to the first.
    #[inline]
    pub(super) fn step(&mut self) {
        self.turned = false;
        for (i, axis) in self.plan.axes.iter().enumerate().rev() {
            let AxisPlan { groups, .. } = axis;
            if groups.len() == 1 {
                continue;
            }
            let gone = &groups[self.groups[i]];
            self.groups[i] += 1;
            let over = self.groups[i] == groups.len();
            if over {
                self.groups[i] = 0;
            }
            let next = &groups[self.groups[i]];
            self.turned |= !axis.alike(gone, next);
            self.in_block -= gone.in_block;
            self.in_buffer -= gone.in_buffer;
            self.reach.0 -= gone.reach.0;
            self.reach.1 -= gone.reach.1;
            self.add(i, next);
            if !over {
                return;
            }
        }
    }

    /// The task's loops, from the block to the buffer, one a dimension.
    pub(super) fn loops(&self) -> SmallVec<[Loop<'p>; 6]> {
        let group = |(axis, &group): (&'p AxisPlan, &usize)| axis.steps(&axis.groups[group]);
        self.plan.axes.iter().zip(&self.groups).map(group).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::plan::{Axis, Selection};
    use super::*;

    fn axis() -> impl Strategy<Value = Axis> {
        prop_oneof![
            (0u64..20, 1u64..8, 1u64..9).prop_map(|(start, step, count)| Axis::Range { start, step, count }),
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
            let mut walk = Walk::new(&plan, first);
            let mut before = String::new();
            for index in first..plan.tasks() {
                let task = plan.task(index);
                prop_assert_eq!(&walk.at, &task.at);
                prop_assert_eq!((walk.in_block, walk.in_buffer), (task.in_block, task.in_buffer));
                let span = walk.in_block + walk.reach.0..walk.in_block + walk.reach.1 + 4;
                prop_assert_eq!(span, task.span(4));
                let loops = format!("{:?}", walk.loops());
                prop_assert_eq!(&loops, &format!("{:?}", task.loops));
                prop_assert!(walk.turned || loops == before, "loops changed unsaid");
                before = loops;
                walk.step();
            }
        }
    }
}
