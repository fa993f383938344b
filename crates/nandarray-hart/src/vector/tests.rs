//! Tests of the vector unit's state by itself; instructions are compared with Spike by `arch_vector.py`.

use super::*;

fn unit(vlen: u32) -> Box<VectorUnit> {
    VectorUnit::new(Extensions::PROGRAM_VECTOR.with_vlen(vlen)).expect("a unit")
}

#[test]
fn the_longest_length_follows_from_the_type() {
    let mut unit = unit(256);
    // Bits of an element, logarithm of the registers, elements.
    for (sew, lmul, most) in [(8, 0, 32), (8, 3, 256), (16, -1, 8), (32, 1, 16), (64, 0, 4), (8, -3, 4), (64, 3, 32)] {
        let vtype = u64::from((sew as u32 / 8).trailing_zeros()) << 3 | lmul as u64 & 7;
        unit.configure(vtype, Some(u64::MAX));
        assert_eq!((unit.vl, unit.vlmax, unit.vtype(64)), (most, most, vtype), "{sew} bits, 2^{lmul} registers");
        unit.configure(vtype, Some(3));
        assert_eq!(unit.vl, 3);
    }
}

#[test]
fn types_that_there_are_not_are_illegal() {
    let mut unit = unit(256);
    // A reserved group, 64 bits in half a register, 128 bits, bits that mean nothing.
    for vtype in [4, 3 << 3 | 7, 4 << 3, 1 << 8, 1 << 63] {
        unit.configure(0, Some(9));
        unit.configure(vtype, Some(9));
        assert_eq!((unit.vl, unit.vtype(64), unit.vtype(32)), (0, 1 << 63, 1 << 31), "{vtype:#x}");
        assert_eq!((unit.group_at(0), unit.elements(0), unit.ready()), (None, None, Err(VectorTrap::Illegal)));
    }
}

#[test]
fn elements_of_a_group_come_back() {
    let mut unit = unit(128);
    // Four registers of 16-bit elements.
    unit.configure(1 << 3 | 2, Some(32));
    let values: Vec<i64> = (0..20).map(|i| 1000 * i - 9000).collect();
    unit.put_elements(8, &values);
    assert_eq!((unit.elements(8), unit.elements(9), unit.vl), (Some(values), None, 20));
    unit.put_mask(0, &[true, false, true]);
    assert_eq!([0, 1, 2, 3, 127, 128].map(|i| unit.mask_bit(i)), [true, false, true, false, false, false]);
}

#[test]
fn wider_groups_may_end_in_their_source() {
    assert!(VectorUnit::widens_apart(2, 1, 3, 0) && VectorUnit::widens_apart(2, 1, 4, 0));
    assert!(!VectorUnit::widens_apart(2, 1, 2, 0) && !VectorUnit::widens_apart(2, 0, 2, -1));
}
