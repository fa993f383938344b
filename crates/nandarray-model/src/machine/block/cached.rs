//! The write cache and the writes that wait for it. Writes are offered to the cache, its pages are drained to flash,
//! and flushes empty it. This file knows no clock: it returns the next action ([`CacheAction`]), which the client
//! executes.
//!
//! With early completion, a write is complete for the host once the cache has its data, otherwise once that data is in
//! flash; small writes are merged in the cache either way. Draining begins when three quarters of the cache are dirty
//! and stops at one half; it also goes on for a write that finds no room, for a flush, and always without early
//! completion. A page that is being drained stays in the cache and is read from there; data written to it meanwhile is
//! drained again later.
//!
//! Where cells are programmed a word line at once, pages leave the cache in groups that fill whole word lines of all
//! planes of a die, as many as flash management places there before it turns to another die. Smaller groups leave only
//! for a flush, without early completion, or when the cache is full and nothing else drains.
//!
//! When no plane has room for any dirty page, the cache is stuck: writes that do not fit fail, flushes fail, and its
//! content stays readable, until reclaim or a trim makes room.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::describe::Description;
use crate::ftl::cache::{CacheOrder, Drain, Put, WriteCache};

/// Maximum number of pages (word lines, where these are programmed at once) that drain to each plane at once, on
/// average: enough that no plane is idle while others have work.
const DRAINS_A_PLANE: usize = 4;

/// Writes that wait until their data has gone from the cache to flash.
#[derive(Debug, Default)]
struct Waiters {
    /// Writes whose data is in the drain in flight.
    this: Vec<u32>,
    /// Writes that came later, whose data is in the next drain.
    next: Vec<u32>,
}

/// The range of bytes that a write covers within a logical page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageBytes {
    pub(super) lpa: u64,
    pub(super) from: u32,
    pub(super) bytes: u32,
}

/// Result of offering a page of a write to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheOffer {
    /// The cache took the data, and the write is complete.
    Done,
    /// The cache took the data; the write waits until it is in flash.
    Waits,
    /// The cache has no room.
    No,
}

/// The next action for the client to execute.
#[derive(Debug)]
pub(super) enum CacheAction {
    /// Complete this page of a write.
    Done(u32),
    /// Fail these pages of writes for lack of space.
    Refused(Vec<u32>),
    /// Write this page to flash.
    Drain(Drain),
    /// Do nothing for now; flushes may be advanced.
    Nothing,
}

/// The write cache, with the pages of writes that wait for it.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) cache: WriteCache,
    early: bool,
    /// Number of dirty pages above which draining begins; it ends at `low`.
    high: usize,
    low: usize,
    at_once: usize,
    /// Number of pages that leave the cache as one group; `unit_left` counts those of the current group still to
    /// leave.
    unit: usize,
    unit_left: usize,
    draining: bool,
    /// Pages of writes for which the cache had no room, in order.
    waiting: VecDeque<u32>,
    waiters: FxHashMap<u64, Waiters>,
    /// Number of consecutive drains that found no free page in flash.
    refused: usize,
    /// Whether the client is executing actions of the cache; their consequences begin no second round of actions.
    busy: bool,
}

impl Cached {
    /// Makes the cache of a description; `None` if it has none.
    pub(super) fn new(description: &Description) -> Option<Self> {
        let (geometry, ftl) = (&description.geometry, &description.ftl);
        let cache = WriteCache::new(ftl.write_cache_bytes, geometry.page_bytes, CacheOrder::Lru)?;
        let pages = cache.capacity_pages();
        let nand = &description.nand;
        let word_line = if nand.one_shot { nand.cell.bits() } else { 1 };
        let unit = if nand.one_shot { word_line * geometry.planes as usize } else { 1 };
        Some(Self {
            cache,
            early: ftl.early_completion,
            high: pages * 3 / 4,
            low: pages / 2,
            at_once: geometry.planes_total() as usize * word_line * DRAINS_A_PLANE,
            // A cache of only a few groups cannot wait for whole ones.
            unit: if unit > pages / 4 { 1 } else { unit },
            unit_left: 0,
            draining: false,
            waiting: VecDeque::new(),
            waiters: FxHashMap::default(),
            refused: 0,
            busy: false,
        })
    }

    /// Whether a page that is being drained must still be written; not if it was trimmed meanwhile.
    pub(super) fn is_wanted(&self, lpa: u64) -> bool {
        self.cache.is_wanted(lpa)
    }

    /// Whether no dirty page finds room in flash.
    pub(super) fn is_stuck(&self) -> bool {
        let dirty = self.cache.dirty_pages();
        dirty > 0 && self.refused >= dirty && self.cache.draining_pages() == 0
    }

    /// Allows refused pages to be retried, since room may have been made in flash.
    pub(super) fn there_may_be_room(&mut self) {
        self.refused = 0;
    }

    /// Whether another page should be drained to flash now.
    fn drains(&mut self, flushing: bool) -> bool {
        let dirty = self.cache.dirty_pages();
        // A word line takes so long to program that most of the cache drains while all dies work: in this case
        // draining pages count as dirty.
        let held = if self.unit > 1 { dirty + self.cache.draining_pages() } else { dirty };
        self.draining = held > if self.draining { self.low } else { self.high };
        if dirty == 0 {
            self.unit_left = 0;
        }
        let now = flushing || !self.early;
        let room = self.draining || !self.waiting.is_empty();
        // A full cache from which nothing drains would wait for ever for a whole group.
        let whole = dirty >= self.unit || self.cache.draining_pages() == 0;
        let wanted = now || self.unit_left > 0 || (room && whole);
        wanted && dirty > 0 && self.refused < dirty && self.cache.draining_pages() < self.at_once
    }

