//! The outputs of a run that go to boxes of spaces or to the caller's memory.
//!
//! An output that goes to a box is a [`StagedWrite`]: it is written in slabs (whole rows of building blocks), if a slab
//! is small enough to buffer, and becomes visible in the space only when every program has ended. Of two runs that
//! write the same blocks one waits for the other. Other writes of these blocks wait while the programs run; or, if the
//! request wants it, only at their end: until then the output is in a [`Spool`].

use std::sync::Arc;

use nandarray::{
    Compound, Error, RangeTicket, Result, Shape, Source, Space, SpaceId, Spool, StagedWrite, Target, check_view,
};

use crate::io::{OutputSink, TransferError};
use crate::progress::Progress;
use crate::request::{Output, OutputValue};
use crate::tiles::{Tiles, packed, pieces};

/// Limit of the bytes of an output that are buffered in order to write whole building blocks.
const SLAB_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are written at once, at least, if a slab of whole building blocks is larger than [`SLAB_BYTES_MAX`].
const PART_BYTES: u64 = 16 << 20;

/// The box of a space that an output is written to, and the progress of writing.
struct OutputBox<'d> {
    staged: usize,
    start: &'d [u64],
    count: &'d [u64],
    view: Option<&'d [u64]>,
    tiles: Option<Tiles<'d>>,
    item: u64,
    /// Number of elements that were written.
    written: u64,
    /// Bytes after the written elements, buffered until a slab is complete.
    waiting: Vec<u8>,
    /// All bytes so far and their number, if they are staged when the programs have ended.
    spool: Option<(Spool<'d>, u64)>,
}

/// The writer of a run's outputs, to spaces and to memory.
pub(crate) struct OutputWriter<'d> {
    /// Empty until the programs have ended, if outputs are in spools.
    staged: Vec<StagedWrite<'d>>,
    places: Vec<Option<OutputBox<'d>>>,
    collected: Vec<Vec<u8>>,
    /// Limit of the bytes in `collected`.
    collect_bytes: u64,
    /// The progress of the run, with its budget; `None` if it has none.
    progress: Option<&'d Progress>,
    /// Keep other runs, and deletions, from the spaces.
    _runs: Vec<RangeTicket>,
}

