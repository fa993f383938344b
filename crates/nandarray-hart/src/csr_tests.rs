//! Tests of the privileged registers: what can be written, who may read, and which interrupt is taken, by the words of
//! the privileged specification.

use super::*;
use crate::xlen::{Rv32, Rv64};

const MODES: [Privilege; 3] = [Privilege::User, Privilege::Supervisor, Privilege::Machine];

fn read<X: Xlen>(csrs: &Csrs, number: u32) -> Option<u64> {
    csrs.read::<X>(number, Privilege::Machine, 1000, Extensions::ALL)
}

/// Registers that keep some of the bits that are written to them: number, bits on RV32, bits on RV64.
const KEPT: &[(u32, u64, u64)] = &[
    (0x105, 0xffff_fffd, !2),
    (0x106, 0xffff_ffff, 0xffff_ffff),
    (0x140, 0xffff_ffff, u64::MAX),
    (0x141, 0xffff_fffe, !1),
    (0x142, 0xffff_ffff, u64::MAX),
    (0x143, 0xffff_ffff, u64::MAX),
    (0x302, 0xb3ff, 0xb3ff),
    (0x303, 0x222, 0x222),
    (0x304, 0xaaa, 0xaaa),
    (0x305, 0xffff_fffd, !2),
    (0x306, 0xffff_ffff, 0xffff_ffff),
    (0x340, 0xffff_ffff, u64::MAX),
    (0x341, 0xffff_fffe, !1),
    (0x342, 0xffff_ffff, u64::MAX),
    (0x343, 0xffff_ffff, u64::MAX),
    (0x344, 0x222, 0x222),
];

fn keeps<X: Xlen>() {
    for (number, narrow, wide) in KEPT {
        let mask = if X::BITS == 32 { narrow } else { wide };
        let mut chance = fastrand::Rng::with_seed(u64::from(*number));
        let mut csrs = Csrs::default();
        for _ in 0..50 {
            let value = X::unsigned(X::word(chance.u64(..)));
            csrs.write::<X>(*number, value, 0);
            assert_eq!(read::<X>(&csrs, *number), Some(value & mask), "{number:#x} of RV{}", X::BITS);
        }
    }
    // Registers that always read as zero, or are fixed, ignore what is written.
    for number in [0x10a, 0x30a, 0x301, 0x320, 0x323, 0x7a0, 0xf11, 0xf14, 0xb03] {
        let mut csrs = Csrs::default();
        let before = read::<X>(&csrs, number);
        csrs.write::<X>(number, u64::MAX, 0);
        assert_eq!((read::<X>(&csrs, number), before.is_some()), (before, true), "{number:#x} of RV{}", X::BITS);
    }
}

#[test]
fn registers_keep_the_bits_that_they_have() {
    keeps::<Rv32>();
    keeps::<Rv64>();
}

#[test]
fn a_register_is_read_in_its_mode_and_in_higher_ones() {
    let mut csrs = Csrs { mcounteren: 5, scounteren: 4, ..Csrs::default() };
    for number in 0..0x1000 {
        let of = |mode| csrs.read::<Rv64>(number, mode, 0, Extensions::ALL).is_some();
        let [user, supervisor, machine] = MODES.map(of);
        let least = (number >> 8 & 3) as u8;
        let counter = (0xc00..0xc20).contains(&number);
        if counter {
            // `cycle` and `instret` are lent to supervisor mode, and `instret` by that to user mode.
            let lent = [number == 0xc02, matches!(number, 0xc00 | 0xc02), true];
            assert_eq!([user, supervisor, machine], lent, "{number:#x}");
        } else {
            assert_eq!((user, supervisor), (machine && least == 0, machine && least <= 1), "{number:#x}");
        }
        // The upper halves exist where registers are half as wide.
        let narrow = csrs.read::<Rv32>(number, Privilege::Machine, 0, Extensions::ALL).is_some();
        let upper = matches!(number, 0xc80..=0xc9f | 0xb80..=0xb9f | 0x310 | 0x31a);
        if upper {
            assert_eq!(
                (narrow, machine),
                (number & 0x1f != 1 || number >= 0xc80 || number < 0xb00, false),
                "{number:#x}"
            );
        }
    }
    csrs.mstatus |= TVM;
    assert_eq!(csrs.read::<Rv64>(0x180, Privilege::Supervisor, 0, Extensions::ALL), None);
    assert_eq!(csrs.read::<Rv64>(0x180, Privilege::Machine, 0, Extensions::ALL), Some(0));
}

