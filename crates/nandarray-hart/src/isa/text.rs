//! Instructions as text: a disassembler, and an assembler of single instructions that accepts the disassembler's
//! output.
//!
//! The syntax is that of the usual RISC-V assemblers without pseudo-instructions; jumps and branches give their target
//! as an offset from themselves (`. + 16`). A stream is written as its number. Instructions without a syntax are
//! written as data (`.4byte`).

use std::fmt::{self, Write};

use super::{Code, Format, Instruction, Row, TABLE, vector_text};

pub(super) const X: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7", "s2",
    "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];
pub(super) const F: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4", "fa5",
    "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8", "ft9", "ft10", "ft11",
];
const ROUNDING: [&str; 8] = ["rne", "rtz", "rdn", "rup", "rmm", "?", "?", "dyn"];
const FENCE_TSO: i32 = 0x833;

/// Numbers and names of control and status registers; names of stream registers follow a rule.
const CSRS: &[(u32, &str)] = &[
    (0x001, "fflags"),
    (0x002, "frm"),
    (0x003, "fcsr"),
    (0x008, "vstart"),
    (0x009, "vxsat"),
    (0x00a, "vxrm"),
    (0x00f, "vcsr"),
    (0xc20, "vl"),
    (0xc21, "vtype"),
    (0xc22, "vlenb"),
    (0xc00, "cycle"),
    (0xc01, "time"),
    (0xc02, "instret"),
    (0xc80, "cycleh"),
    (0xc81, "timeh"),
    (0xc82, "instreth"),
    (0x100, "sstatus"),
    (0x104, "sie"),
    (0x105, "stvec"),
    (0x106, "scounteren"),
    (0x140, "sscratch"),
    (0x141, "sepc"),
    (0x142, "scause"),
    (0x143, "stval"),
    (0x144, "sip"),
    (0x180, "satp"),
    (0xf11, "mvendorid"),
    (0xf12, "marchid"),
    (0xf13, "mimpid"),
    (0xf14, "mhartid"),
    (0x300, "mstatus"),
    (0x301, "misa"),
    (0x302, "medeleg"),
    (0x303, "mideleg"),
    (0x304, "mie"),
    (0x305, "mtvec"),
    (0x306, "mcounteren"),
    (0x310, "mstatush"),
    (0x340, "mscratch"),
    (0x341, "mepc"),
    (0x342, "mcause"),
    (0x343, "mtval"),
    (0x344, "mip"),
    (0xb00, "mcycle"),
    (0xb02, "minstret"),
    (0xb80, "mcycleh"),
    (0xb82, "minstreth"),
];
/// Names of the kinds of stream registers; each kind has 32 numbers, from 0x800 on.
const STREAM_CSRS: [&str; 5] = ["ihead", "itail", "ohead", "otail", "iend"];

struct Csr(i32);

impl fmt::Display for Csr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0 as u32;
        if let Some((_, name)) = CSRS.iter().find(|c| c.0 == number) {
            f.write_str(name)
        } else if (0x800..0x8a0).contains(&number) {
            write!(f, "{}{}", STREAM_CSRS[(number as usize - 0x800) / 32], number % 32)
        } else {
            write!(f, "{number:#x}")
        }
    }
}

struct BranchTarget(i32);

impl fmt::Display for BranchTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ". {} {}", if self.0 < 0 { '-' } else { '+' }, self.0.unsigned_abs())
    }
}

fn sets(bits: i32) -> String {
    let set: String = "iorw".chars().zip([8, 4, 2, 1]).filter(|(_, bit)| bits & bit != 0).map(|(c, _)| c).collect();
    if set.is_empty() { "0".into() } else { set }
}

/// Returns the rounding mode of an instruction that is written without one: the mode in `frm`, but "to nearest" for
/// conversions that never round, as in other assemblers.
fn default_rounding(code: Code) -> u8 {
    if matches!(code, Code::FcvtDS | Code::FcvtDW | Code::FcvtDWu) { 0 } else { 7 }
}

