//! As MQSim does (its TSU_OutOfOrder over NVM_PHY_ONFI_NVDDR2, as they run, not as they are meant):
//!
//! - a chip works for one command at a time, whatever its dies are, until all data of it has left;
//! - data that waits to leave always goes before a new command, the map's before the host's before the background's;
//! - chips of a channel get commands in turn; the first of a chip's queue decides die and page, and whatever else waits
//!   for that page on other planes of that die joins, however far behind;
//! - reads before programs before erases, with the background's reads behind the host's programs;
//! - nothing is ever suspended.

use super::super::channel::{Channel, next_in_turn};
use super::super::slab::{OpClass, OpSlot};
use super::Grant;

/// Order of classes at a chip; while reclaim is urgent there, its own work goes before the host's.
pub(super) fn key(urgent: bool, slot: &OpSlot) -> u64 {
    let rank = match (slot.class, urgent) {
        (OpClass::ReadMap, _) => 0,
        (OpClass::ReadHost, false) => 1,
        (OpClass::ProgramFront, false) => 2,
        (OpClass::ReadBack, false) => 3,
        (OpClass::ProgramBack, false) => 4,
        (OpClass::Erase, false) => 5,
        (OpClass::ReadBack, true) => 1,
        (OpClass::ProgramBack, true) => 2,
        (OpClass::Erase, true) => 3,
        (OpClass::ReadHost, true) => 4,
        (OpClass::ProgramFront, true) => 5,
    };
    rank << 56 | slot.seq
}

/// Grants the bus; commands to chips.
pub(in super::super) fn grant(channel: &mut Channel, ways: u32) -> Grant {
    if let Some(out) = (0..3).find(|&i| !channel.out[i].is_empty()) {
        return Grant::DataOut(out);
    }
    if channel.short == 0 {
        return Grant::Nothing;
    }
    let chip = next_in_turn(channel.short, channel.turn);
    channel.turn = (chip + 1) % ways;
    Grant::Command(chip)
}
