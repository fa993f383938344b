//! Room: opens segments, grows and truncates the medium, and handles writes that the medium refuses.
//!
//! A disk may be full although the store is not: growing the medium only sets its length, and the file system allocates
//! disk blocks when segments are written. If a write finds the disk full, the disk blocks of a free segment are
//! deallocated (its pages are dead) and the write is repeated. While the disk is nearly full, segments that still have
//! disk blocks are opened first, and pages of failed commands are deallocated at once. A segment that could not be
//! opened because the disk is full stays free.
//!
//! The record that frees segments needs room as well. The journal's next bytes are allocated before they are written.
//! If the journal continues in another segment, or a record needs more than was allocated, it uses the *spare*: disk
//! blocks of a part of the file's head that is never written. Nothing is added to a store that lacks either of the two.
//!
//! A segment that refuses a write for another reason (EIO) is worn out and is retired, but only if another segment
//! accepts the write. If [`SEGMENTS_TRIED`] segments in a row refuse it the disk fails, none of them is retired, and
//! the caller gets the medium's error.

use std::ops::Range;
use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;

use super::{Ftl, FtlState};
use crate::error::{Error, Result};
use crate::flash::geometry::{HEAD_BYTES, OOB_BYTES, SEGMENT_HEADER_BYTES, SUPERBLOCK_BYTES};
use crate::flash::{Run, Segment, SegmentHeader, SegmentKind};
use crate::ftl::segments::SegmentState;
use crate::sim::count;

/// Byte range of the spare: a part of the file's head, after superblocks, marks and the identity, whose disk blocks are
/// deallocated when a record must be written to a full disk: it reads as zeroes, so nothing may be stored there. Enough
/// for a segment header and some records.
pub(crate) const SPARE: Range<u64> = 5 * SUPERBLOCK_BYTES..13 * SUPERBLOCK_BYTES;
const _: () = assert!(SPARE.end < HEAD_BYTES);

/// Whether the file system has allocated disk blocks to the spare ([`SPARE`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spare {
    /// The spare was not allocated since the store was opened; it may have blocks from an earlier time.
    Unknown,
    Held,
    GivenUp,
}

/// Number of segments that may refuse a write in a row before the disk is regarded as failing.
pub const SEGMENTS_TRIED: usize = 3;

/// Whether the error of a write means that its segment can no longer be written (EIO).
pub(super) fn worn_out(e: &Error) -> bool {
    e.os_error() == Some(libc::EIO)
}

/// Whether an error is a failed barrier, after which it is unknown which of the earlier writes are on the medium.
pub fn refused_barrier(e: &Error) -> bool {
    matches!(e, Error::Media { op: "sync", .. })
}