/// Returns the spaces that outputs are written to, each once, in the order of their ids.
pub(crate) fn spaces_of(compound: &Compound<'_>, outputs: &[&Output<'_>]) -> Result<Vec<Arc<Space>>> {
    let mut ids: Vec<SpaceId> = outputs.iter().filter_map(|output| boxed(output)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.into_iter().map(|id| compound.space(id)).collect()
}

fn boxed(output: &Output<'_>) -> Option<SpaceId> {
    match output {
        Output::Box { space, .. } => Some(*space),
        Output::Collect => None,
    }
}

impl<'d> OutputWriter<'d> {
    /// Begins to write the outputs, whose spaces are `spaces` ([`spaces_of`]): waits for other runs that write to the
    /// same blocks, and locks these blocks against other writes, unless it is enough `at_end`. All outputs that are
    /// collected, and not handed over while the run goes on, have at most `collect_bytes` bytes together. Without
    /// `progress` nothing computes any more: the outputs are there, and wait for no run.
    pub(crate) fn begin(
        compound: &Compound<'d>,
        spaces: &[Arc<Space>],
        outputs: &[&Output<'d>],
        (collect_bytes, at_end): (u64, bool),
        progress: Option<&'d Progress>,
    ) -> Result<Self> {
        let mut runs = Vec::new();
        for space in spaces {
            let theirs = outputs_to(space, outputs);
            apart(&theirs)?;
            let shape = space.read()?.record.shape.clone();
            theirs.iter().try_for_each(|output| within(output, &shape))?;
            if let Some(progress) = progress {
                runs.extend(compound.hold_run(space, blocks(&theirs, &shape, &space.shape.block), &progress.stop)?);
                // A command that was waited for may have deleted or shrunk it.
                let shape = space.read()?.record.shape.clone();
                theirs.iter().try_for_each(|output| within(output, &shape))?;
            }
        }
        let staged = if at_end { Vec::new() } else { stage(compound, spaces, outputs)? };
        let mut places = Vec::new();
        for output in outputs {
            places.push(match output {
                Output::Collect => None,
                Output::Box { space, start, count, view, tiles } => {
                    let staged = spaces.iter().position(|s| s.id == *space).expect("the space of an output");
                    let item = spaces[staged].shape.item_bytes as u64;
                    let (written, waiting) = (0, Vec::new());
                    let spool = at_end.then(|| compound.spool(spaces[staged].clone())).transpose()?;
                    let spool = spool.map(|spool| (spool, 0));
                    Some(OutputBox { staged, start, count, view: *view, tiles: *tiles, item, written, waiting, spool })
                }
            });
        }
        let collected = vec![Vec::new(); places.len()];
        Ok(Self { staged, collected, places, collect_bytes, progress, _runs: runs })
    }

    /// Writes the rest of each output, and applies all staged writes as one. Returns the value of each output.
    pub(crate) fn finish(
        mut self,
        compound: &Compound<'d>,
        spaces: &[Arc<Space>],
        outputs: &[&Output<'d>],
    ) -> Result<Vec<OutputValue>> {
        if self.places.iter().flatten().any(|place| place.spool.is_some()) {
            self.staged = stage(compound, spaces, outputs)?;
        }
        let mut given = Vec::new();
        for (output, (place, bytes)) in self.places.iter_mut().zip(self.collected).enumerate() {
            given.push(match place {
                None => OutputValue::Bytes(bytes),
                Some(place) => {
                    if let Some((mut spool, _)) = place.spool.take() {
                        place.unspool(output, &mut spool, &mut self.staged[place.staged])?;
                    }
                    let rest = std::mem::take(&mut place.waiting);
                    place.write(&mut self.staged[place.staged], &rest)?;
                    OutputValue::Elements(place.written)
                }
            });
        }
        compound.apply(self.staged)?;
        Ok(given)
    }
}

impl OutputSink for OutputWriter<'_> {
    fn is_stored(&self, output: usize) -> bool {
        self.places[output].is_some()
    }

    fn take(&mut self, output: usize, _task: u64, bytes: Vec<u8>) -> std::result::Result<(), TransferError> {
        match &mut self.places[output] {
            None => {
                let budget = self.progress.and_then(|progress| Some((progress.collected.as_deref()?, &progress.stop)));
                if let Some((budget, stop)) = budget
                    && budget.hand_over(output, &bytes, stop)?
                {
                    return Ok(());
                }
                let all: usize = self.collected.iter().map(Vec::len).sum::<usize>() + bytes.len();
                if all as u64 > self.collect_bytes {
                    let most = self.collect_bytes;
                    return Err(Error::invalid(format!("outputs in memory must have at most {most} bytes")).into());
                }
                if budget.is_some_and(|(budget, _)| !budget.take(output, bytes.len() as u64)) {
                    return Err(Error::Busy(format!("no memory is left for {all} bytes of outputs")).into());
                }
                self.collected[output].extend_from_slice(&bytes);
            }
            Some(place) => match &mut place.spool {
                Some((_, before)) => {
                    let more = bytes.len() as u64;
                    let first = std::mem::replace(before, *before + more) == 0 && more > 0;
                    place.admits(output, more)?;
                    if first
                        && let Some(budget) = self.progress.and_then(|progress| progress.collected.as_deref())
                        && !budget.reserve(Spool::MEMORY_BYTES)
                    {
                        let bytes = Spool::MEMORY_BYTES;
                        return Err(Error::Busy(format!("no memory is left for {bytes} bytes of an output")).into());
                    }
                    let (spool, _) = place.spool.as_mut().expect("it is there");
                    let written = spool.written_bytes();
                    spool.put(&bytes)?;
                    if let Some(budget) = self.progress.and_then(|progress| progress.collected.as_deref()) {
                        budget.keep(spool.written_bytes() - written)?;
                    }
                }
                None => place.put(output, &mut self.staged[place.staged], &bytes)?,
            },
        }
        Ok(())
    }
}

impl OutputBox<'_> {
    /// Checks that `n` more bytes are whole elements that the box has; those of a spool are counted there already.
    fn admits(&self, output: usize, n: u64) -> Result<()> {
        let item = self.item;
        if !n.is_multiple_of(item) {
            return Err(Error::invalid(format!("output {output} of {n} bytes is no whole elements of {item} bytes")));
        }
        let all: u64 = self.count.iter().product();
        let spooled = self.spool.as_ref().map(|(_, bytes)| *bytes);
        if self.written + spooled.unwrap_or(self.waiting.len() as u64 + n) / item > all {
            let shape = Shape(self.count);
            return Err(Error::invalid(format!("output {output} has more than the {all} elements of {shape}")));
        }
        Ok(())
    }

    /// Appends the bytes of the output's spool.
    fn unspool(&mut self, output: usize, spool: &mut Spool<'_>, write: &mut StagedWrite<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        loop {
            let some = spool.take_next()?;
            if some.is_empty() {
                assert!(bytes.is_empty(), "{} bytes of an element", bytes.len());
                return Ok(());
            }
            bytes.extend(some);
            let whole = bytes.len() / self.item as usize * self.item as usize;
            self.put(output, write, &bytes[..whole])?;
            bytes.drain(..whole);
        }
    }

    /// Appends bytes to the output, and writes the slabs that are complete.
    fn put(&mut self, output: usize, write: &mut StagedWrite<'_>, bytes: &[u8]) -> Result<()> {
        let n = bytes.len() as u64;
        self.admits(output, n)?;
        let mut rest = bytes;
        if self.waiting.is_empty() {
            let now = self.writable(write.space(), n);
            self.write(write, &rest[..now])?;
            rest = &rest[now..];
        }
        self.waiting.extend_from_slice(rest);
        let now = self.writable(write.space(), self.waiting.len() as u64);
        if now > 0 {
            let mut waiting = std::mem::take(&mut self.waiting);
            self.write(write, &waiting[..now])?;
            waiting.drain(..now);
            self.waiting = waiting;
        }
        Ok(())
    }

    /// Returns how many of the `bytes` bytes after the written elements are to be written now: whole slabs.
    fn writable(&self, space: &Space, bytes: u64) -> usize {
        let inner: u64 = self.count.iter().skip(1).product();
        let rows = self.count.first().copied().unwrap_or(1);
        let block = if self.view.is_some() { 1 } else { space.shape.block[0] };
        let first = self.start.first().copied().unwrap_or(0);
        // Returns the last row at or before `row` at which a row of building blocks, or of tiles, ends.
        let edge = |row: u64| match &self.tiles {
            Some(tiles) => tiles.row_edge(row, self.count),
            None => ((first + row) / block * block).saturating_sub(first).min(rows),
        };
        let block = self.tiles.map_or(block, |tiles| tiles.size.first().copied().unwrap_or(1));
        let slab = block.min(rows).saturating_mul(inner).saturating_mul(self.item);
        if self.view.is_some() && self.tiles.is_none() || slab > SLAB_BYTES_MAX {
            return if bytes >= PART_BYTES { bytes as usize } else { 0 };
        }
        let end = self.written + bytes / self.item;
        let last = if end == rows * inner { rows } else { edge(end / inner) };
        ((last * inner).saturating_sub(self.written) * self.item) as usize
    }

    fn write(&mut self, write: &mut StagedWrite<'_>, bytes: &[u8]) -> Result<()> {
        let (item, more, mut at) = (self.item, bytes.len() as u64 / self.item, 0usize);
        let range = self.written..self.written + more;
        // Whole rows of tiles are written in the order of rows, so that each building block is written once.
        let inner: u64 = self.count.iter().skip(1).product();
        let ends_row = |tiles: &Tiles<'_>, at: u64| {
            at.is_multiple_of(inner.max(1)) && tiles.ends_row(at / inner.max(1), self.count)
        };
        let whole = self.tiles.filter(|tiles| ends_row(tiles, range.start) && ends_row(tiles, range.end));
        let turned = whole.map(|tiles| tiles.in_rows(self.count, range.clone(), item, bytes));
        let (bytes, tiles) = match &turned {
            Some(turned) => (&turned[..], None),
            None => (bytes, self.tiles.as_ref()),
        };
        pieces(self.count, tiles, range, &mut |first, size| {
            let from: Vec<u64> = (0..first.len()).map(|d| self.start[d] + first[d]).collect();
            let strides = packed(size, item);
            let part = (size.iter().product::<u64>() * item) as usize;
            let step = vec![1; size.len()];
            let target = Target::Box { start: &from, step: &step, count: size, strides: &strides, view: self.view };
            let source = bytes[at..at + part].as_ptr();
            at += part;
            // SAFETY: `source` points to the `part` bytes of an array of this size with these strides.
            write.put(&target, unsafe { Source::from_raw(source) })
        })?;
        self.written += more;
        Ok(())
    }
}

