//! Speed of programs: millions of instructions per second of the host's user time, interpreted,
//! translated, and by peers.
//!
//! ```text
//! cargo run --release -p nandarray-jit --example speed -- [REPEATS [PEER...]]
//! ```
//!
//! The program is `nandarray-hart/tests/programs/mix.c`, 5000 rounds of list processing, matrices, a state machine and
//! CRCs, compiled for RV64IM and RV32IM at `-O3` (`build.py` beside it). Rows are medians of REPEATS runs (5 if left
//! out); the engines take turns. User time is what the operating system reports for this process and its children, in
//! steps of 10 ms, on Linux only; the translator's includes the time for translating. Speeds of all engines are
//! computed from the hart's count of instructions. A PEER is a command that runs an RV64 program, such as
//! `nandarray-hart/peers/ckb-vm`. Other programs on the machine disturb the figures.

#![allow(clippy::print_stdout, reason = "it prints a table")]

#[path = "../tests/linux/mod.rs"]
mod linux;

use std::path::{Path, PathBuf};
use std::process::Command;

use linux::{ExecutionEngine, Outcome};
use nandarray_hart::{Rv32, Rv64};

/// Returns the user time so far of this process, and of its children that have ended, in seconds.
fn user_seconds() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // The fields after the name, which is in parentheses: the twelfth is this process's time, the fourteenth its
    // children's.
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    let seconds = |field: usize| fields[field].parse::<f64>().expect("ticks") / 100.0;
    (seconds(11), seconds(13))
}

/// The engine that runs the benchmark's program.
enum Engine {
    Ours(ExecutionEngine),
    Command(String),
}

impl Engine {
    /// Runs the program; returns user seconds, its output, and the outcome if the engine is the interpreter or the
    /// translator. `None` if the command of a peer is not installed.
    fn run(&self, elf: &[u8], copy: &Path) -> Option<(f64, Vec<u8>, Option<Outcome>)> {
        let before = user_seconds();
        match self {
            Self::Ours(kind) => {
                let outcome = if elf[4] == 1 { linux::run::<Rv32>(elf, *kind) } else { linux::run::<Rv64>(elf, *kind) };
                assert_eq!(outcome.status, Ok(0));
                Some((user_seconds().0 - before.0, outcome.output.clone(), Some(outcome)))
            }
            Self::Command(command) => {
                let done = Command::new(command).arg(copy).output().ok()?;
                Some((user_seconds().1 - before.1, done.stdout, None))
            }
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let repeats: usize = std::env::args().nth(1).map_or(5, |n| n.parse().expect("a number of repeats"));
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../nandarray-hart/tests/programs/built");
    println!("| engine | program | million instructions | user s | MIPS |\n| --- | --- | --- | --- | --- |");
    let mut statistics = Vec::new();
    for bits in [64, 32] {
        let path = folder.join(format!("long-mix{bits}.bin"));
        let elf = std::fs::read(&path).expect("a program of build.py's");
        let copy = std::env::temp_dir().join(format!("nandarray-speed-{bits}-{}", std::process::id()));
        std::fs::copy(&path, &copy).expect("a copy");
        let executable = Command::new("chmod").arg("+x").arg(&copy).status().is_ok_and(|status| status.success());
        assert!(executable, "{} cannot be made executable", copy.display());
        let qemu = format!("qemu-riscv{bits}");
        let mut engines = vec![
            ("nandarray, interpreted".to_owned(), Engine::Ours(ExecutionEngine::Interpreter), Vec::new()),
            ("nandarray, translated".to_owned(), Engine::Ours(ExecutionEngine::Translator), Vec::new()),
            (format!("QEMU user mode ({qemu})"), Engine::Command(qemu), Vec::new()),
        ];
        for peer in std::env::args().skip(2).filter(|_| bits == 64) {
            let name = peer.rsplit('/').next().unwrap_or(&peer).to_owned();
            engines.push((name, Engine::Command(peer), Vec::new()));
        }
        let (mut instructions, mut output) = (0, Vec::new());
        for _ in 0..repeats {
            for (name, engine, all) in &mut engines {
                let Some((seconds, written, outcome)) = engine.run(&elf, &copy) else { continue };
                all.push(seconds);
                if output.is_empty() {
                    output = written;
                } else {
                    assert_eq!(written, output, "{name} came to something else");
                }
                if let Some(outcome) = outcome {
                    instructions = outcome.instructions;
                    if outcome.statistics.regions > 0 {
                        statistics.push((bits, outcome.statistics));
                    }
                }
            }
        }
        std::fs::remove_file(&copy).expect("the copy");
        for (engine, _, seconds) in &mut engines {
            let million = instructions as f64 / 1e6;
            if seconds.is_empty() {
                println!("| {engine} | RV{bits}IM mix | {million:.0} | not installed | |");
            } else {
                let median = median(seconds);
                println!("| {engine} | RV{bits}IM mix | {million:.0} | {median:.2} | {:.0} |", million / median);
            }
        }
    }
    statistics.dedup_by_key(|s| s.0);
    for (bits, s) in statistics {
        println!(
            "\nRV{bits}: {} regions, {} instructions in them, {} bytes of host code, entered {} times, \
             {} instructions interpreted.",
            s.regions, s.instructions, s.code_bytes, s.entered, s.interpreted
        );
    }
}
