//! Promise: a host reaches a store over TCP, and a host that breaks a rule hurts no other.
//!
//! A server on a store in memory, our initiator, and sockets that send bytes composed here: the conversation of a stock
//! kernel step by step, and one broken rule at a time with the end that it has to have.

#![allow(clippy::disallowed_methods, reason = "timeouts of a transport are measured by the clock")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use nandarray::nvme::{
    Blocks, BoxPage, Controller, DsmRange, NewNamespace, NvmeCommand, OpenAction, SpacePage, Status, SubmissionEntry,
};
use nandarray::{Device, MemoryMedia, Mode, Options};
use nandarray_nvme::tcp::{ConnectError, Digests, Endpoint, Initiator, InitiatorOptions, Server, ServerOptions};
use nandarray_nvme::{NSID_MEMORY, NSID_ND, NSID_PROGRAMS, Subsystem, SubsystemOptions};
use nandarray_nvme_spec::{AdminOpcode, DISCOVERY_NQN, DataLocation, FABRICS_OPCODE, FabricsType, Property};
use nandarray_runtime::Runtime;
use support::{
    admin, asked_for_data, capsule, connect_capsule, described, enabled, ended, exchange, ic_request, io, io_status,
    no_data, pattern, property, raw, raw_from, read_pdu, response, target,
};
use zerocopy::IntoBytes;

#[test]
fn blocks_of_every_size_come_back() {
    let target = target(SubsystemOptions::default());
    for digests in [(false, false), (true, false), (false, true), (true, true)] {
        let mut host = target.connect(Digests { header: digests.0, data: digests.1 });
        // Within a capsule up to 16 KiB, by R2T above, in several pieces above 256 KiB; both sides of each limit.
        for blocks in [1u32, 31, 32, 33, 512, 513, 4096] {
            let data = pattern(blocks as usize * 512, blocks as u8);
            let write = NvmeCommand::Write(Blocks::new(1, 0, blocks));
            assert_eq!(io(&mut host, write, &data, 0).0, Status::SUCCESS, "{blocks} blocks, {digests:?}");
            let read = NvmeCommand::Read(Blocks::new(1, 0, blocks));
            let (status, found) = io(&mut host, read, &[], data.len());
            assert_eq!(status, Status::SUCCESS);
            assert!(found == data, "{blocks} blocks differ");
        }
        let read = NvmeCommand::Read(Blocks::new(1, 4096, 1));
        assert_eq!(io(&mut host, read, &[], 512).0, Status::LBA_OUT_OF_RANGE);
        assert_eq!(io(&mut host, NvmeCommand::Flush { nsid: 1 }, &[], 0).0, Status::SUCCESS);
    }
    assert_eq!(target.server.status().numbers[0].1, 4 * 7);
}

/// Reads of one batch whose data leave by one system call, from several places, between others that are copied.
#[test]
fn reads_of_one_batch_keep_their_data() {
    let target = target(SubsystemOptions::default());
    let mut host = target.connect(Digests::default());
    for (first, seed) in [(0, 1), (1024, 2), (2048, 3), (3072, 4)] {
        let write = NvmeCommand::Write(Blocks::new(1, first, 1024));
        assert_eq!(io(&mut host, write, &pattern(512 << 10, seed), 0).0, Status::SUCCESS);
    }
    let whole = io(&mut host, NvmeCommand::Read(Blocks::new(1, 0, 4096)), &[], 2 << 20).1;
    let queue = host.io().unwrap();
    let mut wanted = std::collections::BTreeMap::new();
    for i in 0..24u64 {
        // 512 bytes, 64 KiB, 160 KiB, 72 KiB: the first is copied, the others are sent from where they were read.
        let (first, blocks) = (i * 150, [1u32, 128, 320, 144][i as usize % 4]);
        let range = first as usize * 512..(first as usize + blocks as usize) * 512;
        let read = NvmeCommand::Read(Blocks::new(1, first, blocks)).encode(0);
        wanted.insert(queue.submit(read, &[], range.len()), range);
    }
    queue.flush().unwrap();
    while !wanted.is_empty() {
        let (done, data) = queue.completion().unwrap();
        let range = wanted.remove(&done.cid.get()).expect("a command of the batch, once");
        assert_eq!(done.status(), Status::SUCCESS);
        assert!(data == whole[range.clone()], "{range:?} differs");
    }
}

#[test]
fn a_discard_as_a_kernel_sends_it() {
    let target = target(SubsystemOptions::default());
    let mut host = target.connect(Digests::default());
    io(&mut host, NvmeCommand::Write(Blocks::new(1, 0, 8)), &pattern(4096, 1), 0);
    let range = DsmRange { nlb: 8.into(), ..DsmRange::default() };
    let mut page = vec![0u8; 4096];
    page[..16].copy_from_slice(range.as_bytes());
    let discard = NvmeCommand::DatasetManagement { nsid: 1, nr_z: 0, ad: true };
    assert_eq!(io(&mut host, discard, &page, 0).0, Status::SUCCESS);
    let (_, found) = io(&mut host, NvmeCommand::Read(Blocks::new(1, 0, 8)), &[], 4096);
    assert!(found.iter().all(|&b| b == 0));
    assert_eq!(io(&mut host, discard, &[], 0).0, Status::DATA_LENGTH_INVALID, "ranges without data");
}

