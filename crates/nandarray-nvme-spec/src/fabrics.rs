//! Numbers and structures of admin and fabrics commands, byte for byte.
//!
//! The formats are those of the base specification 2.0, sections 3.1 (properties), 5 (admin commands) and 6 (fabrics
//! commands).

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::entry::SubmissionEntry;

/// Qualified name of every discovery service.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Controller identifier in a connect command of a host that accepts any controller.
pub const CNTLID_ANY: u16 = 0xffff;
/// Maximum bytes of data within a capsule of an admin queue, which the specification fixes.
pub const ADMIN_IN_CAPSULE_BYTES: usize = 8192;

/// Opcodes of admin commands.
#[derive(Clone, Copy, Debug)]
pub struct AdminOpcode;

impl AdminOpcode {
    /// Get Log Page.
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Identify.
    pub const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub const ABORT: u8 = 0x08;
    /// Set Features.
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request.
    pub const ASYNC_EVENT: u8 = 0x0c;
    /// Keep Alive.
    pub const KEEP_ALIVE: u8 = 0x18;
    /// All fabrics commands, on any queue.
    pub const FABRICS: u8 = 0x7f;
    /// Load Program.
    pub const LOAD_PROGRAM: u8 = 0x85;
    /// Program Activation Management.
    pub const ACTIVATE_PROGRAM: u8 = 0x88;
    /// Memory Range Set Management.
    pub const MEMORY_RANGE_SET: u8 = 0x89;
}

/// Bit of dword 10 of Load Program: the program is unloaded.
pub const LOAD_PROGRAM_UNLOADS: u32 = 1 << 24;
/// Tag of the account of a program's load that failed, in log page C1h; hosts give executions other tags.
pub const LOAD_TAG: u16 = 0xffff;
/// Bits of dword 10 of Memory Range Set Management: its action, one of the next two.
pub const RANGE_SET_ACTION: u32 = 0xf;
/// Action of Memory Range Set Management: a set is created.
pub const RANGE_SET_CREATES: u32 = 0;
/// Action of Memory Range Set Management: a set is deleted.
pub const RANGE_SET_DELETES: u32 = 1;

/// Opcodes of Subsystem Local Memory.
#[derive(Clone, Copy, Debug)]
pub struct SlmOpcode;

impl SlmOpcode {
    /// Memory Copy.
    pub const COPY: u8 = 0x01;
    /// Memory Read.
    pub const READ: u8 = 0x02;
    /// Memory Fill.
    pub const FILL: u8 = 0x04;
    /// Memory Write.
    pub const WRITE: u8 = 0x05;
}

/// Opcodes of Computational Programs.
#[derive(Clone, Copy, Debug)]
pub struct ProgramOpcode;

impl ProgramOpcode {
    /// Execute Program.
    pub const EXECUTE: u8 = 0x01;
}

/// Opcodes of the command set of N-D commands; the others are those of the NVM command set without [`Self::VENDOR`].
#[derive(Clone, Copy, Debug)]
pub struct NdOpcode;

impl NdOpcode {
    /// The highest bit of the N-D commands' opcodes in the NVM command set, which marks vendor commands.
    pub const VENDOR: u8 = 0x80;
    /// N-D Write.
    pub const WRITE: u8 = 0x01;
    /// N-D Read.
    pub const READ: u8 = 0x02;
    /// Store Box.
    pub const STORE_BOX: u8 = 0x0d;
    /// Delete Box.
    pub const DELETE_BOX: u8 = 0x10;
    /// Array Request.
    pub const ARRAY_REQUEST: u8 = 0x11;
    /// Array Reply.
    pub const ARRAY_REPLY: u8 = 0x12;
}

/// Types of fabrics commands.
#[derive(Clone, Copy, Debug)]
pub struct FabricsType;

impl FabricsType {
    /// Property Set.
    pub const PROPERTY_SET: u8 = 0x00;
    /// Connect.
    pub const CONNECT: u8 = 0x01;
    /// Property Get.
    pub const PROPERTY_GET: u8 = 0x04;
    /// Authentication Send.
    pub const AUTH_SEND: u8 = 0x05;
    /// Authentication Receive.
    pub const AUTH_RECEIVE: u8 = 0x06;

    /// Whether a fabrics command of this type belongs to authentication.
    pub fn is_authentication(fctype: u8) -> bool {
        matches!(fctype, Self::AUTH_SEND | Self::AUTH_RECEIVE)
    }
}

