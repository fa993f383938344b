//! Checkpoints: a new generation of metadata, written beside the current one.
//!
//! All indexes and the directory go to a new chain, a new journal begins, and the superblock in the other slot names
//! both once they are durable. The generation before is kept until the next checkpoint, so that the store survives
//! damage to the newest one. A failed checkpoint changes nothing, and the current journal is continued.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::super::wire::{
    Directory, IndexPlace, JournalOp, RecordBody, SegmentEntry, SpaceEntry, encode_directory, encode_index,
};
use super::super::{Device, Refusal};
use super::{CheckpointIndex, CheckpointStream, Log};
use crate::error::{Error, Result};
use crate::flash::{Segment, SegmentKind, crc32c};
use crate::ftl::chain::Chain;
use crate::ftl::room::SEGMENTS_TRIED;
use crate::ftl::superblock::{ChainStart, SNAPSHOT_FORMAT, Superblock, read_slots};
use crate::sim::count;
use crate::stl::space::{IndexState, Space};

/// Number of bytes of small indexes that are collected for one write: a write for each index would take most of the
/// time of a checkpoint.
const STREAM_PIECE_BYTES: usize = 4 << 20;

/// A space, and the place of its index in a new checkpoint.
type PlacedIndex = (Arc<Space>, IndexPlace);

