//! Data of the Identify command for fabrics hosts: the engine's structures, completed with the fields of a transport,
//! and more values of CNS (the kind of data structure that the host requests).

use nandarray::nvme::{VIEWS_MAX, namespace_uuid};
use nandarray_nvme_spec::{
    ADMIN_IN_CAPSULE_BYTES, Cns, CommandSet, CompletionEntry, DIMENSIONS_MAX, DISCOVERY_NQN, IDENTIFY_BYTES,
    IdentifyController, IdentifyMemory, IdentifyNamespace, IdentifyNd, IdentifyPrograms, NSID_MEMORY, NSID_ND,
    NSID_PROGRAMS, NamespaceOfAnySet, NdCapabilities, Status, SubmissionEntry, VERSION_2_0, from_text, put_descriptors,
};
use zerocopy::FromZeros;

use crate::association::Association;
use crate::features::WARNING_KELVIN;
use crate::limits::{IN_CAPSULE_BYTES, MDTS, QUEUE_ENTRIES_MAX, TRANSFER_BYTES_MAX};
use crate::ports;
use crate::programs::{ACTIVE_MAX, PROGRAMS_BYTES_MAX, RANGE_SETS, RANGES};
use crate::subsystem::NN;

const _: () = assert!(ADMIN_IN_CAPSULE_BYTES == 8192, "fixed by the specification, not told in identify");

type IdentifyPage = [u8; IDENTIFY_BYTES];

/// Largest logical block, which no namespace exceeds.
const LBA_BYTES_MAX: usize = 64 << 10;
/// AWUPF: logical blocks, zero-based, of a write that is whole or absent in every namespace: those of the largest
/// transfer where blocks are largest. Each namespace tells its own number.
const AWUPF_Z: u16 = (TRANSFER_BYTES_MAX / LBA_BYTES_MAX - 1) as u16;
/// Version of the N-D commands over fabrics, which have a command set of their own.
const ND_VERSION: u16 = 2;
/// CMIC: the subsystem may have several ports, several controllers, and states of the paths to its namespaces.
const SEVERAL_PORTS: u8 = 1;
const SEVERAL_CONTROLLERS: u8 = 1 << 1;
const PATH_STATES: u8 = 1 << 3;
/// ANACAP: paths are optimized or not, and a namespace stays in its group.
const PATH_CAPABILITIES: u8 = 1 | 1 << 1 | 1 << 6;
/// ANATT: longest time of a change in seconds, which is not to be 0; there is none.
const PATH_CHANGE_SECONDS: u8 = 1;
/// NMIC: several controllers have the namespace.
const IS_SHARED: u8 = 1;
/// NSTAT: the namespace is ready.
const IS_READY: u8 = 1;
/// OAES: events of changed namespaces, of a changed discovery log.
const NAMESPACE_EVENTS: u32 = 1 << 8;
const DISCOVERY_EVENTS: u32 = 1 << 31;
/// CTRATT: host identifiers have 128 bits; any command restarts the keep alive timer (traffic based keep alive).
const ATTRIBUTES: u32 = 1 | 1 << 6;
/// CNTRLTYPE: a controller of I/O commands, of a discovery service.
const IO_CONTROLLER: u8 = 1;
const DISCOVERY_CONTROLLER: u8 = 2;
/// ACL and AERL: commands that can be aborted at once, and event requests that are held, zero-based.
const ABORTS_Z: u8 = 3;
const EVENTS_Z: u8 = (crate::association::EVENTS_MAX - 1) as u8;
/// FRMW: slot 1 is the only one, and read only.
const ONE_FIRMWARE: u8 = 1 | 1 << 1;
/// LPA: effects of commands, and extended data of Get Log Page.
const LOG_ATTRIBUTES: u8 = 1 << 1 | 1 << 2;
/// CCTEMP: temperature in kelvin that would be critical.
const CRITICAL_KELVIN: u16 = 353;
/// KAS: granularity of the keep alive timer, in units of 100 ms.
const KEEP_ALIVE_GRANULARITY: u16 = 10;
/// ONCS: reservations.
const RESERVATIONS: u16 = 1 << 5;
/// SGLS: SGLs are supported, with data by offsets in capsules and by transport descriptors.
const SGLS: u32 = 0x0010_0001;

