//! Page-mapped flash management of a device: what a read, a write and a trim require of the flash.
//!
//! A write first takes a page and maps it; the page that it replaces is dead at once. A request that is refused
//! changes nothing.

use super::blocks::{BlockState, EraseBlocks, STREAMS, Stream};
use super::fill::Fill;
use super::hot::HotData;
use super::map::{Map, NOWHERE, PAGES_MAX};
use super::map_cache::MapCache;
use super::reclaim::ReclaimJob;
use super::report::FtlCounts;
use super::striping::StripeOrder;
use super::victims::Victims;
use super::{FtlError, FtlSetupError, MapOp, Owner, Urgency, Written};
use crate::describe::{Description, FlashGeometry};
use crate::flash::{OpCause, PageAddress};
use nandarray::policy::WearLevelling;
use strength_reduce::StrengthReducedU32;

/// Maximum number of map pages that one request writes to make room in the map's cache.
const MAP_WRITES_MAX: usize = 4;

/// Planes that dynamic striping keeps choosing until their word lines are full: all planes of a die, or one plane.
#[derive(Clone, Copy, Debug, Default)]
struct Filling {
    /// The first of the planes that are being filled.
    plane: u32,
    /// Number of pages until the word lines of the planes are full.
    left: u32,
}

/// Conventional flash management of one device.
#[derive(Clone, Debug)]
pub struct PageMapped {
    pub(super) geometry: FlashGeometry,
    /// Number of logical pages.
    pub(super) lpas: u32,
    /// Number of owners: logical pages, then the pages of the map, which are numbered after them.
    pub(super) owners: u32,
    /// Number of logical pages that the over-provisioning alone would leave, if bad blocks and reclaim needed none.
    pub(super) lpas_asked: u64,
    pub(super) order: StripeOrder,
    pub(super) map: Map,
    pub(super) blocks: EraseBlocks,
    pub(super) victims: Victims,
    pub(super) map_cache: Option<MapCache>,
    pub(super) hot: Option<HotData>,
    pub(super) jobs: Vec<ReclaimJob>,
    pub(super) counts: FtlCounts,
    /// Number of free blocks of a plane below which reclaim begins.
    pub(super) threshold_blocks: u32,
    urgent_blocks: u32,
    streams: u32,
    /// Position in the striping order at which dynamic striping begins to search.
    cursor: u32,
    /// Planes that dynamic striping is filling, by stream.
    filling: [Filling; STREAMS],
    /// Number of pages that are programmed together in a plane; 1 without one-shot programming.
    word_line_pages: u32,
    map_cursor: u32,
    pub(super) factory_bad: u64,
    endurance_cycles: u32,
    /// Divisor of a plane's number in the device: the number of planes of a die.
    by_planes: StrengthReducedU32,
}

