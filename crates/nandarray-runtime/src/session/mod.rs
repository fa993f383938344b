//! Sessions: many kernels at once beside one store, ordered by a scheduler.
//!
//! | file | one idea |
//! | --- | --- |
//! | `board_kernel` | a kernel as it is submitted, and the reasons to refuse one |
//! | `board` | the state machine: dependencies, ranges, memory, microblocks, ready screens |
//! | `kernels` | loaded kernels, and the requests by which they are submitted |
//! | `mapping` | sections: read, mapped for a screen, written at the end |
//! | `job` | a submitted kernel: its sections, progress and result |
//! | `crew` | worker threads of this host that do a board's work |

pub(crate) mod board;
pub(crate) mod board_kernel;
pub(crate) mod crew;
pub(crate) mod job;
pub(crate) mod kernels;
pub(crate) mod mapping;
