//! The composition root: builds the layers from one description and is the only entrance to them.
//!
//! Every request is a [`Command`]; doors (Python, the CLI, later NVMe and GPU queues) build the same
//! commands. Executing one copies and serialises nothing: buffers are lent, names borrowed.
//!
//! | file | one idea |
//! | --- | --- |
//! | `command`, `execute` | the commands; their replies and the calls that execute them |
//! | `io` | read, write, deallocate: from a command to the layers below |
//! | `staged_write` | parts of a long write, applied as one |
//! | `flight`, `owned` | commands in two halves, between which time may pass; commands that own what they need |
//! | `epoch` | the lock between commands that change something and the journal's cuts |
//! | `reshape` | resize, append |
//! | `catalog` | create, open, delete, attributes, numbers |
//! | `compound` | reads, and drafts applied as one, of a caller that decides in between: programs beside the data |
//! | `transaction` | writes to several spaces, over several commands, applied as one |
//! | `batch` | several changes of names and attributes as one command |
//! | `log` | the journal: commit, checkpoint, flush |
//! | `recover`, `replay`, `opening` | create, open; apply the journal; the records that opening left out |
//! | `reclaim`, `compact`, `defragment` | garbage collection, compaction; bringing together what lies apart |
//! | `check`, `repair` | comparing everything with everything; mending what the records allow |
//! | `wire` | what journal and directory say |
//!
//! Order of locks: block ranges, transaction, reclaim, commit, epoch, space, log, catalog; any may be skipped, none
//! taken out of order. With one exception: a checkpoint, which holds epoch exclusively, looks into spaces under the
//! log's lock. A thread that holds a space and waits for the log also holds epoch shared, so no circle of waiting can
//! form.

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
mod io;
mod log;
mod oob_scan;
mod opening;
mod owned;
mod reclaim;
mod recover;
mod repair;
mod replay;
mod reshape;
mod salvage;
mod staged_write;
mod transaction;
mod wire;

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
pub use opening::Dropped;
pub use owned::{OwnedCommand, OwnedTarget};
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
use crate::stl::space::{Space, SpaceId};
use crate::stl::work::Workers;
use epoch::Epoch;
use log::Log;

/// The mode in which a store is opened, as in h5py.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reading; the store must be there.
    Read,
    /// Reading and writing; the store must be there.
    ReadWrite,
    /// Reading and writing; made if it is not there.
    Append,
    /// Made; what was there is lost.
    Truncate,
    /// Made; must not be there.
    Exclusive,
}

impl Mode {
    /// From h5py's letters: `r`, `r+`, `a`, `w`, `x` (or `w-`).
    ///
    /// # Errors
    /// [`Error::Invalid`].
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

/// Options for opening a store. Geometry and capacity count only when it is created: they fix its format.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shape of a new store's flash.
    pub geometry: Geometry,
    /// Take that shape as it is, where segments would otherwise be cut smaller for a small capacity: a described
    /// device's.
    pub exact_geometry: bool,
    /// The most bytes that a new store may take; `None` grows by segments.
    pub capacity_bytes: Option<u64>,
    /// Placement policy by name; `None` keeps the store's, or takes `nds`.
    pub placement: Option<String>,
    /// Victim policy by name; `None` keeps the store's, or takes `greedy`.
    pub victim: Option<String>,
    /// Wear levelling, as a part of reclaim; none by default, since an SSD below the file levels its own.
    pub wear_levelling: WearLevelling,
    /// When pages are compared with their checksum.
    pub verify: Verify,
    /// Whether files are mapped for reading.
    pub map: bool,
    /// Threads that work on a command, the caller's included; `None` is one a core.
    pub threads: Option<usize>,
    /// Size of the write buffer: bytes that may wait in memory before they are appended.
    pub write_buffer_bytes: usize,
    /// Seed of the engine's chance, together with `entropy`.
    pub seed: u64,
    /// A number that differs between openings, so that pages left behind by a crash are never taken for new.
    pub entropy: u64,
    /// Open a damaged store as far as it can be read, for repair.
    pub salvage: bool,
    /// Observer of commands: the modelled clock.
    pub probe: Option<Arc<dyn Probe>>,
}

