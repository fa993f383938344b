//! Observations of single instructions: memory regions that loads and stores accessed, and targets of indirect jumps.
//!
//! Code for a load or store compares the address with the memory regions that were observed, or, without observations,
//! with the main one.

use std::collections::HashMap;

/// The slot number that stands for the main memory region, which holds the program and its stack.
pub(crate) const MAIN: u8 = u8::MAX;
/// Most memory regions that are noted for one instruction, and most targets of one jump.
const SEEN_MAX: usize = 3;

/// The memory regions and jump targets that were observed, by the address of the instruction.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    reached: HashMap<u64, Vec<u8>>,
    pub(crate) targets: HashMap<u64, Vec<u64>>,
}

impl Sites {
    /// Notes that the instruction at `pc` accessed a memory region. Returns whether this was its first noted access to
    /// it.
    pub(crate) fn reached(&mut self, pc: u64, slot: u8) -> bool {
        let seen = self.reached.entry(pc).or_default();
        debug_assert!(seen.len() <= SEEN_MAX, "{seen:?} at {pc:#x}");
        let new = !seen.contains(&slot) && seen.len() < SEEN_MAX;
        if new {
            seen.push(slot);
        }
        new
    }

    /// Returns the memory regions, by slot, that the code of the instruction at `pc` is to expect.
    pub(crate) fn expected(&self, pc: u64) -> &[u8] {
        self.reached.get(&pc).map_or(&[MAIN], Vec::as_slice)
    }

    /// Notes that the indirect jump at `pc` went to `target`.
    pub(crate) fn jumped(&mut self, pc: u64, target: u64) {
        let seen = self.targets.entry(pc).or_default();
        debug_assert!(seen.len() <= SEEN_MAX, "{seen:x?} at {pc:#x}");
        if !seen.contains(&target) && seen.len() < SEEN_MAX {
            seen.push(target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_few_regions_and_targets_of_an_instruction_are_kept() {
        let mut sites = Sites::default();
        assert_eq!(sites.expected(8), [MAIN], "an instruction that was not observed");
        let told = [4, 4, 7, MAIN, 9, 7].map(|slot| sites.reached(8, slot));
        assert_eq!(told, [true, false, true, true, false, false]);
        assert_eq!((sites.expected(8), sites.expected(12)), ([4, 7, MAIN].as_slice(), [MAIN].as_slice()));
        for target in [64, 80, 64, 96, 112] {
            sites.jumped(8, target);
        }
        assert_eq!(sites.targets[&8], [64, 80, 96]);
    }
}
