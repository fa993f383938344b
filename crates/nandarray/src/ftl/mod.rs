//! Flash management on a medium: pages are only ever appended, each with its out-of-band record; segments die and are
//! reused.
//!
//! The life of a page: [`Ftl::append`] hands out a place by the placement policy, writes the bytes and the record, and
//! the page is *staged*; [`Ftl::adopt`] makes it live once its command is applied, [`Ftl::abandon`] drops it if the
//! command failed; [`Ftl::release`] when it is superseded. Readers see pages through [`Ftl::view`] or [`Ftl::fetch`],
//! compared with their checksum and owner the first time.
//!
//! Space is promised before it is taken ([`Ftl::reserve`]), so that a command fails before it has written, not
//! half-way. The layer knows owners as opaque tags and never what a page means; the journal's payloads belong to the
//! layers above.
//!
//! | file | one idea |
//! | --- | --- |
//! | `segments` | states of segments, pages handed out |
//! | `room` | opening segments; disks that are full, places that are worn out; giving room back |
//! | `placement/` | where a unit goes |
//! | `policy/` | rules that the model shares: victims of reclaim, wear levelling |
//! | `chain`, `journal`, `superblock` | streams of segments; records; where reading begins |
//! | `mark` | how far the journal is durable |
//! | `verified` | which pages were compared since opening |
//! | `wear` | erase counts of segments, kept across openings |

pub mod chain;
pub mod journal;
pub mod mark;
pub mod placement;
pub mod policy;
pub mod room;
pub mod segments;
pub mod superblock;
pub mod verified;
pub mod wear;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::flash::geometry::{LOST_SEGMENT, OOB_BYTES, SEGMENT_HEADER_BYTES, SEGMENTS_MAX};
use crate::flash::{Geometry, OobRecord, Owner, Ppa, Run, Segment, SegmentHeader, SegmentKind, crc32c};
use crate::media::Media;
use crate::sim::{Chance, Counters, Probe, count};
use placement::{BlockUse, OpenLanes, Placement};
use policy::wear_levelling::WearLevelling;
use policy::{GcPolicy, ReclaimView};
use segments::{OpenSegment, SegmentState, Segments};
use verified::Verified;

/// When pages are compared with their checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// The first time that a page is read since the store was opened.
    Once,
    /// Every time.
    Always,
    /// Never: for measurements.
    Never,
}

/// A page that is not what its record says.
#[derive(Clone, Debug)]
pub struct BadPage {
    /// The access unit, as the caller numbers it.
    pub unit: u32,
    /// Its offset on the medium.
    pub offset: u64,
    /// The comparison that failed.
    pub what: &'static str,
}

/// The reason why pages cannot be read.
#[derive(Debug)]
pub enum FetchError {
    /// A page is damaged.
    Bad(BadPage),
    /// The medium failed.
    Media(Error),
}

impl From<Error> for FetchError {
    fn from(e: Error) -> Self {
        Self::Media(e)
    }
}

/// A unit to append: its number, and the page that it had.
pub type UnitWrite = (u32, Option<Ppa>);

#[derive(Debug)]
struct FtlState {
    segments: Segments,
    placement: Box<dyn Placement>,
    /// The segment behind the last victim, where round-robin goes on.
    behind_last_victim: Segment,
    /// Segments that had been opened when a cold one was emptied last.
    levelled_at: u64,
    chance: Chance,
    /// The number of the next journal record: what dies now is dead for good once that one is durable.
    next_lsn: u64,
    /// Pages promised to commands that run.
    reserved: u64,
    /// Pages promised to write buffers.
    promised: u64,
    /// Segments opened since the checkpoint that recovery began from, with the number of openings that the journal
    /// shows. Their headers have the exact erase counts; a segment leaves this table when its header is read.
    opened_since: BTreeMap<Segment, u32>,
    /// Segments that commands may not take: reclaim needs one to move into, journal and checkpoint theirs.
    kept: u64,
    spare: room::Spare,
}

