//! Asynchronous events beside a reference of their rules: held requests, the mask, the log page that allows the next.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fastrand::Rng;
use nandarray::nvme::{Status, SubmissionEntry};
use parking_lot::Mutex;

use super::{Host, entry, number};
use crate::{AdminAnswer, HostIdentity, Payload, SubsystemOptions};
use nandarray_nvme_spec::{AdminOpcode, DISCOVERY_NQN};

/// A completion that was sent to the host: identifier, status and dword 0.
type Sent = (u16, Status, u32);

/// The rules: a request is answered when namespaces have changed, the host has enabled the event, and has read the log
/// page since the last one.
#[derive(Default)]
struct Reference {
    held: VecDeque<u16>,
    changed: BTreeSet<u32>,
    mask: u32,
    told: bool,
    sent: Vec<Sent>,
}

impl Reference {
    fn look(&mut self) {
        if !self.changed.is_empty() && !self.told && self.mask >> 8 & 1 == 1 {
            if let Some(cid) = self.held.pop_front() {
                self.told = true;
                self.sent.push((cid, Status::SUCCESS, 0x0004_0002));
            }
        }
    }
}

fn request(host: &Host, cid: u16) -> Option<Status> {
    let entry =
        SubmissionEntry { opcode: AdminOpcode::AsyncEvent as u8, cid: cid.into(), ..SubmissionEntry::default() };
    match host.association.admin(&entry, Payload::None) {
        AdminAnswer::Done(done) => Some(done.status()),
        AdminAnswer::Held => None,
    }
}

fn step(host: &Host, rules: &mut Reference, rng: &mut Rng, cid: u16, context: &str) {
    match rng.u8(..9) {
        0..=2 => {
            let full = (rules.held.len() == 4).then_some(Status::EVENT_LIMIT_EXCEEDED);
            if full.is_none() {
                rules.held.push_back(cid);
            }
            assert_eq!(request(host, cid), full, "{context}");
        }
        3 | 4 => {
            let nsids: Vec<u32> = (0..rng.usize(1..4)).map(|_| rng.u32(1..1022)).collect();
            rules.changed.extend(&nsids);
            host.subsystem.namespaces_changed(&nsids);
        }
        5 => {
            rules.mask = [0, 1 << 8, 1 << 8, u32::MAX][rng.usize(..4)];
            let set = entry(AdminOpcode::SetFeatures as u8, 0, &[(10, 0x0b), (11, rules.mask)]);
            assert_eq!(host.admin(&set).0, Status::SUCCESS);
        }
        6 | 7 => {
            let retain = rng.bool();
            // A refused command clears nothing.
            assert_eq!(host.log_part(0x04, 4100, 4, 0, false), Err(Status::INVALID_FIELD), "{context}");
            let page = host.log_part(0x04, 0, 4096, 0, retain).unwrap();
            let listed: Vec<u32> = page.chunks(4).map(|four| number(four) as u32).collect();
            let mut wanted: Vec<u32> = rules.changed.iter().copied().collect();
            wanted.resize(1024, 0);
            assert_eq!(listed, wanted, "{context}");
            if !retain {
                rules.changed.clear();
                rules.told = false;
            }
        }
        _ => {
            host.enable(false);
            let held = std::mem::take(&mut rules.held);
            rules.sent.extend(held.into_iter().map(|cid| (cid, Status::ABORTED, 0)));
            *rules = Reference { sent: std::mem::take(&mut rules.sent), ..Reference::default() };
            host.enable(true);
        }
    }
    rules.look();
}

#[test]
fn events_are_told_once_until_their_log_page_was_read() {
    for seed in 0..30 {
        let mut rng = Rng::with_seed(seed);
        let (host, sent) = (Host::new(), Arc::new(Mutex::new(Vec::<Sent>::new())));
        let tell = sent.clone();
        host.association.set_notifier(move |done| tell.lock().push((done.cid.get(), done.status(), done.dw0.get())));
        let mut rules = Reference::default();
        for number in 0..200 {
            let context = format!("seed {seed}, step {number}");
            step(&host, &mut rules, &mut rng, number, &context);
            assert_eq!(*sent.lock(), rules.sent, "{context}");
        }
        // A host that is lost gets nothing more.
        host.association.end();
        host.subsystem.namespaces_changed(&[3]);
        assert_eq!(sent.lock().len(), rules.sent.len(), "seed {seed}");
        assert!(!host.association.is_ready());
    }
}

#[test]
fn requests_that_wait_for_their_transport_are_answered_when_it_comes() {
    let (host, sent) = (Host::new(), Arc::new(Mutex::new(Vec::new())));
    assert_eq!(request(&host, 5), None);
    host.admin(&entry(AdminOpcode::SetFeatures as u8, 0, &[(10, 0x0b), (11, 1 << 8)]));
    host.subsystem.namespaces_changed(&[2]);
    let tell = sent.clone();
    host.association.set_notifier(move |done| tell.lock().push(done.cid.get()));
    assert_eq!(*sent.lock(), [5]);
}

