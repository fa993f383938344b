//! Functional units: which unit executes an instruction, and which registers the instruction reads and writes.
//!
//! There is one table for all cores: a description gives each unit a latency, and an issue model uses the registers to
//! find hazards. Latencies beyond the first-level cache are modelled by the caches.

use nandarray_hart::Class;
use nandarray_hart::isa::{Code, Format, Instruction};

/// Kind of functional unit, as far as latencies differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FunctionalUnit {
    /// Integer addition, logic, shifts, comparison, bit manipulation.
    Alu,
    /// Integer multiplication.
    Multiply,
    /// Integer division and remainder.
    Divide,
    /// Load from memory.
    Load,
    /// Store to memory.
    Store,
    /// Atomic memory operation.
    Atomic,
    /// Conditional branch.
    Branch,
    /// Jump, call or return.
    Jump,
    /// Single-precision addition and subtraction.
    FloatAdd,
    /// Single-precision multiplication.
    FloatMultiply,
    /// Single-precision fused multiply-add.
    FloatFused,
    /// Single-precision division.
    FloatDivide,
    /// Single-precision square root.
    FloatSqrt,
    /// Double-precision addition and subtraction.
    DoubleAdd,
    /// Double-precision multiplication.
    DoubleMultiply,
    /// Double-precision fused multiply-add.
    DoubleFused,
    /// Double-precision division.
    DoubleDivide,
    /// Double-precision square root.
    DoubleSqrt,
    /// Floating-point moves, sign changes, comparisons, minimum and maximum.
    FloatMove,
    /// Conversions between numbers.
    Convert,
    /// Stream instructions and stream registers.
    Stream,
    /// Fences, control registers, environment calls.
    System,
}

impl FunctionalUnit {
    /// Number of kinds of units.
    pub const COUNT: usize = 22;

    /// All kinds of units, in the order of their declaration.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Alu,
        Self::Multiply,
        Self::Divide,
        Self::Load,
        Self::Store,
        Self::Atomic,
        Self::Branch,
        Self::Jump,
        Self::FloatAdd,
        Self::FloatMultiply,
        Self::FloatFused,
        Self::FloatDivide,
        Self::FloatSqrt,
        Self::DoubleAdd,
        Self::DoubleMultiply,
        Self::DoubleFused,
        Self::DoubleDivide,
        Self::DoubleSqrt,
        Self::FloatMove,
        Self::Convert,
        Self::Stream,
        Self::System,
    ];

    /// Returns the unit's key in descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alu => "alu",
            Self::Multiply => "multiply",
            Self::Divide => "divide",
            Self::Load => "load",
            Self::Store => "store",
            Self::Atomic => "atomic",
            Self::Branch => "branch",
            Self::Jump => "jump",
            Self::FloatAdd => "float_add",
            Self::FloatMultiply => "float_multiply",
            Self::FloatFused => "float_fused",
            Self::FloatDivide => "float_divide",
            Self::FloatSqrt => "float_sqrt",
            Self::DoubleAdd => "double_add",
            Self::DoubleMultiply => "double_multiply",
            Self::DoubleFused => "double_fused",
            Self::DoubleDivide => "double_divide",
            Self::DoubleSqrt => "double_sqrt",
            Self::FloatMove => "float_move",
            Self::Convert => "convert",
            Self::Stream => "stream",
            Self::System => "system",
        }
    }

    /// Returns the unit that executes an instruction.
    pub fn of(op: &Instruction) -> Self {
        use Code::*;
        match op.class() {
            // Vector instructions have no unit of their own yet: each is timed as one instruction of the arithmetic
            // unit.
            Class::Integer | Class::Bits | Class::Vector => Self::Alu,
            Class::Multiply => match op.code {
                Mul | Mulh | Mulhsu | Mulhu | Mulw => Self::Multiply,
                _ => Self::Divide,
            },
            Class::Load => Self::Load,
            Class::Store => Self::Store,
            Class::Atomic => Self::Atomic,
            Class::Branch => Self::Branch,
            Class::Jump => Self::Jump,
            Class::Stream => Self::Stream,
            Class::System => Self::System,
            Class::Float => match op.code {
                FaddS | FsubS => Self::FloatAdd,
                FmulS => Self::FloatMultiply,
                FmaddS | FmsubS | FnmsubS | FnmaddS => Self::FloatFused,
                FdivS => Self::FloatDivide,
                FsqrtS => Self::FloatSqrt,
                FaddD | FsubD => Self::DoubleAdd,
                FmulD => Self::DoubleMultiply,
                FmaddD | FmsubD | FnmsubD | FnmaddD => Self::DoubleFused,
                FdivD => Self::DoubleDivide,
                FsqrtD => Self::DoubleSqrt,
                FcvtWS | FcvtWuS | FcvtLS | FcvtLuS | FcvtSW | FcvtSWu | FcvtSL | FcvtSLu | FcvtSD | FcvtDS
                | FcvtWD | FcvtWuD | FcvtLD | FcvtLuD | FcvtDW | FcvtDWu | FcvtDL | FcvtDLu => Self::Convert,
                _ => Self::FloatMove,
            },
        }
    }
}

