//! Reading: from building blocks to the caller's buffer, each run copied once (NDS paper, section 4.4, assembly).
//!
//! For each block touched the index names its pages. Where the medium shows them in place, elements go straight from
//! the medium to the buffer, at once where one run of pages has them all, in pieces (`fragments`) where they lie apart;
//! otherwise (media that can only be read, coded blocks) the touched units are first gathered in a thread's scratch
//! block. Only pages that hold wanted elements are compared with their checksums or read; the first time, and ahead of
//! need when they are not in memory.
//!
//! The space's lock is held by the caller for the whole command, so that a read sees every write whole or not at all.

use std::cell::RefCell;
use std::ops::Range;

use smallvec::SmallVec;

use super::ahead::Ahead;
use super::assemble::Assembler;
use super::copy::{Loop, copy, copy_streaming, fill, fill_bytes, merge};
use super::fragments::Pieces;
use super::index::{BlockMap, Cursor};
use super::plan::{BlockAt, Task};
use super::points::Coming;
use super::short::Asked;
use super::space::{Gathered, Inner, Space};
use super::units::UnitSet;
use super::work::{Work, Workers, run};
use crate::codec::FrameTable;
use crate::error::{Error, Result};
use crate::flash::Run;
use crate::ftl::Ftl;
use crate::sim::Probe;

/// A command that reads at least this much is assembled row by row and, where it can be, streamed past the caches:
/// twice what a core's own holds.
pub(super) const STREAM_BYTES: u64 = 4 << 20;

/// Tasks of a large read that a thread takes at least: while one is copied, the lines of the next are asked for.
const TASKS_LEAST: u64 = 8;

/// The caller's buffer: where element (0, 0, ...) of the selection lies.
#[derive(Clone, Copy, Debug)]
pub struct BufferMut(*mut u8);

impl BufferMut {
    /// Lends a buffer to one read command.
    ///
    /// # Safety
    /// Every element that the command's target reaches from here must be writable memory, used by nobody else until the
    /// command is done.
    pub unsafe fn from_raw(first: *mut u8) -> Self {
        Self(first)
    }
}

impl BufferMut {
    /// # Safety
    /// The offset must be one that the command's target reaches.
    pub(super) unsafe fn at(&self, offset: isize) -> *mut u8 {
        // SAFETY: the caller's promise, and that of `from_raw`.
        unsafe { self.0.offset(offset) }
    }
}

// SAFETY: tasks of one command write disjoint elements, and the caller lends the buffer for the length of the command.
unsafe impl Send for BufferMut {}
// SAFETY: as above.
unsafe impl Sync for BufferMut {}

/// What a thread keeps between blocks.
#[derive(Default)]
pub struct Kept<'a> {
    stream: bool,
    cursor: Cursor<'a>,
    pub(super) units: UnitSet,
}

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PAYLOAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A block's worth of scratch memory, padded to whole units; kept by the thread unless it is large.
pub fn with_scratch<T>(bytes: usize, f: impl FnOnce(&mut [u8]) -> T) -> T {
    with_buffer(&SCRATCH, bytes, f)
}

/// A second one, for a coded block's payload.
pub(super) fn with_payload<T>(bytes: usize, f: impl FnOnce(&mut [u8]) -> T) -> T {
    with_buffer(&PAYLOAD, bytes, f)
}

fn with_buffer<T>(
    buffer: &'static std::thread::LocalKey<RefCell<Vec<u8>>>,
    bytes: usize,
    f: impl FnOnce(&mut [u8]) -> T,
) -> T {
    // Taken out while in use, so that nothing below can meet it borrowed.
    let mut scratch = buffer.take();
    if scratch.len() < bytes {
        scratch.resize(bytes, 0);
    }
    let got = f(&mut scratch[..bytes]);
    if scratch.len() <= 8 << 20 {
        buffer.set(scratch);
    }
    got
}

