//! Compaction: live pages in as few segments as they need, at the front of the medium, and the medium cut behind them.
//!
//! Blocks that lie apart are brought together first (`defragment`). Then segments that are not full are emptied into
//! others, the journal begins anew with a single generation of metadata, and segments behind free ones move to the
//! front. Each step is a command of its own to recovery; each needs room that the ones before it made, so the
//! medium may grow meanwhile. It is not longer afterwards: where nothing would become shorter nothing is moved, which
//! makes a second call do nothing.
//!
//! Beside readers nothing can be freed, and nothing is moved.
//!
//! Free segments that cannot be cut off, because something behind them is needed, give their room back to the disk.

use super::Device;
use crate::error::{Error, Result};
use crate::flash::Segment;
use crate::ftl::segments::SegmentState::{Chain, Closed, Open};

/// Rounds of moving to the front: metadata makes way for pages, and these for metadata.
const ROUNDS: usize = 4;
/// Segments that are emptied between two commits.
const VICTIMS_AT_ONCE: usize = 16;
/// Times that packing goes on after the disk was full.
const TRIES_ON_A_FULL_DISK: usize = 8;

impl Device {
    /// Compacts the store; returns the bytes by which the medium is shorter.
    pub(super) fn compact(&self) -> Result<u64> {
        self.sound()?;
        let before = self.ftl.media().len();
        // Moving takes room before it gives any: a full disk gets the room of dead pages first, and again whenever it
        // is full.
        self.give_dead_room()?;
        let mut packed = self.pack();
        for _ in 0..TRIES_ON_A_FULL_DISK {
            if !matches!(packed, Err(Error::Full { .. })) || !self.give_dead_room()? {
                break;
            }
            packed = self.pack();
        }
        self.truncate()?;
        self.ftl.discard_free()?;
        let freed = before.saturating_sub(self.ftl.media().len());
        match packed {
            Err(Error::Full { .. }) if freed > 0 => Ok(freed),
            packed => packed.map(|()| freed),
        }
    }

    /// Gives the room of free segments and dead pages back to a full disk; returns whether there was any.
    fn give_dead_room(&self) -> Result<bool> {
        if !self.ftl.is_tight() {
            return Ok(false);
        }
        let mut some = self.ftl.discard_free()?;
        // Each dead page is given once, so this ends.
        while self.make_room()? {
            some = true;
        }
        Ok(some)
    }

    fn pack(&self) -> Result<()> {
        // Nothing is freed beside readers: moved pages would only be there twice.
        if !self.ftl.media().if_no_readers(&mut || Ok(()))? {
            return self.commit_with_room(true);
        }
        if self.is_as_compaction_left_it() {
            return Ok(());
        }
        let apart = self.anything_apart()?;
        {
            let _reclaim = self.reclaim.lock();
            self.commit_and_free()?;
            if !apart && self.is_packed() {
                return Ok(());
            }
        }
        // Level lanes: pages that are written one after the other lie so, too.
        self.ftl.close_open();
        self.defragment()?;
        let _reclaim = self.reclaim.lock();
        self.commit_and_free()?;
        self.fill_segments()?;
        if !self.has_least_metadata() {
            self.only_generation()?;
        }
        for _ in 0..ROUNDS {
            self.move_to_front()?;
            if !self.metadata_fits_in_front() {
                break;
            }
            self.only_generation()?;
        }
        // An empty journal is the mark that nothing was written since. Metadata goes behind the pages first, then back
        // in front.
        for _ in 0..2 {
            if self.log.lock().has_records() || self.metadata_fits_in_front() {
                self.only_generation()?;
            }
        }
        Ok(())
    }

    /// Whether nothing was written since the store was compacted, or made.
    fn is_as_compaction_left_it(&self) -> bool {
        let nothing_new = self.log.lock().is_as_checkpointed();
        let pending_free = self.ftl.with_segments(|s| s.pending_free());
        nothing_new && pending_free == 0 && self.buffered_bytes() == 0 && self.has_least_metadata()
    }

    /// Whether packing would not make the medium shorter.
    fn is_packed(&self) -> bool {
        let per_segment = u64::from(self.geometry().pages_per_segment());
        let (used, live) = self.ftl.with_segments(|s| {
            let data = s.infos().iter().filter(|i| matches!(i.state, Open | Closed));
            data.fold((0, 0), |(n, live), i| (n + 1, live + u64::from(i.live + i.staged)))
        });
        used <= live.div_ceil(per_segment)
            && self.has_least_metadata()
            && self.behind_free().is_none()
            && !self.metadata_fits_in_front()
    }

    /// Whether the checkpoint and a journal of one segment are all the metadata that there is.
    fn has_least_metadata(&self) -> bool {
        self.log.lock().has_least_metadata()
    }

    /// Whether metadata could be written anew in front of where its last segment is.
    fn metadata_fits_in_front(&self) -> bool {
        let needed = self.log.lock().checkpoint_segments() + 1;
        self.ftl.with_segments(|s| {
            let last = s.infos().iter().rposition(|i| i.state == Chain);
            last.is_some_and(|last| s.free().range(..last as Segment).count() >= needed)
        })
    }

    /// The last segment with pages, if there is a free one in front of it; whether it is open.
    fn behind_free(&self) -> Option<(Segment, bool)> {
        self.ftl.with_segments(|s| {
            let data = |i: &crate::ftl::segments::SegmentInfo| matches!(i.state, Open | Closed) && i.staged == 0;
            let last = s.infos().iter().rposition(data)? as Segment;
            (*s.free().first()? < last).then(|| (last, s.info(last).state == Open))
        })
    }

    /// Empties segments that are not full into others; each round's dead segments are the next one's room.
    fn fill_segments(&self) -> Result<()> {
        self.ftl.close_open();
        self.commit_and_free()?;
        for _ in 0..64 {
            let victims = self.ftl.with_segments(|s| s.emptiest_first());
            if victims.len() < 2 {
                break;
            }
            let mut room = match self.capacity_bytes {
                0 => u64::MAX,
                _ => self.ftl.usage().free.saturating_sub(2).max(1) * u64::from(self.geometry().pages_per_segment()),
            };
            let mut moved = 0;
            for &victim in victims.iter().take(VICTIMS_AT_ONCE) {
                let live = u64::from(self.ftl.with_segments(|s| s.info(victim).live));
                if live > room {
                    break;
                }
                room -= live;
                self.empty_densely(victim)?;
                moved += 1;
            }
            self.commit_and_free()?;
            if moved < 2 {
                break;
            }
        }
        Ok(())
    }

    /// Moves segments at the end to free places in front.
    fn move_to_front(&self) -> Result<()> {
        while let Some((last, open)) = self.behind_free() {
            if open {
                self.ftl.close_open();
            }
            let live = self.ftl.with_segments(|s| s.info(last).live);
            self.empty_densely(last)?;
            self.commit_and_free()?;
            if live > 0 && self.ftl.with_segments(|s| s.info(last).live) >= live {
                break;
            }
        }
        Ok(())
    }
}
