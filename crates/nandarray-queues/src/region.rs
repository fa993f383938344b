//! The file of a region: creates, maps and locks it, and gives access to its words.
//!
//! Locks of the open file (OFD locks) show which processes are alive: the server holds the lock of one byte, and each
//! client the lock of one byte for each queue that it has claimed. The kernel releases a process's locks when it ends.
//! Words of the region are accessed as atomics; no other reference to its bytes is ever made.

use std::fs::{File, OpenOptions};
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};
use zerocopy::FromBytes;

use crate::error::{QueueError, system};
use crate::layout::{QUEUE_HEADER_BYTES, RegionHeader, SERVER_BYTE};

/// Returns the path of a region's file: a name with a slash is the path, any other name stands for a file in
/// `/dev/shm`.
pub fn region_path(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new("/dev/shm").join(format!("nandarray-{name}")) }
}

/// A region mapped into this process.
#[derive(Debug)]
pub(crate) struct QueueRegion {
    file: File,
    map: MmapRaw,
    pub(crate) path: PathBuf,
}

/// The rings of a queue pair. Places are counts of entries, taken modulo the depth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairRings<'a> {
    sq: *mut [u64; 8],
    cq: *mut [u64; 2],
    mask: u32,
    region: PhantomData<&'a QueueRegion>,
}

impl<'a> PairRings<'a> {
    /// Returns the number of entries of a ring.
    pub(crate) fn depth(self) -> u32 {
        self.mask + 1
    }

    /// Writes a submission entry, as words: it is built in registers, and no load waits for its narrower stores.
    #[inline(always)]
    pub(crate) fn put(self, count: u32, entry: [u64; 8]) {
        // SAFETY: the place is within the ring, which lies in the mapping; others may change its bytes meanwhile. The
        // address need not be aligned.
        unsafe { self.sq.add((count & self.mask) as usize).write_unaligned(entry) }
    }

    /// Copies a submission entry out of the ring, reading each byte once.
    #[inline(always)]
    pub(crate) fn take(self, count: u32) -> [u64; 8] {
        // SAFETY: as for `put`; any bytes are a value.
        unsafe { self.sq.add((count & self.mask) as usize).read_unaligned() }
    }

    /// Returns the halves of a completion entry: the result, and the half with the phase tag.
    #[inline(always)]
    pub(crate) fn completion(self, count: u32) -> [&'a AtomicU64; 2] {
        // SAFETY: aligned to 8 bytes, within the mapping, which lives as long as the region; all use is atomic.
        unsafe {
            let at = self.cq.add((count & self.mask) as usize).cast::<u64>();
            [AtomicU64::from_ptr(at), AtomicU64::from_ptr(at.add(1))]
        }
    }
}

impl QueueRegion {
    /// Creates the file, filled with zeroes, maps it, and takes the server's lock.
    pub(crate) fn create(path: &Path, bytes: u64) -> Result<Self, QueueError> {
        let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = open().map_err(system(format!("opening {}", path.display())))?;
        if !lock(&file, SERVER_BYTE, libc::F_WRLCK) {
            return Err(QueueError::Taken(path.display().to_string()));
        }
        // The file is from a server that has ended: its clients keep their mapping, and the name is free for a new
        // file.
        std::fs::remove_file(path).map_err(system(format!("removing {}", path.display())))?;
        let file = open().map_err(system(format!("making {}", path.display())))?;
        if !lock(&file, SERVER_BYTE, libc::F_WRLCK) {
            return Err(QueueError::Taken(path.display().to_string()));
        }
        file.set_len(bytes).map_err(system(format!("{bytes} bytes for {}", path.display())))?;
        Self::map(file, path)
    }

