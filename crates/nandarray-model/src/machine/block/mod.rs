//! Conventional requests: bytes of a linear address space, cut into logical pages, through page-mapped flash
//! management.
//!
//! ```text
//! read    translate -> map pages, if the map is cached -> page read -> DRAM -> link up
//! write   link down -> DRAM -> translate, allocate -> old page read, if only a part is written -> program
//!         with a write cache: link down -> DRAM -> cache (`cached`), from which pages take that way later
//! trim    forgets whole pages; flush: `flush`
//! ```
//!
//! A page that is written is in the controller's memory until its program has ended, and read from there. A write that
//! finds no free page waits for reclaim of its plane; one for which there will never be a page fails, and changes
//! nothing, unless a program of it had begun. A part of a page that is written over what cannot be read fails too: the
//! rest would be made up.
//!
//! | file | one idea |
//! | --- | --- |
//! | `mod` | the client: requests, their pages, and what follows from what |
//! | `cached` | the write cache in front |
//! | `flush` | what a flush waits for |
//! | `reclaim` | moving pages in the background |
//! | `programs` | programs of pages: done, failed, done elsewhere |
//!
//! The files below `mod` do not call it: they return what has happened, and the client acts on it.

mod cached;
mod flush;
mod programs;
mod reclaim;

use std::collections::VecDeque;

use cached::{Bytes, Cached, Next};
use flush::{Flushed, Flushes};
use programs::Programs;
use reclaim::{Reclaim, Room};

use super::clients::{Asker, Client, OperationEnded, Packed};
use super::fabric::{Fabric, Lent};
use super::host_io::{Io, IoEvent, Way};
use super::stages::Stage;
use crate::flash::{OpCause, OpOutcome, PageAddress};
use crate::ftl::cache::Hit;
use crate::ftl::{FtlError, FtlSetupError, MapOp, PageMapped, Urgency};
use crate::host::Direction;
use crate::workload::{Request, RequestOp};
use nandarray_sim::Ps;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it should.
    Success,
    /// It reached beyond the device (NVMe: LBA Out of Range).
    OutOfRange,
    /// No page was left to write to (NVMe: Capacity Exceeded).
    NoSpace,
    /// A page could not be read (NVMe: Unrecovered Read Error).
    Unreadable,
}

/// A request that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What was asked for.
    pub request: Request,
    /// When it was there, whether or not a queue had room.
    pub arrived: Ps,
    /// When the host had its answer.
    pub done: Ps,
    /// How it ended.
    pub status: Status,
}

/// An event of a conventional request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockEvent {
    /// All data of a written request is in the device.
    RequestData(u32),
    /// It is in DRAM, to be cut into pages.
    RequestCut(u32),
    /// A page's turn at the translator is over.
    Page(u32),
    /// A page that was read is in DRAM.
    PageUp(u32),
    /// It is with the host.
    PageDone(u32),
}

/// What waits for a flash operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A page of a request.
    Page(u32),
    /// A program, which knows what waits for it.
    Program(u32),
    /// A page that reclaim reads.
    Move(u32),
    /// A page that reclaim programs, by its plane: only behind a program.
    MoveTo(u32),
    /// A block that reclaim erases, by its plane.
    Erase(u32),
    /// Nothing.
    Nobody,
}

impl Packed for Wait {
    fn pack(self) -> (u8, u32) {
        match self {
            Self::Page(n) => (0, n),
            Self::Program(n) => (1, n),
            Self::Move(n) => (2, n),
            Self::MoveTo(n) => (3, n),
            Self::Erase(n) => (4, n),
            Self::Nobody => (5, 0),
        }
    }

