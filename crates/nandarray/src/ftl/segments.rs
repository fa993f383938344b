//! The table of segments: the state of every segment, and the allocation of pages in the open one.
//!
//! A page is *staged* from its allocation until its command is applied (then it is *live*) or fails (then it is
//! *dead*). A closed segment without live or staged pages is *pending free*: it becomes free when the journal record
//! that freed it is durable and no other process can be reading it. The table is plain state behind one lock; it does
//! no I/O.

use std::collections::{BTreeMap, BTreeSet};

use super::placement::{BlockUse, OpenLanes, Placement};
use super::policy::ClosedBlock;
use super::policy::wear_levelling::WearLevelling;
use crate::flash::geometry::{LOST_SEGMENT, SEGMENTS_MAX};
use crate::flash::{Geometry, Ppa, Run, Segment};
use crate::sim::Chance;

/// State of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// The segment holds nothing of value and may be opened.
    Free,
    /// Pages are being allocated in the segment.
    Open,
    /// The segment may have live pages, but no more pages are allocated in it.
    Closed,
    /// The segment has no live pages, and becomes free once the journal record with this number is durable.
    PendingFree(u64),
    /// The segment belongs to the journal or to a checkpoint.
    Chain,
    /// A write to the segment failed: no more pages are allocated in it, and it is never opened again.
    Bad,
}

/// State of one segment and the counts of its pages.
#[derive(Clone, Copy, Debug)]
pub struct SegmentInfo {
    /// State of the segment.
    pub state: SegmentState,
    /// Number of live pages.
    pub live: u32,
    /// Number of staged pages: allocated for commands that are not applied yet.
    pub staged: u32,
    /// Erase count: the number of times that the segment was opened.
    pub erases: u32,
    /// Number of segments that were opened before this one was; orders segments by age.
    pub opened: u64,
    /// Whether a page of the segment was live since the segment was opened. If not, no record names the segment, and it
    /// can be freed without a barrier.
    named: bool,
    /// Whether the segment's disk blocks were deallocated and the segment was not opened since.
    discarded: bool,
    /// Number of dead pages whose disk blocks were deallocated since the segment was opened.
    discarded_pages: u32,
    /// Whether the last write to the segment failed without retiring it; other segments are opened before it.
    suspect: bool,
}

impl SegmentInfo {
    const NEW: Self = Self {
        state: SegmentState::Free,
        live: 0,
        staged: 0,
        erases: 0,
        opened: 0,
        named: false,
        discarded: false,
        discarded_pages: 0,
        suspect: false,
    };

    /// Whether the file system may have allocated disk blocks to the segment.
    pub fn may_have_blocks(&self) -> bool {
        self.erases > 0 && !self.discarded
    }
}

/// The segment in which pages are allocated.
#[derive(Debug)]
pub struct OpenSegment {
    /// Number of the segment.
    pub segment: Segment,
    /// Lanes of the segment, with their free rows.
    pub lanes: OpenLanes,
}

/// The table of all segments.
#[derive(Debug)]
pub struct Segments {
    geometry: Geometry,
    infos: Vec<SegmentInfo>,
    free: BTreeSet<Segment>,
    pending_free: Vec<Segment>,
    /// Number of times that a segment became free since the table was created.
    freed: u64,
    /// The segment in which pages are allocated; `None` if none is open.
    pub open: Option<OpenSegment>,
    opened: u64,
    live: u64,
    /// Segments that lost their last live page by records that may not be durable; `None` except while such records are
    /// replayed.
    uncertain: Option<BTreeSet<Segment>>,
    /// Number of live pages of each segment beyond the end of the medium, until recovery has ended (then `None`).
    /// Later records free these pages, unless the medium was truncated by damage.
    beyond: Option<BTreeMap<Segment, u32>>,
    /// Erase counts of truncated segments, used when the medium grows again; `None` in a store without a capacity.
    cut: Option<BTreeMap<Segment, u32>>,
    /// Whether the table was read from a medium, so that its counts may be wrong.
    restored: bool,
}

