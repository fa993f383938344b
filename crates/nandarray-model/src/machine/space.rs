//! Commands of the store under the clock: building blocks through the NDS pipeline, in the device or on the host.
//!
//! Hardware NDS (paper, section 5.3): one io a command; the device translates block by block, reads or programs its pages,
//! assembles in DRAM, and sends one block while the next is read. Software NDS (section 5.2): the host translates, asks for each
//! extent of a block by an io of its own, whole pages cross the link, and a host core copies the runs. Either way:
//!
//! ```text
//! read    translate -> flash reads -> DRAM -> assemble -> link up            (one part a block, pipelined)
//! write   link down -> DRAM -> assemble -> translate -> allocate -> flash reads (of what is kept) -> programs
//! log     once everything programmed so far is in the flash: the journal's pages, or the checkpoint's
//! ```
//!
//! What reclaim moved goes on in the background, a few chunks (reads, then programs) at a time; segments that hold nothing any
//! more are erased behind it, and programs into them wait for that. What the log writes is charged whole pages.

mod software;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use super::io::{For, Io, Way};
use super::{Event, Machine, Stage, Waiting};
use crate::flash::{Cause, Op, Operation, Outcome};
use crate::footprint::Places;
use crate::footprint::{Footprint, Piece, Step};
use crate::host::Direction;
use crate::time::Ps;

/// Chunks of reclaim that are on their way at once.
const CHUNKS_AT_ONCE: u32 = 8;
/// Blocks of a command that are on their way at once, if DRAM has room for them.
const PARTS_AT_ONCE: u32 = 64;

/// A command of the store on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(u64);

/// What a command of the store moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Elements to the host.
    Read,
    /// Elements to the device.
    Write,
    /// None: flush, create, and so on.
    Other,
}

/// A command of the store that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobDone {
    /// Which.
    pub id: JobId,
    /// What it moved.
    pub kind: JobKind,
    /// Bytes of elements moved.
    pub bytes: u64,
    /// When the host gave it.
    pub submitted: Ps,
    /// When the host had its answer.
    pub done: Ps,
    /// Whether a page could not be read.
    pub failed: bool,
}

/// Something in the background of a job, in order.
#[derive(Clone, Debug)]
enum Background {
    /// Pages read, then programmed elsewhere.
    Chunk(Vec<Step>),
    /// A segment to erase, once all before is done.
    Erase(u32),
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Blocks are on their way.
    Moving,
    /// All programs of the device must end before the log is written.
    Settling,
    /// Pages of the log are programmed.
    Logging,
    /// The host has its answer; the background may go on.
    Done,
}

#[derive(Debug)]
pub(super) struct Job {
    id: JobId,
    kind: JobKind,
    queue: u32,
    submitted: Ps,
    steps: Vec<Step>,
    pieces: Vec<Piece>,
    log: Vec<Step>,
    settle: bool,
    background: VecDeque<Background>,
    chunks_left: u32,
    phase: Phase,
    next: usize,
    /// Parts that take room in the device.
    open: u32,
    open_bytes: u64,
    /// Parts that the host waits for.
    waiting: u32,
    log_left: u32,
    bytes: u64,
    io: Option<u32>,
    failed: bool,
    /// Blocks that the host has composed and not programmed, until it has composed all of the command.
    composed: Vec<u32>,
}

/// Where a part stands; each is left for the next when its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Its data crosses the link to the device.
    Down,
    /// Its data moves into DRAM, to be written.
    Landed,
    /// The assembler scatters its runs into pages.
    Scattered,
    /// The translator finds its pages.
    Translated,
    /// The allocator finds pages for it.
    Allocated,
    /// Pages are read.
    Reading,
    /// Pages are programmed.
    Programming,
    /// What was read is in DRAM; the assembler gathers its runs.
    Gathered,
    /// It leaves DRAM for the link.
    Leaving,
    /// It is with the host, or safe in the flash.
    Delivered,
}

