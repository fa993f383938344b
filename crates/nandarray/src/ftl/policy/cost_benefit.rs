//! Cost-benefit: the highest age * (1 - u) / 2u (Rosenblum and Ousterhout, SOSP 1991, section 3.6), u the live share.
//!
//! Looks at every block for a choice: once for as many writes as the victim has dead pages.

use super::{ReclaimView, candidates};

pub(super) fn pick(blocks: &dyn ReclaimView) -> Option<u32> {
    // As a fraction, benefit over cost, compared crosswise: exact, and a block without live pages beats all.
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
