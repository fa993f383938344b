//! The file of a region: creates, maps and locks it, and gives access to its words.
//!
//! Locks of the open file (OFD locks) show which processes are alive: the server holds the lock of one byte, and each
//! client the lock of one byte for each queue that it has claimed. The kernel releases a process's locks when it ends.
//! Words of the region are accessed as atomics; no other reference to its bytes is ever made.
//!
//! A server replaces nothing but a region that an ended server left: an ordinary file that begins with the magic number
//! and belongs to this user. A region is for the users alone who may read and write the store, since a user who may
//! open its file reads what others have fetched, and can hold their locks ([`RegionAccess`]). A mapping is watched by
//! `guard`.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Write};
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};
use zerocopy::FromBytes;

use crate::error::{QueueError, system};
use crate::guard::GuardedMapping;
use crate::layout::{MAGIC, QUEUE_HEADER_BYTES, RegionHeader, SERVER_BYTE};

/// Opens without following a link, and without waiting for the other end of a FIFO.
const FLAGS: i32 = libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;

/// Returns the path of a region's file: a name with a slash is the path, any other name stands for a file in
/// `/dev/shm`.
pub fn region_path(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new("/dev/shm").join(format!("nandarray-{name}")) }
}

/// Access of users to a region, beside the user who serves. A client needs reading and writing; no user gets only one
/// of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegionAccess {
    /// User and group of the file; `None` for those of this process.
    owner: Option<(u32, u32)>,
    /// Whether the file's group may, and everybody.
    group: bool,
    others: bool,
}

impl RegionAccess {
    /// Returns the access of those who may read and write a store with this owner, group and mode; `group` is another
    /// group that may.
    pub(crate) fn of_store(store: Option<(u32, u32, u32)>, group: Option<u32>) -> Self {
        // SAFETY: the call takes nothing and cannot fail.
        let this_user = unsafe { libc::geteuid() };
        let (uid, gid, mode) = store.unwrap_or((this_user, u32::MAX, 0o600));
        let may = |shift: u32| mode >> shift & 6 == 6;
        match group {
            Some(gid) => Self { owner: Some((uid, gid)), group: true, others: false },
            None => Self { owner: Some((uid, gid)), group: may(3), others: may(0) },
        }
    }

    /// Gives a new file, which is this user's alone so far, its owner and mode. If the group is `demanded`, it is an
    /// error when this user cannot give it; otherwise the group gets no access.
    fn give(self, file: &File, demanded: bool) -> std::io::Result<()> {
        let mut mode = 0o600;
        if let Some((uid, gid)) = self.owner {
            let own = file.metadata()?;
            let group = Some(gid).filter(|&gid| gid != u32::MAX && gid != own.gid());
            // Only root can give a file away; a store of another user, opened by its group, is served by this user.
            let user = Some(uid).filter(|&uid| uid != own.uid());
            let _ = user.map_or(Ok(()), |uid| fchown(file, Some(uid), None));
            let given = group.map_or(Ok(()), |gid| fchown(file, None, Some(gid)));
            if demanded {
                given?;
            } else if given.is_err() {
                return file.set_permissions(PermissionsExt::from_mode(mode));
            }
        }
        mode |= if self.group { 0o060 } else { 0 };
        mode |= if self.others { 0o006 } else { 0 };
        file.set_permissions(PermissionsExt::from_mode(mode))
    }
}

