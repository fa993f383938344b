//! Basic blocks of a program with the summaries of their timing, laid out so that entering a block is fast.
//!
//! A block has an entry for each state of the pipeline in which it was entered: the ticks and the next state from
//! there. The parts of an entry that each execution needs are stored apart from the rest, and the entry used last is
//! found without a search. Ticks for which instructions froze the pipeline are stored in one vector for all blocks, one
//! element for each instruction: the row of frozen ticks. Sums are computed when they are requested. This file knows
//! nothing of caches.

use nandarray_hart::BasicBlock;

use crate::account::{AddressTicks, InstructionTicks, split};
use crate::issue::{BlockSummary, BlockTimer, Breakdown, TimedOp};
use crate::unit::FunctionalUnit;

/// Stands in place of a line's address for a block whose code lies in several cache lines; equal to no address.
pub(crate) const SEVERAL_LINES: u64 = u64::MAX - 1;
/// Stands for a missing entry, in place of an entry's number.
const NO_ENTRY: u32 = u32::MAX;

/// The part of a block that is read whenever the block is entered.
#[derive(Clone, Copy, Debug)]
struct BlockHead {
    /// Number of the pipeline state that the entry used last belongs to.
    state: u32,
    /// Number of the entry used last, or [`NO_ENTRY`].
    entry: u32,
    /// Address of the cache line that holds all of the block's code, or [`SEVERAL_LINES`].
    line: u64,
}

/// The timing of a block from one pipeline state, as far as entering and leaving the block need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockEntry {
    /// Ticks of the block if no branch at its end is taken.
    pub(crate) through: u64,
    /// Ticks that a taken branch adds, modulo 2^64, since a taken branch may take fewer ticks.
    pub(crate) more: u64,
    /// Number of the pipeline state after the block, if no branch is taken.
    pub(crate) through_state: u32,
    /// Number of the pipeline state after a taken branch.
    pub(crate) taken_state: u32,
    entered: u64,
    taken: u64,
    /// Index of the block's first instruction in the row of frozen ticks.
    pub(crate) first_op: u32,
    /// Number of the block's next entry, or [`NO_ENTRY`]: the entries of a block form a list.
    next: u32,
}

/// A basic block as it was decoded, with the instructions in the form that timing needs.
#[derive(Debug)]
struct TimedBlock {
    block: BasicBlock,
    ops: Vec<TimedOp>,
    first_op: u32,
    /// Number of the first of the block's entries, or [`NO_ENTRY`].
    entry: u32,
}

/// The blocks of a program, by number, with their entries.
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    heads: Vec<BlockHead>,
    entries: Vec<BlockEntry>,
    summaries: Vec<BlockSummary>,
    blocks: Vec<TimedBlock>,
    frozen: Vec<u64>,
}

impl BlockTable {
    /// Adds a block. `line` is the address of the cache line that holds its code, or [`SEVERAL_LINES`].
    ///
    /// # Panics
    /// If `unit`, the block's number, is not the next one.
    pub(crate) fn add(&mut self, unit: u32, block: &BasicBlock, line: u64) {
        assert_eq!(self.blocks.len(), unit as usize, "blocks are numbered one after the other");
        let ops = block.ops.iter().map(TimedOp::from).collect();
        let first_op = u32::try_from(self.frozen.len()).expect("fewer instructions than numbers");
        self.frozen.resize(self.frozen.len() + block.ops.len(), 0);
        self.heads.push(BlockHead { state: NO_ENTRY, entry: NO_ENTRY, line });
        self.blocks.push(TimedBlock { block: block.clone(), ops, first_op, entry: NO_ENTRY });
    }

    /// Number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the address of the cache line that holds a block's code, or [`SEVERAL_LINES`].
    #[inline]
    pub(crate) fn line(&self, unit: u32) -> u64 {
        self.heads[unit as usize].line
    }

    /// Returns the addresses of a block's code.
    pub(crate) fn code(&self, unit: u32) -> std::ops::Range<u64> {
        let block = &self.blocks[unit as usize].block;
        block.pc..block.pc + block.bytes()
    }

    /// Counts an execution of a block from a pipeline state, and returns the number of the entry.
    #[inline]
    pub(crate) fn enter(&mut self, unit: u32, state: u32, timing: &mut BlockTimer) -> u32 {
        let head = &self.heads[unit as usize];
        let number = if head.state == state { head.entry } else { self.find(unit, state, timing) };
        self.entries[number as usize].entered += 1;
        number
    }

