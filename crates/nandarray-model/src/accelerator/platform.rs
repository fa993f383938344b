//! The parts of the accelerator's platform, and of the host of the conventional system.

use nandarray_runtime::schedule::{KernelScheduler, by_name};
use nandarray_sim::Ps;
use serde::{Deserialize, Serialize};

/// Rates, times, powers and failures of an accelerator's platform: bytes per second, nanoseconds, watts.
///
/// The defaults are those of FlashAbacus' Table 1 and section 2.2 where these state a value. Times of firmware are
/// assumed: some hundreds of cycles of a core of 1 GHz. The host's powers are typical for its parts.
/// `host_stack_ns_per_kib`, `host_w` and `worker_idle_share` are assumed here; the lab's `calibrated.toml` fits each to
/// one published number, which the fit therefore cannot confirm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AcceleratorPlatform {
    /// Number of worker cores: eight less the cores of Flashvisor and Storengine.
    pub workers: usize,
    /// Clock rate of a core in hertz.
    pub core_hz: u64,
    /// Number of flash channels.
    pub channels: u64,
    /// Number of dies per channel.
    pub dies: u64,
    /// Bytes of a page group, which consists of one page of each plane of one die on each channel.
    pub group_bytes: u64,
    /// Time to read a page.
    pub t_read_ns: u64,
    /// Time to write a page.
    pub t_program_ns: u64,
    /// Time to erase a block.
    pub t_erase_ns: u64,
    /// Additional time of a read that suspends a write or an erase in its die.
    pub t_suspend_ns: u64,
    /// Number of page groups in a block of groups, the unit that is erased.
    pub groups_per_block: u64,
    /// Number of blocks of groups.
    pub blocks: u64,
    /// Share of the page groups that hold data at the beginning; written outputs replace them.
    pub filled_share: f64,
    /// Number of free blocks below which Storengine reclaims.
    pub reclaim_blocks: u64,
    /// Bytes of DDR3L for outputs on their way to flash; a kernel whose outputs do not fit waits.
    pub write_buffer_bytes: u64,
    /// Rate of a channel in bytes per second.
    pub channel_rate: u64,
    /// Rate of the link between the flash backbone and the cores, in bytes per second.
    pub backbone_rate: u64,
    /// Rate of DDR3L in bytes per second.
    pub dram_rate: u64,
    /// Bytes of a window: the part of a data section that one message to Flashvisor maps.
    pub window_bytes: u64,
    /// Number of windows that are requested ahead of the one that is being computed.
    pub ahead: u64,
    /// Time of a message between cores.
    pub t_message_ns: u64,
    /// Flashvisor's time to lock the range and translate the address of a page group.
    pub t_translate_ns: u64,
    /// Flashvisor's time per screen to choose it (the scheduler's decision).
    pub t_schedule_ns: u64,
    /// Storengine's time to move a page group, or to free a block.
    pub t_reclaim_ns: u64,
    /// Storengine's time to write a page group of its journal.
    pub t_journal_ns: u64,
    /// Period of Storengine's journal while the mapping changes.
    pub journal_period_ns: u64,
    /// Cores that fail: number of the worker, and time of the failure in nanoseconds.
    pub core_failures: Vec<(usize, u64)>,
    /// Dies that fail on every channel at once: number of the die on its channel, and time of the failure in
    /// nanoseconds. Their data is recovered from redundancy, whose cost is not modelled.
    pub die_failures: Vec<(usize, u64)>,
    /// Power of a worker that computes.
    pub worker_w: f64,
    /// Power of a worker that does not compute, as a share of `worker_w`.
    pub worker_idle_share: f64,
    /// Power of Flashvisor's core, and of Storengine's core.
    pub firmware_w: f64,
    /// Power of DDR3L.
    pub dram_w: f64,
    /// Power of the flash backbone while it moves, writes or erases data.
    pub backbone_w: f64,
    /// Power of the flash backbone while it is idle, as a share of `backbone_w`.
    pub backbone_idle_share: f64,
    /// Read rate of the host's SSD in bytes per second.
    pub ssd_rate: u64,
    /// Write rate of the host's SSD in bytes per second.
    pub ssd_write_rate: u64,
    /// Latency of a request to the host's SSD.
    pub t_ssd_ns: u64,
    /// Bytes of each request that the host's application makes to its SSD.
    pub request_bytes: u64,
    /// Time of the host's storage stack and copies for each KiB.
    pub host_stack_ns_per_kib: f64,
    /// Rate of PCIe between host and accelerator in bytes per second.
    pub pcie_rate: u64,
    /// Power of the host and its memory during the whole run, also while the accelerator computes.
    pub host_w: f64,
    /// Power of the host's SSD while it moves data.
    pub ssd_w: f64,
    /// Power of PCIe during the whole run.
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
            t_program_ns: 2_600_000,
            t_erase_ns: 3_000_000,
            t_suspend_ns: 20_000,
            groups_per_block: 256,
            blocks: 2_048,
            filled_share: 0.0,
            reclaim_blocks: 4,
            write_buffer_bytes: 256 << 20,
            channel_rate: 800_000_000,
            backbone_rate: 2_000_000_000,
            dram_rate: 6_400_000_000,
            window_bytes: 1 << 20,
            ahead: 1,
            t_message_ns: 1_000,
            t_translate_ns: 500,
            t_schedule_ns: 2_000,
            t_reclaim_ns: 2_000,
            t_journal_ns: 10_000,
            journal_period_ns: 100_000_000,
            core_failures: Vec::new(),
            die_failures: Vec::new(),
            worker_w: 0.8,
            worker_idle_share: 0.3,
            firmware_w: 0.8,
            dram_w: 0.7,
            backbone_w: 11.0,
            backbone_idle_share: 0.3,
            ssd_rate: 2_200_000_000,
            ssd_write_rate: 900_000_000,
            t_ssd_ns: 90_000,
            request_bytes: 1 << 20,
            host_stack_ns_per_kib: 1_000.0,
            pcie_rate: 1_000_000_000,
            host_w: 98.0,
            ssd_w: 22.0,
            pcie_w: 0.17,
        }
    }
}

