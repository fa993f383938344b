//! The bytes of a far object that are here: a sparse file, and a file that says which units of it are present.
//!
//! ```text
//! data   | the object's bytes at their offsets; units that were never fetched, or were evicted, are holes
//! marks  | head of 4096 bytes | a byte for each unit: 0 absent, 1 present, 2 present and used since the last round
//! head   | magic | unit bytes u32 | mode u32 | object bytes u64 | evictions u64 | id of the machine's start, 16 bytes
//! ```
//!
//! Both files may be shared by processes. A mark is a byte and set by a system call after the bytes are written, so a
//! killed process leaves unmarked units at worst, and no process changes a mark beside its own. After a loss of power
//! marks may be ahead of bytes: pages are verified on first use, and units of an earlier start of the machine are not
//! trusted where they are not ([`Units::open`]).
//!
//! An object is *kept* or *turning over*. Units of a kept one are lent in place ([`Units::slice`]), and are never
//! evicted while a process has it open. Units of one that turns over may be evicted at any time, so they are only
//! copied ([`Units::copy`]): the number of evictions, which is odd during one, is compared before and after. Bytes are
//! written under a shared lock of the data (`flock`), and evicted under an exclusive one, so that a mark never tells of
//! bytes that are gone. The layers above decide on modes and on times of evictions.
//!
//! Marks are read through a mapping whose disk blocks are allocated, and written by system calls: a full disk is an
//! error, never a signal.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

use memmap2::{Advice, Mmap, MmapOptions};

/// Size of a unit in bytes: what is present or absent as a whole.
///
/// An element far away needs a page and its record, each in a unit of its own: with 64 KiB both cost a third of a
/// millisecond on a link of 200 MB/s beside a round trip of 20; units of 256 KiB cost four times that, and a list of
/// elements all over an array takes as much longer. Neighbours are fetched together anyway, so small units cost marks
/// alone: 16 MiB for an object of a TiB.
pub(super) const UNIT_BYTES: u64 = 64 << 10;
/// Size of the head of a file of marks in bytes.
const HEAD_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"NANDFAR1";
/// Offsets in the head.
const MODE_AT: usize = 12;
const EVICTIONS_AT: usize = 24;
const START_AT: usize = 32;
/// Size of one mapping of the data in bytes.
const WINDOW_BYTES: u64 = 1 << 36;

const ABSENT: u8 = 0;
const PRESENT: u8 = 1;
const USED: u8 = 2;

/// The fate of units while their object is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stay {
    /// They stay, and are lent in place.
    Kept,
    /// They may be evicted, and are copied.
    TurningOver,
}

/// The files in which the bytes of an object are kept.
#[derive(Debug)]
pub struct CacheFiles {
    /// File of the object's bytes.
    pub data: File,
    /// File that says which of them are there.
    pub marks: File,
    /// The fate of bytes that are there.
    pub stay: Stay,
    /// Whether no other process has the files open, so that they may be made ready anew.
    pub alone: bool,
}

/// The units of an object that are here.
pub(super) struct Units {
    data: File,
    marks: File,
    map: Mmap,
    windows: Box<[OnceLock<Mmap>]>,
    len: u64,
    stay: Stay,
}

impl std::fmt::Debug for Units {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Units").field("len", &self.len).field("stay", &self.stay).finish_non_exhaustive()
    }
}

