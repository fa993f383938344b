//! Limits of a hart's run, and the reasons why a run ends.

use std::fmt;
use std::sync::atomic::AtomicBool;

use crate::trap::Trap;

/// Limits of one run of a hart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits<'l> {
    /// Most instructions to execute, `None` for no limit; traps of a bare machine count, too.
    pub instructions: Option<u64>,
    /// A flag by which another thread requests that the run stop soon.
    pub stop: Option<&'l AtomicBool>,
}

/// The reason why a run ended. The hart's program counter is at the next instruction to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The program's function returned.
    Returned {
        /// The function's result: register `a0`.
        code: u64,
    },
    /// A `StreamLoad` needs more bytes than are left until the end of the input; a stream program usually ends in this
    /// way.
    InputExhausted {
        /// Number of the input stream.
        stream: u8,
        /// Number of bytes left until the input's end: fewer than the load's width.
        left: u8,
    },
    /// The hart waits until more bytes of an input have arrived.
    WaitInput {
        /// Number of the input stream.
        stream: u8,
    },
    /// The hart waits until an output has more room.
    WaitOutput {
        /// Number of the output stream.
        stream: u8,
    },
    /// A `StreamStore` would exceed the most bytes that the output may have.
    OutputFull {
        /// Number of the output stream.
        stream: u8,
    },
    /// The program executed `ecall`; the program counter is after it.
    EnvironmentCall,
    /// A trap occurred that nothing in the program handles.
    Trap(Trap),
    /// The limit on instructions was reached.
    InstructionLimit,
    /// The stop flag was set.
    Interrupted,
    /// The meter paused the hart before the next instruction, which the meter will observe again.
    Paused,
    /// A bare machine wrote this value to `tohost`.
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
