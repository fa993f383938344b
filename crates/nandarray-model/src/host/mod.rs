//! The host's side of the model: the link, queue pairs and their arbitration, and processor cost.
//!
//! All of these are booked, not simulated: work is booked on a resource when it arrives, and the booking gives its
//! begin and end at once. No events are scheduled here.

pub mod cpu;
pub mod link;
pub mod queues;
#[cfg(test)]
mod tests;

pub use cpu::HostCpu;
pub use link::{Direction, HostLink, Sent};
pub use nandarray_sim::Booked;
pub use queues::Queues;

/// A resource of the device that is booked first come, first served: cores, firmware stages, a direction of the link.
pub type DeviceResource = nandarray_sim::Resource<crate::spans::Track>;

/// The device's DRAM port.
pub type DevicePort = nandarray_sim::TransferPort<crate::spans::Track>;
