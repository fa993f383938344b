//! The scan of out-of-band records: for every access unit, all pages whose records name it, which are newer and older
//! versions and copies that reclaim left behind.
//!
//! The callers decide which page is a unit's content: `repair` in an open store, `salvage` while a store is opened.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::Result;
use crate::flash::{Ppa, Segment, SegmentKind};
use crate::ftl::Ftl;
use crate::stl::plan::BlockAt;
use crate::stl::space::{Space, SpaceId, owner_space, unpack};

/// A page that a scan found for an access unit, because its out-of-band record names the unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageCopy {
    /// Sequence number of the command that wrote the page's content.
    pub(super) seq: u64,
    pub(super) ppa: Ppa,
    /// Whether the page matches the checksum in its record.
    pub(super) intact: bool,
    /// Whether the page's segment may hold mapped pages.
    pub(super) live: bool,
}

/// Result of a scan: the pages of each access unit of the spaces that were searched for.
#[derive(Debug, Default)]
pub(super) struct OobScan {
    pub(super) copies: BTreeMap<(SpaceId, BlockAt), BTreeMap<u32, Vec<PageCopy>>>,
    /// Number of damaged records in segments with live pages; the owners of their pages are unknown.
    pub(super) unreadable: u64,
    /// Number of pages of each space, in segments with live pages, whose records only have a hash of the building
    /// block's coordinate.
    pub(super) unplaced: BTreeMap<SpaceId, u64>,
}

/// Returns the pages of a block that commands up to number `newest` wrote.
pub(super) fn up_to(units: &BTreeMap<u32, Vec<PageCopy>>, newest: u64) -> BTreeMap<u32, Vec<PageCopy>> {
    let of_unit = |copies: &Vec<PageCopy>| copies.iter().filter(|copy| copy.seq <= newest).copied().collect();
    let all = units.iter().map(|(&unit, copies)| (unit, of_unit(copies)));
    all.filter(|(_, copies): &(u32, Vec<PageCopy>)| !copies.is_empty()).collect()
}

/// Reads the out-of-band records of all segments and returns the pages of these spaces, by the numbers in records, that
/// commands up to number `newest` wrote. `live` is whether a segment may hold mapped pages.
pub(super) fn scan(
    ftl: &Ftl,
    concerned: &HashMap<SpaceId, &Arc<Space>>,
    newest: u64,
    live: &dyn Fn(Segment) -> bool,
) -> Result<OobScan> {
    let mut found = OobScan::default();
    if concerned.is_empty() {
        return Ok(found);
    }
    let geometry = ftl.geometry();
    let mut bytes = vec![0; geometry.page_bytes as usize];
    for segment in 0..ftl.with_segments(|s| s.len()) as Segment {
        if ftl.header_of(segment)?.is_some_and(|h| h.kind() != Some(SegmentKind::Data)) {
            continue;
        }
        // A segment without live pages holds only superseded data: its intact pages count as copies, its damaged ones
        // are ignored.
        let live = live(segment);
        if live {
            found.unreadable += ftl.unreadable_records_of(segment)?;
        }
        for (page, record) in ftl.oob_of_segment(segment)?.into_iter().enumerate() {
            let Some(record) = record.filter(|r| r.seq() <= newest) else { continue };
            let (id, spilled) = owner_space(&record.owner());
            let Some(space) = concerned.get(&id) else { continue };
            let at = unpack(&record.owner().key, space.shape.block.len()).filter(|_| !spilled);
            let Some(at) = at else {
                *found.unplaced.entry(id).or_default() += u64::from(live);
                continue;
            };
            let (unit, ppa) = (u32::from(record.owner().unit), geometry.ppa(segment, page as u32));
            ftl.media().read_at(geometry.page_offset(ppa), &mut bytes)?;
            let copy = PageCopy { seq: record.seq(), ppa, intact: record.matches(&bytes), live };
            if copy.intact || live {
                found.copies.entry((id, at)).or_default().entry(unit).or_default().push(copy);
            }
        }
    }
    Ok(found)
}
