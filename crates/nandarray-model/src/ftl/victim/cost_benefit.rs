//! Most benefit for its cost: age * (1 - u) / 2u (Rosenblum and Ousterhout, SOSP 1991, section 3.6), u the live share.
//!
//! Age is counted in pages programmed since the block was closed. Looks at every block of the plane for a choice: once
//! for as many writes as the victim has dead pages.

use super::{Blocks, Policy, eligible};

/// The policy.
#[derive(Clone, Debug)]
pub(in crate::ftl) struct CostBenefit {
    closed_at: Vec<u64>,
}

impl CostBenefit {
    pub(super) fn new(planes: u32, per_plane: u32) -> Self {
        Self { closed_at: vec![0; planes as usize * per_plane as usize] }
    }
}

impl Policy for CostBenefit {
    fn closed(&mut self, block: u32, _live: u16, now: u64) {
        self.closed_at[block as usize] = now;
    }

    fn pick(&mut self, plane: u32, blocks: &Blocks, now: u64) -> Option<u32> {
        let first = plane * blocks.per_plane;
        // As a fraction, benefit over cost, compared crosswise: exact, and a block without live pages beats all.
        let mut best: Option<(u128, u128, u32)> = None;
        for block in first..first + blocks.per_plane {
            let b = &blocks.blocks[block as usize];
            if !eligible(b, blocks.pages) {
                continue;
            }
            let age = now - self.closed_at[block as usize] + 1;
            let benefit = u128::from(age) * u128::from(blocks.pages - u32::from(b.live));
            let cost = 2 * u128::from(b.live);
            if best.is_none_or(|(most, least, _)| benefit * least > most * cost) {
                best = Some((benefit, cost, block));
            }
        }
        best.map(|(_, _, block)| block)
    }
}
