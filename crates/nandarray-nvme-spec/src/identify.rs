//! Identify: the data structures that describe a controller and its namespaces.
//!
//! Base specification 2.0, figure 275 (controller), and NVM command set 1.0, figure 97 (namespace). Fields that hosts
//! of this controller use have names; all others are zero, as the specification demands for unsupported features. The
//! vendor specific part announces the N-D commands.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::fields::numbers;

numbers! {
    /// The data structure that Identify returns (CNS; base 2.0, figure 273).
    Cns {
        /// Namespace.
        Namespace = 0x00,
        /// Controller.
        Controller = 0x01,
        /// Identifiers of the active namespaces.
        ActiveNamespaces = 0x02,
        /// Identification descriptors of a namespace.
        Descriptors = 0x03,
        /// Namespace, as its command set describes it.
        NamespaceOfSet = 0x05,
        /// Controller, as a command set describes it.
        ControllerOfSet = 0x06,
        /// Identifiers of the active namespaces of a command set.
        ActiveNamespacesOfSet = 0x07,
        /// Namespace, whatever its command set.
        NamespaceOfAnySet = 0x08,
        /// Identifiers of the allocated namespaces.
        AllocatedNamespaces = 0x10,
        /// Command sets of the controller.
        CommandSets = 0x1c,
    }
}

/// Length of the data of an identify command in bytes.
pub const IDENTIFY_BYTES: usize = 4096;

/// Type of a namespace identification descriptor: namespace globally unique identifier.
const NIDT_NGUID: u8 = 2;
/// Type of a namespace identification descriptor: universally unique identifier.
const NIDT_UUID: u8 = 3;
/// Type of a namespace identification descriptor: command set identifier.
const NIDT_CSI: u8 = 4;

/// The announcement of the N-D commands, in the vendor specific bytes 3103:3072 of [`IdentifyController`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct NdCapabilities {
    /// Constant text `NDSPACES`.
    pub signature: [u8; 8],
    /// Version of the N-D commands, which is 1.
    pub version: U16,
    /// Largest number of dimensions of a space.
    pub ndim_max: U16,
    /// Largest number of views that may be open at once.
    pub views_max: U32,
    reserved: [u8; 16],
}

