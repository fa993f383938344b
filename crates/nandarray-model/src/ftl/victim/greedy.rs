//! Fewest live pages: blocks in lists by their number of live pages, so that neither a lost page nor a choice looks at
//! others.

use super::{Blocks, Policy};
use crate::ftl::map::NOWHERE;

/// Lists of candidates: a plane has one for each number of live pages; blocks without a dead page are in none.
#[derive(Clone, Debug)]
pub(in crate::ftl) struct Greedy {
    per_plane: u32,
    pages: u32,
    /// First block of plane x live.
    heads: Vec<u32>,
    /// Neighbours of each block in its list: before, behind.
    links: Vec<[u32; 2]>,
    /// No list of the plane below this one has blocks.
    lowest: Vec<u32>,
}

impl Greedy {
    pub(super) fn new(planes: u32, per_plane: u32, pages: u32) -> Self {
        Self {
            per_plane,
            pages,
            heads: vec![NOWHERE; planes as usize * pages as usize],
            links: vec![[NOWHERE; 2]; planes as usize * per_plane as usize],
            lowest: vec![pages; planes as usize],
        }
    }

    fn link(&mut self, block: u32, live: u16) {
        let plane = block / self.per_plane;
        let head = &mut self.heads[plane as usize * self.pages as usize + usize::from(live)];
        self.links[block as usize] = [NOWHERE, *head];
        if *head != NOWHERE {
            self.links[*head as usize][0] = block;
        }
        *head = block;
        let lowest = &mut self.lowest[plane as usize];
        *lowest = (*lowest).min(u32::from(live));
    }

    fn unlink(&mut self, block: u32, live: u16) {
        let [before, behind] = self.links[block as usize];
        if before == NOWHERE {
            let plane = block / self.per_plane;
            self.heads[plane as usize * self.pages as usize + usize::from(live)] = behind;
        } else {
            self.links[before as usize][1] = behind;
        }
        if behind != NOWHERE {
            self.links[behind as usize][0] = before;
        }
    }
}

impl Policy for Greedy {
    fn closed(&mut self, block: u32, live: u16, _now: u64) {
        if u32::from(live) < self.pages {
            self.link(block, live);
        }
    }

    fn less(&mut self, block: u32, live: u16) {
        if u32::from(live) + 1 < self.pages {
            self.unlink(block, live + 1);
        }
        self.link(block, live);
    }

    fn gone(&mut self, block: u32, live: u16) {
        if u32::from(live) < self.pages {
            self.unlink(block, live);
        }
    }

    fn pick(&mut self, plane: u32, _blocks: &Blocks, _now: u64) -> Option<u32> {
        let lowest = &mut self.lowest[plane as usize];
        let lists = &self.heads[plane as usize * self.pages as usize..][..self.pages as usize];
        while *lowest < self.pages {
            match lists[*lowest as usize] {
                NOWHERE => *lowest += 1,
                block => return Some(block),
            }
        }
        None
    }
}
