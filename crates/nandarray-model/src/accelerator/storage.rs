//! The accelerator's storage: the ways of page groups to and from flash, DDR3L as a write buffer, and the work of
//! Flashvisor's and Storengine's cores.
//!
//! A read occupies Flashvisor's core, a die on each channel, the channels, the backbone's link and DDR3L, one after the
//! other. Outputs are accepted into DDR3L and written to flash after the kernel's end; a read suspends a write or an
//! erase in its die. Storengine writes the journal of mappings and frees blocks round robin, one page group at a time;
//! its page groups are queued after those of outputs. For real bytes the store's own flash management does this; this
//! file models only the times and the parts that they occupy.

use std::collections::VecDeque;

use nandarray_sim::Ps;
use serde::Serialize;

use super::platform::AcceleratorPlatform;

/// An operation of a row of dies that reads may suspend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackgroundWork {
    /// The write of a page group of this kernel's outputs.
    Output(u64),
    /// The write of a page group of the journal.
    Journal,
    /// The move of a valid page group out of a block that is being freed.
    Move,
    /// The erase of a block whose valid page groups have moved.
    Erase,
}

/// A row of dies: the dies of one number on all channels, which work together on one page group.
#[derive(Clone, Debug)]
struct DieRow {
    /// Time from which on the row can begin another read.
    free: Ps,
    /// The row's write or erase, and its end; `None` if it has neither.
    behind: Option<(BackgroundWork, Ps)>,
    failed: bool,
}

/// A block that is being freed: its valid page groups are moved, then it is erased.
#[derive(Clone, Copy, Debug)]
struct FreeingBlock {
    /// Number of page groups whose move Storengine has not queued.
    left: u64,
    /// Number of page groups without a new place; includes those of `left`.
    unplaced: u64,
    /// Number of page groups whose move has not ended; includes those of `unplaced`.
    unmoved: u64,
    /// Whether the erase is queued.
    erasing: bool,
}

/// Counts of Storengine's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StorengineCounts {
    /// Number of page groups of outputs that were written.
    pub written: u64,
    /// Number of page groups of the journal that were written.
    pub journalled: u64,
    /// Number of valid page groups that were moved.
    pub moved: u64,
    /// Number of blocks that were erased.
    pub erased: u64,
}

/// The modelled storage of an accelerator.
#[derive(Debug)]
pub(super) struct AcceleratorStorage {
    pub(super) platform: AcceleratorPlatform,
    flashvisor: Ps,
    storengine: Ps,
    rows: Vec<DieRow>,
    channels: Ps,
    link: Ps,
    dram: Ps,
    pcie: Ps,
    next_row: usize,
    queue: VecDeque<BackgroundWork>,
    buffered: u64,
    /// Number of page groups for which the open block has room.
    open: u64,
    /// Number of blocks that are erased and not open.
    free_blocks: u64,
    /// Number of valid page groups of each used block, in the order in which blocks are freed; the open block is last.
    used: VecDeque<u64>,
    replaced: usize,
    freeing: Option<FreeingBlock>,
    dirty: u64,
    pub(super) counts: StorengineCounts,
    pub(super) flashvisor_busy: Ps,
    pub(super) storengine_busy: Ps,
    link_busy: Ps,
    pub(super) pcie_busy: Ps,
    /// Time in which at least one die wrote or erased, without the current interval.
    programming: Ps,
    /// Intervals in which the backbone's link is busy, without those that have passed.
    link_spans: VecDeque<(Ps, Ps)>,
    /// Past time in which the link was busy and a die wrote or erased as well.
    both: Ps,
    programs: u64,
    programs_since: Ps,
}

