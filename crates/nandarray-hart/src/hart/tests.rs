//! Tests of the hart: calls, limits, streams, traps. The results of instructions are compared with QEMU's in `tests/`.

mod integers;
mod lanes;
mod plain;
mod vector_floats;
mod vector_memory;
mod vectors;

use std::sync::atomic::AtomicBool;

use super::*;
use crate::isa::{assemble, encode};
use crate::profile::Counter;
use crate::streams::{InputStream, OutputStream, Room};
use crate::trap::Trap;
use crate::xlen::{Rv32, Rv64};

const CODE: u64 = 0x1000;
const DATA: u64 = 0x3000;
const END: u64 = 0x4000;

fn program<X: Xlen>(lines: &[&str]) -> (Hart<X>, Memory<'static>) {
    let mut memory = Memory::new();
    memory.add_program(CODE, END - CODE, DATA..END, CODE..DATA).unwrap();
    for (i, line) in lines.iter().enumerate() {
        let word = encode(&assemble(line, X::BITS).unwrap_or_else(|e| panic!("{line}: {e}")));
        let at = CODE + 4 * i as u64;
        memory.get_mut(at..at + 4).unwrap().copy_from_slice(&word.to_le_bytes());
    }
    let mut hart = Hart::new(HartMode::Program, Extensions::PROGRAM);
    hart.call(CODE, END, &[]);
    (hart, memory)
}

fn run<X: Xlen>(lines: &[&str], arguments: &[u64]) -> (Stop, Hart<X>) {
    let (mut hart, mut memory) = program::<X>(lines);
    hart.call(CODE, END, arguments);
    let stop = hart.run(&mut memory, &mut Streams::none(), Limits { instructions: Some(1 << 20), stop: None });
    (stop, hart)
}

const LOOP: &[&str] = &["addi a0, a0, 1", "addi a1, a1, -1", "bne a1, zero, . - 8", "jalr zero, 0(ra)"];

#[test]
fn a_function_returns() {
    let (stop, hart) = run::<Rv64>(LOOP, &[5, 1000]);
    assert_eq!(stop, Stop::Returned { code: 1005 });
    assert_eq!(hart.instructions(), 3001);
    let (stop, _) = run::<Rv32>(LOOP, &[u64::MAX, 3]);
    assert_eq!(stop, Stop::Returned { code: 2 });
}

#[test]
fn register_zero_stays_zero() {
    let lines = ["addi zero, zero, 5", "add zero, a0, a0", "lui zero, 1", "add a0, zero, zero", "jalr zero, 0(ra)"];
    assert_eq!(run::<Rv64>(&lines, &[7]).0, Stop::Returned { code: 0 });
}

#[test]
fn the_instruction_limit_is_exact() {
    for limit in (0..200).chain([2998, 2999]) {
        let (mut hart, mut memory) = program::<Rv64>(LOOP);
        hart.call(CODE, END, &[0, 1000]);
        let limits = Limits { instructions: Some(limit), stop: None };
        assert_eq!(hart.run(&mut memory, &mut Streams::none(), limits), Stop::InstructionLimit);
        assert_eq!(hart.instructions(), limit);
        assert_eq!(hart.pc(), CODE + 4 * (limit % 3));
        assert_eq!(hart.x(10), limit.div_ceil(3));
        // The hart continues as if it had not stopped.
        let stop = hart.run(&mut memory, &mut Streams::none(), Limits::default());
        assert_eq!((stop, hart.instructions()), (Stop::Returned { code: 1000 }, 3001));
    }
}

#[test]
fn a_limit_that_is_just_enough_is_enough() {
    for (rounds, count) in [(1000, 3001), (3, 10)] {
        let (mut hart, mut memory) = program::<Rv64>(LOOP);
        hart.call(CODE, END, &[0, rounds]);
        let limits = Limits { instructions: Some(count), stop: None };
        assert_eq!(hart.run(&mut memory, &mut Streams::none(), limits), Stop::Returned { code: rounds });
        // An address that cannot be fetched from is not reached.
        hart.call(CODE, END, &[0, rounds]);
        hart.set_x(1, 0x9000);
        assert_eq!(hart.run(&mut memory, &mut Streams::none(), limits), Stop::InstructionLimit);
        assert_eq!((hart.pc(), hart.instructions()), (0x9000, 2 * count));
    }
}

