//! NVMe over TCP for Python: a server on a store, and a host that is connected to one.
//!
//! Entries and data are bytes here; `nvme_commands` encodes Python's commands.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nandarray::nvme::{CompletionEntry, SubmissionEntry};
use nandarray::{Error, Home};
use nandarray_model::store::{Clock, Modelled, WallTime};
use nandarray_nvme::auth::{DhchapHash, DhchapSecret, HostCredentials};
use nandarray_nvme::tcp::{
    ConnectionEnder, Digests, Endpoint, Initiator, InitiatorOptions, Server, ServerOptions, SocketAccess,
};
use nandarray_nvme::tls::{TlsKey, TlsKeys};
use nandarray_nvme::{KnownHosts, NodeLimits, NodeRules, Subsystem, SubsystemOptions, TenantRules};
use nandarray_runtime::Executor;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use zerocopy::{FromBytes, IntoBytes};

use crate::errors::{detached, to_py};
use crate::handle::{at_home, fail, runtime_of};
use crate::nvme_watch::{of_event, of_operations, of_status};
use crate::store::PyStore;

fn io_error(py: Python<'_>, what: &dyn std::fmt::Display) -> PyErr {
    to_py(py, &Error::Invalid(what.to_string()), None)
}

thread_local! {
    /// The exception that a handler of signals has raised within a call of this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Whether handlers of signals run within a call of this thread, which has its connection.
    static HANDLES_SIGNALS: Cell<bool> = const { Cell::new(false) };
}

/// Has Python handle the signals that have interrupted a call of this thread.
fn handle_signals() -> std::io::Result<()> {
    HANDLES_SIGNALS.set(true);
    let done = Python::attach(|py| py.check_signals());
    HANDLES_SIGNALS.set(false);
    done.map_err(|error| {
        RAISED.set(Some(error));
        std::io::Error::other("a handler of a signal has raised an exception")
    })
}

/// Returns the place that a text names: `unix:PATH`, or `HOST:PORT`, where an IPv6 address is in brackets, with a scope
/// if need be.
fn endpoint_of(py: Python<'_>, text: &str) -> PyResult<Endpoint> {
    if let Some(path) = text.strip_prefix(Endpoint::UNIX) {
        let wrong = path.is_empty() || path.contains('\0');
        let what = format!("{text:?} must be unix:PATH, with the path of a socket");
        return if wrong { Err(io_error(py, &what)) } else { Ok(Endpoint::Unix(path.into())) };
    }
    let wrong = |why: &str| io_error(py, &format!("{text:?} is no HOST:PORT: {why}"));
    let (host, port) = text.rsplit_once(':').ok_or_else(|| wrong("it has no port"))?;
    let host = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.ok_or_else(|| wrong("its bracket is not closed"))?,
        None if host.contains(':') => return Err(wrong("an IPv6 address must be in brackets")),
        None => host,
    };
    let port: u16 = port.parse().map_err(|_| wrong("the port must be a number from 0 to 65535"))?;
    if host.is_empty() {
        return Err(wrong("it has no host"));
    }
    let found = (host, port).to_socket_addrs().map_err(|e| io_error(py, &format!("{text}: {e}")))?.next();
    found.map(Endpoint::Tcp).ok_or_else(|| wrong("the host has no address"))
}

/// The text forms of a host's secret and of the controller's secret for this host; `None` if the controller has none.
type SecretTexts = (String, Option<String>);

fn credentials_of(py: Python<'_>, nqn: &str, (host, controller): &SecretTexts) -> PyResult<HostCredentials> {
    let parse = |whose: &str, text: &str| {
        DhchapSecret::parse(text).map_err(|e| io_error(py, &format!("the secret of {whose}{nqn}: {e}")))
    };
    let controller = controller.as_ref().map(|text| parse("the controller for ", text)).transpose()?;
    Ok(HostCredentials { host: parse("", host)?, controller })
}

fn all_credentials(
    py: Python<'_>,
    secrets: Option<BTreeMap<String, SecretTexts>>,
) -> PyResult<BTreeMap<String, HostCredentials>> {
    let mut made = BTreeMap::new();
    for (host, texts) in secrets.unwrap_or_default() {
        let found = credentials_of(py, &host, &texts)?;
        made.insert(host, found);
    }
    Ok(made)
}

