//! Prefetching: asks the medium for the pages of coming tasks, if they may not be in memory.
//!
//! The plan lists the pages, so nothing is guessed within a command. Pages that a sequential stream will probably read
//! after the command ([`readahead`]) follow the command's own, so that the disk is busy while the last of these are
//! compared and copied. Whether pages are missing from memory is sampled in a few places ([`residency`]). A large
//! command with a sampled page that was not verified yet prefetches all pages even if the sample is in memory: other
//! pages may be missing (they were written or read a while ago), the medium checks for itself before it reads, and
//! verification costs more than that. Applying this from 256 KiB on instead of 4 MiB made reads of planes and bands of
//! rows slower. Small cold reads all over a space may fetch whole extents ([`residency::SkiRental`]).
//!
//! On a medium far away ([`Media::is_far`](crate::media::Media::is_far)) every wait is a round trip, and to ask whether
//! bytes are here costs little; so all pages of a command are looked up, and the tasks from the first missing page on
//! are prefetched, however small the command is.
//!
//! Tasks are prefetched in groups of a few extents of the medium ([`EXTENT_BYTES`]). The extent in which a group ends
//! is held back for the next group, since a medium reads a whole extent faster than its parts. A small gap between two
//! ranges is read with them; apart from that only pages that will be used are prefetched.

pub mod readahead;
pub mod residency;

use std::ops::Range;

use parking_lot::Mutex;
use smallvec::SmallVec;

use self::readahead::{AppendStream, READAHEAD_BYTES, ReadStreams};
use self::residency::{ResidencyBackoff, SkiRental, TASKS_MAX};
use super::plan::Task;
use super::read::{LARGE_BYTES, Reader, WorkerState};
use super::work::Work;
use crate::error::Result;
use crate::media::EXTENT_BYTES;

/// Number of bytes of building blocks that are prefetched at once.
const GROUP_BYTES: u64 = 4 * EXTENT_BYTES;
/// Largest gap between two pages, in bytes, that costs no more to read than another request.
const GAP_BYTES: u64 = 12 << 10;
/// Largest gap between two out-of-band records, in bytes, that is read with them: a segment's records lie together.
const RECORDS_GAP_BYTES: u64 = 64 << 10;
/// Size, in bytes, below which a command with one task does not sample residency: its first access shows whether the
/// page is missing.
const SAMPLED_BYTES_MIN: u64 = 4096;
/// Number of bytes that are prefetched ahead of the current task on a medium far away: several times what a fast link
/// carries in a round trip, also if each task needs little.
const FAR_BYTES: u64 = 64 << 20;
/// Number of bytes that a task costs at least on a medium far away, which fetches larger units than pages.
const FAR_TASK_BYTES: u64 = 64 << 10;

type Ranges = SmallVec<[(u64, u64); 16]>;

/// The history of accesses to a space, from which the next ones are predicted. Affects speed only, never results.
#[derive(Debug, Default)]
pub struct AccessHistory {
    /// The active sequential streams of reads.
    pub reads: ReadStreams,
    /// The last box that was written, to recognise boxes written one after the other.
    pub appends: AppendStream,
    /// State that decides when commands may skip sampling because pages are assumed to be in memory.
    pub residency: ResidencyBackoff,
    /// Accumulated cost of small cold reads, which decides when whole extents are read instead.
    readaround: SkiRental,
}

/// The prefetcher of one command's pages.
pub struct PagePrefetcher<'a, 'w> {
    reader: &'w Reader<'a>,
    work: &'w Work,
    predicted: Option<&'w Work>,
    /// Number of tasks of the command itself.
    count: u64,
    /// Number of tasks of the command and of the predicted work.
    total: u64,
    /// Number of tasks to prefetch ahead of the current one; 0 if everything seems to be in memory and verified.
    window: u64,
    /// Number of tasks that are prefetched together.
    group: u64,
    /// Whether this is a small cold read, whose requests are charged to [`SkiRental`].
    charges: bool,
    /// Whether the medium is far away.
    far: bool,
    cursor: Mutex<PrefetchCursor>,
}

/// The progress of prefetching, shared by the threads of a command.
struct PrefetchCursor {
    /// Number of the next task to prefetch.
    next: u64,
    /// Byte ranges in the last extent of the previous group, held back for the next group.
    held: Ranges,
}

