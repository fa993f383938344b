//! Placement policies: the choice of the lane for the next access unit of a building block, one policy in each file. A
//! lane is a channel and a bank of the open segment.
//!
//! A policy knows the lanes of the open segment (how many rows each has left) and how many units of the building block
//! are in each; it chooses a lane with room. It does not know other blocks, other segments or time.

mod log;
mod nds;

pub use log::MediumOrder;
pub use nds::Nds;

use crate::error::{Error, Result};
use crate::flash::Geometry;
use crate::sim::Chance;

/// The lanes of the open segment, with the next free row of each. A lane is the part of a segment on one bank of one
/// channel.
#[derive(Debug, Clone)]
pub struct OpenLanes {
    /// Next free row of each lane; `rows` if the lane is full.
    pub next_row: Vec<u32>,
    /// Number of rows of a lane, each of one page.
    pub rows: u32,
    /// Number of channels; the number of a lane is bank x channels + channel.
    pub channels: usize,
}

impl OpenLanes {
    /// Returns the lanes (one for each bank of each channel) of a segment that has no allocated pages.
    pub fn empty(geometry: &Geometry) -> Self {
        Self {
            next_row: vec![0; geometry.lanes() as usize],
            rows: geometry.pages_per_block,
            channels: geometry.channels as usize,
        }
    }

    /// Whether the lane has room for another page.
    pub fn has_room(&self, lane: usize) -> bool {
        self.next_row[lane] < self.rows
    }

    /// Returns the number of pages that may still be written to the segment.
    pub fn room(&self) -> u64 {
        self.next_row.iter().map(|&r| u64::from(self.rows - r)).sum()
    }

    fn banks(&self) -> usize {
        self.next_row.len() / self.channels
    }
}

/// Number of units of one building block in each lane of the open segment, kept while its new units are placed.
#[derive(Debug)]
pub struct BlockUse {
    /// Number of units of the block in each lane.
    pub used: Vec<u32>,
    /// Lane of the unit that was placed last; `None` before the first.
    pub last: Option<usize>,
}

/// A placement policy: chooses a lane for each new page.
pub trait Placement: Send + std::fmt::Debug {
    /// Returns the name by which the policy is chosen.
    fn name(&self) -> &'static str;

    /// Returns a lane with room for the next unit; `overwrites` is the lane of the unit's old page, `None` for a new
    /// unit. The caller must ensure that some lane has room.
    fn choose(&mut self, lanes: &OpenLanes, block: &BlockUse, overwrites: Option<usize>, chance: &mut Chance) -> usize;
}

/// Returns the policy with this name: `nds` or `log`.
///
/// # Errors
/// [`Error::Invalid`] for an unknown name.
pub fn by_name(name: &str) -> Result<Box<dyn Placement>> {
    match name {
        "nds" => Ok(Box::new(Nds)),
        "log" => Ok(Box::new(MediumOrder::default())),
        _ => Err(Error::invalid(format!("unknown placement policy {name:?}; there are \"nds\" and \"log\""))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Layout;

    /// Places `units` new units of one block; returns their lanes.
    fn place(policy: &mut dyn Placement, lanes: &mut OpenLanes, units: usize, chance: &mut Chance) -> Vec<usize> {
        let mut block = BlockUse { used: vec![0; lanes.next_row.len()], last: None };
        (0..units)
            .map(|_| {
                let lane = policy.choose(lanes, &block, None, chance);
                assert!(lanes.has_room(lane), "{}", policy.name());
                lanes.next_row[lane] += 1;
                block.used[lane] += 1;
                block.last = Some(lane);
                lane
            })
            .collect()
    }

    #[test]
    fn a_block_covers_every_channel_before_any_twice_and_every_bank_before_any_channel_thrice() {
        let g = Geometry { page_bytes: 512, channels: 4, banks: 3, pages_per_block: 8, layout: Layout::NEWEST };
        for name in ["nds", "log"] {
            let mut policy = by_name(name).unwrap();
            let (mut lanes, mut chance) = (OpenLanes::empty(&g), Chance::seeded(1));
            for _ in 0..8 {
                let got = place(policy.as_mut(), &mut lanes, 12, &mut chance);
                for bank in got.chunks(4) {
                    let mut channels: Vec<_> = bank.iter().map(|l| l % 4).collect();
                    channels.sort_unstable();
                    assert_eq!(channels, [0, 1, 2, 3], "{name}: {got:?}");
                    assert!(bank.iter().all(|l| l / 4 == bank[0] / 4), "{name}: one bank at a time: {got:?}");
                }
                let mut all = got.clone();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), 12, "{name}: every bank before any twice: {got:?}");
            }
            assert_eq!(lanes.room(), 0);
        }
    }

    #[test]
    fn an_overwritten_unit_keeps_its_lane_under_the_papers_rules() {
        let g = Geometry { page_bytes: 512, channels: 4, banks: 2, pages_per_block: 8, layout: Layout::NEWEST };
        let lanes = OpenLanes::empty(&g);
        let block = BlockUse { used: vec![1; 8], last: Some(2) };
        let lane = by_name("nds").unwrap().choose(&lanes, &block, Some(5), &mut Chance::seeded(0));
        assert_eq!(lane, 5);
    }

    #[test]
    fn blocks_of_any_size_are_one_extent_in_a_single_bank() {
        let g = Geometry { page_bytes: 512, channels: 8, banks: 1, pages_per_block: 64, layout: Layout::NEWEST };
        for name in ["nds", "log"] {
            let mut policy = by_name(name).unwrap();
            let (mut lanes, mut chance) = (OpenLanes::empty(&g), Chance::seeded(1));
            for units in [3, 20, 9, 1, 17, 8, 30] {
                let before = lanes.next_row.clone();
                let got = place(policy.as_mut(), &mut lanes, units, &mut chance);
                let mut rows = before;
                let pages: Vec<u32> = got
                    .iter()
                    .map(|&lane| {
                        rows[lane] += 1;
                        (rows[lane] - 1) * 8 + lane as u32
                    })
                    .collect();
                assert!(pages.windows(2).all(|w| w[0] + 1 == w[1]), "{name}: {pages:?}");
            }
        }
    }

    #[test]
    fn full_lanes_are_passed_over() {
        let g = Geometry { page_bytes: 512, channels: 2, banks: 2, pages_per_block: 2, layout: Layout::NEWEST };
        for name in ["nds", "log"] {
            let mut lanes = OpenLanes::empty(&g);
            lanes.next_row = vec![2, 2, 2, 1];
            let mut policy = by_name(name).unwrap();
            assert_eq!(place(policy.as_mut(), &mut lanes, 1, &mut Chance::seeded(3)), [3], "{name}");
        }
    }
}
