//! How fast the hart is: millions of instructions per second of the host's user time, beside QEMU's user mode.
//!
//! ```text
//! cargo run --release -p nandarray-hart --example speed -- [REPEATS [PEER...]]
//! ```
//!
//! The program is `tests/programs/mix.c`, 5000 rounds of list processing, matrices, a state machine and CRCs, compiled for
//! RV64IM and RV32IM at `-O3` (`tests/programs/build.py`). Rows are medians of REPEATS runs (5 if left out), taken in turn.
//! User time is the operating system's, of this process and of its children, in steps of 10 ms: Linux only. All are given the
//! hart's count of instructions. A PEER is a command that runs an RV64 program, such as `peers/ckb-vm`'s. What it does not do: keep other programs from the machine.

#![allow(clippy::print_stdout, reason = "it prints a table")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::PathBuf;
use std::process::Command;

use nandarray_hart::{Rv32, Rv64};

/// User seconds of this process, and of its children that ended.
fn user_seconds() -> (f64, f64) {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // Fields behind the name, which is in parentheses: the twelfth is ours, the fourteenth our children's.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let seconds = |field: usize| fields[field].parse::<f64>().unwrap() / 100.0;
    (seconds(11), seconds(13))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let repeats: usize = std::env::args().nth(1).map_or(5, |n| n.parse().expect("a number of repeats"));
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/programs/built");
    println!("| engine | program | million instructions | user s | MIPS |\n| --- | --- | --- | --- | --- |");
    for bits in [64, 32] {
        let path = folder.join(format!("long-mix{bits}.bin"));
        let elf = std::fs::read(&path).unwrap();
        let copy = std::env::temp_dir().join(format!("nandarray-hart-speed-{bits}-{}", std::process::id()));
        std::fs::copy(&path, &copy).unwrap();
        let runs = |command: &mut Command| command.status().is_ok_and(|status| status.success());
        let executable = runs(Command::new("chmod").arg("+x").arg(&copy));
        let mut engines = vec![("nandarray-hart".to_owned(), None, Vec::new())];
        let qemu = format!("qemu-riscv{bits}");
        assert!(executable, "{} cannot be made executable", copy.display());
        engines.push((format!("QEMU user mode ({qemu})"), Some(qemu), Vec::new()));
        for peer in std::env::args().skip(2).filter(|_| bits == 64) {
            let name = peer.rsplit('/').next().unwrap_or(&peer).to_owned();
            engines.push((name, Some(peer), Vec::new()));
        }
        let (mut instructions, mut output) = (0, Vec::new());
        for _ in 0..repeats {
            for (name, command, seconds) in &mut engines {
                let before = user_seconds();
                let Some(command) = command else {
                    let outcome =
                        if bits == 32 { common::run::<Rv32>(&elf, None) } else { common::run::<Rv64>(&elf, None) };
                    seconds.push(user_seconds().0 - before.0);
                    assert_eq!(outcome.status, Ok(0));
                    (instructions, output) = (outcome.instructions, outcome.output);
                    continue;
                };
                if let Ok(done) = Command::new(command).arg(&copy).output() {
                    seconds.push(user_seconds().1 - before.1);
                    assert_eq!(done.stdout, output, "{name} came to something else");
                }
            }
        }
        std::fs::remove_file(&copy).unwrap();
        for (engine, _, seconds) in &mut engines {
            let million = instructions as f64 / 1e6;
            if seconds.is_empty() {
                println!("| {engine} | RV{bits}IM mix | {million:.0} | not installed | |");
            } else {
                let median = median(seconds);
                println!("| {engine} | RV{bits}IM mix | {million:.0} | {median:.2} | {:.0} |", million / median);
            }
        }
        assert!(!output.is_empty());
    }
}
