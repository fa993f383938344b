//! Results of a run: times, counts, and the shares of time for which parts were busy.

use serde::Serialize;

/// The report of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FetchReport {
    /// Seconds from the first launch to the end of the last request.
    pub seconds: f64,
    /// Number of requests that read.
    pub reads: u64,
    /// Bytes that requests read.
    pub bytes_read: u64,
    /// Number of requests that wrote.
    pub writes: u64,
    /// Bytes that requests wrote.
    pub bytes_written: u64,
    /// Number of accesses that used a fetch's bytes.
    pub touches: u64,
    /// Number of atomics executed.
    pub atomics: u64,
    /// Number of groups of accesses.
    pub groups: u64,
    /// Maximum number of requests in flight at the same time.
    pub in_flight_max: u64,
    /// Mean number of requests in flight.
    pub in_flight_mean: f64,
    /// Mean time of a request in microseconds, from its submission until the tasks that wait for it continue.
    pub latency_mean_us: f64,
    /// Share of the run in which the shared link sent to memory.
    pub link_up: f64,
    /// Share of the run in which the shared link sent to the devices.
    pub link_down: f64,
    /// Share of the run in which a slice executed atomics, as the mean over slices.
    pub atomics_busy: f64,
    /// Share of the run in which the busiest slice executed atomics.
    pub atomics_busy_max: f64,
    /// Mean time in microseconds for which a request waited for its queue pair's critical section.
    pub enqueue_wait_us: f64,
    /// Share of the run in which the CPU's threads were busy; 0 if no CPU submits.
    pub cpu_busy: f64,
    /// Number of requests to each device.
    pub by_device: Vec<u64>,
    /// Time at which each phase ended, in seconds.
    pub phase_ends_s: Vec<f64>,
    /// Number of events, of all devices and of the warps.
    pub events: u64,
    /// Hash of the devices' events: equal hashes mean that two runs had the same events.
    pub hash: u64,
}
