//! Sets of access units of one building block.

use smallvec::SmallVec;
use std::ops::Range;

/// A set of access units, one bit for each.
#[derive(Clone, Debug, Default)]
pub struct UnitSet(SmallVec<[u64; 4]>);

impl UnitSet {
    /// Empties the set, and makes room for units below `units`.
    pub fn clear(&mut self, units: u32) {
        self.0.clear();
        self.0.resize(units.div_ceil(64) as usize, 0);
        debug_assert!(self.0.iter().all(|&word| word == 0), "the set is empty");
    }

    /// Adds a range of units, which must be below the limit of [`Self::clear`].
    pub fn add(&mut self, range: Range<u32>) {
        debug_assert!(range.end as usize <= self.0.len() * 64, "units {range:?} of {}", self.0.len() * 64);
        let mut at = range.start;
        while at < range.end {
            let bit = at % 64;
            let n = (64 - bit).min(range.end - at);
            self.0[(at / 64) as usize] |= (u64::MAX >> (64 - n)) << bit;
            at += n;
        }
    }

    /// Whether the unit is in the set.
    pub fn has(&self, unit: u32) -> bool {
        self.0.get((unit / 64) as usize).is_some_and(|w| w >> (unit % 64) & 1 == 1)
    }

    /// Returns the maximal ranges of consecutive units, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u32>> + '_ {
        let end = self.0.len() as u32 * 64;
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, end, true)?;
            at = self.next(start, end, false).unwrap_or(end);
            Some(start..at)
        })
    }

    /// Returns the first range of consecutive units of the set within `within`; `None` if it has none there.
    pub fn range(&self, within: Range<u32>) -> Option<Range<u32>> {
        let end = within.end.min(self.0.len() as u32 * 64);
        let start = self.next(within.start, end, true).filter(|&start| start < end)?;
        Some(start..self.next(start, end, false).unwrap_or(end).min(end))
    }

    fn next(&self, from: u32, end: u32, set: bool) -> Option<u32> {
        let mut at = from;
        while at < end {
            let word = self.0[(at / 64) as usize];
            let rest = (if set { word } else { !word }) >> (at % 64);
            if rest != 0 {
                return Some(at + rest.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }

    /// Returns all units, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges().flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_set(
            ranges in prop::collection::vec((0u32..300, 0u32..100), 0..8),
            around in (0u32..300, 0u32..200),
        ) {
            let mut set = UnitSet::default();
            set.clear(400);
            let mut model = std::collections::BTreeSet::new();
            for (start, n) in ranges {
                set.add(start..start + n);
                model.extend(start..start + n);
            }
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
            let ranges: Vec<_> = set.ranges().collect();
            let within = around.0..around.0 + around.1;
            let start = within.clone().find(|u| model.contains(u));
            let end = start.map(|start| (start..within.end).find(|u| !model.contains(u)).unwrap_or(within.end));
            prop_assert_eq!(set.range(within), start.zip(end).map(|(start, end)| start..end));
            prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
        }
    }
}
