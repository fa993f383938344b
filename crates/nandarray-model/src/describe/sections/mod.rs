//! The sections of a description: each declares its keys and the struct that they are read into, and checks the rules
//! between them.

use nandarray_describe::{Key, ValueKind, concat};
use nandarray_sim::Ps;

pub(super) mod bus;
pub(super) mod compute;
pub(super) mod controller;
pub(super) mod dram;
pub(super) mod energy;
pub(super) mod ftl;
pub(super) mod geometry;
pub(super) mod host;
pub(super) mod link;
pub(super) mod nand;
pub(super) mod reliability;
pub(super) mod spec;

const KIB: u64 = 1 << 10;
const TIB: u64 = 1 << 40;
/// Time of a firmware stage or of a command on a bus: up to a millisecond.
const SHORT: ValueKind = ValueKind::Time(Ps::ZERO, Ps::from_ms(1));
const POWER: ValueKind = ValueKind::Power(0.0, 1e9);

const SECTIONS: &[&[Key]] = &[
    geometry::FlashGeometry::KEYS,
    bus::Bus::KEYS,
    nand::Nand::KEYS,
    reliability::Reliability::KEYS,
    controller::ControllerSettings::KEYS,
    compute::Compute::KEYS,
    compute::CoreBase::KEYS,
    ftl::FtlSettings::KEYS,
    dram::Dram::KEYS,
    link::LinkSettings::KEYS,
    host::HostSettings::KEYS,
    energy::Energy::KEYS,
    energy::Resting::KEYS,
    spec::Spec::KEYS,
];

/// All keys but those of a core (`[compute.core]`), in the order in which they are printed.
pub const KEYS: &[Key] = &concat::<{ nandarray_describe::count(SECTIONS) }>(SECTIONS);