/// Returns those of the outputs that go to a space.
fn outputs_to<'a, 'd>(space: &Space, outputs: &[&'a Output<'d>]) -> Vec<&'a Output<'d>> {
    outputs.iter().copied().filter(|output| boxed(output) == Some(space.id)).collect()
}

/// Begins a staged write to each of the outputs' spaces, and so locks the blocks that they are written to.
fn stage<'d>(compound: &Compound<'d>, spaces: &[Arc<Space>], outputs: &[&Output<'_>]) -> Result<Vec<StagedWrite<'d>>> {
    let one = |space: &Arc<Space>| {
        let theirs = outputs_to(space, outputs);
        let shape = space.read()?.record.shape.clone();
        let write = compound.stage(space.clone(), blocks(&theirs, &shape, &space.shape.block))?;
        // The staged write keeps the shape from now on; another command may have changed it before.
        theirs.iter().try_for_each(|output| within(output, write.shape()))?;
        Ok(write)
    };
    spaces.iter().map(one).collect()
}

/// Checks that outputs to one space do not overlap, and are not in different views of the space.
fn apart(outputs: &[&Output<'_>]) -> Result<()> {
    for (i, one) in outputs.iter().enumerate() {
        for other in &outputs[i + 1..] {
            let (Output::Box { start, count, view, .. }, Output::Box { start: begin, count: size, view: seen, .. }) =
                (one, other)
            else {
                continue;
            };
            let meets = |d: usize| {
                start[d].max(begin[d]) < start[d].saturating_add(count[d]).min(begin[d].saturating_add(size[d]))
            };
            if view != seen || start.len() != begin.len() || (0..start.len()).all(meets) {
                return Err(Error::invalid("two outputs go to the same elements of one array, or to two views of it"));
            }
        }
    }
    Ok(())
}

/// Checks that an output's box lies within the space.
fn within(output: &Output<'_>, shape: &[u64]) -> Result<()> {
    let Output::Box { start, count, view, tiles, .. } = output else { return Ok(()) };
    if let Some(tiles) = tiles {
        tiles.check(count)?;
        if tiles.halo.is_some() {
            return Err(Error::invalid("an output's tiles must have no halo"));
        }
    }
    let within = view.unwrap_or(shape);
    check_view(shape, within)?;
    // The one element of a scalar has no dimensions.
    if start.is_empty() && count.is_empty() && within.iter().all(|&n| n == 1) {
        return Ok(());
    }
    if [start.len(), count.len()] != [within.len(); 2] {
        let got = count.len();
        return Err(Error::invalid(format!("an output of {got} dimensions to an array of shape {}", Shape(within))));
    }
    for axis in 0..within.len() {
        let end = u128::from(start[axis]) + u128::from(count[axis]);
        if end > u128::from(within[axis]) {
            return Err(Error::OutOfRange { axis, index: end - 1, size: within[axis] });
        }
    }
    Ok(())
}

/// Returns the first and the last building block along each dimension that outputs lie in; empty stands for all blocks.
fn blocks(outputs: &[&Output<'_>], shape: &[u64], block: &[u64]) -> Vec<(u64, u64)> {
    let mut around: Option<Vec<(u64, u64)>> = None;
    for output in outputs {
        let Output::Box { start, count, view, .. } = output else { continue };
        if view.is_some() || start.len() != shape.len() {
            return vec![];
        }
        let sides = (0..shape.len()).map(|d| (start[d] / block[d], (start[d] + count[d].max(1) - 1) / block[d]));
        around = Some(match around {
            None => sides.collect(),
            Some(so_far) => so_far.iter().zip(sides).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))).collect(),
        });
    }
    around.unwrap_or_default()
}
