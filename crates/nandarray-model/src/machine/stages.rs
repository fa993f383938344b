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

#[cfg(test)]
mod tests {
    use nandarray_sim::SpanSink;

    use super::*;
    use crate::describe;
    use crate::spans::DeviceSpan;

    /// Keeps the spans that stages report.
    struct Kept(Vec<DeviceSpan>);

    impl SpanSink<DeviceSpan> for Kept {
        fn span(&mut self, span: DeviceSpan) {
            self.0.push(span);
        }
    }

    /// Compares with cores that are lists of intervals: a stage on a core waits for it, one in hardware for nothing.
    #[test]
    fn stages_wait_for_their_cores_and_hardware_waits_for_nobody() {
        use FirmwareStage::{Allocate, Assemble, Channel, Command, Translate};
        for seed in 0..120 {
            let mut chance = fastrand::Rng::with_seed(seed);
            let mut d = describe::preset("tiny").unwrap();
            let cores = chance.u32(1..6);
            d.controller.cores = cores;
            d.controller.stage_cores = std::array::from_fn(|_| chance.bool().then(|| chance.u32(0..9)));
            d.controller.channel_handlers = chance.u32(1..4);
            (d.energy.core_active_uw, d.energy.core_idle_uw) = (3e6, 1e6);
            let mapped = d.controller.stage_cores.map(|core| core.map(|core| core % cores));
            let mut stages = FirmwareStages::new(&d.controller, &d.energy);
            let (mut free, mut busy, mut spans) = (vec![0u64; cores as usize], 0, Some(Kept(Vec::new())));
            let (mut now, mut reported) = (0u64, 0);
            for step in 0..100 {
                now += chance.u64(0..30);
                let (lasts, number) = (chance.u64(0..2) * chance.u64(0..40), chance.usize(0..7));
                let channel = chance.u32(0..8);
                let handler = channel % d.controller.channel_handlers;
                let (core, end) = match number {
                    0..4 => {
                        let stage = [Command, Translate, Allocate, Assemble][number];
                        (mapped[number], stages.run(stage, Ps(now), Ps(lasts), OpCause::Host, &mut spans))
                    }
                    4 | 5 => {
                        let end = stages.handle_channel(channel, Ps(now), Ps(lasts), OpCause::Gc, &mut spans);
                        (mapped[Channel as usize].map(|core| (core + handler) % cores), end)
                    }
                    _ => (Some(mapped[0].unwrap_or(0)), stages.manage_cores(Ps(now), Ps(lasts), &mut spans)),
                };
                let start = core.filter(|_| lasts > 0).map_or(now, |core| now.max(free[core as usize]));
                assert_eq!(end, Ps(start + lasts), "seed {seed}, step {step}: number {number}, core {core:?}");
                if let Some(core) = core.filter(|_| lasts > 0) {
                    free[core as usize] = start + lasts;
                    busy += lasts;
                }
                // Work that takes no time is in no timeline.
                reported += usize::from(lasts > 0);
                let kept = &spans.as_ref().unwrap().0;
                assert_eq!(kept.len(), reported, "seed {seed}, step {step}");
                let wanted = (Ps(start), Ps(start + lasts));
                assert!(lasts == 0 || kept.last().is_some_and(|span| (span.start, span.end) == wanted));
            }
            let end = now + free.iter().max().unwrap();
            let found: Ps = stages.cores().busy_until(Ps(end)).sum();
            assert_eq!(found, Ps(busy), "seed {seed}");
            // A third of the time was spent asleep, without idle power.
            let asleep = (end - busy / u64::from(cores)) / 3;
            let idle = (end - asleep) * u64::from(cores) - busy;
            let (active, rest) = stages.energy_pj(Ps(end), Ps(asleep));
            assert!((active - busy as f64 * 3.0).abs() < 1e-6 && (rest - idle as f64).abs() < 1e-6, "seed {seed}");
        }
    }
}
