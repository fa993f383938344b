//! Results of a run: when kernels ended, where workers' time went, energy in the paper's three parts, activity over
//! time.

use nandarray_sim::Ps;
use serde::Serialize;

use super::platform::AcceleratorPlatform;
use super::storage::StorengineCounts;

/// Times of one kernel, in seconds, and the joules of its own work.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelTimes {
    /// Its name.
    pub name: String,
    /// The application that it belongs to.
    pub application: u64,
    /// From its submission to its first screen; less than 0 if it had none.
    pub waiting: f64,
    /// Workers' time in which its screens wait for flash.
    pub storage: f64,
    /// Workers' time in which its screens compute.
    pub compute: f64,
    /// Time on the links between storage, host and cores: `link` and `pcie`.
    pub transfer: f64,
    /// Time of the host's SSD for it; 0 without a host.
    pub ssd: f64,
    /// Time on the backbone's link of its windows.
    pub link: f64,
    /// Time on PCIe.
    pub pcie: f64,
    /// From its submission to its end.
    pub latency: f64,
    /// Its end, from the beginning of the run.
    pub end: f64,
    /// The time at which its outputs were in flash; 0 if it has none there.
    pub flushed: f64,
    /// Joules of workers that computed for it.
    pub energy_computation: f64,
    /// Joules of the backbone, or of the host's SSD, that moved for it.
    pub energy_storage: f64,
    /// Joules of PCIe, and of the host, while they moved data for it.
    pub energy_movement: f64,
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
    /// Seconds of it in which the worker computed.
    pub computed: f64,
    /// Whether it was done; otherwise it failed, or runs again.
    pub fine: bool,
}

/// A kind of activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActivityKind {
    /// A worker computes.
    Compute,
    /// A window, or a request, is on its way.
    Storage,
    /// The host moves data.
    Host,
}

/// Slots of an activity.
const SLOTS: usize = 512;

/// Activity over time: seconds of activity in each slot of equal width. The width doubles as the run goes on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// Seconds of a slot.
    pub slot_s: f64,
    /// Workers' seconds of computing.
    pub compute: Vec<f64>,
    /// Windows' seconds on the backbone's link; those of requests to the host's SSD.
    pub storage: Vec<f64>,
    /// The host's seconds of moving data.
    pub host: Vec<f64>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { slot_s: 1e-6, compute: Vec::new(), storage: Vec::new(), host: Vec::new() }
    }
}