#[test]
fn a_loop_without_end_is_interrupted() {
    let (mut hart, mut memory) = program::<Rv64>(&["jal zero, . + 0"]);
    let flag = AtomicBool::new(false);
    let stop = std::thread::scope(|scope| {
        scope.spawn(|| flag.store(true, Ordering::Relaxed));
        hart.run(&mut memory, &mut Streams::none(), Limits { instructions: None, stop: Some(&flag) })
    });
    assert_eq!(stop, Stop::Interrupted);
    assert_eq!(hart.pc(), CODE);
}

#[test]
fn traps_name_instruction_and_address() {
    let trap = |cause, index: u64, value| Stop::Trap(Trap { cause, pc: CODE + 4 * index, value });
    let behind = "addi a0, zero, 1";
    for (lines, expected) in [
        (["addi a0, zero, 1", "lw a1, 0(zero)", behind], trap(Cause::LoadAccess, 1, 0)),
        (["lui a0, 0x4", "sw a1, -3(a0)", behind], trap(Cause::StoreAccess, 1, END - 3)),
        (["lui a0, 0x1", "sb a1, 0(a0)", behind], trap(Cause::StoreAccess, 1, CODE)),
        (["lui a0, 0x3", "lr.w a1, (a0)", "amoadd.w a1, a1, (ra)"], trap(Cause::StoreAccess, 2, Hart::<Rv64>::RETURN)),
        (["addi a0, zero, 2", "lr.w a1, (a0)", behind], trap(Cause::LoadMisaligned, 1, 2)),
        (["addi a0, zero, 2", "amoor.w a1, a1, (a0)", behind], trap(Cause::StoreMisaligned, 1, 2)),
        ([behind, ".4byte 0xffffffff", behind], trap(Cause::IllegalInstruction, 1, 0xffff_ffff)),
        ([behind, "ebreak", behind], trap(Cause::Breakpoint, 1, CODE + 4)),
        ([behind, "mret", behind], trap(Cause::IllegalInstruction, 1, 0x3020_0073)),
        ([behind, "csrrw zero, cycle, a0", behind], trap(Cause::IllegalInstruction, 1, 0xc005_1073)),
        ([behind, "csrrs a0, mstatus, zero", behind], trap(Cause::IllegalInstruction, 1, 0x3000_2573)),
        ([behind, "streamload.w a0, 3", behind], trap(Cause::LoadAccess, 1, 3)),
        ([behind, "streamstore.w a0, 3", behind], trap(Cause::StoreAccess, 1, 3)),
        ([behind, "csrrw zero, ihead0, a0", behind], trap(Cause::IllegalInstruction, 1, 0x8005_1073)),
    ] {
        let (stop, hart) = run::<Rv64>(&lines, &[]);
        assert_eq!(stop, expected, "{lines:?}");
        assert_eq!(hart.instructions(), (hart.pc() - CODE) / 4, "{lines:?}");
    }
    let (stop, _) = run::<Rv64>(&["lui a0, 0x5", "jalr zero, 6(a0)"], &[]);
    assert_eq!(stop, Stop::Trap(Trap { cause: Cause::FetchAccess, pc: 0x5006, value: 0x5006 }));
    // The jump leads to the address after the last executable one.
    let (stop, hart) = run::<Rv32>(&["lui a0, 0x3", "jalr ra, -2(a0)"], &[]);
    assert_eq!(stop, Stop::Trap(Trap { cause: Cause::IllegalInstruction, pc: 0x2ffe, value: 0 }));
    assert_eq!(hart.x(1), CODE + 8);
}

#[test]
fn a_word_of_zeros_has_32() {
    for line in ["ctzw a0, a0", "clzw a0, a0"] {
        assert_eq!(run::<Rv64>(&[line, "jalr zero, 0(ra)"], &[1 << 40]).0, Stop::Returned { code: 32 });
    }
}

#[test]
fn misaligned_accesses_work() {
    let lines = ["lui a1, 0x3", "sd a0, 3(a1)", "lwu a0, 5(a1)", "jalr zero, 0(ra)"];
    assert_eq!(run::<Rv64>(&lines, &[0x1122_3344_5566_7788]).0, Stop::Returned { code: 0x3344_5566 });
}

#[test]
fn counters_count_instructions() {
    let lines = ["addi a0, zero, 0", "csrrs a0, instret, zero", "csrrs a1, cycle, zero", "jalr zero, 0(ra)"];
    let (stop, hart) = run::<Rv64>(&lines, &[]);
    assert_eq!((stop, hart.x(11)), (Stop::Returned { code: 1 }, 2));
    let lines = ["csrrs a0, instreth, zero", "csrrs a1, time, zero", "jalr zero, 0(ra)"];
    let (stop, hart) = run::<Rv32>(&lines, &[]);
    assert_eq!((stop, hart.x(11)), (Stop::Returned { code: 0 }, 1));
}

