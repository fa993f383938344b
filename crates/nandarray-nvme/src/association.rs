//! One controller as one host sees it: its state, which properties enable and reset, and the events that it sends.
//!
//! Commands of the admin queue are in `admin`, those of I/O queues in `io`. An association has no socket and no clock:
//! the transport decides when the keep alive timeout has expired, and sends the events that the association passes to
//! its notifier.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nandarray::nvme::Controller;
use nandarray_nvme_spec::{
    CommandSet, CompletionEntry, ControllerConfiguration, ControllerStatus, DISCOVERY_NQN, EventMask, LogPage, Status,
};
use parking_lot::Mutex;

use crate::accounts::ExecutionAccounts;
use crate::boxes::StoredBoxes;
use crate::executing::ExecutingCommands;
use crate::features::FeatureValues;
use crate::metrics::TenantMeter;
use crate::notices::{RESERVATION_EVENT, ReservationNotices};
use crate::requests::ArrayRequests;
use crate::run_outputs::FetchedRuns;
use crate::running::RunningExecutions;
use crate::subsystem::{self, Subsystem};
use crate::tenants::Tenant;
use crate::unlocked::UnlockedArrays;

/// Maximum number of asynchronous event requests that a controller holds.
pub(crate) const EVENTS_MAX: usize = 4;
/// Dword 0 of the event that namespace attributes have changed: a notice (type 2, information 0) that refers to the log
/// page of changed namespaces (base 2.0, figure 145).
const NAMESPACE_EVENT: u32 = 2 | (LogPage::Changed as u32) << 16;

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
    /// Where the host is, as the kernel tells: its address, of IPv6 the network of 64 bits, or its user; `None` if not
    /// known.
    pub peer: Option<String>,
}

pub(crate) struct AdminState {
    pub(crate) cc: ControllerConfiguration,
    pub(crate) csts: ControllerStatus,
    pub(crate) features: FeatureValues,
    held: VecDeque<u16>,
    pub(crate) changed: BTreeSet<u32>,
    /// Whether an event was sent, and the host has not read the log page since then.
    pub(crate) noticed: bool,
    /// Notifications about reservations.
    pub(crate) notices: ReservationNotices,
}

impl AdminState {
    /// Takes a held event request for an event that is due; returns its identifier and the event. An event of a page is
    /// due once until the host has read the page.
    fn take_due(&mut self) -> Option<(u16, u32)> {
        let is_enabled = self.features.event_mask & EventMask::NAMESPACE_NOTICES != 0;
        if !self.changed.is_empty() && !self.noticed && is_enabled {
            let cid = self.held.pop_front()?;
            self.noticed = true;
            return Some((cid, NAMESPACE_EVENT));
        }
        if !self.notices.is_due() {
            return None;
        }
        let cid = self.held.pop_front()?;
        self.notices.set_noticed();
        Some((cid, RESERVATION_EVENT))
    }
}

type Notifier = Box<dyn Fn(CompletionEntry) + Send + Sync>;

/// A controller with the host that is connected to it.
pub struct Association {
    subsystem: Arc<Subsystem>,
    tenant: Arc<Tenant>,
    controller: Controller,
    pub(crate) boxes: StoredBoxes,
    pub(crate) requests: ArrayRequests,
    pub(crate) running: RunningExecutions,
    /// Runs whose outputs the host fetches while they go on.
    pub(crate) fetched: FetchedRuns,
    /// Commands that are being executed, but for those of reservations.
    pub(crate) executing: ExecutingCommands,
    pub(crate) unlocked: UnlockedArrays,
    /// Accounts of this host's executions, for the vendor's log page; other hosts have their own.
    pub(crate) accounts: ExecutionAccounts,
    /// Counts of the tenant's commands.
    pub(crate) meter: Arc<TenantMeter>,
    cntlid: u16,
    host: HostIdentity,
    pub(crate) state: Mutex<AdminState>,
    notifier: Mutex<Option<Notifier>>,
    /// Whether a command arrived since the transport asked last, which keeps the association alive.
    pub(crate) seen: AtomicBool,
}

impl fmt::Debug for Association {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Association").field("cntlid", &self.cntlid).field("host", &self.host).finish_non_exhaustive()
    }
}

