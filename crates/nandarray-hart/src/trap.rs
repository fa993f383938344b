//! Traps: the reasons why an instruction could not be executed, and requests to the environment.

use std::fmt;

/// The cause of a trap, with the number that `mcause` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Cause {
    /// A jump to an odd address; cannot happen, since jumps clear bit 0 and 16-bit instructions are allowed.
    FetchMisaligned = 0,
    /// Nothing at this address may be executed.
    FetchAccess = 1,
    /// No instruction, or none that may be executed now.
    IllegalInstruction = 2,
    /// `ebreak`.
    Breakpoint = 3,
    /// An atomic load from an address that is not a multiple of its width.
    LoadMisaligned = 4,
    /// A load from where there is no memory, or from a stream that there is not.
    LoadAccess = 5,
    /// An atomic operation on an address that is not a multiple of its width.
    StoreMisaligned = 6,
    /// A store to where there is no memory that may be written.
    StoreAccess = 7,
    /// `ecall` in user mode.
    UserCall = 8,
    /// `ecall` in supervisor mode.
    SupervisorCall = 9,
    /// `ecall` in machine mode.
    MachineCall = 11,
    /// No page that may be executed is at this address.
    FetchPage = 12,
    /// No page that may be loaded from is at this address.
    LoadPage = 13,
    /// No page that may be stored to is at this address.
    StorePage = 15,
    /// A VarVE stream ends inside a value, or before it.
    StreamEnd = 24,
    /// A VarVE stream has no room for a value.
    StreamFull = 25,
    /// A value of a VarVE stream is wider than it may be, or has no code.
    StreamWidth = 26,
    /// A table of Huffman codes in which one code begins another.
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
    /// Its cause.
    pub cause: Cause,
    /// Address of the instruction.
    pub pc: u64,
    /// The address that it could not reach, or its bits if it is illegal.
    pub value: u64,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at pc {:#x} (value {:#x})", self.cause, self.pc, self.value)
    }
}

impl std::error::Error for Trap {}
