//! Results of a run: when kernels ended, where workers' time went, energy in the paper's three parts, activity over
//! time.

use nandarray_sim::Ps;
use serde::Serialize;

use super::platform::AcceleratorPlatform;
use super::storage::StorengineCounts;

/// Times of one kernel in seconds, and the energy of its own work in joules.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KernelTimes {
    /// Name of the kernel.
    pub name: String,
    /// Number of the application to which the kernel belongs.
    pub application: u64,
    /// Seconds from the kernel's submission to its first screen; negative if no screen has begun.
    pub waiting: f64,
    /// Seconds in which workers with a screen of the kernel waited for flash, summed over workers; under a host, those
    /// of its SSD and storage stack.
    pub storage: f64,
    /// Seconds in which workers computed for the kernel, summed over workers.
    pub compute: f64,
    /// Seconds on the links between storage, host and cores: the sum of `link` and `pcie`.
    pub transfer: f64,
    /// Seconds in which the host's SSD worked for the kernel; 0 without a host.
    pub ssd: f64,
    /// Seconds in which the kernel's windows occupied the backbone's link.
    pub link: f64,
    /// Seconds in which the kernel's data occupied PCIe.
    pub pcie: f64,
    /// Seconds from the kernel's submission to its end.
    pub latency: f64,
    /// End of the kernel, in seconds from the beginning of the run.
    pub end: f64,
    /// Time at which all outputs of the kernel were in flash, in seconds from the beginning of the run; 0 if they never
    /// were.
    pub flushed: f64,
    /// Energy in joules of workers that computed for the kernel.
    pub energy_computation: f64,
    /// Energy in joules of the backbone, or of the host's SSD, while it moved the kernel's data.
    pub energy_storage: f64,
    /// Energy in joules of PCIe, and of the host, while they moved the kernel's data.
    pub energy_movement: f64,
}

/// The time during which a worker had a screen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScreenSpan {
    /// Number of the kernel.
    pub kernel: u64,
    /// Number of the microblock within the kernel.
    pub microblock: usize,
    /// Number of the screen within the microblock.
    pub screen: u64,
    /// Number of the worker.
    pub worker: usize,
    /// Beginning, in seconds from the beginning of the run.
    pub start: f64,
    /// End, in seconds from the beginning of the run.
    pub end: f64,
    /// Seconds in which the worker computed; during the rest it waited.
    pub computed: f64,
    /// Whether the screen was completed; otherwise it failed, or ran again later.
    pub fine: bool,
}

/// The part of the platform whose busy time an [`Activity`] records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActivityKind {
    /// A worker computes.
    Compute,
    /// A window moves over the backbone's link, or the host's SSD serves a request.
    Storage,
    /// The host moves data.
    Host,
}

/// Maximum number of slots of an [`Activity`].
const SLOTS: usize = 512;

/// Busy seconds of workers, storage and host over the run, in slots of equal width. The width doubles whenever the run
/// outgrows the slots.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Activity {
    /// Width of a slot in seconds.
    pub slot_s: f64,
    /// Seconds that the workers computed in each slot, summed over workers.
    pub compute: Vec<f64>,
    /// Seconds that windows moved over the backbone's link in each slot; under a host, that its SSD served requests.
    pub storage: Vec<f64>,
    /// Seconds that the host moved data in each slot.
    pub host: Vec<f64>,
}

impl Default for Activity {
    fn default() -> Self {
        Self { slot_s: 1e-6, compute: Vec::new(), storage: Vec::new(), host: Vec::new() }
    }
}

impl Activity {
    pub(super) fn add(&mut self, kind: ActivityKind, start: Ps, end: Ps) {
        self.change(kind, start, end, 1.0);
    }

    /// Removes a part of an interval that was added, since the work ended earlier.
    pub(super) fn remove(&mut self, kind: ActivityKind, start: Ps, end: Ps) {
        if start < end {
            self.change(kind, start, end, -1.0);
        }
    }

    fn change(&mut self, kind: ActivityKind, start: Ps, end: Ps, times: f64) {
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
            *slot += times * (end.min(to) - start.max(from)).max(0.0);
        }
    }
}

/// Report of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AcceleratorReport {
    /// Time at which the last kernel ended, in seconds from the beginning.
    pub seconds: f64,
    /// Time at which all outputs were in flash, in seconds from the beginning.
    pub flushed_seconds: f64,
    /// Bytes of all kernels' inputs.
    pub bytes: u64,
    /// Bytes of all kernels' outputs.
    pub bytes_out: u64,
    /// Times of each kernel, in the order of submission.
    pub kernels: Vec<KernelTimes>,
    /// Share of the run in which each worker computed.
    pub utilisation: Vec<f64>,
    /// Share of the run in which each worker had a screen.
    pub occupancy: Vec<f64>,
    /// Energy in joules of the host, its memory and the links.
    pub energy_movement: f64,
    /// Energy in joules of workers and DDR3L.
    pub energy_computation: f64,
    /// Energy in joules of flash, its controllers and their firmware, or of the host's SSD.
    pub energy_storage: f64,
    /// Share of the run in which Flashvisor's core was busy.
    pub flashvisor: f64,
    /// Share of the time in which Storengine's core was busy, from the beginning until all outputs were in flash.
    pub storengine: f64,
    /// Counts of Storengine's operations.
    pub storengine_work: StorengineCounts,
    /// Jain's fairness index of the kernels' progress (computing time divided by latency): 1 if all were slowed down
    /// equally.
    pub fairness: f64,
    /// Jain's fairness index of the applications' progress, each the sum of its kernels' progress.
    pub fairness_applications: f64,
    /// Seconds in which the host's SSD served requests; 0 without a host.
    pub host_ssd: f64,
    /// Seconds of the host's storage stack and copies; 0 without a host.
    pub host_stack: f64,
    /// Seconds in which the host's data moved over PCIe; 0 without a host.
    pub host_pcie: f64,
    /// Number of times that a screen ran again after a failure.
    pub reruns: u64,
    /// All screens that ran, with their workers and times.
    pub spans: Vec<ScreenSpan>,
    /// Busy seconds of workers, storage and host over the run.
    pub activity: Activity,
}

/// Times that are summed during a run, from which the report is made.
#[derive(Clone, Debug, Default)]
pub(super) struct AcceleratorSums {
    pub(super) computed: Vec<Ps>,
    pub(super) occupied: Vec<Ps>,
    pub(super) flashvisor: Ps,
    pub(super) storengine: Ps,
    /// Time in which the backbone's link moved data, or a die wrote or erased.
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

/// Returns Jain's fairness index: 1 if all values are equal, `1 / n` if only one is not zero.
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
        // DDR3L is powered until all outputs are in flash.
        let workers = p.worker_w * (computed + p.worker_idle_share * idle);
        self.energy_computation = workers + p.dram_w * self.flushed_seconds;
        if hosted {
            self.energy_movement = p.host_w * self.seconds + p.pcie_w * self.seconds;
            self.energy_storage = p.ssd_w * sums.ssd.seconds();
        } else {
            // Writes continue after the last kernel's end, while workers sleep.
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

    /// Computes the fairness indexes over kernels that ended; a kernel that was cancelled or still runs is left out.
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
