//! The errors of the engine: one closed list, with the offending numbers.
//!
//! Bad input and failing media are errors; a broken invariant of the engine is a panic. [`Error::kind`] returns a
//! stable string, from an append-only list, by which interfaces (Python, NVMe) map errors; a test of the Python package
//! compares both lists. This module does not decide when something is wrong, and does not use the terms of an interface
//! ("dtype", for example).

use std::fmt;
use std::io;

/// The kind of other user that keeps a store from being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Another writer has the store open.
    Writer,
    /// Readers have the store open, so it cannot be emptied.
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

/// All errors of commands. A failed command has changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no space with this name.
    #[error("no array named {name:?} in this store")]
    NotFound {
        /// Name for which there is no space.
        name: String,
    },
    /// A space or a group with this name exists already.
    #[error("{} named {name:?} exists already", array_or_group(*.group))]
    Exists {
        /// Name that another space or group has already.
        name: String,
        /// Whether the name is that of a group: other names lie in it.
        group: bool,
    },
    /// There is no snapshot with this name.
    #[error("no snapshot named {name:?} in this store; it has {}", if has.is_empty() { "none" } else { has })]
    NoSnapshot {
        /// Name for which there is no snapshot.
        name: String,
        /// Names of the snapshots that there are.
        has: String,
    },
    /// A snapshot with this name exists already.
    #[error("a snapshot named {name:?} exists already")]
    SnapshotExists {
        /// Name that another snapshot has already.
        name: String,
    },
    /// The store file exists, but the mode demands that it is created.
    #[error("{path} exists already")]
    FileExists {
        /// Path of the file that exists already.
        path: String,
    },
    /// The store file does not exist.
    #[error("{path} does not exist")]
    FileMissing {
        /// Path of the missing file.
        path: String,
    },
    /// An argument is not valid; the string says why.
    #[error("{0}")]
    Invalid(String),
    /// A view has another number of elements than its space.
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
    /// A coordinate is outside the space.
    #[error("index {index} is out of bounds for axis {axis} with size {size}")]
    OutOfRange {
        /// Number of the axis along which a coordinate is outside, from 0.
        axis: usize,
        /// Largest requested coordinate along the axis.
        index: u128,
        /// Number of elements of the space along the axis.
        size: u64,
    },
    /// A broken invariant of the engine: a panic inside a command, which was caught. The store accepts no more
    /// commands.
    #[error(
        "a fault of nandarray itself, not of the data or the caller: {0}; this store object takes no more commands: \
         close it, and open it again"
    )]
    Internal(String),
    /// The store is open for reading only.
    #[error("the store is open for reading only")]
    ReadOnly,
    /// The rules of a served store let a host not write the array, or not make one of this name.
    #[error("this host may not write {name:?}")]
    Protected {
        /// Name of the array, or the name that it would have.
        name: String,
    },
    /// Another store object or process has the store open.
    #[error("{path} is locked: {by}")]
    Locked {
        /// Path of the file that is locked.
        path: String,
        /// The kind of user that has the store open.
        by: Holder,
    },
    /// The store's capacity or the disk is full.
    #[error("the store is full: {what} (capacity {capacity_bytes} bytes, {live_bytes} live)")]
    Full {
        /// Purpose for which room was needed, in words.
        what: String,
        /// Configured capacity in bytes, or the size of the file if the disk is the limit.
        capacity_bytes: u64,
        /// Number of bytes that live pages take in the store.
        live_bytes: u64,
    },
    /// The medium reported an error.
    #[error("{op}{} failed: {source}", MediaRange(*.offset, *.len))]
    Media {
        /// The operation of the medium that failed, e.g. "write".
        op: &'static str,
        /// Offset in the medium of the failed operation, in bytes.
        offset: u64,
        /// Length of the failed operation in bytes.
        len: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// Metadata is damaged: it has values that no version of this program writes.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// A page does not match its out-of-band record, or the owner that the index names.
    #[error(
        "checksum mismatch in array {array:?}, building block {}, access unit {unit}, file offset {offset}: {what}",
        Shape(.block)
    )]
    Checksum {
        /// Name of the array to which the damaged page belongs.
        array: String,
        /// Coordinate of the damaged building block, in blocks.
        block: Vec<u64>,
        /// Number of the damaged access unit within the block.
        unit: u32,
        /// Offset of the damaged page in the medium, in bytes.
        offset: u64,
        /// Description of the comparison that failed.
        what: String,
    },
    /// The file is not a store.
    #[error("{path} is not a nandarray store: {what}")]
    NotAStore {
        /// Path of the file that is not a store.
        path: String,
        /// The reason why the file is not a store, in words.
        what: String,
    },
    /// The store has a format version that this program does not know.
    #[error("the store has format version {found}; this program reads versions up to {known}")]
    Version {
        /// Format version of the file.
        found: u32,
        /// Newest format version that this program knows.
        known: u32,
    },
    /// The key of an encrypted space is missing or wrong.
    #[error("array {name:?} is encrypted: {what}")]
    WrongKey {
        /// Name of the encrypted array.
        name: String,
        /// Whether the key is missing or wrong, in words.
        what: String,
    },
    /// The store was closed, the space was deleted, or a transaction has ended.
    #[error("{0}")]
    Closed(String),
    /// A command was not accepted, or would wait for ever for other commands in flight. It has changed nothing.
    #[error("{0}")]
    Busy(String),
    /// The command was cancelled before it began.
    #[error("the command was cancelled before it began")]
    Cancelled,
}

