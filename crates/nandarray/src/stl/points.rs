//! Single elements: from the medium to the buffer one by one, without the loops of a task.
//!
//! Every element of a random list lies in another page, so its line and the way to it are what it costs. Addresses are
//! found for many elements first, and then these are copied by a loop of nothing else. What is not in place (fill,
//! units that gather, coded blocks, media that are only read) is left to the tasks of `read`. Many points are sorted by
//! block first; a few are read as they come, where all were verified before: the index of a space is in the caches, and
//! sorting would cost more than it saves.

use smallvec::SmallVec;

use super::index::{BlockMap, Cursor};
use super::plan::BlockAt;
use super::read::{BufferMut, Kept, Reader};
use super::small::MOST_BYTES;
use super::stream::ask;
use super::work::Work;
use crate::error::Result;
use crate::flash::{Owner, Run};

/// Elements whose places are found before the first of them is copied. A miss of the address cache holds up a processor
/// that has little to do beside it: a load or a prefetch among the hundred instructions that find the next place waits
/// for its own walk of the page tables alone, one in a loop of nothing but loads for a dozen of them at once.
const TOGETHER: usize = 256;

/// The most dimensions of points that are read as they come.
const DIMENSIONS: usize = 8;

/// The most points that are read as they come; each costs a line of 64 bytes.
const FEW: usize = (MOST_BYTES / 64) as usize;

/// The side of a block along one dimension. Most are powers of two, and a division takes as long as a look into a
/// cache.
#[derive(Clone, Copy)]
struct Side {
    side: u64,
    shift: Option<u32>,
    stride: u64,
}

impl Side {
    fn new(side: u64, stride: u64) -> Self {
        Self { side, shift: side.is_power_of_two().then(|| side.trailing_zeros()), stride }
    }

    /// The block of a coordinate, and the bytes to it within the block.
    #[inline]
    fn split(&self, coordinate: u64) -> (u64, u64) {
        let block = match self.shift {
            Some(shift) => coordinate >> shift,
            None => coordinate / self.side,
        };
        (block, (coordinate - block * self.side) * self.stride)
    }
}

/// A thread's elements whose places are found.
pub(super) struct Coming {
    item_bytes: usize,
    elements: SmallVec<[(*const u8, *mut u8); TOGETHER]>,
}

impl Coming {
    pub(super) fn new(item_bytes: usize) -> Self {
        Self { item_bytes, elements: SmallVec::new() }
    }

    /// Takes an element; copies all that were taken when they are many.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable until [`Self::finish`].
    #[inline]
    unsafe fn add(&mut self, from: *const u8, to: *mut u8) {
        self.elements.push((from, to));
        if self.elements.len() == TOGETHER {
            // SAFETY: the promises of the calls that added them.
            unsafe { self.finish() };
        }
    }

