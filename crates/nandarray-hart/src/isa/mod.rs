//! The instruction set: what 32 and 16 bits mean, and how they are written down.
//!
//! [`table`](self) holds one row an instruction; `decode` turns bits into an [`Instruction`] and back, `compressed`
//! does so for the 16-bit forms, `text` disassembles and assembles. Nothing here executes.

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

/// One decoded instruction. Registers are the encoding's numbers; which file they name follows from the [`Format`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Its operation.
    pub code: Code,
    /// Destination register, or 0.
    pub rd: u8,
    /// First source register, or a CSR instruction's immediate, or a stream's number.
    pub rs1: u8,
    /// Second source register.
    pub rs2: u8,
    /// Third source register of a fused multiply-add; one less than the fields of a vector load's or store's segments.
    pub rs3: u8,
    /// Rounding mode of a floating-point instruction: 0 to 4, or 7 for the one in `frm`. Of a vector instruction 0 if
    /// `v0` masks it, else 1.
    pub rm: u8,
    /// Length in bytes: 2 or 4.
    pub len: u8,
    /// Immediate, sign-extended; shift amount; CSR number; `aq` and `rl`; the bits of an illegal instruction.
    pub imm: i32,
}

impl Instruction {
    /// The row of the table that describes it.
    pub fn row(&self) -> &'static Row {
        &TABLE[self.code as usize]
    }

    /// Whether it may go elsewhere than to the next instruction, or changes what decoding depends on: it ends a block.
    pub fn ends_block(&self) -> bool {
        use Code::*;
        match self.row().format {
            Format::Branch | Format::Jump | Format::JumpRegister | Format::FenceVma | Format::Illegal => true,
            Format::Bare => matches!(self.code, Ecall | Ebreak | Mret | Sret | Wfi | FenceI),
            Format::Csr | Format::CsrImmediate => !self.reads_stream_register(),
            _ => false,
        }
    }

    /// Whether it only reads one of the stream registers: it may hang, but it changes nothing.
    pub fn reads_stream_register(&self) -> bool {
        matches!(self.code, Code::Csrrs | Code::Csrrc | Code::Csrrsi | Code::Csrrci)
            && self.rs1 == 0
            && (0x800..0x8a0).contains(&self.imm)
    }
}

/// A row of the instruction table.
#[derive(Debug)]
pub struct Row {
    /// Its code.
    pub code: Code,
    /// Mnemonic.
    pub name: &'static str,
    /// The extension that it belongs to.
    pub extension: Extension,
    /// The register widths that have it.
    pub width: Width,
    /// Its operands and where they stand.
    pub format: Format,
    /// The bits that tell it from others.
    pub mask: u32,
    /// The value of those bits.
    pub bits: u32,
}

/// Register widths that have an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// RV32 only.
    Rv32,
    /// RV64 only.
    Rv64,
    /// Either.
    Both,
}

impl Width {
    /// Whether harts of `bits` bits have it.
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
    /// Base integer instructions; always there.
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
    /// `fence.i`.
    Zifencei,
    /// Shift-and-add.
    Zba,
    /// Bit manipulation.
    Zbb,
    /// Single bits.
    Zbs,
    /// Streams (Table 7.2).
    Stream,
    /// Machine and supervisor mode.
    Privileged,
    /// Vectors of integers of up to 32 bits.
    Zve32x,
    /// Vectors of single-precision numbers.
    Zve32f,
    /// Vectors of integers of 64 bits.
    Zve64x,
    /// Vectors of double-precision numbers.
    Zve64d,
    /// All vector instructions.
    V,
    /// Vectors of values with a width each, and their streams (Table 8.1).
    Varve,
}

impl Extension {
    /// All, in the order of their declaration.
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

/// A set of extensions; with vectors, also the length of their registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extensions(u32);

impl Extensions {
    /// The first of the bits that hold the logarithm of the length of a vector register.
    const VLEN_AT: u32 = 24;
    /// The extensions of programs: all but [`Extension::Privileged`] and the vector extensions.
    pub const PROGRAM: Self = Self((1 << Extension::Privileged as u32) - 1);
    /// The extensions of programs, and all vector extensions.
    pub const PROGRAM_VECTOR: Self = Self(Self::ALL.0 & !(1 << Extension::Privileged as u32));
    /// The vector extensions.
    pub const VECTOR: Self = Self(Self::ALL.0 & !((1 << Extension::Zve32x as u32) - 1) | 1);
    /// Everything that the hart has.
    pub const ALL: Self = Self((1 << Extension::ALL.len()) - 1);

    /// Whether `extension` is in it.
    pub const fn has(self, extension: Extension) -> bool {
        self.0 >> extension as u32 & 1 != 0
    }

    /// The set without `extension`; [`Extension::I`] stays.
    #[must_use]
    pub const fn without(self, extension: Extension) -> Self {
        Self(self.0 & !(1 << extension as u32) | 1)
    }

    /// The set with vector registers of `bits` bits, a power of two; it matters to sets with vectors only.
    #[must_use]
    pub const fn with_vlen(self, bits: u32) -> Self {
        Self(self.0 & ((1 << Self::VLEN_AT) - 1) | bits.trailing_zeros() << Self::VLEN_AT)
    }

    /// Bits of a vector register, if the set has vectors: 128 unless said otherwise.
    pub const fn vlen(self) -> u32 {
        if self.0 >> Self::VLEN_AT == 0 { 128 } else { 1 << (self.0 >> Self::VLEN_AT) }
    }