    fn unpack(kind: u8, number: u32) -> Self {
        match kind {
            0 => Self::Page(number),
            1 => Self::Program(number),
            2 => Self::Move(number),
            3 => Self::MoveTo(number),
            4 => Self::Erase(number),
            5 => Self::Nobody,
            other => panic!("an operation of kind {other}"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    request: Request,
    arrived: Ps,
    status: Status,
}

/// What a page waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The translator, then for what the map needs.
    Translating,
    /// What a cached map needs for it.
    Mapping,
    /// A page of flash, to be read for the host.
    Reading,
    /// Room in the write cache, or, without early completion, its way from there into flash.
    Caching,
    /// Its old content, of which a part stays.
    Merging,
    /// A free page.
    Stalled,
    /// Its program.
    Programming,
}

/// Who is told when a page is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageOf {
    /// An io whose host waits.
    Io(u32),
    /// The write cache, which writes it to flash.
    Cache,
}

/// A logical page's share of a request, or a page on its way from the cache.
#[derive(Debug)]
struct Page {
    of: PageOf,
    lpa: u64,
    /// First byte within the page.
    from: u32,
    bytes: u32,
    ahead: u32,
    write: bool,
    whole: bool,
    at: At,
    /// How its way from the cache ended.
    status: Status,
    /// Operations under way.
    left: u32,
    /// Where it is read; of a write, where what it is merged with lay.
    place: Option<PageAddress>,
    /// Map operations still to be done first, last one first.
    map_ops: Vec<MapOp>,
}

impl Page {
    fn new(of: PageOf, lpa: u64, from: u32, bytes: u32) -> Self {
        Self {
            of,
            lpa,
            from,
            bytes,
            ahead: 0,
            write: false,
            whole: false,
            at: At::Translating,
            status: Status::Success,
            left: 0,
            place: None,
            map_ops: Vec::new(),
        }
    }
}

/// Conventional requests of one device.
#[derive(Debug)]
pub(crate) struct Block {
    programs: Programs,
    reclaim: Reclaim,
    flushes: Flushes,
    cached: Option<Cached>,
    asked: slab::Slab<Asked>,
    pages: slab::Slab<Page>,
    stalled: VecDeque<u32>,
    ended: VecDeque<Ended>,
}

impl Client for Block {
    type Event = BlockEvent;
    type Waiting = Wait;
    /// A request.
    type Asker = u32;

    fn happened(&mut self, lent: &mut Lent<'_>, now: Ps, event: BlockEvent) {
        match event {
            BlockEvent::RequestData(io) => self.request_data(lent, now, io),
            BlockEvent::RequestCut(io) => self.request_cut(lent, now, io),
            BlockEvent::Page(part) => self.page_translated(lent, now, part),
            BlockEvent::PageUp(part) => self.page_leaves(lent, now, part),
            BlockEvent::PageDone(part) => self.page_done(lent, now, part),
        }
    }

    fn operation_ended(&mut self, lent: &mut Lent<'_>, now: Ps, waiting: Wait, ended: OperationEnded) {
        match waiting {
            Wait::Page(part) => self.page_operation_ended(lent, now, part, ended.outcome),
            Wait::Program(program) => self.program_over(lent, now, program, ended.outcome),
            Wait::Move(slot) => {
                if let Some(plane) = self.reclaim.read_over(&mut self.programs, lent.fabric, now, slot, ended.outcome) {
                    self.move_over(lent, now, plane);
                }
            }
            Wait::Erase(plane) => self.block_erased(lent, now, plane, ended.outcome),
            Wait::MoveTo(_) | Wait::Nobody => {}
        }
    }

    /// Planes whose reclaim gave way go on if nothing waits for their dies any more.
    fn flash_moved(&mut self, lent: &mut Lent<'_>, now: Ps) {
        let mut i = 0;
        while let Some(plane) = self.reclaim.resumes(lent.fabric, &mut i) {
            self.go_on_reclaiming(lent, now, plane);
        }
    }

    fn decoded(&mut self, lent: &mut Lent<'_>, now: Ps, io: u32, asked: u32) {
        self.request_decoded(lent, now, io, asked);
    }

    fn answered(&mut self, _lent: &mut Lent<'_>, now: Ps, asked: u32) {
        let Asked { request, arrived, status } = self.asked.remove(asked as usize);
        self.ended.push_back(Ended { request, arrived, done: now, status });
    }

    fn is_still(&self) -> bool {
        self.pages.is_empty() && self.reclaim.is_still() && self.programs.is_still()
    }

    fn check_at_rest(&self) {
        assert!(self.asked.is_empty() && self.pages.is_empty(), "a request was left on its way");
        assert!(self.stalled.is_empty(), "something still waits for reclaim");
        self.programs.check_at_rest();
        self.reclaim.check_at_rest();
        self.flushes.check_at_rest();
        if let Some(cached) = &self.cached {
            cached.check_at_rest();
        }
    }

