//! Busy spans: a resource, an interval, the work done and its cause. Parts report them to a sink, for a timeline.
//!
//! Tracks and causes are types of the simulation. A part without a sink spends one branch on this.

use crate::time::Ps;

/// An interval in which track `T` was busy, with its cause `C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusySpan<T, C> {
    /// The busy resource's track.
    pub track: T,
    /// Begin of the interval.
    pub start: Ps,
    /// End of the interval.
    pub end: Ps,
    /// The work, in a word or two: "sense", "data out", "program", "translate".
    pub what: &'static str,
    /// The cause of the work.
    pub cause: C,
    /// A number that identifies the work within the track: of a block or a request.
    pub detail: u64,
}

/// A receiver of spans `S`, in the order in which they are booked.
pub trait SpanSink<S>: Send {
    /// Receives one span.
    fn span(&mut self, span: S);
}