impl Segments {
    /// Creates an empty table; `fixed` is whether the store has a capacity.
    pub fn new(geometry: Geometry, fixed: bool) -> Self {
        Self {
            geometry,
            infos: Vec::new(),
            free: BTreeSet::new(),
            pending_free: Vec::new(),
            freed: 0,
            open: None,
            opened: 0,
            live: 0,
            uncertain: None,
            beyond: Some(BTreeMap::new()),
            cut: fixed.then(BTreeMap::new),
            restored: false,
        }
    }

    /// Returns the number of segments on the medium.
    pub fn len(&self) -> usize {
        self.infos.len()
    }

    /// Returns the state of a segment.
    pub fn info(&self, segment: Segment) -> &SegmentInfo {
        &self.infos[segment as usize]
    }

    /// Returns the states of all segments, in order of their numbers.
    pub fn infos(&self) -> &[SegmentInfo] {
        &self.infos
    }

    /// Returns the number of live pages of all segments.
    pub fn live(&self) -> u64 {
        self.live
    }

    /// Returns the numbers of the free segments.
    pub fn free(&self) -> &BTreeSet<Segment> {
        &self.free
    }

    /// Returns the number of segments that become free once a record is durable.
    pub fn pending_free(&self) -> usize {
        self.pending_free.len()
    }

    /// Returns the number of times that a segment became free since the table was created.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// Postpones segments that were to become free with record `lsn` to the record after it.
    pub fn postpone_frees(&mut self, lsn: u64) {
        for &segment in &self.pending_free {
            if let SegmentState::PendingFree(in_record) = &mut self.infos[segment as usize].state {
                *in_record += u64::from(*in_record == lsn);
            }
        }
        let waits = |s: &Segment| matches!(self.infos[*s as usize].state, SegmentState::PendingFree(l) if l != lsn);
        debug_assert!(self.pending_free.iter().all(waits), "a segment becomes free with record {lsn}");
    }

    /// Adds this number of free segments at the end of the medium.
    pub fn grow(&mut self, count: usize) {
        for _ in 0..count {
            let segment = self.infos.len() as Segment;
            self.free.insert(segment);
            let erases = self.cut.as_mut().and_then(|c| c.remove(&segment)).unwrap_or(0);
            self.infos.push(SegmentInfo { erases, ..SegmentInfo::NEW });
        }
        assert!(self.infos.len() as u64 <= SEGMENTS_MAX, "{} segments of {SEGMENTS_MAX}", self.infos.len());
    }

    /// Removes the free segments at the end of the medium from the table; returns the number of segments that are left.
    pub fn shrink(&mut self) -> usize {
        while self.infos.last().is_some_and(|i| i.state == SegmentState::Free) {
            self.cut_last();
        }
        assert!(self.free.last().is_none_or(|&s| (s as usize) < self.infos.len()), "a free segment was cut off");
        self.infos.len()
    }

    fn cut_last(&mut self) {
        let Some(info) = self.infos.pop() else { return };
        let segment = self.infos.len() as Segment;
        debug_assert_eq!(info.staged, 0, "segment {segment} has staged pages and is cut off");
        self.free.remove(&segment);
        self.wear_beyond(segment, info.erases);
    }

    /// Adds to the erase count of a segment that is beyond the present end of the medium.
    pub fn wear_beyond(&mut self, segment: Segment, times: u32) {
        if let Some(cut) = self.cut.as_mut().filter(|_| times > 0) {
            let erases = cut.entry(segment).or_default();
            *erases = erases.saturating_add(times);
        }
    }

    /// Returns for each segment the number of live pages, the erase count, and whether it is retired, for a checkpoint;
    /// under a capacity also for truncated segments.
    pub fn table(&self) -> Vec<(u32, u32, bool)> {
        let here = self.infos.iter().map(|i| (i.live, i.erases, i.state == SegmentState::Bad));
        let behind = self.cut.iter().flat_map(BTreeMap::keys).next_back().map_or(0, |&last| last + 1);
        let cut = (self.infos.len() as Segment..behind)
            .map(|segment| (0, self.cut.as_ref().and_then(|c| c.get(&segment)).copied().unwrap_or(0), false));
        here.chain(cut).collect()
    }

