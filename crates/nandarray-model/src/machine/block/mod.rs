//! Conventional requests: byte ranges of a linear address space, split into logical pages, served through page-mapped
//! flash management.
//!
//! ```text
//! read    translate -> map pages, if the map is cached -> page read -> DRAM -> link up
//! write   link down -> DRAM -> translate, allocate -> old page read -> DRAM, if only a part is written -> program
//!         with a write cache: link down -> DRAM -> cache (`cached`), from which pages take that way later
//! trim    forgets whole pages; flush: `flush`
//! ```
//!
//! The data of a written page is in the controller's memory until its program has ended, and is read from there. A
//! write that finds no free page waits for reclaim of its plane; a write for which there will never be a page fails,
//! and changes nothing unless one of its programs had begun. A partial write to an unreadable page fails too, since
//! the rest of the page is lost.
//!
//! | file | one idea |
//! | --- | --- |
//! | `mod` | the client: requests and the states of their pages |
//! | `cached` | the write cache in front |
//! | `flush` | flushes: the cache, the map, programs |
//! | `reclaim` | moving pages in the background |
//! | `page` | a page of a request, and its states |
//! | `programs` | programs of pages: ended, failed, repeated elsewhere |
//!
//! The files below `mod` do not call it: they return what has happened, and the client acts on that.

mod cached;
mod flush;
mod page;
mod programs;
mod reclaim;

use std::collections::VecDeque;

use cached::{CacheAction, Cached, PageBytes};
use flush::{Flushed, Flushes};
use page::{PageRequester, PageState, RequestPage};
use programs::PagePrograms;
use reclaim::{Reclaim, RoomChange};

use super::clients::{Client, OperationEnded, Packed, Requester};
use super::fabric::{ClientContext, Fabric};
use super::host_io::{Io, IoDirection, IoEvent};
use super::stages::FirmwareStage;
use crate::flash::{OpCause, OpOutcome};
use crate::ftl::cache::Hit;
use crate::ftl::{FtlError, FtlSetupError, MapOp, PageMapped, Urgency};
use crate::host::Direction;
use crate::workload::{IoRequest, RequestOp};
use nandarray_sim::Ps;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestStatus {
    /// The request has succeeded.
    Success,
    /// The request reached beyond the device's capacity (NVMe: LBA Out of Range).
    OutOfRange,
    /// No flash page was left to write to (NVMe: Capacity Exceeded).
    NoSpace,
    /// A page could not be read (NVMe: Unrecovered Read Error).
    Unreadable,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEnded {
    /// The request.
    pub request: IoRequest,
    /// Time of its arrival, even if it then waited for room in its queue.
    pub arrived: Ps,
    /// Time at which the host reaped its completion.
    pub done: Ps,
    /// Outcome of the request.
    pub status: RequestStatus,
}

/// An event of a conventional request; carries the number of its command on the link, or of one of its pages.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockEvent {
    /// All data of a write request has crossed the link.
    RequestData(u32),
    /// All data of a write request is in DRAM and can be split into pages.
    RequestCut(u32),
    /// The translator, and for writes the allocator, have processed a page.
    Page(u32),
    /// A page that was read is in DRAM, on its way to the host.
    PageUp(u32),
    /// A page that was read has crossed the link.
    PageDone(u32),
    /// The old content of a partly written page is in DRAM.
    OldThere(u32),
    /// A page that reclaim moves has crossed DRAM: the number of its move.
    MoveThere(u32),
}

/// The part of this client that waits for a flash operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockWaiter {
    /// A page of a request.
    Page(u32),
    /// A program of [`PagePrograms`], which records its own waiter.
    Program(u32),
    /// A page that reclaim reads, by the number of its move.
    Move(u32),
    /// A page that reclaim programs, by its plane; only used as the waiter of a [`Self::Program`].
    MoveTo(u32),
    /// A block that reclaim erases, by its plane.
    Erase(u32),
    /// No part: nothing waits for the operation.
    None,
}

