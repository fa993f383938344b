//! Flash management on a medium: pages are only appended, each with its out-of-band record; segments without live pages
//! are reused.
//!
//! The life of a page: [`Ftl::append`] chooses a place by the placement policy and writes the bytes and the record; the
//! page is *staged*. [`Ftl::adopt`] makes it live when its command is applied, [`Ftl::abandon`] drops it if the command
//! failed, and [`Ftl::release`] marks it as dead when it is superseded. Readers see pages through [`Ftl::view`] or
//! [`Ftl::fetch`], which are compared with their checksum and owner the first time.
//!
//! Space is reserved before it is used ([`Ftl::reserve`]), so that a command fails before it has written anything. The
//! layer treats owners as opaque tags and does not know what a page means; the content of journal records belongs to
//! the layers above.
//!
//! | file | one idea |
//! | --- | --- |
//! | `segments` | states of segments, allocation of pages |
//! | `reserve` | pages reserved for commands and write buffers |
//! | `live` | pages that become live, die, or are dropped |
//! | `room` | opening segments; full disks and worn-out segments; returning disk blocks |
//! | `placement/` | choice of the place of a unit |
//! | `policy/` | rules shared with the model: victims of reclaim, wear levelling |
//! | `chain`, `journal`, `superblock` | streams of segments; records; the start of recovery |
//! | `mark` | the number of the newest durable journal record |
//! | `verified` | the set of pages that were verified since the store was opened |
//! | `wear` | erase counts of segments, kept across openings |

pub mod chain;
pub mod journal;
mod live;
pub mod mark;
pub mod placement;
pub mod policy;
mod reserve;
pub mod room;
pub mod segments;
pub mod superblock;
#[cfg(test)]
mod tests;
pub mod verified;
pub mod wear;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::flash::geometry::{LOST_SEGMENT, OOB_BYTES, SEGMENT_HEADER_BYTES, SEGMENTS_MAX};
use crate::flash::{Geometry, OobRecord, Owner, Ppa, Run, Segment, SegmentHeader, SegmentKind, crc32c};
use crate::media::Media;
use crate::sim::{Chance, Counters, Probe, count};
pub use reserve::Reservation;

use placement::{BlockUse, OpenLanes, Placement};
use policy::wear_levelling::WearLevelling;
use policy::{GcPolicy, ReclaimView};
use segments::{OpenSegment, SegmentState, Segments};
use verified::Verified;

/// The reads at which a page is compared with its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// A page is compared the first time that it is read since the store was opened.
    Once,
    /// A page is compared every time that it is read.
    Always,
    /// Pages are never compared; for measurements only.
    Never,
}

/// A page that does not match its out-of-band record or its owner.
#[derive(Clone, Debug)]
pub struct BadPage {
    /// Number of the access unit within its block.
    pub unit: u32,
    /// Offset of the page on the medium, in bytes.
    pub offset: u64,
    /// Description of the mismatch.
    pub what: &'static str,
}

/// The reason why pages could not be read.
#[derive(Debug)]
pub enum FetchError {
    /// A page is damaged or belongs to another owner.
    Bad(BadPage),
    /// The medium reported an error.
    Media(Error),
}

impl From<Error> for FetchError {
    fn from(e: Error) -> Self {
        Self::Media(e)
    }
}

/// An access unit to append: its number in the block, and the page that it had before (`None` for a new unit).
pub type UnitWrite = (u32, Option<Ppa>);

#[derive(Debug)]
struct FtlState {
    segments: Segments,
    placement: Box<dyn Placement>,
    /// The segment after the last victim, from which the round-robin policy continues its search.
    behind_last_victim: Segment,
    /// Number of segments that had been opened when wear levelling last chose a cold victim.
    levelled_at: u64,
    chance: Chance,
    /// Number of the next journal record. Pages that die now may be reused once this record is durable.
    next_lsn: u64,
    /// Number of pages reserved for running commands.
    reserved: u64,
    /// Number of pages reserved for the content of write buffers.
    promised: u64,
    /// Segments that were opened since the checkpoint from which recovery began, with the number of openings that the
    /// journal shows. The exact erase counts are in their headers; a segment is removed when its header is read.
    opened_since: BTreeMap<Segment, u32>,
    /// Number of segments that commands may not use: reclaim needs one to move pages to, journal and checkpoint need
    /// theirs.
    kept: u64,
    spare: room::Spare,
}

