//! Identify: the data structures that describe a controller and its namespaces.
//!
//! Base specification 2.0, figure 275 (controller), and NVM command set 1.0, figure 97 (namespace). Fields that hosts
//! of this controller use have names; all others are zero, as the specification demands for unsupported features.
//! Transports set fields of their own (MDTS, fabrics). The vendor specific part announces the N-D commands.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::controller::{Controller, run};
use super::namespace::NSID_ALL;
use super::pages::from_text;
use super::status::Status;
use super::views::VIEWS_MAX;
use crate::device::command;
use crate::stl::block_size::DIMENSIONS_MAX;

/// Length of the data of an identify command in bytes.
pub const IDENTIFY_BYTES: usize = 4096;

/// Supported optional commands (ONCS): compare, dataset management, write zeroes, copy.
const ONCS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 8;
/// Volatile write cache (VWC): present; a flush may name all namespaces.
const VWC: u8 = 1 | 3 << 1;
/// Version 2.0 of the specification, as in the field VER.
const VERSION: u32 = 2 << 16;
/// Deallocation (DLFEAT): deallocated blocks read as zeroes, and write zeroes deallocates.
const DLFEAT: u8 = 1 | 1 << 3;
/// Namespace features (NSFEAT): thin provisioning, and the fields of atomic writes and of preferred sizes are valid.
const NSFEAT: u8 = 1 | 1 << 1 | 1 << 4;
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
    reserved84: [u8; 27],
    /// Controller type; 1 is an I/O controller.
    pub cntrltype: u8,
    reserved112: [u8; 144],
    /// Supported optional admin commands.
    pub oacs: U16,
    reserved258: [u8; 5],
    /// Number of power states, minus one.
    pub npss: u8,
    reserved264: [u8; 16],
    /// Total capacity in bytes; 0 if the store grows without limit.
    pub tnvmcap: [U64; 2],
    /// Unallocated capacity in bytes.
    pub unvmcap: [U64; 2],
    reserved312: [u8; 200],
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
    reserved1024: [u8; 2048],
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
    reserved81: [u8; 18],
    /// Namespace attributes; bit 0 is set if the namespace is write protected.
    pub nsattr: u8,
    reserved100: [u8; 4],
    /// Namespace globally unique identifier, by [`namespace_uuid`].
    pub nguid: [u8; 16],
    /// IEEE extended unique identifier; zero, as it is not used.
    pub eui64: [u8; 8],
    /// Logical block formats.
    pub lbaf: [LbaFormat; 64],
    reserved384: [u8; 3712],
}

const _: () =
    assert!(size_of::<IdentifyController>() == IDENTIFY_BYTES && size_of::<IdentifyNamespace>() == IDENTIFY_BYTES);

fn padded(field: &mut [u8], text: &str) {
    from_text(field, text);
    field.iter_mut().skip(text.len()).for_each(|b| *b = b' ');
}

fn wide(bytes: u64) -> [U64; 2] {
    [bytes.into(), 0.into()]
}

/// Converts a size in bytes to logical blocks minus one, limited to the range of the field.
fn blocks_z(bytes: u64, lba_bytes: u64) -> U16 {
    U16::new(((bytes / lba_bytes).max(1) - 1).min(u64::from(u16::MAX)) as u16)
}

fn number(numbers: &[(&str, u64)], name: &str) -> u64 {
    numbers.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v)
}

