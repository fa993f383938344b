//! Random sequences of instructions, with the initial values of registers and memory.
//!
//! Registers x29 to x31 are reserved for the generated frame: x31 points to the sequence's area, x29 into its memory;
//! no instruction of a sequence writes them. Every row of the tables may be drawn, except jumps to addresses in
//! registers, privileged and stream instructions.

use nandarray_hart::isa::{self, Code, Extensions, Format, Instruction, TABLE};

/// The mix of instructions that is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integer instructions and memory accesses.
    Integer,
    /// Mostly floating-point instructions.
    Float,
    /// All instructions with equal probability.
    Any,
}

/// Number of sequences in a batch.
const SEQUENCES: usize = 300;
/// The first register that is reserved for the frame.
const FRAME: u8 = 29;
/// The register that points into a sequence's memory.
pub const BASE: u8 = 29;

/// A sequence of instructions, with the initial state of registers and memory.
#[derive(Debug)]
pub struct Sequence {
    /// The instructions.
    pub ops: Vec<Instruction>,
    /// Encodings of the instructions, two bytes or four each.
    pub words: Vec<u32>,
    /// Initial integer registers; the values of the frame's registers are not used.
    pub x: [u64; 32],
    /// Initial floating-point registers.
    pub f: [u64; 32],
    /// Initial flags and rounding mode, as in `fcsr`.
    pub fcsr: u8,
    /// Initial contents of the memory around the address in register [`BASE`].
    pub memory: Vec<u8>,
}

/// A random number generator with a seed (SplitMix64).
pub struct Chance(u64);

