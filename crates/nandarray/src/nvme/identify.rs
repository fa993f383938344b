//! Identify: the descriptions of this controller and of its namespaces.
//!
//! The data structures are those of `nandarray-nvme-spec`; transports set fields of their own (MDTS, fabrics).

use nandarray_nvme_spec::{
    IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, NSID_ALL, Status, from_text, put_descriptors,
};
use zerocopy::byteorder::little_endian::{U16, U64};
use zerocopy::{FromZeros, IntoBytes};

use super::controller::{Controller, run};
use super::views::VIEWS_MAX;
use crate::device::command;
use crate::stl::block_size::DIMENSIONS_MAX;

const _: () = assert!(DIMENSIONS_MAX == nandarray_nvme_spec::DIMENSIONS_MAX, "pages have room for every dimension");

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
}
