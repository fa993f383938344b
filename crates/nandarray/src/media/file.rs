//! A medium in an ordinary file, the usual one for embedded stores: mapped for reading, written by system calls, locked
//! between processes.
//!
//! Reading: the file is mapped in windows of [`WINDOW_BYTES`]. Each is mapped as a whole on first use, even if the file
//! is still shorter, so that growing never moves a mapping; accesses are checked against the file's length. The mapping
//! has the advice "random", because the kernel's readahead would read megabytes around every element. Coming reads are
//! announced by [`Media::prefetch`] instead, which keeps many requests in flight: as large pages if most of an extent
//! is needed (`extents`), otherwise as single pages, and not at all for resident pages (`presence`). With `map: false`
//! nothing is mapped and every read is a system call (for file systems without coherent mappings, and to get errors
//! instead of a signal when a disk fails).
//!
//! Locks are advisory byte-range locks of the open file description (`F_OFD_SETLK`) in the head of the file: one byte
//! for the single writer, and one that all readers share. The writer does not wait for readers, but must not reuse
//! pages that they may read ([`Media::if_no_readers`]).
//!
//! It does not create parent folders, and does not survive truncation of the mapped file by another program.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, Mmap, MmapOptions};
use smallvec::SmallVec;

use super::extents::{Extents, will_need};
use super::presence::{PageCache, Presence, memory_bytes};
use super::{EXTENT_BYTES, FileState, HEAD_BYTES, Media};
use crate::error::{Error, Holder, Result};
use crate::sim::process::Home;

/// Size of one mapping window in bytes; it takes address space, not memory.
const WINDOW_BYTES: u64 = 1 << 36;
/// Number of mapping windows: 64 GiB x 4096 is 256 TiB, more than any supported file system.
const WINDOWS: usize = 4096;
/// Smallest number of requested bytes of an extent that is read as a whole, so that at most a third more is read than
/// was requested. A threshold of one half was no faster (design note 7).
const WHOLE_FROM: u64 = EXTENT_BYTES / 4 * 3;
/// A file is said to fit in memory if its size is at most the machine's memory divided by this, as other processes need
/// memory, too.
const FITS_SHARE: u64 = 4;
/// Offset in the file's head, after the superblock slots, of the byte that the writer locks; nothing is stored there.
const LOCK_WRITER: i64 = HEAD_BYTES as i64 - 2;
/// Offset in the file's head of the byte that readers share a lock on; nothing is stored there.
const LOCK_READERS: i64 = HEAD_BYTES as i64 - 1;

/// Access for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Reading only, beside other readers and one writer.
    Read,
    /// Reading and writing an existing file.
    Write,
    /// Reading and writing a new file; the file must not exist.
    CreateNew,
    /// Reading and writing; the file is created if it does not exist.
    Create,
}

/// A medium in a file, which is locked while the medium exists.
pub struct FileMedia {
    file: File,
    path: PathBuf,
    len: AtomicU64,
    map: bool,
    windows: Box<[OnceLock<Mmap>]>,
    extents: OnceLock<Option<Extents>>,
    cache: PageCache,
    writes: bool,
    /// Whether the file did not exist before this medium was opened.
    created: bool,
    home: Home,
}

impl std::fmt::Debug for FileMedia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileMedia").field("path", &self.path).field("len", &self.len).finish_non_exhaustive()
    }
}

