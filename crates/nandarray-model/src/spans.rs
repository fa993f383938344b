//! Where the parts tell what they were busy with: spans of time on tracks, for a timeline and for the hash of a run.
//!
//! A part that was built without a sink spends one branch on this.

use crate::flash::Cause;
use crate::time::Ps;

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

/// One busy time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Whose.
    pub track: Track,
    /// From.
    pub start: Ps,
    /// Until.
    pub end: Ps,
    /// With what, in a word or two: "sense", "data out", "program", "translate".
    pub what: &'static str,
    /// For whom.
    pub cause: Cause,
    /// Something to tell it apart by: a block, a request.
    pub detail: u64,
}

/// Takes spans as they end, in the order in which they are known.
pub trait Spans: Send {
    /// One more.
    fn span(&mut self, span: Span);
}