/// The flash translation layer (FTL) of one medium: allocates, writes, verifies and reclaims its pages.
#[derive(Debug)]
pub struct Ftl {
    media: Arc<dyn Media>,
    geometry: Geometry,
    counters: Arc<Counters>,
    verify: Verify,
    gc: GcPolicy,
    wear_levelling: WearLevelling,
    verified: Verified,
    /// Whether the disk has been full since the store was opened; disk blocks are used sparingly from then on.
    tight: AtomicBool,
    /// Largest number of segments that the medium may have.
    segments_max: u64,
    capacity_bytes: u64,
    probe: Option<Arc<dyn Probe>>,
    state: Mutex<FtlState>,
    /// Lock of the thread that fetches mismatching pages again, on a medium far away.
    doubts: Mutex<()>,
}

/// The closed segments, in the form that reclaim policies use.
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

/// Statistics of the use of the flash.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Number of segments on the medium.
    pub segments: u64,
    /// Number of free segments.
    pub free: u64,
    /// Number of segments pending free: they have no live pages, and become free once a journal record is durable.
    pub pending_free: u64,
    /// Number of segments in journal and checkpoints.
    pub chain: u64,
    /// Number of segments that were retired after a failed write.
    pub bad: u64,
    /// Number of live pages.
    pub live_pages: u64,
    /// Number of dead pages in closed segments.
    pub garbage_pages: u64,
    /// Lowest and highest erase count of a segment, and the sum of all counts. In a store with a capacity segments that
    /// were truncated are included.
    pub erases: (u64, u64, u64),
}

impl Ftl {
    /// Creates the flash management of a medium. All segments that the medium has room for are free at first.
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
        // The last segment number is not used: units mapped there are lost.
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
            doubts: Mutex::default(),
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

    /// Sets the rules of wear levelling. Without a call, erase counts are kept but wear is not levelled.
    pub fn with_wear_levelling(mut self, rules: WearLevelling) -> Self {
        self.wear_levelling = rules;
        self
    }

    /// Sets the observer to which operations are reported; `None` reports nothing.
    pub fn with_probe(mut self, probe: Option<Arc<dyn Probe>>) -> Self {
        self.probe = probe;
        self
    }

    /// Returns the observer of operations; `None` if there is none.
    pub fn probe(&self) -> Option<&dyn Probe> {
        self.probe.as_deref()
    }

    /// Returns the medium.
    pub fn media(&self) -> &Arc<dyn Media> {
        &self.media
    }

    /// Returns the sizes of pages and segments.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Returns the names of the placement policy and of the victim policy.
    pub fn policies(&self) -> (String, String) {
        (self.state.lock().placement.name().to_owned(), self.gc.name().to_owned())
    }

    /// Returns a random number from the seeded generator.
    pub fn draw(&self) -> u64 {
        self.state.lock().chance.below(u64::MAX)
    }

    /// Runs `f` on the table of segments; used for opening, checking and statistics.
    pub fn with_segments<T>(&self, f: impl FnOnce(&mut Segments) -> T) -> T {
        f(&mut self.state.lock().segments)
    }

    /// Sets the number of the next journal record.
    pub fn set_next_lsn(&self, lsn: u64) {
        self.state.lock().next_lsn = lsn;
    }

    /// Returns the present statistics of the use of the flash.
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

    /// Appends access units of one building block as pages. `block` has the block's bytes from unit 0 on, padded to
    /// whole pages; `on_lanes` yields the pages that the block keeps, so that the new ones are placed on other lanes.
    ///
    /// The new pages are staged: the caller must adopt or abandon the returned runs. After an error nothing stays
    /// staged.
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
                // The segment wore out: retire it and allocate other pages for these units, unless the whole disk
                // fails.
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

    /// Returns the segment that reclaim should empty next: a cold one if wear levelling is due, otherwise the victim
    /// policy's choice; `None` if there is no candidate.
    pub fn victim(&self) -> Option<Segment> {
        let FtlState { segments, chance, behind_last_victim, levelled_at, .. } = &mut *self.state.lock();
        *behind_last_victim = (*behind_last_victim).min(segments.len() as Segment);
        let view = ClosedSegments { segments, behind_last: *behind_last_victim };
        // At most one cold segment for every two opened ones: moving its pages uses one, and levelling alone frees
        // nothing.
        if segments.opened() > *levelled_at + 1 {
            if let Some(cold) = self.wear_levelling.cold(&view, segments.most_erases()) {
                *levelled_at = segments.opened();
                return Some(cold);
            }
        }
        let picked = self.gc.pick(&view, &mut |n| chance.below(n.into()) as u32);
        // A policy that draws at random may find none; then the segment with the fewest live pages is taken.
        let victim = picked.or_else(|| view.emptiest())?;
        assert_eq!(segments.info(victim).state, SegmentState::Closed);
        *behind_last_victim = victim + 1;
        Some(victim)
    }

