//! Program slots, range sets and executions: random commands beside a reference of the slots' states, the limits, and
//! executions whose outputs appear together or not at all.

#[path = "../../../nandarray-cores/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use nandarray::nvme::{Status, SubmissionEntry};
use zerocopy::IntoBytes;

use super::{Answer, Host, MEMORY, entry, number};
use crate::budget::OutputMemory;
use crate::running::{RunCommand, RunLimits};
use crate::{NSID_MEMORY, NSID_ND, NSID_PROGRAMS, SubsystemOptions};
use nandarray_nvme_spec::{AdminOpcode, MemoryRange};

const RISCV: u32 = 0xc0 << 16;

/// A slot by the reference: its state, with the identifier and the size that its parts name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Loading { id: u64, size: u32, arrived: u32 },
    Loaded { id: u64 },
    Active { id: u64 },
}

/// A part of a program, as its host means it.
#[derive(Clone, Copy, Debug)]
struct Part {
    pind: u16,
    kind: u32,
    size: u32,
    id: u64,
    offset: u32,
    bytes: u32,
}

impl Part {
    fn entry(&self) -> SubmissionEntry {
        let mut made = entry(AdminOpcode::LoadProgram as u8, 0, &[(10, u32::from(self.pind) | self.kind)]);
        made.set_cdw(11, self.size);
        made.set_cdw_pair(12, self.id);
        made.set_cdw(14, self.bytes);
        made.set_cdw(15, self.offset);
        made
    }
}

/// Returns the status of a part, in the order of the checks of the reference page, and the slot afterwards.
fn loaded(slot: Option<Slot>, part: &Part, is_program: bool) -> (Status, Option<Slot>) {
    let refused = |status| (status, slot);
    if part.pind == 0 || part.pind > 64 {
        return refused(Status::PROGRAM_INDEX);
    }
    if part.kind != RISCV {
        return refused(Status::PROGRAM_TYPE);
    }
    if part.size == 0 || part.size > 16 << 20 {
        return refused(Status::PROGRAM_TOO_BIG);
    }
    if u64::from(part.offset) + u64::from(part.bytes) > u64::from(part.size) {
        return refused(Status::INVALID_FIELD);
    }
    let before = match slot {
        Some(Slot::Loaded { .. } | Slot::Active { .. }) => return refused(Status::PROGRAM_IN_USE),
        // The first part begins anew.
        _ if part.offset == 0 => (part.id, part.size, 0),
        None => return refused(Status::SEQUENCE_ERROR),
        Some(Slot::Loading { id, size, arrived }) => (id, size, arrived),
    };
    if before != (part.id, part.size, part.offset) {
        return refused(Status::INVALID_FIELD);
    }
    let arrived = part.offset + part.bytes;
    match (arrived == part.size, is_program) {
        (false, _) => (Status::SUCCESS, Some(Slot::Loading { id: part.id, size: part.size, arrived })),
        (true, true) => (Status::SUCCESS, Some(Slot::Loaded { id: part.id })),
        (true, false) => (Status::PROGRAM_DATA, None),
    }
}

fn draw(rng: &mut Rng, slots: &BTreeMap<u16, Slot>, elf: &[u8]) -> Part {
    let pind = [1, 1, 2, 2, 3, 64, 0, 65][rng.usize(..8)];
    let all = elf.len() as u32;
    let (id, size, offset) = match slots.get(&pind) {
        Some(&Slot::Loading { id, size, arrived }) if rng.u8(..6) > 0 => (id, size, arrived),
        _ => (rng.u64(..3), all, 0),
    };
    let bytes = if rng.bool() { size - offset } else { rng.u32(1..=(size - offset).max(1)) };
    let mut part = Part { pind, kind: RISCV, size, id, offset, bytes };
    match rng.u8(..24) {
        0 => part.kind = [0, 1 << 16, 0xff << 16][rng.usize(..3)],
        1 => part.size = [0, (16 << 20) + 1, u32::MAX, all + 1][rng.usize(..4)],
        2 => part.id ^= 1,
        3 => part.offset = [1, u32::MAX, all][rng.usize(..3)],
        _ => {}
    }
    part
}

