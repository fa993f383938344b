//! Pages in the order of the medium: the next lane, row by row, whatever the block.
//!
//! Satisfies rules 2 to 4 of the NDS paper for whole blocks, since lanes side by side are channels side by side, and
//! keeps everything that is written one after the other in one extent; gives up the rule that an overwritten unit stays
//! on its lane.

use super::{BlockUse, OpenLanes, Placement};
use crate::sim::Chance;

/// Append in the order of the medium.
#[derive(Debug, Default)]
pub struct MediumOrder {
    next: usize,
}

impl Placement for MediumOrder {
    fn name(&self) -> &'static str {
        "log"
    }

    fn choose(
        &mut self,
        lanes: &OpenLanes,
        _block: &BlockUse,
        _overwrites: Option<usize>,
        _chance: &mut Chance,
    ) -> usize {
        let n = lanes.next_row.len();
        if lanes.next_row.iter().all(|&r| r == 0) {
            self.next = 0; // a fresh segment begins at its beginning
        }
        let lane = (0..n).map(|i| (self.next + i) % n).find(|&l| lanes.has_room(l));
        let lane = lane.expect("the caller promises that some lane has room");
        self.next = lane + 1;
        lane
    }
}