/// Flash management over one medium.
#[derive(Debug)]
pub struct Ftl {
    media: Arc<dyn Media>,
    geometry: Geometry,
    counters: Arc<Counters>,
    verify: Verify,
    gc: GcPolicy,
    wear_levelling: WearLevelling,
    verified: Verified,
    /// Whether the disk refused room since the store was opened: it is used sparingly from then on.
    tight: AtomicBool,
    /// The most segments that the medium may have.
    segments_max: u64,
    capacity_bytes: u64,
    probe: Option<Arc<dyn Probe>>,
    state: Mutex<FtlState>,
}

/// Closed segments as a policy sees them.
struct ClosedSegments<'a> {
    segments: &'a Segments,
    behind_last: Segment,
}

impl ReclaimView for ClosedSegments<'_> {
    fn count(&self) -> u32 {
        self.segments.len() as u32
    }

    fn closed(&self, block: u32) -> Option<policy::ClosedBlock> {
        self.segments.closed(block)
    }

    fn behind_last(&self) -> u32 {
        self.behind_last
    }
}

/// Of the segments kept back, those for reclaim: one to move into, and one that the open segment's rest does not fill.
const SEGMENTS_FOR_RECLAIM: u64 = 2;

/// Most bytes that the medium grows by before a command begins; a promise counts every block that it may touch.
const GROWN_AHEAD_BYTES: u64 = 256 << 20;

/// A promise of pages, kept until it is dropped.
#[derive(Debug)]
pub struct Reservation<'a> {
    ftl: &'a Ftl,
    pages: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let s = &mut *self.ftl.state.lock();
        assert!(s.reserved >= self.pages, "{} pages of {} reserved are returned", self.pages, s.reserved);
        s.reserved -= self.pages;
    }
}

/// Use of the flash.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Segments on the medium.
    pub segments: u64,
    /// Of them free.
    pub free: u64,
    /// Of them waiting for a barrier.
    pub pending_free: u64,
    /// Of them in journal and checkpoints.
    pub chain: u64,
    /// Of them retired after a failed write.
    pub bad: u64,
    /// Live pages.
    pub live_pages: u64,
    /// Dead pages in closed segments.
    pub garbage_pages: u64,
    /// The lowest and the highest erase count of a segment, and the sum of all; under a capacity, of segments that were
    /// cut off, too.
    pub erases: (u64, u64, u64),
}

impl Ftl {
    /// Flash management over a medium with this many segments, all free as yet.
    pub fn new(
        media: Arc<dyn Media>,
        geometry: Geometry,
        counters: Arc<Counters>,
        verify: Verify,
        (placement, gc): (Box<dyn Placement>, GcPolicy),
        capacity_bytes: u64,
        seed: u64,
    ) -> Self {
        let mut segments = Segments::new(geometry, capacity_bytes > 0);
        segments.grow(geometry.segments_within(media.len()).min(SEGMENTS_MAX) as usize);
        // The last one stays away: what is mapped there is lost.
        let most = u64::from(LOST_SEGMENT);
        let segments_max = match capacity_bytes {
            0 => most,
            bytes => geometry.segments_within(bytes).min(most),
        };
        Self {
            media,
            geometry,
            counters,
            verify,
            gc,
            wear_levelling: WearLevelling::default(),
            verified: Verified::new(geometry),
            tight: AtomicBool::new(false),
            segments_max,
            capacity_bytes,
            probe: None,
            state: Mutex::new(FtlState {
                segments,
                placement,
                behind_last_victim: 0,
                levelled_at: 0,
                chance: Chance::seeded(seed),
                next_lsn: 1,
                reserved: 0,
                promised: 0,
                opened_since: BTreeMap::new(),
                kept: 4,
                spare: room::Spare::Unknown,
            }),
        }
    }

    /// Levels wear by these rules; without this, erase counts are kept and not levelled.
    pub fn with_wear_levelling(mut self, rules: WearLevelling) -> Self {
        self.wear_levelling = rules;
        self
    }

    /// Reports to this probe.
    pub fn with_probe(mut self, probe: Option<Arc<dyn Probe>>) -> Self {
        self.probe = probe;
        self
    }

    /// The probe.
    pub fn probe(&self) -> Option<&dyn Probe> {
        self.probe.as_deref()
    }

    /// The medium below.
    pub fn media(&self) -> &Arc<dyn Media> {
        &self.media
    }

