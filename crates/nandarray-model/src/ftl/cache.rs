//! The write cache: pages in DRAM that the host wrote. Each stays until it is in flash, and then as long as no other
//! page needs its room.
//!
//! The cache is separate from [`PageMapped`](super::PageMapped) and in front of it: the caller offers it writes, looks
//! reads up in it, and drains it. [`WriteCache::drain`] returns a page to be written to flash, and the caller reports
//! with [`WriteCache::drained`] that it was written. For each page the cache records which sectors it holds, so that
//! small writes are merged and a complete page needs no read before its program. It holds no data and knows no time;
//! when to drain (full, idle, flush) is the caller's choice.

use hashlink::LinkedHashMap;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::collections::VecDeque;

/// Order in which pages are drained, and in which clean pages are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOrder {
    /// The least recently used page first; reads and writes are uses.
    Lru,
    /// The page that became dirty (or, if clean, was drained) first.
    #[cfg_attr(not(test), expect(dead_code, reason = "no device is described with it so far"))]
    Fifo,
}

/// Result of offering a write to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The cache took the write.
    Taken,
    /// The cache took nothing, since every page is dirty or being drained: drain a page, then offer the write again.
    Full,
}

/// The part of a read that the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// All of the read.
    All,
    /// Some sectors of the read; the flash has the rest.
    Part,
    /// No sector of the read.
    None,
}

/// A page to be written to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The logical page.
    pub lpa: u64,
    /// Whether the cache holds all its sectors; otherwise the page's content in flash must be read first.
    pub whole: bool,
    /// Bytes of the sectors that the cache holds.
    pub bytes: u32,
}

/// A flush in progress: identifies the pages that were dirty when it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlushTicket(u64);

/// Counts of the cache's use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Number of writes taken.
    pub writes: u64,
    /// Number of accepted writes that went to a dirty page, which saved a program.
    pub rewrites: u64,
    /// Number of reads that the cache answered completely.
    pub read_hits: u64,
    /// Number of reads that the cache answered in part or not at all.
    pub read_misses: u64,
    /// Number of pages drained.
    pub drained: u64,
}

/// State of a cached page.
#[derive(Clone, Copy, Debug)]
struct CachedPage {
    /// Bit mask of the sectors that the cache holds.
    sectors: u128,
    /// Number, counted from 1, of the change by which the page became dirty; 0 for a page that was trimmed while being
    /// drained; meaningless for a clean page.
    since: u64,
    /// For a page that was written again while being drained: the number of that change, as in `since`, and the bit
    /// mask of the sectors written.
    again: Option<(u64, u128)>,
    /// For a page being drained: whether it was trimmed.
    dropped: bool,
}

/// A write cache without its data.
#[derive(Clone, Debug)]
pub struct WriteCache {
    capacity_pages: usize,
    page_bytes: u32,
    sector_bytes: u32,
    whole: u128,
    order: CacheOrder,
    /// Clean pages, the next to be evicted first.
    clean: LinkedHashMap<u64, CachedPage, FxBuildHasher>,
    /// Dirty pages, the next to be drained first.
    dirty: LinkedHashMap<u64, CachedPage, FxBuildHasher>,
    draining: FxHashMap<u64, CachedPage>,
    /// Pairs of a change by which a page became dirty (`since`) and the page, in order. Entries whose change has
    /// reached flash, or was trimmed, are removed when they reach the front.
    unsafe_since: VecDeque<(u64, u64)>,
    clock: u64,
    counts: CacheCounts,
}

/// Maximum number of sectors of a page: one bit each.
const SECTORS_MAX: u32 = u128::BITS;

