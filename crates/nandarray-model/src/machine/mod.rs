//! One modelled device and its host: every part joined, and what is asked for on its way through them.
//!
//! ```text
//! request / job        what the user asked for: a block request of a trace, a command of the store
//!   io                 one command on the link: submitted, fetched, decoded, completed, noticed by the host
//!     part             a page or a building block of it: translated, read or programmed, moved
//!       operation      one page or block of the flash
//! ```
//!
//! | file | one idea |
//! | --- | --- |
//! | `io` | the life of a command on the link |
//! | `block` | conventional requests: logical pages, flash management |
//! | `cached` | the write cache in front of them |
//! | `program` | programs of pages: done, failed, done elsewhere |
//! | `flush` | what a flush waits for |
//! | `reclaim` | moving pages in the background of conventional requests |
//! | `space` | commands of the store: building blocks, in the device or on the host |
//! | `stages` | firmware stages and cores |
//! | `drive` | where requests come from, and how deep |
//! | `sleep` | idle states: falling asleep, waking |
//! | `account` | what came out, and that it adds up |
//!
//! The machine pops an event, tells the part that it belongs to, and folds it into the hash of the run: the same description,
//! seed and requests give the same hash on every machine.

mod account;
mod block;
mod cached;
mod drive;
mod flush;
mod io;
mod program;
mod reclaim;
mod sleep;
mod space;
mod stages;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use slab::Slab;

use crate::describe::Description;
use crate::events::Events;
use crate::flash::{Backend, Cause, Cells, Ended, FlashEvent, NandCells, Op, Operation, Outcome, Place};
use crate::host::{Direction, HostCpu, HostLink, Port, Queues, Sent};
use crate::spans::{Span, Spans};
use crate::time::Ps;

pub use account::Totals;
pub use block::{Ended as RequestEnded, Status};
pub use drive::Progress;
pub use space::{JobDone, JobId, JobKind};
pub use stages::Stage;

use io::Io;
use space::{Job, Part};
use stages::Stages;

/// What happens next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Something in the flash.
    Flash(FlashEvent),
    /// A doorbell reaches the device.
    Doorbell(u32),
    /// A command's entry is in the controller.
    Arrived(u32),
    /// The command handler has decoded an io.
    Decoded(u32),
    /// The device's request for a command's coordinates reaches the host's memory.
    CoordinatesAsked(u32),
    /// They are in the device.
    CoordinatesThere(u32),
    /// The command handler is done with a command of the store that it took up again.
    Translating(u32),
    /// A part's data is in the device.
    DataDown(u32),
    /// A part's turn at a stage is over; the part knows which.
    Staged(u32),
    /// A channel handler issues an operation.
    Issue(u32),
    /// A part's bytes are with the host, or safe in the device.
    Delivered(u32),
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
    /// One thing less to wait for before an io is finished.
    Progress(u32),
    /// A request arrives.
    Arrival,
    /// An io is through with everything but telling so.
    Finished(u32),
    /// A completion's entry is in the host's memory.
    Completed(u32),
    /// A host core takes a completion.
    Noticed(u32),
    /// The host has its answer.
    Reaped(u32),
    /// The host begins with a job.
    Given(u32),
    /// A host core may take up a job's next block.
    HostWork(u32),
    /// A host core has translated or copied a block.
    HostPiece(u32),
    /// The device is awake for what woke it.
    Awake,
}

impl From<FlashEvent> for Event {
    fn from(event: FlashEvent) -> Self {
        Self::Flash(event)
    }
}

