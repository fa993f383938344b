//! Which segment reclaim takes next: the victim policies, and what they see.
//!
//! All choose among closed segments that have a dead page and no page in flight; none looks at owners. Greedy and
//! d-choices as in Li, Lee and Lui (SIGMETRICS 2013), cost-benefit as in Rosenblum and Ousterhout (TOCS 1992): age x
//! dead / (2 x live).

use crate::error::{Error, Result};
use crate::flash::Segment;
use crate::sim::Chance;

/// A segment that may be taken.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Which.
    pub segment: Segment,
    /// Live pages, which have to be moved.
    pub live: u32,
    /// Pages of a segment.
    pub pages: u32,
    /// How many segments were opened since this one was.
    pub age: u64,
}

/// A victim policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The segment with the fewest live pages.
    Greedy,
    /// The best of this many drawn by chance, by live pages.
    DChoices(u32),
    /// The highest age x dead / (2 x live).
    CostBenefit,
    /// The one opened longest ago.
    RoundRobin,
}

impl Victim {
    /// The policy with this name: `greedy`, `d-choices`, `cost-benefit`, `round-robin`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown name.
    pub fn by_name(name: &str) -> Result<Self> {
        Ok(match name {
            "greedy" => Self::Greedy,
            "d-choices" => Self::DChoices(10),
            "cost-benefit" => Self::CostBenefit,
            "round-robin" => Self::RoundRobin,
            _ => {
                return Err(Error::invalid(format!(
                    "unknown GC policy {name:?}; there are \"greedy\", \"d-choices\", \"cost-benefit\" and \"round-robin\""
                )));
            }
        })
    }

    /// The policy's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::DChoices(_) => "d-choices",
            Self::CostBenefit => "cost-benefit",
            Self::RoundRobin => "round-robin",
        }
    }

    /// Takes one of the candidates; `None` if there are none.
    pub fn choose(self, candidates: &[Candidate], chance: &mut Chance) -> Option<Segment> {
        let greedy = |some: &mut dyn Iterator<Item = &Candidate>| some.min_by_key(|c| c.live).map(|c| c.segment);
        match self {
            Self::Greedy => greedy(&mut candidates.iter()),
            Self::DChoices(d) if candidates.len() > d as usize => {
                let mut drawn = (0..d).map(|_| &candidates[chance.below(candidates.len() as u64) as usize]);
                greedy(&mut drawn)
            }
            Self::DChoices(_) => greedy(&mut candidates.iter()),
            Self::CostBenefit => {
                // Compare a.age * a.dead / a.live with b's by cross-multiplying: exact, no floats.
                let gain = |c: &Candidate| u128::from(c.age + 1) * u128::from(c.pages - c.live);
                candidates
                    .iter()
                    .max_by(|a, b| (gain(a) * u128::from(b.live)).cmp(&(gain(b) * u128::from(a.live))))
                    .map(|c| c.segment)
            }
            Self::RoundRobin => candidates.iter().max_by_key(|c| c.age).map(|c| c.segment),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn c(segment: Segment, live: u32, age: u64) -> Candidate {
        Candidate { segment, live, pages: 16, age }
    }

    #[test]
    fn policies_differ_as_they_should() {
        let some = [c(0, 8, 100), c(1, 2, 1), c(2, 15, 500)];
        let mut chance = Chance::seeded(1);
        assert_eq!(Victim::Greedy.choose(&some, &mut chance), Some(1));
        assert_eq!(Victim::CostBenefit.choose(&some, &mut chance), Some(0));
        assert_eq!(Victim::RoundRobin.choose(&some, &mut chance), Some(2));
        assert_eq!(Victim::DChoices(10).choose(&some, &mut chance), Some(1));
        assert_eq!(Victim::Greedy.choose(&[], &mut chance), None);
        for name in ["greedy", "d-choices", "cost-benefit", "round-robin"] {
            assert_eq!(Victim::by_name(name).unwrap().name(), name);
        }
        assert!(Victim::by_name("fifo").is_err());
    }
}
