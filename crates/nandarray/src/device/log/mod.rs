//! The log: changes that wait for a journal record, the place of the next record, and the generations of metadata.
//!
//! [`Log`] is state without I/O: its methods keep record numbers, chains and superblock consistent, and assert that
//! they are. The device writes the records and superblocks that the log describes, under the log's lock.
//!
//! | file | one idea |
//! | --- | --- |
//! | `commit` | cuts, journal records, barriers, flush, close |
//! | `room` | disk blocks for the next records |
//! | `checkpoint` | a new generation: all indexes and the directory, a new journal, the other superblock |
//! | `stored` | the stream of a checkpoint, and the indexes that are read from it when they are needed |

mod checkpoint;
mod commit;
mod room;
mod stored;

pub(super) use stored::{CheckpointIndex, CheckpointStream};

use super::wire::JournalOp;
use crate::flash::Segment;
use crate::ftl::chain::Chain;
use crate::ftl::superblock::Superblock;

/// The journal's end, the changes that wait to be written there, and the generations of metadata.
///
/// Numbers of records (LSNs) stay in this order: confirmed <= recorded <= durable < next.
#[derive(Debug)]
pub(super) struct Log {
    /// Changes applied since the last record.
    pending: Vec<JournalOp>,
    /// The journal's chain; `None` while the store is being created, and in a store that is only read.
    chain: Option<Chain>,
    /// Offset of the next record in the chain, in bytes.
    at: u64,
    /// End, in bytes, of the part of the chain that has disk blocks, so that writing there cannot find the disk full.
    allocated_to: u64,
    /// Segments of checkpoints whose superblock failed to be written: that superblock may be on the medium and name
    /// them.
    doubtful: Vec<Segment>,
    /// Number of the next record.
    next_lsn: u64,
    /// CRC of the newest record; 0 if the chain has none yet.
    last_crc: u32,
    /// Number of the newest durable record.
    durable_lsn: u64,
    /// The `durable_lsn` that the newest record contains.
    recorded_durable_lsn: u64,
    /// The newest `durable_lsn` that is itself durable, in a record or the superblock. Only pages that died in records
    /// up to this one may be reused: recovery checks the pages that all later records name, including pages that a
    /// still later record frees.
    confirmed_durable_lsn: u64,
    /// The `durable_lsn` in the newest durable mark, or in the superblock (see `ftl/mark.rs`).
    marked_durable_lsn: u64,
    /// Place of the next durable mark to be written, 0 or 1.
    mark_place: usize,
    /// The current superblock.
    superblock: Superblock,
    /// Slot of the current superblock, 0 or 1.
    slot: usize,
    /// Segments of the current checkpoint.
    checkpoint: Vec<Segment>,
    /// Segments of the previous generation: its checkpoint and its journal.
    previous: Vec<Segment>,
    /// Whether the next checkpoint has the format with snapshots even if there is none.
    for_snapshots: bool,
    /// Bytes by which the next checkpoint may be longer than the newest one because versions of a space, whose indexes
    /// were alike and stored once, come to differ.
    spread_bytes: u64,
}

/// The end of the journal as found when a store is opened.
#[derive(Debug)]
pub(super) struct JournalEnd {
    /// Chain to which further records are appended, the journal's last one.
    pub(super) chain: Chain,
    /// Offset of the next record in the chain, in bytes.
    pub(super) at: u64,
    /// Number of the next record.
    pub(super) next_lsn: u64,
    /// CRC of the newest record; 0 if the chain has none yet.
    pub(super) last_crc: u32,
    /// Number of the newest durable record.
    pub(super) durable_lsn: u64,
    /// Place of the next durable mark to be written, 0 or 1.
    pub(super) mark_place: usize,
}

impl Log {
    /// Creates the log of a new store, whose first checkpoint goes to slot 0.
    pub(super) fn of_new_store(superblock: Superblock) -> Self {
        Self {
            pending: vec![],
            chain: None,
            at: 0,
            allocated_to: 0,
            doubtful: vec![],
            next_lsn: 1,
            last_crc: 0,
            durable_lsn: 0,
            recorded_durable_lsn: 0,
            confirmed_durable_lsn: 0,
            marked_durable_lsn: 0,
            mark_place: 0,
            superblock,
            slot: 1,
            checkpoint: vec![],
            previous: vec![],
            for_snapshots: false,
            spread_bytes: 0,
        }
    }

    /// Creates the log of an existing store, with the segments of its checkpoint and of the previous generation.
    pub(super) fn of_store(
        superblock: Superblock,
        slot: usize,
        end: JournalEnd,
        checkpoint: Vec<Segment>,
        previous: Vec<Segment>,
    ) -> Self {
        let JournalEnd { chain, at, next_lsn, last_crc, durable_lsn, mark_place } = end;
        assert!(durable_lsn < next_lsn, "record {durable_lsn} is durable, and the next one is {next_lsn}");
        Self {
            chain: Some(chain),
            at,
            next_lsn,
            last_crc,
            durable_lsn,
            recorded_durable_lsn: durable_lsn,
            confirmed_durable_lsn: durable_lsn,
            marked_durable_lsn: durable_lsn,
            mark_place,
            slot,
            checkpoint,
            previous,
            ..Self::of_new_store(superblock)
        }
    }

