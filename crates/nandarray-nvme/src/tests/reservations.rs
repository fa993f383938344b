//! Reservations beside a second implementation of the specification's tables: random commands of several hosts, after
//! each of which every host tries every path to the namespace, reads the report and its notifications.
//!
//! Then what the tables do not have: persistence, limits, namespaces that go, commands in flight.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use nandarray::nvme::{Blocks, BoxPage, Controller, NSID_ALL, NvmeCommand, SpacePage, Status};
use nandarray::{Device, FaultMedia, Geometry, MemoryMedia, Mode, Options, command};
use nandarray_runtime::Runtime;
use parking_lot::Mutex;
use zerocopy::IntoBytes;

use super::{BLOCKS, Host, entry, number, programs};
use crate::budget::OutputMemory;
use crate::running::{RunCommand, RunLimits};
use crate::{AdminAnswer, NSID_MEMORY, NSID_ND, Payload, Subsystem, SubsystemOptions};
use nandarray_nvme_spec::{AdminOpcode, MemoryRange};

const REGISTER: u8 = 0x0d;
const ACQUIRE: u8 = 0x11;
const RELEASE: u8 = 0x15;
const IGNORE_KEY: u32 = 1 << 3;
const PERSIST: u32 = 3 << 30;

/// Sends a command with dword 10 and two numbers as its data.
fn send(host: &Host, opcode: u8, nsid: u32, cdw10: u32, keys: [u64; 2]) -> Status {
    let bytes = if opcode == RELEASE { 8 } else { 16 };
    host.send(&entry(opcode, nsid, &[(10, cdw10)]), &keys.as_bytes()[..bytes]).0
}

fn register(host: &Host, key: u64) -> Status {
    send(host, REGISTER, 1, 0, [0, key])
}

fn acquire(host: &Host, kind: u32, key: u64) -> Status {
    send(host, ACQUIRE, 1, kind << 8, [key, 0])
}

/// Fetches the report of namespace 1: generation, type, persistence, and of each registrant whether it holds the
/// reservation, its key and the first byte of its identifier.
fn report(host: &Host) -> (u64, u64, u64, Vec<(u64, u64, u64)>) {
    let bytes = 64 * 300;
    let page = host.fetch(&entry(0x0e, 1, &[(10, bytes as u32 / 4 - 1), (11, 1)]), bytes).unwrap();
    let count = number(&page[5..7]) as usize;
    let registrant = |at: usize| {
        let one = &page[64 * at..64 * at + 64];
        assert_eq!((number(&one[..2]), &one[17..32]), (0xffff, &[one[16]; 15][..]));
        (number(&one[2..3]), number(&one[8..16]), one[16].into())
    };
    assert!(page[64 * (count + 1)..].iter().all(|byte| *byte == 0));
    (number(&page[..4]), page[4].into(), page[9].into(), (1..=count).map(registrant).collect())
}

/// Rights of hosts under a reservation of types 1 to 6 (base 2.0, section 8.19.1): the holder, another
/// registrant, any other host; it reads (r), it writes (w).
const TABLE: [[&str; 3]; 6] =
    [["rw", "r", "r"], ["rw", "", ""], ["rw", "rw", "r"], ["rw", "rw", ""], ["rw", "rw", "r"], ["rw", "rw", ""]];

/// The second implementation: a list of registrants, and the type that some of them hold.
#[derive(Clone, Default)]
struct Tables {
    /// Host, key and whether it holds the reservation.
    registrants: Vec<(usize, u64, bool)>,
    kind: usize,
    generation: u64,
    persists: bool,
    /// Notifications of each host that it has not read: kind.
    told: [VecDeque<u64>; HOSTS],
    counts: [u64; HOSTS],
}

const HOSTS: usize = 4;

impl Tables {
    fn find(&self, host: usize) -> Option<(usize, u64, bool)> {
        self.registrants.iter().copied().find(|one| one.0 == host)
    }

    fn tell(&mut self, host: usize, kind: u64) {
        self.told[host].push_back(kind);
    }

    fn tell_others(&mut self, host: usize, kind: u64) {
        let others: Vec<usize> = self.registrants.iter().map(|one| one.0).filter(|one| *one != host).collect();
        others.into_iter().for_each(|other| self.tell(other, kind));
    }

