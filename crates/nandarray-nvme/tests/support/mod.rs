//! A server on a store in memory, our initiator, and a host that composes its own bytes: shared by the tests of the
//! TCP transport.
#![allow(dead_code, reason = "each test is a crate of its own, and takes what it needs")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use nandarray::nvme::{Blocks, Controller, NewNamespace, NvmeCommand, Status, SubmissionEntry};
use nandarray::{Device, MemoryMedia, Mode, Options};
use nandarray_nvme::tcp::{Digests, Initiator, InitiatorOptions, Server, ServerOptions};
use nandarray_nvme::{Subsystem, SubsystemOptions};
use nandarray_nvme_spec::{
    ConnectData, ConnectFields, DataDescriptor, DataLocation, FABRICS_OPCODE, FabricsCommand, FabricsType, Property,
};
use nandarray_runtime::Runtime;
use zerocopy::IntoBytes;

/// A server on a store in memory with one namespace of 4096 blocks.
pub(crate) struct Target {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) server: Server,
}

impl Target {
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address().tcp().unwrap()
    }

    pub(crate) fn connect(&self, digests: Digests) -> Initiator {
        let options = InitiatorOptions { digests, ..InitiatorOptions::default() };
        Initiator::connect(self.address(), self.server.subsystem().nqn(), &options).unwrap()
    }
}

