//! Reads before programs before erases, the host before the background, until something has waited too long.
//!
//! There is no strict priority, from which something could starve: an operation's key is when it came, plus the patience of
//! its class (`Times::patience`). A program goes after every read that is at most its patience younger, and before the
//! others. Reads of the map count as the host's, whose command waits for them; so does the background of a die on which
//! reclaim is urgent.
//!
//! On the bus, commands without data go first: they are short, and each sets a die to work. Data that leaves goes before
//! data that comes, a host's before the background's, but each at most [`PASSES`] times in a row while the other waits.

use super::super::channel::{Channel, next_in_turn};
use super::super::slab::{Class, Slot};
use super::super::times::Times;
use super::Grant;

/// How often one who waits for the bus is passed over.
const PASSES: u32 = 8;

pub(super) fn key(times: &Times, urgent: bool, slot: &Slot) -> u64 {
    let class = match slot.class {
        Class::ReadBack if urgent => Class::ReadHost,
        Class::ProgramBack if urgent => Class::ProgramFront,
        class => class,
    };
    slot.submitted.0 + times.patience[class as usize].0
}

/// Who gets the bus.
pub(in super::super) fn grant(channel: &mut Channel) -> Grant {
    if channel.short != 0 {
        let die = next_in_turn(channel.short, channel.turn);
        channel.turn = (die + 1) & 127;
        return Grant::Command(die);
    }
    let Some(out) = data_out(channel) else {
        return if channel.long == 0 { Grant::Nothing } else { program(channel) };
    };
    if channel.long != 0 {
        if channel.programs_passed >= PASSES {
            return program(channel);
        }
        channel.programs_passed += 1;
    }
    Grant::DataOut(out)
}

fn program(channel: &mut Channel) -> Grant {
    let die = next_in_turn(channel.long, channel.turn);
    channel.turn = (die + 1) & 127;
    channel.programs_passed = 0;
    Grant::Command(die)
}

/// Which data leaves next: the map's, the host's, the background's.
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