    /// Returns the lowest erase count of segments on the medium, and the highest and the sum including truncated
    /// segments.
    pub fn wear(&self) -> (u64, u64, u64) {
        let here = self.infos.iter().map(|i| u64::from(i.erases));
        let cut = self.cut.iter().flat_map(BTreeMap::values).map(|&n| u64::from(n));
        let all = here.clone().chain(cut);
        (here.min().unwrap_or(0), all.clone().max().unwrap_or(0), all.sum())
    }

    /// Sets the state of a segment from a checkpoint, before the journal is replayed; `bad` is whether the segment is
    /// retired. The segment may lie beyond the medium's end.
    pub fn restore(&mut self, segment: Segment, live: u32, erases: u32, bad: bool) {
        let pages = self.geometry.pages_per_segment();
        assert!(live <= pages, "segment {segment} has {live} live pages of {pages}");
        if segment as usize >= self.infos.len() {
            self.wear_beyond(segment, erases);
            if let Some(beyond) = self.beyond.as_mut().filter(|_| live > 0) {
                beyond.insert(segment, live);
                self.live += u64::from(live);
            }
            return;
        }
        let info = &mut self.infos[segment as usize];
        self.live -= u64::from(info.live);
        *info = SegmentInfo {
            state: if bad { SegmentState::Bad } else { SegmentState::Closed },
            live,
            erases,
            ..SegmentInfo::NEW
        };
        self.live += u64::from(live);
        self.free.remove(&segment);
    }

    /// Raises a segment's erase count to that of its header; `false` if the count was as high already.
    pub fn restore_wear(&mut self, segment: Segment, erases: u32) -> bool {
        let info = &mut self.infos[segment as usize];
        let more = erases > info.erases;
        info.erases = info.erases.max(erases);
        more
    }

    /// Marks a segment as part of a metadata chain that was found while the store was opened.
    pub fn restore_chain(&mut self, segment: Segment) {
        self.free.remove(&segment);
        self.infos[segment as usize].state = SegmentState::Chain;
    }

    /// Ends replay: adapts the table to the medium's number of segments. Returns a segment beyond the medium's end that
    /// has live pages, `None` if there is none.
    pub fn cut_to(&mut self, segments: usize) -> Option<Segment> {
        // Another process may have enlarged the medium since.
        self.grow(segments.saturating_sub(self.infos.len()));
        for (segment, live) in self.beyond.take().into_iter().flatten().filter(|&(_, live)| live > 0) {
            if segment as usize >= segments {
                return Some(segment);
            }
            let info = &mut self.infos[segment as usize];
            (info.state, info.live) = (SegmentState::Closed, live);
            self.free.remove(&segment);
        }
        while self.infos.len() > segments {
            let last = self.infos.len() - 1;
            if self.infos[last].live > 0 {
                return Some(last as Segment);
            }
            self.cut_last();
        }
        assert_eq!(self.infos.len(), segments, "the table has the medium's segments");
        None
    }

    /// Announces that records replayed from now on may not be durable: pages that they free must survive another loss
    /// of power.
    pub fn expect_uncertain(&mut self) {
        self.uncertain.get_or_insert_default();
    }

    /// Ends replay: frees closed segments without live pages, uncertain ones only once record `lsn` is durable.
    pub fn settle(&mut self, lsn: u64) {
        self.restored = true;
        let uncertain = self.uncertain.take().unwrap_or_default();
        self.pending_free.clear();
        for (i, info) in self.infos.iter_mut().enumerate() {
            info.named = info.state != SegmentState::Free;
            if info.state != SegmentState::Closed || info.live > 0 {
                continue;
            }
            if uncertain.contains(&(i as Segment)) {
                info.state = SegmentState::PendingFree(lsn);
                self.pending_free.push(i as Segment);
            } else {
                info.state = SegmentState::Free;
                self.free.insert(i as Segment);
            }
        }
        debug_assert!(self.free.iter().all(|&s| self.infos[s as usize].state == SegmentState::Free));
    }

