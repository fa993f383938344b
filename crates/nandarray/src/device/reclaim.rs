//! Garbage collection: moves live pages out of segments whose pages are mostly dead, so that the segments can be
//! reused.
//!
//! The out-of-band records of a victim (the segment to empty) name the owners of its pages; a page is live if an index
//! of its owner still maps it: that of the space, or of a version that a snapshot keeps. It is moved in all of them at
//! once. Live pages are verified and copied to places that the placement policy chooses: under the paper's rules the
//! same channel and bank, for compaction adjacent places. They keep their command's sequence number. The index is
//! changed under the space's lock, so a reader sees the old page or the new one, with the same content. A segment with
//! a page that cannot be moved, because the page or its record is damaged, is retired and never reused.
//!
//! A full disk is handled without moving pages, which would need room first: the disk blocks of dead pages are
//! deallocated in place (`discard_dead`).
//!
//! Reclaim runs on the thread of the command that made it due, before or after the command's own work, never during it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Device;
use crate::error::{Error, Result};
use crate::flash::{Owner, Ppa, Run, Segment};
use crate::ftl::Reservation;
use crate::ftl::segments::SegmentState;
use crate::sim::Purpose;
use crate::stl::index::BlockMap;
use crate::stl::plan::BlockAt;
use crate::stl::space::{Space, SpaceId, owner_space, unpack};
use crate::stl::write::{Gone, RUN_JOURNAL_BYTES, Staged};

/// Largest number of victims that one command reclaims, which bounds the time that the command waits.
const VICTIMS_A_COMMAND: usize = 4;

/// Number of segments whose dead pages are deallocated at once on a full disk; more if these hold less than half of all
/// dead pages.
const SEGMENTS_DISCARDED_AT_ONCE: usize = 16;

/// The choice of new places for moved pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveTo {
    /// The places that overwriting the pages would choose: under the paper's rules on the same channel and bank.
    SameLanes,
    /// The places that new pages would get: adjacent to each other.
    NextPlaces,
}

/// Pages in a victim that belong to one block and one command: (access unit, page).
type BlockPages = Vec<(u32, Ppa)>;

