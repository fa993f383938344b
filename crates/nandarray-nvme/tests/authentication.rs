//! Promise: a host with a secret is served after it has proved that it knows the secret, and gets nothing before.
//!
//! A server on a store in memory, and our initiator with right and wrong secrets.

#![allow(clippy::disallowed_methods, reason = "timeouts of a transport are measured by the clock")]

use std::collections::BTreeMap;
use std::sync::Arc;

use nandarray::nvme::{Blocks, Controller, NewNamespace, NvmeCommand, Status, SubmissionEntry};
use nandarray::{Device, MemoryMedia, Mode, Options};
use nandarray_nvme::auth::{AuthFailure, DhchapHash, DhchapSecret, HostCredentials, HostExchange};
use nandarray_nvme::tcp::{ConnectError, HostQueue, Initiator, InitiatorOptions, Server, ServerOptions};
use nandarray_nvme::{Subsystem, SubsystemOptions};
use nandarray_nvme_spec::{
    AdminOpcode, CNTLID_ANY, CONNECT_AUTHENTICATE, ConnectFields, DISCOVERY_NQN, FABRICS_OPCODE, FabricsType, Property,
};
use nandarray_runtime::Runtime;

const HOST: &str = "nqn.2026-01.org.example:host";

/// A server on a store in memory with one namespace of 64 blocks.
struct Target {
    _runtime: Arc<Runtime>,
    server: Server,
}

fn subsystem(options: SubsystemOptions) -> (Arc<Runtime>, Arc<Subsystem>) {
    let media = Arc::new(MemoryMedia::default());
    let device = Device::open(media, "memory", Mode::Truncate, &Options::default()).unwrap();
    let runtime = Arc::new(Runtime::new(Arc::new(device)));
    let new = NewNamespace { nsid: 1, nsze: 64, lba_bytes: 512, compression: None, key: None };
    Controller::new(runtime.device()).create_namespace(&new).unwrap();
    let subsystem = Subsystem::new(&runtime, options);
    (runtime, subsystem)
}

fn target(credentials: HostCredentials) -> Target {
    let credentials = BTreeMap::from([(HOST.to_owned(), credentials)]);
    let (runtime, subsystem) = subsystem(SubsystemOptions { credentials, ..SubsystemOptions::default() });
    let server = Server::start(subsystem, "127.0.0.1:0".parse().unwrap(), &ServerOptions::default()).unwrap();
    Target { _runtime: runtime, server }
}

fn secret(hash: Option<DhchapHash>, seed: u8, bytes: usize) -> DhchapSecret {
    DhchapSecret::new(hash, &vec![seed; bytes]).unwrap()
}

fn known() -> HostCredentials {
    HostCredentials { host: secret(Some(DhchapHash::Sha512), 1, 64), controller: None }
}

impl Target {
    fn connect(&self, hostnqn: &str, credentials: Option<HostCredentials>) -> Result<Initiator, ConnectError> {
        let options = InitiatorOptions { hostnqn: hostnqn.to_owned(), credentials, ..InitiatorOptions::default() };
        Initiator::connect(self.server.address(), self.server.subsystem().nqn(), &options)
    }

    /// Connects an admin queue, and does not authenticate it.
    fn unauthenticated(&self) -> (HostQueue, u32) {
        self.unproven(0, CNTLID_ANY).unwrap()
    }

    /// Connects a queue of this number, and does not authenticate it; returns it with dword 0 of the completion.
    fn unproven(&self, qid: u16, cntlid: u16) -> Result<(HostQueue, u32), ConnectError> {
        let options = InitiatorOptions { hostnqn: HOST.to_owned(), ..InitiatorOptions::default() };
        let fields = ConnectFields { recfmt: 0, qid, sqsize_z: 31, cattr: 0, kato_ms: 0 };
        let nqn = self.server.subsystem().nqn();
        let (queue, done) = HostQueue::connect_only(self.server.address(), fields, nqn, cntlid, &options)?;
        Ok((queue, done.dw0.get()))
    }

    fn prove(&self, queue: &mut HostQueue) -> Result<(), ConnectError> {
        queue.authenticate(HostExchange::new(known(), HOST, self.server.subsystem().nqn(), 1))
    }
}

