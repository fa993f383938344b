//! The first half of a read in flight: finds the pages that hold the selected elements.
//!
//! For each building block of the work the pages of the touched units are looked up in the index, and announced to the
//! medium ([`Ftl::announce_read`](crate::ftl::Ftl::announce_read)), in the order and in the pieces in which
//! [`Reader::read`] fetches them on a medium that is not memory-mapped. No element is moved. The head of a compressed
//! block is read, since it lists the frames. The caller holds the range lock of the blocks until the second half.

use super::locate::Located;
use super::{Reader, WorkerState, with_payload};
use crate::error::Result;
use crate::flash::Run;
use crate::stl::index::BlockMap;
use crate::stl::plan::Task;
use crate::stl::space::{BufferedBlock, Space};
use crate::stl::units::UnitSet;
use crate::stl::work::Work;

impl<'a> Reader<'a> {
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
            let mut done = 0;
            for raw in &wanted {
                let raw = raw.start.max(done.min(raw.end - 1))..raw.end;
                let frames = table.frames(raw).map_err(|e| self.damaged(at, &e.to_string()))?;
                let end = table.raw_range(frames.clone()).end;
                if end <= done {
                    continue;
                }
                let units = self.payload_units(at, &table.payload_range(frames), len)?;
                for unit in units.clone().filter(|&unit| !announced.has(unit)) {
                    let ppa = map.page_of(unit).expect("a payload without holes");
                    self.ftl.announce_read(Run { unit, count: 1, ppa });
                }
                announced.add(units);
                done = end;
            }
            Ok(())
        })
    }
}
