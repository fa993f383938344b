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
    /// Another command of this queue has the same identifier and is not over.
    CID_CONFLICT = 0, 0x03, true, "Command ID Conflict";
    /// The engine is in a state that it should not be in.
    INTERNAL_ERROR = 0, 0x06, true, "Internal Error";
    /// The command was cancelled before it began.
    ABORTED = 0, 0x07, false, "Command Abort Requested";
    /// Commands arrive in another order than they have to.
    SEQUENCE_ERROR = 0, 0x0c, true, "Command Sequence Error";
    /// The SGL has another number of descriptors than one.
    SGL_COUNT_INVALID = 0, 0x0d, true, "Invalid Number of SGL Descriptors";
    /// The SGL descriptor is of a type that a queue does not take.
    SGL_TYPE_INVALID = 0, 0x11, true, "SGL Descriptor Type Invalid";
    /// Data within a capsule begins at another place than its start.
    SGL_OFFSET_INVALID = 0, 0x16, true, "SGL Offset Invalid";
    /// Data arrived damaged; the same command may succeed.
    TRANSIENT_TRANSPORT = 0, 0x22, false, "Transient Transport Error";
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
    /// More asynchronous events are requested than the controller holds.
    EVENT_LIMIT_EXCEEDED = 1, 0x05, true, "Asynchronous Event Request Limit Exceeded";
    /// There is no such log page.
    INVALID_LOG_PAGE = 1, 0x09, true, "Invalid Log Page";
    /// The feature cannot be changed.
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, true, "Feature Not Changeable";
    /// Connect has another record format than 0.
    CONNECT_FORMAT = 1, 0x80, true, "Connect Incompatible Format";
    /// The limit of controllers or connections is reached; the host may try again.
    CONNECT_BUSY = 1, 0x81, false, "Connect Controller Busy";
    /// A parameter of connect is wrong; dword 0 has its place.
    CONNECT_PARAMETER = 1, 0x82, true, "Connect Invalid Parameters";
    /// The host is not allowed to connect.
    CONNECT_HOST = 1, 0x84, true, "Connect Invalid Host";
    /// A copy is longer, or has more ranges, than the namespace says.
    SIZE_LIMIT_EXCEEDED = 1, 0x83, true, "Command Size Limit Exceeded";
    /// No more range sets, or boxes, can be stored.
    RESOURCES = 1, 0x89, false, "Insufficient Resources";
    /// No more programs can be loaded.
    PROGRAM_RESOURCES = 1, 0x8a, false, "Insufficient Program Resources";
    /// A memory range lies in a namespace that has no memory.
    MEMORY_NAMESPACE = 1, 0x8b, true, "Invalid Memory Namespace";
    /// A memory range lies outside of its namespace.
    MEMORY_RANGE = 1, 0x8c, true, "Invalid Memory Range Set";
    /// There is no such range set.
    RANGE_SET_ID = 1, 0x8d, true, "Invalid Memory Range Set Identifier";
    /// The bytes are no program that can run here.
    PROGRAM_DATA = 1, 0x8e, true, "Invalid Program Data";
    /// No such program index.
    PROGRAM_INDEX = 1, 0x8f, true, "Invalid Program Index";
    /// No such program type.
    PROGRAM_TYPE = 1, 0x90, true, "Invalid Program Type";
    /// More ranges than a command takes.
    RANGES_MAX = 1, 0x91, true, "Maximum Memory Ranges Exceeded";
    /// More range sets than the controller stores.
    RANGE_SETS_MAX = 1, 0x92, false, "Maximum Memory Range Sets Exceeded";
    /// The limit of active programs is reached.
    ACTIVATED_MAX = 1, 0x93, false, "Maximum Programs Activated";
    /// The limit of program bytes is reached.
    PROGRAM_BYTES_MAX = 1, 0x94, false, "Maximum Program Bytes Exceeded";
    /// An execution uses the range set.
    RANGE_SET_IN_USE = 1, 0x95, false, "Memory Range Set In Use";
    /// No program is loaded at this index.
    NO_PROGRAM = 1, 0x96, true, "No Program";
    /// Ranges of one set overlap.
    RANGES_OVERLAP = 1, 0x97, true, "Invalid Memory Range Set Overlap";
    /// The program is not activated.
    NOT_ACTIVATED = 1, 0x98, true, "Program Not Activated";
    /// An execution uses the program.
    PROGRAM_IN_USE = 1, 0x99, false, "Program In Use";
    /// The program is larger than the controller takes.
    PROGRAM_TOO_BIG = 1, 0x9b, true, "Program Too Big";
    /// The program ended in a trap, or went over a limit.
    PROGRAM_FAILED = 1, 0xc5, true, "Program Failed";
    /// No box has this handle.
    INVALID_BOX = 1, 0xc6, true, "Invalid Box Handle";
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