fn activation(pind: u16, select: u32) -> SubmissionEntry {
    entry(AdminOpcode::ActivateProgram as u8, 0, &[(10, u32::from(pind) | select << 16)])
}

fn unload(pind: u16) -> SubmissionEntry {
    entry(AdminOpcode::LoadProgram as u8, 0, &[(10, u32::from(pind) | RISCV | 1 << 24)])
}

/// Draws and executes one command; checks its status, and changes the reference.
fn step(host: &Host, slots: &mut BTreeMap<u16, Slot>, rng: &mut Rng, elf: &[u8], context: &str) {
    let pind = [1, 2, 3, 64, 0, 65][rng.usize(..6)];
    let slot = slots.get(&pind).copied();
    let none = pind == 0 || pind > 64;
    let (found, wanted, after, pind) = match rng.u8(..8) {
        0 => {
            let wanted = match slot {
                _ if none => Status::PROGRAM_INDEX,
                None => Status::NO_PROGRAM,
                Some(Slot::Active { .. }) => Status::PROGRAM_IN_USE,
                Some(_) => Status::SUCCESS,
            };
            let after = if wanted.ok() { None } else { slot };
            (host.admin(&unload(pind)).0, wanted, after, pind)
        }
        1 | 2 => {
            let select = [0, 1, 1, 2, 15][rng.usize(..5)];
            let (wanted, after) = match (select, slot) {
                _ if none => (Status::PROGRAM_INDEX, slot),
                (0 | 1, None | Some(Slot::Loading { .. })) => (Status::NO_PROGRAM, slot),
                (0, Some(Slot::Loaded { .. })) => (Status::NOT_ACTIVATED, slot),
                (0, Some(Slot::Active { id })) => (Status::SUCCESS, Some(Slot::Loaded { id })),
                (1, Some(Slot::Loaded { id } | Slot::Active { id })) => (Status::SUCCESS, Some(Slot::Active { id })),
                _ => (Status::INVALID_FIELD, slot),
            };
            (host.admin(&activation(pind, select)).0, wanted, after, pind)
        }
        _ => {
            let part = draw(rng, slots, elf);
            let (at, end) = (part.offset as usize, part.offset as usize + part.bytes.min(4096) as usize);
            let mut data = elf.get(at..end).map_or_else(|| vec![0; part.bytes.min(4096) as usize], <[u8]>::to_vec);
            data.resize(part.bytes as usize, 0);
            let is_program = part.size as usize == elf.len();
            let (wanted, after) = loaded(slots.get(&part.pind).copied(), &part, is_program);
            (host.admin_send(&part.entry(), &data).0, wanted, after, part.pind)
        }
    };
    assert_eq!(found, wanted, "{context}, slot {pind}: {slot:?}");
    match after {
        Some(slot) => drop(slots.insert(pind, slot)),
        None => drop(slots.remove(&pind)),
    }
}

#[test]
fn slots_go_from_state_to_state_as_the_reference_says() {
    let elf = common::by_hand();
    for seed in 0..25 {
        let mut rng = Rng::with_seed(seed);
        let (host, mut slots) = (Host::new(), BTreeMap::new());
        for number_of_step in 0..150 {
            let context = format!("seed {seed}, step {number_of_step}");
            step(&host, &mut slots, &mut rng, &elf, &context);
            if number_of_step % 10 > 0 {
                continue;
            }
            let page = host.log(0x82, 4096);
            for (pind, found) in (1..).zip(page.chunks(64)) {
                let (state, id) = match slots.get(&pind) {
                    None => (0, 0),
                    Some(&Slot::Loading { id, .. }) => (2, id),
                    Some(&Slot::Loaded { id }) => (1, id),
                    Some(&Slot::Active { id }) => (1 | 1 << 2, id),
                };
                let kind = if state == 0 { 0 } else { 0xc0 };
                assert_eq!((found[0], found[1], number(&found[8..16])), (state, kind, id), "slot {pind}, {context}");
            }
            // A reset of the controller is no reset of the subsystem.
            host.enable(false);
            host.enable(true);
        }
    }
}

