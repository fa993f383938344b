//! Creations that fail: at any operation of the disk, and for options that no store can have.
//!
//! A file that a failed creation made is gone, so that the next one finds the place free whatever its mode; a file that
//! was there before stays, and the next creation takes it. A file of another process is never removed.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use nandarray::{Device, Error, FileAccess, FileMedia, Geometry, Media, Mode, Options, Result};

use crate::common::disk::{Disk, EIO, ENOSPC, Kind};
use crate::common::*;

/// A medium whose operations of one kind fail from a number on, and which then calls `then`.
struct Failing {
    inner: Arc<dyn Media>,
    kind: Kind,
    left: AtomicI64,
    then: Box<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Failing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Failing").field("kind", &self.kind).field("left", &self.left).finish_non_exhaustive()
    }
}

impl Failing {
    fn count(&self, kind: Kind) -> Result<()> {
        if kind != self.kind || self.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            return Ok(());
        }
        (self.then)();
        let source = std::io::Error::from_raw_os_error(ENOSPC);
        Err(Error::Media { op: "write", offset: 7, len: 9, source })
    }
}

impl Media for Failing {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.count(Kind::Length)?;
        self.inner.set_len(bytes)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.count(Kind::Write)?;
        self.inner.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.count(Kind::Sync)?;
        self.inner.sync()
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.inner.slice(offset, len)
    }
}

fn tiny() -> Options {
    options(Geometry::TINY, 6)
}

/// Creates a store on a file whose operations of a kind fail after `left` of them; calls `then` when one fails.
fn fail_at(path: &Path, mode: Mode, (kind, left): (Kind, i64), then: Box<dyn Fn() + Send + Sync>) -> Result<Device> {
    let wrap = |inner| -> Arc<dyn Media> { Arc::new(Failing { inner, kind, left: AtomicI64::new(left), then }) };
    Device::open_file_through(path, mode, &tiny(), wrap)
}

/// Creates an array and closes the store, which shows that it is whole.
fn use_it(device: &Device) {
    let op = Op::bytes("a", &[9]);
    op.run(device).unwrap();
    assert_sound(device, &String::new);
    device.close().unwrap();
}

#[test]
fn a_creation_that_fails_at_any_operation_leaves_no_file_and_keeps_one_that_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.nand");
    let mut failures = 0;
    for mode in [Mode::Append, Mode::Truncate, Mode::Exclusive] {
        for kind in [Kind::Write, Kind::Length, Kind::Sync] {
            for left in 0.. {
                let context = format!("{mode:?}: {kind:?} number {left} fails");
                let done = fail_at(&path, mode, (kind, left), Box::new(|| {}));
                if done.is_ok() {
                    drop(done);
                    fs::remove_file(&path).unwrap();
                    break;
                }
                failures += 1;
                assert!(!path.exists(), "{context}");
                if mode == Mode::Exclusive {
                    continue;
                }
                // A file of the user's, such as a temporary one with a name, is empty at first.
                fs::write(&path, b"").unwrap();
                assert!(fail_at(&path, mode, (kind, left), Box::new(|| {})).is_err(), "{context}");
                let again = Device::open_file(&path, Mode::Append, &tiny());
                use_it(&again.unwrap_or_else(|e| panic!("{e}; {context}")));
                fs::remove_file(&path).unwrap();
            }
        }
    }
    assert!(failures > 12, "{failures} creations failed");
}

#[test]
fn what_a_failed_creation_left_on_a_medium_is_made_by_the_next() {
    for (kind, errno) in [(Kind::Write, EIO), (Kind::Write, ENOSPC), (Kind::Length, ENOSPC), (Kind::Sync, EIO)] {
        for count in [1, u64::MAX] {
            for after in 0.. {
                let context = || format!("{count} of {kind:?} fail by {errno} from number {after}");
                let disk = Arc::new(Disk::default());
                disk.fail(kind, after, count, errno);
                let first = open(disk.clone(), Mode::Append, &tiny());
                let reached = disk.done(kind) > after;
                let failed = first.is_err();
                drop(first);
                disk.heal();
                let again = open(disk.clone(), Mode::Append, &Options { entropy: 77, ..tiny() });
                let again = again.unwrap_or_else(|e| panic!("{e}; {}", context()));
                assert!(failed || reached || names(&again).is_empty(), "{}", context());
                use_it(&again);
                if !reached {
                    break;
                }
            }
        }
    }
}

