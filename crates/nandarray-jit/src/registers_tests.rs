//! Tests of the sets of registers: an instruction on the interpreter changes no register that it is not said to write,
//! and does not depend on one that it is not said to read.

use nandarray_hart::isa::{Extensions, Row, TABLE, decode32, encode};
use nandarray_hart::{
    Hart, HartMode, InputStream, Limits, Memory, OutputStream, Room, Rv32, Rv64, Stop, Streams, Xlen,
};

use super::*;
use crate::region::translates;

const CODE: u64 = 0x1000;
const DATA: u64 = 0x3000;
/// Number of registers of both kinds: bit `n` of a [`Set`] is number `n`.
const REGISTERS: usize = 64;

/// Everything that an instruction leaves: why the hart stopped, registers by their bit, flags, the program counter,
/// memory, heads of streams.
type Left = (Stop, Vec<u64>, u8, u64, Vec<u8>, [u64; 2]);

/// Executes one instruction on registers with these values.
fn execute<X: Xlen>(word: u32, registers: &[u64]) -> Left {
    let mut memory = Memory::new();
    memory.add_program(CODE, DATA + 0x1000 - CODE, DATA..DATA + 0x1000, CODE..DATA).unwrap();
    memory.get_mut(CODE..CODE + 4).unwrap().copy_from_slice(&word.to_le_bytes());
    let fill = memory.get_mut(DATA..DATA + 0x1000).unwrap();
    fill.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n * 37 % 251) as u8);
    let mut hart = Hart::<X>::new(HartMode::Program, Extensions::PROGRAM);
    for (n, value) in registers.iter().enumerate() {
        if n < 32 { hart.set_x(n, *value) } else { hart.set_f(n - 32, *value) }
    }
    hart.set_pc(CODE);
    let (bytes, mut ring) = ([0x81u8; 64], [0; 64]);
    let mut streams = Streams::none();
    streams.inputs.push(InputStream::whole(&bytes));
    streams.outputs.push(OutputStream::new(&mut ring, Room::Width));
    let stop = hart.run(&mut memory, &mut streams, Limits { instructions: Some(1), stop: None });
    let heads = [streams.inputs[0].head(), streams.outputs[0].head()];
    drop(streams);
    let after = (0..32).map(|n| hart.x(n)).chain((0..32).map(|n| hart.f(n))).collect();
    let mut bytes = memory.get(DATA..DATA + 0x1000).unwrap().to_vec();
    bytes.extend(ring);
    (stop, after, hart.fcsr(), hart.pc(), bytes, heads)
}

/// Checks an instruction with random operands.
fn check<X: Xlen>(row: &'static Row, seed: u64) {
    let mut chance = fastrand::Rng::with_seed(seed);
    let word = row.bits | chance.u32(..) & !row.mask;
    let Some(mut op) = decode32(word, X::BITS, Extensions::PROGRAM).filter(|op| op.code == row.code) else { return };
    match row.format {
        Format::Csr | Format::CsrImmediate => (op.rs1, op.imm) = (0, 0x800 + 64 * chance.i32(0..3)),
        Format::StreamLoad | Format::StreamStore | Format::StreamRead => op.rs1 = 0,
        _ => {}
    }
    if !translates(&op) {
        return;
    }
    let mut before: Vec<u64> = (0..REGISTERS)
        .map(|n| match chance.u8(..3) {
            _ if n < 32 => DATA + 0x800 + chance.u64(..0x100),
            0 => chance.u64(..),
            _ => 0xffff_ffff_0000_0000 | u64::from((chance.i16(..) as f32 / 3.0).to_bits()),
        })
        .collect();
    before[0] = 0;
    let place = format!("seed {seed}, RV{}: {}", X::BITS, nandarray_hart::isa::disassemble(&op));
    let left = execute::<X>(encode(&op), &before);
    let changed = (0..REGISTERS).filter(|n| left.1[*n] != before[*n]).fold(0, |all: Set, n| all | 1 << n);
    assert_eq!(changed & !writes(&op), 0, "{place} writes registers {changed:#x}, beyond {:#x}", writes(&op));
    // Another value in a register that is not read changes nothing but that register.
    for register in (1..REGISTERS).filter(|n| reads(&op) >> n & 1 == 0) {
        let mut other = before.clone();
        other[register] ^= 0x10;
        let (stop, mut after, fcsr, pc, memory, heads) = execute::<X>(encode(&op), &other);
        // A register that is not written, since it is none of the instruction's or the instruction trapped, stays.
        let stays = after[register] == other[register] && left.1[register] == before[register];
        assert!(stays || writes(&op) >> register & 1 == 1, "{place} changes register {register}");
        if stays {
            after[register] = left.1[register];
        }
        assert!((stop, after, fcsr, pc, memory, heads) == left, "{place} depends on register {register}");
    }
    // An instruction that needs single precision makes nothing of a number that is not boxed.
    if reads_single(&op) {
        let sources = (32..REGISTERS).filter(|n| reads(&op) >> n & 1 == 1);
        let mut torn = before.clone();
        let mut nans = before.clone();
        for register in sources {
            (torn[register], nans[register]) = (0x3ff0_0000_3f80_0000, 0xffff_ffff_7fc0_0000);
        }
        let (torn, nans) = (execute::<X>(encode(&op), &torn), execute::<X>(encode(&op), &nans));
        let own = |left: &Left| {
            let written = (0..REGISTERS).filter(|n| writes(&op) >> n & 1 == 1).map(|n| left.1[n]).collect::<Vec<u64>>();
            (left.0, written, left.2)
        };
        assert_eq!(own(&torn), own(&nans), "{place}: a number that is not boxed is a NaN");
    }
    if writes_single(&op) && left.0 == Stop::InstructionLimit {
        let boxed = (32..REGISTERS).filter(|n| writes(&op) >> n & 1 == 1).all(|n| left.1[n] >> 32 == 0xffff_ffff);
        assert!(boxed, "{place} leaves a number that is not boxed");
    }
}

#[test]
fn instructions_read_and_write_the_registers_that_they_are_said_to() {
    for (n, row) in TABLE.iter().enumerate().filter(|(_, row)| !row.format.vector() && row.format != Format::Illegal) {
        for round in 0..6 {
            check::<Rv64>(row, (n as u64) << 8 | round);
            check::<Rv32>(row, (n as u64) << 8 | 128 | round);
        }
    }
}