/// Writes a stream of bytes to a new chain of segments, which grows as needed.
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
    pub(super) fn put(&self, chain: &mut Chain, kind: SegmentKind, at: u64, bytes: &[u8]) -> Result<()> {
        let write = |offset, bytes: &[u8]| self.ftl.write(offset, bytes);
        for _ in 0..chain.segments_needed(at, bytes.len() as u64) {
            let segment = self.ftl.open_chain_segment(kind)?;
            // Without the link nothing names the segment, so it is free again.
            chain.extend(write, segment).inspect_err(|_| self.ftl.free_chain(&[segment]))?;
        }
        chain.write(write, at, bytes)
    }

    /// Writes a checkpoint and makes it the current one; a segment that fails to be written is replaced by another. The
    /// caller holds the epoch exclusively and has committed.
    pub(in crate::device) fn checkpoint(&self, log: &mut Log) -> Result<()> {
        // A command that panicked in another thread may have left an index half changed.
        self.whole()?;
        assert!(log.pending.is_empty(), "a checkpoint is taken at a cut; {} changes wait", log.pending.len());
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
                    self.ftl.unretire(&suspects);
                    return Err(e);
                }
            }
        }
    }

    /// Writes a checkpoint once and makes it the current one. If this fails, `opened` has the segments to be freed.
    fn write_checkpoint(&self, log: &mut Log, opened: &mut Vec<Segment>) -> Result<()> {
        let mut stream = StreamWriter::begin(self, SegmentKind::Checkpoint)?;
        let written = self.write_stream(&mut stream, self.format_version(log));
        opened.extend(stream.chain.segments());
        let (directory_at, directory, places) = written?;
        let version = self.format_version(log);
        count(&self.counters.checkpoint_bytes, stream.at);
        let new_journal = StreamWriter::begin(self, SegmentKind::Journal)?;
        opened.extend(new_journal.chain.segments());
        // Everything that the new superblock names must be durable before the superblock is written.
        self.sync()?;
        let (placement, victim) = self.ftl.policies();
        let superblock = Superblock {
            generation: log.superblock.generation + 1,
            version,
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
        assert!(superblock.generation > log.superblock.generation, "generations only grow");
        if let Err(e) = superblock.write(self.ftl.media().as_ref(), slot) {
            self.after_failed_superblock(log, &superblock, slot, &e);
            log.doubtful.append(opened);
            return Err(e);
        }
        // From here on the superblock may be durable, so the segments that it names must not be freed.
        let opened = std::mem::take(opened);
        self.sync().inspect_err(|_| log.doubtful.extend(opened))?;
        self.switch(log, superblock, slot, stream.chain, new_journal.chain, places)
    }

    /// Returns the format version of the next checkpoint: earlier versions of the engine read a store without
    /// snapshots.
    pub(in crate::device) fn format_version(&self, log: &Log) -> u32 {
        if log.for_snapshots || !self.catalog.read().kept.is_empty() {
            return SNAPSHOT_FORMAT;
        }
        log.superblock.version.min(SNAPSHOT_FORMAT - 1)
    }

    /// Writes a checkpoint in the format with snapshots, after which one may be taken. The caller holds the epoch
    /// exclusively, and no changes wait.
    pub(in crate::device) fn checkpoint_for_snapshots(&self, log: &mut Log) -> Result<()> {
        log.for_snapshots = true;
        let done = self.checkpoint(log);
        log.for_snapshots = false;
        done
    }

    /// Handles a failed write of a superblock. If it reached the medium nevertheless, recovery would follow it and
    /// ignore the journal that this process continues, so the store accepts no more writes.
    fn after_failed_superblock(&self, log: &Log, new: &Superblock, slot: usize, e: &Error) {
        let arrived = match read_slots(self.ftl.media().as_ref(), "the store") {
            Ok(slots) => slots.iter().any(|(s, found)| *s == slot && found.generation >= new.generation),
            Err(_) => log.chain.is_some(),
        };
        if arrived {
            self.failed.lock().get_or_insert_with(|| Refusal::of(e));
        }
    }

    /// Writes all indexes, then the directory twice. Returns the offsets of both copies of the directory in the stream,
    /// its bytes, and the place of each index.
    fn write_stream(
        &self,
        stream: &mut StreamWriter<'_>,
        version: u32,
    ) -> Result<([u64; 2], Vec<u8>, Vec<PlacedIndex>)> {
        let mut places: Vec<PlacedIndex> = Vec::new();
        let mut directory = Directory {
            seq: self.seq.load(Ordering::Relaxed),
            next_space: self.catalog.read().next,
            ..Directory::default()
        };
        let mut buffer: Vec<u8> = Vec::new();
        // Versions of one space follow each other, so that those that are alike are stored once.
        let (spaces, deleted) = {
            let spaces = self.spaces();
            let catalog = self.catalog.read();
            let deleted: Vec<_> = catalog.kept.origins().filter(|id| !catalog.by_id.contains_key(id)).collect();
            (spaces, deleted)
        };
        let versions = |origin| self.catalog.read().versions(origin);
        for group in spaces.iter().map(|space| space.id).chain(deleted).map(versions) {
            let mut before: Option<(Vec<u8>, IndexPlace)> = None;
            for space in group {
                let inner = space.peek();
                let (bytes, blocks) = match &inner.index {
                    IndexState::Loaded(index) => (encode_index(index), index.blocks()),
                    IndexState::Stored(stored) => (stored.bytes()?, stored.blocks()),
                };
                let place = match &before {
                    Some((same, place)) if *same == bytes => *place,
                    _ => {
                        let at = stream.at + buffer.len() as u64;
                        buffer.extend_from_slice(&bytes);
                        IndexPlace { at, bytes: bytes.len() as u64, crc: crc32c(&bytes), blocks }
                    }
                };
                if buffer.len() > STREAM_PIECE_BYTES {
                    stream.put(&std::mem::take(&mut buffer))?;
                }
                if space.frozen.is_none() {
                    directory.spaces.push(SpaceEntry { record: inner.record.clone(), index: place });
                }
                before = Some((bytes, place));
                drop(inner);
                places.push((space, place));
            }
        }
        stream.put(&buffer)?;
        self.ftl.learn_wear();
        directory.segments = self.ftl.with_segments(|s| {
            s.table().into_iter().map(|(live, erases, bad)| SegmentEntry { live, erases, bad }).collect()
        });
        let of_versions = places.iter().map(|(space, place)| (space.id, *place)).collect();
        let bytes = encode_directory(&directory, &self.catalog.read().kept.entries(&of_versions), version);
        let at = [stream.put(&bytes)?, stream.put(&bytes)?];
        Ok((at, bytes, places))
    }

    /// Switches to a new generation, whose superblock is durable, and frees the generation before the last.
    fn switch(
        &self,
        log: &mut Log,
        superblock: Superblock,
        slot: usize,
        checkpoint: Chain,
        journal: Chain,
        places: Vec<PlacedIndex>,
    ) -> Result<()> {
        if log.chain.is_some() {
            // If the new superblock is ever damaged, the old journal leads to the new one. Two barriers have ended the
            // old journal.
            log.durable_lsn = log.last_lsn();
            let start = journal.start();
            let ops = vec![JournalOp::Switch { first: start.first, nonce: start.nonce }];
            // If this record cannot be written (the old journal's segment wore out) the store does without the second
            // way.
            let _ = self.append_record(log, &RecordBody { seq: self.seq.load(Ordering::Relaxed), ops });
        }
        let dead = log.begin_generation(superblock, slot, checkpoint.segments().to_vec(), journal);
        let lsn = log.last_lsn();
        log.spread_bytes = self.catalog.read().bytes_of_versioned();
        let _ = self.allocate_journal(log, 0);
        self.reserve_segments(log);
        self.ftl.set_next_lsn(log.next_lsn);
        let stream = Arc::new(CheckpointStream { media: self.ftl.media().clone(), chain: Mutex::new(checkpoint) });
        for (space, place) in places {
            let mut inner = space.peek_mut();
            if matches!(inner.index, IndexState::Stored(_)) {
                let name = inner.record.name.clone();
                let dimensions = space.shape.block.len();
                inner.index =
                    IndexState::Stored(Arc::new(CheckpointIndex { stream: stream.clone(), place, dimensions, name }));
            }
        }
        self.ftl.with_segments(|s| s.release_chain(&dead, lsn));
        self.ftl.free_durable(log.confirmed_durable_lsn)
    }

    /// Writes a checkpoint, makes both superblocks name it, and frees the two generations before it, so that only one
    /// generation is left, as in a new store. Does nothing if changes are pending.
    pub(in crate::device) fn only_generation(&self) -> Result<()> {
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
        self.ftl.with_segments(|s| s.release_chain(&dead, log.last_lsn()));
        self.reserve_segments(&log);
        self.ftl.free_durable(log.confirmed_durable_lsn)
    }
}
