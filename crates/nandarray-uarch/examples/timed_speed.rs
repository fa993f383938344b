//! Speed of simulation: millions of instructions per second of the host's user time, untimed and on described cores.
//!
//! ```text
//! cargo run --release -p nandarray-uarch --example timed_speed -- [REPEATS]
//! ```
//!
//! The program is `nandarray-hart/tests/programs/mix.c` for RV64IM and RV32IM: list processing, matrices, a state
//! machine and CRCs. Rows are medians of REPEATS runs (3 if left out), taken in turn. Not here: keep other
//! programs from the machine; streams, and cores that share memory.

#![allow(clippy::print_stdout, reason = "it prints a table")]

use nandarray_hart::{
    ElfProgram, Extensions, Hart, HartMode, Limits, Meter, Rv32, Rv64, Stop, Streams, Unmetered, Xlen,
};
use nandarray_uarch::{CoreDescription, TimedCore};

/// Returns the user time of this process so far, in seconds.
fn user_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    fields[11].parse::<f64>().expect("clock ticks") / 100.0
}

/// Runs a static Linux program that only writes and exits; returns the user time in seconds, and the hart afterwards.
fn run<X: Xlen, M: Meter>(elf: &[u8], meter: M) -> (f64, Hart<X, M>) {
    let program = ElfProgram::from_elf(elf, Extensions::PROGRAM).expect("a program");
    let mut loaded = program.load(1 << 20, None).expect("memory");
    let mut hart = Hart::<X, M>::with_meter(HartMode::Program, Extensions::PROGRAM, meter);
    hart.call(program.entry, loaded.stack, &[]);
    let before = user_seconds();
    loop {
        match hart.run(&mut loaded.memory, &mut Streams::none(), Limits::default()) {
            // The system calls write and exit.
            Stop::EnvironmentCall if hart.x(17) == 64 => hart.set_x(10, hart.x(12)),
            Stop::EnvironmentCall if hart.x(17) == 93 => return (user_seconds() - before, hart),
            other => panic!("{other}"),
        }
    }
}

fn core(preset: &str, caches: bool) -> CoreDescription {
    let mut d = CoreDescription::preset(preset).expect("a preset");
    if !caches {
        (d.l1i, d.l1d, d.l2) = (None, None, None);
    }
    d
}

fn rows<X: Xlen>(elf: &[u8], repeats: usize) {
    let cores = [("zou-2023", false), ("five-stage", false), ("ex5", false), ("zou-2023", true), ("five-stage", true)];
    let mut seconds = vec![Vec::new(); cores.len() + 1];
    let mut notes = vec![String::new(); cores.len() + 1];
    let mut instructions = 0;
    for _ in 0..repeats {
        let (took, hart) = run::<X, _>(elf, Unmetered);
        seconds[0].push(took);
        instructions = hart.instructions();
        notes[0] = format!("{instructions} instructions");
        for (i, &(preset, caches)) in cores.iter().enumerate() {
            let (took, hart) = run::<X, _>(elf, TimedCore::new(&core(preset, caches)));
            seconds[i + 1].push(took);
            assert_eq!(hart.instructions(), instructions);
            notes[i + 1] = format!("{:.3} cycles an instruction", hart.meter().report().cpi());
        }
    }
    for (i, times) in seconds.iter_mut().enumerate() {
        times.sort_by(f64::total_cmp);
        let speed = instructions as f64 / 1e6 / times[times.len() / 2].max(0.01);
        let what = match i {
            0 => "untimed".to_owned(),
            _ => format!("{}, {}", cores[i - 1].0, if cores[i - 1].1 { "caches" } else { "no caches" }),
        };
        println!("| rv{} | {what:<24} | {speed:7.0} | {} |", X::BITS, notes[i]);
    }
}

fn main() {
    let repeats = std::env::args().nth(1).map_or(3, |text| text.parse().expect("a number of repeats"));
    println!("| program | core | million instructions a second | |\n| --- | --- | --- | --- |");
    rows::<Rv64>(include_bytes!("../../nandarray-hart/tests/programs/built/long-mix64.bin"), repeats);
    rows::<Rv32>(include_bytes!("../../nandarray-hart/tests/programs/built/long-mix32.bin"), repeats);
}