/// Formats an instruction as text, such as `addi a0, a0, -1`.
pub fn disassemble(op: &Instruction) -> String {
    let row = op.row();
    let x = |number: u8| X[number as usize & 31];
    let f = |number: u8| F[number as usize & 31];
    let (rd, rs1, rs2, imm) = (op.rd, op.rs1, op.rs2, op.imm);
    let mut text = row.name.to_owned();
    if matches!(row.format, Format::LoadReserved | Format::Atomic) {
        text.push_str(["", ".rl", ".aq", ".aqrl"][imm as usize & 3]);
    }
    let operands = match row.format {
        Format::Register => format!("{}, {}, {}", x(rd), x(rs1), x(rs2)),
        Format::Immediate | Format::Shift | Format::ShiftWord => format!("{}, {}, {imm}", x(rd), x(rs1)),
        Format::Unary => format!("{}, {}", x(rd), x(rs1)),
        Format::Load | Format::JumpRegister => format!("{}, {imm}({})", x(rd), x(rs1)),
        Format::Store => format!("{}, {imm}({})", x(rs2), x(rs1)),
        Format::Branch => format!("{}, {}, {}", x(rs1), x(rs2), BranchTarget(imm)),
        Format::Jump => format!("{}, {}", x(rd), BranchTarget(imm)),
        Format::Upper => format!("{}, {:#x}", x(rd), imm as u32 >> 12),
        Format::Fence if imm == FENCE_TSO => return "fence.tso".into(),
        Format::Fence if imm >> 8 == 0 => format!("{}, {}", sets(imm >> 4), sets(imm)),
        Format::Fence => return format!(".4byte {:#010x}", super::encode(op)),
        Format::FenceVma => format!("{}, {}", x(rs1), x(rs2)),
        Format::Bare => return text,
        Format::Csr => format!("{}, {}, {}", x(rd), Csr(imm), x(rs1)),
        Format::CsrImmediate => format!("{}, {}, {rs1}", x(rd), Csr(imm)),
        Format::LoadReserved => format!("{}, ({})", x(rd), x(rs1)),
        Format::Atomic => format!("{}, {}, ({})", x(rd), x(rs2), x(rs1)),
        Format::FloatLoad => format!("{}, {imm}({})", f(rd), x(rs1)),
        Format::FloatStore => format!("{}, {imm}({})", f(rs2), x(rs1)),
        Format::FloatFused => format!("{}, {}, {}, {}", f(rd), f(rs1), f(rs2), f(op.rs3)),
        Format::FloatRounded | Format::FloatRegister => format!("{}, {}, {}", f(rd), f(rs1), f(rs2)),
        Format::FloatUnaryRounded => format!("{}, {}", f(rd), f(rs1)),
        Format::FloatCompare => format!("{}, {}, {}", x(rd), f(rs1), f(rs2)),
        Format::FloatToIntRounded | Format::FloatToInt => format!("{}, {}", x(rd), f(rs1)),
        Format::IntToFloatRounded | Format::IntToFloat => format!("{}, {}", f(rd), x(rs1)),
        Format::StreamLoad => format!("{}, {rs1}", x(rd)),
        Format::StreamStore => format!("{}, {rs1}", x(rs2)),
        Format::StreamRead => format!("{}, {rs1}, {}", x(rd), x(rs2)),
        format if format.vector() => return vector_text::disassemble(op),
        Format::Illegal if op.len == 2 => return format!(".2byte {:#06x}", imm as u16),
        _ => return format!(".4byte {:#010x}", imm as u32),
    };
    let _ = write!(text, " {operands}");
    if row.format.rounded() && op.rm != default_rounding(op.code) {
        let _ = write!(text, ", {}", ROUNDING[op.rm as usize & 7]);
    }
    text
}

/// The reason why a line of text is not an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssembleError {
    /// No instruction has this name on such a hart.
    Mnemonic(String),
    /// The operand is of the wrong kind, or out of range.
    Operand(String),
    /// The line has this number of operands, and the instruction takes another number.
    Count(usize),
}

impl fmt::Display for AssembleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mnemonic(name) => write!(f, "no instruction {name:?}"),
            Self::Operand(text) => write!(f, "{text:?} is not an operand that fits here"),
            Self::Count(count) => write!(f, "{count} operands are not what this instruction takes"),
        }
    }
}

impl std::error::Error for AssembleError {}

pub(super) type Parsed<T> = Result<T, AssembleError>;

pub(super) fn wrong<T>(text: &str) -> Parsed<T> {
    Err(AssembleError::Operand(text.to_owned()))
}

pub(super) fn register(names: &[&str; 32], letter: char, text: &str) -> Parsed<u8> {
    let digits = text.strip_prefix(letter).filter(|n| *n == "0" || n.starts_with(|c: char| ('1'..='9').contains(&c)));
    let number = digits.and_then(|n| n.parse().ok()).filter(|n: &u8| *n < 32);
    let named = names.iter().position(|name| *name == text).map(|at| at as u8);
    named.or(number).or((text == "fp" && letter == 'x').then_some(8)).map_or_else(|| wrong(text), Ok)
}