impl Units {
    /// Takes the two files of an object of `len` bytes, which are made ready if they are new. `trusting` is whether
    /// units are used that were there when the machine started. No other process opens or evicts them meanwhile.
    ///
    /// # Errors
    /// Those of the system, a full disk among them; the files are those of something else, and another process has them
    /// open.
    pub(super) fn open(kept: CacheFiles, len: u64, trusting: bool) -> io::Result<Self> {
        let CacheFiles { data, marks, stay, alone } = kept;
        let count = len.div_ceil(UNIT_BYTES) as usize;
        let bytes = (HEAD_BYTES + count) as u64;
        let start = start_of_machine();
        let mut head = [0; HEAD_BYTES];
        let known = marks.metadata()?.len() == bytes && marks.read_exact_at(&mut head, 0).is_ok() && {
            let same = head[..8] == MAGIC && head[8..12] == (UNIT_BYTES as u32).to_le_bytes();
            let trusted = trusting || head[START_AT..START_AT + 16] == start;
            same && head[16..24] == len.to_le_bytes() && data.metadata()?.len() == len && trusted
        };
        if !known && !alone {
            return Err(io::Error::other("another process has the files open, as those of something else"));
        }
        if !known {
            marks.set_len(0)?;
            data.set_len(0)?;
            data.set_len(len)?;
            marks.set_len(bytes)?;
            head = [0; HEAD_BYTES];
            head[START_AT..START_AT + 16].copy_from_slice(&start);
        }
        allocate(&marks, bytes)?;
        head[8..12].copy_from_slice(&(UNIT_BYTES as u32).to_le_bytes());
        head[MODE_AT] = u8::from(stay == Stay::TurningOver);
        head[16..24].copy_from_slice(&len.to_le_bytes());
        // The magic last: what a killed process left is made anew.
        marks.write_all_at(&head[8..EVICTIONS_AT], 8)?;
        marks.write_all_at(&head[START_AT..], START_AT as u64)?;
        marks.write_all_at(&MAGIC, 0)?;
        // SAFETY: the file is of the cache, which shortens none that is open; its bytes are read as atomics.
        let map = unsafe { MmapOptions::new().len(bytes as usize).map(&marks)? };
        let windows = (0..len.div_ceil(WINDOW_BYTES)).map(|_| OnceLock::new()).collect();
        let this = Self { data, marks, map, windows, len, stay };
        if this.evictions() % 2 == 1 {
            // The process that evicted was killed; marks are removed before bytes are.
            this.count_eviction()?;
        }
        Ok(this)
    }

    /// Returns units in memory, for where there is no room on a disk.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn in_memory(len: u64) -> io::Result<Self> {
        let kept = CacheFiles { data: memory_file()?, marks: memory_file()?, stay: Stay::TurningOver, alone: true };
        Self::open(kept, len, true)
    }

    fn mark(&self, unit: u64) -> &AtomicU8 {
        let byte = &self.map[HEAD_BYTES + unit as usize];
        // SAFETY: a byte of a mapping that lives as long as `self`; an atomic byte has the layout of a byte, and all
        // accesses of this process are atomic.
        unsafe { &*std::ptr::from_ref(byte).cast::<AtomicU8>() }
    }

    fn set_mark(&self, unit: u64, mark: u8) -> io::Result<()> {
        self.marks.write_all_at(&[mark], HEAD_BYTES as u64 + unit)
    }

    fn evictions(&self) -> u64 {
        // SAFETY: eight aligned bytes of the head, in a mapping that lives as long as `self`.
        unsafe { &*self.map[EVICTIONS_AT..].as_ptr().cast::<AtomicU64>() }.load(Ordering::Acquire)
    }

    fn count_eviction(&self) -> io::Result<()> {
        self.marks.write_all_at(&(self.evictions() + 1).to_le_bytes(), EVICTIONS_AT as u64)
    }

    /// Whether the unit is here.
    pub(super) fn has(&self, unit: u64) -> bool {
        self.mark(unit).load(Ordering::Acquire) != ABSENT
    }

    /// Marks units as used, where units are evicted by their use: a hint, which is left out while units are evicted.
    pub(super) fn used(&self, units: std::ops::Range<u64>) {
        if units.clone().all(|unit| self.mark(unit).load(Ordering::Relaxed) != PRESENT) {
            return;
        }
        // Under the lock, as one that is evicted between look and mark would be a hole that is marked.
        let Ok(_held) = Held::take(&self.data, libc::LOCK_SH | libc::LOCK_NB) else { return };
        for unit in units {
            if self.mark(unit).load(Ordering::Relaxed) == PRESENT {
                // A hint to the eviction.
                let _ = self.set_mark(unit, USED);
            }
        }
    }

    /// Returns bytes in place, of units that are all here; `None` where units are not lent.
    pub(super) fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let (window, at) = ((offset / WINDOW_BYTES) as usize, (offset % WINDOW_BYTES) as usize);
        if self.stay == Stay::TurningOver || at + len > WINDOW_BYTES as usize {
            return None;
        }
        let cell = self.windows.get(window)?;
        let map = match cell.get() {
            Some(map) => map,
            None => {
                let from = window as u64 * WINDOW_BYTES;
                let bytes = WINDOW_BYTES.min(self.len - from) as usize;
                // SAFETY: no process shortens the file or evicts units of it while it is open, and bytes of a unit
                // that is present are only ever replaced by the same ones.
                let map = unsafe { MmapOptions::new().offset(from).len(bytes).map(&self.data).ok()? };
                let _ = map.advise(Advice::Random);
                cell.get_or_init(|| map)
            }
        };
        map.get(at..at + len)
    }

    /// Copies bytes of units that should all be here; `false` if one is not, or may have been evicted meanwhile.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn copy(&self, offset: u64, out: &mut [u8]) -> io::Result<bool> {
        let before = self.evictions();
        let units = units_of(offset, out.len() as u64);
        let held = if before.is_multiple_of(2) {
            None
        } else {
            // Where the lock is free, the process that evicted was killed: its last unit is marked as absent.
            match Held::take(&self.data, libc::LOCK_SH | libc::LOCK_NB) {
                Ok(held) => Some(held),
                Err(_) => return Ok(false),
            }
        };
        if !units.clone().all(|unit| self.has(unit)) {
            return Ok(false);
        }
        self.data.read_exact_at(out, offset)?;
        fence(Ordering::AcqRel);
        let same = held.is_some() || self.evictions() == before;
        drop(held);
        if self.stay == Stay::TurningOver {
            self.used(units);
        }
        Ok(same)
    }

    /// Writes bytes from a unit's beginning on, and marks the units that they cover, the last one of the object too.
    ///
    /// # Errors
    /// Those of the system: a full disk among them.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let _held = Held::take(&self.data, libc::LOCK_SH)?;
        self.data.write_all_at(bytes, offset)?;
        let end = offset + bytes.len() as u64;
        let units = offset / UNIT_BYTES..if end == self.len { end.div_ceil(UNIT_BYTES) } else { end / UNIT_BYTES };
        let marks = vec![PRESENT; (units.end - units.start) as usize];
        self.marks.write_all_at(&marks, HEAD_BYTES as u64 + units.start)
    }

    /// Forgets a unit, whose bytes stay where they are until they are fetched again.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn forget(&self, unit: u64) -> io::Result<()> {
        self.set_mark(unit, ABSENT)
    }

    /// Evicts units by their use until this many bytes are freed, or nothing is left: in a first round those that were
    /// not used since the last one. The caller holds the lock of the cache. Returns the bytes freed.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn evict(&self, bytes: u64, from: u64) -> io::Result<u64> {
        let count = self.len.div_ceil(UNIT_BYTES);
        let mut freed = 0;
        let _held = Held::take(&self.data, libc::LOCK_EX)?;
        for step in 0..2 * count {
            if freed >= bytes {
                break;
            }
            let unit = (from + step) % count;
            match self.mark(unit).load(Ordering::Acquire) {
                ABSENT => {}
                USED => self.set_mark(unit, PRESENT)?,
                _ => {
                    self.count_eviction()?;
                    let done = self.set_mark(unit, ABSENT);
                    if done.is_ok() {
                        punch(&self.data, unit * UNIT_BYTES, UNIT_BYTES);
                    }
                    self.count_eviction()?;
                    done?;
                    freed += UNIT_BYTES.min(self.len - unit * UNIT_BYTES);
                }
            }
        }
        Ok(freed)
    }
}

