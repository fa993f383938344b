//! Namespaces of the NVMe controller behind a queue pair, beside vectors of bytes: their own block sizes, a flush,
//! commands that are none here, and a server for reading only.

use nandarray::nvme::NewNamespace;

use super::*;

/// The controller's namespaces: identifier, number of blocks, bytes of a block.
const NAMESPACES: [(u32, u64, u64); 2] = [(1, 40, 512), (7, 9, 4096)];

fn with_namespaces(dir: &tempfile::TempDir) -> Arc<Device> {
    let (device, _) = store(dir);
    let controller = nandarray::nvme::Controller::new(&device);
    for (nsid, nsze, bytes) in NAMESPACES {
        let new = NewNamespace { nsid, nsze, lba_bytes: bytes as u32, compression: None, key: None };
        controller.create_namespace(&new).unwrap();
    }
    device
}

/// Submits one command to pair 0, and returns its status.
fn answer(wire: &Wire, step: &mut dyn FnMut() -> u64, pair: &mut Pair, meant: &Meant) -> u16 {
    submit(wire, 0, pair, vec![*meant]);
    assert_eq!(step(), 1, "{meant:?}");
    let slot = wire.queue(0) + 512 + 64 * u64::from(DEPTH) + 16 * u64::from(pair.consumed % DEPTH);
    let mut words = [0; 16];
    wire.file.read_exact_at(&mut words, slot).unwrap();
    let half = u64::from_le_bytes(words[8..].try_into().unwrap());
    assert_eq!((words[..8].to_vec(), (half >> 32) as u16), (vec![0; 8], meant.cid), "{meant:?}");
    pair.consumed = pair.consumed.wrapping_add(1);
    pair.waiting.clear();
    wire.set(wire.queue(0) + 64, pair.consumed);
    (half >> 49) as u16
}

fn command(chance: &mut fastrand::Rng, wire: &Wire, cid: u16) -> (Meant, u64, u64) {
    let (nsid, nsze, bytes) = NAMESPACES[chance.usize(..2)];
    let nlb = chance.u64(1..=3);
    let slba = if chance.u8(..8) == 0 { nsze - nlb + 1 } else { chance.u64(..=nsze - nlb) };
    let data = wire.data + 512 * chance.u64(..=(DATA_BYTES - nlb * bytes) / 512);
    let opcode = [0, 1, 1, 2, 2][chance.usize(..5)];
    (Meant { opcode, flags: 0, cid, nsid, data, slba, nlb, fua: chance.u8(..6) == 0 }, nsze, bytes)
}

#[test]
fn namespaces_of_the_controller_are_served_in_blocks_of_their_own_size() {
    for (seed, writable) in [(0, true), (1, true), (2, false)] {
        let dir = tempfile::tempdir().unwrap();
        let device = with_namespaces(&dir);
        let name = dir.path().join("region").display().to_string();
        let mut server = QueueServer::stepped(&device, &name, options(writable)).unwrap();
        let (wire, mut pair, mut chance) = (Wire::new(&name), Pair::default(), fastrand::Rng::with_seed(seed));
        claim(&wire, 0, &mut pair, 1);
        server.step();
        let mut disks = NAMESPACES.map(|(_, nsze, bytes)| vec![0u8; (nsze * bytes) as usize]);
        for step in 0..400u16 {
            let (meant, nsze, bytes) = command(&mut chance, &wire, step);
            let disk = &mut disks[usize::from(meant.nsid == 7)];
            let mut data = vec![0; (meant.nlb * bytes) as usize];
            chance.fill(&mut data);
            wire.file.write_all_at(&data, meant.data).unwrap();
            let status = answer(&wire, &mut || server.step(), &mut pair, &meant);
            let wanted = match meant.opcode {
                0 => SUCCESS,
                1 if !writable => WRITE_PROTECTED,
                _ if meant.slba + meant.nlb > nsze => LBA_OUT_OF_RANGE,
                _ => SUCCESS,
            };
            let context = format!("seed {seed}, step {step}: {meant:?}");
            assert_eq!(status, wanted, "{context}");
            let mut after = vec![0; data.len()];
            wire.file.read_exact_at(&mut after, meant.data).unwrap();
            let at = (meant.slba * bytes) as usize..((meant.slba + meant.nlb) * bytes) as usize;
            match meant.opcode {
                1 if status == SUCCESS => disk[at].copy_from_slice(&data),
                2 if status == SUCCESS => assert!(after == disk[at], "{context}"),
                _ => assert!(after == data, "the client's memory changed, {context}"),
            }
        }
    }
}

#[test]
fn what_the_controller_cannot_do_behind_a_queue_pair_has_a_status() {
    for writable in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let device = with_namespaces(&dir);
        let name = dir.path().join("region").display().to_string();
        let mut server = QueueServer::stepped(&device, &name, options(writable)).unwrap();
        let (wire, mut pair) = (Wire::new(&name), Pair::default());
        claim(&wire, 0, &mut pair, 1);
        server.step();
        // A namespace that is made after service began is not known to it.
        let controller = nandarray::nvme::Controller::new(&device);
        let new = NewNamespace { nsid: 3, nsze: 4, lba_bytes: 512, compression: None, key: None };
        controller.create_namespace(&new).unwrap();
        let read = Meant { opcode: 2, flags: 0, cid: 9, nsid: 1, data: wire.data, slba: 0, nlb: 1, fua: false };
        let other = if writable { INVALID_OPCODE } else { WRITE_PROTECTED };
        let last = wire.data + u64::from(QUEUES) * DATA_BYTES;
        for (what, meant, wanted) in [
            ("a new namespace", Meant { nsid: 3, ..read }, INVALID_NAMESPACE),
            ("no namespace", Meant { nsid: 0, ..read }, INVALID_NAMESPACE),
            ("compare", Meant { opcode: 5, ..read }, other),
            ("write zeroes", Meant { opcode: 8, ..read }, other),
            ("open a space", Meant { opcode: 0x85, ..read }, other),
            ("fused", Meant { flags: 1, ..read }, INVALID_FIELD),
            ("an SGL", Meant { flags: 0x40, ..read }, INVALID_FIELD),
            ("data in the header", Meant { data: 0, ..read }, INVALID_FIELD),
            ("data that ends outside", Meant { nsid: 7, data: last - 512, ..read }, INVALID_FIELD),
            ("blocks behind all others", Meant { slba: u64::MAX, ..read }, LBA_OUT_OF_RANGE),
            ("a flush of no namespace", Meant { opcode: 0, nsid: 0, ..read }, INVALID_NAMESPACE),
            ("a flush of all", Meant { opcode: 0, nsid: u32::MAX, ..read }, SUCCESS),
            ("a read", read, SUCCESS),
        ] {
            assert_eq!(answer(&wire, &mut || server.step(), &mut pair, &meant), wanted, "{what}, writable {writable}");
        }
    }
}