    /// Gives a reservation without a holder no type; of types 5 and 6 all registrants hold it.
    fn settle(&mut self, by: usize) {
        let shared = self.kind >= 5;
        self.registrants.iter_mut().for_each(|one| one.2 |= shared);
        if self.kind > 0 && !self.registrants.iter().any(|one| one.2) {
            if self.kind >= 3 {
                self.tell_others(by, 2);
            }
            self.kind = 0;
        }
        self.registrants.sort_unstable();
    }

    fn may(&self, host: usize) -> &'static str {
        let who = match self.find(host) {
            Some((_, _, true)) => 0,
            Some(_) => 1,
            None => 2,
        };
        if self.kind == 0 { "rw" } else { TABLE[self.kind - 1][who] }
    }

    fn register(&mut self, host: usize, cdw10: u32, [current, new]: [u64; 2]) -> Status {
        let (action, persistence, ignores) = (cdw10 & 7, cdw10 >> 30, cdw10 & IGNORE_KEY != 0);
        if action > 2 || persistence == 1 || (action != 1 && new == 0) {
            return Status::INVALID_FIELD;
        }
        let found = self.find(host);
        let allowed = match (action, found) {
            (0, None) => true,
            (0, Some((_, key, _))) => key == new,
            (_, Some((_, key, _))) => ignores || key == current,
            (_, None) => action == 2 && ignores,
        };
        if !allowed {
            return Status::RESERVATION_CONFLICT;
        }
        self.registrants.retain(|one| one.0 != host);
        if action != 1 {
            self.registrants.push((host, new, found.is_some_and(|one| one.2)));
        }
        self.settle(host);
        self.generation += 1;
        self.persists = [self.persists, false, false, true][persistence as usize];
        Status::SUCCESS
    }

    fn acquire(&mut self, host: usize, cdw10: u32, [current, preempted]: [u64; 2]) -> Status {
        let (action, kind, ignores) = (cdw10 & 7, (cdw10 >> 8 & 0xff) as usize, cdw10 & IGNORE_KEY != 0);
        if action > 2 || kind == 0 || kind > 6 || ignores {
            return Status::INVALID_FIELD;
        }
        let Some((_, _, holds)) = self.find(host).filter(|one| one.1 == current) else {
            return Status::RESERVATION_CONFLICT;
        };
        if action == 0 {
            if self.kind == 0 {
                self.kind = kind;
                self.registrants.iter_mut().for_each(|one| one.2 |= one.0 == host);
                self.settle(host);
            } else if !(holds && self.kind == kind) {
                return Status::RESERVATION_CONFLICT;
            }
            return Status::SUCCESS;
        }
        let named = |one: &(usize, u64, bool)| one.1 == preempted;
        let takes_all = self.kind >= 5 && preempted == 0;
        let takes_one = (1..5).contains(&self.kind) && self.registrants.iter().any(|one| one.2 && named(one));
        let before = self.registrants.clone();
        if takes_all || takes_one {
            self.registrants.retain(|one| one.0 == host || !(takes_all || named(one)));
            self.registrants.iter_mut().for_each(|one| one.2 = one.0 == host);
            if self.kind != kind {
                self.tell_others(host, 2);
            }
            self.kind = kind;
        } else {
            if self.kind > 0 && preempted == 0 {
                return Status::INVALID_FIELD;
            }
            if !before.iter().any(named) {
                return Status::RESERVATION_CONFLICT;
            }
            self.registrants.retain(|one| !named(one));
        }
        for one in &before {
            if one.0 != host && self.find(one.0).is_none() {
                self.tell(one.0, 1);
            }
        }
        self.settle(host);
        self.generation += 1;
        Status::SUCCESS
    }

    fn release(&mut self, host: usize, cdw10: u32, [current, _]: [u64; 2]) -> Status {
        let (action, kind, ignores) = (cdw10 & 7, (cdw10 >> 8 & 0xff) as usize, cdw10 & IGNORE_KEY != 0);
        if action > 1 || ignores {
            return Status::INVALID_FIELD;
        }
        let Some((_, _, holds)) = self.find(host).filter(|one| one.1 == current) else {
            return Status::RESERVATION_CONFLICT;
        };
        if action == 1 {
            self.tell_others(host, 3);
            (self.registrants, self.kind) = (Vec::new(), 0);
            self.generation += 1;
        } else if holds {
            if self.kind != kind {
                return Status::INVALID_FIELD;
            }
            if self.kind >= 3 {
                self.tell_others(host, 2);
            }
            self.kind = 0;
            self.registrants.iter_mut().for_each(|one| one.2 = false);
        }
        Status::SUCCESS
    }
}