fn tls_key_of(py: Python<'_>, nqn: &str, text: &str) -> PyResult<TlsKey> {
    TlsKey::parse(text).map_err(|e| io_error(py, &format!("the key of {nqn}: {e}")))
}

fn all_tls_keys(py: Python<'_>, keys: Option<BTreeMap<String, String>>) -> PyResult<TlsKeys> {
    let keys = keys.unwrap_or_default().into_iter();
    keys.map(|(host, text)| tls_key_of(py, &host, &text).map(|key| (host, key))).collect()
}

/// The text of rules, and its name in errors.
pub(crate) type RulesText = (String, String);

pub(crate) fn rules_of(py: Python<'_>, rules: Option<RulesText>) -> PyResult<NodeRules> {
    let Some((text, name)) = rules else { return Ok(NodeRules::default()) };
    NodeRules::parse(&text, &name).map_err(|invalid| io_error(py, &invalid))
}

/// Reads rules of tenants (TOML); returns the qualified names of all hosts that they name.
#[pyfunction]
pub(crate) fn nvme_rules_hosts(py: Python<'_>, text: &str, name: &str) -> PyResult<Vec<String>> {
    let rules = NodeRules::parse(text, name).map_err(|invalid| io_error(py, &invalid))?;
    Ok(rules.hosts().map(str::to_owned).collect())
}

