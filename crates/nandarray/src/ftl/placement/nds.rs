//! The four rules of the NDS paper (section 4.2), and its rule for overwriting.
//!
//! (1) The first unit of a block goes to a bank drawn by chance, there to the emptiest channel: where the paper draws
//! the channel, too, this keeps the lanes level, so that a whole block becomes one contiguous extent of the medium. (2)
//! The next goes to the channel that the block uses least, in the bank of the unit before. (3) Once the block has a
//! unit on every channel of that bank, to the bank it uses least. (4) With every bank in use, around again. A unit that
//! is overwritten stays on its channel and bank. A lane without room in the open segment is passed over.

use super::{BlockUse, OpenLanes, Placement};
use crate::sim::Chance;

/// The paper's placement rules.
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
        // Every channel of this bank has its unit: the bank least used by the block, nearest behind this one.
        let banks = lanes.banks();
        let use_of = |b: usize| -> u32 { block.used[b * lanes.channels..(b + 1) * lanes.channels].iter().sum() };
        (1..=banks)
            .map(|i| (bank + i) % banks)
            // Around again in the same bank: the page behind the last one, so that the block remains one extent.
            .filter_map(|b| Some((use_of(b), least_used(lanes, block, b, if b == bank { channel + 1 } else { 0 })?)))
            .min_by_key(|&(used, _)| used)
            .map(|(_, lane)| lane)
            .expect("the caller promises that some lane has room")
    }
}

/// Rule 1.
fn first(lanes: &OpenLanes, chance: &mut Chance) -> usize {
    let banks: Vec<usize> =
        (0..lanes.banks()).filter(|b| (0..lanes.channels).any(|c| lanes.has_room(b * lanes.channels + c))).collect();
    let bank = banks[chance.below(banks.len() as u64) as usize];
    (0..lanes.channels)
        .map(|c| bank * lanes.channels + c)
        .min_by_key(|&l| lanes.next_row[l])
        .expect("a bank has a channel")
}

/// The lane with room that the block uses least in this bank, from this channel on and around.
fn least_used(lanes: &OpenLanes, block: &BlockUse, bank: usize, from: usize) -> Option<usize> {
    (0..lanes.channels)
        .map(|i| bank * lanes.channels + (from + i) % lanes.channels)
        .filter(|&l| lanes.has_room(l))
        .min_by_key(|&l| block.used[l])
}