impl Association {
    pub(crate) fn new(
        subsystem: Arc<Subsystem>,
        tenant: Arc<Tenant>,
        controller: Controller,
        cntlid: u16,
        host: HostIdentity,
        kato_ms: u32,
    ) -> Self {
        let state = AdminState {
            cc: ControllerConfiguration::default(),
            csts: ControllerStatus::default(),
            features: FeatureValues::new(kato_ms),
            held: VecDeque::new(),
            changed: BTreeSet::new(),
            noticed: false,
            notices: ReservationNotices::default(),
        };
        let meter = subsystem.meters.of(tenant.name());
        Self {
            meter,
            requests: ArrayRequests::new(tenant.budget.clone()),
            fetched: FetchedRuns::new(tenant.budget.clone()),
            subsystem,
            tenant,
            controller,
            boxes: StoredBoxes::default(),
            running: RunningExecutions::default(),
            executing: ExecutingCommands::default(),
            unlocked: UnlockedArrays::default(),
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

    pub(crate) fn tenant(&self) -> &Arc<Tenant> {
        &self.tenant
    }

    /// Returns the name of the tenant that the host belongs to.
    pub fn tenant_name(&self) -> &str {
        self.tenant.name()
    }

    /// Whether there is a command set for the host.
    pub(crate) fn has(&self, csi: u8) -> bool {
        let allowed = match csi {
            CommandSet::MEMORY | CommandSet::PROGRAMS => self.tenant.rule(|rules| rules.programs),
            _ => true,
        };
        allowed && self.subsystem.has(csi)
    }

    /// Returns the command set of a namespace that the host may use.
    ///
    /// # Errors
    /// Invalid namespace.
    pub(crate) fn csi(&self, nsid: u32) -> Result<u8, Status> {
        let csi = self.subsystem.csi(nsid)?;
        if csi == CommandSet::NVM {
            self.controller.namespace_blocks(nsid)?;
        }
        if self.has(csi) { Ok(csi) } else { Err(Status::INVALID_NAMESPACE) }
    }

    /// Returns the identifiers of the namespaces that the host may use, in order: all, or those of one command set.
    pub(crate) fn active(&self, csi: Option<u8>) -> Result<Vec<u32>, Status> {
        let mut found = self.subsystem.active(csi)?;
        found.retain(|&nsid| self.csi(nsid).is_ok());
        Ok(found)
    }

    /// Whether the host may change a namespace, block or not.
    pub(crate) fn may_write(&self, nsid: u32) -> bool {
        let is_block = subsystem::command_set(nsid) == CommandSet::NVM;
        !self.subsystem.read_only() && (!is_block || self.controller.may_write_namespace(nsid))
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

    /// Whether the controller tells states of paths: its subsystem has several ports.
    pub(crate) fn has_path_states(&self) -> bool {
        !self.is_discovery() && self.subsystem.ports().len() > 1
    }

    /// Returns the keep alive timeout in milliseconds: the time without a command after which the association ends; 0
    /// is never.
    pub fn kato_ms(&self) -> u32 {
        self.state.lock().features.kato_ms
    }

    /// Whether the controller is enabled and ready for I/O commands.
    pub fn is_ready(&self) -> bool {
        let csts = self.state.lock().csts;
        csts.ready && !csts.shut_down
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
        let ready = state.csts.ready && !self.is_discovery() && hostnqn == self.host.hostnqn;
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
        self.unlocked.clear();
        {
            let mut state = self.state.lock();
            state.held.clear();
            state.csts = ControllerStatus { ready: false, fatal: true, ..state.csts };
        }
        // Last: an execution that begins now finds that the controller is not ready.
        self.running.stop();
        self.fetched.clear();
    }

    pub(crate) fn notice_namespaces(&self, nsids: &[u32]) {
        if self.is_discovery() {
            return;
        }
        let seen = nsids.iter().filter(|&&nsid| self.controller.may_read_namespace(nsid));
        self.state.lock().changed.extend(seen);
        self.notice();
    }

    /// Sends the event of changed namespaces if the host enabled it, and that of notifications about reservations, for
    /// which the host has event requests held here, and of whose log page it has read the last one.
    pub(crate) fn notice(&self) {
        let notifier = self.notifier.lock();
        let Some(send) = notifier.as_ref() else { return };
        loop {
            let due = self.state.lock().take_due();
            let Some((cid, event)) = due else { return };
            send(CompletionEntry::new(cid, Ok((event, 0))));
        }
    }

    /// Holds an event request.
    pub(crate) fn hold(&self, cid: u16) -> Result<(), Status> {
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

    /// Writes the property CC (controller configuration), which enables, disables or shuts down the controller.
    pub(crate) fn configure(&self, next: ControllerConfiguration) {
        let before = {
            let mut state = self.state.lock();
            std::mem::replace(&mut state.cc, next)
        };
        if next.shuts_down() {
            // A host that shuts down expects that its writes are durable.
            let flushed = if self.is_discovery() { Ok(()) } else { self.subsystem.flush() };
            let mut state = self.state.lock();
            match flushed {
                Ok(()) => state.csts.shut_down = true,
                Err(_) => state.csts.fatal = true,
            }
            return;
        }
        match (before.is_enabled(), next.is_enabled()) {
            (false, true) => self.state.lock().csts = ControllerStatus { ready: true, ..ControllerStatus::default() },
            (true, false) => self.reset(),
            _ => {}
        }
    }

    /// Resets the subsystem, of which this controller alone has state: it is reset, and not enabled.
    pub(crate) fn reset_subsystem(&self) {
        self.reset();
        let mut state = self.state.lock();
        state.cc = state.cc.disabled();
    }

    /// Resets the controller: restores features, aborts held event requests, and closes views and boxes. Programs,
    /// range sets and memory belong to the subsystem, and stay.
    fn reset(&self) {
        self.boxes.clear();
        self.requests.clear();
        self.unlocked.clear();
        self.controller.close_all();
        let held = {
            let mut state = self.state.lock();
            state.csts = ControllerStatus::default();
            state.features.event_mask = 0;
            state.noticed = false;
            state.notices = ReservationNotices::default();
            state.changed.clear();
            std::mem::take(&mut state.held)
        };
        self.running.stop();
        self.fetched.clear();
        // The transport has these commands in flight: without a completion, their identifiers would never be free.
        if let Some(send) = self.notifier.lock().as_ref() {
            held.into_iter().for_each(|cid| send(CompletionEntry::new(cid, Err(Status::ABORTED))));
        }
    }
}
