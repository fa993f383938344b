//! Programs beside the data: loading them, and running them over boxes of spaces.
//!
//! The commands are cut as NVMe's Computational Programs command set has them: load, execute on ranges of memory, unload.
//! A program sees the elements of a box one after the other, the last dimension fastest, whatever the building blocks; they
//! are fetched task by task into a core's windows, so that an array is never in memory whole. Each task's fetch is a read
//! of its own: a write that comes in between is seen by the tasks behind it.
//!
//! What tasks write is put one behind the other, in the order of tasks: into memory, or into a box of a space. It does not
//! know what a program does.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use nandarray_cores::{Account, Core, Failure, Form, Options, Program, Progress, RunError, Sink, Source, run};
use parking_lot::RwLock;

use super::{Device, Target};
use crate::error::{Error, Result, Shape};
use crate::stl::read::BufferMut;
use crate::stl::space::SpaceId;
use crate::stl::translate::check_view;
use crate::stl::write::Source as Written;

/// Names a loaded program.
pub type ProgramId = u32;

/// What an input of a program is.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// The caller's bytes.
    Bytes(&'a [u8]),
    /// `start + step * [0, count)` of a space, or of the view of it with this shape.
    Box {
        /// The space.
        space: SpaceId,
        /// First coordinate.
        start: &'a [u64],
        /// Distances, at least 1.
        step: &'a [u64],
        /// Elements.
        count: &'a [u64],
        /// Shape of the view; `None` is the space itself.
        view: Option<&'a [u64]>,
    },
}

/// Where an output of a program goes.
#[derive(Clone, Debug)]
pub enum Output<'a> {
    /// Into memory.
    Collect,
    /// Into a box of a space, or of the view of it with this shape: the first elements of it, as many as there are. What was
    /// written stays if a later task fails.
    Box {
        /// The space.
        space: SpaceId,
        /// First coordinate.
        start: &'a [u64],
        /// Elements.
        count: &'a [u64],
        /// Shape of the view; `None` is the space itself.
        view: Option<&'a [u64]>,
    },
}

/// What an output of a program became.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// These bytes.
    Bytes(Vec<u8>),
    /// So many elements of its box.
    Elements(u64),
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Executed {
    /// Its outputs, in order.
    pub outputs: Vec<Given>,
    /// The state, folded.
    pub state: Vec<u8>,
    /// What it took.
    pub account: Account,
}

/// A program to be run.
#[derive(Debug)]
pub struct Execution<'a> {
    /// Which.
    pub program: ProgramId,
    /// How it is executed.
    pub form: Form,
    /// Its inputs.
    pub inputs: &'a [Input<'a>],
    /// Bit patterns of its scalars.
    pub scalars: &'a [u64],
    /// Where its outputs go, those of its end besides.
    pub outputs: Vec<Output<'a>>,
    /// How.
    pub options: Options,
    /// What happened so far; stops it.
    pub progress: &'a Progress,
}

impl Execution<'_> {
    /// Whether it changes the store.
    pub(super) fn writes(&self) -> bool {
        self.outputs.iter().any(|output| matches!(output, Output::Box { .. }))
    }
}

/// The programs that are loaded.
#[derive(Debug, Default)]
pub(super) struct Programs {
    next: ProgramId,
    loaded: BTreeMap<ProgramId, Arc<Program>>,
}

/// An input with what is known of its space.
struct Fed<'a> {
    input: &'a Input<'a>,
    item: u64,
    bytes: u64,
    grain: u64,
}

/// The inputs of a run.
struct Feed<'a> {
    device: &'a Device,
    inputs: Vec<Fed<'a>>,
}

impl Device {
    pub(super) fn load_program(&self, elf: &[u8], metadata: Option<&[u8]>) -> Result<ProgramId> {
        let program = Program::from_elf(elf, metadata).map_err(|e| Error::Program(Box::new(e)))?;
        let mut programs = self.programs.write();
        programs.next += 1;
        let id = programs.next;
        programs.loaded.insert(id, Arc::new(program));
        Ok(id)
    }

