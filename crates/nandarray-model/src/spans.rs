//! The tracks of a modelled device (parts that can be busy), and the spans that these report to a timeline.
//!
//! Without a sink of spans, a part spends only one branch on reporting.

use crate::flash::OpCause;

/// A track of a timeline: one part of the device or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    /// A host core, by its number.
    HostCore(u32),
    /// The link in the direction of the device.
    LinkDown,
    /// The link in the direction of the host.
    LinkUp,
    /// A controller core, by its number.
    Core(u32),
    /// A controller stage that is separate hardware, by its index in `ControllerSettings::stage_cores`.
    Stage(u32),
    /// The DRAM port.
    Dram,
    /// A core that runs programs, by its number; its spans are its states.
    Compute(u32),
    /// The crossbar's port of a core that runs programs, by the core's number.
    Crossbar(u32),
    /// A channel bus, by its number.
    Channel(u32),
    /// A die, by its number within the device: sensing, programming, erasing.
    Die(u32),
    /// Requests of the host from submission to completion, which may overlap, by the number of their queue pair.
    Request(u32),
}

/// An interval in which a part of the device was busy.
pub type DeviceSpan = nandarray_sim::BusySpan<Track, OpCause>;

/// A receiver of a device's spans.
pub trait DeviceSpanSink: nandarray_sim::SpanSink<DeviceSpan> {}

impl<T: nandarray_sim::SpanSink<DeviceSpan> + ?Sized> DeviceSpanSink for T {}