    /// Returns the free segment to open next; `None` if none is free. Prefers segments whose last write did not fail,
    /// then, with `tight`, segments that have disk blocks, then the lowest number or the lowest erase count.
    pub fn next_free(&self, tight: bool, levelling: WearLevelling) -> Option<Segment> {
        let rank = |segment: Segment| {
            let info = self.info(segment);
            (info.suspect, tight && !info.may_have_blocks(), levelling.rank(info.erases, segment.into()))
        };
        // Nearly always the first one is chosen.
        let first = *self.free.first()?;
        if !levelling.least_worn_first && rank(first) == (false, false, first.into()) {
            return Some(first);
        }
        self.free.iter().copied().min_by_key(|&segment| (rank(segment), segment))
    }

    /// Takes a segment off the free list, for pages or for a chain of metadata, and counts an erase.
    pub fn take_free(&mut self, segment: Segment, state: SegmentState) {
        assert!(matches!(state, SegmentState::Open | SegmentState::Chain));
        let info = &mut self.infos[segment as usize];
        assert_eq!((info.state, info.live, info.staged), (SegmentState::Free, 0, 0));
        assert!(self.free.remove(&segment), "segment {segment} is not in the free list");
        *info = SegmentInfo { state, erases: info.erases.saturating_add(1), opened: self.opened, ..SegmentInfo::NEW };
        self.opened += 1;
    }

    /// Returns a segment to the free list in its former state, because its header could not be written. With `suspect`
    /// it is opened only after all other free segments.
    pub fn put_back(&mut self, segment: Segment, before: SegmentInfo, suspect: bool) {
        assert_eq!(before.state, SegmentState::Free);
        self.infos[segment as usize] = SegmentInfo { suspect, ..before };
        assert!(self.free.insert(segment), "segment {segment} is in the free list already");
    }

    /// Reverses the retirement of segments, because the disk failed and not the segments. Returns those that became
    /// free.
    pub fn unretire(&mut self, segments: &[Segment], lsn: u64) -> Vec<Segment> {
        let mut freed = Vec::new();
        for &segment in segments {
            let info = &mut self.infos[segment as usize];
            if info.state == SegmentState::Bad {
                (info.state, info.suspect) = (SegmentState::Closed, true);
                freed.extend(self.free_if_unused(segment, lsn));
            }
        }
        debug_assert!(freed.iter().all(|s| self.free.contains(s)), "segments {freed:?} are not all free");
        freed
    }

    /// Frees the segments of a chain at once, without waiting for a barrier, because no record names them; returns
    /// them.
    pub fn free_chain(&mut self, segments: &[Segment]) -> Vec<Segment> {
        let mut freed = Vec::new();
        for &segment in segments {
            let info = &mut self.infos[segment as usize];
            if info.state != SegmentState::Chain {
                continue;
            }
            info.state = SegmentState::Closed;
            freed.extend(self.free_if_unused(segment, 0));
        }
        debug_assert!(freed.iter().all(|s| self.free.contains(s)), "segments {freed:?} are not all free");
        freed
    }

    /// Marks the last free segment that is not discarded as discarded (without disk blocks), and returns it; `None` if
    /// there is none.
    pub fn discard_one(&mut self) -> Option<Segment> {
        let segment = *self.free.iter().rev().find(|&&s| !self.infos[s as usize].discarded)?;
        let info = &mut self.infos[segment as usize];
        assert_eq!((info.state, info.live, info.staged), (SegmentState::Free, 0, 0));
        info.discarded = true;
        Some(segment)
    }

    /// Reopens a closed segment that had room left when the store was closed.
    pub fn reopen(&mut self, segment: Segment, lanes: OpenLanes) {
        let info = &mut self.infos[segment as usize];
        assert!(self.open.is_none() && matches!(info.state, SegmentState::Closed | SegmentState::Free));
        (info.state, info.named) = (SegmentState::Open, true);
        self.free.remove(&segment);
        self.open = Some(OpenSegment { segment, lanes });
    }

