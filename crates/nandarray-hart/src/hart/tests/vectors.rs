//! Promise: every vector instruction on integers, masks and positions does on a hart what a loop over single elements
//! does, for all widths, groups, lengths, beginnings, masks and roundings; elements that it does not concern stay.

use std::collections::BTreeMap;

use super::lanes::PlainVectors;
use super::*;
use crate::isa::{Extension, Format, Instruction, Row, TABLE, decode32};
use crate::vector::VectorUnit;

/// The rows of instructions that compute on vectors of integers.
fn rows() -> Vec<&'static Row> {
    let wanted = |row: &&Row| {
        let sets = matches!(row.format, Format::VectorSet | Format::VectorSetImmediate | Format::Register);
        row.extension == Extension::Zve32x && !row.format.vector_memory() && !sets
    };
    TABLE.iter().filter(wanted).collect()
}

/// Instructions that must begin at element 0.
fn begins_at_zero(name: &str) -> bool {
    let whole = ["vcpop", "vfirst", "vmsbf", "vmsif", "vmsof", "viota", "vcompress"];
    name.contains("red") || whole.iter().any(|start| name.starts_with(start))
}

/// Whether a row has a meaning for elements of `sew` bits in groups of `2^lmul` registers.
fn fits(row: &Row, sew: u32, lmul: i32) -> bool {
    let name = row.name;
    let twice = name.starts_with("vw") || name.starts_with("vns") || name.starts_with("vnc");
    let reduces = name.contains("red");
    let part =
        name.strip_suffix(['2', '4', '8']).filter(|n| n.ends_with(".vf")).map(|n| name[n.len()..].parse::<u32>());
    let part = part.map(|number| number.expect("a digit"));
    (!twice || sew <= 32 && (lmul < 3 || reduces))
        && part.is_none_or(|part| sew / part >= 8 && lmul - part.trailing_zeros() as i32 >= -3)
        && (!name.starts_with("vrgatherei16") || (-3..=3).contains(&(lmul + 4 - sew.trailing_zeros() as i32)))
}

/// Chooses registers whose groups do not overlap, or are the same where that is allowed.
fn registers(op: &mut Instruction, chance: &mut fastrand::Rng) {
    let row = op.row();
    let mut groups = [8, 16, 24];
    chance.shuffle(&mut groups);
    let scalar = matches!(row.format, Format::VectorVx | Format::VectorMulX | Format::VectorMoveX);
    op.rd = if row.format == Format::VectorToX { 11 } else { groups[0] };
    if row.mask >> 20 & 31 == 0 {
        op.rs2 = groups[1];
    }
    if scalar {
        op.rs1 = 10;
    } else if row.mask >> 15 & 31 == 0 {
        op.rs1 = groups[2];
    }
    let (base, kind) = row.name.split_once('.').expect("a suffix");
    let apart = base.starts_with("vw") || base.starts_with("vn") && !base.starts_with("vnms");
    let moves = ["vrgather", "vslide", "vcompress", "viota", "vmsbf", "vmsif", "vmsof", "vzext", "vsext"];
    if apart || kind.starts_with('w') || moves.iter().any(|start| base.starts_with(start)) {
        return;
    }
    match chance.u8(..5) {
        0 if op.rs2 != 0 && row.format != Format::VectorToX => op.rs2 = op.rd,
        1 if !scalar && op.rs1 != 0 && row.format != Format::VectorToX => op.rs1 = op.rd,
        2 if !scalar && op.rs1 != 0 && op.rs2 != 0 => op.rs1 = op.rs2,
        _ => {}
    }
}

/// Fills registers with numbers of a width that are often at an edge.
pub(super) fn fill(bytes: &mut [u8], sew: u32, chance: &mut fastrand::Rng) {
    for element in bytes.chunks_mut(sew as usize / 8) {
        chance.fill(element);
        match chance.u8(..7) {
            0 => element.fill(0),
            1 => element.fill(0xff),
            2 | 3 => {
                let (last, edge) = (element.len() - 1, chance.bool());
                element.fill(if edge { 0xff } else { 0 });
                element[last] = if edge { 0x7f } else { 0x80 };
            }
            _ => {}
        }
    }
}

/// Returns a legal type: the width of elements, the logarithm of the registers, and the register `vtype`.
pub(super) fn vtype(chance: &mut fastrand::Rng) -> (u32, i32, u64) {
    loop {
        let (width, lmul) = (chance.u32(..4), chance.i32(-3..4));
        if lmul >= 0 || 8 << width <= 64 >> -lmul {
            let agnostic = chance.u64(..4) << 6;
            return (8 << width, lmul, agnostic | u64::from(width) << 3 | lmul as u64 & 7);
        }
    }
}

