//! The modelled clock of nandarray: what a described device takes, in time and energy, for the commands that the store
//! executes.
//!
//! Discrete events in integer picoseconds, deterministic ([`nandarray_sim`]); every part is described by [`describe`],
//! whose numbers name their unit and source.
//!
//! | module | one idea |
//! | --- | --- |
//! | `spans` | what can be busy, for timelines |
//! | `describe` | descriptions in TOML, presets, MQSim's XML |
//! | `flash` | channels, dies, planes: phases, arbitration, errors, energy |
//! | `ftl` | conventional, page-mapped flash management under the clock |
//! | `host` | link, queues, processor cost |
//! | `workload` | traces and synthetic generators |
//! | `footprint` | what a command of the store asks of the flash, and where its pages lie |
//! | `machine` | one platform: fabric, link and clients on one event loop |
//! | `report` | what came out: time, percentiles, energy, utilisation |
//! | `replay` | a workload on a described device, from settings to a report |
//! | `timeline` | spans as a trace for Perfetto |
//! | `store` | the array store under the modelled clock |

pub mod describe;
pub mod flash;
pub mod footprint;
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
