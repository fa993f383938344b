//! Scheduling in strict order of arrival at each die. Nothing is suspended, and operations share a command only if
//! they arrived one directly after the other. The bus is granted as in `normal`.

use super::super::channel::Channel;
use super::super::slab::OpSlot;
use super::super::times::Times;
use super::normal::Normal;
use super::{DiePolicy, Features, Grant, Joining};

pub(super) struct Fifo;

impl DiePolicy for Fifo {
    fn key(&self, _: &Times, _: bool, slot: &OpSlot) -> u64 {
        slot.seq
    }

    fn grant(&self, channel: &mut Channel) -> Grant {
        Normal.grant(channel)
    }

    fn joining(&self) -> Joining {
        Joining::Next
    }

    fn features(&self) -> Features {
        Features { suspension: false, ..Features::ALL }
    }
}
