//! Policies of garbage collection and wear levelling, shared by the store and the modelled device; one rule in each
//! file.
//!
//! A rule is a pure function of a [`ReclaimView`], which a flash management implements. It knows no dimensions, owners,
//! addresses or clock; its random numbers come from the caller's seed. A "block" is the unit that the caller empties
//! and erases: a segment of the store, or an erase block in a plane of the modelled device. State that a rule needs
//! between two choices (the block after the last victim, the age of a block) is kept by the caller and is part of the
//! view.
//!
//! Rules decide neither when to reclaim nor how much, nor what to do if there is no victim.

mod cost_benefit;
mod d_choices;
mod greedy;
mod round_robin;
pub mod wear_levelling;
mod windowed_greedy;

use crate::error::{Error, Result};

/// A closed block: all its pages were written, and no write to it is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosedBlock {
    /// Number of live pages, which reclaim would have to move.
    pub live: u32,
    /// Number of all pages of the block.
    pub pages: u32,
    /// Age in the caller's unit: pages programmed since the block was closed, or segments opened since this one was.
    pub age: u64,
    /// Number of times that the block was erased.
    pub erases: u32,
}

impl ClosedBlock {
    /// Returns the number of dead pages, which reclaim would gain.
    pub fn dead(&self) -> u32 {
        self.pages - self.live
    }
}

/// The blocks among which a rule chooses, numbered from 0, as the caller's flash management presents them.
pub trait ReclaimView {
    /// Returns the number of blocks, including those that are no candidates.
    fn count(&self) -> u32;

    /// Returns the state of a block if it is closed, otherwise `None`.
    fn closed(&self, block: u32) -> Option<ClosedBlock>;

    /// Returns the number of the block after the last victim; 0 before the first victim.
    fn behind_last(&self) -> u32;

    /// Returns the state of a block if it is a candidate of reclaim (closed, with a dead page), otherwise `None`.
    fn candidate(&self, block: u32) -> Option<ClosedBlock> {
        self.closed(block).filter(|b| b.live < b.pages)
    }

    /// Returns a candidate with the fewest live pages; `None` if there is no candidate. The default searches all
    /// blocks.
    fn emptiest(&self) -> Option<u32> {
        candidates(self).min_by_key(|(_, b)| b.live).map(|(block, _)| block)
    }
}

/// Returns all candidates with their state, in order of numbers.
fn candidates<B: ReclaimView + ?Sized>(blocks: &B) -> impl Iterator<Item = (u32, ClosedBlock)> {
    (0..blocks.count()).filter_map(|block| Some((block, blocks.candidate(block)?)))
}

/// A generator of random numbers, seeded by the caller: returns a number below its argument.
pub type Draw<'a> = &'a mut dyn FnMut(u32) -> u32;

/// A victim policy, serialised by the name that descriptions and options use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GcPolicy {
    /// Chooses the block with the fewest live pages.
    Greedy,
    /// Chooses the block with the fewest live pages of d random ones (MQSim's RGA).
    DChoices(u32),
    /// Chooses the block with the highest age * (1 - u) / 2u, u the share of live pages (Rosenblum and Ousterhout).
    CostBenefit,
    /// Chooses the first candidate after the last victim, in order of numbers.
    RoundRobin,
    /// Chooses the block with the fewest live pages of the w oldest candidates.
    WindowedGreedy(u32),
}

impl GcPolicy {
    /// The names of all policies.
    pub const NAMES: &'static [&'static str] =
        &["greedy", "d-choices", "cost-benefit", "round-robin", "windowed-greedy"];

    /// Returns the policy with this name; `choices` is the d of d-choices, and the window w of windowed-greedy.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown name.
    pub fn by_name(name: &str, choices: u32) -> Result<Self> {
        Ok(match name {
            "greedy" => Self::Greedy,
            "d-choices" => Self::DChoices(choices),
            "cost-benefit" => Self::CostBenefit,
            "round-robin" => Self::RoundRobin,
            "windowed-greedy" => Self::WindowedGreedy(choices),
            _ => {
                let names = Self::NAMES.join("\", \"");
                return Err(Error::invalid(format!("unknown GC policy {name:?}; there are \"{names}\"")));
            }
        })
    }

    /// Returns the policy's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::DChoices(_) => "d-choices",
            Self::CostBenefit => "cost-benefit",
            Self::RoundRobin => "round-robin",
            Self::WindowedGreedy(_) => "windowed-greedy",
        }
    }

    /// Chooses the block to reclaim next. `None` if there is no candidate; d-choices may also miss existing ones.
    pub fn pick(self, blocks: &dyn ReclaimView, draw: Draw<'_>) -> Option<u32> {
        let victim = match self {
            Self::Greedy => greedy::pick(blocks),
            Self::DChoices(d) => d_choices::pick(blocks, d, draw),
            Self::CostBenefit => cost_benefit::pick(blocks),
            Self::RoundRobin => round_robin::pick(blocks),
            Self::WindowedGreedy(window) => windowed_greedy::pick(blocks, window),
        };
        let gains = |block: u32| blocks.candidate(block).is_some();
        assert!(victim.is_none_or(gains), "{self:?} chose block {victim:?}, which is open, free or wholly live");
        victim
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::Chance;

    /// Blocks of 16 pages as (live pages, age), `None` for a block that is not closed; and the number of the block
    /// after the last victim.
    pub(super) struct Listed<'a>(pub(super) &'a [Option<(u32, u64)>], pub(super) u32);

    impl ReclaimView for Listed<'_> {
        fn count(&self) -> u32 {
            self.0.len() as u32
        }

        fn closed(&self, block: u32) -> Option<ClosedBlock> {
            self.0[block as usize].map(|(live, age)| ClosedBlock { live, pages: 16, age, erases: live })
        }

        fn behind_last(&self) -> u32 {
            self.1
        }
    }

    #[test]
    fn each_policy_keeps_its_rule() {
        let blocks = [Some((8, 100)), None, Some((2, 1)), Some((15, 500)), Some((16, 9_000))];
        let mut chance = Chance::seeded(1);
        let mut pick =
            |policy: GcPolicy, behind| policy.pick(&Listed(&blocks, behind), &mut |n| chance.below(n.into()) as u32);
        assert_eq!(pick(GcPolicy::Greedy, 0), Some(2));
        assert_eq!(pick(GcPolicy::CostBenefit, 0), Some(0), "8 * 101 / 8 against 14 * 2 / 2 and 1 * 501 / 15");
        let robin: Vec<_> = (0..5).map(|behind| pick(GcPolicy::RoundRobin, behind)).collect();
        assert_eq!(robin, [Some(0), Some(2), Some(2), Some(3), Some(0)], "a wholly live block is no candidate");
        assert_eq!(pick(GcPolicy::WindowedGreedy(1), 0), Some(3), "the oldest candidate");
        assert_eq!(pick(GcPolicy::WindowedGreedy(2), 0), Some(0), "the emptier of the two oldest");
        assert_eq!(pick(GcPolicy::WindowedGreedy(9), 0), Some(2), "a window of all is greedy");
        assert_eq!(pick(GcPolicy::DChoices(64), 0), Some(2));
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for &name in GcPolicy::NAMES {
            let policy = GcPolicy::by_name(name, 3).unwrap();
            assert_eq!(policy.name(), name);
            assert_eq!(policy.pick(&Listed(&[None, Some((16, 1))], 0), &mut |n| n - 1), None, "{name}");
        }
        assert!(GcPolicy::by_name("fifo", 1).is_err());
    }
}
