//! The instruction set: the meaning of 32-bit and 16-bit encodings, and instructions as text.
//!
//! [`table`](self) has one row for each instruction. `decode` converts bits to an [`Instruction`] and back,
//! `compressed` does so for the 16-bit forms, `text` disassembles and assembles. Nothing here executes instructions.

mod arch;
mod class;
mod compressed;
mod decode;
mod table;
mod text;
mod vector_rows;
mod vector_text;

pub use class::Class;
pub use compressed::{COMPRESSED, CompressedFormat, CompressedRow, decode16};
pub use decode::{decode, decode32, encode, length};
pub use table::{Code, TABLE};
pub use text::{AssembleError, assemble, disassemble};

/// One decoded instruction. Register fields are numbers; the [`Format`] determines which register file each refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// The instruction's operation.
    pub code: Code,
    /// Destination register, or 0.
    pub rd: u8,
    /// First source register, the immediate of a CSR instruction, or the number of a stream.
    pub rs1: u8,
    /// Second source register.
    pub rs2: u8,
    /// Third source register of a fused multiply-add; for a load or store of vector segments, the number of fields less
    /// one.
    pub rs3: u8,
    /// Rounding mode of a floating-point instruction: 0 to 4, or 7 for the mode in `frm`. For a vector instruction, 0
    /// if `v0` masks it, otherwise 1.
    pub rm: u8,
    /// Length in bytes: 2 or 4.
    pub len: u8,
    /// Sign-extended immediate, shift amount, CSR number, the bits `aq` and `rl`, or the bits of an illegal
    /// instruction.
    pub imm: i32,
}

impl Instruction {
    /// Returns the row of the instruction table for this operation.
    pub fn row(&self) -> &'static Row {
        debug_assert_eq!(TABLE[self.code as usize].code, self.code);
        &TABLE[self.code as usize]
    }

    /// Whether the instruction ends a block: it may jump, or changes what decoding depends on.
    pub fn ends_block(&self) -> bool {
        use Code::*;
        match self.row().format {
            Format::Branch | Format::Jump | Format::JumpRegister | Format::FenceVma | Format::Illegal => true,
            Format::Bare => matches!(self.code, Ecall | Ebreak | Mret | Sret | Wfi | FenceI),
            Format::Csr | Format::CsrImmediate => !self.reads_stream_register(),
            _ => false,
        }
    }

    /// Whether the instruction reads a stream register and writes none: it may wait, but it changes no control
    /// register.
    pub fn reads_stream_register(&self) -> bool {
        matches!(self.code, Code::Csrrs | Code::Csrrc | Code::Csrrsi | Code::Csrrci)
            && self.rs1 == 0
            && (0x800..0x8a0).contains(&self.imm)
    }
}

/// A row of the instruction table: the encoding of one operation.
#[derive(Debug)]
pub struct Row {
    /// The operation.
    pub code: Code,
    /// Mnemonic.
    pub name: &'static str,
    /// The extension that the instruction belongs to.
    pub extension: Extension,
    /// The register widths for which the instruction exists.
    pub width: Width,
    /// The instruction's operands and their places in the encoding.
    pub format: Format,
    /// Mask of the bits that distinguish the instruction from others.
    pub mask: u32,
    /// The value of the bits in `mask`.
    pub bits: u32,
}

/// The register widths for which an instruction exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// RV32 only.
    Rv32,
    /// RV64 only.
    Rv64,
    /// Both RV32 and RV64.
    Both,
}

impl Width {
    /// Whether harts with registers of `bits` bits have the instruction.
    pub fn has(self, bits: u32) -> bool {
        match self {
            Self::Both => true,
            Self::Rv32 => bits == 32,
            Self::Rv64 => bits == 64,
        }
    }
}

/// An extension of the instruction set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Extension {
    /// Base integer instructions; part of every set.
    I,
    /// Multiplication and division.
    M,
    /// Atomic memory operations.
    A,
    /// Single-precision floating point.
    F,
    /// Double-precision floating point.
    D,
    /// 16-bit instructions.
    C,
    /// Control and status registers.
    Zicsr,
    /// Instruction-fetch fence: `fence.i`.
    Zifencei,
    /// Address generation: shift and add.
    Zba,
    /// Basic bit manipulation.
    Zbb,
    /// Operations on single bits.
    Zbs,
    /// Stream instructions (Table 7.2 of the ASSASIN dissertation).
    Stream,
    /// Machine and supervisor mode, with their instructions and registers.
    Privileged,
    /// Vectors of integers of up to 32 bits.
    Zve32x,
    /// Vectors of single-precision numbers.
    Zve32f,
    /// Vectors of integers of up to 64 bits.
    Zve64x,
    /// Vectors of double-precision numbers.
    Zve64d,
    /// All instructions of the vector extension V 1.0.
    V,
    /// Vectors whose elements have a width each, and streams of such values (Table 8.1 of the dissertation).
    Varve,
}

