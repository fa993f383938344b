//! Profiles: counts of the executions of each instruction, and of the entries of each block.
//!
//! [`Counter`] is a meter that observes blocks alone: a step at the head of each block adds one, and the rest of the
//! hart is as fast as without it. Counts are kept by address: where code was rewritten, the last instruction is named.
//! Functions and lines behind an address are not known here.

use std::collections::BTreeMap;

use crate::block::BasicBlock;
use crate::isa::Instruction;
use crate::meter::Meter;

/// Counts of executed instructions.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    ops: BTreeMap<u64, (Instruction, u64)>,
    blocks: BTreeMap<u64, (u32, u64)>,
}

impl Profile {
    /// Address, instruction, and how often it was executed; by address.
    pub fn instructions(&self) -> impl Iterator<Item = (u64, Instruction, u64)> {
        self.ops.iter().filter(|(_, (_, times))| *times > 0).map(|(pc, (op, times))| (*pc, *op, *times))
    }

    /// Address of a block, instructions in it, and how often it was entered; by address.
    ///
    /// Entries of blocks, also of those left before their end; parts of blocks that a limit cut short are not counted.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u32, u64)> {
        self.blocks.iter().filter(|(_, (_, times))| *times > 0).map(|(pc, (ops, times))| (*pc, *ops, *times))
    }

    /// Instructions executed altogether.
    pub fn total(&self) -> u64 {
        self.ops.values().fold(0, |all, (_, times)| all.wrapping_add(*times))
    }

    /// Add what another hart of the same program counted.
    pub fn add(&mut self, other: &Self) {
        for (pc, (op, times)) in &other.ops {
            self.op(*pc, op, *times);
        }
        for (pc, (ops, times)) in &other.blocks {
            let entry = self.blocks.entry(*pc).or_insert((*ops, 0));
            *entry = (*ops, entry.1.wrapping_add(*times));
        }
    }

    /// Adds `times` executions of an instruction.
    fn op(&mut self, pc: u64, op: &Instruction, times: u64) {
        let entry = self.ops.entry(pc).or_insert((*op, 0));
        *entry = (*op, entry.1.wrapping_add(times));
    }

    /// Adds `times` entries of a block, executed to its end; `left` takes back the rest if it was left before.
    fn entered(&mut self, block: &BasicBlock, times: u64) {
        if times > 0 {
            self.first(block, block.ops.len(), times);
            let entry = self.blocks.entry(block.pc).or_insert((0, 0));
            *entry = (block.ops.len() as u32, entry.1.wrapping_add(times));
        }
    }

    /// Adds `times` executions of the first `ops` instructions of a block.
    fn first(&mut self, block: &BasicBlock, ops: usize, times: u64) {
        let mut at = block.pc;
        for op in &block.ops[..ops] {
            self.op(at, op, times);
            at = at.wrapping_add(u64::from(op.len));
        }
    }

    /// A block that was entered was left before this instruction: take back the rest, which may be counted later only.
    fn left(&mut self, block: &BasicBlock, index: usize) {
        let mut at = block.address(index);
        for op in &block.ops[index..] {
            self.op(at, op, 1u64.wrapping_neg());
            at = at.wrapping_add(u64::from(op.len));
        }
    }
}

/// Counts how often each instruction is executed.
#[derive(Debug, Default)]
pub struct Counter {
    /// Blocks by number, and how often each was entered since it has it.
    units: Vec<(BasicBlock, u64)>,
    /// Counts that are not of whole blocks.
    profile: Profile,
}

impl Counter {
    /// Takes the counts since the last call.
    pub fn take(&mut self) -> Profile {
        for (block, times) in &mut self.units {
            self.profile.entered(block, std::mem::take(times));
        }
        std::mem::take(&mut self.profile)
    }
}

impl Meter for Counter {
    const BLOCKS: bool = true;

    fn decoded(&mut self, unit: u32, block: &BasicBlock) {
        match self.units.get_mut(unit as usize) {
            Some((old, times)) => {
                self.profile.entered(old, std::mem::take(times));
                old.clone_from(block);
            }
            None => self.units.push((block.clone(), 0)),
        }
    }

    fn enter(&mut self, unit: u32) {
        self.units[unit as usize].1 += 1;
    }

    fn part(&mut self, block: &BasicBlock) {
        self.profile.first(block, block.ops.len(), 1);
    }

    fn left(&mut self, block: &BasicBlock, index: usize) {
        self.profile.left(block, index);
    }

    fn single(&mut self, pc: u64, op: &Instruction) {
        self.profile.op(pc, op, 1);
    }
}
