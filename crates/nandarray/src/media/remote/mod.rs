//! A medium far away, read only: an object whose bytes are fetched in ranges by a function ([`Fetch`]), and kept in
//! files of this machine ([`units`]).
//!
//! Reads announce what they need ([`Media::prefetch`]); units that are not here are wanted then ([`queue`]). Threads
//! take pieces of them, merged over small gaps, and fetch them side by side. A reader waits for the piece that has its
//! units ([`Media::bring`]), and asks for nothing that is on its way. No lock is held while a fetch function runs, or
//! while a waiting reader asks whether it is interrupted. Errors of a piece are those of the readers that wait for it;
//! one without a reader is forgotten, and the next read tries again.
//!
//! Bytes are lent in place if they are here and stay ([`Stay::Kept`]); [`Media::slice`] never waits. Where the disk is
//! full, units are kept in a bounded part of memory. A unit whose bytes do not match their checksums is fetched once
//! more ([`Media::distrust`]).
//!
//! This file knows no network, no etags and no folder of caches: these are those of the fetch function. Objects are
//! immutable as long as they are open.

mod queue;
#[cfg(test)]
mod tests;
mod units;

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use self::queue::{PieceQueue, ProcessQueue};
pub use self::units::{CacheFiles, Stay};
use self::units::{UNIT_BYTES, Units, units_of};
use super::Media;
use super::memory::beyond;
use super::presence::memory_bytes;
use crate::error::{Error, Result};
use crate::sim::panics::caught;

/// Name of the threads that fetch.
pub const THREAD_NAME: &str = "nandarray-far";
/// Largest number of threads that fetch for one medium.
const THREADS: usize = 32;
/// Largest number of bytes that are on their way at a time.
const FLYING_BYTES: u64 = 64 << 20;
/// Largest number of bytes that are wanted beside those that a reader waits for.
const WANTED_BYTES: u64 = 256 << 20;
/// Time without work after which a thread ends.
const IDLE: Duration = Duration::from_secs(1);
/// Time between two questions of a waiting reader whether it is interrupted.
const PATIENCE: Duration = Duration::from_millis(50);
/// Number of times that bytes which were evicted before they could be copied are fetched to be kept.
const COPIES: usize = 3;
/// Largest number of bytes of units in memory, and the share of the machine's memory that they take at most.
const SPILL_BYTES: u64 = 256 << 20;
const SPILL_SHARE: u64 = 16;

/// Why a fetch failed, shared by all readers that waited for it.
pub type FetchError = Arc<dyn std::error::Error + Send + Sync>;

/// Access to an object far away. All methods may be called by several threads at the same time.
pub trait Fetch: Send + Sync + fmt::Debug {
    /// Fetches the bytes from `from` to `to`, and passes them to `put` in parts that begin where a unit does: at
    /// `from`, or a multiple of [`RemoteMedia::UNIT`]. Called by threads of the medium, without its locks.
    ///
    /// # Errors
    /// The object is another one, or cannot be read; the text names it.
    fn fetch(
        &self,
        from: u64,
        to: u64,
        put: &mut (dyn FnMut(u64, &[u8]) + Send),
    ) -> std::result::Result<(), FetchError>;

    /// Asks whether the calling thread, which waits for bytes, is to give up.
    ///
    /// # Errors
    /// The reason why.
    fn interrupted(&self) -> std::result::Result<(), FetchError> {
        Ok(())
    }

    /// Learns, once, that units cannot be kept on the disk, and are kept in memory from now on.
    fn without_room(&self, _why: &io::Error) {}
}

/// An error of a fetch function as the source of an [`Error::Media`].
#[derive(Debug)]
pub struct Failed(FetchError);

