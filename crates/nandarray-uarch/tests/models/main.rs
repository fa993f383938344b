//! Promise: parts of the timing agree with second, slow implementations: operands with the hart's own effects, caches
//! with lists of lines, schedules with their dependences, shared memory with memory of one's own, descriptions with the
//! ranges that they state.

#[path = "../common/mod.rs"]
mod common;

mod caches;
mod descriptions;
mod operands;
mod ports;
mod schedules;
