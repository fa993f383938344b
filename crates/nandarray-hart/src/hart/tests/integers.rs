//! Promise: random programs of integer instructions do on a hart what they do on the plain machine, to the bit, however
//! their runs are cut; every instruction and every pair that is executed as one is among them.

use std::collections::BTreeSet;

use super::plain::{EXTENSIONS, Plain, PlainRegion, PlainStop};
use super::*;
use crate::isa::{Extension, Format, Row, TABLE, decode32};
use crate::profile::Counter;

/// Regions beside the program's own: base, bytes, and whether they may be written. The second begins where the first
/// ends; the last is shorter than the widest access.
const WINDOWS: [(u64, usize, bool); 4] =
    [(0x2000_0000, 37, false), (0x2000_0025, 29, true), (0x2400_0000, 64, true), (0x6000_0000, 5, true)];
/// Registers that point into memory.
const POINTERS: std::ops::Range<usize> = 16..22;

fn rows(bits: u32) -> Vec<&'static Row> {
    use Extension::{A, I, M, Zba, Zbb, Zbs};
    let ours = |row: &&Row| {
        [I, M, A, Zba, Zbb, Zbs].contains(&row.extension) && row.width.has(bits) && row.format != Format::Illegal
    };
    TABLE.iter().filter(ours).collect()
}

/// Returns a number that is often at an edge.
fn edge(chance: &mut fastrand::Rng) -> u64 {
    let special =
        [0, 1, 2, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 31, (1 << 31) - 1, 0xffff_ffff, 0x8000_0000_8000_0000];
    match chance.u8(..5) {
        0 | 1 => special[chance.usize(..special.len())],
        2 => 1 << chance.u32(..64),
        3 => chance.i8(..) as u64,
        _ => chance.u64(..),
    }
}

/// Returns an instruction of a row whose operands mostly lead to memory and code that there is.
fn instruction(row: &Row, bits: u32, chance: &mut fastrand::Rng) -> Option<u32> {
    let word = row.bits | chance.u32(..) & !row.mask;
    let mut op = decode32(word, bits, EXTENSIONS).filter(|op| op.code == row.code)?;
    let register = |chance: &mut fastrand::Rng| chance.u8(5..16);
    let pointer = |chance: &mut fastrand::Rng| chance.u8(POINTERS.start as u8..POINTERS.end as u8);
    op.rd = if chance.u8(..12) == 0 { 0 } else { register(chance) };
    (op.rs1, op.rs2) = (register(chance), register(chance));
    match row.format {
        Format::Load | Format::Store => (op.rs1, op.imm) = (pointer(chance), chance.i32(-12..12)),
        Format::LoadReserved | Format::Atomic => op.rs1 = pointer(chance),
        Format::JumpRegister if chance.u8(..4) > 0 => (op.rs1, op.imm) = (4, 2 * chance.i32(-4..8)),
        Format::Branch | Format::Jump => op.imm = 2 * chance.i32(-6..12),
        Format::Unary => op.rs2 = 0,
        _ => {}
    }
    Some(encode(&op))
}

