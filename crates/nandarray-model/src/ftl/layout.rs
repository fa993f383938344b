//! Computes the state of a device after long random overwrites, without writing it.
//!
//! The number of live pages in each closed block is computed (`stationary`), the logical pages that they hold are a
//! permutation (`scatter`), and blocks, lists of victims and the counters of hot pages are set to match. Two
//! differences remain from a device that was really overwritten: no block is worn, and the blocks of a plane have the
//! average numbers of live pages, not random ones. The cost is the time to mark dead pages and a few bytes of memory a
//! block; later writes cost the same as on any device.

use super::blocks::{BlockState, LaidOut, Stream};
use super::scatter::Scatter;
use super::stationary::{Solver, normal};
use super::{LayOutError, PageMapped};
use crate::describe::GcPolicy;

/// At least one page in this many pages of closed blocks must be dead: with fewer dead pages, reclaim would program
/// hundreds of pages for each page of the host.
const DEAD_ONE_OF: u64 = 200;
/// Number of logical pages that are sampled to estimate the fraction of hot pages.
const SAMPLE: u32 = 1 << 12;

/// A stream of writes that has an open block.
#[derive(Clone, Copy, Debug)]
struct OpenStream {
    stream: Stream,
    /// Fraction of the host's writes that go to this stream; `None` for the stream of moved pages.
    share: Option<f64>,
    /// Number of pages of the open block that were assigned.
    next: u32,
}

/// The computed state of one plane.
struct PlaneInUse {
    laid: Vec<LaidOut>,
    free: Vec<u32>,
    /// For each closed block, the number of pages that the device programmed since it was closed.
    ages: Vec<u64>,
}

impl PageMapped {
    /// Brings an untouched device into the state that long uniform random overwrites of all its pages lead to. Counts
    /// of operations and wear stay 0.
    ///
    /// # Errors
    /// If that state is not known for such a device; it can be filled and overwritten instead.
    ///
    /// # Panics
    /// If the device was written.
    pub fn lay_out_used(&mut self, seed: u64) -> Result<(), LayOutError> {
        assert!(self.blocks.untouched(), "only a device that was never written is laid out");
        if self.map_cache.is_some() {
            return Err(LayOutError::CachedMap);
        }
        if let GcPolicy::WindowedGreedy(_) = self.victims.policy() {
            return Err(LayOutError::Policy { name: self.victims.policy().name() });
        }
        let mut chance = fastrand::Rng::with_seed(seed);
        let live = self.live_by_plane(&mut chance)?;
        let hot = self.hot_in_use(&mut chance);
        let mut solver = Solver::new(self.victims.policy(), self.geometry.pages);
        let mut planes: Vec<PlaneInUse> = Vec::new();
        let mut streams = Vec::new();
        for plane in 0..self.planes() {
            let again = match (self.order.dynamic, plane % self.geometry.planes, hot) {
                // Planes that are filled in turn are at the same page. The stream that a page of the host goes to
                // differs by die.
                (true, 0, Some(_)) => false,
                (true, _, _) => plane > 0,
                (false, _, _) => false,
            };
            if !again {
                streams = self.open_streams(hot, &mut chance);
            }
            planes.push(self.plane_in_use(plane, live[plane as usize], &streams, &mut solver, &mut chance)?);
        }
        let oldest = planes.iter().flat_map(|plane| &plane.ages).max().copied().unwrap_or(0);
        self.counts.given = u64::from(self.lpas) + oldest;
        for (plane, of) in (0..).zip(&planes) {
            self.blocks.lay_out(plane, &of.laid, &of.free);
            for (laid, age) in of.laid.iter().zip(&of.ages) {
                self.victims.closed(laid.block, laid.live as u16, self.counts.given - age);
            }
        }
        let shape = (self.planes(), self.geometry.blocks, self.geometry.pages);
        let lives = self.blocks.blocks.iter().map(|b| u32::from(b.live));
        let mut scatter = Scatter::new(shape, !self.order.dynamic, lives, &mut chance);
        for laid in planes.iter().flat_map(|plane| &plane.laid).filter(|laid| laid.open.is_some()) {
            // Pages that were written first have died first.
            scatter.in_order(laid.block, laid.next - laid.live);
        }
        self.blocks.lay_out_pages(&scatter, &self.map.fill);
        self.map.scatter(self.lpas, scatter);
        Ok(())
    }

