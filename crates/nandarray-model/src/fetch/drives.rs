//! The devices, and the way of a request: over the shared link to a device, through the device's machine, and back.
//!
//! A request's messages on the shared link are those of NVMe over PCIe: the device requests the submission entry and
//! receives it; a read's data and then its completion are sent to memory; a write's data is requested and sent to the
//! device. Each device is also connected to the shared link by a link of its own, which its description gives.
//! Addresses are striped over the devices, and wrap at the capacity.

use std::collections::VecDeque;

use nandarray_sim::Ps;

use super::platform::FetchPlatform;
use crate::describe::{Description, Energy, LinkSettings};
use crate::host::{Direction, HostLink};
use crate::machine::{Machine, RequestStatus};
use crate::workload::{IoRequest, RequestOp};

/// Bytes of an NVMe submission entry.
const COMMAND_BYTES: u64 = 64;
/// Bytes of an NVMe completion entry.
const COMPLETION_BYTES: u64 = 16;

/// A request to one of the devices of a [`DriveBank`].
#[derive(Clone, Copy, Debug)]
pub(super) struct BankRequest {
    pub(super) device: u32,
    pub(super) write: bool,
    pub(super) offset: u64,
    pub(super) bytes: u32,
    /// Time of the request's submission, for the mean latency.
    pub(super) submitted: Ps,
}

/// The devices, and the link that they share.
pub(super) struct DriveBank {
    machines: Vec<Machine>,
    capacities: Vec<u64>,
    /// Number of requests in flight on each device.
    open: Vec<u32>,
    /// For each device, the numbers of the requests that wait for room in its queues.
    waiting: Vec<VecDeque<u32>>,
    open_max: u32,
    stripe: u64,
    pub(super) link: HostLink,
    pub(super) by_device: Vec<u64>,
}

impl DriveBank {
    /// Makes the devices, each filled once from its first to its last address.
    ///
    /// # Errors
    /// A message: no device is given, or a device cannot be filled.
    pub(super) fn new(descriptions: &[Description], platform: &FetchPlatform, seed: u64) -> Result<Self, String> {
        let mut machines = Vec::with_capacity(descriptions.len());
        for (description, number) in descriptions.iter().zip(0u64..) {
            let mut machine = Machine::new(description, seed ^ (number << 32), None);
            machine.attach_blocks(seed ^ number).map_err(|e| e.to_string())?;
            machine.ftl().fill_sequential().map_err(|e| e.to_string())?;
            machines.push(machine);
        }
        if machines.is_empty() {
            return Err("no device; at least 1 is needed".into());
        }
        let settings = LinkSettings {
            bytes_per_s: platform.link_rate,
            packet_payload_bytes: platform.link_payload,
            packet_overhead_bytes: platform.link_overhead,
            t_propagate: Ps::from_seconds(platform.t_link_ns * 1e-9),
            command_bytes: COMMAND_BYTES as u32,
            completion_bytes: COMPLETION_BYTES as u32,
            entries_ahead: false,
        };
        let n = machines.len();
        Ok(Self {
            capacities: machines.iter_mut().map(Machine::capacity_bytes).collect(),
            machines,
            open: vec![0; n],
            waiting: vec![VecDeque::new(); n],
            open_max: platform.queue_pairs.saturating_mul(platform.queue_depth),
            stripe: platform.stripe_bytes,
            link: HostLink::new(&settings, &Energy::default()),
            by_device: vec![0; n],
        })
    }

    pub(super) fn devices(&self) -> usize {
        self.machines.len()
    }

    /// Returns the device that holds an address, and the offset in bytes on that device.
    pub(super) fn place(&self, address: u64, bytes: u32) -> (u32, u64) {
        let (stripe, n) = (address / self.stripe, self.machines.len() as u64);
        let device = (stripe % n) as usize;
        let offset = stripe / n * self.stripe + address % self.stripe;
        // A request may be longer than a stripe; it must not cross the device's end.
        let most = self.capacities[device].saturating_sub(u64::from(bytes));
        let room = most / self.stripe.max(512) + 1;
        (device as u32, (offset / self.stripe % room * self.stripe + offset % self.stripe).min(most))
    }

