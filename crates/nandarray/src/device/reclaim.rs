//! Garbage collection: moving live pages out of segments that are mostly dead.
//!
//! A victim's out-of-band records name the owners of its pages; a page is live if its owner's index still maps it. Live
//! pages are copied, verified, to places that the placement policy gives (the same channel and bank under the paper's
//! rules; by compaction, which has level lanes before it, side by side), keep their command's number, and the index
//! changes hands under the space's lock: a reader sees the old page or the new one, which are the same. A segment with
//! a page that cannot be moved (damaged, or its record is) is retired, never erased.
//!
//! A disk that is full needs no moving: dead pages give it their room where they lie (`discard_dead`), and moving would
//! need room first.
//!
//! Reclaim runs on the thread of the command that made it due, before or after it, never within.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::Device;
use super::defragment::pages_of;
use super::wire::{JournalOp, Update};
use crate::error::{Error, Result};
use crate::flash::{Owner, Ppa, Run, Segment};
use crate::ftl::Reservation;
use crate::ftl::segments::SegmentState;
use crate::sim::{Purpose, count};
use crate::stl::plan::BlockAt;
use crate::stl::space::{Space, SpaceId, owner_space, unpack};
use crate::stl::write::{Gone, RUN_JOURNAL_BYTES, Staged, remap};

/// Victims taken when reclaim is due after a command: bounds the time that one command pays.
const VICTIMS_A_COMMAND: usize = 4;

/// Segments whose dead pages are given to a full disk at once; more if they are less than half of what there is.
const SEGMENTS_DISCARDED_AT_ONCE: usize = 16;

/// Destination of moved pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveTo {
    /// As if they were overwritten: under the paper's rules to the channel and bank that they were on.
    SameLanes,
    /// As if they were new: side by side.
    NextPlaces,
}

/// Pages of one block in a victim, written by one command: (unit, page).
type BlockPages = Vec<(u32, Ppa)>;