impl Chance {
    /// Draws 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Draws a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

fn integer(chance: &mut Chance) -> u64 {
    match chance.below(6) {
        0 => chance.one_of(&[0, 1, 2, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 31, (1 << 31) - 1, 0xffff_ffff_8000_0000]),
        1 => chance.bits() as i8 as u64,
        2 => chance.bits() as i32 as u64,
        3 => 1 << chance.below(64),
        4 => u64::MAX >> chance.below(64),
        _ => chance.bits(),
    }
}

/// Draws a floating-point number with these numbers of exponent and fraction bits, often near a limit of the format.
fn float(chance: &mut Chance, exponent: u32, fraction: u32) -> u64 {
    let (ones, top) = ((1u64 << fraction) - 1, (1u64 << exponent) - 1);
    let bias = top >> 1;
    let biased = match chance.below(8) {
        0 => 0,
        1 => top,
        2 => 1 + chance.bits() % 3,
        3 => top - 1 - chance.bits() % 3,
        4 | 5 => bias - 8 + chance.bits() % 80 % (bias - 8),
        6 => bias + chance.bits() % 3,
        _ => chance.bits() & top,
    };
    let part = match chance.below(5) {
        0 => 0,
        1 => chance.bits() & 7,
        2 => ones - (chance.bits() & 7),
        3 => ones & u64::MAX << chance.below(fraction as usize),
        _ => chance.bits() & ones,
    };
    (chance.bits() & 1) << (exponent + fraction) | biased << fraction | part
}

fn float_register(chance: &mut Chance) -> u64 {
    match chance.below(8) {
        0..=3 => float(chance, 11, 52),
        4..=6 => float(chance, 8, 23) | 0xffff_ffff << 32,
        _ => float(chance, 8, 23) | (chance.bits() & 0xffff_fffe) << 32,
    }
}

/// Generates a batch of sequences for harts with registers of `bits` bits.
pub fn sequences(seed: u64, bits: u32, kind: Kind) -> Vec<Sequence> {
    let chance = &mut Chance(seed);
    (0..SEQUENCES).map(|_| sequence(chance, bits, kind)).collect()
}

fn sequence(chance: &mut Chance, bits: u32, kind: Kind) -> Sequence {
    let length = 1 + chance.below(16);
    let mut ops: Vec<Instruction> = Vec::new();
    let mut words: Vec<u32> = Vec::new();
    // Indices at which groups of instructions that belong together begin.
    let mut begins = Vec::new();
    while ops.len() < length {
        begins.push(ops.len());
        for (op, word) in some(chance, bits, kind) {
            ops.push(op);
            words.push(word);
        }
    }
    begins.push(ops.len());
    // Jumps and branches skip a few instructions, and never lead into a group.
    for i in 0..ops.len() {
        if matches!(ops[i].row().format, Format::Branch | Format::Jump) {
            let targets: Vec<usize> = begins.iter().copied().filter(|b| *b > i).take(4).collect();
            let over = &ops[i + 1..chance.one_of(&targets)];
            ops[i].imm = 4 + over.iter().map(|op| i32::from(op.len)).sum::<i32>();
            words[i] = isa::encode(&ops[i]);
        }
    }
    let boxed = kind != Kind::Integer;
    Sequence {
        ops,
        words,
        x: std::array::from_fn(|_| integer(chance)),
        f: std::array::from_fn(|_| if boxed { float_register(chance) } else { chance.bits() }),
        fcsr: (chance.below(5) as u8) << 5 | (chance.bits() as u8 & chance.bits() as u8 & 31),
        memory: (0..768).map(|_| chance.bits() as u8).collect(),
    }
}

/// Draws one instruction, or a few that belong together.
fn some(chance: &mut Chance, bits: u32, kind: Kind) -> Vec<(Instruction, u32)> {
    if kind != Kind::Float && chance.below(4) == 0 {
        return compressed(chance, bits);
    }
    loop {
        let row = &TABLE[chance.below(TABLE.len())];
        let float = row.format.float();
        let wanted = match kind {
            Kind::Integer => !float,
            Kind::Float => float || chance.below(20) == 0,
            Kind::Any => true,
        };
        if !row.width.has(bits) || !wanted {
            continue;
        }
        let Some(mut op) = isa::decode32(row.bits | chance.bits() as u32 & !row.mask, bits, Extensions::PROGRAM) else {
            continue;
        };
        let integer_target = !matches!(
            row.format,
            Format::FloatLoad
                | Format::FloatFused
                | Format::FloatRounded
                | Format::FloatUnaryRounded
                | Format::FloatRegister
                | Format::IntToFloatRounded
                | Format::IntToFloat
        );
        if op.code != row.code || integer_target && op.rd >= FRAME {
            continue;
        }
        match row.format {
            Format::Bare | Format::FenceVma | Format::JumpRegister | Format::Illegal => continue,
            Format::StreamLoad | Format::StreamStore | Format::StreamRead => continue,
            Format::Load | Format::Store | Format::FloatLoad | Format::FloatStore => {
                (op.rs1, op.imm) = (BASE, chance.below(256) as i32 - 128);
            }
            Format::Atomic => op.rs1 = BASE,
            Format::LoadReserved => {
                // Followed by a store-conditional of the same width, perhaps with a store in between.
                op.rs1 = BASE;
                let name = if op.code == Code::LrW { "sc.w t0, t1, (t4)" } else { "sc.d t0, t1, (t4)" };
                let between = if chance.below(3) == 0 { "sw t2, 0(t4)" } else { "addi t2, t2, 1" };
                let rest = [between, name].map(|line| isa::assemble(line, bits).unwrap());
                return std::iter::once(op).chain(rest).map(|op| (op, isa::encode(&op))).collect();
            }
            // QEMU before 8.0 counts beyond the word if it is zero, so one of its bits is set first.
            _ if op.code == Code::Ctzw => {
                let set = Instruction { code: Code::Bseti, rd: 5, rs1: op.rs1, imm: chance.below(32) as i32, ..op };
                op.rs1 = 5;
                return [set, op].map(|op| (op, isa::encode(&op))).to_vec();
            }
            Format::Csr | Format::CsrImmediate => {
                // Flags are read and written; the rounding mode is only set to valid values.
                op.imm = 1;
                if row.format == Format::CsrImmediate && op.code == Code::Csrrwi && chance.below(2) == 0 {
                    (op.imm, op.rs1) = (2, chance.below(5) as u8);
                } else if op.code == Code::Csrrs && chance.below(2) == 0 {
                    (op.imm, op.rs1) = (3, 0);
                }
            }
            _ => {}
        }
        return vec![(op, isa::encode(&op))];
    }
}

/// Draws a 16-bit instruction, preceded by one that sets its address register if it accesses memory.
fn compressed(chance: &mut Chance, bits: u32) -> Vec<(Instruction, u32)> {
    loop {
        let half = chance.bits() as u16;
        if isa::length(half) == 4 {
            continue;
        }
        let Some(op) = isa::decode16(half, bits, Extensions::PROGRAM) else { continue };
        let format = op.row().format;
        let base = match format {
            Format::Bare | Format::Branch | Format::Jump | Format::JumpRegister => continue,
            Format::Load | Format::Store | Format::FloatLoad | Format::FloatStore => Some(op.rs1),
            _ => None,
        };
        if op.rd >= FRAME && format != Format::FloatLoad || base.is_some_and(|b| b >= FRAME) {
            continue;
        }
        let pointer =
            base.map(|b| Instruction { code: Code::Addi, rd: b, rs1: BASE, rs2: 0, rs3: 0, rm: 0, len: 4, imm: 0 });
        return pointer.map(|op| (op, isa::encode(&op))).into_iter().chain([(op, u32::from(half))]).collect();
    }
}
