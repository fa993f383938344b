//! Subsystems without a transport: a store in memory, a host that sends entries, and tests of what it is answered.

mod admin;
mod events;
mod logs;
mod model;
mod programs;
mod reservations;
mod statuses;

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use nandarray::nvme::{Controller, NewNamespace, Status, SubmissionEntry};
use nandarray::{Device, Geometry, MemoryMedia, Mode, Options};
use nandarray_runtime::Runtime;

use crate::{AdminAnswer, Association, HostIdentity, Payload, Subsystem, SubsystemOptions};
use nandarray_nvme_spec::{AdminOpcode, FABRICS_OPCODE, FabricsType, Property};

/// Number of blocks of 512 bytes of namespace 1.
const BLOCKS: u64 = 64;
/// Size of Subsystem Local Memory.
const MEMORY: usize = 1 << 16;

/// A host's controller of a subsystem on a store in memory.
struct Host {
    runtime: Arc<Runtime>,
    subsystem: Arc<Subsystem>,
    association: Arc<Association>,
}

/// Runs `work` in a thread and returns its result; panics if that takes longer than a minute.
pub(crate) fn within<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || tell.send(work()));
    match told.recv_timeout(Duration::from_secs(60)) {
        Ok(done) => done,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: not after a minute"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("a thread that told nothing has panicked"))
        }
    }
}

/// The answer to a command: its status, and dwords 0 and 1 of its completion as one number.
type Answer = (Status, u64);

/// Makes an entry with these command dwords.
fn entry(opcode: u8, nsid: u32, words: &[(usize, u32)]) -> SubmissionEntry {
    let mut entry = SubmissionEntry { opcode, nsid: nsid.into(), cid: 7.into(), ..SubmissionEntry::default() };
    words.iter().for_each(|&(number, word)| entry.set_cdw(number, word));
    entry
}

fn property_set(offset: u32, value: u32) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(FABRICS_OPCODE, FabricsType::PropertySet as u32, 7);
    entry.set_cdw(11, offset);
    entry.set_cdw(12, value);
    entry
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Makes a subsystem with these options and [`MEMORY`] bytes of memory, of a store in memory.
pub(crate) fn subsystem(options: SubsystemOptions) -> (Arc<Runtime>, Arc<Subsystem>) {
    let options_of_store = Options { geometry: Geometry::TINY, threads: Some(1), ..Options::default() };
    let media = Arc::new(MemoryMedia::default());
    let device = Device::open(media, "memory", Mode::Truncate, &options_of_store).unwrap();
    let runtime = Arc::new(Runtime::new(Arc::new(device)));
    let new = NewNamespace { nsid: 1, nsze: BLOCKS, lba_bytes: 512, compression: None, key: None };
    Controller::new(runtime.device()).create_namespace(&new).unwrap();
    let subsystem = Subsystem::new(&runtime, SubsystemOptions { memory_bytes: MEMORY, ..options });
    (runtime, subsystem)
}

impl Host {
    fn new() -> Self {
        Self::with(SubsystemOptions::default())
    }

    /// Connects a host to a new subsystem with these options and [`MEMORY`] bytes of memory, and enables its
    /// controller.
    fn with(options: SubsystemOptions) -> Self {
        let (runtime, subsystem) = subsystem(options);
        let association = Self::associate(&subsystem);
        let host = Self { runtime, subsystem, association };
        host.enable(true);
        host
    }

    fn associate(subsystem: &Arc<Subsystem>) -> Arc<Association> {
        Self::associate_as(subsystem, *b"the host's id 16")
    }

    fn associate_as(subsystem: &Arc<Subsystem>, hostid: [u8; 16]) -> Arc<Association> {
        let subnqn = subsystem.nqn().to_owned();
        let host = HostIdentity { hostid, hostnqn: "nqn.host".to_owned(), subnqn, local: None, peer: None };
        subsystem.associate(host, 5000).unwrap()
    }

    /// Connects another host to the same subsystem, with a controller of its own.
    fn another(&self) -> Self {
        self.another_as(*b"the host's id 16")
    }

