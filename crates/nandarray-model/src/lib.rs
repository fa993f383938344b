//! The modelled clock of nandarray: the time and energy that a described device needs for the commands of the store.
//!
//! A deterministic discrete-event simulation in integer picoseconds ([`nandarray_sim`]); every number of a device is
//! [described](describe) with its unit and source.
//!
//! | module | one idea |
//! | --- | --- |
//! | `accelerator` | kernels at once on cores in front of flash, and behind a host |
//! | `fetch` | warps, or a CPU, that fetch from several devices over one link |
//! | `spans` | tracks of parts that can be busy, for timelines |
//! | `describe` | descriptions in TOML, presets, MQSim's XML |
//! | `flash` | channels, dies, planes: phases, arbitration, errors, energy |
//! | `ftl` | conventional, page-mapped flash management on the modelled clock |
//! | `host` | link, queues, processor cost |
//! | `workload` | traces and synthetic generators |
//! | `flash_trace` | flash operations of a command of the store, and the layout of its pages |
//! | `machine` | one platform: fabric, link and clients on one event loop |
//! | `report` | results of a run: time, percentiles, energy, utilisation |
//! | `replay` | a workload on a described device, from settings to a report |
//! | `timeline` | spans as a trace for Perfetto |
//! | `store` | the array store on the modelled clock |

#[allow(unreachable_pub, reason = "inner layers; the list below says what is public")]
mod accelerator;
pub mod describe;
#[allow(unreachable_pub, reason = "as accelerator")]
mod fetch;
#[allow(unreachable_pub, reason = "as accelerator")]
mod flash;
#[allow(unreachable_pub, reason = "as accelerator")]
mod flash_trace;
#[allow(unreachable_pub, reason = "as accelerator")]
mod ftl;
#[allow(unreachable_pub, reason = "as accelerator")]
mod host;
#[allow(unreachable_pub, reason = "as accelerator")]
mod machine;
#[allow(unreachable_pub, reason = "as accelerator")]
mod replay;
#[allow(unreachable_pub, reason = "as accelerator")]
mod report;
#[allow(unreachable_pub, reason = "as accelerator")]
mod spans;
pub mod store;
#[allow(unreachable_pub, reason = "as accelerator")]
mod timeline;
#[allow(unreachable_pub, reason = "as accelerator")]
mod workload;

// Times of the model.
pub use nandarray_sim::Ps;

// A platform, and requests for it. Stores on one are in `store`, descriptions in `describe`.
pub use machine::{DriveProgress, Machine, Notification, PlatformPart, RequestEnded, RequestStatus};
pub use machine::{FirmwareStage, Programmed, Totals};
pub use machine::{SpaceJobDone, SpaceJobId, SpaceJobKind};

// Cells of a platform's flash, with faults around them, and an account of its times and energy.
pub use flash::{BitErrors, Cells, DeadDie, NandCells, PageAddress, SlowDie, Verdict};
pub use flash::{BusTime, DieTime, FlashAccount, FlashEnergy};

// Workloads: generators and traces.
pub use workload::{ArrayBox, BoxRequests, Boxes};
pub use workload::{Arrival, Generator, Pattern, SECTOR_BYTES, Size, Skew, Synthetic};
pub use workload::{BlktraceEvent, Trace, TraceFormat, TraceSettings};
pub use workload::{IoRequest, RequestList, RequestOp, RequestSource, WorkloadError};

// A workload on a described device, from settings to a report.
pub use replay::{Precondition, ReplayError, ReplayPhase, ReplaySettings, TimelineSettings, Workload, replay};

// Results of a run.
pub use report::{CacheReport, ComponentReport, CoreTimes, ProgramsReport, TimedCoresReport};
pub use report::{CauseCounts, FlashReport, ManagementReport, WearReport};
pub use report::{EnergyReport, IdleReport, PaceReport, Slept, Utilisation};
pub use report::{Latencies, Latency, OpReport, Report, ReportImbalance};
pub use report::{Promise, WorkloadProfile, promises};

// Spans: the times at which parts were busy, and the reasons.
pub use flash::{OpCause, OpKind};
pub use spans::{DeviceSpan, DeviceSpanSink, Track};
pub use timeline::{Timeline, TimelineEnd, TimelineOptions};

// Kernels on a modelled accelerator, and the same behind a host.
pub use accelerator::{AcceleratorOptions, AcceleratorPlatform, AcceleratorSession};
pub use accelerator::{AcceleratorReport, Activity, KernelTimes, ScreenSpan, StorengineCounts};
pub use accelerator::{PhantomBlock, PhantomKernel, run_accelerator, run_host};
pub use accelerator::{ScreenCost, screen_cost};

// Warps, or a CPU, that fetch from several devices.
pub use fetch::{AccessRecord, FetchPlatform, FetchRecording, FetchReport, TouchKind, run_fetches};

/// Inner layers, for their own benchmarks and fuzzing; not part of the public interface.
#[doc(hidden)]
pub mod internals {
    pub use crate::flash::{Backend, FlashEvent, FlashOp};
    pub use crate::ftl::{FtlError, MapOp, PageMapped, Urgency};
    pub use crate::workload::fuzz::trace as fuzzed_trace;
}
