//! The composition root: builds the layers, and is the only entrance to them.
//!
//! Every request is a [`Command`]; all interfaces (Python, the CLI, NVMe, queues in shared memory) build the same
//! commands. Executing one copies and serialises nothing: buffers are lent, names borrowed.
//!
//! | file | one idea |
//! | --- | --- |
//! | `command`, `execute` | the commands; their replies and the calls that execute them |
//! | `io` | read, write, deallocate: their locks and steps |
//! | `target` | targets as work for the layers below |
//! | `write`, `apply` | the halves of a write: what may fail, what cannot |
//! | `staged_write` | parts of a long write, applied as one |
//! | `flight`, `owned` | commands in two halves, between which time may pass; commands that own what they need |
//! | `epoch` | the lock between commands that change something and the journal's cuts |
//! | `reshape` | resize, append |
//! | `catalog` | create, open, delete, attributes, statistics |
//! | `compound` | reads and staged writes whose caller decides step by step, applied as one: programs beside the data |
//! | `transaction` | writes to several spaces, over several commands, applied as one |
//! | `batch` | several changes of names and attributes as one command |
//! | `names` | the rule of names |
//! | `identity` | the identity of a served store, which no copy of its file has |
//! | `snapshots` | snapshots: versions of all spaces that share pages with the newest |
//! | `service` | counts of a served store's starts and cut-off ends |
//! | `log` | the journal: commit, checkpoint, flush |
//! | `recover`, `replay`, `opening` | create, open; apply the journal; the records that were ignored on opening |
//! | `reclaim`, `compact`, `defragment` | garbage collection; compaction; rewriting scattered blocks |
//! | `check`, `repair` | comparing metadata and pages with each other; mending what the records allow |
//! | `wire` | the content of journal and directory |
//!
//! Order of locks: block ranges, transaction, reclaim, commit, epoch, space, log, catalog; any may be skipped, none
//! taken out of order. There is one exception: a checkpoint, which holds the epoch exclusively, locks spaces under the
//! log's lock. This cannot deadlock, since a thread that holds a space and waits for the log also holds the epoch
//! shared.

mod apply;
mod batch;
mod catalog;
mod check;
pub mod command;
mod compact;
mod compound;
mod defragment;
mod epoch;
mod execute;
mod flight;
mod identity;
mod io;
mod log;
pub mod names;
mod oob_scan;
mod opening;
mod owned;
mod reclaim;
mod recover;
mod repair;
mod replay;
mod reshape;
mod salvage;
mod service;
mod snapshots;
mod spool;
mod staged_write;
mod stored;
mod target;
mod transaction;
mod wire;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

pub use check::{CheckReport, Finding};
pub use command::{Change, NewSpace, Target};
pub use compound::Compound;
pub use execute::Command;
pub use flight::Done;
pub use identity::IdentityChoice;
pub use opening::Dropped;
pub use owned::{OwnedCommand, OwnedTarget};
pub use service::ServiceCounts;
pub use snapshots::SnapshotInfo;
pub use spool::Spool;
pub use staged_write::StagedWrite;
pub use transaction::TransactionId;

use crate::error::{Error, Holder, Result};
use crate::flash::Geometry;
use crate::ftl::policy::wear_levelling::WearLevelling;
use crate::ftl::{Ftl, Verify};
use crate::media::Media;
use crate::media::file::{FileAccess, FileMedia};
use crate::sim::panics::caught;
use crate::sim::process::{Inside, ProcessScope};
use crate::sim::{Counters, Moves, Order, Probe, Purpose};
use crate::stl::space::{SPILLED, Space, SpaceId};
use crate::stl::work::Workers;
use epoch::Epoch;
use log::Log;

/// The mode in which a store is opened, as in h5py.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reading only; the store must exist.
    Read,
    /// Reading and writing; the store must exist.
    ReadWrite,
    /// Reading and writing; creates the store if it does not exist.
    Append,
    /// Creates the store; an existing store's content is lost.
    Truncate,
    /// Creates the store, which must not exist.
    Exclusive,
}