/// Whether an error means that the disk is full.
fn no_room(e: &Error) -> bool {
    matches!(e.os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}

impl Ftl {
    /// Grows the medium by at least this number of segments, but not beyond its limit.
    pub(super) fn grow(&self, s: &mut FtlState, segments: u64) -> Result<()> {
        let have = s.segments.len() as u64;
        if segments == 0 || have >= self.segments_max {
            return Ok(());
        }
        // Growing in larger steps as the file grows keeps the file system's extents long.
        let step = segments.max((have / 8).clamp(1, 64)).min(self.segments_max - have);
        let grown = self.geometry.medium_bytes(have + step);
        if self.media.len() < grown {
            self.media.set_len(grown).map_err(|e| self.disk_full(s, e))?;
        }
        s.segments.grow(step as usize);
        assert!(s.segments.len() as u64 <= self.segments_max, "{} segments", s.segments.len());
        Ok(())
    }

    /// Opens a free segment; grows the medium if there is none, up to its limit. Segments whose header cannot be
    /// written are retired.
    pub(super) fn open_segment(&self, s: &mut FtlState, kind: SegmentKind) -> Result<Segment> {
        let mut refused = Vec::new();
        let opened = self.open_any(s, kind, &mut refused);
        for (segment, before) in refused {
            s.segments.put_back(segment, before, true);
            if opened.is_ok() {
                s.segments.retire(segment);
            }
        }
        opened
    }

    /// Opens a free segment as [`Self::open_segment`]; adds segments whose header could not be written to `refused`.
    fn open_any(
        &self,
        s: &mut FtlState,
        kind: SegmentKind,
        refused: &mut Vec<(Segment, super::segments::SegmentInfo)>,
    ) -> Result<Segment> {
        let state = if kind == SegmentKind::Data { SegmentState::Open } else { SegmentState::Chain };
        let mut error = None;
        loop {
            if s.segments.free().is_empty() {
                self.grow(s, 1)?;
            }
            let tight = self.tight.load(Ordering::Relaxed);
            let Some(segment) = s.segments.next_free(tight, self.wear_levelling) else {
                return Err(error.unwrap_or_else(|| self.full(s, "no segment is free".to_owned())));
            };
            self.wear_from_header(s, segment);
            let before = *s.segments.info(segment);
            s.segments.take_free(segment, state);
            match self.write_header(s, segment, kind) {
                Ok(()) => {
                    self.verified.clear(segment);
                    return Ok(segment);
                }
                Err(e) if worn_out(&e) => {
                    refused.push((segment, before));
                    if refused.len() == SEGMENTS_TRIED {
                        return Err(e);
                    }
                    error = Some(e);
                }
                Err(e) => {
                    s.segments.put_back(segment, before, false);
                    // Segments with disk blocks are opened first from now on; if there are none, a free segment's disk
                    // blocks are deallocated.
                    if !no_room(&e) || self.tight.swap(true, Ordering::Relaxed) && !self.discard_one(s) {
                        return Err(self.disk_full(s, e));
                    }
                }
            }
        }
    }

    /// Writes a segment's header and wipes its out-of-band records, so that no scan finds those of its earlier use.
    fn write_header(&self, s: &FtlState, segment: Segment, kind: SegmentKind) -> Result<()> {
        let info = s.segments.info(segment);
        assert!(info.erases > 0 && matches!(info.state, SegmentState::Open | SegmentState::Chain), "{info:?}");
        let oob_bytes = SEGMENT_HEADER_BYTES + u64::from(self.geometry.pages_per_segment()) * OOB_BYTES;
        let mut head = vec![0; oob_bytes as usize];
        head[..SEGMENT_HEADER_BYTES as usize]
            .copy_from_slice(SegmentHeader::new(segment, kind, info.erases, info.opened).as_bytes());
        let at = self.geometry.header_offset(segment);
        if kind != SegmentKind::Data && self.tight.load(Ordering::Relaxed) {
            // A segment of metadata gets no out-of-band records. If none were written before, the disk has no blocks
            // for them, and needs none for zeroes.
            let mut before = vec![0; head.len() - SEGMENT_HEADER_BYTES as usize];
            self.media.read_at(at + SEGMENT_HEADER_BYTES, &mut before)?;
            if before.iter().all(|&b| b == 0) {
                head.truncate(SEGMENT_HEADER_BYTES as usize);
            }
        }
        self.media.write_at(at, &head)
    }

    /// Writes bytes to the medium; if the disk is full, deallocates disk blocks of free segments and tries again.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        loop {
            match self.media.write_at(offset, bytes) {
                Err(e) if no_room(&e) => {
                    self.tight.store(true, Ordering::Relaxed);
                    if !self.discard_one(&mut self.state.lock()) {
                        return Err(e);
                    }
                }
                written => return written,
            }
        }
    }

    /// Allocates disk blocks for a byte range; if the disk is full, deallocates those of free segments first.
    ///
    /// # Errors
    /// [`Error::Full`] if the disk is full and no free segment has disk blocks.
    pub fn hold(&self, offset: u64, len: u64) -> Result<()> {
        self.hold_in(&mut self.state.lock(), offset, len)
    }

    fn hold_in(&self, s: &mut FtlState, offset: u64, len: u64) -> Result<()> {
        while !self.media.allocate(offset, len) {
            self.tight.store(true, Ordering::Relaxed);
            if !self.discard_one(s) {
                let source = std::io::Error::from_raw_os_error(libc::ENOSPC);
                return Err(self.disk_full(s, Error::Media { op: "allocating", offset, len, source }));
            }
        }
        Ok(())
    }

    /// Allocates the spare, unless that was done since the store was opened.
    ///
    /// # Errors
    /// [`Error::Full`] if the disk has no room for it.
    pub fn allocate_spare(&self) -> Result<()> {
        let s = &mut *self.state.lock();
        if s.spare != Spare::Held {
            self.hold_in(s, SPARE.start, SPARE.end - SPARE.start)?;
            s.spare = Spare::Held;
        }
        Ok(())
    }

    /// Deallocates the spare so that a journal record can be written, if the error `e` of its write means that the disk
    /// is full; returns whether a spare was deallocated.
    pub fn release_spare(&self, e: &Error) -> bool {
        let s = &mut *self.state.lock();
        if s.spare == Spare::GivenUp || !(no_room(e) || matches!(e, Error::Full { .. })) {
            return false;
        }
        s.spare = Spare::GivenUp;
        self.media.discard(SPARE.start, SPARE.end - SPARE.start);
        true
    }

    /// Deallocates the disk blocks of a free segment; `false` if no free segment has any. The lock on the state keeps
    /// the segment from being opened.
    fn discard_one(&self, s: &mut FtlState) -> bool {
        let mut some = false;
        while let Some(segment) = s.segments.discard_one() {
            some = true;
            self.media.discard(self.geometry.pages_offset(segment), self.geometry.segment_data_bytes());
            // Segments that were never opened probably have no disk blocks, so another one is tried as well.
            if s.segments.info(segment).erases > 0 {
                break;
            }
        }
        some
    }

    /// Whether the disk was found full by a write or an allocation since the store was opened.
    pub fn is_tight(&self) -> bool {
        self.tight.load(Ordering::Relaxed)
    }

    /// Deallocates the disk blocks of all free segments, unless another process reads the medium; returns whether there
    /// were any.
    pub fn discard_free(&self) -> Result<bool> {
        let mut some = false;
        self.media.if_no_readers(&mut || {
            let s = &mut *self.state.lock();
            while self.discard_one(s) {
                some = true;
            }
            Ok(())
        })?;
        Ok(some)
    }

    pub(super) fn discard_pages(&self, run: Run) {
        let bytes = u64::from(run.count) * u64::from(self.geometry.page_bytes);
        self.media.discard(self.geometry.page_offset(run.ppa), bytes);
    }

    /// Deallocates the disk blocks of these pages. They must be all dead pages of their segments, which are closed, and
    /// the records that freed them must be durable. Returns `false`, and does nothing, if another process reads the
    /// medium.
    pub fn discard_dead(&self, dead: &[(Segment, Vec<Run>)]) -> Result<bool> {
        self.media.if_no_readers(&mut || {
            let runs = || dead.iter().flat_map(|(_, runs)| runs);
            for run in runs() {
                let wipe = vec![0; run.count as usize * OOB_BYTES as usize];
                self.media.write_at(self.geometry.oob_offset(run.ppa), &wipe).map_err(|e| self.full_if_no_room(e))?;
            }
            // Done before the pages are deallocated: no record may be found with a page of zeroes.
            self.sync()?;
            runs().for_each(|run| self.discard_pages(*run));
            self.with_segments(|s| dead.iter().for_each(|(segment, _)| s.discard_dead(*segment)));
            Ok(())
        })
    }

    /// Converts the medium's error for a full disk to [`Error::Full`], with the store's size; returns other errors as
    /// they are.
    pub fn full_if_no_room(&self, e: Error) -> Error {
        self.disk_full(&self.state.lock(), e)
    }

    /// Returns the segment that can no longer be written, if that is the meaning of an error; otherwise `None`.
    pub fn worn_out_segment(&self, e: &Error) -> Option<Segment> {
        match e {
            Error::Media { op: "write", offset, .. } if worn_out(e) => self.geometry.segment_at(*offset),
            _ => None,
        }
    }

    fn disk_full(&self, s: &FtlState, e: Error) -> Error {
        if no_room(&e) { self.full(s, format!("the disk has no room: {e}")) } else { e }
    }

    /// Reverses the retirement of segments, because further segments refused writes as well: the disk has failed, not
    /// the segments.
    pub fn unretire(&self, segments: &[Segment]) {
        let s = &mut *self.state.lock();
        let freed = s.segments.unretire(segments, s.next_lsn);
        self.report_freed(&freed);
    }

    /// Opens a segment for a chain of metadata.
    pub fn open_chain_segment(&self, kind: SegmentKind) -> Result<Segment> {
        self.open_segment(&mut self.state.lock(), kind)
    }

    /// Frees the segments of an unfinished chain to which nothing refers.
    pub fn free_chain(&self, segments: &[Segment]) {
        let freed = self.state.lock().segments.free_chain(segments);
        self.report_freed(&freed);
    }

    pub(super) fn report_freed(&self, freed: &[Segment]) {
        if let Some(probe) = self.probe() {
            freed.iter().for_each(|&segment| probe.freed(segment));
        }
        count(&self.counters.segments_reclaimed, freed.len() as u64);
    }

    /// Wipes headers and out-of-band records of segments that will be truncated, as far as they lie before the new end
    /// `cut` of the medium: if the medium grows again, no scan may find them without their pages.
    fn wipe_records(&self, segments: std::ops::Range<Segment>, cut: u64) -> Result<()> {
        let mut bytes = vec![0; self.geometry.records_bytes() as usize];
        let mut wiped = false;
        for at in segments.map(|segment| self.geometry.header_offset(segment)).take_while(|&at| at < cut) {
            self.media.read_at(at, &mut bytes)?;
            // Records that were never written have no disk blocks, and a full disk has no blocks for zeroes.
            if bytes.iter().any(|&b| b != 0) {
                bytes.fill(0);
                self.media.write_at(at, &bytes)?;
                self.media.discard(at, bytes.len() as u64);
                wiped = true;
            }
        }
        // Done before the pages are removed: no record may be found with a page of zeroes.
        if wiped { self.sync() } else { Ok(()) }
    }

    /// Truncates free segments at the end of the medium, unless another process reads it.
    pub fn truncate(&self) -> Result<()> {
        self.media.if_no_readers(&mut || {
            let mut s = self.state.lock();
            let had = s.segments.len() as Segment;
            let left = s.segments.shrink() as Segment;
            assert!(left <= had, "{had} segments became {left}");
            let bytes = self.geometry.medium_bytes(left.into());
            if bytes >= self.media.len() {
                return Ok(());
            }
            match self.wipe_records(left..had, bytes) {
                // If truncating or wiping fails, the medium keeps its length, and its last segments are free.
                Ok(()) => self.media.set_len(bytes).or(Ok(())),
                Err(e) if refused_barrier(&e) => Err(e),
                Err(_) => Ok(()),
            }
        })?;
        Ok(())
    }
}
