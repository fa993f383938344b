//! Millions of instructions per second of the host's user time.

#[path = "../tests/common/mod.rs"]
mod common;

use cpu_time::ProcessTime;
use nandarray_hart::{Rv32, Rv64};

fn main() {
    for path in std::env::args().skip(1) {
        let elf = std::fs::read(&path).unwrap();
        let start = ProcessTime::now();
        let outcome = if elf[4] == 1 { common::run::<Rv32>(&elf, None) } else { common::run::<Rv64>(&elf, None) };
        let seconds = start.elapsed().as_secs_f64();
        eprintln!(
            "{path}: {:?} {:?} {} instructions {:.2} s {:.0} MIPS",
            String::from_utf8_lossy(&outcome.output),
            outcome.status,
            outcome.instructions,
            seconds,
            outcome.instructions as f64 / seconds / 1e6
        );
    }
}
