//! Coverage of a write: finds the access units of a block that the write's tasks replace entirely, and the number of
//! bytes that the tasks write to each unit.
//!
//! The old content of a covered unit is not needed. Units are computed only if a write has one box in the block.
//! Several boxes of one command are disjoint; if together they do not cover the whole block, no unit is regarded as
//! covered.

use smallvec::SmallVec;

use super::Writer;
use crate::stl::copy::Loop;
use crate::stl::plan::Task;
use crate::stl::space::BlockShape;
use crate::stl::units::UnitSet;

/// The part of a block that a write replaces entirely.
pub(super) struct Covered {
    /// Whether the write replaces the whole block.
    pub(super) whole: bool,
    /// The covered access units; empty if `whole` is true.
    pub(super) units: UnitSet,
}

impl Writer<'_> {
    /// Finds the access units that the tasks cover entirely. `valid` is the number of the block's elements along each
    /// dimension that lie within the space; elements outside it count as covered.
    pub(super) fn covered(&self, tasks: &[Task<'_>], valid: &[u64]) -> Covered {
        let shape = &self.space.shape;
        let mut covered = Covered { whole: false, units: UnitSet::default() };
        covered.units.clear(shape.units);
        let elements = |t: &Task<'_>| -> Option<u64> {
            t.loops.iter().try_fold(1u64, |n, l| match l {
                Loop::Affine { n: m, .. } => Some(n * *m as u64),
                Loop::Table(_) => None, // coordinates may repeat
            })
        };
        // Boxes of one command are disjoint, so counting elements is enough.
        let total = tasks.iter().try_fold(0, |sum, t| Some(sum + elements(t)?));
        covered.whole = total == Some(valid.iter().product());
        debug_assert!(total <= Some(valid.iter().product()), "{total:?} elements of {valid:?}");
        if let ([task], false) = (tasks, covered.whole) {
            self.covered_units(task, valid, &mut covered.units);
        }
        covered
    }

    fn covered_units(&self, task: &Task<'_>, valid: &[u64], units: &mut UnitSet) {
        let shape = &self.space.shape;
        let n = shape.block.len();
        let mut sides: SmallVec<[(u64, u64); 4]> = SmallVec::new(); // (first, end) for each dimension
        let mut rest = task.in_block as u64;
        for i in 0..n {
            let Loop::Affine { n: count, from, .. } = task.loops[i] else { return };
            let first = rest / shape.strides[i];
            rest %= shape.strides[i];
            if count > 1 && from as u64 != shape.strides[i] {
                return; // a step leaves gaps
            }
            let end = first + count as u64;
            sides.push((first, if end == valid[i] { shape.block[i] } else { end }));
        }
        // The longest contiguous run: whole dimensions from the last one on, and a range of the one before these.
        let mut k = n - 1;
        while k > 0 && sides[k] == (0, shape.block[k]) {
            k -= 1;
        }
        let run = (sides[k].1 - sides[k].0) * shape.strides[k];
        if run < shape.page as u64 {
            return;
        }
        let mut at: SmallVec<[u64; 4]> = sides[..k].iter().map(|s| s.0).collect();
        loop {
            let start = at.iter().zip(&shape.strides).map(|(a, s)| a * s).sum::<u64>() + sides[k].0 * shape.strides[k];
            let (page, end) = (shape.page as u64, start + run);
            // The block's last unit may be incomplete; the end of the block counts as its end.
            let last = if end == shape.bytes as u64 { end.div_ceil(page) } else { end / page };
            let first = start.div_ceil(page);
            if first < last {
                units.add(first as u32..last as u32);
            }
            let Some(i) = (0..k).rev().find(|&i| at[i] + 1 < sides[i].1) else { return };
            at[i] += 1;
            for j in i + 1..k {
                at[j] = sides[j].0;
            }
        }
    }
}

/// Returns the number of bytes that the tasks write to each unit of a block; a byte that is written twice counts twice.
pub(super) fn written(tasks: &[Task<'_>], shape: &BlockShape) -> Vec<u64> {
    let mut units = vec![0; shape.units as usize];
    for task in tasks {
        let mut run = shape.item_bytes;
        let mut left = task.loops.len();
        while let Some(&Loop::Affine { n, from, .. }) = left.checked_sub(1).map(|i| &task.loops[i]) {
            if n != 1 && from != run as isize {
                break;
            }
            run *= n;
            left -= 1;
        }
        count_runs(&task.loops[..left], task.in_block, run, shape.page, &mut units);
    }
    units
}

/// Adds to each entry of `units` the bytes that the runs of the loops have in this access unit. The runs are `run`
/// bytes long, and the first one begins at byte `at` of the block.
fn count_runs(loops: &[Loop<'_>], at: usize, run: usize, page: usize, units: &mut [u64]) {
    match loops {
        [] => {
            let (mut at, end) = (at, at + run);
            while at < end {
                let next = (at / page + 1) * page;
                units[at / page] += (end.min(next) - at) as u64;
                at = next;
            }
        }
        [Loop::Affine { n, from, .. }, rest @ ..] => {
            (0..*n).for_each(|i| count_runs(rest, at + i * *from as usize, run, page, units));
        }
        [Loop::Table(pairs), rest @ ..] => {
            pairs.iter().for_each(|&(from, _)| count_runs(rest, at + from as usize, run, page, units));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stl::plan::{Axis, Plan, Selection};

    #[test]
    fn written_bytes_are_counted_by_unit() {
        // Two rows of 64 elements a page.
        let shape = BlockShape {
            block: [8, 64][..].into(),
            strides: [256, 4][..].into(),
            item_bytes: 4,
            bytes: 2048,
            units: 4,
            page: 512,
            fill: vec![0; 4],
        };
        let range = |start, step, count| Axis::Range { start, step, count };
        let counted = |rows: Axis, columns: Axis, times: usize| {
            let selection = Selection { axes: vec![rows, columns], strides: vec![256, 4], offset: 0 };
            let plan = Plan::new(&selection, &shape.block, 4);
            assert_eq!(plan.tasks(), 1);
            let tasks: Vec<_> = (0..times).map(|_| plan.task(0)).collect();
            written(&tasks, &shape)
        };
        assert_eq!(counted(range(1, 1, 4), range(0, 1, 64), 1), [256, 512, 256, 0]);
        assert_eq!(counted(range(1, 1, 4), range(0, 2, 32), 1), [128, 256, 128, 0], "every other element");
        assert_eq!(counted(range(1, 2, 3), range(0, 1, 64), 1), [256; 3].into_iter().chain([0]).collect::<Vec<_>>());
        assert_eq!(counted(range(7, 1, 1), range(5, 1, 3), 2), [0, 0, 0, 24], "the same bytes twice");
        assert_eq!(counted(Axis::List(vec![6, 0, 6]), range(0, 1, 10), 1), [40, 0, 0, 80], "a row twice");
    }
}
