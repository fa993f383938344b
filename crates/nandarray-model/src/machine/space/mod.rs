//! Commands of the store on the modelled clock: building blocks pass through the NDS pipeline, in the device or on the
//! host.
//!
//! Hardware NDS (paper, section 5.3): each command of the store is one command on the link (an io). The device
//! translates block by block, reads or programs the pages, assembles the data in DRAM, and sends one block while the
//! next is read. Software NDS (section 5.2): the host translates, and reads or writes each extent of a block by a
//! separate io; whole pages cross the link, and a host core copies the runs. Either way:
//!
//! ```text
//! read    translate -> flash reads -> DRAM -> assemble -> link up            (one part a block, pipelined)
//! write   link down -> DRAM -> assemble -> translate -> allocate -> flash reads (of what is kept) -> programs
//! log     once everything programmed so far is in the flash: the journal's pages, or the checkpoint's
//! ```
//!
//! Reclaim's moves go on in the background, a few chunks (reads, then programs) at a time. Segments that became empty
//! are erased afterwards, and programs into these segments wait for the erase. Writes of the log are charged as whole
//! pages.
//!
//! | file | one idea |
//! | --- | --- |
//! | `mod` | the client: jobs, and the stages of their blocks |
//! | `events` | its events, and what waits for operations and commands |
//! | `job` | a command's operations and state |
//! | `part` | a block's share of a command, from stage to stage |
//! | `software` | the host's share, where it translates |
//! | `flash` | pages and segments of the store: programs counted, erases in order, chunks of reclaim |
//!
//! The files below `mod` do not call it: they return what has happened, and the client acts on that.

mod events;
mod flash;
mod job;
mod part;
mod software;

use std::collections::{BTreeSet, VecDeque};

pub(crate) use events::{SpaceEvent, SpaceRequester, SpaceWaiter};
use flash::StoreFlash;
use job::{Background, JobPhase, SpaceJob};
pub use job::{SpaceJobDone, SpaceJobId, SpaceJobKind};
use part::{PartOps, PartStage, SpacePart};

use super::clients::{Client, OperationEnded, Requester};
use super::fabric::{ClientContext, Fabric};
use super::host_io::{Io, IoDirection};
use super::stages::FirmwareStage;
use crate::describe::CorePlacement;
use crate::flash::{OpCause, OpKind, OpOutcome};
use crate::flash_trace::{ExtentOp, FlashTrace, StoreLayout};
use crate::host::Direction;
use nandarray_sim::Ps;

/// Maximum number of a job's reclaim chunks in flight.
const CHUNKS_AT_ONCE: u32 = 8;
/// Maximum number of a command's blocks in flight, if DRAM has room for them.
const PARTS_AT_ONCE: u32 = 64;

/// The client that executes the commands of one store.
#[derive(Debug)]
pub(crate) struct SpaceClient {
    flash: StoreFlash,
    jobs: slab::Slab<SpaceJob>,
    parts: slab::Slab<SpacePart>,
    submitted: u64,
    /// Jobs that wait to write their pages of the log (journal or checkpoint) until [`Self::may_log`] allows it.
    settling: VecDeque<u32>,
    /// Ages of the jobs with a barrier whose pages of the log are not written yet.
    barriers: BTreeSet<u64>,
    dirty_bytes: u64,
    done: VecDeque<SpaceJobDone>,
    /// Blocks of programs' inputs that have arrived in the device's memory and were not reported yet: the input and
    /// the block's index.
    arrived: VecDeque<(SpaceJobId, usize)>,
}

impl Client for SpaceClient {
    type Event = SpaceEvent;
    type Waiter = SpaceWaiter;
    type Requester = SpaceRequester;

    fn handle(&mut self, ctx: &mut ClientContext<'_>, now: Ps, event: SpaceEvent) {
        match event {
            SpaceEvent::Submitted(job) => self.submitted(ctx, now, job),
            SpaceEvent::CoordinatesAsked(io) => {
                let bytes = u64::from(ctx.fabric.description.controller.coordinates_bytes);
                let sent = ctx.fabric.send_entry(now, Direction::Down, bytes, "coordinates");
                ctx.push(sent.end, SpaceEvent::CoordinatesThere(io));
            }
            SpaceEvent::CoordinatesThere(io) => self.coordinates_there(ctx, now, io),
            SpaceEvent::Translating(job) => self.job_decoded(ctx, now, job),
            SpaceEvent::DataDown(part) => self.enter(ctx, now, part, PartStage::Landed),
            SpaceEvent::Staged(part) => self.staged(ctx, now, part),
            SpaceEvent::Delivered(part) => self.delivered(ctx, now, part),
            SpaceEvent::HostWork(job) => self.host_work(ctx, now, job),
            SpaceEvent::HostBlock(part) => self.host_block(ctx, now, part),
            SpaceEvent::Credited(job) => {
                // A job whose remaining pages were cancelled may have ended.
                let Some(j) = self.jobs.get_mut(job as usize) else { return };
                let Some(pages) = j.credits_due.pop_front() else { return };
                j.credits += pages;
                self.start_parts(ctx, now, job);
                self.forget(job);
            }
        }
    }

