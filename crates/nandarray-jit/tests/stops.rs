//! Promise: the translator stops exactly where and when it must: limits, the stop flag, traps, streams, changed code.

use std::sync::atomic::{AtomicBool, Ordering};

use nandarray_cores::Processor;
use nandarray_hart::isa::{assemble, encode};
use nandarray_hart::{
    Cause, Extensions, Hart, HartMode, InputStream, Limits, Memory, OutputStream, Room, Rv32, Rv64, Stop, Streams,
    Trap, Xlen,
};
use nandarray_jit::{Costs, Settings, Translated, TranslationTrigger, Translations};

const CODE: u64 = 0x1000;
const DATA: u64 = 0x3000;
const END: u64 = 0x4000;
const LOOP: &[&str] = &["addi a0, a0, 1", "addi a1, a1, -1", "bne a1, zero, . - 8", "jalr zero, 0(ra)"];

fn put<X: Xlen>(memory: &mut Memory<'_>, lines: &[&str]) {
    for (i, line) in lines.iter().enumerate() {
        let word = encode(&assemble(line, X::BITS).unwrap_or_else(|e| panic!("{line}: {e}")));
        let at = CODE + 4 * i as u64;
        memory.get_mut(at..at + 4).unwrap().copy_from_slice(&word.to_le_bytes());
    }
}

/// Creates a processor that translates at once, and a memory with the program and its stack.
fn program<X: Xlen>(lines: &[&str]) -> (Translated<X>, Memory<'static>) {
    program_when(lines, TranslationTrigger::Visited(0))
}

fn program_when<X: Xlen>(lines: &[&str], when: TranslationTrigger) -> (Translated<X>, Memory<'static>) {
    let mut memory = Memory::new();
    memory.add_program(CODE, END - CODE, DATA..END, CODE..DATA).unwrap();
    put::<X>(&mut memory, lines);
    let settings = Settings { when, ..Settings::default() };
    let mut translated = Translated::with_settings(Extensions::PROGRAM, settings);
    translated.hart_mut().call(CODE, END, &[]);
    (translated, memory)
}

#[test]
fn the_instruction_limit_is_exact() {
    for when in [TranslationTrigger::Visited(0), TranslationTrigger::Pays(Costs::NONE)] {
        the_limit_is_exact(when);
    }
}

fn the_limit_is_exact(when: TranslationTrigger) {
    let (mut translated, mut memory) = program_when::<Rv64>(LOOP, when);
    for limit in 0..=301 {
        let before = translated.hart().instructions();
        translated.hart_mut().call(CODE, END, &[0, 100]);
        let limits = Limits { instructions: Some(limit), stop: None };
        let stop = translated.run(&mut memory, &mut Streams::none(), limits);
        assert_eq!(translated.hart().instructions() - before, limit);
        if limit == 301 {
            assert_eq!(stop, Stop::Returned { code: 100 });
            break;
        }
        assert_eq!(stop, Stop::InstructionLimit);
        assert_eq!(translated.hart().pc(), CODE + 4 * (limit % 3) + if limit == 300 { 12 } else { 0 });
        assert_eq!(translated.hart().x(10), limit.div_ceil(3));
        // It continues from there as if it had not stopped.
        let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
        assert_eq!((stop, translated.hart().instructions() - before), (Stop::Returned { code: 100 }, 301));
    }
    assert!(translated.statistics().regions > 0);
}

#[test]
fn a_loop_without_end_is_interrupted() {
    let (mut translated, mut memory) = program::<Rv32>(&["addi a0, a0, 1", "jal zero, . - 4"]);
    let flag = AtomicBool::new(false);
    let stop = std::thread::scope(|scope| {
        scope.spawn(|| flag.store(true, Ordering::Relaxed));
        translated.run(&mut memory, &mut Streams::none(), Limits { instructions: None, stop: Some(&flag) })
    });
    assert_eq!(stop, Stop::Interrupted);
    let hart = translated.hart();
    assert_eq!(hart.x(10), hart.instructions().div_ceil(2) & 0xffff_ffff);
}

