//! Values of a controller's features, and log page 12h, which describes them.
//!
//! The features, and their form in a command, are declared in `nandarray-nvme-spec`; any other one is refused as an
//! invalid field. A feature that the base specification makes mandatory and that means nothing for a store in a file
//! (arbitration, power, interrupts) has its default value, and cannot be changed.

use nandarray_nvme_spec::{
    Feature, FeatureCapabilities, FeatureChange, FeatureSelect, QueueCounts, Status, SupportedBits, SupportedPage,
};

/// Maximum number of I/O queues of a controller.
pub(crate) const QUEUES_MAX: u16 = 64;
/// Temperature in kelvin from which on there would be a warning; the store tells no other one than 300.
pub(crate) const WARNING_KELVIN: u16 = 343;

fn is_changeable(feature: Feature) -> bool {
    matches!(feature, Feature::Queues | Feature::Events | Feature::KeepAlive)
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

/// Returns dword 0 of a completion that tells a number of I/O queues, from 1 on: as many for submission as for
/// completion, since each connection is a pair.
fn queue_counts(queues: u16) -> u32 {
    assert!((1..=QUEUES_MAX).contains(&queues), "{queues} I/O queues");
    QueueCounts { submission_z: queues - 1, completion_z: queues - 1 }.dword()
}

impl FeatureValues {
    pub(crate) fn new(kato_ms: u32) -> Self {
        Self { kato_ms, connect_kato_ms: kato_ms, queues: QUEUES_MAX, event_mask: 0 }
    }

    /// Returns a feature's value, dword 0 of the completion.
    pub(crate) fn get(&self, feature: Feature, select: FeatureSelect) -> u32 {
        let (queues, events, kato_ms) = match select {
            FeatureSelect::Capabilities if is_changeable(feature) => return FeatureCapabilities::CHANGEABLE,
            FeatureSelect::Capabilities => return 0,
            FeatureSelect::Current => (self.queues, self.event_mask, self.kato_ms),
            // No value is saved, so that the saved one is that after a reset (base 2.0, section 5.15).
            FeatureSelect::Default | FeatureSelect::Saved => (QUEUES_MAX, 0, self.connect_kato_ms),
        };
        match feature {
            Feature::Arbitration | Feature::PowerManagement | Feature::ErrorRecovery => 0,
            Feature::InterruptCoalescing | Feature::InterruptVectors | Feature::WriteAtomicity => 0,
            // Each namespace has a value, which `reservations` keeps; at first it is this one.
            Feature::ReservationMask | Feature::ReservationPersistence => 0,
            Feature::TemperatureThreshold => WARNING_KELVIN.into(),
            // The write cache is on: writes are durable after a flush (base 2.0, section 5.27.1.4).
            Feature::WriteCache => 1,
            Feature::Queues => queue_counts(queues),
            Feature::Events => events,
            Feature::KeepAlive => kato_ms,
            // Host identifiers have 128 bits (EXHID; over fabrics they must, base 2.0, section 5.27.1.25).
            Feature::HostIdentifier => 1,
        }
    }

    /// Sets a feature; returns dword 0 of the completion.
    ///
    /// # Errors
    /// Feature not changeable; invalid field.
    pub(crate) fn set(&mut self, change: FeatureChange) -> Result<u32, Status> {
        match change {
            FeatureChange::Queues(QueueCounts { submission_z, completion_z }) => {
                // FFFFh is reserved; fewer queues than asked for are a success, and the completion tells how many
                // (base 2.0, section 5.27.1.5).
                let wanted_z = submission_z.max(completion_z);
                self.queues = wanted_z.checked_add(1).ok_or(Status::INVALID_FIELD)?.min(QUEUES_MAX);
                assert!(self.queues <= wanted_z.saturating_add(1), "more queues than the host wants");
                return Ok(queue_counts(self.queues));
            }
            FeatureChange::Events(mask) => self.event_mask = mask,
            FeatureChange::KeepAlive { kato_ms } => self.kato_ms = kato_ms,
            FeatureChange::WriteCache { is_on: true } => {}
            FeatureChange::ReservationMask { .. } | FeatureChange::ReservationPersistence { .. } => {
                return Err(Status::INVALID_FIELD);
            }
            FeatureChange::WriteCache { is_on: false } | FeatureChange::Other(..) => {
                return Err(Status::FEATURE_NOT_CHANGEABLE);
            }
        }
        Ok(0)
    }
}

/// Returns log page 12h (feature identifiers supported and effects).
pub(crate) fn effects() -> SupportedPage {
    let mut page = SupportedPage::default();
    for &feature in Feature::ALL {
        let scope = if feature.is_of_namespace() { SupportedBits::OF_NAMESPACE } else { SupportedBits::OF_CONTROLLER };
        page.of[feature as usize].set(SupportedBits::SUPPORTED | scope);
    }
    page
}