    /// Queues changes for the next journal record.
    pub(super) fn queue(&mut self, changes: impl IntoIterator<Item = JournalOp>) {
        self.pending.extend(changes);
    }

    /// Adds to the bytes by which the next checkpoint may be longer because versions of spaces come to differ.
    pub(super) fn expect_spread(&mut self, bytes: u64) {
        self.spread_bytes = self.spread_bytes.saturating_add(bytes);
    }

    /// Whether changes wait for a journal record.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns the number of the newest record.
    pub(super) fn last_lsn(&self) -> u64 {
        self.next_lsn - 1
    }

    /// Returns the current superblock.
    pub(super) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns the slot of the current superblock, 0 or 1.
    pub(super) fn slot(&self) -> usize {
        self.slot
    }

    /// Whether nothing was written since the newest checkpoint, and no changes wait.
    pub(super) fn is_as_checkpointed(&self) -> bool {
        self.at == 0 && self.pending.is_empty()
    }

    /// Whether the current journal has records.
    pub(super) fn has_records(&self) -> bool {
        self.at > 0
    }

    /// Whether the metadata is as small as possible: one checkpoint and a journal of one segment.
    pub(super) fn has_least_metadata(&self) -> bool {
        self.previous.is_empty()
            && self.doubtful.is_empty()
            && self.chain.as_ref().is_none_or(|chain| chain.segments().len() == 1)
    }

    /// Returns the number of segments of the current checkpoint.
    pub(super) fn checkpoint_segments(&self) -> usize {
        self.checkpoint.len()
    }

    /// Returns the number of segments of all metadata: both generations, and the journal.
    fn metadata_segments(&self) -> usize {
        self.checkpoint.len() + self.previous.len() + self.chain.as_ref().map_or(0, |chain| chain.segments().len())
    }

    /// Advances the end of the journal by a record that was written, with this number of bytes and this CRC.
    fn note_record(&mut self, bytes: u64, crc: u32) {
        assert!(self.durable_lsn < self.next_lsn, "record {} is not written yet", self.durable_lsn);
        self.at += bytes;
        self.next_lsn += 1;
        self.last_crc = crc;
        self.recorded_durable_lsn = self.durable_lsn;
        self.check_order();
    }

    /// Notes that records up to `lsn` are durable, and so is the `durable_lsn` that the newest record contains.
    fn note_durable(&mut self, lsn: u64) {
        self.durable_lsn = self.durable_lsn.max(lsn);
        self.confirmed_durable_lsn = self.confirmed_durable_lsn.max(self.recorded_durable_lsn);
        self.check_order();
    }

    /// Switches to a new generation, whose superblock is durable in `slot`. Returns the segments of the generation
    /// before the last, which may be freed once the switch is known to be durable.
    fn begin_generation(
        &mut self,
        superblock: Superblock,
        slot: usize,
        checkpoint: Vec<Segment>,
        journal: Chain,
    ) -> Vec<Segment> {
        assert!(self.pending.is_empty(), "a checkpoint is taken at a cut; {} changes wait", self.pending.len());
        assert!(slot != self.slot, "the superblock that counts, in slot {slot}, is kept");
        self.next_lsn = superblock.journal_lsn;
        let mut before: Vec<Segment> = std::mem::replace(&mut self.checkpoint, checkpoint);
        before.extend(self.chain.iter().flat_map(Chain::segments));
        let mut dead = std::mem::replace(&mut self.previous, before);
        // The superblock that may have named these segments has been overwritten.
        dead.append(&mut self.doubtful);
        self.chain = Some(journal);
        self.at = 0;
        self.allocated_to = 0;
        self.last_crc = 0;
        self.durable_lsn = self.durable_lsn.max(superblock.journal_lsn - 1);
        self.recorded_durable_lsn = self.durable_lsn;
        self.confirmed_durable_lsn = self.durable_lsn;
        self.marked_durable_lsn = self.durable_lsn;
        self.superblock = superblock;
        self.slot = slot;
        self.check_order();
        dead
    }

    fn check_order(&self) {
        assert!(
            self.confirmed_durable_lsn <= self.durable_lsn
                && self.recorded_durable_lsn <= self.durable_lsn
                && self.durable_lsn < self.next_lsn,
            "record {} is durable, {} recorded, {} confirmed, {} next",
            self.durable_lsn,
            self.recorded_durable_lsn,
            self.confirmed_durable_lsn,
            self.next_lsn
        );
    }
}
