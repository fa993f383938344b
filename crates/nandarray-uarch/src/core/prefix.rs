//! Blocks that the hart left early, before a miss or a wait: their first instructions, timed once.
//!
//! A program that waits for a line at the same instruction again and again leaves the same block at the same place.
//! The instructions before that place are a block of their own here, with entries by pipeline state like any other, so
//! that leaving costs an addition. The instructions behind it are a block of the hart. This file knows no caches.

use nandarray_hart::BasicBlock;

use crate::account::SingleAccount;
use crate::blocks::{BlockTable, NO_CODE_LINE, NO_ENTRY};
use crate::issue::{BlockTimer, Breakdown};
use crate::unit::FunctionalUnit;

/// The first instructions of blocks that were left early.
#[derive(Debug, Default)]
pub(super) struct PrefixTable {
    table: BlockTable,
    /// By an instruction's index in the row of frozen ticks: number of the block that ends before it, or [`NO_ENTRY`].
    ending: Vec<u32>,
    /// Number of the entry that was executed last, if nothing was executed since; otherwise [`NO_ENTRY`].
    last: u32,
}

/// The timing of the instructions before the place where a block was left.
pub(super) struct PrefixExit {
    /// Ticks of the instructions.
    pub(super) ticks: u64,
    /// Number of the pipeline state behind them.
    pub(super) state: u32,
    /// Number of the entry of the hart's block that followed the last time, or [`NO_ENTRY`].
    pub(super) expected: u32,
}

impl PrefixTable {
    /// Counts an execution of the instructions before instruction `index` of `block`, which is at index `op` of the row
    /// of frozen ticks, from a pipeline state.
    pub(super) fn execute(
        &mut self,
        block: &BasicBlock,
        (index, op): (usize, u32),
        state: u32,
        timing: &mut BlockTimer,
    ) -> PrefixExit {
        let at = op as usize;
        if self.ending.len() <= at {
            self.ending.resize(at + 1, NO_ENTRY);
        }
        if self.ending[at] == NO_ENTRY {
            let number = u32::try_from(self.table.len()).expect("fewer blocks than numbers");
            let prefix = BasicBlock { pc: block.pc, ops: block.ops[..index].to_vec() };
            self.table.add(number, &prefix, [NO_CODE_LINE; 2]);
            self.ending[at] = number;
        }
        self.last = self.table.enter(self.ending[at], state, timing);
        let entry = self.table.entry(self.last).expect("an entry by its number");
        let (ticks, expected) = (u64::from(entry.through), entry.followed[0]);
        let state = self.table.state_behind(self.last, false).expect("an entry by its number");
        PrefixExit { ticks, state, expected }
    }

    /// Notes which entry of the hart's blocks followed the instructions executed last, if nothing came between.
    pub(super) fn follow(&mut self, next: u32) {
        self.table.follow(std::mem::replace(&mut self.last, NO_ENTRY), false, next);
    }

    /// Forgets which instructions were executed last: something else was.
    pub(super) fn forget_last(&mut self) {
        self.last = NO_ENTRY;
    }

    /// Adds the ticks of all executions to `ticks`, and their instructions to `units`.
    pub(super) fn settle(&self, ticks: &mut Breakdown, units: &mut [u64; FunctionalUnit::COUNT]) {
        self.table.settle(ticks, units);
    }

    /// Adds executions and ticks by address to an account.
    pub(super) fn account(&self, to: &mut SingleAccount) {
        self.table.addresses().for_each(|block| to.settle(&block));
    }
}
