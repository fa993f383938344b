//! A subsystem: one store as hosts see it, with namespaces of every command set, and associations with its hosts.
//!
//! Block namespaces are the arrays named `ns/N`; three more namespaces with fixed identifiers provide the other command
//! sets. A subsystem holds only a weak reference to its store, which can be closed meanwhile.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use nandarray::nvme::Controller;
use nandarray::{Device, command};
use nandarray_nvme_spec::{CNTLID_ANY, CommandSet, DISCOVERY_NQN, NSID_MEMORY, NSID_ND, NSID_PROGRAMS, Status};
use nandarray_runtime::{Executor, Runtime};
use parking_lot::{Mutex, RwLock};

use crate::association::{Association, HostIdentity};
use crate::auth::{ControllerExchange, HostCredentials};
use crate::events::{EventLog, ServerEvent};
use crate::host_entries::entry_of;
use crate::logs::Health;
use crate::metrics::{Meters, OperationCounts};
use crate::ports::SubsystemPort;
use crate::reservations::Reservations;
use crate::running::RunStatus;
use crate::tenants::{NoRules, NodeRules, Tenant, Tenants};
use crate::tls::{NamedHost, TlsKeys, TlsPsk};

/// Maximum namespace identifier (NN).
pub(crate) const NN: u32 = 1024;
/// Maximum number of associations at once.
const ASSOCIATIONS_MAX: usize = 512;

/// Returns the command set of a namespace identifier, whether or not there is such a namespace.
pub(crate) fn command_set(nsid: u32) -> u8 {
    match nsid {
        NSID_MEMORY => CommandSet::MEMORY,
        NSID_PROGRAMS => CommandSet::PROGRAMS,
        NSID_ND => CommandSet::ND,
        _ => CommandSet::NVM,
    }
}

/// Options and limits of a subsystem.
#[derive(Clone, Debug)]
pub struct SubsystemOptions {
    /// Qualified name; `None` to derive it from the store's identity as a drive.
    pub nqn: Option<String>,
    /// Whether commands that change the store are refused.
    pub read_only: bool,
    /// Whether there are Computational Programs and Subsystem Local Memory.
    pub programs: bool,
    /// Whether there are N-D commands.
    pub nd: bool,
    /// Size of the Subsystem Local Memory of a host that no rules name, in bytes.
    pub memory_bytes: usize,
    /// Limits of the node, and its tenants.
    pub rules: NodeRules,
    /// Qualified names of the hosts that may connect, beside those with secrets. Without either, any host may.
    pub hosts: Vec<String>,
    /// Secrets of hosts by their qualified names: these hosts may connect, and have to authenticate themselves.
    pub credentials: BTreeMap<String, HostCredentials>,
    /// Keys of TLS of hosts by their qualified names: these hosts may connect, by TCP with TLS alone.
    pub tls_keys: TlsKeys,
    /// Whether a completed write survives the end of this process (the default); otherwise only after a host's flush.
    pub kill_safe: bool,
    /// Address that the discovery log names, and port; `None` for those that the host has reached.
    pub advertised: Option<(String, Option<String>)>,
    /// The executor that runs programs; `None` for threads of this host.
    pub executor: Option<Arc<dyn Executor>>,
}

impl Default for SubsystemOptions {
    fn default() -> Self {
        Self {
            nqn: None,
            read_only: false,
            programs: true,
            nd: true,
            memory_bytes: 64 << 20,
            rules: NodeRules::default(),
            hosts: Vec::new(),
            credentials: BTreeMap::new(),
            tls_keys: TlsKeys::new(),
            kill_safe: true,
            advertised: None,
            executor: None,
        }
    }
}

#[derive(Debug, Default)]
struct AssociationTable {
    last: u16,
    open: BTreeMap<u16, Weak<Association>>,
}

