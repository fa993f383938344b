//! Promise: if several instructions are checked at once and one of them fails, the failure is reported at that
//! instruction, with the effects of those before it.
//!
//! Loads and stores by one register are compared with a memory region's bounds together, and doubts about
//! floating-point results are resolved together. Here each position in such a group of instructions fails in turn.

use nandarray_hart::isa::{assemble, encode};
use nandarray_hart::{Cause, Extensions, Hart, HartMode, Limits, Memory, Rv32, Rv64, Stop, Streams, Trap, Xlen};
use nandarray_jit::{Settings, Translated, TranslationTrigger};

const CODE: u64 = 0x1000;
const DATA: u64 = 0x3000;
const END: u64 = 0x4000;
const WINDOW_AT: u64 = 0x2000_0000;

fn memory(lines: &[String], bits: u32) -> Memory<'static> {
    let mut memory = Memory::new();
    memory.add_program(CODE, END - CODE, DATA..END, CODE..DATA).unwrap();
    for (i, line) in lines.iter().enumerate() {
        let word = encode(&assemble(line, bits).unwrap_or_else(|e| panic!("{line}: {e}")));
        let at = CODE + 4 * i as u64;
        memory.get_mut(at..at + 4).unwrap().copy_from_slice(&word.to_le_bytes());
    }
    memory
}

fn translated<X: Xlen>() -> Translated<X> {
    Translated::with_settings(
        Extensions::PROGRAM,
        Settings { when: TranslationTrigger::Visited(0), ..Settings::default() },
    )
}

fn stores_at_an_edge<X: Xlen>(below: bool) {
    // Four stores of words, not in the order of their addresses; `beyond` of them lie beyond the end.
    for beyond in 0..=4 {
        let offsets = [8, 0, 12, 4];
        let mut lines: Vec<String> =
            offsets.iter().map(|offset| format!("sw a{}, {offset}(a0)", 1 + offset / 4)).collect();
        lines.push("jalr zero, 0(ra)".into());
        let base = if below { DATA - 4 * beyond } else { END - 16 + 4 * beyond };
        let outside = |offset: u64| base + offset < DATA || base + offset >= END;
        let mut memory = memory(&lines, X::BITS);
        let mut translated = translated::<X>();
        translated.hart_mut().call(CODE, END, &[base, 0x11, 0x22, 0x33, 0x44]);
        let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
        let fails = offsets.iter().position(|offset| outside(*offset));
        match fails {
            Some(at) => {
                let value = base + offsets[at];
                let trap = Trap { cause: Cause::StoreAccess, pc: CODE + 4 * at as u64, value };
                assert_eq!(stop, Stop::Trap(trap), "{beyond} beyond");
            }
            None => assert!(matches!(stop, Stop::Returned { .. }), "{stop:?}"),
        }
        for (at, offset) in offsets.into_iter().enumerate().filter(|(_, offset)| !outside(*offset)) {
            let done = at < fails.unwrap_or(4);
            let expected = if done { 0x11 * (1 + offset as u32 / 4) } else { 0 };
            let address = base + offset;
            let bytes = memory.get(address..address + 4).unwrap();
            assert_eq!(bytes, expected.to_le_bytes(), "{beyond} beyond, offset {offset}");
        }
        assert_eq!(translated.hart().instructions(), fails.map_or(5, |at| at as u64));
    }
}

#[test]
fn a_store_beyond_an_edge_traps_after_those_before_it() {
    for below in [false, true] {
        stores_at_an_edge::<Rv64>(below);
        stores_at_an_edge::<Rv32>(below);
    }
}

#[test]
fn a_load_beyond_a_window_keeps_what_was_loaded() {
    // The loop makes two rounds inside the window, so that its region is known, then one beyond its end.
    let mut lines: Vec<String> =
        ["ld a1, 0(a0)", "ld a2, 8(a0)", "ld a3, 16(a0)", "ld a4, 24(a0)"].map(Into::into).into();
    lines.extend(["addi a0, a0, 32", "jal zero, . - 20"].map(Into::into));
    for bytes in [64 + 8, 64 + 15, 64 + 24, 64 + 31, 96] {
        let window: Vec<u8> = (0..bytes as u8).collect();
        let mut own = memory(&lines, 64);
        let word = |i: usize| u64::from_le_bytes(window[8 * i..8 * i + 8].try_into().unwrap());
        let mut translated = translated::<Rv64>();
        // The failures also occur in code that was recompiled for the window.
        for round in 0..6 {
            let mut memory = own.for_call();
            memory.lend(WINDOW_AT, &window).unwrap();
            translated.hart_mut().call(CODE, END, &[WINDOW_AT]);
            let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
            let (rows, at) = (bytes / 32, bytes % 32 / 8);
            let value = WINDOW_AT + 8 * (4 * rows + at) as u64;
            let trap = Trap { cause: Cause::LoadAccess, pc: CODE + 4 * at as u64, value };
            assert_eq!(stop, Stop::Trap(trap), "{bytes} bytes, round {round}");
            for r in 0..4 {
                let row = if r < at { rows } else { rows - 1 };
                assert_eq!(translated.hart().x(11 + r), word(4 * row + r), "{bytes} bytes, round {round}, a{}", 1 + r);
            }
        }
    }
}

