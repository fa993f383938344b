//! The write cache sector by sector beside lists in the order of use: what each read finds, which page is drained or
//! dropped next, how many bytes of it are there, and which flushes are complete.

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;

use crate::ftl::cache::{CacheCounts, CacheOrder, Drain, FlushTicket, Hit, Put, WriteCache};

/// A page that is being drained.
#[derive(Clone, Debug, Default)]
struct Leaving {
    sectors: BTreeSet<u32>,
    /// Sectors written since the drain began, with the number of that change.
    again: Option<(u64, BTreeSet<u32>)>,
    trimmed: bool,
    since: u64,
}

/// A dirty or clean page: its number, its sectors, and the number of the change that made it dirty.
type Held = (u64, BTreeSet<u32>, u64);

struct Naive {
    lru: bool,
    capacity: usize,
    page: u32,
    sector: u32,
    /// The page to be drained, or dropped, first comes first.
    dirty: Vec<Held>,
    clean: Vec<Held>,
    leaving: BTreeMap<u64, Leaving>,
    changes: u64,
    counts: CacheCounts,
}

impl Naive {
    /// Returns the sectors that a range covers (`whole`), or touches.
    fn sectors(&self, from: u32, bytes: u32, whole: bool) -> BTreeSet<u32> {
        let end = (from + bytes).min(self.page);
        let inside = |sector: &u32| {
            let (begin, behind) = (sector * self.sector, ((sector + 1) * self.sector).min(self.page));
            if whole { begin >= from && behind <= end } else { begin < end && behind > from }
        };
        (0..self.page.div_ceil(self.sector)).filter(inside).collect()
    }

    fn pages(&self) -> usize {
        self.dirty.len() + self.clean.len() + self.leaving.len()
    }

    fn write(&mut self, lpa: u64, from: u32, bytes: u32) -> Put {
        let sectors = self.sectors(from, bytes, true);
        if let Some(at) = self.dirty.iter().position(|held| held.0 == lpa) {
            self.dirty[at].1.extend(sectors);
            self.counts.rewrites += 1;
            if self.lru {
                let held = self.dirty.remove(at);
                self.dirty.push(held);
            }
        } else if let Some(leaving) = self.leaving.get_mut(&lpa) {
            if std::mem::take(&mut leaving.trimmed) {
                leaving.sectors.clear();
            }
            match &mut leaving.again {
                Some((_, again)) => {
                    again.extend(sectors);
                    self.counts.rewrites += 1;
                }
                again => {
                    self.changes += 1;
                    *again = Some((self.changes, sectors));
                }
            }
        } else {
            let mut there = BTreeSet::new();
            if let Some(at) = self.clean.iter().position(|held| held.0 == lpa) {
                there = self.clean.remove(at).1;
            } else if self.pages() == self.capacity {
                if self.clean.is_empty() {
                    return Put::Full;
                }
                self.clean.remove(0);
            }
            there.extend(sectors);
            self.changes += 1;
            self.dirty.push((lpa, there, self.changes));
        }
        self.counts.writes += 1;
        Put::Taken
    }

    fn held(&self, lpa: u64) -> BTreeSet<u32> {
        let of = |list: &[Held]| list.iter().find(|held| held.0 == lpa).map(|held| held.1.clone());
        if let Some(leaving) = self.leaving.get(&lpa) {
            let again = leaving.again.as_ref().map(|(_, sectors)| sectors.clone()).unwrap_or_default();
            let old = if leaving.trimmed { BTreeSet::new() } else { leaving.sectors.clone() };
            return &old | &again;
        }
        of(&self.dirty).or_else(|| of(&self.clean)).unwrap_or_default()
    }

    fn read(&mut self, lpa: u64, from: u32, bytes: u32) -> Hit {
        let (asked, there) = (self.sectors(from, bytes, false), self.held(lpa));
        let found = asked.intersection(&there).count();
        let hit = if found == 0 {
            Hit::None
        } else if found == asked.len() {
            Hit::All
        } else {
            Hit::Part
        };
        *(if hit == Hit::All { &mut self.counts.read_hits } else { &mut self.counts.read_misses }) += 1;
        if self.lru && !there.is_empty() {
            for list in [&mut self.dirty, &mut self.clean] {
                if let Some(at) = list.iter().position(|held| held.0 == lpa) {
                    let held = list.remove(at);
                    list.push(held);
                }
            }
        }
        hit
    }

    fn drain(&mut self, at: Option<usize>) -> Option<Drain> {
        let (lpa, sectors, since) = self.dirty.remove(at.filter(|&at| at < self.dirty.len())?);
        let bytes = sectors.iter().map(|s| self.sector.min(self.page - s * self.sector)).sum();
        let whole = sectors.len() as u32 == self.page.div_ceil(self.sector);
        self.leaving.insert(lpa, Leaving { sectors, since, ..Leaving::default() });
        Some(Drain { lpa, whole, bytes })
    }

    /// Ends a drain: in flash, or put back.
    fn end(&mut self, lpa: u64, in_flash: bool) {
        let leaving = self.leaving.remove(&lpa).expect("it is being drained");
        self.counts.drained += u64::from(in_flash);
        let (again, since) = match leaving.again {
            Some((change, sectors)) => {
                (Some(sectors), if in_flash || leaving.since == 0 { change } else { leaving.since })
            }
            None => (None, leaving.since),
        };
        match again {
            Some(again) => self.dirty.push((lpa, &leaving.sectors | &again, since)),
            None if leaving.trimmed => {}
            None if in_flash => self.clean.push((lpa, leaving.sectors, since)),
            None => self.dirty.push((lpa, leaving.sectors, since)),
        }
    }

