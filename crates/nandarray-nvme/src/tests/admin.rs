//! Properties, features and identify, field by field against the offsets of the specification.

use std::collections::BTreeMap;

use fastrand::Rng;
use nandarray::nvme::{Controller, Status};

use super::{BLOCKS, Host, MEMORY, entry, number, property_set};
use crate::{NSID_MEMORY, NSID_ND, NSID_PROGRAMS, SubsystemOptions};
use nandarray_nvme_spec::{AdminOpcode, FABRICS_OPCODE, FabricsType, Property, SubmissionEntry};

fn property_get(offset: u32, wide: bool) -> nandarray::nvme::SubmissionEntry {
    let mut entry = SubmissionEntry::new(FABRICS_OPCODE, FabricsType::PropertyGet as u32, 7);
    entry.set_cdw(10, wide.into());
    entry.set_cdw(11, offset);
    entry
}

#[test]
fn properties_have_the_sizes_and_bits_of_their_registers() {
    let host = Host::new();
    let (_, cap) = host.admin(&property_get(Property::CAP, true));
    // MQES, CQR, AMS, TO, DSTRD, NSSRS, CSS NVM, CSS all I/O command sets, MPSMIN, MPSMAX, CRWMS, CRIMS.
    let fields = [(0, 16, 127), (16, 1, 1), (17, 2, 0), (24, 8, 15), (32, 4, 0), (36, 1, 1), (37, 1, 1), (43, 1, 1)];
    for (at, bits, value) in fields.into_iter().chain([(44, 1, 0), (48, 4, 0), (52, 4, 0), (59, 1, 1), (60, 1, 0)]) {
        assert_eq!(cap >> at & ((1 << bits) - 1), value, "bits from {at} of CAP {cap:#x}");
    }
    let known: BTreeMap<u32, u32> =
        [(0x00, 8), (0x08, 4), (0x14, 4), (0x1c, 4), (0x20, 4), (0x68, 4)].into_iter().collect();
    for offset in (0..0x100).chain([0xe14, 0xf00, 0xffc, 0x1000, u32::MAX]) {
        for bytes in [4, 8] {
            let (status, value) = host.admin(&property_get(offset, bytes == 8));
            // Reserved properties are zero, in either width.
            let part = (offset..offset.saturating_add(bytes))
                .any(|at| known.iter().any(|(first, bytes)| (*first..first + bytes).contains(&at)));
            let reserved = offset < 0x1000 && offset % bytes == 0 && !part;
            let there = known.get(&offset) == Some(&bytes) || reserved;
            assert_eq!(status.ok(), there, "{bytes} bytes at {offset:#x}: {status}");
            assert!(status.ok() || status == Status::INVALID_FIELD, "{bytes} bytes at {offset:#x}: {status}");
            assert!(!reserved || value == 0, "{offset:#x}");
        }
        if offset != Property::CC && offset != Property::NSSR {
            assert_eq!(host.admin(&property_set(offset, 1)).0, Status::INVALID_FIELD, "a write at {offset:#x}");
        }
    }
    let mut wide = property_set(Property::CC, 0x0046_0061);
    for attributes in [1, 2, 7] {
        wide.set_cdw(10, attributes);
        assert_eq!(host.admin(&wide).0, Status::INVALID_FIELD, "a write with attributes {attributes}");
    }
    // Arbitration, page size and command sets that there are not, and other command sets while it is enabled.
    for value in [0x0046_0861, 0x0046_00e1, 0x0046_0071, 0x0046_0001] {
        assert_eq!(host.admin(&property_set(Property::CC, value)).0, Status::INVALID_FIELD, "{value:#x}");
    }
    let read = |offset| host.admin(&property_get(offset, false)).1;
    assert_eq!((read(Property::VS), read(Property::CC), read(Property::CSTS)), (0x2_0000, 0x0046_0061, 1));
    assert_eq!((read(Property::CRTO) & 0xffff, read(Property::CRTO) >> 16), (15, 15));
    // Only "NVMe" resets.
    host.admin(&property_set(Property::NSSR, 0x4e56_4d64));
    assert_eq!(read(Property::CSTS), 1);
    host.admin(&property_set(Property::NSSR, 0x4e56_4d65));
    assert_eq!((read(Property::CSTS), read(Property::CC)), (0, 0x0046_0060));
    assert_eq!(host.identify(1, 0, 0), Err(Status::SEQUENCE_ERROR), "a controller that is not enabled");
    host.enable(true);
    host.admin(&property_set(Property::CC, 0x0046_4061));
    assert_eq!(read(Property::CSTS), 1 | 2 << 2, "shutdown is complete");
    assert!(!host.association.is_ready());
}