#[test]
fn a_discovery_controller_tells_no_events_and_has_two_log_pages() {
    let host = Host::new();
    let identity = HostIdentity {
        hostid: [0; 16],
        hostnqn: "nqn.host".to_owned(),
        subnqn: DISCOVERY_NQN.to_owned(),
        local: Some(("2001:db8::1".to_owned(), "4420".to_owned())),
        peer: None,
    };
    let association = host.subsystem.associate(identity, 0).unwrap();
    let discovery = Host { runtime: host.runtime.clone(), subsystem: host.subsystem.clone(), association };
    discovery.enable(true);
    let page = discovery.log(0x70, 2048);
    let nqn = host.subsystem.nqn().as_bytes();
    // GENCTR, NUMREC, RECFMT; then TRTYPE, ADRFAM (IPv6), SUBTYPE, PORTID, CNTLID, ASQSZ.
    for (at, bytes, value) in [(0, 8, 1), (8, 8, 1), (16, 2, 0)] {
        assert_eq!(number(&page[at..at + bytes]), value, "byte {at}");
    }
    for (at, bytes, value) in [(0, 1, 3), (1, 1, 2), (2, 1, 2), (4, 2, 1), (6, 2, 0xffff), (8, 2, 32)] {
        assert_eq!(number(&page[1024 + at..1024 + at + bytes]), value, "byte {at} of the record");
    }
    assert_eq!(&page[1024 + 32..1024 + 64], format!("{:32}", "4420").as_bytes());
    assert_eq!(&page[1024 + 512..1024 + 768], format!("{:256}", "2001:db8::1").as_bytes());
    assert_eq!((&page[1280..1280 + nqn.len()], page[1280 + nqn.len()]), (nqn, 0));
    let pages = discovery.log(0x00, 1024);
    for other in (0..=255).filter(|page| !matches!(*page, 0x00 | 0x70)) {
        assert_eq!(pages[4 * usize::from(other)], 0, "{other:#x}");
        assert_eq!(discovery.log_part(other, 0, 64, 0, false), Err(Status::INVALID_LOG_PAGE), "{other:#x}");
    }
    assert_eq!((pages[0], pages[4 * 0x70]), (1, 1));
    assert_eq!(host.log_part(0x70, 0, 64, 0, false), Err(Status::INVALID_LOG_PAGE), "at an I/O controller");
    // It tells its own name, no namespace, and takes no commands of programs.
    let page = discovery.identify(1, 0, 0).unwrap();
    assert_eq!((page[111], number(&page[516..520])), (2, 0));
    assert!(page[768..].starts_with(DISCOVERY_NQN.as_bytes()));
    assert_eq!(discovery.identify(2, 0, 0), Err(Status::INVALID_FIELD));
    for opcode in
        [AdminOpcode::LoadProgram as u8, AdminOpcode::ActivateProgram as u8, AdminOpcode::MemoryRangeSet as u8]
    {
        assert_eq!(discovery.admin(&entry(opcode, 0, &[])).0, Status::INVALID_OPCODE, "{opcode:#x}");
    }
    assert_eq!(discovery.association.check_queue(1, "nqn.host"), Err(Status::CONNECT_PARAMETER));
    // Its failures are in no log of other hosts.
    assert_eq!(number(&host.log(0x01, 64)[24..28]), 0xffff_ffff, "the newest error is the refused log page above");
    let before = host.subsystem.numbers();
    discovery.identify(2, 0, 0).unwrap_err();
    assert_eq!(host.subsystem.numbers(), before);
}

#[test]
fn a_stranger_finds_an_empty_discovery_log_and_others_the_advertised_address() {
    let advertised = Some(("192.0.2.7".to_owned(), Some("4421".to_owned())));
    let hosts = vec!["nqn.host".to_owned()];
    let host = Host::with(SubsystemOptions { hosts, advertised, ..SubsystemOptions::default() });
    let log = |hostnqn: &str| {
        let local = Some(("10.0.0.1".to_owned(), "4420".to_owned()));
        let (hostnqn, subnqn) = (hostnqn.to_owned(), DISCOVERY_NQN.to_owned());
        let association =
            host.subsystem.associate(HostIdentity { hostid: [0; 16], hostnqn, subnqn, local, peer: None }, 0).unwrap();
        let one = Host { runtime: host.runtime.clone(), subsystem: host.subsystem.clone(), association };
        one.enable(true);
        one.log(0x70, 2048)
    };
    let (stranger, known) = (log("nqn.stranger"), log("nqn.host"));
    assert_eq!((stranger[8], known[8]), (0, 1), "records");
    assert!(stranger[16..].iter().all(|byte| *byte == 0), "it tells no name and no address");
    assert!(known[1024 + 512..].starts_with(b"192.0.2.7 ") && known[1024 + 32..].starts_with(b"4421 "));
}
