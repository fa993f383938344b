//! A server: the listening sockets, a thread for each connection, workers, limits, and the end of silent associations.
//!
//! The server listens on unix sockets and loopback addresses only, unless every host has to authenticate itself, or an
//! option allows hosts without. The number of connections that are not yet a queue is limited; each has ten seconds to
//! become one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nandarray::Home;
use nandarray_nvme_spec::PathState;
use parking_lot::{Condvar, Mutex};

use super::connection::{CONNECT_TIME, Connection};
use super::connection_state::ConnectionState;
use super::endpoint::{Endpoint, Peer, SocketStream};
use super::greeting::{TlsDoor, greet};
use super::listener::{Listener, SocketAccess};
use super::logins::FailedLogins;
use super::outgoing::{Outgoing, SEND_TIME};
use super::turns::{LaneName, WorkerShare};
use super::workers::{CommandWorkers, WorkerCommand, WorkerCounts};
use crate::association::Association;
use crate::events::EventKind;
use crate::io::CommandPlace;
use crate::ports::SubsystemPort;
use crate::running::RunStatus;
use crate::subsystem::{KnownHosts, Subsystem};
use crate::tenants::NodeRules;

/// Number of worker threads for long commands, and of those for programs.
const WORKERS: usize = 4;
/// Number of worker threads if every command may wait in the engine: as many as a full queue has commands.
const WAITING_WORKERS: usize = 128;
/// Size of the stack of a connection's thread, in bytes.
const STACK_BYTES: usize = 1 << 20;
/// Maximum number of connections that are not yet a queue; one more ends the oldest of them.
const HALF_OPEN_MAX: usize = 128;
/// Time between two checks of keep alive timeouts and namespaces.
const LOOK: Duration = Duration::from_millis(200);
/// Time of service after which it is recorded; a server that is killed loses less.
const TIME_RECORD: Duration = Duration::from_secs(600);
/// Granularity of keep alive timeouts, as stated by Identify, in milliseconds.
const KEEP_ALIVE_MS: u64 = 1000;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Whether the server may listen on any address, although hosts may connect without authentication.
    pub insecure: bool,
    /// Maximum number of connections at once. A tenant has no more than it leaves free.
    pub connections_max: usize,
    /// Whether commands wait in the engine until their modelled time has passed on the wall clock. The server then has
    /// 128 threads for them, as many as a full queue has commands; further commands wait for a thread.
    pub waits: bool,
    /// Users who may connect by unix sockets, beside this one and root.
    pub access: SocketAccess,
    /// Numbers, from 0 on, of places that hosts with several paths use while no other is left.
    pub fallback: Vec<usize>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            insecure: false,
            connections_max: 512,
            waits: false,
            access: SocketAccess::default(),
            fallback: Vec::new(),
        }
    }
}

