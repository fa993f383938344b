//! Reads without the third stage: pages that hold the selected elements are announced, or their bytes lent in place.
//!
//! [`Reader::announce`] is the first half of a read in flight. For each building block of the work the pages of the
//! touched units are looked up in the index, and announced to the medium
//! ([`Ftl::announce_read`](crate::ftl::Ftl::announce_read)), in the order and in the pieces in which [`Reader::read`]
//! fetches them on a medium that is not memory-mapped. The head of a compressed block is read, since it lists the
//! frames. The caller holds the range lock of the blocks until the second half.
//!
//! [`Reader::borrow`] gives access to the bytes of a work, if the medium shows them contiguously in the work's order.
//! This is possible for a one-dimensional space whose blocks were appended in order, and in other spaces for boxes
//! within a row of a block. Borrowed bytes are verified like bytes that are read. The caller holds the space's lock
//! while it uses the bytes. Nothing is borrowed if a probe must be notified of every move, or if blocks are coded.

use super::locate::Located;
use super::{Reader, WorkerState, with_payload};
use crate::error::Result;
use crate::flash::Run;
use crate::stl::copy::merge;
use crate::stl::index::BlockMap;
use crate::stl::plan::Task;
use crate::stl::prefetch::PagePrefetcher;
use crate::stl::space::{BufferedBlock, Space};
use crate::stl::units::UnitSet;
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
            if let Some(mapped) = self.mapped_here(&content, &self.span(&task))? {
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

    /// Announces to the medium all pages that the work reads, and to the probe all blocks whose elements it moves.
    ///
    /// # Errors
    /// The errors of a compressed block whose head cannot be read.
    pub fn announce(&self, work: &Work) -> Result<()> {
        let mut state = WorkerState::default();
        for i in 0..work.len() {
            let task = work.task(i);
            self.announce_task(&task, &mut state)?;
            self.report_moves(|| task);
        }
        Ok(())
    }

    fn announce_task(&self, task: &Task<'_>, state: &mut WorkerState<'a>) -> Result<()> {
        let content = self.content(&task.at, &mut state.cursor);
        let Some(map) = content.map else { return Ok(()) };
        if self.space.coded() {
            return match content.buffered {
                Some(BufferedBlock::Block(_)) => Ok(()),
                _ => self.announce_coded(task, map),
            };
        }
        self.touched(task, &mut state.units);
        for units in state.units.ranges() {
            self.for_each_place(&content, units, &mut |_, located| {
                if let Located::Absent(run) = located {
                    self.ftl.announce_read(run);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn announce_coded(&self, task: &Task<'_>, map: &BlockMap) -> Result<()> {
        let (at, page, pages) = (&task.at, self.space.shape.page, map.pages() as u32);
        self.without_holes(at, map)?;
        let codec = self.space.codec()?;
        let wanted = self.wanted_of_coded(task)?;
        with_payload(pages as usize * page, |payload| {
            let len = payload.len();
            let mut announced = UnitSet::default();
            announced.clear(pages);
            let head = self.payload_units(at, &(0..codec.head_bytes()), len)?;
            for unit in head.clone() {
                self.fetch_unit(at, map, unit, payload)?;
            }
            assert!(!head.is_empty() && head.end <= pages, "a head in units {head:?} of {pages}");
            announced.add(head);
            let key = Space::context_key(at);
            let table = codec.frame_table(payload, self.space.context(&key));
            let table = table.map_err(|e| self.damaged(at, &e.to_string()))?;
            self.each_frames(at, &table, &wanted, &mut |frames, _| {
                let units = self.payload_units(at, &table.payload_range(frames), len)?;
                for unit in units.clone().filter(|&unit| !announced.has(unit)) {
                    let ppa = map.page_of(unit).expect("a payload without holes");
                    self.ftl.announce_read(Run { unit, count: 1, ppa });
                }
                announced.add(units);
                Ok(())
            })
        })
    }
}
