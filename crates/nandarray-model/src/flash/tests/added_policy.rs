//! A policy that this file adds, as the guide (`docs/guides/add-a-policy.md`) says: the back end knows none by name, so
//! a type that implements the trait is enough, and every rule of the shipped ones holds for it, too.

use proptest::prelude::*;

use super::invariants::{asks, devices, holds_under};
use super::{Rig, at, device};
use crate::flash::channel::{Channel, next_in_turn};
use crate::flash::policy::{CommandUnit, DiePolicy, Features, Grant};
use crate::flash::slab::OpSlot;
use crate::flash::times::Times;
use crate::flash::{Backend, NandCells, OpCause, OpKind};
use nandarray_sim::Ps;

/// The operation that arrived last goes first, of those at the front of their queues. The bus goes to dies in turn, and
/// to data only if no die wants it.
#[derive(Clone, Copy)]
struct NewestFirst {
    unit: CommandUnit,
    features: Features,
}

impl DiePolicy for NewestFirst {
    fn key(&self, _: &Times, _: bool, slot: &OpSlot) -> u64 {
        u64::MAX - 1 - slot.seq
    }

    fn grant(&self, channel: &mut Channel) -> Grant {
        let dies = channel.short | channel.long;
        match (0..3).find(|&i| !channel.out[i].is_empty()) {
            _ if dies != 0 => Grant::Command(next_in_turn(dies, &mut channel.turn)),
            Some(data) => Grant::DataOut(data),
            None => Grant::Nothing,
        }
    }

    fn unit(&self) -> CommandUnit {
        self.unit
    }

    fn features(&self) -> Features {
        self.features
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn every_rule_holds_for_it(description in devices(), asks in asks(), chips: bool, on: [bool; 3]) {
        let [suspension, cache, word_lines] = if chips { [false; 3] } else { on };
        let unit = if chips { CommandUnit::Chip } else { CommandUnit::Die };
        let features = Features { suspension, cache, word_lines };
        holds_under(NewestFirst { unit, features }, &description, &asks);
    }
}

/// An erase, a program and a read of one moment end in the other order.
#[test]
fn its_order_is_obeyed() {
    let d = device(&[]);
    let of_policy = |unit| {
        let policy = NewestFirst { unit, features: Features::NONE };
        let flash = Backend::scheduled(&d, policy, Box::new(NandCells::new(&d, 1)), None);
        let mut rig = Rig::of(flash);
        rig.submit(OpKind::Erase, OpCause::Gc, at(0, 0, 3, 0), 0);
        rig.program(at(0, 0, 1, 0));
        rig.read(at(0, 1, 2, 5), 4_096);
        rig.finish()
    };
    for unit in [CommandUnit::Die, CommandUnit::Chip] {
        let ends = of_policy(unit);
        assert!(ends[2] < ends[1] && ends[1] < ends[0], "{unit:?}: {ends:?}");
        assert!(ends[2] < Ps::from_us(100), "the read waits for nothing");
    }
}
