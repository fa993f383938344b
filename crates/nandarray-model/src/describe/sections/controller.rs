//! `[controller]`: firmware, which by default costs nothing: hardware for every stage.

use nandarray_describe::ValueKind::{Cores, Count, Flag, Size, Word};
use nandarray_describe::{Checks, declare, words};
use nandarray_sim::Ps;

use super::super::Description;
use super::{KIB, SHORT};

words! {
    /// Policy that chooses the next flash operation of a die, and the next use of a channel.
    #[derive(Hash)]
    pub enum Scheduling {
        /// Dies are independent, and sensing overlaps with transfers; reads go before programs and programs before
        /// erases, until an operation has waited too long.
        Normal = "normal",
        /// Operations are executed in order of arrival at each die.
        Fifo = "fifo",
        /// As in MQSim: a chip executes one command at a time, and data that leaves goes before new commands.
        MqsimCompat = "mqsim-compat",
    }
}

declare! {
    /// Firmware: number of cores, times of the stages, mapping of stages to cores.
    pub struct ControllerSettings in "controller", from "no cost: nothing is assumed", {
        "cores": Count(1, 256), "embedded cores", default "1" => cores: u32;
        "t_command": SHORT, "decoding a command", default "0 s" => t_command: Ps;
        "t_translate": SHORT, "translating a page of the conventional map", default "0 s" => t_translate: Ps;
        "t_translate_block": SHORT, "translating a building block, where the device translates spaces", default "0 s"
            => t_translate_block: Ps;
        "t_allocate": SHORT, "allocation of a page written", default "0 s" => t_allocate: Ps;
        "t_assemble": SHORT, "the data assembler, once a run copied", default "0 s" => t_assemble: Ps;
        "t_channel": SHORT, "the channel handler, once a flash command", default "0 s" => t_channel: Ps;
        "t_complete": SHORT, "completing a command", default "0 s" => t_complete: Ps;
        "coordinates_size": Size(0, 64 * KIB),
            "host memory that holds a command's coordinates, fetched where the device translates spaces",
            default "0 B" =>
            /// Bytes of host memory that hold the coordinates of a command that moves elements (NDS paper, 5.3.1: the
            /// second word of the command points to a page with them). The device fetches them before it translates.
            /// 0 if the coordinates are part of the command's entry.
            coordinates_bytes: u32;
        "channel_handlers": Count(1, 256), "cores from the channel handlers' on, channels dealt to them", default "1"
            =>
            /// Number of channel handlers, which run on successive cores from the stage's own core on; channels are
            /// assigned to them in turn.
            channel_handlers: u32;
        "stage_cores": Cores(5),
            "core of command handler, translator, allocator and collector, assembler, channel handlers; none: \
            hardware of its own",
            default "[\"none\", \"none\", \"none\", \"none\", \"none\"]" =>
            /// Core of each stage: command handler, translator, allocator and collector, assembler, channel handlers;
            /// `None` if the stage is separate pipelined hardware, which never waits for a core.
            stage_cores: [Option<u32>; 5];
        "command_slots": Count(1, 1 << 20),
            "commands that the device works on at once; further ones wait in the host's queues",
            default "1024" from "assumed: more than common workloads fill" =>
            /// Maximum number of commands that the device executes at once; further ones wait in the host's queues,
            /// where arbitration chooses.
            command_slots: u32;
        "scheduling": Word(Scheduling::WORDS), "who issues what to the flash, when", default "normal"
            => scheduling: Scheduling;
        "spaces_in_device": Flag, "whether the device (or else the host) translates and assembles spaces",
            default "true" => spaces_in_device: bool;
    }
}

/// Checks the rules between keys of the section.
pub(in super::super) fn check(d: &Description, checks: &mut Checks<'_>) {
    let cores = d.controller.cores;
    checks.hold(
        d.controller.stage_cores.iter().flatten().all(|&core| core < cores),
        "controller.stage_cores",
        || "names a core that is not there".to_owned(),
        || format!("controller.cores is {cores}: allowed are 0 to {}, or \"none\"", cores - 1),
    );
}