/// A store as an NVMe subsystem: its namespaces, and the associations with its hosts.
#[derive(Debug)]
pub struct Subsystem {
    runtime: Weak<Runtime>,
    /// Controller that lists and describes namespaces for the subsystem itself.
    inventory: Controller,
    nqn: String,
    uuid: [u8; 16],
    options: SubsystemOptions,
    table: Mutex<AssociationTable>,
    tenants: Tenants,
    hosts: RwLock<KnownHosts>,
    /// Addresses where a server listens.
    ports: RwLock<Vec<SubsystemPort>>,
    pub(crate) health: Health,
    pub(crate) reservations: Reservations,
    /// Counts of commands by kind and tenant.
    pub(crate) meters: Meters,
    /// Events for the operator's log.
    pub(crate) events: EventLog,
    /// Number of the last execution of any host.
    pub(crate) last_run: AtomicU64,
}

/// The hosts that may connect, which can change while the subsystem is used.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts {
    /// Qualified names of hosts, beside those below. Without any host here, each may connect.
    pub names: Vec<String>,
    /// Secrets of hosts by their qualified names.
    pub credentials: BTreeMap<String, HostCredentials>,
    /// Keys of TLS of hosts by their qualified names.
    pub tls_keys: TlsKeys,
}

impl KnownHosts {
    /// Returns the secrets of a host: those of the entry of the rules that it belongs to, or, without rules, of the
    /// entry of the secrets.
    fn credentials_of(&self, rules: &NodeRules, hostnqn: &str) -> Option<&HostCredentials> {
        match rules.entry_of(hostnqn) {
            Ok(entry) => self.credentials.get(&entry?),
            Err(NoRules) => self.credentials.get(entry_of(self.credentials.keys().map(String::as_str), hostnqn)?),
        }
    }
}

impl Subsystem {
    /// Makes a subsystem of a store and its programs.
    pub fn new(runtime: &Arc<Runtime>, options: SubsystemOptions) -> Arc<Self> {
        let device = runtime.device();
        let uuid = device.identity();
        let hex: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
        let parts: Vec<&str> = [0..8, 8..12, 12..16, 16..20, 20..32].map(|r| &hex[r]).to_vec();
        let own = format!("nqn.2014-08.org.nvmexpress:uuid:{}", parts.join("-"));
        let inventory = Controller::new(device);
        Arc::new(Self {
            runtime: Arc::downgrade(runtime),
            reservations: Reservations::of(device, &inventory, uuid),
            inventory,
            nqn: options.nqn.clone().unwrap_or(own),
            uuid,
            table: Mutex::default(),
            tenants: Tenants::new(options.rules.clone(), options.programs.then_some(options.memory_bytes)),
            hosts: RwLock::new(KnownHosts {
                names: options.hosts.clone(),
                credentials: options.credentials.clone(),
                tls_keys: options.tls_keys.clone(),
            }),
            ports: RwLock::default(),
            // A store that is closed meanwhile tells so to every command.
            health: Health::new(device.begin_service().unwrap_or_default()),
            meters: Meters::default(),
            events: EventLog::default(),
            last_run: AtomicU64::new(0),
            options,
        })
    }

    /// Returns the addresses where a server listens.
    pub(crate) fn ports(&self) -> Vec<SubsystemPort> {
        self.ports.read().clone()
    }

    /// Replaces the addresses where a server listens.
    pub(crate) fn set_ports(&self, ports: Vec<SubsystemPort>) {
        *self.ports.write() = ports;
    }

    /// Adds to the time for which the store was served, in its file where that is possible.
    pub(crate) fn add_service_time(&self, seconds: u64) {
        self.health.served(seconds);
        // A store that is closed meanwhile has its time up to here.
        drop(self.device().map(|device| device.add_service_time(seconds)));
    }

    /// Returns the qualified name.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// Returns the options.
    pub fn options(&self) -> &SubsystemOptions {
        &self.options
    }

    pub(crate) fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Returns the store with its programs.
    ///
    /// # Errors
    /// Namespace not ready if the store was closed.
    pub(crate) fn runtime(&self) -> Result<Arc<Runtime>, Status> {
        self.runtime.upgrade().filter(|runtime| !runtime.device().closed()).ok_or(Status::NOT_READY)
    }

    pub(crate) fn device(&self) -> Result<Arc<Device>, Status> {
        Ok(self.runtime()?.device().clone())
    }

    /// Whether commands that change the store are refused.
    pub(crate) fn read_only(&self) -> bool {
        self.options.read_only || self.device().is_ok_and(|device| device.read_only())
    }