    /// Checks that each fetch fits on every device.
    ///
    /// # Errors
    /// A message: a fetch has more bytes than a device.
    pub(super) fn check_sizes(&self, bytes: &[u32]) -> Result<(), String> {
        let least = self.capacities.iter().copied().min().expect("a device");
        match bytes.iter().position(|&bytes| u64::from(bytes) > least) {
            Some(fetch) => Err(format!("fetch {fetch} has {} B; a device has {least} B", bytes[fetch])),
            None => Ok(()),
        }
    }

    /// Returns the bytes of a device that requests can address.
    #[cfg(test)]
    pub(super) fn capacity(&self, device: usize) -> u64 {
        self.capacities[device]
    }

    /// Admits a request to a device if its queues have room. Returns false if they have none: the request then waits
    /// until [`Self::leave`] returns it.
    pub(super) fn admit(&mut self, device: u32, io: u32) -> bool {
        let device = device as usize;
        if self.open[device] >= self.open_max {
            self.waiting[device].push_back(io);
            return false;
        }
        self.open[device] += 1;
        self.by_device[device] += 1;
        true
    }

    /// Records that a request of the device has ended; returns the first request that waits for room, if any.
    pub(super) fn leave(&mut self, device: u32) -> Option<u32> {
        let device = device as usize;
        assert!(self.open[device] > 0, "device {device} has no request in flight");
        self.open[device] -= 1;
        self.waiting[device].pop_front()
    }

    /// Sends the submission entry to the device after the doorbell; returns the time at which the device has received
    /// it. Transfers are booked in order of time, so a write's data is booked later, when the device requests it
    /// ([`Self::data`]).
    pub(super) fn entry(&mut self, now: Ps) -> Ps {
        let asked = self.link.send(now, Direction::Up, 0);
        self.link.send(asked.end, Direction::Down, COMMAND_BYTES).end
    }

    /// Sends a write's data to the device, which requests it now; returns the time at which the device has received it.
    pub(super) fn data(&mut self, now: Ps, request: &BankRequest) -> Ps {
        let asked = self.link.send(now, Direction::Up, 0);
        self.link.send(asked.end, Direction::Down, u64::from(request.bytes)).end
    }

    /// Sends a read's data and the completion to memory, now that the device is done; returns the time at which both
    /// have arrived.
    pub(super) fn ascend(&mut self, now: Ps, request: &BankRequest) -> Ps {
        if !request.write {
            self.link.send(now, Direction::Up, u64::from(request.bytes));
        }
        self.link.send(now, Direction::Up, COMPLETION_BYTES).end
    }

    /// Submits a request to its device's machine.
    pub(super) fn submit(&mut self, now: Ps, io: u32, request: &BankRequest) {
        let op = if request.write { RequestOp::Write } else { RequestOp::Read };
        let (offset_bytes, bytes) = (request.offset, u64::from(request.bytes));
        let machine = &mut self.machines[request.device as usize];
        machine.submit_request(now, IoRequest { at: None, op, stream: io, offset_bytes, bytes });
    }

    /// Returns the device that has the next event of all, and the event's time; `None` if no device has an event.
    pub(super) fn next(&self) -> Option<(usize, Ps)> {
        let times = self.machines.iter().enumerate().filter_map(|(i, m)| Some((i, m.next_event_at()?)));
        times.min_by_key(|&(i, at)| (at, i))
    }

    /// Handles a device's next event, and appends the numbers of requests that ended with it to `ended`.
    ///
    /// # Panics
    /// If a request failed: the descriptions of such runs have no faults.
    pub(super) fn step(&mut self, device: usize, ended: &mut Vec<u32>) {
        let machine = &mut self.machines[device];
        machine.step();
        while let Some(one) = machine.take_ended() {
            let (status, stream) = (one.status, one.request.stream);
            assert_eq!(status, RequestStatus::Success, "request {stream} of device {device}");
            ended.push(stream);
        }
    }

    /// Returns the number of events of all devices and a hash of them; checks that no request is in flight.
    pub(super) fn finish(&self) -> (u64, u64) {
        assert!(self.open.iter().all(|&open| open == 0), "requests in flight: {:?}", self.open);
        let mut hash = 0u64;
        for machine in &self.machines {
            machine.check();
            hash = (hash ^ machine.hash()).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        }
        (self.machines.iter().map(Machine::events).sum(), hash)
    }
}
