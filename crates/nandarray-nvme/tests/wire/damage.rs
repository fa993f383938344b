//! Bits that change on the way: an initiator beside a controller that replays a recorded stream with one byte damaged,
//! a server that gets damaged headers and entries.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use nandarray::nvme::{Blocks, NvmeCommand, Status, SubmissionEntry};
use nandarray_nvme::SubsystemOptions;
use nandarray_nvme::tcp::{ConnectError, Digests, HostQueue, InitiatorOptions};
use nandarray_nvme_spec::{ConnectFields, DataLocation};
use zerocopy::{FromBytes, IntoBytes};

use crate::support::{
    capsule, connect_capsule, described, enabled, exchange, ic_request, io, io_status, no_data, pattern, raw, read_pdu,
    target,
};

/// Serves one connection by a function, and returns its address.
fn once<T: Send + 'static>(serve: impl FnOnce(TcpStream) -> T + Send + 'static) -> (SocketAddr, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (address, thread::spawn(move || serve(listener.accept().unwrap().0)))
}

/// Passes everything between a host and the controller at `to`; returns what the controller said.
fn recorder(to: SocketAddr) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    once(move |host| {
        let controller = TcpStream::connect(to).unwrap();
        let (mut from_host, mut to_controller) = (host.try_clone().unwrap(), controller.try_clone().unwrap());
        let onward = thread::spawn(move || {
            drop(std::io::copy(&mut from_host, &mut to_controller));
            drop(to_controller.shutdown(Shutdown::Write));
        });
        let (mut said, mut part) = (Vec::new(), [0; 4096]);
        let (mut controller, mut host) = (controller, host);
        while let Ok(n @ 1..) = controller.read(&mut part) {
            said.extend_from_slice(&part[..n]);
            drop(host.write_all(&part[..n]));
        }
        nandarray::internals::joined(onward);
        said
    })
}

/// Says these bytes, whatever the host says, and ends.
fn replay(said: Vec<u8>) -> (SocketAddr, JoinHandle<()>) {
    once(move |mut stream| {
        drop(stream.write_all(&said));
        drop(stream.shutdown(Shutdown::Write));
        drop(std::io::copy(&mut stream, &mut std::io::sink()));
    })
}

/// The results of a host that connects I/O queue 1 and sends four commands: statuses, and the data of its read.
type Results = (Vec<Status>, Vec<u8>);

fn converse(address: SocketAddr, nqn: &str, cntlid: u16, digests: Digests) -> Result<Results, ConnectError> {
    let hostnqn = "nqn.2014-08.org.nvmexpress:uuid:host".to_owned();
    let options = InitiatorOptions { digests, hostnqn, ..InitiatorOptions::default() };
    let fields = ConnectFields { recfmt: 0, qid: 1, sqsize_z: 31, cattr: 0, kato_ms: 0 };
    let (mut queue, _) = HostQueue::connect(address, fields, nqn, cntlid, &options)?;
    let mut statuses = Vec::new();
    let mut told = Vec::new();
    let write = NvmeCommand::Write(Blocks::new(1, 0, 40));
    let read = NvmeCommand::Read(Blocks::new(1, 1, 1));
    let outside = NvmeCommand::Read(Blocks::new(1, 4096, 1));
    for (command, source, room) in [
        (write, pattern(40 * 512, 3), 0),
        (read, vec![], 512),
        (outside, vec![], 512),
        (NvmeCommand::Flush { nsid: 1 }, vec![], 0),
    ] {
        let (done, data) = queue.call(command.encode(0), &source, room)?;
        statuses.push(done.status());
        told.extend(data);
    }
    Ok((statuses, told))
}

#[test]
fn an_initiator_takes_no_damaged_byte_for_a_right_one() {
    let target = target(SubsystemOptions::default());
    let nqn = target.server.subsystem().nqn().to_owned();
    let (_admin, cntlid) = enabled(&target);
    let digests = Digests { header: true, data: true };
    let (address, said) = recorder(target.address());
    let right = converse(address, &nqn, cntlid, digests).unwrap();
    assert_eq!(right.0, [Status::SUCCESS, Status::SUCCESS, Status::LBA_OUT_OF_RANGE, Status::SUCCESS]);
    assert!(right.1[..] == pattern(40 * 512, 3)[512..1024]);
    let said = nandarray::internals::joined(said);
    let (address, replayed) = replay(said.clone());
    assert_eq!(converse(address, &nqn, cntlid, digests).unwrap(), right, "a replay is as good");
    nandarray::internals::joined(replayed);
    for at in (0..said.len()).filter(|at| *at < 16 || *at >= 120) {
        for mask in [0x01u8, 0x80, 0xff] {
            let mut damaged = said.clone();
            damaged[at] ^= mask;
            let (address, replayed) = replay(damaged);
            let done = converse(address, &nqn, cntlid, digests);
            nandarray::internals::joined(replayed);
            let context = format!("byte {at} of {} turned over by {mask:#x}", said.len());
            match done {
                // The handshake has no digest: its limit on data, and bytes that are reserved, may change.
                Ok(found) => assert!(at < 128 && found == right, "{context}"),
                Err(ConnectError::Io(_)) => {}
                Err(other) => panic!("{context}: {other}"),
            }
        }
    }
}

