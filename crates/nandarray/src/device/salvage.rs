//! Salvage of a damaged store, beyond replaying the journal up to the damage.
//!
//! Before the replay, each index of the checkpoint that cannot be read is rebuilt as it was when the checkpoint was
//! written ([`rebuild`]), from the out-of-band records of pages: every access unit gets its newest page among those of
//! commands that the checkpoint includes. The journal's updates then apply to it as they would to the original.
//!
//! If records were lost, the state after the replay is an older one, and it may map pages that the lost commands have
//! freed: segments of such pages may have been truncated, reused for metadata, or reused for pages of other units.
//! [`reconcile`] finds these pages, and maps their units to a page that no store has ([`LOST_SEGMENT`]), so that
//! reading them is an error until they are written again. Then live pages are counted from the indexes.
//!
//! The treatment of journals is decided in `recover`, not here.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::Catalog;
use super::oob_scan::{PageCopy, scan, up_to};
use super::snapshots::nowhere;
use super::wire::Directory;
use crate::error::{Error, Result};
#[cfg(doc)]
use crate::flash::geometry::LOST_SEGMENT;
use crate::flash::{Owner, Run, Segment};
use crate::ftl::Ftl;
use crate::stl::index::{BlockMap, Index};
use crate::stl::plan::BlockAt;
use crate::stl::space::{IndexState, Space};
use crate::stl::write::{Gone, remap};

/// The indexes that were rebuilt when a store was opened.
#[derive(Debug, Default)]
pub(super) struct Rebuilt {
    pub(super) indexes: Vec<RebuiltIndex>,
    /// Number of damaged out-of-band records that may belong to pages of these indexes.
    pub(super) unreadable: u64,
}

/// An index that was rebuilt when a store was opened.
#[derive(Debug)]
pub(super) struct RebuiltIndex {
    /// Name of the array.
    pub(super) array: String,
    /// The reason why the index could not be read.
    pub(super) why: String,
    /// Number of building blocks in the index.
    pub(super) blocks: u64,
    /// Number of pages of the array whose records do not name their building block.
    pub(super) unplaced: u64,
}

/// Checks that every index of the checkpoint can be read.
///
/// # Errors
/// That of the first index that cannot be read.
pub(super) fn assert_readable(catalog: &Catalog) -> Result<()> {
    catalog.spaces_and_versions().try_for_each(|space| space.read().map(drop))
}

/// Rebuilds each unreadable index as it was when the checkpoint was written. If the journal is damaged, also pages in
/// segments without live pages at the checkpoint may be mapped: lost records may have moved them there.
pub(super) fn rebuild(ftl: &Ftl, catalog: &Catalog, directory: &Directory, journal_damaged: bool) -> Result<Rebuilt> {
    let mut damaged: Vec<(&Arc<Space>, String)> = Vec::new();
    for space in catalog.spaces_and_versions() {
        match space.read() {
            Ok(_) => {}
            Err(Error::Corrupt(why)) => damaged.push((space, why)),
            Err(e) => return Err(e),
        }
    }
    let wanted: HashMap<_, _> = damaged.iter().map(|(space, _)| (space.origin, *space)).collect();
    let live =
        |segment: Segment| journal_damaged || directory.segments.get(segment as usize).is_some_and(|s| s.live > 0);
    let found = scan(ftl, &wanted, directory.seq, &live)?;
    let mut rebuilt = Rebuilt { indexes: Vec::new(), unreadable: found.unreadable };
    for (space, why) in damaged {
        let mut inner = space.peek_mut();
        let shape = inner.record.shape.clone();
        let mut index = Index::new(space.shape.block.len());
        for ((_, at), units) in found.copies.iter().filter(|((id, _), _)| *id == space.origin) {
            // Access units outside the array were freed when the array shrank.
            if !space.valid(&shape, at).contains(&0) {
                let units = up_to(units, space.newest_seq());
                index.set(at, BlockMap::from_runs(newest_runs(space.coded(), &units)));
            }
        }
        let (array, blocks) = (inner.record.name.clone(), index.blocks());
        let unplaced = found.unplaced.get(&space.origin).copied().unwrap_or(0);
        inner.index = IndexState::Loaded(index);
        rebuilt.indexes.push(RebuiltIndex { array, why, blocks, unplaced });
    }
    Ok(rebuilt)
}