    /// Copies what is left, in order: of repeats nothing is promised, but nothing surprises.
    ///
    /// # Safety
    /// The promises of [`Self::add`].
    pub(super) unsafe fn finish(&mut self) {
        // SAFETY: the promises of the calls that added them.
        unsafe {
            match self.item_bytes {
                1 => gather::<1>(&self.elements),
                2 => gather::<2>(&self.elements),
                4 => gather::<4>(&self.elements),
                8 => gather::<8>(&self.elements),
                16 => gather::<16>(&self.elements),
                bytes => {
                    self.elements.iter().for_each(|&(from, _)| ask(from));
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
unsafe fn gather<const BYTES: usize>(elements: &[(*const u8, *mut u8)]) {
    for &(from, to) in elements {
        // SAFETY: arrays of bytes have no alignment; the caller's promise.
        unsafe { to.cast::<[u8; BYTES]>().write_unaligned(from.cast::<[u8; BYTES]>().read_unaligned()) };
    }
}

impl<'a> Reader<'a> {
    /// Whether the work is single elements that may lie in place, one by one.
    pub(super) fn by_points(&self, work: &Work) -> bool {
        matches!(work, Work::Points { .. }) && !self.space.coded() && self.ftl.probe().is_none()
    }

    /// Takes up the elements of the work's `index`-th block; `false`, and nothing done that could not be done again, if
    /// they are not in place.
    ///
    /// # Safety
    /// The elements' places in the buffer must be writable until [`Coming::finish`].
    pub(super) unsafe fn points(
        &self,
        work: &Work,
        index: u64,
        kept: &mut Kept<'a>,
        out: BufferMut,
        coming: &mut Coming,
    ) -> Result<bool> {
        let Work::Points { blocks, pairs } = work else { return Ok(false) };
        let index = index as usize;
        let start = if index == 0 { 0 } else { blocks[index - 1].1 };
        let (at, end) = &blocks[index];
        let Some(map) = self.map(at, kept).filter(|_| self.gathered(at).is_none()) else { return Ok(false) };
        for &(in_block, in_buffer) in &pairs[start..*end] {
            let Some(from) = self.point(at, map, in_block as usize)? else { return Ok(false) };
            // SAFETY: the element lies in the medium's pages; its place is the caller's promise.
            unsafe { coming.add(from, out.at(in_buffer)) };
        }
        Ok(true)
    }

    /// Reads single elements as they come, if they are few and all lie in place; their coordinates one after the other,
    /// and the bytes between them in the buffer. `false`: some do not, or lie outside; some may have been read.
    ///
    /// # Safety
    /// Every element's place in the buffer must be writable memory that nobody else uses meanwhile.
    pub unsafe fn few_points(&self, coordinates: &[u64], stride: isize, out: BufferMut) -> bool {
        let shape = &self.space.shape;
        let n = shape.block.len();
        if n > DIMENSIONS || coordinates.len() > FEW * n || !coordinates.len().is_multiple_of(n) || !self.plain() {
            return false;
        }
        if !self.space.trust.take() {
            return false;
        }
        let size = &self.inner.record.shape;
        let mut sides = [Side { side: 1, shift: Some(0), stride: 0 }; DIMENSIONS];
        for i in 0..n {
            sides[i] = Side::new(shape.block[i], shape.strides[i]);
        }
        let mut at = BlockAt::from_elem(u64::MAX, n);
        let mut cursor = Cursor::default();
        let mut coming = Coming::new(shape.item_bytes);
        for (i, point) in coordinates.chunks_exact(n).enumerate() {
            let mut in_block = 0;
            for axis in 0..n {
                if point[axis] >= size[axis] {
                    return false;
                }
                let (block, inside) = sides[axis].split(point[axis]);
                at[axis] = block;
                in_block += inside;
            }
            let map = cursor.get(self.inner.index(), &at).filter(|_| self.gathered(&at).is_none());
            let Some(from) = map.and_then(|map| self.in_place(map, in_block as usize, shape.item_bytes)) else {
                return false;
            };
            // SAFETY: the element lies in the medium's pages; its place is the caller's promise.
            unsafe { coming.add(from, out.at(i as isize * stride)) };
        }
        // SAFETY: as above.
        unsafe { coming.finish() };
        true
    }

    /// Where bytes of a block lie, if one run of pages has them that the medium shows, and all of these pages are
    /// verified.
    #[inline]
    pub(super) fn in_place(&self, map: &BlockMap, in_block: usize, bytes: usize) -> Option<*const u8> {
        let page = self.space.shape.page;
        let first = (in_block / page) as u32;
        let skip = in_block % page;
        let count = (skip + bytes).div_ceil(page) as u32;
        let ppa = map.covering(first..first + count)?.page_of(first);
        let shown = self.ftl.view(ppa, count)?;
        self.ftl.is_verified(ppa, count).then(|| shown[skip..].as_ptr())
    }

    /// Where an element lies, verified, if the medium shows it in one run of pages.
    fn point(&self, at: &BlockAt, map: &BlockMap, in_block: usize) -> Result<Option<*const u8>> {
        let shape = &self.space.shape;
        let first = (in_block / shape.page) as u32;
        let skip = in_block % shape.page;
        let count = (skip + shape.item_bytes).div_ceil(shape.page) as u32;
        let Some(run) = map.covering(first..first + count) else { return Ok(None) };
        let part = Run { unit: first, count, ppa: run.page_of(first) };
        let Some(bytes) = self.ftl.view(part.ppa, count) else { return Ok(None) };
        if !self.ftl.is_verified(part.ppa, count) {
            let owner = Owner { unit: first as u16, ..self.space.owner(at) };
            self.ftl.verify(part, owner, bytes).map_err(|e| self.bad(at, e))?;
        }
        Ok(Some(bytes[skip..].as_ptr()))
    }
}
