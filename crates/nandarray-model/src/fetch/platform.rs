//! The parts in front of the devices: warps, slices of atomics, queue pairs, a CPU's threads, the shared link.

use serde::{Deserialize, Serialize};

/// Most warps, slices, queue pairs of a device, or threads of a CPU.
const COUNT_MAX: u64 = 1 << 20;

/// Rates in bytes per second, times in nanoseconds. The values with their sources are in
/// `papers/nandarray_papers/bam/platform.toml`; no field has a default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchPlatform {
    /// Number of tasks that run at the same time: resident warps, or the threads of a CPU that submits.
    pub resident_tasks: usize,
    /// Time of the instructions of a group of accesses, without their atomics.
    pub t_group_ns: f64,
    /// Number of memory slices that execute atomics, each one atomic at a time; all atomics on a cache line go to one
    /// slice.
    pub atomic_slices: u32,
    /// Time of one atomic on its slice.
    pub t_atomic_ns: f64,
    /// Time between two phases of a kernel (a launch).
    pub t_phase_ns: f64,
    /// Number of queue pairs of each device.
    pub queue_pairs: u32,
    /// Number of entries of a queue pair.
    pub queue_depth: u32,
    /// Time for which a request holds its queue pair's critical section.
    pub t_enqueue_ns: f64,
    /// Time from a completion's arrival in memory until the tasks that wait for it continue.
    pub t_poll_ns: f64,
    /// Number of CPU threads that submit all requests; 0 if the tasks submit their own requests.
    pub cpu_threads: u32,
    /// Time that a CPU thread which submits requests spends on a request.
    pub t_cpu_ns: f64,
    /// Time that a CPU thread which submits requests spends on each KiB of a request, for copies from its page cache.
    pub t_cpu_kib_ns: f64,
    /// Raw rate of the shared link in each direction, in bytes per second.
    pub link_rate: u64,
    /// Payload of a packet of the shared link, in bytes.
    pub link_payload: u32,
    /// Bytes of a packet of the shared link in addition to its payload.
    pub link_overhead: u32,
    /// Propagation time of the shared link.
    pub t_link_ns: f64,
    /// Bytes of a stripe: consecutive addresses on one device, before those of the next device begin.
    pub stripe_bytes: u64,
}

impl FetchPlatform {
    /// Returns the reason why the platform is invalid; `None` if it is valid.
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
        // Each is a list of that length in a run.
        let counts = [
            ("resident_tasks", self.resident_tasks as u64),
            ("atomic_slices", u64::from(self.atomic_slices)),
            ("queue_pairs", u64::from(self.queue_pairs)),
            ("cpu_threads", u64::from(self.cpu_threads)),
        ];
        if let Some((name, value)) = counts.iter().find(|(_, value)| *value > COUNT_MAX) {
            return Some(format!("{name} is {value}; at most {COUNT_MAX} are modelled"));
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
        wrong.map(|(name, value)| format!("{name} must be from 0 to 1e12 ns, not {value}"))
    }
}
