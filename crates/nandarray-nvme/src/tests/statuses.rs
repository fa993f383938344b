//! Status codes: the command that provokes each, with type, code and "do not retry"; the table of the reference.

use nandarray::nvme::{
    Blocks, BoxPage, CopyRange, NSID_ALL, NdBox, NvmeCommand, OpenAction, SpacePage, Status, SubmissionEntry, Unit,
};
use zerocopy::IntoBytes;

use super::{Host, entry};
use crate::{HostIdentity, NSID_MEMORY, NSID_ND, SubsystemOptions};
use nandarray_nvme_spec::{AdminOpcode, FABRICS_OPCODE, FabricsType};

/// Type, code, and whether the same command would fail again.
type Code = (u8, u8, bool);

fn code(status: Status) -> Code {
    (status.sct(), status.sc(), status.dnr())
}

/// The data of a command of the tables below.
enum Data {
    None,
    Send(Vec<u8>),
    Fetch(usize),
}

fn run(host: &Host, command: &SubmissionEntry, data: &Data) -> Status {
    match data {
        Data::None => host.io(command).0,
        Data::Send(bytes) => host.send(command, bytes).0,
        Data::Fetch(bytes) => host.fetch(command, *bytes).err().unwrap_or(Status::SUCCESS),
    }
}

fn block(command: NvmeCommand) -> SubmissionEntry {
    SubmissionEntry { cid: 7.into(), ..command.encode(0) }
}

/// Makes the entry of an N-D command for the namespace of N-D commands.
fn nd(command: NvmeCommand) -> SubmissionEntry {
    let made = block(command);
    SubmissionEntry { opcode: made.opcode & 0x7f, nsid: NSID_ND.into(), ..made }
}

fn open(action: OpenAction, space: u64) -> SubmissionEntry {
    nd(NvmeCommand::OpenSpace { action, space })
}

fn space(name: &str, dims: &[u64], item_bytes: u32) -> Data {
    let mut page = SpacePage::new(name, dims);
    page.item_bytes.set(item_bytes);
    Data::Send(page.as_bytes().to_vec())
}

#[test]
fn commands_of_blocks_fail_with_their_codes() {
    let host = Host::new();
    host.create_namespace(2, 1 << 20, 512);
    let blocks = Blocks::new(1, 0, 2);
    let read = |blocks| block(NvmeCommand::Read(blocks));
    let outside = |first| Blocks::new(1, first, 2);
    let copy = |nlb_z: u16, count: usize| {
        let ranges = vec![CopyRange::new(0, nlb_z); count];
        let command = NvmeCommand::Copy { nsid: 2, sdlba: 0, nr_z: count as u8 - 1, fua: false };
        (block(command), Data::Send(ranges.as_bytes().to_vec()))
    };
    let (one_too_long, too_long_together) = (copy(65535, 1), copy(65534, 3));
    let table: Vec<(&str, SubmissionEntry, Data, Code)> = vec![
        ("an opcode that is none", entry(0x33, 1, &[]), Data::None, (0, 0x01, true)),
        ("write uncorrectable", entry(0x04, 1, &[]), Data::None, (0, 0x01, true)),
        ("half of a fused pair", SubmissionEntry { flags: 1, ..read(blocks) }, Data::Fetch(1024), (0, 0x02, true)),
        ("no such namespace", read(Blocks::new(5, 0, 1)), Data::Fetch(512), (0, 0x0b, true)),
        ("all namespaces", read(Blocks::new(NSID_ALL, 0, 1)), Data::Fetch(512), (0, 0x0b, true)),
        ("an array beyond the largest identifier", read(Blocks::new(1025, 0, 1)), Data::Fetch(512), (0, 0x0b, true)),
        ("the last block and one more", read(outside(63)), Data::Fetch(1024), (0, 0x80, true)),
        ("blocks behind all others", read(outside(u64::MAX)), Data::Fetch(1024), (0, 0x80, true)),
        ("a buffer too short", read(blocks), Data::Fetch(1023), (0, 0x0f, true)),
        ("a buffer too long", read(blocks), Data::Fetch(1025), (0, 0x0f, true)),
        ("the wrong direction", read(blocks), Data::Send(vec![0; 1024]), (0, 0x0f, true)),
        ("a flush with data", entry(0x00, 1, &[]), Data::Send(vec![1]), (0, 0x0f, true)),
        ("other data", block(NvmeCommand::Compare(blocks)), Data::Send(vec![1; 1024]), (2, 0x85, true)),
        ("copy descriptors of format 1", entry(0x19, 1, &[(12, 0x100)]), Data::Send(vec![0; 32]), (0, 0x02, true)),
        ("a range too long", one_too_long.0, one_too_long.1, (1, 0x83, true)),
        ("ranges too long together", too_long_together.0, too_long_together.1, (1, 0x83, true)),
        (
            "fabrics on an I/O queue",
            SubmissionEntry::new(FABRICS_OPCODE, FabricsType::Connect as u32, 7),
            Data::None,
            (0, 0x0c, true),
        ),
    ];
    host.create_namespace(1025, 4, 512);
    for (what, command, data, wanted) in &table {
        assert_eq!(code(run(&host, command, data)), *wanted, "{what}");
    }
    assert_eq!(host.io(&entry(0x00, NSID_ALL, &[])).0, Status::SUCCESS, "a flush of all namespaces");
    host.enable(false);
    assert_eq!(code(run(&host, &read(blocks), &Data::Fetch(1024))), (0, 0x07, false), "not enabled");
    host.enable(true);
    host.runtime.device().close().unwrap();
    assert_eq!(code(run(&host, &read(blocks), &Data::Fetch(1024))), (0, 0x82, true), "a closed store");
}