pub(crate) fn raw(target: &Target) -> TcpStream {
    let stream = TcpStream::connect(target.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Connects from an address of this machine.
pub(crate) fn raw_from(target: &Target, from: std::net::Ipv4Addr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let made = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&made, &std::net::SocketAddrV4::new(from, 0)).unwrap();
    connect(&made, &target.address()).unwrap();
    let stream = TcpStream::from(made);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

pub(crate) fn ic_request() -> Vec<u8> {
    let mut pdu = vec![0u8; 128];
    (pdu[2], pdu[4]) = (128, 128);
    pdu
}

pub(crate) fn capsule(entry: &SubmissionEntry, data: &[u8]) -> Vec<u8> {
    let mut pdu = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
    pdu.extend_from_slice(&(72 + data.len() as u32).to_le_bytes());
    pdu.extend_from_slice(entry.as_bytes());
    pdu.extend_from_slice(data);
    pdu
}

pub(crate) fn read_pdu(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut pdu = vec![0u8; 8];
    stream.read_exact(&mut pdu).ok()?;
    let bytes = u32::from_le_bytes(pdu[4..8].try_into().unwrap()) as usize;
    pdu.resize(bytes, 0);
    stream.read_exact(&mut pdu[8..]).ok()?;
    Some(pdu)
}

pub(crate) fn described(mut entry: SubmissionEntry, location: DataLocation, bytes: u32) -> SubmissionEntry {
    DataDescriptor { location, bytes }.encode(&mut entry);
    entry
}

pub(crate) fn connect_capsule(qid: u16, sqsize_z: u16, cntlid: u16, nqn: &str) -> Vec<u8> {
    let fields = ConnectFields { recfmt: 0, qid, sqsize_z, cattr: 0, kato_ms: 5000 };
    let mut data = ConnectData::default();
    data.cntlid.set(cntlid);
    nandarray::nvme::from_text(&mut data.subnqn, nqn);
    nandarray::nvme::from_text(&mut data.hostnqn, "nqn.2014-08.org.nvmexpress:uuid:host");
    let entry = described(FabricsCommand::Connect(fields).encode(0), DataLocation::Capsule { offset: 0 }, 1024);
    capsule(&entry, data.as_bytes())
}

/// Returns the status and dword 0 of a response capsule.
pub(crate) fn response(pdu: &[u8]) -> (Status, u32) {
    assert_eq!(pdu[0], 5, "{pdu:?}");
    let bits = u16::from_le_bytes([pdu[22], pdu[23]]) >> 1;
    (Status::from_bits(bits), u32::from_le_bytes(pdu[8..12].try_into().unwrap()))
}

pub(crate) fn exchange(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    read_pdu(stream).expect("an answer")
}

/// Connects an admin queue; returns the connection and the identifier of its controller.
pub(crate) fn admin(target: &Target) -> (TcpStream, u16) {
    let mut stream = raw(target);
    let answer = exchange(&mut stream, &ic_request());
    assert_eq!((answer[0], answer[2], answer[4], answer[8..12].to_vec()), (1, 128, 128, vec![0; 4]));
    let answer = exchange(&mut stream, &connect_capsule(0, 31, 0xffff, target.server.subsystem().nqn()));
    let (status, dw0) = response(&answer);
    assert_eq!(status, Status::SUCCESS);
    (stream, dw0 as u16)
}

pub(crate) fn no_data(entry: SubmissionEntry) -> Vec<u8> {
    capsule(&described(entry, DataLocation::Transport, 0), &[])
}

pub(crate) fn property(fctype: u8, offset: u32, value: u32) -> Vec<u8> {
    let mut entry = SubmissionEntry::new(FABRICS_OPCODE, u32::from(fctype), 9);
    entry.set_cdw(10, u32::from(offset == Property::CAP && fctype == FabricsType::PropertyGet as u8));
    entry.set_cdw(11, offset);
    entry.set_cdw(12, value);
    no_data(entry)
}

/// Reads up to the C2HTermReq that ends a connection; returns its reason (FES).
pub(crate) fn ended(stream: &mut TcpStream) -> u8 {
    while let Some(pdu) = read_pdu(stream) {
        if pdu[0] == 3 {
            assert!(read_pdu(stream).is_none(), "closed behind a TermReq");
            return pdu[8];
        }
    }
    panic!("closed without a TermReq");
}

/// A raw admin queue whose controller is enabled.
pub(crate) fn enabled(target: &Target) -> (TcpStream, u16) {
    let (mut stream, cntlid) = admin(target);
    response(&exchange(&mut stream, &property(FabricsType::PropertySet as u8, Property::CC, 0x0046_0061)));
    (stream, cntlid)
}

pub(crate) fn target(options: SubsystemOptions) -> Target {
    let media = Arc::new(MemoryMedia::default());
    let device = Device::open(media, "memory", Mode::Truncate, &Options::default()).unwrap();
    let runtime = Arc::new(Runtime::new(Arc::new(device)));
    let new = NewNamespace { nsid: 1, nsze: 4096, lba_bytes: 512, compression: None, key: None };
    Controller::new(runtime.device()).create_namespace(&new).unwrap();
    let subsystem = Subsystem::new(&runtime, options);
    let server = Server::start(subsystem, "127.0.0.1:0".parse().unwrap(), &ServerOptions::default()).unwrap();
    Target { runtime, server }
}

pub(crate) fn io(host: &mut Initiator, command: NvmeCommand, source: &[u8], room: usize) -> (Status, Vec<u8>) {
    let (done, data) = host.call(false, command.encode(0), source, room).unwrap();
    (done.status(), data)
}

pub(crate) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
}

pub(crate) fn io_status(host: &mut Initiator) -> Status {
    io(host, NvmeCommand::Write(Blocks::new(1, 0, 1)), &[1; 512], 0).0
}

/// An I/O queue of a new controller, whose host has been requested to send 64 KiB of a write; the tag of the transfer,
/// and the admin queue.
pub(crate) fn asked_for_data(target: &Target) -> (TcpStream, u16, TcpStream) {
    let (mut stream, cntlid) = admin(target);
    response(&exchange(&mut stream, &property(FabricsType::PropertySet as u8, Property::CC, 0x0046_0061)));
    let mut io = raw(target);
    exchange(&mut io, &ic_request());
    let connect = connect_capsule(1, 127, cntlid, target.server.subsystem().nqn());
    assert_eq!(response(&exchange(&mut io, &connect)).0, Status::SUCCESS);
    let write = NvmeCommand::Write(Blocks::new(1, 0, 128)).encode(21);
    let r2t = exchange(&mut io, &capsule(&described(write, DataLocation::Transport, 65536), &[]));
    assert_eq!((r2t[0], r2t[8], u32::from_le_bytes(r2t[16..20].try_into().unwrap())), (9, 21, 65536));
    (io, u16::from_le_bytes([r2t[10], r2t[11]]), stream)
}