/// The features that can be set, and those that have one value.
#[test]
fn features_keep_what_was_set_and_nothing_else() {
    const FIXED: [(u8, u64); 8] =
        [(0x01, 0), (0x02, 0), (0x04, 343), (0x05, 0), (0x06, 1), (0x08, 0), (0x09, 0), (0x0a, 0)];
    let host = Host::new();
    let mut wanted: BTreeMap<u8, u64> = FIXED.into_iter().collect();
    wanted.extend([(0x07, 63 | 63 << 16), (0x0b, 0), (0x0f, 5000)]);
    let first = wanted.clone();
    let seed = 21;
    let mut rng = Rng::with_seed(seed);
    for step in 0..3000 {
        let fid = if rng.u8(..10) == 0 { rng.u8(..) } else { rng.u8(..0x11) };
        let value = match rng.u8(..4) {
            0 => rng.u32(..),
            1 => [0, 1, 0xffff, 0xffff_0000, 0xfffe_fffe, u32::MAX][rng.usize(..6)],
            _ => rng.u32(..80) | rng.u32(..80) << 16,
        };
        let context = format!("seed {seed}, step {step}: feature {fid:#x}, {value:#x}");
        // Features of a namespace, and none is named.
        let refused = if matches!(fid, 0x82 | 0x83) { Status::INVALID_NAMESPACE } else { Status::INVALID_FIELD };
        if rng.bool() && fid != 0x81 {
            let found = host.admin(&entry(AdminOpcode::GetFeatures as u8, 0, &[(10, fid.into())]));
            let told = |value| (Status::SUCCESS, value);
            let known = wanted.get(&fid).map_or((refused, 0), |value| told(*value));
            assert_eq!(found, known, "{context}");
            let selected = |select: u32| {
                host.admin(&entry(AdminOpcode::GetFeatures as u8, 0, &[(10, u32::from(fid) | select << 8)]))
            };
            if let Some(first) = first.get(&fid) {
                assert_eq!((selected(1), selected(2)), (told(*first), told(*first)), "default and saved, {context}");
                let changeable = u64::from(matches!(fid, 0x07 | 0x0b | 0x0f)) << 2;
                assert_eq!(selected(3), told(changeable), "capabilities, {context}");
            }
            for reserved in 4..8 {
                assert_eq!(selected(reserved).0, Status::INVALID_FIELD, "{context}, selected by {reserved}");
            }
            continue;
        }
        let (status, granted) = host.admin(&entry(AdminOpcode::SetFeatures as u8, 0, &[(10, fid.into()), (11, value)]));
        let expected = match fid {
            0x07 if value & 0xffff == 0xffff || value >> 16 == 0xffff => Status::INVALID_FIELD,
            0x07 => {
                // The larger of both numbers is granted for either kind, up to 64.
                let queues = u64::from((value & 0xffff).max(value >> 16).min(63));
                wanted.insert(fid, queues | queues << 16);
                assert_eq!(granted, queues | queues << 16, "{context}");
                Status::SUCCESS
            }
            0x0b | 0x0f => {
                wanted.insert(fid, value.into());
                Status::SUCCESS
            }
            0x06 if value & 1 == 1 => Status::SUCCESS,
            0x81 => Status::FEATURE_NOT_CHANGEABLE,
            0x82 | 0x83 => refused,
            _ if wanted.contains_key(&fid) => Status::FEATURE_NOT_CHANGEABLE,
            _ => Status::INVALID_FIELD,
        };
        assert_eq!(status, expected, "{context}");
    }
    assert_eq!(
        host.admin_fetch(&entry(AdminOpcode::GetFeatures as u8, 0, &[(10, 0x81)]), 16).unwrap(),
        b"the host's id 16"
    );
}

