//! Writing: copies elements from the caller's buffer to building blocks; a write is whole or absent (NDS paper, section
//! 4.4, composition).
//!
//! A write has two halves. *Staging* may fail: each touched block is composed in a scratch block of the thread (old
//! content is read only for access units that the write does not cover), units that only have fill are dropped, whole
//! units are appended as pages, smaller parts go to the write buffer ([`buffer`]). *Applying* ([`staged`]) cannot fail:
//! it changes index and write buffer under the space's lock. The caller's bytes are copied before their checksum is
//! computed, so if another thread changes the buffer meanwhile, only the elements themselves are inconsistent.

pub mod buffer;
mod cover;
mod staged;

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;
use smallvec::SmallVec;

use self::buffer::{BufferedBlock, BufferedUnit};
use self::cover::{Covered, written};
pub use self::staged::{Applied, Gone, RUN_JOURNAL_BYTES, Staged, apply, overlay, remap};
use super::copy::{Loop, copy, fill, fill_bytes, is_fill, merge};
use super::index::BlockMap;
use super::plan::{BlockAt, Task, touch_loops};
use super::read::{BlockContent, Reader, with_scratch};
use super::space::{IndexState, Space};
use super::units::UnitSet;
use super::work::{Work, Workers, run};
use crate::error::Result;
use crate::flash::{Ppa, Run};
use crate::ftl::{Ftl, UnitWrite};

/// Smallest size, in bytes, of a command that appends its partly covered units at once, unless it belongs to a series:
/// buffering them would save little, and keep the command from being committed.
pub const DIRECT_BYTES: u64 = 256 << 10;

/// The source of written elements: a buffer of the caller, or the fill value.
#[derive(Clone, Copy, Debug)]
pub struct Source(Option<*const u8>);

impl Source {
    /// The source that writes the fill value to every element.
    pub const FILL: Self = Self(None);

    /// Lends a buffer to one write command; `first` is the address of the selection's element (0, 0, ...).
    ///
    /// # Safety
    /// Every element that the command's target reaches from here must be readable memory until the command is done.
    pub unsafe fn from_raw(first: *const u8) -> Self {
        Self(Some(first))
    }
}

// SAFETY: the buffer is only read, and lent by the caller for the length of the command.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

/// Stages writes to one space, whose blocks the caller has locked against other writes.
#[derive(Debug)]
pub struct Writer<'a> {
    /// The flash management to which pages are appended.
    pub ftl: &'a Ftl,
    /// The space that is written.
    pub space: &'a Space,
    /// Sequence number of the command, which the out-of-band records of its pages contain.
    pub seq: u64,
    /// Shape of the space, in elements.
    pub extent: &'a [u64],
    /// Number of bytes that the whole command writes.
    pub bytes: u64,
    /// Blocks that the command staged before, whose content replaces the space's own; `None` if there are none. No part
    /// of these blocks is in the write buffer.
    pub over: Option<&'a BTreeMap<BlockAt, Staged>>,
    /// Expected place of the next write, if this one belongs to a series of adjacent writes: units that both write in
    /// part are buffered. `None` outside a series.
    pub successive: Option<Successor>,
}

/// Expected place of the next write of a series: adjacent to the present one along an axis.
#[derive(Clone, Copy, Debug)]
pub struct Successor {
    /// Number of the dimension along which the writes are adjacent.
    pub axis: usize,
    /// Exclusive bound along the axis, in elements: the next write does not reach beyond it.
    pub end: u64,
}

