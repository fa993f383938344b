//! One core and one program: programs as files, and the cores that call their entry points.
//!
//! A [`Program`] is a RISC-V ELF and its metadata (docs/reference/program-abi.md). A [`Core`] holds the memory of one
//! worker and calls the program's entry points, one task after another; a program reaches its memory, its scratchpad
//! and its windows, and nothing else. Cutting inputs into tasks, and deciding which task runs next and where, belong to
//! `nandarray-runtime`.
//!
//! A [`Call`] is one call of a program that can be left and taken up again: the caller fills its inputs between runs.
//!
//! A [`Processor`] executes instructions: the interpreter of `nandarray-hart` is one. A trusted program can be called
//! as functions of this process instead ([`Native`]). A [`CoreTimer`] makes cores that count the ticks of a described
//! core ([`nandarray_uarch`]).

pub mod abi;
mod call;
pub mod check;
mod core;
mod error;
mod inflow;
pub mod kernel;
pub mod kernel_metered;
mod kernel_table;
mod metadata;
mod native;
mod processor;
mod profile;
mod program;
mod timer;

pub use crate::core::{BorrowedTask, Bounds, Core};
pub use call::{Advance, Call, OwnedTask};
pub use error::{LoadError, RunError, Site};
pub use inflow::Inflow;
pub use metadata::{Bound, InputPort, Metadata, OutputPhase, OutputPort, ProgramKind, Records, ScalarPort};
pub use native::{Form, Native};
pub use processor::{HartOwner, OwnedHart, Processor};
pub use profile::Profiler;
pub use program::{EntryPoint, Program};
pub use timer::{CoreFigures, CoreTimer, check, timed_core};
