//! Room: opening segments, growing and cutting the medium, and what to do when the medium refuses a write.
//!
//! A disk may be full though the store is not: segments are promised by length, and take blocks of the disk only when
//! they are written. A write that finds no room takes it from free segments, one at a time, whose dead pages are
//! discarded; while the disk is tight, segments that still have their blocks are opened first, and pages of commands
//! that failed are discarded at once. A segment that could not be opened for want of room stays free.
//!
//! The record that frees segments needs room itself. The journal's next bytes are allocated before they are written,
//! and where the journal goes on in another segment, or a record is longer than that, it takes the *spare*: disk blocks
//! of a part of the head that is never written. Nothing is added to a store that does not hold both.
//!
//! A segment that refuses a write for another reason (EIO) wore out and is retired, but only if another segment takes
//! the write: if [`SEGMENTS_TRIED`] refuse it one after the other, the disk fails, no segment is to blame, and the
//! caller gets the medium's error.

use std::ops::Range;
use std::sync::atomic::Ordering;

use zerocopy::IntoBytes;

use super::{Ftl, FtlState};
use crate::error::{Error, Result};
use crate::flash::geometry::{HEAD_BYTES, OOB_BYTES, SEGMENT_HEADER_BYTES, SUPERBLOCK_BYTES};
use crate::flash::{Run, Segment, SegmentHeader, SegmentKind};
use crate::ftl::segments::SegmentState;
use crate::sim::count;

/// The part of the head, behind superblocks and marks, whose blocks are the spare: enough for a header and some
/// records.
const SPARE: Range<u64> = 4 * SUPERBLOCK_BYTES..12 * SUPERBLOCK_BYTES;
const _: () = assert!(SPARE.end < HEAD_BYTES);

/// Whether the file system has allocated disk blocks to the spare ([`SPARE`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spare {
    /// They were not allocated since the store was opened.
    Unknown,
    Held,
    GivenUp,
}

/// Segments that may refuse a write one after the other before the disk is to blame.
pub const SEGMENTS_TRIED: usize = 3;

/// Whether an error means that this place takes no more writes.
pub(super) fn worn_out(e: &Error) -> bool {
    e.os_error() == Some(libc::EIO)
}

/// Whether an error is a refused barrier: which of the writes before it are on the medium is unknown then.
pub fn refused_barrier(e: &Error) -> bool {
    matches!(e, Error::Media { op: "sync", .. })
}

