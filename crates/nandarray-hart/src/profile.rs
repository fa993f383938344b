//! Profiles: how often each instruction was executed, and each block entered.
//!
//! [`Counter`] is a meter that observes only blocks: a step at the head of each block adds one, and the rest of the
//! hart is as fast as without a meter. Counts are kept by address; if code was overwritten, the latest instruction is
//! reported. The functions and source lines at an address are not known here.

use std::collections::BTreeMap;

use crate::block::BasicBlock;
use crate::isa::Instruction;
use crate::meter::Meter;

/// Counts of executed instructions and entered blocks, by address.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    ops: BTreeMap<u64, (Instruction, u64)>,
    blocks: BTreeMap<u64, (u32, u64)>,
}

impl Profile {
    /// Address, instruction and number of executions of each executed instruction, in order of addresses.
    pub fn instructions(&self) -> impl Iterator<Item = (u64, Instruction, u64)> {
        self.ops.iter().filter(|(_, (_, times))| *times > 0).map(|(pc, (op, times))| (*pc, *op, *times))
    }

    /// Address, number of instructions and number of entries of each block, in order of addresses.
    ///
    /// Entries of blocks that were left before their end count; parts of blocks that a limit cut short do not.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, u32, u64)> {
        self.blocks.iter().filter(|(_, (_, times))| *times > 0).map(|(pc, (ops, times))| (*pc, *ops, *times))
    }

    /// Returns the total number of executed instructions.
    pub fn total(&self) -> u64 {
        self.ops.values().fold(0, |all, (_, times)| all.wrapping_add(*times))
    }

    /// Adds the counts of another hart that executed the same program.
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

    /// Adds `times` entries of a block that is executed to its end; `left` subtracts the rest if it is not.
    fn entered(&mut self, block: &BasicBlock, times: u64) {
        if times > 0 {
            self.first(block, block.ops.len(), times);
            let entry = self.blocks.entry(block.pc).or_insert((0, 0));
            *entry = (block.ops.len() as u32, entry.1.wrapping_add(times));
        }
    }

    /// Adds `times` executions of the first `ops` instructions of a block.
    fn first(&mut self, block: &BasicBlock, ops: usize, times: u64) {
        debug_assert!(ops <= block.ops.len(), "{ops} instructions of {}", block.ops.len());
        let mut at = block.pc;
        for op in &block.ops[..ops] {
            self.op(at, op, times);
            at = at.wrapping_add(u64::from(op.len));
        }
    }

    /// Subtracts one execution of each instruction from `index` on, since the entered block was left there. The block's
    /// own count may be added later, so counts wrap meanwhile.
    fn left(&mut self, block: &BasicBlock, index: usize) {
        let mut at = block.address(index);
        for op in &block.ops[index..] {
            self.op(at, op, 1u64.wrapping_neg());
            at = at.wrapping_add(u64::from(op.len));
        }
    }
}

/// A meter that counts how often each instruction is executed.
#[derive(Debug, Default)]
pub struct Counter {
    /// Each block, by its number, with the number of times that it was entered since it got this number.
    units: Vec<(BasicBlock, u64)>,
    /// Counts other than entries of numbered blocks.
    profile: Profile,
}

impl Counter {
    /// Takes the counts since the last call, or since the beginning.
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
