//! Bytes of a host that keeps no rule: the functions behind the fuzz targets, which tests give seeded inputs.
//!
//! Each makes a store in memory, does what the bytes say, and then asks the subsystem for something simple: it answers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use nandarray::nvme::{Blocks, Controller, NewNamespace, NvmeCommand, SubmissionEntry};
use nandarray::{Device, MemoryMedia, Mode, Options};
use nandarray_nvme::auth::{ControllerExchange, DhchapHash, DhchapSecret, HostCredentials, HostExchange};
use nandarray_nvme::tcp::{Initiator, InitiatorOptions, Server, ServerOptions};
use nandarray_nvme::{
    AdminAnswer, Association, HostIdentity, NSID_MEMORY, NSID_ND, NSID_PROGRAMS, Payload, Subsystem, SubsystemOptions,
    TransferDirection,
};
use nandarray_nvme_spec::{AdminOpcode, ConnectData, FABRICS_OPCODE, FabricsType, Property};
use nandarray_runtime::Runtime;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// The largest data of one command.
const DATA_MAX: usize = 8192;

fn subsystem() -> (Arc<Runtime>, Arc<Subsystem>) {
    let device = Device::open(Arc::new(MemoryMedia::default()), "memory", Mode::Truncate, &Options::default());
    let runtime = Arc::new(Runtime::new(Arc::new(device.expect("a store in memory"))));
    let new = NewNamespace { nsid: 1, nsze: 64, lba_bytes: 512, compression: None, key: None };
    Controller::new(runtime.device()).create_namespace(&new).expect("a namespace");
    let options = SubsystemOptions { memory_bytes: 1 << 20, ..SubsystemOptions::default() };
    let subsystem = Subsystem::new(&runtime, options);
    (runtime, subsystem)
}

fn enabled(subsystem: &Arc<Subsystem>) -> Arc<Association> {
    let subnqn = subsystem.nqn().to_owned();
    let host = HostIdentity { hostid: [1; 16], hostnqn: "nqn.host".to_owned(), subnqn, local: None, peer: None };
    let association = subsystem.associate(host, 0).expect("an association");
    let mut enable = SubmissionEntry::new(FABRICS_OPCODE, FabricsType::PropertySet as u32, 1);
    enable.set_cdw(11, Property::CC);
    enable.set_cdw(12, 0x0046_0061);
    assert!(matches!(association.admin(&enable, Payload::None), AdminAnswer::Done(done) if done.status().ok()));
    association
}

/// Executes bytes as a host's commands to an enabled association: loads, range sets, executions, boxes, blocks. Each
/// takes a byte that says which command it is, 48 bytes of its entry, two bytes of the length of its data, and the
/// data.
pub(crate) fn commands(mut bytes: &[u8]) {
    let (_runtime, subsystem) = subsystem();
    let association = enabled(&subsystem);
    const ADMIN: [u8; 8] = [
        AdminOpcode::LoadProgram as u8,
        AdminOpcode::ActivateProgram as u8,
        AdminOpcode::MemoryRangeSet as u8,
        AdminOpcode::GetLogPage as u8,
        AdminOpcode::Identify as u8,
        AdminOpcode::SetFeatures as u8,
        AdminOpcode::GetFeatures as u8,
        AdminOpcode::AsyncEvent as u8,
    ];
    const SPACES: [u32; 4] = [1, NSID_MEMORY, NSID_PROGRAMS, NSID_ND];
    while let Some((head, rest)) = bytes.split_at_checked(51) {
        let mut raw = [0u8; 64];
        raw[16..].copy_from_slice(&head[1..49]);
        let mut entry = SubmissionEntry::read_from_bytes(&raw).expect("64 bytes");
        let is_admin = head[0] & 1 == 0;
        if is_admin {
            entry.opcode = ADMIN[usize::from(head[0] >> 1 & 7)];
        } else {
            entry.opcode = head[0] >> 3;
            entry.nsid = SPACES[usize::from(head[0] >> 1 & 3)].into();
            // The dwords that a host has beside those.
            entry.cdw2 = [entry.cdw(14).into(), entry.cdw(15).into()];
        }
        let bytes_of = usize::from(u16::from_le_bytes([head[49], head[50]])) % DATA_MAX;
        let (data, after) = rest.split_at(bytes_of.min(rest.len()));
        bytes = after;
        let mut room = vec![0u8; bytes_of];
        let payload = match TransferDirection::of(&entry, is_admin) {
            TransferDirection::None => Payload::None,
            TransferDirection::ToController => Payload::ToController(data),
            TransferDirection::ToHost => Payload::ToHost(&mut room),
        };
        if is_admin {
            // Any answer but a panic is right.
            let _ = association.admin(&entry, payload);
        } else {
            let _ = association.io(1, &entry, payload);
        }
    }
    assert!(!subsystem.inventory().is_empty() || association.is_ready(), "the namespace is there");
}