impl Extension {
    /// All extensions, in the order of their declaration.
    pub const ALL: [Self; 19] = [
        Self::I,
        Self::M,
        Self::A,
        Self::F,
        Self::D,
        Self::C,
        Self::Zicsr,
        Self::Zifencei,
        Self::Zba,
        Self::Zbb,
        Self::Zbs,
        Self::Stream,
        Self::Privileged,
        Self::Zve32x,
        Self::Zve32f,
        Self::Zve64x,
        Self::Zve64d,
        Self::V,
        Self::Varve,
    ];
}

/// A set of extensions; with vectors, also the length of a vector register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extensions(u32);

impl Extensions {
    /// Position of the bits that hold the base-two logarithm of the length of a vector register.
    const VLEN_AT: u32 = 24;
    /// The extensions of programs: all but [`Extension::Privileged`] and the vector extensions.
    pub const PROGRAM: Self = Self((1 << Extension::Privileged as u32) - 1);
    /// The extensions of programs, and also all vector extensions.
    pub const PROGRAM_VECTOR: Self = Self(Self::ALL.0 & !(1 << Extension::Privileged as u32));
    /// The base instructions and all vector extensions.
    pub const VECTOR: Self = Self(Self::ALL.0 & !((1 << Extension::Zve32x as u32) - 1) | 1);
    /// All extensions that this hart supports.
    pub const ALL: Self = Self((1 << Extension::ALL.len()) - 1);

    /// Whether the set contains `extension`.
    pub const fn has(self, extension: Extension) -> bool {
        self.0 >> extension as u32 & 1 != 0
    }

    /// Returns this set without `extension`; [`Extension::I`] is never removed.
    #[must_use]
    pub const fn without(self, extension: Extension) -> Self {
        Self(self.0 & !(1 << extension as u32) | 1)
    }

    /// Returns this set with vector registers of `bits` bits, a power of two; without vectors this has no effect.
    #[must_use]
    pub const fn with_vlen(self, bits: u32) -> Self {
        Self(self.0 & ((1 << Self::VLEN_AT) - 1) | bits.trailing_zeros() << Self::VLEN_AT)
    }

    /// Returns the number of bits of a vector register, if the set has vectors: 128 unless set otherwise.
    pub const fn vlen(self) -> u32 {
        if self.0 >> Self::VLEN_AT == 0 { 128 } else { 1 << (self.0 >> Self::VLEN_AT) }
    }

    /// Returns this set with the vector extensions of `other` and the length of its vector registers.
    #[must_use]
    pub const fn with_vectors_of(self, other: Self) -> Self {
        Self(self.0 | other.0 & (Self::VECTOR.0 & !1 | !((1 << Self::VLEN_AT) - 1)))
    }

    /// Returns this set with `extension`.
    #[must_use]
    pub const fn with(self, extension: Extension) -> Self {
        Self(self.0 | 1 << extension as u32)
    }
}