/// A host with an open view of namespace 1 and a stored box of its blocks 1 and 2.
struct Client {
    host: Host,
    dsid: u32,
    array: u64,
    stored: u32,
}

impl Client {
    fn new(host: Host) -> Self {
        let (status, ids) = host.send(&entry(0x05, NSID_ND, &[(10, 1)]), SpacePage::new("ns/1", &[]).as_bytes());
        assert_eq!(status, Status::SUCCESS);
        let (dsid, page) = (ids as u32, BoxPage::new(&[1], &[2]));
        let (status, stored) = host.send(&entry(0x0d, NSID_ND, &[(10, dsid), (11, 1 | 1 << 8)]), page.as_bytes());
        assert_eq!(status, Status::SUCCESS);
        Self { host, dsid, array: ids >> 32, stored: stored as u32 }
    }

    /// Sends an array request, which does not fail once it is accepted.
    fn request(&self, text: &str, data: &[u8], changes: bool) -> Status {
        let message = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), data].concat();
        let words = [(10, 5), (11, changes.into()), (12, message.len() as u32)];
        let (status, reply) = self.host.send(&entry(0x11, NSID_ND, &words), &message);
        if status.ok() {
            let bytes = (reply >> 32) as usize;
            let found = self.host.fetch(&entry(0x12, NSID_ND, &[(10, reply as u32)]), bytes).unwrap();
            assert!(!String::from_utf8_lossy(&found).contains("error"), "{}", String::from_utf8_lossy(&found));
        }
        status
    }

    /// Tries all paths that read (or that write) namespace 1; returns their statuses with their names.
    fn tries(&self, writes: bool) -> Vec<(&'static str, Status)> {
        let (host, blocks) = (&self.host, Blocks::new(1, 3, 2));
        let fetch = |command, bytes| host.fetch(&command, bytes).err().unwrap_or(Status::SUCCESS);
        let boxed =
            format!(r#""array": {}, "elements": {{"box": {{"start": [1], "step": [1], "count": [2]}}}}"#, self.array);
        let in_view = [(10, self.dsid), (11, 1 | 1 << 8), (2, 1), (13, 2)];
        let by_handle = [(11, 1 << 10), (12, self.stored)];
        if !writes {
            return vec![
                ("read", fetch(NvmeCommand::Read(blocks).encode(7), 1024)),
                ("compare", host.send(&NvmeCommand::Compare(blocks).encode(7), &[0; 1024]).0),
                ("N-D read", fetch(entry(0x82, 0, &in_view), 1024)),
                ("N-D read of a stored box", fetch(entry(0x02, NSID_ND, &by_handle), 1024)),
                ("request to read", self.request(&format!(r#"{{"do": "read", {boxed}, "view": null}}"#), &[], false)),
            ];
        }
        let zeroes = NvmeCommand::WriteZeroes { blocks, deac: false }.encode(7);
        let range = [1u64 << 32, 0];
        let array = self.array as u32;
        let deallocate = format!(r#"{{"do": "deallocate", "array": {array}, "start": [1], "count": [2]}}"#);
        let resize = format!(r#"{{"do": "resize", "array": {array}, "shape": [{BLOCKS}]}}"#);
        let attrs = format!(r#"{{"do": "set-attrs", "array": {array}, "attrs": [0, 2]}}"#);
        let change = r#"{"do": "change", "delete": [], "rename": [], "attrs": [["ns/1", [0, 2]]]}"#;
        let write = format!(r#"{{"do": "write", {boxed}, "view": null, "values": [0, 1024]}}"#);
        let resized = SpacePage::new("", &[BLOCKS]);
        vec![
            ("flush", host.io(&NvmeCommand::Flush { nsid: 1 }.encode(7)).0),
            ("write", host.send(&NvmeCommand::Write(blocks).encode(7), &[0; 1024]).0),
            ("write zeroes", host.io(&zeroes).0),
            ("dataset management", host.send(&entry(0x09, 1, &[(11, 4)]), range.as_bytes()).0),
            ("copy", host.send(&entry(0x19, 1, &[(10, 8)]), &[0; 32]).0),
            ("N-D write", host.send(&entry(0x81, 0, &in_view), &[0; 1024]).0),
            ("N-D write of a stored box", host.send(&entry(0x01, NSID_ND, &by_handle), &[0; 1024]).0),
            ("resize", host.send(&entry(0x05, NSID_ND, &[(10, 3), (12, array)]), resized.as_bytes()).0),
            ("request to write", self.request(&write, &[0; 1024], true)),
            ("request to deallocate", self.request(&deallocate, &[], true)),
            ("request to resize", self.request(&resize, &[], true)),
            ("request for attributes", self.request(&attrs, b"{}", true)),
            ("request to change", self.request(change, b"{}", true)),
        ]
    }
}

/// Reads all notifications of a host: their kinds.
fn notices(host: &Host, count: &mut u64) -> Vec<u64> {
    let mut found = Vec::new();
    loop {
        let kept = host.log_part(0x80, 0, 64, 0, true).unwrap();
        let page = host.log(0x80, 64);
        assert_eq!(kept, page);
        if page[8] == 0 {
            assert_eq!(page, [0; 64]);
            return found;
        }
        *count += 1;
        assert_eq!((number(&page[..8]), number(&page[12..16])), (*count, 1));
        found.push(page[8].into());
    }
}

#[test]
fn hosts_may_do_what_the_tables_say() {
    for seed in 0..24 {
        let mut rng = Rng::with_seed(seed);
        let first = Host::new();
        let clients: Vec<Client> = (0..HOSTS).map(|i| Client::new(first.another_as([i as u8 + 1; 16]))).collect();
        // A second controller of the first host is the same registrant.
        let twin = Client::new(first.another_as([1; 16]));
        let mut tables = Tables::default();
        for step in 0..250 {
            let host = rng.usize(..HOSTS);
            // Mostly the keys that are there, so that few commands conflict.
            let own = tables.find(host).map_or(0, |one| one.1);
            let keys = [if rng.u8(..8) > 0 { own } else { rng.u64(..4) }, rng.u64(..4)];
            let opcode = [REGISTER, REGISTER, ACQUIRE, ACQUIRE, RELEASE][rng.usize(..5)];
            let action = if rng.u8(..30) == 0 { rng.u32(..8) } else { rng.u32(..3) };
            let kind = match rng.u8(..12) {
                0 => rng.u32(..9),
                1..6 if tables.kind > 0 => tables.kind as u32,
                _ => rng.u32(1..7),
            };
            let ignores = if rng.u8(..10) == 0 { IGNORE_KEY } else { 0 };
            let persistence = [0, 0, 0, 2, 3, u32::from(rng.u8(..9) == 0)][rng.usize(..6)];
            let cdw10 = match opcode {
                REGISTER => action | ignores | persistence << 30,
                _ => action | ignores | kind << 8,
            };
            let context = format!("seed {seed}, step {step}: {opcode:#x} {cdw10:#x} {keys:?} of host {host}");
            let wanted = match opcode {
                REGISTER => tables.register(host, cdw10, keys),
                ACQUIRE => tables.acquire(host, cdw10, keys),
                _ => tables.release(host, cdw10, keys),
            };
            let from = if host == 0 && rng.bool() { &twin } else { &clients[host] };
            assert_eq!(send(&from.host, opcode, 1, cdw10, keys), wanted, "{context}");
            let registrants: Vec<(u64, u64, u64)> =
                tables.registrants.iter().map(|one| (one.2.into(), one.1, one.0 as u64 + 1)).collect();
            let told = (tables.generation, tables.kind as u64, tables.persists.into(), registrants);
            assert_eq!(report(&clients[rng.usize(..HOSTS)].host), told, "{context}");
            if step % 5 == 0 {
                for (i, client) in clients.iter().enumerate().chain([(0, &twin)]) {
                    let all = client.tries(false).into_iter().map(|one| ('r', one));
                    for (letter, (what, status)) in all.chain(client.tries(true).into_iter().map(|one| ('w', one))) {
                        let may = tables.may(i).contains(letter);
                        let wanted = if may { Status::SUCCESS } else { Status::RESERVATION_CONFLICT };
                        assert_eq!(status, wanted, "{context}: {what} of host {i}");
                    }
                }
                assert_eq!(first.io(&NvmeCommand::Flush { nsid: NSID_ALL }.encode(7)).0, Status::SUCCESS);
                for i in 0..HOSTS {
                    let wanted: Vec<u64> = tables.told[i].drain(..).collect();
                    let mut found = notices(&clients[i].host, &mut tables.counts[i]);
                    // Notifications of one command have no order among each other.
                    assert_eq!(found.len(), wanted.len(), "{context}: host {i} is told {found:?}, {wanted:?}");
                    let mut sorted = wanted.clone();
                    found.sort_unstable();
                    sorted.sort_unstable();
                    assert_eq!(found, sorted, "{context}: host {i}");
                }
            }
        }
    }
}

#[test]
fn a_deleted_or_renamed_namespace_has_no_reservation() {
    let host = Host::new();
    let other = host.another_as([2; 16]);
    let write = |of: &Host| of.send(&NvmeCommand::Write(Blocks::new(1, 0, 1)).encode(7), &[1; 512]).0;
    let reserve = || {
        assert_eq!((register(&host, 5), acquire(&host, 2, 5)), (Status::SUCCESS, Status::SUCCESS));
        assert_eq!(write(&other), Status::RESERVATION_CONFLICT);
    };
    reserve();
    let controller = Controller::new(host.runtime.device());
    controller.delete_namespace(1).unwrap();
    host.create_namespace(1, BLOCKS, 512);
    assert_eq!((write(&other), report(&other).3), (Status::SUCCESS, vec![]));
    reserve();
    let device = host.runtime.device();
    device.execute(command::Rename { from: "ns/1", to: "moved" }).unwrap();
    let client = |of: &Host| {
        let (status, ids) = of.send(&entry(0x05, NSID_ND, &[(10, 1)]), SpacePage::new("moved", &[]).as_bytes());
        assert_eq!(status, Status::SUCCESS);
        of.send(&entry(0x81, 0, &[(10, ids as u32), (11, 1 | 1 << 8), (13, 1)]), &[2; 512]).0
    };
    assert_eq!(client(&other), Status::SUCCESS, "no namespace any more");
    assert_eq!(host.fetch(&entry(0x0e, 1, &[(10, 15), (11, 1)]), 64), Err(Status::INVALID_NAMESPACE));
    // As another namespace, it has none of its registrants, also once a server has started again.
    device.execute(command::Rename { from: "moved", to: "ns/2" }).unwrap();
    let registered = |of: &Host| of.fetch(&entry(0x0e, 2, &[(10, 15), (11, 1)]), 64).unwrap()[5];
    assert_eq!((send(&other, REGISTER, 2, PERSIST, [0, 6]), registered(&other)), (Status::SUCCESS, 1));
    device.execute(command::Rename { from: "ns/2", to: "ns/3" }).unwrap();
    device.execute(command::Rename { from: "ns/3", to: "ns/1" }).unwrap();
    let subsystem = Subsystem::new(&host.runtime, SubsystemOptions::default());
    let again = Host { runtime: host.runtime.clone(), association: Host::associate_as(&subsystem, [1; 16]), subsystem };
    again.enable(true);
    assert_eq!(report(&again).3, []);
    device.execute(command::Rename { from: "ns/1", to: "ns/2" }).unwrap();
    let subsystem = Subsystem::new(&host.runtime, SubsystemOptions::default());
    let again = Host { runtime: host.runtime.clone(), association: Host::associate_as(&subsystem, [1; 16]), subsystem };
    again.enable(true);
    assert_eq!(registered(&again), 1, "its own name again");
}

#[test]
fn inputs_and_outputs_of_programs_obey_reservations() {
    let host = programs::ready();
    let other = host.another_as([2; 16]);
    let (block, room) = (MemoryRange::new(1, 0, 512), |sb, len| MemoryRange::new(NSID_MEMORY, sb, len));
    let ranges = [[block, room(4096, 512), room(8192, 8)], [room(0, 512), block, room(8192, 8)]];
    let both = |of: &Host| ranges.map(|ranges| programs::execute(of, 1, 0, &ranges, &[u64::MAX; 3]).0);
    assert_eq!(both(&other), [Status::SUCCESS; 2]);
    assert_eq!((register(&host, 5), acquire(&host, 1, 5)), (Status::SUCCESS, Status::SUCCESS));
    assert_eq!(both(&other), [Status::SUCCESS, Status::RESERVATION_CONFLICT], "write exclusive");
    assert_eq!(send(&host, ACQUIRE, 1, 1 | 2 << 8, [5, 5]), Status::SUCCESS, "its own reservation gets another type");
    assert_eq!(both(&other), [Status::RESERVATION_CONFLICT; 2], "exclusive access");
    assert_eq!(both(&host), [Status::SUCCESS; 2]);
    let page = other.log(0xc1, 256);
    assert!(String::from_utf8_lossy(&page).contains("range 1: Reservation Conflict"), "{page:?}");
}

#[test]
fn events_tell_of_notifications_once_until_the_page_was_read() {
    let host = Host::new();
    let other = host.another_as([2; 16]);
    let sent = Arc::new(Mutex::new(Vec::new()));
    let tell = sent.clone();
    other.association.set_notifier(move |done| tell.lock().push((done.cid.get(), done.dw0.get())));
    for cid in 1..=4 {
        let mut request = entry(AdminOpcode::AsyncEvent as u8, 0, &[]);
        request.cid.set(cid);
        assert!(matches!(other.association.admin(&request, Payload::None), AdminAnswer::Held));
    }
    let clear = || {
        assert_eq!((register(&host, 1), register(&other, 2)), (Status::SUCCESS, Status::SUCCESS));
        assert_eq!(send(&host, RELEASE, 1, 1, [1, 0]), Status::SUCCESS);
    };
    const EVENT: u32 = 0x0080_0006;
    clear();
    clear();
    assert_eq!(*sent.lock(), [(1, EVENT)]);
    other.log_part(0x80, 0, 64, 0, true).unwrap();
    assert_eq!(sent.lock().len(), 1, "the page is retained");
    assert_eq!(other.log(0x80, 64)[9], 1, "one further page");
    assert_eq!(*sent.lock(), [(1, EVENT), (2, EVENT)]);
    other.log(0x80, 64);
    // A kind that the host does not want, of this namespace or of all.
    let mask =
        |nsid: u32, bits: u32| other.admin(&entry(AdminOpcode::SetFeatures as u8, nsid, &[(10, 0x82), (11, bits)])).0;
    let masked =
        |nsid: u32, select: u32| other.admin(&entry(AdminOpcode::GetFeatures as u8, nsid, &[(10, 0x82 | select << 8)]));
    assert_eq!((mask(1, 1 << 3), masked(1, 0)), (Status::SUCCESS, (Status::SUCCESS, 8)));
    clear();
    assert_eq!(sent.lock().len(), 2);
    assert_eq!((mask(NSID_ALL, 0), masked(1, 0)), (Status::SUCCESS, (Status::SUCCESS, 0)));
    clear();
    assert_eq!(*sent.lock(), [(1, EVENT), (2, EVENT), (3, EVENT)]);
    assert_eq!((mask(1, 1), mask(NSID_MEMORY, 8)), (Status::INVALID_FIELD, Status::INVALID_FIELD));
    assert_eq!((mask(0, 8), masked(NSID_ALL, 0).0), (Status::INVALID_NAMESPACE, Status::INVALID_NAMESPACE));
    assert_eq!(masked(1, 3), (Status::SUCCESS, 6), "changeable, and each namespace's");
    other.enable(false);
    other.enable(true);
    assert_eq!(other.log(0x80, 64), [0; 64], "a reset forgets notifications");
}

/// Restarts the server of a store.
fn served(device: Device, options: SubsystemOptions) -> Host {
    let runtime = Arc::new(Runtime::new(Arc::new(device)));
    let subsystem = Subsystem::new(&runtime, options);
    let association = Host::associate_as(&subsystem, [1; 16]);
    let host = Host { runtime, subsystem, association };
    host.enable(true);
    host
}

#[test]
fn persistent_registrants_survive_a_loss_of_power_once_their_command_has_completed() {
    let open = |bytes: Vec<u8>| {
        let options = Options { geometry: Geometry::TINY, threads: Some(1), ..Options::default() };
        Device::open(Arc::new(MemoryMedia::with_bytes(bytes)), "memory", Mode::ReadWrite, &options).unwrap()
    };
    let media = Arc::new(FaultMedia::default());
    let options = Options { geometry: Geometry::TINY, threads: Some(1), ..Options::default() };
    let device = Device::open(media.clone(), "memory", Mode::Truncate, &options).unwrap();
    let host = served(device, SubsystemOptions::default());
    host.create_namespace(1, BLOCKS, 512);
    let device = host.runtime.device();
    let attrs = r#"{"mine": [NaN, "nvme_reservations"]}"#;
    let array = device.describe("ns/1").unwrap().id;
    device.execute(command::SetAttrs { space: array, attrs }).unwrap();
    device.execute(command::Flush).unwrap();
    let other = host.another_as([2; 16]);
    let steps: Vec<(&str, &Host, u8, u32, [u64; 2])> = vec![
        ("register", &host, REGISTER, PERSIST, [0, 5]),
        ("another", &other, REGISTER, 0, [0, 6]),
        ("acquire", &host, ACQUIRE, 3 << 8, [5, 0]),
        ("preempt", &other, ACQUIRE, 1 | 6 << 8, [6, 5]),
        ("replace", &other, REGISTER, 2, [6, 7]),
        ("release", &other, RELEASE, 6 << 8, [7, 0]),
        ("no persistence", &other, REGISTER, 2 | 2 << 30, [7, 8]),
    ];
    for (what, by, opcode, cdw10, keys) in steps {
        assert_eq!(send(by, opcode, 1, cdw10, keys), Status::SUCCESS, "{what}");
        let (_, kind, persists, registrants) = report(&host);
        for seed in 0..4 {
            let again = served(open(media.after_crash(seed)), SubsystemOptions::default());
            let kept = if persists == 1 { (0, kind, 1, registrants.clone()) } else { (0, 0, 0, vec![]) };
            assert_eq!(report(&again), kept, "{what}, seed {seed}");
            let found = again.runtime.device().describe("ns/1").unwrap().peek().record.attrs.clone();
            assert!(found.starts_with(&attrs[..attrs.len() - 1]), "{found}");
            assert!(persists == 1 || found == attrs, "{found}");
            let write = NvmeCommand::Write(Blocks::new(1, 0, 1)).encode(7);
            let may = again.send(&write, &[1; 512]).0;
            assert_eq!(
                may.ok(),
                kind == 0 || persists == 0 || registrants.iter().any(|one| one.2 == 1),
                "{what}: {may}"
            );
        }
    }
    // A feature does the same, of one namespace or of all.
    let set = |nsid, on| host.admin(&entry(AdminOpcode::SetFeatures as u8, nsid, &[(10, 0x83), (11, on)])).0;
    let get = |select: u32| host.admin(&entry(AdminOpcode::GetFeatures as u8, 1, &[(10, 0x83 | select << 8)])).1;
    assert_eq!((set(NSID_ALL, 1), get(0), get(1), get(2)), (Status::SUCCESS, 1, 0, 1));
    assert_eq!(report(&served(open(media.after_crash(9)), SubsystemOptions::default())).3, [(0, 8, 2)]);
    // A medium that fails leaves everything as it was.
    media.crash_at_write(1);
    let before = report(&host);
    assert!(!acquire(&other, 1, 8).ok());
    assert_eq!(report(&host), before);
}

#[test]
fn capabilities_are_those_of_the_export() {
    for (read_only, wanted) in [(false, 0xff), (true, 0xfe)] {
        let host = Host::with(SubsystemOptions { read_only, ..SubsystemOptions::default() });
        assert_eq!((host.identify(0, 0, 1).unwrap()[31], host.identify(8, 0, 1).unwrap()[2]), (wanted, wanted));
        assert_eq!(host.identify(8, 0, NSID_MEMORY).unwrap()[2], 0);
        assert_eq!(host.identify(1, 0, 0).unwrap()[520] >> 5 & 1, 1, "ONCS");
        let persists = if read_only { Status::INVALID_FIELD } else { Status::SUCCESS };
        assert_eq!(send(&host, REGISTER, 1, PERSIST, [0, 5]), persists);
        let set = host.admin(&entry(AdminOpcode::SetFeatures as u8, 1, &[(10, 0x83), (11, 1)])).0;
        assert_eq!(set, if read_only { Status::FEATURE_NOT_CHANGEABLE } else { Status::SUCCESS });
        assert_eq!((register(&host, 5), acquire(&host, 2, 5)), (Status::SUCCESS, Status::SUCCESS), "for reading, too");
        let other = host.another_as([2; 16]);
        let read = NvmeCommand::Read(Blocks::new(1, 0, 1)).encode(7);
        assert_eq!(other.fetch(&read, 512), Err(Status::RESERVATION_CONFLICT));
    }
}

#[test]
fn reservation_commands_fail_with_their_codes() {
    let host = Host::new();
    let unnamed = host.another_as([0; 16]);
    assert_eq!(register(&unnamed, 1), Status::INVALID_FIELD, "a host without an identifier");
    for nsid in [0, 9, 2000, NSID_ALL] {
        assert_eq!(send(&host, REGISTER, nsid, 0, [0, 1]), Status::INVALID_NAMESPACE, "{nsid}");
    }
    assert_eq!(send(&host, REGISTER, NSID_MEMORY, 0, [0, 1]), Status::INVALID_OPCODE, "another command set");
    for (opcode, bytes) in [(REGISTER, 15), (ACQUIRE, 15), (RELEASE, 7)] {
        let short = host.send(&entry(opcode, 1, &[(10, 1 << 8)]), &vec![0; bytes]).0;
        assert_eq!(short, Status::DATA_LENGTH_INVALID, "{opcode:#x}");
        assert_eq!(host.io(&entry(opcode, 1, &[(10, 1 << 8)])).0, Status::DATA_LENGTH_INVALID, "{opcode:#x}");
    }
    let fetch = |words: &[(usize, u32)], bytes| host.fetch(&entry(0x0e, 1, words), bytes).err();
    assert_eq!(fetch(&[(10, 15)], 64), Some(Status::HOST_ID_FORMAT), "identifiers of 64 bits");
    assert_eq!(fetch(&[(10, 15), (11, 1)], 60), Some(Status::DATA_LENGTH_INVALID));
    assert_eq!(fetch(&[(10, 3), (11, 1)], 16), None, "a part of the head");
    assert_eq!((Status::RESERVATION_CONFLICT.sct(), Status::RESERVATION_CONFLICT.sc()), (0, 0x83));
    // 256 hosts, most of which are gone.
    for i in 0..256u32 {
        let mut hostid = [7; 16];
        hostid[..4].copy_from_slice(&i.to_le_bytes());
        assert_eq!(register(&host.another_as(hostid), 3), Status::SUCCESS, "host {i}");
    }
    assert_eq!(register(&host, 3), Status::RESOURCES);
    let last = host.another_as([7; 16]);
    assert_eq!(register(&last, 3), Status::RESOURCES);
    let mut known = [7; 16];
    known[..4].copy_from_slice(&255u32.to_le_bytes());
    assert_eq!(send(&host.another_as(known), RELEASE, 1, 1, [3, 0]), Status::SUCCESS, "it is back, and clears all");
    assert_eq!(register(&host, 3), Status::SUCCESS);
}

/// Preempt and Abort completes after the commands of the host that it preempts, and waits for no others.
#[test]
fn an_aborting_preemption_waits_for_the_commands_of_the_preempted_host() {
    let first = Host::new();
    let [host, other, third] = [1, 2, 3].map(|id| first.another_as([id; 16]));
    for (one, key) in [(&host, 1), (&other, 2), (&third, 3)] {
        assert_eq!(register(one, key), Status::SUCCESS);
    }
    assert_eq!(acquire(&other, 1, 2), Status::SUCCESS);
    let (mine, foreign) = (host.association.executing.begin(), third.association.executing.begin());
    let (in_flight, has_ended) = (other.association.executing.begin(), AtomicBool::new(false));
    let outputs = Arc::new(OutputMemory::new(&other.association.tenant().budget, &other.association.tenant().spool));
    let limits = RunLimits { instructions_max: u64::MAX, time_max: Duration::MAX, outputs };
    let running = other.association.running.begin(&AtomicU64::new(0), RunCommand { qid: 1, cid: 9 }, true, limits);
    thread::scope(|scope| {
        let preempting = scope.spawn(|| {
            let status = send(&host, ACQUIRE, 1, 2 | 1 << 8, [1, 2]);
            assert!(has_ended.load(Ordering::SeqCst), "it did not wait");
            status
        });
        while report(&third).3.len() == 3 {
            thread::yield_now();
        }
        // It is in force before it completes: what begins now is excluded.
        let write = NvmeCommand::Write(Blocks::new(1, 0, 1)).encode(7);
        assert_eq!(other.send(&write, &[1; 512]).0, Status::RESERVATION_CONFLICT);
        thread::sleep(Duration::from_millis(20));
        assert!(!preempting.is_finished());
        has_ended.store(true, Ordering::SeqCst);
        drop(in_flight);
        assert_eq!(nandarray::internals::joined(preempting), Status::SUCCESS);
    });
    assert!(running.progress().stop.load(Ordering::SeqCst), "executions of programs are stopped");
    drop((mine, foreign));
    assert_eq!(notices(&other, &mut 0), [1]);
}
