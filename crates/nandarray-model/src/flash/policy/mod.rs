//! Scheduling: the next operation of a die by a key, the next use of the bus by a grant. Each policy is one small file.

pub(super) mod fifo;
pub(super) mod mqsim_compat;
pub(super) mod normal;

use super::slab::OpSlot;
use super::times::Times;
use crate::describe::Scheduling;

/// Grant of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// No die wants it.
    Nothing,
    /// A die of the channel (a chip of it, in `mqsim_compat`), for a command.
    Command(u32),
    /// The data that waits first in this one of `Channel::out`.
    DataOut(usize),
}

/// Of what waits at a die, what has the least key goes first; at one key, what came first.
pub(super) fn key(by: Scheduling, times: &Times, urgent: bool, slot: &OpSlot) -> u64 {
    match by {
        Scheduling::Normal => normal::key(times, urgent, slot),
        Scheduling::Fifo => fifo::key(slot),
        Scheduling::MqsimCompat => mqsim_compat::key(urgent, slot),
    }
}
