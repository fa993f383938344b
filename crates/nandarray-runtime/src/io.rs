//! Sources and sinks: the origin of a run's external inputs, and the destination of its outputs.
//!
//! An input is a sequence of bytes, of which each task reads its part; an output is accepted in the order of tasks. The
//! implementer decides where the bytes are stored: in boxes of spaces, or in memory.

use nandarray_cores::TaskPlace;

/// The error of a read from a source, or of a write to a sink.
pub type TransferError = Box<dyn std::error::Error + Send + Sync>;

/// The external inputs of a run, each a sequence of bytes.
pub trait InputSource: Sync {
    /// Returns the length of an input in bytes.
    fn bytes(&self, input: usize) -> u64;
    /// Fills `into` with the bytes of an input from byte `offset` on.
    ///
    /// # Errors
    /// The error of the source.
    fn read(&self, input: usize, offset: u64, into: &mut [u8]) -> Result<(), TransferError>;
    /// Replaces the content of `into` by `bytes` bytes of a packed input from byte `offset` on, as they are stored.
    ///
    /// # Errors
    /// The error of the source.
    fn read_packed(&self, input: usize, offset: u64, bytes: u64, into: &mut Vec<u8>) -> Result<(), TransferError> {
        let _ = (offset, bytes, into);
        Err(format!("input {input} is not packed").into())
    }
    /// Calls `f` with `bytes` bytes of an input from byte `offset` on, in place, if they are contiguous in memory; else
    /// does nothing. `f` must terminate and must not call this source, which may hold locks meanwhile.
    ///
    /// # Errors
    /// The error of the source; `f` was not called then.
    fn lend(&self, input: usize, offset: u64, bytes: u64, f: &mut dyn FnMut(&[u8])) -> Result<(), TransferError> {
        let _ = (input, offset, bytes, f);
        Ok(())
    }
    /// Whether an input lies in the store; otherwise it lies in the caller's memory, from which a modelled
    /// device gets it over its link.
    fn is_stored(&self, _input: usize) -> bool {
        true
    }
    /// Returns the best unit in which to read an input, in bytes; 0 if every size is as good. Called for a program's
    /// first input only.
    fn grain(&self, _input: usize) -> u64 {
        0
    }
    /// Returns the byte offsets at which tasks of fixed-size records must begin and end, from 0 to the end of the
    /// input; `None` if tasks may end after any record. Called for a program's first input only.
    fn edges(&self, _input: usize) -> Option<Vec<u64>> {
        None
    }
    /// Returns the place of the tile that begins at byte `offset` of an input and is one task, as it is passed to the
    /// program; the default if the input has no tiles.
    fn place(&self, _input: usize, _offset: u64) -> TaskPlace {
        TaskPlace::default()
    }
}

/// The destination of a run's outputs.
pub trait OutputSink: Send {
    /// Accepts the bytes that a task wrote to an output. Called in the order of tasks.
    ///
    /// # Errors
    /// The error of the sink.
    fn take(&mut self, output: usize, task: u64, bytes: Vec<u8>) -> Result<(), TransferError>;
    /// Whether an output is written to the store; otherwise it goes to the caller, over the link of a modelled device.
    fn is_stored(&self, _output: usize) -> bool {
        false
    }
    /// Accepts the bytes that a program wrote to an output at its end (`nd_end`).
    ///
    /// # Errors
    /// The error of the sink.
    fn end(&mut self, output: usize, bytes: Vec<u8>) -> Result<(), TransferError> {
        self.take(output, u64::MAX, bytes)
    }
}

/// One output of a task, or of a program's end, that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Number of the task in its stage; `None` for the program's end.
    pub task: Option<u64>,
    /// Number of the output in its stage.
    pub output: usize,
    /// The output's number in the run's [`OutputSink`]; `None` if only other stages read it.
    pub sink: Option<usize>,
    /// Whether the sink writes the output to the store.
    pub is_stored: bool,
    /// Whether other stages read the output.
    pub is_read: bool,
    /// Number of bytes delivered.
    pub bytes: u64,
}

/// The location of a task's input before it is fetched, with its number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputLocation {
    /// Bytes that lie in the store.
    Stored(u64),
    /// Bytes that lie in the caller's memory.
    Host(u64),
    /// Bytes that are in memory beside the program already: whole inputs.
    Here(u64),
    /// Bytes that another stage of the run produced.
    Queued {
        /// Number of that stage.
        stage: usize,
        /// Number of the output in that stage.
        output: usize,
        /// Position of the first byte in that output.
        from: u64,
        /// Number of bytes.
        bytes: u64,
    },
}
