//! Staged writes: the changes of one block, and their application to a space's index and write buffer.
//!
//! Nothing here can fail: staging has written the pages, and applying only maps them. The caller holds the space's
//! lock.

use std::collections::BTreeMap;
use std::ops::Range;

use super::buffer::{BufferedBlock, BufferedUnit};
use crate::flash::{Ppa, Run};
use crate::stl::index::BlockMap;
use crate::stl::plan::BlockAt;
use crate::stl::space::{Inner, unshared};

/// The access units of a block that lose their former content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// All units: the whole block is replaced.
    All,
    /// The units of these ranges.
    Units(Vec<Range<u32>>),
}

impl Gone {
    /// Whether the set includes a unit.
    pub fn has(&self, unit: u32) -> bool {
        match self {
            Self::All => true,
            Self::Units(ranges) => ranges.iter().any(|r| r.contains(&unit)),
        }
    }

    /// Returns the union of both sets.
    fn and(self, other: Self) -> Self {
        let (Self::Units(mut all), Self::Units(more)) = (self, other) else { return Self::All };
        all.extend(more);
        all.sort_unstable_by_key(|r| r.start);
        all.dedup_by(|next, last| {
            let joins = next.start <= last.end;
            if joins {
                last.end = last.end.max(next.end);
            }
            joins
        });
        debug_assert!(all.windows(2).all(|w| w[0].end < w[1].start), "units in order, apart: {all:?}");
        Self::Units(all)
    }
}

/// The staged changes of one block by a write.
#[derive(Debug)]
pub struct Staged {
    /// Coordinate of the block, in blocks.
    pub at: BlockAt,
    /// Sequence number of the command, which the block's new pages carry.
    pub seq: u64,
    /// Units that lose their former content.
    pub gone: Gone,
    /// Runs of new pages; units of `gone` without a page become fill.
    pub runs: Vec<Run>,
    /// Units of a plain block to put in the write buffer.
    pub buffer: Vec<(u32, BufferedUnit)>,
    /// A whole decoded block to put in the write buffer; `None` if the block is appended, or not coded.
    pub buffer_block: Option<Box<[u8]>>,
}

/// Estimated bytes that a run of pages, or of units that lose their content, takes in a journal record.
pub const RUN_JOURNAL_BYTES: u64 = 12;

impl Staged {
    /// Estimates the bytes that the changes take in a journal record.
    pub fn journal_bytes(&self) -> u64 {
        let gone = match &self.gone {
            Gone::All => 1,
            Gone::Units(units) => units.len(),
        };
        32 + 10 * self.at.len() as u64 + RUN_JOURNAL_BYTES * (gone + self.runs.len() + self.buffer.len()) as u64
    }

    /// Creates the change of a block that loses all its content.
    pub fn releasing(at: BlockAt, seq: u64) -> Self {
        Self { at, seq, gone: Gone::All, runs: vec![], buffer: vec![], buffer_block: None }
    }
}

/// The changes made by applying a staged block, for the journal.
#[derive(Debug)]
pub struct Applied {
    /// Coordinate of the block, in blocks.
    pub at: BlockAt,
    /// Sequence number of the command.
    pub seq: u64,
    /// Units that lost their former content.
    pub gone: Gone,
    /// Runs of new pages.
    pub runs: Vec<Run>,
    /// Number of pages that the block lost.
    pub lost: u64,
    /// Runs of those pages that are not mapped any more, neither here nor in a snapshot.
    pub dead: Vec<Run>,
}

/// Merges two stagings of one block by one command; also returns the pages of the first one that the second replaces.
pub fn overlay(before: Option<Staged>, after: Staged) -> (Staged, Vec<Run>) {
    let Some(before) = before else { return (after, vec![]) };
    assert_eq!(before.at, after.at, "the block that was staged twice");
    let Some(map) = BlockMap::from_runs(before.runs) else {
        let gone = before.gone.and(after.gone);
        return (Staged { gone, ..after }, vec![]);
    };
    let dropped = lost(&map, &after.gone);
    let both = BlockMap::replaced(Some(&map), |u| after.gone.has(u), &after.runs);
    let runs = both.iter().flat_map(BlockMap::runs).collect();
    (Staged { gone: before.gone.and(after.gone), runs, ..after }, dropped)
}

