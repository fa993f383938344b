//! Blocks whose pages lie apart: a task is cut where their runs end, and every piece is copied from where it lies.
//!
//! A block that was written in parts (slabs that end within it, elements overwritten since) is several runs of pages,
//! with units that gather in memory and holes between. Bringing the touched pages together in a scratch block first
//! would copy 16 times what is wanted where rows of 256 bytes are wanted of pages of 4 KiB. So the loops of a task are
//! cut instead: along the outermost loop as many steps as lie in one *stretch* (a run, a gathered unit, a hole), and
//! further in only for a step that lies in two.
//!
//! Needs a medium that shows its bytes in place; without one, `read` goes by the scratch block. Coded blocks are
//! decoded elsewhere.

use std::ops::Range;

use smallvec::SmallVec;

use super::assemble::Assembler;
use super::copy::{Loop, copy, fill, merge};
use super::index::BlockMap;
use super::plan::{BlockAt, Task, span, touch_loops};
use super::read::Reader;
use super::space::Gathered;
use super::stream;
use crate::error::Result;
use crate::flash::{Owner, Run};

/// Pieces whose lines are asked for before the first of them is copied.
const ASKED_PIECES: usize = 4;
/// The most lines that are asked for of one of them.
const ASKED_LINES: usize = 8;
/// Pieces that wait for those of neighbouring blocks, at most.
const WAITING_MAX: usize = 4096;

/// Steps of a piece's first loop that stand for all.
const ALL: usize = usize::MAX;

type Loops<'t> = SmallVec<[Loop<'t>; 6]>;

/// A part of a task that lies in one place: the loops from `level` on, of the first of them `steps` steps.
#[derive(Clone, Copy, Debug)]
struct Piece {
    from: *const u8,
    to: *mut u8,
    level: usize,
    steps: usize,
}

impl Piece {
    /// Its loops, given those of its task: as many, those around it of one step.
    fn loops<'t>(&self, loops: &[Loop<'t>]) -> Loops<'t> {
        let mut own = Loops::from_elem(Loop::Affine { n: 1, from: 0, to: 0 }, self.level.min(loops.len()));
        own.extend_from_slice(&loops[own.len()..]);
        if let (Some(Loop::Affine { n, .. }), false) = (own.get_mut(self.level), self.steps == ALL) {
            *n = self.steps;
        }
        own
    }
}

/// A thread's pieces.
#[derive(Debug, Default)]
pub(super) struct Pieces<'t> {
    /// Of the task at hand.
    cut: Vec<Piece>,
    /// Of tasks before it, which wait for their neighbours: the task's loops and row by the number beside them.
    waiting: Vec<(usize, Piece)>,
    tasks: Vec<(Loops<'t>, usize)>,
}

/// Bytes of a block that lie side by side.
#[derive(Clone, Debug)]
struct Stretch {
    bytes: Range<usize>,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// Pages: the run's part, and its first byte.
    Pages(Run, *const u8),
    /// A unit that gathers.
    Memory(*const u8),
    /// Nothing: fill.
    Hole,
}

/// Cuts one task.
struct Cutter<'c, 'a, 't> {
    reader: &'c Reader<'a>,
    at: &'c BlockAt,
    map: Option<&'a BlockMap>,
    gathered: Option<&'a Gathered>,
    loops: &'c [Loop<'t>],
    /// From the first to the last element that the loops from here on reach, a level.
    reach: SmallVec<[usize; 8]>,
    stretch: Stretch,
    /// Where the task's first element goes.
    to: *mut u8,
    pieces: &'c mut Vec<Piece>,
}

