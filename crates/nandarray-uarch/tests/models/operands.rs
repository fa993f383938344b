//! The registers of each scalar instruction, as timing sees them, against the hart that executes it: nothing but the
//! destination changes, registers that are not read do not matter, and those that are read do.

use std::collections::BTreeMap;

use nandarray_hart::isa::{Code, Format, Instruction, Row, TABLE, decode};
use nandarray_hart::{Extensions, Hart, HartMode, Limits, Memory, Rv64, Stop, Streams};
use nandarray_uarch::{FunctionalUnit, Operands, REGISTERS};

const CODE: u64 = 0x1_0000;
const DATA: u64 = 0x2_0000;
const DATA_BYTES: u64 = 8_192;

/// All registers, integer ones first, and the rounding mode with its flags.
#[derive(Clone)]
struct Registers {
    all: [u64; 64],
    fcsr: u8,
}

/// The state of a hart after an instruction.
#[derive(PartialEq)]
struct After {
    registers: [u64; 64],
    fcsr: u8,
    pc: u64,
    stop: Stop,
    data: Vec<u8>,
}

struct Bench {
    hart: Hart<Rv64>,
    memory: Memory<'static>,
    data: Vec<u8>,
}

impl Bench {
    fn new(chance: &mut fastrand::Rng) -> Self {
        let mut memory = Memory::new();
        let bytes = DATA + DATA_BYTES - CODE;
        memory.add_program(CODE, bytes, DATA..DATA + DATA_BYTES, CODE..CODE + 4).unwrap();
        let data = (0..DATA_BYTES).map(|_| chance.u8(..)).collect();
        Self { hart: Hart::new(HartMode::Program, Extensions::PROGRAM), memory, data }
    }

    /// Executes an instruction.
    fn run(&mut self, word: u32, registers: &Registers) -> After {
        self.memory.get_mut(CODE..CODE + 4).unwrap().copy_from_slice(&word.to_le_bytes());
        self.memory.get_mut(DATA..DATA + DATA_BYTES).unwrap().copy_from_slice(&self.data);
        let hart = &mut self.hart;
        hart.forget_blocks();
        (1..32).for_each(|x| hart.set_x(x, registers.all[x]));
        (0..32).for_each(|f| hart.set_f(f, registers.all[32 + f]));
        hart.set_fcsr(registers.fcsr);
        hart.set_pc(CODE);
        let stop = hart.run(&mut self.memory, &mut Streams::none(), Limits { instructions: Some(1), stop: None });
        After {
            registers: std::array::from_fn(|r| if r < 32 { hart.x(r) } else { hart.f(r - 32) }),
            fcsr: hart.fcsr(),
            pc: hart.pc(),
            stop,
            data: self.memory.get(DATA..DATA + DATA_BYTES).unwrap().to_vec(),
        }
    }
}

fn addresses_memory(format: Format) -> bool {
    use Format::*;
    matches!(format, Load | Store | FloatLoad | FloatStore | LoadReserved | Atomic)
}

/// Returns a value for a register: often one for which comparisons are equal, or an address.
fn value(register: usize, pointer: bool, chance: &mut fastrand::Rng) -> u64 {
    if pointer {
        return DATA + DATA_BYTES / 2 + 8 * chance.u64(0..100);
    }
    if register < 32 {
        let few = [0, 1, 2, u64::MAX, 1 << 63, 1 << 31, DATA];
        return if chance.bool() { few[chance.usize(0..few.len())] } else { chance.u64(..) };
    }
    let few = [0.0, -0.0, 1.0, 2.5, -1e9, f64::NAN, f64::INFINITY];
    let number = few[chance.usize(0..few.len())];
    match chance.u8(..4) {
        0 => number.to_bits(),
        1 | 2 => u64::from((number as f32).to_bits()) | !0 << 32,
        _ => chance.u64(..),
    }
}

/// Returns a random instruction of a row; `None` if the bits are that of another one or of none.
fn instruction(row: &Row, chance: &mut fastrand::Rng) -> Option<(u32, Instruction)> {
    let mut word = row.bits | chance.u32(..) & !row.mask;
    if matches!(row.format, Format::Csr | Format::CsrImmediate) {
        // The registers of floating point: flags, mode, both.
        word = word & 0xf_ffff | chance.u32(1..4) << 20;
    }
    let op = decode(word, 64, Extensions::PROGRAM);
    (op.code == row.code).then_some((word, op))
}

