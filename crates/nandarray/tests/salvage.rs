//! Promise: no damage is mistaken for something else, and none is repaired in silence. Damage to data that was flushed
//! before a kill is an error, not an older state; records that recovery or a salvage drops are counted; a store that
//! was salvaged or repaired opens, and keeps later writes; and an intact store is not called damaged: e.g. one whose
//! creation was interrupted, or one that grows while a reader opens it.
//!
//! The damage here is in the structures that recovery reads: journal, marks, superblocks, the last pages. `damage.rs`
//! damages any place of a store that was closed, `power_loss.rs` has crashes.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::*;
use fastrand::Rng;
use nandarray::file_format::{Mark, SegmentHeader, SegmentKind, read_marks, read_slots};
use nandarray::{CheckReport, Device, Error, FaultMedia, Geometry, Media, MemoryMedia, Mode, Options, Result, Verify};

/// Offsets of the two durable marks.
const MARKS: [usize; 2] = [8192, 12_288];

fn memory(bytes: &[u8]) -> Arc<MemoryMedia> {
    Arc::new(MemoryMedia::with_bytes(bytes.to_vec()))
}

fn tiny() -> Options {
    options(Geometry::TINY, 17)
}

fn plain(name: &str, bytes: u64) -> Op {
    let (block, compression, key, fill) = (None, None, false, 0);
    Op::Create { name: name.to_owned(), shape: vec![bytes], item: 1, block, compression, key, fill }
}

fn fill(name: &str, bytes: u64, salt: u64) -> Op {
    Op::Write { name: name.to_owned(), part: Part::all(&[bytes]), salt }
}

/// Returns the offsets of the journal's records, found by the magic word in their headers.
fn records(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len() - 8).step_by(8).filter(|&at| bytes[at + 4..at + 8] == *b"NREC").collect()
}

/// Leaves a store as a killed process does: without closing it.
fn kill(device: Device) {
    std::mem::forget(device);
}

/// Opens a store as `nandarray check --repair` does, and repairs it; returns the store and the report.
fn repair(media: &Arc<MemoryMedia>) -> Result<(Device, CheckReport)> {
    let device = match open(media.clone(), Mode::ReadWrite, &tiny()) {
        Err(Error::Corrupt(_)) => open(media.clone(), Mode::ReadWrite, &Options { salvage: true, ..tiny() })?,
        opened => opened?,
    };
    let report = check(&device, true)?;
    Ok((device, report))
}

fn assert_opens(bytes: &[u8], context: &dyn Fn() -> String) {
    for mode in [Mode::Read, Mode::ReadWrite] {
        let device = open(memory(bytes), mode, &tiny()).unwrap_or_else(|e| panic!("{mode:?}: {e}; {}", context()));
        device.close().unwrap_or_else(|e| panic!("{mode:?}: {e}; {}", context()));
    }
}

/// Returns the bytes of a store after some random commands, closed or killed.
fn some_store(rng: &mut Rng) -> Vec<u8> {
    let media = memory(&[]);
    let mut device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    let mut model = Model::new();
    for _ in 0..rng.usize(3..40) {
        let op = draw(rng.u64(..), &model, &Taste::SNAPSHOTS);
        op.tell(&mut model);
        if let Op::Reopen = op {
            device.close().unwrap();
            drop(device);
            device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
        } else {
            op.run(&device).unwrap();
        }
    }
    if rng.bool() {
        device.close().unwrap();
    }
    let bytes = media.to_bytes();
    kill(device);
    bytes
}

/// Damages one or two places; returns a description of the damage.
fn harm(bytes: &mut [u8], rng: &mut Rng) -> String {
    let mut told = Vec::new();
    let all = records(bytes);
    for _ in 0..rng.usize(1..3) {
        let at = match rng.u8(..6) {
            0..=2 if !all.is_empty() => all[rng.usize(..all.len())] + rng.usize(..60),
            3 => rng.usize(..2) * 4096 + rng.usize(..184),
            4 => MARKS[rng.usize(..2)] + rng.usize(..64),
            _ => rng.usize(65_536..bytes.len()),
        };
        if rng.u8(..4) == 0 {
            let sector = at / 512 * 512;
            bytes[sector..sector + 512].fill(0);
            told.push(format!("sector at {sector} zeroed"));
        } else {
            let bit = rng.u8(..8);
            bytes[at] ^= 1 << bit;
            told.push(format!("bit {bit} of byte {at} flipped"));
        }
    }
    told.join(", ")
}