/// The operands of an instruction, and with them their places in the encoding.
///
/// `x` is an integer register, `f` a floating-point register, `v` a vector register; `rd`, `rs1`, `rs2`, `rs3` and
/// `imm` are fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Operands `x[rd], x[rs1], x[rs2]`.
    Register,
    /// Operands `x[rd], x[rs1], imm`.
    Immediate,
    /// Operands `x[rd], x[rs1], amount`; the amount is below the register width.
    Shift,
    /// Operands `x[rd], x[rs1], amount`; the amount is below 32.
    ShiftWord,
    /// Operands `x[rd], x[rs1]`.
    Unary,
    /// Operands `x[rd], imm(x[rs1])`.
    Load,
    /// Operands `x[rs2], imm(x[rs1])`.
    Store,
    /// Operands `x[rs1], x[rs2], offset`.
    Branch,
    /// Operands `x[rd], offset`.
    Jump,
    /// Operands `x[rd], imm(x[rs1])`.
    JumpRegister,
    /// Operands `x[rd], imm[31:12]`.
    Upper,
    /// The sets of predecessors and successors, in `imm`.
    Fence,
    /// Operands `x[rs1], x[rs2]`.
    FenceVma,
    /// No operands.
    Bare,
    /// Operands `x[rd], csr, x[rs1]`.
    Csr,
    /// Operands `x[rd], csr, imm`.
    CsrImmediate,
    /// Operands `x[rd], (x[rs1])`.
    LoadReserved,
    /// Operands `x[rd], x[rs2], (x[rs1])`.
    Atomic,
    /// Operands `f[rd], imm(x[rs1])`.
    FloatLoad,
    /// Operands `f[rs2], imm(x[rs1])`.
    FloatStore,
    /// Operands `f[rd], f[rs1], f[rs2], f[rs3]`; the result is rounded.
    FloatFused,
    /// Operands `f[rd], f[rs1], f[rs2]`; the result is rounded.
    FloatRounded,
    /// Operands `f[rd], f[rs1]`; the result is rounded.
    FloatUnaryRounded,
    /// Operands `f[rd], f[rs1], f[rs2]`.
    FloatRegister,
    /// Operands `x[rd], f[rs1], f[rs2]`.
    FloatCompare,
    /// Operands `x[rd], f[rs1]`; the result is rounded.
    FloatToIntRounded,
    /// Operands `x[rd], f[rs1]`.
    FloatToInt,
    /// Operands `f[rd], x[rs1]`; the result is rounded.
    IntToFloatRounded,
    /// Operands `f[rd], x[rs1]`.
    IntToFloat,
    /// Operands `x[rd], stream`.
    StreamLoad,
    /// Operands `x[rs2], stream`.
    StreamStore,
    /// Operands `x[rd], stream, x[rs2]`.
    StreamRead,
    /// Operands `x[rd], x[rs1], vtype`.
    VectorSet,
    /// Operands `x[rd], length, vtype`.
    VectorSetImmediate,
    /// Operands `v[rd], v[rs2], v[rs1]`; the instruction can be masked, as those of the following formats.
    VectorVv,
    /// Operands `v[rd], v[rs2], x[rs1]`.
    VectorVx,
    /// Operands `v[rd], v[rs2], imm`; the immediate is signed.
    VectorVi,
    /// Operands `v[rd], v[rs2], imm`; the immediate is unsigned.
    VectorVu,
    /// Operands `v[rd], v[rs2], f[rs1]`.
    VectorVf,
    /// Operands `v[rd], v[rs1], v[rs2]`.
    VectorMulV,
    /// Operands `v[rd], x[rs1], v[rs2]`.
    VectorMulX,
    /// Operands `v[rd], f[rs1], v[rs2]`.
    VectorMulF,
    /// Operands `v[rd], v[rs2]`.
    VectorUnary,
    /// Operands `v[rd], v[rs1]`.
    VectorMoveV,
    /// Operands `v[rd], x[rs1]`.
    VectorMoveX,
    /// Operands `v[rd], imm`.
    VectorMoveI,
    /// Operands `v[rd], f[rs1]`.
    VectorMoveF,
    /// Operands `x[rd], v[rs2]`.
    VectorToX,
    /// Operands `f[rd], v[rs2]`.
    VectorToF,
    /// Operands `v[rd]`.
    VectorId,
    /// Operands `v[rd], (x[rs1])`.
    VectorUnit,
    /// Operands `v[rd], (x[rs1]), x[rs2]`.
    VectorStrided,
    /// Operands `v[rd], (x[rs1]), v[rs2]`.
    VectorIndexed,
    /// Operands `stream rd, x[rs1], x[rs2], x[rs3]`.
    VarveOpen,
    /// Operands `stream rs2, x[rs1]`.
    VarveConsume,
    /// Operands `x[rd], stream rs2`.
    VarveEnd,
    /// Operands `x[rd]`.
    VarveNumber,
    /// Operands `x[rd], v[rs1]`.
    VarveCount,
    /// Operands `v[rd], stream rs2`.
    VarveUnpack,
    /// Operands `x[rd], v[rs1], stream rs2`.
    VarvePack,
    /// Operands `v[rd], stream rs2, x[rs1]`.
    VarveVunpack,
    /// Operands `v[rd], x[rs1], x[rs2]`.
    VarveIndex,
    /// Unknown: the bits are not an instruction.
    Illegal,
}

impl Format {
    /// Whether instructions of this format carry a rounding mode.
    pub fn rounded(self) -> bool {
        matches!(
            self,
            Self::FloatFused
                | Self::FloatRounded
                | Self::FloatUnaryRounded
                | Self::FloatToIntRounded
                | Self::IntToFloatRounded
        )
    }

    /// Whether instructions of this format operate on vectors.
    pub fn vector(self) -> bool {
        self as u8 >= Self::VectorSet as u8 && self != Self::Illegal
    }

    /// Whether instructions of this format load or store vectors.
    pub fn vector_memory(self) -> bool {
        matches!(self, Self::VectorUnit | Self::VectorStrided | Self::VectorIndexed)
    }

    /// Whether instructions of this format use floating-point registers, and so need the floating-point unit to be on.
    pub fn float(self) -> bool {
        self.rounded()
            || matches!(
                self,
                Self::FloatLoad
                    | Self::FloatStore
                    | Self::FloatRegister
                    | Self::FloatCompare
                    | Self::FloatToInt
                    | Self::IntToFloat
            )
    }
}

#[cfg(test)]
mod tests;
