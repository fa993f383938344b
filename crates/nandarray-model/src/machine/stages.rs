//! Firmware: the five stages of the controller's work and the cores that they run on.
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

/// A firmware stage; its number is its index in [`ControllerSettings::stage_cores`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirmwareStage {
    /// Command handler: decodes and completes commands.
    Command = 0,
    /// Translator: maps addresses or coordinates to pages.
    Translate = 1,
    /// Allocator: finds pages for writes.
    Allocate = 2,
    /// Data assembler: gathers runs of blocks for reads, and scatters written data into blocks.
    Assemble = 3,
    /// Channel handlers: issue flash commands.
    Channel = 4,
}

const NAMES: [&str; 5] = ["command", "translate", "allocate", "assemble", "channel"];

/// The controller's cores, and the stages mapped to them or to hardware.
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
    /// Makes stages with nothing booked.
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

    /// Books a stage for `lasts` of work that arrives at `now`; returns the end of the work.
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

    /// Books the handler of a channel for `lasts` of work; returns the end of the work.
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

    /// Books firmware work that manages the cores for programs, on the core of the command handler, or on the first
    /// core if that stage is hardware; returns the end of the work.
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

    /// Returns the cores with their bookings.
    pub(crate) fn cores(&self) -> &DeviceResource {
        &self.cores
    }

    /// Returns the energy of the cores until `now` in picojoules: while busy, and while idle, without the time `asleep`
    /// that the device spent in idle states.
    pub(crate) fn energy_pj(&self, now: Ps, asleep: Ps) -> (f64, f64) {
        let busy: Ps = self.cores.busy_until(now).sum();
        let all = now.since(asleep) * u64::from(self.cores.servers());
        (energy_pj(self.active_uw, busy), energy_pj(self.idle_uw, all.since(busy)))
    }
}
