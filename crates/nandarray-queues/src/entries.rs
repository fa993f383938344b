//! The entries and status codes of NVMe that this crate uses: all imports of them are in this file.

pub(crate) use nandarray::nvme::{Controller, DataBuffer};
use nandarray_nvme_spec::Opcode;
pub(crate) use nandarray_nvme_spec::{BlockPart, Blocks, NSID_ALL, Status, SubmissionEntry};

/// Opcode of Flush.
pub(crate) const FLUSH: u8 = Opcode::FLUSH;
/// Opcode of Write.
pub(crate) const WRITE: u8 = Opcode::WRITE;
/// Opcode of Read.
pub(crate) const READ: u8 = Opcode::READ;

/// Status of a pair whose client broke the queue's protocol: vendor specific, the same value as in the C++ client.
pub(crate) const BROKEN: u32 = 0x7c4;