    pub(super) fn unload_program(&self, id: ProgramId) -> Result<()> {
        let mut programs = self.programs.write();
        programs.loaded.remove(&id).map(drop).ok_or_else(|| unknown(id))
    }

    pub(super) fn execute_program(&self, execution: Execution<'_>) -> Result<Executed> {
        let Execution { program: id, form, inputs, scalars, outputs, mut options, progress } = execution;
        let program = self.programs.read().loaded.get(&id).cloned().ok_or_else(|| unknown(id))?;
        let wanted = [program.metadata().inputs.len(), program.metadata().outputs.len()];
        if [inputs.len(), outputs.len()] != wanted {
            let [i, o] = wanted;
            let (ni, no) = (inputs.len(), outputs.len());
            return Err(Error::invalid(format!("{ni} inputs and {no} outputs for a program that has {i} and {o}")));
        }
        if self.ftl.probe().is_some() {
            // Under the modelled clock commands come one after the other.
            options.threads = 1;
        }
        let fed: Result<Vec<Fed<'_>>> = inputs.iter().map(|input| self.fed(input)).collect();
        let feed = Feed { device: self, inputs: fed? };
        let given = outputs.iter().map(|output| match output {
            Output::Collect => Given::Bytes(Vec::new()),
            Output::Box { .. } => Given::Elements(0),
        });
        let mut drain = Drain { device: self, given: given.collect(), outputs };
        let core = |p| match (form, &progress.profiler) {
            // Whoever counts instructions wants those of the interpreter.
            (Form::Interpreted, Some(profiler)) => profiler.core(p),
            (Form::Interpreted, None) => Core::interpreter(p),
            (Form::Native(entries), _) => Core::native(p, entries),
        };
        let mut outcome = run(&program, &core, scalars, &feed, &mut drain, options, progress).map_err(Error::from)?;
        for (output, bytes) in std::mem::take(&mut outcome.ends) {
            drain.put(output, &bytes)?;
        }
        Ok(Executed { outputs: drain.given, state: outcome.state, account: outcome.account })
    }

    fn fed<'a>(&self, input: &'a Input<'a>) -> Result<Fed<'a>> {
        let Input::Box { space, start, step, count, view } = input else {
            let Input::Bytes(bytes) = input else { unreachable!("there are two kinds of input") };
            return Ok(Fed { input, item: 1, bytes: bytes.len() as u64, grain: 0 });
        };
        let space = self.space(*space)?;
        let item = space.shape.item_bytes as u64;
        let shape = space.read()?.record.shape.clone();
        let within = view.unwrap_or(&shape);
        check_view(&shape, within)?;
        let n = within.len();
        if [start.len(), step.len(), count.len()] != [n; 3] {
            let got = count.len();
            return Err(Error::invalid(format!("an input of {got} dimensions of an array of shape {}", Shape(within))));
        }
        for axis in 0..n {
            let last = u128::from(start[axis]) + u128::from(step[axis]) * u128::from(count[axis].saturating_sub(1));
            if count[axis] > 0 && last >= u128::from(within[axis]) {
                return Err(Error::OutOfRange { axis, index: last, size: within[axis] });
            }
        }
        let volume = |counts: &[u64]| counts.iter().try_fold(item, |all, &c| all.checked_mul(c));
        let bytes =
            volume(count).ok_or_else(|| Error::invalid(format!("an input of shape {} is too large", Shape(count))))?;
        let row = count.get(1..).and_then(volume).unwrap_or(0);
        // What is compressed is opened block by block: better each block once. Else rows are as good.
        let blocks = if space.coded() && view.is_none() && n > 1 && step[0] == 1 { space.shape.block[0] } else { 1 };
        Ok(Fed { input, item, bytes, grain: row.saturating_mul(blocks) })
    }
}