impl PageMapped {
    /// Makes an empty device. `seed` is for policies that draw random blocks; `factory_bad` says which blocks are bad
    /// from the factory, by die (of the device), plane (of the die) and block.
    ///
    /// The capacity is the flash less `over_provisioning`, or the good blocks less those that reclaim needs, whichever
    /// is less.
    ///
    /// # Errors
    /// If the description's geometry or settings leave nothing to manage.
    pub fn new(
        description: &Description,
        seed: u64,
        factory_bad: &dyn Fn(u32, u16, u32) -> bool,
    ) -> Result<Self, FtlSetupError> {
        check(description)?;
        let (g, s) = (description.geometry, &description.ftl);
        let order = StripeOrder::new(&g, &s.striping)?;
        let shape = (g.planes_total(), g.blocks, g.pages);
        let victims = Victims::new(s.gc, shape, seed)?;
        let levelling = WearLevelling { least_worn_first: s.wear_dynamic, threshold: s.wear_static_threshold };
        let blocks = EraseBlocks::new(shape, levelling, |plane, block| {
            factory_bad(plane / g.planes, (plane % g.planes) as u16, block)
        });
        let bad = (0..shape.0).map(|plane| {
            let of = |b: &u32| blocks.blocks[(plane * g.blocks + b) as usize].state == BlockState::Bad;
            (0..g.blocks).filter(of).collect()
        });
        let fill = Fill::new(order.clone(), g.blocks, g.pages, bad.collect());
        let good: u64 = blocks.planes.iter().map(|p| u64::from(p.good)).sum();
        let entries_a_page = g.page_bytes / s.map_entry_bytes;
        let map_cache = s.map_cache_bytes.map(|b| MapCache::new(b / u64::from(s.map_entry_bytes), entries_a_page));
        let mut ftl = Self {
            geometry: g,
            lpas: 0,
            owners: 0,
            lpas_asked: (g.pages_total() as f64 * (1.0 - s.over_provisioning)).floor() as u64,
            order,
            map: Map::new(0, fill.clone()),
            blocks,
            victims,
            map_cache,
            hot: None,
            jobs: vec![ReclaimJob::NONE; shape.0 as usize],
            counts: FtlCounts::default(),
            threshold_blocks: (s.gc_threshold * f64::from(g.blocks)).ceil() as u32,
            urgent_blocks: s.gc_urgent_blocks,
            streams: 2 + u32::from(s.hot_cold) + u32::from(s.map_cache_bytes.is_some()),
            cursor: 0,
            filling: [Filling::default(); STREAMS],
            word_line_pages: if description.nand.one_shot { description.nand.cell.bits() as u32 } else { 1 },
            map_cursor: 0,
            factory_bad: u64::from(shape.0) * u64::from(g.blocks) - good,
            endurance_cycles: description.nand.endurance_cycles,
            by_planes: StrengthReducedU32::new(g.planes),
        };
        for plane in 0..shape.0 {
            ftl.set_limits(plane);
        }
        let usable = ftl.usable_pages();
        let map_pages = if ftl.map_cache.is_some() { usable.div_ceil(u64::from(entries_a_page) + 1) } else { 0 };
        ftl.lpas = ftl.lpas_asked.min(usable - map_pages) as u32;
        assert!(u64::from(ftl.lpas) + map_pages <= usable, "{} pages and their map in {usable}", ftl.lpas);
        if ftl.lpas == 0 {
            let reserved = ftl.streams + super::blocks::KEPT_BLOCKS;
            return Err(FtlSetupError::TooFewBlocks { good_blocks: good, planes: shape.0, reserved });
        }
        let map_pages = if ftl.map_cache.is_some() { ftl.lpas.div_ceil(entries_a_page) } else { 0 };
        ftl.owners = ftl.lpas + map_pages;
        ftl.map = Map::new(ftl.owners, fill);
        ftl.hot = s.hot_cold.then(|| HotData::new(ftl.lpas));
        Ok(ftl)
    }

    /// Returns the number of logical pages that users see, each of `page_bytes`.
    pub fn capacity_pages(&self) -> u64 {
        u64::from(self.lpas)
    }

    /// Returns the bytes of a logical page, which is a flash page.
    pub fn page_bytes(&self) -> u32 {
        self.geometry.page_bytes
    }

    /// Returns the number of planes of the device, which are numbered `die * planes + plane`.
    pub fn planes(&self) -> u32 {
        self.order.planes()
    }

    /// Returns the number of program/erase cycles that a block is specified for.
    pub(super) fn endurance_cycles(&self) -> u32 {
        self.endurance_cycles
    }

    /// Returns the physical page of a logical page; `None` if it was never written, or was trimmed: then the flash is
    /// not read.
    ///
    /// The same request also reads the next `ahead` pages: their map entries are loaded with this one. Flash
    /// operations for the map are appended to `map_ops`.
    ///
    /// # Errors
    /// For a page beyond the capacity.
    pub fn read(&mut self, lpa: u64, ahead: u32, map_ops: &mut Vec<MapOp>) -> Result<Option<PageAddress>, FtlError> {
        let owner = self.owner_of(lpa)?;
        if self.map_cache.is_some() {
            self.look_up(owner, ahead, map_ops);
        }
        let page = self.map.get(owner);
        if page == NOWHERE {
            return Ok(None);
        }
        self.counts.reads[OpCause::Host as usize] += 1;
        Ok(Some(self.place(page)))
    }

    /// Returns the physical page of a logical page, without counting a read and without using the map's cache; `None`
    /// if it has none.
    ///
    /// # Errors
    /// For a page beyond the capacity.
    pub fn place_of(&self, lpa: u64) -> Result<Option<PageAddress>, FtlError> {
        let page = self.map.get(self.owner_of(lpa)?);
        Ok((page != NOWHERE).then(|| self.place(page)))
    }