    fn operation_ended(&mut self, ctx: &mut ClientContext<'_>, now: Ps, waiter: SpaceWaiter, ended: OperationEnded) {
        match waiter {
            SpaceWaiter::Part(part) => self.part_operation_ended(ctx, now, part, ended),
            SpaceWaiter::Chunk(chunk) => {
                let progress = self.flash.chunk_operation_ended(ctx.fabric, now, chunk);
                if let Some(job) = progress.over {
                    let j = &mut self.jobs[job as usize];
                    assert!(j.chunks_left > 0, "{:?} has no chunk in flight", j.id);
                    j.chunks_left -= 1;
                    self.background(ctx, now, job);
                    self.forget(job);
                }
                if let Some(age) = progress.programmed {
                    self.program_ended(ctx, now, age);
                }
            }
            SpaceWaiter::Log(job) | SpaceWaiter::LogRead(job) => {
                if ended.op == OpKind::Program {
                    let age = self.age(job);
                    self.program_ended(ctx, now, age);
                }
                let j = &mut self.jobs[job as usize];
                assert!(
                    j.log_left > 0 && j.phase == JobPhase::Logging,
                    "a page of the log of {:?}: {:?}",
                    j.id,
                    j.phase
                );
                j.log_left -= 1;
                if j.log_left == 0 {
                    self.logged(ctx, now, job);
                }
            }
            SpaceWaiter::Erase(segment) => self.flash.erase_ended(ctx.fabric, now, segment),
        }
    }

    fn decoded(&mut self, ctx: &mut ClientContext<'_>, now: Ps, io: u32, requester: SpaceRequester) {
        let coordinates = ctx.fabric.description.controller.coordinates_bytes > 0;
        match requester {
            SpaceRequester::Job(_) if coordinates && ctx.io.direction(io) != IoDirection::Neither => {
                // A read of host memory begins with a request message without payload.
                let sent = ctx.fabric.send_entry(now, Direction::Up, 0, "coordinates");
                ctx.push(sent.end, SpaceEvent::CoordinatesAsked(io));
            }
            SpaceRequester::Job(job) => self.job_decoded(ctx, now, job),
            SpaceRequester::Extent { parent, extent } => {
                let direction = ctx.io.direction(io);
                let at = if direction == IoDirection::Write { PartStage::Down } else { PartStage::Translated };
                let bytes = u64::from(extent.pages) * u64::from(self.flash.page_bytes());
                let SpacePart { job, age, .. } = self.parts[parent as usize];
                let part = SpacePart::new(job, age);
                self.start_part(
                    ctx,
                    now,
                    SpacePart { io: Some(io), direction, ops: PartOps::One(extent), bytes, at, ..part },
                );
            }
        }
    }

    fn reaped(&mut self, ctx: &mut ClientContext<'_>, now: Ps, requester: SpaceRequester) {
        match requester {
            SpaceRequester::Job(job) => self.job_done(ctx, now, job),
            SpaceRequester::Extent { parent, .. } => {
                let p = &mut self.parts[parent as usize];
                assert!(p.left > 0, "an extent too many was reaped: {p:?}");
                p.left -= 1;
                if p.left == 0 {
                    self.host_block(ctx, now, parent);
                }
            }
        }
    }

    fn is_still(&self) -> bool {
        self.parts.is_empty()
    }

    fn check_at_rest(&self) {
        assert!(self.jobs.is_empty() && self.parts.is_empty(), "a command of the store was left in flight");
        assert!(self.settling.is_empty() && self.dirty_bytes == 0, "a log was left to write, or a write to end");
    }

    fn code(event: SpaceEvent) -> (u64, u32) {
        event.code()
    }
}