impl Options {
    /// Checks what can be checked before anything is opened, or emptied.
    ///
    /// # Errors
    /// [`Error::Invalid`].
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
}

impl Catalog {
    /// Checks what every change of names must keep: each space has one name.
    fn check(&self) {
        assert_eq!(self.by_name.len(), self.by_id.len(), "each space has one name");
    }
}

/// The medium's error after which a store takes no more writes, to be raised again.
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

/// A store.
#[derive(Debug)]
pub struct Device {
    ftl: Ftl,
    counters: Arc<Counters>,
    workers: Workers,
    catalog: RwLock<Catalog>,
    /// The lock held shared while a command is applied, exclusively while the journal takes a cut.
    epoch: Epoch,
    commit: Mutex<()>,
    reclaim: Mutex<()>,
    log: Mutex<Log>,
    seq: AtomicU64,
    buffered_bytes: AtomicUsize,
    /// Whether changes of earlier commands could not be committed yet.
    behind: AtomicBool,
    write_buffer_bytes: usize,
    read_only: bool,
    closed: AtomicBool,
    /// Set once a barrier failed: the medium's content is unknown from then on (the kernel forgets failed pages).
    failed: Mutex<Option<Refusal>>,
    /// The message of the first panic inside a command: memory may be half changed, so nothing is done with it any
    /// more.
    panicked: OnceLock<String>,
    opening: opening::Opening,
    uuid: [u8; 16],
    capacity_bytes: u64,
    transactions: Mutex<transaction::Transactions>,
    /// Entered by threads while they execute commands.
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

