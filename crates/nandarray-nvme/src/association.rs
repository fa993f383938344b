//! One controller as one host sees it: properties, admin commands, features and events; I/O commands are passed on to
//! their command set.
//!
//! An association has no socket and no clock: the transport decides when the keep alive timeout has expired, and sends
//! the events that the association passes to its notifier.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nandarray::nvme::{CompletionEntry, Controller, NSID_ALL, Opcode, Status, SubmissionEntry};
use nandarray_runtime::Runtime;
use parking_lot::Mutex;
use zerocopy::{FromZeros, IntoBytes};

use crate::accounts::ExecutionAccounts;
use crate::boxes::StoredBoxes;
use crate::commands::{AdminCommand, CommandEffect, IoCommand};
use crate::features::{self, Feature, FeatureSelect, FeatureValues, NAMESPACE_NOTICES};
use crate::logs::{self, FailedCommand, LogPage};
use crate::payload::Payload;
use crate::programs::Surroundings;
use crate::properties::{self, ENABLE, FATAL, PropertyWrite, READY, SHUTDOWN, SHUTDOWN_COMPLETE};
use crate::requests::ArrayRequests;
use crate::subsystem::{self, NN, Subsystem};
use nandarray_nvme_spec::{AdminOpcode, CNTLID_ANY, CommandSet, DISCOVERY_NQN, DiscoveryEntry, FabricsType, NdOpcode};

/// Maximum number of asynchronous event requests that a controller holds.
const EVENTS_MAX: usize = 4;
/// Dword 0 of the event that namespace attributes have changed, which refers to log page 04h.
const NAMESPACE_EVENT: u32 = 0x0004_0002;

/// The host of an association, as its connect command names it.
#[derive(Clone, Debug)]
pub struct HostIdentity {
    /// Host identifier.
    pub hostid: [u8; 16],
    /// Qualified name of the host.
    pub hostnqn: String,
    /// Qualified name of the subsystem to connect to.
    pub subnqn: String,
    /// Address and port of the transport that the host connected to, for the discovery log; `None` if not known.
    pub local: Option<(String, String)>,
}

/// The reply to an admin command.
#[derive(Debug)]
pub enum AdminAnswer {
    /// The command is complete.
    Done(CompletionEntry),
    /// The controller holds the command, an event request; the notifier sends its completion later.
    Held,
}

struct AdminState {
    cc: u32,
    csts: u32,
    features: FeatureValues,
    held: VecDeque<u16>,
    changed: BTreeSet<u32>,
    /// Whether an event was sent, and the host has not read the log page since then.
    noticed: bool,
}

type Notifier = Box<dyn Fn(CompletionEntry) + Send + Sync>;

/// A controller with the host that is connected to it.
pub struct Association {
    subsystem: Arc<Subsystem>,
    controller: Controller,
    boxes: StoredBoxes,
    requests: ArrayRequests,
    /// Accounts of this host's executions, for the vendor's log page; other hosts have their own.
    accounts: ExecutionAccounts,
    cntlid: u16,
    host: HostIdentity,
    state: Mutex<AdminState>,
    notifier: Mutex<Option<Notifier>>,
    /// Whether a command arrived since the transport asked last, which keeps the association alive.
    seen: AtomicBool,
}

impl fmt::Debug for Association {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Association").field("cntlid", &self.cntlid).field("host", &self.host).finish_non_exhaustive()
    }
}

fn completion(cid: u16, done: Result<(u32, u32), Status>) -> CompletionEntry {
    let mut entry = CompletionEntry { cid: cid.into(), ..CompletionEntry::default() };
    match done {
        Ok((dw0, dw1)) => (entry.dw0, entry.dw1) = (dw0.into(), dw1.into()),
        Err(status) => entry.set_status(status),
    }
    entry
}