    /// Closes the open segment; `lsn` is the number of the next journal record. Returns the segment if it became free
    /// at once, otherwise `None`.
    pub fn close_open(&mut self, lsn: u64) -> Option<Segment> {
        let open = self.open.take()?;
        let info = &mut self.infos[open.segment as usize];
        assert_eq!(info.state, SegmentState::Open);
        info.state = SegmentState::Closed;
        self.free_if_unused(open.segment, lsn)
    }

    /// Retires a segment after a failed write: no more pages are allocated in it.
    pub fn retire(&mut self, segment: Segment) {
        if self.open.as_ref().is_some_and(|o| o.segment == segment) {
            self.open = None;
        }
        self.free.remove(&segment);
        self.infos[segment as usize].state = SegmentState::Bad;
        debug_assert!(!self.free.contains(&segment) && self.open.as_ref().is_none_or(|o| o.segment != segment));
    }

    /// Allocates pages of the open segment for the units in order, until the segment is full. Appends the runs of pages
    /// to `runs`, and returns the number of units that got a page.
    pub fn hand_out(
        &mut self,
        units: &[(u32, Option<Ppa>)],
        block: &mut BlockUse,
        policy: &mut dyn Placement,
        chance: &mut Chance,
        runs: &mut Vec<Run>,
    ) -> usize {
        let Some(open) = &mut self.open else { return 0 };
        let mut room = open.lanes.room();
        let mut done = 0;
        for &(unit, old) in units {
            if room == 0 {
                break;
            }
            let overwrites = old.map(|ppa| self.geometry.lane_index(self.geometry.lane_of(ppa)));
            let lane = policy.choose(&open.lanes, block, overwrites, chance);
            let row = open.lanes.next_row[lane];
            assert!(row < open.lanes.rows, "the policy chose a lane without room");
            open.lanes.next_row[lane] += 1;
            block.used[lane] += 1;
            block.last = Some(lane);
            room -= 1;
            done += 1;
            let ppa = self.geometry.ppa(open.segment, self.geometry.page_at(lane, row));
            match runs.last_mut() {
                Some(r) if r.end() == unit && r.ppa.0 + u64::from(r.count) == ppa.0 => r.count += 1,
                _ => runs.push(Run { unit, count: 1, ppa }),
            }
        }
        let info = &mut self.infos[open.segment as usize];
        info.staged += done as u32;
        let pages = self.geometry.pages_per_segment();
        assert!(self.restored || info.live + info.staged <= pages, "{info:?} of {pages} pages");
        done
    }

    /// Turns staged pages into live ones.
    pub fn adopt(&mut self, runs: &[Run]) {
        for run in runs {
            let info = &mut self.infos[self.geometry.segment_of(run.ppa) as usize];
            assert!(info.staged >= run.count, "adopting pages that were not staged: {run:?}");
            info.staged -= run.count;
            info.live += run.count;
            info.named = true;
            self.live += u64::from(run.count);
        }
    }

    /// Turns staged pages of a failed command into dead ones; `discarded` is whether their disk blocks were
    /// deallocated. Returns the segments that became free at once.
    pub fn abandon(&mut self, runs: &[Run], discarded: bool, lsn: u64) -> Vec<Segment> {
        let mut freed = Vec::new();
        for run in runs {
            let segment = self.geometry.segment_of(run.ppa);
            let info = &mut self.infos[segment as usize];
            assert!(info.staged >= run.count, "abandoning pages that were not staged: {run:?}");
            info.staged -= run.count;
            info.discarded_pages += if discarded { run.count } else { 0 };
            freed.extend(self.free_if_unused(segment, lsn));
        }
        freed
    }

    /// Whether the segment of a run has live pages; `false` for a run outside any segment.
    pub fn has_live(&mut self, run: Run) -> bool {
        self.geometry.has_run(run, SEGMENTS_MAX)
            && self.live_of(self.geometry.segment_of(run.ppa)).is_some_and(|n| *n > 0)
    }

