//! Tasks: which records of the inputs are worked on together.
//!
//! Inputs are bytes one after the other. Records of one size are cut by count; lines and prefixed records where one begins.
//! The cut depends on the inputs and on the bytes that a task should have, never on how many cores there are.

use crate::abi;
use crate::error::RunError;
use crate::metadata::{Metadata, Records};
use crate::run::Source;

/// A task: for each input that is cut, which bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// First record; the first byte where records have no common size.
    pub(crate) first: u64,
    /// Records; bytes where they have no common size.
    pub(crate) records: u64,
}

/// How the inputs are cut.
pub(crate) enum Tasks {
    /// So many records each, of so many.
    Even { each: u64, all: u64 },
    /// From one of these bytes to the next.
    At(Vec<u64>),
}

impl Tasks {
    /// Cut the inputs into tasks of about `bytes` bytes of the first one.
    pub(crate) fn new(metadata: &Metadata, source: &dyn Source, bytes: u64) -> Result<Self, RunError> {
        let all = records(metadata, source)?;
        let first = &metadata.inputs[0];
        match first.records {
            Records::Fixed => {
                // No input of a task may be larger than a window.
                let largest = metadata.inputs.iter().filter(|i| !i.whole).map(|i| i.record_bytes).max().unwrap_or(1);
                let most = (abi::WINDOW_BYTES / largest).max(1);
                let grain = source.grain() / first.record_bytes;
                let wanted = (bytes / first.record_bytes).max(1);
                // Whole rows of building blocks, where there is room for them.
                let grained = if grain > 1 && grain <= most { wanted.next_multiple_of(grain) } else { wanted };
                Ok(Self::Even { each: if grained <= most { grained } else { wanted.min(most) }, all })
            }
            Records::Lines => Ok(Self::At(at_lines(source, all, bytes)?)),
            Records::Prefixed => Ok(Self::At(at_prefixes(source, all, bytes)?)),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Even { each, all } => all.div_ceil(*each),
            Self::At(edges) => edges.len() as u64 - 1,
        }
    }

    pub(crate) fn cut(&self, task: u64) -> Cut {
        match self {
            Self::Even { each, all } => Cut { first: task * each, records: (*each).min(all - task * each) },
            Self::At(edges) => {
                let (from, to) = (edges[task as usize], edges[task as usize + 1]);
                Cut { first: from, records: to - from }
            }
        }
    }
}

/// Records of the inputs, which must be as many in all that are cut; bytes where they have no common size.
fn records(metadata: &Metadata, source: &dyn Source) -> Result<u64, RunError> {
    let mut all = None;
    for (i, port) in metadata.inputs.iter().enumerate() {
        let bytes = source.bytes(i);
        if port.whole {
            if bytes > abi::WINDOW_BYTES {
                let most = abi::WINDOW_BYTES;
                return Err(RunError::Inputs(format!(
                    "input {} is {bytes} bytes; whole inputs have {most} at most",
                    port.name
                )));
            }
            continue;
        }
        if !bytes.is_multiple_of(port.item_bytes) {
            let item = port.item_bytes;
            return Err(RunError::Inputs(format!(
                "input {} of {bytes} bytes is not whole elements of {item}",
                port.name
            )));
        }
        let found = bytes.div_ceil(port.record_bytes);
        match all {
            None => all = Some(found),
            Some(first) if first != found => {
                let name = &port.name;
                return Err(RunError::Inputs(format!(
                    "input {} has {first} records, input {name} {found}; they must have the same",
                    metadata.inputs[0].name
                )));
            }
            Some(_) => {}
        }
    }
    Ok(all.unwrap_or(0))
}

/// Bytes that are looked at at once.
const LOOK_BYTES: u64 = 64 << 10;

/// Where tasks begin that hold whole lines, and the end.
fn at_lines(source: &dyn Source, all: u64, bytes: u64) -> Result<Vec<u64>, RunError> {
    let bytes = bytes.clamp(1, abi::WINDOW_BYTES);
    let mut edges = vec![0];
    let mut buffer = Vec::new();
    let mut from = bytes;
    while from < all {
        // The line that holds byte `from - 1` is the task's before.
        let mut at = from - 1;
        let edge = loop {
            if at >= all {
                break all;
            }
            buffer.resize(LOOK_BYTES.min(all - at) as usize, 0);
            source.read(0, at, &mut buffer).map_err(RunError::Transfer)?;
            match buffer.iter().position(|b| *b == b'\n') {
                Some(i) => break at + i as u64 + 1,
                None => at += buffer.len() as u64,
            }
        };
        push(&mut edges, edge)?;
        from = edge.max(from) + bytes;
    }
    push(&mut edges, all)?;
    Ok(edges)
}

/// Where tasks begin that hold whole records with prefixes, and the end.
fn at_prefixes(source: &dyn Source, all: u64, bytes: u64) -> Result<Vec<u64>, RunError> {
    let bytes = bytes.clamp(1, abi::WINDOW_BYTES);
    let (mut edges, mut at) = (vec![0], 0u64);
    let (mut buffer, mut begin) = (Vec::new(), 0u64);
    while at < all {
        if all - at < 4 {
            return Err(RunError::Inputs(format!(
                "a record at byte {at} has no room for its length before the end at {all}"
            )));
        }
        if at < begin || at + 4 > begin + buffer.len() as u64 {
            buffer.resize(LOOK_BYTES.min(all - at) as usize, 0);
            source.read(0, at, &mut buffer).map_err(RunError::Transfer)?;
            begin = at;
        }
        let i = (at - begin) as usize;
        let length = u32::from_le_bytes(buffer[i..i + 4].try_into().expect("four bytes")) & 0x7fff_ffff;
        let next = at + 4 + u64::from(length);
        if next > all {
            return Err(RunError::Inputs(format!(
                "a record at byte {at} of {length} bytes ends beyond the end at {all}"
            )));
        }
        let last = *edges.last().expect("the first edge");
        if next - last > bytes && at > last {
            push(&mut edges, at)?;
        }
        at = next;
    }
    push(&mut edges, all)?;
    Ok(edges)
}

fn push(edges: &mut Vec<u64>, edge: u64) -> Result<(), RunError> {
    let last = *edges.last().expect("the first edge");
    if edge - last > abi::WINDOW_BYTES {
        let (length, most) = (edge - last, abi::WINDOW_BYTES);
        return Err(RunError::Inputs(format!(
            "the record at byte {last} needs a task of {length} bytes; at most {most}"
        )));
    }
    if edge > last {
        edges.push(edge);
    }
    Ok(())
}
