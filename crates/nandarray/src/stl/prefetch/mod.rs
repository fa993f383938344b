//! Prefetching: asks the medium for the pages of coming tasks, when they may not be in memory.
//!
//! The plan lists the pages, so nothing is guessed within a command; pages that a sequential stream will read after it
//! ([`readahead`]) come behind the command's own, so that the disk works on while the last of them are compared and
//! copied. Whether pages are missing is sampled in a few places ([`residency`]). A large command some of whose sampled
//! pages were not compared yet prefetches all of them even if the sample is in memory: others may not be (they were
//! written, or read by another command, a while ago), the medium tests for itself before it reads, and the comparison
//! costs more. From 256 KiB on instead of 4 MiB that made planes and bands of rows slower. Small cold reads all over a
//! space may fetch whole extents ([`readaround`]).
//!
//! Tasks are prefetched in groups of some extents of the medium ([`EXTENT_BYTES`]), and the part of the extent that a
//! group ends in waits for the next group: a medium reads a whole extent faster than its parts. A small gap between two
//! ranges is read with them; no other page is prefetched that is not wanted.

pub mod readahead;
pub mod readaround;
pub mod residency;

use parking_lot::Mutex;
use smallvec::SmallVec;

use self::readahead::{AppendStream, READAHEAD_BYTES, ReadStreams};
use self::readaround::{SkiRental, TASKS_MAX};
use self::residency::ResidencyBackoff;
use super::plan::Task;
use super::read::{LARGE_BYTES, Reader, WorkerState};
use super::work::Work;
use crate::media::EXTENT_BYTES;

/// Bytes of blocks that are prefetched at once.
const GROUP_BYTES: u64 = 4 * EXTENT_BYTES;
/// A gap between pages that costs no more to read than a request of its own.
const GAP_BYTES: u64 = 12 << 10;
/// The same between records: those of a segment lie within a few pages of one another.
const RECORDS_GAP_BYTES: u64 = 64 << 10;
/// Bytes below which a command of one task is not sampled: it meets its own page soon enough.
const SAMPLED_BYTES_MIN: u64 = 4096;

type Ranges = SmallVec<[(u64, u64); 16]>;

/// The history of accesses to a space: predicts the next ones. Decides speed only, never results.
#[derive(Debug, Default)]
pub struct AccessHistory {
    /// The sequential reads that are going on.
    pub reads: ReadStreams,
    /// The boxes that are written one after the other.
    pub appends: AppendStream,
    /// Whether verified pages are taken to be in memory.
    pub residency: ResidencyBackoff,
    /// The cost of small cold reads.
    readaround: SkiRental,
}

/// The prefetching of one command.
pub struct PagePrefetcher<'a, 'w> {
    reader: &'w Reader<'a>,
    work: &'w Work,
    predicted: Option<&'w Work>,
    /// Tasks of the command, and those with the predicted ones.
    count: u64,
    total: u64,
    /// Tasks ahead of the current one; 0 when everything seems to be in memory and was compared.
    window: u64,
    /// Tasks of a group.
    group: u64,
    /// Whether this is a small cold read, whose requests are charged.
    charges: bool,
    cursor: Mutex<PrefetchCursor>,
}

/// The progress of prefetching.
struct PrefetchCursor {
    /// The next task.
    next: u64,
    /// Ranges within the last extent, which wait for the next group.
    held: Ranges,
}

impl<'a, 'w> PagePrefetcher<'a, 'w> {
    /// Samples whether anything has to be prefetched; `predicted` is the work of commands that will probably follow.
    pub fn new(reader: &'w Reader<'a>, work: &'w Work, predicted: Option<&'w Work>, bytes: u64) -> Self {
        let count = work.len();
        // A task may touch more of its block than it takes; count the whole block.
        let block = (reader.space.shape.bytes as u64).min(8 << 20);
        let group = (GROUP_BYTES / block).clamp(8, 64);
        let cursor = Mutex::new(PrefetchCursor { next: count, held: Ranges::new() });
        let (total, window, charges) = (count, 0, false);
        let mut this = Self { reader, work, predicted, count, total, window, group, charges, cursor };
        let mut state = WorkerState::default();
        if count > 1 || bytes >= SAMPLED_BYTES_MIN {
            let access = &reader.space.access;
            // While extents are read around, a few pages stand for nothing.
            let around = access.readaround.begin_command(reader.ftl.media().len());
            let cold = around || this.is_cold(work, bytes, &mut state);
            access.residency.probed(!cold);
            this.charges = cold && count <= TASKS_MAX && bytes < LARGE_BYTES;
            if cold || bytes >= LARGE_BYTES && this.is_new(work, &mut state) {
                this.cursor.get_mut().next = 0;
            }
        }
        this.total += predicted.filter(|p| this.is_cold(p, bytes, &mut state)).map_or(0, Work::len);
        debug_assert!(this.total >= count, "{} tasks of {count}", this.total);
        if this.cursor.get_mut().next < this.total {
            // All predicted tasks are prefetched before the command ends.
            this.window = (READAHEAD_BYTES / block).max(16).max(this.total - count);
        }
        this
    }

    /// Whether some of the sampled pages are not in memory.
    fn is_cold(&self, work: &Work, bytes: u64, state: &mut WorkerState<'a>) -> bool {
        let (ftl, page) = (self.reader.ftl, self.reader.space.shape.page as u64);
        self.reader.any_sampled_page(work, bytes >= LARGE_BYTES, state, &mut |run| {
            !ftl.media().is_resident(ftl.geometry().page_offset(run.ppa), u64::from(run.count) * page)
        })
    }