impl AcceleratorStorage {
    pub(super) fn new(platform: &AcceleratorPlatform) -> Self {
        let p = platform;
        let row = DieRow { free: Ps::ZERO, behind: None, failed: false };
        let full = (p.blocks as f64 * p.filled_share) as u64;
        // Valid groups are spread over more blocks than they would fill, as after long use with rewrites.
        let used_blocks = ((full as f64 / 0.95).ceil() as u64).min(p.blocks.saturating_sub(p.reclaim_blocks + 1));
        let valid = (full * p.groups_per_block).checked_div(used_blocks).unwrap_or(0).min(p.groups_per_block);
        Self {
            platform: p.clone(),
            flashvisor: Ps::ZERO,
            storengine: Ps::ZERO,
            rows: vec![row; p.dies as usize],
            channels: Ps::ZERO,
            link: Ps::ZERO,
            dram: Ps::ZERO,
            pcie: Ps::ZERO,
            next_row: 0,
            queue: VecDeque::new(),
            buffered: 0,
            open: 0,
            free_blocks: p.blocks - used_blocks,
            used: (0..used_blocks).map(|_| valid).collect(),
            replaced: 0,
            freeing: None,
            dirty: 0,
            counts: StorengineCounts::default(),
            flashvisor_busy: Ps::ZERO,
            storengine_busy: Ps::ZERO,
            link_busy: Ps::ZERO,
            pcie_busy: Ps::ZERO,
            programming: Ps::ZERO,
            link_spans: VecDeque::new(),
            both: Ps::ZERO,
            programs: 0,
            programs_since: Ps::ZERO,
        }
    }

    /// Books time on Flashvisor's core; returns the beginning and the end of the booking.
    pub(super) fn flashvisor(&mut self, from: Ps, lasts: Ps) -> (Ps, Ps) {
        let begin = self.flashvisor.max(from);
        self.flashvisor = begin + lasts;
        self.flashvisor_busy += lasts;
        (begin, self.flashvisor)
    }

    fn storengine(&mut self, from: Ps, lasts: Ps) -> Ps {
        self.storengine = self.storengine.max(from) + lasts;
        self.storengine_busy += lasts;
        self.storengine
    }

    /// Books a transfer between host and DDR3L over PCIe; returns its end.
    pub(super) fn host_link(&mut self, now: Ps, bytes: u64) -> Ps {
        let lasts = Ps::of_bytes(bytes, self.platform.pcie_rate);
        self.pcie = self.pcie.max(now) + lasts;
        self.pcie_busy += lasts;
        self.pcie
    }

    /// Books a transfer of DDR3L; returns its end.
    pub(super) fn memory(&mut self, now: Ps, bytes: u64) -> Ps {
        let lasts = Ps::of_bytes(bytes, self.platform.dram_rate);
        // Transfers are interleaved in bursts: a transfer waits only if all transfers together exceed DDR3L's rate.
        self.dram = self.dram.max(Ps(now.0.saturating_sub(lasts.0))) + lasts;
        self.dram.max(now + lasts)
    }

    /// Books time on the backbone's link.
    pub(super) fn link(&mut self, from: Ps, lasts: Ps) {
        let begin = self.link.max(from);
        self.link = begin + lasts;
        self.link_busy += lasts;
        match self.link_spans.back_mut() {
            Some((_, end)) if *end == begin => *end = self.link,
            _ => self.link_spans.push_back((begin, self.link)),
        }
    }

    /// Advances the count of `both` to `now`: removes the link's intervals that have passed, and adds their parts in
    /// which a die wrote or erased.
    fn pass(&mut self, now: Ps) {
        while let Some((begin, end)) = self.link_spans.front_mut() {
            if *begin >= now {
                break;
            }
            let until = now.min(*end);
            if self.programs > 0 {
                self.both += Ps(until.0.saturating_sub((*begin).max(self.programs_since).0));
            }
            *begin = until;
            if until == *end {
                self.link_spans.pop_front();
            }
        }
    }

    pub(super) fn program_begins(&mut self, now: Ps) {
        self.pass(now);
        if self.programs == 0 {
            self.programs_since = now;
        }
        self.programs += 1;
    }

    pub(super) fn program_ends(&mut self, now: Ps) {
        self.pass(now);
        self.programs -= 1;
        if self.programs == 0 {
            self.programming += now - self.programs_since;
        }
    }

    /// Returns the time before `now` in which the link was busy, or a die wrote or erased, or both.
    pub(super) fn active(&mut self, now: Ps) -> Ps {
        self.pass(now);
        let open = if self.programs > 0 { now - self.programs_since } else { Ps::ZERO };
        let ahead: u64 = self.link_spans.iter().map(|(begin, end)| end.0 - begin.0).sum();
        Ps((self.link_busy + self.programming + open).0 - ahead - self.both.0)
    }

    fn next_row(&mut self) -> usize {
        loop {
            let row = self.next_row;
            self.next_row = (row + 1) % self.rows.len();
            if !self.rows[row].failed {
                return row;
            }
        }
    }