fn load(host: &Host, pind: u16, elf: &[u8]) -> Status {
    let size = elf.len() as u32;
    let part = Part { pind, kind: RISCV, size, id: 1, offset: 0, bytes: size };
    host.admin_send(&part.entry(), elf).0
}

fn range_set(host: &Host, ranges: &[MemoryRange], count: u32) -> Answer {
    host.admin_send(&entry(AdminOpcode::MemoryRangeSet as u8, 0, &[(11, count)]), ranges.as_bytes())
}

#[test]
fn limits_of_programs_and_range_sets_are_told_when_they_are_reached() {
    let (host, elf) = (Host::new(), common::by_hand());
    for pind in 1..=33 {
        assert_eq!(load(&host, pind, &elf), Status::SUCCESS);
        let wanted = if pind == 33 { Status::ACTIVATED_MAX } else { Status::SUCCESS };
        assert_eq!(host.admin(&activation(pind, 1)).0, wanted, "program {pind}");
    }
    assert_eq!(host.admin(&activation(5, 0)).0, Status::SUCCESS);
    assert_eq!(host.admin(&activation(33, 1)).0, Status::SUCCESS, "a place is free again");
    // Sizes that are announced count before their bytes arrive.
    let announced = |pind, size| {
        let part = Part { pind, kind: RISCV, size, id: 1, offset: 0, bytes: 4 };
        host.admin_send(&part.entry(), &[0; 4]).0
    };
    let rest = (128 << 20) - 33 * elf.len() as u32;
    for pind in 34..41 {
        assert_eq!(announced(pind, 16 << 20), Status::SUCCESS, "program {pind}");
    }
    let left = rest - 7 * (16 << 20);
    assert_eq!(announced(41, left + 1), Status::PROGRAM_BYTES_MAX);
    assert_eq!(announced(41, left), Status::SUCCESS, "all of 128 MiB");
    assert_eq!(announced(41, left), Status::SUCCESS, "again from the beginning: its own size counts once");
    assert_eq!(announced(42, 4), Status::PROGRAM_BYTES_MAX);
    assert_eq!(host.admin(&unload(34)).0, Status::SUCCESS);
    assert_eq!(announced(42, 16 << 20), Status::SUCCESS);

    let range = |sb, len| MemoryRange::new(NSID_MEMORY, sb, len);
    for id in 1..=64 {
        assert_eq!(range_set(&host, &[range(0, 8)], 1), (Status::SUCCESS, id));
    }
    assert_eq!(range_set(&host, &[range(0, 8)], 1).0, Status::RANGE_SETS_MAX);
    let delete = |id: u32| host.admin(&entry(AdminOpcode::MemoryRangeSet as u8, 0, &[(10, 1 | id << 16)]));
    assert_eq!(delete(9), (Status::SUCCESS, 9));
    assert_eq!(delete(9), (Status::RANGE_SET_ID, 0));
    assert_eq!(delete(0).0, Status::RANGE_SET_ID);
    assert_eq!(range_set(&host, &[range(8, 8), range(0, 8)], 2), (Status::SUCCESS, 9), "the free identifier");
    let page = host.log(0x84, 512);
    assert_eq!((&page[..8], &page[64..72]), (&[1, 0, 1, 0, 0, 0, 0, 0][..], &[9, 0, 2, 0, 0, 0, 0, 0][..]));
}

