//! Targets of commands as work: boxes, views, outer selections and points, checked and cut at building blocks.
//!
//! Nothing is read or written here. The work of a view whose dimensions do not line up with those of the space comes in
//! batches, which bounds its memory; that of a write is one batch.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::Target;
use crate::error::{Error, Result, Shape};
use crate::media::EXTENT_BYTES;
use crate::sched::BlockBox;
use crate::stl::plan::{Axis, Plan, Selection, StridedBox};
use crate::stl::prefetch::readahead::ElementBox;
use crate::stl::space::Space;
use crate::stl::translate::{check_view, translate};
use crate::stl::work::Work;

/// Largest number of selections in one batch when a view is read: bounds the memory for a view whose dimensions do not
/// line up with those of the space.
pub(super) const SELECTIONS_AT_ONCE: usize = 4096;

/// Limit of [`Planner::at_once`] for a write, whose selections all belong in one batch: a write is whole or absent, and
/// a block that several selections touch must be composed once.
pub(super) const ALL_AT_ONCE: usize = usize::MAX;

/// Checks that boxes have as many dimensions as the shape and, if they are written, that any two are equal or disjoint.
fn check_boxes(starts: &[u64], one: &StridedBox<'_>, shape: &[u64], written: bool) -> Result<()> {
    let &StridedBox { step, count, strides, .. } = one;
    let n = shape.len();
    if n == 0 || [step.len(), count.len(), strides.len()] != [n; 3] || !starts.len().is_multiple_of(n) {
        return Err(Error::invalid(format!(
            "{} coordinates are no boxes of {} dimensions; the shape is {}",
            starts.len(),
            count.len(),
            Shape(shape)
        )));
    }
    for axis in (0..n).filter(|&i| written && count[i] != 1) {
        let mut along = starts.chunks_exact(n).map(|start| start[axis]);
        let first = along.next();
        if let Some(other) = along.find(|&start| Some(start) != first) {
            return Err(Error::invalid(format!(
                "boxes of {} elements along axis {axis} begin at {} and at {other}; all must begin at the same",
                count[axis],
                first.unwrap_or(0)
            )));
        }
    }
    Ok(())
}

/// Callback that receives a batch of work and the number of its bytes in the buffer.
pub(super) type EachWork<'e> = &'e mut dyn FnMut(Work, u64) -> Result<()>;

/// Turns targets into work on a space of this shape.
struct Planner<'a> {
    space: &'a Space,
    shape: &'a [u64],
    /// Largest number of selections in one batch of work.
    at_once: usize,
}

