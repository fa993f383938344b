//! A program's functions compiled for this process: they are trusted, and called directly.
//!
//! The argument block is the same as on a hart, with addresses of this process in it. Only the results of the functions
//! are checked: a function that accesses memory beyond its windows can crash the process, and none can be interrupted
//! within a task. The caller loads the functions into the process.

use std::ops::Range;

use crate::abi::{self, Arguments};
use crate::program::EntryPoint;

/// An entry point: takes the argument block; returns a negative number for an error of the program's own, else 0 or
/// more.
type Function = unsafe extern "C" fn(*mut u8) -> i64;

/// The way in which a program is executed.
#[derive(Clone, Copy, Debug, Default)]
pub enum Form {
    /// Interpreted, instruction by instruction: the reference.
    #[default]
    Interpreted,
    /// Translated to host code, by a processor of the caller's, see [`Core::new`](crate::Core::new).
    Translated,
    /// Called as functions of this process.
    Native(Native),
}

/// A program's entry points in this process.
#[derive(Clone, Copy, Debug)]
pub struct Native {
    begin: Option<Function>,
    task: Function,
    merge: Option<Function>,
    end: Option<Function>,
}

impl Native {
    /// Wraps entry points by their addresses, in the order `nd_begin`, `nd_block` or `nd_stream`, `nd_merge`, `nd_end`;
    /// 0 stands for a missing one. Returns `None` if the second is missing.
    ///
    /// # Safety
    /// Each address is 0 or that of a function of this type which stays where it is as long as this value, or a copy of
    /// it, is used; which several threads may call at once, with argument blocks of their own; and which reaches
    /// nothing but what its argument block names.
    pub unsafe fn new(addresses: [usize; 4]) -> Option<Self> {
        // SAFETY: the caller vouches for addresses other than 0, and `None` is 0.
        let [begin, task, merge, end] =
            addresses.map(|address| unsafe { std::mem::transmute::<usize, Option<Function>>(address) });
        Some(Self { begin, task: task?, merge, end })
    }

    pub(crate) fn get(&self, entry: EntryPoint) -> Option<Function> {
        match entry {
            EntryPoint::Begin => self.begin,
            EntryPoint::Task => Some(self.task),
            EntryPoint::Merge => self.merge,
            EntryPoint::End => self.end,
        }
    }
}

/// The return value of a native function, with what it reported in its argument block.
pub(crate) struct Given {
    /// The function's return value.
    pub(crate) code: i64,
    /// Numbers that the function noted beside its return value, if that is an error.
    pub(crate) noted: [i64; 2],
    /// Number of bytes that the function wrote to each output.
    pub(crate) used: Vec<u64>,
    /// The number of an input stream that ended within an element, and the bytes left in it; `None` if none did.
    pub(crate) torn: Option<(u8, u8)>,
}

/// 64 bytes of memory, aligned for vector instructions.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// A core that calls functions of this process: the functions, and one worker's memory.
pub(crate) struct NativeCore {
    entries: Native,
    block: Vec<Line>,
    scratchpad: Vec<Line>,
}

impl NativeCore {
    pub(crate) fn new(entries: Native, scratchpad_bytes: u64) -> Self {
        let lines = |bytes: u64| vec![Line([0; 64]); bytes.div_ceil(64) as usize];
        Self { entries, block: lines(abi::ARGS_BYTES), scratchpad: lines(scratchpad_bytes) }
    }

    /// Returns the argument block, as the last call left it.
    pub(crate) fn block(&self) -> &[u8] {
        // SAFETY: a line is 64 bytes without padding, and every byte is a value.
        unsafe { std::slice::from_raw_parts(self.block.as_ptr().cast(), self.block.len() * 64) }
    }

    /// Returns the address of the scratchpad.
    pub(crate) fn scratchpad(&self) -> u64 {
        self.scratchpad.as_ptr() as u64
    }

    /// Returns a range of the scratchpad's bytes.
    pub(crate) fn scratchpad_mut(&mut self, bytes: Range<u64>) -> &mut [u8] {
        let all = self.scratchpad.as_flattened_bytes();
        &mut all[bytes.start as usize..bytes.end as usize]
    }

    /// Calls an entry point, which must exist, with these arguments; `streams` is the number of input
    /// streams, `outputs` that of outputs.
    ///
    /// # Safety
    /// The addresses in the arguments are valid for their lengths, and no other thread writes to that memory.
    pub(crate) unsafe fn call(
        &mut self,
        entry: EntryPoint,
        arguments: &Arguments,
        streams: usize,
        outputs: usize,
    ) -> Given {
        let function = self.entries.get(entry).expect("an entry point that there is");
        let block = self.block.as_flattened_bytes();
        arguments.write(block);
        // SAFETY: the maker of the entries vouched for the function, the caller for the addresses in the block.
        let code = unsafe { function(block.as_mut_ptr()) };
        // A stream that ended within an element reports this in a field that is 0 otherwise: 1 + the bytes left.
        let torn = (0..streams).find_map(|i| match Arguments::taken(block, i) {
            0 | 1 => None,
            left => Some((i as u8, (left - 1) as u8)),
        });
        let noted = Arguments::noted(block);
        Given { code, noted, used: (0..outputs).map(|i| Arguments::used(block, i)).collect(), torn }
    }
}

trait FlattenBytes {
    fn as_flattened_bytes(&mut self) -> &mut [u8];
}

impl FlattenBytes for Vec<Line> {
    fn as_flattened_bytes(&mut self) -> &mut [u8] {
        // SAFETY: a line is 64 bytes without padding, and every byte is a value.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len() * 64) }
    }
}
