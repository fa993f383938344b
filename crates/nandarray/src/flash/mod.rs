//! The flash: its geometry, its addresses, and the records that accompany each page.
//!
//! Parts: [`geometry`] is arithmetic on addresses; [`layout`] maps addresses to offsets on the medium; [`oob`] declares
//! out-of-band records and segment headers. Timing, energy and faults of modelled devices are not part of this crate.
//! This layer does not know who owns a page.

pub mod geometry;
pub mod layout;
pub mod oob;

pub use geometry::{Geometry, Ppa, Run, Segment};
pub use layout::{Area, Layout};
pub use oob::{OobRecord, Owner, SegmentHeader, SegmentKind, crc32c};
