//! Profiles of programs: cores that count their instructions, and the sum of their counts.
//!
//! A [`Profiler`] makes cores like [`Core::interpreter`], which add their counts to it when they are dropped. The
//! functions and lines behind an address are not known here.

use std::sync::Arc;

use nandarray_hart::{Counter, Extensions, Hart, HartMode, Limits, Memory, Profile, Rv32, Rv64, Stop, Streams, Xlen};
use parking_lot::Mutex;

use crate::core::Core;
use crate::error::LoadError;
use crate::processor::Processor;
use crate::program::Program;

/// Makes cores that count the executions of each instruction.
#[derive(Clone, Debug, Default)]
pub struct Profiler(Arc<Mutex<Profile>>);

impl Profiler {
    /// A core with an interpreter that counts.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn core<'p>(&self, program: &'p Program) -> Result<Core<'p>, LoadError> {
        let processor: Box<dyn Processor> = match program.bits() {
            32 => Box::new(Counting::<Rv32>::new(self.clone(), program.extensions())),
            _ => Box::new(Counting::<Rv64>::new(self.clone(), program.extensions())),
        };
        Core::new(program, processor)
    }

    /// Takes the counts of all of its cores that were dropped since the last call.
    pub fn take(&self) -> Profile {
        std::mem::take(&mut *self.0.lock())
    }
}

/// An interpreter that counts.
struct Counting<X: Xlen> {
    hart: Hart<X, Counter>,
    to: Profiler,
}

impl<X: Xlen> Counting<X> {
    fn new(to: Profiler, extensions: Extensions) -> Self {
        Self { hart: Hart::with_meter(HartMode::Program, extensions, Counter::default()), to }
    }
}

impl<X: Xlen> Drop for Counting<X> {
    fn drop(&mut self) {
        self.to.0.lock().add(&self.hart.meter_mut().take());
    }
}

impl<X: Xlen> Processor for Counting<X> {
    fn start(&mut self, entry: u64, stack: u64, argument: u64) {
        self.hart.start(entry, stack, argument);
    }

    fn run(&mut self, memory: &mut Memory<'_>, streams: &mut Streams<'_>, limits: Limits<'_>) -> Stop {
        self.hart.run(memory, streams, limits)
    }

    fn pc(&self) -> u64 {
        self.hart.pc()
    }

    fn link(&self) -> Option<u64> {
        Processor::link(&self.hart)
    }

    fn result(&self) -> i64 {
        Processor::result(&self.hart)
    }

    fn instructions(&self) -> u64 {
        self.hart.instructions()
    }
}
