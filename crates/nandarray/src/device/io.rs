//! Read, write and deallocate: turns a command's target into work for the layers below, and does the work.

use std::collections::HashMap;
use std::ops::Range;

use smallvec::SmallVec;

use super::wire::{JournalOp, Update};
use super::{Device, Target};
use crate::error::{Error, Result, Shape};
use crate::media::EXTENT_BYTES;
use crate::sched::BlockBox;
use crate::sim::count;
use crate::stl::plan::{Axis, BlockAt, Plan, Selection, StridedBox};
use crate::stl::prefetch::readahead::ElementBox;
use crate::stl::read::{BufferMut, Reader};
use crate::stl::space::{Inner, Space, SpaceId};
use crate::stl::translate::{check_view, translate};
use crate::stl::work::{Work, Workers};
use crate::stl::write::{Applied, Source, Staged, Successor, Writer, apply};

/// Largest number of selections in one batch when a view is read: bounds the memory for a view whose dimensions do not
/// line up with those of the space.
const SELECTIONS_AT_ONCE: usize = 4096;

/// Limit of [`Planner::at_once`] for a write, whose selections all belong in one batch: a write is whole or absent, and
/// a block that several selections touch must be composed once.
const ALL_AT_ONCE: usize = usize::MAX;

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

/// Returns the error of a write whose array shrank after the write was planned and before its blocks were locked.
fn was_cut(shape: &[u64]) -> Error {
    Error::invalid(format!("the array was resized from shape {} during this write", Shape(shape)))
}

