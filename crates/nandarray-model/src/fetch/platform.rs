//! The parts in front of the devices: warps, slices of atomics, queue pairs, a CPU's threads, the shared link.

use serde::{Deserialize, Serialize};

/// Rates in bytes a second, times in nanoseconds. The values with their sources are data:
/// `python/nandarray/lab/bam/platform.toml`; nothing has a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchPlatform {
    /// Tasks that run at the same time: resident warps, or threads of a CPU that submits.
    pub resident_tasks: usize,
    /// A group's instructions, atomics left out.
    pub t_group_ns: f64,
    /// Slices of memory that execute atomics, each one at a time; a line's atomics are one slice's.
    pub atomic_slices: u32,
    /// An atomic on its slice.
    pub t_atomic_ns: f64,
    /// Between two phases of a kernel: a launch.
    pub t_phase_ns: f64,
    /// Queue pairs of each device, and entries of each.
    pub queue_pairs: u32,
    /// Entries of a queue pair.
    pub queue_depth: u32,
    /// Critical section of a queue pair, a request.
    pub t_enqueue_ns: f64,
    /// From a completion in memory to the tasks that wait for it.
    pub t_poll_ns: f64,
    /// Threads of a CPU that all requests pass through; 0: those who want a line submit.
    pub cpu_threads: u32,
    /// Time of such a thread for a request.
    pub t_cpu_ns: f64,
    /// Time of such a thread for each KiB of a request: copies from its page cache.
    pub t_cpu_kib_ns: f64,
    /// Raw rate of the shared link, each way.
    pub link_rate: u64,
    /// Payload of a packet of it.
    pub link_payload: u32,
    /// Bytes of a packet beyond its payload.
    pub link_overhead: u32,
    /// Propagation on it.
    pub t_link_ns: f64,
    /// Bytes of consecutive addresses on one device, before the next device's begin.
    pub stripe_bytes: u64,
}

impl FetchPlatform {
    /// Why the platform cannot be; none if it can.
    pub fn problem(&self) -> Option<String> {
        let positive = [
            ("resident_tasks", self.resident_tasks as u64),
            ("atomic_slices", u64::from(self.atomic_slices)),
            ("queue_pairs", u64::from(self.queue_pairs)),
            ("queue_depth", u64::from(self.queue_depth)),
            ("link_rate", self.link_rate),
            ("link_payload", u64::from(self.link_payload)),
            ("stripe_bytes", self.stripe_bytes),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Some(format!("{name} is 0; at least 1 is needed"));
        }
        let times = [
            ("t_group_ns", self.t_group_ns),
            ("t_atomic_ns", self.t_atomic_ns),
            ("t_phase_ns", self.t_phase_ns),
            ("t_enqueue_ns", self.t_enqueue_ns),
            ("t_poll_ns", self.t_poll_ns),
            ("t_cpu_ns", self.t_cpu_ns),
            ("t_cpu_kib_ns", self.t_cpu_kib_ns),
            ("t_link_ns", self.t_link_ns),
        ];
        let wrong = times.iter().find(|(_, value)| !(0.0..1e12).contains(value));
        wrong.map(|(name, value)| format!("{name} is {value}; it is from 0 to 1e12 ns"))
    }
}
