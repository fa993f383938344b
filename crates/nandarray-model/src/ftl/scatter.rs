//! The state of a device whose logical pages were overwritten at random for long: a formula gives the address of each,
//! from a few bytes a block.
//!
//! The live pages of all blocks, one block after the other, are numbered in a row. A permutation maps logical pages to
//! these numbers: one for the whole device, or one for each plane where striping is static. It is a Feistel network
//! that is applied repeatedly until the result is within the row (Black and Rogaway, CT-RSA 2002). Within a block,
//! live page n lies at `shift + n * step` modulo the pages, with a step and a shift of the block's own. The formula
//! can be inverted. Like the one for a device that was filled in order (`fill`), it holds for a logical page until it
//! is written again, and for a block until it is erased.

use super::fill::Fill;

/// Positions of the live pages within a block: the n-th live page is page `shift + n * step`, modulo the pages of a
/// block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    shift: u16,
    /// Index of the step in [`Scatter::steps`].
    step: u8,
}

/// A random permutation of the numbers below `n`, by a Feistel network.
#[derive(Clone, Debug)]
struct Permutation {
    n: u32,
    half: u32,
    keys: [u64; 4],
}

impl Permutation {
    fn new(n: u32, chance: &mut fastrand::Rng) -> Self {
        let bits = u32::BITS - n.saturating_sub(1).leading_zeros();
        Self { n, half: bits.div_ceil(2).max(1), keys: std::array::from_fn(|_| chance.u64(..)) }
    }

    fn mix(&self, right: u64, key: u64) -> u64 {
        let mixed = (right ^ key).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> (64 - self.half)
    }

    fn forward(&self, x: u32) -> u32 {
        let mask = (1 << self.half) - 1;
        let mut x = u64::from(x);
        loop {
            let (mut left, mut right) = (x >> self.half, x & mask);
            for key in self.keys {
                (left, right) = (right, left ^ self.mix(right, key));
            }
            x = left << self.half | right;
            if x < u64::from(self.n) {
                return x as u32;
            }
        }
    }

    fn backward(&self, x: u32) -> u32 {
        let mask = (1 << self.half) - 1;
        let mut x = u64::from(x);
        loop {
            let (mut left, mut right) = (x >> self.half, x & mask);
            for key in self.keys.iter().rev() {
                (left, right) = (right ^ self.mix(left, *key), left);
            }
            x = left << self.half | right;
            if x < u64::from(self.n) {
                return x as u32;
            }
        }
    }
}

/// Formula that maps logical pages to physical pages, and back, on a device that was overwritten at random for long.
#[derive(Clone, Debug)]
pub(super) struct Scatter {
    pages: u32,
    per_plane: u32,
    /// For each block, the number of live pages in all blocks before it; one more entry holds the total.
    starts: Vec<u32>,
    spreads: Vec<Spread>,
    /// Steps that are coprime to the number of pages of a block, with their modular inverses.
    steps: Vec<(u32, u32)>,
    /// One permutation for the device, or one for each plane.
    permutations: Vec<Permutation>,
}

impl Scatter {
    /// Makes a random formula for blocks with these numbers of live pages; with `own`, each logical page stays in the
    /// plane that static striping assigns to it.
    pub(super) fn new(
        (planes, per_plane, pages): (u32, u32, u32),
        own: bool,
        live: impl Iterator<Item = u32>,
        chance: &mut fastrand::Rng,
    ) -> Self {
        let mut starts = vec![0];
        let mut sum = 0;
        for live in live {
            sum += live;
            starts.push(sum);
        }
        let coprime = |step: &u32| inverse(*step, pages).is_some();
        // The first step is 1. More steps than fit into a byte would not make the blocks more different.
        let mut steps: Vec<u32> = (1..pages.max(2)).filter(coprime).collect();
        if steps.len() > 1 {
            chance.shuffle(&mut steps[1..]);
        }
        steps.truncate(1 << u8::BITS);
        let steps: Vec<_> = steps.into_iter().map(|s| (s, inverse(s, pages).expect("a coprime step"))).collect();
        let spreads = (1..starts.len())
            .map(|_| Spread { shift: chance.u32(0..pages) as u16, step: chance.usize(0..steps.len()) as u8 })
            .collect();
        let of_plane = |plane: u32| starts[((plane + 1) * per_plane) as usize] - starts[(plane * per_plane) as usize];
        let sizes: Vec<u32> = if own { (0..planes).map(of_plane).collect() } else { vec![sum] };
        let permutations = sizes.into_iter().map(|n| Permutation::new(n, chance)).collect();
        Self { pages, per_plane, starts, spreads, steps, permutations }
    }

