//! The parts of the accelerator's platform, and of the host beside the conventional one.

use nandarray_sim::Ps;
use serde::{Deserialize, Serialize};

/// Rates in bytes a second, times in nanoseconds, powers in watts.
///
/// The defaults are FlashAbacus' Table 1 and section 2.2 where these state a value. Costs of firmware are assumed: some
/// hundreds of cycles of a core of 1 GHz. The host's powers are typical for its parts; `host_stack_ns_per_kib`,
/// `host_w` and `worker_idle_share` may be calibrated on one number each, where they prove nothing; none is yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcceleratorPlatform {
    /// Worker cores: eight less Flashvisor's and Storengine's.
    pub workers: usize,
    /// Cycles a second of a core.
    pub core_hz: u64,
    /// Flash channels.
    pub channels: u64,
    /// Dies a channel.
    pub dies: u64,
    /// Bytes of a page group: a page of each plane of a die on each channel.
    pub group_bytes: u64,
    /// Reading a page.
    pub t_read_ns: u64,
    /// Bytes a second of a channel.
    pub channel_rate: u64,
    /// Bytes a second of the link between backbone and cores.
    pub backbone_rate: u64,
    /// Bytes a second of DDR3L.
    pub dram_rate: u64,
    /// Bytes of a data section that a message to Flashvisor maps.
    pub window_bytes: u64,
    /// Windows that are requested ahead of the one that is computed on.
    pub ahead: u64,
    /// A message between cores.
    pub t_message_ns: u64,
    /// Flashvisor: range lock and translation of a page group.
    pub t_translate_ns: u64,
    /// Flashvisor: a decision of the scheduler, per screen.
    pub t_schedule_ns: u64,
    /// Power of an active worker.
    pub worker_w: f64,
    /// Share of that power that a worker takes while it computes nothing.
    pub worker_idle_share: f64,
    /// Power of each of Flashvisor's and Storengine's cores.
    pub firmware_w: f64,
    /// Power of DDR3L.
    pub dram_w: f64,
    /// Power of the backbone while it works.
    pub backbone_w: f64,
    /// Share of that power while it does not.
    pub backbone_idle_share: f64,
    /// Bytes a second of the host's SSD, reading.
    pub ssd_rate: u64,
    /// Latency of a request to it.
    pub t_ssd_ns: u64,
    /// Bytes of a request of the host's application.
    pub request_bytes: u64,
    /// The host's storage stack and copies, per KiB.
    pub host_stack_ns_per_kib: f64,
    /// Bytes a second of PCIe to the accelerator.
    pub pcie_rate: u64,
    /// Power of the host and its memory while they move data.
    pub host_w: f64,
    /// The same while the accelerator computes.
    pub host_idle_w: f64,
    /// Power of the host's SSD while it works.
    pub ssd_w: f64,
    /// Power of PCIe.
    pub pcie_w: f64,
}

impl Default for AcceleratorPlatform {
    fn default() -> Self {
        Self {
            workers: 6,
            core_hz: 1_000_000_000,
            channels: 4,
            dies: 8,
            group_bytes: 64 << 10,
            t_read_ns: 81_000,
            channel_rate: 800_000_000,
            backbone_rate: 2_000_000_000,
            dram_rate: 6_400_000_000,
            window_bytes: 1 << 20,
            ahead: 1,
            t_message_ns: 1_000,
            t_translate_ns: 500,
            t_schedule_ns: 2_000,
            worker_w: 0.8,
            worker_idle_share: 0.3,
            firmware_w: 0.8,
            dram_w: 0.7,
            backbone_w: 11.0,
            backbone_idle_share: 0.3,
            ssd_rate: 2_200_000_000,
            t_ssd_ns: 90_000,
            request_bytes: 1 << 20,
            host_stack_ns_per_kib: 1_000.0,
            pcie_rate: 1_000_000_000,
            host_w: 98.0,
            host_idle_w: 10.0,
            ssd_w: 22.0,
            pcie_w: 0.17,
        }
    }
}

impl AcceleratorPlatform {
    /// Time of cycles on a core.
    pub(super) fn cycles(&self, cycles: f64) -> Ps {
        Ps((cycles * 1e12 / self.core_hz as f64).round() as u64)
    }

    /// Why the platform cannot be; none if it can.
    pub fn problem(&self) -> Option<String> {
        let positive = [
            ("workers", self.workers as u64),
            ("core_hz", self.core_hz),
            ("channels", self.channels),
            ("dies", self.dies),
            ("group_bytes", self.group_bytes),
            ("channel_rate", self.channel_rate),
            ("backbone_rate", self.backbone_rate),
            ("dram_rate", self.dram_rate),
            ("window_bytes", self.window_bytes),
            ("ssd_rate", self.ssd_rate),
            ("request_bytes", self.request_bytes),
            ("pcie_rate", self.pcie_rate),
        ];
        positive.iter().find(|(_, value)| *value == 0).map(|(name, _)| format!("{name} is 0; at least 1 is needed"))
    }
}