/// Which steps a part is made of.
#[derive(Clone, Copy, Debug)]
enum Steps {
    /// Some of its job's.
    Of { from: usize, to: usize },
    /// One extent.
    One(Step),
    /// None of its own: a piece whose extents are ios (software NDS).
    Extents { from: usize, to: usize },
}

/// A building block's share of a command, or an extent of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    job: u32,
    io: Option<u32>,
    way: Way,
    steps: Steps,
    runs: u64,
    bytes: u64,
    at: At,
    left: u32,
    /// When the last page is in DRAM.
    ready: Ps,
    /// The io knows already that it is done (early completion).
    told: bool,
    /// It is the log, which the host writes (software NDS).
    log: bool,
    failed: bool,
}

/// What commands of the store share.
#[derive(Debug, Default)]
pub(super) struct SpaceState {
    places: Option<Places>,
    jobs: u64,
    /// Ios that wait for room in their queue.
    pub(super) backlog: Vec<VecDeque<u32>>,
    done: VecDeque<JobDone>,
    programs: u64,
    settling: VecDeque<u32>,
    /// Blocks of a segment that are still to be erased.
    erasing: BTreeMap<u32, u32>,
    blocked: Vec<Operation>,
    chunks: slab::Slab<Chunk>,
    dirty_bytes: u64,
}

#[derive(Debug)]
pub(super) struct Chunk {
    job: u32,
    steps: Vec<Step>,
    left: u32,
    programming: bool,
}

impl Machine {
    /// Says where the store's pages lie; before its first command.
    pub fn attach_store(&mut self, places: Places) {
        self.space.places = Some(places);
    }

    /// The host gives a command that asked for this, on a queue.
    ///
    /// # Panics
    /// If no store is attached, or time is past `now`.
    pub fn submit_job(&mut self, now: Ps, kind: JobKind, queue: u32, footprint: Footprint) -> JobId {
        assert!(self.space.places.is_some(), "a command of a store that is not attached");
        self.space.backlog.resize(self.description.host.queues as usize, VecDeque::new());
        self.space.jobs += 1;
        let id = JobId(self.space.jobs);
        let job = Job::new(id, kind, queue % self.description.host.queues, now, footprint);
        let job = self.jobs.insert(job) as u32;
        self.events.push(now, Event::Given(job));
        id
    }

    /// The host begins with a command.
    pub(super) fn given(&mut self, now: Ps, job: u32) {
        self.background(now, job);
        let j = &self.jobs[job as usize];
        let (kind, parts, queue) = (j.kind, j.pieces.len() as u32, j.queue);
        if self.description.controller.spaces_in_device {
            let way = match kind {
                JobKind::Read => Way::Read,
                JobKind::Write => Way::Write,
                JobKind::Other => Way::Neither,
            };
            // One more than there are parts: the log, or its absence.
            let io = Io { asked_by: For::Job(job), way, queue, submitted: now, parts_left: parts + 1 };
            // Nothing of the job happens before its entry has crossed the link: it may learn of its io afterwards.
            let io = self.submit_io(now, io);
            self.jobs[job as usize].io = Some(io);
        } else {
            self.host_work(now, job);
        }
    }

    /// Lets time pass until a command is done.
    ///
    /// # Panics
    /// If it never is: nothing waits that could end it.
    pub fn run_job(&mut self, id: JobId) -> JobDone {
        loop {
            if let Some(at) = self.space.done.iter().position(|d| d.id == id) {
                return self.space.done.remove(at).expect("it was found there");
            }
            assert!(self.step(), "nothing waits, and command {id:?} is not done");
        }
    }

    /// The command that was done first among those not asked for yet, letting time pass until there is one; `None` when
    /// nothing is on its way.
    pub fn next_job(&mut self) -> Option<JobDone> {
        loop {
            if let Some(done) = self.space.done.pop_front() {
                return Some(done);
            }
            if !self.step() {
                return None;
            }
        }
    }