#[test]
fn an_initiator_beside_a_controller_that_is_cut_off_ends_with_an_error() {
    let target = target(SubsystemOptions::default());
    let nqn = target.server.subsystem().nqn().to_owned();
    let (_admin, cntlid) = enabled(&target);
    let (address, said) = recorder(target.address());
    let right = converse(address, &nqn, cntlid, Digests::default()).unwrap();
    let said = nandarray::internals::joined(said);
    for count in (0..=said.len()).filter(|count| count.is_multiple_of(23) || *count + 40 > said.len()) {
        let (address, replayed) = replay(said[..count].to_vec());
        let done = converse(address, &nqn, cntlid, Digests::default());
        nandarray::internals::joined(replayed);
        match done {
            Ok(found) => assert!(count == said.len() && found == right, "{count} of {} bytes", said.len()),
            Err(error) => assert!(matches!(error, ConnectError::Io(_)) && count < said.len(), "{count}: {error}"),
        }
    }
    // Damage that no digest shows may change the results, but neither ends the process nor waits for ever.
    for at in 0..said.len().min(400) {
        let mut damaged = said.clone();
        damaged[at] ^= [0x01, 0x04, 0x10, 0xff][at % 4];
        let (address, replayed) = replay(damaged);
        drop(converse(address, &nqn, cntlid, Digests::default()));
        nandarray::internals::joined(replayed);
    }
}

/// PDUs that a controller must not send, each behind a right handshake and Connect: the error names the rule.
#[test]
fn an_initiator_names_the_rule_that_its_controller_breaks() {
    let mut right = ic_request();
    right[0] = 1;
    right[12..16].copy_from_slice(&8192u32.to_le_bytes());
    right.extend([5, 0, 24, 0, 24, 0, 0, 0]);
    right.extend([0; 16]);
    let pdu = |kind: u8, flags: u8, cid: u16, offset: u32, bytes: u32, carried: usize| {
        let mut pdu = vec![kind, flags, 24, if carried > 0 { 24 } else { 0 }];
        pdu.extend((24 + carried as u32).to_le_bytes());
        pdu.extend([cid.to_le_bytes(), [0; 2]].concat());
        pdu.extend([offset.to_le_bytes(), bytes.to_le_bytes(), [0; 4]].concat());
        pdu.resize(pdu.len() + carried, 1);
        pdu
    };
    let mut ending = pdu(3, 0, 4, 0, 0, 0);
    ending[8..16].copy_from_slice(&[4, 0, 7, 0, 0, 0, 0, 0]);
    for (bytes, text) in [
        (pdu(7, 4, 9, 0, 512, 512), "data of command 9"),
        (pdu(7, 4, 1, 512, 512, 512), "512 bytes at 512 of command 1"),
        (pdu(7, 4, 1, 0, 511, 512), "512 bytes at 0 of command 1"),
        (pdu(7, 4, 1, 0, 1024, 1024), "1024 bytes at 0 of command 1"),
        (pdu(9, 0, 9, 0, 512, 0), "R2T of command 9"),
        (pdu(9, 0, 1, 0, 512, 0), "R2T beyond the data"),
        (pdu(9, 0, 1, u32::MAX, u32::MAX, 0), "R2T beyond the data"),
        (ending, "error 4, detail 7"),
        (right[..128].to_vec(), "ICResp from a controller"),
        (vec![4, 0, 72, 0, 72, 0, 0, 0], "detail 0"),
        (vec![], "closed the connection"),
    ] {
        let (address, replayed) = replay([&right[..], &bytes].concat());
        let fields = ConnectFields { recfmt: 0, qid: 1, sqsize_z: 31, cattr: 0, kato_ms: 0 };
        let connected = HostQueue::connect(address, fields, "nqn.subsystem", 1, &InitiatorOptions::default());
        let (mut queue, _) = connected.unwrap();
        let read = NvmeCommand::Read(Blocks::new(1, 0, 1)).encode(0);
        let error = queue.call(read, &[], 512).unwrap_err().to_string();
        assert!(error.contains(text), "{error:?} does not say {text:?}");
        let after = queue.call(read, &[], 512).unwrap_err().to_string();
        assert_eq!(after, "the connection failed earlier", "after {text:?}");
        drop(queue);
        nandarray::internals::joined(replayed);
    }
}

