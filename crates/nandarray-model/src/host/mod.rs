//! The host's side under the clock: the link, queue pairs and their arbitration, processor cost; and the resources of
//! the device by their tracks.
//!
//! All of it is booked, not simulated: a service is booked when the work arrives, and the booking says at once when it
//! begins and ends. Nothing here pushes events.

pub mod cpu;
pub mod link;
pub mod queues;

pub use cpu::HostCpu;
pub use link::{Direction, HostLink, Sent};
pub use nandarray_sim::Booked;
pub use queues::{FetchedCommand, QueueClass, QueueFull, Queues};

/// Servers of the device that are booked first come, first served: cores, firmware stages, directions of the link.
pub type DeviceResource = nandarray_sim::Resource<crate::spans::Track>;

/// The device's DRAM port.
pub type DevicePort = nandarray_sim::TransferPort<crate::spans::Track>;