#[test]
fn a_program_that_waits_goes_on_where_it_stopped() {
    // Copies 32-bit words from one stream to another.
    let lines = ["streamload.w a0, 1", "addi a0, a0, 1", "streamstore.w a0, 0", "jal zero, . - 12"];
    let (mut hart, mut memory) = program::<Rv32>(&lines);
    let (mut ring_in, mut ring_out) = ([0u8; 8], [0u8; 16]);
    let (mut head_in, mut head_out, mut written, mut sent) = (0, 0, Vec::new(), 0u32);
    let mut stops = Vec::new();
    loop {
        let arrived = u64::from(sent) * 4;
        let mut streams = Streams::none();
        streams.inputs.push(InputStream::whole(&[]));
        streams.inputs.push(InputStream::resume(&ring_in, head_in, arrived, sent == 10));
        streams.outputs.push(OutputStream::resume(&mut ring_out, head_out, written.len() as u64, Room::Eight));
        let stop = hart.run(&mut memory, &mut streams, Limits::default());
        (head_in, head_out) = (streams.inputs[1].head(), streams.outputs[0].head());
        let parts = streams.outputs[0].waiting_at();
        stops.push(stop);
        match stop {
            Stop::WaitInput { stream: 1 } => {
                assert_eq!(hart.pc(), CODE);
                let at = (arrived % 8) as usize;
                ring_in[at..at + 4].copy_from_slice(&sent.to_le_bytes());
                sent += 1;
            }
            Stop::WaitOutput { stream: 0 } => {
                assert_eq!(hart.pc(), CODE + 8);
                parts.into_iter().for_each(|part| written.extend_from_slice(&ring_out[part]));
            }
            Stop::InputExhausted { stream: 1, left: 0 } => {
                parts.into_iter().for_each(|part| written.extend_from_slice(&ring_out[part]));
                break;
            }
            other => panic!("{other}"),
        }
    }
    let words: Vec<u32> = written.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
    assert_eq!(words, (1..=10).collect::<Vec<u32>>());
    assert_eq!(hart.instructions(), 40);
    assert!(stops.contains(&Stop::WaitOutput { stream: 0 }));
}

#[test]
fn whole_arrays_are_streams() {
    // Sums bytes until the stream ends, which its end register shows, then reads the last four bytes again.
    let lines = [
        "csrrs t0, iend0, zero",
        "bne t0, zero, . + 16",
        "streamload.bu t1, 0",
        "add a0, a0, t1",
        "jal zero, . - 16",
        "addi t0, zero, 4",
        "readistream.w a1, 0, t0",
        "csrrs a2, ihead0, zero",
        "csrrs a3, itail0, zero",
        "jalr zero, 0(ra)",
    ];
    let bytes: Vec<u8> = (0..=255).collect();
    let (mut hart, mut memory) = program::<Rv64>(&lines);
    hart.call(CODE, END, &[0]);
    let mut streams = Streams::none();
    streams.inputs.push(InputStream::whole(&bytes));
    let stop = hart.run(&mut memory, &mut streams, Limits::default());
    assert_eq!(stop, Stop::Returned { code: 255 * 128 });
    assert_eq!(hart.x(11), 0xffff_ffff_fffe_fdfc);
    assert_eq!((hart.x(12), hart.x(13)), (256, 256));
}

#[test]
fn the_end_register_hangs_until_it_knows() {
    let (mut hart, mut memory) = program::<Rv64>(&["csrrs a0, iend0, zero", "jalr zero, 0(ra)"]);
    let ring = [0; 8];
    let mut streams = Streams::none();
    streams.inputs.push(InputStream::new(&ring));
    assert_eq!(hart.run(&mut memory, &mut streams, Limits::default()), Stop::WaitInput { stream: 0 });
    assert_eq!(hart.instructions(), 0);
    streams.inputs[0].close();
    assert_eq!(hart.run(&mut memory, &mut streams, Limits::default()), Stop::Returned { code: 1 });
}