    fn code(event: BlockEvent) -> (u64, u32) {
        match event {
            BlockEvent::RequestData(io) => (15, io),
            BlockEvent::RequestCut(io) => (16, io),
            BlockEvent::Page(part) => (17, part),
            BlockEvent::PageUp(part) => (18, part),
            BlockEvent::PageDone(part) => (19, part),
        }
    }
}

impl Block {
    /// Page-mapped flash management, empty; requests may come then.
    ///
    /// # Errors
    /// If the description leaves nothing to manage.
    pub(super) fn new(fabric: &Fabric, seed: u64) -> Result<Self, FtlSetupError> {
        let bad = |die, plane: u16, block| fabric.flash.is_factory_bad(die, u32::from(plane), block);
        let ftl = PageMapped::new(&fabric.description, seed, &bad)?;
        Ok(Self {
            reclaim: Reclaim::new(ftl.planes() as usize),
            programs: Programs::new(ftl),
            flushes: Flushes::default(),
            cached: Cached::new(&fabric.description),
            asked: slab::Slab::new(),
            pages: slab::Slab::new(),
            stalled: VecDeque::new(),
            ended: VecDeque::new(),
        })
    }

    /// Page-mapped flash management.
    pub(super) fn ftl(&self) -> &PageMapped {
        &self.programs.ftl
    }

    /// The same, to be preconditioned.
    pub(super) fn ftl_mut(&mut self) -> &mut PageMapped {
        &mut self.programs.ftl
    }

    /// Bytes that requests can address.
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.ftl().capacity_pages() * u64::from(self.ftl().page_bytes())
    }

    /// Whether each plane's reclaim is urgent, as the flash was told.
    #[cfg(test)]
    pub(super) fn told_urgent(&self) -> &[bool] {
        self.reclaim.told_urgent()
    }

    /// What waits, and for what, for a reader who looks for what never ends.
    pub(super) fn waiting(&self) -> String {
        let pages: Vec<_> = self.pages.iter().map(|(_, p)| (p.lpa, p.at, p.of)).collect();
        let (stalled, flushes, reclaim) = (&self.stalled, &self.flushes, self.reclaim.waiting());
        format!("pages {pages:?}, stalled {stalled:?}, {reclaim}, {flushes:?}")
    }

    /// The next request that has ended and was not asked for yet.
    pub(super) fn take_ended(&mut self) -> Option<Ended> {
        self.ended.pop_front()
    }

    /// The host gives a request, now.
    pub(super) fn give(&mut self, lent: &mut Lent<'_>, now: Ps, request: Request) {
        let asked = self.asked.insert(Asked { request, arrived: now, status: Status::Success }) as u32;
        let way = match request.op {
            RequestOp::Read => Way::Read,
            RequestOp::Write => Way::Write,
            RequestOp::Trim | RequestOp::Flush => Way::Neither,
        };
        let queue = request.stream % lent.fabric.description.host.queues;
        lent.io.submit(lent.fabric, now, Io { asker: Asker::Block(asked), way, queue, submitted: now, parts_left: 1 });
    }

    fn request_decoded(&mut self, lent: &mut Lent<'_>, now: Ps, io: u32, asked: u32) {
        let request = self.asked[asked as usize].request;
        let capacity = self.capacity_bytes();
        if request.offset_bytes.checked_add(request.bytes).is_none_or(|end| end > capacity) {
            self.asked[asked as usize].status = Status::OutOfRange;
            return lent.io_progress(now, io);
        }
        match request.op {
            RequestOp::Read => self.cut(lent, now, io, &request),
            RequestOp::Write => {
                let sent = lent.fabric.send(now, Direction::Down, request.bytes, "data");
                lent.push(sent.end, BlockEvent::RequestData(io));
            }
            RequestOp::Trim => {
                let page = u64::from(lent.fabric.description.geometry.page_bytes);
                let (first, end) = (request.offset_bytes.div_ceil(page), (request.offset_bytes + request.bytes) / page);
                if first < end {
                    self.trim_pages(lent, now, first, end);
                }
                let t_translate = lent.fabric.description.controller.t_translate;
                let at = lent.fabric.run_stage(Stage::Translate, now, t_translate);
                if at == now { lent.io_progress(now, io) } else { lent.fabric.push(at, IoEvent::Progress(io)) }
            }
            RequestOp::Flush => {
                let ticket = self.cached.as_ref().map(|c| c.cache.flush());
                self.flushes.begin(io, ticket);
                self.go_on_draining(lent, now);
                self.go_on_flushing(lent, now);
            }
        }
    }

