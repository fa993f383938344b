//! Reservations: the commands of a namespace's registrants, and what they carry (base 2.0, sections 7.2 to 7.5, 8.19).
//!
//! The commands belong to the NVM command set; opcode 11h means something else in the command set of N-D commands.
//! Identifiers of hosts have 128 bits, so that a report has the extended structures alone.
//!
//! Not here: the rules of registrations and reservations, and any limit of their number.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::entry::SubmissionEntry;
use crate::fields::{Bit, DwordBits, numbers};
use crate::status::Status;

numbers! {
    /// Opcodes of the commands (base 2.0, figure 142).
    ReservationOpcode {
        /// Reservation Register.
        Register = 0x0d,
        /// Reservation Report.
        Report = 0x0e,
        /// Reservation Acquire.
        Acquire = 0x11,
        /// Reservation Release.
        Release = 0x15,
    }
}

numbers! {
    /// Type of a reservation (RTYPE; base 2.0, section 8.19.1).
    ReservationType {
        /// The holder alone writes; all read.
        WriteExclusive = 1,
        /// The holder alone writes and reads.
        ExclusiveAccess = 2,
        /// Registrants write; all read.
        WriteExclusiveRegistrants = 3,
        /// Registrants write and read.
        ExclusiveAccessRegistrants = 4,
        /// Registrants write, and each of them is a holder; all read.
        WriteExclusiveAll = 5,
        /// Registrants write and read, and each of them is a holder.
        ExclusiveAccessAll = 6,
    }
}

impl ReservationType {
    /// Whether all registrants are holders.
    pub fn is_of_all(self) -> bool {
        matches!(self, Self::WriteExclusiveAll | Self::ExclusiveAccessAll)
    }

    /// Whether registrants may do what the holder may.
    pub fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether hosts that may not write may read.
    pub fn admits_readers(self) -> bool {
        matches!(self, Self::WriteExclusive | Self::WriteExclusiveRegistrants | Self::WriteExclusiveAll)
    }
}

numbers! {
    /// Action of Reservation Register (RREGA).
    RegisterAction {
        /// The host becomes a registrant.
        Register = 0,
        /// The host is no registrant any more.
        Unregister = 1,
        /// The registrant has another key.
        Replace = 2,
    }
}

numbers! {
    /// Change of the persistence of registrations and reservations (CPTPL).
    PersistenceChange {
        /// It stays as it is.
        Keep = 0,
        /// They end with the power.
        Volatile = 2,
        /// They survive a loss of power.
        Persistent = 3,
    }
}

numbers! {
    /// Action of Reservation Acquire (RACQA).
    AcquireAction {
        /// The host gets the reservation if no host has it.
        Acquire = 0,
        /// The host unregisters others, and gets their reservation.
        Preempt = 1,
        /// The same, and their commands have ended when this one completes.
        PreemptAndAbort = 2,
    }
}

numbers! {
    /// Action of Reservation Release (RRELA).
    ReleaseAction {
        /// The holder gives the reservation back.
        Release = 0,
        /// All hosts are unregistered, and there is no reservation.
        Clear = 1,
    }
}

/// Action of Register, Acquire and Release (RREGA, RACQA, RRELA).
type Action = DwordBits<10, 2, 0>;
/// Ignore the existing key (IEKEY).
type IgnoreKey = Bit<10, 3>;
/// Type of the reservation (RTYPE).
type Type = DwordBits<10, 15, 8>;
/// Change of the persistence (CPTPL).
type Persistence = DwordBits<10, 31, 30>;
/// Number of dwords of a report minus one (NUMD).
type ReportDwords = DwordBits<10, 31, 0>;
/// Extended data structures (EDS).
type Extended = Bit<11, 0>;

/// A command on the reservation of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationCommand {
    /// Registers the host, unregisters it, or replaces its key; data: [`RegisterKeys`].
    Register {
        /// The action.
        action: RegisterAction,
        /// Whether the current key is not compared.
        ignore_key: bool,
        /// Change of the persistence.
        persistence: PersistenceChange,
    },
    /// Returns [`ReservationStatus`] with a [`RegistrantStatus`] for each registrant.
    Report {
        /// Number of dwords minus one.
        dwords_z: u32,
        /// Whether the host wants the structures with identifiers of 128 bits.
        extended: bool,
    },
    /// Acquires the reservation, or preempts its holder; data: [`AcquireKeys`].
    Acquire {
        /// The action.
        action: AcquireAction,
        /// Whether the current key is not compared, which is not allowed.
        ignore_key: bool,
        /// Type of the reservation.
        kind: ReservationType,
    },
    /// Releases the reservation, or clears all; data: [`ReleaseKey`].
    Release {
        /// The action.
        action: ReleaseAction,
        /// Whether the current key is not compared, which is not allowed.
        ignore_key: bool,
        /// Number of the type of the reservation; any number, as a clear has none.
        kind: u8,
    },
}

