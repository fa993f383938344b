//! A task as a core gets it: its number, its place in the input, and its bytes. Not here: how inputs are cut into
//! tasks.

use crate::abi::InputPace;

/// The inputs of one task, borrowed from the caller.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedTask<'t> {
    /// Number of the task.
    pub number: u64,
    /// Number of the task's first record, counted from the beginning of the first input.
    pub first_record: u64,
    /// Number of records of the first input; of all inputs together if they have paces of their own.
    pub records: u64,
    /// Place of the task in its first input.
    pub place: &'t TaskPlace,
    /// Bytes of each input.
    pub inputs: &'t [&'t [u8]],
}

/// The place of a task in its first input, as far as a program learns it. The default is a run of records of an input
/// of unknown length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPlace {
    /// Extents of the inputs' boxes, in elements, if the task is a box of an array; empty if it is a run of records.
    pub extents: Vec<u64>,
    /// Extents of the outputs' boxes if they differ from those of the inputs, which have a halo; else empty.
    pub inner: Vec<u64>,
    /// Coordinates of the box's first element without its halo; empty for a run of records.
    pub first: Vec<u64>,
    /// Shape of the box that is cut into tasks, or the number of records of the first input; empty if it is not known.
    pub total: Vec<u64>,
    /// Place of the task in each input, if the inputs have paces of their own; else empty.
    pub paces: Vec<InputPace>,
}

/// The place of what is no task.
static NOWHERE: TaskPlace =
    TaskPlace { extents: Vec::new(), inner: Vec::new(), first: Vec::new(), total: Vec::new(), paces: Vec::new() };

impl BorrowedTask<'_> {
    /// Returns a task without inputs, for the entry points that have none.
    pub(crate) fn nothing(number: u64) -> Self {
        Self { number, first_record: 0, records: 0, place: &NOWHERE, inputs: &[] }
    }
}
