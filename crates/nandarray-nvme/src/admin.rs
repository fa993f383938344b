//! Commands of the admin queue, including fabrics commands: identify, log pages, features, programs.
//!
//! Each is decoded to a typed command (`nandarray-nvme-spec`) once it is known to exist (`commands`); the values of
//! features and properties, and the contents of log pages, are in the files of these names.

use std::sync::atomic::Ordering;

use nandarray::nvme::{ArrayAccess, NSID_ALL};
use nandarray_nvme_spec::{
    AdminCommand, AdminOpcode, CNTLID_ANY, ChangedPage, CommandSet, CompletionEntry, DiscoveryEntry, DiscoveryHeader,
    FABRICS_OPCODE, FabricsCommand, Feature, FeatureChange, LogPage, LogRequest, NamesPage, Status, SubmissionEntry,
    TREQ_SECURE_CHANNEL, TSAS_TLS_13,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::association::Association;
use crate::commands::{CommandEffect, admin_effect, admin_opcode};
use crate::features;
use crate::logs;
use crate::payload::Payload;
use crate::ports;
use crate::properties::{self, PropertyWrite};
use crate::running::RunCommand;

/// The reply to an admin command.
#[derive(Debug)]
pub enum AdminAnswer {
    /// The command is complete.
    Done(CompletionEntry),
    /// The controller holds the command, an event request; the notifier sends its completion later.
    Held,
}

impl Association {
    /// Executes a command of the admin queue, including all fabrics commands except connect.
    pub fn admin(&self, entry: &SubmissionEntry, payload: Payload<'_>) -> AdminAnswer {
        self.seen.store(true, Ordering::Relaxed);
        if entry.opcode == FABRICS_OPCODE {
            let done = self.fabrics(entry);
            return AdminAnswer::Done(self.ended(0, entry, done));
        }
        let programs = self.has(CommandSet::PROGRAMS) && !self.is_discovery();
        let done = match admin_opcode(entry.opcode, programs) {
            Some(AdminOpcode::AsyncEvent) => match self.hold(entry.cid.get()) {
                Ok(()) => return AdminAnswer::Held,
                Err(status) => Err(status),
            },
            Some(opcode) => self.admin_now(opcode, entry, payload),
            None => Err(Status::INVALID_OPCODE),
        };
        AdminAnswer::Done(self.ended(0, entry, done))
    }

    fn admin_now(
        &self,
        opcode: AdminOpcode,
        entry: &SubmissionEntry,
        mut payload: Payload<'_>,
    ) -> Result<(u32, u32), Status> {
        if entry.is_fused() {
            return Err(Status::INVALID_FIELD);
        }
        if !self.state.lock().csts.ready {
            return Err(Status::SEQUENCE_ERROR);
        }
        if admin_effect(opcode) == CommandEffect::Store && self.subsystem().read_only() {
            return Err(Status::WRITE_PROTECTED);
        }
        let subsystem = self.subsystem();
        let command = AdminCommand::decode(entry)?;
        assert_eq!(command.opcode(), opcode, "{entry:?}");
        match command {
            AdminCommand::Identify { cns, csi, nsid } => payload.give(&self.identify(cns, csi, nsid)?, 0),
            AdminCommand::GetLogPage(request) => self.log_page(&request, &mut payload),
            AdminCommand::GetFeatures { feature, select, nsid } => {
                if matches!(feature, Feature::ReservationMask | Feature::ReservationPersistence) {
                    return Ok((self.reservation_feature(feature, select, nsid)?, 0));
                }
                if command.returns_data() {
                    payload.give(&self.host().hostid, 0)?;
                }
                return Ok((self.state.lock().features.get(feature, select), 0));
            }
            AdminCommand::SetFeatures(FeatureChange::ReservationMask { nsid, mask }) => self.mask_notices(nsid, mask),
            AdminCommand::SetFeatures(FeatureChange::ReservationPersistence { nsid, persists }) => {
                self.set_persistence(nsid, persists)
            }
            AdminCommand::SetFeatures(change) => {
                let set = self.state.lock().features.set(change)?;
                self.notice();
                return Ok((set, 0));
            }
            AdminCommand::KeepAlive => Ok(()),
            // An execution is stopped; any other command is executed as soon as it arrives, so that none waits to be
            // aborted: dword 0 says that it was not (base 2.0, section 5.1).
            AdminCommand::Abort { sqid, cid } => {
                let aborted = self.running.abort(RunCommand { qid: sqid, cid });
                return Ok((u32::from(!aborted), 0));
            }
            AdminCommand::AsyncEvent => unreachable!("an event request is held"),
            AdminCommand::LoadProgram { pind, load } => {
                let slots = self.tenant().rule(|rules| rules.slots);
                self.tenant().programs.load(&self.accounts, slots, pind, load, &payload)
            }
            AdminCommand::ActivateProgram { pind, action } => {
                self.tenant().programs.activate(&*subsystem.runtime()?, pind, action)
            }
            AdminCommand::MemoryRangeSet(action) => {
                return Ok((self.tenant().programs.range_set(&self.tenant().memory, action, &payload)?.into(), 0));
            }
        }
        .map(|()| (0, 0))
    }

    fn fabrics(&self, entry: &SubmissionEntry) -> Result<(u32, u32), Status> {
        match FabricsCommand::decode(entry)? {
            FabricsCommand::PropertyGet { offset, width } => {
                let state = self.state.lock();
                properties::get(offset, width, state.cc, state.csts)
            }
            FabricsCommand::PropertySet { offset, width, value } => {
                let before = self.state.lock().cc;
                match properties::set(offset, width, value, before)? {
                    PropertyWrite::Configuration(next) => self.configure(next),
                    PropertyWrite::Reset => self.reset_subsystem(),
                    PropertyWrite::Nothing => {}
                }
                Ok((0, 0))
            }
            // A second connect command on this queue.
            FabricsCommand::Connect(_) => Err(Status::SEQUENCE_ERROR),
            FabricsCommand::AuthSend(_) | FabricsCommand::AuthReceive(_) => Err(Status::INVALID_FIELD),
        }
    }

    fn log_page(&self, request: &LogRequest, payload: &mut Payload<'_>) -> Result<(), Status> {
        let &LogRequest { offset, retain, csi, .. } = request;
        if payload.room()?.len() as u64 != request.bytes() {
            return Err(Status::DATA_LENGTH_INVALID);
        }
        // Offsets are of dwords (base 2.0, figure 200).
        if !offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }
        let there = |page: &LogPage| self.has_page(*page);
        let subsystem = self.subsystem();
        let page = match LogPage::of(request.lid).filter(there).ok_or(Status::INVALID_LOG_PAGE)? {
            LogPage::Supported => logs::supported(|page| self.has_page(page)).as_bytes().to_vec(),
            LogPage::Errors => self.tenant().errors.page().as_bytes().to_vec(),
            LogPage::Health => {
                self.check_health_scope(request.nsid)?;
                subsystem.health.page().as_bytes().to_vec()
            }
            LogPage::Firmware => logs::firmware().as_bytes().to_vec(),
            LogPage::Changed => return self.give_changed(retain, payload, offset),
            LogPage::Effects if !self.has(csi) => return Err(Status::INVALID_LOG_PAGE),
            LogPage::Effects => {
                let [programs, nd] = [CommandSet::PROGRAMS, CommandSet::ND].map(|csi| self.has(csi));
                logs::effects(csi, subsystem.read_only(), programs, nd).as_bytes().to_vec()
            }
            LogPage::Reservations => return self.give_notice(retain, payload, offset),
            LogPage::Paths => {
                let state = ports::state_of(&subsystem.ports(), self.host().local.as_ref());
                ports::page(state, &self.active(None)?, request.groups_only)
            }
            LogPage::Features => features::effects().as_bytes().to_vec(),
            LogPage::Discovery => self.discovery_log(),
            LogPage::Programs => self.tenant().programs.list(),
            LogPage::RangeSets => self.tenant().programs.range_sets(),
            LogPage::Names => {
                let list = nandarray::command::List { prefix: "" };
                let mut names = subsystem.device()?.execute(list)?;
                names.retain(|name| self.tenant().reads(name));
                NamesPage::encode(&names)
            }
            LogPage::Execution => self.accounts.get(request.specific)?.into_bytes(),
        };
        payload.give(&page, offset)
    }

    /// Whether the controller has a log page.
    fn has_page(&self, page: LogPage) -> bool {
        match page {
            LogPage::Supported => true,
            LogPage::Discovery => self.is_discovery(),
            // Counters and errors of other hosts are not for a host that only looks for subsystems.
            _ if self.is_discovery() => false,
            LogPage::Errors | LogPage::Health | LogPage::Firmware | LogPage::Changed => true,
            LogPage::Effects | LogPage::Features | LogPage::Reservations => true,
            LogPage::Paths => self.has_path_states(),
            LogPage::Programs | LogPage::RangeSets | LogPage::Execution => self.has(CommandSet::PROGRAMS),
            LogPage::Names => self.has(CommandSet::ND),
        }
    }

    /// Checks the namespace of the log page of health, which is the subsystem's (LPA bit 0 is clear).
    fn check_health_scope(&self, nsid: u32) -> Result<(), Status> {
        if nsid == 0 || nsid == NSID_ALL {
            return Ok(());
        }
        self.csi(nsid)?;
        Err(Status::INVALID_FIELD)
    }

    /// Gives log page 04h, the changed namespaces. Unless `retain` is set, this clears the list, and the host gets an
    /// event for the next change; a refused command leaves the list as it is.
    fn give_changed(&self, retain: bool, payload: &mut Payload<'_>, offset: u64) -> Result<(), Status> {
        let mut state = self.state.lock();
        payload.give(ChangedPage::new(&state.changed).as_bytes(), offset)?;
        if !retain {
            state.changed.clear();
            state.noticed = false;
        }
        Ok(())
    }

    /// Returns log page 70h: a header of 1024 bytes, and an entry for each port of the subsystem if the host may
    /// connect to it by an address. There is no type of transport for a unix socket, so such a port has no entry.
    fn discovery_log(&self) -> Vec<u8> {
        let subsystem = self.subsystem();
        let local = self.host().local.as_ref();
        let places = match subsystem.options().advertised.clone() {
            Some((address, port)) => {
                let port = port.or_else(|| local.map(|(_, port)| port.clone()));
                port.map(|port| vec![(address, port)]).unwrap_or_default()
            }
            None => local.map(|local| ports::reached(&subsystem.ports(), local)).unwrap_or_default(),
        };
        if !subsystem.admits(&self.host().hostnqn) {
            return DiscoveryHeader::new(0).as_bytes().to_vec();
        }
        let mut log = DiscoveryHeader::new(places.len() as u64).as_bytes().to_vec();
        for (number, (address, port)) in (1..).zip(&places) {
            let mut entry = DiscoveryEntry::new_zeroed();
            (entry.trtype, entry.adrfam, entry.subtype) = (3, if address.contains(':') { 2 } else { 1 }, 2);
            if subsystem.requires_tls() {
                (entry.treq, entry.tsas[0]) = (TREQ_SECURE_CHANNEL, TSAS_TLS_13);
            }
            entry.portid.set(number);
            entry.cntlid.set(CNTLID_ANY);
            entry.asqsz.set(32);
            entry.trsvcid.fill(b' ');
            entry.traddr.fill(b' ');
            let fill = |to: &mut [u8], text: &str| to[..text.len()].copy_from_slice(text.as_bytes());
            fill(&mut entry.trsvcid, port);
            fill(&mut entry.traddr, address);
            fill(&mut entry.subnqn, subsystem.nqn());
            log.extend_from_slice(entry.as_bytes());
        }
        log
    }
}
