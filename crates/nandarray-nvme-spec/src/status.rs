//! NVMe status codes.
//!
//! A status is the completion entry's status field without its phase tag: SC in bits 7:0, SCT in bits 10:8, DNR ("do
//! not retry") in bit 14 (NVMe base 2.0, figures 93 to 99). The constants include the DNR bit with which they are
//! returned: it is set if the same command would fail again. Codes C0h to FFh of type 1 are vendor specific; those of
//! the N-D commands are defined here.

use std::fmt;

const DNR: u16 = 1 << 14;

impl Status {
    /// The host has to prove its identity on this queue first. Codes of type 1 are specific to commands: a command with
    /// memory ranges has another meaning for this one.
    pub const AUTHENTICATION_REQUIRED: Self = Self::RANGES_MAX;
}

/// Status of a completed command.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $sct:literal, $sc:literal, $dnr:expr, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($sct << 8 | $sc | if $dnr { DNR } else { 0 });)*

            /// All statuses that are returned, with their names in the specification.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, $text)),*];
        }
    };
}

statuses! {
    /// The command succeeded.
    SUCCESS = 0, 0x00, false, "Successful Completion";
    /// There is no command with this opcode.
    INVALID_OPCODE = 0, 0x01, true, "Invalid Command Opcode";
    /// A field has a value that is reserved or not supported.
    INVALID_FIELD = 0, 0x02, true, "Invalid Field in Command";
    /// Another command of this queue that has not completed has the same identifier.
    CID_CONFLICT = 0, 0x03, true, "Command ID Conflict";
    /// The engine has failed: an invariant is broken.
    INTERNAL_ERROR = 0, 0x06, true, "Internal Error";
    /// The command was cancelled before it began.
    ABORTED = 0, 0x07, false, "Command Abort Requested";
    /// Commands arrived in an order that is not allowed.
    SEQUENCE_ERROR = 0, 0x0c, true, "Command Sequence Error";
    /// The number of SGL descriptors is not one.
    SGL_COUNT_INVALID = 0, 0x0d, true, "Invalid Number of SGL Descriptors";
    /// The SGL descriptor has a type that a queue does not support.
    SGL_TYPE_INVALID = 0, 0x11, true, "SGL Descriptor Type Invalid";
    /// The data in a capsule does not begin at the capsule's data offset 0.
    SGL_OFFSET_INVALID = 0, 0x16, true, "SGL Offset Invalid";
    /// A report without the structures for identifiers of 128 bits is requested.
    HOST_ID_FORMAT = 0, 0x18, true, "Host Identifier Inconsistent Format";
    /// Data was damaged in transport; a retry may succeed.
    TRANSIENT_TRANSPORT = 0, 0x22, false, "Transient Transport Error";
    /// There is no namespace with this identifier.
    INVALID_NAMESPACE = 0, 0x0b, true, "Invalid Namespace or Format";
    /// The host's buffer has a length or direction that does not fit the command.
    DATA_LENGTH_INVALID = 0, 0x0f, true, "Data SGL Length Invalid";
    /// The store is open for reading only.
    WRITE_PROTECTED = 0, 0x20, true, "Namespace is Write Protected";
    /// Too many commands are in flight, or the command would wait for ever for other commands.
    INTERRUPTED = 0, 0x21, false, "Command Interrupted";
    /// A logical block is outside its namespace, or an element outside its view.
    LBA_OUT_OF_RANGE = 0, 0x80, true, "LBA Out of Range";
    /// The store's capacity or the disk is full.
    CAPACITY_EXCEEDED = 0, 0x81, true, "Capacity Exceeded";
    /// The store is closed, or accepts no writes since a flush failed.
    NOT_READY = 0, 0x82, true, "Namespace Not Ready";
    /// A reservation of the namespace excludes the host, or the host is no registrant, or has another key.
    RESERVATION_CONFLICT = 0, 0x83, true, "Reservation Conflict";
    /// The host has requested more asynchronous events than the controller keeps.
    EVENT_LIMIT_EXCEEDED = 1, 0x05, true, "Asynchronous Event Request Limit Exceeded";
    /// There is no log page with this identifier.
    INVALID_LOG_PAGE = 1, 0x09, true, "Invalid Log Page";
    /// The feature cannot be changed.
    FEATURE_NOT_CHANGEABLE = 1, 0x0e, true, "Feature Not Changeable";
    /// The Connect command has a record format other than 0.
    CONNECT_FORMAT = 1, 0x80, true, "Connect Incompatible Format";
    /// The limit of controllers or connections is reached; the host may try again later.
    CONNECT_BUSY = 1, 0x81, false, "Connect Controller Busy";
    /// A parameter of the Connect command is wrong; dword 0 of the completion has its offset.
    CONNECT_PARAMETER = 1, 0x82, true, "Connect Invalid Parameters";
    /// The host is not allowed to connect.
    CONNECT_HOST = 1, 0x84, true, "Connect Invalid Host";
    /// A copy is longer, or has more ranges, than the namespace allows.
    SIZE_LIMIT_EXCEEDED = 1, 0x83, true, "Command Size Limit Exceeded";
    /// No more range sets or boxes can be stored.
    RESOURCES = 1, 0x89, false, "Insufficient Resources";
    /// No more programs can be loaded.
    PROGRAM_RESOURCES = 1, 0x8a, false, "Insufficient Program Resources";
    /// A memory range lies in a namespace that has no memory.
    MEMORY_NAMESPACE = 1, 0x8b, true, "Invalid Memory Namespace";
    /// A memory range lies outside of its namespace.
    MEMORY_RANGE = 1, 0x8c, true, "Invalid Memory Range Set";
    /// There is no such range set.
    RANGE_SET_ID = 1, 0x8d, true, "Invalid Memory Range Set Identifier";
    /// The bytes are no program that can be executed.
    PROGRAM_DATA = 1, 0x8e, true, "Invalid Program Data";
    /// There is no program index with this value.
    PROGRAM_INDEX = 1, 0x8f, true, "Invalid Program Index";
    /// There is no program type with this value.
    PROGRAM_TYPE = 1, 0x90, true, "Invalid Program Type";
    /// The command has more ranges than a command may have.
    RANGES_MAX = 1, 0x91, true, "Maximum Memory Ranges Exceeded, or Authentication Required";
    /// The controller stores no more range sets.
    RANGE_SETS_MAX = 1, 0x92, false, "Maximum Memory Range Sets Exceeded";
    /// The limit of activated programs is reached.
    ACTIVATED_MAX = 1, 0x93, false, "Maximum Programs Activated";
    /// The limit of the programs' total size is reached.
    PROGRAM_BYTES_MAX = 1, 0x94, false, "Maximum Program Bytes Exceeded";
    /// The range set is in use by an execution.
    RANGE_SET_IN_USE = 1, 0x95, false, "Memory Range Set In Use";
    /// No program is loaded at this index.
    NO_PROGRAM = 1, 0x96, true, "No Program";
    /// Ranges of one set overlap.
    RANGES_OVERLAP = 1, 0x97, true, "Invalid Memory Range Set Overlap";
    /// The program is not activated.
    NOT_ACTIVATED = 1, 0x98, true, "Program Not Activated";
    /// The program is in use by an execution.
    PROGRAM_IN_USE = 1, 0x99, false, "Program In Use";
    /// The program is larger than the controller accepts.
    PROGRAM_TOO_BIG = 1, 0x9b, true, "Program Too Big";
    /// The program ended by a trap, or exceeded a limit.
    PROGRAM_FAILED = 1, 0xc5, true, "Program Failed";
    /// There is no box with this handle.
    INVALID_BOX = 1, 0xc6, true, "Invalid Box Handle";
    /// There is no space with this identifier or name.
    SPACE_NOT_FOUND = 1, 0xc0, true, "Space Not Found";
    /// A space with the name of the space to create exists already.
    SPACE_EXISTS = 1, 0xc1, true, "Space Exists";
    /// The view has another number of elements than its space.
    VOLUME_MISMATCH = 1, 0xc2, true, "View Volume Mismatch";
    /// There is no open view with this dynamic space identifier, or its space was deleted.
    INVALID_DSID = 1, 0xc3, true, "Invalid Dynamic Space Identifier";
    /// The limit of open views is reached.
    TOO_MANY_VIEWS = 1, 0xc4, false, "Too Many Open Views";
    /// A write to the medium failed.
    WRITE_FAULT = 2, 0x80, false, "Write Fault";
    /// A page cannot be read, or its content is damaged.
    UNRECOVERED_READ_ERROR = 2, 0x81, true, "Unrecovered Read Error";
    /// The compared data differ.
    COMPARE_FAILURE = 2, 0x85, true, "Compare Failure";
    /// The space is encrypted, and the key is missing or wrong.
    ACCESS_DENIED = 2, 0x86, true, "Access Denied";
}

impl Status {
    /// Creates a status from the 15 bits of a completion entry's status field.
    pub fn from_bits(bits: u16) -> Self {
        Self(bits & 0x7fff)
    }

    /// Returns the 15 bits of a completion entry's status field.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// Returns the status code type (SCT).
    pub fn sct(self) -> u8 {
        (self.0 >> 8 & 7) as u8
    }

    /// Returns the status code (SC).
    pub fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Whether a retry of the same command would probably fail again (DNR).
    pub fn dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// Whether the command succeeded.
    pub fn ok(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// Returns the name in the specification; "Unknown Status" for other codes.
    pub fn name(self) -> &'static str {
        let same = |s: &Self| s.sct() == self.sct() && s.sc() == self.sc();
        Self::ALL.iter().find(|(s, _)| same(s)).map_or("Unknown Status", |(_, name)| name)
    }

    /// Returns the status without DNR: a retry of the same command may succeed.
    pub fn retry(self) -> Self {
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

#[cfg(test)]
mod tests {
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
}