#[test]
fn what_was_salvaged_or_repaired_opens_and_keeps_what_is_written() {
    let (mut salvaged, mut lost) = (0, 0);
    for seed in 0..rounds(250, 20_000) {
        let rng = &mut Rng::with_seed(seed);
        let mut bytes = some_store(rng);
        let told = harm(&mut bytes, rng);
        let context = || format!("seed {seed}: {told}");
        let needs_salvage = matches!(open(memory(&bytes), Mode::Read, &tiny()), Err(Error::Corrupt(_)));
        let media = memory(&bytes);
        let (device, report) = match repair(&media) {
            Ok(done) => done,
            Err(Error::Corrupt(_) | Error::NotAStore { .. }) => continue,
            Err(e) => panic!("{e}; {}", context()),
        };
        salvaged += u64::from(needs_salvage);
        lost += u64::from(report.has_lost());
        assert!(needs_salvage || !report.has_lost(), "only a salvage loses records; {}", context());
        // At once, as if the process were killed now; and after new commands.
        assert_opens(&media.to_bytes(), &context);
        let mut device = device;
        for (life, name) in ["new 1", "new 2", "new 3"].into_iter().enumerate() {
            if life > 0 {
                device = open(media.clone(), Mode::ReadWrite, &tiny())
                    .unwrap_or_else(|e| panic!("life {life}: {e}; {}", context()));
            }
            plain(name, 700).run(&device).unwrap();
            fill(name, 700, 5 + life as u64).run(&device).unwrap();
            Op::Flush.run(&device).unwrap();
            assert_opens(&media.to_bytes(), &context);
            device.close().unwrap_or_else(|e| panic!("life {life}: {e}; {}", context()));
        }
        drop(device);
        let device = open(media, Mode::Read, &tiny()).unwrap_or_else(|e| panic!("{e}; {}", context()));
        for (life, name) in ["new 1", "new 2", "new 3"].into_iter().enumerate() {
            let found = read_array(&device, name).unwrap_or_else(|e| panic!("{name}: {e}; {}", context()));
            assert_eq!(found.data, content(5 + life as u64, 700, &[0]), "{name}; {}", context());
        }
        assert!(device.dropped().is_none(), "{:?}; {}", device.dropped(), context());
    }
    eprintln!("{salvaged} were salvaged, {lost} lost records");
    assert!(salvaged > 20 && lost > 20, "{salvaged} were salvaged, {lost} lost records");
}

/// Overwrites and flushes an array six times, and closes the store; returns its bytes and the offsets of its seven
/// journal records.
fn seven_records() -> (Vec<u8>, Vec<usize>) {
    let media = memory(&[]);
    let device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    plain("a", 3000).run(&device).unwrap();
    for salt in 1..=6 {
        fill("a", 3000, salt).run(&device).unwrap();
        Op::Flush.run(&device).unwrap();
    }
    device.close().unwrap();
    let bytes = media.to_bytes();
    let at = records(&bytes);
    assert_eq!(at.len(), 7, "one record made the array, one each wrote it");
    (bytes, at)
}

#[test]
fn what_a_salvage_lost_is_counted_and_is_not_ok() {
    for (damaged, arrays) in [(0, 0), (1, 1), (3, 1), (6, 1)] {
        let (mut bytes, at) = seven_records();
        bytes[at[damaged] + 44] ^= 1;
        let media = memory(&bytes);
        let (device, report) = repair(&media).unwrap();
        let dropped = report.dropped.clone().expect("records were lost");
        assert_eq!((dropped.first, dropped.last, dropped.durable), (damaged as u64 + 1, 7, true));
        assert!(!report.ok() && report.has_lost() && report.arrays == arrays, "{report:?}");
        // The array that the lost records changed: by number if the record that created it is lost, too.
        let named = [vec!["number 1".to_owned()], vec!["a".to_owned()]][arrays as usize].clone();
        assert_eq!(dropped.arrays, if damaged == 6 { vec![] } else { named });
        assert_eq!(dropped.pages_taken > 0, arrays == 1, "{dropped}");
        assert_eq!(dropped.pages_lost > 0, arrays == 0, "{dropped}");
        device.close().unwrap();
        drop(device);
        let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
        let again = check(&device, false).unwrap();
        assert!(again.ok() && again.dropped.is_none() && again.findings.is_empty(), "{again:?}");
        // Neither superblock leads back to the damage.
        device.close().unwrap();
        for slot in 0..2 {
            let mut bytes = media.to_bytes();
            bytes[slot * 4096 + 50] ^= 1;
            assert_opens(&bytes, &|| format!("superblock {slot} damaged behind a salvage of record {damaged}"));
        }
    }
}

