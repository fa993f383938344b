//! The write cache under the clock: writes are offered to it, pages drain from it, flushes empty it.
//!
//! With early completion a write is done for its host once the cache has it, otherwise once the flash has what the cache had
//! then; small writes gather either way. Draining begins when three quarters of the cache are dirty and ends at one half; it
//! goes on for a write that finds no room, for a flush, and always without early completion. A page on its way to flash stays
//! in the cache and is read from there; what is written to it meanwhile goes the same way again.
//!
//! Where cells are programmed a word line at once, pages leave the cache by whole word lines of a die's planes: as many as
//! flash management puts there before it turns to another die. Fewer go only for a flush, without early completion, or when
//! the cache is full and nothing else is on its way.
//!
//! When no plane has room for any dirty page the cache is stuck: writes that do not fit fail, flushes fail, what is in it stays
//! and can be read, until reclaim or a trim makes room.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::Machine;
use super::block::{At, Page, PageOf, Status};
use crate::describe::Description;
use crate::flash::Cause;
use crate::ftl::cache::{CacheOrder, Hit, Put, WriteCache};
use crate::time::Ps;

/// Pages (word lines, where they are programmed at once) that are on their way to each plane at once, on average: enough that
/// no plane rests while others have work.
const DRAINS_A_PLANE: usize = 4;

/// Writes that wait for a page to reach the flash.
#[derive(Debug, Default)]
struct Waiters {
    /// For the drain under way.
    this: Vec<u32>,
    /// For the one after it.
    next: Vec<u32>,
}

/// The cache and who waits for it.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) cache: WriteCache,
    early: bool,
    /// Dirty pages above which draining begins, and at which it ends.
    high: usize,
    low: usize,
    at_once: usize,
    /// Pages that leave together, and how many of them are to come.
    unit: usize,
    unit_left: usize,
    draining: bool,
    /// Pages of writes that found no room, in order.
    waiting: VecDeque<u32>,
    waiters: FxHashMap<u64, Waiters>,
    /// Drains one after the other that found no place in flash.
    refused: usize,
    /// Whether drains are being handed out: what they set off does not hand out more.
    busy: bool,
}

impl Cached {
    /// The cache of a description; `None` without one.
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
            // A cache of a few units cannot wait for whole ones.
            unit: if unit > pages / 4 { 1 } else { unit },
            unit_left: 0,
            draining: false,
            waiting: VecDeque::new(),
            waiters: FxHashMap::default(),
            refused: 0,
            busy: false,
        })
    }

    /// Whether a page on its way to flash is still to be written.
    pub(super) fn is_wanted(&self, lpa: u64) -> bool {
        self.cache.is_wanted(lpa)
    }

    /// Whether nothing that is dirty finds a place in flash.
    pub(super) fn is_stuck(&self) -> bool {
        let dirty = self.cache.dirty_pages();
        dirty > 0 && self.refused >= dirty && self.cache.draining_pages() == 0
    }

    /// Room was made in flash: what was refused may be tried again.
    pub(super) fn there_may_be_room(&mut self) {
        self.refused = 0;
    }

    /// Whether another page should be on its way to flash.
    fn drains(&mut self, flushing: bool) -> bool {
        let dirty = self.cache.dirty_pages();
        // A word line takes so long to program that most of the cache is on its way to flash while all dies are at work:
        // there, what is on its way counts as dirty.
        let held = if self.unit > 1 { dirty + self.cache.draining_pages() } else { dirty };
        self.draining = held > if self.draining { self.low } else { self.high };
        if dirty == 0 {
            self.unit_left = 0;
        }
        let now = flushing || !self.early;
        let room = self.draining || !self.waiting.is_empty();
        // A full cache from which nothing leaves would wait for ever.
        let whole = dirty >= self.unit || self.cache.draining_pages() == 0;
        let wanted = now || self.unit_left > 0 || (room && whole);
        wanted && dirty > 0 && self.refused < dirty && self.cache.draining_pages() < self.at_once
    }

    /// A page is about to leave the cache; the first of a unit says how many are to follow. `to_fill`: pages until the word lines that
    /// flash management is at are full, which holds as long as nothing is on its way there.
    fn leaves(&mut self, flushing: bool, to_fill: usize) {
        if flushing || !self.early {
            self.unit_left = 0;
        } else if self.unit_left > 0 {
            self.unit_left -= 1;
        } else {
            let unit = if self.cache.draining_pages() == 0 { self.unit.min(to_fill) } else { self.unit };
            self.unit_left = unit.min(self.cache.dirty_pages()) - 1;
        }
    }

    /// Writes that wait for pages to reach the flash, if the cache is stuck.
    fn give_up_waiters(&mut self) -> Vec<u32> {
        if self.waiters.is_empty() || !self.is_stuck() {
            return Vec::new();
        }
        let mut parts: Vec<u32> = std::mem::take(&mut self.waiters).into_values().flat_map(|w| w.next).collect();
        parts.sort_unstable();
        parts
    }

    pub(super) fn check_at_rest(&self) {
        assert!(self.waiting.is_empty() && self.waiters.is_empty(), "a write was left waiting for the cache");
        assert!(self.cache.draining_pages() == 0 && !self.busy, "a page was left on its way from the cache");
    }
}