    /// Lets everything end that is on its way, in the background too.
    pub fn settle(&mut self) {
        while self.step() {}
        assert!(self.jobs.is_empty() && self.parts.is_empty(), "something was left on its way");
        self.check();
    }

    fn places(&self) -> Places {
        self.space.places.expect("a store is attached")
    }

    // The device's side of a command (hardware NDS) -------------------------------------------------------------------

    pub(super) fn job_decoded(&mut self, now: Ps, job: u32) {
        self.start_parts(now, job);
        self.pieces_progress(now, job);
    }

    /// Starts as many blocks as may be on their way.
    fn start_parts(&mut self, now: Ps, job: u32) {
        let room = match self.description.dram.bytes {
            0 => u64::MAX,
            bytes => bytes / 4,
        };
        loop {
            let j = &mut self.jobs[job as usize];
            if j.next == j.pieces.len() || j.open >= PARTS_AT_ONCE || (j.open > 0 && j.open_bytes >= room) {
                return;
            }
            let (piece, from) = (j.pieces[j.next], j.next.checked_sub(1).map_or(0, |i| j.pieces[i].steps_end));
            j.next += 1;
            j.open += 1;
            j.open_bytes += piece.bytes;
            j.waiting += 1;
            let way = j.way(from, piece.steps_end);
            // What a flush writes is in the device already.
            let at = if j.kind == JobKind::Write { At::Down } else { At::Translated };
            let io = j.io;
            let steps = Steps::Of { from, to: piece.steps_end };
            self.start_part(now, Part { io, way, steps, runs: piece.runs, bytes: piece.bytes, at, ..Part::new(job) });
        }
    }

    fn start_part(&mut self, now: Ps, part: Part) {
        let index = self.parts.insert(part) as u32;
        if part.at == At::Down {
            let sent = self.send(now, Direction::Down, part.bytes, "data");
            self.events.push(sent.end, Event::DataDown(index));
        } else {
            self.enter(now, index, part.at);
        }
    }

    pub(super) fn data_down(&mut self, now: Ps, part: u32) {
        self.enter(now, part, At::Landed);
    }

    /// A part comes to a station: when it will leave it is booked now.
    fn enter(&mut self, now: Ps, part: u32, at: At) {
        self.parts[part as usize].at = at;
        let p = self.parts[part as usize];
        let c = &self.description.controller;
        let (t_assemble, t_translate, t_allocate) = (c.t_assemble * p.runs, c.t_translate_block, c.t_allocate);
        let leaves = match at {
            At::Down => unreachable!("the link tells when data is down"),
            At::Landed => self.through_dram(now, p.bytes, "data in", Cause::Host),
            At::Scattered | At::Gathered => {
                self.stages.run(Stage::Assemble, now, t_assemble, Cause::Host, &mut self.spans)
            }
            At::Translated => self.stages.run(Stage::Translate, now, t_translate, Cause::Host, &mut self.spans),
            At::Allocated => {
                let pages = self.count(&p, Op::Program);
                self.stages.run(Stage::Allocate, now, t_allocate * pages, Cause::Host, &mut self.spans)
            }
            At::Reading => return self.issue_part(now, part, Op::Read),
            At::Programming => return self.issue_part(now, part, Op::Program),
            At::Leaving if !c.spaces_in_device && self.description.dram.read_crossings == 0 => {
                return self.leave(now, part);
            }
            At::Leaving => {
                let ready = self.through_dram(now, p.bytes, "data out", Cause::Host);
                if ready > now {
                    self.events.push(ready, Event::Staged(part));
                    return;
                }
                return self.leave(now, part);
            }
            At::Delivered => return self.delivered(now, part),
        };
        if leaves == now { self.leave(now, part) } else { self.events.push(leaves, Event::Staged(part)) }
    }

    pub(super) fn staged(&mut self, now: Ps, part: u32) {
        self.leave(now, part);
    }