#[test]
fn boxes_of_many_dimensions() {
    let target = target(SubsystemOptions::default());
    let mut host = target.connect(Digests::default());
    let mut page = SpacePage::new("cube", &[8, 8, 8, 8]);
    page.item_bytes.set(4);
    let mut open = NvmeCommand::OpenSpace { action: OpenAction::Create, space: 0 }.encode(0);
    (open.opcode, open.nsid) = (0x05, NSID_ND.into());
    let (done, _) = host.call(false, open, page.as_bytes(), 0).unwrap();
    assert_eq!(done.status(), Status::SUCCESS);
    let view = done.dw0.get();
    // A write carries the page in front of its data.
    let bounds = BoxPage::new(&[1, 2, 3, 4], &[2, 2, 2, 2]);
    let data = pattern(64, 9);
    let mut write = SubmissionEntry { opcode: 0x01, nsid: NSID_ND.into(), ..SubmissionEntry::default() };
    write.set_cdw(10, view);
    write.set_cdw(11, 4 | 1 << 8 | 1 << 9);
    let (done, _) = host.call(false, write, &[bounds.as_bytes(), &data].concat(), 0).unwrap();
    assert_eq!(done.status(), Status::SUCCESS);
    // A read stores its box first.
    let mut store = SubmissionEntry { opcode: 0x0d, ..write };
    store.set_cdw(11, 4 | 1 << 8);
    let (done, _) = host.call(false, store, bounds.as_bytes(), 0).unwrap();
    assert_eq!(done.status(), Status::SUCCESS);
    let mut read = SubmissionEntry { opcode: 0x02, nsid: NSID_ND.into(), ..SubmissionEntry::default() };
    read.set_cdw(11, 1 << 10);
    read.set_cdw(12, done.dw0.get());
    let (done, found) = host.call(false, read, &[], 64).unwrap();
    assert_eq!((done.status(), found), (Status::SUCCESS, data));
    read.set_cdw(12, 77);
    let (done, _) = host.call(false, read, &[], 64).unwrap();
    assert_eq!(done.status(), Status::INVALID_BOX, "a stale handle");
}

#[test]
fn a_program_runs_on_local_memory() {
    let target = target(SubsystemOptions::default());
    let mut host = target.connect(Digests::default());
    let mut write = SubmissionEntry { opcode: 0x05, nsid: NSID_MEMORY.into(), ..SubmissionEntry::default() };
    write.set_cdw(12, 64);
    let (done, _) = host.call(false, write, &pattern(64, 3), 0).unwrap();
    assert_eq!(done.status(), Status::SUCCESS);
    let read = SubmissionEntry { opcode: 0x02, ..write };
    assert_eq!(host.call(false, read, &[], 64).unwrap().1, pattern(64, 3));
    let admin = |host: &mut Initiator, opcode, words: &[(usize, u32)], data: &[u8]| {
        let mut entry = SubmissionEntry { opcode, ..SubmissionEntry::default() };
        words.iter().for_each(|&(n, word)| entry.set_cdw(n, word));
        host.call(true, entry, data, 0).unwrap().0.status()
    };
    let load = AdminOpcode::LoadProgram as u8;
    let kind = 0xc0 << 16;
    assert_eq!(admin(&mut host, load, &[(10, kind), (11, 8), (14, 8)], &[0; 8]), Status::PROGRAM_INDEX);
    assert_eq!(admin(&mut host, load, &[(10, 1), (11, 8), (14, 8)], &[0; 8]), Status::PROGRAM_TYPE);
    assert_eq!(admin(&mut host, load, &[(10, kind | 1), (11, u32::MAX), (14, 8)], &[0; 8]), Status::PROGRAM_TOO_BIG);
    assert_eq!(
        admin(&mut host, load, &[(10, kind | 1), (11, 8), (14, 8), (15, u32::MAX)], &[0; 8]),
        Status::INVALID_FIELD,
        "a part beyond the end"
    );
    assert_eq!(admin(&mut host, load, &[(10, kind | 1), (11, 8), (14, 8)], &[0; 8]), Status::PROGRAM_DATA);
    assert_eq!(admin(&mut host, AdminOpcode::ActivateProgram as u8, &[(10, 1 << 16 | 1)], &[]), Status::NO_PROGRAM);
    let execute = SubmissionEntry { opcode: 0x01, nsid: NSID_PROGRAMS.into(), ..SubmissionEntry::default() };
    let (done, _) = host.call(false, execute, &[], 0).unwrap();
    assert_eq!(done.status(), Status::PROGRAM_INDEX);
}

#[test]
fn discovery_names_the_subsystem_and_the_address() {
    let target = target(SubsystemOptions::default());
    let mut host = Initiator::connect(target.address(), DISCOVERY_NQN, &InitiatorOptions::default()).unwrap();
    let mut log = SubmissionEntry { opcode: AdminOpcode::GetLogPage as u8, ..SubmissionEntry::default() };
    log.set_cdw(10, 0x70 | 511 << 16);
    let (done, page) = host.call(true, log, &[], 2048).unwrap();
    assert_eq!(done.status(), Status::SUCCESS);
    assert_eq!((page[8], page[1024], page[1026]), (1, 3, 2));
    assert!(page[1024 + 256..].starts_with(target.server.subsystem().nqn().as_bytes()));
    assert!(page[1024 + 512..].starts_with(b"127.0.0.1 "));
    assert!(page[1024 + 32..].starts_with(target.address().port().to_string().as_bytes()));
}

