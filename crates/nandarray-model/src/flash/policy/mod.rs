//! Scheduling policies: `key` orders the operations that wait for a die, `grant` chooses the next use of a channel's
//! bus. Each policy is one small file.

pub(super) mod fifo;
pub(super) mod mqsim_compat;
pub(super) mod normal;

use super::slab::OpSlot;
use super::times::Times;
use crate::describe::Scheduling;

/// The next use of a channel's bus, as a policy's `grant` chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grant {
    /// The bus stays free: no die waits for it.
    Nothing,
    /// A command of this die of the channel (of this chip, in `mqsim_compat`).
    Command(u32),
    /// The transfer of the oldest waiting read data in the list `Channel::out` of this index.
    DataOut(usize),
}

/// Returns the scheduling key of a waiting operation: the operation of a die with the lowest key goes first; among
/// equal keys, the one that arrived first.
pub(super) fn key(by: Scheduling, times: &Times, urgent: bool, slot: &OpSlot) -> u64 {
    match by {
        Scheduling::Normal => normal::key(times, urgent, slot),
        Scheduling::Fifo => fifo::key(slot),
        Scheduling::MqsimCompat => mqsim_compat::key(urgent, slot),
    }
}
