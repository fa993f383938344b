//! Promise: a store that is damaged says so. Whatever bytes change, opening and reading give a typed error or the right
//! data: never wrong data, a panic or a hang; `check` names the damage, and repairs what the records allow.
//!
//! Damage is one or two flipped bits of a byte, anywhere in the file of a store that was closed properly, and a file
//! cut short anywhere. Bad input (no store, a newer one, a wrong key), disks that are full and blocks that wear out are
//! here, too.
//!
//! Not promised, so not here: that flipped bits at the end of the journal of a store that was *not* closed are
//! distinguished from the remains of a loss of power; and that wrong bytes with a right CRC-32C are noticed.

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::*;
use fastrand::Rng;
use nandarray::file_format::{Chain, crc32c, journal, read_slots};
use nandarray::{CheckReport, Device, Error, FaultMedia, Geometry, Media, MemoryMedia, Mode, Options, command};

fn memory(bytes: Vec<u8>) -> Arc<MemoryMedia> {
    Arc::new(MemoryMedia::with_bytes(bytes))
}

fn tiny() -> Options {
    options(Geometry::TINY, 3)
}

/// Creates a small store with arrays of every kind and closes it; returns its bytes and the model of its content.
fn store() -> (Vec<u8>, Model) {
    let create = |name: &str, shape: &[u64], item, compression, key| Op::Create {
        name: name.to_owned(),
        shape: shape.to_vec(),
        item,
        block: None,
        compression,
        key,
        fill: 0,
    };
    let write = |name: &str, start: &[u64], count: &[u64], salt| Op::Write {
        name: name.to_owned(),
        part: Part::boxed(start, count),
        salt,
    };
    let ops = [
        create("plain", &[50, 40], 4, None, false),
        write("plain", &[0, 0], &[50, 40], 3),
        create("lz4", &[60, 30], 2, Some("lz4+shuffle"), false),
        write("lz4", &[0, 0], &[60, 30], 5),
        create("secret", &[40, 20], 8, Some("zstd:1"), true),
        write("secret", &[3, 3], &[30, 17], 9),
        Op::Reopen,
        create("scalar", &[], 17, None, false),
        write("scalar", &[], &[], 11),
        Op::Flush,
        Op::Resize { name: "plain".to_owned(), shape: vec![45, 44] },
        write("plain", &[10, 10], &[20, 30], 15),
        Op::Compact, // stands for a kill here: two generations, and a journal behind them
        write("plain", &[40, 1], &[3, 33], 19),
        Op::Attrs { name: "lz4".to_owned(), attrs: "{\"unit\":\"m\"}".to_owned() },
        write("lz4", &[5, 5], &[3, 3], 23),
    ];
    let mut media = memory(vec![]);
    let mut model = Model::new();
    let mut device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    for op in ops {
        if let Op::Reopen | Op::Compact = op {
            // A store that was killed gets a new checkpoint when it is opened; one that was closed goes on.
            if let Op::Compact = op {
                device.execute(command::Flush).unwrap();
                media = memory(media.to_bytes());
            }
            device.close().unwrap();
            drop(device);
            device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
        } else {
            op.run(&device).unwrap();
            op.tell(&mut model);
        }
    }
    device.close().unwrap();
    drop(device);
    (media.to_bytes(), model)
}