    /// This set, and the vector extensions of another with the length of its registers.
    #[must_use]
    pub const fn with_vectors_of(self, other: Self) -> Self {
        Self(self.0 | other.0 & (Self::VECTOR.0 & !1 | !((1 << Self::VLEN_AT) - 1)))
    }

    /// The set with `extension`.
    #[must_use]
    pub const fn with(self, extension: Extension) -> Self {
        Self(self.0 | 1 << extension as u32)
    }
}

/// The operands of an instruction: which there are, and where they stand.
///
/// `x` is an integer register, `f` a floating-point register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `x[rd], x[rs1], x[rs2]`
    Register,
    /// `x[rd], x[rs1], imm`
    Immediate,
    /// `x[rd], x[rs1], amount` below the register width
    Shift,
    /// `x[rd], x[rs1], amount` below 32
    ShiftWord,
    /// `x[rd], x[rs1]`
    Unary,
    /// `x[rd], imm(x[rs1])`
    Load,
    /// `x[rs2], imm(x[rs1])`
    Store,
    /// `x[rs1], x[rs2], offset`
    Branch,
    /// `x[rd], offset`
    Jump,
    /// `x[rd], imm(x[rs1])`
    JumpRegister,
    /// `x[rd], imm[31:12]`
    Upper,
    /// predecessor and successor sets in `imm`
    Fence,
    /// `x[rs1], x[rs2]`
    FenceVma,
    /// no operands
    Bare,
    /// `x[rd], csr, x[rs1]`
    Csr,
    /// `x[rd], csr, imm`
    CsrImmediate,
    /// `x[rd], (x[rs1])`
    LoadReserved,
    /// `x[rd], x[rs2], (x[rs1])`
    Atomic,
    /// `f[rd], imm(x[rs1])`
    FloatLoad,
    /// `f[rs2], imm(x[rs1])`
    FloatStore,
    /// `f[rd], f[rs1], f[rs2], f[rs3]`, rounded
    FloatFused,
    /// `f[rd], f[rs1], f[rs2]`, rounded
    FloatRounded,
    /// `f[rd], f[rs1]`, rounded
    FloatUnaryRounded,
    /// `f[rd], f[rs1], f[rs2]`
    FloatRegister,
    /// `x[rd], f[rs1], f[rs2]`
    FloatCompare,
    /// `x[rd], f[rs1]`, rounded
    FloatToIntRounded,
    /// `x[rd], f[rs1]`
    FloatToInt,
    /// `f[rd], x[rs1]`, rounded
    IntToFloatRounded,
    /// `f[rd], x[rs1]`
    IntToFloat,
    /// `x[rd], stream`
    StreamLoad,
    /// `x[rs2], stream`
    StreamStore,
    /// `x[rd], stream, x[rs2]`
    StreamRead,
    /// `x[rd], x[rs1], vtype`
    VectorSet,
    /// `x[rd], length, vtype`
    VectorSetImmediate,
    /// `v[rd], v[rs2], v[rs1]`, masked or not, as the next ones
    VectorVv,
    /// `v[rd], v[rs2], x[rs1]`
    VectorVx,
    /// `v[rd], v[rs2], imm`, signed
    VectorVi,
    /// `v[rd], v[rs2], imm`, unsigned
    VectorVu,
    /// `v[rd], v[rs2], f[rs1]`
    VectorVf,
    /// `v[rd], v[rs1], v[rs2]`
    VectorMulV,
    /// `v[rd], x[rs1], v[rs2]`
    VectorMulX,
    /// `v[rd], f[rs1], v[rs2]`
    VectorMulF,
    /// `v[rd], v[rs2]`
    VectorUnary,
    /// `v[rd], v[rs1]`
    VectorMoveV,
    /// `v[rd], x[rs1]`
    VectorMoveX,
    /// `v[rd], imm`
    VectorMoveI,
    /// `v[rd], f[rs1]`
    VectorMoveF,
    /// `x[rd], v[rs2]`
    VectorToX,
    /// `f[rd], v[rs2]`
    VectorToF,
    /// `v[rd]`
    VectorId,
    /// `v[rd], (x[rs1])`
    VectorUnit,
    /// `v[rd], (x[rs1]), x[rs2]`
    VectorStrided,
    /// `v[rd], (x[rs1]), v[rs2]`
    VectorIndexed,
    /// `stream rd, x[rs1], x[rs2], x[rs3]`
    VarveOpen,
    /// `stream rs2, x[rs1]`
    VarveConsume,
    /// `x[rd], stream rs2`
    VarveEnd,
    /// `x[rd]`
    VarveNumber,
    /// `x[rd], v[rs1]`
    VarveCount,
    /// `v[rd], stream rs2`
    VarveUnpack,
    /// `x[rd], v[rs1], stream rs2`
    VarvePack,
    /// `v[rd], stream rs2, x[rs1]`
    VarveVunpack,
    /// `v[rd], x[rs1], x[rs2]`
    VarveIndex,
    /// nothing that is known
    Illegal,
}

impl Format {
    /// Whether the instruction carries a rounding mode.
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

    /// Whether it is an instruction on vectors.
    pub fn vector(self) -> bool {
        self as u8 >= Self::VectorSet as u8 && self != Self::Illegal
    }

    /// Whether it is a load or store of vectors.
    pub fn vector_memory(self) -> bool {
        matches!(self, Self::VectorUnit | Self::VectorStrided | Self::VectorIndexed)
    }

    /// Whether it touches floating-point registers, and so needs the floating-point unit switched on.
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