    /// Finds a block's entry for another state than last time, or computes it if the block was never entered in this
    /// state.
    fn find(&mut self, unit: u32, state: u32, timing: &mut BlockTimer) -> u32 {
        let timed = &mut self.blocks[unit as usize];
        let mut number = timed.entry;
        while number != NO_ENTRY && self.summaries[number as usize].state != state {
            number = self.entries[number as usize].next;
        }
        if number == NO_ENTRY {
            let summary = timing.summary(&timed.block, &timed.ops, state);
            number = u32::try_from(self.entries.len()).expect("fewer entries than numbers");
            let (through, taken) = (summary.through, summary.taken);
            self.entries.push(BlockEntry {
                through: through.ticks.total(),
                more: taken.ticks.total().wrapping_sub(through.ticks.total()),
                through_state: through.state,
                taken_state: taken.state,
                entered: 0,
                taken: 0,
                first_op: timed.first_op,
                next: timed.entry,
            });
            timed.entry = number;
            self.summaries.push(summary);
        }
        let head = &mut self.heads[unit as usize];
        (head.state, head.entry) = (state, number);
        number
    }

    /// Returns an entry by its number; `None` if there is no such entry.
    #[inline]
    pub(crate) fn entry(&self, number: u32) -> Option<&BlockEntry> {
        self.entries.get(number as usize)
    }

    /// Counts a taken branch at the end of an entry's block, and returns the entry; `None` if there is no such entry.
    #[inline]
    pub(crate) fn take(&mut self, number: u32) -> Option<&BlockEntry> {
        let entry = self.entries.get_mut(number as usize)?;
        entry.taken += 1;
        Some(entry)
    }

    /// Undoes the last execution counted for an entry, because the hart left the block early. Returns the number of the
    /// pipeline state in which the block was entered.
    pub(crate) fn leave(&mut self, number: u32) -> u32 {
        self.entries[number as usize].entered -= 1;
        self.summaries[number as usize].state
    }

    /// Returns the ticks from the beginning of an entry's block to the issue of an instruction; `None` if there is no
    /// such entry.
    #[inline]
    pub(crate) fn issue_at(&self, number: u32, index: u32) -> Option<u32> {
        self.summaries.get(number as usize).map(|summary| summary.issue_at[index as usize])
    }

    /// Adds ticks for which the instruction at index `op` of the row froze the pipeline; returns false if there is no
    /// such instruction.
    #[inline]
    pub(crate) fn freeze(&mut self, op: u32, ticks: u64) -> bool {
        let Some(frozen) = self.frozen.get_mut(op as usize) else { return false };
        *frozen += ticks;
        true
    }

    /// Adds ticks for which fetching a block's code froze the pipeline, to the block's first instruction.
    pub(crate) fn freeze_first(&mut self, unit: u32, ticks: u64) {
        self.frozen[self.blocks[unit as usize].first_op as usize] += ticks;
    }

    /// Returns the address of the instruction at index `op` of the row; `None` if there is no such instruction.
    pub(crate) fn address(&self, op: u32) -> Option<u64> {
        if op as usize >= self.frozen.len() {
            return None;
        }
        let at = self.blocks.partition_point(|timed| timed.first_op <= op).checked_sub(1)?;
        let timed = &self.blocks[at];
        Some(timed.block.address((op - timed.first_op) as usize))
    }

    /// Adds the ticks of all executions of all blocks to `ticks`, and their instructions to `units`.
    pub(crate) fn settle(&self, ticks: &mut Breakdown, units: &mut [u64; FunctionalUnit::COUNT]) {
        for timed in &self.blocks {
            for (entry, summary) in self.entries_of(timed) {
                ticks.add(&summary.through.ticks, entry.entered - entry.taken);
                ticks.add(&summary.taken.ticks, entry.taken);
                for op in &timed.ops {
                    units[op.unit as usize] += entry.entered;
                }
            }
        }
    }

    /// Returns executions and ticks by address, one map for each block.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = AddressTicks> + '_ {
        self.blocks.iter().map(|timed| {
            let mut ticks = vec![0; timed.ops.len()];
            let mut times = 0;
            for (entry, summary) in self.entries_of(timed) {
                times += entry.entered;
                for (exit, times) in [(&summary.through, entry.entered - entry.taken), (&summary.taken, entry.taken)] {
                    for (op, each) in split(&summary.issue_at, exit).into_iter().enumerate() {
                        ticks[op] += each * times;
                    }
                }
            }
            let found = |op: usize| {
                let frozen = self.frozen[timed.first_op as usize + op];
                (timed.block.address(op), InstructionTicks { times, pipeline: ticks[op], frozen })
            };
            (0..timed.ops.len()).map(found).filter(|(_, found)| found.times > 0 || found.total() > 0).collect()
        })
    }

    fn entries_of<'t>(&'t self, timed: &TimedBlock) -> impl Iterator<Item = (&'t BlockEntry, &'t BlockSummary)> {
        let follows = |&number: &u32| Some(self.entries[number as usize].next).filter(|&next| next != NO_ENTRY);
        let first = Some(timed.entry).filter(|&number| number != NO_ENTRY);
        let numbers = std::iter::successors(first, follows);
        numbers.map(|number| (&self.entries[number as usize], &self.summaries[number as usize]))
    }
}
