//! Tests of physical memory protection, compared with a model that checks every byte.

use proptest::prelude::*;

use super::*;

const OFF: u8 = 0;
const NAPOT: u8 = 3 << 3;

/// Whether an entry contains this byte, computed as the specification words it.
fn has(pmp: &Pmp, entry: usize, byte: u64) -> bool {
    let word = byte >> 2;
    let address = pmp.addresses[entry];
    match pmp.settings[entry] & MATCHING {
        OFF => false,
        TOP_OF_RANGE => (if entry == 0 { 0 } else { pmp.addresses[entry - 1] }) <= word && word < address,
        FOUR_BYTES => word == address,
        // The lowest zero and the ones below it are not compared.
        _ => word & !(address ^ (address + 1)) == address & !(address ^ (address + 1)),
    }
}

/// Whether an access is allowed, by the same rules applied byte by byte.
fn model(pmp: &Pmp, address: u64, bytes: u64, access: AccessKind, machine: bool) -> bool {
    let all = || address..address + bytes;
    let Some(entry) = (0..ENTRIES).find(|entry| all().any(|byte| has(pmp, *entry, byte))) else { return machine };
    let settings = pmp.settings[entry];
    let bit = match access {
        AccessKind::Load => READ,
        AccessKind::Store => WRITE,
        AccessKind::Fetch => EXECUTE,
    };
    all().all(|byte| has(pmp, entry, byte)) && (machine && settings & LOCKED == 0 || settings & bit != 0)
}

fn accesses() -> impl Strategy<Value = AccessKind> {
    prop_oneof![Just(AccessKind::Load), Just(AccessKind::Store), Just(AccessKind::Fetch)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn every_byte_counts(
        entries in prop::collection::vec((any::<u8>(), 0u64..64), ENTRIES),
        address in 0u64..240,
        bytes in prop_oneof![Just(1u64), Just(2), Just(4), Just(8), 1u64..16],
        access in accesses(),
        machine: bool,
    ) {
        let mut pmp = Pmp::default();
        for (i, (settings, at)) in entries.iter().enumerate() {
            pmp.set_address(i, 64, *at);
            pmp.settings[i] = settings & !0x60;
        }
        prop_assert_eq!(pmp.allows(address, bytes, access, machine), model(&pmp, address, bytes, access, machine));
    }
}

#[test]
fn registers_keep_what_they_can() {
    let mut pmp = Pmp::default();
    pmp.set_settings(0, 64, 0x7f7f_7f7f_7f7f_7f7f);
    assert_eq!(pmp.settings(0, 64), 0x1f1f_1f1f_1f1f_1f1f);
    assert_eq!((pmp.settings(4, 32), pmp.settings(8, 64)), (0x1f1f_1f1f, 0));
    // Entries that would be writable but not readable are neither.
    pmp.set_settings(8, 32, 0x0000_1e1a);
    assert_eq!(pmp.settings(8, 32), 0x0000_1c18);
    pmp.set_address(3, 64, u64::MAX);
    pmp.set_address(4, 32, u64::MAX);
    assert_eq!((pmp.address(3), pmp.address(4)), (u64::MAX >> 10, 0xffff_ffff));
}

#[test]
fn what_is_locked_stays() {
    let mut pmp = Pmp::default();
    pmp.set_address(0, 64, 16);
    pmp.set_address(1, 64, 32);
    pmp.set_settings(0, 32, u64::from(LOCKED | TOP_OF_RANGE | READ) << 8);
    pmp.set_settings(0, 32, 0);
    assert_eq!(pmp.settings(0, 32), u64::from(LOCKED | TOP_OF_RANGE | READ) << 8);
    // Neither the end of a locked range can be changed, nor its beginning, which the address of the previous entry
    // defines.
    pmp.set_address(0, 64, 1);
    pmp.set_address(1, 64, 1);
    assert_eq!((pmp.address(0), pmp.address(1)), (16, 32));
    assert!(pmp.allows(64, 8, AccessKind::Load, true) && !pmp.allows(64, 8, AccessKind::Store, true));
    assert!(pmp.allows(60, 4, AccessKind::Store, true) && !pmp.allows(60, 8, AccessKind::Load, true));
}

#[test]
fn all_ones_are_everything() {
    let mut pmp = Pmp::default();
    pmp.set_address(0, 64, u64::MAX);
    pmp.set_settings(0, 64, u64::from(NAPOT | READ));
    assert!(pmp.allows(0, u64::MAX >> 8, AccessKind::Load, false));
    assert!(!pmp.allows(0, 1, AccessKind::Fetch, false) && pmp.allows(0, 1, AccessKind::Fetch, true));
    let mut pmp = Pmp::default();
    pmp.set_address(0, 32, u64::MAX);
    pmp.set_settings(0, 32, u64::from(NAPOT | READ));
    assert!(pmp.allows(0x3_ffff_fff8, 8, AccessKind::Load, false));
}