impl Machine {
    fn cached(&mut self) -> &mut Cached {
        self.blocks().cached.as_mut().expect("a device with a write cache")
    }

    /// What the cache has of a page that is read.
    pub(super) fn look_in_cache(&mut self, part: u32) -> Hit {
        let p = &self.blocks().pages[part as usize];
        let (lpa, from, bytes) = (p.lpa, p.from, p.bytes);
        self.cached().cache.read(lpa, from, bytes)
    }

    /// A page of a write comes to the cache; it waits behind others that found no room.
    pub(super) fn offer(&mut self, now: Ps, part: u32) {
        self.blocks().pages[part as usize].at = At::Caching;
        if !self.cached().waiting.is_empty() || !self.take(now, part) {
            self.cached().waiting.push_back(part);
        }
    }

    /// The cache takes a page, if it has room.
    fn take(&mut self, now: Ps, part: u32) -> bool {
        let p = &self.blocks().pages[part as usize];
        let (lpa, from, bytes) = (p.lpa, p.from, p.bytes);
        let cached = self.cached();
        if cached.cache.write(lpa, from, bytes) == Put::Full {
            return false;
        }
        if cached.early {
            self.page_done(now, part);
        } else {
            cached.waiters.entry(lpa).or_default().next.push(part);
        }
        true
    }

    /// Lets the cache drain, take what waits for room, and flushes see what became of it.
    pub(super) fn go_on_draining(&mut self, now: Ps) {
        let blocks = self.blocks();
        let Some(cached) = &mut blocks.cached else { return };
        if std::mem::replace(&mut cached.busy, true) {
            return;
        }
        loop {
            let blocks = self.blocks();
            let flushing = blocks.flushes.drains();
            let cached = blocks.cached.as_mut().expect("it was there");
            if let Some(&part) = cached.waiting.front() {
                if self.take(now, part) {
                    self.cached().waiting.pop_front();
                    continue;
                }
                if self.cached().is_stuck() {
                    self.cached().waiting.pop_front();
                    self.fail(part, Status::NoSpace);
                    self.page_done(now, part);
                    continue;
                }
            }
            let cached = self.cached();
            if !cached.drains(flushing) {
                let refused = cached.give_up_waiters();
                for &part in &refused {
                    self.fail(part, Status::NoSpace);
                    self.page_done(now, part);
                }
                if refused.is_empty() {
                    break;
                }
                continue;
            }
            let to_fill = self.blocks().ftl.word_lines_to_fill() as usize;
            let cached = self.cached();
            cached.leaves(flushing, to_fill);
            // What was refused is put back behind the others: by order of use all get their turn.
            let in_order = flushing && cached.refused == 0;
            let drain = if in_order { cached.cache.drain_for_flush() } else { cached.cache.drain() };
            let drain = drain.expect("a page is dirty");
            if let Some(waiters) = cached.waiters.get_mut(&drain.lpa) {
                std::mem::swap(&mut waiters.this, &mut waiters.next);
            }
            let page_bytes = self.description.geometry.page_bytes;
            let mut page = Page::new(PageOf::Cache, drain.lpa, 0, page_bytes);
            (page.write, page.whole) = (true, drain.whole);
            let part = self.blocks().pages.insert(page) as u32;
            let there = self.through_dram(now, u64::from(drain.bytes), "cached page", Cause::Host);
            self.translate(now, part, there);
        }
        self.cached().busy = false;
        self.go_on_flushing(now);
    }

    /// A page's way to flash has ended.
    pub(super) fn drained(&mut self, now: Ps, lpa: u64, status: Status) {
        let cached = self.cached();
        if status == Status::NoSpace {
            cached.cache.put_back(lpa);
            cached.refused += 1;
        } else {
            cached.cache.drained(lpa);
            cached.refused = 0;
        }
        let mut done = Vec::new();
        if let Some(waiters) = cached.waiters.get_mut(&lpa) {
            done = std::mem::take(&mut waiters.this);
            if status == Status::NoSpace {
                done.append(&mut waiters.next);
            }
            if waiters.next.is_empty() {
                cached.waiters.remove(&lpa);
            }
        }
        for part in done {
            if status != Status::Success {
                self.fail(part, status);
            }
            self.page_done(now, part);
        }
        self.go_on_draining(now);
    }

    /// Pages are wanted no more: whoever waits for them to reach the flash waits no longer.
    pub(super) fn trim_cached(&mut self, now: Ps, first: u64, end: u64) {
        let Some(cached) = &mut self.blocks().cached else { return };
        let mut done = Vec::new();
        for lpa in first..end {
            cached.cache.trim(lpa);
            if let Some(waiters) = cached.waiters.get_mut(&lpa) {
                done.append(&mut waiters.next);
                if waiters.this.is_empty() {
                    cached.waiters.remove(&lpa);
                }
            }
        }
        for part in done {
            self.page_done(now, part);
        }
    }
}