impl SpaceClient {
    /// Makes a client without commands, for a store with this layout.
    pub(super) fn new(layout: StoreLayout) -> Self {
        Self {
            flash: StoreFlash::new(layout),
            jobs: slab::Slab::new(),
            parts: slab::Slab::new(),
            submitted: 0,
            settling: VecDeque::new(),
            dirty_bytes: 0,
            done: VecDeque::new(),
            barriers: BTreeSet::new(),
            arrived: VecDeque::new(),
        }
    }

    /// Returns the next block of a program's input that has arrived, each once; `None` if there is none.
    pub(super) fn take_arrived(&mut self) -> Option<(SpaceJobId, usize)> {
        self.arrived.pop_front()
    }

    /// Submits a command of the host, with its flash trace, at the present or future time `at`.
    pub(super) fn submit(
        &mut self,
        fabric: &mut Fabric,
        at: Ps,
        kind: SpaceJobKind,
        queue: u32,
        trace: FlashTrace,
    ) -> SpaceJobId {
        self.submitted += 1;
        let id = SpaceJobId(self.submitted);
        let job = SpaceJob::new(id, kind, queue % fabric.description.host.queues, at, trace);
        if job.settle {
            self.barriers.insert(id.0);
        }
        let job = self.jobs.insert(job) as u32;
        fabric.push(at, super::Event::Client(SpaceEvent::Submitted(job).into()));
        id
    }

    /// Returns the next completion, each once; `None` if there is none.
    pub(super) fn take_done(&mut self) -> Option<SpaceJobDone> {
        self.done.pop_front()
    }

    /// Returns the completion of one command, once; `None` if it is not completed.
    pub(super) fn take_done_of(&mut self, id: SpaceJobId) -> Option<SpaceJobDone> {
        let at = self.done.iter().position(|done| done.id == id)?;
        self.done.remove(at)
    }

    /// Begins a submitted command: sends it over the link, or starts its blocks where it needs no command on the link.
    fn submitted(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) {
        let j = &self.jobs[job as usize];
        assert!(j.submitted == now && j.next == 0, "{:?} is submitted at {now}, not at {}", j.id, j.submitted);
        self.background(ctx, now, job);
        let j = &self.jobs[job as usize];
        let (parts, queue) = (j.blocks.len() as u32, j.queue);
        let direction = match j.kind {
            SpaceJobKind::Read => IoDirection::Read,
            SpaceJobKind::Write => IoDirection::Write,
            SpaceJobKind::Other => IoDirection::Neither,
            kind if kind.is_programs() => return self.job_decoded(ctx, now, job),
            kind => unreachable!("{kind:?} is a program's"),
        };
        if !ctx.fabric.description.controller.spaces_in_device {
            return self.host_work(ctx, now, job);
        }
        // One more than the number of blocks: the last stands for the log, even if that is empty.
        let requester = Requester::SpaceClient(SpaceRequester::Job(job));
        let io = Io::new(requester, direction, queue, parts + 1);
        // No event of the job happens before its entry has crossed the link, so its io can be set afterwards.
        let io = ctx.io.submit(ctx.fabric, now, io);
        self.jobs[job as usize].io = Some(io);
    }

    // The device's side of a command (hardware NDS) -------------------------------------------------------------------

    /// Books the command handler again, once the coordinates of a command are in the device.
    fn coordinates_there(&mut self, ctx: &mut ClientContext<'_>, now: Ps, io: u32) {
        let Requester::SpaceClient(SpaceRequester::Job(job)) = ctx.io.requester(io) else {
            unreachable!("only jobs have coordinates")
        };
        let t_command = ctx.fabric.description.controller.t_command;
        let at = ctx.fabric.run_stage(FirmwareStage::Command, now, t_command);
        if at == now { self.job_decoded(ctx, now, job) } else { ctx.push(at, SpaceEvent::Translating(job)) }
    }

    fn job_decoded(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) {
        self.jobs[job as usize].begun = true;
        self.start_parts(ctx, now, job);
        self.blocks_progress(ctx, now, job);
        self.forget(job);
    }

    /// Starts further blocks of a job, as many as may be in flight. A block without pages may be delivered before this
    /// returns, which calls this again: the outer call then starts the blocks that follow, and the job stays at least
    /// until it returns.
    fn start_parts(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) {
        if std::mem::replace(&mut self.jobs[job as usize].starting, true) {
            return;
        }
        while let Some(part) = self.next_part(ctx, job) {
            self.start_part(ctx, now, part);
        }
        self.jobs[job as usize].starting = false;
    }

