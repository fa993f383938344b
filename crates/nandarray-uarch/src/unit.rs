//! Functional units: which unit executes an instruction, and which registers the instruction reads and writes.
//!
//! There is one table for all cores: a description gives each unit a latency, and an issue model uses the registers to
//! find hazards. Latencies beyond the first-level cache are modelled by the caches.

use nandarray_describe::words;
use nandarray_hart::isa::{Code, Format, Instruction};
use nandarray_hart::{Class, Extension};

words! {
    /// Kind of functional unit, as far as latencies differ; the words are the units' keys in descriptions.
    #[derive(Hash, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum FunctionalUnit {
        /// Integer addition, logic, shifts, comparison, bit manipulation.
        Alu = "alu",
        /// Integer multiplication.
        Multiply = "multiply",
        /// Integer division and remainder.
        Divide = "divide",
        /// Load from memory.
        Load = "load",
        /// Store to memory.
        Store = "store",
        /// Atomic memory operation.
        Atomic = "atomic",
        /// Conditional branch.
        Branch = "branch",
        /// Jump, call or return.
        Jump = "jump",
        /// Single-precision addition and subtraction.
        FloatAdd = "float_add",
        /// Single-precision multiplication.
        FloatMultiply = "float_multiply",
        /// Single-precision fused multiply-add.
        FloatFused = "float_fused",
        /// Single-precision division.
        FloatDivide = "float_divide",
        /// Single-precision square root.
        FloatSqrt = "float_sqrt",
        /// Double-precision addition and subtraction.
        DoubleAdd = "double_add",
        /// Double-precision multiplication.
        DoubleMultiply = "double_multiply",
        /// Double-precision fused multiply-add.
        DoubleFused = "double_fused",
        /// Double-precision division.
        DoubleDivide = "double_divide",
        /// Double-precision square root.
        DoubleSqrt = "double_sqrt",
        /// Floating-point moves, sign changes, comparisons, minimum and maximum.
        FloatMove = "float_move",
        /// Conversions between numbers.
        Convert = "convert",
        /// Stream instructions and stream registers.
        Stream = "stream",
        /// Fences, control registers, environment calls.
        System = "system",
        /// Setting of the vector type and length, and moves of single elements to and from vectors.
        VectorSet = "vector_set",
        /// Vector addition, logic, shifts, comparison of integers.
        VectorInteger = "vector_integer",
        /// Vector multiplication of integers, with or without an addition.
        VectorMultiply = "vector_multiply",
        /// Vector division of integers.
        VectorDivide = "vector_divide",
        /// Vector arithmetic in floating point.
        VectorFloat = "vector_float",
        /// Vector division and square root in floating point.
        VectorFloatDivide = "vector_float_divide",
        /// Reductions of a vector to one element.
        VectorReduce = "vector_reduce",
        /// Moves of elements within vectors.
        VectorPermute = "vector_permute",
        /// Operations on masks, and their counts.
        VectorMask = "vector_mask",
        /// Vector loads.
        VectorLoad = "vector_load",
        /// Vector stores.
        VectorStore = "vector_store",
        /// VarVE addition, logic, shifts, comparison, and copies.
        VarveInteger = "varve_integer",
        /// VarVE multiplication.
        VarveMultiply = "varve_multiply",
        /// VarVE division.
        VarveDivide = "varve_divide",
        /// Reads of packed streams into vectors.
        VarveUnpack = "varve_unpack",
        /// Writes of vectors to packed streams.
        VarvePack = "varve_pack",
        /// Descriptions and ends of packed streams, consumed values, NumE and numbers of elements.
        VarveStream = "varve_stream",
    }
}

impl FunctionalUnit {
    /// Number of kinds of units.
    pub const COUNT: usize = Self::WORDS.len();

    /// Whether instructions of the unit occupy the port of the data cache.
    pub fn accesses_memory(self) -> bool {
        matches!(self, Self::Load | Self::Store | Self::Atomic | Self::VectorLoad | Self::VectorStore)
    }

    /// Whether instructions of the unit occupy the vector datapath.
    pub fn uses_datapath(self) -> bool {
        use FunctionalUnit::*;
        matches!(
            self,
            VectorInteger
                | VectorMultiply
                | VectorDivide
                | VectorFloat
                | VectorFloatDivide
                | VectorReduce
                | VectorPermute
                | VectorMask
        ) || self.aligns()
    }

    /// Whether instructions of the unit align elements of varying widths first.
    pub fn aligns(self) -> bool {
        matches!(self, Self::VarveInteger | Self::VarveMultiply | Self::VarveDivide)
    }

