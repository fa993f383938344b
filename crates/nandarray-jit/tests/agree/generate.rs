//! Random programs: a loop over random instructions, with jumps forward, inner loops and calls; and random initial
//! values.
//!
//! Registers x26 to x31 are reserved for the generated frame: x29 points into the program's memory, x30 into a window,
//! x28 counts rounds, x27 inner rounds, x26 holds the return address.

use crate::vectors;
use nandarray_hart::isa::{self, Code, Extensions, Format, Instruction, TABLE};

/// A random number generator with a seed (SplitMix64).
#[derive(Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// Draws 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Draws a number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// The kind of instructions that most of a program consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionMix {
    /// Integer instructions and memory accesses.
    Integer,
    /// Floating-point instructions.
    Float,
    /// Stream instructions.
    Stream,
    /// Floating-point instructions on ordinary numbers, with few other numbers among them.
    Ordinary,
    /// All instructions with equal probability, including those that trap.
    Any,
    /// Instructions of V and VarVE.
    Vector,
}

impl InstructionMix {
    /// The extensions of the harts that run it.
    pub(crate) fn extensions(self) -> Extensions {
        if self == Self::Vector { Extensions::PROGRAM_VECTOR } else { Extensions::PROGRAM }
    }
}

/// The registers below this one are the program's own.
pub(crate) const FRAME: u8 = 26;
/// The register that points into the program's memory.
pub(crate) const BASE: u8 = 29;
/// The register that points into a window.
pub(crate) const WINDOW: u8 = 30;

/// Draws an integer, often a special one.
pub(crate) fn integer(chance: &mut Chance) -> u64 {
    const SPECIAL: [u64; 8] = [0, 1, 2, u64::MAX, 1 << 63, 1 << 31, 0x7fff_ffff, 0xffff_ffff_8000_0000];
    match chance.below(5) {
        0 => SPECIAL[chance.below(SPECIAL.len())],
        1 => chance.bits() as i8 as u64,
        2 => chance.bits() as i32 as u64,
        3 => 1 << chance.below(64),
        _ => chance.bits(),
    }
}

/// Draws a floating-point register's value, often near a limit of its format; most single-precision values are boxed.
pub(crate) fn float(chance: &mut Chance) -> u64 {
    let mut part = |exponent: u32, fraction: u32| {
        let (ones, top) = ((1u64 << fraction) - 1, (1u64 << exponent) - 1);
        let biased = match chance.below(8) {
            0 => 0,
            1 => top,
            2 => 1 + chance.bits() % 3,
            3 => top - 1 - chance.bits() % 3,
            4..=6 => (top >> 1) - 4 + chance.bits() % 40,
            _ => chance.bits() & top,
        };
        let bits = match chance.below(5) {
            0 => 0,
            1 => chance.bits() & 7,
            2 => ones - (chance.bits() & 7),
            3 => ones & u64::MAX << chance.below(fraction as usize),
            _ => chance.bits() & ones,
        };
        (chance.bits() & 1) << (exponent + fraction) | biased << fraction | bits
    };
    let (double, single) = (part(11, 52), part(8, 23));
    match chance.below(9) {
        0..=3 => double,
        4..=7 => single | 0xffff_ffff << 32,
        _ => single | (chance.bits() & 0xffff_fffe) << 32,
    }
}

/// Draws a double-precision number between a thousandth and a thousand; seldom any other.
pub(crate) fn ordinary(chance: &mut Chance) -> u64 {
    if chance.one_in(40) {
        return float(chance);
    }
    let (biased, sign) = (1013 + chance.bits() % 20, chance.bits() & 1);
    // Sometimes few significant bits, so that results are exact.
    let mask = if chance.one_in(3) { !0 << 44 } else { !0 };
    sign << 63 | biased << 52 | chance.bits() & ((1 << 52) - 1) & mask
}

/// Whether an instruction of this kind mostly has ordinary results for ordinary operands.
fn tame(code: Code) -> bool {
    use Code::*;
    matches!(
        code,
        FaddD | FsubD | FmulD | FmaddD | FminD | FmaxD | FltD | FleD | FeqD | FcvtLD | FcvtWD | FcvtWuD | Fld | Fsd
    ) || matches!(code, FsgnjD | FmvDX | FcvtDL | FcvtDW | FcvtSD | FcvtDS | FdivD | FsqrtD | Add | Addi | Ld)
}