    /// Whether the subsystem provides a command set.
    pub(crate) fn has(&self, csi: u8) -> bool {
        match csi {
            CommandSet::NVM => true,
            CommandSet::MEMORY | CommandSet::PROGRAMS => self.options.programs,
            CommandSet::ND => self.options.nd,
            _ => false,
        }
    }

    /// Returns the command set of a namespace.
    ///
    /// # Errors
    /// Invalid namespace.
    pub(crate) fn csi(&self, nsid: u32) -> Result<u8, Status> {
        if nsid > NN {
            return Err(Status::INVALID_NAMESPACE);
        }
        let csi = command_set(nsid);
        if csi == CommandSet::NVM {
            self.inventory.namespace_blocks(nsid)?;
        }
        if self.has(csi) { Ok(csi) } else { Err(Status::INVALID_NAMESPACE) }
    }

    /// Returns the namespace identifiers in order: all, or those of one command set.
    pub(crate) fn active(&self, csi: Option<u8>) -> Result<Vec<u32>, Status> {
        if csi.is_some_and(|csi| !self.has(csi)) {
            return Err(Status::INVALID_FIELD);
        }
        let mut found = self.inventory.namespaces()?;
        found.retain(|&nsid| nsid < NSID_MEMORY);
        found.extend([NSID_MEMORY, NSID_PROGRAMS, NSID_ND]);
        found.retain(|&nsid| {
            let of = command_set(nsid);
            self.has(of) && csi.is_none_or(|csi| csi == of)
        });
        Ok(found)
    }

    /// Returns the block namespaces, each with its number of blocks and bytes per block, to detect changes.
    pub fn inventory(&self) -> Vec<(u32, u64, u32)> {
        let found = self.inventory.namespaces().unwrap_or_default();
        let of = |nsid: u32| {
            let ns = self.inventory.identify_namespace(nsid).ok()?;
            Some((nsid, ns.nsze.get(), 1 << ns.lbaf[0].lbads))
        };
        found.into_iter().filter(|&nsid| nsid < NSID_MEMORY).filter_map(of).collect()
    }

    /// Hands completed writes to the operating system, so that they survive the end of this process.
    ///
    /// # Errors
    /// As a flush of the engine.
    pub fn settle(&self) -> Result<(), Status> {
        let device = self.device()?;
        if device.read_only() { Ok(()) } else { device.execute(command::Settle).map_err(Status::from) }
    }

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// As a flush of the engine.
    pub fn flush(&self) -> Result<(), Status> {
        let device = self.device()?;
        if device.read_only() { Ok(()) } else { device.execute(command::Flush).map_err(Status::from) }
    }

    /// Connects a host to a new controller of this subsystem, or of its discovery service.
    ///
    /// # Errors
    /// The statuses of a connect command, with dword 0 of its completion.
    pub fn associate(self: &Arc<Self>, host: HostIdentity, kato_ms: u32) -> Result<Arc<Association>, (Status, u32)> {
        /// Values of dword 0 for an invalid parameter in the connect data: the offset of the parameter.
        const SUBNQN: u32 = 1 << 16 | 256;
        const HOSTNQN: u32 = 1 << 16 | 512;
        let discovery = host.subnqn == DISCOVERY_NQN;
        if !discovery && host.subnqn != self.nqn {
            return Err((Status::CONNECT_PARAMETER, SUBNQN));
        }
        if host.hostnqn.is_empty() {
            return Err((Status::CONNECT_PARAMETER, HOSTNQN));
        }
        // The discovery service tells a stranger nothing: its log is empty then.
        if !discovery && !self.admits(&host.hostnqn) {
            return Err((Status::CONNECT_HOST, 0));
        }
        let device = self.device().map_err(|_| (Status::CONNECT_BUSY, 0))?;
        let tenant = if discovery { Some(Tenants::stranger()) } else { self.admit(&host) };
        let tenant = tenant.ok_or((Status::CONNECT_HOST, 0))?;
        let mut table = self.table.lock();
        table.open.retain(|_, association| association.strong_count() > 0);
        if table.open.len() >= ASSOCIATIONS_MAX {
            return Err((Status::CONNECT_BUSY, 0));
        }
        loop {
            table.last = table.last.wrapping_add(1);
            if table.last != 0 && table.last < CNTLID_ANY - 15 && !table.open.contains_key(&table.last) {
                break;
            }
        }
        let cntlid = table.last;
        assert!(cntlid != 0 && table.open.len() < ASSOCIATIONS_MAX, "controller {cntlid} of {}", table.open.len());
        let controller = Controller::with_access(&device, tenant.clone());
        let made = Arc::new(Association::new(self.clone(), tenant, controller, cntlid, host, kato_ms));
        table.open.insert(cntlid, Arc::downgrade(&made));
        drop(table);
        // Rules that were replaced meanwhile did not find the host among those that are connected.
        let name = &made.host().hostnqn;
        let is_welcome =
            discovery || (self.admits(name) && self.tenants.is_host_of(&self.known_as(name), made.tenant()));
        if !is_welcome {
            return Err((Status::CONNECT_HOST, 0));
        }
        Ok(made)
    }

