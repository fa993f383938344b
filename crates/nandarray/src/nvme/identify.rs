//! Identify: the data structures that describe a controller and its namespaces.
//!
//! Base specification 2.0, figure 275 (controller), and NVM command set 1.0, figure 97 (namespace). Fields that a host
//! of ours would look at have names; all others are zero, as the specification wants for features that are not
//! supported. Transports set their own fields (MDTS, fabrics). The vendor's part announces the N-D commands.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::controller::{Controller, run};
use super::namespace::NSID_ALL;
use super::pages::from_text;
use super::status::Status;
use super::views::VIEWS_MAX;
use crate::device::command;
use crate::stl::block_size::DIMENSIONS_MAX;

/// Bytes of the data of an identify command.
pub const IDENTIFY_BYTES: usize = 4096;

/// Compare, dataset management, write zeroes, copy (ONCS).
const ONCS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 8;
/// A volatile write cache is there; flush takes all namespaces (VWC).
const VWC: u8 = 1 | 3 << 1;
/// Version 2.0.
const VERSION: u32 = 2 << 16;
/// Deallocated blocks read as zeroes; write zeroes deallocates (DLFEAT).
const DLFEAT: u8 = 1 | 1 << 3;
/// Thin provisioning, and the preferred sizes are given (NSFEAT).
const NSFEAT: u8 = 1 | 1 << 4;
/// Identifier types of namespace identification descriptors.
const NIDT_NGUID: u8 = 2;
const NIDT_CSI: u8 = 4;

/// The announcement of the N-D commands: the vendor specific bytes 3103:3072 of [`IdentifyController`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct NdCapabilities {
    /// `NDSPACES`.
    pub signature: [u8; 8],
    /// Version of the N-D commands: 1.
    pub version: U16,
    /// The most dimensions.
    pub ndim_max: U16,
    /// The most views that are open at once.
    pub views_max: U32,
    reserved: [u8; 16],
}

/// Identify controller data structure: 4096 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IdentifyController {
    /// PCI vendor ids.
    pub vid: [U16; 2],
    /// Serial number: of the store's UUID.
    pub sn: [u8; 20],
    /// Model number.
    pub mn: [u8; 40],
    /// Firmware revision.
    pub fr: [u8; 8],
    /// Recommended arbitration burst.
    pub rab: u8,
    /// OUI.
    pub ieee: [u8; 3],
    /// Multi-path and sharing.
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
    /// Optional admin commands.
    pub oacs: U16,
    reserved258: [u8; 5],
    /// Power states, counted from zero.
    pub npss: u8,
    reserved264: [u8; 16],
    /// Total capacity in bytes; 0 grows without limit.
    pub tnvmcap: [U64; 2],
    /// Capacity that is not used.
    pub unvmcap: [U64; 2],
    reserved312: [u8; 200],
    /// Submission entry sizes, as powers of two: the smallest in bits 3:0, the largest in 7:4.
    pub sqes: u8,
    /// Completion entry sizes.
    pub cqes: u8,
    /// Outstanding commands; 0 is not reported.
    pub maxcmd: U16,
    /// The largest namespace identifier.
    pub nn: U32,
    /// Optional NVM commands.
    pub oncs: U16,
    /// Fused operations.
    pub fuses: U16,
    /// Format attributes.
    pub fna: u8,
    /// Volatile write cache.
    pub vwc: u8,
    /// Atomic write unit, normal, in logical blocks counted from zero; FFFFh is any command.
    pub awun: U16,
    /// Atomic write unit, power fail.
    pub awupf: U16,
    /// Vendor specific command format.
    pub icsvscc: u8,
    /// Namespace write protection.
    pub nwpc: u8,
    /// Atomic compare and write unit.
    pub acwu: U16,
    /// Copy descriptor formats.
    pub ocfs: U16,
    /// SGL support.
    pub sgls: U32,
    /// Allowed namespaces; 0 is `nn`.
    pub mnan: U32,
    reserved544: [u8; 224],
    /// NVM subsystem's qualified name.
    pub subnqn: [u8; 256],
    reserved1024: [u8; 2048],
    /// Vendor specific.
    pub nd: NdCapabilities,
    reserved3104: [u8; 992],
}