/// Returns, by name, the parts of the file on which the results of commands depend.
fn depended_on(bytes: &[u8]) -> BTreeMap<&'static str, Vec<std::ops::Range<u64>>> {
    let media = memory(bytes.to_vec());
    let slots = read_slots(media.as_ref(), "it").unwrap();
    let superblock = &slots[0].1;
    let mut parts: BTreeMap<&'static str, Vec<std::ops::Range<u64>>> = BTreeMap::new();
    parts.insert("superblocks", vec![0..8192]);
    let geometry = superblock.geometry;
    let mut chain = Chain::begin(geometry, superblock.journal);
    let last = superblock.clean.map(|c| c.0);
    let (records, at, _) = journal::read_all(media.as_ref(), &mut chain, superblock.journal_lsn, last).unwrap();
    assert!(!records.is_empty() && chain.segments().len() == 1, "the journal is short, and not empty");
    let start = geometry.pages_offset(superblock.journal.first);
    // Records without the zeroes that fill them up to a multiple of 8, which nothing reads.
    let mut from = start;
    for record in &records {
        parts.entry("journal").or_default().push(from..from + 40 + record.payload.len() as u64);
        from += record.bytes();
    }
    assert_eq!(from, start + at);
    let start = geometry.pages_offset(superblock.checkpoint.first);
    assert!(superblock.checkpoint_bytes < geometry.segment_data_bytes() - 32);
    parts.insert("checkpoint", vec![start..start + superblock.checkpoint_bytes]);
    let device = open(media, Mode::Read, &tiny()).unwrap();
    for name in names(&device) {
        let space = device.describe(&name).unwrap();
        space.read().unwrap().index().for_each(&mut |_, map| {
            for run in map.runs() {
                for unit in run.unit..run.end() {
                    let page = geometry.page_offset(run.page_of(unit));
                    parts.entry("pages").or_default().push(page..page + u64::from(geometry.page_bytes));
                    let oob = geometry.oob_offset(run.page_of(unit));
                    parts.entry("records").or_default().push(oob..oob + 32);
                }
            }
        });
    }
    parts
}

/// Whether an error is of a kind that a damaged store may return.
fn is_typed(e: &Error) -> bool {
    matches!(e, Error::Corrupt(_) | Error::Checksum { .. } | Error::NotAStore { .. })
}

/// The result of examining a damaged store.
struct Outcome {
    /// Arrays that cannot be read, each with the error of reading it.
    lost: BTreeMap<String, Error>,
    report: CheckReport,
}

/// Reads all arrays, and panics unless each has the right content or returns a typed error that the check names.
fn look(device: &Device, model: &Model, context: &dyn Fn() -> String) -> Outcome {
    assert_eq!(names(device), model.keys().cloned().collect::<Vec<_>>(), "names; {}", context());
    let mut lost = BTreeMap::new();
    for (name, expected) in model {
        match read_array(device, name) {
            Ok(found) => {
                let (found, expected) =
                    (Model::from([(name.clone(), found)]), Model::from([(name.clone(), expected.clone())]));
                if let Some(what) = difference(&found, &expected) {
                    panic!("{what}; {}", context());
                }
            }
            Err(e) => {
                assert!(is_typed(&e), "{name:?}: {e:?}; {}", context());
                lost.insert(name.clone(), e);
            }
        }
    }
    let report = check(device, false).unwrap_or_else(|e| panic!("check: {e}; {}", context()));
    for name in lost.keys() {
        let named = report.findings.iter().any(|f| f.array.as_deref() == Some(name));
        assert!(named, "check is silent about {name:?}: {:?}; {}", report.findings, context());
    }
    Outcome { lost, report }
}

/// Opens damaged bytes, reads all arrays and, if there are findings or `thorough`, repairs the store; returns whether
/// the damage was noticed.
fn judge(bytes: Vec<u8>, model: &Model, thorough: bool, context: &dyn Fn() -> String) -> bool {
    let outcome = match open(memory(bytes.clone()), Mode::Read, &tiny()) {
        Ok(device) => look(&device, model, context),
        Err(e) => {
            assert!(is_typed(&e), "{e:?}; {}", context());
            if thorough {
                salvage(bytes, context);
            }
            return true;
        }
    };
    if thorough {
        go_on(bytes.clone(), model, context);
    }
    if thorough || !outcome.report.findings.is_empty() {
        repair(bytes, model, &outcome, context);
    }
    !outcome.report.findings.is_empty()
}

fn repair(bytes: Vec<u8>, model: &Model, before: &Outcome, context: &dyn Fn() -> String) {
    let context = || format!("after a repair; {}", context());
    let media = memory(bytes);
    let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap_or_else(|e| panic!("{e}; {}", context()));
    check(&device, true).unwrap_or_else(|e| panic!("{e}; {}", context()));
    let after = look(&device, model, &context);
    for name in after.lost.keys() {
        assert!(before.lost.contains_key(name), "{name:?} was lost by the repair; {}", context());
    }
    let left = after.report.findings.iter().filter(|f| f.array.is_none()).count();
    assert_eq!(left, 0, "{:?}; {}", after.report.findings, context());
    if after.lost.is_empty() {
        assert!(after.report.findings.is_empty(), "{:?}; {}", after.report.findings, context());
    }
    device.close().unwrap_or_else(|e| panic!("{e}; {}", context()));
    drop(device);
    let again = open(media, Mode::Read, &tiny()).unwrap_or_else(|e| panic!("{e}; {}", context()));
    let last = look(&again, model, &context);
    assert_eq!(last.lost.len(), after.lost.len(), "{}", context());
}

