//! Borrowing: access to the bytes of a work in place, if the medium shows them contiguously in the work's order.
//!
//! This is possible for a one-dimensional space whose blocks were appended in order, and in other spaces for boxes
//! within a row of a block. Borrowed bytes are verified like bytes that are read. The caller holds the space's lock
//! while it uses the bytes. Nothing is borrowed if a probe must be notified of every move, or if blocks are coded.

use super::{Reader, WorkerState};
use crate::error::Result;
use crate::stl::copy::merge;
use crate::stl::prefetch::PagePrefetcher;
use crate::stl::work::Work;

impl<'a> Reader<'a> {
    /// Returns all bytes of a work as a slice of the medium, without copying; `None` if they are not contiguous.
    /// `predicted` is the work of commands that will probably follow.
    pub fn borrow(&self, work: &Work, predicted: Option<&Work>, bytes: u64) -> Result<Option<&'a [u8]>> {
        if !self.is_plain() || work.len() == 0 {
            return Ok(None);
        }
        let mut state = WorkerState::default();
        let Some(first) = self.contiguous_from(work, bytes, &mut state) else { return Ok(None) };
        let media = self.ftl.media();
        // Testing the whole range costs no more than testing a page.
        let waits = !media.is_resident(first, bytes) || predicted.is_some();
        let prefetcher = waits.then(|| PagePrefetcher::new(self, work, predicted, bytes));
        for i in 0..work.len() {
            if let Some(prefetcher) = &prefetcher {
                prefetcher.advance(i, &mut state);
            }
            let task = work.task(i);
            let content = self.content(&task.at, &mut state.cursor);
            if let Some(mapped) = self.mapped(&content, &self.span(&task)) {
                self.verify_task(&task, &mapped, &mut state.units)?;
            }
        }
        Ok(media.slice(first, bytes as usize))
    }

    /// Returns the offset in the medium at which a work begins; `None` if its bytes are not contiguous there.
    fn contiguous_from(&self, work: &Work, bytes: u64, state: &mut WorkerState<'a>) -> Option<u64> {
        // The offset of the first byte, and the number of contiguous bytes so far.
        let (mut first, mut length) = (0, 0u64);
        for i in 0..work.len() {
            let task = work.task(i);
            let mut loops = task.loops.clone();
            let (0, run) = merge(&mut loops, self.space.shape.item_bytes) else { return None };
            let content = self.content(&task.at, &mut state.cursor);
            let pages = self.covering(&content, &self.span(&task))?;
            let skip = task.in_block - pages.unit as usize * self.space.shape.page;
            let at = self.ftl.geometry().page_offset(pages.ppa) + skip as u64;
            if i == 0 {
                first = at;
            }
            if at != first + length || task.in_buffer as u64 != length {
                return None;
            }
            length += run as u64;
        }
        assert_eq!(length, bytes, "the tasks of a work are its bytes");
        Some(first)
    }
}