/// The strings that [`Error::kind`] returns, in the order of their introduction; new ones are only appended.
pub const KINDS: [&str; 21] = [
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
    "protected",
];

fn array_or_group(group: bool) -> &'static str {
    if group { "a group" } else { "an array" }
}

impl Error {
    /// Returns the stable name of this kind of error, by which interfaces map it to errors of their own.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotFound { .. } | Self::NoSnapshot { .. } => "not-found",
            Self::Exists { .. } | Self::SnapshotExists { .. } => "exists",
            Self::FileExists { .. } => "file-exists",
            Self::FileMissing { .. } => "file-missing",
            Self::Invalid(_) => "invalid",
            Self::VolumeMismatch { .. } => "volume-mismatch",
            Self::OutOfRange { .. } => "out-of-range",
            Self::ReadOnly => "read-only",
            Self::Protected { .. } => "protected",
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

    /// Returns the operating system's error number; `None` if this is not an error of the medium, or has no number.
    pub fn os_error(&self) -> Option<i32> {
        match self {
            Self::Media { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Creates an [`Error::Invalid`] from a sentence that says what is wrong, with its numbers.
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt(what.into())
    }
}

/// Offset and length in bytes of an operation on a medium, for messages; (0, 0) is the whole medium, and is formatted
/// as nothing.
struct MediaRange(u64, u64);

impl fmt::Display for MediaRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(0, 0) => Ok(()),
            Self(offset, len) => write!(f, " of {len} bytes at offset {offset}"),
        }
    }
}

/// Result of the engine's functions that may fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A shape or coordinate, formatted as Python does: `(3, 4)`, `(3,)`, `()`.
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
    fn snapshots_are_missing_or_there_as_arrays_are() {
        let none = Error::NoSnapshot { name: "b".into(), has: "a, c".into() };
        let told = (none.kind(), none.to_string());
        assert_eq!(told, ("not-found", "no snapshot named \"b\" in this store; it has a, c".to_owned()));
        let there = Error::SnapshotExists { name: "a".into() };
        assert_eq!((there.kind(), &*there.to_string()), ("exists", "a snapshot named \"a\" exists already"));
    }

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

    #[test]
    fn every_error_has_a_kind_of_its_own_and_a_message_with_its_facts() {
        let os = || io::Error::from_raw_os_error(28);
        let of = |op, offset, len| Error::Media { op, offset, len, source: os() };
        let rows = [
            (Error::NotFound { name: "a\"b".into() }, r#"no array named "a\"b" in this store"#),
            (Error::Exists { name: "a".into(), group: false }, "an array named \"a\" exists already"),
            (Error::Invalid("3 of 2".into()), "3 of 2"),
            (
                Error::VolumeMismatch { space: vec![], view: vec![2] },
                "a view of shape (2,) cannot be taken of an array of shape (): the number of elements differs",
            ),
            (
                Error::OutOfRange { axis: 3, index: u128::MAX, size: 0 },
                "index 340282366920938463463374607431768211455 is out of bounds for axis 3 with size 0",
            ),
            (Error::ReadOnly, "the store is open for reading only"),
            (Error::Protected { name: "a".into() }, "this host may not write \"a\""),
            (
                Error::Locked { path: "p".into(), by: Holder::Writer },
                "p is locked: another store object or process has it open for writing",
            ),
            (
                Error::Full { what: "9 pages".into(), capacity_bytes: 7, live_bytes: 5 },
                "the store is full: 9 pages (capacity 7 bytes, 5 live)",
            ),
            (of("write", 4096, 512), "write of 512 bytes at offset 4096 failed: No space left on device (os error 28)"),
            (Error::Corrupt("x 1".into()), "the store is damaged: x 1"),
            (
                Error::Checksum { array: "a".into(), block: vec![1, 2], unit: 3, offset: 4, what: "crc".into() },
                "checksum mismatch in array \"a\", building block (1, 2), access unit 3, file offset 4: crc",
            ),
            (
                Error::NotAStore { path: "p".into(), what: "it is empty".into() },
                "p is not a nandarray store: it is empty",
            ),
            (
                Error::Version { found: 9, known: 3 },
                "the store has format version 9; this program reads versions up to 3",
            ),
            (Error::WrongKey { name: "a".into(), what: "no key".into() }, "array \"a\" is encrypted: no key"),
            (Error::Closed("over".into()), "over"),
            (Error::FileExists { path: "p".into() }, "p exists already"),
            (Error::FileMissing { path: "p".into() }, "p does not exist"),
            (Error::Busy("5 in flight".into()), "5 in flight"),
            (Error::Cancelled, "the command was cancelled before it began"),
        ];
        let mut kinds: Vec<&str> = rows.iter().map(|(error, _)| error.kind()).collect();
        for (error, text) in rows {
            assert_eq!(error.to_string(), text);
            assert_eq!(error.os_error(), matches!(error, Error::Media { .. }).then_some(28), "{error}");
        }
        let internal = Error::Internal("index 5 of 3".into());
        assert!(
            internal.to_string().starts_with("a fault of nandarray itself") && internal.to_string().contains("5 of 3")
        );
        assert_eq!(of("sync", 0, 0).to_string(), "sync failed: No space left on device (os error 28)");
        kinds.push(internal.kind());
        kinds.sort_unstable();
        let mut known = KINDS;
        known.sort_unstable();
        assert_eq!(kinds, known, "each kind once");
        let without = Error::Media { op: "read", offset: 1, len: 2, source: io::Error::other("odd") };
        assert_eq!(
            (without.os_error(), without.to_string().as_str()),
            (None, "read of 2 bytes at offset 1 failed: odd")
        );
    }
}