/// Writes to a damaged store, moves its pages and closes it; panics if content becomes wrong.
fn go_on(bytes: Vec<u8>, model: &Model, context: &dyn Fn() -> String) {
    let context = || format!("going on with it; {}", context());
    let media = memory(bytes);
    let mut model = model.clone();
    let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap_or_else(|e| panic!("{e}; {}", context()));
    let ops = [
        Op::Create {
            name: "new".to_owned(),
            shape: vec![70, 70],
            item: 1,
            block: None,
            compression: None,
            key: false,
            fill: 0,
        },
        Op::Write { name: "new".to_owned(), part: Part::all(&[70, 70]), salt: 77 },
        Op::Compact,
        Op::Delete { name: "scalar".to_owned() },
    ];
    for op in ops {
        match op.run(&device) {
            Ok(()) => op.tell(&mut model),
            Err(e) => assert!(is_typed(&e), "{op:?}: {e:?}; {}", context()),
        }
    }
    look(&device, &model, &context);
    match device.close() {
        Ok(()) => {}
        Err(e) => assert!(is_typed(&e), "{e:?}; {}", context()),
    }
    drop(device);
    match open(media, Mode::Read, &tiny()) {
        Ok(device) => drop(look(&device, &model, &context)),
        Err(e) => assert!(is_typed(&e), "{e:?}; {}", context()),
    }
}

/// Opens, for salvage, a store that does not open otherwise, repairs it, and panics unless it opens normally
/// afterwards.
fn salvage(bytes: Vec<u8>, context: &dyn Fn() -> String) {
    let media = memory(bytes);
    let device = match open(media.clone(), Mode::ReadWrite, &Options { salvage: true, ..tiny() }) {
        Ok(device) => device,
        Err(e) => return assert!(is_typed(&e), "{e:?}; {}", context()),
    };
    check(&device, true).unwrap_or_else(|e| panic!("{e}; {}", context()));
    for name in names(&device) {
        if let Err(e) = read_array(&device, &name) {
            assert!(is_typed(&e), "{e:?}; {}", context());
        }
    }
    device.close().unwrap_or_else(|e| panic!("{e}; {}", context()));
    drop(device);
    open(media, Mode::ReadWrite, &tiny()).unwrap_or_else(|e| panic!("a salvaged store opens: {e}; {}", context()));
}

#[test]
fn flipped_bits_give_an_error_or_the_right_data() {
    let (bytes, model) = store();
    let parts = depended_on(&bytes);
    let part_of = |at: u64| parts.iter().find(|(_, ranges)| ranges.iter().any(|r| r.contains(&at))).map(|p| *p.0);
    let deep = rounds(0, 1) == 1;
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    let mut rng = Rng::with_seed(1);
    for at in 0..bytes.len() as u64 {
        let part = part_of(at);
        // Every byte of what is small; of pages, superblocks and unused bytes one now and then.
        let every = match part {
            Some("journal" | "checkpoint" | "records") => 1,
            Some("superblocks") if at % 4096 < 256 => 1,
            Some("superblocks") => 41,
            Some("pages") => 13,
            _ => 97,
        };
        if !deep && at % every != 0 {
            continue;
        }
        let mut damaged = bytes.clone();
        let mask = 1 << rng.u8(..8) | if rng.bool() { 1 << rng.u8(..8) } else { 0 };
        damaged[at as usize] ^= mask;
        let context = || format!("bits {mask:#010b} flipped in byte {at} of {} ({part:?})", bytes.len());
        let noticed = judge(damaged, &model, rng.u8(..16) == 0, &context);
        if let Some(part) = part {
            assert!(noticed, "nobody noticed: {}", context());
            *seen.entry(part).or_default() += 1;
        }
    }
    eprintln!("flips by part: {seen:?}");
    assert!(seen.len() == 5 && seen.values().all(|&n| n > 100), "{seen:?}");
}