impl Event {
    /// A number for the hash of the run.
    fn code(self) -> u64 {
        match self {
            Self::Flash(event) => flash_code(event),
            Self::Doorbell(i) => 1 << 40 | u64::from(i),
            Self::Arrived(i) => 2 << 40 | u64::from(i),
            Self::Decoded(i) => 3 << 40 | u64::from(i),
            Self::DataDown(i) => 4 << 40 | u64::from(i),
            Self::Staged(i) => 5 << 40 | u64::from(i),
            Self::Issue(i) => 6 << 40 | u64::from(i),
            Self::Delivered(i) => 7 << 40 | u64::from(i),
            Self::Finished(i) => 8 << 40 | u64::from(i),
            Self::Completed(i) => 9 << 40 | u64::from(i),
            Self::Noticed(i) => 10 << 40 | u64::from(i),
            Self::Reaped(i) => 11 << 40 | u64::from(i),
            Self::Given(i) => 14 << 40 | u64::from(i),
            Self::HostWork(i) => 12 << 40 | u64::from(i),
            Self::RequestData(i) => 15 << 40 | u64::from(i),
            Self::RequestCut(i) => 16 << 40 | u64::from(i),
            Self::Page(i) => 17 << 40 | u64::from(i),
            Self::PageUp(i) => 18 << 40 | u64::from(i),
            Self::PageDone(i) => 19 << 40 | u64::from(i),
            Self::Progress(i) => 20 << 40 | u64::from(i),
            Self::Arrival => 21 << 40,
            Self::HostPiece(i) => 13 << 40 | u64::from(i),
            Self::CoordinatesAsked(i) => 22 << 40 | u64::from(i),
            Self::CoordinatesThere(i) => 23 << 40 | u64::from(i),
            Self::Translating(i) => 24 << 40 | u64::from(i),
            Self::Awake => 25 << 40,
        }
    }
}

fn flash_code(event: FlashEvent) -> u64 {
    match event {
        FlashEvent::Kick(i) => 32 << 40 | u64::from(i),
        FlashEvent::BusFree(i) => 33 << 40 | u64::from(i),
        FlashEvent::ArrayDone(i) => 34 << 40 | u64::from(i),
        FlashEvent::CacheReady(i) => 35 << 40 | u64::from(i),
        FlashEvent::Decoded(i) => 36 << 40 | u64::from(i),
        FlashEvent::HoldOver(i) => 37 << 40 | u64::from(i),
    }
}

/// For whom a flash operation is, packed into its token: the kind, a number, and the bytes that crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// A part.
    Part(u32),
    /// A chunk of reclaim of a job of the store.
    Chunk(u32),
    /// Log pages that a job of the store programs.
    Log(u32),
    /// Log pages that it reads.
    LogRead(u32),
    /// An erase of a segment of the store.
    Erase(u32),
    /// A page of a conventional request.
    Page(u32),
    /// A program of conventional flash management, which knows who waits.
    Program(u32),
    /// A page that reclaim reads.
    Move(u32),
    /// A page that reclaim programs, by its plane: only within `Program`.
    MoveTo(u32),
    /// A block that reclaim erases, by its plane.
    Block(u32),
    /// Nobody.
    Nobody,
}

impl Waiting {
    fn token(self, bytes: u32) -> u64 {
        let (kind, number) = match self {
            Self::Part(n) => (0, n),
            Self::Chunk(n) => (1, n),
            Self::Log(n) => (2, n),
            Self::Erase(n) => (3, n),
            Self::LogRead(n) => (4, n),
            Self::Page(n) => (5, n),
            Self::Program(n) => (6, n),
            Self::Move(n) => (7, n),
            Self::MoveTo(n) => (8, n),
            Self::Block(n) => (9, n),
            Self::Nobody => (10, 0),
        };
        debug_assert!(bytes < 1 << 24);
        kind << 56 | u64::from(bytes) << 32 | u64::from(number)
    }

    fn of(token: u64) -> (Self, u32) {
        let (number, bytes) = (token as u32, (token >> 32) as u32 & 0xff_ffff);
        let waiting = match token >> 56 {
            0 => Self::Part(number),
            1 => Self::Chunk(number),
            2 => Self::Log(number),
            3 => Self::Erase(number),
            4 => Self::LogRead(number),
            5 => Self::Page(number),
            6 => Self::Program(number),
            7 => Self::Move(number),
            9 => Self::Block(number),
            10 => Self::Nobody,
            other => panic!("a token of kind {other}"),
        };
        (waiting, bytes)
    }
}

/// One taker of spans for all parts.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Box<dyn Spans>>>);

impl Shared {
    fn new(spans: Box<dyn Spans>) -> Self {
        Self(Arc::new(Mutex::new(spans)))
    }
}

impl Spans for Shared {
    fn span(&mut self, span: Span) {
        self.0.lock().span(span);
    }
}

/// What was in the flash when the power failed.
#[derive(Clone, Debug, Default)]
pub struct Programmed {
    /// Programs of each page that had ended.
    pub ended: BTreeMap<Place, u32>,
    /// Modelled time.
    pub at: Ps,
}

/// Waits for a moment to fail at.
#[derive(Debug, Default)]
struct Power {
    events_left: u64,
    now: Programmed,
    failed: Option<Programmed>,
}