    /// Opens and maps the region of a running server; returns it with a copy of its header.
    pub(crate) fn open(path: &Path) -> Result<(Self, RegionHeader), QueueError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(system(format!("no server of queue pairs: opening {}", path.display())))?;
        let bytes = file.metadata().map_err(system("its size"))?.len();
        let wrong = || QueueError::NotARegion(path.display().to_string());
        if bytes < crate::layout::PAGE_BYTES {
            return Err(wrong());
        }
        let region = Self::map(file, path)?;
        let mut head = [0u8; size_of::<RegionHeader>()];
        region.copy_out(0, &mut head);
        let header = RegionHeader::read_from_bytes(&head).expect("a header has any bytes");
        if !header.holds(region.map.len() as u64) {
            return Err(wrong());
        }
        Ok((region, header))
    }

    fn map(file: File, path: &Path) -> Result<Self, QueueError> {
        let map = MmapOptions::new().map_raw(&file).map_err(system(format!("mapping {}", path.display())))?;
        Ok(Self { file, map, path: path.to_owned() })
    }

    /// Returns the address of `bytes` bytes of the region, from `offset` on.
    ///
    /// # Panics
    /// If these bytes do not lie within the region.
    pub(crate) fn at(&self, offset: u64, bytes: u64) -> *mut u8 {
        let end = offset.checked_add(bytes);
        assert!(end.is_some_and(|e| e <= self.map.len() as u64), "{bytes} bytes at {offset} of {}", self.map.len());
        // SAFETY: the offset lies within the mapping.
        unsafe { self.map.as_mut_ptr().add(offset as usize) }
    }

    /// Returns the 32-bit word at an offset.
    pub(crate) fn word(&self, offset: u64) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "a word at {offset}");
        // SAFETY: aligned, within the mapping, which lives as long as `self`; all use of it is atomic.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// Returns the 64-bit word at an offset.
    pub(crate) fn long(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "a word at {offset}");
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// Copies bytes out of the region, reading each once.
    pub(crate) fn copy_out(&self, offset: u64, to: &mut [u8]) {
        // SAFETY: `at` checks the bounds; others may change the bytes meanwhile, any bytes are a value.
        unsafe { std::ptr::copy_nonoverlapping(self.at(offset, to.len() as u64), to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes into the region.
    pub(crate) fn copy_in(&self, offset: u64, from: &[u8]) {
        // SAFETY: as for `copy_out`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.at(offset, from.len() as u64), from.len()) }
    }

    /// Returns the rings of a queue pair, whose words begin at `at`; they are checked against the mapping here,
    /// once for all their entries.
    ///
    /// # Panics
    /// If the rings do not lie within the region, or `depth` is no power of two.
    pub(crate) fn pair_rings(&self, at: u64, depth: u32) -> PairRings<'_> {
        assert!(depth.is_power_of_two() && at.is_multiple_of(8), "rings of {depth} at {at}");
        let sq = self.at(at + QUEUE_HEADER_BYTES, 80 * u64::from(depth));
        // SAFETY: the completions follow the submissions, within the bytes that `at` checked.
        let cq = unsafe { sq.add(64 * depth as usize) };
        PairRings { sq: sq.cast(), cq: cq.cast(), mask: depth - 1, region: PhantomData }
    }

    /// Takes the lock of a byte; returns false if another open file holds it.
    pub(crate) fn lock(&self, byte: i64) -> bool {
        lock(&self.file, byte, libc::F_WRLCK)
    }

    pub(crate) fn unlock(&self, byte: i64) {
        lock(&self.file, byte, libc::F_UNLCK);
    }

    /// Returns whether another open file holds the lock of a byte.
    pub(crate) fn held(&self, byte: i64) -> bool {
        let mut wanted = flock(byte, libc::F_WRLCK);
        // SAFETY: a descriptor of ours and a struct of the call's type.
        let done = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_OFD_GETLK, &mut wanted) };
        done != 0 || wanted.l_type != libc::F_UNLCK as i16
    }
}

fn flock(byte: i64, kind: i32) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: byte, l_len: 1, l_pid: 0 }
}

fn lock(file: &File, byte: i64, kind: i32) -> bool {
    // SAFETY: a descriptor of ours and a struct of the call's type.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &flock(byte, kind)) == 0 }
}
