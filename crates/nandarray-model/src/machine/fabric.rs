//! The fabric: the resources that all parts of a machine share, which are flash, DRAM, the link, firmware stages, host
//! cores, the event queue and the sink of spans.
//!
//! The fabric is lent to clients ([`super::clients`]): they book its resources, issue flash operations and schedule
//! events, and the fabric knows none of them. A flash operation carries a token that names the client that waits for
//! it; when the operation ends, the machine notifies that client.

use std::sync::Arc;

use parking_lot::Mutex;
use slab::Slab;

use super::account::Totals;
use super::clients::{ClientEvent, Waiter};
use super::host_io::{HostIo, IoEvent};
use super::stages::{FirmwareStage, FirmwareStages};
use crate::describe::Description;
use crate::flash::{Backend, Cells, FlashEvent, FlashOp, OpCause, OpEnded, OpKind, OpOutcome, PageAddress};
use crate::host::{Booked, DevicePort, Direction, HostCpu, HostLink, Sent};
use crate::spans::{DeviceSpan, DeviceSpanSink, Track};
use nandarray_sim::Ps;

/// An event of one of the machine's parts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// An event of the fabric itself.
    Fabric(FabricEvent),
    /// An event of a command on the link.
    Io(IoEvent),
    /// An event of a client.
    Client(ClientEvent),
    /// The time of the next request of an open loop has come.
    Alarm,
}

// With its key, an event takes 32 bytes in the queue, half a cache line.
const _: () = assert!(size_of::<Event>() <= 16);

/// An event of the fabric.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FabricEvent {
    /// An event of the flash back end.
    Flash(FlashEvent),
    /// The channel handler has processed the operation in this slot, which now goes to the flash.
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
    /// Returns the event's number for the hash of the run: its kind in the upper bits, the number it carries in the
    /// lower bits.
    #[inline]
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

/// A sink of spans (busy times for the timeline) that all parts share.
#[derive(Clone)]
pub(crate) struct SharedSpanSink(Arc<Mutex<Box<dyn DeviceSpanSink>>>);

impl nandarray_sim::SpanSink<DeviceSpan> for SharedSpanSink {
    fn span(&mut self, span: DeviceSpan) {
        self.0.lock().span(span);
    }
}

/// The resources that all parts of one machine share, and its event queue.
pub(crate) struct Fabric {
    pub(super) description: Description,
    pub(super) events: nandarray_sim::Events<Event>,
    pub(super) flash: Backend,
    pub(super) cpu: HostCpu,
    pub(super) link: HostLink,
    pub(super) stages: FirmwareStages,
    pub(super) dram: DevicePort,
    /// The crossbar's port for each core that runs programs.
    pub(super) crossbar: Vec<DevicePort>,
    /// Number of input pages that reached a core without passing DRAM, and number of those that went through DRAM.
    pub(super) pages_past_dram: (u64, u64),
    /// Number of pages that reached a core from another core.
    pub(super) pages_between_cores: u64,
    pub(super) totals: Totals,
    issued: Slab<FlashOp>,
    spans: Option<SharedSpanSink>,
}

impl Fabric {
    /// Makes a fabric with nothing in flight, at time 0.
    pub(super) fn new(d: &Description, spans: Option<Box<dyn DeviceSpanSink>>, cells: Box<dyn Cells>) -> Self {
        let spans = spans.map(|spans| SharedSpanSink(Arc::new(Mutex::new(spans))));
        Self {
            events: nandarray_sim::Events::default(),
            flash: Backend::with_cells(d, cells, spans.clone().map(|s| Box::new(s) as Box<dyn DeviceSpanSink>)),
            cpu: HostCpu::new(&d.host, &d.energy),
            link: HostLink::new(&d.link, &d.energy),
            stages: FirmwareStages::new(&d.controller, &d.energy),
            dram: DevicePort::new(|_| Track::Dram, d.dram.bytes_per_s, d.dram.t_access, d.energy.dram_pj_per_byte),
            crossbar: crossbar(d),
            pages_past_dram: (0, 0),
            pages_between_cores: 0,
            totals: Totals::default(),
            issued: Slab::new(),
            spans,
            description: d.clone(),
        }
    }

