//! Features of a controller: their identifiers, their values, and log page 12h, which describes them.

use nandarray::nvme::Status;

/// Maximum number of I/O queues of a controller.
pub(crate) const QUEUES_MAX: u16 = 64;
/// Bit of the event mask by which a host enables the event of changed namespaces.
pub(crate) const NAMESPACE_NOTICES: u32 = 1 << 8;
/// Bit of the capabilities of a feature: its value can be changed.
const CHANGEABLE: u32 = 1 << 2;
/// Bits of log page 12h: the feature is supported, and its scope is a namespace or a controller.
const SUPPORTED: u32 = 1;
const OF_NAMESPACE: u32 = 1 << 20;
const OF_CONTROLLER: u32 = 1 << 21;

/// A feature, by its identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    Arbitration = 0x01,
    PowerManagement = 0x02,
    TemperatureThreshold = 0x04,
    ErrorRecovery = 0x05,
    WriteCache = 0x06,
    Queues = 0x07,
    InterruptCoalescing = 0x08,
    InterruptVectors = 0x09,
    WriteAtomicity = 0x0a,
    Events = 0x0b,
    KeepAlive = 0x0f,
    HostIdentifier = 0x81,
}

/// The value of a feature that a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeatureSelect {
    Current,
    /// The value after a reset; also the saved one, since no value is saved.
    Default,
    Capabilities,
}

impl Feature {
    const ALL: [Self; 12] = [
        Self::Arbitration,
        Self::PowerManagement,
        Self::TemperatureThreshold,
        Self::ErrorRecovery,
        Self::WriteCache,
        Self::Queues,
        Self::InterruptCoalescing,
        Self::InterruptVectors,
        Self::WriteAtomicity,
        Self::Events,
        Self::KeepAlive,
        Self::HostIdentifier,
    ];

    /// Returns the feature in dword 10 of a command.
    ///
    /// # Errors
    /// Invalid field.
    pub(crate) fn of(word: u32) -> Result<Self, Status> {
        Self::ALL.into_iter().find(|one| *one as u8 == word as u8).ok_or(Status::INVALID_FIELD)
    }

    fn is_changeable(self) -> bool {
        matches!(self, Self::Queues | Self::Events | Self::KeepAlive)
    }

    /// Whether the value is in the command's data, and not in dword 0 of its completion.
    fn has_data(self) -> bool {
        self == Self::HostIdentifier
    }
}

impl FeatureSelect {
    /// Returns what bits 10:8 of dword 10 of Get Features select.
    ///
    /// # Errors
    /// Invalid field: 4 to 7 are reserved.
    pub(crate) fn of(word: u32) -> Result<Self, Status> {
        match word >> 8 & 7 {
            0 => Ok(Self::Current),
            1 | 2 => Ok(Self::Default),
            3 => Ok(Self::Capabilities),
            _ => Err(Status::INVALID_FIELD),
        }
    }
}

/// Whether Get Features with this dword 10 returns data.
pub(crate) fn returns_data(word: u32) -> bool {
    let selects = FeatureSelect::of(word).is_ok_and(|select| select != FeatureSelect::Capabilities);
    selects && Feature::of(word).is_ok_and(Feature::has_data)
}

/// The values that a host can change, and those that they had at first.
#[derive(Debug)]
pub(crate) struct FeatureValues {
    /// Keep alive timeout in milliseconds.
    pub(crate) kato_ms: u32,
    /// Keep alive timeout of the connect command.
    connect_kato_ms: u32,
    /// Number of I/O queues.
    pub(crate) queues: u16,
    pub(crate) event_mask: u32,
}

impl FeatureValues {
    pub(crate) fn new(kato_ms: u32) -> Self {
        Self { kato_ms, connect_kato_ms: kato_ms, queues: QUEUES_MAX, event_mask: 0 }
    }

    /// Returns a feature's value, dword 0 of the completion.
    pub(crate) fn get(&self, feature: Feature, select: FeatureSelect) -> u32 {
        let (queues, events, kato_ms) = match select {
            FeatureSelect::Capabilities => return if feature.is_changeable() { CHANGEABLE } else { 0 },
            FeatureSelect::Current => (self.queues, self.event_mask, self.kato_ms),
            FeatureSelect::Default => (QUEUES_MAX, 0, self.connect_kato_ms),
        };
        match feature {
            Feature::Arbitration | Feature::PowerManagement | Feature::ErrorRecovery => 0,
            Feature::InterruptCoalescing | Feature::InterruptVectors | Feature::WriteAtomicity => 0,
            // In kelvin.
            Feature::TemperatureThreshold => 343,
            // The write cache is on.
            Feature::WriteCache => 1,
            Feature::Queues => (u32::from(queues) - 1) * 0x1_0001,
            Feature::Events => events,
            Feature::KeepAlive => kato_ms,
            // Host identifiers have 128 bits.
            Feature::HostIdentifier => 1,
        }
    }

    /// Sets a feature; returns dword 0 of the completion.
    ///
    /// # Errors
    /// Feature not changeable; invalid field.
    pub(crate) fn set(&mut self, feature: Feature, value: u32) -> Result<u32, Status> {
        match feature {
            Feature::Queues => {
                if value & 0xffff == 0xffff || value >> 16 == 0xffff {
                    return Err(Status::INVALID_FIELD);
                }
                let wanted = (value & 0xffff).max(value >> 16) as u16 + 1;
                self.queues = wanted.min(QUEUES_MAX);
                return Ok((u32::from(self.queues) - 1) * 0x1_0001);
            }
            Feature::Events => self.event_mask = value,
            Feature::KeepAlive => self.kato_ms = value,
            Feature::WriteCache if value & 1 == 1 => {}
            Feature::Arbitration
            | Feature::PowerManagement
            | Feature::TemperatureThreshold
            | Feature::ErrorRecovery
            | Feature::WriteCache
            | Feature::InterruptCoalescing
            | Feature::InterruptVectors
            | Feature::WriteAtomicity
            | Feature::HostIdentifier => return Err(Status::FEATURE_NOT_CHANGEABLE),
        }
        Ok(0)
    }
}

/// Returns log page 12h (feature identifiers supported and effects): 4 bytes for each of 256 identifiers.
pub(crate) fn effects() -> Vec<u8> {
    let mut page = vec![0u8; 1024];
    for feature in Feature::ALL {
        let scope = if feature == Feature::ErrorRecovery { OF_NAMESPACE } else { OF_CONTROLLER };
        let at = 4 * feature as usize;
        page[at..at + 4].copy_from_slice(&(SUPPORTED | scope).to_le_bytes());
    }
    page
}
