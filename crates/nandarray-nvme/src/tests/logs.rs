//! Log pages: parts of them, counters and errors of known commands, and effects beside what the commands do.

use std::collections::VecDeque;

use fastrand::Rng;
use nandarray::nvme::{Blocks, NvmeCommand, Status};

use super::{Host, entry, number};
use crate::{NSID_MEMORY, NSID_ND, NSID_PROGRAMS, SubsystemOptions};
use nandarray_nvme_spec::{AdminOpcode, FABRICS_OPCODE};

#[test]
fn any_part_of_a_log_page_is_that_part_of_the_whole() {
    let host = Host::new();
    for (name, nsid) in [("two", 2), ("nine hundred", 900)] {
        host.create_namespace(nsid, 3, 512);
        assert_eq!(host.identify(0, 0, nsid + 50), Err(Status::INVALID_NAMESPACE), "an error for the log: {name}");
    }
    host.subsystem.namespaces_changed(&[2, 900]);
    let seed = 8;
    let mut rng = Rng::with_seed(seed);
    // The page's own length in bytes; behind it, zeroes.
    let pages = [(0x00, 1024), (0x01, 1024), (0x02, 512), (0x03, 512), (0x04, 4096), (0x05, 4096), (0x12, 1024)];
    for (page, bytes) in pages.into_iter().chain([(0x82, 4096)]) {
        let whole = host.log_part(page, 0, 8192, 0, true).unwrap();
        assert!(whole[bytes..].iter().all(|byte| *byte == 0), "page {page:#x} has {bytes} bytes");
        for _ in 0..40 {
            let (at, count) = (4 * rng.usize(..=bytes / 4), 4 * rng.usize(1..600));
            let part = host.log_part(page, at as u64, count, 0, true).unwrap();
            assert!(part == whole[at..at + count], "{count} bytes at {at} of page {page:#x}, seed {seed}");
        }
        for refused in [bytes as u64 + 4, u64::MAX - 3, 1, 2, 511] {
            let found = host.log_part(page, refused, 16, 0, true);
            assert_eq!(found, Err(Status::INVALID_FIELD), "from byte {refused} of page {page:#x}");
        }
    }
    // A length other than that of the buffer; the largest number of dwords, which no buffer has.
    let words = [(10, 0x02 | 7 << 16)];
    assert_eq!(
        host.admin_fetch(&entry(AdminOpcode::GetLogPage as u8, 0, &words), 28),
        Err(Status::DATA_LENGTH_INVALID)
    );
    let most = [(10, 0x02 | 0xffff << 16), (11, 0xffff)];
    assert_eq!(host.admin_fetch(&entry(AdminOpcode::GetLogPage as u8, 0, &most), 4), Err(Status::DATA_LENGTH_INVALID));
    assert_eq!(
        host.admin(&entry(AdminOpcode::GetLogPage as u8, 0, &words)).0,
        Status::DATA_LENGTH_INVALID,
        "no buffer"
    );
}