    /// Schedules an event.
    pub(super) fn push(&mut self, at: Ps, event: impl Into<Event>) {
        self.events.push(at, event.into());
    }

    /// Handles an event of the fabric; appends the flash operations that ended to `ended`.
    pub(super) fn handle(&mut self, now: Ps, event: FabricEvent, ended: &mut Vec<OpEnded>) {
        match event {
            FabricEvent::Flash(event) => self.flash.handle(now, event, &mut self.events, ended),
            FabricEvent::Issue(slot) => {
                let operation = self.issued.remove(slot as usize);
                self.flash.submit(now, operation, &mut self.events);
            }
        }
    }

    /// Submits a flash operation through its channel handler; `waiter` is notified of its end.
    pub(super) fn issue(
        &mut self,
        now: Ps,
        op: OpKind,
        cause: OpCause,
        place: PageAddress,
        bytes: u32,
        waiter: Waiter,
    ) {
        let geometry = &self.description.geometry;
        let is_there = place.die < geometry.dies_total() && place.block < geometry.blocks;
        assert!(is_there && bytes <= geometry.page_bytes, "{op:?} of {bytes} bytes at {place:?}, of {geometry:?}");
        let operation = FlashOp { op, cause, place, bytes, token: waiter.token(bytes) };
        let t_channel = self.description.controller.t_channel;
        let channel = self.description.geometry.channel_of(place.die);
        let at = self.stages.handle_channel(channel, now, t_channel, cause, &mut self.spans);
        assert!(at >= now, "a channel handler is done at {at}, before {now}");
        if at == now {
            self.flash.submit(now, operation, &mut self.events);
        } else {
            let slot = self.issued.insert(operation) as u32;
            self.push(at, Event::Fabric(FabricEvent::Issue(slot)));
        }
    }

    /// Counts an operation that failed.
    pub(super) fn count(&mut self, outcome: OpOutcome) {
        match outcome {
            OpOutcome::Done => {}
            OpOutcome::Uncorrectable => self.totals.uncorrectable += 1,
            OpOutcome::Failed => self.totals.failed += 1,
        }
    }

    /// Whether no flash operation is in flight.
    pub(super) fn is_still(&self) -> bool {
        self.issued.is_empty() && self.flash.in_flight() == 0
    }

    /// Books a firmware stage for work that arrives at `now`; returns the end of the work.
    pub(super) fn run_stage(&mut self, stage: FirmwareStage, now: Ps, lasts: Ps) -> Ps {
        self.stages.run(stage, now, lasts, OpCause::Host, &mut self.spans)
    }

    /// Books firmware work that manages cores; returns the end of the work.
    pub(super) fn manage_cores(&mut self, now: Ps, lasts: Ps) -> Ps {
        self.stages.manage_cores(now, lasts, &mut self.spans)
    }

    /// Books a transfer of bytes through DRAM; returns its end.
    pub(super) fn through_dram(&mut self, now: Ps, bytes: u64, what: &'static str, cause: OpCause) -> Ps {
        let booked = self.dram.transfer(now, bytes);
        assert!(booked.start >= now && booked.end >= booked.start, "DRAM is booked for {booked:?} at {now}");
        if let Some(spans) = &mut self.spans {
            if booked.end > booked.start {
                spans.0.lock().span(self.dram.span(booked, what, cause, 0));
            }
        }
        booked.end
    }

    /// Books the transfer of a core's cache line, which DRAM serves ahead of bulk transfers; returns the time at which
    /// it has arrived.
    pub(super) fn dram_line(&mut self, now: Ps, bytes: u64) -> Ps {
        self.dram.line(now, bytes, self.description.dram.burst_bytes).end
    }

