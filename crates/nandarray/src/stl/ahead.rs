//! Reading ahead: asks the medium for the pages of coming tasks, when the first looks say that they are not in memory.
//!
//! The plan says what comes, so nothing is guessed within a command; what a scan will read after it ([`super::sequence`])
//! comes behind the command's own tasks, so that the disk works on while the last of them are compared and copied.
//! Whether pages are in memory is looked at in three places, not everywhere: a look is a system call.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use super::plan::Task;
use super::read::{Kept, Reader};
use super::sequence::AHEAD_BYTES;
use super::work::Work;

/// Tasks that are asked for at once.
const AHEAD_TOGETHER: u64 = 8;

type Ranges = SmallVec<[(u64, u64); 16]>;

/// The reading ahead of one command.
pub struct Ahead<'a, 'w> {
    reader: &'w Reader<'a>,
    work: &'w Work,
    coming: Option<&'w Work>,
    /// Tasks of the command, and those with what comes.
    count: u64,
    total: u64,
    /// Tasks ahead of the current one; 0 when everything seems to be in memory.
    window: u64,
    next: AtomicU64,
}

impl<'a, 'w> Ahead<'a, 'w> {
    /// Looks whether there is anything to ask for; `coming` is what commands after this one will probably read.
    pub fn new(reader: &'w Reader<'a>, work: &'w Work, coming: Option<&'w Work>, bytes: u64) -> Self {
        let count = work.len();
        let mut ahead = Self { reader, work, coming, count, total: count, window: 0, next: AtomicU64::new(count) };
        let mut kept = Kept::default();
        // One small task meets its own page soon enough.
        if count > 1 || bytes >= 4096 {
            let cold = ahead.is_cold(work, &mut kept);
            reader.space.trust.looked(!cold);
            if cold {
                ahead.next = AtomicU64::new(0);
            }
        }
        if let Some(coming) = coming.filter(|c| ahead.is_cold(c, &mut kept)) {
            ahead.total += coming.len();
        }
        if ahead.next.load(Ordering::Relaxed) < ahead.total {
            // A task may touch more of its block than it takes; count the whole block.
            let block = (reader.space.shape.bytes as u64).min(8 << 20);
            ahead.window = (AHEAD_BYTES / block).max(16);
        }
        ahead
    }

    /// Whether one of the first, middle and last task's pages is not in memory.
    fn is_cold(&self, work: &Work, kept: &mut Kept<'a>) -> bool {
        let (reader, count) = (self.reader, work.len());
        [0, count / 2, count.saturating_sub(1)][..count.min(3) as usize].iter().any(|&i| {
            let task = work.task(i);
            let Some(map) = reader.map(&task.at, kept) else { return false };
            let wanted = (task.in_block / reader.space.shape.page) as u32;
            let Some(run) = map.next_run(wanted).or_else(|| map.runs().last()) else { return false };
            let unit = wanted.clamp(run.unit, run.end() - 1);
            !reader.ftl.media().is_resident(reader.ftl.geometry().page_offset(run.page_of(unit)), 1)
        })
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
        // Threads share the cursor; each takes the next tasks that nobody has asked for yet, several at once so that pages
        // side by side are asked for together.
        while self.next.load(Ordering::Relaxed) < goal {
            let start = self.next.fetch_add(AHEAD_TOGETHER, Ordering::Relaxed);
            let (mut data, mut oob) = (Ranges::new(), Ranges::new());
            for i in start..self.total.min(start + AHEAD_TOGETHER) {
                let task = self.task(i);
                let Some(map) = self.reader.map(&task.at, kept) else { continue };
                self.reader.pages_of(&task, map, &mut kept.units, &mut |page, len, record, record_len| {
                    data.push((page, page + len));
                    oob.push((record, record + record_len));
                });
            }
            let media = self.reader.ftl.media();
            // Records of a segment lie within a few pages of one another: one request costs less than two.
            for (ranges, gap) in [(&mut oob, 64 << 10), (&mut data, 0)] {
                ranges.sort_unstable();
                ranges.dedup_by(|next, last| {
                    let joins = next.0 <= last.1 + gap;
                    if joins {
                        last.1 = last.1.max(next.1);
                    }
                    joins
                });
                ranges.iter().for_each(|&(from, to)| media.prefetch(from, to - from));
            }
        }
    }
}
