//! Lists of closed blocks by their number of live pages, which make finding the emptiest block, and counting a page
//! that dies, independent of the number of blocks.

use super::map::NOWHERE;

/// One linked list of blocks per plane and number of live pages; blocks without a dead page are in none.
#[derive(Clone, Debug)]
pub(super) struct LiveLists {
    per_plane: u32,
    pages: u32,
    /// First block of each list, at index `plane * pages + live`.
    heads: Vec<u32>,
    /// Neighbours of each block in its list: the previous and the next block.
    links: Vec<[u32; 2]>,
    /// Lower bound for each plane: no list for fewer live pages than this has blocks.
    lowest: Vec<u32>,
}

impl LiveLists {
    pub(super) fn new(planes: u32, per_plane: u32, pages: u32) -> Self {
        Self {
            per_plane,
            pages,
            heads: vec![NOWHERE; planes as usize * pages as usize],
            links: vec![[NOWHERE; 2]; planes as usize * per_plane as usize],
            lowest: vec![pages; planes as usize],
        }
    }

    /// Adds a block that was closed with `live` live pages.
    pub(super) fn closed(&mut self, block: u32, live: u16) {
        if u32::from(live) < self.pages {
            self.link(block, live);
        }
    }

    /// Moves a closed block of which a page died to the list of the `live` pages left.
    pub(super) fn less(&mut self, block: u32, live: u16) {
        debug_assert!(u32::from(live) < self.pages, "a page of block {block} died and {live} are live");
        if u32::from(live) + 1 < self.pages {
            self.unlink(block, live + 1);
        }
        self.link(block, live);
    }

    /// Removes a block with `live` live pages that is no longer closed.
    pub(super) fn gone(&mut self, block: u32, live: u16) {
        if u32::from(live) < self.pages {
            self.unlink(block, live);
        }
    }

    /// Raises the lower bound of a plane to the first list that has blocks, so that later searches begin there.
    pub(super) fn settle(&mut self, plane: u32) {
        let lowest = self.lowest_of(plane);
        assert!(lowest >= self.lowest[plane as usize], "plane {plane} has blocks below the bound");
        self.lowest[plane as usize] = lowest;
    }

    /// Returns the block of a plane with the fewest live pages, of several the last one added to its list; `None` if
    /// no closed block has a dead page.
    pub(super) fn emptiest(&self, plane: u32) -> Option<u32> {
        let lowest = self.lowest_of(plane);
        (lowest < self.pages).then(|| self.heads[(plane * self.pages + lowest) as usize])
    }

    fn lowest_of(&self, plane: u32) -> u32 {
        let lists = &self.heads[plane as usize * self.pages as usize..][..self.pages as usize];
        let from = self.lowest[plane as usize];
        (from..self.pages).find(|&live| lists[live as usize] != NOWHERE).unwrap_or(self.pages)
    }

    fn head(&mut self, block: u32, live: u16) -> &mut u32 {
        let plane = block / self.per_plane;
        &mut self.heads[plane as usize * self.pages as usize + usize::from(live)]
    }

    fn link(&mut self, block: u32, live: u16) {
        let behind = std::mem::replace(self.head(block, live), block);
        debug_assert!(behind != block, "block {block} is in the list of {live} live pages already");
        self.links[block as usize] = [NOWHERE, behind];
        if behind != NOWHERE {
            self.links[behind as usize][0] = block;
        }
        let lowest = &mut self.lowest[(block / self.per_plane) as usize];
        *lowest = (*lowest).min(u32::from(live));
    }

    fn unlink(&mut self, block: u32, live: u16) {
        let [before, behind] = self.links[block as usize];
        if before == NOWHERE {
            let head = std::mem::replace(self.head(block, live), behind);
            debug_assert!(head == block, "block {block} is not in the list of {live} live pages");
        } else {
            self.links[before as usize][1] = behind;
        }
        if behind != NOWHERE {
            self.links[behind as usize][0] = before;
        }
    }
}