impl FileMedia {
    /// Opens and locks a file. `map` is whether it is mapped for reading.
    ///
    /// # Errors
    /// [`Error::Locked`] if another writer has opened it; [`Error::FileExists`]; [`Error::FileMissing`];
    /// [`Error::NotAStore`] if the path is not an ordinary file; [`Error::Media`] with the system's error.
    pub fn open(path: &Path, access: FileAccess, map: bool) -> Result<Self> {
        let named = || path.display().to_string();
        let (file, created) = open_or_create(path, access).map_err(|source| match (access, source.kind()) {
            (FileAccess::CreateNew, io::ErrorKind::AlreadyExists) => Error::FileExists { path: named() },
            (_, io::ErrorKind::NotFound) => Error::FileMissing { path: named() },
            (_, io::ErrorKind::IsADirectory) => no_file(path, "directory"),
            _ if source.raw_os_error() == Some(libc::ENXIO) => no_file(path, "socket, a FIFO or a device"),
            _ => Error::Media { op: "opening", offset: 0, len: 0, source: with_path(&source, path) },
        })?;
        let meta = file.metadata().map_err(|source| media_error("inspecting", 0, 0, source))?;
        let kind = meta.file_type();
        let kinds = [
            (kind.is_dir(), "directory"),
            (kind.is_fifo(), "FIFO"),
            (kind.is_char_device() || kind.is_block_device(), "device"),
            (!kind.is_file(), "special file"),
        ];
        if let Some((_, what)) = kinds.into_iter().find(|(is, _)| *is) {
            return Err(no_file(path, what));
        }
        let got = if access == FileAccess::Read {
            lock(&file, LOCK_READERS, libc::F_RDLCK as i16, true)
        } else {
            lock(&file, LOCK_WRITER, libc::F_WRLCK as i16, false)
        };
        if !got.map_err(|source| media_error("locking", 0, 0, source))? {
            return Err(Error::Locked { path: named(), by: Holder::Writer });
        }
        let media = Self {
            len: AtomicU64::new(0),
            file,
            // The path still leads there when the process has changed its folder.
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
            map,
            windows: (0..WINDOWS).map(|_| OnceLock::new()).collect(),
            extents: OnceLock::new(),
            cache: PageCache::default(),
            writes: access != FileAccess::Read,
            created,
            home: Home::here(),
        };
        // Done after locking: from now on no writer truncates the file under a reader.
        media.len.store(media.file_bytes()?, Ordering::Release);
        Ok(media)
    }

    fn file_bytes(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|source| media_error("inspecting", 0, 0, source))?.len())
    }

    /// Returns the path by which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file if this medium created it. A file that was there before stays, and so does one that has taken
    /// the path since. While the medium exists no other writer can have stored anything in the file.
    pub fn remove_created(&self) {
        let same = |meta: std::fs::Metadata| {
            self.file.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (meta.dev(), meta.ino()))
        };
        if self.created && std::fs::symlink_metadata(&self.path).is_ok_and(same) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    fn window(&self, index: usize) -> Option<&Mmap> {
        let cell = self.windows.get(index)?;
        if let Some(map) = cell.get() {
            return Some(map);
        }
        // SAFETY: this process has the writer's lock, or reads beside a writer that only appends and never changes what
        // an index maps; `slice` returns only ranges within the length, whose bytes are not written while they are
        // used.
        let map = unsafe {
            MmapOptions::new().offset(index as u64 * WINDOW_BYTES).len(WINDOW_BYTES as usize).map(&self.file).ok()?
        };
        // The advice may be refused by unusual file systems; it is only a hint.
        let _ = map.advise(Advice::Random);
        Some(cell.get_or_init(|| map))
    }

    /// Whether an extent needs no further request: the bytes from `from` to `to` are resident, or the whole extent is
    /// queued. If no page of it is resident and most of it is requested (`wanted` bytes), queues it first.
    fn is_here_or_asked_for(&self, extent: u64, wanted: u64, (from, to): (u64, u64)) -> bool {
        let extents = self.extents.get();
        if let Some(Some(extents)) = extents {
            if extents.is_pending(extent) {
                return true;
            }
        }
        match self.presence(from, to - from) {
            Presence::All => return true,
            Presence::Part => return false,
            Presence::Nothing if wanted < WHOLE_FROM => return false,
            Presence::Nothing => {}
        }
        let start = extent * EXTENT_BYTES;
        // A resident page prevents the rest of the extent from becoming a large page.
        let whole = self.address(start, EXTENT_BYTES as usize).is_some()
            && ((from, to) == (start, start + EXTENT_BYTES) || self.presence(start, EXTENT_BYTES) == Presence::Nothing);
        let extents = || self.extents.get_or_init(|| Extents::new(&self.file, WINDOW_BYTES, WINDOWS));
        whole && extents().as_ref().is_some_and(|extents| extents.ask(extent))
    }

    /// Returns how much of a range is resident in the page cache; bytes after the file's end count as resident.
    fn presence(&self, offset: u64, len: u64) -> Presence {
        let end = (offset + len.max(1)).min(self.len.load(Ordering::Acquire));
        if offset >= end {
            return Presence::All;
        }
        self.cache.of(&self.file, offset, end - offset, |from, bytes| {
            let at = (from % WINDOW_BYTES) as usize;
            // A range across the end of a window is not tested.
            let seen = self.map && at as u64 + bytes <= WINDOW_BYTES;
            Some((self.window((from / WINDOW_BYTES) as usize).filter(|_| seen)?, at))
        })
    }

    fn address(&self, offset: u64, len: usize) -> Option<(&Mmap, usize)> {
        let end = offset.checked_add(len as u64)?;
        if !self.map || end > self.len.load(Ordering::Acquire) {
            return None;
        }
        let (window, at) = ((offset / WINDOW_BYTES) as usize, (offset % WINDOW_BYTES) as usize);
        (at + len <= WINDOW_BYTES as usize).then_some(())?;
        Some((self.window(window)?, at))
    }
}

