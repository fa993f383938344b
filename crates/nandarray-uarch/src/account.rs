//! Ticks by instruction: what each address of a program took, in the pipeline and frozen.
//!
//! Blocks that were executed whole are worked out from their summaries when they are requested; instructions timed one
//! by one are noted here. An instruction is charged from its issue to that of the next one: a hazard is charged to the
//! instruction whose result was awaited, a branch's cost to the branch. Functions and lines are not known here.

use std::collections::BTreeMap;

use crate::issue::BlockExit;

/// Executions and ticks of one instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstructionTicks {
    /// Times that it was executed.
    pub times: u64,
    /// Ticks of the pipeline.
    pub pipeline: u64,
    /// Ticks for which it froze the pipeline: caches, memory, scratchpad, streams.
    pub frozen: u64,
}

impl InstructionTicks {
    /// All ticks.
    pub fn total(&self) -> u64 {
        self.pipeline + self.frozen
    }

    /// Adds those of another core.
    pub fn add(&mut self, other: &Self) {
        self.times += other.times;
        self.pipeline += other.pipeline;
        self.frozen += other.frozen;
    }
}

/// Ticks by address.
pub type AddressTicks = BTreeMap<u64, InstructionTicks>;

/// Instructions that were not timed as parts of a whole block.
#[derive(Clone, Debug, Default)]
pub(crate) struct SingleAccount {
    settled: AddressTicks,
    /// The last ones, which a branch may change and a block left early takes back.
    last: Vec<(u64, u64)>,
}

impl SingleAccount {
    /// Ends the instructions noted last; those that come belong together.
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

    /// Notes the ticks of one instruction.
    pub(crate) fn note(&mut self, pc: u64, ticks: u64) {
        self.last.push((pc, ticks));
    }

    /// The branch that was noted last took this much more.
    pub(crate) fn taken(&mut self, more: u64) {
        if let Some((_, ticks)) = self.last.last_mut() {
            *ticks += more;
        }
    }

    /// Takes back the instructions noted last.
    pub(crate) fn take_back(&mut self) {
        self.last.clear();
    }

    /// The address of one of the instructions noted last.
    pub(crate) fn address(&self, index: usize) -> u64 {
        self.last.get(index).map_or(0, |(pc, _)| *pc)
    }

    /// Notes a stall at an address.
    pub(crate) fn freeze(&mut self, pc: u64, ticks: u64) {
        if ticks > 0 {
            self.settled.entry(pc).or_default().frozen += ticks;
        }
    }

    /// Adds the ticks of whole blocks that are dropped.
    pub(crate) fn settle(&mut self, blocks: &AddressTicks) {
        for (pc, ticks) in blocks {
            self.settled.entry(*pc).or_default().add(ticks);
        }
    }

    /// All so far.
    pub(crate) fn all(&self) -> AddressTicks {
        let mut whole = self.clone();
        whole.begin();
        whole.settled
    }
}

/// Ticks of each instruction of a block on one way out of it, given their issues.
pub(crate) fn split(issue_at: &[u32], exit: &BlockExit) -> Vec<u64> {
    let total = exit.ticks.total();
    let mut order: Vec<usize> = (0..issue_at.len()).collect();
    // A re-scheduled block issues its instructions in another order; a loop's rounds overlap, and cost less than one.
    order.sort_by_key(|&op| issue_at[op]);
    let mut ticks = vec![0; issue_at.len()];
    for (place, &op) in order.iter().enumerate() {
        let from = if place == 0 { 0 } else { u64::from(issue_at[op]).min(total) };
        let to = order.get(place + 1).map_or(total, |&next| u64::from(issue_at[next]).min(total));
        ticks[op] = to - from;
    }
    ticks
}
