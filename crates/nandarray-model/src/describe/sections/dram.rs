//! `[dram]`: the device's DRAM.

use nandarray_describe::ValueKind::{Count, RateOr, Size};
use nandarray_describe::declare;
use nandarray_sim::Ps;

use super::{KIB, SHORT, TIB};

declare! {
    /// The device's DRAM, with one port.
    #[derive(Copy, Eq)]
    pub struct Dram in "dram", from "no cost: nothing is assumed", {
        "rate": RateOr("ideal", 1_000_000, 2_000_000_000_000), "bandwidth of the device's DRAM; ideal: takes no time",
            bound "an HBM4 stack moves 2 TB/s",
            default "ideal" =>
            /// Rate in bytes per second; 0 stands for ideal DRAM, whose accesses take no time.
            bytes_per_s: u64;
        "t_access": SHORT, "latency of an access", default "0 s" => t_access: Ps;
        "size": Size(0, 4 * TIB), "its size", default "1 GiB" => bytes: u64;
        "burst": Size(32, 64 * KIB), "a burst: a line of a core waits for one, and goes ahead of the others",
            default "256 B" from "assumed: four lines of 64 bytes" => burst_bytes: u64;
        "read_crossings": Count(0, 2),
            "how often a byte read from flash crosses it on its way to the host: 2 is into it and out of it, 0 \
            streams past",
            default "2" from "assumed: what is read is buffered, as what is written is" =>
            /// Number of times that a byte read from flash crosses DRAM's port on its way to the host: 2 if it is
            /// written and read, 0 if it bypasses DRAM.
            read_crossings: u32;
    }
}