/// A space of 4 x 6 elements of two bytes, with an open view of it: the view's identifier, and the space's.
fn grid(host: &Host) -> (u32, u64) {
    assert_eq!(run(host, &open(OpenAction::Create, 0), &space("grid", &[4, 6], 2)), Status::SUCCESS);
    let (status, ids) = host.send(&open(OpenAction::OpenByName, 0), SpacePage::new("grid", &[]).as_bytes());
    assert_eq!(status, Status::SUCCESS);
    (ids as u32, ids >> 32)
}

fn at(dsid: u32, coordinate: &[u64], sub: &[u64]) -> NdBox {
    NdBox::inline(dsid, Unit::Element, coordinate, sub).unwrap()
}

fn read(at: NdBox) -> SubmissionEntry {
    nd(NvmeCommand::NdRead(at))
}

#[test]
fn commands_that_open_spaces_fail_with_their_codes() {
    let host = Host::new();
    let (view, id) = grid(&host);
    let create = open(OpenAction::Create, 0);
    let (by_number, by_name) = (open(OpenAction::Open, id), open(OpenAction::OpenByName, 0));
    let table: Vec<(&str, SubmissionEntry, Data, Code)> = vec![
        ("a space of that name", create, space("grid", &[1], 1), (1, 0xc1, true)),
        ("no element size", create, space("new", &[1], 0), (0, 0x02, true)),
        ("a name with an empty part", create, space("a//b", &[1], 1), (0, 0x02, true)),
        ("no space of this number", open(OpenAction::Open, 99), space("", &[], 0), (1, 0xc0, true)),
        ("no space of this name", by_name, space("none", &[], 0), (1, 0xc0, true)),
        ("a name too long for its page", by_name, space(&"x".repeat(3073), &[], 0), (0, 0x02, true)),
        ("a name whose length wraps to 4", by_name, space(&"grid".repeat(16385), &[], 0), (0, 0x02, true)),
        ("a shape whose length wraps to 2", by_number, space("", &[4; 258], 0), (0, 0x02, true)),
        ("a view of another volume", by_number, space("", &[5, 5], 0), (1, 0xc2, true)),
        ("half a page", by_number, Data::Send(vec![0; 2048]), (0, 0x0f, true)),
        ("an action that is none", entry(0x05, NSID_ND, &[(10, 4)]), space("", &[], 0), (0, 0x02, true)),
        ("close no such view", entry(0x08, NSID_ND, &[(10, view + 1)]), Data::None, (1, 0xc3, true)),
        ("delete no such space", entry(0x0c, NSID_ND, &[(12, 99)]), Data::None, (1, 0xc0, true)),
    ];
    for (what, command, data, wanted) in &table {
        assert_eq!(code(run(&host, command, data)), *wanted, "{what}");
    }
}