    /// The shape of the flash.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Names of the policies: placement, victim.
    pub fn policies(&self) -> (String, String) {
        (self.state.lock().placement.name().to_owned(), self.gc.name().to_owned())
    }

    /// A number drawn by chance.
    pub fn draw(&self) -> u64 {
        self.state.lock().chance.below(u64::MAX)
    }

    /// Runs `f` on the table of segments: for opening, checking and statistics.
    pub fn with_segments<T>(&self, f: impl FnOnce(&mut Segments) -> T) -> T {
        f(&mut self.state.lock().segments)
    }

    /// Sets the number of the next journal record.
    pub fn set_next_lsn(&self, lsn: u64) {
        self.state.lock().next_lsn = lsn;
    }

    /// Use of the flash at present.
    pub fn usage(&self) -> Usage {
        let s = self.state.lock();
        let of =
            |state: fn(&SegmentState) -> bool| s.segments.infos().iter().filter(|i| state(&i.state)).count() as u64;
        Usage {
            segments: s.segments.len() as u64,
            free: s.segments.free().len() as u64,
            pending_free: s.segments.pending_free() as u64,
            chain: of(|s| matches!(s, SegmentState::Chain)),
            bad: of(|s| matches!(s, SegmentState::Bad)),
            live_pages: s.segments.live(),
            garbage_pages: s.segments.garbage(),
            erases: s.segments.wear(),
        }
    }

    fn full(&self, s: &FtlState, what: String) -> Error {
        let capacity_bytes = if self.capacity_bytes == 0 { self.media.len() } else { self.capacity_bytes };
        Error::Full { what, capacity_bytes, live_bytes: s.segments.live() * u64::from(self.geometry.page_bytes) }
    }

    /// Pages that commands may still take, given what is promised to others.
    fn available(&self, s: &FtlState) -> u64 {
        let per_segment = u64::from(self.geometry.pages_per_segment());
        let growable = self.segments_max.saturating_sub(s.segments.len() as u64);
        (s.segments.free_pages() + growable.saturating_mul(per_segment))
            .saturating_sub(s.kept * per_segment + s.reserved + s.promised)
    }

    /// Reserves this number of segments for journal and checkpoint.
    pub fn reserve_segments(&self, segments: u64) {
        self.state.lock().kept = SEGMENTS_FOR_RECLAIM + segments;
    }

    /// Pages promised to write buffers.
    pub fn promised(&self) -> u64 {
        self.state.lock().promised
    }

    /// Changes the promise to a write buffer from `before` pages to `after`.
    pub fn promise(&self, before: u64, after: u64) {
        let s = &mut *self.state.lock();
        assert!(s.promised >= before, "{before} pages of {} promised are returned", s.promised);
        s.promised = s.promised + after - before;
    }

