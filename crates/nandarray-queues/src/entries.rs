//! The entries and status codes of NVMe that this crate uses: one place for their import.

pub(crate) use nandarray::nvme::{Controller, DataBuffer, Status, SubmissionEntry};

/// Flush.
pub(crate) const FLUSH: u8 = 0x00;
/// Write.
pub(crate) const WRITE: u8 = 0x01;
/// Read.
pub(crate) const READ: u8 = 0x02;

/// A client broke the protocol of its queue: vendor specific, as the C++ client has it.
pub(crate) const BROKEN: u32 = 0x7c4;
