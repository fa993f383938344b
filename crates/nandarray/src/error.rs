//! The errors of the engine, as one closed list with the offending numbers in it.
//!
//! Bad input and failing media are errors; a broken invariant of our own is a panic. [`Error::kind`] gives the stable,
//! append-only string that doors (Python, wire) map from; a test of the Python package holds both lists equal. This
//! module does not decide when something is wrong, and holds no wording of a door ("shape", "dtype" are the door's).

use std::fmt;
use std::io;

/// The kind of holder that keeps a store from being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Another writer.
    Writer,
    /// Readers, under whom a store is not emptied.
    Readers,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Writer => "another store object or process has it open for writing",
            Self::Readers => {
                "others have it open for reading, and it is not emptied under them; close these, or open it with \
                 mode 'r+'"
            }
        })
    }
}

/// Everything that a command can fail with. A failed command changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No space has this name or id.
    #[error("no array named {name:?} in this store")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The name is taken.
    #[error("an array named {name:?} exists already")]
    Exists {
        /// The name.
        name: String,
    },
    /// The store file exists, and the mode creates it.
    #[error("{path} exists already")]
    FileExists {
        /// The path of the file.
        path: String,
    },
    /// There is no store file.
    #[error("{path} does not exist")]
    FileMissing {
        /// The path of the file.
        path: String,
    },
    /// An argument is wrong in itself.
    #[error("{0}")]
    Invalid(String),
    /// A view has another volume than its space.
    #[error(
        "a view of shape {} cannot be taken of an array of shape {}: the number of elements differs",
        Shape(.view),
        Shape(.space)
    )]
    VolumeMismatch {
        /// Shape of the space.
        space: Vec<u64>,
        /// Shape of the view.
        view: Vec<u64>,
    },
    /// A coordinate lies outside the space.
    #[error("index {index} is out of bounds for axis {axis} with size {size}")]
    OutOfRange {
        /// The axis, from 0.
        axis: usize,
        /// The largest coordinate requested.
        index: u128,
        /// The size of that axis.
        size: u64,
    },
    /// A broken invariant of the engine: a panic that was caught at the entrance. The store takes no more commands.
    #[error(
        "a fault of nandarray itself, not of the data or the caller: {0}; this store object takes no more commands: \
         close it, and open it again"
    )]
    Internal(String),
    /// The store is open for reading only.
    #[error("the store is open for reading only")]
    ReadOnly,
    /// Another store object or process holds the store.
    #[error("{path} is locked: {by}")]
    Locked {
        /// The path of the file.
        path: String,
        /// Its holder.
        by: Holder,
    },
    /// Capacity or disk used up.
    #[error("the store is full: {what} (capacity {capacity_bytes} bytes, {live_bytes} live)")]
    Full {
        /// The purpose of the room that was requested.
        what: String,
        /// The configured capacity, or the size of the file where the disk is the limit.
        capacity_bytes: u64,
        /// Bytes in live pages.
        live_bytes: u64,
    },
    /// The medium reported an error.
    #[error("{op}{} failed: {source}", MediaRange(*.offset, *.len))]
    Media {
        /// The operation, e.g. "write".
        op: &'static str,
        /// Byte offset in the medium.
        offset: u64,
        /// Length in bytes.
        len: u64,
        /// The operating system's word.
        source: io::Error,
    },
    /// Metadata holds what no version of this program writes.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// A page does not match its out-of-band record.
    #[error(
        "checksum mismatch in array {array:?}, building block {}, access unit {unit}, file offset {offset}: {what}",
        Shape(.block)
    )]
    Checksum {
        /// Name of the array.
        array: String,
        /// Coordinate of the building block.
        block: Vec<u64>,
        /// Access unit within the block.
        unit: u32,
        /// Byte offset in the medium.
        offset: u64,
        /// The comparison that failed, in words.
        what: String,
    },
    /// The file is no store.
    #[error("{path} is not a nandarray store: {what}")]
    NotAStore {
        /// The path of the file.
        path: String,
        /// The reason, in words.
        what: String,
    },
    /// A format that this program does not know.
    #[error("the store has format version {found}; this program reads versions up to {known}")]
    Version {
        /// Version in the file.
        found: u32,
        /// Newest version that this program knows.
        known: u32,
    },
    /// An encrypted space without its key.
    #[error("array {name:?} is encrypted: {what}")]
    WrongKey {
        /// Name of the array.
        name: String,
        /// "no key was given" or "the key is not the one ...".
        what: String,
    },
    /// The store was closed, or the space deleted.
    #[error("{0}")]
    Closed(String),
    /// A command cannot be taken, or would wait for ever for others in flight. Nothing of it was done.
    #[error("{0}")]
    Busy(String),
    /// A command in flight was cancelled before it began.
    #[error("the command was cancelled before it began")]
    Cancelled,
}

/// The stable strings of [`Error::kind`], in the order of their introduction. Append only.
pub const KINDS: [&str; 20] = [
    "not-found",
    "exists",
    "invalid",
    "volume-mismatch",
    "out-of-range",
    "read-only",
    "locked",
    "full",
    "media",
    "corrupt",
    "checksum",
    "not-a-store",
    "version",
    "wrong-key",
    "closed",
    "file-exists",
    "file-missing",
    "internal",
    "busy",
    "cancelled",
];

impl Error {
    /// The stable name of this kind of error, for doors.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not-found",
            Self::Exists { .. } => "exists",
            Self::FileExists { .. } => "file-exists",
            Self::FileMissing { .. } => "file-missing",
            Self::Invalid(_) => "invalid",
            Self::VolumeMismatch { .. } => "volume-mismatch",
            Self::OutOfRange { .. } => "out-of-range",
            Self::ReadOnly => "read-only",
            Self::Locked { .. } => "locked",
            Self::Full { .. } => "full",
            Self::Media { .. } => "media",
            Self::Corrupt(_) => "corrupt",
            Self::Checksum { .. } => "checksum",
            Self::NotAStore { .. } => "not-a-store",
            Self::Version { .. } => "version",
            Self::WrongKey { .. } => "wrong-key",
            Self::Closed(_) => "closed",
            Self::Busy(_) => "busy",
            Self::Cancelled => "cancelled",
            Self::Internal(_) => "internal",
        }
    }

    /// The operating system's error number behind this error, if one is.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Media { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Bad input, in a sentence with its numbers.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }
}

/// Prints the offset and length of an operation on a medium; nothing for the whole of it, (0, 0).
struct MediaRange(u64, u64);

impl fmt::Display for MediaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(0, 0) => Ok(()),
            Self(offset, len) => write!(f, " of {len} bytes at offset {offset}"),
        }
    }
}

/// The result of every fallible part of the engine.
pub type Result<T> = std::result::Result<T, Error>;

/// Prints a shape or coordinate as Python would: `(3, 4)`, `(3,)`, `()`.
pub struct Shape<'a>(pub &'a [u64]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [one] => write!(f, "({one},)"),
            many => {
                f.write_str("(")?;
                for (i, d) in many.iter().enumerate() {
                    write!(f, "{}{d}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_print_as_python_tuples() {
        assert_eq!(Shape(&[]).to_string(), "()");
        assert_eq!(Shape(&[3]).to_string(), "(3,)");
        assert_eq!(Shape(&[3, 4]).to_string(), "(3, 4)");
    }

    #[test]
    fn messages_carry_the_numbers() {
        let e = Error::OutOfRange { axis: 1, index: 7, size: 4 };
        assert_eq!(e.to_string(), "index 7 is out of bounds for axis 1 with size 4");
        assert!(KINDS.contains(&e.kind()));
    }
}
