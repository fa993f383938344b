//! Prefetch of whole extents of a file into the page cache as large pages, which makes a scan run at the disk's speed.
//!
//! Pages that `posix_fadvise` requests arrive one by one (4 KiB each, scattered in memory), and a request to the disk
//! is a list of them. A page fault in a mapping with the advice "huge page" loads an aligned extent of 2 MiB into
//! contiguous memory by one request: at twice the speed on the machine of design note 7, for a quarter of the
//! processor's time. So the file is mapped a second time, and a few threads populate the extents that are queued here,
//! one after the other. Nothing stays mapped.
//!
//! A reader that needs bytes of a queued extent populates the extent itself ([`Extents::wait`]), since a single page
//! that is read in the meantime would prevent a large page. If kernel or file system have no large pages, requests are
//! refused ([`Extents::ask`]) and the caller prefetches page by page; from time to time a large page is tried again
//! ([`Attempts`]). All of this is only a hint: an error is not reported, and may occur again in the read itself.

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use memmap2::{Advice, Mmap, MmapOptions, UncheckedAdvice};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::EXTENT_BYTES;
use super::presence::{is_resident, page_bytes};
use crate::sim::panics::caught;
use crate::sim::process::Home;

/// Largest number of threads that load extents into memory, besides readers that load an extent for themselves.
const THREADS: usize = 4;
/// Largest number of queued extents; together they have 128 MiB.
const QUEUED: usize = 64;
/// Time without a queued extent after which a thread ends.
const IDLE: Duration = Duration::from_millis(200);
/// Longest wait for an extent that another thread reads: prefetch is only a hint.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of extents in a row that did not become large pages, after which requests are refused for a while.
const FAILURES: u32 = 4;
/// Number of requests refused after the first failed attempts, until one is tried again; doubled with each further
/// failure up to `REFUSED_MAX`.
const REFUSED: u32 = 64;
const REFUSED_MAX: u32 = 1 << 14;

/// A prefetcher of whole extents of a file, with threads of its own.
pub(super) struct Extents {
    shared: Arc<Shared>,
}

struct Shared {
    /// The file, opened a second time: closing this description does not end the locks that the medium holds by its
    /// own.
    file: File,
    window_bytes: u64,
    windows: Box<[OnceLock<Mmap>]>,
    queue: Mutex<Queue>,
    /// Signalled when an extent was queued or read.
    news: Condvar,
    /// Number of extents that are queued or being read, so that readers can see without a lock that there are none.
    pending: AtomicUsize,
    /// The process that owns the threads: a process forked from it has the queue but no threads.
    home: Home,
}

#[derive(Default)]
struct Queue {
    /// Numbers of the queued extents, in the order of their requests.
    waiting: VecDeque<u64>,
    reading: Vec<u64>,
    threads: usize,
    idle: usize,
    closed: bool,
    attempts: Attempts,
}

/// Decides whether requests are accepted. After several failures in a row most are refused; one is tried from time to
/// time, because contiguous memory may be available again.
#[derive(Debug, Default)]
struct Attempts {
    /// Number of failures in a row.
    failures: u32,
    /// Number of requests that are still to be refused.
    refuse: u32,
    /// Number of requests that were refused after the last failure.
    refused: u32,
}

/// Result of loading an extent into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The extent is in memory as a large page.
    Whole,
    /// The extent is not a large page: no contiguous memory, or no support by kernel or file system.
    Failed,
    /// The file ends before the extent's end, so the next extent may still succeed.
    Beyond,
}

impl Attempts {
    /// Whether to accept the next request; counts it if it is refused.
    fn next(&mut self) -> bool {
        let ask = self.refuse == 0;
        self.refuse = self.refuse.saturating_sub(1);
        ask
    }

    fn tell(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Whole => *self = Self::default(),
            Outcome::Beyond => {}
            Outcome::Failed => {
                self.failures += 1;
                // Of several extents that were read at the same time only the first failure counts.
                if self.failures >= FAILURES && self.refuse == 0 {
                    self.refused = (self.refused * 2).clamp(REFUSED, REFUSED_MAX);
                    self.refuse = self.refused;
                    self.failures = FAILURES - 1;
                }
            }
        }
    }
}