    /// Maps a logical page to a new physical page. Unless all of the page is written (`whole`), its old content must
    /// be read first, from `read_first`. `ahead` and `map_ops` are as in [`PageMapped::read`]. `load` returns the load
    /// of a die of the device, for dynamic striping.
    ///
    /// # Errors
    /// `OutOfRange`; `NotNow` while reclaim must make progress first; `NoSpace`. Nothing has changed then.
    pub fn write(
        &mut self,
        lpa: u64,
        whole: bool,
        ahead: u32,
        load: impl Fn(u32) -> u64,
        map_ops: &mut Vec<MapOp>,
    ) -> Result<Written, FtlError> {
        let owner = self.owner_of(lpa)?;
        let old = self.map.get(owner);
        let stream = match &self.hot {
            Some(hot) if hot.is_hot(owner) => Stream::Hot,
            _ => Stream::Host,
        };
        let plane = self.plane_for(owner, old, stream, load)?;
        let page = self.put(plane, stream, owner, old);
        debug_assert_eq!(self.map.get(owner), page, "logical page {lpa}");
        if let Some(hot) = &mut self.hot {
            hot.written(owner);
        }
        self.counts.programs[OpCause::Host as usize] += 1;
        let read_first = (!whole && old != NOWHERE).then(|| self.place(old));
        self.counts.reads[OpCause::Host as usize] += u64::from(read_first.is_some());
        if self.map_cache.is_some() {
            self.look_up(owner, ahead, map_ops);
            self.map_cache.as_mut().expect("there is one").change(owner);
        }
        Ok(Written { place: self.place(page), read_first, plane, reclaim: self.urgency(plane) })
    }

    /// Unmaps `pages` logical pages from `lpa` on: they read as never written, and reclaim need not move them. Returns
    /// how many of them were mapped.
    ///
    /// # Errors
    /// For pages beyond the capacity.
    pub fn trim(&mut self, lpa: u64, pages: u64, map_ops: &mut Vec<MapOp>) -> Result<u64, FtlError> {
        if pages == 0 {
            return Ok(0);
        }
        let last = self.owner_of(lpa.saturating_add(pages - 1))?;
        let mut trimmed = 0;
        for owner in lpa as u32..=last {
            let old = self.map.get(owner);
            if old == NOWHERE {
                continue;
            }
            self.map.set(owner, NOWHERE);
            self.forget(old);
            trimmed += 1;
            if self.map_cache.is_some() {
                self.look_up(owner, last - owner, map_ops);
                self.map_cache.as_mut().expect("there is one").change(owner);
            }
        }
        assert!(trimmed <= pages, "{trimmed} of {pages} pages were trimmed");
        self.counts.trimmed += trimmed;
        Ok(trimmed)
    }

    /// Writes one changed page of a cached map and appends its operations to `map_ops`. Returns `false` if no page is
    /// changed, or there is no page to write it to now.
    pub fn flush_map(&mut self, map_ops: &mut Vec<MapOp>) -> bool {
        let Some(page) = self.map_cache.as_ref().and_then(MapCache::any_changed) else { return false };
        self.write_map_page(page, map_ops)
    }

    /// Returns the urgency of reclaim in a plane.
    pub fn urgency(&self, plane: u32) -> Urgency {
        let p = &self.blocks.planes[plane as usize];
        if p.free < p.floor {
            Urgency::Urgent
        } else if p.free < self.threshold_blocks || !p.retiring.is_empty() || p.wear_due {
            Urgency::Background
        } else {
            Urgency::None
        }
    }

    /// Whether a plane has so few free blocks that reclaim by threshold is due.
    pub(super) fn below_threshold(&self, plane: u32) -> bool {
        self.blocks.planes[plane as usize].free < self.threshold_blocks
    }

    fn owner_of(&self, lpa: u64) -> Result<u32, FtlError> {
        match lpa < u64::from(self.lpas) {
            true => Ok(lpa as u32),
            false => Err(FtlError::OutOfRange { lpa, capacity_pages: u64::from(self.lpas) }),
        }
    }

    /// Returns the owner of this number: a logical page or a page of the map.
    pub(super) fn owner(&self, owner: u32) -> Owner {
        if owner < self.lpas { Owner::Page(u64::from(owner)) } else { Owner::Map(owner - self.lpas) }
    }

    /// Returns the address of a page, which is numbered through the whole device.
    pub(super) fn place(&self, page: u32) -> PageAddress {
        let (block, in_block) = self.blocks.split(page);
        self.place_in(block, in_block)
    }

