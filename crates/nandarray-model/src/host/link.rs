//! The link between host and device: PCIe or a fabric, full duplex, one message at a time each way, in order of asking.
//!
//! A message is cut into packets of `packet_payload_bytes`, each of which takes `packet_overhead_bytes` more, at the
//! raw rate; then it travels for `t_propagate`, during which the next is already on its way. PCIe 3 x4 with 128 B
//! payload and 28 B overhead at 4 B/ns: 4 KiB are 32 x 156 B, 1,248 ns. A message without payload (a read request) is
//! one packet. Entries of queues and requests for host memory may go ahead of data that waits (`entries_ahead`), as
//! where the device sends a completion behind its own command's data and not behind all that came meanwhile: they leave
//! at once, between two packets, and what waits is as much later. Flow control credits and retransmission are not
//! modelled.

use crate::describe;
use crate::flash::OpCause;
use crate::host::Resource;
use crate::spans::{Span, Track};
use nandarray_sim::{Booked, Ps};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the device: commands, doorbells, data to write.
    Down,
    /// To the host: data read, completions, requests for host memory.
    Up,
}

/// A message on the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When its first byte leaves.
    pub start: Ps,
    /// When its last byte has left: the link is free for the next.
    pub left: Ps,
    /// When its last byte is there.
    pub end: Ps,
}

/// The link.
#[derive(Clone, Debug)]
pub struct HostLink {
    settings: describe::Link,
    ways: [Resource; 2],
    payload_bytes: [u64; 2],
    wire_bytes: [u64; 2],
    pj_per_byte: f64,
    idle_uw: f64,
}

impl HostLink {
    /// A link at rest.
    ///
    /// # Panics
    /// If its rate or its payload is 0.
    pub fn new(settings: &describe::Link, energy: &describe::Energy) -> Self {
        assert!(settings.bytes_per_s > 0 && settings.packet_payload_bytes > 0, "a link that carries nothing");
        Self {
            settings: *settings,
            ways: [Resource::new(1, |_| Track::LinkDown), Resource::new(1, |_| Track::LinkUp)],
            payload_bytes: [0; 2],
            wire_bytes: [0; 2],
            pj_per_byte: energy.link_pj_per_byte,
            idle_uw: energy.link_idle_uw,
        }
    }

    /// Bytes that a message of so many takes on the wire, its packets' overhead included.
    pub fn on_the_wire(&self, bytes: u64) -> u64 {
        let packets = bytes.div_ceil(u64::from(self.settings.packet_payload_bytes)).max(1);
        bytes + packets * u64::from(self.settings.packet_overhead_bytes)
    }

    /// Sends a message behind those that were sent that way before.
    pub fn send(&mut self, now: Ps, direction: Direction, bytes: u64) -> Sent {
        let wire = self.on_the_wire(bytes);
        let way = direction as usize;
        self.payload_bytes[way] += bytes;
        self.wire_bytes[way] += wire;
        let booked = self.ways[way].book_on(0, now, Ps::of_bytes(wire, self.settings.bytes_per_s));
        Sent { start: booked.start, left: booked.end, end: booked.end + self.settings.t_propagate }
    }

    /// Sends an entry of a queue, or a request for host memory: in order, or ahead of what waits.
    pub fn send_entry(&mut self, now: Ps, direction: Direction, bytes: u64) -> Sent {
        let sent = self.send(now, direction, bytes);
        if !self.settings.entries_ahead || sent.start <= now {
            return sent;
        }
        let early = sent.start - now;
        Sent { start: now, left: sent.left - early, end: sent.end - early }
    }

    /// Sends a command's entry to the device.
    pub fn send_command(&mut self, now: Ps) -> Sent {
        self.send(now, Direction::Down, u64::from(self.settings.command_bytes))
    }

    /// Sends a completion's entry to the host.
    pub fn send_completion(&mut self, now: Ps) -> Sent {
        self.send(now, Direction::Up, u64::from(self.settings.completion_bytes))
    }

    /// When that way is free.
    pub fn free_at(&self, direction: Direction) -> Ps {
        self.ways[direction as usize].free_at(0)
    }

    /// How long that way was busy until `now`.
    pub fn busy_until(&self, direction: Direction, now: Ps) -> Ps {
        self.ways[direction as usize].busy_until(now).sum()
    }

    /// Bytes of messages sent that way.
    pub fn payload_bytes(&self, direction: Direction) -> u64 {
        self.payload_bytes[direction as usize]
    }

    /// Bytes that crossed the wire that way, overhead included.
    pub fn wire_bytes(&self, direction: Direction) -> u64 {
        self.wire_bytes[direction as usize]
    }

    /// Energy of what crossed the wire, overhead included, in picojoules.
    pub fn energy_pj(&self) -> f64 {
        (self.wire_bytes[0] + self.wire_bytes[1]) as f64 * self.pj_per_byte
    }

    /// Energy of being up, in picojoules.
    pub fn idle_energy_pj(&self, elapsed: Ps) -> f64 {
        nandarray_sim::energy_pj(self.idle_uw, elapsed)
    }

    /// What a message looks like on a timeline: from its first byte leaving to the last one leaving.
    pub fn span(&self, sent: Sent, direction: Direction, what: &'static str, cause: OpCause, detail: u64) -> Span {
        let booked = Booked { start: sent.start, end: sent.left, server: 0 };
        self.ways[direction as usize].span(booked, what, cause, detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pcie() -> describe::Link {
        describe::Link {
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
        assert_eq!(link.send_completion(Ps::ZERO).start, Ps::from_ns(1_248), "in order");
        let command = link.send_command(Ps::ZERO);
        assert_eq!((command.start, command.end), (Ps::ZERO, Ps::from_ns(23)), "the other way is free");
        assert_eq!(link.on_the_wire(0), 28);
        assert_eq!((link.payload_bytes(Direction::Up), link.wire_bytes(Direction::Up)), (4112, 4992 + 44));
        assert_eq!(link.energy_pj(), f64::from(4992 + 44 + 92) * 10.0);
        assert_eq!(link.busy_until(Direction::Up, Ps::from_ns(1_000)), Ps::from_ns(1_000));
        assert_eq!(link.busy_until(Direction::Up, Ps::from_us(2)), Ps::from_ns(1_259));
    }

    #[test]
    fn entries_may_go_ahead_of_data_that_waits() {
        let mut link = HostLink::new(&describe::Link { entries_ahead: true, ..pcie() }, &energy());
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
        let fabric = describe::Link {
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