impl WriteCache {
    /// Makes a cache of this size in bytes; `None` if it is smaller than a page.
    pub fn new(capacity_bytes: u64, page_bytes: u32, order: CacheOrder) -> Option<Self> {
        let capacity_pages = usize::try_from(capacity_bytes.checked_div(u64::from(page_bytes))?).ok()?;
        let sector_bytes = 512.max(page_bytes.div_ceil(SECTORS_MAX));
        (capacity_pages > 0).then(|| Self {
            capacity_pages,
            page_bytes,
            sector_bytes,
            whole: ones(page_bytes.div_ceil(sector_bytes)),
            order,
            clean: LinkedHashMap::default(),
            dirty: LinkedHashMap::default(),
            draining: FxHashMap::default(),
            unsafe_since: VecDeque::new(),
            clock: 0,
            counts: CacheCounts::default(),
        })
    }

    /// Returns the number of pages that the cache can hold.
    pub fn capacity_pages(&self) -> usize {
        self.capacity_pages
    }

    /// Returns the number of pages that the cache holds.
    pub fn pages(&self) -> usize {
        self.clean.len() + self.dirty.len() + self.draining.len()
    }

    /// Returns the number of dirty pages whose draining has not begun.
    pub fn dirty_pages(&self) -> usize {
        self.dirty.len()
    }

    /// Returns the number of pages that are being drained.
    pub fn draining_pages(&self) -> usize {
        self.draining.len()
    }

    /// Returns the counts since the last reset.
    #[cfg(test)]
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// Resets the counts.
    #[cfg(test)]
    pub fn forget_counts(&mut self) {
        self.counts = CacheCounts::default();
    }

    /// Offers a write of `bytes` bytes, from byte `from` of a page on.
    pub fn write(&mut self, lpa: u64, from: u32, bytes: u32) -> Put {
        let sectors = self.covered(from, bytes);
        if let Some(held) = self.dirty.get_mut(&lpa) {
            held.sectors |= sectors;
            self.counts.rewrites += 1;
            if self.order == CacheOrder::Lru {
                self.dirty.to_back(&lpa);
            }
        } else if let Some(held) = self.draining.get_mut(&lpa) {
            if held.dropped {
                (held.dropped, held.sectors) = (false, 0);
            }
            match &mut held.again {
                Some((_, again)) => {
                    *again |= sectors;
                    self.counts.rewrites += 1;
                }
                again => {
                    self.clock += 1;
                    *again = Some((self.clock, sectors));
                    self.unsafe_since.push_back((self.clock, lpa));
                }
            }
        } else {
            let there = match self.clean.remove(&lpa) {
                Some(held) => held.sectors,
                None if !self.make_room() => return Put::Full,
                None => 0,
            };
            self.clock += 1;
            self.unsafe_since.push_back((self.clock, lpa));
            let held = CachedPage { sectors: there | sectors, since: self.clock, again: None, dropped: false };
            assert!(self.dirty.insert(lpa, held).is_none(), "page {lpa} is dirty already");
        }
        assert!(self.pages() <= self.capacity_pages, "{} pages of {}", self.pages(), self.capacity_pages);
        self.counts.writes += 1;
        Put::Taken
    }

    fn make_room(&mut self) -> bool {
        if self.pages() < self.capacity_pages {
            return true;
        }
        let dropped = self.clean.pop_front().is_some();
        assert!(!dropped || self.pages() < self.capacity_pages, "{} pages are too many", self.pages());
        dropped
    }

    /// Looks up `bytes` bytes, from byte `from` of a page on.
    pub fn read(&mut self, lpa: u64, from: u32, bytes: u32) -> Hit {
        let there = if let Some(held) = self.dirty.get(&lpa) {
            held.sectors
        } else if let Some(held) = self.draining.get(&lpa) {
            (if held.dropped { 0 } else { held.sectors }) | held.again.map_or(0, |(_, sectors)| sectors)
        } else {
            self.clean.get(&lpa).map_or(0, |held| held.sectors)
        };
        let asked = self.touched(from, bytes);
        let hit = match asked & there {
            0 => Hit::None,
            found if found == asked => Hit::All,
            _ => Hit::Part,
        };
        if hit == Hit::All {
            self.counts.read_hits += 1;
        } else {
            self.counts.read_misses += 1;
        }
        if self.order == CacheOrder::Lru && there != 0 {
            let _ = self.dirty.to_back(&lpa).or_else(|| self.clean.to_back(&lpa));
        }
        hit
    }