    /// Returns the unit that executes an instruction.
    pub fn of(op: &Instruction) -> Self {
        use Code::*;
        match op.class() {
            Class::Integer | Class::Bits => Self::Alu,
            Class::Vector => vector_unit(op),
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

/// Returns the unit of a vector instruction, from its name: units differ by what follows the first letters.
fn vector_unit(op: &Instruction) -> FunctionalUnit {
    use Format::*;
    use FunctionalUnit as Unit;
    let row = op.row();
    let name = row.name;
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    match row.format {
        VarveOpen | VarveConsume | VarveEnd | VarveNumber | VarveCount => return Unit::VarveStream,
        VarveUnpack | VarveVunpack => return Unit::VarveUnpack,
        VarvePack => return Unit::VarvePack,
        VectorSet | VectorSetImmediate => return Unit::VectorSet,
        _ if row.format.vector_memory() => {
            return if row.bits & 0x20 != 0 { Unit::VectorStore } else { Unit::VectorLoad };
        }
        _ => {}
    }
    if row.extension == Extension::Varve {
        return match name {
            _ if name.starts_with("varve.mul") => Unit::VarveMultiply,
            _ if name.starts_with("varve.div") => Unit::VarveDivide,
            _ => Unit::VarveInteger,
        };
    }
    match op.code {
        Code::Vsetvl => Unit::VectorSet,
        Code::VmvXS | Code::VmvSX | Code::VfmvFS | Code::VfmvSF => Unit::VectorPermute,
        _ if name.ends_with(".mm") || begins(&["vcpop", "vfirst", "vms", "viota", "vid."]) => {
            // Comparisons yield masks from elements, as other arithmetic does.
            if begins(&["vmseq", "vmsne", "vmslt", "vmsle", "vmsgt"]) { Unit::VectorInteger } else { Unit::VectorMask }
        }
        _ if begins(&["vred", "vwred", "vfred", "vfwred"]) => Unit::VectorReduce,
        _ if begins(&["vrgather", "vslide", "vcompress", "vfslide", "vmv1r", "vmv2r", "vmv4r", "vmv8r"]) => {
            Unit::VectorPermute
        }
        _ if begins(&["vfdiv", "vfrdiv", "vfsqrt"]) => Unit::VectorFloatDivide,
        _ if row.extension == Extension::Zve32f => Unit::VectorFloat,
        _ if begins(&["vdiv", "vrem"]) => Unit::VectorDivide,
        _ if begins(&["vmul", "vwmul", "vsmul", "vmacc", "vwmacc", "vmadd", "vnmsac", "vnmsub"]) => {
            Unit::VectorMultiply
        }
        _ => Unit::VectorInteger,
    }
}

/// Register number that stands for the first vector register.
const VECTORS: u8 = 64;
/// Register number that stands for `NumE`, a counter of the VarVE unit.
pub(crate) const NUM_E: u8 = 96;
/// Register number that stands for the position in packed stream 0; those of the other streams follow.
const PLACES: u8 = 97;

/// Number of registers: 32 integer, 32 floating-point and 32 vector registers, `NumE`, and the places in 32 packed
/// streams.
pub const REGISTERS: usize = 129;

/// Registers of one instruction. Floating-point registers are numbered from 32, vector registers from 64, a group of
/// them by its first; 96 is `NumE`, and the places in packed streams follow. Integer register 0 is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operands {
    sources: [u8; 5],
    count: u8,
    /// Register that the instruction writes; `None` if it writes none.
    pub destination: Option<u8>,
    /// Whether the instruction also lowers `NumE`.
    pub counts: bool,
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
            format if format.vector() || op.code == Code::Vsetvl => return Self::of_vector(op),
            _ => ([0; 3], None),
        };
        debug_assert!(destination.is_none_or(|register| register < VECTORS), "a scalar result in {destination:?}");
        let mut operands =
            Self { sources: [0; 5], count: 0, destination: destination.filter(|&r| r != 0), counts: false };
        reads.into_iter().filter(|&r| r != 0).for_each(|register| operands.read(register));
        operands
    }

    fn read(&mut self, register: u8) {
        debug_assert!((register as usize) < REGISTERS, "register {register}");
        self.sources[self.count as usize] = register;
        self.count += 1;
    }

