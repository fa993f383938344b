//! Wear levelling: which free block is opened next, and when a cold block is emptied for the sake of its erase count.
//!
//! The rules only; the callers keep erase counts, and the store's `wear` keeps them across openings.

use super::ReclaimView;

/// The rules of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WearLevelling {
    /// Dynamic wear levelling: the free block with the lowest erase count is opened next.
    pub least_worn_first: bool,
    /// Static wear levelling: difference of erase counts from which cold blocks are emptied; `None` never does.
    pub threshold: Option<u32>,
}

impl WearLevelling {
    /// Rank of a free block, the lowest to be opened next: its erase count, or otherwise the caller's own order.
    pub fn rank(self, erases: u32, order: u64) -> u64 {
        if self.least_worn_first { erases.into() } else { order }
    }

    /// Whether erase counts have drifted apart.
    pub fn is_due(self, least: u32, most: u32) -> bool {
        assert!(least <= most, "a least erase count of {least}, a most of {most}");
        self.threshold.is_some_and(|threshold| most - least > threshold)
    }

    /// The least worn closed block, if it is cold: behind the most worn block, which has `most` erases, by more than
    /// the threshold. It may be wholly live; that is why it is cold.
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
