//! Traps: the reasons why an instruction could not be executed, and requests to the environment.

use std::fmt;

/// The cause of a trap, with the number that `mcause` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// A jump to an odd address; cannot happen, since jumps clear bit 0 and 16-bit instructions are allowed.
    FetchMisaligned = 0,
    /// Memory at this address does not exist, or may not be executed.
    FetchAccess = 1,
    /// The bits are not an instruction, or one that may not be executed now.
    IllegalInstruction = 2,
    /// `ebreak`.
    Breakpoint = 3,
    /// An atomic load from an address that is not a multiple of its width.
    LoadMisaligned = 4,
    /// A load from an address without memory, or from a stream that does not exist.
    LoadAccess = 5,
    /// An atomic operation on an address that is not a multiple of its width.
    StoreMisaligned = 6,
    /// A store to an address without writable memory, or to a stream that does not exist.
    StoreAccess = 7,
    /// `ecall` in user mode.
    UserCall = 8,
    /// `ecall` in supervisor mode.
    SupervisorCall = 9,
    /// `ecall` in machine mode.
    MachineCall = 11,
    /// The page tables have no executable page at this address.
    FetchPage = 12,
    /// The page tables have no page at this address that may be loaded from.
    LoadPage = 13,
    /// The page tables have no page at this address that may be stored to.
    StorePage = 15,
    /// A VarVE stream ends within a value, or before it.
    StreamEnd = 24,
    /// A VarVE stream has no room for a value.
    StreamFull = 25,
    /// A value of a VarVE stream is wider than allowed, or has no code.
    StreamWidth = 26,
    /// A table of Huffman codes is not a prefix code.
    HuffmanTable = 27,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FetchMisaligned => "misaligned fetch",
            Self::FetchAccess => "fetch access fault",
            Self::IllegalInstruction => "illegal instruction",
            Self::Breakpoint => "breakpoint",
            Self::LoadMisaligned => "misaligned atomic load",
            Self::LoadAccess => "load access fault",
            Self::StoreMisaligned => "misaligned atomic operation",
            Self::StoreAccess => "store access fault",
            Self::UserCall => "environment call from user mode",
            Self::SupervisorCall => "environment call from supervisor mode",
            Self::MachineCall => "environment call from machine mode",
            Self::FetchPage => "fetch page fault",
            Self::LoadPage => "load page fault",
            Self::StorePage => "store page fault",
            Self::StreamEnd => "packed stream ends inside a value",
            Self::StreamFull => "packed stream has no room for a value",
            Self::StreamWidth => "value of a packed stream is too wide",
            Self::HuffmanTable => "Huffman table is no prefix code",
        })
    }
}

/// A trap that nothing in the program handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trap {
    /// Cause of the trap.
    pub cause: Cause,
    /// Address of the instruction that trapped.
    pub pc: u64,
    /// The address that the instruction could not access, or the bits of an illegal instruction.
    pub value: u64,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at pc {:#x} (value {:#x})", self.cause, self.pc, self.value)
    }
}

impl std::error::Error for Trap {}