/// Reads of one space under its lock.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// Flash management.
    pub ftl: &'a Ftl,
    /// The space.
    pub space: &'a Space,
    /// Its state, locked.
    pub inner: &'a Inner,
    /// Whether somebody who looks on is told of what is moved.
    pub watched: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn probe(&self) -> Option<&'a dyn Probe> {
        if self.watched { self.ftl.probe() } else { None }
    }

    /// Does the work; `coming` is what commands after this one will probably read.
    ///
    /// # Safety
    /// Every element that the work reaches in the buffer must be writable memory that nobody else uses meanwhile.
    pub unsafe fn read(
        &self,
        workers: &Workers,
        work: &Work,
        coming: Option<&Work>,
        bytes: u64,
        out: BufferMut,
    ) -> Result<()> {
        let count = work.len();
        let ahead = Ahead::new(self, work, coming, bytes);
        let stream = bytes >= STREAM_BYTES;
        // A single block has no neighbour to share anything with.
        let short = !stream && count > 1 && self.ftl.probe().is_none();
        let together = if stream { work.row_tasks(self.space.shape.item_bytes) } else { 1 };
        let least = if stream { TASKS_LEAST } else { 1 };
        run(workers, count, self.cost(work, bytes), together, least, &|range, kept: &mut Kept<'a>| {
            kept.stream = stream;
            let mut assembler = stream.then(|| Assembler::new(self.space.shape.item_bytes, bytes));
            if let (Work::Plans { plans, ends }, true) = (work, short) {
                let mut asked = Asked::new(self.space.shape.item_bytes);
                let mut start = range.start;
                while start < range.end {
                    let number = ends.partition_point(|&end| end <= start);
                    let (before, end) = (ends[number] - plans[number].tasks(), ends[number].min(range.end));
                    let plan = (&plans[number], before);
                    // SAFETY: the caller's promise about the buffer.
                    unsafe { self.read_short(plan, start - before..end - before, &ahead, kept, out, &mut asked)? };
                    start = end;
                }
                // SAFETY: as above; what was added is held by the space's lock.
                unsafe { asked.finish() };
                return Ok(());
            }
            let mut pieces = Pieces::default();
            let (mut looked, end) = (false, range.end);
            let mut points = self.by_points(work).then(|| Coming::new(self.space.shape.item_bytes));
            for i in range {
                ahead.advance(i, kept);
                if let Some(points) = &mut points {
                    // SAFETY: the caller's promise about the buffer covers the block's elements.
                    if unsafe { self.points(work, i, kept, out, points)? } {
                        continue;
                    }
                }
                let task = work.task(i);
                let map = self.map(&task.at, kept);
                let watched = self.probe().map(|probe| (probe, task.moves(self.space.shape.item_bytes)));
                // SAFETY: the caller's promise about the buffer covers this task's elements.
                unsafe {
                    if looked && i + 1 < end {
                        self.coming_look(&work.task(i + 1), kept);
                    }
                    let part = self.part(&task, map);
                    // What is watched is done task by task.
                    let first = watched.is_none() && assembler.as_ref().is_some_and(Assembler::is_in_place);
                    looked = first && self.first_look(&task, part, kept, out)?;
                    if !looked {
                        let to = out.at(task.in_buffer);
                        match self.shown(&task, part, kept)? {
                            Some(from) => match &mut assembler {
                                Some(assembler) => assembler.add(&task.loops, task.row, from, to),
                                None => scatter(&task, self.space.shape.item_bytes, false, from, to),
                            },
                            None => self.read_block(&task, map, kept, to, &mut pieces)?,
                        }
                    }
                    if let Some(assembler) = assembler.as_mut().filter(|_| (i + 1) % together == 0 || pieces.are_many())
                    {
                        pieces.assemble(assembler);
                    }
                }
                // Behind the task's reads, which belong to it.
                if let Some((probe, (runs, bytes))) = watched {
                    probe.moved(runs, bytes);
                }
            }
            // SAFETY: as above; what they point to is held by the space's lock.
            unsafe {
                if let Some(assembler) = &mut assembler {
                    pieces.assemble(assembler);
                    assembler.finish();
                }
                if let Some(points) = &mut points {
                    points.finish();
                }
            }
            Ok(())
        })
    }

    /// Bytes that the work moves through a core, for sharing it out: coded blocks are decoded by frames, and an element
    /// that lies alone costs a cache line.
    fn cost(&self, work: &Work, bytes: u64) -> u64 {
        let shape = &self.space.shape;
        if work.len() == 0 {
            return 0;
        }
        if let Some(spec) = self.space.spec() {
            let span = work.task(0).span(shape.item_bytes).len().max(spec.frame_bytes()).min(shape.bytes);
            return bytes.max(work.len() * span as u64) * spec.weight();
        }
        let alone = match work.task(0).loops.last() {
            Some(&Loop::Affine { n, from, .. }) => n == 1 || from != shape.item_bytes as isize,
            _ => true,
        };
        if alone { bytes.max(bytes / shape.item_bytes as u64 * 64) } else { bytes }
    }

    /// The pages of all that a task touches, if they are one run, and where in them its first element is.
    pub(super) fn part(&self, task: &Task<'_>, map: Option<&BlockMap>) -> Option<(Run, usize)> {
        let shape = &self.space.shape;
        let map = map.filter(|_| !self.space.coded() && self.gathered(&task.at).is_none())?;
        let span = task.span(shape.item_bytes);
        // Offsets of a table count from the block's start, which must lie within the slice then.
        let units = (span.start.min(task.in_block) / shape.page) as u32..span.end.div_ceil(shape.page) as u32;
        let run = map.covering(units.clone())?;
        let part = Run { unit: units.start, count: units.end - units.start, ppa: run.page_of(units.start) };
        Some((part, task.in_block - units.start as usize * shape.page))
    }

    /// Where the task's first element lies, verified, if the medium shows all that the task touches in one run of
    /// pages.
    pub(super) fn place(
        &self,
        task: &Task<'_>,
        map: Option<&BlockMap>,
        kept: &mut Kept<'a>,
    ) -> Result<Option<*const u8>> {
        self.shown(task, self.part(task, map), kept)
    }

    /// The same of a task whose part is known.
    fn shown(&self, task: &Task<'_>, part: Option<(Run, usize)>, kept: &mut Kept<'a>) -> Result<Option<*const u8>> {
        let Some((part, skip)) = part else { return Ok(None) };
        let Some(bytes) = self.ftl.view(part.ppa, part.count) else { return Ok(None) };
        self.verify_touched(task, part, bytes, &mut kept.units)?;
        Ok(Some(bytes[skip..].as_ptr()))
    }

    /// Where a block's pages are.
    pub(super) fn map(&self, at: &BlockAt, kept: &mut Kept<'a>) -> Option<&'a BlockMap> {
        kept.cursor.get(self.inner.index(), at)
    }

    pub(super) fn gathered(&self, at: &BlockAt) -> Option<&'a Gathered> {
        if self.inner.gathered.is_empty() { None } else { self.inner.gathered.get(at) }
    }

    pub(super) fn touched(&self, task: &Task<'_>, units: &mut UnitSet) {
        let page = self.space.shape.page;
        units.clear(self.space.shape.units);
        task.touch(self.space.shape.item_bytes, page, &mut |bytes| {
            units.add((bytes.start / page) as u32..bytes.end.div_ceil(page) as u32);
        });
    }

    /// Reads a task that is not in place as a whole: fill, fragments, units that gather, coded blocks, media that are
    /// only read. Some of it may wait among the pieces of a large read.
    ///
    /// # Safety
    /// `to` must be writable along the task's loops, until the pieces are copied.
    pub(super) unsafe fn read_block<'t>(
        &self,
        task: &Task<'t>,
        map: Option<&'a BlockMap>,
        kept: &mut Kept<'a>,
        to: *mut u8,
        pieces: &mut Pieces<'t>,
    ) -> Result<()> {
        let shape = &self.space.shape;
        let gathered = self.gathered(&task.at);
        if map.is_none() && gathered.is_none() {
            // SAFETY: as above.
            unsafe { fill(&task.loops, &shape.fill, to) };
            return Ok(());
        }
        if self.space.coded() {
            // SAFETY: as above.
            return unsafe { self.read_coded(task, map, gathered, kept, to) };
        }
        // SAFETY: as above.
        let done = unsafe {
            if kept.stream {
                self.wait_for_pieces(task, map, gathered, to, pieces)?
            } else {
                self.read_pieces(task, map, gathered, to, pieces)?
            }
        };
        if done {
            return Ok(());
        }
        self.touched(task, &mut kept.units);
        with_scratch(shape.units as usize * shape.page, |scratch| {
            for units in kept.units.ranges() {
                self.load(&task.at, map, gathered, units, scratch)?;
            }
            // SAFETY: the scratch is a whole block; the destination as above.
            unsafe { scatter(task, shape.item_bytes, kept.stream, scratch[task.in_block..].as_ptr(), to) };
            Ok(())
        })
    }

    fn verify_touched(&self, task: &Task<'_>, part: Run, bytes: &[u8], units: &mut UnitSet) -> Result<()> {
        if self.ftl.is_verified(part.ppa, part.count) {
            return Ok(());
        }
        self.touched(task, units);
        let owner = self.space.owner(&task.at);
        for range in units.ranges() {
            let some = Run { unit: range.start, count: range.end - range.start, ppa: part.page_of(range.start) };
            let skip = (range.start - part.unit) as usize * self.space.shape.page;
            let owner = crate::flash::Owner { unit: range.start as u16, ..owner };
            let bytes = &bytes[skip..][..some.count as usize * self.space.shape.page];
            self.ftl.verify(some, owner, bytes).map_err(|e| self.bad(&task.at, e))?;
        }
        Ok(())
    }

    pub(super) fn bad(&self, at: &[u64], error: crate::ftl::FetchError) -> Error {
        self.space.page_error(&self.inner.record.name, at, error)
    }

    /// Brings units of a plain block into a block-sized buffer: what gathers, what is mapped, or fill.
    pub fn load(
        &self,
        at: &BlockAt,
        map: Option<&BlockMap>,
        gathered: Option<&Gathered>,
        units: Range<u32>,
        block: &mut [u8],
    ) -> Result<()> {
        let page = self.space.shape.page;
        self.by_place(map, gathered, units, &mut |units, run| {
            let here = units.start as usize * page;
            let bytes = &mut block[here..units.end as usize * page];
            match (gathered, run) {
                (_, Some(run)) => {
                    let owner = crate::flash::Owner { unit: run.unit as u16, ..self.space.owner(at) };
                    self.ftl.fetch(run, owner, bytes).map_err(|e| self.bad(at, e))?;
                }
                (Some(Gathered::Units(some)), None) if some.contains_key(&units.start) => {
                    bytes.copy_from_slice(&some[&units.start].bytes);
                }
                _ => self.fill_units(here, bytes),
            }
            Ok(())
        })
    }

    /// Cuts units of a plain block into parts that come from one place each: a unit that is buffered, a run of pages,
    /// or fill, both without a run.
    pub(super) fn by_place(
        &self,
        map: Option<&BlockMap>,
        gathered: Option<&Gathered>,
        units: Range<u32>,
        each: &mut dyn FnMut(Range<u32>, Option<Run>) -> Result<()>,
    ) -> Result<()> {
        let is_buffered = |unit: u32| matches!(gathered, Some(Gathered::Units(some)) if some.contains_key(&unit));
        let mut unit = units.start;
        while unit < units.end {
            if is_buffered(unit) {
                each(unit..unit + 1, None)?;
                unit += 1;
                continue;
            }
            let run = map.and_then(|m| m.covering(unit..unit + 1));
            // As many units as come from the same place.
            let limit = run.map_or(units.end, |r| r.end().min(units.end));
            let mut end = unit + 1;
            while end < limit && !is_buffered(end) && (run.is_some() || map.is_none_or(|m| m.page_of(end).is_none())) {
                end += 1;
            }
            each(unit..end, run.map(|run| Run { unit, count: end - unit, ppa: run.page_of(unit) }))?;
            unit = end;
        }
        Ok(())
    }

    /// Fills bytes of a block that begin at offset `here` with the fill value, whose phase depends on the offset.
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

    /// # Safety
    /// `to` must be writable along the task's loops.
    unsafe fn read_coded(
        &self,
        task: &Task<'_>,
        map: Option<&BlockMap>,
        gathered: Option<&Gathered>,
        kept: &Kept<'_>,
        to: *mut u8,
    ) -> Result<()> {
        let shape = &self.space.shape;
        if let Some(Gathered::Block(block)) = gathered {
            // SAFETY: the gathered block is whole; the destination by the caller's promise.
            unsafe { scatter(task, shape.item_bytes, kept.stream, block[task.in_block..].as_ptr(), to) };
            return Ok(());
        }
        let map = map.expect("a coded block is gathered or mapped here");
        with_scratch(shape.bytes, |scratch| {
            let wanted = self.wanted_of_coded(task)?;
            self.decode(&task.at, map, &wanted, scratch)?;
            // SAFETY: the scratch is a whole block; the destination by the caller's promise.
            unsafe { scatter(task, shape.item_bytes, kept.stream, scratch[task.in_block..].as_ptr(), to) };
            Ok(())
        })
    }

    /// The byte ranges of a coded block that a task touches: in order, apart.
    pub(super) fn wanted_of_coded(&self, task: &Task<'_>) -> Result<SmallVec<[Range<usize>; 8]>> {
        let shape = &self.space.shape;
        let mut wanted: SmallVec<[Range<usize>; 8]> = SmallVec::new();
        let frame_bytes = self.space.codec()?.spec().frame_bytes();
        task.touch(shape.item_bytes, frame_bytes, &mut |bytes| wanted.push(bytes));
        // Lists and points come in any order.
        wanted.sort_unstable_by_key(|r| r.start);
        wanted.dedup_by(|next, last| {
            let joins = next.start <= last.end + shape.page;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        Ok(wanted)
    }

    pub(super) fn without_holes(&self, at: &BlockAt, map: &BlockMap) -> Result<()> {
        let in_order = map.runs().scan(0, |next, r| (r.unit == *next).then(|| *next = r.end())).count();
        if in_order != map.runs().count() { Err(self.damaged(at, "its payload has holes")) } else { Ok(()) }
    }

    /// Decodes the frames of a coded block that hold these byte ranges (in order, apart), into a block-sized buffer.
    pub fn decode(&self, at: &BlockAt, map: &BlockMap, wanted: &[Range<usize>], block: &mut [u8]) -> Result<()> {
        let page = self.space.shape.page;
        let pages = map.pages() as u32;
        self.without_holes(at, map)?;
        if let Some(run) = map.covering(0..pages) {
            if let Some(payload) = self.ftl.view(run.ppa, pages) {
                let bring = |units: Range<u32>| {
                    let some = Run { unit: units.start, count: units.end - units.start, ppa: run.page_of(units.start) };
                    let owner = crate::flash::Owner { unit: units.start as u16, ..self.space.owner(at) };
                    let bytes = &payload[units.start as usize * page..units.end as usize * page];
                    self.ftl.verify(some, owner, bytes).map_err(|e| self.bad(at, e))
                };
                return self.decode_payload(
                    at,
                    payload.len(),
                    &mut |bytes| bring(bytes).map(|()| payload),
                    wanted,
                    block,
                );
            }
        }
        with_payload(pages as usize * page, |payload| {
            let mut here = UnitSet::default();
            here.clear(pages);
            let len = payload.len();
            self.decode_payload(
                at,
                len,
                &mut |units| {
                    for unit in units.clone().filter(|&u| !here.has(u)) {
                        let run = Run { unit, count: 1, ppa: map.page_of(unit).expect("no holes, checked above") };
                        let owner = crate::flash::Owner { unit: unit as u16, ..self.space.owner(at) };
                        let bytes = &mut payload[unit as usize * page..][..page];
                        self.ftl.fetch(run, owner, bytes).map_err(|e| self.bad(at, e))?;
                    }
                    here.add(units);
                    // SAFETY: the buffer outlives the decoding below, which looks at it between these calls only.
                    Ok(unsafe { std::slice::from_raw_parts(payload.as_ptr(), len) })
                },
                wanted,
                block,
            )
        })
    }

    /// Decodes from a payload whose units `bring` makes good.
    fn decode_payload<'p>(
        &self,
        at: &BlockAt,
        len: usize,
        bring: &mut dyn FnMut(Range<u32>) -> Result<&'p [u8]>,
        wanted: &[Range<usize>],
        block: &mut [u8],
    ) -> Result<()> {
        let page = self.space.shape.page;
        let codec = self.space.codec()?;
        let damaged = |what: String| self.damaged(at, &what);
        let mut bring = |bytes: Range<usize>| {
            if bytes.end > len {
                return Err(damaged("its payload is longer than its pages".to_owned()));
            }
            bring((bytes.start / page) as u32..bytes.end.div_ceil(page) as u32)
        };
        let key = Space::context_key(at);
        let payload = bring(0..codec.head_bytes())?;
        let table: FrameTable =
            codec.frame_table(payload, self.space.context(&key)).map_err(|e| damaged(e.to_string()))?;
        let mut done = 0;
        for raw in wanted {
            // Ranges come in order: a frame that an earlier range brought is not decoded again.
            let raw = raw.start.max(done.min(raw.end - 1))..raw.end;
            let frames = table.frames(raw.clone()).map_err(|e| damaged(e.to_string()))?;
            if table.raw_range(frames.clone()).end <= done {
                continue;
            }
            let payload = bring(table.payload_range(frames))?;
            let got = codec.decode_frames(&table, payload, 0, raw, block).map_err(|e| damaged(e.to_string()))?;
            done = got.end;
        }
        Ok(())
    }

    pub(super) fn damaged(&self, at: &[u64], what: &str) -> Error {
        let block = crate::error::Shape(at);
        Error::corrupt(format!("array {:?}, building block {block}: {what}", self.inner.record.name))
    }

    /// The pages that a task will need, and their records, as byte ranges of the medium.
    pub(super) fn pages_of(
        &self,
        task: &Task<'_>,
        map: &BlockMap,
        units: &mut UnitSet,
        see: &mut dyn FnMut(u64, u64, u64, u64),
    ) {
        let geometry = self.ftl.geometry();
        let page = u64::from(geometry.page_bytes);
        let mut tell = |run: Run| {
            let oob = u64::from(run.count) * crate::flash::geometry::OOB_BYTES;
            see(geometry.page_offset(run.ppa), u64::from(run.count) * page, geometry.oob_offset(run.ppa), oob);
        };
        if self.space.coded() {
            map.runs().for_each(tell);
            return;
        }
        self.touched(task, units);
        for range in units.ranges() {
            let mut from = range.start;
            while let Some(run) = map.next_run(from).filter(|r| r.unit < range.end) {
                let (start, end) = (run.unit.max(range.start), run.end().min(range.end));
                tell(Run { unit: start, count: end - start, ppa: run.page_of(start) });
                from = run.end();
            }
        }
    }
}

/// # Safety
/// `from` must be readable and `to` writable along the task's loops.
unsafe fn scatter(task: &Task<'_>, item_bytes: usize, stream: bool, from: *const u8, to: *mut u8) {
    let mut loops = task.loops.clone();
    let (left, run) = merge(&mut loops, item_bytes);
    // SAFETY: the caller's promise.
    unsafe { if stream { copy_streaming(&loops[..left], run, from, to) } else { copy(&loops[..left], run, from, to) } }
}