/// Draws a random instruction of a mix.
fn some(chance: &mut Chance, bits: u32, kind: InstructionMix) -> Instruction {
    if kind == InstructionMix::Vector && !chance.one_in(4) {
        return vectors::instruction(chance, bits);
    }
    loop {
        let row = &TABLE[chance.below(TABLE.len())];
        let float = row.format.float();
        let stream = matches!(row.format, Format::StreamLoad | Format::StreamStore | Format::StreamRead);
        let wanted = match kind {
            InstructionMix::Integer => !float && !stream,
            InstructionMix::Float => float || chance.one_in(10),
            InstructionMix::Ordinary => tame(row.code) || chance.one_in(100),
            InstructionMix::Stream => stream || chance.one_in(4),
            InstructionMix::Any => true,
            InstructionMix::Vector => !stream,
        };
        if !row.width.has(bits) || !wanted {
            continue;
        }
        let word = row.bits | chance.bits() as u32 & !row.mask;
        let Some(mut op) = isa::decode32(word, bits, Extensions::PROGRAM) else { continue };
        if op.code != row.code {
            continue;
        }
        let rare = !chance.one_in(if kind == InstructionMix::Any { 40 } else { 4000 });
        let writes_x = !matches!(
            row.format,
            Format::FloatLoad
                | Format::FloatFused
                | Format::FloatRounded
                | Format::FloatUnaryRounded
                | Format::FloatRegister
                | Format::IntToFloatRounded
                | Format::IntToFloat
        );
        if writes_x {
            op.rd %= FRAME;
        }
        if float {
            // Few registers, so that results are used again; most instructions round to nearest.
            (op.rs1, op.rs2, op.rs3) = (op.rs1 & 15, op.rs2 & 15, op.rs3 & 15);
            if row.format.rounded() && !chance.one_in(6) {
                op.rm = if matches!(row.format, Format::FloatToIntRounded) { 1 } else { 7 };
            }
            if !writes_x {
                op.rd &= 15;
            }
        }
        match row.format {
            Format::Bare | Format::FenceVma | Format::Illegal | Format::JumpRegister if rare => continue,
            Format::Branch | Format::Jump => continue,
            _ => operands(chance, &mut op, rare),
        }
        return op;
    }
}

/// Changes an instruction's operands so that, most of the time, it accesses memory and streams that exist.
fn operands(chance: &mut Chance, op: &mut Instruction, rare: bool) {
    let format = op.row().format;
    let base = if chance.one_in(3) { WINDOW } else { BASE };
    match format {
        Format::Load | Format::Store | Format::FloatLoad | Format::FloatStore => {
            op.imm = chance.below(256) as i32 - 128;
            if rare {
                op.rs1 = base;
            } else if chance.one_in(2) {
                (op.rs1, op.imm) = (base, 2040);
            }
            if format == Format::FloatStore {
                op.rs2 &= 15;
            }
        }
        Format::Atomic | Format::LoadReserved if rare => op.rs1 = BASE,
        Format::StreamLoad | Format::StreamStore | Format::StreamRead => {
            op.rs1 = if rare { chance.below(2) as u8 } else { chance.below(4) as u8 };
            if format == Format::StreamRead && chance.one_in(2) {
                // These registers hold small numbers most of the time.
                op.rs2 = 27 + chance.below(2) as u8;
            }
        }
        Format::Csr | Format::CsrImmediate => {
            op.imm = match chance.below(6) {
                0 => 1,
                1 => 3,
                2 if chance.one_in(4) => 2,
                _ => 0x800 + 32 * chance.below(5) as i32 + chance.below(2) as i32,
            };
            if op.imm >= 0x800 {
                op.rs1 = 0;
                op.code = Code::Csrrs;
            } else if op.imm != 1 && rare {
                (op.rs1, op.code) = (0, Code::Csrrs);
            }
        }
        _ => {}
    }
}

/// Assembles an instruction.
pub(crate) fn line(text: &str, bits: u32) -> u32 {
    isa::encode(&isa::assemble(text, bits).unwrap_or_else(|e| panic!("{text}: {e}")))
}

