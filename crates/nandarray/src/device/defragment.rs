//! Defragmentation: rewrites blocks whose pages are scattered, each block by a command of its own.
//!
//! The pages of a block that was written in parts (by slabs that end within it, or by overwriting some of it) lie in
//! several extents. In memory that costs little (`stl/read/split.rs`), but a disk needs one read for each extent.
//! Compaction defragments before it packs segments. Access units in the write buffer stay there; coded blocks are
//! always written whole. Blocks that share pages with a snapshot stay, too: rewriting them would take their space
//! twice.
//!
//! Each block is read and appended under its range lock, and applied only if its index entry has not changed since:
//! reclaim moves pages without taking range locks.

use super::Device;
use crate::error::{Error, Result};
use crate::flash::{Owner, Run};
use crate::ftl::UnitWrite;
use crate::sim::Purpose;
use crate::stl::index::BlockMap;
use crate::stl::plan::BlockAt;
use crate::stl::space::Space;
use crate::stl::write::Gone;

/// Smallest average size, in bytes, of the extents of a block that is not rewritten: a disk reads scattered extents of
/// this size about as fast as contiguous ones.
const EXTENT_BYTES: u64 = 128 << 10;

/// Largest number of blocks listed at a time, which bounds the memory of the list.
const BLOCKS_AT_ONCE: usize = 1 << 16;

/// Bytes moved between two commits; a commit frees the segments that the moves emptied.
const COMMIT_BYTES: u64 = 64 << 20;

impl Device {
    /// Rewrites every plain block whose pages are scattered; returns the number of rewritten blocks. Ends early if the
    /// store is full. The caller holds no lock.
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
                        // A damaged page stays in place, and so does the rest of its block.
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

    /// Whether there is a plain block whose pages are scattered.
    pub(super) fn anything_apart(&self) -> Result<bool> {
        for space in self.spaces().into_iter().filter(|space| !space.coded()) {
            match space.read() {
                Err(Error::Closed(_)) => {} // deleted meanwhile
                inner => {
                    let mut found = false;
                    let inner = inner?;
                    let mut seen = |at: &[u64], map: &BlockMap| {
                        found = found || (self.lies_apart(map) && !inner.is_shared(at, map));
                    };
                    inner.index().for_each(&mut seen);
                    if found {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Returns the next scattered blocks of the space after `last` in order, [`BLOCKS_AT_ONCE`] at most.
    fn fragmented(&self, space: &Space, last: Option<&BlockAt>) -> Result<Vec<BlockAt>> {
        let inner = space.read()?;
        let mut found: Vec<BlockAt> = Vec::new();
        inner.index().for_each(&mut |at, map| {
            let next = found.len() < BLOCKS_AT_ONCE && last.is_none_or(|last| last.as_slice() < at);
            if next && self.lies_apart(map) && !inner.is_shared(at, map) {
                found.push(BlockAt::from_slice(at));
            }
        });
        // The next search begins behind the last one.
        assert!(found.is_sorted(), "an index is walked in the order of its blocks");
        Ok(found)
    }

    /// Whether a block's pages lie in more extents than necessary, and these are short.
    fn lies_apart(&self, map: &BlockMap) -> bool {
        let pages = map.pages();
        let least = pages.div_ceil(u64::from(self.geometry().pages_per_segment())) + 1;
        let extents = extents(map.runs());
        extents > least && pages * u64::from(self.geometry().page_bytes) / extents < EXTENT_BYTES
    }

    /// Rewrites a block's pages next to each other; returns their number, or 0 if nothing is gained or the block
    /// changed.
    fn rewrite(&self, space: &Space, at: &BlockAt) -> Result<u64> {
        let _range = self.hold(space, at.iter().map(|&c| (c, c)).collect())?;
        let (page, owner) = (space.shape.page, space.owner(at));
        let mut block = Vec::new();
        let map = {
            // The space stays locked while pages are copied, so that no segment of these pages is reused.
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
        // The units are appended as new ones: next to each other, not each in the lane of its old page.
        let units: Vec<UnitWrite> = map.runs().flat_map(|r| r.unit..r.end()).map(|unit| (unit, None)).collect();
        let runs = self.ftl.append(owner, seq, &block, &units, &mut std::iter::empty())?;
        if extents(runs.iter().copied()) >= extents(map.runs()) {
            self.ftl.abandon(&runs);
            return Ok(0);
        }
        let gone = Gone::Units(map.runs().map(|r| r.unit..r.end()).collect());
        // Reclaim may have moved pages of the block since they were read.
        let moved = self.replace_pages(space, at, seq, (gone, runs), |now| now == Some(&map))?;
        Ok(if moved { units.len() as u64 } else { 0 })
    }
}

/// Returns the number of extents that these runs, in order of access units, form on the medium.
fn extents(runs: impl Iterator<Item = Run>) -> u64 {
    let (mut extents, mut next) = (0, None);
    for run in runs {
        extents += u64::from(next != Some(run.ppa.0));
        next = Some(run.ppa.0 + u64::from(run.count));
    }
    extents
}