    /// Promises pages for a command. With `urgent`, reserved segments count as available: for reclaim, and for data
    /// that was accepted earlier.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn reserve(&self, pages: u64, urgent: bool) -> Result<Reservation<'_>> {
        let s = &mut *self.state.lock();
        if !urgent {
            if self.available(s) < pages {
                return Err(self.full(s, format!("{pages} pages of {} bytes are needed", self.geometry.page_bytes)));
            }
            // The medium grows now rather than half-way: a disk that is full is noticed before anything was written.
            let per_segment = u64::from(self.geometry.pages_per_segment());
            let soon = pages.min(GROWN_AHEAD_BYTES / u64::from(self.geometry.page_bytes));
            let needed =
                (s.kept * per_segment + s.reserved + s.promised + soon).saturating_sub(s.segments.free_pages());
            // A disk that refused room before fails early in any case, and length alone gains nothing there.
            if !self.tight.load(Ordering::Relaxed) {
                self.grow(s, needed.div_ceil(per_segment))?;
            }
        }
        s.reserved += pages;
        Ok(Reservation { ftl: self, pages })
    }

    /// Whether reclaim is due: under a capacity when less than a tenth is free (NDS paper, section 4.2), without one
    /// when garbage outweighs what is live.
    pub fn wants_reclaim(&self) -> bool {
        let s = self.state.lock();
        let per_segment = u64::from(self.geometry.pages_per_segment());
        let garbage = s.segments.garbage();
        if garbage < per_segment {
            return false;
        }
        if self.capacity_bytes == 0 {
            return garbage > s.segments.live() / 2 + 16 * per_segment;
        }
        self.available(&s) < self.segments_max * per_segment / 10
    }

    /// Whether enough segments wait for a barrier to be free that one is worth its cost.
    pub fn wants_barrier(&self) -> bool {
        let s = self.state.lock();
        let pending_free = s.segments.pending_free() as u64;
        if self.capacity_bytes == 0 {
            pending_free > 64 + s.segments.len() as u64 / 4
        } else {
            pending_free > 0
                && self.available(&s) < self.segments_max * u64::from(self.geometry.pages_per_segment()) / 20
        }
    }

    /// Appends units of one building block. `block` holds the block's bytes from unit 0 on, padded to whole pages;
    /// `on_lanes` are pages that the block has already, for the placement policy.
    ///
    /// The pages are staged: the caller must adopt or abandon the runs returned. On an error nothing stays staged.
    pub fn append(
        &self,
        owner: Owner,
        seq: u64,
        block: &[u8],
        units: &[UnitWrite],
        on_lanes: &mut dyn Iterator<Item = Ppa>,
    ) -> Result<Vec<Run>> {
        let mut usage = BlockUse { used: vec![0; self.geometry.lanes() as usize], last: None };
        for ppa in on_lanes {
            let lane = self.geometry.lane_index(self.geometry.lane_of(ppa));
            usage.used[lane] += 1;
            usage.last = Some(lane);
        }
        let mut runs = Vec::new();
        let written = self.append_all(owner, seq, block, units, &mut usage, &mut runs);
        if let Err(e) = written {
            self.abandon(&runs);
            return Err(e);
        }
        runs.sort_unstable_by_key(|r| r.unit);
        assert_eq!(runs.iter().map(|r| r.count as usize).sum::<usize>(), units.len(), "a page for each unit");
        count(&self.counters.pages_appended, units.len() as u64);
        Ok(runs)
    }

    fn append_all(
        &self,
        owner: Owner,
        seq: u64,
        block: &[u8],
        mut units: &[UnitWrite],
        usage: &mut BlockUse,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let mut suspects = Vec::new();
        while !units.is_empty() {
            let mut new = Vec::new();
            let done = match self.hand_out(units, usage, &mut new) {
                Ok(done) => done,
                Err(e) => {
                    self.unretire(&suspects);
                    return Err(e);
                }
            };
            let failed = new.iter().find_map(|run| Some((*run, self.write_run(owner, seq, block, *run).err()?)));
            match failed {
                None => {
                    runs.append(&mut new);
                    units = &units[done..];
                }
                // The block wore out: retire it and hand these units other pages, unless it is the disk that fails.
                Some((run, e)) if room::worn_out(&e) => {
                    suspects.push(self.geometry.segment_of(run.ppa));
                    self.state.lock().segments.retire(self.geometry.segment_of(run.ppa));
                    self.abandon(&new);
                    if suspects.len() == room::SEGMENTS_TRIED {
                        self.unretire(&suspects);
                        return Err(e);
                    }
                }
                Some((_, e)) => {
                    runs.append(&mut new);
                    self.unretire(&suspects);
                    return Err(self.full_if_no_room(e));
                }
            }
        }
        Ok(())
    }

    fn hand_out(&self, units: &[UnitWrite], usage: &mut BlockUse, runs: &mut Vec<Run>) -> Result<usize> {
        let s = &mut *self.state.lock();
        loop {
            let done = s.segments.hand_out(units, usage, s.placement.as_mut(), &mut s.chance, runs);
            if done > 0 {
                return Ok(done);
            }
            self.report_freed(s.segments.close_open(s.next_lsn).as_slice());
            assert!(s.segments.open.is_none(), "the open segment was closed");
            let segment = self.open_segment(s, SegmentKind::Data)?;
            s.segments.open = Some(OpenSegment { segment, lanes: OpenLanes::empty(&self.geometry) });
        }
    }

    fn write_run(&self, owner: Owner, seq: u64, block: &[u8], run: Run) -> Result<()> {
        let page = self.geometry.page_bytes as usize;
        assert!(run.count > 0 && run.end() <= 1 << 16, "the record of a page has 16 bits for its unit: {run:?}");
        let bytes = &block[run.unit as usize * page..run.end() as usize * page];
        let records: Vec<OobRecord> = bytes
            .chunks_exact(page)
            .zip(run.unit..)
            .map(|(bytes, unit)| OobRecord::new(bytes, Owner { unit: unit as u16, ..owner }, seq))
            .collect();
        self.write(self.geometry.page_offset(run.ppa), bytes)?;
        self.write(self.geometry.oob_offset(run.ppa), records.as_bytes())
    }

    /// Makes staged pages live: their command is applied.
    pub fn adopt(&self, runs: &[Run]) {
        self.state.lock().segments.adopt(runs);
    }

    /// Drops staged pages: their command failed. Their records are wiped, so that no scan takes them for live.
    pub fn abandon(&self, runs: &[Run]) {
        for run in runs {
            let wipe = vec![0; run.count as usize * OOB_BYTES as usize];
            // On a medium that fails, recovery still knows by the journal that no command owns these pages.
            let _ = self.media.write_at(self.geometry.oob_offset(run.ppa), &wipe);
        }
        let discarded = self.discard_if_tight(runs);
        let s = &mut *self.state.lock();
        let freed = s.segments.abandon(runs, discarded, s.next_lsn);
        self.report_freed(&freed);
    }

    /// Marks live pages as dead: they were superseded.
    pub fn release(&self, runs: impl Iterator<Item = Run>) {
        let s = &mut *self.state.lock();
        for run in runs {
            s.segments.release(run, s.next_lsn);
        }
    }

    /// Frees segments whose freeing record is durable (up to `durable_lsn`), unless another process may still read
    /// them.
    pub fn free_durable(&self, durable_lsn: u64) -> Result<()> {
        if !self.state.lock().segments.has_frees_by(durable_lsn) {
            return Ok(());
        }
        let mut freed = Vec::new();
        self.media.if_no_readers(&mut || {
            freed = self.state.lock().segments.free_durable(durable_lsn);
            Ok(())
        })?;
        self.report_freed(&freed);
        Ok(())
    }

    /// The segment that reclaim should take next: a cold one if wear levelling is due, otherwise by the victim policy.
    pub fn victim(&self) -> Option<Segment> {
        let FtlState { segments, chance, behind_last_victim, levelled_at, .. } = &mut *self.state.lock();
        *behind_last_victim = (*behind_last_victim).min(segments.len() as Segment);
        let view = ClosedSegments { segments, behind_last: *behind_last_victim };
        // One cold segment for two that were opened: its pages take one, and levelling alone frees nothing.
        if segments.opened() > *levelled_at + 1 {
            if let Some(cold) = self.wear_levelling.cold(&view, segments.most_erases()) {
                *levelled_at = segments.opened();
                return Some(cold);
            }
        }
        let picked = self.gc.pick(&view, &mut |n| chance.below(n.into()) as u32);
        // A policy that draws may have drawn none; a store is full only if there is none.
        let victim = picked.or_else(|| view.emptiest())?;
        assert_eq!(segments.info(victim).state, SegmentState::Closed);
        *behind_last_victim = victim + 1;
        Some(victim)
    }

    /// Bytes of consecutive pages in place, where the medium shows them; not verified.
    pub fn view(&self, ppa: Ppa, count: u32) -> Option<&[u8]> {
        self.media.slice(self.geometry.page_offset(ppa), count as usize * self.geometry.page_bytes as usize)
    }

    /// Whether every page of the run was verified, so that it may be read as it is.
    pub fn is_verified(&self, ppa: Ppa, count: u32) -> bool {
        match self.verify {
            Verify::Never => true,
            Verify::Always => false,
            Verify::Once => self.verified.unverified(ppa, 0..count).is_none(),
        }
    }

    /// Compares the pages of a run with their records, where they were not compared before. `bytes` are the pages'
    /// bytes; `owner` names the owner of the run's first unit, the others follow.
    pub fn verify(&self, run: Run, owner: Owner, bytes: &[u8]) -> std::result::Result<(), FetchError> {
        if self.is_verified(run.ppa, run.count) {
            return Ok(());
        }
        let page = self.geometry.page_bytes as usize;
        let record_bytes = run.count as usize * OOB_BYTES as usize;
        let mut scratch = Vec::new();
        let records = match self.media.slice(self.geometry.oob_offset(run.ppa), record_bytes) {
            Some(records) => records,
            None => {
                scratch.resize(record_bytes, 0);
                self.media.read_at(self.geometry.oob_offset(run.ppa), &mut scratch)?;
                &scratch
            }
        };
        map_in(bytes);
        let mut at = 0;
        while at < run.count {
            let pages = match self.verify {
                Verify::Once => self.verified.unverified(run.ppa, at..run.count),
                Verify::Always | Verify::Never => Some(at..run.count),
            };
            let Some(pages) = pages else { break };
            let bad = pages.clone().find_map(|i| {
                let record = &records[i as usize * OOB_BYTES as usize..][..OOB_BYTES as usize];
                let bytes = &bytes[i as usize * page..][..page];
                what_is_wrong(record, Owner { unit: owner.unit + i as u16, ..owner }, bytes).map(|what| (i, what))
            });
            at = bad.map_or(pages.end, |(i, _)| i);
            self.verified.set(run.ppa, pages.start..at);
            count(&self.counters.pages_verified, u64::from(at - pages.start));
            if let Some((i, what)) = bad {
                let offset = self.geometry.page_offset(Ppa(run.ppa.0 + u64::from(i)));
                return Err(FetchError::Bad(BadPage { unit: run.unit + i, offset, what }));
            }
        }
        Ok(())
    }

    /// Copies the pages of a run, verified.
    pub fn fetch(&self, run: Run, owner: Owner, out: &mut [u8]) -> std::result::Result<(), FetchError> {
        assert_eq!(out.len(), run.count as usize * self.geometry.page_bytes as usize, "{run:?}");
        match self.view(run.ppa, run.count) {
            Some(bytes) => {
                self.verify(run, owner, bytes)?;
                out.copy_from_slice(bytes);
            }
            None if self.geometry.segment_of(run.ppa) == LOST_SEGMENT => {
                let offset = self.geometry.page_offset(run.ppa);
                return Err(FetchError::Bad(BadPage { unit: run.unit, offset, what: LOST }));
            }
            None => {
                self.media.read_at(self.geometry.page_offset(run.ppa), out)?;
                self.verify(run, owner, out)?;
            }
        }
        Ok(())
    }

    /// Tells the medium that the pages of a run are about to be read; reads nothing.
    pub fn announce_read(&self, run: Run) {
        let bytes = u64::from(run.count) * u64::from(self.geometry.page_bytes);
        self.media.will_read(self.geometry.page_offset(run.ppa), bytes);
    }

    /// The out-of-band record of a page; `None` if there is none or it is damaged.
    pub fn oob(&self, ppa: Ppa) -> Result<Option<OobRecord>> {
        let mut bytes = [0; OOB_BYTES as usize];
        self.media.read_at(self.geometry.oob_offset(ppa), &mut bytes)?;
        Ok(OobRecord::parse(&bytes))
    }

    /// Whether a page's record shows that the page is this unit's no longer: its segment was erased, or another unit's
    /// page was written there. A record that cannot be parsed shows nothing.
    pub fn was_reused(&self, ppa: Ppa, owner: Owner) -> Result<bool> {
        let mut bytes = [0; OOB_BYTES as usize];
        self.media.read_at(self.geometry.oob_offset(ppa), &mut bytes)?;
        Ok(OobRecord::parse(&bytes).map_or(bytes.iter().all(|&b| b == 0), |record| record.owner() != owner))
    }

    /// Every out-of-band record of a segment, in order of pages; damaged and missing ones are `None`.
    pub fn oob_of_segment(&self, segment: Segment) -> Result<Vec<Option<OobRecord>>> {
        Ok(self.records_of(segment)?.chunks_exact(OOB_BYTES as usize).map(OobRecord::parse).collect())
    }

    /// Number of out-of-band records of a segment that were written and cannot be parsed.
    pub fn unreadable_records_of(&self, segment: Segment) -> Result<u64> {
        let unreadable = |r: &&[u8]| OobRecord::parse(r).is_none() && r.iter().any(|&b| b != 0);
        Ok(self.records_of(segment)?.chunks_exact(OOB_BYTES as usize).filter(unreadable).count() as u64)
    }

    /// The header of a segment, if it has one that is intact.
    pub fn header_of(&self, segment: Segment) -> Result<Option<SegmentHeader>> {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        self.media.read_at(self.geometry.header_offset(segment), &mut bytes)?;
        Ok(SegmentHeader::parse(&bytes).filter(|h| h.segment() == segment))
    }

    /// Reopens the segment that was open when the store was closed; rows behind the last record of each lane are free.
    /// It stays closed if its records have changed since (`crc`). A reader, which takes no page and only reports how
    /// full the store is, passes no `crc`.
    pub fn resume(&self, segment: Segment, crc: Option<u32>) -> Result<()> {
        use SegmentState::{Closed, Free};
        let usable = |s: &mut Segments| (segment as usize) < s.len() && matches!(s.info(segment).state, Closed | Free);
        if !self.with_segments(usable) {
            return Ok(());
        }
        let bytes = self.records_of(segment)?;
        if crc.is_some_and(|crc| crc32c(&bytes) != crc) {
            return Ok(());
        }
        let mut lanes = OpenLanes::empty(&self.geometry);
        for (page, record) in bytes.chunks_exact(OOB_BYTES as usize).enumerate() {
            if record.iter().any(|&b| b != 0) {
                let lane = page % self.geometry.lanes() as usize;
                lanes.next_row[lane] = page as u32 / self.geometry.lanes() + 1;
            }
        }
        self.state.lock().segments.reopen(segment, lanes);
        Ok(())
    }

    /// The segment that takes pages at present.
    pub fn open_now(&self) -> Result<Option<superblock::ResumePoint>> {
        let open = self.state.lock().segments.open.as_ref().map(|o| o.segment);
        open.map(|segment| Ok(superblock::ResumePoint { segment, crc: crc32c(&self.records_of(segment)?) })).transpose()
    }

    /// The bytes of a segment's out-of-band records.
    fn records_of(&self, segment: Segment) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.pages_per_segment() as usize * OOB_BYTES as usize];
        self.media.read_at(self.geometry.oob_offset(self.geometry.ppa(segment, 0)), &mut bytes)?;
        Ok(bytes)
    }

    /// Closes the open segment, so that it may be reclaimed.
    pub fn close_open(&self) {
        let s = &mut *self.state.lock();
        self.report_freed(s.segments.close_open(s.next_lsn).as_slice());
    }

    /// Makes everything written so far durable.
    pub fn sync(&self) -> Result<()> {
        count(&self.counters.syncs, 1);
        self.media.sync()
    }
}

/// Bytes that a page fault maps at once ("fault-around"), aligned, of a file whose pages are in memory: Linux's
/// default.
const FAULT_BYTES: usize = 64 << 10;

/// Reads a byte of every stretch that a page fault maps, so that all pages are mapped before they are compared. A
/// checksum that begins right behind a fault takes two to three times as long as one that begins a few faults later
/// (measured in docs/lab-notes/first-reads.md).
pub fn map_in(bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        std::hint::black_box(bytes[at]);
        at += FAULT_BYTES - (bytes.as_ptr() as usize + at) % FAULT_BYTES;
    }
}

/// The error's text for a unit that is mapped to [`LOST_SEGMENT`].
pub const LOST: &str = "its content was lost when the damaged store was salvaged";

/// The mismatch between a page, its record and the owner that the index names, if there is one.
fn what_is_wrong(record: &[u8], owner: Owner, bytes: &[u8]) -> Option<&'static str> {
    match OobRecord::parse(record) {
        None => Some("its out-of-band record is damaged"),
        Some(r) if r.owner() != owner => Some("its out-of-band record names another owner"),
        Some(r) if !r.matches(bytes) => Some("the page does not match its CRC-32C"),
        Some(_) => None,
    }
}
