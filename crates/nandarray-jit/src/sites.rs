//! What was seen of instructions: which regions of memory loads and stores reached, and where indirect jumps went.
//!
//! Code for a load or a store compares the address with the regions that it was seen to reach. Before anything was seen
//! that is the program's own memory.

use std::collections::HashMap;

/// The program's own memory.
pub(crate) const MAIN: u8 = u8::MAX;
/// Regions that code for one instruction compares with, and targets of one jump.
const SEEN_MAX: usize = 3;

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    reached: HashMap<u64, Vec<u8>>,
    pub(crate) targets: HashMap<u64, Vec<u64>>,
}

impl Sites {
    /// The instruction at `pc` reached a region. Whether that is news.
    pub(crate) fn reached(&mut self, pc: u64, slot: u8) -> bool {
        let seen = self.reached.entry(pc).or_default();
        let news = !seen.contains(&slot) && seen.len() < SEEN_MAX;
        if news {
            seen.push(slot);
        }
        news
    }

    /// The regions to compare with.
    pub(crate) fn expected(&self, pc: u64) -> &[u8] {
        self.reached.get(&pc).map_or(&[MAIN], Vec::as_slice)
    }

    /// The indirect jump at `pc` went to `target`.
    pub(crate) fn jumped(&mut self, pc: u64, target: u64) {
        let seen = self.targets.entry(pc).or_default();
        if !seen.contains(&target) && seen.len() < SEEN_MAX {
            seen.push(target);
        }
    }
}