    /// Whether some of them were not compared yet.
    fn is_new(&self, work: &Work, state: &mut WorkerState<'a>) -> bool {
        self.reader.any_sampled_page(work, true, state, &mut |run| !self.reader.is_verified(run))
    }

    fn task(&self, i: u64) -> Task<'w> {
        match self.predicted {
            Some(predicted) if i >= self.count => predicted.task(i - self.count),
            _ => self.work.task(i),
        }
    }

    /// Prefetches the pages that should be in memory a window after the current task.
    pub fn advance(&self, current: u64, state: &mut WorkerState<'a>) {
        if self.window == 0 {
            return;
        }
        let goal = self.total.min(current + self.window);
        let media = self.reader.ftl.media();
        // Threads share the cursor; each prefetches the group that it takes.
        loop {
            let (mut data, mut records) = (Ranges::new(), Ranges::new());
            let mut cursor = self.cursor.lock();
            if cursor.next >= goal {
                return;
            }
            let end = self.total.min(cursor.next + self.group);
            assert!(cursor.next < end, "a group of tasks {}..{end}", cursor.next);
            data.append(&mut cursor.held);
            for i in cursor.next..end {
                self.reader.pages_of(&self.task(i), state, &mut |page, len, record, record_len| {
                    data.push((page, page + len));
                    records.push((record, record + record_len));
                });
            }
            cursor.next = end;
            let last = data.last().map_or(0, |&(_, to)| (to - 1) / EXTENT_BYTES);
            join(&mut data, GAP_BYTES);
            join(&mut records, RECORDS_GAP_BYTES);
            // Together: records that lie among the data come with it.
            data.append(&mut records);
            join(&mut data, 0);
            if end < self.total {
                cursor.held = split_extent(&mut data, last);
            }
            drop(cursor);
            if self.charges && !data.is_empty() {
                self.read_around(&mut data);
            }
            media.prefetch(&data);
        }
    }

    /// Charges a small cold read for its requests; makes extents of them where reading around is worth it.
    fn read_around(&self, data: &mut Ranges) {
        let (rental, media) = (&self.reader.space.access.readaround, self.reader.ftl.media());
        let all = media.len();
        if !media.fits_in_memory() {
            return;
        }
        let bytes = |data: &Ranges| data.iter().map(|(from, to)| to - from).sum();
        if !rental.is_due(all) {
            rental.charge(data.len() as u64, bytes(data));
            return;
        }
        for range in data.iter_mut() {
            let from = range.0 / EXTENT_BYTES * EXTENT_BYTES;
            *range = (from, range.1.next_multiple_of(EXTENT_BYTES).min(all).max(range.1));
        }
        join(data, 0);
        data.retain(|&mut (from, to)| !media.is_resident(from, to - from));
        rental.credit(bytes(data), all);
    }
}

/// Sorts ranges, and joins those that are no further apart than `gap`.
fn join(ranges: &mut Ranges, gap: u64) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = next.0 <= last.1 + gap;
        if joins {
            last.1 = last.1.max(next.1);
        }
        joins
    });
    debug_assert!(ranges.windows(2).all(|w| w[0].1 + gap < w[1].0), "ranges apart: {ranges:?}");
}

/// Takes the parts that lie in an extent out of sorted ranges, unless they are all of the extent.
fn split_extent(ranges: &mut Ranges, extent: u64) -> Ranges {
    let (start, end) = (extent * EXTENT_BYTES, (extent + 1) * EXTENT_BYTES);
    let (mut rest, mut taken) = (Ranges::new(), Ranges::new());
    for &(from, to) in ranges.iter() {
        let parts = [(from, to.min(start)), (from.max(start), to.min(end)), (from.max(end), to)];
        for (i, part) in parts.into_iter().enumerate().filter(|(_, part)| part.0 < part.1) {
            if i == 1 { taken.push(part) } else { rest.push(part) }
        }
    }
    debug_assert!(rest.is_sorted() && taken.is_sorted(), "ranges in order: {ranges:?}");
    if taken.as_slice() == [(start, end)] {
        return Ranges::new();
    }
    *ranges = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_last_extent_waits() {
        const E: u64 = EXTENT_BYTES;
        let mut ranges = Ranges::from_slice(&[(0, 10), (E - 5, E + 7), (E + 20, 3 * E)]);
        assert_eq!(split_extent(&mut ranges, 1).as_slice(), [(E, E + 7), (E + 20, 2 * E)]);
        assert_eq!(ranges.as_slice(), [(0, 10), (E - 5, E), (2 * E, 3 * E)]);
        assert!(split_extent(&mut ranges, 2).is_empty(), "a whole extent does not wait");
        assert_eq!(ranges.len(), 3);
        assert!(split_extent(&mut ranges, 9).is_empty());
        assert_eq!(ranges.len(), 3);
    }

    #[test]
    fn small_gaps_are_read_with_what_lies_around_them() {
        let mut ranges = Ranges::from_slice(&[(8192, 12_288), (0, 4096), (40_960, 45_056), (4096, 6000)]);
        join(&mut ranges, GAP_BYTES);
        assert_eq!(ranges.as_slice(), [(0, 12_288), (40_960, 45_056)]);
    }
}
