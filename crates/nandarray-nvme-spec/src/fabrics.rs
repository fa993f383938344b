//! Fabrics commands, the data of connect, and the location of a command's data (base 2.0, sections 3.3.3.2.1.1 and 6).

use zerocopy::byteorder::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::entry::SubmissionEntry;
use crate::fields::{DwordBits, Wide, numbers};
use crate::properties::PropertyWidth;
use crate::status::Status;

/// Qualified name of every discovery service.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// Controller identifier in a connect command of a host that accepts any controller.
pub const CNTLID_ANY: u16 = 0xffff;
/// Maximum bytes of data within a capsule of an admin queue, which the specification fixes.
pub const ADMIN_IN_CAPSULE_BYTES: usize = 8192;

/// Opcode of all fabrics commands, on any queue.
pub const FABRICS_OPCODE: u8 = 0x7f;
/// Security protocol (SECP) of Authentication Send and Receive: the one of NVMe.
pub const SECURITY_PROTOCOL: u8 = 0xe9;
/// Both bytes of the specific field (SPSP) of Authentication Send and Receive.
pub const PROTOCOL_SPECIFIC: u16 = 0x0101;

numbers! {
    /// Types of fabrics commands (FCTYPE; base 2.0, figure 380).
    FabricsType {
        /// Property Set.
        PropertySet = 0x00,
        /// Connect.
        Connect = 0x01,
        /// Property Get.
        PropertyGet = 0x04,
        /// Authentication Send.
        AuthSend = 0x05,
        /// Authentication Receive.
        AuthReceive = 0x06,
    }
}

/// Width of a property (ATTRIB.SIZE; base 2.0, figures 391 and 393).
type WidthField = DwordBits<10, 2, 0>;
/// Offset of a property (OFST).
type PlaceField = DwordBits<11, 31, 0>;
/// Value of a property (VALUE).
type ValueField = Wide<12>;
/// Fields of Connect (base 2.0, figure 382).
type RecordFormat = DwordBits<10, 15, 0>;
type QueueIdentifier = DwordBits<10, 31, 16>;
type QueueSize = DwordBits<11, 15, 0>;
type ConnectAttributes = DwordBits<11, 23, 16>;
type KeepAliveTimeout = DwordBits<12, 31, 0>;
/// Fields of Authentication Send and Receive (base 2.0, figures 384 and 387).
type ProtocolSpecific = DwordBits<10, 23, 8>;
type SecurityProtocol = DwordBits<10, 31, 24>;
type AuthenticationBytes = DwordBits<11, 31, 0>;

/// Bit of dword 0 in the completion of a connect command: the host has to authenticate itself on this queue (ATR).
pub const CONNECT_AUTHENTICATE: u32 = 1 << 17;
/// Bit of dword 0 in the completion of a connect command: authentication has to set up a secure channel (ASCR).
pub const CONNECT_SECURE_CHANNEL: u32 = 1 << 18;

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
        Self::new_zeroed()
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

/// The fields of Authentication Send and Receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthFields {
    /// Security protocol; [`SECURITY_PROTOCOL`].
    pub protocol: u8,
    /// Specific field of the protocol; [`PROTOCOL_SPECIFIC`].
    pub specific: u16,
    /// Length of the message, or of the room for it, in bytes.
    pub bytes: u32,
}

impl AuthFields {
    /// Creates the fields of a message, or of room for one, in the protocol of NVMe.
    pub fn new(bytes: u32) -> Self {
        Self { protocol: SECURITY_PROTOCOL, specific: PROTOCOL_SPECIFIC, bytes }
    }

    /// Whether the protocol is the one of NVMe.
    pub fn is_known(&self) -> bool {
        (self.protocol, self.specific) == (SECURITY_PROTOCOL, PROTOCOL_SPECIFIC)
    }

    fn decode(entry: &SubmissionEntry) -> Self {
        Self {
            protocol: SecurityProtocol::u8(entry),
            specific: ProtocolSpecific::u16(entry),
            bytes: AuthenticationBytes::get(entry),
        }
    }

    fn encode(&self, entry: &mut SubmissionEntry) {
        SecurityProtocol::put(entry, self.protocol);
        ProtocolSpecific::put(entry, self.specific);
        AuthenticationBytes::put(entry, self.bytes);
    }
}

impl FabricsType {
    /// Whether a command of this type belongs to authentication.
    pub fn is_authentication(self) -> bool {
        matches!(self, Self::AuthSend | Self::AuthReceive)
    }
}

impl ConnectFields {
    /// Whether the controller tells how far it has taken entries of the queue (CATTR bit 2 is clear).
    pub fn has_flow_control(&self) -> bool {
        self.cattr & 1 << 2 == 0
    }

    fn decode(entry: &SubmissionEntry) -> Self {
        Self {
            recfmt: RecordFormat::u16(entry),
            qid: QueueIdentifier::u16(entry),
            sqsize_z: QueueSize::u16(entry),
            cattr: ConnectAttributes::u8(entry),
            kato_ms: KeepAliveTimeout::get(entry),
        }
    }

