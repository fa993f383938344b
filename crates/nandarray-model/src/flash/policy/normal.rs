//! Scheduling that prefers reads to programs to erases, and the host to the background, until an operation has waited
//! too long.
//!
//! No class has strict priority, which could starve another: an operation's key is its submission time plus the
//! patience of its class (`Times::patience`). A program therefore goes before every read that was submitted later by
//! more than that patience. Reads of the map count as the host's, since a host's command waits for them; so does
//! background work of a die on which reclaim is urgent.
//!
//! On the bus, commands without data go first: they are short, and each sets a die to work. Data from dies goes before
//! data to dies, and the host's data before the background's, but each is preferred at most [`PASSES`] times in a row
//! while the other waits.

use super::super::channel::{Channel, next_in_turn};
use super::super::slab::{OpClass, OpSlot};
use super::super::times::Times;
use super::{DiePolicy, Grant};

/// Number of times in a row that waiting data may be passed over before it gets the bus.
const PASSES: u32 = 8;

pub(super) struct Normal;

impl DiePolicy for Normal {
    #[inline]
    fn key(&self, times: &Times, urgent: bool, slot: &OpSlot) -> u64 {
        let class = match slot.class {
            OpClass::ReadBack if urgent => OpClass::ReadHost,
            OpClass::ProgramBack if urgent => OpClass::ProgramFront,
            class => class,
        };
        slot.submitted.0 + times.patience[class as usize].0
    }

    #[inline]
    fn grant(&self, channel: &mut Channel) -> Grant {
        if channel.short != 0 {
            return Grant::Command(next_in_turn(channel.short, &mut channel.turn));
        }
        let program_waits = channel.long != 0;
        if program_waits && (channel.programs_passed >= PASSES || !channel.data_waits()) {
            channel.programs_passed = 0;
            return Grant::Command(next_in_turn(channel.long, &mut channel.program_turn));
        }
        // A read's data passes over a program only if a program waits.
        channel.programs_passed += u32::from(program_waits);
        data_out(channel).map_or(Grant::Nothing, Grant::DataOut)
    }
}

/// Returns the index in `Channel::out` of the data that leaves next: the map's, then the host's, then the
/// background's; `None` if no data waits.
fn data_out(channel: &mut Channel) -> Option<usize> {
    let front = (0..2).find(|&i| !channel.out[i].is_empty());
    if channel.out[2].is_empty() {
        return front;
    }
    if front.is_some() && channel.back_passed < PASSES {
        channel.back_passed += 1;
        return front;
    }
    channel.back_passed = 0;
    Some(2)
}

#[cfg(test)]
mod tests {
    use super::super::super::operation::{FlashOp, OpCause, OpKind, PageAddress};
    use super::super::super::slab::Slab;
    use super::*;
    use nandarray_sim::Ps;

    /// Returns a channel where `n` transfers of the host's data and `n` of the background's wait.
    fn waiting(slab: &mut Slab, n: u32) -> Channel {
        let mut channel = Channel::new();
        for _ in 0..n {
            for (list, cause) in [(1, OpCause::Host), (2, OpCause::Gc)] {
                let place = PageAddress { die: 0, block: 0, page: 0, plane: 0 };
                let operation = FlashOp { op: OpKind::Read, cause, place, bytes: 512, token: 0 };
                let i = slab.take(&operation, OpClass::of(OpKind::Read, cause), 0, Ps::ZERO);
                slab.push_back(&mut channel.out[list], i);
            }
        }
        channel
    }

    #[test]
    fn nobody_is_passed_over_for_ever() {
        let mut slab = Slab::default();
        let mut channel = waiting(&mut slab, 100);
        channel.long = 0b100;
        let mut granted = [0; 3];
        for _ in 0..81 {
            match Normal.grant(&mut channel) {
                Grant::DataOut(list) => {
                    slab.pop_front(&mut channel.out[list]).expect("only what waits is granted");
                    granted[list - 1] += 1;
                }
                Grant::Command(die) => {
                    assert_eq!(die, 2);
                    granted[2] += 1;
                }
                Grant::Nothing => panic!("someone waits"),
            }
        }
        // One program is granted after eight reads; of nine reads, one is the background's.
        assert_eq!(granted, [64, 8, 9]);
    }

    #[test]
    fn short_commands_go_first_and_in_turn() {
        let mut slab = Slab::default();
        let mut channel = waiting(&mut slab, 1);
        channel.short = 0b1_0001 << 100;
        assert_eq!(Normal.grant(&mut channel), Grant::Command(100));
        assert_eq!(Normal.grant(&mut channel), Grant::Command(104));
        assert_eq!(Normal.grant(&mut channel), Grant::Command(100));
        channel.short = 0;
        assert_eq!(Normal.grant(&mut channel), Grant::DataOut(1));
        channel.out = waiting(&mut slab, 0).out;
        assert_eq!(Normal.grant(&mut channel), Grant::Nothing);
    }
}