impl Mode {
    /// Parses one of h5py's modes: `r`, `r+`, `a`, `w`, `x` (or `w-`).
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other text.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "r" => Self::Read,
            "r+" => Self::ReadWrite,
            "a" => Self::Append,
            "w" => Self::Truncate,
            "x" | "w-" => Self::Exclusive,
            _ => {
                return Err(Error::invalid(format!("unknown mode '{text}'; there are 'r', 'r+', 'a', 'w' and 'x'")));
            }
        })
    }
}

/// Options for opening a store. Geometry and capacity apply only when a store is created: they fix its format.
#[derive(Clone, Debug)]
pub struct Options {
    /// Page and segment sizes of a new store.
    pub geometry: Geometry,
    /// Whether to keep the geometry as it is, e.g. that of a described device; otherwise segments become smaller when
    /// the capacity is small.
    pub exact_geometry: bool,
    /// Largest size of a new store in bytes; `None` lets it grow segment by segment.
    pub capacity_bytes: Option<u64>,
    /// Name of the placement policy; `None` keeps the store's, or chooses `nds` for a new store.
    pub placement: Option<String>,
    /// Name of the victim policy; `None` keeps the store's, or chooses `greedy` for a new store.
    pub victim: Option<String>,
    /// Wear levelling as a part of reclaim; off by default, since an SSD below the file does its own.
    pub wear_levelling: WearLevelling,
    /// The reads at which pages are compared with their checksum.
    pub verify: Verify,
    /// Whether files are memory-mapped for reading.
    pub map: bool,
    /// Number of threads that work on a command, including the caller's; `None` is one for each core.
    pub threads: Option<usize>,
    /// Size of the write buffer: bytes that may wait in memory before they are appended as pages.
    pub write_buffer_bytes: usize,
    /// Seed of the engine's random numbers, together with `entropy`.
    pub seed: u64,
    /// A number that differs each time the store is opened, so that pages left by a crash are never mistaken for new
    /// ones.
    pub entropy: u64,
    /// Whether to open a damaged store from its intact parts, for repair.
    pub salvage: bool,
    /// Observer of commands, such as the modelled clock; `None` for no observer.
    pub probe: Option<Arc<dyn Probe>>,
}

impl Options {
    /// Checks the options without touching the medium, before a store is opened or emptied.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a geometry or a number of threads that is not allowed.
    pub fn validate(&self) -> Result<()> {
        self.geometry.validate()?;
        self.threads.map_or(Ok(()), Workers::check)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            geometry: Geometry::FILE,
            exact_geometry: false,
            capacity_bytes: None,
            placement: None,
            victim: None,
            wear_levelling: WearLevelling::default(),
            verify: Verify::Once,
            map: true,
            threads: None,
            write_buffer_bytes: 64 << 20,
            seed: 0,
            entropy: 0,
            salvage: false,
            probe: None,
        }
    }
}

#[derive(Debug, Default)]
struct Catalog {
    by_name: BTreeMap<String, SpaceId>,
    by_id: HashMap<SpaceId, Arc<Space>>,
    next: SpaceId,
    /// The snapshots, and the versions of spaces that they keep.
    kept: snapshots::KeptVersions,
}

impl Catalog {
    /// Returns an error if a new name would lie in an array, or is that of a group: a name is an array or a group,
    /// never both. `changed` has the names that a command under way gives (the space) and frees (`None`).
    fn check_place(&self, name: &str, changed: &HashMap<&str, Option<SpaceId>>) -> Result<()> {
        let exists = |name: &str, group| Err(Error::Exists { name: name.to_owned(), group });
        let is_taken = |name: &str| match changed.get(name) {
            Some(id) => id.is_some(),
            None => self.by_name.contains_key(name),
        };
        if let Some((at, _)) = name.match_indices('/').find(|&(at, _)| is_taken(&name[..at])) {
            return exists(&name[..at], false);
        }
        // A name that `changed` gives lies in no array by its own check.
        let group = format!("{name}/");
        let mut below = self.by_name.range(group.clone()..).take_while(|(found, _)| found.starts_with(&group));
        if below.any(|(found, _)| is_taken(found)) { exists(name, true) } else { Ok(()) }
    }

