//! The flash: its geometry, its addresses, and what stands beside each page.
//!
//! Cut: [`geometry`] is arithmetic on addresses; [`layout`] tells where they lie on the medium; [`oob`] declares the
//! records beside pages and at the head of segments. Timing, energy and faults of a modelled device will be further
//! files here. This layer does not know who owns a page.

pub mod geometry;
pub mod layout;
pub mod oob;

pub use geometry::{Geometry, Ppa, Run, Segment};
pub use layout::{Area, Layout};
pub use oob::{OobRecord, Owner, SegmentHeader, SegmentKind, crc32c};