    /// A part leaves a station for the next.
    fn leave(&mut self, now: Ps, part: u32) {
        let p = self.parts[part as usize];
        let next = match (p.at, p.way) {
            (At::Landed, _) => {
                self.tell_early(now, part);
                At::Scattered
            }
            (At::Scattered, _) => At::Translated,
            (At::Translated, Way::Write) => At::Allocated,
            (At::Translated | At::Allocated, _) => At::Reading,
            (At::Reading, Way::Write) => At::Programming,
            (At::Reading, _) => At::Gathered,
            (At::Gathered, _) => At::Leaving,
            (At::Leaving, _) => {
                self.parts[part as usize].at = At::Delivered;
                if p.bytes == 0 {
                    return self.delivered(now, part);
                }
                let sent = self.send(now, Direction::Up, p.bytes, "data");
                self.events.push(sent.end, Event::Delivered(part));
                return;
            }
            (At::Programming, _) => At::Delivered,
            (At::Down | At::Delivered, _) => unreachable!("a part that is not at a station leaves it: {p:?}"),
        };
        self.enter(now, part, next);
    }

    /// A write is complete for the host once it is in the device's write cache, if there is one and it has room.
    fn tell_early(&mut self, now: Ps, part: u32) {
        let ftl = &self.description.ftl;
        let bytes = self.parts[part as usize].bytes;
        if ftl.early_completion && self.space.dirty_bytes + bytes <= ftl.write_cache_bytes {
            self.space.dirty_bytes += bytes;
            self.parts[part as usize].told = true;
            let p = self.parts[part as usize];
            if let Some(io) = p.io {
                self.io_progress(now, io);
            }
            if !matches!(p.steps, Steps::One(_)) {
                self.jobs[p.job as usize].waiting -= 1;
                self.pieces_progress(now, p.job);
            }
        }
    }

    fn steps_of(&self, part: &Part) -> Vec<Step> {
        match part.steps {
            Steps::Of { from, to } | Steps::Extents { from, to } => {
                self.jobs[part.job as usize].steps[from..to].to_vec()
            }
            Steps::One(step) => vec![step],
        }
    }

    fn count(&self, part: &Part, op: Op) -> u64 {
        self.steps_of(part).iter().filter(|s| s.op == op).map(|s| u64::from(s.pages)).sum()
    }

    fn issue_part(&mut self, now: Ps, part: u32, op: Op) {
        let steps = self.steps_of(&self.parts[part as usize]);
        let wanted: Vec<Step> = steps.into_iter().filter(|s| s.op == op).collect();
        let pages: u32 = wanted.iter().map(|s| s.pages).sum();
        self.parts[part as usize].left = pages;
        self.parts[part as usize].ready = now;
        if pages == 0 {
            return self.leave(now, part);
        }
        self.issue_steps(now, &wanted, Waiting::Part(part));
    }

    fn issue_steps(&mut self, now: Ps, steps: &[Step], waiting: Waiting) {
        let places = self.places();
        let page = places.store().page_bytes;
        for step in steps {
            for i in 0..step.pages {
                let place = places.place(nandarray::flash::Ppa(step.first.0 + u64::from(i)));
                let bytes = if i + 1 == step.pages { step.last_bytes } else { page };
                let operation = Operation { op: step.op, cause: step.cause, place, bytes, token: waiting.token(bytes) };
                if step.op == Op::Program {
                    self.space.programs += 1;
                    if self.space.erasing.contains_key(&place.block) {
                        self.space.blocked.push(operation);
                        continue;
                    }
                }
                self.issue(now, operation);
            }
        }
    }

    fn program_ended(&mut self, now: Ps) {
        self.space.programs -= 1;
        if self.space.programs == 0 {
            for job in std::mem::take(&mut self.space.settling) {
                self.write_log(now, job);
            }
        }
    }