    fn trim_pages(&mut self, lent: &mut Lent<'_>, now: Ps, first: u64, end: u64) {
        if let Some(cached) = &mut self.cached {
            for part in cached.trim(first, end) {
                self.page_done(lent, now, part);
            }
        }
        let mut map_ops = std::mem::take(&mut self.programs.map_ops);
        let trimmed = self.programs.ftl.trim(first, end - first, &mut map_ops);
        debug_assert!(trimmed.is_ok(), "the range was looked at");
        if !self.programs.lost.is_empty() {
            for lpa in first..end {
                self.programs.lost.remove(&lpa);
            }
        }
        for &op in &map_ops {
            self.programs.issue_map(lent.fabric, now, op, Wait::Nobody);
        }
        map_ops.clear();
        self.programs.map_ops = map_ops;
        // There may be room now for what found none.
        self.retry_stalled(lent, now);
    }

    fn request_of(&self, lent: &Lent<'_>, io: u32) -> u32 {
        let Asker::Block(asked) = lent.io.asker(io) else { unreachable!("a request's io") };
        asked
    }

    /// All data of a write is with the device.
    fn request_data(&mut self, lent: &mut Lent<'_>, now: Ps, io: u32) {
        let request = self.asked[self.request_of(lent, io) as usize].request;
        let there = lent.fabric.through_dram(now, request.bytes, "data in", OpCause::Host);
        if there == now {
            self.cut(lent, now, io, &request);
        } else {
            lent.push(there, BlockEvent::RequestCut(io));
        }
    }

    fn request_cut(&mut self, lent: &mut Lent<'_>, now: Ps, io: u32) {
        let request = self.asked[self.request_of(lent, io) as usize].request;
        self.cut(lent, now, io, &request);
    }

    /// Cuts a request into its pages.
    fn cut(&mut self, lent: &mut Lent<'_>, now: Ps, io: u32, request: &Request) {
        let page = u64::from(lent.fabric.description.geometry.page_bytes);
        let (start, end) = (request.offset_bytes, request.offset_bytes + request.bytes);
        let (first, last) = (start / page, if request.bytes == 0 { start / page } else { end.div_ceil(page) });
        let write = request.op == RequestOp::Write;
        lent.io.add_parts(io, (last - first) as u32);
        for lpa in first..last {
            let from = (start.max(lpa * page) - lpa * page) as u32;
            let bytes = (end.min((lpa + 1) * page) - lpa * page) as u32 - from;
            let ahead = (last - lpa - 1) as u32;
            let of = Page::new(PageOf::Io(io), lpa, from, bytes);
            let part = Page { ahead, write, whole: u64::from(bytes) == page, ..of };
            let part = self.pages.insert(part) as u32;
            let page_bytes = Bytes { lpa, from, bytes };
            match &mut self.cached {
                None => self.translate(lent, now, part, now),
                Some(cached) if write => {
                    self.pages[part as usize].at = At::Caching;
                    if cached.offer(part, page_bytes) {
                        self.page_done(lent, now, part);
                    }
                }
                Some(cached) => match cached.cache.read(lpa, from, bytes) {
                    Hit::All => self.page_up(lent, now, part, 1),
                    _ => self.translate(lent, now, part, now),
                },
            }
        }
        lent.io_progress(now, io);
        if write {
            self.go_on_draining(lent, now);
        }
    }

    /// A page comes to the translator, and one that is written to the allocator; it goes on when they and what else it
    /// waits for are done.
    fn translate(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32, ready: Ps) {
        let write = self.pages[part as usize].write;
        let c = &lent.fabric.description.controller;
        let (t_translate, t_allocate) = (c.t_translate, c.t_allocate);
        let mut at = lent.fabric.run_stage(Stage::Translate, now, t_translate);
        if write {
            at = lent.fabric.run_stage(Stage::Allocate, at, t_allocate);
        }
        let at = at.max(ready);
        if at == now { self.page_translated(lent, now, part) } else { lent.push(at, BlockEvent::Page(part)) }
    }