    fn encode(&self, entry: &mut SubmissionEntry) {
        RecordFormat::put(entry, self.recfmt);
        QueueIdentifier::put(entry, self.qid);
        QueueSize::put(entry, self.sqsize_z);
        ConnectAttributes::put(entry, self.cattr);
        KeepAliveTimeout::put(entry, self.kato_ms);
    }
}

/// A fabrics command, with the fields that its submission entry has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FabricsCommand {
    /// Writes a property.
    PropertySet {
        /// Offset of the property ([`crate::Property`]).
        offset: u32,
        /// Width of the property.
        width: PropertyWidth,
        /// Value; of a property of 4 bytes, its lower half.
        value: u64,
    },
    /// Connects a queue.
    Connect(ConnectFields),
    /// Reads a property.
    PropertyGet {
        /// Offset of the property.
        offset: u32,
        /// Width of the property.
        width: PropertyWidth,
    },
    /// Sends a message of authentication.
    AuthSend(AuthFields),
    /// Receives a message of authentication.
    AuthReceive(AuthFields),
}

impl FabricsCommand {
    /// Returns the command's type.
    pub fn fctype(&self) -> FabricsType {
        match self {
            Self::PropertySet { .. } => FabricsType::PropertySet,
            Self::Connect(_) => FabricsType::Connect,
            Self::PropertyGet { .. } => FabricsType::PropertyGet,
            Self::AuthSend(_) => FabricsType::AuthSend,
            Self::AuthReceive(_) => FabricsType::AuthReceive,
        }
    }

    /// Returns the type of an entry with the opcode of fabrics commands; `None` if it has none of ours.
    pub fn type_of(entry: &SubmissionEntry) -> Option<FabricsType> {
        // FCTYPE is byte 4 of the entry, where other commands have the lowest byte of their namespace.
        if entry.opcode == FABRICS_OPCODE { FabricsType::of(entry.nsid.get() as u8) } else { None }
    }

    /// Decodes a submission entry.
    ///
    /// # Errors
    /// Invalid opcode: it is no fabrics command. Invalid field: an unknown type, or a property of another width.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        if entry.opcode != FABRICS_OPCODE {
            return Err(Status::INVALID_OPCODE);
        }
        let width = || PropertyWidth::of(WidthField::u8(entry)).ok_or(Status::INVALID_FIELD);
        Ok(match Self::type_of(entry).ok_or(Status::INVALID_FIELD)? {
            FabricsType::PropertySet => {
                Self::PropertySet { offset: PlaceField::get(entry), width: width()?, value: ValueField::get(entry) }
            }
            FabricsType::Connect => Self::Connect(ConnectFields::decode(entry)),
            FabricsType::PropertyGet => Self::PropertyGet { offset: PlaceField::get(entry), width: width()? },
            FabricsType::AuthSend => Self::AuthSend(AuthFields::decode(entry)),
            FabricsType::AuthReceive => Self::AuthReceive(AuthFields::decode(entry)),
        })
    }

    /// Encodes the command as the submission entry of a host, without pointers to data.
    pub fn encode(&self, cid: u16) -> SubmissionEntry {
        let mut entry = SubmissionEntry::new(FABRICS_OPCODE, self.fctype() as u32, cid);
        match *self {
            Self::PropertySet { offset, width, value } => {
                WidthField::put(&mut entry, width as u8);
                PlaceField::put(&mut entry, offset);
                ValueField::put(&mut entry, value);
            }
            Self::Connect(fields) => fields.encode(&mut entry),
            Self::PropertyGet { offset, width } => {
                WidthField::put(&mut entry, width as u8);
                PlaceField::put(&mut entry, offset);
            }
            Self::AuthSend(fields) | Self::AuthReceive(fields) => fields.encode(&mut entry),
        }
        entry
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

/// Transport requirements of an entry of the discovery log: a secure channel is required.
pub const TREQ_SECURE_CHANNEL: u8 = 1;
/// Security of an entry of the discovery log for TCP, in byte 0 of its transport-specific address: TLS 1.3.
pub const TSAS_TLS_13: u8 = 2;

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

const _: () = assert!(size_of::<ConnectData>() == 1024 && size_of::<DiscoveryEntry>() == 1024);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_lies_where_the_specification_has_it() {
        let fields = ConnectFields { recfmt: 0, qid: 0x0201, sqsize_z: 127, cattr: 4, kato_ms: 5000 };
        let entry = FabricsCommand::Connect(fields).encode(0x1234);
        let bytes = entry.as_bytes();
        assert_eq!((bytes[0], bytes[4]), (0x7f, 1));
        assert_eq!(bytes[40..52], [0, 0, 1, 2, 127, 0, 4, 0, 0x88, 0x13, 0, 0]);
        assert_eq!(FabricsCommand::decode(&entry), Ok(FabricsCommand::Connect(fields)));
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
