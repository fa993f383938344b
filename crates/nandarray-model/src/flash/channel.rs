//! A channel's bus: its use at the moment, and the dies that wait for it.

use super::slab::{NONE, SlotList};
use nandarray_sim::Ps;

/// Use of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Command and address cycles.
    Command,
    /// A page on its way to a die, with its command.
    DataIn,
    /// Data on its way to the controller.
    DataOut,
}

/// A channel.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    /// Until when the bus is taken.
    pub(super) free_at: Ps,
    /// Whether an event at `free_at` is in the queue.
    pub(super) pending: bool,
    /// Whether an event is in the queue that begins the operations submitted at this moment.
    pub(super) kicked: bool,
    /// The read whose data is on the bus.
    pub(super) leaving: u32,
    /// Dies (of the channel) that wait with a command that takes no data.
    pub(super) short: u128,
    /// Dies that wait with a page to be programmed.
    pub(super) long: u128,
    /// Next in turn: a die or, in `policy::mqsim_compat`, a chip.
    pub(super) turn: u32,
    /// Die that is next in turn for a page to program.
    pub(super) program_turn: u32,
    /// Reads that left while a program waited.
    pub(super) programs_passed: u32,
    /// Reads that left while one of the background waited.
    pub(super) back_passed: u32,
    /// Reads whose data waits for the bus: of the map, of the host, of the background.
    pub(super) out: [SlotList; 3],
    /// Until when the channel's decoder is taken.
    pub(super) decoder_free: Ps,
    pub(super) busy_command: Ps,
    pub(super) busy_in: Ps,
    pub(super) busy_out: Ps,
    last_use: Use,
}

impl Channel {
    pub(super) fn new() -> Self {
        Self {
            free_at: Ps::ZERO,
            pending: false,
            kicked: false,
            leaving: NONE,
            short: 0,
            long: 0,
            turn: 0,
            program_turn: 0,
            programs_passed: 0,
            back_passed: 0,
            out: [SlotList::EMPTY; 3],
            decoder_free: Ps::ZERO,
            busy_command: Ps::ZERO,
            busy_in: Ps::ZERO,
            busy_out: Ps::ZERO,
            last_use: Use::Command,
        }
    }

    /// Whether someone waits for the bus.
    pub(super) fn wanted(&self) -> bool {
        self.short | self.long != 0 || self.data_waits()
    }

    /// Whether data waits to leave.
    pub(super) fn data_waits(&self) -> bool {
        self.out.iter().any(|l| !l.is_empty())
    }

    /// Takes the bus.
    pub(super) fn occupy(&mut self, what: Use, start: Ps, end: Ps) {
        assert!(start >= self.free_at && end >= start, "the bus is taken until {}", self.free_at);
        let t = end - start;
        match what {
            Use::Command => self.busy_command += t,
            Use::DataIn => self.busy_in += t,
            Use::DataOut => self.busy_out += t,
        }
        self.last_use = what;
        self.free_at = end;
    }

    /// Busy time up to a moment, by use: what reaches beyond it is taken off again, the last use first.
    pub(super) fn busy_until(&self, now: Ps) -> [Ps; 3] {
        let mut busy = [self.busy_command, self.busy_in, self.busy_out];
        let mut beyond = self.free_at.since(now);
        for i in [self.last_use as usize, Use::Command as usize] {
            let off = beyond.min(busy[i]);
            busy[i] = busy[i] - off;
            beyond = beyond - off;
        }
        busy
    }
}

/// The first set bit of `mask` at or after `turn`, round and round.
pub(super) fn next_in_turn(mask: u128, turn: u32) -> u32 {
    debug_assert!(mask != 0);
    let after = mask & (u128::MAX << turn);
    if after == 0 { mask.trailing_zeros() } else { after.trailing_zeros() }
}