    fn page_translated(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let p = &mut self.pages[part as usize];
        if p.write {
            return self.merge(lent, now, part);
        }
        let mut map_ops = std::mem::take(&mut self.programs.map_ops);
        p.place = self.programs.ftl.read(p.lpa, p.ahead, &mut map_ops).expect("the range was looked at");
        p.at = At::Mapping;
        p.map_ops.extend(map_ops.iter().rev().filter(|op| matches!(op, MapOp::Read(_))));
        // Pages of a block are programmed in the order in which they were given out: at once.
        for op in map_ops.drain(..).filter(|op| matches!(op, MapOp::Program(_))) {
            p.left += 1;
            self.programs.issue_map(lent.fabric, now, op, Wait::Page(part));
        }
        let left = p.left;
        self.programs.map_ops = map_ops;
        if left == 0 {
            self.read_next(lent, now, part);
        }
    }

    /// A page that is written comes to what it has to be merged with.
    fn merge(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let p = &mut self.pages[part as usize];
        if p.whole {
            return self.write_page(lent, now, part);
        }
        if p.of != PageOf::Cache && self.programs.is_lost(p.lpa) {
            self.fail(lent, part, Status::Unreadable);
            return self.page_done(lent, now, part);
        }
        p.place = self.programs.ftl.place_of(p.lpa).expect("the range was looked at");
        match p.place {
            Some(place) if !self.programs.is_in_memory(place) => {
                (p.at, p.left) = (At::Merging, 1);
                let bytes = lent.fabric.description.geometry.page_bytes;
                self.programs.read(lent.fabric, now, OpCause::Host, place, bytes, Wait::Page(part));
            }
            _ => self.write_page(lent, now, part),
        }
    }

    /// The next thing for a page to be read: what the map needs, one after the other, then the page itself.
    fn read_next(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let p = &mut self.pages[part as usize];
        if let Some(op) = p.map_ops.pop() {
            p.left = 1;
            return self.programs.issue_map(lent.fabric, now, op, Wait::Page(part));
        }
        let (place, bytes, lpa) = (p.place.take(), p.bytes, p.lpa);
        if self.programs.is_lost(lpa) {
            self.fail(lent, part, Status::Unreadable);
        }
        match place {
            Some(place) if !self.programs.is_in_memory(place) => {
                let p = &mut self.pages[part as usize];
                (p.left, p.at) = (1, At::Reading);
                self.programs.read(lent.fabric, now, OpCause::Host, place, bytes, Wait::Page(part));
            }
            // Never written, or still in the controller's memory.
            _ => self.page_up(lent, now, part, 1),
        }
    }

    /// Finds a page for what is written.
    fn write_page(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let p = &mut self.pages[part as usize];
        let (lpa, ahead, whole) = (p.lpa, p.ahead, p.whole);
        if p.of == PageOf::Cache && self.cached.as_ref().is_some_and(|c| !c.is_wanted(lpa)) {
            // Trimmed on its way.
            return self.page_done(lent, now, part);
        }
        let programs = &mut self.programs;
        if !whole {
            let old = programs.ftl.place_of(lpa).expect("the range was looked at");
            if old != p.place && old.is_some_and(|place| !programs.is_in_memory(place)) {
                // Another write to the page, or reclaim, was faster: what it left has to be merged.
                return self.merge(lent, now, part);
            }
        }
        let mut map_ops = std::mem::take(&mut programs.map_ops);
        let flash = &lent.fabric.flash;
        let written = programs.ftl.write(lpa, true, ahead, |die| u64::from(flash.queued(die)), &mut map_ops);
        match written {
            Ok(written) => {
                p.at = At::Programming;
                p.left = 1 + map_ops.len() as u32;
                if whole && !programs.lost.is_empty() {
                    programs.lost.remove(&lpa);
                }
                for &op in &map_ops {
                    programs.issue_map(lent.fabric, now, op, Wait::Page(part));
                }
                programs.program(lent.fabric, now, OpCause::Host, written.place, Wait::Page(part));
                if written.reclaim != Urgency::None {
                    self.go_on_reclaiming(lent, now, written.plane);
                }
            }
            Err(FtlError::NotNow { plane }) => {
                p.at = At::Stalled;
                self.stalled.push_back(part);
                self.go_on_reclaiming(lent, now, plane);
            }
            Err(e) => {
                debug_assert!(matches!(e, FtlError::NoSpace { .. }), "the range was looked at: {e}");
                self.fail(lent, part, Status::NoSpace);
                self.page_done(lent, now, part);
            }
        }
        map_ops.clear();
        self.programs.map_ops = map_ops;
    }