/// Applies the staged changes of one block to a space's state.
pub fn apply(inner: &mut Inner, staged: Staged) -> Applied {
    let Staged { at, seq, gone, runs, buffer, buffer_block } = staged;
    assert!(buffer.is_empty() || buffer_block.is_none(), "block {at:?} is buffered by units and as a whole");
    debug_assert!(
        runs.iter().all(|run| gone.has(run.unit) && gone.has(run.end() - 1)),
        "new pages replace others: {runs:?}"
    );
    match inner.write_buffer.get_mut(&at) {
        Some(BufferedBlock::Units(units)) => {
            units.retain(|unit, _| !gone.has(*unit));
            if units.is_empty() {
                inner.write_buffer.remove(&at);
            }
        }
        Some(BufferedBlock::Block(_)) if gone == Gone::All => {
            inner.write_buffer.remove(&at);
        }
        _ => {}
    }
    if let Some(block) = buffer_block {
        inner.write_buffer.insert(at.clone(), BufferedBlock::Block(block));
    }
    if !buffer.is_empty() {
        let entry = inner.write_buffer.entry(at.clone()).or_insert_with(|| BufferedBlock::Units(Default::default()));
        let BufferedBlock::Units(units) = entry else { unreachable!("plain spaces buffer units") };
        for (unit, mut new) in buffer {
            new.written += units.get(&unit).map_or(0, |old| old.written);
            units.insert(unit, new);
        }
    }
    let Lost { pages: lost, dead } = remap(inner, &at, &gone, &runs);
    Applied { at, seq, gone, runs, lost, dead }
}

/// The pages that a block lost.
#[derive(Debug, Default)]
pub struct Lost {
    /// Number of the pages.
    pub pages: u64,
    /// Runs of those pages that the next older version does not have.
    pub dead: Vec<Run>,
}

/// Replaces pages of a block in the index: units in `gone` lose their page, `runs` are added. Returns the lost pages.
pub fn remap(inner: &mut Inner, at: &[u64], gone: &Gone, runs: &[Run]) -> Lost {
    if *gone == Gone::Units(vec![]) && runs.is_empty() {
        return Lost::default();
    }
    let index = inner.index_mut();
    let old = index.get(at);
    let dead = old.map_or(vec![], |map| lost(map, gone));
    let new = BlockMap::replaced(old, |u| gone.has(u), runs);
    index.set(at, new);
    let pages = dead.iter().map(|run| u64::from(run.count)).sum();
    let dead = match &inner.older {
        Some(older) if pages > 0 => unshared(dead.into_iter(), older.peek().index().get(at)),
        _ => dead,
    };
    Lost { pages, dead }
}

/// Maps units of a block to other pages with the same content, where they have the pages `from`: those of a run of `to`
/// are at the same units. Returns the units that were mapped anew.
pub fn substitute(inner: &mut Inner, at: &[u64], from: &[Run], to: &[Run]) -> Vec<u32> {
    let Some(map) = inner.index().get(at) else { return vec![] };
    let pages = |runs: &[Run]| -> BTreeMap<u32, Ppa> {
        runs.iter().flat_map(|run| (run.unit..run.end()).map(|unit| (unit, run.page_of(unit)))).collect()
    };
    let to = pages(to);
    let new: Vec<Run> = pages(from)
        .into_iter()
        .filter(|&(unit, ppa)| map.page_of(unit) == Some(ppa))
        .filter_map(|(unit, _)| Some(Run { unit, count: 1, ppa: *to.get(&unit)? }))
        .collect();
    let units: Vec<u32> = new.iter().map(|run| run.unit).collect();
    if !new.is_empty() {
        let replaced = BlockMap::replaced(Some(map), |unit| units.binary_search(&unit).is_ok(), &new);
        inner.index_mut().set(at, replaced);
    }
    units
}

/// Returns the pages of a map whose units are in `gone`.
fn lost(map: &BlockMap, gone: &Gone) -> Vec<Run> {
    let mut dead = Vec::new();
    for run in map.runs() {
        match gone {
            Gone::All => dead.push(run),
            Gone::Units(ranges) => {
                for r in ranges {
                    let (start, end) = (r.start.max(run.unit), r.end.min(run.end()));
                    if start < end {
                        dead.push(Run { unit: start, count: end - start, ppa: run.page_of(start) });
                    }
                }
            }
        }
    }
    dead
}
