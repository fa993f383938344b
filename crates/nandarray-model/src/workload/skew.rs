//! Skew of random places: uniform, Zipf, or hot and cold. A place is an offset at which a request may begin.
//!
//! A skew first draws a rank (0 is the hottest) and then maps the rank to a place by a fixed permutation, so that hot
//! places are spread over the whole working set. Nothing is stored per place: a working set may have any size.
//! Logarithms and powers come from `libm`, not from the machine, so that a seed gives the same places everywhere.

use serde::{Deserialize, Serialize};

use crate::workload::WorkloadError;

/// The distribution of requests over the working set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Skew {
    /// All places are equally frequent.
    #[default]
    Uniform,
    /// The frequency of the place of rank r (from 1) is proportional to 1 / r^theta.
    Zipf {
        /// Exponent, above 0 and at most 5; 0.99 is YCSB's.
        theta: f64,
    },
    /// A fraction of the places, the hot ones, gets a fraction of the requests; places are equally frequent within the
    /// hot ones, and within the cold ones.
    HotCold {
        /// Fraction of the places that are hot, above 0 and below 1.
        space: f64,
        /// Fraction of the requests that go to hot places, from 0 to 1.
        requests: f64,
    },
}

impl Skew {
    /// Checks that the numbers are within their ranges.
    ///
    /// # Errors
    /// Names the number that is not, and its range.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let wrong = |what: &str, value: f64, range: &str| {
            Err(WorkloadError::Parameter(format!("{what} must be {range}, not {value}")))
        };
        match *self {
            Self::Zipf { theta } if !(theta > 0.0 && theta <= 5.0) => {
                wrong("theta of a Zipf skew", theta, "above 0 and at most 5")
            }
            Self::HotCold { space, .. } if !(space > 0.0 && space < 1.0) => {
                wrong("the hot share of the space", space, "above 0 and below 1")
            }
            Self::HotCold { requests, .. } if !(0.0..=1.0).contains(&requests) => {
                wrong("the hot share of the requests", requests, "from 0 to 1")
            }
            _ => Ok(()),
        }
    }
}

/// Sampler of random places.
#[derive(Clone, Debug)]
pub(crate) struct PlaceSampler {
    count: u64,
    how: Distribution,
}

#[derive(Clone, Debug)]
enum Distribution {
    Uniform,
    Zipf(Zipf),
    HotCold { hot: u64, requests: f64 },
}

impl PlaceSampler {
    /// Makes a sampler of `count` places, at least 1, with a checked skew.
    pub(crate) fn new(count: u64, skew: Skew) -> Self {
        let how = match skew {
            Skew::Uniform => Distribution::Uniform,
            Skew::Zipf { theta } => Distribution::Zipf(Zipf::new(count, theta)),
            // At least one hot and one cold place, if there are two places.
            Skew::HotCold { space, requests } => {
                let hot = ((count as f64 * space).round() as u64).clamp(1, (count - 1).max(1));
                Distribution::HotCold { hot, requests }
            }
        };
        Self { count, how }
    }

    /// Draws a place, from 0 to the number of places less 1.
    pub(crate) fn draw(&self, chance: &mut fastrand::Rng) -> u64 {
        let rank = match &self.how {
            Distribution::Uniform => return chance.u64(..self.count),
            Distribution::Zipf(zipf) => zipf.draw(chance) - 1,
            Distribution::HotCold { hot, requests } => {
                if *hot == self.count || chance.f64() < *requests {
                    chance.u64(..*hot)
                } else {
                    chance.u64(*hot..self.count)
                }
            }
        };
        scatter(rank, self.count)
    }
}

/// Maps a rank below `n` to a place by a fixed pseudo-random permutation: invertible steps on as many bits as `n`
/// needs, repeated until the result is below `n` (fewer than two rounds on average).
fn scatter(rank: u64, n: u64) -> u64 {
    let bits = 64 - (n - 1).leading_zeros();
    if bits < 2 {
        return rank;
    }
    let mask = u64::MAX >> (64 - bits);
    let shift = bits.div_ceil(2);
    let mut x = rank;
    loop {
        // Multiplying by odd numbers (from PCG and SplitMix64) and xor-shifting by half of the bits are invertible.
        x = x.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F) & mask;
        x ^= x >> shift;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9) & mask;
        x ^= x >> shift;
        if x < n {
            return x;
        }
    }
}

/// Zipf's distribution by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from
/// monotone discrete distributions", 1996): constant time per draw, without tables.
#[derive(Clone, Debug)]
struct Zipf {
    n: f64,
    theta: f64,
    h_first: f64,
    h_last: f64,
    accept: f64,
}

impl Zipf {
    fn new(n: u64, theta: f64) -> Self {
        let n = n as f64;
        let mut zipf = Self { n, theta, h_first: 0.0, h_last: 0.0, accept: 0.0 };
        zipf.h_first = zipf.h_integral(1.5) - 1.0;
        zipf.h_last = zipf.h_integral(n + 0.5);
        zipf.accept = 2.0 - zipf.h_integral_inverse(zipf.h_integral(2.5) - zipf.h(2.0));
        zipf
    }