    /// Begins to drain the next page; returns it, or `None` if no dirty page is left that is not being drained.
    pub fn drain(&mut self) -> Option<Drain> {
        let (&lpa, _) = self.dirty.front()?;
        Some(self.drain_page(lpa))
    }

    /// Begins to drain the page that became dirty first, whatever the cache's order is, since a flush waits for it;
    /// returns it as [`Self::drain`].
    pub fn drain_for_flush(&mut self) -> Option<Drain> {
        // A page that was drained or trimmed and then written again has an older entry, which is out of date.
        let is_dirty_since =
            |&&(since, lpa): &&(u64, u64)| self.dirty.get(&lpa).is_some_and(|held| held.since == since);
        let (_, lpa) = *self.unsafe_since.iter().find(is_dirty_since)?;
        Some(self.drain_page(lpa))
    }

    fn drain_page(&mut self, lpa: u64) -> Drain {
        let held = self.dirty.remove(&lpa).expect("a dirty page");
        assert!(held.again.is_none() && !held.dropped, "page {lpa} is drained twice");
        assert!(self.draining.insert(lpa, held).is_none(), "page {lpa} is being drained");
        let bytes = (held.sectors.count_ones() * self.sector_bytes).min(self.page_bytes);
        Drain { lpa, whole: held.sectors == self.whole, bytes }
    }

    /// Whether a page is being drained and was not trimmed since; otherwise it need not be written.
    pub fn is_wanted(&self, lpa: u64) -> bool {
        self.draining.get(&lpa).is_some_and(|held| held.since != 0)
    }

    /// Records that a page is in flash. The page stays cached as clean, or is dirty if it was written again meanwhile.
    ///
    /// # Panics
    /// If the page is not being drained.
    pub fn drained(&mut self, lpa: u64) {
        let held = self.draining.remove(&lpa).unwrap_or_else(|| panic!("page {lpa} is not being drained"));
        self.counts.drained += 1;
        match held.again {
            Some((since, sectors)) => {
                let held = CachedPage { sectors: held.sectors | sectors, since, again: None, dropped: false };
                assert!(self.dirty.insert(lpa, held).is_none(), "page {lpa} is dirty and was being drained");
            }
            None if held.dropped => {}
            None => assert!(self.clean.insert(lpa, held).is_none(), "page {lpa} is clean and was being drained"),
        }
        assert!(self.pages() <= self.capacity_pages, "{} pages of {}", self.pages(), self.capacity_pages);
        self.forget_safe();
    }

    /// Records that a page could not be written, because reclaim must make progress or there is no space: it is dirty
    /// as before.
    ///
    /// # Panics
    /// If the page is not being drained.
    pub fn put_back(&mut self, lpa: u64) {
        let held = self.draining.remove(&lpa).unwrap_or_else(|| panic!("page {lpa} is not being drained"));
        if !held.dropped {
            let (again, sectors) = held.again.unwrap_or((0, 0));
            let since = if held.since == 0 { again } else { held.since };
            let held = CachedPage { sectors: held.sectors | sectors, since, again: None, dropped: false };
            assert!(self.dirty.insert(lpa, held).is_none(), "page {lpa} is dirty and was being drained");
        }
        self.forget_safe();
    }

    /// Discards a page that was trimmed.
    pub fn trim(&mut self, lpa: u64) {
        self.dirty.remove(&lpa);
        self.clean.remove(&lpa);
        if let Some(held) = self.draining.get_mut(&lpa) {
            (held.dropped, held.again, held.since) = (true, None, 0);
        }
        debug_assert!(!self.is_wanted(lpa) && self.dirty.get(&lpa).is_none(), "page {lpa} was trimmed");
        self.forget_safe();
    }

    /// Begins a flush: it is complete once the pages that are now dirty or being drained are in flash.
    pub fn flush(&self) -> FlushTicket {
        FlushTicket(self.clock)
    }

