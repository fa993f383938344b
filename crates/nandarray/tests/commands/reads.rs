//! Reads of the medium that fail or lie, once, at any moment: the command that needed them raises, and changes nothing.
//!
//! A read that fails is that of a disk with a bad sector or a lost connection. A read that lies returns one flipped
//! bit, as a bad cable or memory does, and the medium itself is right: with `Verify::Always` no such bit may reach a
//! caller or the medium, however the bytes were used: returned, merged with a partial write, moved by reclaim or
//! compaction.

use std::sync::Arc;

use fastrand::Rng;
use nandarray::{Device, Error, Geometry, Media, MemoryMedia, Mode, Options, Result, Verify, command};
use parking_lot::Mutex;

use crate::common::disk::EIO;
use crate::common::*;

/// The fault of one read of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The read fails with EIO.
    Fails,
    /// The read returns its bytes with one bit flipped, chosen by this number.
    Lies(u64),
}

#[derive(Debug, Default)]
struct Plan {
    /// Number of reads so far.
    done: u64,
    /// The number of a read, and its fault.
    fault: Option<(u64, Fault)>,
}

/// A medium in memory, one of whose reads has a fault.
#[derive(Debug, Default)]
struct Reading {
    inner: MemoryMedia,
    plan: Mutex<Plan>,
}

impl Reading {
    fn with_bytes(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { inner: MemoryMedia::with_bytes(bytes), plan: Mutex::default() })
    }

    /// Gives the fault to the read after the next `after` ones.
    fn spoil(&self, after: u64, fault: Fault) {
        let plan = &mut *self.plan.lock();
        plan.fault = Some((plan.done + after, fault));
    }

    /// Lets all further reads succeed.
    fn heal(&self) {
        self.plan.lock().fault = None;
    }

    /// Whether the read with the fault has been made.
    fn has_struck(&self) -> bool {
        let plan = self.plan.lock();
        plan.fault.is_some_and(|(at, _)| plan.done > at)
    }

    fn done(&self) -> u64 {
        self.plan.lock().done
    }
}

impl Media for Reading {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.set_len(bytes)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, out)?;
        let plan = &mut *self.plan.lock();
        plan.done += 1;
        match plan.fault.filter(|(at, _)| *at + 1 == plan.done) {
            Some((_, Fault::Fails)) => {
                out.fill(0xee);
                let source = std::io::Error::from_raw_os_error(EIO);
                return Err(Error::Media { op: "read", offset, len: out.len() as u64, source });
            }
            Some((_, Fault::Lies(bit))) if !out.is_empty() => {
                let bit = bit % (8 * out.len() as u64);
                out[bit as usize / 8] ^= 1 << (bit % 8);
            }
            _ => {}
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }

    fn slice(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }
}

/// A small store under a capacity, so that reclaim moves pages, with several sizes of the write buffer.
fn store_options(seed: u64) -> Options {
    Options {
        capacity_bytes: seed.is_multiple_of(2).then(|| Geometry::TINY.medium_bytes(24)),
        exact_geometry: true,
        write_buffer_bytes: [0, 3000, 64 << 20][seed as usize % 3],
        verify: Verify::Always,
        ..options(Geometry::TINY, seed)
    }
}

const TASTE: Taste = Taste { array_bytes: 16_000, reopen: false, ..Taste::SMALL };

fn is_of(fault: Fault, error: &Error) -> bool {
    match (fault, error) {
        (Fault::Fails, Error::Media { op, .. }) => *op == "read",
        (Fault::Lies(_), Error::Checksum { .. } | Error::Corrupt(_) | Error::WrongKey { .. }) => true,
        // A commit that could not be done, or a reclaim, leaves less room.
        (_, error) => is_full(error),
    }
}

/// Runs random commands, and reads everything after each, while one read has a fault. Panics unless each command is
/// done or raises the error of the fault and changes nothing. Returns whether the fault was reached.
fn spoil_one(seed: u64, after: u64, fault: Fault) -> bool {
    let context = || format!("seed {seed}: read {after} {fault:?}");
    let media = Reading::with_bytes(vec![]);
    let device = open(media.clone(), Mode::Append, &store_options(seed)).unwrap();
    let mut rng = Rng::with_seed(seed);
    let mut model = Model::new();
    media.spoil(after, fault);
    for _ in 0..16 {
        let op = draw(rng.u64(..), &model, &TASTE);
        match op.run(&device) {
            Ok(()) => op.tell(&mut model),
            Err(e) => assert!(is_of(fault, &e) && (is_full(&e) || media.has_struck()), "{op:?}: {e:?}; {}", context()),
        }
        match read_all(&device) {
            Ok(found) => assert_eq!(difference(&found, &model), None, "after {op:?}; {}", context()),
            Err(e) => assert!(is_of(fault, &e) && media.has_struck(), "{e:?}; {}", context()),
        }
    }
    if device.close().is_err() {
        assert!(media.has_struck(), "{}", context());
        device.close().unwrap_or_else(|e| panic!("the second time: {e}; {}", context()));
    }
    drop(device);
    let reached = media.has_struck();
    media.heal();
    let again = open(media, Mode::ReadWrite, &store_options(seed)).unwrap_or_else(|e| panic!("{e}; {}", context()));
    assert_holds(&again, &model, &context);
    assert_sound(&again, &context);
    reached
}