    /// Returns the bytes of consecutive pages in place, without verifying them; `None` if the medium is not
    /// memory-mapped.
    pub fn view(&self, ppa: Ppa, count: u32) -> Option<&[u8]> {
        self.media.slice(self.geometry.page_offset(ppa), count as usize * self.geometry.page_bytes as usize)
    }

    /// Whether all these pages were verified, so that they may be read without a comparison.
    pub fn is_verified(&self, ppa: Ppa, count: u32) -> bool {
        match self.verify {
            Verify::Never => true,
            Verify::Always => false,
            Verify::Once => self.verified.unverified(ppa, 0..count).is_none(),
        }
    }

    /// Compares the pages of a run with their out-of-band records, except pages that were verified before. `bytes` is
    /// the pages' content, as [`Self::view`] returns it; `owner` is the owner of the run's first unit, those of the
    /// other units follow from it.
    pub fn verify(&self, run: Run, owner: Owner, bytes: &[u8]) -> std::result::Result<(), FetchError> {
        let done = self.compare(run, owner, bytes);
        self.again(run, done, &mut || self.compare(run, owner, self.view(run.ppa, run.count).unwrap_or(bytes)))
    }

    /// Returns `done`; if a page did not match its record and the medium may have better bytes, what a `second` try
    /// returns.
    fn again(
        &self,
        run: Run,
        done: std::result::Result<(), FetchError>,
        second: &mut dyn FnMut() -> std::result::Result<(), FetchError>,
    ) -> std::result::Result<(), FetchError> {
        if !(self.media.is_far() && matches!(done, Err(FetchError::Bad(_)))) {
            return done;
        }
        // Of several threads that find a page bad one has it fetched again.
        let _one = self.doubts.lock();
        let done = second();
        if !matches!(done, Err(FetchError::Bad(_))) {
            return done;
        }
        let (pages, records) = (u64::from(self.geometry.page_bytes), OOB_BYTES);
        let places = [(self.geometry.page_offset(run.ppa), pages), (self.geometry.oob_offset(run.ppa), records)];
        let mut other = false;
        for (at, each) in places {
            other |= self.media.distrust(at, u64::from(run.count) * each);
        }
        if !other {
            return done;
        }
        for (at, each) in places {
            self.media.bring(at, u64::from(run.count) * each)?;
        }
        second()
    }

    /// Waits until the pages of a run are resident, on a medium far away.
    pub fn bring(&self, run: Run) -> Result<()> {
        let bytes = u64::from(run.count) * u64::from(self.geometry.page_bytes);
        self.media.bring(self.geometry.page_offset(run.ppa), bytes)
    }