/// A region mapped into this process.
#[derive(Debug)]
pub(crate) struct QueueRegion {
    file: File,
    /// Declared before the mapping that it watches: it is dropped first.
    guard: GuardedMapping,
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
    /// Creates the file, filled with zeroes but for its magic number, maps it, and takes the server's lock. A region
    /// that an ended server left under this path is removed; `group` is whether `access` has a demanded group.
    ///
    /// # Errors
    /// [`QueueError::Taken`]; [`QueueError::NotOurs`] if anything else has the path; [`QueueError::System`].
    pub(crate) fn create(path: &Path, bytes: u64, access: RegionAccess, group: bool) -> Result<Self, QueueError> {
        // A server that changes its folder finds its file all the same when it ends.
        let path = &std::path::absolute(path).map_err(system(format!("the path {}", path.display())))?;
        remove_left(path, access)?;
        let making = || format!("making {}", path.display());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600).custom_flags(FLAGS);
        let file = match options.open(path) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                return Err(QueueError::Taken(path.display().to_string()));
            }
            made => made.map_err(system(making()))?,
        };
        let done = Self::begin(&file, path).and_then(|()| {
            let given = access.give(&file, group).and_then(|()| file.set_len(bytes));
            given.map_err(system(format!("{} of {bytes} bytes", making())))?;
            Self::map(&file, path)
        });
        match done {
            Ok((guard, map)) => Ok(Self { file, guard, map, path: path.clone() }),
            Err(e) => {
                remove_same(&file, path);
                Err(e)
            }
        }
    }

    /// Takes the server's lock of a new file, then writes its magic number. In this order no other server finds a file
    /// that looks like a region and is not locked, which it would remove as one that was left; and should this process
    /// be killed later, the next server knows the file.
    fn begin(mut file: &File, path: &Path) -> Result<(), QueueError> {
        if !lock(file, SERVER_BYTE, libc::F_WRLCK) || !has_name(file, path) {
            return Err(QueueError::Taken(path.display().to_string()));
        }
        file.write_all(&MAGIC.to_le_bytes()).map_err(system(format!("writing {}", path.display())))
    }

    /// Removes the file, unless another one has its name by now.
    pub(crate) fn remove(&self) {
        remove_same(&self.file, &self.path);
    }

    /// Whether the region lost its memory, so that this process has only zeroes in its place: its file was truncated,
    /// or its file system is full.
    pub(crate) fn lost(&self) -> bool {
        self.guard.lost()
    }

    /// Opens and maps the region of a running server; returns it with a copy of its header.
    pub(crate) fn open(path: &Path) -> Result<(Self, RegionHeader), QueueError> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(FLAGS).open(path);
        let file = file.map_err(system(format!("no server of queue pairs: opening {}", path.display())))?;
        let found = file.metadata().map_err(system("its size"))?;
        let wrong = || QueueError::NotARegion(path.display().to_string());
        if !found.is_file() || found.len() < crate::layout::PAGE_BYTES {
            return Err(wrong());
        }
        let (guard, map) = Self::map(&file, path)?;
        let region = Self { file, guard, map, path: path.to_owned() };
        let mut head = [0u8; size_of::<RegionHeader>()];
        region.copy_out(0, &mut head);
        let header = RegionHeader::read_from_bytes(&head).expect("a header has any bytes");
        if !header.holds(region.map.len() as u64) {
            return Err(wrong());
        }
        Ok((region, header))
    }

    fn map(file: &File, path: &Path) -> Result<(GuardedMapping, MmapRaw), QueueError> {
        let map = MmapOptions::new().map_raw(file).map_err(system(format!("mapping {}", path.display())))?;
        // SAFETY: the mapping lives longer than its guard, and all use of its bytes is by atomics and copies of bytes
        // that may be any.
        let guard = unsafe { GuardedMapping::new(map.as_mut_ptr(), map.len()) };
        Ok((guard, map))
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

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether the path names an open file, and no other one.
fn has_name(file: &File, path: &Path) -> bool {
    let named = std::fs::symlink_metadata(path);
    named.is_ok_and(|named| file.metadata().is_ok_and(|own| is_same(&own, &named)))
}

/// Removes an open file of this process, unless another one has its name by now.
fn remove_same(file: &File, path: &Path) {
    if has_name(file, path) {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes the region of a server that has ended; its clients keep their mapping. Does nothing if the path is free.
///
/// # Errors
/// [`QueueError::Taken`] if the server runs; [`QueueError::NotOurs`] for anything that is not such a region.
fn remove_left(path: &Path, access: RegionAccess) -> Result<(), QueueError> {
    let not_ours = |why: &str| QueueError::NotOurs { path: path.display().to_string(), why: why.to_owned() };
    let file = match OpenOptions::new().read(true).write(true).custom_flags(FLAGS).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => {
            return Err(match e.raw_os_error() {
                Some(libc::ELOOP) => not_ours("it is a link"),
                Some(libc::EISDIR) => not_ours("it is a directory"),
                Some(libc::ENXIO) => not_ours("it is a socket or a FIFO"),
                Some(libc::EACCES | libc::EPERM) => not_ours("this user may not read and write it"),
                _ => system(format!("opening {}", path.display()))(e),
            });
        }
    };
    let found = file.metadata().map_err(system(format!("inspecting {}", path.display())))?;
    if !found.is_file() {
        return Err(not_ours("it is not an ordinary file"));
    }
    // SAFETY: the call takes nothing and cannot fail.
    let user = unsafe { libc::geteuid() };
    // Root gives a region to the store's owner.
    let of_owner = user == 0 && access.owner.is_some_and(|(uid, _)| uid == found.uid());
    if found.uid() != user && !of_owner {
        return Err(not_ours(&format!("it belongs to user {}, and user {user} would serve", found.uid())));
    }
    let mut magic = [0; 8];
    if file.read_exact_at(&mut magic, 0).is_err() || u64::from_le_bytes(magic) != MAGIC {
        return Err(not_ours("it does not begin as a region does"));
    }
    if !lock(&file, SERVER_BYTE, libc::F_WRLCK) {
        return Err(QueueError::Taken(path.display().to_string()));
    }
    let named = std::fs::symlink_metadata(path).map_err(system(format!("inspecting {}", path.display())))?;
    if !is_same(&found, &named) {
        return Err(QueueError::Taken(path.display().to_string()));
    }
    std::fs::remove_file(path).map_err(system(format!("removing {}", path.display())))
}

fn flock(byte: i64, kind: i32) -> libc::flock {
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: byte, l_len: 1, l_pid: 0 }
}

fn lock(file: &File, byte: i64, kind: i32) -> bool {
    // SAFETY: a descriptor of ours and a struct of the call's type.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &flock(byte, kind)) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_servers_that_begin_at_once_one_has_the_path_and_keeps_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("region");
        for round in 0..200 {
            // As a killed server leaves it.
            std::fs::write(&path, MAGIC.to_le_bytes()).unwrap();
            let barrier = std::sync::Barrier::new(4);
            let create = || {
                barrier.wait();
                QueueRegion::create(&path, 4096, RegionAccess::default(), false).ok()
            };
            let made: Vec<QueueRegion> = std::thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(create));
                threads.into_iter().filter_map(|thread| nandarray::internals::joined(thread)).collect()
            });
            assert_eq!(made.len(), 1, "round {round}");
            assert!(has_name(&made[0].file, &path), "round {round}");
            made[0].remove();
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_failed_server_removes_its_own_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("region");
        assert!(QueueRegion::create(&path, u64::MAX, RegionAccess::default(), false).is_err());
        assert!(!path.exists());
        let region = QueueRegion::create(&path, 4096, RegionAccess::default(), false).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "mine").unwrap();
        assert!(QueueRegion::begin(&region.file, &path).is_err());
        remove_same(&region.file, &path);
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}