impl<'a> Reader<'a> {
    /// Cuts a plain block's task into pieces; `false` if the medium does not show its bytes.
    ///
    /// # Safety
    /// `to` must be writable along the task's loops: holes are filled and elements that lie in two places are copied at
    /// once.
    unsafe fn cut<'t>(
        &self,
        task: &Task<'t>,
        map: Option<&'a BlockMap>,
        gathered: Option<&'a Gathered>,
        to: *mut u8,
        pieces: &mut Vec<Piece>,
    ) -> Result<bool> {
        let item = self.space.shape.item_bytes;
        let reach = (0..=task.loops.len()).map(|level| span(&task.loops[level..]).1 + item).collect();
        let stretch = Stretch { bytes: 0..0, place: Place::Hole };
        let mut cutter =
            Cutter { reader: self, at: &task.at, map, gathered, loops: &task.loops, reach, stretch, to, pieces };
        cutter.pieces.clear();
        // SAFETY: the caller's promise.
        unsafe { cutter.cut(0, task.in_block, 0) }
    }

    /// Reads a task of a block whose pages lie apart, or that gathers; `false` if the medium does not show its bytes.
    ///
    /// # Safety
    /// `to` must be writable along the task's loops.
    pub(super) unsafe fn read_pieces<'t>(
        &self,
        task: &Task<'t>,
        map: Option<&'a BlockMap>,
        gathered: Option<&'a Gathered>,
        to: *mut u8,
        pieces: &mut Pieces<'t>,
    ) -> Result<bool> {
        // SAFETY: the caller's promise; pieces lie within the block's stretches.
        unsafe {
            if !self.cut(task, map, gathered, to, &mut pieces.cut)? {
                return Ok(false);
            }
            copy_all(&task.loops, &pieces.cut, self.space.shape.item_bytes);
        }
        Ok(true)
    }

    /// The same for a large read: the pieces wait until [`Pieces::assemble`].
    ///
    /// # Safety
    /// `to` must be writable along the task's loops until then.
    pub(super) unsafe fn wait_for_pieces<'t>(
        &self,
        task: &Task<'t>,
        map: Option<&'a BlockMap>,
        gathered: Option<&'a Gathered>,
        to: *mut u8,
        pieces: &mut Pieces<'t>,
    ) -> Result<bool> {
        // SAFETY: the caller's promise.
        if unsafe { !self.cut(task, map, gathered, to, &mut pieces.cut)? } {
            return Ok(false);
        }
        let number = pieces.tasks.len();
        pieces.tasks.push((task.loops.clone(), task.row));
        pieces.waiting.extend(pieces.cut.iter().map(|&piece| (number, piece)));
        Ok(true)
    }
}

impl Pieces<'_> {
    /// Whether so many wait that they are better copied.
    pub(super) fn are_many(&self) -> bool {
        self.waiting.len() >= WAITING_MAX
    }

    /// Gives what waits to the assembler in the order of the destination: pieces of neighbouring blocks make rows.
    ///
    /// # Safety
    /// The promises of [`Reader::wait_for_pieces`], until the assembler has finished.
    pub(super) unsafe fn assemble(&mut self, assembler: &mut Assembler) {
        self.waiting.sort_unstable_by_key(|(_, piece)| piece.to as usize);
        for (task, piece) in self.waiting.drain(..) {
            let (loops, row) = &self.tasks[task];
            // SAFETY: the caller's promise; pieces lie within the block's stretches.
            unsafe { assembler.add(&piece.loops(loops), *row, piece.from, piece.to) };
        }
        self.tasks.clear();
    }
}

