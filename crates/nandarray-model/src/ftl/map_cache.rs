//! Cache for a map that does not fit into DRAM: entries in use are cached, and the map itself lies in flash, in pages
//! of its own (DFTL: Gupta, Kim, Urgaonkar, ASPLOS 2009).
//!
//! The cache holds single entries and evicts the least recently used. A missing entry costs a read of its map page,
//! which also loads the entries of that page that the same request needs. Evicting a changed entry costs a read and a
//! program of its map page, which writes back all changed entries of that page.
//!
//! Entries of pages that reclaim moves become changed without a read (the moved page's spare bytes name its owner) and
//! without an eviction: during reclaim the cache may exceed its size, and the host's next requests pay for the
//! evictions. Reclaim therefore never waits for map writes, which could themselves wait for reclaim.

use hashlink::LinkedHashMap;
use rustc_hash::{FxBuildHasher, FxHashMap};

const NONE: u32 = u32::MAX;

/// A cached map entry: whether it was changed, and the next changed entry of the same map page.
#[derive(Clone, Copy, Debug)]
struct MapCacheEntry {
    changed: bool,
    behind: u32,
}

const CLEAN: MapCacheEntry = MapCacheEntry { changed: false, behind: NONE };

/// The cache of map entries.
#[derive(Clone, Debug)]
pub(super) struct MapCache {
    entries_max: usize,
    entries_a_page: u32,
    /// Entries by logical page, the least recently used first.
    entries: LinkedHashMap<u32, MapCacheEntry, FxBuildHasher>,
    /// First changed entry of each map page that has one.
    changed: FxHashMap<u32, u32>,
}

impl MapCache {
    /// Makes a cache for `entries_max` entries, at least one.
    pub(super) fn new(entries_max: u64, entries_a_page: u32) -> Self {
        Self {
            entries_max: usize::try_from(entries_max).unwrap_or(usize::MAX).max(1),
            entries_a_page,
            entries: LinkedHashMap::default(),
            changed: FxHashMap::default(),
        }
    }

    /// Returns the map page that holds the entry of a logical page.
    pub(super) fn page_of(&self, lpa: u32) -> u32 {
        lpa / self.entries_a_page
    }

    /// Whether an entry is cached; if so, marks it as the most recently used.
    pub(super) fn touch(&mut self, lpa: u32) -> bool {
        self.entries.to_back(&lpa).is_some()
    }

    /// Inserts an entry as unchanged, unless it is cached already.
    pub(super) fn load(&mut self, lpa: u32) {
        if !self.entries.contains_key(&lpa) {
            self.entries.insert(lpa, CLEAN);
        }
    }

    /// Marks an entry as changed, inserting it if it is not cached.
    pub(super) fn change(&mut self, lpa: u32) {
        self.load(lpa);
        if self.entries.get(&lpa).is_some_and(|e| e.changed) {
            return;
        }
        let page = self.page_of(lpa);
        let behind = self.changed.insert(page, lpa).unwrap_or(NONE);
        assert_ne!(behind, lpa, "entry {lpa} is in the list of its map page already");
        *self.entries.get_mut(&lpa).expect("was loaded") = MapCacheEntry { changed: true, behind };
    }

    /// Evicts unchanged entries until the cache is within its size. Returns the map page that must be written first if
    /// the oldest entry is a changed one; `None` once there is room.
    pub(super) fn make_room(&mut self) -> Option<u32> {
        while self.entries.len() > self.entries_max {
            let (&oldest, entry) = self.entries.front()?;
            if entry.changed {
                return Some(self.page_of(oldest));
            }
            self.entries.pop_front();
        }
        assert!(self.entries.len() <= self.entries_max);
        None
    }

    /// Marks all entries of a map page as unchanged, since the page was written.
    pub(super) fn written(&mut self, page: u32) {
        let mut at = self.changed.remove(&page).unwrap_or(NONE);
        while let Some(entry) = self.entries.get_mut(&at) {
            assert!(entry.changed, "entry {at} of map page {page} is in its list and was not changed");
            at = entry.behind;
            *entry = CLEAN;
        }
    }

    /// Returns the map page of the least recently used changed entry; `None` if no entry is changed.
    pub(super) fn any_changed(&self) -> Option<u32> {
        if self.changed.is_empty() {
            return None;
        }
        self.entries.iter().find(|(_, e)| e.changed).map(|(&lpa, _)| self.page_of(lpa))
    }
}
