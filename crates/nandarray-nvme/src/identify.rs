//! Data of the Identify command for fabrics hosts: the engine's structures, completed with the fields of a transport,
//! and more values of CNS (the kind of data structure that the host requests).

use nandarray::nvme::{IDENTIFY_BYTES, Status, VIEWS_MAX, namespace_uuid, put_descriptors};

use crate::association::Association;
use crate::limits::{IN_CAPSULE_BYTES, MDTS, QUEUE_ENTRIES_MAX, TRANSFER_BYTES_MAX};
use crate::programs::{ACTIVE_MAX, RANGE_SETS, RANGES};
use crate::subsystem::{NN, NSID_MEMORY, NSID_ND, NSID_PROGRAMS};
use nandarray_nvme_spec::{ADMIN_IN_CAPSULE_BYTES, CommandSet, DISCOVERY_NQN};

const _: () = assert!(ADMIN_IN_CAPSULE_BYTES == 8192, "fixed by the specification, not told in identify");

/// Bytes of the controller's data that say that the N-D commands are there.
const ND_CAPABILITIES: std::ops::Range<usize> = 3072..3104;

type IdentifyPage = [u8; IDENTIFY_BYTES];

fn put(page: &mut IdentifyPage, at: usize, bytes: &[u8]) {
    page[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Largest logical block, which no namespace exceeds.
const LBA_BYTES_MAX: usize = 64 << 10;
/// AWUPF: logical blocks, zero-based, of a write that is whole or absent in every namespace: those of the largest
/// transfer where blocks are largest. Each namespace tells its own number.
const AWUPF_Z: u16 = (TRANSFER_BYTES_MAX / LBA_BYTES_MAX - 1) as u16;

impl Association {
    /// Returns the data of an identify command.
    pub(crate) fn identify(&self, cns: u8, csi: u8, nsid: u32) -> Result<IdentifyPage, Status> {
        if self.is_discovery() && cns != 0x01 {
            return Err(Status::INVALID_FIELD);
        }
        let mut page = [0; IDENTIFY_BYTES];
        match cns {
            0x00 => return self.identify_namespace(nsid),
            0x01 => return self.identify_controller(),
            0x02 | 0x10 => list(&mut page, self.subsystem().active(None)?, nsid)?,
            0x03 => self.identify_descriptors(&mut page, nsid)?,
            0x05 => self.identify_by_set(&mut page, csi, nsid)?,
            0x06 => {
                if !self.subsystem().has(csi) {
                    return Err(Status::INVALID_FIELD);
                }
            }
            0x07 => list(&mut page, self.subsystem().active(Some(csi))?, nsid)?,
            0x08 => {
                self.subsystem().csi(nsid)?;
                // Shared between controllers; ready; write protected if the store is.
                page[1] = 1;
                page[8] = u8::from(self.subsystem().read_only());
                page[14] = 1;
            }
            0x1c => {
                let sets = [CommandSet::NVM, CommandSet::MEMORY, CommandSet::PROGRAMS, CommandSet::ND];
                let bits = sets.iter().filter(|csi| self.subsystem().has(**csi)).fold(0u64, |v, csi| v | 1 << csi);
                put(&mut page, 0, &bits.to_le_bytes());
            }
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(page)
    }

    fn identify_namespace(&self, nsid: u32) -> Result<IdentifyPage, Status> {
        let mut page = [0; IDENTIFY_BYTES];
        if self.subsystem().csi(nsid)? != CommandSet::NVM {
            page[30] = 1;
            return Ok(page);
        }
        page = self.controller().identify(0, nsid)?;
        // Shared between controllers; no boundary, since a host would split its requests there.
        page[30] = 1;
        put(&mut page, 46, &[0, 0]);
        // NAWUPF: every write of one transfer is whole or absent.
        let nawupf_z = (TRANSFER_BYTES_MAX >> page[130]) - 1;
        put(&mut page, 36, &(nawupf_z as u16).to_le_bytes());
        page[99] = u8::from(self.subsystem().read_only());
        Ok(page)
    }

    fn identify_controller(&self) -> Result<IdentifyPage, Status> {
        let mut page = self.controller().identify(1, 0)?;
        let discovery = self.is_discovery();
        // The subsystem may have several controllers.
        page[76] = 1 << 1;
        page[77] = MDTS;
        put(&mut page, 78, &self.cntlid().to_le_bytes());
        // Supported events: changed namespaces, or a changed discovery log.
        let oaes: u32 = if discovery { 1 << 31 } else { 1 << 8 };
        put(&mut page, 92, &oaes.to_le_bytes());
        // 128-bit host identifiers; any command restarts the keep-alive timer.
        put(&mut page, 96, &(1u32 | 1 << 6).to_le_bytes());
        page[111] = if discovery { 2 } else { 1 };
        // Aborts and outstanding event requests, zero-based; firmware: one read-only slot; logs: effects and extended
        // data; number of entries of the error log.
        page[258..260].copy_from_slice(&[3, 3]);
        page[260] = 1 | 1 << 1;
        page[261] = 1 << 1 | 1 << 2;
        page[262] = (crate::logs::ERRORS - 1) as u8;
        // Warning and critical temperature in kelvin.
        put(&mut page, 266, &343u16.to_le_bytes());
        put(&mut page, 268, &353u16.to_le_bytes());
        // Granularity of keep alive, in units of 100 ms.
        put(&mut page, 320, &10u16.to_le_bytes());
        put(&mut page, 514, &QUEUE_ENTRIES_MAX.to_le_bytes());
        put(&mut page, 516, &if discovery { 0 } else { NN }.to_le_bytes());
        put(&mut page, 528, &AWUPF_Z.to_le_bytes());
        put(&mut page, 536, &0x0010_0001u32.to_le_bytes());
        page[768..1024].fill(0);
        if discovery || !self.subsystem().has(CommandSet::ND) {
            page[ND_CAPABILITIES].fill(0);
        }
        let nqn = if discovery { DISCOVERY_NQN } else { self.subsystem().nqn() };
        put(&mut page, 768, nqn.as_bytes());
        put(&mut page, 1792, &((64 + IN_CAPSULE_BYTES as u32) / 16).to_le_bytes());
        put(&mut page, 1796, &1u32.to_le_bytes());
        page[1803] = 1;
        Ok(page)
    }

    fn identify_descriptors(&self, page: &mut IdentifyPage, nsid: u32) -> Result<(), Status> {
        let csi = self.subsystem().csi(nsid)?;
        if csi == CommandSet::NVM {
            *page = self.controller().identify(3, nsid)?;
        } else {
            put_descriptors(page, namespace_uuid(self.subsystem().uuid(), nsid, None), csi);
        }
        Ok(())
    }

    fn identify_by_set(&self, page: &mut IdentifyPage, csi: u8, nsid: u32) -> Result<(), Status> {
        if self.subsystem().csi(nsid)? != csi {
            return Err(Status::INVALID_FIELD);
        }
        match nsid {
            NSID_MEMORY => put(page, 0, &self.subsystem().memory_bytes().to_le_bytes()),
            NSID_PROGRAMS => {
                put(page, 0, &ACTIVE_MAX.to_le_bytes());
                put(page, 2, &RANGE_SETS.to_le_bytes());
                page[6] = RANGES;
                // Maximum size of all programs in MiB.
                put(page, 8, &128u64.to_le_bytes());
            }
            NSID_ND => {
                put(page, 0, b"NDSPACES");
                put(page, 8, &2u16.to_le_bytes());
                put(page, 10, &32u16.to_le_bytes());
                put(page, 12, &(VIEWS_MAX as u32).to_le_bytes());
            }
            _ => {}
        }
        Ok(())
    }
}

/// Fills a page with the namespace identifiers above `nsid`.
fn list(page: &mut IdentifyPage, namespaces: Vec<u32>, nsid: u32) -> Result<(), Status> {
    if nsid >= u32::MAX - 1 {
        return Err(Status::INVALID_NAMESPACE);
    }
    for (to, nsid) in page.chunks_exact_mut(4).zip(namespaces.into_iter().filter(|&n| n > nsid)) {
        to.copy_from_slice(&nsid.to_le_bytes());
    }
    Ok(())
}