/// Identify controller data structure: 4096 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IdentifyController {
    /// PCI vendor identifiers.
    pub vid: [U16; 2],
    /// Serial number, derived from the store's UUID.
    pub sn: [u8; 20],
    /// Model number.
    pub mn: [u8; 40],
    /// Firmware revision.
    pub fr: [u8; 8],
    /// Recommended arbitration burst.
    pub rab: u8,
    /// Organizationally unique identifier (IEEE) of the vendor.
    pub ieee: [u8; 3],
    /// Multi-path I/O and namespace sharing capabilities.
    pub cmic: u8,
    /// Maximum data transfer size, as a power of two of the page size; 0 is no limit.
    pub mdts: u8,
    /// Controller identifier.
    pub cntlid: U16,
    /// Version of the specification.
    pub ver: U32,
    reserved84: [u8; 8],
    /// Supported events: bit 8, changed namespaces; bit 31, a changed discovery log.
    pub oaes: U32,
    /// Attributes: bit 0, host identifiers of 128 bits; bit 6, every command restarts the keep alive timer.
    pub ctratt: U32,
    reserved100: [u8; 11],
    /// Controller type; 1 is an I/O controller, 2 one of a discovery service.
    pub cntrltype: u8,
    reserved112: [u8; 144],
    /// Supported optional admin commands.
    pub oacs: U16,
    /// Number of commands that can be aborted at once, minus one.
    pub acl: u8,
    /// Number of event requests that the controller holds, minus one.
    pub aerl: u8,
    /// Firmware: bit 0, slot 1 is read only; bits 3:1, number of slots.
    pub frmw: u8,
    /// Log pages: bit 1, effects of commands; bit 2, extended data.
    pub lpa: u8,
    /// Number of entries of the error log, minus one.
    pub elpe: u8,
    /// Number of power states, minus one.
    pub npss: u8,
    reserved264: [u8; 2],
    /// Temperature in kelvin from which on there is a warning.
    pub wctemp: U16,
    /// Temperature in kelvin from which on the controller is too hot.
    pub cctemp: U16,
    reserved270: [u8; 10],
    /// Total capacity in bytes; 0 if the store grows without limit.
    pub tnvmcap: [U64; 2],
    /// Unallocated capacity in bytes.
    pub unvmcap: [U64; 2],
    reserved312: [u8; 8],
    /// Granularity of the keep alive timer, in units of 100 ms.
    pub kas: U16,
    reserved322: [u8; 20],
    /// Longest time that a path's state changes, in seconds (ANATT).
    pub anatt: u8,
    /// States of paths that the controller tells (ANACAP): bit 0, optimized; bit 1, non-optimized; bit 6, the group of
    /// a namespace does not change.
    pub anacap: u8,
    /// Largest identifier of a group of namespaces whose paths have a state (ANAGRPMAX).
    pub anagrpmax: U32,
    /// Number of these groups (NANAGRPID).
    pub nanagrpid: U32,
    reserved352: [u8; 160],
    /// Sizes of submission entries as powers of two: the required one in bits 3:0, the largest in bits 7:4.
    pub sqes: u8,
    /// Sizes of completion entries, in the same form as `sqes`.
    pub cqes: u8,
    /// Largest number of outstanding commands; 0 if not reported.
    pub maxcmd: U16,
    /// Largest valid namespace identifier.
    pub nn: U32,
    /// Supported optional NVM commands.
    pub oncs: U16,
    /// Supported fused operations.
    pub fuses: U16,
    /// Attributes of the format command.
    pub fna: u8,
    /// Properties of the volatile write cache.
    pub vwc: u8,
    /// Atomic write unit in normal operation, in logical blocks minus one; FFFFh if every write is atomic.
    pub awun: U16,
    /// Atomic write unit at a power failure, in the same form as `awun`.
    pub awupf: U16,
    /// Format of vendor specific I/O commands.
    pub icsvscc: u8,
    /// Namespace write protection capabilities.
    pub nwpc: u8,
    /// Atomic compare and write unit.
    pub acwu: U16,
    /// Supported copy descriptor formats.
    pub ocfs: U16,
    /// SGL support.
    pub sgls: U32,
    /// Largest number of allowed namespaces; 0 means `nn`.
    pub mnan: U32,
    reserved544: [u8; 224],
    /// Qualified name of the NVM subsystem (NQN).
    pub subnqn: [u8; 256],
    reserved1024: [u8; 768],
    /// Size of a submission capsule of an I/O queue, in units of 16 bytes.
    pub ioccsz: U32,
    /// Size of a completion capsule of an I/O queue, in units of 16 bytes.
    pub iorcsz: U32,
    /// Offset of data within a capsule, in units of 16 bytes.
    pub icdoff: U16,
    /// Attributes of a controller over fabrics.
    pub fcatt: u8,
    /// Number of SGL descriptors of a command.
    pub msdbd: u8,
    reserved1804: [u8; 1268],
    /// Vendor specific announcement of the N-D commands.
    pub nd: NdCapabilities,
    reserved3104: [u8; 992],
}

/// A logical block format.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct LbaFormat {
    /// Bytes of metadata for each logical block.
    pub ms: U16,
    /// Size of a logical block in bytes, as a power of two.
    pub lbads: u8,
    /// Relative performance; 0 is best.
    pub rp: u8,
}