/// Brings a hart's vector unit into the state of plain vectors.
pub(super) fn bring(unit: &mut VectorUnit, plain: &PlainVectors, vtype: u64) {
    unit.configure(vtype, Some(plain.vl as u64));
    assert_eq!(unit.vl, plain.vl);
    (unit.vstart, unit.vxrm, unit.vxsat) = (plain.vstart, plain.vxrm, plain.vxsat);
    for (register, bytes) in plain.bytes.chunks(plain.vlenb).enumerate() {
        unit.register_mut(register).copy_from_slice(bytes);
    }
}

/// Returns the state of a hart's vector unit as plain vectors, of the type of `like`.
pub(super) fn found<X: Xlen, M: Meter>(hart: &Hart<X, M>, like: &PlainVectors) -> PlainVectors {
    let unit = hart.state.vector.as_ref().expect("a unit");
    let bytes = (0..32).flat_map(|register| hart.v(register).to_vec()).collect();
    PlainVectors { bytes, vl: unit.vl, vstart: unit.vstart, vxrm: unit.vxrm, vxsat: unit.vxsat, ..like.clone() }
}

/// Draws plain vectors of `vlen` bits a register with a legal type; returns them with the type's bits.
pub(super) fn random(vlen: u32, chance: &mut fastrand::Rng) -> (PlainVectors, u64) {
    let (sew, lmul, bits) = vtype(chance);
    let vlenb = vlen as usize / 8;
    let mut plain = PlainVectors {
        bytes: vec![0; 32 * vlenb],
        vlenb,
        sew,
        lmul,
        vl: 0,
        vstart: 0,
        vxrm: chance.u8(..4),
        vxsat: chance.u8(..4) == 0,
    };
    let most = plain.vlmax();
    plain.vl = [0, 1, most, most, chance.usize(..=most)][chance.usize(..5)].min(most);
    fill(&mut plain.bytes, sew, chance);
    (plain, bits)
}

/// Executes one random instruction of a row on a hart and by the loop, and compares everything that it could change.
fn case<X: Xlen>(row: &'static Row, hart: &mut Hart<X>, memory: &mut Memory<'_>, seed: u64) -> Option<u32> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let (mut plain, vtype) = random(hart.vlen(), &mut chance);
    if !fits(row, plain.sew, plain.lmul) {
        return None;
    }
    let word = row.bits | chance.u32(..) & !row.mask;
    let mut op = decode32(word, X::BITS, Extensions::ALL).filter(|op| op.code == row.code).expect(row.name);
    registers(&mut op, &mut chance);
    if !begins_at_zero(row.name) && chance.u8(..4) == 0 {
        plain.vstart = chance.usize(..=plain.vl + 1);
    }
    let near = chance.u64(..2 * plain.vlmax() as u64 + 1);
    let x = X::word([chance.u64(..), near, near, 0, u64::MAX, 1 << (X::BITS - 1)][chance.usize(..6)]);
    memory.get_mut(CODE..CODE + 4).unwrap().copy_from_slice(&encode(&op).to_le_bytes());
    bring(hart.state.vector.as_mut().unwrap(), &plain, vtype);
    hart.set_x(10, X::unsigned(x));
    hart.set_x(11, 0x55);
    hart.set_pc(CODE);
    let before = plain.clone();
    let stop = hart.run(memory, &mut Streams::none(), Limits { instructions: Some(1), stop: None });
    let place = format!("seed {seed}, RV{}: {}, {before:?}", X::BITS, crate::isa::disassemble(&op));
    assert_eq!(stop, Stop::InstructionLimit, "{place}");
    let result = plain.execute(&op, X::signed(x));
    let ours = found(hart, &plain);
    if ours != plain {
        let at = ours.bytes.iter().zip(&plain.bytes).position(|(a, b)| a != b);
        panic!("byte {at:?} differs, or the state: {:?} and {:?}; {place}", ours, plain);
    }
    let result = result.map_or(0x55, |value| X::unsigned(X::word(value as u64)));
    assert_eq!(hart.x(11), result, "{place}");
    Some(plain.sew)
}

fn cases<X: Xlen>(vlen: u32, rounds: u64) {
    let has = Extensions::PROGRAM_VECTOR.with_vlen(vlen);
    let mut hart = Hart::<X>::new(HartMode::Program, has);
    let (_, mut memory) = program::<X>(&[]);
    let mut met: BTreeMap<&str, BTreeMap<u32, u32>> = BTreeMap::new();
    for (n, row) in rows().into_iter().enumerate() {
        for round in 0..rounds {
            let seed = (n as u64) << 40 | u64::from(vlen) << 24 | u64::from(X::BITS) << 16 | round;
            if let Some(sew) = case(row, &mut hart, &mut memory, seed) {
                *met.entry(row.name).or_default().entry(sew).or_default() += 1;
            }
        }
        assert!(met.get(row.name).is_some_and(|widths| !widths.is_empty()), "{} was never executed", row.name);
    }
}