impl Activity {
    pub(super) fn add(&mut self, kind: ActivityKind, start: Ps, end: Ps) {
        let (start, end) = (start.seconds(), end.seconds());
        while end >= self.slot_s * SLOTS as f64 {
            self.slot_s *= 2.0;
            for slots in [&mut self.compute, &mut self.storage, &mut self.host] {
                *slots = slots.chunks(2).map(|pair| pair.iter().sum()).collect();
            }
        }
        let width = self.slot_s;
        let slots = match kind {
            ActivityKind::Compute => &mut self.compute,
            ActivityKind::Storage => &mut self.storage,
            ActivityKind::Host => &mut self.host,
        };
        let (first, last) = ((start / width) as usize, (end / width) as usize);
        if slots.len() <= last {
            slots.resize(last + 1, 0.0);
        }
        for (number, slot) in slots.iter_mut().enumerate().take(last + 1).skip(first) {
            let (from, to) = (number as f64 * width, (number + 1) as f64 * width);
            *slot += (end.min(to) - start.max(from)).max(0.0);
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AcceleratorReport {
    /// Seconds until the last kernel ended.
    pub seconds: f64,
    /// Seconds until all outputs were in flash.
    pub flushed_seconds: f64,
    /// Bytes of inputs that the kernels processed.
    pub bytes: u64,
    /// Bytes of outputs.
    pub bytes_out: u64,
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
    /// Share of the time until all outputs were in flash in which Storengine's core was busy.
    pub storengine: f64,
    /// Storengine's work.
    pub storengine_work: StorengineCounts,
    /// Jain's index of the kernels' progress: 1 if each was slowed down alike.
    pub fairness: f64,
    /// The same of applications' computing.
    pub fairness_applications: f64,
    /// Seconds of the host's SSD, of its storage stack and copies, and of PCIe; 0 without a host.
    pub host_ssd: f64,
    /// See `host_ssd`.
    pub host_stack: f64,
    /// See `host_ssd`.
    pub host_pcie: f64,
    /// Screens that ran again after a failure.
    pub reruns: u64,
    /// Screens on workers.
    pub spans: Vec<ScreenSpan>,
    /// Activity over time.
    pub activity: Activity,
}

/// Times that a run adds up.
#[derive(Clone, Debug, Default)]
pub(super) struct AcceleratorSums {
    pub(super) computed: Vec<Ps>,
    pub(super) occupied: Vec<Ps>,
    pub(super) flashvisor: Ps,
    pub(super) storengine: Ps,
    /// Time in which the backbone's link moves, or a die writes or erases.
    pub(super) active: Ps,
    pub(super) pcie: Ps,
    pub(super) host: Ps,
    pub(super) ssd: Ps,
}

impl AcceleratorSums {
    pub(super) fn new(workers: usize) -> Self {
        Self { computed: vec![Ps::ZERO; workers], occupied: vec![Ps::ZERO; workers], ..Self::default() }
    }
}

/// Jain's index.
fn fairness(paces: &[f64]) -> f64 {
    let (sum, squares) = (paces.iter().sum::<f64>(), paces.iter().map(|x| x * x).sum::<f64>());
    if squares > 0.0 { sum * sum / (paces.len() as f64 * squares) } else { 1.0 }
}

impl AcceleratorReport {
    pub(super) fn finish(&mut self, platform: &AcceleratorPlatform, end: Ps, sums: &AcceleratorSums, hosted: bool) {
        let p = platform;
        self.seconds = end.seconds();
        self.flushed_seconds = self.flushed_seconds.max(self.seconds);
        let share = |time: &Ps| if end == Ps::ZERO { 0.0 } else { (time.seconds() / end.seconds()).min(1.0) };
        self.utilisation = sums.computed.iter().map(share).collect();
        self.occupancy = sums.occupied.iter().map(share).collect();
        self.flashvisor = share(&sums.flashvisor);
        self.storengine = sums.storengine.seconds() / self.flushed_seconds.max(1e-12);
        let computed: f64 = sums.computed.iter().map(|t| t.seconds()).sum();
        let idle = (self.seconds * sums.computed.len() as f64 - computed).max(0.0);
        // DDR3L holds outputs until they are in flash.
        let workers = p.worker_w * (computed + p.worker_idle_share * idle);
        self.energy_computation = workers + p.dram_w * self.flushed_seconds;
        if hosted {
            self.energy_movement = p.host_w * self.seconds + p.pcie_w * self.seconds;
            self.energy_storage = p.ssd_w * sums.ssd.seconds();
        } else {
            // Writes go on behind the last kernel; workers sleep then.
            let all = self.flushed_seconds;
            let active = sums.active.seconds().min(all);
            let resting = p.backbone_idle_share * (all - active);
            self.energy_movement = p.pcie_w * self.seconds;
            self.energy_storage = p.backbone_w * (active + resting) + 2.0 * p.firmware_w * all;
        }
        for kernel in &mut self.kernels {
            kernel.energy_computation = p.worker_w * kernel.compute;
            kernel.energy_storage = p.ssd_w * kernel.ssd + p.backbone_w * kernel.link;
            let host = if hosted { p.host_w * (kernel.storage + kernel.transfer) } else { 0.0 };
            kernel.energy_movement = host + p.pcie_w * kernel.pcie;
        }
        self.judge();
    }

    /// Fairness among kernels that ended; those that were cancelled or still run have no pace.
    fn judge(&mut self) {
        let ended = || self.kernels.iter().filter(|k| k.latency > 0.0);
        let paces: Vec<f64> = ended().map(|k| k.compute / k.latency).collect();
        let mut shares = std::collections::BTreeMap::<u64, f64>::new();
        for kernel in ended() {
            *shares.entry(kernel.application).or_default() += kernel.compute / kernel.latency;
        }
        self.fairness = fairness(&paces);
        self.fairness_applications = fairness(&shares.into_values().collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_did_not_end_do_not_count_for_fairness() {
        let kernel = |latency| KernelTimes { compute: 1.0, latency, ..KernelTimes::default() };
        let mut report =
            AcceleratorReport { kernels: vec![kernel(2.0), kernel(2.0), kernel(0.0)], ..Default::default() };
        report.judge();
        assert_eq!((report.fairness, report.fairness_applications), (1.0, 1.0));
    }
}
