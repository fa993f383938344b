//! The mapping of the engine's errors to status codes.

use nandarray_nvme_spec::Status;

use crate::error::Error;

impl From<&Error> for Status {
    /// Converts an error by the table in docs/reference/nvme.md.
    fn from(error: &Error) -> Self {
        match error {
            Error::Invalid(_) => Self::INVALID_FIELD,
            Error::OutOfRange { .. } => Self::LBA_OUT_OF_RANGE,
            Error::VolumeMismatch { .. } => Self::VOLUME_MISMATCH,
            Error::NotFound { .. } => Self::SPACE_NOT_FOUND,
            Error::Exists { .. } => Self::SPACE_EXISTS,
            Error::ReadOnly | Error::Protected { .. } => Self::WRITE_PROTECTED,
            Error::Full { .. } => Self::CAPACITY_EXCEEDED,
            // A failed read may succeed later; a damaged page stays damaged.
            Error::Media { op: "read", .. } => Self::UNRECOVERED_READ_ERROR.retry(),
            Error::Media { .. } => Self::WRITE_FAULT,
            Error::Corrupt(_) | Error::Checksum { .. } => Self::UNRECOVERED_READ_ERROR,
            Error::WrongKey { .. } => Self::ACCESS_DENIED,
            Error::Closed(_) => Self::NOT_READY,
            Error::Busy(_) => Self::INTERRUPTED,
            Error::Cancelled => Self::ABORTED,
            // Errors of opening a store, which commands cannot have, and of commands without an NVMe opcode.
            Error::FileExists { .. }
            | Error::FileMissing { .. }
            | Error::Locked { .. }
            | Error::NotAStore { .. }
            | Error::Version { .. }
            | Error::NoSnapshot { .. }
            | Error::SnapshotExists { .. }
            | Error::Internal(_) => Self::INTERNAL_ERROR,
        }
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_medium_that_may_recover_is_retried() {
        let media = |op| Error::Media { op, offset: 0, len: 1, source: io::Error::other("x") };
        assert!(!Status::from(media("read")).dnr());
        assert_eq!(Status::from(media("read")).name(), "Unrecovered Read Error");
        assert_eq!(Status::from(media("write")), Status::WRITE_FAULT);
    }
}
