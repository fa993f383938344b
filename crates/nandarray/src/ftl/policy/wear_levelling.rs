//! Wear levelling: decides which free block is opened next, and when a cold block is emptied because of its erase
//! count.
//!
//! Only the rules are here; the callers keep erase counts, and the store's `wear` keeps them while the store is closed.

use super::ReclaimView;

/// The rules of wear levelling of a store or device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WearLevelling {
    /// Dynamic wear levelling: whether the free block with the lowest erase count is opened next.
    pub least_worn_first: bool,
    /// Static wear levelling: cold blocks are emptied if erase counts differ by more than this; `None` never does so.
    pub threshold: Option<u32>,
}

impl WearLevelling {
    /// Returns the rank of a free block: its erase count, or the caller's own `order` if wear is not levelled
    /// dynamically. The block with the lowest rank is opened next.
    pub fn rank(self, erases: u32, order: u64) -> u64 {
        if self.least_worn_first { erases.into() } else { order }
    }

    /// Whether the difference of the lowest and highest erase count exceeds the threshold.
    pub fn is_due(self, least: u32, most: u32) -> bool {
        assert!(least <= most, "a least erase count of {least}, a most of {most}");
        self.threshold.is_some_and(|threshold| most - least > threshold)
    }

    /// Returns the closed block with the fewest erases if it is cold, otherwise `None`: a block is cold if its erases
    /// are fewer than `most`, those of the most worn block, by more than the threshold. All pages of a cold block may
    /// be live.
    pub fn cold(self, blocks: &dyn ReclaimView, most: u32) -> Option<u32> {
        self.threshold?;
        let closed = (0..blocks.count()).filter_map(|block| Some((blocks.closed(block)?.erases, block)));
        closed.min().filter(|&(erases, _)| self.is_due(erases, most)).map(|(_, block)| block)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Listed;
    use super::*;

    #[test]
    fn the_least_worn_block_is_cold_once_it_is_far_behind() {
        let blocks = [Some((9, 0)), Some((4, 0)), None, Some((16, 0))];
        let levelling = WearLevelling { least_worn_first: true, threshold: Some(6) };
        assert_eq!(levelling.cold(&Listed(&blocks, 0), 10), None, "six behind is not more than six");
        assert_eq!(levelling.cold(&Listed(&blocks, 0), 11), Some(1));
        assert_eq!(WearLevelling::default().cold(&Listed(&blocks, 0), 1_000), None);
        assert_eq!((levelling.rank(3, 70), WearLevelling::default().rank(3, 70)), (3, 70));
    }
}
