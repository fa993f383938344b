//! Promise: pages that are not in memory are prefetched before they are read, whatever was read before them.
//!
//! The test's medium is a file whose page cache is simulated by a set of pages: it is empty at first, and every page
//! that is prefetched or read in place is added. Boxes that overlap others, in order, out of order and on both sides,
//! must find nearly all their pages in the set: for a page that is read before it was prefetched, a program would wait
//! for the disk. Tests of `media/` use a real page cache; other tests compare the bytes that reads return.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::*;
use nandarray::{FileAccess, FileMedia, Geometry, Media, Mode, Options, Result, Target};

const PAGE: u64 = 4096;
const EXTENT: u64 = 2 << 20;

#[derive(Debug)]
struct Cache {
    file: FileMedia,
    pages: Mutex<BTreeSet<u64>>,
    /// Number of pages that were read in place before they were prefetched.
    late: AtomicU64,
    fits: AtomicBool,
    /// The ranges of each request to prefetch.
    requests: Mutex<Vec<Vec<(u64, u64)>>>,
}

impl Cache {
    fn bring(&self, from: u64, to: u64) -> u64 {
        let mut pages = self.pages.lock().unwrap();
        (from / PAGE..to.div_ceil(PAGE)).filter(|&page| pages.insert(page)).count() as u64
    }
}

impl Media for Cache {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.late.fetch_add(self.bring(offset, offset + len as u64), Ordering::Relaxed);
        self.file.slice(offset, len)
    }

    fn prefetch(&self, ranges: &[(u64, u64)]) {
        self.requests.lock().unwrap().push(ranges.to_vec());
        for &(from, to) in ranges {
            self.bring(from, to);
        }
    }

    fn is_resident(&self, offset: u64, len: u64) -> bool {
        let pages = self.pages.lock().unwrap();
        (offset / PAGE..(offset + len).div_ceil(PAGE)).all(|page| pages.contains(&page))
    }

    fn fits_in_memory(&self) -> bool {
        self.fits.load(Ordering::Relaxed)
    }
}

const SHAPE: [u64; 3] = [200, 192, 192];

/// Creates a store with one array; none of its pages is in the simulated page cache.
fn stored(folder: &Path) -> Arc<Cache> {
    let media = Arc::new(Cache {
        file: FileMedia::open(&folder.join("a"), FileAccess::CreateNew, true).unwrap(),
        pages: Mutex::default(),
        late: AtomicU64::new(0),
        fits: AtomicBool::new(true),
        requests: Mutex::default(),
    });
    let make = Op::Create {
        name: "a".to_owned(),
        shape: SHAPE.to_vec(),
        item: 4,
        block: Some(vec![64; 3]),
        compression: None,
        key: false,
        fill: 0,
    };
    let all = Part::boxed(&[0; 3], &SHAPE);
    let fill = Op::Write { name: "a".to_owned(), part: all, salt: 3 };
    {
        let device = open(media.clone(), Mode::Append, &options(Geometry::FILE, 1)).unwrap();
        make.run(&device).unwrap();
        fill.run(&device).unwrap();
        device.close().unwrap();
    }
    media
}

/// Returns options for one thread: with several, one could read a page just before another prefetches it.
fn one_thread() -> Options {
    Options { threads: Some(1), ..options(Geometry::FILE, 1) }
}

#[test]
fn small_reads_all_over_end_in_memory_if_it_fits() {
    for fits in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let media = stored(folder.path());
        media.fits.store(fits, Ordering::Relaxed);
        media.pages.lock().unwrap().clear();
        let device = open(media.clone(), Mode::Read, &one_thread()).unwrap();
        let pages = || media.pages.lock().unwrap().len() as u64;
        for i in 0..600u64 {
            let start = [i * 67 % 190, i * 101 % 180, i * 37 % 180];
            read(&device, "a", &Part::boxed(&start, &[8, 12, 12])).unwrap();
            if i == 20 {
                assert!(pages() * PAGE < 8 << 20, "a few reads bring what they want: {} pages", pages());
            }
        }
        let before = pages();
        read(&device, "a", &Part::boxed(&[0; 3], &SHAPE)).unwrap();
        assert_eq!(pages() < before + 64, fits, "{} of {} pages came with small reads", before, pages());
    }
}

#[test]
fn boxes_that_overlap_others_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let media = stored(folder.path());
    // Large reads: apart, overlapping from below and from above, across blocks, between two others, and once more.
    let large: &[u64] = &[4, 20, 64, 104, 88, 160, 148, 0];
    // Small ones: the middle of what two others leave is not looked for.
    let small: &[u64] = &[4, 10, 40, 35, 62, 58, 70, 66];
    for (axis, thick, starts) in [(0, 32, large), (1, 32, large), (2, 32, large), (0, 8, small), (1, 8, small)] {
        media.pages.lock().unwrap().clear();
        let device = open(media.clone(), Mode::Read, &one_thread()).unwrap();
        for &at in starts {
            let (mut start, mut count) = ([0; 3], SHAPE);
            (start[axis], count[axis]) = (at, thick);
            media.late.store(0, Ordering::Relaxed);
            read(&device, "a", &Part::boxed(&start, &count)).unwrap();
            let late = media.late.load(Ordering::Relaxed);
            assert_eq!(late, 0, "pages late of {thick} from {at} across axis {axis}");
        }
    }
}

#[test]
fn pages_that_are_lent_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let media = stored(folder.path());
    media.pages.lock().unwrap().clear();
    let device = open(media.clone(), Mode::Read, &one_thread()).unwrap();
    // A whole block each: the first without a prediction, then in the order of a scan, then elsewhere.
    for start in [[64, 64, 64], [0, 0, 0], [0, 0, 64], [0, 0, 128], [128, 0, 128]] {
        media.late.store(0, Ordering::Relaxed);
        let (space, count) = (open_space(&device, "a").unwrap().id, [64; 3]);
        let mut lent = 0;
        let lend = |target: Target<'_>| {
            device.compound(false, |c| c.lend(space, target, &mut |bytes| lent += bytes.len())).unwrap().unwrap();
        };
        Part::boxed(&start, &count).target(3, &strides(&count, 4), lend);
        assert_eq!((lent, media.late.load(Ordering::Relaxed)), (4 * 64 * 64 * 64, 0), "a block from {start:?}");
    }
}

#[test]
fn the_extents_of_a_scan_are_asked_for_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let media = stored(folder.path());
    media.pages.lock().unwrap().clear();
    let device = open(media.clone(), Mode::Read, &one_thread()).unwrap();
    media.requests.lock().unwrap().clear();
    // Eight blocks of 1 MiB are requested at a time; these begin in the middle of an extent.
    read(&device, "a", &Part::boxed(&[64, 0, 0], &[128, 192, 192])).unwrap();
    let requests = std::mem::take(&mut *media.requests.lock().unwrap());
    assert!(requests.len() >= 3, "{requests:?}");
    let mut asked = BTreeSet::new();
    // The others are records, which lie elsewhere.
    for &(from, to) in requests.iter().flatten().filter(|(from, to)| to - from > EXTENT / 2) {
        for extent in from / EXTENT..to.div_ceil(EXTENT) {
            assert!(asked.insert(extent), "extent {extent} is asked for twice: {requests:?}");
        }
    }
    assert_eq!(asked.len(), 18 / 2 + 1, "{requests:?}");
}
