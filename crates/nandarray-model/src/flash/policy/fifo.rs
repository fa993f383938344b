//! Scheduling in strict order of arrival at each die. Nothing is suspended, and operations share a command only if
//! they arrived one directly after the other. The bus is granted as in `normal`.

use super::super::slab::OpSlot;

pub(super) fn key(slot: &OpSlot) -> u64 {
    slot.seq
}