    /// Draws a rank from 1 to n.
    fn draw(&self, chance: &mut fastrand::Rng) -> u64 {
        loop {
            let u = self.h_last + chance.f64() * (self.h_first - self.h_last);
            let x = self.h_integral_inverse(u);
            let k = (x + 0.5).floor().clamp(1.0, self.n);
            if k - x <= self.accept || u >= self.h_integral(k + 0.5) - self.h(k) {
                return k as u64;
            }
        }
    }

    fn h(&self, x: f64) -> f64 {
        libm::exp(-self.theta * libm::log(x))
    }

    /// Returns the integral of the unnormalised density `h(x) = 1 / x^theta`: (x^(1-theta) - 1) / (1-theta), in a form
    /// that also holds for theta = 1.
    fn h_integral(&self, x: f64) -> f64 {
        let log = libm::log(x);
        let t = (1.0 - self.theta) * log;
        let factor = if t.abs() > 1e-8 { libm::expm1(t) / t } else { 1.0 + t * 0.5 * (1.0 + t / 3.0) };
        factor * log
    }

    fn h_integral_inverse(&self, x: f64) -> f64 {
        let t = (x * (1.0 - self.theta)).max(-1.0);
        let factor = if t.abs() > 1e-8 { libm::log1p(t) / t } else { 1.0 - t * (0.5 - t * (1.0 / 3.0 - 0.25 * t)) };
        libm::exp(factor * x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn scattering_is_one_to_one_and_leaves_no_order() {
        for n in [1, 2, 3, 4, 5, 100, 255, 256, 257, 5000] {
            let mut hit = vec![false; n as usize];
            for rank in 0..n {
                assert!(!std::mem::replace(&mut hit[scatter(rank, n) as usize], true), "{n}");
            }
        }
        let first: Vec<u64> = (0..1000).map(|r| scatter(r, 1_000_000)).collect();
        let low = first.iter().filter(|&&p| p < 500_000).count();
        assert!((400..600).contains(&low), "{low} of 1000 in the lower half");
        assert!(first.windows(2).filter(|w| w[0].abs_diff(w[1]) < 1000).count() < 20);
    }

    #[test]
    fn zipf_draws_in_proportion() {
        for (n, theta) in [(10u64, 0.5), (1000, 0.99), (1000, 1.0), (50, 2.0)] {
            let zipf = Zipf::new(n, theta);
            let mut chance = fastrand::Rng::with_seed(1);
            let draws = 400_000;
            let mut counts = vec![0u32; n as usize + 1];
            for _ in 0..draws {
                counts[zipf.draw(&mut chance) as usize] += 1;
            }
            let norm: f64 = (1..=n).map(|k| (k as f64).powf(-theta)).sum();
            for k in [1, 2, 3, 5, 10] {
                let want = f64::from(draws) * (k as f64).powf(-theta) / norm;
                let got = f64::from(counts[k]);
                assert!(
                    (got - want).abs() < 5.0 * want.sqrt() + 1.0,
                    "n {n} theta {theta} rank {k}: {got}, not {want}"
                );
            }
        }
    }

    #[test]
    fn hot_places_get_their_share() {
        let places = PlaceSampler::new(1000, Skew::HotCold { space: 0.2, requests: 0.8 });
        let mut chance = fastrand::Rng::with_seed(2);
        let hot: std::collections::HashSet<u64> = (0..200).map(|r| scatter(r, 1000)).collect();
        let hits = (0..100_000).filter(|_| hot.contains(&places.draw(&mut chance))).count();
        assert!((79_000..81_000).contains(&hits), "{hits}");
    }

    #[test]
    fn ranges_are_named() {
        for (skew, says) in [
            (Skew::Zipf { theta: 0.0 }, "theta of a Zipf skew must be above 0 and at most 5, not 0"),
            (Skew::Zipf { theta: f64::NAN }, "NaN"),
            (Skew::HotCold { space: 1.0, requests: 0.5 }, "the hot share of the space must be"),
            (Skew::HotCold { space: 0.5, requests: 1.5 }, "the hot share of the requests must be from 0 to 1, not 1.5"),
        ] {
            assert!(skew.check().unwrap_err().to_string().contains(says), "{skew:?}");
        }
    }

    proptest! {
        #[test]
        fn every_draw_is_a_place(count in 1u64..1 << 40, theta in 0.01f64..5.0, space in 0.001f64..0.999, seed: u64) {
            let mut chance = fastrand::Rng::with_seed(seed);
            for skew in [Skew::Uniform, Skew::Zipf { theta }, Skew::HotCold { space, requests: 0.9 }] {
                let places = PlaceSampler::new(count, skew);
                for _ in 0..50 {
                    prop_assert!(places.draw(&mut chance) < count);
                }
            }
        }
    }
}
