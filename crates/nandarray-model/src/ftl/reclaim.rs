//! Reclaim as jobs whose steps the caller executes: read this page, write it there, erase that block.
//!
//! A plane has one job at a time: a victim of garbage collection, a cold block for wear levelling, or a block that
//! failed. The caller gets the next operation from [`PageMapped::step`], performs it at any time, and completes each
//! move with [`PageMapped::relocate`] and each erase with [`PageMapped::erased`] or [`PageMapped::erase_failed`].
//! Between steps the host may read, write and trim any page, also those being moved; several moves may be in flight.
//! The caller pre-empts reclaim by not calling `step`.
//!
//! The last `KEPT_BLOCKS` free blocks of a plane are opened for moved pages only, and a victim has fewer live pages
//! than a block, so a job leaves at least as much room as it found. A block that fails reduces the room; pages are
//! then moved to other planes. If no plane has room, the job is abandoned: its pages stay readable where they are.

use super::blocks::{BlockState, EraseBlock, KEPT_BLOCKS, Stream};
use super::map::NOWHERE;
use super::{FtlError, Owner, PageMapped};
use crate::flash::{OpCause, PageAddress};

/// A job of reclaim or wear levelling in a plane.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReclaimJob {
    /// The block to be emptied; [`NOWHERE`] if there is no job.
    pub(super) block: u32,
    /// Page of the block at which the search for live pages continues.
    next: u16,
    /// Number of moves returned by `step` and not completed.
    pub(super) under_way: u16,
    cause: OpCause,
    /// Whether a move found no room: once the other moves are completed, the job is abandoned.
    stuck: bool,
    /// Whether a program in the block failed after all its pages had died: the block becomes bad once it is erased.
    doomed: bool,
}

impl ReclaimJob {
    pub(super) const NONE: Self =
        Self { block: NOWHERE, next: 0, under_way: 0, cause: OpCause::Gc, stuck: false, doomed: false };
}

/// A page to be moved: the caller reads it, then calls [`PageMapped::relocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Address from which the whole page must be read.
    pub from: PageAddress,
    /// Owner of the page.
    pub owner: Owner,
    /// Cause of the move: garbage collection or wear levelling.
    pub cause: OpCause,
}

/// Result of relocating a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The page must be programmed at this address.
    To(PageAddress),
    /// The page need not be programmed: it was overwritten or trimmed while it was being moved.
    Overwritten,
}

/// The next step of reclaim in a plane, for the caller to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReclaimStep {
    /// Read a page, then [`PageMapped::relocate`] it.
    Move(Move),
    /// Erase a block, then call [`PageMapped::erased`] or [`PageMapped::erase_failed`].
    Erase {
        /// Address of the block's first page.
        place: PageAddress,
        /// Cause of the erase: garbage collection or wear levelling.
        cause: OpCause,
    },
    /// Complete the moves and the erase in flight first.
    Wait,
    /// Nothing to do.
    Idle,
}

/// New address of a page whose program failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Address at which the page must be programmed.
    pub place: PageAddress,
    /// Owner of the page.
    pub owner: Owner,
}

impl PageMapped {
    /// Returns the next operation of reclaim in a plane; begins a job if there is none and one is due.
    pub fn step(&mut self, plane: u32) -> ReclaimStep {
        loop {
            let job = self.jobs[plane as usize];
            if job.block == NOWHERE {
                if self.begin(plane) {
                    continue;
                }
                return ReclaimStep::Idle;
            }
            let block = self.blocks.blocks[job.block as usize];
            if block.state == BlockState::Erasing {
                return ReclaimStep::Wait;
            }
            if job.stuck {
                if job.under_way > 0 {
                    return ReclaimStep::Wait;
                }
                self.give_up(plane);
                return ReclaimStep::Idle;
            }
            if block.live == 0 {
                if job.under_way > 0 {
                    return ReclaimStep::Wait;
                }
                if block.state == BlockState::Retiring {
                    self.blocks.bad(job.block);
                    self.jobs[plane as usize] = ReclaimJob::NONE;
                    continue;
                }
                assert_eq!(block.state, BlockState::Leaving, "an erase of block {}", job.block);
                self.blocks.blocks[job.block as usize].state = BlockState::Erasing;
                self.counts.erases[job.cause as usize] += 1;
                return ReclaimStep::Erase { place: self.place_in(job.block, 0), cause: job.cause };
            }
            let Some(page) = self.blocks.next_live(job.block, u32::from(job.next)) else {
                assert!(job.under_way > 0, "live pages of block {} that are not being moved", job.block);
                return ReclaimStep::Wait;
            };
            let job = &mut self.jobs[plane as usize];
            job.next = page as u16 + 1;
            job.under_way += 1;
            self.counts.reads[job.cause as usize] += 1;
            let (block, cause) = (job.block, job.cause);
            let from = self.place_in(block, page);
            let owner = self.blocks.owner_in(block, page, &self.map.fill);
            return ReclaimStep::Move(Move { from, owner: self.owner(owner), cause });
        }
    }

