//! Results of a run: when kernels ended, where workers' time went, energy in the paper's three parts.

use nandarray_sim::Ps;
use serde::Serialize;

use super::platform::AcceleratorPlatform;

/// Times of one kernel, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelTimes {
    /// Its name.
    pub name: String,
    /// From the beginning of the run to its first screen.
    pub waiting: f64,
    /// Workers' time in which its screens wait for flash.
    pub storage: f64,
    /// Workers' time in which its screens compute.
    pub compute: f64,
    /// Time on the links between storage and cores.
    pub transfer: f64,
    /// From the beginning of the run to its end.
    pub latency: f64,
}

/// A screen on a worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScreenSpan {
    /// The kernel.
    pub kernel: u64,
    /// The microblock.
    pub microblock: usize,
    /// The screen.
    pub screen: u64,
    /// The worker.
    pub worker: usize,
    /// Seconds from the beginning of the run.
    pub start: f64,
    /// Seconds from the beginning of the run.
    pub end: f64,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AcceleratorReport {
    /// Seconds of the whole run.
    pub seconds: f64,
    /// Bytes of inputs that the kernels processed.
    pub bytes: u64,
    /// Each kernel, in the order of submission.
    pub kernels: Vec<KernelTimes>,
    /// Share of the run in which each worker computed.
    pub utilisation: Vec<f64>,
    /// Share of the run in which each worker had a screen.
    pub occupancy: Vec<f64>,
    /// Joules: host, host's memory and links.
    pub energy_movement: f64,
    /// Joules: workers and DDR3L.
    pub energy_computation: f64,
    /// Joules: flash, its controllers and firmware.
    pub energy_storage: f64,
    /// Share of the run in which Flashvisor's core was busy.
    pub flashvisor: f64,
    /// Jain's index of the kernels' progress: 1 if each was slowed down alike.
    pub fairness: f64,
    /// Screens on workers.
    pub spans: Vec<ScreenSpan>,
}

/// Times that a run adds up.
#[derive(Clone, Debug, Default)]
pub(super) struct AcceleratorSums {
    pub(super) computed: Vec<Ps>,
    pub(super) occupied: Vec<Ps>,
    pub(super) flashvisor: Ps,
    pub(super) backbone: Ps,
    pub(super) host: Ps,
    pub(super) ssd: Ps,
}

impl AcceleratorReport {
    pub(super) fn finish(&mut self, platform: &AcceleratorPlatform, end: Ps, sums: &AcceleratorSums, hosted: bool) {
        let p = platform;
        self.seconds = end.seconds();
        let share = |time: &Ps| if end == Ps::ZERO { 0.0 } else { time.seconds() / end.seconds() };
        self.utilisation = sums.computed.iter().map(share).collect();
        self.occupancy = sums.occupied.iter().map(share).collect();
        self.flashvisor = share(&sums.flashvisor);
        let computed: f64 = sums.computed.iter().map(|t| t.seconds()).sum();
        let idle = self.seconds * sums.computed.len() as f64 - computed;
        let workers = p.worker_w * (computed + p.worker_idle_share * idle);
        self.energy_computation = workers + p.dram_w * self.seconds;
        if hosted {
            let (host, ssd) = (sums.host.seconds(), sums.ssd.seconds());
            let resting = p.host_idle_w * (self.seconds - host).max(0.0);
            self.energy_movement = p.host_w * host + resting + p.pcie_w * self.seconds;
            self.energy_storage = p.ssd_w * ssd;
        } else {
            let active = sums.backbone.seconds().min(self.seconds);
            let resting = p.backbone_idle_share * (self.seconds - active);
            self.energy_movement = p.pcie_w * self.seconds;
            self.energy_storage = p.backbone_w * (active + resting) + 2.0 * p.firmware_w * self.seconds;
        }
        let paces: Vec<f64> = self.kernels.iter().map(|k| k.compute / k.latency.max(1e-12)).collect();
        let (sum, squares) = (paces.iter().sum::<f64>(), paces.iter().map(|x| x * x).sum::<f64>());
        self.fairness = if squares > 0.0 { sum * sum / (paces.len() as f64 * squares) } else { 1.0 };
    }
}