impl Association {
    pub(crate) fn new(
        subsystem: Arc<Subsystem>,
        controller: Controller,
        cntlid: u16,
        host: HostIdentity,
        kato_ms: u32,
    ) -> Self {
        let state = AdminState {
            cc: 0,
            csts: 0,
            features: FeatureValues::new(kato_ms),
            held: VecDeque::new(),
            changed: BTreeSet::new(),
            noticed: false,
        };
        Self {
            subsystem,
            controller,
            boxes: StoredBoxes::default(),
            requests: ArrayRequests::default(),
            accounts: ExecutionAccounts::default(),
            cntlid,
            host,
            state: Mutex::new(state),
            notifier: Mutex::new(None),
            seen: AtomicBool::new(true),
        }
    }

    /// Returns the identifier of the controller.
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Returns the host that is connected to the controller.
    pub fn host(&self) -> &HostIdentity {
        &self.host
    }

    /// Returns the subsystem that the controller belongs to.
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }

    pub(crate) fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Whether this is a controller of the discovery service.
    pub fn is_discovery(&self) -> bool {
        self.host.subnqn == DISCOVERY_NQN
    }

    /// Whether this is a discovery controller whose host may not connect to the subsystem, or has to prove its identity
    /// there: it gets little memory and time.
    pub(crate) fn is_anonymous(&self) -> bool {
        let is_known = self.subsystem.admits(&self.host.hostnqn) && !self.subsystem.has_secrets();
        self.is_discovery() && !is_known
    }

    /// Returns the keep alive timeout in milliseconds: the time without a command after which the association ends; 0
    /// is never.
    pub fn kato_ms(&self) -> u32 {
        self.state.lock().features.kato_ms
    }

    /// Whether the controller is enabled and ready for I/O commands.
    pub fn is_ready(&self) -> bool {
        self.state.lock().csts & (READY | SHUTDOWN_COMPLETE) == READY
    }

    /// Returns whether a command arrived since the last call of this function.
    pub fn was_seen(&self) -> bool {
        self.seen.swap(false, Ordering::Relaxed)
    }

    /// Checks that the host may connect I/O queue `qid`.
    ///
    /// # Errors
    /// Invalid connect parameters: the host's name or the queue's number is wrong, or the controller is not enabled.
    pub fn check_queue(&self, qid: u16, hostnqn: &str) -> Result<(), Status> {
        let state = self.state.lock();
        let ready = state.csts & READY != 0 && !self.is_discovery() && hostnqn == self.host.hostnqn;
        if ready && qid <= state.features.queues { Ok(()) } else { Err(Status::CONNECT_PARAMETER) }
    }

    /// Sets the function that sends completions of held event requests.
    pub fn set_notifier(&self, notifier: impl Fn(CompletionEntry) + Send + Sync + 'static) {
        *self.notifier.lock() = Some(Box::new(notifier));
        self.notice();
    }

    /// Ends the association when the transport has lost its host: drops the held event requests, and deletes stored
    /// boxes.
    pub fn end(&self) {
        *self.notifier.lock() = None;
        self.boxes.clear();
        self.requests.clear();
        let mut state = self.state.lock();
        state.held.clear();
        state.csts = state.csts & !READY | FATAL;
    }

    pub(crate) fn notice_namespaces(&self, nsids: &[u32]) {
        if self.is_discovery() {
            return;
        }
        self.state.lock().changed.extend(nsids);
        self.notice();
    }

    /// Sends the event of changed namespaces if the host enabled it, has an event request held here, and has read the
    /// log page since the last event.
    fn notice(&self) {
        let notifier = self.notifier.lock();
        let Some(send) = notifier.as_ref() else { return };
        let cid = {
            let mut state = self.state.lock();
            let due = !state.changed.is_empty() && !state.noticed && state.features.event_mask & NAMESPACE_NOTICES != 0;
            if !due {
                return;
            }
            let Some(cid) = state.held.pop_front() else { return };
            state.noticed = true;
            cid
        };
        send(completion(cid, Ok((NAMESPACE_EVENT, 0))));
    }

    /// Executes a command of the admin queue, including all fabrics commands except connect.
    pub fn admin(&self, entry: &SubmissionEntry, payload: Payload<'_>) -> AdminAnswer {
        self.seen.store(true, Ordering::Relaxed);
        if entry.opcode == AdminOpcode::FABRICS {
            let done = self.fabrics(entry);
            return AdminAnswer::Done(self.ended(0, entry, done));
        }
        let programs = self.subsystem.has(CommandSet::PROGRAMS) && !self.is_discovery();
        let done = match AdminCommand::of(entry.opcode, programs) {
            Some(AdminCommand::AsyncEvent) => match self.hold(entry.cid.get()) {
                Ok(()) => return AdminAnswer::Held,
                Err(status) => Err(status),
            },
            Some(command) => self.admin_now(command, entry, payload),
            None => Err(Status::INVALID_OPCODE),
        };
        AdminAnswer::Done(self.ended(0, entry, done))
    }

    /// Holds an event request.
    fn hold(&self, cid: u16) -> Result<(), Status> {
        {
            let mut state = self.state.lock();
            if state.held.len() >= EVENTS_MAX {
                return Err(Status::EVENT_LIMIT_EXCEEDED);
            }
            state.held.push_back(cid);
        }
        self.notice();
        Ok(())
    }

    fn ended(&self, qid: u16, entry: &SubmissionEntry, done: Result<(u32, u32), Status>) -> CompletionEntry {
        if let Err(status) = done {
            self.log_failure(qid, entry, status);
        }
        completion(entry.cid.get(), done)
    }

    /// Counts a command that failed, and adds it to the error log; not one of the discovery service, whose hosts are
    /// strangers.
    pub(crate) fn log_failure(&self, qid: u16, entry: &SubmissionEntry, status: Status) {
        if !self.is_discovery() {
            self.subsystem.health.failed(self.failure(qid, entry, status));
        }
    }

    /// Returns the entry of the error log for a command that failed.
    fn failure(&self, qid: u16, entry: &SubmissionEntry, status: Status) -> FailedCommand {
        let nsid = entry.nsid.get();
        let command = if qid > 0 { self.io_command(entry) } else { None };
        let has_blocks = command.is_some_and(IoCommand::names_blocks);
        let location = logs::parameter(qid, command, status);
        let about_blocks = status == Status::LBA_OUT_OF_RANGE || status.sct() == 2;
        let lba = match entry.cdw_pair(10) {
            _ if !has_blocks || !about_blocks => 0,
            // The first block that is outside: those before it are none of its error.
            first if status == Status::LBA_OUT_OF_RANGE => {
                self.controller.namespace_blocks(nsid).map_or(first, |blocks| blocks.max(first))
            }
            first => first,
        };
        FailedCommand { qid, cid: entry.cid.get(), nsid, status, lba, location }
    }

    fn admin_now(
        &self,
        command: AdminCommand,
        entry: &SubmissionEntry,
        mut payload: Payload<'_>,
    ) -> Result<(u32, u32), Status> {
        if entry.flags & 3 != 0 {
            return Err(Status::INVALID_FIELD);
        }
        if self.state.lock().csts & READY == 0 {
            return Err(Status::SEQUENCE_ERROR);
        }
        if command.effect() == CommandEffect::Store && self.subsystem.read_only() {
            return Err(Status::WRITE_PROTECTED);
        }
        let word = entry.cdw(10);
        let programs = &self.subsystem.programs;
        match command {
            AdminCommand::Identify => {
                let page = self.identify(word as u8, (entry.cdw(11) >> 24) as u8, entry.nsid.get())?;
                payload.give(&page, 0)
            }
            AdminCommand::GetLogPage => self.log_page(entry, &mut payload),
            AdminCommand::GetFeatures => {
                let (feature, select) = (Feature::of(word)?, FeatureSelect::of(word)?);
                if features::returns_data(word) {
                    payload.give(&self.host.hostid, 0)?;
                }
                return Ok((self.state.lock().features.get(feature, select), 0));
            }
            AdminCommand::SetFeatures => {
                let set = self.state.lock().features.set(Feature::of(word)?, entry.cdw(11))?;
                self.notice();
                return Ok((set, 0));
            }
            AdminCommand::KeepAlive => Ok(()),
            // A command is executed as soon as it arrives, so that none waits to be aborted.
            AdminCommand::Abort => return Ok((1, 0)),
            AdminCommand::AsyncEvent => unreachable!("an event request is held"),
            AdminCommand::LoadProgram => programs.load(&self.accounts, entry, &payload),
            AdminCommand::ActivateProgram => programs.activate(&*self.subsystem.runtime()?, entry),
            AdminCommand::MemoryRangeSet => {
                return Ok((programs.range_set(&self.subsystem.memory, entry, &payload)?.into(), 0));
            }
        }
        .map(|()| (0, 0))
    }

    fn fabrics(&self, entry: &SubmissionEntry) -> Result<(u32, u32), Status> {
        match entry.nsid.get() as u8 {
            FabricsType::PROPERTY_GET => {
                let state = self.state.lock();
                properties::get(entry, state.cc, state.csts)
            }
            FabricsType::PROPERTY_SET => {
                let before = self.state.lock().cc;
                match properties::set(entry, before)? {
                    PropertyWrite::Configuration(value) => self.configure(value),
                    PropertyWrite::Reset => {
                        self.reset();
                        self.state.lock().cc &= !ENABLE;
                    }
                    PropertyWrite::Nothing => {}
                }
                Ok((0, 0))
            }
            // A second connect command on this queue.
            FabricsType::CONNECT => Err(Status::SEQUENCE_ERROR),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Writes the property CC (controller configuration), which enables, disables or shuts down the controller.
    fn configure(&self, value: u32) {
        let before = {
            let mut state = self.state.lock();
            std::mem::replace(&mut state.cc, value)
        };
        if value & SHUTDOWN != 0 {
            // A host that shuts down expects that its writes are durable.
            let flushed = if self.is_discovery() { Ok(()) } else { self.subsystem.flush() };
            let mut state = self.state.lock();
            state.csts |= if flushed.is_ok() { SHUTDOWN_COMPLETE } else { FATAL };
            return;
        }
        match (before & ENABLE, value & ENABLE) {
            (0, 1) => self.state.lock().csts = READY,
            (1, 0) => self.reset(),
            _ => {}
        }
    }

    /// Resets the controller: restores features, aborts held event requests, and closes views and boxes. Programs,
    /// range sets and memory belong to the subsystem, and stay.
    fn reset(&self) {
        self.boxes.clear();
        self.requests.clear();
        self.controller.close_all();
        let held = {
            let mut state = self.state.lock();
            state.csts = 0;
            state.features.event_mask = 0;
            state.noticed = false;
            state.changed.clear();
            std::mem::take(&mut state.held)
        };
        // The transport has these commands in flight: without a completion, their identifiers would never be free.
        if let Some(send) = self.notifier.lock().as_ref() {
            held.into_iter().for_each(|cid| send(completion(cid, Err(Status::ABORTED))));
        }
    }

    fn log_page(&self, entry: &SubmissionEntry, payload: &mut Payload<'_>) -> Result<(), Status> {
        let (word, high) = (entry.cdw(10), entry.cdw(11));
        let bytes = (u64::from(word >> 16) | u64::from(high as u16) << 16).saturating_add(1) * 4;
        if payload.room()?.len() as u64 != bytes {
            return Err(Status::DATA_LENGTH_INVALID);
        }
        let offset = entry.cdw_pair(12);
        if !offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }
        let (retain, csi) = (word & 1 << 15 != 0, (entry.cdw(14) >> 24) as u8);
        let there = |page: &LogPage| self.has_page(*page);
        let page = match LogPage::of(word as u8).filter(there).ok_or(Status::INVALID_LOG_PAGE)? {
            LogPage::Supported => logs::supported(|page| self.has_page(page)),
            LogPage::Errors => self.subsystem.health.errors(),
            LogPage::Health => {
                self.check_health_scope(entry.nsid.get())?;
                self.subsystem.health.page()
            }
            LogPage::Firmware => logs::firmware(),
            LogPage::Changed => return self.give_changed(retain, payload, offset),
            LogPage::Effects if !self.subsystem.has(csi) => return Err(Status::INVALID_LOG_PAGE),
            LogPage::Effects => {
                let [programs, nd] = [CommandSet::PROGRAMS, CommandSet::ND].map(|csi| self.subsystem.has(csi));
                logs::effects(csi, self.subsystem.read_only(), programs, nd)
            }
            LogPage::Features => features::effects(),
            LogPage::Discovery => self.discovery_log(),
            LogPage::Programs => self.subsystem.programs.list(),
            LogPage::RangeSets => self.subsystem.programs.range_sets(),
            LogPage::Names => {
                let list = nandarray::command::List { prefix: "" };
                logs::names(&self.subsystem.device()?.execute(list)?)
            }
            LogPage::Execution => self.accounts.get((high >> 16) as u16)?.into_bytes(),
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
            LogPage::Effects | LogPage::Features => true,
            LogPage::Programs | LogPage::RangeSets | LogPage::Execution => self.subsystem.has(CommandSet::PROGRAMS),
            LogPage::Names => self.subsystem.has(CommandSet::ND),
        }
    }

    /// Checks the namespace of the log page of health, which is the subsystem's (LPA bit 0 is clear).
    fn check_health_scope(&self, nsid: u32) -> Result<(), Status> {
        if nsid == 0 || nsid == NSID_ALL {
            return Ok(());
        }
        self.subsystem.csi(nsid)?;
        Err(Status::INVALID_FIELD)
    }

    /// Gives log page 04h, the changed namespaces. Unless `retain` is set, this clears the list, and the host gets an
    /// event for the next change; a refused command leaves the list as it is.
    fn give_changed(&self, retain: bool, payload: &mut Payload<'_>, offset: u64) -> Result<(), Status> {
        let mut state = self.state.lock();
        let mut page = vec![0u8; 4096];
        for (to, nsid) in page.chunks_exact_mut(4).zip(&state.changed) {
            to.copy_from_slice(&nsid.to_le_bytes());
        }
        payload.give(&page, offset)?;
        if !retain {
            state.changed.clear();
            state.noticed = false;
        }
        Ok(())
    }

    /// Returns log page 70h: a header of 1024 bytes, and an entry for the subsystem if the host may connect to it.
    fn discovery_log(&self) -> Vec<u8> {
        let mut page = vec![0u8; 1024];
        page[0] = 1;
        if !self.subsystem.admits(&self.host.hostnqn) {
            return page;
        }
        page[8] = 1;
        let mut entry = DiscoveryEntry::new_zeroed();
        let (mut address, mut port) = self.host.local.clone().unwrap_or_default();
        if let Some((other, other_port)) = self.subsystem.options().advertised.clone() {
            address = other;
            port = other_port.unwrap_or(port);
        }
        (entry.trtype, entry.adrfam, entry.subtype) = (3, if address.contains(':') { 2 } else { 1 }, 2);
        entry.portid.set(1);
        entry.cntlid.set(CNTLID_ANY);
        entry.asqsz.set(32);
        entry.trsvcid.fill(b' ');
        entry.traddr.fill(b' ');
        let fill = |to: &mut [u8], text: &str| to[..text.len()].copy_from_slice(text.as_bytes());
        fill(&mut entry.trsvcid, &port);
        fill(&mut entry.traddr, &address);
        fill(&mut entry.subnqn, self.subsystem.nqn());
        page.extend_from_slice(entry.as_bytes());
        page
    }

    /// Executes a command of I/O queue `qid`.
    pub fn io(&self, qid: u16, entry: &SubmissionEntry, payload: Payload<'_>) -> CompletionEntry {
        self.seen.store(true, Ordering::Relaxed);
        let done = self.io_now(entry, payload);
        self.ended(qid, entry, done)
    }

    /// Returns the command that an entry of an I/O queue means; `None` if the subsystem has no such command.
    fn io_command(&self, entry: &SubmissionEntry) -> Option<IoCommand> {
        IoCommand::of(subsystem::command_set(entry.nsid.get()), entry.opcode, self.subsystem.has(CommandSet::ND))
    }

    fn io_now(&self, entry: &SubmissionEntry, mut payload: Payload<'_>) -> Result<(u32, u32), Status> {
        if !self.is_ready() {
            // Without DNR: a host whose association has ended sends the command again once it is back.
            return Err(Status::ABORTED);
        }
        if entry.opcode == AdminOpcode::FABRICS {
            return Err(Status::SEQUENCE_ERROR);
        }
        if entry.flags & 3 != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let nsid = entry.nsid.get();
        let csi = subsystem::command_set(nsid);
        if csi != CommandSet::NVM {
            self.subsystem.csi(nsid)?;
        } else if nsid > NN && nsid != NSID_ALL && entry.opcode & NdOpcode::VENDOR == 0 {
            // Blocks of a namespace beyond those that identify lists; a flush may name all.
            return Err(Status::INVALID_NAMESPACE);
        }
        let command = self.io_command(entry).ok_or(Status::INVALID_OPCODE)?;
        if command.effect_of(entry) == CommandEffect::Store && self.subsystem.read_only() {
            return Err(Status::WRITE_PROTECTED);
        }
        match csi {
            CommandSet::MEMORY => self.subsystem.memory.execute(entry, payload).map(|()| (0, 0)),
            CommandSet::PROGRAMS => {
                let runtime = self.subsystem.runtime()?;
                self.subsystem.programs.execute(&self.surroundings(&runtime), entry, &payload)
            }
            CommandSet::ND if command == IoCommand::ArrayRequest => {
                let runtime = self.subsystem.runtime()?;
                self.requests.request(&self.surroundings(&runtime), entry, &payload)
            }
            CommandSet::ND if command == IoCommand::ArrayReply => self.requests.reply(entry, &mut payload),
            CommandSet::ND => self.boxes.execute(&self.controller, entry, payload),
            _ => self.block(entry, payload),
        }
    }

    fn surroundings<'a>(&'a self, runtime: &'a Runtime) -> Surroundings<'a> {
        Surroundings {
            runtime,
            executor: self.subsystem.options().executor.as_deref(),
            controller: &self.controller,
            boxes: &self.boxes,
            memory: &self.subsystem.memory,
            accounts: &self.accounts,
            writable: !self.subsystem.read_only(),
            programs: self.subsystem.has(CommandSet::PROGRAMS),
        }
    }

    fn block(&self, entry: &SubmissionEntry, payload: Payload<'_>) -> Result<(u32, u32), Status> {
        let moved = match &payload {
            Payload::None => 0,
            Payload::ToController(bytes) => bytes.len() as u64,
            Payload::ToHost(bytes) => bytes.len() as u64,
        };
        let done = self.controller.submit(entry, payload.into_buffer());
        if !done.status().ok() {
            return Err(done.status());
        }
        match entry.opcode {
            Opcode::READ => self.subsystem.health.read(moved),
            Opcode::WRITE => self.subsystem.health.wrote(moved),
            _ => {}
        }
        Ok((done.dw0.get(), done.dw1.get()))
    }

    /// Returns whether a completed command may have changed the store, so that [`Subsystem::settle`] has to be called
    /// before its completion is sent.
    pub fn has_written(&self, entry: &SubmissionEntry) -> bool {
        match self.io_command(entry).map(|command| command.effect_of(entry)) {
            None | Some(CommandEffect::Nothing | CommandEffect::Subsystem) => false,
            Some(CommandEffect::Store | CommandEffect::StoreByAction | CommandEffect::Outputs) => true,
        }
    }
}
