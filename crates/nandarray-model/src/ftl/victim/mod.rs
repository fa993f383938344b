//! Which block reclaim takes: a policy a file, all asked the same way.
//!
//! A policy hears of blocks that become candidates (closed), lose live pages, and are candidates no more; it answers
//! with a candidate of a plane that has at least one dead page, or with none.

mod cost_benefit;
mod d_choices;
mod greedy;
#[cfg(test)]
mod guide;
mod round_robin;

use super::FtlSetupError;
use super::blocks::{Block, Blocks, State};
use crate::describe::GcPolicy;
use cost_benefit::CostBenefit;
use d_choices::DChoices;
use greedy::Greedy;
use round_robin::RoundRobin;

/// A policy. Blocks are numbered through the whole device.
trait Policy {
    /// A block is a candidate, with so many live pages, at a time counted in programs.
    fn closed(&mut self, _block: u32, _live: u16, _now: u64) {}
    /// A candidate has a live page less; this many now.
    fn less(&mut self, _block: u32, _live: u16) {}
    /// A block with so many live pages is a candidate no more.
    fn gone(&mut self, _block: u32, _live: u16) {}
    /// The candidate of a plane to be reclaimed next.
    fn pick(&mut self, plane: u32, blocks: &Blocks, now: u64) -> Option<u32>;
}

/// Whether a block is worth reclaiming at all.
fn eligible(block: &Block, pages: u32) -> bool {
    block.state == State::Closed && u32::from(block.live) < pages
}

/// The policies that there are.
#[derive(Clone, Debug)]
pub(super) enum Victims {
    Greedy(Greedy),
    DChoices(DChoices),
    CostBenefit(CostBenefit),
    RoundRobin(RoundRobin),
}

impl Victims {
    /// The policy that a description asks for.
    ///
    /// # Errors
    /// If it draws from no blocks.
    pub(super) fn new(
        policy: GcPolicy,
        (planes, blocks, pages): (u32, u32, u32),
        seed: u64,
    ) -> Result<Self, FtlSetupError> {
        Ok(match policy {
            GcPolicy::Greedy => Self::Greedy(Greedy::new(planes, blocks, pages)),
            GcPolicy::DChoices(0) => return Err(FtlSetupError::NoChoices),
            GcPolicy::DChoices(d) => Self::DChoices(DChoices::new(d, seed)),
            GcPolicy::CostBenefit => Self::CostBenefit(CostBenefit::new(planes, blocks)),
            GcPolicy::RoundRobin => Self::RoundRobin(RoundRobin::new(planes)),
        })
    }

    /// The policy that was asked for.
    pub(super) fn kind(&self) -> GcPolicy {
        match self {
            Self::Greedy(_) => GcPolicy::Greedy,
            Self::DChoices(p) => GcPolicy::DChoices(p.choices()),
            Self::CostBenefit(_) => GcPolicy::CostBenefit,
            Self::RoundRobin(_) => GcPolicy::RoundRobin,
        }
    }

    fn policy(&mut self) -> &mut dyn Policy {
        match self {
            Self::Greedy(p) => p,
            Self::DChoices(p) => p,
            Self::CostBenefit(p) => p,
            Self::RoundRobin(p) => p,
        }
    }

    pub(super) fn closed(&mut self, block: u32, live: u16, now: u64) {
        self.policy().closed(block, live, now);
    }

    /// Which block of a plane (by its number in it) would be looked at first, where that is not up to what blocks hold.
    pub(super) fn go_on_at(&mut self, plane: u32, block: u32) {
        if let Self::RoundRobin(p) = self {
            p.go_on_at(plane, block);
        }
    }

    /// Called for every page overwritten: only greedy counts, and is called without a detour.
    pub(super) fn less(&mut self, block: u32, live: u16) {
        if let Self::Greedy(p) = self {
            p.less(block, live);
        }
    }

    pub(super) fn gone(&mut self, block: u32, live: u16) {
        self.policy().gone(block, live);
    }

    pub(super) fn pick(&mut self, plane: u32, blocks: &Blocks, now: u64) -> Option<u32> {
        self.policy().pick(plane, blocks, now)
    }
}
