//! Second stage of a read: finds the place of all selected bytes of a building block.
//!
//! A byte is in a page that the medium shows in memory ([`Located::Mapped`]), in the write buffer, in no page (it reads
//! as the fill value), or in a page that must be fetched. [`Reader::locate`] finds consecutive units of a block in the
//! same kind of place; [`Reader::mapped`] is a shortcut for the usual case that a single run of mapped pages has all
//! bytes. Pages are verified here ([`Reader::verify`]), once, and nowhere else. No element is moved, except into a
//! block-sized buffer if the medium shows nothing ([`Reader::load`]).

use std::ops::Range;

use super::{Reader, WorkerState};
use crate::error::{Error, Result};
use crate::flash::{Owner, Run};
use crate::ftl::FetchError;
use crate::stl::copy::fill_bytes;
use crate::stl::index::{BlockMap, Cursor};
use crate::stl::plan::Task;
use crate::stl::space::BufferedBlock;
use crate::stl::units::UnitSet;

/// The sources of one building block's content; if both are `None` the block reads as the fill value.
#[derive(Clone, Copy, Debug)]
pub struct BlockContent<'b> {
    /// Pages of the block; `None` if it has none.
    pub map: Option<&'b BlockMap>,
    /// Part of the block in the write buffer, which is newer than its pages; `None` if it has none.
    pub buffered: Option<&'b BufferedBlock>,
}

impl BlockContent<'_> {
    /// Whether the block was never written, so that it reads as the fill value.
    pub(super) fn is_absent(&self) -> bool {
        self.map.is_none() && self.buffered.is_none()
    }
}

/// Consecutive pages of a block on a memory-mapped medium, with their bytes in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped<'b> {
    /// The consecutive pages, with the numbers of their access units.
    pub(super) run: Run,
    /// Content of all these pages.
    pub(super) bytes: &'b [u8],
}

impl<'b> Mapped<'b> {
    fn page(&self) -> usize {
        self.bytes.len() / self.run.count as usize
    }

    /// Returns the address of the byte at this offset of the block; `page` is the number of bytes of a page.
    #[inline]
    pub(super) fn at(&self, in_block: usize, page: usize) -> *const u8 {
        self.bytes[in_block - self.run.unit as usize * page..].as_ptr()
    }

    /// Returns the part with these units, which must be among the pages.
    pub(super) fn part(&self, units: Range<u32>) -> Self {
        assert!(
            self.run.unit <= units.start && units.end <= self.run.end(),
            "units {units:?} of the run {:?}",
            self.run
        );
        let page = self.page();
        let skip = (units.start - self.run.unit) as usize * page;
        let count = units.end - units.start;
        let run = Run { unit: units.start, count, ppa: self.run.page_of(units.start) };
        Self { run, bytes: &self.bytes[skip..skip + count as usize * page] }
    }
}

