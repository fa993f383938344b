//! Commit: what makes commands durable, whole.
//!
//! Applied commands wait as changes (`pending`). A *commit* takes a cut between commands: what gathers in memory
//! becomes pages, then one journal record tells every change since the record before; a record is whole or absent, so
//! every command is. A *barrier* makes records durable, and frees what died in them. A *checkpoint* writes every index
//! and the directory to a new chain, begins a new journal and switches the superblock; the generation before is kept
//! until the next.
//!
//! A command whose parts all became pages is committed at once (a killed process loses nothing of it); one that left
//! units to gather is committed with them, at the latest when the write buffer is full. A flush commits and waits for
//! the barrier.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::wire::{BlobRef, Directory, Op, RecordBody, SegmentEntry, SpaceEntry, Update, decode_index, encode_index};
use super::{Device, Refusal};
use crate::error::{Error, Result};
use crate::flash::{Segment, SegmentKind, crc32c};
use crate::ftl::chain::Chain;
use crate::ftl::journal;
use crate::ftl::mark::Mark;
use crate::ftl::room::{SEGMENTS_TRIED, refused_barrier};
use crate::ftl::superblock::{ChainStart, Superblock, read_slots};
use crate::media::Media;
use crate::sim::count;
use crate::stl::copy::is_fill;
use crate::stl::index::Index;
use crate::stl::plan::BlockAt;
use crate::stl::space::{BufferedBlock, IndexState, Inner, Space, StoredIndex, to_wire};
use crate::stl::write::{Gone, Staged, Writer, apply};

/// A journal shorter than this is kept when the store is closed: replaying it costs less than a checkpoint.
const JOURNAL_BYTES_AT_CLOSE: u64 = 1 << 20;
/// A journal longer than this, and than half the checkpoint, makes a checkpoint due ...
const JOURNAL_BYTES_MAX: u64 = 16 << 20;
/// ... or, under a capacity, one longer than this part of it.
const JOURNAL_PART_OF_CAPACITY: u64 = 128;

/// Bytes of the journal that have room on the disk before they are written, beside those for what is known to come; or
/// this part of a segment, if that is less.
const JOURNAL_BYTES_AHEAD: u64 = 16 << 10;
const JOURNAL_AHEAD_PART: u64 = 4;
/// Bytes that a change takes in a record, about; those of a page that gathers.
const CHANGE_BYTES: u64 = 64;
const GATHERED_PAGE_BYTES: u64 = 32;

/// Changes that wait for the record that tells them, at most: they take memory, while a single unit that gathers is
/// enough to keep them waiting.
const PENDING_MAX: usize = 1 << 16;

/// The journal's end, and what waits to be written there.
#[derive(Debug)]
pub(super) struct Log {
    /// Changes applied since the last record.
    pub(super) pending: Vec<Op>,
    /// The journal's chain; none while the store is made, or only read.
    pub(super) chain: Option<Chain>,
    /// Where the next record goes.
    pub(super) at: u64,
    /// How far the journal has room on the disk for certain.
    pub(super) allocated_to: u64,
    /// Segments of checkpoints that failed when their superblock was written, which may name them.
    pub(super) doubtful: Vec<Segment>,
    /// Its number.
    pub(super) next_lsn: u64,
    /// CRC of the record before it; 0 if it is the first of its chain.
    pub(super) last_crc: u32,
    /// Records up to this number are durable.
    pub(super) durable_lsn: u64,
    /// What the last record says about that.
    pub(super) carried_lsn: u64,
    /// What a durable record, or the superblock, says about that. Only what died in these records may be reused: a
    /// recovery compares the pages of all others with their checksums, though later records say that they are dead.
    pub(super) told_lsn: u64,
    /// What the newest durable mark, or the superblock, says about that: see `ftl/mark.rs`.
    pub(super) marked_lsn: u64,
    /// Where the next mark goes.
    pub(super) mark_place: usize,
    /// The superblock that counts, and its slot.
    pub(super) superblock: Superblock,
    pub(super) slot: usize,
    /// Segments of the checkpoint that counts.
    pub(super) checkpoint: Vec<Segment>,
    /// Segments of the generation before.
    pub(super) previous: Vec<Segment>,
}