impl ReservationCommand {
    /// Decodes a submission entry.
    ///
    /// # Errors
    /// Invalid opcode; invalid field: a reserved action, type or change.
    pub fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        let ignore_key = IgnoreKey::flag(entry);
        let (action, kind) = (Action::u8(entry), Type::u8(entry));
        Ok(match ReservationOpcode::of(entry.opcode).ok_or(Status::INVALID_OPCODE)? {
            ReservationOpcode::Register => Self::Register {
                action: RegisterAction::of(action).ok_or(Status::INVALID_FIELD)?,
                ignore_key,
                persistence: PersistenceChange::of(Persistence::u8(entry)).ok_or(Status::INVALID_FIELD)?,
            },
            ReservationOpcode::Report => {
                Self::Report { dwords_z: ReportDwords::get(entry), extended: Extended::flag(entry) }
            }
            ReservationOpcode::Acquire => Self::Acquire {
                action: AcquireAction::of(action).ok_or(Status::INVALID_FIELD)?,
                ignore_key,
                kind: ReservationType::of(kind).ok_or(Status::INVALID_FIELD)?,
            },
            ReservationOpcode::Release => {
                Self::Release { action: ReleaseAction::of(action).ok_or(Status::INVALID_FIELD)?, ignore_key, kind }
            }
        })
    }

    /// Returns the command's opcode.
    pub fn opcode(&self) -> ReservationOpcode {
        match self {
            Self::Register { .. } => ReservationOpcode::Register,
            Self::Report { .. } => ReservationOpcode::Report,
            Self::Acquire { .. } => ReservationOpcode::Acquire,
            Self::Release { .. } => ReservationOpcode::Release,
        }
    }

    /// Encodes the command as the submission entry of a host, without pointers to data.
    pub fn encode(&self, nsid: u32, cid: u16) -> SubmissionEntry {
        let mut entry = SubmissionEntry::new(self.opcode() as u8, nsid, cid);
        match *self {
            Self::Register { action, ignore_key, persistence } => {
                Action::put(&mut entry, action as u8);
                IgnoreKey::put(&mut entry, ignore_key);
                Persistence::put(&mut entry, persistence as u8);
            }
            Self::Report { dwords_z, extended } => {
                ReportDwords::put(&mut entry, dwords_z);
                Extended::put(&mut entry, extended);
            }
            Self::Acquire { action, ignore_key, kind } => {
                Action::put(&mut entry, action as u8);
                IgnoreKey::put(&mut entry, ignore_key);
                Type::put(&mut entry, kind as u8);
            }
            Self::Release { action, ignore_key, kind } => {
                Action::put(&mut entry, action as u8);
                IgnoreKey::put(&mut entry, ignore_key);
                Type::put(&mut entry, kind);
            }
        }
        entry
    }
}

/// Data of Reservation Register, 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct RegisterKeys {
    /// Current key of the host (CRKEY).
    pub current: U64,
    /// Key that the host gets (NRKEY).
    pub new: U64,
}

/// Data of Reservation Acquire, 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct AcquireKeys {
    /// Current key of the host (CRKEY).
    pub current: U64,
    /// Key of the registrants that are preempted (PRKEY).
    pub preempted: U64,
}

/// Data of Reservation Release, 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ReleaseKey {
    /// Current key of the host (CRKEY).
    pub current: U64,
}

/// Head of a report, 64 bytes (extended form; base 2.0, section 7.4).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ReservationStatus {
    /// Number of changes of registrants (GEN).
    pub generation: U32,
    /// Type of the reservation; 0 if there is none.
    pub kind: u8,
    /// Number of registrants (REGSTRNT).
    pub registrants: U16,
    reserved7: [u8; 2],
    /// 1 if registrations and reservation survive a loss of power (PTPLS).
    pub persists: u8,
    reserved10: [u8; 54],
}

