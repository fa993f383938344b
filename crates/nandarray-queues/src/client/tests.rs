//! Slots of the data area, for runs of any length.

use super::*;

#[test]
fn a_slot_has_room_for_a_run_wherever_it_begins_in_a_block() {
    for room in [4096, 65536, 1 << 30] {
        for run in [0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 4096, 100_000, 1 << 20, u64::MAX] {
            let slot = slot_bytes(run, room);
            let fits = (0..512).all(|skip: u64| (skip.saturating_add(run)).div_ceil(512).saturating_mul(512) <= slot);
            let (least, most) = (512, room.min(1 << 20));
            assert!(slot.is_multiple_of(512) && (least..=most).contains(&slot), "{run} of {room}: {slot}");
            assert!(fits || slot == most, "{run} bytes do not fit {slot} of {room}");
        }
    }
}