    /// The same with something put between the store and its file: a fault, a modelled clock.
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
        let media = FileMedia::open(path, access, options.map)?;
        if mode == Mode::Truncate && !media.is_empty() {
            let cleared = media.if_no_readers(&mut || media.set_len(0))?;
            if !cleared {
                return Err(Error::Locked { path: path.display().to_string(), by: Holder::Readers });
            }
        }
        let name = path.display().to_string();
        let made = media.is_empty();
        let done = Self::open(wrap(Arc::new(media)), &name, mode, options);
        if made && done.is_err() && mode == Mode::Exclusive {
            // The file is ours and holds nothing.
            let _ = std::fs::remove_file(path);
        }
        done
    }

    /// Opens a store on a medium; `name` is what messages call it. An empty medium becomes a store unless the mode says
    /// that one must be there.
    ///
    /// # Errors
    /// As [`Self::open_file`].
    pub fn open(media: Arc<dyn Media>, name: &str, mode: Mode, options: &Options) -> Result<Self> {
        caught(|| recover::open(media, name, mode, options)).unwrap_or_else(|panic| Err(Error::Internal(panic)))
    }

    /// Executes a command.
    ///
    /// # Errors
    /// As the command says; the store is unchanged then. [`Error::Internal`] if the engine panicked, in this command or
    /// in an earlier one: the store takes no more commands then, and what was flushed is there when it is opened again.
    pub fn execute<C: Command>(&self, command: C) -> Result<C::Reply> {
        let _inside = self.enter()?;
        if self.read_only && command.writes() {
            return Err(Error::ReadOnly);
        }
        if self.ftl.probe().is_some() { self.execute_watched(command) } else { self.guarded(|| command.run(self)) }
    }

    /// Panics inside of a command, as a broken invariant would: for tests of doors.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub fn panic_on_purpose(&self) -> Result<()> {
        let _inside = self.enter()?;
        self.as_command(Order::Free, Moves::Nothing, || {
            let (_epoch, _log) = (self.epoch.read(), self.log.lock());
            panic!("on purpose")
        })
    }

    /// Runs a part of a command; a panic in it becomes an error, of this command and of all later ones.
    fn guarded<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        caught(work).unwrap_or_else(|panic| {
            let first = self.panicked.get_or_init(|| panic);
            Err(Error::Internal(first.clone()))
        })
    }

    /// Whether no command has panicked.
    fn whole(&self) -> Result<()> {
        match self.panicked.get() {
            Some(panic) => Err(Error::Internal(panic.clone())),
            // The command that panics is still unwinding.
            None if self.epoch.is_torn() => Err(Error::Internal("a command in another thread panicked".to_owned())),
            None => Ok(()),
        }
    }

    /// Flushes, and takes no more commands. Idempotent.
    ///
    /// # Errors
    /// As a flush; the store stays open then and loses nothing, unless the medium refused a barrier, now or before
    /// ([`Error::Media`]), or a command panicked ([`Error::Internal`]): that is said once, and the store is closed.
    pub fn close(&self) -> Result<()> {
        let done = self.close_once();
        if self.closed() && self.scope.is_here() {
            // Ends the waiting of commands for a transaction that cannot end any more.
            self.spaces().iter().for_each(|space| space.ranges.close());
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
        // Nothing of a store that panicked is written: what is on the medium is whole, what is in memory may not be.
        let done = self.whole().and_then(|()| {
            // Commands in flight come to their end first; those that wait for an open transaction fail.
            if let Some(probe) = self.ftl.probe() {
                self.guarded(|| {
                    while probe.drive(None) {}
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
            // Nothing of it can be promised, and nothing is won by trying again.
            self.closed.store(true, Ordering::Release);
            return done.and(self.barrier_held());
        }
        if done.is_ok() {
            self.closed.store(true, Ordering::Release);
        }
        done
    }

    /// Whether the store was closed.
    pub fn closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Whether the store is open for reading only.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// The shape of the flash.
    pub fn geometry(&self) -> Geometry {
        self.ftl.geometry()
    }

    /// The bytes that the store may take at most; 0 if it grows without limit.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Journal records that opening the store left out, if there were any.
    pub fn dropped(&self) -> Option<&Dropped> {
        self.opening.dropped.as_ref()
    }

    /// The store's identifier, which never changes.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Names of the policies: placement, victim.
    pub fn policies(&self) -> (String, String) {
        self.ftl.policies()
    }

    /// Runs `f` for a purpose, which is reported to the probe.
    fn for_purpose<T>(&self, purpose: Purpose, f: impl FnOnce() -> T) -> T {
        let Some(probe) = self.ftl.probe() else { return f() };
        let before = probe.purpose(purpose);
        let got = f();
        probe.purpose(before);
        got
    }

    /// The calling thread is inside of a command until what is returned is dropped.
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

    /// In a process forked from the one that opened the store: whether it can be read here.
    #[cold]
    fn forked(&self) -> Result<()> {
        if !self.read_only {
            // Writes and erases of the other process are not known here.
            return Err(Error::Closed(
                "this process was forked from one that has the store open for writing; open it here, for reading"
                    .to_owned(),
            ));
        }
        if self.scope.was_left_inside() {
            // Its locks are held for good.
            return Err(Error::Closed(
                "this process was forked while another thread was in a command of the store; `refresh` it here, or \
                 open it again"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Whether the medium failed a barrier, after which nothing may be promised any more.
    fn sound(&self) -> Result<()> {
        match &*self.failed.lock() {
            Some(refusal) => {
                Err(Error::Closed(format!("the store takes no more writes since a flush failed: {}", refusal.error())))
            }
            None => Ok(()),
        }
    }

    /// The same as the error of the medium that it was.
    fn barrier_held(&self) -> Result<()> {
        match &*self.failed.lock() {
            Some(refusal) => Err(refusal.error()),
            None => Ok(()),
        }
    }

    fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn space(&self, id: SpaceId) -> Result<Arc<Space>> {
        let catalog = self.catalog.read();
        catalog.by_id.get(&id).cloned().ok_or_else(|| Error::Closed("the array was deleted".to_owned()))
    }

    fn spaces(&self) -> Vec<Arc<Space>> {
        let catalog = self.catalog.read();
        // In order of names: nothing depends on the order of a hash.
        catalog.by_name.values().map(|id| catalog.by_id[id].clone()).collect()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // A store that is dropped open is closed as well as can be; a caller that needs the result calls `close`.
        let _ = self.close();
    }
}
