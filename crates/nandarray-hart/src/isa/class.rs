//! Classes of instructions: a profile counts by class, and a description of a core gives costs by class.

use std::fmt;

use super::{Extension, Format, Instruction};

/// The kind of work that an instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Addition, comparison, logic, shifts, constants.
    Integer,
    /// Integer multiplication, division and remainder.
    Multiply,
    /// Bit manipulation: Zba, Zbb, Zbs.
    Bits,
    /// A load from memory into a register.
    Load,
    /// A store from a register into memory.
    Store,
    /// An atomic memory operation, including load-reserved and store-conditional.
    Atomic,
    /// A branch, taken or not.
    Branch,
    /// A jump, call or return.
    Jump,
    /// Floating-point arithmetic, comparison and conversion.
    Float,
    /// An instruction on vectors, including their loads and stores.
    Vector,
    /// An access to a stream, or to a register of its head or tail.
    Stream,
    /// Fences, accesses to control and status registers, environment calls, returns from traps, and illegal
    /// instructions.
    System,
}

impl Class {
    /// All classes, in the order of their declaration.
    pub const ALL: [Self; 12] = [
        Self::Integer,
        Self::Multiply,
        Self::Bits,
        Self::Load,
        Self::Store,
        Self::Atomic,
        Self::Branch,
        Self::Jump,
        Self::Float,
        Self::Vector,
        Self::Stream,
        Self::System,
    ];

    /// Returns the class's name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Multiply => "multiply",
            Self::Bits => "bits",
            Self::Load => "load",
            Self::Store => "store",
            Self::Atomic => "atomic",
            Self::Branch => "branch",
            Self::Jump => "jump",
            Self::Float => "float",
            Self::Vector => "vector",
            Self::Stream => "stream",
            Self::System => "system",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Instruction {
    /// Returns the class of the instruction.
    pub fn class(&self) -> Class {
        let row = self.row();
        match (row.format, row.extension) {
            (Format::Load | Format::FloatLoad, _) => Class::Load,
            (Format::Store | Format::FloatStore, _) => Class::Store,
            (Format::LoadReserved | Format::Atomic, _) => Class::Atomic,
            (Format::Branch, _) => Class::Branch,
            (Format::Jump | Format::JumpRegister, _) => Class::Jump,
            (Format::StreamLoad | Format::StreamStore | Format::StreamRead, _) => Class::Stream,
            (Format::Csr | Format::CsrImmediate, _) if self.reads_stream_register() => Class::Stream,
            (Format::Fence | Format::FenceVma | Format::Bare | Format::Csr | Format::CsrImmediate, _)
            | (Format::Illegal, _) => Class::System,
            (format, _) if format.vector() => Class::Vector,
            (_, Extension::Zve32x) => Class::Vector,
            (_, Extension::M) => Class::Multiply,
            (_, Extension::Zba | Extension::Zbb | Extension::Zbs) => Class::Bits,
            (_, Extension::F | Extension::D) => Class::Float,
            _ => Class::Integer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::assemble;

    #[test]
    fn every_class_has_instructions() {
        for (text, class) in [
            ("add a0, a1, a2", Class::Integer),
            ("lui a0, 1", Class::Integer),
            ("mulw a0, a1, a2", Class::Multiply),
            ("sh1add a0, a1, a2", Class::Bits),
            ("ld a0, 8(a1)", Class::Load),
            ("fld fa0, 8(a1)", Class::Load),
            ("fsw fa0, 8(a1)", Class::Store),
            ("amoadd.d a0, a2, (a1)", Class::Atomic),
            ("beq a0, a1, . + 8", Class::Branch),
            ("jalr zero, 0(ra)", Class::Jump),
            ("fadd.d fa0, fa1, fa2, dyn", Class::Float),
            ("vadd.vv v1, v2, v3", Class::Vector),
            ("vsetvl a0, a1, a2", Class::Vector),
            ("ecall", Class::System),
        ] {
            assert_eq!(assemble(text, 64).unwrap().class(), class, "{text}");
        }
        let names: std::collections::BTreeSet<_> = Class::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), Class::ALL.len());
    }
}
