//! Fewest live pages of d candidates drawn by chance (the randomised greedy of Li, Lee, Lui, SIGMETRICS 2013; MQSim's
//! RGA).
//!
//! Draws that hit something else than a candidate (open, free, without a dead page) are repeated, up to four for each
//! wanted.

use super::{Blocks, Policy, eligible};

/// Draws for each of the d, at most.
const DRAWS: u32 = 4;

/// The policy.
#[derive(Clone, Debug)]
pub(in crate::ftl) struct DChoices {
    d: u32,
    chance: fastrand::Rng,
}

impl DChoices {
    pub(super) fn new(d: u32, seed: u64) -> Self {
        Self { d, chance: fastrand::Rng::with_seed(seed) }
    }

    pub(super) fn choices(&self) -> u32 {
        self.d
    }
}

impl Policy for DChoices {
    fn pick(&mut self, plane: u32, blocks: &Blocks, _now: u64) -> Option<u32> {
        let first = plane * blocks.per_plane;
        let mut best: Option<(u16, u32)> = None;
        let mut found = 0;
        for _ in 0..self.d.saturating_mul(DRAWS) {
            let block = first + self.chance.u32(0..blocks.per_plane);
            let b = &blocks.blocks[block as usize];
            if !eligible(b, blocks.pages) {
                continue;
            }
            if best.is_none_or(|(live, _)| b.live < live) {
                best = Some((b.live, block));
            }
            found += 1;
            if found == self.d {
                break;
            }
        }
        best.map(|(_, block)| block)
    }
}