/// Builds a random program, with the memory and the registers with which it begins.
fn start(bits: u32, chance: &mut fastrand::Rng) -> Plain {
    let all = rows(bits);
    let mut code = Vec::new();
    while code.len() < 4 * 60 {
        let row = all[chance.usize(..all.len())];
        // Jumps and calls are frequent in the table's order, not in programs.
        let rare = matches!(row.format, Format::Bare | Format::Jump | Format::JumpRegister | Format::Upper);
        if rare && chance.u8(..6) > 0 {
            continue;
        }
        code.extend(instruction(row, bits, chance).into_iter().flat_map(u32::to_le_bytes));
    }
    let mut own = vec![0; (END - CODE) as usize];
    own[..code.len()].copy_from_slice(&code);
    chance.fill(&mut own[(DATA - CODE) as usize..]);
    let mut regions = vec![PlainRegion { base: CODE, bytes: own, writable: DATA..END, executable: CODE..DATA }];
    for (base, bytes, writes) in WINDOWS {
        let mut region = vec![0; bytes];
        chance.fill(&mut region);
        let writable = if writes { base..base + bytes as u64 } else { 0..0 };
        regions.push(PlainRegion { base, bytes: region, writable, executable: 0..0 });
    }
    let mut x = [0; 32];
    for value in &mut x[1..] {
        *value = edge(chance) & if bits == 32 { 0xffff_ffff } else { u64::MAX };
    }
    let home = if bits == 32 { Hart::<Rv32>::RETURN } else { Hart::<Rv64>::RETURN };
    (x[1], x[2], x[4]) = (home, END, CODE + 4 * chance.u64(..50));
    for register in POINTERS {
        let (base, bytes, _) = WINDOWS[chance.usize(..WINDOWS.len())];
        let edges = [DATA, DATA + 64, END - 8, END, CODE, base, base + 8, base + bytes as u64, base + bytes as u64 - 4];
        // Atomic operations need addresses that are aligned.
        x[register] = edges[chance.usize(..edges.len())] & if chance.bool() { !7 } else { u64::MAX };
    }
    Plain { bits, x, pc: CODE, retired: 0, regions, reserved: None, home }
}