impl Planner<'_> {
    fn item(&self) -> u64 {
        self.space.shape.item_bytes as u64
    }

    fn plan(&self, selection: &Selection) -> Result<Plan> {
        selection.check_blocks(&self.space.shape.block)?;
        Ok(Plan::new(selection, &self.space.shape.block, self.item()))
    }

    /// Checks one selection of the space itself, and passes its work to `each`.
    fn single(&self, selection: Selection, each: EachWork<'_>) -> Result<()> {
        selection.check(self.shape)?;
        let elements = selection.elements();
        if elements == 0 {
            return Ok(());
        }
        each(Work::plans(vec![self.plan(&selection)?]), elements.saturating_mul(self.item()))
    }

    /// Passes the work of a box of the space, or of a view of it, to `each`.
    fn of_box(&self, wanted: &StridedBox<'_>, view: Option<&[u64]>, each: EachWork<'_>) -> Result<()> {
        let &StridedBox { start, step, count, strides } = wanted;
        let n = view.map_or(self.shape.len(), <[u64]>::len);
        if [start.len(), step.len(), count.len(), strides.len()] != [n; 4] {
            return Err(Error::invalid(format!(
                "the selection has {} dimensions; {} are needed for shape {}",
                start.len(),
                n,
                Shape(view.unwrap_or(self.shape))
            )));
        }
        let Some(view) = view.filter(|v| *v != self.shape) else {
            let axis = |i: usize| Axis::Range { start: start[i], step: step[i], count: count[i] };
            let s = Selection { axes: (0..n).map(axis).collect(), strides: strides.to_vec(), offset: 0 };
            return self.single(s, each);
        };
        check_view(self.shape, view)?;
        let mut batch = PlanBatch { planner: self, plans: Vec::new(), bytes: 0 };
        translate(self.shape, view, wanted, &mut |s| batch.add(&s, each))?;
        batch.finish(each)
    }

    /// Passes the work of several boxes of one size to `each`: `starts` has their first coordinates, and successive
    /// boxes lie `stride` bytes apart in the buffer.
    fn of_boxes(
        &self,
        starts: &[u64],
        stride: isize,
        one: &StridedBox<'_>,
        within: &[u64],
        each: EachWork<'_>,
    ) -> Result<()> {
        check_boxes(starts, one, within, self.at_once == ALL_AT_ONCE)?;
        check_view(self.shape, within)?;
        let boxes = starts.chunks_exact(within.len()).enumerate();
        // Boxes that are written must be disjoint: of several equal ones only the last is kept.
        let last: HashMap<&[u64], usize> = if self.at_once == ALL_AT_ONCE {
            boxes.clone().map(|(i, start)| (start, i)).collect()
        } else {
            HashMap::new()
        };
        let mut batch = PlanBatch { planner: self, plans: Vec::new(), bytes: 0 };
        for (i, start) in boxes.filter(|(i, start)| last.get(start).is_none_or(|last| last == i)) {
            translate(self.shape, within, &StridedBox { start, ..*one }, &mut |mut s| {
                s.offset += i as isize * stride;
                batch.add(&s, each)
            })?;
        }
        batch.finish(each)
    }

    /// Passes the work of single elements to `each`.
    fn of_points(&self, coordinates: &[u64], stride: isize, each: EachWork<'_>) -> Result<()> {
        let n = self.shape.len();
        if !coordinates.len().is_multiple_of(n) {
            return Err(Error::invalid(format!("{} coordinates are no points of {n} dimensions", coordinates.len())));
        }
        let work = Work::points(coordinates, self.shape, &self.space.shape.block, &self.space.shape.strides, stride)?;
        let bytes = (coordinates.len() / n) as u64 * self.item();
        if bytes == 0 { Ok(()) } else { each(work, bytes) }
    }
}

/// Plans that are collected for one batch of work.
struct PlanBatch<'a> {
    planner: &'a Planner<'a>,
    plans: Vec<Plan>,
    bytes: u64,
}

impl PlanBatch<'_> {
    /// Adds the plan of a selection; if the batch is full then, calls `each` with its work and empties it.
    fn add(&mut self, selection: &Selection, each: EachWork<'_>) -> Result<()> {
        self.bytes = self.bytes.saturating_add(selection.elements().saturating_mul(self.planner.item()));
        self.plans.push(self.planner.plan(selection)?);
        if self.plans.len() < self.planner.at_once {
            return Ok(());
        }
        each(Work::plans(std::mem::take(&mut self.plans)), std::mem::take(&mut self.bytes))
    }

    /// Calls `each` with the plans that are left, if there are any.
    fn finish(self, each: EachWork<'_>) -> Result<()> {
        if self.plans.is_empty() { Ok(()) } else { each(Work::plans(self.plans), self.bytes) }
    }
}

/// Calls `each` with the work of a target; the work of a view comes in batches of up to `at_once` selections.
pub(super) fn for_work(
    space: &Space,
    shape: &[u64],
    target: &Target<'_>,
    at_once: usize,
    each: EachWork<'_>,
) -> Result<()> {
    let planner = Planner { space, shape, at_once };
    match *target {
        // A target without dimensions: the element of a scalar, or of a space of one element that is viewed as a
        // scalar.
        Target::Box { start: [], count: [], view, .. } if view.map_or(shape == [1], <[u64]>::is_empty) => {
            check_view(shape, &[])?;
            let n = shape.len();
            planner.single(Selection::contiguous(&vec![0; n], &vec![1; n], planner.item()), each)
        }
        Target::Box { start, step, count, strides, view } => {
            planner.of_box(&StridedBox { start, step, count, strides }, view, each)
        }
        Target::Boxes { starts, step, count, strides, stride, view } => {
            let one = StridedBox { start: &[], step, count, strides };
            planner.of_boxes(starts, stride, &one, view.unwrap_or(shape), each)
        }
        Target::Outer { axes, strides } => {
            if strides.len() != axes.len() {
                return Err(Error::invalid("as many strides as axes are needed"));
            }
            planner.single(Selection { axes: axes.to_vec(), strides: strides.to_vec(), offset: 0 }, each)
        }
        Target::Points { coordinates, stride } => planner.of_points(coordinates, stride, each),
    }
}