#[test]
fn commands_of_views_boxes_and_memory_fail_with_their_codes() {
    let host = Host::new();
    let (view, _) = grid(&host);
    let by_handle = entry(0x02, NSID_ND, &[(11, 1 << 10), (12, 1)]);
    let store = entry(0x0d, NSID_ND, &[(10, view), (11, 2 | 1 << 8)]);
    let page = |start: &[u64]| BoxPage::new(start, &[1, 1]).as_bytes().to_vec();
    let paged = |ndim| read(NdBox::paged(view, Unit::Element, ndim));
    let memory = |opcode, first, len| entry(opcode, NSID_MEMORY, &[(10, first), (12, len)]);
    let table: Vec<(&str, SubmissionEntry, Data, Code)> = vec![
        ("no such view", read(at(view + 1, &[0, 0], &[1, 1])), Data::Fetch(2), (1, 0xc3, true)),
        ("an element outside", read(at(view, &[3, 0], &[2, 6])), Data::Fetch(24), (0, 0x80, true)),
        ("an empty box", read(at(view, &[0, 0], &[0, 6])), Data::Fetch(0), (0, 0x02, true)),
        ("a dimension too few", read(at(view, &[0], &[4])), Data::Fetch(8), (0, 0x02, true)),
        ("a buffer too short", read(at(view, &[0, 0], &[4, 6])), Data::Fetch(47), (0, 0x0f, true)),
        ("a read by a page", paged(2), Data::Fetch(2), (0, 0x02, true)),
        ("no such box", by_handle, Data::Fetch(2), (1, 0xc6, true)),
        ("delete no such box", entry(0x10, NSID_ND, &[(12, 1)]), Data::None, (1, 0xc6, true)),
        ("a box outside", store, Data::Send(page(&[4, 0])), (0, 0x80, true)),
        ("a page that is cut", store, Data::Send(page(&[0, 0])[..511].to_vec()), (0, 0x0f, true)),
        ("a command of the NVM set", entry(0x82, NSID_ND, &[]), Data::Fetch(2), (0, 0x01, true)),
        ("memory at an odd address", memory(0x02, 2, 4), Data::Fetch(4), (0, 0x02, true)),
        ("memory of an odd length", memory(0x04, 0, 6), Data::None, (0, 0x02, true)),
        ("memory outside", memory(0x02, 1 << 16, 4), Data::Fetch(4), (0, 0x80, true)),
        ("an opcode that memory has not", memory(0x08, 0, 4), Data::None, (0, 0x01, true)),
    ];
    for (what, command, data, wanted) in &table {
        assert_eq!(code(run(&host, command, data)), *wanted, "{what}");
    }
    // As an entry has six bits for the number of dimensions, 65 must not become one.
    for ndim in [33, 63, 64, 65, 255] {
        let stored = nd(NvmeCommand::NdRead(NdBox { dsid: view, ..NdBox::paged(view, Unit::Element, ndim) }));
        let stored = SubmissionEntry { opcode: 0x0d, ..stored };
        assert_eq!(code(host.send(&stored, &page(&[0, 0])).0), (0, 0x02, true), "{ndim} dimensions");
    }
    for number in 1..=4096 {
        assert_eq!(host.send(&store, &page(&[0, 0])), (Status::SUCCESS, number));
    }
    assert_eq!(code(host.send(&store, &page(&[0, 0])).0), (1, 0x89, false), "4096 boxes are stored");
    assert_eq!(host.io(&entry(0x10, NSID_ND, &[(12, 9)])).0, Status::SUCCESS);
    assert_eq!(host.send(&store, &page(&[0, 0])), (Status::SUCCESS, 4097), "no number is used again");
}

#[test]
fn a_read_only_export_opens_and_reads_views_and_changes_nothing() {
    let host = Host::with(SubsystemOptions { read_only: true, ..SubsystemOptions::default() });
    let (status, ids) = host.send(&open(OpenAction::OpenByName, 0), SpacePage::new("ns/1", &[]).as_bytes());
    let (view, id) = (ids as u32, ids >> 32);
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(host.fetch(&read(at(view, &[3], &[1])), 512), Ok(vec![0; 512]));
    let in_nvm_set = SubmissionEntry { nsid: 1.into(), ..block(NvmeCommand::NdRead(at(view, &[3], &[1]))) };
    assert_eq!(host.fetch(&in_nvm_set, 512), Ok(vec![0; 512]));
    assert_eq!(host.fetch(&nd(NvmeCommand::SpaceInformation { dsid: view }), 4096).map(|page| page[4]), Ok(1));
    let zeroes = NvmeCommand::WriteZeroes { blocks: Blocks::new(1, 0, 1), deac: false };
    for (what, command, data) in [
        ("create", open(OpenAction::Create, 0), space("new", &[1], 1)),
        ("resize", open(OpenAction::Resize, id), space("", &[3], 0)),
        ("delete", entry(0x0c, NSID_ND, &[(12, id as u32)]), Data::None),
        ("write a box", nd(NvmeCommand::NdWrite(at(view, &[3], &[1]))), Data::Send(vec![1; 512])),
        ("write zeroes", block(zeroes), Data::None),
        ("delete, as the NVM set has it", block(NvmeCommand::DeleteSpace { space: id }), Data::None),
    ] {
        assert_eq!(code(run(&host, &command, &data)), (0, 0x20, true), "{what}");
    }
    assert_eq!(host.io(&entry(0x08, NSID_ND, &[(10, view)])).0, Status::SUCCESS, "close");
}