    /// Counts a page that is about to leave the cache; the first page of a group sets the number of pages that follow.
    /// `to_fill` is the number of pages until flash management's open word lines are full, which is exact only while
    /// nothing drains.
    fn leaves(&mut self, flushing: bool, to_fill: usize) {
        assert!(self.cache.dirty_pages() > 0, "a page leaves a clean cache");
        if flushing || !self.early {
            self.unit_left = 0;
        } else if self.unit_left > 0 {
            self.unit_left -= 1;
        } else {
            let unit = if self.cache.draining_pages() == 0 { self.unit.min(to_fill) } else { self.unit };
            self.unit_left = unit.min(self.cache.dirty_pages()) - 1;
        }
    }

    /// Removes and returns the writes that wait for the flash if no dirty page finds room there; returns nothing
    /// otherwise.
    fn give_up_waiters(&mut self) -> Vec<u32> {
        if self.waiters.is_empty() || !self.is_stuck() {
            return Vec::new();
        }
        let mut parts: Vec<u32> = std::mem::take(&mut self.waiters).into_values().flat_map(|w| w.next).collect();
        parts.sort_unstable();
        parts
    }

    /// Offers a page of a write to the cache; if there is no room, the page waits after those that came before.
    /// Returns whether the page is done.
    pub(super) fn offer(&mut self, part: u32, of: PageBytes) -> bool {
        if !self.waiting.is_empty() {
            self.waiting.push_back(part);
            return false;
        }
        match self.take(part, of) {
            CacheOffer::Done => true,
            CacheOffer::Waits => false,
            CacheOffer::No => {
                self.waiting.push_back(part);
                false
            }
        }
    }

    /// Puts a page of a write into the cache, if it has room.
    fn take(&mut self, part: u32, of: PageBytes) -> CacheOffer {
        if self.cache.write(of.lpa, of.from, of.bytes) == Put::Full {
            return CacheOffer::No;
        }
        if self.early {
            return CacheOffer::Done;
        }
        self.waiters.entry(of.lpa).or_default().next.push(part);
        CacheOffer::Waits
    }

    /// Begins a round of actions, which [`Self::next`] returns; returns `false` if a round is already under way.
    pub(super) fn begin(&mut self) -> bool {
        !std::mem::replace(&mut self.busy, true)
    }

    /// Returns the next action; call it until it returns `Nothing`. `bytes_of` returns the byte range of a page of a
    /// write.
    pub(super) fn next(
        &mut self,
        flushing: bool,
        bytes_of: impl Fn(u32) -> PageBytes,
        to_fill: impl FnOnce() -> usize,
    ) -> CacheAction {
        assert!(self.busy, "actions of the cache are taken in a round");
        while let Some(&part) = self.waiting.front() {
            match self.take(part, bytes_of(part)) {
                taken @ (CacheOffer::Done | CacheOffer::Waits) => {
                    self.waiting.pop_front();
                    if taken == CacheOffer::Done {
                        return CacheAction::Done(part);
                    }
                }
                CacheOffer::No if self.is_stuck() => {
                    self.waiting.pop_front();
                    return CacheAction::Refused(vec![part]);
                }
                CacheOffer::No => break,
            }
        }
        if !self.drains(flushing) {
            let refused = self.give_up_waiters();
            if refused.is_empty() {
                self.busy = false;
                return CacheAction::Nothing;
            }
            return CacheAction::Refused(refused);
        }
        self.leaves(flushing, to_fill());
        // Refused pages are queued after the others: in order of use, each gets its turn.
        let in_order = flushing && self.refused == 0;
        let drain = if in_order { self.cache.drain_for_flush() } else { self.cache.drain() };
        let drain = drain.expect("a page is dirty");
        if let Some(waiters) = self.waiters.get_mut(&drain.lpa) {
            std::mem::swap(&mut waiters.this, &mut waiters.next);
        }
        CacheAction::Drain(drain)
    }

    /// Ends the drain of a page, which found no room in flash if `no_space`; returns the writes that waited for it.
    pub(super) fn drained(&mut self, lpa: u64, no_space: bool) -> Vec<u32> {
        assert!(self.cache.draining_pages() > 0, "page {lpa} was drained, and none was draining");
        if no_space {
            self.cache.put_back(lpa);
            self.refused += 1;
        } else {
            self.cache.drained(lpa);
            self.refused = 0;
        }
        let mut done = Vec::new();
        if let Some(waiters) = self.waiters.get_mut(&lpa) {
            done = std::mem::take(&mut waiters.this);
            if no_space {
                done.append(&mut waiters.next);
            }
            if waiters.next.is_empty() {
                self.waiters.remove(&lpa);
            }
        }
        done
    }

    /// Discards trimmed pages; returns the writes that waited for them to reach the flash.
    pub(super) fn trim(&mut self, first: u64, end: u64) -> Vec<u32> {
        let mut done = Vec::new();
        for lpa in first..end {
            self.cache.trim(lpa);
            if let Some(waiters) = self.waiters.get_mut(&lpa) {
                done.append(&mut waiters.next);
                if waiters.this.is_empty() {
                    self.waiters.remove(&lpa);
                }
            }
        }
        done
    }

    pub(super) fn check_at_rest(&self) {
        assert!(self.waiting.is_empty() && self.waiters.is_empty(), "a write was left waiting for the cache");
        assert!(self.cache.draining_pages() == 0 && !self.busy, "a page was left draining from the cache");
    }
}