impl Failed {
    /// Returns the error of the fetch function.
    pub fn get(&self) -> &FetchError {
        &self.0
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failed {}

/// A medium over an object far away.
pub struct RemoteMedia {
    shared: Arc<Shared>,
}

struct Shared {
    fetch: Box<dyn Fetch>,
    len: u64,
    units: Option<Units>,
    spill: OnceLock<Spill>,
    /// The queue of this process: one forked from it has its own, as it has no threads of this one.
    flights: AtomicPtr<ProcessQueue>,
    /// Units that were fetched once more because their bytes were not trusted.
    doubted: Mutex<HashSet<u64>>,
    closed: AtomicBool,
    told: AtomicBool,
}

/// Units in memory, bounded.
struct Spill {
    units: Units,
    bytes: AtomicU64,
    most: u64,
    /// The unit at which the next eviction begins.
    hand: Mutex<u64>,
}

/// Whether no more threads are started, because the process ends; and the number of those that run.
static ENDING: AtomicBool = AtomicBool::new(false);
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// Lock and signal for the end of a thread.
static ENDED: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());

/// Lets no more threads fetch, and waits for those that do; readers then fetch for themselves. For the end of a process
/// whose fetch functions need what ends with it.
pub fn end_fetches() {
    ENDING.store(true, Ordering::Release);
    // In a forked process the lock may be held for ever, and no thread runs.
    while RUNNING.load(Ordering::Acquire) > 0 {
        let _ = ENDED.1.wait_for(&mut ENDED.0.lock(), PATIENCE);
    }
}

/// Forgets the threads of the process from which this one was forked.
pub fn forget_fetches() {
    RUNNING.store(0, Ordering::Release);
}

impl fmt::Debug for RemoteMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteMedia").field("fetch", &self.shared.fetch).field("len", &self.shared.len).finish()
    }
}

impl RemoteMedia {
    /// Size in bytes of a unit, the smallest part of an object that is fetched.
    pub const UNIT: u64 = UNIT_BYTES;

    /// Opens an object of `len` bytes. Without `kept`, or if its files cannot be used, bytes are kept in memory alone.
    /// `trusting` is whether bytes are used that may have been there when the machine lost its power: their checksums
    /// are verified.
    pub fn new(fetch: Box<dyn Fetch>, len: u64, kept: Option<CacheFiles>, trusting: bool) -> Self {
        let mut shared = Shared {
            fetch,
            len,
            units: None,
            spill: OnceLock::new(),
            flights: AtomicPtr::new(Box::into_raw(Box::default())),
            doubted: Mutex::default(),
            closed: AtomicBool::new(false),
            told: AtomicBool::new(false),
        };
        if let Some(kept) = kept {
            match Units::open(kept, len, trusting) {
                Ok(units) => shared.units = Some(units),
                Err(why) => shared.say_no_room(&why),
            }
        }
        Self { shared: Arc::new(shared) }
    }
}

impl RemoteMedia {
    /// Takes bytes of the object that were fetched with its size, from its beginning on: as if they had been asked for.
    pub fn give(&self, bytes: &[u8]) {
        let whole = if bytes.len() as u64 == self.shared.len { bytes.len() } else { bytes.len() / UNIT * UNIT };
        if whole > 0 && !self.is_resident(0, whole as u64) {
            // Bytes without room are fetched when they are needed.
            let _ = self.shared.keep(0, &bytes[..whole]);
        }
    }
}

const UNIT: usize = UNIT_BYTES as usize;

/// Evicts units of an object that turns over from the files in which it is kept, until this many bytes are freed or
/// nothing is left; the first round spares those that were used since the last one, from a place that `seed` chooses.
/// Returns the bytes freed.
///
/// # Errors
/// Those of the system.
pub fn evict(kept: CacheFiles, len: u64, bytes: u64, seed: u64) -> io::Result<u64> {
    assert_eq!(kept.stay, Stay::TurningOver, "units of a kept object are lent");
    let units = Units::open(kept, len, true)?;
    units.evict(bytes, seed % len.div_ceil(UNIT_BYTES).max(1))
}

