//! Conventional requests: bytes of a linear address space, cut into logical pages, through page-mapped flash management.
//!
//! ```text
//! read    translate -> map pages, if the map is cached -> page read -> DRAM -> link up
//! write   link down -> DRAM -> (told, if it fits the write buffer) -> translate, allocate -> old page read, if only a part is
//!         written -> program
//! trim    forgets whole pages; flush: waits for every program
//! ```
//!
//! A page that is written is in the controller's memory until its program has ended, and read from there. A write that finds no
//! free page waits for reclaim of its plane; one for which there will never be a page fails, and changes nothing.

use std::collections::{HashMap, VecDeque};

use super::io::{For, Io, Way};
use super::{Event, Machine, Stage, Waiting};
use crate::flash::{Cause, Op, Operation, Outcome, Place};
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
enum At {
    /// The translator, then for what the map needs.
    Translating,
    /// What a cached map needs for it.
    Mapping,
    /// A page of flash, to be read for the host.
    Reading,
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
    /// A write that its host was told of when it was in the buffer.
    Buffered(u32),
}

/// A write in the buffer.
#[derive(Clone, Copy, Debug)]
struct Buffered {
    pages_left: u32,
    bytes: u64,
}

/// A program under way.
#[derive(Clone, Copy, Debug)]
struct Program {
    place: Place,
    cause: Cause,
    waiting: Waiting,
}

/// A logical page's share of a request.
#[derive(Debug)]
pub(super) struct Page {
    of: PageOf,
    lpa: u64,
    bytes: u32,
    ahead: u32,
    write: bool,
    whole: bool,
    at: At,
    /// Operations under way.
    left: u32,
    place: Option<Place>,
    /// Map operations still to be done first, last one first.
    map_ops: Vec<MapOp>,
}

/// What conventional requests share.
#[derive(Debug)]
pub(super) struct BlockState {
    pub(super) ftl: PageMapped,
    asked: slab::Slab<Asked>,
    pages: slab::Slab<Page>,
    buffered: slab::Slab<Buffered>,
    under_way: slab::Slab<Program>,
    pub(super) moves: slab::Slab<super::reclaim::UnderWay>,
    /// Pages whose data is in the controller until their programs end; how many programs each waits for.
    pub(super) writing: HashMap<Place, u32>,
    stalled: VecDeque<u32>,
    flushing: Vec<u32>,
    pub(super) programs: u64,
    buffered_bytes: u64,
    /// Pages of buffered writes for which there was no place: lost, as the host was told otherwise.
    pub(super) lost: u64,
    pub(super) moving: Vec<u16>,
    pub(super) erasing: Vec<Option<Place>>,
    /// Planes whose reclaim gave way, and whether each is among them.
    pub(super) postponed: Vec<u32>,
    pub(super) is_postponed: Vec<bool>,
    map_ops: Vec<MapOp>,
    ended: VecDeque<Ended>,
}

