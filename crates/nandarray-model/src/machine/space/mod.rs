//! Commands of the store under the clock: building blocks through the NDS pipeline, in the device or on the host.
//!
//! Hardware NDS (paper, section 5.3): one io a command; the device translates block by block, reads or programs its
//! pages, assembles in DRAM, and sends one block while the next is read. Software NDS (section 5.2): the host
//! translates, asks for each extent of a block by an io of its own, whole pages cross the link, and a host core copies
//! the runs. Either way:
//!
//! ```text
//! read    translate -> flash reads -> DRAM -> assemble -> link up            (one part a block, pipelined)
//! write   link down -> DRAM -> assemble -> translate -> allocate -> flash reads (of what is kept) -> programs
//! log     once everything programmed so far is in the flash: the journal's pages, or the checkpoint's
//! ```
//!
//! What reclaim moved goes on in the background, a few chunks (reads, then programs) at a time; segments that hold
//! nothing any more are erased behind it, and programs into them wait for that. What the log writes is charged whole
//! pages.
//!
//! | file | one idea |
//! | --- | --- |
//! | `mod` | the client: jobs, their blocks from station to station, and what follows from what |
//! | `job` | what a command asked for, and how far it is |
//! | `software` | the host's share, where it translates |
//! | `flash` | pages and segments of the store: programs counted, erases in order, chunks of reclaim |
//!
//! The files below `mod` do not call it: they return what has happened, and the client acts on it.

mod flash;
mod job;
mod software;

use std::collections::{BTreeSet, VecDeque};

use flash::StoreFlash;
use job::{Background, Job, Phase};
pub use job::{JobDone, JobId, JobKind};

use super::clients::{Asker, Client, OperationEnded, Packed};
use super::fabric::{Fabric, Lent};
use super::host_io::{Io, Way};
use super::stages::Stage;
use crate::flash::{OpCause, OpKind, OpOutcome};
use crate::footprint::{Footprint, Places, Step};
use crate::host::Direction;
use nandarray_sim::Ps;

/// Chunks of reclaim that are on their way at once.
const CHUNKS_AT_ONCE: u32 = 8;
/// Blocks of a command that are on their way at once, if DRAM has room for them.
const PARTS_AT_ONCE: u32 = 64;

/// An event of a command of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpaceEvent {
    /// The host begins with a job.
    Given(u32),
    /// The device's request for a command's coordinates reaches the host's memory.
    CoordinatesAsked(u32),
    /// They are in the device.
    CoordinatesThere(u32),
    /// The command handler is done with a job that it took up again.
    Translating(u32),
    /// A part's data is in the device.
    DataDown(u32),
    /// A part's turn at a stage is over; the part knows which.
    Staged(u32),
    /// A part's bytes are with the host, or safe in the device.
    Delivered(u32),
    /// A host core may take up a job's next block.
    HostWork(u32),
    /// A host core has translated or copied a block.
    HostPiece(u32),
}

/// What waits for a flash operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A part.
    Part(u32),
    /// A chunk of reclaim.
    Chunk(u32),
    /// A job that programs pages of the log.
    Log(u32),
    /// A job that reads pages of the log.
    LogRead(u32),
    /// An erase of a segment.
    Erase(u32),
}

impl Packed for Wait {
    fn pack(self) -> (u8, u32) {
        match self {
            Self::Part(n) => (0, n),
            Self::Chunk(n) => (1, n),
            Self::Log(n) => (2, n),
            Self::LogRead(n) => (3, n),
            Self::Erase(n) => (4, n),
        }
    }

    fn unpack(kind: u8, number: u32) -> Self {
        match kind {
            0 => Self::Part(number),
            1 => Self::Chunk(number),
            2 => Self::Log(number),
            3 => Self::LogRead(number),
            4 => Self::Erase(number),
            other => panic!("an operation of kind {other}"),
        }
    }
}