impl Drop for RemoteMedia {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        // The threads end by themselves: this one may hold what they need to do so.
        self.shared.flights().news.notify_all();
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let flights = *self.flights.get_mut();
        // SAFETY: made by `Box::into_raw`, and no reference to it is left. That of a forked process is as
        // the fork found it: it may be locked for ever, and is left alone.
        unsafe {
            if (*flights).home.is_here() {
                drop(Box::from_raw(flights));
            }
        }
    }
}

impl Shared {
    fn flights(&self) -> &ProcessQueue {
        let known = self.flights.load(Ordering::Acquire);
        // SAFETY: flights are freed with `self` alone.
        let flights = unsafe { &*known };
        if flights.home.is_here() {
            return flights;
        }
        let fresh = Box::into_raw(Box::<ProcessQueue>::default());
        match self.flights.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: as above; the flights of the other process are never freed here.
            Ok(_) => unsafe { &*fresh },
            // SAFETY: as above; no other thread has seen the fresh ones.
            Err(theirs) => unsafe {
                drop(Box::from_raw(fresh));
                &*theirs
            },
        }
    }

    fn has(&self, unit: u64) -> bool {
        let here = self.units.as_ref().is_some_and(|units| units.has(unit));
        here || self.spill.get().is_some_and(|spill| spill.units.has(unit))
    }

    fn say_no_room(&self, why: &io::Error) {
        if !self.told.swap(true, Ordering::AcqRel) {
            self.fetch.without_room(why);
        }
    }

    /// Keeps bytes that were fetched, which begin where a unit does.
    fn keep(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(units) = self.units.as_ref().filter(|_| self.spill.get().is_none()) {
            match units.write(offset, bytes) {
                Ok(()) => return Ok(()),
                Err(why) => self.say_no_room(&why),
            }
        }
        let spill = match self.spill.get() {
            Some(spill) => spill,
            None => {
                let most = SPILL_BYTES.min(memory_bytes() / SPILL_SHARE).max(16 * UNIT_BYTES);
                let units = Units::in_memory(self.len)?;
                self.spill.get_or_init(|| Spill { units, bytes: AtomicU64::new(0), most, hand: Mutex::new(0) })
            }
        };
        spill.units.write(offset, bytes)?;
        let held = spill.bytes.fetch_add(bytes.len() as u64, Ordering::AcqRel) + bytes.len() as u64;
        if held > spill.most {
            let mut hand = spill.hand.lock();
            let freed = spill.units.evict(held - spill.most / 4 * 3, *hand)?;
            *hand = (*hand + freed / UNIT_BYTES) % self.len.div_ceil(UNIT_BYTES);
            spill.bytes.fetch_sub(freed.min(held), Ordering::AcqRel);
        }
        Ok(())
    }

    /// Fetches bytes, and passes them to `put`.
    fn fetch(
        &self,
        from: u64,
        to: u64,
        put: &mut (dyn FnMut(u64, &[u8]) + Send),
    ) -> std::result::Result<(), FetchError> {
        let mut at = from;
        let mut wrong = None;
        let mut check = |offset: u64, bytes: &[u8]| {
            if offset != at || !offset.is_multiple_of(UNIT_BYTES) || offset + bytes.len() as u64 > to {
                wrong = Some(format!("{} bytes at {offset} came; those from {at} to {to} were due", bytes.len()));
                return;
            }
            at += bytes.len() as u64;
            put(offset, bytes);
        };
        let done = caught(|| self.fetch.fetch(from, to, &mut check));
        done.unwrap_or_else(|panic| Err(Arc::new(io::Error::other(panic))))?;
        if wrong.is_none() && at < to {
            wrong = Some(format!("the bytes from {at} to {to} did not come"));
        }
        wrong.map_or(Ok(()), |wrong| Err(Arc::new(io::Error::other(wrong)) as FetchError))
    }

    /// Fetches a piece that was taken from the queue; the lock is released meanwhile.
    fn fly(&self, piece: &std::ops::Range<u64>, queue: &mut MutexGuard<'_, PieceQueue>) {
        let (from, to) = (piece.start * UNIT_BYTES, (piece.end * UNIT_BYTES).min(self.len));
        let done = MutexGuard::unlocked(queue, || {
            let mut kept = Ok(());
            let done = self.fetch(from, to, &mut |at, bytes| {
                if kept.is_ok() {
                    kept = self.keep(at, bytes);
                }
            });
            done.and_then(|()| kept.map_err(|e| Arc::new(e) as FetchError))
        });
        queue.landed(piece, done.err().as_ref());
        self.flights().news.notify_all();
    }

    /// The loop of a thread.
    fn work(&self) {
        let flights = self.flights();
        let mut queue = flights.queue.lock();
        loop {
            if self.closed.load(Ordering::Acquire) || ENDING.load(Ordering::Acquire) {
                break;
            }
            if let Some(piece) = queue.take(FLYING_BYTES / UNIT_BYTES) {
                self.fly(&piece, &mut queue);
                continue;
            }
            queue.idle += 1;
            let late = flights.news.wait_for(&mut queue, IDLE).timed_out();
            queue.idle -= 1;
            if late && queue.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
        drop(queue);
        flights.news.notify_all();
    }

    /// Starts threads for what is wanted, as far as there may be some.
    fn start(self: &Arc<Self>, queue: &mut PieceQueue) {
        let useful = queue.pieces().min(THREADS);
        while queue.idle + queue.starting < useful && queue.threads < THREADS && !ENDING.load(Ordering::Acquire) {
            let mine = self.clone();
            RUNNING.fetch_add(1, Ordering::AcqRel);
            let run = move || {
                mine.flights().queue.lock().starting -= 1;
                mine.work();
                drop(mine);
                // Not below zero in a process that was forked meanwhile: it has no such thread.
                let _ = RUNNING.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1));
                ENDED.1.notify_all();
            };
            if std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(run).is_err() {
                // Readers fetch for themselves.
                RUNNING.fetch_sub(1, Ordering::AcqRel);
                return;
            }
            queue.threads += 1;
            queue.starting += 1;
        }
        self.flights().news.notify_all();
    }

    /// Waits until units are here.
    fn bring(self: &Arc<Self>, units: std::ops::Range<u64>) -> std::result::Result<(), FetchError> {
        let flights = self.flights();
        let mut queue = flights.queue.lock();
        let me = queue.waiter(units.clone());
        let done = loop {
            let missing: Vec<u64> = units.clone().filter(|&unit| !self.has(unit)).collect();
            if missing.is_empty() {
                break Ok(());
            }
            if let Some(error) = queue.error_of(me) {
                break Err(error);
            }
            missing.iter().for_each(|&unit| queue.want(unit..unit + 1, true));
            self.start(&mut queue);
            if queue.threads == 0 {
                if let Some(piece) = queue.take(u64::MAX) {
                    self.fly(&piece, &mut queue);
                    continue;
                }
            }
            if flights.news.wait_for(&mut queue, PATIENCE).timed_out() {
                if let Err(why) = MutexGuard::unlocked(&mut queue, || self.fetch.interrupted()) {
                    break Err(why);
                }
            }
        };
        queue.leave(me);
        done
    }
}

