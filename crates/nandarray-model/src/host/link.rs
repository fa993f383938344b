//! The link between host and device: PCIe or a fabric, full duplex, one message at a time in each direction, in order
//! of sending.
//!
//! A message is split into packets of `packet_payload_bytes`, each with `packet_overhead_bytes` more, which are sent
//! at the raw rate; then it travels for `t_propagate`, while the next message is already sent. With PCIe 3 x4, 128 B
//! of payload and 28 B of overhead at 4 B/ns, 4 KiB are 32 x 156 B, 1,248 ns. A message without payload (a read
//! request) is one packet. Queue entries and requests for host memory may go ahead of waiting data (`entries_ahead`),
//! so that a completion follows the data of its own command, not all data sent meanwhile: they are sent at once,
//! between two packets, and the waiting data is delayed by their time. Flow control credits and retransmission are not
//! modelled.

use crate::describe;
use crate::flash::OpCause;
use crate::host::DeviceResource;
use crate::spans::{DeviceSpan, Track};
use nandarray_sim::{Booked, Ps};

/// A direction of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the device: commands, doorbells, data to write.
    Down,
    /// To the host: data read, completions, requests for host memory.
    Up,
}

/// Times of a message on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Time at which the message's first byte is sent.
    pub start: Ps,
    /// Time at which the message's last byte has been sent, and the link is free for the next message.
    pub left: Ps,
    /// Time at which the message's last byte has arrived.
    pub end: Ps,
}

/// The link between host and device.
#[derive(Clone, Debug)]
pub struct HostLink {
    settings: describe::LinkSettings,
    ways: [DeviceResource; 2],
    wire_bytes: [u64; 2],
    pj_per_byte: f64,
    idle_uw: f64,
}

impl HostLink {
    /// Makes a link with nothing booked.
    ///
    /// # Panics
    /// If its rate or its payload is 0.
    pub fn new(settings: &describe::LinkSettings, energy: &describe::Energy) -> Self {
        assert!(settings.bytes_per_s > 0 && settings.packet_payload_bytes > 0, "a link that carries nothing");
        Self {
            settings: *settings,
            ways: [DeviceResource::new(1, |_| Track::LinkDown), DeviceResource::new(1, |_| Track::LinkUp)],
            wire_bytes: [0; 2],
            pj_per_byte: energy.link_pj_per_byte,
            idle_uw: energy.link_idle_uw,
        }
    }

    /// Returns the bytes that a message of `bytes` takes on the wire, its packets' overhead included.
    pub fn on_the_wire(&self, bytes: u64) -> u64 {
        let packets = bytes.div_ceil(u64::from(self.settings.packet_payload_bytes)).max(1);
        bytes + packets * u64::from(self.settings.packet_overhead_bytes)
    }

    /// Books a message after earlier ones of its direction.
    pub fn send(&mut self, now: Ps, direction: Direction, bytes: u64) -> Sent {
        let wire = self.on_the_wire(bytes);
        let way = direction as usize;
        self.wire_bytes[way] += wire;
        let booked = self.ways[way].book_on(0, now, Ps::of_bytes(wire, self.settings.bytes_per_s));
        Sent { start: booked.start, left: booked.end, end: booked.end + self.settings.t_propagate }
    }

    /// Books a queue entry or a request for host memory: in order, or ahead of waiting data.
    pub fn send_entry(&mut self, now: Ps, direction: Direction, bytes: u64) -> Sent {
        let sent = self.send(now, direction, bytes);
        if !self.settings.entries_ahead || sent.start <= now {
            return sent;
        }
        let early = sent.start - now;
        Sent { start: now, left: sent.left - early, end: sent.end - early }
    }

    /// Returns the busy time of a direction until `now`.
    pub fn busy_until(&self, direction: Direction, now: Ps) -> Ps {
        self.ways[direction as usize].busy_until(now).sum()
    }

    /// Returns the energy of all bytes on the wire, overhead included, in picojoules.
    pub fn energy_pj(&self) -> f64 {
        (self.wire_bytes[0] + self.wire_bytes[1]) as f64 * self.pj_per_byte
    }