#[test]
fn a_program_cannot_tell_when_its_bytes_arrived() {
    // All reads of streams: waits of several lengths, peeks from both ends, registers; the results go to an output.
    let mut lines = vec!["addi t0, zero, 5", "addi t1, zero, -2", "addi t2, zero, 100"];
    for (ask, register) in [
        ("streamwait a0, 0, t0", "a0"),
        ("peekistream.bu a0, 0, zero", "a0"),
        ("peekistream.hu a0, 0, t0", "a0"),
        ("streamload.bu a0, 0", "a0"),
        ("streamload.h a0, 0", "a0"),
        ("peekistream.b a0, 0, t1", "a0"),
        ("streamwait a0, 0, t2", "a0"),
        ("readistream.bu a0, 0, t0", "a0"),
        ("csrrs a0, itail0, zero", "a0"),
        ("csrrs a0, ihead0, zero", "a0"),
        ("csrrs a0, otail0, zero", "a0"),
        ("csrrs a0, iend0, zero", "a0"),
        ("csrrs a0, instret, zero", "a0"),
    ] {
        assert_eq!(register, "a0");
        lines.extend([ask, "streamstore.d a0, 0"]);
    }
    lines.push("jalr zero, 0(ra)");
    let bytes: Vec<u8> = (0..40).collect();
    // `first` bytes arrive at first, `then` bytes with each wait; `known`: the end is known from the beginning;
    // `ring`: room of outputs.
    let play = |first: usize, then: usize, known: bool, ring: usize| {
        let (mut hart, mut memory) = program::<Rv64>(&lines);
        hart.call(CODE, END, &[]);
        let (mut arrived, mut head, mut written, mut out) = (first, 0, 0, Vec::new());
        let mut room = vec![0; ring];
        loop {
            let mut streams = Streams::none();
            let end = (known || arrived == bytes.len()).then_some(bytes.len() as u64);
            streams.inputs.push(InputStream::window(&bytes[..arrived], head).ending(end));
            streams.outputs.push(OutputStream::resume(&mut room, written, out.len() as u64, Room::Width).limited(1000));
            let stop = hart.run(&mut memory, &mut streams, Limits::default());
            (head, written) = (streams.inputs[0].head(), streams.outputs[0].head());
            let parts = streams.outputs[0].waiting_at();
            drop(streams);
            parts.into_iter().for_each(|part| out.extend_from_slice(&room[part]));
            match stop {
                Stop::WaitInput { stream: 0 } => {
                    assert!(arrived < bytes.len(), "it waits for what is there");
                    arrived = (arrived + then).min(bytes.len());
                }
                Stop::WaitOutput { stream: 0 } => {}
                stop => return (stop, out, hart.instructions()),
            }
        }
    };
    let (stop, out, instructions) = play(40, 1, true, 400);
    let told: Vec<i64> = out.chunks(8).map(|w| i64::from_le_bytes(w.try_into().unwrap())).collect();
    assert_eq!(told[..12], [5, 0, 0x605, 0, 0x201, 1, 37, 35, 40, 3, 1000, 0]);
    for (first, then, known, ring) in [(0, 1, false, 8), (0, 1, true, 8), (3, 7, false, 24), (39, 1, true, 400)] {
        assert_eq!(play(first, then, known, ring), (stop, out.clone(), instructions), "{first} {then} {known} {ring}");
    }
}

#[test]
fn bytes_that_are_left_over_are_counted() {
    let (mut hart, mut memory) = program::<Rv64>(&["streamload.d a0, 0", "jal zero, . - 4"]);
    let mut streams = Streams::none();
    streams.inputs.push(InputStream::whole(&[0; 19]));
    let stop = hart.run(&mut memory, &mut streams, Limits::default());
    assert_eq!(stop, Stop::InputExhausted { stream: 0, left: 3 });
}

#[test]
fn code_that_changes_itself_is_seen() {
    // Overwrites the instruction after the store, within one block, with `addi a0, zero, 7`.
    let mut memory = Memory::new();
    memory.add_program(CODE, END - CODE, CODE..END, CODE..END).unwrap();
    let new = encode(&assemble("addi a0, zero, 7", 64).unwrap());
    let lines = ["sw a1, 8(a2)", "addi a0, zero, 1", "addi a0, zero, 2", "jalr zero, 0(ra)"];
    for (i, line) in lines.iter().enumerate() {
        let at = CODE + 4 * i as u64;
        let word = encode(&assemble(line, 64).unwrap());
        memory.get_mut(at..at + 4).unwrap().copy_from_slice(&word.to_le_bytes());
    }
    let mut hart = Hart::<Rv64>::new(HartMode::Program, Extensions::PROGRAM);
    hart.call(CODE, END, &[0, u64::from(new), CODE]);
    let stop = hart.run(&mut memory, &mut Streams::none(), Limits::default());
    assert_eq!(stop, Stop::Returned { code: 7 });
    assert_eq!(hart.instructions(), 4);
}

