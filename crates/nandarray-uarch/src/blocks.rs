//! Basic blocks of a program with the summaries of their timing, laid out so that entering a block is fast.
//!
//! A block has an entry for each state of the pipeline in which it was entered: the ticks and the next state from
//! there. The parts of an entry that each execution needs are stored apart from the rest, and the entry used last is
//! found without a search. Ticks for which instructions froze the pipeline are stored in one vector for all blocks, one
//! element for each instruction: the row of frozen ticks. Sums are computed when they are requested. This file knows
//! nothing of caches.

use nandarray_hart::BasicBlock;

use crate::account::{AddressTicks, InstructionTicks, split};
use crate::describe::Issue;
use crate::issue::{BlockSummary, BlockTimer, Breakdown, StraightLoop, TimedOp};
use crate::unit::FunctionalUnit;

/// Value of [`BlockEntry::lines`] for a block whose code lies in more than two cache lines; no line has this address.
pub(crate) const SEVERAL_LINES: u64 = u64::MAX - 1;
/// Value of [`BlockEntry::lines`] without an instruction cache; no line has this address.
pub(crate) const NO_CODE_LINE: u64 = u64::MAX;
/// Stands in place of the number of a [`BlockEntry`] where there is none.
pub(crate) const NO_ENTRY: u32 = u32::MAX;

/// The part of a block that is read whenever the block is entered.
#[derive(Clone, Copy, Debug)]
struct BlockHead {
    /// Number of the pipeline state of the [`BlockEntry`] that was used last.
    state: u32,
    /// Number of that [`BlockEntry`], or [`NO_ENTRY`].
    entry: u32,
    /// Addresses of cache lines of the block's code, as [`BlockEntry::lines`].
    lines: [u64; 2],
}