fn unknown(id: ProgramId) -> Error {
    Error::NotFound { name: format!("program {id}") }
}

impl From<RunError> for Error {
    fn from(error: RunError) -> Self {
        match error {
            // The store's own errors come out as they went in.
            RunError::Transfer(inner) => match inner.downcast::<Self>() {
                Ok(own) => *own,
                Err(inner) => Self::Execution(Box::new(RunError::Transfer(inner))),
            },
            RunError::Inputs(what) => Self::Invalid(what),
            other => Self::Execution(Box::new(other)),
        }
    }
}

impl Source for Feed<'_> {
    fn bytes(&self, input: usize) -> u64 {
        self.inputs[input].bytes
    }

    fn grain(&self) -> u64 {
        self.inputs[0].grain
    }

    fn read(&self, input: usize, offset: u64, into: &mut [u8]) -> std::result::Result<(), Failure> {
        let fed = &self.inputs[input];
        let end = offset + into.len() as u64;
        assert!(end <= fed.bytes, "an input of {} bytes is read up to {end}", fed.bytes);
        match fed.input {
            Input::Bytes(bytes) => into.copy_from_slice(&bytes[offset as usize..end as usize]),
            Input::Box { .. } if offset.is_multiple_of(fed.item) && end.is_multiple_of(fed.item) => {
                self.fetch(fed, offset / fed.item..end / fed.item, into)?;
            }
            Input::Box { .. } => {
                // Records that are no whole elements: fetch the elements that they lie in.
                let elements = offset / fed.item..end.div_ceil(fed.item);
                let mut whole = vec![0; ((elements.end - elements.start) * fed.item) as usize];
                self.fetch(fed, elements.clone(), &mut whole)?;
                let skip = (offset - elements.start * fed.item) as usize;
                into.copy_from_slice(&whole[skip..skip + into.len()]);
            }
        }
        Ok(())
    }
}

impl Feed<'_> {
    /// Fetch elements of a box by their place in it, the last dimension fastest.
    fn fetch(&self, fed: &Fed<'_>, elements: Range<u64>, into: &mut [u8]) -> Result<()> {
        let Input::Box { space, start, step, count, view } = fed.input else { return Ok(()) };
        let (mut at, item) = (0usize, fed.item);
        pieces(count, elements, &mut |first, size| {
            let from: Vec<u64> = (0..first.len()).map(|d| start[d] + step[d] * first[d]).collect();
            let strides = packed(size, item);
            let bytes = (size.iter().product::<u64>() * item) as usize;
            let target = Target::Box { start: &from, step, count: size, strides: &strides, view: *view };
            let part = &mut into[at..at + bytes];
            at += bytes;
            // SAFETY: the strides are those of an array of this size, whose bytes are `part`.
            self.device.read(*space, target, unsafe { BufferMut::from_raw(part.as_mut_ptr()) })
        })?;
        assert_eq!(at, into.len(), "the pieces of a range are the range");
        Ok(())
    }
}

/// The outputs of a run.
struct Drain<'d> {
    device: &'d Device,
    outputs: Vec<Output<'d>>,
    given: Vec<Given>,
}

impl Sink for Drain<'_> {
    fn take(&mut self, output: usize, _task: u64, bytes: Vec<u8>) -> std::result::Result<(), Failure> {
        Ok(self.put(output, &bytes)?)
    }
}

