//! Records: requests as a line of a trace describes them, and the trait of the parsers that read such lines.

use std::collections::VecDeque;

use super::RequestOp;
use nandarray_sim::Ps;

/// Issue time of a recorded request: absolute, or relative to the request before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordTime {
    /// Time since the beginning of the trace.
    At(Ps),
    /// The request is issued as soon as the previous one has completed, but not earlier than this long after the end of
    /// the last pause.
    After(Ps),
}

/// A request as a line of a trace describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceRecord {
    pub(super) when: RecordTime,
    pub(super) op: RequestOp,
    pub(super) stream: u32,
    /// Number of the trace's file, since each file has its own offsets; 0 for traces of one device.
    pub(super) file: u32,
    pub(super) offset_bytes: u64,
    pub(super) bytes: u64,
}

/// Whether more requests may follow a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterLine {
    /// More requests may follow.
    More,
    /// No request follows, but a summary.
    End,
}

/// Description of the text that was expected in place of the one found.
pub(super) type Expected = String;

/// Parses a whole number; `what` names the number in the error.
pub(super) fn number(field: Option<&str>, what: &str) -> Result<u64, Expected> {
    field.and_then(|f| f.parse().ok()).ok_or_else(|| format!("{what}, a whole number"))
}

/// A parser of one format of traces.
pub(super) trait LineParser: Send {
    /// Parses a line, and appends its requests to `out`.
    fn line(&mut self, text: &str, out: &mut VecDeque<TraceRecord>) -> Result<AfterLine, Expected>;
}