/// Number of registers: 32 integer registers, then 32 floating-point registers.
pub const REGISTERS: usize = 64;

/// Registers of one instruction. Floating-point registers are numbered from 32; integer register 0 is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    sources: [u8; 3],
    count: u8,
    /// Register that the instruction writes; `None` if it writes none.
    pub destination: Option<u8>,
}

impl Operands {
    /// Returns the registers that the instruction reads.
    pub fn sources(&self) -> &[u8] {
        &self.sources[..self.count as usize]
    }

    /// Returns the operands of an instruction.
    pub fn of(op: &Instruction) -> Self {
        use Format::*;
        let (x1, x2, xd) = (op.rs1, op.rs2, Some(op.rd));
        let (f1, f2, f3, fd) = (op.rs1 + 32, op.rs2 + 32, op.rs3 + 32, Some(op.rd + 32));
        let (reads, destination) = match op.row().format {
            Upper | Jump | CsrImmediate | StreamLoad => ([0; 3], xd),
            JumpRegister | Immediate | Shift | ShiftWord | Unary | Load | LoadReserved | Csr => ([x1, 0, 0], xd),
            Branch | Store => ([x1, x2, 0], None),
            Register | Atomic => ([x1, x2, 0], xd),
            FloatLoad => ([x1, 0, 0], fd),
            FloatStore => ([x1, f2, 0], None),
            FloatFused => ([f1, f2, f3], fd),
            FloatRounded | FloatRegister => ([f1, f2, 0], fd),
            FloatUnaryRounded => ([f1, 0, 0], fd),
            FloatCompare => ([f1, f2, 0], xd),
            FloatToIntRounded | FloatToInt => ([f1, 0, 0], xd),
            IntToFloatRounded | IntToFloat => ([x1, 0, 0], fd),
            StreamStore => ([x2, 0, 0], None),
            StreamRead => ([x2, 0, 0], xd),
            VectorVx | VectorMulX | VectorMoveX | VectorUnit | VectorIndexed | VarveConsume | VarveVunpack => {
                ([x1, 0, 0], None)
            }
            VectorStrided | VarveIndex => ([x1, x2, 0], None),
            VarveOpen => ([x1, x2, op.rs3], None),
            VectorVf | VectorMulF | VectorMoveF => ([f1, 0, 0], None),
            VectorSet => ([x1, 0, 0], xd),
            VectorSetImmediate | VectorToX | VarveEnd | VarveNumber | VarveCount | VarvePack => ([0; 3], xd),
            VectorToF => ([0; 3], fd),
            // Vector registers are not tracked.
            VectorVv | VectorVi | VectorVu | VectorMulV | VectorUnary | VectorMoveV | VectorMoveI | VectorId
            | VarveUnpack | Fence | FenceVma | Bare | Illegal => ([0; 3], None),
        };
        let mut operands = Self { sources: [0; 3], count: 0, destination: destination.filter(|&r| r != 0) };
        for register in reads.into_iter().filter(|&r| r != 0) {
            operands.sources[operands.count as usize] = register;
            operands.count += 1;
        }
        operands
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nandarray_hart::isa::assemble;

    fn op(text: &str) -> Instruction {
        assemble(text, 64).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn units_are_listed_in_order_with_distinct_names() {
        for (i, unit) in FunctionalUnit::ALL.into_iter().enumerate() {
            assert_eq!(unit as usize, i, "{unit:?}");
        }
        let names: std::collections::BTreeSet<_> = FunctionalUnit::ALL.iter().map(|u| u.name()).collect();
        assert_eq!(names.len(), FunctionalUnit::COUNT);
    }

    #[test]
    fn instructions_go_to_their_units() {
        for (text, unit) in [
            ("add a0, a1, a2", FunctionalUnit::Alu),
            ("mulhu a0, a1, a2", FunctionalUnit::Multiply),
            ("remw a0, a1, a2", FunctionalUnit::Divide),
            ("flw fa0, 0(a1)", FunctionalUnit::Load),
            ("fsqrt.d fa0, fa1, dyn", FunctionalUnit::DoubleSqrt),
            ("fmadd.s fa0, fa1, fa2, fa3, dyn", FunctionalUnit::FloatFused),
            ("feq.s a0, fa1, fa2", FunctionalUnit::FloatMove),
            ("fcvt.d.w fa0, a1", FunctionalUnit::Convert),
        ] {
            assert_eq!(FunctionalUnit::of(&op(text)), unit, "{text}");
        }
    }

    #[test]
    fn operands_name_both_register_files_and_leave_out_register_zero() {
        let fused = Operands::of(&op("fmadd.s fa0, fa1, fa2, fa3, dyn"));
        assert_eq!((fused.sources(), fused.destination), (&[43u8, 44, 45][..], Some(42)));
        let add = Operands::of(&op("add zero, zero, a2"));
        assert_eq!((add.sources(), add.destination), (&[12u8][..], None));
        let store = Operands::of(&op("fsd fa0, 8(sp)"));
        assert_eq!((store.sources(), store.destination), (&[2u8, 42][..], None));
    }
}