#[test]
fn traps_name_instruction_and_address() {
    let trap = |cause, index: u64, value| Stop::Trap(Trap { cause, pc: CODE + 4 * index, value });
    let first = "addi a0, zero, 1";
    for (lines, expected) in [
        ([first, "lw a1, 0(zero)"], trap(Cause::LoadAccess, 1, 0)),
        (["lui a0, 0x4", "sw a1, -3(a0)"], trap(Cause::StoreAccess, 1, END - 3)),
        (["lui a0, 0x4", "ld a1, -7(a0)"], trap(Cause::LoadAccess, 1, END - 7)),
        (["lui a0, 0x1", "sb a1, 0(a0)"], trap(Cause::StoreAccess, 1, CODE)),
        (["addi a0, zero, -1", "lb a1, 0(a0)"], trap(Cause::LoadAccess, 1, u64::MAX)),
        (["addi a0, zero, 2", "amoor.w a1, a1, (a0)"], trap(Cause::StoreMisaligned, 1, 2)),
        ([first, ".4byte 0xffffffff"], trap(Cause::IllegalInstruction, 1, 0xffff_ffff)),
        ([first, "ebreak"], trap(Cause::Breakpoint, 1, CODE + 4)),
        ([first, "csrrs a0, mstatus, zero"], trap(Cause::IllegalInstruction, 1, 0x3000_2573)),
        ([first, "streamload.w a0, 3"], trap(Cause::LoadAccess, 1, 3)),
        ([first, "streamstore.w a0, 3"], trap(Cause::StoreAccess, 1, 3)),
    ] {
        let (mut translated, mut memory) = program::<Rv64>(&lines);
        for _ in 0..3 {
            let before = translated.hart().instructions();
            translated.hart_mut().call(CODE, END, &[]);
            let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
            assert_eq!((stop, translated.hart().instructions() - before), (expected, 1), "{lines:?}");
        }
    }
    let (mut translated, mut memory) = program::<Rv64>(&["lui a0, 0x5", "jalr zero, 6(a0)"]);
    let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
    assert_eq!(stop, Stop::Trap(Trap { cause: Cause::FetchAccess, pc: 0x5006, value: 0x5006 }));
}

#[test]
fn a_program_that_waits_goes_on_where_it_stopped() {
    let lines = ["streamload.w a0, 0", "addi a0, a0, 1", "streamstore.w a0, 0", "jal zero, . - 12"];
    let (mut translated, mut memory) = program::<Rv64>(&lines);
    let (mut ring_in, mut ring_out) = ([0u8; 12], [0u8; 20]);
    let (mut head_in, mut head_out, mut written, mut sent) = (0, 0, Vec::new(), 0u32);
    loop {
        let arrived = u64::from(sent) * 4;
        let mut streams = Streams::none();
        streams.inputs.push(InputStream::resume(&ring_in, head_in, arrived, sent == 50));
        streams.outputs.push(OutputStream::resume(&mut ring_out, head_out, written.len() as u64, Room::Eight));
        let stop = translated.run(&mut memory, &mut streams, Limits::default());
        (head_in, head_out) = (streams.inputs[0].head(), streams.outputs[0].head());
        let parts = streams.outputs[0].waiting_at();
        match stop {
            Stop::WaitInput { stream: 0 } => {
                let at = (arrived % 12) as usize;
                ring_in[at..at + 4].copy_from_slice(&sent.to_le_bytes());
                sent += 1;
            }
            Stop::WaitOutput { stream: 0 } => parts.into_iter().for_each(|p| written.extend_from_slice(&ring_out[p])),
            Stop::InputExhausted { stream: 0, left: 0 } => {
                parts.into_iter().for_each(|p| written.extend_from_slice(&ring_out[p]));
                break;
            }
            other => panic!("{other}"),
        }
    }
    let words: Vec<u32> = written.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
    assert_eq!(words, (1..=50).collect::<Vec<u32>>());
    assert_eq!(translated.hart().instructions(), 200);
}

#[test]
fn windows_may_lie_elsewhere_in_each_call_and_end_anywhere() {
    // Adds up a1 bytes from address a0 on.
    let lines = [
        "addi a2, zero, 0",
        "beq a1, zero, . + 24",
        "lbu a3, 0(a0)",
        "add a2, a2, a3",
        "addi a0, a0, 1",
        "addi a1, a1, -1",
        "jal zero, . - 20",
        "addi a0, a2, 0",
        "jalr zero, 0(ra)",
    ];
    let (mut translated, mut own) = program::<Rv32>(&lines);
    for length in [1u64, 100, 7, 64, 0, 33] {
        let bytes: Vec<u8> = (0..length).map(|i| i as u8).collect();
        for (extra, sum) in [(0, Some((0..length).sum())), (1, None)] {
            let mut memory = own.for_call();
            if length > 0 {
                memory.lend(0x2000_0000, &bytes).unwrap();
            }
            translated.hart_mut().call(CODE, END, &[0x2000_0000, length + extra]);
            let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
            match sum {
                Some(code) => assert_eq!(stop, Stop::Returned { code }),
                None => {
                    let fault = Trap { cause: Cause::LoadAccess, pc: CODE + 8, value: 0x2000_0000 + length };
                    assert_eq!(stop, Stop::Trap(fault));
                }
            }
        }
    }
}