impl Extents {
    /// Creates the prefetcher for an open file; `None` if the file cannot be opened a second time.
    pub(super) fn new(file: &File, window_bytes: u64, windows: usize) -> Option<Self> {
        let file = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
        Some(Self {
            shared: Arc::new(Shared {
                file,
                window_bytes,
                windows: (0..windows).map(|_| OnceLock::new()).collect(),
                queue: Mutex::default(),
                news: Condvar::new(),
                pending: AtomicUsize::new(0),
                home: Home::here(),
            }),
        })
    }

    /// Whether an extent is queued or being read.
    pub(super) fn is_pending(&self, extent: u64) -> bool {
        if self.shared.pending.load(Ordering::Acquire) == 0 || self.shared.is_forked() {
            return false;
        }
        let queue = self.shared.queue.lock();
        queue.reading.contains(&extent) || queue.waiting.contains(&extent)
    }

    /// Queues an extent, which must lie within the file and have no page in memory; `false` if the request is refused.
    pub(super) fn ask(&self, extent: u64) -> bool {
        let shared = &self.shared;
        if shared.is_forked() {
            return false;
        }
        let mut queue = shared.queue.lock();
        if queue.waiting.len() >= QUEUED || !queue.attempts.next() {
            return false;
        }
        queue.waiting.push_back(extent);
        shared.pending.fetch_add(1, Ordering::Release);
        if queue.idle > 0 {
            shared.news.notify_all();
        } else if queue.threads < THREADS {
            let mine = shared.clone();
            // Without a thread, readers that wait for an extent read it themselves.
            if std::thread::Builder::new().name("nandarray-disk".to_owned()).spawn(move || mine.work()).is_ok() {
                queue.threads += 1;
            }
        }
        true
    }

    /// Waits until no extent with bytes of this range is queued or being read; the calling thread itself reads those
    /// that are queued.
    pub(super) fn wait(&self, offset: u64, len: u64) {
        let shared = &self.shared;
        if shared.pending.load(Ordering::Acquire) == 0 || shared.is_forked() {
            return;
        }
        let mine = offset / EXTENT_BYTES..(offset + len).div_ceil(EXTENT_BYTES);
        let mut queue = shared.queue.lock();
        loop {
            if let Some(at) = queue.waiting.iter().position(|e| mine.contains(e)) {
                let extent = queue.waiting.remove(at).expect("found above");
                shared.read(extent, &mut queue);
            } else if queue.reading.iter().any(|e| mine.contains(e)) {
                if shared.news.wait_for(&mut queue, PATIENCE).timed_out() {
                    // These extents are given up, so that later readers do not wait for them again.
                    shared.forget(&mut queue, |e| mine.contains(&e));
                    return;
                }
            } else {
                return;
            }
        }
    }
}

impl Drop for Extents {
    fn drop(&mut self) {
        if self.shared.is_forked() {
            return;
        }
        let mut queue = self.shared.queue.lock();
        queue.closed = true;
        queue.waiting.clear();
        self.shared.news.notify_all();
        // The medium may be closed once no thread reads from it.
        while !queue.reading.is_empty() && !self.shared.news.wait_for(&mut queue, PATIENCE).timed_out() {}
    }
}

impl Shared {
    /// Whether this process was forked from the one that owns the threads. Such a process must not take locks, as the
    /// threads that hold them do not exist in it.
    fn is_forked(&self) -> bool {
        !self.home.is_here()
    }

