//! Conversion between bits and [`Instruction`], by the rows of the table.
//!
//! Decoding searches the rows of one major opcode; it happens once per instruction, when its block is built.

use std::sync::LazyLock;

use super::{Code, Extension, Extensions, Format, Instruction, Row, TABLE, decode16};

/// The rows of each major opcode (bits 6:2).
static BY_OPCODE: LazyLock<[Vec<&'static Row>; 32]> = LazyLock::new(|| {
    let mut rows: [Vec<&Row>; 32] = Default::default();
    for row in TABLE.iter().filter(|row| row.format != Format::Illegal) {
        assert!(row.mask & 0x7f == 0x7f && row.bits & !row.mask == 0, "{}: bits outside of its mask", row.name);
        rows[(row.bits >> 2 & 31) as usize].push(row);
    }
    rows
});

/// Returns the length in bytes of the instruction that begins with these 16 bits: 2 or 4. Longer instructions are
/// illegal, and count as 4 bytes.
pub fn length(first: u16) -> u8 {
    if first & 3 == 3 { 4 } else { 2 }
}

/// Decodes the instruction in the low bits of `word` for harts of `bits` (32 or 64) bits with `extensions`.
///
/// Bits that are not an instruction of such a hart become [`Code::Illegal`].
pub fn decode(word: u32, bits: u32, extensions: Extensions) -> Instruction {
    let op = if length(word as u16) == 4 {
        decode32(word, bits, extensions)
    } else {
        extensions.has(Extension::C).then(|| decode16(word as u16, bits, extensions)).flatten()
    };
    op.unwrap_or_else(|| {
        let len = length(word as u16);
        let imm = if len == 2 { word & 0xffff } else { word };
        Instruction { code: Code::Illegal, rd: 0, rs1: 0, rs2: 0, rs3: 0, rm: 0, len, imm: imm as i32 }
    })
}

/// Decodes a 32-bit instruction; `None` if such a hart has no such instruction.
pub fn decode32(word: u32, bits: u32, extensions: Extensions) -> Option<Instruction> {
    let row = BY_OPCODE[(word >> 2 & 31) as usize]
        .iter()
        .find(|row| word & row.mask == row.bits && row.width.has(bits) && extensions.has(row.extension))?;
    let signed = word as i32;
    let field = |low: u32, width: u32| (word >> low & ((1 << width) - 1)) as u8;
    let (rd, rs1, rs2) = (field(7, 5), field(15, 5), field(20, 5));
    let mut op = Instruction { code: row.code, rd: 0, rs1: 0, rs2: 0, rs3: 0, rm: 0, len: 4, imm: 0 };
    match row.format {
        Format::Register | Format::FloatRegister | Format::FloatCompare | Format::StreamRead => {
            (op.rd, op.rs1, op.rs2) = (rd, rs1, rs2);
        }
        Format::Immediate | Format::Load | Format::JumpRegister | Format::FloatLoad => {
            (op.rd, op.rs1, op.imm) = (rd, rs1, signed >> 20);
        }
        Format::Shift => {
            (op.rd, op.rs1, op.imm) = (rd, rs1, i32::from(field(20, 6)));
            if bits == 32 && op.imm >= 32 {
                return None;
            }
        }
        Format::ShiftWord => (op.rd, op.rs1, op.imm) = (rd, rs1, i32::from(rs2)),
        Format::Unary | Format::FloatToInt | Format::IntToFloat | Format::StreamLoad => (op.rd, op.rs1) = (rd, rs1),
        Format::Store | Format::FloatStore => {
            (op.rs1, op.rs2, op.imm) = (rs1, rs2, signed >> 25 << 5 | i32::from(rd));
        }
        Format::Branch => {
            let low = (word >> 7 & 0x1e) | (word >> 20 & 0x7e0) | (word << 4 & 0x800);
            (op.rs1, op.rs2, op.imm) = (rs1, rs2, signed >> 31 << 12 | low as i32);
        }
        Format::Jump => {
            let low = (word >> 20 & 0x7fe) | (word >> 9 & 0x800) | (word & 0xff000);
            (op.rd, op.imm) = (rd, signed >> 31 << 20 | low as i32);
        }
        Format::Upper => (op.rd, op.imm) = (rd, signed & !0xfff),
        Format::Fence => op.imm = (word >> 20) as i32,
        Format::FenceVma => (op.rs1, op.rs2) = (rs1, rs2),
        Format::Bare | Format::Illegal => {}
        Format::Csr | Format::CsrImmediate => (op.rd, op.rs1, op.imm) = (rd, rs1, (word >> 20) as i32),
        Format::LoadReserved => (op.rd, op.rs1, op.imm) = (rd, rs1, i32::from(field(25, 2))),
        Format::Atomic => (op.rd, op.rs1, op.rs2, op.imm) = (rd, rs1, rs2, i32::from(field(25, 2))),
        Format::FloatFused => (op.rd, op.rs1, op.rs2, op.rs3) = (rd, rs1, rs2, field(27, 5)),
        Format::FloatRounded => (op.rd, op.rs1, op.rs2) = (rd, rs1, rs2),
        Format::FloatUnaryRounded | Format::FloatToIntRounded | Format::IntToFloatRounded => {
            (op.rd, op.rs1) = (rd, rs1);
        }
        Format::StreamStore => (op.rs1, op.rs2) = (rs1, rs2),
        _ => vector_operands(row, word, &mut op),
    }
    if row.format.rounded() {
        op.rm = field(12, 3);
        if matches!(op.rm, 5 | 6) {
            return None;
        }
    }
    debug_assert!([op.rd, op.rs1, op.rs2, op.rs3].iter().all(|register| *register < 32), "{op:?}");
    Some(op)
}

