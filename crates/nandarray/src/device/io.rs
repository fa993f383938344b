//! Read, write, deallocate: from a command to the layers below.

use smallvec::SmallVec;

use super::wire::{Op, Update};
use super::{Device, Target};
use crate::error::{Error, Result, Shape};
use crate::sim::count;
use crate::stl::plan::{Axis, BlockAt, Plan, Selection};
use crate::stl::read::{BufferMut, Reader};
use crate::stl::sequence::Extent;
use crate::stl::space::{Inner, Space, SpaceId, to_wire};
use crate::stl::translate::{ViewBox, check_view, translate};
use crate::stl::work::Work;
use crate::stl::write::{Source, Staged, Writer, apply};

/// Selections of a view that are worked on at once: bounds the memory that a badly aligned view takes.
const SELECTIONS_AT_ONCE: usize = 4096;

/// Calls `each` with the work of a target, in batches where it is a view's.
fn for_work(
    space: &Space,
    shape: &[u64],
    target: &Target<'_>,
    at_once: usize,
    each: &mut dyn FnMut(Work, u64) -> Result<()>,
) -> Result<()> {
    let item = space.shape.item_bytes as u64;
    let plan = |s: &Selection| Plan::new(s, &space.shape.block, item);
    let single = |s: Selection, each: &mut dyn FnMut(Work, u64) -> Result<()>| {
        s.check(shape)?;
        let elements = s.elements();
        if elements == 0 { Ok(()) } else { each(Work::plans(vec![plan(&s)]), elements * item) }
    };
    match target {
        // No dimensions: the one element of a scalar, or of a space of volume 1 seen as one.
        Target::Box { start: [], count: [], view, .. } if view.is_some() || shape == [1] => {
            check_view(shape, view.unwrap_or(&[1]))?;
            let n = shape.len();
            single(Selection::contiguous(&vec![0; n], &vec![1; n], item), each)
        }
        Target::Box { start, step, count, strides, view } => {
            let n = view.map_or(shape.len(), <[u64]>::len);
            if [start.len(), step.len(), count.len(), strides.len()] != [n; 4] {
                return Err(Error::invalid(format!(
                    "the selection has {} dimensions; {} are needed for shape {}",
                    start.len(),
                    n,
                    Shape(view.unwrap_or(shape))
                )));
            }
            let Some(view) = view.filter(|v| *v != shape) else {
                let axis = |i: usize| Axis::Range { start: start[i], step: step[i], count: count[i] };
                let s = Selection { axes: (0..n).map(axis).collect(), strides: strides.to_vec(), offset: 0 };
                return single(s, each);
            };
            check_view(shape, view)?;
            let (mut plans, mut bytes) = (Vec::new(), 0);
            let wanted = ViewBox { start, step, count, strides };
            translate(shape, view, &wanted, &mut |s| {
                bytes += s.elements() * item;
                plans.push(plan(&s));
                if plans.len() < at_once {
                    return Ok(());
                }
                each(Work::plans(std::mem::take(&mut plans)), std::mem::take(&mut bytes))
            })?;
            if plans.is_empty() { Ok(()) } else { each(Work::plans(plans), bytes) }
        }
        Target::Outer { axes, strides } => {
            if strides.len() != axes.len() {
                return Err(Error::invalid("as many strides as axes are needed"));
            }
            single(Selection { axes: axes.clone(), strides: strides.to_vec(), offset: 0 }, each)
        }
        Target::Points { coordinates, stride } => {
            if coordinates.len() % shape.len() != 0 {
                return Err(Error::invalid(format!(
                    "{} coordinates are no points of {} dimensions",
                    coordinates.len(),
                    shape.len()
                )));
            }
            let work = Work::points(coordinates, shape, &space.shape.block, &space.shape.strides, *stride)?;
            let bytes = coordinates.len() as u64 / shape.len() as u64 * item;
            if bytes == 0 { Ok(()) } else { each(work, bytes) }
        }
    }
}

/// What reads after this one will probably want, where boxes of the space's own shape follow one another.
fn coming(space: &Space, shape: &[u64], target: &Target<'_>) -> Option<Work> {
    let Target::Box { start, step, count, view, .. } = target else { return None };
    if view.is_some_and(|v| v != shape) || [start.len(), step.len(), count.len()] != [shape.len(); 3] {
        return None;
    }
    let within =
        |i: usize| step[i] == 1 && count[i] > 0 && start[i].checked_add(count[i]).is_some_and(|e| e <= shape[i]);
    if !(0..shape.len()).all(within) {
        return None;
    }
    let now = Extent { start: SmallVec::from_slice(start), count: SmallVec::from_slice(count) };
    let item = space.shape.item_bytes as u64;
    let next = space.sequence.next(now, shape, &space.shape.block, item)?;
    let selection = Selection::contiguous(&next.start, &next.count, item);
    Some(Work::plans(vec![Plan::new(&selection, &space.shape.block, item)]))
}