#[test]
fn a_status_has_states_that_are_off_or_dirty_and_no_fourth_mode() {
    for seed in 0..2_000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut csrs = Csrs { has_vectors: chance.bool(), ..Csrs::default() };
        for _ in 0..6 {
            let (before, value, whole) = (csrs.mstatus, chance.u64(..), chance.bool());
            csrs.write::<Rv64>(if whole { 0x300 } else { 0x100 }, value, 0);
            let now = read::<Rv64>(&csrs, 0x300).unwrap();
            let place = format!("seed {seed}: {value:#x} onto {before:#x}");
            let (float, vector) = (value & FS != 0, value & VS != 0 && csrs.has_vectors);
            assert_eq!(now & FS, if float { FS } else { 0 }, "{place}");
            assert_eq!(now & VS, if vector { VS } else { 0 }, "{place}");
            assert_eq!(now >> 63 == 1, float || vector, "{place}");
            let mode = match value & MPP {
                _ if !whole => before & MPP,
                0x1000 => before & MPP,
                mode => mode,
            };
            assert_eq!((now & MPP, now >> 32 & 0xf), (mode, 0xa), "{place}");
            for bit in [SIE, SPIE, SPP, 1 << 18, 1 << 19] {
                assert_eq!(now & bit, value & bit, "{place}");
            }
            for bit in [MIE, MPIE, MPRV, TVM, TW, TSR] {
                assert_eq!(now & bit, if whole { value & bit } else { before & bit }, "{place}");
            }
            // Supervisor mode sees a part of it.
            let seen = read::<Rv64>(&csrs, 0x100).unwrap();
            assert_eq!(seen, now & (1 << 63 | SSTATUS) | 2 << 32, "{place}");
            assert_eq!(read::<Rv32>(&csrs, 0x300).unwrap(), now & MSTATUS | (now >> 63) << 31, "{place}");
        }
    }
}

#[test]
fn supervisor_mode_sees_and_changes_the_interrupts_that_were_delegated() {
    for seed in 0..2_000 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut csrs = Csrs { mie: chance.u64(..) & 0xaaa, mip: chance.u64(..) & 0x222, ..Csrs::default() };
        csrs.write::<Rv64>(0x303, chance.u64(..), 0);
        let (mie, mip, delegated, value) = (csrs.mie, csrs.mip, csrs.mideleg, chance.u64(..));
        assert_eq!(read::<Rv64>(&csrs, 0x104), Some(mie & delegated), "seed {seed}");
        assert_eq!(read::<Rv64>(&csrs, 0x144), Some(mip & delegated), "seed {seed}");
        csrs.write::<Rv64>(0x104, value, 0);
        csrs.write::<Rv64>(0x144, value, 0);
        assert_eq!(csrs.mie, mie & !delegated | value & delegated, "seed {seed}");
        // Only its software interrupt can be raised by supervisor mode itself.
        let software = 2 & delegated;
        assert_eq!(csrs.mip, mip & !software | value & software, "seed {seed}");
    }
}

/// The interrupt to take, as sections 3.1.9 and 4.1.3 word it: first those that machine mode takes, then the others,
/// each in the order external, software, timer.
fn taken(csrs: &Csrs, privilege: Privilege) -> Option<(u64, bool)> {
    let order = [11, 3, 7, 9, 1, 5];
    let pends = |number: u64| csrs.mip >> number & 1 == 1 && csrs.mie >> number & 1 == 1;
    let delegated = |number: u64| csrs.mideleg >> number & 1 == 1;
    let machine_open = match privilege {
        Privilege::Machine => csrs.mstatus & MIE != 0,
        _ => true,
    };
    let supervisor_open = match privilege {
        Privilege::Machine => false,
        Privilege::Supervisor => csrs.mstatus & SIE != 0,
        Privilege::User => true,
    };
    let machine = order.into_iter().filter(|n| machine_open && pends(*n) && !delegated(*n)).map(|n| (n, false));
    let supervisor = order.into_iter().filter(|n| supervisor_open && pends(*n) && delegated(*n)).map(|n| (n, true));
    machine.chain(supervisor).next()
}

