//! Hostile NVMe hosts: any bytes as submission entries, any bytes and any lengths as the buffers lent with them.

use std::sync::Arc;

use nandarray::nvme::{
    BoxPage, Controller, CopyRange, DataBuffer, DsmRange, NewNamespace, NvmeCommand, Opcode, OpenAction, SpacePage,
    Status, SubmissionEntry,
};
use nandarray::{Device, Geometry, MemoryMedia, Mode, Options};
use zerocopy::{FromBytes, IntoBytes};

const OPCODES: [u8; 13] = [
    Opcode::FLUSH,
    Opcode::WRITE,
    Opcode::READ,
    Opcode::COMPARE,
    Opcode::WRITE_ZEROES,
    Opcode::DATASET_MANAGEMENT,
    Opcode::COPY,
    Opcode::ND_WRITE,
    Opcode::ND_READ,
    Opcode::OPEN_SPACE,
    Opcode::SPACE_INFORMATION,
    Opcode::CLOSE_SPACE,
    Opcode::DELETE_SPACE,
];
const BUFFER_BYTES: usize = 1 << 16;

/// Replaces fields of an entry by small or valid values, by the bits of `how`, so that the command passes the first
/// checks.
fn tame(entry: &mut SubmissionEntry, how: u8) {
    if how & 1 != 0 {
        entry.opcode = OPCODES[entry.opcode as usize % OPCODES.len()];
        entry.flags = 0;
    }
    if how & 2 != 0 {
        entry.nsid.set(if entry.nsid.get().is_multiple_of(4) { entry.nsid.get() % 3 } else { 1 });
    }
    if how & 4 != 0 {
        let nd = entry.opcode & 0x80 != 0;
        for n in [2, 3, 10, 11, 12, 13, 14, 15] {
            let word = entry.cdw(n);
            let small = match (n, nd) {
                (11, true) => (word & 0x4000_0300) | (word % 4),
                (11, false) => word & (u32::from(entry.opcode == Opcode::DATASET_MANAGEMENT) << 2),
                (12, false) => (word & 0xc200_0000) | (word % 7),
                // Views should last for a while.
                _ if matches!(entry.opcode, Opcode::CLOSE_SPACE | Opcode::DELETE_SPACE) => word % 97,
                (2 | 3 | 10, true) => word % 3,
                _ => word % 7,
            };
            entry.set_cdw(n, small);
        }
    }
}

/// Returns lengths of the data buffer that commands with this entry and this page of coordinates might require, in
/// bytes.
fn lengths(entry: &SubmissionEntry, page: &BoxPage) -> [usize; 8] {
    let nr = entry.cdw(10) as usize % 256 + 1;
    let sources = entry.cdw(12) as usize % 256 + 1;
    let sub = |n: usize| (entry.cdw(n) as usize).clamp(1, 16);
    [
        0,
        (entry.cdw(12) as usize % 65536 + 1) * 512,
        nr * size_of::<DsmRange>(),
        sources * size_of::<CopyRange>(),
        size_of::<SpacePage>(),
        sub(13) * sub(14) * 4,
        sub(13) * sub(14) * sub(15),
        (page.sub[0].get() * page.sub[1].get() * 4) as usize,
    ]
    .map(|n| n.min(BUFFER_BYTES))
}

/// Fills the host's buffer with the bytes `from`; for some values of `how` with nearly valid content for the entry's
/// opcode.
fn fill(buffer: &mut [u8], entry: &SubmissionEntry, how: u8, from: &[u8]) {
    for to in buffer.chunks_mut(from.len()).take(64) {
        to.copy_from_slice(&from[..to.len()]);
    }
    let some = |i: usize| u64::from(from[i % from.len()]);
    match entry.opcode {
        Opcode::DATASET_MANAGEMENT if how & 16 != 0 => {
            for (i, to) in buffer.chunks_exact_mut(16).take(8).enumerate() {
                let range =
                    DsmRange { cattr: 0.into(), nlb: (some(i) as u32 % 9).into(), slba: (some(i + 9) % 90).into() };
                to.copy_from_slice(range.as_bytes());
            }
        }
        Opcode::COPY if how & 16 != 0 => {
            for (i, to) in buffer.chunks_exact_mut(32).take(8).enumerate() {
                to.copy_from_slice(CopyRange::new(some(i) % 90, some(i + 9) as u16 % 9).as_bytes());
            }
        }
        Opcode::OPEN_SPACE if how & 16 != 0 => {
            let dims: Vec<u64> = (0..some(1) % 4).map(|i| some(i as usize) % 7).collect();
            let mut page = SpacePage::new(["a", "b", "space", "ns/1"][some(2) as usize % 4], &dims);
            page.item_bytes.set(some(3) as u32 % 9);
            let bytes = page.as_mut_bytes();
            // And one unexpected byte.
            bytes[some(4) as usize * 4 + some(5) as usize % 4] ^= from[6];
            buffer[..bytes.len()].copy_from_slice(bytes);
        }
        _ => {}
    }
}

/// Submits entries read from `data`, each after a byte that says how far to make it valid, to a store with a namespace
/// and two views.
pub(crate) fn entries(data: &[u8]) {
    let options =
        Options { threads: Some(1), geometry: Geometry::TINY, capacity_bytes: Some(4 << 20), ..Options::default() };
    let device = Device::open(Arc::new(MemoryMedia::default()), "hostile", Mode::Append, &options);
    let device = Arc::new(device.expect("a new store"));
    let controller = Controller::new(&device);
    let new = NewNamespace { nsid: 1, nsze: 100, lba_bytes: 512, compression: None, key: None };
    controller.create_namespace(&new).expect("a new namespace");
    let mut page = SpacePage::new("space", &[6, 6]);
    page.item_bytes.set(4);
    let create = NvmeCommand::OpenSpace { action: OpenAction::Create, space: 0 };
    assert_eq!(controller.execute(&create, DataBuffer::to_controller(page.as_bytes())).status, Status::SUCCESS);
    let view = SpacePage::new("", &[2, 18]);
    let open = NvmeCommand::OpenSpace { action: OpenAction::Open, space: 2 };
    assert_eq!(controller.execute(&open, DataBuffer::to_controller(view.as_bytes())).status, Status::SUCCESS);

    let mut buffer = vec![0u8; BUFFER_BYTES];
    for chunk in data.chunks_exact(65).take(200) {
        let mut entry = SubmissionEntry::read_from_bytes(&chunk[1..]).expect("64 bytes");
        tame(&mut entry, chunk[0]);
        fill(&mut buffer, &entry, chunk[0], &chunk[1..]);
        let small: Vec<u64> = chunk[1..].iter().map(|&b| u64::from(b) % 8).collect();
        let page = BoxPage::new(&small[..32], &small[32..]);
        for n in lengths(&entry, &page) {
            for out in [false, true] {
                let lent =
                    if out { DataBuffer::to_host(&mut buffer[..n]) } else { DataBuffer::to_controller(&buffer[..n]) };
                let lent = if chunk[0] & 8 != 0 { lent.with_page(page.as_bytes()) } else { lent };
                let done = controller.submit(&entry, lent);
                assert_eq!(done.cid, entry.cid);
                assert_ne!(done.status().name(), "Unknown Status");
            }
        }
    }
    device.close().expect("memory does not fail");
}