#[test]
fn ranges_of_a_set_lie_in_memory_and_apart() {
    let host = Host::new();
    let (memory, end) = (NSID_MEMORY, MEMORY as u64);
    let range = MemoryRange::new;
    for (what, ranges, wanted) in [
        ("side by side", vec![range(memory, 0, 8), range(memory, 8, 8)], Status::SUCCESS),
        ("one byte in common", vec![range(memory, 0, 9), range(memory, 8, 8)], Status::RANGES_OVERLAP),
        ("one within another", vec![range(memory, 0, 100), range(memory, 50, 1)], Status::RANGES_OVERLAP),
        ("an empty one within another", vec![range(memory, 0, 100), range(memory, 50, 0)], Status::SUCCESS),
        ("the same place in two namespaces", vec![range(memory, 0, 512), range(1, 0, 512)], Status::SUCCESS),
        ("one stored box twice", vec![range(NSID_ND, 1, 0), range(NSID_ND, 1, 0)], Status::SUCCESS),
        ("up to the end", vec![range(memory, end - 8, 8)], Status::SUCCESS),
        ("beyond the end", vec![range(memory, end - 8, 9)], Status::MEMORY_RANGE),
        ("beyond all numbers", vec![range(memory, u64::MAX, 8)], Status::MEMORY_RANGE),
        ("no namespace", vec![range(0, 0, 8)], Status::MEMORY_NAMESPACE),
        ("all namespaces", vec![range(u32::MAX, 0, 8)], Status::MEMORY_NAMESPACE),
    ] {
        assert_eq!(range_set(&host, &ranges, ranges.len() as u32).0, wanted, "{what}");
    }
    let many: Vec<MemoryRange> = (0..33).map(|i| range(memory, 8 * i, 8)).collect();
    assert_eq!(range_set(&host, &many, 33).0, Status::RANGES_MAX);
    assert_eq!(range_set(&host, &many[..2], 3).0, Status::DATA_LENGTH_INVALID);
    assert_eq!(range_set(&host, &many, 32).0, Status::SUCCESS, "more data than ranges");
    let other = entry(AdminOpcode::MemoryRangeSet as u8, 0, &[(10, 2)]);
    assert_eq!(host.admin_send(&other, many.as_bytes()).0, Status::INVALID_FIELD, "neither make nor delete");
}

/// A host with the program by hand in slot 1, active: it copies its input to its first output, and writes a hash to its
/// second.
pub(super) fn ready() -> Host {
    ready_with(SubsystemOptions::default())
}

fn ready_with(options: SubsystemOptions) -> Host {
    let host = Host::with(options);
    assert_eq!(load(&host, 1, &common::by_hand()), Status::SUCCESS);
    assert_eq!(host.admin(&activation(1, 1)).0, Status::SUCCESS);
    host
}

fn write_memory(host: &Host, at: u64, bytes: &[u8]) {
    let write = entry(0x05, NSID_MEMORY, &[(10, at as u32), (12, bytes.len() as u32)]);
    assert_eq!(host.send(&write, bytes).0, Status::SUCCESS);
}

fn memory(host: &Host) -> Vec<u8> {
    host.fetch(&entry(0x02, NSID_MEMORY, &[(12, MEMORY as u32)]), MEMORY).unwrap()
}

/// Executes the program in a slot with ranges in front of its data, and these scalars behind them.
pub(super) fn execute(host: &Host, pind: u32, rsid: u32, ranges: &[MemoryRange], scalars: &[u64]) -> Answer {
    let command = entry(0x01, NSID_PROGRAMS, &[(2, pind | rsid << 16), (3, ranges.len() as u32)]);
    host.send(&command, &[ranges.as_bytes(), scalars.as_bytes()].concat())
}