    /// Returns the part for a job's next block; `None` if there is none, or no further one may be in flight.
    fn next_part(&mut self, ctx: &ClientContext<'_>, job: u32) -> Option<SpacePart> {
        let room = match ctx.fabric.description.dram.bytes {
            0 => u64::MAX,
            bytes => bytes / 4,
        };
        let age = self.age(job);
        let j = &mut self.jobs[job as usize];
        let by_credit = j.kind.core().is_some();
        if j.next == j.blocks.len() || by_credit && j.credits == 0 {
            return None;
        }
        if !by_credit && (j.open >= PARTS_AT_ONCE || (j.open > 0 && j.open_bytes >= room)) {
            return None;
        }
        j.credits = j.credits.saturating_sub(1);
        let (block, from) = j.start_block();
        let direction = j.direction(from, block.ops_end);
        // Pages that a flush writes are already in the device.
        let at = match j.kind {
            SpaceJobKind::Write => PartStage::Down,
            SpaceJobKind::Output => PartStage::Scattered,
            // The first page of a block has the block translated.
            SpaceJobKind::Input if block.runs == 0 && block.bytes > 0 => PartStage::Reading,
            SpaceJobKind::Read | SpaceJobKind::Other | SpaceJobKind::Input => PartStage::Translated,
            SpaceJobKind::Stream { .. } if block.runs > 0 => PartStage::Translated,
            SpaceJobKind::Stream { .. } => PartStage::Reading,
            SpaceJobKind::Feed { .. } => PartStage::Crossing,
            SpaceJobKind::Pass { .. } => PartStage::Passing,
        };
        let (io, number) = (j.io, j.next - 1);
        let ops = PartOps::Of { from, to: block.ops_end };
        let (runs, bytes) = (block.runs, block.bytes);
        Some(SpacePart { io, number, direction, ops, runs, bytes, at, ..SpacePart::new(job, age) })
    }

    fn start_part(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: SpacePart) {
        let index = self.parts.insert(part) as u32;
        if part.at == PartStage::Down {
            let sent = ctx.fabric.send(now, Direction::Down, part.bytes, "data");
            ctx.push(sent.end, SpaceEvent::DataDown(index));
        } else {
            self.enter(ctx, now, index, part.at);
        }
    }

    /// Moves a part into stage `at`, and books the time until the end of that stage.
    fn enter(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32, at: PartStage) {
        let (left, before) = (self.parts[part as usize].left, self.parts[part as usize].at);
        assert!(
            left == 0 && before != PartStage::Delivered,
            "from {before:?} to {at:?} with {left} operations in flight"
        );
        self.parts[part as usize].at = at;
        let p = self.parts[part as usize];
        let fabric = &mut *ctx.fabric;
        let c = &fabric.description.controller;
        let (t_assemble, t_translate, t_allocate) = (c.t_assemble * p.runs, c.t_translate_block, c.t_allocate);
        let leaves = match at {
            PartStage::Down => unreachable!("the link has an event for the arrival of data"),
            PartStage::Landed => fabric.through_dram(now, p.bytes, "data in", OpCause::Host),
            PartStage::Scattered | PartStage::Gathered => fabric.run_stage(FirmwareStage::Assemble, now, t_assemble),
            PartStage::Translated => fabric.run_stage(FirmwareStage::Translate, now, t_translate),
            PartStage::Allocated => {
                let pages = self.count(&p, OpKind::Program);
                fabric.run_stage(FirmwareStage::Allocate, now, t_allocate * pages)
            }
            PartStage::Reading => return self.issue_part(ctx, now, part, OpKind::Read),
            PartStage::Programming => return self.issue_part(ctx, now, part, OpKind::Program),
            PartStage::Leaving if !c.spaces_in_device && fabric.description.dram.read_crossings == 0 => {
                return self.leave(ctx, now, part);
            }
            PartStage::Leaving => fabric.through_dram(now, p.bytes, "data out", OpCause::Host),
            PartStage::Crossing => {
                let core = self.jobs[p.job as usize].kind.core().expect("a job that feeds a core");
                let out = fabric.through_dram(now, p.bytes, "data out", OpCause::Host);
                out.max(fabric.through_crossbar(now, core, p.bytes, "page"))
            }
            PartStage::Passing => {
                let core = self.jobs[p.job as usize].kind.core().expect("a job that feeds a core");
                fabric.pages_between_cores += 1;
                fabric.through_crossbar(now, core, p.bytes, "page")
            }
            PartStage::Delivered => return self.delivered(ctx, now, part),
        };
        self.parts[part as usize].lines_ahead = ctx.fabric.dram.ahead();
        if leaves == now { self.leave(ctx, now, part) } else { ctx.push(leaves, SpaceEvent::Staged(part)) }
    }