#[test]
fn a_unix_socket_carries_the_same_commands_and_tells_its_peers() {
    let dir = tempfile::tempdir().unwrap();
    let place = Endpoint::Unix(dir.path().join("x.sock"));
    let runtime = target(SubsystemOptions::default()).runtime;
    let subsystem = Subsystem::new(&runtime, SubsystemOptions::default());
    let both = [place.clone(), "127.0.0.1:0".parse::<SocketAddr>().unwrap().into()];
    let mut server = Server::start_at(subsystem, &both, &ServerOptions::default()).unwrap();
    let refused = |places: &[Endpoint]| {
        let subsystem = Subsystem::new(&runtime, SubsystemOptions::default());
        Server::start_at(subsystem, places, &ServerOptions::default()).unwrap_err().to_string()
    };
    assert!(refused(&[]).contains("to listen at"));
    assert!(refused(&both[..1]).contains("another server listens on"));
    // Also beside a unix socket, an address that is not loopback needs secrets.
    let outside = "0.0.0.0:0".parse::<SocketAddr>().unwrap();
    assert!(refused(&[Endpoint::Unix(dir.path().join("y.sock")), outside.into()]).contains("is no loopback address"));
    assert!(!dir.path().join("y.sock").exists());

    // One that says nothing, and takes no place of others.
    let silent = UnixStream::connect(dir.path().join("x.sock")).unwrap();
    let options = InitiatorOptions::default();
    // By its name, and without, which only a unix socket allows.
    let hosts = ["", server.subsystem().nqn()].map(|nqn| Initiator::connect(&place, nqn, &options).unwrap());
    let by_address = &server.endpoints()[1];
    assert!(matches!(
        Initiator::connect(by_address, "", &options),
        Err(ConnectError::Refused(Status::CONNECT_PARAMETER))
    ));
    assert!(Initiator::connect(&place, "nqn.other", &options).is_err());
    let mut over_tcp = Initiator::connect(by_address, server.subsystem().nqn(), &options).unwrap();
    for (seed, mut host) in hosts.into_iter().enumerate() {
        // In one capsule, and in transfers of many packets.
        for blocks in [2, 4096] {
            let data = pattern(blocks as usize * 512, seed as u8);
            let write = NvmeCommand::Write(Blocks::new(1, 0, blocks));
            assert_eq!(io(&mut host, write, &data, 0).0, Status::SUCCESS);
            let read = NvmeCommand::Read(Blocks::new(1, 0, blocks));
            assert!(io(&mut over_tcp, read, &[], data.len()) == (Status::SUCCESS, data.clone()));
            assert!(io(&mut host, read, &[], data.len()) == (Status::SUCCESS, data));
        }
        let status = server.status();
        let [(_, peer), ..] = status.peers[..] else { panic!("{status:?}") };
        assert_eq!(peer.pid, std::process::id() as i32);
        assert_eq!(Some(peer), host.admin.peer());
        assert_eq!((status.half_open, status.endpoints), (1, server.endpoints().to_vec()));
    }
    // There is no type of transport by which the discovery log could tell of a unix socket.
    let mut log = SubmissionEntry { opcode: AdminOpcode::GetLogPage as u8, ..SubmissionEntry::default() };
    log.set_cdw(10, 0x70 | 255 << 16);
    for (place, entries) in [(&place, 0), (by_address, 1)] {
        let mut discovery = Initiator::connect(place, DISCOVERY_NQN, &options).unwrap();
        assert_eq!(discovery.call(true, log, &[], 1024).unwrap().1[8], entries);
    }
    server.stop();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    drop(silent);
}

