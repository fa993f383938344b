//! Promise: a server with keys of TLS serves a host that knows its key, by TCP with TLS alone, and others get a reason.
//!
//! A server on a store in memory, and our initiator with right and wrong keys, with and without secrets.

#![allow(clippy::disallowed_methods, reason = "timeouts of a transport are measured by the clock")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nandarray::nvme::{Blocks, Controller, NewNamespace, NvmeCommand, Status};
use nandarray::{Device, MemoryMedia, Mode, Options};
use nandarray_nvme::auth::{DhchapHash, DhchapSecret, HostCredentials};
use nandarray_nvme::tcp::{ConnectError, Digests, Initiator, InitiatorOptions, Server, ServerOptions, TlsFailure};
use nandarray_nvme::tls::{TlsKey, TlsKeys};
use nandarray_nvme::{KnownHosts, NodeRules, Subsystem, SubsystemOptions};
use nandarray_nvme_spec::{AdminCommand, DISCOVERY_NQN, LogPage, LogRequest};
use nandarray_runtime::Runtime;

const HOST: &str = "nqn.2026-01.org.example:host";
const OTHER: &str = "nqn.2026-01.org.example:other";

/// A server on a store in memory with one namespace of 4096 blocks.
struct Target {
    _runtime: Arc<Runtime>,
    server: Server,
}

fn target(options: SubsystemOptions) -> Target {
    let media = Arc::new(MemoryMedia::default());
    let device = Device::open(media, "memory", Mode::Truncate, &Options::default()).unwrap();
    let runtime = Arc::new(Runtime::new(Arc::new(device)));
    let new = NewNamespace { nsid: 1, nsze: 4096, lba_bytes: 4096, compression: None, key: None };
    Controller::new(runtime.device()).create_namespace(&new).unwrap();
    let subsystem = Subsystem::new(&runtime, options);
    let server = Server::start(subsystem, "127.0.0.1:0".parse().unwrap(), &ServerOptions::default()).unwrap();
    Target { _runtime: runtime, server }
}

fn key(seed: u8, bytes: usize) -> TlsKey {
    TlsKey::new(true, &vec![seed; bytes]).unwrap()
}

fn keys() -> TlsKeys {
    TlsKeys::from([(HOST.to_owned(), key(1, 32)), (OTHER.to_owned(), key(2, 48))])
}

fn with_keys() -> Target {
    target(SubsystemOptions { tls_keys: keys(), ..SubsystemOptions::default() })
}

impl Target {
    fn connect(&self, hostnqn: &str, tls_key: Option<TlsKey>) -> Result<Initiator, ConnectError> {
        self.connect_as(InitiatorOptions { hostnqn: hostnqn.to_owned(), tls_key, ..InitiatorOptions::default() })
    }

    fn connect_as(&self, options: InitiatorOptions) -> Result<Initiator, ConnectError> {
        Initiator::connect(self.server.address(), self.server.subsystem().nqn(), &options)
    }
}

/// Writes and reads 1 MiB, several commands in flight, so that both directions have more than a socket holds.
fn exercise(host: &mut Initiator) {
    let bytes: Vec<u8> = (0..1 << 20).map(|i: usize| (i * 7 + i / 4096) as u8).collect();
    let entry = |write: bool, at: u64| {
        let blocks = Blocks::new(1, at, 256);
        if write { NvmeCommand::Write(blocks).encode(0) } else { NvmeCommand::Read(blocks).encode(0) }
    };
    let io = host.io().unwrap();
    for at in 0..8 {
        io.submit(entry(true, at * 256), &bytes, 0);
    }
    for _ in 0..8 {
        assert_eq!(io.completion().unwrap().0.status(), Status::SUCCESS);
    }
    for at in 0..8 {
        io.submit(entry(false, at * 256), &[], bytes.len());
    }
    for _ in 0..8 {
        let (done, found) = io.completion().unwrap();
        assert_eq!(done.status(), Status::SUCCESS);
        assert!(found == bytes, "other bytes");
    }
}

#[test]
fn hosts_with_keys_are_served() {
    let target = with_keys();
    for digests in [Digests::default(), Digests { header: true, data: true }] {
        for (host, key) in keys() {
            let options =
                InitiatorOptions { hostnqn: host, tls_key: Some(key), digests, ..InitiatorOptions::default() };
            exercise(&mut target.connect_as(options).unwrap());
        }
    }
    let status = target.server.status();
    assert_eq!((status.refused_logins, status.unfinished_logins), (0, 0));
}

#[test]
fn what_is_wrong_is_told() {
    let (secure, plain) = (with_keys(), target(SubsystemOptions::default()));
    let told = |target: &Target, host: &str, key: Option<TlsKey>| target.connect(host, key).unwrap_err().to_string();
    let no_key = format!(
        "the server ended the TLS handshake: it has no key, or another one, of host {HOST} for {}",
        secure.server.subsystem().nqn()
    );
    assert_eq!(told(&secure, HOST, Some(key(9, 32))), no_key);
    assert_eq!(told(&secure, HOST, Some(key(1, 48))), no_key);
    assert!(told(&secure, "nqn.2026-01.org.example:nobody", Some(key(1, 32))).contains(":nobody for"));
    assert!(told(&secure, HOST, None).contains("refuses a connection without TLS"));
    assert!(told(&plain, HOST, Some(key(1, 32))).contains("answered without TLS"));
    let refused = |target: &Target| target.server.status().refused_logins;
    // A refusal is counted behind the alert that the host gets.
    let begun = Instant::now();
    while refused(&secure) < 4 && begun.elapsed() < Duration::from_secs(60) {
        std::thread::yield_now();
    }
    assert_eq!((refused(&secure), refused(&plain)), (4, 0));
    // A key is one for a subsystem: that of another one is none here.
    let other = InitiatorOptions { hostnqn: HOST.to_owned(), tls_key: Some(key(1, 32)), ..InitiatorOptions::default() };
    let error = Initiator::connect(secure.server.address(), "nqn.2026-01.org.example:other-drive", &other).unwrap_err();
    assert!(matches!(error, ConnectError::Tls(TlsFailure::Key { .. })), "{error}");
    exercise(&mut secure.connect(HOST, Some(key(1, 32))).unwrap());
}

