//! Features: their identifiers, the values that a host sets, and what it asks for (base 2.0, section 5.27).

use crate::entry::SubmissionEntry;
use crate::fields::{Bit, DwordBits, numbers};
use crate::status::Status;

numbers! {
    /// A feature, by its identifier (base 2.0, figure 317).
    Feature {
        /// Arbitration of queues.
        Arbitration = 0x01,
        /// Power state.
        PowerManagement = 0x02,
        /// Temperature in kelvin above or below which an event is sent.
        TemperatureThreshold = 0x04,
        /// Error recovery of a namespace.
        ErrorRecovery = 0x05,
        /// Volatile write cache.
        WriteCache = 0x06,
        /// Number of I/O queues.
        Queues = 0x07,
        /// Interrupt coalescing.
        InterruptCoalescing = 0x08,
        /// Interrupt vectors.
        InterruptVectors = 0x09,
        /// Write atomicity.
        WriteAtomicity = 0x0a,
        /// Events that the host wants.
        Events = 0x0b,
        /// Keep alive timeout.
        KeepAlive = 0x0f,
        /// Identifier of the host, which is in the command's data.
        HostIdentifier = 0x81,
        /// Notifications about a namespace's reservation that the host does not want.
        ReservationMask = 0x82,
        /// Whether a namespace's registrations and reservation survive a loss of power.
        ReservationPersistence = 0x83,
    }
}

numbers! {
    /// The value of a feature that a host asks for (SEL; base 2.0, figure 192).
    FeatureSelect {
        /// The current value.
        Current = 0,
        /// The value after a reset.
        Default = 1,
        /// The value that survives a reset.
        Saved = 2,
        /// Possible changes of the value ([`FeatureCapabilities`]).
        Capabilities = 3,
    }
}

/// Feature identifier (FID).
type FeatureIdentifier = DwordBits<10, 7, 0>;
/// Value that Get Features asks for (SEL).
type Select = DwordBits<10, 10, 8>;
/// Value of most features (dword 11).
type FeatureValue = DwordBits<11, 31, 0>;
/// Write cache enable (WCE; base 2.0, figure 322).
type WriteCacheEnable = DwordBits<11, 0, 0>;
/// Numbers of I/O submission and completion queues, minus one (NSQR, NCQR; base 2.0, figure 325).
type SubmissionQueues = DwordBits<11, 15, 0>;
type CompletionQueues = DwordBits<11, 31, 16>;
/// Persistence of registrations and reservation (PTPL).
type Persists = Bit<11, 0>;

impl Feature {
    pub(crate) fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        Self::of(FeatureIdentifier::u8(entry)).ok_or(Status::INVALID_FIELD)
    }

    pub(crate) fn encode(self, entry: &mut SubmissionEntry) {
        FeatureIdentifier::put(entry, self as u8);
    }

    /// Whether the value is in the command's data, and not in dword 0 of its completion.
    pub fn has_data(self) -> bool {
        self == Self::HostIdentifier
    }

    /// Whether each namespace has a value of its own.
    pub fn is_of_namespace(self) -> bool {
        matches!(self, Self::ErrorRecovery | Self::ReservationMask | Self::ReservationPersistence)
    }
}

impl FeatureSelect {
    pub(crate) fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        Self::of(Select::u8(entry)).ok_or(Status::INVALID_FIELD)
    }

    pub(crate) fn encode(self, entry: &mut SubmissionEntry) {
        Select::put(entry, self as u8);
    }
}

/// Numbers of I/O queues, minus one: those that a host asks for, or has got (base 2.0, section 5.27.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCounts {
    /// Number of submission queues minus one; FFFFh is not allowed.
    pub submission_z: u16,
    /// Number of completion queues minus one; FFFFh is not allowed.
    pub completion_z: u16,
}

impl QueueCounts {
    /// Returns dword 0 of the completion.
    pub fn dword(self) -> u32 {
        u32::from(self.submission_z) | u32::from(self.completion_z) << 16
    }
}

