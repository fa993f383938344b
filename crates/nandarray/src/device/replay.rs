//! Replay: reads the journals of a generation, and applies their records to the checkpoint's state.
//!
//! Durable records are applied as they are. Pages of later records may have been lost with the power, so each is first
//! compared with its out-of-band record; the journal ends before the first record with a page that fails, or before the
//! first torn record. `recover` decides which generation is read, and what follows from ignored records.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::snapshots::check_snapshot_name;
use super::wire::{JournalOp, MovedPages, RecordBody, Update, from_wire};
use super::{Catalog, Dropped};
use crate::codec::Framing;
use crate::error::{Error, Result};
use crate::flash::geometry::SEGMENTS_MAX;
use crate::flash::{Owner, Ppa, Run, Segment, SegmentKind};
use crate::ftl::Ftl;
use crate::ftl::chain::Chain;
use crate::ftl::journal::{self, End};
use crate::ftl::segments::Segments;
use crate::ftl::superblock::{ChainStart, Superblock};
use crate::ftl::wear::OpenedSince;
use crate::media::Media;
use crate::stl::index::Index;
use crate::stl::space::{IndexState, Space, owner_space, unpack};
use crate::stl::write::{remap, substitute};

/// The journal of a generation, together with the later journals that it leads to, in order.
pub(super) struct Journals {
    pub(super) records: Vec<journal::Record>,
    /// The newest chain, and the offset in bytes of its end.
    pub(super) last: (Chain, u64),
    /// Index in `records` of the first record of the newest chain.
    pub(super) first_in_last: usize,
    /// Segments of the earlier chains.
    pub(super) before: Vec<Segment>,
    pub(super) end: End,
    pub(super) switched: bool,
}

pub(super) fn read_journals(media: &dyn Media, superblock: &Superblock) -> Result<Journals> {
    let mut chain = Chain::begin(superblock.geometry, superblock.journal);
    let mut all = Vec::new();
    let mut before = Vec::new();
    let mut lsn = superblock.journal_lsn;
    loop {
        let first_in_last = all.len();
        let (records, at, end) = journal::read_all(media, &mut chain, lsn, superblock.clean.map(|c| c.0))?;
        lsn += records.len() as u64;
        all.extend(records);
        let switch = all.last().and_then(|r| postcard::from_bytes::<RecordBody>(&r.payload).ok()).and_then(|body| {
            match body.ops[..] {
                [JournalOp::Switch { first, nonce }] => Some(ChainStart { first, nonce }),
                _ => None,
            }
        });
        let known = |s: &ChainStart| before.contains(&s.first) || chain.segments().contains(&s.first);
        match switch.filter(|s| !known(s)) {
            Some(start) => {
                if u64::from(start.first) >= SEGMENTS_MAX {
                    return Err(Error::corrupt(format!(
                        "a journal goes on in segment {}; a store has at most {SEGMENTS_MAX}",
                        start.first
                    )));
                }
                before.extend(chain.segments());
                chain = Chain::begin(superblock.geometry, start);
            }
            None => {
                let switched = !before.is_empty();
                return Ok(Journals { records: all, last: (chain, at), first_in_last, before, end, switched });
            }
        }
    }
}

/// The result of a replay.
pub(super) struct Replayed {
    /// Number of records applied.
    pub(super) applied: u64,
    /// Records that were ignored; `None` if all were applied.
    pub(super) dropped: Option<Dropped>,
    /// Number of the newest record that is known to be durable, 0 if none is.
    pub(super) durable: u64,
}

/// Whether durable records are missing from the journal; `known` is the newest record known to be durable from
/// superblocks and marks.
pub(super) fn is_damaged(journals: &Journals, superblock: &Superblock, known: u64) -> bool {
    let last = superblock.journal_lsn + journals.records.len() as u64 - 1;
    matches!(journals.end, End::Damaged(_)) || known > last
}

