//! Promise: flash management never loses, doubles or mixes up a page, whatever is written, moved and reused.
//!
//! Two levels. Below, [`Ftl`] alone against a map from owners to contents, with a reclaim of the test's own, failed
//! commands, late barriers and segments that wear out; after every step the books must balance: each segment counts as
//! many live pages as are mapped to it, no page is mapped twice or lies in a free segment, nothing is staged at rest,
//! every content is right. Above, whole stores under a capacity so small that reclaim runs all the time, for every
//! policy: what was accepted stays readable, a store with room never calls itself full, and one that is full is usable
//! again after a delete. Losing power meanwhile is power_loss.rs'.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::*;
use fastrand::Rng;
use nandarray::file_format::{HEAD_BYTES, Layout, Owner, Ppa, Run, Segment};
use nandarray::internals::{Ftl, SegmentState, placement};
use nandarray::policy::{GcPolicy, WearLevelling};
use nandarray::probe::Counters;
use nandarray::{Error, FaultMedia, Geometry, Media, MemoryMedia, Mode, Options, Verify, command};
use proptest::prelude::*;

const VICTIMS: &[&str] = GcPolicy::NAMES;
const PLACEMENTS: [&str; 2] = ["nds", "log"];

/// A block's number and the number of an access unit in it.
type Unit = (u8, u32);

/// The flash management under test, and a model of its content.
struct Flash {
    ftl: Ftl,
    media: Arc<FaultMedia>,
    lsn: u64,
    seq: u64,
    /// For each unit its page, the sequence number of its command, and the seed of its content.
    map: BTreeMap<Unit, (Ppa, u64, u64)>,
    moved: u64,
}

fn owner((block, unit): Unit) -> Owner {
    Owner { space: 1, unit: unit as u16, key: [block, 0, 0, 0, 0, 0, 0, 0, 0, 0] }
}

fn page(seed: u64, bytes: u32) -> Vec<u8> {
    let mut rng = Rng::with_seed(seed);
    (0..bytes).map(|_| rng.u8(..)).collect()
}

impl Flash {
    fn new(geometry: Geometry, segments: u32, placed: &str, victim: &str) -> Self {
        let media = Arc::new(FaultMedia::with_bytes(vec![0; HEAD_BYTES as usize]));
        let policies = (placement::by_name(placed).unwrap(), GcPolicy::by_name(victim, 10).unwrap());
        let capacity = geometry.medium_bytes(segments.into());
        let counters = Arc::new(Counters::default());
        let ftl = Ftl::new(media.clone(), geometry, counters, Verify::Always, policies, capacity, 5);
        ftl.set_next_lsn(1);
        Self { ftl, media, lsn: 1, seq: 0, map: BTreeMap::new(), moved: 0 }
    }

    /// Appends units with the contents that these seeds determine; `None` if there is no room.
    fn append(&mut self, block: u8, units: &[u32], seeds: &[u64], seq: u64) -> Option<Vec<Run>> {
        let size = self.ftl.geometry().page_bytes;
        let last = *units.last().unwrap() as usize;
        let mut bytes = vec![0; (last + 1) * size as usize];
        for (&unit, &seed) in units.iter().zip(seeds) {
            bytes[unit as usize * size as usize..][..size as usize].copy_from_slice(&page(seed, size));
        }
        let writes: Vec<_> = units.iter().map(|&u| (u, self.map.get(&(block, u)).map(|m| m.0))).collect();
        let kept = self.map.iter().filter(|((b, u), _)| *b == block && !units.contains(u)).map(|(_, m)| m.0);
        match self.ftl.append(owner((block, 0)), seq, &bytes, &writes, &mut kept.collect::<Vec<_>>().into_iter()) {
            Ok(runs) => {
                let got: Vec<u32> = runs.iter().flat_map(|r| r.unit..r.end()).collect();
                assert_eq!(got, units, "each unit once, in order");
                Some(runs)
            }
            Err(Error::Full { .. }) => None,
            Err(e) => panic!("{e}"),
        }
    }

