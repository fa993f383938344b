//! The parts joined: what a read, a write, a trim means for the flash.
//!
//! Map first, then the write: a page is given out and mapped at once, the page that it replaces is dead at once.
//! Nothing is changed by a request that is refused.

use super::blocks::{BlockState, EraseBlocks, STREAMS, Stream};
use super::divide::Divisor;
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

/// Map pages that one request writes at most to make room in the map's cache.
const MAP_WRITES_MAX: usize = 4;

/// The planes that dynamic striping stays at until their word lines are full: those of a die, or one.
#[derive(Clone, Copy, Debug, Default)]
struct Filling {
    /// The first of them.
    plane: u32,
    /// Pages to come.
    left: u32,
}

/// Conventional flash management of one device.
#[derive(Clone, Debug)]
pub struct PageMapped {
    pub(super) geometry: FlashGeometry,
    /// Logical pages.
    pub(super) lpas: u32,
    /// Logical pages and pages of the map, which are numbered behind them.
    pub(super) owners: u32,
    /// Logical pages that the over-provisioning alone would leave.
    pub(super) lpas_asked: u64,
    pub(super) order: StripeOrder,
    pub(super) map: Map,
    pub(super) blocks: EraseBlocks,
    pub(super) victims: Victims,
    pub(super) map_cache: Option<MapCache>,
    pub(super) hot: Option<HotData>,
    pub(super) jobs: Vec<ReclaimJob>,
    pub(super) counts: FtlCounts,
    /// Free blocks of a plane below which reclaim begins.
    pub(super) threshold_blocks: u32,
    urgent_blocks: u32,
    streams: u32,
    /// Where dynamic striping, and the map's, looks first.
    cursor: u32,
    /// Planes that dynamic striping fills at the moment, by stream.
    filling: [Filling; STREAMS],
    /// Pages that are programmed together in a plane; 1 without one-shot programming.
    word_line_pages: u32,
    map_cursor: u32,
    pub(super) factory_bad: u64,
    endurance_cycles: u32,
    /// Planes a die, to divide by.
    by_planes: Divisor,
}

impl PageMapped {
    /// An empty device. `seed` is for policies that draw; `factory_bad` tells which blocks are bad when made, by die
    /// (of the device), plane (of the die) and block.
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
            by_planes: Divisor::new(g.planes),
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

    /// Logical pages that users see, each of `page_bytes`.
    pub fn capacity_pages(&self) -> u64 {
        u64::from(self.lpas)
    }

    /// Bytes of a logical page, which is a flash page.
    pub fn page_bytes(&self) -> u32 {
        self.geometry.page_bytes
    }

    /// Planes, which are numbered `die * planes + plane`.
    pub fn planes(&self) -> u32 {
        self.order.planes()
    }

    /// Program/erase cycles that a block is good for.
    pub(super) fn endurance_cycles(&self) -> u32 {
        self.endurance_cycles
    }

    /// Physical page of a logical page; `None` if it was never written, or trimmed: then the flash is not read.
    ///
    /// `ahead` pages behind it belong to the same request: their map entries come along. Flash operations for the map
    /// are appended to `map_ops`.
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

    /// Where a logical page lies, without counting as a read and whatever the map's cache holds.
    ///
    /// # Errors
    /// For a page beyond the capacity.
    pub fn place_of(&self, lpa: u64) -> Result<Option<PageAddress>, FtlError> {
        let page = self.map.get(self.owner_of(lpa)?);
        Ok((page != NOWHERE).then(|| self.place(page)))
    }

    /// Maps a logical page to a new physical page. Unless all of it is written (`whole`), its old content has to be
    /// read first, from `read_first`. `ahead`, `map_ops`: as in [`PageMapped::read`]. `load` returns the load of a die
    /// of the device, for dynamic striping.
    ///
    /// # Errors
    /// `OutOfRange`; `NotNow` while reclaim has to go on first; `NoSpace`. Nothing has changed then.
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

    /// Forgets `pages` logical pages from `lpa` on: they read as never written, and reclaim need not move them. Returns
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

    /// Writes what was changed of a cached map: one map page a call, its operations appended to `map_ops`. `false` if
    /// there is nothing left to write, or no page to write it to at this time.
    pub fn flush_map(&mut self, map_ops: &mut Vec<MapOp>) -> bool {
        let Some(page) = self.map_cache.as_ref().and_then(MapCache::any_changed) else { return false };
        self.write_map_page(page, map_ops)
    }

    /// Urgency of reclaim in a plane.
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

    /// Whether reclaim by threshold is due in a plane.
    pub(super) fn below_threshold(&self, plane: u32) -> bool {
        self.blocks.planes[plane as usize].free < self.threshold_blocks
    }

    fn owner_of(&self, lpa: u64) -> Result<u32, FtlError> {
        match lpa < u64::from(self.lpas) {
            true => Ok(lpa as u32),
            false => Err(FtlError::OutOfRange { lpa, capacity_pages: u64::from(self.lpas) }),
        }
    }

    /// The owner behind its number.
    pub(super) fn owner(&self, owner: u32) -> Owner {
        if owner < self.lpas { Owner::Page(u64::from(owner)) } else { Owner::Map(owner - self.lpas) }
    }

    /// A page's place.
    pub(super) fn place(&self, page: u32) -> PageAddress {
        let (block, in_block) = self.blocks.split(page);
        self.place_in(block, in_block)
    }

    /// The place of a page of a block of the device.
    pub(super) fn place_in(&self, block: u32, page: u32) -> PageAddress {
        let (plane, block) = self.blocks.split_block(block);
        let (die, plane) = self.by_planes.divide(plane);
        PageAddress { die, block, page: page as u16, plane: plane as u16 }
    }