#[test]
fn blocks_are_read_after_authentication() {
    for (hash, bytes) in [(None, 32), (Some(DhchapHash::Sha256), 32), (Some(DhchapHash::Sha384), 48)] {
        for controller in [None, Some(secret(hash, 9, bytes))] {
            let credentials = HostCredentials { host: secret(hash, 1, bytes), controller };
            let target = target(credentials.clone());
            let mut host = target.connect(HOST, Some(credentials)).unwrap();
            let read = NvmeCommand::Read(Blocks::new(1, 0, 8));
            let (done, data) = host.call(false, read.encode(0), &[], 4096).unwrap();
            assert!(done.status().ok() && data.len() == 4096, "{hash:?}: {:?}", done.status());
            assert_eq!(target.server.status().associations[0].1, HOST);
        }
    }
}

#[test]
fn hosts_that_are_refused() {
    let target = target(known());
    let refused = |credentials| target.connect(HOST, credentials).unwrap_err();
    assert!(matches!(refused(None), ConnectError::NoSecret));
    let wrong = HostCredentials { host: secret(None, 1, 64), controller: None };
    assert!(matches!(refused(Some(wrong)), ConnectError::Authentication(AuthFailure::WrongResponse)));
    // The controller has no secret to prove its own identity with.
    let mutual = HostCredentials { controller: Some(secret(None, 2, 32)), ..known() };
    assert!(matches!(refused(Some(mutual)), ConnectError::Authentication(AuthFailure::WrongResponse)));
    let other = target.connect("nqn.2026-01.org.example:other", Some(known())).unwrap_err();
    assert!(matches!(other, ConnectError::Refused(Status::CONNECT_HOST)));
    // The one that knows the secret still gets in.
    drop(target.connect(HOST, Some(known())).unwrap());
}

#[test]
fn a_controller_that_does_not_know_its_secret() {
    let own = |seed| HostCredentials { controller: Some(secret(None, seed, 48)), ..known() };
    let target = target(own(3));
    let error = target.connect(HOST, Some(own(4))).unwrap_err();
    assert!(matches!(error, ConnectError::Authentication(AuthFailure::WrongResponse)), "{error}");
    drop(target.connect(HOST, Some(own(3))).unwrap());
    // A controller that asks for no authentication cannot prove anything.
    let (_runtime, open) = subsystem(SubsystemOptions::default());
    let server = Server::start(open, "127.0.0.1:0".parse().unwrap(), &ServerOptions::default()).unwrap();
    let options = InitiatorOptions { credentials: Some(own(3)), ..InitiatorOptions::default() };
    let error = Initiator::connect(server.address(), server.subsystem().nqn(), &options).unwrap_err();
    assert!(matches!(error, ConnectError::NoAuthentication), "{error}");
}

#[test]
fn nothing_before_authentication() {
    let target = target(known());
    let (mut queue, dw0) = target.unauthenticated();
    assert_eq!(dw0 & CONNECT_AUTHENTICATE, CONNECT_AUTHENTICATE);
    let mut get = SubmissionEntry::new(FABRICS_OPCODE, FabricsType::PropertyGet as u32, 0);
    get.set_cdw(11, Property::CSTS);
    let identify = NvmeCommand::Read(Blocks::new(1, 0, 1)).encode(0);
    let large = NvmeCommand::Write(Blocks::new(1, 0, 64)).encode(0);
    for (entry, source, room) in [(get, vec![], 0), (identify, vec![], 4096), (large, vec![0; 32768], 0)] {
        let (done, _) = queue.call(entry, &source, room).unwrap();
        assert_eq!(done.status(), Status::AUTHENTICATION_REQUIRED);
    }
    // Afterwards the same queue is served, and may authenticate itself again.
    for t_id in 0..3 {
        let nqn = target.server.subsystem().nqn();
        queue.authenticate(HostExchange::new(known(), HOST, nqn, t_id)).unwrap();
        assert!(queue.call(get, &[], 0).unwrap().0.status().ok());
    }
    let wrong = HostCredentials { host: secret(None, 7, 32), controller: None };
    let nqn = target.server.subsystem().nqn();
    assert!(queue.authenticate(HostExchange::new(wrong, HOST, nqn, 9)).is_err());
    let after = queue.call(get, &[], 0);
    assert!(after.is_err(), "the connection has ended: {after:?}");
}