/// Applies records until the first whose pages did not arrive on the medium; `known` is as in [`is_damaged`].
pub(super) fn replay_all(
    replay: &mut Replay<'_>,
    journals: &Journals,
    superblock: &Superblock,
    known: u64,
) -> Result<Replayed> {
    let records = &journals.records;
    let behind = journals.end.behind().map_or(&[][..], |b| &b.records);
    let last = superblock.journal_lsn + records.len() as u64 - 1;
    let durable = records.iter().chain(behind).map(|r| r.durable).fold(known, u64::max);
    // If so, the missing record was durable, and therefore all records before it: their pages need no comparison.
    let damaged = is_damaged(journals, superblock, known);
    if damaged && !replay.salvage {
        return Err(Error::corrupt(format!(
            "the journal is damaged behind record {last}: record {durable} was durable; `nandarray check --repair` \
             rebuilds what pages tell"
        )));
    }
    let mut applied = 0;
    for record in records {
        let body: RecordBody = postcard::from_bytes(&record.payload)
            .map_err(|e| Error::corrupt(format!("journal record {} cannot be read: {e}", record.lsn)))?;
        if record.lsn > durable {
            replay.ftl.with_segments(Segments::expect_uncertain);
            if !replay.pages_arrived(&body)? {
                break;
            }
        }
        assert_eq!(record.lsn, superblock.journal_lsn + applied, "a journal is read in the order of its records");
        replay.seq = replay.seq.max(body.seq);
        for op in body.ops {
            replay.op(op).map_err(|e| Error::corrupt(format!("journal record {}: {e}", record.lsn)))?;
        }
        applied += 1;
    }
    assert!(applied <= records.len() as u64, "{applied} of {} records were applied", records.len());
    let first = superblock.journal_lsn + applied;
    let torn = journals.end.behind().is_some_and(|b| b.torn).then_some(last + 1);
    let there = records[applied as usize..].iter().chain(behind).map(|r| r.lsn).chain(torn);
    let mut dropped = Dropped { first, durable: damaged, ..Dropped::default() };
    dropped.last = there.fold(if damaged { known } else { 0 }, u64::max);
    if damaged {
        replay.ftl.with_segments(Segments::expect_uncertain);
        (dropped.pages_taken, dropped.pages_lost) = replay.roll_forward()?;
    }
    dropped.name_arrays(records[applied as usize..].iter().chain(behind).map(|r| &r.payload[..]), &replay.catalog);
    Ok(Replayed { applied, dropped: Some(dropped).filter(|d| d.last >= d.first), durable })
}

/// A store's state while journal records are applied to it.
pub(super) struct Replay<'a> {
    pub(super) ftl: &'a Ftl,
    pub(super) catalog: Catalog,
    pub(super) framing: Framing,
    pub(super) seq: u64,
    /// Segments that records name: pages were written to them since the checkpoint.
    pub(super) opened: OpenedSince,
    /// Whether indexes may have been rebuilt, so that they map other pages than the checkpoint counts; live pages are
    /// then counted after the replay.
    pub(super) salvage: bool,
}