impl Device {
    /// Promises pages, making room if there is not enough.
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
            // Dead pages may only wait for a barrier; if that is not enough, live ones are moved.
            self.commit_and_free()?;
            if self.ftl.reserve(pages, false).is_err() {
                self.reclaim_some(&|| true)?;
                self.commit_and_free()?;
            }
        }
    }

    /// Promises pages and stages the blocks that take them. The disk may have less room than was promised: garbage is
    /// collected then, and staging tried again for as long as that frees anything.
    pub(super) fn stage_in(&self, pages: u64, stage: &mut dyn FnMut() -> Result<Vec<Staged>>) -> Result<Vec<Staged>> {
        let _pages = self.reserve(pages)?;
        loop {
            let staged = stage().and_then(|staged| {
                // A change that is applied has to fit into the journal.
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

    /// Makes room on a full disk; returns whether a segment became free, or dead pages gave up theirs.
    pub(super) fn make_room(&self) -> Result<bool> {
        let freed = || self.ftl.with_segments(|s| s.freed());
        let _reclaim = self.reclaim.lock();
        let before = freed();
        let made = self.commit_and_free().and_then(|()| Ok(freed() > before || self.discard_dead()?));
        match made {
            Err(Error::Full { .. }) => Ok(freed() > before),
            made => made,
        }
    }

    /// Gives the room of dead pages between live ones back to the disk; returns whether there were any. Each page is
    /// given back once, so it ends.
    fn discard_dead(&self) -> Result<bool> {
        if self.ftl.with_segments(|s| s.with_dead_room().is_empty()) {
            return Ok(false);
        }
        let _commit = self.commit.lock();
        // No page dies meanwhile.
        let _epoch = self.epoch.write();
        self.whole()?;
        self.drain()?;
        // The first record says which pages are dead, the second one that the first is durable.
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

    /// The pages of a closed segment that are not live; none if not all that are live can be found.
    fn dead_of(&self, segment: Segment) -> Result<Vec<Run>> {
        let geometry = self.geometry();
        let mut dead = vec![true; geometry.pages_per_segment() as usize];
        let mut found = 0;
        for (_, ppa) in self.live_of(segment)?.into_values().flatten() {
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
            // One thread at a time; the others go on.
            let Some(_reclaim) = self.reclaim.try_lock() else { return Ok(()) };
            self.reclaim_some(&|| self.ftl.wants_reclaim())?;
            self.commit(false)?;
        }
        if self.ftl.wants_barrier() {
            self.commit(true)?;
        }
        Ok(())
    }

    /// Empties segments that the policy chooses, no more than fit into one: they are free only after a barrier, and the
    /// reserve must do until then. The caller holds the reclaim lock.
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

    /// Moves every live page out of a segment.
    fn empty(&self, victim: Segment, to: MoveTo) -> Result<()> {
        self.for_purpose(Purpose::Reclaim, || self.move_all(victim, to))
    }

    /// The same with the pages side by side: for compaction.
    pub(super) fn empty_densely(&self, victim: Segment) -> Result<()> {
        self.empty(victim, MoveTo::NextPlaces)
    }

    fn move_all(&self, victim: Segment, to: MoveTo) -> Result<()> {
        let mut all_moved = true;
        for ((id, at, seq), group) in self.live_of(victim)? {
            let Some(space) = self.catalog.read().by_id.get(&id).cloned() else { continue };
            match self.move_group(&space, &at, seq, &group, to) {
                Ok(()) => {}
                Err(Error::Checksum { .. }) => all_moved = false,
                Err(Error::Closed(_)) => {} // deleted meanwhile
                Err(e) => return Err(e),
            }
        }
        let left = self.ftl.with_segments(|s| *s.info(victim));
        if left.live > 0 && left.state == SegmentState::Closed && (!all_moved || self.live_of(victim)?.is_empty()) {
            // Live pages that cannot be found or moved: the segment is kept as it is.
            self.ftl.with_segments(|s| s.retire(victim));
        }
        Ok(())
    }

    /// The live pages of a segment, by block and command, in an order that depends on nothing else.
    fn live_of(&self, victim: Segment) -> Result<BTreeMap<(SpaceId, BlockAt, u64), BlockPages>> {
        let geometry = self.geometry();
        let mut groups: BTreeMap<(SpaceId, BlockAt, u64), BlockPages> = BTreeMap::new();
        for (page, record) in self.ftl.oob_of_segment(victim)?.into_iter().enumerate() {
            let Some(record) = record else { continue };
            let (ppa, owner) = (geometry.ppa(victim, page as u32), record.owner());
            let (id, spilled) = owner_space(&owner);
            let Some(space) = self.catalog.read().by_id.get(&id).cloned() else { continue };
            let Ok(inner) = space.read() else { continue };
            let unit = u32::from(owner.unit);
            let at = if spilled {
                // The record has only a hash of the coordinate; the index knows which block maps the page.
                let mut found = None;
                inner.index().for_each(&mut |at, map| {
                    if map.page_of(unit) == Some(ppa) {
                        found = Some(BlockAt::from_slice(at));
                    }
                });
                found
            } else {
                unpack(&owner.key, space.shape.block.len())
                    .filter(|at| inner.index().get(at).and_then(|m| m.page_of(unit)) == Some(ppa))
            };
            if let Some(at) = at {
                groups.entry((id, at, record.seq())).or_default().push((unit, ppa));
            }
        }
        groups.values_mut().for_each(|g| g.sort_unstable());
        Ok(groups)
    }

    fn move_group(&self, space: &Space, at: &BlockAt, seq: u64, group: &BlockPages, to: MoveTo) -> Result<()> {
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
        self.hold_journal(Staged::releasing(at.clone(), seq).journal_bytes() + group.len() as u64 * RUN_JOURNAL_BYTES)?;
        let writes: Vec<_> =
            group.iter().map(|&(unit, ppa)| (unit, (to == MoveTo::SameLanes).then_some(ppa))).collect();
        let runs = self.ftl.append(owner, seq, &block, &writes, &mut std::iter::empty())?;
        let _epoch = self.epoch.read();
        let mut inner = match space.write() {
            Ok(inner) => inner,
            Err(e) => {
                self.ftl.abandon(&runs);
                return Err(e);
            }
        };
        let map = inner.index().get(at);
        if !group.iter().all(|&(unit, ppa)| map.and_then(|m| m.page_of(unit)) == Some(ppa)) {
            // Overwritten meanwhile; the rest of these pages is found when the segment is examined again.
            self.ftl.abandon(&runs);
            return Ok(());
        }
        let gone = Gone::Units(group.iter().map(|&(unit, _)| unit..unit + 1).collect());
        let dead = remap(&mut inner, at, &gone, &runs);
        self.ftl.adopt(&runs);
        assert_eq!(pages_of(&dead), pages_of(&runs), "as many pages die as are moved, block {at:?}");
        let update = Update::new(space.id, seq, at, &gone, &runs);
        let mut log = self.log.lock();
        log.queue([JournalOp::Update(update)]);
        self.ftl.release(dead.into_iter());
        count(&self.counters.pages_moved, group.len() as u64);
        Ok(())
    }

    /// Begins a new journal; twice, so that the generation before releases its segments, too.
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

    /// Bytes in the write buffer.
    pub fn buffered_bytes(&self) -> usize {
        self.buffered_bytes.load(Ordering::Relaxed)
    }
}