/// A device and its host under the modelled clock.
pub struct Machine {
    description: Description,
    events: Events<Event>,
    flash: Backend,
    ended: Vec<Ended>,
    cpu: HostCpu,
    link: HostLink,
    queues: Queues<u32>,
    stages: Stages,
    dram: Port,
    ios: Slab<Io>,
    parts: Slab<Part>,
    jobs: Slab<Job>,
    issued: Slab<Operation>,
    in_device: u32,
    block: Option<Box<block::BlockState>>,
    space: space::SpaceState,
    sleep: sleep::Sleep,
    spans: Option<Shared>,
    power: Option<Power>,
    seed: u64,
    hash: u64,
    totals: Totals,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("name", &self.description.name)
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

impl Power {
    fn tick(&mut self, now: Ps) {
        if self.failed.is_none() {
            if self.events_left == 0 {
                self.failed = Some(Programmed { at: now, ..self.now.clone() });
            } else {
                self.events_left -= 1;
            }
        }
    }
}

impl Machine {
    /// A device at rest, at time 0.
    ///
    /// Busy times are told to `spans`.
    pub fn new(description: &Description, seed: u64, spans: Option<Box<dyn Spans>>) -> Self {
        Self::with_cells(description, seed, spans, Box::new(NandCells::new(description, seed)))
    }

    /// The same over other cells: faults ([`crate::flash::fault`]) around those of the description.
    pub fn with_cells(
        description: &Description,
        seed: u64,
        spans: Option<Box<dyn Spans>>,
        cells: Box<dyn Cells>,
    ) -> Self {
        let d = description;
        let spans = spans.map(Shared::new);
        Self {
            events: Events::default(),
            flash: Backend::with_cells(d, cells, spans.clone().map(|s| Box::new(s) as Box<dyn Spans>)),
            ended: Vec::new(),
            cpu: HostCpu::new(&d.host, &d.energy),
            link: HostLink::new(&d.link, &d.energy),
            queues: Queues::new(d.host.queues, d.host.queue_entries, &d.host.arbitration),
            stages: Stages::new(&d.controller, &d.energy),
            dram: Port::dram(&d.dram, &d.energy),
            ios: Slab::new(),
            parts: Slab::new(),
            jobs: Slab::new(),
            issued: Slab::new(),
            in_device: 0,
            block: None,
            space: space::SpaceState::default(),
            sleep: sleep::Sleep::new(&d.idle_states),
            spans,
            power: None,
            seed,
            hash: 0x6e61_6e64_6172_7261,
            totals: Totals::default(),
            description: description.clone(),
        }
    }

    /// What the machine was made from.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Modelled time: that of the last event.
    pub fn now(&self) -> Ps {
        self.events.now()
    }

    /// Events that have happened or wait.
    pub fn events(&self) -> u64 {
        self.events.pushed()
    }

    /// Two runs with the same hash did the same things at the same times.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Lets the power fail when so many more events have happened. Time goes on, for whoever wants to know what would have
    /// been; [`Machine::power_failed`] tells what was in the flash then.
    pub fn fail_power_after(&mut self, events: u64) {
        self.power = Some(Power { events_left: events, ..Power::default() });
    }

    /// What was in the flash when the power failed; `None` if it has not.
    pub fn power_failed(&self) -> Option<&Programmed> {
        self.power.as_ref()?.failed.as_ref()
    }

