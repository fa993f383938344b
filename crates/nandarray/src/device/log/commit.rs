//! Commit: makes commands durable, each as a whole.
//!
//! Applied commands wait in memory as changes. A *commit* takes a cut between commands: the write buffer is appended as
//! pages, then one journal record holds every change since the record before. A record is whole or absent, so each
//! command is. A *barrier* makes records durable, and frees the pages that died in them. When the journal has grown
//! long, a checkpoint follows (`checkpoint`).
//!
//! A command that left nothing in the write buffer is committed at once, so it survives the end of the process. A
//! command that left access units in the buffer is committed together with them, at the latest when the buffer is full.
//! A flush commits and waits for the barrier.

use std::sync::atomic::Ordering;

use super::super::wire::{JournalOp, RecordBody, Update};
use super::super::{Device, Refusal};
use super::Log;
use crate::error::{Error, Result};
use crate::flash::SegmentKind;
use crate::ftl::journal;
use crate::ftl::mark::Mark;
use crate::ftl::room::refused_barrier;
use crate::ftl::superblock::Superblock;
use crate::sim::count;
use crate::stl::copy::is_fill;
use crate::stl::plan::BlockAt;
use crate::stl::space::{BufferedBlock, Inner, Space};
use crate::stl::write::{Gone, Staged, Writer, apply};

/// A journal of up to this number of bytes is kept when the store is closed: replaying it costs less than a checkpoint.
const JOURNAL_BYTES_AT_CLOSE: u64 = 1 << 20;
/// A checkpoint is due when the journal has more bytes than this, and more than half the checkpoint's.
const JOURNAL_BYTES_MAX: u64 = 16 << 20;
/// A checkpoint is due when snapshots may make the next one longer by more bytes than this, and more than four times
/// its own: afterwards alike indexes of these snapshots are stored once, and no room is kept for them.
const SPREAD_BYTES_MAX: u64 = 16 << 20;
/// In a store with a capacity a checkpoint is due when the journal has more than the capacity divided by this.
const JOURNAL_PART_OF_CAPACITY: u64 = 128;

/// Largest number of changes that may wait for a record: they take memory, and a single buffered access unit is enough
/// to keep them waiting.
const PENDING_MAX: usize = 1 << 16;

impl Device {
    /// Commits and reclaims as far as necessary after a command that changed something, which is applied in memory.
    /// Commits if nothing is buffered, the write buffer is full, or many changes are pending. A failed commit is
    /// repeated by the next flush and before the next command that adds data, which return its error.
    pub(in crate::device) fn after_write(&self) {
        let buffered = self.buffered_bytes.load(Ordering::Relaxed);
        let due = buffered == 0 || buffered > self.write_buffer_bytes || self.log.lock().pending.len() > PENDING_MAX;
        let done = if due { self.commit(false) } else { Ok(()) };
        if done.is_err() {
            self.behind.store(true, Ordering::Relaxed);
        } else {
            // Reclaim is tried again after the next command. A command that finds no room reclaims before its own
            // writes and returns an error of that; `check` finds a damaged victim.
            if self.reclaim_if_due().is_err() {
                count(&self.counters.reclaims_failed, 1);
            }
        }
    }

    pub(in crate::device) fn flush(&self) -> Result<()> {
        self.barrier_held()?;
        self.commit_with_room(true)
    }

    /// Commits; if the store is full, makes segments without live pages free that only wait for a barrier, and tries
    /// again.
    pub(in crate::device) fn commit_with_room(&self, barrier: bool) -> Result<()> {
        match self.commit(barrier) {
            Err(full @ Error::Full { .. }) => {
                if !self.free_dying()? {
                    return Err(full);
                }
                self.commit(barrier)
            }
            done => done,
        }
    }

    /// Writes records without changes, which only say that earlier records are durable, so that pages freed by those
    /// earlier records may be reused. Returns whether a segment became free.
    fn free_dying(&self) -> Result<bool> {
        let waiting = || self.ftl.with_segments(|s| s.pending_free());
        let before = waiting();
        if before == 0 {
            return Ok(false);
        }
        let _commit = self.commit.lock();
        // The barrier after the first record makes earlier ones durable; the second record says that they are.
        for _ in 0..2 {
            let lsn = {
                let _epoch = self.epoch.write();
                self.whole()?;
                let mut log = self.log.lock();
                // Changes that are still pending get a later record number, so the segments that they free must wait
                // for that number.
                self.ftl.with_segments(|s| s.postpone_frees(log.next_lsn));
                let body = RecordBody { seq: self.seq.load(Ordering::Relaxed), ops: vec![] };
                self.append_record(&mut log, &body)?;
                log.last_lsn()
            };
            self.barrier(lsn)?;
        }
        Ok(waiting() < before)
    }

