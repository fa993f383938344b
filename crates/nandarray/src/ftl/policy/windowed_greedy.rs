//! Windowed greedy: chooses the block with the fewest live pages of the w oldest candidates (Hu, Eleftheriou, Haas,
//! Iliadis, Pletka: SYSTOR 2009). `docs/guides/add-a-policy.md` shows this file.

use super::{ReclaimView, candidates};
use std::cmp::Reverse;

pub(super) fn pick(blocks: &dyn ReclaimView, window: u32) -> Option<u32> {
    let mut oldest: Vec<_> = candidates(blocks).collect();
    oldest.sort_by_key(|(_, b)| Reverse(b.age));
    oldest.iter().take(window as usize).min_by_key(|(_, b)| b.live).map(|&(block, _)| block)
}
