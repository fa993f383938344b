//! Millions of instructions per second of the host's user time: interpreter, translator, and QEMU where it is installed.
//!
//!     cargo run --release -p nandarray-jit --example speed [FILE ...]
//!
//! Without files: the long CoreMark-like programs, which `nandarray-hart/tests/programs/build.py` compiles. Each is run five
//! times by each, in turn; the median is printed. The translator's time holds translating, which is also listed apart.

#[path = "../tests/linux/mod.rs"]
mod linux;

use std::path::PathBuf;
use std::process::Command;

use cpu_time::ProcessTime;
use linux::{Kind, Outcome};
use nandarray_hart::{Rv32, Rv64};

const RUNS: usize = 5;

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn ours(elf: &[u8], kind: Kind) -> (f64, Outcome) {
    let start = ProcessTime::now();
    let outcome = if elf[4] == 1 { linux::run::<Rv32>(elf, kind) } else { linux::run::<Rv64>(elf, kind) };
    (start.elapsed().as_secs_f64(), outcome)
}

/// User time of QEMU, if it is installed.
fn qemu(path: &PathBuf, bits: u32) -> Option<f64> {
    let script = format!("TIMEFORMAT=%U; time qemu-riscv{bits} {} > /dev/null", path.display());
    let done = Command::new("bash").args(["-c", &script]).output().ok().filter(|done| done.status.success())?;
    String::from_utf8_lossy(&done.stderr).trim().parse().ok()
}

fn main() {
    let built = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../nandarray-hart/tests/programs/built"));
    let mut paths: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        paths = ["long-mix64.bin", "long-mix32.bin"].map(|name| built.join(name)).to_vec();
    }
    for path in paths {
        let Ok(elf) = std::fs::read(&path) else {
            eprintln!("{} is not there: nandarray-hart/tests/programs/build.py compiles it", path.display());
            std::process::exit(1);
        };
        let bits = if elf[4] == 1 { 32 } else { 64 };
        let (mut interpreted, mut translated, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let mut last = None;
        for _ in 0..RUNS {
            let (seconds, theirs) = ours(&elf, Kind::Interpreter);
            interpreted.push(seconds);
            let (seconds, ours) = ours(&elf, Kind::Translator);
            translated.push(seconds);
            assert_eq!(
                (ours.output.clone(), ours.status, ours.instructions),
                (theirs.output, theirs.status, theirs.instructions)
            );
            others.extend(qemu(&path, bits));
            last = Some(ours);
        }
        let Some(last) = last else { continue };
        let rate = |seconds: f64| last.instructions as f64 / seconds / 1e6;
        eprintln!("{}: {} instructions, median of {RUNS}", path.display(), last.instructions);
        for (name, seconds) in [("interpreter", interpreted), ("translator", translated), ("QEMU user mode", others)] {
            if !seconds.is_empty() {
                let seconds = median(seconds);
                eprintln!("  {name:15} {seconds:7.3} s {:7.0} MIPS", rate(seconds));
            }
        }
        eprintln!("  {:?}", last.statistics);
    }
}