/// Bit of dword 0 in the completion of a connect command: the host has to authenticate itself on this queue (ATR).
pub const CONNECT_AUTHENTICATE: u32 = 1 << 17;
/// Bit of dword 0 in the completion of a connect command: authentication has to set up a secure channel (ASCR).
pub const CONNECT_SECURE_CHANNEL: u32 = 1 << 18;

/// Command set identifiers.
#[derive(Clone, Copy, Debug)]
pub struct CommandSet;

impl CommandSet {
    /// The NVM command set.
    pub const NVM: u8 = 0;
    /// Subsystem Local Memory.
    pub const MEMORY: u8 = 3;
    /// Computational Programs.
    pub const PROGRAMS: u8 = 4;
    /// The N-D commands, in the range for vendors.
    pub const ND: u8 = 0x30;
}

/// Properties of a controller, by the offsets of its registers.
#[derive(Clone, Copy, Debug)]
pub struct Property;

impl Property {
    /// Capabilities, 8 bytes.
    pub const CAP: u32 = 0x00;
    /// Version.
    pub const VS: u32 = 0x08;
    /// Configuration.
    pub const CC: u32 = 0x14;
    /// Status.
    pub const CSTS: u32 = 0x1c;
    /// Subsystem reset.
    pub const NSSR: u32 = 0x20;
    /// Ready timeouts.
    pub const CRTO: u32 = 0x68;
}

/// Data of a connect command, 1024 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ConnectData {
    /// Identifier of the host.
    pub hostid: [u8; 16],
    /// Controller identifier; [`CNTLID_ANY`] on an admin queue.
    pub cntlid: U16,
    reserved18: [u8; 238],
    /// Qualified name of the subsystem, padded with zeroes.
    pub subnqn: [u8; 256],
    /// Qualified name of the host, padded with zeroes.
    pub hostnqn: [u8; 256],
    reserved768: [u8; 256],
}

impl Default for ConnectData {
    fn default() -> Self {
        zerocopy::FromZeros::new_zeroed()
    }
}

/// Parameters in the entry of a connect command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectFields {
    /// Record format, always 0.
    pub recfmt: u16,
    /// Number of the queue; 0 is the admin queue.
    pub qid: u16,
    /// Number of entries of the submission queue, zero-based.
    pub sqsize_z: u16,
    /// Attributes; bit 2 disables submission queue flow control.
    pub cattr: u8,
    /// Keep alive timeout in milliseconds.
    pub kato_ms: u32,
}

impl ConnectFields {
    /// Reads the parameters from an entry.
    pub fn decode(entry: &SubmissionEntry) -> Self {
        let (first, second) = (entry.cdw(10), entry.cdw(11));
        Self {
            recfmt: first as u16,
            qid: (first >> 16) as u16,
            sqsize_z: second as u16,
            cattr: (second >> 16) as u8,
            kato_ms: entry.cdw(12),
        }
    }

    /// Makes an entry with these parameters.
    pub fn encode(&self, cid: u16) -> SubmissionEntry {
        let mut entry = fabrics_entry(FabricsType::CONNECT, cid);
        entry.set_cdw(10, u32::from(self.recfmt) | u32::from(self.qid) << 16);
        entry.set_cdw(11, u32::from(self.sqsize_z) | u32::from(self.cattr) << 16);
        entry.set_cdw(12, self.kato_ms);
        entry
    }
}

/// Makes an entry of a fabrics command of type `fctype`.
pub fn fabrics_entry(fctype: u8, cid: u16) -> SubmissionEntry {
    SubmissionEntry {
        opcode: AdminOpcode::FABRICS,
        cid: cid.into(),
        nsid: u32::from(fctype).into(),
        ..SubmissionEntry::default()
    }
}

/// Location of a command's data, by the types of SGL descriptors that fabrics use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataLocation {
    /// Within the capsule, at this offset (type 01h).
    Capsule {
        /// Offset of the data.
        offset: u64,
    },
    /// In a buffer of the host, from or to which the transport moves the data (type 5Ah).
    Transport,
    /// A descriptor of another type, which is not supported.
    Other(u8),
}

/// The only SGL descriptor of an entry, 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataDescriptor {
    /// Location of the data.
    pub location: DataLocation,
    /// Length of the data in bytes.
    pub bytes: u32,
}

const IN_CAPSULE: u8 = 0x01;
const TRANSPORT: u8 = 0x5a;

