//! Observations of instructions: regions of memory that loads and stores reached, and targets of indirect jumps.
//!
//! Code for a load or a store compares the address with the regions that were observed; without observations that is
//! the program's own memory.

use std::collections::HashMap;

/// The program's own memory.
pub(crate) const MAIN: u8 = u8::MAX;
/// Regions that code for one instruction compares with, and targets of one jump.
const SEEN_MAX: usize = 3;

/// Observations by the instruction's address.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    reached: HashMap<u64, Vec<u8>>,
    pub(crate) targets: HashMap<u64, Vec<u64>>,
}

impl Sites {
    /// Notes that the instruction at `pc` reached a region. Returns whether it did so for the first time.
    pub(crate) fn reached(&mut self, pc: u64, slot: u8) -> bool {
        let seen = self.reached.entry(pc).or_default();
        let new = !seen.contains(&slot) && seen.len() < SEEN_MAX;
        if new {
            seen.push(slot);
        }
        new
    }

    /// The regions to compare with.
    pub(crate) fn expected(&self, pc: u64) -> &[u8] {
        self.reached.get(&pc).map_or(&[MAIN], Vec::as_slice)
    }

    /// Notes that the indirect jump at `pc` went to `target`.
    pub(crate) fn jumped(&mut self, pc: u64, target: u64) {
        let seen = self.targets.entry(pc).or_default();
        if !seen.contains(&target) && seen.len() < SEEN_MAX {
            seen.push(target);
        }
    }
}
