//! A host's stream that ends at any byte: each command is executed if all of its bytes arrived, and not at all if not.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use nandarray::nvme::{Blocks, NvmeCommand, Status};
use nandarray_nvme::SubsystemOptions;
use nandarray_nvme::tcp::Digests;
use nandarray_nvme_spec::DataLocation;

use crate::support::{
    Target, capsule, connect_capsule, described, enabled, ic_request, io, no_data, raw, read_pdu, target,
};

/// Blocks that the conversation writes: by a capsule with data, and by a transfer on request.
const WITHIN: std::ops::Range<usize> = 0..2 * 512;
const BY_REQUEST: std::ops::Range<usize> = 8 * 512..16 * 512;

/// The bytes of a host on I/O queue `qid`, and the two numbers of bytes after which its two writes are whole.
fn conversation(qid: u16, cntlid: u16, nqn: &str, new: u8) -> (Vec<u8>, usize, usize) {
    let write = |first, blocks, cid| NvmeCommand::Write(Blocks::new(1, first, blocks)).encode(cid);
    let mut all = ic_request();
    all.extend(connect_capsule(qid, 31, cntlid, nqn));
    all.extend(capsule(&described(write(0, 2, 5), DataLocation::Capsule { offset: 0 }, 1024), &[new; 1024]));
    let first = all.len();
    all.extend(capsule(&described(write(8, 8, 6), DataLocation::Transport, 4096), &[]));
    // The tags of a new connection begin with 0; the data comes in two pieces.
    for (offset, bytes, flags) in [(0u32, 1024u32, 0u8), (1024, 3072, 4)] {
        all.extend([6, flags, 24, 24]);
        all.extend((24 + bytes).to_le_bytes());
        all.extend([6, 0, 0, 0]);
        all.extend([offset.to_le_bytes(), bytes.to_le_bytes(), [0; 4]].concat());
        all.resize(all.len() + bytes as usize, new);
    }
    let second = all.len();
    all.extend(no_data(NvmeCommand::Flush { nsid: 1 }.encode(7)));
    (all, first, second)
}

/// Sends the first `count` bytes, says that no more come, and reads whatever is answered.
fn send_and_end(target: &Target, bytes: &[u8], count: usize) -> Vec<Vec<u8>> {
    let mut stream = raw(target);
    stream.write_all(&bytes[..count]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let answers = std::iter::from_fn(|| read_pdu(&mut stream)).collect();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "nothing behind the last PDU");
    answers
}

#[test]
fn a_host_that_is_cut_off_has_done_what_it_said_whole_and_nothing_else() {
    let target = target(SubsystemOptions::default());
    let nqn = target.server.subsystem().nqn().to_owned();
    let (_admin, cntlid) = enabled(&target);
    let mut neighbour = target.connect(Digests::default());
    let (all, ..) = conversation(1, cntlid, &nqn, 0);
    // Every byte of headers and entries, and some of the data.
    let data = |at: usize| all[at..].iter().take(64).all(|byte| *byte == 0);
    let cuts: Vec<usize> = (0..=all.len()).filter(|at| at.is_multiple_of(41) || !data(*at)).collect();
    assert!(cuts.len() > 300, "{} places", cuts.len());
    for (round, count) in cuts.into_iter().enumerate() {
        let (old, new) = (round as u8 | 1, round as u8 & 0xfe);
        let fill = NvmeCommand::Write(Blocks::new(1, 0, 16));
        assert_eq!(io(&mut neighbour, fill, &[old; 16 * 512], 0).0, Status::SUCCESS);
        let (bytes, first, second) = conversation(1 + round as u16 % 60, cntlid, &nqn, new);
        let answers = send_and_end(&target, &bytes, count);
        let (_, found) = io(&mut neighbour, NvmeCommand::Read(Blocks::new(1, 0, 16)), &[], 16 * 512);
        let wanted = |whole| if whole { new } else { old };
        let context = format!("{count} of {} bytes", bytes.len());
        assert!(found[WITHIN].iter().all(|byte| *byte == wanted(count >= first)), "the first write, {context}");
        assert!(found[BY_REQUEST].iter().all(|byte| *byte == wanted(count >= second)), "the second write, {context}");
        assert!(found[WITHIN.end..BY_REQUEST.start].iter().all(|byte| *byte == old), "blocks between, {context}");
        // The handshake, Connect, the write, the request for data, the second write, the flush: each has one answer. A
        // request for data may come before the completion of an earlier write, which is settled together with others.
        let whole = [128, 128 + 72 + 1024, first, first + 72, second, second + 72];
        let mut kinds: Vec<u8> = answers.iter().map(|pdu| pdu[0]).collect();
        let answered = whole.iter().filter(|end| count >= **end).count();
        let mut expected = [1, 5, 5, 9, 5, 5][..answered].to_vec();
        kinds.sort_unstable();
        expected.sort_unstable();
        assert_eq!(kinds, expected, "{context}");
    }
}

/// Hosts that go away without a word, at places all over a conversation, while another is served: no trace of them
/// stays.
#[test]
fn hosts_that_vanish_leave_no_connection_and_no_association_behind() {
    let mut target = target(SubsystemOptions::default());
    let nqn = target.server.subsystem().nqn().to_owned();
    for round in 0..40 {
        let (admin, cntlid) = enabled(&target);
        let (bytes, ..) = conversation(1, cntlid, &nqn, 9);
        let count = bytes.len() * round / 39;
        let mut stream: TcpStream = raw(&target);
        stream.write_all(&bytes[..count]).unwrap();
        if round.is_multiple_of(2) {
            drop(admin);
        }
        // With answers that were not read: the other side sees a reset.
        drop(stream);
    }
    let mut neighbour = target.connect(Digests::default());
    while target.server.status().connections > 2 {
        std::thread::yield_now();
    }
    let status = target.server.status();
    assert_eq!((status.associations.len(), status.half_open), (1, 0), "{:?}", status.associations);
    assert_eq!(io(&mut neighbour, NvmeCommand::Flush { nsid: 1 }, &[], 0).0, Status::SUCCESS);
    drop(neighbour);
    target.server.stop();
    assert_eq!(target.server.status().connections, 0);
}