fn failed(offset: u64, len: u64, why: FetchError) -> Error {
    Error::Media { op: "read", offset, len, source: io::Error::other(Failed(why)) }
}

impl Media for RemoteMedia {
    fn len(&self) -> u64 {
        self.shared.len
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        Err(read_only("growing", bytes, 0))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let shared = &self.shared;
        let len = out.len() as u64;
        if offset.checked_add(len).is_none_or(|end| end > shared.len) {
            return Err(beyond("read", offset, out.len()));
        }
        let copied = |units: &Units, out: &mut [u8]| {
            units.copy(offset, out).map_err(|source| Error::Media { op: "read", offset, len, source })
        };
        for _ in 0..COPIES {
            self.bring(offset, len)?;
            if let Some(units) = &shared.units {
                if copied(units, out)? {
                    return Ok(());
                }
            }
            if let Some(spill) = shared.spill.get() {
                if copied(&spill.units, out)? {
                    return Ok(());
                }
            }
            if shared.units.is_some() && shared.spill.get().is_some() {
                // Some units are in the one place, some in the other.
                let mut all = true;
                let mut done = 0;
                while all && done < out.len() {
                    let at = offset + done as u64;
                    let n = ((UNIT_BYTES - at % UNIT_BYTES) as usize).min(out.len() - done);
                    let part = &mut out[done..done + n];
                    let of = |units: &Units, part: &mut [u8]| units.copy(at, part).unwrap_or(false);
                    all = shared.units.as_ref().is_some_and(|units| of(units, part))
                        || shared.spill.get().is_some_and(|spill| of(&spill.units, part));
                    done += n;
                }
                if all {
                    return Ok(());
                }
            }
        }
        // Units are evicted as soon as they come: the bytes go to the caller alone.
        let units = units_of(offset, len);
        let (from, to) = (units.start * UNIT_BYTES, (units.end * UNIT_BYTES).min(shared.len));
        let done = shared.fetch(from, to, &mut |at, bytes| {
            let (start, end) = (offset.max(at), (offset + len).min(at + bytes.len() as u64));
            if start < end {
                let part = &bytes[(start - at) as usize..(end - at) as usize];
                out[(start - offset) as usize..(end - offset) as usize].copy_from_slice(part);
            }
        });
        done.map_err(|why| failed(offset, len, why))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Err(read_only("write", offset, bytes.len() as u64))
    }

