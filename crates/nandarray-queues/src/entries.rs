//! The entries and status codes of NVMe that this crate uses: all imports of them are in this file.

pub(crate) use nandarray::nvme::{Controller, DataBuffer, Status, SubmissionEntry};

/// Opcode of Flush.
pub(crate) const FLUSH: u8 = 0x00;
/// Opcode of Write.
pub(crate) const WRITE: u8 = 0x01;
/// Opcode of Read.
pub(crate) const READ: u8 = 0x02;

/// Status of a pair whose client broke the queue's protocol: vendor specific, the same value as in the C++ client.
pub(crate) const BROKEN: u32 = 0x7c4;