    /// Commits at a cut, when no command is half applied: writes one journal record of all pending changes. With
    /// `barrier` makes the record durable.
    pub(in crate::device) fn commit(&self, barrier: bool) -> Result<()> {
        self.commit_record(barrier, false)
    }

    /// Commits, and frees all pages that died before. A page may be reused only when a durable record says that the
    /// record which freed it is durable; that may take a second commit.
    pub(in crate::device) fn commit_and_free(&self) -> Result<()> {
        self.commit_with_room(true)?;
        let waits = {
            let durable = self.log.lock().durable_lsn;
            self.ftl.with_segments(|s| s.has_frees_by(durable))
        };
        if waits { self.commit_record(true, true) } else { Ok(()) }
    }

    /// Commits as [`Self::commit()`]; with `always` writes a record even if there are no changes.
    fn commit_record(&self, barrier: bool, always: bool) -> Result<()> {
        let _commit = self.commit.lock();
        let lsn = {
            let _epoch = self.epoch.write();
            self.whole()?;
            self.drain()?;
            let mut log = self.log.lock();
            match self.write_record(&mut log, always) {
                Err(e) if self.ftl.worn_out_segment(&e).is_some() => self.leave_journal(&mut log)?,
                written => written?,
            }
            self.behind.store(false, Ordering::Relaxed);
            let spread_due = SPREAD_BYTES_MAX.max(4 * log.superblock.checkpoint_bytes);
            if log.at > self.journal_due(&log) || log.spread_bytes > spread_due {
                self.checkpoint_if_possible(&mut log)?;
            }
            log.last_lsn()
        };
        if barrier {
            self.barrier(lsn)?;
        }
        Ok(())
    }

    /// Writes a checkpoint, but tolerates a full disk and errors of the medium: the journal can be continued instead.
    fn checkpoint_if_possible(&self, log: &mut Log) -> Result<()> {
        match self.checkpoint(log) {
            Err(Error::Full { .. } | Error::Media { .. }) => self.sound(),
            done => done,
        }
    }

    /// Returns the length of the journal in bytes beyond which a checkpoint is due.
    fn journal_due(&self, log: &Log) -> u64 {
        let due = JOURNAL_BYTES_MAX.max(log.superblock.checkpoint_bytes / 2);
        match self.capacity_bytes {
            0 => due,
            capacity => due.min((capacity / JOURNAL_PART_OF_CAPACITY).max(self.geometry().segment_data_bytes() / 2)),
        }
    }

    /// Makes the flash management keep free the segments that the next journal and checkpoint may need.
    pub(in crate::device) fn reserve_segments(&self, log: &Log) {
        let segments = |bytes: u64| bytes.div_ceil(self.geometry().segment_data_bytes() - 32);
        // A checkpoint holds what the last one and the journal since then hold; attributes may take their size twice.
        let journal_bytes = if self.capacity_bytes == 0 { log.at } else { log.at.max(self.journal_due(log)) };
        let checkpoint = segments(log.superblock.checkpoint_bytes + 2 * journal_bytes + log.spread_bytes + 4096);
        // The next checkpoint, the next segment of the journal, and the first segment of the journal after that.
        let next = checkpoint + 2;
        let most = match self.capacity_bytes {
            0 => next,
            // Under a capacity the reserve must not depend on how much metadata there is at present: a command that
            // fits once must fit again. There are at most two generations and the checkpoint that is being written.
            _ => {
                let journal = segments(self.journal_due(log) + 4096);
                next.max((3 * checkpoint + 2 * journal + 1).saturating_sub(log.metadata_segments() as u64))
            }
        };
        self.ftl.reserve_segments(most);
    }

    pub(in crate::device) fn barrier(&self, lsn: u64) -> Result<()> {
        self.sync()?;
        let mut log = self.log.lock();
        assert!(lsn < log.next_lsn, "record {lsn} is durable, and the next one is {}", log.next_lsn);
        log.note_durable(lsn);
        self.mark_durable(&mut log);
        self.ftl.free_durable(log.confirmed_durable_lsn)
    }

