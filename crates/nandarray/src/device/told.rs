//! The scan of out-of-band records: for every unit the pages whose records name it, newer and older ones, and copies
//! that reclaim left behind.
//!
//! Which of them is a unit's content is decided by whoever asks: `repair` in a store that is open, `salvage` in one
//! that is being opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::Result;
use crate::flash::{Ppa, Segment, SegmentKind};
use crate::ftl::Ftl;
use crate::stl::plan::BlockAt;
use crate::stl::space::{Space, SpaceId, owner_space, unpack};

/// A page whose record names a unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    /// Number of the command that wrote its content.
    pub(super) seq: u64,
    pub(super) ppa: Ppa,
    /// Whether it matches its record.
    pub(super) intact: bool,
    /// Whether its segment may hold pages that are mapped.
    pub(super) live: bool,
}

/// The units of spaces as out-of-band records name them, for the spaces that need them.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) copies: BTreeMap<(SpaceId, BlockAt), BTreeMap<u32, Vec<Copy>>>,
    /// Records, in segments with live pages, that are there and cannot be read: whose pages they tell of nobody knows.
    pub(super) unreadable: u64,
    /// Pages of each space, in segments with live pages, whose records have no room for their building block's
    /// coordinate.
    pub(super) unplaced: BTreeMap<SpaceId, u64>,
}

/// Reads the records of all segments for pages of these spaces whose content is of no command behind `newest`. `live`
/// tells whether a segment may hold pages that are mapped.
pub(super) fn told(
    ftl: &Ftl,
    concerned: &HashMap<SpaceId, &Arc<Space>>,
    newest: u64,
    live: &dyn Fn(Segment) -> bool,
) -> Result<Told> {
    let mut told = Told::default();
    if concerned.is_empty() {
        return Ok(told);
    }
    let geometry = ftl.geometry();
    let mut bytes = vec![0; geometry.page_bytes as usize];
    for segment in 0..ftl.with_segments(|s| s.len()) as Segment {
        if ftl.header_of(segment)?.is_some_and(|h| h.kind() != Some(SegmentKind::Data)) {
            continue;
        }
        // What has no live page is obsolete: intact pages may be copies, damaged ones are nobody's newest.
        let live = live(segment);
        if live {
            told.unreadable += ftl.unreadable_records_of(segment)?;
        }
        for (page, record) in ftl.oob_of_segment(segment)?.into_iter().enumerate() {
            let Some(record) = record.filter(|r| r.seq() <= newest) else { continue };
            let (id, spilled) = owner_space(&record.owner());
            let Some(space) = concerned.get(&id) else { continue };
            let at = unpack(&record.owner().key, space.shape.block.len()).filter(|_| !spilled);
            let Some(at) = at else {
                *told.unplaced.entry(id).or_default() += u64::from(live);
                continue;
            };
            let (unit, ppa) = (u32::from(record.owner().unit), geometry.ppa(segment, page as u32));
            ftl.media().read_at(geometry.page_offset(ppa), &mut bytes)?;
            let copy = Copy { seq: record.seq(), ppa, intact: record.matches(&bytes), live };
            if copy.intact || live {
                told.copies.entry((id, at)).or_default().entry(unit).or_default().push(copy);
            }
        }
    }
    Ok(told)
}
