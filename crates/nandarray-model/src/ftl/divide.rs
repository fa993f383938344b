//! Division by a fixed number as a multiplication (Lemire, Kaser, Kurz, Software: Practice and Experience 2019).
//!
//! Each request splits page numbers into die, plane, block and page several times, by divisors that a geometry fixes
//! and that need not be powers of two.

/// A divisor, with its precomputed inverse.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    by: u32,
    /// 2^64 / by, rounded up; 0 for the divisor 1, since 2^64 does not fit.
    inverse: u64,
}

impl Divisor {
    /// Makes the divisor.
    ///
    /// # Panics
    /// If `by` is 0.
    pub(super) fn new(by: u32) -> Self {
        Self { by, inverse: (u64::MAX / u64::from(by)).wrapping_add(1) }
    }

    /// Returns the quotient and the remainder of `n`.
    pub(super) fn divide(self, n: u32) -> (u32, u32) {
        if self.by == 1 {
            return (n, 0);
        }
        let quotient = ((u128::from(self.inverse) * u128::from(n)) >> 64) as u32;
        (quotient, n - quotient * self.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_division(n in any::<u32>(), by in prop_oneof![1..=u32::MAX, 1u32..5_000]) {
            let multiple = (n / by) * by;
            let edges = [n, 0, by - 1, by, u32::MAX, u32::MAX - by + 1, multiple, multiple.saturating_sub(1)];
            for n in edges {
                prop_assert_eq!(Divisor::new(by).divide(n), (n / by, n % by));
            }
        }
    }
}