impl Cutter<'_, '_, '_> {
    /// Cuts the loops from `level` on, whose first element is at `in_block`; `false` if bytes cannot be had in place.
    ///
    /// # Safety
    /// As for [`Reader::cut`].
    unsafe fn cut(&mut self, level: usize, in_block: usize, in_buffer: isize) -> Result<bool> {
        if !self.stretch_at(in_block) {
            return Ok(false);
        }
        if in_block + self.reach[level] <= self.stretch.bytes.end {
            // SAFETY: the caller's promise.
            unsafe { self.emit(level, ALL, in_block, in_buffer)? };
            return Ok(true);
        }
        match self.loops.get(level) {
            // SAFETY: as above.
            None => unsafe { self.straddle(in_block, in_buffer) },
            Some(&Loop::Affine { n, from, to }) => {
                let inner = self.reach[level + 1];
                let mut i = 0;
                while i < n {
                    let (here, there) = (in_block + i * from as usize, in_buffer + i as isize * to);
                    if !self.stretch_at(here) {
                        return Ok(false);
                    }
                    let end = self.stretch.bytes.end;
                    if here + inner <= end {
                        let steps = (n - i).min((end - inner - here) / (from as usize).max(1) + 1);
                        // SAFETY: as above.
                        unsafe { self.emit(level, steps, here, there)? };
                        i += steps;
                    } else {
                        // SAFETY: as above.
                        if unsafe { !self.cut(level + 1, here, there)? } {
                            return Ok(false);
                        }
                        i += 1;
                    }
                }
                Ok(true)
            }
            Some(&Loop::Table(pairs)) => {
                for &(from, to) in pairs {
                    // SAFETY: as above.
                    if unsafe { !self.cut(level + 1, in_block + from as usize, in_buffer + to)? } {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Goes to the stretch that this byte lies in; `false` if its pages cannot be seen.
    fn stretch_at(&mut self, byte: usize) -> bool {
        if self.stretch.bytes.contains(&byte) {
            return true;
        }
        let shape = &self.reader.space.shape;
        let unit = (byte / shape.page) as u32;
        let range = |units: Range<u32>| units.start as usize * shape.page..units.end as usize * shape.page;
        let next_gathered = match self.gathered {
            Some(Gathered::Units(units)) => units.range(unit..).next(),
            _ => None,
        };
        if let Some((_, gathered)) = next_gathered.filter(|&(&u, _)| u == unit) {
            self.stretch = Stretch { bytes: range(unit..unit + 1), place: Place::Memory(gathered.bytes.as_ptr()) };
            return true;
        }
        let limit = next_gathered.map_or(shape.units, |(&u, _)| u);
        let Some(run) = self.map.and_then(|m| m.next_run(unit)).filter(|r| r.unit < limit) else {
            self.stretch = Stretch { bytes: range(unit..limit), place: Place::Hole };
            return true;
        };
        if unit < run.unit {
            self.stretch = Stretch { bytes: range(unit..run.unit), place: Place::Hole };
            return true;
        }
        // From the run's beginning on, if nothing gathers there: a list may come back to it.
        let start = if self.gathered.is_none() { run.unit } else { unit };
        let part = Run { unit: start, count: run.end().min(limit) - start, ppa: run.page_of(start) };
        let Some(bytes) = self.reader.ftl.view(part.ppa, part.count) else { return false };
        self.stretch = Stretch { bytes: range(part.unit..part.end()), place: Place::Pages(part, bytes.as_ptr()) };
        true
    }

    /// Takes up a piece that lies in the stretch at hand.
    ///
    /// # Safety
    /// As for [`Reader::cut`].
    unsafe fn emit(&mut self, level: usize, steps: usize, in_block: usize, in_buffer: isize) -> Result<()> {
        let to = self.to.wrapping_offset(in_buffer);
        let piece = Piece { from: std::ptr::null(), to, level, steps };
        let skip = in_block - self.stretch.bytes.start;
        match self.stretch.place {
            Place::Hole => {
                let loops = piece.loops(self.loops);
                // SAFETY: the caller's promise.
                unsafe { fill(&loops, &self.reader.space.shape.fill, to) };
            }
            Place::Memory(first) => self.pieces.push(Piece { from: first.wrapping_add(skip), ..piece }),
            Place::Pages(run, first) => {
                self.verify(&piece, run, in_block)?;
                self.pieces.push(Piece { from: first.wrapping_add(skip), ..piece });
            }
        }
        Ok(())
    }

    /// Compares the pages of a run that hold the piece's elements, where they were not compared before.
    fn verify(&self, piece: &Piece, run: Run, in_block: usize) -> Result<()> {
        let Reader { ftl, space, .. } = *self.reader;
        let (page, item) = (space.shape.page, space.shape.item_bytes);
        let first = (in_block / page) as u32;
        let last = match (self.loops.get(piece.level), piece.steps) {
            (Some(&Loop::Affine { from, .. }), steps @ 1..ALL) => {
                in_block + (steps - 1) * from as usize + self.reach[piece.level + 1]
            }
            _ => in_block + self.reach[piece.level],
        };
        if ftl.is_verified(run.page_of(first), last.div_ceil(page) as u32 - first) {
            return Ok(());
        }
        let owner = space.owner(self.at);
        let mut bad = None;
        touch_loops(&piece.loops(self.loops), in_block, item, page, &mut |bytes| {
            if bad.is_none() {
                bad = self.compare(run, owner, bytes).err();
            }
        });
        bad.map_or(Ok(()), |e| Err(space.page_error(&self.reader.inner.record.name, self.at, e)))
    }

    /// Compares the pages of these bytes of the block.
    fn compare(&self, run: Run, owner: Owner, bytes: Range<usize>) -> std::result::Result<(), crate::ftl::FetchError> {
        let page = self.reader.space.shape.page;
        // What is touched may reach into the next stretch, where gaps are small.
        let start = ((bytes.start / page) as u32).max(run.unit);
        let end = (bytes.end.div_ceil(page) as u32).min(run.end());
        if start >= end {
            return Ok(());
        }
        let some = Run { unit: start, count: end - start, ppa: run.page_of(start) };
        let Some(bytes) = self.reader.ftl.view(some.ppa, some.count) else { return Ok(()) };
        self.reader.ftl.verify(some, Owner { unit: start as u16, ..owner }, bytes)
    }

    /// Copies an element that begins in the stretch at hand and ends in another.
    ///
    /// # Safety
    /// As for [`Reader::cut`].
    unsafe fn straddle(&mut self, in_block: usize, in_buffer: isize) -> Result<bool> {
        let item = self.reader.space.shape.item_bytes;
        let mut done = 0;
        while done < item {
            let here = in_block + done;
            if !self.stretch_at(here) {
                return Ok(false);
            }
            let part = (item - done).min(self.stretch.bytes.end - here);
            let to = self.to.wrapping_offset(in_buffer).wrapping_add(done);
            let skip = here - self.stretch.bytes.start;
            let from = match self.stretch.place {
                Place::Hole => self.reader.space.shape.fill[done..].as_ptr(),
                Place::Memory(first) => first.wrapping_add(skip),
                Place::Pages(run, first) => {
                    let owner = self.reader.space.owner(self.at);
                    self.compare(run, owner, here..here + part)
                        .map_err(|e| self.reader.space.page_error(&self.reader.inner.record.name, self.at, e))?;
                    first.wrapping_add(skip)
                }
            };
            // SAFETY: the stretch has these bytes from here on; the element's place is the caller's promise.
            unsafe { std::ptr::copy_nonoverlapping(from, to, part) };
            done += part;
        }
        Ok(true)
    }
}

/// Copies pieces of one task, asking for the lines of later ones: each lies in another page.
///
/// # Safety
/// The pieces must be readable and writable along their loops.
unsafe fn copy_all(loops: &[Loop<'_>], pieces: &[Piece], item_bytes: usize) {
    // Most pieces of a task have the same loops.
    let mut shape = (usize::MAX, 0);
    let mut merged = Loops::new();
    let (mut left, mut run) = (0, 0);
    for (i, piece) in pieces.iter().enumerate() {
        if shape != (piece.level, piece.steps) {
            shape = (piece.level, piece.steps);
            merged = piece.loops(loops);
            (left, run) = merge(&mut merged, item_bytes);
        }
        if let Some(coming) = pieces.get(i + ASKED_PIECES) {
            ask(&merged[..left], run, coming.from);
        }
        // SAFETY: the caller's promise.
        unsafe { copy(&merged[..left], run, piece.from, piece.to) };
    }
}

/// Asks for the first lines of a piece with these loops.
fn ask(loops: &[Loop<'_>], run: usize, from: *const u8) {
    let lines = run.div_ceil(stream::LINE).min(ASKED_LINES);
    let (rows, step) = match loops.last() {
        Some(&Loop::Affine { n, from, .. }) => (n.min(ASKED_LINES / lines), from),
        _ => (1, 0),
    };
    for row in 0..rows as isize {
        let first = from.wrapping_offset(row * step);
        (0..lines).for_each(|line| stream::ask(first.wrapping_add(line * stream::LINE)));
    }
}