/// The stream of a checkpoint, from which indexes are read when they are needed.
#[derive(Debug)]
pub(super) struct CheckpointStream {
    pub(super) media: Arc<dyn Media>,
    pub(super) chain: Mutex<Chain>,
}

impl CheckpointStream {
    /// The stream of the checkpoint that a superblock names.
    pub(super) fn of(media: &Arc<dyn Media>, superblock: &Superblock) -> Self {
        let chain = Chain::begin(superblock.geometry, superblock.checkpoint);
        Self { media: media.clone(), chain: Mutex::new(chain) }
    }

    pub(super) fn read(&self, at: u64, bytes: u64) -> Result<Vec<u8>> {
        if bytes > self.media.len() {
            return Err(Error::corrupt(format!("a checkpoint piece of {bytes} bytes is larger than the store")));
        }
        let mut out = vec![0; bytes as usize];
        if self.chain.lock().read(self.media.as_ref(), at, &mut out)? {
            return Ok(out);
        }
        Err(Error::corrupt(format!("the checkpoint ends before its byte {}", at + bytes)))
    }
}

/// An index that still lies in a checkpoint.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) stream: Arc<CheckpointStream>,
    pub(super) place: BlobRef,
    pub(super) dimensions: usize,
    pub(super) name: String,
}

impl StoredIndex for Blob {
    fn load(&self) -> Result<Index> {
        let geometry = self.stream.chain.lock().geometry();
        decode_index(&self.bytes()?, self.dimensions, &geometry)
    }

    fn bytes(&self) -> Result<Vec<u8>> {
        let bytes = self.stream.read(self.place.at, self.place.bytes)?;
        if crc32c(&bytes) != self.place.crc {
            return Err(Error::corrupt(format!(
                "the index of array {:?} does not match its checksum; `nandarray check --repair` can rebuild it",
                self.name
            )));
        }
        Ok(bytes)
    }

    fn blocks(&self) -> u64 {
        self.place.blocks
    }
}

/// Writes a stream to a chain that grows as needed.
struct StreamWriter<'a> {
    device: &'a Device,
    kind: SegmentKind,
    chain: Chain,
    at: u64,
}

impl<'a> StreamWriter<'a> {
    fn begin(device: &'a Device, kind: SegmentKind) -> Result<Self> {
        let first = device.ftl.open_chain_segment(kind)?;
        let nonce = device.ftl.draw();
        let chain = Chain::begin(device.geometry(), ChainStart { first, nonce });
        Ok(Self { device, kind, chain, at: 0 })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.at;
        self.device.put(&mut self.chain, self.kind, at, bytes)?;
        self.at += bytes.len() as u64;
        Ok(at)
    }
}

impl Device {
    fn put(&self, chain: &mut Chain, kind: SegmentKind, at: u64, bytes: &[u8]) -> Result<()> {
        let write = |offset, bytes: &[u8]| self.ftl.write(offset, bytes);
        for _ in 0..chain.segments_needed(at, bytes.len() as u64) {
            let segment = self.ftl.open_chain_segment(kind)?;
            // Without the link nothing names the segment.
            chain.extend(write, segment).inspect_err(|_| self.ftl.free_chain(&[segment]))?;
        }
        chain.write(write, at, bytes)
    }

    /// After a command, which is applied in memory: commits it if nothing of it is buffered, the write buffer is full,
    /// or many changes are pending; reclaims if that is due. The next flush, and the next command that adds anything,
    /// try a failed commit again first, and raise its error.
    pub(super) fn after_write(&self) {
        let gathered = self.gathered_bytes.load(Ordering::Relaxed);
        let due = gathered == 0 || gathered > self.write_buffer_bytes || self.log.lock().pending.len() > PENDING_MAX;
        let done = if due { self.commit(false) } else { Ok(()) };
        if done.is_err() {
            self.behind.store(true, Ordering::Relaxed);
        } else {
            // Reclaim is tried again after the next command. A command that finds no room reclaims before its own
            // writes, and raises what fails then; `check` finds a damaged victim.
            if self.reclaim_if_due().is_err() {
                count(&self.counters.reclaims_failed, 1);
            }
        }
    }