/// The timing of a block from one pipeline state, with what entering and leaving the block needs: one line of the
/// host's cache.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct BlockEntry {
    /// Number of the block.
    pub(crate) unit: u32,
    /// Index of the block's first instruction in [`BlockTable::frozen`], which has an element for each instruction.
    pub(crate) first_op: u32,
    /// Ticks of the block if no branch at its end is taken.
    pub(crate) through: u32,
    /// Ticks that a taken branch adds, which may be negative.
    pub(crate) more: i32,
    /// Addresses of the cache lines of the block's first and last byte; [`NO_CODE_LINE`] without an instruction cache,
    /// and [`SEVERAL_LINES`] for both if another line lies between them.
    pub(crate) lines: [u64; 2],
    pub(crate) entered: u64,
    pub(crate) taken: u64,
    /// Numbers of the entries that were used next, the last time without and the last time with a taken branch; or
    /// [`NO_ENTRY`].
    pub(crate) followed: [u32; 2],
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
    /// Adds a block. `lines`: as [`BlockEntry::lines`].
    ///
    /// # Panics
    /// If `unit`, the block's number, is not the next one.
    pub(crate) fn add(&mut self, unit: u32, block: &BasicBlock, lines: [u64; 2]) {
        assert_eq!(self.blocks.len(), unit as usize, "blocks are numbered one after the other");
        let ops = block.ops.iter().map(TimedOp::from).collect();
        let first_op = u32::try_from(self.frozen.len()).expect("fewer instructions than numbers");
        self.frozen.resize(self.frozen.len() + block.ops.len(), 0);
        self.heads.push(BlockHead { state: NO_ENTRY, entry: NO_ENTRY, lines });
        self.blocks.push(TimedBlock { block: block.clone(), ops, first_op, entry: NO_ENTRY });
    }

    /// Returns the number of blocks.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the cache lines of a block's code, as [`BlockEntry::lines`].
    #[inline]
    pub(crate) fn lines(&self, unit: u32) -> [u64; 2] {
        self.heads[unit as usize].lines
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
        let timed = &self.blocks[unit as usize];
        let mut number = timed.entry;
        while number != NO_ENTRY && self.summaries[number as usize].state != state {
            number = self.entries[number as usize].next;
        }
        if number == NO_ENTRY {
            let ends = if timing.description().issue == Issue::Vliw { self.loop_ended_by(timed) } else { None };
            let summary = timing.summary(&timed.block, &timed.ops, state, ends.as_ref());
            number = u32::try_from(self.entries.len()).expect("fewer entries than numbers");
            let (through, taken) = (summary.through, summary.taken);
            let ticks = |ticks: u64| u32::try_from(ticks).expect("a block takes few ticks");
            self.entries.push(BlockEntry {
                through: ticks(through.ticks.total()),
                more: i32::try_from(taken.ticks.total() as i64 - through.ticks.total() as i64).expect("few ticks"),
                unit,
                first_op: timed.first_op,
                lines: self.heads[unit as usize].lines,
                entered: 0,
                taken: 0,
                followed: [NO_ENTRY; 2],
                next: timed.entry,
            });
            self.blocks[unit as usize].entry = number;
            self.summaries.push(summary);
        }
        let head = &mut self.heads[unit as usize];
        (head.state, head.entry) = (state, number);
        number
    }

    /// Returns the loop of several blocks that a block ends: blocks from the target of its branch on, each of which
    /// ends without a jump where the next one begins. `None` if the block ends no such loop.
    fn loop_ended_by(&self, last: &TimedBlock) -> Option<StraightLoop> {
        let branch = last.ops.len() - 1;
        if !last.ops[branch].conditional {
            return None;
        }
        let begin = last.block.address(branch).wrapping_add(last.block.ops[branch].imm as u64);
        let mut ops = Vec::new();
        let mut pc = begin;
        while pc < last.block.pc {
            let timed = self.blocks.iter().find(|timed| timed.block.pc == pc)?;
            if timed.block.ops.last()?.ends_block() {
                return None;
            }
            ops.extend_from_slice(&timed.ops);
            pc += timed.block.bytes();
        }
        if pc != last.block.pc || ops.is_empty() {
            return None;
        }
        debug_assert!(begin < last.block.pc, "a loop of one block needs no other");
        ops.extend_from_slice(&last.ops);
        Some(StraightLoop { pc: begin, ops })
    }

    /// Returns an entry by its number; `None` if there is no such entry.
    #[inline]
    pub(crate) fn entry(&self, number: u32) -> Option<&BlockEntry> {
        self.entries.get(number as usize)
    }

    /// Returns an entry by its number, for counting; `None` if there is no such entry.
    #[inline(always)]
    pub(crate) fn entry_mut(&mut self, number: u32) -> Option<&mut BlockEntry> {
        self.entries.get_mut(number as usize)
    }

    /// Notes which entry was used after another, with or without a taken branch. The pipeline's state after an entry
    /// depends on nothing else, so if the same block follows again, it uses the same entry.
    pub(crate) fn follow(&mut self, number: u32, taken: bool, next: u32) {
        if let Some(entry) = self.entries.get_mut(number as usize) {
            entry.followed[usize::from(taken)] = next;
        }
    }

    /// Returns the number of the pipeline state after an entry's block, whose branch at the end is taken or not; `None`
    /// if there is no such entry.
    pub(crate) fn state_behind(&self, number: u32, taken: bool) -> Option<u32> {
        let summary = self.summaries.get(number as usize)?;
        Some(if taken { summary.taken.state } else { summary.through.state })
    }

    /// Undoes the last execution counted for an entry, because the hart left the block early. Returns the number of the
    /// pipeline state in which the block was entered.
    pub(crate) fn leave(&mut self, number: u32) -> u32 {
        debug_assert!(
            self.entries[number as usize].taken < self.entries[number as usize].entered,
            "a branch was taken"
        );
        self.entries[number as usize].entered -= 1;
        self.summaries[number as usize].state
    }

    /// Returns the ticks from the beginning of an entry's block to the issue of an instruction; `None` if there is no
    /// such entry.
    #[inline]
    pub(crate) fn issue_at(&self, number: u32, index: u32) -> Option<u32> {
        self.summaries.get(number as usize).map(|summary| summary.issue_at[index as usize])
    }

    /// Adds ticks for which the instruction at index `op` of [`BlockTable::frozen`] held up the pipeline; returns false
    /// if there is no such instruction.
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

    /// Returns the address of the instruction at index `op` of [`BlockTable::frozen`]; `None` if there is no such
    /// instruction.
    pub(crate) fn address(&self, op: u32) -> Option<u64> {
        if op as usize >= self.frozen.len() {
            return None;
        }
        let at = self.blocks.partition_point(|timed| timed.first_op <= op).checked_sub(1)?;
        let timed = &self.blocks[at];
        Some(timed.block.address((op - timed.first_op) as usize))
    }

    /// Adds the ticks of all executions of all blocks to `ticks`, and counts their instructions by unit in `units`.
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
