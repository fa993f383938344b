//! The devices, and a request's way: over the shared link to a device, through its machine, and back.
//!
//! A request's messages on the shared link are those of NVMe over PCIe: the device requests the entry, which comes; a
//! read's data and then its completion go up; a write's data is requested and comes down. Each device has a link of its
//! own before the shared one, which its description gives. Addresses are striped over the devices, and wrap at the
//! capacity.

use std::collections::VecDeque;

use nandarray_sim::Ps;

use super::platform::FetchPlatform;
use crate::describe::{Description, Energy, LinkSettings};
use crate::host::{Direction, HostLink};
use crate::machine::{Machine, RequestStatus};
use crate::workload::{IoRequest, RequestOp};

/// Bytes of an NVMe submission entry and of a completion.
const COMMAND_BYTES: u64 = 64;
const COMPLETION_BYTES: u64 = 16;

/// A request of the bank.
#[derive(Clone, Copy, Debug)]
pub(super) struct BankRequest {
    pub(super) device: u32,
    pub(super) write: bool,
    pub(super) offset: u64,
    pub(super) bytes: u32,
    /// Its submission, for the mean latency.
    pub(super) submitted: Ps,
}

/// Devices behind one link.
pub(super) struct DriveBank {
    machines: Vec<Machine>,
    capacities: Vec<u64>,
    /// Requests in flight of each device, and those that wait for room in its queues.
    open: Vec<u32>,
    waiting: Vec<VecDeque<u32>>,
    open_max: u32,
    stripe: u64,
    pub(super) link: HostLink,
    pub(super) by_device: Vec<u64>,
}

impl DriveBank {
    /// Devices that were written once, from end to end.
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

    /// The device of an address, and the place on it.
    pub(super) fn place(&self, address: u64, bytes: u32) -> (u32, u64) {
        let (stripe, n) = (address / self.stripe, self.machines.len() as u64);
        let device = (stripe % n) as usize;
        let offset = stripe / n * self.stripe + address % self.stripe;
        // Requests may be longer than a stripe; none crosses the end.
        let room = self.capacities[device].saturating_sub(u64::from(bytes)) / self.stripe.max(512) + 1;
        (device as u32, offset / self.stripe % room * self.stripe + offset % self.stripe)
    }

    /// Whether a device has room for a request now; if not, the request waits for its turn.
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

    /// A request has left; the next one that waited for its room.
    pub(super) fn leave(&mut self, device: u32) -> Option<u32> {
        let device = device as usize;
        assert!(self.open[device] > 0, "device {device} has no request in flight");
        self.open[device] -= 1;
        self.waiting[device].pop_front()
    }

    /// The doorbell was rung: the time at which the device has the entry. A direction is booked in order of time: what
    /// the device asks for afterwards is booked when it does ([`Self::data`]).
    pub(super) fn entry(&mut self, now: Ps) -> Ps {
        let asked = self.link.send(now, Direction::Up, 0);
        self.link.send(asked.end, Direction::Down, COMMAND_BYTES).end
    }

    /// The device asks for a write's data: the time at which it has them.
    pub(super) fn data(&mut self, now: Ps, request: &BankRequest) -> Ps {
        let asked = self.link.send(now, Direction::Up, 0);
        self.link.send(asked.end, Direction::Down, u64::from(request.bytes)).end
    }

    /// The device is done: the time at which data and completion are in memory.
    pub(super) fn ascend(&mut self, now: Ps, request: &BankRequest) -> Ps {
        if !request.write {
            self.link.send(now, Direction::Up, u64::from(request.bytes));
        }
        self.link.send(now, Direction::Up, COMPLETION_BYTES).end
    }

    /// Gives a request to its device.
    pub(super) fn submit(&mut self, now: Ps, io: u32, request: &BankRequest) {
        let op = if request.write { RequestOp::Write } else { RequestOp::Read };
        let (offset_bytes, bytes) = (request.offset, u64::from(request.bytes));
        let machine = &mut self.machines[request.device as usize];
        machine.submit_request(now, IoRequest { at: None, op, stream: io, offset_bytes, bytes });
    }

    /// The device with the next event, and its time.
    pub(super) fn next(&self) -> Option<(usize, Ps)> {
        let times = self.machines.iter().enumerate().filter_map(|(i, m)| Some((i, m.next_event_at()?)));
        times.min_by_key(|&(i, at)| (at, i))
    }

    /// Handles a device's next event: requests that ended by it.
    ///
    /// # Panics
    /// If a request failed: descriptions of runs have no faults.
    pub(super) fn step(&mut self, device: usize, ended: &mut Vec<u32>) {
        let machine = &mut self.machines[device];
        machine.step();
        while let Some(one) = machine.take_ended() {
            let (status, stream) = (one.status, one.request.stream);
            assert_eq!(status, RequestStatus::Success, "request {stream} of device {device}");
            ended.push(stream);
        }
    }

    /// Events of all devices and their hash; checks that they are at rest.
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