/// Callback that receives a batch of work and the number of its bytes in the buffer.
type EachWork<'e> = &'e mut dyn FnMut(Work, u64) -> Result<()>;

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
        self.bytes += selection.elements() * self.planner.item();
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
fn for_work(space: &Space, shape: &[u64], target: &Target<'_>, at_once: usize, each: EachWork<'_>) -> Result<()> {
    let planner = Planner { space, shape, at_once };
    match *target {
        // A target without dimensions: the element of a scalar, or of a space of one element that is viewed as a
        // scalar.
        Target::Box { start: [], count: [], view, .. } if view.is_some() || shape == [1] => {
            check_view(shape, view.unwrap_or(&[1]))?;
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
fn lies_within(wanted: &StridedBox<'_>, shape: &[u64]) -> bool {
    let &StridedBox { start, step, count, .. } = wanted;
    let last = |i: usize| count[i].checked_sub(1)?.checked_mul(step[i])?.checked_add(start[i]);
    (0..shape.len()).all(|i| step[i] > 0 && last(i).is_some_and(|last| last < shape[i]))
}

fn extent(shape: &[u64], target: &Target<'_>) -> Option<ElementBox> {
    let StridedBox { start, step, count, .. } = boxed(shape, target)?;
    let whole = step.iter().all(|&step| step == 1);
    whole.then(|| ElementBox { start: SmallVec::from_slice(start), count: SmallVec::from_slice(count) })
}

/// Returns the work of the predicted next read, if reads of boxes have followed one another at equal distances; `None`
/// without such a pattern.
fn predicted(space: &Space, shape: &[u64], target: &Target<'_>) -> Option<Work> {
    let now = extent(shape, target)?;
    let item = space.shape.item_bytes as u64;
    // Successive blocks along the last dimension usually lie in one extent; coded ones take any number of pages.
    let together = if space.coded() { 1 } else { (EXTENT_BYTES / space.shape.bytes as u64).max(1) };
    let next = space.access.reads.next(now, shape, &space.shape.block, together, item)?;
    let selection = Selection::contiguous(&next.start, &next.count, item);
    Some(Work::plans(vec![Plan::new(&selection, &space.shape.block, item)]))
}

/// Reads a target by the short path if it is small and lies in mapped and verified pages; returns its number of bytes.
/// Returns `None` if the target has to be read by the general path.
///
/// # Safety
/// The buffer must cover the target.
unsafe fn small(reader: &Reader<'_>, target: &Target<'_>, out: BufferMut) -> Option<u64> {
    let (item, shape) = (reader.space.shape.item_bytes as u64, reader.inner.record.shape.as_slice());
    let (starts, step, count, strides, stride, view) = match *target {
        Target::Box { start, step, .. } if start.len() != step.len() => return None,
        Target::Box { start, step, count, strides, view } => (start, step, count, strides, 0, view),
        Target::Boxes { starts, step, count, strides, stride, view } => (starts, step, count, strides, stride, view),
        Target::Points { coordinates, stride } => {
            // SAFETY: the caller's promise.
            let done = unsafe { reader.few_points(coordinates, stride, out) };
            return done.then(|| coordinates.len() as u64 / shape.len() as u64 * item);
        }
        Target::Outer { .. } => return None,
    };
    let (view, one) = (view.unwrap_or(shape), StridedBox { start: &[], step, count, strides });
    // Errors are the general path's.
    let n = view.len();
    let fits = n > 0 && [step.len(), count.len(), strides.len()] == [n; 3] && starts.len().is_multiple_of(n);
    if !fits || starts.is_empty() {
        return None;
    }
    if !starts.chunks_exact(n).all(|start| lies_within(&StridedBox { start, ..one }, view)) {
        return None;
    }
    // SAFETY: the caller's promise; the boxes lie within the view.
    let done = unsafe { reader.small(view, &one, starts, stride, out) };
    done.then(|| (starts.len() / n) as u64 * count.iter().product::<u64>() * item)
}

impl Device {
    /// Calls `f` with a target's bytes in place; does not call it if the bytes are not contiguous.
    ///
    /// Other threads can read the space during the call but not write it: `f` must return, and must not call this
    /// device.
    pub(super) fn lend(&self, id: SpaceId, target: Target<'_>, f: &mut dyn FnMut(&[u8])) -> Result<()> {
        let space = self.space(id)?;
        let inner = space.read()?;
        let reader = Reader { ftl: &self.ftl, space: &space, inner: &inner, watched: true };
        let predicted = predicted(&space, &inner.record.shape, &target);
        let mut works = SmallVec::<[(Work, u64); 1]>::new();
        for_work(&space, &inner.record.shape, &target, ALL_AT_ONCE, &mut |work, bytes| {
            works.push((work, bytes));
            Ok(())
        })?;
        let [(work, total)] = works.as_slice() else { return Ok(()) };
        let Some(bytes) = reader.borrow(work, predicted.as_ref(), *total)? else { return Ok(()) };
        count(&self.counters.reads, 1);
        count(&self.counters.bytes_read, *total);
        f(bytes);
        Ok(())
    }

    /// Appends elements of a space in their packed form to `out`.
    pub(super) fn read_packed(&self, id: SpaceId, elements: Range<u64>, out: &mut Vec<u8>) -> Result<()> {
        let space = self.space(id)?;
        let inner = space.read()?;
        let shape = &inner.record.shape;
        if space.packing().is_none() || shape.len() != 1 || elements.end > shape[0] {
            let (found, end) = (Shape(shape), elements.end);
            return Err(Error::invalid(format!("a packed read up to element {end} of an array of shape {found}")));
        }
        let before = out.len();
        Reader { ftl: &self.ftl, space: &space, inner: &inner, watched: true }.read_packed(elements, out)?;
        count(&self.counters.reads, 1);
        count(&self.counters.bytes_read, (out.len() - before) as u64);
        Ok(())
    }

    pub(super) fn read(&self, id: SpaceId, target: &Target<'_>, out: BufferMut) -> Result<()> {
        self.read_by(&self.workers, id, target, out)
    }

    /// The first half of a read in flight: reports the pages that the read needs to the probe and the medium, and moves
    /// no bytes.
    pub(super) fn locate(&self, id: SpaceId, target: &Target<'_>) -> Result<()> {
        let space = self.space(id)?;
        let inner = space.read()?;
        let reader = Reader { ftl: &self.ftl, space: &space, inner: &inner, watched: true };
        for_work(&space, &inner.record.shape, target, SELECTIONS_AT_ONCE, &mut |work, _| reader.announce(&work))
    }

    /// The second half of a read in flight: moves the bytes. The caller has held the range lock since the first half.
    pub(super) fn read_located(&self, id: SpaceId, target: &Target<'_>, out: BufferMut) -> Result<()> {
        let space = self.space(id)?;
        let inner = space.read()?;
        let reader = Reader { ftl: &self.ftl, space: &space, inner: &inner, watched: false };
        let mut total = 0;
        for_work(&space, &inner.record.shape, target, SELECTIONS_AT_ONCE, &mut |work, bytes| {
            total += bytes;
            // SAFETY: a `BufferMut` is made by the promise that it covers its command's target.
            unsafe { reader.read(&self.workers, &work, None, bytes, out) }
        })?;
        count(&self.counters.reads, 1);
        count(&self.counters.bytes_read, total);
        Ok(())
    }

    /// Reads elements with the help of these worker threads.
    pub(super) fn read_by(&self, workers: &Workers, id: SpaceId, target: &Target<'_>, out: BufferMut) -> Result<()> {
        let space = self.space(id)?;
        // One guard for the whole command: it sees either all of a write or none of it.
        let inner = space.read()?;
        let reader = Reader { ftl: &self.ftl, space: &space, inner: &inner, watched: true };
        let predicted = predicted(&space, &inner.record.shape, target);
        if predicted.is_none() {
            // SAFETY: a `BufferMut` is made by the promise that it covers its command's target.
            if let Some(bytes) = unsafe { small(&reader, target, out) } {
                count(&self.counters.reads, 1);
                count(&self.counters.bytes_read, bytes);
                return Ok(());
            }
        }
        let mut total = 0;
        for_work(&space, &inner.record.shape, target, SELECTIONS_AT_ONCE, &mut |work, bytes| {
            total += bytes;
            // SAFETY: a `BufferMut` is made by the promise that it covers its command's target.
            unsafe { reader.read(workers, &work, predicted.as_ref(), bytes, out) }
        })?;
        count(&self.counters.reads, 1);
        count(&self.counters.bytes_read, total);
        Ok(())
    }

    /// Writes elements. `held` is whether the caller holds the range lock already, as a command in flight does.
    pub(super) fn write(&self, id: SpaceId, target: &Target<'_>, source: Source, held: bool) -> Result<()> {
        self.ready()?;
        let space = self.space(id)?;
        let shape = space.read()?.record.shape.clone();
        let Some((work, bytes)) = plan_box(&space, &shape, target)? else { return Ok(()) };
        let range = if held { None } else { Some(self.hold(&space, work.bounds(shape.len()))?) };
        // The shape was read before the range was locked. If the space has grown since, the target's elements have kept
        // their coordinates, but a view of the old shape is no longer valid.
        let now = space.read()?.record.shape.clone();
        let view = matches!(target, Target::Box { view: Some(_), .. } | Target::Boxes { view: Some(_), .. });
        if now != shape && (view || now.iter().zip(&shape).any(|(now, before)| now < before)) {
            return Err(was_cut(&shape));
        }
        let axis = extent(&now, target).and_then(|written| space.access.appends.next(written));
        let successive = axis.map(|axis| Successor { axis, end: now[axis] });
        self.write_work(&space, &now, &work, (bytes, successive), source, None)?;
        drop(range);
        count(&self.counters.writes, 1);
        count(&self.counters.bytes_written, bytes);
        self.after_write();
        Ok(())
    }

    /// Stages and applies work of `bytes` bytes on a space of this shape; the caller holds the range lock. `successive`
    /// is set if the write continues a series of adjacent writes; `grow` is a new shape that is applied with the work.
    pub(super) fn write_work(
        &self,
        space: &Space,
        shape: &[u64],
        work: &Work,
        (bytes, successive): (u64, Option<Successor>),
        source: Source,
        grow: Option<&[u64]>,
    ) -> Result<()> {
        if space.coded() {
            space.codec()?;
        }
        let mut writer =
            Writer { ftl: &self.ftl, space, seq: self.next_seq(), extent: shape, bytes, over: None, successive };
        let pages = writer.pages_needed(work);
        // Access units that the write buffer has no room for would be written out before they are complete.
        let fits = pages.saturating_mul(space.shape.page as u64) <= self.write_buffer_bytes as u64;
        writer.successive = successive.filter(|_| fits);
        // SAFETY: a `Source` buffer is made by the promise that it covers its command's target.
        let staged = self.stage_in(pages, &mut || unsafe { writer.stage(&self.workers, work, source) })?;
        self.apply(space, staged, grow)
    }

    /// Makes staged blocks visible, together with the new shape if there is one.
    pub(super) fn apply(&self, space: &Space, staged: Vec<Staged>, shape: Option<&[u64]>) -> Result<()> {
        let _epoch = self.epoch.read();
        let mut inner = match self.still_open().and_then(|()| space.write()) {
            Ok(inner) => inner,
            Err(e) => {
                staged.iter().for_each(|s| self.ftl.abandon(&s.runs));
                return Err(e);
            }
        };
        self.apply_to(space, &mut inner, staged, shape);
        Ok(())
    }

    /// Applies staged blocks, and the new shape if there is one, to a space whose lock the caller holds; the caller
    /// also holds the epoch.
    pub(super) fn apply_to(&self, space: &Space, inner: &mut Inner, staged: Vec<Staged>, shape: Option<&[u64]>) {
        assert!(!inner.deleted, "space {} is deleted, and nothing is applied to it", space.id);
        let mut ops = Vec::with_capacity(staged.len());
        let mut dead = Vec::new();
        for one in staged {
            let before = space.buffered(inner, &one.at);
            let at = one.at.clone();
            let applied = apply(inner, one);
            self.account_buffered(before, space.buffered(inner, &at));
            self.ftl.adopt(&applied.runs);
            if !applied.runs.is_empty() || !applied.dead.is_empty() {
                let Applied { seq, ref at, ref gone, ref runs, .. } = applied;
                ops.push(JournalOp::Update(Update::new(space.id, seq, at, gone, runs)));
            }
            dead.extend(applied.dead);
        }
        if let Some(shape) = shape.filter(|&shape| shape != inner.record.shape) {
            assert!(
                shape.len() == inner.record.shape.len(),
                "a space keeps its {} dimensions",
                inner.record.shape.len()
            );
            inner.record.shape = shape.to_vec();
            ops.push(JournalOp::Resize(space.id, shape.to_vec()));
        }
        let mut log = self.log.lock();
        log.queue(ops);
        self.ftl.release(dead.into_iter());
    }

    /// Deallocates a box. Visits the blocks that exist, not the whole box, which may be far larger than the written
    /// part.
    pub(super) fn deallocate(&self, id: SpaceId, start: &[u64], count: &[u64]) -> Result<()> {
        self.sound()?;
        let space = self.space(id)?;
        let (shape, scalar) = {
            let inner = space.read()?;
            (inner.record.shape.clone(), inner.record.scalar)
        };
        let (start, count): (&[u64], &[u64]) = if scalar && start.is_empty() { (&[0], &[1]) } else { (start, count) };
        if start.len() != count.len() {
            return Err(Error::invalid("as many counts as coordinates are needed"));
        }
        let item = space.shape.item_bytes as u64;
        Selection::contiguous(start, count, item).check(&shape)?;
        if count.contains(&0) {
            return Ok(());
        }
        let block = &space.shape.block;
        let ends: Vec<u64> = start.iter().zip(count).map(|(s, c)| s + c).collect();
        let around = (0..shape.len()).map(|i| (start[i] / block[i], (ends[i] - 1) / block[i])).collect();
        let _range = self.hold(&space, around)?;
        let now = space.read()?.record.shape.clone();
        if now.iter().zip(&shape).any(|(now, before)| now < before) {
            return Err(was_cut(&shape));
        }
        if space.coded() {
            space.codec()?;
        }
        let meets = |at: &[u64]| {
            (0..at.len())
                .all(|i| at[i] * block[i] < ends[i] && start[i] < at[i].saturating_add(1).saturating_mul(block[i]))
        };
        let seq = self.next_seq();
        let mut staged = Vec::new();
        for at in Self::existing(&space, &meets)? {
            let part = self.stage_fill(&space, &now, (start, &ends), &at, seq);
            match part {
                Ok(part) => staged.extend(part),
                Err(e) => {
                    staged.iter().for_each(|s: &Staged| self.ftl.abandon(&s.runs));
                    return Err(e);
                }
            }
        }
        self.apply(&space, staged, None)?;
        self.after_write();
        Ok(())
    }

    /// Returns the coordinates, in order, of the blocks that have pages or buffered units and that `wanted` accepts.
    pub(super) fn existing(space: &Space, wanted: &dyn Fn(&[u64]) -> bool) -> Result<Vec<BlockAt>> {
        let inner = space.read()?;
        let mut all = Vec::new();
        inner.index().for_each(&mut |at, _| {
            if wanted(at) {
                all.push(BlockAt::from_slice(at));
            }
        });
        let gathering = inner.write_buffer.keys().filter(|at| inner.index().get(at).is_none() && wanted(at));
        all.extend(gathering.cloned());
        all.sort_unstable();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "a block is listed once");
        Ok(all)
    }

    /// Stages the fill value over the part of a block that lies in the box from `start` to `ends` (exclusive).
    fn stage_fill(
        &self,
        space: &Space,
        shape: &[u64],
        (start, ends): (&[u64], &[u64]),
        at: &BlockAt,
        seq: u64,
    ) -> Result<Vec<Staged>> {
        let item = space.shape.item_bytes as u64;
        let valid = space.valid(shape, at);
        let (mut from, mut count) = (Vec::new(), Vec::new());
        for i in 0..shape.len() {
            let first = at[i] * space.shape.block[i];
            let (low, end) = (first.max(start[i]), (first + valid[i]).min(ends[i]));
            assert!(low < end, "block {at:?} meets the box {start:?} to {ends:?}");
            from.push(low);
            count.push(end - low);
        }
        let work = Work::plans(vec![Plan::new(&Selection::contiguous(&from, &count, item), &space.shape.block, item)]);
        let bytes = count.iter().product::<u64>() * item;
        let writer = Writer { ftl: &self.ftl, space, seq, extent: shape, bytes, over: None, successive: None };
        // A block that becomes fill as a whole frees pages, so it needs no reservation even in a full store.
        let whole = count.as_slice() == valid.as_slice();
        // SAFETY: a source of fill has no buffer to read.
        let mut stage = || unsafe { writer.stage(&self.workers, &work, Source::FILL) };
        if whole { stage() } else { self.stage_in(writer.pages_needed(&work), &mut stage) }
    }
}