    /// Whether a page that is being moved was neither overwritten nor trimmed so far.
    pub fn is_current(&self, moved: &Move) -> bool {
        self.blocks.is_live(self.blocks.block_of(self.page(moved.from)), u32::from(moved.from.page))
    }

    /// Allocates a new address for a page that was read, unless it was overwritten meanwhile.
    ///
    /// # Errors
    /// `NoSpace` if no plane has room: the page stays where it is, live and readable, and the job is abandoned.
    ///
    /// # Panics
    /// If the page is not being moved.
    pub fn relocate(&mut self, moved: &Move) -> Result<Moved, FtlError> {
        let page = self.page(moved.from);
        let block = self.blocks.block_of(page);
        let plane = moved.from.die * self.geometry.planes + u32::from(moved.from.plane);
        let job = &mut self.jobs[plane as usize];
        assert!(job.block == block && job.under_way > 0, "{moved:?} is not under way");
        job.under_way -= 1;
        let owner = match moved.owner {
            Owner::Page(lpa) => lpa as u32,
            Owner::Map(page) => self.lpas + page,
        };
        // The block is not erased while one of its moves is in flight, so this is the page that was read.
        if !self.blocks.is_live(block, u32::from(moved.from.page)) {
            return Ok(Moved::Overwritten);
        }
        let Some(to) = self.spot(plane) else {
            self.jobs[plane as usize].stuck = true;
            return Err(self.no_space(owner));
        };
        let place = self.put_moved(to, owner, page);
        self.counts.programs[moved.cause as usize] += 1;
        Ok(Moved::To(place))
    }

    /// Records that a block was erased, which makes it free.
    ///
    /// # Panics
    /// If `step` did not request the erase.
    pub fn erased(&mut self, place: PageAddress) {
        let block = self.blocks.block_of(self.page(place));
        let plane = self.blocks.plane_of(block);
        let job = std::mem::replace(&mut self.jobs[plane as usize], ReclaimJob::NONE);
        assert!(job.block == block, "an erase of {place:?} that was not asked for");
        if job.doomed {
            self.retire_empty(plane, block);
            return;
        }
        self.blocks.erased(block);
        if job.cause == OpCause::Wear {
            // Wear levelling empties one cold block per erase of reclaim, so that it never occupies the flash alone.
            self.blocks.planes[plane as usize].wear_due = false;
        }
    }

    /// Records that an erase failed, which makes the block bad.
    ///
    /// # Panics
    /// If `step` did not request the erase.
    pub fn erase_failed(&mut self, place: PageAddress) {
        let block = self.blocks.block_of(self.page(place));
        let plane = self.blocks.plane_of(block);
        let job = std::mem::replace(&mut self.jobs[plane as usize], ReclaimJob::NONE);
        let state = self.blocks.blocks[block as usize].state;
        assert!(job.block == block && state == BlockState::Erasing, "an erase of {place:?} that was not asked for");
        self.retire_empty(plane, block);
    }

    fn retire_empty(&mut self, plane: u32, block: u32) {
        self.blocks.retire(block, BlockState::Retiring);
        self.blocks.bad(block);
        self.counts.grown_bad += 1;
        self.set_limits(plane);
    }

    /// Handles a failed program: its block is retired, and its live pages will be moved by a job of the plane. Returns
    /// a new address for the failed page itself; `None` if the page is no longer mapped there. `cause` is the failed
    /// program's.
    ///
    /// # Errors
    /// `NoSpace` if no plane has room. The page stays mapped to the address where it failed: the caller keeps its data
    /// and may call this again later.
    pub fn program_failed(&mut self, place: PageAddress, cause: OpCause) -> Result<Option<Renewed>, FtlError> {
        let page = self.page(place);
        let block = self.blocks.block_of(page);
        let plane = self.blocks.plane_of(block);
        let b = self.blocks.blocks[block as usize];
        match b.state {
            BlockState::Open | BlockState::Closed | BlockState::Leaving => {
                if b.state == BlockState::Closed {
                    self.victims.gone(block, b.live);
                }
                self.blocks.retire(block, BlockState::Retiring);
                self.counts.grown_bad += 1;
                self.set_limits(plane);
                debug_assert!(!self.blocks.planes[plane as usize].retiring.contains(&block));
                if self.jobs[plane as usize].block != block {
                    self.blocks.planes[plane as usize].retiring.push_back(block);
                }
            }
            BlockState::Erasing => self.jobs[plane as usize].doomed = true,
            BlockState::Retiring | BlockState::Free | BlockState::Bad => {}
        }
        if u32::from(place.page) >= u32::from(b.next) || b.live == 0 {
            return Ok(None);
        }
        let owner = self.blocks.owner(page, &self.map.fill);
        if self.map.get(owner) != page {
            return Ok(None);
        }
        let to = self.spot(plane).ok_or_else(|| self.no_space(owner))?;
        let place = self.put_moved(to, owner, page);
        self.counts.programs[cause as usize] += 1;
        Ok(Some(Renewed { place, owner: self.owner(owner) }))
    }