/// The present state of a server, as reported to its operator.
#[derive(Clone, Debug)]
pub struct ServerStatus {
    /// Places where the server listens.
    pub endpoints: Vec<Endpoint>,
    /// Qualified name of the subsystem.
    pub nqn: String,
    /// Number of open connections.
    pub connections: usize,
    /// Number of connections that are not yet a queue of a host that has proved its identity, where it has to.
    pub half_open: usize,
    /// Associations, each with the controller's identifier, the host's name and the number of I/O queues. A host that
    /// has to prove its identity is listed once it has.
    pub associations: Vec<(u16, String, usize)>,
    /// Associations of hosts that came by a unix socket, each with the controller's identifier and the process that
    /// made its admin queue.
    pub peers: Vec<(u16, Peer)>,
    /// Number of logins that were refused: unknown hosts, and hosts that failed to prove their identity.
    pub refused_logins: u64,
    /// Number of connections that ended, or ran out of time, before their host had proved its identity.
    pub unfinished_logins: u64,
    /// Memory that hosts have made grow, and its limit, in bytes.
    pub memory: (u64, u64),
    /// Tenants that have a state, each with the memory that it has made grow, and its limit, in bytes.
    pub tenants: Vec<(String, u64, u64)>,
    /// Named counts of commands, as in [`Subsystem::numbers`].
    pub numbers: Vec<(&'static str, u64)>,
    /// Runs of programs that have begun and not ended.
    pub running: Vec<RunStatus>,
    /// Number of commands in flight on all queues of each tenant, by its name.
    pub in_flight: BTreeMap<String, usize>,
    /// For each kind of workers its name, the commands that wait for one, the workers that are busy, and all workers.
    pub workers: Vec<(&'static str, WorkerCounts)>,
}

/// An association with the sockets of its queues.
#[derive(Debug)]
struct LiveAssociation {
    association: Arc<Association>,
    /// Whether the host has proved its identity, or does not have to.
    is_proven: bool,
    /// Process that made the admin queue by a unix socket.
    peer: Option<Peer>,
    sockets: BTreeMap<u16, SocketStream>,
    seen: Instant,
}

/// State that the threads of a server share.
pub(crate) struct ServerState {
    begun: Instant,
    /// Seconds since then that the store has counted.
    counted_seconds: AtomicU64,
    /// Maximum number of a tenant's long commands that run at once: they may wait for each other.
    commands_max: u32,
    subsystem: Arc<Subsystem>,
    live: Mutex<BTreeMap<u16, LiveAssociation>>,
    sockets: Mutex<BTreeMap<u64, SocketStream>>,
    /// Numbers of the connections that are not yet a queue, in order of arrival.
    half_open: Mutex<BTreeSet<u64>>,
    /// Queues by the number of their connection, each with the name of its tenant.
    queues: Mutex<BTreeMap<u64, (String, Weak<Outgoing>)>>,
    connections: AtomicUsize,
    connections_max: usize,
    /// Number of connections that were accepted so far.
    accepted: AtomicU64,
    logins: FailedLogins,
    /// Handshakes of TLS, without which no host comes by TCP; `None` if hosts have no keys of it.
    pub(super) tls: Option<TlsDoor>,
    stopping: AtomicBool,
    waits: bool,
    workers: Arc<CommandWorkers>,
    /// Workers of commands that run programs.
    program_workers: Arc<CommandWorkers>,
    look: (Mutex<()>, Condvar),
}

impl ServerState {
    pub(crate) fn subsystem(&self) -> &Arc<Subsystem> {
        &self.subsystem
    }

    /// Notes that a connection has become a queue, or has ended.
    pub(crate) fn no_longer_half_open(&self, number: u64) {
        self.half_open.lock().remove(&number);
    }

    /// Notes a new connection; if too many connections are not yet a queue, ends the oldest of these.
    fn begin_half_open(&self, number: u64) {
        let oldest = {
            let mut half_open = self.half_open.lock();
            half_open.insert(number);
            if half_open.len() > HALF_OPEN_MAX { half_open.pop_first() } else { None }
        };
        if let Some(socket) =
            oldest.and_then(|oldest| self.sockets.lock().get(&oldest).and_then(|s| s.try_clone().ok()))
        {
            // The host may have closed the connection before.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Returns the time since the server began.
    pub(super) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Counts the whole seconds of service that were not counted, if it is at least `least`.
    fn count_time(&self, least: Duration) {
        let (now, counted) = (self.elapsed().as_secs(), self.counted_seconds.load(Ordering::Relaxed));
        if now > counted && now - counted >= least.as_secs() {
            self.counted_seconds.store(now, Ordering::Relaxed);
            self.subsystem.add_service_time(now - counted);
        }
    }

    /// Returns whether every I/O command may wait in the engine.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Passes a long command to a worker thread, which executes it.
    pub(crate) fn work(&self, place: CommandPlace, of: &Association, command: impl FnOnce() + Send + 'static) {
        let (share, runs) = of.tenant().rule(|rules| (rules.share, rules.runs));
        let (workers, running_max) = match place {
            CommandPlace::Here | CommandPlace::Worker => (&self.workers, self.commands_max),
            CommandPlace::ProgramWorker => (&self.program_workers, runs),
        };
        let share = WorkerShare { share, running_max };
        let lane = LaneName { owner: of.tenant().owner().clone(), tenant: of.tenant_name().into() };
        workers.execute(&lane, share, WorkerCommand { cntlid: of.cntlid(), run: Box::new(command) });
    }

    /// Logins that failed.
    pub(super) fn logins(&self) -> &FailedLogins {
        &self.logins
    }

    /// Adds an association, whose host has proved its identity, does not have to, or is about to.
    pub(crate) fn begin_association(&self, association: &Arc<Association>, socket: SocketStream, is_proven: bool) {
        let (peer, sockets) = (socket.peer(), BTreeMap::from([(0, socket)]));
        let live = LiveAssociation { association: association.clone(), is_proven, peer, sockets, seen: Instant::now() };
        self.live.lock().insert(association.cntlid(), live);
        if is_proven {
            self.tell_host(EventKind::Connect, association);
        }
    }

    /// Notes a connection that has become a queue, whose commands in flight the status has.
    pub(super) fn watch_queue(&self, number: u64, state: &ConnectionState, outgoing: &Arc<Outgoing>) {
        if let Some(association) = state.association() {
            let queue = (association.tenant_name().to_owned(), Arc::downgrade(outgoing));
            self.queues.lock().insert(number, queue);
        }
    }

    /// Returns the number of commands in flight on all queues of each tenant.
    fn in_flight(&self) -> BTreeMap<String, usize> {
        let queues = self.queues.lock().clone();
        let mut found = BTreeMap::new();
        for (tenant, queue) in queues.into_values() {
            let queue = queue.upgrade();
            *found.entry(tenant).or_default() += queue.map_or(0, |queue| queue.in_flight());
        }
        found
    }

    /// Tells a login that was refused, and why.
    pub(super) fn tell_refusal(&self, host: &str, why: &str) {
        self.subsystem.events.add(EventKind::LoginRefused, || vec![("host", host.into()), ("why", why.into())]);
    }

    /// Tells that the host of an association has come, or has gone.
    fn tell_host(&self, kind: EventKind, association: &Association) {
        self.subsystem.events.add(kind, || {
            let (host, cntlid) = (association.host().hostnqn.as_str(), u64::from(association.cntlid()));
            vec![("host", host.into()), ("controller", cntlid.into())]
        });
    }

    /// Notes that the host of an association has proved its identity.
    pub(crate) fn prove(&self, association: &Association) {
        self.tell_host(EventKind::Connect, association);
        if let Some(found) = self.live.lock().get_mut(&association.cntlid()) {
            found.is_proven = true;
        }
    }

    /// Whether an association is there, and has no queue of this number.
    pub(crate) fn has_place(&self, association: &Association, qid: u16) -> bool {
        let live = self.live.lock();
        live.get(&association.cntlid()).is_some_and(|found| !found.sockets.contains_key(&qid))
    }

    /// Whether a tenant's hosts may have one connection more: they leave as many free as they have. Connections whose
    /// host has not proved its identity do not count; their number and time are limited otherwise.
    pub(crate) fn leaves_room(&self, association: &Association) -> bool {
        let owner = association.tenant().owner();
        let is_own = |one: &&LiveAssociation| one.is_proven && one.association.tenant().owner() == owner;
        let own: usize = self.live.lock().values().filter(is_own).map(|one| one.sockets.len()).sum();
        own <= self.connections_max.saturating_sub(self.connections.load(Ordering::Acquire))
    }

    /// Adds an I/O queue to an association; returns `false` if the association has ended, or has a queue of this
    /// number.
    pub(crate) fn begin_queue(&self, association: &Association, qid: u16, socket: SocketStream) -> bool {
        let mut live = self.live.lock();
        match live.get_mut(&association.cntlid()) {
            Some(found) if !found.sockets.contains_key(&qid) => {
                found.sockets.insert(qid, socket);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn end_queue(&self, association: &Association, qid: u16) {
        if let Some(found) = self.live.lock().get_mut(&association.cntlid()) {
            found.sockets.remove(&qid);
        }
    }

    /// Ends an association and the connections of its queues.
    pub(crate) fn end_association(&self, association: &Association) {
        let found = self.live.lock().remove(&association.cntlid());
        if found.as_ref().is_some_and(|live| live.is_proven) {
            self.tell_host(EventKind::Disconnect, association);
        }
        // First: a command that arrives before its socket is closed is aborted.
        association.end();
        // Commands that wait for a worker have no host to answer to.
        self.workers.forget(association.cntlid());
        self.program_workers.forget(association.cntlid());
        for socket in found.iter().flat_map(|live| live.sockets.values()) {
            // The host may have closed the connection before.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Stops runs of programs that have taken longer than their tenants' may; forgets requests that were left alone.
    fn end_overdue(&self) {
        let live: Vec<Arc<Association>> = self.live.lock().values().map(|live| live.association.clone()).collect();
        for association in live {
            association.running.stop_overdue();
            association.requests.end_stale(self.elapsed());
        }
    }

    /// Ends associations whose keep alive timeout has expired.
    fn end_silent(&self) {
        let now = Instant::now();
        let mut silent = Vec::new();
        for live in self.live.lock().values_mut() {
            let kato_ms = u64::from(live.association.kato_ms());
            if live.association.was_seen() || kato_ms == 0 {
                live.seen = now;
            }
            let limit = Duration::from_millis(kato_ms.div_ceil(KEEP_ALIVE_MS) * KEEP_ALIVE_MS);
            if now - live.seen > limit + LOOK {
                silent.push(live.association.clone());
            }
        }
        silent.iter().for_each(|association| self.end_association(association));
    }
}

/// A listening server of a subsystem.
pub struct Server {
    shared: Arc<ServerState>,
    listeners: Vec<Arc<Listener>>,
    /// The place of each of them.
    endpoints: Vec<Endpoint>,
    threads: Vec<JoinHandle<()>>,
    /// The process of the threads: a process forked from it has copies of the sockets, and must leave them alone.
    home: Home,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("endpoints", &self.endpoints).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts a server, which listens and serves hosts until it is stopped.
    ///
    /// # Errors
    /// The address cannot be listened on, or is no loopback address while `insecure` is not set and hosts may connect
    /// without authentication.
    pub fn start(subsystem: Arc<Subsystem>, address: SocketAddr, options: &ServerOptions) -> io::Result<Self> {
        Self::start_at(subsystem, &[Endpoint::Tcp(address)], options)
    }

    /// Starts a server as [`Self::start`] does, which listens at several places. A unix socket is as local as a
    /// loopback address.
    ///
    /// # Errors
    /// As [`Self::start`]; there is no place to listen at, or another server or another file has the path of a unix
    /// socket.
    pub fn start_at(subsystem: Arc<Subsystem>, places: &[Endpoint], options: &ServerOptions) -> io::Result<Self> {
        if places.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there must be an address or a path to listen at"));
        }
        if let Some(place) = places.iter().find(|place| !place.is_local())
            && !options.insecure
            && !subsystem.authenticates_all()
        {
            let what = format!(
                "{place} is no loopback address: every host that may connect needs a secret or a key of TLS, or \
                 insecure has to be set"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let tls = TlsDoor::of(&subsystem)?;
        let (mut listeners, mut endpoints) = (Vec::new(), Vec::new());
        for place in places {
            let (listener, endpoint) = Listener::bind(place, options.access)
                .map_err(|e| io::Error::new(e.kind(), format!("cannot listen at {place}: {e}")))?;
            listeners.push(Arc::new(listener));
            endpoints.push(endpoint);
        }
        subsystem.set_ports(ports_of(&endpoints, &options.fallback));
        let count = if options.waits { WAITING_WORKERS } else { WORKERS };
        let workers = CommandWorkers::start(count, true)?;
        let program_workers = CommandWorkers::start(count, true).inspect_err(|_| workers.close())?;
        let mut threads = Vec::new();
        let shared = Arc::new(ServerState {
            begun: Instant::now(),
            counted_seconds: AtomicU64::new(0),
            commands_max: count as u32,
            subsystem,
            live: Mutex::default(),
            sockets: Mutex::default(),
            half_open: Mutex::default(),
            queues: Mutex::default(),
            connections: AtomicUsize::new(0),
            connections_max: options.connections_max,
            accepted: AtomicU64::new(0),
            logins: FailedLogins::new(Instant::now()),
            tls,
            stopping: AtomicBool::new(false),
            waits: options.waits,
            workers,
            program_workers,
            look: (Mutex::new(()), Condvar::new()),
        });
        let looking = shared.clone();
        // Read here, before the thread starts, so that a namespace created after this call always counts as a change.
        let known = looking.subsystem.inventory();
        threads.push(thread::spawn(move || look(&looking, known)));
        for listener in &listeners {
            let (accepting, listener) = (shared.clone(), listener.clone());
            threads.push(thread::spawn(move || accept(&accepting, &listener)));
        }
        Ok(Self { shared, listeners, endpoints, threads, home: Home::here() })
    }

    /// Returns the places where the server listens, in the order in which they were given.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Returns the first place where the server listens.
    pub fn address(&self) -> &Endpoint {
        &self.endpoints[0]
    }

    /// Returns the subsystem that the server serves.
    pub fn subsystem(&self) -> &Arc<Subsystem> {
        &self.shared.subsystem
    }

    /// Replaces the hosts that may connect, their secrets and keys and the rules of tenants, and ends associations of
    /// hosts that are not admitted as they were; returns the names of these hosts.
    pub fn replace_hosts(&self, hosts: KnownHosts, rules: NodeRules) -> Vec<String> {
        let ended = self.shared.subsystem.replace_hosts(hosts, rules);
        ended.iter().for_each(|association| self.shared.end_association(association));
        ended.iter().map(|association| association.host().hostnqn.clone()).collect()
    }

    /// Returns the server's present state.
    pub fn status(&self) -> ServerStatus {
        let (refused_logins, unfinished_logins) = self.shared.logins.counts();
        let half_open = self.shared.half_open.lock().len();
        let live = self.shared.live.lock();
        let proven = live.values().filter(|live| live.is_proven);
        let associations =
            proven.map(|l| (l.association.cntlid(), l.association.host().hostnqn.clone(), l.sockets.len() - 1));
        let peers = live.values().filter(|live| live.is_proven);
        let peers = peers.filter_map(|l| Some((l.association.cntlid(), l.peer?)));
        let (associations, peers) = (associations.collect(), peers.collect());
        drop(live);
        ServerStatus {
            peers,
            half_open,
            refused_logins,
            unfinished_logins,
            endpoints: self.endpoints.clone(),
            nqn: self.shared.subsystem.nqn().to_owned(),
            connections: self.shared.connections.load(Ordering::Relaxed),
            associations,
            memory: self.shared.subsystem.memory_in_use(),
            tenants: self.shared.subsystem.tenants_in_use(),
            numbers: self.shared.subsystem.numbers(),
            running: self.shared.subsystem.running(),
            in_flight: self.shared.in_flight(),
            workers: vec![
                ("commands", self.shared.workers.counts()),
                ("programs", self.shared.program_workers.counts()),
            ],
        }
    }

    /// Ends all connections and stops the server. Commands that have begun are executed to their end; programs are
    /// stopped, and write nothing.
    pub fn stop(&mut self) {
        if !self.home.is_here() {
            // The handles are of threads that do not exist here; they must not even be dropped.
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        if self.shared.stopping.swap(true, Ordering::SeqCst) {
            return;
        }
        self.listeners.iter().for_each(|listener| listener.wake());
        self.shared.look.1.notify_all();
        for socket in self.shared.sockets.lock().values() {
            drop(socket.shutdown(Shutdown::Both));
        }
        let live: Vec<Arc<Association>> = self.shared.live.lock().values().map(|l| l.association.clone()).collect();
        live.iter().for_each(|association| self.shared.end_association(association));
        self.shared.workers.close();
        self.shared.program_workers.close();
        for thread in self.threads.drain(..) {
            thread.join().expect("a thread of the server does not panic");
        }
        self.shared.workers.join();
        self.shared.program_workers.join();
        // Their sockets are closed, too: new connections are refused although this value may stay.
        self.listeners.drain(..).for_each(|listener| listener.remove());
        self.shared.count_time(Duration::ZERO);
        let until = Instant::now() + Duration::from_secs(10);
        while self.shared.connections.load(Ordering::Acquire) > 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the ports of the places that have an address.
fn ports_of(places: &[Endpoint], fallback: &[usize]) -> Vec<SubsystemPort> {
    let state = |i: usize| if fallback.contains(&i) { PathState::NonOptimized } else { PathState::Optimized };
    let of = |(i, place): (usize, &Endpoint)| place.tcp().map(|address| SubsystemPort { address, state: state(i) });
    places.iter().enumerate().filter_map(of).collect()
}

/// Checks keep alive timeouts and changed namespaces until the server stops; `known` is the inventory of namespaces at
/// the beginning.
fn look(shared: &ServerState, mut known: Vec<(u32, u64, u32)>) {
    let (mut lock, mut round) = (shared.look.0.lock(), 0u32);
    while !shared.stopping.load(Ordering::SeqCst) {
        shared.look.1.wait_for(&mut lock, LOOK);
        shared.end_silent();
        shared.end_overdue();
        shared.subsystem.end_idle(shared.elapsed());
        shared.count_time(TIME_RECORD);
        round += 1;
        if round.is_multiple_of(2) {
            let found = shared.subsystem.inventory();
            let differ = |a: &[(u32, u64, u32)], b: &[(u32, u64, u32)]| -> Vec<u32> {
                a.iter().filter(|ns| !b.contains(ns)).map(|ns| ns.0).collect()
            };
            let mut changed = differ(&known, &found);
            changed.extend(differ(&found, &known));
            if !changed.is_empty() {
                shared.subsystem.namespaces_changed(&changed);
            }
            known = found;
        }
    }
}

/// A connection that is counted as open until this is dropped, also by a panic of its thread.
struct CountedConnection {
    shared: Arc<ServerState>,
    number: u64,
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.shared.no_longer_half_open(self.number);
        self.shared.sockets.lock().remove(&self.number);
        self.shared.queues.lock().remove(&self.number);
        self.shared.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Accepts connections, and closes those beyond the maximum number at once.
fn accept(shared: &Arc<ServerState>, listener: &Listener) {
    loop {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        // The connection failed before it was accepted, or no descriptors are left: a later attempt may succeed.
        let Ok(stream) = accepted else {
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let Some(stream) = stream else { continue };
        if shared.connections.load(Ordering::Acquire) >= shared.connections_max {
            continue;
        }
        // Without these options the connection still works, but may be slower, or stay open longer.
        drop(stream.set_nodelay());
        drop(stream.set_write_timeout(Some(SEND_TIME)));
        let Ok(socket) = stream.try_clone() else { continue };
        let number = shared.accepted.fetch_add(1, Ordering::Relaxed);
        shared.sockets.lock().insert(number, socket);
        shared.connections.fetch_add(1, Ordering::AcqRel);
        shared.begin_half_open(number);
        let of = shared.clone();
        let serve = move || {
            let _counted = CountedConnection { shared: of.clone(), number };
            let deadline = Instant::now() + CONNECT_TIME;
            if let Some(stream) = greet(&of, stream, deadline) {
                Connection::serve(of, number, stream, deadline);
            }
        };
        if thread::Builder::new().name("nvme-tcp".to_owned()).stack_size(STACK_BYTES).spawn(serve).is_err() {
            shared.no_longer_half_open(number);
            shared.sockets.lock().remove(&number);
            shared.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
