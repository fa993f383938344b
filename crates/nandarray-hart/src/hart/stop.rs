//! Limits of a run of a hart, and the reasons for which one ends.

use std::fmt;
use std::sync::atomic::AtomicBool;

use crate::trap::Trap;

/// Limits of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'l> {
    /// The most instructions that are executed; a bare machine's traps count, too.
    pub instructions: Option<u64>,
    /// Set by another thread: stop soon.
    pub stop: Option<&'l AtomicBool>,
}

/// The reason why a run ended. The hart's program counter is at the instruction to go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The function returned.
    Returned {
        /// Register `a0`.
        code: u64,
    },
    /// A `StreamLoad` from an input that ends before all it needs: the usual end of a stream program.
    InputExhausted {
        /// Its number.
        stream: u8,
        /// Bytes up to its end: fewer than the load's width.
        left: u8,
    },
    /// More bytes of an input are needed.
    WaitInput {
        /// Its number.
        stream: u8,
    },
    /// More room in an output is needed.
    WaitOutput {
        /// Its number.
        stream: u8,
    },
    /// A `StreamStore` to an output that has all the bytes that it may have.
    OutputFull {
        /// Its number.
        stream: u8,
    },
    /// `ecall` of a program; it is already behind it.
    EnvironmentCall,
    /// A trap that nothing in the program handles.
    Trap(Trap),
    /// The limit on instructions is used up.
    InstructionLimit,
    /// The stop flag was set.
    Interrupted,
    /// The hart's meter paused it before the next instruction, which it observes again later.
    Paused,
    /// A bare machine wrote this to `tohost`.
    ToHost(u64),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned { code } => write!(f, "returned {code}"),
            Self::InputExhausted { stream, left } => write!(f, "input stream {stream} is exhausted, {left} bytes left"),
            Self::WaitInput { stream } => write!(f, "waits for input stream {stream}"),
            Self::WaitOutput { stream } => write!(f, "waits for room in output stream {stream}"),
            Self::OutputFull { stream } => write!(f, "output stream {stream} is full"),
            Self::EnvironmentCall => f.write_str("environment call"),
            Self::Trap(trap) => write!(f, "{trap}"),
            Self::InstructionLimit => f.write_str("instruction limit reached"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Paused => f.write_str("paused"),
            Self::ToHost(value) => write!(f, "wrote {value} to tohost"),
        }
    }
}
