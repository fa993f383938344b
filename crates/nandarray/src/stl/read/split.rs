//! Blocks with scattered content: a task is split at the ends of contiguous stretches, and every piece is copied
//! directly from its place.
//!
//! A block that was written in parts (slabs that end within it, elements overwritten since) consists of several runs of
//! pages, of units in the write buffer, and of holes. To collect the touched pages in a scratch block first would copy
//! 16 times as many bytes as are needed, if rows of 256 bytes are read from pages of 4 KiB. Instead the loops of a task
//! are split: the outermost loop is cut into as many steps as lie in one stretch (a run, a buffered unit, a hole), and
//! only a step that lies in two stretches is cut further.
//!
//! By way of the scratch block, rows of `bench run` take longer: `3d+slabs planes-1` 4.5 times, `slabs-1` 2.5, `cubes`
//! 1.7; `3d planes-1` 2.95, since blocks at the array's edge are written in parts, too.
//!
//! This needs a memory-mapped medium; on others a read uses the scratch block. Coded blocks are not handled here.

use std::ops::Range;

use smallvec::SmallVec;

use super::Reader;
use super::locate::{BlockContent, Located, Mapped};
use super::mover::Mover;
use crate::error::Result;
use crate::stl::copy::{Loop, fill};
use crate::stl::plan::{Loops, Task, span, touch_loops};

/// Stands, as a piece's number of steps, for all steps of its first loop.
const ALL: usize = usize::MAX;

/// The state of splitting one task into pieces for the mover.
struct TaskSplitter<'s, 'a, 't> {
    reader: &'s Reader<'a>,
    task: &'s Task<'t>,
    content: &'s BlockContent<'a>,
    /// For each nesting depth of the loops, from the outermost: the number of bytes from the first to the last element
    /// that the loops inside it reach.
    reach: SmallVec<[usize; 8]>,
    /// The present stretch: contiguous bytes of the block, and their place.
    stretch: (Range<usize>, Located<'a>),
    /// Destination of the task's first element.
    to: *mut u8,
    mover: &'s mut Mover<'t>,
    /// The loops over elements that were passed to the mover last: (nesting depth of the outermost of them, number of
    /// its steps); `None` before any were passed.
    loops: Option<(usize, usize)>,
}

impl<'a> Reader<'a> {
    /// Splits a task of a plain block into pieces and adds these to the mover; `false` if some pages are not mapped in
    /// memory. Some pieces may have been added then.
    ///
    /// # Safety
    /// `to` must be writable along the task's loops until the mover has finished.
    pub(super) unsafe fn split<'t>(
        &self,
        task: &Task<'t>,
        content: &BlockContent<'a>,
        to: *mut u8,
        mover: &mut Mover<'t>,
    ) -> Result<bool> {
        let item = self.space.shape.item_bytes;
        let reach = (0..=task.loops.len()).map(|level| span(&task.loops[level..]).1 + item).collect();
        let stretch = (0..0, Located::Fill);
        let mut splitter = TaskSplitter { reader: self, task, content, reach, stretch, to, mover, loops: None };
        // SAFETY: the caller's promise.
        unsafe { splitter.split(0, task.in_block, 0) }
    }
}

