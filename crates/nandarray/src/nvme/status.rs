//! Status codes, and their mapping from the engine's errors.
//!
//! A status is the completion entry's status field without its phase tag: SC in bits 7:0, SCT in 10:8, DNR ("do not
//! retry") in bit 14 (NVMe base 2.0, figures 93 to 99). The constants carry the DNR bit that they are answered with: it
//! is set where the same command would fail again. Codes C0h to FFh of type 1 are a vendor's; those of the N-D commands
//! are ours.

use std::fmt;

use crate::error::Error;

const DNR: u16 = 1 << 14;

/// Status of a completed command.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $sct:literal, $sc:literal, $dnr:expr, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($sct << 8 | $sc | if $dnr { DNR } else { 0 });)*

            /// Every status that is answered, with the specification's name for it.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, $text)),*];
        }
    };
}

statuses! {
    /// Done.
    SUCCESS = 0, 0x00, false, "Successful Completion";
    /// No such command.
    INVALID_OPCODE = 0, 0x01, true, "Invalid Command Opcode";
    /// A field has a value that is reserved or not supported.
    INVALID_FIELD = 0, 0x02, true, "Invalid Field in Command";
    /// The engine is in a state that it should not be in.
    INTERNAL_ERROR = 0, 0x06, true, "Internal Error";
    /// The command was cancelled before it began.
    ABORTED = 0, 0x07, false, "Command Abort Requested";
    /// No namespace has this id.
    INVALID_NAMESPACE = 0, 0x0b, true, "Invalid Namespace or Format";
    /// The lent buffer has another length or direction than the command.
    DATA_LENGTH_INVALID = 0, 0x0f, true, "Data SGL Length Invalid";
    /// The store is open for reading only.
    WRITE_PROTECTED = 0, 0x20, true, "Namespace is Write Protected";
    /// Too many commands are in flight, or it would wait for ever for others.
    INTERRUPTED = 0, 0x21, false, "Command Interrupted";
    /// A logical block, or an element of a view, lies outside.
    LBA_OUT_OF_RANGE = 0, 0x80, true, "LBA Out of Range";
    /// Capacity or disk used up.
    CAPACITY_EXCEEDED = 0, 0x81, true, "Capacity Exceeded";
    /// The store is closed, or takes no writes since a flush failed.
    NOT_READY = 0, 0x82, true, "Namespace Not Ready";
    /// A copy is longer, or has more ranges, than the namespace says.
    SIZE_LIMIT_EXCEEDED = 1, 0x83, true, "Command Size Limit Exceeded";
    /// No space has this identifier or name.
    SPACE_NOT_FOUND = 1, 0xc0, true, "Space Not Found";
    /// The name of a space to create is taken.
    SPACE_EXISTS = 1, 0xc1, true, "Space Exists";
    /// A view's volume differs from its space's.
    VOLUME_MISMATCH = 1, 0xc2, true, "View Volume Mismatch";
    /// No open view has this dynamic space id, or its space was deleted.
    INVALID_DSID = 1, 0xc3, true, "Invalid Dynamic Space Identifier";
    /// The limit of open views is reached.
    TOO_MANY_VIEWS = 1, 0xc4, false, "Too Many Open Views";
    /// The medium did not take a write.
    WRITE_FAULT = 2, 0x80, false, "Write Fault";
    /// A page cannot be read, or is not what was written.
    UNRECOVERED_READ_ERROR = 2, 0x81, true, "Unrecovered Read Error";
    /// The data differ.
    COMPARE_FAILURE = 2, 0x85, true, "Compare Failure";
    /// The space is encrypted, and the key is missing or another one.
    ACCESS_DENIED = 2, 0x86, true, "Access Denied";
}

impl Status {
    /// From the 15 bits of a completion entry's status field.
    pub fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7fff)
    }

    /// The 15 bits of a completion entry's status field.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Status code type.
    pub fn sct(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Status code.
    pub fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Whether a retry of the same command is expected to fail as well.
    pub fn dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// Whether the command did what it should.
    pub fn ok(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// The specification's name.
    pub fn name(self) -> &'static str {
        let same = |s: &Self| s.sct() == self.sct() && s.sc() == self.sc();
        Self::ALL.iter().find(|(s, _)| same(s)).map_or("Unknown Status", |(_, name)| name)
    }

    fn retry(self) -> Self {
        Self(self.0 & !DNR)
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:x}h/{:02x}h{})", self.name(), self.sct(), self.sc(), if self.dnr() { ", DNR" } else { "" })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl From<&Error> for Status {
    /// The table of docs/reference/nvme.md.
    fn from(error: &Error) -> Self {
        match error {
            Error::Invalid(_) => Self::INVALID_FIELD,
            Error::OutOfRange { .. } => Self::LBA_OUT_OF_RANGE,
            Error::VolumeMismatch { .. } => Self::VOLUME_MISMATCH,
            Error::NotFound { .. } => Self::SPACE_NOT_FOUND,
            Error::Exists { .. } => Self::SPACE_EXISTS,
            Error::ReadOnly => Self::WRITE_PROTECTED,
            Error::Full { .. } => Self::CAPACITY_EXCEEDED,
            // The system may recover; a page that is not what was written stays so.
            Error::Media { op: "read", .. } => Self::UNRECOVERED_READ_ERROR.retry(),
            Error::Media { .. } => Self::WRITE_FAULT,
            Error::Corrupt(_) | Error::Checksum { .. } => Self::UNRECOVERED_READ_ERROR,
            Error::WrongKey { .. } => Self::ACCESS_DENIED,
            Error::Closed(_) => Self::NOT_READY,
            Error::Busy(_) => Self::INTERRUPTED,
            Error::Cancelled => Self::ABORTED,
            // Errors of opening a store, which no command meets, and of commands that have no NVMe entry.
            Error::FileExists { .. }
            | Error::FileMissing { .. }
            | Error::Locked { .. }
            | Error::NotAStore { .. }
            | Error::Version { .. }
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
    fn codes_are_those_of_the_specification() {
        // Base 2.0, figures 94 to 99: SCT and SC as one number.
        let code = |s: Status| u16::from(s.sct()) << 8 | u16::from(s.sc());
        assert_eq!(code(Status::LBA_OUT_OF_RANGE), 0x080);
        assert_eq!(code(Status::WRITE_PROTECTED), 0x020);
        assert_eq!(code(Status::SIZE_LIMIT_EXCEEDED), 0x183);
        assert_eq!(code(Status::UNRECOVERED_READ_ERROR), 0x281);
        assert_eq!(code(Status::COMPARE_FAILURE), 0x285);
        assert!(Status::SUCCESS.ok() && !Status::COMPARE_FAILURE.ok());
        assert_eq!(format!("{}", Status::LBA_OUT_OF_RANGE), "LBA Out of Range (0h/80h, DNR)");
    }

    #[test]
    fn no_code_is_given_twice() {
        for (i, (a, _)) in Status::ALL.iter().enumerate() {
            assert_eq!(Status::from_bits(a.bits()), *a);
            for (b, _) in &Status::ALL[..i] {
                assert!((a.sct(), a.sc()) != (b.sct(), b.sc()), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_medium_that_may_recover_is_retried() {
        let media = |op| Error::Media { op, offset: 0, len: 1, source: io::Error::other("x") };
        assert!(!Status::from(media("read")).dnr());
        assert_eq!(Status::from(media("read")).name(), "Unrecovered Read Error");
        assert_eq!(Status::from(media("write")), Status::WRITE_FAULT);
    }
}
