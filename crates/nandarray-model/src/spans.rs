//! The tracks of a modelled device: its parts that can be busy, and the spans that they report to a timeline.
//!
//! A part that was built without a sink spends one branch on this.

use crate::flash::OpCause;

/// A track of a timeline: a part of the device or the host.
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
    /// A controller stage that is hardware of its own, by its index in `Controller::stage_cores`.
    Stage(u32),
    /// The DRAM port.
    Dram,
    /// A core that runs programs, by its state.
    Compute(u32),
    /// The crossbar's port of such a core.
    Crossbar(u32),
    /// A channel bus.
    Channel(u32),
    /// A die of the whole device: sensing, programming, erasing.
    Die(u32),
    /// A host request from submission to completion; requests overlap, the number is the queue pair.
    Request(u32),
}

/// An interval in which a part of the device was busy.
pub type DeviceSpan = nandarray_sim::BusySpan<Track, OpCause>;

/// A receiver of a device's spans.
pub trait DeviceSpanSink: nandarray_sim::SpanSink<DeviceSpan> {}

impl<T: nandarray_sim::SpanSink<DeviceSpan> + ?Sized> DeviceSpanSink for T {}
