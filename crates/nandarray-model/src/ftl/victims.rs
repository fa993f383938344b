//! Victims of reclaim: applies the policies of `nandarray::policy` to the closed blocks of one plane.
//!
//! The policies are stateless; the state that they use is kept here: for each block the time at which it was closed,
//! in pages programmed; for each plane the block after its last victim; and, for the greedy policy, lists of blocks by
//! live pages, so that no search over blocks is needed.

use super::FtlSetupError;
use super::blocks::{BlockState, EraseBlocks};
use super::live_lists::LiveLists;
use nandarray::policy::{ClosedBlock, GcPolicy, ReclaimView};

/// A victim policy with its state for a device. Blocks are numbered through the whole device.
#[derive(Clone, Debug)]
pub(super) struct Victims {
    policy: GcPolicy,
    chance: fastrand::Rng,
    per_plane: u32,
    /// For each plane, the number within it of the block after the last victim.
    behind_last: Vec<u32>,
    /// Number of pages that the device had programmed when each block was closed.
    closed_at: Vec<u64>,
    /// Lists of blocks by live pages; `None` unless the policy is greedy.
    lists: Option<LiveLists>,
}

impl Victims {
    /// Makes the policy of a description.
    ///
    /// # Errors
    /// If the policy chooses among no blocks.
    pub(super) fn new(
        policy: GcPolicy,
        (planes, per_plane, pages): (u32, u32, u32),
        seed: u64,
    ) -> Result<Self, FtlSetupError> {
        if let GcPolicy::DChoices(0) | GcPolicy::WindowedGreedy(0) = policy {
            return Err(FtlSetupError::NoChoices);
        }
        Ok(Self {
            policy,
            chance: fastrand::Rng::with_seed(seed),
            per_plane,
            behind_last: vec![0; planes as usize],
            closed_at: vec![0; planes as usize * per_plane as usize],
            lists: (policy == GcPolicy::Greedy).then(|| LiveLists::new(planes, per_plane, pages)),
        })
    }

    /// Returns the policy.
    pub(super) fn policy(&self) -> GcPolicy {
        self.policy
    }

    /// Records that a block with `live` live pages was closed at time `now`, in pages programmed.
    pub(super) fn closed(&mut self, block: u32, live: u16, now: u64) {
        assert!(self.closed_at[block as usize] <= now, "block {block} was closed after {now} pages");
        self.closed_at[block as usize] = now;
        if let Some(lists) = &mut self.lists {
            lists.closed(block, live);
        }
    }

    /// Records that a page of a closed block died and `live` pages are left. Called for every page that is
    /// overwritten.
    pub(super) fn less(&mut self, block: u32, live: u16) {
        if let Some(lists) = &mut self.lists {
            lists.less(block, live);
        }
    }

    /// Records that a closed block with `live` live pages is being emptied, or was retired.
    pub(super) fn gone(&mut self, block: u32, live: u16) {
        if let Some(lists) = &mut self.lists {
            lists.gone(block, live);
        }
    }

    /// Sets the block of a plane, by its number within the plane, at which round-robin continues.
    pub(super) fn go_on_at(&mut self, plane: u32, block: u32) {
        assert!(block < self.per_plane, "block {block} of a plane of {}", self.per_plane);
        self.behind_last[plane as usize] = block;
    }

    /// Chooses the next victim of a plane at time `now`, in pages programmed; `None` if the policy finds none.
    pub(super) fn pick(&mut self, plane: u32, blocks: &EraseBlocks, now: u64) -> Option<u32> {
        if let Some(lists) = &mut self.lists {
            lists.settle(plane);
        }
        let mut chance = self.chance.clone();
        let picked = self.policy.pick(&self.view(plane, blocks, now), &mut |n| chance.u32(0..n));
        self.chance = chance;
        let picked = picked?;
        self.behind_last[plane as usize] = (picked + 1) % self.per_plane;
        Some(plane * self.per_plane + picked)
    }

    /// Returns a closed block of a plane with the fewest live pages; `None` if no closed block has a dead page.
    pub(super) fn emptiest(&self, plane: u32, blocks: &EraseBlocks) -> Option<u32> {
        self.view(plane, blocks, u64::MAX).emptiest().map(|block| plane * self.per_plane + block)
    }

    /// Returns the least worn closed block of a plane if wear levelling requires that it is emptied; `None` otherwise.
    pub(super) fn cold(&self, plane: u32, blocks: &EraseBlocks) -> Option<u32> {
        let view = self.view(plane, blocks, u64::MAX);
        blocks.levelling.cold(&view, blocks.most_erases(plane)).map(|block| plane * self.per_plane + block)
    }

    fn view<'a>(&'a self, plane: u32, blocks: &'a EraseBlocks, now: u64) -> PlaneView<'a> {
        PlaneView { victims: self, blocks, plane, now }
    }
}

/// The blocks of one plane as the policies see them.
struct PlaneView<'a> {
    victims: &'a Victims,
    blocks: &'a EraseBlocks,
    plane: u32,
    /// Number of pages that the device has programmed.
    now: u64,
}

impl ReclaimView for PlaneView<'_> {
    fn count(&self) -> u32 {
        self.blocks.per_plane
    }

    fn closed(&self, block: u32) -> Option<ClosedBlock> {
        let block = (self.plane * self.blocks.per_plane + block) as usize;
        let b = &self.blocks.blocks[block];
        (b.state == BlockState::Closed).then(|| ClosedBlock {
            live: b.live.into(),
            pages: self.blocks.pages,
            age: self.now - self.victims.closed_at[block],
            erases: b.erases,
        })
    }

    fn behind_last(&self) -> u32 {
        self.victims.behind_last[self.plane as usize]
    }

    fn emptiest(&self) -> Option<u32> {
        let scan = || (0..self.count()).filter_map(|n| Some((self.candidate(n)?.live, n))).min().map(|(_, n)| n);
        let first = self.plane * self.count();
        self.victims.lists.as_ref().map_or_else(scan, |lists| lists.emptiest(self.plane).map(|block| block - first))
    }
}