#[test]
fn a_file_cut_short_gives_an_error_or_the_right_data() {
    let (bytes, model) = store();
    let segments = Geometry::TINY.segments_within(bytes.len() as u64) as u32;
    let mut lengths: Vec<u64> = (0..=segments).map(|s| Geometry::TINY.medium_bytes(s.into())).collect();
    let mut rng = Rng::with_seed(2);
    lengths.extend([1, 100, 4095, 4096, 8191, 8192, 65_535]);
    lengths.extend((0..rounds(60, 3000)).map(|_| rng.u64(1..bytes.len() as u64)));
    lengths.extend(lengths.clone().iter().flat_map(|l| [l.saturating_sub(1).max(1), l + 1]));
    for length in lengths {
        let length = length.min(bytes.len() as u64);
        let context = || format!("cut to {length} of {} bytes", bytes.len());
        let noticed = judge(bytes[..length as usize].to_vec(), &model, true, &context);
        assert!(noticed || length + Geometry::TINY.segment_bytes() > bytes.len() as u64, "{}", context());
    }
    let mut longer = bytes.clone();
    longer.extend([0xff; 50_000]);
    judge(longer, &model, true, &|| "with junk behind the end".to_owned());
}

#[test]
fn lost_segments_give_an_error_or_the_right_data() {
    let (bytes, model) = store();
    let g = Geometry::TINY;
    let segments = g.segments_within(bytes.len() as u64) as u32;
    let areas = |s: u32| {
        let [pages, records] = [(g.pages_offset(s), g.segment_data_bytes()), (g.header_offset(s), g.records_bytes())];
        [pages, records].map(|(start, bytes)| start as usize..(start + bytes) as usize)
    };
    for a in 0..segments {
        for what in 0..3u8 {
            let mut damaged = bytes.clone();
            for (area, other) in areas(a).into_iter().zip(areas((a + 1) % segments)) {
                match what {
                    0 => damaged[area].fill(0),
                    1 => Rng::with_seed(a.into()).fill(&mut damaged[area]),
                    _ => damaged.copy_within(other, area.start), // a misdirected write
                }
            }
            judge(damaged, &model, true, &|| format!("segment {a} of {segments}, damage {what}"));
        }
    }
}

#[test]
fn a_damaged_page_is_named_with_array_block_and_offset() {
    let (mut bytes, _) = store();
    let device = open(memory(bytes.clone()), Mode::Read, &tiny()).unwrap();
    let mut place = None;
    device.describe("plain").unwrap().read().unwrap().index().for_each(&mut |at, map| {
        let run = map.runs().next().unwrap();
        place = Some((at.to_vec(), run.unit, Geometry::TINY.page_offset(run.ppa)));
    });
    let (block, unit, offset) = place.unwrap();
    bytes[offset as usize + 5] ^= 1;
    let device = open(memory(bytes), Mode::Read, &tiny()).unwrap();
    match read_array(&device, "plain") {
        Err(Error::Checksum { array, block: b, unit: u, offset: o, .. }) => {
            assert_eq!((array.as_str(), b, u, o), ("plain", block, unit, offset));
        }
        other => panic!("a checksum error: {other:?}"),
    }
    // The rest of the array can be read.
    assert!(read(&device, "plain", &Part::boxed(&[0, 0], &[1, 1])).is_ok());
}