/// Writes an array twice, flushes, and kills the process; returns the store's bytes, the offsets of the pages of the
/// second content, and the model.
fn flushed_and_killed() -> (Vec<u8>, Vec<usize>, Model) {
    let media = Arc::new(FaultMedia::default());
    let device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    let mut model = Model::new();
    for op in [plain("a", 3000), fill("a", 3000, 1), Op::Flush, fill("a", 3000, 3), Op::Flush] {
        op.run(&device).unwrap();
        op.tell(&mut model);
    }
    let bytes = media.after_kill();
    let mut pages = Vec::new();
    device.describe("a").unwrap().read().unwrap().index().for_each(&mut |_, map| {
        for run in map.runs() {
            pages.extend((run.unit..run.end()).map(|u| Geometry::TINY.page_offset(run.page_of(u)) as usize));
        }
    });
    kill(device);
    (bytes, pages, model)
}

#[test]
fn a_flipped_bit_in_what_was_flushed_before_a_kill_is_damage() {
    let (bytes, pages, model) = flushed_and_killed();
    let device = open(memory(&bytes), Mode::Read, &tiny()).unwrap();
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
    assert!(device.dropped().is_none() && pages.len() == 6);
    for mode in [Mode::Read, Mode::ReadWrite] {
        for &page in &pages {
            let mut damaged = bytes.clone();
            damaged[page + 100] ^= 1;
            let device = open(memory(&damaged), mode, &tiny()).unwrap();
            assert!(matches!(read_array(&device, "a"), Err(Error::Checksum { .. })), "{mode:?}, page at {page}");
            assert!(!check(&device, false).unwrap().ok(), "{mode:?}, page at {page}");
        }
        // The last record itself.
        let last = *records(&bytes).last().unwrap();
        for byte in last..last + 60 {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 0x10;
            match open(memory(&damaged), mode, &tiny()) {
                Err(Error::Corrupt(what)) => assert!(what.contains("behind record 2: record 3 was durable"), "{what}"),
                other => panic!("{mode:?}, byte {} of the record: {other:?}", byte - last),
            }
        }
    }
}

#[test]
fn a_closed_store_with_a_damaged_superblock_and_page_says_so() {
    let (bytes, pages, _) = flushed_and_killed();
    let media = memory(&bytes);
    open(media.clone(), Mode::ReadWrite, &tiny()).unwrap().close().unwrap();
    let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
    fill("a", 3000, 5).run(&device).unwrap();
    let mut page = 0;
    device.describe("a").unwrap().read().unwrap().index().for_each(&mut |_, map| {
        page = Geometry::TINY.page_offset(map.runs().next().unwrap().ppa) as usize;
    });
    device.close().unwrap();
    assert!(!pages.contains(&page));
    let slot = read_slots(media.as_ref(), "it").unwrap()[0].0;
    let mut damaged = media.to_bytes();
    damaged[slot * 4096 + 50] ^= 1;
    let without_page = damaged.clone();
    damaged[page + 100] ^= 1;
    for mode in [Mode::Read, Mode::ReadWrite] {
        let device = open(memory(&damaged), mode, &tiny()).unwrap();
        assert!(matches!(read_array(&device, "a"), Err(Error::Checksum { .. })), "{mode:?}");
        assert!(!check(&device, false).unwrap().ok(), "{mode:?}");
        let device = open(memory(&without_page), mode, &tiny()).unwrap();
        let report = check(&device, false).unwrap();
        // A reader finds the superblock damaged; a writer has put it right, and says so.
        assert_eq!((report.ok(), report.mended.len()), if mode == Mode::Read { (false, 0) } else { (true, 1) });
    }
}

