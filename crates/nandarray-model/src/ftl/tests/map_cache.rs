//! A map that is cached in part, beside a list in the order of use: every hit, miss, read and program of a map page, in
//! order and at its address.

use std::collections::BTreeMap;

use super::{description, device};
use crate::flash::PageAddress;
use crate::ftl::{MapOp, PageMapped};

/// Number of entries of a map page in these tests.
const ENTRIES: u64 = 8;
/// Largest number of map pages that one request writes.
const WRITES: usize = 4;

/// An operation on a map page, by the page's number.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NaiveOp {
    Read(u64),
    Program(u64),
}

#[derive(Default)]
struct NaiveMap {
    /// Cached entries and whether each was changed, the least recently used first.
    cached: Vec<(u64, bool)>,
    entries_max: usize,
    lpas: u64,
    /// Address of each map page that was ever written.
    places: BTreeMap<u64, PageAddress>,
    expected: Vec<NaiveOp>,
    hits: u64,
    misses: u64,
}

impl NaiveMap {
    fn write_page(&mut self, page: u64) {
        // A map page that was written in the same request has no address yet, but is there.
        let written = self.expected.contains(&NaiveOp::Program(page));
        if self.places.contains_key(&page) || written {
            self.expected.push(NaiveOp::Read(page));
        }
        self.expected.push(NaiveOp::Program(page));
        self.cached.iter_mut().filter(|(lpa, _)| lpa / ENTRIES == page).for_each(|(_, changed)| *changed = false);
    }

    fn look_up(&mut self, lpa: u64, ahead: u64) {
        if let Some(at) = self.cached.iter().position(|&(other, _)| other == lpa) {
            self.hits += 1;
            let entry = self.cached.remove(at);
            self.cached.push(entry);
        } else {
            self.misses += 1;
            let page = lpa / ENTRIES;
            for other in (lpa..=(lpa + ahead).min(self.lpas - 1)).rev() {
                let there = self.cached.iter().any(|&(cached, _)| cached == other);
                if other / ENTRIES == page && !there {
                    self.cached.push((other, false));
                }
            }
            if self.places.contains_key(&page) || self.expected.contains(&NaiveOp::Program(page)) {
                self.expected.push(NaiveOp::Read(page));
            }
        }
        let mut writes = 0;
        while self.cached.len() > self.entries_max {
            match self.cached[0] {
                (_, false) => drop(self.cached.remove(0)),
                (oldest, true) => {
                    self.write_page(oldest / ENTRIES);
                    writes += 1;
                    if writes == WRITES {
                        return;
                    }
                }
            }
        }
    }

    fn change(&mut self, lpa: u64) {
        match self.cached.iter_mut().find(|(other, _)| *other == lpa) {
            Some(entry) => entry.1 = true,
            None => self.cached.push((lpa, true)),
        }
    }

    /// Compares what the device asks of the flash with the expected operations, and records where map pages went.
    fn compare(&mut self, ops: &[MapOp], what: &str) {
        let expected = std::mem::take(&mut self.expected);
        let kinds = |op: &MapOp| matches!(op, MapOp::Read(_));
        let found: Vec<bool> = ops.iter().map(kinds).collect();
        let wanted: Vec<bool> = expected.iter().map(|op| matches!(op, NaiveOp::Read(_))).collect();
        assert_eq!(found, wanted, "{what}: reads and programs of {expected:?}");
        for (op, expected) in ops.iter().zip(expected) {
            match (*op, expected) {
                (MapOp::Read(place), NaiveOp::Read(page)) => {
                    assert_eq!(Some(&place), self.places.get(&page), "{what}: map page {page} is read");
                }
                (MapOp::Program(place), NaiveOp::Program(page)) => {
                    assert!(!self.places.values().any(|&other| other == place), "{what}: {place:?} is written twice");
                    self.places.insert(page, place);
                }
                (found, expected) => panic!("{what}: {found:?} instead of {expected:?}"),
            }
        }
    }
}

fn cached_device(entries: u64) -> PageMapped {
    // Enough blocks that nothing is reclaimed: moves would change entries, too.
    let mut d = description([1, 1, 1, 1], 400, 8, 0.2);
    d.geometry.page_bytes = 64;
    d.ftl.map_entry_bytes = 8;
    d.ftl.map_cache_bytes = Some(entries * 8);
    device(&d)
}

#[test]
fn a_cached_map_does_what_a_list_in_the_order_of_use_says() {
    for (seed, entries) in (0..).zip([0, 1, 2, 3, 5, 8, 16, 17, 40, 200]) {
        let mut ftl = cached_device(entries);
        let lpas = ftl.capacity_pages();
        let mut naive = NaiveMap { entries_max: entries.max(1) as usize, lpas, ..NaiveMap::default() };
        let mut chance = fastrand::Rng::with_seed(seed);
        let mut mapped = std::collections::BTreeSet::new();
        for n in 0..500 {
            let what = format!("{entries} entries, request {n}");
            // Requests stay in a range that is a few times the cache, up to the end of the device.
            let lpa = lpas - 1 - chance.u64(0..(4 * entries + 10).min(lpas));
            let ahead = [0, 1, 3, 20][chance.usize(0..4)];
            let mut ops = Vec::new();
            match chance.u32(0..10) {
                0..4 => {
                    let place = ftl.read(lpa, ahead, &mut ops).unwrap();
                    assert_eq!(place.is_some(), mapped.contains(&lpa), "{what}");
                    naive.look_up(lpa, ahead.into());
                }
                4..8 => {
                    ftl.write(lpa, true, ahead, |_| 0, &mut ops).unwrap();
                    mapped.insert(lpa);
                    naive.look_up(lpa, ahead.into());
                    naive.change(lpa);
                }
                8 => {
                    let pages = chance.u64(0..6).min(lpas - lpa);
                    for one in lpa..lpa + pages {
                        if mapped.remove(&one) {
                            naive.look_up(one, lpa + pages - 1 - one);
                            naive.change(one);
                        }
                    }
                    ftl.trim(lpa, pages, &mut ops).unwrap();
                }
                _ => {
                    let oldest = naive.cached.iter().find(|(_, changed)| *changed).map(|(lpa, _)| lpa / ENTRIES);
                    assert_eq!(ftl.flush_map(&mut ops), oldest.is_some(), "{what}");
                    oldest.into_iter().for_each(|page| naive.write_page(page));
                }
            }
            naive.compare(&ops, &what);
            let report = ftl.report();
            assert_eq!((report.map_hits, report.map_misses), (naive.hits, naive.misses), "{what}");
        }
        ftl.audit();
        // A flush of the whole map leaves nothing changed.
        let mut ops = Vec::new();
        while ftl.flush_map(&mut ops) {}
        assert!(ops.len() <= 2 * lpas.div_ceil(ENTRIES) as usize, "{} operations", ops.len());
    }
}
