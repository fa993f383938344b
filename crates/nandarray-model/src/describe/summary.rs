//! Figures that follow from a description without simulation: capacity, bandwidths of the parts, latency of a single
//! request on an idle device.
//!
//! These closed forms are printed, and the simulation is checked against them. Sequential rates assume that each die
//! works as fast as its timing allows, with sensing overlapped with the transfers of other dies, bounded by the
//! channels; waiting between requests, reclaim, caches and retries are not included.

use super::description::{Cell, Description, StripeLevel, Striping};
use nandarray_sim::Ps;

/// Figures that follow from a description.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Bytes of all flash pages, over-provisioning included.
    pub raw_bytes: u64,
    /// Bytes that requests can address.
    pub user_bytes: u64,
    /// Number of dies.
    pub dies: u32,
    /// Number of planes.
    pub planes: u32,
    /// Kind of cells.
    pub cell: Cell,
    /// Data rate of all channels together, while they transfer data.
    pub bus_bytes_per_s: u64,
    /// Rate of reading whole pages sequentially, as bounded by dies and channels.
    pub read_bytes_per_s: u64,
    /// Rate of programming whole pages sequentially, as bounded by dies and channels.
    pub program_bytes_per_s: u64,
    /// Rate of data over the link in each direction, without the overhead of packets.
    pub link_bytes_per_s: u64,
    /// Latency of a 4 KiB read on an idle device, from submission to completion; the mean over the kinds of pages.
    pub read_4k_ps: Ps,
    /// Latency of a write of one page on an idle device without a cache, until the page is programmed.
    pub write_page_ps: Ps,
    /// Latency of a write of one page on an idle device as the host sees it: with early completion, until the page is
    /// in the cache.
    pub write_page_seen_ps: Ps,
}

fn mean(all: &[Ps]) -> Ps {
    Ps(all.iter().map(|t| t.0).sum::<u64>() / all.len() as u64)
}

/// Returns the rate of `bytes` per time `every`, in bytes per second; the largest number if `every` is zero.
fn rate(bytes: u64, every: Ps) -> u64 {
    if every == Ps::ZERO {
        return u64::MAX;
    }
    u64::try_from(u128::from(bytes) * 1_000_000_000_000 / u128::from(every.0)).unwrap_or(u64::MAX)
}

impl Description {
    /// Computes the figures that follow from this description.
    pub fn summarise(&self) -> Summary {
        let g = &self.geometry;
        let raw_bytes = g.bytes();
        Summary {
            raw_bytes,
            user_bytes: (raw_bytes as f64 * (1.0 - self.ftl.over_provisioning)) as u64,
            dies: g.dies_total(),
            planes: g.planes_total(),
            cell: self.nand.cell,
            bus_bytes_per_s: self.bus.bytes_per_s * u64::from(g.channels),
            read_bytes_per_s: self.read_rate(),
            program_bytes_per_s: self.program_rate(),
            link_bytes_per_s: self.link_rate(),
            read_4k_ps: self.read_alone(4096),
            write_page_ps: self.write_alone(false),
            write_page_seen_ps: self.write_alone(self.ftl.early_completion),
        }
    }

    /// Returns the time that `bytes` bytes of a page take on the bus; a proportional part of the page's spare bytes is
    /// added if these cross the bus.
    fn on_bus(&self, bytes: u64) -> Ps {
        let (page, spare) = (u64::from(self.geometry.page_bytes), u64::from(self.geometry.spare_bytes));
        let spare = if self.bus.transfers_spare { (bytes * spare).div_ceil(page) } else { 0 };
        Ps::of_bytes(bytes + spare, self.bus.bytes_per_s)
    }

    /// Returns the maximum number of planes that one command can address.
    fn together(&self) -> u64 {
        if self.nand.multi_plane { u64::from(self.geometry.planes) } else { 1 }
    }

    /// Returns the rate of all channels together in bytes per second, if each die moves `bytes` in each period `cycle`
    /// and occupies its channel's bus for the time `bus` of it.
    fn channels_rate(&self, bytes: u64, bus: Ps, cycle: Ps) -> u64 {
        let dies = u64::from(self.geometry.ways) * u64::from(self.geometry.dies);
        rate(bytes, bus).min(rate(bytes * dies, cycle)).saturating_mul(u64::from(self.geometry.channels))
    }

    /// Returns the highest rate of reading pages, over commands for 1 plane up to all planes of a die.
    fn read_rate(&self) -> u64 {
        (1..=self.together()).map(|planes| self.read_rate_of(planes)).max().unwrap_or(0)
    }

    fn program_rate(&self) -> u64 {
        (1..=self.together()).map(|planes| self.program_rate_of(planes)).max().unwrap_or(0)
    }

    fn read_rate_of(&self, planes: u64) -> u64 {
        let page = u64::from(self.geometry.page_bytes);
        let command = self.bus.t_read_command + self.bus.t_read_further_plane * (planes - 1);
        let out = (self.bus.t_data_out_command + self.on_bus(page)) * planes;
        let sense = mean(&self.nand.t_read) + self.nand.t_ready;
        let cycle = match self.nand.t_cache_read_busy {
            Some(busy) => command + (sense + busy).max(out),
            None => command + sense + out,
        };
        self.channels_rate(planes * page, command + out, cycle)
    }

