//! An accelerator that governs itself: kernels on worker cores in front of flash (FlashAbacus), and the same cores
//! behind a conventional host.
//!
//! Schedulers are those of `nandarray_runtime::schedule`, over the same board as on the wall clock. Kernels are phantom
//! calls: cycles and bytes of each microblock come from the caller, who measures screens on a timed core at reduced
//! sizes ([`cost`]). The bytes' way is modelled in full sizes: page groups through Flashvisor's core, dies, channels,
//! the backbone's link, DDR3L.
//!
//! | file | one idea |
//! | --- | --- |
//! | `platform` | the parts and their rates: Table 1, and the host |
//! | `run` | the event loop: workers, windows, page groups |
//! | `host` | the conventional system, one kernel at a time |
//! | `results` | times by part, energy in three parts, utilisation |
//! | `cost` | a screen on a timed core |

pub mod cost;
mod host;
mod platform;
mod results;
mod run;

pub use host::run_host;
pub use platform::AcceleratorPlatform;
pub use results::{AcceleratorReport, KernelTimes, ScreenSpan};
pub use run::{PhantomBlock, PhantomKernel, run_accelerator};
