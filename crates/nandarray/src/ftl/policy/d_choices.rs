//! D-choices: the fewest live pages of d candidates drawn by chance (the randomised greedy of Li, Lee, Lui, SIGMETRICS
//! 2013; MQSim's RGA).
//!
//! Draws that hit no candidate (an open or free block, one without a dead page) are repeated, up to four for each of
//! the d; so this rule may find none where there are few.

use super::{Draw, ReclaimView};

/// Draws for each of the d, at most.
const DRAWS: u32 = 4;

pub(super) fn pick(blocks: &dyn ReclaimView, d: u32, draw: Draw<'_>) -> Option<u32> {
    assert!(d > 0, "d-choices of no blocks");
    let count = blocks.count();
    if count == 0 {
        return None;
    }
    let mut best: Option<(u32, u32)> = None;
    let mut found = 0;
    for _ in 0..d.saturating_mul(DRAWS) {
        let block = draw(count);
        let Some(drawn) = blocks.candidate(block) else { continue };
        if best.is_none_or(|(live, _)| drawn.live < live) {
            best = Some((drawn.live, block));
        }
        found += 1;
        if found == d {
            break;
        }
    }
    best.map(|(_, block)| block)
}