/// A logical block format.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct LbaFormat {
    /// Bytes of metadata.
    pub ms: U16,
    /// Bytes of data, as a power of two.
    pub lbads: u8,
    /// Relative performance; 0 is best.
    pub rp: u8,
}

/// Identify namespace data structure: 4096 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
pub struct IdentifyNamespace {
    /// Size in logical blocks.
    pub nsze: U64,
    /// Capacity in logical blocks.
    pub ncap: U64,
    /// Logical blocks that take space: pages on the medium, rounded up.
    pub nuse: U64,
    /// Features.
    pub nsfeat: u8,
    /// Formats, counted from zero.
    pub nlbaf: u8,
    /// The format in use.
    pub flbas: u8,
    /// Metadata capabilities.
    pub mc: u8,
    /// Protection capabilities.
    pub dpc: u8,
    /// Protection settings.
    pub dps: u8,
    /// Multi-path and sharing.
    pub nmic: u8,
    /// Reservations.
    pub rescap: u8,
    /// Format progress.
    pub fpi: u8,
    /// Deallocation.
    pub dlfeat: u8,
    /// Atomic write units of this namespace and their boundaries; not used, the controller's hold.
    pub atomic: [U16; 6],
    /// Optimal I/O boundary in logical blocks: the building block.
    pub noiob: U16,
    /// Bytes of the namespace.
    pub nvmcap: [U64; 2],
    /// Preferred write granularity, counted from zero: the access unit.
    pub npwg: U16,
    /// Preferred write alignment.
    pub npwa: U16,
    /// Preferred deallocate granularity: the building block.
    pub npdg: U16,
    /// Preferred deallocate alignment.
    pub npda: U16,
    /// Optimal write size: the building block.
    pub nows: U16,
    /// Maximum single source range length of a copy.
    pub mssrl: U16,
    /// Maximum copy length.
    pub mcl: U32,
    /// Maximum source ranges, counted from zero.
    pub msrc: u8,
    reserved81: [u8; 18],
    /// Attributes; bit 0 is set where the namespace is write protected.
    pub nsattr: u8,
    reserved100: [u8; 4],
    /// Globally unique identifier: of the store's UUID and the namespace's number.
    pub nguid: [u8; 16],
    /// Another one, not used.
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

/// A count of logical blocks, counted from zero and cut to what the field takes.
fn blocks_z(bytes: u64, lba_bytes: u64) -> U16 {
    U16::new(((bytes / lba_bytes).max(1) - 1).min(u64::from(u16::MAX)) as u16)
}

fn number(numbers: &[(&str, u64)], name: &str) -> u64 {
    numbers.iter().find(|(n, _)| *n == name).map_or(0, |(_, v)| *v)
}

impl Controller {
    /// The data of an identify command: CNS 00h (namespace), 01h (controller), 02h (active namespaces above `nsid`) and
    /// 03h (namespace identification descriptors).
    ///
    /// # Errors
    /// Invalid field for another CNS; invalid namespace.
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
                let nguid = self.identify_namespace(nsid)?.nguid;
                bytes[..2].copy_from_slice(&[NIDT_NGUID, 16]);
                bytes[4..20].copy_from_slice(&nguid);
                // Command set 0: NVM.
                bytes[20..22].copy_from_slice(&[NIDT_CSI, 1]);
            }
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(bytes)
    }

    /// The controller.
    ///
    /// # Errors
    /// Namespace not ready.
    pub fn identify_controller(&self) -> Result<IdentifyController, Status> {
        let device = self.device()?;
        let stat = run(&device, command::Stat)?;
        let capacity = device.capacity_bytes();
        let uuid: String = device.uuid().iter().map(|b| format!("{b:02x}")).collect();
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

    /// A namespace.
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
        n.nguid = ns.device.uuid();
        n.nguid.iter_mut().rev().zip(nsid.to_le_bytes()).for_each(|(to, b)| *to ^= b);
        n.lbaf[0].lbads = ns.lba_bytes.ilog2() as u8;
        Ok(n)
    }
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
            (offset_of!(IdentifyNamespace, atomic), 34),
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