    /// Asserts that each space has exactly one name, which every change of names must keep.
    fn check(&self) {
        assert_eq!(self.by_name.len(), self.by_id.len(), "each space has one name");
    }
}

/// The error of the medium after which a store takes no more writes, kept so that it can be returned again.
#[derive(Debug)]
struct Refusal {
    op: &'static str,
    offset: u64,
    len: u64,
    code: Option<i32>,
    text: String,
}

impl Refusal {
    fn of(e: &Error) -> Self {
        match e {
            Error::Media { op, offset, len, source } => {
                Self { op, offset: *offset, len: *len, code: source.raw_os_error(), text: source.to_string() }
            }
            e => Self { op: "sync", offset: 0, len: 0, code: None, text: e.to_string() },
        }
    }

    fn error(&self) -> Error {
        let source =
            self.code.map_or_else(|| std::io::Error::other(self.text.clone()), std::io::Error::from_raw_os_error);
        Error::Media { op: self.op, offset: self.offset, len: self.len, source }
    }
}

/// An open store.
#[derive(Debug)]
pub struct Device {
    ftl: Ftl,
    counters: Arc<Counters>,
    workers: Workers,
    catalog: RwLock<Catalog>,
    /// Lock that is held shared while a command is applied, and exclusively while the journal takes a cut.
    epoch: Epoch,
    commit: Mutex<()>,
    reclaim: Mutex<()>,
    log: Mutex<Log>,
    seq: AtomicU64,
    buffered_bytes: AtomicUsize,
    /// Whether changes of earlier commands have failed to be committed.
    behind: AtomicBool,
    write_buffer_bytes: usize,
    read_only: bool,
    closed: AtomicBool,
    /// The error of a failed barrier; `None` if none has failed. After it the medium's content is unknown (the kernel
    /// forgets failed pages).
    failed: Mutex<Option<Refusal>>,
    /// Message of the first panic inside a command. Memory may be half changed after it, so the store accepts no more
    /// commands.
    panicked: OnceLock<String>,
    opening: opening::Opening,
    uuid: [u8; 16],
    /// Identity as a drive (`identity`).
    identity: Mutex<[u8; 16]>,
    /// Counts of the service as a drive (`service`); `None` if the store is not served.
    served: Mutex<Option<ServiceCounts>>,
    capacity_bytes: u64,
    transactions: Mutex<transaction::Transactions>,
    /// Record of the threads that are executing commands, in the process that opened the store.
    scope: ProcessScope,
}

impl Device {
    /// Opens a store in a file.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::NotAStore`], [`Error::Version`], [`Error::Corrupt`], [`Error::FileExists`],
    /// [`Error::Media`].
    pub fn open_file(path: &Path, mode: Mode, options: &Options) -> Result<Self> {
        Self::open_file_through(path, mode, options, |file| file)
    }

    /// Opens a store in a file through a wrapper around the file's medium, such as one that injects faults.
    ///
    /// # Errors
    /// As [`Self::open_file`].
    pub fn open_file_through(
        path: &Path,
        mode: Mode,
        options: &Options,
        wrap: impl FnOnce(Arc<dyn Media>) -> Arc<dyn Media>,
    ) -> Result<Self> {
        options.validate()?;
        let access = match mode {
            Mode::Read => FileAccess::Read,
            Mode::ReadWrite => FileAccess::Write,
            Mode::Append | Mode::Truncate => FileAccess::Create,
            Mode::Exclusive => FileAccess::CreateNew,
        };
        let media = Arc::new(FileMedia::open(path, access, options.map)?);
        if mode == Mode::Truncate && !media.is_empty() {
            let cleared = media.if_no_readers(&mut || media.set_len(0))?;
            if !cleared {
                return Err(Error::Locked { path: path.display().to_string(), by: Holder::Readers });
            }
        }
        let done = Self::open(wrap(media.clone()), &path.display().to_string(), mode, options);
        if done.is_err() {
            // A file that this call created holds nothing, and would be in the way of the next one.
            media.remove_created();
        }
        done
    }