#[test]
fn admin_commands_and_hosts_are_refused_with_their_codes() {
    let host = Host::with(SubsystemOptions { hosts: vec!["nqn.host".to_owned()], ..SubsystemOptions::default() });
    let admin = |opcode, words: &[(usize, u32)]| code(host.admin(&entry(opcode, 0, words)).0);
    assert_eq!(admin(0x00, &[]), (0, 0x01, true), "delete I/O submission queue");
    assert_eq!(admin(AdminOpcode::SetFeatures as u8, &[(10, 0x04)]), (1, 0x0e, true));
    assert_eq!(admin(AdminOpcode::SetFeatures as u8, &[(10, 0x70)]), (0, 0x02, true));
    assert_eq!(code(host.log_part(0x55, 0, 64, 0, false).unwrap_err()), (1, 0x09, true));
    assert_eq!(
        host.admin(&entry(AdminOpcode::Abort as u8, 0, &[(10, 1 << 16)])),
        (Status::SUCCESS, 1),
        "never aborted"
    );
    let fused = SubmissionEntry { flags: 2, ..entry(AdminOpcode::KeepAlive as u8, 0, &[]) };
    assert_eq!(code(host.admin(&fused).0), (0, 0x02, true));
    assert_eq!(
        code(host.admin(&SubmissionEntry::new(FABRICS_OPCODE, FabricsType::Connect as u32, 7)).0),
        (0, 0x0c, true),
        "connect twice"
    );
    assert_eq!(code(host.admin(&SubmissionEntry::new(FABRICS_OPCODE, 0x08, 7)).0), (0, 0x02, true), "disconnect");
    let identity = |hostnqn: &str, subnqn: &str| HostIdentity {
        hostid: [0; 16],
        hostnqn: hostnqn.to_owned(),
        subnqn: subnqn.to_owned(),
        local: None,
        peer: None,
    };
    let connect = |hostnqn, subnqn| {
        let refused = host.subsystem.associate(identity(hostnqn, subnqn), 0).unwrap_err();
        (code(refused.0), refused.1)
    };
    let nqn = host.subsystem.nqn().to_owned();
    assert_eq!(connect("nqn.host", "nqn.other"), ((1, 0x82, true), 1 << 16 | 256));
    assert_eq!(connect("", &nqn), ((1, 0x82, true), 1 << 16 | 512));
    assert_eq!(connect("nqn.stranger", &nqn), ((1, 0x84, true), 0));
    let there: Vec<_> = (1..512).map(|_| host.subsystem.associate(identity("nqn.host", &nqn), 0).unwrap()).collect();
    assert_eq!(connect("nqn.host", &nqn), ((1, 0x81, false), 0), "512 hosts are connected");
    let ids: std::collections::BTreeSet<u16> = host.subsystem.associations().iter().map(|a| a.cntlid()).collect();
    assert!(ids.len() == 512 && ids.iter().all(|id| (1..0xfff0).contains(id)), "{ids:?}");
    drop(there);
    assert!(host.subsystem.associate(identity("nqn.host", &nqn), 0).is_ok(), "a place is free again");
    for (qid, hostnqn, fits) in
        [(1, "nqn.host", true), (64, "nqn.host", true), (65, "nqn.host", false), (1, "x", false)]
    {
        assert_eq!(host.association.check_queue(qid, hostnqn).is_ok(), fits, "queue {qid} of {hostnqn}");
    }
}

/// `| 0h/01h | Invalid Command Opcode | when | ... |`: every row is a status, and every status has its row.
#[test]
fn the_reference_has_a_row_for_every_status() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/nvme.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = Vec::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some((sct, sc)) = cells.get(1).and_then(|cell| cell.split_once("h/")) else { continue };
        let number = |hex: &str| u8::from_str_radix(hex.trim_end_matches('h'), 16);
        let (Ok(sct), Ok(sc)) = (number(sct), number(sc)) else { continue };
        rows.push((sct, sc, cells[2].to_owned(), cells[3].contains("no DNR")));
    }
    let wanted = |(status, name): &(Status, &str)| {
        // Reading may succeed later: the table says it of one of two reasons.
        let retry = !status.dnr() || *status == Status::UNRECOVERED_READ_ERROR;
        (status.sct(), status.sc(), (*name).to_owned(), retry)
    };
    let mut all: Vec<_> = Status::ALL.iter().filter(|(status, _)| *status != Status::SUCCESS).map(wanted).collect();
    all.sort();
    rows.sort();
    for (row, status) in rows.iter().zip(&all) {
        assert_eq!(row, status);
    }
    assert_eq!(rows.len(), all.len());
}
