//! Results of a run: times, counts, shares of time in which a part was busy.

use serde::Serialize;

/// The report of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FetchReport {
    /// From the first launch to the end of the last request.
    pub seconds: f64,
    /// Requests that read, and their bytes.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Requests that wrote.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Accesses that used a fetch's bytes.
    pub touches: u64,
    /// Atomics.
    pub atomics: u64,
    /// Groups of accesses.
    pub groups: u64,
    /// Most requests in flight at the same time.
    pub in_flight_max: u64,
    /// Mean number of requests in flight.
    pub in_flight_mean: f64,
    /// Mean time of a request, from its submission until its waiters go on.
    pub latency_mean_us: f64,
    /// Share of time in which the shared link sent to the memory, and from it.
    pub link_up: f64,
    /// Share of time in which the shared link sent to the devices.
    pub link_down: f64,
    /// Mean share of time in which a slice executed atomics.
    pub atomics_busy: f64,
    /// Largest such share.
    pub atomics_busy_max: f64,
    /// Mean time that a request waited for its queue pair's critical section.
    pub enqueue_wait_us: f64,
    /// Share of time in which the CPU's threads were busy, where it submits.
    pub cpu_busy: f64,
    /// Requests of each device.
    pub by_device: Vec<u64>,
    /// Time at which each phase ended.
    pub phase_ends_s: Vec<f64>,
    /// Events of all devices and of the warps.
    pub events: u64,
    /// Hash of the devices' events: runs with the same hash did the same.
    pub hash: u64,
}
