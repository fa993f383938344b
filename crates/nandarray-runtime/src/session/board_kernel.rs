//! A kernel as it is submitted to a board, and the reasons for which a board refuses one.

use nandarray::SharedRange;

use crate::schedule::KernelFacts;

/// A submitted kernel, as a board sees it.
#[derive(Clone, Debug, Default)]
pub struct BoardKernel {
    /// The kernel's name, by which other kernels may depend on it; empty if it has none.
    pub name: String,
    /// Properties by which the kernel is scheduled; the board sets the number. Application `u64::MAX` stands for a new
    /// application, which only this kernel belongs to.
    pub facts: KernelFacts,
    /// Numbers of the kernels that must end before this kernel begins.
    pub after: Vec<u64>,
    /// Names of the kernels that must end before this kernel begins; they may be submitted later.
    pub after_names: Vec<String>,
    /// For each microblock the fewest and the most screens that it can be divided into; (1, 1) is a serial microblock.
    pub microblocks: Vec<(u64, u64)>,
    /// Ranges of data that the kernel reads and writes, and locks until it ends.
    pub ranges: Vec<SharedRange>,
    /// Bytes of memory that the kernel needs while it runs.
    pub bytes: u64,
}

/// The reason why a board refused a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BoardError {
    /// Kernels would wait for each other in a circle.
    #[error("these kernels would wait for each other: {}", names.join(" -> "))]
    Circle {
        /// Names of the kernels, each of which waits for the next; the first is repeated at the end.
        names: Vec<String>,
    },
    /// The session has, or had, a kernel with this name.
    #[error("there is a kernel named {0:?} in this session")]
    Name(String),
    /// The kernel depends on this number, which no kernel of the session has yet.
    #[error("there is no kernel {0} in this session yet; a kernel that is submitted later has to be named")]
    Number(u64),
    /// The kernel needs more memory than the session has.
    #[error("kernel {name:?} needs {needed} bytes of memory; the session has {bound}")]
    Memory {
        /// Name of the kernel.
        name: String,
        /// Bytes of memory that the kernel needs.
        needed: u64,
        /// Bytes of memory that the session has.
        bound: u64,
    },
    /// The kernel with this name has no microblock, or a microblock without a screen.
    #[error("kernel {0:?} has a microblock without a screen, or no microblock")]
    Empty(String),
}
