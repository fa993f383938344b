//! Promise: a store that is opened again has the same statistics as before: wear, and live pages of segments; and a
//! repair replaces lost content by older content only if that is requested.

mod common;

use std::sync::Arc;

use common::*;
use nandarray::{CheckReport, Device, Error, FaultMedia, Geometry, MemoryMedia, Mode, Options, command};

fn tiny() -> Options {
    options(Geometry::TINY, 11)
}

fn plain(name: &str, side: u64, compression: Option<&'static str>) -> Op {
    // One block of its own shape where a test looks for places in it.
    let (block, key, fill) = ((side == 60).then(|| vec![side, side]), false, 0);
    Op::Create { name: name.to_owned(), shape: vec![side, side], item: 1, block, compression, key, fill }
}

fn fill(name: &str, side: u64, salt: u64) -> Op {
    Op::Write { name: name.to_owned(), part: Part::all(&[side, side]), salt }
}

/// Returns the highest erase count and the sum of all. The lowest is left out, since closing truncates segments that
/// were never opened.
fn wear(device: &Device) -> [u64; 2] {
    ["erases_max", "erases_total"].map(|n| number(device, n))
}

#[test]
fn wear_since_the_last_checkpoint_is_not_forgotten() {
    // Segments as they are, and cut smaller: closing cuts off many that were opened.
    wear_is_kept(true);
    wear_is_kept(false);
}

fn wear_is_kept(exact_geometry: bool) {
    let media = Arc::new(FaultMedia::default());
    // A capacity, so that segments are opened again and again.
    let options = Options { capacity_bytes: Some(Geometry::TINY.medium_bytes(30)), exact_geometry, ..tiny() };
    let device = open(media.clone(), Mode::Append, &options).unwrap();
    plain("a", 150, None).run(&device).unwrap();
    for salt in 0..40 {
        fill("a", 150, 2 + 4 * salt).run(&device).unwrap();
    }
    device.execute(command::Flush).unwrap();
    let before = wear(&device);
    assert!(before[0] >= 3 && before[1] > 40, "{before:?}");
    // Beside the writer, after a kill, after a close; read and written.
    let beside = open(Arc::new(MemoryMedia::with_bytes(media.after_kill())), Mode::Read, &options).unwrap();
    assert_eq!(wear(&beside), before);
    device.close().unwrap(); // which takes no checkpoint of a short journal
    drop(device);
    for mode in [Mode::Read, Mode::ReadWrite] {
        assert_eq!(wear(&open(media.clone(), mode, &options).unwrap()), before);
    }
    // A checkpoint tells of what is cut off, too; so does growing again.
    let device = open(media.clone(), Mode::ReadWrite, &options).unwrap();
    device.execute(command::Compact).unwrap();
    let compacted = wear(&device);
    assert!(compacted[0] >= before[0] && compacted[1] > before[1], "{compacted:?}");
    device.close().unwrap();
    drop(device);
    let device = open(media.clone(), Mode::ReadWrite, &options).unwrap();
    assert_eq!(wear(&device), compacted);
    for salt in 40..50 {
        fill("a", 150, 2 + 4 * salt).run(&device).unwrap();
    }
    device.execute(command::Flush).unwrap();
    let grown = wear(&device);
    assert!(grown[1] > compacted[1] + 10, "{grown:?}");
    device.close().unwrap();
    drop(device);
    assert_eq!(wear(&open(media, Mode::Read, &options).unwrap()), grown);
}

#[test]
fn wear_of_what_was_never_committed_counts() {
    let media = Arc::new(FaultMedia::default());
    let device = open(media.clone(), Mode::Append, &Options { write_buffer_bytes: 0, ..tiny() }).unwrap();
    plain("a", 150, None).run(&device).unwrap();
    device.execute(command::Flush).unwrap();
    let opened = wear(&device)[1];
    media.crash_at_write(media.writes() + 12);
    // The journal's record may be the first write that is lost: that is the next command's error, not this one's.
    let done = fill("a", 150, 2).run(&device);
    assert!(media.crashed(), "{done:?}");
    let taken = wear(&device)[1] - opened;
    assert!(taken > 0);
    let again = open(Arc::new(MemoryMedia::with_bytes(media.after_kill())), Mode::Read, &tiny()).unwrap();
    // The last header may be the write that the crash took.
    assert!(wear(&again)[1] >= opened + taken - 1, "{:?}, {opened} + {taken}", wear(&again));
}

#[test]
fn a_reader_counts_free_rows_as_free() {
    let media = Arc::new(FaultMedia::default());
    let device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    plain("a", 60, None).run(&device).unwrap();
    fill("a", 60, 2).run(&device).unwrap();
    device.execute(command::Flush).unwrap();
    assert_eq!(number(&device, "pages_garbage"), 0);
    let beside = open(Arc::new(MemoryMedia::with_bytes(media.after_kill())), Mode::Read, &tiny()).unwrap();
    assert_eq!(number(&beside, "pages_garbage"), 0, "beside the writer");
    device.close().unwrap();
    drop(device);
    let reader = open(media.clone(), Mode::Read, &tiny()).unwrap();
    assert_eq!(number(&reader, "pages_garbage"), 0, "after a close");
    assert_sound(&reader, &String::new);
    // Garbage is still garbage.
    let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
    for salt in 0..6 {
        Op::Write { name: "a".to_owned(), part: Part::boxed(&[0, 0], &[10, 60]), salt: 6 + 4 * salt }
            .run(&device)
            .unwrap();
        fill("a", 60, 30 + 4 * salt).run(&device).unwrap();
    }
    device.execute(command::Flush).unwrap();
    let garbage = number(&device, "pages_garbage");
    device.close().unwrap();
    drop(device);
    assert_eq!(number(&open(media, Mode::Read, &tiny()).unwrap(), "pages_garbage"), garbage);
}

