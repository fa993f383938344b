//! Firmware: the five stages of the controller and the cores that they run on.
//!
//! The stages are those of the NDS paper, section 5.3.2: command handler, space translator, allocator and collector,
//! data assembler, channel handlers. A stage that is mapped to a core waits for it; one that is mapped to none is
//! pipelined hardware of its own.

use crate::describe::{ControllerSettings, Energy};
use crate::flash::OpCause;
use crate::host::DeviceResource;
use crate::spans::{DeviceSpanSink, Track};
use nandarray_sim::Ps;
use nandarray_sim::energy_pj;

/// A firmware stage, by its index in [`ControllerSettings::stage_cores`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirmwareStage {
    /// Command handler: decodes and completes commands.
    Command = 0,
    /// Translator: from addresses or coordinates to pages.
    Translate = 1,
    /// Allocator: finds pages for writes.
    Allocate = 2,
    /// Data assembler: gathers runs of blocks for reads, scatters written data into blocks.
    Assemble = 3,
    /// Channel handlers: issue flash commands.
    Channel = 4,
}

const NAMES: [&str; 5] = ["command", "translate", "allocate", "assemble", "channel"];

/// The controller's cores and stages.
#[derive(Clone, Debug)]
pub(crate) struct FirmwareStages {
    cores: DeviceResource,
    hardware: DeviceResource,
    mapped: [Option<u32>; 5],
    channel_handlers: u32,
    active_uw: f64,
    idle_uw: f64,
}

impl FirmwareStages {
    /// Stages without bookings.
    pub(crate) fn new(controller: &ControllerSettings, energy: &Energy) -> Self {
        let cores = controller.cores.max(1);
        let mapped = controller.stage_cores.map(|core| core.map(|c| c % cores));
        Self {
            cores: DeviceResource::new(cores, Track::Core),
            hardware: DeviceResource::new(5, Track::Stage),
            mapped,
            channel_handlers: controller.channel_handlers.max(1),
            active_uw: energy.core_active_uw,
            idle_uw: energy.core_idle_uw,
        }
    }

    /// Books a stage for work that arrives now; returns its end.
    pub(crate) fn run(
        &mut self,
        stage: FirmwareStage,
        now: Ps,
        lasts: Ps,
        cause: OpCause,
        spans: &mut Option<impl DeviceSpanSink>,
    ) -> Ps {
        self.run_one(stage, 0, now, lasts, cause, spans)
    }

    /// Books the handler of a channel; returns its end.
    pub(crate) fn handle_channel(
        &mut self,
        channel: u32,
        now: Ps,
        lasts: Ps,
        cause: OpCause,
        spans: &mut Option<impl DeviceSpanSink>,
    ) -> Ps {
        self.run_one(FirmwareStage::Channel, channel % self.channel_handlers, now, lasts, cause, spans)
    }

    /// Books the management of cores that run programs, on the core of the command handler or, if that is hardware, the
    /// first; returns its end.
    pub(crate) fn manage_cores(&mut self, now: Ps, lasts: Ps, spans: &mut Option<impl DeviceSpanSink>) -> Ps {
        if lasts == Ps::ZERO {
            return now;
        }
        let booked = self.cores.book_on(self.mapped[0].unwrap_or(0), now, lasts);
        if let Some(spans) = spans {
            spans.span(self.cores.span(booked, "manage cores", OpCause::Host, 0));
        }
        booked.end
    }

    fn run_one(
        &mut self,
        stage: FirmwareStage,
        handler: u32,
        now: Ps,
        lasts: Ps,
        cause: OpCause,
        spans: &mut Option<impl DeviceSpanSink>,
    ) -> Ps {
        if lasts == Ps::ZERO {
            return now;
        }
        let i = stage as usize;
        let (booked, resource) = match self.mapped[i].map(|core| (core + handler) % self.cores.servers()) {
            Some(core) => (self.cores.book_on(core, now, lasts), &self.cores),
            None => (self.hardware.pipelined(i as u32, now, lasts), &self.hardware),
        };
        assert!(
            booked.start >= now && booked.end == booked.start + lasts,
            "{stage:?} is booked for {booked:?} at {now}"
        );
        if let Some(spans) = spans {
            spans.span(resource.span(booked, NAMES[i], cause, 0));
        }
        booked.end
    }

    /// The cores' bookings.
    pub(crate) fn cores(&self) -> &DeviceResource {
        &self.cores
    }

    /// Energy of the cores until `now`, in picojoules: at work, and at rest while the device was not `asleep`.
    pub(crate) fn energy_pj(&self, now: Ps, asleep: Ps) -> (f64, f64) {
        let busy: Ps = self.cores.busy_until(now).sum();
        let all = now.since(asleep) * u64::from(self.cores.servers());
        (energy_pj(self.active_uw, busy), energy_pj(self.idle_uw, all.since(busy)))
    }
}
