//! Reading of single elements, copied from the medium to the buffer one by one, without the loops of a task.
//!
//! Each element of a random list lies in another page, so most time goes into fetching its cache line and translating
//! its address. The addresses of many elements are found first, and then a loop that does nothing else copies them. An
//! element that is not in place (fill, buffered, coded, on a medium that is not memory-mapped) is read by a task. Many
//! points are sorted by block first. A few points are read in the order in which they come if all their pages were
//! verified before: then the space's index is in the caches, and sorting would cost more than it saves.
//!
//! The row that it serves is `2d elements` of `bench run`: read by tasks, it takes 1.35 times as long from a store that
//! was just opened; sorted, it takes 2.0 times as long warm.

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

/// Number of elements whose addresses are found before the first of them is copied. A miss in the address translation
/// cache stalls the processor unless it has other loads to do: among the hundred instructions that find the next
/// address a load waits for its page walk alone, whereas in a loop of only loads a dozen page walks run at once.
const BATCH: usize = 256;

/// Largest number of dimensions of points that are read unsorted.
const DIMENSIONS: usize = 8;

/// Largest number of points that are read unsorted; each costs a cache line.
const POINTS_MAX: usize = COST_MAX as usize / LINE;

/// Elements of one thread's points whose addresses are known and which wait to be copied together.
struct ElementBatch {
    item_bytes: usize,
    elements: SmallVec<[(*const u8, *mut u8); BATCH]>,
}

impl ElementBatch {
    fn new(item_bytes: usize) -> Self {
        Self { item_bytes, elements: SmallVec::new() }
    }

    /// Adds an element; if the batch is full then, copies all its elements.
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

    /// Copies all elements of the batch in order. If two have the same destination, either may remain there.
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

/// Copies elements of `BYTES` bytes from the first address of each pair to the second.
///
/// # Safety
/// `BYTES` bytes must be readable or writable at all addresses.
unsafe fn copy_elements<const BYTES: usize>(elements: &[(*const u8, *mut u8)]) {
    for &(from, to) in elements {
        // SAFETY: arrays of bytes have no alignment; the caller's promise.
        unsafe { to.cast::<[u8; BYTES]>().write_unaligned(from.cast::<[u8; BYTES]>().read_unaligned()) };
    }
}

impl<'a> Reader<'a> {
    /// Reads the single elements of some blocks; blocks whose pages are not mapped in memory are read as tasks by the
    /// mover.
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
            }
            self.report_moves(|| work.task(i));
        }
        // SAFETY: as above; the space's lock keeps the elements' pages mapped.
        unsafe { batch.finish() };
        Ok(())
    }

    /// Adds the elements of a block to the batch. Returns `false` if the pages of some are not mapped in memory; then
    /// the block must be read in another way.
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

    /// Reads single elements unsorted, if there are few and all lie in mapped and verified pages. `coordinates` has
    /// those of the first point, then those of the second, and so on; `stride` is the number of bytes between elements
    /// in the buffer. Returns `false` if an element lies elsewhere or outside the space; some elements may have been
    /// copied then.
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