    fn sync(&self) -> Result<()> {
        Err(read_only("sync", 0, 0))
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let units = self.shared.units.as_ref()?;
        let within = offset.checked_add(len as u64).is_some_and(|end| end <= self.shared.len);
        let here = within && units_of(offset, len as u64).all(|unit| units.has(unit));
        if here { units.slice(offset, len) } else { None }
    }

    fn prefetch(&self, ranges: &[(u64, u64)]) {
        let shared = &self.shared;
        let units = |&(from, to): &(u64, u64)| units_of(from, to.min(shared.len).saturating_sub(from));
        let mut missing = ranges.iter().flat_map(units).filter(|&unit| !shared.has(unit)).peekable();
        if missing.peek().is_none() {
            return;
        }
        let mut queue = shared.flights().queue.lock();
        for unit in missing {
            if queue.wanted_units() * UNIT_BYTES < WANTED_BYTES {
                queue.want(unit..unit + 1, false);
            }
        }
        shared.start(&mut queue);
    }

    fn is_far(&self) -> bool {
        true
    }

    fn bring(&self, offset: u64, len: u64) -> Result<()> {
        let shared = &self.shared;
        let end = offset.saturating_add(len).min(shared.len);
        let units = units_of(offset.min(end), end.saturating_sub(offset));
        if units.clone().all(|unit| shared.has(unit)) {
            return Ok(());
        }
        shared.bring(units).map_err(|why| failed(offset, len, why))
    }

    fn distrust(&self, offset: u64, len: u64) -> bool {
        let shared = &self.shared;
        let end = offset.saturating_add(len).min(shared.len);
        let mut doubted = shared.doubted.lock();
        let mut any = false;
        for unit in units_of(offset.min(end), end.saturating_sub(offset)) {
            if shared.has(unit) && doubted.insert(unit) {
                let places = [shared.units.as_ref(), shared.spill.get().map(|spill| &spill.units)];
                any |= places.into_iter().flatten().all(|units| units.forget(unit).is_ok());
            }
        }
        any
    }

    fn is_resident(&self, offset: u64, len: u64) -> bool {
        let end = offset.saturating_add(len.max(1)).min(self.shared.len);
        offset >= end || units_of(offset, end - offset).all(|unit| self.shared.has(unit))
    }

    fn fits_in_memory(&self) -> bool {
        false
    }
}

fn read_only(op: &'static str, offset: u64, len: u64) -> Error {
    let why = "an object far away is read only";
    Error::Media { op, offset, len, source: io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why) }
}