#[test]
fn health_counts_blocks_and_the_error_log_has_the_newest_failures_first() {
    let host = Host::new();
    let seed = 4;
    let mut rng = Rng::with_seed(seed);
    let (mut reads, mut writes, mut read, mut written, mut failed) = (0u64, 0u64, 0u64, 0u64, 0u64);
    let mut errors: VecDeque<[u64; 7]> = VecDeque::new();
    for step in 0..300u16 {
        let blocks = Blocks::new(rng.u32(1..=2), rng.u64(..70), rng.u32(1..9));
        let mut made = if rng.bool() { NvmeCommand::Read(blocks) } else { NvmeCommand::Write(blocks) }.encode(step);
        let (bytes, qid) = ((usize::from(blocks.nlb_z) + 1) * 512, 1);
        made.cid.set(step);
        let status = match made.opcode {
            0x02 => host.fetch(&made, bytes).err().unwrap_or(Status::SUCCESS),
            _ => host.send(&made, &vec![step as u8; bytes]).0,
        };
        let wanted = match blocks {
            Blocks { nsid: 2, .. } => Status::INVALID_NAMESPACE,
            Blocks { slba, nlb_z, .. } if slba + u64::from(nlb_z) >= super::BLOCKS => Status::LBA_OUT_OF_RANGE,
            _ => Status::SUCCESS,
        };
        assert_eq!(status, wanted, "seed {seed}, step {step}: {blocks:?}");
        let (of, moved) = if made.opcode == 0x02 { (&mut reads, &mut read) } else { (&mut writes, &mut written) };
        if status.ok() {
            (*of, *moved) = (*of + 1, *moved + bytes as u64);
        } else {
            failed += 1;
            let code = u64::from(status.bits()) << 1;
            // The first block that is outside, and the byte of the entry: SLBA, or NSID.
            let (lba, location) = if blocks.nsid == 1 { (blocks.slba.max(super::BLOCKS), 40) } else { (0, 4) };
            errors.push_front([failed, qid, step.into(), code, blocks.nsid.into(), lba, location]);
            errors.truncate(16);
        }
    }
    let page = host.log(0x02, 512);
    let fields = [(1, 2, 300), (3, 1, 100), (4, 1, 10), (5, 1, 0), (64, 8, reads), (80, 8, writes), (176, 8, failed)];
    let service = [(112, 8, 1), (128, 8, 0), (144, 8, 0)];
    let units = [(32, 8, read.div_ceil(512_000)), (48, 8, written.div_ceil(512_000)), (160, 8, 0)];
    for (at, bytes, value) in fields.into_iter().chain(units).chain(service) {
        assert_eq!(number(&page[at..at + bytes]), value, "byte {at} of health");
    }
    let log = host.log(0x01, 1024);
    assert_eq!(errors.len(), 16);
    for (wanted, found) in errors.iter().zip(log.chunks(64)) {
        let field = |at: usize, bytes: usize| number(&found[at..at + bytes]);
        // Error count, queue, command, status field, namespace, block, parameter.
        let told = [(0, 8), (8, 2), (10, 2), (12, 2), (24, 4), (16, 8), (14, 2)].map(|(at, bytes)| field(at, bytes));
        assert_eq!(told, *wanted, "seed {seed}");
    }
    let names = [("reads", reads), ("writes", writes), ("bytes_read", read), ("bytes_written", written)];
    assert_eq!(host.subsystem.numbers(), [&names[..], &[("failed", failed)]].concat());
}

#[test]
fn pages_and_features_are_supported_if_they_are_answered() {
    for (programs, nd) in [(true, true), (false, false)] {
        let host = Host::with(SubsystemOptions { programs, nd, ..SubsystemOptions::default() });
        let (pages, features) = (host.log(0x00, 1024), host.log(0x12, 1024));
        for number in 0..=255u8 {
            let at = 4 * usize::from(number);
            let page = host.log_part(number, 0, 4, 0, true);
            assert_eq!(pages[at] & 1 == 1, page != Err(Status::INVALID_LOG_PAGE), "page {number:#x}: {page:?}");
            let command = entry(AdminOpcode::GetFeatures as u8, 1, &[(10, u32::from(number))]);
            let told = host.admin_fetch(&command, 16);
            assert_eq!(features[at] & 1 == 1, told.is_ok(), "feature {number:#x}: {told:?}");
        }
    }
    let host = Host::new();
    let health = |nsid: u32| {
        let words = [(10, 0x02 | 127 << 16)];
        host.admin_fetch(&entry(AdminOpcode::GetLogPage as u8, nsid, &words), 512).err()
    };
    let subsystem_alone = host.identify(1, 0, 0).unwrap()[261] & 1 == 0;
    assert!(subsystem_alone, "LPA: health is not told of each namespace");
    let asked = [0, u32::MAX, 1, NSID_ND, 77, 2000].map(health);
    let (of_one, of_none) = (Some(Status::INVALID_FIELD), Some(Status::INVALID_NAMESPACE));
    assert_eq!(asked, [None, None, of_one, of_one, of_none, of_none]);
}