#[test]
fn vector_instructions_do_what_a_loop_over_elements_does() {
    let rounds = if std::env::var_os("NANDARRAY_DEEP").is_some() { 3_000 } else { 60 };
    for vlen in [64, 128, 512] {
        cases::<Rv64>(vlen, rounds);
        cases::<Rv32>(vlen, rounds / 2);
    }
}

/// Groups of registers that are not allowed, for elements of 16 bits in two registers, with the reason.
const ILLEGAL: [(&str, &str); 20] = [
    ("vadd.vv v9, v2, v4", "a group begins at an even register"),
    ("vadd.vv v8, v3, v4", "so does that of a source"),
    ("vadd.vx v8, v3, a0", "beside a scalar, too"),
    ("vadd.vv v0, v2, v4, v0.t", "the mask is no destination"),
    ("vwadd.vv v6, v2, v4", "four registers begin at a multiple of four"),
    ("vwadd.vv v8, v8, v4", "the wide destination covers the beginning of its source"),
    ("vwadd.vv v0, v4, v8, v0.t", "the mask is no wide destination"),
    ("vnsrl.wv v10, v8, v4", "the narrow destination is the end of its source"),
    ("vnsrl.wv v8, v10, v4", "a wide source begins at a multiple of four"),
    ("vmseq.vv v9, v8, v4", "a mask lies within its source"),
    ("vslideup.vx v8, v8, a0", "sliding up reads what it wrote"),
    ("vslide1up.vx v8, v8, a0", "by one, too"),
    ("vrgather.vv v8, v8, v4", "gathering reads what it wrote"),
    ("vrgather.vv v8, v4, v8", "and its indexes"),
    ("vcompress.vm v8, v4, v9", "the mask lies within the destination"),
    ("viota.m v8, v9", "the mask lies within the counts"),
    ("vmsbf.m v8, v8", "the mask is its own result"),
    ("vzext.vf2 v8, v8", "the narrow source begins the destination"),
    ("vmv2r.v v9, v4", "two registers begin at an even one"),
    ("vmv8r.v v8, v4", "eight at a multiple of eight"),
];

#[test]
fn groups_that_are_not_allowed_are_illegal_and_change_nothing() {
    let mut hart = Hart::<Rv64>::new(HartMode::Program, Extensions::PROGRAM_VECTOR.with_vlen(128));
    for (line, why) in ILLEGAL {
        let (_, mut memory) = program::<Rv64>(&[line]);
        let mut chance = fastrand::Rng::with_seed(7);
        let (mut plain, _) = random(128, &mut chance);
        (plain.sew, plain.lmul, plain.vl, plain.vstart) = (16, 1, 16, 0);
        bring(hart.state.vector.as_mut().unwrap(), &plain, 1 << 3 | 1);
        hart.set_pc(CODE);
        let stop = hart.run(&mut memory, &mut Streams::none(), Limits { instructions: Some(1), stop: None });
        let word = encode(&assemble(line, 64).unwrap());
        let trap = Trap { cause: Cause::IllegalInstruction, pc: CODE, value: u64::from(word) };
        assert_eq!(stop, Stop::Trap(trap), "{line}: {why}");
        assert_eq!(found(&hart, &plain), plain, "{line}");
    }
    // The same groups are legal where the reason does not hold.
    for line in ["vwadd.vv v8, v10, v4", "vnsrl.wv v8, v8, v4", "vmseq.vv v8, v8, v4", "vzext.vf2 v8, v9"] {
        let (_, mut memory) = program::<Rv64>(&[line]);
        hart.set_pc(CODE);
        let stop = hart.run(&mut memory, &mut Streams::none(), Limits { instructions: Some(1), stop: None });
        assert_eq!(stop, Stop::InstructionLimit, "{line}");
    }
}

#[test]
fn instructions_that_must_begin_at_zero_do_not_begin_elsewhere() {
    let mut hart = Hart::<Rv64>::new(HartMode::Program, Extensions::PROGRAM_VECTOR);
    for row in rows().into_iter().filter(|row| begins_at_zero(row.name)) {
        let mut op = decode32(row.bits, 64, Extensions::ALL).expect(row.name);
        (op.rd, op.rs2, op.rm) = (8, op.rs2 | if row.mask >> 20 & 31 == 0 { 16 } else { 0 }, 1);
        let (_, mut memory) = program::<Rv64>(&[]);
        memory.get_mut(CODE..CODE + 4).unwrap().copy_from_slice(&encode(&op).to_le_bytes());
        for (vstart, legal) in [(0, true), (1, false)] {
            let unit = hart.state.vector.as_mut().unwrap();
            unit.configure(0, Some(16));
            unit.vstart = vstart;
            hart.set_pc(CODE);
            let stop = hart.run(&mut memory, &mut Streams::none(), Limits { instructions: Some(1), stop: None });
            assert_eq!(stop == Stop::InstructionLimit, legal, "{} from element {vstart}", row.name);
        }
    }
}