#[test]
fn without_its_marks_a_store_is_as_good_as_its_records() {
    // Lost, damaged, of another store, or older: the mark is no more than it says, and no damage.
    let (bytes, _, model) = flushed_and_killed();
    let uuid = read_slots(memory(&bytes).as_ref(), "it").unwrap()[0].1.uuid;
    for what in 0..5 {
        let media = memory(&bytes);
        assert_eq!(read_marks(media.as_ref()).unwrap().iter().flatten().map(|m| m.lsn).max(), Some(3));
        for place in 0..2 {
            match what {
                0 => media.write_at(MARKS[place] as u64, &[0; 512]).unwrap(),
                1 => media.write_at(MARKS[place] as u64 + 20, &[0xa5]).unwrap(),
                2 => Mark { uuid: [9; 16], generation: 1, lsn: 900 }.write(media.as_ref(), place).unwrap(),
                // From before the superblock that counts.
                3 => Mark { uuid, generation: 0, lsn: 900 }.write(media.as_ref(), place).unwrap(),
                _ => Mark { uuid, generation: 1, lsn: 2 }.write(media.as_ref(), place).unwrap(),
            }
        }
        for mode in [Mode::Read, Mode::ReadWrite] {
            let device = open(memory(&media.to_bytes()), mode, &tiny()).unwrap();
            assert_holds(&device, &model, &|| format!("marks {what}, {mode:?}"));
            assert_sound(&device, &|| format!("marks {what}, {mode:?}"));
        }
    }
}

#[test]
fn what_a_loss_of_power_took_is_told() {
    let media = Arc::new(FaultMedia::default());
    let device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    for op in [plain("a", 3000), fill("a", 3000, 1), Op::Flush, fill("a", 3000, 3), fill("a", 3000, 5)] {
        op.run(&device).unwrap();
    }
    let mut seen = [0; 3];
    for seed in 0..60 {
        let device = open(memory(&media.after_crash(seed)), Mode::Read, &tiny()).unwrap();
        let dropped = device.dropped().cloned();
        let data = read_array(&device, "a").unwrap().data;
        let state = [1, 3, 5].iter().position(|&salt| data == content(salt, 3000, &[0])).expect("a state that was");
        let report = check(&device, false).unwrap();
        assert!(report.ok() && report.findings.is_empty() && report.dropped == dropped, "seed {seed}: {report:?}");
        // Records 3 and 4 may be dropped, none that was flushed.
        assert!(dropped.is_none() || state < 2, "seed {seed}");
        if let Some(dropped) = dropped {
            assert!(
                !dropped.durable && dropped.first == state as u64 + 3 && dropped.last <= 4,
                "seed {seed}: {dropped}"
            );
            assert!(dropped.arrays.iter().all(|a| a == "a"), "seed {seed}: {dropped}");
            seen[state] += 1;
        }
    }
    assert!(seen[0] > 5 && seen[1] > 0, "{seen:?}");
    kill(device);
}

/// A medium that another process writes, too. Its length is that at the last refresh, as for a file that was mapped,
/// and during read number `at` the other process changes it by calling `event`.
struct Beside {
    shared: Arc<MemoryMedia>,
    seen: AtomicU64,
    reads: AtomicU64,
    at: u64,
    event: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Beside").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Beside {
    fn new(shared: &Arc<MemoryMedia>, at: u64, event: Option<Box<dyn FnOnce() + Send>>) -> Arc<Self> {
        let (seen, reads) = (AtomicU64::new(shared.len()), AtomicU64::new(0));
        Arc::new(Self { shared: shared.clone(), seen, reads, at, event: Mutex::new(event) })
    }
}

impl Media for Beside {
    fn len(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.shared.set_len(bytes)?;
        self.refresh()
    }