#[test]
fn code_that_can_change_itself_is_interpreted() {
    let mut memory = Memory::new();
    memory.add_program(CODE, END - CODE, CODE..END, CODE..END).unwrap();
    put::<Rv64>(&mut memory, &["sw a1, 8(a2)", "addi a0, zero, 1", "addi a0, zero, 2", "jalr zero, 0(ra)"]);
    let new = encode(&assemble("addi a0, zero, 7", 64).unwrap());
    let mut translated = Translated::<Rv64>::with_settings(
        Extensions::PROGRAM,
        Settings { when: TranslationTrigger::Visited(0), ..Settings::default() },
    );
    translated.hart_mut().call(CODE, END, &[0, u64::from(new), CODE]);
    let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
    assert_eq!(stop, Stop::Returned { code: 7 });
    assert_eq!(translated.statistics().regions, 0);
}

#[test]
fn code_that_the_caller_changed_is_forgotten_on_demand() {
    let (mut translated, mut memory) = program::<Rv64>(&["addi a0, zero, 1", "jalr zero, 0(ra)"]);
    let mut call = |memory: &mut Memory<'_>, forget: bool| {
        if forget {
            translated.forget();
        }
        translated.hart_mut().call(CODE, END, &[]);
        translated.run(memory, &mut Streams::none(), Limits::default())
    };
    assert_eq!(call(&mut memory, false), Stop::Returned { code: 1 });
    put::<Rv64>(&mut memory, &["addi a0, zero, 2"]);
    assert_eq!(call(&mut memory, true), Stop::Returned { code: 2 });
}

#[test]
fn a_processor_may_move_to_another_thread() {
    let (mut translated, mut memory) = program::<Rv64>(LOOP);
    for rounds in [10, 20] {
        let stop;
        (translated, memory, stop) = std::thread::spawn(move || {
            translated.hart_mut().call(CODE, END, &[0, rounds]);
            let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
            (translated, memory, stop)
        })
        .join()
        .unwrap();
        assert_eq!(stop, Stop::Returned { code: rounds });
    }
    assert_eq!(translated.hart().pc(), Hart::<Rv64>::RETURN);
}

#[test]
fn what_is_translated_is_bounded() {
    let (_, mut memory) = program::<Rv64>(LOOP);
    let settings = Settings { when: TranslationTrigger::Visited(0), code_bytes: 0, ..Settings::default() };
    let mut translated = Translated::<Rv64>::with_settings(Extensions::PROGRAM, settings);
    translated.hart_mut().call(CODE, END, &[0, 1000]);
    let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
    assert_eq!((stop, translated.hart().instructions()), (Stop::Returned { code: 1000 }, 3001));
    assert_eq!(translated.statistics().regions, 0);
}

#[test]
fn cores_share_what_was_translated() {
    let translations =
        Translations::with_settings(64, Settings { when: TranslationTrigger::Visited(3), ..Settings::default() });
    let once = |rounds: u64| {
        let mut memory = Memory::new();
        memory.add_program(CODE, END - CODE, DATA..END, CODE..DATA).unwrap();
        // Increments a word in memory a0 times; returns the word in a0.
        put::<Rv64>(
            &mut memory,
            &[
                "lui a2, 0x3",
                "addi a1, a0, 0",
                "ld a0, 0(a2)",
                "addi a0, a0, 1",
                "sd a0, 0(a2)",
                "addi a1, a1, -1",
                "bne a1, zero, . - 16",
                "jalr zero, 0(ra)",
            ],
        );
        let mut processor = translations.run().processor();
        let stop = processor.call(CODE, END, rounds, &mut memory, &mut Streams::none(), Limits::default());
        assert_eq!((stop, processor.result()), (Stop::Returned { code: rounds }, rounds as i64));
        assert_eq!(processor.instructions(), 3 + 5 * rounds);
    };
    once(100);
    let bytes = translations.code_bytes();
    assert!(bytes > 0);
    // Code occupies whole pages, however little of them it fills.
    assert!(bytes.is_multiple_of(4096), "{bytes} bytes are no pages");
    std::thread::scope(|scope| (0..4).for_each(|n| drop(scope.spawn(move || (0..50).for_each(|i| once(1 + n + i))))));
    // All harts used the code of the loop; one further entry may have been reached often enough to be translated.
    assert!(translations.code_bytes() <= 3 * bytes);
}

