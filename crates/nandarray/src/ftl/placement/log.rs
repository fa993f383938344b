//! Places pages in the order of the medium: in the next lane, row by row, whatever block they belong to.
//!
//! For whole blocks this satisfies rules 2 to 4 of the NDS paper, since adjacent lanes are in adjacent channels. It
//! keeps everything that is written in sequence in one extent, but gives up the rule that an overwritten unit stays in
//! its lane.

use super::{BlockUse, OpenLanes, Placement};
use crate::sim::Chance;

/// The policy `log`: appends in the order of the medium.
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
            self.next = 0; // a new segment is filled from its beginning
        }
        let lane = (0..n).map(|i| (self.next + i) % n).find(|&l| lanes.has_room(l));
        let lane = lane.expect("the caller promises that some lane has room");
        self.next = lane + 1;
        lane
    }
}