#[test]
fn an_execution_writes_its_outputs_together_or_not_at_all() {
    let host = ready();
    let items: Vec<u64> = (0..512).map(|i| i * i + 3).collect();
    write_memory(&host, 0, items.as_bytes());
    let before = memory(&host);
    let range = |sb, len| MemoryRange::new(NSID_MEMORY, sb, len);
    let (from, to, all) = (range(0, 4096), range(8192, 4096), range(16384, 8));
    let never = [u64::MAX; 3];
    let log = |host: &Host| {
        let page = host.log(0xc1, 256);
        String::from_utf8(page.into_iter().take_while(|byte| *byte != 0).collect()).unwrap()
    };
    for (what, ranges, scalars, wanted) in [
        ("a task that fails", vec![from, to, all], [0, u64::MAX, u64::MAX], Status::PROGRAM_FAILED),
        ("a trap", vec![from, to, all], [u64::MAX, 0, u64::MAX], Status::PROGRAM_FAILED),
        ("an output too small", vec![from, range(8192, 4088), all], never, Status::MEMORY_RANGE),
        ("a second output too small", vec![from, to, range(16384, 7)], never, Status::MEMORY_RANGE),
        ("an output too few", vec![from, to], never, Status::INVALID_FIELD),
        ("half an element", vec![range(0, 4092), to, all], never, Status::INVALID_FIELD),
        ("no such box", vec![MemoryRange::new(NSID_ND, 1, 0), to, all], never, Status::INVALID_BOX),
        ("a handle of 33 bits", vec![MemoryRange::new(NSID_ND, 1 << 32, 0), to, all], never, Status::INVALID_BOX),
        ("blocks that are cut", vec![MemoryRange::new(1, 256, 512), to, all], never, Status::LBA_OUT_OF_RANGE),
        ("no blocks", vec![MemoryRange::new(1, 0, 0), to, all], never, Status::LBA_OUT_OF_RANGE),
        ("blocks outside", vec![MemoryRange::new(1, 512 * 63, 1024), to, all], never, Status::LBA_OUT_OF_RANGE),
        ("no namespace", vec![MemoryRange::new(9, 0, 512), to, all], never, Status::MEMORY_NAMESPACE),
        ("programs", vec![MemoryRange::new(NSID_PROGRAMS, 0, 512), to, all], never, Status::MEMORY_NAMESPACE),
        ("too large a number", vec![MemoryRange::new(2000, 0, 512), to, all], never, Status::MEMORY_NAMESPACE),
    ] {
        let earlier = log(&host);
        assert_eq!(execute(&host, 1, 0, &ranges, &scalars).0, wanted, "{what}: {}", log(&host));
        assert!(!log(&host).is_empty() && log(&host) != earlier, "{what}: {}", log(&host));
        assert!(memory(&host) == before, "{what}");
    }
    assert_eq!(execute(&host, 1, 0, &[from, to, all], &never), (Status::SUCCESS, 4096 + 8));
    let hash = items.iter().fold(0u64, |h, x| h.wrapping_mul(31).wrapping_add(*x));
    let after = memory(&host);
    assert_eq!((&after[8192..12288], number(&after[16384..16392])), (items.as_bytes(), hash));
    assert!(log(&host).starts_with("outputs 4096 8 instructions "), "{}", log(&host));
    // Its account is for this host alone.
    assert_eq!(log(&host.another()), "");
}

#[test]
fn each_execution_keeps_its_own_account() {
    let host = ready();
    let range = |sb, len| MemoryRange::new(NSID_MEMORY, sb, len);
    let tagged = |tag: u32, pind: u32, ranges: &[MemoryRange]| {
        let command = entry(0x01, NSID_PROGRAMS, &[(2, pind), (3, ranges.len() as u32), (14, tag)]);
        host.send(&command, &[ranges.as_bytes(), [u64::MAX; 3].as_bytes()].concat()).0
    };
    let account = |tag: u32| {
        let words = [(10, 0xc1 | 63 << 16), (11, tag << 16)];
        let page = host.admin_fetch(&entry(AdminOpcode::GetLogPage as u8, 0, &words), 256)?;
        Ok(String::from_utf8(page.into_iter().take_while(|byte| *byte != 0).collect()).unwrap())
    };
    let fit = [range(0, 80), range(1024, 80), range(2048, 8)];
    assert_eq!(tagged(1, 1, &[range(0, 80), range(1024, 72), range(2048, 8)]), Status::MEMORY_RANGE);
    assert_eq!(tagged(2, 9, &fit), Status::NO_PROGRAM);
    assert_eq!(tagged(3, 0, &fit), Status::PROGRAM_INDEX);
    assert_eq!(tagged(4, 1, &[range(0, 8); 33]), Status::RANGES_MAX);
    assert_eq!(tagged(5, 1, &[MemoryRange::new(9, 0, 512), fit[1], fit[2]]), Status::MEMORY_NAMESPACE);
    assert_eq!(tagged(6, 1, &fit), Status::SUCCESS);
    let wanted = [
        "outputs 80 8 instructions ",
        "an output of 80 bytes; its range has 72",
        "slot 9, range set 0: No Program",
        "slot 0: must be 1 to 64",
        "33 ranges: a command must have at most 32",
        "range 0, 512 bytes from 0 of namespace 9: Invalid Memory Namespace",
        "outputs 80 8 instructions ",
    ];
    for (tag, wanted) in (0..).zip(wanted) {
        let found: Result<String, Status> = account(tag);
        assert!(found.as_ref().is_ok_and(|text| text.starts_with(wanted)), "{tag}: {found:?}");
    }
    assert_eq!(account(7), Err(Status::INVALID_FIELD), "no execution had this tag");
    // A load that fails has a tag of its own, so that an execution which ends meanwhile does not hide its reason.
    assert_eq!(load(&host, 2, b"no program"), Status::PROGRAM_DATA);
    let why = account(0);
    assert_eq!(tagged(7, 1, &fit), Status::SUCCESS);
    assert!(account(0) != why && why.as_ref().is_ok_and(|text| text.contains("ELF")), "{why:?}");
    assert_eq!(account(0xffff), why);
}

