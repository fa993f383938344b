//! Conventional requests: bytes of a linear address space, cut into logical pages, through page-mapped flash management.
//!
//! ```text
//! read    translate -> map pages, if the map is cached -> page read -> DRAM -> link up
//! write   link down -> DRAM -> translate, allocate -> old page read, if only a part is written -> program
//!         with a write cache: link down -> DRAM -> cache (`cached`), from which pages take that way later
//! trim    forgets whole pages; flush: `flush`
//! ```
//!
//! A page that is written is in the controller's memory until its program has ended, and read from there. A write that finds no
//! free page waits for reclaim of its plane; one for which there will never be a page fails, and changes nothing, unless a
//! program of it had begun. A part of a page that is written over what cannot be read fails too: the rest would be made up.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use super::cached::Cached;
use super::flush::Flushes;
use super::io::{For, Io, Way};
use super::program::Program;
use super::{Event, Machine, Stage, Waiting};
use crate::flash::{Cause, Op, Outcome, Place};
use crate::ftl::cache::Hit;
use crate::ftl::{FtlError, FtlSetupError, MapOp, PageMapped, Urgency};
use crate::host::Direction;
use crate::time::Ps;
use crate::workload::{Request, RequestOp};

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

#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    request: Request,
    arrived: Ps,
    status: Status,
}

/// What a page waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
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
pub(super) enum PageOf {
    /// An io whose host waits.
    Io(u32),
    /// The write cache, which writes it to flash.
    Cache,
}

/// A logical page's share of a request, or a page on its way from the cache.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) of: PageOf,
    pub(super) lpa: u64,
    /// First byte within the page.
    pub(super) from: u32,
    pub(super) bytes: u32,
    pub(super) ahead: u32,
    pub(super) write: bool,
    pub(super) whole: bool,
    pub(super) at: At,
    /// How its way from the cache ended.
    pub(super) status: Status,
    /// Operations under way.
    left: u32,
    /// Where it is read; of a write, where what it is merged with lay.
    place: Option<Place>,
    /// Map operations still to be done first, last one first.
    map_ops: Vec<MapOp>,
}