impl Device {
    pub(super) fn read(&self, id: SpaceId, target: Target<'_>, out: BufferMut) -> Result<()> {
        let space = self.space(id)?;
        // One guard for the whole command: it sees every write whole or not at all.
        let inner = space.read()?;
        let reader = Reader { ftl: &self.ftl, space: &space, inner: &inner };
        let coming = coming(&space, &inner.record.shape, &target);
        let mut total = 0;
        for_work(&space, &inner.record.shape, &target, SELECTIONS_AT_ONCE, &mut |work, bytes| {
            total += bytes;
            // SAFETY: a `BufferMut` is made by the promise that it covers its command's target.
            unsafe { reader.read(&self.workers, &work, coming.as_ref(), bytes, out) }
        })?;
        count(&self.counters.reads, 1);
        count(&self.counters.bytes_read, total);
        Ok(())
    }

    pub(super) fn write(&self, id: SpaceId, target: Target<'_>, source: Source) -> Result<()> {
        self.sound()?;
        let space = self.space(id)?;
        let shape = space.read()?.record.shape.clone();
        let (mut works, mut bytes) = (Vec::new(), 0);
        // One batch: a write is whole or absent, and a block that several selections share must be composed once.
        for_work(&space, &shape, &target, usize::MAX, &mut |work, b| {
            works.push(work);
            bytes += b;
            Ok(())
        })?;
        let Some(work) = works.pop() else { return Ok(()) };
        debug_assert!(works.is_empty(), "one batch");
        self.write_work(&space, &shape, &work, bytes, source, &mut |_| vec![])?;
        count(&self.counters.writes, 1);
        count(&self.counters.bytes_written, bytes);
        self.after_write()
    }

    /// Stages and applies work on a space that still has this shape; `more` adds changes that belong to the command.
    fn write_work(
        &self,
        space: &Space,
        shape: &[u64],
        work: &Work,
        bytes: u64,
        source: Source,
        more: &mut dyn FnMut(&mut Inner) -> Vec<Op>,
    ) -> Result<()> {
        let _range = space.ranges.lock(work.bounds(shape.len()));
        // The shape was read before the range was ours; a resize in between decides what is out of range now.
        if space.read()?.record.shape != shape {
            return Err(Error::invalid(format!("the array was resized from shape {} during this write", Shape(shape))));
        }
        if space.coded() {
            space.codec()?;
        }
        let writer = Writer { ftl: &self.ftl, space, seq: self.next_seq(), extent: shape, bytes };
        let _pages = self.reserve(writer.pages_needed(work))?;
        // SAFETY: a `Source` buffer is made by the promise that it covers its command's target.
        let staged = unsafe { writer.stage(&self.workers, work, source)? };
        self.apply(space, staged, more)
    }

    /// Makes staged blocks, and what belongs to them, visible at once.
    pub(super) fn apply(
        &self,
        space: &Space,
        staged: Vec<Staged>,
        more: &mut dyn FnMut(&mut Inner) -> Vec<Op>,
    ) -> Result<()> {
        let _epoch = self.epoch.read();
        let mut inner = match space.write() {
            Ok(inner) => inner,
            Err(e) => {
                staged.iter().for_each(|s| self.ftl.abandon(&s.runs));
                return Err(e);
            }
        };
        let mut ops = Vec::with_capacity(staged.len());
        let mut dead = Vec::new();
        for one in staged {
            let before = space.gathers(&inner, &one.at);
            let at = one.at.clone();
            let applied = apply(&mut inner, one);
            self.regather(before, space.gathers(&inner, &at));
            self.ftl.adopt(&applied.runs);
            let gone = Update::wire_gone(&applied.gone);
            if !applied.runs.is_empty() || !applied.dead.is_empty() {
                let runs = to_wire(&applied.runs);
                let seq = applied.seq;
                ops.push(Op::Update(Update { space: space.id, seq, at: applied.at.to_vec(), gone, runs }));
            }
            dead.extend(applied.dead);
        }
        ops.extend(more(&mut inner));
        let mut log = self.log.lock();
        log.pending.extend(ops);
        self.ftl.release(dead.into_iter());
        Ok(())
    }