    /// Reads a window from flash; returns the time at which it is in DDR3L, and the time for which it occupies the
    /// backbone's link.
    pub(super) fn window(&mut self, now: Ps, bytes: u64) -> (Ps, Ps) {
        if bytes == 0 {
            return (now, Ps::ZERO);
        }
        let p = &self.platform;
        let (group_bytes, groups) = (p.group_bytes, bytes.div_ceil(p.group_bytes));
        let translate = Ps(p.t_translate_ns * 1_000);
        let (t_read, t_suspend) = (Ps(p.t_read_ns * 1_000), Ps(p.t_suspend_ns * 1_000));
        let channel = Ps::of_bytes(p.group_bytes / p.channels, p.channel_rate);
        let link = Ps::of_bytes(p.group_bytes, p.backbone_rate);
        let (asked, _) = self.flashvisor(now + Ps(p.t_message_ns * 1_000), Ps(translate.0 * groups));
        let mut there = now;
        for group in 0..groups {
            let translated = asked + Ps(translate.0 * (group + 1));
            let row = self.next_row();
            let die = &mut self.rows[row];
            let mut begin = translated.max(die.free);
            if let Some((_, end)) = &mut die.behind {
                if *end > begin {
                    begin += t_suspend;
                    *end = *end + t_suspend + t_read;
                }
            }
            let moved = (begin + t_read).max(self.channels) + channel;
            (die.free, self.channels) = (moved, moved);
            self.link(moved, link);
            there = self.memory(self.link, group_bytes);
        }
        (there, Ps(link.0 * groups))
    }

    /// Returns the number of page groups for which DDR3L's write buffer has room.
    pub(super) fn room(&self) -> u64 {
        (self.platform.write_buffer_bytes / self.platform.group_bytes).saturating_sub(self.buffered)
    }

    /// Queues page groups of a kernel's outputs for writing; returns the time at which Flashvisor has mapped them. The
    /// caller has checked that DDR3L has room for them.
    pub(super) fn accept(&mut self, now: Ps, kernel: u64, groups: u64) -> Ps {
        assert!(groups <= self.room(), "{groups} groups into a buffer with room for {}", self.room());
        self.buffered += groups;
        self.queue.extend((0..groups).map(|_| BackgroundWork::Output(kernel)));
        let p = &self.platform;
        let (message, translate) = (Ps(p.t_message_ns * 1_000), Ps(p.t_translate_ns * 1_000 * groups));
        self.flashvisor(now + message, translate).1
    }

    /// Assigns a place to a page group that will be written: in the open block, or in a free block that is opened for
    /// it.
    fn place(&mut self, now: Ps) {
        if self.open == 0 {
            self.free_blocks = self.free_blocks.checked_sub(1).expect("a free block");
            self.open = self.platform.groups_per_block;
            self.used.push_back(0);
            // A block's first page group holds the mapping entries of its pages.
            self.counts.journalled += 1;
            self.storengine(now, Ps(self.platform.t_journal_ns * 1_000));
            self.open -= 1;
        }
        self.open -= 1;
        *self.used.back_mut().expect("the open block") += 1;
    }

    fn replace(&mut self) {
        if self.platform.filled_share == 0.0 || self.used.is_empty() {
            return;
        }
        for _ in 0..self.used.len() {
            self.replaced = (self.replaced + 1) % self.used.len();
            if self.used[self.replaced] > 0 {
                self.used[self.replaced] -= 1;
                return;
            }
        }
    }

    /// Whether there is a place for the operation's page group. The last free block, and the part of the open block
    /// that queued moves need, are reserved for moves, because the erase after them frees a block.
    fn fits(&self, work: BackgroundWork) -> bool {
        match work {
            BackgroundWork::Erase => true,
            BackgroundWork::Move => self.open > 0 || self.free_blocks > 0,
            BackgroundWork::Output(_) | BackgroundWork::Journal => match self.free_blocks {
                0 => self.open > self.freeing.map_or(0, |block| block.unplaced),
                1 => self.open > 0,
                _ => true,
            },
        }
    }

