//! Distribution of live pages over closed blocks after long uniform random overwrites, computed as the mean-field
//! fixed points of the victim policies.
//!
//! One plane has `M` closed blocks of `b` pages, and `L` of these pages are live. A host write kills one of the `L`
//! pages, each with the same probability, so a block with `i` live pages loses one at rate `i / L` per host write.
//! Reclaim empties `g` blocks per host write; each comes back with all its pages live. Let `x_i` be the fraction of
//! closed blocks with `i` live pages, and `k = g L / M`. The flow from `i` to `i - 1` is balanced by the victims that
//! are taken below `i`:
//!
//! ```text
//! i x_i = k (1 - P(victim has at least i))       sum x_i = 1,   sum i x_i = L / M       write amplification b k M / L
//! ```
//!
//! - greedy: victims have the lowest number of live pages that occurs; `x_i = k / i` above it (Bux and Iliadis,
//!   Performance Evaluation 67, 2010; Desnoyers, SYSTOR 2012)
//! - d-choices: `P = t_i^d`, where `t_i` is the fraction of candidates with at least `i` live pages (Van Houdt,
//!   SIGMETRICS 2013; Li, Lee, Lui, SIGMETRICS 2013)
//! - round-robin: all victims have the same age `T`, `L / (M b) = (1 - e^-T) / T` (Menon, 1995; Desnoyers, SYSTOR
//!   2012: first in, first out)
//! - cost-benefit: a block becomes a victim when its score `age (b - i) / i` reaches `s` (Rosenblum and Ousterhout,
//!   SOSP 1991, for the score); deaths and departures of one generation of blocks are integrated
//!
//! The results are exact in the limit of many blocks; planes of some hundred blocks agree within a few percent
//! (`tests/layout.rs`). Not covered: windowed greedy, skewed or sequential writes, pages of a cached map, wear. Ages
//! are in units of `L` host writes.

use crate::describe::GcPolicy;
use std::collections::BTreeMap;

/// A closed block's live pages and age.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Aged {
    /// Number of live pages.
    pub(super) live: u32,
    /// Time since the block was closed: the host writes since then, divided by the live pages of all closed blocks.
    pub(super) age: f64,
}

/// Distribution of live pages and ages over a plane's closed blocks.
#[derive(Clone, Debug)]
struct Solution {
    /// Pairs of a value and the fraction of blocks that have it, in the order in which blocks become victims.
    points: Vec<(Aged, f64)>,
    /// Number of blocks that reclaim empties per host write, times the mean number of live pages of a closed block.
    turnover: f64,
}

/// Solver for one policy and block size; caches its solutions, since planes differ by a few pages only.
#[derive(Debug)]
pub(super) struct Solver {
    policy: GcPolicy,
    pages: u32,
    solved: BTreeMap<u64, Solution>,
}

/// Number of steps per page at which mean numbers of live pages are solved for; the rounding error is spread over
/// blocks afterwards.
const STEPS_A_PAGE: f64 = 8.0;

impl Solver {
    pub(super) fn new(policy: GcPolicy, pages: u32) -> Self {
        Self { policy, pages, solved: BTreeMap::new() }
    }

    /// Returns `count` closed blocks of a plane with `live` live pages in total; those that become victims first come
    /// first.
    ///
    /// # Panics
    /// If the pages do not fit into the blocks, or no page is dead.
    pub(super) fn blocks(&mut self, count: u32, live: u64, chance: &mut fastrand::Rng) -> Vec<Aged> {
        let (b, places) = (self.pages, u64::from(count) * u64::from(self.pages));
        assert!(live < places, "{live} live pages in {count} blocks of {b}");
        let points = &self.solution(live as f64 / f64::from(count)).points;
        // Samples the distribution at the middle of each of `count` equal shares.
        let (mut blocks, mut at, mut below) = (Vec::with_capacity(count as usize), 0, 0.0);
        let total: f64 = points.iter().map(|(_, share)| share).sum();
        for n in 0..count {
            let wanted = (f64::from(n) + 0.5) / f64::from(count) * total;
            while at + 1 < points.len() && below + points[at].1 < wanted {
                below += points[at].1;
                at += 1;
            }
            blocks.push(points[at].0);
        }
        if matches!(self.policy, GcPolicy::RoundRobin) {
            // The other policies give a distribution of live pages; here the value is a mean, around which pages die
            // at random.
            for block in &mut blocks {
                let survive = (-block.age).exp();
                let spread = (f64::from(b) * survive * (1.0 - survive)).sqrt();
                let live = f64::from(b) * survive + spread * normal(chance);
                block.live = live.round().clamp(0.0, f64::from(b)) as u32;
            }
        }
        let mut sum: u64 = blocks.iter().map(|block| u64::from(block.live)).sum();
        while sum != live {
            let block = &mut blocks[chance.usize(0..count as usize)];
            if sum < live && block.live < b {
                (block.live, sum) = (block.live + 1, sum + 1);
            } else if sum > live && block.live > 0 {
                (block.live, sum) = (block.live - 1, sum - 1);
            }
        }
        blocks
    }