    fn write(&mut self, rng: &mut Rng) {
        let block = rng.u8(..6);
        let mut units: Vec<u32> = (0..rng.u32(1..30)).map(|_| rng.u32(..40)).collect();
        units.sort_unstable();
        units.dedup();
        let Ok(promise) = self.ftl.reserve(units.len() as u64, false) else { return };
        drop(promise);
        self.seq += 1;
        let seeds: Vec<u64> = units.iter().map(|_| rng.u64(..)).collect();
        let Some(runs) = self.append(block, &units, &seeds, self.seq) else { return };
        if rng.u8(..6) == 0 {
            return self.ftl.abandon(&runs); // the command failed
        }
        self.ftl.adopt(&runs);
        for run in &runs {
            for unit in run.unit..run.end() {
                let seed = seeds[units.binary_search(&unit).unwrap()];
                if let Some((old, ..)) = self.map.insert((block, unit), (run.page_of(unit), self.seq, seed)) {
                    self.ftl.release(std::iter::once(Run { unit, count: 1, ppa: old }));
                }
            }
        }
    }

    fn forget(&mut self, rng: &mut Rng) {
        let block = rng.u8(..6);
        let gone: Vec<Unit> = self.map.keys().filter(|(b, _)| *b == block && rng.bool()).copied().collect();
        for unit in gone {
            let (ppa, ..) = self.map.remove(&unit).unwrap();
            self.ftl.release(std::iter::once(Run { unit: unit.1, count: 1, ppa }));
        }
    }

    /// Moves the live pages of the segment that the victim policy chooses.
    fn reclaim(&mut self) {
        let Some(victim) = self.ftl.victim() else { return };
        let state = self.ftl.with_segments(|s| *s.info(victim));
        assert!(state.state == SegmentState::Closed && state.staged == 0, "{state:?}");
        let geometry = self.ftl.geometry();
        let mut groups: BTreeMap<(u8, u64), Vec<(u32, u64)>> = BTreeMap::new();
        for (i, record) in self.ftl.oob_of_segment(victim).unwrap().into_iter().enumerate() {
            let Some(record) = record else { continue };
            let unit = (record.owner().key[0], u32::from(record.owner().unit));
            if let Some(&(ppa, seq, seed)) = self.map.get(&unit).filter(|m| m.0 == geometry.ppa(victim, i as u32)) {
                assert_eq!((record.owner(), record.seq()), (owner(unit), seq), "page {} is another's", ppa.0);
                groups.entry((unit.0, seq)).or_default().push((unit.1, seed));
            }
        }
        assert_eq!(groups.values().map(Vec::len).sum::<usize>(), state.live as usize, "records tell every live page");
        for ((block, seq), mut group) in groups {
            group.sort_unstable();
            let units: Vec<u32> = group.iter().map(|g| g.0).collect();
            let seeds: Vec<u64> = group.iter().map(|g| g.1).collect();
            let Some(runs) = self.append(block, &units, &seeds, seq) else { return };
            self.ftl.adopt(&runs);
            for run in &runs {
                for unit in run.unit..run.end() {
                    let place = self.map.get_mut(&(block, unit)).unwrap();
                    let old = std::mem::replace(&mut place.0, run.page_of(unit));
                    self.ftl.release(std::iter::once(Run { unit, count: 1, ppa: old }));
                    self.moved += 1;
                }
            }
        }
    }

    fn barrier(&mut self) {
        let durable = self.lsn;
        self.lsn += 1;
        self.ftl.set_next_lsn(self.lsn);
        self.ftl.sync().unwrap();
        self.ftl.free_durable(durable).unwrap();
    }

