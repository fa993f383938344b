//! Sources and sinks: where the inputs of a run come from, and where its outputs go.
//!
//! An input is bytes one after the other, read a task's bytes at a time; an output is taken in the order of tasks. What
//! stands behind them (boxes of spaces, memory) is the caller's.

/// Why a transfer failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where inputs come from: bytes one after the other.
pub trait Source: Sync {
    /// Bytes of an input.
    fn bytes(&self, input: usize) -> u64;
    /// Fill `into` with the bytes of an input from `offset` on.
    ///
    /// # Errors
    /// The source's or the sink's own.
    fn read(&self, input: usize, offset: u64, into: &mut [u8]) -> Result<(), Failure>;
    /// Call `f` with the bytes of an input where they lie, if they are there together and in order; else do nothing.
    /// `f` comes to its end, and asks for nothing of this source: a source may hold locks meanwhile.
    ///
    /// # Errors
    /// The source's own; `f` was not called then.
    fn lend(&self, input: usize, offset: u64, bytes: u64, f: &mut dyn FnMut(&[u8])) -> Result<(), Failure> {
        let _ = (input, offset, bytes, f);
        Ok(())
    }
    /// Whether an input lies in the store; otherwise it is memory of the caller's, which a modelled device gets over
    /// its link.
    fn is_stored(&self, _input: usize) -> bool {
        true
    }
    /// Bytes of an input that are best read in multiples; 0 if any are. Asked of what a program's first input is.
    fn grain(&self, _input: usize) -> u64 {
        0
    }
    /// Bytes before the end of each task, from 0 on, where tasks of records of one size cannot end wherever it suits.
    /// Asked of what a program's first input is.
    fn edges(&self, _input: usize) -> Option<Vec<u64>> {
        None
    }
    /// Extents of the task that begins there, in elements, the last dimension fastest; none if it is just elements.
    fn extents(&self, _input: usize, _offset: u64) -> Vec<u64> {
        Vec::new()
    }
}

/// Where outputs go to.
pub trait Sink: Send {
    /// Take the bytes that a task wrote to an output. Called in the order of tasks.
    ///
    /// # Errors
    /// The source's or the sink's own.
    fn take(&mut self, output: usize, task: u64, bytes: Vec<u8>) -> Result<(), Failure>;
    /// Whether an output goes into the store; otherwise it is the caller's, over the link of a modelled device.
    fn is_stored(&self, _output: usize) -> bool {
        false
    }
    /// Take the bytes that a program wrote to an output at its end.
    ///
    /// # Errors
    /// The source's or the sink's own.
    fn end(&mut self, output: usize, bytes: Vec<u8>) -> Result<(), Failure> {
        self.take(output, u64::MAX, bytes)
    }
}