    /// Returns the pages programmed per page of the host, where closed blocks have `mean` live pages on average.
    pub(super) fn amplification(&mut self, mean: f64) -> f64 {
        let mean = mean.clamp(0.0, f64::from(self.pages) * 0.9999);
        f64::from(self.pages) * self.solution(mean).turnover / mean.max(1e-9)
    }

    fn solution(&mut self, mean: f64) -> &Solution {
        let b = f64::from(self.pages);
        let key = ((mean * STEPS_A_PAGE).round() as u64).max(1);
        let mean = (key as f64 / STEPS_A_PAGE).min(b - 0.5 / STEPS_A_PAGE);
        let (policy, pages) = (self.policy, self.pages);
        self.solved.entry(key).or_insert_with(|| match policy {
            GcPolicy::Greedy => greedy(pages, mean),
            GcPolicy::DChoices(d) => d_choices(pages, mean, d),
            GcPolicy::RoundRobin => round_robin(pages, mean),
            GcPolicy::CostBenefit => cost_benefit(pages, mean),
            GcPolicy::WindowedGreedy(_) => unreachable!("a device that reclaims by {} is not laid out", policy.name()),
        })
    }
}

/// Returns a random number of the standard normal distribution (Box and Muller).
pub(super) fn normal(chance: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - chance.f64()).ln()).sqrt() * (std::f64::consts::TAU * chance.f64()).cos()
}