    /// Opens a store on a medium; `name` stands for it in messages. On an empty medium a store is created, unless the
    /// mode demands an existing one.
    ///
    /// # Errors
    /// As [`Self::open_file`].
    pub fn open(media: Arc<dyn Media>, name: &str, mode: Mode, options: &Options) -> Result<Self> {
        caught(|| recover::open(media, name, mode, options)).unwrap_or_else(|panic| Err(Error::Internal(panic)))
    }

    /// Executes a command.
    ///
    /// # Errors
    /// The errors of the command, which has then changed nothing. [`Error::Internal`] if the engine panicked, in this
    /// command or in an earlier one: the store accepts no more commands then, and flushed data is intact when it is
    /// opened again.
    pub fn execute<C: Command>(&self, command: C) -> Result<C::Reply> {
        let _inside = self.enter()?;
        if self.read_only && command.writes() {
            return Err(Error::ReadOnly);
        }
        if self.ftl.probe().is_some() { self.execute_watched(command) } else { self.guarded(|| command.run(self)) }
    }

    /// Panics inside a command, as a broken invariant would; for tests of the engine's callers.
    ///
    /// # Errors
    /// [`Error::Internal`], always.
    pub fn panic_on_purpose(&self) -> Result<()> {
        let _inside = self.enter()?;
        self.as_command(Order::Free, Moves::Nothing, || {
            let (_epoch, _log) = (self.epoch.read(), self.log.lock());
            panic!("on purpose")
        })
    }

