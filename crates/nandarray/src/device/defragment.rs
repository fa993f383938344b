//! Defragmentation: blocks whose pages lie apart are written again as a whole, by a command of its own a block.
//!
//! A block that was written in parts (slabs that end within it, parts overwritten since) has its pages in as many
//! places. In memory that costs little (`stl/read/split.rs`); a disk is read once a place. Compaction brings such
//! blocks together before it packs segments. Units in the write buffer stay there; coded blocks are written whole in
//! any case.
//!
//! Each block is read and appended under its range lock, and applied only if its index entry is what it was: reclaim
//! moves pages without asking for ranges.

use super::Device;
use super::wire::{JournalOp, Update};
use crate::error::{Error, Result};
use crate::flash::{Owner, Run};
use crate::ftl::UnitWrite;
use crate::sim::{Purpose, count};
use crate::stl::index::BlockMap;
use crate::stl::plan::BlockAt;
use crate::stl::space::Space;
use crate::stl::write::{Gone, remap};

/// Average size from which on extents are left as they are: a disk loses nothing by going from one to the next.
const EXTENT_BYTES: u64 = 128 << 10;

/// Blocks that are looked up at a time: bounds the memory that the list takes.
const BLOCKS_AT_ONCE: usize = 1 << 16;

/// Bytes moved between two commits: dead segments are the room for what is moved next.
const COMMIT_BYTES: u64 = 64 << 20;

impl Device {
    /// Rewrites every plain block whose pages lie in too many places; returns their number. Ends early if the store is
    /// full. The caller holds no lock.
    pub(super) fn defragment(&self) -> Result<u64> {
        let (mut blocks, mut bytes) = (0, 0);
        for space in self.spaces().into_iter().filter(|space| !space.coded()) {
            let mut last: Option<BlockAt> = None;
            'space: loop {
                let apart = match self.fragmented(&space, last.as_ref()) {
                    Err(Error::Closed(_)) => break, // deleted meanwhile
                    found => found?,
                };
                let Some(end) = apart.last() else { break };
                last = Some(end.clone());
                for at in apart {
                    match self.for_purpose(Purpose::Reclaim, || self.rewrite(&space, &at)) {
                        Ok(pages) => {
                            blocks += u64::from(pages > 0);
                            bytes += pages * space.shape.page as u64;
                        }
                        // A damaged page stays where it is, and so does the rest of its block.
                        Err(Error::Checksum { .. }) => {}
                        Err(Error::Closed(_)) => break 'space,
                        Err(Error::Full { .. }) => return Ok(blocks),
                        Err(e) => return Err(e),
                    }
                    if bytes >= COMMIT_BYTES {
                        bytes = 0;
                        self.commit_and_free()?;
                    }
                }
            }
        }
        Ok(blocks)
    }

    /// Whether any plain block's pages lie in too many places.
    pub(super) fn anything_apart(&self) -> Result<bool> {
        for space in self.spaces().into_iter().filter(|space| !space.coded()) {
            match space.read() {
                Err(Error::Closed(_)) => {} // deleted meanwhile
                inner => {
                    let mut found = false;
                    inner?.index().for_each(&mut |_, map| found = found || self.lies_apart(map));
                    if found {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// The space's next blocks behind `last` whose pages lie apart, in order.
    fn fragmented(&self, space: &Space, last: Option<&BlockAt>) -> Result<Vec<BlockAt>> {
        let inner = space.read()?;
        let mut found: Vec<BlockAt> = Vec::new();
        inner.index().for_each(&mut |at, map| {
            if found.len() < BLOCKS_AT_ONCE && last.is_none_or(|last| last.as_slice() < at) && self.lies_apart(map) {
                found.push(BlockAt::from_slice(at));
            }
        });
        Ok(found)
    }

    /// Whether a block's pages are in more places than they must be, and these are small.
    fn lies_apart(&self, map: &BlockMap) -> bool {
        let pages = map.pages();
        let least = pages.div_ceil(u64::from(self.geometry().pages_per_segment())) + 1;
        let extents = extents(map.runs());
        extents > least && pages * u64::from(self.geometry().page_bytes) / extents < EXTENT_BYTES
    }

    /// Appends a block's pages side by side; returns their number, 0 if that gains nothing or the block has changed.
    fn rewrite(&self, space: &Space, at: &BlockAt) -> Result<u64> {
        let _range = self.hold(space, at.iter().map(|&c| (c, c)).collect())?;
        let (page, owner) = (space.shape.page, space.owner(at));
        let mut block = Vec::new();
        let map = {
            // The space stays locked while pages are copied, so that no segment is opened again meanwhile.
            let inner = space.read()?;
            let Some(map) = inner.index().get(at).filter(|map| self.lies_apart(map)) else { return Ok(0) };
            block.resize(map.runs().map(|r| r.end()).max().unwrap_or(0) as usize * page, 0);
            for run in map.runs() {
                let bytes = &mut block[run.unit as usize * page..run.end() as usize * page];
                self.ftl
                    .fetch(run, Owner { unit: run.unit as u16, ..owner }, bytes)
                    .map_err(|e| space.page_error(&inner.record.name, at, e))?;
            }
            map.clone()
        };
        let _pages = self.reserve(map.pages())?;
        let seq = self.next_seq();
        // As if the units were new: they are to lie side by side, not where each of them was.
        let units: Vec<UnitWrite> = map.runs().flat_map(|r| r.unit..r.end()).map(|unit| (unit, None)).collect();
        let runs = self.ftl.append(owner, seq, &block, &units, &mut std::iter::empty())?;
        if extents(runs.iter().copied()) >= extents(map.runs()) {
            self.ftl.abandon(&runs);
            return Ok(0);
        }
        let _epoch = self.epoch.read();
        let mut inner = match space.write() {
            Ok(inner) => inner,
            Err(e) => {
                self.ftl.abandon(&runs);
                return Err(e);
            }
        };
        if inner.index().get(at) != Some(&map) {
            // Reclaim has moved its pages meanwhile.
            self.ftl.abandon(&runs);
            return Ok(0);
        }
        let gone = Gone::Units(map.runs().map(|r| r.unit..r.end()).collect());
        let dead = remap(&mut inner, at, &gone, &runs);
        self.ftl.adopt(&runs);
        assert_eq!(pages_of(&dead), pages_of(&runs), "as many pages die as are written, block {at:?}");
        let update = Update::new(space.id, seq, at, &gone, &runs);
        let mut log = self.log.lock();
        log.queue([JournalOp::Update(update)]);
        self.ftl.release(dead.into_iter());
        count(&self.counters.pages_moved, units.len() as u64);
        Ok(units.len() as u64)
    }
}

/// Number of pages of these runs.
pub(super) fn pages_of(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

/// Number of extents that these runs, in order of units, form on the medium.
fn extents(runs: impl Iterator<Item = Run>) -> u64 {
    let (mut extents, mut next) = (0, None);
    for run in runs {
        extents += u64::from(next != Some(run.ppa.0));
        next = Some(run.ppa.0 + u64::from(run.count));
    }
    extents
}