    /// A place's page.
    ///
    /// # Panics
    /// If the device has no such place.
    pub(super) fn page(&self, place: PageAddress) -> u32 {
        let g = &self.geometry;
        let within = u32::from(place.plane) < g.planes && place.block < g.blocks && u32::from(place.page) < g.pages;
        assert!(within && place.die < g.dies_total(), "{place:?} is no place of the device");
        let plane = place.die * g.planes + u32::from(place.plane);
        (plane * g.blocks + place.block) * g.pages + u32::from(place.page)
    }

    /// Gives a page of a plane to an owner that lay at `old`, and maps it there; what it had before is dead.
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

    /// A page is dead.
    fn forget(&mut self, page: u32) {
        let (block, live, state) = self.blocks.forget(page);
        if state == BlockState::Closed {
            self.victims.less(block, live);
        }
    }

    /// Works out how many free blocks a plane keeps for reclaim and how many live pages it may have.
    ///
    /// When a stream finds no open block and fewer free ones than `floor`, at most `streams - 1` blocks are open; were
    /// all closed ones wholly live, there would be more live pages than `live_max`. So one of them has a dead page, and
    /// reclaim makes progress.
    pub(super) fn set_limits(&mut self, plane: u32) {
        let p = &mut self.blocks.planes[plane as usize];
        let least = super::blocks::KEPT_BLOCKS + 1;
        let share = self.lpas_asked.div_ceil(u64::from(self.order.planes()) * u64::from(self.geometry.pages)) as u32;
        let spare = p.good.saturating_sub(share + self.streams - 1);
        p.floor = self.urgent_blocks.clamp(least, spare.max(least));
        p.live_max = p.good.saturating_sub(p.floor + self.streams - 1) * self.geometry.pages;
        assert!(p.floor > super::blocks::KEPT_BLOCKS, "reclaim of plane {plane} has no block to move into");
    }

    /// Live pages that all planes together may have.
    pub(super) fn usable_pages(&self) -> u64 {
        self.blocks.planes.iter().map(|p| u64::from(p.live_max)).sum()
    }

    /// The plane that a page is written to.
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

    /// The next plane of the die that is being filled, or of the least busy one when that has had its pages: the plane
    /// that is furthest behind, so that the planes of a die stay at one page and are programmed together.
    ///
    /// A die has had its pages when each of its planes has had one; with one-shot programming, when each has had the
    /// rest of its word line. There the streams have dies of their own: a page of another stream does not count for a
    /// word line.
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

    /// The plane whose word line a stream has begun, where planes are chosen one by one.
    fn rest_of_word_line(&mut self, old: u32, stream: Stream) -> Option<u32> {
        let Filling { plane, left } = self.filling[stream as usize];
        if left == 0 {
            return None;
        }
        let goes_on = self.blocks.has_page(plane, stream) && self.fits(plane, old);
        self.filling[stream as usize].left = if goes_on { left - 1 } else { 0 };
        goes_on.then_some(plane)
    }

    /// Pages until the word lines that a stream is at are full, in those of `planes` planes from `first` on that are
    /// furthest behind; one a plane without one-shot programming.
    fn word_lines_left(&self, first: u32, planes: u32, stream: Stream) -> u32 {
        if self.word_line_pages == 1 {
            return planes;
        }
        let word_line = u64::from(self.word_line_pages);
        let given = || (first..first + planes).map(|plane| self.blocks.given(plane, stream));
        let behind = given().map(|n| n / word_line).min().unwrap_or(0);
        given().filter(|n| n / word_line == behind).map(|n| word_line - n % word_line).sum::<u64>() as u32
    }

    /// Pages that fill the word lines which the host's next page is part of: as many as a write buffer does well to
    /// hand over together. 1 without one-shot programming.
    pub fn word_lines_to_fill(&self) -> u32 {
        if self.word_line_pages == 1 {
            return 1;
        }
        match self.filling[Stream::Host as usize].left {
            0 => self.word_line_pages * self.geometry.planes,
            left => left,
        }
    }

    /// A plane for a page whose own has no room for more live pages: the one with the most.
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

    /// The error for a page that finds no room.
    pub(super) fn no_space(&self, owner: u32) -> FtlError {
        FtlError::NoSpace {
            lpa: u64::from(owner),
            live_pages: self.blocks.planes.iter().map(|p| u64::from(p.live)).sum(),
            usable_pages: self.usable_pages(),
            bad_blocks: self.blocks.planes.iter().map(|p| u64::from(self.geometry.blocks - p.good)).sum(),
        }
    }

    /// Whether a plane may have one more live page, which replaces one at `old`.
    fn fits(&self, plane: u32, old: u32) -> bool {
        let p = &self.blocks.planes[plane as usize];
        p.live < p.live_max
            || (p.live == p.live_max && old != NOWHERE && self.blocks.plane_of(self.blocks.block_of(old)) == plane)
    }

    /// Looks an entry of a cached map up, and makes room for it; `map_ops` gets the flash operations that this costs.
    fn look_up(&mut self, owner: u32, ahead: u32, map_ops: &mut Vec<MapOp>) {
        let Some(cache) = &mut self.map_cache else { return };
        if cache.touch(owner) {
            self.counts.map_hits += 1;
        } else {
            self.counts.map_misses += 1;
            let page = cache.page_of(owner);
            // Behind it first: the entry itself is the one used last.
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

    /// Reads and programs a map page; `false` if no plane has a page for it without reclaim.
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

/// Checks that geometry and settings are within what this flash management counts.
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
