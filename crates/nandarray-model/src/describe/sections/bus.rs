//! `[bus]`: the channels.
//!
//! Default times are cycles of the command set at the timings that MQSim takes from an ONFI NV-DDR2 part (ns): tCS 20,
//! tRR 20, tWB 100, tWC 25, tADL 70, tCALS 15, tDQSRE 15, tRPRE 15, tWPST 6, tWPSTH 15, tDBSY 500.

use nandarray_describe::ValueKind::{Flag, Rate};
use nandarray_describe::declare;
use nandarray_sim::Ps;

use super::SHORT;

const SOURCE: &str =
    "MQSim 7ec40e3 (https://github.com/CMU-SAFARI/MQSim), ONFI_Channel_NVDDR2.cpp, from ONFI NV-DDR2 timings";

declare! {
    /// The channel bus (ONFI): one transfer or command sequence at a time.
    #[derive(Copy, Eq)]
    pub struct Bus in "bus", from SOURCE, {
        "rate": Rate(1_000_000, 9_600_000_000), "what a channel moves while it moves data",
            bound "the fastest bus specified is JESD230G's 4,800 MT/s; 16 lines of it make 9.6 GB/s"
            => bytes_per_s: u64;
        "t_read_command": SHORT, "command and address cycles of a page read", default "290 ns" => t_read_command: Ps;
        "t_program_command": SHORT, "... of a page program, before its data", default "361 ns"
            => t_program_command: Ps;
        "t_erase_command": SHORT, "... of a block erase", default "220 ns" => t_erase_command: Ps;
        "t_read_further_plane": SHORT, "more for each further plane of a multi-plane read", default "650 ns"
            => t_read_further_plane: Ps;
        "t_program_further_plane": SHORT, "... of a multi-plane program", default "816 ns"
            => t_program_further_plane: Ps;
        "t_erase_further_plane": SHORT, "... of a multi-plane erase", default "700 ns" => t_erase_further_plane: Ps;
        "t_data_out_command": SHORT, "cycles before the data of a finished read may leave", default "30 ns"
            => t_data_out_command: Ps;
        "t_suspend_command": SHORT, "a suspend or a resume command", default "95 ns" => t_suspend_command: Ps;
        "transfers_spare": Flag, "whether the spare bytes cross the bus with their page", default "false"
            => transfers_spare: bool;
    }
}