impl Page {
    pub(super) fn new(of: PageOf, lpa: u64, from: u32, bytes: u32) -> Self {
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

/// What conventional requests share.
#[derive(Debug)]
pub(super) struct BlockState {
    pub(super) ftl: PageMapped,
    asked: slab::Slab<Asked>,
    pub(super) pages: slab::Slab<Page>,
    pub(super) under_way: slab::Slab<Program>,
    pub(super) moves: slab::Slab<super::reclaim::UnderWay>,
    /// Pages whose data is in the controller until their programs end; how many programs each waits for.
    pub(super) writing: FxHashMap<Place, u32>,
    /// Programs that failed and for which there was no other place: their data stays in the controller.
    pub(super) homeless: Vec<(Place, Cause)>,
    /// Logical pages whose content was lost when it was moved or merged; they cannot be read until they are written whole.
    pub(super) lost: FxHashSet<u64>,
    stalled: VecDeque<u32>,
    pub(super) flushes: Flushes,
    pub(super) cached: Option<Cached>,
    pub(super) moving: Vec<u16>,
    pub(super) erasing: Vec<Option<Place>>,
    /// Planes whose reclaim gave way, and whether each is among them.
    pub(super) postponed: Vec<u32>,
    pub(super) is_postponed: Vec<bool>,
    /// Whether a plane's reclaim is urgent, as the flash was told.
    pub(super) is_urgent: Vec<bool>,
    pub(super) map_ops: Vec<MapOp>,
    ended: VecDeque<Ended>,
}

impl BlockState {
    fn new(ftl: PageMapped, cached: Option<Cached>) -> Self {
        let planes = ftl.planes() as usize;
        Self {
            ftl,
            asked: slab::Slab::new(),
            pages: slab::Slab::new(),
            under_way: slab::Slab::new(),
            moves: slab::Slab::new(),
            writing: FxHashMap::default(),
            homeless: Vec::new(),
            lost: FxHashSet::default(),
            stalled: VecDeque::new(),
            flushes: Flushes::default(),
            cached,
            moving: vec![0; planes],
            erasing: vec![None; planes],
            postponed: Vec::new(),
            is_postponed: vec![false; planes],
            is_urgent: vec![false; planes],
            map_ops: Vec::new(),
            ended: VecDeque::new(),
        }
    }

    /// What waits, and for what: for who finds that it never ends.
    pub(super) fn waiting(&self) -> String {
        let pages: Vec<_> = self.pages.iter().map(|(_, p)| (p.lpa, p.at, p.of)).collect();
        let moving: Vec<_> = self.moving.iter().enumerate().filter(|m| *m.1 > 0).collect();
        let (stalled, postponed, flushes) = (&self.stalled, &self.postponed, &self.flushes);
        format!("pages {pages:?}, stalled {stalled:?}, postponed {postponed:?}, moving {moving:?}, {flushes:?}")
    }

    /// Whether nothing is on its way to the flash, in it or from it.
    pub(super) fn is_still(&self) -> bool {
        self.pages.is_empty() && self.moves.is_empty() && self.under_way.is_empty()
    }

    /// That nothing is on its way.
    ///
    /// # Panics
    /// If something is.
    pub(super) fn check_at_rest(&self) {
        assert!(self.asked.is_empty() && self.pages.is_empty(), "a request was left on its way");
        assert!(self.stalled.is_empty() && self.postponed.is_empty(), "something still waits for reclaim");
        assert!(self.under_way.is_empty() && self.moves.is_empty(), "a program or a move was left on its way");
        assert_eq!(self.writing.len(), self.homeless.len(), "pages in memory and programs that found no place");
        self.flushes.check_at_rest();
        if let Some(cached) = &self.cached {
            cached.check_at_rest();
        }
    }
}

impl Machine {
    /// Gives the device page-mapped flash management, empty; requests may come then.
    ///
    /// # Errors
    /// If the description leaves nothing to manage.
    pub fn attach_blocks(&mut self, seed: u64) -> Result<(), FtlSetupError> {
        let bad = |die, plane: u16, block| self.flash.is_factory_bad(die, u32::from(plane), block);
        let ftl = PageMapped::new(&self.description, seed, &bad)?;
        let cached = Cached::new(&self.description);
        self.block = Some(Box::new(BlockState::new(ftl, cached)));
        self.space.backlog.resize(self.description.host.queues as usize, VecDeque::new());
        Ok(())
    }

    /// Page-mapped flash management, for preconditioning and reports.
    ///
    /// # Panics
    /// If the device has none.
    pub fn ftl(&mut self) -> &mut PageMapped {
        &mut self.blocks().ftl
    }

    pub(super) fn blocks(&mut self) -> &mut BlockState {
        self.block.as_mut().expect("a device with page-mapped flash management")
    }

    /// Bytes that requests can address.
    pub fn capacity_bytes(&mut self) -> u64 {
        let ftl = self.ftl();
        ftl.capacity_pages() * u64::from(ftl.page_bytes())
    }

    /// The host gives a request, now.
    pub(super) fn give(&mut self, now: Ps, request: Request) {
        let asked = self.blocks().asked.insert(Asked { request, arrived: now, status: Status::Success }) as u32;
        let way = match request.op {
            RequestOp::Read => Way::Read,
            RequestOp::Write => Way::Write,
            RequestOp::Trim | RequestOp::Flush => Way::Neither,
        };
        let queue = request.stream % self.description.host.queues;
        self.submit_io(now, Io { asked_by: For::Request(asked), way, queue, submitted: now, parts_left: 1 });
    }

    /// The next request that has ended and was not asked for yet.
    pub(super) fn take_ended(&mut self) -> Option<Ended> {
        self.blocks().ended.pop_front()
    }

    pub(super) fn request_decoded(&mut self, now: Ps, io: u32, asked: u32) {
        let request = self.blocks().asked[asked as usize].request;
        let capacity = self.capacity_bytes();
        if request.offset_bytes.checked_add(request.bytes).is_none_or(|end| end > capacity) {
            self.blocks().asked[asked as usize].status = Status::OutOfRange;
            return self.io_progress(now, io);
        }
        match request.op {
            RequestOp::Read => self.cut(now, io, &request),
            RequestOp::Write => {
                let sent = self.send(now, Direction::Down, request.bytes, "data");
                self.events.push(sent.end, Event::RequestData(io));
            }
            RequestOp::Trim => {
                let page = u64::from(self.description.geometry.page_bytes);
                let (first, end) = (request.offset_bytes.div_ceil(page), (request.offset_bytes + request.bytes) / page);
                if first < end {
                    self.trim_pages(now, first, end);
                }
                let t_translate = self.description.controller.t_translate;
                let at = self.stages.run(Stage::Translate, now, t_translate, Cause::Host, &mut self.spans);
                if at == now { self.io_progress(now, io) } else { self.events.push(at, Event::Progress(io)) }
            }
            RequestOp::Flush => self.flush(now, io),
        }
    }

    fn trim_pages(&mut self, now: Ps, first: u64, end: u64) {
        self.trim_cached(now, first, end);
        let mut map_ops = std::mem::take(&mut self.blocks().map_ops);
        let blocks = self.blocks();
        let trimmed = blocks.ftl.trim(first, end - first, &mut map_ops);
        debug_assert!(trimmed.is_ok(), "the range was looked at");
        if !blocks.lost.is_empty() {
            for lpa in first..end {
                blocks.lost.remove(&lpa);
            }
        }
        for &op in &map_ops {
            self.issue_map(now, op, Waiting::Nobody);
        }
        map_ops.clear();
        self.blocks().map_ops = map_ops;
        // There may be room now for what found none.
        self.retry_stalled(now);
    }

    /// All data of a write is with the device.
    pub(super) fn request_data(&mut self, now: Ps, io: u32) {
        let For::Request(asked) = self.ios[io as usize].asked_by else { unreachable!("a request's data") };
        let request = self.blocks().asked[asked as usize].request;
        let there = self.through_dram(now, request.bytes, "data in", Cause::Host);
        if there == now { self.cut(now, io, &request) } else { self.events.push(there, Event::RequestCut(io)) }
    }

    pub(super) fn request_cut(&mut self, now: Ps, io: u32) {
        let For::Request(asked) = self.ios[io as usize].asked_by else { unreachable!("a request's data") };
        let request = self.blocks().asked[asked as usize].request;
        self.cut(now, io, &request);
    }

    /// Cuts a request into its pages.
    fn cut(&mut self, now: Ps, io: u32, request: &Request) {
        let page = u64::from(self.description.geometry.page_bytes);
        let (start, end) = (request.offset_bytes, request.offset_bytes + request.bytes);
        let (first, last) = (start / page, if request.bytes == 0 { start / page } else { end.div_ceil(page) });
        let write = request.op == RequestOp::Write;
        self.ios[io as usize].parts_left += (last - first) as u32;
        let cached = self.blocks().cached.is_some();
        for lpa in first..last {
            let from = start.max(lpa * page) - lpa * page;
            let bytes = end.min((lpa + 1) * page) - lpa * page - from;
            let ahead = (last - lpa - 1) as u32;
            let of = Page::new(PageOf::Io(io), lpa, from as u32, bytes as u32);
            let part = Page { ahead, write, whole: bytes == page, ..of };
            let part = self.blocks().pages.insert(part) as u32;
            if !cached {
                self.translate(now, part, now);
            } else if write {
                self.offer(now, part);
            } else if self.look_in_cache(part) == Hit::All {
                self.page_up(now, part, 1);
            } else {
                self.translate(now, part, now);
            }
        }
        self.io_progress(now, io);
        if cached && write {
            self.go_on_draining(now);
        }
    }

    /// A page comes to the translator, and one that is written to the allocator; it goes on when they and what else it waits
    /// for are done.
    pub(super) fn translate(&mut self, now: Ps, part: u32, ready: Ps) {
        let write = self.blocks().pages[part as usize].write;
        let c = &self.description.controller;
        let (t_translate, t_allocate) = (c.t_translate, c.t_allocate);
        let mut at = self.stages.run(Stage::Translate, now, t_translate, Cause::Host, &mut self.spans);
        if write {
            at = self.stages.run(Stage::Allocate, at, t_allocate, Cause::Host, &mut self.spans);
        }
        let at = at.max(ready);
        if at == now { self.page_translated(now, part) } else { self.events.push(at, Event::Page(part)) }
    }

    pub(super) fn page_translated(&mut self, now: Ps, part: u32) {
        let p = &self.blocks().pages[part as usize];
        let (lpa, ahead) = (p.lpa, p.ahead);
        if p.write {
            return self.merge(now, part);
        }
        let mut map_ops = std::mem::take(&mut self.blocks().map_ops);
        let place = self.blocks().ftl.read(lpa, ahead, &mut map_ops).expect("the range was looked at");
        let p = &mut self.blocks().pages[part as usize];
        (p.place, p.at) = (place, At::Mapping);
        p.map_ops.extend(map_ops.iter().rev().filter(|op| matches!(op, MapOp::Read(_))));
        // Pages of a block are programmed in the order in which they were given out: at once.
        for op in map_ops.drain(..).filter(|op| matches!(op, MapOp::Program(_))) {
            self.blocks().pages[part as usize].left += 1;
            self.issue_map(now, op, Waiting::Page(part));
        }
        self.blocks().map_ops = map_ops;
        if self.blocks().pages[part as usize].left == 0 {
            self.read_next(now, part);
        }
    }

    /// A page that is written comes to what it has to be merged with.
    fn merge(&mut self, now: Ps, part: u32) {
        let blocks = self.blocks();
        let p = &blocks.pages[part as usize];
        if p.whole {
            return self.write_page(now, part);
        }
        let (lpa, of) = (p.lpa, p.of);
        if !blocks.lost.is_empty() && blocks.lost.contains(&lpa) && of != PageOf::Cache {
            self.fail(part, Status::Unreadable);
            return self.page_done(now, part);
        }
        let old = blocks.ftl.place_of(lpa).expect("the range was looked at");
        let p = &mut blocks.pages[part as usize];
        p.place = old;
        match old {
            Some(place) if !blocks.writing.contains_key(&place) => {
                (p.at, p.left) = (At::Merging, 1);
                let bytes = self.description.geometry.page_bytes;
                self.issue_page(now, Op::Read, Cause::Host, place, bytes, Waiting::Page(part));
            }
            _ => self.write_page(now, part),
        }
    }

    /// The next thing for a page to be read: what the map needs, one after the other, then the page itself.
    fn read_next(&mut self, now: Ps, part: u32) {
        let p = &mut self.blocks().pages[part as usize];
        if let Some(op) = p.map_ops.pop() {
            p.left = 1;
            return self.issue_map(now, op, Waiting::Page(part));
        }
        let (place, bytes, lpa) = (p.place.take(), p.bytes, p.lpa);
        if !self.blocks().lost.is_empty() && self.blocks().lost.contains(&lpa) {
            self.fail(part, Status::Unreadable);
        }
        match place {
            Some(place) if !self.blocks().writing.contains_key(&place) => {
                let p = &mut self.blocks().pages[part as usize];
                (p.left, p.at) = (1, At::Reading);
                self.issue_page(now, Op::Read, Cause::Host, place, bytes, Waiting::Page(part));
            }
            // Never written, or still in the controller's memory.
            _ => self.page_up(now, part, 1),
        }
    }

    pub(super) fn issue_map(&mut self, now: Ps, op: MapOp, waiting: Waiting) {
        let bytes = self.description.geometry.page_bytes;
        match op {
            MapOp::Read(place) => self.issue_page(now, Op::Read, Cause::Map, place, bytes, waiting),
            MapOp::Program(place) => self.issue_page(now, Op::Program, Cause::Map, place, bytes, waiting),
        }
    }

    /// Finds a page for what is written.
    fn write_page(&mut self, now: Ps, part: u32) {
        let blocks = self.block.as_mut().expect("blocks are attached");
        let p = &blocks.pages[part as usize];
        let (lpa, ahead, whole) = (p.lpa, p.ahead, p.whole);
        if p.of == PageOf::Cache && blocks.cached.as_ref().is_some_and(|c| !c.is_wanted(lpa)) {
            // Trimmed on its way.
            return self.page_done(now, part);
        }
        if !whole {
            let old = blocks.ftl.place_of(lpa).expect("the range was looked at");
            if old != p.place && old.is_some_and(|place| !blocks.writing.contains_key(&place)) {
                // Another write to the page, or reclaim, was faster: what it left has to be merged.
                return self.merge(now, part);
            }
        }
        let mut map_ops = std::mem::take(&mut blocks.map_ops);
        let flash = &self.flash;
        let written = blocks.ftl.write(lpa, true, ahead, |die| u64::from(flash.queued(die)), &mut map_ops);
        let p = &mut blocks.pages[part as usize];
        match written {
            Ok(written) => {
                p.at = At::Programming;
                p.left = 1 + map_ops.len() as u32;
                if whole && !blocks.lost.is_empty() {
                    blocks.lost.remove(&lpa);
                }
                let bytes = self.description.geometry.page_bytes;
                for &op in &map_ops {
                    self.issue_map(now, op, Waiting::Page(part));
                }
                self.issue_page(now, Op::Program, Cause::Host, written.place, bytes, Waiting::Page(part));
                if written.reclaim != Urgency::None {
                    self.reclaim(now, written.plane);
                }
            }
            Err(FtlError::NotNow { plane }) => {
                p.at = At::Stalled;
                blocks.stalled.push_back(part);
                self.reclaim(now, plane);
            }
            Err(e) => {
                debug_assert!(matches!(e, FtlError::NoSpace { .. }), "the range was looked at: {e}");
                self.fail(part, Status::NoSpace);
                self.page_done(now, part);
            }
        }
        map_ops.clear();
        self.blocks().map_ops = map_ops;
    }

    /// Tries again what found no free page.
    pub(super) fn retry_stalled(&mut self, now: Ps) {
        self.retry_homeless(now);
        if let Some(cached) = &mut self.blocks().cached {
            cached.there_may_be_room();
        }
        for _ in 0..self.blocks().stalled.len() {
            let Some(part) = self.blocks().stalled.pop_front() else { break };
            self.write_page(now, part);
        }
        self.go_on_draining(now);
    }

    pub(super) fn fail(&mut self, part: u32, status: Status) {
        let p = &mut self.blocks().pages[part as usize];
        p.status = status;
        if let PageOf::Io(io) = p.of {
            self.fail_io(io, status);
        }
    }

    pub(super) fn fail_io(&mut self, io: u32, status: Status) {
        let For::Request(asked) = self.ios[io as usize].asked_by else { unreachable!("a request's page") };
        self.blocks().asked[asked as usize].status = status;
    }

    pub(super) fn page_operation_ended(&mut self, now: Ps, part: u32, outcome: Outcome) {
        let blocks = self.blocks();
        let p = &mut blocks.pages[part as usize];
        p.left -= 1;
        let (at, of, left, lpa) = (p.at, p.of, p.left, p.lpa);
        let unreadable = outcome == Outcome::Uncorrectable && matches!(at, At::Mapping | At::Reading | At::Merging);
        if unreadable {
            if at == At::Merging && of == PageOf::Cache {
                // Its host may know already that it is written: what there is of it is kept.
                blocks.lost.insert(lpa);
            }
            self.fail(part, Status::Unreadable);
        }
        if left > 0 {
            return;
        }
        match at {
            At::Mapping => self.read_next(now, part),
            At::Reading => {
                let crossings = u64::from(self.description.dram.read_crossings);
                self.page_up(now, part, crossings);
            }
            At::Merging if unreadable && of != PageOf::Cache => self.page_done(now, part),
            At::Merging => {
                let bytes = u64::from(self.description.geometry.page_bytes);
                self.through_dram(now, bytes, "old page", Cause::Host);
                self.write_page(now, part);
            }
            At::Programming => self.page_done(now, part),
            At::Translating | At::Caching | At::Stalled => unreachable!("nothing is under way for such a page"),
        }
    }

    /// A page's bytes go to the host, `crossings` times through DRAM: in from the flash, out to the link, or past it.
    fn page_up(&mut self, now: Ps, part: u32, crossings: u64) {
        if crossings == 0 {
            return self.page_leaves(now, part);
        }
        let bytes = u64::from(self.blocks().pages[part as usize].bytes);
        let there = self.through_dram(now, bytes * crossings, "page", Cause::Host);
        if there == now { self.page_leaves(now, part) } else { self.events.push(there, Event::PageUp(part)) }
    }

    pub(super) fn page_leaves(&mut self, now: Ps, part: u32) {
        let p = &self.blocks().pages[part as usize];
        let (PageOf::Io(io), bytes) = (p.of, u64::from(p.bytes)) else { unreachable!("what is read is for the host") };
        let sent = self.send(now, Direction::Up, bytes, "data");
        if self.ios[io as usize].parts_left == 1 && self.description.controller.t_complete == Ps::ZERO {
            // The last one: the completion goes right behind it.
            self.blocks().pages.remove(part as usize);
            self.ios[io as usize].parts_left = 0;
            return self.finished(now, io);
        }
        self.events.push(sent.end, Event::PageDone(part));
    }

    pub(super) fn page_done(&mut self, now: Ps, part: u32) {
        let page = self.blocks().pages.remove(part as usize);
        match page.of {
            PageOf::Io(io) => self.io_progress(now, io),
            PageOf::Cache => self.drained(now, page.lpa, page.status),
        }
    }

    pub(super) fn request_done(&mut self, now: Ps, asked: u32) {
        let blocks = self.blocks();
        let Asked { request, arrived, status } = blocks.asked.remove(asked as usize);
        blocks.ended.push_back(Ended { request, arrived, done: now, status });
    }
}
