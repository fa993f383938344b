//! Sources and sinks: the origin of a run's external inputs, and the destination of its outputs.
//!
//! An input is bytes one after the other, read a task's bytes at a time; an output is taken in the order of tasks. The
//! caller decides what stores them: boxes of spaces, or memory.

/// The error of a transfer.
pub type TransferError = Box<dyn std::error::Error + Send + Sync>;

/// The external inputs of a run: each is bytes one after the other.
pub trait InputSource: Sync {
    /// Bytes of an input.
    fn bytes(&self, input: usize) -> u64;
    /// Fill `into` with the bytes of an input from `offset` on.
    ///
    /// # Errors
    /// The source's or the sink's own.
    fn read(&self, input: usize, offset: u64, into: &mut [u8]) -> Result<(), TransferError>;
    /// Calls `f` with the bytes of an input in place, if they are contiguous in memory; else does nothing. `f` must
    /// terminate and must not call this source: a source may hold locks meanwhile.
    ///
    /// # Errors
    /// The source's own; `f` was not called then.
    fn lend(&self, input: usize, offset: u64, bytes: u64, f: &mut dyn FnMut(&[u8])) -> Result<(), TransferError> {
        let _ = (input, offset, bytes, f);
        Ok(())
    }
    /// Whether an input lies in the store; otherwise it is the caller's memory, which a modelled device gets over its
    /// link.
    fn is_stored(&self, _input: usize) -> bool {
        true
    }
    /// The best unit of reads in bytes; 0 if there is none. Called for a program's first input only.
    fn grain(&self, _input: usize) -> u64 {
        0
    }
    /// Bytes before the end of each task, from 0 on, if tasks of fixed-size records may end at certain places only.
    /// Called for a program's first input only.
    fn edges(&self, _input: usize) -> Option<Vec<u64>> {
        None
    }
    /// Extents of the task that begins at `offset`, in elements, the last dimension fastest; empty without tiles.
    fn extents(&self, _input: usize, _offset: u64) -> Vec<u64> {
        Vec::new()
    }
}

/// The destination of a run's outputs.
pub trait OutputSink: Send {
    /// Take the bytes that a task wrote to an output. Called in the order of tasks.
    ///
    /// # Errors
    /// The source's or the sink's own.
    fn take(&mut self, output: usize, task: u64, bytes: Vec<u8>) -> Result<(), TransferError>;
    /// Whether an output goes into the store; otherwise it is the caller's, over the link of a modelled device.
    fn is_stored(&self, _output: usize) -> bool {
        false
    }
    /// Take the bytes that a program wrote to an output at its end.
    ///
    /// # Errors
    /// The source's or the sink's own.
    fn end(&mut self, output: usize, bytes: Vec<u8>) -> Result<(), TransferError> {
        self.take(output, u64::MAX, bytes)
    }
}
