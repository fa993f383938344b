//! The flash back end under the clock: channels, chips, dies, planes; what they are asked for and when they are done.
//!
//! | file | one idea |
//! | --- | --- |
//! | `operation` | what is asked for |
//! | `slab` | where operations wait: slots and intrusive queues, no allocation once grown |
//! | `times` | a description's times, ready to be added up |
//! | `die`, `channel` | what a die and a bus are doing |
//! | `policy/` | who goes next: one small file each |
//! | `backend` | `submit` and `handle`: the phases of an operation, joined |
//! | `gather` | which operations go into one command |
//! | `commands` | what a grant of the bus does to a die |
//! | `cells`, `reliability` | how long cells take, when they fail |
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

pub use account::{Account, BusTime, DieTime, FlashEnergy};
pub use backend::{Backend, FlashEvent};
pub use cells::{Cells, NandCells, Verdict};
pub use operation::*;
