//! Reading ahead: asks the medium for the pages of coming tasks, when they may not be in memory.
//!
//! The plan says what comes, so nothing is guessed within a command; what a scan will read after it
//! ([`super::sequence`]) comes behind the command's own tasks, so that the disk works on while the last of them are
//! compared and copied. Whether that may be so is looked at in a few places ([`super::looks`]), not everywhere. A large
//! command some of whose pages there were not compared yet asks for all of them even if these are in memory: others may
//! not be (they were written, or read by somebody, a while ago), the medium looks for itself before it reads, and the
//! comparison costs more. From 256 KiB on instead of 4 MiB that made planes and bands of rows slower.
//!
//! Tasks are asked for in groups of some extents of the medium ([`EXTENT_BYTES`]), and what a group wants of the extent
//! that it ends in waits for the next group: a medium brings a whole extent faster than its parts. A small gap between
//! two ranges is read with them; beyond that nothing is asked for that is not wanted.

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::plan::Task;
use super::read::{Kept, Reader, STREAM_BYTES};
use super::rent::TASKS_MOST;
use super::sequence::AHEAD_BYTES;
use super::work::Work;
use crate::media::EXTENT_BYTES;

/// Bytes of blocks that are asked for at once.
const TOGETHER_BYTES: u64 = 4 * EXTENT_BYTES;
/// A gap between pages that costs no more to read than a request of its own.
const GAP_BYTES: u64 = 12 << 10;
/// The same between records: those of a segment lie within a few pages of one another.
const RECORDS_GAP_BYTES: u64 = 64 << 10;

type Ranges = SmallVec<[(u64, u64); 16]>;

/// The reading ahead of one command.
pub struct Ahead<'a, 'w> {
    reader: &'w Reader<'a>,
    work: &'w Work,
    coming: Option<&'w Work>,
    /// Tasks of the command, and those with what comes.
    count: u64,
    total: u64,
    /// Tasks ahead of the current one; 0 when everything seems to be in memory and was compared.
    window: u64,
    /// Tasks of a group.
    together: u64,
    /// Whether this is a small cold read, whose requests are counted.
    rents: bool,
    cursor: Mutex<Cursor>,
}

/// How far was asked.
struct Cursor {
    /// The next task.
    next: u64,
    /// What is wanted of the last extent so far.
    held: Ranges,
}

impl<'a, 'w> Ahead<'a, 'w> {
    /// Looks whether there is anything to ask for; `coming` is what commands after this one will probably read.
    pub fn new(reader: &'w Reader<'a>, work: &'w Work, coming: Option<&'w Work>, bytes: u64) -> Self {
        let count = work.len();
        // A task may touch more of its block than it takes; count the whole block.
        let block = (reader.space.shape.bytes as u64).min(8 << 20);
        let together = (TOGETHER_BYTES / block).clamp(8, 64);
        let cursor = Mutex::new(Cursor { next: count, held: Ranges::new() });
        let mut ahead = Self { reader, work, coming, count, total: count, window: 0, together, rents: false, cursor };
        let mut kept = Kept::default();
        // One small task meets its own page soon enough.
        if count > 1 || bytes >= 4096 {
            // While extents come along, a few pages stand for nothing.
            let along = reader.space.rent.goes_on(reader.ftl.media().len());
            let cold = along || ahead.is_cold(work, bytes, &mut kept);
            reader.space.trust.looked(!cold);
            ahead.rents = cold && count <= TASKS_MOST && bytes < STREAM_BYTES;
            if cold || bytes >= STREAM_BYTES && ahead.is_new(work, &mut kept) {
                ahead.cursor.get_mut().next = 0;
            }
        }
        ahead.total += coming.filter(|c| ahead.is_cold(c, bytes, &mut kept)).map_or(0, Work::len);
        if ahead.cursor.get_mut().next < ahead.total {
            // Whatever is asked for beyond the command is asked for within it.
            ahead.window = (AHEAD_BYTES / block).max(16).max(ahead.total - count);
        }
        ahead
    }

