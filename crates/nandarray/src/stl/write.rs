//! Writing: from the caller's buffer to building blocks, whole or absent (NDS paper, section 4.4, composition).
//!
//! A write has two halves. *Staging* may fail: every block touched is composed in a thread's scratch block (old content
//! is brought in only for units that the write does not cover), units that became nothing but fill are dropped, whole
//! units are appended, smaller parts are kept to gather. *Applying* cannot fail: index and gathered units change under
//! the space's lock. The caller's bytes are copied before their checksum is taken, so that a buffer changed meanwhile
//! by another thread tears nothing but itself.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::copy::{Loop, copy, fill_bytes, is_fill, merge};
use super::index::BlockMap;
use super::plan::{BlockAt, Task, touch_loops};
use super::read::{Reader, with_scratch};
use super::space::{BlockShape, Gathered, GatheredUnit, IndexState, Inner, Space};
use super::units::UnitSet;
use super::work::{Work, Workers, run};
use crate::error::Result;
use crate::flash::{Ppa, Run};
use crate::ftl::{Ftl, UnitWrite};

/// A command of at least this many bytes appends its partly covered units at once, unless it is one of a row: gathering
/// them would save little, and keep the command from being committed.
pub const DIRECT_BYTES: u64 = 256 << 10;

/// Where written elements come from.
#[derive(Clone, Copy, Debug)]
pub struct Source(Option<*const u8>);

impl Source {
    /// The fill value everywhere.
    pub const FILL: Self = Self(None);

    /// Lends a buffer, by where element (0, 0, ...) of the selection lies, to one write command.
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

/// Which units of a block lose what they had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// All: the block is replaced.
    All,
    /// These ranges.
    Units(Vec<Range<u32>>),
}

impl Gone {
    /// Whether it includes a unit.
    pub fn has(&self, unit: u32) -> bool {
        match self {
            Self::All => true,
            Self::Units(ranges) => ranges.iter().any(|r| r.contains(&unit)),
        }
    }
}

impl Gone {
    /// What either includes.
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
        Self::Units(all)
    }
}

/// What a write does to one block, staged.
#[derive(Debug)]
pub struct Staged {
    /// The block.
    pub at: BlockAt,
    /// Number of the command, which its pages carry.
    pub seq: u64,
    /// Units replaced.
    pub gone: Gone,
    /// Their new pages; units of `gone` without one are fill.
    pub runs: Vec<Run>,
    /// Units that gather from now on.
    pub gather: Vec<(u32, GatheredUnit)>,
    /// A decoded block that gathers from now on.
    pub gather_block: Option<Box<[u8]>>,
}

/// Bytes that a run of pages, or of units that are gone, takes in a journal record, about.
pub const RUN_JOURNAL_BYTES: u64 = 12;

impl Staged {
    /// Bytes that it takes in a journal record, about.
    pub fn journal_bytes(&self) -> u64 {
        let gone = match &self.gone {
            Gone::All => 1,
            Gone::Units(units) => units.len(),
        };
        32 + 10 * self.at.len() as u64 + RUN_JOURNAL_BYTES * (gone + self.runs.len() + self.gather.len()) as u64
    }

    /// A block that loses everything it has.
    pub fn releasing(at: BlockAt, seq: u64) -> Self {
        Self { at, seq, gone: Gone::All, runs: vec![], gather: vec![], gather_block: None }
    }
}

/// What applying a staged block changed: for the journal.
#[derive(Debug)]
pub struct Applied {
    /// The block.
    pub at: BlockAt,
    /// Number of the command.
    pub seq: u64,
    /// Units replaced.
    pub gone: Gone,
    /// Their new pages.
    pub runs: Vec<Run>,
    /// Pages that lost their last use.
    pub dead: Vec<Run>,
}

/// Stages writes to one space, whose blocks the caller has locked against other writes.
#[derive(Debug)]
pub struct Writer<'a> {
    /// Flash management.
    pub ftl: &'a Ftl,
    /// The space.
    pub space: &'a Space,
    /// Number of the command.
    pub seq: u64,
    /// The space's shape.
    pub extent: &'a [u64],
    /// Bytes that the whole command writes.
    pub bytes: u64,
    /// What the command staged before, by block: content that counts before the space's. Nothing gathers of these
    /// blocks.
    pub over: Option<&'a BTreeMap<BlockAt, Staged>>,
    /// Where the next command will probably write, if this one is one of a row: what both write in part gathers.
    pub successive: Option<Successor>,
}