    /// Begins queued operations on rows of dies that have none; returns, for each, the row and the time of its end.
    pub(super) fn begin(&mut self, now: Ps) -> Vec<(usize, Ps)> {
        let mut begun = Vec::new();
        while !self.queue.is_empty() {
            let idle = (0..self.rows.len()).map(|k| (self.next_row + k) % self.rows.len());
            let Some(row) = idle.into_iter().find(|r| !self.rows[*r].failed && self.rows[*r].behind.is_none()) else {
                break;
            };
            let Some(at) = self.queue.iter().position(|work| self.fits(*work)) else { break };
            let work = self.queue.remove(at).expect("it was found");
            begun.push((row, self.occupy(row, work, now)));
        }
        begun
    }

    fn occupy(&mut self, row: usize, work: BackgroundWork, now: Ps) -> Ps {
        let (program, read) = (self.platform.t_program_ns, self.platform.t_read_ns);
        let lasts = match work {
            BackgroundWork::Erase => Ps(self.platform.t_erase_ns * 1_000),
            BackgroundWork::Move => Ps((program + read) * 1_000),
            _ => Ps(program * 1_000),
        };
        match (work, &mut self.freeing) {
            (BackgroundWork::Erase, Some(block)) => {
                assert_eq!(block.unmoved, 0, "a block is erased whose groups have not moved");
            }
            (BackgroundWork::Move, Some(block)) => block.unplaced -= 1,
            (BackgroundWork::Erase | BackgroundWork::Move, None) => panic!("{work:?} of no block"),
            _ => {}
        }
        if work != BackgroundWork::Erase {
            self.place(now);
        }
        let mut from = now.max(self.rows[row].free);
        if matches!(work, BackgroundWork::Output(_) | BackgroundWork::Journal) {
            let link = Ps::of_bytes(self.platform.group_bytes, self.platform.backbone_rate);
            self.link(now, link);
            from = from.max(self.link);
        }
        let end = from + lasts;
        self.rows[row].behind = Some((work, end));
        self.program_begins(now);
        end
    }

    /// Handles the end event of a row's operation: returns the operation if it has ended. The error is the time at
    /// which it will end, if a read has delayed it, and `None` if the row has no operation.
    pub(super) fn ended(&mut self, row: usize, now: Ps) -> Result<BackgroundWork, Option<Ps>> {
        match self.rows[row].behind {
            Some((_, end)) if end > now => Err(Some(end)),
            None => Err(None),
            Some((work, _)) => {
                self.rows[row].behind = None;
                self.program_ends(now);
                match work {
                    BackgroundWork::Output(_) => {
                        self.buffered -= 1;
                        self.counts.written += 1;
                        self.dirty += 1;
                        self.replace();
                    }
                    BackgroundWork::Journal => self.counts.journalled += 1,
                    BackgroundWork::Move => {
                        self.counts.moved += 1;
                        self.freeing.as_mut().expect("the block of a group that moved").unmoved -= 1;
                    }
                    BackgroundWork::Erase => {
                        self.counts.erased += 1;
                        self.free_blocks += 1;
                        self.freeing = None;
                    }
                }
                Ok(work)
            }
        }
    }

