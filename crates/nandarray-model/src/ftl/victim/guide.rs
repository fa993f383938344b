//! The policy of `docs/guides/add-a-policy.md`, which shows this file: the emptiest of the blocks that were closed
//! first.
//!
//! Windowed greedy (Hu, Eleftheriou, Haas, Iliadis, Pletka: SYSTOR 2009). It is compiled and run by tests only, so that
//! the guide's words stay true; no description can ask for it.

use super::{Blocks, Policy, eligible};
use std::collections::VecDeque;

/// The policy: candidates of each plane, the one closed first in front, and how many of them are looked at.
#[derive(Clone, Debug)]
pub(in crate::ftl) struct Windowed {
    waiting: Vec<VecDeque<u32>>,
    per_plane: u32,
    window: usize,
}

impl Windowed {
    pub(super) fn new(planes: u32, per_plane: u32, window: usize) -> Self {
        Self { waiting: vec![VecDeque::new(); planes as usize], per_plane, window }
    }

    fn of(&mut self, block: u32) -> &mut VecDeque<u32> {
        &mut self.waiting[(block / self.per_plane) as usize]
    }
}

impl Policy for Windowed {
    fn closed(&mut self, block: u32, _live: u16, _now: u64) {
        self.of(block).push_back(block);
    }

    fn gone(&mut self, block: u32, _live: u16) {
        self.of(block).retain(|&other| other != block);
    }

    fn pick(&mut self, plane: u32, blocks: &Blocks, _now: u64) -> Option<u32> {
        self.waiting[plane as usize]
            .iter()
            .copied()
            .filter(|&block| eligible(&blocks.blocks[block as usize], blocks.pages))
            .take(self.window)
            .min_by_key(|&block| blocks.blocks[block as usize].live)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe;
    use crate::ftl::PageMapped;
    use crate::ftl::blocks::State;

    /// A device that was written once and then in places, and the policy, which was told of every closed block.
    fn written(window: usize) -> (PageMapped, Windowed) {
        let tiny = describe::preset("tiny").unwrap();
        let mut ftl = PageMapped::new(&tiny, 1, &|_, _, _| false).unwrap();
        let pages = ftl.capacity_pages() / 2;
        let mut ops = Vec::new();
        for n in (0..pages).chain((0..pages / 4).map(|n| n * 7 % pages)) {
            ftl.write(n, true, 0, |_| 0, &mut ops).unwrap();
        }
        let blocks = &ftl.blocks;
        let mut policy = Windowed::new(blocks.planes.len() as u32, blocks.per_plane, window);
        for (number, block) in (0..).zip(&blocks.blocks) {
            if block.state == State::Closed {
                policy.closed(number, block.live, 0);
            }
        }
        (ftl, policy)
    }

    #[test]
    fn the_emptiest_within_the_window_is_taken() {
        let (ftl, mut policy) = written(3);
        for plane in 0..ftl.blocks.planes.len() as u32 {
            let first = plane * ftl.blocks.per_plane;
            let oldest: Vec<u32> = (first..first + ftl.blocks.per_plane)
                .filter(|&block| eligible(&ftl.blocks.blocks[block as usize], ftl.blocks.pages))
                .take(3)
                .collect();
            let live = |block: u32| ftl.blocks.blocks[block as usize].live;
            let picked = policy.pick(plane, &ftl.blocks, 0);
            assert!(picked.is_none_or(|block| oldest.contains(&block)));
            assert_eq!(picked.map(live), oldest.iter().map(|&block| live(block)).min(), "plane {plane}");
        }
    }

    #[test]
    fn a_block_that_is_gone_is_not_taken() {
        let (ftl, mut policy) = written(1);
        let mut taken = Vec::new();
        while let Some(block) = policy.pick(0, &ftl.blocks, 0) {
            assert!(!taken.contains(&block));
            taken.push(block);
            policy.gone(block, 0);
        }
        assert!(taken.len() > 1);
    }
}