    fn refresh(&self) -> Result<()> {
        self.seen.store(self.shared.len(), Ordering::Relaxed);
        Ok(())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        if self.reads.fetch_add(1, Ordering::Relaxed) == self.at {
            if let Some(event) = self.event.lock().unwrap().take() {
                event();
            }
        }
        self.shared.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.shared.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn slice(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }

    fn if_no_readers(&self, _reuse: &mut dyn FnMut() -> Result<()>) -> Result<bool> {
        Ok(false)
    }
}

#[test]
fn a_store_that_grows_while_a_reader_opens_it_is_not_damaged() {
    // The writer works at each read that opening makes, flushes, and makes checkpoints.
    let mut at = 0;
    loop {
        let shared = memory(&[]);
        let writer = Arc::new(open(Beside::new(&shared, u64::MAX, None), Mode::Append, &tiny()).unwrap());
        for op in [plain("a", 3000), fill("a", 3000, 1), Op::Flush, fill("a", 3000, 3)] {
            op.run(&writer).unwrap();
        }
        let before = shared.len();
        let works = writer.clone();
        let event = Box::new(move || {
            for op in [plain("b", 60_000), fill("b", 60_000, 1), fill("a", 3000, 5), Op::Flush, Op::Compact] {
                op.run(&works).unwrap();
            }
            fill("b", 60_000, 3).run(&works).unwrap();
            fill("a", 3000, 7).run(&works).unwrap();
            Op::Flush.run(&works).unwrap();
        });
        let media = Beside::new(&shared, at, Some(event));
        let device =
            open(media.clone(), Mode::Read, &tiny()).unwrap_or_else(|e| panic!("the writer works at read {at}: {e}"));
        let done = media.event.lock().unwrap().is_none();
        if done {
            assert!(shared.len() > before, "the medium grew");
        }
        let data = read_array(&device, "a").unwrap().data;
        assert!([3, 5, 7].iter().any(|&salt| data == content(salt, 3000, &[0])), "the writer works at read {at}");
        if names(&device).len() == 2 {
            read_array(&device, "b").unwrap();
        }
        assert_sound(&device, &|| format!("the writer works at read {at}"));
        drop(device);
        if !done {
            break;
        }
        at += 1;
    }
    assert!(at > 10, "opening makes reads: {at}");
}

#[test]
fn a_store_that_was_cut_short_before_its_first_flush_is_not_damaged() {
    let (mut stores, mut blank) = (0, 0);
    for n in 1.. {
        let media = Arc::new(FaultMedia::default());
        media.crash_at_write(n);
        let made = open(media.clone(), Mode::Append, &tiny());
        if let Ok(device) = made {
            let _ = plain("a", 3000).run(&device).and_then(|()| fill("a", 3000, 1).run(&device));
            kill(device);
        }
        if !media.crashed() {
            break;
        }
        for bytes in (0..20).map(|seed| media.after_crash(n << 8 | seed)).chain([media.after_kill()]) {
            let context = || format!("cut short at write {n}");
            match open(memory(&bytes), Mode::Read, &tiny()) {
                Ok(device) => {
                    assert_sound(&device, &context);
                    assert!(check(&device, false).unwrap().ok(), "{}", context());
                    stores += 1;
                }
                Err(Error::NotAStore { what, .. }) => {
                    assert!(what.contains("empty") || what.contains("blank") || what.contains("too few"), "{what}");
                    blank += 1;
                }
                Err(e) => panic!("{e}; {}", context()),
            }
            let device = open(memory(&bytes), Mode::Append, &tiny()).unwrap_or_else(|e| panic!("{e}; {}", context()));
            assert_sound(&device, &context);
        }
    }
    assert!(stores > 50 && blank > 20, "{stores} stores, {blank} that were none yet");
    // Behind the first flush, a superblock that is gone is damage.
    let media = Arc::new(FaultMedia::default());
    let device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    plain("a", 3000).run(&device).unwrap();
    Op::Flush.run(&device).unwrap();
    let mut bytes = media.after_kill();
    bytes[4096..8192].fill(0);
    let reader = open(memory(&bytes), Mode::Read, &tiny()).unwrap();
    assert!(!check(&reader, false).unwrap().ok());
    kill(device);
}

/// A [`FaultMedia`] and a number of barriers that succeed; the next one fails, as if the process were killed during it.
#[derive(Debug)]
struct Killed(Arc<FaultMedia>, AtomicU64);

impl Media for Killed {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.0.set_len(bytes)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.0.read_at(offset, out)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(offset, bytes)
    }

    fn sync(&self) -> Result<()> {
        if self.1.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Err(Error::Closed("killed".to_owned()));
        }
        self.0.sync()
    }

    fn slice(&self, _offset: u64, _len: usize) -> Option<&[u8]> {
        None
    }
}