    /// Returns the number of live pages of each plane. With static striping this is the plane's own pages; with
    /// dynamic striping planes are written in turn and lose pages at random, which gives a variance of half the mean
    /// (an Ornstein-Uhlenbeck process).
    fn live_by_plane(&self, chance: &mut fastrand::Rng) -> Result<Vec<u64>, LayOutError> {
        let (planes, all) = (self.planes(), u64::from(self.lpas));
        let mut live: Vec<u64> = (0..planes).map(|p| u64::from(self.map.fill.rows_of(p, self.lpas))).collect();
        let most = |plane: usize| u64::from(self.blocks.planes[plane].live_max);
        if let Some(plane) = (0..planes as usize).find(|&plane| live[plane] > most(plane)) {
            return Err(LayOutError::BadBlocks { plane: plane as u32, live: live[plane], room: most(plane) });
        }
        if self.order.dynamic && planes > 1 {
            for (plane, live) in live.iter_mut().enumerate() {
                let off = normal(chance) * (*live as f64 / 2.0).sqrt();
                *live = (*live as f64 + off).round().clamp(0.0, most(plane) as f64) as u64;
            }
            let mut sum: u64 = live.iter().sum();
            while sum != all {
                let plane = chance.usize(0..planes as usize);
                if sum < all && live[plane] < most(plane) {
                    (live[plane], sum) = (live[plane] + 1, sum + 1);
                } else if sum > all && live[plane] > 0 {
                    (live[plane], sum) = (live[plane] - 1, sum - 1);
                }
            }
        }
        Ok(live)
    }

    /// Counts random writes until the counters of hot pages are in their steady state; returns the fraction of pages
    /// then taken for hot, or `None` if hot pages are not detected.
    fn hot_in_use(&mut self, chance: &mut fastrand::Rng) -> Option<f64> {
        let lpas = self.lpas;
        let hot = self.hot.as_mut()?;
        for _ in 0..4 * hot.remembers() {
            hot.written(chance.u32(0..lpas));
        }
        let found = (0..SAMPLE).filter(|_| hot.is_hot(chance.u32(0..lpas))).count();
        Some(found as f64 / f64::from(SAMPLE))
    }

    /// Returns the streams that have open blocks, with a random number of pages written to each.
    fn open_streams(&self, hot: Option<f64>, chance: &mut fastrand::Rng) -> Vec<OpenStream> {
        let pages = self.geometry.pages;
        if pages < 2 {
            return Vec::new();
        }
        let hot = hot.unwrap_or(0.0);
        [(Stream::Host, Some(1.0 - hot)), (Stream::Hot, Some(hot)), (Stream::Moved, None)]
            .into_iter()
            .filter(|(_, share)| *share != Some(0.0))
            .map(|(stream, share)| OpenStream { stream, share, next: chance.u32(1..pages) })
            .collect()
    }

    /// Computes the state of one plane with `live` live pages.
    fn plane_in_use(
        &mut self,
        plane: u32,
        live: u64,
        streams: &[OpenStream],
        solver: &mut Solver,
        chance: &mut fastrand::Rng,
    ) -> Result<PlaneInUse, LayOutError> {
        let (pages, per_plane) = (self.geometry.pages, self.geometry.blocks);
        let p = &self.blocks.planes[plane as usize];
        // Reclaim stops at this number of free blocks, and resumes with the next block that is opened.
        let free = p.floor.max(self.threshold_blocks);
        let closed = p.good.saturating_sub(free + streams.len() as u32);
        let room = u64::from(closed) * u64::from(pages);
        if closed == 0 || live > room - room.div_ceil(DEAD_ONE_OF) {
            return Err(LayOutError::NoSpare { plane, live, closed, free, pages });
        }
        let amplification = solver.amplification(live as f64 / f64::from(closed));
        let first = plane * per_plane;
        let good = |b: &u32| self.blocks.blocks[*b as usize].state != BlockState::Bad;
        let mut blocks: Vec<u32> = (first..first + per_plane).filter(good).collect();
        if self.victims.policy() == GcPolicy::RoundRobin {
            // In the order of age: from the oldest block, at which round-robin continues, to those just erased.
            let begin = chance.usize(0..blocks.len());
            blocks.rotate_left(begin);
            self.victims.go_on_at(plane, blocks[0] - first);
        } else {
            chance.shuffle(&mut blocks);
        }
        let free = blocks.split_off(closed as usize + streams.len());
        let mut in_closed = live;
        let mut open = Vec::new();
        for (stream, &block) in streams.iter().zip(&blocks[closed as usize..]) {
            let next = if stream.stream == Stream::Moved { chance.u32(1..pages) } else { stream.next };
            // Number of host writes to the plane during which as many pages are written to this stream as the plane
            // has live pages.
            let lasts = live as f64 * stream.share.unwrap_or(amplification - 1.0).max(1e-6);
            let alive = (lasts * (1.0 - (-f64::from(next) / lasts).exp())).round().min(in_closed as f64) as u32;
            in_closed -= u64::from(alive);
            open.push(LaidOut { block, open: Some(stream.stream), next, live: alive });
        }
        let aged = solver.blocks(closed, in_closed, chance);
        let unit = live as f64 * f64::from(self.planes()) * amplification;
        let ages = aged.iter().map(|of| (of.age * unit) as u64).collect();
        let mut laid: Vec<LaidOut> = aged
            .iter()
            .zip(&blocks)
            .map(|(of, &block)| LaidOut { block, open: None, next: pages, live: of.live })
            .collect();
        laid.extend(open);
        Ok(PlaneInUse { laid, free, ages })
    }
}