    fn program_rate_of(&self, planes: u64) -> u64 {
        let pages = if self.nand.one_shot { self.nand.cell.bits() as u64 } else { 1 };
        let page = u64::from(self.geometry.page_bytes);
        let command = self.bus.t_program_command + self.bus.t_program_further_plane * (planes - 1);
        let bus = command + self.on_bus(page) * (planes * pages);
        let program = mean(&self.nand.t_program) + self.nand.t_ready;
        let cycle = match self.nand.t_cache_program_busy {
            Some(busy) => (program + busy).max(bus),
            None => program + bus,
        };
        self.channels_rate(planes * pages * page, bus, cycle)
    }

    fn link_rate(&self) -> u64 {
        let (payload, overhead) = (self.link.packet_payload_bytes, self.link.packet_overhead_bytes);
        let share =
            u128::from(self.link.bytes_per_s) * u128::from(payload) / (u128::from(payload) + u128::from(overhead));
        u64::try_from(share).expect("less than the raw rate")
    }

    /// Returns the time of a message of `bytes` on the link, with its packets' overhead.
    fn message(&self, bytes: u64) -> Ps {
        let packets = bytes.div_ceil(u64::from(self.link.packet_payload_bytes)).max(1);
        Ps::of_bytes(bytes + packets * u64::from(self.link.packet_overhead_bytes), self.link.bytes_per_s)
    }

    /// Returns the time that host, link and firmware take for any command, without the time of its data.
    fn command_alone(&self) -> Ps {
        let host = self.host.t_submit + self.host.t_complete + self.host.t_interrupt.unwrap_or_default();
        let link = self.message(self.link.command_bytes.into()) + self.message(self.link.completion_bytes.into());
        host + link + self.link.t_propagate * 2 + self.controller.t_command + self.controller.t_complete
    }

    fn read_alone(&self, bytes: u64) -> Ps {
        let page = u64::from(self.geometry.page_bytes);
        let pages = bytes.div_ceil(page);
        // Neighbouring pages are on different channels, or are read one after the other on the same channel.
        let first = match &self.ftl.striping {
            Striping::Static(order) | Striping::Dynamic(order) => order[0],
        };
        let channels = if first == StripeLevel::Channel { u64::from(self.geometry.channels) } else { 1 };
        let rounds = pages.div_ceil(channels);
        let part = bytes.min(page);
        let bus = (self.bus.t_read_command + self.bus.t_data_out_command + self.on_bus(part)) * rounds;
        let firmware = (self.controller.t_translate + self.controller.t_channel) * rounds;
        let decode = if self.reliability.ecc_codeword_bytes > 0 { self.reliability.t_ecc_decode } else { Ps::ZERO };
        let flash = bus + mean(&self.nand.t_read) + self.nand.t_ready + decode;
        self.command_alone() + firmware + flash + self.message(bytes)
    }

    fn write_alone(&self, early: bool) -> Ps {
        let page = u64::from(self.geometry.page_bytes);
        let data = self.message(page);
        if early {
            return self.command_alone() + data;
        }
        let firmware = self.controller.t_translate + self.controller.t_allocate + self.controller.t_channel;
        let program = self.bus.t_program_command + self.on_bus(page) + mean(&self.nand.t_program) + self.nand.t_ready;
        self.command_alone() + data + firmware + program
    }
}

#[cfg(test)]
mod tests {
    use crate::describe::preset;

    /// Compares closed forms with times that MQSim's own runs confirm: 88.9 us for 4 KiB, 777.5 us to write a page of 8
    /// KiB.
    #[test]
    fn a_lone_request_takes_what_mqsim_measures() {
        let s = preset("mqsim-ideal").unwrap().summarise();
        assert!((s.read_4k_ps.us() / 88.9 - 1.0).abs() < 0.002, "{}", s.read_4k_ps);
        assert!((s.write_page_ps.us() / 777.5 - 1.0).abs() < 0.001, "{}", s.write_page_ps);
        assert_eq!(s.raw_bytes, 512 << 30);
        // 8 channels of 333 MT/s; 64 dies with 2 planes of 8 KiB, each taking 750 us and its transfer.
        assert_eq!(s.bus_bytes_per_s / 1_000_000, 2_666);
        assert!((s.read_bytes_per_s as f64 / 2.667e9 - 1.0).abs() < 0.05, "{}", s.read_bytes_per_s);
        assert!((s.program_bytes_per_s as f64 / 1.312e9 - 1.0).abs() < 0.01, "{}", s.program_bytes_per_s);
    }

    #[test]
    fn drives_can_do_what_their_data_sheets_say() {
        for name in crate::describe::presets() {
            let d = preset(name).unwrap();
            let s = d.summarise();
            let Some(spec) = &d.spec else { continue };
            let read = s.read_bytes_per_s.min(s.link_bytes_per_s) as f64;
            let write = s.program_bytes_per_s.min(s.link_bytes_per_s) as f64;
            for (what, ours, theirs) in
                [("read", read, spec.seq_read_bytes_per_s), ("write", write, spec.seq_write_bytes_per_s)]
            {
                let Some(theirs) = theirs else { continue };
                let ratio = ours / theirs as f64;
                assert!(ratio > 0.9, "{name}: {what} {ours} B/s of {theirs}");
                assert!(!spec.claims_match || ratio < 1.15, "{name}: {what} {ours} B/s of {theirs}");
            }
        }
    }
}