    /// Ends the current stage of a part, or postpones the end if DRAM has meanwhile served cache lines ahead of its
    /// bytes.
    fn staged(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let p = &mut self.parts[part as usize];
        let ahead = ctx.fabric.dram.ahead();
        let late = ahead.since(std::mem::replace(&mut p.lines_ahead, ahead));
        let moves = [PartStage::Landed, PartStage::Reading, PartStage::Leaving, PartStage::Crossing].contains(&p.at);
        if moves && late > Ps::ZERO {
            ctx.push(now + late, SpaceEvent::Staged(part))
        } else {
            self.leave(ctx, now, part)
        }
    }

    /// Moves a part from its stage to the next.
    fn leave(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let p = self.parts[part as usize];
        if p.at == PartStage::Landed {
            self.complete_early(ctx, now, part);
        }
        let kind = self.kind_of(&p);
        let to_core = p.at == PartStage::Gathered && kind == Some(SpaceJobKind::Input);
        let past = p.at == PartStage::Reading && kind.and_then(SpaceJobKind::core).is_some();
        let next = if past { PartStage::Delivered } else { p.next_stage(to_core) };
        if p.at == PartStage::Leaving && p.bytes > 0 {
            self.parts[part as usize].at = next;
            let sent = ctx.fabric.send(now, Direction::Up, p.bytes, "data");
            return ctx.push(sent.end, SpaceEvent::Delivered(part));
        }
        self.enter(ctx, now, part, next);
    }

    /// Completes a write early if the device's write cache has room for its data.
    fn complete_early(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        assert!(
            !self.parts[part as usize].completed_early,
            "a part is completed once: {:?}",
            self.parts[part as usize]
        );
        let ftl = &ctx.fabric.description.ftl;
        let bytes = self.parts[part as usize].bytes;
        if ftl.early_completion && self.dirty_bytes + bytes <= ftl.write_cache_bytes {
            self.dirty_bytes += bytes;
            self.parts[part as usize].completed_early = true;
            let p = self.parts[part as usize];
            if let Some(io) = p.io {
                ctx.io_progress(now, io);
            }
            if !matches!(p.ops, PartOps::One(_)) {
                let j = &mut self.jobs[p.job as usize];
                assert!(j.waiting > 0, "{:?} waits for no part, and one is complete: {p:?}", j.id);
                j.waiting -= 1;
                self.blocks_progress(ctx, now, p.job);
            }
        }
    }

    /// Returns the kind of a part's job; `None` if the job has ended before its part, an extent in the write cache.
    fn kind_of(&self, part: &SpacePart) -> Option<SpaceJobKind> {
        self.jobs.get(part.job as usize).filter(|job| job.id.0 == part.age).map(|job| job.kind)
    }

    fn ops_of(&self, part: &SpacePart) -> Vec<ExtentOp> {
        match part.ops {
            PartOps::Of { from, to } | PartOps::Extents { from, to } => {
                self.jobs[part.job as usize].ops[from..to].to_vec()
            }
            PartOps::One(extent) => vec![extent],
        }
    }

    fn count(&self, part: &SpacePart, op: OpKind) -> u64 {
        self.ops_of(part).iter().filter(|s| s.op == op).map(|s| u64::from(s.pages)).sum()
    }

    fn issue_part(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32, op: OpKind) {
        let ops = self.ops_of(&self.parts[part as usize]);
        let wanted: Vec<ExtentOp> = ops.into_iter().filter(|s| s.op == op).collect();
        let pages: u32 = wanted.iter().map(|s| s.pages).sum();
        self.parts[part as usize].left = pages;
        self.parts[part as usize].ready = now;
        if pages == 0 {
            return self.leave(ctx, now, part);
        }
        let age = self.parts[part as usize].age;
        self.flash.issue(ctx.fabric, now, age, &wanted, SpaceWaiter::Part(part));
    }

    /// Returns the age of a job: its number in order of submission.
    fn age(&self, job: u32) -> u64 {
        self.jobs[job as usize].id.0
    }