    /// Writes the number of the newest durable record to the file's durable mark, without a barrier for the mark
    /// itself. Must be called after a barrier.
    fn mark_durable(&self, log: &mut Log) {
        if log.durable_lsn <= log.marked_durable_lsn {
            return;
        }
        assert!(log.durable_lsn < log.next_lsn, "record {} is marked, not written", log.durable_lsn);
        let Superblock { uuid, generation, .. } = log.superblock;
        let mark = Mark { uuid, generation, lsn: log.durable_lsn };
        // The flush has succeeded with or without the mark. Without it, recovery may take damage for the end of the
        // journal that a loss of power leaves, as it would have before; the next flush tries again.
        if mark.write(self.ftl.media().as_ref(), log.mark_place).is_ok() {
            log.marked_durable_lsn = mark.lsn;
            log.mark_place = 1 - log.mark_place;
        }
    }

    pub(in crate::device) fn sync(&self) -> Result<()> {
        self.ftl.sync().inspect_err(|e| self.note_refusal(e))
    }

    /// Remembers a failed barrier for good: the kernel may have dropped dirty pages and report success the next time.
    pub(in crate::device) fn note_refusal(&self, e: &Error) {
        if refused_barrier(e) {
            self.failed.lock().get_or_insert_with(|| Refusal::of(e));
        }
    }

    /// Truncates free segments at the end of the medium.
    pub(in crate::device) fn truncate(&self) -> Result<()> {
        self.ftl.truncate().inspect_err(|e| self.note_refusal(e))
    }

    /// Appends everything in the write buffer as pages.
    pub(in crate::device) fn drain(&self) -> Result<()> {
        if self.buffered_bytes.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let seq = self.next_seq();
        for space in self.spaces() {
            if space.peek().write_buffer.is_empty() {
                continue;
            }
            let mut inner = space.write()?;
            let mut blocks: Vec<BlockAt> = inner.write_buffer.keys().cloned().collect();
            blocks.sort_unstable();
            for at in blocks {
                let staged = self.stage_buffered(&space, &inner, &at, seq)?;
                let before = space.buffered(&inner, &at);
                let applied = apply(&mut inner, staged);
                // Units of a plain block have left the buffer by themselves; a coded block leaves it here.
                inner.write_buffer.remove(&at);
                self.account_buffered(before, (0, 0));
                self.ftl.adopt(&applied.runs);
                let mut log = self.log.lock();
                let update = Update::new(space.id, applied.seq, &applied.at, &applied.gone, &applied.runs);
                log.queue([JournalOp::Update(update)]);
                self.ftl.release(applied.dead.into_iter());
            }
        }
        debug_assert_eq!(self.buffered_bytes(), 0, "the write buffer is empty at a cut");
        Ok(())
    }

    /// Accounts a change of the write buffer from `before` to `after`: each is a number of buffered bytes and of pages
    /// that they may become. Room for these pages stays reserved until they are written.
    pub(in crate::device) fn account_buffered(&self, before: (usize, u64), after: (usize, u64)) {
        // Wrapping: the sum of differences is right even when one is negative.
        let change = after.0.wrapping_sub(before.0);
        let total = self.buffered_bytes.fetch_add(change, Ordering::Relaxed).wrapping_add(change);
        assert!(isize::try_from(total).is_ok(), "the write buffer has {} bytes less than none", total.wrapping_neg());
        self.ftl.promise(before.1, after.1);
    }