    /// Whether the pages that a flush waits for are in flash.
    pub fn is_flushed(&self, ticket: FlushTicket) -> bool {
        assert!(ticket.0 <= self.clock, "a flush of another cache");
        self.unsafe_since.front().is_none_or(|&(since, _)| since > ticket.0)
    }

    /// Removes entries from the front of `unsafe_since` whose change is in flash or was trimmed.
    fn forget_safe(&mut self) {
        while let Some(&(since, lpa)) = self.unsafe_since.front() {
            let holds =
                |held: &CachedPage| (!held.dropped && held.since == since) || held.again.is_some_and(|a| a.0 == since);
            if self.dirty.get(&lpa).is_some_and(holds) || self.draining.get(&lpa).is_some_and(holds) {
                return;
            }
            self.unsafe_since.pop_front();
        }
    }

    /// Returns the bit mask of the sectors that a range covers completely.
    fn covered(&self, from: u32, bytes: u32) -> u128 {
        let end = from.saturating_add(bytes).min(self.page_bytes);
        let first = from.div_ceil(self.sector_bytes);
        let behind = if end == self.page_bytes { end.div_ceil(self.sector_bytes) } else { end / self.sector_bytes };
        if first >= behind { 0 } else { ones(behind) & !ones(first) }
    }

    /// Returns the bit mask of the sectors that a range touches.
    fn touched(&self, from: u32, bytes: u32) -> u128 {
        let end = from.saturating_add(bytes.max(1)).min(self.page_bytes);
        ones(end.div_ceil(self.sector_bytes)) & !ones((from / self.sector_bytes).min(SECTORS_MAX))
    }
}

