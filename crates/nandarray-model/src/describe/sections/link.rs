//! `[link]`: the link to the host.

use nandarray_describe::ValueKind::{Rate, Size, Time, Word};
use nandarray_describe::declare;
use nandarray_sim::Ps;

use super::KIB;

const SOURCE: &str = "NVM Express base specification: entries of submission and completion queues";

declare! {
    /// The link to the host: full duplex, one transfer at a time in each direction.
    #[derive(Copy, Eq)]
    pub struct LinkSettings in "link", from SOURCE, {
        "rate": Rate(1_000_000, 236_000_000_000), "raw rate each way, after line coding",
            bound "the fastest link specified is PCIe 7.0 x16: 128 GT/s a lane leave 236 GB/s each way"
            => bytes_per_s: u64;
        "packet_payload": Size(16, 64 * KIB), "payload of a packet" => packet_payload_bytes: u32;
        "packet_overhead": Size(0, 4 * KIB), "what a packet takes beyond its payload" => packet_overhead_bytes: u32;
        "t_propagate": Time(Ps::ZERO, Ps::from_ms(1_000)), "one way, added to each message, pipelined",
            default "0 s" from "no cost: nothing is assumed" => t_propagate: Ps;
        "command_size": Size(0, 64 * KIB), "a command on the link", default "64 B" => command_bytes: u32;
        "completion_size": Size(0, 64 * KIB), "a completion", default "16 B" => completion_bytes: u32;
        "entries": Word(&["in order", "ahead"]), "where entries of queues go beside data that waits for the link",
            default "in order" => entries_ahead: bool = |q| q.is("link.entries", "ahead");
    }
}