#[test]
fn a_program_of_one_task_has_a_bound_of_memory() {
    let host = Host::new();
    let program = |tasks: &str, room: u64| {
        let metadata = format!(
            r#"{{"abi": 1, "kind": "stream", "tasks": "{tasks}", "inputs": [{{"dtype": "u1"}}],
                "outputs": [{{"dtype": "u1", "bound": {{"fixed": {room}}}, "exact": false}}]}}"#
        );
        common::elf(&[("nd_stream", &["addi a0, zero, 0", "jalr zero, 0(ra)"])], Some(&metadata))
    };
    let range = |sb, len| MemoryRange::new(NSID_MEMORY, sb, len);
    let most = 128 << 20;
    let cases = [
        ("one", most - 7, Status::MEMORY_RANGE),
        ("one", most - 8, Status::SUCCESS),
        // Tasks of a program that may be cut anywhere have a window's bytes at most.
        ("any", most, Status::PROGRAM_FAILED),
    ];
    for (pind, (tasks, room, wanted)) in (1..).zip(cases) {
        assert_eq!(load(&host, pind, &program(tasks, room)), Status::SUCCESS);
        assert_eq!(host.admin(&activation(pind, 1)).0, Status::SUCCESS);
        let done = execute(&host, u32::from(pind), 0, &[range(0, 8), range(1024, 8)], &[]).0;
        let page = String::from_utf8(host.log(0xc1, 256)).unwrap();
        assert_eq!(done, wanted, "{tasks}, {room} bytes: {page}");
        let says = "inputs of 8 bytes and a room of 134217721 for outputs: a program of one task must have at most \
                    134217728 together";
        assert_eq!(page.starts_with(says), wanted == Status::MEMORY_RANGE, "{page}");
    }
}

#[test]
fn a_read_only_export_runs_programs_that_write_nothing_to_the_store() {
    let read_only = true;
    let host = ready_with(SubsystemOptions { read_only, ..SubsystemOptions::default() });
    let range = |sb, len| MemoryRange::new(NSID_MEMORY, sb, len);
    let block = MemoryRange::new(1, 0, 512);
    let view = nandarray::nvme::SpacePage::new("ns/1", &[]);
    let (_, ids) = host.send(&entry(0x05, NSID_ND, &[(10, 1)]), view.as_bytes());
    let page = nandarray::nvme::BoxPage::new(&[1], &[1]);
    let (status, handle) = host.send(&entry(0x0d, NSID_ND, &[(10, ids as u32), (11, 1 | 1 << 8)]), page.as_bytes());
    assert_eq!(status, Status::SUCCESS);
    let boxed = MemoryRange::new(NSID_ND, handle, 0);
    for (what, from, to) in [("blocks", range(0, 512), block), ("a box", range(0, 512), boxed)] {
        let ranges = [from, to, range(2048, 8)];
        assert_eq!(execute(&host, 1, 0, &ranges, &[u64::MAX; 3]).0, Status::WRITE_PROTECTED, "{what}");
        let (status, set) = range_set(&host, &ranges, 3);
        assert_eq!(status, Status::SUCCESS);
        let by_set = execute(&host, 1, set as u32, &[], &[u64::MAX; 3]).0;
        assert_eq!(by_set, Status::WRITE_PROTECTED, "{what}, by a range set");
        assert_eq!(execute(&host, 1, 0, &[to, range(4096, 512), range(2048, 8)], &[u64::MAX; 3]).0, Status::SUCCESS);
    }
    let read = nandarray::nvme::NvmeCommand::Read(nandarray::nvme::Blocks::new(1, 0, 2)).encode(0);
    assert_eq!(host.fetch(&read, 1024), Ok(vec![0; 1024]));
}