/// Returns a mask of the lowest n bits.
fn ones(n: u32) -> u128 {
    if n >= SECTORS_MAX { u128::MAX } else { (1 << n) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PAGE: u32 = 4_096;

    #[test]
    fn small_writes_gather_and_the_oldest_is_drained() {
        let mut cache = WriteCache::new(3 * u64::from(PAGE), PAGE, CacheOrder::Lru).unwrap();
        assert!(WriteCache::new(4_095, PAGE, CacheOrder::Lru).is_none());
        for part in 0..8 {
            assert_eq!(cache.write(1, part * 512, 512), Put::Taken);
        }
        cache.write(2, 0, 512);
        cache.write(3, 0, PAGE);
        assert_eq!(cache.write(4, 0, PAGE), Put::Full);
        assert_eq!(cache.read(2, 0, 512), Hit::All);
        assert_eq!(cache.read(2, 0, PAGE), Hit::Part);
        assert_eq!(cache.read(9, 0, PAGE), Hit::None);
        assert_eq!((cache.counts.read_hits, cache.counts.read_misses), (1, 2), "a page in part is a miss");
        let flush = cache.flush();
        assert_eq!(cache.drain(), Some(Drain { lpa: 1, whole: true, bytes: PAGE }));
        assert_eq!(cache.drain(), Some(Drain { lpa: 3, whole: true, bytes: PAGE }));
        assert_eq!(cache.drain(), Some(Drain { lpa: 2, whole: false, bytes: 512 }));
        assert_eq!(cache.drain(), None);
        cache.drained(1);
        cache.drained(2);
        assert!(!cache.is_flushed(flush));
        cache.write(3, 0, 512);
        cache.drained(3);
        assert!(cache.is_flushed(flush));
        assert!(!cache.is_flushed(cache.flush()));
        assert_eq!(cache.write(4, 0, PAGE), Put::Taken);
        assert_eq!((cache.pages(), cache.dirty_pages()), (3, 2));
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Is {
        Dirty,
        Draining,
        DrainingAgain,
        Dropped,
        Clean,
    }

    /// Ends the draining of a page, if it is being drained, as written to flash or as failed.
    fn end_drain(cache: &mut WriteCache, model: &mut BTreeMap<u64, Is>, lpa: u64, in_flash: bool) {
        let next = match model.get(&lpa) {
            Some(Is::Draining) if in_flash => Some(Is::Clean),
            Some(Is::Draining | Is::DrainingAgain) => Some(Is::Dirty),
            Some(Is::Dropped) => None,
            _ => return,
        };
        if in_flash {
            cache.drained(lpa);
        } else {
            cache.put_back(lpa);
        }
        match next {
            Some(is) => model.insert(lpa, is),
            None => model.remove(&lpa),
        };
    }

    proptest! {
        /// Compares the cache with a table of every page's state: no dirty page is forgotten, the capacity is never
        /// exceeded, and a flush is complete when all that was written before it is in flash.
        #[test]
        fn behaves_like_a_table(
            lru in any::<bool>(),
            steps in prop::collection::vec((0u64..10, 0u8..7), 0..300)
        ) {
            let order = if lru { CacheOrder::Lru } else { CacheOrder::Fifo };
            let mut cache = WriteCache::new(5 * u64::from(PAGE), PAGE, order).unwrap();
            let mut model: BTreeMap<u64, Is> = BTreeMap::new();
            // Pages that each flush waits for.
            let mut flushes: Vec<(FlushTicket, Vec<u64>)> = Vec::new();
            for (lpa, what) in steps {
                let is = model.get(&lpa).copied();
                match what {
                    0 | 1 => {
                        let clean = model.values().any(|&i| i == Is::Clean);
                        let room = is.is_some() || model.len() < 5 || clean;
                        let taken = cache.write(lpa, 0, PAGE) == Put::Taken;
                        prop_assert_eq!(taken, room);
                        if taken {
                            if is.is_none() && model.len() == 5 {
                                let dropped = |l: u64| cache.clean.get(&l).is_none();
                                let gone = *model.iter().find(|&(&l, &i)| i == Is::Clean && dropped(l)).unwrap().0;
                                model.remove(&gone);
                            }
                            let draining = matches!(is, Some(Is::Draining | Is::DrainingAgain | Is::Dropped));
                            model.insert(lpa, if draining { Is::DrainingAgain } else { Is::Dirty });
                        }
                    }
                    2 => if let Some(drain) = cache.drain() {
                        prop_assert_eq!(model.insert(drain.lpa, Is::Draining), Some(Is::Dirty));
                    } else {
                        prop_assert!(!model.values().any(|&i| i == Is::Dirty));
                    },
                    3 | 4 => end_drain(&mut cache, &mut model, lpa, what == 3),
                    5 => {
                        cache.trim(lpa);
                        match is {
                            Some(Is::Draining | Is::DrainingAgain | Is::Dropped) => { model.insert(lpa, Is::Dropped); }
                            _ => { model.remove(&lpa); }
                        }
                        for (_, waits) in &mut flushes {
                            waits.retain(|&l| l != lpa);
                        }
                    }
                    _ => {
                        let dirty = model.iter().filter(|(_, i)| !matches!(i, Is::Clean | Is::Dropped));
                        let waits = dirty.map(|(&l, _)| l);
                        flushes.push((cache.flush(), waits.collect()));
                    }
                }
                if what == 3 && is != Some(Is::Dirty) {
                    // A page written again while it was being drained delays only flushes that began after that write.
                    for (ticket, waits) in &mut flushes {
                        let again = cache.dirty.get(&lpa).is_some_and(|held| held.since <= ticket.0);
                        if !again {
                            waits.retain(|&l| l != lpa);
                        }
                    }
                }
                for (ticket, waits) in &flushes {
                    prop_assert_eq!(cache.is_flushed(*ticket), waits.is_empty(), "{:?} waits for {:?}", ticket, waits);
                }
                prop_assert_eq!(cache.pages(), model.len());
                prop_assert!(cache.pages() <= 5);
                for lpa in 0..10 {
                    let there = model.get(&lpa).is_some_and(|&i| i != Is::Dropped);
                    let mut peek = cache.clone();
                    prop_assert_eq!(peek.read(lpa, 0, PAGE) == Hit::All, there);
                }
            }
        }
    }
}