#[test]
fn options_that_no_store_can_have_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.nand");
    let least = Geometry::TINY.medium_bytes(16);
    let odd = Geometry { page_bytes: 500, ..Geometry::TINY };
    let rows = [
        (
            Options { capacity_bytes: Some(least - 1), exact_geometry: true, ..tiny() },
            format!("a capacity of {} bytes is too small; the least is {least}", least - 1),
        ),
        (
            Options { capacity_bytes: Some(0), exact_geometry: true, ..tiny() },
            format!("a capacity of 0 bytes is too small; the least is {least}"),
        ),
        (
            Options { placement: Some("best".into()), ..tiny() },
            "unknown placement policy \"best\"; there are \"nds\" and \"log\"".to_owned(),
        ),
        (Options { victim: Some("best".into()), ..tiny() }, "unknown GC policy \"best\"; there are".to_owned()),
        (Options { threads: Some(0), ..tiny() }, "threads must be from 1 to 1024, not 0".to_owned()),
        (Options { threads: Some(1025), ..tiny() }, "threads must be from 1 to 1024, not 1025".to_owned()),
        (Options { geometry: odd, ..tiny() }, "500".to_owned()),
    ];
    for mode in [Mode::Append, Mode::Truncate, Mode::Exclusive] {
        for (options, text) in &rows {
            let error = Device::open_file(&path, mode, options).unwrap_err();
            assert_eq!(error.kind(), "invalid", "{error}");
            assert!(error.to_string().contains(text), "{error} does not say {text:?}");
            assert!(!path.exists(), "{mode:?}: {error}");
        }
    }
    let device = Device::open_file(&path, Mode::Exclusive, &Options { capacity_bytes: Some(least), ..tiny() }).unwrap();
    use_it(&device);
}

#[test]
fn a_failed_creation_removes_its_own_file_under_its_lock_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("a.nand"), folder.path().join("b"));
    let mine = path.clone();
    let locked = move || match FileMedia::open(&mine, FileAccess::Write, true) {
        Err(Error::Locked { .. }) => {}
        found => panic!("another writer gets into a creation: {found:?}"),
    };
    assert!(fail_at(&path, Mode::Append, (Kind::Sync, 0), Box::new(locked)).is_err());
    assert!(!path.exists());
    for mode in [Mode::Append, Mode::Exclusive] {
        // Another process moves a file of its own to the same path in the meantime.
        fs::write(&other, b"precious").unwrap();
        let (from, to) = (other.clone(), path.clone());
        let replace = move || fs::rename(&from, &to).unwrap_or(());
        assert!(fail_at(&path, mode, (Kind::Write, 1), Box::new(replace)).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious", "{mode:?}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_link_to_a_file_that_does_not_exist_yet_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (link, to) = (folder.path().join("link"), folder.path().join("to"));
    std::os::unix::fs::symlink(&to, &link).unwrap();
    assert!(matches!(Device::open_file(&link, Mode::ReadWrite, &tiny()), Err(Error::FileMissing { .. })));
    assert!(matches!(Device::open_file(&link, Mode::Exclusive, &tiny()), Err(Error::FileExists { .. })));
    use_it(&Device::open_file(&link, Mode::Append, &tiny()).unwrap());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && to.exists());
    assert_eq!(names(&Device::open_file(&to, Mode::Read, &tiny()).unwrap()), ["a"]);
}

/// Runs random commands, flushes, and returns the bytes that a kill leaves, with what they hold.
fn killed(seed: u64) -> (Vec<u8>, Model) {
    let disk = Arc::new(Disk::default());
    let device = open(disk.clone(), Mode::Append, &options(Geometry::TINY, seed)).unwrap();
    let (mut rng, mut model) = (fastrand::Rng::with_seed(seed), Model::new());
    for _ in 0..20 {
        let op = draw(rng.u64(..), &model, &Taste { reopen: false, ..Taste::SMALL });
        op.run(&device).unwrap();
        op.tell(&mut model);
    }
    Op::Flush.run(&device).unwrap();
    (disk.to_bytes(), model)
}

#[test]
fn an_opening_that_fails_at_any_operation_loses_nothing() {
    for seed in 0..rounds(5, 100) {
        let (bytes, model) = killed(seed);
        for (kind, errno) in [(Kind::Write, EIO), (Kind::Write, ENOSPC), (Kind::Length, ENOSPC), (Kind::Sync, EIO)] {
            for count in [1, u64::MAX] {
                for after in 0.. {
                    let context = || format!("seed {seed}: {count} of {kind:?} fail by {errno} from number {after}");
                    let disk = Arc::new(Disk::with_bytes(bytes.clone()));
                    disk.fail(kind, after, count, errno);
                    let first = open(disk.clone(), Mode::ReadWrite, &options(Geometry::TINY, 41));
                    let reached = disk.done(kind) > after;
                    if let Ok(device) = &first {
                        assert_holds(device, &model, &context);
                    }
                    drop(first);
                    disk.heal();
                    let reader = open(disk.clone(), Mode::Read, &options(Geometry::TINY, 42));
                    assert_holds(&reader.unwrap_or_else(|e| panic!("{e}; {}", context())), &model, &context);
                    let again = open(disk, Mode::ReadWrite, &options(Geometry::TINY, 43));
                    let again = again.unwrap_or_else(|e| panic!("{e}; {}", context()));
                    assert_holds(&again, &model, &context);
                    assert_sound(&again, &context);
                    if !reached {
                        break;
                    }
                }
            }
        }
    }
}