/// Operands for which the host's result may differ from the hart's.
const SPECIAL: [f64; 8] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 5e-324, f64::MAX, f64::MIN_POSITIVE];

/// Runs a hart from the given start; returns why it stopped, its flags, number of instructions, and registers.
fn play<X: Xlen>(
    start: impl Fn(&mut Hart<X>),
    hart: &mut impl AsHart<X>,
    memory: &mut Memory<'_>,
) -> (Stop, u8, u64, Vec<u64>) {
    start(hart.hart());
    let before = hart.hart().instructions();
    let stop = hart.go(memory);
    let hart = hart.hart();
    let registers = (0..32).map(|r| hart.f(r)).chain((0..32).map(|r| hart.x(r))).collect();
    (stop, hart.fcsr(), hart.instructions() - before, registers)
}

trait AsHart<X: Xlen> {
    fn hart(&mut self) -> &mut Hart<X>;
    fn go(&mut self, memory: &mut Memory<'_>) -> Stop;
}

impl<X: Xlen> AsHart<X> for Hart<X> {
    fn hart(&mut self) -> &mut Hart<X> {
        self
    }

    fn go(&mut self, memory: &mut Memory<'_>) -> Stop {
        self.run(memory, &mut Streams::none(), Limits::default())
    }
}

impl<X: Xlen> AsHart<X> for Translated<X> {
    fn hart(&mut self) -> &mut Hart<X> {
        self.hart_mut()
    }

    fn go(&mut self, memory: &mut Memory<'_>) -> Stop {
        self.run(memory, &mut Streams::none(), Limits::default())
    }
}

/// Executes a loop of three rounds of an operation on four groups of registers, one of which holds a special number;
/// checks that translator and interpreter agree.
fn run_of_numbers(operation: &[&str]) {
    let mut lines: Vec<String> = Vec::new();
    for lane in 0..4 {
        let (to, from) = (format!("f{}", 4 + lane), format!("f{}", 10 + lane));
        let number =
            |text: &&str| text.replace("TO", &to).replace("FROM", &from).replace("INT", &format!("x{}", 20 + lane));
        lines.extend(operation.iter().map(number));
    }
    lines.extend(["addi a0, a0, -1", &format!("bne a0, zero, . - {}", 4 * lines.len() + 4)].map(String::from));
    lines.push("jalr zero, 0(ra)".into());
    let mut memory = memory(&lines, 64);
    let (mut hart, mut made) = (Hart::<Rv64>::new(HartMode::Program, Extensions::PROGRAM), translated::<Rv64>());
    let odd = [f64::from_bits(0x7ff0_0000_0000_0001), 1e-160, -1e300];
    // With and without "inexact" set before: "underflow" and other flags must be raised either way.
    for flags in [0, 1, 31] {
        for (position, special) in (0..4).flat_map(|p| SPECIAL.into_iter().chain(odd).map(move |s| (p, s))) {
            let start = |hart: &mut Hart<Rv64>| {
                hart.call(CODE, END, &[3]);
                hart.set_fcsr(flags);
                (20..24).for_each(|r| hart.set_x(r, 0));
                (0..32).for_each(|r| hart.set_f(r, (1.0 + r as f64 / 3.0).to_bits()));
                hart.set_f(10 + position, special.to_bits());
            };
            let theirs = play(start, &mut hart, &mut memory);
            let ours = play(start, &mut made, &mut memory);
            assert_eq!(ours, theirs, "{operation:?}, {special:?} in lane {position}, flags {flags}");
        }
    }
}

#[test]
fn one_number_in_doubt_spoils_no_other() {
    run_of_numbers(&["fadd.d TO, TO, FROM"]);
    run_of_numbers(&["fsub.d TO, FROM, TO", "fmul.d TO, TO, FROM"]);
    run_of_numbers(&["fmul.d TO, FROM, FROM"]);
    run_of_numbers(&["fmadd.d TO, FROM, FROM, TO", "fadd.d f3, f3, TO"]);
    run_of_numbers(&["fdiv.d TO, TO, FROM", "fsqrt.d f3, TO"]);
    run_of_numbers(&["fle.d INT, TO, FROM", "fmax.d TO, TO, FROM", "flt.d INT, TO, FROM"]);
    run_of_numbers(&["fsub.d TO, FROM, f31", "fmul.d TO, TO, f30", "fcvt.l.d INT, TO, rtz"]);
    run_of_numbers(&["fcvt.w.d INT, FROM, rtz", "fcvt.wu.d INT, FROM, rtz", "fcvt.d.l TO, INT"]);
    run_of_numbers(&["fcvt.s.d TO, FROM", "fadd.s f3, TO, TO", "fcvt.d.s TO, f3"]);
}
