//! The fabric that all parts of a machine share: flash, DRAM, the link, firmware stages, host cores, the event queue
//! and the spans.
//!
//! The fabric is lent to clients ([`super::clients`]): they book its resources, issue flash operations and push events,
//! and the fabric knows none of them. An operation carries a token that says which client waits for it; when it ends,
//! the machine hands it back to that client.

use std::sync::Arc;

use parking_lot::Mutex;
use slab::Slab;

use super::account::Totals;
use super::clients::{ClientEvent, Waiting};
use super::host_io::{HostIo, IoEvent};
use super::stages::{Stage, Stages};
use crate::describe::Description;
use crate::flash::{Backend, Cells, FlashEvent, FlashOp, OpCause, OpEnded, OpKind, OpOutcome, PageAddress};
use crate::host::{Booked, Direction, HostCpu, HostLink, Port, Sent};
use crate::spans::{Span, Spans, Track};
use nandarray_sim::Ps;

/// The next thing that happens: an event of one of the machine's parts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// Of the fabric itself.
    Fabric(FabricEvent),
    /// Of a command on the link.
    Io(IoEvent),
    /// Of a client.
    Client(ClientEvent),
    /// The driver of the machine asked to be told of this time.
    Alarm,
}

// With its key an entry of the event queue is 32 bytes: two of them are a cache line.
const _: () = assert!(size_of::<Event>() <= 16);

/// An event of the fabric.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FabricEvent {
    /// Something in the flash.
    Flash(FlashEvent),
    /// A channel handler issues an operation.
    Issue(u32),
}

impl From<FlashEvent> for Event {
    fn from(event: FlashEvent) -> Self {
        Self::Fabric(FabricEvent::Flash(event))
    }
}

impl From<IoEvent> for Event {
    fn from(event: IoEvent) -> Self {
        Self::Io(event)
    }
}

impl Event {
    /// A number for the hash of the run: the kind in the upper, the event's number in the lower bits.
    pub(crate) fn code(self) -> u64 {
        let (kind, number) = match self {
            Self::Fabric(FabricEvent::Issue(n)) => (6, n),
            Self::Fabric(FabricEvent::Flash(event)) => match event {
                FlashEvent::Kick(n) => (32, n),
                FlashEvent::BusFree(n) => (33, n),
                FlashEvent::ArrayDone(n) => (34, n),
                FlashEvent::CacheReady(n) => (35, n),
                FlashEvent::Decoded(n) => (36, n),
                FlashEvent::HoldOver(n) => (37, n),
            },
            Self::Io(event) => event.code(),
            Self::Client(event) => event.code(),
            Self::Alarm => (21, 0),
        };
        kind << 40 | u64::from(number)
    }
}

/// One taker of spans for all parts.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Box<dyn Spans>>>);

impl nandarray_sim::Spans<Span> for Shared {
    fn span(&mut self, span: Span) {
        self.0.lock().span(span);
    }
}

/// Flash, DRAM, link, firmware stages and host cores of one machine, and its event queue.
pub(crate) struct Fabric {
    pub(super) description: Description,
    pub(super) events: nandarray_sim::Events<Event>,
    pub(super) flash: Backend,
    pub(super) cpu: HostCpu,
    pub(super) link: HostLink,
    pub(super) stages: Stages,
    pub(super) dram: Port,
    pub(super) totals: Totals,
    issued: Slab<FlashOp>,
    spans: Option<Shared>,
}

impl Fabric {
    /// Everything at rest, at time 0.
    pub(super) fn new(d: &Description, spans: Option<Box<dyn Spans>>, cells: Box<dyn Cells>) -> Self {
        let spans = spans.map(|spans| Shared(Arc::new(Mutex::new(spans))));
        Self {
            events: nandarray_sim::Events::default(),
            flash: Backend::with_cells(d, cells, spans.clone().map(|s| Box::new(s) as Box<dyn Spans>)),
            cpu: HostCpu::new(&d.host, &d.energy),
            link: HostLink::new(&d.link, &d.energy),
            stages: Stages::new(&d.controller, &d.energy),
            dram: Port::new(|_| Track::Dram, d.dram.bytes_per_s, d.dram.t_access, d.energy.dram_pj_per_byte),
            totals: Totals::default(),
            issued: Slab::new(),
            spans,
            description: d.clone(),
        }
    }

    /// Lets an event happen.
    pub(super) fn push(&mut self, at: Ps, event: impl Into<Event>) {
        self.events.push(at, event.into());
    }