/// Reads the operands of a vector instruction from `word` into `op`.
fn vector_operands(row: &Row, word: u32, op: &mut Instruction) {
    let field = |low: u32, width: u32| (word >> low & ((1 << width) - 1)) as u8;
    let (rd, rs1, rs2) = (field(7, 5), field(15, 5), field(20, 5));
    // Fields that distinguish rows are not operands.
    let (first, second) = (rs1 & !(row.mask >> 15) as u8, rs2 & !(row.mask >> 20) as u8);
    op.rd = rd & !(row.mask >> 7) as u8;
    match row.format {
        Format::VectorSet => (op.rs1, op.imm) = (rs1, (word >> 20 & 0x7ff) as i32),
        Format::VectorSetImmediate => (op.rs1, op.imm) = (rs1, (word >> 20 & 0x3ff) as i32),
        Format::VectorVi | Format::VectorMoveI => (op.rs2, op.imm) = (second, i32::from(rs1) << 27 >> 27),
        Format::VectorVu => (op.rs2, op.imm) = (rs2, i32::from(rs1)),
        _ => (op.rs1, op.rs2) = (first, second),
    }
    let sets = matches!(row.format, Format::VectorSet | Format::VectorSetImmediate);
    if !sets && row.mask & 1 << 25 == 0 {
        op.rm = field(25, 1);
    }
    if row.format == Format::VarveOpen {
        op.rs3 = field(27, 5);
    }
    if row.format.vector_memory() && row.mask >> 29 == 0 {
        op.rs3 = field(29, 3);
    }
}

/// Encodes an instruction in 32 bits, even if it was decoded from 16. Operands that its format does not have are
/// ignored.
pub fn encode(op: &Instruction) -> u32 {
    let row = op.row();
    debug_assert!([op.rd, op.rs1, op.rs2, op.rs3].iter().all(|register| *register < 32), "{op:?}");
    let imm = op.imm as u32;
    let (rd, rs1, rs2) = (u32::from(op.rd) << 7, u32::from(op.rs1) << 15, u32::from(op.rs2) << 20);
    let operands = match row.format {
        Format::Register | Format::FloatRegister | Format::FloatCompare | Format::StreamRead | Format::FloatRounded => {
            rd | rs1 | rs2
        }
        Format::Immediate
        | Format::Load
        | Format::JumpRegister
        | Format::FloatLoad
        | Format::Csr
        | Format::CsrImmediate => rd | rs1 | imm << 20,
        Format::Shift => rd | rs1 | (imm & 63) << 20,
        Format::ShiftWord => rd | rs1 | (imm & 31) << 20,
        Format::Unary
        | Format::FloatToInt
        | Format::IntToFloat
        | Format::StreamLoad
        | Format::FloatUnaryRounded
        | Format::FloatToIntRounded
        | Format::IntToFloatRounded => rd | rs1,
        Format::Store | Format::FloatStore => rs1 | rs2 | (imm & 31) << 7 | imm >> 5 << 25,
        Format::Branch => {
            rs1 | rs2 | (imm & 0x1e) << 7 | (imm & 0x7e0) << 20 | (imm & 0x800) >> 4 | (imm >> 12 & 1) << 31
        }
        Format::Jump => rd | (imm & 0x7fe) << 20 | (imm & 0x800) << 9 | (imm & 0xff000) | (imm >> 20 & 1) << 31,
        Format::Upper => rd | imm & !0xfff,
        Format::Fence => imm << 20,
        Format::FenceVma | Format::StreamStore => rs1 | rs2,
        Format::Bare => 0,
        Format::Illegal => return imm,
        Format::LoadReserved => rd | rs1 | (imm & 3) << 25,
        Format::Atomic => rd | rs1 | rs2 | (imm & 3) << 25,
        Format::FloatFused => rd | rs1 | rs2 | u32::from(op.rs3) << 27,
        Format::VectorSet => rd | rs1 | (imm & 0x7ff) << 20,
        Format::VectorSetImmediate => rd | rs1 | (imm & 0x3ff) << 20,
        Format::VectorVi | Format::VectorVu | Format::VectorMoveI => rd | rs2 | (imm & 31) << 15,
        _ => rd | rs1 | rs2,
    };
    let third = if row.format == Format::VarveOpen { 27 } else { 29 };
    let vector = if row.format.vector() { u32::from(op.rm) << 25 | u32::from(op.rs3) << third } else { 0 };
    let rm = if row.format.rounded() { u32::from(op.rm) << 12 } else { 0 };
    row.bits | operands & !row.mask | rm | vector & !row.mask
}
