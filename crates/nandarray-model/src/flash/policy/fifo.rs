//! Strictly in order of arrival at each die; nothing is suspended, and operations join one command only if they came
//! one after the other. The bus is granted as in `normal`.

use super::super::slab::OpSlot;

pub(super) fn key(slot: &OpSlot) -> u64 {
    slot.seq
}