#[test]
fn power_lost_after_a_kill_in_the_middle_of_closing_takes_nothing_that_was_flushed() {
    // The process is killed at the last barrier of closing: the superblock says "closed", in the page cache only.
    let media = Arc::new(FaultMedia::default());
    let barriers = Arc::new(Killed(media.clone(), AtomicU64::new(u64::MAX)));
    let size = 4 * Geometry::TINY.segment_data_bytes();
    let device = open(barriers.clone(), Mode::Append, &tiny()).unwrap();
    for op in [plain("a", size), fill("a", size, 1), Op::Flush, fill("a", size, 3), Op::Flush] {
        op.run(&device).unwrap();
    }
    barriers.1.store(1, Ordering::Relaxed);
    assert!(device.close().is_err());
    kill(device);
    assert!(read_slots(media.as_ref(), "it").unwrap()[0].1.clean.is_some(), "closed, as far as the system knows");
    let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
    for salt in [5, 7] {
        fill("a", size, salt).run(&device).unwrap();
    }
    for seed in 0..200 {
        let device = open(memory(&media.after_crash(seed)), Mode::Read, &tiny()).unwrap();
        let data = read_array(&device, "a").unwrap().data;
        let state = [1, 3, 5, 7].iter().position(|&salt| data == content(salt, size as usize, &[0]));
        assert!(state.is_some_and(|s| s >= 1), "seed {seed}: state {state:?}, and the second was flushed");
    }
    kill(device);
}

/// Compacts a store in the middle of a workload, then closes or kills it; returns its bytes and every state of the
/// model. No element is ever written with the fill value.
fn compacted_and_changed(closed: bool) -> (Vec<u8>, Vec<Model>) {
    let media = memory(&[]);
    let device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    let create = |name: &str, shape: Vec<u64>, compression| {
        let (name, block, key, fill) = (name.to_owned(), None, false, 0);
        Op::Create { name, shape, item: 1, block, compression, key, fill }
    };
    let mut ops = vec![plain("a", 5000), plain("b", 40), create("c", vec![0, 700], Some("lz4"))];
    for round in 1..=9 {
        let append = Op::Append { name: "c".to_owned(), axis: 0, more: 2, salt: 2 * round + 1 };
        ops.extend([fill("a", 5000, 2 * round + 1), fill("b", 40, 2 * round + 1), append, Op::Flush]);
        match round {
            3 => ops.push(Op::Compact),
            4 => {
                let (name, size) = ("big".to_owned(), 5 * Geometry::TINY.segment_data_bytes());
                ops.extend([
                    plain(&name, size),
                    fill(&name, size, 3),
                    Op::Delete { name: "b".to_owned() },
                    plain("b", 40),
                ]);
                ops.push(Op::Flush);
            }
            5 => ops.push(Op::Delete { name: "big".to_owned() }),
            _ => {}
        }
    }
    let (mut model, mut states) = (Model::new(), Vec::new());
    for op in ops {
        op.run(&device).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        op.tell(&mut model);
        states.push(model.clone());
    }
    if closed {
        device.close().unwrap();
    }
    let bytes = media.to_bytes();
    kill(device);
    (bytes, states)
}

/// Returns the kind of the segment whose pages contain this byte; `None` if none does, or its header is damaged.
fn segment_kind(bytes: &[u8], at: usize) -> Option<SegmentKind> {
    let geometry = Geometry::TINY;
    let pages = |s: u32| geometry.pages_offset(s)..geometry.pages_offset(s) + geometry.segment_data_bytes();
    let segment =
        (0..geometry.segments_within(bytes.len() as u64) as u32).find(|&s| pages(s).contains(&(at as u64)))?;
    SegmentHeader::parse(&bytes[geometry.header_offset(segment) as usize..][..64])?.kind()
}