    /// Returns the address of a page of a block, which is numbered through the whole device.
    pub(super) fn place_in(&self, block: u32, page: u32) -> PageAddress {
        let (plane, block) = self.blocks.split_block(block);
        let (die, plane) = StrengthReducedU32::div_rem(plane, self.by_planes);
        PageAddress { die, block, page: page as u16, plane: plane as u16 }
    }

    /// Returns the number of a page through the whole device.
    ///
    /// # Panics
    /// If the device has no such page.
    pub(super) fn page(&self, place: PageAddress) -> u32 {
        let g = &self.geometry;
        let within = u32::from(place.plane) < g.planes && place.block < g.blocks && u32::from(place.page) < g.pages;
        assert!(within && place.die < g.dies_total(), "{place:?} is no place of the device");
        let plane = place.die * g.planes + u32::from(place.plane);
        (plane * g.blocks + place.block) * g.pages + u32::from(place.page)
    }

    /// Gives a page of a plane to an owner that lay at `old`, and maps it there; the old page is dead. Returns the new
    /// page.
    pub(super) fn put(&mut self, plane: u32, stream: Stream, owner: u32, old: u32) -> u32 {
        debug_assert!(old == self.map.get(owner));
        let (page, last) = self.blocks.take(plane, stream, owner);
        self.map.set(owner, page);
        self.counts.given += 1;
        if last {
            let block = self.blocks.block_of(page);
            self.victims.closed(block, self.blocks.blocks[block as usize].live, self.counts.given);
        }
        if old != NOWHERE {
            self.forget(old);
        }
        page
    }

    /// Marks a page as dead.
    fn forget(&mut self, page: u32) {
        let (block, live, state) = self.blocks.forget(page);
        if state == BlockState::Closed {
            self.victims.less(block, live);
        }
    }

    /// Computes how many free blocks a plane keeps for reclaim (`floor`) and how many live pages it may have
    /// (`live_max`).
    ///
    /// When a stream finds no open block and fewer free ones than `floor`, at most `streams - 1` blocks are open. If
    /// all closed blocks had only live pages, there would be more live pages than `live_max`. So one of them has a
    /// dead page, and reclaim makes progress.
    pub(super) fn set_limits(&mut self, plane: u32) {
        let p = &mut self.blocks.planes[plane as usize];
        let least = super::blocks::KEPT_BLOCKS + 1;
        let share = self.lpas_asked.div_ceil(u64::from(self.order.planes()) * u64::from(self.geometry.pages)) as u32;
        let spare = p.good.saturating_sub(share + self.streams - 1);
        p.floor = self.urgent_blocks.clamp(least, spare.max(least));
        p.live_max = p.good.saturating_sub(p.floor + self.streams - 1) * self.geometry.pages;
        assert!(p.floor > super::blocks::KEPT_BLOCKS, "reclaim of plane {plane} has no block to move into");
    }

    /// Returns the number of live pages that all planes together may have.
    pub(super) fn usable_pages(&self) -> u64 {
        self.blocks.planes.iter().map(|p| u64::from(p.live_max)).sum()
    }

    /// Returns the plane to which a page is to be written for `owner`, whose old page is `old`; `load` returns a die's
    /// load.
    fn plane_for(&mut self, owner: u32, old: u32, stream: Stream, load: impl Fn(u32) -> u64) -> Result<u32, FtlError> {
        let planes = self.order.planes();
        if self.order.dynamic {
            let begun = match self.order.die_at_once {
                true => self.next_of_die(old, stream, &load),
                false => self.rest_of_word_line(old, stream),
            };
            if let Some(plane) = begun {
                return Ok(plane);
            }
            let mut best: Option<(u64, u32)> = None;
            for n in 0..planes {
                let position = (self.cursor + n) % planes;
                let plane = self.order.plane_at[position as usize];
                if !self.blocks.has_page(plane, stream) || !self.fits(plane, old) {
                    continue;
                }
                let busy = load(plane / self.geometry.planes);
                if best.is_none_or(|(least, _)| busy < least) {
                    best = Some((busy, position));
                }
                if busy == 0 {
                    break;
                }
            }
            if let Some((_, position)) = best {
                self.cursor = (position + 1) % planes;
                let plane = self.order.plane_at[position as usize];
                if !self.order.die_at_once {
                    self.filling[stream as usize] = Filling { plane, left: self.word_lines_left(plane, 1, stream) - 1 };
                }
                return Ok(plane);
            }
        } else {
            let plane = self.order.own(owner);
            if self.fits(plane, old) {
                if self.blocks.has_page(plane, stream) {
                    return Ok(plane);
                }
                if self.can_reclaim(plane) {
                    return Err(FtlError::NotNow { plane });
                }
            }
        }
        self.any_plane(owner, old, stream)
    }

