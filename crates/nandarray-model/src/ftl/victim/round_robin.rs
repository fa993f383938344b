//! One block after the other, whatever is in it, as long as one of its pages is dead.

use super::{Blocks, Policy, eligible};

/// The policy: where each plane goes on.
#[derive(Clone, Debug)]
pub(in crate::ftl) struct RoundRobin {
    next: Vec<u32>,
}

impl RoundRobin {
    pub(super) fn new(planes: u32) -> Self {
        Self { next: vec![0; planes as usize] }
    }

    /// Goes on at a block of a plane.
    pub(super) fn go_on_at(&mut self, plane: u32, block: u32) {
        self.next[plane as usize] = block;
    }
}

impl Policy for RoundRobin {
    fn pick(&mut self, plane: u32, blocks: &Blocks, _now: u64) -> Option<u32> {
        let next = &mut self.next[plane as usize];
        for _ in 0..blocks.per_plane {
            let block = plane * blocks.per_plane + *next;
            *next = (*next + 1) % blocks.per_plane;
            if eligible(&blocks.blocks[block as usize], blocks.pages) {
                return Some(block);
            }
        }
        None
    }
}