#[test]
fn a_host_that_has_proved_nothing_takes_no_queue() {
    let target = target(known());
    let mut host = target.connect(HOST, Some(known())).unwrap();
    let mut queues = SubmissionEntry { opcode: AdminOpcode::SetFeatures as u8, ..SubmissionEntry::default() };
    queues.set_cdw(10, 0x07);
    queues.set_cdw(11, 7 << 16 | 7);
    assert!(host.call(true, queues, &[], 0).unwrap().0.status().ok());
    let status = || target.server.status();
    let queues = || status().associations[0].2;
    assert_eq!((queues(), status().half_open), (1, 0));
    let read = NvmeCommand::Read(Blocks::new(1, 0, 1)).encode(0);
    let reads = |queue: &mut HostQueue| queue.call(read, &[], 512).map(|(done, _)| done.status());
    let (mut thief, _) = target.unproven(2, host.cntlid()).unwrap();
    assert_eq!(reads(&mut thief).unwrap(), Status::AUTHENTICATION_REQUIRED);
    assert_eq!((queues(), status().half_open), (1, 1), "queue 2 is still free");
    let (mut queue, _) = target.unproven(2, host.cntlid()).unwrap();
    target.prove(&mut queue).unwrap();
    assert_eq!((queues(), status().half_open), (2, 1));
    // The number is taken, for hosts that ask from now on as well as for the one that asked before.
    assert!(matches!(target.unproven(2, host.cntlid()), Err(ConnectError::Refused(Status::SEQUENCE_ERROR))));
    assert!(target.prove(&mut thief).is_err());
    drop(thief);
    assert!(reads(&mut queue).unwrap().ok(), "the end of the other connection is not the end of this queue");
    // A queue that is about to prove its identity does not outlive its association.
    let (mut late, _) = target.unproven(3, host.cntlid()).unwrap();
    drop(host);
    while !status().associations.is_empty() {
        std::thread::yield_now();
    }
    assert!(target.prove(&mut late).is_err());
}

#[test]
fn logins_that_fail_are_counted() {
    let target = target(known());
    let status = || target.server.status();
    let counts = || (status().refused_logins, status().unfinished_logins);
    let (unproven, _) = target.unauthenticated();
    assert!(status().associations.is_empty(), "a host that has proved nothing is not listed");
    assert_eq!(status().half_open, 1);
    drop(unproven);
    while counts() != (0, 1) {
        std::thread::yield_now();
    }
    let wrong = HostCredentials { host: secret(None, 1, 64), controller: None };
    assert!(target.connect(HOST, Some(wrong)).is_err());
    assert_eq!(counts(), (1, 1));
    assert!(target.connect("nqn.2026-01.org.example:other", Some(known())).is_err());
    assert_eq!(counts(), (2, 1));
    drop(target.connect(HOST, Some(known())).unwrap());
    assert_eq!(counts(), (2, 1));
}

#[test]
fn discovery_asks_for_no_secret() {
    let target = target(known());
    let options = InitiatorOptions { hostnqn: HOST.to_owned(), ..InitiatorOptions::default() };
    assert!(Initiator::connect(target.server.address(), DISCOVERY_NQN, &options).is_ok());
    // Nor of a host that it does not know, for which the log is empty.
    let mut stranger =
        Initiator::connect(target.server.address(), DISCOVERY_NQN, &InitiatorOptions::default()).unwrap();
    let mut log = SubmissionEntry { opcode: AdminOpcode::GetLogPage as u8, ..SubmissionEntry::default() };
    log.set_cdw(10, 0x70 | 511 << 16);
    let (done, page) = stranger.call(true, log, &[], 2048).unwrap();
    assert_eq!((done.status(), page[8]), (Status::SUCCESS, 0));
}

#[test]
fn an_address_that_others_reach_needs_secrets() {
    let start = |hosts: &[&str], with_secret: bool| {
        let credentials = with_secret.then(|| (HOST.to_owned(), known())).into_iter().collect();
        let hosts = hosts.iter().map(ToString::to_string).collect();
        let (runtime, made) = subsystem(SubsystemOptions { hosts, credentials, ..SubsystemOptions::default() });
        let started = Server::start(made, "0.0.0.0:0".parse().unwrap(), &ServerOptions::default());
        drop(runtime);
        started.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(start(&[], true), Ok(()));
    assert_eq!(start(&[HOST], true), Ok(()));
    for refused in [start(&[], false), start(&[HOST], false), start(&["nqn.2026-01.org.example:named"], true)] {
        assert!(refused.unwrap_err().contains("insecure"));
    }
}