    /// Returns the next plane of the die that is being filled, or of the least busy die once the former has received
    /// its pages; `None` if no plane of it has room. Of a die's planes it is the one with the fewest pages written, so
    /// that all its planes stay at the same page and are programmed together.
    ///
    /// A die has received its pages when each of its planes has received one or, with one-shot programming, the rest
    /// of its word line. With one-shot programming each stream fills a die of its own, since a page of another stream
    /// does not count for a word line.
    fn next_of_die(&mut self, old: u32, stream: Stream, load: &impl Fn(u32) -> u64) -> Option<u32> {
        let (planes, group) = (self.order.planes(), self.geometry.planes);
        let at = if self.word_line_pages > 1 { stream as usize } else { 0 };
        if self.filling[at].left == 0 {
            let first = self.cursor - self.cursor % group;
            let mut best: Option<(u64, u32)> = None;
            for n in (0..planes).step_by(group as usize) {
                let position = (first + n) % planes;
                let die = self.order.plane_at[position as usize] / group;
                let busy = load(die);
                if best.is_none_or(|(least, _)| busy < least) {
                    best = Some((busy, position));
                }
                if busy == 0 {
                    break;
                }
            }
            let (_, position) = best?;
            self.cursor = (position + group) % planes;
            let plane = self.order.plane_at[position as usize] / group * group;
            self.filling[at] = Filling { plane, left: self.word_lines_left(plane, group, stream) };
        }
        let (blocks, fits) = (&self.blocks, |plane| self.fits(plane, old));
        let first = self.filling[at].plane;
        let plane = (first..first + group)
            .filter(|&plane| blocks.has_page(plane, stream) && fits(plane))
            .min_by_key(|&plane| (blocks.given(plane, stream), plane));
        let left = &mut self.filling[at].left;
        *left = if plane.is_some() { *left - 1 } else { 0 };
        plane
    }

    /// Returns the plane whose word line a stream has begun, where planes are chosen one by one; `None` if the word
    /// line is full or the plane has no room.
    fn rest_of_word_line(&mut self, old: u32, stream: Stream) -> Option<u32> {
        let Filling { plane, left } = self.filling[stream as usize];
        if left == 0 {
            return None;
        }
        let goes_on = self.blocks.has_page(plane, stream) && self.fits(plane, old);
        self.filling[stream as usize].left = if goes_on { left - 1 } else { 0 };
        goes_on.then_some(plane)
    }

    /// Returns the number of pages that fill a stream's current word lines in `planes` planes from `first` on,
    /// counting only the planes that have written the fewest word lines; without one-shot programming, one page per
    /// plane.
    fn word_lines_left(&self, first: u32, planes: u32, stream: Stream) -> u32 {
        if self.word_line_pages == 1 {
            return planes;
        }
        let word_line = u64::from(self.word_line_pages);
        let given = || (first..first + planes).map(|plane| self.blocks.given(plane, stream));
        let behind = given().map(|n| n / word_line).min().unwrap_or(0);
        given().filter(|n| n / word_line == behind).map(|n| word_line - n % word_line).sum::<u64>() as u32
    }

    /// Returns the number of pages that fill the word lines which the host's next page is part of, which a write
    /// buffer should hand over together; 1 without one-shot programming.
    pub fn word_lines_to_fill(&self) -> u32 {
        if self.word_line_pages == 1 {
            return 1;
        }
        match self.filling[Stream::Host as usize].left {
            0 => self.word_line_pages * self.geometry.planes,
            left => left,
        }
    }

    /// Returns a plane for a page whose own plane has no room for more live pages: the one with the most room.
    fn any_plane(&self, owner: u32, old: u32, stream: Stream) -> Result<u32, FtlError> {
        let most = |planes: &mut dyn Iterator<Item = u32>| {
            planes.max_by_key(|&p| {
                let plane = &self.blocks.planes[p as usize];
                (i64::from(plane.live_max) - i64::from(plane.live), std::cmp::Reverse(p))
            })
        };
        let fitting = || (0..self.order.planes()).filter(|&p| self.fits(p, old));
        if let Some(plane) = most(&mut fitting().filter(|&p| self.blocks.has_page(p, stream))) {
            return Ok(plane);
        }
        if let Some(plane) = most(&mut fitting().filter(|&p| self.can_reclaim(p))) {
            return Err(FtlError::NotNow { plane });
        }
        Err(self.no_space(owner))
    }