    /// Lets the next thing happen; `false` if nothing waits.
    pub(crate) fn step(&mut self) -> bool {
        let Some((now, event)) = self.events.pop() else { return false };
        if let Some(power) = &mut self.power {
            power.tick(now);
        }
        self.hash =
            (self.hash ^ now.0 ^ event.code().rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        match event {
            Event::Flash(event) => {
                let mut ended = std::mem::take(&mut self.ended);
                self.flash.handle(now, event, &mut self.events, &mut ended);
                for one in ended.drain(..) {
                    self.operation_ended(now, one);
                }
                self.ended = ended;
                if self.block.as_ref().is_some_and(|b| !b.postponed.is_empty()) {
                    self.resume_postponed(now);
                }
            }
            Event::Doorbell(queue) => self.doorbell(now, queue),
            Event::Arrived(io) => self.arrived(now, io),
            Event::Decoded(io) => self.decoded(now, io),
            Event::CoordinatesAsked(io) => self.coordinates_asked(now, io),
            Event::CoordinatesThere(io) => self.coordinates_there(now, io),
            Event::Translating(job) => self.job_decoded(now, job),
            Event::DataDown(part) => self.data_down(now, part),
            Event::Staged(part) => self.staged(now, part),
            Event::Issue(operation) => {
                let operation = self.issued.remove(operation as usize);
                self.flash.submit(now, operation, &mut self.events);
            }
            Event::Delivered(part) => self.delivered(now, part),
            Event::Finished(io) => self.finished(now, io),
            Event::Completed(io) => self.completed(now, io),
            Event::Noticed(io) => self.noticed(now, io),
            Event::Reaped(io) => self.reaped(now, io),
            Event::RequestData(io) => self.request_data(now, io),
            Event::RequestCut(io) => self.request_cut(now, io),
            Event::Page(part) => self.page_translated(now, part),
            Event::PageUp(part) => self.page_leaves(now, part),
            Event::PageDone(part) => self.page_done(now, part),
            Event::Progress(io) => self.io_progress(now, io),
            // Whoever drives the machine sees that it is time.
            Event::Arrival => {}
            Event::Given(job) => self.given(now, job),
            Event::HostWork(job) => self.host_work(now, job),
            Event::HostPiece(part) => self.host_piece(now, part),
            Event::Awake => self.fetch(now),
        }
        self.may_rest(now);
        true
    }

    /// Hands an operation to its channel handler, and by it to the flash.
    fn issue(&mut self, now: Ps, operation: Operation) {
        let t_channel = self.description.controller.t_channel;
        let channel = self.description.geometry.channel_of(operation.place.die);
        let at = self.stages.handle_channel(channel, now, t_channel, operation.cause, &mut self.spans);
        if at == now {
            self.flash.submit(now, operation, &mut self.events);
        } else {
            let slot = self.issued.insert(operation) as u32;
            self.events.push(at, Event::Issue(slot));
        }
    }

    fn operation_ended(&mut self, now: Ps, ended: Ended) {
        if let (Some(power), Op::Program) = (&mut self.power, ended.op) {
            *power.now.ended.entry(ended.place).or_default() += 1;
        }
        let (waiting, bytes) = Waiting::of(ended.token);
        match ended.outcome {
            Outcome::Done => {}
            Outcome::Uncorrectable => self.totals.uncorrectable += 1,
            Outcome::Failed => self.totals.failed += 1,
        }
        match waiting {
            Waiting::Part(part) => self.part_operation_ended(now, part, bytes, ended.outcome),
            Waiting::Chunk(chunk) => self.chunk_operation_ended(now, chunk),
            Waiting::Log(job) => self.log_operation_ended(now, job, Op::Program),
            Waiting::LogRead(job) => self.log_operation_ended(now, job, Op::Read),
            Waiting::Erase(segment) => self.erase_ended(now, segment),
            Waiting::Page(page) => self.page_operation_ended(now, page, ended.outcome),
            Waiting::Program(program) => self.program_over(now, program, ended.outcome),
            Waiting::Move(moved) => self.move_read(now, moved, ended.outcome),
            Waiting::Block(plane) => self.block_erased(now, plane, ended.outcome),
            Waiting::MoveTo(_) | Waiting::Nobody => {}
        }
    }

    /// Moves bytes through DRAM; returns when they are there.
    fn through_dram(&mut self, now: Ps, bytes: u64, what: &'static str, cause: Cause) -> Ps {
        let booked = self.dram.transfer(now, bytes);
        if let Some(spans) = &mut self.spans {
            if booked.end > booked.start {
                spans.span(self.dram.span(booked, what, cause, 0));
            }
        }
        booked.end
    }

    /// Sends an entry of a queue, or a request for host memory.
    fn send_entry(&mut self, now: Ps, direction: Direction, bytes: u64, what: &'static str) -> Sent {
        let sent = self.link.send_entry(now, direction, bytes);
        if let Some(spans) = &mut self.spans {
            spans.span(self.link.span(sent, direction, what, Cause::Host, 0));
        }
        sent
    }

    /// Sends bytes over the link.
    fn send(&mut self, now: Ps, direction: Direction, bytes: u64, what: &'static str) -> Sent {
        let sent = self.link.send(now, direction, bytes);
        if let Some(spans) = &mut self.spans {
            spans.span(self.link.span(sent, direction, what, Cause::Host, 0));
        }
        sent
    }
}
