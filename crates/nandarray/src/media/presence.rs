//! Residency in the page cache of a range of a file, as the kernel reports it: all of it, none, or a part.
//!
//! A part is not rare: a kernel that needs memory evicts scattered pages, and some kernels evict pages that were not
//! accessed for a while. `cachestat` (Linux 6.5) answers for a range of any length by one short call, which counts
//! large pages as a whole; pages that are being read count as resident. If it is refused (older kernels, files of other
//! users), `mincore` is used on a mapping: for a few pages of a range, since it visits pages one by one, and for all of
//! them only before the answer is "none".
//!
//! An answer may be outdated at once; it is used for hints only.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use memmap2::Mmap;

/// Residency of the pages of a range: in memory, or being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// No page is resident.
    Nothing,
    /// Some pages are resident, others not.
    Part,
    /// All pages are resident, or the system does not say.
    All,
}

/// Queries of the page cache about one file.
#[derive(Debug, Default)]
pub(super) struct PageCache {
    /// Whether `cachestat` was refused, so that it is not called again.
    refused: AtomicBool,
}

impl PageCache {
    /// Returns the residency of these bytes, which must lie within the file. `mapping` returns a mapping with the range
    /// and the range's offset in it, `None` if the range is not mapped; it is called only if `cachestat` is refused.
    pub(super) fn of<'m>(
        &self,
        file: &File,
        offset: u64,
        len: u64,
        mapping: impl FnOnce(u64, u64) -> Option<(&'m Mmap, usize)>,
    ) -> Presence {
        let from = offset / page_bytes() * page_bytes();
        let pages = (offset + len - from).div_ceil(page_bytes());
        if !self.refused.load(Ordering::Relaxed) {
            match cachestat(file, from, pages * page_bytes()) {
                Some(0) => return Presence::Nothing,
                Some(here) if here < pages => return Presence::Part,
                Some(_) => return Presence::All,
                None => self.refused.store(true, Ordering::Relaxed),
            }
        }
        mapping(from, pages * page_bytes()).map_or(Presence::All, |(map, at)| by_mapping(map, at, pages as usize))
    }
}

/// Returns the size of a memory page of this system in bytes.
pub(super) fn page_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    // SAFETY: it reads a constant of the system.
    *BYTES.get_or_init(|| u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(512))
}

/// Returns the size of this system's memory in bytes; 0 if it is unknown.
pub(super) fn memory_bytes() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    // SAFETY: it reads a constant of the system.
    *BYTES.get_or_init(|| u64::try_from(unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) }).unwrap_or(0) * page_bytes())
}

/// Number of the system call `cachestat`, the same on every architecture of Linux that Rust supports; the C library has
/// no function for it.
const SYS_CACHESTAT: libc::c_long = 451;

/// Returns the number of pages of a range that are in the page cache; `None` if the kernel does not answer.
fn cachestat(file: &File, offset: u64, len: u64) -> Option<u64> {
    // `struct cachestat_range` and `struct cachestat` of linux/mman.h.
    let range = [offset, len];
    let mut told = [0u64; 5];
    // SAFETY: an open descriptor and two structs of the layouts that the kernel documents, alive for the call.
    let done =
        unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), told.as_mut_ptr(), 0 as libc::c_uint) };
    (done == 0).then_some(told[0])
}

/// Number of pages of a range that are tested by single calls of `mincore`.
const PAGES_TRIED: usize = 8;
/// Largest number of pages that one call of `mincore` tests.
const PAGES_ASKED: usize = 512;

/// Returns the residency of pages of a mapping, by `mincore`.
fn by_mapping(map: &Mmap, at: usize, pages: usize) -> Presence {
    let page = page_bytes() as usize;
    let tried = pages.min(PAGES_TRIED);
    let place = |i: usize| if tried == 1 { 0 } else { i * (pages - 1) / (tried - 1) };
    let here = (0..tried).filter(|&i| is_resident(map, at + place(i) * page, page)).count();
    match here {
        0 if (0..pages).step_by(PAGES_ASKED).all(|i| {
            let pages = PAGES_ASKED.min(pages - i);
            present(map, at + i * page, pages) == Some(0)
        }) =>
        {
            Presence::Nothing
        }
        n if n == tried => Presence::All,
        _ => Presence::Part,
    }
}

/// Whether all these whole pages of a mapping are in memory; true if the system does not answer.
pub(super) fn is_resident(map: &Mmap, at: usize, bytes: usize) -> bool {
    let page = page_bytes() as usize;
    let pages = bytes / page;
    (0..pages).step_by(PAGES_ASKED).all(|i| {
        let pages = PAGES_ASKED.min(pages - i);
        present(map, at + i * page, pages).is_none_or(|n| n == pages)
    })
}

/// Returns how many of these pages of a mapping are in memory, for at most [`PAGES_ASKED`] pages; `None` if the system
/// does not answer.
fn present(map: &Mmap, at: usize, pages: usize) -> Option<usize> {
    let mut told = [0u8; PAGES_ASKED];
    let bytes = pages * page_bytes() as usize;
    assert!(pages <= PAGES_ASKED && at + bytes <= map.len(), "{pages} pages at {at} of {}", map.len());
    // SAFETY: the pages lie within the mapping, which may be longer than the file; a byte of answer for each.
    let asked = unsafe { libc::mincore(map.as_ptr().add(at).cast_mut().cast(), bytes, told.as_mut_ptr()) };
    (asked == 0).then(|| told[..pages].iter().filter(|&&page| page & 1 == 1).count())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use memmap2::MmapOptions;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// Creates and maps a file of 4 MiB, of which the second MiB is in memory and the others are not, if the system
    /// follows the advice.
    fn some_of_it() -> (File, Mmap) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 4 * MIB as usize]).unwrap();
        file.sync_all().unwrap();
        // SAFETY: plain integers and an open descriptor.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        // SAFETY: no other process has this file.
        let map = unsafe { MmapOptions::new().map(&file).unwrap() };
        map.advise(memmap2::Advice::Random).unwrap();
        for at in (MIB..2 * MIB).step_by(page_bytes() as usize) {
            std::hint::black_box(map[at as usize]);
        }
        (file, map)
    }

    #[test]
    fn both_ways_of_asking_agree() {
        let (file, map) = some_of_it();
        for refused in [false, true] {
            let cache = PageCache { refused: refused.into() };
            let of = |offset, len| {
                cache.of(&file, offset, len, |from, bytes| {
                    assert!(from.is_multiple_of(page_bytes()) && bytes.is_multiple_of(page_bytes()));
                    Some((&map, from as usize))
                })
            };
            assert_eq!(of(MIB, MIB), Presence::All);
            assert_eq!(of(MIB + 5000, 1), Presence::All);
            // A file system in memory keeps everything.
            if of(0, 1) == Presence::Nothing {
                assert_eq!(of(0, MIB), Presence::Nothing);
                assert_eq!(of(0, 4 * MIB), Presence::Part);
                assert_eq!(of(MIB - 1, 2), Presence::Part);
                assert_eq!(of(2 * MIB, 2 * MIB), Presence::Nothing);
            }
        }
        let nobody = PageCache { refused: true.into() };
        assert_eq!(nobody.of(&file, 0, MIB, |_, _| None), Presence::All, "nobody says");
    }
}
