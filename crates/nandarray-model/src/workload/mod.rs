//! What a device is asked for: requests, one at a time, from a generator or a trace. Nothing here knows a device but
//! its size.
//!
//! A source is pulled: the machine asks for the next request when it can use it, so a trace of any length takes no
//! memory. Open loop: every request says when it arrives, whatever the device is doing. Closed loop: a source says how
//! many it keeps on their way, and the next is asked for when one has completed.

mod blktrace;
pub mod boxes;
mod fio;
#[doc(hidden)]
pub mod fuzz;
mod msr;
pub mod skew;
pub mod synthetic;
pub mod trace;

use std::collections::VecDeque;

use nandarray_sim::Ps;

pub use boxes::{BoxRequests, Boxes};
pub use skew::Skew;
pub use synthetic::{Arrival, Generator, Pattern, SECTOR_BYTES, Size, Synthetic};
pub use trace::{BlktraceEvent, Format, Trace, TraceSettings};

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RequestOp {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Tells that bytes are not needed any more (deallocate, discard).
    Trim,
    /// Makes durable what was written; no bytes.
    Flush,
}

impl RequestOp {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Trim, Self::Flush];

    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Trim => "trim",
            Self::Flush => "flush",
        }
    }
}

/// One request of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// When it arrives. `None`: as soon as one that is on its way has completed (closed loop); in a closed loop,
    /// `Some`: then too, but not before this time (a pause).
    pub at: Option<Ps>,
    /// What.
    pub op: RequestOp,
    /// Whose: requests of a stream use one queue pair (the stream's number modulo the pairs there are).
    pub stream: u32,
    /// First byte.
    pub offset_bytes: u64,
    /// How many; 0 for a flush.
    pub bytes: u64,
}

/// What is wrong with a trace or with what a generator was asked for.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A line that is not what the format says.
    #[error("line {line} of {format}: expected {expected}, found {text:?}")]
    Line {
        /// Counted from 1.
        line: u64,
        /// Which format, in words.
        format: &'static str,
        /// What should stand there.
        expected: String,
        /// The line, or its first 80 characters.
        text: String,
    },
    /// A parameter out of range, in a sentence with its value and its range.
    #[error("{0}")]
    Parameter(String),
    /// The trace could not be read.
    #[error("reading the trace failed near line {line}: {error}")]
    Io {
        /// The line that was being read, counted from 1.
        line: u64,
        /// Why.
        error: std::io::Error,
    },
}

/// Gives requests.
pub trait Source: Send {
    /// The next request, asked for at a time; `None` when there are no more. Arrivals do not run backwards.
    ///
    /// # Errors
    /// If a trace cannot be read or has a malformed line.
    fn next(&mut self, now: Ps) -> Result<Option<Request>, WorkloadError>;

    /// How many requests a closed loop keeps on their way; `None` for an open loop.
    fn depth(&self) -> Option<u32>;

    /// How much has been given, from 0 to 1, where that can be told.
    fn progress(&self, now: Ps) -> Option<f64>;

    /// What had to be changed to replay it, a sentence each; for the report.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Requests from a list, for tests and for what a program made itself.
#[derive(Clone, Debug)]
pub struct Listed {
    requests: VecDeque<Request>,
    total: usize,
    depth: Option<u32>,
}

impl Listed {
    /// These requests, in this order. With `depth`, their arrivals are ignored.
    pub fn new(requests: impl IntoIterator<Item = Request>, depth: Option<u32>) -> Self {
        let requests: VecDeque<_> = requests.into_iter().collect();
        Self { total: requests.len(), requests, depth }
    }
}

impl Source for Listed {
    fn next(&mut self, _now: Ps) -> Result<Option<Request>, WorkloadError> {
        let next = self.requests.pop_front();
        Ok(next.map(|r| Request { at: if self.depth.is_some() { None } else { r.at.or(Some(Ps::ZERO)) }, ..r }))
    }

    fn depth(&self) -> Option<u32> {
        self.depth
    }

    fn progress(&self, _now: Ps) -> Option<f64> {
        Some(1.0 - self.requests.len() as f64 / self.total.max(1) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_open_or_closed() {
        let request = Request { at: Some(Ps(5)), op: RequestOp::Read, stream: 0, offset_bytes: 0, bytes: 512 };
        let mut open = Listed::new([request, Request { at: None, ..request }], None);
        assert_eq!(open.next(Ps::ZERO).unwrap(), Some(request));
        assert_eq!(open.progress(Ps::ZERO), Some(0.5));
        assert_eq!(open.next(Ps::ZERO).unwrap().unwrap().at, Some(Ps::ZERO));
        assert_eq!(open.next(Ps::ZERO).unwrap(), None);
        let mut closed = Listed::new([request], Some(4));
        assert_eq!((closed.depth(), closed.next(Ps::ZERO).unwrap().unwrap().at), (Some(4), None));
    }
}
