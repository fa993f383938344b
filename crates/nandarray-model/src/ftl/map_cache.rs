//! A map that does not fit into DRAM: entries in use are cached, the map itself lies in flash, in pages of its own
//! (DFTL: Gupta, Kim, Urgaonkar, ASPLOS 2009).
//!
//! The cache holds entries, evicted in LRU order. A missing entry costs a read of its map page; entries of the same
//! page that the same request needs come with it. Evicting a changed entry costs a read and a program of its map page,
//! which writes back all changed entries of that page.
//!
//! Pages that reclaim moves are entered as changed without a read (the page's own spare bytes name its owner) and
//! without an eviction: while reclaim works the cache may exceed its size, and the host's next requests pay. So reclaim
//! never waits for map writes, which could wait for reclaim.

use super::lru::Lru;
use rustc_hash::FxHashMap;

const NONE: u32 = u32::MAX;

/// An entry: whether it was changed, and the next of the changed entries of its map page.
#[derive(Clone, Copy, Debug)]
struct MapCacheEntry {
    changed: bool,
    behind: u32,
}

const CLEAN: MapCacheEntry = MapCacheEntry { changed: false, behind: NONE };

/// The cache.
#[derive(Clone, Debug)]
pub(super) struct MapCache {
    entries_max: usize,
    entries_a_page: u32,
    entries: Lru<MapCacheEntry>,
    /// First changed entry of each map page that has one.
    changed: FxHashMap<u32, u32>,
}

impl MapCache {
    /// With room for at least one entry.
    pub(super) fn new(entries_max: u64, entries_a_page: u32) -> Self {
        Self {
            entries_max: usize::try_from(entries_max).unwrap_or(usize::MAX).max(1),
            entries_a_page,
            entries: Lru::default(),
            changed: FxHashMap::default(),
        }
    }

    /// The map page that an entry lies in.
    pub(super) fn page_of(&self, lpa: u32) -> u32 {
        lpa / self.entries_a_page
    }

    /// Whether an entry is there; it is then the one used last.
    pub(super) fn touch(&mut self, lpa: u32) -> bool {
        self.entries.touch(lpa)
    }

    /// Puts an entry in as it is in flash; nothing if it is there.
    pub(super) fn load(&mut self, lpa: u32) {
        if self.entries.get(lpa).is_none() {
            self.entries.insert(lpa, CLEAN);
        }
    }

    /// An entry was changed; it is put in if it is not there.
    pub(super) fn change(&mut self, lpa: u32) {
        self.load(lpa);
        if self.entries.get(lpa).is_some_and(|e| e.changed) {
            return;
        }
        let page = self.page_of(lpa);
        let behind = self.changed.insert(page, lpa).unwrap_or(NONE);
        assert_ne!(behind, lpa, "entry {lpa} is in the list of its map page already");
        *self.entries.get_mut(lpa).expect("was loaded") = MapCacheEntry { changed: true, behind };
    }

    /// Drops unchanged entries until there is room. If a changed one is in the way: its map page, which is to be
    /// written.
    pub(super) fn make_room(&mut self) -> Option<u32> {
        while self.entries.len() > self.entries_max {
            let oldest = self.entries.oldest()?;
            if self.entries.get(oldest)?.changed {
                return Some(self.page_of(oldest));
            }
            self.entries.remove(oldest);
        }
        assert!(self.entries.len() <= self.entries_max);
        None
    }

    /// A map page was written: none of its entries is changed any more.
    pub(super) fn written(&mut self, page: u32) {
        let mut at = self.changed.remove(&page).unwrap_or(NONE);
        while let Some(entry) = self.entries.get_mut(at) {
            assert!(entry.changed, "entry {at} of map page {page} is in its list and was not changed");
            at = entry.behind;
            *entry = CLEAN;
        }
    }

    /// A map page with changed entries, the one whose changed entry was used longest ago.
    pub(super) fn any_changed(&self) -> Option<u32> {
        if self.changed.is_empty() {
            return None;
        }
        self.entries.oldest_first().find(|(_, e)| e.changed).map(|(lpa, _)| self.page_of(lpa))
    }
}