/// The place of some consecutive access units of a plain block, one that is neither compressed nor encrypted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Located<'b> {
    /// Pages that can be read in place, as the medium is memory-mapped; they may begin before the unit that was looked
    /// up.
    Mapped(Mapped<'b>),
    /// One unit, in the write buffer.
    Buffered(&'b [u8]),
    /// Units that were never written, which read as the fill value.
    Fill,
    /// Pages that must be fetched from the medium.
    Absent(Run),
}

impl<'a> Reader<'a> {
    /// Returns the sources of a block's content.
    #[inline]
    pub(super) fn content(&self, at: &[u64], cursor: &mut Cursor<'a>) -> BlockContent<'a> {
        let buffer = &self.inner.write_buffer;
        let buffered = if buffer.is_empty() { None } else { buffer.get(at) };
        BlockContent { map: cursor.get(self.inner.index(), at), buffered }
    }

    /// Returns the pages of these bytes of a block if they are one run of a memory-mapped medium. `None` also if a part
    /// of the block is in the write buffer, or the space is compressed or encrypted.
    #[inline]
    pub(super) fn mapped(&self, content: &BlockContent<'a>, bytes: &Range<usize>) -> Option<Mapped<'a>> {
        let run = self.covering(content, bytes)?;
        self.ftl.view(run.ppa, run.count).map(|bytes| Mapped { run, bytes })
    }

    /// Returns the pages as [`Self::mapped`] does, and waits for them before if the medium is far away.
    pub(super) fn mapped_here(&self, content: &BlockContent<'a>, bytes: &Range<usize>) -> Result<Option<Mapped<'a>>> {
        let mapped = self.mapped(content, bytes);
        if mapped.is_some() || !self.ftl.media().is_far() {
            return Ok(mapped);
        }
        let Some(run) = self.covering(content, bytes) else { return Ok(None) };
        self.ftl.bring(run)?;
        Ok(self.mapped(content, bytes))
    }

    /// Returns the pages of these bytes of a block if they are one run; `None` as for [`Self::mapped`], but the medium
    /// need not be memory-mapped.
    #[inline]
    pub(super) fn covering(&self, content: &BlockContent<'a>, bytes: &Range<usize>) -> Option<Run> {
        if self.space.coded() || content.buffered.is_some() {
            return None;
        }
        let page = self.space.shape.page;
        let units = (bytes.start / page) as u32..bytes.end.div_ceil(page) as u32;
        let ppa = content.map?.covering(units.clone())?.page_of(units.start);
        Some(Run { unit: units.start, count: units.end - units.start, ppa })
    }

    /// Returns where `unit` of a plain block lies, with the range of consecutive units before `end` that lie there
    /// together. The range may begin before `unit`.
    pub(super) fn locate<'b>(&self, content: &BlockContent<'b>, unit: u32, end: u32) -> (Range<u32>, Located<'b>)
    where
        'a: 'b,
    {
        debug_assert!(unit < end, "unit {unit} of {end}");
        let next_buffered = match content.buffered {
            Some(BufferedBlock::Units(units)) => units.range(unit..end).next(),
            _ => None,
        };
        if let Some((_, buffered)) = next_buffered.filter(|&(&u, _)| u == unit) {
            return (unit..unit + 1, Located::Buffered(&buffered.bytes));
        }
        let limit = next_buffered.map_or(end, |(&u, _)| u);
        let Some(run) = content.map.and_then(|m| m.next_run(unit)).filter(|r| r.unit < limit) else {
            return (unit..limit, Located::Fill);
        };
        if unit < run.unit {
            return (unit..run.unit, Located::Fill);
        }
        // From the run's beginning on if nothing is buffered there, as a list of coordinates may come back to it.
        let start = if content.buffered.is_none() { run.unit } else { unit };
        let run = Run { unit: start, count: run.end().min(limit) - start, ppa: run.page_of(start) };
        let located = match self.ftl.view(run.ppa, run.count) {
            Some(bytes) => Located::Mapped(Mapped { run, bytes }),
            None => Located::Absent(run),
        };
        (run.unit..run.end(), located)
    }

    /// Calls `each` with all units of a range of a plain block and their places; every page is reported as
    /// [`Located::Absent`].
    pub(super) fn for_each_place<'b>(
        &self,
        content: &BlockContent<'b>,
        units: Range<u32>,
        each: &mut dyn FnMut(Range<u32>, Located<'b>) -> Result<()>,
    ) -> Result<()>
    where
        'a: 'b,
    {
        let mut unit = units.start;
        while unit < units.end {
            let (found, located) = self.locate(content, unit, units.end);
            let part = |run: Run| Run { unit, count: found.end - unit, ppa: run.page_of(unit) };
            let located = match located {
                Located::Mapped(mapped) => Located::Absent(part(mapped.run)),
                Located::Absent(run) => Located::Absent(part(run)),
                other => other,
            };
            each(unit..found.end, located)?;
            unit = found.end;
        }
        Ok(())
    }

    /// Whether all these pages were verified before.
    #[inline]
    pub(in crate::stl) fn is_verified(&self, run: Run) -> bool {
        self.ftl.is_verified(run.ppa, run.count)
    }

    /// Verifies pages of a block against their out-of-band records, except pages that were verified before.
    pub(super) fn verify(&self, at: &[u64], pages: &Mapped<'_>) -> Result<()> {
        let owner = Owner { unit: pages.run.unit as u16, ..self.space.owner(at) };
        self.ftl.verify(pages.run, owner, pages.bytes).map_err(|e| self.bad_page(at, e))
    }

    /// Verifies only those of the mapped pages that a task touches.
    pub(super) fn verify_task(&self, task: &Task<'_>, mapped: &Mapped<'_>, units: &mut UnitSet) -> Result<()> {
        if self.is_verified(mapped.run) {
            return Ok(());
        }
        self.touched(task, units);
        units.ranges().try_for_each(|units| self.verify(&task.at, &mapped.part(units)))
    }

    /// Sets `units` to the access units of the block that a task touches.
    pub(in crate::stl) fn touched(&self, task: &Task<'_>, units: &mut UnitSet) {
        let page = self.space.shape.page;
        units.clear(self.space.shape.units);
        task.touch(self.space.shape.item_bytes, page, &mut |bytes| {
            units.add((bytes.start / page) as u32..bytes.end.div_ceil(page) as u32);
        });
        debug_assert!(units.ranges().next().is_some(), "a task has elements");
    }

    /// Reads and verifies units of a plain block, into their places in a block-sized buffer.
    pub fn load(&self, at: &[u64], content: &BlockContent<'_>, units: Range<u32>, block: &mut [u8]) -> Result<()> {
        let page = self.space.shape.page;
        assert!(units.end as usize * page <= block.len(), "units {units:?} of a buffer of {} bytes", block.len());
        self.for_each_place(content, units, &mut |units, located| {
            let here = units.start as usize * page;
            let bytes = &mut block[here..units.end as usize * page];
            match located {
                Located::Absent(run) | Located::Mapped(Mapped { run, .. }) => {
                    let owner = Owner { unit: run.unit as u16, ..self.space.owner(at) };
                    self.ftl.fetch(run, owner, bytes).map_err(|e| self.bad_page(at, e))?;
                }
                Located::Buffered(unit) => bytes.copy_from_slice(unit),
                Located::Fill => self.fill_units(here, bytes),
            }
            Ok(())
        })
    }

    /// Fills bytes that begin at offset `here` of a block with repetitions of the fill value, aligned to the block's
    /// start.
    pub fn fill_units(&self, here: usize, bytes: &mut [u8]) {
        let pattern = &self.space.shape.fill;
        let phase = here % pattern.len();
        if phase == 0 {
            fill_bytes(bytes, pattern);
        } else {
            let turned: Vec<u8> = pattern[phase..].iter().chain(&pattern[..phase]).copied().collect();
            fill_bytes(bytes, &turned);
        }
    }

    /// Calls `report` for each run of pages that a task needs, with offset and length of the pages and of their
    /// out-of-band records in the medium, in bytes.
    pub(in crate::stl) fn pages_of(
        &self,
        task: &Task<'_>,
        state: &mut WorkerState<'a>,
        report: &mut dyn FnMut(u64, u64, u64, u64),
    ) {
        let Some(map) = state.cursor.get(self.inner.index(), &task.at) else { return };
        let geometry = self.ftl.geometry();
        let page = u64::from(geometry.page_bytes);
        let mut report = |run: Run| {
            let oob = u64::from(run.count) * crate::flash::geometry::OOB_BYTES;
            report(geometry.page_offset(run.ppa), u64::from(run.count) * page, geometry.oob_offset(run.ppa), oob);
        };
        if self.space.coded() {
            map.runs().for_each(report);
            return;
        }
        self.touched(task, &mut state.units);
        for range in state.units.ranges() {
            let mut from = range.start;
            while let Some(run) = map.next_run(from).filter(|r| r.unit < range.end) {
                let (start, end) = (run.unit.max(range.start), run.end().min(range.end));
                report(Run { unit: start, count: end - start, ppa: run.page_of(start) });
                from = run.end();
            }
        }
    }

    pub(super) fn bad_page(&self, at: &[u64], error: FetchError) -> Error {
        self.space.page_error(&self.inner.record.name, at, error)
    }
}
