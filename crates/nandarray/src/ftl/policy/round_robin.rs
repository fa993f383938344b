//! Round-robin: chooses the first candidate after the last victim by number, however many of its pages are live.

use super::ReclaimView;

pub(super) fn pick(blocks: &dyn ReclaimView) -> Option<u32> {
    let (count, first) = (blocks.count(), blocks.behind_last());
    assert!(first <= count, "the search begins at block {first} of {count}");
    (first..count).chain(0..first).find(|&block| blocks.candidate(block).is_some())
}