    /// Books the transfer of bytes of a page between a channel, or DRAM, and a core; returns its end.
    pub(super) fn through_crossbar(&mut self, now: Ps, core: u32, bytes: u64, what: &'static str) -> Ps {
        let port = &mut self.crossbar[core as usize];
        let booked = port.transfer(now, bytes);
        if let Some(spans) = &self.spans {
            if booked.end > booked.start {
                let span = port.span(booked, what, OpCause::Host, 0);
                spans.0.lock().span(DeviceSpan { track: Track::Crossbar(core), ..span });
            }
        }
        booked.end
    }

    /// Reports the state of a core between two times to the timeline.
    pub(super) fn core_span(&mut self, core: u32, start: Ps, end: Ps, what: &'static str) {
        if let Some(spans) = &self.spans {
            if end > start {
                let (track, cause) = (Track::Compute(core), OpCause::Host);
                spans.0.lock().span(DeviceSpan { track, start, end, what, cause, detail: 0 });
            }
        }
    }

    /// Sends a queue entry, or a request to read host memory, over the link.
    pub(super) fn send_entry(&mut self, now: Ps, direction: Direction, bytes: u64, what: &'static str) -> Sent {
        let sent = self.link.send_entry(now, direction, bytes);
        self.report_sent(sent, direction, what)
    }

    /// Sends bytes over the link.
    pub(super) fn send(&mut self, now: Ps, direction: Direction, bytes: u64, what: &'static str) -> Sent {
        let sent = self.link.send(now, direction, bytes);
        self.report_sent(sent, direction, what)
    }

    fn report_sent(&mut self, sent: Sent, direction: Direction, what: &'static str) -> Sent {
        assert!(sent.start <= sent.left && sent.left <= sent.end, "{what} {direction:?} was sent as {sent:?}");
        if let Some(spans) = &self.spans {
            spans.0.lock().span(self.link.span(sent, direction, what, OpCause::Host, 0));
        }
        sent
    }

    /// Reports a booking of a host core to the timeline.
    pub(super) fn host_span(&mut self, booked: Booked, what: &'static str, detail: u64) {
        if let Some(spans) = &self.spans {
            if booked.end > booked.start {
                spans.0.lock().span(self.cpu.span(booked, what, detail));
            }
        }
    }

    /// Reports a command to the timeline, from its submission to its completion.
    pub(super) fn io_span(&mut self, queue: u32, start: Ps, end: Ps, what: &'static str, io: u32) {
        assert!(start <= end, "{what} {io} was submitted at {start} and reaped at {end}");
        if let Some(spans) = &self.spans {
            let (track, detail) = (Track::Request(queue), u64::from(io));
            spans.0.lock().span(DeviceSpan { track, start, end, what, cause: OpCause::Host, detail });
        }
    }
}

/// Makes the crossbar's ports, one for each core of the description.
fn crossbar(d: &Description) -> Vec<DevicePort> {
    let Some(compute) = &d.compute else { return Vec::new() };
    let port = || DevicePort::new(|_| Track::Crossbar(0), compute.crossbar_bytes_per_s, compute.t_crossbar, 0.0);
    (0..compute.cores).map(|_| port()).collect()
}

/// The fabric and the commands on the link, lent to a client while it handles an event.
pub(crate) struct ClientContext<'a> {
    pub(super) fabric: &'a mut Fabric,
    pub(super) io: &'a mut HostIo,
}

impl ClientContext<'_> {
    /// Schedules an event of a client.
    pub(super) fn push<E: Into<ClientEvent>>(&mut self, at: Ps, event: E) {
        self.fabric.push(at, Event::Client(event.into()));
    }

    /// Marks one of the parts that a command on the link waits for as done.
    pub(super) fn io_progress(&mut self, now: Ps, io: u32) {
        self.io.progress(self.fabric, now, io);
    }
}