impl DataDescriptor {
    /// Reads the descriptor of an entry.
    pub fn decode(entry: &SubmissionEntry) -> Self {
        let word = entry.dptr[1].get();
        let location = match (word >> 56) as u8 {
            IN_CAPSULE => DataLocation::Capsule { offset: entry.dptr[0].get() },
            TRANSPORT => DataLocation::Transport,
            other => DataLocation::Other(other),
        };
        Self { location, bytes: word as u32 }
    }

    /// Writes the descriptor into an entry, with PSDT 01b (the data pointer is an SGL).
    pub fn encode(&self, entry: &mut SubmissionEntry) {
        let (offset, kind) = match self.location {
            DataLocation::Capsule { offset } => (offset, IN_CAPSULE),
            DataLocation::Transport => (0, TRANSPORT),
            DataLocation::Other(kind) => (0, kind),
        };
        entry.flags = entry.flags & 0x3f | 0x40;
        entry.dptr[0].set(offset);
        entry.dptr[1].set(u64::from(self.bytes) | u64::from(kind) << 56);
    }
}

/// An entry of the discovery log, 1024 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct DiscoveryEntry {
    /// Transport type; 3 is TCP.
    pub trtype: u8,
    /// Address family; 1 is IPv4, 2 is IPv6.
    pub adrfam: u8,
    /// Kind of subsystem: 2 for one with namespaces, 3 for this discovery service.
    pub subtype: u8,
    /// Transport requirements.
    pub treq: u8,
    /// Port identifier.
    pub portid: U16,
    /// Controller identifier.
    pub cntlid: U16,
    /// Maximum number of entries of the admin queue.
    pub asqsz: U16,
    reserved10: [u8; 22],
    /// Transport service identifier: the port, in ASCII.
    pub trsvcid: [u8; 32],
    reserved64: [u8; 192],
    /// Qualified name of the subsystem.
    pub subnqn: [u8; 256],
    /// Transport address, in ASCII.
    pub traddr: [u8; 256],
    /// Transport-specific address; for TCP, byte 0 is the kind of security.
    pub tsas: [u8; 256],
}

/// A range of a memory range set, 32 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct MemoryRange {
    /// Namespace: Subsystem Local Memory, a block namespace, or the N-D namespace.
    pub nsid: U32,
    /// Length in bytes; 0 for a whole box.
    pub len: U32,
    /// First byte; in the N-D namespace, the handle of a stored box.
    pub sb: U64,
    reserved16: [u8; 16],
}

impl MemoryRange {
    /// Makes a range of `len` bytes from byte `sb` of a namespace.
    pub fn new(nsid: u32, sb: u64, len: u32) -> Self {
        Self { nsid: nsid.into(), len: len.into(), sb: sb.into(), reserved16: [0; 16] }
    }
}

const _: () =
    assert!(size_of::<ConnectData>() == 1024 && size_of::<DiscoveryEntry>() == 1024 && size_of::<MemoryRange>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_lies_where_the_specification_has_it() {
        let fields = ConnectFields { recfmt: 0, qid: 0x0201, sqsize_z: 127, cattr: 4, kato_ms: 5000 };
        let entry = fields.encode(0x1234);
        let bytes = entry.as_bytes();
        assert_eq!((bytes[0], bytes[4]), (0x7f, 1));
        assert_eq!(bytes[40..52], [0, 0, 1, 2, 127, 0, 4, 0, 0x88, 0x13, 0, 0]);
        assert_eq!(ConnectFields::decode(&entry), fields);
        let mut data = ConnectData::default();
        data.subnqn[0] = 1;
        data.hostnqn[0] = 2;
        data.cntlid.set(0xffff);
        let bytes = data.as_bytes();
        assert_eq!((bytes[16], bytes[256], bytes[512]), (0xff, 1, 2));
    }

    #[test]
    fn a_descriptor_byte_for_byte() {
        let mut entry = SubmissionEntry::default();
        DataDescriptor { location: DataLocation::Transport, bytes: 0x1000 }.encode(&mut entry);
        assert_eq!(entry.as_bytes()[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0x5a]);
        assert_eq!(entry.flags, 0x40);
        DataDescriptor { location: DataLocation::Capsule { offset: 0 }, bytes: 512 }.encode(&mut entry);
        assert_eq!(DataDescriptor::decode(&entry).location, DataLocation::Capsule { offset: 0 });
    }
}
