//! Resize and append: the commands that change a space's shape.
//!
//! Both lock the whole space against other writes. A run of programs sees the space that it writes to as at its start:
//! a space shrinks when all runs that write to it have ended, and grows when those have that write to it by a view.
//! Both wait for that before they lock anything. An append stages the new part as a write to the enlarged space; then
//! shape and blocks change together, in one journal record. A resize that shrinks a space stages fill over the part
//! that is cut off, so that this part reads as fill if the space grows again.

use smallvec::SmallVec;

use super::Device;
use super::write::pages_needed;
use crate::error::{Error, Result, Shape};
use crate::sched::RangeTicket;
use crate::sim::count;
use crate::stl::plan::{Plan, Selection};
use crate::stl::prefetch::readahead::ElementBox;
use crate::stl::read::{BufferMut, Reader};
use crate::stl::space::{Space, SpaceId};
use crate::stl::work::Work;
use crate::stl::write::{Source, Staged, Successor, Writer};

impl Device {
    pub(super) fn append(
        &self,
        id: SpaceId,
        axis: usize,
        counts: &[u64],
        strides: &[isize],
        source: Source,
    ) -> Result<Vec<u64>> {
        self.ready()?;
        let space = self.space(id)?;
        let runs = self.hold_growth(&space)?;
        let range = self.hold(&space, vec![])?;
        let (from, scalar) = {
            let inner = space.read()?;
            (inner.record.shape.clone(), inner.record.scalar)
        };
        let fits = !scalar
            && axis < from.len()
            && [counts.len(), strides.len()] == [from.len(); 2]
            && (0..from.len()).all(|i| i == axis || counts[i] == from[i]);
        if !fits {
            return Err(Error::invalid(format!(
                "elements of shape {} cannot be appended to shape {} along axis {axis}",
                Shape(counts),
                Shape(if scalar { &[] } else { &from })
            )));
        }
        if counts[axis] == 0 {
            return Ok(from);
        }
        let mut to = from.clone();
        to[axis] = from[axis].checked_add(counts[axis]).ok_or_else(|| {
            let index = u128::from(from[axis]) + u128::from(counts[axis]) - 1;
            Error::OutOfRange { axis, index, size: u64::MAX }
        })?;
        assert!(to[axis] > from[axis], "an append grows: {from:?} to {to:?}");
        let item = space.shape.item_bytes as u64;
        let mut start = vec![0; from.len()];
        start[axis] = from[axis];
        let selection = Selection { strides: strides.to_vec(), ..Selection::contiguous(&start, counts, item) };
        selection.check_blocks(&space.shape.block)?;
        let bytes = selection.elements().saturating_mul(item);
        if bytes == 0 {
            self.apply(&space, vec![], Some(&to))?;
        } else {
            let work = Work::plans(vec![Plan::new(&selection, &space.shape.block, item)]);
            let appended = ElementBox { start: SmallVec::from_slice(&start), count: SmallVec::from_slice(counts) };
            // The next append may extend beyond the present end.
            let successive = space.access.appends.next(appended).map(|axis| Successor { axis, end: u64::MAX });
            self.write_work(&space, &to, &work, (bytes, successive), source, Some(&to))?;
        }
        drop((range, runs));
        count(&self.counters.writes, 1);
        count(&self.counters.bytes_written, bytes);
        self.after_write();
        Ok(to)
    }

    pub(super) fn resize(&self, id: SpaceId, to: &[u64]) -> Result<()> {
        self.sound()?;
        let space = self.space(id)?;
        let (_held, from) = self.hold_resized(&space, to)?;
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
        // A part that is cut off must read as fill if the space grows again. Blocks entirely outside lose their pages;
        // in blocks that the new edge crosses the part outside is overwritten with fill.
        let mut staged = Vec::new();
        let crossing = self.stage_cut(&space, &from, to, &mut staged);
        if let Err(e) = crossing {
            staged.iter().for_each(|s| self.ftl.abandon(&s.runs));
            return Err(e);
        }
        self.apply(&space, staged, Some(to))?;
        self.after_write();
        Ok(())
    }

    /// Waits for the runs of programs that another shape of a space would disturb, and locks the whole space. Returns
    /// both tickets, and the shape that the space has.
    fn hold_resized(&self, space: &Space, to: &[u64]) -> Result<([RangeTicket; 2], Vec<u64>)> {
        let cuts = |from: &[u64]| from.iter().zip(to).any(|(from, to)| to < from);
        let mut shrinks = cuts(&space.read()?.record.shape);
        loop {
            let runs = if shrinks { self.hold_runs(space)? } else { self.hold_growth(space)? };
            let range = self.hold(space, vec![])?;
            let from = space.read()?.record.shape.clone();
            // Another command may have changed the shape meanwhile.
            if shrinks || !cuts(&from) {
                return Ok(([range, runs], from));
            }
            shrinks = true;
        }
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
            // The block is composed again with the smaller extent: the elements that stay are copied, the rest is fill.
            let start: Vec<u64> = at.iter().zip(block).map(|(c, b)| c * b).collect();
            let valid = space.valid(from, &at);
            let kept: Vec<u64> = (0..to.len()).map(|i| valid[i].min(to[i] - start[i])).collect();
            assert!(kept.iter().all(|&n| n > 0), "block {at:?} crosses {to:?} and keeps {kept:?} elements");
            let selection = Selection::contiguous(&start, &kept, space.shape.item_bytes as u64);
            let bytes = kept.iter().product::<u64>() * space.shape.item_bytes as u64;
            let mut buffer = vec![0u8; bytes as usize];
            let work = Work::plans(vec![Plan::new(&selection, block, space.shape.item_bytes as u64)]);
            {
                let inner = space.read()?;
                let reader = Reader { ftl: &self.ftl, space, inner: &inner, watched: true };
                // SAFETY: the selection is contiguous in a buffer of its size.
                unsafe { reader.read(&self.workers, &work, None, bytes, BufferMut::from_raw(buffer.as_mut_ptr()))? };
            }
            // Within the intersection of both shapes the kept box covers the block, so the block is replaced whole.
            let both: Vec<u64> = from.iter().zip(to).map(|(a, b)| *a.min(b)).collect();
            let writer = Writer { ftl: &self.ftl, space, seq, extent: &both, bytes, over: None, successive: None };
            // SAFETY: as above.
            let mut stage = || unsafe { writer.stage(&self.workers, &work, Source::from_raw(buffer.as_ptr())) };
            staged.extend(self.stage_in(pages_needed(space, &work), &mut stage)?);
        }
        Ok(())
    }
}