impl Packed for BlockWaiter {
    fn pack(self) -> (u8, u32) {
        match self {
            Self::Page(n) => (0, n),
            Self::Program(n) => (1, n),
            Self::Move(n) => (2, n),
            Self::MoveTo(n) => (3, n),
            Self::Erase(n) => (4, n),
            Self::None => (5, 0),
        }
    }

    fn unpack(kind: u8, number: u32) -> Self {
        match kind {
            0 => Self::Page(number),
            1 => Self::Program(number),
            2 => Self::Move(number),
            3 => Self::MoveTo(number),
            4 => Self::Erase(number),
            5 => Self::None,
            other => panic!("an operation of kind {other}"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct SubmittedRequest {
    request: IoRequest,
    arrived: Ps,
    status: RequestStatus,
}

/// The client that serves conventional requests of one device.
#[derive(Debug)]
pub(crate) struct BlockClient {
    programs: PagePrograms,
    reclaim: Reclaim,
    flushes: Flushes,
    cached: Option<Cached>,
    requests: slab::Slab<SubmittedRequest>,
    pages: slab::Slab<RequestPage>,
    stalled: VecDeque<u32>,
    ended: VecDeque<RequestEnded>,
}

impl Client for BlockClient {
    type Event = BlockEvent;
    type Waiter = BlockWaiter;
    /// Number of a request, by which flushes and pages name it.
    type Requester = u32;

    fn handle(&mut self, ctx: &mut ClientContext<'_>, now: Ps, event: BlockEvent) {
        match event {
            BlockEvent::RequestData(io) => self.request_data(ctx, now, io),
            BlockEvent::RequestCut(io) => self.request_cut(ctx, now, io),
            BlockEvent::Page(part) => self.page_translated(ctx, now, part),
            BlockEvent::PageUp(part) => self.page_leaves(ctx, now, part),
            BlockEvent::PageDone(part) => self.page_done(ctx, now, part),
            BlockEvent::OldThere(part) => self.write_page(ctx, now, part),
            BlockEvent::MoveThere(slot) => {
                if let Some(plane) = self.reclaim.relocate(&mut self.programs, ctx.fabric, now, slot) {
                    self.move_over(ctx, now, plane);
                }
            }
        }
    }

    fn operation_ended(&mut self, ctx: &mut ClientContext<'_>, now: Ps, waiter: BlockWaiter, ended: OperationEnded) {
        match waiter {
            BlockWaiter::Page(part) => self.page_operation_ended(ctx, now, part, ended.outcome),
            BlockWaiter::Program(program) => self.program_over(ctx, now, program, ended.outcome),
            BlockWaiter::Move(slot) => {
                if let Some(plane) = self.reclaim.read_over(&mut self.programs, ctx.fabric, now, slot, ended.outcome) {
                    self.move_over(ctx, now, plane);
                }
            }
            BlockWaiter::Erase(plane) => self.block_erased(ctx, now, plane, ended.outcome),
            BlockWaiter::MoveTo(_) | BlockWaiter::None => {}
        }
    }

    /// Continues reclaim of the planes where it gave way to other operations, once no operation waits for their dies.
    fn flash_moved(&mut self, ctx: &mut ClientContext<'_>, now: Ps) {
        let mut i = 0;
        while let Some(plane) = self.reclaim.resumes(ctx.fabric, &mut i) {
            self.go_on_reclaiming(ctx, now, plane);
        }
    }

    fn decoded(&mut self, ctx: &mut ClientContext<'_>, now: Ps, io: u32, request_id: u32) {
        self.request_decoded(ctx, now, io, request_id);
    }

    fn reaped(&mut self, _ctx: &mut ClientContext<'_>, now: Ps, request_id: u32) {
        let SubmittedRequest { request, arrived, status } = self.requests.remove(request_id as usize);
        assert!(arrived <= now, "{request:?} arrived at {arrived} and was reaped at {now}");
        self.ended.push_back(RequestEnded { request, arrived, done: now, status });
    }

    fn is_still(&self) -> bool {
        self.pages.is_empty() && self.reclaim.is_still() && self.programs.is_still()
    }

    fn check_at_rest(&self) {
        assert!(self.requests.is_empty() && self.pages.is_empty(), "a request was left in flight");
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
            BlockEvent::OldThere(part) => (28, part),
            BlockEvent::MoveThere(slot) => (29, slot),
        }
    }
}

impl BlockClient {
    /// Makes a client whose page-mapped flash management holds no data.
    ///
    /// # Errors
    /// If the description leaves no flash to manage.
    pub(super) fn new(fabric: &Fabric, seed: u64) -> Result<Self, FtlSetupError> {
        let bad = |die, plane: u16, block| fabric.flash.is_factory_bad(die, u32::from(plane), block);
        let ftl = PageMapped::new(&fabric.description, seed, &bad)?;
        Ok(Self {
            reclaim: Reclaim::new(ftl.planes() as usize),
            programs: PagePrograms::new(ftl),
            flushes: Flushes::default(),
            cached: Cached::new(&fabric.description),
            requests: slab::Slab::new(),
            pages: slab::Slab::new(),
            stalled: VecDeque::new(),
            ended: VecDeque::new(),
        })
    }

    /// Returns the page-mapped flash management.
    pub(super) fn ftl(&self) -> &PageMapped {
        &self.programs.ftl
    }

    /// Returns the page-mapped flash management for changes, such as preconditioning.
    pub(super) fn ftl_mut(&mut self) -> &mut PageMapped {
        &mut self.programs.ftl
    }

    /// Returns the number of bytes that requests can address.
    pub(super) fn capacity_bytes(&self) -> u64 {
        self.ftl().capacity_pages() * u64::from(self.ftl().page_bytes())
    }

    /// Returns, for each plane, whether its reclaim is urgent, as last reported to the flash.
    #[cfg(test)]
    pub(super) fn urgent_planes(&self) -> &[bool] {
        self.reclaim.urgent_planes()
    }

    /// Returns a text with the waiting pages and their states, for messages about requests that never end.
    pub(super) fn waiting(&self) -> String {
        let pages: Vec<_> = self.pages.iter().map(|(_, p)| (p.lpa, p.at, p.of)).collect();
        let (stalled, flushes, reclaim) = (&self.stalled, &self.flushes, self.reclaim.waiting());
        format!("pages {pages:?}, stalled {stalled:?}, {reclaim}, {flushes:?}")
    }

    /// Returns the next request that has ended, each once; `None` if there is none.
    pub(super) fn take_ended(&mut self) -> Option<RequestEnded> {
        self.ended.pop_front()
    }

    /// Submits a request of the host at time `now`.
    pub(super) fn submit(&mut self, ctx: &mut ClientContext<'_>, now: Ps, request: IoRequest) {
        let request_id =
            self.requests.insert(SubmittedRequest { request, arrived: now, status: RequestStatus::Success }) as u32;
        let direction = match request.op {
            RequestOp::Read => IoDirection::Read,
            RequestOp::Write => IoDirection::Write,
            RequestOp::Trim | RequestOp::Flush => IoDirection::Neither,
        };
        let queue = request.stream % ctx.fabric.description.host.queues;
        ctx.io.submit(ctx.fabric, now, Io::new(Requester::BlockClient(request_id), direction, queue, 1));
    }

    fn request_decoded(&mut self, ctx: &mut ClientContext<'_>, now: Ps, io: u32, request_id: u32) {
        let request = self.requests[request_id as usize].request;
        let capacity = self.capacity_bytes();
        if request.offset_bytes.checked_add(request.bytes).is_none_or(|end| end > capacity) {
            self.requests[request_id as usize].status = RequestStatus::OutOfRange;
            return ctx.io_progress(now, io);
        }
        match request.op {
            RequestOp::Read => self.cut(ctx, now, io, &request),
            RequestOp::Write => {
                let sent = ctx.fabric.send(now, Direction::Down, request.bytes, "data");
                ctx.push(sent.end, BlockEvent::RequestData(io));
            }
            RequestOp::Trim => {
                let page = u64::from(ctx.fabric.description.geometry.page_bytes);
                let (first, end) = (request.offset_bytes.div_ceil(page), (request.offset_bytes + request.bytes) / page);
                if first < end {
                    self.trim_pages(ctx, now, first, end);
                }
                let t_translate = ctx.fabric.description.controller.t_translate;
                let at = ctx.fabric.run_stage(FirmwareStage::Translate, now, t_translate);
                if at == now { ctx.io_progress(now, io) } else { ctx.fabric.push(at, IoEvent::Progress(io)) }
            }
            RequestOp::Flush => {
                let ticket = self.cached.as_ref().map(|c| c.cache.flush());
                self.flushes.begin(io, ticket);
                self.go_on_draining(ctx, now);
                self.go_on_flushing(ctx, now);
            }
        }
    }

    fn trim_pages(&mut self, ctx: &mut ClientContext<'_>, now: Ps, first: u64, end: u64) {
        if let Some(cached) = &mut self.cached {
            for part in cached.trim(first, end) {
                self.page_done(ctx, now, part);
            }
        }
        let mut map_ops = std::mem::take(&mut self.programs.map_ops);
        let trimmed = self.programs.ftl.trim(first, end - first, &mut map_ops);
        assert!(trimmed.is_ok(), "pages {first} to {end} are within the device: {trimmed:?}");
        if !self.programs.lost.is_empty() {
            for lpa in first..end {
                self.programs.lost.remove(&lpa);
            }
        }
        for &op in &map_ops {
            self.programs.issue_map(ctx.fabric, now, op, BlockWaiter::None);
        }
        map_ops.clear();
        self.programs.map_ops = map_ops;
        // There may now be free pages for writes that found none.
        self.retry_stalled(ctx, now);
    }

    fn request_of(&self, ctx: &ClientContext<'_>, io: u32) -> u32 {
        let Requester::BlockClient(request_id) = ctx.io.requester(io) else { unreachable!("a request's io") };
        request_id
    }

    /// Moves the data of a write into DRAM, once all of it has crossed the link.
    fn request_data(&mut self, ctx: &mut ClientContext<'_>, now: Ps, io: u32) {
        let request = self.requests[self.request_of(ctx, io) as usize].request;
        let there = ctx.fabric.through_dram(now, request.bytes, "data in", OpCause::Host);
        if there == now {
            self.cut(ctx, now, io, &request);
        } else {
            ctx.push(there, BlockEvent::RequestCut(io));
        }
    }

    fn request_cut(&mut self, ctx: &mut ClientContext<'_>, now: Ps, io: u32) {
        let request = self.requests[self.request_of(ctx, io) as usize].request;
        self.cut(ctx, now, io, &request);
    }

    /// Splits a request into its logical pages, and begins the work on each.
    fn cut(&mut self, ctx: &mut ClientContext<'_>, now: Ps, io: u32, request: &IoRequest) {
        let page = u64::from(ctx.fabric.description.geometry.page_bytes);
        let (start, end) = (request.offset_bytes, request.offset_bytes + request.bytes);
        let (first, last) = (start / page, if request.bytes == 0 { start / page } else { end.div_ceil(page) });
        let write = request.op == RequestOp::Write;
        ctx.io.add_parts(io, (last - first) as u32);
        let mut cut_bytes = 0;
        for lpa in first..last {
            let from = (start.max(lpa * page) - lpa * page) as u32;
            let bytes = (end.min((lpa + 1) * page) - lpa * page) as u32 - from;
            cut_bytes += u64::from(bytes);
            let ahead = (last - lpa - 1) as u32;
            let of = RequestPage::new(PageRequester::Io(io), lpa, from, bytes);
            let part = RequestPage { ahead, write, whole: u64::from(bytes) == page, ..of };
            let part = self.pages.insert(part) as u32;
            let page_bytes = PageBytes { lpa, from, bytes };
            match &mut self.cached {
                None => self.translate(ctx, now, part, now),
                Some(cached) if write => {
                    self.pages[part as usize].at = PageState::Caching;
                    if cached.offer(part, page_bytes) {
                        self.page_done(ctx, now, part);
                    }
                }
                Some(cached) => match cached.cache.read(lpa, from, bytes) {
                    Hit::All => self.page_up(ctx, now, part, 1),
                    _ => self.translate(ctx, now, part, now),
                },
            }
        }
        assert_eq!(cut_bytes, request.bytes, "pages {first} to {last} are all of {request:?}");
        ctx.io_progress(now, io);
        if write {
            self.go_on_draining(ctx, now);
        }
    }

    /// Books the translator for a page and, if it is written, the allocator; the page continues when they are done,
    /// but not before `ready`.
    fn translate(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32, ready: Ps) {
        let write = self.pages[part as usize].write;
        let c = &ctx.fabric.description.controller;
        let (t_translate, t_allocate) = (c.t_translate, c.t_allocate);
        let mut at = ctx.fabric.run_stage(FirmwareStage::Translate, now, t_translate);
        if write {
            at = ctx.fabric.run_stage(FirmwareStage::Allocate, at, t_allocate);
        }
        let at = at.max(ready);
        if at == now { self.page_translated(ctx, now, part) } else { ctx.push(at, BlockEvent::Page(part)) }
    }

    fn page_translated(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let p = &mut self.pages[part as usize];
        assert!(matches!(p.at, PageState::Translating | PageState::Caching), "page {} is at {:?}", p.lpa, p.at);
        if p.write {
            return self.merge(ctx, now, part);
        }
        let mut map_ops = std::mem::take(&mut self.programs.map_ops);
        p.place = self.programs.ftl.read(p.lpa, p.ahead, &mut map_ops).expect("the page is within the device");
        p.at = PageState::Mapping;
        p.map_ops.extend(map_ops.iter().rev().filter(|op| matches!(op, MapOp::Read(_))));
        // Map pages are programmed at once, since pages of a block must be programmed in the order of their
        // allocation.
        for op in map_ops.drain(..).filter(|op| matches!(op, MapOp::Program(_))) {
            p.left += 1;
            self.programs.issue_map(ctx.fabric, now, op, BlockWaiter::Page(part));
        }
        let left = p.left;
        self.programs.map_ops = map_ops;
        if left == 0 {
            self.read_next(ctx, now, part);
        }
    }

    /// Reads the old content of a partly written page, if there is any, or writes the page at once.
    fn merge(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let p = &mut self.pages[part as usize];
        assert!(p.write && p.left == 0, "page {} has {} operations in flight before it is merged", p.lpa, p.left);
        if p.whole {
            return self.write_page(ctx, now, part);
        }
        if p.of != PageRequester::Cache && self.programs.is_lost(p.lpa) {
            self.fail(ctx, part, RequestStatus::Unreadable);
            return self.page_done(ctx, now, part);
        }
        p.place = self.programs.ftl.place_of(p.lpa).expect("the page is within the device");
        match p.place {
            Some(place) if !self.programs.is_in_memory(place) => {
                (p.at, p.left) = (PageState::Merging, 1);
                let bytes = ctx.fabric.description.geometry.page_bytes;
                self.programs.read(ctx.fabric, now, OpCause::Host, place, bytes, BlockWaiter::Page(part));
            }
            _ => self.write_page(ctx, now, part),
        }
    }

    /// Reads the next map page that a read needs, one after the other, then the page itself.
    fn read_next(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let p = &mut self.pages[part as usize];
        assert!(!p.write && p.left == 0, "page {} has {} operations in flight before it is read", p.lpa, p.left);
        if let Some(op) = p.map_ops.pop() {
            p.left = 1;
            return self.programs.issue_map(ctx.fabric, now, op, BlockWaiter::Page(part));
        }
        let (place, bytes, lpa) = (p.place.take(), p.bytes, p.lpa);
        if self.programs.is_lost(lpa) {
            self.fail(ctx, part, RequestStatus::Unreadable);
        }
        match place {
            Some(place) if !self.programs.is_in_memory(place) => {
                let p = &mut self.pages[part as usize];
                (p.left, p.at) = (1, PageState::Reading);
                self.programs.read(ctx.fabric, now, OpCause::Host, place, bytes, BlockWaiter::Page(part));
            }
            // The page was never written, or its data is still in the controller's memory.
            _ => self.page_up(ctx, now, part, 1),
        }
    }

    /// Allocates a flash page for a write, and programs it.
    fn write_page(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let p = &mut self.pages[part as usize];
        assert!(p.write && p.left == 0, "page {} has {} operations in flight before it is written", p.lpa, p.left);
        let (lpa, ahead, whole) = (p.lpa, p.ahead, p.whole);
        if p.of == PageRequester::Cache && self.cached.as_ref().is_some_and(|c| !c.is_wanted(lpa)) {
            // The page was trimmed while it was drained.
            return self.page_done(ctx, now, part);
        }
        let programs = &mut self.programs;
        if !whole {
            let old = programs.ftl.place_of(lpa).expect("the page is within the device");
            if old != p.place && old.is_some_and(|place| !programs.is_in_memory(place)) {
                // Another write to the page, or reclaim, changed it first: its current content must be merged.
                return self.merge(ctx, now, part);
            }
        }
        let mut map_ops = std::mem::take(&mut programs.map_ops);
        let flash = &ctx.fabric.flash;
        let written = programs.ftl.write(lpa, true, ahead, |die| u64::from(flash.queued(die)), &mut map_ops);
        match written {
            Ok(written) => {
                p.at = PageState::Programming;
                p.left = 1 + map_ops.len() as u32;
                if whole && !programs.lost.is_empty() {
                    programs.lost.remove(&lpa);
                }
                for &op in &map_ops {
                    programs.issue_map(ctx.fabric, now, op, BlockWaiter::Page(part));
                }
                programs.program(ctx.fabric, now, OpCause::Host, written.place, BlockWaiter::Page(part));
                if written.reclaim != Urgency::None {
                    self.go_on_reclaiming(ctx, now, written.plane);
                }
            }
            Err(FtlError::NotNow { plane }) => {
                p.at = PageState::Stalled;
                self.stalled.push_back(part);
                self.go_on_reclaiming(ctx, now, plane);
            }
            Err(e) => {
                assert!(matches!(e, FtlError::NoSpace { .. }), "page {lpa} is within the device: {e}");
                self.fail(ctx, part, RequestStatus::NoSpace);
                self.page_done(ctx, now, part);
            }
        }
        map_ops.clear();
        self.programs.map_ops = map_ops;
    }

    /// Retries the writes that found no free page.
    fn retry_stalled(&mut self, ctx: &mut ClientContext<'_>, now: Ps) {
        self.programs.retry_unplaced(ctx.fabric, now);
        if let Some(cached) = &mut self.cached {
            cached.there_may_be_room();
        }
        for _ in 0..self.stalled.len() {
            let Some(part) = self.stalled.pop_front() else { break };
            assert_eq!(self.pages[part as usize].at, PageState::Stalled, "a page that waits for room");
            self.write_page(ctx, now, part);
        }
        self.go_on_draining(ctx, now);
    }

    fn fail(&mut self, ctx: &ClientContext<'_>, part: u32, status: RequestStatus) {
        assert_ne!(status, RequestStatus::Success, "a page fails for a reason");
        let p = &mut self.pages[part as usize];
        p.status = status;
        if let PageRequester::Io(io) = p.of {
            let request_id = self.request_of(ctx, io);
            self.requests[request_id as usize].status = status;
        }
    }

    fn page_operation_ended(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32, outcome: OpOutcome) {
        let p = &mut self.pages[part as usize];
        assert!(p.left > 0, "page {} has no operation in flight at {:?}", p.lpa, p.at);
        p.left -= 1;
        let (at, of, left, lpa) = (p.at, p.of, p.left, p.lpa);
        let unreadable = outcome == OpOutcome::Uncorrectable
            && matches!(at, PageState::Mapping | PageState::Reading | PageState::Merging);
        if unreadable {
            if at == PageState::Merging && of == PageRequester::Cache {
                // The write may already be complete for the host: the known part of the page is kept.
                self.programs.lost.insert(lpa);
            }
            self.fail(ctx, part, RequestStatus::Unreadable);
        }
        if left > 0 {
            return;
        }
        match at {
            PageState::Mapping => self.read_next(ctx, now, part),
            PageState::Reading => {
                let crossings = u64::from(ctx.fabric.description.dram.read_crossings);
                self.page_up(ctx, now, part, crossings);
            }
            PageState::Merging if unreadable && of != PageRequester::Cache => self.page_done(ctx, now, part),
            PageState::Merging => {
                let bytes = u64::from(ctx.fabric.description.geometry.page_bytes);
                let there = ctx.fabric.through_dram(now, bytes, "old page", OpCause::Host);
                if there == now { self.write_page(ctx, now, part) } else { ctx.push(there, BlockEvent::OldThere(part)) }
            }
            PageState::Programming => self.page_done(ctx, now, part),
            PageState::Translating | PageState::Caching | PageState::Stalled => {
                unreachable!("nothing is under way for such a page")
            }
        }
    }

    /// Sends a page's bytes to the host, after `crossings` transfers through DRAM (in from the flash, out to the
    /// link); 0 if the data bypasses DRAM.
    fn page_up(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32, crossings: u64) {
        if crossings == 0 {
            return self.page_leaves(ctx, now, part);
        }
        let bytes = u64::from(self.pages[part as usize].bytes);
        let there = ctx.fabric.through_dram(now, bytes * crossings, "page", OpCause::Host);
        if there == now { self.page_leaves(ctx, now, part) } else { ctx.push(there, BlockEvent::PageUp(part)) }
    }

    fn page_leaves(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let p = &self.pages[part as usize];
        let (PageRequester::Io(io), bytes) = (p.of, u64::from(p.bytes)) else {
            unreachable!("what is read is for the host")
        };
        let sent = ctx.fabric.send(now, Direction::Up, bytes, "data");
        if ctx.io.parts_left(io) == 1 && ctx.fabric.description.controller.t_complete == Ps::ZERO {
            // This was the last page of the request: the completion follows its data at once.
            self.pages.remove(part as usize);
            return ctx.io.finished_with_data(ctx.fabric, now, io);
        }
        ctx.push(sent.end, BlockEvent::PageDone(part));
    }

    fn page_done(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let page = self.pages.remove(part as usize);
        assert_eq!(page.left, 0, "page {} is done with operations in flight, at {:?}", page.lpa, page.at);
        match page.of {
            PageRequester::Io(io) => ctx.io_progress(now, io),
            PageRequester::Cache => self.drained(ctx, now, page.lpa, page.status),
        }
    }

    // The write cache and flushes
    // ---------------------------------------------------------------------------------------

    /// Drains the cache and lets it take the writes that wait for room, as far as possible, then advances flushes.
    fn go_on_draining(&mut self, ctx: &mut ClientContext<'_>, now: Ps) {
        if !self.cached.as_mut().is_some_and(Cached::begin) {
            return;
        }
        loop {
            let flushing = self.flushes.drains();
            let (pages, ftl) = (&self.pages, &self.programs.ftl);
            let bytes_of = |part: u32| {
                let p = &pages[part as usize];
                PageBytes { lpa: p.lpa, from: p.from, bytes: p.bytes }
            };
            let cached = self.cached.as_mut().expect("it was there");
            match cached.next(flushing, bytes_of, || ftl.word_lines_to_fill() as usize) {
                CacheAction::Done(part) => self.page_done(ctx, now, part),
                CacheAction::Refused(parts) => {
                    for part in parts {
                        self.fail(ctx, part, RequestStatus::NoSpace);
                        self.page_done(ctx, now, part);
                    }
                }
                CacheAction::Drain(drain) => {
                    let page_bytes = ctx.fabric.description.geometry.page_bytes;
                    let page = RequestPage::new(PageRequester::Cache, drain.lpa, 0, page_bytes);
                    let part = self.pages.insert(RequestPage { write: true, whole: drain.whole, ..page }) as u32;
                    let bytes = u64::from(drain.bytes);
                    let there = ctx.fabric.through_dram(now, bytes, "cached page", OpCause::Host);
                    self.translate(ctx, now, part, there);
                }
                CacheAction::Nothing => break,
            }
        }
        self.go_on_flushing(ctx, now);
    }

    /// Ends the drain of a page from the cache.
    fn drained(&mut self, ctx: &mut ClientContext<'_>, now: Ps, lpa: u64, status: RequestStatus) {
        let cached = self.cached.as_mut().expect("a page from the cache");
        for part in cached.drained(lpa, status == RequestStatus::NoSpace) {
            if status != RequestStatus::Success {
                self.fail(ctx, part, status);
            }
            self.page_done(ctx, now, part);
        }
        self.go_on_draining(ctx, now);
    }

    /// Advances flushes in order, and completes those that have ended.
    fn go_on_flushing(&mut self, ctx: &mut ClientContext<'_>, now: Ps) {
        while let Some(Flushed { io, status }) =
            self.flushes.go_on(&mut self.programs, self.cached.as_ref(), ctx.fabric, now)
        {
            let request_id = self.request_of(ctx, io);
            self.requests[request_id as usize].status = status;
            ctx.io_progress(now, io);
        }
    }

    // Programs and reclaim
    // ------------------------------------------------------------------------------------------------

    fn program_over(&mut self, ctx: &mut ClientContext<'_>, now: Ps, program: u32, outcome: OpOutcome) {
        let over = self.programs.over(ctx.fabric, now, program, outcome);
        if let Some(part) = over.unplaced {
            self.fail(ctx, part, RequestStatus::NoSpace);
        }
        if let Some(plane) = over.failed_plane {
            self.go_on_reclaiming(ctx, now, plane);
        }
        match over.waiter {
            Some(BlockWaiter::Page(part)) => self.page_operation_ended(ctx, now, part, OpOutcome::Done),
            Some(BlockWaiter::MoveTo(plane)) => self.move_over(ctx, now, plane),
            _ => {}
        }
        self.programs.epochs.ended(over.epoch);
        self.go_on_flushing(ctx, now);
    }

    /// Continues reclaim of a plane as far as it may, retrying writes whenever there may be room.
    fn go_on_reclaiming(&mut self, ctx: &mut ClientContext<'_>, now: Ps, plane: u32) {
        while self.reclaim.go_on(&mut self.programs, ctx.fabric, now, plane) == RoomChange::Perhaps {
            self.retry_stalled(ctx, now);
        }
    }

    /// Ends a move of reclaim, whose page was programmed elsewhere or stays where it is.
    fn move_over(&mut self, ctx: &mut ClientContext<'_>, now: Ps, plane: u32) {
        self.reclaim.move_over(plane);
        self.go_on_reclaiming(ctx, now, plane);
        self.retry_stalled(ctx, now);
    }

    /// Handles the end of an erase of a victim, which is bad if the erase failed.
    fn block_erased(&mut self, ctx: &mut ClientContext<'_>, now: Ps, plane: u32, outcome: OpOutcome) {
        self.reclaim.erased(&mut self.programs, ctx.fabric, plane, outcome);
        self.retry_stalled(ctx, now);
        if self.programs.ftl.urgency(plane) != Urgency::None {
            self.go_on_reclaiming(ctx, now, plane);
        }
    }
}