/// Returns the keys of rules, those of the node and those of a tenant: name, range and meaning of each.
#[pyfunction]
pub(crate) fn nvme_rules_keys() -> [Vec<(&'static str, &'static str, &'static str)>; 2] {
    [NodeLimits::KEYS, TenantRules::KEYS].map(|keys| keys.iter().map(|k| (k.name, k.range, k.meaning)).collect())
}

/// Makes a secret of random bytes, as text: with hash 1, 2 or 3 for SHA-256, SHA-384 or SHA-512; 0 for a key that is
/// used as it is.
#[pyfunction]
pub(crate) fn dhchap_secret(py: Python<'_>, hash: u8, key: &[u8]) -> PyResult<String> {
    let transform = DhchapHash::from_id(hash);
    if transform.is_none() && hash != 0 {
        return Err(io_error(py, &format!("hash must be a number from 0 to 3, not {hash}")));
    }
    let made = DhchapSecret::new(transform, key).map_err(|e| io_error(py, &e))?;
    Ok(made.reveal())
}

/// Returns the key of a secret, as its host uses it: transformed with the host's qualified name, if the secret says so.
#[pyfunction]
pub(crate) fn dhchap_key(py: Python<'_>, nqn: &str, text: &str) -> PyResult<Vec<u8>> {
    let secret = DhchapSecret::parse(text).map_err(|e| io_error(py, &format!("the secret of {nqn}: {e}")))?;
    Ok(secret.key(nqn))
}

/// Makes a key of TLS of 32 or 48 random bytes, as text; `transformed`: another key is derived of it for each host.
#[pyfunction]
#[pyo3(signature = (key, *, transformed))]
pub(crate) fn nvme_tls_key(py: Python<'_>, key: &[u8], transformed: bool) -> PyResult<String> {
    TlsKey::new(transformed, key).map(|made| made.reveal()).map_err(|e| io_error(py, &e))
}

/// Returns the identities and the pre-shared keys of TLS that a host with a key offers to a subsystem.
#[pyfunction]
pub(crate) fn nvme_tls_psks(
    py: Python<'_>,
    key: &str,
    hostnqn: &str,
    subnqn: &str,
) -> PyResult<Vec<(String, Vec<u8>)>> {
    let offers = tls_key_of(py, hostnqn, key)?.offers(hostnqn, subnqn);
    Ok(offers.into_iter().map(|offer| (offer.identity, offer.secret)).collect())
}

/// Owner, group and others that may use a unix socket beside this user and root.
type AccessFields = (Option<u32>, Option<u32>, bool);

/// A server of NVMe over TCP and unix sockets, on a store.
#[pyclass(module = "nandarray._nandarray", name = "NvmeServer", frozen)]
pub(crate) struct PyNvmeServer {
    server: Mutex<Server>,
    /// Its subsystem, which a call can use while another one stops the server.
    subsystem: Arc<Subsystem>,
    addresses: Vec<String>,
    nqn: String,
    home: Home,
    /// The modelled clock, if it keeps pace with the wall clock while the server runs; otherwise `None`.
    paced: Mutex<Option<PacedClock>>,
}

/// A modelled clock that keeps pace with the wall clock until this value is dropped.
struct PacedClock(Arc<Clock>, Home);

impl Drop for PacedClock {
    fn drop(&mut self) {
        if self.1.is_here() {
            self.0.end_pace();
        }
    }
}

/// The wall clock, by which a paced store measures time.
#[derive(Debug)]
struct MachineTime(Instant);

impl Default for MachineTime {
    #[expect(clippy::disallowed_methods, reason = "a paced store follows the machine's clock; this is its door")]
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl WallTime for MachineTime {
    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }

    fn arrived(&self) -> Duration {
        nandarray_nvme::tcp::arrived().map_or_else(|| self.elapsed(), |at| at.saturating_duration_since(self.0))
    }
}

#[pymethods]
impl PyNvmeServer {
    #[staticmethod]
    #[pyo3(signature = (store, listen, *, nqn=None, insecure=false, read_only=false, programs=true, hosts=None,
        secrets=None, kill_safe=true, pace=false, nd=true, advertise=None, access=None, rules=None, tls=None,
        fallback=Vec::new()))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only options, one for one with the stub")]
    fn start(
        py: Python<'_>,
        store: &PyStore,
        listen: Vec<String>,
        nqn: Option<String>,
        insecure: bool,
        read_only: bool,
        programs: bool,
        hosts: Option<Vec<String>>,
        secrets: Option<BTreeMap<String, SecretTexts>>,
        kill_safe: bool,
        pace: bool,
        nd: bool,
        advertise: Option<(String, Option<u16>)>,
        access: Option<AccessFields>,
        rules: Option<RulesText>,
        tls: Option<BTreeMap<String, String>>,
        fallback: Vec<usize>,
    ) -> PyResult<Self> {
        let clock = match (pace, store.clock(py)) {
            (false, _) => None,
            (true, Some(clock)) => Some(clock.get().clock.clone()),
            (true, None) => return Err(io_error(py, &"pace needs a modelled clock: open the store with device=")),
        };
        let runtime = fail(py, runtime_of(&store.device))?;
        let places: Vec<Endpoint> = listen.iter().map(|text| endpoint_of(py, text)).collect::<PyResult<_>>()?;
        let credentials = all_credentials(py, secrets)?;
        // Programs run on the described cores; of a device without any, on this host's.
        let executor = store.clock(py).and_then(|clock| Modelled::new(&clock.get().clock).ok());
        let options = SubsystemOptions {
            nqn,
            read_only,
            programs,
            nd,
            advertised: advertise.map(|(address, port)| (address, port.map(|port| port.to_string()))),
            hosts: hosts.unwrap_or_default(),
            credentials,
            tls_keys: all_tls_keys(py, tls)?,
            rules: rules_of(py, rules)?,
            kill_safe,
            executor: executor.map(|executor| Arc::new(executor) as Arc<dyn Executor>),
            ..SubsystemOptions::default()
        };
        let (owner, group, others) = access.unwrap_or_default();
        let access = SocketAccess { owner, group, others };
        let server = ServerOptions { insecure, waits: pace, access, fallback, ..ServerOptions::default() };
        let paced = match clock {
            Some(clock) => {
                clock.pace(Box::new(MachineTime::default())).map_err(|e| to_py(py, &e, None))?;
                Some(PacedClock(clock, Home::here()))
            }
            None => None,
        };
        let started = detached(py, move || Server::start_at(Subsystem::new(&runtime, options), &places, &server));
        let started = started.map_err(|e| to_py(py, &e, None))?;
        let server = started.map_err(|e| io_error(py, &e))?;
        let addresses = server.endpoints().iter().map(Endpoint::to_string).collect();
        let nqn = server.subsystem().nqn().to_owned();
        let subsystem = server.subsystem().clone();
        let (server, paced) = (Mutex::new(server), Mutex::new(paced));
        Ok(Self { server, subsystem, addresses, nqn, home: Home::here(), paced })
    }

    /// Places where it listens: `HOST:PORT`, `unix:PATH`.
    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.addresses.clone()
    }

    #[getter]
    fn nqn(&self) -> String {
        self.nqn.clone()
    }

    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        at_home(py, self.home, "server")?;
        let status = py.detach(|| self.server.lock().status());
        let dict = of_status(py, status)?;
        let pace = self.paced.lock().as_ref().and_then(|paced| paced.0.pace_report());
        if let Some(pace) = pace {
            let of = PyDict::new(py);
            of.set_item("completions", pace.completions)?;
            of.set_item("late", pace.late)?;
            of.set_item("behind_mean_seconds", pace.behind_mean_s)?;
            of.set_item("behind_max_seconds", pace.behind_max_s)?;
            dict.set_item("pace", of)?;
        }
        Ok(dict)
    }

    /// Replaces the hosts that may connect, their secrets and keys, and the rules of tenants; returns the names of
    /// hosts whose connections this has ended.
    #[pyo3(signature = (*, hosts, secrets, rules, tls=None))]
    fn reload(
        &self,
        py: Python<'_>,
        hosts: Vec<String>,
        secrets: BTreeMap<String, SecretTexts>,
        rules: Option<RulesText>,
        tls: Option<BTreeMap<String, String>>,
    ) -> PyResult<Vec<String>> {
        at_home(py, self.home, "server")?;
        let credentials = all_credentials(py, Some(secrets))?;
        let rules = rules_of(py, rules)?;
        let known = KnownHosts { names: hosts, credentials, tls_keys: all_tls_keys(py, tls)? };
        let replace = || self.server.lock().replace_hosts(known, rules);
        detached(py, replace).map_err(|e| to_py(py, &e, None))
    }

    /// Counts of commands by kind and tenant, and failed commands by status ([`of_operations`]).
    fn operations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        at_home(py, self.home, "server")?;
        of_operations(py, &self.subsystem)
    }

    /// Stops a run of programs; whether there is one with this number.
    fn kill(&self, py: Python<'_>, run: u64) -> PyResult<bool> {
        at_home(py, self.home, "server")?;
        Ok(self.subsystem.kill(run))
    }

    /// Returns the events that were not returned before; waits at most `seconds` for one.
    fn events<'py>(&self, py: Python<'py>, seconds: f64) -> PyResult<Vec<(&'static str, f64, Bound<'py, PyDict>)>> {
        at_home(py, self.home, "server")?;
        let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let found = py.detach(|| self.subsystem.events(time));
        found.iter().map(|event| of_event(py, event)).collect()
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        // The server of a process that forked goes on there; its lock may be held by a thread that stayed behind.
        if !self.home.is_here() {
            return Ok(());
        }
        let stop = || {
            self.server.lock().stop();
            drop(self.paced.lock().take());
        };
        detached(py, stop).map_err(|e| to_py(py, &e, None))
    }
}