#[test]
fn executions_name_a_program_that_is_active_and_a_set_that_is_there() {
    let host = ready();
    let range = |sb, len| MemoryRange::new(NSID_MEMORY, sb, len);
    let ranges = [range(0, 80), range(1024, 80), range(2048, 8)];
    let status = |pind, rsid, ranges: &[MemoryRange]| execute(&host, pind, rsid, ranges, &[u64::MAX; 3]).0;
    assert_eq!(range_set(&host, &ranges, 3), (Status::SUCCESS, 1));
    assert_eq!(status(1, 1, &[]), Status::SUCCESS);
    assert_eq!(status(1, 1, &ranges), Status::INVALID_FIELD, "a set, and ranges");
    assert_eq!(status(1, 2, &[]), Status::RANGE_SET_ID);
    assert_eq!(status(0, 0, &ranges), Status::PROGRAM_INDEX);
    assert_eq!(status(65, 0, &ranges), Status::PROGRAM_INDEX);
    assert_eq!(status(2, 0, &ranges), Status::NO_PROGRAM);
    assert_eq!(status(1, 0, &[range(0, 8); 33]), Status::RANGES_MAX);
    let cut = entry(0x01, NSID_PROGRAMS, &[(2, 1), (3, 3)]);
    assert_eq!(host.send(&cut, &ranges.as_bytes()[..95]).0, Status::DATA_LENGTH_INVALID);
    assert_eq!(host.admin(&activation(1, 0)).0, Status::SUCCESS, "nothing executes it any more");
    assert_eq!(status(1, 1, &[]), Status::NOT_ACTIVATED);
    let delete = entry(AdminOpcode::MemoryRangeSet as u8, 0, &[(10, 1 | 1 << 16)]);
    assert_eq!(host.admin(&delete), (Status::SUCCESS, 1), "nor the set");
    // Blocks in, and blocks out.
    assert_eq!(host.admin(&activation(1, 1)).0, Status::SUCCESS);
    let data: Vec<u8> = (0..4096u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let write = nandarray::nvme::NvmeCommand::Write(nandarray::nvme::Blocks::new(1, 0, 8)).encode(0);
    assert_eq!(host.send(&write, &data).0, Status::SUCCESS);
    let blocks = [MemoryRange::new(1, 0, 4096), MemoryRange::new(1, 8 * 512, 4096), range(0, 8)];
    assert_eq!(status(1, 0, &blocks), Status::SUCCESS);
    let read = nandarray::nvme::NvmeCommand::Read(nandarray::nvme::Blocks::new(1, 8, 8)).encode(0);
    assert!(host.fetch(&read, 4096).unwrap() == data);
}

#[test]
fn a_host_aborts_its_own_executions_alone() {
    let host = ready();
    let other = host.another();
    let outputs = Arc::new(OutputMemory::new(&host.association.tenant().budget, &host.association.tenant().spool));
    let limits = RunLimits { instructions_max: 1, time_max: Duration::from_secs(60), outputs };
    let command = RunCommand { qid: 3, cid: 8 };
    let running = host.association.running.begin(&AtomicU64::new(0), command, true, limits);
    let abort =
        |host: &Host, qid: u32, cid: u32| host.admin(&entry(AdminOpcode::Abort as u8, 0, &[(10, qid | cid << 16)]));
    for (host, qid, cid) in [(&other, 3, 8), (&host, 3, 9), (&host, 2, 8)] {
        assert_eq!(abort(host, qid, cid), (Status::SUCCESS, 1), "queue {qid}, command {cid}: not aborted");
    }
    assert!(!running.progress().stop.load(Ordering::SeqCst));
    assert_eq!(abort(&host, 3, 8), (Status::SUCCESS, 0));
    assert!(running.progress().stop.load(Ordering::SeqCst));
    assert!(running.stopped().is_some_and(|why| why.ends_with("was aborted by its host")));
}
