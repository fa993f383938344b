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

pub mod accelerator;
pub mod describe;
pub mod fetch;
pub mod flash;
pub mod flash_trace;

pub mod ftl;
pub mod host;
pub mod machine;
pub mod replay;
pub mod report;
pub mod spans;
pub mod store;
pub mod timeline;
pub mod workload;

pub use nandarray_sim::Ps;
