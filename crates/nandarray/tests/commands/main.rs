//! Promise: a command that is refused, or that fails in the middle, has changed nothing, and says why with its numbers.
//!
//! One file for each cause: arguments (`refusals`), reads of the medium (`reads`), creations that fail (`creation`),
//! transactions that are given up (`transactions`), staged writes that are dropped (`compounds`), repairs that end in
//! the middle (`repairs`), and readers in the way (`readers`). Failing writes of other commands are in disk.rs, losses
//! of power among them in power_loss.rs.

#[path = "../common/mod.rs"]
mod common;

mod compounds;
mod creation;
mod readers;
mod reads;
mod refusals;
mod repairs;
mod transactions;