#[test]
fn a_full_disk_loses_nothing() {
    for room in [3u32, 4, 6, 9] {
        let media = Arc::new(FaultMedia::default());
        let device = open(media.clone(), Mode::Append, &tiny()).unwrap();
        media.limit(Some(Geometry::TINY.medium_bytes(u64::from(room) + 8) + 100));
        let mut model = Model::new();
        let mut rng = Rng::with_seed(room.into());
        let (mut refused, mut turn) = (0, 0);
        while refused < 8 && turn < 3000 {
            turn += 1;
            let op = draw(
                rng.u64(..),
                &model,
                &Taste { array_bytes: 30_000, arrays: 30, reopen: false, coded: true, snapshots: false },
            );
            // Until it is full nothing is taken away.
            if matches!(op, Op::Delete { .. } | Op::Clear { .. } | Op::Resize { .. } | Op::Rename { .. }) {
                continue;
            }
            let op = match op {
                Op::Write { name, salt, .. } if rng.bool() => {
                    Op::Write { part: Part::all(&model[&name].shape), name, salt }
                }
                op => op,
            };
            match op.run(&device) {
                Ok(()) => op.tell(&mut model),
                Err(e) if is_full(&e) && op.flushes() => panic!("what was accepted finds room: {e}"),
                Err(e) => {
                    assert!(is_full(&e), "{op:?}: {e}");
                    refused += 1;
                }
            }
        }
        assert!(refused == 8, "the disk is full at last");
        let context = || format!("with room for {room} segments");
        Op::Flush.run(&device).unwrap();
        assert_holds(&device, &model, &context);
        assert_sound(&device, &context);
        // Usable after deletes.
        let mut by_size: Vec<String> = model.keys().cloned().collect();
        by_size.sort_by_key(|n| model[n].data.len());
        for name in &by_size[1..] {
            device.execute(command::Delete { name }).unwrap();
            model.remove(name);
        }
        for op in [
            Op::Create {
                name: "again".to_owned(),
                shape: vec![9000],
                item: 1,
                block: None,
                compression: None,
                key: false,
                fill: 0,
            },
            Op::Write { name: "again".to_owned(), part: Part::all(&[9000]), salt: 7 },
        ] {
            op.run(&device).unwrap_or_else(|e| panic!("{op:?}: {e}; {}", context()));
            op.tell(&mut model);
        }
        device.close().unwrap();
        drop(device);
        let device = open(media, Mode::Read, &tiny()).unwrap();
        assert_holds(&device, &model, &context);
    }
}

#[test]
fn blocks_that_wear_out_are_left() {
    for seed in 0..rounds(12, 500) {
        let mut rng = Rng::with_seed(seed);
        let media = Arc::new(FaultMedia::default());
        let capped = rng.bool();
        let options = Options { capacity_bytes: capped.then(|| Geometry::TINY.medium_bytes(60)), ..tiny() };
        let mut device = open(media.clone(), Mode::Append, &options).unwrap();
        let mut model = Model::new();
        let mut worn = 0;
        for step in 0..120 {
            let context = || format!("seed {seed}, step {step}");
            if rng.u8(..12) == 0 && worn < 12 && !media.is_empty() {
                // Anywhere but in the head: a store whose superblocks cannot be written is lost.
                let at = rng.u64(65_536..media.len());
                media.make_bad(at..at + 1);
                worn += 1;
            }
            let op = draw(rng.u64(..), &model, &Taste { array_bytes: 10_000, ..Taste::SNAPSHOTS });
            if let Op::Reopen = op {
                device.close().unwrap_or_else(|e| panic!("{e}; {}", context()));
                drop(device);
                device =
                    open(media.clone(), Mode::ReadWrite, &options).unwrap_or_else(|e| panic!("{e}; {}", context()));
                assert_holds(&device, &model, &context);
                continue;
            }
            match op.run(&device) {
                Ok(()) => op.tell(&mut model),
                Err(e) => assert!(is_full(&e) && capped, "{op:?}: {e}; {}", context()),
            }
        }
        let context = || format!("seed {seed}");
        assert_holds(&device, &model, &context);
        assert_sound(&device, &context);
        device.close().unwrap();
        drop(device);
        let device = open(media, Mode::Read, &options).unwrap();
        assert_holds(&device, &model, &context);
        assert_sound(&device, &context);
    }
}

#[test]
fn the_journals_own_segment_may_wear_out() {
    let media = Arc::new(FaultMedia::default());
    let device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    let mut model = Model::new();
    let mut rng = Rng::with_seed(5);
    for turn in 0..10 {
        for _ in 0..5 {
            let op = draw(rng.u64(..), &model, &Taste { reopen: false, ..Taste::SNAPSHOTS });
            op.run(&device).unwrap_or_else(|e| panic!("turn {turn}, {op:?}: {e}"));
            op.tell(&mut model);
        }
        for (_, superblock) in read_slots(media.as_ref(), "it").unwrap() {
            let (g, first) = (Geometry::TINY, superblock.journal.first);
            media.make_bad(g.pages_offset(first)..g.pages_offset(first) + g.segment_data_bytes());
            media.make_bad(g.header_offset(first)..g.header_offset(first) + g.records_bytes());
        }
    }
    device.close().unwrap();
    drop(device);
    let device = open(media, Mode::ReadWrite, &tiny()).unwrap();
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
    assert!(number(&device, "segments_bad") > 3);
}

