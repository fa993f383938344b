//! Speed of the interpreter in loops over windows of memory, by the number of windows read and written in turn.
//!
//! ```text
//! cargo run --release -p nandarray-hart --example windows -- [REPEATS]
//! ```
//!
//! A loop loads 8 bytes from each input window and stores 8 to each output window, at the addresses that programs
//! beside the data see. Rows are medians of REPEATS runs (7 if left out) of user time of this process, in steps of 10
//! ms: Linux only. It does not measure programs as they are offloaded, and other programs on the machine disturb it.

#![allow(clippy::print_stdout, reason = "it prints a table")]

use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Rv64, Stop, Streams};

const CODE: u64 = 0x0001_0000;
const INPUTS: u64 = 0x2000_0000;
const OUTPUTS: u64 = 0x6000_0000;
const WINDOW: u64 = 0x0400_0000;
/// Bytes of each window.
const BYTES: usize = 1 << 17;
/// Number of times that a run reads each window.
const PASSES: usize = 2048;

/// Returns the user time of this process so far, in seconds.
fn user_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    // The twelfth field after the name, which is in parentheses, is the user time.
    let field = stat.rsplit_once(')').expect("a name").1.split_whitespace().nth(11).expect("user time");
    field.parse::<f64>().expect("ticks") / 100.0
}

/// Generates the loop's instructions. Registers x8 to x15 point into inputs, x16 to x23 into outputs; x5 is the value,
/// x6 counts rounds.
fn code(inputs: u32, outputs: u32) -> Vec<u32> {
    let (value, count) = (5, 6);
    let immediate = |opcode: u32, funct3: u32, rd: u32, rs1: u32, imm: i32| {
        (imm as u32) << 20 | rs1 << 15 | funct3 << 12 | rd << 7 | opcode
    };
    let store = |rs1: u32, rs2: u32| rs2 << 20 | rs1 << 15 | 3 << 12 | 0x23;
    let mut words = Vec::new();
    for input in 0..inputs {
        words.push(immediate(0x03, 3, value, 8 + input, 0));
        words.push(immediate(0x13, 0, 8 + input, 8 + input, 8));
    }
    for output in 0..outputs {
        words.push(store(16 + output, value));
        words.push(immediate(0x13, 0, 16 + output, 16 + output, 8));
    }
    words.push(immediate(0x13, 0, count, count, -1));
    let back = (words.len() as i32 * -4) as u32;
    // bne count, zero, back
    let (sign, high, low, top) = (back >> 12 & 1, back >> 5 & 63, back >> 1 & 15, back >> 11 & 1);
    words.push(sign << 31 | high << 25 | count << 15 | 1 << 12 | low << 8 | top << 7 | 0x63);
    words.push(immediate(0x67, 0, 0, 1, 0));
    words
}

/// Runs the loop; returns the user time in seconds, and the number of instructions.
fn run(inputs: usize, outputs: usize) -> (f64, u64) {
    let code: Vec<u8> = code(inputs as u32, outputs as u32).iter().flat_map(|word| word.to_le_bytes()).collect();
    let read = vec![vec![1u8; BYTES]; inputs];
    let mut written = vec![vec![0u8; BYTES]; outputs];
    let mut memory = Memory::new();
    memory.add_program(CODE, 1 << 16, CODE + (1 << 15)..CODE + (1 << 16), CODE..CODE + (1 << 15)).expect("memory");
    memory.get_mut(CODE..CODE + code.len() as u64).expect("room").copy_from_slice(&code);
    let mut hart = Hart::<Rv64>::new(HartMode::Program, Extensions::PROGRAM);
    let before = user_seconds();
    for _ in 0..PASSES {
        let mut memory = memory.for_call();
        for (i, bytes) in read.iter().enumerate() {
            memory.lend(INPUTS + i as u64 * WINDOW, bytes).expect("a window");
        }
        for (i, bytes) in written.iter_mut().enumerate() {
            memory.lend_mut(OUTPUTS + i as u64 * WINDOW, bytes).expect("a window");
        }
        hart.call(CODE, CODE + (1 << 16), &[]);
        hart.set_x(6, BYTES as u64 / 8);
        for i in 0..8 {
            hart.set_x(8 + i, INPUTS + i as u64 * WINDOW);
            hart.set_x(16 + i, OUTPUTS + i as u64 * WINDOW);
        }
        let stop = hart.run(&mut memory, &mut Streams::none(), Limits::default());
        assert!(matches!(stop, Stop::Returned { .. }), "{stop}");
    }
    (user_seconds() - before, hart.instructions())
}

fn main() {
    let repeats: usize = std::env::args().nth(1).map_or(7, |n| n.parse().expect("a number of repeats"));
    println!("| inputs | outputs | million instructions | user s | MIPS |\n| --- | --- | --- | --- | --- |");
    let shapes = [(1, 0), (1, 1), (0, 2), (1, 2), (2, 1), (2, 2), (3, 1), (0, 4), (4, 4)];
    for (inputs, outputs) in shapes {
        let mut runs: Vec<_> = (0..repeats).map(|_| run(inputs, outputs)).collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (seconds, million) = (runs[repeats / 2].0, runs[0].1 as f64 / 1e6);
        println!("| {inputs} | {outputs} | {million:.0} | {seconds:.2} | {:.0} |", million / seconds);
    }
}