/// A host that is connected to an NVMe controller over TCP or a unix socket.
#[pyclass(module = "nandarray._nandarray", name = "NvmeHost", frozen)]
pub(crate) struct PyNvmeHost {
    host: Mutex<Initiator>,
    ender: ConnectionEnder,
    address: String,
    home: Home,
}

#[pymethods]
impl PyNvmeHost {
    #[staticmethod]
    #[pyo3(signature = (address, nqn, *, hostnqn=None, secrets=None, header_digest=false, data_digest=false, tls=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword-only options, one for one with the stub")]
    fn connect(
        py: Python<'_>,
        address: &str,
        nqn: &str,
        hostnqn: Option<String>,
        secrets: Option<SecretTexts>,
        header_digest: bool,
        data_digest: bool,
        tls: Option<&str>,
    ) -> PyResult<Self> {
        let at = endpoint_of(py, address)?;
        let mut options = InitiatorOptions::default();
        options.interrupted = handle_signals;
        options.digests = Digests { header: header_digest, data: data_digest };
        options.hostnqn = hostnqn.unwrap_or(options.hostnqn);
        options.credentials = secrets.map(|texts| credentials_of(py, &options.hostnqn, &texts)).transpose()?;
        options.tls_key = tls.map(|text| tls_key_of(py, &options.hostnqn, text)).transpose()?;
        let made = detached(py, || Initiator::connect(at, nqn, &options)).map_err(|e| to_py(py, &e, None))?;
        let lost = |e: &dyn std::fmt::Display| io_error(py, &format!("cannot connect to {address}: {e}"));
        let host = made.map_err(|e| RAISED.take().unwrap_or_else(|| lost(&e)))?;
        let ender = host.ender().map_err(|e| lost(&e))?;
        Ok(Self { host: Mutex::new(host), ender, address: address.to_owned(), home: Home::here() })
    }