/// Returns the units in which bytes lie.
pub(super) fn units_of(offset: u64, len: u64) -> std::ops::Range<u64> {
    offset / UNIT_BYTES..(offset + len).div_ceil(UNIT_BYTES)
}

/// Returns the number that the system draws when it starts; zeroes where it has none.
fn start_of_machine() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        let text = std::str::from_utf8(pair).unwrap_or("0");
        *byte = u8::from_str_radix(text, 16).unwrap_or(0);
    }
    id
}

/// A lock of a file by a description of its own, as threads of a process write side by side.
struct Held(#[expect(dead_code, reason = "closing it ends the lock")] File);

impl Held {
    fn take(file: &File, kind: libc::c_int) -> io::Result<Self> {
        // For writing, too: some file systems give exclusive locks to writers alone.
        let own = File::options().read(true).write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        loop {
            // SAFETY: a plain integer and an open descriptor.
            if unsafe { libc::flock(own.as_raw_fd(), kind) } == 0 {
                return Ok(Self(own));
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

fn memory_file() -> io::Result<File> {
    // SAFETY: a string that ends with a NUL; the descriptor is this process's own.
    unsafe {
        let made = libc::memfd_create(c"nandarray-far".as_ptr(), libc::MFD_CLOEXEC);
        if made < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(made)) }
    }
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    loop {
        // SAFETY: plain integers and an open descriptor.
        let done = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as i64) };
        match done {
            0 => return Ok(()),
            libc::EINTR => {}
            code => return Err(io::Error::from_raw_os_error(code)),
        }
    }
}

fn punch(file: &File, offset: u64, bytes: u64) {
    // Where the file system punches no holes, the bytes stay and count.
    // SAFETY: plain integers and an open descriptor.
    unsafe {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        libc::fallocate(file.as_raw_fd(), mode, offset as i64, bytes as i64);
    }
}
