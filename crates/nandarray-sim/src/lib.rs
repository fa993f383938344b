//! The kernel of discrete-event simulations: integer time, an event queue, busy spans, booked resources.
//!
//! It knows no devices and depends on nothing of the project; the model's flash, firmware, cores and hosts stand on it.
//! A simulation owns one [`Events`] of its own event type, pops an event and hands it to the part that it belongs to;
//! parts push events, book [`Resource`]s, and report a [`BusySpan`] to a [`SpanSink`] for each busy time. Nothing here
//! reads a clock or draws a random number, so that the same pushes give the same run on every machine.
//!
//! **Order.** Events at one time happen in the order of their pushes. A part that waits for another is woken by an
//! event that the other pushes, hence in the order (time, order of request).
//!
//! | module | one idea |
//! | --- | --- |
//! | `time` | integer picoseconds |
//! | `events` | the queue of pending events |
//! | `spans` | busy intervals, for timelines |
//! | `resource` | servers that are booked first come, first served; ports that move bytes |

pub mod events;
pub mod resource;
pub mod spans;
pub mod time;

pub use events::Events;
pub use resource::{Booked, Resource, TransferPort, energy_pj};
pub use spans::{BusySpan, SpanSink};
pub use time::Ps;