impl Device {
    /// Reserves pages for a command; reclaims, and at last shortens the journal, if there are not enough.
    pub(super) fn reserve(&self, pages: u64) -> Result<Reservation<'_>> {
        let (mut last, mut journal_is_short) = (None, false);
        loop {
            let full = match self.ftl.reserve(pages, false) {
                Ok(promise) => return Ok(promise),
                Err(full) => full,
            };
            let _reclaim = self.reclaim.lock();
            let usage = self.ftl.usage();
            let state = (usage.free, usage.garbage_pages, usage.pending_free);
            if last == Some(state) {
                if std::mem::replace(&mut journal_is_short, true) {
                    return Err(full);
                }
                self.shorten_journal()?;
                continue;
            }
            last = Some(state);
            // Dead pages may only wait for a barrier; if that does not free enough, live ones are moved.
            self.commit_and_free()?;
            if self.ftl.reserve(pages, false).is_err() {
                self.reclaim_some(&|| true)?;
                self.commit_and_free()?;
            }
        }
    }

    /// Reserves pages and runs `stage`, which writes blocks to them. If the disk is full nevertheless, frees room and
    /// runs `stage` again, for as long as there is room to free.
    pub(super) fn stage_in(&self, pages: u64, stage: &mut dyn FnMut() -> Result<Vec<Staged>>) -> Result<Vec<Staged>> {
        let _pages = self.reserve(pages)?;
        loop {
            let staged = stage().and_then(|staged| {
                // The journal record of a change must fit on the disk before the change is applied.
                let held = self.hold_journal(staged.iter().map(Staged::journal_bytes).sum());
                held.inspect_err(|_| staged.iter().for_each(|s| self.ftl.abandon(&s.runs))).map(|()| staged)
            });
            match staged {
                Err(full @ Error::Full { .. }) => {
                    if !self.make_room()? {
                        return Err(full);
                    }
                }
                done => return done,
            }
        }
    }

    /// Makes room on a full disk; returns whether a segment became free or disk blocks of dead pages were deallocated.
    pub(super) fn make_room(&self) -> Result<bool> {
        let counts = || self.ftl.with_segments(|s| (s.freed(), s.free().len()));
        let _reclaim = self.reclaim.lock();
        let (freed, free) = counts();
        let made = self.commit_and_free().and_then(|()| Ok(counts().0 > freed || self.discard_dead()?));
        match made {
            // A commit that found no room opens segments, and they are free again: that is no room.
            Err(Error::Full { .. }) => Ok(counts().1 > free),
            made => made,
        }
    }

    /// Deallocates the disk blocks of dead pages that lie between live ones; returns whether there were any. Each page
    /// is deallocated once, so repeated calls end.
    fn discard_dead(&self) -> Result<bool> {
        if self.ftl.with_segments(|s| s.with_dead_room().is_empty()) {
            return Ok(false);
        }
        let _commit = self.commit.lock();
        // No page dies while the epoch is held exclusively.
        let _epoch = self.epoch.write();
        self.whole()?;
        self.drain()?;
        // The first record contains the changes by which pages died, the second one that the first is durable.
        for always in [false, true] {
            let lsn = {
                let mut log = self.log.lock();
                self.write_record(&mut log, always)?;
                log.last_lsn()
            };
            self.barrier(lsn)?;
        }
        let some = self.ftl.with_segments(|s| s.with_dead_room());
        let half = some.iter().map(|&(dead, _)| u64::from(dead)).sum::<u64>() / 2;
        let (mut sum, mut all) = (0, Vec::new());
        for (i, &(dead, segment)) in some.iter().enumerate() {
            if i >= SEGMENTS_DISCARDED_AT_ONCE && sum >= half {
                break;
            }
            sum += u64::from(dead);
            all.push((segment, self.for_purpose(Purpose::Reclaim, || self.dead_of(segment))?));
        }
        Ok(!all.is_empty() && self.ftl.discard_dead(&all).inspect_err(|e| self.note_refusal(e))?)
    }

    /// Returns the dead pages of a closed segment; none if not all of its live pages can be identified.
    fn dead_of(&self, segment: Segment) -> Result<Vec<Run>> {
        let geometry = self.geometry();
        let mut dead = vec![true; geometry.pages_per_segment() as usize];
        let mut found = 0;
        for (_, ppa) in self.live_of(segment)?.into_values().flatten() {
            assert_eq!(geometry.segment_of(ppa), segment, "live page {}", ppa.0);
            dead[geometry.page_in_segment(ppa) as usize] = false;
            found += 1;
        }
        if found != self.ftl.with_segments(|s| s.info(segment).live) {
            return Ok(vec![]);
        }
        let pages: Vec<u32> = (0..).zip(dead).filter_map(|(page, dead)| dead.then_some(page)).collect();
        let runs = pages.chunk_by(|a, b| a + 1 == *b);
        Ok(runs.map(|run| Run { unit: 0, count: run.len() as u32, ppa: geometry.ppa(segment, run[0]) }).collect())
    }

    pub(super) fn reclaim_if_due(&self) -> Result<()> {
        if self.ftl.wants_reclaim() {
            // One thread reclaims at a time; the others continue with their commands.
            let Some(_reclaim) = self.reclaim.try_lock() else { return Ok(()) };
            self.reclaim_some(&|| self.ftl.wants_reclaim())?;
            self.commit(false)?;
        }
        if self.ftl.wants_barrier() {
            self.commit(true)?;
        }
        Ok(())
    }

    /// Empties victims that the policy chooses, while `wanted` is true and their live pages fit into one segment in
    /// all: the victims become free only after a barrier, and the segments kept for reclaim must suffice until then.
    /// The caller holds the reclaim lock.
    fn reclaim_some(&self, wanted: &dyn Fn() -> bool) -> Result<()> {
        let mut room = self.geometry().pages_per_segment();
        for _ in 0..VICTIMS_A_COMMAND {
            let Some(victim) = self.ftl.victim().filter(|_| wanted()) else { break };
            let live = self.ftl.with_segments(|s| s.info(victim).live);
            if live > room {
                break;
            }
            room -= live;
            self.empty(victim, MoveTo::SameLanes)?;
        }
        Ok(())
    }

    /// Moves all live pages out of a segment, to places chosen by `to`.
    fn empty(&self, victim: Segment, to: MoveTo) -> Result<()> {
        self.for_purpose(Purpose::Reclaim, || self.move_all(victim, to))
    }

    /// Moves all live pages out of a segment to adjacent places, for compaction.
    pub(super) fn empty_densely(&self, victim: Segment) -> Result<()> {
        self.empty(victim, MoveTo::NextPlaces)
    }

    fn move_all(&self, victim: Segment, to: MoveTo) -> Result<()> {
        let mut all_moved = true;
        for ((id, at, seq), group) in self.live_of(victim)? {
            let versions = self.catalog.read().versions(id);
            let Some(space) = versions.first() else { continue };
            match self.move_group((space, versions.len() > 1), &at, seq, &group, to) {
                Ok(()) => {}
                Err(Error::Checksum { .. }) => all_moved = false,
                Err(Error::Closed(_)) => {} // deleted meanwhile
                Err(e) => return Err(e),
            }
        }
        let left = self.ftl.with_segments(|s| *s.info(victim));
        if left.live > 0 && left.state == SegmentState::Closed && (!all_moved || self.live_of(victim)?.is_empty()) {
            // Live pages that cannot be found or moved: the segment is retired and kept as it is.
            self.ftl.with_segments(|s| s.retire(victim));
        }
        Ok(())
    }

    /// Returns the live pages of a segment, grouped by the block of a space and command, in a deterministic order.
    fn live_of(&self, victim: Segment) -> Result<BTreeMap<(SpaceId, BlockAt, u64), BlockPages>> {
        let geometry = self.geometry();
        let mut groups: BTreeMap<(SpaceId, BlockAt, u64), BlockPages> = BTreeMap::new();
        // The versions of the last page's space: pages of one space are next to each other.
        let mut versions: (Option<SpaceId>, Vec<Arc<Space>>) = (None, vec![]);
        for (page, record) in self.ftl.oob_of_segment(victim)?.into_iter().enumerate() {
            let Some(record) = record else { continue };
            let (ppa, owner) = (geometry.ppa(victim, page as u32), record.owner());
            let (id, spilled) = owner_space(&owner);
            if versions.0 != Some(id) {
                versions = (Some(id), self.catalog.read().versions(id));
            }
            let unit = u32::from(owner.unit);
            let at_in = |space: &Arc<Space>| {
                let inner = space.read().ok()?;
                if !spilled {
                    return unpack(&owner.key, space.shape.block.len())
                        .filter(|at| inner.index().get(at).and_then(|m| m.page_of(unit)) == Some(ppa));
                }
                // The record has only a hash of the coordinate; the index knows which block maps the page.
                let mut found = None;
                inner.index().for_each(&mut |at, map| {
                    if map.page_of(unit) == Some(ppa) {
                        found = Some(BlockAt::from_slice(at));
                    }
                });
                found
            };
            if let Some(at) = versions.1.iter().find_map(at_in) {
                groups.entry((id, at, record.seq())).or_default().push((unit, ppa));
            }
        }
        groups.values_mut().for_each(|g| g.sort_unstable());
        Ok(groups)
    }

    /// Moves pages of one block; `shared` is whether there are several versions of its space.
    fn move_group(
        &self,
        (space, shared): (&Space, bool),
        at: &BlockAt,
        seq: u64,
        group: &BlockPages,
        to: MoveTo,
    ) -> Result<()> {
        assert!(!group.is_empty() && group.is_sorted_by(|a, b| a.0 < b.0), "pages of block {at:?}: {group:?}");
        let page = self.geometry().page_bytes as usize;
        let last = group.last().map_or(0, |g| g.0) as usize;
        let mut block = vec![0; (last + 1) * page];
        let owner = space.owner(at);
        for &(unit, ppa) in group {
            let bytes = &mut block[unit as usize * page..][..page];
            let run = Run { unit, count: 1, ppa };
            self.ftl
                .fetch(run, Owner { unit: unit as u16, ..owner }, bytes)
                .map_err(|e| space.page_error(&space.peek().record.name, at, e))?;
        }
        let runs_bytes = 2 * group.len() as u64 * RUN_JOURNAL_BYTES;
        self.hold_journal(Staged::releasing(at.clone(), seq).journal_bytes() + runs_bytes)?;
        let writes: Vec<_> =
            group.iter().map(|&(unit, ppa)| (unit, (to == MoveTo::SameLanes).then_some(ppa))).collect();
        let runs = self.ftl.append(owner, seq, &block, &writes, &mut std::iter::empty())?;
        if shared || space.frozen.is_some() {
            let from = group.iter().map(|&(unit, ppa)| Run { unit, count: 1, ppa }).collect();
            return self.move_in_versions(space.origin, at, seq, (from, runs)).map(drop);
        }
        let gone = Gone::Units(group.iter().map(|&(unit, _)| unit..unit + 1).collect());
        // A page may have been overwritten since it was read; the others are found when the segment is examined again.
        let is_unchanged = |now: Option<&BlockMap>| {
            group.iter().all(|&(unit, ppa)| now.and_then(|map| map.page_of(unit)) == Some(ppa))
        };
        self.replace_pages(space, at, seq, (gone, runs), is_unchanged).map(drop)
    }

    /// Writes two checkpoints, which begin a new journal and free the segments of both earlier generations.
    fn shorten_journal(&self) -> Result<()> {
        for _ in 0..2 {
            let _commit = self.commit.lock();
            let _epoch = self.epoch.write();
            let mut log = self.log.lock();
            if !log.has_pending() {
                self.checkpoint(&mut log)?;
            }
        }
        Ok(())
    }

    /// Returns the number of bytes in the write buffer.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes.load(Ordering::Relaxed)
    }
}