    /// Panics unless the counts of live pages are right and every page has its content.
    fn audit(&self) {
        let geometry = self.ftl.geometry();
        let mut live: BTreeMap<Segment, u32> = BTreeMap::new();
        let mut pages = BTreeSet::new();
        let mut bytes = vec![0; geometry.page_bytes as usize];
        for (&unit, &(ppa, _, seed)) in &self.map {
            assert!(pages.insert(ppa), "page {} is mapped twice", ppa.0);
            *live.entry(geometry.segment_of(ppa)).or_default() += 1;
            let run = Run { unit: unit.1, count: 1, ppa };
            self.ftl.fetch(run, owner(unit), &mut bytes).unwrap_or_else(|e| panic!("unit {unit:?}: {e:?}"));
            assert!(bytes == page(seed, geometry.page_bytes), "unit {unit:?} holds another's bytes");
        }
        self.ftl.with_segments(|s| {
            let mut free = 0;
            for (i, info) in s.infos().iter().enumerate() {
                let mapped = live.get(&(i as Segment)).copied().unwrap_or(0);
                assert_eq!((info.live, info.staged), (mapped, 0), "segment {i}: {info:?}");
                assert!(
                    mapped == 0 || matches!(info.state, SegmentState::Open | SegmentState::Closed | SegmentState::Bad)
                );
                assert_eq!(s.free().contains(&(i as Segment)), info.state == SegmentState::Free);
                free += u64::from(info.state == SegmentState::Free);
            }
            assert_eq!(s.live(), self.map.len() as u64);
            assert!(s.free_pages() >= free * u64::from(geometry.pages_per_segment()));
        });
        let usage = self.ftl.usage();
        assert!(usage.free + usage.pending_free + usage.chain + usage.bad <= usage.segments);
    }
}

fn walk(numbers: &[u64], geometry: Geometry, placed: &str, victim: &str, wear: bool) {
    let mut flash = Flash::new(geometry, 24, placed, victim);
    for &number in numbers {
        let rng = &mut Rng::with_seed(number);
        match rng.u8(..16) {
            0..=8 => flash.write(rng),
            9 => flash.forget(rng),
            10..=11 => flash.reclaim(),
            12 => flash.ftl.close_open(),
            13 if wear => {
                let segment = rng.u32(..flash.ftl.with_segments(|s| s.len()).max(1) as u32);
                let (pages, records) = (geometry.segment_data_bytes(), geometry.records_bytes());
                let at = match rng.u64(..pages + records) {
                    at if at < pages => geometry.pages_offset(segment) + at,
                    at => geometry.header_offset(segment) + at - pages,
                };
                flash.media.make_bad(at..at + 1);
            }
            _ => flash.barrier(),
        }
        flash.audit();
    }
}

fn geometry() -> impl Strategy<Value = Geometry> {
    (0u32..2, 1u32..6, 1u32..4, 1u32..6, any::<bool>()).prop_filter_map(
        "a segment has 4 KiB",
        |(page, channels, banks, pages_per_block, old)| {
            let layout = if old { Layout::Interleaved } else { Layout::Grouped };
            let g = Geometry { page_bytes: 512 << page, channels, banks, pages_per_block, layout };
            g.validate().is_ok().then_some(g)
        },
    )
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn flash_management_keeps_its_books(
        numbers in prop::collection::vec(any::<u64>(), 1..150),
        geometry in geometry(),
        placed in 0usize..2,
        victim in 0..VICTIMS.len(),
        wear: bool,
    ) {
        walk(&numbers, geometry, PLACEMENTS[placed], VICTIMS[victim], wear);
    }
}

fn store(segments: u32, placed: &str, victim: &str) -> Options {
    Options {
        capacity_bytes: Some(Geometry::TINY.medium_bytes(segments.into())),
        placement: Some(placed.to_owned()),
        victim: Some(victim.to_owned()),
        ..options(Geometry::TINY, 1)
    }
}