/// Identify namespace data structure: 4096 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IdentifyNamespace {
    /// Size of the namespace in logical blocks.
    pub nsze: U64,
    /// Capacity of the namespace in logical blocks.
    pub ncap: U64,
    /// Number of logical blocks that take space: the space's pages on the medium, rounded up.
    pub nuse: U64,
    /// Features of the namespace.
    pub nsfeat: u8,
    /// Number of logical block formats, minus one.
    pub nlbaf: u8,
    /// Index of the logical block format in use.
    pub flbas: u8,
    /// Metadata capabilities.
    pub mc: u8,
    /// End-to-end data protection capabilities.
    pub dpc: u8,
    /// End-to-end data protection settings.
    pub dps: u8,
    /// Multi-path I/O and sharing capabilities.
    pub nmic: u8,
    /// Reservation capabilities.
    pub rescap: u8,
    /// Progress of a format command.
    pub fpi: u8,
    /// Deallocation features.
    pub dlfeat: u8,
    /// Atomic write unit of this namespace in normal operation, in the form of `awun`.
    pub nawun: U16,
    /// Atomic write unit of this namespace at a power failure, in the same form.
    pub nawupf: U16,
    /// Atomic compare and write unit of this namespace.
    pub nacwu: U16,
    /// Boundaries that no atomic write crosses, and the offset of the first; zero, as there are none.
    pub boundaries: [U16; 3],
    /// Optimal I/O boundary in logical blocks: the size of a building block.
    pub noiob: U16,
    /// Capacity of the namespace in bytes.
    pub nvmcap: [U64; 2],
    /// Preferred write granularity in logical blocks minus one: the access unit.
    pub npwg: U16,
    /// Preferred write alignment in logical blocks minus one.
    pub npwa: U16,
    /// Preferred deallocation granularity in logical blocks minus one: the building block.
    pub npdg: U16,
    /// Preferred deallocation alignment in logical blocks minus one.
    pub npda: U16,
    /// Optimal write size in logical blocks minus one: the building block.
    pub nows: U16,
    /// Maximum length of a source range of a copy, in logical blocks.
    pub mssrl: U16,
    /// Maximum length of a copy, in logical blocks.
    pub mcl: U32,
    /// Maximum number of source ranges of a copy, minus one.
    pub msrc: u8,
    reserved81: [u8; 11],
    /// Group whose state the paths to the namespace have (ANAGRPID).
    pub anagrpid: U32,
    reserved96: [u8; 3],
    /// Namespace attributes; bit 0 is set if the namespace is write protected.
    pub nsattr: u8,
    reserved100: [u8; 4],
    /// Namespace globally unique identifier.
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier; zero, as it is not used.
    pub eui64: [u8; 8],
    /// Logical block formats.
    pub lbaf: [LbaFormat; 64],
    reserved384: [u8; 3712],
}

/// What Identify says of a namespace whatever its command set (CNS 08h; base 2.0, figure 280): 4096 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct NamespaceOfAnySet {
    /// Features of the namespace.
    pub nsfeat: u8,
    /// Multi-path I/O and sharing capabilities; bit 0, several controllers have the namespace.
    pub nmic: u8,
    /// Reservation capabilities ([`crate::ReservationCapabilities`]).
    pub rescap: u8,
    reserved3: u8,
    /// Group whose state the paths to the namespace have (ANAGRPID).
    pub anagrpid: U32,
    /// Attributes; bit 0 is set if the namespace is write protected.
    pub nsattr: u8,
    reserved9: [u8; 5],
    /// Status; bit 0 is set if the namespace is ready.
    pub nstat: u8,
    reserved15: [u8; 4081],
}

/// What Identify says of the namespace of Subsystem Local Memory (CNS 05h): 4096 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IdentifyMemory {
    /// Size of the memory in bytes.
    pub bytes: U64,
    reserved8: [u8; 4088],
}

/// What Identify says of the namespace of Computational Programs (CNS 05h): 4096 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IdentifyPrograms {
    /// Largest number of programs that are active at once.
    pub active_max: U16,
    /// Largest number of memory range sets.
    pub range_sets_max: U16,
    reserved4: [u8; 2],
    /// Largest number of ranges of a set or an execution.
    pub ranges_max: u8,
    reserved7: u8,
    /// Largest size of all programs together, in MiB.
    pub programs_mib: U64,
    reserved16: [u8; 4080],
}

/// What Identify says of the N-D namespace (CNS 05h): 4096 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IdentifyNd {
    /// The announcement of the N-D commands.
    pub nd: NdCapabilities,
    reserved32: [u8; 4064],
}

const _: () = assert!(
    size_of::<IdentifyController>() == IDENTIFY_BYTES
        && size_of::<IdentifyNamespace>() == IDENTIFY_BYTES
        && size_of::<NamespaceOfAnySet>() == IDENTIFY_BYTES
        && size_of::<IdentifyMemory>() == IDENTIFY_BYTES
        && size_of::<IdentifyPrograms>() == IDENTIFY_BYTES
        && size_of::<IdentifyNd>() == IDENTIFY_BYTES
        && size_of::<NdCapabilities>() == 32
);

impl NdCapabilities {
    /// Announces a version of the N-D commands.
    pub fn new(version: u16, ndim_max: u16, views_max: u32) -> Self {
        Self {
            signature: *b"NDSPACES",
            version: version.into(),
            ndim_max: ndim_max.into(),
            views_max: views_max.into(),
            reserved: [0; 16],
        }
    }

    /// Announces nothing: there are no N-D commands.
    pub fn none() -> Self {
        Self::new_zeroed()
    }
}

