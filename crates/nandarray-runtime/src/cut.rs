//! Cuts inputs into tasks: each task gets consecutive records of the inputs.
//!
//! An input is a sequence of bytes. Records of one size are cut by count; lines and length-prefixed records are cut
//! where a record begins. The cuts depend on the inputs and on the target size of a task alone, never on the number of
//! cores, nor on the time at which another program's output arrives.

use nandarray_cores::{ALL_BYTES, InputPort, Metadata, Records, RunError, Tasks, abi};

use crate::io::InputSource;
use crate::queue::StreamQueue;

mod paced;
#[cfg(test)]
mod tests;

use paced::PacedInputs;
pub(crate) use paced::check_taken;

/// A task's range of records, the same in each input that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Number of the first record; the first byte if records have no common size.
    pub(crate) first: u64,
    /// Number of records; number of bytes if records have no common size.
    pub(crate) records: u64,
}

/// The bytes of an input that have arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supply {
    /// Number of bytes that have arrived.
    pub(crate) bytes: u64,
    /// Whether the input has ended: no further bytes will arrive.
    pub(crate) closed: bool,
}

/// The answer of [`TaskCutter::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextCut {
    /// A task can be cut. The number says how many bytes of the first input beyond the task's end had to arrive before
    /// that end was known; `None` if the end of the inputs had to be known.
    Task(Cut, Option<u64>),
    /// No task can be cut before more bytes of the inputs arrive.
    Wait,
    /// No task is left: all inputs were cut.
    End,
}

/// The rule by which inputs are cut into tasks.
enum CutRule {
    /// Every task has this number of records.
    Even(u64),
    /// One task has all records.
    All,
    /// A task goes from one of these edges to the next; edges are record numbers, or bytes if records have no common
    /// size.
    At(Vec<u64>),
    /// A task ends with a line. Ends of lines are searched for as the input arrives; bytes before this position were
    /// searched.
    Lines(u64),
    /// A task ends with a length-prefixed record. Records are followed as the input arrives, from the one at this
    /// position on.
    Prefixed(u64),
    /// A task sees a window of each input, from where the task before it stopped taking.
    Paced(PacedInputs),
}

/// A cutter: cuts the inputs of a program into tasks, one after the other.
pub(crate) struct TaskCutter {
    way: CutRule,
    /// Target size of a task, in bytes of the first input.
    bytes: u64,
    /// Number of records that were cut so far; number of bytes if records have no common size.
    first: u64,
    /// Number of tasks that were cut so far.
    cut: u64,
    /// Number of the task before which cutting ends; `u64::MAX` if it ends with the inputs.
    end: u64,
}

impl TaskCutter {
    /// Makes a cutter for tasks of about `bytes` bytes of the first input. That input is best read in units of
    /// `grain` bytes; 0 if every size is as good.
    pub(crate) fn new(metadata: &Metadata, grain: u64, bytes: u64) -> Self {
        let bytes = bytes.max(1);
        let first = &metadata.inputs[0];
        let way = match first.records {
            _ if metadata.is_paced() => CutRule::Paced(PacedInputs::new(metadata, bytes)),
            _ if bytes == ALL_BYTES => CutRule::All,
            Records::Fixed => {
                // No input of a task may be larger than a window.
                let largest = metadata.inputs.iter().filter(|i| !i.whole).map(|i| i.record_bytes).max().unwrap_or(1);
                let most = (abi::WINDOW_BYTES / largest).max(1);
                let grain = grain / first.record_bytes;
                let wanted = (bytes / first.record_bytes).max(1);
                // Round up to whole units of reads (rows of building blocks), if they fit a window.
                let grained = if grain > 1 && grain <= most { wanted.next_multiple_of(grain) } else { wanted };
                CutRule::Even(if grained <= most { grained } else { wanted.min(most) })
            }
            Records::Lines => CutRule::Lines(0),
            Records::Prefixed => CutRule::Prefixed(0),
        };
        Self { way, bytes: bytes.clamp(1, abi::WINDOW_BYTES), first: 0, cut: 0, end: u64::MAX }
    }