impl<'a, 'w> PagePrefetcher<'a, 'w> {
    /// Creates the prefetcher of a command, and samples whether there is anything to prefetch. `predicted` is the work
    /// of commands that will probably follow; `bytes` is the command's own number of bytes.
    pub fn new(reader: &'w Reader<'a>, work: &'w Work, predicted: Option<&'w Work>, bytes: u64) -> Self {
        let count = work.len();
        // A task may touch more of its block than it selects; the whole block is counted.
        let block = (reader.space.shape.bytes as u64).min(8 << 20);
        let group = (GROUP_BYTES / block).clamp(8, 64);
        let cursor = Mutex::new(PrefetchCursor { next: count, held: Ranges::new() });
        let (total, window, charges, far) = (count, 0, false, reader.ftl.media().is_far());
        let mut this = Self { reader, work, predicted, count, total, window, group, charges, far, cursor };
        let mut state = WorkerState::default();
        if far {
            if let Some(first) = this.first_missing(work, &mut state) {
                this.cursor.get_mut().next = first;
            }
        } else if count > 1 || bytes >= SAMPLED_BYTES_MIN {
            let access = &reader.space.access;
            // While whole extents are read, a few sampled pages say nothing about the others.
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
            if far {
                let each = (bytes / count.max(1)).clamp(FAR_TASK_BYTES, FAR_BYTES);
                this.window = this.window.max(FAR_BYTES / each);
            }
        }
        this
    }

    /// Whether at least one sampled page of the work is not in memory.
    fn is_cold(&self, work: &Work, bytes: u64, state: &mut WorkerState<'a>) -> bool {
        let (ftl, page) = (self.reader.ftl, self.reader.space.shape.page as u64);
        self.reader.any_sampled_page(work, bytes >= LARGE_BYTES, state, &mut |run| {
            !ftl.media().is_resident(ftl.geometry().page_offset(run.ppa), u64::from(run.count) * page)
        })
    }

    /// Returns the number of the first task with a page that is not resident, or whose record is not.
    fn first_missing(&self, work: &Work, state: &mut WorkerState<'a>) -> Option<u64> {
        let media = self.reader.ftl.media();
        (0..work.len()).find(|&i| {
            let mut missing = false;
            self.reader.pages_of(&work.task(i), state, &mut |page, len, record, record_len| {
                missing |= !media.is_resident(page, len) || !media.is_resident(record, record_len);
            });
            missing
        })
    }

    /// Whether at least one sampled page of the work has not been verified yet.
    fn is_new(&self, work: &Work, state: &mut WorkerState<'a>) -> bool {
        self.reader.any_sampled_page(work, true, state, &mut |run| !self.reader.is_verified(run))
    }

    fn task(&self, i: u64) -> Task<'w> {
        match self.predicted {
            Some(predicted) if i >= self.count => predicted.task(i - self.count),
            _ => self.work.task(i),
        }
    }

    /// Returns the number of tasks whose bytes are waited for together: all, unless some come from far away.
    pub fn together(&self) -> u64 {
        if self.far && self.window > 0 { (self.window / 4).max(1) } else { u64::MAX }
    }

    /// Waits for the bytes of some tasks, on a medium far away.
    pub fn bring(&self, tasks: Range<u64>, state: &mut WorkerState<'a>) -> Result<()> {
        if !self.far || self.window == 0 {
            return Ok(());
        }
        self.advance(tasks.start, state);
        let media = self.reader.ftl.media();
        for i in tasks {
            let mut places = Ranges::new();
            self.reader.pages_of(&self.work.task(i), state, &mut |page, len, record, record_len| {
                places.extend([(page, len), (record, record_len)]);
            });
            places.into_iter().try_for_each(|(at, len)| media.bring(at, len))?;
        }
        Ok(())
    }

    /// Prefetches the pages of the tasks up to a window after the current one, as far as they were not prefetched yet.
    pub fn advance(&self, current: u64, state: &mut WorkerState<'a>) {
        if self.window == 0 {
            return;
        }
        let goal = self.total.min(current + self.window);
        let media = self.reader.ftl.media();
        // Threads share the cursor; each prefetches the groups that it takes from it.
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
            // Records that lie between data pages are read with the data.
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

    /// Adds the cost of a small cold read's requests to the space's [`SkiRental`]; once reading whole extents is worth
    /// it, extends the ranges to extents.
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

/// Sorts byte ranges, and joins ranges with a gap of at most `gap` bytes.
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

/// Removes the parts that lie in an extent from sorted ranges, and returns these parts. If they are the whole extent,
/// removes and returns nothing: a whole extent need not wait for later parts.
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