/// Runs random commands under a capacity, each of which must succeed, or fail because the store is full and then change
/// nothing. Returns how many failed, and how many pages were moved.
fn squeeze(numbers: &[u64], segments: u32, placed: &str, victim: &str) -> (u64, u64) {
    let media = Arc::new(MemoryMedia::default());
    let options = store(segments, placed, victim);
    let mut device = open(media.clone(), Mode::Append, &options).unwrap();
    let taste = Taste { array_bytes: 30_000, arrays: 6, ..Taste::SNAPSHOTS };
    let (mut model, mut refused, mut moved) = (Model::new(), 0, 0);
    for (i, &drawn) in numbers.iter().enumerate() {
        let op = draw(drawn, &model, &taste);
        let context = || format!("step {i}, {op:?}, {placed}, {victim}");
        if let Op::Reopen = op {
            moved += number(&device, "pages_moved");
            device.close().unwrap_or_else(|e| panic!("{e}; {}", context()));
            drop(device);
            device = open(media.clone(), Mode::ReadWrite, &Options { entropy: i as u64, ..options.clone() }).unwrap();
            assert_holds(&device, &model, &context);
            continue;
        }
        match op.run(&device) {
            Ok(()) => op.tell(&mut model),
            Err(e) if is_full(&e) && !matches!(op, Op::Flush | Op::Delete { .. } | Op::DeleteSnapshot(_)) => {
                refused += 1
            }
            Err(e) => panic!("{e}; {}", context()),
        }
        assert!(media.len() <= options.capacity_bytes.unwrap(), "the store keeps to its capacity; {}", context());
        if i % 8 == 0 {
            assert_sound(&device, &context);
            assert_holds(&device, &model, &context);
        }
    }
    assert_holds(&device, &model, &|| "at the end".to_owned());
    (refused, moved + number(&device, "pages_moved"))
}

#[test]
fn a_small_store_is_right_under_every_policy() {
    for placed in PLACEMENTS {
        for &victim in VICTIMS {
            let (mut refused, mut moved) = (0, 0);
            for seed in 0..rounds(4, 200) {
                eprintln!("{placed} {victim} {seed}");
                let mut rng = Rng::with_seed(seed);
                let numbers: Vec<u64> = (0..rng.usize(50..200)).map(|_| rng.u64(..)).collect();
                let (r, m) = squeeze(&numbers, 16 + rng.u32(..8), placed, victim);
                refused += r;
                moved += m;
            }
            assert!(refused > 0 && moved > 0, "{placed} {victim}: {refused} refused, {moved} pages moved");
        }
    }
}

/// A third of a store's capacity is overwritten again and again, in pieces of any size up to all of it at once.
#[test]
fn a_store_with_room_is_never_full() {
    for placed in PLACEMENTS {
        for &victim in VICTIMS {
            let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &store(32, placed, victim)).unwrap();
            let side = (Geometry::TINY.segment_data_bytes() * 8) as f64;
            let side = side.sqrt() as u64;
            let mut model = Model::new();
            let make = Op::Create {
                name: "a".to_owned(),
                shape: vec![side, side],
                item: 1,
                block: None,
                compression: None,
                key: false,
                fill: 0,
            };
            make.run(&device).unwrap();
            make.tell(&mut model);
            let mut rng = Rng::with_seed(3);
            for turn in 0..rounds(150, 5000) {
                let part = draw_part(&mut rng, &[side, side], true);
                let op = Op::Write { name: "a".to_owned(), part, salt: rng.u64(2..) };
                op.run(&device).unwrap_or_else(|e| panic!("turn {turn}, {placed}, {victim}: {e}"));
                op.tell(&mut model);
            }
            assert_holds(&device, &model, &String::new);
            assert_sound(&device, &String::new);
            assert!(number(&device, "pages_moved") > 0, "{placed} {victim}");
        }
    }
}