    /// Whether [`Self::search`] has to find the ends of records first, if the first input is external.
    pub(crate) fn is_to_search(&self) -> bool {
        matches!(self.way, CutRule::Lines(_) | CutRule::Prefixed(_))
    }

    /// Searches an external input for the ends of records that have no common size; returns the edges of tasks of about
    /// `bytes` bytes.
    pub(crate) fn search(
        metadata: &Metadata,
        source: &dyn InputSource,
        input: usize,
        bytes: u64,
    ) -> Result<Edges, RunError> {
        let all = source.bytes(input);
        match metadata.inputs[0].records {
            Records::Fixed => panic!("records of one size need no looking"),
            Records::Lines => at_lines(source, input, all, bytes),
            Records::Prefixed => at_prefixes(source, input, all, bytes),
        }
        .map(Edges)
    }

    /// Sets the edges at which the inputs are cut.
    pub(crate) fn cut_at(&mut self, edges: Edges) {
        self.way = CutRule::At(edges.0);
    }

    /// Cuts only the tasks with numbers from `first` on and below `end`; `record` is the first record of the first one.
    pub(crate) fn cut_only(&mut self, first: u64, end: u64, record: u64) {
        assert!(self.cut == 0 && self.paced().is_none(), "a share is chosen before the first task is cut");
        (self.cut, self.end, self.first) = (first, end, record);
    }

    /// Returns the inputs' positions, if they have paces of their own.
    pub(crate) fn paced(&self) -> Option<&PacedInputs> {
        if let CutRule::Paced(paced) = &self.way { Some(paced) } else { None }
    }

    /// Moves on by what a task took of inputs that have paces of their own, in bytes; returns the new positions.
    pub(crate) fn advance(&mut self, metadata: &Metadata, taken: &[u64]) -> Vec<u64> {
        let CutRule::Paced(paced) = &mut self.way else { panic!("inputs of one pace move on when they are cut") };
        let at = paced.advance(metadata, taken);
        self.first = at[0] / metadata.inputs[0].record_bytes;
        at
    }

    /// Returns the number of tasks that were cut so far.
    pub(crate) fn count(&self) -> u64 {
        self.cut
    }

    /// Returns the number of records that were cut so far; the number of bytes if records have no common size.
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number of tasks that are to be cut; `None` while it is not known.
    pub(crate) fn expected(&self, metadata: &Metadata, supplies: &[Supply]) -> Option<u64> {
        let all = match &self.way {
            CutRule::Even(each) if supplies[0].closed => {
                Some(supplies[0].bytes.div_ceil(metadata.inputs[0].record_bytes).div_ceil(*each))
            }
            CutRule::At(edges) => Some(edges.len() as u64 - 1),
            CutRule::All if supplies[0].closed => Some(u64::from(supplies[0].bytes > 0)),
            _ => None,
        };
        all.map(|all| all.min(self.end).saturating_sub(self.cut))
    }

    /// Returns the most bytes of an input of one task.
    pub(crate) fn most(&self, metadata: &Metadata) -> u64 {
        if matches!(self.way, CutRule::All) { metadata.most_bytes() } else { abi::WINDOW_BYTES }
    }

    /// Returns an upper bound of the bytes of an input that the next task needs.
    pub(crate) fn need(&self, metadata: &Metadata, input: usize) -> u64 {
        match &self.way {
            CutRule::Even(each) => each * metadata.inputs[input].record_bytes,
            CutRule::All => metadata.most_bytes(),
            CutRule::Paced(paced) => paced.window(input),
            _ => self.bytes * metadata.inputs[input].record_bytes,
        }
    }

