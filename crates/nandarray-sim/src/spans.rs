//! Busy spans: a resource, an interval, the work done and its cause. Parts report them to a sink, for a timeline.
//!
//! The simulation defines the types of tracks and causes. In a part without a sink, reporting costs one branch.

use crate::time::Ps;

/// An interval in which the resource of track `T` was busy, with the cause `C` of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusySpan<T, C> {
    /// The busy resource's track: its row on the timeline.
    pub track: T,
    /// Begin of the interval.
    pub start: Ps,
    /// End of the interval.
    pub end: Ps,
    /// The work, in a word or two: "sense", "data out", "program", "translate".
    pub what: &'static str,
    /// The cause of the work, in the simulation's own terms.
    pub cause: C,
    /// A number that identifies the work within the track, such as a block's or a request's.
    pub detail: u64,
}

/// A receiver of spans `S`, in the order in which they are booked.
pub trait SpanSink<S>: Send {
    /// Receives one span.
    fn span(&mut self, span: S);
}
