//! The 16-bit instructions, each of which abbreviates one 32-bit instruction.
//!
//! Each row has name, format, match and mask, as in `table.rs`; the format also determines how the immediate's bits are
//! scattered. The first matching row counts, so reserved and special cases come before the general one.

use super::{Code, Extension, Extensions, Instruction, Width};

/// Operands of a 16-bit instruction; `P` at the end of a name means short register fields (x8 to x15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the specification's formats and the instructions that use them")]
pub enum CompressedFormat {
    Addi4spn,
    LoadW,
    LoadD,
    StoreW,
    StoreD,
    Addi,
    Li,
    Addi16sp,
    Lui,
    Shift,
    ShiftP,
    AndiP,
    RegisterP,
    Jump,
    Link,
    Branch,
    LoadSpW,
    LoadSpD,
    StoreSpW,
    StoreSpD,
    JumpRegister,
    LinkRegister,
    Move,
    Add,
    Bare,
    Reserved,
}

/// A row of the table of 16-bit instructions.
#[derive(Debug)]
pub struct CompressedRow {
    /// Mnemonic.
    pub name: &'static str,
    /// The 32-bit instruction that this instruction abbreviates.
    pub code: Code,
    /// The extension that is needed besides C.
    pub extension: Extension,
    /// The register widths for which the instruction exists.
    pub width: Width,
    /// The instruction's operands and their places in the encoding.
    pub format: CompressedFormat,
    /// Mask of the bits that distinguish the instruction from others.
    pub mask: u16,
    /// The value of the bits in `mask`.
    pub bits: u16,
}

macro_rules! rows {
    ($($name:literal $code:ident $ext:ident $width:ident $format:ident $mask:literal $bits:literal;)*) => {
        /// Every 16-bit instruction; if several rows match, the first counts.
        pub static COMPRESSED: &[CompressedRow] = &[$(
            CompressedRow {
                name: $name,
                code: Code::$code,
                extension: Extension::$ext,
                width: Width::$width,
                format: CompressedFormat::$format,
                mask: $mask,
                bits: $bits,
            },
        )*];
    };
}

rows! {
    "c.reserved" Illegal I Both Reserved 0xffe3 0x0000;
    "c.addi4spn" Addi I Both Addi4spn 0xe003 0x0000;
    "c.fld" Fld D Both LoadD 0xe003 0x2000;
    "c.lw" Lw I Both LoadW 0xe003 0x4000;
    "c.flw" Flw F Rv32 LoadW 0xe003 0x6000;
    "c.ld" Ld I Rv64 LoadD 0xe003 0x6000;
    "c.fsd" Fsd D Both StoreD 0xe003 0xa000;
    "c.sw" Sw I Both StoreW 0xe003 0xc000;
    "c.fsw" Fsw F Rv32 StoreW 0xe003 0xe000;
    "c.sd" Sd I Rv64 StoreD 0xe003 0xe000;
    "c.addi" Addi I Both Addi 0xe003 0x0001;
    "c.jal" Jal I Rv32 Link 0xe003 0x2001;
    "c.reserved" Illegal I Rv64 Reserved 0xef83 0x2001;
    "c.addiw" Addiw I Rv64 Addi 0xe003 0x2001;
    "c.li" Addi I Both Li 0xe003 0x4001;
    "c.reserved" Illegal I Both Reserved 0xf07f 0x6001;
    "c.addi16sp" Addi I Both Addi16sp 0xef83 0x6101;
    "c.lui" Lui I Both Lui 0xe003 0x6001;
    "c.srli" Srli I Both ShiftP 0xec03 0x8001;
    "c.srai" Srai I Both ShiftP 0xec03 0x8401;
    "c.andi" Andi I Both AndiP 0xec03 0x8801;
    "c.sub" Sub I Both RegisterP 0xfc63 0x8c01;
    "c.xor" Xor I Both RegisterP 0xfc63 0x8c21;
    "c.or" Or I Both RegisterP 0xfc63 0x8c41;
    "c.and" And I Both RegisterP 0xfc63 0x8c61;
    "c.subw" Subw I Rv64 RegisterP 0xfc63 0x9c01;
    "c.addw" Addw I Rv64 RegisterP 0xfc63 0x9c21;
    "c.j" Jal I Both Jump 0xe003 0xa001;
    "c.beqz" Beq I Both Branch 0xe003 0xc001;
    "c.bnez" Bne I Both Branch 0xe003 0xe001;
    "c.slli" Slli I Both Shift 0xe003 0x0002;
    "c.fldsp" Fld D Both LoadSpD 0xe003 0x2002;
    "c.reserved" Illegal I Both Reserved 0xef83 0x4002;
    "c.lwsp" Lw I Both LoadSpW 0xe003 0x4002;
    "c.flwsp" Flw F Rv32 LoadSpW 0xe003 0x6002;
    "c.reserved" Illegal I Rv64 Reserved 0xef83 0x6002;
    "c.ldsp" Ld I Rv64 LoadSpD 0xe003 0x6002;
    "c.reserved" Illegal I Both Reserved 0xffff 0x8002;
    "c.jr" Jalr I Both JumpRegister 0xf07f 0x8002;
    "c.mv" Add I Both Move 0xf003 0x8002;
    "c.ebreak" Ebreak I Both Bare 0xffff 0x9002;
    "c.jalr" Jalr I Both LinkRegister 0xf07f 0x9002;
    "c.add" Add I Both Add 0xf003 0x9002;
    "c.fsdsp" Fsd D Both StoreSpD 0xe003 0xa002;
    "c.swsp" Sw I Both StoreSpW 0xe003 0xc002;
    "c.fswsp" Fsw F Rv32 StoreSpW 0xe003 0xe002;
    "c.sdsp" Sd I Rv64 StoreSpD 0xe003 0xe002;
}

