//! Cost-benefit: chooses the block with the highest age * (1 - u) / 2u (Rosenblum and Ousterhout, SOSP 1991, section
//! 3.6), where u is the share of live pages.
//!
//! Each choice looks at all blocks; the pages that it gains allow as many writes before the next one.

use super::{ReclaimView, candidates};

pub(super) fn pick(blocks: &dyn ReclaimView) -> Option<u32> {
    // Fractions benefit / cost are compared by cross-multiplication: exactly, and a block without live pages wins.
    let mut best: Option<(u128, u128, u32)> = None;
    for (block, b) in candidates(blocks) {
        let benefit = u128::from(b.age + 1) * u128::from(b.dead());
        let cost = 2 * u128::from(b.live);
        if best.is_none_or(|(most, least, _)| benefit * least > most * cost) {
            best = Some((benefit, cost, block));
        }
    }
    best.map(|(_, _, block)| block)
}