    /// Whether a host of this name may connect.
    pub(crate) fn admits(&self, hostnqn: &str) -> bool {
        let KnownHosts { names, credentials, tls_keys } = &*self.hosts.read();
        let anyone = names.is_empty() && credentials.is_empty() && tls_keys.is_empty();
        let is_named = || entry_of(names.iter().chain(credentials.keys()).map(String::as_str), hostnqn).is_some();
        (anyone || tls_keys.contains_key(hostnqn) || is_named()) && self.tenants.knows(hostnqn)
    }

    /// Returns the name by which the tenant of a host is found: the host's; without rules, the entry of its secret.
    fn known_as(&self, hostnqn: &str) -> String {
        if self.tenants.entry_of(hostnqn).is_ok() {
            return hostnqn.to_owned();
        }
        let hosts = self.hosts.read();
        entry_of(hosts.credentials.keys().map(String::as_str), hostnqn).unwrap_or(hostnqn).to_owned()
    }

    /// Returns the tenant of a host that connects.
    fn admit(&self, host: &HostIdentity) -> Option<Arc<Tenant>> {
        let name = &host.hostnqn;
        let hosts = self.hosts.read();
        let is_proven =
            hosts.tls_keys.contains_key(name) || hosts.credentials_of(&self.tenants.rules(), name).is_some();
        drop(hosts);
        self.tenants.admit(&self.known_as(name), host.peer.as_deref().filter(|_| !is_proven))
    }

    /// Whether every host that comes by a network has to prove its name, by a secret or a key of TLS.
    pub fn authenticates_all(&self) -> bool {
        let KnownHosts { names, credentials, tls_keys } = &*self.hosts.read();
        !tls_keys.is_empty() || !credentials.is_empty() && names.iter().all(|host| credentials.contains_key(host))
    }

    /// Whether hosts have keys of TLS: then none comes by TCP without it.
    pub fn requires_tls(&self) -> bool {
        !self.hosts.read().tls_keys.is_empty()
    }

    /// Returns the pre-shared key that an identity names; `named` is what it says. `None` if it is another subsystem's,
    /// or that of no host that is known.
    pub(crate) fn tls_key(&self, named: &NamedHost, identity: &str) -> Option<TlsPsk> {
        let is_here = named.subnqn == self.nqn || named.subnqn == DISCOVERY_NQN;
        named.key_of(identity, &self.hosts.read().tls_keys).filter(|_| is_here)
    }

    /// Whether hosts have secrets by which they authenticate.
    pub fn has_secrets(&self) -> bool {
        !self.hosts.read().credentials.is_empty()
    }

    /// Returns the authentication of a new queue of an association; `None` if its host has no secret. The discovery
    /// service, which tells only addresses and names, has none.
    pub fn exchange(&self, host: &HostIdentity) -> Option<ControllerExchange> {
        let hosts = self.hosts.read();
        let found = hosts.credentials_of(&self.tenants.rules(), &host.hostnqn);
        let credentials = found.filter(|_| host.subnqn != DISCOVERY_NQN)?;
        Some(ControllerExchange::new(credentials.clone(), &host.hostnqn, &host.subnqn))
    }

