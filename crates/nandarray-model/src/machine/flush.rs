//! What a flush waits for: what was in the write cache when it came, then the changed pages of a cached map, then every program
//! that had begun by then.
//!
//! Programs are counted by epochs; a flush ends the running one and is done when nothing is left of it and those before. So
//! writes and reclaim that go on do not hold it up.

use std::collections::VecDeque;

use super::block::Status;
use super::{Machine, Waiting};
use crate::ftl::cache::FlushTicket;
use crate::time::Ps;

/// Where a flush stands.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The cache writes what was dirty at that time.
    Draining(Option<FlushTicket>),
    /// Programs up to that epoch end.
    Programming(u64),
}

/// Flushes under way, and the programs that they wait for.
#[derive(Debug)]
pub(super) struct Flushes {
    waiting: VecDeque<(u32, Stage)>,
    /// Programs under way, by epoch; the last one runs.
    programs: VecDeque<u64>,
    first_epoch: u64,
}

impl Default for Flushes {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), programs: VecDeque::from([0]), first_epoch: 0 }
    }
}

impl Flushes {
    pub(super) fn program_begins(&mut self) -> u64 {
        *self.programs.back_mut().expect("an epoch runs") += 1;
        self.first_epoch + self.programs.len() as u64 - 1
    }

    pub(super) fn program_ended(&mut self, epoch: u64) {
        self.programs[(epoch - self.first_epoch) as usize] -= 1;
        self.forget();
    }

    fn forget(&mut self) {
        while self.programs.len() > 1 && self.programs[0] == 0 {
            self.programs.pop_front();
            self.first_epoch += 1;
        }
    }

    /// Ends the running epoch; says which it was.
    fn end_epoch(&mut self) -> u64 {
        let epoch = self.first_epoch + self.programs.len() as u64 - 1;
        self.programs.push_back(0);
        self.forget();
        epoch
    }

    /// Whether the cache has to be emptied for a flush.
    pub(super) fn drains(&self) -> bool {
        self.waiting.back().is_some_and(|(_, stage)| matches!(stage, Stage::Draining(_)))
    }

    pub(super) fn check_at_rest(&self) {
        assert!(self.waiting.is_empty() && self.programs == [0], "a flush or a program was left on its way");
    }
}

impl Machine {
    /// A flush begins.
    pub(super) fn flush(&mut self, now: Ps, io: u32) {
        let blocks = self.blocks();
        let ticket = blocks.cached.as_ref().map(|c| c.cache.flush());
        blocks.flushes.waiting.push_back((io, Stage::Draining(ticket)));
        self.go_on_draining(now);
        self.go_on_flushing(now);
    }

    /// Lets flushes go on, in order.
    pub(super) fn go_on_flushing(&mut self, now: Ps) {
        while let Some(&(io, stage)) = self.blocks().flushes.waiting.front() {
            let blocks = self.blocks();
            match stage {
                Stage::Draining(ticket) => {
                    if let (Some(cached), Some(ticket)) = (&blocks.cached, ticket) {
                        if !cached.cache.is_flushed(ticket) {
                            if !cached.is_stuck() {
                                return;
                            }
                            self.fail_io(io, Status::NoSpace);
                        }
                    }
                    self.write_map(now);
                    if !self.blocks().homeless.is_empty() {
                        self.fail_io(io, Status::NoSpace);
                    }
                    let flushes = &mut self.blocks().flushes;
                    let epoch = flushes.end_epoch();
                    flushes.waiting[0].1 = Stage::Programming(epoch);
                }
                Stage::Programming(epoch) => {
                    if blocks.flushes.first_epoch <= epoch {
                        return;
                    }
                    blocks.flushes.waiting.pop_front();
                    self.io_progress(now, io);
                }
            }
        }
    }

    /// Writes the changed pages of a cached map, as many as find room; what is not written is found again from the pages
    /// themselves, which name their owners.
    fn write_map(&mut self, now: Ps) {
        let mut map_ops = std::mem::take(&mut self.blocks().map_ops);
        while self.blocks().ftl.flush_map(&mut map_ops) {
            for op in map_ops.drain(..) {
                self.issue_map(now, op, Waiting::Nobody);
            }
        }
        map_ops.clear();
        self.blocks().map_ops = map_ops;
    }
}