    /// Connects a host with this identifier.
    fn another_as(&self, hostid: [u8; 16]) -> Self {
        let association = Self::associate_as(&self.subsystem, hostid);
        let host = Self { runtime: self.runtime.clone(), subsystem: self.subsystem.clone(), association };
        host.enable(true);
        host
    }

    /// Sets or clears the bit EN of the controller's configuration.
    fn enable(&self, on: bool) {
        assert_eq!(self.admin(&property_set(Property::CC, 0x0046_0060 | u32::from(on))).0, Status::SUCCESS);
    }

    fn create_namespace(&self, nsid: u32, nsze: u64, lba_bytes: u32) {
        let new = NewNamespace { nsid, nsze, lba_bytes, compression: None, key: None };
        Controller::new(self.runtime.device()).create_namespace(&new).unwrap();
    }

    fn admin_with(&self, entry: &SubmissionEntry, payload: Payload<'_>) -> Answer {
        match self.association.admin(entry, payload) {
            AdminAnswer::Done(done) => {
                assert_eq!(done.cid, entry.cid);
                (done.status(), u64::from(done.dw0.get()) | u64::from(done.dw1.get()) << 32)
            }
            AdminAnswer::Held => panic!("{entry:?} is held"),
        }
    }

    /// Executes an admin command without data.
    fn admin(&self, entry: &SubmissionEntry) -> Answer {
        self.admin_with(entry, Payload::None)
    }

    /// Executes an admin command with data of the host.
    fn admin_send(&self, entry: &SubmissionEntry, data: &[u8]) -> Answer {
        self.admin_with(entry, Payload::ToController(data))
    }

    /// Executes an admin command that returns `bytes` bytes.
    fn admin_fetch(&self, entry: &SubmissionEntry, bytes: usize) -> Result<Vec<u8>, Status> {
        let mut room = vec![0xee; bytes];
        let (status, _) = self.admin_with(entry, Payload::ToHost(&mut room));
        if status.ok() { Ok(room) } else { Err(status) }
    }

    fn io_with(&self, entry: &SubmissionEntry, payload: Payload<'_>) -> Answer {
        let done = self.association.io(1, entry, payload);
        assert_eq!(done.cid, entry.cid);
        (done.status(), u64::from(done.dw0.get()) | u64::from(done.dw1.get()) << 32)
    }

    /// Executes an I/O command without data.
    fn io(&self, entry: &SubmissionEntry) -> Answer {
        self.io_with(entry, Payload::None)
    }

    /// Executes an I/O command with data of the host.
    fn send(&self, entry: &SubmissionEntry, data: &[u8]) -> Answer {
        self.io_with(entry, Payload::ToController(data))
    }

    /// Executes an I/O command that returns `bytes` bytes.
    fn fetch(&self, entry: &SubmissionEntry, bytes: usize) -> Result<Vec<u8>, Status> {
        let mut room = vec![0xee; bytes];
        let (status, _) = self.io_with(entry, Payload::ToHost(&mut room));
        if status.ok() { Ok(room) } else { Err(status) }
    }

    fn identify(&self, cns: u8, csi: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        let words = [(10, cns.into()), (11, u32::from(csi) << 24)];
        self.admin_fetch(&entry(AdminOpcode::Identify as u8, nsid, &words), 4096)
    }

    /// Fetches `bytes` bytes of a log page, from byte `offset` on.
    fn log_part(&self, page: u8, offset: u64, bytes: usize, csi: u8, retain: bool) -> Result<Vec<u8>, Status> {
        let dwords = bytes as u32 / 4 - 1;
        let words = [
            (10, u32::from(page) | u32::from(retain) << 15 | dwords << 16),
            (11, dwords >> 16),
            (12, offset as u32),
            (13, (offset >> 32) as u32),
            (14, u32::from(csi) << 24),
        ];
        self.admin_fetch(&entry(AdminOpcode::GetLogPage as u8, 0xffff_ffff, &words), bytes)
    }

    fn log(&self, page: u8, bytes: usize) -> Vec<u8> {
        self.log_part(page, 0, bytes, 0, false).unwrap()
    }
}