/// Exchanges bytes as a host's messages of authentication. Each takes a byte that says whether a message is sent or an
/// answer is fetched and, if sent, with which changes to a right message; then its length, and bytes for the changes.
pub(crate) fn authentication(mut bytes: &[u8]) {
    let secret = DhchapSecret::new(Some(DhchapHash::Sha256), &[7; 32]).expect("32 bytes");
    let credentials = HostCredentials { host: secret.clone(), controller: Some(secret) };
    let mut exchange = ControllerExchange::new(credentials.clone(), "nqn.host", "nqn.subsystem");
    // A host that knows no secret: none of its bytes make it authentic.
    let other = DhchapSecret::new(None, &[8; 32]).expect("32 bytes");
    let mut host = HostExchange::new(HostCredentials { host: other, ..credentials }, "nqn.host", "nqn.subsystem", 1);
    let mut fetched = vec![0u8; 128];
    while let Some((head, rest)) = bytes.split_at_checked(2) {
        let (changes, after) = rest.split_at(usize::from(head[1]).min(rest.len()));
        bytes = after;
        let mut message = match head[0] >> 1 & 3 {
            0 => host.negotiate(),
            1 => host.reply(&fetched, |random| random.fill(3)).unwrap_or_default(),
            2 => host.confirm(&fetched).ok().flatten().unwrap_or_default(),
            _ => changes.to_vec(),
        };
        let length = message.len();
        for change in changes.chunks_exact(2).filter(|_| length > 0) {
            message[usize::from(change[0]) % length] ^= change[1];
        }
        let sends = head[0] & 1 == 0;
        let room = if head[0] & 0x80 == 0 { 128 } else { usize::from(head[1]) };
        let fctype = if sends { FabricsType::AuthSend as u8 } else { FabricsType::AuthReceive as u8 };
        let mut entry = SubmissionEntry::new(FABRICS_OPCODE, u32::from(fctype), 0);
        entry.set_cdw(10, 0xe901_0100);
        entry.set_cdw(11, if sends { message.len() } else { room } as u32);
        fetched = if sends { fetched } else { vec![0; room] };
        let payload = if sends { Payload::ToController(&message) } else { Payload::ToHost(&mut fetched) };
        // Any status is right.
        let _ = exchange.command(&entry, payload, |random| random.fill(5));
        assert!(!exchange.is_authentic(), "a host without the secret is authentic");
    }
}

/// Returns a server that all calls of this process share: a hostile connection must hurt no other.
fn server() -> &'static (Arc<Runtime>, Server) {
    static SERVER: OnceLock<(Arc<Runtime>, Server)> = OnceLock::new();
    SERVER.get_or_init(|| {
        let (runtime, subsystem) = subsystem();
        let at = "127.0.0.1:0".parse().expect("an address");
        (runtime, Server::start(subsystem, at, &ServerOptions::default()).expect("a server"))
    })
}

/// Sends bytes after a handshake, all at once, and reads until the server has ended the connection.
fn converse(bytes: &[u8]) {
    let mut stream = TcpStream::connect(server().1.address().tcp().expect("an address")).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let mut handshake = [0u8; 128];
    handshake[2] = 128;
    handshake[4] = 128;
    let mut all = handshake.to_vec();
    all.extend_from_slice(bytes);
    // The server may end the connection while it is sent.
    drop(stream.write_all(&all));
    drop(stream.shutdown(Shutdown::Write));
    let (mut answer, mut total) = ([0u8; 4096], 0);
    loop {
        match stream.read(&mut answer) {
            Ok(0) => break,
            Ok(n) => total += n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the server neither answers nor ends the connection: its thread hangs, or has panicked")
            }
            Err(_) => break,
        }
    }
    assert!(total <= 16 << 20, "{total} bytes of answers to {}", bytes.len());
    serves_on();
}

/// Checks that a host that keeps the rules is served.
fn serves_on() {
    let server = &server().1;
    let nqn = server.subsystem().nqn();
    let mut host = Initiator::connect(server.address(), nqn, &InitiatorOptions::default()).expect("a host connects");
    let read = NvmeCommand::Read(Blocks::new(1, 0, 1));
    let (done, data) = host.call(false, read.encode(0), &[], 512).expect("the connection lasts");
    assert!(done.status().ok() && data.len() == 512, "{:?}", done.status());
}

/// Sends bytes as the PDUs of a host that has made its handshake.
pub(crate) fn stream(bytes: &[u8]) {
    converse(bytes);
}

/// Sends bytes as a Connect command's entry and data, between a right handshake and a Property Get.
pub(crate) fn connect(bytes: &[u8]) {
    let mut entry = SubmissionEntry::new(FABRICS_OPCODE, FabricsType::Connect as u32, 0);
    let mut data = ConnectData::new_zeroed();
    data.cntlid.set(0xffff);
    let nqn = server().1.subsystem().nqn().as_bytes();
    data.subnqn[..nqn.len()].copy_from_slice(nqn);
    data.hostnqn[..8].copy_from_slice(b"nqn.host");
    // Bits of a right command that the input turns over: pairs of a place and a mask.
    let mut raw = entry.as_bytes().to_vec();
    raw[44] = 31;
    raw[1] = 0x40;
    raw[32..36].copy_from_slice(&1024u32.to_le_bytes());
    raw[39] = 1;
    raw.extend_from_slice(data.as_bytes());
    for change in bytes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % raw.len();
        raw[at] ^= change[2];
    }
    entry = SubmissionEntry::read_from_bytes(&raw[..64]).expect("64 bytes");
    let mut pdu = vec![4, 0, 72, 72];
    pdu.extend_from_slice(&(72 + 1024u32).to_le_bytes());
    pdu.extend_from_slice(entry.as_bytes());
    pdu.extend_from_slice(&raw[64..]);
    let mut get = SubmissionEntry::new(FABRICS_OPCODE, FabricsType::PropertyGet as u32, 2);
    get.set_cdw(11, Property::CSTS);
    pdu.extend_from_slice(&[4, 0, 72, 0, 72, 0, 0, 0]);
    pdu.extend_from_slice(get.as_bytes());
    converse(&pdu);
}
