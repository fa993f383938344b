//! Read, write and deallocate: each command's locks, and the calls that do its work.

use std::ops::Range;

use smallvec::SmallVec;

use super::target::{ALL_AT_ONCE, SELECTIONS_AT_ONCE, extent, for_work, lies_within, plan_box, predicted};
use super::{Device, Target};
use crate::error::{Error, Result, Shape};
use crate::sim::count;
use crate::stl::plan::{BlockAt, Selection, StridedBox};
use crate::stl::read::{BufferMut, Reader};
use crate::stl::space::{Space, SpaceId};
use crate::stl::work::{Work, Workers};
use crate::stl::write::{Source, Staged, Successor};

/// Returns the error of a write whose array shrank after the write was planned and before its blocks were locked.
fn was_cut(shape: &[u64]) -> Error {
    Error::invalid(format!("the array was resized from shape {} during this write", Shape(shape)))
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
        let space = self.space_to_read(id)?;
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
        let space = self.space_to_read(id)?;
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
        let space = self.space_to_read(id)?;
        let inner = space.read()?;
        let reader = Reader { ftl: &self.ftl, space: &space, inner: &inner, watched: true };
        for_work(&space, &inner.record.shape, target, SELECTIONS_AT_ONCE, &mut |work, _| reader.announce(&work))
    }

    /// The second half of a read in flight: moves the bytes. The caller has held the range lock since the first half.
    pub(super) fn read_located(&self, id: SpaceId, target: &Target<'_>, out: BufferMut) -> Result<()> {
        let space = self.space_to_read(id)?;
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
        let space = self.space_to_read(id)?;
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
}