const _: () = assert!(size_of::<NamespaceOfAnySet>() == IDENTIFY_BYTES, "CNS 08h");
const _: () = assert!(size_of::<IdentifyMemory>() == IDENTIFY_BYTES && size_of::<IdentifyPrograms>() == IDENTIFY_BYTES);

/// Fills the page of CNS 03h: a namespace's identifiers, and its command set.
pub fn put_descriptors(page: &mut [u8; IDENTIFY_BYTES], uuid: [u8; 16], csi: u8) {
    for (at, kind) in [(0, NIDT_NGUID), (20, NIDT_UUID)] {
        page[at..at + 2].copy_from_slice(&[kind, 16]);
        page[at + 4..at + 20].copy_from_slice(&uuid);
    }
    page[40..45].copy_from_slice(&[NIDT_CSI, 1, 0, 0, csi]);
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn fields_lie_where_the_specification_has_them() {
        let offsets = [
            (offset_of!(IdentifyController, sn), 4),
            (offset_of!(IdentifyController, rab), 72),
            (offset_of!(IdentifyController, mdts), 77),
            (offset_of!(IdentifyController, cntlid), 78),
            (offset_of!(IdentifyController, ver), 80),
            (offset_of!(IdentifyController, oaes), 92),
            (offset_of!(IdentifyController, ctratt), 96),
            (offset_of!(IdentifyController, cntrltype), 111),
            (offset_of!(IdentifyController, acl), 258),
            (offset_of!(IdentifyController, elpe), 262),
            (offset_of!(IdentifyController, wctemp), 266),
            (offset_of!(IdentifyController, cctemp), 268),
            (offset_of!(IdentifyController, kas), 320),
            (offset_of!(IdentifyController, anacap), 343),
            (offset_of!(IdentifyController, nanagrpid), 348),
            (offset_of!(IdentifyNamespace, anagrpid), 92),
            (offset_of!(NamespaceOfAnySet, anagrpid), 4),
            (offset_of!(IdentifyController, maxcmd), 514),
            (offset_of!(IdentifyController, ioccsz), 1792),
            (offset_of!(IdentifyController, iorcsz), 1796),
            (offset_of!(IdentifyController, msdbd), 1803),
            (offset_of!(NamespaceOfAnySet, rescap), 2),
            (offset_of!(IdentifyNamespace, rescap), 31),
            (offset_of!(NamespaceOfAnySet, nsattr), 8),
            (offset_of!(NamespaceOfAnySet, nstat), 14),
            (offset_of!(IdentifyPrograms, ranges_max), 6),
            (offset_of!(IdentifyPrograms, programs_mib), 8),
            (offset_of!(IdentifyController, oacs), 256),
            (offset_of!(IdentifyController, npss), 263),
            (offset_of!(IdentifyController, tnvmcap), 280),
            (offset_of!(IdentifyController, sqes), 512),
            (offset_of!(IdentifyController, nn), 516),
            (offset_of!(IdentifyController, oncs), 520),
            (offset_of!(IdentifyController, vwc), 525),
            (offset_of!(IdentifyController, awupf), 528),
            (offset_of!(IdentifyController, acwu), 532),
            (offset_of!(IdentifyController, ocfs), 534),
            (offset_of!(IdentifyController, sgls), 536),
            (offset_of!(IdentifyController, subnqn), 768),
            (offset_of!(IdentifyController, nd), 3072),
            (offset_of!(IdentifyNamespace, nsfeat), 24),
            (offset_of!(IdentifyNamespace, dlfeat), 33),
            (offset_of!(IdentifyNamespace, nawun), 34),
            (offset_of!(IdentifyNamespace, nawupf), 36),
            (offset_of!(IdentifyNamespace, noiob), 46),
            (offset_of!(IdentifyNamespace, nvmcap), 48),
            (offset_of!(IdentifyNamespace, npwg), 64),
            (offset_of!(IdentifyNamespace, nows), 72),
            (offset_of!(IdentifyNamespace, mssrl), 74),
            (offset_of!(IdentifyNamespace, mcl), 76),
            (offset_of!(IdentifyNamespace, msrc), 80),
            (offset_of!(IdentifyNamespace, nsattr), 99),
            (offset_of!(IdentifyNamespace, nguid), 104),
            (offset_of!(IdentifyNamespace, lbaf), 128),
        ];
        for (i, (found, wanted)) in offsets.into_iter().enumerate() {
            assert_eq!(found, wanted, "field {i}");
        }
    }
}