    /// The loop of a thread: reads queued extents, and ends when nothing is queued for a while.
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(extent) = queue.waiting.pop_front() {
                self.read(extent, &mut queue);
                continue;
            }
            queue.idle += 1;
            let late = !queue.closed && self.news.wait_for(&mut queue, IDLE).timed_out();
            queue.idle -= 1;
            if queue.closed || late && queue.waiting.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }

    /// Reads an extent that was taken from the queue; the lock is released during the read.
    fn read(&self, extent: u64, queue: &mut MutexGuard<'_, Queue>) {
        queue.reading.push(extent);
        // Prefetch is a hint: after a panic in it the extent is read page by page, and no thread waits for it.
        let outcome = MutexGuard::unlocked(queue, || caught(|| self.populate(extent)).unwrap_or(Outcome::Failed));
        queue.attempts.tell(outcome);
        self.forget(queue, |e| e == extent);
        self.news.notify_all();
    }

    /// Removes the extents for which `gone` is true from the list of those being read.
    fn forget(&self, queue: &mut Queue, gone: impl Fn(u64) -> bool) {
        let before = queue.reading.len();
        queue.reading.retain(|&e| !gone(e));
        self.pending.fetch_sub(before - queue.reading.len(), Ordering::Release);
    }

    fn populate(&self, extent: u64) -> Outcome {
        #[cfg(test)]
        assert_ne!(extent, tests::PANICS_AT, "on purpose");
        let offset = extent * EXTENT_BYTES;
        let Some(map) = self.window((offset / self.window_bytes) as usize) else { return Outcome::Failed };
        let (at, bytes) = ((offset % self.window_bytes) as usize, EXTENT_BYTES as usize);
        // If large pages work, accessing one page loads the whole extent.
        let page = page_bytes() as usize;
        let done = map.advise_range(Advice::PopulateRead, at, page).is_ok();
        // SAFETY: there is no reference into this mapping, and its pages are the file's: they are only unmapped.
        let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, at, bytes) };
        if done && is_resident(map, at + bytes - page, page) {
            return Outcome::Whole;
        }
        will_need(&self.file, offset, EXTENT_BYTES);
        let reaches = self.file.metadata().is_ok_and(|meta| meta.len() >= offset + EXTENT_BYTES);
        if reaches { Outcome::Failed } else { Outcome::Beyond }
    }

    fn window(&self, index: usize) -> Option<&Mmap> {
        let cell = self.windows.get(index)?;
        if let Some(map) = cell.get() {
            return Some(map);
        }
        // SAFETY: no byte of the mapping is ever read.
        let map = unsafe {
            let at = index as u64 * self.window_bytes;
            MmapOptions::new().offset(at).len(self.window_bytes as usize).map(&self.file).ok()?
        };
        // The advice "random" makes a fault load its own extent and not the next one as well.
        map.advise(Advice::HugePage).ok()?;
        map.advise(Advice::Random).ok()?;
        Some(cell.get_or_init(|| map))
    }
}

/// Requests that the kernel reads the pages of a range, one by one; returns at once.
pub(super) fn will_need(file: &File, offset: u64, len: u64) {
    // SAFETY: plain integers and an open descriptor; the kernel checks the range.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), offset as i64, len as i64, libc::POSIX_FADV_WILLNEED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_row_of_failures_one_is_tried_now_and_then() {
        let mut attempts = Attempts::default();
        let refused = |attempts: &mut Attempts| (0..).take_while(|_| !attempts.next()).count() as u32;
        for _ in 0..3 {
            (0..FAILURES - 1).for_each(|_| attempts.tell(Outcome::Failed));
            assert!(attempts.next(), "not yet");
            attempts.tell(Outcome::Whole);
        }
        // All that were on their way fail: counted once.
        (0..2 * FAILURES).for_each(|_| attempts.tell(Outcome::Failed));
        assert_eq!(refused(&mut attempts), REFUSED);
        for round in 1..20 {
            attempts.tell(Outcome::Failed);
            assert_eq!(
                refused(&mut attempts),
                (REFUSED << round.min(16)).min(REFUSED_MAX),
                "longer each time, up to a limit"
            );
        }
        attempts.tell(Outcome::Whole);
        (0..FAILURES).for_each(|_| attempts.tell(Outcome::Failed));
        assert_eq!(refused(&mut attempts), REFUSED, "one that came makes it begin anew");
    }

    /// The extent whose reading panics in tests.
    pub(super) const PANICS_AT: u64 = (1 << 36) / EXTENT_BYTES - 1;

    #[test]
    fn a_panic_in_a_readahead_thread_leaves_nobody_waiting() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 * EXTENT_BYTES).unwrap();
        let extents = Extents::new(&file, 1 << 36, 1).unwrap();
        for _ in 0..2 * THREADS {
            if extents.ask(PANICS_AT) {
                // Read here or by the thread that was started for it, whichever is first.
                extents.wait(PANICS_AT * EXTENT_BYTES, 1);
            }
            assert!(!extents.is_pending(PANICS_AT));
        }
        assert_eq!(extents.shared.pending.load(Ordering::Acquire), 0);
    }

    #[test]
    fn extents_behind_the_end_of_a_file_that_was_cut_are_no_failures() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(3 * EXTENT_BYTES).unwrap();
        let extents = Extents::new(&file, 1 << 36, 2).unwrap();
        for extent in 3..3 + 4 * u64::from(FAILURES) {
            assert!(extents.ask(extent), "{extent}");
            extents.wait(extent * EXTENT_BYTES, 1);
            assert_eq!(extents.shared.queue.lock().attempts.failures, 0);
        }
        assert!(extents.ask(0));
    }
}