    /// Whether the mapping has changed since the journal was last written.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty > 0
    }

    /// Queues the changes of the mapping for writing, four bytes for each changed page group.
    pub(super) fn journal(&mut self, now: Ps) {
        let groups = (self.dirty * 4).div_ceil(self.platform.group_bytes);
        self.dirty = 0;
        self.storengine(now, Ps(self.platform.t_journal_ns * 1_000 * groups));
        self.queue.extend((0..groups).map(|_| BackgroundWork::Journal));
    }

    /// Lets Storengine free a block if too few are free: queues the move of one valid page group, or the erase once all
    /// have moved. Returns the time for the next call; `None` if Storengine has nothing to do before another event.
    pub(super) fn reclaim(&mut self, now: Ps) -> Option<Ps> {
        let each = Ps(self.platform.t_reclaim_ns * 1_000);
        match &mut self.freeing {
            Some(block) => {
                let work = match *block {
                    FreeingBlock { left: 1.., .. } => BackgroundWork::Move,
                    FreeingBlock { unmoved: 0, erasing: false, .. } => BackgroundWork::Erase,
                    _ => return None,
                };
                match work {
                    BackgroundWork::Move => block.left -= 1,
                    _ => block.erasing = true,
                }
                self.queue.push_front(work);
                Some(self.storengine(now, each))
            }
            None if self.free_blocks >= self.platform.reclaim_blocks || self.used.len() < 2 => None,
            None => {
                // Round robin: the first block whose erase frees at least two groups, because the next block's head
                // takes one.
                let full = self.platform.groups_per_block.saturating_sub(1);
                let at = self.used.iter().take(self.used.len() - 1).position(|valid| *valid < full)?;
                let valid = self.used.remove(at).expect("a used block");
                self.replaced = self.replaced.saturating_sub(1);
                self.freeing = Some(FreeingBlock { left: valid, unplaced: valid, unmoved: valid, erasing: false });
                Some(self.storengine(now, each))
            }
        }
    }

    /// Fails a row of dies; the operation that it was executing is queued again, for another row.
    pub(super) fn fail(&mut self, row: usize, now: Ps) {
        self.rows[row].failed = true;
        if let Some((work, _)) = self.rows[row].behind.take() {
            self.queue.push_front(work);
            if let (BackgroundWork::Move, Some(block)) = (work, &mut self.freeing) {
                block.unplaced += 1;
            }
            self.program_ends(now);
        }
    }

    /// Returns the number of operations on flash that are queued or being executed.
    pub(super) fn unsettled(&self) -> usize {
        self.queue.len() + self.rows.iter().filter(|row| row.behind.is_some()).count()
    }

    /// Whether no operation on flash is queued or being executed.
    pub(super) fn is_settled(&self) -> bool {
        self.unsettled() == 0
    }
}

/// Views of the state for tests.
#[cfg(test)]
impl AcceleratorStorage {
    pub(super) fn blocks_of_all_kinds(&self) -> u64 {
        self.free_blocks + self.used.len() as u64 + u64::from(self.freeing.is_some())
    }

    pub(super) fn valid_of_fullest(&self) -> u64 {
        self.used.iter().copied().max().unwrap_or(0)
    }

    pub(super) fn next_end(&self) -> Option<Ps> {
        self.rows.iter().filter_map(|row| row.behind.map(|(_, end)| end)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_link_and_dies_work_counts_once() {
        let mut storage = AcceleratorStorage::new(&AcceleratorPlatform::default());
        storage.link(Ps(10), Ps(20));
        storage.program_begins(Ps(20));
        storage.link(Ps(50), Ps(100));
        assert_eq!(storage.active(Ps(60)), Ps(50));
        storage.program_ends(Ps(100));
        assert_eq!(storage.active(Ps(120)), Ps(110));
        assert_eq!(storage.active(Ps(500)), Ps(140));
    }

    #[test]
    fn a_block_is_erased_after_its_last_group_has_moved() {
        let platform = AcceleratorPlatform {
            blocks: 16,
            groups_per_block: 8,
            filled_share: 0.5,
            reclaim_blocks: 6,
            ..AcceleratorPlatform::default()
        };
        let mut storage = AcceleratorStorage::new(&platform);
        storage.accept(Ps::ZERO, 0, 200);
        let (mut now, mut erases) = (Ps::ZERO, 0);
        while !storage.is_settled() || storage.freeing.is_some() {
            storage.begin(now);
            while storage.reclaim(now).is_some() {
                storage.begin(now);
            }
            let running = |s: &AcceleratorStorage, work| s.rows.iter().any(|r| r.behind.is_some_and(|b| b.0 == work));
            if running(&storage, BackgroundWork::Erase) {
                let waits = storage.queue.contains(&BackgroundWork::Move);
                assert!(!waits && !running(&storage, BackgroundWork::Move), "{:?}", storage.rows);
                assert_eq!(storage.freeing.map(|b| (b.left, b.unmoved)), Some((0, 0)));
                erases += 1;
            }
            let blocks = storage.free_blocks + storage.used.len() as u64 + u64::from(storage.freeing.is_some());
            assert_eq!(blocks, 16, "each block is free, used or being freed");
            let next = storage.rows.iter().filter_map(|r| r.behind.map(|b| b.1)).min();
            now = next.expect("something goes on");
            for row in 0..storage.rows.len() {
                let _ = storage.ended(row, now);
            }
        }
        assert_eq!(storage.counts.written, 200);
        assert!(erases > 0 && storage.counts.erased > 0 && storage.counts.moved > 0, "{:?}", storage.counts);
    }
}