impl Association {
    /// Returns the group of every namespace; 0 if paths have no states.
    fn path_group(&self) -> u32 {
        if self.has_path_states() { ports::GROUP } else { 0 }
    }

    /// Returns the data of an identify command.
    pub(crate) fn identify(&self, cns: Cns, csi: u8, nsid: u32) -> Result<IdentifyPage, Status> {
        if self.is_discovery() && cns != Cns::Controller {
            return Err(Status::INVALID_FIELD);
        }
        let mut page = [0; IDENTIFY_BYTES];
        match cns {
            Cns::Namespace => return self.identify_namespace(nsid),
            Cns::Controller => return self.identify_controller(),
            Cns::ActiveNamespaces | Cns::AllocatedNamespaces => {
                list(&mut page, self.active(None)?, nsid)?;
            }
            Cns::Descriptors => self.identify_descriptors(&mut page, nsid)?,
            Cns::NamespaceOfSet => return self.identify_by_set(csi, nsid),
            Cns::ControllerOfSet if !self.has(csi) => return Err(Status::INVALID_FIELD),
            Cns::ControllerOfSet => {}
            Cns::ActiveNamespacesOfSet => list(&mut page, self.active(Some(csi))?, nsid)?,
            Cns::NamespaceOfAnySet => {
                self.csi(nsid)?;
                let mut told = NamespaceOfAnySet::new_zeroed();
                told.nmic = IS_SHARED;
                told.anagrpid.set(self.path_group());
                if self.csi(nsid)? == CommandSet::NVM {
                    told.rescap = self.reservation_capabilities();
                }
                told.nsattr = u8::from(!self.may_write(nsid));
                told.nstat = IS_READY;
                return Ok(zerocopy::transmute!(told));
            }
            Cns::CommandSets => {
                let sets = [CommandSet::NVM, CommandSet::MEMORY, CommandSet::PROGRAMS, CommandSet::ND];
                let bits = sets.iter().filter(|csi| self.has(**csi)).fold(0u64, |v, csi| v | 1 << csi);
                page[..8].copy_from_slice(&bits.to_le_bytes());
            }
        }
        Ok(page)
    }

    fn identify_namespace(&self, nsid: u32) -> Result<IdentifyPage, Status> {
        if self.csi(nsid)? != CommandSet::NVM {
            let mut told = IdentifyNamespace::new_zeroed();
            told.nmic = IS_SHARED;
            told.anagrpid.set(self.path_group());
            return Ok(zerocopy::transmute!(told));
        }
        let mut told = self.controller().identify_namespace(nsid)?;
        told.nmic = IS_SHARED;
        told.anagrpid.set(self.path_group());
        told.rescap = self.reservation_capabilities();
        // No boundary, since a host would split its requests there.
        told.noiob.set(0);
        // Every write of one transfer is whole or absent.
        let whole = TRANSFER_BYTES_MAX >> told.lbaf[0].lbads;
        assert!(whole > usize::from(AWUPF_Z), "{whole} blocks of a transfer, fewer than the controller tells");
        told.nawupf.set((whole - 1) as u16);
        told.nsattr = u8::from(!self.may_write(nsid));
        Ok(zerocopy::transmute!(told))
    }