/// One bit of a read's entry turned over: the server answers the command, whatever it has become, and goes on.
#[test]
fn any_entry_has_one_answer_and_the_next_command_is_served() {
    let target = target(SubsystemOptions::default());
    let nqn = target.server.subsystem().nqn().to_owned();
    let (_admin, cntlid) = enabled(&target);
    let mut queue = raw(&target);
    exchange(&mut queue, &ic_request());
    exchange(&mut queue, &connect_capsule(1, 31, cntlid, &nqn));
    let read = described(NvmeCommand::Read(Blocks::new(1, 3, 1)).encode(0x1234), DataLocation::Transport, 512);
    let flush = no_data(NvmeCommand::Flush { nsid: 1 }.encode(1));
    for bit in 0..512 {
        let mut entry = read.as_bytes().to_vec();
        entry[bit / 8] ^= 1 << (bit % 8);
        let cid = [entry[2], entry[3]];
        let answer = exchange(&mut queue, &capsule(&SubmissionEntry::read_from_bytes(&entry).unwrap(), &[]));
        let at = if answer[0] == 7 { 8 } else { 20 };
        assert!(matches!(answer[0], 5 | 7) && answer[at..at + 2] == cid, "bit {bit}: {answer:?}");
        let after = exchange(&mut queue, &flush);
        assert_eq!((after[0], after[20], after[22..24].to_vec()), (5, 1, vec![0, 0]), "after bit {bit}");
    }
}

/// The end of a connection as the host reads it: reason, detail, and the header that caused it.
#[test]
fn the_reason_of_an_end_comes_with_the_place_and_the_header() {
    let target = target(SubsystemOptions::default());
    let nqn = target.server.subsystem().nqn().to_owned();
    let mut neighbour = target.connect(Digests::default());
    let connect = connect_capsule(0, 31, 0xffff, &nqn);
    let change = |at: usize, value: u8| {
        let mut pdu = connect.clone();
        pdu[at] = value;
        pdu
    };
    let mut handshake = ic_request();
    handshake[10] = 1;
    let after = |pdu: Vec<u8>| [ic_request(), pdu].concat();
    // The bytes that are sent, the reason, the detail, and the number of bytes of the header that come back.
    for (bytes, reason, detail, echoed) in [
        (after(change(0, 5)), 1, 0, 8),
        (after(change(0, 8)), 1, 0, 8),
        (after(change(1, 1)), 1, 1, 8),
        (after(change(1, 2)), 1, 1, 8),
        (after(change(2, 71)), 1, 2, 8),
        (after(change(3, 73)), 1, 3, 8),
        (after([4, 0, 72, 0, 71, 0, 0, 0].to_vec()), 1, 4, 8),
        (after([4, 0, 72, 72, 73, 32, 0, 0].to_vec()), 5, 0, 8),
        (after(ic_request()), 2, 0, 128),
        (connect.clone(), 2, 0, 72),
        (handshake, 6, 10, 128),
    ] {
        let mut stream = raw(&target);
        stream.write_all(&bytes).unwrap();
        drop(stream.shutdown(Shutdown::Write));
        let last = std::iter::from_fn(|| read_pdu(&mut stream)).last().unwrap();
        let word = u32::from_le_bytes(last[10..14].try_into().unwrap());
        let sent = if bytes.len() > 128 && bytes[0] == 0 { &bytes[128..] } else { &bytes[..] };
        let context = format!("{:?}", &sent[..8]);
        assert_eq!((last[0], last[2], last[8], word), (3, 24, reason, detail), "{context}");
        assert_eq!(last[24..], sent[..echoed], "{context}");
    }
    assert_eq!(io_status(&mut neighbour), Status::SUCCESS);
    assert_eq!(io(&mut neighbour, NvmeCommand::Flush { nsid: 1 }, &[], 0).0, Status::SUCCESS);
}