    pub(super) fn part_operation_ended(&mut self, now: Ps, part: u32, bytes: u32, outcome: Outcome) {
        let reads = self.parts[part as usize].at == At::Reading;
        if reads {
            // What the device assembles lies in its DRAM; pages for a host that assembles them itself may stream past.
            let in_device = self.description.controller.spaces_in_device;
            let crosses = in_device || self.description.dram.read_crossings == 2;
            let there = if crosses { self.through_dram(now, u64::from(bytes), "page", Cause::Host) } else { now };
            let p = &mut self.parts[part as usize];
            p.ready = p.ready.max(there);
            p.failed |= outcome == Outcome::Uncorrectable;
        }
        let p = &mut self.parts[part as usize];
        p.left -= 1;
        let (last, ready) = (p.left == 0, p.ready.max(now));
        if last {
            if ready == now { self.leave(now, part) } else { self.events.push(ready, Event::Staged(part)) }
        }
        if !reads {
            self.program_ended(now);
        }
    }

    pub(super) fn delivered(&mut self, now: Ps, part: u32) {
        let p = self.parts.remove(part as usize);
        if p.told {
            self.space.dirty_bytes -= p.bytes;
        }
        if let (Some(io), false) = (p.io, p.told) {
            if p.failed {
                if let For::Extent { whole, .. } = self.ios[io as usize].asked_by {
                    self.parts[whole as usize].failed = true;
                }
            }
            self.io_progress(now, io);
        }
        if matches!(p.steps, Steps::One(_)) {
            // An extent: the host sees what it makes whole when its io is done.
            return;
        }
        let job = p.job;
        let j = &mut self.jobs[job as usize];
        j.failed |= p.failed;
        if p.log {
            return self.logged(now, job);
        }
        j.open -= 1;
        j.open_bytes -= p.bytes;
        j.waiting -= u32::from(!p.told);
        if self.description.controller.spaces_in_device {
            self.start_parts(now, job);
        }
        self.pieces_progress(now, job);
        self.forget(job);
    }

    /// When all blocks are done: the log, once everything before it is safe.
    fn pieces_progress(&mut self, now: Ps, job: u32) {
        let j = &mut self.jobs[job as usize];
        let left = if j.settle { j.open } else { j.waiting };
        if j.phase != Phase::Moving || j.next < j.pieces.len() || left > 0 {
            return;
        }
        j.phase = Phase::Settling;
        if !j.settle || self.space.programs == 0 {
            self.write_log(now, job);
        } else {
            self.space.settling.push_back(job);
        }
    }

    fn write_log(&mut self, now: Ps, job: u32) {
        let j = &mut self.jobs[job as usize];
        assert_eq!(j.phase, Phase::Settling, "the log is written once");
        j.phase = Phase::Logging;
        let log = std::mem::take(&mut j.log);
        j.log_left = log.iter().map(|s| s.pages).sum();
        if j.log_left == 0 {
            return self.logged(now, job);
        }
        if !self.description.controller.spaces_in_device {
            // The host reads and writes the log as it does blocks, whose runs are none.
            let from = j.steps.len();
            j.steps.extend(log);
            let (way, steps) = (Way::Write, Steps::Extents { from, to: j.steps.len() });
            let whole = self.parts.insert(Part { way, steps, log: true, ..Part::new(job) }) as u32;
            return self.host_piece(now, whole);
        }
        let (reads, programs): (Vec<_>, Vec<_>) = log.into_iter().partition(|s| s.op == Op::Read);
        self.issue_steps(now, &reads, Waiting::LogRead(job));
        self.issue_steps(now, &programs, Waiting::Log(job));
    }

    pub(super) fn log_operation_ended(&mut self, now: Ps, job: u32, op: Op) {
        if op == Op::Program {
            self.program_ended(now);
        }
        let j = &mut self.jobs[job as usize];
        j.log_left -= 1;
        if j.log_left == 0 {
            self.logged(now, job);
        }
    }