fn number(text: &str) -> Parsed<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest.trim()));
    if digits.starts_with(['+', '-']) {
        return wrong(text);
    }
    let value = match digits.strip_prefix("0x") {
        Some(hex) if !hex.starts_with(['+', '-']) => i64::from_str_radix(hex, 16),
        _ => digits.parse(),
    };
    value.map_or_else(|_| wrong(text), |v| Ok(if negative { -v } else { v }))
}

pub(super) fn within(text: &str, low: i64, high: i64) -> Parsed<i32> {
    let value = number(text)?;
    if (low..=high).contains(&value) { Ok(value as i32) } else { wrong(text) }
}

/// Parses the bits of a word of 32 bits.
fn word(text: &str) -> Parsed<i32> {
    u32::try_from(number(text)?).map_or_else(|_| wrong(text), |bits| Ok(bits as i32))
}

/// Parses an offset from the instruction such as `. + 16`: even, and within `limit` bytes either way.
fn target(text: &str, limit: i64) -> Parsed<i32> {
    let offset = text.trim().strip_prefix('.').map(|rest| rest.replace(['+', ' '], "")).unwrap_or_default();
    let value = number(&offset).or_else(|_| wrong(text))?;
    if value % 2 == 0 && (-limit..limit).contains(&value) { Ok(value as i32) } else { wrong(text) }
}

/// Parses `imm(register)` to the register's number and the immediate, which may be missing.
pub(super) fn memory(text: &str) -> Parsed<(u8, i32)> {
    let Some((offset, base)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) else { return wrong(text) };
    let offset = if offset.trim().is_empty() { 0 } else { within(offset.trim(), -2048, 2047)? };
    Ok((register(&X, 'x', base.trim())?, offset))
}

fn csr(text: &str) -> Parsed<i32> {
    if let Some((number, _)) = CSRS.iter().find(|c| c.1 == text) {
        return Ok(*number as i32);
    }
    for (group, name) in STREAM_CSRS.iter().enumerate() {
        if let Some(stream) = text.strip_prefix(name) {
            return Ok(0x800 + 32 * group as i32 + within(stream, 0, 31)?);
        }
    }
    within(text, 0, 0xfff)
}

fn set(text: &str) -> Parsed<i32> {
    if text == "0" {
        return Ok(0);
    }
    text.chars().try_fold(0, |bits, c| match "iorw".find(c) {
        Some(at) => Ok(bits | 8 >> at),
        None => wrong(text),
    })
}

/// Finds the row of an instruction's name; also returns the bits of its suffixes `aq` and `rl`.
fn row_of(name: &str, bits: u32) -> Parsed<(&'static Row, i32)> {
    let (plain, ordering) = [(".aqrl", 3), (".aq", 2), (".rl", 1)]
        .iter()
        .find_map(|(suffix, bits)| name.strip_suffix(suffix).map(|plain| (plain, *bits)))
        .unwrap_or((name, 0));
    let row = TABLE
        .iter()
        .find(|r| r.name == plain && r.width.has(bits) && r.format != Format::Illegal)
        .ok_or_else(|| AssembleError::Mnemonic(name.to_owned()))?;
    if ordering != 0 && !matches!(row.format, Format::LoadReserved | Format::Atomic) {
        return Err(AssembleError::Mnemonic(name.to_owned()));
    }
    Ok((row, ordering))
}