    /// Tries again what found no free page.
    fn retry_stalled(&mut self, lent: &mut Lent<'_>, now: Ps) {
        self.programs.retry_homeless(lent.fabric, now);
        if let Some(cached) = &mut self.cached {
            cached.there_may_be_room();
        }
        for _ in 0..self.stalled.len() {
            let Some(part) = self.stalled.pop_front() else { break };
            self.write_page(lent, now, part);
        }
        self.go_on_draining(lent, now);
    }

    fn fail(&mut self, lent: &Lent<'_>, part: u32, status: Status) {
        let p = &mut self.pages[part as usize];
        p.status = status;
        if let PageOf::Io(io) = p.of {
            let asked = self.request_of(lent, io);
            self.asked[asked as usize].status = status;
        }
    }

    fn page_operation_ended(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32, outcome: OpOutcome) {
        let p = &mut self.pages[part as usize];
        p.left -= 1;
        let (at, of, left, lpa) = (p.at, p.of, p.left, p.lpa);
        let unreadable = outcome == OpOutcome::Uncorrectable && matches!(at, At::Mapping | At::Reading | At::Merging);
        if unreadable {
            if at == At::Merging && of == PageOf::Cache {
                // Its host may know already that it is written: what there is of it is kept.
                self.programs.lost.insert(lpa);
            }
            self.fail(lent, part, Status::Unreadable);
        }
        if left > 0 {
            return;
        }
        match at {
            At::Mapping => self.read_next(lent, now, part),
            At::Reading => {
                let crossings = u64::from(lent.fabric.description.dram.read_crossings);
                self.page_up(lent, now, part, crossings);
            }
            At::Merging if unreadable && of != PageOf::Cache => self.page_done(lent, now, part),
            At::Merging => {
                let bytes = u64::from(lent.fabric.description.geometry.page_bytes);
                lent.fabric.through_dram(now, bytes, "old page", OpCause::Host);
                self.write_page(lent, now, part);
            }
            At::Programming => self.page_done(lent, now, part),
            At::Translating | At::Caching | At::Stalled => unreachable!("nothing is under way for such a page"),
        }
    }

    /// A page's bytes go to the host, `crossings` times through DRAM: in from the flash, out to the link, or past it.
    fn page_up(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32, crossings: u64) {
        if crossings == 0 {
            return self.page_leaves(lent, now, part);
        }
        let bytes = u64::from(self.pages[part as usize].bytes);
        let there = lent.fabric.through_dram(now, bytes * crossings, "page", OpCause::Host);
        if there == now { self.page_leaves(lent, now, part) } else { lent.push(there, BlockEvent::PageUp(part)) }
    }

    fn page_leaves(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let p = &self.pages[part as usize];
        let (PageOf::Io(io), bytes) = (p.of, u64::from(p.bytes)) else { unreachable!("what is read is for the host") };
        let sent = lent.fabric.send(now, Direction::Up, bytes, "data");
        if lent.io.parts_left(io) == 1 && lent.fabric.description.controller.t_complete == Ps::ZERO {
            // The last one: the completion goes right behind it.
            self.pages.remove(part as usize);
            return lent.io.finished_with_data(lent.fabric, now, io);
        }
        lent.push(sent.end, BlockEvent::PageDone(part));
    }

    fn page_done(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let page = self.pages.remove(part as usize);
        match page.of {
            PageOf::Io(io) => lent.io_progress(now, io),
            PageOf::Cache => self.drained(lent, now, page.lpa, page.status),
        }
    }

    // The write cache and flushes
    // ---------------------------------------------------------------------------------------