/// Opens a file; returns it, and whether this call created it.
fn open_or_create(path: &Path, access: FileAccess) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    // Without O_NONBLOCK, opening a FIFO would wait for a process at its other end.
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    options.read(true).write(access != FileAccess::Read).custom_flags(flags);
    let existing = |options: &OpenOptions| Ok((options.open(path)?, false));
    let new = |options: &OpenOptions| Ok((options.clone().create_new(true).open(path)?, true));
    match access {
        FileAccess::Read | FileAccess::Write => existing(&options),
        FileAccess::CreateNew => new(&options),
        FileAccess::Create => match existing(&options) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => match new(&options) {
                // Another process was faster, or the path is a link to a file that does not exist.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => existing(options.create(true).truncate(false)),
                made => made,
            },
            opened => opened,
        },
    }
}

fn no_file(path: &Path, what: &str) -> Error {
    Error::NotAStore { path: path.display().to_string(), what: format!("it is a {what}, not a file") }
}

fn with_path(source: &io::Error, path: &Path) -> io::Error {
    // `raw_os_error` works only on an error without a message, so the path is left to the caller if there is a code.
    match source.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(source.kind(), format!("{}: {source}", path.display())),
    }
}

fn media_error(op: &'static str, offset: u64, len: usize, source: io::Error) -> Error {
    Error::Media { op, offset, len: len as u64, source }
}

/// Returns the number that names a file among all others of this store: its inode, and the time at which the inode was
/// made, which no copy, backup or reuse of an inode's number repeats. The number of the device is not in it: the system
/// gives it anew when it starts. File systems whose snapshots keep inodes and times (btrfs, ZFS) have an identifier
/// that tells these apart, and stays. Where the system knows no such time, it is the inode alone.
fn file_key(file: &File, meta: &std::fs::Metadata) -> [u8; 16] {
    const SNAPSHOTS: [i64; 2] = [0x9123_683e, 0x2fc1_2fc1];
    let made = meta.created().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    let made = made.map_or(0, |since| since.as_nanos() as u64);
    // SAFETY: zeroed structs of integers, which the calls fill, and an open descriptor.
    let system = unsafe {
        let (mut kind, mut about): (libc::statfs, libc::statvfs) = (std::mem::zeroed(), std::mem::zeroed());
        let kind_known = libc::fstatfs(file.as_raw_fd(), &raw mut kind) == 0;
        let keeps = kind_known && SNAPSHOTS.contains(&kind.f_type);
        if keeps && libc::fstatvfs(file.as_raw_fd(), &raw mut about) == 0 { about.f_fsid } else { 0 }
    };
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(meta.ino() ^ system.rotate_left(32)).to_le_bytes());
    key[8..].copy_from_slice(&made.to_le_bytes());
    key
}

/// Takes or releases, by `kind` (`F_WRLCK`, ...), the lock on one byte of the file; `false` if another process has a
/// conflicting lock. With `wait`, waits for the end of such a lock instead.
fn lock(file: &File, byte: i64, kind: i16, wait: bool) -> io::Result<bool> {
    // SAFETY: `flock` is a plain C struct of integers, for which all-zero is a valid value.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = kind;
    request.l_whence = libc::SEEK_SET as i16;
    request.l_start = byte;
    request.l_len = 1;
    let command = if wait { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    loop {
        // SAFETY: the descriptor is open for as long as `file` lives, and `request` is a valid flock for these
        // commands.
        let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const request) };
        if done == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => return Ok(false),
            // A signal that the process handles ends the wait for a lock.
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

/// Allocates or deallocates (by the flags in `mode`) the disk blocks of a range; `false` if the disk is full. Does
/// nothing on file systems without such requests.
fn fallocate(file: &File, mode: i32, offset: u64, len: u64) -> bool {
    loop {
        // SAFETY: plain integers and an open descriptor.
        let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, len as i64) };
        let error = io::Error::last_os_error().raw_os_error();
        if done == 0 || error != Some(libc::EINTR) {
            return done == 0 || !matches!(error, Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG));
        }
    }
}

