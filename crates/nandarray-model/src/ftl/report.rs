//! Counts of flash management: operations by cause, write amplification, wear, blocks.

use super::PageMapped;
use super::blocks::BlockState;
use crate::flash::OpCause;
use std::collections::BTreeMap;

/// Running counts since the last reset, except where stated.
#[derive(Clone, Debug, Default)]
pub(super) struct FtlCounts {
    pub(super) reads: [u64; 4],
    pub(super) programs: [u64; 4],
    pub(super) erases: [u64; 4],
    pub(super) trimmed: u64,
    pub(super) map_hits: u64,
    pub(super) map_misses: u64,
    pub(super) grown_bad: u64,
    /// Number of pages assigned since the device was made: the clock of victim policies that consider age.
    pub(super) given: u64,
}

/// Erase counts of the good blocks.
#[derive(Clone, Debug, PartialEq)]
pub struct Wear {
    /// Lowest erase count.
    pub least: u32,
    /// Highest erase count.
    pub most: u32,
    /// Mean erase count.
    pub mean: f64,
    /// Pairs of an erase count and the number of good blocks with it, in order.
    pub histogram: Vec<(u32, u64)>,
    /// Number of good blocks erased more often than the cells' endurance.
    pub beyond_endurance: u64,
}

/// Counts of conventional flash management, since the device was made or the counts were reset.
#[derive(Clone, Debug, PartialEq)]
pub struct FtlReport {
    /// Number of logical pages.
    pub capacity_pages: u64,
    /// Number of logical pages that over-provisioning alone would leave; higher than `capacity_pages` where reclaim
    /// needs more space.
    pub asked_pages: u64,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Number of pages read, by cause in the order of `OpCause::ALL`.
    pub reads: [u64; 4],
    /// Number of pages programmed, by cause in the order of `OpCause::ALL`; those of the host are the pages that it
    /// wrote.
    pub programs: [u64; 4],
    /// Number of blocks erased, by cause in the order of `OpCause::ALL`.
    pub erases: [u64; 4],
    /// Number of pages programmed per page that the host wrote; 0 if it wrote none.
    pub write_amplification: f64,
    /// Number of logical pages trimmed.
    pub trimmed: u64,
    /// Number of map entries found in the cache; 0 for a map that is not cached.
    pub map_hits: u64,
    /// Number of map entries that had to be read from flash.
    pub map_misses: u64,
    /// Number of logical and map pages that are live now.
    pub live_pages: u64,
    /// Number of live pages that the good blocks can hold in addition to the space that reclaim needs.
    pub usable_pages: u64,
    /// Number of free blocks now.
    pub free_blocks: u64,
    /// Number of free blocks of the plane that has the fewest.
    pub free_blocks_least: u32,
    /// Number of blocks that are bad from the factory.
    pub factory_bad_blocks: u64,
    /// Number of blocks that failed in use.
    pub grown_bad_blocks: u64,
    /// Number of failed blocks that still hold live pages.
    pub retiring_blocks: u64,
    /// Erase counts over the device's life; a reset of the counts does not change them.
    pub wear: Wear,
}

impl PageMapped {
    /// Returns the counts until now.
    pub fn report(&self) -> FtlReport {
        let c = &self.counts;
        let planes = &self.blocks.planes;
        let host = c.programs[OpCause::Host as usize];
        let all: u64 = c.programs.iter().sum();
        let retiring = self.blocks.blocks.iter().filter(|b| b.state == BlockState::Retiring).count();
        FtlReport {
            capacity_pages: self.capacity_pages(),
            asked_pages: self.lpas_asked,
            page_bytes: self.page_bytes(),
            reads: c.reads,
            programs: c.programs,
            erases: c.erases,
            write_amplification: if host == 0 { 0.0 } else { all as f64 / host as f64 },
            trimmed: c.trimmed,
            map_hits: c.map_hits,
            map_misses: c.map_misses,
            live_pages: planes.iter().map(|p| u64::from(p.live)).sum(),
            usable_pages: self.usable_pages(),
            free_blocks: planes.iter().map(|p| u64::from(p.free)).sum(),
            free_blocks_least: planes.iter().map(|p| p.free).min().unwrap_or(0),
            factory_bad_blocks: self.factory_bad,
            grown_bad_blocks: c.grown_bad,
            retiring_blocks: retiring as u64,
            wear: self.wear(),
        }
    }

    fn wear(&self) -> Wear {
        let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
        for block in &self.blocks.blocks {
            if !matches!(block.state, BlockState::Bad | BlockState::Retiring) {
                *counts.entry(block.erases).or_insert(0) += 1;
            }
        }
        let blocks: u64 = counts.values().sum();
        let erases: u64 = counts.iter().map(|(&e, &n)| u64::from(e) * n).sum();
        Wear {
            least: counts.first_key_value().map_or(0, |(&e, _)| e),
            most: counts.last_key_value().map_or(0, |(&e, _)| e),
            mean: if blocks == 0 { 0.0 } else { erases as f64 / blocks as f64 },
            beyond_endurance: counts.range(self.endurance_cycles().saturating_add(1)..).map(|(_, &n)| n).sum(),
            histogram: counts.into_iter().collect(),
        }
    }

    /// Resets the counts of operations, after preconditioning; wear and bad blocks stay.
    pub fn forget_counts(&mut self) {
        let (given, grown_bad) = (self.counts.given, self.counts.grown_bad);
        self.counts = FtlCounts { given, grown_bad, ..FtlCounts::default() };
    }
}