impl Drain<'_> {
    /// Put bytes behind what an output has.
    fn put(&mut self, output: usize, bytes: &[u8]) -> Result<()> {
        match (&self.outputs[output], &mut self.given[output]) {
            (_, Given::Bytes(all)) => all.extend_from_slice(bytes),
            (Output::Collect, Given::Elements(_)) => unreachable!("what is collected is bytes"),
            (Output::Box { space, start, count, view }, Given::Elements(written)) => {
                let item = self.device.space(*space)?.shape.item_bytes as u64;
                let (more, room) = (bytes.len() as u64 / item, count.iter().product::<u64>() - *written);
                if !(bytes.len() as u64).is_multiple_of(item) {
                    let n = bytes.len();
                    return Err(Error::invalid(format!(
                        "output {output} of {n} bytes is no whole elements of {item} bytes"
                    )));
                }
                if more > room {
                    return Err(Error::invalid(format!(
                        "output {output} has more than the {} elements of {}",
                        *written + room,
                        Shape(count)
                    )));
                }
                let mut at = 0usize;
                pieces(count, *written..*written + more, &mut |first, size| {
                    let from: Vec<u64> = (0..first.len()).map(|d| start[d] + first[d]).collect();
                    let strides = packed(size, item);
                    let part = (size.iter().product::<u64>() * item) as usize;
                    let step = vec![1; size.len()];
                    let target = Target::Box { start: &from, step: &step, count: size, strides: &strides, view: *view };
                    let source = bytes[at..at + part].as_ptr();
                    at += part;
                    // SAFETY: the strides are those of an array of this size, whose bytes are there.
                    self.device.write(*space, target, unsafe { Written::from_raw(source) })
                })?;
                *written += more;
            }
        }
        Ok(())
    }
}

/// Byte strides of an array without gaps.
fn packed(size: &[u64], item: u64) -> Vec<isize> {
    let mut strides = vec![item as isize; size.len()];
    for d in (1..size.len()).rev() {
        strides[d - 1] = strides[d] * size[d] as isize;
    }
    strides
}

/// Cut a range of a box's elements, the last dimension fastest, into boxes: first coordinates and sizes, in order.
fn pieces(count: &[u64], range: Range<u64>, each: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>) -> Result<()> {
    let (mut first, mut size) = (vec![0; count.len()], vec![1; count.len()]);
    pieces_from(count, 0, range, &mut first, &mut size, each)
}

fn pieces_from(
    count: &[u64],
    axis: usize,
    range: Range<u64>,
    first: &mut Vec<u64>,
    size: &mut Vec<u64>,
    each: &mut dyn FnMut(&[u64], &[u64]) -> Result<()>,
) -> Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    if axis == count.len() {
        return each(first, size);
    }
    let inner: u64 = count[axis + 1..].iter().product();
    let mut at = range.start;
    while at < range.end {
        let row = at / inner;
        let rows = (range.end / inner).saturating_sub(row);
        first[axis] = row;
        if at.is_multiple_of(inner) && rows > 0 {
            size[axis] = rows;
            for d in axis + 1..count.len() {
                (first[d], size[d]) = (0, count[d]);
            }
            each(first, size)?;
            at += rows * inner;
        } else {
            size[axis] = 1;
            let end = range.end.min((row + 1) * inner);
            pieces_from(count, axis + 1, at - row * inner..end - row * inner, first, size, each)?;
            at = end;
        }
    }
    size[axis] = 1;
    Ok(())
}

/// A lock around the programs, for the device.
pub(super) type Loaded = RwLock<Programs>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_range_in_order() {
        for count in [vec![7], vec![3, 4], vec![2, 3, 4], vec![1, 5, 1, 2], vec![]] {
            let all: u64 = count.iter().product();
            for start in 0..=all {
                for end in start..=all {
                    let mut found = Vec::new();
                    let mut calls = 0;
                    pieces(&count, start..end, &mut |first, size| {
                        calls += 1;
                        let volume: u64 = size.iter().product();
                        let linear = |c: &[u64]| c.iter().zip(&count).fold(0, |all, (c, n)| all * n + c);
                        let from = linear(first);
                        found.extend(from..from + volume);
                        assert!(first.iter().zip(size).zip(&count).all(|((f, s), n)| f + s <= *n));
                        Ok(())
                    })
                    .unwrap();
                    assert_eq!(found, (start..end).collect::<Vec<_>>(), "{count:?} {start}..{end}");
                    assert!(calls <= 2 * count.len().max(1), "{calls} pieces");
                }
            }
        }
    }
}
