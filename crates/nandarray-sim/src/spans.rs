//! Busy spans: what was busy when, with what and for whom. Parts hand them to a taker, for a timeline.
//!
//! Tracks and causes are types of the simulation. A part without a taker spends one branch on this.

use crate::time::Ps;

/// One busy time of a track `T` on behalf of `C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<T, C> {
    /// What was busy.
    pub track: T,
    /// From.
    pub start: Ps,
    /// Until.
    pub end: Ps,
    /// With what, in a word or two: "sense", "data out", "program", "translate".
    pub what: &'static str,
    /// For whom.
    pub cause: C,
    /// Tells it apart from others of the track: the number of a block or a request.
    pub detail: u64,
}

/// Takes spans `S` as they end, in the order in which they are known.
pub trait Spans<S>: Send {
    /// Takes one more.
    fn span(&mut self, span: S);
}
