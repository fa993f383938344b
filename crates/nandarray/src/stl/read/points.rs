//! Single elements: from the medium to the buffer one by one, without the loops of a task.
//!
//! Every element of a random list lies in another page, so the time goes into its line and the way to it. Addresses are
//! found for many elements first, and then these are copied by a loop of nothing else. An element that is not in place
//! (fill, buffered, coded, on a medium that has to be read) is left to the tasks of a read. Many points are sorted by
//! block first; a few are read as they come, where all were verified before: the index of a space is in the caches, and
//! sorting would cost more than it saves.

use std::ops::Range;

use smallvec::SmallVec;

use super::mover::Mover;
use super::small::COST_MAX;
use super::{BufferMut, Reader, WorkerState};
use crate::error::Result;
use crate::stl::copy::stream::{LINE, prefetch_line};
use crate::stl::index::Cursor;
use crate::stl::plan::{BlockAt, Side};
use crate::stl::prefetch::PagePrefetcher;
use crate::stl::work::Work;

/// Elements whose places are found before the first of them is copied. A miss of the address cache holds up a processor
/// that has little to do beside it: a load or a prefetch among the hundred instructions that find the next place waits
/// for its own walk of the page tables alone, one in a loop of nothing but loads for a dozen of them at once.
const BATCH: usize = 256;

/// The most dimensions of points that are read as they come.
const DIMENSIONS: usize = 8;

/// The most points that are read as they come; each costs a line of the processor's caches.
const POINTS_MAX: usize = COST_MAX as usize / LINE;

/// A thread's elements whose places are found.
struct ElementBatch {
    item_bytes: usize,
    elements: SmallVec<[(*const u8, *mut u8); BATCH]>,
}

impl ElementBatch {
    fn new(item_bytes: usize) -> Self {
        Self { item_bytes, elements: SmallVec::new() }
    }

    /// Adds an element; copies all that were added when they are many.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable until [`Self::finish`].
    #[inline]
    unsafe fn push(&mut self, from: *const u8, to: *mut u8) {
        self.elements.push((from, to));
        if self.elements.len() == BATCH {
            // SAFETY: the promises of the calls that added them.
            unsafe { self.finish() };
        }
    }

    /// Copies all that were added, in order: of repeats nothing is promised, but nothing surprises.
    ///
    /// # Safety
    /// The promises of [`Self::push`].
    unsafe fn finish(&mut self) {
        debug_assert!(self.elements.len() <= BATCH, "{} elements", self.elements.len());
        // SAFETY: the promises of the calls that added them.
        unsafe {
            match self.item_bytes {
                1 => copy_elements::<1>(&self.elements),
                2 => copy_elements::<2>(&self.elements),
                4 => copy_elements::<4>(&self.elements),
                8 => copy_elements::<8>(&self.elements),
                16 => copy_elements::<16>(&self.elements),
                bytes => {
                    self.elements.iter().for_each(|&(from, _)| prefetch_line(from));
                    for &(from, to) in &self.elements {
                        std::ptr::copy_nonoverlapping(from, to, bytes);
                    }
                }
            }
        }
        self.elements.clear();
    }
}

/// # Safety
/// `BYTES` at all addresses.
unsafe fn copy_elements<const BYTES: usize>(elements: &[(*const u8, *mut u8)]) {
    for &(from, to) in elements {
        // SAFETY: arrays of bytes have no alignment; the caller's promise.
        unsafe { to.cast::<[u8; BYTES]>().write_unaligned(from.cast::<[u8; BYTES]>().read_unaligned()) };
    }
}

impl<'a> Reader<'a> {
    /// Reads blocks of single elements; those that are not in place are tasks of the mover.
    ///
    /// # Safety
    /// The elements' places in the buffer must be writable until the mover has finished.
    pub(super) unsafe fn read_points<'w>(
        &self,
        work: &'w Work,
        range: Range<u64>,
        prefetcher: &PagePrefetcher<'a, '_>,
        state: &mut WorkerState<'a>,
        out: BufferMut,
        mover: &mut Mover<'w>,
    ) -> Result<()> {
        let mut batch = ElementBatch::new(self.space.shape.item_bytes);
        for i in range {
            prefetcher.advance(i, state);
            let (at, pairs) = work.block_of_points(i);
            // SAFETY: the caller's promise.
            unsafe {
                if !self.push_points(at, pairs, state, out, &mut batch)? {
                    self.read_task(&work.task(i), state, out, mover)?;
                }
                mover.end_task(i);
            }
            self.report_moves(|| work.task(i));
        }
        // SAFETY: as above; the pages that the elements lie in are held by the space's lock.
        unsafe { batch.finish() };
        Ok(())
    }

    /// Adds the elements of a block; `false`, and nothing done that could not be done again, if they are not in place.
    ///
    /// # Safety
    /// The elements' places in the buffer must be writable until [`ElementBatch::finish`].
    unsafe fn push_points(
        &self,
        at: &BlockAt,
        pairs: &[(isize, isize)],
        state: &mut WorkerState<'a>,
        out: BufferMut,
        batch: &mut ElementBatch,
    ) -> Result<bool> {
        let (item, page) = (self.space.shape.item_bytes, self.space.shape.page);
        let content = self.content(at, &mut state.cursor);
        for &(in_block, in_buffer) in pairs {
            let first = in_block as usize;
            let Some(mapped) = self.mapped(&content, &(first..first + item)) else { return Ok(false) };
            if !self.is_verified(mapped.run) {
                self.verify(at, &mapped)?;
            }
            // SAFETY: the element lies in the medium's pages; its place is the caller's promise.
            unsafe { batch.push(mapped.at(first, page), out.at(in_buffer)) };
        }
        Ok(true)
    }

    /// Reads single elements as they come, if they are few and all lie in place; their coordinates one after the other,
    /// and the bytes between them in the buffer. `false`: some do not, or lie outside; some may have been read.
    ///
    /// # Safety
    /// Every element's place in the buffer must be writable memory that nothing else uses meanwhile.
    pub unsafe fn few_points(&self, coordinates: &[u64], stride: isize, out: BufferMut) -> bool {
        let shape = &self.space.shape;
        let n = shape.block.len();
        if n > DIMENSIONS || coordinates.len() > POINTS_MAX * n || !coordinates.len().is_multiple_of(n) {
            return false;
        }
        if !self.is_plain() || !self.space.access.residency.skip_probe() {
            return false;
        }
        let size = &self.inner.record.shape;
        let sides: SmallVec<[Side; DIMENSIONS]> = shape.block.iter().map(|&length| Side::new(length)).collect();
        let mut at = BlockAt::from_elem(u64::MAX, n);
        let mut cursor = Cursor::default();
        let mut batch = ElementBatch::new(shape.item_bytes);
        for (i, point) in coordinates.chunks_exact(n).enumerate() {
            let mut in_block = 0;
            for axis in 0..n {
                if point[axis] >= size[axis] {
                    return false;
                }
                let (block, inside) = sides[axis].split(point[axis]);
                at[axis] = block;
                in_block += (inside * shape.strides[axis]) as usize;
            }
            let content = self.content(&at, &mut cursor);
            let mapped = self.mapped(&content, &(in_block..in_block + shape.item_bytes));
            let Some(mapped) = mapped.filter(|mapped| self.is_verified(mapped.run)) else { return false };
            // SAFETY: the element lies in the medium's pages; its place is the caller's promise.
            unsafe { batch.push(mapped.at(in_block, shape.page), out.at(i as isize * stride)) };
        }
        // SAFETY: as above.
        unsafe { batch.finish() };
        true
    }
}
