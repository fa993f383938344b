//! Warps that fetch for themselves from several devices over one link (BaM), and the same requests submitted by a CPU.
//!
//! The accesses are a recording of the real header (`python/nandarray/gpu/include`): tasks of a kernel's phases, each
//! a row of groups of accesses that a warp issues together. Devices are described, each a [`crate::machine::Machine`]
//! of its own with its link; behind them is one shared link. In front of that are the warps, the slices that execute
//! atomics, the queue pairs' critical sections and, where a CPU submits, its threads. The kernels' arithmetic is one
//! time for each group; their results are the recording's.
//!
//! | file | one idea |
//! | --- | --- |
//! | `platform` | the parts and their rates |
//! | `recording` | accesses as columns, checked |
//! | `drives` | the devices, and the way of a request through a device and the shared link |
//! | `run` | the event loop: tasks on warps, groups, fetches that several tasks wait for |
//! | `results` | times, counts, shares |

mod drives;
mod platform;
mod recording;
mod results;
mod run;

pub use platform::FetchPlatform;
pub use recording::{AccessRecord, FetchRecording, TouchKind};
pub use results::FetchReport;
pub use run::run_fetches;