/// Returns the difference between the highest and the lowest erase count, after a third of a store was written once and
/// a tenth of it 200 times.
fn spread_of_erases(wear_levelling: WearLevelling) -> u64 {
    let options = Options { wear_levelling, ..store(32, "log", "greedy") };
    let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &options).unwrap();
    let mut model = Model::new();
    for (name, segments) in [("cold", 10), ("hot", 3)] {
        let bytes = segments * Geometry::TINY.segment_data_bytes();
        let (name, shape) = (name.to_owned(), vec![bytes]);
        let make = Op::Create { name, shape, item: 1, block: None, compression: None, key: false, fill: 0 };
        make.run(&device).unwrap();
        make.tell(&mut model);
    }
    for turn in 0..200 {
        for (name, bytes) in [("cold", 10), ("hot", 3)].into_iter().filter(|&(name, _)| turn == 0 || name == "hot") {
            let part = Part::all(&[bytes * Geometry::TINY.segment_data_bytes()]);
            let write = Op::Write { name: name.to_owned(), part, salt: turn + 2 };
            write.run(&device).unwrap_or_else(|e| panic!("turn {turn}: {e}"));
            write.tell(&mut model);
        }
    }
    assert_holds(&device, &model, &String::new);
    assert_sound(&device, &String::new);
    number(&device, "erases_max") - number(&device, "erases_min")
}

#[test]
fn wear_levelling_moves_cold_segments_of_a_store() {
    let none = spread_of_erases(WearLevelling::default());
    let levelled = spread_of_erases(WearLevelling { least_worn_first: true, threshold: Some(4) });
    // Cold segments move when reclaim runs, which whole overwrites seldom need.
    assert!(3 * levelled < 2 * none, "erase counts differ by {levelled}, without levelling by {none}");
}

#[test]
fn a_full_store_takes_data_again_after_a_delete() {
    let device = open(Arc::new(MemoryMedia::default()), Mode::Append, &store(20, "nds", "greedy")).unwrap();
    let mut model = Model::new();
    let mut made = 0;
    loop {
        let name = format!("a{made}");
        let make = Op::Create {
            name: name.clone(),
            shape: vec![9000],
            item: 1,
            block: None,
            compression: None,
            key: false,
            fill: 0,
        };
        match make.run(&device) {
            Ok(()) => make.tell(&mut model),
            Err(e) => {
                assert!(is_full(&e), "{e}");
                break;
            }
        }
        let write = Op::Write { name, part: Part::all(&[9000]), salt: made + 2 };
        match write.run(&device) {
            Ok(()) => write.tell(&mut model),
            Err(Error::Full { capacity_bytes, live_bytes, .. }) => {
                assert_eq!(capacity_bytes, Geometry::TINY.medium_bytes(20));
                assert!(
                    live_bytes > capacity_bytes / 4,
                    "{live_bytes} of {capacity_bytes} bytes live when it was full"
                );
                break;
            }
            Err(e) => panic!("{e}"),
        }
        made += 1;
    }
    assert_holds(&device, &model, &|| "when full".to_owned());
    device.execute(command::Flush).unwrap();
    for _ in 0..3 {
        for name in ["a0", "a1"] {
            let clear = Op::Clear { name: name.to_owned(), start: vec![0], count: vec![9000] };
            clear.run(&device).unwrap();
            clear.tell(&mut model);
            let write = Op::Write { name: name.to_owned(), part: Part::all(&[9000]), salt: 50 };
            write.run(&device).unwrap();
            write.tell(&mut model);
        }
    }
    Op::Delete { name: "a0".to_owned() }.run(&device).unwrap();
    model.remove("a0");
    let write = Op::Write { name: "a1".to_owned(), part: Part::boxed(&[100], &[8000]), salt: 99 };
    write.run(&device).unwrap();
    write.tell(&mut model);
    device.execute(command::Flush).unwrap();
    assert_holds(&device, &model, &|| "after a delete".to_owned());
    assert_sound(&device, &String::new);
}
