//! The four rules of the NDS paper (section 4.2), and its rule for overwriting.
//!
//! (1) The first unit of a block goes to a bank drawn at random, and there to the channel with the most room. The paper
//! draws the channel, too; here the lanes stay level, so that a whole block becomes one contiguous extent of the
//! medium. (2) The next unit goes to the channel that the block uses least, in the bank of the unit before. (3) Once
//! the block has a unit in every channel of that bank, the next goes to the bank that it uses least. (4) Once all banks
//! are used, this begins again. A unit that is overwritten stays in its channel and bank. Lanes of the open segment
//! without room are skipped.

use super::{BlockUse, OpenLanes, Placement};
use crate::sim::Chance;

/// The policy `nds`: the NDS paper's placement rules.
#[derive(Debug)]
pub struct Nds;

impl Placement for Nds {
    fn name(&self) -> &'static str {
        "nds"
    }

    fn choose(&mut self, lanes: &OpenLanes, block: &BlockUse, overwrites: Option<usize>, chance: &mut Chance) -> usize {
        if let Some(lane) = overwrites.filter(|&l| lanes.has_room(l)) {
            return lane;
        }
        let Some(last) = block.last else { return first(lanes, chance) };
        let (bank, channel) = (last / lanes.channels, last % lanes.channels);
        let level = (0..lanes.channels).map(|c| block.used[bank * lanes.channels + c]).min().unwrap_or(0);
        let highest = (0..lanes.channels).map(|c| block.used[bank * lanes.channels + c]).max().unwrap_or(0);
        if level < highest || highest == 0 {
            if let Some(lane) = least_used(lanes, block, bank, channel + 1).filter(|&l| block.used[l] == level) {
                return lane;
            }
        }
        // Every channel of this bank has a unit: take the bank that the block uses least, the nearest after this one.
        let banks = lanes.banks();
        let use_of = |b: usize| -> u32 { block.used[b * lanes.channels..(b + 1) * lanes.channels].iter().sum() };
        (1..=banks)
            .map(|i| (bank + i) % banks)
            // In the same bank again: the page after the last one, so that the block remains one extent.
            .filter_map(|b| Some((use_of(b), least_used(lanes, block, b, if b == bank { channel + 1 } else { 0 })?)))
            .min_by_key(|&(used, _)| used)
            .map(|(_, lane)| lane)
            .expect("the caller promises that some lane has room")
    }
}

/// Chooses the lane of a block's first unit (rule 1): a random bank with room, and within it the channel with the most
/// room.
fn first(lanes: &OpenLanes, chance: &mut Chance) -> usize {
    let banks: Vec<usize> =
        (0..lanes.banks()).filter(|b| (0..lanes.channels).any(|c| lanes.has_room(b * lanes.channels + c))).collect();
    let bank = banks[chance.below(banks.len() as u64) as usize];
    (0..lanes.channels)
        .map(|c| bank * lanes.channels + c)
        .min_by_key(|&l| lanes.next_row[l])
        .expect("a bank has a channel")
}

/// Returns the lane in this bank that the block uses least and that has room, searching from channel `from` on; `None`
/// if the bank is full.
fn least_used(lanes: &OpenLanes, block: &BlockUse, bank: usize, from: usize) -> Option<usize> {
    (0..lanes.channels)
        .map(|i| bank * lanes.channels + (from + i) % lanes.channels)
        .filter(|&l| lanes.has_room(l))
        .min_by_key(|&l| block.used[l])
}