    fn identify_controller(&self) -> Result<IdentifyPage, Status> {
        let mut told: IdentifyController = self.controller().identify_controller()?;
        let discovery = self.is_discovery();
        assert_eq!(told.ver.get(), VERSION_2_0, "the version of identify is that of the property");
        told.cmic = SEVERAL_CONTROLLERS;
        if self.has_path_states() {
            told.cmic |= SEVERAL_PORTS | PATH_STATES;
            (told.anacap, told.anatt) = (PATH_CAPABILITIES, PATH_CHANGE_SECONDS);
            told.anagrpmax.set(ports::GROUP);
            told.nanagrpid.set(1);
            // A host sizes its room for the log page by this number.
            told.mnan.set(NN);
        }
        told.mdts = MDTS;
        told.cntlid.set(self.cntlid());
        told.oaes.set(if discovery { DISCOVERY_EVENTS } else { NAMESPACE_EVENTS });
        told.ctratt.set(ATTRIBUTES);
        told.cntrltype = if discovery { DISCOVERY_CONTROLLER } else { IO_CONTROLLER };
        (told.acl, told.aerl, told.frmw, told.lpa) = (ABORTS_Z, EVENTS_Z, ONE_FIRMWARE, LOG_ATTRIBUTES);
        told.elpe = (crate::logs::ERRORS - 1) as u8;
        told.wctemp.set(WARNING_KELVIN);
        told.cctemp.set(CRITICAL_KELVIN);
        told.kas.set(KEEP_ALIVE_GRANULARITY);
        told.maxcmd.set(QUEUE_ENTRIES_MAX);
        told.nn.set(if discovery { 0 } else { NN });
        told.awupf.set(AWUPF_Z);
        told.oncs.set(told.oncs.get() | RESERVATIONS);
        told.sgls.set(SGLS);
        if discovery || !self.has(CommandSet::ND) {
            told.nd = NdCapabilities::none();
        }
        from_text(&mut told.subnqn, if discovery { DISCOVERY_NQN } else { self.subsystem().nqn() });
        // Units of 16 bytes; data begins right behind the entry, and is described by one descriptor.
        told.ioccsz.set(((size_of::<SubmissionEntry>() + IN_CAPSULE_BYTES) / 16) as u32);
        told.iorcsz.set((size_of::<CompletionEntry>() / 16) as u32);
        told.msdbd = 1;
        Ok(zerocopy::transmute!(told))
    }

    fn identify_descriptors(&self, page: &mut IdentifyPage, nsid: u32) -> Result<(), Status> {
        let csi = self.csi(nsid)?;
        if csi == CommandSet::NVM {
            *page = self.controller().identify(Cns::Descriptors as u8, nsid)?;
        } else {
            put_descriptors(page, namespace_uuid(self.subsystem().uuid(), nsid, None), csi);
        }
        Ok(())
    }

    fn identify_by_set(&self, csi: u8, nsid: u32) -> Result<IdentifyPage, Status> {
        if self.csi(nsid)? != csi {
            return Err(Status::INVALID_FIELD);
        }
        Ok(match nsid {
            NSID_MEMORY => {
                let mut told = IdentifyMemory::new_zeroed();
                told.bytes.set(self.tenant().memory.len());
                zerocopy::transmute!(told)
            }
            NSID_PROGRAMS => {
                let mut told = IdentifyPrograms::new_zeroed();
                told.active_max.set(ACTIVE_MAX);
                told.range_sets_max.set(RANGE_SETS);
                told.ranges_max = RANGES;
                told.programs_mib.set(PROGRAMS_BYTES_MAX as u64 >> 20);
                zerocopy::transmute!(told)
            }
            NSID_ND => {
                let mut told = IdentifyNd::new_zeroed();
                told.nd = NdCapabilities::new(ND_VERSION, DIMENSIONS_MAX as u16, VIEWS_MAX as u32);
                zerocopy::transmute!(told)
            }
            _ => [0; IDENTIFY_BYTES],
        })
    }
}

/// Fills a page with the namespace identifiers above `nsid`.
fn list(page: &mut IdentifyPage, namespaces: Vec<u32>, nsid: u32) -> Result<(), Status> {
    if nsid >= u32::MAX - 1 {
        return Err(Status::INVALID_NAMESPACE);
    }
    assert!(namespaces.is_sorted(), "namespaces are listed in order: {namespaces:?}");
    for (to, nsid) in page.chunks_exact_mut(4).zip(namespaces.into_iter().filter(|&n| n > nsid)) {
        to.copy_from_slice(&nsid.to_le_bytes());
    }
    Ok(())
}