    /// Whether executing reclaim of a plane will give it free pages.
    pub(super) fn can_reclaim(&self, plane: u32) -> bool {
        let job = self.jobs[plane as usize];
        let emptiest = || self.victims.emptiest(plane, &self.blocks);
        (job.block != NOWHERE && !job.stuck) || emptiest().is_some_and(|b| self.can_empty(b))
    }

    /// Whether the live pages of a block will find room, as an estimate made before they are moved.
    fn can_empty(&self, block: u32) -> bool {
        let plane = self.blocks.plane_of(block);
        let live = u64::from(self.blocks.blocks[block as usize].live);
        live <= self.blocks.room(plane) || self.elsewhere(plane).is_some()
    }

    /// Begins the most urgent job of a plane; returns `false` if none is due or possible.
    fn begin(&mut self, plane: u32) -> bool {
        let p = &self.blocks.planes[plane as usize];
        let urgent = p.free < p.floor;
        if urgent {
            let picked = self.victims.pick(plane, &self.blocks, self.counts.given);
            let victim = picked.filter(|&b| self.can_empty(b));
            // A policy that draws blocks may have found no victim; any victim is good enough now.
            let emptiest = || self.victims.emptiest(plane, &self.blocks).filter(|&b| self.can_empty(b));
            if let Some(block) = victim.or_else(emptiest) {
                return self.leave(plane, block, OpCause::Gc);
            }
        }
        if let Some(&block) = self.blocks.planes[plane as usize].retiring.front() {
            let EraseBlock { live, state, .. } = self.blocks.blocks[block as usize];
            assert_eq!(state, BlockState::Retiring, "block {block}");
            if live == 0 || self.spot(plane).is_some() {
                self.blocks.planes[plane as usize].retiring.pop_front();
                self.jobs[plane as usize] = ReclaimJob { block, ..ReclaimJob::NONE };
                return true;
            }
        }
        if urgent {
            return false;
        }
        if self.blocks.planes[plane as usize].wear_due {
            match self.victims.cold(plane, &self.blocks) {
                Some(block) => return self.leave(plane, block, OpCause::Wear),
                None => self.blocks.planes[plane as usize].wear_due = false,
            }
        }
        if self.below_threshold(plane) {
            if let Some(block) = self.victims.pick(plane, &self.blocks, self.counts.given) {
                return self.leave(plane, block, OpCause::Gc);
            }
        }
        false
    }

    fn leave(&mut self, plane: u32, block: u32, cause: OpCause) -> bool {
        let b = &mut self.blocks.blocks[block as usize];
        assert_eq!((b.state, self.jobs[plane as usize].block), (BlockState::Closed, NOWHERE), "block {block}");
        b.state = BlockState::Leaving;
        self.victims.gone(block, b.live);
        self.jobs[plane as usize] = ReclaimJob { block, cause, ..ReclaimJob::NONE };
        true
    }

    /// Abandons a job that found no room; its block returns to its earlier state.
    fn give_up(&mut self, plane: u32) {
        let job = std::mem::replace(&mut self.jobs[plane as usize], ReclaimJob::NONE);
        let b = &mut self.blocks.blocks[job.block as usize];
        assert!(job.stuck && job.under_way == 0, "{job:?} is given up");
        if b.state == BlockState::Leaving {
            b.state = BlockState::Closed;
            self.victims.closed(job.block, b.live, self.counts.given);
        } else {
            self.blocks.planes[plane as usize].retiring.push_back(job.block);
        }
    }

    /// Returns the plane that a page of `plane` can be moved to: the same one, or another that has room to spare;
    /// `None` if no plane has room.
    fn spot(&self, plane: u32) -> Option<u32> {
        if self.blocks.has_page(plane, Stream::Moved) { Some(plane) } else { self.elsewhere(plane) }
    }

    /// Returns another plane that has more room than its own reclaim needs, the one with the most free blocks; `None`
    /// if there is none.
    fn elsewhere(&self, plane: u32) -> Option<u32> {
        (0..self.order.planes())
            .filter(|&p| p != plane && self.blocks.planes[p as usize].free > KEPT_BLOCKS)
            .max_by_key(|&p| (self.blocks.planes[p as usize].free, std::cmp::Reverse(p)))
    }

    fn put_moved(&mut self, plane: u32, owner: u32, from: u32) -> PageAddress {
        let page = self.put(plane, Stream::Moved, owner, from);
        if owner < self.lpas {
            if let Some(cache) = &mut self.map_cache {
                cache.change(owner);
            }
        }
        self.place(page)
    }
}
