//! The host's side under the clock: the link, queue pairs and their arbitration, processor cost; and [`Resource`], what is busy
//! with one thing at a time, which firmware and DRAM are made of too.
//!
//! All of it is booked, not simulated: a part is asked *now* for a service and says at once when that begins and ends, in the
//! order of asking. Nothing here pushes events.

pub mod cpu;
pub mod link;
pub mod queues;
pub mod resource;

pub use cpu::HostCpu;
pub use link::{Direction, HostLink, Sent};
pub use queues::{Class, Fetched, QueueFull, Queues};
pub use resource::{Booked, Port, Resource};