    /// Counts the end of a program of the job of this age, and writes the log pages that waited for it. Programs of
    /// younger jobs hold no log pages back, so that a stream of writes does not delay a flush for ever.
    fn program_ended(&mut self, ctx: &mut ClientContext<'_>, now: Ps, age: u64) {
        if self.flash.program_ended(age) {
            self.write_logs(ctx, now);
        }
    }

    /// Whether a job's pages of the log may be written. A barrier waits for all programs of its job and of older jobs,
    /// and for older barriers, since a log record states which pages were durable when it was made.
    fn may_log(&self, job: u32) -> bool {
        let j = &self.jobs[job as usize];
        let is_next = j.log.is_empty() || self.barriers.first().is_none_or(|&oldest| oldest >= j.id.0);
        is_next && (!j.settle || self.flash.is_settled(j.id.0))
    }

    /// Writes the log pages of jobs that need not wait any longer.
    fn write_logs(&mut self, ctx: &mut ClientContext<'_>, now: Ps) {
        for job in std::mem::take(&mut self.settling) {
            if self.may_log(job) {
                self.write_log(ctx, now, job);
            } else {
                self.settling.push_back(job);
            }
        }
    }

    fn part_operation_ended(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32, ended: OperationEnded) {
        let reads = self.parts[part as usize].at == PartStage::Reading;
        let age = self.parts[part as usize].age;
        if reads {
            // Data that the device assembles lies in its DRAM; pages for a host that assembles them itself may bypass
            // DRAM.
            let d = &ctx.fabric.description;
            let crosses = d.controller.spaces_in_device || d.dram.read_crossings == 2;
            let bytes = u64::from(ended.bytes);
            let there = match self.kind_of(&self.parts[part as usize]).and_then(SpaceJobKind::core) {
                Some(core) => self.bring_to_core(ctx, now, part, core, bytes),
                None if crosses => ctx.fabric.through_dram(now, bytes, "page", OpCause::Host),
                None => now,
            };
            let ahead = ctx.fabric.dram.ahead();
            let p = &mut self.parts[part as usize];
            p.ready = p.ready.max(there);
            p.lines_ahead = ahead;
            p.failed |= ended.outcome == OpOutcome::Uncorrectable;
        }
        let p = &mut self.parts[part as usize];
        let is_issued = p.left > 0 && matches!(p.at, PartStage::Reading | PartStage::Programming);
        assert!(is_issued, "an operation ended of {p:?}");
        p.left -= 1;
        let (last, ready) = (p.left == 0, p.ready.max(now));
        if last {
            if ready == now { self.leave(ctx, now, part) } else { ctx.push(ready, SpaceEvent::Staged(part)) }
        }
        if !reads {
            self.program_ended(ctx, now, age);
        }
    }

    /// Books the transfer of a page from its channel to a core, without passing DRAM unless the core belongs to
    /// another channel; returns its end.
    fn bring_to_core(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32, core: u32, bytes: u64) -> Ps {
        let fabric = &mut *ctx.fabric;
        let compute = fabric.description.compute.as_ref().expect("a device with cores");
        let own = match compute.placement {
            CorePlacement::Crossbar => true,
            CorePlacement::Channel => {
                let ops = self.ops_of(&self.parts[part as usize]);
                let channel = ops.first().map(|op| self.flash.channel(fabric, op));
                channel.is_none_or(|channel| channel % compute.cores == core)
            }
        };
        if own {
            fabric.pages_past_dram.0 += 1;
            return fabric.through_crossbar(now, core, bytes, "page");
        }
        fabric.pages_past_dram.1 += 1;
        let there = fabric.through_dram(now, bytes, "page", OpCause::Host);
        there.max(fabric.through_dram(now, bytes, "data out", OpCause::Host))
    }

    /// Allows a job that is fed by credits to start `pages` more of its pages from time `at` on.
    pub(super) fn credit(&mut self, ctx: &mut ClientContext<'_>, now: Ps, at: Ps, id: SpaceJobId, pages: u64) {
        let found = self.jobs.iter_mut().find(|(_, j)| j.id == id);
        let (job, j) = found.expect("a job that has pages to start is in flight");
        if at > now {
            j.credits_due.push_back(pages);
            return ctx.push(at, SpaceEvent::Credited(job as u32));
        }
        j.credits += pages;
        if j.begun {
            self.start_parts(ctx, now, job as u32);
            self.forget(job as u32);
        }
    }