    /// Returns the counter of a segment's live pages, during recovery also for a segment beyond the medium's end;
    /// otherwise `None` for such a segment.
    fn live_of(&mut self, segment: Segment) -> Option<&mut u32> {
        match self.infos.get_mut(segment as usize) {
            Some(info) => Some(&mut info.live),
            None => self.beyond.as_mut().map(|beyond| beyond.entry(segment).or_default()),
        }
    }

    /// Marks pages as live during recovery, because a replayed record maps them; `false` if they cannot be live pages
    /// of a segment.
    #[must_use]
    pub fn revive(&mut self, run: Run) -> bool {
        if !self.geometry.has_run(run, SEGMENTS_MAX) {
            return false;
        }
        let segment = self.geometry.segment_of(run.ppa);
        if segment == LOST_SEGMENT {
            return true;
        }
        let pages = self.geometry.pages_per_segment();
        let Some(live) = self.live_of(segment).filter(|live| **live + run.count <= pages) else { return false };
        *live += run.count;
        self.live += u64::from(run.count);
        // A segment beyond the end was truncated after its last page died; the records that filled it are still
        // replayed.
        let Some(info) = self.infos.get_mut(segment as usize) else { return true };
        info.named = true;
        match info.state {
            SegmentState::Free => {
                info.state = SegmentState::Closed;
                self.free.remove(&segment);
            }
            // A repair found a page in it that is needed after all.
            SegmentState::PendingFree(_) => {
                info.state = SegmentState::Closed;
                self.pending_free.retain(|&d| d != segment);
            }
            _ => {}
        }
        true
    }

    /// Sets all counts of live pages to 0, so that they can be counted again.
    pub fn forget_live(&mut self) {
        self.infos.iter_mut().for_each(|i| i.live = 0);
        self.live = 0;
    }

    /// Counts live pages anew, during recovery of a damaged store: the pages of `runs` are live, no others.
    pub fn count_anew(&mut self, segments: usize, runs: &[Run]) {
        self.beyond = Some(BTreeMap::new());
        while self.infos.len() > segments {
            self.cut_last();
        }
        self.grow(segments.saturating_sub(self.infos.len()));
        let had: Vec<Segment> =
            (0..).zip(&self.infos).filter(|(_, info)| info.live > 0).map(|(segment, _)| segment).collect();
        self.forget_live();
        for &run in runs {
            // Only forged data maps a page twice; `release` tolerates fewer live pages than are mapped.
            let _ = self.revive(run);
        }
        let beyond = self.beyond.iter().flat_map(BTreeMap::values);
        let counted: u64 = self.infos.iter().map(|i| &i.live).chain(beyond).map(|&live| u64::from(live)).sum();
        assert_eq!(self.live, counted, "the sum of the segments' live pages");
        // Pages that the damaged state needs must survive a loss of power until the next checkpoint is durable.
        let none_left = had.into_iter().filter(|&segment| self.infos[segment as usize].live == 0);
        self.uncertain.get_or_insert_default().extend(none_left);
    }

    /// Marks pages as dead during recovery, because a replayed record frees them; `false` if they were not live.
    #[must_use]
    pub fn unrevive(&mut self, run: Run) -> bool {
        if !self.geometry.has_run(run, SEGMENTS_MAX) {
            return false;
        }
        let segment = self.geometry.segment_of(run.ppa);
        if segment == LOST_SEGMENT {
            return true;
        }
        let Some(live) = self.live_of(segment).filter(|live| **live >= run.count) else { return false };
        *live -= run.count;
        let empty = *live == 0;
        self.live -= u64::from(run.count);
        if let Some(uncertain) = self.uncertain.as_mut().filter(|_| empty) {
            uncertain.insert(segment);
        }
        true
    }

