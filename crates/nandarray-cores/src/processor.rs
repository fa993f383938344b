//! Processors execute a program's instructions: one is given an entry point, then run until something stops it, as
//! often as it takes.

use std::any::Any;

use nandarray_hart::{Hart, Limits, Memory, Meter, Stop, Streams, Xlen};

/// Executes a program's instructions.
pub trait Processor: Send {
    /// Begin a call of the function at `entry` with one argument; [`run`](Self::run) executes it.
    fn start(&mut self, entry: u64, stack: u64, argument: u64);
    /// Go on until something stops it. After a wait, a pause or a limit it can be called again, with the same memory,
    /// and streams that stand where they stood or have moved on.
    fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop;
    /// Program counter after the last run.
    fn pc(&self) -> u64;
    /// The return address, by the calling convention, if it is known.
    fn link(&self) -> Option<u64> {
        None
    }
    /// The value that a function of 64 bits returned.
    fn result(&self) -> i64;
    /// Instructions executed so far.
    fn instructions(&self) -> u64;

    /// The meter that observes its instructions, if it has one to be asked.
    fn meter(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// Begin a call, and run until something stops it.
    fn call(
        &mut self,
        entry: u64,
        stack: u64,
        argument: u64,
        memory: &mut Memory<'_>,
        streams: &mut Streams<'_>,
        limits: Limits<'_>,
    ) -> Stop {
        self.start(entry, stack, argument);
        self.run(memory, streams, limits)
    }
}

impl<X: Xlen, M: Meter + 'static> Processor for Hart<X, M> {
    fn start(&mut self, entry: u64, stack: u64, argument: u64) {
        Hart::call(self, entry, stack, &[argument]);
    }

    fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        Hart::run(self, memory, streams, limits)
    }

    fn pc(&self) -> u64 {
        Hart::pc(self)
    }

    fn link(&self) -> Option<u64> {
        Some(self.x(1))
    }

    fn result(&self) -> i64 {
        let low = self.x(10);
        if X::BITS == 32 { (low & 0xffff_ffff | self.x(11) << 32) as i64 } else { low as i64 }
    }

    fn instructions(&self) -> u64 {
        Hart::instructions(self)
    }

    fn meter(&mut self) -> Option<&mut dyn Any> {
        Some(self.meter_mut())
    }
}