    /// Runs a part of a command; a panic in it becomes the error of this command and of all later ones.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        caught(work).unwrap_or_else(|panic| {
            let first = self.panicked.get_or_init(|| panic);
            Err(Error::Internal(first.clone()))
        })
    }

    /// Returns an error if a command has panicked.
    fn whole(&self) -> Result<()> {
        match self.panicked.get() {
            Some(panic) => Err(Error::Internal(panic.clone())),
            // The epoch is marked before the panicking command has unwound and left its message.
            None if self.epoch.is_torn() => Err(Error::Internal("a command in another thread panicked".to_owned())),
            None => Ok(()),
        }
    }

    /// Flushes and closes the store, which then accepts no commands. Does nothing on a closed store.
    ///
    /// # Errors
    /// The errors of a flush; the store then stays open and has lost nothing. If the medium failed a barrier, now or
    /// before ([`Error::Media`]), or a command panicked ([`Error::Internal`]), the error is returned once and the store
    /// is closed.
    pub fn close(&self) -> Result<()> {
        let done = self.close_once();
        if self.closed() && self.scope.is_here() {
            // Wakes commands that wait for a transaction or a run, which cannot end any more.
            self.spaces().iter().for_each(|space| {
                space.ranges.close();
                space.runs.close();
                space.growth.close();
            });
        }
        done
    }

    fn close_once(&self) -> Result<()> {
        if self.closed() {
            return Ok(());
        }
        if !self.scope.is_here() {
            // Only the process that opened the store flushes it.
            self.closed.store(true, Ordering::Release);
            return Ok(());
        }
        let _inside = self.scope.enter();
        // After a panic nothing is written: the medium's content is consistent, but the memory's may not be.
        let done = self.whole().and_then(|()| {
            // Commands in flight complete first; those that wait for an open transaction fail.
            if let Some(conductor) = self.conductor() {
                self.guarded(|| {
                    while conductor.drive(None) {}
                    Ok(())
                })?;
            }
            self.as_command(Order::Alone, Moves::Nothing, || if self.read_only { Ok(()) } else { self.finish() })
        });
        if self.whole().is_err() {
            self.closed.store(true, Ordering::Release);
            return done;
        }
        if self.sound().is_err() {
            // Later writes cannot be made durable, so trying again is useless.
            self.closed.store(true, Ordering::Release);
            return done.and(self.barrier_held());
        }
        if done.is_ok() {
            self.end_service();
            self.closed.store(true, Ordering::Release);
        }
        done
    }

    /// Whether the store was closed.
    pub fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns an error if the store was closed. While the caller holds the epoch, the answer does not change.
    fn still_open(&self) -> Result<()> {
        if self.closed() { Err(Error::Closed("the store was closed meanwhile".to_owned())) } else { Ok(()) }
    }

    /// Whether the store is open for reading only.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the sizes of pages and segments.
    pub fn geometry(&self) -> Geometry {
        self.ftl.geometry()
    }

    /// Returns the largest size of the store in bytes; 0 if it grows without limit.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Returns the journal records that were ignored when the store was opened; `None` if all were applied.
    pub fn dropped(&self) -> Option<&Dropped> {
        self.opening.dropped.as_ref()
    }

    /// Returns the store's identifier, which never changes.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Returns the names of the placement policy and of the victim policy.
    pub fn policies(&self) -> (String, String) {
        self.ftl.policies()
    }

    /// Runs `f` while the probe attributes its operations to this purpose.
    fn for_purpose<T>(&self, purpose: Purpose, f: impl FnOnce() -> T) -> T {
        let Some(probe) = self.ftl.probe() else { return f() };
        let before = probe.purpose(purpose);
        let got = f();
        probe.purpose(before);
        got
    }

    /// Marks the calling thread as executing a command until the returned guard is dropped; fails if the store takes no
    /// commands.
    fn enter(&self) -> Result<Inside> {
        let inside = self.scope.enter();
        if self.closed() {
            return Err(Error::Closed("the store is closed".to_owned()));
        }
        self.whole()?;
        if !self.scope.is_here() {
            self.forked()?;
        }
        Ok(inside)
    }

    /// Returns an error unless the store can be read in this process, which was forked from the one that opened it.
    #[cold]
    fn forked(&self) -> Result<()> {
        if !self.read_only {
            // Writes and erases of the other process are not visible here.
            return Err(Error::Closed(
                "this process was forked from one that has the store open for writing; open it here, for reading"
                    .to_owned(),
            ));
        }
        if self.scope.was_left_inside() {
            // The locks of the other thread's command are never released here.
            return Err(Error::Closed(
                "this process was forked while another thread was in a command of the store; `refresh` it here, or \
                 open it again"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Returns [`Error::Closed`] if a barrier has failed, after which no write can be made durable.
    fn sound(&self) -> Result<()> {
        match &*self.failed.lock() {
            Some(refusal) => {
                Err(Error::Closed(format!("the store takes no more writes since a flush failed: {}", refusal.error())))
            }
            None => Ok(()),
        }
    }

    /// Returns the error of the medium if a barrier has failed.
    fn barrier_held(&self) -> Result<()> {
        match &*self.failed.lock() {
            Some(refusal) => Err(refusal.error()),
            None => Ok(()),
        }
    }

    fn next_seq(&self) -> u64 {
        let before = self.seq.fetch_add(1, Ordering::Relaxed);
        assert!(before < u64::MAX, "no number is left for another command");
        before + 1
    }

    /// Returns a space to be written.
    fn space(&self, id: SpaceId) -> Result<Arc<Space>> {
        if id >= SPILLED {
            // Versions that snapshots keep have these numbers.
            return Err(Error::ReadOnly);
        }
        let catalog = self.catalog.read();
        catalog.by_id.get(&id).cloned().ok_or_else(|| Error::Closed("the array was deleted".to_owned()))
    }

    /// Returns a space to be read: also a version that a snapshot keeps.
    fn space_to_read(&self, id: SpaceId) -> Result<Arc<Space>> {
        if id < SPILLED { self.space(id) } else { self.catalog.read().kept.by_id(id) }
    }

    /// Returns all spaces that can be written.
    fn spaces(&self) -> Vec<Arc<Space>> {
        let catalog = self.catalog.read();
        // In order of names, so that nothing depends on hash order.
        catalog.by_name.values().map(|id| catalog.by_id[id].clone()).collect()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // A store that is dropped while open is closed without reporting errors; a caller that needs them calls
        // `close`.
        let _ = self.close();
    }
}