impl BlockState {
    /// An empty device.
    ///
    /// # Errors
    /// If the description leaves nothing to manage.
    pub(super) fn new(ftl: PageMapped) -> Self {
        let planes = ftl.planes() as usize;
        Self {
            ftl,
            asked: slab::Slab::new(),
            pages: slab::Slab::new(),
            buffered: slab::Slab::new(),
            under_way: slab::Slab::new(),
            moves: slab::Slab::new(),
            writing: HashMap::new(),
            stalled: VecDeque::new(),
            flushing: Vec::new(),
            programs: 0,
            buffered_bytes: 0,
            lost: 0,
            moving: vec![0; planes],
            erasing: vec![None; planes],
            postponed: Vec::new(),
            is_postponed: vec![false; planes],
            map_ops: Vec::new(),
            ended: VecDeque::new(),
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
        self.block = Some(Box::new(BlockState::new(ftl)));
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
                    let mut map_ops = std::mem::take(&mut self.blocks().map_ops);
                    let trimmed = self.blocks().ftl.trim(first, end - first, &mut map_ops);
                    debug_assert!(trimmed.is_ok(), "the range was looked at");
                    self.in_background(now, &map_ops);
                    map_ops.clear();
                    self.blocks().map_ops = map_ops;
                }
                let t_translate = self.description.controller.t_translate;
                let at = self.stages.run(Stage::Translate, now, t_translate, Cause::Host, &mut self.spans);
                self.events.push(at, Event::Progress(io));
            }
            RequestOp::Flush if self.blocks().programs == 0 => self.io_progress(now, io),
            RequestOp::Flush => self.blocks().flushing.push(io),
        }
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
        let (first, last) = (start / page, end.div_ceil(page));
        let write = request.op == RequestOp::Write;
        // A write that fits the buffer is complete for the host; its pages go on without it.
        let of = if write && self.early(request.bytes) {
            let blocks = self.blocks();
            blocks.buffered_bytes += request.bytes;
            let pages_left = (last - first) as u32;
            PageOf::Buffered(blocks.buffered.insert(Buffered { pages_left, bytes: request.bytes }) as u32)
        } else {
            self.ios[io as usize].parts_left += (last - first) as u32;
            PageOf::Io(io)
        };
        let t_translate = self.description.controller.t_translate;
        for lpa in first..last {
            let bytes = (end.min((lpa + 1) * page) - start.max(lpa * page)) as u32;
            let part = Page {
                of,
                lpa,
                bytes,
                ahead: (last - lpa - 1) as u32,
                write,
                whole: u64::from(bytes) == page,
                at: At::Translating,
                left: 0,
                place: None,
                map_ops: Vec::new(),
            };
            let part = self.blocks().pages.insert(part) as u32;
            let mut at = self.stages.run(Stage::Translate, now, t_translate, Cause::Host, &mut self.spans);
            if write {
                let t_allocate = self.description.controller.t_allocate;
                at = self.stages.run(Stage::Allocate, at, t_allocate, Cause::Host, &mut self.spans);
            }
            if at == now { self.page_translated(now, part) } else { self.events.push(at, Event::Page(part)) }
        }
        self.io_progress(now, io);
    }

    fn early(&mut self, bytes: u64) -> bool {
        let (early, most) = (self.description.ftl.early_completion, self.description.ftl.write_cache_bytes);
        early && self.blocks().buffered_bytes + bytes <= most
    }

    pub(super) fn page_translated(&mut self, now: Ps, part: u32) {
        let p = &self.blocks().pages[part as usize];
        let (lpa, ahead, write, whole) = (p.lpa, p.ahead, p.write, p.whole);
        if !write {
            let mut map_ops = std::mem::take(&mut self.blocks().map_ops);
            let place = self.blocks().ftl.read(lpa, ahead, &mut map_ops).expect("the range was looked at");
            let p = &mut self.blocks().pages[part as usize];
            (p.place, p.at) = (place, At::Mapping);
            if !map_ops.is_empty() {
                p.map_ops.extend(map_ops.drain(..).rev());
            }
            self.blocks().map_ops = map_ops;
            return self.read_next(now, part);
        }
        let old = if whole { None } else { self.blocks().ftl.place_of(lpa).expect("the range was looked at") };
        match old.filter(|place| !self.blocks().writing.contains_key(place)) {
            Some(place) => {
                let p = &mut self.blocks().pages[part as usize];
                (p.at, p.left) = (At::Merging, 1);
                let bytes = self.description.geometry.page_bytes;
                self.issue_page(now, Op::Read, Cause::Host, place, bytes, Waiting::Page(part));
            }
            None => self.write_page(now, part),
        }
    }

    /// The next thing for a page to be read: what the map needs, one after the other, then the page itself.
    fn read_next(&mut self, now: Ps, part: u32) {
        let p = &mut self.blocks().pages[part as usize];
        if let Some(op) = p.map_ops.pop() {
            p.left = 1;
            return self.issue_map(now, op, Waiting::Page(part));
        }
        let (place, bytes) = (p.place.take(), p.bytes);
        match place {
            Some(place) if !self.blocks().writing.contains_key(&place) => {
                let p = &mut self.blocks().pages[part as usize];
                (p.left, p.at) = (1, At::Reading);
                self.issue_page(now, Op::Read, Cause::Host, place, bytes, Waiting::Page(part));
            }
            // Never written, or still in the controller's memory.
            _ => self.page_up(now, part),
        }
    }

    fn issue_map(&mut self, now: Ps, op: MapOp, waiting: Waiting) {
        let bytes = self.description.geometry.page_bytes;
        match op {
            MapOp::Read(place) => self.issue_page(now, Op::Read, Cause::Map, place, bytes, waiting),
            MapOp::Program(place) => self.issue_page(now, Op::Program, Cause::Map, place, bytes, waiting),
        }
    }

    /// Does something for the map that nothing waits for.
    fn in_background(&mut self, now: Ps, ops: &[MapOp]) {
        for &op in ops {
            self.issue_map(now, op, Waiting::Nobody);
        }
    }

    /// Reads or programs a page; who waits is told when that has ended, programs that failed having been done elsewhere.
    pub(super) fn issue_page(&mut self, now: Ps, op: Op, cause: Cause, place: Place, bytes: u32, waiting: Waiting) {
        let mut waiting = waiting;
        if op == Op::Program {
            let blocks = self.blocks();
            blocks.programs += 1;
            *blocks.writing.entry(place).or_default() += 1;
            waiting = Waiting::Program(blocks.under_way.insert(Program { place, cause, waiting }) as u32);
        }
        self.issue(now, Operation { op, cause, place, bytes, token: waiting.token(bytes) });
    }

    pub(super) fn program_over(&mut self, now: Ps, program: u32, outcome: Outcome) {
        let blocks = self.blocks();
        let Program { place, cause, waiting } = blocks.under_way.remove(program as usize);
        let left = blocks.writing.get_mut(&place).expect("a program under way is being written");
        *left -= 1;
        if *left == 0 {
            blocks.writing.remove(&place);
        }
        let renewed = match outcome {
            Outcome::Failed => blocks.ftl.program_failed(place, cause),
            _ => Ok(None),
        };
        match renewed {
            Ok(None) => {}
            Ok(Some(renewed)) => {
                let bytes = self.description.geometry.page_bytes;
                self.issue_page(now, Op::Program, cause, renewed.place, bytes, waiting);
                self.blocks().programs -= 1;
                return;
            }
            Err(_) => blocks.lost += 1,
        }
        let blocks = self.blocks();
        blocks.programs -= 1;
        if blocks.programs == 0 {
            for io in std::mem::take(&mut blocks.flushing) {
                self.io_progress(now, io);
            }
        }
        match waiting {
            Waiting::Page(part) => self.page_operation_ended(now, part, Outcome::Done),
            Waiting::MoveTo(plane) => self.move_written(now, plane),
            _ => {}
        }
    }

    /// Finds a page for what is written.
    fn write_page(&mut self, now: Ps, part: u32) {
        let p = &self.blocks().pages[part as usize];
        let (lpa, ahead) = (p.lpa, p.ahead);
        let mut map_ops = std::mem::take(&mut self.blocks().map_ops);
        let blocks = self.block.as_mut().expect("blocks are attached");
        let flash = &self.flash;
        let written = blocks.ftl.write(lpa, true, ahead, |die| u64::from(flash.queued(die)), &mut map_ops);
        let p = &mut blocks.pages[part as usize];
        match written {
            Ok(written) => {
                p.at = At::Programming;
                p.left = 1 + map_ops.len() as u32;
                p.place = Some(written.place);
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
                let of = p.of;
                debug_assert!(matches!(e, FtlError::NoSpace { .. }), "the range was looked at: {e}");
                self.fail(of, Status::NoSpace);
                self.page_done(now, part);
            }
        }
        map_ops.clear();
        self.blocks().map_ops = map_ops;
    }

    /// Tries again what found no free page.
    pub(super) fn retry_stalled(&mut self, now: Ps) {
        for _ in 0..self.blocks().stalled.len() {
            let Some(part) = self.blocks().stalled.pop_front() else { return };
            self.write_page(now, part);
        }
    }

    fn fail(&mut self, of: PageOf, status: Status) {
        match of {
            PageOf::Io(io) => {
                let For::Request(asked) = self.ios[io as usize].asked_by else { unreachable!("a request's page") };
                self.blocks().asked[asked as usize].status = status;
            }
            PageOf::Buffered(_) => self.blocks().lost += 1,
        }
    }

    pub(super) fn page_operation_ended(&mut self, now: Ps, part: u32, outcome: Outcome) {
        let p = &mut self.blocks().pages[part as usize];
        p.left -= 1;
        let (at, of, left) = (p.at, p.of, p.left);
        if outcome == Outcome::Uncorrectable && matches!(at, At::Reading | At::Merging) {
            self.fail(of, Status::Unreadable);
        }
        if left > 0 {
            return;
        }
        match at {
            At::Mapping => self.read_next(now, part),
            At::Reading => self.page_up(now, part),
            At::Merging => self.write_page(now, part),
            At::Programming => self.page_done(now, part),
            At::Translating | At::Stalled => unreachable!("nothing is under way for a page that waits for a stage"),
        }
    }

    /// A page's bytes go to the host.
    fn page_up(&mut self, now: Ps, part: u32) {
        let bytes = u64::from(self.blocks().pages[part as usize].bytes);
        let there = self.through_dram(now, bytes * 2, "page", Cause::Host);
        if there == now { self.page_leaves(now, part) } else { self.events.push(there, Event::PageUp(part)) }
    }

    pub(super) fn page_leaves(&mut self, now: Ps, part: u32) {
        let p = &self.blocks().pages[part as usize];
        let (PageOf::Io(io), bytes) = (p.of, u64::from(p.bytes)) else { unreachable!("a read is not buffered") };
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
        let blocks = self.blocks();
        match blocks.pages.remove(part as usize).of {
            PageOf::Io(io) => self.io_progress(now, io),
            PageOf::Buffered(slot) => {
                let buffered = &mut blocks.buffered[slot as usize];
                buffered.pages_left -= 1;
                if buffered.pages_left == 0 {
                    blocks.buffered_bytes -= buffered.bytes;
                    blocks.buffered.remove(slot as usize);
                }
            }
        }
    }

    pub(super) fn request_done(&mut self, now: Ps, asked: u32) {
        let blocks = self.blocks();
        let Asked { request, arrived, status } = blocks.asked.remove(asked as usize);
        blocks.ended.push_back(Ended { request, arrived, done: now, status });
    }
}
