//! Round-robin: the first candidate behind the last victim by number, whatever is live in it.

use super::ReclaimView;

pub(super) fn pick(blocks: &dyn ReclaimView) -> Option<u32> {
    let (count, first) = (blocks.count(), blocks.behind_last());
    assert!(first <= count, "the search begins at block {first} of {count}");
    (first..count).chain(0..first).find(|&block| blocks.candidate(block).is_some())
}