/// Panics if a salvaged store has content that was never written; returns the number of arrays that cannot be read
/// whole. `lost` is whether records were lost, so that the store may be in an older state.
fn assert_no_invention(device: &Device, states: &[Model], lost: bool, context: &dyn Fn() -> String) -> u64 {
    let last = &states[states.len() - 1];
    assert!(lost || names(device).iter().eq(last.keys()), "{:?}; {}", names(device), context());
    let mut unreadable = 0;
    for name in names(device) {
        let found = match read_array(device, &name) {
            Ok(found) => found.data,
            Err(Error::Checksum { .. } | Error::Corrupt(_)) => {
                unreadable += 1;
                continue;
            }
            Err(e) => panic!("{name}: {e}; {}", context()),
        };
        if !lost {
            assert!(found == last[&name].data, "{name} is not what it was; {}", context());
        }
        let versions: Vec<_> = states.iter().filter_map(|s| Some(&s.get(&name)?.data)).collect();
        for (i, byte) in found.iter().enumerate() {
            let was = *byte == 0 || versions.iter().any(|v| v.get(i) == Some(byte));
            assert!(was, "byte {i} of {name} is {byte}, which it never was; {}", context());
        }
    }
    unreadable
}

#[test]
fn a_salvage_opens_whichever_bit_is_flipped() {
    // Stores that needed a salvage, of them those that lost nothing, and those with units that cannot be read any more.
    let mut seen = [0; 3];
    for closed in [false, true] {
        let (bytes, states) = compacted_and_changed(closed);
        let used = (0..bytes.len()).filter(|&at| bytes[at / 8 * 8..][..8].iter().any(|&b| b != 0));
        // Mostly metadata: damage of pages is `damage.rs`'.
        for at in used.filter(|&at| at % if segment_kind(&bytes, at) == Some(SegmentKind::Data) { 97 } else { 5 } == 0)
        {
            let context = || format!("closed {closed}, byte {at}");
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let salvage = |verify| Options { salvage: true, verify, ..tiny() };
            let refused = matches!(open(memory(&damaged), Mode::Read, &tiny()), Err(Error::Corrupt(_)))
                || matches!(open(memory(&damaged), Mode::ReadWrite, &tiny()), Err(Error::Corrupt(_)));
            if !refused {
                continue;
            }
            let device = open(memory(&damaged), Mode::Read, &salvage(Verify::Once))
                .unwrap_or_else(|e| panic!("a reader: {e}; {}", context()));
            let lost = check(&device, false).unwrap().has_lost();
            let unreadable = assert_no_invention(&device, &states, lost, &context);
            let media = memory(&damaged);
            let (device, report) = repair(&media).unwrap_or_else(|e| panic!("{e}; {}", context()));
            assert_eq!(report.has_lost(), lost, "{}", context());
            assert!(lost || report.ok(), "{report:?}; {}", context());
            assert_eq!(assert_no_invention(&device, &states, lost, &context), unreadable, "{}", context());
            seen[0] += 1;
            seen[1] += u64::from(!lost);
            seen[2] += u64::from(unreadable > 0);
            // Whatever was given up is an error in every life from then on, not only in those that compare checksums.
            let mut device = device;
            for name in ["new 1", "new 2"] {
                plain(name, 9000).run(&device).unwrap();
                fill(name, 9000, 5).run(&device).unwrap();
                device.close().unwrap();
                device = open(media.clone(), Mode::ReadWrite, &Options { verify: Verify::Never, ..tiny() })
                    .unwrap_or_else(|e| panic!("{e}; {}", context()));
                for old in names(&device).iter().filter(|n| states.iter().any(|s| s.contains_key(*n))) {
                    let _ = read_array(&device, old);
                }
                let again = check(&device, false).unwrap();
                let given_up = again.findings.iter().all(|f| f.message.contains("was lost when"));
                assert!(again.dropped.is_none() && given_up, "{again:?}; {}", context());
                assert_eq!(again.findings.is_empty(), unreadable == 0, "{again:?}; {}", context());
                assert_eq!(read_array(&device, name).unwrap().data, content(5, 9000, &[0]), "{}", context());
            }
            device.close().unwrap();
        }
    }
    eprintln!("{} salvaged, {} without losses, {} with unreadable units", seen[0], seen[1], seen[2]);
    assert!(seen.iter().all(|&n| n > 20), "{seen:?}");
}