    /// Returns the association with this controller identifier; `None` if it has ended.
    pub fn association(&self, cntlid: u16) -> Option<Arc<Association>> {
        self.table.lock().open.get(&cntlid).and_then(Weak::upgrade)
    }

    /// Returns the current associations, in order of their controller identifiers.
    pub fn associations(&self) -> Vec<Arc<Association>> {
        self.table.lock().open.values().filter_map(Weak::upgrade).collect()
    }

    /// Replaces the hosts that may connect, their secrets, and the rules of tenants, for hosts that connect from now on
    /// and for the next command of those that are connected. Returns associations that the transport has to end: those
    /// of hosts that are not admitted any more, that belong to another tenant, or that have other secrets or keys.
    pub fn replace_hosts(&self, hosts: KnownHosts, rules: NodeRules) -> Vec<Arc<Association>> {
        let ruled = self.tenants.rules();
        let before = std::mem::replace(&mut *self.hosts.write(), hosts);
        self.tenants.replace(rules);
        let rules = self.tenants.rules();
        let has_to_go = |association: &Arc<Association>| {
            let name = &association.host().hostnqn;
            let hosts = self.hosts.read();
            let same_secret = before.credentials_of(&ruled, name) == hosts.credentials_of(&rules, name);
            let same = same_secret && before.tls_keys.get(name) == hosts.tls_keys.get(name);
            drop(hosts);
            !same || !self.admits(name) || !self.tenants.is_host_of(&self.known_as(name), association.tenant())
        };
        let all = self.associations().into_iter().filter(|association| !association.is_discovery());
        all.filter(has_to_go).collect()
    }

    /// Gives back memory of hosts that have gone; `now` is a time since the transport began.
    pub fn end_idle(&self, now: std::time::Duration) {
        self.tenants.end_idle(now);
    }

    /// Returns the memory that hosts have made grow, and its limit, in bytes.
    pub fn memory_in_use(&self) -> (u64, u64) {
        let budget = self.tenants.budget();
        (budget.used(), budget.limit())
    }

    /// Returns the tenants that have a state, each with the memory that it has made grow, and its limit, in bytes.
    pub fn tenants_in_use(&self) -> Vec<(String, u64, u64)> {
        let told = |tenant: Arc<Tenant>| (tenant.name().to_owned(), tenant.budget.used(), tenant.budget.limit());
        self.tenants.live().into_iter().map(told).collect()
    }

    /// Notifies every host that namespaces were added, removed or resized.
    pub fn namespaces_changed(&self, nsids: &[u32]) {
        for association in self.associations() {
            association.notice_namespaces(nsids);
        }
    }

    /// Returns the runs of programs that have begun and not ended, in order of their numbers.
    pub fn running(&self) -> Vec<RunStatus> {
        let of = |host: &Arc<Association>| host.running.list(&host.host().hostnqn, host.cntlid());
        let mut found: Vec<RunStatus> = self.associations().iter().flat_map(of).collect();
        found.sort_unstable_by_key(|run| run.number);
        found
    }

    /// Stops a run of programs, which ends with an error and writes nothing unless its outputs are being written;
    /// returns whether there is a run of this number.
    pub fn kill(&self, number: u64) -> bool {
        self.associations().iter().any(|host| host.running.kill(number))
    }

    /// Returns the events that were not read, in order; waits at most `time` for the first one. Events from before
    /// the first call are not kept.
    pub fn events(&self, time: Duration) -> Vec<ServerEvent> {
        self.events.read(time)
    }

    /// Returns the counts of commands of each tenant, by its name.
    pub fn operations(&self) -> Vec<(String, Vec<OperationCounts>)> {
        self.meters.operations()
    }

    /// Returns the number of commands that failed, by the name of their status.
    pub fn failures(&self) -> Vec<(&'static str, u64)> {
        self.meters.failures()
    }

    /// Returns named counts since the subsystem was made: reads, writes, their bytes, failures.
    pub fn numbers(&self) -> Vec<(&'static str, u64)> {
        self.health.numbers().to_vec()
    }
}
