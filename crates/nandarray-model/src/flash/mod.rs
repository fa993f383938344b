//! The flash back end of a modelled device: channels, chips, dies and planes, the operations on them, and when these
//! end.
//!
//! | file | one idea |
//! | --- | --- |
//! | `operation` | operations on physical pages and blocks |
//! | `slab` | queues of waiting operations: slots and intrusive links, no allocation once grown |
//! | `times` | a description's times, ready to be added up |
//! | `die`, `channel` | states of a die and a bus |
//! | `policy/` | the next operation of a die, the next grant of a bus: one small file a policy |
//! | `backend` | `submit` and `handle`: the phases of an operation, joined |
//! | `gather` | the operations of one command |
//! | `commands` | the effect of a bus grant on a die |
//! | `cells`, `reliability` | times and failures of cells |
//! | `fault` | slow and dead dies, bit errors, as wrappers of `cells` |
//! | `account` | bytes, counts, busy time, energy; and that they add up |

pub mod account;
pub mod backend;
pub mod cells;
mod channel;
mod commands;
mod die;
pub mod fault;
mod gather;
pub mod operation;
mod policy;
pub mod reliability;
mod slab;
mod times;

#[cfg(test)]
mod tests;

pub use account::{BusTime, DieTime, FlashAccount, FlashEnergy};
pub use backend::{Backend, FlashEvent};
pub use cells::{Cells, NandCells, Verdict};
pub use fault::{BitErrors, DeadDie, SlowDie};
pub use operation::*;
