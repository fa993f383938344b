//! Promise: a panic inside the engine ends the command with an error, never the process and never another thread. The
//! store object accepts no more commands, releases its lock when it is closed, and has everything that was flushed when
//! the store is opened again.
//!
//! [`Panicking`] is a medium whose n-th operation panics, for a seeded choice of n over a drawn workload. Tests of
//! their own cover panics in helper threads of a command, in threads that use the store at the same time, during
//! opening, and in a probe. Not here: readahead threads (`media/extents.rs`), workers that run programs
//! (`crates/nandarray-runtime/tests/`), the modelled clock (`nandarray-model`), exceptions in Python.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use common::*;
use fastrand::Rng;
use nandarray::probe::{Conductor, FlightId, Halves, Probe, Purpose};
use nandarray::{Device, Error, Geometry, Media, MemoryMedia, Mode, Options, Result, command};

/// A medium in memory whose operations panic once a countdown is over.
#[derive(Debug)]
struct Panicking {
    below: MemoryMedia,
    /// Number of operations before the first one that panics; all later operations panic, too, until the test sets this
    /// anew.
    left: AtomicI64,
}

const NEVER: i64 = i64::MAX;

impl Panicking {
    fn new(bytes: Vec<u8>, left: i64) -> Arc<Self> {
        Arc::new(Self { below: MemoryMedia::with_bytes(bytes), left: AtomicI64::new(left) })
    }

    fn count(&self) {
        assert!(self.left.fetch_sub(1, Ordering::Relaxed) > 0, "on purpose");
    }
}

impl Media for Panicking {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.count();
        self.below.set_len(bytes)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.count();
        self.below.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.count();
        self.below.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.count();
        self.below.sync()
    }

    fn slice(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }
}

fn is_internal<T>(done: &Result<T>) -> bool {
    matches!(done, Err(Error::Internal(_)))
}

/// Panics unless the store, after a panic of the engine, refuses commands, returns the error on the first close, and
/// nothing on the second.
fn assert_ends(device: &Device, context: &dyn Fn() -> String) {
    assert!(is_internal(&device.execute(command::Flush)), "{}", context());
    assert!(is_internal(&device.execute(command::Check { repair: false, accept_older: false })), "{}", context());
    assert!(is_internal(&device.close()), "{}", context());
    assert!(device.closed() && device.close().is_ok(), "{}", context());
}

/// Runs drawn commands until operation number `at` of the medium panics; returns whether it did.
fn one_panic(seed: u64, at: i64) -> bool {
    let context = || format!("seed {seed}, a panic at operation {at}");
    let media = Panicking::new(vec![], at);
    let options = Options { write_buffer_bytes: 6000, ..options(Geometry::TINY, 1) };
    let mut rng = Rng::with_seed(seed);
    let taste = Taste { reopen: false, ..Taste::SMALL };
    // States since the last flush that returned.
    let mut states = vec![Model::new()];
    let device = match open(media.clone(), Mode::Append, &options) {
        Ok(device) => device,
        done => {
            assert!(is_internal(&done), "{}", context());
            return true;
        }
    };
    let mut panicked = false;
    for _ in 0..40 {
        let mut model = states.last().expect("never empty").clone();
        let op = draw(rng.u64(..), &model, &taste);
        op.tell(&mut model);
        states.push(model);
        match op.run(&device) {
            Ok(()) if op.flushes() => drop(states.drain(..states.len() - 1)),
            Ok(()) => {}
            done => {
                assert!(is_internal(&done), "{done:?}; {}", context());
                panicked = true;
                break;
            }
        }
    }
    if !panicked {
        return false;
    }
    assert_ends(&device, &context);
    drop(device);
    media.left.store(NEVER, Ordering::Relaxed);
    let device = open(media, Mode::ReadWrite, &self::options(Geometry::TINY, 2))
        .unwrap_or_else(|e| panic!("{e}; {}", context()));
    let found = read_all(&device).unwrap_or_else(|e| panic!("{e}; {}", context()));
    assert!(
        states.iter().any(|state| difference(&found, state).is_none()),
        "not a state since the last flush; {}",
        context()
    );
    assert_sound(&device, &context);
    device.close().unwrap();
    true
}

#[test]
fn a_panic_at_any_operation_is_an_error_and_loses_nothing_flushed() {
    within(600, "panics at operations", || {
        for seed in 0..rounds(6, 100) {
            let mut at = 1;
            while one_panic(seed, at) {
                at += 1 + at / 12;
            }
        }
    });
}

#[test]
fn a_panic_in_a_helper_thread_of_a_command_is_the_commands_error() {
    within(600, "a panic in a helper", || {
        let media = Panicking::new(vec![], NEVER);
        let options = Options { threads: Some(3), ..options(Geometry::FILE, 1) };
        let device = open(media.clone(), Mode::Append, &options).unwrap();
        let side = 1500;
        Op::Create {
            name: "a".to_owned(),
            shape: vec![side, side],
            item: 4,
            block: Some(vec![100, 100]),
            compression: Some("lz4"),
            key: false,
            fill: 0,
        }
        .run(&device)
        .unwrap();
        let all = Part::all(&[side, side]);
        let bytes = content(1, (side * side) as usize, &[0; 4]);
        write(&device, "a", &all, &bytes).unwrap();
        device.execute(command::Flush).unwrap();
        // Blocks are read by the caller's thread and the helpers in turn.
        media.left.store(100, Ordering::Relaxed);
        assert!(is_internal(&read(&device, "a", &all)));
        media.left.store(NEVER, Ordering::Relaxed);
        assert_ends(&device, &String::new);
        drop(device);
        let device = open(media, Mode::Read, &options).unwrap();
        assert_eq!(read(&device, "a", &all).unwrap(), bytes);
    });
}