/// A registrant in a report, 64 bytes (extended form; base 2.0, section 7.4).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct RegistrantStatus {
    /// Controller of the host; FFFFh, since a host gets another one each time that it connects.
    pub cntlid: U16,
    /// Bit 0: the host holds the reservation.
    pub status: u8,
    reserved3: [u8; 5],
    /// Key of the host.
    pub key: U64,
    /// Identifier of the host.
    pub hostid: [u8; 16],
    reserved32: [u8; 32],
}

impl ReservationStatus {
    /// Creates the head of a report without registrants.
    pub fn zeroed() -> Self {
        Self::new_zeroed()
    }
}

impl RegistrantStatus {
    /// Creates an entry of a report.
    pub fn new(hostid: [u8; 16], key: u64, is_holder: bool) -> Self {
        let mut entry = Self::new_zeroed();
        entry.cntlid.set(crate::fabrics::CNTLID_ANY);
        assert!(key != 0, "no registrant has the key 0");
        entry.status = u8::from(is_holder);
        entry.key.set(key);
        entry.hostid = hostid;
        entry
    }
}

numbers! {
    /// Kind of a notification (base 2.0, log page 80h).
    ReservationNoticeKind {
        /// The host was unregistered by another one.
        RegistrationPreempted = 1,
        /// The reservation of registrants was given back.
        ReservationReleased = 2,
        /// Registrations and reservation were cleared by another host.
        ReservationPreempted = 3,
    }
}

/// Log page 80h (a notification about a reservation), 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct ReservationNoticePage {
    /// Number of the notification, from 1 on; 0 if there is none.
    pub count: U64,
    /// Kind of the notification; 0 if there is none.
    pub kind: u8,
    /// Number of further notifications.
    pub further: u8,
    reserved10: [u8; 2],
    /// Namespace.
    pub nsid: U32,
    reserved16: [u8; 48],
}

impl ReservationNoticePage {
    /// Creates the page of no notification.
    pub fn empty() -> Self {
        Self::new_zeroed()
    }
}

/// Bits of the capabilities of reservations of a namespace (RESCAP; NVM command set 1.0, figure 97).
#[derive(Clone, Copy, Debug)]
pub struct ReservationCapabilities;

impl ReservationCapabilities {
    /// Registrations and reservations can survive a loss of power.
    pub const PERSISTENCE: u8 = 1;
    /// All six types.
    pub const ALL_TYPES: u8 = 0x7e;
    /// The key is ignored as base specification 1.3 and later say.
    pub const IGNORED_KEY: u8 = 1 << 7;
}

const _: () = assert!(size_of::<ReservationStatus>() == 64 && size_of::<RegistrantStatus>() == 64, "extended form");
const _: () = assert!(size_of::<ReservationNoticePage>() == 64, "log page 80h");
const _: () = assert!(ReservationCapabilities::ALL_TYPES.count_ones() as usize == ReservationType::ALL.len());

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn fields_lie_where_the_specification_has_them() {
        let sizes = [size_of::<RegisterKeys>(), size_of::<AcquireKeys>(), size_of::<ReleaseKey>()];
        assert_eq!(sizes, [16, 16, 8]);
        let of_status = [offset_of!(ReservationStatus, kind), offset_of!(ReservationStatus, registrants)];
        assert_eq!((of_status, offset_of!(ReservationStatus, persists)), ([4, 5], 9));
        let of_registrant = [offset_of!(RegistrantStatus, status), offset_of!(RegistrantStatus, key)];
        assert_eq!((of_registrant, offset_of!(RegistrantStatus, hostid)), ([2, 8], 16));
        let of_notice = [offset_of!(ReservationNoticePage, kind), offset_of!(ReservationNoticePage, further)];
        assert_eq!((of_notice, offset_of!(ReservationNoticePage, nsid)), ([8, 9], 12));
        let pages = [size_of::<ReservationStatus>(), size_of::<RegistrantStatus>(), size_of::<ReservationNoticePage>()];
        assert_eq!(pages, [64; 3]);
    }

    #[test]
    fn types_admit_whom_the_table_admits() {
        // Base 2.0, section 8.19.1: type, whether all read, whether registrants are as the holder, whether all hold.
        let table = [
            (1, true, false, false),
            (2, false, false, false),
            (3, true, true, false),
            (4, false, true, false),
            (5, true, true, true),
            (6, false, true, true),
        ];
        assert_eq!(ReservationType::ALL.len(), table.len());
        for (number, readers, registrants, all) in table {
            let kind = ReservationType::of(number).unwrap();
            let told = (kind.admits_readers(), kind.admits_registrants(), kind.is_of_all());
            assert_eq!(told, (readers, registrants, all), "{kind:?}");
        }
    }
}
