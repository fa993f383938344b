//! Reservations: a command has its pages before it writes the first, so that it fails early or not for lack of room.

use std::sync::atomic::Ordering;

use super::{Ftl, FtlState};
use crate::error::Result;

/// Number of segments kept free for reclaim: one to move pages to, and one more in case the open segment is nearly
/// full.
pub(super) const SEGMENTS_FOR_RECLAIM: u64 = 2;

/// Largest number of bytes by which the medium grows ahead of a command: its reservation, which may be more, is only an
/// upper bound of what it will need.
const GROWN_AHEAD_BYTES: u64 = 256 << 20;

/// A reservation of pages for a command; dropping it ends the reservation.
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

impl Ftl {
    /// Returns the number of pages that commands may still reserve.
    pub(super) fn available(&self, s: &FtlState) -> u64 {
        let per_segment = u64::from(self.geometry.pages_per_segment());
        let growable = self.segments_max.saturating_sub(s.segments.len() as u64);
        (s.segments.free_pages() + growable.saturating_mul(per_segment))
            .saturating_sub(s.kept * per_segment + s.reserved + s.promised)
    }

    /// Sets the number of segments that are kept free for journal and checkpoint.
    pub fn reserve_segments(&self, segments: u64) {
        self.state.lock().kept = SEGMENTS_FOR_RECLAIM + segments;
    }

    /// Returns the number of pages reserved for the content of write buffers.
    pub fn promised(&self) -> u64 {
        self.state.lock().promised
    }

    /// Changes the number of pages reserved for the content of a write buffer from `before` to `after`.
    pub fn promise(&self, before: u64, after: u64) {
        let s = &mut *self.state.lock();
        assert!(s.promised >= before, "{before} pages of {} promised are returned", s.promised);
        s.promised = s.promised + after - before;
    }

    /// Reserves pages for a command. With `urgent` it always succeeds, and may use segments that are kept free: for
    /// reclaim, and for data that was accepted earlier.
    ///
    /// # Errors
    /// [`Error::Full`] if there are not enough pages, or the medium cannot grow.
    pub fn reserve(&self, pages: u64, urgent: bool) -> Result<Reservation<'_>> {
        let s = &mut *self.state.lock();
        if !urgent {
            if self.available(s) < pages {
                return Err(self.full(s, format!("{pages} pages of {} bytes are needed", self.geometry.page_bytes)));
            }
            // The medium grows now instead of during the command: a full disk is noticed before anything was written.
            let per_segment = u64::from(self.geometry.pages_per_segment());
            let soon = pages.min(GROWN_AHEAD_BYTES / u64::from(self.geometry.page_bytes));
            let needed =
                (s.kept * per_segment + s.reserved + s.promised + soon).saturating_sub(s.segments.free_pages());
            // A disk that was full before fails early in any case, and growing the file would not help there.
            if !self.tight.load(Ordering::Relaxed) {
                self.grow(s, needed.div_ceil(per_segment))?;
            }
        }
        s.reserved += pages;
        Ok(Reservation { ftl: self, pages })
    }

    /// Whether reclaim is due. With a capacity: if less than a tenth of its pages is available (NDS paper, section
    /// 4.2). Without one: if there are more dead pages than half of the live ones plus a fixed number of segments.
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

    /// Whether a barrier is worth its cost, because it would free enough of the segments that are pending free.
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
}