    /// Returns the next cut, if the bytes that have arrived of each input allow one. `queue` is the queue of the first
    /// input, if another stage produces it.
    pub(crate) fn next(
        &mut self,
        metadata: &Metadata,
        supplies: &[Supply],
        queue: Option<&StreamQueue>,
    ) -> Result<NextCut, RunError> {
        let all = check(metadata, supplies)?;
        if let CutRule::Paced(paced) = &mut self.way {
            return Ok(paced.next(metadata, supplies));
        }
        if self.cut >= self.end {
            return Ok(NextCut::End);
        }
        let first = self.first;
        let there = |records: u64| {
            let mut cut = metadata.inputs.iter().zip(supplies).filter(|(port, _)| !port.whole);
            cut.all(|(port, supply)| supply.bytes >= (first + records).saturating_mul(port.record_bytes))
        };
        let (end, mut lookahead) = match &mut self.way {
            CutRule::Even(each) if there(*each) => (first + *each, Some(0)),
            CutRule::Even(each) => match all {
                Some(all) => (all.min(first + *each), None),
                None => return Ok(NextCut::Wait),
            },
            CutRule::All => {
                fits_one(metadata, supplies, all)?;
                match all {
                    Some(all) => (all, None),
                    None => return Ok(NextCut::Wait),
                }
            }
            CutRule::Paced(_) => unreachable!("they were cut above"),
            CutRule::At(edges) => (edges.get(self.cut as usize + 1).copied().unwrap_or(first), Some(0)),
            CutRule::Lines(from) => {
                let queue = queue.expect("lines from outside were searched for before");
                match line_end(queue, first, self.bytes, from) {
                    Some(edge) => edge,
                    None => return fits(first, queue.end()).map(|()| NextCut::Wait),
                }
            }
            CutRule::Prefixed(at) => {
                let queue = queue.expect("prefixes from outside were searched for before");
                match prefix_end(queue, first, self.bytes, at)? {
                    Some(edge) => edge,
                    None if *at == first => return fits(first, queue.end()).map(|()| NextCut::Wait),
                    None => return Ok(NextCut::Wait),
                }
            }
        };
        if end == first {
            return Ok(if all.is_some() { NextCut::End } else { NextCut::Wait });
        }
        if !matches!(self.way, CutRule::Even(_) | CutRule::All) {
            let largest = metadata.inputs.iter().filter(|i| !i.whole).map(|i| i.record_bytes).max().unwrap_or(1);
            fits(first * largest, end * largest)?;
            if !there(end - first) {
                if all.is_none() {
                    return Ok(NextCut::Wait);
                }
                lookahead = None;
            }
        }
        Ok(NextCut::Task(Cut { first, records: end - first }, lookahead))
    }

    /// Advances to the end of a task that was cut.
    pub(crate) fn take(&mut self, cut: Cut) {
        assert!(cut.first == self.first && cut.records > 0, "{cut:?} is taken at record {}", self.first);
        if self.paced().is_none() {
            self.first += cut.records;
        }
        self.cut += 1;
    }
}

/// The edges of all tasks: the first record (or byte) of each task, and the end of the last one.
pub(crate) struct Edges(Vec<u64>);

impl Edges {
    /// Converts edges in bytes of the first input to edges in records; a record across an edge goes to the task that it
    /// begins in.
    pub(crate) fn of_records(bytes: &[u64], metadata: &Metadata) -> Self {
        let each = metadata.inputs[0].record_bytes;
        let mut edges: Vec<u64> = bytes.iter().map(|at| at.div_ceil(each)).collect();
        edges.dedup();
        Self(edges)
    }
}