#[test]
fn a_command_whose_read_fails_raises_and_changes_nothing_whichever_read_it_is() {
    for seed in 0..rounds(6, 120) {
        let mut after = 0;
        while spoil_one(seed, after, Fault::Fails) {
            after += 1 + after / 16;
        }
        assert!(after > 30, "seed {seed}: {after} reads");
    }
}

#[test]
fn a_bit_that_one_read_flips_is_neither_returned_nor_stored() {
    for seed in 100..100 + rounds(6, 120) {
        let mut after = 0;
        while spoil_one(seed, after, Fault::Lies(seed.wrapping_mul(0x9e37_79b9).wrapping_add(after * 7919))) {
            after += 1 + after / 16;
        }
        assert!(after > 30, "seed {seed}: {after} reads");
    }
}

/// Makes a store and closes it or, if not `closed`, takes its bytes as a kill leaves them, all flushed.
fn stored(seed: u64, closed: bool) -> (Vec<u8>, Model) {
    let media = Reading::with_bytes(vec![]);
    let options = Options { capacity_bytes: None, ..store_options(seed) };
    let device = open(media.clone(), Mode::Append, &options).unwrap();
    let (mut rng, mut model) = (Rng::with_seed(seed), Model::new());
    for _ in 0..25 {
        let op = draw(rng.u64(..), &model, &TASTE);
        op.run(&device).unwrap();
        op.tell(&mut model);
    }
    device.execute(command::Flush).unwrap();
    if closed {
        device.close().unwrap();
    }
    (media.inner.to_bytes(), model)
}

#[test]
fn an_opening_whose_read_fails_can_be_repeated_and_says_which_read() {
    for seed in 0..rounds(6, 100) {
        for (closed, mode) in [(true, Mode::Read), (true, Mode::ReadWrite), (false, Mode::Read), (false, Mode::Append)]
        {
            let (bytes, model) = stored(seed, closed);
            for after in 0.. {
                let context = || format!("seed {seed}, {mode:?}, closed: {closed}: read {after} fails");
                let media = Reading::with_bytes(bytes.clone());
                media.spoil(after, Fault::Fails);
                let done = open(media.clone(), mode, &store_options(1));
                match &done {
                    Err(Error::Media { op: "read", len, .. }) => {
                        assert!(*len > 0 && media.has_struck(), "{}", context())
                    }
                    Err(e) => panic!("{e:?}; {}", context()),
                    // The read may have been one whose result an opening can do without.
                    Ok(_) => {}
                }
                let reached = media.has_struck();
                drop(done);
                media.heal();
                let again =
                    open(media, Mode::ReadWrite, &store_options(2)).unwrap_or_else(|e| panic!("{e}; {}", context()));
                assert_holds(&again, &model, &context);
                assert!(again.dropped().is_none(), "{:?}; {}", again.dropped(), context());
                if !reached {
                    break;
                }
            }
        }
    }
}

/// Opens a closed store again and again; each time another read returns a flipped bit.
#[test]
fn a_bit_that_is_flipped_while_a_closed_store_is_opened_gives_an_error_or_the_right_data() {
    let mut refused = 0;
    for seed in 0..rounds(6, 100) {
        let (bytes, model) = stored(seed, true);
        for after in 0.. {
            let context = || format!("seed {seed}: read {after} lies");
            let media = Reading::with_bytes(bytes.clone());
            media.spoil(after, Fault::Lies(after.wrapping_mul(0x9e37_79b9_7f4a) + seed));
            let found = open(media.clone(), Mode::Read, &store_options(1)).and_then(|device: Device| read_all(&device));
            match found {
                Ok(found) => assert_eq!(difference(&found, &model), None, "{}", context()),
                Err(Error::Corrupt(_) | Error::Checksum { .. } | Error::NotAStore { .. } | Error::Version { .. }) => {
                    refused += 1
                }
                Err(e) => panic!("{e:?}; {}", context()),
            }
            if !media.has_struck() {
                assert!(media.done() > 20, "{}", context());
                break;
            }
        }
    }
    assert!(refused > 20, "{refused} were refused");
}