impl Replay<'_> {
    /// Whether all pages that a record names are on the medium, intact, and belong to the blocks that the record says.
    fn pages_arrived(&self, body: &RecordBody) -> Result<bool> {
        // A space that the same record creates is not in the catalog yet, so only number, unit and command are
        // compared.
        let page = self.ftl.geometry().page_bytes as usize;
        let have = self.ftl.geometry().segments_within(self.ftl.media().len());
        let mut bytes = vec![0; page];
        for op in &body.ops {
            let (space, seq, runs) = match op {
                JournalOp::Update(update) => (update.space, update.seq, update.runs()?),
                JournalOp::Move(moved) => (moved.space, moved.seq, from_wire(&moved.to)?),
                _ => continue,
            };
            for run in runs {
                if !self.ftl.geometry().has_run(run, have) {
                    return Ok(false);
                }
                for unit in run.unit..run.end() {
                    let ppa = run.page_of(unit);
                    self.ftl.media().read_at(self.ftl.geometry().page_offset(ppa), &mut bytes)?;
                    let good = self.ftl.oob(ppa)?.is_some_and(|r| {
                        let owner = r.owner();
                        (owner.unit, owner_space(&owner).0, r.seq()) == (unit as u16, space, seq) && r.matches(&bytes)
                    });
                    if !good {
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    fn space(&self, id: u32) -> Result<&Arc<Space>> {
        self.catalog.by_id.get(&id).ok_or_else(|| Error::corrupt(format!("it names space {id}, which is not there")))
    }

    fn op(&mut self, op: JournalOp) -> Result<()> {
        match op {
            JournalOp::Create(record) => {
                let (name, id) = (record.name.clone(), record.id);
                let dimensions = record.shape.len().max(1);
                let page_bytes = self.ftl.geometry().page_bytes;
                let space = Space::new(record, IndexState::Loaded(Index::new(dimensions)), page_bytes, self.framing)?;
                self.catalog.next = self.catalog.next.max(id.saturating_add(1));
                let taken = self.catalog.by_name.insert(name, id).is_some();
                if self.catalog.by_id.insert(id, space).is_some() || taken {
                    return Err(Error::corrupt(format!("space {id} is made twice")));
                }
            }
            JournalOp::Delete(id) => {
                let space = self.space(id)?.clone();
                let name = space.peek().record.name.clone();
                let dead = space.write()?.all_unshared();
                self.dead(&dead)?;
                self.catalog.by_name.remove(&name);
                self.catalog.by_id.remove(&id);
            }
            JournalOp::Resize(id, shape) => {
                let space = self.space(id)?;
                let mut inner = space.peek_mut();
                if shape.len() != inner.record.shape.len() {
                    return Err(Error::corrupt("it changes the number of dimensions"));
                }
                inner.record.shape = shape;
            }
            JournalOp::Attrs(id, attrs) => self.space(id)?.peek_mut().record.attrs = attrs,
            JournalOp::Rename(id, name) => {
                let old = {
                    let mut inner = self.space(id)?.peek_mut();
                    std::mem::replace(&mut inner.record.name, name.clone())
                };
                self.catalog.by_name.remove(&old);
                if self.catalog.by_name.insert(name, id).is_some() {
                    return Err(Error::corrupt("it gives a name that is taken"));
                }
            }
            JournalOp::Update(update) => self.update(&update)?,
            JournalOp::Switch { .. } => {}
            JournalOp::Snapshot { name, time, seq } => {
                check_snapshot_name(&name)?;
                self.catalog.freeze(&name, time, seq, (self.ftl.geometry(), self.framing))?.make();
            }
            JournalOp::DeleteSnapshot(name) => {
                let dead = self.catalog.ending(&name)?.end()?;
                self.catalog.forget_snapshot(&name);
                self.dead(&dead)?;
            }
            JournalOp::Move(moved) => self.moved(&moved)?,
        }
        Ok(())
    }

    fn moved(&mut self, moved: &MovedPages) -> Result<()> {
        let (from, to) = (from_wire(&moved.from)?, from_wire(&moved.to)?);
        let units = |runs: &[Run]| -> Vec<u32> { runs.iter().flat_map(|run| run.unit..run.end()).collect() };
        let mut left: BTreeSet<u32> = units(&from).into_iter().collect();
        if units(&from) != units(&to) {
            return Err(Error::corrupt("it moves pages to other units"));
        }
        for space in self.catalog.versions(moved.space) {
            if moved.at.len() != space.shape.block.len() {
                return Err(Error::corrupt("it has a block of another dimensionality"));
            }
            for unit in substitute(&mut *space.write()?, &moved.at, &from, &to) {
                left.remove(&unit);
            }
        }
        if let Some(unit) = left.first().filter(|_| !self.salvage) {
            return Err(Error::corrupt(format!("it moves unit {unit} from a page that the unit does not have")));
        }
        self.dead(&from)?;
        self.live(to)
    }

    fn update(&mut self, update: &Update) -> Result<()> {
        let runs = update.runs()?;
        let space = self.space(update.space)?.clone();
        if update.at.len() != space.shape.block.len() {
            return Err(Error::corrupt("it has a block of another dimensionality"));
        }
        let mut inner = space.write()?;
        let gone = update.gone();
        // A unit that gets a page without losing its old one would be mapped twice.
        if runs.iter().any(|r| (r.unit..r.end()).any(|u| !gone.has(u))) {
            return Err(Error::corrupt("it maps units twice"));
        }
        let dead = remap(&mut inner, &update.at, &gone, &runs).dead;
        drop(inner);
        self.dead(&dead)?;
        self.live(runs)
    }

    fn live(&mut self, runs: Vec<Run>) -> Result<()> {
        for run in runs {
            let was_live = self.ftl.with_segments(|s| s.has_live(run));
            if !self.ftl.with_segments(|s| s.revive(run)) && !self.salvage {
                return Err(Error::corrupt(format!("page {} cannot be live", run.ppa.0)));
            }
            self.opened.name(&self.ftl.geometry(), run, was_live);
        }
        Ok(())
    }

    fn dead(&self, runs: &[Run]) -> Result<()> {
        for &run in runs {
            if !self.ftl.with_segments(|s| s.unrevive(run)) && !self.salvage {
                return Err(Error::corrupt(format!("page {} dies twice", run.ppa.0)));
            }
        }
        Ok(())
    }

    /// Applies, for a salvage, pages that are newer than all replayed records, in the order of their commands. Returns
    /// the number of pages applied, and the number of pages whose array, or place in the array, is unknown.
    fn roll_forward(&mut self) -> Result<(u64, u64)> {
        let mut newer: Vec<(u64, Owner, Ppa)> = Vec::new();
        let geometry = self.ftl.geometry();
        for segment in 0..geometry.segments_within(self.ftl.media().len()) as Segment {
            let data = self.ftl.header_of(segment)?.is_none_or(|h| h.kind() == Some(SegmentKind::Data));
            if !data {
                continue;
            }
            for (page, record) in self.ftl.oob_of_segment(segment)?.into_iter().enumerate() {
                if let Some(r) = record.filter(|r| r.seq() > self.seq) {
                    newer.push((r.seq(), r.owner(), geometry.ppa(segment, page as u32)));
                }
            }
        }
        newer.sort_by_key(|(seq, owner, ppa)| (*seq, owner.space, owner.key, owner.unit, *ppa));
        // A block's newest page is applied last.
        assert!(newer.is_sorted_by_key(|(seq, ..)| *seq), "pages are applied in the order of their commands");
        let (found, mut taken) = (newer.len() as u64, 0);
        for (seq, owner, ppa) in newer {
            self.seq = self.seq.max(seq);
            let (id, spilled) = owner_space(&owner);
            let Some(space) = self.catalog.by_id.get(&id).filter(|_| !spilled) else { continue };
            let Some(at) = unpack(&owner.key, space.shape.block.len()) else { continue };
            // A damaged page is mapped as well, so that reading it is an error instead of returning older content.
            let unit = u32::from(owner.unit);
            let gone = if space.coded() && unit == 0 { None } else { Some(vec![(unit, unit + 1)]) };
            self.update(&Update { space: id, seq, at: at.to_vec(), gone, runs: vec![(unit, 1, ppa.0)] })?;
            taken += 1;
        }
        Ok((taken, found - taken))
    }
}