    fn stage_buffered(&self, space: &Space, inner: &Inner, at: &BlockAt, seq: u64) -> Result<Staged> {
        let shape = &space.shape;
        let writer =
            Writer { ftl: &self.ftl, space, seq, extent: &inner.record.shape, bytes: 0, over: None, successive: None };
        let mut staged = Staged::releasing(at.clone(), seq);
        match &inner.write_buffer[at] {
            BufferedBlock::Block(block) => {
                if !is_fill(block, &shape.fill, 0) {
                    staged.runs = writer.append_coded(at, block)?;
                }
            }
            BufferedBlock::Units(units) => {
                let last = units.keys().next_back().map_or(0, |u| u + 1);
                let mut block = vec![0; last as usize * shape.page];
                let (mut append, mut gone) = (Vec::new(), Vec::new());
                for (&unit, buffered) in units {
                    let here = unit as usize * shape.page;
                    let data = shape.bytes.min(here + shape.page) - here;
                    gone.push(unit..unit + 1);
                    if !is_fill(&buffered.bytes[..data], &shape.fill, here) {
                        block[here..here + shape.page].copy_from_slice(&buffered.bytes);
                        append.push(unit);
                    }
                }
                if !append.is_empty() {
                    staged.runs = writer.append_units(at, inner.index().get(at), &block, &append)?;
                }
                staged.gone = Gone::Units(gone);
            }
        }
        Ok(staged)
    }

    pub(in crate::device) fn write_record(&self, log: &mut Log, always: bool) -> Result<()> {
        if log.pending.is_empty() && !always {
            return Ok(());
        }
        let body = RecordBody { seq: self.seq.load(Ordering::Relaxed), ops: std::mem::take(&mut log.pending) };
        let written = self.append_record(log, &body);
        assert!(log.pending.is_empty(), "the caller holds the log: nothing is queued meanwhile");
        if written.is_err() {
            // Nothing is lost: the next commit writes the record again, in the same place.
            log.pending = body.ops;
        }
        written
    }

    /// Leaves a journal whose segment can no longer be written: writes a checkpoint, which includes the pending changes
    /// and begins a new journal.
    pub(in crate::device) fn leave_journal(&self, log: &mut Log) -> Result<()> {
        let pending = std::mem::take(&mut log.pending);
        let done = self.checkpoint(log);
        if done.is_err() {
            log.pending = pending;
        }
        done
    }

    pub(super) fn append_record(&self, log: &mut Log, body: &RecordBody) -> Result<()> {
        let payload = postcard::to_stdvec(body).expect("a Vec takes any record");
        let mut chain = log.chain.take().expect("a store that is written has a journal");
        let (bytes, crc) = journal::encode(log.next_lsn, chain.start().nonce, log.durable_lsn, log.last_crc, &payload);
        let written = loop {
            match self.put(&mut chain, SegmentKind::Journal, log.at, &bytes) {
                Err(e) if self.ftl.release_spare(&e) => {}
                written => break written,
            }
        };
        log.chain = Some(chain);
        written.map_err(|e| self.ftl.full_if_no_room(e))?;
        log.note_record(bytes.len() as u64, crc);
        // If there is no room, commands that add data fail until there is some (`ready`).
        let _ = self.allocate_journal(log, 0);
        self.reserve_segments(log);
        self.ftl.set_next_lsn(log.next_lsn);
        count(&self.counters.journal_bytes, bytes.len() as u64);
        Ok(())
    }

    /// Does the last steps before the store is closed: a flush, a checkpoint if the journal is long, a clean
    /// superblock.
    pub(in crate::device) fn finish(&self) -> Result<()> {
        self.barrier_held()?;
        self.commit_with_room(true)?;
        let _commit = self.commit.lock();
        let _epoch = self.epoch.write();
        self.whole()?;
        // Commands of other threads since that flush must be entirely in the checkpoint, and durable before the
        // superblock says that the store was closed cleanly.
        self.drain()?;
        assert_eq!(self.buffered_bytes(), 0, "a store that closes leaves nothing in its write buffer");
        let mut log = self.log.lock();
        if !log.pending.is_empty() {
            self.write_record(&mut log, false)?;
            self.sync()?;
            let lsn = log.last_lsn();
            log.durable_lsn = log.durable_lsn.max(lsn);
        }
        if log.at > JOURNAL_BYTES_AT_CLOSE {
            self.checkpoint_if_possible(&mut log)?;
        }
        self.truncate()?;
        assert!(log.pending.is_empty(), "{} changes are in no record", log.pending.len());
        let mut superblock = log.superblock.clone();
        superblock.clean = Some((log.last_lsn(), self.ftl.open_now()?));
        if superblock.clean != log.superblock.clean {
            // If this superblock is ever damaged, the mark still says which record was durable.
            self.mark_durable(&mut log);
            superblock.write(self.ftl.media().as_ref(), log.slot)?;
            self.sync()?;
        }
        // Under the epoch: a command that waited for it would otherwise make changes that are never written.
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}