fn repair(device: &Device, accept_older: bool) -> CheckReport {
    device.execute(command::Check { repair: true, accept_older }).expect("a repair reports")
}

/// Returns the byte offset of the page of an access unit of block (0, 0).
fn page_of(device: &Device, name: &str, unit: u32) -> usize {
    let space = device.describe(name).unwrap();
    let ppa = space.read().unwrap().index().get(&[0, 0]).and_then(|map| map.page_of(unit)).expect("it is mapped");
    Geometry::TINY.page_offset(ppa) as usize
}

/// Writes an array twice, closes the store, and damages the first page of the newer content; returns the store's bytes.
fn overwritten(compression: Option<&'static str>) -> Vec<u8> {
    let media = Arc::new(MemoryMedia::default());
    let device = open(media.clone(), Mode::Append, &tiny()).unwrap();
    plain("a", 60, compression).run(&device).unwrap();
    fill("a", 60, 5).run(&device).unwrap();
    device.execute(command::Flush).unwrap();
    fill("a", 60, 9).run(&device).unwrap();
    let offset = page_of(&device, "a", 0);
    device.close().unwrap();
    drop(device);
    let mut bytes = media.to_bytes();
    bytes[offset + 9] ^= 1;
    bytes
}

/// Returns the content of an array after writes with this salt.
fn content_of(salt: u64) -> Vec<u8> {
    content(salt, 3600, &[0])
}

#[test]
fn older_content_comes_back_only_where_it_is_accepted() {
    for compression in [None, Some("lz4")] {
        let media = Arc::new(MemoryMedia::with_bytes(overwritten(compression)));
        let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
        let report = repair(&device, false);
        assert!(!report.ok(), "{report:?}");
        let Err(Error::Checksum { array, block, offset, .. }) = read_array(&device, "a") else {
            panic!("{compression:?}: the unit was given up")
        };
        assert_eq!((array.as_str(), block, offset), ("a", vec![0, 0], page_of(&device, "a", 0) as u64));
        let report = repair(&device, true);
        assert!(report.ok(), "{report:?}");
        assert!(report.findings.iter().any(|f| f.repaired.as_ref().is_some_and(|r| r.contains("OLDER"))), "{report:?}");
        let found = read_array(&device, "a").unwrap().data;
        match compression {
            // A block that is coded goes back as a whole.
            Some(_) => assert!(found == content_of(5)),
            None => {
                assert!(found[..512] == content_of(5)[..512], "the damaged unit is the older one");
                assert!(found[512..] == content_of(9)[512..], "the others are not");
            }
        }
        device.close().unwrap();
        drop(device);
        assert_sound(&open(media, Mode::Read, &tiny()).unwrap(), &String::new);
    }
    let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &tiny()).unwrap();
    let e = device.execute(command::Check { repair: false, accept_older: true }).unwrap_err();
    assert!(matches!(e, Error::Invalid(_)), "{e}");
}

/// The newest content of a unit is damaged, and the array's index is lost as well: its copy in the checkpoint is
/// damaged, and no earlier generation has it.
#[test]
fn an_index_is_not_rebuilt_from_older_content_unasked() {
    for (compression, accept_older) in [(None, false), (None, true), (Some("lz4"), false), (Some("lz4"), true)] {
        let mut media = Arc::new(MemoryMedia::with_bytes(overwritten(compression)));
        // A store that was killed gets a new checkpoint when it is opened. After two, both generations that are kept
        // know the array by its index only, and nothing tells it again.
        for kill in 0..2 {
            let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
            Op::Attrs { name: "a".to_owned(), attrs: format!("{{\"kills\":{kill}}}") }.run(&device).unwrap();
            device.execute(command::Flush).unwrap();
            media = Arc::new(MemoryMedia::with_bytes(media.to_bytes()));
        }
        let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
        let damaged = page_of(&device, "a", 0);
        device.close().unwrap();
        drop(device);
        let mut bytes = media.to_bytes();
        let slots = nandarray::file_format::read_slots(media.as_ref(), "it").unwrap();
        for (_, superblock) in &slots {
            let first = superblock.checkpoint.first;
            bytes[Geometry::TINY.pages_offset(first) as usize] ^= 0x55;
        }
        let media = Arc::new(MemoryMedia::with_bytes(bytes));
        let device = open(media.clone(), Mode::ReadWrite, &tiny()).unwrap();
        assert!(matches!(read_array(&device, "a"), Err(Error::Corrupt(_))), "the index is damaged");
        let report = repair(&device, accept_older);
        let rebuilt = report.findings.iter().any(|f| f.repaired.as_ref().is_some_and(|r| r.contains("rebuilt")));
        assert!(rebuilt, "{report:?}");
        match (read_array(&device, "a"), accept_older) {
            (Err(Error::Checksum { array, block, offset, .. }), false) => {
                assert_eq!((array.as_str(), block, offset), ("a", vec![0, 0], damaged as u64));
                assert!(!report.ok(), "{report:?}");
            }
            (Ok(found), true) => {
                assert!(found.data[..512] == content_of(5)[..512]);
                assert!(report.ok() && report.findings.iter().any(|f| f.message.contains("newest")), "{report:?}");
            }
            (other, _) => panic!("{compression:?}, accepted {accept_older}: {:?}; {report:?}", other.map(|a| a.shape)),
        }
        device.close().unwrap();
        drop(device);
        let again = open(media, Mode::Read, &tiny()).unwrap();
        assert_eq!(read_array(&again, "a").is_ok(), accept_older);
    }
}
