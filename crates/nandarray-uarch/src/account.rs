//! Ticks by instruction: how long the instruction at each address of a program took, in the pipeline and while it was
//! frozen.
//!
//! The ticks of blocks that were executed whole are computed from the blocks' summaries when they are requested;
//! instructions that were timed one by one are recorded here. An instruction is charged from its issue to the issue of
//! the next one: a hazard is charged to the instruction whose result was awaited, and a branch's cost to the branch.
//! Functions and source lines are not known here.

use std::collections::BTreeMap;

use crate::issue::BlockExit;

/// Executions and ticks of the instruction at one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstructionTicks {
    /// Number of times that it was executed.
    pub times: u64,
    /// Ticks that it took in the pipeline.
    pub pipeline: u64,
    /// Ticks for which it froze (held up) the pipeline, by waiting for caches, memory, scratchpad or streams.
    pub frozen: u64,
}

impl InstructionTicks {
    /// Returns all ticks of the instruction.
    pub fn total(&self) -> u64 {
        self.pipeline + self.frozen
    }

    /// Adds the counts of another core, or of other executions.
    pub fn add(&mut self, other: &Self) {
        self.times += other.times;
        self.pipeline += other.pipeline;
        self.frozen += other.frozen;
    }
}

/// Executions and ticks by address of the instruction.
pub type AddressTicks = BTreeMap<u64, InstructionTicks>;

/// Executions and ticks of the instructions that were not timed as parts of a whole block.
#[derive(Clone, Debug, Default)]
pub(crate) struct SingleAccount {
    settled: AddressTicks,
    /// Addresses and ticks of the instructions recorded last, which a taken branch may change, and which are discarded
    /// if their block is left early.
    last: Vec<(u64, u64)>,
}

impl SingleAccount {
    /// Adds the instructions recorded last to the settled counts, and begins a new group of instructions.
    pub(crate) fn begin(&mut self) {
        let last = std::mem::take(&mut self.last);
        for &(pc, ticks) in &last {
            let entry = self.settled.entry(pc).or_default();
            entry.times += 1;
            entry.pipeline += ticks;
        }
        self.last = last;
        self.last.clear();
    }

    /// Records the ticks of one instruction.
    pub(crate) fn note(&mut self, pc: u64, ticks: u64) {
        self.last.push((pc, ticks));
    }

    /// Adds ticks to the branch that was recorded last, because it is taken.
    pub(crate) fn taken(&mut self, more: u64) {
        if let Some((_, ticks)) = self.last.last_mut() {
            *ticks += more;
        }
    }

    /// Discards the instructions recorded last, whose block was left early.
    pub(crate) fn take_back(&mut self) {
        self.last.clear();
    }

    /// Returns the address of one of the instructions recorded last, by its index; 0 if there is none.
    pub(crate) fn address(&self, index: usize) -> u64 {
        self.last.get(index).map_or(0, |(pc, _)| *pc)
    }

    /// Records that the instruction at an address froze the pipeline.
    pub(crate) fn freeze(&mut self, pc: u64, ticks: u64) {
        if ticks > 0 {
            self.settled.entry(pc).or_default().frozen += ticks;
        }
    }

    /// Adds the ticks of whole blocks that are about to be dropped.
    pub(crate) fn settle(&mut self, blocks: &AddressTicks) {
        for (pc, ticks) in blocks {
            self.settled.entry(*pc).or_default().add(ticks);
        }
    }

    /// Returns all counts so far.
    pub(crate) fn all(&self) -> AddressTicks {
        let mut whole = self.clone();
        whole.begin();
        whole.settled
    }
}

/// Divides the ticks of a block that was left by this exit among its instructions; `issue_at` is the tick at which each
/// instruction is issued. Returns the ticks of each instruction.
pub(crate) fn split(issue_at: &[u32], exit: &BlockExit) -> Vec<u64> {
    let total = exit.ticks.total();
    let mut order: Vec<usize> = (0..issue_at.len()).collect();
    // A re-scheduled block issues its instructions in another order. The iterations of a loop overlap, and one costs
    // fewer ticks than its schedule is long.
    order.sort_by_key(|&op| issue_at[op]);
    let mut ticks = vec![0; issue_at.len()];
    for (place, &op) in order.iter().enumerate() {
        let from = if place == 0 { 0 } else { u64::from(issue_at[op]).min(total) };
        let to = order.get(place + 1).map_or(total, |&next| u64::from(issue_at[next]).min(total));
        ticks[op] = to - from;
    }
    debug_assert_eq!(
        ticks.iter().sum::<u64>(),
        if issue_at.is_empty() { 0 } else { total },
        "every tick has an instruction"
    );
    ticks
}