    /// Ends the connection: calls in progress, of other threads, fail. A process forked from that which connected has
    /// no part in it.
    fn close(&self) {
        if self.home.is_here() {
            self.ender.end();
        }
    }

    /// User and number of the process that serves, if the connection is over a unix socket.
    fn peer(&self, py: Python<'_>) -> Option<(u32, i32)> {
        if HANDLES_SIGNALS.get() {
            return None;
        }
        py.detach(|| self.host.lock().admin.peer()).map(|peer| (peer.uid, peer.pid))
    }

    /// Sends a command (to the admin queue if `admin`) with `data` for the controller, and waits for its end. Returns
    /// the completion entry, and at most `room` bytes of data from the controller.
    #[pyo3(signature = (entry, data=None, room=0, *, admin=false))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        entry: &[u8],
        data: Option<&[u8]>,
        room: usize,
        admin: bool,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        self.enter(py)?;
        let entry = SubmissionEntry::read_from_bytes(entry)
            .map_err(|_| io_error(py, &format!("an entry must have 64 bytes, not {}", entry.len())))?;
        let source = data.unwrap_or_default();
        let done = detached(py, || self.host.lock().call(admin, entry, source, room));
        let done = done.map_err(|e| to_py(py, &e, None))?;
        let (entry, data) = done.map_err(|e| self.lost(py, &e))?;
        let made = (PyBytes::new(py, entry.as_bytes()), PyBytes::new(py, &data));
        // Not if another thread uses the queue: this one holds the GIL, and must not wait.
        if let Some(mut host) = self.host.try_lock()
            && let Ok(queue) = host.io()
        {
            queue.recycle(data);
        }
        Ok(made)
    }

    /// Sends the last part of a request that runs programs, and waits for its end; meanwhile `take` is called with the
    /// number of an output and its next bytes, which copies of the entry `fetch` bring. Returns the completion entry.
    fn call_fetching<'py>(
        &self,
        py: Python<'py>,
        entry: &[u8],
        data: &[u8],
        fetch: &[u8],
        take: Py<PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.enter(py)?;
        let wrong = |_| io_error(py, &"an entry must have 64 bytes");
        let entry = SubmissionEntry::read_from_bytes(entry).map_err(wrong)?;
        let fetch = SubmissionEntry::read_from_bytes(fetch).map_err(wrong)?;
        let mut raised = None;
        let give = |output: u32, bytes: &[u8]| {
            Python::attach(|py| take.call1(py, (output, PyBytes::new(py, bytes)))).map(drop).map_err(|error| {
                raised = Some(error);
                std::io::Error::other("the output is not taken")
            })
        };
        let done = detached(py, || self.host.lock().call_fetching(entry, data, fetch, give));
        let done = done.map_err(|e| to_py(py, &e, None))?;
        if let Some(error) = raised {
            return Err(error);
        }
        let entry = done.map_err(|e| self.lost(py, &e))?;
        Ok(PyBytes::new(py, entry.as_bytes()))
    }

    /// The bytes that were sent and received, with everything that carries commands and data.
    fn wire_bytes(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        self.enter(py)?;
        Ok(py.detach(|| self.host.lock().wire_bytes()))
    }

    /// Sends commands of the I/O queue, (entry, data, room) as [`Self::call`] has them, `depth` of them in flight at a
    /// time; returns the completion entry and the data of each, in the order of the commands.
    fn call_many<'py>(
        &self,
        py: Python<'py>,
        calls: Vec<(Vec<u8>, Option<Vec<u8>>, usize)>,
        depth: usize,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        self.enter(py)?;
        let wrong = |_| io_error(py, &"an entry must have 64 bytes");
        let entries: Vec<SubmissionEntry> = (calls.iter())
            .map(|(entry, ..)| SubmissionEntry::read_from_bytes(entry).map_err(wrong))
            .collect::<PyResult<_>>()?;
        let many = || -> std::io::Result<Vec<(CompletionEntry, Vec<u8>)>> {
            let mut host = self.host.lock();
            let queue = host.io()?;
            let mut places = BTreeMap::new();
            let mut found: Vec<_> = calls.iter().map(|_| None).collect();
            let mut next = 0;
            while next < calls.len() || queue.in_flight() > 0 {
                while next < calls.len() && queue.in_flight() < depth.max(1) {
                    let (_, data, room) = &calls[next];
                    places.insert(queue.submit(entries[next], data.as_deref().unwrap_or_default(), *room), next);
                    next += 1;
                }
                let (done, data) = queue.completion()?;
                let place = places.remove(&done.cid.get()).expect("a completion of a command that was sent");
                found[place] = Some((done, data));
            }
            Ok(found.into_iter().map(|done| done.expect("every command has ended")).collect())
        };
        let done = detached(py, many).map_err(|e| to_py(py, &e, None))?.map_err(|e| self.lost(py, &e))?;
        Ok(done.into_iter().map(|(done, data)| (PyBytes::new(py, done.as_bytes()), PyBytes::new(py, &data))).collect())
    }

    /// Sends read commands of `bytes` each, `depth` of them in flight at a time; returns the total number of bytes
    /// received.
    fn read_many(&self, py: Python<'_>, entries: Vec<Vec<u8>>, bytes: usize, depth: usize) -> PyResult<u64> {
        self.many(py, &entries, &[], bytes, depth)
    }

    /// Sends write commands, each with the same `data`, `depth` of them in flight at a time.
    fn write_many(&self, py: Python<'_>, entries: Vec<Vec<u8>>, data: &[u8], depth: usize) -> PyResult<()> {
        self.many(py, &entries, data, 0, depth).map(|_| ())
    }
}

