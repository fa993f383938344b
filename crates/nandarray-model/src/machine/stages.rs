//! Firmware: the five stages of the controller and the cores that they run on.
//!
//! NDS paper, section 5.3.2: command handler, space translator, allocator and collector, data assembler, channel
//! handlers. A stage that is mapped to a core waits for it; one that is mapped to none is pipelined hardware of its
//! own.

use crate::describe::{Controller, Energy};
use crate::flash::OpCause;
use crate::host::Resource;
use crate::spans::{Spans, Track};
use nandarray_sim::Ps;
use nandarray_sim::energy_pj;

/// A stage, by its place in [`Controller::stage_cores`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Decodes commands, completes them.
    Command = 0,
    /// From addresses or coordinates to pages.
    Translate = 1,
    /// Finds pages for what is written.
    Allocate = 2,
    /// Gathers runs into what the host asked for, and scatters what it gave.
    Assemble = 3,
    /// Issues flash commands.
    Channel = 4,
}

const NAMES: [&str; 5] = ["command", "translate", "allocate", "assemble", "channel"];

/// The controller's cores and stages.
#[derive(Clone, Debug)]
pub(crate) struct Stages {
    cores: Resource,
    hardware: Resource,
    mapped: [Option<u32>; 5],
    channel_handlers: u32,
    by_stage: [Ps; 5],
    active_uw: f64,
    idle_uw: f64,
}

impl Stages {
    /// Cores at rest.
    pub(crate) fn new(controller: &Controller, energy: &Energy) -> Self {
        let cores = controller.cores.max(1);
        let mapped = controller.stage_cores.map(|core| core.map(|c| c % cores));
        Self {
            cores: Resource::new(cores, Track::Core),
            hardware: Resource::new(5, Track::Stage),
            mapped,
            channel_handlers: controller.channel_handlers.max(1),
            by_stage: [Ps::ZERO; 5],
            active_uw: energy.core_active_uw,
            idle_uw: energy.core_idle_uw,
        }
    }

    /// Runs a stage on something that is there now; returns when it is done.
    pub(crate) fn run(
        &mut self,
        stage: Stage,
        now: Ps,
        lasts: Ps,
        cause: OpCause,
        spans: &mut Option<impl Spans>,
    ) -> Ps {
        self.run_one(stage, 0, now, lasts, cause, spans)
    }

    /// Runs the handler of a channel.
    pub(crate) fn handle_channel(
        &mut self,
        channel: u32,
        now: Ps,
        lasts: Ps,
        cause: OpCause,
        spans: &mut Option<impl Spans>,
    ) -> Ps {
        self.run_one(Stage::Channel, channel % self.channel_handlers, now, lasts, cause, spans)
    }

    fn run_one(
        &mut self,
        stage: Stage,
        handler: u32,
        now: Ps,
        lasts: Ps,
        cause: OpCause,
        spans: &mut Option<impl Spans>,
    ) -> Ps {
        if lasts == Ps::ZERO {
            return now;
        }
        let i = stage as usize;
        self.by_stage[i] += lasts;
        let (booked, resource) = match self.mapped[i].map(|core| (core + handler) % self.cores.servers()) {
            Some(core) => (self.cores.book_on(core, now, lasts), &self.cores),
            None => (self.hardware.pipelined(i as u32, now, lasts), &self.hardware),
        };
        if let Some(spans) = spans {
            spans.span(resource.span(booked, NAMES[i], cause, 0));
        }
        booked.end
    }

    /// The cores' bookings.
    pub(crate) fn cores(&self) -> &Resource {
        &self.cores
    }

    /// How long each stage worked, by name; stages on one core add up to that core's time.
    pub(crate) fn by_stage(&self) -> impl Iterator<Item = (&'static str, Ps)> + '_ {
        NAMES.into_iter().zip(self.by_stage)
    }

    /// Energy of the cores until `now`, in picojoules: working, and resting while the device was not `asleep`.
    pub(crate) fn energy_pj(&self, now: Ps, asleep: Ps) -> (f64, f64) {
        let busy: Ps = self.cores.busy_until(now).sum();
        let all = now.since(asleep) * u64::from(self.cores.servers());
        (energy_pj(self.active_uw, busy), energy_pj(self.idle_uw, all.since(busy)))
    }
}