    /// Cancels the pages that a job has not started; the job ends when the started ones have arrived.
    pub(super) fn give_up(&mut self, ctx: &mut ClientContext<'_>, now: Ps, id: SpaceJobId) {
        let Some((job, j)) = self.jobs.iter_mut().find(|(_, j)| j.id == id) else { return };
        if j.phase != JobPhase::Moving {
            return;
        }
        // Credits granted later find nothing to start.
        j.blocks.truncate(j.next);
        j.ops.truncate(j.blocks.last().map_or(0, |block| block.ops_end));
        if j.begun {
            self.blocks_progress(ctx, now, job as u32);
            self.forget(job as u32);
        }
    }

    fn delivered(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let p = self.parts.remove(part as usize);
        assert_eq!(p.left, 0, "delivered with operations in flight: {p:?}");
        if p.completed_early {
            assert!(self.dirty_bytes >= p.bytes, "{} bytes in the write cache, without {p:?}", self.dirty_bytes);
            self.dirty_bytes -= p.bytes;
        }
        if let (Some(io), false) = (p.io, p.completed_early) {
            if p.failed {
                if let Requester::SpaceClient(SpaceRequester::Extent { parent, .. }) = ctx.io.requester(io) {
                    self.parts[parent as usize].failed = true;
                }
            }
            ctx.io_progress(now, io);
        }
        if matches!(p.ops, PartOps::One(_)) {
            // The part that stands for the whole block continues when the extent's command is reaped.
            return;
        }
        let job = p.job;
        let j = &mut self.jobs[job as usize];
        if j.kind == SpaceJobKind::Input || j.kind.core().is_some() {
            self.arrived.push_back((j.id, p.number));
        }
        j.failed |= p.failed;
        if p.log {
            return self.logged(ctx, now, job);
        }
        assert!(j.open > 0 && j.open_bytes >= p.bytes, "{:?} has {} parts of {} bytes", j.id, j.open, j.open_bytes);
        assert!(p.completed_early || j.waiting > 0, "{:?} waits for no part, and one is delivered: {p:?}", j.id);
        j.open -= 1;
        j.open_bytes -= p.bytes;
        j.waiting -= u32::from(!p.completed_early);
        if j.kind.is_programs() || ctx.fabric.description.controller.spaces_in_device {
            self.start_parts(ctx, now, job);
        }
        self.blocks_progress(ctx, now, job);
        self.forget(job);
    }

    /// Writes a job's pages of the log once all its blocks are done and [`Self::may_log`] allows it.
    fn blocks_progress(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) {
        let j = &mut self.jobs[job as usize];
        let left = if j.settle { j.open } else { j.waiting };
        if j.phase != JobPhase::Moving || j.next < j.blocks.len() || left > 0 {
            return;
        }
        j.phase = JobPhase::Settling;
        if self.may_log(job) {
            self.write_log(ctx, now, job);
        } else {
            self.settling.push_back(job);
            self.give_way(ctx, now, job);
        }
    }

    /// Gives back the command slot of a job that waits for an older barrier whose command is still on the host or in
    /// its queue. That barrier might otherwise find all slots taken by commands that wait for it.
    fn give_way(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) {
        let j = &self.jobs[job as usize];
        let (Some(io), false) = (j.io, j.log.is_empty()) else { return };
        let is_outside = |other: &SpaceJob| {
            let is_older_barrier = other.id.0 < j.id.0 && self.barriers.contains(&other.id.0);
            is_older_barrier && other.io.is_none_or(|io| !ctx.io.is_fetched(io))
        };
        if self.jobs.iter().any(|(_, other)| is_outside(other)) {
            self.jobs[job as usize].gave_way = true;
            ctx.io.give_way(ctx.fabric, now, io);
        }
    }

    fn write_log(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) {
        let j = &mut self.jobs[job as usize];
        assert_eq!(j.phase, JobPhase::Settling, "the log is written once");
        j.phase = JobPhase::Logging;
        if std::mem::take(&mut j.gave_way) {
            ctx.io.take_slot_again();
        }
        let log = std::mem::take(&mut j.log);
        j.log_left = log.iter().map(|s| s.pages).sum();
        if j.log_left == 0 {
            return self.logged(ctx, now, job);
        }
        if !ctx.fabric.description.controller.spaces_in_device {
            // The host reads and writes the log like a block without runs.
            let from = j.ops.len();
            j.ops.extend(log);
            let (direction, ops) = (IoDirection::Write, PartOps::Extents { from, to: j.ops.len() });
            let parent =
                self.parts.insert(SpacePart { direction, ops, log: true, ..SpacePart::new(job, self.age(job)) }) as u32;
            return self.host_reads(ctx, now, parent);
        }
        let (reads, programs): (Vec<_>, Vec<_>) = log.into_iter().partition(|s| s.op == OpKind::Read);
        let age = self.age(job);
        self.flash.issue(ctx.fabric, now, age, &reads, SpaceWaiter::LogRead(job));
        self.flash.issue(ctx.fabric, now, age, &programs, SpaceWaiter::Log(job));
    }