/// Decodes a 16-bit instruction to the 32-bit instruction that it abbreviates; `None` if there is no such instruction.
pub fn decode16(half: u16, bits: u32, extensions: Extensions) -> Option<Instruction> {
    use CompressedFormat as F;
    let row = COMPRESSED
        .iter()
        .find(|row| half & row.mask == row.bits && row.width.has(bits) && extensions.has(row.extension))?;
    let word = u32::from(half);
    // Takes the bits `high..=low` of the instruction and shifts them to `to`.
    let at = |high: u32, low: u32, to: u32| (word >> low & ((1 << (high - low + 1)) - 1)) << to;
    let (full1, full2) = (at(11, 7, 0) as u8, at(6, 2, 0) as u8);
    let (short1, short2) = (at(9, 7, 0) as u8 + 8, at(4, 2, 0) as u8 + 8);
    let six = (at(12, 12, 5) | at(6, 2, 0)) as i32;
    let six_signed = six << 26 >> 26;
    let word_p = (at(12, 10, 3) | at(6, 6, 2) | at(5, 5, 6)) as i32;
    let double_p = (at(12, 10, 3) | at(6, 5, 6)) as i32;
    let jump = || {
        let scattered = at(12, 12, 11) | at(11, 11, 4) | at(10, 9, 8) | at(8, 8, 10) | at(7, 7, 6) | at(6, 6, 7);
        ((scattered | at(5, 3, 1) | at(2, 2, 5)) << 20) as i32 >> 20
    };
    let (rd, rs1, rs2, imm) = match row.format {
        F::Addi4spn => (short2, 2, 0, (at(12, 11, 4) | at(10, 7, 6) | at(6, 6, 2) | at(5, 5, 3)) as i32),
        F::LoadW => (short2, short1, 0, word_p),
        F::LoadD => (short2, short1, 0, double_p),
        F::StoreW => (0, short1, short2, word_p),
        F::StoreD => (0, short1, short2, double_p),
        F::Addi => (full1, full1, 0, six_signed),
        F::Li => (full1, 0, 0, six_signed),
        F::Addi16sp => {
            let scattered = at(12, 12, 9) | at(6, 6, 4) | at(5, 5, 6) | at(4, 3, 7) | at(2, 2, 5);
            (2, 2, 0, (scattered << 22) as i32 >> 22)
        }
        F::Lui => (full1, 0, 0, six_signed << 12),
        F::Shift if bits == 32 && six >= 32 => return None,
        F::ShiftP if bits == 32 && six >= 32 => return None,
        F::Shift => (full1, full1, 0, six),
        F::ShiftP => (short1, short1, 0, six),
        F::AndiP => (short1, short1, 0, six_signed),
        F::RegisterP => (short1, short1, short2, 0),
        F::Jump => (0, 0, 0, jump()),
        F::Link => (1, 0, 0, jump()),
        F::Branch => {
            let scattered = at(12, 12, 8) | at(11, 10, 3) | at(6, 5, 6) | at(4, 3, 1) | at(2, 2, 5);
            (0, short1, 0, (scattered << 23) as i32 >> 23)
        }
        F::LoadSpW => (full1, 2, 0, (at(12, 12, 5) | at(6, 4, 2) | at(3, 2, 6)) as i32),
        F::LoadSpD => (full1, 2, 0, (at(12, 12, 5) | at(6, 5, 3) | at(4, 2, 6)) as i32),
        F::StoreSpW => (0, 2, full2, (at(12, 9, 2) | at(8, 7, 6)) as i32),
        F::StoreSpD => (0, 2, full2, (at(12, 10, 3) | at(9, 7, 6)) as i32),
        F::JumpRegister => (0, full1, 0, 0),
        F::LinkRegister => (1, full1, 0, 0),
        F::Move => (full1, 0, full2, 0),
        F::Add => (full1, full1, full2, 0),
        F::Bare => (0, 0, 0, 0),
        F::Reserved => return None,
    };
    debug_assert!([rd, rs1, rs2].iter().all(|register| *register < 32), "{} of {half:#06x}", row.name);
    Some(Instruction { code: row.code, rd, rs1, rs2, rs3: 0, rm: 0, len: 2, imm })
}