    /// Whether some of the pages that stand for the work are not in memory.
    fn is_cold(&self, work: &Work, bytes: u64, kept: &mut Kept<'a>) -> bool {
        let (ftl, page) = (self.reader.ftl, self.reader.space.shape.page as u64);
        self.reader.holds_somewhere(work, bytes >= STREAM_BYTES, kept, &mut |run| {
            !ftl.media().is_resident(ftl.geometry().page_offset(run.ppa), u64::from(run.count) * page)
        })
    }

    /// Whether some of them were not compared yet.
    fn is_new(&self, work: &Work, kept: &mut Kept<'a>) -> bool {
        self.reader.holds_somewhere(work, true, kept, &mut |run| !self.reader.ftl.is_verified(run.ppa, run.count))
    }

    fn task(&self, i: u64) -> Task<'w> {
        match self.coming {
            Some(coming) if i >= self.count => coming.task(i - self.count),
            _ => self.work.task(i),
        }
    }

    /// Asks for what is to be in memory a window after the current task.
    pub fn advance(&self, current: u64, kept: &mut Kept<'a>) {
        if self.window == 0 {
            return;
        }
        let goal = self.total.min(current + self.window);
        let media = self.reader.ftl.media();
        // Threads share the cursor; what each takes it asks for by itself.
        loop {
            let (mut data, mut records) = (Ranges::new(), Ranges::new());
            let mut cursor = self.cursor.lock();
            if cursor.next >= goal {
                return;
            }
            let end = self.total.min(cursor.next + self.together);
            data.append(&mut cursor.held);
            for i in cursor.next..end {
                let task = self.task(i);
                let Some(map) = self.reader.map(&task.at, kept) else { continue };
                self.reader.pages_of(&task, map, &mut kept.units, &mut |page, len, record, record_len| {
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
            if self.rents && !data.is_empty() {
                self.read_along(&mut data);
            }
            media.prefetch(&data);
        }
    }
}

impl Ahead<'_, '_> {
    /// Counts what a small cold read asks for; makes extents of it where reading along is worth it.
    fn read_along(&self, data: &mut Ranges) {
        let (rent, media) = (&self.reader.space.rent, self.reader.ftl.media());
        let all = media.len();
        if !media.fits_in_memory() {
            return;
        }
        let bytes = |data: &Ranges| data.iter().map(|(from, to)| to - from).sum();
        if !rent.is_paid(all) {
            rent.pay(data.len() as u64, bytes(data));
            return;
        }
        for range in data.iter_mut() {
            let from = range.0 / EXTENT_BYTES * EXTENT_BYTES;
            *range = (from, range.1.next_multiple_of(EXTENT_BYTES).min(all).max(range.1));
        }
        join(data, 0);
        data.retain(|&mut (from, to)| !media.is_resident(from, to - from));
        rent.buy(bytes(data), all);
    }
}

/// Puts ranges in order, and makes one of those that are no further apart than this.
fn join(ranges: &mut Ranges, gap: u64) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let joins = next.0 <= last.1 + gap;
        if joins {
            last.1 = last.1.max(next.1);
        }
        joins
    });
}

/// Takes what lies in an extent out of ranges that are in order, unless that is all of the extent.
fn split_extent(ranges: &mut Ranges, extent: u64) -> Ranges {
    let (start, end) = (extent * EXTENT_BYTES, (extent + 1) * EXTENT_BYTES);
    let (mut rest, mut taken) = (Ranges::new(), Ranges::new());
    for &(from, to) in ranges.iter() {
        let parts = [(from, to.min(start)), (from.max(start), to.min(end)), (from.max(end), to)];
        for (i, part) in parts.into_iter().enumerate().filter(|(_, part)| part.0 < part.1) {
            if i == 1 { taken.push(part) } else { rest.push(part) }
        }
    }
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
    fn what_waits_is_a_part_of_the_last_extent() {
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