impl Drop for FileMedia {
    fn drop(&mut self) {
        // A process forked from this one shares the open file, so the lock must be released by the writer itself.
        if self.writes && self.home.is_here() {
            let _ = lock(&self.file, LOCK_WRITER, libc::F_UNLCK as i16, false);
        }
    }
}

impl Media for FileMedia {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes).map_err(|source| media_error("growing", bytes, 0, source))?;
        self.len.store(bytes, Ordering::Release);
        Ok(())
    }

    fn file_state(&self) -> Option<FileState> {
        let meta = self.file.metadata().ok()?;
        let same = |named: std::fs::Metadata| (named.dev(), named.ino()) == (meta.dev(), meta.ino());
        Some(FileState {
            key: file_key(&self.file, &meta),
            uid: meta.uid(),
            gid: meta.gid(),
            mode: meta.mode() & 0o7777,
            names: meta.nlink(),
            at_path: std::fs::metadata(&self.path).is_ok_and(same),
        })
    }

    fn refresh(&self) -> Result<()> {
        // A file that is opened for writing has only the length that this process set.
        if !self.writes {
            self.len.store(self.file_bytes()?, Ordering::Release);
        }
        Ok(())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|source| media_error("read", offset, out.len(), source))
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        debug_assert!(offset + bytes.len() as u64 <= self.len(), "writes stay within the length");
        self.file.write_all_at(bytes, offset).map_err(|source| media_error("write", offset, bytes.len(), source))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|source| media_error("sync", 0, 0, source))
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let (map, at) = self.address(offset, len)?;
        if let Some(Some(extents)) = self.extents.get() {
            extents.wait(offset, len as u64);
        }
        Some(&map[at..at + len])
    }

    fn prefetch(&self, ranges: &[(u64, u64)]) {
        // The range to prefetch page by page, which may continue across extents.
        let mut pages = (0, 0);
        let mut some = |(from, to): (u64, u64)| {
            if from != pages.1 {
                if pages.0 < pages.1 {
                    will_need(&self.file, pages.0, pages.1 - pages.0);
                }
                pages.0 = from;
            }
            pages.1 = to;
        };
        let mut parts = SmallVec::<[(u64, u64); 16]>::new();
        let mut left = ranges.iter().copied().filter(|(from, to)| from < to);
        let mut next = left.next();
        while let Some((from, _)) = next {
            let extent = from / EXTENT_BYTES;
            let end = (extent + 1) * EXTENT_BYTES;
            parts.clear();
            while let Some((from, to)) = next.filter(|part| part.0 < end) {
                parts.push((from, to.min(end)));
                next = if to > end { Some((end, to)) } else { left.next() };
            }
            let around = (parts[0].0, parts[parts.len() - 1].1);
            if !self.is_here_or_asked_for(extent, parts.iter().map(|(from, to)| to - from).sum(), around) {
                parts.drain(..).for_each(&mut some);
            }
        }
        some((u64::MAX, u64::MAX));
    }

    fn is_resident(&self, offset: u64, len: u64) -> bool {
        self.presence(offset, len) == Presence::All
    }

    fn fits_in_memory(&self) -> bool {
        self.len() <= memory_bytes() / FITS_SHARE
    }

    fn discard(&self, offset: u64, len: u64) {
        fallocate(&self.file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len);
    }

    fn allocate(&self, offset: u64, len: u64) -> bool {
        fallocate(&self.file, libc::FALLOC_FL_KEEP_SIZE, offset, len)
    }

    fn if_no_readers(&self, reuse: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        let locked =
            |kind| lock(&self.file, LOCK_READERS, kind, false).map_err(|source| media_error("locking", 0, 0, source));
        if !locked(libc::F_WRLCK as i16)? {
            return Ok(false);
        }
        let done = reuse();
        locked(libc::F_UNLCK as i16)?;
        done.map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_written_through_both_paths() {
        let dir = tempfile::tempdir().unwrap();
        let m = FileMedia::open(&dir.path().join("a"), FileAccess::CreateNew, true).unwrap();
        m.set_len(8192).unwrap();
        m.write_at(100, b"hello").unwrap();
        assert_eq!(m.slice(100, 5).unwrap(), b"hello");
        let mut out = [0; 5];
        m.read_at(100, &mut out).unwrap();
        assert_eq!(&out, b"hello");
        assert!(m.slice(8190, 5).is_none(), "nothing is shown beyond the end");
        m.set_len(1 << 20).unwrap();
        m.write_at(8190, b"grown").unwrap();
        assert_eq!(m.slice(8190, 5).unwrap(), b"grown");
    }

    #[test]
    fn what_was_written_is_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let m = FileMedia::open(&dir.path().join("a"), FileAccess::CreateNew, true).unwrap();
        m.set_len(8 << 20).unwrap();
        m.write_at(0, &vec![1; 8 << 20]).unwrap();
        assert!(m.is_resident(0, 8 << 20), "more pages than are asked for at once");
        assert!(m.is_resident(4095, 2) && m.is_resident((8 << 20) - 1, 1));
        assert!(m.is_resident(8 << 20, 1), "nothing lies there to wait for");
    }

    /// Creates a file of this size whose pages are not in memory, if the system follows the advice; returns its medium
    /// and its bytes.
    fn cold(dir: &Path, bytes: u64) -> (FileMedia, Vec<u8>) {
        let m = FileMedia::open(&dir.join("a"), FileAccess::CreateNew, true).unwrap();
        m.set_len(bytes).unwrap();
        let content: Vec<u8> = (0..bytes).map(|i| (i / 4096 * 7 + i % 251) as u8).collect();
        m.write_at(0, &content).unwrap();
        m.file.sync_all().unwrap();
        // SAFETY: plain integers and an open descriptor.
        unsafe { libc::posix_fadvise(m.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        (m, content)
    }

    #[test]
    fn extents_and_pages_arrive_whoever_waits_for_them() {
        const E: u64 = EXTENT_BYTES;
        let dir = tempfile::tempdir().unwrap();
        let (m, content) = cold(dir.path(), 9 * E + 5000);
        // Whole ones, large and small parts, the end of the file, which is no whole extent, and what lies behind it.
        let parts =
            [(0, 3 * E), (3 * E + 4096, 4 * E), (5 * E + 10, 5 * E + 20), (6 * E, 6 * E), (8 * E, 9 * E + 5000)];
        m.prefetch(&parts);
        m.prefetch(&parts[..2]);
        m.prefetch(&[(20 * E, 21 * E)]);
        std::thread::scope(|s| {
            for (from, to) in parts {
                let (m, content) = (&m, &content);
                s.spawn(move || {
                    let got = m.slice(from, (to - from) as usize).unwrap();
                    assert_eq!(got, &content[from as usize..to as usize]);
                });
            }
        });
        assert_eq!(m.slice(0, content.len()).unwrap(), content);
        assert!(m.is_resident(0, 3 * E));
    }

    #[test]
    fn what_is_missing_of_an_extent_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let (m, content) = cold(dir.path(), 4 * EXTENT_BYTES);
        for at in [5000, EXTENT_BYTES - 1, 2 * EXTENT_BYTES + 70_000] {
            assert_eq!(m.slice(at, 1).unwrap(), &content[at as usize..][..1]);
        }
        m.prefetch(&[(4096, 2 * EXTENT_BYTES), (2 * EXTENT_BYTES + 4096, 2 * EXTENT_BYTES + 90_000)]);
        // Pages on their way count as resident, but an extent may still be queued: a reader waits for it.
        let _ = m.slice(0, 3 * EXTENT_BYTES as usize);
        assert!(m.is_resident(4096, 2 * EXTENT_BYTES - 4096));
        assert!(m.is_resident(2 * EXTENT_BYTES + 4096, 80_000));
        m.prefetch(&[(3 * EXTENT_BYTES, 4 * EXTENT_BYTES), (4 * EXTENT_BYTES, 5 * EXTENT_BYTES)]);
        assert_eq!(m.slice(0, content.len()).unwrap(), content);
        assert!(m.is_resident(0, content.len() as u64));
    }

    #[test]
    fn a_file_is_closed_while_extents_are_on_their_way() {
        let dir = tempfile::tempdir().unwrap();
        let (m, _) = cold(dir.path(), 32 * EXTENT_BYTES);
        m.prefetch(&[(0, 32 * EXTENT_BYTES)]);
        drop(m);
        FileMedia::open(&dir.path().join("a"), FileAccess::Write, true).expect("no lock is left");
    }

    #[test]
    fn what_is_no_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: a string that ends with a NUL and lives for the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [dir.path(), &fifo, &socket, Path::new("/dev/null")] {
            for access in [FileAccess::Read, FileAccess::Write, FileAccess::Create] {
                match FileMedia::open(path, access, true) {
                    Err(Error::NotAStore { .. }) => {}
                    other => panic!("{} for {access:?}: {other:?}", path.display()),
                }
            }
        }
    }

    #[test]
    fn discarded_bytes_have_no_room_and_allocated_ones_have() {
        let dir = tempfile::tempdir().unwrap();
        let m = FileMedia::open(&dir.path().join("a"), FileAccess::CreateNew, true).unwrap();
        m.set_len(4 << 20).unwrap();
        m.write_at(0, &vec![1; 1 << 20]).unwrap();
        m.file.sync_all().unwrap();
        let used = || m.file.metadata().unwrap().blocks() * 512;
        let before = used();
        m.allocate(2 << 20, 1 << 20);
        let allocated = used();
        m.discard(0, 1 << 20);
        if (before, allocated, used()) != (before, before, before) {
            assert!(allocated >= before + (1 << 20) && used() + (1 << 20) <= allocated, "{before}, {allocated}");
        } else {
            eprintln!("skipped: the file system of temporary files neither allocates nor punches holes");
        }
        assert_eq!(m.len(), 4 << 20);
    }

    #[test]
    fn one_writer_many_readers() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let writer = FileMedia::open(&path, FileAccess::Create, true).unwrap();
        assert!(matches!(FileMedia::open(&path, FileAccess::Write, true), Err(Error::Locked { .. })));
        assert!(writer.if_no_readers(&mut || Ok(())).unwrap());
        let one = FileMedia::open(&path, FileAccess::Read, true).unwrap();
        let two = FileMedia::open(&path, FileAccess::Read, true).unwrap();
        assert!(!writer.if_no_readers(&mut || Ok(())).unwrap());
        drop((one, two));
        assert!(writer.if_no_readers(&mut || Ok(())).unwrap());
        drop(writer);
        FileMedia::open(&path, FileAccess::Write, true).unwrap();
    }

    #[test]
    fn only_the_medium_that_created_a_file_removes_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("a"), dir.path().join("b"));
        for access in [FileAccess::Create, FileAccess::CreateNew] {
            let medium = FileMedia::open(&path, access, true).unwrap();
            FileMedia::open(&path, FileAccess::Read, true).unwrap().remove_created();
            assert!(path.exists(), "a reader has created nothing");
            medium.remove_created();
            assert!(!path.exists(), "{access:?}");
            medium.remove_created();
        }
        std::fs::write(&path, b"there").unwrap();
        for access in [FileAccess::Create, FileAccess::Write] {
            FileMedia::open(&path, access, true).unwrap().remove_created();
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"there");
        std::fs::remove_file(&path).unwrap();
        // Another file, or a link to this one, has taken the path since.
        let medium = FileMedia::open(&path, FileAccess::Create, true).unwrap();
        std::fs::rename(&path, &other).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        medium.remove_created();
        assert!(path.exists() && other.exists());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"theirs").unwrap();
        medium.remove_created();
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    }

    extern "C" fn heard(_signal: libc::c_int) {}

    #[test]
    fn signals_do_not_end_the_wait_for_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let writer = FileMedia::open(&path, FileAccess::Create, true).unwrap();
        // SAFETY: a zeroed `sigaction` is one without flags, so that the signal interrupts system calls; the handler
        // does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = heard as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
        }
        std::thread::scope(|s| {
            let (tell, told) = std::sync::mpsc::channel();
            let mut waits = None;
            writer
                .if_no_readers(&mut || {
                    let (tell, path) = (tell.clone(), path.clone());
                    let reader = s.spawn(move || {
                        // SAFETY: the call has no conditions.
                        tell.send(unsafe { libc::pthread_self() }).unwrap();
                        FileMedia::open(&path, FileAccess::Read, true).map(drop)
                    });
                    let thread = told.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
                    for _ in 0..20_000 {
                        // SAFETY: the thread was not joined yet.
                        assert_eq!(unsafe { libc::pthread_kill(thread, libc::SIGUSR2) }, 0);
                        if reader.is_finished() {
                            break;
                        }
                        std::thread::yield_now();
                    }
                    assert!(!reader.is_finished(), "the lock is held");
                    waits = Some(reader);
                    Ok(())
                })
                .unwrap();
            crate::sim::patience::joined(waits.expect("nobody read before")).expect("the lock is free now");
        });
    }
}