    /// Marks live pages as dead. If the index was read from a damaged medium, the pages may not be live: then it is
    /// unknown which pages of the segment are, and the segment is retired.
    pub fn release(&mut self, run: Run, lsn: u64) {
        if self.restored && !self.geometry.has_run(run, self.infos.len() as u64) {
            return;
        }
        let segment = self.geometry.segment_of(run.ppa);
        let info = &mut self.infos[segment as usize];
        if self.restored && info.live < run.count {
            self.live -= u64::from(std::mem::take(&mut info.live));
            if !matches!(info.state, SegmentState::Open | SegmentState::Chain) {
                self.retire(segment);
            }
            return;
        }
        assert!(info.live >= run.count, "releasing pages that are not live: {run:?}, segment {info:?}");
        info.live -= run.count;
        self.live -= u64::from(run.count);
        self.free_if_unused(segment, lsn);
    }

    /// Sets the state of a closed segment without live or staged pages to pending free. If no record names the segment,
    /// it becomes free at once and is returned; otherwise returns `None`.
    fn free_if_unused(&mut self, segment: Segment, lsn: u64) -> Option<Segment> {
        let info = &mut self.infos[segment as usize];
        if info.state != SegmentState::Closed || info.live > 0 || info.staged > 0 {
            return None;
        }
        if !info.named {
            info.state = SegmentState::Free;
            assert!(self.free.insert(segment), "segment {segment} is in the free list already");
            self.freed += 1;
            return Some(segment);
        }
        info.state = SegmentState::PendingFree(lsn);
        debug_assert!(!self.pending_free.contains(&segment), "segment {segment} is pending free already");
        self.pending_free.push(segment);
        None
    }

    /// Sets the state of a chain's segments, which are no longer needed, to pending free.
    pub fn release_chain(&mut self, segments: &[Segment], lsn: u64) {
        for &segment in segments {
            let info = &mut self.infos[segment as usize];
            assert_eq!(info.state, SegmentState::Chain);
            if info.live > 0 {
                // An index that was read from a damaged medium maps pages of it.
                assert!(self.restored, "a link of a chain has live pages: {info:?}");
                info.state = SegmentState::Closed;
                continue;
            }
            info.state = SegmentState::PendingFree(lsn);
            self.pending_free.push(segment);
        }
    }

    /// Whether a segment becomes free if records up to `durable_lsn` are durable.
    pub fn has_frees_by(&self, durable_lsn: u64) -> bool {
        self.pending_free
            .iter()
            .any(|&s| matches!(self.infos[s as usize].state, SegmentState::PendingFree(l) if l <= durable_lsn))
    }

    /// Frees segments whose freeing record is durable, because its number is at most `durable_lsn`; returns these
    /// segments.
    pub fn free_durable(&mut self, durable_lsn: u64) -> Vec<Segment> {
        let mut freed = Vec::new();
        self.pending_free.retain(|&s| {
            let dead = matches!(self.infos[s as usize].state, SegmentState::PendingFree(l) if l <= durable_lsn);
            if dead {
                freed.push(s);
            }
            // A segment that was retired in the meantime is not freed.
            !dead && self.infos[s as usize].state != SegmentState::Bad
        });
        self.freed += freed.len() as u64;
        for &s in &freed {
            self.infos[s as usize].state = SegmentState::Free;
            assert!(self.free.insert(s), "segment {s} is in the free list already");
        }
        freed
    }

    /// Returns a segment in the form that victim policies use; `None` unless it is closed and has no staged pages.
    pub fn closed(&self, segment: Segment) -> Option<ClosedBlock> {
        let info = self.infos.get(segment as usize)?;
        (info.state == SegmentState::Closed && info.staged == 0).then(|| ClosedBlock {
            live: info.live,
            pages: self.geometry.pages_per_segment(),
            age: self.opened - info.opened,
            erases: info.erases,
        })
    }

    /// Returns closed segments with dead and without staged pages, those with the fewest live pages first.
    pub fn emptiest_first(&self) -> Vec<Segment> {
        let closed = (0..self.len() as Segment).filter_map(|segment| Some((self.closed(segment)?, segment)));
        let mut some: Vec<_> = closed.filter(|(b, _)| b.dead() > 0).collect();
        some.sort_by_key(|(b, _)| b.live);
        some.into_iter().map(|(_, segment)| segment).collect()
    }