#[test]
fn the_discovery_log_asks_for_tls() {
    for (target, tls_key, expected) in
        [(with_keys(), Some(key(1, 32)), (1, 2)), (target(SubsystemOptions::default()), None, (0, 0))]
    {
        let options = InitiatorOptions { hostnqn: HOST.to_owned(), tls_key, ..InitiatorOptions::default() };
        let mut host = Initiator::connect(target.server.address(), DISCOVERY_NQN, &options).unwrap();
        let request = LogRequest { lid: LogPage::Discovery as u8, dwords_z: 511, ..LogRequest::default() };
        let (done, log) = host.call(true, AdminCommand::GetLogPage(request).encode(0), &[], 2048).unwrap();
        assert_eq!(done.status(), Status::SUCCESS);
        // Byte 3 of the entry has the requirements, byte 768 the kind of security.
        assert_eq!((log[1024 + 3], log[1024 + 768]), expected);
    }
}

#[test]
fn secrets_are_proved_over_tls() {
    let secret = |seed: u8| DhchapSecret::new(Some(DhchapHash::Sha256), &[seed; 32]).unwrap();
    let credentials = HostCredentials { host: secret(1), controller: Some(secret(2)) };
    let target = target(SubsystemOptions {
        tls_keys: keys(),
        credentials: BTreeMap::from([(HOST.to_owned(), credentials.clone())]),
        ..SubsystemOptions::default()
    });
    let options = |credentials: Option<HostCredentials>| InitiatorOptions {
        hostnqn: HOST.to_owned(),
        tls_key: Some(key(1, 32)),
        credentials,
        ..InitiatorOptions::default()
    };
    exercise(&mut target.connect_as(options(Some(credentials.clone()))).unwrap());
    assert!(matches!(target.connect_as(options(None)), Err(ConnectError::NoSecret)));
    let wrong = HostCredentials { host: secret(3), controller: None };
    assert!(matches!(target.connect_as(options(Some(wrong))), Err(ConnectError::Authentication(_))));
    // The other host has a key and no secret.
    exercise(&mut target.connect(OTHER, Some(key(2, 48))).unwrap());
}

#[test]
fn a_host_whose_key_is_replaced_goes() {
    let target = with_keys();
    let mut host = target.connect(HOST, Some(key(1, 32))).unwrap();
    let mut other = target.connect(OTHER, Some(key(2, 48))).unwrap();
    let tls_keys = TlsKeys::from([(HOST.to_owned(), key(5, 32)), (OTHER.to_owned(), key(2, 48))]);
    let ended = target.server.replace_hosts(KnownHosts { tls_keys, ..KnownHosts::default() }, NodeRules::default());
    assert_eq!(ended, [HOST]);
    host.call(true, AdminCommand::KeepAlive.encode(0), &[], 0).unwrap_err();
    exercise(&mut other);
    target.connect(HOST, Some(key(1, 32))).unwrap_err();
    exercise(&mut target.connect(HOST, Some(key(5, 32))).unwrap());
}

#[test]
fn a_handshake_that_does_not_go_on_ends() {
    let target = with_keys();
    let begun = Instant::now();
    // The head of a record of 512 bytes, of which nothing follows; a connection that sends nothing; one that goes on
    // with a byte a second, and is not given more time for it.
    let address = target.server.address().tcp().unwrap();
    let connections = [&[22u8, 3, 1, 2, 0][..], &[], &[22, 3, 1, 2, 0]].map(|sent| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(sent).unwrap();
        stream
    });
    exercise(&mut target.connect(HOST, Some(key(1, 32))).unwrap());
    let mut slow = connections[2].try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        while begun.elapsed() < Duration::from_secs(15) && slow.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    for mut stream in connections {
        let mut found = Vec::new();
        // A socket with bytes that were not read ends with a reset.
        drop(stream.read_to_end(&mut found));
        let time = begun.elapsed();
        assert!(time > Duration::from_secs(9) && time < Duration::from_secs(20), "ended after {time:?}");
    }
    nandarray::internals::joined(writer);
    exercise(&mut target.connect(HOST, Some(key(1, 32))).unwrap());
}

#[test]
fn noise_ends_a_connection_and_no_more() {
    let target = with_keys();
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..64 {
        let mut stream = TcpStream::connect(target.server.address().tcp().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let bytes = random.usize(1..600);
        let mut sent: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
        // Records of a handshake with a hello whose insides are noise, and other beginnings.
        let head = [22, 3, 1, (bytes >> 8) as u8, bytes as u8, 1, 0];
        if round % 4 > 0 {
            sent.splice(..0, head);
        }
        // The server may end the connection at its first byte.
        drop(stream.write_all(&sent).and_then(|()| stream.shutdown(std::net::Shutdown::Write)));
        drop(stream.read_to_end(&mut Vec::new()));
    }
    exercise(&mut target.connect(HOST, Some(key(1, 32))).unwrap());
}