impl<'t> TaskSplitter<'_, '_, 't> {
    /// Splits the loops from nesting depth `level` inwards, whose first element is at byte `in_block`; `false` if their
    /// pages are not mapped in memory.
    ///
    /// # Safety
    /// As for [`Reader::split`].
    unsafe fn split(&mut self, level: usize, in_block: usize, in_buffer: isize) -> Result<bool> {
        if !self.find_stretch(in_block) {
            return Ok(false);
        }
        if in_block + self.reach[level] <= self.stretch.0.end {
            // SAFETY: the caller's promise.
            unsafe { self.add(level, ALL, in_block, in_buffer)? };
            return Ok(true);
        }
        match self.task.loops.get(level) {
            // SAFETY: as above.
            None => unsafe { self.straddle(in_block, in_buffer) },
            Some(&Loop::Affine { n, from, to }) => {
                let inner = self.reach[level + 1];
                let mut i = 0;
                while i < n {
                    let (here, there) = (in_block + i * from as usize, in_buffer + i as isize * to);
                    if !self.find_stretch(here) {
                        return Ok(false);
                    }
                    let end = self.stretch.0.end;
                    if here + inner <= end {
                        let steps = (n - i).min((end - inner - here) / (from as usize).max(1) + 1);
                        // SAFETY: as above.
                        unsafe { self.add(level, steps, here, there)? };
                        i += steps;
                    } else {
                        // SAFETY: as above.
                        if unsafe { !self.split(level + 1, here, there)? } {
                            return Ok(false);
                        }
                        i += 1;
                    }
                }
                Ok(true)
            }
            Some(&Loop::Table(pairs)) => {
                for &(from, to) in pairs {
                    // SAFETY: as above.
                    if unsafe { !self.split(level + 1, in_block + from as usize, in_buffer + to)? } {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Sets the present stretch to the contiguous bytes around this byte of the block; `false` if their pages must be
    /// fetched.
    fn find_stretch(&mut self, byte: usize) -> bool {
        if !self.stretch.0.contains(&byte) {
            let shape = &self.reader.space.shape;
            let unit = (byte / shape.page) as u32;
            let (units, located) = self.reader.locate(self.content, unit, shape.units);
            self.stretch = (units.start as usize * shape.page..units.end as usize * shape.page, located);
            assert!(self.stretch.0.contains(&byte), "byte {byte} of a stretch of {:?}", self.stretch.0);
        }
        !matches!(self.stretch.1, Located::Absent(_))
    }

    /// Returns the loops of a piece: those from nesting depth `level` inwards, the first of them with `steps` steps;
    /// the loops outside have one step.
    fn loops(&self, level: usize, steps: usize) -> Loops<'t> {
        let loops = &self.task.loops;
        let mut own = Loops::from_elem(Loop::Affine { n: 1, from: 0, to: 0 }, level.min(loops.len()));
        own.extend_from_slice(&loops[own.len()..]);
        if let (Some(Loop::Affine { n, .. }), false) = (own.get_mut(level), steps == ALL) {
            *n = steps;
        }
        own
    }

    /// Adds a piece that lies in the present stretch (`self.stretch`) to the mover, or writes the fill value if the
    /// stretch was never written.
    ///
    /// # Safety
    /// As for [`Reader::split`].
    unsafe fn add(&mut self, level: usize, steps: usize, in_block: usize, in_buffer: isize) -> Result<()> {
        let to = self.to.wrapping_offset(in_buffer);
        let skip = in_block - self.stretch.0.start;
        let from = match self.stretch.1 {
            Located::Fill => {
                let loops = self.loops(level, steps);
                // SAFETY: the caller's promise.
                unsafe { fill(&loops, &self.reader.space.shape.fill, to) };
                return Ok(());
            }
            Located::Buffered(bytes) => bytes[skip..].as_ptr(),
            Located::Mapped(mapped) => {
                self.verify(level, steps, &mapped, in_block)?;
                mapped.bytes[skip..].as_ptr()
            }
            Located::Absent(run) => unreachable!("the pages of {run:?} are not shown"),
        };
        // Most pieces of a task share their loops.
        if self.loops != Some((level, steps)) {
            self.loops = Some((level, steps));
            let loops = self.loops(level, steps);
            // SAFETY: the caller's promise, as in all calls before.
            unsafe { self.mover.set_loops(loops, self.task.row) };
        }
        // SAFETY: the caller's promise; the piece lies within the stretch.
        unsafe { self.mover.push(from, to) };
        Ok(())
    }

    /// Verifies the pages of a run that hold a piece's elements, except pages that were verified before.
    fn verify(&self, level: usize, steps: usize, mapped: &Mapped<'_>, in_block: usize) -> Result<()> {
        let shape = &self.reader.space.shape;
        let end = match (self.task.loops.get(level), steps) {
            (Some(&Loop::Affine { from, .. }), steps @ 1..ALL) => {
                in_block + (steps - 1) * from as usize + self.reach[level + 1]
            }
            _ => in_block + self.reach[level],
        };
        let units = (in_block / shape.page) as u32..end.div_ceil(shape.page) as u32;
        if self.reader.is_verified(mapped.part(units).run) {
            return Ok(());
        }
        let mut verified = Ok(());
        touch_loops(&self.loops(level, steps), in_block, shape.item_bytes, shape.page, &mut |bytes| {
            if verified.is_ok() {
                verified = self.verify_bytes(mapped, bytes);
            }
        });
        verified
    }

    /// Verifies the pages that hold these bytes of the block.
    fn verify_bytes(&self, mapped: &Mapped<'_>, bytes: Range<usize>) -> Result<()> {
        let page = self.reader.space.shape.page;
        // If gaps are small, the range of touched bytes may extend into the next stretch.
        let start = ((bytes.start / page) as u32).max(mapped.run.unit);
        let end = (bytes.end.div_ceil(page) as u32).min(mapped.run.end());
        if start < end { self.reader.verify(&self.task.at, &mapped.part(start..end)) } else { Ok(()) }
    }

    /// Copies one element that begins in the present stretch (`self.stretch`) and ends in another one; `false` if its
    /// pages must be fetched.
    ///
    /// # Safety
    /// As for [`Reader::split`].
    unsafe fn straddle(&mut self, in_block: usize, in_buffer: isize) -> Result<bool> {
        let item = self.reader.space.shape.item_bytes;
        let mut done = 0;
        while done < item {
            let here = in_block + done;
            if !self.find_stretch(here) {
                return Ok(false);
            }
            let part = (item - done).min(self.stretch.0.end - here);
            let to = self.to.wrapping_offset(in_buffer).wrapping_add(done);
            let skip = here - self.stretch.0.start;
            let from = match self.stretch.1 {
                Located::Fill => &self.reader.space.shape.fill[done..],
                Located::Buffered(bytes) => &bytes[skip..],
                Located::Mapped(mapped) => {
                    self.verify_bytes(&mapped, here..here + part)?;
                    &mapped.bytes[skip..]
                }
                Located::Absent(run) => unreachable!("the pages of {run:?} are not shown"),
            };
            // SAFETY: the element's place is the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from[..part].as_ptr(), to, part) };
            done += part;
        }
        Ok(true)
    }
}
