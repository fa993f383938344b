//! The cache of decoded blocks, by address, with the links between them.

use std::collections::{HashMap, HashSet};

use crate::block::BasicBlock;
use crate::exec::{Steps, UnitsOff, steps};
use crate::meter::Meter;
use crate::xlen::Xlen;

/// Most blocks that a cache holds. A cache with this number is emptied before the next block, so that a program that
/// generates code cannot fill the host's memory.
const BLOCKS_MAX: usize = 1 << 18;

/// The decoded blocks of a hart.
#[derive(Debug)]
pub(crate) struct Cache<X: Xlen> {
    /// The executable steps of each block.
    pub(crate) steps: Vec<Steps<X>>,
    pub(crate) blocks: Vec<BasicBlock>,
    by_pc: HashMap<u64, u32>,
    /// Addresses of marked blocks, decoded or not: execution stops before their first instruction.
    marks: HashSet<u64>,
}

impl<X: Xlen> Cache<X> {
    pub(crate) fn new() -> Self {
        Self { steps: Vec::new(), blocks: Vec::new(), by_pc: HashMap::new(), marks: HashSet::new() }
    }

    /// Drops all blocks. No pointer to their steps may be used afterwards.
    pub(crate) fn clear(&mut self) {
        self.steps.clear();
        self.blocks.clear();
        self.by_pc.clear();
    }

    /// Whether no further block can be added.
    pub(crate) fn full(&self) -> bool {
        self.blocks.len() >= BLOCKS_MAX
    }

    /// Returns the index of the block at `pc`; `None` if it was not decoded.
    pub(crate) fn find(&self, pc: u64) -> Option<usize> {
        self.by_pc.get(&pc).map(|unit| *unit as usize)
    }

    /// Adds a block, with steps for a hart with meter `M`; returns its index. `accesses`: whether the meter observes
    /// accesses to memory at present.
    pub(crate) fn insert<M: Meter>(&mut self, block: BasicBlock, off: UnitsOff, accesses: bool) -> usize {
        let unit = self.blocks.len();
        debug_assert!(unit < BLOCKS_MAX && unit == self.steps.len(), "block {unit}, {} have steps", self.steps.len());
        debug_assert!(!self.by_pc.contains_key(&block.pc), "two blocks at {:#x}", block.pc);
        self.by_pc.insert(block.pc, unit as u32);
        self.steps.push(steps::<X, M>(&block, unit as u32, off, accesses));
        if self.is_marked(block.pc) {
            self.steps[unit].mark(true);
        }
        self.blocks.push(block);
        unit
    }

    /// Marks the block at `pc`, now and when it is decoded again: execution stops before its first instruction.
    pub(crate) fn mark(&mut self, pc: u64) {
        self.marks.insert(pc);
        if let Some(unit) = self.find(pc) {
            self.steps[unit].mark(true);
        }
    }

    /// Whether the block at `pc` is marked: execution stops before its first instruction.
    pub(crate) fn is_marked(&self, pc: u64) -> bool {
        !self.marks.is_empty() && self.marks.contains(&pc)
    }

    /// Removes the marks of all blocks, so that execution no longer stops before any.
    pub(crate) fn unmark(&mut self) {
        for pc in std::mem::take(&mut self.marks) {
            if let Some(unit) = self.find(pc) {
                self.steps[unit].mark(false);
            }
        }
    }
}