/// Checks that each input that is cut has whole elements, that these inputs have the same number of records unless they
/// have paces of their own, and that other inputs fit a window. Returns the number of records once all inputs that are
/// cut have ended, else `None`, as for paces.
pub(crate) fn check(metadata: &Metadata, supplies: &[Supply]) -> Result<Option<u64>, RunError> {
    let ports = || metadata.inputs.iter().zip(supplies);
    for (port, supply) in ports().filter(|(port, supply)| port.whole || supply.closed) {
        let (name, bytes, item) = (&port.name, supply.bytes, port.element.bytes());
        if port.whole && bytes > abi::WINDOW_BYTES {
            let most = abi::WINDOW_BYTES;
            return Err(RunError::Inputs(format!(
                "input {name}, which every task gets whole, must have at most {most} bytes, not {bytes}"
            )));
        }
        if !port.whole && !bytes.is_multiple_of(item) {
            return Err(RunError::Inputs(format!("input {name} of {bytes} bytes is not whole elements of {item}")));
        }
    }
    if metadata.is_paced() {
        return Ok(None);
    }
    let cut = || ports().filter(|(port, _)| !port.whole);
    let records = |(port, supply): (&InputPort, &Supply)| supply.bytes.div_ceil(port.record_bytes);
    let Some(ended) = cut().find(|(_, supply)| supply.closed) else { return Ok(None) };
    let all = records(ended);
    for other in cut() {
        let found = records(other);
        // An input that has not ended may have fewer records so far, but not more.
        if found > all || (other.1.closed && found != all) {
            let (first, name) = (&ended.0.name, &other.0.name);
            let more = if other.1.closed { "" } else { " or more" };
            return Err(RunError::Inputs(format!(
                "input {first} has {all} records, input {name} {found}{more}; they must have the same"
            )));
        }
    }
    Ok(cut().all(|(_, supply)| supply.closed).then_some(all))
}

/// The end of a task, and the number of bytes beyond it as in [`NextCut::Task`].
type TaskEnd = (u64, Option<u64>);

/// Returns the end of a task of whole lines that begins at byte `first`, if it has arrived. Bytes before `from`
/// were searched by earlier calls; `from` advances to the first byte that is not searched yet.
fn line_end(queue: &StreamQueue, first: u64, bytes: u64, from: &mut u64) -> Option<TaskEnd> {
    // The line that holds the last byte of the target size belongs to the task.
    let least = (first + bytes - 1).max(*from);
    if let Some(at) = queue.find(b'\n', least) {
        return Some((at + 1, Some(0)));
    }
    *from = (*from).max(queue.end());
    queue.is_closed().then(|| (queue.end(), None))
}

/// Returns the end of a task of length-prefixed records that begins at byte `first`, if it has arrived. A record begins
/// at `at`, which advances over whole records.
fn prefix_end(queue: &StreamQueue, first: u64, bytes: u64, at: &mut u64) -> Result<Option<TaskEnd>, RunError> {
    loop {
        let Some(word) = queue.word(*at) else {
            let left = queue.end() - (*at).min(queue.end());
            return match queue.is_closed() {
                true if left > 0 => Err(no_length(*at, queue.end())),
                true => Ok(Some((*at, None))),
                false => Ok(None),
            };
        };
        let length = record_length(word);
        let next = *at + 4 + length;
        if next - first > bytes && *at > first {
            return Ok(Some((*at, Some(4))));
        }
        if next > queue.end() {
            if queue.is_closed() {
                return Err(beyond(*at, length, queue.end()));
            }
            return Ok(None);
        }
        *at = next;
    }
}

fn record_length(word: [u8; 4]) -> u64 {
    u64::from(u32::from_le_bytes(word) & 0x7fff_ffff)
}

fn no_length(at: u64, all: u64) -> RunError {
    RunError::Inputs(format!("a record at byte {at} has no room for its length before the end at {all}"))
}

fn beyond(at: u64, length: u64, all: u64) -> RunError {
    RunError::Inputs(format!("a record at byte {at} of {length} bytes ends beyond the end at {all}"))
}

fn fits(first: u64, end: u64) -> Result<(), RunError> {
    let (length, most) = (end - first, abi::WINDOW_BYTES);
    if length > most {
        return Err(RunError::Inputs(format!(
            "the record at byte {first} needs a task of {length} bytes; at most {most}"
        )));
    }
    Ok(())
}

