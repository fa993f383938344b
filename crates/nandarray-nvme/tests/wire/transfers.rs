//! Transfers from a host whose pieces come in any mixture, with and without digests, and one whose data is damaged.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpStream;

use fastrand::Rng;
use nandarray::nvme::{Blocks, NvmeCommand, Status};
use nandarray_nvme::SubsystemOptions;
use nandarray_nvme::tcp::Digests;
use nandarray_nvme_spec::DataLocation;
use zerocopy::IntoBytes;

use crate::support::{connect_capsule, described, enabled, ic_request, io, raw, read_pdu, target};

/// A raw I/O queue whose PDUs may have digests.
struct Queue {
    stream: TcpStream,
    header: bool,
    data: bool,
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    crc_fast::crc32_iscsi(bytes).to_le_bytes()
}

impl Queue {
    fn send(&mut self, pdu: &[u8]) {
        self.stream.write_all(pdu).unwrap();
    }

    /// Makes a PDU of the header's bytes after the common ones and its data, which is damaged on the way if `damaged`.
    fn pdu(&self, kind: u8, flags: u8, rest: &[u8], data: &[u8], damaged: bool) -> Vec<u8> {
        let header = 8 + rest.len() + if self.header { 4 } else { 0 };
        let digest = self.data && !data.is_empty();
        let bytes = header + data.len() + if digest { 4 } else { 0 };
        let flags = flags | u8::from(self.header) | u8::from(digest) << 1;
        let mut pdu = vec![kind, flags, 8 + rest.len() as u8, if data.is_empty() { 0 } else { header as u8 }];
        pdu.extend((bytes as u32).to_le_bytes());
        pdu.extend(rest);
        if self.header {
            pdu.extend(crc(&pdu));
        }
        pdu.extend(data);
        if digest {
            pdu.extend(crc(data));
        }
        if damaged {
            pdu[header] ^= 0x40;
        }
        pdu
    }

    fn next(&mut self) -> Vec<u8> {
        let pdu = read_pdu(&mut self.stream).expect("an answer");
        if self.header && pdu[0] != 1 {
            let hlen = usize::from(pdu[2]);
            assert_eq!((pdu[1] & 1, &pdu[hlen..hlen + 4]), (1, &crc(&pdu[..hlen])[..]), "the header digest");
        }
        pdu
    }
}

/// A write whose data the server has asked for.
struct Asked {
    tag: u16,
    at: std::ops::Range<usize>,
    sent: usize,
    damaged: bool,
}

fn connect(target: &crate::support::Target, cntlid: u16, qid: u16, header: bool, data: bool) -> Queue {
    let mut queue = Queue { stream: raw(target), header, data };
    let mut handshake = ic_request();
    handshake[11] = u8::from(header) | u8::from(data) << 1;
    queue.send(&handshake);
    assert_eq!(queue.next()[11], handshake[11]);
    let plain = connect_capsule(qid, 63, cntlid, target.server.subsystem().nqn());
    let connect = queue.pdu(4, 0, &plain[8..72], &plain[72..], false);
    queue.send(&connect);
    assert_eq!(queue.next()[0], 5);
    queue
}

/// Announces writes to blocks that do not overlap, each of a random number of blocks; returns them by their identifier.
fn announce(queue: &mut Queue, rng: &mut Rng, damage: bool) -> BTreeMap<u16, Asked> {
    let mut asked = BTreeMap::new();
    let mut first = 0u64;
    for _ in 0..rng.usize(2..9) {
        let most = [4u32, 40, 700][rng.usize(..3)];
        let blocks = rng.u32(1..=most);
        let cid = rng.u16(..);
        if asked.contains_key(&cid) {
            continue;
        }
        let bytes = blocks * 512;
        let write = NvmeCommand::Write(Blocks::new(1, first, blocks)).encode(cid);
        let pdu = queue.pdu(4, 0, described(write, DataLocation::Transport, bytes).as_bytes(), &[], false);
        queue.send(&pdu);
        let at = first as usize * 512..(first as usize + blocks as usize) * 512;
        asked.insert(cid, Asked { tag: 0, at, sent: 0, damaged: damage && rng.u8(..3) == 0 });
        first += u64::from(blocks) + rng.u64(..3);
    }
    for _ in 0..asked.len() {
        let pdu = queue.next();
        let field = |at: usize| u32::from_le_bytes(pdu[at..at + 4].try_into().unwrap());
        let of = asked.get_mut(&(field(8) as u16)).expect("a command that was announced");
        assert_eq!((pdu[0], field(12), field(16) as usize), (9, 0, of.at.len()), "R2T for all of the data at once");
        of.tag = (field(8) >> 16) as u16;
    }
    asked
}

#[test]
fn pieces_of_many_transfers_may_come_in_any_mixture() {
    let target = target(SubsystemOptions::default());
    let (_admin, cntlid) = enabled(&target);
    let mut neighbour = target.connect(Digests::default());
    let mut disk = vec![0u8; 4096 * 512];
    let mut qid = 0;
    for seed in 0..16u64 {
        let mut rng = Rng::with_seed(seed);
        let (header, data) = (seed & 1 == 1, seed & 2 == 2);
        qid += 1;
        let mut queue = connect(&target, cntlid, qid, header, data);
        for round in 0..4 {
            let context = format!("seed {seed}, round {round}");
            let mut asked = announce(&mut queue, &mut rng, data);
            let mut ends = BTreeMap::new();
            while !asked.is_empty() {
                let cids: Vec<u16> = asked.keys().copied().collect();
                let cid = cids[rng.usize(..cids.len())];
                let of = asked.get_mut(&cid).unwrap();
                let left = of.at.len() - of.sent;
                let bytes = if rng.bool() { left.min(256 << 10) } else { rng.usize(1..=left.min(256 << 10)) };
                let last = bytes == left;
                let mut part = vec![0; bytes];
                rng.fill(&mut part);
                let rest = [
                    &cid.to_le_bytes()[..],
                    &of.tag.to_le_bytes(),
                    &(of.sent as u32).to_le_bytes(),
                    &(bytes as u32).to_le_bytes(),
                    &[0; 4],
                ]
                .concat();
                let damaged = of.damaged && last;
                let pdu = queue.pdu(6, if last { 4 } else { 0 }, &rest, &part, damaged);
                queue.send(&pdu);
                if !of.damaged {
                    disk[of.at.start + of.sent..][..bytes].copy_from_slice(&part);
                }
                of.sent += bytes;
                if last {
                    ends.insert(cid, damaged);
                    asked.remove(&cid);
                }
            }
            for _ in 0..ends.len() {
                let pdu = queue.next();
                let cid = u16::from_le_bytes([pdu[20], pdu[21]]);
                let status = Status::from_bits(u16::from_le_bytes([pdu[22], pdu[23]]) >> 1);
                let damaged = ends.remove(&cid).expect("one answer to each command");
                let wanted = if damaged { Status::TRANSIENT_TRANSPORT } else { Status::SUCCESS };
                assert_eq!((pdu[0], status), (5, wanted), "{context}");
            }
            let (_, found) = io(&mut neighbour, NvmeCommand::Read(Blocks::new(1, 0, 4096)), &[], disk.len());
            let differs = found.iter().zip(&disk).position(|(a, b)| a != b);
            assert_eq!(differs, None, "the first byte that differs, {context}");
        }
    }
}
