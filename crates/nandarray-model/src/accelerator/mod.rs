//! An accelerator that governs itself: kernels on worker cores in front of flash (FlashAbacus), and the same cores
//! behind a conventional host.
//!
//! Schedulers are those of `nandarray_runtime::schedule`, over the same board as on the wall clock. Kernels are phantom
//! calls: cycles and bytes of each microblock come from the caller, who measures screens on a timed core at reduced
//! sizes ([`cost`]). The bytes' way is modelled in full sizes: page groups through Flashvisor's core, dies, channels,
//! the backbone's link, DDR3L; outputs return to flash behind DDR3L's buffer. A session of a store may use the same
//! machine for real bytes ([`AcceleratorSession`]).
//!
//! | file | one idea |
//! | --- | --- |
//! | `platform` | the parts and their rates: Table 1, and the host |
//! | `machine` | the event loop: workers, windows, failures |
//! | `storage` | page groups to and from flash; Flashvisor's and Storengine's cores |
//! | `run` | phantom kernels |
//! | `session` | kernels of a store, on real bytes |
//! | `host` | the conventional system, one kernel at a time |
//! | `results` | times by part, energy in three parts, utilisation |
//! | `cost` | a screen on a timed core |

mod cost;
mod host;
mod machine;
mod platform;
mod results;
mod run;
mod session;
mod storage;
#[cfg(test)]
mod tests;

pub use cost::{ScreenCost, screen_cost};
pub use host::run_host;
pub use platform::AcceleratorPlatform;
pub use results::{AcceleratorReport, Activity, KernelTimes, ScreenSpan};
pub use run::{PhantomBlock, PhantomKernel, run_accelerator};
pub use session::{AcceleratorOptions, AcceleratorSession};
pub use storage::StorengineCounts;