    /// Before a command that adds anything: the medium is sound, took what commands before this one left, and has room
    /// for what frees some.
    pub(super) fn ready(&self) -> Result<()> {
        self.sound()?;
        if self.behind.load(Ordering::Relaxed) {
            self.commit_with_room(false)?;
        }
        self.ftl.hold_spare()?;
        self.hold_journal(0)
    }

    /// Takes room on the disk for the records to come, with `more` bytes beside what waits to be told.
    pub(super) fn hold_journal(&self, more: u64) -> Result<()> {
        self.allocate_journal(&mut self.log.lock(), more)
    }

    pub(super) fn flush(&self) -> Result<()> {
        self.barrier_held()?;
        self.commit_with_room(true)
    }

    /// Commits; where there is no room for it, with that of segments which only wait to be known as dead.
    pub(super) fn commit_with_room(&self, barrier: bool) -> Result<()> {
        match self.commit(barrier) {
            Err(full @ Error::Full { .. }) => {
                if !self.bury_waiting()? {
                    return Err(full);
                }
                self.commit(barrier)
            }
            done => done,
        }
    }

    /// Makes known what is durable, so that what died before may be reused, and tells nothing else: it takes no more
    /// room than a record without content. Whether any segment is free now that was not.
    fn bury_waiting(&self) -> Result<bool> {
        let waiting = || self.ftl.with_segments(|s| s.dying());
        let before = waiting();
        if before == 0 {
            return Ok(false);
        }
        let _commit = self.commit.lock();
        // The first record makes what came before it durable, the second one says so.
        for _ in 0..2 {
            let lsn = {
                let _epoch = self.epoch.write();
                self.whole()?;
                let mut log = self.log.lock();
                // Changes that are still pending get a later record number, so segments that die by them die later.
                self.ftl.with_segments(|s| s.die_later(log.next_lsn));
                let body = RecordBody { seq: self.seq.load(Ordering::Relaxed), ops: vec![] };
                self.append_record(&mut log, &body)?;
                log.next_lsn - 1
            };
            self.barrier(lsn)?;
        }
        Ok(waiting() < before)
    }

    /// Takes a cut and writes a record; with `barrier` makes it durable.
    pub(super) fn commit(&self, barrier: bool) -> Result<()> {
        self.commit_record(barrier, false)
    }

    /// Commits, and frees all that died before: that a record is durable has to be durable itself for that.
    pub(super) fn commit_and_bury(&self) -> Result<()> {
        self.commit_with_room(true)?;
        let waits = {
            let durable = self.log.lock().durable_lsn;
            self.ftl.with_segments(|s| s.has_dead_before(durable))
        };
        if waits { self.commit_record(true, true) } else { Ok(()) }
    }