/// Where a row of commands goes on: along an axis, behind the end of the present one.
#[derive(Clone, Copy, Debug)]
pub struct Successor {
    /// The axis.
    pub axis: usize,
    /// No further than this coordinate.
    pub end: u64,
}

impl Writer<'_> {
    /// An upper bound of the pages that staging this work appends.
    pub fn pages_needed(&self, work: &Work) -> u64 {
        let shape = &self.space.shape;
        // Several tasks may touch one block, which is composed once.
        let around = work.bounds(shape.block.len());
        let blocks = around.iter().fold(1u64, |n, (first, last)| n.saturating_mul(last - first + 1)).min(work.len());
        if self.space.coded() {
            return blocks * self.space.coded_pages_max();
        }
        let most = blocks * u64::from(shape.units);
        if work.len() > 1 << 16 {
            return most;
        }
        let of = |i| {
            let span = work.task(i).span(shape.item_bytes);
            (span.end.div_ceil(shape.page) - span.start / shape.page) as u64
        };
        (0..work.len()).map(of).sum::<u64>().min(most)
    }

    /// Stages the work.
    ///
    /// # Errors
    /// Whatever reading old content or appending fails with; nothing is staged then.
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

    /// # Safety
    /// As for [`Self::stage`].
    unsafe fn stage_block(&self, tasks: &[Task<'_>], source: Source) -> Result<Staged> {
        let shape = &self.space.shape;
        let at = &tasks[0].at;
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
                unsafe { gather(task, shape.item_bytes, source, &shape.fill, block) };
            }
            if self.space.coded() {
                self.stage_coded(tasks, covered.whole, block)
            } else {
                self.stage_units(tasks, &covered, &touched, block)
            }
        })
    }

    /// Which units of a block the next command will probably write, if this one is one of a row; whether there are any.
    fn coming(&self, tasks: &[Task<'_>], units: &mut UnitSet) -> bool {
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

    /// Brings the old content of units that the tasks touch and do not cover.
    fn bring_old(
        &self,
        tasks: &[Task<'_>],
        covered: &Covered,
        padded: bool,
        touched: &mut UnitSet,
        block: &mut [u8],
    ) -> Result<()> {
        let shape = &self.space.shape;
        let inner = self.space.read()?;
        let reader = Reader { ftl: self.ftl, space: self.space, inner: &inner, watched: true };
        let at = &tasks[0].at;
        let (map, gathered) = (inner.index().get(at), inner.gathered.get(at));
        let staged = self.over.and_then(|over| over.get(at));
        let composed = staged.and_then(|s| BlockMap::replaced(map, |u| s.gone.has(u), &s.runs));
        let (map, gathered) = if staged.is_some() { (composed.as_ref(), None) } else { (map, gathered) };
        if self.space.coded() {
            touched.add(0..shape.units);
            match (gathered, map) {
                (Some(Gathered::Block(old)), _) => block[..shape.bytes].copy_from_slice(old),
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
                reader.load(at, map, gathered, unit..unit + 1, block)?;
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
        let gathers = match self.successive {
            Some(_) => self.coming(tasks, &mut UnitSet::default()),
            None => self.bytes < DIRECT_BYTES,
        };
        if !whole && gathers {
            let gather_block = Some(block[..shape.bytes].into());
            return Ok(Staged { gone: Gone::Units(vec![]), gather_block, ..none });
        }
        Ok(Staged { runs: self.append_coded(at, &block[..shape.bytes])?, ..none })
    }

    /// Encodes a block and appends its payload.
    pub fn append_coded(&self, at: &BlockAt, block: &[u8]) -> Result<Vec<Run>> {
        let page = self.space.shape.page;
        let key = Space::context_key(at);
        let mut payload = Vec::new();
        self.space
            .codec()?
            .encode(block, self.space.context(&key), self.seq, &mut payload)
            .unwrap_or_else(|e| panic!("a block of its own space cannot be encoded: {e}"));
        payload.resize(payload.len().next_multiple_of(page), 0);
        let units: Vec<UnitWrite> = (0..(payload.len() / page) as u32).map(|u| (u, None)).collect();
        self.ftl.append(self.space.owner(at), self.seq, &payload, &units, &mut std::iter::empty())
    }

    fn stage_units(&self, tasks: &[Task<'_>], covered: &Covered, touched: &UnitSet, block: &[u8]) -> Result<Staged> {
        let (shape, at) = (&self.space.shape, &tasks[0].at);
        let mut staged = Staged::releasing(at.clone(), self.seq);
        let mut coming = UnitSet::default();
        self.coming(tasks, &mut coming);
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
            let waits = coming.has(unit) || small && !self.fills_up(at, unit, written, data);
            if waits && !covered.whole && !covered.units.has(unit) {
                staged.gather.push((unit, GatheredUnit { bytes: bytes.into(), written }));
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
        }
        staged.gone = if covered.whole { Gone::All } else { Gone::Units(gone.ranges().collect()) };
        Ok(staged)
    }

    /// Whether a unit of `data` bytes that gathers is full with these bytes more.
    fn fills_up(&self, at: &BlockAt, unit: u32, bytes: u64, data: usize) -> bool {
        let inner = self.space.peek();
        let before = match inner.gathered.get(at) {
            Some(Gathered::Units(units)) => units.get(&unit).map_or(0, |u| u.written),
            _ => 0,
        };
        before + bytes >= data as u64
    }

    /// Appends these units of a composed block (in order), placed beside what the block has.
    pub fn append_units(&self, at: &BlockAt, map: Option<&BlockMap>, block: &[u8], units: &[u32]) -> Result<Vec<Run>> {
        let old = |u: u32| map.and_then(|m| m.page_of(u));
        let writes: Vec<UnitWrite> = units.iter().map(|&u| (u, old(u))).collect();
        let kept = |r: Run| (r.unit..r.end()).filter(|u| units.binary_search(u).is_err()).map(move |u| r.page_of(u));
        let kept: &mut dyn Iterator<Item = Ppa> = &mut map.into_iter().flat_map(BlockMap::runs).flat_map(kept);
        self.ftl.append(self.space.owner(at), self.seq, block, &writes, kept)
    }

    /// Which units the tasks cover wholly, counting what lies outside the space as covered.
    fn covered(&self, tasks: &[Task<'_>], valid: &[u64]) -> Covered {
        let shape = &self.space.shape;
        let mut covered = Covered { whole: false, units: UnitSet::default() };
        covered.units.clear(shape.units);
        let elements = |t: &Task<'_>| -> Option<u64> {
            t.loops.iter().try_fold(1u64, |n, l| match l {
                Loop::Affine { n: m, .. } => Some(n * *m as u64),
                Loop::Table(_) => None, // may repeat
            })
        };
        // Boxes of one command are disjoint, so counting is enough.
        let total = tasks.iter().try_fold(0, |sum, t| Some(sum + elements(t)?));
        covered.whole = total == Some(valid.iter().product());
        if let ([task], false) = (tasks, covered.whole) {
            self.covered_units(task, valid, &mut covered.units);
        }
        covered
    }

    fn covered_units(&self, task: &Task<'_>, valid: &[u64], units: &mut UnitSet) {
        let shape = &self.space.shape;
        let n = shape.block.len();
        let mut sides: SmallVec<[(u64, u64); 4]> = SmallVec::new(); // (first, end) a dimension
        let mut rest = task.in_block as u64;
        for i in 0..n {
            let Loop::Affine { n: count, from, .. } = task.loops[i] else { return };
            let first = rest / shape.strides[i];
            rest %= shape.strides[i];
            if count > 1 && from as u64 != shape.strides[i] {
                return; // a step leaves gaps
            }
            let end = first + count as u64;
            sides.push((first, if end == valid[i] { shape.block[i] } else { end }));
        }
        // The longest contiguous run: whole dimensions from the last on, and a range of the one before.
        let mut k = n - 1;
        while k > 0 && sides[k] == (0, shape.block[k]) {
            k -= 1;
        }
        let run = (sides[k].1 - sides[k].0) * shape.strides[k];
        if run < shape.page as u64 {
            return;
        }
        let mut at: SmallVec<[u64; 4]> = sides[..k].iter().map(|s| s.0).collect();
        loop {
            let start = at.iter().zip(&shape.strides).map(|(a, s)| a * s).sum::<u64>() + sides[k].0 * shape.strides[k];
            let (page, end) = (shape.page as u64, start + run);
            // The block's last unit may be short; its end counts as a unit's end.
            let last = if end == shape.bytes as u64 { end.div_ceil(page) } else { end / page };
            let first = start.div_ceil(page);
            if first < last {
                units.add(first as u32..last as u32);
            }
            let Some(i) = (0..k).rev().find(|&i| at[i] + 1 < sides[i].1) else { return };
            at[i] += 1;
            for j in i + 1..k {
                at[j] = sides[j].0;
            }
        }
    }
}

/// How many bytes of each unit of a block the tasks write; what is written twice counts twice.
fn written(tasks: &[Task<'_>], shape: &BlockShape) -> Vec<u64> {
    let mut units = vec![0; shape.units as usize];
    for task in tasks {
        let mut run = shape.item_bytes;
        let mut left = task.loops.len();
        while let Some(&Loop::Affine { n, from, .. }) = left.checked_sub(1).map(|i| &task.loops[i]) {
            if n != 1 && from != run as isize {
                break;
            }
            run *= n;
            left -= 1;
        }
        count_runs(&task.loops[..left], task.in_block, run, shape.page, &mut units);
    }
    units
}

/// Counts runs of `run` bytes, the first at `at`, unit by unit.
fn count_runs(loops: &[Loop<'_>], at: usize, run: usize, page: usize, units: &mut [u64]) {
    match loops {
        [] => {
            let (mut at, end) = (at, at + run);
            while at < end {
                let next = (at / page + 1) * page;
                units[at / page] += (end.min(next) - at) as u64;
                at = next;
            }
        }
        [Loop::Affine { n, from, .. }, rest @ ..] => {
            (0..*n).for_each(|i| count_runs(rest, at + i * *from as usize, run, page, units));
        }
        [Loop::Table(pairs), rest @ ..] => {
            pairs.iter().for_each(|&(from, _)| count_runs(rest, at + from as usize, run, page, units));
        }
    }
}

struct Covered {
    whole: bool,
    units: UnitSet,
}

/// # Safety
/// The source must be readable along the task's loops; `block` is a whole block.
unsafe fn gather(task: &Task<'_>, item_bytes: usize, source: Source, fill: &[u8], block: &mut [u8]) {
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
        None => unsafe { super::copy::fill(&loops, fill, to) },
    }
}

/// What a block is after it was staged twice by one command, and the pages of the first time that the second made
/// useless.
pub fn overlay(before: Option<Staged>, after: Staged) -> (Staged, Vec<Run>) {
    let Some(before) = before else { return (after, vec![]) };
    let Some(map) = BlockMap::from_runs(before.runs) else {
        let gone = before.gone.and(after.gone);
        return (Staged { gone, ..after }, vec![]);
    };
    let dropped = lost(&map, &after.gone);
    let both = BlockMap::replaced(Some(&map), |u| after.gone.has(u), &after.runs);
    let runs = both.iter().flat_map(BlockMap::runs).collect();
    (Staged { gone: before.gone.and(after.gone), runs, ..after }, dropped)
}

/// Applies one staged block to a space's state.
pub fn apply(inner: &mut Inner, staged: Staged) -> Applied {
    let Staged { at, seq, gone, runs, gather, gather_block } = staged;
    match inner.gathered.get_mut(&at) {
        Some(Gathered::Units(units)) => {
            units.retain(|unit, _| !gone.has(*unit));
            if units.is_empty() {
                inner.gathered.remove(&at);
            }
        }
        Some(Gathered::Block(_)) if gone == Gone::All => {
            inner.gathered.remove(&at);
        }
        _ => {}
    }
    if let Some(block) = gather_block {
        inner.gathered.insert(at.clone(), Gathered::Block(block));
    }
    if !gather.is_empty() {
        let entry = inner.gathered.entry(at.clone()).or_insert_with(|| Gathered::Units(Default::default()));
        let Gathered::Units(units) = entry else { unreachable!("plain spaces gather units") };
        for (unit, mut new) in gather {
            new.written += units.get(&unit).map_or(0, |old| old.written);
            units.insert(unit, new);
        }
    }
    let dead = remap(inner, &at, &gone, &runs);
    Applied { at, seq, gone, runs, dead }
}

/// Changes a block's pages; returns those that it lost.
pub fn remap(inner: &mut Inner, at: &[u64], gone: &Gone, runs: &[Run]) -> Vec<Run> {
    if *gone == Gone::Units(vec![]) && runs.is_empty() {
        return vec![];
    }
    let index = inner.index_mut();
    let old = index.get(at);
    let dead = old.map_or(vec![], |map| lost(map, gone));
    let new = BlockMap::replaced(old, |u| gone.has(u), runs);
    index.set(at, new);
    dead
}

/// The runs of a map that `gone` takes.
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
