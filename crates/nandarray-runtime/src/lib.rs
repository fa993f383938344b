//! Programs that run beside the data: they are loaded, scheduled and executed over the spaces of a store.
//!
//! The crate builds on the engine (`nandarray`: boxes of spaces are a program's inputs, staged writes are its outputs),
//! on `nandarray-cores` (one core executes one program) and on the translator (`nandarray-jit`). A [`Runtime`] holds
//! the programs that are loaded beside a device, and runs those that an [`Execution`] names.
//!
//! A [`Session`] runs many kernels at once: their microblocks and screens ([`nandarray_cores::kernel`]) are ordered by
//! a scheduler ([`schedule`]) on a [`SessionBoard`], which a modelled machine uses as well.
//!
//! Below that, [`pipeline`](fn@pipeline) runs stages over any [`InputSource`] and [`OutputSink`]. The work is divided
//! in two: the [`Agenda`] decides which task is ready, in which order tasks run and when a producer must wait, and
//! executes nothing; an [`Executor`] does the jobs. [`Threads`] is the executor on the wall clock. Results are the
//! same bytes on every executor.

mod agenda;
mod context;
mod cut;
mod error;
mod execute;
mod executor;
mod halo;
mod inputs;
mod io;
mod job;
mod outputs;
mod pipeline;
mod programs;
mod progress;
mod queue;
mod request;
pub mod schedule;
mod scheduler;
mod session;
mod share;
mod shares;
mod stage;
mod tiles;
mod typed;
mod work;

pub use agenda::{Agenda, Completed, StageDone};
pub use error::{Error, KINDS, Result, StageError};
pub use execute::Runtime;
pub use executor::{Executor, Threads};
pub use halo::{Boundary, Halo};
pub use io::{Delivery, InputLocation, InputSource, OutputSink, TransferError};
pub use job::{Job, JobKind, JobStep};
pub use pipeline::{HOLD_BYTES, pipeline};
pub use programs::{ProgramId, translates};
pub use progress::{Account, CollectBudget, Progress, TASK_INSTRUCTIONS_MIN, ThreadObserver};
pub use request::{Executed, ExecutedStage, Execution, Input, Output, OutputValue, StageRequest};
pub use scheduler::Next;
pub use session::board::{BoardError, BoardKernel, BoardWork, KernelEnd, KernelState, ScreenJob, SessionBoard};
pub use session::crew::{Session, SessionOptions, UnendedKernel, WORKERS_MAX};
pub use session::job::{Collected, SavedRows, SessionJob};
pub use session::kernels::{
    KernelForm, KernelRequest, LoadedKernel, SectionBinding, SectionBox, SectionSource, SectionTarget,
};
pub use share::{Share, TaskCuts};
pub use stage::{CoreFactory, Origin, Stage};
pub use tiles::Tiles;

/// The scheduler of the guide `add-a-scheduler.md`, compiled and run as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guides/add-a-scheduler.md")]
struct AddAScheduler;
