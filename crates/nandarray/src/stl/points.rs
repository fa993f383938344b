//! Single elements: from the medium to the buffer one by one, without the loops of a task.
//!
//! Every element of a random list lies in another page, so its line and the way to it are what it costs. Addresses are found a
//! few elements ahead of the copies, and their lines asked for. What is not in place (fill, units that gather, coded blocks,
//! media that are only read) is left to the tasks of `read`.

use super::index::BlockMap;
use super::plan::BlockAt;
use super::read::{BufferMut, Kept, Reader};
use super::stream::ask;
use super::work::Work;
use crate::error::Result;
use crate::flash::{Owner, Run};

/// Elements on their way: about as many as a core can have lines coming.
const ASKED: usize = 24;

/// A thread's elements whose lines are on their way.
pub(super) struct Coming {
    item_bytes: usize,
    elements: [(*const u8, *mut u8); ASKED],
    /// Elements since the beginning; the last [`ASKED`] of them are on their way.
    seen: usize,
}

impl Coming {
    pub(super) fn new(item_bytes: usize) -> Self {
        Self { item_bytes, elements: [(std::ptr::null(), std::ptr::null_mut()); ASKED], seen: 0 }
    }

    /// Asks for an element's line, and copies the element that was asked for a while ago.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable until [`Self::finish`].
    unsafe fn add(&mut self, from: *const u8, to: *mut u8) {
        ask(from);
        let place = self.seen % ASKED;
        if self.seen >= ASKED {
            let (from, to) = self.elements[place];
            // SAFETY: the promise of the call that added it.
            unsafe { shift(self.item_bytes, from, to) };
        }
        self.elements[place] = (from, to);
        self.seen += 1;
    }

    /// Copies what is left, in order: of repeats nothing is promised, but nothing surprises.
    ///
    /// # Safety
    /// The promises of [`Self::add`].
    pub(super) unsafe fn finish(&mut self) {
        for i in self.seen.saturating_sub(ASKED)..self.seen {
            let (from, to) = self.elements[i % ASKED];
            // SAFETY: the promise of the call that added it.
            unsafe { shift(self.item_bytes, from, to) };
        }
        self.seen = 0;
    }
}

/// # Safety
/// `bytes` at both addresses.
unsafe fn shift(bytes: usize, from: *const u8, to: *mut u8) {
    // SAFETY: arrays of bytes have no alignment; the caller's promise.
    unsafe {
        match bytes {
            4 => to.cast::<[u8; 4]>().write_unaligned(from.cast::<[u8; 4]>().read_unaligned()),
            8 => to.cast::<[u8; 8]>().write_unaligned(from.cast::<[u8; 8]>().read_unaligned()),
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

impl<'a> Reader<'a> {
    /// Whether the work is single elements that may lie in place, one by one.
    pub(super) fn by_points(&self, work: &Work) -> bool {
        matches!(work, Work::Points { .. }) && !self.space.coded() && self.ftl.probe().is_none()
    }

    /// Takes up the elements of the work's `index`-th block; `false`, and nothing done that could not be done again, if they are
    /// not in place.
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
