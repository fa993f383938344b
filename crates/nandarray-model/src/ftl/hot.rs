//! Detection of hot pages, which are written often, by small counters at two hashes of the page number (Hsieh, Kuo,
//! Chang, ACM TOS 2006).
//!
//! A write increments both 4-bit counters of its page; a page is hot if both have reached a quarter of their range.
//! Counters are halved a few at a time, each once in as many writes as 5/4 of the number of counters, so that hot
//! pages cool down.

/// Highest value of a counter.
const MOST: u8 = 15;
/// Value that both counters of a hot page have reached.
const HOT: u8 = 4;

/// Counters of a device's page writes, by which pages that are written often are detected.
#[derive(Clone, Debug)]
pub(super) struct HotData {
    counts: Vec<u8>,
    cooled: usize,
    writes: u64,
}

impl HotData {
    /// Makes counters for a device of `lpas` logical pages: one per 16 pages, at least 4,096 as in the paper, at most
    /// a million.
    pub(super) fn new(lpas: u32) -> Self {
        let counters = (lpas as usize / 16).next_power_of_two().clamp(1 << 12, 1 << 20);
        assert!(counters.is_power_of_two(), "hashes are masked to {counters} counters");
        Self { counts: vec![0; counters], cooled: 0, writes: 0 }
    }

    /// Returns the number of writes in which every counter is halved once.
    pub(super) fn remembers(&self) -> usize {
        self.counts.len() * 5 / 4
    }

    fn slots(&self, lpa: u32) -> [usize; 2] {
        let hash = (u64::from(lpa) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mask = self.counts.len() - 1;
        [(hash >> 40) as usize & mask, (hash >> 16) as usize & mask]
    }

    /// Whether a page is written often.
    pub(super) fn is_hot(&self, lpa: u32) -> bool {
        self.slots(lpa).iter().all(|&slot| self.counts[slot] >= HOT)
    }

    /// Counts a write of a page, and halves another counter in four of five writes.
    pub(super) fn written(&mut self, lpa: u32) {
        for slot in self.slots(lpa) {
            let count = &mut self.counts[slot];
            *count = (*count + 1).min(MOST);
        }
        // Four counters halved in five writes are all counters in 5/4 as many writes.
        self.writes += 1;
        if !self.writes.is_multiple_of(5) {
            self.counts[self.cooled] /= 2;
            self.cooled = (self.cooled + 1) & (self.counts.len() - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_written_often_becomes_hot_and_cools_down() {
        let mut hot = HotData::new(1 << 16);
        let mut chance = fastrand::Rng::with_seed(1);
        for n in 0..40_000 {
            hot.written(if n % 2 == 0 { chance.u32(0..64) } else { chance.u32(64..1 << 16) });
        }
        assert!((0..64).all(|lpa| hot.is_hot(lpa)));
        let cold = (64..1 << 16).filter(|&lpa| hot.is_hot(lpa)).count();
        assert!(cold < 6_000, "{cold} of 65,472 cold pages taken for hot");
        for _ in 0..80_000 {
            hot.written(chance.u32(64..1 << 16));
        }
        let still = (0..64).filter(|&lpa| hot.is_hot(lpa)).count();
        assert!(still < 48, "{still} of 64 still hot");
    }
}