/// Returns all work of a write as one batch, and its number of bytes; `None` if the target is empty.
pub(super) fn plan_box(space: &Space, shape: &[u64], target: &Target<'_>) -> Result<Option<(Work, u64)>> {
    let mut works = Vec::new();
    for_work(space, shape, target, ALL_AT_ONCE, &mut |work, bytes| {
        works.push((work, bytes));
        Ok(())
    })?;
    let found = works.pop();
    debug_assert!(works.is_empty(), "one batch");
    Ok(found)
}

/// Returns the smallest box of building blocks that holds all elements of a target; `None` if the target is empty.
pub(super) fn blocks_of(space: &Space, shape: &[u64], target: &Target<'_>) -> Result<Option<BlockBox>> {
    let mut around: Option<BlockBox> = None;
    for_work(space, shape, target, SELECTIONS_AT_ONCE, &mut |work, _| {
        let bounds = work.bounds(shape.len());
        match &mut around {
            None => around = Some(bounds),
            Some(all) => all.iter_mut().zip(bounds).for_each(|(x, y)| *x = (x.0.min(y.0), x.1.max(y.1))),
        }
        Ok(())
    })?;
    Ok(around)
}

/// Returns the target as a box of the space; `None` if it is no box, is a box of another view, is empty, or does not
/// lie within the space.
fn boxed<'a>(shape: &[u64], target: &'a Target<'_>) -> Option<StridedBox<'a>> {
    let &Target::Box { start, step, count, strides, view } = target else { return None };
    if view.is_some_and(|v| v != shape) || [start.len(), step.len(), count.len(), strides.len()] != [shape.len(); 4] {
        return None;
    }
    let wanted = StridedBox { start, step, count, strides };
    lies_within(&wanted, shape).then_some(wanted)
}

/// Whether a box with as many dimensions as the shape has elements, and all of them lie within the shape.
pub(super) fn lies_within(wanted: &StridedBox<'_>, shape: &[u64]) -> bool {
    let &StridedBox { start, step, count, .. } = wanted;
    let last = |i: usize| count[i].checked_sub(1)?.checked_mul(step[i])?.checked_add(start[i]);
    (0..shape.len()).all(|i| step[i] > 0 && last(i).is_some_and(|last| last < shape[i]))
}

pub(super) fn extent(shape: &[u64], target: &Target<'_>) -> Option<ElementBox> {
    let StridedBox { start, step, count, .. } = boxed(shape, target)?;
    let whole = step.iter().all(|&step| step == 1);
    whole.then(|| ElementBox { start: SmallVec::from_slice(start), count: SmallVec::from_slice(count) })
}

/// Returns the work of the predicted next read, if reads of boxes have followed one another at equal distances; `None`
/// without such a pattern.
pub(super) fn predicted(space: &Space, shape: &[u64], target: &Target<'_>) -> Option<Work> {
    let now = extent(shape, target)?;
    let item = space.shape.item_bytes as u64;
    // Successive blocks along the last dimension usually lie in one extent; coded ones take any number of pages.
    let together = if space.coded() { 1 } else { (EXTENT_BYTES / space.shape.bytes as u64).max(1) };
    let next = space.access.reads.next(now, shape, &space.shape.block, together, item)?;
    let selection = Selection::contiguous(&next.start, &next.count, item);
    Some(Work::plans(vec![Plan::new(&selection, &space.shape.block, item)]))
}