    /// Lets the cache drain, take what waits for room, and flushes see what became of it.
    fn go_on_draining(&mut self, lent: &mut Lent<'_>, now: Ps) {
        if !self.cached.as_mut().is_some_and(Cached::begin) {
            return;
        }
        loop {
            let flushing = self.flushes.drains();
            let (pages, ftl) = (&self.pages, &self.programs.ftl);
            let bytes_of = |part: u32| {
                let p = &pages[part as usize];
                Bytes { lpa: p.lpa, from: p.from, bytes: p.bytes }
            };
            let cached = self.cached.as_mut().expect("it was there");
            match cached.next(flushing, bytes_of, || ftl.word_lines_to_fill() as usize) {
                Next::Done(part) => self.page_done(lent, now, part),
                Next::Refused(parts) => {
                    for part in parts {
                        self.fail(lent, part, Status::NoSpace);
                        self.page_done(lent, now, part);
                    }
                }
                Next::Drain(drain) => {
                    let page_bytes = lent.fabric.description.geometry.page_bytes;
                    let page = Page::new(PageOf::Cache, drain.lpa, 0, page_bytes);
                    let part = self.pages.insert(Page { write: true, whole: drain.whole, ..page }) as u32;
                    let bytes = u64::from(drain.bytes);
                    let there = lent.fabric.through_dram(now, bytes, "cached page", OpCause::Host);
                    self.translate(lent, now, part, there);
                }
                Next::Nothing => break,
            }
        }
        self.go_on_flushing(lent, now);
    }

    /// A page's way from the cache to flash has ended.
    fn drained(&mut self, lent: &mut Lent<'_>, now: Ps, lpa: u64, status: Status) {
        let cached = self.cached.as_mut().expect("a page from the cache");
        for part in cached.drained(lpa, status == Status::NoSpace) {
            if status != Status::Success {
                self.fail(lent, part, status);
            }
            self.page_done(lent, now, part);
        }
        self.go_on_draining(lent, now);
    }

    /// Lets flushes go on, in order.
    fn go_on_flushing(&mut self, lent: &mut Lent<'_>, now: Ps) {
        while let Some(Flushed { io, status }) =
            self.flushes.go_on(&mut self.programs, self.cached.as_ref(), lent.fabric, now)
        {
            let asked = self.request_of(lent, io);
            self.asked[asked as usize].status = status;
            lent.io_progress(now, io);
        }
    }

    // Programs and reclaim
    // ------------------------------------------------------------------------------------------------

    fn program_over(&mut self, lent: &mut Lent<'_>, now: Ps, program: u32, outcome: OpOutcome) {
        let over = self.programs.over(lent.fabric, now, program, outcome);
        if let Some(part) = over.homeless {
            self.fail(lent, part, Status::NoSpace);
        }
        if let Some(plane) = over.failed_plane {
            self.go_on_reclaiming(lent, now, plane);
        }
        match over.waiting {
            Some(Wait::Page(part)) => self.page_operation_ended(lent, now, part, OpOutcome::Done),
            Some(Wait::MoveTo(plane)) => self.move_over(lent, now, plane),
            _ => {}
        }
        self.programs.epochs.ended(over.epoch);
        self.go_on_flushing(lent, now);
    }

    /// Lets reclaim of a plane go on as far as it may.
    fn go_on_reclaiming(&mut self, lent: &mut Lent<'_>, now: Ps, plane: u32) {
        while self.reclaim.go_on(&mut self.programs, lent.fabric, now, plane) == Room::Perhaps {
            self.retry_stalled(lent, now);
        }
    }

    /// A moved page is where it should be, or stays where it is.
    fn move_over(&mut self, lent: &mut Lent<'_>, now: Ps, plane: u32) {
        self.reclaim.move_over(plane);
        self.go_on_reclaiming(lent, now, plane);
        self.retry_stalled(lent, now);
    }

    /// A victim was erased, or is bad.
    fn block_erased(&mut self, lent: &mut Lent<'_>, now: Ps, plane: u32, outcome: OpOutcome) {
        self.reclaim.erased(&mut self.programs, lent.fabric, plane, outcome);
        self.retry_stalled(lent, now);
        if self.programs.ftl.urgency(plane) != Urgency::None {
            self.go_on_reclaiming(lent, now, plane);
        }
    }
}