#[test]
fn what_is_no_store_is_refused_by_name() {
    let open_bytes = |bytes: Vec<u8>, mode| open(memory(bytes), mode, &tiny());
    let refused = |bytes: Vec<u8>| {
        let e = open_bytes(bytes, Mode::ReadWrite).unwrap_err();
        assert!(matches!(e, Error::NotAStore { .. }) && e.to_string().contains("the test's store"), "{e}");
    };
    refused(vec![]);
    refused(b"PK\x03\x04".to_vec());
    refused(vec![0; 100_000]);
    refused(vec![0x89; 100_000]);
    // A file that is no store is not overwritten.
    let text = b"some text".repeat(30_000);
    assert!(matches!(open_bytes(text, Mode::Append), Err(Error::NotAStore { .. })));
    assert!(open_bytes(vec![], Mode::Append).is_ok());
}

#[test]
fn a_record_that_says_that_later_records_are_durable_is_damage_and_salvaged() {
    let (bytes, model) = store();
    let last = depended_on(&bytes)["journal"].last().unwrap().clone();
    let (start, end) = (last.start as usize, last.end as usize);
    let lsn = u64::from_le_bytes(bytes[start + 8..start + 16].try_into().unwrap());
    // The record itself cannot be durable when it is written; one that claims this names a later one just as well.
    for durable in [lsn + 1, lsn + 1000, u64::MAX] {
        let mut damaged = bytes.clone();
        damaged[start + 24..start + 32].copy_from_slice(&durable.to_le_bytes());
        let crc = crc32c(&damaged[start + 4..end]);
        damaged[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        let error = open(memory(damaged.clone()), Mode::Read, &tiny()).unwrap_err();
        let said = format!("record {durable} is durable");
        assert!(matches!(&error, Error::Corrupt(what) if what.contains(&said)), "{durable}: {error}");
        let options = Options { salvage: true, ..tiny() };
        let device = open(memory(damaged), Mode::ReadWrite, &options).unwrap();
        assert_holds(&device, &model, &|| format!("salvaged from {durable}"));
    }
}

#[test]
fn a_wrong_key_is_an_error_and_never_garbage() {
    let (bytes, model) = store();
    let device = open(memory(bytes), Mode::ReadWrite, &tiny()).unwrap();
    let open_with = |key: Option<&[u8]>| device.execute(command::Open { name: "secret", key });
    let mut wrong = KEY;
    wrong[31] ^= 1;
    for key in [None, Some(&wrong[..])] {
        match open_with(key) {
            Err(Error::WrongKey { name, .. }) => assert_eq!(name, "secret"),
            other => panic!("a wrong key: {other:?}"),
        }
    }
    assert!(matches!(open_with(Some(&[1, 2, 3])), Err(Error::Invalid(_))));
    // Not by its number, either, and not written.
    let id = device.describe("secret").unwrap().id;
    let target =
        || nandarray::Target::Box { start: &[0, 0], step: &[1, 1], count: &[1, 1], strides: &[8, 8], view: None };
    let mut buffer = [0u8; 8];
    // SAFETY: one element of 8 bytes.
    let out = unsafe { nandarray::BufferMut::from_raw(buffer.as_mut_ptr()) };
    assert!(matches!(device.execute(command::Read { space: id, target: target(), out }), Err(Error::WrongKey { .. })));
    // SAFETY: as above.
    let source = unsafe { nandarray::Source::from_raw(buffer.as_ptr()) };
    assert!(matches!(
        device.execute(command::Write { space: id, target: target(), source }),
        Err(Error::WrongKey { .. })
    ));
    assert!(open_with(Some(&KEY)).is_ok());
    assert_holds(&device, &model, &String::new);
}