    /// Makes a block's live pages consecutive, from page `first` on.
    pub(super) fn in_order(&mut self, block: u32, first: u32) {
        self.spreads[block as usize] = Spread { shift: first as u16, step: 0 };
    }

    /// Returns the number of live pages that the formula puts into a block.
    pub(super) fn live(&self, block: u32) -> u32 {
        self.starts[block as usize + 1] - self.starts[block as usize]
    }

    /// Returns the pages of a block, the live ones first.
    pub(super) fn pages_of(&self, block: u32) -> impl Iterator<Item = u32> {
        let Spread { shift, step } = self.spreads[block as usize];
        let (mut at, step, pages) = (u32::from(shift), self.steps[usize::from(step)].0, self.pages);
        (0..pages).map(move |_| {
            let page = at;
            at += step;
            if at >= pages {
                at -= pages;
            }
            page
        })
    }

    /// Returns the physical page of a logical page.
    pub(super) fn page_of(&self, lpa: u32, fill: &Fill) -> u32 {
        let at = if self.permutations.len() > 1 {
            let (row, plane) = fill.row_and_plane(lpa);
            self.starts[(plane * self.per_plane) as usize] + self.permutations[plane as usize].forward(row)
        } else {
            self.permutations[0].forward(lpa)
        };
        let block = self.starts.partition_point(|&start| start <= at) - 1;
        let Spread { shift, step } = self.spreads[block];
        let nth = u64::from(at - self.starts[block]);
        let on = nth * u64::from(self.steps[usize::from(step)].0) + u64::from(shift);
        block as u32 * self.pages + (on % u64::from(self.pages)) as u32
    }

    /// Returns the logical page in page `page` of block `block` (of the device); for a page that was dead from the
    /// beginning, some logical page that does not lie there.
    pub(super) fn lpa_at(&self, block: u32, page: u32, fill: &Fill) -> u32 {
        let Spread { shift, step } = self.spreads[block as usize];
        let on = u64::from(page + self.pages - u32::from(shift)) * u64::from(self.steps[usize::from(step)].1);
        let nth = (on % u64::from(self.pages)) as u32;
        if nth >= self.live(block) {
            return 0;
        }
        let at = self.starts[block as usize] + nth;
        if self.permutations.len() > 1 {
            let plane = block / self.per_plane;
            let first = self.starts[(plane * self.per_plane) as usize];
            fill.lpa_of(self.permutations[plane as usize].backward(at - first), plane)
        } else {
            self.permutations[0].backward(at)
        }
    }
}

/// Returns the inverse of `step` modulo `pages`; `None` if they have a common divisor.
fn inverse(step: u32, pages: u32) -> Option<u32> {
    let (mut a, mut b, mut x, mut y) = (i64::from(step), i64::from(pages), 1_i64, 0_i64);
    while b != 0 {
        let quotient = a / b;
        (a, b) = (b, a - quotient * b);
        (x, y) = (y, x - quotient * y);
    }
    (a == 1).then(|| x.rem_euclid(i64::from(pages)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_permutation_is_one(n in 1u32..3_000, seed in any::<u64>()) {
            let p = Permutation::new(n, &mut fastrand::Rng::with_seed(seed));
            let mut all: Vec<u32> = (0..n).map(|x| p.forward(x)).collect();
            prop_assert!(all.iter().zip(0..).all(|(&to, x)| p.backward(to) == x));
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..n));
        }

        #[test]
        fn an_inverse_is_one(step in 1u32..5_000, pages in 2u32..5_000) {
            let found = inverse(step, pages).map(|i| u64::from(i) * u64::from(step) % u64::from(pages));
            let divides = (2..=step.min(pages)).any(|d| step % d == 0 && pages % d == 0);
            prop_assert_eq!(found, (!divides).then_some(1));
        }
    }

    #[test]
    fn the_largest_permutation_fits_its_numbers() {
        let p = Permutation::new(u32::MAX - 3, &mut fastrand::Rng::with_seed(1));
        for x in [0, 1, 77, 1 << 31, u32::MAX - 4] {
            assert_eq!(p.backward(p.forward(x)), x);
        }
    }
}
