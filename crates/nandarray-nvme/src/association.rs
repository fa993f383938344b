//! One controller as one host sees it: properties, admin commands, features and events; I/O commands are passed on to
//! their command set.
//!
//! An association has no socket and no clock: the transport decides when the keep alive timeout has expired, and sends
//! the events that the association passes to its notifier.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nandarray::nvme::{
    CompletionEntry, Controller, NSID_ALL, NvmeCommand, Opcode, OpenAction, Status, SubmissionEntry,
};
use parking_lot::Mutex;
use zerocopy::{FromZeros, IntoBytes};

use crate::boxes::{self, StoredBoxes};
use crate::logs::{self, FailedCommand, LogPage};
use crate::payload::Payload;
use crate::programs::Surroundings;
use crate::subsystem::{NN, Subsystem};
use crate::wire::{
    AdminOpcode, CNTLID_ANY, CommandSet, DISCOVERY_NQN, DiscoveryEntry, FabricsType, Property, QUEUE_ENTRIES_MAX,
};

/// Maximum number of asynchronous event requests that a controller holds.
const EVENTS_MAX: usize = 4;
/// Maximum number of I/O queues of a controller.
pub(crate) const QUEUES_MAX: u16 = 64;
/// Controller capabilities (CAP): queue entries, contiguous queues, 7.5 s to become ready, subsystem reset, NVM and
/// other command sets, ready modes.
const CAP: u64 = (QUEUE_ENTRIES_MAX as u64 - 1) | 1 << 16 | 15 << 24 | 1 << 36 | 1 << 37 | 1 << 43 | 1 << 59;
/// Version 2.0 of the NVMe base specification.
const VERSION: u32 = 2 << 16;
/// Ready timeouts (CRTO): 7.5 s until ready, with media and without, in units of 500 ms.
const CRTO: u32 = 15 | 15 << 16;
/// Value that resets the subsystem when written to its property NSSR: "NVMe" in ASCII.
const RESET: u32 = 0x4e56_4d65;
const READY: u32 = 1;
const FATAL: u32 = 1 << 1;
const SHUTDOWN_COMPLETE: u32 = 2 << 2;
const ENABLE: u32 = 1;
const SHUTDOWN: u32 = 3 << 14;
/// Dword 0 of the event that namespace attributes have changed, which refers to log page 04h.
const NAMESPACE_EVENT: u32 = 0x0004_0002;
/// Bit of the event mask by which a host enables the event of changed namespaces.
const NAMESPACE_NOTICES: u32 = 1 << 8;

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
    kato_ms: u32,
    queues: u16,
    event_mask: u32,
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
    /// Account of the last execution of a program by this host, for the vendor's log page; other hosts have their own.
    account: Mutex<String>,
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
            kato_ms,
            queues: QUEUES_MAX,
            event_mask: 0,
            held: VecDeque::new(),
            changed: BTreeSet::new(),
            noticed: false,
        };
        Self {
            subsystem,
            controller,
            boxes: StoredBoxes::default(),
            account: Mutex::default(),
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

    /// Returns the keep alive timeout in milliseconds: the time without a command after which the association ends; 0
    /// is never.
    pub fn kato_ms(&self) -> u32 {
        self.state.lock().kato_ms
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
        if ready && qid <= state.queues { Ok(()) } else { Err(Status::CONNECT_PARAMETER) }
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
            let due = !state.changed.is_empty() && !state.noticed && state.event_mask & NAMESPACE_NOTICES != 0;
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
        let cid = entry.cid.get();
        if entry.opcode == AdminOpcode::ASYNC_EVENT {
            let mut state = self.state.lock();
            if state.held.len() >= EVENTS_MAX {
                drop(state);
                return AdminAnswer::Done(self.ended(0, entry, Err(Status::EVENT_LIMIT_EXCEEDED)));
            }
            state.held.push_back(cid);
            drop(state);
            self.notice();
            return AdminAnswer::Held;
        }
        let done = self.admin_now(entry, payload);
        AdminAnswer::Done(self.ended(0, entry, done))
    }

    fn ended(&self, qid: u16, entry: &SubmissionEntry, done: Result<(u32, u32), Status>) -> CompletionEntry {
        let cid = entry.cid.get();
        if let Err(status) = done
            && !self.is_discovery()
        {
            self.subsystem.health.failed(FailedCommand { qid, cid, nsid: entry.nsid.get(), status });
        }
        completion(cid, done)
    }

    fn admin_now(&self, entry: &SubmissionEntry, mut payload: Payload<'_>) -> Result<(u32, u32), Status> {
        if entry.flags & 3 != 0 {
            return Err(Status::INVALID_FIELD);
        }
        if entry.opcode == AdminOpcode::FABRICS {
            return self.fabrics(entry);
        }
        if self.state.lock().csts & READY == 0 {
            return Err(Status::SEQUENCE_ERROR);
        }
        let word = entry.cdw(10);
        match entry.opcode {
            AdminOpcode::IDENTIFY => {
                let page = self.identify(word as u8, (entry.cdw(11) >> 24) as u8, entry.nsid.get())?;
                payload.give(&page, 0)
            }
            AdminOpcode::GET_LOG_PAGE => self.log_page(entry, &mut payload),
            AdminOpcode::GET_FEATURES => return self.get_feature(word as u8, word >> 8 & 7, &mut payload),
            AdminOpcode::SET_FEATURES => return self.set_feature(word as u8, entry.cdw(11)),
            AdminOpcode::KEEP_ALIVE => Ok(()),
            // A command is executed as soon as it arrives, so that none waits to be aborted.
            AdminOpcode::ABORT => return Ok((1, 0)),
            AdminOpcode::LOAD_PROGRAM | AdminOpcode::ACTIVATE_PROGRAM | AdminOpcode::MEMORY_RANGE_SET
                if self.subsystem.has(CommandSet::PROGRAMS) && !self.is_discovery() =>
            {
                let runtime = self.subsystem.runtime()?;
                let (programs, memory) = (&self.subsystem.programs, &self.subsystem.memory);
                let done = programs.admin(&runtime, memory, &self.account, entry, &payload)?;
                return Ok((done, 0));
            }
            _ => Err(Status::INVALID_OPCODE),
        }
        .map(|()| (0, 0))
    }

    fn fabrics(&self, entry: &SubmissionEntry) -> Result<(u32, u32), Status> {
        let offset = entry.cdw(11);
        match entry.nsid.get() as u8 {
            FabricsType::PROPERTY_GET => {
                let wide = entry.cdw(10) & 7 == 1;
                if wide != matches!(offset, Property::CAP | 0x28 | 0x30) {
                    return Err(Status::INVALID_FIELD);
                }
                let state = self.state.lock();
                match offset {
                    Property::CAP => Ok((CAP as u32, (CAP >> 32) as u32)),
                    Property::VS => Ok((VERSION, 0)),
                    Property::CC => Ok((state.cc, 0)),
                    Property::CSTS => Ok((state.csts, 0)),
                    Property::NSSR => Ok((0, 0)),
                    Property::CRTO => Ok((CRTO, 0)),
                    // Registers of other transports (interrupts, queues and buffers in memory): nvme-cli reads them
                    // all, and stops at a refusal.
                    0x0c | 0x10 | 0x18 | 0x24 | 0x28 | 0x30 | 0x38 | 0x3c => Ok((0, 0)),
                    _ => Err(Status::INVALID_FIELD),
                }
            }
            FabricsType::PROPERTY_SET => {
                let value = entry.cdw(12);
                match offset {
                    Property::CC => self.configure(value),
                    Property::NSSR if value == RESET => {
                        self.reset();
                        self.state.lock().cc &= !ENABLE;
                    }
                    Property::NSSR => {}
                    _ => return Err(Status::INVALID_FIELD),
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
        self.controller.close_all();
        let held = {
            let mut state = self.state.lock();
            state.csts = 0;
            state.event_mask = 0;
            state.noticed = false;
            state.changed.clear();
            std::mem::take(&mut state.held)
        };
        // The transport has these commands in flight: without a completion, their identifiers would never be free.
        if let Some(send) = self.notifier.lock().as_ref() {
            held.into_iter().for_each(|cid| send(completion(cid, Err(Status::ABORTED))));
        }
    }

    fn get_feature(&self, fid: u8, sel: u32, payload: &mut Payload<'_>) -> Result<(u32, u32), Status> {
        if sel == 3 {
            // Capabilities: changeable.
            return Ok((if matches!(fid, 0x07 | 0x0b | 0x0f) { 1 << 2 } else { 0 }, 0));
        }
        let state = self.state.lock();
        let queues = u32::from(state.queues) - 1;
        let value = match fid {
            0x01 | 0x02 | 0x05 | 0x08 | 0x09 | 0x0a => 0,
            0x04 => 343,
            // The write cache is on.
            0x06 => 1,
            0x07 => queues | queues << 16,
            0x0b => state.event_mask,
            0x0f => state.kato_ms,
            0x81 => {
                drop(state);
                // The host identifier, 128 bits.
                payload.give(&self.host.hostid, 0)?;
                1
            }
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok((value, 0))
    }

    fn set_feature(&self, fid: u8, value: u32) -> Result<(u32, u32), Status> {
        let mut state = self.state.lock();
        match fid {
            0x07 => {
                let wanted = ((value & 0xffff).max(value >> 16) as u16).saturating_add(1);
                if value as u16 == u16::MAX || value >> 16 == 0xffff {
                    return Err(Status::INVALID_FIELD);
                }
                state.queues = wanted.min(QUEUES_MAX);
                let granted = u32::from(state.queues) - 1;
                return Ok((granted | granted << 16, 0));
            }
            0x0b => {
                state.event_mask = value;
                drop(state);
                self.notice();
            }
            0x0f => state.kato_ms = value,
            0x06 if value & 1 == 1 => {}
            0x01 | 0x02 | 0x04 | 0x05 | 0x06 | 0x08 | 0x09 | 0x0a | 0x81 => return Err(Status::FEATURE_NOT_CHANGEABLE),
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok((0, 0))
    }

    fn log_page(&self, entry: &SubmissionEntry, payload: &mut Payload<'_>) -> Result<(), Status> {
        let (word, high) = (entry.cdw(10), entry.cdw(11));
        let bytes = (u64::from(word >> 16) | u64::from(high as u16) << 16).saturating_add(1) * 4;
        if payload.room()?.len() as u64 != bytes {
            return Err(Status::DATA_LENGTH_INVALID);
        }
        let (retain, csi) = (word & 1 << 15 != 0, (entry.cdw(14) >> 24) as u8);
        let page = match word as u8 {
            LogPage::DISCOVERY if self.is_discovery() => self.discovery_log(),
            // Counters and errors of other hosts are not for a host that only looks for subsystems.
            _ if self.is_discovery() => return Err(Status::INVALID_LOG_PAGE),
            LogPage::ERRORS => self.subsystem.health.errors(),
            LogPage::HEALTH => self.subsystem.health.page(),
            LogPage::FIRMWARE => logs::firmware(),
            LogPage::CHANGED => self.changed_log(retain),
            LogPage::EFFECTS => {
                // A command set that is not there has no commands.
                let csi = if self.subsystem.has(csi) { csi } else { u8::MAX };
                logs::effects(csi, self.subsystem.read_only(), self.subsystem.has(CommandSet::PROGRAMS))
            }
            LogPage::PROGRAMS => self.subsystem.programs.list(),
            LogPage::RANGE_SETS => self.subsystem.programs.range_sets(),
            LogPage::NAMES => {
                let list = nandarray::command::List { prefix: "" };
                logs::names(&self.subsystem.device()?.execute(list)?)
            }
            LogPage::EXECUTION => self.account.lock().clone().into_bytes(),
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        payload.give(&page, entry.cdw_pair(12))
    }

    /// Returns log page 04h, the changed namespaces. Unless `retain` is set, this clears the list, and the host gets an
    /// event for the next change.
    fn changed_log(&self, retain: bool) -> Vec<u8> {
        let mut state = self.state.lock();
        let mut page = vec![0u8; 4096];
        for (to, nsid) in page.chunks_exact_mut(4).zip(&state.changed) {
            to.copy_from_slice(&nsid.to_le_bytes());
        }
        if !retain {
            state.changed.clear();
            state.noticed = false;
        }
        page
    }

    /// Returns log page 70h: a header of 1024 bytes, and an entry for the subsystem.
    fn discovery_log(&self) -> Vec<u8> {
        let mut page = vec![0u8; 1024];
        page[0] = 1;
        page[8] = 1;
        let mut entry = DiscoveryEntry::new_zeroed();
        let (address, port) = self.host.local.clone().unwrap_or_default();
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

    fn io_now(&self, entry: &SubmissionEntry, payload: Payload<'_>) -> Result<(u32, u32), Status> {
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
        let csi = match nsid {
            crate::NSID_MEMORY | crate::NSID_PROGRAMS | crate::NSID_ND => self.subsystem.csi(nsid)?,
            // Blocks of a namespace beyond those that identify lists; a flush may name all.
            _ if nsid > NN && nsid != NSID_ALL && entry.opcode & boxes::VENDOR == 0 => {
                return Err(Status::INVALID_NAMESPACE);
            }
            _ => CommandSet::NVM,
        };
        if self.subsystem.options().read_only && self.changes(csi, entry) {
            return Err(Status::WRITE_PROTECTED);
        }
        match csi {
            CommandSet::NVM => self.block(entry, payload),
            CommandSet::MEMORY => self.subsystem.memory.execute(entry, payload).map(|()| (0, 0)),
            CommandSet::PROGRAMS if entry.opcode == 0x01 => {
                let runtime = self.subsystem.runtime()?;
                let at = Surroundings {
                    runtime: &runtime,
                    executor: self.subsystem.options().executor.as_deref(),
                    controller: &self.controller,
                    boxes: &self.boxes,
                    memory: &self.subsystem.memory,
                    account: &self.account,
                };
                self.subsystem.programs.execute(&at, entry, &payload)
            }
            CommandSet::ND => self.boxes.execute(&self.controller, entry, payload),
            _ => Err(Status::INVALID_OPCODE),
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

    /// Returns whether a command may change the store, and is therefore refused by a read-only subsystem. A view of a
    /// space that is there can be opened and read.
    fn changes(&self, csi: u8, entry: &SubmissionEntry) -> bool {
        let opcode = match csi {
            CommandSet::ND => entry.opcode | boxes::VENDOR,
            CommandSet::NVM => entry.opcode,
            _ => return false,
        };
        let known = csi == CommandSet::ND || NvmeCommand::decode(entry).is_ok();
        match opcode {
            Opcode::FLUSH | Opcode::READ | Opcode::COMPARE => false,
            Opcode::ND_READ | Opcode::SPACE_INFORMATION | Opcode::CLOSE_SPACE => false,
            Opcode::OPEN_SPACE if entry.cdw(10) & 0xf <= OpenAction::OpenByName as u32 => false,
            // Boxes are of the association, not of the store.
            _ if csi == CommandSet::ND => {
                matches!(opcode, Opcode::ND_WRITE | Opcode::OPEN_SPACE | Opcode::DELETE_SPACE)
            }
            _ => known,
        }
    }

    /// Returns whether a completed command may have changed the store, so that [`Subsystem::settle`] has to be called
    /// before its completion is sent.
    pub fn has_written(&self, entry: &SubmissionEntry) -> bool {
        match entry.nsid.get() {
            crate::NSID_ND => matches!(entry.opcode, 0x01 | 0x05 | 0x0c),
            crate::NSID_PROGRAMS => true,
            crate::NSID_MEMORY => false,
            _ => !matches!(entry.opcode, Opcode::READ | Opcode::COMPARE | Opcode::FLUSH),
        }
    }
}