    fn compare(&self, run: Run, owner: Owner, bytes: &[u8]) -> std::result::Result<(), FetchError> {
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

    /// Copies the pages of a run to `out`, and verifies them.
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
                let mut copied = || {
                    self.media.read_at(self.geometry.page_offset(run.ppa), out)?;
                    self.compare(run, owner, out)
                };
                let done = copied();
                self.again(run, done, &mut copied)?;
            }
        }
        Ok(())
    }

    /// Announces to the medium that the pages of a run are about to be read; reads nothing.
    pub fn announce_read(&self, run: Run) {
        let bytes = u64::from(run.count) * u64::from(self.geometry.page_bytes);
        self.media.will_read(self.geometry.page_offset(run.ppa), bytes);
    }

    /// Returns the out-of-band record of a page; `None` if there is none or it is damaged.
    pub fn oob(&self, ppa: Ppa) -> Result<Option<OobRecord>> {
        let mut bytes = [0; OOB_BYTES as usize];
        self.media.read_at(self.geometry.oob_offset(ppa), &mut bytes)?;
        Ok(OobRecord::parse(&bytes))
    }

    /// Whether a page's out-of-band record shows that the page no longer belongs to this unit: its segment was erased,
    /// or another unit was written there. Returns `false` for a damaged record, which shows nothing.
    pub fn was_reused(&self, ppa: Ppa, owner: Owner) -> Result<bool> {
        let mut bytes = [0; OOB_BYTES as usize];
        self.media.read_at(self.geometry.oob_offset(ppa), &mut bytes)?;
        Ok(OobRecord::parse(&bytes).map_or(bytes.iter().all(|&b| b == 0), |record| record.owner() != owner))
    }

    /// Returns all out-of-band records of a segment in order of pages; `None` for records that are damaged or missing.
    pub fn oob_of_segment(&self, segment: Segment) -> Result<Vec<Option<OobRecord>>> {
        Ok(self.records_of(segment)?.chunks_exact(OOB_BYTES as usize).map(OobRecord::parse).collect())
    }

    /// Returns the number of out-of-band records of a segment that were written and are damaged.
    pub fn unreadable_records_of(&self, segment: Segment) -> Result<u64> {
        let unreadable = |r: &&[u8]| OobRecord::parse(r).is_none() && r.iter().any(|&b| b != 0);
        Ok(self.records_of(segment)?.chunks_exact(OOB_BYTES as usize).filter(unreadable).count() as u64)
    }

    /// Returns the header of a segment; `None` if it has none or the header is damaged.
    pub fn header_of(&self, segment: Segment) -> Result<Option<SegmentHeader>> {
        let mut bytes = [0; SEGMENT_HEADER_BYTES as usize];
        self.media.read_at(self.geometry.header_offset(segment), &mut bytes)?;
        Ok(SegmentHeader::parse(&bytes).filter(|h| h.segment() == segment))
    }

    /// Reopens the segment that was open when the store was closed: in each of its lanes (one per bank and channel) the
    /// pages after the last one with a record are free. The segment stays closed if the CRC of its records is not
    /// `crc`, since they have changed then. A reader passes `None`: it writes no pages and needs the state for
    /// statistics only.
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

    /// Returns the segment that is open for pages, with the CRC of its records; `None` if no segment is open.
    pub fn open_now(&self) -> Result<Option<superblock::ResumePoint>> {
        let open = self.state.lock().segments.open.as_ref().map(|o| o.segment);
        open.map(|segment| Ok(superblock::ResumePoint { segment, crc: crc32c(&self.records_of(segment)?) })).transpose()
    }

    /// Returns the bytes of all out-of-band records of a segment.
    fn records_of(&self, segment: Segment) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.geometry.pages_per_segment() as usize * OOB_BYTES as usize];
        self.media.read_at(self.geometry.oob_offset(self.geometry.ppa(segment, 0)), &mut bytes)?;
        Ok(bytes)
    }

    /// Closes the open segment, if there is one, so that it may be reclaimed.
    pub fn close_open(&self) {
        let s = &mut *self.state.lock();
        self.report_freed(s.segments.close_open(s.next_lsn).as_slice());
    }

    /// Makes everything that was written so far durable.
    pub fn sync(&self) -> Result<()> {
        count(&self.counters.syncs, 1);
        self.media.sync()
    }
}

/// Size and alignment in bytes of the range that one page fault maps ("fault-around") of a file whose pages are in
/// memory: Linux's default.
const FAULT_BYTES: usize = 64 << 10;

/// Reads a byte of every range that a page fault maps, so that the kernel maps all pages before they are verified. A
/// checksum takes two to three times as long right after a page fault as a few faults later (measured in
/// docs/lab-notes/first-reads.md).
pub fn map_in(bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        std::hint::black_box(bytes[at]);
        at += FAULT_BYTES - (bytes.as_ptr() as usize + at) % FAULT_BYTES;
    }
}

/// Description of a unit that is mapped to [`LOST_SEGMENT`], for errors.
pub const LOST: &str = "its content was lost when the damaged store was salvaged";

/// Compares a page with its out-of-band record and with the owner that the index names; returns a description of the
/// mismatch, `None` if there is none.
fn what_is_wrong(record: &[u8], owner: Owner, bytes: &[u8]) -> Option<&'static str> {
    match OobRecord::parse(record) {
        None => Some("its out-of-band record is damaged"),
        Some(r) if r.owner() != owner => Some("its out-of-band record names another owner"),
        Some(r) if !r.matches(bytes) => Some("the page does not match its CRC-32C"),
        Some(_) => None,
    }
}
