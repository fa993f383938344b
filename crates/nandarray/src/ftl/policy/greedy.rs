//! Greedy: chooses a candidate with the fewest live pages. Among several the caller's index or the lowest number
//! decides.

use super::ReclaimView;

pub(super) fn pick(blocks: &dyn ReclaimView) -> Option<u32> {
    blocks.emptiest()
}
