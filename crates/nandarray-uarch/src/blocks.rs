//! Blocks of a program with their summaries, laid out for the way that is taken for every block: entering one.
//!
//! A block has an entry for each state of the pipeline that it was entered from. An entry's part that is needed each
//! time is apart from the rest, and the entry used last is found without a search. Ticks for which instructions froze
//! the pipeline lie in one row for all blocks. Figures are added up when they are requested. Caches are not known here.

use nandarray_hart::BasicBlock;

use crate::account::{AddressTicks, InstructionTicks, split};
use crate::issue::{BlockSummary, BlockTimer, Breakdown, TimedOp};
use crate::unit::FunctionalUnit;

/// Line of a block that has several: equal to no line.
pub(crate) const SEVERAL_LINES: u64 = u64::MAX - 1;
/// Number of no entry.
const NO_ENTRY: u32 = u32::MAX;

/// The part of a block that is looked at whenever it is entered.
#[derive(Clone, Copy, Debug)]
struct BlockHead {
    /// State of the entry used last.
    state: u32,
    /// The entry used last, or the number of none.
    entry: u32,
    /// The line of its code, if it has one alone.
    line: u64,
}

/// A block from one state, as far as it is needed to enter and leave it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockEntry {
    /// Ticks if no branch is taken.
    pub(crate) through: u64,
    /// Ticks that a taken branch adds; they may be fewer.
    pub(crate) more: u64,
    /// State behind it.
    pub(crate) through_state: u32,
    /// State behind a taken branch.
    pub(crate) taken_state: u32,
    entered: u64,
    taken: u64,
    /// Place of the block's first instruction in the row of frozen ticks.
    pub(crate) first_op: u32,
    /// Another entry of the block, or the number of none.
    next: u32,
}

/// A block as it was decoded.
#[derive(Debug)]
struct TimedBlock {
    block: BasicBlock,
    ops: Vec<TimedOp>,
    first_op: u32,
    /// One of its entries, or the number of none; the others follow.
    entry: u32,
}

/// The blocks of a program.
#[derive(Debug, Default)]
pub(crate) struct BlockTable {
    heads: Vec<BlockHead>,
    entries: Vec<BlockEntry>,
    summaries: Vec<BlockSummary>,
    blocks: Vec<TimedBlock>,
    frozen: Vec<u64>,
}

impl BlockTable {
    /// Adds a block, whose code lies in this line, or in several.
    ///
    /// # Panics
    /// If it is not the next number.
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

    /// The line of a block's code, or [`SEVERAL_LINES`].
    #[inline]
    pub(crate) fn line(&self, unit: u32) -> u64 {
        self.heads[unit as usize].line
    }

    /// First byte of a block's code, and the one behind the last.
    pub(crate) fn code(&self, unit: u32) -> std::ops::Range<u64> {
        let block = &self.blocks[unit as usize].block;
        block.pc..block.pc + block.bytes()
    }

    /// Enters a block from a state: the number of its entry.
    #[inline]
    pub(crate) fn enter(&mut self, unit: u32, state: u32, timing: &mut BlockTimer) -> u32 {
        let head = &self.heads[unit as usize];
        let number = if head.state == state { head.entry } else { self.find(unit, state, timing) };
        self.entries[number as usize].entered += 1;
        number
    }

    /// The entry of a block from another state than last time.
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

    /// An entry by its number.
    #[inline]
    pub(crate) fn entry(&self, number: u32) -> Option<&BlockEntry> {
        self.entries.get(number as usize)
    }

    /// The branch at the end of an entry is taken.
    #[inline]
    pub(crate) fn take(&mut self, number: u32) -> Option<&BlockEntry> {
        let entry = self.entries.get_mut(number as usize)?;
        entry.taken += 1;
        Some(entry)
    }

    /// Takes an entering back: the block was left. The state from which it was entered.
    pub(crate) fn leave(&mut self, number: u32) -> u32 {
        self.entries[number as usize].entered -= 1;
        self.summaries[number as usize].state
    }

    /// Ticks from the beginning of an entry to the issue of an instruction.
    #[inline]
    pub(crate) fn issue_at(&self, number: u32, index: u32) -> Option<u32> {
        self.summaries.get(number as usize).map(|summary| summary.issue_at[index as usize])
    }

    /// The instruction at this place of the row froze the pipeline; returns whether there is one.
    #[inline]
    pub(crate) fn freeze(&mut self, op: u32, ticks: u64) -> bool {
        let Some(frozen) = self.frozen.get_mut(op as usize) else { return false };
        *frozen += ticks;
        true
    }

    /// Fetching a block's code froze the pipeline.
    pub(crate) fn freeze_first(&mut self, unit: u32, ticks: u64) {
        self.frozen[self.blocks[unit as usize].first_op as usize] += ticks;
    }

    /// The address of the instruction at a place of the row.
    pub(crate) fn address(&self, op: u32) -> Option<u64> {
        if op as usize >= self.frozen.len() {
            return None;
        }
        let at = self.blocks.partition_point(|timed| timed.first_op <= op).checked_sub(1)?;
        let timed = &self.blocks[at];
        Some(timed.block.address((op - timed.first_op) as usize))
    }

    /// Adds the ticks and instructions of all entries.
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

    /// Executions and ticks by address, block by block.
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