/// Returns the newest page of every access unit of a block; the units of a coded block must be of the same command. An
/// intact copy of the content is preferred, but if there is none the damaged page is mapped: reading it is then an
/// error instead of returning older content.
fn newest_runs(coded: bool, units: &BTreeMap<u32, Vec<PageCopy>>) -> Vec<Run> {
    let newest = |copies: &mut dyn Iterator<Item = &PageCopy>| copies.filter(|c| c.live).map(|c| c.seq).max();
    let of_block = newest(&mut units.values().flatten());
    let page_of = |copies: &[PageCopy]| {
        let seq = if coded { of_block } else { newest(&mut copies.iter()) }?;
        copies.iter().filter(|c| c.seq == seq).max_by_key(|c| (c.intact, c.live)).map(|c| c.ppa)
    };
    let run = |(&unit, copies): (&u32, &Vec<PageCopy>)| page_of(copies).map(|ppa| Run { unit, count: 1, ppa });
    units.iter().filter_map(run).collect()
}

/// Completes a replay: units whose pages were freed by lost records become unreadable (mapped to a page that does not
/// exist), and live pages are counted from the indexes. `metadata` has the segments of journal and checkpoint, `have`
/// is the medium's number of segments.
pub(super) fn reconcile(ftl: &Ftl, catalog: &Catalog, metadata: &[Segment], have: usize) -> Result<()> {
    let geometry = ftl.geometry();
    catalog.separate_versions(&geometry)?;
    let mut live: Vec<Run> = Vec::new();
    // Pages of spaces of which there are several versions; each is counted once.
    let mut counted: HashSet<u64> = HashSet::new();
    for space in catalog.spaces_and_versions() {
        let has_versions = !catalog.kept.of(space.origin).is_empty();
        let mut lost: Vec<(BlockAt, u32)> = Vec::new();
        let mut failed = Ok(());
        let mut inner = space.write()?;
        inner.index().for_each(&mut |at, map| {
            let owner = space.owner(at);
            for run in map.runs() {
                let there = geometry.has_run(run, have as u64) && !metadata.contains(&geometry.segment_of(run.ppa));
                for unit in run.unit..run.end() {
                    let one = Run { unit, count: 1, ppa: run.page_of(unit) };
                    let owner = Owner { unit: unit as u16, ..owner };
                    let gone = if there { ftl.was_reused(one.ppa, owner) } else { Ok(true) };
                    match gone {
                        Ok(true) => lost.push((at.into(), unit)),
                        Ok(false) if has_versions && !counted.insert(one.ppa.0) => {}
                        Ok(false) => match live.last_mut() {
                            Some(last) if (last.end(), last.ppa.0 + u64::from(last.count)) == (unit, one.ppa.0) => {
                                last.count += 1;
                            }
                            _ => live.push(one),
                        },
                        Err(e) => failed = Err(e),
                    }
                }
            }
        });
        failed?;
        for (at, unit) in lost {
            remap(&mut inner, &at, &Gone::Units(vec![unit..unit + 1]), &[nowhere(&geometry, unit)]);
        }
    }
    assert!(live[..].iter().all(|&run| geometry.has_run(run, have as u64)), "live pages lie within {have} segments");
    ftl.with_segments(|s| s.count_anew(have, &live));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Ppa;

    #[test]
    fn the_newest_content_counts_in_whichever_intact_copy() {
        let copy = |seq, ppa, intact, live| PageCopy { seq, ppa: Ppa(ppa), intact, live };
        let units = BTreeMap::from([
            (0, vec![copy(3, 1, true, true), copy(5, 2, false, true), copy(5, 3, true, false)]),
            (1, vec![copy(3, 4, true, true), copy(7, 5, true, false)]),
            (2, vec![copy(2, 6, true, false)]),
            (3, vec![copy(4, 7, false, true), copy(2, 8, true, true)]),
        ]);
        let pages = |coded| newest_runs(coded, &units).iter().map(|r| (r.unit, r.ppa.0)).collect::<Vec<_>>();
        assert_eq!(pages(false), [(0, 3), (1, 4), (3, 7)]);
        assert_eq!(pages(true), [(0, 3)], "units of the newest command only");
    }
}
