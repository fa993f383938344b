//! Programs that run beside the data, and the cores that they run on, under the wall clock.
//!
//! A [`Program`] is a RISC-V ELF and its metadata (docs/reference/program-abi.md). [`run`] cuts inputs into tasks of whole
//! records, runs them on as many [`Core`]s as there are threads, gives outputs in the order of tasks and folds states in that
//! order, so that a result does not depend on how many cores there are. Where bytes come from and go to is the caller's
//! ([`Source`], [`Sink`]); a program reaches its memory, its scratchpad and its windows, and nothing else.
//!
//! A [`pipeline`] runs several programs at once, what one gives being what another takes.
//!
//! A [`Call`] is one call of a program that can be left and taken up again: somebody else fills its inputs between runs.
//!
//! What executes instructions is a [`Processor`]: the interpreter of `nandarray-hart` is one. A trusted program can be called as
//! functions of this process instead ([`Native`]). How long anything takes on a
//! described core is not told here.

pub mod abi;
mod board;
mod call;
mod core;
mod error;
mod held;
mod inflow;
mod metadata;
mod native;
mod pipeline;
mod processor;
mod profile;
mod program;
mod run;
mod stage;
mod tasks;

pub use crate::core::{Bounds, Core, Task};
pub use call::{Advance, Call, Job};
pub use error::{LoadError, RunError, Site, StageError};
pub use inflow::Inflow;
pub use metadata::{Bound, InputPort, Kind, Metadata, OutputPort, Phase, Records, ScalarPort};
pub use native::{Form, Native};
pub use pipeline::{Completed, Ended, Resources, pipeline};
pub use processor::Processor;
pub use profile::Profiler;
pub use program::{Entry, Program};
pub use run::{Account, Failure, HOLD_BYTES, Options, Outcome, Progress, Sink, Source, run};
pub use stage::{Feed, Maker, Stage};