    /// Returns the operands of a vector instruction.
    fn of_vector(op: &Instruction) -> Self {
        use Format::*;
        let row = op.row();
        let (v1, v2, vd) = (op.rs1 + VECTORS, op.rs2 + VECTORS, op.rd + VECTORS);
        let (x1, x2, f1) = (op.rs1, op.rs2, op.rs1 + 32);
        let place = (op.rs2 & 31) + PLACES;
        let (reads, destination): (&[u8], Option<u8>) = match row.format {
            VectorVv => (&[v1, v2], Some(vd)),
            VectorMulV => (&[v1, v2, vd], Some(vd)),
            VectorVx => (&[x1, v2], Some(vd)),
            VectorMulX => (&[x1, v2, vd], Some(vd)),
            VectorVf => (&[f1, v2], Some(vd)),
            VectorMulF => (&[f1, v2, vd], Some(vd)),
            VectorVi | VectorVu | VectorUnary => (&[v2], Some(vd)),
            VectorMoveV => (&[v1], Some(vd)),
            VectorMoveX => (&[x1], Some(vd)),
            VectorMoveF => (&[f1], Some(vd)),
            VectorMoveI | VectorId => (&[], Some(vd)),
            VectorUnit if row.bits & 0x20 != 0 => (&[x1, vd], None),
            VectorStrided if row.bits & 0x20 != 0 => (&[x1, x2, vd], None),
            VectorIndexed if row.bits & 0x20 != 0 => (&[x1, v2, vd], None),
            VectorUnit => (&[x1], Some(vd)),
            VectorStrided => (&[x1, x2], Some(vd)),
            VectorIndexed => (&[x1, v2], Some(vd)),
            VectorSet => (&[x1], Some(op.rd)),
            VectorSetImmediate => (&[], Some(op.rd)),
            VectorToX => (&[v2], Some(op.rd)),
            VectorToF => (&[v2], Some(op.rd + 32)),
            VarveOpen => (&[x1, x2, op.rs3], Some((op.rd & 31) + PLACES)),
            VarveConsume => (&[x1], Some(place)),
            VarveEnd => (&[place], Some(op.rd)),
            VarveNumber => (&[NUM_E], Some(op.rd)),
            VarveCount => (&[v1], Some(op.rd)),
            VarveUnpack => (&[place], Some(vd)),
            VarveVunpack => (&[place, x1], Some(vd)),
            VarvePack => (&[v1], Some(op.rd)),
            VarveIndex => (&[x1, x2], Some(vd)),
            // The register form of the instruction that sets the vector type.
            _ => (&[x1, x2], Some(op.rd)),
        };
        debug_assert!(
            destination.is_none_or(|register| usize::from(register) < REGISTERS),
            "a result in {destination:?}"
        );
        let destination = destination.filter(|&r| r != 0);
        let counts = row.extension == Extension::Varve && destination.is_some_and(|r| (VECTORS..NUM_E).contains(&r));
        let mut operands = Self { sources: [0; 5], count: 0, destination, counts };
        reads.iter().filter(|&&r| r != 0).for_each(|&register| operands.read(register));
        let selects = row.mask >> 25 & 1 == 0 && op.rm == 0;
        let always = row.mask >> 25 & 1 != 0 && row.bits >> 25 & 1 == 0;
        let masked = match row.format {
            VarvePack | VarveVunpack => matches!(op.code, Code::PackM | Code::VpackM | Code::VunpackM),
            VectorSet | VectorSetImmediate => false,
            _ if row.extension == Extension::Varve || op.code == Code::Vsetvl => selects,
            _ => selects || always,
        };
        if masked {
            operands.read(VECTORS);
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
        let names: std::collections::BTreeSet<_> = FunctionalUnit::ALL.iter().map(|u| u.word()).collect();
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
            ("vsetvli a0, a1, e32, m1, ta, ma", FunctionalUnit::VectorSet),
            ("vmslt.vv v0, v1, v2", FunctionalUnit::VectorInteger),
            ("vmand.mm v0, v1, v2", FunctionalUnit::VectorMask),
            ("vcpop.m a0, v0", FunctionalUnit::VectorMask),
            ("vwmacc.vv v2, v4, v5", FunctionalUnit::VectorMultiply),
            ("vfdiv.vv v2, v4, v5", FunctionalUnit::VectorFloatDivide),
            ("vfadd.vv v2, v4, v5", FunctionalUnit::VectorFloat),
            ("vcompress.vm v2, v4, v5", FunctionalUnit::VectorPermute),
            ("vredsum.vs v2, v4, v5", FunctionalUnit::VectorReduce),
            ("vle32.v v2, (a0)", FunctionalUnit::VectorLoad),
            ("vse32.v v2, (a0)", FunctionalUnit::VectorStore),
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
