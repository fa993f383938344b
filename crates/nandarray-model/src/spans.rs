//! The tracks of a modelled device: its parts that can be busy, and the spans that they hand to a timeline.
//!
//! A part that was built without a taker spends one branch on this.

use crate::flash::OpCause;

/// Something that can be busy with one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// A host core.
    HostCore(u32),
    /// The link, towards the device.
    LinkDown,
    /// The link, towards the host.
    LinkUp,
    /// A controller core.
    Core(u32),
    /// A controller stage that is hardware of its own, by its place in `Controller::stage_cores`.
    Stage(u32),
    /// The DRAM port.
    Dram,
    /// A channel bus.
    Channel(u32),
    /// A die of the whole device: sensing, programming, erasing.
    Die(u32),
    /// A host request from submission to completion; requests overlap, the number is the queue pair.
    Request(u32),
}

/// One busy time of a part of the device.
pub type Span = nandarray_sim::Span<Track, OpCause>;

/// Takes the spans of a device: whatever takes [`Span`]s.
pub trait Spans: nandarray_sim::Spans<Span> {}

impl<T: nandarray_sim::Spans<Span> + ?Sized> Spans for T {}