#[test]
fn the_interrupt_that_is_taken_is_the_first_that_is_open() {
    let spread = |bits: u64| [1, 3, 5, 7, 9, 11].iter().enumerate().fold(0, |all, (n, at)| all | (bits >> n & 1) << at);
    for pending in 0..64 {
        for enabled in 0..64 {
            for delegated in [0, 2, 0x20, 0x200, 0x222] {
                for (mode, open) in MODES.into_iter().flat_map(|mode| [0, SIE, MIE, SIE | MIE].map(|open| (mode, open)))
                {
                    let csrs = Csrs {
                        mip: spread(pending),
                        mie: spread(enabled),
                        mideleg: delegated,
                        mstatus: open,
                        ..Csrs::default()
                    };
                    assert_eq!(csrs.interrupt(mode), taken(&csrs, mode), "{csrs:?} in {mode:?}");
                }
            }
        }
    }
}

#[test]
fn counters_go_on_from_what_was_written() {
    let mut csrs = Csrs::default();
    for seed in 0..500 {
        let mut chance = fastrand::Rng::with_seed(seed);
        let (retired, value, later) = (chance.u64(..1 << 40), chance.u64(..), chance.u64(1..1000));
        let number = [0xb00, 0xb02][chance.usize(..2)];
        csrs.write::<Rv64>(number, value, retired);
        // The instruction that writes is counted after it has written.
        let at = |csrs: &Csrs, number, retired| csrs.read::<Rv64>(number, Privilege::Machine, retired, Extensions::ALL);
        assert_eq!(at(&csrs, number, retired + 1), Some(value), "seed {seed}");
        assert_eq!(at(&csrs, number, retired + 1 + later), Some(value.wrapping_add(later)), "seed {seed}");
        let shown = if number == 0xb00 { 0xc00 } else { 0xc02 };
        assert_eq!(at(&csrs, shown, retired + 1), Some(value), "seed {seed}");
        assert_eq!(at(&csrs, 0xc01, retired), Some(retired), "seed {seed}: time counts instructions");
        // Halves on harts of 32 bits: the other half stays.
        let halves = |csrs: &Csrs, retired| {
            [number, number | 0x80]
                .map(|n| csrs.read::<Rv32>(n, Privilege::Machine, retired, Extensions::ALL).unwrap() & 0xffff_ffff)
        };
        let part = chance.u64(..1 << 32);
        let before = halves(&csrs, retired + 10);
        csrs.write::<Rv32>(number | 0x80, part, retired + 10);
        assert_eq!(halves(&csrs, retired + 11), [before[0], part], "seed {seed}");
        csrs.write::<Rv32>(number, part, retired + 20);
        assert_eq!(halves(&csrs, retired + 21), [part, part], "seed {seed}");
    }
}

#[test]
fn page_tables_are_those_of_a_valid_mode_and_the_rights_those_of_the_access() {
    let mut csrs = Csrs::default();
    for mode in 0..16u64 {
        let (before, value) = (csrs.satp, mode << 60 | 0xabc << 44 | 0x1234);
        csrs.write::<Rv64>(0x180, value, 0);
        let valid = matches!(mode, 0 | 8 | 9 | 10);
        assert_eq!(csrs.satp, if valid { value } else { before }, "mode {mode}");
        let guard = csrs.guard::<Rv64>(Privilege::Supervisor);
        let levels = guard.fetch.pages.map(|pages| pages.table.levels);
        let now = csrs.satp >> 60;
        assert_eq!(levels, (now >= 8).then(|| now as u32 - 5), "mode {mode}");
        assert!(guard.fetch.pages.is_none_or(|pages| pages.root == 0x1234 << 12));
        assert_eq!(csrs.guard::<Rv64>(Privilege::Machine).data.pages, None);
    }
    csrs.write::<Rv64>(0x300, MPRV | 1 << 11 | SUM | MXR, 0);
    let guard = csrs.guard::<Rv64>(Privilege::Machine);
    let lent = guard.data.pages.expect("data are accessed as supervisor mode would");
    assert_eq!((lent.user, lent.sum, lent.mxr, guard.data.machine), (false, true, true, false));
    assert_eq!((guard.fetch.machine, guard.fetch.pages), (true, None));
    let own = csrs.guard::<Rv64>(Privilege::Supervisor);
    let fetched = own.fetch.pages.expect("fetches are translated");
    assert_eq!((fetched.sum, fetched.mxr), (false, false), "a fetch has neither of the two rights");
    csrs.write::<Rv32>(0x180, 1 << 31 | 0x3f_ffff, 0);
    let narrow = csrs.guard::<Rv32>(Privilege::User).fetch.pages.expect("translated");
    assert_eq!((narrow.table, narrow.root, narrow.user), (PageTableFormat::SV32, 0x3f_ffff << 12, true));
    assert_eq!(csrs.guard::<Rv32>(Privilege::User).addresses, 0xffff_ffff);
}