/// Assembles one instruction in the syntax of [`disassemble`] for a hart of `bits` (32 or 64) bits, always as a 32-bit
/// instruction.
///
/// # Errors
/// [`AssembleError`] if the name, the number of operands or an operand is wrong.
pub fn assemble(line: &str, bits: u32) -> Parsed<Instruction> {
    let line = line.trim();
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let mut op = Instruction { code: Code::Illegal, rd: 0, rs1: 0, rs2: 0, rs3: 0, rm: 0, len: 4, imm: 0 };
    let mut operands: Vec<&str> =
        if rest.trim().is_empty() { Vec::new() } else { rest.split(',').map(str::trim).collect() };
    if let (".4byte" | ".2byte", [data]) = (name, operands.as_slice()) {
        (op.len, op.imm) = if name == ".2byte" { (2, within(data, 0, 0xffff)?) } else { (4, word(data)?) };
        return Ok(op);
    }
    if name == "fence.tso" {
        return Ok(Instruction { code: Code::Fence, imm: FENCE_TSO, ..op });
    }
    let (row, ordering) = vector_text::row_of(name, &mut op).map_or_else(|| row_of(name, bits), |row| Ok((row, 0)))?;
    op.code = row.code;
    if row.format.vector() {
        let operands_there = vector_text::operands(&mut op, &operands)?;
        return operands_there.map(|()| op).ok_or(AssembleError::Count(operands.len()));
    }
    if row.format.rounded() {
        op.rm = default_rounding(op.code);
        if let Some(mode) = operands.last().and_then(|last| ROUNDING.iter().position(|r| r == last)) {
            op.rm = mode as u8;
            operands.pop();
        }
    }
    let x = |text: &str| register(&X, 'x', text);
    let f = |text: &str| register(&F, 'f', text);
    let shift = if matches!(row.format, Format::ShiftWord) || bits == 32 { 31 } else { 63 };
    match (row.format, operands.as_slice()) {
        (Format::Register, &[d, a, b]) => (op.rd, op.rs1, op.rs2) = (x(d)?, x(a)?, x(b)?),
        (Format::Immediate, &[d, a, i]) => (op.rd, op.rs1, op.imm) = (x(d)?, x(a)?, within(i, -2048, 2047)?),
        (Format::Shift | Format::ShiftWord, &[d, a, i]) => {
            (op.rd, op.rs1, op.imm) = (x(d)?, x(a)?, within(i, 0, shift)?);
        }
        (Format::Unary, &[d, a]) => (op.rd, op.rs1) = (x(d)?, x(a)?),
        (Format::Load | Format::JumpRegister, &[d, m]) => (op.rd, (op.rs1, op.imm)) = (x(d)?, memory(m)?),
        (Format::Store, &[s, m]) => (op.rs2, (op.rs1, op.imm)) = (x(s)?, memory(m)?),
        (Format::Branch, &[a, b, t]) => (op.rs1, op.rs2, op.imm) = (x(a)?, x(b)?, target(t, 1 << 12)?),
        (Format::Jump, &[d, t]) => (op.rd, op.imm) = (x(d)?, target(t, 1 << 20)?),
        (Format::Upper, &[d, i]) => (op.rd, op.imm) = (x(d)?, within(i, 0, 0xfffff)? << 12),
        (Format::Fence, &[before, after]) => op.imm = set(before)? << 4 | set(after)?,
        (Format::FenceVma, &[a, b]) => (op.rs1, op.rs2) = (x(a)?, x(b)?),
        (Format::Bare, &[]) => {}
        (Format::Csr, &[d, c, a]) => (op.rd, op.imm, op.rs1) = (x(d)?, csr(c)?, x(a)?),
        (Format::CsrImmediate, &[d, c, i]) => (op.rd, op.imm, op.rs1) = (x(d)?, csr(c)?, within(i, 0, 31)? as u8),
        (Format::LoadReserved, &[d, m]) => (op.rd, op.rs1, op.imm) = (x(d)?, memory(m)?.0, ordering),
        (Format::Atomic, &[d, s, m]) => (op.rd, op.rs2, op.rs1, op.imm) = (x(d)?, x(s)?, memory(m)?.0, ordering),
        (Format::FloatLoad, &[d, m]) => (op.rd, (op.rs1, op.imm)) = (f(d)?, memory(m)?),
        (Format::FloatStore, &[s, m]) => (op.rs2, (op.rs1, op.imm)) = (f(s)?, memory(m)?),
        (Format::FloatFused, &[d, a, b, c]) => (op.rd, op.rs1, op.rs2, op.rs3) = (f(d)?, f(a)?, f(b)?, f(c)?),
        (Format::FloatRounded | Format::FloatRegister, &[d, a, b]) => {
            (op.rd, op.rs1, op.rs2) = (f(d)?, f(a)?, f(b)?);
        }
        (Format::FloatUnaryRounded, &[d, a]) => (op.rd, op.rs1) = (f(d)?, f(a)?),
        (Format::FloatCompare, &[d, a, b]) => (op.rd, op.rs1, op.rs2) = (x(d)?, f(a)?, f(b)?),
        (Format::FloatToIntRounded | Format::FloatToInt, &[d, a]) => (op.rd, op.rs1) = (x(d)?, f(a)?),
        (Format::IntToFloatRounded | Format::IntToFloat, &[d, a]) => (op.rd, op.rs1) = (f(d)?, x(a)?),
        (Format::StreamLoad, &[d, s]) => (op.rd, op.rs1) = (x(d)?, within(s, 0, 31)? as u8),
        (Format::StreamStore, &[v, s]) => (op.rs2, op.rs1) = (x(v)?, within(s, 0, 31)? as u8),
        (Format::StreamRead, &[d, s, b]) => (op.rd, op.rs1, op.rs2) = (x(d)?, within(s, 0, 31)? as u8, x(b)?),
        _ => return Err(AssembleError::Count(operands.len())),
    }
    Ok(op)
}