#[test]
fn threads_beside_the_one_that_panics_get_the_error_too() {
    within(600, "a panic beside other threads", || {
        for seed in 0..rounds(10, 200) {
            let media = Panicking::new(vec![], NEVER);
            let device = open(media.clone(), Mode::Append, &options(Geometry::TINY, 1)).unwrap();
            let make = |name: &str| Op::Create {
                name: name.to_owned(),
                shape: vec![40, 40],
                item: 4,
                block: Some(vec![8, 8]),
                compression: None,
                key: false,
                fill: 0,
            };
            make("a").run(&device).unwrap();
            device.execute(command::Flush).unwrap();
            media.left.store(Rng::with_seed(seed).i64(1..400), Ordering::Relaxed);
            let ended = AtomicU32::new(0);
            std::thread::scope(|s| {
                for i in 0..4 {
                    let (device, ended) = (&device, &ended);
                    s.spawn(move || {
                        // All write the same blocks, so that they wait for one another.
                        for turn in 0.. {
                            let part = Part::boxed(&[i, 0], &[30, 40]);
                            let bytes = content(turn + 1, 1200, &[0; 4]);
                            let done = match turn % 5 {
                                4 if turn % 10 == 9 => device.execute(command::Compact).map(drop),
                                4 => device.execute(command::Flush),
                                3 => read(device, "a", &part).map(drop),
                                _ => write(device, "a", &part, &bytes),
                            };
                            if done.is_err() {
                                assert!(is_internal(&done), "seed {seed}: {done:?}");
                                break;
                            }
                        }
                        ended.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
            assert_eq!(ended.into_inner(), 4, "seed {seed}");
            assert_ends(&device, &|| format!("seed {seed}"));
            drop(device);
            media.left.store(NEVER, Ordering::Relaxed);
            let device = open(media, Mode::ReadWrite, &options(Geometry::TINY, 2)).unwrap();
            assert_sound(&device, &|| format!("seed {seed}, opened again"));
        }
    });
}

/// A conductor that panics when a command begins, or when a building block is moved, once its countdown is over.
#[derive(Debug)]
struct Bad {
    at_begin: AtomicI64,
    at_move: AtomicI64,
    over: AtomicU32,
}

impl Conductor for Bad {
    fn run(&self, command: &mut dyn Halves) {
        assert!(self.at_begin.fetch_sub(1, Ordering::Relaxed) > 0, "at the beginning");
        if command.plan().is_none() {
            self.over.fetch_add(1, Ordering::Relaxed);
        }
        command.complete();
    }

    fn submit(&self, mut command: Box<dyn Halves>) -> Option<FlightId> {
        self.run(&mut *command);
        command.deliver();
        None
    }

    fn drive(&self, _flight: Option<FlightId>) -> bool {
        false
    }

    fn cancel(&self, _flight: FlightId) -> bool {
        false
    }
}

impl Probe for Bad {
    fn conductor(&self) -> Option<&dyn Conductor> {
        Some(self)
    }

    fn moved(&self, _runs: u64, _bytes: u64) {
        assert!(self.at_move.fetch_sub(1, Ordering::Relaxed) > 0, "in the middle");
    }

    fn freed(&self, _segment: u32) {}

    fn purpose(&self, purpose: Purpose) -> Purpose {
        purpose
    }
}

#[test]
fn a_probe_is_told_that_a_command_panicked() {
    for (at_begin, at_move, abandoned) in [(2, NEVER, 0), (NEVER, 0, 1)] {
        let bad = Arc::new(Bad { at_begin: at_begin.into(), at_move: at_move.into(), over: AtomicU32::new(0) });
        let options = Options { probe: Some(bad.clone()), ..options(Geometry::TINY, 1) };
        let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &options).unwrap();
        let op = Op::Create {
            name: "a".to_owned(),
            shape: vec![9],
            item: 1,
            block: None,
            compression: None,
            key: false,
            fill: 0,
        };
        let done = op.run(&device).and_then(|()| write(&device, "a", &Part::all(&[9]), &[1; 9]));
        assert!(is_internal(&done), "{done:?}");
        assert_eq!(bad.over.load(Ordering::Relaxed), abandoned);
        assert_ends(&device, &String::new);
    }
}

#[test]
fn what_panics_on_purpose_is_said() {
    let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &options(Geometry::TINY, 1)).unwrap();
    let first = device.panic_on_purpose().unwrap_err().to_string();
    assert!(first.contains("on purpose"), "{first}");
    assert_eq!(device.execute(command::Flush).unwrap_err().to_string(), first, "the first panic is what is told");
}
