//! A channel's bus: its current use, and the dies that wait for it.

use super::slab::{NONE, SlotList};
use nandarray_sim::Ps;

/// Kind of use of a bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Command and address cycles.
    Command,
    /// Data of a program on its way to a die, with its command.
    DataIn,
    /// Data of a read on its way to the controller.
    DataOut,
}

/// State of a channel: its bus, its decoder, and the dies and data that wait for the bus.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    /// End of the bus's current use; the bus is free from then on.
    pub(super) free_at: Ps,
    /// Whether a [`BusFree`](super::FlashEvent::BusFree) event at `free_at` has been scheduled.
    pub(super) pending: bool,
    /// Whether a [`Kick`](super::FlashEvent::Kick) event has been scheduled at the current time, to begin the
    /// operations submitted at this time.
    pub(super) kicked: bool,
    /// Slot of the read whose data is on the bus, or `NONE`.
    pub(super) leaving: u32,
    /// Bit mask of the channel's dies that wait to send a command without data; of its chips, which wait to send any
    /// command, where a chip is the policy's unit.
    pub(super) short: u128,
    /// Bit mask of the channel's dies that wait to receive a page to be programmed.
    pub(super) long: u128,
    /// Die (or chip: `DiePolicy::unit`) at which the round-robin over `short` continues.
    pub(super) turn: u32,
    /// Die at which the round-robin over `long` continues.
    pub(super) program_turn: u32,
    /// Number of transfers of read data granted in a row while a program waited.
    pub(super) programs_passed: u32,
    /// Number of transfers of the map's or host's reads granted in a row while data of a background read waited.
    pub(super) back_passed: u32,
    /// Queues of reads whose data waits for the bus: the map's, the host's, the background's.
    pub(super) out: [SlotList; 3],
    /// End of the last decoding scheduled at the channel's decoder.
    pub(super) decoder_free: Ps,
    pub(super) busy_command: Ps,
    pub(super) busy_in: Ps,
    pub(super) busy_out: Ps,
    last_use: Use,
    /// Beginning of the last use.
    last_start: Ps,
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
            last_start: Ps::ZERO,
        }
    }

    /// Whether a command or data waits for the bus.
    pub(super) fn wanted(&self) -> bool {
        self.short | self.long != 0 || self.data_waits()
    }

    /// Whether data of a read waits for the bus.
    pub(super) fn data_waits(&self) -> bool {
        self.out.iter().any(|l| !l.is_empty())
    }

    /// Marks the bus as used from `start` to `end` and adds the time to the busy time of this use. Panics if it is in
    /// use at `start`.
    pub(super) fn occupy(&mut self, what: Use, start: Ps, end: Ps) {
        assert!(start >= self.free_at && end >= start, "the bus is taken until {}", self.free_at);
        let t = end - start;
        match what {
            Use::Command => self.busy_command += t,
            Use::DataIn => self.busy_in += t,
            Use::DataOut => self.busy_out += t,
        }
        self.last_use = what;
        self.last_start = start;
        self.free_at = end;
    }

    /// Returns the bus's busy time up to `now`, in the order of [`Use`]. Time that was booked beyond `now` is
    /// subtracted: that of the last use, and of the commands that were booked before it at the same moment.
    pub(super) fn busy_until(&self, now: Ps) -> [Ps; 3] {
        let mut busy = [self.busy_command, self.busy_in, self.busy_out];
        let last = self.free_at.since(now.max(self.last_start));
        for (kind, beyond) in [(self.last_use, last), (Use::Command, self.free_at.since(now) - last)] {
            let of = &mut busy[kind as usize];
            *of = *of - beyond.min(*of);
        }
        busy
    }
}

/// Returns the first set bit of `mask` at or after bit `turn`, or else the lowest set bit (round-robin); sets `turn` to
/// the bit after it.
pub(super) fn next_in_turn(mask: u128, turn: &mut u32) -> u32 {
    debug_assert!(mask != 0 && *turn < u128::BITS);
    let after = mask & (u128::MAX << *turn);
    let bit = if after == 0 { mask.trailing_zeros() } else { after.trailing_zeros() };
    *turn = (bit + 1) % u128::BITS;
    bit
}
