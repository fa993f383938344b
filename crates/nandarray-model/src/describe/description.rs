//! A device's description, resolved: every number in the simulation's integer units, one struct for each section.

use std::sync::LazyLock;

use nandarray_describe::{Checks, Described, Quantities, Vocabulary};
use serde_json::Value as Json;

use super::presets::PRESETS;
pub use super::sections::bus::Bus;
pub use super::sections::compute::{Compute, ComputeParts, CorePlacement};
pub use super::sections::controller::{ControllerSettings, Scheduling};
pub use super::sections::dram::Dram;
use super::sections::energy::Resting;
pub use super::sections::energy::{Energy, IdleState};
pub use super::sections::ftl::{FtlSettings, GcPolicy, StripeLevel, Striping};
pub use super::sections::geometry::FlashGeometry;
pub use super::sections::host::{Arbitration, HostSettings};
pub use super::sections::link::LinkSettings;
pub use super::sections::nand::{Cell, Nand};
pub use super::sections::reliability::Reliability;
pub use super::sections::spec::Spec;
use super::sections::{KEYS, compute, controller, energy, ftl, geometry, host, nand, reliability, spec};

/// The keys and the presets of devices.
pub static DEVICES: LazyLock<Vocabulary> = LazyLock::new(|| {
    // The keys of a core follow their base.
    let core = KEYS.iter().position(|key| key.path == "compute.core.base").expect("a key of devices") + 1;
    let keys: Vec<_> = KEYS[..core].iter().copied().chain(compute::core_keys()).chain(KEYS[core..].to_vec()).collect();
    Vocabulary { noun: "device", keys: Vec::leak(keys), renamed: compute::RENAMED, presets: &PRESETS }
});

/// Description of a modelled device.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Description {
    /// Name of the device, by which presets are found.
    pub name: String,
    /// Summary in one sentence.
    pub summary: String,
    /// The shape of the flash.
    pub geometry: FlashGeometry,
    /// The channel bus.
    pub bus: Bus,
    /// Times of the cells, and abilities of a die.
    pub nand: Nand,
    /// Cell errors and their correction.
    pub reliability: Reliability,
    /// Firmware of the controller: cores, stages, policies.
    pub controller: ControllerSettings,
    /// Cores for programs; `None` if the device runs none.
    pub compute: Option<Compute>,
    /// Flash management of the conventional, page-mapped configuration.
    pub ftl: FtlSettings,
    /// The device's DRAM.
    pub dram: Dram,
    /// The link to the host.
    pub link: LinkSettings,
    /// The host's cores and queues.
    pub host: HostSettings,
    /// Energy and power of every part.
    pub energy: Energy,
    /// Idle states, the lightest first; empty if the device never sleeps.
    pub idle_states: Vec<IdleState>,
    /// Figures of the device's data sheet, for comparison with the model; `None` if the description has none.
    pub spec: Option<Spec>,
}

impl Described for Description {
    fn vocabulary() -> &'static Vocabulary {
        &DEVICES
    }

    fn read(q: &Quantities<'_>) -> Self {
        Self {
            name: q.name().to_owned(),
            summary: q.summary().to_owned(),
            geometry: FlashGeometry::read(q),
            bus: Bus::read(q),
            nand: Nand::read(q),
            reliability: Reliability::read(q),
            controller: ControllerSettings::read(q),
            compute: q.get::<Option<u32>>("compute.cores").map(|_| Compute::read(q)),
            ftl: FtlSettings::read(q),
            dram: Dram::read(q),
            link: LinkSettings::read(q),
            host: HostSettings::read(q),
            energy: Energy::read(q),
            idle_states: Resting::read(q).idle_states,
            spec: Some(Spec::read(q)).filter(Spec::promises),
        }
    }

    fn check(&self, checks: &mut Checks<'_>) {
        let rules = [geometry::check, nand::check, reliability::check, ftl::check, compute::check, controller::check];
        rules.into_iter().chain([host::check, energy::check, spec::check]).for_each(|rule| rule(self, checks));
    }

    fn figures(&self) -> Json {
        serde_json::to_value(self.summarise()).expect("figures are plain data")
    }
}