/// Whether the log of effects has a command of this opcode, as an admin command or of a command set.
fn listed(host: &Host, csi: u8, admin: bool, opcode: u8) -> (bool, bool) {
    let at = if admin { 0 } else { 1024 } + 4 * usize::from(opcode);
    // A command set that is not there has no log.
    let Ok(page) = host.log_part(0x05, 0, 4096, csi, true) else { return (false, false) };
    (page[at] & 1 == 1, page[at] >> 1 & 1 == 1)
}

#[test]
fn the_log_of_effects_lists_the_commands_that_there_are() {
    for (programs, nd, read_only) in
        [(true, true, false), (true, true, true), (false, false, false), (true, false, false)]
    {
        let host = Host::with(SubsystemOptions { programs, nd, read_only, ..SubsystemOptions::default() });
        let sets = [(0, 1, true), (3, NSID_MEMORY, programs), (4, NSID_PROGRAMS, programs), (0x30, NSID_ND, nd)];
        for (csi, nsid, there) in sets {
            for opcode in (0..=255).filter(|opcode| *opcode != FABRICS_OPCODE) {
                // Dword 12 names no space, dword 10 opens one by its identifier.
                let (status, _) = host.io(&entry(opcode, nsid, &[(12, 99)]));
                let refused = [Status::INVALID_OPCODE, Status::WRITE_PROTECTED, Status::INVALID_NAMESPACE];
                let (supported, changes) = listed(&host, csi, false, opcode);
                let context = format!("opcode {opcode:#x} of set {csi:#x}: {status}, read-only {read_only}");
                assert_eq!(supported, there && !refused.contains(&status), "{context}");
                assert!(!changes || supported && !(read_only && matches!(csi, 0 | 0x30)), "{context}");
            }
        }
        for opcode in (0..=255).filter(|opcode| ![FABRICS_OPCODE, AdminOpcode::AsyncEvent as u8].contains(opcode)) {
            let (status, _) = host.admin(&entry(opcode, 0, &[]));
            let wanted = status != Status::INVALID_OPCODE;
            assert_eq!(listed(&host, 0, true, opcode), (wanted, false), "admin opcode {opcode:#x}: {status}");
        }
    }
}

#[test]
fn a_drive_without_nd_commands_has_them_under_no_opcode() {
    let host = Host::with(SubsystemOptions { nd: false, ..SubsystemOptions::default() });
    for opcode in [0x81, 0x82, 0x85, 0x86, 0x88, 0x8c] {
        for nsid in [1, 77, 5000] {
            let command = entry(opcode, nsid, &[(10, 1)]);
            assert_eq!(host.io(&command).0, Status::INVALID_OPCODE, "opcode {opcode:#x} of namespace {nsid}");
            assert!(!host.association.has_written(&command), "opcode {opcode:#x} of namespace {nsid}");
        }
        assert_eq!(listed(&host, 0, false, opcode), (false, false), "opcode {opcode:#x}");
    }
    assert_eq!(host.identify(1, 0, 0).unwrap()[3072..3104], [0; 32], "the controller tells of none");
    assert_eq!(Host::new().identify(1, 0, 0).unwrap()[3072..3080], *b"NDSPACES");
}

#[test]
fn names_and_firmware_are_those_of_the_store() {
    let host = Host::new();
    for nsid in [77, 3, 1030] {
        host.create_namespace(nsid, 1, 512);
    }
    let page = host.log(0xc0, 256);
    assert_eq!(number(&page[..4]), 4);
    let (mut at, mut names) = (4, Vec::new());
    for _ in 0..4 {
        let bytes = number(&page[at..at + 2]) as usize;
        names.push(std::str::from_utf8(&page[at + 2..at + 2 + bytes]).unwrap());
        at += 2 + bytes;
    }
    assert_eq!(names, ["ns/1", "ns/1030", "ns/3", "ns/77"]);
    let page = host.log(0x03, 512);
    assert_eq!((page[0], &page[8..16]), (1, format!("{:8}", nandarray::VERSION).as_bytes()));
    assert_eq!(host.log_part(0x06, 0, 64, 0, false), Err(Status::INVALID_LOG_PAGE));
    host.runtime.device().close().unwrap();
    assert_eq!(host.log_part(0xc0, 0, 64, 0, false), Err(Status::NOT_READY));
}