/// Two nested loops: the inner one is entered a0 times, for a1 rounds each.
const LOOPS: &[&str] = &[
    "addi a4, a1, 0",
    "addi a2, a2, 1",
    "addi a4, a4, -1",
    "bne a4, zero, . - 8",
    "addi a3, a3, 1",
    "addi a0, a0, -1",
    "bne a0, zero, . - 24",
    "jalr zero, 0(ra)",
];

#[test]
fn nothing_is_translated_before_it_pays() {
    let costs = Costs { region_ns: 0, instruction_ns: 5_000, warm: 1024, sample: 256, ..Costs::default() };
    for (rounds, wanted) in [(1_000, false), (200_000, true)] {
        let (mut translated, mut memory) = program_when::<Rv64>(LOOP, TranslationTrigger::Pays(costs));
        translated.hart_mut().call(CODE, END, &[0, rounds]);
        let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
        assert_eq!((stop, translated.hart().instructions()), (Stop::Returned { code: rounds }, 1 + 3 * rounds));
        let s = translated.statistics();
        assert_eq!(s.regions > 0, wanted, "{rounds} rounds: {s:?}");
        if wanted {
            assert!(s.interpreted < 100_000, "{s:?}");
        }
    }
}

#[test]
fn a_run_spends_no_more_than_its_advance_and_what_it_earned() {
    // Nothing is earned, and the advance is less than any region costs, so no run can translate.
    let costs = Costs {
        region_ns: 0,
        instruction_ns: 1_000,
        advance_ns: 1_500,
        earned_ps: 0,
        watched_ns: 0,
        warm: 64,
        sample: 64,
        ..Costs::default()
    };
    let translations =
        Translations::with_settings(64, Settings { when: TranslationTrigger::Pays(costs), ..Settings::default() });
    let run = |translations: &Translations| {
        let (_, mut memory) = program::<Rv64>(LOOPS);
        let mut processor = translations.run().processor();
        let limits = Limits { instructions: Some(200_000), stop: None };
        processor.call(CODE, END, 1 << 40, &mut memory, &mut Streams::none(), limits)
    };
    for _ in 0..3 {
        assert_eq!(run(&translations), Stop::InstructionLimit);
        assert_eq!(translations.code_bytes(), 0);
    }
    let costs = Costs { advance_ns: 500_000, ..costs };
    let translations =
        Translations::with_settings(64, Settings { when: TranslationTrigger::Pays(costs), ..Settings::default() });
    assert_eq!(run(&translations), Stop::InstructionLimit);
    assert!(translations.code_bytes() > 0);
}

#[test]
fn code_is_entered_wherever_the_interpreter_comes_by() {
    let costs = Costs { region_ns: 0, instruction_ns: 0, warm: 1 << 10, sample: 1 << 10, ..Costs::default() };
    let (mut translated, mut memory) = program_when::<Rv64>(LOOPS, TranslationTrigger::Pays(costs));
    let rounds = 20_000;
    translated.hart_mut().call(CODE, END, &[rounds, 10]);
    let stop = translated.run(&mut memory, &mut Streams::none(), Limits::default());
    assert_eq!(
        (stop, translated.hart().x(12), translated.hart().x(13)),
        (Stop::Returned { code: 0 }, 10 * rounds, rounds)
    );
    let s = translated.statistics();
    assert_eq!(translated.hart().instructions(), 1 + 34 * rounds);
    assert!(s.regions > 0 && s.interpreted < 50_000, "{s:?}");
}

fn pays(costs: Costs) -> Translations {
    Translations::with_settings(64, Settings { when: TranslationTrigger::Pays(costs), ..Settings::default() })
}

/// Costs with which a region that pays is found after few instructions.
const QUICK: Costs = Costs { sample: 64, warm: 64, watched: 64, ..Costs::NONE };