/// What of the store asked for a command on the link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum For {
    /// A job that the device translates.
    Job(u32),
    /// Some consecutive pages for a block of a job that the host translates.
    Extent {
        /// The part that the host made for the block.
        whole: u32,
        /// The pages.
        step: Step,
    },
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
struct Part {
    /// Its job, which may be over before an extent that went into the write cache is programmed.
    job: u32,
    /// The age of its job ([`Spaces::age`]), which outlives the job.
    age: u64,
    /// Its block's place in the job.
    number: usize,
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

impl Part {
    fn new(job: u32, age: u64) -> Self {
        Self {
            job,
            age,
            number: 0,
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

/// Commands of one store.
#[derive(Debug)]
pub(crate) struct Spaces {
    flash: StoreFlash,
    jobs: slab::Slab<Job>,
    parts: slab::Slab<Part>,
    given: u64,
    /// Jobs that write their log once they may ([`Self::may_log`]).
    settling: VecDeque<u32>,
    /// Ages of jobs that make something durable, and have not done so yet.
    barriers: BTreeSet<u64>,
    dirty_bytes: u64,
    done: VecDeque<JobDone>,
    /// Blocks of inputs of programs that are in the device's memory and were not asked for yet.
    arrived: VecDeque<(JobId, usize)>,
}

impl Client for Spaces {
    type Event = SpaceEvent;
    type Waiting = Wait;
    type Asker = For;

    fn happened(&mut self, lent: &mut Lent<'_>, now: Ps, event: SpaceEvent) {
        match event {
            SpaceEvent::Given(job) => self.given(lent, now, job),
            SpaceEvent::CoordinatesAsked(io) => {
                let bytes = u64::from(lent.fabric.description.controller.coordinates_bytes);
                let sent = lent.fabric.send_entry(now, Direction::Down, bytes, "coordinates");
                lent.push(sent.end, SpaceEvent::CoordinatesThere(io));
            }
            SpaceEvent::CoordinatesThere(io) => self.coordinates_there(lent, now, io),
            SpaceEvent::Translating(job) => self.job_decoded(lent, now, job),
            SpaceEvent::DataDown(part) => self.enter(lent, now, part, At::Landed),
            SpaceEvent::Staged(part) => self.leave(lent, now, part),
            SpaceEvent::Delivered(part) => self.delivered(lent, now, part),
            SpaceEvent::HostWork(job) => self.host_work(lent, now, job),
            SpaceEvent::HostPiece(part) => self.host_piece(lent, now, part),
        }
    }

    fn operation_ended(&mut self, lent: &mut Lent<'_>, now: Ps, waiting: Wait, ended: OperationEnded) {
        match waiting {
            Wait::Part(part) => self.part_operation_ended(lent, now, part, ended),
            Wait::Chunk(chunk) => {
                let progress = self.flash.chunk_operation_ended(lent.fabric, now, chunk);
                if let Some(job) = progress.over {
                    self.jobs[job as usize].chunks_left -= 1;
                    self.background(lent, now, job);
                    self.forget(job);
                }
                if let Some(age) = progress.programmed {
                    self.program_ended(lent, now, age);
                }
            }
            Wait::Log(job) | Wait::LogRead(job) => {
                if ended.op == OpKind::Program {
                    let age = self.age(job);
                    self.program_ended(lent, now, age);
                }
                let j = &mut self.jobs[job as usize];
                j.log_left -= 1;
                if j.log_left == 0 {
                    self.logged(lent, now, job);
                }
            }
            Wait::Erase(segment) => self.flash.erase_ended(lent.fabric, now, segment),
        }
    }

    fn decoded(&mut self, lent: &mut Lent<'_>, now: Ps, io: u32, asker: For) {
        let coordinates = lent.fabric.description.controller.coordinates_bytes > 0;
        match asker {
            For::Job(_) if coordinates && lent.io.way(io) != Way::Neither => {
                // A request without payload: what a read of host memory begins with.
                let sent = lent.fabric.send_entry(now, Direction::Up, 0, "coordinates");
                lent.push(sent.end, SpaceEvent::CoordinatesAsked(io));
            }
            For::Job(job) => self.job_decoded(lent, now, job),
            For::Extent { whole, step } => {
                let way = lent.io.way(io);
                let at = if way == Way::Write { At::Down } else { At::Translated };
                let bytes = u64::from(step.pages) * u64::from(self.flash.page_bytes());
                let Part { job, age, .. } = self.parts[whole as usize];
                let part = Part::new(job, age);
                self.start_part(lent, now, Part { io: Some(io), way, steps: Steps::One(step), bytes, at, ..part });
            }
        }
    }

    fn answered(&mut self, lent: &mut Lent<'_>, now: Ps, asker: For) {
        match asker {
            For::Job(job) => self.job_done(lent, now, job),
            For::Extent { whole, .. } => {
                let p = &mut self.parts[whole as usize];
                p.left -= 1;
                if p.left == 0 {
                    self.host_piece(lent, now, whole);
                }
            }
        }
    }

    fn is_still(&self) -> bool {
        self.parts.is_empty()
    }

    fn check_at_rest(&self) {
        assert!(self.jobs.is_empty() && self.parts.is_empty(), "a command of the store was left on its way");
        assert!(self.settling.is_empty() && self.dirty_bytes == 0, "a log was left to write, or a write to end");
    }

    fn code(event: SpaceEvent) -> (u64, u32) {
        match event {
            SpaceEvent::DataDown(part) => (4, part),
            SpaceEvent::Staged(part) => (5, part),
            SpaceEvent::Delivered(part) => (7, part),
            SpaceEvent::HostWork(job) => (12, job),
            SpaceEvent::HostPiece(part) => (13, part),
            SpaceEvent::Given(job) => (14, job),
            SpaceEvent::CoordinatesAsked(io) => (22, io),
            SpaceEvent::CoordinatesThere(io) => (23, io),
            SpaceEvent::Translating(job) => (24, job),
        }
    }
}

impl Spaces {
    /// No command on its way; the store's pages lie at `places`.
    pub(super) fn new(places: Places) -> Self {
        Self {
            flash: StoreFlash::new(places),
            jobs: slab::Slab::new(),
            parts: slab::Slab::new(),
            given: 0,
            settling: VecDeque::new(),
            dirty_bytes: 0,
            done: VecDeque::new(),
            barriers: BTreeSet::new(),
            arrived: VecDeque::new(),
        }
    }

    /// The next block of an input of programs that arrived and was not asked for yet.
    pub(super) fn take_arrived(&mut self) -> Option<(JobId, usize)> {
        self.arrived.pop_front()
    }

    /// The host gives a command that asked for this, at a time to come.
    pub(super) fn submit(
        &mut self,
        fabric: &mut Fabric,
        at: Ps,
        kind: JobKind,
        queue: u32,
        footprint: Footprint,
    ) -> JobId {
        self.given += 1;
        let id = JobId(self.given);
        let job = Job::new(id, kind, queue % fabric.description.host.queues, at, footprint);
        if job.settle {
            self.barriers.insert(id.0);
        }
        let job = self.jobs.insert(job) as u32;
        fabric.push(at, super::Event::Client(SpaceEvent::Given(job).into()));
        id
    }

    /// The next command that was done and not asked for yet.
    pub(super) fn take_done(&mut self) -> Option<JobDone> {
        self.done.pop_front()
    }

    /// The same of one command.
    pub(super) fn take_done_of(&mut self, id: JobId) -> Option<JobDone> {
        let at = self.done.iter().position(|done| done.id == id)?;
        self.done.remove(at)
    }

    /// The host begins with a command.
    fn given(&mut self, lent: &mut Lent<'_>, now: Ps, job: u32) {
        self.background(lent, now, job);
        let j = &self.jobs[job as usize];
        let (parts, queue) = (j.pieces.len() as u32, j.queue);
        let way = match j.kind {
            JobKind::Read => Way::Read,
            JobKind::Write => Way::Write,
            JobKind::Other => Way::Neither,
            JobKind::Input | JobKind::Output => return self.job_decoded(lent, now, job),
        };
        if !lent.fabric.description.controller.spaces_in_device {
            return self.host_work(lent, now, job);
        }
        // One more than there are parts: the log, or its absence.
        let asker = Asker::Spaces(For::Job(job));
        let io = Io { asker, way, queue, submitted: now, parts_left: parts + 1 };
        // Nothing of the job happens before its entry has crossed the link: it may learn of its io afterwards.
        let io = lent.io.submit(lent.fabric, now, io);
        self.jobs[job as usize].io = Some(io);
    }

    // The device's side of a command (hardware NDS) -------------------------------------------------------------------

    /// The command handler takes the command up again, with its coordinates.
    fn coordinates_there(&mut self, lent: &mut Lent<'_>, now: Ps, io: u32) {
        let Asker::Spaces(For::Job(job)) = lent.io.asker(io) else { unreachable!("only jobs have coordinates") };
        let t_command = lent.fabric.description.controller.t_command;
        let at = lent.fabric.run_stage(Stage::Command, now, t_command);
        if at == now { self.job_decoded(lent, now, job) } else { lent.push(at, SpaceEvent::Translating(job)) }
    }

    fn job_decoded(&mut self, lent: &mut Lent<'_>, now: Ps, job: u32) {
        self.start_parts(lent, now, job);
        self.pieces_progress(lent, now, job);
    }

    /// Starts as many blocks as may be on their way.
    fn start_parts(&mut self, lent: &mut Lent<'_>, now: Ps, job: u32) {
        let room = match lent.fabric.description.dram.bytes {
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
            let at = match j.kind {
                JobKind::Write => At::Down,
                JobKind::Output => At::Scattered,
                JobKind::Read | JobKind::Other | JobKind::Input => At::Translated,
            };
            let (io, number) = (j.io, j.next - 1);
            let steps = Steps::Of { from, to: piece.steps_end };
            let part = Part {
                io,
                number,
                way,
                steps,
                runs: piece.runs,
                bytes: piece.bytes,
                at,
                ..Part::new(job, self.age(job))
            };
            self.start_part(lent, now, part);
        }
    }

    fn start_part(&mut self, lent: &mut Lent<'_>, now: Ps, part: Part) {
        let index = self.parts.insert(part) as u32;
        if part.at == At::Down {
            let sent = lent.fabric.send(now, Direction::Down, part.bytes, "data");
            lent.push(sent.end, SpaceEvent::DataDown(index));
        } else {
            self.enter(lent, now, index, part.at);
        }
    }

    /// A part comes to a station: when it will leave it is booked now.
    fn enter(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32, at: At) {
        self.parts[part as usize].at = at;
        let p = self.parts[part as usize];
        let fabric = &mut *lent.fabric;
        let c = &fabric.description.controller;
        let (t_assemble, t_translate, t_allocate) = (c.t_assemble * p.runs, c.t_translate_block, c.t_allocate);
        let leaves = match at {
            At::Down => unreachable!("the link tells when data is down"),
            At::Landed => fabric.through_dram(now, p.bytes, "data in", OpCause::Host),
            At::Scattered | At::Gathered => fabric.run_stage(Stage::Assemble, now, t_assemble),
            At::Translated => fabric.run_stage(Stage::Translate, now, t_translate),
            At::Allocated => {
                let pages = self.count(&p, OpKind::Program);
                fabric.run_stage(Stage::Allocate, now, t_allocate * pages)
            }
            At::Reading => return self.issue_part(lent, now, part, OpKind::Read),
            At::Programming => return self.issue_part(lent, now, part, OpKind::Program),
            At::Leaving if !c.spaces_in_device && fabric.description.dram.read_crossings == 0 => {
                return self.leave(lent, now, part);
            }
            At::Leaving => fabric.through_dram(now, p.bytes, "data out", OpCause::Host),
            At::Delivered => return self.delivered(lent, now, part),
        };
        if leaves == now { self.leave(lent, now, part) } else { lent.push(leaves, SpaceEvent::Staged(part)) }
    }

    /// A part leaves a station for the next.
    fn leave(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let p = self.parts[part as usize];
        let next = match (p.at, p.way) {
            (At::Landed, _) => {
                self.tell_early(lent, now, part);
                At::Scattered
            }
            (At::Scattered, _) => At::Translated,
            (At::Translated, Way::Write) => At::Allocated,
            (At::Translated | At::Allocated, _) => At::Reading,
            (At::Reading, Way::Write) => At::Programming,
            (At::Reading, _) => At::Gathered,
            (At::Gathered, _) if self.jobs[p.job as usize].kind == JobKind::Input => At::Delivered,
            (At::Gathered, _) => At::Leaving,
            (At::Leaving, _) => {
                self.parts[part as usize].at = At::Delivered;
                if p.bytes == 0 {
                    return self.delivered(lent, now, part);
                }
                let sent = lent.fabric.send(now, Direction::Up, p.bytes, "data");
                lent.push(sent.end, SpaceEvent::Delivered(part));
                return;
            }
            (At::Programming, _) => At::Delivered,
            (At::Down | At::Delivered, _) => unreachable!("a part that is not at a station leaves it: {p:?}"),
        };
        self.enter(lent, now, part, next);
    }

    /// A write is complete for the host once it is in the device's write cache, if there is one and it has room.
    fn tell_early(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let ftl = &lent.fabric.description.ftl;
        let bytes = self.parts[part as usize].bytes;
        if ftl.early_completion && self.dirty_bytes + bytes <= ftl.write_cache_bytes {
            self.dirty_bytes += bytes;
            self.parts[part as usize].told = true;
            let p = self.parts[part as usize];
            if let Some(io) = p.io {
                lent.io_progress(now, io);
            }
            if !matches!(p.steps, Steps::One(_)) {
                self.jobs[p.job as usize].waiting -= 1;
                self.pieces_progress(lent, now, p.job);
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

    fn count(&self, part: &Part, op: OpKind) -> u64 {
        self.steps_of(part).iter().filter(|s| s.op == op).map(|s| u64::from(s.pages)).sum()
    }

    fn issue_part(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32, op: OpKind) {
        let steps = self.steps_of(&self.parts[part as usize]);
        let wanted: Vec<Step> = steps.into_iter().filter(|s| s.op == op).collect();
        let pages: u32 = wanted.iter().map(|s| s.pages).sum();
        self.parts[part as usize].left = pages;
        self.parts[part as usize].ready = now;
        if pages == 0 {
            return self.leave(lent, now, part);
        }
        let age = self.parts[part as usize].age;
        self.flash.issue(lent.fabric, now, age, &wanted, Wait::Part(part));
    }

    /// How old a job is: its number among all.
    fn age(&self, job: u32) -> u64 {
        self.jobs[job as usize].id.0
    }

    /// A program of a job of this age has ended: logs may be written that waited for it. Programs of younger jobs hold
    /// no log back, so that a stream of writes does not keep a flush from its end.
    fn program_ended(&mut self, lent: &mut Lent<'_>, now: Ps, age: u64) {
        if self.flash.program_ended(age) {
            self.write_logs(lent, now);
        }
    }

    /// Whether a job's log may be written: what is to be durable comes behind all programs of this job and of older
    /// ones, and no younger log before it, since records tell what was durable when they were made.
    fn may_log(&self, job: u32) -> bool {
        let j = &self.jobs[job as usize];
        let is_next = j.log.is_empty() || self.barriers.first().is_none_or(|&oldest| oldest >= j.id.0);
        is_next && (!j.settle || self.flash.is_settled(j.id.0))
    }

    /// Writes the logs that have waited long enough.
    fn write_logs(&mut self, lent: &mut Lent<'_>, now: Ps) {
        for job in std::mem::take(&mut self.settling) {
            if self.may_log(job) {
                self.write_log(lent, now, job);
            } else {
                self.settling.push_back(job);
            }
        }
    }

    fn part_operation_ended(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32, ended: OperationEnded) {
        let reads = self.parts[part as usize].at == At::Reading;
        let age = self.parts[part as usize].age;
        if reads {
            // What the device assembles lies in its DRAM; pages for a host that assembles them itself may stream past.
            let d = &lent.fabric.description;
            let crosses = d.controller.spaces_in_device || d.dram.read_crossings == 2;
            let bytes = u64::from(ended.bytes);
            let there = if crosses { lent.fabric.through_dram(now, bytes, "page", OpCause::Host) } else { now };
            let p = &mut self.parts[part as usize];
            p.ready = p.ready.max(there);
            p.failed |= ended.outcome == OpOutcome::Uncorrectable;
        }
        let p = &mut self.parts[part as usize];
        p.left -= 1;
        let (last, ready) = (p.left == 0, p.ready.max(now));
        if last {
            if ready == now { self.leave(lent, now, part) } else { lent.push(ready, SpaceEvent::Staged(part)) }
        }
        if !reads {
            self.program_ended(lent, now, age);
        }
    }

    fn delivered(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let p = self.parts.remove(part as usize);
        if p.told {
            self.dirty_bytes -= p.bytes;
        }
        if let (Some(io), false) = (p.io, p.told) {
            if p.failed {
                if let Asker::Spaces(For::Extent { whole, .. }) = lent.io.asker(io) {
                    self.parts[whole as usize].failed = true;
                }
            }
            lent.io_progress(now, io);
        }
        if matches!(p.steps, Steps::One(_)) {
            // An extent: the host sees what it makes whole when its io is done.
            return;
        }
        let job = p.job;
        let j = &mut self.jobs[job as usize];
        if j.kind == JobKind::Input {
            self.arrived.push_back((j.id, p.number));
        }
        j.failed |= p.failed;
        if p.log {
            return self.logged(lent, now, job);
        }
        j.open -= 1;
        j.open_bytes -= p.bytes;
        j.waiting -= u32::from(!p.told);
        if j.kind.is_programs() || lent.fabric.description.controller.spaces_in_device {
            self.start_parts(lent, now, job);
        }
        self.pieces_progress(lent, now, job);
        self.forget(job);
    }

    /// When all blocks are done: the log, once everything before it is safe.
    fn pieces_progress(&mut self, lent: &mut Lent<'_>, now: Ps, job: u32) {
        let j = &mut self.jobs[job as usize];
        let left = if j.settle { j.open } else { j.waiting };
        if j.phase != Phase::Moving || j.next < j.pieces.len() || left > 0 {
            return;
        }
        j.phase = Phase::Settling;
        if self.may_log(job) {
            self.write_log(lent, now, job);
        } else {
            self.settling.push_back(job);
        }
    }

    fn write_log(&mut self, lent: &mut Lent<'_>, now: Ps, job: u32) {
        let j = &mut self.jobs[job as usize];
        assert_eq!(j.phase, Phase::Settling, "the log is written once");
        j.phase = Phase::Logging;
        let log = std::mem::take(&mut j.log);
        j.log_left = log.iter().map(|s| s.pages).sum();
        if j.log_left == 0 {
            return self.logged(lent, now, job);
        }
        if !lent.fabric.description.controller.spaces_in_device {
            // The host reads and writes the log as it does blocks, whose runs are none.
            let from = j.steps.len();
            j.steps.extend(log);
            let (way, steps) = (Way::Write, Steps::Extents { from, to: j.steps.len() });
            let whole = self.parts.insert(Part { way, steps, log: true, ..Part::new(job, self.age(job)) }) as u32;
            return self.host_reads(lent, now, whole);
        }
        let (reads, programs): (Vec<_>, Vec<_>) = log.into_iter().partition(|s| s.op == OpKind::Read);
        let age = self.age(job);
        self.flash.issue(lent.fabric, now, age, &reads, Wait::LogRead(job));
        self.flash.issue(lent.fabric, now, age, &programs, Wait::Log(job));
    }

    fn logged(&mut self, lent: &mut Lent<'_>, now: Ps, job: u32) {
        if self.barriers.remove(&self.age(job)) {
            self.write_logs(lent, now);
        }
        match self.jobs[job as usize].io {
            Some(io) => lent.io_progress(now, io),
            None => self.job_done(lent, now, job),
        }
    }

    fn job_done(&mut self, lent: &mut Lent<'_>, now: Ps, job: u32) {
        let j = &mut self.jobs[job as usize];
        j.phase = Phase::Done;
        let done =
            JobDone { id: j.id, kind: j.kind, bytes: j.bytes, submitted: j.submitted, done: now, failed: j.failed };
        lent.fabric.totals.job(&done);
        self.done.push_back(done);
        self.forget(job);
    }

    fn forget(&mut self, job: u32) {
        let Some(j) = self.jobs.get(job as usize) else { return };
        if j.phase == Phase::Done && j.background.is_empty() && j.chunks_left == 0 && j.open == 0 {
            self.jobs.remove(job as usize);
        }
    }

    /// The background of a command goes on: chunks of reclaim, then erases of what they emptied.
    fn background(&mut self, lent: &mut Lent<'_>, now: Ps, job: u32) {
        loop {
            let j = &mut self.jobs[job as usize];
            match j.background.front() {
                Some(Background::Chunk(_)) if j.chunks_left < CHUNKS_AT_ONCE => {
                    let Some(Background::Chunk(steps)) = j.background.pop_front() else { unreachable!() };
                    let age = j.id.0;
                    if !self.flash.start_chunk(lent.fabric, now, (job, age), steps) {
                        self.jobs[job as usize].chunks_left += 1;
                    }
                }
                Some(&Background::Erase(segment)) if j.chunks_left == 0 => {
                    j.background.pop_front();
                    self.flash.erase(lent.fabric, now, segment);
                }
                _ => return,
            }
        }
    }

    // The host's side (software NDS)
    // --------------------------------------------------------------------------------------

    /// The host takes up the next block of a job.
    fn host_work(&mut self, lent: &mut Lent<'_>, now: Ps, job: u32) {
        if !self.host_translates(lent, now, job) {
            self.pieces_progress(lent, now, job);
        }
    }

    /// A block is translated, copied, or with the device: what is next for it.
    fn host_piece(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        match self.parts[part as usize].at {
            At::Translated => self.host_reads(lent, now, part),
            At::Reading => self.host_copies(lent, now, part),
            At::Scattered => self.composed(lent, now, part),
            _ => self.delivered(lent, now, part),
        }
    }

    /// A block is composed: programmed now, or once all of its command are.
    fn composed(&mut self, lent: &mut Lent<'_>, now: Ps, part: u32) {
        let p = self.parts[part as usize];
        let j = &mut self.jobs[p.job as usize];
        let together = !p.log && j.kind == JobKind::Write && lent.fabric.description.host.composes_commands;
        let ready = if together {
            j.composed.push(part);
            if j.composed.len() < j.pieces.len() {
                return;
            }
            std::mem::take(&mut j.composed)
        } else {
            vec![part]
        };
        for part in ready {
            if !self.host_programs(lent, now, part) {
                self.delivered(lent, now, part);
            }
        }
    }
}
