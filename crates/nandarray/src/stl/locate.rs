//! The first half of a read in flight: which pages hold the elements that are wanted.
//!
//! A walk over the building blocks of the work asks the index where each block's touched units are, and tells the
//! medium of the pages ([`Ftl::locate`](crate::ftl::Ftl::locate)) in the order and in the pieces in which
//! [`Reader::read`] fetches them on a medium that shows nothing in place. No element is moved. Of a compressed block
//! the head is read, since it says which pages hold the frames that are wanted. The caller holds the blocks until the
//! second half.

use std::ops::Range;

use super::index::BlockMap;
use super::plan::Task;
use super::read::{Kept, Reader, with_payload};
use super::space::{Gathered, Space};
use super::units::UnitSet;
use super::work::Work;
use crate::error::Result;
use crate::flash::{Owner, Run};

impl<'a> Reader<'a> {
    /// Tells the medium of all pages that the work reads, and the probe of all blocks that it moves.
    ///
    /// # Errors
    /// The errors of a compressed block whose head cannot be read.
    pub fn locate(&self, work: &Work) -> Result<()> {
        let mut kept = Kept::default();
        for i in 0..work.len() {
            let task = work.task(i);
            let map = self.map(&task.at, &mut kept);
            self.locate_task(&task, map, &mut kept)?;
            if let Some(probe) = self.probe() {
                let (runs, bytes) = task.moves(self.space.shape.item_bytes);
                probe.moved(runs, bytes);
            }
        }
        Ok(())
    }

    fn locate_task(&self, task: &Task<'_>, map: Option<&'a BlockMap>, kept: &mut Kept<'a>) -> Result<()> {
        let gathered = self.gathered(&task.at);
        let Some(map) = map else { return Ok(()) };
        if self.space.coded() {
            return match gathered {
                Some(Gathered::Block(_)) => Ok(()),
                _ => self.locate_coded(task, map),
            };
        }
        self.touched(task, &mut kept.units);
        for units in kept.units.ranges() {
            self.by_place(Some(map), gathered, units, &mut |_, run| {
                if let Some(run) = run {
                    self.ftl.locate(run);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn locate_coded(&self, task: &Task<'_>, map: &BlockMap) -> Result<()> {
        let (at, page, pages) = (&task.at, self.space.shape.page, map.pages() as u32);
        self.without_holes(at, map)?;
        let codec = self.space.codec()?;
        let wanted = self.wanted_of_coded(task)?;
        with_payload(pages as usize * page, |payload| {
            let mut here = UnitSet::default();
            here.clear(pages);
            let units_of = |bytes: Range<usize>| {
                let fits = bytes.end <= pages as usize * page;
                fits.then(|| (bytes.start / page) as u32..bytes.end.div_ceil(page) as u32)
                    .ok_or_else(|| self.damaged(at, "its payload is longer than its pages"))
            };
            let run_of = |unit: u32| Run { unit, count: 1, ppa: map.page_of(unit).expect("no holes, checked above") };
            let head = units_of(0..codec.head_bytes())?;
            for unit in head.clone() {
                let owner = Owner { unit: unit as u16, ..self.space.owner(at) };
                let bytes = &mut payload[unit as usize * page..][..page];
                self.ftl.fetch(run_of(unit), owner, bytes).map_err(|e| self.bad(at, e))?;
            }
            here.add(head);
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
                let units = units_of(table.payload_range(frames))?;
                units.clone().filter(|&unit| !here.has(unit)).for_each(|unit| self.ftl.locate(run_of(unit)));
                here.add(units);
                done = end;
            }
            Ok(())
        })
    }
}
