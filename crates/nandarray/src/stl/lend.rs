//! Lending: the bytes of a work where they lie, if the medium shows them one behind the other in the work's order.
//!
//! That is so for a one-dimensional space whose blocks were appended in order, and for boxes of others within a row of
//! a block. What is lent was compared with its checksums as what is read is. The space's lock is held by the caller as
//! long as the bytes are looked at. Nothing is lent where every move is to be told (a probe), or where blocks are
//! coded.

use super::ahead::Ahead;
use super::copy::merge;
use super::read::{Kept, Reader};
use super::work::Work;
use crate::error::Result;

impl<'a> Reader<'a> {
    /// All bytes of a work; `None` if they do not lie together. `coming` is what commands after this one will probably
    /// want.
    pub fn lend(&self, work: &Work, coming: Option<&Work>, bytes: u64) -> Result<Option<&'a [u8]>> {
        if self.ftl.probe().is_some() || self.space.coded() || work.len() == 0 {
            return Ok(None);
        }
        let mut kept = Kept::default();
        let Some(first) = self.together(work, bytes, &mut kept) else { return Ok(None) };
        let media = self.ftl.media();
        // One look at all of it costs no more than one at a page.
        let waits = !media.is_resident(first, bytes) || coming.is_some();
        let ahead = waits.then(|| Ahead::new(self, work, coming, bytes));
        for i in 0..work.len() {
            if let Some(ahead) = &ahead {
                ahead.advance(i, &mut kept);
            }
            let task = work.task(i);
            let map = self.map(&task.at, &mut kept);
            self.place(&task, map, &mut kept)?;
        }
        Ok(media.slice(first, bytes as usize))
    }

    /// The byte of the medium where a work begins, if its bytes follow one another there.
    fn together(&self, work: &Work, bytes: u64, kept: &mut Kept<'a>) -> Option<u64> {
        // Where the first byte lies, and how many bytes follow one another so far.
        let (mut first, mut length) = (0, 0u64);
        for i in 0..work.len() {
            let task = work.task(i);
            let mut loops = task.loops.clone();
            let (0, run) = merge(&mut loops, self.space.shape.item_bytes) else { return None };
            let map = self.map(&task.at, kept);
            let (part, skip) = self.part(&task, map)?;
            let at = self.ftl.geometry().page_offset(part.ppa) + skip as u64;
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
