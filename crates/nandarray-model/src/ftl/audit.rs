//! Audit of all state: every mapped logical page lies in one live physical page, every live physical page belongs to
//! one logical page, and every count is right.

use super::PageMapped;
use super::blocks::BlockState;
use super::map::NOWHERE;
use std::collections::BTreeMap;

impl PageMapped {
    /// Checks every page and block against the counts.
    ///
    /// # Panics
    /// If state or counts disagree; the message names the numbers.
    pub fn audit(&self) {
        let pages = self.geometry.pages;
        let mut live: BTreeMap<u32, u32> = BTreeMap::new();
        for owner in 0..self.owners {
            let page = self.map.get(owner);
            if page != NOWHERE {
                let found = self.blocks.owner(page, &self.map.fill);
                assert!(found == owner, "owner {owner} is mapped to page {page}, which holds {found}");
                let block = self.blocks.block_of(page);
                let b = self.blocks.blocks[block as usize];
                let at = page % pages;
                assert!(self.blocks.is_live(block, at), "owner {owner} at page {at} of block {block}, which is dead");
                assert!(
                    at < u32::from(b.next),
                    "owner {owner} at page {at} of block {block}, written up to {}",
                    b.next
                );
                assert!(
                    !matches!(b.state, BlockState::Free | BlockState::Erasing | BlockState::Bad),
                    "{owner} in {block}: {:?}",
                    b.state
                );
                *live.entry(block).or_insert(0) += 1;
            }
        }
        for (plane, p) in self.blocks.planes.iter().enumerate() {
            let first = plane as u32 * self.blocks.per_plane;
            let (mut free, mut good, mut live_here) = (0, 0, 0);
            for block in first..first + self.blocks.per_plane {
                let b = self.blocks.blocks[block as usize];
                let counted = live.get(&block).copied().unwrap_or(0);
                assert!(counted == u32::from(b.live), "block {block}: {counted} live pages, counted {}", b.live);
                let given = (0..u32::from(b.next)).filter(|&page| self.blocks.is_live(block, page)).count();
                assert!(given == counted as usize, "block {block}: {given} pages not dead, {counted} live");
                live_here += counted;
                free += u32::from(b.state == BlockState::Free);
                good += u32::from(!matches!(b.state, BlockState::Retiring | BlockState::Bad));
                let open = p.open.iter().filter(|&&o| o == block).count();
                let (state, full) = (b.state, u32::from(b.next) == pages);
                assert!(open == usize::from(state == BlockState::Open), "block {block}: {state:?}, open {open} times");
                assert!(state != BlockState::Closed || full, "block {block} closed at page {}", b.next);
                let job = self.jobs[plane].block == block;
                let leaving = matches!(b.state, BlockState::Leaving | BlockState::Erasing);
                assert!(job || !leaving, "block {block} is {:?} without a job", b.state);
                let waits = p.retiring.iter().filter(|&&r| r == block).count();
                let expected = usize::from(b.state == BlockState::Retiring && !job);
                assert!(waits == expected, "block {block}: {:?}, waits {waits} times to retire", b.state);
            }
            assert!(free == p.free, "plane {plane}: {free} free blocks, counted {}", p.free);
            assert!(good == p.good, "plane {plane}: {good} good blocks, counted {}", p.good);
            assert!(live_here == p.live, "plane {plane}: {live_here} live pages, counted {}", p.live);
        }
    }
}
