//! One core and one program: loads programs from files, and calls their entry points on cores.
//!
//! A [`Program`] is a RISC-V ELF and its metadata (docs/reference/program-abi.md). A [`Core`] holds the memory of one
//! worker and calls the program's entry points, one task after another; a program can access its memory, its scratchpad
//! and its windows, and nothing else. `nandarray-runtime` cuts inputs into tasks and decides which task runs next and
//! where.
//!
//! A [`Call`] is one call of a program that can be interrupted and resumed: the caller fills its inputs between runs.
//!
//! A [`Processor`] executes instructions: the interpreter of `nandarray-hart` is one. A trusted program can be called
//! as functions of this process instead ([`Native`]). A [`CoreTimer`] makes cores that count the ticks of a described
//! core ([`nandarray_uarch`]).

pub mod abi;
mod call;
pub mod check;
mod core;
mod element;
mod error;
mod inflow;
mod json;
pub mod kernel;
pub mod kernel_metered;
mod kernel_table;
mod metadata;
mod native;
mod processor;
mod profile;
mod program;
mod task;
mod timer;

pub use crate::core::{Bounds, Core};
pub use call::{Advance, Call, OwnedTask};
pub use element::ElementType;
pub use error::{LoadError, RunError, Site};
pub use inflow::Inflow;
pub use metadata::{
    ALL_BYTES, Bound, InputPort, Metadata, OutputPhase, OutputPort, PackedInput, ProgramKind, Records, ScalarPort,
    Tasks,
};
pub use native::{Form, Native};
pub use processor::{HartOwner, OwnedHart, Processor};
pub use profile::Profiler;
pub use program::{EntryPoint, Program};
pub use task::{BorrowedTask, TaskPlace};
pub use timer::{CallMark, CoreFigures, CoreTimer, check, timed_core, timed_hart};