/// The instructions that the plain machine executed, and those that followed one another within one run.
#[derive(Default)]
struct Met {
    names: BTreeSet<&'static str>,
    pairs: BTreeSet<[&'static str; 2]>,
}

/// Steps the plain machine at most `most` times; returns why it stopped.
fn walk(plain: &mut Plain, most: u64, met: &mut Met) -> Option<PlainStop> {
    let mut before = "";
    for _ in 0..most {
        match plain.step() {
            Ok(op) => {
                let name = op.row().name;
                met.names.insert(name);
                met.pairs.insert([before, name]);
                before = name;
            }
            Err(stop) => return Some(stop),
        }
    }
    // A function that returns with its last instruction has returned.
    (plain.pc == plain.home).then_some(PlainStop::Returned)
}

/// Compares a hart with the plain machine, for `turns` runs.
fn compare<X: Xlen, M: Meter>(mut hart: Hart<X, M>, mut plain: Plain, seed: u64, turns: u64, met: &mut Met) {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut lent: Vec<Vec<u8>> = plain.regions[1..].iter().map(|r| r.bytes.clone()).collect();
    let mut memory = Memory::new();
    memory.add_program(CODE, END - CODE, DATA..END, CODE..DATA).unwrap();
    memory.get_mut(CODE..END).unwrap().copy_from_slice(&plain.regions[0].bytes);
    for ((base, _, writes), bytes) in WINDOWS.iter().zip(&mut lent) {
        if *writes { memory.lend_mut(*base, bytes).unwrap() } else { memory.lend(*base, bytes).unwrap() }
    }
    (1..32).for_each(|n| hart.set_x(n, plain.x[n]));
    hart.set_pc(CODE);
    for turn in 0..turns {
        let most = [1, 2, 3, 7, 64, 200][chance.usize(..6)];
        let limits = Limits { instructions: Some(most), stop: None };
        let stop = hart.run(&mut memory, &mut Streams::none(), limits);
        let theirs = match walk(&mut plain, most, met) {
            None => Stop::InstructionLimit,
            Some(PlainStop::Returned) => Stop::Returned { code: plain.x[10] },
            Some(PlainStop::Called) => Stop::EnvironmentCall,
            Some(PlainStop::Trap(cause, value)) => Stop::Trap(Trap { cause, pc: plain.pc, value }),
        };
        let place = format!("seed {seed}, RV{}, run {turn} of {most} at {:#x}", X::BITS, plain.pc);
        assert_eq!(stop, theirs, "{place}");
        assert_eq!((hart.pc(), hart.instructions()), (plain.pc, plain.retired), "{place}");
        assert_eq!((0..32).map(|n| hart.x(n)).collect::<Vec<_>>(), plain.x, "{place}");
        for region in &plain.regions {
            let all = region.base..region.base + region.bytes.len() as u64;
            assert_eq!(memory.get(all).unwrap(), region.bytes, "{place}: memory from {:#x} on", region.base);
        }
        match theirs {
            Stop::Returned { .. } => break,
            Stop::Trap(_) => {
                // Go on elsewhere: random code seldom has a way out of a trap.
                plain.pc = CODE + 4 * chance.u64(..60);
                hart.set_pc(plain.pc);
            }
            _ => {}
        }
    }
}

/// Compares a hart of the plain machine's width with it; the hart counts instructions if `counts`.
fn check(plain: Plain, counts: bool, seed: u64, turns: u64, met: &mut Met) {
    let (mode, has, counter) = (HartMode::Program, EXTENSIONS, Counter::default());
    match (plain.bits, counts) {
        (32, false) => compare(Hart::<Rv32>::new(mode, has), plain, seed, turns, met),
        (32, true) => compare(Hart::<Rv32, _>::with_meter(mode, has, counter), plain, seed, turns, met),
        (_, false) => compare(Hart::<Rv64>::new(mode, has), plain, seed, turns, met),
        (_, true) => compare(Hart::<Rv64, _>::with_meter(mode, has, counter), plain, seed, turns, met),
    }
}

#[test]
fn random_programs_do_what_they_do_on_the_plain_machine() {
    let rounds = if std::env::var_os("NANDARRAY_DEEP").is_some() { 4_000 } else { 130 };
    for bits in [32, 64] {
        let mut met = Met::default();
        for seed in 0..rounds {
            let plain = start(bits, &mut fastrand::Rng::with_seed(seed << 8 | u64::from(bits)));
            check(plain, seed % 3 == 0, seed, 60, &mut met);
        }
        let missing: Vec<&str> = rows(bits).iter().map(|r| r.name).filter(|n| !met.names.contains(n)).collect();
        assert!(missing.iter().all(|name| ["ecall", "ebreak"].contains(name)), "RV{bits} never executed {missing:?}");
        assert!(met.pairs.len() > 2_000, "{} pairs", met.pairs.len());
    }
}

/// Names of the instructions that may be the first, and the second, of two that are executed as one.
const FIRST: &str = "lui auipc addi addiw andi slli srli add xor and mul sh1add sh2add sh3add roriw lbu lh lw ld sw sd";
const SECOND: &str = "addi addiw add xor and andi slli srli mul roriw lbu lh lw ld sb sw sd beq bne blt bge bltu bgeu";

#[test]
fn two_instructions_that_are_executed_as_one_are_the_two() {
    for bits in [32, 64] {
        let rows = rows(bits);
        let named = |names: &'static str| names.split(' ').filter_map(|name| rows.iter().find(|row| row.name == name));
        let mut chance = fastrand::Rng::with_seed(u64::from(bits));
        let (mut all, mut executed) = (0, 0);
        let nop = encode(&assemble("addi zero, zero, 0", bits).unwrap());
        for (first, second) in named(FIRST).flat_map(|a| named(SECOND).map(move |b| (a, b))) {
            for round in 0..3 {
                let mut plain = start(bits, &mut chance);
                let [a, b] = [first, second].map(|row| {
                    std::iter::repeat_with(|| instruction(row, bits, &mut chance)).flatten().next().expect("a word")
                });
                // The pair lies between others, so that it is neither the first of its block nor always its last.
                let code = plain.regions[0].bytes.as_chunks_mut().0;
                for (place, word) in code.iter_mut().zip([nop, nop, a, b, nop, nop]) {
                    *place = u32::to_le_bytes(word);
                }
                let mut met = Met::default();
                check(plain, round == 2, chance.u64(..1 << 40), 6, &mut met);
                (all, executed) = (all + 1, executed + usize::from(met.pairs.contains(&[first.name, second.name])));
            }
        }
        assert!(2 * executed > all, "RV{bits}: {executed} of {all} pairs were executed in one run");
    }
}