/// Returns the identifier of a namespace, as NGUID and as UUID: made of the drive's identity, the namespace's number
/// and its space, so a namespace that is deleted and made again has another one. A namespace of a fixed number has no
/// space: it keeps its identifier for as long as the drive keeps its identity.
pub fn namespace_uuid(drive: [u8; 16], nsid: u32, space: Option<u32>) -> [u8; 16] {
    let mut uuid = drive;
    uuid[..4].iter_mut().zip(space.unwrap_or_default().to_be_bytes()).for_each(|(to, b)| *to ^= b);
    uuid[12..].iter_mut().zip(nsid.to_be_bytes()).for_each(|(to, b)| *to ^= b);
    // Version 8 (made by rules of its own), variant 10b.
    uuid[6] = uuid[6] & 0xf | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// Fills the page of CNS 03h: a namespace's identifiers, and its command set.
pub fn put_descriptors(page: &mut [u8; IDENTIFY_BYTES], uuid: [u8; 16], csi: u8) {
    for (at, kind) in [(0, NIDT_NGUID), (20, NIDT_UUID)] {
        page[at..at + 2].copy_from_slice(&[kind, 16]);
        page[at + 4..at + 20].copy_from_slice(&uuid);
    }
    page[40..45].copy_from_slice(&[NIDT_CSI, 1, 0, 0, csi]);
}

impl Controller {
    /// Returns the data of an identify command: CNS 00h (namespace), 01h (controller), 02h (identifiers of the active
    /// namespaces above `nsid`) or 03h (namespace identification descriptors).
    ///
    /// # Errors
    /// Invalid field for any other CNS; invalid namespace.
    pub fn identify(&self, cns: u8, nsid: u32) -> Result<[u8; IDENTIFY_BYTES], Status> {
        let mut bytes = [0; IDENTIFY_BYTES];
        match cns {
            0 => bytes.copy_from_slice(self.identify_namespace(nsid)?.as_bytes()),
            1 => bytes.copy_from_slice(self.identify_controller()?.as_bytes()),
            2 if nsid >= NSID_ALL - 1 => return Err(Status::INVALID_NAMESPACE),
            2 => {
                let above = self.namespaces()?.into_iter().filter(|&n| n > nsid);
                for (to, nsid) in bytes.chunks_exact_mut(4).zip(above) {
                    to.copy_from_slice(&nsid.to_le_bytes());
                }
            }
            3 => {
                let ns = self.namespace(nsid)?;
                // Command set 0: NVM.
                put_descriptors(&mut bytes, namespace_uuid(ns.device.identity(), nsid, Some(ns.space.id)), 0);
            }
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(bytes)
    }

    /// Returns the description of the controller.
    ///
    /// # Errors
    /// Namespace not ready.
    pub fn identify_controller(&self) -> Result<IdentifyController, Status> {
        let device = self.device()?;
        let stat = run(&device, command::Stat)?;
        let capacity = device.capacity_bytes();
        let uuid: String = device.identity().iter().map(|b| format!("{b:02x}")).collect();
        let parts: Vec<&str> = [0..8, 8..12, 12..16, 16..20, 20..32].map(|r| &uuid[r]).to_vec();
        let mut c = IdentifyController::new_zeroed();
        padded(&mut c.sn, &uuid[..20]);
        padded(&mut c.mn, "nandarray");
        padded(&mut c.fr, crate::VERSION);
        c.cntlid.set(1);
        c.ver.set(VERSION);
        c.cntrltype = 1;
        c.tnvmcap = wide(capacity);
        c.unvmcap = wide(capacity.saturating_sub(number(&stat, "bytes_live")));
        c.sqes = 0x66;
        c.cqes = 0x44;
        c.nn.set(NSID_ALL - 1);
        c.oncs.set(ONCS);
        c.vwc = VWC;
        c.awun.set(u16::MAX);
        c.awupf.set(u16::MAX);
        c.ocfs.set(1);
        from_text(&mut c.subnqn, &format!("nqn.2014-08.org.nvmexpress:uuid:{}", parts.join("-")));
        c.nd.signature = *b"NDSPACES";
        c.nd.version.set(1);
        c.nd.ndim_max.set(DIMENSIONS_MAX as u16);
        c.nd.views_max.set(VIEWS_MAX as u32);
        Ok(c)
    }

    /// Returns the description of a namespace.
    ///
    /// # Errors
    /// Invalid namespace; namespace not ready.
    pub fn identify_namespace(&self, nsid: u32) -> Result<IdentifyNamespace, Status> {
        let ns = self.namespace(nsid)?;
        let stat = run(&ns.device, command::StatSpace { space: ns.space.id })?;
        let mut n = IdentifyNamespace::new_zeroed();
        n.nsze.set(ns.nsze);
        n.ncap.set(ns.nsze);
        n.nuse.set(number(&stat, "bytes_stored").div_ceil(ns.lba_bytes).min(ns.nsze));
        n.nsfeat = NSFEAT;
        n.dlfeat = DLFEAT;
        let block_bytes = ns.space.shape.bytes as u64;
        n.noiob.set((block_bytes / ns.lba_bytes).min(u64::from(u16::MAX)) as u16);
        let bytes = u128::from(ns.nsze) * u128::from(ns.lba_bytes);
        n.nvmcap = [(bytes as u64).into(), ((bytes >> 64) as u64).into()];
        n.npwg = blocks_z(ns.space.shape.page as u64, ns.lba_bytes);
        n.npwa = n.npwg;
        n.npdg = blocks_z(block_bytes, ns.lba_bytes);
        n.npda = n.npdg;
        n.nows = n.npdg;
        n.mssrl.set(ns.mssrl());
        n.mcl.set(ns.mcl());
        n.msrc = u8::MAX;
        n.nsattr = u8::from(ns.device.read_only());
        // As those of the controller: every write is whole or absent.
        n.nawun.set(u16::MAX);
        n.nawupf.set(u16::MAX);
        n.nguid = namespace_uuid(ns.device.identity(), nsid, Some(ns.space.id));
        n.lbaf[0].lbads = ns.lba_bytes.ilog2() as u8;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn a_namespace_has_an_identifier_of_its_own() {
        let of = |nsid, space| namespace_uuid([0xa5; 16], nsid, space);
        let all = [of(1, Some(1)), of(1, Some(2)), of(2, Some(1)), of(1022, None), of(1023, None)];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{i}");
            assert_eq!((one[6] >> 4, one[8] >> 6), (8, 2), "version and variant");
        }
    }

    #[test]
    fn fields_lie_where_the_specification_has_them() {
        let offsets = [
            (offset_of!(IdentifyController, sn), 4),
            (offset_of!(IdentifyController, rab), 72),
            (offset_of!(IdentifyController, mdts), 77),
            (offset_of!(IdentifyController, cntlid), 78),
            (offset_of!(IdentifyController, ver), 80),
            (offset_of!(IdentifyController, cntrltype), 111),
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