    /// Returns the number of segments that were opened since the table was created.
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Returns the highest erase count of the segments on the medium.
    pub fn most_erases(&self) -> u32 {
        self.infos.iter().map(|i| i.erases).max().unwrap_or(0)
    }

    /// Returns closed segments with dead pages that may have disk blocks, each with the number of these pages; those
    /// with most such pages first.
    pub fn with_dead_room(&self) -> Vec<(u32, Segment)> {
        let pages = self.geometry.pages_per_segment();
        let mut some: Vec<(u32, Segment)> = (0..)
            .zip(&self.infos)
            .filter(|(_, i)| i.state == SegmentState::Closed && i.staged == 0)
            .map(|(segment, i)| (pages.saturating_sub(i.live + i.discarded_pages), segment))
            .filter(|&(dead, _)| dead > 0)
            .collect();
        some.sort_unstable_by_key(|&(dead, segment)| (std::cmp::Reverse(dead), segment));
        some
    }

    /// Notes that the disk blocks of all dead pages of a closed segment were deallocated as far as possible.
    pub fn discard_dead(&mut self, segment: Segment) {
        let info = &mut self.infos[segment as usize];
        assert_eq!(info.staged, 0, "a discard in segment {segment}, which has staged pages");
        info.discarded_pages = self.geometry.pages_per_segment() - info.live;
    }

    /// Returns the number of pages that can be allocated without growing the medium.
    pub fn free_pages(&self) -> u64 {
        self.free.len() as u64 * u64::from(self.geometry.pages_per_segment())
            + self.open.as_ref().map_or(0, |o| o.lanes.room())
    }

    /// Returns the number of dead pages in closed segments.
    pub fn garbage(&self) -> u64 {
        let pages = self.geometry.pages_per_segment();
        self.infos
            .iter()
            .filter(|i| matches!(i.state, SegmentState::Closed))
            .map(|i| u64::from(pages - i.live - i.staged))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ftl::placement::by_name;

    #[test]
    fn a_segment_lives_dies_and_is_free_after_the_barrier() {
        let g = Geometry::TINY;
        let mut s = Segments::new(g, true);
        s.grow(2);
        let open = s.next_free(false, WearLevelling::default()).unwrap();
        s.take_free(open, SegmentState::Open);
        s.open = Some(OpenSegment { segment: open, lanes: OpenLanes::empty(&g) });
        let units: Vec<(u32, Option<Ppa>)> = (0..40).map(|u| (u, None)).collect();
        let mut block = BlockUse { used: vec![0; 8], last: None };
        let mut runs = Vec::new();
        let done = s.hand_out(&units, &mut block, by_name("log").unwrap().as_mut(), &mut Chance::seeded(0), &mut runs);
        assert_eq!(done, 32, "as many as the segment has");
        assert_eq!(runs, [Run { unit: 0, count: 32, ppa: Ppa(0) }], "side by side on the medium");
        s.adopt(&runs);
        s.close_open(7);
        assert_eq!(s.info(open).state, SegmentState::Closed);
        s.release(Run { unit: 0, count: 31, ppa: Ppa(0) }, 8);
        assert_eq!((s.garbage(), s.closed(open).unwrap().live), (31, 1));
        s.release(Run { unit: 31, count: 1, ppa: Ppa(31) }, 9);
        assert_eq!(s.info(open).state, SegmentState::PendingFree(9));
        assert!(s.free_durable(8).is_empty());
        assert_eq!(s.free_durable(9), [open]);
        assert_eq!((s.wear(), s.shrink(), s.wear()), ((0, 1, 1), 0, (0, 1, 1)));
        assert_eq!(s.table(), [(0, 1, false)], "what is cut off is not forgotten");
        s.grow(2);
        assert_eq!((s.wear(), s.table()), ((0, 1, 1), vec![(0, 1, false), (0, 0, false)]));
    }
}
