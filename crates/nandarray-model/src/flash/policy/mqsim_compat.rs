//! Scheduling as MQSim's code does it (TSU_OutOfOrder over NVM_PHY_ONFI_NVDDR2), including where that differs from
//! MQSim's intention:
//!
//! - a chip executes one command at a time, however many dies it has, until all data of the command has left;
//! - data that waits to leave always goes before a new command: the map's first, then the host's, then the
//!   background's;
//! - chips of a channel get commands in turn; the first operation in a chip's queue decides die and page, and every
//!   operation that waits for the same page number on another plane of that die joins, at any depth of its queue;
//! - reads go before programs and programs before erases, but the background's reads go after the host's programs;
//! - nothing is ever suspended; there are no cache operations and no one-shot word lines.

use super::super::channel::{Channel, next_in_turn};
use super::super::slab::{OpClass, OpSlot};
use super::super::times::Times;
use super::{CommandUnit, DiePolicy, Features, Grant, Joining};

pub(super) struct MqsimCompat;

impl DiePolicy for MqsimCompat {
    /// The key is the operation's class, then its order of arrival. While reclaim is `urgent` at the die, background
    /// work goes before the host's.
    #[inline]
    fn key(&self, _: &Times, urgent: bool, slot: &OpSlot) -> u64 {
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

    /// Data that waits to leave goes first, then a command to the next chip in turn.
    #[inline]
    fn grant(&self, channel: &mut Channel) -> Grant {
        if let Some(out) = (0..3).find(|&i| !channel.out[i].is_empty()) {
            return Grant::DataOut(out);
        }
        if channel.short == 0 {
            return Grant::Nothing;
        }
        Grant::Command(next_in_turn(channel.short, &mut channel.turn))
    }

    #[inline]
    fn grants_ahead(&self) -> bool {
        false
    }

    #[inline]
    fn unit(&self) -> CommandUnit {
        CommandUnit::Chip
    }

    #[inline]
    fn joining(&self) -> Joining {
        Joining::SamePage
    }

    #[inline]
    fn features(&self) -> Features {
        Features::NONE
    }
}