#[test]
fn a_new_namespace_is_an_event() {
    let target = target(SubsystemOptions::default());
    let mut host = target.connect(Digests::default());
    let mut set = SubmissionEntry { opcode: AdminOpcode::SetFeatures as u8, ..SubmissionEntry::default() };
    set.set_cdw(10, 0x0b);
    set.set_cdw(11, 1 << 8);
    host.call(true, set, &[], 0).unwrap();
    let cid = host.admin.submit(
        SubmissionEntry { opcode: AdminOpcode::AsyncEvent as u8, ..SubmissionEntry::default() },
        &[],
        0,
    );
    host.admin.flush().unwrap();
    let new = NewNamespace { nsid: 2, nsze: 64, lba_bytes: 4096, compression: None, key: None };
    Controller::new(target.runtime.device()).create_namespace(&new).unwrap();
    let (event, _) = host.admin.completion().unwrap();
    assert_eq!((event.cid.get(), event.dw0.get()), (cid, 0x0004_0002));
    let mut log = SubmissionEntry { opcode: AdminOpcode::GetLogPage as u8, ..SubmissionEntry::default() };
    log.set_cdw(10, 0x04 | 1023 << 16);
    let (_, page) = host.call(true, log, &[], 4096).unwrap();
    assert_eq!(page[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_silent_host_is_given_up() {
    let target = target(SubsystemOptions::default());
    let options = InitiatorOptions { kato_ms: 500, ..InitiatorOptions::default() };
    let mut host = Initiator::connect(target.address(), target.server.subsystem().nqn(), &options).unwrap();
    // The timeout is rounded up to a second, the unit that identify tells.
    let started = std::time::Instant::now();
    assert!(host.admin.completion().is_err());
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
    let flush = host.io().unwrap().call(NvmeCommand::Flush { nsid: 1 }.encode(0), &[], 0);
    assert!(flush.is_err() || flush.is_ok_and(|(done, _)| done.status() == Status::ABORTED));
    assert!(target.server.status().associations.is_empty());
}

/// Takes the steps of Linux 6.1 and 7.x in their order, composed from what these kernels were seen to send, and checks
/// every value that they insist on.
#[test]
fn a_stock_kernel_connects() {
    let target = target(SubsystemOptions::default());
    let (mut stream, cntlid) = admin(&target);
    let get = |stream: &mut TcpStream, offset| {
        let pdu = exchange(stream, &property(FabricsType::PropertyGet as u8, offset, 0));
        (response(&pdu), u32::from_le_bytes(pdu[12..16].try_into().unwrap()))
    };
    let ((status, low), high) = get(&mut stream, Property::CAP);
    assert_eq!((status, low & 0xffff, low >> 16 & 1, high >> 5 & 1, high >> 11 & 1), (Status::SUCCESS, 127, 1, 1, 1));
    response(&exchange(&mut stream, &property(FabricsType::PropertySet as u8, Property::CC, 0x0046_0060)));
    response(&exchange(&mut stream, &property(FabricsType::PropertySet as u8, Property::CC, 0x0046_0061)));
    assert_eq!(get(&mut stream, Property::CSTS).0, (Status::SUCCESS, 1));
    assert_eq!(get(&mut stream, Property::VS).0, (Status::SUCCESS, 0x0002_0000));
    let identify = |stream: &mut TcpStream, cns: u32, nsid: u32, csi: u32| {
        let mut entry = SubmissionEntry { opcode: 6, nsid: nsid.into(), cid: 3.into(), ..SubmissionEntry::default() };
        entry.set_cdw(10, cns);
        entry.set_cdw(11, csi << 24);
        let pdu = exchange(stream, &capsule(&described(entry, DataLocation::Transport, 4096), &[]));
        assert_eq!((pdu[0], pdu[1], pdu[3], pdu.len()), (7, 0b1100, 24, 24 + 4096), "CNS {cns:#x}");
        pdu[24..].to_vec()
    };
    let c = identify(&mut stream, 1, 0, 0);
    let word = |at: usize| u16::from_le_bytes([c[at], c[at + 1]]);
    assert_eq!((word(78), c[76] & 2, c[77], c[111]), (cntlid, 2, 9, 1));
    assert_eq!((c[512], c[513], word(514), word(320)), (0x66, 0x44, 128, 10));
    assert_eq!((word(516), word(1792), word(1796), word(1800), c[1803]), (1024, 1028, 1, 0, 1));
    assert_eq!(c[536..540], [1, 0, 0x10, 0]);
    let mut queues = SubmissionEntry { opcode: 9, cid: 4.into(), ..SubmissionEntry::default() };
    queues.set_cdw(10, 7);
    queues.set_cdw(11, 1 | 1 << 16);
    assert_eq!(response(&exchange(&mut stream, &no_data(queues))), (Status::SUCCESS, 1 | 1 << 16));
    let mut io: Vec<TcpStream> = (0..2).map(|_| raw(&target)).collect();
    io.iter_mut().for_each(|queue| assert_eq!(exchange(queue, &ic_request())[0], 1));
    for (qid, queue) in (1..).zip(&mut io) {
        let connect = connect_capsule(qid, 127, cntlid, target.server.subsystem().nqn());
        assert_eq!(response(&exchange(queue, &connect)).0, Status::SUCCESS);
    }
    let listed = identify(&mut stream, 2, 0, 0);
    assert_eq!(listed[..16], [1, 0, 0, 0, 0xfe, 3, 0, 0, 0xff, 3, 0, 0, 0, 4, 0, 0]);
    identify(&mut stream, 6, 0, 0);
    for (nsid, csi) in [(1, 0), (NSID_MEMORY, 3), (NSID_PROGRAMS, 4), (NSID_ND, 0x30)] {
        let ids = identify(&mut stream, 3, nsid, 0);
        assert_eq!((ids[0], ids[1], ids[20], ids[21]), (2, 16, 3, 16), "NGUID and UUID");
        assert_eq!((ids[40], ids[41], ids[44]), (4, 1, csi));
        let independent = identify(&mut stream, 8, nsid, 0);
        assert_eq!((independent[1], independent[14]), (1, 1));
        identify(&mut stream, 5, nsid, csi.into());
    }
    let ns = identify(&mut stream, 0, 1, 0);
    assert_eq!((ns[0], ns[1], ns[30], ns[130]), (0, 16, 1, 9));
    let read = NvmeCommand::Read(Blocks::new(1, 0, 8)).encode(0x1001);
    let pdu = exchange(&mut io[1], &capsule(&described(read, DataLocation::Transport, 4096), &[]));
    assert_eq!((pdu[0], pdu[8], pdu[9], pdu.len()), (7, 1, 0x10, 24 + 4096));
    let alive = SubmissionEntry { opcode: 0x18, cid: 5.into(), ..SubmissionEntry::default() };
    assert_eq!(response(&exchange(&mut stream, &no_data(alive))).0, Status::SUCCESS);
    response(&exchange(&mut stream, &property(FabricsType::PropertySet as u8, Property::CC, 0x0046_4061)));
    assert_eq!(get(&mut stream, Property::CSTS).0.1 & 0xc, 8, "shutdown is complete");
}

#[test]
fn a_broken_rule_ends_one_connection() {
    let target = target(SubsystemOptions::default());
    let mut neighbour = target.connect(Digests::default());
    let alone = |bytes: &[u8]| {
        let mut stream = raw(&target);
        stream.write_all(bytes).unwrap();
        ended(&mut stream)
    };
    assert_eq!(alone(&connect_capsule(0, 31, 0xffff, "x")), 2, "a capsule before the handshake");
    assert_eq!(alone(&[ic_request(), ic_request()].concat()), 2, "a second handshake");
    assert_eq!(alone(&[0, 0, 128, 0, 0, 0, 0, 0]), 1, "no length");
    assert_eq!(alone(&[0, 0, 128, 0, 255, 255, 255, 255]), 1, "the largest length");
    assert_eq!(alone(&[0, 0, 24, 0, 128, 0, 0, 0]), 1, "the header length of another kind");
    assert_eq!(alone(&[0x5a; 8]), 1);
    let mut version = ic_request();
    version[8] = 1;
    assert_eq!(alone(&version), 6);
    let data = |cccid: u16, tag: u16, offset: u32, bytes: u32, carried: usize| {
        let mut pdu = vec![6, 4, 24, 24];
        pdu.extend_from_slice(&(24 + carried as u32).to_le_bytes());
        pdu.extend_from_slice(&[cccid.to_le_bytes(), tag.to_le_bytes()].concat());
        pdu.extend_from_slice(&[offset.to_le_bytes(), bytes.to_le_bytes(), [0; 4]].concat());
        pdu.extend_from_slice(&vec![0; carried]);
        pdu
    };
    assert_eq!(alone(&[ic_request(), data(0, 0, 0, 512, 512)].concat()), 1, "data that was not requested");
    // A write by R2T, with what the host must not answer.
    for (fields, fes) in [
        // Marked as the last, and it is not.
        ((0u16, 0u32, 512u32, 512usize), 1u8),
        ((0, 1 << 16, 4096, 4096), 4),
        ((0, 0, 4096, 512), 1),
        ((77, 0, 4096, 4096), 1),
        ((0, 0, 65536 + 512, 65536 + 512), 4),
    ] {
        let (cid_off, offset, bytes, carried) = fields;
        let (mut io, tag, _admin) = asked_for_data(&target);
        io.write_all(&data(21 + cid_off, tag, offset, bytes, carried)).unwrap();
        assert_eq!(ended(&mut io), fes, "{fields:?}");
    }
    let (status, _) = io(&mut neighbour, NvmeCommand::Write(Blocks::new(1, 0, 1)), &[1; 512], 0);
    assert_eq!(status, Status::SUCCESS);
}

#[test]
fn transfers_that_nobody_finishes() {
    let mut target = target(SubsystemOptions::default());
    let data = |tag: u16| {
        let mut pdu = vec![6, 4, 24, 24];
        pdu.extend_from_slice(&(24u32 + 65536).to_le_bytes());
        pdu.extend_from_slice(&[[21, 0], tag.to_le_bytes()].concat());
        pdu.extend_from_slice(&[[0; 4], 65536u32.to_le_bytes(), [0; 4]].concat());
        pdu.resize(24 + 512, 0);
        pdu
    };
    // A tag that was given to no transfer.
    let (mut io, tag, _admin) = asked_for_data(&target);
    io.write_all(&data(tag.wrapping_add(1))).unwrap();
    assert_eq!(ended(&mut io), 1);
    // Hosts that go away while data is requested, and in the middle of it: either queue first.
    for admin_first in [true, false] {
        let (mut io, tag, admin) = asked_for_data(&target);
        io.write_all(&data(tag)).unwrap();
        if admin_first {
            drop(admin);
            assert!(read_pdu(&mut io).is_none(), "its queues end with the association");
        } else {
            drop(io);
            drop(admin);
        }
    }
    // A host that sends a program's command and does not wait for it.
    let mut host = target.connect(Digests::default());
    let execute = SubmissionEntry { opcode: 1, nsid: NSID_PROGRAMS.into(), ..SubmissionEntry::default() };
    host.io().unwrap().submit(execute, &[0; 64], 0);
    host.io().unwrap().flush().unwrap();
    drop(host);
    let mut neighbour = target.connect(Digests::default());
    assert_eq!(io_status(&mut neighbour), Status::SUCCESS);
    drop(neighbour);
    target.server.stop();
    assert_eq!(target.server.status().connections, 0);
}

#[test]
fn a_handshake_byte_by_byte() {
    let target = target(SubsystemOptions::default());
    let mut slow = raw(&target);
    slow.set_nodelay(true).unwrap();
    for byte in ic_request() {
        slow.write_all(&[byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(read_pdu(&mut slow).unwrap()[0], 1);
    // The limit of ten seconds is one for the whole of it: a byte now and then gains no time.
    let mut slower = raw(&target);
    slower.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let began = std::time::Instant::now();
    for byte in ic_request() {
        if slower.write_all(&[byte]).is_err() || matches!(slower.read(&mut [0; 8]), Ok(0)) {
            break;
        }
    }
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert_eq!(io_status(&mut target.connect(Digests::default())), Status::SUCCESS);
}

#[test]
fn a_wrong_command_is_a_status() {
    let target = target(SubsystemOptions::default());
    let nqn = target.server.subsystem().nqn().to_owned();
    let refused = |bytes: &[u8]| {
        let mut stream = raw(&target);
        exchange(&mut stream, &ic_request());
        response(&exchange(&mut stream, bytes))
    };
    assert_eq!(refused(&connect_capsule(0, 31, 0xffff, "nqn.other")), (Status::CONNECT_PARAMETER, 1 << 16 | 256));
    assert_eq!(refused(&connect_capsule(0, 0, 0xffff, &nqn)), (Status::CONNECT_PARAMETER, 44));
    assert_eq!(refused(&connect_capsule(0, 31, 1, &nqn)).0, Status::CONNECT_PARAMETER);
    assert_eq!(refused(&connect_capsule(1, 31, 999, &nqn)).0, Status::CONNECT_PARAMETER, "before an admin queue");
    assert_eq!(refused(&property(FabricsType::PropertyGet as u8, 8, 0)).0, Status::SEQUENCE_ERROR, "before connect");
    let (mut stream, _) = admin(&target);
    let again = connect_capsule(0, 31, 0xffff, &nqn);
    assert_eq!(response(&exchange(&mut stream, &again)).0, Status::SEQUENCE_ERROR, "connect twice");
    let identify = SubmissionEntry { opcode: 6, ..SubmissionEntry::default() };
    let other = described(identify, DataLocation::Other(0), 4096);
    assert_eq!(response(&exchange(&mut stream, &capsule(&other, &[]))).0, Status::SGL_TYPE_INVALID);
    let huge = described(identify, DataLocation::Transport, u32::MAX);
    assert_eq!(response(&exchange(&mut stream, &capsule(&huge, &[]))).0, Status::INVALID_FIELD);
    let early = described(identify, DataLocation::Transport, 4096);
    assert_eq!(response(&exchange(&mut stream, &capsule(&early, &[]))).0, Status::SEQUENCE_ERROR, "not enabled");
    let unknown = SubmissionEntry { opcode: 0xf8, ..SubmissionEntry::default() };
    response(&exchange(&mut stream, &property(FabricsType::PropertySet as u8, Property::CC, 0x0046_0061)));
    assert_eq!(response(&exchange(&mut stream, &no_data(unknown))).0, Status::INVALID_OPCODE);
}

#[test]
fn descriptors_of_commands_without_data_are_not_looked_at() {
    let target = target(SubsystemOptions::default());
    let nqn = target.server.subsystem().nqn().to_owned();
    let (mut stream, cntlid) = admin(&target);
    let mut io = raw(&target);
    let reserved = [(DataLocation::Other(0), 0), (DataLocation::Other(0x75), 77), (DataLocation::Transport, u32::MAX)];
    let property = |fctype: u8, offset: u32, value: u32| {
        let mut entry = SubmissionEntry::new(FABRICS_OPCODE, u32::from(fctype), 3);
        entry.set_cdw(11, offset);
        entry.set_cdw(12, value);
        entry
    };
    let command = |opcode: u8, nsid: u32, words: &[(usize, u32)]| {
        let mut entry = SubmissionEntry { opcode, nsid: nsid.into(), cid: 3.into(), ..SubmissionEntry::default() };
        words.iter().for_each(|&(number, word)| entry.set_cdw(number, word));
        entry
    };
    let of_admin = [
        property(FabricsType::PropertySet as u8, Property::CC, 0x0046_0061),
        property(FabricsType::PropertyGet as u8, Property::CSTS, 0),
        command(AdminOpcode::KeepAlive as u8, 0, &[]),
        command(AdminOpcode::SetFeatures as u8, 0, &[(10, 0x0b), (11, 1 << 8)]),
        command(AdminOpcode::GetFeatures as u8, 0, &[(10, 0x07)]),
        command(AdminOpcode::Abort as u8, 0, &[]),
    ];
    for entry in &of_admin {
        for (location, bytes) in reserved {
            let sent = SubmissionEntry { flags: 0, ..described(*entry, location, bytes) };
            let found = response(&exchange(&mut stream, &capsule(&sent, &[]))).0;
            assert_eq!(found, Status::SUCCESS, "{entry:?} with {location:?}, {bytes} bytes");
        }
    }
    exchange(&mut io, &ic_request());
    assert_eq!(response(&exchange(&mut io, &connect_capsule(1, 31, cntlid, &nqn))).0, Status::SUCCESS);
    for entry in [command(0x00, 1, &[]), command(0x08, 1, &[])] {
        for (location, bytes) in reserved {
            let sent = SubmissionEntry { flags: 0, ..described(entry, location, bytes) };
            let found = response(&exchange(&mut io, &capsule(&sent, &[]))).0;
            assert_eq!(found, Status::SUCCESS, "{entry:?} with {location:?}, {bytes} bytes");
        }
    }
    // A command with data needs its descriptor.
    let write = described(command(0x01, 1, &[]), DataLocation::Other(0), 512);
    assert_eq!(response(&exchange(&mut io, &capsule(&write, &[]))).0, Status::SGL_TYPE_INVALID);
    let none = described(command(0x01, 1, &[]), DataLocation::Other(0), 0);
    assert_eq!(response(&exchange(&mut io, &capsule(&none, &[]))).0, Status::DATA_LENGTH_INVALID);
}

#[test]
fn half_open_connections_are_bounded() {
    let mut target = target(SubsystemOptions::default());
    let half: Vec<TcpStream> = (0..600).filter_map(|_| TcpStream::connect(target.address()).ok()).collect();
    std::thread::sleep(Duration::from_millis(200));
    // 128 connections that are not a queue yet, and some whose threads have not ended yet.
    assert!(target.server.status().connections <= 160, "{}", target.server.status().connections);
    // A host is served beside them, long before they would be given up after 10 seconds.
    let began = std::time::Instant::now();
    target.connect(Digests::default());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(half);
    target.server.stop();
    assert_eq!(target.server.status().connections, 0);
}

#[test]
fn other_addresses_need_a_word() {
    let media = Arc::new(MemoryMedia::default());
    let device = Device::open(media, "memory", Mode::Truncate, &Options::default()).unwrap();
    let runtime = Arc::new(Runtime::new(Arc::new(device)));
    let subsystem = Subsystem::new(&runtime, SubsystemOptions::default());
    let refused = Server::start(subsystem, "0.0.0.0:0".parse().unwrap(), &ServerOptions::default());
    assert!(refused.unwrap_err().to_string().contains("insecure"));
}

#[test]
fn a_read_only_export_takes_no_writes() {
    let target = target(SubsystemOptions { read_only: true, ..SubsystemOptions::default() });
    let mut host = target.connect(Digests::default());
    let (status, _) = io(&mut host, NvmeCommand::Write(Blocks::new(1, 0, 1)), &[1; 512], 0);
    assert_eq!(status, Status::WRITE_PROTECTED);
    assert_eq!(io(&mut host, NvmeCommand::Read(Blocks::new(1, 0, 1)), &[], 512).0, Status::SUCCESS);
}

/// A capsule with a digest of its data, which is wrong if `damaged`.
fn digested(capsule: &[u8], damaged: bool) -> Vec<u8> {
    let mut pdu = capsule.to_vec();
    pdu[1] |= 2;
    let bytes = pdu.len() as u32 + 4;
    pdu[4..8].copy_from_slice(&bytes.to_le_bytes());
    let digest = crc_fast::crc32_iscsi(&capsule[72..]) ^ u32::from(damaged);
    pdu.extend_from_slice(&digest.to_le_bytes());
    pdu
}

#[test]
fn wrong_digests_end_a_command_or_the_connection() {
    let target = target(SubsystemOptions::default());
    let nqn = target.server.subsystem().nqn().to_owned();
    let begin = |digests: u8| {
        let mut stream = raw(&target);
        let mut request = ic_request();
        request[11] = digests;
        assert_eq!(exchange(&mut stream, &request)[11], digests);
        stream
    };
    // Of data: the command ends with a status that a host may try again, and the stream goes on.
    let mut stream = begin(2);
    let connect = connect_capsule(0, 31, 0xffff, &nqn);
    let (status, _) = response(&exchange(&mut stream, &digested(&connect, true)));
    assert_eq!((status, status.dnr()), (Status::TRANSIENT_TRANSPORT, false));
    assert_eq!(response(&exchange(&mut stream, &digested(&connect, false))).0, Status::SUCCESS);
    // Of the header: nothing behind it can be trusted.
    let mut stream = begin(1);
    let mut pdu = connect_capsule(0, 31, 0xffff, &nqn);
    (pdu[1], pdu[3]) = (1, 76);
    let bytes = pdu.len() as u32 + 4;
    pdu[4..8].copy_from_slice(&bytes.to_le_bytes());
    let digest = crc_fast::crc32_iscsi(&pdu[..72]) ^ 1;
    pdu.splice(72..72, digest.to_le_bytes());
    stream.write_all(&pdu).unwrap();
    assert_eq!(ended(&mut stream), 3);
}

#[test]
fn connects_that_are_refused() {
    let target = target(SubsystemOptions::default());
    let nqn = target.server.subsystem().nqn().to_owned();
    let (_admin, cntlid) = enabled(&target);
    let connect = |bytes: &[u8]| {
        let mut stream = raw(&target);
        exchange(&mut stream, &ic_request());
        let answer = response(&exchange(&mut stream, bytes));
        (answer, stream)
    };
    let mut format = connect_capsule(0, 31, 0xffff, &nqn);
    format[8 + 40] = 1;
    assert_eq!(connect(&format).0.0, Status::CONNECT_FORMAT);
    let ((status, _), _first) = connect(&connect_capsule(1, 31, cntlid, &nqn));
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(connect(&connect_capsule(1, 31, cntlid, &nqn)).0.0, Status::SEQUENCE_ERROR, "queue 1 twice");
    // A host tries again where the store is not there now.
    target.runtime.device().close().unwrap();
    let ((status, _), _) = connect(&connect_capsule(0, 31, 0xffff, &nqn));
    assert_eq!((status, status.dnr()), (Status::CONNECT_BUSY, false));
}

#[test]
fn commands_that_a_queue_cannot_take() {
    let target = target(SubsystemOptions::default());
    let (mut stream, _) = enabled(&target);
    let event = |cid: u16| {
        no_data(SubmissionEntry {
            opcode: AdminOpcode::AsyncEvent as u8,
            cid: cid.into(),
            ..SubmissionEntry::default()
        })
    };
    for cid in 100..104 {
        stream.write_all(&event(cid)).unwrap();
    }
    assert_eq!(response(&exchange(&mut stream, &event(104))).0, Status::EVENT_LIMIT_EXCEEDED, "a fifth event request");
    assert_eq!(response(&exchange(&mut stream, &event(100))).0, Status::CID_CONFLICT, "100 is held");
    let load = SubmissionEntry { opcode: AdminOpcode::LoadProgram as u8, cid: 7.into(), ..SubmissionEntry::default() };
    let moved = capsule(&described(load, DataLocation::Capsule { offset: 8 }, 8), &[0; 8]);
    assert_eq!(response(&exchange(&mut stream, &moved)).0, Status::SGL_OFFSET_INVALID);
    // A write that waits for its data.
    let (mut io, _, _admin) = asked_for_data(&target);
    let read = NvmeCommand::Read(Blocks::new(1, 0, 1)).encode(21);
    let again = capsule(&described(read, DataLocation::Transport, 512), &[]);
    assert_eq!(response(&exchange(&mut io, &again)).0, Status::CID_CONFLICT);
}

#[test]
fn a_reset_ends_commands_until_the_controller_is_enabled() {
    let target = target(SubsystemOptions::default());
    for (offset, value) in [(Property::CC, 0x0046_0060), (Property::NSSR, 0x4e56_4d65)] {
        let (mut stream, cntlid) = enabled(&target);
        let mut io = raw(&target);
        exchange(&mut io, &ic_request());
        exchange(&mut io, &connect_capsule(1, 31, cntlid, target.server.subsystem().nqn()));
        let flush = no_data(NvmeCommand::Flush { nsid: 1 }.encode(5));
        assert_eq!(response(&exchange(&mut io, &flush)).0, Status::SUCCESS);
        response(&exchange(&mut stream, &property(FabricsType::PropertySet as u8, offset, value)));
        let (status, _) = response(&exchange(&mut io, &flush));
        assert_eq!((status, status.dnr()), (Status::ABORTED, false), "{offset:#x}");
        response(&exchange(&mut stream, &property(FabricsType::PropertySet as u8, Property::CC, 0x0046_0061)));
        assert_eq!(response(&exchange(&mut io, &flush)).0, Status::SUCCESS);
    }
}

/// 128 writes of 2 MiB that a host announces and sends no data for: memory for 16 MiB of them is there at once.
#[test]
fn announced_transfers_take_bounded_memory() {
    let target = target(SubsystemOptions::default());
    let (_admin, cntlid) = enabled(&target);
    let mut io = raw(&target);
    exchange(&mut io, &ic_request());
    exchange(&mut io, &connect_capsule(1, 127, cntlid, target.server.subsystem().nqn()));
    for cid in 0..127 {
        let write = NvmeCommand::Write(Blocks::new(1, 0, 4096)).encode(cid);
        io.write_all(&capsule(&described(write, DataLocation::Transport, 2 << 20), &[])).unwrap();
    }
    io.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let requested = std::iter::from_fn(|| read_pdu(&mut io)).inspect(|pdu| assert_eq!(pdu[0], 9)).count();
    assert_eq!(requested, 8);
    assert_eq!(io_status(&mut target.connect(Digests::default())), Status::SUCCESS);
}

#[test]
fn hosts_of_a_place_leave_as_many_connections_free_as_they_have() {
    let target = target(SubsystemOptions::default());
    let connect = |from: [u8; 4]| {
        let mut stream = raw_from(&target, from.into());
        exchange(&mut stream, &ic_request());
        let mut sent = connect_capsule(0, 31, 0xffff, target.server.subsystem().nqn());
        let name = sent.windows(9).rposition(|part| part == b"uuid:host").unwrap();
        sent[name + 5] = b'0' + from[3]; // each place has a host of its own
        let answer = exchange(&mut stream, &sent);
        (stream, response(&answer).0)
    };
    let mut open = Vec::new();
    let refused = loop {
        let (stream, status) = connect([127, 0, 0, 1]);
        if status != Status::SUCCESS {
            break status;
        }
        open.push(stream);
        assert!(open.len() < 300, "one host takes all of 512 connections");
    };
    assert_eq!((refused, open.len()), (Status::CONNECT_BUSY, 256));
    assert_eq!(connect([127, 0, 0, 2]).1, Status::SUCCESS);
    // A connection that it gives back is free for it again.
    open.truncate(200);
    for _ in 0..500 {
        if connect([127, 0, 0, 1]).1 == Status::SUCCESS {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no connection again");
}