#[test]
fn an_index_that_replay_needs_is_rebuilt_by_a_salvage() {
    let (bytes, states) = compacted_and_changed(false);
    let mut rebuilt = 0;
    for at in (0..bytes.len()).filter(|&at| segment_kind(&bytes, at) == Some(SegmentKind::Checkpoint)) {
        if bytes[at] == 0 {
            continue;
        }
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        match open(memory(&damaged), Mode::ReadWrite, &tiny()) {
            Err(Error::Corrupt(what)) if what.contains("the index of array") => {
                assert!(what.contains("`nandarray check --repair` can rebuild it"), "{what}");
            }
            _ => continue,
        }
        let media = memory(&damaged);
        let (device, report) = repair(&media).unwrap_or_else(|e| panic!("byte {at}: {e}"));
        let said = |f: &nandarray::Finding| f.repaired.as_ref().is_some_and(|r| r.contains("rebuilt the index"));
        assert!(report.ok() && report.dropped.is_none() && report.findings.iter().any(said), "byte {at}: {report:?}");
        assert_holds(&device, &states[states.len() - 1], &|| format!("byte {at}"));
        device.close().unwrap();
        assert_sound(&open(media, Mode::Read, &tiny()).unwrap(), &|| format!("byte {at}"));
        rebuilt += 1;
    }
    assert!(rebuilt > 5, "{rebuilt} bytes of indexes");
}

#[test]
fn pages_that_were_cut_off_since_the_state_that_is_salvaged_are_lost() {
    let media = memory(&[]);
    let size = 12 * Geometry::TINY.segment_data_bytes();
    let device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    for op in [plain("a", 3000), fill("a", 3000, 1), plain("big", size), fill("big", size, 3), Op::Flush] {
        op.run(&device).unwrap();
    }
    let long = media.len();
    // Segments are free when a later record tells that the deletion is durable. Writing goes on in front then, and
    // closing cuts off what is behind.
    Op::Delete { name: "big".to_owned() }.run(&device).unwrap();
    Op::Flush.run(&device).unwrap();
    let small = 2 * Geometry::TINY.segment_data_bytes();
    plain("c", small).run(&device).unwrap();
    for salt in [3, 5, 7, 9] {
        fill("c", small, salt).run(&device).unwrap();
        Op::Flush.run(&device).unwrap();
    }
    device.close().unwrap();
    let bytes = media.to_bytes();
    assert!((bytes.len() as u64) < long - size / 4, "closing cut the file: {} of {long}", bytes.len());
    let mut bad = 0;
    for at in records(&bytes) {
        let mut damaged = bytes.clone();
        // The number of its last command.
        damaged[at + 40] ^= 1;
        if open(memory(&damaged), Mode::Read, &tiny()).is_ok() {
            // One of a journal that counts no more.
            continue;
        }
        let media = memory(&damaged);
        let (device, report) = repair(&media).unwrap_or_else(|e| panic!("record at {at}: {e}"));
        assert!(report.has_lost() && !report.ok(), "record at {at}: {report:?}");
        if names(&device).iter().any(|n| n == "big") {
            let lost = |device: &Device| match read_array(device, "big") {
                Err(Error::Checksum { what, .. }) => what.contains("was lost when the damaged store was salvaged"),
                // The record that wrote it is lost, too: only what is left of its pages was put back.
                Ok(_) => false,
                Err(e) => panic!("record at {at}: {e}"),
            };
            let is_lost = lost(&device);
            bad += u64::from(is_lost);
            let never = Options { verify: Verify::Never, ..tiny() };
            let reader = open(memory(&damaged), Mode::Read, &Options { salvage: true, ..never.clone() }).unwrap();
            assert_eq!(lost(&reader), is_lost, "record at {at}");
            device.close().unwrap();
            // The medium grows over the segments that were cut off, then the array is deleted or written again.
            let device = open(media.clone(), Mode::ReadWrite, &never).unwrap();
            for op in [plain("new", size), fill("new", size, 5), Op::Flush] {
                op.run(&device).unwrap();
            }
            assert_eq!(lost(&device), is_lost, "record at {at}");
            kill(device);
            let device = open(media.clone(), Mode::ReadWrite, &never).unwrap();
            assert_eq!(lost(&device), is_lost, "record at {at}");
            fill("big", size, 7).run(&device).unwrap();
            kill(device);
            let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
            assert_eq!(read_array(&device, "big").unwrap().data, content(7, size as usize, &[0]));
            assert_sound(&device, &|| format!("record at {at}"));
            device.close().unwrap();
        }
    }
    assert!(bad > 0, "some state before the damage has the array");
}