    fn trim(&mut self, lpa: u64) {
        self.dirty.retain(|held| held.0 != lpa);
        self.clean.retain(|held| held.0 != lpa);
        if let Some(leaving) = self.leaving.get_mut(&lpa) {
            *leaving = Leaving { sectors: std::mem::take(&mut leaving.sectors), trimmed: true, ..Leaving::default() };
        }
    }

    /// Whether a change up to this one is not in flash yet.
    fn is_flushed(&self, change: u64) -> bool {
        let dirty = self.dirty.iter().any(|held| held.2 <= change);
        let leaving = self.leaving.values().any(|leaving| {
            let old = !leaving.trimmed && leaving.since != 0 && leaving.since <= change;
            old || leaving.again.as_ref().is_some_and(|(since, _)| *since <= change)
        });
        !dirty && !leaving
    }
}

fn compare(cache: &WriteCache, naive: &Naive, flushes: &[(FlushTicket, u64)], what: &str) {
    assert_eq!(cache.pages(), naive.pages(), "{what}");
    assert_eq!((cache.dirty_pages(), cache.draining_pages()), (naive.dirty.len(), naive.leaving.len()), "{what}");
    assert_eq!(cache.counts(), naive.counts, "{what}");
    for (ticket, change) in flushes {
        assert_eq!(cache.is_flushed(*ticket), naive.is_flushed(*change), "{what}: a flush at change {change}");
    }
    for lpa in 0..12 {
        let wanted = naive.leaving.get(&lpa).is_some_and(|leaving| leaving.since != 0);
        assert_eq!(cache.is_wanted(lpa), wanted, "{what}: page {lpa}");
    }
}

/// Page bytes, and bytes of a sector: 512, or more where a page has more than 128 sectors.
const SHAPES: [(u32, u32); 5] = [(4_096, 512), (16_384, 512), (65_536, 512), (131_072, 1_024), (66_048, 516)];

#[test]
fn the_cache_holds_the_sectors_that_lists_hold() {
    for seed in 0..60 {
        let mut chance = Rng::with_seed(seed);
        let (page, sector) = SHAPES[chance.usize(0..SHAPES.len())];
        let (lru, capacity) = (chance.bool(), chance.usize(1..8));
        let order = if lru { CacheOrder::Lru } else { CacheOrder::Fifo };
        let spare = chance.u64(0..u64::from(page));
        let mut cache = WriteCache::new(capacity as u64 * u64::from(page) + spare, page, order).unwrap();
        assert_eq!(cache.capacity_pages(), capacity);
        let (dirty, clean, leaving) = (Vec::new(), Vec::new(), BTreeMap::new());
        let counts = CacheCounts::default();
        let mut naive = Naive { lru, capacity, page, sector, dirty, clean, leaving, changes: 0, counts };
        let mut flushes = Vec::new();
        for step in 0..400 {
            let what = format!("seed {seed}, {page} B, {order:?}, {capacity} pages, step {step}");
            let lpa = chance.u64(0..12);
            let from = [0, chance.u32(0..page), chance.u32(0..page / sector) * sector][chance.usize(0..3)];
            let bytes = [page, chance.u32(1..page), sector, 1][chance.usize(0..4)].min(page - from);
            match chance.u32(0..12) {
                0..4 => assert_eq!(cache.write(lpa, from, bytes), naive.write(lpa, from, bytes), "{what}"),
                4..6 => assert_eq!(cache.read(lpa, from, bytes), naive.read(lpa, from, bytes), "{what}"),
                6 => assert_eq!(cache.drain(), naive.drain(Some(0)), "{what}"),
                7 => {
                    let drained = cache.drain_for_flush();
                    // The page that became dirty first is next: an older flush waits for no page of a later one.
                    let oldest = (0..naive.dirty.len()).min_by_key(|&i| naive.dirty[i].2);
                    assert_eq!(drained, naive.drain(oldest), "{what}");
                }
                8 | 9 if !naive.leaving.is_empty() => {
                    let lpa = *naive.leaving.keys().nth(chance.usize(0..naive.leaving.len())).unwrap();
                    let in_flash = chance.bool();
                    if in_flash {
                        cache.drained(lpa)
                    } else {
                        cache.put_back(lpa)
                    }
                    naive.end(lpa, in_flash);
                }
                10 => {
                    cache.trim(lpa);
                    naive.trim(lpa);
                }
                _ => flushes.push((cache.flush(), naive.changes)),
            }
            compare(&cache, &naive, &flushes, &what);
        }
        cache.forget_counts();
        assert_eq!(cache.counts(), CacheCounts::default());
    }
}

#[test]
fn what_is_not_being_drained_cannot_have_been() {
    let ends: [fn(&mut WriteCache, u64); 2] = [WriteCache::drained, WriteCache::put_back];
    for end in ends {
        let mut cache = WriteCache::new(8_192, 4_096, CacheOrder::Fifo).unwrap();
        cache.write(7, 0, 4_096);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| end(&mut cache, 7))).unwrap_err();
        assert_eq!(caught.downcast_ref::<String>().unwrap(), "page 7 is not being drained");
    }
    assert!(WriteCache::new(0, 4_096, CacheOrder::Lru).is_none());
    assert!(WriteCache::new(4_095, 4_096, CacheOrder::Lru).is_none());
    assert!(WriteCache::new(1 << 40, 0, CacheOrder::Lru).is_none());
}