/// Checks that the bytes of the inputs that have arrived fit one task, and once these are all, that the room of the
/// outputs for this number of `records` does.
fn fits_one(metadata: &Metadata, supplies: &[Supply], records: Option<u64>) -> Result<(), RunError> {
    let most = metadata.most_bytes();
    let cure = match metadata.tasks {
        Tasks::Whole => "",
        _ => ", unless the caller gives the size of a task. It is then called for each task, and sees no other",
    };
    let refused = |what: &str, bytes: u64| {
        Err(RunError::Inputs(format!(
            "{what} has {bytes} bytes; {} takes its inputs whole: they must fit one task of at most {most} bytes{cure}",
            metadata.name
        )))
    };
    let cut = || metadata.inputs.iter().zip(supplies).filter(|(port, _)| !port.whole);
    if let Some((port, supply)) = cut().find(|(_, supply)| supply.bytes > most) {
        return refused(&format!("input {}", port.name), supply.bytes);
    }
    let Some(records) = records else { return Ok(()) };
    let all = cut().map(|(_, supply)| supply.bytes).sum();
    let rooms = metadata.outputs.iter().filter(|port| port.phase.is_of_tasks());
    let mut rooms = rooms.map(|port| (port, port.bound.room(records, all)));
    match rooms.find(|(_, room)| *room > most) {
        Some((port, room)) => refused(&format!("the room of output {}", port.name), room),
        None => Ok(()),
    }
}

/// Number of bytes that a search reads at once.
const LOOK_BYTES: u64 = 64 << 10;
/// Bytes that are read at once to find the end of a line, at first: most lines are shorter.
const LINE_BYTES: u64 = 512;

/// Returns the offset of the first byte of each task of whole lines, and the end of the input.
fn at_lines(source: &dyn InputSource, input: usize, all: u64, bytes: u64) -> Result<Vec<u64>, RunError> {
    let bytes = bytes.clamp(1, abi::WINDOW_BYTES);
    let mut edges = vec![0];
    let mut buffer = Vec::new();
    let mut from = bytes;
    while from < all {
        // The line that holds byte `from - 1` belongs to the task before.
        let (mut at, mut look) = (from - 1, LINE_BYTES);
        let edge = loop {
            if at >= all {
                break all;
            }
            buffer.resize(look.min(all - at) as usize, 0);
            source.read(input, at, &mut buffer).map_err(RunError::Transfer)?;
            match buffer.iter().position(|b| *b == b'\n') {
                Some(i) => break at + i as u64 + 1,
                None => at += buffer.len() as u64,
            }
            look = LOOK_BYTES;
        };
        push(&mut edges, edge)?;
        from = edge.max(from) + bytes;
    }
    push(&mut edges, all)?;
    Ok(edges)
}

/// Returns the offset of the first byte of each task of whole length-prefixed records, and the end of the input.
fn at_prefixes(source: &dyn InputSource, input: usize, all: u64, bytes: u64) -> Result<Vec<u64>, RunError> {
    let bytes = bytes.clamp(1, abi::WINDOW_BYTES);
    let (mut edges, mut at) = (vec![0], 0u64);
    let (mut buffer, mut begin) = (Vec::new(), 0u64);
    while at < all {
        if all - at < 4 {
            return Err(no_length(at, all));
        }
        if at < begin || at + 4 > begin + buffer.len() as u64 {
            buffer.resize(LOOK_BYTES.min(all - at) as usize, 0);
            source.read(input, at, &mut buffer).map_err(RunError::Transfer)?;
            begin = at;
        }
        let i = (at - begin) as usize;
        let length = record_length(buffer[i..i + 4].try_into().expect("four bytes"));
        let next = at + 4 + length;
        if next > all {
            return Err(beyond(at, length, all));
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
    fits(last, edge)?;
    if edge > last {
        edges.push(edge);
    }
    Ok(())
}