#[cfg(feature = "bare")]
#[test]
fn a_machine_that_traps_for_ever_ends_at_its_limit() {
    let mut memory = Memory::new();
    memory.add_program(0, END, 0..END, 0..END).unwrap();
    // All memory is zero, the trap handler included, so every instruction is illegal.
    let mut hart = Hart::<Rv64>::new(HartMode::Bare, Extensions::ALL);
    hart.set_pc(CODE);
    let limits = Limits { instructions: Some(10_000), stop: None };
    assert_eq!(hart.run(&mut memory, &mut Streams::none(), limits), Stop::InstructionLimit);
    assert_eq!((hart.pc(), hart.instructions()), (0, 0));
}

#[test]
fn environment_calls_are_the_callers() {
    let (mut hart, mut memory) = program::<Rv32>(&["ecall", "addi a0, a0, 1", "jalr zero, 0(ra)"]);
    let stop = hart.run(&mut memory, &mut Streams::none(), Limits::default());
    assert_eq!((stop, hart.pc()), (Stop::EnvironmentCall, CODE + 4));
    hart.set_x(10, 41);
    assert_eq!(hart.run(&mut memory, &mut Streams::none(), Limits::default()), Stop::Returned { code: 42 });
}

#[test]
fn a_rounding_mode_that_there_is_not_is_illegal() {
    let lines = ["addi a1, zero, 6", "csrrw zero, frm, a1", "fadd.d fa0, fa0, fa0", "jalr zero, 0(ra)"];
    let (stop, _) = run::<Rv64>(&lines, &[]);
    let Stop::Trap(trap) = stop else { panic!("{stop}") };
    assert_eq!((trap.cause, trap.pc), (Cause::IllegalInstruction, CODE + 8));
    assert_eq!(trap.value, u64::from(encode(&assemble("fadd.d fa0, fa0, fa0", 64).unwrap())));
}

#[test]
fn blocks_are_there_to_be_looked_at() {
    let (_, hart) = run::<Rv64>(LOOP, &[0, 3]);
    let found: Vec<(u64, usize)> = hart.blocks().iter().map(|b| (b.pc, b.ops.len())).collect();
    assert_eq!(found, [(CODE, 3), (CODE + 12, 1)]);
    assert_eq!(hart.blocks()[0].taken(64), Some(CODE));
    assert_eq!(hart.blocks()[0].next(64), CODE + 12);
}

#[test]
fn what_is_counted_is_what_was_executed() {
    for limit in [u64::MAX, 2000] {
        let (_, mut memory) = program::<Rv64>(LOOP);
        let mut hart = Hart::<Rv64, _>::with_meter(HartMode::Program, Extensions::PROGRAM, Counter::default());
        hart.call(CODE, END, &[0, 1000]);
        hart.run(&mut memory, &mut Streams::none(), Limits { instructions: Some(limit), stop: None });
        let profile = hart.meter_mut().take();
        assert_eq!(profile.total(), hart.instructions());
        let counts: Vec<_> = profile.instructions().map(|(pc, op, times)| (pc, op.row().name, times)).collect();
        if limit == 2000 {
            let at = [(CODE, "addi", 667), (CODE + 4, "addi", 667), (CODE + 8, "bne", 666)];
            assert_eq!(counts, at);
        } else {
            assert_eq!(counts[2..], [(CODE + 8, "bne", 1000), (CODE + 12, "jalr", 1)]);
            assert_eq!(profile.blocks().collect::<Vec<_>>(), [(CODE, 3, 1000), (CODE + 12, 1, 1)]);
        }
        assert_eq!(hart.meter_mut().take().total(), 0);
    }
    // The instruction that trapped was not executed; those before it were.
    let (_, mut memory) = program::<Rv32>(&["addi a0, zero, 8", "lw a1, 0(a0)", "addi a0, a0, 1", "jal zero, . - 4"]);
    let mut hart = Hart::<Rv32, _>::with_meter(HartMode::Program, Extensions::PROGRAM, Counter::default());
    hart.set_pc(CODE);
    assert!(matches!(hart.run(&mut memory, &mut Streams::none(), Limits::default()), Stop::Trap(_)));
    let profile = hart.meter_mut().take();
    assert_eq!(profile.instructions().map(|(pc, _, times)| (pc, times)).collect::<Vec<_>>(), [(CODE, 1)]);
    let mut twice = profile.clone();
    twice.add(&profile);
    assert_eq!((twice.total(), twice.blocks().next()), (2, Some((CODE, 4, 2))));
}