/// Each field: its name in the specification, its offset, its length, its value.
type Field = (&'static str, usize, usize, u64);

fn check(page: &[u8], fields: &[Field]) {
    for &(name, at, bytes, value) in fields {
        assert_eq!(number(&page[at..at + bytes]), value, "{name} at byte {at}");
    }
}

#[test]
fn the_controller_is_described_at_the_offsets_of_the_specification() {
    let host = Host::new();
    let page = host.identify(1, 0, 0).unwrap();
    let cntlid = u64::from(host.association.cntlid());
    check(
        &page,
        &[
            ("CMIC", 76, 1, 2),
            ("MDTS", 77, 1, 9),
            ("CNTLID", 78, 2, cntlid),
            ("VER", 80, 4, 0x2_0000),
            ("OAES", 92, 4, 1 << 8),
            ("CNTRLTYPE", 111, 1, 1),
            ("ACL", 258, 1, 3),
            ("AERL", 259, 1, 3),
            ("ELPE", 262, 1, 15),
            ("NPSS", 263, 1, 0),
            ("WCTEMP", 266, 2, 343),
            ("CCTEMP", 268, 2, 353),
            ("KAS", 320, 2, 10),
            ("SQES", 512, 1, 0x66),
            ("CQES", 513, 1, 0x44),
            ("MAXCMD", 514, 2, 128),
            ("NN", 516, 4, 1024),
            ("ONCS", 520, 2, 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 8),
            ("FUSES", 522, 2, 0),
            ("VWC", 525, 1, 7),
            ("AWUN", 526, 2, 0xffff),
            // Of blocks of 64 KiB, the largest.
            ("AWUPF", 528, 2, 31),
            ("OCFS", 534, 2, 1),
            ("IOCCSZ", 1792, 4, (64 + 16384) / 16),
            ("IORCSZ", 1796, 4, 1),
            ("ICDOFF", 1800, 2, 0),
            ("FCATT", 1802, 1, 0),
            ("MSDBD", 1803, 1, 1),
        ],
    );
    assert!(page[4..24].iter().all(u8::is_ascii_hexdigit), "the serial number");
    assert_eq!(&page[24..64], format!("{:40}", "nandarray").as_bytes());
    let nqn = host.subsystem.nqn().as_bytes();
    assert_eq!((&page[768..768 + nqn.len()], page[768 + nqn.len()]), (nqn, 0));
    let other = host.another();
    assert_ne!(number(&other.identify(1, 0, 0).unwrap()[78..80]), cntlid, "each controller has an identifier");
}

#[test]
fn a_namespace_is_described_at_the_offsets_of_the_specification() {
    let host = Host::new();
    host.create_namespace(9, 1000, 4096);
    for (nsid, nsze, lbads) in [(1, BLOCKS, 9), (9, 1000, 12)] {
        let page = host.identify(0, 0, nsid).unwrap();
        check(
            &page,
            &[
                ("NSZE", 0, 8, nsze),
                ("NCAP", 8, 8, nsze),
                ("NUSE", 16, 8, 0),
                ("NSFEAT", 24, 1, 1 | 1 << 1 | 1 << 4),
                ("NLBAF", 25, 1, 0),
                ("FLBAS", 26, 1, 0),
                ("NMIC", 30, 1, 1),
                ("RESCAP", 31, 1, 0xff),
                ("DLFEAT", 33, 1, 9),
                ("NAWUN", 34, 2, 0xffff),
                ("NAWUPF", 36, 2, ((2 << 20) >> lbads) - 1),
                ("NACWU", 38, 2, 0),
                ("NABSN", 40, 2, 0),
                ("NABSPF", 44, 2, 0),
                ("NOIOB", 46, 2, 0),
                ("NVMCAP", 48, 8, nsze << lbads),
                ("MCL", 76, 4, (64 << 20) >> lbads),
                ("MSRC", 80, 1, 255),
                ("NSATTR", 99, 1, 0),
                ("LBAF0.MS", 128, 2, 0),
                ("LBAF0.LBADS", 130, 1, lbads),
            ],
        );
        assert_eq!(number(&page[74..76]), ((64 << 20) >> lbads).min(65535), "MSSRL");
        let ids = host.identify(3, 0, nsid).unwrap();
        check(&ids, &[("NIDT", 0, 1, 2), ("NIDL", 1, 1, 16), ("NIDT", 20, 1, 3), ("NIDL", 21, 1, 16)]);
        check(&ids, &[("NIDT", 40, 1, 4), ("NIDL", 41, 1, 1), ("end", 45, 4, 0)]);
        assert_eq!((&ids[4..20], &ids[24..40]), (&page[104..120], &page[104..120]), "NGUID and UUID");
    }
    for (nsid, csi) in [(NSID_MEMORY, 3), (NSID_PROGRAMS, 4), (NSID_ND, 0x30)] {
        check(&host.identify(0, 0, nsid).unwrap(), &[("NSZE", 0, 8, 0), ("NMIC", 30, 1, 1), ("LBADS", 130, 1, 0)]);
        check(&host.identify(3, 0, nsid).unwrap(), &[("CSI", 44, 1, csi)]);
        check(&host.identify(8, 0, nsid).unwrap(), &[("NMIC", 1, 1, 1), ("NSATTR", 8, 1, 0), ("NSTAT", 14, 1, 1)]);
        assert_eq!(host.identify(5, csi as u8 + 1, nsid), Err(Status::INVALID_FIELD), "another command set's page");
    }
    check(&host.identify(5, 3, NSID_MEMORY).unwrap(), &[("bytes", 0, 8, MEMORY as u64)]);
    let limits = [("active programs", 0, 2, 32), ("range sets", 2, 2, 64), ("ranges", 6, 1, 32), ("MiB", 8, 8, 128)];
    check(&host.identify(5, 4, NSID_PROGRAMS).unwrap(), &limits);
    let nd = host.identify(5, 0x30, NSID_ND).unwrap();
    assert_eq!(&nd[..8], b"NDSPACES");
    check(&nd, &[("dimensions", 10, 2, 32), ("views", 12, 4, 65536)]);
    let read_only = Host::with(SubsystemOptions { read_only: true, ..SubsystemOptions::default() });
    check(&read_only.identify(0, 0, 1).unwrap(), &[("NSATTR", 99, 1, 1)]);
    check(&read_only.identify(8, 0, 1).unwrap(), &[("NSATTR", 8, 1, 1)]);
}

#[test]
fn a_namespace_that_is_made_again_is_another_one() {
    let host = Host::new();
    host.create_namespace(9, 8, 512);
    let ids = |nsid| host.identify(3, 0, nsid).unwrap()[4..20].to_vec();
    let before = ids(9);
    Controller::new(host.runtime.device()).delete_namespace(9).unwrap();
    host.create_namespace(9, 8, 512);
    assert_ne!(ids(9), before);
    assert_eq!(ids(9), ids(9));
    assert_ne!(ids(NSID_ND), ids(NSID_MEMORY));
}

#[test]
fn lists_of_namespaces_are_those_above_the_one_that_is_named() {
    for (programs, nd) in [(true, true), (true, false), (false, true), (false, false)] {
        let host = Host::with(SubsystemOptions { programs, nd, ..SubsystemOptions::default() });
        let seed = 5;
        let mut rng = Rng::with_seed(seed);
        // 1022 is a name for an array, and its number is that of another namespace.
        let mut all: BTreeMap<u32, u8> = [(1, 0)].into_iter().collect();
        for nsid in [2, 700, 1021, 1022, 1025, 5000] {
            host.create_namespace(nsid, rng.u64(1..9), 512);
            all.extend((nsid < NSID_MEMORY).then_some((nsid, 0)));
        }
        all.extend([(NSID_MEMORY, 3), (NSID_PROGRAMS, 4)].into_iter().filter(|_| programs));
        all.extend(nd.then_some((NSID_ND, 0x30)));
        let list = |page: Vec<u8>| -> Vec<u32> {
            page.chunks(4).map(|four| number(four) as u32).take_while(|nsid| *nsid != 0).collect()
        };
        for above in [0, 1, 2, 699, 700, 1020, 1021, 1022, 1023, 1024, 1 << 20, u32::MAX - 2] {
            let wanted: Vec<u32> = all.keys().copied().filter(|nsid| *nsid > above).collect();
            for cns in [0x02, 0x10] {
                assert_eq!(host.identify(cns, 0, above).map(list), Ok(wanted.clone()), "CNS {cns:#x} above {above}");
            }
            for csi in [0, 3, 4, 0x30, 1, 0xff] {
                let there = csi == 0 || all.values().any(|of| *of == csi);
                let some: Vec<u32> = wanted.iter().copied().filter(|nsid| all[nsid] == csi).collect();
                let wanted = if there { Ok(some) } else { Err(Status::INVALID_FIELD) };
                assert_eq!(host.identify(0x07, csi, above).map(list), wanted, "set {csi:#x} above {above}");
                assert_eq!(host.identify(0x06, csi, 0).is_ok(), there, "set {csi:#x}");
            }
        }
        for none in [u32::MAX - 1, u32::MAX] {
            assert_eq!(host.identify(0x02, 0, none), Err(Status::INVALID_NAMESPACE));
        }
        let bits = all.values().fold(0u64, |bits, csi| bits | 1 << csi);
        check(&host.identify(0x1c, 0, 0).unwrap(), &[("command sets", 0, 8, bits)]);
        for cns in 0..=255u8 {
            let known = matches!(cns, 0..=3 | 5..=8 | 0x10 | 0x1c);
            let found = host.identify(cns, 0, 1);
            assert_eq!(found == Err(Status::INVALID_FIELD), !known, "CNS {cns:#x}: {:?}", found.err());
        }
        for nsid in [0, 3, 1025, 5000, u32::MAX] {
            for cns in [0x00, 0x03, 0x05, 0x08] {
                assert_eq!(host.identify(cns, 0, nsid), Err(Status::INVALID_NAMESPACE), "CNS {cns:#x} of {nsid}");
            }
        }
    }
}