    /// Returns the idle energy of the link during `elapsed`, in picojoules.
    pub fn idle_energy_pj(&self, elapsed: Ps) -> f64 {
        nandarray_sim::energy_pj(self.idle_uw, elapsed)
    }

    /// Returns the span of a message for a timeline, from the departure of its first byte to that of its last.
    pub fn span(
        &self,
        sent: Sent,
        direction: Direction,
        what: &'static str,
        cause: OpCause,
        detail: u64,
    ) -> DeviceSpan {
        let booked = Booked { start: sent.start, end: sent.left, server: 0 };
        self.ways[direction as usize].span(booked, what, cause, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcie() -> describe::LinkSettings {
        describe::LinkSettings {
            bytes_per_s: 4_000_000_000,
            packet_payload_bytes: 128,
            packet_overhead_bytes: 28,
            t_propagate: Ps::ZERO,
            command_bytes: 64,
            completion_bytes: 16,
            entries_ahead: false,
        }
    }

    fn energy() -> describe::Energy {
        describe::Energy { link_pj_per_byte: 10.0, link_idle_uw: 5.0, ..Default::default() }
    }

    #[test]
    fn pcie_packets_of_a_page() {
        let mut link = HostLink::new(&pcie(), &energy());
        let page = link.send(Ps::ZERO, Direction::Up, 4096);
        assert_eq!(page.end, Ps::from_ns(1_248), "MQSim's closed form");
        assert_eq!(link.send(Ps::ZERO, Direction::Up, 16).start, Ps::from_ns(1_248), "in order");
        let command = link.send(Ps::ZERO, Direction::Down, 64);
        assert_eq!((command.start, command.end), (Ps::ZERO, Ps::from_ns(23)), "the other way is free");
        assert_eq!(link.on_the_wire(0), 28);
        assert_eq!(link.energy_pj(), f64::from(4992 + 44 + 92) * 10.0);
        assert_eq!(link.busy_until(Direction::Up, Ps::from_ns(1_000)), Ps::from_ns(1_000));
        assert_eq!(link.busy_until(Direction::Up, Ps::from_us(2)), Ps::from_ns(1_259));
    }

    #[test]
    fn entries_may_go_ahead_of_data_that_waits() {
        let mut link = HostLink::new(&describe::LinkSettings { entries_ahead: true, ..pcie() }, &energy());
        link.send(Ps::ZERO, Direction::Up, 4096);
        let entry = link.send_entry(Ps::from_ns(100), Direction::Up, 16);
        assert_eq!((entry.start, entry.end), (Ps::from_ns(100), Ps::from_ns(111)), "44 B at once");
        assert_eq!(link.send(Ps::ZERO, Direction::Up, 4096).start, Ps::from_ns(1_248 + 11), "and what waits is later");
        let mut link = HostLink::new(&pcie(), &energy());
        link.send(Ps::ZERO, Direction::Up, 4096);
        assert_eq!(link.send_entry(Ps::from_ns(100), Direction::Up, 16).start, Ps::from_ns(1_248));
    }

    #[test]
    fn a_fabric_is_late_but_not_slower() {
        // 40 Gb/s, 4 KiB frames with 90 B of headers, 2 us each way.
        let fabric = describe::LinkSettings {
            bytes_per_s: 5_000_000_000,
            packet_payload_bytes: 4096,
            packet_overhead_bytes: 90,
            t_propagate: Ps::from_us(2),
            ..pcie()
        };
        let mut link = HostLink::new(&fabric, &energy());
        let sent: Vec<Sent> = (0..100).map(|_| link.send(Ps::ZERO, Direction::Up, 4096)).collect();
        let one = Ps::of_bytes(4186, 5_000_000_000);
        assert_eq!(sent[0].end, one + Ps::from_us(2));
        assert_eq!(sent[99].end, one * 100 + Ps::from_us(2));
        assert_eq!(link.busy_until(Direction::Up, sent[99].end), one * 100);
    }
}