    fn logged(&mut self, now: Ps, job: u32) {
        match self.jobs[job as usize].io {
            Some(io) => self.io_progress(now, io),
            None => self.job_done(now, job),
        }
    }

    pub(super) fn job_done(&mut self, now: Ps, job: u32) {
        let j = &mut self.jobs[job as usize];
        j.phase = Phase::Done;
        let done =
            JobDone { id: j.id, kind: j.kind, bytes: j.bytes, submitted: j.submitted, done: now, failed: j.failed };
        self.totals.job(&done);
        self.space.done.push_back(done);
        self.forget(job);
    }

    fn forget(&mut self, job: u32) {
        let Some(j) = self.jobs.get(job as usize) else { return };
        if j.phase == Phase::Done && j.background.is_empty() && j.chunks_left == 0 && j.open == 0 {
            self.jobs.remove(job as usize);
        }
    }

    // The background of a command ---------------------------------------------------------------------------------------

    fn background(&mut self, now: Ps, job: u32) {
        loop {
            let j = &mut self.jobs[job as usize];
            match j.background.front() {
                Some(Background::Chunk(_)) if j.chunks_left < CHUNKS_AT_ONCE => {
                    let Some(Background::Chunk(steps)) = j.background.pop_front() else { unreachable!() };
                    j.chunks_left += 1;
                    let chunk = self.space.chunks.insert(Chunk { job, steps, left: 0, programming: false }) as u32;
                    self.chunk_next(now, chunk, Op::Read);
                }
                Some(&Background::Erase(segment)) if j.chunks_left == 0 => {
                    j.background.pop_front();
                    self.erase(now, segment);
                }
                _ => return,
            }
        }
    }

    /// Erases a segment's blocks. A nearly full store may free a segment again before its last erase has ended in modelled
    /// time: this erase then waits for that one, behind the programs that came in between.
    fn erase(&mut self, now: Ps, segment: u32) {
        let places = self.places();
        let waits = match self.space.erasing.entry(segment) {
            Entry::Occupied(_) => true,
            Entry::Vacant(free) => {
                free.insert(places.planes());
                false
            }
        };
        for lane in 0..places.planes() {
            let place = places.block(segment, lane);
            let token = Waiting::Erase(segment).token(0);
            let operation = Operation { op: Op::Erase, cause: Cause::Gc, place, bytes: 0, token };
            if waits {
                self.space.blocked.push(operation);
            } else {
                self.issue(now, operation);
            }
        }
    }

    fn chunk_next(&mut self, now: Ps, chunk: u32, op: Op) {
        let c = &mut self.space.chunks[chunk as usize];
        c.programming = op == Op::Program;
        let steps: Vec<Step> = c.steps.iter().filter(|s| s.op == op).copied().collect();
        c.left = steps.iter().map(|s| s.pages).sum();
        if c.left == 0 {
            return self.chunk_stage_over(now, chunk);
        }
        self.issue_steps(now, &steps, Waiting::Chunk(chunk));
    }

    pub(super) fn chunk_operation_ended(&mut self, now: Ps, chunk: u32) {
        let c = &mut self.space.chunks[chunk as usize];
        c.left -= 1;
        let (over, programming) = (c.left == 0, c.programming);
        if over {
            self.chunk_stage_over(now, chunk);
        }
        if programming {
            self.program_ended(now);
        }
    }

    fn chunk_stage_over(&mut self, now: Ps, chunk: u32) {
        if !self.space.chunks[chunk as usize].programming {
            return self.chunk_next(now, chunk, Op::Program);
        }
        let job = self.space.chunks.remove(chunk as usize).job;
        self.jobs[job as usize].chunks_left -= 1;
        self.background(now, job);
        self.forget(job);
    }