/// Bits of the feature of events (base 2.0, figure 326).
#[derive(Clone, Copy, Debug)]
pub struct EventMask;

impl EventMask {
    /// The host wants the event of changed namespaces.
    pub const NAMESPACE_NOTICES: u32 = 1 << 8;
}

/// Bits of the capabilities of a feature (base 2.0, section 5.15).
#[derive(Clone, Copy, Debug)]
pub struct FeatureCapabilities;

impl FeatureCapabilities {
    /// The value can be changed.
    pub const CHANGEABLE: u32 = 1 << 2;
    /// Each namespace has a value of its own.
    pub const OF_NAMESPACE: u32 = 1 << 1;
}

/// The value that Set Features gives to a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureChange {
    /// The numbers of I/O queues.
    Queues(QueueCounts),
    /// Bits of [`EventMask`].
    Events(u32),
    /// The keep alive timeout.
    KeepAlive {
        /// The timeout in milliseconds; 0 for none.
        kato_ms: u32,
    },
    /// The volatile write cache.
    WriteCache {
        /// Whether the cache is on.
        is_on: bool,
    },
    /// The notifications about a namespace's reservation that the host does not want.
    ReservationMask {
        /// Namespace, or [`crate::NSID_ALL`].
        nsid: u32,
        /// A bit for each unwanted kind, by its number ([`crate::ReservationNoticeKind`]).
        mask: u32,
    },
    /// The persistence of a namespace's registrations and reservation.
    ReservationPersistence {
        /// Namespace, or [`crate::NSID_ALL`].
        nsid: u32,
        /// Whether they survive a loss of power.
        persists: bool,
    },
    /// Another feature, with its value in dword 11.
    Other(Feature, u32),
}

impl FeatureChange {
    /// Returns the feature.
    pub fn feature(&self) -> Feature {
        match self {
            Self::Queues(_) => Feature::Queues,
            Self::Events(_) => Feature::Events,
            Self::KeepAlive { .. } => Feature::KeepAlive,
            Self::WriteCache { .. } => Feature::WriteCache,
            Self::ReservationMask { .. } => Feature::ReservationMask,
            Self::ReservationPersistence { .. } => Feature::ReservationPersistence,
            Self::Other(feature, _) => *feature,
        }
    }

    pub(crate) fn decode(entry: &SubmissionEntry) -> Result<Self, Status> {
        Ok(match Feature::decode(entry)? {
            Feature::Queues => Self::Queues(QueueCounts {
                submission_z: SubmissionQueues::u16(entry),
                completion_z: CompletionQueues::u16(entry),
            }),
            Feature::Events => Self::Events(FeatureValue::get(entry)),
            Feature::KeepAlive => Self::KeepAlive { kato_ms: FeatureValue::get(entry) },
            Feature::WriteCache => Self::WriteCache { is_on: WriteCacheEnable::flag(entry) },
            Feature::ReservationMask => {
                Self::ReservationMask { nsid: entry.nsid.get(), mask: FeatureValue::get(entry) }
            }
            Feature::ReservationPersistence => {
                Self::ReservationPersistence { nsid: entry.nsid.get(), persists: Persists::flag(entry) }
            }
            other => Self::Other(other, FeatureValue::get(entry)),
        })
    }

    pub(crate) fn encode(&self, entry: &mut SubmissionEntry) {
        self.feature().encode(entry);
        match *self {
            Self::Queues(counts) => FeatureValue::put(entry, counts.dword()),
            Self::KeepAlive { kato_ms } => FeatureValue::put(entry, kato_ms),
            Self::WriteCache { is_on } => WriteCacheEnable::put(entry, is_on),
            Self::ReservationMask { nsid, mask } => {
                entry.nsid.set(nsid);
                FeatureValue::put(entry, mask);
            }
            Self::ReservationPersistence { nsid, persists } => {
                entry.nsid.set(nsid);
                Persists::put(entry, persists);
            }
            Self::Events(value) | Self::Other(_, value) => FeatureValue::put(entry, value),
        }
    }
}
