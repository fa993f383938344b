//! Hostile NVMe hosts: any bytes as submission entries, any bytes and any lengths as the buffers lent with them.

use std::sync::Arc;

use nandarray::device::{Device, Mode, Options};
use nandarray::flash::Geometry;
use nandarray::media::memory::MemoryMedia;
use nandarray::nvme::{
    Command, Controller, Lent, NewNamespace, Opcode, OpenAction, SpacePage, Status, SubmissionEntry,
};
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

/// Small numbers most of the time, so that commands get past the first check.
fn tame(entry: &mut SubmissionEntry, how: u8) {
    if how & 1 != 0 {
        entry.opcode = OPCODES[entry.opcode as usize % OPCODES.len()];
        entry.flags = 0;
    }
    if how & 2 != 0 {
        entry.nsid.set(entry.nsid.get() % 3);
    }
    if how & 4 != 0 {
        for n in [2, 3, 10, 11, 12, 13, 14, 15] {
            let kept = if n == 11 || n == 12 { entry.cdw(n) & 0xc200_0300 } else { 0 };
            entry.set_cdw(n, kept | (entry.cdw(n) % 7));
        }
        if entry.opcode < 0x80 {
            entry.set_cdw(11, 0);
        }
    }
}

/// Lengths that a command could want of its buffer, as far as bytes tell.
fn lengths(entry: &SubmissionEntry) -> [usize; 7] {
    let nr = entry.cdw(10) as usize % 256 + 1;
    let sources = entry.cdw(12) as usize % 256 + 1;
    let sub = |n: usize| (entry.cdw(n) as usize).clamp(1, 16);
    [
        0,
        (entry.cdw(12) as usize % 65536 + 1) * 512,
        nr * 16,
        sources * 32,
        4096,
        sub(13) * sub(14) * 4,
        sub(13) * sub(14) * sub(15),
    ]
    .map(|n| n.min(BUFFER_BYTES))
}

/// A stream of entries, each with a byte that says how tame it is, on a store with a namespace and two views.
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
    let create = Command::OpenSpace { action: OpenAction::Create, space: 0 };
    assert_eq!(controller.execute(&create, Lent::to_controller(page.as_bytes())).status, Status::SUCCESS);
    let view = SpacePage::new("", &[2, 18]);
    let open = Command::OpenSpace { action: OpenAction::Open, space: 2 };
    assert_eq!(controller.execute(&open, Lent::to_controller(view.as_bytes())).status, Status::SUCCESS);

    let mut buffer = vec![0u8; BUFFER_BYTES];
    for chunk in data.chunks_exact(65).take(200) {
        let mut entry = SubmissionEntry::read_from_bytes(&chunk[1..]).expect("64 bytes");
        tame(&mut entry, chunk[0]);
        // What the host's memory holds is the host's choice, too.
        let shift = chunk[0] as usize % 13;
        let like = [&chunk[1 + shift..], &[0; 9]].concat();
        for (i, to) in buffer.chunks_mut(like.len()).enumerate() {
            to.copy_from_slice(&like[..to.len()]);
            if i > 64 {
                break;
            }
        }
        let mut page = [0u8; 512];
        page.chunks_mut(8).zip(&chunk[1..]).for_each(|(to, &b)| to[0] = b % 8);
        for n in lengths(&entry) {
            for out in [false, true] {
                let lent = if out { Lent::to_host(&mut buffer[..n]) } else { Lent::to_controller(&buffer[..n]) };
                let lent = if chunk[0] & 8 != 0 { lent.with_page(&page) } else { lent };
                let done = controller.submit(&entry, lent);
                assert_eq!(done.cid, entry.cid);
                assert_ne!(done.status().name(), "Unknown Status");
            }
        }
    }
    device.close().expect("memory does not fail");
}