    /// Works on the blocks that exist, not on those of the box: a box may be far larger than what was ever written.
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
        let _range = space.ranges.lock(around);
        if space.read()?.record.shape != shape {
            return Err(Error::invalid(format!(
                "the array was resized from shape {} during this write",
                Shape(&shape)
            )));
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
            let part = self.stage_fill(&space, &shape, (start, &ends), &at, seq);
            match part {
                Ok(part) => staged.extend(part),
                Err(e) => {
                    staged.iter().for_each(|s: &Staged| self.ftl.abandon(&s.runs));
                    return Err(e);
                }
            }
        }
        self.apply(&space, staged, &mut |_| vec![])?;
        self.after_write()
    }

    /// Coordinates of blocks that have pages or gather, and that `wanted` takes; in order.
    fn existing(space: &Space, wanted: &dyn Fn(&[u64]) -> bool) -> Result<Vec<BlockAt>> {
        let inner = space.read()?;
        let mut all = Vec::new();
        inner.index().for_each(&mut |at, _| {
            if wanted(at) {
                all.push(BlockAt::from_slice(at));
            }
        });
        let gathering = inner.gathered.keys().filter(|at| inner.index().get(at).is_none() && wanted(at));
        all.extend(gathering.cloned());
        all.sort_unstable();
        Ok(all)
    }

    /// Stages fill over the part of a block that lies in the box from `start` to `ends`.
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
            let low = first.max(start[i]);
            from.push(low);
            count.push((first + valid[i]).min(ends[i]) - low);
        }
        let work = Work::plans(vec![Plan::new(&Selection::contiguous(&from, &count, item), &space.shape.block, item)]);
        let bytes = count.iter().product::<u64>() * item;
        let writer = Writer { ftl: &self.ftl, space, seq, extent: shape, bytes };
        // A block that becomes fill as a whole gives room even to a store that has none.
        let whole = count.as_slice() == valid.as_slice();
        let _pages = if whole { None } else { Some(self.reserve(writer.pages_needed(&work))?) };
        // SAFETY: nothing is read from a source of fill.
        unsafe { writer.stage(&self.workers, &work, Source::FILL) }
    }

    pub(super) fn resize(&self, id: SpaceId, to: &[u64]) -> Result<()> {
        self.sound()?;
        let space = self.space(id)?;
        let _range = space.ranges.lock(vec![]);
        let from = space.read()?.record.shape.clone();
        let scalar = space.peek().record.scalar;
        if scalar && to.is_empty() {
            return Ok(());
        }
        if scalar || to.len() != from.len() {
            return Err(Error::invalid(format!(
                "shape {} has {} dimensions; the array has shape {}",
                Shape(to),
                to.len(),
                Shape(space.peek().record.shape())
            )));
        }
        if from == to {
            return Ok(());
        }
        // What is cut off must read as fill when it grows back. Blocks wholly outside lose their pages; of blocks that the
        // new edge crosses the part outside is overwritten with fill.
        let mut staged = Vec::new();
        let crossing = self.stage_cut(&space, &from, to, &mut staged);
        if let Err(e) = crossing {
            staged.iter().for_each(|s| self.ftl.abandon(&s.runs));
            return Err(e);
        }
        let to = to.to_vec();
        self.apply(&space, staged, &mut |inner| {
            inner.record.shape.clone_from(&to);
            vec![Op::Resize(id, to.clone())]
        })?;
        self.after_write()
    }

    fn stage_cut(&self, space: &Space, from: &[u64], to: &[u64], staged: &mut Vec<Staged>) -> Result<()> {
        let block = &space.shape.block;
        let outside = |at: &[u64]| at.iter().zip(to).zip(block).any(|((&c, &d), &b)| c.saturating_mul(b) >= d);
        let crosses = |at: &[u64]| {
            (0..to.len()).any(|i| {
                to[i] < from[i] && at[i].saturating_mul(block[i]) < to[i] && (to[i] - at[i] * block[i]) < block[i]
            })
        };
        let seq = self.next_seq();
        let whole = Self::existing(space, &outside)?;
        staged.extend(whole.into_iter().map(|at| Staged::releasing(at, seq)));
        let part = Self::existing(space, &|at| !outside(at) && crosses(at))?;
        for at in part {
            // Composed anew with the smaller extent: bring what stays, leave fill in the rest.
            let start: Vec<u64> = at.iter().zip(block).map(|(c, b)| c * b).collect();
            let valid = space.valid(from, &at);
            let kept: Vec<u64> = (0..to.len()).map(|i| valid[i].min(to[i] - start[i])).collect();
            let selection = Selection::contiguous(&start, &kept, space.shape.item_bytes as u64);
            let bytes = kept.iter().product::<u64>() * space.shape.item_bytes as u64;
            let mut buffer = vec![0u8; bytes as usize];
            let work = Work::plans(vec![Plan::new(&selection, block, space.shape.item_bytes as u64)]);
            {
                let inner = space.read()?;
                let reader = Reader { ftl: &self.ftl, space, inner: &inner };
                // SAFETY: the selection is contiguous in a buffer of its size.
                unsafe { reader.read(&self.workers, &work, None, bytes, BufferMut::from_raw(buffer.as_mut_ptr()))? };
            }
            // With what both shapes have as extent the kept box covers the block, so it is replaced whole.
            let both: Vec<u64> = from.iter().zip(to).map(|(a, b)| *a.min(b)).collect();
            let writer = Writer { ftl: &self.ftl, space, seq, extent: &both, bytes };
            let _pages = self.reserve(writer.pages_needed(&work))?;
            // SAFETY: as above.
            staged.extend(unsafe { writer.stage(&self.workers, &work, Source::from_raw(buffer.as_ptr()))? });
        }
        Ok(())
    }
}