impl PyNvmeHost {
    /// Checks that this thread may wait for the connection.
    fn enter(&self, py: Python<'_>) -> PyResult<()> {
        at_home(py, self.home, "connection")?;
        if HANDLES_SIGNALS.get() {
            let what = "a signal's handler must not use a connection while it interrupts a call of one";
            return Err(io_error(py, &what));
        }
        Ok(())
    }

    /// Returns what the handler of a signal has raised, or the error of a connection that ended, or whose controller
    /// broke the protocol.
    fn lost(&self, py: Python<'_>, error: &std::io::Error) -> PyErr {
        if let Some(raised) = RAISED.take() {
            return raised;
        }
        to_py(py, &Error::Closed(format!("the connection to {} is lost: {error}", self.address)), None)
    }

    /// Sends commands, `depth` of them in flight at a time; returns the total number of bytes received.
    fn many(&self, py: Python<'_>, entries: &[Vec<u8>], data: &[u8], room: usize, depth: usize) -> PyResult<u64> {
        self.enter(py)?;
        let entries: Vec<SubmissionEntry> = entries
            .iter()
            .map(|entry| SubmissionEntry::read_from_bytes(entry))
            .collect::<Result<_, _>>()
            .map_err(|_| io_error(py, &"an entry has 64 bytes"))?;
        let many = || -> std::io::Result<u64> {
            let mut host = self.host.lock();
            let queue = host.io()?;
            let mut total = 0;
            let mut next = entries.iter();
            loop {
                while queue.in_flight() < depth {
                    let Some(entry) = next.next() else { break };
                    queue.submit(*entry, data, room);
                }
                if queue.in_flight() == 0 {
                    return Ok(total);
                }
                let (done, found) = queue.completion()?;
                if !done.status().ok() {
                    return Err(std::io::Error::other(done.status().to_string()));
                }
                total += found.len() as u64;
                queue.recycle(found);
            }
        };
        let done = detached(py, many).map_err(|e| to_py(py, &e, None))?;
        done.map_err(|e| RAISED.take().unwrap_or_else(|| io_error(py, &e)))
    }
}