/// Whether an error means that the disk has no room.
fn no_room(e: &Error) -> bool {
    matches!(e.os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
}

impl Ftl {
    /// Grows the medium by at least this number of segments, within its limit.
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

    /// Opens a free segment, growing the medium if there is none and it may.
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

    /// The same; segments that refused the write are added to `refused`.
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
                    // Segments with disk blocks are taken first from now on; without any, dead pages elsewhere give
                    // theirs.
                    if !no_room(&e) || self.tight.swap(true, Ordering::Relaxed) && !self.discard_one(s) {
                        return Err(self.disk_full(s, e));
                    }
                }
            }
        }
    }

    /// Writes a segment's header and wipes its records: a scan must not find those of its earlier life.
    fn write_header(&self, s: &FtlState, segment: Segment, kind: SegmentKind) -> Result<()> {
        let info = s.segments.info(segment);
        assert!(info.erases > 0 && matches!(info.state, SegmentState::Open | SegmentState::Chain), "{info:?}");
        let oob_bytes = SEGMENT_HEADER_BYTES + u64::from(self.geometry.pages_per_segment()) * OOB_BYTES;
        let mut head = vec![0; oob_bytes as usize];
        head[..SEGMENT_HEADER_BYTES as usize]
            .copy_from_slice(SegmentHeader::new(segment, kind, info.erases, info.opened).as_bytes());
        let at = self.geometry.header_offset(segment);
        if kind != SegmentKind::Data && self.tight.load(Ordering::Relaxed) {
            // No records will follow. Where none were written the disk has no block for them, and needs none for
            // zeroes.
            let mut before = vec![0; head.len() - SEGMENT_HEADER_BYTES as usize];
            self.media.read_at(at + SEGMENT_HEADER_BYTES, &mut before)?;
            if before.iter().all(|&b| b == 0) {
                head.truncate(SEGMENT_HEADER_BYTES as usize);
            }
        }
        self.media.write_at(at, &head)
    }

    /// Writes; if the disk has no room, with the disk blocks of free segments.
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

    /// Takes disk blocks for a range, from free segments where the disk has none left.
    ///
    /// # Errors
    /// [`Error::Full`].
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

    /// Takes the spare, if it is not there.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn allocate_spare(&self) -> Result<()> {
        let s = &mut *self.state.lock();
        if s.spare != Spare::Held {
            self.hold_in(s, SPARE.start, SPARE.end - SPARE.start)?;
            s.spare = Spare::Held;
        }
        Ok(())
    }

    /// Gives the spare up for a record that found no room, if the error means that; whether there was a spare.
    pub fn release_spare(&self, e: &Error) -> bool {
        let s = &mut *self.state.lock();
        if s.spare == Spare::GivenUp || !(no_room(e) || matches!(e, Error::Full { .. })) {
            return false;
        }
        s.spare = Spare::GivenUp;
        self.media.discard(SPARE.start, SPARE.end - SPARE.start);
        true
    }

    /// Discards the disk blocks of a free segment; `false` if none has any. The lock keeps the segment from being
    /// opened.
    fn discard_one(&self, s: &mut FtlState) -> bool {
        let mut some = false;
        while let Some(segment) = s.segments.discard_one() {
            some = true;
            self.media.discard(self.geometry.pages_offset(segment), self.geometry.segment_data_bytes());
            // Others were never opened, as far as is known, and have none.
            if s.segments.info(segment).erases > 0 {
                break;
            }
        }
        some
    }

    /// Whether a write or an allocation found the disk full since the store was opened.
    pub fn is_tight(&self) -> bool {
        self.tight.load(Ordering::Relaxed)
    }

    /// Discards the disk blocks of all free segments, unless another process reads the medium; whether there were any.
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

    /// Discards the disk blocks of a failed command's pages if the disk is tight; whether it is.
    pub(super) fn discard_if_tight(&self, runs: &[Run]) -> bool {
        let tight = self.tight.load(Ordering::Relaxed);
        if tight {
            runs.iter().for_each(|run| self.discard_pages(*run));
        }
        tight
    }

    fn discard_pages(&self, run: Run) {
        let bytes = u64::from(run.count) * u64::from(self.geometry.page_bytes);
        self.media.discard(self.geometry.page_offset(run.ppa), bytes);
    }

    /// Discards the disk blocks of these pages: all the dead ones of their closed segments, dead by durable records.
    /// `false` if nothing was done because another process reads the medium.
    pub fn discard_dead(&self, dead: &[(Segment, Vec<Run>)]) -> Result<bool> {
        self.media.if_no_readers(&mut || {
            let runs = || dead.iter().flat_map(|(_, runs)| runs);
            for run in runs() {
                let wipe = vec![0; run.count as usize * OOB_BYTES as usize];
                self.media.write_at(self.geometry.oob_offset(run.ppa), &wipe).map_err(|e| self.full_if_no_room(e))?;
            }
            // Before the pages go: a record must not be found beside pages that are zero.
            self.sync()?;
            runs().for_each(|run| self.discard_pages(*run));
            self.with_segments(|s| dead.iter().for_each(|(segment, _)| s.discard_dead(*segment)));
            Ok(())
        })
    }

    /// Turns the medium's "no room" into the error that says how full the store is; leaves other errors as they are.
    pub fn full_if_no_room(&self, e: Error) -> Error {
        self.disk_full(&self.state.lock(), e)
    }

    /// The segment that takes no more writes, if that is what an error means.
    pub fn worn_out_segment(&self, e: &Error) -> Option<Segment> {
        match e {
            Error::Media { op: "write", offset, .. } if worn_out(e) => self.geometry.segment_at(*offset),
            _ => None,
        }
    }

    fn disk_full(&self, s: &FtlState, e: Error) -> Error {
        if no_room(&e) { self.full(s, format!("the disk has no room: {e}")) } else { e }
    }

    /// Brings retired segments back: others refuse writes, too, so the disk is to blame.
    pub fn unretire(&self, segments: &[Segment]) {
        let s = &mut *self.state.lock();
        let freed = s.segments.unretire(segments, s.next_lsn);
        self.report_freed(&freed);
    }

    /// Opens a segment as a link of a chain.
    pub fn open_chain_segment(&self, kind: SegmentKind) -> Result<Segment> {
        self.open_segment(&mut self.state.lock(), kind)
    }

    /// Links of a chain that was not finished, and that nothing names, are free again.
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

    /// Wipes headers and records of segments that are cut off, where they lie below the cut: if the medium grows again,
    /// no scan may find them beside pages that are gone.
    fn wipe_records(&self, segments: std::ops::Range<Segment>, cut: u64) -> Result<()> {
        let mut bytes = vec![0; self.geometry.records_bytes() as usize];
        let mut wiped = false;
        for at in segments.map(|segment| self.geometry.header_offset(segment)).take_while(|&at| at < cut) {
            self.media.read_at(at, &mut bytes)?;
            // Records that were never written have no disk blocks, and a full disk has none for zeroes.
            if bytes.iter().any(|&b| b != 0) {
                bytes.fill(0);
                self.media.write_at(at, &bytes)?;
                self.media.discard(at, bytes.len() as u64);
                wiped = true;
            }
        }
        // Before the pages go: a record must not be found beside pages that are zero.
        if wiped { self.sync() } else { Ok(()) }
    }

    /// Cuts free segments off the end of the medium, unless another process reads it.
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
                // A medium that is not cut, or takes no zeroes, keeps its length: what is left there are free segments.
                Ok(()) => self.media.set_len(bytes).or(Ok(())),
                Err(e) if refused_barrier(&e) => Err(e),
                Err(_) => Ok(()),
            }
        })?;
        Ok(())
    }
}