    /// Handles an event of the fabric; what has ended in the flash is added to `ended`.
    pub(super) fn happened(&mut self, now: Ps, event: FabricEvent, ended: &mut Vec<OpEnded>) {
        match event {
            FabricEvent::Flash(event) => self.flash.handle(now, event, &mut self.events, ended),
            FabricEvent::Issue(slot) => {
                let operation = self.issued.remove(slot as usize);
                self.flash.submit(now, operation, &mut self.events);
            }
        }
    }

    /// Hands an operation to its channel handler, and by it to the flash; `waiting` is told when it has ended.
    pub(super) fn issue(
        &mut self,
        now: Ps,
        op: OpKind,
        cause: OpCause,
        place: PageAddress,
        bytes: u32,
        waiting: Waiting,
    ) {
        let operation = FlashOp { op, cause, place, bytes, token: waiting.token(bytes) };
        let t_channel = self.description.controller.t_channel;
        let channel = self.description.geometry.channel_of(place.die);
        let at = self.stages.handle_channel(channel, now, t_channel, cause, &mut self.spans);
        if at == now {
            self.flash.submit(now, operation, &mut self.events);
        } else {
            let slot = self.issued.insert(operation) as u32;
            self.push(at, Event::Fabric(FabricEvent::Issue(slot)));
        }
    }

    /// Counts how an operation ended.
    pub(super) fn count(&mut self, outcome: OpOutcome) {
        match outcome {
            OpOutcome::Done => {}
            OpOutcome::Uncorrectable => self.totals.uncorrectable += 1,
            OpOutcome::Failed => self.totals.failed += 1,
        }
    }

    /// Whether no flash operation is on its way.
    pub(super) fn is_still(&self) -> bool {
        self.issued.is_empty() && self.flash.in_flight() == 0
    }

    /// Runs a firmware stage on what is there now; returns when it is done.
    pub(super) fn run_stage(&mut self, stage: Stage, now: Ps, lasts: Ps) -> Ps {
        self.stages.run(stage, now, lasts, OpCause::Host, &mut self.spans)
    }

    /// Moves bytes through DRAM; returns when they are there.
    pub(super) fn through_dram(&mut self, now: Ps, bytes: u64, what: &'static str, cause: OpCause) -> Ps {
        let booked = self.dram.transfer(now, bytes);
        if let Some(spans) = &mut self.spans {
            if booked.end > booked.start {
                spans.0.lock().span(self.dram.span(booked, what, cause, 0));
            }
        }
        booked.end
    }

    /// Sends an entry of a queue, or a request for host memory.
    pub(super) fn send_entry(&mut self, now: Ps, direction: Direction, bytes: u64, what: &'static str) -> Sent {
        let sent = self.link.send_entry(now, direction, bytes);
        self.tell_sent(sent, direction, what)
    }

    /// Sends bytes over the link.
    pub(super) fn send(&mut self, now: Ps, direction: Direction, bytes: u64, what: &'static str) -> Sent {
        let sent = self.link.send(now, direction, bytes);
        self.tell_sent(sent, direction, what)
    }

    fn tell_sent(&mut self, sent: Sent, direction: Direction, what: &'static str) -> Sent {
        if let Some(spans) = &self.spans {
            spans.0.lock().span(self.link.span(sent, direction, what, OpCause::Host, 0));
        }
        sent
    }

    /// Tells a timeline what a host core was booked for.
    pub(super) fn host_span(&mut self, booked: Booked, what: &'static str, detail: u64) {
        if let Some(spans) = &self.spans {
            if booked.end > booked.start {
                spans.0.lock().span(self.cpu.span(booked, what, detail));
            }
        }
    }

    /// Tells a timeline of a command from its submission to its answer.
    pub(super) fn io_span(&mut self, queue: u32, start: Ps, end: Ps, what: &'static str, io: u32) {
        if let Some(spans) = &self.spans {
            let (track, detail) = (Track::Request(queue), u64::from(io));
            spans.0.lock().span(Span { track, start, end, what, cause: OpCause::Host, detail });
        }
    }
}

/// The fabric and the commands on the link, lent to a client while it handles something.
pub(crate) struct Lent<'a> {
    pub(super) fabric: &'a mut Fabric,
    pub(super) io: &'a mut HostIo,
}

impl Lent<'_> {
    /// Lets an event of a client happen.
    pub(super) fn push<E: Into<ClientEvent>>(&mut self, at: Ps, event: E) {
        self.fabric.push(at, Event::Client(event.into()));
    }

    /// Tells a command on the link that one thing less is to be waited for.
    pub(super) fn io_progress(&mut self, now: Ps, io: u32) {
        self.io.progress(self.fabric, now, io);
    }
}
