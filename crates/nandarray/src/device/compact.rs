//! Compaction: moves live pages into as few segments as possible, at the front of the medium, and truncates the medium.
//!
//! Fragmented blocks are rewritten first (`defragment`). Then partly filled segments are emptied into others, a
//! checkpoint leaves only one generation of metadata, and segments that follow free ones move to the front. Each step
//! is committed by itself, so recovery may find any number of them done. A step needs room that the steps before it
//! made, so the medium may grow in between. It never ends longer than it began: if nothing would become shorter nothing
//! is moved, so a second compaction does nothing.
//!
//! While another process reads the store no space can be reused, so nothing is moved.
//!
//! Free segments that cannot be truncated, because segments in use follow them, have their disk blocks deallocated.

use super::Device;
use crate::error::{Error, Result};
use crate::flash::Segment;
use crate::ftl::segments::SegmentState::{Chain, Closed, Open};

/// Largest number of rounds of moving segments to the front; a round moves data pages, then metadata.
const ROUNDS: usize = 4;
/// Largest number of segments that are emptied between two commits.
const VICTIMS_AT_ONCE: usize = 16;
/// Largest number of times that moving pages together is tried again after the disk was full.
const TRIES_ON_A_FULL_DISK: usize = 8;

impl Device {
    /// Compacts the store; returns the number of bytes by which the medium shrank.
    pub(super) fn compact(&self) -> Result<u64> {
        self.sound()?;
        let before = self.ftl.media().len();
        // Moving pages takes room before it frees any: on a full disk the disk blocks of dead pages are deallocated
        // first, and again each time the disk is full.
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

    /// Deallocates the disk blocks of free segments and dead pages if the disk is full; returns whether any were
    /// deallocated.
    fn give_dead_room(&self) -> Result<bool> {
        if !self.ftl.is_tight() {
            return Ok(false);
        }
        let mut some = self.ftl.discard_free()?;
        // Each dead page is deallocated once, so the loop ends.
        while self.make_room()? {
            some = true;
        }
        Ok(some)
    }

    fn pack(&self) -> Result<()> {
        // Beside readers no space is freed: moved pages would exist twice.
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
        // Closes all lanes, so that pages written one after the other from here on are also adjacent.
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
        // An empty journal marks a store to which nothing was written since compaction. The first turn moves the
        // metadata after the data pages, the second one back before them.
        for _ in 0..2 {
            if self.log.lock().has_records() || self.metadata_fits_in_front() {
                self.only_generation()?;
            }
        }
        Ok(())
    }

    /// Whether nothing was written since the store was compacted or created.
    fn is_as_compaction_left_it(&self) -> bool {
        let nothing_new = self.log.lock().is_as_checkpointed();
        let pending_free = self.ftl.with_segments(|s| s.pending_free());
        nothing_new && pending_free == 0 && self.buffered_bytes() == 0 && self.has_least_metadata()
    }

    /// Whether the live pages are packed: moving them to other segments would not make the medium shorter.
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

    /// Whether the metadata is as small as possible: one checkpoint and a journal of one segment, in the format of the
    /// next checkpoint.
    fn has_least_metadata(&self) -> bool {
        let log = self.log.lock();
        log.has_least_metadata() && log.superblock().version == self.format_version(&log)
    }

    /// Whether there is room to rewrite the metadata entirely before the segment that is now its last.
    fn metadata_fits_in_front(&self) -> bool {
        let needed = self.log.lock().checkpoint_segments() + 1;
        self.ftl.with_segments(|s| {
            let last = s.infos().iter().rposition(|i| i.state == Chain);
            last.is_some_and(|last| s.free().range(..last as Segment).count() >= needed)
        })
    }

    /// Returns the last segment with data pages, and whether it is open; `None` if no free segment precedes it.
    fn behind_free(&self) -> Option<(Segment, bool)> {
        self.ftl.with_segments(|s| {
            let data = |i: &crate::ftl::segments::SegmentInfo| matches!(i.state, Open | Closed) && i.staged == 0;
            let last = s.infos().iter().rposition(data)? as Segment;
            (*s.free().first()? < last).then(|| (last, s.info(last).state == Open))
        })
    }

    /// Empties partly filled segments into others, in rounds; the segments freed in one round are the room of the next.
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

    /// Moves the last segments with data pages to free segments before them, until there are none.
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