/// Two endless loops that share no block, at `CODE` and `CODE + 8`.
const APART: &[&str] = &["addi a1, a1, 1", "jal zero, . - 4", "addi a2, a2, 1", "jal zero, . - 4"];

/// Executes a number of instructions of the endless loop at `entry` on a core.
fn spin(core: &mut dyn Processor, entry: u64, instructions: u64) {
    let (_, mut memory) = program::<Rv64>(APART);
    let limits = Limits { instructions: Some(instructions), stop: None };
    let before = core.instructions();
    let stop = core.call(entry, END, 0, &mut memory, &mut Streams::none(), limits);
    assert_eq!((stop, core.instructions() - before), (Stop::InstructionLimit, instructions));
}

#[test]
fn the_cores_of_a_run_share_one_advance() {
    // The advance is enough for one of the two regions; hardly anything is earned: a picosecond for each translated
    // instruction.
    let (region_ns, advance_ns) = (1_000, 1_500);
    let translations = pays(Costs { region_ns, advance_ns, saved_ps: 1, ..QUICK });
    // A region pays after a million instructions; the time that its code saves does not pay for another region.
    let enough = 1_100_000;
    let run = translations.run();
    spin(&mut *run.processor(), CODE, enough);
    let first = translations.code_bytes();
    assert!(first > 0, "the first core translates");
    // Cores that join the run later add no further advance.
    for _ in 0..3 {
        spin(&mut *run.processor(), CODE + 8, enough);
        assert_eq!(translations.code_bytes(), first, "the run's advance is spent");
    }
    spin(&mut *translations.run().processor(), CODE + 8, enough);
    assert!(translations.code_bytes() > first, "another run has an advance of its own");
}

#[test]
fn a_run_beside_another_keeps_what_it_earned() {
    // A run earns a nanosecond for each instruction that is interpreted; translating a region costs 300,000.
    let (region_ns, advance_ns) = (300_000, 0);
    let translations = pays(Costs { region_ns, advance_ns, earned_ps: 1000, ..QUICK });
    let run = translations.run();
    let mut core = run.processor();
    spin(&mut *core, CODE, 250_000);
    assert_eq!(translations.code_bytes(), 0, "it has not enough yet");
    let _other = (translations.run().processor(), run.processor());
    spin(&mut *core, CODE, 250_000);
    assert!(translations.code_bytes() > 0, "what it earned before the other run began counts");
}

/// Makes the same calls on a core and in the interpreter, and compares them: each call first stops at a limit, and is
/// made a second time to its end.
fn calls_agree(core: &mut dyn Processor, first: u64) {
    // The inner loop has ten rounds each time; the result is the number of rounds of both loops in all calls so far.
    let mut lines = LOOPS.to_vec();
    lines.insert(0, "addi a1, zero, 10");
    lines.splice(lines.len() - 1.., ["add a0, a2, a3", "jalr zero, 0(ra)"]);
    let (_, mut memory) = program::<Rv64>(&lines);
    let mut hart = Hart::<Rv64>::new(HartMode::Program, Extensions::PROGRAM);
    for rounds in [3, 40, 500, 6_000].map(|rounds| first + rounds) {
        for limit in [Some(20 * rounds + 7), None] {
            let limits = Limits { instructions: limit, stop: None };
            let ours = core.call(CODE, END, rounds, &mut memory, &mut Streams::none(), limits);
            let theirs = Processor::call(&mut hart, CODE, END, rounds, &mut memory, &mut Streams::none(), limits);
            let (pc, result) = (Processor::pc(&hart), hart.result());
            assert_eq!((ours, core.pc(), core.result()), (theirs, pc, result), "{rounds} rounds");
            assert_eq!(core.instructions(), hart.instructions(), "{rounds} rounds");
        }
    }
}

#[test]
fn two_cores_that_translate_when_it_pays_do_what_the_interpreter_does() {
    let cheap = Costs { region_ns: 1_000, instruction_ns: 100, warm: 256, sample: 64, ..Costs::default() };
    for costs in [Costs::NONE, cheap] {
        for _ in 0..5 {
            let translations = pays(costs);
            for _ in 0..2 {
                let run = &translations.run();
                std::thread::scope(|scope| {
                    (0..2).for_each(|core| drop(scope.spawn(move || calls_agree(&mut *run.processor(), core))));
                });
            }
            assert!(translations.code_bytes() > 0, "nothing was translated");
        }
    }
}
