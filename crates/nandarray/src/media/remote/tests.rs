//! Tests of a medium far away with a scripted fetch function: faults, merges, waiters, evictions, shared files.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::queue::PIECE_UNITS;
use super::*;
use crate::sim::Chance;

type Answer = std::result::Result<(), FetchError>;

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Error,
    Short,
    Elsewhere,
    Panic,
}

struct Script {
    bytes: Vec<u8>,
    calls: Mutex<Vec<(u64, u64)>>,
    fault: Box<dyn Fn(usize) -> Fault + Send + Sync>,
    wait: Duration,
    /// Whether no answer comes yet.
    held: AtomicBool,
    interrupted: AtomicBool,
    warned: AtomicUsize,
}

impl Script {
    fn new(len: usize) -> Self {
        Self {
            bytes: (0..len).map(|i| (i / 4096 * 7 + i % 251) as u8).collect(),
            calls: Mutex::default(),
            fault: Box::new(|_| Fault::None),
            wait: Duration::ZERO,
            held: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            warned: AtomicUsize::new(0),
        }
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

fn told(what: &str) -> FetchError {
    Arc::new(io::Error::other(what.to_owned()))
}

#[derive(Debug)]
struct Handle(Arc<Script>);

impl Fetch for Handle {
    fn fetch(&self, from: u64, to: u64, put: &mut (dyn FnMut(u64, &[u8]) + Send)) -> Answer {
        let script = &self.0;
        let number = {
            let mut calls = script.calls.lock();
            calls.push((from, to));
            calls.len() - 1
        };
        std::thread::sleep(script.wait);
        while script.held.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let bytes = &script.bytes[from as usize..to as usize];
        match (script.fault)(number) {
            Fault::None => put(from, bytes),
            Fault::Error => return Err(told("the line is cut")),
            Fault::Short => put(from, &bytes[..bytes.len() / 2]),
            Fault::Elsewhere => put(from + 1, bytes),
            Fault::Panic => panic!("on purpose"),
        }
        Ok(())
    }

    fn interrupted(&self) -> Answer {
        if self.0.interrupted.load(Ordering::Acquire) { Err(told("interrupted")) } else { Ok(()) }
    }

    fn without_room(&self, _why: &io::Error) {
        self.0.warned.fetch_add(1, Ordering::AcqRel);
    }
}

fn file(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn files(folder: &Path, stay: Stay, alone: bool) -> CacheFiles {
    CacheFiles { data: file(&folder.join("data")), marks: file(&folder.join("marks")), stay, alone }
}

fn medium(script: &Arc<Script>, kept: Option<CacheFiles>) -> RemoteMedia {
    RemoteMedia::new(Box::new(Handle(script.clone())), script.bytes.len() as u64, kept, true)
}

fn read(media: &RemoteMedia, at: usize, len: usize) -> Result<Vec<u8>> {
    let mut out = vec![0; len];
    media.read_at(at as u64, &mut out).map(|()| out)
}

#[test]
fn results_are_those_of_memory_under_any_interleaving() {
    let len = 200 * UNIT + 1234;
    for (stay, seed) in [(Some(Stay::Kept), 1), (Some(Stay::TurningOver), 2), (None, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let script = Arc::new(Script::new(len));
        let media = medium(&script, stay.map(|stay| files(folder.path(), stay, true)));
        std::thread::scope(|s| {
            for thread in 0..8 {
                let (media, script) = (&media, &script);
                s.spawn(move || {
                    let mut chance = Chance::seeded(seed * 100 + thread);
                    for _ in 0..150 {
                        let at = chance.below(len as u64) as usize;
                        let n = (chance.below(5 * UNIT as u64) as usize).min(len - at);
                        match chance.below(4) {
                            0 => media.prefetch(&[(at as u64, (at + n) as u64)]),
                            1 => {
                                media.bring(at as u64, n as u64).unwrap();
                                if let Some(bytes) = media.slice(at as u64, n) {
                                    assert_eq!(bytes, &script.bytes[at..at + n]);
                                }
                            }
                            _ => assert_eq!(read(media, at, n).unwrap(), &script.bytes[at..at + n]),
                        }
                    }
                });
            }
        });
        assert_eq!(read(&media, 0, len).unwrap(), script.bytes);
        assert!(media.is_resident(0, len as u64) || stay.is_none());
        assert_eq!(media.slice(7, 100_000).is_some(), stay == Some(Stay::Kept));
        let mut got = HashSet::new();
        for (from, to) in script.calls.lock().iter() {
            assert!(to - from <= PIECE_UNITS * UNIT_BYTES && from % UNIT_BYTES == 0, "{from}..{to}");
            // Gaps may be fetched again; what was wanted is not.
            got.extend(from / UNIT_BYTES..to.div_ceil(UNIT_BYTES));
        }
        assert_eq!(got.len(), 201);
    }
}

#[test]
fn a_command_is_a_few_pieces_and_a_later_read_waits_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let script = Arc::new(Script::new(256 * UNIT));
    script.held.store(true, Ordering::Release);
    let media = medium(&script, Some(files(folder.path(), Stay::Kept, true)));
    let column = |i: u64| (i * 16 * UNIT_BYTES, i * 16 * UNIT_BYTES + 4 * UNIT_BYTES);
    let ranges: Vec<_> = (0..16).map(column).collect();
    media.prefetch(&ranges);
    // It has returned, and nothing has come.
    assert!(!media.is_resident(0, 1));
    std::thread::scope(|s| {
        for &(from, to) in &ranges {
            let (media, script) = (&media, &script);
            s.spawn(move || {
                let got = read(media, from as usize, (to - from) as usize).unwrap();
                assert_eq!(got, &script.bytes[from as usize..to as usize]);
            });
        }
        script.held.store(false, Ordering::Release);
    });
    let calls = script.calls.lock().clone();
    assert_eq!(calls.len(), 16, "nothing twice, and no gap of three quarters: {calls:?}");
    let near: Vec<_> = (0..60).map(|i| (3 * UNIT_BYTES * i, 3 * UNIT_BYTES * i + 2 * UNIT_BYTES + 1)).collect();
    media.prefetch(&near);
    assert!(near.iter().all(|&(from, to)| read(&media, from as usize, (to - from) as usize).is_ok()));
    let more = script.calls.lock().len() - calls.len();
    assert!(more <= 16, "{more} pieces of what lies side by side");
}

#[test]
fn a_failed_piece_wakes_all_its_readers_and_the_next_read_tries_again() {
    for fault in [Fault::Error, Fault::Short, Fault::Elsewhere, Fault::Panic] {
        let folder = tempfile::tempdir().unwrap();
        let broken = Arc::new(AtomicBool::new(true));
        let mut script = Script::new(64 * UNIT);
        let is = broken.clone();
        script.fault = Box::new(move |_| if is.load(Ordering::Acquire) { fault } else { Fault::None });
        script.wait = Duration::from_millis(10);
        let script = Arc::new(script);
        let media = medium(&script, Some(files(folder.path(), Stay::Kept, true)));
        media.prefetch(&[(0, 8 * UNIT_BYTES)]);
        std::thread::scope(|s| {
            for i in 0..4 {
                let media = &media;
                s.spawn(move || {
                    // The bytes of a short answer are right.
                    let Err(error) = read(media, i * UNIT, 2 * UNIT) else {
                        assert!(fault == Fault::Short && i < 3, "{fault:?}");
                        return;
                    };
                    assert_eq!(error.kind(), "media");
                    assert!(error.to_string().contains(&format!("at offset {}", i * UNIT)), "{error}");
                });
            }
        });
        broken.store(false, Ordering::Release);
        assert_eq!(read(&media, 5, 7 * UNIT).unwrap(), &script.bytes[5..5 + 7 * UNIT], "{fault:?}");
    }
}

#[test]
fn a_reader_that_waits_can_be_interrupted() {
    let script = Arc::new(Script::new(8 * UNIT));
    let media = medium(&script, None);
    script.held.store(true, Ordering::Release);
    script.interrupted.store(true, Ordering::Release);
    let error = read(&media, 0, 10).unwrap_err();
    assert!(error.to_string().contains("interrupted"), "{error}");
    script.held.store(false, Ordering::Release);
    script.interrupted.store(false, Ordering::Release);
    assert_eq!(read(&media, 0, 10).unwrap(), &script.bytes[..10]);
}

#[test]
fn bytes_that_are_not_trusted_are_fetched_once_more() {
    let folder = tempfile::tempdir().unwrap();
    let script = Arc::new(Script::new(4 * UNIT));
    let media = medium(&script, Some(files(folder.path(), Stay::Kept, true)));
    let whole = read(&media, 0, 4 * UNIT).unwrap();
    drop(media);
    file(&folder.path().join("data")).write_all_at(&[!whole[UNIT + 9]], UNIT_BYTES + 9).unwrap();
    let media = medium(&script, Some(files(folder.path(), Stay::Kept, true)));
    assert_ne!(read(&media, 0, 4 * UNIT).unwrap(), whole, "kept, and rotten");
    assert!(media.distrust(UNIT_BYTES + 9, 1));
    assert!(!media.is_resident(UNIT_BYTES, 1) && media.slice(UNIT_BYTES + 9, 1).is_none());
    assert_eq!(read(&media, 0, 4 * UNIT).unwrap(), whole);
    assert_eq!(script.calls.lock().last(), Some(&(UNIT_BYTES, 2 * UNIT_BYTES)), "the unit alone");
    assert!(!media.distrust(UNIT_BYTES + 9, 1), "once");
}

#[test]
fn media_share_files_and_marks_of_something_else_are_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let script = Arc::new(Script::new(16 * UNIT + 5));
    let first = medium(&script, Some(files(folder.path(), Stay::Kept, true)));
    let second = medium(&script, Some(files(folder.path(), Stay::Kept, false)));
    let len = script.bytes.len();
    assert_eq!(read(&first, 0, len).unwrap(), script.bytes);
    let calls = script.calls.lock().len();
    assert_eq!(second.slice(0, len).unwrap(), script.bytes);
    assert_eq!(script.calls.lock().len(), calls);
    let other = Arc::new(Script::new(8 * UNIT));
    let beside = medium(&other, Some(files(folder.path(), Stay::Kept, false)));
    assert_eq!(read(&beside, 0, 8 * UNIT).unwrap(), other.bytes, "in memory");
    assert_eq!((other.warned.load(Ordering::Acquire), second.slice(0, 9).is_some()), (1, true));
    drop((first, second, beside));
    let anew = medium(&other, Some(files(folder.path(), Stay::Kept, true)));
    assert!(!anew.is_resident(0, 1));
    assert_eq!(read(&anew, 0, 8 * UNIT).unwrap(), other.bytes);
}

#[test]
fn evictions_under_readers_cost_time_and_no_byte() {
    for (units, pause) in [(64, Duration::from_millis(1)), (3, Duration::ZERO)] {
        let folder = tempfile::tempdir().unwrap();
        let len = units * UNIT;
        let script = Arc::new(Script::new(len));
        let media = medium(&script, Some(files(folder.path(), Stay::TurningOver, true)));
        let (left, freed, wrong) = (AtomicUsize::new(4), AtomicU64::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|s| {
            for thread in 0..4 {
                let (media, script, left, wrong, freed) = (&media, &script, &left, &wrong, &freed);
                s.spawn(move || {
                    let mut chance = Chance::seeded(thread);
                    let mut reads = 300 * 64 / units;
                    // On a busy machine the readers may be far ahead of the evictions.
                    while reads > 0 || freed.load(Ordering::Acquire) <= len as u64 {
                        reads = reads.saturating_sub(1);
                        let at = chance.below(len as u64 - 1) as usize;
                        let n = (chance.below(3 * UNIT as u64) as usize + 1).min(len - at);
                        if !read(media, at, n).is_ok_and(|got| got == script.bytes[at..at + n]) {
                            wrong.lock().push((at, n));
                            break;
                        }
                    }
                    left.fetch_sub(1, Ordering::AcqRel);
                });
            }
            let mut seed = 0;
            while left.load(Ordering::Acquire) > 0 {
                let kept = files(folder.path(), Stay::TurningOver, false);
                freed.fetch_add(evict(kept, len as u64, 7 * UNIT_BYTES, seed).unwrap(), Ordering::AcqRel);
                seed += 7;
                std::thread::sleep(pause);
            }
        });
        assert_eq!(wrong.into_inner(), [], "places and lengths");
    }
}

#[test]
fn a_process_that_was_killed_while_it_evicted_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let script = Arc::new(Script::new(16 * UNIT));
    let media = medium(&script, Some(files(folder.path(), Stay::TurningOver, true)));
    assert_eq!(read(&media, 0, 16 * UNIT).unwrap(), script.bytes);
    let marks = file(&folder.path().join("marks"));
    marks.write_all_at(&1_u64.to_le_bytes(), 24).unwrap();
    let before = script.calls.lock().len();
    assert_eq!(read(&media, 5, 16 * UNIT - 5).unwrap(), script.bytes[5..]);
    assert_eq!(script.calls.lock().len(), before);
}

#[test]
fn without_room_bytes_are_in_memory_and_that_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let script = Arc::new(Script::new(16 * UNIT));
    drop(medium(&script, Some(files(folder.path(), Stay::Kept, true))));
    // Descriptors that cannot be written to, as on a disk that is full.
    let mut kept = files(folder.path(), Stay::Kept, true);
    kept.data = File::open(folder.path().join("data")).unwrap();
    let media = medium(&script, Some(kept));
    for _ in 0..2 {
        assert_eq!(read(&media, 3, 9 * UNIT).unwrap(), &script.bytes[3..3 + 9 * UNIT]);
    }
    assert_eq!(script.warned.load(Ordering::Acquire), 1);
    assert!(media.slice(3, 9).is_none(), "what may be evicted is not lent");
}

#[test]
fn it_is_read_only_and_ends_where_the_object_does() {
    let script = Arc::new(Script::new(UNIT + 1));
    let media = medium(&script, None);
    assert!(media.set_len(1).is_err() && media.write_at(0, &[1]).is_err() && media.sync().is_err());
    assert!(read(&media, UNIT, 2).is_err());
    assert_eq!(read(&media, UNIT, 1).unwrap(), &script.bytes[UNIT..]);
    media.prefetch(&[(0, u64::MAX), (9 * UNIT_BYTES, 10 * UNIT_BYTES)]);
    media.bring(5, u64::MAX).unwrap();
    assert!(media.slice(u64::MAX, 2).is_none() && media.is_resident(UNIT_BYTES + 1, 7));
    assert!(script.calls.lock().iter().all(|&(_, to)| to <= UNIT_BYTES + 1));
}