    pub(super) fn erase_ended(&mut self, now: Ps, segment: u32) {
        let left = self.space.erasing.get_mut(&segment).expect("an erase of a segment that is being erased");
        *left -= 1;
        if *left > 0 {
            return;
        }
        self.space.erasing.remove(&segment);
        // Programs that waited go first; the next erase of the segment, if there is one, holds back what came behind it.
        let planes = self.places().planes();
        let mut erases = 0;
        for operation in std::mem::take(&mut self.space.blocked) {
            let erase = operation.op == Op::Erase;
            let goes = operation.place.block == segment && if erase { erases < planes } else { erases == 0 };
            if !goes {
                self.space.blocked.push(operation);
                continue;
            }
            erases += u32::from(erase);
            self.issue(now, operation);
        }
        assert!(erases == 0 || erases == planes, "{erases} of {planes} blocks of segment {segment} are erased again");
        if erases > 0 {
            self.space.erasing.insert(segment, planes);
        }
    }
}

impl Part {
    fn new(job: u32) -> Self {
        Self {
            job,
            io: None,
            way: Way::Read,
            steps: Steps::Of { from: 0, to: 0 },
            runs: 0,
            bytes: 0,
            at: At::Translated,
            left: 0,
            ready: Ps::ZERO,
            told: false,
            log: false,
            failed: false,
        }
    }
}

impl Job {
    /// Which way some of its steps go.
    fn way(&self, from: usize, to: usize) -> Way {
        let programs = self.steps[from..to].iter().any(|s| s.op == Op::Program);
        if self.kind == JobKind::Write || programs { Way::Write } else { Way::Read }
    }

    /// Sorts what a command asked for: blocks, what reclaim moved, the log.
    fn new(id: JobId, kind: JobKind, queue: u32, now: Ps, footprint: Footprint) -> Self {
        let (mut steps, mut pieces, mut log) = (Vec::new(), Vec::new(), Vec::new());
        let mut background: VecDeque<Background> = VecDeque::new();
        let mut ends = footprint.pieces.iter().copied().peekable();
        let mut freed = footprint.freed.iter().copied().peekable();
        let mut see = |before: usize, steps: &Vec<Step>, background: &mut VecDeque<Background>| {
            while let Some(piece) = ends.next_if(|p| p.steps_end <= before) {
                pieces.push(Piece { steps_end: steps.len(), ..piece });
            }
            while let Some((_, segment)) = freed.next_if(|(at, _)| *at <= before) {
                background.push_back(Background::Erase(segment));
            }
        };
        let last_piece = footprint.pieces.last().map_or(0, |p| p.steps_end);
        let mut rest = Vec::new();
        for (i, &step) in footprint.steps.iter().enumerate() {
            see(i, &steps, &mut background);
            match step.cause {
                Cause::Map => log.push(step),
                Cause::Gc | Cause::Wear => match background.back_mut() {
                    Some(Background::Chunk(chunk))
                        if step.op == Op::Program || chunk.last().is_some_and(|s| s.op == Op::Read) =>
                    {
                        chunk.push(step);
                    }
                    _ => background.push_back(Background::Chunk(vec![step])),
                },
                Cause::Host if i < last_piece => steps.push(step),
                // Units that had gathered, written by a flush: blocks of their own, whose bytes came before.
                Cause::Host => rest.push(step),
            }
        }
        see(footprint.steps.len(), &steps, &mut background);
        for step in rest {
            steps.push(step);
            pieces.push(Piece { steps_end: steps.len(), runs: 0, bytes: 0 });
        }
        let bytes = pieces.iter().map(|p| p.bytes).sum();
        Self {
            id,
            kind,
            queue,
            submitted: now,
            steps,
            pieces,
            settle: footprint.barriers > 0,
            log,
            background,
            chunks_left: 0,
            phase: Phase::Moving,
            next: 0,
            open: 0,
            open_bytes: 0,
            waiting: 0,
            log_left: 0,
            bytes,
            io: None,
            failed: false,
            composed: Vec::new(),
        }
    }
}