    /// Returns the error for a page that finds no room.
    pub(super) fn no_space(&self, owner: u32) -> FtlError {
        FtlError::NoSpace {
            lpa: u64::from(owner),
            live_pages: self.blocks.planes.iter().map(|p| u64::from(p.live)).sum(),
            usable_pages: self.usable_pages(),
            bad_blocks: self.blocks.planes.iter().map(|p| u64::from(self.geometry.blocks - p.good)).sum(),
        }
    }

    /// Whether a plane may have one more live page, which replaces the page `old`.
    fn fits(&self, plane: u32, old: u32) -> bool {
        let p = &self.blocks.planes[plane as usize];
        p.live < p.live_max
            || (p.live == p.live_max && old != NOWHERE && self.blocks.plane_of(self.blocks.block_of(old)) == plane)
    }

    /// Looks up an entry of a cached map and makes room for it; appends the flash operations that this costs to
    /// `map_ops`.
    fn look_up(&mut self, owner: u32, ahead: u32, map_ops: &mut Vec<MapOp>) {
        let Some(cache) = &mut self.map_cache else { return };
        if cache.touch(owner) {
            self.counts.map_hits += 1;
        } else {
            self.counts.map_misses += 1;
            let page = cache.page_of(owner);
            // The entries after it are loaded first, so that the entry itself is the most recently used.
            for other in (owner..=owner.saturating_add(ahead).min(self.lpas - 1)).rev() {
                if cache.page_of(other) == page {
                    cache.load(other);
                }
            }
            let at = self.map.get(self.lpas + page);
            if at != NOWHERE {
                self.counts.reads[OpCause::Map as usize] += 1;
                map_ops.push(MapOp::Read(self.place(at)));
            }
        }
        for _ in 0..MAP_WRITES_MAX {
            let Some(page) = self.map_cache.as_mut().and_then(MapCache::make_room) else { return };
            if !self.write_map_page(page, map_ops) {
                return;
            }
        }
    }

    /// Reads and programs a map page; returns `false` if no plane has a page for it without reclaim.
    pub(super) fn write_map_page(&mut self, page: u32, map_ops: &mut Vec<MapOp>) -> bool {
        let owner = self.lpas + page;
        assert!(owner < self.owners, "map page {page} of {}", self.owners - self.lpas);
        let old = self.map.get(owner);
        let planes = self.order.planes();
        let found = (0..planes).map(|n| (self.map_cursor + n) % planes).find(|&position| {
            let plane = self.order.plane_at[position as usize];
            self.blocks.has_page(plane, Stream::Map) && self.fits(plane, old)
        });
        let Some(position) = found else { return false };
        self.map_cursor = (position + 1) % planes;
        if old != NOWHERE {
            self.counts.reads[OpCause::Map as usize] += 1;
            map_ops.push(MapOp::Read(self.place(old)));
        }
        let new = self.put(self.order.plane_at[position as usize], Stream::Map, owner, old);
        self.counts.programs[OpCause::Map as usize] += 1;
        map_ops.push(MapOp::Program(self.place(new)));
        if let Some(cache) = &mut self.map_cache {
            cache.written(page);
        }
        true
    }
}

/// Checks that geometry and settings are within the limits of this flash management.
fn check(description: &Description) -> Result<(), FtlSetupError> {
    let (g, s) = (description.geometry, &description.ftl);
    if g.pages_total() > PAGES_MAX {
        return Err(FtlSetupError::TooManyPages { pages: g.pages_total(), max: PAGES_MAX });
    }
    if g.pages > u32::from(u16::MAX) {
        return Err(FtlSetupError::TooManyPagesABlock { pages: g.pages, max: u32::from(u16::MAX) });
    }
    for (what, value) in [("over_provisioning", s.over_provisioning), ("gc_threshold", s.gc_threshold)] {
        if !(0.0..1.0).contains(&value) {
            return Err(FtlSetupError::NotAShare { what, value });
        }
    }
    if s.map_entry_bytes == 0 || s.map_entry_bytes > g.page_bytes {
        return Err(FtlSetupError::MapEntry { entry_bytes: s.map_entry_bytes, page_bytes: g.page_bytes });
    }
    Ok(())
}

const _: () = assert!(STREAMS == Stream::Moved as usize + 1);