/// Returns the zero of the increasing function `f` between `low` and `high`, by bisection.
fn root(mut low: f64, mut high: f64, f: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..45 {
        let middle = 0.5 * (low + high);
        if f(middle) < 0.0 { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

fn level(live: u32) -> Aged {
    Aged { live, age: 0.0 }
}

/// Solves for the greedy policy: victims have `m` live pages, the fewest that occur, and the fraction of blocks with
/// `i` live pages is `k / i` for each `i` above `m`.
fn greedy(pages: u32, mean: f64) -> Solution {
    let b = f64::from(pages);
    let mut harmonic = 0.0;
    for m in (0..pages).rev() {
        harmonic += 1.0 / f64::from(m + 1);
        let low = f64::from(m);
        let k = (mean - low) / (b - low - low * harmonic);
        let lowest = 1.0 - k * harmonic;
        // Victims are taken from this level and, as it loses pages, from the one below: no more blocks may leave it
        // than enter it.
        if m == 0 || lowest * low <= k {
            let above = (m + 1..=pages).map(|i| (level(i), k / f64::from(i)));
            let points = std::iter::once((level(m), lowest.max(0.0))).chain(above).collect();
            return Solution { points, turnover: k };
        }
    }
    unreachable!("a mean of {mean} live pages of {pages} has a lowest level")
}

/// Solves for d-choices from the full blocks down to the empty ones; `k` is found by bisection on the mean.
fn d_choices(pages: u32, mean: f64, d: u32) -> Solution {
    let power = |t: f64| t.powi(d.min(i32::MAX as u32) as i32);
    let levels = |k: f64| {
        // Blocks without a dead page are no candidates.
        let full = k / f64::from(pages);
        let mut shares = vec![(level(pages), full)];
        let mut at_least = full;
        for i in (0..pages).rev() {
            // i x_i = k (1 - t_i^d), and t_i holds x_i: the left side grows with x_i, the right side falls.
            let candidates = |x: f64| ((at_least + x - full) / (1.0 - full)).clamp(0.0, 1.0);
            let rest = 1.0 - at_least;
            let x = match i {
                0 => rest,
                i => root(0.0, rest, |x| f64::from(i) * x - k * (1.0 - power(candidates(x)))),
            };
            shares.push((level(i), x));
            at_least += x;
        }
        shares.reverse();
        shares
    };
    let of = |shares: &[(Aged, f64)]| shares.iter().map(|(at, x)| f64::from(at.live) * x).sum::<f64>();
    // More turnover gives fuller blocks: bisects between no turnover and one at which every block is full.
    let k = root(0.0, f64::from(pages) * (1.0 - 1e-9), |k| of(&levels(k)) - mean);
    Solution { points: levels(k), turnover: k }
}

/// Solves for round-robin: the ages of closed blocks are evenly distributed up to that of the victim, which comes
/// first.
fn round_robin(pages: u32, mean: f64) -> Solution {
    const AGES: u32 = 1_024;
    let share = mean / f64::from(pages);
    let oldest = root(1e-9, 1e6, |t| share - (1.0 - (-t).exp()) / t);
    let points = (0..AGES).rev().map(|n| {
        let age = oldest * (f64::from(n) + 0.5) / f64::from(AGES);
        (Aged { live: (f64::from(pages) * (-age).exp()).round() as u32, age }, 1.0 / f64::from(AGES))
    });
    Solution { points: points.collect(), turnover: 1.0 / oldest }
}

/// Follows blocks that are closed at the same time: all their pages are live, then die one by one, and a block with `i`
/// live and `d` dead pages becomes a victim once `age * d >= score * i`.
///
/// Calls `visit` for every age with the length of its time step and the fractions of the blocks that have 0, 1, 2 ...
/// live pages and are no victims yet.
fn generation(pages: u32, score: f64, mut visit: impl FnMut(f64, f64, &[f64])) {
    let b = pages as usize;
    // A time step in which no level loses more than a quarter of its blocks.
    let step = 0.25 / f64::from(pages);
    let mut shares = vec![0.0; b + 1];
    shares[b] = 1.0;
    let (mut top, mut age) = (b, 0.0_f64);
    loop {
        // Blocks up to this level leave at this age.
        let gone = ((age * f64::from(pages) / (age + score)).floor() as usize).min(b - 1);
        shares[..=gone].fill(0.0);
        while top > gone && shares[top] < 1e-12 {
            shares[top] = 0.0;
            top -= 1;
        }
        if top <= gone {
            return;
        }
        visit(age, step, &shares);
        for i in gone + 1..=top {
            let lost = shares[i] * i as f64 * step;
            shares[i] -= lost;
            shares[i - 1] += lost;
        }
        age += step;
    }
}

/// Solves for cost-benefit; the score is found by bisection on the mean.
fn cost_benefit(pages: u32, mean: f64) -> Solution {
    let sums = |score: f64| {
        let (mut blocks, mut live) = (0.0, 0.0);
        generation(pages, score, |_, step, shares| {
            for (i, share) in shares.iter().enumerate() {
                blocks += share * step;
                live += share * step * i as f64;
            }
        });
        (blocks, live / blocks)
    };
    // A higher score gives older blocks and fewer live pages. Scores span many orders of magnitude: bisects their
    // logarithm.
    let score = root(-25.0, 5.0, |log| mean - sums(log.exp()).1).exp();
    let lifetime = sums(score).0;
    let mut points = Vec::new();
    generation(pages, score, |age, step, shares| {
        let here = shares.iter().enumerate().filter(|(_, share)| **share > 1e-9);
        points.extend(here.map(|(i, share)| (Aged { live: i as u32, age }, share * step / lifetime)));
    });
    points.reverse();
    Solution { points, turnover: 1.0 / lifetime }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the write amplification of first in, first out at a fraction `rho` of live pages, by Menon's equation,
    /// as in `tests/steady.rs`.
    fn first_in_first_out(rho: f64) -> f64 {
        let u = (0..10_000).fold(0.5_f64, |u, _| ((u - 1.0) / rho).exp());
        1.0 / (1.0 - u)
    }

    fn amplification(policy: GcPolicy, pages: u32, share: f64) -> f64 {
        Solver::new(policy, pages).amplification(share * f64::from(pages))
    }

    #[test]
    fn special_cases_are_the_published_closed_forms() {
        for share in [0.6, 0.8, 0.9] {
            let fifo = first_in_first_out(share);
            let robin = amplification(GcPolicy::RoundRobin, 256, share);
            assert!((robin / fifo - 1.0).abs() < 5e-3, "{share}: round-robin {robin}, closed form {fifo}");
            // A victim drawn by chance is as full as the average, but for wholly live blocks, which are no candidates.
            let random = amplification(GcPolicy::DChoices(1), 2_048, share);
            assert!((random * (1.0 - share) - 1.0).abs() < 0.02, "{share}: drawn by chance {random}");
            // Greedy and first in, first out agree as pages become many; many choices are greedy.
            let [small, large] = [16, 2_048].map(|pages| amplification(GcPolicy::Greedy, pages, share));
            assert!(small < large && large < fifo && large > 0.97 * fifo, "{share}: {small} {large} {fifo}");
            let many = amplification(GcPolicy::DChoices(4_000), 64, share);
            let greedy = amplification(GcPolicy::Greedy, 64, share);
            assert!((many / greedy - 1.0).abs() < 0.01, "{share}: {many} of 4,000 choices, greedy {greedy}");
        }
    }

    #[test]
    fn blocks_have_the_live_pages_that_were_asked_for() {
        let policies = [
            GcPolicy::Greedy,
            GcPolicy::DChoices(1),
            GcPolicy::DChoices(8),
            GcPolicy::CostBenefit,
            GcPolicy::RoundRobin,
        ];
        for policy in policies {
            for (pages, count) in [(4, 10), (64, 200), (512, 1_900)] {
                for percent in [5, 50, 87, 99] {
                    let live = u64::from(pages * count) * percent / 100;
                    let blocks = Solver::new(policy, pages).blocks(count, live, &mut fastrand::Rng::with_seed(1));
                    let sum: u64 = blocks.iter().map(|block| u64::from(block.live)).sum();
                    assert_eq!((blocks.len(), sum), (count as usize, live), "{policy:?}, {pages} pages, {percent} %");
                    assert!(blocks.iter().all(|block| block.live <= pages && block.age >= 0.0));
                }
            }
        }
    }
}