/// Appends consecutive loads and stores by one register near an end of memory; some of them cross it.
fn at_an_edge(chance: &mut Chance, bits: u32, kind: InstructionMix, words: &mut Vec<u32>) {
    let (base, edge) = [(WINDOW, 256), (WINDOW, -256), (BASE, 2040), (BASE, -2040)][chance.below(4)];
    let near = (edge + chance.below(48) as i32 - 24).clamp(-2048, 2047);
    words.push(line(&format!("addi x25, x{base}, {near}"), bits));
    for _ in 0..2 + chance.below(6) {
        let op = some(chance, bits, kind);
        if chance.one_in(4) {
            words.push(isa::encode(&op));
            continue;
        }
        let rows = TABLE.iter().filter(|row| {
            row.width.has(bits)
                && matches!(row.format, Format::Load | Format::Store | Format::FloatLoad | Format::FloatStore)
        });
        let rows: Vec<_> = rows.collect();
        let row = rows[chance.below(rows.len())];
        let word = row.bits | chance.bits() as u32 & !row.mask;
        let Some(mut op) = isa::decode32(word, bits, Extensions::PROGRAM) else { continue };
        (op.rs1, op.imm) = (25, chance.below(48) as i32 - 24);
        op.rd %= if matches!(row.format, Format::FloatLoad) { 16 } else { FRAME };
        words.push(isa::encode(&op));
    }
}

/// Generates a program; returns its instruction words, of which the first is the entry.
pub(crate) fn program(chance: &mut Chance, bits: u32, kind: InstructionMix) -> Vec<u32> {
    let mut words = vec![line("addi x26, x1, 0", bits), line(&format!("addi x28, x0, {}", 1 + chance.below(12)), bits)];
    if kind == InstructionMix::Vector {
        words.extend(vectors::opening(chance, bits));
    }
    let top = words.len();
    let mut functions: Vec<usize> = Vec::new();
    let length = 4 + chance.below(40);
    let mut inner: Option<usize> = None;
    while words.len() < top + length {
        let next = |over: usize| 4 * (1 + over);
        match chance.below(15) {
            0 | 1 => {
                // A branch over a few instructions, which may be any.
                let over = 1 + chance.below(3);
                let name = ["beq", "bne", "blt", "bge", "bltu", "bgeu"][chance.below(6)];
                let (a, b) = (chance.below(26), chance.below(26));
                words.push(line(&format!("{name} x{a}, x{b}, . + {}", next(over)), bits));
                for _ in 0..over {
                    words.push(isa::encode(&some(chance, bits, kind)));
                }
            }
            2 => {
                words.push(line(&format!("jal x{}, . + 8", chance.below(2) * 5), bits));
                words.push(isa::encode(&some(chance, bits, kind)));
            }
            3 if inner.is_none() => {
                words.push(line(&format!("addi x27, x0, {}", 1 + chance.below(5)), bits));
                inner = Some(words.len());
            }
            4 | 5 => {
                if let Some(begin) = inner.take() {
                    words.push(line("addi x27, x27, -1", bits));
                    let back = 4 * (words.len() - begin);
                    words.push(line(&format!("bne x27, x0, . - {back}"), bits));
                }
            }
            6 => {
                // A call, completed when the address of its function is known.
                functions.push(words.len());
                words.push(0);
            }
            7 => {
                // A jump, by a register, to the address after the next instruction.
                words.push(line("auipc x31, 0", bits));
                words.push(line(&format!("jalr x{}, 12(x31)", chance.below(2)), bits));
                words.push(isa::encode(&some(chance, bits, kind)));
            }
            8 => at_an_edge(chance, bits, kind, &mut words),
            _ => words.push(isa::encode(&some(chance, bits, kind))),
        }
    }
    words.push(line("addi x28, x28, -1", bits));
    let back = 4 * (words.len() - top);
    words.push(line(&format!("bne x28, x0, . - {back}"), bits));
    words.push(line("jalr x0, 0(x26)", bits));
    for call in functions {
        let over = 4 * (words.len() - call);
        words[call] = line(&format!("jal x1, . + {over}"), bits);
        for _ in 0..1 + chance.below(5) {
            let mut op = some(chance, bits, kind);
            if op.rd == 1 {
                op.rd = 3;
            }
            words.push(isa::encode(&op));
        }
        words.push(line("jalr x0, 0(x1)", bits));
    }
    words
}