/// Longest time of a platform, in nanoseconds: a month, which leaves the clock room for sums.
const TIME_MAX_NS: u64 = 31 * 86_400 * 1_000_000_000;
/// Most workers, or dies of a channel: each is a list of that length in a run.
const COUNT_MAX: u64 = 1 << 20;
/// Most blocks of groups, each of which has an entry in a list.
const BLOCKS_MAX: u64 = 1 << 24;

impl AcceleratorPlatform {
    /// Returns the time that a core takes for a number of cycles.
    pub(super) fn cycles(&self, cycles: f64) -> Ps {
        Ps((cycles * 1e12 / self.core_hz as f64).round() as u64)
    }

    /// Makes the scheduler of this name for the platform's workers.
    ///
    /// # Errors
    /// If the platform is invalid, which comes first since a scheduler has room for each worker, or there is no such
    /// scheduler.
    pub fn scheduler(&self, name: &str) -> Result<Box<dyn KernelScheduler>, String> {
        match self.problem() {
            Some(problem) => Err(problem),
            None => by_name(name, self.workers),
        }
    }

    /// Returns the reason why the platform is invalid; `None` if it is valid.
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
            ("groups_per_block", self.groups_per_block),
            ("blocks", self.blocks),
            ("write_buffer_bytes", self.write_buffer_bytes / self.group_bytes.max(1)),
            ("journal_period_ns", self.journal_period_ns),
            ("ssd_rate", self.ssd_rate),
            ("ssd_write_rate", self.ssd_write_rate),
            ("request_bytes", self.request_bytes),
            ("pcie_rate", self.pcie_rate),
        ];
        if self.groups_per_block == 1 {
            return Some("groups_per_block is 1; a block's head takes one, so at least 2 are needed".into());
        }
        let zero = positive.iter().find(|(_, value)| *value == 0);
        let lost = |failures: &[(usize, u64)], of: usize| {
            let mut which: Vec<usize> = failures.iter().map(|(one, _)| *one).collect();
            which.sort_unstable();
            which.dedup();
            which.len() >= of || which.iter().any(|one| *one >= of)
        };
        match zero {
            Some((name, _)) => Some(format!("{name} is 0; at least 1 is needed")),
            None if !(0.0..0.95).contains(&self.filled_share) => {
                Some(format!("filled_share must be at least 0 and below 0.95, not {}", self.filled_share))
            }
            None if lost(&self.core_failures, self.workers) => {
                Some(format!("core_failures are {:?}; one of {} workers stays", self.core_failures, self.workers))
            }
            None if lost(&self.die_failures, self.dies as usize) => {
                Some(format!("die_failures are {:?}; one of {} dies stays", self.die_failures, self.dies))
            }
            None => self.too_much(),
        }
    }

    /// Returns the number, time or power that is beyond its range; `None` if there is none.
    fn too_much(&self) -> Option<String> {
        let counts = [
            ("workers", self.workers as u64, COUNT_MAX),
            ("dies", self.dies, COUNT_MAX),
            ("blocks", self.blocks, BLOCKS_MAX),
        ];
        if let Some((name, value, most)) = counts.iter().find(|(_, value, most)| value > most) {
            return Some(format!("{name} is {value}; at most {most} are modelled"));
        }
        let times = [
            ("t_read_ns", self.t_read_ns),
            ("t_program_ns", self.t_program_ns),
            ("t_erase_ns", self.t_erase_ns),
            ("t_suspend_ns", self.t_suspend_ns),
            ("t_message_ns", self.t_message_ns),
            ("t_translate_ns", self.t_translate_ns),
            ("t_schedule_ns", self.t_schedule_ns),
            ("t_reclaim_ns", self.t_reclaim_ns),
            ("t_journal_ns", self.t_journal_ns),
            ("journal_period_ns", self.journal_period_ns),
            ("t_ssd_ns", self.t_ssd_ns),
        ];
        let failures = [("core_failures", &self.core_failures), ("die_failures", &self.die_failures)];
        let failures = failures.iter().flat_map(|(name, all)| all.iter().map(move |(_, at)| (*name, *at)));
        if let Some((name, value)) = times.into_iter().chain(failures).find(|(_, value)| *value > TIME_MAX_NS) {
            return Some(format!("{name} has {value} ns; at most {TIME_MAX_NS} ns are modelled"));
        }
        let powers = [
            ("worker_w", self.worker_w),
            ("worker_idle_share", self.worker_idle_share),
            ("firmware_w", self.firmware_w),
            ("dram_w", self.dram_w),
            ("backbone_w", self.backbone_w),
            ("backbone_idle_share", self.backbone_idle_share),
            ("host_stack_ns_per_kib", self.host_stack_ns_per_kib),
            ("host_w", self.host_w),
            ("ssd_w", self.ssd_w),
            ("pcie_w", self.pcie_w),
        ];
        let wrong = powers.iter().find(|(_, value)| !(0.0..=1e9).contains(value));
        wrong.map(|(name, value)| format!("{name} must be from 0 to 1e9, not {value}"))
    }
}
