//! Requests for a device, one at a time, from a generator or a trace. A workload knows only the size of the device.
//!
//! The machine takes the next request of a source when it can submit it, so a trace of any length needs no memory. In
//! an open loop, every request has a time of arrival, whatever the device is doing. In a closed loop, a source has a
//! queue depth, and the machine takes the next request when one has completed.

mod blktrace;
mod boxes;
mod fio;
pub mod fuzz;
mod msr;
mod record;
mod skew;
mod synthetic;
mod trace;

use std::collections::VecDeque;

use nandarray_sim::Ps;

pub use blktrace::BlktraceEvent;
pub use boxes::{ArrayBox, BoxRequests, Boxes};
pub use skew::Skew;
pub use synthetic::{Arrival, Generator, Pattern, SECTOR_BYTES, Size, Synthetic};
pub use trace::{Trace, TraceFormat, TraceSettings};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum RequestOp {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Marks bytes as no longer needed (deallocate, discard).
    Trim,
    /// Makes all earlier writes durable; has no bytes.
    Flush,
}

/// One request of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoRequest {
    /// Time of arrival. In a closed loop, `None` if the request is submitted as soon as a request in flight has
    /// completed; a time if it must also not be submitted earlier (after a pause).
    pub at: Option<Ps>,
    /// Operation of the request.
    pub op: RequestOp,
    /// Number of its stream: requests of a stream use one queue pair (the stream's number modulo the number of pairs).
    pub stream: u32,
    /// Offset of the first byte on the device.
    pub offset_bytes: u64,
    /// Number of bytes; 0 for a flush.
    pub bytes: u64,
}

/// The error of a trace or of a generator's settings.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A line does not conform to the format.
    #[error("line {line} of {format}: expected {expected}, found {text:?}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// Name of the format.
        format: &'static str,
        /// Description of the expected text.
        expected: String,
        /// The line, or its first 80 characters.
        text: String,
    },
    /// A parameter is out of range; the sentence names its value and its range.
    #[error("{0}")]
    Parameter(String),
    /// The trace could not be read.
    #[error("reading the trace failed near line {line}: {error}")]
    Io {
        /// Number of the line at which reading failed, from 1.
        line: u64,
        /// The error of reading.
        error: std::io::Error,
    },
}

/// A source of requests.
pub trait RequestSource: Send {
    /// Returns the next request, which is taken at time `now`; `None` when there are no more. Times of arrival do not
    /// decrease.
    ///
    /// # Errors
    /// If a trace cannot be read or has a malformed line.
    fn next(&mut self, now: Ps) -> Result<Option<IoRequest>, WorkloadError>;

    /// Returns the queue depth of a closed loop; `None` for an open loop.
    fn depth(&self) -> Option<u32>;

    /// Returns the fraction of requests that was taken, from 0 to 1; `None` if it is not known.
    fn progress(&self, now: Ps) -> Option<f64>;

    /// Returns the changes to requests that replaying required, a sentence each, for the report.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Requests from a list, for tests and for callers with requests of their own.
#[derive(Clone, Debug)]
pub struct RequestList {
    requests: VecDeque<IoRequest>,
    total: usize,
    depth: Option<u32>,
}

impl RequestList {
    /// Makes a source of these requests, in this order. With a queue `depth`, their times of arrival are ignored.
    pub fn new(requests: impl IntoIterator<Item = IoRequest>, depth: Option<u32>) -> Self {
        let requests: VecDeque<_> = requests.into_iter().collect();
        Self { total: requests.len(), requests, depth }
    }
}

impl RequestSource for RequestList {
    fn next(&mut self, _now: Ps) -> Result<Option<IoRequest>, WorkloadError> {
        let next = self.requests.pop_front();
        Ok(next.map(|r| IoRequest { at: if self.depth.is_some() { None } else { r.at.or(Some(Ps::ZERO)) }, ..r }))
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
        let request = IoRequest { at: Some(Ps(5)), op: RequestOp::Read, stream: 0, offset_bytes: 0, bytes: 512 };
        let mut open = RequestList::new([request, IoRequest { at: None, ..request }], None);
        assert_eq!(open.next(Ps::ZERO).unwrap(), Some(request));
        assert_eq!(open.progress(Ps::ZERO), Some(0.5));
        assert_eq!(open.next(Ps::ZERO).unwrap().unwrap().at, Some(Ps::ZERO));
        assert_eq!(open.next(Ps::ZERO).unwrap(), None);
        let mut closed = RequestList::new([request], Some(4));
        assert_eq!((closed.depth(), closed.next(Ps::ZERO).unwrap().unwrap().at), (Some(4), None));
    }
}