fn scalar_rows() -> impl Iterator<Item = &'static Row> {
    use Format::*;
    let system = |format| matches!(format, Bare | Fence | FenceVma | StreamLoad | StreamStore | StreamRead | Illegal);
    let plain = move |row: &&Row| row.width.has(64) && !row.format.vector() && !system(row.format);
    TABLE.iter().filter(plain).filter(|row| Extensions::PROGRAM.has(row.extension))
}

#[test]
fn an_instruction_depends_on_what_it_reads_and_changes_what_it_writes() {
    let mut chance = fastrand::Rng::with_seed(17);
    let mut bench = Bench::new(&mut chance);
    let mut rows = 0;
    for row in scalar_rows() {
        // Of each place among the sources: whether a change there made a difference.
        let mut matters: BTreeMap<usize, bool> = BTreeMap::new();
        let mut seen = 0;
        for trial in 0..400u32 {
            let Some((word, op)) = instruction(row, &mut chance) else { continue };
            seen += 1;
            let operands = Operands::of(&op);
            let base = addresses_memory(row.format).then_some(usize::from(op.rs1));
            let mut fresh = |register: usize| value(register, base == Some(register), &mut chance);
            let registers = Registers { all: std::array::from_fn(&mut fresh), fcsr: (trial % 5) as u8 * 32 };
            let context = format!("{} ({word:#010x}), trial {trial}", row.name);
            let after = bench.run(word, &registers);
            for register in 1..64 {
                let kept = after.registers[register] == registers.all[register];
                assert!(kept || operands.destination == Some(register as u8), "{context}: register {register} changed");
            }
            let mut others = registers.clone();
            let unread = (1..64usize).filter(|&r| !operands.sources().contains(&(r as u8)));
            let unread: Vec<usize> = unread.filter(|&r| operands.destination != Some(r as u8)).collect();
            unread.into_iter().for_each(|register| others.all[register] = fresh(register));
            let mut again = bench.run(word, &others);
            // Registers that the instruction does not write keep what they had.
            for register in (1..64).filter(|&r| operands.destination != Some(r as u8)) {
                again.registers[register] = after.registers[register];
            }
            assert!(again == after, "{context}: registers that are not read made a difference");
            for (place, &source) in operands.sources().iter().enumerate() {
                let mut changed = registers.clone();
                changed.all[usize::from(source)] = fresh(usize::from(source));
                let mut found = bench.run(word, &changed);
                if operands.destination != Some(source) {
                    found.registers[usize::from(source)] = registers.all[usize::from(source)];
                    *matters.entry(place).or_default() |= found != after;
                }
            }
        }
        assert!(seen > 20, "{}: {seen} instructions", row.name);
        // Without a reservation, a conditional store fails whatever its operands are.
        if !matches!(row.code, Code::ScW | Code::ScD) {
            assert!(
                matters.values().all(|&matters| matters),
                "{}: a register that never mattered: {matters:?}",
                row.name
            );
        }
        rows += 1;
    }
    assert!(rows > 120, "{rows} instructions");
}

/// The masks of rows leave open what an instruction's operands are: whatever they are, timing has a place for them.
#[test]
fn every_instruction_has_a_unit_and_registers_within_the_scoreboard() {
    let mut chance = fastrand::Rng::with_seed(5);
    let all = Extensions::ALL.with_vlen(256);
    for row in TABLE {
        let bits = if row.width.has(64) { 64 } else { 32 };
        for _ in 0..60 {
            let op = decode(row.bits | chance.u32(..) & !row.mask, bits, all);
            let (unit, operands) = (FunctionalUnit::of(&op), Operands::of(&op));
            let all = operands.sources().iter().chain(operands.destination.as_ref());
            assert!(all.clone().all(|&r| r != 0 && usize::from(r) < REGISTERS), "{op:?}: {operands:?}");
            let datapath = op.row().format.vector() || op.code == Code::Vsetvl;
            assert!(datapath || operands.sources().iter().all(|&r| r < 64), "{op:?}: {operands:?}");
            assert!(!unit.uses_datapath() || datapath, "{op:?} is executed by {unit:?}");
            assert!(!operands.counts || operands.destination.is_some_and(|r| (64..96).contains(&r)), "{op:?}");
        }
    }
}