impl Writer<'_> {
    /// Stages the work: writes pages, and returns the changes of each block, which are not visible yet.
    ///
    /// # Errors
    /// The errors of reading old content and of appending; nothing stays staged then.
    ///
    /// # Safety
    /// Every element that the work reaches in the source must be readable memory.
    pub unsafe fn stage(&self, workers: &Workers, work: &Work, source: Source) -> Result<Vec<Staged>> {
        let blocks = work.by_block();
        let staged = Mutex::new(Vec::with_capacity(blocks.len()));
        let done = run(workers, blocks.len() as u64, self.bytes, 1, 1, &|range, _: &mut ()| {
            for i in range {
                let tasks: SmallVec<[Task<'_>; 1]> = blocks[i as usize].iter().map(|&t| work.task(t)).collect();
                // SAFETY: the caller's promise about the source.
                let one = unsafe { self.stage_block(&tasks, source)? };
                if let Some(probe) = self.ftl.probe() {
                    let moves = tasks.iter().map(|t| t.moves(self.space.shape.item_bytes));
                    let (runs, bytes) = moves.fold((0, 0), |(r, b), (runs, bytes)| (r + runs, b + bytes));
                    probe.moved(runs, bytes);
                }
                staged.lock().push(one);
            }
            Ok(())
        });
        let staged = staged.into_inner();
        match done {
            Ok(()) => Ok(staged),
            Err(e) => {
                staged.iter().for_each(|s| self.ftl.abandon(&s.runs));
                Err(e)
            }
        }
    }

    /// Stages the tasks of one block: composes it, writes its pages, and returns its changes.
    ///
    /// # Safety
    /// As for [`Self::stage`].
    unsafe fn stage_block(&self, tasks: &[Task<'_>], source: Source) -> Result<Staged> {
        let shape = &self.space.shape;
        let at = &tasks[0].at;
        debug_assert!(tasks.iter().all(|task| task.at == *at), "tasks of one block");
        let valid = self.space.valid(self.extent, at);
        let covered = self.covered(tasks, &valid);
        if source.0.is_none() && covered.whole {
            return Ok(Staged::releasing(at.clone(), self.seq));
        }
        let padded = valid.as_slice() != shape.block.as_slice();
        with_scratch(shape.units as usize * shape.page, |block| {
            let mut touched = UnitSet::default();
            touched.clear(shape.units);
            if covered.whole {
                touched.add(0..shape.units);
                let tail = shape.bytes..block.len();
                if padded {
                    fill_bytes(&mut block[..shape.bytes], &shape.fill)
                }
                block[tail].fill(0);
            } else {
                self.bring_old(tasks, &covered, padded, &mut touched, block)?;
            }
            for task in tasks {
                // SAFETY: the caller's promise about the source; the scratch is a whole block.
                unsafe { compose(task, shape.item_bytes, source, &shape.fill, block) };
            }
            if self.space.coded() {
                self.stage_coded(tasks, covered.whole, block)
            } else {
                self.stage_units(tasks, &covered, &touched, block)
            }
        })
    }

    /// Sets `units` to the access units of a block that the next write of the series will probably write; returns
    /// whether there are any.
    fn expected(&self, tasks: &[Task<'_>], units: &mut UnitSet) -> bool {
        let shape = &self.space.shape;
        units.clear(shape.units);
        let (Some(next), [task]) = (self.successive, tasks) else { return false };
        let (side, stride) = (shape.block[next.axis], shape.strides[next.axis]);
        let Loop::Affine { n, .. } = task.loops[next.axis] else { return false };
        let from = task.in_block as u64 / stride % side + n as u64;
        let to = side.min(next.end.saturating_sub(task.at[next.axis].saturating_mul(side)));
        if from >= to {
            return false;
        }
        let mut loops = task.loops.clone();
        loops[next.axis] = Loop::Affine { n: (to - from) as usize, from: stride as isize, to: 0 };
        let base = task.in_block + n * stride as usize;
        touch_loops(&loops, base, shape.item_bytes, shape.page, &mut |bytes| {
            units.add((bytes.start / shape.page) as u32..bytes.end.div_ceil(shape.page) as u32);
        });
        true
    }

    /// Reads the old content of the units that the tasks touch but do not cover, and sets `touched` to all touched
    /// units. `padded` is whether the block extends beyond the space.
    fn bring_old(
        &self,
        tasks: &[Task<'_>],
        covered: &Covered,
        padded: bool,
        touched: &mut UnitSet,
        block: &mut [u8],
    ) -> Result<()> {
        let shape = &self.space.shape;
        debug_assert!(!covered.whole, "nothing of the old content is needed");
        let inner = self.space.read()?;
        let reader = Reader { ftl: self.ftl, space: self.space, inner: &inner, watched: true };
        let at = &tasks[0].at;
        let (map, buffered) = (inner.index().get(at), inner.write_buffer.get(at));
        let staged = self.over.and_then(|over| over.get(at));
        let composed = staged.and_then(|s| BlockMap::replaced(map, |u| s.gone.has(u), &s.runs));
        let (map, buffered) = if staged.is_some() { (composed.as_ref(), None) } else { (map, buffered) };
        if self.space.coded() {
            touched.add(0..shape.units);
            match (buffered, map) {
                (Some(BufferedBlock::Block(old)), _) => block[..shape.bytes].copy_from_slice(old),
                (_, Some(map)) => {
                    let whole: Range<usize> = 0..shape.bytes;
                    reader.decode(at, map, std::slice::from_ref(&whole), &mut block[..shape.bytes])?;
                }
                _ => fill_bytes(&mut block[..shape.bytes], &shape.fill),
            }
            return Ok(());
        }
        for task in tasks {
            task.touch(shape.item_bytes, shape.page, &mut |bytes| {
                touched.add((bytes.start / shape.page) as u32..bytes.end.div_ceil(shape.page) as u32);
            });
        }
        for unit in touched.iter() {
            let here = unit as usize * shape.page;
            if !covered.units.has(unit) {
                reader.load(at, &BlockContent { map, buffered }, unit..unit + 1, block)?;
            } else if padded {
                reader.fill_units(here, &mut block[here..here + shape.page]);
            }
        }
        Ok(())
    }

    fn stage_coded(&self, tasks: &[Task<'_>], whole: bool, block: &[u8]) -> Result<Staged> {
        let (shape, at) = (&self.space.shape, &tasks[0].at);
        let none = Staged::releasing(at.clone(), self.seq);
        if is_fill(&block[..shape.bytes], &shape.fill, 0) {
            return Ok(none);
        }
        let buffers = match self.successive {
            Some(_) => self.expected(tasks, &mut UnitSet::default()),
            None => self.bytes < DIRECT_BYTES,
        };
        if !whole && buffers {
            let buffer_block = Some(block[..shape.bytes].into());
            return Ok(Staged { gone: Gone::Units(vec![]), buffer_block, ..none });
        }
        Ok(Staged { runs: self.append_coded(at, &block[..shape.bytes])?, ..none })
    }

    /// Encodes a block (compresses, encrypts) and appends its payload; returns the new pages.
    pub fn append_coded(&self, at: &BlockAt, block: &[u8]) -> Result<Vec<Run>> {
        let key = Space::context_key(at);
        let mut payload = Vec::new();
        self.space
            .codec()?
            .encode(block, self.space.context(&key), self.seq, &mut payload)
            .unwrap_or_else(|e| panic!("a block of its own space cannot be encoded: {e}"));
        self.append_payload(at, payload)
    }

    /// Appends the payload of a block; returns the new pages.
    pub fn append_payload(&self, at: &BlockAt, mut payload: Vec<u8>) -> Result<Vec<Run>> {
        let page = self.space.shape.page;
        payload.resize(payload.len().next_multiple_of(page), 0);
        let most = self.space.coded_pages_max() as usize * page;
        assert!(payload.len() <= most, "a payload of {} bytes; the most is {most}", payload.len());
        let units: Vec<UnitWrite> = (0..(payload.len() / page) as u32).map(|u| (u, None)).collect();
        self.ftl.append(self.space.owner(at), self.seq, &payload, &units, &mut std::iter::empty())
    }

    fn stage_units(&self, tasks: &[Task<'_>], covered: &Covered, touched: &UnitSet, block: &[u8]) -> Result<Staged> {
        let (shape, at) = (&self.space.shape, &tasks[0].at);
        let mut staged = Staged::releasing(at.clone(), self.seq);
        let mut expected = UnitSet::default();
        self.expected(tasks, &mut expected);
        let small = self.successive.is_none() && self.bytes < DIRECT_BYTES && !covered.whole;
        let written = if small { written(tasks, shape) } else { vec![0; shape.units as usize] };
        let mut gone = UnitSet::default();
        gone.clear(shape.units);
        let mut append: Vec<u32> = Vec::new();
        for unit in touched.iter() {
            let here = unit as usize * shape.page;
            let bytes = &block[here..here + shape.page];
            let data = shape.bytes.min(here + shape.page) - here;
            if is_fill(&bytes[..data], &shape.fill, here) {
                gone.add(unit..unit + 1);
                continue;
            }
            let written = written[unit as usize];
            let waits = expected.has(unit) || small && !self.fills_up(at, unit, written, data);
            if waits && !covered.whole && !covered.units.has(unit) {
                staged.buffer.push((unit, BufferedUnit { bytes: bytes.into(), written }));
            } else {
                gone.add(unit..unit + 1);
                append.push(unit);
            }
        }
        if !append.is_empty() {
            let map = match &self.space.peek().index {
                IndexState::Loaded(index) => index.get(at).cloned(),
                IndexState::Stored(_) => None,
            };
            staged.runs = self.append_units(at, map.as_ref(), block, &append)?;
            let pages: u32 = staged.runs.iter().map(|run| run.count).sum();
            assert_eq!(pages as usize, append.len(), "a page for each unit that is appended");
        }
        staged.gone = if covered.whole { Gone::All } else { Gone::Units(gone.ranges().collect()) };
        Ok(staged)
    }

    /// Whether a unit with `data` bytes of content will be complete after `bytes` more were written to it.
    fn fills_up(&self, at: &BlockAt, unit: u32, bytes: u64, data: usize) -> bool {
        let inner = self.space.peek();
        let before = match inner.write_buffer.get(at) {
            Some(BufferedBlock::Units(units)) => units.get(&unit).map_or(0, |u| u.written),
            _ => 0,
        };
        before + bytes >= data as u64
    }

    /// Appends these units (in order) of a composed block as pages, placed near the block's other pages; returns the
    /// new pages.
    pub fn append_units(&self, at: &BlockAt, map: Option<&BlockMap>, block: &[u8], units: &[u32]) -> Result<Vec<Run>> {
        assert!(units.is_sorted_by(|a, b| a < b), "units in order: {units:?}");
        let old = |u: u32| map.and_then(|m| m.page_of(u));
        let writes: Vec<UnitWrite> = units.iter().map(|&u| (u, old(u))).collect();
        let kept = |r: Run| (r.unit..r.end()).filter(|u| units.binary_search(u).is_err()).map(move |u| r.page_of(u));
        let kept: &mut dyn Iterator<Item = Ppa> = &mut map.into_iter().flat_map(BlockMap::runs).flat_map(kept);
        self.ftl.append(self.space.owner(at), self.seq, block, &writes, kept)
    }
}

/// Copies a task's elements from the source, or the fill value `pattern`, to their places in a block.
///
/// # Safety
/// The source must be readable along the task's loops; `block` must have the size of a block.
unsafe fn compose(task: &Task<'_>, item_bytes: usize, source: Source, pattern: &[u8], block: &mut [u8]) {
    let mut tables = Vec::new();
    let mut loops = task.reversed(&mut tables);
    let to = block[task.in_block..].as_mut_ptr();
    match source.0 {
        Some(from) => {
            let (left, run) = merge(&mut loops, item_bytes);
            // SAFETY: the caller's promise about the source; the plan keeps offsets within the block.
            unsafe { copy(&loops[..left], run, from.offset(task.in_buffer), to) };
        }
        // SAFETY: the plan keeps offsets within the block.
        None => unsafe { fill(&loops, pattern, to) },
    }
}