    fn logged(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) {
        assert_eq!(self.jobs[job as usize].phase, JobPhase::Logging, "a log is written once");
        if self.barriers.remove(&self.age(job)) {
            self.write_logs(ctx, now);
        }
        match self.jobs[job as usize].io {
            Some(io) => ctx.io_progress(now, io),
            None => self.job_done(ctx, now, job),
        }
    }

    fn job_done(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) {
        let j = &mut self.jobs[job as usize];
        assert_eq!(j.phase, JobPhase::Logging, "{:?} is done once", j.id);
        j.phase = JobPhase::Done;
        let done = SpaceJobDone {
            id: j.id,
            kind: j.kind,
            bytes: j.bytes,
            submitted: j.submitted,
            done: now,
            failed: j.failed,
        };
        ctx.fabric.totals.job(&done);
        self.done.push_back(done);
        self.forget(job);
    }

    fn forget(&mut self, job: u32) {
        let Some(j) = self.jobs.get(job as usize) else { return };
        assert!(j.chunks_left <= CHUNKS_AT_ONCE && j.next <= j.blocks.len(), "{:?}: {} chunks", j.id, j.chunks_left);
        let is_idle = j.background.is_empty() && j.chunks_left == 0 && j.open == 0;
        if j.phase == JobPhase::Done && is_idle && !j.starting {
            self.jobs.remove(job as usize);
        }
    }

    /// Advances the background work of a command: chunks of reclaim, then erases of the segments that these emptied.
    fn background(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) {
        loop {
            let j = &mut self.jobs[job as usize];
            match j.background.front() {
                Some(Background::Chunk(_)) if j.chunks_left < CHUNKS_AT_ONCE => {
                    let Some(Background::Chunk(ops)) = j.background.pop_front() else { unreachable!() };
                    let age = j.id.0;
                    if !self.flash.start_chunk(ctx.fabric, now, (job, age), ops) {
                        self.jobs[job as usize].chunks_left += 1;
                    }
                }
                Some(&Background::Erase(segment)) if j.chunks_left == 0 => {
                    j.background.pop_front();
                    self.flash.erase(ctx.fabric, now, segment);
                }
                _ => return,
            }
        }
    }

    // The host's side (software NDS)
    // --------------------------------------------------------------------------------------

    /// Translates the next block of a job on the host, or ends the job's translation.
    fn host_work(&mut self, ctx: &mut ClientContext<'_>, now: Ps, job: u32) {
        if !self.host_translates(ctx, now, job) {
            self.blocks_progress(ctx, now, job);
        }
    }

    /// Starts the next step of a block that the host has translated or copied, or that the device has read or written.
    fn host_block(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        match self.parts[part as usize].at {
            PartStage::Translated => self.host_reads(ctx, now, part),
            PartStage::Reading => self.host_copies(ctx, now, part),
            PartStage::Scattered => self.composed(ctx, now, part),
            _ => self.delivered(ctx, now, part),
        }
    }

    /// Programs a block that the host has composed: now, or once all blocks of its command are composed.
    fn composed(&mut self, ctx: &mut ClientContext<'_>, now: Ps, part: u32) {
        let p = self.parts[part as usize];
        let j = &mut self.jobs[p.job as usize];
        let together = !p.log && j.kind == SpaceJobKind::Write && ctx.fabric.description.host.composes_commands;
        let ready = if together {
            j.composed.push(part);
            assert!(j.composed.len() <= j.blocks.len(), "{} blocks of {:?} are composed", j.composed.len(), j.id);
            if j.composed.len() < j.blocks.len() {
                return;
            }
            std::mem::take(&mut j.composed)
        } else {
            vec![part]
        };
        for part in ready {
            if !self.host_programs(ctx, now, part) {
                self.delivered(ctx, now, part);
            }
        }
    }
}

#[cfg(test)]
mod tests;