    /// `always` writes a record even if there is nothing to tell.
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
            if log.at > self.journal_due(&log) {
                self.checkpoint_if_possible(&mut log)?;
            }
            log.next_lsn - 1
        };
        if barrier {
            self.barrier(lsn)?;
        }
        Ok(())
    }

    /// A checkpoint that may fail: the journal can go on as long as there is room for it.
    fn checkpoint_if_possible(&self, log: &mut Log) -> Result<()> {
        match self.checkpoint(log) {
            Err(Error::Full { .. } | Error::Media { .. }) => self.sound(),
            done => done,
        }
    }

    /// How long the journal may be before a checkpoint is due.
    fn journal_due(&self, log: &Log) -> u64 {
        let due = JOURNAL_BYTES_MAX.max(log.superblock.checkpoint_bytes / 2);
        match self.capacity_bytes {
            0 => due,
            capacity => due.min((capacity / JOURNAL_PART_OF_CAPACITY).max(self.geometry().segment_data_bytes() / 2)),
        }
    }

    /// Tells flash management how many segments journals and checkpoints may need beyond those that they have.
    pub(super) fn keep_back(&self, log: &Log) {
        let segments = |bytes: u64| bytes.div_ceil(self.geometry().segment_data_bytes() - 32);
        // A checkpoint tells what the last one told, and what the journal told since: arrays twice, blocks once.
        let journal_bytes = if self.capacity_bytes == 0 { log.at } else { log.at.max(self.journal_due(log)) };
        let checkpoint = segments(log.superblock.checkpoint_bytes + 2 * journal_bytes + 4096);
        // The next one, the next link of the journal, and the first of the journal that comes then.
        let next = checkpoint + 2;
        let most = match self.capacity_bytes {
            0 => next,
            // Under a capacity what is kept back must not depend on how much of it is in use at present: a store that
            // took a command takes it again. At the most there are two generations and the next checkpoint.
            _ => {
                let journal = segments(self.journal_due(log) + 4096);
                let have =
                    log.checkpoint.len() + log.previous.len() + log.chain.as_ref().map_or(0, |c| c.segments().len());
                next.max((3 * checkpoint + 2 * journal + 1).saturating_sub(have as u64))
            }
        };
        self.ftl.keep_back(most);
    }

    pub(super) fn barrier(&self, lsn: u64) -> Result<()> {
        self.sync()?;
        let mut log = self.log.lock();
        log.durable_lsn = log.durable_lsn.max(lsn);
        log.told_lsn = log.told_lsn.max(log.carried_lsn);
        self.mark_durable(&mut log);
        self.ftl.bury(log.told_lsn)
    }

    /// Tells the file up to which record it is durable, without waiting for that to be durable itself. Behind a barrier
    /// only.
    fn mark_durable(&self, log: &mut Log) {
        if log.durable_lsn <= log.marked_lsn {
            return;
        }
        let Superblock { uuid, generation, .. } = log.superblock;
        let mark = Mark { uuid, generation, lsn: log.durable_lsn };
        // The flush is done with or without the mark. Without it, damage may be taken for the end that a loss of power
        // leaves, as it is until the next mark or record; the next flush tries again.
        if mark.write(self.ftl.media().as_ref(), log.mark_place).is_ok() {
            log.marked_lsn = mark.lsn;
            log.mark_place = 1 - log.mark_place;
        }
    }

    fn sync(&self) -> Result<()> {
        self.ftl.sync().inspect_err(|e| self.note_refusal(e))
    }

    /// After a failed sync the kernel may have dropped dirty pages and report success next time.
    pub(super) fn note_refusal(&self, e: &Error) {
        if refused_barrier(e) {
            self.failed.lock().get_or_insert_with(|| Refusal::of(e));
        }
    }

    /// Cuts free segments off the end.
    pub(super) fn truncate(&self) -> Result<()> {
        self.ftl.truncate().inspect_err(|e| self.note_refusal(e))
    }

    /// Everything that gathers becomes pages.
    pub(super) fn drain(&self) -> Result<()> {
        if self.gathered_bytes.load(Ordering::Relaxed) == 0 {
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
                let staged = self.stage_gathered(&space, &inner, &at, seq)?;
                let before = space.buffered(&inner, &at);
                let applied = apply(&mut inner, staged);
                // A plain block's units that are gone left by themselves; a coded block leaves here.
                inner.write_buffer.remove(&at);
                self.regather(before, (0, 0));
                self.ftl.adopt(&applied.runs);
                let mut log = self.log.lock();
                log.pending.push(Op::Update(Update {
                    space: space.id,
                    seq: applied.seq,
                    at: applied.at.to_vec(),
                    gone: Update::wire_gone(&applied.gone),
                    runs: to_wire(&applied.runs),
                }));
                self.ftl.release(applied.dead.into_iter());
            }
        }
        Ok(())
    }

    /// What gathers changed: (bytes, pages that it may become). Room for these is promised until they are pages.
    pub(super) fn regather(&self, before: (usize, u64), after: (usize, u64)) {
        // Wrapping: the sum of differences is right even when one is negative.
        self.gathered_bytes.fetch_add(after.0.wrapping_sub(before.0), Ordering::Relaxed);
        self.ftl.promise(before.1, after.1);
    }

    fn stage_gathered(&self, space: &Space, inner: &Inner, at: &BlockAt, seq: u64) -> Result<Staged> {
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
                for (&unit, gathered) in units {
                    let here = unit as usize * shape.page;
                    let data = shape.bytes.min(here + shape.page) - here;
                    gone.push(unit..unit + 1);
                    if !is_fill(&gathered.bytes[..data], &shape.fill, here) {
                        block[here..here + shape.page].copy_from_slice(&gathered.bytes);
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

    pub(super) fn write_record(&self, log: &mut Log, always: bool) -> Result<()> {
        if log.pending.is_empty() && !always {
            return Ok(());
        }
        let body = RecordBody { seq: self.seq.load(Ordering::Relaxed), ops: std::mem::take(&mut log.pending) };
        let written = self.append_record(log, &body);
        if written.is_err() {
            // Nothing is lost: the next commit tells it again, in the same place.
            log.pending = body.ops;
        }
        written
    }

    /// The journal's segment takes no more writes: a checkpoint tells what waits to be told, and begins another
    /// journal.
    fn leave_journal(&self, log: &mut Log) -> Result<()> {
        let pending = std::mem::take(&mut log.pending);
        let done = self.checkpoint(log);
        if done.is_err() {
            log.pending = pending;
        }
        done
    }

    fn append_record(&self, log: &mut Log, body: &RecordBody) -> Result<()> {
        let payload = postcard::to_stdvec(body).expect("a Vec takes any record");
        let mut chain = log.chain.take().expect("a store that is written has a journal");
        let (bytes, crc) = journal::encode(log.next_lsn, chain.start().nonce, log.durable_lsn, log.last_crc, &payload);
        let written = loop {
            match self.put(&mut chain, SegmentKind::Journal, log.at, &bytes) {
                Err(e) if self.ftl.give_up_spare(&e) => {}
                written => break written,
            }
        };
        log.chain = Some(chain);
        written.map_err(|e| self.ftl.full_if_no_room(e))?;
        log.at += bytes.len() as u64;
        log.next_lsn += 1;
        log.last_crc = crc;
        log.carried_lsn = log.durable_lsn;
        // Where there is none, nothing is added until there is.
        let _ = self.allocate_journal(log, 0);
        self.keep_back(log);
        self.ftl.set_next_lsn(log.next_lsn);
        count(&self.counters.journal_bytes, bytes.len() as u64);
        Ok(())
    }

    /// Room for the next records, so that a disk which is full by then still takes that something was deleted. It ends
    /// with the journal's segment: behind it is the spare's.
    fn allocate_journal(&self, log: &mut Log, more: u64) -> Result<()> {
        let Some(chain) = &log.chain else { return Ok(()) };
        let ahead = JOURNAL_BYTES_AHEAD.min(self.geometry().segment_data_bytes() / JOURNAL_AHEAD_PART);
        let known = log.pending.len() as u64 * CHANGE_BYTES + self.ftl.promised() * GATHERED_PAGE_BYTES + more;
        let end = log.at + chain.room_from(log.at);
        if log.allocated_to < end.min(log.at + known + ahead / 2) {
            let to = end.min(log.at + known + ahead);
            chain.next_bytes(log.at, to - log.at).try_for_each(|(offset, len)| self.ftl.hold(offset, len))?;
            log.allocated_to = to;
        }
        Ok(())
    }

    /// Writes a checkpoint and switches to it. The caller holds the epoch and has committed.
    pub(super) fn checkpoint(&self, log: &mut Log) -> Result<()> {
        // A command that panicked in another thread may have left an index half changed.
        self.whole()?;
        assert!(log.pending.is_empty(), "a checkpoint is taken at a cut");
        let mut suspects = Vec::new();
        loop {
            let mut opened = Vec::new();
            let e = match self.write_checkpoint(log, &mut opened) {
                Ok(()) => return Ok(()),
                Err(e) => self.ftl.full_if_no_room(e),
            };
            self.ftl.free_chain(&opened);
            match self.ftl.worn_out_segment(&e).filter(|s| opened.contains(s)) {
                Some(segment) if suspects.len() + 1 < SEGMENTS_TRIED => {
                    self.ftl.with_segments(|s| s.retire(segment));
                    suspects.push(segment);
                }
                _ => {
                    self.ftl.acquit(&suspects);
                    return Err(e);
                }
            }
        }
    }

    /// Segments of a checkpoint that nothing names when it fails are in `opened` then.
    fn write_checkpoint(&self, log: &mut Log, opened: &mut Vec<Segment>) -> Result<()> {
        let mut stream = StreamWriter::begin(self, SegmentKind::Checkpoint)?;
        let written = self.write_stream(&mut stream);
        opened.extend(stream.chain.segments());
        let (directory_at, directory, places) = written?;
        count(&self.counters.checkpoint_bytes, stream.at);
        let new_journal = StreamWriter::begin(self, SegmentKind::Journal)?;
        opened.extend(new_journal.chain.segments());
        // All that the new superblock will name is durable before it names it.
        self.sync()?;
        let (placement, victim) = self.ftl.policies();
        let superblock = Superblock {
            generation: log.superblock.generation + 1,
            checkpoint: stream.chain.start(),
            checkpoint_bytes: stream.at,
            directory_at,
            directory_bytes: directory.len() as u64,
            directory_crc: crc32c(&directory),
            journal: new_journal.chain.start(),
            journal_lsn: log.next_lsn + u64::from(log.chain.is_some()),
            clean: None,
            placement,
            victim,
            ..log.superblock.clone()
        };
        let slot = 1 - log.slot;
        if let Err(e) = superblock.write(self.ftl.media().as_ref(), slot) {
            self.after_failed_superblock(log, &superblock, slot, &e);
            log.doubtful.append(opened);
            return Err(e);
        }
        // From here on the superblock may be durable: what it names is not free.
        let opened = std::mem::take(opened);
        self.sync().inspect_err(|_| log.doubtful.extend(opened))?;
        self.switch(log, superblock, slot, stream.chain, new_journal.chain, places)
    }

    /// A superblock could not be written. If the medium has it nevertheless, it leads away from the journal that would
    /// go on: nothing may be promised any more.
    fn after_failed_superblock(&self, log: &Log, new: &Superblock, slot: usize, e: &Error) {
        let arrived = match read_slots(self.ftl.media().as_ref(), "the store") {
            Ok(slots) => slots.iter().any(|(s, found)| *s == slot && found.generation >= new.generation),
            Err(_) => log.chain.is_some(),
        };
        if arrived {
            self.failed.lock().get_or_insert_with(|| Refusal::of(e));
        }
    }

    /// Index by index, then the directory twice.
    #[expect(clippy::type_complexity, reason = "three results of one step, named where they are taken")]
    fn write_stream(&self, stream: &mut StreamWriter<'_>) -> Result<([u64; 2], Vec<u8>, Vec<(Arc<Space>, BlobRef)>)> {
        let mut places = Vec::new();
        let mut directory = Directory {
            seq: self.seq.load(Ordering::Relaxed),
            next_space: self.catalog.read().next,
            ..Directory::default()
        };
        // Small indexes are put together before they are written: a call a space would be most of the time.
        let mut together: Vec<u8> = Vec::new();
        for space in self.spaces() {
            let inner = space.peek();
            let (bytes, blocks) = match &inner.index {
                IndexState::Loaded(index) => (encode_index(index), index.blocks()),
                IndexState::Stored(stored) => (stored.bytes()?, stored.blocks()),
            };
            let at = stream.at + together.len() as u64;
            let place = BlobRef { at, bytes: bytes.len() as u64, crc: crc32c(&bytes), blocks };
            together.extend_from_slice(&bytes);
            if together.len() > 4 << 20 {
                stream.put(&std::mem::take(&mut together))?;
            }
            directory.spaces.push(SpaceEntry { record: inner.record.clone(), index: place });
            drop(inner);
            places.push((space, place));
        }
        stream.put(&together)?;
        self.ftl.learn_wear();
        directory.segments = self.ftl.with_segments(|s| {
            s.table().into_iter().map(|(live, erases, bad)| SegmentEntry { live, erases, bad }).collect()
        });
        let bytes = postcard::to_stdvec(&directory).expect("a Vec takes any directory");
        let at = [stream.put(&bytes)?, stream.put(&bytes)?];
        Ok((at, bytes, places))
    }

    /// The new generation is durable: go on in it, and let go of the one before the last.
    fn switch(
        &self,
        log: &mut Log,
        superblock: Superblock,
        slot: usize,
        checkpoint: Chain,
        journal: Chain,
        places: Vec<(Arc<Space>, BlobRef)>,
    ) -> Result<()> {
        if log.chain.is_some() {
            // Should this superblock ever be damaged, the old journal leads on to the new one. Two barriers ended it.
            log.durable_lsn = log.next_lsn - 1;
            let start = journal.start();
            let ops = vec![Op::Switch { first: start.first, nonce: start.nonce }];
            // Where it cannot be written (the old journal's segment wore out) the store does without this second way.
            let _ = self.append_record(log, &RecordBody { seq: self.seq.load(Ordering::Relaxed), ops });
        }
        log.next_lsn = superblock.journal_lsn;
        let mut before: Vec<Segment> = std::mem::replace(&mut log.checkpoint, checkpoint.segments().to_vec());
        before.extend(log.chain.iter().flat_map(Chain::segments));
        let mut dead = std::mem::replace(&mut log.previous, before);
        // The slot that may have named them was written again.
        dead.append(&mut log.doubtful);
        let lsn = log.next_lsn - 1;
        log.chain = Some(journal);
        log.at = 0;
        log.allocated_to = 0;
        let _ = self.allocate_journal(log, 0);
        log.last_crc = 0;
        log.durable_lsn = log.durable_lsn.max(superblock.journal_lsn - 1);
        log.told_lsn = log.durable_lsn;
        log.marked_lsn = log.durable_lsn;
        log.superblock = superblock;
        log.slot = slot;
        self.keep_back(log);
        self.ftl.set_next_lsn(log.next_lsn);
        let stream = Arc::new(CheckpointStream { media: self.ftl.media().clone(), chain: Mutex::new(checkpoint) });
        for (space, place) in places {
            let mut inner = space.peek_mut();
            if matches!(inner.index, IndexState::Stored(_)) {
                let name = inner.record.name.clone();
                let dimensions = space.shape.block.len();
                inner.index = IndexState::Stored(Arc::new(Blob { stream: stream.clone(), place, dimensions, name }));
            }
        }
        self.ftl.with_segments(|s| s.release_chain(&dead, lsn));
        self.ftl.bury(log.told_lsn)
    }

    /// Begins a new journal and lets go of both generations before it: both superblocks say the same then, as in a new
    /// store.
    pub(super) fn only_generation(&self) -> Result<()> {
        let _commit = self.commit.lock();
        let _epoch = self.epoch.write();
        let mut log = self.log.lock();
        if !log.pending.is_empty() {
            return Ok(());
        }
        self.checkpoint(&mut log)?;
        let twin = Superblock { generation: log.superblock.generation - 1, ..log.superblock.clone() };
        twin.write(self.ftl.media().as_ref(), 1 - log.slot)?;
        self.sync()?;
        let dead = std::mem::take(&mut log.previous);
        self.ftl.with_segments(|s| s.release_chain(&dead, log.next_lsn - 1));
        self.keep_back(&log);
        self.ftl.bury(log.told_lsn)
    }

    /// The last things before the medium is let go of.
    pub(super) fn finish(&self) -> Result<()> {
        self.barrier_held()?;
        self.commit_with_room(true)?;
        let _commit = self.commit.lock();
        let _epoch = self.epoch.write();
        self.whole()?;
        // What other threads did since that flush must not be half in the checkpoint, nor be missing behind a clean
        // close.
        self.drain()?;
        let mut log = self.log.lock();
        if !log.pending.is_empty() {
            self.write_record(&mut log, false)?;
            self.sync()?;
            log.durable_lsn = log.next_lsn - 1;
        }
        if log.at > JOURNAL_BYTES_AT_CLOSE {
            self.checkpoint_if_possible(&mut log)?;
        }
        self.truncate()?;
        let mut superblock = log.superblock.clone();
        superblock.clean = Some((log.next_lsn - 1, self.ftl.open_now()?));
        if superblock.clean != log.superblock.clean {
            // Should this superblock ever be damaged, the mark still tells what was durable.
            self.mark_durable(&mut log);
            superblock.write(self.ftl.media().as_ref(), log.slot)?;
            self.sync()?;
        }
        Ok(())
    }
}
